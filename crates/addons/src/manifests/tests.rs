use serde_json::json;

use super::*;

fn nobody(_: &str, _: &str) -> Option<KindScope> {
    None
}

fn content(text: &str) -> Result<Content, RenderError> {
    Content::of(documents(text.as_bytes())?, "team", &nobody)
}

fn named(content: &Content) -> Vec<String> {
    let ids = content.objects.iter().map(ObjectId::of);
    ids.map(|id| id.to_string()).collect()
}

#[test]
fn lists_are_their_items_and_empty_documents_nothing() {
    let text = "\
---
# Source: c/templates/empty.yaml
# nothing
---
# Source: c/templates/a.yaml
{apiVersion: v1, kind: List, items: [
  {apiVersion: v1, kind: ConfigMap, metadata: {name: a}},
  {apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Secret, metadata: {name: b}}]}]}
---
# Source: c/templates/b.yaml
apiVersion: v1
kind: ConfigMapList
items:
- metadata: {name: c}
--- {}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: d}
data:
  text: |
    ---
    # Source: no/mark
    ----
";
    let content = content(text).unwrap();
    let expected = [
        "ConfigMap team/a",
        "Secret team/b",
        "ConfigMap team/c",
        "ConfigMap team/d",
    ];
    assert_eq!(named(&content), expected);
    let text = content.objects[3].pointer("/data/text").unwrap();
    assert_eq!(text, "---\n# Source: no/mark\n----\n");
    assert_eq!(
        content.counts(),
        [("ConfigMap".to_owned(), 3), ("Secret".to_owned(), 1)].into()
    );
}

#[test]
fn what_becomes_of_hooks() {
    for (events, placed, told) in [
        ("crd-install", true, None),
        ("test", false, None),
        ("test-success,test-failure", false, None),
        ("pre-install", false, Some("Job/x (pre-install)")),
        (
            "post-install,post-upgrade",
            false,
            Some("Job/x (post-install, post-upgrade)"),
        ),
        ("test, pre-delete", false, Some("Job/x (test, pre-delete)")),
        ("", true, None),
    ] {
        let text = format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: x\n  annotations: {{helm.sh/hook: '{events}'}}"
        );
        let content = content(&text).unwrap();
        assert_eq!(content.objects.len(), usize::from(placed), "{events}");
        let skipped = content.skipped_hooks.iter().map(String::as_str);
        assert_eq!(
            skipped.collect::<Vec<_>>(),
            Vec::from_iter(told),
            "{events}"
        );
    }
}

#[test]
fn where_objects_live() {
    let crd = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: x}, spec: \
               {group: own.io, scope: Cluster, names: {kind: Wide}}}";
    let discovery = |group: &str, kind: &str| match (group, kind) {
        ("hub.io", "Wide") => Some(KindScope::Cluster),
        // What is built in, or comes with the chart, is better known.
        ("own.io", "Wide") | ("", "Namespace") => Some(KindScope::Namespaced),
        _ => None,
    };
    for (version, kind, namespace, expected) in [
        ("v1", "ConfigMap", None, Some("team")),
        ("v1", "ConfigMap", Some("other"), Some("other")),
        ("v1", "ConfigMap", Some(""), Some("team")),
        ("v1", "Namespace", None, None),
        (
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            Some("team"),
            None,
        ),
        ("own.io/v1", "Wide", Some("team"), None),
        ("hub.io/v1", "Wide", None, None),
        ("strange.io/v1", "Thing", None, Some("team")),
        ("strange.io/v1", "Thing", Some("other"), Some("other")),
    ] {
        let object = json!({"apiVersion": version, "kind": kind,
            "metadata": {"name": "x", "namespace": namespace}});
        let text = format!("{object}\n---\n{crd}");
        let documents = documents(text.as_bytes()).unwrap();
        let content = Content::of(documents, "team", &discovery).unwrap();
        let found = ObjectId::of(&content.objects[0]).namespace;
        assert_eq!(found, expected, "{kind} in {namespace:?}");
        let is_strange = version.starts_with("strange");
        let told: &[&str] = if is_strange {
            &["Thing.strange.io"]
        } else {
            &[]
        };
        assert_eq!(content.assumed, told);
    }
}

#[test]
fn the_namespace_of_the_release_is_handed_over() {
    let text = "\
{apiVersion: v1, kind: Namespace, metadata: {name: team, labels: {a: b}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: other}}
";
    let content = content(text).unwrap();
    assert_eq!(named(&content), ["Namespace other"]);
    let namespace = content.namespace.unwrap();
    assert_eq!(namespace.pointer("/metadata/labels/a").unwrap(), "b");
}

#[test]
fn what_is_no_object_names_its_template() {
    for (text, expected) in [
        ("[1]", "c/t.yaml: this is no object"),
        ("just words", "c/t.yaml: this is no object"),
        ("a: [", "c/t.yaml: not YAML: "),
        (
            "kind: Pod",
            "c/t.yaml: an object has no apiVersion or no kind",
        ),
        ("{apiVersion: v1, kind: Pod}", "c/t.yaml: a Pod has no name"),
        (
            "{apiVersion: v1, kind: Pod, metadata: {generateName: x-}}",
            "c/t.yaml: a Pod has generateName",
        ),
        (
            "{apiVersion: v1, kind: List, items: [3]}",
            "c/t.yaml: this is no object",
        ),
    ] {
        let text = format!("---\n# Source: c/t.yaml\n{text}\n");
        let error = content(&text).unwrap_err();
        assert!(error.message.starts_with(expected), "{error}");
        assert_eq!(error.fault, RenderFault::ObjectRejected);
    }
}
