//! While a cluster changes its mode of delivery: objects are moved to the AppliedWorks that the new owner
//! looks for, before it delivers for the first time ([`crate::members::migrate`]).

use kube::ResourceExt;
use windlass_api::names;
use windlass_api::scoped::Binding;
use windlass_cluster::{ApiError, ObjectKey};
use windlass_member::regroup::Share;
use windlass_member::{Member, Parent};

use super::Delivery;
use crate::members::migrate::Mode;
use crate::members::pull::leave::is_purged;
use crate::pull::plan::{Act, Item, Wish};

impl Delivery {
    /// The mode that a binding's cluster changes to, if it does.
    pub(super) fn changes_to(&self, binding: &Binding) -> Option<Mode> {
        let key = ObjectKey::cluster(&binding.spec.target_cluster);
        self.members.changes_to(&*self.world.clusters.get(&key)?)
    }

    /// Before the hub delivers to a cluster that had an agent: what the agent had under several AppliedWorks
    /// comes under one.
    pub(super) async fn absorb(
        &self,
        member: &Member,
        binding: &Binding,
        parent: &Parent,
    ) -> Result<(), ApiError> {
        let cluster = &binding.spec.target_cluster;
        let works = self.world.pull.works_of(cluster, &parent.placement);
        if works.is_empty() {
            return Ok(());
        }
        let own = member.work_name(parent).await?;
        let others: Vec<String> = works
            .iter()
            .map(|work| work.name_any())
            .filter(|name| *name != own)
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        let namespace = names::member_namespace(cluster);
        member.absorb(parent, &own, &namespace, &others).await
    }

    /// Before the first Works are written for a cluster that the hub has delivered to: what it had under one
    /// AppliedWork comes under one per Work. False while the cluster can't be reached for that.
    ///
    /// Of two placements that want one name, each gets the name that it has on the cluster: whoever took the
    /// other's would have its agent remove what the other one placed.
    pub(super) async fn split(&self, binding: &Binding, wish: &mut Wish) -> Result<bool, ApiError> {
        if self.changes_to(binding) != Some(Mode::Pull) {
            return Ok(true);
        }
        let cluster = &binding.spec.target_cluster;
        let is_new = |item: &Item| matches!(item.act, Act::Create);
        if !self.pull.plan(cluster, wish).items.iter().any(is_new)
            || !self.members.has_credentials(cluster)
        {
            return Ok(true);
        }
        let Some(member) = self.members.get(cluster) else {
            return Ok(false);
        };
        let parent = self.parent_of(cluster, wish.placement.clone());
        let own = member.work_name(&parent).await?;
        wish.is_hashed = own == parent.hashed_name();
        let plan = self.pull.plan(cluster, wish);
        let share = |item: &Item| Share {
            work: item.name.clone(),
            objects: wish.groups[item.group]
                .manifests
                .iter()
                .map(|manifest| manifest.id.clone())
                .collect(),
        };
        let shares: Vec<Share> = plan.items.iter().map(share).collect();
        // The rival's may hold what both placements name: that stays its.
        member
            .split(&parent, &own, &wish.namespace, &shares)
            .await?;
        Ok(true)
    }

    /// Who removes what a binding placed, while its cluster changes its mode. None: nobody yet.
    pub(super) fn remover(&self, binding: &Binding, is_push: bool) -> Option<Mode> {
        let cluster = &binding.spec.target_cluster;
        let placement = super::parent(binding);
        let known = self.world.clusters.get(&ObjectKey::cluster(cluster));
        let leaving = known.filter(|known| known.metadata.deletion_timestamp.is_some());
        remover(&State {
            now: if is_push { Mode::Push } else { Mode::Pull },
            to: self.changes_to(binding),
            purge: leaving.map(|leaving| is_purged(&leaving)),
            is_told: self.members.is_told_to_leave(cluster),
            is_gone: self.members.agent_is_gone(cluster),
            has_works: !self.world.pull.works_of(cluster, &placement).is_empty(),
            has_credentials: self.members.has_credentials(cluster),
        })
    }
}

/// What it depends on who removes what a binding placed.
#[derive(Clone, Copy, Debug)]
struct State {
    /// The cluster's mode.
    now: Mode,
    /// The mode that it changes to.
    to: Option<Mode>,
    /// Of a cluster that leaves: whether it is purged.
    purge: Option<bool>,
    /// The agent has been told to leave.
    is_told: bool,
    /// The agent has left.
    is_gone: bool,
    /// There are Works of the placement.
    has_works: bool,
    /// The hub has credentials of the cluster.
    has_credentials: bool,
}

fn remover(state: &State) -> Option<Mode> {
    match (state.now, state.to) {
        // The agent does nothing any more. A cluster that leaves never gets to the other mode.
        (Mode::Pull, _) if state.is_told && state.purge == Some(true) => {
            (state.is_gone && state.has_credentials).then_some(Mode::Push)
        }
        (Mode::Pull, Some(Mode::Push)) if state.is_told && state.purge.is_none() => None,
        // No Work was written yet.
        (Mode::Pull, Some(Mode::Pull)) if !state.has_works && state.has_credentials => {
            Some(Mode::Push)
        }
        (now, _) => Some(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_removes_what_was_placed() {
        let (push, pull) = (Some(Mode::Push), Some(Mode::Pull));
        let settled = State {
            now: Mode::Pull,
            to: None,
            purge: None,
            is_told: false,
            is_gone: false,
            has_works: true,
            has_credentials: false,
        };
        let to_push = State {
            to: push,
            has_credentials: true,
            ..settled
        };
        let told = State {
            is_told: true,
            ..to_push
        };
        let purged = State {
            purge: Some(true),
            ..told
        };
        let to_pull = State {
            to: pull,
            ..to_push
        };
        for (about, state, expected) in [
            ("an agent", settled, pull),
            (
                "the hub",
                State {
                    now: Mode::Push,
                    ..settled
                },
                push,
            ),
            ("it is not told yet", to_push, pull),
            ("it does nothing any more", told, None),
            (
                "leaving: it lets go",
                State {
                    purge: Some(false),
                    ..told
                },
                pull,
            ),
            ("purged: it has not left", purged, None),
            (
                "purged: it has",
                State {
                    is_gone: true,
                    ..purged
                },
                push,
            ),
            (
                "purged: it has, and the hub has no way",
                State {
                    is_gone: true,
                    has_credentials: false,
                    ..purged
                },
                None,
            ),
            (
                "purged: it is not told to leave",
                State {
                    is_told: false,
                    ..purged
                },
                pull,
            ),
            (
                "the hub placed it",
                State {
                    has_works: false,
                    ..to_pull
                },
                push,
            ),
            ("an agent took it over", to_pull, pull),
        ] {
            assert_eq!(remover(&state), expected, "{about}");
        }
    }
}
