//! Documents and what they come to.

use windlass_api::addon::ChartVersion;

use super::feed::feed;
use super::index::{Index, Kept, Trouble};
use super::*;

fn parse(document: &[u8], charts: Option<&[String]>) -> Result<Catalogue, Trouble> {
    let in_use = InUse::new();
    let kept = Kept {
        max_versions: 250,
        in_use: &in_use,
    };
    let mut index = Index::new(kept, charts, 50);
    feed(document, &mut index)?;
    index.finish()
}

fn catalogue(document: &str) -> Catalogue {
    parse(document.as_bytes(), None).unwrap()
}

fn refusal(document: &str) -> String {
    match parse(document.as_bytes(), None) {
        Err(Trouble::NoIndex(message)) => message,
        other => panic!("{other:?}"),
    }
}

/// An index with one chart, whose list of versions is this YAML.
fn app(versions: &str) -> String {
    format!("apiVersion: v1\nentries:\n  app: {versions}\n")
}

/// What becomes of one version with these fields.
fn version(fields: &str) -> ChartVersion {
    let document = app(&format!("[{{version: 1.0.0, {fields}}}]"));
    let mut catalogue = catalogue(&document);
    assert_eq!(catalogue.skipped, 0, "{fields}");
    catalogue.charts.remove("app").unwrap().versions.remove(0)
}

#[test]
fn where_the_index_is() {
    let rows = [
        ("https://h", "https://h/index.yaml"),
        ("https://h/", "https://h/index.yaml"),
        ("https://h/charts", "https://h/charts/index.yaml"),
        ("https://h/charts//", "https://h/charts/index.yaml"),
        (
            "https://h/a%20b?x=1&y=/",
            "https://h/a%20b/index.yaml?x=1&y=/",
        ),
        ("https://h/charts/index.yaml", "https://h/charts/index.yaml"),
        (
            "https://h/charts/index.yaml?x",
            "https://h/charts/index.yaml?x",
        ),
        (
            "https://h/myindex.yaml",
            "https://h/myindex.yaml/index.yaml",
        ),
    ];
    for (base, index) in rows {
        assert_eq!(index_url(&base.parse().unwrap()).as_str(), index);
    }
}

#[test]
fn an_entry_is_taken_with_all_that_is_shown_of_it() {
    let document = r#"
apiVersion: v1
generated: "2026-01-01T00:00:00Z"
serverInfo: {contextPath: /x}
entries:
  app:
  - apiVersion: v2
    name: app
    version: v1.2
    appVersion: 1.10
    kubeVersion: ">=1.25.0-0"
    created: "2024-05-06T07:08:09.123456789Z"
    description: An app.
    digest: 0123abc
    deprecated: true
    type: library
    dependencies: [{name: common, version: 1.x.x}]
    annotations: {images: "- a\n- b\n"}
    urls: [https://h/1.tgz, 2.tgz, 3.tgz, 4.tgz, 5.tgz]
"#;
    let catalogue = catalogue(document);
    let chart = &catalogue.charts["app"];
    assert_eq!(chart.description.as_deref(), Some("An app."));
    let [version] = chart.versions.as_slice() else {
        panic!("{chart:?}");
    };
    let urls = ["https://h/1.tgz", "2.tgz", "3.tgz", "4.tgz"];
    let expected = ChartVersion {
        version: "v1.2".to_owned(),
        app_version: Some("1.10".to_owned()),
        kube_version: Some(">=1.25.0-0".to_owned()),
        created: Some(serde_json::from_str("\"2024-05-06T07:08:09Z\"").unwrap()),
        digest: Some("0123abc".to_owned()),
        deprecated: Some(true),
        library: Some(true),
        urls: Some(urls.map(str::to_owned).to_vec()),
        unavailable: None,
    };
    assert_eq!(*version, expected);
}

#[test]
fn scalars_keep_their_spelling() {
    let rows = [
        ("1.10", Some("1.10")),
        ("012", Some("012")),
        ("no", Some("no")),
        ("on", Some("on")),
        ("true", Some("true")),
        ("1e3", Some("1e3")),
        ("0x10", Some("0x10")),
        ("2024-01-01", Some("2024-01-01")),
        ("'~'", Some("~")),
        ("\"null\"", Some("null")),
        ("null", None),
        ("~", None),
        ("''", None),
    ];
    for (written, kept) in rows {
        let version = version(&format!("appVersion: {written}"));
        assert_eq!(version.app_version.as_deref(), kept, "{written}");
    }
    let json = r#"{"apiVersion":"v1","entries":{"app":[{"version":"1.0.0","appVersion":7}]}}"#;
    let version = &catalogue(json).charts["app"].versions[0];
    assert_eq!(version.app_version.as_deref(), Some("7"));
}

#[test]
fn flags_and_types_are_tolerated_in_any_spelling() {
    assert_eq!(version("deprecated: false").deprecated, None);
    assert_eq!(version("deprecated: \"true\"").deprecated, Some(true));
    assert_eq!(version("type: application").library, None);
    assert_eq!(version("created: yesterday").created, None);
    assert_eq!(version("urls: null").urls, None);
}

#[test]
fn long_texts_are_cut_and_long_urls_left_out() {
    let long = "ä".repeat(3000);
    let document = app(&format!(
        "[{{version: 1.0.0, description: {long}, appVersion: {long}, urls: [{long}, short.tgz]}}]"
    ));
    let catalogue = catalogue(&document);
    let chart = &catalogue.charts["app"];
    assert_eq!(chart.description.as_ref().unwrap().chars().count(), 500);
    let version = &chart.versions[0];
    assert_eq!(version.app_version.as_ref().unwrap().chars().count(), 256);
    assert_eq!(version.urls, Some(vec!["short.tgz".to_owned()]));
}

/// A chart's versions in YAML, how many of them are kept, how many skipped.
#[test]
fn bad_entries_are_left_out_and_counted_and_the_rest_is_kept() {
    let rows = [
        ("[{version: 1.0.0}]", 1, 0),
        ("[{name: app, version: 1.0.0}, null]", 1, 1),
        ("[{version: 1.0.0}, text]", 1, 1),
        ("[{version: 1.0.0}, [1, 2, {version: 2.0.0}]]", 1, 1),
        ("[{version: 1.0.0}, {name: app}]", 1, 1),
        ("[{version: 1.0.0}, {version: null}]", 1, 1),
        ("[{version: 1.0.0}, {version: ''}]", 1, 1),
        ("[{version: 1.0.0}, {version: latest}]", 1, 1),
        ("[{version: 1.0.0}, {version: [1.1.0]}]", 1, 1),
        ("[{version: 1.0.0}, {version: {a: b}}]", 1, 1),
        ("[{version: 1.0.0}, {version: 1.1.0, name: ../etc}]", 1, 1),
        ("[{version: 1.0.0}, {version: 1.1.0, name: a/b}]", 1, 1),
        ("[{version: 1.0.0}, {version: 1.1.0, urls: a.tgz}]", 1, 1),
        (
            "[{version: 1.0.0}, {version: 1.1.0, urls: [[a.tgz]]}]",
            1,
            1,
        ),
        (
            "[{version: 1.0.0}, {version: 1.1.0, description: {a: b}}]",
            1,
            1,
        ),
        (
            "[{version: 1.0.0}, {version: 1.1.0, deprecated: [true]}]",
            1,
            1,
        ),
        ("[{version: 1.0.0}, {version: 1.1.0, removed: true}]", 1, 0),
        ("[{version: 1.0.0}, {version: 1.1.0, removed: false}]", 2, 0),
        (
            "[{version: 1.0.0}, {? [a, {b: c}] : d, version: 1.1.0}]",
            2,
            0,
        ),
        ("[{version: 1.0.0}, {<<: {version: 1.1.0}}]", 1, 1),
        ("[null, null]", 0, 2),
        ("[]", 0, 0),
        ("null", 0, 0),
    ];
    for (versions, kept, skipped) in rows {
        let catalogue = catalogue(&app(versions));
        let found = (catalogue.charts["app"].versions.len(), catalogue.skipped);
        assert_eq!(found, (kept, skipped), "{versions}");
    }
}

#[test]
fn bad_charts_are_left_out_and_counted_and_the_rest_is_kept() {
    let long = "x".repeat(300);
    let charts = [
        "../up: [{version: 1.0.0}]",
        "'': [{version: 1.0.0}]",
        "map: {version: 1.0.0}",
        "text: hello",
        "[a, list]: [{version: 1.0.0}]",
        &format!("{long}: [{{version: 1.0.0}}]"),
    ];
    for chart in charts {
        let document = format!("{}  {chart}\n", app("[{version: 1.0.0}]"));
        let catalogue = catalogue(&document);
        let names: Vec<&String> = catalogue.charts.keys().collect();
        assert_eq!(names, ["app"], "{chart}");
        assert_eq!(catalogue.skipped, 1, "{chart}");
    }
}

#[test]
fn odd_names_of_charts_are_names() {
    let document = "apiVersion: v1\nentries:\n  Über-App_2: [{version: 1.0.0}]\n  1.10: []\n";
    let catalogue = catalogue(document);
    let names: Vec<&String> = catalogue.charts.keys().collect();
    assert_eq!(names, ["1.10", "Über-App_2"]);
}

#[test]
fn an_empty_repository_is_one() {
    for document in [
        "apiVersion: v1\nentries: {}\n",
        r#"{"entries":{},"apiVersion":"v1"}"#,
        "---\napiVersion: v1\nentries: {}\n...\n",
    ] {
        assert_eq!(catalogue(document), Catalogue::default(), "{document}");
    }
}

#[test]
fn only_wanted_charts_are_kept_and_the_others_count_as_nothing() {
    let document = "apiVersion: v1\nentries:\n  a: [{version: 1.0.0}]\n  b: [null]\n  c: []\n";
    let wanted = ["c".to_owned(), "missing".to_owned()];
    let catalogue = parse(document.as_bytes(), Some(&wanted)).unwrap();
    assert_eq!(catalogue.charts.keys().collect::<Vec<_>>(), ["c"]);
    assert_eq!(catalogue.skipped, 0);
}

#[test]
fn what_is_no_index_is_refused() {
    let deep = format!("{}{}", app("[]"), "x: ") + &"[".repeat(100_000);
    let deeper = format!(
        r#"{{"apiVersion":"v1","entries":{}"#,
        r#"{"a":"#.repeat(100_000)
    );
    let blocks: String = (0..300)
        .map(|at| format!("{}a:\n", " ".repeat(at)))
        .collect();
    let huge = app("[]") + "x: " + &"y".repeat(2 * 1024 * 1024);
    let folded = app("[]") + "x: >\n" + &"  yyyyyyyyy\n".repeat(200_000);
    let quoted = format!(r#"{{"x":"{}"}}"#, "y".repeat(2 * 1024 * 1024));
    let references = app("[]") + "x: &x y\ny: [" + &"*x, ".repeat(2000) + "]\n";
    let rows = [
        ("- a\n- b\n", "it is no map"),
        ("apiVersion: [v1]\nentries: {}\n", "no apiVersion"),
        ("apiVersion: ''\nentries: {}\n", "no apiVersion"),
        ("apiVersion: v1\nentries: []\n", "no entries"),
        ("apiVersion: v1\nentries: text\n", "no entries"),
        ("apiVersion: v1\nentries: *x\n", ""),
        // What offers nothing says so with no entries at all.
        (
            "apiVersion: v1\nentries: {a: text, b: 1}\n",
            "list of versions",
        ),
        (
            &app("[]").replace("[]", "{version: 1.0.0}"),
            "list of versions",
        ),
        (
            "x: &x [{version: 1.0.0}]\napiVersion: v1\nentries: {a: [], b: *x}\n",
            "a reference in place of",
        ),
        ("apiVersion: v1\nentries: {\n", ""),
        ("apiVersion: v1\nentries:\n  a: [{version: '1.0\n", ""),
        ("a: b\n c: d\n", ""),
        (
            "{\"apiVersion\":\"v1\",\"entries\":{}} trailing",
            "trailing",
        ),
        (&deep, "recursion limit"),
        (&deeper, "levels deep"),
        (&blocks, "nest"),
        (&huge, "more than 1 MiB"),
        (&folded, "more than 1 MiB"),
        (&quoted, "more than 1 MiB"),
        (&references, "more than 1000 references"),
    ];
    for (document, part) in rows {
        let message = refusal(document);
        let start: String = document.chars().take(60).collect();
        assert!(message.contains(part), "{start}: {message}");
    }
    let binary = [
        b"apiVersion: v1\nentries: {}\nx: ".as_slice(),
        &[0xff, 0xfe],
    ]
    .concat();
    assert!(parse(&binary, None).is_err());
}

#[test]
fn references_are_followed_to_scalars_and_never_unfolded() {
    let shared =
        "apiVersion: v1\nx: &v 1.10\nentries:\n  app: [{version: 1.0.0, appVersion: *v}]\n";
    let version = &catalogue(shared).charts["app"].versions[0];
    assert_eq!(version.app_version.as_deref(), Some("1.10"));
    let mut bomb = "a0: &a0 [{version: 9.0.0}]\n".to_owned();
    for level in 1..50 {
        let before = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb += &format!("a{level}: &a{level} [{before}]\n");
    }
    // What is behind it is not known, and nothing may be pruned for want of it.
    let document = bomb + &app("[{version: 1.0.0}, *a49]");
    let found = parse(document.as_bytes(), None);
    assert!(matches!(found, Err(Trouble::NoIndex(_))), "{found:?}");
}

#[test]
fn too_many_charts_are_refused() {
    let charts: String = (0..51).map(|at| format!("  c{at}: []\n")).collect();
    let document = format!("apiVersion: v1\nentries:\n{charts}");
    let found = parse(document.as_bytes(), None);
    assert!(matches!(found, Err(Trouble::TooManyCharts)), "{found:?}");
}

#[test]
fn a_truncated_document_is_never_a_catalogue() {
    let whole = r#"apiVersion: v1
generated: "2026-01-01T00:00:00Z"
entries: {a: [{name: a, version: 1.0.0, urls: [x.tgz]}], b: [{name: b, version: 2.0.0}]}
"#;
    let end = whole.trim_end().len();
    let json = r#"{"apiVersion":"v1","entries":{"a":[{"version":"1.0.0"}]}}"#;
    for (document, end) in [(whole, end), (json, json.len())] {
        assert_eq!(catalogue(document).skipped, 0);
        for cut in 0..end {
            let part = document.get(..cut).unwrap();
            assert!(parse(part.as_bytes(), None).is_err(), "{part}");
        }
    }
}
