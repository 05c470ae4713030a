//! Who wants to know of a change: placements by what they select.
//!
//! A change is looked up, not offered to every placement: by the name of the object, by the namespace
//! that it lives in, and only for selectors by label or of everything among those of its kind.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

use kube::core::GroupVersionKind;

use windlass_cluster::ObjectKey;

use super::matcher::{Choice, Term};

/// Some placements.
pub type Placements = BTreeSet<ObjectKey>;

/// What a placement selects, or would.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interest {
    /// Its selectors; those of namespaced kinds count in `bound` only.
    pub terms: Vec<Term>,
    /// Namespaces that it selects with everything in them.
    pub whole: BTreeSet<String>,
    /// The namespace in which its selectors of namespaced kinds choose.
    pub bound: Option<String>,
}

/// An object, as far as selection goes.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    /// Its kind.
    pub kind: &'a GroupVersionKind,
    /// Its namespace; none for cluster-scoped ones.
    pub namespace: Option<&'a str>,
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
}

impl Interest {
    /// Whether an object is selected.
    #[must_use]
    pub fn selects(&self, object: Object<'_>) -> bool {
        let picked = || {
            let of_kind = self.terms.iter().filter(|term| term.kind == *object.kind);
            of_kind
                .into_iter()
                .any(|term| term.choice.picks(object.name, object.labels))
        };
        match object.namespace {
            None => picked(),
            Some(namespace) => {
                self.whole.contains(namespace)
                    || (self.bound.as_deref() == Some(namespace) && picked())
            }
        }
    }
}

/// The interests of all placements, and the ways to find them.
#[derive(Debug, Default)]
pub struct Interests {
    all: HashMap<ObjectKey, Interest>,
    by_name: HashMap<GroupVersionKind, HashMap<String, Placements>>,
    by_kind: HashMap<GroupVersionKind, Placements>,
    by_namespace: HashMap<String, Placements>,
    by_group: HashMap<String, Placements>,
    with_contents: Placements,
}

impl Interests {
    /// What a placement is interested in.
    #[must_use]
    pub fn get(&self, placement: &ObjectKey) -> Option<&Interest> {
        self.all.get(placement)
    }

    /// Takes the place of what the placement was interested in before.
    pub fn set(&mut self, placement: &ObjectKey, interest: Interest) {
        if self.all.get(placement) == Some(&interest) {
            return;
        }
        self.remove(placement);
        for term in &interest.terms {
            let kind = term.kind.clone();
            match &term.choice {
                Choice::Name(name) => {
                    let names = self.by_name.entry(kind).or_default();
                    insert(names, name.clone(), placement);
                }
                Choice::Labels(_) | Choice::All => insert(&mut self.by_kind, kind, placement),
            }
            insert(&mut self.by_group, term.kind.group.clone(), placement);
        }
        for namespace in &interest.whole {
            insert(&mut self.by_namespace, namespace.clone(), placement);
        }
        if !interest.whole.is_empty() {
            self.with_contents.insert(placement.clone());
        }
        self.all.insert(placement.clone(), interest);
    }

    /// Forgets a placement.
    pub fn remove(&mut self, placement: &ObjectKey) {
        let Some(interest) = self.all.remove(placement) else {
            return;
        };
        for term in &interest.terms {
            if let Choice::Name(name) = &term.choice
                && let Some(names) = self.by_name.get_mut(&term.kind)
            {
                take(names, name, placement);
                if names.is_empty() {
                    self.by_name.remove(&term.kind);
                }
            }
            take(&mut self.by_kind, &term.kind, placement);
            take(&mut self.by_group, &term.kind.group, placement);
        }
        for namespace in &interest.whole {
            take(&mut self.by_namespace, namespace, placement);
        }
        self.with_contents.remove(placement);
    }

    /// The placements that select an object.
    #[must_use]
    pub fn selecting(&self, object: Object<'_>) -> Placements {
        let named = self
            .by_name
            .get(object.kind)
            .and_then(|names| names.get(object.name));
        let whole = object
            .namespace
            .and_then(|namespace| self.by_namespace.get(namespace));
        let candidates = [named, self.by_kind.get(object.kind), whole];
        candidates
            .into_iter()
            .flatten()
            .flatten()
            .filter(|placement| {
                self.all
                    .get(*placement)
                    .is_some_and(|interest| interest.selects(object))
            })
            .cloned()
            .collect()
    }

    /// The placements to which it matters that a kind of an API group comes or goes: those that name one,
    /// and those that select everything in some namespace, whatever its kind.
    #[must_use]
    pub fn of_group(&self, group: &str) -> Placements {
        let named = self.by_group.get(group).into_iter().flatten();
        named.chain(&self.with_contents).cloned().collect()
    }
}

/// Puts a placement under a key.
pub fn insert<K: Eq + Hash>(map: &mut HashMap<K, Placements>, key: K, placement: &ObjectKey) {
    map.entry(key).or_default().insert(placement.clone());
}

/// Takes it from under the key, and the key with the last one.
pub fn take<K: Eq + Hash>(map: &mut HashMap<K, Placements>, key: &K, placement: &ObjectKey) {
    if let Some(placements) = map.get_mut(key) {
        placements.remove(placement);
        if placements.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn kind(text: &str) -> GroupVersionKind {
        GroupVersionKind::gvk(&format!("{text}.example.com"), "v1", text)
    }

    fn a_choice() -> impl Strategy<Value = Choice> {
        prop_oneof![
            "[xyz]".prop_map(Choice::Name),
            "[pq]".prop_map(|value| Choice::Labels(
                serde_json::from_value(json!({"matchLabels": {"l": value}})).unwrap()
            )),
            Just(Choice::All),
        ]
    }

    fn an_interest() -> impl Strategy<Value = Interest> {
        let term = ("[AB]", a_choice()).prop_map(|(of, choice)| Term {
            index: 0,
            kind: kind(&of),
            choice,
            scope: None,
        });
        let terms = proptest::collection::vec(term, 0..3);
        let whole = proptest::collection::btree_set("[mn]", 0..2);
        (terms, whole, proptest::option::of("[mn]")).prop_map(|(terms, whole, bound)| Interest {
            terms,
            whole,
            bound,
        })
    }

    proptest! {
        /// Whatever came and went, the indexes find who a look at everybody finds.
        #[test]
        fn lookups_find_the_same_as_a_scan(
            steps in proptest::collection::vec(("[a-d]", proptest::option::of(an_interest())), 1..12),
            of in "[AB]", namespace in proptest::option::of("[mn]"), name in "[xyz]", label in "[pq]",
        ) {
            let mut interests = Interests::default();
            for (placement, interest) in steps {
                match interest {
                    Some(interest) => interests.set(&ObjectKey::cluster(placement), interest),
                    None => interests.remove(&ObjectKey::cluster(placement)),
                }
            }
            let labels = BTreeMap::from([("l".to_owned(), label)]);
            let kind = kind(&of);
            let object = Object { kind: &kind, namespace: namespace.as_deref(), name: &name, labels: &labels };
            let scan: Placements = interests.all.iter()
                .filter(|(_, interest)| interest.selects(object))
                .map(|(placement, _)| placement.clone())
                .collect();
            prop_assert_eq!(interests.selecting(object), scan);
            let of_group: Placements = interests.all.iter()
                .filter(|(_, i)| !i.whole.is_empty() || i.terms.iter().any(|t| t.kind.group == kind.group))
                .map(|(placement, _)| placement.clone())
                .collect();
            prop_assert_eq!(interests.of_group(&kind.group), of_group);
        }

        #[test]
        fn nothing_is_left_behind(entries in proptest::collection::vec(("[a-d]", an_interest()), 0..8)) {
            let mut interests = Interests::default();
            for (placement, interest) in &entries {
                interests.set(&ObjectKey::cluster(placement), interest.clone());
            }
            for (placement, _) in &entries {
                interests.remove(&ObjectKey::cluster(placement));
            }
            prop_assert_eq!(format!("{interests:?}"), format!("{:?}", Interests::default()));
        }
    }
}
