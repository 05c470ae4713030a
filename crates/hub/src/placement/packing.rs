//! Cutting what is selected into snapshot objects that etcd takes.
//!
//! A part is a Work, and an agent deletes what has left a Work before another one can have it
//! (member §6, §9). So an object stays in the part that it is in, whatever is added, removed or changed
//! beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass_member::manifest::{Manifest, ManifestId};

/// Content of a part above which nothing is added, in bytes of JSON.
pub const PART_LIMIT: usize = 800 * 1024;
/// Content of a part at which it sends objects that have grown elsewhere: below what etcd takes (1.5 MiB)
/// with room for what overrides add and for statuses.
pub const PART_MOST: usize = 1024 * 1024;

/// Where objects are, by [`ManifestId::any_version`]: the number of the part, from 0.
pub type Places = BTreeMap<ManifestId, usize>;

/// Of a selection that is in no snapshot yet.
pub static NOWHERE: Places = Places::new();

#[derive(Default)]
struct Part {
    size: usize,
    /// Positions in the selection, ascending.
    members: Vec<usize>,
}

impl Part {
    fn add(&mut self, at: usize, size: usize) {
        self.size += size;
        self.members.push(at);
    }

    /// Which member has to go, as an index into them, if the part is too large: the smallest one that makes
    /// it small enough, or else the largest, so that few go. Of equals the last one.
    fn too_much(&self, sizes: &[usize]) -> Option<usize> {
        let excess = self
            .size
            .checked_sub(PART_MOST)
            .filter(|excess| *excess > 0)?;
        let all = || self.members.iter().map(|at| sizes[*at]).enumerate();
        let enough = all().filter(|(_, size)| *size >= excess);
        let smallest = enough.min_by_key(|(index, size)| (*size, usize::MAX - index));
        let (index, _) = smallest.or_else(|| all().max_by_key(|(index, size)| (*size, *index)))?;
        (self.members.len() > 1).then_some(index)
    }

    fn has_room(&self, size: usize) -> bool {
        self.members.is_empty() || self.size + size <= PART_LIMIT
    }
}

/// Cuts a selection into parts, each in the selection's order. An object larger than [`PART_LIMIT`] gets a
/// part of its own; nothing selected makes one empty part. A part that has lost everything stays, empty,
/// before one that has not.
#[must_use]
pub fn pack<'a>(manifests: &'a [Arc<Manifest>], before: &Places) -> Vec<Vec<&'a Arc<Manifest>>> {
    let sizes: Vec<usize> = manifests.iter().map(|manifest| size_of(manifest)).collect();
    let was: Vec<Option<usize>> = manifests
        .iter()
        .map(|manifest| before.get(&manifest.id.any_version()).copied())
        .collect();
    assign(&sizes, &was)
        .into_iter()
        .map(|part| part.into_iter().map(|at| &manifests[at]).collect())
        .collect()
}

fn size_of(manifest: &Manifest) -> usize {
    manifest.object.to_string().len()
}

/// Positions by part, from the size and the former part of each.
fn assign(sizes: &[usize], was: &[Option<usize>]) -> Vec<Vec<usize>> {
    let mut parts: Vec<Part> = vec![Part::default()];
    let mut homeless = Vec::new();
    for (at, part) in was.iter().enumerate() {
        match *part {
            Some(part) => {
                if parts.len() <= part {
                    parts.resize_with(part + 1, Part::default);
                }
                parts[part].add(at, sizes[at]);
            }
            None => homeless.push(at),
        }
    }
    for part in &mut parts {
        while let Some(out) = part.too_much(sizes) {
            let at = part.members.remove(out);
            part.size -= sizes[at];
            homeless.push(at);
        }
    }
    homeless.sort_unstable();
    let mut here = 0;
    for at in homeless {
        while parts
            .get(here)
            .is_some_and(|part| !part.has_room(sizes[at]))
        {
            here += 1;
        }
        if here == parts.len() {
            parts.push(Part::default());
        }
        parts[here].add(at, sizes[at]);
    }
    while parts.len() > 1 && parts.last().is_some_and(|part| part.members.is_empty()) {
        parts.pop();
    }
    parts
        .into_iter()
        .map(|mut part| {
            part.members.sort_unstable();
            part.members
        })
        .collect()
}

/// Whether [`pack`] could put something elsewhere than it is: one part that holds everything can't.
#[must_use]
pub fn needs_places(manifests: &[Arc<Manifest>], further_parts: usize) -> bool {
    let mut room = PART_LIMIT;
    further_parts > 0
        || manifests.iter().any(|manifest| {
            let size = size_of(manifest);
            let fits = size <= room;
            room = room.saturating_sub(size);
            !fits
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn manifest(name: &str, kib: usize) -> Arc<Manifest> {
        Arc::new(Manifest::of_snapshot(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": "n" },
            "data": { "a": "x".repeat(kib * 1024) },
        })))
    }

    fn places(parts: &[Vec<&Arc<Manifest>>]) -> Places {
        let all = parts.iter().enumerate();
        all.flat_map(|(part, members)| members.iter().map(move |m| (m.id.any_version(), part)))
            .collect()
    }

    fn names(parts: &[Vec<&Arc<Manifest>>]) -> Vec<String> {
        let name = |part: &Vec<&Arc<Manifest>>| {
            let names: Vec<_> = part.iter().map(|m| m.id.name.as_str()).collect();
            names.join(" ")
        };
        parts.iter().map(name).collect()
    }

    #[test]
    fn what_stays_stays_where_it_is() {
        let old = [
            manifest("b", 300),
            manifest("c", 300),
            manifest("d", 300),
            manifest("e", 100),
        ];
        let first = pack(&old, &Places::new());
        assert_eq!(names(&first), ["b c", "d e"]);
        let before = places(&first);
        for (what, now, expected) in [
            (
                "the same",
                &[("b", 300), ("c", 300), ("d", 300), ("e", 100)][..],
                &["b c", "d e"][..],
            ),
            (
                "one before",
                &[("a", 300), ("b", 300), ("c", 300), ("d", 300), ("e", 100)],
                &["b c", "a d e"],
            ),
            (
                "one after",
                &[("b", 300), ("c", 300), ("d", 300), ("e", 100), ("f", 150)],
                &["b c f", "d e"],
            ),
            (
                "one that fits nowhere",
                &[("a", 700), ("b", 300), ("c", 300), ("d", 300), ("e", 100)],
                &["b c", "d e", "a"],
            ),
            (
                "one that has grown",
                &[("b", 600), ("c", 300), ("d", 300), ("e", 100)],
                &["b c", "d e"],
            ),
            (
                "one that has grown too much",
                &[("b", 900), ("c", 300), ("d", 300), ("e", 100)],
                &["b", "c d e"],
            ),
            (
                "room for both in one",
                &[("b", 300), ("e", 100)],
                &["b", "e"],
            ),
            (
                "nothing left in the first",
                &[("d", 300), ("e", 100)],
                &["", "d e"],
            ),
            (
                "nothing left in the last",
                &[("b", 300), ("c", 300)],
                &["b c"],
            ),
            ("nothing left", &[], &[""]),
        ] {
            let now: Vec<_> = now.iter().map(|(name, kib)| manifest(name, *kib)).collect();
            assert_eq!(names(&pack(&now, &before)), expected, "{what}");
        }
    }

    /// An agent's cluster makes anew what moves: the one that has grown, and not all that runs beside it.
    #[test]
    fn few_move_out_of_a_full_part() {
        let workloads: Vec<usize> = vec![2 * 1024; 100];
        let with = |grown: usize| [vec![grown * 1024], workloads.clone()].concat();
        let parts = assign(&with(900), &vec![Some(0); 101]);
        assert_eq!((parts[0].len(), &parts[1]), (100, &vec![0]));
        // One goes that is large enough, and what is small stays.
        let sizes = [620, 450, 10].map(|kib| kib * 1024);
        assert_eq!(assign(&sizes, &[Some(0); 3]), [vec![0, 2], vec![1]]);
    }

    #[test]
    fn places_are_asked_for_only_when_there_are_parts() {
        let small = [manifest("a", 300), manifest("b", 300)];
        let large = [manifest("a", 500), manifest("b", 500)];
        for (manifests, further, expected) in
            [(&small, 0, false), (&small, 1, true), (&large, 0, true)]
        {
            assert_eq!(needs_places(manifests, further), expected);
        }
    }

    /// One look after another: what is selected, and its size in KiB.
    fn looks() -> impl Strategy<Value = Vec<BTreeMap<u8, usize>>> {
        let look = proptest::collection::btree_map(0..12_u8, 1..400_usize, 0..10);
        proptest::collection::vec(look, 1..6)
    }

    proptest! {
        #[test]
        fn nothing_moves_but_out_of_a_full_part(looks in looks()) {
            let mut before: BTreeMap<u8, usize> = BTreeMap::new();
            for look in looks {
                let names: Vec<u8> = look.keys().copied().collect();
                let sizes: Vec<usize> = look.values().map(|kib| kib * 1024).collect();
                let was: Vec<Option<usize>> = names.iter().map(|name| before.get(name).copied()).collect();
                let parts = assign(&sizes, &was);
                let content = |part: usize| -> usize {
                    parts.get(part).into_iter().flatten().map(|at| sizes[*at]).sum()
                };
                let mut seen: Vec<usize> = parts.concat();
                seen.sort_unstable();
                prop_assert_eq!(seen, (0..names.len()).collect::<Vec<_>>(), "each is in one part");
                for (part, members) in parts.iter().enumerate() {
                    let size: usize = members.iter().map(|at| sizes[*at]).sum();
                    prop_assert!(size <= PART_MOST || members.len() == 1);
                    prop_assert!(members.is_sorted(), "in the selection's order");
                    for at in members {
                        let moved = was[*at].filter(|was| *was != part);
                        prop_assert!(moved.is_none_or(|was| content(was) + sizes[*at] > PART_MOST), "{} has moved", names[*at]);
                    }
                }
                prop_assert!(parts.len() == 1 || !parts[parts.len() - 1].is_empty());
                let now = parts.iter().enumerate();
                before = now.flat_map(|(part, members)| members.iter().map(move |at| (*at, part)))
                    .map(|(at, part)| (names[at], part))
                    .collect();
            }
        }
    }
}
