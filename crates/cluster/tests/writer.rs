//! What the writer sends, and what it makes of answers, of refusals and of silence.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod common;

use std::time::Duration;

use common::{Log, Reply, Seen, drain, refusal};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use windlass_cluster::{ApiError, Propagation, Writer};

fn writer(handler: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> (Writer, Log) {
    let (client, log) = common::server(handler);
    (Writer::new(client, "windlass"), log)
}

fn sent() -> Value {
    json!({"metadata": {"name": "a", "namespace": "n", "labels": {"x": "1"}}, "data": {"k": "v"}})
}

fn stored() -> Value {
    let mut stored = sent();
    stored["apiVersion"] = "v1".into();
    stored["kind"] = "ConfigMap".into();
    stored["metadata"]["uid"] = "u1".into();
    stored["metadata"]["resourceVersion"] = "5".into();
    stored
}

fn decode<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn config_maps() -> ApiResource {
    ApiResource::erase::<ConfigMap>(&())
}

#[tokio::test]
async fn what_is_sent() {
    let (writer, log) = writer(|seen| {
        Reply::Json(
            200,
            if seen.body["kind"] == "ConfigMap" {
                seen.body.clone()
            } else {
                stored()
            },
        )
    });
    let object: ConfigMap = decode(stored());
    let mut dynamic: DynamicObject = decode(stored());
    dynamic.metadata.managed_fields = Some(vec![]);
    writer.create::<ConfigMap>(&decode(sent())).await.unwrap();
    writer.replace(&object).await.unwrap();
    writer.replace_status(&object).await.unwrap();
    writer.create_dyn(&config_maps(), &dynamic).await.unwrap();
    writer.replace_dyn(&config_maps(), &dynamic).await.unwrap();
    writer
        .apply_dyn(&config_maps(), &dynamic, true)
        .await
        .unwrap();
    let patch = decode(json!([{"op": "test", "path": "/data/k", "value": "v"}]));
    writer
        .json_patch_dyn(&config_maps(), Some("n"), "a", &patch)
        .await
        .unwrap();
    writer.delete(&object).await.unwrap();
    writer
        .delete_dyn(&config_maps(), Some("n"), "a", None, Propagation::Orphan)
        .await
        .unwrap();

    let seen = log.lock().unwrap().clone();
    let lines: Vec<String> = seen
        .iter()
        .map(|s| {
            format!(
                "{}?{} {}",
                s.line().replace("/api/v1/namespaces/n/configmaps", "~"),
                s.query,
                s.content_type
            )
        })
        .collect();
    assert_eq!(
        lines,
        [
            "POST ~?fieldManager=windlass&fieldValidation=Ignore application/json",
            "PUT ~/a?fieldManager=windlass&fieldValidation=Ignore application/json",
            "PUT ~/a/status?fieldManager=windlass&fieldValidation=Ignore application/json",
            "POST ~?fieldManager=windlass&fieldValidation=Ignore application/json",
            "PUT ~/a?fieldManager=windlass&fieldValidation=Ignore application/json",
            "PATCH ~/a?fieldManager=windlass&force=true&fieldValidation=Ignore application/apply-patch+yaml",
            "PATCH ~/a?fieldManager=windlass&fieldValidation=Ignore application/json-patch+json",
            "DELETE ~/a? application/json",
            "DELETE ~/a? application/json",
        ]
    );
    for (n, s) in seen.iter().enumerate().take(6) {
        assert_eq!(
            (&s.body["apiVersion"], &s.body["kind"]),
            (&json!("v1"), &json!("ConfigMap")),
            "{n}"
        );
    }
    assert!(seen[5].body["metadata"].get("managedFields").is_none());
    assert_eq!(seen[7].body["preconditions"], json!({"uid": "u1"}));
    assert_eq!(seen[7].body["propagationPolicy"], "Background");
    assert_eq!(seen[8].body.get("preconditions"), None);
    assert_eq!(seen[8].body["propagationPolicy"], "Orphan");
}

#[tokio::test]
async fn refusals_keep_their_class_and_cost_one_request() {
    type Row = (u16, &'static str, fn(String) -> ApiError);
    let rows: [Row; 7] = [
        (404, "NotFound", ApiError::NotFound),
        (409, "AlreadyExists", ApiError::AlreadyExists),
        (409, "Conflict", ApiError::Conflict),
        (401, "Unauthorized", ApiError::Unauthorized),
        (422, "Invalid", ApiError::Rejected),
        (403, "Forbidden", ApiError::Rejected),
        (503, "ServiceUnavailable", |m| ApiError::transient(m)),
    ];
    for (code, reason, class) in rows {
        let (writer, log) = writer(move |_| refusal(code, reason, "why"));
        let error = writer
            .create::<ConfigMap>(&decode(sent()))
            .await
            .unwrap_err();
        assert_eq!(error, class("why".into()), "{code}");
        assert_eq!(drain(&log).len(), 1, "{code}");
    }
}

#[tokio::test]
async fn retry_after_is_read_from_the_header() {
    let (writer, _) =
        writer(|_| Reply::Text(429, "retry-after", "7", "Too many requests\n".into()));
    let error = writer
        .create::<ConfigMap>(&decode(sent()))
        .await
        .unwrap_err();
    assert_eq!(
        error,
        ApiError::Transient {
            message: "Too many requests".into(),
            retry_after: Some(Duration::from_secs(7))
        }
    );
}

/// Answers writes by `write`, and reads by `read`.
fn lossy(
    write: impl Fn() -> Reply + Send + Sync + 'static,
    read: impl Fn() -> Reply + Send + Sync + 'static,
) -> (Writer, Log) {
    writer(move |seen| {
        if seen.method == http::Method::GET {
            read()
        } else {
            write()
        }
    })
}

fn ways_to_lose() -> Vec<fn() -> Reply> {
    vec![
        || Reply::Break,
        || Reply::Silence,
        || {
            refusal(
                504,
                "Timeout",
                "request did not complete within requested timeout",
            )
        },
        || refusal(500, "", "etcdserver: request timed out"),
        || Reply::Text(200, "x", "y", "{\"metadata\": {".into()),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_create_without_an_answer_is_settled_by_a_read() {
    for lose in ways_to_lose() {
        let create = |read: fn() -> Reply| async move {
            let (writer, log) = lossy(lose, read);
            let outcome = writer.create::<ConfigMap>(&decode(sent())).await;
            assert_eq!(
                drain(&log).last().unwrap(),
                "GET /api/v1/namespaces/n/configmaps/a"
            );
            outcome
        };
        let done = create(|| Reply::Json(200, stored())).await.unwrap();
        assert_eq!(done.metadata.uid.as_deref(), Some("u1"));
        let other = create(|| {
            let mut other = stored();
            other["data"]["k"] = "theirs".into();
            Reply::Json(200, other)
        });
        assert!(other.await.unwrap_err().is_outage());
        assert!(
            create(|| refusal(404, "NotFound", "no"))
                .await
                .unwrap_err()
                .is_outage()
        );
        assert!(create(|| Reply::Break).await.unwrap_err().is_outage());
    }
}

#[tokio::test(start_paused = true)]
async fn a_replace_without_an_answer_is_settled_by_a_read() {
    for lose in ways_to_lose() {
        let replace = |read: fn() -> Reply| async move {
            let (writer, log) = lossy(lose, read);
            let outcome = writer.replace_status::<ConfigMap>(&decode(stored())).await;
            assert_eq!(
                drain(&log).last().unwrap(),
                "GET /api/v1/namespaces/n/configmaps/a"
            );
            outcome.unwrap_err()
        };
        assert!(
            replace(|| Reply::Json(200, stored())).await.is_outage(),
            "it was not done"
        );
        let changed = replace(|| {
            let mut changed = stored();
            changed["metadata"]["resourceVersion"] = "6".into();
            Reply::Json(200, changed)
        });
        assert!(matches!(changed.await, ApiError::Conflict(_)));
        assert!(matches!(
            replace(|| refusal(404, "NotFound", "no")).await,
            ApiError::NotFound(_)
        ));
        assert!(replace(|| Reply::Break).await.is_outage());
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_without_an_answer_is_settled_by_a_read() {
    fn with(field: &str, value: &str) -> Reply {
        let mut object = stored();
        object["metadata"][field] = value.into();
        Reply::Json(200, object)
    }
    for lose in ways_to_lose() {
        let delete = |read: fn() -> Reply| async move {
            let (writer, _) = lossy(lose, read);
            writer.delete::<ConfigMap>(&decode(stored())).await
        };
        assert_eq!(delete(|| refusal(404, "NotFound", "no")).await, Ok(()));
        assert_eq!(
            delete(|| with("uid", "u2")).await,
            Ok(()),
            "another object has the name now"
        );
        assert_eq!(
            delete(|| with("deletionTimestamp", "2026-01-01T00:00:00Z")).await,
            Ok(())
        );
        assert!(delete(|| with("uid", "u1")).await.unwrap_err().is_outage());
    }
}

#[tokio::test]
async fn deleting_what_is_gone_or_replaced_is_success() {
    let delete = |write: fn() -> Reply, read: fn() -> Reply| async move {
        let (writer, _) = lossy(write, read);
        writer.delete::<ConfigMap>(&decode(stored())).await
    };
    assert_eq!(
        delete(|| refusal(404, "NotFound", "no"), || Reply::Break).await,
        Ok(())
    );
    let other = || {
        let mut other = stored();
        other["metadata"]["uid"] = "u2".into();
        Reply::Json(200, other)
    };
    let conflict = || refusal(409, "Conflict", "Precondition failed: UID in precondition");
    assert_eq!(delete(conflict, other).await, Ok(()));
    let same = delete(conflict, || Reply::Json(200, stored())).await;
    assert!(
        matches!(same, Err(ApiError::Conflict(_))),
        "a conflict about something else: {same:?}"
    );
}

#[tokio::test]
async fn an_object_that_was_not_read_is_not_replaced() {
    let (writer, log) = writer(|_| Reply::Json(200, stored()));
    assert!(matches!(
        writer.replace::<ConfigMap>(&decode(sent())).await,
        Err(ApiError::Rejected(_))
    ));
    assert!(drain(&log).is_empty());
}

#[tokio::test]
async fn no_name_means_no_request() {
    let (writer, log) = writer(|_| Reply::Json(200, stored()));
    let outcome = writer
        .delete_dyn(&config_maps(), Some("n"), "", None, Propagation::Background)
        .await;
    assert!(matches!(outcome, Err(ApiError::Rejected(_))));
    assert!(drain(&log).is_empty());
    let elsewhere = writer
        .get_dyn(&config_maps(), Some("n"), "../secrets/a")
        .await;
    assert!(matches!(elsewhere, Err(ApiError::Rejected(_))));
    assert!(drain(&log).is_empty());
    writer
        .get_dyn(&config_maps(), Some("n"), "a?x#")
        .await
        .unwrap();
    assert_eq!(
        drain(&log),
        ["GET /api/v1/namespaces/n/configmaps/a%3Fx%23"]
    );
}

#[tokio::test]
async fn a_json_patch_that_does_not_fit_is_a_conflict_and_an_invalid_result_is_not() {
    let patch: json_patch::Patch = decode(json!([{"op": "test", "path": "/data/k", "value": "w"}]));
    let answer = |details: Value| {
        let patch = patch.clone();
        async move {
            let (writer, _) = writer(move |_| {
                let mut status = common::status(422, "Invalid", "the server rejected our request");
                status["details"] = details.clone();
                Reply::Json(422, status)
            });
            writer
                .json_patch_dyn(&config_maps(), Some("n"), "a", &patch)
                .await
                .unwrap_err()
        }
    };
    assert!(matches!(answer(json!({})).await, ApiError::Conflict(_)));
    let invalid = json!({"kind": "ConfigMap", "name": "a", "causes": [{"reason": "FieldValueInvalid", "field": "data"}]});
    assert!(matches!(answer(invalid).await, ApiError::Rejected(_)));
    assert!(
        matches!(answer(Value::Null).await, ApiError::Rejected(_)),
        "a webhook's refusal has no details"
    );
}

#[tokio::test]
async fn reads() {
    let (writer, _) = writer(|seen| match seen.path.as_str() {
        "/api/v1/namespaces/n/configmaps/a" => Reply::Json(200, stored()),
        "/api/v1/namespaces/n/configmaps/b" => refusal(404, "NotFound", "no"),
        _ => refusal(403, "Forbidden", "no"),
    });
    assert!(
        writer
            .get::<ConfigMap>(Some("n"), "a")
            .await
            .unwrap()
            .is_some()
    );
    assert!(
        writer
            .get_dyn(&config_maps(), Some("n"), "b")
            .await
            .unwrap()
            .is_none()
    );
    assert!(matches!(
        writer.get_dyn(&config_maps(), Some("m"), "b").await,
        Err(ApiError::Rejected(_))
    ));
}
