//! Where overrides and the placements that they concern meet, so that neither is looked for among all.

use std::collections::BTreeSet;
use std::fmt;

use crate::object::ObjectId;
use crate::overrides::PlacementKey;

/// What an override is about, and what a placement asks for overrides of. One that is for a placement and
/// selects something of it has a subject in common with it; the reverse need not be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject<'a> {
    /// One placement, which the override names.
    Placement(PlacementKey<'a>),
    /// The objects of one namespace.
    Namespace(&'a str),
    /// A cluster-scoped object.
    Object {
        /// API group; empty means the core group.
        group: &'a str,
        /// API version.
        version: &'a str,
        /// Kind.
        kind: &'a str,
        /// Name.
        name: &'a str,
    },
}

impl<'a> Subject<'a> {
    /// What a placement that places these objects asks for overrides of.
    #[must_use]
    pub fn of(placement: PlacementKey<'a>, objects: &[ObjectId<'a>]) -> BTreeSet<Self> {
        let of_object = |id: &ObjectId<'a>| match id.namespace {
            Some(namespace) => Self::Namespace(namespace),
            None => Self::Object {
                group: id.group,
                version: id.version,
                kind: id.kind,
                name: id.name,
            },
        };
        let mut subjects: BTreeSet<Self> = objects.iter().map(of_object).collect();
        subjects.insert(Self::Placement(placement));
        subjects
    }
}

/// For indexes: equal subjects have equal texts.
impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placement(PlacementKey { namespace, name }) => {
                write!(f, "placement {}/{name}", namespace.unwrap_or_default())
            }
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
            Self::Object {
                group,
                version,
                kind,
                name,
            } => write!(f, "object {group}/{version}/{kind}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::overrides::Override;

    fn pinned(mut spec: Value, pin: Option<(&str, &str)>) -> Value {
        if let Some((name, scope)) = pin {
            spec["placement"] = json!({"name": name, "scope": scope});
        }
        spec
    }

    /// What is looked up by subjects is all that is found among all.
    #[test]
    fn what_is_for_a_placement_and_selects_something_has_a_subject_in_common() {
        let objects = [
            ("v1", "Namespace", None, "app"),
            ("v1", "ConfigMap", Some("app"), "web"),
            ("v1", "ConfigMap", Some("other"), "web"),
            ("v1", "ClusterRole", None, "web"),
            ("v1beta1", "Namespace", None, "app"),
        ]
        .map(|(version, kind, namespace, name)| ObjectId {
            group: "",
            version,
            kind,
            namespace,
            name,
        });
        let placements = [None, Some("app")].map(|namespace| PlacementKey {
            namespace,
            name: "web",
        });
        let pins = [
            None,
            Some(("web", "Cluster")),
            Some(("web", "Namespaced")),
            Some(("other", "Cluster")),
        ];
        let mut met = 0;
        for (term, pin) in objects.iter().flat_map(|term| pins.map(|pin| (term, pin))) {
            let selector = json!([{"group": "", "version": term.version, "kind": term.kind, "name": term.name}]);
            let policy = json!({"overrideRules": []});
            let cluster = json!({"clusterResourceSelectors": selector, "policy": policy});
            let cluster = serde_json::from_value(pinned(cluster, pin)).unwrap();
            let own = json!({"resourceSelectors": selector, "policy": policy});
            let own = serde_json::from_value(pinned(own, pin)).unwrap();
            for view in [
                Override::of_cluster("o", &cluster),
                Override::of_namespace("app", "o", &own),
            ] {
                let pairs = placements.iter().flat_map(|p| objects.map(|id| (*p, id)));
                for (placement, id) in pairs.filter(|(p, id)| view.is_for(*p) && view.selects(id)) {
                    let asked = Subject::of(placement, &[id]);
                    let common = view.subjects().into_iter().any(|s| asked.contains(&s));
                    assert!(common, "{view:?} {placement:?} {id}");
                    met += 1;
                }
            }
        }
        assert!(met > 10, "{met}");
    }
}
