//! Envelopes that Addons have made. A render may take several, and they can't be written at once: only
//! when all are as their Addon's status lists them is any of it placed. So a change rolls out whole, whenever
//! the hub dies, and what somebody else writes into them never does.
//!
//! | in what the Addon's own placement selects | what becomes of it |
//! |---|---|
//! | an envelope that the Addon lists, as it is listed | it is placed, and the hub vouches for it: Roles in it need no leave of their own |
//! | one that it lists with another content; one that it lists is not selected; one is selected with the Addon's label, and the Addon lists none yet | the placement keeps what it has |
//! | one that it owns and does not list | it is passed over: the render has no such envelope any more |
//!
//! Other placements pass over what an Addon owns, for it is placed by the Addon's own placement, or twice; so does every
//! placement of an Addon that is gone, for what it owned is about to go, too. An envelope that just carries the label is
//! one like any other: nobody can hold a placement up with it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use windlass_api::addon::{Addon, RenderedEnvelope};
use windlass_api::labels;
use windlass_cluster::ObjectKey;
use windlass_member::manifest::Manifest;
use windlass_status::digest::Digest;

use super::SelectError;

/// Finalizer of what goes only after what it owns.
const FOREGROUND: &str = "foregroundDeletion";
/// On an envelope between being read and being settled, annotation: an Addon owns it.
pub(super) const OWNED: &str = "addons.windlass.dev/owned";

/// What an Addon says of its render.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The Addon.
    pub addon: String,
    /// Its envelopes; none if it has not rendered yet, as far as its status says.
    pub envelopes: Option<Vec<RenderedEnvelope>>,
}

impl Listing {
    /// What an Addon's status lists.
    #[must_use]
    pub fn of(addon: &Addon) -> Self {
        let status = addon.status.as_ref();
        // One that takes its envelopes along as it goes has none: all that is placed goes at once.
        let goes = addon.metadata.deletion_timestamp.is_some()
            && addon.finalizers().iter().any(|own| own == FOREGROUND);
        Self {
            addon: addon.name_any(),
            envelopes: if goes {
                Some(Vec::new())
            } else {
                status.and_then(|status| status.envelopes.clone())
            },
        }
    }
}

/// Tells which Addons a placement is for, and what they list.
#[derive(Clone)]
pub struct Renders {
    listings: Arc<Listings>,
    /// Who asks may not see Addons.
    hidden: bool,
}

type Listings = dyn Fn(&ObjectKey) -> Vec<Listing> + Send + Sync;

impl Renders {
    /// Asks that function.
    #[must_use]
    pub fn new(listings: Arc<Listings>) -> Self {
        Self {
            listings,
            hidden: false,
        }
    }

    /// For somebody who may not see Addons: nothing can be said of what they own.
    #[must_use]
    pub fn hidden() -> Self {
        Self {
            hidden: true,
            ..Self::default()
        }
    }

    /// The Addons that a placement is for.
    #[must_use]
    pub fn of(&self, placement: &ObjectKey) -> Vec<Listing> {
        (self.listings)(placement)
    }

    /// An Addon of a placement that lists nothing although a version of the placement, as its master's annotation
    /// names it, has a render of it: its status is lost, and what is selected without it says nothing.
    #[must_use]
    pub fn lost(&self, placement: &ObjectKey, named: &str) -> Option<String> {
        let has_lost = |listing: &Listing| {
            let mut renders = named.split(',').filter_map(|render| render.split_once('='));
            listing.envelopes.is_none() && renders.any(|(addon, _)| addon == listing.addon)
        };
        let mut listings = self.of(placement).into_iter();
        listings.find(has_lost).map(|listing| listing.addon)
    }
}

impl Default for Renders {
    /// There are no Addons.
    fn default() -> Self {
        Self::new(Arc::new(|_| Vec::new()))
    }
}

impl fmt::Debug for Renders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renders")
    }
}

/// What tells a render from another one once it is placed: what it holds, not what it was made of. So one that comes
/// to the same as the one before, under another Helm say, is no change, and one of the same inputs that came out
/// differently is.
#[must_use]
pub fn identity(list: &[RenderedEnvelope]) -> Digest {
    let mut sorted = list.to_vec();
    sorted.sort();
    Digest::of_json(&json!(sorted))
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
/// When a render that the placement is for is not whole.
pub(super) fn settle(
    placement: &ObjectKey,
    manifests: Vec<Arc<Manifest>>,
    renders: &Renders,
) -> Result<Vec<Arc<Manifest>>, SelectError> {
    let listings = renders.of(placement);
    let mut whole: BTreeSet<(&str, &RenderedEnvelope)> = BTreeSet::new();
    let mut unlisted: BTreeSet<String> = BTreeSet::new();
    let mut settled = Vec::with_capacity(manifests.len());
    for manifest in manifests {
        let Some(addon) = addon_of(&manifest) else {
            settled.push(manifest);
            continue;
        };
        // Those in a namespace never take what is an Addon's.
        if renders.hidden && placement.namespace.is_empty() && is_owned(&manifest) {
            return Err(SelectError::Unwritten(format!(
                "{} is Addon {addon}'s, and what is placed of it can't be said without the right to list addons",
                manifest.id
            )));
        }
        let Some(listing) = listings.iter().find(|listing| listing.addon == addon) else {
            settled.extend(Some(manifest).filter(|manifest| !is_owned(manifest)));
            continue;
        };
        let Some(list) = &listing.envelopes else {
            // A label alone is anybody's; what was orphaned, or restored from a backup, has the mark of a render too.
            if is_owned(&manifest) || is_marked(&manifest) {
                unlisted.insert(addon.to_owned());
            } else {
                settled.push(manifest);
            }
            continue;
        };
        let listed = list.iter().find(|listed| {
            listed.name == manifest.id.name && listed.namespace == manifest.id.namespace
        });
        match listed {
            Some(listed) if content(&manifest.object).is(&listed.digest) => {
                whole.insert((&listing.addon, listed));
                settled.push(Arc::new(vouched(&manifest, addon, &identity(list))));
            }
            // The count below misses it.
            Some(_) => {}
            None => settled.extend(Some(manifest).filter(|manifest| !is_owned(manifest))),
        }
    }
    if let Some(addon) = unlisted.first() {
        return Err(SelectError::Unwritten(format!(
            "Addon {addon} does not say what it has rendered yet; until it does, what is placed stays as it is"
        )));
    }
    for listing in &listings {
        let expected = listing.envelopes.as_ref().map_or(0, Vec::len);
        let found = whole
            .iter()
            .filter(|(addon, _)| *addon == listing.addon)
            .count();
        if found < expected {
            return Err(SelectError::Unwritten(format!(
                "Addon {}: {found} of its {expected} envelopes are selected and hold what it has rendered; until all \
                 are, what is placed stays as it is. Select them by the label {}",
                listing.addon,
                labels::ADDON
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

/// Notes on an object that was just read, of which only the metadata tells, whether an Addon owns it.
pub(super) fn note_owner(object: &mut Value, owners: &[OwnerReference]) {
    let group = format!("{}/", windlass_api::addon::GROUP);
    let is_addon =
        |owner: &OwnerReference| owner.kind == "Addon" && owner.api_version.starts_with(&group);
    if owners.iter().any(is_addon) {
        object["metadata"]["annotations"][OWNED] = "true".into();
    }
}

fn is_marked(manifest: &Manifest) -> bool {
    let annotations = manifest.object.pointer("/metadata/annotations");
    annotations.is_some_and(|annotations| annotations.get(labels::ADDON_RENDER).is_some())
}

fn is_owned(manifest: &Manifest) -> bool {
    let annotations = manifest.object.pointer("/metadata/annotations");
    annotations.is_some_and(|annotations| annotations.get(OWNED).is_some())
}

/// The envelope with nothing about it but what was rendered: labels and annotations that somebody adds, or that
/// change with each render, make no version.
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

/// The Addons whose renders are among the objects of a snapshot, each with its [`identity`], as its master's
/// annotation has them.
#[must_use]
pub fn named<'a>(manifests: impl Iterator<Item = &'a Manifest>) -> Option<String> {
    let renders: BTreeSet<String> = manifests
        .filter_map(|manifest| {
            let annotations = manifest.object.pointer("/metadata/annotations")?;
            let render = annotations.get(labels::ADDON_VOUCHED)?.as_str()?;
            Some(format!("{}={render}", addon_of(manifest)?))
        })
        .collect();
    let renders: Vec<String> = renders.into_iter().collect();
    (!renders.is_empty()).then(|| renders.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(name: &str, addon: Option<&str>, holds: &str) -> Arc<Manifest> {
        let mut object = json!({
            "apiVersion": "placement.kubernetes-fleet.io/v1beta1", "kind": "ResourceEnvelope",
            "metadata": {"name": name, "namespace": "web"},
            "data": {"a": holds},
        });
        if let Some(addon) = addon {
            object["metadata"]["labels"] = json!({labels::ADDON: addon});
            note_owner(&mut object, &[owner("Addon")]);
        }
        Arc::new(Manifest::of_snapshot(object))
    }

    fn owner(kind: &str) -> OwnerReference {
        OwnerReference {
            api_version: "addons.windlass.dev/v1alpha1".to_owned(),
            kind: kind.to_owned(),
            ..OwnerReference::default()
        }
    }

    /// One that somebody has just given the label.
    fn labelled(name: &str, addon: &str) -> Arc<Manifest> {
        let mut object = envelope(name, None, "x").object.clone();
        object["metadata"]["labels"] = json!({labels::ADDON: addon});
        note_owner(&mut object, &[owner("Something")]);
        Arc::new(Manifest::of_snapshot(object))
    }

    fn listed(name: &str, holds: &str) -> RenderedEnvelope {
        RenderedEnvelope {
            namespace: Some("web".to_owned()),
            name: name.to_owned(),
            digest: content(&json!({"data": {"a": holds}})).to_string(),
        }
    }

    type Placed = Option<Vec<(String, bool)>>;

    /// What `placement` places of these, each with whether it is vouched for; none if nothing may be. Addon web
    /// belongs to the placement addon-web.
    fn placed(
        placement: &str,
        list: Option<Vec<RenderedEnvelope>>,
        all: &[Arc<Manifest>],
    ) -> Placed {
        let renders = Renders::new(Arc::new(move |key| {
            let listing = Listing {
                addon: "web".to_owned(),
                envelopes: list.clone(),
            };
            if *key == ObjectKey::cluster("addon-web") {
                vec![listing]
            } else {
                Vec::new()
            }
        }));
        let settled = settle(&ObjectKey::cluster(placement), all.to_vec(), &renders).ok()?;
        let shown = settled.iter().map(|manifest| {
            let vouched = manifest
                .object
                .pointer("/metadata/annotations/addons.windlass.dev~1vouched");
            (manifest.id.name.clone(), vouched.is_some())
        });
        Some(shown.collect())
    }

    fn names(rows: &[(&str, bool)]) -> Placed {
        Some(
            rows.iter()
                .map(|(name, vouched)| ((*name).to_owned(), *vouched))
                .collect(),
        )
    }

    #[test]
    fn only_a_whole_render_is_placed() {
        let own = "addon-web";
        let (a, b) = (
            envelope("a", Some("web"), "1"),
            envelope("b", Some("web"), "1"),
        );
        let both = || Some(vec![listed("a", "1"), listed("b", "1")]);
        let whole = names(&[("a", true), ("b", true)]);
        assert_eq!(placed(own, both(), &[a.clone(), b.clone()]), whole);
        assert_eq!(
            placed(own, both(), std::slice::from_ref(&a)),
            None,
            "one is missing"
        );
        assert_eq!(placed(own, both(), &[]), None, "all are missing");
        let other = envelope("b", Some("web"), "somebody else's");
        assert_eq!(
            placed(own, both(), &[a.clone(), other]),
            None,
            "one holds something else"
        );
        let first = Some(vec![listed("a", "1")]);
        assert_eq!(
            placed(own, first, &[a.clone(), b]),
            names(&[("a", true)]),
            "one is left over"
        );
        assert_eq!(
            placed(own, None, &[a]),
            None,
            "it has no status, as after a restore"
        );
        assert_eq!(
            placed(own, None, &[]),
            names(&[]),
            "it has not rendered yet"
        );
    }

    #[test]
    fn an_addons_label_holds_up_nobody_else() {
        let both = || Some(vec![listed("a", "1"), listed("b", "1")]);
        let a = envelope("a", Some("web"), "1");
        let own = envelope("own", None, "2");
        let rows = [
            (
                "another placement that selects the namespace",
                "team",
                a.clone(),
            ),
            (
                "a label of an Addon that is gone",
                "addon-web",
                envelope("c", Some("gone"), "1"),
            ),
        ];
        for (what, placement, labelled) in rows {
            let list = both().filter(|_| placement != "addon-web");
            let all = [labelled, own.clone()];
            assert_eq!(
                placed(placement, list, &all),
                names(&[("own", false)]),
                "{what}"
            );
        }
        for placement in ["addon-web", "team"] {
            let (list, mine) = if placement == "addon-web" {
                (both(), vec![("a", true), ("b", true)])
            } else {
                (None, vec![])
            };
            let all = [
                a.clone(),
                envelope("b", Some("web"), "1"),
                labelled("planted", "web"),
            ];
            let expected = mine.into_iter().chain([("planted", false)]);
            let expected = expected.collect::<Vec<_>>();
            assert_eq!(
                placed(placement, list, &all),
                names(&expected),
                "{placement}"
            );
        }
    }

    #[test]
    fn a_lost_status_is_missed() {
        let renders = |envelopes: Option<Vec<RenderedEnvelope>>| {
            Renders::new(Arc::new(move |_| {
                vec![Listing {
                    addon: "web".to_owned(),
                    envelopes: envelopes.clone(),
                }]
            }))
        };
        let key = ObjectKey::cluster("p");
        assert_eq!(
            renders(None).lost(&key, "api=1,web=2"),
            Some("web".to_owned())
        );
        assert_eq!(renders(None).lost(&key, "api=1,webb=2"), None);
        assert_eq!(renders(Some(Vec::new())).lost(&key, "web=2"), None);
        assert_eq!(Renders::default().lost(&key, "web=2"), None);
    }

    #[test]
    fn who_may_not_see_addons_is_told_nothing_of_them() {
        let owned = vec![envelope("a", Some("web"), "1")];
        assert!(settle(&ObjectKey::cluster("addon-web"), owned, &Renders::hidden()).is_err());
        let owned = vec![envelope("a", Some("web"), "1")];
        let key = ObjectKey::namespaced("team", "p");
        let settled = settle(&key, owned, &Renders::hidden());
        assert!(settled.is_ok_and(|settled| settled.is_empty()));
        let own = vec![envelope("own", None, "1")];
        assert!(settle(&ObjectKey::cluster("addon-web"), own, &Renders::hidden()).is_ok());
    }

    #[test]
    fn an_addon_that_takes_its_envelopes_along_lists_none() {
        let mut addon = Addon::new("web", Default::default());
        addon.status.get_or_insert_default().envelopes = Some(vec![listed("a", "1")]);
        assert_eq!(Listing::of(&addon).envelopes, Some(vec![listed("a", "1")]));
        addon.metadata.deletion_timestamp = Some(windlass_status::conditions::time(
            jiff::Timestamp::UNIX_EPOCH,
        ));
        addon.metadata.finalizers = Some(vec!["orphan".to_owned()]);
        assert_eq!(Listing::of(&addon).envelopes, Some(vec![listed("a", "1")]));
        addon.metadata.finalizers = Some(vec![FOREGROUND.to_owned()]);
        assert_eq!(Listing::of(&addon).envelopes, Some(Vec::new()));
    }

    #[test]
    fn a_snapshot_tells_renders_of_the_same_inputs_apart() {
        let render = |holds: &str| {
            let list = vec![listed("a", holds)];
            let listing = Listing {
                addon: "web".to_owned(),
                envelopes: Some(list.clone()),
            };
            let renders = Renders::new(Arc::new(move |_| vec![listing.clone()]));
            let all = vec![envelope("a", Some("web"), holds)];
            let settled = settle(&ObjectKey::cluster("addon-web"), all, &renders).expect("whole");
            let named = named(settled.iter().map(|manifest| &**manifest));
            assert_eq!(named, Some(format!("web={}", identity(&list))));
            named
        };
        assert_ne!(render("1"), render("2"));
        assert_eq!(render("1"), render("1"));
    }

    /// What is placed depends on what was rendered alone.
    #[test]
    fn words_on_an_envelope_change_nothing() {
        let renders = Renders::new(Arc::new(|_| {
            vec![Listing {
                addon: "web".to_owned(),
                envelopes: Some(vec![listed("a", "1")]),
            }]
        }));
        let settled = |more: Value| {
            let mut object = envelope("a", Some("web"), "1").object.clone();
            object["metadata"]["annotations"] = more;
            let all = vec![Arc::new(Manifest::of_snapshot(object))];
            settle(&ObjectKey::cluster("addon-web"), all, &renders).expect("whole")
        };
        let plain = settled(json!({labels::ADDON_RENDER: "d1"}));
        let other = settled(json!({labels::ADDON_RENDER: "d2", "team": "blue"}));
        assert_eq!(plain[0].digest, other[0].digest);
        assert_eq!(plain[0].object, other[0].object);
    }
}
