//! When clusters were last heard of, and that placements are told when a silence ends.

use jiff::Timestamp;
use windlass_cluster::ObjectKey;
use windlass_scheduler::ClusterView;

use super::heard::ends_silence;
use super::{Members, lock};

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
        self.contacts.insert(name.to_owned(), now);
        if ends_silence(before, now) {
            tracing::debug!(cluster = name, "heard of again after a silence");
            for placement in self.world.placements.list() {
                self.world.queues.placements.add(ObjectKey::of(&*placement));
            }
        }
    }
}
