//! What is kept of a repository, and what its AddonCharts say.

use super::*;
use windlass_api::Time;

fn entry(version: &str) -> Entry {
    Entry {
        version: ChartVersion {
            version: version.to_owned(),
            ..ChartVersion::default()
        },
        description: Some(format!("about {version}")),
    }
}

fn gathered(max: usize, in_use: &[&str], versions: &[&str]) -> Chart {
    let in_use = InUse::from([(
        "web".to_owned(),
        in_use.iter().map(ToString::to_string).collect(),
    )]);
    let mut collector = Collector::new(max, &in_use);
    for version in versions {
        collector.add("web", entry(version));
    }
    collector.finish().charts.remove("web").unwrap_or_default()
}

fn spelled(versions: &[ChartVersion]) -> Vec<&str> {
    versions
        .iter()
        .map(|version| version.version.as_str())
        .collect()
}

#[test]
fn the_newest_and_those_in_use_are_kept_by_their_spelling() {
    type Row = (
        usize,
        &'static [&'static str],
        &'static [&'static str],
        &'static [&'static str],
        usize,
    );
    let rows: [Row; 6] = [
        (
            9,
            &[],
            &["1.0.0", "1.10.0", "1.9.0"],
            &["1.10.0", "1.9.0", "1.0.0"],
            0,
        ),
        (
            2,
            &[],
            &["1.0.0", "1.10.0", "1.9.0"],
            &["1.10.0", "1.9.0"],
            1,
        ),
        (
            1,
            &["1.0.0"],
            &["1.0.0", "1.10.0", "1.9.0"],
            &["1.10.0", "1.0.0"],
            1,
        ),
        (
            1,
            &["1.10.0"],
            &["1.0.0", "1.10.0", "1.9.0"],
            &["1.10.0", "1.9.0"],
            1,
        ),
        (
            9,
            &[],
            &["v1.2", "2024.01.15", "1.2.0-rc.1"],
            &["2024.01.15", "v1.2", "1.2.0-rc.1"],
            0,
        ),
        (
            9,
            &[],
            &["1.0.0", "latest", "1.0.0", "1.2.3.4"],
            &["1.0.0"],
            0,
        ),
    ];
    for (max, in_use, offered, kept, omitted) in rows {
        let chart = gathered(max, in_use, offered);
        assert_eq!(
            spelled(&chart.versions),
            kept,
            "{max} of {offered:?}, {in_use:?} in use"
        );
        assert_eq!(
            chart.omitted, omitted,
            "{max} of {offered:?}, {in_use:?} in use"
        );
    }
}

#[test]
fn what_is_invalid_is_counted_and_hides_nothing_else() {
    let in_use = InUse::new();
    let mut collector = Collector::new(9, &in_use);
    assert!(!collector.chart("a/b"));
    assert!(collector.chart("empty"));
    collector.add("web", entry("not a version"));
    collector.add("web", entry("1.0.0"));
    collector.skip();
    let catalogue = collector.finish();
    assert_eq!(catalogue.skipped, 3);
    assert_eq!(
        catalogue.charts.keys().collect::<Vec<_>>(),
        ["empty", "web"]
    );
    assert_eq!(
        catalogue.charts["web"].description.as_deref(),
        Some("about 1.0.0")
    );
}

#[test]
fn of_two_alike_the_later_stays() {
    let at = |text: &str| Some(Time(text.parse().expect("a time")));
    let made = |created, digest: &str| {
        let mut made = entry("1.0.0");
        made.version.created = created;
        made.version.digest = Some(digest.to_owned());
        made
    };
    let (old, new) = (at("2026-01-01T00:00:00Z"), at("2026-02-01T00:00:00Z"));
    for (first, second, stays) in [
        (old.clone(), new.clone(), "second"),
        (new.clone(), old.clone(), "first"),
        (None, old.clone(), "second"),
        (old.clone(), old, "first"),
        (None, None, "first"),
        (new, None, "first"),
    ] {
        let in_use = InUse::new();
        let mut collector = Collector::new(9, &in_use);
        collector.add("web", made(first.clone(), "first"));
        collector.add("web", made(second.clone(), "second"));
        let catalogue = collector.finish();
        let kept = &catalogue.charts["web"].versions;
        assert_eq!(kept.len(), 1);
        assert_eq!(
            kept[0].digest.as_deref(),
            Some(stays),
            "{first:?} {second:?}"
        );
    }
}

#[test]
fn names_of_objects_are_valid_and_never_the_same() {
    let pairs = [
        ("a-chart-b", "c"),
        ("a", "b-chart-c"),
        ("stable", "Über_chart.x"),
        ("stable", "über_chart.x"),
        ("a.b", "---"),
        (
            "a-very-long-name-of-a-repository",
            "a-very-long-name-of-a-chart",
        ),
        (
            "a-very-long-name-of-a-repository",
            "a-very-long-name-of-a-chart2",
        ),
    ];
    let names: std::collections::BTreeSet<String> = pairs
        .iter()
        .map(|(repository, chart)| object_name(repository, chart))
        .collect();
    assert_eq!(names.len(), pairs.len(), "{names:?}");
    for name in &names {
        assert!(
            name.len() <= 63 && !name.starts_with('-') && !name.ends_with('-'),
            "{name}"
        );
        assert!(
            name.chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
            "{name}"
        );
    }
    assert!(object_name("stable", "podinfo").starts_with("stable-podinfo-"));
}

#[test]
fn what_is_in_use_stays_although_the_repository_does_not_offer_it_any_more() {
    let chart = gathered(9, &[], &["1.0.0", "2.0.0"]);
    let before = chart_spec("stable", "web", Some(&chart), None, &[]);
    assert_eq!(before.latest.as_deref(), Some("2.0.0"));
    let now = gathered(9, &[], &["2.0.0", "3.0.0-rc.1"]);
    let after = chart_spec(
        "stable",
        "web",
        Some(&now),
        Some(&before),
        &["1.0.0".to_owned()],
    );
    assert_eq!(spelled(&after.versions), ["3.0.0-rc.1", "2.0.0", "1.0.0"]);
    assert_eq!(
        after.versions[2].unavailable,
        Some(Unavailable::RemovedFromRepository)
    );
    assert_eq!(after.latest.as_deref(), Some("2.0.0"));
    // Nothing else keeps it.
    let later = chart_spec("stable", "web", Some(&now), Some(&after), &[]);
    assert_eq!(spelled(&later.versions), ["3.0.0-rc.1", "2.0.0"]);
    // The whole chart is gone.
    let gone = chart_spec("stable", "web", None, Some(&before), &["1.0.0".to_owned()]);
    assert_eq!(spelled(&gone.versions), ["1.0.0"]);
    // Offered again.
    let again = chart_spec(
        "stable",
        "web",
        Some(&chart),
        Some(&gone),
        &["1.0.0".to_owned()],
    );
    assert_eq!(again.versions[1].unavailable, None);
}

#[test]
fn an_object_stays_within_its_size() {
    let mut chart = Chart::default();
    for at in (0..1000).rev() {
        let mut version = entry(&format!("1.{at}.0")).version;
        version.urls = Some(vec![format!("https://example.com/{}", "x".repeat(2000))]);
        chart.versions.push(version);
    }
    let spec = chart_spec("stable", "web", Some(&chart), None, &["1.0.0".to_owned()]);
    let size = serde_json::to_vec(&spec).expect("JSON").len();
    assert!(size <= CHART_LIMIT + 4096, "{size}");
    assert_eq!(spec.versions[0].version, "1.999.0");
    assert_eq!(spec.versions.last().expect("one").version, "1.0.0");
    assert_eq!(
        spec.omitted_versions,
        Some(i32::try_from(1000 - spec.versions.len()).expect("few"))
    );
}

#[test]
fn the_latest_is_one_that_people_want() {
    let version = |text: &str, deprecated| ChartVersion {
        version: text.to_owned(),
        deprecated,
        ..ChartVersion::default()
    };
    for (versions, expected) in [
        (
            vec![version("2.0.0-rc.1", None), version("1.0.0", None)],
            "1.0.0",
        ),
        (
            vec![version("2.0.0", Some(true)), version("1.0.0", None)],
            "1.0.0",
        ),
        (
            vec![version("2.0.0", Some(true)), version("1.0.0", Some(true))],
            "2.0.0",
        ),
        (vec![version("2.0.0-rc.1", None)], "2.0.0-rc.1"),
    ] {
        assert_eq!(
            latest(&versions).map(|latest| latest.version.as_str()),
            Some(expected)
        );
    }
    assert_eq!(latest(&[]), None);
}
