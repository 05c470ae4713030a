//! When a policy becomes a new snapshot, and what of it is kept.

use std::sync::Arc;

use kube::ResourceExt;
use windlass_api::labels;
use windlass_api::placement::{PlacementPolicy, PlacementType};
use windlass_api::scoped::PolicySnapshot;
use windlass_api::snapshot::PolicySnapshotStatus;

use windlass_cluster::ObjectKey;

use crate::placement::policy::{PolicyInputs, PolicyPlan, decided_generation, plan};

fn pick_n(number: i32) -> PlacementPolicy {
    PlacementPolicy {
        placement_type: Some(PlacementType::PickN),
        number_of_clusters: Some(number),
        ..Default::default()
    }
}

fn fixed(names: &[&str]) -> PlacementPolicy {
    PlacementPolicy {
        placement_type: Some(PlacementType::PickFixed),
        cluster_names: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        ..Default::default()
    }
}

/// Policies follow one another; each pass is carried out but the last, whose plan is returned.
fn last_plan(
    policies: &[Option<PlacementPolicy>],
    limit: usize,
) -> (Vec<Arc<PolicySnapshot>>, PolicyPlan) {
    let mut store: Vec<Arc<PolicySnapshot>> = Vec::new();
    for (policy, generation) in policies.iter().zip(1..) {
        let plan = plan(&PolicyInputs {
            placement: &ObjectKey::cluster("p"),
            placement_uid: "u",
            generation,
            policy: policy.as_ref(),
            snapshots: &store,
            history_limit: limit,
        });
        if generation == policies.len() as i64 {
            return (store, plan);
        }
        let replaced = |name: &str| plan.update.iter().find(|new| new.name_any() == name);
        store = store
            .into_iter()
            .filter(|old| {
                plan.expired
                    .iter()
                    .all(|gone| gone.name_any() != old.name_any())
            })
            .map(|old| replaced(&old.name_any()).cloned().map_or(old, Arc::new))
            .chain(plan.create.clone().map(Arc::new))
            .collect();
    }
    unreachable!("a table row has a policy")
}

#[test]
fn what_makes_a_new_version() {
    struct Row {
        what: &'static str,
        policies: Vec<Option<PlacementPolicy>>,
        latest: &'static str,
        created: bool,
    }
    let rows = [
        Row {
            what: "no policy is one, too",
            policies: vec![None],
            latest: "p-0",
            created: true,
        },
        Row {
            what: "scaling PickN changes it in place",
            policies: vec![Some(pick_n(1)), Some(pick_n(3))],
            latest: "p-0",
            created: false,
        },
        Row {
            what: "other clusters are a new one",
            policies: vec![Some(fixed(&["a"])), Some(fixed(&["b"]))],
            latest: "p-1",
            created: true,
        },
        Row {
            what: "going back is a new one",
            policies: vec![Some(fixed(&["a"])), None, Some(fixed(&["a"]))],
            latest: "p-2",
            created: true,
        },
    ];
    for row in rows {
        let (_, plan) = last_plan(&row.policies, 10);
        assert_eq!(plan.latest, row.latest, "{}", row.what);
        assert_eq!(plan.create.is_some(), row.created, "{}", row.what);
    }
}

#[test]
fn scaling_is_an_annotation_and_a_second_pass_writes_nothing() {
    let (_, plan) = last_plan(&[Some(pick_n(1)), Some(pick_n(3))], 10);
    let changed = &plan.update[0];
    assert_eq!(changed.annotations()[labels::NUMBER_OF_CLUSTERS], "3");
    assert_eq!(changed.annotations()[labels::PLACEMENT_GENERATION], "2");
    let settled = [Arc::new(changed.clone())];
    let again = crate::placement::policy::plan(&PolicyInputs {
        placement: &ObjectKey::cluster("p"),
        placement_uid: "u",
        generation: 2,
        policy: Some(&pick_n(3)),
        snapshots: &settled,
        history_limit: 10,
    });
    assert!(again.create.is_none() && again.update.is_empty() && again.expired.is_empty());
}

#[test]
fn exactly_one_is_latest_and_history_is_bounded() {
    let policies: Vec<_> = ["a", "b", "c", "d"]
        .iter()
        .map(|name| Some(fixed(&[name])))
        .collect();
    let (store, plan) = last_plan(&policies, 2);
    let latest: Vec<_> = store
        .iter()
        .filter(|snapshot| snapshot.labels()[labels::IS_LATEST_SNAPSHOT] == "true")
        .map(|snapshot| snapshot.name_any())
        .collect();
    assert_eq!(latest, ["p-2"]);
    assert_eq!(store.len(), 2);
    let expired: Vec<_> = plan
        .expired
        .iter()
        .map(|snapshot| snapshot.name_any())
        .collect();
    assert_eq!(expired, ["p-1"]);
    assert_eq!(plan.update[0].labels()[labels::IS_LATEST_SNAPSHOT], "false");
}

/// Of which generation is what the bindings ask for: the latest snapshot tells.
#[test]
fn which_generation_is_in_force() {
    let snapshot = |name: &str, index: &str, decided: Option<i64>| {
        let mut snapshot = PolicySnapshot::new(name, Default::default());
        snapshot
            .labels_mut()
            .insert(labels::POLICY_INDEX.to_owned(), index.to_owned());
        snapshot.status = decided.map(|generation| PolicySnapshotStatus {
            observed_crp_generation: generation,
            ..Default::default()
        });
        Arc::new(snapshot)
    };
    for (what, snapshots, expected) in [
        ("nothing was decided", vec![], None),
        ("nor written", vec![snapshot("p-0", "0", None)], None),
        (
            "the newest is not decided for yet",
            vec![snapshot("p-0", "0", Some(3)), snapshot("p-1", "1", None)],
            Some(3),
        ),
        (
            "by number, not by name",
            vec![
                snapshot("p-10", "10", Some(12)),
                snapshot("p-9", "9", Some(11)),
            ],
            Some(12),
        ),
    ] {
        assert_eq!(decided_generation(&snapshots), expected, "{what}");
    }
}
