//! What becomes of what was placed, once a binding is deleted (API §2.5, `deleteStrategy`; design §5.19).
//!
//! `deleteStrategy` is about the end of the placement. A cluster that is merely not selected any more, and
//! an object that is not, are cleaned up under Abandon, too. The placement's wish is noted on its bindings,
//! so that it still counts when somebody has taken the placement's finalizer off.

use kube::ResourceExt;
use windlass_api::labels;
use windlass_api::member::MemberCluster;
use windlass_api::placement::{DeletePropagationPolicy, RolloutStrategy};
use windlass_api::scoped::{Binding, Placement};
use windlass_member::RemovalMode;

/// Whether a strategy leaves what was placed when the placement is deleted.
#[must_use]
pub fn wants_abandon(strategy: Option<&RolloutStrategy>) -> bool {
    let policy = strategy
        .and_then(|strategy| strategy.delete_strategy.as_ref())
        .and_then(|strategy| strategy.propagation_policy);
    policy == Some(DeletePropagationPolicy::Abandon)
}

/// Notes a placement's wish on a binding of it.
pub fn note(binding: &mut Binding, strategy: Option<&RolloutStrategy>) {
    if wants_abandon(strategy) {
        binding.annotations_mut().insert(
            labels::DELETE_STRATEGY.to_owned(),
            labels::ABANDON.to_owned(),
        );
    } else if binding.annotations().contains_key(labels::DELETE_STRATEGY) {
        binding.annotations_mut().remove(labels::DELETE_STRATEGY);
    }
}

/// How what a deleted binding placed is removed.
///
/// | cluster | placement | wish | mode |
/// |---|---|---|---|
/// | leaves, with purge | | | Purge |
/// | leaves | | | Leave |
/// | stays | there | | Placement: the cluster is not selected any more |
/// | stays | being deleted | its own | Placement or Abandon |
/// | stays | gone | the binding's note | Placement or Abandon |
#[must_use]
pub fn mode(
    cluster: &MemberCluster,
    placement: Option<&Placement>,
    binding: &Binding,
) -> RemovalMode {
    if cluster.metadata.deletion_timestamp.is_some() {
        let purge = cluster
            .annotations()
            .get(labels::PURGE)
            .is_some_and(|value| value == "true");
        return if purge {
            RemovalMode::Purge
        } else {
            RemovalMode::Leave
        };
    }
    let abandon = match placement {
        Some(placement) if placement.metadata.deletion_timestamp.is_none() => false,
        Some(placement) => wants_abandon(placement.spec.strategy.as_ref()),
        None => binding
            .annotations()
            .get(labels::DELETE_STRATEGY)
            .is_some_and(|value| value == labels::ABANDON),
    };
    if abandon {
        RemovalMode::Abandon
    } else {
        RemovalMode::Placement
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use windlass_api::binding::BindingSpec;
    use windlass_api::placement::{DeleteStrategy, PlacementSpec};

    use super::*;

    fn strategy(policy: DeletePropagationPolicy) -> RolloutStrategy {
        RolloutStrategy {
            delete_strategy: Some(DeleteStrategy {
                propagation_policy: Some(policy),
            }),
            ..Default::default()
        }
    }

    #[test]
    fn the_table() {
        use DeletePropagationPolicy::{Abandon, Delete};
        let going = || Some(Time(jiff::Timestamp::UNIX_EPOCH));
        let stays = MemberCluster::default();
        let mut leaves = MemberCluster::default();
        leaves.metadata.deletion_timestamp = going();
        let mut purged = leaves.clone();
        purged
            .annotations_mut()
            .insert(labels::PURGE.to_owned(), "true".to_owned());
        let placement = |policy, deleted| {
            let mut placement = Placement::new(
                "p",
                PlacementSpec {
                    strategy: Some(strategy(policy)),
                    ..Default::default()
                },
            );
            placement.metadata.deletion_timestamp = if deleted { going() } else { None };
            Some(placement)
        };
        let plain = Binding::new("b", BindingSpec::default());
        let mut noted = plain.clone();
        note(&mut noted, Some(&strategy(Abandon)));
        let mut unnoted = noted.clone();
        note(&mut unnoted, Some(&strategy(Delete)));
        assert_eq!(unnoted.annotations(), plain.annotations());
        let rows = [
            (
                &purged,
                placement(Abandon, true),
                &noted,
                RemovalMode::Purge,
            ),
            (&leaves, placement(Delete, true), &plain, RemovalMode::Leave),
            (
                &stays,
                placement(Abandon, false),
                &noted,
                RemovalMode::Placement,
            ),
            (
                &stays,
                placement(Abandon, true),
                &plain,
                RemovalMode::Abandon,
            ),
            (
                &stays,
                placement(Delete, true),
                &noted,
                RemovalMode::Placement,
            ),
            (&stays, None, &plain, RemovalMode::Placement),
            (&stays, None, &noted, RemovalMode::Abandon),
        ];
        for (number, (cluster, placement, binding, expected)) in rows.into_iter().enumerate() {
            assert_eq!(
                mode(cluster, placement.as_ref(), binding),
                expected,
                "{number}"
            );
        }
    }
}
