//! How a run begins (hub §3.3, §3.11).

use std::collections::BTreeMap;

use serde_json::{Value, json};
use windlass_api::conditions::RunCondition::Initialized;
use windlass_api::run::{DELETION_STAGE, TaskType};
use windlass_rollout::run::{Init, is_initialized, is_over};

use super::fleet::{Fleet, says};

fn clusters(fleet: &Fleet, stage: &str) -> Vec<String> {
    let clusters = &fleet.stage(stage).clusters;
    clusters.iter().map(|c| c.cluster_name.clone()).collect()
}

fn one_stage(fields: Value) -> Fleet {
    Fleet::new(&[("a", 2, fields)])
}

/// What has to be mended by whoever made the run: it has ended, and says what.
#[test]
fn what_ends_a_run_before_it_begins() {
    type Change = fn(&mut Fleet);
    let rows: &[(&str, Change, &str)] = &[
        (
            "placement missing or not External",
            |f| f.unfit = Some("placement p is not External".into()),
            "placement p is not External",
        ),
        (
            "unfit outweighs what has to be there first",
            |f| {
                f.unfit = Some("placement p is not External".into());
                f.waits = Some("p is being scheduled".into());
            },
            "placement p is not External",
        ),
        (
            "policy not fulfilled",
            |f| f.unfulfilled = Some("2 of 3 clusters".into()),
            "the placement's policy is not fulfilled (2 of 3 clusters); when it is, start another run",
        ),
        (
            "no strategy",
            |f| f.strategy = None,
            "there is no strategy s; make it, then start another run",
        ),
        (
            "no cluster at all",
            |f| {
                f.bindings.clear();
                f.selected.clear();
            },
            "the placement has no cluster",
        ),
        (
            "two stages of one name",
            |f| f.strategy(json!({"stages": [{"name": "a"}, {"name": "a"}]})),
            "stage a: the name is there twice",
        ),
        (
            "maxConcurrency that is a number as text",
            |f| f.strategy(json!({"stages": [{"name": "a", "maxConcurrency": "50"}]})),
            "stage a: maxConcurrency is neither a number nor a percentage",
        ),
        (
            "a type of after-stage task twice",
            |f| {
                let task = json!({"type": "Approval"});
                f.strategy(json!({"stages": [{"name": "a", "afterStageTasks": [task, task]}]}));
            },
            "stage a: afterStageTasks has a type twice",
        ),
        (
            "a wait of nothing",
            |f| {
                let task = json!({"type": "TimedWait", "waitTime": "0s"});
                f.strategy(json!({"stages": [{"name": "a", "afterStageTasks": [task]}]}));
            },
            "stage a: a TimedWait needs a waitTime of more than 0",
        ),
        (
            "a wait without a time",
            |f| {
                let task = json!({"type": "TimedWait"});
                f.strategy(json!({"stages": [{"name": "a", "afterStageTasks": [task]}]}));
            },
            "stage a: a TimedWait needs a waitTime of more than 0",
        ),
        (
            "a wait before a stage",
            |f| {
                let task = json!({"type": "TimedWait", "waitTime": "1m"});
                f.strategy(json!({"stages": [{"name": "a", "beforeStageTasks": [task]}]}));
            },
            "stage a: beforeStageTasks may have one Approval and nothing else",
        ),
        (
            "a selector that is none",
            |f| {
                let selector = json!({"matchExpressions": [{"key": "k", "operator": "Gt"}]});
                f.strategy(json!({"stages": [{"name": "a", "labelSelector": selector}]}));
            },
            "stage a: labelSelector: label requirement on \"k\" has operator \"Gt\"; use In, NotIn, Exists or \
             DoesNotExist",
        ),
        (
            "a cluster in two stages",
            |f| {
                let all = json!({});
                f.strategy(json!({"stages": [
                    {"name": "a", "labelSelector": all}, {"name": "b", "labelSelector": all},
                ]}));
            },
            "cluster a1 is in two stages, a and b",
        ),
        (
            "absent selects nothing",
            |f| f.strategy(json!({"stages": [{"name": "a"}]})),
            "2 cluster(s) of the placement are in no stage: a1, a2",
        ),
        (
            "a chosen cluster that is no member",
            |f| drop(f.members.remove("a2")),
            "1 cluster(s) of the placement are in no stage: a2",
        ),
        (
            "no label to sort by",
            |f| {
                let stage = json!({"name": "a", "labelSelector": {}, "sortingLabelKey": "rank"});
                f.strategy(json!({"stages": [stage]}));
            },
            "stage a: label rank of cluster a1 has to be a whole number, and it has none",
        ),
        (
            "a label to sort by that is no number",
            |f| {
                let stage = json!({"name": "a", "labelSelector": {}, "sortingLabelKey": "stage"});
                f.strategy(json!({"stages": [stage]}));
            },
            "stage a: label stage of cluster a1 has to be a whole number, and it has \"a\"",
        ),
        (
            "no snapshot at all",
            |f| f.snapshot = Err(Vec::new()),
            "the placement has no resource snapshot yet",
        ),
        (
            "an index that is no number",
            |f| {
                f.spec(&json!({"resourceSnapshotIndex": "one"}));
                f.snapshot = Err(vec![0, 1]);
            },
            "resourceSnapshotIndex \"one\" is no number from 0",
        ),
        (
            "a negative index",
            |f| {
                f.spec(&json!({"resourceSnapshotIndex": "-1"}));
                f.snapshot = Err(vec![0, 1]);
            },
            "resourceSnapshotIndex \"-1\" is no number from 0",
        ),
        (
            "an index that is not there",
            |f| {
                f.spec(&json!({"resourceSnapshotIndex": "7"}));
                f.snapshot = Err(vec![0, 1]);
            },
            "there is no complete resource snapshot of index 7; there are 0, 1",
        ),
        (
            "an index, and no snapshot",
            |f| {
                f.spec(&json!({"resourceSnapshotIndex": "7"}));
                f.snapshot = Err(Vec::new());
            },
            "there is no complete resource snapshot of index 7, nor of any other",
        ),
    ];
    for (name, change, message) in rows {
        let mut fleet = one_stage(json!({}));
        change(&mut fleet);
        let Init::Status(status) = fleet.initialize() else {
            panic!("{name}: it waits");
        };
        let list = status.conditions.as_ref();
        assert_eq!(
            says(list, Initialized),
            "False UpdateRunInitializedFailed",
            "{name}"
        );
        assert_eq!(&super::fleet::message(list, Initialized), message, "{name}");
        assert!(status.stages_status.is_none(), "{name}");
        fleet.run.status = Some(*status);
        assert!(is_over(&fleet.run) && !is_initialized(&fleet.run), "{name}");
        // It is never tried again, and nothing moves.
        let plan = fleet.plan();
        assert!(
            plan.moves.is_empty() && fleet.writes(&plan).is_empty(),
            "{name}"
        );
    }
}

#[test]
fn ten_clusters_in_no_stage_are_named() {
    let mut fleet = Fleet::new(&[("a", 12, json!({}))]);
    fleet.strategy(json!({"stages": []}));
    let status = fleet.initialize().into_status();
    assert_eq!(
        super::fleet::message(status.conditions.as_ref(), Initialized),
        "12 cluster(s) of the placement are in no stage: a1, a10, a11, a12, a2, a3, a4, a5, a6, a7, ..."
    );
}

/// What will be there in a moment is waited for, and is no failure (trap T3).
#[test]
fn what_a_run_waits_for() {
    let mut fleet = one_stage(json!({}));
    fleet.waits = Some("binding b-a1 follows an older policy".into());
    // Meanwhile nothing else is wrong with the run either.
    fleet.strategy = None;
    fleet.snapshot = Err(Vec::new());
    let Init::Waits(status) = fleet.initialize() else {
        panic!("it doesn't wait");
    };
    assert_eq!(
        says(status.conditions.as_ref(), Initialized),
        "Unknown UpdateRunInitializing"
    );
    fleet.run.status = Some(*status.clone());
    assert!(!is_over(&fleet.run) && !is_initialized(&fleet.run));
    assert!(fleet.writes(&fleet.plan()).is_empty());
    // The same again is no change.
    fleet.later(60);
    assert_eq!(fleet.initialize(), Init::Waits(status));
    let mut ready = one_stage(json!({}));
    ready.run.status = fleet.run.status;
    assert_eq!(
        ready.begun().says(Initialized),
        "True UpdateRunInitializedSuccessfully"
    );
}

#[test]
fn what_is_fixed() {
    let mut fleet = one_stage(json!({
        "beforeStageTasks": [{"type": "Approval"}],
        "afterStageTasks": [{"type": "TimedWait", "waitTime": "1h"}, {"type": "Approval"}],
    }));
    fleet.policy_index = "4".into();
    fleet.apply = serde_json::from_value(json!({"type": "ServerSideApply"})).unwrap();
    fleet.overrides.insert("a2".into(), vec!["o-1".into()]);
    fleet.join("gone", "none");
    fleet.unselect("gone");
    let fleet = fleet.begun();
    let status = fleet.status();
    assert_eq!(status.policy_snapshot_index_used.as_deref(), Some("4"));
    assert_eq!(status.policy_observed_cluster_count, Some(2));
    assert_eq!(status.resource_snapshot_index_used.as_deref(), Some("1"));
    assert_eq!(status.applied_strategy.as_ref(), Some(&fleet.apply));
    assert_eq!(status.strategy_snapshot, fleet.strategy);
    assert_eq!(clusters(&fleet, "a"), ["a1", "a2"]);
    let a2 = fleet.cluster("a2");
    let cluster_wide = a2.cluster_resource_override_snapshots.as_deref();
    assert_eq!(cluster_wide, Some(&["o-1".to_owned()][..]));
    assert_eq!(a2.resource_override_snapshots.as_ref().unwrap().len(), 1);
    let tasks = |list: &Option<Vec<windlass_api::run::TaskStatus>>| -> Vec<_> {
        let tasks = list.iter().flatten();
        tasks
            .map(|task| (task.type_, task.approval_request_name.clone()))
            .collect()
    };
    let stage = fleet.stage("a");
    assert_eq!(
        tasks(&stage.before_stage_task_status),
        [(TaskType::Approval, Some("r-before-a".to_owned()))]
    );
    assert_eq!(
        tasks(&stage.after_stage_task_status),
        [
            (TaskType::TimedWait, None),
            (TaskType::Approval, Some("r-after-a".to_owned()))
        ]
    );
    let removed = status.deletion_stage_status.as_ref().unwrap();
    assert_eq!(removed.stage_name, DELETION_STAGE);
    assert_eq!(removed.clusters.len(), 1);
    assert_eq!(removed.clusters[0].cluster_name, "gone");
    assert_eq!(fleet.message(Initialized), "2 cluster(s) in 1 stage(s)");
}

#[test]
fn the_order_in_a_stage() {
    let rank = |fleet: &mut Fleet, cluster: &str, rank: &str| {
        let labels = fleet.members.get_mut(cluster).unwrap();
        labels.insert("rank".into(), rank.into());
    };
    let mut fleet = Fleet::new(&[("a", 4, json!({"sortingLabelKey": "rank"}))]);
    for (cluster, value) in [("a1", "10"), ("a2", "9"), ("a3", "-3"), ("a4", "9")] {
        rank(&mut fleet, cluster, value);
    }
    // Only members of the stage need the label.
    fleet.join("other", "b");
    let strategy = fleet.strategy.as_mut().unwrap();
    let text = json!({"name": "b", "labelSelector": {"matchLabels": {"stage": "b"}}});
    strategy.stages.push(serde_json::from_value(text).unwrap());
    let fleet = fleet.begun();
    assert_eq!(clusters(&fleet, "a"), ["a3", "a2", "a4", "a1"]);
    assert_eq!(clusters(&fleet, "b"), ["other"]);
    let fleet = Fleet::new(&[("a", 11, json!({}))]).begun();
    assert_eq!(clusters(&fleet, "a")[..3], ["a1", "a10", "a11"]);
    let mut fleet = Fleet::new(&[("a", 1, json!({}))]);
    fleet.join("b1", "b");
    fleet.strategy(json!({"stages": [{"name": "all", "labelSelector": {}}, {"name": "none"}]}));
    let fleet = fleet.begun();
    assert_eq!(clusters(&fleet, "all"), ["a1", "b1"]);
    assert!(clusters(&fleet, "none").is_empty());
}

/// Clusters of which everything is as long as it may be, or as is usual.
fn large(size: usize, worst: bool, threshold: &Value) -> Fleet {
    let mut fleet = Fleet::empty();
    for number in 0..size {
        let cluster = if worst {
            format!("{number:04}-{}", "x".repeat(58))
        } else {
            format!("cluster-{number:04}")
        };
        fleet.join(&cluster, "a");
        if worst {
            let spec = &mut fleet.bindings[number].spec;
            let apply =
                json!({"type": "ServerSideApply", "serverSideApplyConfig": {"force": true}});
            spec.apply_strategy = Some(serde_json::from_value(apply).unwrap());
            spec.cluster_resource_override_snapshots = Some(vec!["o".repeat(60)]);
            fleet.overrides.insert(cluster, vec!["o".repeat(60)]);
        }
    }
    let mut stage = json!({"name": "a", "labelSelector": {}, "maxConcurrency": "100%"});
    if !threshold.is_null() {
        stage["failureThreshold"] = threshold.clone();
    }
    fleet.strategy(json!({"stages": [stage]}));
    fleet
}

/// A run that is let begin has room for the longest that may come of it.
#[test]
fn a_status_fits_into_one_object() {
    let back = json!({"maxFailures": "90%", "onExceeded": "Rollback"});
    let stop = json!({"maxFailures": "90%"});
    for (worst, threshold) in [
        (true, &back),
        (false, &back),
        (true, &stop),
        (false, &stop),
        (false, &Value::Null),
    ] {
        let begins = |size: usize| {
            let mut fleet = large(size, worst, threshold);
            fleet.run.status = Some(fleet.initialize().into_status());
            is_initialized(&fleet.run)
        };
        let (mut most, mut too_many) = (1, 5_000);
        assert!(begins(most) && !begins(too_many));
        while too_many - most > 1 {
            let half = usize::midpoint(most, too_many);
            if begins(half) {
                most = half;
            } else {
                too_many = half;
            }
        }
        let mut fleet = large(most, worst, threshold).begun();
        fleet.pass();
        let all: Vec<String> = fleet.selected.iter().cloned().collect();
        for cluster in &all {
            fleet.fails(cluster, &"\"no\"\n".repeat(100));
        }
        for number in 0..1000 {
            let cluster = format!("n{number:04}{}", "x".repeat(58));
            fleet.members.insert(cluster.clone(), BTreeMap::new());
            fleet.selected.insert(cluster);
        }
        fleet.pass();
        fleet.later(60);
        fleet.works(&all.iter().map(String::as_str).collect::<Vec<_>>());
        fleet.pass();
        assert!(is_over(&fleet.run));
        assert_eq!(fleet.status().joined_clusters.as_ref().unwrap().len(), 1000);
        let size = serde_json::to_vec(&fleet.run).unwrap().len();
        println!("{most} clusters (worst: {worst}, {threshold}): {size} bytes");
        assert!(size < 1_500_000, "{most} clusters: {size} bytes");
    }
}
