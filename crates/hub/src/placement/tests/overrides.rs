//! A change of an override rolls out like a change of a resource.

use std::slice::from_ref;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;
use windlass_api::binding::BindingStatus;
use windlass_api::conditions::Stage;
use windlass_api::member::{MemberCluster, MemberClusterSpec};
use windlass_api::overrides::{ClusterResourceOverrideSnapshot, ResourceOverrideSnapshot};
use windlass_api::placement::{
    ApplyStrategy, ApplyStrategyType, RolloutStrategy, RolloutStrategyType,
};
use windlass_api::{Condition, Time};
use windlass_cluster::ObjectKey;
use windlass_status::digest::Digest;

use super::bindings::{Fleet, is_quiet, snapshot};
use crate::delivery::refused;
use crate::overrides::Version;
use crate::overrides::leave::{given, must_wait};
use crate::overrides::resolve::Resolved;
use crate::placement::bindings::{behind, digest_of};
use crate::placement::snapshots::Groups;
use crate::render::Refusal;

/// A rule that sets a value on the clusters whose label `name` is one of these.
pub(super) fn rule(clusters: &[&str], value: &str) -> serde_json::Value {
    let expression = json!({"key": "name", "operator": "In", "values": clusters});
    json!({"clusterSelector": {"clusterSelectorTerms": [{"labelSelector": {"matchExpressions": [expression]}}]},
        "jsonPatchOverrides": [{"op": "add", "path": "/data/a", "value": value}]})
}

pub(super) fn cro(name: &str, rules: &[serde_json::Value]) -> Version {
    let selector = json!({"group": "", "version": "v1", "kind": "Namespace", "name": "app"});
    let snapshot: ClusterResourceOverrideSnapshot = serde_json::from_value(json!({
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1", "kind": "ClusterResourceOverrideSnapshot",
        "metadata": {"name": name}, "spec": {"overrideHash": "", "overrideSpec": {
            "clusterResourceSelectors": [selector], "policy": {"overrideRules": rules}}}}))
    .unwrap();
    Version::Cluster(Arc::new(snapshot))
}

fn ro(namespace: &str, name: &str, rules: &[serde_json::Value]) -> Version {
    let selector = json!({"group": "", "version": "v1", "kind": "ConfigMap", "name": "c"});
    let snapshot: ResourceOverrideSnapshot = serde_json::from_value(json!({
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1", "kind": "ResourceOverrideSnapshot",
        "metadata": {"name": name, "namespace": namespace}, "spec": {"overrideHash": "", "overrideSpec": {
            "resourceSelectors": [selector], "policy": {"overrideRules": rules}}}}))
    .unwrap();
    Version::Namespaced(Arc::new(snapshot))
}

/// Clusters a, b and c, each with its name as a label.
pub(super) fn resolved(current: &[Version], named: &[Version]) -> Resolved {
    resolved_on(current, named, "stable")
}

/// The clusters with a further label `track`.
fn resolved_on(current: &[Version], named: &[Version], track: &str) -> Resolved {
    let clusters = ["a", "b", "c"].map(|name| {
        let mut cluster = MemberCluster::new(name, MemberClusterSpec::default());
        let labels = [("name", name), ("track", track)];
        cluster.metadata.labels = Some(
            labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        );
        Arc::new(cluster)
    });
    Resolved::new(
        ObjectKey::cluster("p"),
        current.to_vec(),
        named.to_vec(),
        clusters.to_vec(),
        Vec::new(),
    )
}

/// What each binding names.
pub(super) fn named(fleet: &Fleet) -> Vec<String> {
    let lists = fleet.live.values().map(|binding| {
        let spec = &binding.spec;
        let of_cluster = spec.cluster_resource_override_snapshots.clone();
        let of_namespace = spec.resource_override_snapshots.iter().flatten();
        let of_namespace = of_namespace.map(|named| format!("{}/{}", named.namespace, named.name));
        let all: Vec<String> = of_cluster
            .into_iter()
            .flatten()
            .chain(of_namespace)
            .collect();
        format!("{}: {}", spec.target_cluster, all.join(" "))
    });
    lists.collect()
}

pub(super) fn rolling() -> Fleet {
    Fleet::new(RolloutStrategyType::RollingUpdate)
}

#[test]
fn a_binding_names_what_matches_its_cluster_sorted() {
    let mut fleet = rolling();
    fleet.overrides = resolved(
        &[
            ro("z", "y-0", &[rule(&["a", "b"], "1")]),
            ro("app", "y-0", &[rule(&["a"], "1")]),
            cro("second-3", &[rule(&["a", "c"], "1")]),
            cro("first-12", &[rule(&["a"], "1"), rule(&["x"], "2")]),
            cro("nowhere-0", &[rule(&["x"], "1")]),
        ],
        &[],
    );
    let plan = fleet.carry_out();
    assert_eq!(
        plan.create.len(),
        3,
        "named as they are created: no further write"
    );
    assert_eq!(
        named(&fleet),
        [
            "a: first-12 second-3 app/y-0 z/y-0",
            "b: z/y-0",
            "c: second-3"
        ]
    );
    assert!(is_quiet(&fleet.plan()));
}

/// The last word does not change hands because one of them was edited so often.
#[test]
fn precedence_is_by_the_names_of_overrides() {
    let everywhere = [rule(&["a", "b", "c"], "1")];
    // Versions of the overrides a, a-1 and a-1-0, in any order; as the bindings name them.
    for (of_a, of_second, of_third) in [(0, 0, 0), (1, 0, 0), (3, 2, 1), (12, 0, 9), (0, 10, 10)] {
        let names = [
            format!("a-{of_a}"),
            format!("a-1-{of_second}"),
            format!("a-1-0-{of_third}"),
        ];
        let [first, second, third] = &names;
        let mut fleet = rolling();
        fleet.overrides = resolved(
            &[
                ro("n", third, &everywhere),
                cro(second, &everywhere),
                ro("n", first, &everywhere),
                cro(third, &everywhere),
                ro("n", second, &everywhere),
                cro(first, &everywhere),
            ],
            &[],
        );
        fleet.carry_out();
        let expected = format!("a: {first} {second} {third} n/{first} n/{second} n/{third}");
        assert_eq!(named(&fleet)[0], expected);
    }
}

#[test]
fn a_change_keeps_to_the_budget_and_leaves_others_alone() {
    let mut fleet = rolling();
    fleet.carry_out();
    fleet.report(&["a", "b", "c"]);
    let v0 = cro("o-0", &[rule(&["a", "b"], "1"), rule(&["c"], "9")]);
    fleet.overrides = resolved(from_ref(&v0), &[]);
    let plan = fleet.carry_out();
    assert_eq!(
        (plan.replace.len(), plan.held.len()),
        (1, 2),
        "maxUnavailable is 1"
    );
    assert!(is_quiet(&fleet.plan()), "it waits");
    for ready in ["a", "b"] {
        fleet.report(&[ready]);
        assert_eq!(fleet.carry_out().replace.len(), 1);
    }
    fleet.report(&["c"]);
    assert_eq!(named(&fleet), ["a: o-0", "b: o-0", "c: o-0"]);
    // The next version changes what c gets, and nothing elsewhere: those get its name at once, and have
    // nothing to do.
    let digest = |fleet: &Fleet, cluster: &str| {
        let none = Groups::default();
        digest_of(&fleet.live[cluster], &none, &fleet.latest, &fleet.overrides)
    };
    let before = ["a", "b", "c"].map(|cluster| digest(&fleet, cluster));
    let v1 = cro("o-1", &[rule(&["a", "b"], "1"), rule(&["c"], "10")]);
    fleet.overrides = resolved(from_ref(&v1), &[v0]);
    assert_eq!(fleet.carry_out().replace.len(), 3);
    assert_eq!(named(&fleet), ["a: o-1", "b: o-1", "c: o-1"]);
    let after = ["a", "b", "c"].map(|cluster| digest(&fleet, cluster));
    assert_eq!(before[..2], after[..2]);
    assert_ne!(before[2], after[2]);
    // A version for other clusters only is named nowhere.
    fleet.report(&["a", "b", "c"]);
    fleet.overrides = resolved(&[v1.clone(), cro("p-0", &[rule(&["x"], "1")])], &[v1]);
    assert!(is_quiet(&fleet.plan()));
}

#[test]
fn without_the_override_clusters_go_back_one_by_one() {
    let mut fleet = rolling();
    let version = ro("app", "o-0", &[rule(&["a", "b", "c"], "1")]);
    fleet.overrides = resolved(from_ref(&version), &[]);
    fleet.carry_out();
    fleet.report(&["a", "b", "c"]);
    fleet.overrides = resolved(&[], &[version]);
    assert_eq!(fleet.carry_out().replace.len(), 1);
    assert_eq!(named(&fleet), ["a: ", "b: app/o-0", "c: app/o-0"]);
    fleet.report(&["a"]);
    fleet.carry_out();
    assert_eq!(named(&fleet), ["a: ", "b: ", "c: app/o-0"]);
}

/// The override can't be worked in on the cluster, whose objects were available before.
fn refuse(fleet: &mut Fleet, cluster: &str) {
    refuse_with(fleet, cluster, &[(Stage::Available, "True")]);
}

/// The override can't be worked in on the cluster; what else its status says.
fn refuse_with(fleet: &mut Fleet, cluster: &str, left: &[(Stage, &str)]) {
    let none = Groups::default();
    let digest = digest_of(&fleet.live[cluster], &none, &fleet.latest, &fleet.overrides);
    let binding = fleet.live.get_mut(cluster).unwrap();
    let condition = |stage: Stage, status: &str| Condition {
        type_: stage.to_string(),
        status: status.to_owned(),
        reason: "R".to_owned(),
        message: String::new(),
        observed_generation: binding.metadata.generation,
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
    };
    binding.status = Some(BindingStatus {
        conditions: Some(
            [(Stage::Overridden, "False")]
                .iter()
                .chain(left)
                .map(|(stage, status)| condition(*stage, status))
                .collect(),
        ),
        observed_digest: digest.map(|digest: Digest| digest.to_string()),
        ..Default::default()
    });
}

#[test]
fn a_cluster_that_can_not_have_it_holds_up_no_other() {
    let mut fleet = rolling();
    fleet.carry_out();
    fleet.report(&["a", "b", "c"]);
    fleet.overrides = resolved(&[cro("o-0", &[rule(&["a", "b", "c"], "bad on a")])], &[]);
    fleet.carry_out();
    refuse(&mut fleet, "a");
    for next in ["b", "c"] {
        assert_eq!(fleet.carry_out().replace.len(), 1, "{next}");
        fleet.report(&[next]);
    }
    assert!(is_quiet(&fleet.plan()));
    // All refuse the next one; once it is mended, they still go one by one: all of them serve.
    let v1 = cro("o-1", &[rule(&["a", "b", "c"], "bad")]);
    fleet.overrides = resolved(
        from_ref(&v1),
        &[cro("o-0", &[rule(&["a", "b", "c"], "bad on a")])],
    );
    for next in ["a", "b", "c"] {
        assert_eq!(fleet.carry_out().replace.len(), 1, "{next}");
        refuse(&mut fleet, next);
    }
    fleet.overrides = resolved(&[cro("o-2", &[rule(&["a", "b", "c"], "good")])], &[v1]);
    assert_eq!(fleet.carry_out().replace.len(), 1);
    assert!(is_quiet(&fleet.plan()));
}

/// The override is wrong from the beginning: the cluster never had anything that could be available.
#[test]
fn a_cluster_that_never_had_it_holds_up_no_other() {
    for reports_diff in [false, true] {
        let mut fleet = rolling();
        if reports_diff {
            let apply = json!({"type": "ReportDiff"});
            fleet.strategy.apply_strategy = Some(serde_json::from_value(apply).unwrap());
        }
        let v0 = cro("o-0", &[rule(&["a"], "bad")]);
        fleet.overrides = resolved(from_ref(&v0), &[]);
        fleet.carry_out();
        fleet.report(&["b", "c"]);
        refuse_with(&mut fleet, "a", &[]);
        fleet.latest = snapshot(1);
        // It is given another chance, and refuses again.
        fleet.carry_out();
        refuse_with(&mut fleet, "a", &[]);
        for next in ["b", "c"] {
            assert_eq!(fleet.carry_out().replace.len(), 1, "{next} {reports_diff}");
            fleet.report(&[next]);
        }
        assert!(is_quiet(&fleet.plan()), "{reports_diff}");
        assert!(
            fleet.shown().iter().all(|b| b.ends_with("p-1-snapshot")),
            "{:?}",
            fleet.shown()
        );
    }
}

/// What the cluster is to get can't be made: what delivery says of that.
pub(super) fn say_refused(fleet: &mut Fleet, cluster: &str, refusal: &Refusal) {
    let none = Groups::default();
    let digest = digest_of(&fleet.live[cluster], &none, &fleet.latest, &fleet.overrides).unwrap();
    let binding = fleet.live.get_mut(cluster).unwrap();
    let name = fleet.latest.name.clone();
    let now = Timestamp::UNIX_EPOCH;
    binding.status = Some(refused::status(binding, digest, &name, refusal, now));
}

fn breaks(fleet: &mut Fleet, cluster: &str) {
    fleet.report(&[cluster]);
    let status = fleet.live.get_mut(cluster).unwrap().status.as_mut();
    let applied = &mut status.unwrap().conditions.as_mut().unwrap()[0];
    applied.status = "False".to_owned();
    applied.reason = "NotAllWorkHaveBeenApplied".to_owned();
}

/// What can't be placed at all changes nothing on the cluster that is the first to get it: what it has serves
/// on, and counts. But it is of the whole version, and may be placed after all by a hub with other flags.
#[test]
fn content_that_can_not_be_placed_goes_no_further_and_takes_nothing_away() {
    let bad = Refusal::Content("envelope e: no".to_owned());
    let mut fleet = rolling();
    fleet.carry_out();
    fleet.report(&["a", "b", "c"]);
    fleet.latest = snapshot(1);
    assert_eq!(fleet.carry_out().replace.len(), 1);
    say_refused(&mut fleet, "a", &bad);
    let plan = fleet.plan();
    assert!(
        is_quiet(&plan),
        "all would get it at once when it may be placed"
    );
    assert_eq!(plan.held.len(), 2);

    // Another one goes down, and there is a next version: a and c serve, and both are needed.
    breaks(&mut fleet, "b");
    fleet.latest = snapshot(2);
    fleet.carry_out();
    assert_eq!(
        fleet.shown(),
        [
            "a Bound p-1-snapshot",
            "b Bound p-2-snapshot",
            "c Bound p-0-snapshot"
        ]
    );
    for (ready, next) in [("b", "a"), ("a", "c")] {
        fleet.report(&[ready]);
        let plan = fleet.carry_out();
        let moved: Vec<_> = plan
            .replace
            .iter()
            .map(|b| &b.spec.target_cluster)
            .collect();
        assert_eq!(moved, [next]);
    }
}

/// Clusters on which a version came to nothing don't become free by refusing the next one: or else each
/// version would take down as many more as the strategy allows.
#[test]
fn a_cluster_that_was_disturbed_costs_its_turn_though_it_refuses() {
    let bad = Refusal::Override("cluster a: no such path".to_owned());
    let mut fleet = rolling();
    fleet.carry_out();
    fleet.report(&["a", "b", "c"]);
    fleet.latest = snapshot(1);
    fleet.carry_out();
    breaks(&mut fleet, "a");
    fleet.latest = snapshot(2);
    fleet.carry_out();
    assert_eq!(fleet.shown()[0], "a Bound p-2-snapshot");
    say_refused(&mut fleet, "a", &bad);
    assert!(is_quiet(&fleet.plan()), "b and c are all that serve");

    // The same where nothing was heard of what was sent in between.
    let mut fleet = rolling();
    fleet.carry_out();
    fleet.report(&["a", "b", "c"]);
    for version in [1, 2] {
        fleet.latest = snapshot(version);
        fleet.carry_out();
    }
    assert_eq!(fleet.shown()[0], "a Bound p-2-snapshot");
    say_refused(&mut fleet, "a", &bad);
    assert!(is_quiet(&fleet.plan()), "nobody knows what runs on a");
}

/// A rule that writes the cluster's track on all of them.
fn track_rule() -> serde_json::Value {
    rule(&["a", "b", "c"], "${MEMBER-CLUSTER-LABEL-KEY-track}")
}

/// The clusters that delivery brings up to what their labels say now.
fn delivered(fleet: &Fleet) -> Vec<&str> {
    let would = |binding| fleet.overrides.effect(binding).unwrap();
    let live = fleet.live.values();
    live.filter(|binding| !must_wait(binding, would(&binding.spec)))
        .map(|binding| &*binding.spec.target_cluster)
        .collect()
}

#[test]
fn labels_that_change_together_reach_clusters_one_by_one() {
    let mut fleet = rolling();
    let version = cro("o-0", &[track_rule()]);
    fleet.overrides = resolved(from_ref(&version), &[]);
    fleet.carry_out();
    fleet.report(&["a", "b", "c"]);
    assert!(is_quiet(&fleet.plan()));
    assert_eq!(delivered(&fleet), ["a", "b", "c"]);
    fleet.overrides = resolved_on(from_ref(&version), &[], "canary");
    assert_eq!(
        delivered(&fleet),
        [""; 0],
        "before the placement was looked at"
    );
    let mut there = Vec::new();
    for next in ["a", "b", "c"] {
        let plan = fleet.carry_out();
        assert_eq!(plan.replace.len(), 1, "maxUnavailable is 1");
        there.push(next);
        assert_eq!(delivered(&fleet), there);
        assert!(is_quiet(&fleet.plan()), "{next} is waited for");
        fleet.report(&[next]);
    }
    assert!(is_quiet(&fleet.plan()));
    // Going back before it arrived anywhere moves nothing.
    fleet.overrides = resolved(from_ref(&version), &[]);
    assert_eq!(delivered(&fleet), [""; 0]);
    fleet.overrides = resolved_on(from_ref(&version), &[], "canary");
    assert_eq!(delivered(&fleet), ["a", "b", "c"]);
    assert!(is_quiet(&fleet.plan()));
}

#[test]
fn a_label_that_nothing_looks_at_changes_nothing() {
    let mut fleet = rolling();
    let version = cro("o-0", &[rule(&["a", "b", "c"], "1")]);
    fleet.overrides = resolved(from_ref(&version), &[]);
    fleet.carry_out();
    fleet.report(&["a", "b", "c"]);
    fleet.overrides = resolved_on(from_ref(&version), &[], "canary");
    assert!(is_quiet(&fleet.plan()));
    assert_eq!(delivered(&fleet), ["a", "b", "c"]);
}

/// A binding of an earlier release has no note: it gets one, and nothing else happens.
#[test]
fn what_runs_without_leave_is_given_it() {
    let mut fleet = rolling();
    let version = cro("o-0", &[track_rule()]);
    fleet.overrides = resolved(from_ref(&version), &[]);
    fleet.carry_out();
    fleet.report(&["a", "b", "c"]);
    let statuses = |fleet: &Fleet| -> Vec<_> {
        let live = fleet.live.values();
        live.map(|b| digest_of(b, &Groups::default(), &fleet.latest, &fleet.overrides))
            .collect()
    };
    let before = statuses(&fleet);
    for binding in fleet.live.values_mut() {
        binding.metadata.annotations = None;
    }
    assert_eq!(fleet.carry_out().replace.len(), 3);
    assert_eq!(statuses(&fleet), before);
    assert!(is_quiet(&fleet.plan()));
}

/// Whoever rolls out there decides when; labels count as they are.
#[test]
fn under_external_labels_count_at_once() {
    let mut fleet = rolling();
    let version = cro("o-0", &[track_rule()]);
    fleet.overrides = resolved(from_ref(&version), &[]);
    fleet.carry_out();
    fleet.strategy.type_ = Some(RolloutStrategyType::External);
    fleet.carry_out();
    assert!(fleet.live.values().all(|binding| given(binding).is_none()));
    fleet.overrides = resolved_on(from_ref(&version), &[], "canary");
    assert_eq!(delivered(&fleet), ["a", "b", "c"]);
    assert!(is_quiet(&fleet.plan()));
}

/// While nothing is decided for a placement, its status tells which clusters have yet to get what a rollout
/// would bring them.
#[test]
fn who_is_behind_on_the_latest_snapshot() {
    let mut fleet = rolling();
    fleet.overrides = resolved(&[cro("o-0", &[rule(&["a", "b"], "1")])], &[]);
    fleet.carry_out();
    let report_diff = RolloutStrategy {
        apply_strategy: Some(ApplyStrategy {
            type_: Some(ApplyStrategyType::ReportDiff),
            ..Default::default()
        }),
        ..fleet.strategy.clone()
    };
    let old = fleet.overrides.clone();
    let new = resolved(
        &[cro("o-1", &[rule(&["a"], "2")])],
        &[cro("o-0", &[rule(&["a", "b"], "1")])],
    );
    for (what, index, overrides, strategy, expected) in [
        ("all as wanted", 0, &old, Some(&fleet.strategy), ""),
        ("a new override", 0, &new, Some(&fleet.strategy), "a b"),
        ("another way to apply", 0, &old, Some(&report_diff), "a b c"),
        ("which is not known", 0, &old, None, ""),
        (
            "a new snapshot, which tells by itself",
            1,
            &new,
            Some(&fleet.strategy),
            "",
        ),
    ] {
        let existing: Vec<_> = fleet.live.values().cloned().map(Arc::new).collect();
        let behind = behind(&existing, &snapshot(index), overrides, strategy.map(Some));
        let clusters: Vec<&str> = existing
            .iter()
            .filter(|binding| behind.contains(&binding.name_any()))
            .map(|binding| binding.spec.target_cluster.as_str())
            .collect();
        assert_eq!(clusters.join(" "), expected, "{what}");
    }
}
