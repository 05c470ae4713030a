//! Names of AppliedWorks (and of Works), and back from them to placements.

use windlass_api::names;
use windlass_cluster::ObjectKey;
use windlass_member::{Parent, Rival};

/// Usual name of the AppliedWork of a placement.
#[must_use]
pub fn name_of(placement: &ObjectKey) -> String {
    names::work(&placement.namespace, &placement.name)
}

/// What the name of a placement's Works depends on. `exists` tells whether there is a placement.
#[must_use]
pub fn parent(placement: ObjectKey, exists: impl Fn(&ObjectKey) -> bool) -> Parent {
    let rival = rival(&placement).map(|rival| match exists(&rival) {
        true => Rival::Present,
        false => Rival::Possible,
    });
    Parent { placement, rival }
}

/// The placement of the other scope whose Works would have the same names.
fn rival(placement: &ObjectKey) -> Option<ObjectKey> {
    if placement.namespace.is_empty() {
        // No namespace has a dot in its name.
        let (namespace, name) = placement.name.split_once('.')?;
        return Some(ObjectKey::namespaced(namespace, name));
    }
    let base = names::work_base(&placement.namespace, &placement.name);
    Some(ObjectKey::cluster(base))
}

/// The placements that a Work of that name may be of. More than one: see [`names::work`].
#[must_use]
pub fn placements_of(work: &str) -> Vec<ObjectKey> {
    let usual = names::unhashed(work).unwrap_or(work);
    let Some(base) = usual.strip_suffix("-work") else {
        return Vec::new();
    };
    let cluster = ObjectKey::cluster(base);
    [rival(&cluster), Some(cluster)]
        .into_iter()
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_the_placements_that_may_have_it() {
        let cluster = ObjectKey::cluster;
        let namespaced = ObjectKey::namespaced;
        for (work, placement) in [
            ("web-work", cluster("web")),
            ("web-work-work", cluster("web-work")),
            ("a.web-work", namespaced("a", "web")),
            ("a.web-work", cluster("a.web")),
            ("a.b.web-work", namespaced("a", "b.web")),
            ("a.web-0123abcd-work", namespaced("a", "web-0123abcd")),
            ("a.web-work-h0123abcd", namespaced("a", "web")),
        ] {
            assert!(placements_of(work).contains(&placement), "{work}");
        }
        for placement in [cluster("web"), cluster("a.b"), namespaced("a", "b")] {
            let parent = parent(placement.clone(), |_| false);
            for name in [parent.usual_name(), parent.hashed_name()] {
                assert!(placements_of(&name).contains(&placement), "{name}");
            }
        }
        assert!(placements_of("other").is_empty());
    }

    #[test]
    fn who_may_claim_the_same_name() {
        let (cluster, namespaced) = (ObjectKey::cluster, ObjectKey::namespaced);
        for (placement, rival) in [
            (cluster("web"), None),
            (cluster("a.web"), Some(namespaced("a", "web"))),
            (cluster("a.b.web"), Some(namespaced("a", "b.web"))),
            (namespaced("a", "web"), Some(cluster("a.web"))),
        ] {
            assert_eq!(super::rival(&placement), rival, "{placement}");
            let there = parent(placement.clone(), |key| Some(key) == rival.as_ref());
            assert_eq!(there.rival, rival.as_ref().map(|_| Rival::Present));
            let alone = parent(placement, |_| false);
            assert_eq!(alone.rival, rival.map(|_| Rival::Possible));
        }
    }
}
