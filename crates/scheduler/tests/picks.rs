//! Which clusters each policy keeps, adds and drops.

mod common;

use common::{Cluster, binding, bound, cluster, names, obsolete, policy, run, scored};
use serde_json::{Value, json};
use windlass_api::binding::BindingState::{Bound, Scheduled, Unscheduled};
use windlass_api::placement::PlacementPolicy;
use windlass_scheduler::{ExistingBinding, MAX_DECISIONS, MAX_UNSELECTED};

fn all() -> PlacementPolicy {
    policy(json!({"tolerations": [], "affinity": {"clusterAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"clusterSelectorTerms":
            [{"labelSelector": {"matchLabels": {"in": "yes"}}}]}}}}))
}

fn pick_n(number: u32) -> PlacementPolicy {
    policy(json!({"placementType": "PickN", "numberOfClusters": number}))
}

fn fixed(names: &[&str]) -> PlacementPolicy {
    policy(json!({"placementType": "PickFixed", "clusterNames": names}))
}

fn inside(name: &str) -> Cluster {
    cluster(name).label("in", "yes")
}

#[test]
fn pick_all_keeps_what_this_policy_selected() {
    let fleet = [
        cluster("labels-changed"),
        inside("tainted").taint("k", "v"),
        inside("silent").silent(),
        inside("leaving").leaving(),
        inside("new"),
        inside("new-tainted").taint("k", "v"),
        inside("new-silent").silent(),
    ];
    let existing = ["labels-changed", "tainted", "silent", "leaving", "gone"].map(bound);
    let result = run(&all(), &fleet, &existing);
    assert_eq!(
        names(&result.selected),
        ["labels-changed", "new", "silent", "tainted"]
    );
    assert_eq!(
        names(&result.unselected),
        ["leaving", "new-silent", "new-tainted"]
    );
}

#[test]
fn pick_all_looks_again_at_what_an_earlier_policy_selected() {
    let fleet = [
        inside("fits"),
        cluster("labels-changed"),
        inside("tainted").taint("k", "v"),
        inside("silent").silent(),
        inside("silent-and-tainted").silent().taint("k", "v"),
        inside("leaving").leaving(),
    ];
    let existing = [
        obsolete("fits"),
        obsolete("labels-changed"),
        obsolete("tainted"),
        obsolete("silent"),
        obsolete("silent-and-tainted"),
        obsolete("leaving"),
    ];
    assert_eq!(
        names(&run(&all(), &fleet, &existing).selected),
        ["fits", "silent"]
    );
}

#[test]
fn unscheduled_and_deleting_bindings_select_nothing() {
    let fleet = [cluster("unscheduled"), cluster("deleting")];
    let mut deleting = bound("deleting");
    deleting.deleting = true;
    let existing = [binding("unscheduled", Unscheduled), deleting];
    assert!(run(&all(), &fleet, &existing).selected.is_empty());
    let fleet = [inside("unscheduled"), inside("deleting")];
    assert_eq!(
        names(&run(&all(), &fleet, &existing).selected),
        ["deleting", "unscheduled"]
    );
}

#[test]
fn the_words_of_the_seed() {
    let result = run(&policy(json!({})), &[cluster("member1")], &[]);
    assert_eq!(
        result.selected[0].reason,
        "Successfully scheduled resources for placement in \"member1\" (affinity score: 0, topology spread score: 0): picked by scheduling policy"
    );
    let result = run(&fixed(&["member1"]), &[cluster("member1")], &[]);
    assert_eq!(
        result.selected[0].reason,
        "Successfully scheduled resources for placement in \"member1\": picked by scheduling policy"
    );
    assert_eq!(result.selected[0].cluster_score, None);
}

/// Named, existing; selected, unselected, fulfilled.
type FixedRow<'a> = (
    &'a [&'a str],
    Vec<ExistingBinding<'a>>,
    &'a [&'a str],
    &'a [&'a str],
    bool,
);

#[test]
fn pick_fixed() {
    let fleet = [
        cluster("a").taint("k", "v"),
        cluster("b").silent(),
        cluster("c"),
        cluster("left").leaving(),
    ];
    let none: &[&str] = &[];
    let rows: [FixedRow<'_>; 9] = [
        (&["a"], vec![], &["a"], none, true),
        (&["c", "a", "c"], vec![], &["a", "c"], none, true),
        (&["b"], vec![], none, &["b"], false),
        (
            &["a", "nowhere", "b"],
            vec![],
            &["a"],
            &["b", "nowhere"],
            false,
        ),
        (&["b"], vec![bound("b")], &["b"], none, true),
        (&["a", "b"], vec![obsolete("b")], &["a", "b"], none, true),
        (
            &["a"],
            vec![obsolete("b"), obsolete("c")],
            &["a"],
            none,
            true,
        ),
        (&["left"], vec![bound("left")], none, &["left"], false),
        (none, vec![obsolete("a")], none, none, true),
    ];
    for (named, existing, selected, unselected, fulfilled) in rows {
        let result = run(&fixed(named), &fleet, &existing);
        assert_eq!(names(&result.selected), selected, "{named:?}");
        assert_eq!(names(&result.unselected), unselected, "{named:?}");
        assert_eq!(result.fulfilled, fulfilled, "{named:?}: {}", result.message);
    }
    let result = run(&fixed(&["a", "nowhere"]), &fleet, &[]);
    assert_eq!(
        result.message,
        "could not find all clusters needed as specified by the scheduling policy, found 1 of 2 cluster(s)"
    );
}

#[test]
fn pick_n_takes_the_larger_name_and_trims_the_smaller() {
    let fleet = ["a", "b", "c", "d"].map(cluster);
    let result = run(&pick_n(2), &fleet, &[]);
    assert_eq!(names(&result.selected), ["c", "d"]);
    assert_eq!(names(&result.unselected), ["b", "a"]);
    assert_eq!(
        result.unselected[0].reason,
        "cluster \"b\" does not score high enough (affinity score: 0, topology spread score: 0)"
    );
    let result = run(&pick_n(1), &fleet, &[bound("c"), bound("d")]);
    assert_eq!(names(&result.selected), ["d"]);
    let result = run(&pick_n(0), &fleet, &[bound("c"), bound("d")]);
    assert!(result.selected.is_empty() && result.fulfilled);
    let result = run(&pick_n(9), &fleet, &[]);
    assert_eq!(result.selected.len(), 4);
    assert!(!result.fulfilled);
}

#[test]
fn pick_n_trims_scheduled_then_lowest_score_then_smaller_name() {
    let fleet = ["a", "b", "c", "d", "e", "f"].map(cluster);
    let existing = [
        scored("a", Bound, 0, 5),
        scored("b", Bound, 0, 5),
        scored("c", Bound, -1, 100),
        scored("d", Scheduled, 1, 100),
        bound("e"),
        scored("f", Scheduled, 0, 100),
    ];
    let order: [&[&str]; 6] = [
        &["a", "b", "c", "d", "e"],
        &["a", "b", "c", "e"],
        &["a", "b", "c"],
        &["a", "b"],
        &["b"],
        &[],
    ];
    for (wanted, expected) in [5, 4, 3, 2, 1, 0].into_iter().zip(order) {
        assert_eq!(
            names(&run(&pick_n(wanted), &fleet, &existing).selected),
            expected
        );
    }
}

#[test]
fn pick_n_is_sticky() {
    let fleet = [
        cluster("a").silent(),
        cluster("b").taint("k", "v"),
        cluster("c"),
        cluster("d").leaving(),
    ];
    let result = run(&pick_n(3), &fleet, &[bound("a"), bound("b"), bound("d")]);
    assert_eq!(names(&result.selected), ["a", "b", "c"]);
}

#[test]
fn pick_n_lets_earlier_selections_compete_and_win_ties() {
    let fleet = ["a", "b", "c"].map(cluster);
    let result = run(&pick_n(2), &fleet, &[obsolete("a")]);
    assert_eq!(names(&result.selected), ["a", "c"]);
    // Those of this policy fill N: those of an earlier one go.
    let result = run(&pick_n(1), &fleet, &[obsolete("c"), bound("a")]);
    assert_eq!(names(&result.selected), ["a"]);
    // A passing trouble is forgiven when nothing else is left, and only then.
    let fleet = [cluster("a").silent(), cluster("b"), cluster("c").silent()];
    let result = run(&pick_n(1), &fleet, &[obsolete("a")]);
    assert_eq!(names(&result.selected), ["b"]);
    let result = run(&pick_n(3), &fleet, &[obsolete("a")]);
    assert_eq!(names(&result.selected), ["a", "b"]);
    assert!(!result.fulfilled);
}

#[test]
fn pick_n_without_a_number_undoes_nothing() {
    let odd = policy(json!({"placementType": "PickN"}));
    let result = run(&odd, &["a", "b"].map(cluster), &[bound("a")]);
    assert_eq!(names(&result.selected), ["a"]);
    assert!(!result.fulfilled && result.message.contains("numberOfClusters"));
}

#[test]
fn two_bindings_of_one_cluster_count_once() {
    let result = run(
        &pick_n(2),
        &["a", "b"].map(cluster),
        &[binding("a", Scheduled), bound("a")],
    );
    assert_eq!(names(&result.selected), ["a", "b"]);
}

#[test]
fn decisions_stay_within_the_schema() {
    let number = |n: usize| {
        (0..n)
            .map(|i| cluster(&format!("c{i:04}")))
            .collect::<Vec<_>>()
    };
    let result = run(&pick_n(3), &number(40), &[]);
    assert_eq!(
        (result.unselected.len(), result.shown().len()),
        (37, MAX_UNSELECTED)
    );
    let result = run(&pick_n(990), &number(1500), &[]);
    assert_eq!((result.selected.len(), result.shown().len()), (990, 10));
    let result = run(&pick_n(1200), &number(1500), &[]);
    assert_eq!((result.selected.len(), result.shown().len()), (1200, 0));
    assert_eq!(result.decisions().len(), MAX_DECISIONS);
}

fn spread(number: u32, constraints: &Value) -> PlacementPolicy {
    policy(json!({"placementType": "PickN", "numberOfClusters": number,
        "topologySpreadConstraints": constraints}))
}

fn zoned(name: &str, zone: &str) -> Cluster {
    cluster(name).label("zone", zone)
}

#[test]
fn spread_is_hard_by_default_with_skew_one() {
    let fleet = [
        zoned("a1", "a"),
        zoned("a2", "a"),
        zoned("a3", "a"),
        zoned("b1", "b"),
        zoned("c1", "c"),
    ];
    let zone = json!([{"topologyKey": "zone"}]);
    for (number, expected) in [
        (1, vec!["c1"]),
        (2, vec!["b1", "c1"]),
        (3, vec!["a3", "b1", "c1"]),
        (4, vec!["a2", "a3", "b1", "c1"]),
    ] {
        let result = run(&spread(number, &zone), &fleet, &[]);
        assert_eq!(names(&result.selected), expected);
        assert!(result.fulfilled);
    }
    let result = run(&spread(5, &zone), &fleet, &[]);
    assert_eq!(result.selected.len(), 4);
    assert!(!result.fulfilled);
    assert_eq!(
        result.unselected[0].reason,
        "ClusterUnschedulable, cluster would break the topology spread constraint on \"zone\" (max skew 1)"
    );
    let two = json!([{"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}]);
    assert_eq!(run(&spread(5, &two), &fleet, &[]).selected.len(), 5);
}

/// Bound (name and zone), candidate; the candidate's spread score.
type SpreadRow<'a> = (&'a [(&'a str, &'a str)], (&'a str, &'a str), i32);

#[test]
fn spread_scores() {
    let soft = json!([{"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]);
    let rows: [SpreadRow<'_>; 7] = [
        (&[], ("x", "only"), -1),
        (&[("p", "a"), ("q", "b")], ("x", "a"), -1),
        (&[("p", "a"), ("q", "b"), ("r", "b")], ("x", "a"), 1),
        (&[("p", "a"), ("q", "b"), ("r", "b")], ("x", "b"), -1000),
        // Two smallest: no change; skew 1 is allowed.
        (
            &[("p", "a"), ("q", "b"), ("r", "c"), ("s", "c")],
            ("x", "b"),
            0,
        ),
        // Between the extremes with skew 2: broken whatever it is.
        (
            &[
                ("p", "a"),
                ("q", "b"),
                ("r", "b"),
                ("s", "c"),
                ("t", "c"),
                ("u", "c"),
            ],
            ("x", "b"),
            -1000,
        ),
        (&[("p", "a")], ("x", ""), 0),
    ];
    for (holders, (name, zone), score) in rows {
        let mut fleet: Vec<_> = holders.iter().map(|(n, z)| zoned(n, z)).collect();
        fleet.push(if zone.is_empty() {
            cluster(name)
        } else {
            zoned(name, zone)
        });
        let existing: Vec<_> = holders.iter().map(|(n, _)| bound(n)).collect();
        let number = u32::try_from(fleet.len()).unwrap();
        let result = run(&spread(number, &soft), &fleet, &existing);
        let decision = result
            .selected
            .iter()
            .find(|d| d.cluster_name == name)
            .unwrap();
        let actual = decision.cluster_score.unwrap().topology_spread_score;
        assert_eq!(actual, Some(score), "{holders:?} + {zone}");
    }
}

#[test]
fn spread_beats_affinity_and_a_cluster_without_the_label_is_neutral() {
    let fleet = [
        zoned("a1", "a").label("nice", "yes"),
        zoned("a2", "a").label("nice", "yes"),
        zoned("b1", "b"),
        cluster("n1"),
    ];
    let mut policy = spread(
        2,
        &json!([{"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]),
    );
    policy.affinity = serde_json::from_value(json!({"clusterAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 50, "preference": {"labelSelector": {"matchLabels": {"nice": "yes"}}}}]}}))
    .unwrap();
    // n1 changes no skew (0), the others raise it (−1); then a2 by affinity.
    assert_eq!(names(&run(&policy, &fleet, &[]).selected), ["a2", "n1"]);
    // With a1 bound, b1 lowers the skew.
    assert_eq!(
        names(&run(&policy, &fleet, &[bound("a1")]).selected),
        ["a1", "b1"]
    );
}

#[test]
fn a_thousand_clusters_over_three_constraints() {
    let fleet: Vec<_> = (0..1000)
        .map(|i| {
            zoned(&format!("c{i:04}"), &format!("z{}", i % 10))
                .label("rack", &format!("r{}", i % 100))
                .label("host", &format!("h{i}"))
        })
        .collect();
    let constraints =
        json!([{"topologyKey": "zone"}, {"topologyKey": "rack"}, {"topologyKey": "host"}]);
    let result = run(&spread(1000, &constraints), &fleet, &[]);
    assert_eq!(result.selected.len(), 1000);
}

#[test]
fn spread_with_no_valid_cluster_names_the_reasons() {
    let zone = json!([{"topologyKey": "zone"}, {"topologyKey": "nowhere"}]);
    let fleet = [zoned("a", "a").silent(), zoned("b", "b").taint("k", "v")];
    let result = run(&spread(3, &zone), &fleet, &[]);
    assert!(result.selected.is_empty() && !result.fulfilled);
    assert_eq!(names(&result.unselected), ["a", "b"]);
    assert!(
        result.message.ends_with("found 0 of 3 cluster(s)"),
        "{}",
        result.message
    );
    let empty = run(&spread(3, &zone), &[], &[]);
    assert!(empty.selected.is_empty() && empty.unselected.is_empty() && !empty.fulfilled);
}
