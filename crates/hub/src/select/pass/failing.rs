//! Kinds that can't be listed: whom they concern, and what is said of them.

use std::collections::BTreeMap;

use kube::core::GroupVersionKind;
use windlass_cluster::ApiError;
use windlass_cluster::discovery::KnownKind;

use super::super::matcher::Term;
use super::super::watches::State;
use super::{Pass, kind_of, text};

impl Pass<'_> {
    /// A kind that can't be listed (its conversion webhook is down) concerns those who select objects of it.
    /// A namespace that has none can still be listed, for there is nothing to convert. One that the hub has
    /// no right to list can be listed nowhere: it concerns those who had objects of it selected before.
    pub(super) async fn look_past_failures(
        &mut self,
        kinds: &[KnownKind],
        whole: &BTreeMap<String, Term>,
    ) {
        for known in kinds {
            let kind = kind_of(known);
            let Some(cache) = self.used.get(&kind) else {
                continue;
            };
            let State::Failing(error) = State::of(cache) else {
                continue;
            };
            let why = if matches!(error, ApiError::Rejected(_)) {
                (!self.remembers(&kind, whole)).then_some("and was selected in no namespace before")
            } else {
                let mut empty = true;
                for namespace in whole.keys() {
                    let store = &self.inner.store;
                    empty = empty && store.is_empty(&known.resource, namespace).await;
                }
                empty.then_some("and is selected in no namespace now")
            };
            if let Some(why) = why {
                self.idle.push(format!(
                    "{} can't be listed on the hub, {why}: {}",
                    text(&kind),
                    error.message()
                ));
                self.absent.insert(kind);
            }
        }
    }

    /// Whether objects of a kind, in whatever version, were selected before in namespaces selected now.
    fn remembers(&self, kind: &GroupVersionKind, whole: &BTreeMap<String, Term>) -> bool {
        self.remembered.iter().any(|id| {
            id.envelope.is_none()
                && id.group.as_deref().unwrap_or_default() == kind.group
                && id.kind == kind.kind
                && id.namespace.as_ref().is_some_and(|n| whole.contains_key(n))
        })
    }

    /// Says of which kinds only what was last known counts.
    pub(super) fn note_stale(&mut self) {
        let mut stale: Vec<String> = self
            .used
            .keys()
            .filter_map(|kind| {
                let error = self.inner.watches.stale(kind)?;
                Some(format!(
                    "{} can't be listed on the hub at present, so what was last known of it counts: {}",
                    text(kind),
                    error.message()
                ))
            })
            .collect();
        stale.sort();
        self.idle.append(&mut stale);
    }
}
