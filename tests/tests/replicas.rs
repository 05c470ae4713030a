//! Several hub processes on a real fleet: one acts, and another takes over however that one ends.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that can't go on fails, and it measures"
)]

use std::cell::RefCell;
use std::time::{Duration, Instant};

use windlass_tests::{Fleet, HubProcess, eventually, within};

const MEMBERS: [&str; 2] = ["member-1", "member-2"];

/// A lease that is over sooner than the default one.
const SHORT: [&str; 6] = [
    "--leader-lease-duration",
    "4",
    "--leader-renew-deadline",
    "3",
    "--leader-retry-period",
    "1",
];

fn placed(name: &str, data: &str) -> String {
    format!(
        "
{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c, namespace: {name}}}, data: {{v: '{data}'}}}}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {{name: {name}}}
spec:
  resourceSelectors: [{{group: '', version: v1, kind: Namespace, name: {name}}}]
"
    )
}

fn data_is(fleet: &Fleet, name: &str, data: &str) -> bool {
    let what = format!("cm c -n {name}");
    MEMBERS
        .iter()
        .all(|member| fleet.get(member, &what, "{.data.v}") == data)
}

fn is_available(fleet: &Fleet, name: &str, index: &str) -> bool {
    let path = "{.status.observedResourceIndex}{.status.conditions[?(@.type==\"ClusterResourcePlacementAvailable\")].status}";
    fleet.get("hub", &format!("crp {name}"), path) == format!("{index}True")
}

fn holder(fleet: &Fleet) -> String {
    fleet.get(
        "hub",
        "lease windlass-hub -n fleet-system",
        "{.spec.holderIdentity}",
    )
}

/// A process that stands by, with all that it has to know read.
fn standby(fleet: &Fleet, flags: &[&str]) -> HubProcess {
    let hub = fleet.spawn_hub(flags);
    eventually("the standby is ready", || hub.is_ready());
    eventually("the standby has connected the members", || {
        let metrics = hub.http("/metrics").unwrap_or_default();
        MEMBERS.iter().all(|member| {
            metrics.contains(&format!(
                "windlass_member_healthy{{cluster=\"{member}\"}} 1"
            ))
        })
    });
    assert!(!hub.leads());
    assert_eq!(
        hub.writes(),
        Vec::<String>::new(),
        "a standby writes nothing"
    );
    hub
}

fn leads_alone(fleet: &Fleet, flags: &[&str]) -> HubProcess {
    let hub = fleet.spawn_hub(flags);
    eventually("the first process leads", || hub.is_ready() && hub.leads());
    hub
}

#[test]
fn another_process_takes_over() {
    let fleet = Fleet::up("replicas", 2);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    let first = leads_alone(&fleet, &[]);
    for member in MEMBERS {
        fleet.join(member);
    }
    fleet.apply("hub", &placed("web", "1"));
    eventually("the app is everywhere", || is_available(&fleet, "web", "0"));
    let second = a_killed_leader_is_replaced(&fleet, &first);
    let third = a_leader_that_is_told_to_end_hands_over(&fleet, second);
    drop(third);
    a_leader_that_wakes_up_late_harms_nothing(&fleet);
}

/// The number: 15 s from SIGKILL to a change that is delivered.
fn a_killed_leader_is_replaced(fleet: &Fleet, leader: &HubProcess) -> HubProcess {
    let other = standby(fleet, &[]);
    let before = holder(fleet);
    leader.signal("KILL");
    let killed = Instant::now();
    fleet.apply("hub", &placed("web", "2"));
    within(Duration::from_secs(15), "the change is everywhere", || {
        data_is(fleet, "web", "2")
    });
    println!("delivered after SIGKILL: {:?}", killed.elapsed());
    assert!(other.leads());
    assert_ne!(holder(fleet), before);
    other
}

/// The number: 2 s from SIGTERM to another leader.
fn a_leader_that_is_told_to_end_hands_over(fleet: &Fleet, mut leader: HubProcess) -> HubProcess {
    let other = standby(fleet, &[]);
    // In the middle of something: the change has just been made.
    fleet.apply("hub", &placed("web", "3"));
    leader.signal("TERM");
    let told = Instant::now();
    within(Duration::from_secs(2), "another process leads", || {
        other.leads()
    });
    println!("another leads after SIGTERM: {:?}", told.elapsed());
    let mut status = None;
    while status.is_none() && told.elapsed() < Duration::from_secs(2) {
        status = leader.ended();
    }
    println!("ended after SIGTERM: {:?}", told.elapsed());
    assert!(status.unwrap().success());
    eventually("the change is everywhere", || data_is(fleet, "web", "3"));
    eventually("the status says so", || is_available(fleet, "web", "2"));
    other
}

fn a_leader_that_wakes_up_late_harms_nothing(fleet: &Fleet) {
    // The process before was killed; the wait for its lease has been tested.
    fleet.kubectl("hub", "delete lease windlass-hub -n fleet-system");
    let mut old = leads_alone(fleet, &SHORT);
    fleet.apply("hub", &placed("gone", "1"));
    eventually("there is something to delete", || {
        is_available(fleet, "gone", "0")
    });
    let new = standby(fleet, &SHORT);
    // The old leader is stopped in the middle of a change.
    fleet.apply("hub", &placed("web", "4"));
    old.signal("STOP");
    fleet.apply("hub", &placed("web", "5"));
    eventually("the standby leads", || new.leads());
    eventually("the last change is everywhere", || {
        data_is(fleet, "web", "5")
    });
    fleet.kubectl("hub", "delete crp gone --timeout=60s");
    eventually("what it placed is gone", || {
        MEMBERS
            .iter()
            .all(|member| fleet.get(member, "ns gone", "{.status.phase}").is_empty())
    });
    eventually("the status says so", || {
        let path = "{.status.conditions[?(@.type==\"ClusterResourcePlacementAvailable\")].status}";
        fleet.get("hub", "crp web", path) == "True"
    });
    let last = RefCell::new(String::new());
    eventually("all is quiet", || {
        let now = state(fleet);
        last.replace(now.clone()) == now
    });
    let before = last.take();
    let holds = holder(fleet);

    old.signal("CONT");
    let woken = Instant::now();
    let status = loop {
        if let Some(status) = old.ended() {
            break status;
        }
        assert!(woken.elapsed() < Duration::from_secs(10), "it ends");
    };
    println!("ended after SIGCONT: {:?}", woken.elapsed());
    assert_eq!(status.code(), Some(1), "so that it is started again");
    // A change that the leader makes comes after whatever the old one may have sent.
    fleet.apply("hub", &placed("mark", "1"));
    eventually("the leader works", || is_available(fleet, "mark", "0"));
    fleet.kubectl("hub", "delete crp mark --timeout=60s");
    fleet.kubectl("hub", "delete ns mark --timeout=60s");
    assert_eq!(state(fleet), before);
    assert_eq!(holder(fleet), holds);
    assert!(new.leads());
}

/// Every object of ours with its version, on the hub and on the members. Clusters have heartbeats.
fn state(fleet: &Fleet) -> String {
    let versions = "{.items[*].metadata.name}={.items[*].metadata.resourceVersion}";
    let mut state = fleet.get("hub", "crp,crb,crs,csps", versions);
    for member in MEMBERS {
        state += &fleet.get(member, "ns,cm,appliedworks -A", versions);
    }
    assert!(state.contains("web"), "{state}");
    state
}
