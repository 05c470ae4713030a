//! Specs and Secrets and what they come to.

use super::*;

const CA: &str = include_str!("../../tests/pki/ca.crt");
const CRT: &str = include_str!("../../tests/pki/client.crt");
const KEY: &str = include_str!("../../tests/pki/client.key");
const OTHER_KEY: &str = include_str!("../../tests/pki/server.key");

/// Keys and values of a Secret.
type Data = Vec<(&'static str, String)>;
type Pairs<'a> = &'a [(&'a str, &'a str)];

fn spec(url: &str) -> RepositorySpec {
    RepositorySpec {
        url: url.to_owned(),
        ..RepositorySpec::default()
    }
}

fn secret(data: &[(&str, &str)]) -> SecretData {
    let text = |(key, value): &(&str, &str)| ((*key).to_owned(), value.as_bytes().to_vec());
    data.iter().map(text).collect()
}

fn basic(username: &str, password: &str) -> Credentials {
    Credentials::Basic {
        username: username.to_owned(),
        password: Hidden::new(password.to_owned()),
    }
}

fn token(token: &str) -> Credentials {
    Credentials::Token(Hidden::new(token.to_owned()))
}

/// What a url comes to: the protocol and the url that is asked, or the fault.
fn of(url: &str) -> Result<(Protocol, String), Fault> {
    match Source::of(&spec(url), None, None) {
        Ok(source) => Ok((source.protocol, source.url.to_string())),
        Err(failure) => Err(failure.fault().unwrap()),
    }
}

#[test]
fn urls() {
    use Protocol::{Helm, Oci};
    let invalid = Err(Fault::InvalidRepositoryUrl);
    let rows = [
        ("https://h/charts", Ok((Helm, "https://h/charts"))),
        ("http://H:80/a?b=c#d", Ok((Helm, "http://h/a?b=c"))),
        ("HTTPS://h", Ok((Helm, "https://h/"))),
        (
            "https://cdn.example/gh/repo@main/",
            Ok((Helm, "https://cdn.example/gh/repo@main/")),
        ),
        ("https://h/a%40b", Ok((Helm, "https://h/a%40b"))),
        ("http://169.253.1.1/", Ok((Helm, "http://169.253.1.1/"))),
        ("oci://h/charts/app/", Ok((Oci, "https://h/charts/app"))),
        ("oci://h:5000/app", Ok((Oci, "https://h:5000/app"))),
        (
            "oci://localhost:5000/a/b",
            Ok((Oci, "http://localhost:5000/a/b")),
        ),
        (
            "oci://127.0.0.1:5000/a",
            Ok((Oci, "http://127.0.0.1:5000/a")),
        ),
        ("oci://[::1]:5000/a", Ok((Oci, "http://[::1]:5000/a"))),
        (
            "oci://localhost.example/a",
            Ok((Oci, "https://localhost.example/a")),
        ),
        (
            "oci://h/a__b/c-d--e.f_g",
            Ok((Oci, "https://h/a__b/c-d--e.f_g")),
        ),
        ("ftp://h/charts", Err(Fault::UnsupportedRepositoryType)),
        ("h/charts", Err(Fault::UnsupportedRepositoryType)),
        ("", Err(Fault::UnsupportedRepositoryType)),
        ("https://", invalid),
        ("https://[::1", invalid),
        ("https://a b", invalid),
        ("http://%zz", invalid),
        ("https://h:99999/", invalid),
        ("https://me@h/", invalid),
        ("https://me:secret@h/", invalid),
        ("https://@h/", invalid),
        ("https://me:1/secret@h/", invalid),
        ("https://token/secret@h/", invalid),
        ("oci://me:secret@h/a", invalid),
        ("http://169.254.169.254/", invalid),
        ("http://[fe80::1]/", invalid),
        ("http://[::ffff:169.254.1.1]/", invalid),
        ("http://2852039166/", invalid),
        ("oci://169.254.169.254/a", invalid),
        ("oci://h", invalid),
        ("oci://h/", invalid),
        ("oci://h/App", invalid),
        ("oci://h/a//b", invalid),
        ("oci://h/app:1.0.0", invalid),
        ("oci://h/a___b", invalid),
        ("oci://h/-a", invalid),
        ("oci://h/a?x=y", invalid),
    ];
    for (url, expected) in rows {
        let expected = expected.map(|(protocol, url)| (protocol, url.to_owned()));
        assert_eq!(of(url), expected, "{url}");
    }
}

#[test]
fn an_oci_url_without_a_name_does_with_charts_beside_it() {
    let mut spec = spec("oci://h");
    spec.charts = Some(vec!["app".to_owned()]);
    assert!(Source::of(&spec, None, None).is_ok());
    spec.plain_http = Some(true);
    let source = Source::of(&spec, None, None).unwrap();
    assert_eq!(source.url.scheme(), "http");
    spec.url = "https://h".to_owned();
    let source = Source::of(&spec, None, None).unwrap();
    assert_eq!(
        source.url.scheme(),
        "https",
        "plainHTTP is about registries"
    );
}

#[test]
fn a_registry_on_a_loopback_host_speaks_plain_http_unless_the_spec_says_otherwise() {
    for (url, plain, scheme) in [
        ("oci://127.0.0.1:5000/app", None, "http"),
        ("oci://127.0.0.1:5000/app", Some(true), "http"),
        ("oci://127.0.0.1:5000/app", Some(false), "https"),
        ("oci://localhost/app", Some(false), "https"),
        ("oci://h/app", None, "https"),
        ("oci://h/app", Some(false), "https"),
    ] {
        let mut spec = spec(url);
        spec.plain_http = plain;
        let source = Source::of(&spec, None, None).unwrap();
        assert_eq!(source.url.scheme(), scheme, "{url} {plain:?}");
    }
}

#[test]
fn shapes_of_credentials() {
    let docker = |entries: &str| format!(r#"{{"auths":{{{entries}}},"credsStore":"x"}}"#);
    // me:secret and other:word.
    let (ours, other) = (
        r#"{"auth":"bWU6c2VjcmV0"}"#,
        r#"{"auth":"b3RoZXI6d29yZA=="}"#,
    );
    let pair = r#"{"username":"me","password":"secret"}"#;
    let me = || Ok(basic("me", "secret"));
    let rows: Vec<(Data, Result<Credentials, &str>)> = vec![
        (
            vec![
                ("username", "me\n".into()),
                ("password", "secret\r\n".into()),
            ],
            me(),
        ),
        (
            vec![("username", "me".into()), ("password", " ä:b ".into())],
            Ok(basic("me", " ä:b ")),
        ),
        (vec![("token", "t.o-k_en\n".into())], Ok(token("t.o-k_en"))),
        (
            vec![
                ("username", "me".into()),
                ("password", "secret".into()),
                ("token", "t".into()),
            ],
            me(),
        ),
        (
            vec![(
                ".dockerconfigjson",
                docker(&format!(r#""h.example":{ours}"#)),
            )],
            me(),
        ),
        (
            vec![(
                ".dockerconfigjson",
                docker(&format!(r#""https://h.example/v1/":{ours}"#)),
            )],
            me(),
        ),
        (
            vec![(
                ".dockerconfigjson",
                docker(&format!(r#""H.example:443":{pair}"#)),
            )],
            me(),
        ),
        (
            vec![(
                ".dockerconfigjson",
                docker(&format!(
                    r#""h.example":{other},"h.example/team":{ours},"h.example/te":{other}"#
                )),
            )],
            me(),
        ),
        (
            vec![(
                ".dockerconfigjson",
                docker(r#""h.example":{"registrytoken":"abc"}"#),
            )],
            Ok(token("abc")),
        ),
        (vec![], Err("neither username and password")),
        (vec![("password", "secret".into())], Err("no username")),
        (
            vec![("username", "me".into()), ("password", "\n".into())],
            Err("no password"),
        ),
        (
            vec![("username", "m:e".into()), ("password", "secret".into())],
            Err("colon"),
        ),
        (
            vec![("token", "a\u{1}b".into())],
            Err("token holds characters"),
        ),
        (
            vec![(".dockerconfigjson", "{".into())],
            Err(".dockerconfigjson"),
        ),
        (
            vec![(".dockerconfigjson", "[]".into())],
            Err(".dockerconfigjson"),
        ),
        (vec![(".dockerconfigjson", docker(""))], Err("no entry")),
        (
            vec![(
                ".dockerconfigjson",
                docker(&format!(r#""h.example:5000":{ours}"#)),
            )],
            Err("no entry"),
        ),
        (
            vec![(".dockerconfigjson", docker(&format!(r#""example":{ours}"#)))],
            Err("no entry"),
        ),
        (
            vec![(".dockerconfigjson", docker(r#""h.example":{"auth":"%%"}"#))],
            Err("auth in"),
        ),
        (
            vec![(
                ".dockerconfigjson",
                docker(r#""h.example":{"auth":"bWU="}"#),
            )],
            Err("auth in"),
        ),
        (
            vec![(".dockerconfigjson", docker(r#""h.example":{}"#))],
            Err("neither auth"),
        ),
        (
            vec![(
                ".dockerconfigjson",
                docker(r#""h.example":{"identitytoken":"abc"}"#),
            )],
            Err("identity token"),
        ),
    ];
    for (data, expected) in rows {
        let data: Vec<(&str, &str)> = data.iter().map(|(k, v)| (*k, v.as_str())).collect();
        let source = Source::of(
            &spec("oci://h.example/team/app"),
            Some(&secret(&data)),
            None,
        );
        match (source, expected) {
            (Ok(source), Ok(credentials)) => assert_eq!(source.credentials, Some(credentials)),
            (Err(failure), Err(part)) => {
                assert_eq!(failure.fault(), Some(Fault::InvalidCredentials), "{data:?}");
                assert!(failure.to_string().contains(part), "{data:?}: {failure}");
            }
            (found, _) => panic!("{data:?}: {found:?}"),
        }
    }
    let mut data = secret(&[("username", "me")]);
    data.insert("password".to_owned(), vec![0xff]);
    let failure = Source::of(&spec("https://h"), Some(&data), None).unwrap_err();
    assert!(
        failure
            .to_string()
            .contains("password of the Secret is no text"),
        "{failure}"
    );
}

#[test]
fn shapes_of_certificates() {
    let garbled = CA.replace('M', "N");
    let header_only = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n";
    let rows: [(Pairs<'_>, Option<&str>); 13] = [
        (&[("ca.crt", CA)], None),
        (&[("tls.crt", CRT), ("tls.key", KEY)], None),
        (&[("ca.crt", CA), ("tls.crt", CRT), ("tls.key", KEY)], None),
        (&[], Some("neither ca.crt nor tls.crt")),
        (&[("ca.crt", "\n")], Some("neither ca.crt nor tls.crt")),
        (
            &[("ca.crt", "hello")],
            Some("ca.crt of the Secret is no list"),
        ),
        (&[("ca.crt", KEY)], Some("ca.crt of the Secret is no list")),
        (
            &[("ca.crt", &garbled)],
            Some("ca.crt of the Secret is no list"),
        ),
        (
            &[("ca.crt", header_only)],
            Some("ca.crt of the Secret is no list"),
        ),
        (&[("tls.crt", CRT)], Some("no tls.key")),
        (&[("tls.key", KEY)], Some("no tls.crt")),
        (
            &[("tls.crt", CRT), ("tls.key", CRT)],
            Some("tls.key of the Secret is no unencrypted"),
        ),
        (
            &[("tls.crt", CRT), ("tls.key", OTHER_KEY)],
            Some("not the key of tls.crt"),
        ),
    ];
    for (data, expected) in rows {
        let found = Source::of(&spec("https://h"), None, Some(&secret(data)));
        match (found, expected) {
            (Ok(source), None) => {
                crate::http::Http::new(&source).unwrap();
            }
            (Err(failure), Some(part)) => {
                assert_eq!(failure.fault(), Some(Fault::InvalidCredentials));
                assert!(failure.to_string().contains(part), "{failure}");
            }
            (found, _) => panic!("{expected:?}: {found:?}"),
        }
    }
}

#[test]
fn the_digest_tells_what_decides_where_and_as_whom() {
    let digest = |spec: &RepositorySpec, data: &[(&str, &str)], certificates: &[(&str, &str)]| {
        let some = |data: &[(&str, &str)]| (!data.is_empty()).then(|| secret(data));
        let (data, certificates) = (some(data), some(certificates));
        let source = Source::of(spec, data.as_ref(), certificates.as_ref());
        source.unwrap().digest
    };
    let base = spec("https://h");
    let token = [("token", "a")];
    let changed = |change: fn(&mut RepositorySpec)| {
        let mut spec = base.clone();
        change(&mut spec);
        spec
    };
    let others = [
        digest(&spec("https://h/"), &token, &[]),
        digest(&base, &[], &[]),
        digest(&base, &[("token", "b")], &[]),
        digest(&base, &token, &[("ca.crt", CA)]),
        digest(
            &changed(|spec| spec.charts = Some(vec!["a".into()])),
            &token,
            &[],
        ),
        digest(
            &changed(|spec| spec.insecure_skip_verify = Some(true)),
            &token,
            &[],
        ),
    ];
    let ours = digest(&base, &token, &[]);
    let mut all: BTreeSet<_> = others.into();
    assert_eq!(all.len(), others.len());
    assert!(all.insert(ours));
    let same = [
        changed(|spec| spec.interval = Some("1h".into())),
        changed(|spec| spec.timeout = Some("1s".into())),
        changed(|spec| spec.suspend = Some(true)),
        changed(|spec| spec.max_versions = Some(1)),
        changed(|spec| spec.insecure_skip_verify = Some(false)),
        changed(|spec| spec.plain_http = Some(true)),
    ];
    let registry = |plain_http| RepositorySpec {
        plain_http,
        ..spec("oci://127.0.0.1:5000/web")
    };
    let plain = digest(&registry(None), &token, &[]);
    assert_eq!(digest(&registry(Some(true)), &token, &[]), plain);
    assert_ne!(digest(&registry(Some(false)), &token, &[]), plain);
    for spec in same {
        assert_eq!(digest(&spec, &token, &[]), ours);
    }
    let ab = changed(|spec| spec.charts = Some(vec!["a".into(), "b".into()]));
    let ba = changed(|spec| spec.charts = Some(vec!["b".into(), "a".into()]));
    assert_eq!(digest(&ab, &[], &[]), digest(&ba, &[], &[]));
}

#[test]
fn durations_and_bounds() {
    let rows = [
        (None, 60_000),
        (Some("2m"), 120_000),
        (Some("1.5s"), 1500),
        (Some("0s"), 1000),
        (Some("24h"), 600_000),
        (Some("soon"), 60_000),
    ];
    for (timeout, milliseconds) in rows {
        let spec = RepositorySpec {
            timeout: timeout.map(str::to_owned),
            ..spec("https://h")
        };
        let source = Source::of(&spec, None, None).unwrap();
        assert_eq!(source.timeout.as_millis(), milliseconds, "{timeout:?}");
    }
    for (given, kept) in [(None, 250), (Some(1), 1), (Some(0), 1), (Some(5000), 1000)] {
        let spec = RepositorySpec {
            max_versions: given,
            ..spec("https://h")
        };
        assert_eq!(Source::of(&spec, None, None).unwrap().max_versions, kept);
    }
}
