//! The hub dies after every write of a placement's life on a cluster with an agent, until the cluster's mode of
//! delivery has changed to push; then it goes back, and the placement ends, without a death.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use windlass_tests::agents::Agents;
use windlass_tests::deaths::{Deaths, Mortal};
use windlass_tests::{Fleet, condition};

/// Such a life takes more writes than these.
const WRITES: usize = 20;

const CLUSTER: &str = "
apiVersion: cluster.kubernetes-fleet.io/v1beta1
kind: MemberCluster
metadata: {name: member-1}
spec: {identity: {kind: User, name: agent}, heartbeatPeriodSeconds: 600}
";

const PLACEMENT: &str = "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: web}
spec:
  resourceSelectors: [{group: '', version: v1, kind: Namespace, name: web}]
  policy: {placementType: PickAll}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: '100%'}}
";

/// An agent has two Works and so two AppliedWorks for it, the hub one.
fn content(value: &str) -> String {
    format!(
        "
{{apiVersion: v1, kind: Namespace, metadata: {{name: web}}}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: plain, namespace: web}}, data: {{v: '{value}'}}}}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourceEnvelope
metadata: {{name: inside, namespace: web}}
data:
  a.yaml: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: enveloped, namespace: web}}, data: {{v: '{value}'}}}}
"
    )
}

/// Whether the cluster has this version, and the status says so.
fn runs(fleet: &Fleet, value: &str) -> bool {
    let shown =
        "{.status.observedResourceIndex}/{.status.placementStatuses[*].observedResourceIndex}";
    let has = fleet.get(
        "member-1",
        "cm plain enveloped -n web",
        "{.items[*].data.v}",
    );
    has == format!("{value} {value}")
        && condition(fleet, "web", "Available", "status") == "True"
        && fleet
            .get("hub", "crp web", shown)
            .split_once('/')
            .is_some_and(|(all, each)| all == each)
}

/// UIDs of what is placed.
fn placed(fleet: &Fleet) -> Vec<String> {
    ["ns web", "cm plain -n web", "cm enveloped -n web"]
        .iter()
        .map(|what| fleet.get("member-1", what, "{.metadata.uid}"))
        .collect()
}

/// The AppliedWorks on the cluster, and which of them own what came in the envelope.
fn ownership(fleet: &Fleet) -> (Vec<String>, Vec<String>) {
    let owners = "{.metadata.ownerReferences[*].name}";
    let list = |text: String| -> Vec<String> {
        let mut list: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        list.sort();
        list
    };
    (
        list(fleet.get("member-1", "appliedworks", "{.items[*].metadata.name}")),
        list(fleet.get("member-1", "cm enveloped -n web", owners)),
    )
}

/// Runs `windlass migrate` while the hub dies.
fn migrate(fleet: &Fleet, hub: &mut Mortal<'_>, to: &[&str]) {
    let kubeconfig = fleet.kubeconfig("hub");
    let kubeconfig = kubeconfig.to_string_lossy();
    let mut args = vec!["migrate", "member-1", "--hub-kubeconfig", &kubeconfig];
    args.extend(to);
    std::thread::scope(|scope| {
        let command = scope.spawn(|| fleet.windlass(&args));
        hub.survive("the mode has changed", || command.is_finished());
        command.join().unwrap().unwrap();
    });
}

/// One life; how often the hub died in it.
fn live(fleet: &Fleet, agents: &Agents, deaths: Deaths) -> usize {
    let removed = agents.removed();
    fleet.apply("hub", &content("1"));
    let mut hub = Mortal::start(fleet, deaths);
    fleet.apply("hub", CLUSTER);
    fleet.apply("hub", PLACEMENT);
    hub.survive("the agent has placed it", || {
        // No hub lives long enough to see two heartbeats of a usual agent, and one tells nothing.
        agents.beat("member-1");
        runs(fleet, "1")
    });
    let uids = placed(fleet);
    fleet.apply("hub", &content("2"));
    hub.survive("the agent has the change", || runs(fleet, "2"));

    let member = fleet.kubeconfig("member-1");
    let member = member.to_string_lossy();
    migrate(
        fleet,
        &mut hub,
        &["--to", "push", "--member-kubeconfig", &member],
    );
    let own = "ns fleet-member-member-1";
    assert_eq!(fleet.get("hub", own, "{.kind}"), "", "{deaths:?}");
    // The member's own garbage collector lets the emptied AppliedWork go.
    let one = (vec!["web-work".to_owned()], vec!["web-work".to_owned()]);
    hub.survive("everything is under one AppliedWork", || {
        ownership(fleet) == one
    });
    assert_eq!(placed(fleet), uids, "{deaths:?}");
    fleet.apply("hub", &content("3"));
    hub.survive("the hub has delivered the change", || runs(fleet, "3"));

    migrate(fleet, &mut hub, &["--to", "pull", "--agent", "User:agent"]);
    let secret = "secret windlass-cluster-member-1 -n fleet-system";
    assert_eq!(fleet.get("hub", secret, "{.kind}"), "", "{deaths:?}");
    let rights = "clusterrolebinding windlass-hub";
    assert_eq!(fleet.get("member-1", rights, "{.kind}"), "", "{deaths:?}");
    let (works, owners) = ownership(fleet);
    assert_eq!((works.len(), owners.len()), (2, 1), "{deaths:?}: {works:?}");
    assert!(
        owners[0].starts_with("web-work-envelope-"),
        "{deaths:?}: {owners:?}"
    );
    fleet.apply("hub", &content("4"));
    hub.survive("the agent has the last change", || {
        agents.beat("member-1");
        runs(fleet, "4")
    });
    assert_eq!(placed(fleet), uids, "{deaths:?}");
    assert_eq!(agents.removed(), removed, "{deaths:?}: nothing was deleted");

    fleet.kubectl("hub", "delete crp web --wait=false");
    hub.survive("nothing of it is left", || {
        let names = "{.items[*].metadata.name}";
        fleet.get("hub", "crp", names).is_empty()
            && fleet.get("hub", "crb,crs,csps", names).is_empty()
            && fleet.get("hub", "works -A", names).is_empty()
            && placed(fleet).iter().all(String::is_empty)
    });
    fleet.kubectl("hub", "delete cluster member-1 --wait=false");
    hub.survive("the cluster has left", || {
        fleet
            .get("hub", "cluster", "{.items[*].metadata.name}")
            .is_empty()
            && fleet.get("hub", own, "{.kind}").is_empty()
    });
    hub.count()
}

#[test]
fn dying_at_every_write_for_an_agent() {
    let fleet = Fleet::up("crash-pull", 1);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    // An agent finds its own CRD on the member.
    fleet.apply("member-1", &crds);
    let agents = Agents::start(&fleet);
    agents.apply_on("member-1", &fleet.kubeconfig("member-1"));
    let walk = |mode, first, next| {
        let died = live(&fleet, &agents, Deaths { mode, first, next });
        println!("{mode}:{first}/{next}: {died}");
        died
    };
    // A hub that never gets further than one write.
    let died = walk("after", 1, 1);
    assert!(died > WRITES, "died {died} times");
    if std::env::var_os("WINDLASS_TEST_FULL").is_some() {
        for mode in ["after", "before", "lost"] {
            for first in 1..=8 {
                assert!(walk(mode, first, 8) > WRITES / 8 / 2, "{mode}:{first}");
            }
        }
    }
}
