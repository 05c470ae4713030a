use super::*;

#[test]
fn the_digest_counts_all_inputs_and_no_order() {
    let request = RenderRequest {
        chart_digest: "c".to_owned(),
        release: "r".to_owned(),
        namespace: "n".to_owned(),
        values: json!({"a": 1, "b": [2]}),
        kubernetes_version: Some("1.34".to_owned()),
        api_versions: vec!["x/v1".to_owned(), "y/v1".to_owned()],
    };
    let same = RenderRequest {
        values: serde_json::from_str(r#"{"b":[2],"a":1}"#).unwrap(),
        api_versions: ["y/v1", "x/v1", "x/v1"].map(str::to_owned).into(),
        ..request.clone()
    };
    assert_eq!(request.digest("v3.1.0"), same.digest("v3.1.0"));
    let changes: [fn(&mut RenderRequest); 6] = [
        |r| r.chart_digest.push('x'),
        |r| r.release.push('x'),
        |r| r.namespace.push('x'),
        |r| r.values = json!({"a": 1, "b": [3]}),
        |r| r.kubernetes_version = None,
        |r| r.api_versions.truncate(1),
    ];
    let mut digests = vec![request.digest("v3.1.0"), request.digest("v3.2.0")];
    for change in changes {
        let mut other = request.clone();
        change(&mut other);
        digests.push(other.digest("v3.1.0"));
    }
    let different: std::collections::BTreeSet<_> = digests.iter().collect();
    assert_eq!(different.len(), digests.len());
    let (mut none, mut empty) = (request.clone(), request);
    (none.values, empty.values) = (Value::Null, json!({}));
    assert_eq!(none.digest("v"), empty.digest("v"));
}

#[test]
fn what_helm_would_misread_is_refused() {
    let good = RenderRequest {
        release: "web".to_owned(),
        namespace: "team".to_owned(),
        ..RenderRequest::default()
    };
    assert_eq!(good.check(), Ok(()));
    let changes: [fn(&mut RenderRequest); 8] = [
        |r| r.release.clear(),
        |r| r.release = "--post-renderer".to_owned(),
        |r| r.release = "A".to_owned(),
        |r| r.release = "a".repeat(54),
        |r| r.namespace = "a/b".to_owned(),
        |r| r.namespace = "a.b".to_owned(),
        |r| r.values = json!([1]),
        |r| r.api_versions = vec!["a,b".to_owned()],
    ];
    for change in changes {
        let mut bad = good.clone();
        change(&mut bad);
        let error = bad.check().unwrap_err();
        assert_eq!(error.fault, RenderFault::InvalidRequest, "{bad:?}");
    }
}

#[test]
fn messages_are_cut_between_characters() {
    let error = RenderError::new(RenderFault::ChartRejected, "ж".repeat(2000));
    assert!(error.message.len() <= 1024 && error.message.ends_with("ж…"));
}
