//! When clusters were last heard of, and that placements are told when a silence ends.

use jiff::Timestamp;
use windlass_cluster::ObjectKey;
use windlass_scheduler::ClusterView;

use super::heard::ends_silence;
use super::{Members, lock};
use crate::delivery::clock::is_under_way;
use crate::world::BY_CLUSTER;

impl Members {
    /// When a cluster was last heard of; later than its status says, which is written rarely.
    #[must_use]
    pub fn last_contact(&self, cluster: &str) -> Option<Timestamp> {
        let Some(connection) = self.connections.get(cluster) else {
            return self.world.pull.heard(cluster).at().map(|heard| heard.time);
        };
        let answered = lock(&connection.state).answered;
        answered.map(|(_, at)| at)
    }

    /// Delivery wants to know whether a cluster is still there. What is under way there is looked at again when
    /// the cluster answers, or its agent reports.
    pub(crate) fn doubt(&self, cluster: &str) {
        self.doubted.insert(cluster.to_owned());
        if self.connections.contains_key(cluster) {
            // That asks it.
            self.world.queues.clusters.add(cluster.to_owned());
        }
    }

    /// When a cluster was last heard of, as far as placements know: before anything was heard of it, what its
    /// status says.
    pub(super) fn known_contact(&self, name: &str) -> Option<Timestamp> {
        let known = self.contacts.get(name).map(|known| *known);
        known.or_else(|| {
            let cluster = self.world.clusters.get(&ObjectKey::cluster(name))?;
            ClusterView::of(&cluster).membership.last_heartbeat
        })
    }

    /// Every placement may look again at a cluster that is heard of after a silence.
    pub(super) fn note_contact(&self, name: &str, before: Option<Timestamp>) {
        let Some(now) = self.last_contact(name) else {
            return;
        };
        let known = self.contacts.insert(name.to_owned(), now);
        if known.is_none_or(|known| known < now) && self.doubted.remove(name).is_some() {
            for binding in self.world.bindings.by_index(BY_CLUSTER, name) {
                if is_under_way(&binding) {
                    self.world.queues.bindings.add(ObjectKey::of(&*binding));
                }
            }
        }
        if ends_silence(before, now) {
            tracing::debug!(cluster = name, "heard of again after a silence");
            for placement in self.world.placements.list() {
                self.world.queues.placements.add(ObjectKey::of(&*placement));
            }
        }
    }
}
