//! A cluster with an agent leaves (hub §6.2): the agent is told to, and lets its Works go while what they
//! placed stays; then its namespace goes, then it.
//!
//! | state | what happens |
//! |---|---|
//! | to be purged, Works left | they are deleted, and the agent removes what they placed |
//! | the agent has not left | it is told to, and waited for, until `--force-delete-wait-time` is over |
//! | it has left, what is to be purged is still there | the hub removes it, if it can |
//! | it has left, or is given up | its Works go, and nothing of what they placed; then its namespace |
//! | the namespace is gone, bindings too | the finalizer of the cluster goes |

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use windlass_api::member::{Leaving, MemberCluster};
use windlass_api::pull::{InternalMemberCluster, MembershipState};
use windlass_api::{labels, names};
use windlass_cluster::clock::{self, Instant};
use windlass_cluster::{ApiError, ObjectKey};

use super::super::Members;
use super::super::leave::{placements, waited};
use super::{objects, status};
use crate::pull::abandon::abandon;
use crate::worker::Next;
use crate::world::BY_CLUSTER;

/// How long an agent that somebody said is not to be waited for may do nothing. It can't be asked, and how
/// often it reports may be much rarer than that.
const GRACE: Duration = Duration::from_secs(30);
/// How often its cluster is looked at.
const FORCED_PERIOD: Duration = Duration::from_secs(5);

impl Members {
    pub(super) async fn leave_pull(&self, cluster: &MemberCluster) -> Result<Next, ApiError> {
        let name = cluster.name_any();
        if !cluster
            .finalizers()
            .iter()
            .any(|f| f == labels::MEMBER_FINALIZER)
        {
            return Ok(Next::Event);
        }
        self.listen(&name, cluster);
        let given_up = self.is_over(cluster, self.is_stuck(&name));
        let is_gone = self.agent_is_gone(&name);
        let purges =
            is_purged(cluster) && !self.world.bindings.by_index(BY_CLUSTER, &name).is_empty();
        if !is_gone && !given_up {
            return self.ask_agent(cluster, purges).await;
        }
        // It has left before it removed everything.
        let is_left = purges && is_gone && self.has_left(&name);
        if is_left && self.has_credentials(&name) {
            let trouble = self.reach(&name).await;
            if !self.is_over(cluster, trouble.is_some()) {
                return self.purge_after(cluster, trouble).await;
            }
        }
        if (!is_gone || is_left) && !self.has_given_up(&name) {
            // Said first: delivery lets go of a binding only then.
            let how = if is_left {
                "Leaving without a purge: the cluster's agent had left before that, and the hub can't reach the \
                 cluster"
                    .to_owned()
            } else {
                format!(
                    "Leaving without the cluster's agent, which was waited for for {} s",
                    waited(cluster).as_secs()
                )
            };
            let bindings = self.world.bindings.by_index(BY_CLUSTER, &name);
            self.give_up(cluster, &how, &bindings).await?;
        }
        self.let_go_of_namespace(&name).await
    }

    /// The agent is out of the way: what the hub had put there for it goes, then the cluster.
    async fn let_go_of_namespace(&self, name: &str) -> Result<Next, ApiError> {
        let Some(cluster) = self.world.clusters.get(&ObjectKey::cluster(name)) else {
            return Ok(Next::Event);
        };
        let (cluster, namespace) = (&*cluster, names::member_namespace(name));
        let bindings = self.world.bindings.by_index(BY_CLUSTER, name);
        let held = || format!("Leaving: {} still has it", placements(&bindings));
        if bindings
            .iter()
            .any(|binding| binding.metadata.deletion_timestamp.is_none())
        {
            // Works might still be written for it, which would go with the namespace.
            self.say_waits(cluster, &held()).await?;
            return Ok(Next::After(Duration::from_secs(1)));
        }
        self.clear_namespace(&namespace).await?;
        for binding in &bindings {
            self.world.queues.bindings.add(ObjectKey::of(&**binding));
        }
        let there = self
            .world
            .pull
            .namespaces
            .get(&ObjectKey::cluster(&namespace))
            .is_some();
        if there || !bindings.is_empty() {
            let message = match bindings.is_empty() {
                true => format!("Leaving. {}", self.waits_for_namespace(&namespace).await?),
                false => held(),
            };
            self.say_waits(cluster, &message).await?;
            return Ok(Next::After(Duration::from_secs(1)));
        }
        self.agents.remove(name);
        if !self.has_credentials(name) {
            return self.let_go(cluster).await;
        }
        // It was about to change its mode of delivery.
        let trouble = self.reach(name).await;
        self.say_goodbye(cluster, trouble).await
    }

    /// The agent removes what is to be purged, and then is told to leave.
    async fn ask_agent(&self, cluster: &MemberCluster, purges: bool) -> Result<Next, ApiError> {
        // One that was told to leave for another reason removes nothing any more.
        let message = if purges && !self.is_told_to_leave(&cluster.name_any()) {
            "Leaving: the cluster's agent removes what was placed there"
        } else {
            self.tell_to_leave(cluster).await?;
            "Leaving: the cluster's agent lets go of what was placed there"
        };
        self.say(cluster, Leaving::Left, message).await?;
        Ok(self.again(cluster))
    }

    /// The agent has left, since the cluster was about to change its mode of delivery: the hub has the means to
    /// remove what it had placed.
    async fn purge_after(
        &self,
        cluster: &MemberCluster,
        trouble: Option<String>,
    ) -> Result<Next, ApiError> {
        let name = cluster.name_any();
        let mut message =
            "Leaving: the hub removes what the cluster's agent had placed there".to_owned();
        if let Some(trouble) = trouble {
            message = format!("{message}; the cluster can't be reached: {trouble}");
        }
        self.say(cluster, Leaving::Left, &message).await?;
        for binding in self.world.bindings.by_index(BY_CLUSTER, &name) {
            self.world.queues.bindings.add(ObjectKey::of(&*binding));
        }
        Ok(Next::After(Duration::from_secs(1)))
    }

    /// Whether the agent was there, and says that it has left.
    fn has_left(&self, name: &str) -> bool {
        let agent = self.world.pull.agent(name);
        agent.is_some_and(|agent| says_joined(&agent) == Some(false))
    }

    /// Whether nothing that was written for an agent is applied any more: it has said that it has left, or
    /// has never joined, or what it is told is gone.
    #[must_use]
    pub fn agent_is_gone(&self, name: &str) -> bool {
        match self.world.pull.agent(name) {
            None => true,
            Some(agent) => {
                agent.spec.state == MembershipState::Leave
                    && match says_joined(&agent) {
                        Some(joined) => !joined,
                        None => agent.status.is_none(),
                    }
            }
        }
    }

    pub(in crate::members) async fn tell_to_leave(
        &self,
        cluster: &MemberCluster,
    ) -> Result<(), ApiError> {
        let wanted = objects::internal(cluster, MembershipState::Leave);
        let Some(live) = self.world.pull.agent(&cluster.name_any()) else {
            return Ok(());
        };
        if live.spec == wanted.spec {
            return Ok(());
        }
        let mut changed = (*live).clone();
        changed.spec = wanted.spec;
        let live = self.writer.replace(&changed).await?;
        self.world.pull.internal.observe(live);
        Ok(())
    }

    /// Whether nothing has come for a while of what an agent was told of its leaving: of one that is not to
    /// be waited for, somebody knows already that it is dead.
    fn is_stuck(&self, name: &str) -> bool {
        let works = self
            .world
            .pull
            .works
            .in_namespace(&names::member_namespace(name))
            .len();
        self.agent(name);
        let Some(mut agent) = self.agents.get_mut(name) else {
            return false;
        };
        let (stuck, told) = stuck(agent.told, works, clock::monotonic());
        agent.told = Some(told);
        stuck
    }

    /// When to look again at a cluster that leaves.
    fn again(&self, cluster: &MemberCluster) -> Next {
        if cluster.annotations().contains_key(labels::FORCE_LEAVE) {
            return Next::After(FORCED_PERIOD);
        }
        let left = self
            .policy
            .force_delete_wait
            .saturating_sub(waited(cluster));
        // A moment more than what is left: the deletion's time has whole seconds.
        Next::After((left + Duration::from_secs(1)).min(self.probe_period(cluster)))
    }

    /// Deletes the Works of an agent, then its namespace with all that is in it. An agent that is still at
    /// work takes away what it placed when a Work goes with its finalizer, also with its namespace.
    pub(in crate::members) async fn clear_namespace(
        &self,
        namespace: &str,
    ) -> Result<(), ApiError> {
        let pull = &self.world.pull;
        for work in pull.works.in_namespace(namespace) {
            abandon(&self.writer, pull, &work).await?;
        }
        let Some(live) = pull.namespaces.get(&ObjectKey::cluster(namespace)) else {
            return Ok(());
        };
        if live.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let object = Namespace {
            metadata: live.metadata.clone(),
            ..Namespace::default()
        };
        self.writer.delete(&object).await
    }
}

/// Whether the agent says that it has joined; none while it says neither.
pub(in crate::members) fn says_joined(agent: &InternalMemberCluster) -> Option<bool> {
    status::has_joined(agent.status.as_ref(), agent.metadata.generation)
}

/// Whether an agent has done nothing for [`GRACE`]; and since when, with how many Works, to ask with again.
fn stuck(told: Option<(Instant, usize)>, works: usize, now: Instant) -> (bool, (Instant, usize)) {
    match told.filter(|(_, before)| *before == works) {
        Some(told) => (now.saturating_duration_since(told.0) >= GRACE, told),
        None => (false, (now, works)),
    }
}

/// Whether what was placed on a leaving cluster is removed, too.
#[must_use]
pub fn is_purged(cluster: &MemberCluster) -> bool {
    cluster
        .annotations()
        .get(labels::PURGE)
        .is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_not_waited_for_once_nothing_comes_of_it() {
        let start = clock::monotonic();
        let mut told = None;
        // At a second: Works that are left, and whether the agent is given up.
        for (second, works, expected) in [
            (0, 3, false),
            (29, 3, false),
            (30, 3, true),
            // It does something after all.
            (31, 2, false),
            (60, 2, false),
            (61, 2, true),
        ] {
            let now = start + Duration::from_secs(second);
            let (stuck, next) = stuck(told, works, now);
            assert_eq!(stuck, expected, "after {second} s");
            told = Some(next);
        }
    }
}
