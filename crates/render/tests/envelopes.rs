//! Envelopes (API §7.6) and what a namespaced placement may carry.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    reason = "a test that can't go on fails"
)]

mod common;

use common::*;
use serde_json::{Value, json};
use windlass_api::placement::{EnvelopeIdentifier, EnvelopeType};
use windlass_render::{
    Cluster, Confinement, Opened, Part, PlacementKey, Rendered, Scope, View, render,
};

fn open(objects: Vec<Value>) -> Opened {
    windlass_render::open(objects, &|_| None)
}

fn envelope(namespace: Option<&str>, data: Value) -> Value {
    let kind = if namespace.is_some() {
        "ResourceEnvelope"
    } else {
        "ClusterResourceEnvelope"
    };
    json!({"apiVersion": "placement.kubernetes-fleet.io/v1beta1", "kind": kind,
        "metadata": {"name": "env", "namespace": namespace}, "data": data})
}

fn manifest(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

#[test]
fn manifests_stand_in_the_place_of_their_envelope() {
    let hook = manifest(ADMISSION, "ValidatingWebhookConfiguration", None, "guard");
    let class = manifest("scheduling.k8s.io/v1", "PriorityClass", None, "high");
    let quota = manifest("v1", "ResourceQuota", Some("app"), "limit");
    let opened = open(vec![
        manifest("v1", "Namespace", None, "app"),
        envelope(None, json!({"b": hook, "a": class})),
        object(),
        envelope(Some("app"), json!({"q.yaml": quota})),
    ]);
    assert!(opened.problems.is_empty(), "{:?}", opened.problems);
    let seen: Vec<_> = opened
        .parts
        .iter()
        .map(|part| {
            let from = part.envelope.as_deref();
            (
                part.object["kind"].as_str().unwrap(),
                from.map(|e| (e.name.as_str(), e.namespace.as_deref(), e.type_)),
            )
        })
        .collect();
    let cluster = Some(("env", None, Some(EnvelopeType::ClusterResourceEnvelope)));
    let namespaced = Some(("env", Some("app"), Some(EnvelopeType::ResourceEnvelope)));
    assert_eq!(
        seen,
        [
            ("Namespace", None),
            ("PriorityClass", cluster),
            ("ValidatingWebhookConfiguration", cluster),
            ("ConfigMap", None),
            ("ResourceQuota", namespaced),
        ]
    );
}

#[test]
fn a_config_map_is_never_an_envelope() {
    let mut map = object();
    map["metadata"]["annotations"] = json!({"kubernetes-fleet.io/envelope-configmap": "true"});
    let opened = open(vec![map.clone()]);
    assert_eq!(opened.parts[0].object, map);
    assert!(opened.parts[0].envelope.is_none());
}

#[test]
fn bad_content_is_named_by_envelope_and_key() {
    let group = "placement.kubernetes-fleet.io/v1beta1";
    let cluster = "ClusterResourceEnvelope env";
    let namespaced = "ResourceEnvelope app/env";
    let rows = [
        (
            None,
            manifest("v1", "Namespace", Some("x"), "a"),
            "lives in a namespace",
        ),
        (
            None,
            manifest("v1", "ConfigMap", None, "a"),
            "ConfigMap a lives in a namespace",
        ),
        (
            None,
            manifest("example.com/v1", "Thing", Some("x"), "a"),
            "Thing x/a lives in a namespace",
        ),
        (
            None,
            manifest(group, "ClusterResourceBinding", None, "a"),
            "is the hub's own kind",
        ),
        (
            None,
            manifest(group, "ClusterResourceEnvelope", None, "a"),
            "is the hub's own kind",
        ),
        (
            None,
            manifest("cluster.kubernetes-fleet.io/v1", "MemberCluster", None, "a"),
            "is the hub's own kind",
        ),
        (
            Some("app"),
            manifest("v1", "ConfigMap", Some("other"), "a"),
            "is in another namespace than the envelope; only app is allowed",
        ),
        (
            Some("app"),
            manifest("v1", "ConfigMap", None, "a"),
            "names no namespace",
        ),
        (
            Some("app"),
            manifest(RBAC, "ClusterRole", Some("app"), "a"),
            "is cluster-scoped; use a ClusterResourceEnvelope",
        ),
        (
            Some("app"),
            manifest("v1", "Namespace", Some("app"), "app"),
            "is cluster-scoped",
        ),
        (
            Some("app"),
            json!({"kind": "ConfigMap", "metadata": {"name": "a", "namespace": "app"}}),
            "no apiVersion or no kind",
        ),
        (
            Some("app"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "app"}}),
            "ConfigMap has no name",
        ),
        (
            Some("app"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "a-"}}),
            "has generateName",
        ),
        (Some("app"), json!("text"), "no apiVersion or no kind"),
    ];
    for (namespace, content, why) in rows {
        let opened = open(vec![envelope(namespace, json!({"the-key": content}))]);
        assert!(opened.parts.is_empty(), "{content}");
        assert_eq!(opened.problems.len(), 1, "{content}");
        let named = if namespace.is_some() {
            namespaced
        } else {
            cluster
        };
        let problem = &opened.problems[0];
        assert!(
            problem.starts_with(&format!("{named}, key \"the-key\": ")),
            "{problem}"
        );
        assert!(problem.contains(why), "{problem}");
    }
    let refuses = |object: &Value| (object["kind"] == "Secret").then(|| "no".to_owned());
    let pair = json!({"a": manifest("v1", "Secret", Some("app"), "a"),
        "b": manifest("v1", "ConfigMap", Some("app"), "b")});
    let opened = windlass_render::open(vec![envelope(Some("app"), pair.clone())], &refuses);
    assert_eq!(opened.problems, [format!("{namespaced}, key \"a\": no")]);
    for (length, fits) in [(63, true), (64, false)] {
        let mut named = envelope(Some("app"), pair.clone());
        named["metadata"]["name"] = json!("e".repeat(length));
        let opened = open(vec![named]);
        assert_eq!(
            (opened.parts.len() == 2, opened.problems.is_empty()),
            (fits, fits)
        );
        assert!(
            opened
                .problems
                .iter()
                .all(|p| p.contains("has a name of 64 characters"))
        );
    }
    let opened = open(vec![envelope(None, Value::Null)]);
    assert_eq!(opened.problems, ["ClusterResourceEnvelope env has no data"]);
}

#[test]
fn what_is_there_twice_is_told_once() {
    let class = |version: &str| {
        manifest(
            &format!("scheduling.k8s.io/{version}"),
            "PriorityClass",
            None,
            "high",
        )
    };
    let opened = open(vec![envelope(
        None,
        json!({"a": class("v1"), "b": class("v1beta1")}),
    )]);
    assert_eq!(opened.parts.len(), 1);
    assert_eq!(
        opened.problems,
        [
            "ClusterResourceEnvelope env, key \"b\": PriorityClass high is there already, in ClusterResourceEnvelope env, key \"a\""
        ]
    );
    // Also what the placement selects itself, wherever that stands.
    let opened = open(vec![
        envelope(Some("app"), json!({"a": object()})),
        object(),
    ]);
    assert_eq!(
        opened.problems,
        [
            "ResourceEnvelope app/env, key \"a\": ConfigMap app/web is there already, in the placement itself"
        ]
    );
}

#[test]
fn overrides_reach_into_envelopes_and_not_at_them() {
    let opened = open(vec![envelope(Some("app"), json!({"a": object()}))]);
    let parts: Vec<Part<'_>> = opened
        .parts
        .iter()
        .map(|part| Part {
            object: &part.object,
            envelope: part.envelope.as_deref(),
            vouched: false,
        })
        .collect();
    let change = || json!([everywhere(json!([set("/data/a", json!("2"))]))]);
    let group = "placement.kubernetes-fleet.io/v1beta1";
    let labels = labels();
    let on = |source: Source| {
        let overrides = [source.view()];
        let cluster = Cluster {
            name: "east",
            labels: &labels,
        };
        let view = View {
            placement: WEB,
            cluster,
            overrides: &overrides,
            scope: Scope::Cluster,
            confinement: &Confinement::default(),
        };
        render(&view, &parts)
    };
    for source in [
        ro("o", config_map(), change()),
        cro("o", namespace(), change()),
    ] {
        let rendered = on(source).unwrap();
        assert!(matches!(&rendered[0], Rendered::Changed(object) if object["data"]["a"] == "2"));
    }
    let wrapper = on(ro(
        "o",
        selector(group, "ResourceEnvelope", "env"),
        change(),
    ))
    .unwrap();
    assert_eq!(wrapper, [Rendered::Same]);
    let bad = on(ro(
        "o",
        config_map(),
        json!([everywhere(json!([{"op": "remove", "path": "/x"}]))]),
    ));
    assert_eq!(
        bad.unwrap_err()[0].to_string(),
        "cluster east, ConfigMap app/web in ResourceEnvelope app/env, ResourceOverrideSnapshot app/o, overrideRules[0], path \"/x\": \
         the object has no /x; there is nothing to remove"
    );
}

const TEAM: PlacementKey<'_> = PlacementKey {
    namespace: Some("app"),
    name: "web",
};

/// What a namespaced placement is refused, and whether an administrator may allow it.
#[test]
fn attacks_with_objects() {
    let rows = [
        (object(), true, true),
        (
            manifest("apps/v1", "Deployment", Some("app"), "web"),
            true,
            true,
        ),
        (manifest(RBAC, "Role", Some("app"), "a"), false, true),
        (manifest(RBAC, "RoleBinding", Some("app"), "a"), false, true),
        (manifest(RBAC, "ClusterRole", None, "a"), false, false),
        (
            manifest(RBAC, "ClusterRoleBinding", Some("app"), "a"),
            false,
            false,
        ),
        (manifest("v1", "Namespace", None, "app"), false, false),
        (
            manifest("v1", "ConfigMap", Some("kube-system"), "a"),
            false,
            false,
        ),
        (manifest("v1", "ConfigMap", Some("app2"), "a"), false, false),
        (manifest("v1", "ConfigMap", None, "a"), false, false),
        (
            manifest(ADMISSION, "MutatingWebhookConfiguration", Some("app"), "a"),
            false,
            false,
        ),
        (
            manifest("example.com/v1", "Thing", Some("app"), "a"),
            true,
            true,
        ),
        (manifest("example.com/v1", "Thing", None, "a"), false, false),
    ];
    for (object, refused, allowed) in rows {
        for (privileged, expected) in [(REFUSED, refused), (ALLOWED, allowed)] {
            let result = render_in(TEAM, Scope::Namespace("app"), privileged, &object, &[]);
            assert_eq!(result.is_ok(), expected, "{privileged:?} {object}");
            assert!(render_in(WEB, Scope::Cluster, privileged, &object, &[]).is_ok());
            // Who wrote a ResourceEnvelope is the same whoever selects it.
            let of = |namespace: Option<&str>, type_| EnvelopeIdentifier {
                name: "env".to_owned(),
                namespace: namespace.map(str::to_owned),
                type_: Some(type_),
            };
            let in_envelope = |envelope: &EnvelopeIdentifier| {
                render_part(
                    WEB,
                    Scope::Cluster,
                    privileged,
                    (&object, Some(envelope)),
                    &[],
                )
            };
            let result = in_envelope(&of(Some("app"), EnvelopeType::ResourceEnvelope));
            assert_eq!(result.is_ok(), expected, "{privileged:?} {object}");
            let result = in_envelope(&of(None, EnvelopeType::ClusterResourceEnvelope));
            assert!(result.is_ok(), "{object}");
        }
    }
}

/// Ways in which a patch may change rights or pod security. None is open to a ResourceOverride, in a
/// placement of whichever scope; all are to a ClusterResourceOverride, which an administrator writes.
#[test]
fn attacks_with_patches() {
    let pod = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "app",
        "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        "roleRef": {"name": "view"}, "subjects": [],
        "spec": {"replicas": 1, "template": {"spec": {"securityContext": {"runAsNonRoot": true},
            "containers": [{"name": "a", "securityContext": {"privileged": false}}, {"name": "b"}]}}}});
    let template = "/spec/template/spec";
    let rows = [
        (set("/spec/replicas", json!(3)), true),
        (set("/metadata/labels/tier", json!("a")), true),
        (
            set(&format!("{template}/containers/-"), json!({"name": "c"})),
            true,
        ),
        (set("/roleRef/name", json!("cluster-admin")), false),
        (set("/roleRef", json!({"name": "cluster-admin"})), false),
        (
            set("/subjects/-", json!({"kind": "User", "name": "eve"})),
            false,
        ),
        (json!({"op": "remove", "path": "/subjects"}), false),
        (
            set(
                "/metadata/labels/pod-security.kubernetes.io~1enforce",
                json!("privileged"),
            ),
            false,
        ),
        (
            set(
                "/metadata/labels/pod-security.kubernetes.io~1warn",
                json!("privileged"),
            ),
            false,
        ),
        (set("/metadata/labels", json!({})), false),
        (json!({"op": "remove", "path": "/metadata/labels"}), false),
        (
            set(
                &format!("{template}/securityContext/runAsNonRoot"),
                json!(false),
            ),
            false,
        ),
        (
            json!({"op": "remove", "path": format!("{template}/securityContext")}),
            false,
        ),
        (set(&format!("{template}/hostNetwork"), json!(true)), false),
        (set(&format!("{template}/hostPID"), json!(true)), false),
        (
            set(
                &format!("{template}/volumes"),
                json!([{"hostPath": {"path": "/"}}]),
            ),
            false,
        ),
        (
            set(
                &format!("{template}/containers/0/securityContext/privileged"),
                json!(true),
            ),
            false,
        ),
        (
            set(
                &format!("{template}/containers/1"),
                json!({"securityContext": {"privileged": true}}),
            ),
            false,
        ),
        (
            set(
                &format!("{template}/containers"),
                json!([{"securityContext": {"privileged": true}}]),
            ),
            false,
        ),
        (
            json!({"op": "remove", "path": format!("{template}/containers/0")}),
            false,
        ),
        (
            set("/spec/template", json!({"spec": {"hostIPC": true}})),
            false,
        ),
    ];
    let target = || selector("apps/v1", "Deployment", "web");
    for (patch, harmless) in rows {
        let rules = || json!([everywhere(json!([patch]))]);
        let with = |source, privileged| {
            render_in(TEAM, Scope::Namespace("app"), privileged, &pod, &[source])
        };
        let result = with(ro("o", target(), rules()), REFUSED);
        assert_eq!(result.is_ok(), harmless, "{patch}");
        if let Err(errors) = result {
            let text = errors[0].to_string();
            assert!(text.contains("unless an administrator allows it"), "{text}");
            assert_eq!(errors[0].path.as_deref(), patch["path"].as_str());
        }
        let whole =
            |source, privileged| render_in(WEB, Scope::Cluster, privileged, &pod, &[source]);
        let result = whole(ro("o", target(), rules()), REFUSED);
        assert_eq!(result.is_ok(), harmless, "{patch}");
        for on in [&with as &dyn Fn(_, _) -> _, &whole] {
            assert!(on(ro("o", target(), rules()), ALLOWED).is_ok(), "{patch}");
            assert!(
                on(cro("o", namespace(), rules()), REFUSED).is_ok(),
                "{patch}"
            );
        }
    }
}

/// Leaving out is a change, too: a ResourceOverride does not take away what an administrator placed to rule
/// the namespace by, in a placement of whichever scope.
#[test]
fn attacks_by_leaving_out() {
    let rbac = "rbac.authorization.k8s.io/v1";
    for (api_version, kind, harmless) in [
        ("v1", "ConfigMap", true),
        ("networking.k8s.io/v1", "NetworkPolicy", true),
        (rbac, "RoleBinding", false),
        (rbac, "Role", false),
        ("v1", "ResourceQuota", false),
        ("v1", "LimitRange", false),
    ] {
        let object = json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": "web", "namespace": "app"}});
        let team = || ro("o", selector(api_version, kind, "web"), json!([delete()]));
        let result = render_in(WEB, Scope::Cluster, REFUSED, &object, &[team()]);
        assert_eq!(result.is_ok(), harmless, "{kind}: {result:?}");
        if let Err(errors) = result {
            let text = errors[0].to_string();
            assert!(text.contains("unless an administrator allows it"), "{text}");
            assert_eq!((errors[0].rule, errors[0].path.as_deref()), (Some(0), None));
        }
        let administrators = cro("o", namespace(), json!([delete()]));
        for (source, privileged) in [(team(), ALLOWED), (administrators, REFUSED)] {
            let result = render_in(WEB, Scope::Cluster, privileged, &object, &[source]);
            assert!(result.is_ok(), "{kind}: {result:?}");
        }
    }
}
