//! Clusters that come and go while a run is under way (hub §3.4, trap T14).

use serde_json::json;
use windlass_api::conditions::RunCondition::{Skipped, Succeeded};
use windlass_rollout::run::is_over;
use windlass_status::ready::Readiness;

use super::fleet::{Fleet, NEW, OLD, says};

type Change = fn(&mut Fleet);

fn leaves(fleet: &mut Fleet, cluster: &str) {
    fleet.members.remove(cluster);
    fleet.selected.remove(cluster);
    fleet.bindings.retain(|b| b.spec.target_cluster != cluster);
}

fn skipped(fleet: &Fleet, cluster: &str) -> String {
    says(fleet.cluster(cluster).conditions.as_ref(), Skipped)
}

/// A cluster that leaves is skipped, at whatever point, and holds nobody up.
#[test]
fn a_cluster_that_leaves() {
    let rows: &[(&str, Change, &str, &str)] = &[
        (
            "leaves before it is begun with",
            |f| leaves(f, "a2"),
            "a2",
            "True ClusterLeft",
        ),
        (
            "leaves under way",
            |f| leaves(f, "a1"),
            "a1",
            "True ClusterLeft",
        ),
        (
            "is gone, its binding isn't yet",
            |f| drop(f.members.remove("a1")),
            "a1",
            "True ClusterLeft",
        ),
        (
            "is no longer chosen, before it is begun with",
            |f| f.unselect("a2"),
            "a2",
            "True ClusterNotSelected",
        ),
        (
            "is no longer chosen, under way",
            |f| f.unselect("a1"),
            "a1",
            "True ClusterNotSelected",
        ),
        (
            "is no longer chosen, in a later stage",
            |f| f.unselect("b1"),
            "b1",
            "True ClusterNotSelected",
        ),
    ];
    for (name, change, cluster, expected) in rows {
        let mut fleet = Fleet::new(&[("a", 3, json!({})), ("b", 2, json!({}))]).begun();
        fleet.pass();
        change(&mut fleet);
        fleet.run_on();
        assert_eq!(&skipped(&fleet, cluster), expected, "{name}");
        assert_eq!(fleet.says(Succeeded), "True UpdateRunSucceeded", "{name}");
        assert_eq!(
            fleet.message(Succeeded),
            "4 cluster(s) updated, 1 skipped",
            "{name}"
        );
        assert!(fleet.status().joined_clusters.is_none(), "{name}");
        let list = fleet.cluster(cluster).conditions.as_ref();
        assert_eq!(says(list, Succeeded), "none", "{name}");
    }
}

#[test]
fn a_stage_whose_clusters_all_leave_is_done() {
    let mut fleet = Fleet::new(&[("a", 2, json!({})), ("b", 1, json!({}))]).begun();
    fleet.pass();
    leaves(&mut fleet, "a1");
    leaves(&mut fleet, "a2");
    assert_eq!(fleet.pass(), ["b-b1"]);
}

/// One that was done stays done, whatever becomes of it.
#[test]
fn a_cluster_that_leaves_when_it_is_done() {
    let mut fleet = Fleet::new(&[("a", 2, json!({}))]).begun();
    fleet.pass();
    fleet.works(&["a1"]);
    fleet.pass();
    leaves(&mut fleet, "a1");
    fleet.run_on();
    assert_eq!(fleet.message(Succeeded), "2 cluster(s) updated");
}

#[test]
fn a_cluster_that_joins_waits_for_the_next_run() {
    let mut fleet = Fleet::new(&[("a", 2, json!({}))]).begun();
    fleet.pass();
    fleet.join("a9", "a");
    fleet.join("a0", "nowhere");
    fleet.run_on();
    let joined = fleet.status().joined_clusters.clone().unwrap();
    assert_eq!(joined, ["a0", "a9"]);
    assert_eq!(
        fleet.message(Succeeded),
        "2 cluster(s) updated, 2 joined since and wait for the next run"
    );
    assert_eq!(fleet.asking(OLD), ["a9", "a0"]);
    // One that goes again is not told of.
    let mut fleet = Fleet::new(&[("a", 2, json!({}))]).begun();
    fleet.join("a9", "a");
    fleet.pass();
    assert!(fleet.status().joined_clusters.is_some());
    fleet.unselect("a9");
    fleet.pass();
    assert!(fleet.status().joined_clusters.is_none());
}

/// One that was skipped and is chosen again is one that has joined.
#[test]
fn a_cluster_that_comes_back() {
    let mut fleet = Fleet::new(&[("a", 2, json!({}))]).begun();
    fleet.pass();
    leaves(&mut fleet, "a1");
    fleet.pass();
    fleet.join("a1", "a");
    fleet.run_on();
    assert_eq!(skipped(&fleet, "a1"), "True ClusterLeft");
    assert_eq!(
        fleet.status().joined_clusters.as_deref(),
        Some(&["a1".to_owned()][..])
    );
    assert_eq!(fleet.asking(NEW), ["a2"]);
    // Back before the run came to it, it takes part.
    let mut fleet = Fleet::new(&[("a", 1, json!({})), ("b", 1, json!({}))]).begun();
    fleet.pass();
    fleet.unselect("b1");
    fleet.pass();
    fleet.selected.insert("b1".into());
    fleet.binding("b1").spec.state = windlass_api::binding::BindingState::Bound;
    fleet.run_on();
    assert_eq!(fleet.message(Succeeded), "2 cluster(s) updated");
}

/// What ends a run that asked for it, as upstream's runs do; others go on.
#[test]
fn changes_under_membership_changes_fail() {
    let rows: &[(&str, Change, Option<&str>)] = &[
        ("nothing", |_| {}, None),
        (
            "another policy",
            |f| f.policy_index = "5".into(),
            Some(
                "the placement's policy has changed: the run was initialized with policy snapshot 0, the \
                 latest is 5",
            ),
        ),
        (
            "another apply strategy",
            |f| f.apply = serde_json::from_value(json!({"type": "ServerSideApply"})).unwrap(),
            Some("the placement's apply strategy has changed since the run was initialized"),
        ),
        (
            "the same apply strategy, spelled out",
            |f| f.apply = serde_json::from_value(json!({"type": "ClientSideApply"})).unwrap(),
            None,
        ),
        (
            "a cluster leaves",
            |f| leaves(f, "a2"),
            Some("the clusters of stage a have changed since the run was initialized"),
        ),
        (
            "a cluster dies",
            |f| drop(f.members.remove("a2")),
            Some("1 cluster(s) of the placement are in no stage: a2"),
        ),
        (
            "a cluster is no longer chosen",
            |f| f.unselect("b1"),
            Some("the clusters of stage b have changed since the run was initialized"),
        ),
        (
            "a cluster joins",
            |f| f.join("b2", "b"),
            Some("the clusters of stage b have changed since the run was initialized"),
        ),
        (
            "a cluster joins that is in no stage",
            |f| f.join("x", "x"),
            Some("1 cluster(s) of the placement are in no stage: x"),
        ),
        (
            "a cluster is relabelled into another stage",
            |f| {
                let labels = f.members.get_mut("a2").unwrap();
                labels.insert("stage".into(), "b".into());
            },
            Some("the clusters of stage a have changed since the run was initialized"),
        ),
        (
            "the order in a stage changes",
            |f| {
                let labels = f.members.get_mut("c1").unwrap();
                labels.insert("rank".into(), "9".into());
            },
            Some("the clusters of stage c have changed since the run was initialized"),
        ),
        (
            "a label to sort by is no number any more",
            |f| drop(f.members.get_mut("c1").unwrap().remove("rank")),
            Some("stage c: label rank of cluster c1 has to be a whole number, and it has none"),
        ),
        ("an edit of the strategy", |f| f.strategy = None, None),
        (
            "another override",
            |f| drop(f.overrides.insert("a1".into(), vec!["o".into()])),
            None,
        ),
        (
            "a cluster that isn't chosen comes",
            |f| {
                f.join("x", "x");
                f.selected.remove("x");
                f.bindings.pop();
            },
            None,
        ),
    ];
    for (name, change, message) in rows {
        for strict in [true, false] {
            let stages = [
                ("a", 2, json!({})),
                ("b", 1, json!({})),
                ("c", 2, json!({"sortingLabelKey": "rank"})),
            ];
            let mut fleet = Fleet::new(&stages);
            if strict {
                fleet.spec(&json!({"membershipChanges": "Fail"}));
            }
            for labels in fleet.members.values_mut() {
                labels.insert("rank".into(), "1".into());
            }
            let mut fleet = fleet.begun();
            fleet.pass();
            change(&mut fleet);
            fleet.works(&["a1"]);
            let moved = fleet.pass();
            match message.filter(|_| strict) {
                Some(message) => {
                    assert_eq!(&fleet.message(Succeeded), message, "{name}");
                    assert!(moved.is_empty(), "{name}");
                }
                None => {
                    assert!(!is_over(&fleet.run), "{name}");
                    fleet.run_on();
                    assert_eq!(fleet.says(Succeeded), "True UpdateRunSucceeded", "{name}");
                }
            }
        }
    }
}

#[test]
fn a_run_that_was_not_begun_does_not_mind_changes() {
    let mut fleet = Fleet::new(&[("a", 1, json!({}))]);
    fleet.spec(&json!({"membershipChanges": "Fail", "state": "Initialize"}));
    let mut fleet = fleet.begun();
    fleet.policy_index = "3".into();
    assert!(fleet.pass().is_empty());
    assert!(!is_over(&fleet.run));
}

/// In the look at a new policy a binding does not say yet that it is not wanted.
#[test]
fn what_a_new_policy_leaves_out_is_removed() {
    let mut fleet = Fleet::new(&[("a", 1, json!({}))]);
    fleet.join("x", "none");
    fleet.binding("x").spec.resource_snapshot_name = "p-0-snapshot".into();
    fleet.selected.remove("x");
    let mut fleet = fleet.begun();
    fleet.pass();
    fleet.works(&["a1"]);
    assert_eq!(fleet.pass(), ["-b-x"]);
}

/// A cluster that is done and loses what it got waits for the next run, and is told of.
#[test]
fn a_done_cluster_that_is_evicted_has_joined_anew() {
    let mut fleet = Fleet::new(&[("a", 2, json!({}))]).begun();
    fleet.pass();
    fleet.works(&["a1"]);
    fleet.pass();
    fleet.bindings.retain(|b| b.spec.target_cluster != "a1");
    fleet.bind("a1", "");
    fleet.pass();
    assert_eq!(fleet.status().joined_clusters, Some(vec!["a1".to_owned()]));
}

/// While it can't be told which clusters the placement chooses, one without a binding is waited for, nothing is
/// removed, and a strict run goes on.
#[test]
fn nothing_is_concluded_from_what_is_not_known() {
    let mut fleet = Fleet::new(&[("a", 2, json!({"maxConcurrency": 2}))]);
    fleet.spec(&json!({"membershipChanges": "Fail"}));
    fleet.join("x", "none");
    fleet.unselect("x");
    let mut fleet = fleet.begun();
    fleet.is_settled = false;
    let known = std::mem::take(&mut fleet.selected);
    fleet.bindings.retain(|b| b.spec.target_cluster != "a2");
    assert_eq!(fleet.pass(), ["b-a1"]);
    fleet.works(&["a1"]);
    assert!(fleet.pass().is_empty());
    fleet.is_settled = true;
    fleet.selected = known;
    fleet.bind("a2", "");
    assert_eq!(fleet.pass(), ["b-a2"]);
    fleet.works(&["a2"]);
    assert_eq!(fleet.pass(), ["-b-x"]);
}

/// A hub that has just started is not connected to its members yet: that says nothing of them.
#[test]
fn a_cluster_that_is_not_heard_of_yet_is_not_judged() {
    let threshold = json!({"failureThreshold": {"maxFailures": 0}});
    let mut fleet = Fleet::new(&[("a", 1, threshold)]).begun();
    fleet.pass();
    fleet.binding("a1").unheard = true;
    fleet.binding("a1").readiness = Readiness::InProgress;
    let before = fleet.status().clone();
    fleet.later(290);
    fleet.pass();
    assert_eq!(fleet.status(), &before);
    fleet.works(&["a1"]);
    fleet.binding("a1").unheard = false;
    fleet.pass();
    assert_eq!(fleet.says(Succeeded), "True UpdateRunSucceeded");
}
