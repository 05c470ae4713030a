//! Member clusters on a real fleet: credentials that change, and clusters that leave and come back.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[path = "clusters/dying.rs"]
mod dying;
#[path = "clusters/profiles.rs"]
mod profiles;
#[path = "clusters/refused.rs"]
mod refused;

use serde_json::{Value, json};
use windlass_tests::{Fleet, eventually};

const MEMBERS: [&str; 3] = ["member-1", "member-2", "member-3"];

/// What is on the hub: two namespaces, one of which member-1 has already.
const APPS: &str = r"
{apiVersion: v1, kind: Namespace, metadata: {name: app}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: app}, data: {a: '0'}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: old}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: theirs, namespace: old}, data: {a: hub}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: new, namespace: old}, data: {a: hub}}
";

/// What is on member-1 before it joins.
const BEFORE: &str = r"
{apiVersion: v1, kind: Namespace, metadata: {name: old}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: theirs, namespace: old}, data: {a: member}}
";

const RIGHTS: &str = "[{apiGroups: [''], resources: [namespaces, configmaps], verbs: ['*']}, {apiGroups: ['*'], resources: ['*'], verbs: [list]}]";

fn placement(name: &str) -> String {
    format!(
        "
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {{name: {name}}}
spec:
  resourceSelectors: [{{group: '', version: v1, kind: Namespace, name: {name}}}]
  # One cluster that can't be reached uses up a small budget.
  strategy: {{rollingUpdate: {{maxUnavailable: 100%}}}}
"
    )
}

#[test]
fn clusters_change_leave_and_come_back() {
    let mut fleet = Fleet::up("clusters", 3);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    refused::member_clusters(&fleet);
    fleet.start_hub();
    fleet.apply("member-1", BEFORE);
    // With no more rights there than it needs, for what is placed and for itself.
    let rights = std::env::temp_dir().join(format!("windlass-rights-{}", std::process::id()));
    std::fs::write(&rights, RIGHTS).unwrap();
    fleet.join_with("member-1", &["--rights", &rights.to_string_lossy()]);
    std::fs::remove_file(&rights).unwrap();
    for member in &MEMBERS[1..] {
        fleet.join(member);
    }
    let (hub, first) = (fleet.kubeconfig("hub"), fleet.kubeconfig("member-1"));
    let again = [
        "join",
        "other",
        "--hub-kubeconfig",
        &hub.to_string_lossy(),
        "--member-kubeconfig",
        &first.to_string_lossy(),
    ];
    let error = fleet.windlass(&again).unwrap_err();
    assert!(
        error.contains("in the fleet already, as member-1"),
        "{error}"
    );
    fleet.apply("hub", APPS);
    fleet.apply("hub", &placement("app"));
    fleet.apply("hub", &placement("old"));
    for name in ["app", "old"] {
        eventually("everything is placed", || is_on(&fleet, name, &MEMBERS));
    }
    taints_keep_new_placements_away(&fleet);
    profiles::are_kept(&fleet);
    credentials_are_rotated(&fleet);
    a_token_that_is_not_accepted_is_told_and_mended(&fleet);
    a_token_is_renewed_when_it_is_due(&fleet);
    a_kubeconfig_that_reaches_outside_is_refused(&fleet);
    a_placement_can_not_decide_any_more(&fleet);
    a_purged_cluster_keeps_what_was_there_before(&fleet);
    a_cluster_that_left_comes_back(&fleet);
    a_cluster_that_is_still_leaving_is_waited_for(&fleet);
    an_unreachable_cluster_leaves_things_behind_and_says_so(&mut fleet);
    a_cluster_that_was_given_up_comes_back(&fleet);
}

/// Whether a placement is available on exactly these clusters.
fn is_on(fleet: &Fleet, placement: &str, members: &[&str]) -> bool {
    let what = format!("crp {placement}");
    let names = fleet.get("hub", &what, "{.status.placementStatuses[*].clusterName}");
    let available = "{.status.conditions[?(@.type==\"ClusterResourcePlacementAvailable\")].status}";
    let each = "{.status.placementStatuses[*].conditions[?(@.type==\"Available\")].status}";
    names == members.join(" ")
        && fleet.get("hub", &what, available) == "True"
        && fleet.get("hub", &what, each) == vec!["True"; members.len()].join(" ")
}

fn condition(fleet: &Fleet, cluster: &str, type_: &str, field: &str) -> String {
    let path = format!("{{.status.conditions[?(@.type==\"{type_}\")].{field}}}");
    fleet.get("hub", &format!("cluster {cluster}"), &path)
}

fn secret_of(cluster: &str) -> String {
    format!("secret windlass-cluster-{cluster} -n fleet-system")
}

fn stored(fleet: &Fleet, cluster: &str) -> Value {
    let get = format!(
        "get {} -o go-template={{{{.data.kubeconfig|base64decode}}}}",
        secret_of(cluster)
    );
    serde_json::from_str(&fleet.kubectl("hub", &get)).unwrap()
}

fn store(fleet: &Fleet, cluster: &str, kubeconfig: &Value) {
    let patch = json!({ "stringData": { "kubeconfig": kubeconfig.to_string() } });
    fleet.kubectl(
        "hub",
        &format!("patch {} --type merge -p {patch}", secret_of(cluster)),
    );
}

/// Changes what is placed, and waits until a cluster has it.
fn deliveries_go_on(fleet: &Fleet, member: &str) {
    let old = fleet.get("hub", "cm c -n app", "{.data.a}");
    let new = (old.parse::<u32>().unwrap() + 1).to_string();
    change(fleet, &new);
    eventually("a change arrives", || has(fleet, member, &new));
}

fn change(fleet: &Fleet, value: &str) {
    fleet.apply("hub", &format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: c, namespace: app}}, data: {{a: '{value}'}}}}"));
}

fn has(fleet: &Fleet, member: &str, value: &str) -> bool {
    fleet.get(member, "cm c -n app", "{.data.a}") == value
}

/// What runs stays where it is; what is new keeps away, unless it tolerates the taint.
fn taints_keep_new_placements_away(fleet: &Fleet) {
    let taint = "patch cluster member-2 --type merge -p {\"spec\":{\"taints\":[{\"key\":\"drain\",\"value\":\"now\",\"effect\":\"NoSchedule\"}]}}";
    fleet.kubectl("hub", taint);
    fleet.apply(
        "hub",
        "{apiVersion: v1, kind: Namespace, metadata: {name: late}}",
    );
    fleet.apply(
        "hub",
        "{apiVersion: v1, kind: Namespace, metadata: {name: bold}}",
    );
    fleet.apply("hub", &placement("late"));
    let tolerates = "  policy: {placementType: PickAll, tolerations: [{key: drain, operator: Equal, value: now}]}\n";
    fleet.apply("hub", &(placement("bold") + tolerates));
    eventually("it is placed where it may", || {
        is_on(fleet, "late", &["member-1", "member-3"]) && is_on(fleet, "bold", &MEMBERS)
    });
    assert_eq!(fleet.get("member-2", "ns late", "{.metadata.name}"), "");
    deliveries_go_on(fleet, "member-2");
    assert!(is_on(fleet, "app", &MEMBERS), "what runs stays");
    fleet.kubectl(
        "hub",
        "patch cluster member-2 --type merge -p {\"spec\":{\"taints\":null}}",
    );
    eventually("without the taint it goes there, too", || {
        is_on(fleet, "late", &MEMBERS)
    });
    fleet.kubectl("hub", "delete crp late bold --timeout=60s");
}

fn credentials_are_rotated(fleet: &Fleet) {
    let before = stored(fleet, "member-3");
    fleet.join("member-3");
    assert_ne!(
        stored(fleet, "member-3"),
        before,
        "the token is another one"
    );
    deliveries_go_on(fleet, "member-3");
    assert_eq!(
        condition(fleet, "member-3", "CredentialsValid", "status"),
        "True"
    );
}

fn a_token_that_is_not_accepted_is_told_and_mended(fleet: &Fleet) {
    let good = stored(fleet, "member-1");
    let mut bad = good.clone();
    bad["users"][0]["user"]["token"] = json!("broken");
    store(fleet, "member-1", &bad);
    eventually("it is said, and what to do", || {
        condition(fleet, "member-1", "CredentialsValid", "status") == "False"
            && condition(fleet, "member-1", "CredentialsValid", "message")
                .contains("run windlass join member-1 again")
    });
    change(fleet, "100");
    eventually("the others get a change", || {
        has(fleet, "member-2", "100") && has(fleet, "member-3", "100")
    });
    assert!(!has(fleet, "member-1", "100"));
    store(fleet, "member-1", &good);
    eventually("it works again", || {
        condition(fleet, "member-1", "CredentialsValid", "status") == "True"
            && condition(fleet, "member-1", "Healthy", "status") == "True"
    });
    eventually("what was missed arrives", || has(fleet, "member-1", "100"));
    eventually("that is said", || is_on(fleet, "app", &MEMBERS));
}

fn a_token_is_renewed_when_it_is_due(fleet: &Fleet) {
    let expiry = || {
        let metrics = fleet.http("/metrics").unwrap_or_default();
        let series = "windlass_member_token_expiry_timestamp_seconds{cluster=\"member-2\"} ";
        let value = metrics.lines().find_map(|line| line.strip_prefix(series));
        value.and_then(|value| value.parse::<i64>().ok())
    };
    eventually("it is known when the token expires", || expiry().is_some());
    let (before, expired) = (stored(fleet, "member-2"), expiry());
    fleet.kubectl(
        "hub",
        &format!(
            "annotate {} --overwrite windlass.dev/token-issued=2020-01-01T00:00:00Z",
            secret_of("member-2")
        ),
    );
    eventually("there is a new token", || {
        stored(fleet, "member-2") != before
    });
    eventually("it expires later", || expiry() > expired);
    deliveries_go_on(fleet, "member-2");
    assert_eq!(
        condition(fleet, "member-2", "CredentialsValid", "status"),
        "True"
    );
}

fn a_kubeconfig_that_reaches_outside_is_refused(fleet: &Fleet) {
    let good = stored(fleet, "member-2");
    let exec = json!({ "command": "sh", "apiVersion": "client.authentication.k8s.io/v1" });
    for (pointer, field, value) in [
        ("/users/0/user", "exec", exec),
        (
            "/users/0/user",
            "auth-provider",
            json!({ "name": "x", "config": {} }),
        ),
        ("/users/0/user", "tokenFile", json!("/token")),
        ("/users/0/user", "client-certificate", json!("/cert")),
        ("/users/0/user", "client-key", json!("/key")),
        ("/clusters/0/cluster", "certificate-authority", json!("/ca")),
    ] {
        let mut bad = good.clone();
        bad.pointer_mut(pointer).unwrap()[field] = value;
        store(fleet, "member-2", &bad);
        eventually("it is refused, by the field's name", || {
            condition(fleet, "member-2", "CredentialsValid", "status") == "False"
                && condition(fleet, "member-2", "CredentialsValid", "message")
                    .contains(&format!("has {field};"))
        });
    }
    assert_eq!(condition(fleet, "member-2", "Healthy", "status"), "False");
    store(fleet, "member-2", &good);
    eventually("it is accepted again", || {
        condition(fleet, "member-2", "CredentialsValid", "status") == "True"
            && condition(fleet, "member-2", "Healthy", "status") == "True"
    });
    deliveries_go_on(fleet, "member-2");
}

/// Nothing is left that is the hub's: no inventory, no mark, no right.
fn nothing_of_the_hubs(fleet: &Fleet, member: &str) {
    let names = |what: &str| fleet.get(member, what, "{.items[*].metadata.name}");
    // The cluster's garbage collector orphans what they own, of which there is nothing, a moment later.
    eventually("the inventory is gone", || names("appliedworks").is_empty());
    assert_eq!(names("ns,cm -A -l windlass.dev/placed"), "");
    let owners = fleet.get(member, "ns,cm -A", "{.items[*].metadata.ownerReferences}");
    assert_eq!(owners, "");
    // The garbage collector takes the last of them a moment later.
    eventually("the hub's rights are gone", || {
        [
            "clusterrole windlass-hub",
            "clusterrolebinding windlass-hub",
            "serviceaccount windlass-hub -n fleet-system",
        ]
        .iter()
        .all(|what| fleet.get(member, what, "{.metadata.name}").is_empty())
    });
    assert_eq!(fleet.get("hub", &secret_of(member), "{.metadata.name}"), "");
    assert_eq!(
        fleet.get("hub", &format!("cluster {member}"), "{.metadata.name}"),
        ""
    );
}

/// Somebody breaks its selectors: what runs stays. Clusters leave all the same from here on, with what they
/// have of it.
fn a_placement_can_not_decide_any_more(fleet: &Fleet) {
    let stuck = "{apiVersion: v1, kind: Namespace, metadata: {name: stuck}}";
    fleet.apply("hub", stuck);
    fleet.apply("hub", &placement("stuck"));
    eventually("it is placed", || is_on(fleet, "stuck", &MEMBERS));
    let broken = "{group: '', version: v1, kind: Namespace, name: stuck}, {group: example.com, version: v1, kind: Nothing, name: x}";
    let whole = "{group: '', version: v1, kind: Namespace, name: stuck}";
    fleet.apply("hub", &placement("stuck").replace(whole, broken));
    eventually("its status says so", || {
        stuck_condition(fleet, "Scheduled", "status") == "False"
    });
    assert_eq!(
        fleet.get("member-1", "ns stuck", "{.status.phase}"),
        "Active"
    );
}

fn stuck_condition(fleet: &Fleet, type_: &str, field: &str) -> String {
    let path =
        format!("{{.status.conditions[?(@.type==\"ClusterResourcePlacement{type_}\")].{field}}}");
    fleet.get("hub", "crp stuck", &path)
}

fn a_purged_cluster_keeps_what_was_there_before(fleet: &Fleet) {
    fleet.kubectl("member-1", "create cm foreign -n app");
    let said = fleet.leave("member-1", &["--purge", "--timeout", "8"]);
    let said = said.unwrap_err();
    assert!(
        said.contains("has not left within 8 s: ") && said.contains("holds ConfigMap foreign"),
        "{said}"
    );
    fleet.kubectl("member-1", "delete cm foreign -n app");
    let said = fleet.leave("member-1", &["--purge"]).unwrap();
    for words in [
        "was removed, what it had taken over stays",
        "no rights there any more",
    ] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(fleet.get("member-1", "ns app", "{.metadata.name}"), "");
    assert_eq!(
        fleet.get("member-1", "cm new -n old", "{.metadata.name}"),
        ""
    );
    assert_eq!(fleet.get("member-1", "ns old", "{.status.phase}"), "Active");
    assert_eq!(
        fleet.get("member-1", "cm theirs -n old", "{.data.a}"),
        "hub"
    );
    assert_eq!(fleet.get("member-1", "ns stuck", "{.metadata.name}"), "");
    nothing_of_the_hubs(fleet, "member-1");
    for name in ["app", "old"] {
        eventually("the placement is on the others", || {
            is_on(fleet, name, &MEMBERS[1..])
        });
    }
    let entries = "{.status.placementStatuses[*].clusterName}";
    eventually("what can't decide tells of the others, too", || {
        fleet.get("hub", "crp stuck", entries) == MEMBERS[1..].join(" ")
    });
    for (type_, status, generation) in [("Scheduled", "False", "2"), ("Available", "True", "1")] {
        assert_eq!(stuck_condition(fleet, type_, "status"), status);
        let told = stuck_condition(fleet, type_, "observedGeneration");
        assert_eq!(told, generation, "{type_}");
    }
}

fn a_cluster_that_left_comes_back(fleet: &Fleet) {
    fleet.join("member-1");
    eventually("all is placed again", || is_on(fleet, "app", &MEMBERS));
    let said = fleet.leave("member-1", &[]).unwrap();
    for words in ["keeps running, unowned", "no rights there any more"] {
        assert!(said.contains(words), "{said}");
    }
    let value = fleet.get("hub", "cm c -n app", "{.data.a}");
    assert!(has(fleet, "member-1", &value), "what was placed stays");
    nothing_of_the_hubs(fleet, "member-1");
    eventually("the placement is on the others", || {
        is_on(fleet, "app", &MEMBERS[1..])
    });
    fleet.join("member-1");
    eventually("what was left is taken over", || {
        is_on(fleet, "app", &MEMBERS)
    });
    let owner = fleet.get(
        "member-1",
        "cm c -n app",
        "{.metadata.ownerReferences[*].name}",
    );
    assert_eq!(owner, "app-work");
    deliveries_go_on(fleet, "member-1");
}

/// A finalizer of somebody else's keeps the earlier cluster; a join waits, and goes on when it has left.
fn a_cluster_that_is_still_leaving_is_waited_for(fleet: &Fleet) {
    let held = "{\"metadata\":{\"finalizers\":[\"kubernetes-fleet.io/membercluster-finalizer\",\"example.com/hold\"]}}";
    let released = "{\"metadata\":{\"finalizers\":null}}";
    let patch = |finalizers: &str| {
        fleet.kubectl(
            "hub",
            &format!("patch cluster member-1 --type merge -p {finalizers}"),
        )
    };
    patch(held);
    let uid = fleet.get("hub", "cluster member-1", "{.metadata.uid}");
    fleet.kubectl("hub", "delete cluster member-1 --wait=false");
    let (hub, member) = (fleet.kubeconfig("hub"), fleet.kubeconfig("member-1"));
    let (hub, member) = (hub.to_string_lossy(), member.to_string_lossy());
    let join = [
        "join",
        "member-1",
        "--hub-kubeconfig",
        &hub,
        "--member-kubeconfig",
        &member,
    ];
    let refused = fleet
        .windlass(&[&join[..], &["--timeout", "1"]].concat())
        .unwrap_err();
    assert!(
        refused.contains("still leaving, after 1 s") && refused.contains("--force"),
        "{refused}"
    );
    std::thread::scope(|scope| {
        let joined = scope.spawn(|| fleet.windlass(&join));
        eventually("the hub has let it go", || {
            fleet.get("hub", "cluster member-1", "{.metadata.finalizers}")
                == "[\"example.com/hold\"]"
        });
        patch(released);
        let said = joined.join().unwrap().unwrap();
        assert!(
            said.contains("MemberCluster member-1 is in place"),
            "{said}"
        );
    });
    assert_ne!(fleet.get("hub", "cluster member-1", "{.metadata.uid}"), uid);
    eventually("what was left is taken over", || {
        is_on(fleet, "app", &MEMBERS)
    });
    deliveries_go_on(fleet, "member-1");
}

fn an_unreachable_cluster_leaves_things_behind_and_says_so(fleet: &mut Fleet) {
    fleet.kill_hub();
    fleet.start_hub_with(&["--force-delete-wait-time", "8s"]);
    eventually("the hub is connected", || {
        fleet
            .http("/metrics")
            .unwrap_or_default()
            .contains("windlass_member_healthy{cluster=\"member-3\"} 1")
    });
    fleet.control("stop", "member-3");
    eventually("its profile says so", || {
        profiles::health(fleet, "member-3") == "MemberAgentHeartbeatLost"
    });
    let said = fleet
        .leave("member-3", &["--purge", "--timeout", "2"])
        .unwrap_err();
    assert!(
        said.contains("the cluster can't be reached: ")
            && said.contains("windlass leave member-3 --force"),
        "{said}"
    );
    // pages.rs does not wait, with --force.
    let said = fleet.leave("member-3", &["--purge"]).unwrap();
    for words in [
        "Leaving without the cluster; left behind on it: AppliedWork app-work of placement app with Namespace app, \
         ConfigMap app/c; AppliedWork old-work of placement old with Namespace old, ConfigMap old/new, ConfigMap old/theirs",
        "ServiceAccount fleet-system/windlass-hub, ClusterRole and ClusterRoleBinding windlass-hub are left behind",
        "member-3 has left",
        "kubectl delete serviceaccount windlass-hub",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("was removed"), "{said}");
    let events = "events.v1.events.k8s.io --field-selector reason=MemberClusterLeftBehind";
    eventually("events tell of it when the cluster is gone", || {
        let notes = fleet.get("hub", events, "{.items[*].note}");
        notes.contains("AppliedWork old-work of placement old")
            && notes.contains("ServiceAccount fleet-system/windlass-hub")
    });
    assert!(
        fleet
            .log()
            .contains("left behind on the cluster: AppliedWork app-work of placement app")
    );
    assert_eq!(profiles::field(fleet, "member-3", "{.metadata.name}"), "");
    assert_eq!(fleet.get("hub", "cluster member-3", "{.metadata.name}"), "");
    for name in ["app", "old"] {
        eventually("the placement is on the others", || {
            is_on(fleet, name, &MEMBERS[..2])
        });
    }
    deliveries_go_on(fleet, "member-2");
}

fn a_cluster_that_was_given_up_comes_back(fleet: &Fleet) {
    fleet.control("start", "member-3");
    let work = fleet.get("member-3", "appliedwork app-work", "{.metadata.uid}");
    assert!(!work.is_empty(), "it was left behind");
    fleet.join("member-3");
    eventually("what was left is taken over", || {
        is_on(fleet, "app", &MEMBERS)
    });
    assert_eq!(
        fleet.get("member-3", "appliedwork app-work", "{.metadata.uid}"),
        work
    );
    deliveries_go_on(fleet, "member-3");
}
