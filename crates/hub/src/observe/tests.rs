//! The counters against a count of everything, their series, and the page that lists them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use prometheus::proto::{MetricFamily, MetricType};
use proptest::prelude::*;
use windlass_api::conditions::{Stage, Status};

use super::collector::{FAILING_SERIES, INDEXES};
use super::*;

fn summary(placement: &str, cluster: &str, index: u64, applied: Status, behind: bool) -> Summary {
    Summary {
        placement: placement.into(),
        cluster: cluster.into(),
        index: Some(index),
        stages: vec![
            (Stage::WorkSynchronized, Status::True),
            (Stage::Applied, applied),
        ],
        failing: (applied == Status::False).then_some(Stage::Applied),
        is_behind: behind,
    }
}

fn facts(index: Option<u64>, latest: Option<u64>, is_complete: bool) -> PlacementFacts {
    PlacementFacts {
        index,
        latest,
        is_scheduled: true,
        is_complete,
    }
}

struct World {
    registry: Registry,
    observer: Observer,
}

impl World {
    fn new() -> Self {
        let registry = Registry::new();
        let events = Events::silent().unwrap();
        let observer = Observer::new(&registry, &Queues::default(), events).unwrap();
        observer.lead();
        Self { registry, observer }
    }

    /// Series of a family as `label=value … number`, labels in order of their names.
    fn series(&self, name: &str) -> Vec<String> {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name);
        let lines = family
            .map(MetricFamily::get_metric)
            .unwrap_or_default()
            .iter()
            .map(|metric| {
                let labels: String = metric
                    .get_label()
                    .iter()
                    .map(|l| format!("{} ", l.value()))
                    .collect();
                format!("{labels}{}", metric.get_gauge().get_value())
            });
        lines.collect()
    }
}

#[test]
fn series_come_with_what_they_tell_of_and_vanish_with_it() {
    let world = World::new();
    let now = clock::monotonic();
    {
        let mut tally = world.observer.lock();
        tally.cluster("east", true);
        tally.cluster("west", true);
        tally.placement("web", &facts(Some(4), Some(4), false), false, now);
        tally.binding(
            "web-east",
            Some(summary("web", "east", 4, Status::False, false)),
        );
        tally.binding(
            "web-west",
            Some(summary("web", "west", 3, Status::True, false)),
        );
    }
    assert_eq!(
        world.series("windlass_placement_clusters"),
        [
            "Applied web False 1",
            "Applied web True 1",
            "WorkSynchronized web True 2",
        ]
    );
    assert_eq!(
        world.series("windlass_placement_clusters_by_index"),
        ["3 web 1", "4 web 1"]
    );
    assert_eq!(world.series("windlass_failing"), ["east Applied web 1"]);
    assert_eq!(
        world.series("windlass_cluster_failed_placements"),
        ["east 1", "west 0"]
    );
    assert_eq!(
        world.series("windlass_cluster_lagging_placements"),
        ["east 0", "west 1"]
    );
    assert_eq!(world.series("windlass_placement_scheduled"), ["web 1"]);
    // Mended.
    world.observer.lock().binding(
        "web-east",
        Some(summary("web", "east", 4, Status::True, false)),
    );
    assert_eq!(world.series("windlass_failing"), [""; 0]);
    assert_eq!(
        world.series("windlass_cluster_failed_placements"),
        ["east 0", "west 0"]
    );
    // A new index: all lag.
    world
        .observer
        .lock()
        .placement("web", &facts(Some(5), Some(5), false), false, now);
    assert_eq!(
        world.series("windlass_cluster_lagging_placements"),
        ["east 1", "west 1"]
    );
    // The placement goes, then a cluster.
    {
        let mut tally = world.observer.lock();
        tally.placement_gone("web");
        tally.binding("web-east", None);
        tally.binding("web-west", None);
        tally.cluster("west", false);
    }
    for name in [
        "windlass_placement_scheduled",
        "windlass_placement_clusters",
        "windlass_placement_clusters_by_index",
    ] {
        assert_eq!(world.series(name), [""; 0]);
    }
    assert_eq!(
        world.series("windlass_cluster_lagging_placements"),
        ["east 0"]
    );
}

#[test]
fn series_are_bounded() {
    let world = World::new();
    {
        let mut tally = world.observer.lock();
        tally.placement(
            "web",
            &facts(Some(900), None, false),
            true,
            clock::monotonic(),
        );
        for n in 0..900 {
            let failed = summary("web", &format!("c{n:03}"), n, Status::False, false);
            tally.binding(&format!("b{n}"), Some(failed));
        }
    }
    assert_eq!(world.series("windlass_failing").len(), FAILING_SERIES);
    assert_eq!(world.series("windlass_failing_dropped"), ["400"]);
    let indexes = world.series("windlass_placement_clusters_by_index");
    assert_eq!(indexes.len(), INDEXES + 1);
    assert_eq!(indexes[0], "895 web 1");
    assert_eq!(indexes[INDEXES], "older web 895");
}

#[test]
fn a_rollout_takes_from_its_index_until_it_is_complete() {
    const EXTERNAL: Option<u64> = None;
    /// Index, complete, seconds that are told.
    type Row = (Option<u64>, bool, Option<u64>);
    let rows: [(&str, bool, &[Row]); 6] = [
        (
            "from its creation",
            false,
            &[
                (None, false, None),
                (Some(0), false, None),
                (Some(0), true, Some(20)),
            ],
        ),
        (
            "once",
            false,
            &[
                (Some(0), true, Some(0)),
                (Some(0), false, None),
                (Some(0), true, None),
            ],
        ),
        (
            "the next index",
            true,
            &[
                (Some(0), true, None),
                (Some(1), false, None),
                (Some(1), true, Some(10)),
            ],
        ),
        (
            "a later index starts anew",
            true,
            &[
                (Some(0), true, None),
                (Some(1), false, None),
                (Some(2), false, None),
                (Some(2), true, Some(10)),
            ],
        ),
        (
            "clusters disagree in between",
            true,
            &[
                (Some(0), true, None),
                (None, false, None),
                (None, false, None),
                (Some(1), true, Some(20)),
            ],
        ),
        (
            "begun before the process",
            true,
            &[(Some(3), false, None), (Some(3), true, None)],
        ),
    ];
    for (what, initial, steps) in rows {
        let mut tally = Tally::default();
        let mut now = clock::monotonic();
        for (step, (index, complete, told)) in steps.iter().enumerate() {
            let took = tally.placement(
                "web",
                &facts(*index, EXTERNAL, *complete),
                initial && step == 0,
                now,
            );
            assert_eq!(
                took.map(|took| took.as_secs()),
                *told,
                "{what}, step {step}"
            );
            now += Duration::from_secs(10);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Binding(u8, Option<(u8, u8, u64, u8, bool)>),
    Placement(u8, Option<Option<u64>>),
    Cluster(u8, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let binding = (
        0..6u8,
        proptest::option::of((0..3u8, 0..3u8, 0..3u64, 0..3u8, any::<bool>())),
    );
    prop_oneof![
        4 => binding.prop_map(|(name, what)| Step::Binding(name, what)),
        2 => (0..3u8, proptest::option::of(proptest::option::of(0..3u64)))
            .prop_map(|(name, latest)| Step::Placement(name, latest)),
        1 => (0..3u8, any::<bool>()).prop_map(|(name, known)| Step::Cluster(name, known)),
    ]
}

proptest! {
    /// Whatever comes in whatever order, the counters are what a count of everything gives.
    #[test]
    fn counters_are_exact(steps in proptest::collection::vec(step(), 0..60)) {
        let mut tally = Tally::default();
        let now = clock::monotonic();
        let mut bindings: BTreeMap<u8, Summary> = BTreeMap::new();
        let mut placements: BTreeMap<String, Option<u64>> = BTreeMap::new();
        let mut clusters: BTreeSet<String> = BTreeSet::new();
        for step in steps {
            match step {
                Step::Binding(name, what) => {
                    let new = what.map(|(placement, cluster, index, applied, behind)| {
                        let applied = [Status::True, Status::False, Status::Unknown][usize::from(applied)];
                        summary(&format!("p{placement}"), &format!("c{cluster}"), index, applied, behind)
                    });
                    tally.binding(&name.to_string(), new.clone());
                    match new {
                        Some(new) => drop(bindings.insert(name, new)),
                        None => drop(bindings.remove(&name)),
                    }
                }
                Step::Placement(name, Some(latest)) => {
                    let name = format!("p{name}");
                    tally.placement(&name, &facts(latest, latest, false), false, now);
                    placements.insert(name, latest);
                }
                Step::Placement(name, None) => {
                    tally.placement_gone(&format!("p{name}"));
                    placements.remove(&format!("p{name}"));
                }
                Step::Cluster(name, known) => {
                    let name = format!("c{name}");
                    tally.cluster(&name, known);
                    if known { clusters.insert(name); } else { clusters.remove(&name); }
                }
            }
            let known: Vec<String> = tally.placements().map(|(name, _, _)| name.to_owned()).collect();
            prop_assert_eq!(known, placements.keys().cloned().collect::<Vec<_>>());
            for (name, _, counted) in tally.placements() {
                let own = bindings.values().filter(|summary| *summary.placement == *name);
                let mut by_stage: BTreeMap<(Stage, Status), usize> = BTreeMap::new();
                let mut by_index: BTreeMap<Option<u64>, usize> = BTreeMap::new();
                for summary in own {
                    for stand in &summary.stages { *by_stage.entry(*stand).or_default() += 1; }
                    *by_index.entry(summary.index).or_default() += 1;
                }
                prop_assert_eq!(&counted.by_stage, &by_stage);
                prop_assert_eq!(&counted.by_index, &by_index);
            }
            let known: BTreeSet<String> = tally.clusters().map(|(name, _)| name.to_owned()).collect();
            prop_assert_eq!(&known, &clusters);
            for (name, counted) in tally.clusters() {
                let own = || bindings.values().filter(|summary| *summary.cluster == *name);
                let lags = |summary: &&Summary| {
                    let latest = placements.get(&*summary.placement).copied().flatten();
                    summary.is_behind || latest.is_some_and(|latest| summary.index != Some(latest))
                };
                prop_assert_eq!(counted.failed, own().filter(|s| s.failing.is_some()).count());
                prop_assert_eq!(counted.lagging, own().filter(lags).count());
            }
            let failing: BTreeSet<_> = bindings.values().filter(|s| s.failing.is_some())
                .map(|s| (s.placement.clone(), s.cluster.clone())).collect();
            prop_assert_eq!(tally.failing().1, failing.len());
        }
        for name in bindings.keys() { tally.binding(&name.to_string(), None); }
        for name in placements.keys() { tally.placement_gone(name); }
        for name in &clusters { tally.cluster(name, false); }
        prop_assert!(tally.is_empty(), "nothing is kept of what is gone");
    }
}

/// Name, type and labels of each series in docs/metrics.md.
fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let page = include_str!("../../../../docs/metrics.md");
    let unquoted = |cell: &str| cell.trim().trim_matches('`').to_owned();
    page.lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
            let labels = cells[2]
                .split(',')
                .map(unquoted)
                .filter(|label| !label.is_empty());
            (
                unquoted(cells[0]),
                (cells[1].trim().to_owned(), labels.collect()),
            )
        })
        .collect()
}

#[test]
fn the_page_tells_of_every_series() {
    let registry = Registry::new();
    let queues = Queues::default();
    windlass_metrics::process(&registry).unwrap();
    let observer = Observer::new(&registry, &queues, Events::silent().unwrap()).unwrap();
    observer.lead();
    {
        let mut tally = observer.lock();
        tally.cluster("east", true);
        tally.placement(
            "web",
            &facts(Some(1), None, false),
            true,
            clock::monotonic(),
        );
        tally.binding("b", Some(summary("web", "east", 1, Status::False, false)));
    }
    actors::looked("placement", Duration::from_millis(3), false);
    skipped(Skipped::Placement(Scope::Cluster));
    let page = documented();
    let found = registry.gather();
    assert!(found.len() >= 15, "{}", found.len());
    for family in &found {
        let told = page
            .get(family.name())
            .unwrap_or_else(|| panic!("{} is not on the page", family.name()));
        let type_ = match family.get_field_type() {
            MetricType::COUNTER => "counter",
            MetricType::GAUGE => "gauge",
            MetricType::HISTOGRAM => "histogram",
            other => panic!("{other:?}"),
        };
        let labels: BTreeSet<String> = family.get_metric()[0]
            .get_label()
            .iter()
            .map(|label| label.name().to_owned())
            .collect();
        assert_eq!(
            (told.0.as_str(), &told.1),
            (type_, &labels),
            "{}",
            family.name()
        );
    }
}
