//! What somebody with rights in one namespace might try.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn object(api_version: &str, kind: &str, namespace: &str) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn allowing(list: &str) -> Confinement {
    Confinement::new(list).unwrap()
}

const RBAC: &str = "rbac.authorization.k8s.io/v1";

#[test]
fn objects() {
    for (what, object, allowed, carried) in [
        ("its own", object("v1", "ConfigMap", "web"), "", true),
        (
            "another namespace's",
            object("v1", "ConfigMap", "api"),
            "",
            false,
        ),
        (
            "another namespace's, whatever is allowed",
            object("v1", "ConfigMap", "api"),
            "rbac,pod-security",
            false,
        ),
        (
            "one that names no namespace",
            object("v1", "ConfigMap", ""),
            "",
            false,
        ),
        (
            "a cluster-scoped one",
            object(RBAC, "ClusterRole", ""),
            "rbac",
            false,
        ),
        (
            "the Namespace itself",
            object("v1", "Namespace", ""),
            "",
            false,
        ),
        (
            "a Namespace that says it lives in one",
            object("v1", "Namespace", "web"),
            "",
            false,
        ),
        ("a Role", object(RBAC, "Role", "web"), "", false),
        (
            "a RoleBinding",
            object(RBAC, "RoleBinding", "web"),
            "",
            false,
        ),
        (
            "an old version of one",
            object("rbac.authorization.k8s.io/v1beta1", "RoleBinding", "web"),
            "",
            false,
        ),
        (
            "OpenShift's",
            object("authorization.openshift.io/v1", "RoleBinding", "web"),
            "",
            false,
        ),
        ("a Role, allowed", object(RBAC, "Role", "web"), "rbac", true),
        (
            "a Role, while something else is allowed",
            object(RBAC, "Role", "web"),
            "pod-security",
            false,
        ),
        (
            "a Role of another group",
            object("example.com/v1", "Role", "web"),
            "",
            true,
        ),
        (
            "a namespace that is no text",
            json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "x", "namespace": ["web"]}}),
            "",
            false,
        ),
        ("nothing", json!({}), "", false),
    ] {
        let result = allowing(allowed).object("web", &object);
        assert_eq!(result.is_ok(), carried, "{what}: {result:?}");
    }
    assert!(
        allowing("")
            .object("", &object("v1", "ConfigMap", ""))
            .is_err(),
        "no placement's namespace is empty"
    );
}

#[test]
fn kinds() {
    let rbac = "rbac.authorization.k8s.io";
    for (group, kind, allowed, expected) in [
        ("", "ConfigMap", "", true),
        (rbac, "Role", "", false),
        (rbac, "RoleBinding", "", false),
        (rbac, "RoleBinding", "rbac", true),
    ] {
        let result = allowing(allowed).kind(group, kind);
        assert_eq!(result.is_ok(), expected, "{kind} {allowed}");
    }
}

#[test]
fn changes() {
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "x", "namespace": "web", "labels": {"a": "b"}},
        "spec": {"replicas": 1, "template": {"spec": {
            "securityContext": {"runAsNonRoot": true},
            "containers": [{"name": "c", "image": "i", "securityContext": {"privileged": false}}]}}}});
    let binding = json!({"apiVersion": RBAC, "kind": "RoleBinding",
        "metadata": {"name": "x", "namespace": "web"},
        "roleRef": {"kind": "Role", "name": "view"}, "subjects": []});
    let pod = "/spec/template/spec";
    let with_pod = |more: Value| {
        let mut with = deployment.pointer(pod).unwrap().clone();
        for (field, value) in more.as_object().unwrap() {
            with[field] = value.clone();
        }
        with
    };
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "x", "namespace": "web", "labels": {"a": "b"}}, "spec": {"hard": {"pods": "3"}}});
    let with_data = |api_version: &str, kind: &str| {
        let mut object = object(api_version, kind, "web");
        object["data"] = json!({"hostPath": "a"});
        object
    };
    let (map, secret) = (with_data("v1", "ConfigMap"), with_data("v1", "Secret"));
    let (foreign, custom) = (
        with_data("example.com/v1", "ConfigMap"),
        with_data("example.com/v1", "Thing"),
    );
    for (what, before, pointer, value, allowed, expected) in [
        (
            "a number",
            &deployment,
            "/spec/replicas",
            json!(3),
            "",
            true,
        ),
        (
            "an image",
            &deployment,
            "/spec/template/spec/containers/0/image",
            json!("j"),
            "",
            true,
        ),
        (
            "the whole template without its settings",
            &deployment,
            pod,
            json!({"containers": [{"name": "c", "image": "i"}]}),
            "",
            false,
        ),
        (
            "the whole template with one more",
            &deployment,
            pod,
            json!({"hostNetwork": true, "securityContext": {"runAsNonRoot": true},
                "containers": [{"name": "c", "image": "i", "securityContext": {"privileged": false}}]}),
            "",
            false,
        ),
        (
            "the template as it was",
            &deployment,
            pod,
            deployment.pointer(pod).unwrap().clone(),
            "",
            true,
        ),
        (
            "a container more, first",
            &deployment,
            "/spec/template/spec/containers",
            json!([{"name": "d"}, {"name": "c", "securityContext": {"privileged": false}}]),
            "",
            true,
        ),
        (
            "a container more, last, without a name",
            &deployment,
            "/spec/template/spec/containers",
            json!([{"name": "c", "securityContext": {"privileged": false}}, {}]),
            "",
            true,
        ),
        (
            "what one container may do, given to another",
            &deployment,
            "/spec/template/spec/containers",
            json!([{"name": "d", "securityContext": {"privileged": false}}, {"name": "c"}]),
            "",
            false,
        ),
        (
            "a volume of the network",
            &deployment,
            pod,
            with_pod(json!({"volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]})),
            "",
            false,
        ),
        (
            "a volume that every Pod may have",
            &deployment,
            pod,
            with_pod(json!({"volumes": [{"name": "v", "emptyDir": {}}]})),
            "",
            true,
        ),
        (
            "a volume's kind where there are no volumes",
            &deployment,
            pod,
            with_pod(json!({"nfs": true})),
            "",
            true,
        ),
        (
            "a probe of somebody else",
            &deployment,
            "/spec/template/spec/containers/0",
            json!({"name": "c", "securityContext": {"privileged": false},
                "livenessProbe": {"httpGet": {"host": "10.0.0.1", "port": 80}}}),
            "",
            false,
        ),
        (
            "a probe",
            &deployment,
            "/spec/template/spec/containers/0",
            json!({"name": "c", "securityContext": {"privileged": false},
                "livenessProbe": {"httpGet": {"port": 80}}}),
            "",
            true,
        ),
        (
            "how much it may use",
            &quota,
            "/spec/hard",
            json!({"pods": "9"}),
            "",
            false,
        ),
        (
            "how much it may use, allowed",
            &quota,
            "/spec/hard",
            json!({"pods": "9"}),
            "quota",
            true,
        ),
        (
            "a quota's labels",
            &quota,
            "/metadata/labels",
            json!({"a": "c"}),
            "",
            true,
        ),
        (
            "a privileged container",
            &deployment,
            "/spec/template/spec/containers",
            json!([{"name": "c", "securityContext": {"privileged": true}}]),
            "",
            false,
        ),
        (
            "a privileged container, allowed",
            &deployment,
            "/spec/template/spec/containers",
            json!([{"name": "c", "securityContext": {"privileged": true}}]),
            "pod-security",
            true,
        ),
        ("a key", &map, "/data/hostPath", json!("b"), "", true),
        (
            "a secret key",
            &secret,
            "/data/hostPath",
            json!("b"),
            "",
            true,
        ),
        (
            "a field of what is only called a ConfigMap",
            &foreign,
            "/data/hostPath",
            json!("b"),
            "",
            false,
        ),
        (
            "a field of a custom kind",
            &custom,
            "/data",
            json!({"hostPath": "b"}),
            "",
            false,
        ),
        (
            "the labels as a whole",
            &deployment,
            "/metadata/labels",
            json!({"pod-security.kubernetes.io/enforce": "privileged"}),
            "",
            false,
        ),
        (
            "what it may do",
            &binding,
            "/roleRef/name",
            json!("cluster-admin"),
            "",
            false,
        ),
        (
            "who may",
            &binding,
            "/subjects",
            json!([{"kind": "User", "name": "me"}]),
            "",
            false,
        ),
        (
            "who may, allowed",
            &binding,
            "/subjects",
            json!([{"kind": "User", "name": "me"}]),
            "rbac",
            true,
        ),
        (
            "its name",
            &deployment,
            "/metadata/name",
            json!("y"),
            "rbac,pod-security",
            false,
        ),
        (
            "its namespace",
            &deployment,
            "/metadata/namespace",
            json!("kube-system"),
            "rbac,pod-security",
            false,
        ),
        (
            "its kind",
            &deployment,
            "/kind",
            json!("DaemonSet"),
            "rbac,pod-security",
            false,
        ),
        (
            "its version",
            &deployment,
            "/apiVersion",
            json!("apps/v2"),
            "",
            true,
        ),
    ] {
        let mut after = before.clone();
        *after.pointer_mut(pointer).unwrap() = value;
        let result = allowing(allowed).change(before, &after);
        assert_eq!(result.is_ok(), expected, "{what}: {result:?}");
    }
}

#[test]
fn leaving_out() {
    for (api_version, kind, allowed, expected) in [
        ("v1", "ConfigMap", "", true),
        ("networking.k8s.io/v1", "NetworkPolicy", "", true),
        (RBAC, "RoleBinding", "", false),
        (RBAC, "RoleBinding", "pod-security,quota", false),
        (RBAC, "RoleBinding", "rbac", true),
        ("v1", "ResourceQuota", "", false),
        ("v1", "LimitRange", "rbac", false),
        ("v1", "LimitRange", "quota", true),
        ("example.com/v1", "ResourceQuota", "", true),
    ] {
        let result = allowing(allowed).leave_out(&object(api_version, kind, "web"));
        assert_eq!(result.is_ok(), expected, "{kind} {allowed}: {result:?}");
    }
}

#[test]
fn the_flag() {
    assert_eq!(
        allowing(" rbac; pod-security "),
        allowing("pod-security,rbac")
    );
    assert_eq!(allowing(""), Confinement::default());
    assert!(
        Confinement::new("rbac,psp")
            .unwrap_err()
            .to_string()
            .contains("\"psp\"")
    );
}

/// Any small document whose fields come from those that matter.
fn a_document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(true)), Just(json!("x")), Just(json!(1))];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let field = proptest::sample::select(vec![
            "spec",
            "template",
            "containers",
            "securityContext",
            "hostNetwork",
            "hostPath",
            "volumes",
            "nfs",
            "name",
            "metadata",
            "image",
        ]);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            proptest::collection::btree_map(field, inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    /// Whatever is let through has every pod security setting as it was.
    #[test]
    fn no_setting_slips_through(before in a_document(), after in a_document()) {
        let wrap = |spec: &Value| json!({"apiVersion": "v1", "kind": "Thing",
            "metadata": {"name": "x", "namespace": "web"}, "spec": spec});
        let (before, after) = (wrap(&before), wrap(&after));
        if allowing("").change(&before, &after).is_ok() {
            prop_assert_eq!(settings(&before), settings(&after));
        }
        prop_assert!(allowing("").change(&before, &before).is_ok());
    }

    /// I10: what is carried is in the namespace, whatever it says of itself and whatever is allowed.
    #[test]
    fn nothing_outside_is_carried(
        namespace in "[a-c]", of in proptest::option::of("[a-c]"), kind in "ConfigMap|Namespace|Role|ClusterRole",
        group in "v1|rbac.authorization.k8s.io/v1", list in "(rbac|pod-security|)",
    ) {
        let object = object(&group, &kind, of.as_deref().unwrap_or_default());
        if allowing(&list).object(&namespace, &object).is_ok() {
            prop_assert_eq!(of, Some(namespace));
            prop_assert!((group.as_str(), kind.as_str()) != ("v1", "Namespace"));
        }
    }
}
