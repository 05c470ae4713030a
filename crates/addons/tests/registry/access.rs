//! Who we are to a registry, who else gets to know, and what a failure is called.

use std::collections::BTreeMap;

use serde_json::json;
use windlass_addons::Fault;
use windlass_addons::source::SecretData;
use windlass_api::addon::RepositorySpec;

use crate::double::{self, Auth, Double, PASSWORD, Reply, USER_HEADER, right, secret, wrong};
use crate::{read, versions, web};

/// What comes of it: read, or AuthenticationFailed with a message that holds these.
type Outcome = Result<(), &'static [&'static str]>;

#[tokio::test]
async fn who_may_read() {
    const BOTH: &[&str] = &["the credentials were refused", "without them too"];
    const STRANGER: &[&str] = &["401", "UNAUTHORIZED", "secretRef"];
    let token = Auth::Token(None);
    let cases: [(Auth, Option<SecretData>, Outcome); 11] = [
        (Auth::Open, None, Ok(())),
        (Auth::Open, Some(right()), Ok(())),
        (Auth::Open, Some(wrong()), Ok(())),
        (Auth::Basic, None, Err(STRANGER)),
        (Auth::Basic, Some(right()), Ok(())),
        (Auth::Basic, Some(wrong()), Err(BOTH)),
        (token.clone(), None, Err(STRANGER)),
        (token.clone(), Some(right()), Ok(())),
        (token, Some(wrong()), Err(BOTH)),
        (Auth::Public, None, Ok(())),
        // Credentials that have expired are no reason to do without a public chart.
        (Auth::Public, Some(wrong()), Ok(())),
    ];
    for (auth, secret, expected) in cases {
        let double = Double::start().await;
        double.held().auth = auth.clone();
        double.held().push("charts/web", "1.0.0", &json!({}));
        let result = read(&double.source("charts/web", secret.as_ref())).await;
        let case = format!("{auth:?} with {:?}", secret.map(|secret| secret.len()));
        match (result, expected) {
            (Ok(reading), Ok(())) => assert_eq!(versions(&reading), ["1.0.0"], "{case}"),
            (Err(failure), Err(parts)) => {
                assert_eq!(failure.fault(), Some(Fault::AuthenticationFailed), "{case}");
                for part in parts {
                    assert!(failure.to_string().contains(part), "{case}: {failure}");
                }
            }
            (result, _) => panic!("{case}: {result:?}"),
        }
    }
}

#[tokio::test]
async fn a_token_of_the_users_own_is_sent_as_it_is() {
    let double = Double::start().await;
    double.held().push("web", "1.0.0", &json!({}));
    double.hook(|seen| {
        let known = seen.authorization.as_deref() == Some("Bearer a-long-token");
        (!known).then(|| Reply::error(401, "UNAUTHORIZED"))
    });
    let secret = |token: &str| BTreeMap::from([("token".to_owned(), token.as_bytes().to_vec())]);
    let reading = read(&double.source("web", Some(&secret("a-long-token"))))
        .await
        .unwrap();
    assert_eq!(versions(&reading), ["1.0.0"]);
    let failure = read(&double.source("web", Some(&secret("a-short-token"))))
        .await
        .unwrap_err();
    assert_eq!(failure.fault(), Some(Fault::AuthenticationFailed));
}

#[tokio::test]
async fn a_token_that_expires_meanwhile_is_exchanged_again() {
    let double = Double::start().await;
    {
        let mut held = double.held();
        held.auth = Auth::Token(None);
        // After the list, and in the middle of the rest.
        held.expire_at = vec![1, 14];
        held.tag_all("web", (0..12).map(|at| format!("1.0.{at}")));
    }
    let reading = read(&double.source("web", Some(&right()))).await.unwrap();
    assert_eq!(versions(&reading).len(), 12);
    assert_eq!(reading.pending, 0);
    assert_eq!(double.count("GET", "/token"), 3);
}

#[tokio::test]
async fn a_token_that_is_never_taken_ends_the_reading() {
    let double = Double::start().await;
    double.held().auth = Auth::Token(None);
    let realm = format!(
        "Bearer realm=\"http://{}/token\",service=\"double\"",
        double.host
    );
    double.hook(move |seen| {
        let refused = Reply::error(401, "UNAUTHORIZED").with("www-authenticate", &realm);
        (seen.path != "/token").then_some(refused)
    });
    let failure = read(&double.source("web", Some(&right())))
        .await
        .unwrap_err();
    assert_eq!(failure.fault(), Some(Fault::AuthenticationFailed));
    assert!(double.count("GET", "/token") <= 4);
}

#[tokio::test]
async fn the_token_endpoint_may_be_elsewhere_but_not_anywhere() {
    let issuer = Double::start().await;
    let double = Double::start().await;
    double.held().push("web", "1.0.0", &json!({}));
    double.held().auth = Auth::Token(Some(format!("http://{}/token", issuer.host)));
    let failure = read(&double.source("web", Some(&right())))
        .await
        .unwrap_err();
    // Its tokens are another double's, so that they are refused; but it was asked, with the credentials.
    assert_eq!(failure.fault(), Some(Fault::AuthenticationFailed));
    assert!(
        issuer
            .held()
            .identities()
            .contains(&Some(USER_HEADER.to_owned()))
    );

    for realm in [
        "http://169.254.169.254/token",
        "http://[fe80::1]/token",
        "ftp://x/",
        "token",
    ] {
        double.held().auth = Auth::Token(Some(realm.to_owned()));
        let failure = read(&double.source("web", Some(&right())))
            .await
            .unwrap_err();
        assert_eq!(
            failure.fault(),
            Some(Fault::SourceRejectedRequest),
            "{realm}"
        );
        assert!(failure.to_string().contains("is not asked"), "{failure}");
    }
}

#[tokio::test]
async fn a_token_endpoint_that_is_out_of_order_may_pass() {
    let double = Double::start().await;
    double.held().auth = Auth::Token(None);
    let cases: [(Reply, Option<Fault>, &str); 5] = [
        (Reply::of(500, ""), None, "500"),
        (Reply::of(429, "").with("retry-after", "7"), None, "429"),
        (Reply::of(200, "{}"), None, "without a usable token"),
        (
            Reply::of(200, r#"{"token":"a\nb"}"#),
            None,
            "without a usable token",
        ),
        (Reply::of(404, ""), Some(Fault::SourceNotFound), "404"),
    ];
    for (reply, fault, part) in cases {
        let waits = reply.status == 429;
        double.hook(move |seen| (seen.path == "/token").then(|| reply.clone()));
        let failure = read(&double.source("web", Some(&right())))
            .await
            .unwrap_err();
        assert_eq!(failure.fault(), fault, "{failure}");
        assert!(failure.to_string().contains(part), "{failure}");
        assert_eq!(
            failure.retry_after().map(|wait| wait.as_secs()),
            waits.then_some(7)
        );
    }
}

#[tokio::test]
async fn another_host_gets_no_credentials_and_has_no_say_in_who_does() {
    let store = Double::start().await;
    let thief = Double::start().await;
    let double = Double::start().await;
    double.held().auth = Auth::Basic;
    double
        .held()
        .push("web", "1.0.0", &json!({"appVersion": "7"}));
    store.held().blobs = double.held().blobs.clone();
    let to = format!("http://{}", store.host);
    double.hook(move |seen| {
        let to = format!("{to}{}", seen.path);
        seen.path
            .contains("/blobs/")
            .then(|| Reply::of(307, "").with("location", to))
    });
    let source = double.source("web", Some(&right()));
    let reading = read(&source).await.unwrap();
    assert_eq!(web(&reading).versions[0].app_version.as_deref(), Some("7"));
    assert_eq!(store.held().identities(), [None].into());

    let realm = format!(
        "Bearer realm=\"http://{}/token\",service=\"double\"",
        thief.host
    );
    store.hook(move |_| Some(Reply::error(401, "UNAUTHORIZED").with("www-authenticate", &realm)));
    let failure = read(&source).await.unwrap_err();
    assert_eq!(failure.fault(), Some(Fault::AuthenticationFailed));
    assert!(
        failure.to_string().contains("not sent to another host"),
        "{failure}"
    );
    assert!(thief.asked().is_empty());
}

#[tokio::test]
async fn what_the_registry_answers_decides() {
    let not_found = Some(Fault::SourceNotFound);
    let denied = Some(Fault::AuthenticationFailed);
    let rejected = Some(Fault::SourceRejectedRequest);
    let cases = [
        (404, "NAME_UNKNOWN", not_found),
        (401, "UNAUTHORIZED", denied),
        (403, "DENIED", denied),
        (400, "NAME_INVALID", rejected),
        (405, "UNSUPPORTED", rejected),
        (410, "", rejected),
        (429, "TOOMANYREQUESTS", None),
        (403, "TOOMANYREQUESTS", None),
        (408, "", None),
        (404, "UNAVAILABLE", None),
        (500, "UNKNOWN", None),
        (503, "", None),
    ];
    let double = Double::start().await;
    for (status, code, fault) in cases {
        let reply = match code {
            "" => Reply::of(status, "a page for people"),
            code => Reply::error(status, code),
        };
        let reply = reply.with("retry-after", "30");
        double.hook(move |seen| seen.path.ends_with("/list").then(|| reply.clone()));
        let failure = read(&double.source("charts/web", None)).await.unwrap_err();
        let text = failure.to_string();
        assert_eq!(failure.fault(), fault, "{status} {code}: {text}");
        assert!(
            text.contains(&status.to_string()) && text.contains(code),
            "{text}"
        );
        assert!(text.contains("/v2/charts/web/tags/list"), "{text}");
        assert_eq!(failure.retry_after().is_some(), fault.is_none(), "{text}");
    }
}

#[tokio::test]
async fn a_registry_that_stumbles_is_asked_again() {
    let double = Double::start().await;
    double.held().push("web", "1.0.0", &json!({}));
    let mut failures = 2;
    double.hook(move |seen| {
        let fails = seen.path.ends_with("/list") && failures > 0;
        failures -= i32::from(fails);
        fails.then(|| Reply::of(502, ""))
    });
    let reading = read(&double.source("web", None)).await.unwrap();
    assert_eq!(versions(&reading), ["1.0.0"]);
}

#[tokio::test]
async fn a_server_that_repeats_what_it_was_sent_gives_nothing_away() {
    let double = Double::start().await;
    double.held().auth = Auth::Token(None);
    double.hook(|seen| {
        let words = format!("bad: {:?} {PASSWORD}", seen.authorization);
        let body = json!({"errors": [{"code": "DENIED", "message": words}]});
        let repeats = seen.path.ends_with("/list") && seen.authorization.is_some();
        repeats.then(|| Reply::of(403, body.to_string()))
    });
    // `read` itself looks for secrets.
    let failure = read(&double.source("web", Some(&right())))
        .await
        .unwrap_err();
    assert!(failure.to_string().contains("(hidden)"), "{failure}");
}

#[tokio::test]
async fn tokens_are_asked_for_each_chart_by_itself() {
    let double = Double::start().await;
    double.held().auth = Auth::Token(None);
    double.held().push("team/web", "1.0.0", &json!({}));
    double.held().push("team/db", "2.0.0", &json!({}));
    let spec = RepositorySpec {
        url: format!("oci://{}/team", double.host),
        charts: Some(vec!["web".to_owned(), "db".to_owned()]),
        ..RepositorySpec::default()
    };
    read(&double.source_of(&spec, Some(&secret(double::USER, PASSWORD))))
        .await
        .unwrap();
    let held = double.held();
    let mut scopes: Vec<_> = held
        .seen
        .iter()
        .filter(|seen| seen.path == "/token")
        .map(|seen| seen.query.as_str())
        .collect();
    scopes.sort_unstable();
    assert_eq!(
        scopes,
        [
            "scope=repository%3Ateam%2Fdb%3Apull&service=double",
            "scope=repository%3Ateam%2Fweb%3Apull&service=double",
        ]
    );
}
