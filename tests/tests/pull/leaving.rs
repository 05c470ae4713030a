//! Clusters whose agents don't do what they are told.

use windlass_tests::agents::{Agents, Behaviour};
use windlass_tests::{Fleet, eventually};

use super::{APP, PLACEMENT, cluster, condition, entry, is_available_at, migrate};

/// As somebody has made it, with another role.
const OTHER_ROLE: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: fleet-member-held}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: fleet-rolebinding-held, namespace: fleet-member-held}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: User, name: user-held, apiGroup: rbac.authorization.k8s.io}]
";

#[test]
fn agents_that_do_not_leave_are_left() {
    let mut fleet = Fleet::up("agents-leave", 0);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    fleet.start_hub();
    let agents = Agents::start(&fleet);
    fleet.apply("hub", OTHER_ROLE);
    fleet.apply("hub", &(cluster("held") + &cluster("dead")));
    eventually("the agent has its Role, and no other", || {
        let binding = "rolebinding fleet-rolebinding-held -n fleet-member-held";
        fleet.get("hub", binding, "{.roleRef.kind}/{.roleRef.name}") == "Role/fleet-role-held"
    });
    let quiet =
        cluster("quiet").replace("heartbeatPeriodSeconds: 600", "heartbeatPeriodSeconds: 1");
    fleet.apply("hub", &quiet);
    fleet.apply("hub", APP);
    fleet.apply("hub", PLACEMENT);
    for name in ["held", "dead", "quiet"] {
        eventually("everything is placed", || {
            let path = "conditions[?(@.type==\"Applied\")].status";
            entry(&fleet, name, path) == "True"
        });
    }
    agents.behave("held", Behaviour::HoldsOn);
    agents.behave("dead", Behaviour::Silent);
    clusters_are_given_up_and_keep_what_runs(&fleet, &agents);
    one_that_was_given_up_comes_back(&fleet, &agents);
    a_namespace_that_goes_under_a_dead_agent_comes_back(&fleet, &agents);
    one_whose_cluster_is_gone_goes(&fleet, &agents);
    a_silent_agent_is_named(&fleet, &agents);
}

/// Neither the one that is dead nor the one that merely will not leave; the command has its usual time.
fn clusters_are_given_up_and_keep_what_runs(fleet: &Fleet, agents: &Agents) {
    let said: Vec<_> = std::thread::scope(|scope| {
        let leave = |name| scope.spawn(move || (name, fleet.leave(name, &["--force"])));
        ["held", "dead"]
            .map(leave)
            .map(|thread| thread.join().unwrap())
            .into()
    });
    for (name, said) in said {
        let said = said.unwrap();
        assert!(said.contains("AppliedWork web-work"), "{name}: {said}");
        eventually("its namespace is gone", || {
            let namespace = format!("ns fleet-member-{name}");
            fleet.get("hub", &namespace, "{.kind}").is_empty()
        });
    }
    let removed = agents.removed();
    assert!(removed.is_empty(), "{removed:?}");
}

fn one_that_was_given_up_comes_back(fleet: &Fleet, agents: &Agents) {
    agents.behave("dead", Behaviour::Good);
    fleet.apply("hub", &cluster("dead"));
    eventually("it has joined again, and has the placement", || {
        entry(fleet, "dead", "observedResourceIndex") == "0" && is_available_at(fleet, "0")
    });
}

/// The finalizers of its Works are not waited for: nobody takes them off.
fn a_namespace_that_goes_under_a_dead_agent_comes_back(fleet: &Fleet, agents: &Agents) {
    agents.behave("dead", Behaviour::Silent);
    let uid = || fleet.get("hub", "ns fleet-member-dead", "{.metadata.uid}");
    let before = uid();
    fleet.kubectl("hub", "delete ns fleet-member-dead --wait=false");
    eventually("the namespace is made anew, with the Work", || {
        let work = "work web-work -n fleet-member-dead";
        !["", &before].contains(&uid().as_str())
            && !fleet.get("hub", work, "{.metadata.uid}").is_empty()
    });
    let healthy = "{.status.conditions[?(@.type==\"Healthy\")].status}";
    eventually("nothing is known of the cluster", || {
        fleet.get("hub", "cluster dead", healthy) == "Unknown"
    });
    agents.behave("dead", Behaviour::Good);
    eventually("all is as it was", || {
        fleet.get("hub", "cluster dead", healthy) == "True" && is_available_at(fleet, "0")
    });
    let removed = agents.removed();
    assert!(removed.is_empty(), "{removed:?}");
}

fn one_whose_cluster_is_gone_goes(fleet: &Fleet, agents: &Agents) {
    agents.behave("dead", Behaviour::Silent);
    fleet.kubectl("hub", "delete cluster dead --wait=false");
    let patch = r#"patch cluster dead --type=merge -p {"metadata":{"finalizers":null}}"#;
    fleet.kubectl("hub", patch);
    eventually("its namespace is gone", || {
        fleet
            .get("hub", "ns fleet-member-dead", "{.kind}")
            .is_empty()
    });
}

fn a_silent_agent_is_named(fleet: &Fleet, agents: &Agents) {
    agents.behave("quiet", Behaviour::Silent);
    fleet.kubectl("hub", "delete crp web --wait=false");
    eventually("what the deletion waits for is told", || {
        condition(fleet, "web", "Deleting", "message")
            .contains("waiting for cluster quiet to be reachable")
    });
    agents.behave("quiet", Behaviour::Good);
    eventually("the placement is gone", || {
        fleet.get("hub", "crp web", "{.kind}").is_empty()
    });
}

/// The agent has left, since the hub was to deliver: it does what the agent can't do any more, and then takes
/// its own rights away.
pub fn a_cluster_is_purged_while_its_mode_changes(fleet: &Fleet, agents: &Agents) {
    agents.behave("member-1", Behaviour::HoldsOn);
    let member = fleet.kubeconfig("member-1");
    let member = member.to_string_lossy();
    let push = ["--to", "push", "--member-kubeconfig", &member];
    let said = migrate(fleet, &[&push[..], &["--timeout", "5s"]].concat());
    let said = said.unwrap_err();
    assert!(said.contains("agent to let go"), "{said}");
    let rights = "clusterrolebinding windlass-hub";
    assert!(!fleet.get("member-1", rights, "{.kind}").is_empty());
    std::thread::scope(|scope| {
        let left = scope.spawn(|| fleet.leave("member-1", &["--purge"]));
        eventually("the cluster leaves", || {
            let path = "{.metadata.deletionTimestamp}";
            !fleet.get("hub", "cluster member-1", path).is_empty()
        });
        agents.behave("member-1", Behaviour::Good);
        left.join().unwrap().unwrap();
    });
    assert_eq!(fleet.get("member-1", rights, "{.kind}"), "");
}
