//! What the API server takes for an override, and what it refuses, by schema and CEL (API §2.12, §6.4).
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use windlass_tests::{Fleet, eventually};

#[test]
fn what_is_not_an_override_is_refused() {
    let fleet = Fleet::up("override-admission", 0);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    let everywhere = "
apiVersion: placement.kubernetes-fleet.io/v1alpha1
kind: ClusterResourceOverride
metadata: {name: everywhere}
spec:
  placement: {name: app}
  clusterResourceSelectors: [{group: '', version: v1, kind: Namespace, name: app}]
  policy: {overrideRules: [{clusterSelector: {clusterSelectorTerms: []}, overrideType: Delete}]}
";
    eventually("the kinds are served", || {
        fleet
            .try_kubectl("hub", "apply -f -", Some(everywhere))
            .is_ok()
    });

    let good = "{clusterSelector: {clusterSelectorTerms: []}, overrideType: Delete}";
    let every = "clusterSelector: {clusterSelectorTerms: []}";
    let patch_of =
        |path: &str| format!("{{{every}, jsonPatchOverrides: [{{op: remove, path: {path}}}]}}");
    let named = "{group: '', version: v1, kind: Namespace, name: app}";
    let long = "n".repeat(64);
    let rows = [
        ("o", named.to_owned(), good.to_owned(), "", None),
        (
            "o",
            named.to_owned(),
            patch_of("/metadata/labels/a"),
            "",
            None,
        ),
        (
            "o",
            named.to_owned(),
            patch_of("/kind"),
            "",
            Some("kind, apiVersion or status"),
        ),
        (
            "o",
            named.to_owned(),
            patch_of("/status/a"),
            "",
            Some("kind, apiVersion or status"),
        ),
        (
            "o",
            named.to_owned(),
            patch_of("/metadata/name"),
            "",
            Some("in labels or annotations"),
        ),
        (
            "o",
            named.to_owned(),
            patch_of("/metadata"),
            "",
            Some("in labels or annotations"),
        ),
        (
            "o",
            named.to_owned(),
            patch_of("a"),
            "",
            Some("must start with /"),
        ),
        (
            "o",
            named.to_owned(),
            format!("{{{every}}}"),
            "",
            Some("needs jsonPatchOverrides"),
        ),
        (
            "o",
            named.to_owned(),
            patch_of("/a").replace("jsonPatch", "overrideType: Delete, jsonPatch"),
            "",
            Some("needs jsonPatchOverrides"),
        ),
        (
            "o",
            named.to_owned(),
            good.replace("[]", "[{}]"),
            "",
            Some("need a labelSelector"),
        ),
        (
            "o",
            named.replace(", name: app", ""),
            good.to_owned(),
            "",
            Some("by name"),
        ),
        (
            "o",
            named.replace("}", ", labelSelector: {}}"),
            good.to_owned(),
            "",
            Some("by name"),
        ),
        (
            "o",
            named.to_owned(),
            good.to_owned(),
            "placement: {name: app, scope: Namespaced}",
            Some("scope Cluster"),
        ),
        (
            "everywhere",
            named.to_owned(),
            good.to_owned(),
            "placement: {name: other}",
            Some("placement is immutable"),
        ),
        (
            &long,
            named.to_owned(),
            good.to_owned(),
            "",
            Some("shorter than 64"),
        ),
    ];
    for version in ["v1", "v1beta1"] {
        for (name, selector, rule, placement, refused) in &rows {
            let manifest = format!(
                "
apiVersion: placement.kubernetes-fleet.io/{version}
kind: ClusterResourceOverride
metadata: {{name: {name}}}
spec: {{clusterResourceSelectors: [{selector}], policy: {{overrideRules: [{rule}]}}, {placement}}}
"
            );
            let result = fleet.try_kubectl("hub", "apply --dry-run=server -f -", Some(&manifest));
            match refused {
                None => assert!(result.is_ok(), "{manifest}{result:?}"),
                Some(why) => {
                    let said = result.unwrap_err();
                    assert!(said.contains(why), "{manifest}{said}");
                }
            }
        }
    }
    let unpinned = "patch clusterresourceoverride everywhere --type json -p [{\"op\":\"remove\",\"path\":\"/spec/placement\"}]";
    let said = fleet.try_kubectl("hub", unpinned, None).unwrap_err();
    assert!(said.contains("placement is immutable"), "{said}");
    a_snapshot_stays_as_it_is(&fleet);
}

fn a_snapshot_stays_as_it_is(fleet: &Fleet) {
    let rules = "policy: {overrideRules: [{clusterSelector: {clusterSelectorTerms: []}, \
                 jsonPatchOverrides: [{op: add, path: /data/a, value: one}]}]}";
    let selector = "group: '', version: v1, name: app";
    let kinds = [
        ("ClusterResourceOverrideSnapshot", "cluster", "Namespace"),
        ("ResourceOverrideSnapshot", "", "ConfigMap"),
    ];
    for (kind, prefix, of) in kinds {
        let selectors = if prefix.is_empty() {
            "resourceSelectors"
        } else {
            "clusterResourceSelectors"
        };
        for version in ["v1", "v1beta1"] {
            let manifest = format!(
                "
apiVersion: placement.kubernetes-fleet.io/{version}
kind: {kind}
metadata: {{name: o-0, namespace: default}}
spec: {{overrideHash: YQ==, overrideSpec: {{{selectors}: [{{{selector}, kind: {of}}}], {rules}}}}}
"
            );
            fleet.apply("hub", &manifest);
            for (from, to) in [
                ("name: app", "name: other"),
                ("YQ==", "Yg=="),
                ("/data/a", "/data/b"),
                ("value: one", "value: two"),
            ] {
                let changed = manifest.replace(from, to);
                let said = fleet.try_kubectl("hub", "apply -f -", Some(&changed));
                let said = said.err().unwrap_or_default();
                assert!(said.contains("a snapshot is immutable"), "{changed}{said}");
            }
            let labelled =
                manifest.replace("namespace: default", "namespace: default, labels: {a: b}");
            fleet.apply("hub", &labelled);
        }
    }
}
