//! Affinity, taints and eligibility, seen through PickAll; scores through PickN.

mod common;

use common::{NOW, ago, cluster, names, policy, run};
use jiff::SignedDuration;
use serde_json::{Value, json};
use windlass_scheduler::{Health, Membership};

/// A PickAll policy with one required term.
fn required(term: &Value) -> windlass_api::placement::PlacementPolicy {
    policy(
        json!({"placementType": "PickAll", "affinity": {"clusterAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"clusterSelectorTerms": [term]}}}}),
    )
}

fn test(name: &str, operator: &str, values: &Value) -> Value {
    json!({"propertySelector": {"matchExpressions":
        [{"name": name, "operator": operator, "values": values}]}})
}

#[test]
fn terms_are_ored_and_their_parts_anded() {
    let fleet = [
        cluster("a").label("env", "prod").property("n", "10"),
        cluster("b").label("env", "prod").property("n", "2"),
        cluster("c").label("env", "dev").property("n", "10"),
        cluster("d").label("edge", "yes"),
    ];
    let policy = policy(json!({"affinity": {"clusterAffinity": {
    "requiredDuringSchedulingIgnoredDuringExecution": {"clusterSelectorTerms": [
        {"labelSelector": {"matchLabels": {"env": "prod"}},
         "propertySelector": {"matchExpressions": [{"name": "n", "operator": "Ge", "values": ["10"]}]}},
        {"labelSelector": {"matchLabels": {"edge": "yes"}}},
    ]}}}}));
    let result = run(&policy, &fleet, &[]);
    assert_eq!(names(&result.selected), ["a", "d"]);
    assert_eq!(names(&result.unselected), ["b", "c"]);
    assert_eq!(
        result.unselected[0].reason,
        "ClusterUnschedulable, cluster does not match any required affinity term"
    );
    assert!(result.fulfilled, "PickAll always is");
    assert_eq!(
        result.message,
        "found all cluster needed as specified by the scheduling policy, found 2 cluster(s)"
    );
}

#[test]
fn no_terms_match_everything() {
    let policy = policy(json!({"affinity": {"clusterAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"clusterSelectorTerms": []}}}}));
    assert_eq!(names(&run(&policy, &[cluster("a")], &[]).selected), ["a"]);
}

#[test]
fn properties_compare_as_quantities() {
    let fleet = [cluster("a")
        .property("n", "1500m")
        .allocatable("cpu", "4")
        .allocatable("ephemeral-storage", "1Gi")
        .allocatable("nvidia.com/gpu-shared", "2")];
    let resource = |name: &str| format!("resources.kubernetes-fleet.io/{name}");
    let rows = [
        ("n".to_owned(), "Eq", "1.5", true),
        ("n".to_owned(), "Ne", "1.5", false),
        ("n".to_owned(), "Gt", "1.5", false),
        ("n".to_owned(), "Ge", "1.5", true),
        ("n".to_owned(), "Lt", "2", true),
        ("n".to_owned(), "Le", "1", false),
        ("missing".to_owned(), "Ne", "1", false),
        (resource("allocatable-cpu"), "Eq", "4000m", true),
        (resource("total-cpu"), "Ge", "0", false),
        (resource("allocatable-ephemeral-storage"), "Gt", "1G", true),
        (
            resource("allocatable-nvidia.com/gpu-shared"),
            "Eq",
            "2",
            true,
        ),
    ];
    for (name, operator, value, expected) in rows {
        let policy = required(&test(&name, operator, &json!([value])));
        let found = !run(&policy, &fleet, &[]).selected.is_empty();
        assert_eq!(found, expected, "{name} {operator} {value}");
    }
}

#[test]
fn trouble_matches_nothing_and_is_named() {
    let fleet = [
        cluster("bad").property("n", "v1.30"),
        cluster("good").property("n", "5"),
    ];
    let rows = [
        (
            test("n", "Gt", &json!(["1"])),
            vec!["good"],
            "property \"n\": its value \"v1.30\" is not a quantity",
        ),
        (
            test("n", "Like", &json!(["1"])),
            vec![],
            "operator \"Like\"",
        ),
        (test("n", "Gt", &json!([])), vec![], "exactly one value"),
        (
            test("n", "Gt", &json!(["1x"])),
            vec![],
            "value \"1x\" is not a quantity",
        ),
        (
            test("resources.kubernetes-fleet.io/cpu", "Gt", &json!(["1"])),
            vec![],
            "malformed",
        ),
        (
            test(
                "resources.kubernetes-fleet.io/used-cpu",
                "Gt",
                &json!(["1"]),
            ),
            vec![],
            "malformed",
        ),
        (
            json!({"labelSelector": {"matchExpressions": [{"key": "k", "operator": "Odd"}]}}),
            vec![],
            "operator \"Odd\"",
        ),
    ];
    for (term, selected, text) in rows {
        let result = run(&required(&term), &fleet, &[]);
        assert_eq!(names(&result.selected), selected);
        let reason = &result.unselected[0].reason;
        assert!(
            reason.contains("(term 1: ") && reason.contains(text),
            "{reason}"
        );
        // What is wrong with one cluster is said of that one only.
        assert_eq!(result.trouble.is_empty(), !selected.is_empty(), "{text}");
    }
}

/// Property, operator and value of each test.
type Tests = &'static [(&'static str, &'static str, &'static str)];

/// Tests of property n (and m), each with one value; what is said of them, if they contradict each other.
#[test]
fn tests_that_contradict_each_other_are_named() {
    let rows: [(Tests, Option<&str>); 13] = [
        (&[("n", "Eq", "5"), ("n", "Eq", "6")], Some("Eq 5 and Eq 6")),
        (&[("n", "Eq", "5"), ("n", "Eq", "5000m")], None),
        (
            &[("n", "Eq", "5"), ("n", "Ne", "5000m")],
            Some("Eq 5 and Ne 5000m"),
        ),
        (&[("n", "Ne", "6"), ("n", "Eq", "5")], None),
        (&[("n", "Gt", "5"), ("n", "Lt", "3")], Some("Gt 5 and Lt 3")),
        (&[("n", "Lt", "5"), ("n", "Ge", "5")], Some("Lt 5 and Ge 5")),
        (&[("n", "Le", "5"), ("n", "Ge", "5")], None),
        (&[("n", "Gt", "5"), ("n", "Lt", "5.1")], None),
        (&[("n", "Gt", "5"), ("n", "Eq", "5")], Some("Gt 5 and Eq 5")),
        (&[("n", "Eq", "5"), ("n", "Lt", "6")], None),
        (
            &[("n", "Le", "5"), ("n", "Ne", "5"), ("n", "Ge", "5")],
            Some("Le 5, Ge 5 and Ne 5"),
        ),
        (&[("n", "Gt", "5"), ("m", "Lt", "3")], None),
        (
            &[("n", "Gt", "5"), ("m", "Lt", "3"), ("m", "Gt", "4")],
            Some("\"m\""),
        ),
    ];
    let fleet = [cluster("a")];
    for (tests, expected) in rows {
        let expressions: Vec<Value> = tests
            .iter()
            .map(|(name, operator, value)| json!({"name": name, "operator": operator, "values": [value]}))
            .collect();
        let term = json!({"propertySelector": {"matchExpressions": expressions}});
        let affinity = |kind: &str, terms: Value| json!({"clusterAffinity": {kind: terms}});
        let (hard, soft) = (
            "requiredDuringSchedulingIgnoredDuringExecution",
            "preferredDuringSchedulingIgnoredDuringExecution",
        );
        let required = affinity(hard, json!({"clusterSelectorTerms": [{}, term]}));
        let preferred = affinity(soft, json!([{"weight": 1, "preference": term}]));
        for (policy, words) in [
            (
                json!({"placementType": "PickAll", "affinity": required}),
                "required affinity term 2 matches no cluster: ",
            ),
            (
                json!({"placementType": "PickN", "numberOfClusters": 1, "affinity": required}),
                "required affinity term 2 matches no cluster: ",
            ),
            (
                json!({"placementType": "PickN", "numberOfClusters": 1, "affinity": preferred}),
                "preferred affinity term 1 counts for nothing: ",
            ),
            (
                json!({"placementType": "PickFixed", "clusterNames": ["a"], "affinity": required}),
                "required affinity term 2 matches no cluster: ",
            ),
        ] {
            let result = run(&common::policy(policy), &fleet, &[]);
            assert_eq!(names(&result.selected), ["a"], "{tests:?}");
            match (result.trouble.as_slice(), expected) {
                ([], None) => {}
                ([said], Some(expected)) => assert!(
                    said.starts_with(words)
                        && said.contains("contradict each other")
                        && said.contains(expected),
                    "{said}"
                ),
                (said, _) => panic!("{tests:?}: {said:?}"),
            }
        }
    }
}

#[test]
fn tolerations() {
    let tainted = [cluster("a").taint("team", "x")];
    let rows = [
        (json!([]), false),
        (json!([{"key": "team", "value": "x"}]), true),
        (
            json!([{"key": "team", "operator": "Equal", "value": "x", "effect": "NoSchedule"}]),
            true,
        ),
        (json!([{"key": "team", "value": "y"}]), false),
        (json!([{"key": "other", "value": "x"}]), false),
        (json!([{"key": "team", "operator": "Exists"}]), true),
        (json!([{"key": "other", "operator": "Exists"}]), false),
        (json!([{"operator": "Exists"}]), true),
    ];
    for (tolerations, expected) in rows {
        let result = run(&policy(json!({"tolerations": tolerations})), &tainted, &[]);
        assert_eq!(!result.selected.is_empty(), expected, "{tolerations}");
    }
    let two = [cluster("a").taint("team", "x").taint("gpu", "only")];
    let result = run(
        &policy(json!({"tolerations": [{"key": "team", "operator": "Exists"}]})),
        &two,
        &[],
    );
    assert_eq!(
        result.unselected[0].reason,
        "ClusterUnschedulable, taint {key: \"gpu\", value: \"only\", effect: NoSchedule} is not tolerated"
    );
}

#[test]
fn eligibility() {
    let good = cluster("a").membership;
    let health = |healthy, seconds| {
        Some(Health {
            healthy,
            since: ago(seconds),
        })
    };
    let rows = [
        (good, None),
        (
            Membership {
                last_heartbeat: Some(ago(300)),
                ..good
            },
            None,
        ),
        (
            Membership {
                last_heartbeat: Some(ago(-60)),
                ..good
            },
            None,
        ),
        (
            Membership {
                last_heartbeat: Some(ago(301)),
                ..good
            },
            Some("heartbeat"),
        ),
        (
            Membership {
                last_heartbeat: None,
                ..good
            },
            Some("heartbeat"),
        ),
        (
            Membership {
                joined: false,
                ..good
            },
            Some("not joined"),
        ),
        (
            Membership {
                health: None,
                ..good
            },
            Some("not reported its health"),
        ),
        (
            Membership {
                health: health(false, 300),
                ..good
            },
            None,
        ),
        (
            Membership {
                health: health(false, 301),
                ..good
            },
            Some("unhealthy"),
        ),
        (Membership::default(), Some("not come online")),
    ];
    for (membership, trouble) in rows {
        let mut subject = cluster("a");
        subject.membership = membership;
        let all = run(&policy(json!({})), &[subject.clone()], &[]);
        let fixed = policy(json!({"placementType": "PickFixed", "clusterNames": ["a"]}));
        let fixed = run(&fixed, &[subject], &[]);
        assert_eq!(all.selected.is_empty(), trouble.is_some(), "{membership:?}");
        assert_eq!(fixed.selected.is_empty(), trouble.is_some());
        if let Some(text) = trouble {
            assert!(all.unselected[0].reason.contains(text));
            assert!(fixed.unselected[0].reason.contains(text));
        }
    }
    let left = run(&policy(json!({})), &[cluster("a").leaving()], &[]);
    assert!(left.unselected[0].reason.contains("leaving"));
}

#[test]
fn a_runner_up_wakes_when_its_tolerance_has_ended() {
    let mut unhealthy = cluster("a");
    unhealthy.membership.health = Some(Health {
        healthy: false,
        since: ago(100),
    });
    let policy = policy(json!({"placementType": "PickN", "numberOfClusters": 1}));
    let result = run(&policy, &[unhealthy, cluster("b")], &[]);
    assert_eq!(names(&result.selected), ["b"]);
    assert_eq!(result.wake_at, Some(NOW + SignedDuration::from_secs(201)));
}

/// The affinity scores of clusters "a" and up under PickN.
fn scores(terms: &Value, fleet: &[common::Cluster]) -> Vec<i32> {
    let policy = policy(json!({"placementType": "PickN", "numberOfClusters": 99,
        "affinity": {"clusterAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}));
    run(&policy, fleet, &[])
        .selected
        .iter()
        .map(|d| {
            d.cluster_score
                .unwrap_or_default()
                .affinity_score
                .unwrap_or(-999)
        })
        .collect()
}

#[test]
fn preferred_terms_add_up() {
    let fleet = [
        cluster("a").label("env", "prod").property("n", "0"),
        cluster("b").label("env", "prod").property("n", "3"),
        cluster("c").property("n", "8"),
        cluster("d").property("n", "none"),
        cluster("e"),
    ];
    let labels = json!({"labelSelector": {"matchLabels": {"env": "prod"}}});
    let sorter = |order: &str| json!({"propertySorter": {"name": "n", "sortOrder": order}});
    let rows = [
        (
            json!([{"weight": 20, "preference": labels}]),
            [20, 20, 0, 0, 0],
        ),
        (
            json!([{"weight": 20, "preference": labels}, {"weight": -5, "preference": {}}]),
            [15, 15, -5, -5, -5],
        ),
        // 3/8 of 100 is 37.5 and rounds away from zero.
        (
            json!([{"weight": 100, "preference": sorter("Descending")}]),
            [0, 38, 100, 0, 0],
        ),
        (
            json!([{"weight": 100, "preference": sorter("Ascending")}]),
            [100, 63, 0, 0, 0],
        ),
        (
            json!([{"weight": -100, "preference": sorter("Descending")}]),
            [0, -38, -100, 0, 0],
        ),
        (
            json!([{"weight": 100, "preference": {"labelSelector": {"matchLabels": {"env": "prod"}},
            "propertySorter": {"name": "n", "sortOrder": "Descending"}}}]),
            [0, 38, 0, 0, 0],
        ),
        // What can't be evaluated is worth nothing.
        (
            json!([{"weight": 9, "preference": {"labelSelector": {"matchExpressions":
            [{"key": "env", "operator": "Odd"}]}}}]),
            [0; 5],
        ),
        (
            json!([{"weight": 9, "preference": {"propertySorter":
            {"name": "resources.kubernetes-fleet.io/x", "sortOrder": "Ascending"}}}]),
            [0; 5],
        ),
    ];
    for (terms, expected) in rows {
        assert_eq!(scores(&terms, &fleet), expected, "{terms}");
    }
    let same = [
        cluster("a").property("n", "3"),
        cluster("b").property("n", "3000m"),
    ];
    let terms = json!([{"weight": 100, "preference": sorter("Descending")}]);
    assert_eq!(scores(&terms, &same), [0, 0]);
}

/// What a cluster tells of its namespaces, an earlier selection of it; what stands in the way.
type NamespaceRow<'a> = (Option<Option<&'a [&'a str]>>, bool, Option<&'a str>);

#[test]
fn a_namespaced_placement_goes_where_its_namespace_is() {
    let absent = "ClusterUnschedulable, cluster does not have the placement's namespace \"team\"; place the namespace first";
    let unknown = "ClusterUnschedulable, cluster has not reported which namespaces it has, so that the placement's may be missing";
    let rows: [NamespaceRow<'_>; 7] = [
        // Not reported at all: nothing is known against it.
        (None, false, None),
        (Some(Some(&["team", "kube-system"])), false, None),
        (Some(Some(&["kube-system"])), false, Some(absent)),
        (Some(Some(&[])), false, Some(absent)),
        (Some(None), false, Some(unknown)),
        // What an earlier policy put there stays through a passing trouble, not without the namespace.
        (Some(None), true, None),
        (Some(Some(&[])), true, Some(absent)),
    ];
    for (namespaces, earlier, expected) in rows {
        let mut subject = cluster("a");
        subject.namespaces = namespaces.map(|known| {
            known.map(|names| {
                names
                    .iter()
                    .map(|n| ((*n).to_owned(), String::new()))
                    .collect()
            })
        });
        let existing = if earlier {
            vec![common::obsolete("a")]
        } else {
            Vec::new()
        };
        for kind in ["PickAll", "PickN"] {
            let policy = policy(json!({"placementType": kind, "numberOfClusters": 1}));
            let views = [subject.view()];
            let view = |namespace| windlass_scheduler::SchedulingView {
                policy: Some(&policy),
                namespace,
                clusters: &views,
                existing: &existing,
            };
            let result = windlass_scheduler::schedule(&view(Some("team")), NOW);
            let reason = result.unselected.first().map(|d| d.reason.as_str());
            assert_eq!(reason, expected, "{kind} {namespaces:?}");
            // A cluster-scoped placement asks for no namespace.
            let result = windlass_scheduler::schedule(&view(None), NOW);
            assert_eq!(names(&result.selected), ["a"]);
        }
        // PickFixed asks for existence and eligibility alone.
        let fixed = policy(json!({"placementType": "PickFixed", "clusterNames": ["a"]}));
        let view = windlass_scheduler::SchedulingView {
            policy: Some(&fixed),
            namespace: Some("team"),
            clusters: &[subject.view()],
            existing: &[],
        };
        assert!(windlass_scheduler::schedule(&view, NOW).fulfilled);
    }
}

#[test]
fn the_first_trouble_in_the_order_of_the_filters_is_named() {
    let mut subject = cluster("a").silent().taint("k", "v");
    subject.namespaces = Some(Some(std::collections::BTreeMap::new()));
    let mut rows = Vec::new();
    let mut reason = |subject: &common::Cluster, terms: &Value| {
        let policy = policy(
            json!({"placementType": "PickAll", "affinity": {"clusterAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"clusterSelectorTerms": terms}}}}),
        );
        let view = windlass_scheduler::SchedulingView {
            policy: Some(&policy),
            namespace: Some("team"),
            clusters: &[subject.view()],
            existing: &[],
        };
        rows.push(
            windlass_scheduler::schedule(&view, NOW).unselected[0]
                .reason
                .clone(),
        );
    };
    reason(
        &subject,
        &json!([{"labelSelector": {"matchLabels": {"env": "prod"}}}]),
    );
    reason(&subject, &json!([]));
    subject.membership = cluster("a").membership;
    reason(&subject, &json!([]));
    subject.namespaces = None;
    reason(&subject, &json!([]));
    let words = ["affinity term", "heartbeat", "namespace", "taint"];
    for (reason, word) in rows.iter().zip(words) {
        assert!(reason.contains(word), "{reason} should be about {word}");
    }
}

#[test]
fn a_wish_that_cannot_be_evaluated_is_told() {
    let policy = policy(json!({"placementType": "PickN", "numberOfClusters": 1,
        "affinity": {"clusterAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {}},
            {"weight": 9, "preference": {"propertySorter":
                {"name": "resources.kubernetes-fleet.io/cpu", "sortOrder": "Ascending"}}}]}}}));
    let result = run(&policy, &[cluster("a")], &[]);
    assert_eq!(names(&result.selected), ["a"]);
    assert_eq!(result.trouble.len(), 1);
    let text = &result.trouble[0];
    assert!(
        text.starts_with("preferred affinity term 2 counts for nothing: property name"),
        "{text}"
    );
}
