use serde_json::{Value, json};
use windlass_status::conditions::find;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn report(edit: impl FnOnce(&mut Value)) -> InternalMemberClusterStatus {
    let condition = |type_: &str, reason: &str| {
        json!({"type": type_, "status": "True", "reason": reason, "message": "fine",
               "observedGeneration": 7, "lastTransitionTime": "1970-01-01T00:00:01Z"})
    };
    let mut status = json!({
        "agentStatus": [{"type": "MemberAgent", "lastReceivedHeartbeat": "1999-01-01T00:00:00Z", "conditions": [
            condition("Joined", "InternalMemberClusterJoined"),
            condition("Healthy", "InternalMemberClusterHealthy")]}],
        "conditions": [condition("ClusterPropertyCollectionSucceeded", "PropertiesCollected")],
        "properties": {"p": {"value": "1", "observationTime": "1970-01-01T00:00:01Z"}},
        "resourceUsage": {"capacity": {"cpu": "10"}, "allocatable": {"cpu": "10"}, "available": {"cpu": "10"},
                          "observationTime": "1970-01-01T00:00:01Z"}});
    edit(&mut status);
    serde_json::from_value(status).unwrap()
}

fn facts(report: &InternalMemberClusterStatus, heard: i64) -> Facts<'_> {
    Facts {
        report: Some(report),
        told: Some(7),
        not_ready: None,
        heard: Some(at(heard)),
        silent: None,
        heartbeat_every: Duration::from_secs(60),
        is_settled: true,
    }
}

fn cluster(status: Option<MemberClusterStatus>) -> MemberCluster {
    let mut cluster = MemberCluster::default();
    cluster.metadata.generation = Some(3);
    cluster.status = status;
    cluster
}

fn known() -> MemberCluster {
    let report = report(|_| {});
    cluster(desired(&cluster(None), &facts(&report, 100), at(100)))
}

/// Reason of a condition of the cluster.
fn reason(status: &MemberClusterStatus, type_: &str) -> String {
    let list = status.conditions.as_deref().unwrap();
    find(list, type_)
        .map(|c| c.reason.clone())
        .unwrap_or_default()
}

#[test]
fn what_the_agent_says_is_copied_about_the_clusters_generation() {
    let status = known().status.unwrap();
    assert_eq!(reason(&status, "Joined"), "MemberClusterJoined");
    assert_eq!(reason(&status, "ReadyToJoin"), "MemberClusterReadyToJoin");
    assert_eq!(reason(&status, "Healthy"), "MemberClusterHealthy");
    let copied = "ClusterPropertyCollectionSucceeded";
    assert_eq!(reason(&status, copied), "PropertiesCollected");
    let agent = &status.agent_status.as_deref().unwrap()[0];
    for condition in agent
        .conditions
        .iter()
        .flatten()
        .chain(status.conditions.iter().flatten())
    {
        assert_eq!(
            condition.observed_generation,
            Some(3),
            "{}",
            condition.type_
        );
    }
    // The agent's clock is nobody's business.
    assert_eq!(agent.last_received_heartbeat, Some(Time(at(100))));
}

#[test]
fn what_is_worth_a_write() {
    let edit = |pointer: &'static str, value: Value| {
        report(|status| *status.pointer_mut(pointer).unwrap() = value)
    };
    let rows = [
        ("a heartbeat", report(|_| {}), 159, false),
        ("a heartbeat that is due", report(|_| {}), 160, true),
        (
            "times of an observation",
            edit(
                "/properties/p/observationTime",
                json!("1970-01-01T00:09:00Z"),
            ),
            101,
            false,
        ),
        (
            "a condition's time",
            edit(
                "/agentStatus/0/conditions/0/lastTransitionTime",
                json!("1970-01-01T00:09:00Z"),
            ),
            101,
            false,
        ),
        (
            "a property",
            edit("/properties/p/value", json!("2")),
            101,
            true,
        ),
        (
            "a little use",
            edit("/resourceUsage/available/cpu", json!("9600m")),
            101,
            false,
        ),
        (
            "more use",
            edit("/resourceUsage/available/cpu", json!("9")),
            101,
            true,
        ),
        (
            "capacity",
            edit("/resourceUsage/capacity/cpu", json!("11")),
            101,
            true,
        ),
        (
            "health",
            edit("/agentStatus/0/conditions/1/status", json!("False")),
            101,
            true,
        ),
        (
            "leaving",
            edit("/agentStatus/0/conditions/0/status", json!("False")),
            101,
            true,
        ),
    ];
    for (what, report, heard, written) in rows {
        let next = desired(&known(), &facts(&report, heard), at(heard));
        assert_eq!(next.is_some(), written, "{what}");
        if let Some(next) = next {
            let agent = &next.agent_status.unwrap()[0];
            assert_eq!(
                agent.last_received_heartbeat,
                Some(Time(at(heard))),
                "{what}"
            );
        }
    }
}

#[test]
fn after_a_restart_nothing_is_written_before_something_is_heard() {
    let report = report(|_| {});
    let facts = Facts {
        heard: None,
        ..facts(&report, 0)
    };
    assert_eq!(desired(&known(), &facts, at(9999)), None);
}

#[test]
fn after_a_restart_a_heartbeat_alone_is_not_written_at_once() {
    let report_of = report;
    let report = report(|_| {});
    let restarted = |report, heard| Facts {
        is_settled: false,
        ..facts(report, heard)
    };
    assert_eq!(desired(&known(), &restarted(&report, 999), at(999)), None);
    let sick = report_of(|status: &mut Value| {
        status["agentStatus"][0]["conditions"][1]["status"] = "False".into();
    });
    let next = desired(&known(), &restarted(&sick, 999), at(999)).unwrap();
    let agent = &next.agent_status.unwrap()[0];
    assert_eq!(agent.last_received_heartbeat, Some(Time(at(999))));
}

#[test]
fn an_agent_that_falls_silent_is_unreachable_and_has_not_left() {
    let report = report(|_| {});
    let facts = Facts {
        silent: Some(Duration::from_secs(180)),
        ..facts(&report, 100)
    };
    let next = desired(&known(), &facts, at(280)).unwrap();
    assert_eq!(reason(&next, "Healthy"), "MemberClusterUnreachable");
    assert_eq!(reason(&next, "Joined"), "MemberClusterJoined");
}

/// What the agent wrote before it fell silent is no news after a restart.
#[test]
fn after_a_restart_a_silent_agent_stays_unreachable_until_it_is_heard() {
    let report = report(|_| {});
    let silent = Facts {
        silent: Some(Duration::from_secs(180)),
        ..facts(&report, 100)
    };
    let known = cluster(desired(&known(), &silent, at(280)));
    let restarted = Facts {
        heard: None,
        ..facts(&report, 100)
    };
    assert_eq!(desired(&known, &restarted, at(300)), None);
    let next = desired(&known, &facts(&report, 310), at(310)).unwrap();
    assert_eq!(reason(&next, "Healthy"), "MemberClusterHealthy");
}

#[test]
fn a_report_that_is_gone_is_not_good_news() {
    let gone = Facts {
        report: None,
        told: None,
        not_ready: Some("its namespace is being deleted".into()),
        heard: Some(at(100)),
        silent: None,
        heartbeat_every: Duration::from_secs(60),
        is_settled: true,
    };
    let next = desired(&known(), &gone, at(110)).unwrap();
    assert_eq!(reason(&next, "Healthy"), "MemberClusterHealthUnknown");
    assert!(has_reported(&cluster(Some(next.clone()))));
    let silent = Facts {
        silent: Some(Duration::from_secs(180)),
        ..gone
    };
    let next = desired(&cluster(Some(next)), &silent, at(280)).unwrap();
    assert_eq!(reason(&next, "Healthy"), "MemberClusterUnreachable");
    // The hub has made a new one, to which nothing is said yet.
    let empty = InternalMemberClusterStatus::default();
    let anew = Facts {
        told: Some(1),
        not_ready: None,
        silent: None,
        ..facts(&empty, 100)
    };
    let next = desired(&known(), &anew, at(110)).unwrap();
    assert_eq!(reason(&next, "Healthy"), "MemberClusterHealthUnknown");
}

#[test]
fn without_an_agent_the_cluster_is_ready_or_says_why_not() {
    let nothing = Facts {
        report: None,
        told: None,
        not_ready: None,
        heard: None,
        silent: Some(Duration::from_secs(999)),
        heartbeat_every: Duration::from_secs(60),
        is_settled: true,
    };
    let next = desired(&cluster(None), &nothing, at(1)).unwrap();
    assert_eq!(reason(&next, "ReadyToJoin"), "MemberClusterReadyToJoin");
    assert_eq!(reason(&next, "Joined"), "MemberClusterJoinStateUnknown");
    assert_eq!(reason(&next, "Healthy"), "", "nothing is known of it");
    let refused = Facts {
        not_ready: Some("no".into()),
        ..nothing
    };
    let next = desired(&cluster(None), &refused, at(1)).unwrap();
    assert_eq!(reason(&next, "ReadyToJoin"), "MemberClusterNotReadyToJoin");
}

#[test]
fn an_agent_has_left_when_it_says_so_of_what_it_is_told_now() {
    let said = |status: &str, generation: i64| {
        report(|report| {
            let joined = &mut report["agentStatus"][0]["conditions"][0];
            joined["status"] = json!(status);
            joined["observedGeneration"] = json!(generation);
        })
    };
    for (status, generation, expected) in [
        ("True", 7, Some(true)),
        // It has not looked yet, and applies what it is given.
        ("True", 6, Some(true)),
        ("False", 7, Some(false)),
        ("False", 6, None),
        ("Unknown", 7, None),
    ] {
        let report = said(status, generation);
        let joined = has_joined(Some(&report), Some(7));
        assert_eq!(joined, expected, "{status} of {generation}");
    }
    assert_eq!(has_joined(None, Some(7)), None);
}
