//! A cluster leaves: its bindings go first (what they placed stays, unowned, unless it is purged), then the
//! hub's own rights on it, then its credentials, then it. One that can't be reached does not block for
//! ever (design §5.19).

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use windlass_api::member::{Leaving, MemberCluster};
use windlass_api::scoped::Binding;
use windlass_api::{labels, names};
use windlass_cluster::clock::{self, Instant};
use windlass_cluster::{ApiError, ObjectKey};
use windlass_member::install::{Rights, SERVICE_ACCOUNT};
use windlass_member::{Parent, Rival};

use super::left_behind::{self, LeftBehind};
use super::{MemberPolicy, Members, status};
use crate::placement::deletion::trouble;
use crate::worker::Next;
use crate::works;
use crate::world::{BY_CLUSTER, placement_of};

/// How long the removal of the hub's own rights is tried on a cluster that leaves.
const GOODBYE_LIMIT: Duration = Duration::from_secs(10);
/// How often.
const GOODBYE_PERIOD: Duration = Duration::from_millis(500);

/// How many placements a message names.
const NAMED: usize = 10;

/// What becomes of a cluster whose rights of the hub are removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Haste {
    /// It leaves, and is not to be held up for long.
    Leaves,
    /// It stays: the hub would have rights there that nobody knows of.
    Stays,
}

/// What has come of the removal of the hub's own rights on a cluster.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Farewell {
    /// They are gone.
    Gone,
    /// It goes on. The trouble, if there is any.
    Going(Option<String>),
    /// They stay, for this reason.
    Stays(String),
}

/// How the removal of the hub's own rights on a cluster stands.
#[derive(Clone, Copy)]
pub(super) enum Goodbye {
    /// It has been tried since then; `agreed`: the cluster has said that it will.
    Asked {
        since: Instant,
        agreed: bool,
        /// It has refused, and never agreed.
        refused: bool,
    },
    /// Nothing more is asked of the cluster.
    Over,
}

impl Members {
    pub(super) async fn leave(&self, cluster: &MemberCluster) -> Result<Next, ApiError> {
        let name = cluster.name_any();
        if !cluster
            .finalizers()
            .iter()
            .any(|f| f == labels::MEMBER_FINALIZER)
        {
            self.disconnect(&name);
            self.goodbyes.remove(&name);
            return Ok(Next::Event);
        }
        let trouble = self.reach(&name).await;
        let bindings = self.world.bindings.by_index(BY_CLUSTER, &name);
        if !bindings.is_empty() {
            return self.release(cluster, &bindings, trouble).await;
        }
        // Of an agent, if the cluster was about to change its mode of delivery.
        self.clear_namespace(&names::member_namespace(&name))
            .await?;
        self.say_goodbye(cluster, trouble).await
    }

    /// The hub's own rights on the cluster go, then the cluster. `trouble`: why it can't be reached.
    pub(super) async fn say_goodbye(
        &self,
        cluster: &MemberCluster,
        trouble: Option<String>,
    ) -> Result<Next, ApiError> {
        let name = cluster.name_any();
        let cluster = self.ask_back(cluster, trouble.as_deref()).await?;
        let farewell = self.remove_rights(&name, trouble, Haste::Leaves).await;
        let cluster = self.note_refusal(&cluster).await?;
        match farewell {
            Farewell::Gone => self.let_go(&cluster).await,
            Farewell::Going(_) => Ok(Next::After(GOODBYE_PERIOD)),
            Farewell::Stays(trouble) => {
                let message = format!("Left; {}", rights_stay(&trouble));
                let live = self.say(&cluster, Leaving::LeftBehind, &message).await?;
                self.let_go(&live).await
            }
        }
    }

    /// Notes, before [`Self::remove_rights`], that the cluster answers and is asked to take the hub's rights
    /// away from now on: a restart could not tell rights that are gone from such as are left behind. The
    /// cluster as it is then.
    pub(super) async fn ask_back(
        &self,
        cluster: &MemberCluster,
        trouble: Option<&str>,
    ) -> Result<MemberCluster, ApiError> {
        self.goodbyes
            .entry(cluster.name_any())
            .or_insert_with(|| Goodbye::Asked {
                since: clock::monotonic(),
                // Before a restart: it answered then, and who is refused since has no rights any more.
                agreed: asked(cluster) == Some(ASKED),
                refused: false,
            });
        if trouble.is_some() || asked(cluster).is_some() {
            return Ok(cluster.clone());
        }
        self.mark_rights(cluster, ASKED).await
    }

    /// Notes that the cluster has refused, so that no refusal after a restart is taken for rights that are
    /// gone.
    pub(super) async fn note_refusal(
        &self,
        cluster: &MemberCluster,
    ) -> Result<MemberCluster, ApiError> {
        let goodbye = self.goodbyes.get(&cluster.name_any()).map(|entry| *entry);
        match goodbye {
            Some(Goodbye::Asked { refused: true, .. }) if asked(cluster) == Some(ASKED) => {
                self.mark_rights(cluster, REFUSED).await
            }
            _ => Ok(cluster.clone()),
        }
    }

    async fn mark_rights(
        &self,
        cluster: &MemberCluster,
        how: &str,
    ) -> Result<MemberCluster, ApiError> {
        let mut changed = cluster.clone();
        let mark = labels::RIGHTS_ASKED_BACK.to_owned();
        changed.annotations_mut().insert(mark, how.to_owned());
        let live = self.writer.replace(&changed).await?;
        self.world.clusters.observe(live.clone());
        Ok(live)
    }

    /// Whether the cluster can be reached, now that it is needed; the trouble, if not. The engine is
    /// needed for the removal also after a restart.
    pub(super) async fn reach(&self, name: &str) -> Option<String> {
        if let Err(trouble) = self.connect(name).await {
            return Some(trouble);
        }
        let connection = self.connections.get(name).map(|c| c.clone())?;
        self.probe(name, &connection).await
    }

    /// What was placed is being removed or released, by delivery; this tells how that stands.
    async fn release(
        &self,
        cluster: &MemberCluster,
        bindings: &[Arc<Binding>],
        trouble: Option<String>,
    ) -> Result<Next, ApiError> {
        let name = cluster.name_any();
        if self.is_lost(cluster, trouble.is_some()) {
            // Said first: delivery lets go of a binding only then, and later there is less to name.
            if !self.has_given_up(&name) {
                self.give_up(cluster, "Leaving without the cluster", bindings)
                    .await?;
            }
            for binding in bindings {
                self.world.queues.bindings.add(ObjectKey::of(&**binding));
            }
        } else {
            let mut message = format!(
                "Leaving: what the cluster has from {} is being released",
                placements(bindings)
            );
            if let Some(trouble) = trouble {
                message = format!("{message}; the cluster can't be reached: {trouble}");
            }
            self.say(cluster, Leaving::Left, &message).await?;
        }
        let left = self
            .policy
            .force_delete_wait
            .saturating_sub(waited(cluster));
        // A moment more than what is left: the deletion's time has whole seconds.
        let wait = self
            .probe_period(cluster)
            .min(left + Duration::from_secs(1));
        Ok(Next::After(wait))
    }

    /// Says what is left behind: in the cluster's condition, for those who watch it go, in an event, and, one
    /// line for each AppliedWork, in the log.
    pub(super) async fn give_up(
        &self,
        cluster: &MemberCluster,
        how: &str,
        bindings: &[Arc<Binding>],
    ) -> Result<(), ApiError> {
        let left: Vec<LeftBehind> = bindings
            .iter()
            .filter_map(|binding| {
                let placement = placement_of(&**binding)?;
                let live = self.world.placements.get(&placement);
                Some(LeftBehind::of(
                    &placement,
                    self.applied_works(&cluster.name_any(), &placement),
                    live.as_deref(),
                ))
            })
            .collect();
        let list = left_behind::list(&left);
        let message = match list.as_str() {
            "" => format!("{how}; nothing was placed on it"),
            list => format!("{how}; left behind on it: {list}"),
        };
        self.say(cluster, Leaving::LeftBehind, &message).await?;
        for left in left {
            tracing::warn!("left behind on the cluster: {left}");
        }
        Ok(())
    }

    /// Names that a placement's AppliedWorks have on a cluster, as far as the hub knows without asking there.
    fn applied_works(&self, cluster: &str, placement: &ObjectKey) -> Vec<String> {
        // Of an agent: they have the names of its Works.
        let told = self.world.pull.works_of(cluster, placement);
        if !told.is_empty() {
            return told.iter().map(|work| work.name_any()).collect();
        }
        let exists = |key: &ObjectKey| self.world.placements.get(key).is_some();
        possible_names(&works::parent(placement.clone(), exists))
    }

    /// Removes the hub's rights on the cluster, the last thing that is asked of it.
    pub(super) async fn remove_rights(
        &self,
        name: &str,
        trouble: Option<String>,
        haste: Haste,
    ) -> Farewell {
        let (since, agreed) = match self.goodbyes.get(name).map(|goodbye| *goodbye) {
            None => (clock::monotonic(), false),
            Some(Goodbye::Asked { since, agreed, .. }) => (since, agreed),
            Some(Goodbye::Over) => return Farewell::Gone,
        };
        let answer = match self.get(name) {
            Some(member) => member.remove_rights().await,
            None => Err(ApiError::Rejected(
                trouble.unwrap_or_else(|| "it is not connected".to_owned()),
            )),
        };
        let is_connected = self.get(name).is_some();
        let has_secret = !self.world.secrets.is_synced() || self.secret_of(name).is_some();
        let is_refusal = matches!(
            answer,
            Err(ApiError::Rejected(_) | ApiError::Unauthorized(_))
        );
        let (agreed, trouble, is_final) = match answer {
            Ok(Rights::Gone) => return Farewell::Gone,
            Err(ApiError::Rejected(_) | ApiError::Unauthorized(_))
                if is_gone(agreed, is_connected, has_secret) =>
            {
                return Farewell::Gone;
            }
            Err(ApiError::Rejected(trouble)) => (agreed, Some(trouble), true),
            Err(error) => (agreed, Some(error.message().to_owned()), false),
            Ok(Rights::Going) => (true, None, false),
        };
        let asked = Goodbye::Asked {
            since,
            agreed,
            refused: is_refusal && is_connected && !agreed,
        };
        self.goodbyes.insert(name.to_owned(), asked);
        let tried = clock::monotonic().saturating_duration_since(since);
        let is_final = is_final || self.has_given_up(name);
        if is_final && haste == Haste::Leaves || tried >= patience(haste, &self.policy) {
            let agreed = || "it has agreed to remove them, and has not".to_owned();
            return Farewell::Stays(trouble.unwrap_or_else(agreed));
        }
        Farewell::Going(trouble)
    }

    /// The cluster's credentials go, then it.
    pub(super) async fn let_go(&self, cluster: &MemberCluster) -> Result<Next, ApiError> {
        let name = cluster.name_any();
        self.goodbyes.insert(name.clone(), Goodbye::Over);
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
            // Its end is noted at once: the next look must not take it for one that still leaves.
            Ok(live) => self.world.clusters.observe(live),
            Err(ApiError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        self.goodbyes.remove(&name);
        self.world.observer.cluster_left(cluster);
        Ok(Next::Event)
    }

    /// Says how the leaving stands, unless that is said already; the cluster as it is then.
    pub(super) async fn say(
        &self,
        cluster: &MemberCluster,
        how: Leaving,
        message: &str,
    ) -> Result<MemberCluster, ApiError> {
        let Some(status) = status::leaving(cluster, how, message, clock::now()) else {
            return Ok(cluster.clone());
        };
        let live = self.put_status(cluster, status).await?;
        if how == Leaving::LeftBehind {
            // Joined does not change its status, so that nobody else tells of it.
            self.world
                .observer
                .cluster_left_behind(cluster, how.as_str(), message);
        }
        Ok(live)
    }

    /// Says what the leaving waits for, unless that is said already.
    pub(super) async fn say_waits(
        &self,
        cluster: &MemberCluster,
        message: &str,
    ) -> Result<(), ApiError> {
        if let Some(status) = status::leaving_waits(cluster, message, clock::now()) {
            self.put_status(cluster, status).await?;
        }
        Ok(())
    }

    /// Whether a leaving cluster is not waited for any more, and that was said.
    #[must_use]
    pub fn has_given_up(&self, name: &str) -> bool {
        let cluster = self.world.clusters.get(&ObjectKey::cluster(name));
        cluster.is_some_and(|cluster| {
            cluster.metadata.deletion_timestamp.is_some()
                && status::is_leaving(&cluster) == Some(Leaving::LeftBehind)
        })
    }

    /// Whether a leaving cluster need not be waited for any more.
    fn is_lost(&self, cluster: &MemberCluster, is_silent: bool) -> bool {
        let no_way =
            self.world.secrets.is_synced() && self.secret_of(&cluster.name_any()).is_none();
        no_way || self.is_over(cluster, is_silent)
    }

    /// Whether a leaving cluster was waited for for long enough; one that is silent not at all, if somebody
    /// has said so.
    pub(super) fn is_over(&self, cluster: &MemberCluster, is_silent: bool) -> bool {
        is_silent && cluster.annotations().contains_key(labels::FORCE_LEAVE)
            || waited(cluster) >= self.policy.force_delete_wait
    }
}

/// Value of the mark: the cluster answered, and was asked to take the hub's rights away.
const ASKED: &str = "true";
/// Value of the mark: it was, and refused.
const REFUSED: &str = "refused";

/// How it stands with the hub's rights on the cluster, as marked.
fn asked(cluster: &MemberCluster) -> Option<&str> {
    let mark = cluster.annotations().get(labels::RIGHTS_ASKED_BACK);
    mark.map(String::as_str)
}

/// Whether the hub's rights are gone when it is refused. Who may not ask any more has no rights any more; its
/// credentials are removed only after them.
fn is_gone(agreed: bool, is_connected: bool, has_secret: bool) -> bool {
    agreed && (is_connected || !has_secret)
}

/// How long the removal of the hub's rights is tried.
fn patience(haste: Haste, policy: &MemberPolicy) -> Duration {
    match haste {
        Haste::Leaves => GOODBYE_LIMIT,
        Haste::Stays => policy.force_delete_wait.max(GOODBYE_LIMIT),
    }
}

/// That the hub's rights stay on a cluster, and why.
pub(super) fn rights_stay(trouble: &str) -> String {
    format!(
        "ServiceAccount {}/{SERVICE_ACCOUNT}, ClusterRole and ClusterRoleBinding {SERVICE_ACCOUNT} are left \
         behind on the cluster: {trouble}",
        names::HUB_NAMESPACE
    )
}

/// The placements of bindings, and what their removal waits for, for a message.
pub(super) fn placements(bindings: &[Arc<Binding>]) -> String {
    let mut names: Vec<String> = bindings
        .iter()
        .filter_map(|binding| {
            let name = placement_of(&**binding)?;
            Some(match trouble(binding) {
                Some(trouble) => format!("{name} ({trouble})"),
                None => name.to_string(),
            })
        })
        .collect();
    names.sort();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let tail = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("placement(s) {}{tail}", names.join(", "))
}

/// Names of which one is that of a placement's AppliedWork.
fn possible_names(parent: &Parent) -> Vec<String> {
    match parent.rival {
        // Who was first is known on the cluster only.
        Some(Rival::Present) => vec![format!(
            "{} or {}",
            parent.usual_name(),
            parent.hashed_name()
        )],
        Some(Rival::Wins) => vec![parent.hashed_name()],
        None | Some(Rival::Possible | Rival::Loses) => vec![parent.usual_name()],
    }
}

/// How long a cluster has been leaving.
pub(super) fn waited(cluster: &MemberCluster) -> Duration {
    let deleted = cluster.metadata.deletion_timestamp.as_ref();
    deleted
        .map(|deleted| clock::now().duration_since(deleted.0))
        .and_then(|waited| Duration::try_from(waited).ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hub_tries_longer_to_lose_its_rights_on_a_cluster_that_stays() {
        let policy = |wait| MemberPolicy {
            unhealthy_threshold: Duration::from_secs(60),
            force_delete_wait: Duration::from_secs(wait),
            profiles: false,
        };
        for (haste, wait, expected) in [
            (Haste::Leaves, 900, 10),
            (Haste::Stays, 900, 900),
            (Haste::Stays, 1, 10),
        ] {
            assert_eq!(patience(haste, &policy(wait)).as_secs(), expected);
        }
    }

    #[test]
    fn a_refusal_means_that_the_rights_are_gone_once_the_cluster_has_agreed() {
        for (about, agreed, connected, secret, expected) in [
            ("never asked", false, true, true, false),
            ("never asked, no way to", false, false, false, false),
            ("asked, and refused since", true, true, true, true),
            ("asked, and out of reach since", true, false, true, false),
            ("asked, and done but for its end", true, false, false, true),
        ] {
            assert_eq!(is_gone(agreed, connected, secret), expected, "{about}");
        }
    }

    #[test]
    fn two_placements_of_one_name_have_two_names_on_a_cluster() {
        let named = |rival| {
            let placement = ObjectKey::namespaced("web", "x");
            possible_names(&works::parent(placement, |_| rival)).join("")
        };
        assert_eq!(named(false), "web.x-work");
        let both = named(true);
        assert!(both.starts_with("web.x-work or web.x-"), "{both}");
    }
}
