//! Whom a reading trusts, where it lets itself be sent, and who gets to see credentials.

mod server;

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use server::{CA, CLIENT, SERVER, Server, answer, index, source};
use windlass_addons::catalogue::InUse;
use windlass_addons::helm::{Limits, Reading, read};
use windlass_addons::source::SecretData;
use windlass_addons::{Failure, Fault, Source};
use windlass_api::addon::RepositorySpec;
use windlass_cluster::clock;

const BASIC: &[(&str, &str)] = &[("username", "robot"), ("password", "sesame")];
const TOKEN: &[(&str, &str)] = &[("token", "sesame\n")];

async fn reading(source: &Source) -> Result<Reading, Failure> {
    let limits = Limits {
        pause: Duration::from_millis(5),
        ..Limits::default()
    };
    read(source, &InUse::new(), None, &limits).await
}

#[tokio::test]
async fn credentials_go_to_the_server_in_their_form() {
    let rows = [
        (&[][..], None),
        (BASIC, Some("Basic cm9ib3Q6c2VzYW1l")),
        (TOKEN, Some("Bearer sesame")),
    ];
    for (secret, header) in rows {
        let server = Server::start(|_, _| index()).await;
        let url = format!("{}/charts/?tenant=a", server.url);
        reading(&source(&url, secret, &[])).await.unwrap();
        let seen = &server.seen()[0];
        assert_eq!(seen.header("authorization"), header);
        assert_eq!(seen.path, "/charts/index.yaml?tenant=a");
        assert!(seen.header("user-agent").unwrap().starts_with("windlass/"));
        assert_eq!(seen.header("cookie"), None);
    }
}

#[tokio::test]
async fn a_redirect_keeps_credentials_only_at_the_same_host_and_port() {
    let other = Server::start(|_, _| answer(401, &[], "")).await;
    let away = format!("{}/elsewhere", other.url);
    let server = Server::start(move |seen, _| match seen.path.as_str() {
        "/index.yaml" => answer(301, &[("location", "/moved"), ("set-cookie", "a=b")], ""),
        "/moved" => answer(307, &[("location", &away)], ""),
        _ => answer(404, &[], ""),
    })
    .await;
    let failure = reading(&source(&server.url, BASIC, &[])).await.unwrap_err();
    assert_eq!(failure.fault(), Some(Fault::AuthenticationFailed));
    let message = failure.to_string();
    assert!(message.contains("not sent to another host"), "{message}");
    for seen in server.seen() {
        assert_eq!(seen.header("authorization"), Some("Basic cm9ib3Q6c2VzYW1l"));
        assert_eq!(seen.header("cookie"), None);
    }
    let seen = &other.seen()[0];
    assert_eq!(
        (seen.header("authorization"), seen.header("referer")),
        (None, None)
    );
    assert_eq!(seen.path, "/elsewhere");
}

#[tokio::test]
async fn a_redirect_with_credentials_of_its_own_does_not_send_them() {
    let other = Server::start(|_, _| index()).await;
    let away = other.url.replace("http://", "http://mallory:trap@");
    let server = Server::start(move |_, _| answer(302, &[("location", &away)], "")).await;
    reading(&source(&server.url, &[], &[])).await.unwrap();
    assert_eq!(other.seen()[0].header("authorization"), None);
}

#[tokio::test]
async fn some_redirects_are_not_followed() {
    let rejected = Some(Fault::SourceRejectedRequest);
    let rows = [
        (
            "ftp://127.0.0.1/index.yaml",
            rejected,
            "or to another scheme",
        ),
        ("file:///etc/passwd", rejected, "or to another scheme"),
        ("http://169.254.169.254/latest", rejected, "link-local"),
        ("http://[fe80::1]/", rejected, "link-local"),
        ("http://[::ffff:169.254.169.254]/", rejected, "link-local"),
        ("http://[", None, "what is no url"),
        ("/index.yaml", None, "redirected more than 10 times"),
    ];
    for (location, fault, part) in rows {
        let to = location.to_owned();
        let server = Server::start(move |_, _| answer(302, &[("location", &to)], "")).await;
        let failure = reading(&source(&server.url, &[], &[])).await.unwrap_err();
        let message = failure.to_string();
        assert_eq!(failure.fault(), fault, "{location}: {message}");
        assert!(message.contains(part), "{location}: {message}");
    }
}

#[tokio::test]
async fn https_does_not_become_http() {
    let plain = Server::start(|_, _| index()).await;
    let to = plain.url.clone();
    let server = Server::start_tls(false, move |_, _| answer(302, &[("location", &to)], "")).await;
    let failure = reading(&source(&server.url, BASIC, &[("ca.crt", CA)]))
        .await
        .unwrap_err();
    assert_eq!(failure.fault(), Some(Fault::SourceRejectedRequest));
    assert!(
        failure.to_string().contains("from https to http"),
        "{failure}"
    );
    assert!(plain.seen().is_empty());
}

#[tokio::test]
async fn http_may_become_https_without_credentials() {
    let server = Server::start_tls(false, |_, _| index()).await;
    let to = server.url.clone();
    let plain = Server::start(move |_, _| answer(308, &[("location", &to)], "")).await;
    reading(&source(&plain.url, BASIC, &[("ca.crt", CA)]))
        .await
        .unwrap();
    assert_eq!(server.seen()[0].header("authorization"), None);
}

#[tokio::test]
async fn servers_are_trusted_by_the_given_authority_alone() {
    let server = Server::start_tls(false, |_, _| index()).await;
    let failure = reading(&source(&server.url, &[], &[])).await.unwrap_err();
    let message = failure.to_string();
    assert!(
        failure.fault().is_none() && message.contains("UnknownIssuer"),
        "{message}"
    );
    reading(&source(&server.url, &[], &[("ca.crt", CA)]))
        .await
        .unwrap();
    let mut unchecked = source(&server.url, &[], &[]);
    unchecked.tls.skip_verify = true;
    reading(&unchecked).await.unwrap();
    let by_name = server.url.replace("127.0.0.1", "localhost");
    reading(&source(&by_name, &[], &[("ca.crt", CA)]))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_its_server_and_to_no_other() {
    let wanting = Server::start_tls(true, |_, _| index()).await;
    let (certificate, key) = CLIENT;
    let pair = [("ca.crt", CA), ("tls.crt", certificate), ("tls.key", key)];
    reading(&source(&wanting.url, &[], &pair)).await.unwrap();
    let failure = reading(&source(&wanting.url, &[], &[("ca.crt", CA)]))
        .await
        .unwrap_err();
    assert!(
        failure.to_string().contains("CertificateRequired"),
        "{failure}"
    );
    let to = wanting.url.clone();
    let first = Server::start_tls(true, move |_, _| answer(302, &[("location", &to)], "")).await;
    let failure = reading(&source(&first.url, &[], &pair)).await.unwrap_err();
    assert!(
        failure.to_string().contains("CertificateRequired"),
        "{failure}"
    );
}

/// Every text that can be made of a value.
fn texts(value: &(impl std::fmt::Debug + ?Sized)) -> String {
    format!("{value:?} {value:#?}")
}

#[allow(clippy::unwrap_used, reason = "it is a part of a test")]
fn attempt(url: &str, secret: &[(&str, String)], certificates: bool) -> String {
    let spec = RepositorySpec {
        url: url.to_owned(),
        timeout: Some("1s".to_owned()),
        ..RepositorySpec::default()
    };
    let data: SecretData = secret
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone().into_bytes()))
        .collect();
    let found = if certificates {
        Source::of(&spec, None, Some(&data))
    } else {
        Source::of(&spec, Some(&data), None)
    };
    let source = match found {
        Ok(source) => source,
        Err(failure) => return format!("{failure} {}", texts(&failure)),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let failure = runtime.block_on(async {
        clock::install_crypto();
        reading(&source).await.unwrap_err()
    });
    format!("{} {failure} {}", texts(&source), texts(&failure))
}

/// A url, a Secret, and whether that is the one of certificates.
type Row = (String, Vec<(&'static str, String)>, bool);

#[test]
fn no_text_of_an_error_or_a_source_holds_a_secret() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let refusing = runtime.block_on(Server::start(|_, _| answer(401, &[], "go away")));
    let refusing = &refusing.url;
    let closed = "http://127.0.0.1:9";
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(8)
    };
    let mut runner = TestRunner::new(config);
    let secret = "[a-zA-Z0-9+/]{16,40}";
    let property = |(one, two): (String, String)| {
        let auth = |text: &str| format!(r#"{{"auths":{{"127.0.0.1:9":{{"auth":"{text}"}}}}}}"#);
        let encoded = "cm9ib3Q6".to_owned() + &one.replace(['+', '/'], "A");
        let (user, pass) = ("username", "password");
        let rows: Vec<Row> = vec![
            (
                refusing.clone(),
                vec![(user, "robot".into()), (pass, one.clone())],
                false,
            ),
            (
                closed.into(),
                vec![(user, "robot".into()), (pass, one.clone())],
                false,
            ),
            (refusing.clone(), vec![("token", one.clone())], false),
            (
                closed.into(),
                vec![("token", format!("{one}\u{7f}{two}"))],
                false,
            ),
            (
                refusing.clone(),
                vec![(user, format!("{one}:{two}")), (pass, two.clone())],
                false,
            ),
            (refusing.clone(), vec![(pass, one.clone())], false),
            (
                closed.into(),
                vec![(".dockerconfigjson", auth(&encoded))],
                false,
            ),
            (
                closed.into(),
                vec![(".dockerconfigjson", auth(&one))],
                false,
            ),
            (
                closed.into(),
                vec![(".dockerconfigjson", format!("{{\"auths\": \"{one}\"}}"))],
                false,
            ),
            (
                closed.into(),
                vec![(".dockerconfigjson", one.clone())],
                false,
            ),
            (closed.into(), vec![("ca.crt", one.clone())], true),
            (
                closed.into(),
                vec![("tls.crt", SERVER.0.into()), ("tls.key", one.clone())],
                true,
            ),
            (
                closed.into(),
                vec![("tls.crt", SERVER.0.into()), ("tls.key", CLIENT.1.into())],
                true,
            ),
            (
                closed.into(),
                vec![("tls.crt", CLIENT.0.into()), ("tls.key", CLIENT.1.into())],
                true,
            ),
            (
                format!("http://{one}:{two}@127.0.0.1"),
                vec![("token", two.clone())],
                false,
            ),
            (
                format!("{one}:{two}@127.0.0.1://x"),
                vec![("token", two.clone())],
                false,
            ),
            (
                format!("oci://robot:{two}@[::1/x"),
                vec![("token", one.clone())],
                false,
            ),
            (
                format!("{closed}/charts?key={one}"),
                vec![("token", two.clone())],
                false,
            ),
        ];
        let key: String = CLIENT.1.lines().nth(1).unwrap().into();
        for (url, secret, certificates) in &rows {
            let text = attempt(url, secret, *certificates);
            for hidden in [&one, &two, &encoded, &key] {
                prop_assert!(!text.contains(hidden.as_str()), "{hidden} in {text}");
            }
        }
        Ok(())
    };
    runner.run(&(secret, secret), property).unwrap();
}
