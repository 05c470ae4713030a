//! Names of AppliedWorks (and of Works), and back from them to placements.

use windlass_api::names;
use windlass_cluster::ObjectKey;
use windlass_status::digest::Digest;

/// Name of the AppliedWork of a placement.
#[must_use]
pub fn name_of(placement: &ObjectKey) -> String {
    names::work(&placement.namespace, &placement.name)
}

/// What tells placements apart whose names read the same: 8 characters.
#[must_use]
pub fn unique(placement: &ObjectKey) -> String {
    let mut text = Digest::of_bytes(placement.to_string().as_bytes()).to_string();
    text.truncate(8);
    text
}

/// The placements that a Work of that name may be of. More than one: see [`names::work`].
#[must_use]
pub fn placements_of(work: &str) -> Vec<ObjectKey> {
    let Some(base) = work.strip_suffix("-work") else {
        return Vec::new();
    };
    let unhashed = base.rsplit_once('-').map(|(base, _)| base);
    let bases = [Some(base), unhashed].into_iter().flatten();
    bases
        .flat_map(|base| {
            // No namespace has a dot in its name.
            let namespaced = base
                .split_once('.')
                .map(|(namespace, name)| ObjectKey::namespaced(namespace, name));
            [Some(ObjectKey::cluster(base)), namespaced]
        })
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
            ("a.web-0123abcd-work", namespaced("a", "web")),
        ] {
            assert!(placements_of(work).contains(&placement), "{work}");
        }
        for placement in [cluster("web"), cluster("a.b"), namespaced("a", "b")] {
            let found = placements_of(&name_of(&placement));
            assert!(found.contains(&placement), "{placement}");
        }
        assert!(placements_of("other").is_empty());
    }
}
