//! Fetching a chart's archive, from either kind of repository.

use crate::double::{
    Auth, Double, PASSWORD, Reply, USER_HEADER, archive_limits, archive_of, right,
};
use serde_json::json;
use windlass_addons::archive::{self, Archive, Limits};
use windlass_addons::failure::{Failure, Fault};
use windlass_addons::source::Source;
use windlass_api::addon::{ChartVersion, RepositorySpec};
use windlass_status::Digest;

async fn fetch(source: &Source, version: &ChartVersion) -> Result<Archive, Failure> {
    fetch_with(source, version, &archive_limits()).await
}

async fn fetch_with(
    source: &Source,
    version: &ChartVersion,
    limits: &Limits,
) -> Result<Archive, Failure> {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let result = is_send(archive::fetch(source, "web", version, limits)).await;
    if let Err(failure) = &result {
        let text = format!("{failure} {failure:?}");
        for secret in [PASSWORD, "secret-token", "YWRhO"] {
            assert!(!text.contains(secret), "a secret in {text}");
        }
    }
    result
}

fn classic(double: &Double, path: &str) -> Source {
    let spec = RepositorySpec {
        url: format!("http://{}{path}", double.host),
        ..RepositorySpec::default()
    };
    double.source_of(&spec, Some(&right()))
}

fn indexed(url: &str, digest: Option<String>) -> ChartVersion {
    ChartVersion {
        version: "1.0.0+a".to_owned(),
        digest,
        urls: Some(vec![url.to_owned(), "never-used.tgz".to_owned()]),
        ..ChartVersion::default()
    }
}

fn tagged(version: &str, digest: Option<String>) -> ChartVersion {
    ChartVersion {
        version: version.to_owned(),
        digest,
        ..ChartVersion::default()
    }
}

#[tokio::test]
async fn an_archive_of_a_classic_repository() {
    let double = Double::start().await;
    let bytes = archive_of("web");
    let digest = Digest::of_bytes(&bytes);
    double.held().auth = Auth::Basic;
    let files = [("/stable/web.tgz".to_owned(), bytes.clone())];
    double.held().files.extend(files);
    let source = classic(&double, "/stable");
    let digests = [
        None,
        Some(digest.to_string()),
        Some(digest.to_string().to_uppercase()),
        Some(format!("sha256:{digest}")),
    ];
    let absolute = format!("http://{}/stable/web.tgz", double.host);
    for told in digests {
        for url in ["web.tgz", "/stable/web.tgz", &absolute] {
            let archive = fetch(&source, &indexed(url, told.clone())).await.unwrap();
            let expected = Archive {
                bytes: bytes.clone(),
                digest,
                version: "1.0.0+a".to_owned(),
            };
            assert_eq!(archive, expected, "{url}");
        }
    }
}

#[tokio::test]
async fn what_a_classic_repository_may_answer() {
    let double = Double::start().await;
    let tight = Limits {
        bytes: 100,
        ..archive_limits()
    };
    let source = classic(&double, "");
    let good = archive_of("web");
    let cases = [
        (Reply::of(200, "<html>"), None, None, "no gzipped archive"),
        (Reply::of(200, ""), None, None, "no gzipped archive"),
        (
            Reply::of(200, good.clone()),
            Some("0".repeat(64)),
            None,
            "has the digest",
        ),
        (
            Reply::of(200, good),
            Some("nonsense".to_owned()),
            None,
            "has the digest",
        ),
        (
            Reply::of(200, archive_of(&"x".repeat(100))),
            None,
            None,
            "more than 100 bytes",
        ),
        (Reply::of(404, ""), None, Some(Fault::SourceNotFound), "404"),
        (
            Reply::of(403, ""),
            None,
            Some(Fault::AuthenticationFailed),
            "403",
        ),
        (Reply::of(503, ""), None, None, "503"),
        (
            Reply::of(429, "").with("retry-after", "9"),
            None,
            None,
            "429",
        ),
    ];
    for (reply, digest, fault, part) in cases {
        let waits = reply.status == 429;
        double.hook(move |_| Some(reply.clone()));
        let failure = fetch_with(&source, &indexed("web.tgz", digest), &tight)
            .await
            .unwrap_err();
        assert_eq!(failure.fault(), fault, "{failure}");
        assert!(failure.to_string().contains(part), "{failure}");
        assert!(failure.to_string().contains("/web.tgz"), "{failure}");
        assert_eq!(failure.retry_after().is_some(), waits, "{failure}");
    }
    let nowhere = ChartVersion {
        urls: None,
        ..indexed("", None)
    };
    let failure = fetch(&source, &nowhere).await.unwrap_err();
    assert_eq!(failure.fault(), Some(Fault::SourceNotFound));
}

#[tokio::test]
async fn another_host_in_an_index_gets_no_credentials() {
    let double = Double::start().await;
    let other = Double::start().await;
    let bytes = archive_of("web");
    other
        .held()
        .files
        .insert("/web.tgz".to_owned(), bytes.clone());
    other.held().push("web", "1.0.0_a", &json!({}));
    let source = classic(&double, "");
    for url in [
        format!("http://{}/web.tgz", other.host),
        format!("oci://{}/web", other.host),
    ] {
        fetch(&source, &indexed(&url, None)).await.unwrap();
        assert_eq!(other.held().identities(), [None].into(), "{url}");
    }

    let to = format!("http://{}/web.tgz", other.host);
    double.hook(move |_| Some(Reply::of(302, "").with("location", &to)));
    let archive = fetch(&source, &indexed("web.tgz", None)).await.unwrap();
    assert_eq!(archive.bytes, bytes);
    assert_eq!(other.held().identities(), [None].into());
    assert_eq!(
        double.held().identities(),
        [Some(USER_HEADER.to_owned())].into()
    );

    other.held().auth = Auth::Token(None);
    let url = format!("oci://{}/web", other.host);
    let failure = fetch(&source, &indexed(&url, None)).await.unwrap_err();
    assert_eq!(failure.fault(), Some(Fault::AuthenticationFailed));
    let identities = other.held().identities();
    assert!(
        !identities.contains(&Some(USER_HEADER.to_owned())),
        "{identities:?}"
    );
}

#[tokio::test]
async fn an_index_may_point_into_a_registry() {
    let double = Double::start().await;
    double.held().auth = Auth::Basic;
    double.held().push("charts/web", "1.0.0_a", &json!({}));
    let source = classic(&double, "");
    let digest = Digest::of_bytes(&archive_of("charts/web 1.0.0_a"));
    for (url, told) in [
        (format!("oci://{}/charts/web", double.host), None),
        (
            format!("oci://{}/charts/web:1.0.0_a", double.host),
            Some(digest.to_string()),
        ),
    ] {
        let archive = fetch(&source, &indexed(&url, told)).await.unwrap();
        assert_eq!(archive.digest, digest, "{url}");
    }
    let url = format!("oci://{}/charts/web", double.host);
    let failure = fetch(&source, &indexed(&url, Some("0".repeat(64))))
        .await
        .unwrap_err();
    assert!(failure.to_string().contains("has the digest"), "{failure}");
}

#[tokio::test]
async fn an_archive_of_a_registry() {
    for auth in [Auth::Open, Auth::Basic, Auth::Token(None), Auth::Public] {
        let double = Double::start().await;
        double.held().auth = auth;
        let digest = double.held().push("charts/web", "1.0.0_a", &json!({}));
        let source = double.source("charts/web", Some(&right()));
        for told in [None, Some(digest.clone())] {
            let archive = fetch(&source, &tagged("1.0.0+a", told)).await.unwrap();
            assert_eq!(archive.bytes, archive_of("charts/web 1.0.0_a"));
            assert_eq!(archive.digest, Digest::of_bytes(&archive.bytes));
            assert_eq!(archive.version, "1.0.0+a");
        }
        // Once by its tag, once by its digest.
        let answered = |path: &str| double.count("GET", path) > 0;
        assert!(answered("/manifests/1.0.0_a") && answered(&format!("/manifests/{digest}")));
    }
}

#[tokio::test]
async fn what_is_known_by_digest_is_fetched_by_it() {
    let double = Double::start().await;
    let before = double.held().push("web", "1.0.0", &json!({}));
    let chart = double.held().chart(&json!({}), archive_of("moved"));
    double.held().manifest("web", "1.0.0", &chart);
    let source = double.source("web", None);
    let archive = fetch(&source, &tagged("1.0.0", Some(before)))
        .await
        .unwrap();
    assert_eq!(archive.bytes, archive_of("web 1.0.0"));
    let archive = fetch(&source, &tagged("1.0.0", None)).await.unwrap();
    assert_eq!(archive.bytes, archive_of("moved"));
}

#[tokio::test]
async fn what_a_registry_may_answer() {
    let double = Double::start().await;
    let digest = double.held().push("web", "1.0.0", &json!({}));
    let source = double.source("web", None);
    let known = tagged("1.0.0", Some(digest));
    let rejected = Some(Fault::SourceRejectedRequest);
    let not_found = Some(Fault::SourceNotFound);
    let other = double
        .held()
        .chart(&json!({}), archive_of("other"))
        .to_string();
    let cases = [
        (
            "/manifests/",
            Reply::error(404, "MANIFEST_UNKNOWN"),
            not_found,
            "MANIFEST_UNKNOWN",
        ),
        (
            "/manifests/",
            Reply::of(200, other),
            None,
            "has another digest",
        ),
        (
            "/manifests/",
            Reply::error(500, "UNKNOWN"),
            None,
            "told UNKNOWN",
        ),
        (
            "/blobs/",
            Reply::of(200, archive_of("other")),
            None,
            "has another digest",
        ),
        (
            "/blobs/",
            Reply::error(404, "BLOB_UNKNOWN"),
            not_found,
            "BLOB_UNKNOWN",
        ),
        (
            "/v2/",
            Reply::error(429, "TOOMANYREQUESTS"),
            None,
            "TOOMANYREQUESTS",
        ),
    ];
    for (path, reply, fault, part) in cases {
        double.hook(move |seen| seen.path.contains(path).then(|| reply.clone()));
        let failure = fetch(&source, &known).await.unwrap_err();
        assert_eq!(failure.fault(), fault, "{failure}");
        assert!(failure.to_string().contains(part), "{failure}");
    }
    double.held().hook = None;

    let tight = Limits {
        bytes: 4,
        ..archive_limits()
    };
    let failure = fetch_with(&source, &known, &tight).await.unwrap_err();
    assert_eq!(failure.fault(), None);
    assert!(
        failure.to_string().contains("at most 4 are read"),
        "{failure}"
    );

    double
        .held()
        .manifest("web", "2.0.0", &json!({"manifests": []}));
    let failure = fetch(&source, &tagged("2.0.0", None)).await.unwrap_err();
    assert_eq!(failure.fault(), rejected);
    assert!(failure.to_string().contains("no Helm chart"), "{failure}");

    let unknown = archive::fetch(&source, "db", &known, &archive_limits())
        .await
        .unwrap_err();
    assert_eq!(unknown.fault(), not_found);
}
