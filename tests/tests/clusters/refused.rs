//! MemberClusters that the API server does not take.

use windlass_tests::Fleet;

/// The schema says what upstream's schema and webhook say, in both versions.
pub fn member_clusters(fleet: &Fleet) {
    fleet.kubectl(
        "hub",
        "wait --for=condition=Established crd memberclusters.cluster.kubernetes-fleet.io",
    );
    let long = |length: usize| "a".repeat(length);
    let taint =
        |key: &str, value: &str| format!("{{key: '{key}', value: '{value}', effect: NoSchedule}}");
    let taints = |list: &[String]| format!("taints: [{}]", list.join(", "));
    let many: Vec<String> = (0..101).map(|n| taint(&format!("k{n}"), "v")).collect();
    let rows = [
        (long(63), "heartbeatPeriodSeconds: 600".to_owned(), ""),
        (
            long(64),
            String::new(),
            "metadata.name must be shorter than 64 characters",
        ),
        ("a".to_owned(), taints(&many[..100]), ""),
        ("a".to_owned(), taints(&many), "must have at most 100 items"),
        (
            "a".to_owned(),
            taints(&[
                taint("example.com/drain", "now"),
                taint("example.com/drain", "later"),
            ]),
            "",
        ),
        (
            "a".to_owned(),
            taints(&[taint("k", "v"), taint("l", ""), taint("k", "v")]),
            "taints must not be the same twice",
        ),
        (
            "a".to_owned(),
            taints(&[taint(&long(63), &long(63)), taint("k", "")]),
            "",
        ),
        (
            "a".to_owned(),
            taints(&[taint("", "v")]),
            "taint key must be a qualified name",
        ),
        (
            "a".to_owned(),
            taints(&[taint("-k", "v")]),
            "taint key must be a qualified name",
        ),
        (
            "a".to_owned(),
            taints(&[taint("Example/k", "v")]),
            "taint key must be a qualified name",
        ),
        (
            "a".to_owned(),
            taints(&[taint("a/b/c", "v")]),
            "taint key must be a qualified name",
        ),
        (
            "a".to_owned(),
            taints(&[taint(&long(64), "v")]),
            "taint key must be a qualified name",
        ),
        (
            "a".to_owned(),
            taints(&[taint("k", "val&123")]),
            "taint value must be a label value",
        ),
        (
            "a".to_owned(),
            taints(&[taint("k", &long(64))]),
            "spec.taints[0].value: Too long",
        ),
        (
            "a".to_owned(),
            "taints: [{key: k, effect: NoExecute}]".to_owned(),
            "spec.taints[0].effect",
        ),
        (
            "a".to_owned(),
            "heartbeatPeriodSeconds: 0".to_owned(),
            "spec.heartbeatPeriodSeconds",
        ),
        (
            "a".to_owned(),
            "heartbeatPeriodSeconds: 601".to_owned(),
            "spec.heartbeatPeriodSeconds",
        ),
        (
            "a".to_owned(),
            "deleteOptions: {validationMode: Never}".to_owned(),
            "spec.deleteOptions.validationMode",
        ),
        (
            "a".to_owned(),
            "identity: {kind: User}".to_owned(),
            "spec.identity.name: Required",
        ),
    ];
    for version in ["v1", "v1beta1"] {
        for (name, spec, refusal) in &rows {
            let identity = if spec.starts_with("identity") {
                ""
            } else {
                "identity: {kind: User, name: u}, "
            };
            let cluster = format!(
                "{{apiVersion: cluster.kubernetes-fleet.io/{version}, kind: MemberCluster, metadata: {{name: {name}}}, spec: {{{identity}{spec}}}}}"
            );
            match fleet.try_kubectl("hub", "create --dry-run=server -f -", Some(&cluster)) {
                Ok(_) => assert_eq!(*refusal, "", "{cluster}"),
                Err(error) => assert!(
                    !refusal.is_empty() && error.contains(refusal),
                    "{cluster}: {error}"
                ),
            }
        }
    }
}
