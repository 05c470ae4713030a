//! Envelopes that Addons have made. A render may take several, and they can't be written at once: only
//! when all are as their Addon's status lists them is any of it placed. So a change rolls out whole, whenever
//! the hub dies, and what somebody else writes into them never does.
//!
//! | an envelope with the label of an Addon | what becomes of it |
//! |---|---|
//! | that does not exist | it is one like any other |
//! | that does not list it | it is passed over: the render has no such envelope any more |
//! | that lists it with another content, or lists one that is not selected | the placement keeps what it has |
//! | that lists it as it is | it is placed, and the hub vouches for it: Roles in it need no leave of their own |

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kube::core::GroupVersionKind;
use serde_json::Value;
use windlass_api::addon::RenderedEnvelope;
use windlass_api::labels;
use windlass_member::manifest::Manifest;
use windlass_status::digest::Digest;

use super::SelectError;

/// Tells which envelopes an Addon lists; none if there is no such Addon.
#[derive(Clone)]
pub struct Renders(Arc<Lists>);

type Lists = dyn Fn(&str) -> Option<Vec<RenderedEnvelope>> + Send + Sync;

impl Renders {
    /// Asks that function.
    #[must_use]
    pub fn new(lists: Arc<Lists>) -> Self {
        Self(lists)
    }
}

impl Default for Renders {
    /// There are no Addons.
    fn default() -> Self {
        Self(Arc::new(|_| None))
    }
}

impl fmt::Debug for Renders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renders")
    }
}

/// The kind of an envelope.
#[must_use]
pub fn kind_of(envelope: &RenderedEnvelope) -> GroupVersionKind {
    let kind = match envelope.namespace {
        Some(_) => "ResourceEnvelope",
        None => "ClusterResourceEnvelope",
    };
    GroupVersionKind::gvk(
        windlass_api::PLACEMENT_GROUP,
        windlass_api::STORAGE_VERSION,
        kind,
    )
}

/// See the module.
///
/// # Errors
/// When an Addon's render is not whole.
pub(super) fn settle(
    manifests: Vec<Arc<Manifest>>,
    renders: &Renders,
) -> Result<Vec<Arc<Manifest>>, SelectError> {
    let mut lists: BTreeMap<String, Option<Vec<RenderedEnvelope>>> = BTreeMap::new();
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    let mut settled = Vec::with_capacity(manifests.len());
    for manifest in manifests {
        let Some(addon) = addon_of(&manifest) else {
            settled.push(manifest);
            continue;
        };
        let list = lists
            .entry(addon.to_owned())
            .or_insert_with(|| (renders.0)(addon));
        let Some(list) = list else {
            settled.push(manifest);
            continue;
        };
        let is_it = |listed: &&RenderedEnvelope| {
            listed.name == manifest.id.name && listed.namespace == manifest.id.namespace
        };
        let Some(listed) = list.iter().find(is_it) else {
            continue;
        };
        if content(&manifest.object).is(&listed.digest) {
            *found.entry(addon.to_owned()).or_default() += 1;
            settled.push(Arc::new(vouched(&manifest)));
        }
    }
    for (addon, list) in &lists {
        let expected = list.as_ref().map_or(0, Vec::len);
        let whole = found.get(addon).copied().unwrap_or_default();
        if whole < expected {
            return Err(SelectError::Unwritten(format!(
                "Addon {addon}: {whole} of its {expected} envelopes are selected and hold what it has rendered; \
                 until all are, what is placed stays as it is"
            )));
        }
    }
    Ok(settled)
}

/// Digest of what an envelope holds.
#[must_use]
pub fn content(envelope: &Value) -> Digest {
    Digest::of_json(envelope.get("data").unwrap_or(&Value::Null))
}

fn addon_of(manifest: &Manifest) -> Option<&str> {
    let is_envelope = manifest.id.group == windlass_api::PLACEMENT_GROUP
        && matches!(
            manifest.id.kind.as_str(),
            "ResourceEnvelope" | "ClusterResourceEnvelope"
        );
    let labels = manifest
        .object
        .pointer("/metadata/labels")
        .filter(|_| is_envelope)?;
    labels.get(labels::ADDON)?.as_str()
}

fn vouched(manifest: &Manifest) -> Manifest {
    let mut object = manifest.object.clone();
    object["metadata"]["annotations"][labels::ADDON_VOUCHED] = "true".into();
    Manifest::of_snapshot(object)
}

/// The Addons whose renders are among the objects of a snapshot, as its master's annotation has them.
#[must_use]
pub fn named<'a>(manifests: impl Iterator<Item = &'a Manifest>) -> Option<String> {
    let mut renders: Vec<String> = manifests
        .filter_map(|manifest| {
            let annotations = manifest.object.pointer("/metadata/annotations")?;
            annotations.get(labels::ADDON_VOUCHED)?;
            let render = annotations.get(labels::ADDON_RENDER)?.as_str()?;
            Some(format!("{}={render}", addon_of(manifest)?))
        })
        .collect();
    renders.sort();
    renders.dedup();
    (!renders.is_empty()).then(|| renders.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn envelope(name: &str, addon: Option<&str>, holds: &str) -> Arc<Manifest> {
        let mut object = json!({
            "apiVersion": "placement.kubernetes-fleet.io/v1beta1", "kind": "ResourceEnvelope",
            "metadata": {"name": name, "namespace": "web", "annotations": {labels::ADDON_RENDER: "d1"}},
            "data": {"a": holds},
        });
        if let Some(addon) = addon {
            object["metadata"]["labels"] = json!({labels::ADDON: addon});
        }
        Arc::new(Manifest::of_snapshot(object))
    }

    fn listed(name: &str, holds: &str) -> RenderedEnvelope {
        RenderedEnvelope {
            namespace: Some("web".to_owned()),
            name: name.to_owned(),
            digest: content(&json!({"data": {"a": holds}})).to_string(),
        }
    }

    /// What is placed of these, each with whether it is vouched for; none if nothing may be.
    fn placed(
        list: Option<Vec<RenderedEnvelope>>,
        all: &[Arc<Manifest>],
    ) -> Option<Vec<(String, bool)>> {
        let renders = Renders::new(Arc::new(move |addon| {
            list.clone().filter(|_| addon == "web")
        }));
        let settled = settle(all.to_vec(), &renders).ok()?;
        let shown = settled.iter().map(|manifest| {
            let vouched = manifest
                .object
                .pointer("/metadata/annotations/addons.windlass.dev~1vouched");
            (manifest.id.name.clone(), vouched.is_some())
        });
        Some(shown.collect())
    }

    #[test]
    fn only_a_whole_render_is_placed() {
        let (a, b) = (
            envelope("a", Some("web"), "1"),
            envelope("b", Some("web"), "1"),
        );
        let both = || Some(vec![listed("a", "1"), listed("b", "1")]);
        let names = |rows: &[(&str, bool)]| {
            Some(
                rows.iter()
                    .map(|(name, vouched)| ((*name).to_owned(), *vouched))
                    .collect::<Vec<_>>(),
            )
        };
        let whole = names(&[("a", true), ("b", true)]);
        assert_eq!(placed(both(), &[a.clone(), b.clone()]), whole);
        assert_eq!(
            placed(both(), std::slice::from_ref(&a)),
            None,
            "one is missing"
        );
        let other = envelope("b", Some("web"), "somebody else's");
        assert_eq!(
            placed(both(), &[a.clone(), other]),
            None,
            "one holds something else"
        );
        let first = Some(vec![listed("a", "1")]);
        assert_eq!(
            placed(first, &[a.clone(), b.clone()]),
            names(&[("a", true)]),
            "one is left over"
        );
        let none = names(&[("a", false), ("b", false)]);
        assert_eq!(
            placed(None, &[a.clone(), b.clone()]),
            none,
            "there is no such Addon"
        );
        let own = envelope("own", None, "2");
        assert_eq!(
            placed(both(), &[own]),
            names(&[("own", false)]),
            "it is nobody's"
        );
        let object = settle(
            vec![a],
            &Renders::new(Arc::new(|_| Some(vec![listed("a", "1")]))),
        );
        let object = object.expect("whole");
        assert_eq!(
            named(object.iter().map(|manifest| &**manifest)).as_deref(),
            Some("web=d1")
        );
    }
}
