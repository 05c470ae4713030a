//! The CRD of a kind that lives in a namespace, made from that of its cluster-scoped twin: the schema is the
//! same, names and scope differ.

use serde_json::{Value, json};

use crate::PLACEMENT_GROUP;

/// What the namespaced kind has of its own.
pub struct Twin {
    /// Its kind.
    pub kind: &'static str,
    /// Its plural.
    pub plural: &'static str,
    /// Its short name.
    pub short: &'static str,
    /// What it is, in a sentence.
    pub about: &'static str,
}

impl Twin {
    /// The twin of a CRD.
    pub fn of(&self, mut crd: Value) -> Value {
        let spec = &mut crd["spec"];
        let original = spec["names"]["kind"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        spec["scope"] = json!("Namespaced");
        spec["names"]["kind"] = json!(self.kind);
        spec["names"]["plural"] = json!(self.plural);
        spec["names"]["singular"] = json!(self.kind.to_lowercase());
        spec["names"]["shortNames"] = json!([self.short]);
        let version = &mut spec["versions"][0];
        // From there it is taken for the whole.
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["description"] =
            json!(self.about);
        // Columns show conditions, whose types begin with the kind.
        for column in version["additionalPrinterColumns"]
            .as_array_mut()
            .into_iter()
            .flatten()
        {
            if let Some(path) = column["jsonPath"].as_str() {
                let quoted = path.replace(&format!("\"{original}"), &format!("\"{}", self.kind));
                column["jsonPath"] = json!(quoted);
            }
        }
        crd["metadata"]["name"] = json!(format!("{}.{PLACEMENT_GROUP}", self.plural));
        crd
    }
}
