//! What a tenant of the hub may try, and what comes of it: the table of docs/deploy.md on a real API server.
//!
//! The tenant has every right of RBAC on every kind that matters, so that it is the guard rails that refuse.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[path = "attacks/planted.rs"]
mod planted;

use windlass_tests::agents::may_bypass;
use windlass_tests::{Fleet, condition, eventually, root};

const SETTING: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: tenant}
rules:
- apiGroups: ['', apps, placement.kubernetes-fleet.io, cluster.kubernetes-fleet.io, apiextensions.k8s.io,
    coordination.k8s.io, rbac.authorization.k8s.io]
  resources: ['*']
  verbs: ['*']
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenant}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: agent}]
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {a: '1'}
";

const SECRET: &str = "{apiVersion: v1, kind: Secret, metadata: {name: NAME, namespace: NS, \
                      labels: {windlass.dev/cluster: evil}}}";

const CLUSTER: &str = r"
apiVersion: cluster.kubernetes-fleet.io/v1beta1
kind: MemberCluster
metadata: {name: NAME, annotations: {windlass.dev/delivery: push}}
spec: {identity: {kind: ServiceAccount, name: windlass-hub, namespace: fleet-system}}
";

fn placement(name: &str, selector: &str) -> String {
    format!(
        "apiVersion: placement.kubernetes-fleet.io/v1beta1\nkind: ClusterResourcePlacement\n\
         metadata: {{name: {name}}}\nspec:\n  \
         resourceSelectors: [{{group: '', version: v1, kind: Namespace, {selector}}}]\n"
    )
}

#[test]
fn attacks_are_refused_or_without_effect() {
    let mut fleet = Fleet::up("attacks", 1);
    let folder = |path: &str| root().join(path).to_string_lossy().into_owned();
    let apply = |path: &str| format!("apply --server-side -k {}", folder(path));
    fleet.kubectl("hub", &apply("crds"));
    fleet.kubectl("hub", &apply("deploy/base"));
    fleet.kubectl(
        "hub",
        "wait --for=condition=Established crd --all --timeout=30s",
    );
    fleet.apply("hub", SETTING);
    fleet.start_hub_as(&fleet.account("windlass"), &[]);
    fleet.join("member-1");
    // First with RBAC alone, as a hub without guard rails has it.
    planted_credentials_are_not_read(&fleet);
    exec_in_a_kubeconfig_is_refused(&fleet);
    reserved_namespaces_are_not_placed(&fleet);
    credentials_are_not_placed(&fleet);
    planted::snapshots_carry_nothing_outside(&fleet);
    // The folder is applied as a whole: an administrator is not in the way of his own guard rails.
    fleet.kubectl("hub", &apply("deploy"));
    eventually("the guard rails stand", || {
        POLICIES.iter().all(|policy| is_in_force(&fleet, policy))
    });
    fleet.kubectl("hub", &apply("deploy"));
    what_is_refused(&fleet);
    planted::is_refused_by_guard_rails(&fleet);
    what_stays_allowed(&fleet);
    what_was_planted_before_can_go(&fleet);
    the_fleet_still_works(&fleet);
}

/// Each policy, and a request that it refuses. It takes the API server a moment to take note of a policy.
const POLICIES: [&str; 7] = [
    "create secret generic probe -n fleet-system --as=tenant",
    "create ns fleet-probe --as=tenant",
    "run probe --image=example/probe -n shop",
    "delete crd memberclusters.cluster.kubernetes-fleet.io --as=tenant",
    "label secret plain -n shop windlass.dev/cluster=probe",
    "annotate cluster member-1 windlass.dev/delivery=probe --overwrite --as=tenant",
    "patch cluster member-1 --subresource=status --type=merge -p {} --as=tenant",
];

fn is_in_force(fleet: &Fleet, request: &str) -> bool {
    fleet
        .try_kubectl("hub", &format!("{request} --dry-run=server"), None)
        .is_err_and(|error| error.contains("ValidatingAdmissionPolicy"))
}

fn cluster_says(fleet: &Fleet, name: &str, words: &str) -> bool {
    fleet
        .get(
            "hub",
            &format!("cluster {name}"),
            "{.status.conditions[*].message}",
        )
        .contains(words)
}

/// A Secret in the tenant's namespace with the name and label that the hub's own have. It leads to a server
/// of the tenant's, which nobody may call.
fn planted_credentials_are_not_read(fleet: &Fleet) {
    let trap = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    let text = kubeconfig(
        &format!("http://{}", trap.local_addr().unwrap()),
        "token: t",
    );
    store(fleet, "shop", "evil", &text, "--as=tenant");
    let cluster = CLUSTER.replace("NAME", "evil");
    fleet
        .try_kubectl("hub", "create -f - --as=tenant", Some(&cluster))
        .unwrap();
    eventually(
        "the hub looks for credentials in its own namespace only",
        || cluster_says(fleet, "evil", "Secret fleet-system/windlass-cluster-evil"),
    );
    let called = trap.accept().map_err(|error| error.kind());
    assert_eq!(called.err(), Some(std::io::ErrorKind::WouldBlock));
    fleet.kubectl("hub", "delete cluster evil --timeout=60s");
}

/// An administrator may be talked into storing a kubeconfig that would run a program on the hub.
fn exec_in_a_kubeconfig_is_refused(fleet: &Fleet) {
    let mark = fleet.kubeconfig("mark");
    let user = format!(
        "exec: {{apiVersion: client.authentication.k8s.io/v1, command: touch, args: ['{}'], interactiveMode: Never}}",
        mark.display()
    );
    store(
        fleet,
        "fleet-system",
        "exec",
        &kubeconfig("https://127.0.0.1:1", &user),
        "",
    );
    fleet.apply("hub", &CLUSTER.replace("NAME", "exec"));
    eventually("the field is named", || {
        cluster_says(fleet, "exec", "user \"u\" has exec")
            && fleet.get(
                "hub",
                "cluster exec",
                "{.status.conditions[?(@.type==\"CredentialsValid\")].status}",
            ) == "False"
    });
    assert!(!mark.exists(), "the program was run");
    fleet.kubectl("hub", "delete secret windlass-cluster-exec -n fleet-system");
    fleet.kubectl("hub", "delete cluster exec --timeout=60s");
}

fn kubeconfig(server: &str, user: &str) -> String {
    format!(
        "{{current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: '{server}'}}}}], users: [{{name: u, user: {{{user}}}}}]}}"
    )
}

fn store(fleet: &Fleet, namespace: &str, cluster: &str, kubeconfig: &str, who: &str) {
    let name = format!("windlass-cluster-{cluster}");
    let manifest = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": { "kubeconfig": kubeconfig },
        "metadata": { "name": name, "namespace": namespace, "labels": { "windlass.dev/cluster": cluster } },
    });
    fleet
        .try_kubectl(
            "hub",
            &format!("create -f - {who}"),
            Some(&manifest.to_string()),
        )
        .unwrap();
}

fn reserved_namespaces_are_not_placed(fleet: &Fleet) {
    let rows = [
        ("by-name", "name: fleet-system"),
        (
            "by-label",
            "labelSelector: {matchLabels: {kubernetes.io/metadata.name: fleet-system}}",
        ),
        ("all", "labelSelector: {}"),
        ("bare", "name: fleet-system, selectionScope: NamespaceOnly"),
        ("kube", "name: kube-system"),
    ];
    for (name, selector) in rows {
        let manifest = placement(name, selector);
        fleet
            .try_kubectl("hub", "create -f - --as=tenant", Some(&manifest))
            .unwrap();
    }
    for (name, _) in rows {
        eventually("the condition says that the namespace is reserved", || {
            condition(fleet, name, "Scheduled", "status") == "False"
                && condition(fleet, name, "Scheduled", "message").contains("reserved")
        });
        let label = format!("crs,crb -l kubernetes-fleet.io/parent-CRP={name}");
        assert_eq!(
            fleet.get("hub", &label, "{.items[*].metadata.name}"),
            "",
            "{name}"
        );
        fleet.kubectl("hub", &format!("delete crp {name} --timeout=60s"));
    }
}

/// The namespace holds the Secret that was planted, and a plain one, which goes where the namespace goes.
fn credentials_are_not_placed(fleet: &Fleet) {
    fleet.kubectl(
        "hub",
        "create secret generic plain -n shop --from-literal=a=b",
    );
    let manifest = placement("shop", "name: shop");
    fleet
        .try_kubectl("hub", "create -f - --as=tenant", Some(&manifest))
        .unwrap();
    eventually("the namespace is placed", || {
        condition(fleet, "shop", "Available", "status") == "True"
            && fleet.get("member-1", "secret plain -n shop", "{.metadata.name}") == "plain"
    });
    assert_eq!(
        fleet.get(
            "hub",
            "secret windlass-cluster-evil -n shop",
            "{.metadata.name}"
        ),
        "windlass-cluster-evil"
    );
    assert_eq!(
        fleet.get(
            "member-1",
            "secret windlass-cluster-evil -n shop",
            "{.metadata.name}"
        ),
        ""
    );
    for what in ["crs", "crp shop"] {
        let text = fleet.kubectl("hub", &format!("get {what} -o json"));
        assert!(!text.contains("windlass-cluster-evil"), "{what}: {text}");
    }
}

fn binding(fleet: &Fleet) -> String {
    let label = "crb -l kubernetes-fleet.io/parent-CRP=shop";
    fleet.get("hub", label, "{.items[0].metadata.name}")
}

/// Who asks for what, and what the answer says.
fn what_is_refused(fleet: &Fleet) {
    let binding = binding(fleet);
    let at = |text: &str| text.replace("BINDING", &binding);
    let planted = SECRET.replace("NAME", "planted").replace("NS", "shop");
    let own = "belong in namespace fleet-system only";
    let of_fleet = "it belongs to the fleet";
    let only_hub = "only the hub does";
    let rows: [(&str, &str, &str, &str); 35] = [
        ("tenant", "create -f -", &planted, own),
        ("admin", "create -f -", &planted, own),
        (
            "tenant",
            "label secret plain -n shop windlass.dev/cluster=evil",
            "",
            own,
        ),
        (
            "tenant",
            "create secret generic mine -n fleet-system",
            "",
            of_fleet,
        ),
        (
            "tenant",
            "label secret windlass-cluster-member-1 -n fleet-system a=b",
            "",
            of_fleet,
        ),
        (
            "tenant",
            "delete secret windlass-cluster-member-1 -n fleet-system",
            "",
            of_fleet,
        ),
        (
            "tenant",
            "create token windlass -n fleet-system",
            "",
            of_fleet,
        ),
        ("tenant", "create sa mine -n fleet-system", "", of_fleet),
        (
            "tenant",
            "create rolebinding mine -n fleet-system --clusterrole=tenant --user=tenant",
            "",
            of_fleet,
        ),
        (
            "tenant",
            "create -f -",
            "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: windlass-hub, namespace: fleet-system}}",
            of_fleet,
        ),
        (
            "tenant",
            "scale deploy windlass-hub -n fleet-system --replicas=0",
            "",
            of_fleet,
        ),
        (
            "tenant",
            "create --raw /api/v1/namespaces/fleet-system/pods/windlass-hub-0/exec?command=sh -f -",
            "{}",
            of_fleet,
        ),
        (
            "tenant",
            "delete ns fleet-system",
            "",
            "belong to the fleet",
        ),
        (
            "tenant",
            "create ns fleet-member-mine",
            "",
            "belong to the fleet",
        ),
        (
            "tenant",
            "label ns shop windlass.dev/allow-workloads=true",
            "",
            "windlass.dev/allow-workloads",
        ),
        (
            "tenant",
            &at(
                "patch crb BINDING --subresource=status --type=merge -p {\"status\":{\"observedDigest\":\"x\"}}",
            ),
            "",
            only_hub,
        ),
        ("tenant", &at("delete crb BINDING"), "", only_hub),
        (
            "tenant",
            &at("patch crb BINDING --type=merge -p {\"spec\":{\"targetCluster\":\"evil\"}}"),
            "",
            "no more of a binding",
        ),
        (
            "tenant",
            &at(
                "patch crb BINDING --type=merge -p {\"spec\":{\"applyStrategy\":{\"whenToTakeOver\":\"Never\"}}}",
            ),
            "",
            "no more of a binding",
        ),
        (
            "tenant",
            &at("label crb BINDING kubernetes-fleet.io/parent-CRP=evil --overwrite"),
            "",
            "no more of a binding",
        ),
        (
            "tenant",
            &at("patch crb BINDING --type=merge -p {\"metadata\":{\"finalizers\":null}}"),
            "",
            "finalizers",
        ),
        ("tenant", "delete crs shop-0-snapshot", "", only_hub),
        (
            "tenant",
            "label crs --all kubernetes-fleet.io/is-latest-snapshot=false --overwrite",
            "",
            only_hub,
        ),
        ("tenant", "delete csps --all", "", only_hub),
        (
            "tenant",
            "patch crp shop --subresource=status --type=merge -p {\"status\":{\"observedResourceIndex\":\"9\"}}",
            "",
            only_hub,
        ),
        (
            "tenant",
            "patch crp shop --type=merge -p {\"metadata\":{\"finalizers\":null}}",
            "",
            "finalizers",
        ),
        (
            "tenant",
            "patch cluster member-1 --subresource=status --type=merge -p {\"status\":{\"conditions\":[]}}",
            "",
            only_hub,
        ),
        (
            "tenant",
            "annotate cluster member-1 windlass.dev/delivery-",
            "",
            "windlass.dev/delivery",
        ),
        (
            "tenant",
            "annotate cluster member-1 windlass.dev/purge=true",
            "",
            "windlass.dev/purge",
        ),
        (
            "tenant",
            "annotate cluster member-1 windlass.dev/force-leave=true",
            "",
            "windlass.dev/force-leave",
        ),
        (
            "tenant",
            "annotate cluster member-1 windlass.dev/migrate-to=pull",
            "",
            "windlass.dev/migrate-to",
        ),
        (
            "tenant",
            "patch cluster member-1 --type=merge -p {\"spec\":{\"identity\":{\"name\":\"evil\"}}}",
            "",
            "spec.identity",
        ),
        (
            "tenant",
            "delete crd clusterresourceplacements.placement.kubernetes-fleet.io",
            "",
            "CRDs of the fleet",
        ),
        (
            "admin",
            "run mine --image=example/a -n shop",
            "",
            "not run on the hub",
        ),
        (
            "system:serviceaccount:kube-system:deployment-controller",
            "create -f -",
            REPLICA_SET,
            "not run on the hub",
        ),
    ];
    for (who, what, input, expected) in rows {
        let error = ask(fleet, who, what, input).unwrap_err();
        assert!(
            error.contains("ValidatingAdmissionPolicy") && error.contains(expected),
            "{who}: {what}: {error}"
        );
    }
    assert_eq!(self::binding(fleet), binding);
    assert_eq!(condition(fleet, "shop", "Available", "status"), "True");
}

const REPLICA_SET: &str = r"
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: mine, namespace: shop}
spec:
  selector: {matchLabels: {a: b}}
  template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: example/a}]}}
";

const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: NS}, spec: {securityContext: \
                   {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, containers: [{name: a, \
                   image: example/a, securityContext: {allowPrivilegeEscalation: false, capabilities: \
                   {drop: [ALL]}}}]}}";

fn ask(fleet: &Fleet, who: &str, what: &str, input: &str) -> Result<String, String> {
    let who = match who {
        "admin" => String::new(),
        other => format!(" --as={other}"),
    };
    fleet.try_kubectl("hub", &format!("{what}{who}"), Some(input))
}

/// What people and the control plane do every day. Nothing is changed by asking.
fn what_stays_allowed(fleet: &Fleet) {
    fleet.apply(
        "hub",
        "{apiVersion: cluster.kubernetes-fleet.io/v1beta1, kind: MemberCluster, metadata: {name: agent}, \
         spec: {identity: {kind: User, name: agent}}}",
    );
    fleet.kubectl("hub", "create ns tools");
    fleet.kubectl("hub", "label ns tools windlass.dev/allow-workloads=true");
    // A member's agent may write in its own namespace, whatever RBAC lets it do elsewhere.
    eventually("the hub lets the agent past the guard rails there", || {
        may_bypass(fleet, "agent", "fleet-member-agent")
    });
    let binding = binding(fleet);
    let snapshot = format!(
        "patch crb {binding} --type=merge -p {{\"spec\":{{\"resourceSnapshotName\":\"shop-0-snapshot\",\"state\":\"Scheduled\"}}}}"
    );
    let controller = |name: &str| format!("system:serviceaccount:kube-system:{name}");
    let (replicas, namespaces) = (
        controller("replicaset-controller"),
        controller("namespace-controller"),
    );
    let pod = |namespace: &str| POD.replace("NS", namespace);
    let rows: [(&str, &str, &str); 17] = [
        ("tenant", "create cm mine -n shop", ""),
        ("tenant", "create deploy mine -n shop --image=example/a", ""),
        ("tenant", "create secret generic mine -n shop", ""),
        ("tenant", "create -f -", &placement("mine", "name: shop")),
        ("tenant", "delete crp shop", ""),
        ("tenant", "label cluster member-1 zone=b", ""),
        (
            "tenant",
            "patch cluster member-1 --type=merge -p {\"spec\":{\"taints\":[{\"key\":\"a\",\"effect\":\"NoSchedule\"}]}}",
            "",
        ),
        ("tenant", &snapshot, ""),
        ("tenant", "label ns shop team=a", ""),
        ("tenant", "create ns mine", ""),
        ("agent", "create cm mine -n fleet-member-agent", ""),
        ("admin", "create secret generic mine -n fleet-system", ""),
        ("admin", "label crs --all a=b", ""),
        (&replicas, "create -f -", &pod("fleet-system")),
        (&replicas, "create -f -", &pod("tools")),
        (&replicas, "create -f -", &pod("kube-system")),
        (
            &namespaces,
            "delete secret windlass-cluster-member-1 -n fleet-system",
            "",
        ),
    ];
    for (who, what, input) in rows {
        let what = format!("{what} --dry-run=server");
        let answer = ask(fleet, who, &what, input);
        assert!(answer.is_ok(), "{who}: {what}: {answer:?}");
    }
    let error = ask(fleet, "agent", "create cm mine -n fleet-system", "").unwrap_err();
    assert!(error.contains("it belongs to the fleet"), "{error}");
}

/// Guard rails that come later must not hold on to what was there.
fn what_was_planted_before_can_go(fleet: &Fleet) {
    let secret = "secret windlass-cluster-evil -n shop";
    for what in [
        format!("label {secret} a=b"),
        format!("label {secret} windlass.dev/cluster-"),
        format!("delete {secret}"),
    ] {
        ask(fleet, "tenant", &what, "").unwrap();
    }
}

/// The hub, by its account, is in nobody's way: a change rolls out, and all goes away again.
fn the_fleet_still_works(fleet: &Fleet) {
    fleet.apply("hub", &SETTING.replace("a: '1'", "a: '2'"));
    eventually("a change is rolled out", || {
        fleet.get("member-1", "cm settings -n shop", "{.data.a}") == "2"
    });
    ask(fleet, "tenant", "delete crp shop --timeout=60s", "").unwrap();
    assert_eq!(fleet.get("member-1", "ns shop", "{.metadata.name}"), "");
    let kubeconfig = fleet.kubeconfig("hub");
    let args = [
        "leave",
        "member-1",
        "--hub-kubeconfig",
        &kubeconfig.to_string_lossy(),
    ];
    fleet.windlass(&args).unwrap();
    fleet.kubectl("hub", "delete cluster agent --timeout=60s");
}
