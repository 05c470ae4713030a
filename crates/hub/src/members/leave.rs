//! A cluster leaves: its bindings go first (what they placed stays, unowned, unless it is purged), then
//! its credentials, then it. One that can't be reached does not block for ever (design §5.19).

use std::time::Duration;

use kube::ResourceExt;
use windlass_api::labels;
use windlass_api::member::MemberCluster;
use windlass_cluster::{ApiError, ObjectKey, clock};

use super::{Members, status};
use crate::worker::Next;
use crate::world::BY_CLUSTER;

impl Members {
    pub(super) async fn leave(&self, cluster: &MemberCluster) -> Result<Next, ApiError> {
        let name = cluster.name_any();
        if !cluster
            .finalizers()
            .iter()
            .any(|f| f == labels::MEMBER_FINALIZER)
        {
            self.disconnect(&name);
            return Ok(Next::Event);
        }
        // The engine is needed for the removal, also after a restart.
        let connected = self.connect(&name).await;
        let bindings = self.world.bindings.by_index(BY_CLUSTER, &name);
        if !bindings.is_empty() {
            let given_up = self.has_given_up(&name);
            if given_up {
                for binding in &bindings {
                    self.world.queues.bindings.add(binding.name_any());
                }
            }
            let mut message = format!(
                "Leaving: {} placement(s) are being released",
                bindings.len()
            );
            if given_up {
                message = format!(
                    "Leaving without the cluster; what {} placement(s) put there is left behind",
                    bindings.len()
                );
            } else if let Err(trouble) = connected {
                message = format!("{message}; the cluster can't be reached: {trouble}");
            }
            if let Some(status) = status::leaving(cluster, &message, clock::now()) {
                self.put_status(cluster, status).await?;
            }
            return Ok(Next::After(
                self.policy.unhealthy_threshold.min(Duration::from_secs(60)),
            ));
        }
        self.disconnect(&name);
        if let Some(secret) = self.secret_of(&name) {
            self.writer.delete(&*secret).await?;
            self.world.secrets.observe_deleted(&secret);
        }
        self.forget_series(&name);
        let mut changed = cluster.clone();
        changed
            .finalizers_mut()
            .retain(|f| f != labels::MEMBER_FINALIZER);
        match self.writer.replace(&changed).await {
            Ok(_) | Err(ApiError::NotFound(_)) => {
                self.world.observer.cluster_left(cluster);
                Ok(Next::Event)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a leaving cluster is not waited for any more.
    #[must_use]
    pub fn has_given_up(&self, name: &str) -> bool {
        let Some(cluster) = self.world.clusters.get(&ObjectKey::cluster(name)) else {
            return false;
        };
        let Some(deleted) = &cluster.metadata.deletion_timestamp else {
            return false;
        };
        if self.world.secrets.is_synced() && self.secret_of(name).is_none() {
            return true;
        }
        let waited = Duration::try_from(clock::now().duration_since(deleted.0)).unwrap_or_default();
        waited >= self.policy.force_delete_wait
    }
}
