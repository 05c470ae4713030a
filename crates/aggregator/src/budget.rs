//! Keeps the placement object within a size that etcd takes (design §5.3).

use std::io;

use serde::Serialize;
use windlass_api::placement::PerClusterPlacementStatus;

/// Which entries are worth their space; earlier ones go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A slot without a cluster; there are few, and each stands for a failure.
    Unfilled,
    /// A condition is False.
    Failing,
    /// A condition is Unknown, or the cluster waits for its turn.
    Changing,
    /// All is well.
    Settled,
}

/// An entry and its class. The list that [`fit`] takes is in the order of the status.
pub struct Ranked {
    /// Class.
    pub class: Class,
    /// Entry.
    pub entry: PerClusterPlacementStatus,
}

/// The entries that fit into `room` bytes, in their order, and how many clusters were left out. An entry
/// too large for what room is left is passed over, and smaller ones after it are still taken.
pub fn fit(entries: Vec<Ranked>, room: usize) -> (Vec<PerClusterPlacementStatus>, usize) {
    let sizes: Vec<usize> = entries
        .iter()
        .map(|ranked| 1 + size(&ranked.entry))
        .collect();
    if sizes.iter().sum::<usize>() <= room {
        return (entries.into_iter().map(|ranked| ranked.entry).collect(), 0);
    }
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|at| entries[*at].class); // Stable: by name within a class.
    let mut room = room;
    let mut taken = vec![false; entries.len()];
    for at in order {
        if let Some(left) = room.checked_sub(sizes[at]) {
            room = left;
            taken[at] = true;
        }
    }
    let mut kept = Vec::new();
    let mut omitted = 0;
    for (ranked, taken) in entries.into_iter().zip(taken) {
        if taken {
            kept.push(ranked.entry);
        } else if ranked.class != Class::Unfilled {
            omitted += 1;
        }
    }
    (kept, omitted)
}

/// How many of `items`, from the first on, fit into `room` bytes as JSON.
pub fn prefix<T: Serialize>(items: &[T], room: usize) -> usize {
    let mut room = room;
    items
        .iter()
        .take_while(|item| match room.checked_sub(1 + size(item)) {
            Some(left) => {
                room = left;
                true
            }
            None => false,
        })
        .count()
}

/// Bytes that a value takes as JSON, in the API server's form.
pub fn size(value: &impl Serialize) -> usize {
    let mut counter = Counter(0);
    match serde_json::to_writer(&mut counter, value) {
        Ok(()) => counter.0,
        // What can't be written never fits. Sums of a few thousand of these do not overflow.
        Err(_) => usize::MAX >> 16,
    }
}

struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The API server writes these three as \u003c and the like.
        let escaped = bytes
            .iter()
            .filter(|byte| matches!(byte, b'<' | b'>' | b'&'));
        self.0 += bytes.len() + 5 * escaped.count();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranked(class: Class, name: &str) -> Ranked {
        let cluster_name = (class != Class::Unfilled).then(|| name.to_owned());
        Ranked {
            class,
            entry: PerClusterPlacementStatus {
                cluster_name,
                ..PerClusterPlacementStatus::default()
            },
        }
    }

    fn names(room: usize) -> (Vec<String>, usize) {
        let entries = vec![
            ranked(Class::Settled, "a"),
            ranked(Class::Changing, "b"),
            ranked(Class::Failing, "c-with-a-long-name"),
            ranked(Class::Settled, "d"),
            ranked(Class::Failing, "e"),
            ranked(Class::Unfilled, ""),
        ];
        let (kept, omitted) = fit(entries, room);
        let names = kept
            .into_iter()
            .map(|entry| entry.cluster_name.unwrap_or_default());
        (names.collect(), omitted)
    }

    #[test]
    fn the_neediest_stay_and_the_order_is_kept() {
        assert_eq!(size(&"a<b"), 10);
        let one = 1 + size(&ranked(Class::Settled, "a").entry);
        let long = one + "c-with-a-long-name".len() - 1;
        let rows = [
            (1_000, vec!["a", "b", "c-with-a-long-name", "d", "e", ""], 0),
            (
                4 * one + long + 3,
                vec!["a", "b", "c-with-a-long-name", "d", "e", ""],
                0,
            ),
            (
                3 * one + long + 3,
                vec!["a", "b", "c-with-a-long-name", "e", ""],
                1,
            ),
            (
                2 * one + long + 3,
                vec!["b", "c-with-a-long-name", "e", ""],
                2,
            ),
            (one + long + 3, vec!["c-with-a-long-name", "e", ""], 3),
            // Too long for the room: those after it still have a chance.
            (one + 3, vec!["e", ""], 4),
            (3, vec![""], 5),
            (0, vec![], 5),
        ];
        for (room, expected, omitted) in rows {
            let (kept, left_out) = names(room);
            assert_eq!(
                (kept, left_out),
                (expected.iter().map(|n| (*n).to_owned()).collect(), omitted),
                "{room}"
            );
        }
    }

    #[test]
    fn prefixes() {
        let items = ["a", "bb", "c"];
        for (room, count) in [(0, 0), (3, 0), (4, 1), (8, 1), (9, 2), (13, 3), (99, 3)] {
            assert_eq!(prefix(&items, room), count, "{room}");
        }
    }
}
