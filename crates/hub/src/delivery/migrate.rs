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
use crate::pull::plan::{Act, Wish};

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
    pub(super) async fn split(&self, binding: &Binding, wish: &Wish) -> Result<bool, ApiError> {
        if self.changes_to(binding) != Some(Mode::Pull) {
            return Ok(true);
        }
        let cluster = &binding.spec.target_cluster;
        let plan = self.pull.plan(cluster, wish);
        let any_new = plan
            .items
            .iter()
            .any(|item| matches!(item.act, Act::Create));
        if !any_new || !self.members.has_credentials(cluster) {
            return Ok(true);
        }
        let Some(member) = self.members.get(cluster) else {
            return Ok(false);
        };
        let share = |item: &crate::pull::plan::Item| Share {
            work: item.name.clone(),
            objects: wish.groups[item.group]
                .manifests
                .iter()
                .map(|manifest| manifest.id.clone())
                .collect(),
        };
        let shares: Vec<Share> = plan.items.iter().map(share).collect();
        let parent = self.parent_of(cluster, wish.placement.clone());
        // It may be under either name; what is in neither share stays where it is.
        let own = [parent.usual_name(), parent.hashed_name()];
        let names = if parent.rival.is_some() {
            &own[..]
        } else {
            &own[..1]
        };
        for name in names {
            member
                .split(&parent, name, &wish.namespace, &shares)
                .await?;
        }
        Ok(true)
    }

    /// Who removes what a binding placed, while its cluster changes its mode. None: nobody yet.
    pub(super) fn remover(&self, binding: &Binding, is_push: bool) -> Option<Mode> {
        let cluster = &binding.spec.target_cluster;
        let now = if is_push { Mode::Push } else { Mode::Pull };
        match (now, self.changes_to(binding)) {
            // The agent does nothing any more, and the hub not yet.
            (Mode::Pull, Some(Mode::Push)) if self.members.is_told_to_leave(cluster) => None,
            // No Work was written yet.
            (Mode::Pull, Some(Mode::Pull)) => {
                let placement = super::parent(binding);
                let works = self.world.pull.works_of(cluster, &placement);
                let still_ours = works.is_empty() && self.members.has_credentials(cluster);
                Some(if still_ours { Mode::Push } else { Mode::Pull })
            }
            _ => Some(now),
        }
    }
}
