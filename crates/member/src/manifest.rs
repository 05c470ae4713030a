//! A manifest as it is delivered.

use std::sync::Arc;

use serde_json::Value;
use windlass_api::conditions::ManifestReason;
use windlass_api::placement::EnvelopeIdentifier;
use windlass_status::digest::Digest;

/// Names one object on a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ManifestId {
    /// API group; empty means the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Namespace; none for cluster-scoped objects.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
}

impl ManifestId {
    /// The object, whatever version it is looked at in: what things that are remembered are filed under.
    #[must_use]
    pub fn any_version(&self) -> Self {
        Self {
            version: String::new(),
            ..self.clone()
        }
    }
}

impl std::fmt::Display for ManifestId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// Why a manifest can't be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The reason shown.
    pub reason: ManifestReason,
    /// What is wrong and what to do.
    pub message: String,
}

/// A manifest.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Which object.
    pub id: ManifestId,
    /// The object as it was selected.
    pub object: Value,
    /// Digest of the object.
    pub digest: Digest,
    /// What keeps it from being delivered.
    pub problem: Option<Problem>,
    /// Which part of the snapshot it stands in, from 0.
    pub part: usize,
    /// The envelope that it came in.
    pub envelope: Option<Arc<EnvelopeIdentifier>>,
    /// The hub itself made what is in that envelope.
    pub vouched: bool,
}

impl Manifest {
    /// Reads an object that stands in a snapshot.
    #[must_use]
    pub fn of_snapshot(object: Value) -> Self {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let api_version = text("/apiVersion");
        let (group, version) = match api_version.split_once('/') {
            Some((group, version)) => (group.to_owned(), version.to_owned()),
            None => (String::new(), api_version),
        };
        let id = ManifestId {
            group,
            version,
            kind: text("/kind"),
            namespace: Some(text("/metadata/namespace")).filter(|namespace| !namespace.is_empty()),
            name: text("/metadata/name"),
        };
        let problem = problem(&id, &object);
        Self {
            digest: Digest::of_json(&object),
            id,
            object,
            problem,
            part: 0,
            envelope: None,
            vouched: false,
        }
    }

    /// The manifest with where it came from.
    #[must_use]
    pub fn from(mut self, part: usize, envelope: Option<Arc<EnvelopeIdentifier>>) -> Self {
        self.part = part;
        self.envelope = envelope;
        self
    }

    /// The manifest with whether the hub itself made what is in its envelope.
    #[must_use]
    pub const fn vouched(mut self, vouched: bool) -> Self {
        self.vouched = vouched;
        self
    }
}

fn problem(id: &ManifestId, object: &Value) -> Option<Problem> {
    if id.version.is_empty() || id.kind.is_empty() {
        return Some(Problem {
            reason: ManifestReason::DecodingErred,
            message: "the manifest has no apiVersion or no kind".to_owned(),
        });
    }
    if !id.name.is_empty() {
        return None;
    }
    if object.pointer("/metadata/generateName").is_some() {
        return Some(Problem {
            reason: ManifestReason::FoundGenerateName,
            message: "generateName is not supported; give the object a name".to_owned(),
        });
    }
    Some(Problem {
        reason: ManifestReason::DecodingErred,
        message: "the manifest has no name".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn identities() {
        let manifest = Manifest::of_snapshot(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "n"}}));
        assert_eq!(manifest.id.to_string(), "Deployment n/a");
        assert_eq!(
            (manifest.id.group.as_str(), manifest.id.version.as_str()),
            ("apps", "v1")
        );
        assert_eq!(manifest.problem, None);
    }

    #[test]
    fn problems() {
        for (object, reason) in [
            (json!({}), ManifestReason::DecodingErred),
            (
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}),
                ManifestReason::DecodingErred,
            ),
            (
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}}),
                ManifestReason::FoundGenerateName,
            ),
        ] {
            assert_eq!(
                Manifest::of_snapshot(object)
                    .problem
                    .map(|problem| problem.reason),
                Some(reason)
            );
        }
    }
}
