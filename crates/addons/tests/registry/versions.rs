//! The tags of a registry: how they are listed, which are versions, and what stands under them.

use serde_json::{Value, json};

use windlass_addons::catalogue::{Chart, InUse};
use windlass_addons::oci::{Known, KnownTags, Limits, Reading};
use windlass_addons::source::Source;
use windlass_addons::{Before, Fault};
use windlass_api::addon::chart::Unavailable;
use windlass_api::addon::{ChartVersion, RepositorySpec};

use crate::double::{self, Double, Reply, limits, right};
use crate::{read, read_with, versions, web};

fn unavailable(reading: &Reading) -> Vec<(&str, Option<Unavailable>)> {
    let versions = web(reading).versions.iter();
    versions
        .map(|version| (version.version.as_str(), version.unavailable))
        .collect()
}

fn known(reading: &Reading) -> KnownTags {
    let charts = reading.catalogue.charts.iter();
    charts
        .map(|(name, chart)| {
            let known = Known {
                description: chart.description.clone(),
                versions: chart.versions.clone(),
            };
            (name.clone(), known)
        })
        .collect()
}

fn keeping(source: Source, max_versions: usize) -> Source {
    Source {
        max_versions,
        ..source
    }
}

#[tokio::test]
async fn a_long_list_is_read_page_by_page() {
    for absolute in [false, true] {
        let double = Double::start().await;
        {
            let mut held = double.held();
            held.absolute = absolute;
            held.tag_all("charts/web", (0..2300).map(|at| format!("1.{at}.0")));
        }
        let source = keeping(double.source("charts/web", None), 3);
        let reading = read(&source).await.unwrap();
        assert_eq!(versions(&reading), ["1.2299.0", "1.2298.0", "1.2297.0"]);
        assert_eq!(web(&reading).omitted, 2297);
        assert_eq!(double.count("GET", "/tags/list"), 3);
        assert_eq!(double.count("GET", "/manifests/"), 3);
    }
}

#[tokio::test]
async fn a_list_that_does_not_end_well() {
    let elsewhere = Double::start().await;
    let double = Double::start().await;
    let link = |to: &str| {
        let to = format!("<{to}>; rel=\"next\"");
        move |_: &double::Seen| Some(Reply::of(200, "{\"tags\":[\"1.0.0\"]}").with("link", &to))
    };
    let source = double.source("web", Some(&right()));
    let few = Limits {
        pages: 3,
        ..limits()
    };
    let none = InUse::new();

    double.hook(link(&format!("http://{}/v2/web/tags/list", elsewhere.host)));
    let failure = read(&source).await.unwrap_err();
    assert_eq!(failure.fault(), Some(Fault::SourceRejectedRequest));
    assert!(failure.to_string().contains("is elsewhere"), "{failure}");
    assert!(elsewhere.asked().is_empty());

    double.hook(link("/v2/web/tags/list?n=1000"));
    let failure = read(&source).await.unwrap_err();
    assert_eq!(failure.fault(), None);
    assert!(
        failure.to_string().contains("goes in a circle"),
        "{failure}"
    );

    let mut page = 0;
    double.hook(move |_| {
        page += 1;
        let next = format!("<?n=1000&last={page}>; rel=next");
        Some(Reply::of(200, "{\"tags\":[\"1.0.0\"]}").with("link", next))
    });
    let failure = read_with(&source, &none, &KnownTags::new(), &few)
        .await
        .unwrap_err();
    assert_eq!(failure.fault(), Some(Fault::IndexTooLarge), "{failure}");

    let tight = Limits {
        page_bytes: 10,
        ..limits()
    };
    let failure = read_with(&source, &none, &KnownTags::new(), &tight)
        .await
        .unwrap_err();
    assert_eq!(failure.fault(), None);
    assert!(
        failure.to_string().contains("more than 10 bytes"),
        "{failure}"
    );

    double.hook(|seen| {
        seen.path
            .ends_with("/list")
            .then(|| Reply::of(200, "<html>"))
    });
    let failure = read(&source).await.unwrap_err();
    assert_eq!(failure.fault(), None);
    assert!(failure.to_string().contains("no list of tags"), "{failure}");
}

#[tokio::test]
async fn a_chart_without_tags_is_a_chart() {
    let double = Double::start().await;
    double.hook(|seen| {
        seen.path
            .ends_with("/list")
            .then(|| Reply::of(200, r#"{"tags":null}"#))
    });
    let reading = read(&double.source("web", None)).await.unwrap();
    assert_eq!(web(&reading), &Chart::default());
}

#[tokio::test]
async fn which_tags_are_versions_and_how_they_are_spelled() {
    let double = Double::start().await;
    let tags = [
        "1.0.0",
        "v1.0.1",
        "1.2.3_build.5",
        "2024.01.15",
        "latest",
        "main",
        "sha256-9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08.sig",
        "1.0.0.att",
    ];
    double.held().tag_all("web", tags.map(str::to_owned));
    let reading = read(&double.source("web", None)).await.unwrap();
    assert_eq!(
        versions(&reading),
        ["2024.01.15", "1.2.3+build.5", "v1.0.1", "1.0.0"]
    );
    assert_eq!(reading.catalogue.skipped, 2);
    assert_eq!(double.count("GET", "/manifests/1.2.3_build.5"), 1);
    assert_eq!(double.count("GET", "/manifests/v1.0.1"), 1);
}

#[tokio::test]
async fn what_a_version_says_of_itself() {
    let double = Double::start().await;
    double
        .held()
        .push("web", "1.0.0", &json!({"description": "old"}));
    let digest = double.held().push(
        "web",
        "1.1.0",
        &json!({"description": "A web server", "appVersion": "1.27", "kubeVersion": ">=1.28",
            "deprecated": true, "type": "library"}),
    );
    let reading = read(&double.source("web", None)).await.unwrap();
    assert_eq!(web(&reading).description.as_deref(), Some("A web server"));
    let expected = ChartVersion {
        version: "1.1.0".to_owned(),
        digest: Some(digest),
        created: web(&reading).versions[0].created.clone(),
        app_version: Some("1.27".to_owned()),
        kube_version: Some(">=1.28".to_owned()),
        deprecated: Some(true),
        library: Some(true),
        ..ChartVersion::default()
    };
    assert_eq!(web(&reading).versions[0], expected);
    assert_eq!(
        expected.created.unwrap().0.to_string(),
        "2026-01-02T03:04:05Z"
    );
}

#[tokio::test]
async fn what_is_no_chart_is_listed_as_such() {
    let double = Double::start().await;
    {
        let mut held = double.held();
        let chart = held.chart(&json!({}), double::archive_of("x"));
        let with = |path: &str, value: Value| {
            let mut changed = chart.clone();
            *changed.pointer_mut(path).unwrap() = value;
            changed
        };
        held.manifest("web", "1.0.0", &chart);
        held.manifest("web", "2.0.0", &json!({"manifests": []}));
        let config = with(
            "/config/mediaType",
            json!("application/vnd.oci.image.config.v1+json"),
        );
        held.manifest("web", "3.0.0", &config);
        held.manifest("web", "4.0.0", &with("/layers", json!([])));
        held.manifest("web", "5.0.0", &json!("nonsense"));
        held.manifest(
            "web",
            "6.0.0",
            &with("/layers/0/mediaType", json!("application/tar+gzip")),
        );
    }
    let odd = Some(Unavailable::UnsupportedMediaType);
    let expected = [
        ("6.0.0", None),
        ("5.0.0", odd),
        ("4.0.0", odd),
        ("3.0.0", odd),
        ("2.0.0", odd),
        ("1.0.0", None),
    ];
    let source = double.source("web", None);
    let reading = read(&source).await.unwrap();
    assert_eq!(unavailable(&reading), expected);
    assert_eq!(reading.pending, 0);

    // The verdict holds as long as the digest does.
    double.asked();
    let again = read_with(&source, &InUse::new(), &known(&reading), &limits())
        .await
        .unwrap();
    assert_eq!(unavailable(&again), expected);
    assert_eq!(
        (double.count("HEAD", ""), double.count("GET", "/manifests/")),
        (6, 0)
    );
}

#[tokio::test]
async fn one_tag_that_fails() {
    let pending = Some(Unavailable::ResolvePending);
    let cases: [(Reply, Option<Unavailable>); 5] = [
        (Reply::error(500, "UNKNOWN"), pending),
        (Reply::error(429, "TOOMANYREQUESTS"), pending),
        (Reply::error(400, "MANIFEST_INVALID"), pending),
        (
            Reply::of(200, "{}").with(
                "docker-content-digest",
                format!("sha256:{}", "0".repeat(64)),
            ),
            pending,
        ),
        (
            Reply::of(200, "{}"),
            Some(Unavailable::UnsupportedMediaType),
        ),
    ];
    for (reply, expected) in cases {
        let double = Double::start().await;
        double.held().push("web", "1.0.0", &json!({}));
        double.held().push("web", "0.9.0", &json!({}));
        let status = reply.status;
        double.hook(move |seen| seen.path.ends_with("/0.9.0").then(|| reply.clone()));
        let reading = read(&double.source("web", None)).await.unwrap();
        assert_eq!(unavailable(&reading)[1], ("0.9.0", expected), "{status}");
        assert_eq!(
            reading.pending,
            usize::from(expected == pending),
            "{status}"
        );
        assert_eq!(reading.cause.is_some(), expected == pending, "{status}");
    }
}

#[tokio::test]
async fn a_tag_that_is_gone_since_the_list_was_made() {
    let double = Double::start().await;
    double.held().push("web", "1.0.0", &json!({}));
    double.hook(|seen| {
        let list = seen.path.ends_with("/list");
        list.then(|| Reply::of(200, r#"{"tags":["1.0.0","1.1.0"]}"#))
    });
    let reading = read(&double.source("web", None)).await.unwrap();
    assert_eq!(unavailable(&reading), [("1.0.0", None)]);
}

#[tokio::test]
async fn one_tag_that_is_refused_ends_the_reading() {
    for status in [401, 403] {
        let double = Double::start().await;
        double.held().push("web", "1.0.0", &json!({}));
        double.held().push("web", "0.9.0", &json!({}));
        double.hook(move |seen| {
            seen.path
                .ends_with("/0.9.0")
                .then(|| Reply::error(status, "DENIED"))
        });
        let failure = read(&double.source("web", None)).await.unwrap_err();
        assert_eq!(
            failure.fault(),
            Some(Fault::AuthenticationFailed),
            "{status}"
        );
    }
}

#[tokio::test]
async fn what_is_pending_is_looked_at_the_next_time() {
    let double = Double::start().await;
    double
        .held()
        .tag_all("web", (0..20).map(|at| format!("1.0.{at}")));
    let few = Limits {
        manifests: 15,
        ..limits()
    };
    let source = double.source("web", None);
    let first = read_with(&source, &InUse::new(), &KnownTags::new(), &few)
        .await
        .unwrap();
    assert_eq!(first.pending, 5);
    assert_eq!(versions(&first).len(), 20);
    // Nobody was asked, so that there is no cause.
    assert_eq!(first.cause, None);
    let second = read_with(&source, &InUse::new(), &known(&first), &few)
        .await
        .unwrap();
    assert_eq!(second.pending, 0);
}

#[tokio::test]
async fn a_registry_that_has_enough_is_left_alone() {
    let double = Double::start().await;
    double
        .held()
        .tag_all("web", (0..60).map(|at| format!("1.0.{at}")));
    double.hook(|seen| {
        let manifest = seen.path.contains("/manifests/");
        manifest.then(|| Reply::error(429, "TOOMANYREQUESTS"))
    });
    let reading = read(&double.source("web", None)).await.unwrap();
    assert_eq!(reading.pending, 60);
    // Those that were under way when the first answer came.
    assert!(double.count("GET", "/manifests/") <= 16);
}

#[tokio::test]
async fn what_is_known_is_not_asked_for_again_but_watched() {
    let double = Double::start().await;
    for at in 0..20 {
        double.held().push(
            "web",
            &format!("1.0.{at}"),
            &json!({"description": "before"}),
        );
    }
    let source = double.source("web", None);
    let first = read(&source).await.unwrap();
    let known = known(&first);
    let in_use = InUse::from([("web".to_owned(), vec!["1.0.3".to_owned()])]);
    let few = Limits {
        watched: 2,
        ..limits()
    };

    double.asked();
    let second = read_with(&source, &in_use, &known, &few).await.unwrap();
    assert_eq!(second, first);
    let mut asked = double.asked();
    asked.sort();
    assert_eq!(
        asked,
        [
            "GET /v2/",
            "GET /v2/web/tags/list",
            "HEAD /v2/web/manifests/1.0.18",
            "HEAD /v2/web/manifests/1.0.19",
            "HEAD /v2/web/manifests/1.0.3",
        ]
    );

    // Two tags move: the one that is watched is seen.
    let digest = double
        .held()
        .push("web", "1.0.3", &json!({"appVersion": "moved"}));
    double
        .held()
        .push("web", "1.0.4", &json!({"appVersion": "moved"}));
    let third = read_with(&source, &in_use, &known, &few).await.unwrap();
    let version = |at: usize| &web(&third).versions[at];
    assert_eq!(version(16).digest.as_ref(), Some(&digest));
    assert_eq!(version(16).app_version.as_deref(), Some("moved"));
    assert_eq!(version(15), &web(&first).versions[15]);
    assert_eq!(web(&third).description.as_deref(), Some("before"));

    // A forced reading knows nothing.
    let forced = read_with(&source, &in_use, &KnownTags::new(), &few)
        .await
        .unwrap();
    assert_eq!(
        web(&forced).versions[15].app_version.as_deref(),
        Some("moved")
    );
}

#[tokio::test]
async fn a_known_version_outlives_a_registry_that_stumbles() {
    let double = Double::start().await;
    double
        .held()
        .push("web", "1.0.0", &json!({"appVersion": "1"}));
    let source = double.source("web", None);
    let first = read(&source).await.unwrap();
    for status in [500, 405, 429] {
        double.hook(move |seen| (seen.method == "HEAD").then(|| Reply::of(status, "")));
        let again = read_with(&source, &InUse::new(), &known(&first), &limits())
            .await
            .unwrap();
        assert_eq!(again, first, "{status}");
    }
    double.hook(|seen| (seen.method == "HEAD").then(|| Reply::of(403, "")));
    let failure = read_with(&source, &InUse::new(), &known(&first), &limits())
        .await
        .unwrap_err();
    assert_eq!(failure.fault(), Some(Fault::AuthenticationFailed));
}

#[tokio::test]
async fn versions_in_use_are_kept_beyond_the_bound() {
    let double = Double::start().await;
    double
        .held()
        .tag_all("web", (0..20).map(|at| format!("1.0.{at}")));
    let in_use = InUse::from([(
        "web".to_owned(),
        vec!["1.0.3".to_owned(), "1.0.19".to_owned()],
    )]);
    let source = keeping(double.source("web", None), 2);
    let reading = read_with(&source, &in_use, &KnownTags::new(), &limits())
        .await
        .unwrap();
    let none = |version| (version, None);
    let expected = ["1.0.19", "1.0.18", "1.0.17", "1.0.3"].map(none);
    assert_eq!(unavailable(&reading), expected);
    assert_eq!(web(&reading).omitted, 16);
}

#[tokio::test]
async fn bounds_of_what_is_read_of_one_version() {
    let double = Double::start().await;
    let long = "x".repeat(70 << 10);
    double.held().push(
        "web",
        "1.0.0",
        &json!({"appVersion": "1", "description": long}),
    );
    let source = double.source("web", None);
    let reading = read(&source).await.unwrap();
    // Chart.yaml is too large to be read; the version can be placed all the same.
    assert_eq!(unavailable(&reading), [("1.0.0", None)]);
    assert_eq!(web(&reading).versions[0].app_version, None);
    assert_eq!(double.count("GET", "/blobs/"), 0);

    let tight = Limits {
        manifest_bytes: 100,
        ..limits()
    };
    let reading = read_with(&source, &InUse::new(), &KnownTags::new(), &tight)
        .await
        .unwrap();
    assert_eq!(
        unavailable(&reading),
        [("1.0.0", Some(Unavailable::ResolvePending))]
    );
    let cause = reading.cause.unwrap().to_string();
    assert!(cause.contains("more than 100 bytes"), "{cause}");
}

#[tokio::test]
async fn several_charts_below_one_url() {
    let double = Double::start().await;
    double.held().push("team/charts/web", "1.0.0", &json!({}));
    double.held().push("team/charts/db", "2.0.0", &json!({}));
    let of = |charts: &[&str]| RepositorySpec {
        url: format!("oci://{}/team/charts", double.host),
        charts: Some(charts.iter().copied().map(str::to_owned).collect()),
        ..RepositorySpec::default()
    };
    let source = double.source_of(&of(&["web", "db"]), None);
    let reading = read(&source).await.unwrap();
    let names: Vec<_> = reading.catalogue.charts.keys().collect();
    assert_eq!(names, ["db", "web"]);

    let source = double.source_of(&of(&["web", "missing", "gone", "db"]), None);
    let failure = read(&source).await.unwrap_err();
    assert_eq!(failure.fault(), Some(Fault::SourceNotFound));
    assert!(
        failure.to_string().starts_with("chart missing: "),
        "{failure}"
    );

    for odd in ["UPPER", "a/b", "..", "a b", ".a"] {
        double.asked();
        let source = double.source_of(&of(&["web", odd]), None);
        let failure = read(&source).await.unwrap_err();
        assert_eq!(failure.fault(), Some(Fault::InvalidRepositoryUrl), "{odd}");
        assert!(double.asked().is_empty(), "{odd}");
    }
}

#[tokio::test]
async fn one_call_reads_either_kind() {
    let double = Double::start().await;
    let index =
        "apiVersion: v1\nentries:\n  web:\n  - {name: web, version: 1.0.0, urls: [web.tgz]}\n";
    let files = [("/charts/index.yaml".to_owned(), index.as_bytes().to_vec())];
    double.held().files.extend(files);
    double.held().push("charts/web", "1.0.0", &json!({}));
    let classic = RepositorySpec {
        url: format!("http://{}/charts", double.host),
        ..RepositorySpec::default()
    };
    let sources = [
        double.source_of(&classic, None),
        double.source("charts/web", None),
    ];
    for source in sources {
        let read = windlass_addons::read(&source, &InUse::new(), &Before::default()).await;
        let windlass_addons::Reading::Read { catalogue, .. } = read.unwrap() else {
            panic!("nothing was known before");
        };
        let versions = &catalogue.charts["web"].versions;
        assert_eq!(versions[0].version, "1.0.0", "{:?}", source.protocol);
    }
}
