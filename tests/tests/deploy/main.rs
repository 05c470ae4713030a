//! The manifests of deploy/ on a real API server, and a hub that has no other rights than they give.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod manifests;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use windlass_tests::agents::{Agents, may_bypass};
use windlass_tests::{Fleet, condition, eventually, root};

/// The account that the hub runs as.
const ACCOUNT: &str = "system:serviceaccount:fleet-system:windlass";

const APP: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: menus.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: menus, singular: menu, kind: Menu}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: v1
kind: Namespace
metadata: {name: web}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: web}
data: {a: '1'}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: app, namespace: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: 'example/web:1'}]}
---
apiVersion: v1
kind: Service
metadata: {name: app, namespace: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
";

const CUSTOM: &str = r"
apiVersion: example.com/v1
kind: Menu
metadata: {name: lunch, namespace: web}
dish: soup
";

fn placement(name: &str, selectors: &str, cluster: &str) -> String {
    format!(
        "apiVersion: placement.kubernetes-fleet.io/v1beta1\nkind: ClusterResourcePlacement\n\
         metadata: {{name: {name}}}\nspec:\n  resourceSelectors: [{selectors}]\n  \
         policy: {{placementType: PickFixed, clusterNames: [{cluster}]}}\n"
    )
}

fn namespace(name: &str) -> String {
    format!("{{group: '', version: v1, kind: Namespace, name: {name}}}")
}

/// Starts the hub as its Deployment would: its account's token, its arguments.
fn start_hub_as_deployed(fleet: &mut Fleet) {
    let kubeconfig = fleet.account("windlass");
    let args = fleet.kubectl(
        "hub",
        "get deploy windlass-hub -n fleet-system -o jsonpath={.spec.template.spec.containers[0].args}",
    );
    let args: Vec<String> = serde_json::from_str(&args).unwrap();
    // The harness says hub, and where to listen, itself.
    let args: Vec<&str> = args
        .iter()
        .map(String::as_str)
        .filter(|arg| *arg != "hub" && !arg.starts_with("--metrics-bind-address"))
        .collect();
    fleet.start_hub_as(&kubeconfig, &args);
}

fn apply_folder(fleet: &Fleet, folder: &Path) {
    let args = format!("apply --server-side -k {}", folder.display());
    fleet.kubectl("hub", &args);
}

/// Requests that some API server has answered with 403.
fn forbidden(fleet: &Fleet) -> Vec<String> {
    let metrics = fleet.http("/metrics").unwrap();
    assert!(
        metrics.contains("windlass_api_requests_total{code=\"200\""),
        "requests are counted by their answer: {metrics}"
    );
    metrics
        .lines()
        .filter(|line| {
            line.starts_with("windlass_api_requests_total") && line.contains("code=\"403\"")
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_hub_runs_with_the_rights_of_its_manifests() {
    // With the plugin, an owner reference that blocks deletion needs a right too.
    let plugin = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement";
    let environment = [("WINDLASS_FLAGS_KUBE_APISERVER", plugin)];
    let mut fleet = Fleet::up_with("deploy", 2, &environment);
    apply_folder(&fleet, &root().join("deploy"));
    fleet.kubectl(
        "hub",
        "wait --for=condition=Established crd --all --timeout=30s",
    );
    applying_again_changes_nothing(&fleet);
    its_pods_are_admitted(&fleet);
    the_account_may_what_it_needs(&fleet);
    the_account_touches_members_namespaces_only(&fleet);
    start_hub_as_deployed(&mut fleet);
    an_agent_gets_its_rights(&fleet);
    fleet.join("member-1");
    an_app_lives(&fleet);
    a_member_with_narrow_rights_says_what_is_forbidden(&fleet);
    tokens_are_renewed(&fleet);
    let missing: Vec<String> = forbidden(&fleet)
        .into_iter()
        .filter(|line| !line.contains("target=\"member-2\""))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    the_members_leave(&fleet);
    all_of_it_can_be_removed(&mut fleet);
}

fn applying_again_changes_nothing(fleet: &Fleet) {
    let versions = || {
        fleet.get(
            "hub",
            "deploy,svc,pdb,sa,role -n fleet-system",
            "{.items[*].metadata.resourceVersion}",
        )
    };
    let before = versions();
    assert!(!before.is_empty());
    apply_folder(fleet, &root().join("deploy"));
    assert_eq!(versions(), before);
}

/// By pod security (the namespace is restricted) and by the guard rails, made by whom Kubernetes has make them.
fn its_pods_are_admitted(fleet: &Fleet) {
    let deployment = fleet.kubectl("hub", "get deploy windlass-hub -n fleet-system -o json");
    let mut pod = serde_json::from_str::<Value>(&deployment).unwrap()["spec"]["template"].take();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!("try");
    let create = |pod: &Value| {
        let args = "create --dry-run=server -n fleet-system -f - \
                    --as=system:serviceaccount:kube-system:replicaset-controller";
        fleet.try_kubectl("hub", args, Some(&pod.to_string()))
    };
    create(&pod).unwrap();
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
    let error = create(&pod).unwrap_err();
    assert!(error.contains("allowPrivilegeEscalation"), "{error}");
}

fn the_account_may_what_it_needs(fleet: &Fleet) {
    let rows = [
        ("create leases.coordination.k8s.io -n fleet-system", "yes"),
        (
            "update leases.coordination.k8s.io/windlass-hub -n fleet-system",
            "yes",
        ),
        (
            "update leases.coordination.k8s.io/other -n fleet-system",
            "no",
        ),
        ("create events.events.k8s.io -n default", "yes"),
        ("patch events.events.k8s.io -n default", "yes"),
        ("list secrets -n web", "yes"),
        ("update secrets -n web", "no"),
        ("create secrets -n fleet-system", "no"),
        ("update secrets -n fleet-system", "yes"),
        ("update configmaps -n web", "no"),
        ("create pods -n fleet-system", "no"),
        ("create clusterrolebindings.rbac.authorization.k8s.io", "no"),
        ("delete roles.rbac.authorization.k8s.io -n web", "no"),
        ("impersonate users", "no"),
        ("delete memberclusters.cluster.kubernetes-fleet.io", "no"),
        (
            "create clusterapprovalrequests.placement.kubernetes-fleet.io",
            "yes",
        ),
        (
            "create clusterstagedupdateruns.placement.kubernetes-fleet.io",
            "no",
        ),
        (
            "update clusterstagedupdatestrategies.placement.kubernetes-fleet.io",
            "no",
        ),
        // Those of Addons.
        (
            "create clusterresourceplacements.placement.kubernetes-fleet.io",
            "yes",
        ),
        (
            "create resourceenvelopes.placement.kubernetes-fleet.io -n web",
            "yes",
        ),
        ("create addons.addons.windlass.dev", "no"),
        ("delete addonrepositories.addons.windlass.dev", "no"),
        (
            "delete clusterresourceplacements.placement.kubernetes-fleet.io",
            "no",
        ),
        (
            "patch clusterresourceplacements.placement.kubernetes-fleet.io",
            "no",
        ),
        (
            "create resourceplacements.placement.kubernetes-fleet.io -n web",
            "no",
        ),
        ("bypass guardrails.windlass.dev", "no"),
        ("escalate roles.rbac.authorization.k8s.io", "no"),
        (
            "bind clusterroles.rbac.authorization.k8s.io/cluster-admin",
            "no",
        ),
        ("create secrets -n kube-system", "no"),
        // Those of members; RBAC can't say so, a guard rail does.
        ("delete namespaces", "yes"),
    ];
    for (what, expected) in rows {
        let args = format!("auth can-i {what} --as={ACCOUNT}");
        let said = fleet.try_kubectl("hub", &args, None);
        // It ends with an error where the answer is no.
        let said = said.unwrap_or_else(|no| no);
        assert!(
            said.lines().any(|line| line.trim() == expected),
            "{what}: {said}"
        );
    }
}

/// What RBAC lets the account do is confined by a guard rail.
fn the_account_touches_members_namespaces_only(fleet: &Fleet) {
    fleet.kubectl("hub", "create ns fleet-member-try");
    fleet.kubectl("hub", "create ns bystander");
    let role = |namespace: &str| {
        format!(
            "{{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {{name: try, \
             namespace: {namespace}}}, rules: []}}"
        )
    };
    let delete = |namespace: &str| {
        let args = format!("delete ns {namespace} --dry-run=server --as={ACCOUNT}");
        fleet.try_kubectl("hub", &args, None)
    };
    let create = |namespace: &str| {
        let args = format!("create --dry-run=server -f - --as={ACCOUNT}");
        fleet.try_kubectl("hub", &args, Some(&role(namespace)))
    };
    eventually("the guard rail is up", || {
        delete("bystander").is_err_and(|why| why.contains("fleet-member-*"))
    });
    assert!(create("bystander").unwrap_err().contains("fleet-member-*"));
    delete("fleet-member-try").unwrap();
    create("fleet-member-try").unwrap();
    fleet.kubectl("hub", "delete ns bystander fleet-member-try --wait=false");
}

/// With no more than the account has, the hub gives a member's agent what that needs, and takes it back.
fn an_agent_gets_its_rights(fleet: &Fleet) {
    let agents = Agents::start(fleet);
    fleet.apply(
        "hub",
        "apiVersion: cluster.kubernetes-fleet.io/v1beta1\nkind: MemberCluster\nmetadata: {name: agent-1}\n\
         spec: {identity: {kind: User, name: user-agent-1}}\n",
    );
    eventually("the agent has joined", || {
        let path = "{.status.conditions[?(@.type==\"Joined\")].status}";
        fleet.get("hub", "cluster agent-1", path) == "True"
    });
    let may = |verb: &str, what: &str, namespace: &str| {
        let args = format!("auth can-i {verb} {what} -n {namespace} --as user-agent-1");
        fleet.try_kubectl("hub", &args, None).is_ok()
    };
    let own = "fleet-member-agent-1";
    let works = "works.placement.kubernetes-fleet.io";
    eventually("it may do what agents do", || {
        may("update", works, own) && may_bypass(fleet, "user-agent-1", own)
    });
    assert!(!may("update", works, "fleet-system"));
    assert!(!may("delete", works, own));
    assert!(!may(
        "create",
        "resourceplacements.placement.kubernetes-fleet.io",
        own
    ));
    fleet.kubectl("hub", "delete cluster agent-1 --timeout=60s");
    eventually("its namespace is gone", || {
        fleet
            .get("hub", "ns fleet-member-agent-1", "{.kind}")
            .is_empty()
    });
    drop(agents);
}

fn an_app_lives(fleet: &Fleet) {
    fleet.apply("hub", APP);
    fleet.kubectl(
        "hub",
        "wait --for=condition=Established crd/menus.example.com",
    );
    fleet.apply("hub", CUSTOM);
    let crd = "{group: apiextensions.k8s.io, version: v1, kind: CustomResourceDefinition, name: menus.example.com}";
    let selectors = format!("{}, {crd}", namespace("web"));
    fleet.apply("hub", &placement("web", &selectors, "member-1"));
    eventually("the app is available", || {
        condition(fleet, "web", "Available", "status") == "True"
            && fleet.get("member-1", "menu lunch -n web", "{.dish}") == "soup"
            && fleet.get("member-1", "svc app -n web", "{.metadata.name}") == "app"
            && fleet.get(
                "member-1",
                "deploy app -n web",
                "{.status.availableReplicas}",
            ) == "2"
    });
    fleet.apply("hub", &APP.replace("a: '1'", "a: '2'"));
    eventually("a change is rolled out", || {
        fleet.get("member-1", "cm settings -n web", "{.data.a}") == "2"
            && condition(fleet, "web", "Available", "status") == "True"
    });
    fleet.kubectl("hub", "delete crp web --timeout=60s");
    assert_eq!(fleet.get("member-1", "ns web", "{.metadata.name}"), "");
    assert_eq!(
        fleet.get("hub", "crb,crs,csps", "{.items[*].metadata.name}"),
        ""
    );
}

/// The file is the one that docs/deploy.md shows.
fn a_member_with_narrow_rights_says_what_is_forbidden(fleet: &Fleet) {
    let (hub, member) = (fleet.kubeconfig("hub"), fleet.kubeconfig("member-2"));
    let rights = root().join("docs/examples/member-rights.yaml");
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let args = [
        "join",
        "member-2",
        "--hub-kubeconfig",
        &text(&hub),
        "--member-kubeconfig",
        &text(&member),
        "--rights",
        &text(&rights),
    ];
    fleet.windlass(&args).unwrap();
    let shop = APP
        .split_once("---")
        .unwrap()
        .1
        .replace(": web", ": shop")
        .replace("app: shop", "app: web");
    fleet.apply("hub", &shop);
    fleet.apply("hub", &placement("shop", &namespace("shop"), "member-2"));
    eventually("what is in the file can be placed", || {
        condition(fleet, "shop", "Available", "status") == "True"
            && fleet.get(
                "member-2",
                "deploy app -n shop",
                "{.status.availableReplicas}",
            ) == "2"
    });
    fleet.kubectl("hub", "create sa robot -n shop");
    let failed = |field: &str| {
        let path = format!("{{.status.placementStatuses[0].failedPlacements[0].{field}}}");
        fleet.get("hub", "crp shop", &path)
    };
    eventually(
        "another kind fails, and that it is forbidden is said",
        || failed("kind") == "ServiceAccount" && failed("condition.message").contains("forbidden"),
    );
    assert_eq!(
        fleet.get(
            "member-2",
            "deploy app -n shop",
            "{.status.availableReplicas}"
        ),
        "2"
    );
    fleet.kubectl("hub", "delete sa robot -n shop");
    eventually("without it, all is well again", || {
        condition(fleet, "shop", "Available", "status") == "True"
    });
    fleet.kubectl("hub", "delete crp shop --wait=false");
    eventually(
        "a namespace that can't be looked into stays, and that is said",
        || {
            let message = condition(fleet, "shop", "Deleting", "message");
            message.contains("Namespace shop") && message.contains("can't be found out")
        },
    );
    fleet.kubectl(
        "member-2",
        "annotate ns shop windlass.dev/allow-cascade=true",
    );
    fleet.kubectl("hub", "wait --for=delete crp/shop --timeout=60s");
    assert_eq!(fleet.get("member-2", "ns shop", "{.metadata.name}"), "");
}

/// A token past half its life: with full rights and with narrow ones on the member.
fn tokens_are_renewed(fleet: &Fleet) {
    for member in ["member-1", "member-2"] {
        let secret = format!("secret windlass-cluster-{member} -n fleet-system");
        let issued = r"{.metadata.annotations.windlass\.dev/token-issued}";
        let past = "2020-01-01T00:00:00Z";
        fleet.kubectl(
            "hub",
            &format!("annotate {secret} --overwrite windlass.dev/token-issued={past}"),
        );
        eventually("the token is renewed", || {
            let now = fleet.get("hub", &secret, issued);
            !now.is_empty() && now != past
        });
    }
}

fn leave(fleet: &Fleet, member: &str) {
    let kubeconfig = fleet.kubeconfig("hub");
    let args = [
        "leave",
        member,
        "--hub-kubeconfig",
        &kubeconfig.to_string_lossy(),
    ];
    fleet.windlass(&args).unwrap();
}

fn the_members_leave(fleet: &Fleet) {
    leave(fleet, "member-1");
    leave(fleet, "member-2");
    let label = "secret -n fleet-system -l windlass.dev/cluster";
    assert_eq!(fleet.get("hub", label, "{.items[*].metadata.name}"), "");
    let missing: Vec<String> = forbidden(fleet)
        .into_iter()
        .filter(|line| line.contains("target=\"hub\""))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// As docs/deploy.md has it: the guard rails are not in an administrator's way.
fn all_of_it_can_be_removed(fleet: &mut Fleet) {
    fleet.kill_hub();
    let folder = root().join("deploy");
    fleet.kubectl(
        "hub",
        &format!(
            "delete -k {} --ignore-not-found --timeout=60s",
            folder.display()
        ),
    );
    let left = "ns,crd,validatingadmissionpolicy,clusterrole";
    let left = fleet.get("hub", left, "{.items[*].metadata.name}");
    for name in ["fleet-system", "kubernetes-fleet.io", "windlass"] {
        assert!(!left.contains(name), "{name} is in {left}");
    }
}

/// A folder with a kustomization as docs/deploy.md shows it, beside the repository's own.
struct Overlay(PathBuf);

impl Overlay {
    fn new(name: &str, text: &str) -> Self {
        let dir = root().join(format!("target/overlay-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("kustomization.yaml"), text).unwrap();
        Self(dir)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[test]
fn a_hub_with_narrow_rights_places_what_it_may() {
    let mut fleet = Fleet::up("narrow", 1);
    let overlay = Overlay::new(
        "narrow",
        "resources: [../../crds, ../../deploy/base]\n\
         components: [../../deploy/guard-rails, ../../deploy/narrow]\n",
    );
    apply_folder(&fleet, &overlay.0);
    fleet.kubectl(
        "hub",
        "wait --for=condition=Established crd --all --timeout=30s",
    );
    let may = |what: &str| {
        let args = format!("auth can-i {what} --as={ACCOUNT}");
        fleet.try_kubectl("hub", &args, None).is_ok()
    };
    assert!(may("list configmaps -A"));
    assert!(!may("list secrets -A"));
    assert!(may("list secrets -n fleet-system"));
    start_hub_as_deployed(&mut fleet);
    fleet.join("member-1");
    let app = APP.split_once("---").unwrap().1;
    fleet.apply("hub", app);
    fleet.kubectl(
        "hub",
        "create secret generic hidden -n web --from-literal=a=b",
    );
    fleet.apply("hub", &placement("web", &namespace("web"), "member-1"));
    eventually("the app is available", || {
        condition(&fleet, "web", "Available", "status") == "True"
            && fleet.get(
                "member-1",
                "deploy app -n web",
                "{.status.availableReplicas}",
            ) == "2"
    });
    assert_eq!(
        fleet.get("member-1", "secret hidden -n web", "{.metadata.name}"),
        ""
    );
    fleet.kubectl("hub", "delete crp web --timeout=60s");
    assert_eq!(fleet.get("member-1", "ns web", "{.metadata.name}"), "");
    assert!(forbidden(&fleet).is_empty(), "{:?}", forbidden(&fleet));
}
