//! The hub dies at every write that a placement's life takes, and at random instants of a rollout.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use windlass_tests::deaths::{ALONE, Deaths, Mortal, alone};
use windlass_tests::{Fleet, eventually};

const MEMBERS: [&str; 2] = ["member-1", "member-2"];
/// How often the hub is killed in the midst of a rollout.
const KILLS: usize = 30;
/// So many writes lie between two deaths in a life; there are as many lives, each one write later.
const STRIDE: usize = 8;
/// A placement's life takes more writes than these.
const WRITES: usize = 40;

/// A namespace that is there before, with an object that is taken over and others that are created. (That a
/// created namespace goes is another suite's matter: it takes seconds.)
fn content(value: &str) -> String {
    format!(
        "
{{apiVersion: v1, kind: Namespace, metadata: {{name: kept}}}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: old, namespace: kept}}, data: {{v: '{value}'}}}}
---
{{apiVersion: v1, kind: ConfigMap, metadata: {{name: new, namespace: kept}}, data: {{v: '{value}'}}}}
---
{{apiVersion: v1, kind: Service, metadata: {{name: s, namespace: kept}}, spec: {{selector: {{a: b}}, ports: [{{port: 80}}]}}}}
---
{{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {{name: web}}}}
"
    )
}

/// A placement on these clusters, which keeps no old versions.
fn placement(clusters: &[&str]) -> String {
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {{name: web}}
spec:
  resourceSelectors:
  - {{group: '', version: v1, kind: Namespace, name: kept}}
  - {{group: rbac.authorization.k8s.io, version: v1, kind: ClusterRole, name: web}}
  policy: {{placementType: PickFixed, clusterNames: [{}]}}
  revisionHistoryLimit: 1
  strategy: {{rollingUpdate: {{maxUnavailable: 100%, unavailablePeriodSeconds: 1}}}}
",
        clusters.join(", ")
    )
}

/// Whether these clusters have this version, and the status says so.
fn runs(fleet: &Fleet, value: &str, members: &[&str]) -> bool {
    let available = "{.status.conditions[?(@.type==\"ClusterResourcePlacementAvailable\")].status}";
    let shown =
        "{.status.observedResourceIndex}/{.status.placementStatuses[*].observedResourceIndex}";
    let has = |member: &&str| {
        let cm = "{.items[*].data.v}";
        let all = fleet.get(member, "cm new old -n kept", cm);
        all == format!("{value} {value}")
    };
    members.iter().all(has)
        && fleet.get("hub", "crp web", available) == "True"
        && fleet
            .get("hub", "crp web", shown)
            .split_once('/')
            .is_some_and(|(all, each)| {
                each.split(' ').count() == members.len() && each.split(' ').all(|one| one == all)
            })
}

/// Whether nothing that was created is on a cluster, and what was taken over is released.
fn is_left_alone(fleet: &Fleet, member: &str) -> bool {
    let adopted = "{.metadata.ownerReferences}{.metadata.labels}";
    let created = [
        "cm new -n kept",
        "svc s -n kept",
        "clusterrole web",
        "appliedwork web-work",
    ];
    created
        .iter()
        .all(|what| fleet.get(member, what, "{.metadata.name}").is_empty())
        && fleet.get(member, "cm old -n kept", "{.metadata.name}") == "old"
        && fleet.get(member, "cm old -n kept", adopted).is_empty()
}

fn labelled_latest(fleet: &Fleet) -> usize {
    let latest = "crs -l kubernetes-fleet.io/is-latest-snapshot=true";
    let names = fleet.get("hub", latest, "{.items[*].metadata.name}");
    names.split_whitespace().count()
}

/// One life of a placement, with deaths or lost answers in it: so many.
fn live(fleet: &Fleet, deaths: Deaths) -> usize {
    fleet.apply("hub", &content("1"));
    let mut hub = Mortal::start(fleet, deaths);
    fleet.apply("hub", &placement(&MEMBERS));
    hub.survive("it runs", || runs(fleet, "1", &MEMBERS));
    // A change that rolls, prunes an object, expires a version and deselects a cluster.
    fleet.apply("hub", &content("2"));
    fleet.kubectl("hub", "delete svc s -n kept");
    fleet.apply("hub", &placement(&MEMBERS[..1]));
    hub.survive("it has rolled", || {
        runs(fleet, "2", &MEMBERS[..1])
            && fleet
                .get(MEMBERS[0], "svc s -n kept", "{.metadata.name}")
                .is_empty()
            && is_left_alone(fleet, MEMBERS[1])
    });
    hub.survive("one snapshot is the latest", || labelled_latest(fleet) == 1);
    fleet.kubectl("hub", "delete crp web --wait=false");
    hub.survive("nothing of it is left on the hub", || {
        let names = "{.items[*].metadata.name}";
        fleet.get("hub", "crp", names).is_empty()
            && fleet.get("hub", "crb,crs,csps", names).is_empty()
    });
    for member in MEMBERS {
        assert!(is_left_alone(fleet, member), "{deaths:?}: {member}");
    }
    hub.count()
}

#[test]
fn dying_at_every_write() {
    let fleet = Fleet::up("crash", MEMBERS.len());
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    let mut foreign = Vec::new();
    for member in MEMBERS {
        fleet.join(member);
        fleet.apply(member, BEFORE);
        foreign.push(fleet.get(member, "cm foreign -n kept", "{.metadata.resourceVersion}"));
    }
    // A first look at the cluster writes marks and statuses that have nothing to do with placements.
    let hub = alone(&fleet, None);
    eventually("the members have joined", || {
        let healthy = "{.items[*].status.conditions[?(@.type==\"Healthy\")].status}";
        fleet.get("hub", "cluster", healthy) == "True True"
    });
    drop(hub);
    let walk = |mode: &'static str, first: usize, next: usize| {
        let died = live(&fleet, Deaths { mode, first, next });
        println!("{mode}:{first}/{next}: {died}");
        died
    };
    // A hub that never gets further than one write.
    let died = walk("after", 1, 1);
    assert!(died > WRITES, "died {died} times");
    // One that gets further, and has something in mind when it dies. `WINDLASS_TEST_FULL=1` walks them all.
    let full = std::env::var_os("WINDLASS_TEST_FULL").is_some();
    for first in (1..=STRIDE).step_by(if full { 1 } else { 2 }) {
        let died = walk("after", first, STRIDE);
        assert!(died > WRITES / STRIDE / 2, "died {died} times");
    }
    // To die before a write is to die after the one before, but for writes that are under way together;
    // so, and for lost answers, some do.
    for (mode, first) in [("before", 1), ("lost", 2)] {
        let last = if full { first + STRIDE - 1 } else { first };
        for first in first..=last {
            let died = walk(mode, first, STRIDE);
            assert!(died > WRITES / STRIDE / 2, "{mode}: {died} times");
        }
    }
    for (member, version) in MEMBERS.iter().zip(foreign) {
        assert_eq!(
            fleet.get(member, "cm foreign -n kept", "{.metadata.resourceVersion}"),
            version,
            "what is not selected is not touched"
        );
    }
}

/// Changes roll through while the hub is killed at instants that look random, and are the same each time.
#[test]
fn dying_at_any_instant() {
    let fleet = Fleet::up("instants", 2);
    let members = MEMBERS;
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    members.iter().for_each(|member| fleet.join(member));
    let foreign = "{apiVersion: v1, kind: Namespace, metadata: {name: foreign}}";
    let mut versions = Vec::new();
    for member in members {
        fleet.apply(member, foreign);
        versions.push(fleet.get(member, "ns foreign", "{.metadata.resourceVersion}"));
    }
    fleet.apply("hub", &content("0"));
    fleet.apply("hub", &placement(&members));
    let mut instant = 7_u64;
    for kill in 1..=KILLS {
        // Each third one dies while it starts.
        let hub = match kill % 3 {
            0 => fleet.spawn_hub(&ALONE),
            _ => alone(&fleet, None),
        };
        fleet.apply("hub", &content(&kill.to_string()));
        // Knuth's linear congruential generator; the upper bits are the good ones.
        instant = instant
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(std::time::Duration::from_millis((instant >> 33) % 600));
        drop(hub);
    }
    let last = KILLS.to_string();
    let hub = alone(&fleet, None);
    eventually("the last change is everywhere, and that is said", || {
        runs(&fleet, &last, &members)
    });
    eventually("one snapshot is the latest", || {
        labelled_latest(&fleet) == 1
    });
    for (member, version) in members.iter().zip(versions) {
        assert_eq!(
            fleet.get(member, "ns foreign", "{.metadata.resourceVersion}"),
            version,
            "what is not selected is not touched"
        );
    }
    // And in the midst of the end.
    fleet.kubectl("hub", "delete crp web --wait=false");
    drop(hub);
    let hub = alone(&fleet, None);
    fleet.kubectl("hub", "wait --for=delete crp/web --timeout=60s");
    assert_eq!(
        fleet.get("hub", "crb,crs,csps", "{.items[*].metadata.name}"),
        ""
    );
    for member in members {
        for what in ["appliedworks", "clusterrole web", "ns kept"] {
            assert_eq!(fleet.get(member, what, "{..metadata.name}"), "", "{what}");
        }
    }
    drop(hub);
}

/// What is on the members before: a namespace with an object that is taken over, and one that is not.
const BEFORE: &str = r"
{apiVersion: v1, kind: Namespace, metadata: {name: kept}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: old, namespace: kept}, data: {v: '0'}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: foreign, namespace: kept}, data: {v: '0'}}
";
