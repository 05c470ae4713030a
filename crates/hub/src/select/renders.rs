//! Envelopes that Addons have made. A render may take several, and they can't be written at once: only
//! when all are as their Addon's status lists them is any of it placed. So a change rolls out whole, whenever
//! the hub dies, and what somebody else writes into them never does.
//!
//! | an envelope with the label of an Addon | what becomes of it |
//! |---|---|
//! | that does not exist | it is one like any other |
//! | that does not list it | it is passed over: the render has no such envelope any more |
//! | that lists it with another content, or lists one that is not selected | the placement keeps what it has |
//! | that is not there, of an Addon that the placement is for | the placement keeps what it has |
//! | that lists it as it is | it is placed, and the hub vouches for it: Roles in it need no leave of their own |

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use windlass_api::addon::RenderedEnvelope;
use windlass_api::labels;
use windlass_api::placement::ResourceIdentifier;
use windlass_cluster::ObjectKey;
use windlass_member::manifest::Manifest;
use windlass_status::digest::Digest;

use super::SelectError;

/// Tells of Addons.
#[derive(Clone)]
pub struct Renders {
    lists: Arc<Lists>,
    placed_by: Arc<PlacedBy>,
}

type Lists = dyn Fn(&str) -> Option<Vec<RenderedEnvelope>> + Send + Sync;
type PlacedBy = dyn Fn(&str) -> Vec<(String, Whose)> + Send + Sync;

/// Whose a placement is that an Addon hands its render to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The hub has made it for the Addon alone.
    Own,
    /// The user's: what it selects besides, or instead, is their affair.
    Users,
}

impl Renders {
    /// Asks these functions: which envelopes an Addon lists, none if there is no such Addon; and which Addons hand
    /// themselves to the ClusterResourcePlacement of that name.
    #[must_use]
    pub fn new(lists: Arc<Lists>, placed_by: Arc<PlacedBy>) -> Self {
        Self { lists, placed_by }
    }

    /// The Addons whose envelopes a placement has to have, whether any is there or not: those that it was made for, and
    /// those of which it had some before. So envelopes that are gone all at once are missed, too.
    fn expected<'a>(
        &'a self,
        placement: &ObjectKey,
        remembered: &'a [ResourceIdentifier],
    ) -> impl Iterator<Item = (String, Vec<RenderedEnvelope>)> + 'a {
        let addons = match &*placement.namespace {
            "" => (self.placed_by)(&placement.name),
            _ => Vec::new(),
        };
        addons.into_iter().filter_map(|(addon, whose)| {
            let list = (self.lists)(&addon)?;
            let had = || list.iter().any(|listed| is_among(listed, remembered));
            (whose == Whose::Own || had()).then_some((addon, list))
        })
    }
}

fn is_among(listed: &RenderedEnvelope, remembered: &[ResourceIdentifier]) -> bool {
    let kind = kind_of(listed).kind;
    remembered.iter().any(|known| {
        known.kind == kind && known.name == listed.name && known.namespace == listed.namespace
    })
}

impl Default for Renders {
    /// There are no Addons.
    fn default() -> Self {
        Self::new(Arc::new(|_| None), Arc::new(|_| Vec::new()))
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
    placement: &ObjectKey,
    remembered: &[ResourceIdentifier],
) -> Result<Vec<Arc<Manifest>>, SelectError> {
    let mut lists: BTreeMap<String, Option<Vec<RenderedEnvelope>>> = renders
        .expected(placement, remembered)
        .map(|(addon, list)| (addon, Some(list)))
        .collect();
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    let mut settled = Vec::with_capacity(manifests.len());
    for manifest in manifests {
        let Some(addon) = addon_of(&manifest) else {
            settled.push(manifest);
            continue;
        };
        let list = lists
            .entry(addon.to_owned())
            .or_insert_with(|| (renders.lists)(addon));
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
            settled.push(Arc::new(vouched(&manifest, addon, &identity(list))));
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

/// What tells a render from another one once it is placed: what it holds, not what it was made of. So one that comes to
/// the same as the one before, under another Helm say, is no change.
#[must_use]
pub fn identity(list: &[RenderedEnvelope]) -> Digest {
    Digest::of_json(&json!(list))
}

/// The envelope with nothing about it but what was rendered: labels and annotations that somebody adds, or that change
/// with each render, make no version.
fn vouched(manifest: &Manifest, addon: &str, identity: &Digest) -> Manifest {
    let mut object = manifest.object.clone();
    object["metadata"] = json!({
        "name": manifest.id.name,
        "labels": { labels::ADDON: addon },
        "annotations": { labels::ADDON_VOUCHED: identity.to_string() },
    });
    if let Some(namespace) = &manifest.id.namespace {
        object["metadata"]["namespace"] = namespace.as_str().into();
    }
    Manifest::of_snapshot(object)
}

/// The Addons whose renders are among the objects of a snapshot, as its master's annotation has them.
#[must_use]
pub fn named<'a>(manifests: impl Iterator<Item = &'a Manifest>) -> Option<String> {
    let mut renders: Vec<String> = manifests
        .filter_map(|manifest| {
            let annotations = manifest.object.pointer("/metadata/annotations")?;
            let render = annotations.get(labels::ADDON_VOUCHED)?.as_str()?;
            Some(format!("{}={render}", addon_of(manifest)?))
        })
        .collect();
    renders.sort();
    renders.dedup();
    (!renders.is_empty()).then(|| renders.join(","))
}

#[cfg(test)]
mod tests {
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

    /// Only one Addon there is, which lists these.
    fn told(list: Option<Vec<RenderedEnvelope>>) -> Renders {
        Renders::new(
            Arc::new(move |addon| list.clone().filter(|_| addon == "web")),
            Arc::new(|placement| match placement {
                "addon-web" => vec![("web".to_owned(), Whose::Own)],
                "users" => vec![("web".to_owned(), Whose::Users)],
                _ => Vec::new(),
            }),
        )
    }

    /// What is placed of these, each with whether it is vouched for; none if nothing may be.
    fn placed(
        list: Option<Vec<RenderedEnvelope>>,
        all: &[Arc<Manifest>],
    ) -> Option<Vec<(String, bool)>> {
        let renders = told(list);
        let settled = settle(all.to_vec(), &renders, &ObjectKey::cluster("p"), &[]).ok()?;
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
            &told(Some(vec![listed("a", "1")])),
            &ObjectKey::cluster("p"),
            &[],
        );
        let object = object.expect("whole");
        assert_eq!(
            named(object.iter().map(|manifest| &**manifest)).as_deref(),
            Some(format!("web={}", identity(&[listed("a", "1")])).as_str())
        );
    }

    /// What is placed depends on what was rendered alone.
    #[test]
    fn words_on_an_envelope_change_nothing() {
        let renders = told(Some(vec![listed("a", "1")]));
        let settled = |more: Value| {
            let mut object = envelope("a", Some("web"), "1").object.clone();
            object["metadata"]["annotations"] = more;
            let all = vec![Arc::new(Manifest::of_snapshot(object))];
            settle(all, &renders, &ObjectKey::cluster("p"), &[]).expect("whole")
        };
        let plain = settled(json!({labels::ADDON_RENDER: "d1"}));
        let other = settled(json!({labels::ADDON_RENDER: "d2", "team": "blue"}));
        assert_eq!(plain[0].digest, other[0].digest);
        assert_eq!(plain[0].object, other[0].object);
    }

    /// An envelope is the only one, and somebody has taken it away.
    #[test]
    fn envelopes_that_are_all_gone_are_missed() {
        let had = ResourceIdentifier {
            kind: "ResourceEnvelope".to_owned(),
            name: "a".to_owned(),
            namespace: Some("web".to_owned()),
            ..Default::default()
        };
        let (had, nothing) = (vec![had], Vec::new());
        for (what, placement, remembered, keeps) in [
            ("its own placement", "addon-web", &nothing, true),
            ("its own, later", "addon-web", &had, true),
            ("a user's that never had it", "users", &nothing, false),
            ("a user's that had it", "users", &had, true),
            ("another placement", "other", &had, false),
        ] {
            let renders = told(Some(vec![listed("a", "1")]));
            let settled = settle(
                Vec::new(),
                &renders,
                &ObjectKey::cluster(placement),
                remembered,
            );
            let kept = matches!(settled, Err(SelectError::Unwritten(_)));
            assert_eq!(kept, keeps, "{what}");
        }
        // One that goes lists nothing.
        let settled = settle(
            Vec::new(),
            &told(Some(vec![])),
            &ObjectKey::cluster("addon-web"),
            &had,
        );
        assert_eq!(settled.map(|all| all.len()), Ok(0));
    }
}
