//! What is known of a cluster, gathered for its status.

use std::time::Duration;

use kube::ResourceExt;
use windlass_api::member::MemberCluster;

use super::status::{Collection, Credentials, Facts};
use super::usage::Usage;
use super::{Connection, Members, lock, pull};

/// Up to so many clusters, a heartbeat may be written each 60 s; with more, more rarely.
const FLEET_SHARE: u64 = 500;

impl Connection {
    /// Why nodes or pods can't be listed, if somebody has to do something about it.
    fn refusal(&self) -> Option<String> {
        let failures = [
            ("nodes", self.nodes.failure()),
            ("pods", self.pods.failure()),
        ];
        failures.into_iter().find_map(|(what, failure)| {
            let failure = failure.filter(|failure| !failure.is_outage())?;
            Some(format!("{what} can't be listed: {}", failure.message()))
        })
    }
}

/// Shortest time between two writes of a cluster's heartbeat, in a fleet of so many (design §5.21).
#[must_use]
pub fn heartbeat_every(cluster: &MemberCluster, fleet: usize) -> Duration {
    let period = u64::from(pull::objects::period(cluster).unsigned_abs());
    Duration::from_secs(period.max(60 * fleet as u64 / FLEET_SHARE))
}

impl Members {
    /// Shortest time between two writes of a heartbeat (design §5.21).
    pub(super) fn heartbeat_every(&self, cluster: &MemberCluster) -> Duration {
        heartbeat_every(cluster, self.world.clusters.len())
    }

    pub(super) fn facts(
        &self,
        cluster: &MemberCluster,
        connection: Option<&Connection>,
        invalid: Option<String>,
    ) -> Facts {
        let heartbeat_every = self.heartbeat_every(cluster);
        let Some(connection) = connection else {
            let trouble = invalid.clone().unwrap_or_default();
            return Facts {
                healthy: Some(false),
                credentials: Credentials::Invalid(trouble.clone()),
                trouble,
                last_contact: None,
                endpoint: None,
                collection: Collection::Pending,
                version: None,
                usage: None,
                heartbeat_every,
            };
        };
        let state = lock(&connection.state).clone();
        let credentials = match invalid {
            Some(why) => Credentials::Invalid(why),
            None if state.unauthorized => Credentials::Invalid(format!(
                "the cluster does not accept the credentials any more; run windlass join {} again",
                cluster.name_any()
            )),
            None => Credentials::Valid(connection.expires),
        };
        let known = connection.nodes.is_synced() && connection.pods.is_synced();
        let collection = match state.healthy {
            Some(true) if known => Collection::Done,
            // While it is silent, what was known stands, and that it is silent is said elsewhere.
            Some(true) => connection
                .refusal()
                .map_or(Collection::Pending, Collection::Failed),
            _ => Collection::Pending,
        };
        Facts {
            healthy: state.healthy,
            trouble: format!("The cluster has stopped answering: {}", state.trouble),
            last_contact: state.answered.map(|(_, at)| at),
            credentials,
            endpoint: connection.endpoint.clone(),
            collection,
            version: state.version,
            usage: known.then(|| {
                let (nodes, pods) = (connection.nodes.list(), connection.pods.list());
                Usage::of(
                    nodes.iter().map(|node| &**node),
                    pods.iter().map(|pod| &**pod),
                )
            }),
            heartbeat_every,
        }
    }
}
