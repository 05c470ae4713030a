//! What stands under a tag: whether it is a Helm chart, and what it says of itself.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;
use windlass_api::addon::ChartVersion;

/// Media type of a chart's Chart.yaml as JSON.
pub const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
/// Media types of a chart's archive, the first choice first.
pub const CONTENT: [&str; 2] = [
    "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
    "application/tar+gzip",
];
/// What we ask for: a manifest of either kind, and the indexes, so that a registry says what is there
/// instead of 404.
pub const ACCEPT: &str = "application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json";

/// A blob, as a manifest points at it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What it is.
    #[serde(default)]
    pub media_type: String,
    /// Algorithm and digest.
    pub digest: String,
    /// Bytes.
    #[serde(default)]
    pub size: u64,
}

/// The manifest of a chart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Chart.yaml as JSON.
    pub config: Descriptor,
    /// The archive.
    pub content: Descriptor,
    /// `org.opencontainers.image.created`, if it is a time.
    pub created: Option<Time>,
    /// `org.opencontainers.image.description`.
    pub description: Option<String>,
}

#[derive(Deserialize)]
struct Raw {
    config: Descriptor,
    layers: Vec<Descriptor>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

/// Reads a manifest; none if it is no chart's: an index, other types, or nothing that can be read.
#[must_use]
pub fn read(body: &[u8]) -> Option<Manifest> {
    let raw: Raw = serde_json::from_slice(body).ok()?;
    if raw.config.media_type != CONFIG {
        return None;
    }
    let content = CONTENT
        .iter()
        .find_map(|wanted| raw.layers.iter().find(|layer| layer.media_type == *wanted))?
        .clone();
    let mut annotations = raw.annotations.unwrap_or_default();
    let created = annotations
        .remove("org.opencontainers.image.created")
        .and_then(|text| text.parse().ok())
        .map(Time);
    Some(Manifest {
        config: raw.config,
        content,
        created,
        description: annotations.remove("org.opencontainers.image.description"),
    })
}

/// What Chart.yaml says, as far as a catalogue shows it.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// In a sentence.
    pub description: Option<String>,
    /// Version of what is in the chart.
    pub app_version: Option<String>,
    /// Versions of Kubernetes that it runs on.
    pub kube_version: Option<String>,
    /// Not to be used any more.
    pub deprecated: bool,
    /// `application` or `library`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

impl Metadata {
    /// Adds what it says to a version.
    pub fn fill(&self, version: &mut ChartVersion) {
        let short = |text: &String| text.chars().count() <= 256;
        version.app_version = self.app_version.clone().filter(short);
        version.kube_version = self.kube_version.clone().filter(short);
        version.deprecated = self.deprecated.then_some(true);
        version.library = (self.kind.as_deref() == Some("library")).then_some(true);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn layer(media: &str, digest: &str) -> Value {
        json!({"mediaType": media, "digest": digest, "size": 7})
    }

    fn manifest(config: &str, layers: &[Value]) -> Value {
        json!({"schemaVersion": 2, "config": layer(config, "sha256:c"), "layers": layers})
    }

    #[test]
    fn which_manifests_are_charts() {
        let chart = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
        let prov = "application/vnd.cncf.helm.chart.provenance.v1.prov";
        let old = "application/tar+gzip";
        let cases = [
            (manifest(CONFIG, &[layer(chart, "a")]), Some("a")),
            (
                manifest(CONFIG, &[layer(prov, "p"), layer(chart, "a")]),
                Some("a"),
            ),
            (manifest(CONFIG, &[layer(old, "o")]), Some("o")),
            (
                manifest(CONFIG, &[layer(old, "o"), layer(chart, "a")]),
                Some("a"),
            ),
            (manifest(CONFIG, &[layer(prov, "p")]), None),
            (manifest(CONFIG, &[]), None),
            (
                manifest(
                    "application/vnd.oci.image.config.v1+json",
                    &[layer(chart, "a")],
                ),
                None,
            ),
            (
                json!({"mediaType": "application/vnd.oci.image.index.v1+json",
                    "manifests": [layer("application/vnd.oci.image.manifest.v1+json", "m")]}),
                None,
            ),
            (json!({"schemaVersion": 1, "fsLayers": []}), None),
            (json!([]), None),
        ];
        for (body, content) in cases {
            let found = read(body.to_string().as_bytes());
            assert_eq!(
                found.as_ref().map(|found| found.content.digest.as_str()),
                content,
                "{body}"
            );
        }
        assert_eq!(read(b"<html>"), None);
    }

    #[test]
    fn what_a_manifest_says_of_itself() {
        let mut body = manifest(CONFIG, &[layer(CONTENT[0], "a")]);
        body["annotations"] = json!({
            "org.opencontainers.image.created": "2026-01-02T03:04:05Z",
            "org.opencontainers.image.description": "A chart",
        });
        let found = read(body.to_string().as_bytes()).unwrap();
        assert_eq!(found.created.unwrap().0.to_string(), "2026-01-02T03:04:05Z");
        assert_eq!(found.description.as_deref(), Some("A chart"));

        body["annotations"] = json!({"org.opencontainers.image.created": "yesterday"});
        assert_eq!(read(body.to_string().as_bytes()).unwrap().created, None);
        body["annotations"] = Value::Null;
        assert!(read(body.to_string().as_bytes()).is_some());
    }

    #[test]
    fn what_chart_yaml_adds() {
        let text = r#"{"name":"web","version":"1.0.0","appVersion":"2.1","kubeVersion":">=1.28",
            "deprecated":true,"type":"library","description":"x","dependencies":[{"name":"y"}]}"#;
        let mut version = ChartVersion::default();
        serde_json::from_str::<Metadata>(text)
            .unwrap()
            .fill(&mut version);
        assert_eq!(version.app_version.as_deref(), Some("2.1"));
        assert_eq!(version.kube_version.as_deref(), Some(">=1.28"));
        assert_eq!(
            (version.deprecated, version.library),
            (Some(true), Some(true))
        );
        serde_json::from_str::<Metadata>("{}")
            .unwrap()
            .fill(&mut version);
        assert_eq!(version, ChartVersion::default());
    }
}
