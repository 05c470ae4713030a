//! What is known of a cluster, gathered for its status.

use std::time::Duration;

use kube::ResourceExt;
use windlass_api::member::MemberCluster;
use windlass_cluster::clock::{self, Instant};

use super::heard::Moment;
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

/// Since when this process has known a cluster, for the pace of its heartbeats. At a restart the heartbeats
/// of a whole fleet may be due: they wait for half a period to a whole one, each for another time.
#[derive(Clone, Copy, Debug)]
pub struct KnownSince {
    /// When it was first seen.
    pub moment: Moment,
    /// How many periods its heartbeat waits then.
    periods: f64,
}

impl KnownSince {
    /// It is seen for the first time.
    #[must_use]
    pub fn now() -> Self {
        Self {
            moment: Moment {
                instant: clock::monotonic(),
                time: clock::now(),
            },
            periods: clock::jitter(Duration::from_millis(750), 1.0 / 3.0).as_secs_f64(),
        }
    }

    /// Whether a heartbeat alone may be written, where that happens so often at most.
    #[must_use]
    pub fn is_settled(&self, now: Instant, heartbeat_every: Duration) -> bool {
        let known = now.saturating_duration_since(self.moment.instant);
        known >= heartbeat_every.mul_f64(self.periods)
    }
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
                is_settled: false,
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
            is_settled: state
                .known_since
                .is_settled(clock::monotonic(), heartbeat_every),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_of_a_fleet_come_one_by_one_after_a_restart() {
        let every = Duration::from_secs(60);
        for _ in 0..1000 {
            let known = KnownSince::now();
            let at = |seconds| {
                known.is_settled(known.moment.instant + Duration::from_secs(seconds), every)
            };
            assert!(!at(0) && !at(29) && at(61));
        }
        let settled = |known: &KnownSince| {
            known.is_settled(known.moment.instant + Duration::from_secs(45), every)
        };
        let known: Vec<_> = (0..1000).map(|_| KnownSince::now()).collect();
        let half = known.iter().filter(|known| settled(known)).count();
        assert!((300..700).contains(&half), "{half} of 1000");
    }
}
