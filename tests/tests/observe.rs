//! The hub seen from outside on a real fleet: metrics, events, and `windlass status --watch`.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use windlass_tests::charts::{Reply, Web};
use windlass_tests::{Fleet, eventually, root};

const PLACEMENT: &str = r"
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: shop}
spec:
  resourceSelectors: [{group: '', version: v1, kind: Namespace, name: shop}]
  policy: {placementType: PickN, numberOfClusters: 2}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}, applyStrategy: {whenToTakeOver: Never}}
";

fn settings(value: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: settings, namespace: shop}}, data: {{a: '{value}'}}}}"
    )
}

/// What the test has seen on the page of metrics.
struct Metrics<'a> {
    fleet: &'a Fleet,
    names: RefCell<BTreeSet<String>>,
}

impl Metrics<'_> {
    fn page(&self) -> String {
        let page = self.fleet.http("/metrics").unwrap_or_default();
        let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let names = types.filter_map(|line| line.split(' ').next());
        self.names.borrow_mut().extend(names.map(str::to_owned));
        page
    }

    /// Value of the series of that name that has all those labels.
    fn value(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let page = self.page();
        let line = page.lines().find(|line| {
            line.split(['{', ' ']).next() == Some(name)
                && labels.iter().all(|label| line.contains(label))
        })?;
        line.rsplit(' ').next()?.parse().ok()
    }
}

/// `type reason regarding related` of each event, oldest first.
fn events(fleet: &Fleet) -> Vec<String> {
    let path = "{range.items[*]}{.eventTime}{\"\\t\"}{.type}/{.reason}/{.regarding.name}/{.related.name}/{.reportingController}{\"\\n\"}{end}";
    let text = fleet.get("hub", "events.events.k8s.io -n default", path);
    let mut lines: Vec<&str> = text
        .lines()
        .filter(|line| line.ends_with("/windlass.dev/hub"))
        .collect();
    lines.sort_unstable();
    let shown = lines.into_iter().filter_map(|line| line.split_once('\t'));
    shown
        .map(|(_, event)| {
            event
                .trim_end_matches("/windlass.dev/hub")
                .replace('/', " ")
                .trim()
                .to_owned()
        })
        .collect()
}

fn has_event(fleet: &Fleet, event: &str) -> bool {
    events(fleet).iter().any(|known| known == event)
}

fn is_available(fleet: &Fleet, index: &str) -> bool {
    let path = "{.status.observedResourceIndex}{.status.conditions[?(@.type==\"ClusterResourcePlacementAvailable\")].status}";
    fleet.get("hub", "crp shop", path) == format!("{index}True")
}

fn status(fleet: &Fleet, args: &[&str]) -> Result<String, String> {
    let kubeconfig = fleet.kubeconfig("hub");
    let kubeconfig = kubeconfig.to_string_lossy();
    let always = ["status", "shop", "--kubeconfig", &kubeconfig];
    fleet.windlass(&[&always, args].concat())
}

#[test]
fn a_fleet_seen_from_outside() {
    let mut fleet = Fleet::up("observe", 2);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    fleet.start_hub();
    fleet.join("member-1");
    fleet.join("member-2");
    let metrics = Metrics {
        fleet: &fleet,
        names: RefCell::default(),
    };
    a_failure_is_seen_and_vanishes(&fleet, &metrics);
    quiet_makes_no_news(&fleet);
    a_report_has_nothing_selected_again(&fleet, &metrics);
    a_change_is_followed_to_its_end(&fleet, &metrics);
    a_lost_cluster_is_news(&fleet, &metrics);
    a_run_that_waits_is_seen(&fleet, &metrics);
    a_repository_of_addons_is_seen(&fleet, &metrics);
    series_go_with_their_objects(&fleet, &metrics);
    the_page_lists_what_is_served(&metrics);
}

fn a_failure_is_seen_and_vanishes(fleet: &Fleet, metrics: &Metrics<'_>) {
    let namespace = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}";
    fleet.apply("hub", namespace);
    fleet.apply("hub", &settings("1"));
    // Somebody else's namespace on one member, which the placement may not take over.
    fleet.apply("member-2", namespace);
    fleet.apply("hub", PLACEMENT);
    let pair = [
        "placement=\"shop\"",
        "cluster=\"member-2\"",
        "condition=\"Applied\"",
    ];
    eventually("the failing pair has a series", || {
        metrics.value("windlass_failing", &pair) == Some(1.0)
    });
    let by = |status: &str| {
        let status = format!("status=\"{status}\"");
        metrics.value(
            "windlass_placement_clusters",
            &["placement=\"shop\"", "condition=\"Applied\"", &status],
        )
    };
    eventually("clusters are counted by condition", || {
        by("True") == Some(1.0) && by("False") == Some(1.0) && by("Unknown").is_none()
    });
    assert_eq!(
        metrics.value("windlass_cluster_failed_placements", &["member-2"]),
        Some(1.0)
    );
    assert_eq!(
        metrics.value("windlass_cluster_failed_placements", &["member-1"]),
        Some(0.0)
    );
    assert_eq!(
        metrics.value("windlass_failing", &["cluster=\"member-1\""]),
        None
    );
    eventually(
        "the failure is an event about the placement and the cluster",
        || has_event(fleet, "Warning NotAllWorkHaveBeenApplied shop member-2"),
    );
    let told = status(fleet, &["-o", "json"]).unwrap();
    assert!(
        told.contains("\"complete\": false") && told.contains("member-2"),
        "{told}"
    );
    let late = status(fleet, &["--watch", "--timeout", "1"]).unwrap_err();
    assert!(
        late.contains("not complete within 1 s") && late.contains("member-2: Applied=False"),
        "{late}"
    );

    fleet.kubectl("member-2", "delete ns shop --timeout=60s");
    eventually("it is available everywhere", || is_available(fleet, "0"));
    eventually("the series of the failure is gone", || {
        metrics.value("windlass_failing", &pair).is_none()
            && by("False").is_none()
            && metrics.value("windlass_cluster_failed_placements", &["member-2"]) == Some(0.0)
    });
    assert_eq!(metrics.value("windlass_failing_dropped", &[]), Some(0.0));
    assert_eq!(
        metrics.value(
            "windlass_placement_clusters_by_index",
            &["shop", "index=\"0\""]
        ),
        Some(2.0)
    );
    assert_eq!(
        metrics.value("windlass_rollout_duration_seconds_count", &[]),
        Some(1.0)
    );
    for event in [
        "Normal MemberClusterJoined member-1",
        "Normal MemberClusterJoined member-2",
        "Normal RolloutStarted shop",
        "Normal ResourceAvailable shop",
    ] {
        eventually(event, || has_event(fleet, event));
    }
}

fn quiet_makes_no_news(fleet: &Fleet) {
    let count = |fleet: &Fleet| {
        let path = "{range.items[*]}{.metadata.resourceVersion}{\"\\n\"}{end}";
        fleet.get("hub", "events.events.k8s.io -n default", path)
    };
    let (before, news) = (count(fleet), events(fleet));
    // Quiet is what is looked for, so nothing can be waited for.
    std::thread::park_timeout(Duration::from_secs(5));
    assert_eq!(count(fleet), before, "{news:#?}\n{:#?}", events(fleet));
}

/// It has the placement looked at, but what that selects is not looked up for it. For half a minute after the
/// start the hub does so of itself, for kinds that may still come.
fn a_report_has_nothing_selected_again(fleet: &Fleet, metrics: &Metrics<'_>) {
    let names = fleet.get("hub", "crb", "{.items[*].metadata.name}");
    let name = names.split(' ').next().unwrap();
    let count = |name: &str, labels: &[&str]| metrics.value(name, labels).unwrap();
    let selections = || count("windlass_selections_total", &[]);
    let looks = || {
        let name = "windlass_reconcile_duration_seconds_count";
        count(name, &["actor=\"placement\""])
    };
    let mut number = 0;
    eventually("a report comes without a selection", || {
        number += 1;
        let before = (selections(), looks());
        let patch = format!(
            "patch crb {name} --subresource=status --type json -p \
             [{{\"op\":\"replace\",\"path\":\"/status/conditions/0/message\",\"value\":\"m{number}\"}}]"
        );
        fleet.kubectl("hub", &patch);
        eventually("the placement is looked at", || looks() > before.1);
        selections() == before.0
    });
}

fn a_change_is_followed_to_its_end(fleet: &Fleet, metrics: &Metrics<'_>) {
    let followed = std::thread::scope(|scope| {
        // A third cluster that does not exist yet keeps the rollout open while it is followed.
        fleet.kubectl(
            "hub",
            "patch crp shop --type merge -p {\"spec\":{\"policy\":{\"numberOfClusters\":3}}}",
        );
        eventually("three clusters are asked for", || {
            metrics.value("windlass_placement_scheduled", &["shop"]) == Some(0.0)
        });
        let follower = scope.spawn(|| status(fleet, &["--watch", "--timeout", "60"]));
        fleet.apply("hub", &settings("2"));
        eventually("the change is everywhere", || is_available(fleet, "1"));
        fleet.kubectl(
            "hub",
            "patch crp shop --type merge -p {\"spec\":{\"policy\":{\"numberOfClusters\":2}}}",
        );
        follower.join().unwrap()
    });
    let lines = followed.unwrap();
    let last = lines.lines().last().unwrap();
    assert!(
        last.ends_with("shop 2/2 clusters on index 1; available 2/2; complete"),
        "{lines}"
    );
    assert!(lines.lines().count() > 1, "{lines}");
    assert_eq!(
        metrics.value(
            "windlass_placement_clusters_by_index",
            &["shop", "index=\"1\""]
        ),
        Some(2.0)
    );
    assert_eq!(
        metrics.value(
            "windlass_placement_clusters_by_index",
            &["shop", "index=\"0\""]
        ),
        None
    );
    for cluster in ["member-1", "member-2"] {
        assert_eq!(
            metrics.value("windlass_cluster_lagging_placements", &[cluster]),
            Some(0.0)
        );
    }
    for event in [
        "Warning SchedulingPolicyUnfulfilled shop",
        "Normal SchedulingPolicyFulfilled shop",
    ] {
        eventually(event, || has_event(fleet, event));
    }
    let started = |known: &&String| *known == "Normal RolloutStarted shop";
    eventually("each index is news once", || {
        events(fleet).iter().filter(started).count() == 2
    });
}

fn a_lost_cluster_is_news(fleet: &Fleet, metrics: &Metrics<'_>) {
    fleet.control("stop", "member-2");
    eventually("the cluster is unhealthy", || {
        metrics.value("windlass_member_healthy", &["member-2"]) == Some(0.0)
            && has_event(fleet, "Warning MemberClusterUnreachable member-2")
    });
    fleet.control("start", "member-2");
    eventually("the cluster is healthy again", || {
        metrics.value("windlass_member_healthy", &["member-2"]) == Some(1.0)
            && has_event(fleet, "Normal MemberClusterHealthy member-2")
    });
}

fn series_go_with_their_objects(fleet: &Fleet, metrics: &Metrics<'_>) {
    fleet.kubectl("hub", "delete crp shop --timeout=60s");
    eventually("no series tells of the placement", || {
        let page = metrics.page();
        !page.is_empty() && !page.contains("\"shop\"")
    });
    let kubeconfig = fleet.kubeconfig("hub");
    let leave = [
        "leave",
        "member-2",
        "--hub-kubeconfig",
        &kubeconfig.to_string_lossy(),
    ];
    fleet.windlass(&leave).unwrap();
    eventually("no series tells of the cluster", || {
        let page = metrics.page();
        page.contains("\"member-1\"") && !page.contains("\"member-2\"")
    });
    eventually("its leaving is news", || {
        has_event(fleet, "Normal MemberClusterGone member-2")
    });
    assert!(
        !events(fleet)
            .iter()
            .any(|event| event.contains("WaitingForClusters")),
        "a removal that just goes on is no news: {:#?}",
        events(fleet)
    );
}

/// An update run that waits for somebody has series, and they go with it.
fn a_run_that_waits_is_seen(fleet: &Fleet, metrics: &Metrics<'_>) {
    fleet.apply(
        "hub",
        "
{apiVersion: v1, kind: Namespace, metadata: {name: staged}}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: staged}
spec:
  resourceSelectors: [{group: '', version: v1, kind: Namespace, name: staged}]
  strategy: {type: External}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterStagedUpdateStrategy
metadata: {name: asks}
spec: {stages: [{name: all, labelSelector: {}, beforeStageTasks: [{type: Approval}]}]}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterStagedUpdateRun
metadata: {name: waits}
spec: {placementName: staged, stagedRolloutStrategyName: asks, state: Run}
",
    );
    let run = ["placement=\"staged\"", "run=\"waits\""];
    let [placement, name] = run;
    eventually("the run waits, and since when", || {
        metrics.value(
            "windlass_update_run_state",
            &[placement, name, "state=\"waiting\""],
        ) == Some(1.0)
            && metrics
                .value("windlass_update_run_waiting_since_timestamp_seconds", &run)
                .is_some()
    });
    let waiting = [placement, name, "outcome=\"waiting\""];
    let clusters = metrics.value("windlass_update_run_clusters", &waiting);
    assert_eq!(clusters, Some(2.0));
    let news = "Normal UpdateRunWaiting";
    eventually("that is news", || {
        events(fleet).iter().any(|event| event.starts_with(news))
    });
    fleet.kubectl("hub", "delete csur waits");
    fleet.kubectl("hub", "delete crp staged");
    eventually("no series tells of the run", || {
        !metrics.page().contains("run=\"waits\"")
    });
}

/// A repository of charts and an Addon of it that can't be made have series, which go with them.
fn a_repository_of_addons_is_seen(fleet: &Fleet, metrics: &Metrics<'_>) {
    let web = Web::start();
    let index = "{apiVersion: v1, entries: {web: [{name: web, version: 1.0.0, urls: [web.tgz]}]}}";
    web.reply("/index.yaml", Reply::text(&format!("# Charts\n{index}")));
    let manifests = format!(
        "
{{apiVersion: addons.windlass.dev/v1alpha1, kind: AddonRepository, metadata: {{name: charts}}, spec: {{url: '{}'}}}}
---
apiVersion: addons.windlass.dev/v1alpha1
kind: Addon
metadata: {{name: pages}}
spec: {{chart: {{repository: charts, name: web}}, values: {{}}, namespace: pages, placement: {{inline: {{}}}}}}
",
        web.url()
    );
    fleet.apply("hub", &manifests);
    let of = |what: &str| {
        let name = format!("windlass_addon_repository_{what}");
        metrics.value(&name, &["repository=\"charts\""])
    };
    eventually("the repository is ready", || {
        of("ready") == Some(1.0) && of("synced") == Some(1.0) && of("charts") == Some(1.0)
    });
    assert_eq!(of("failures"), Some(0.0));
    let [last, next] = ["last", "next"].map(|when| of(&format!("{when}_sync_timestamp_seconds")));
    assert!(last.is_some() && next > last, "{last:?} {next:?}");
    web.reply("/index.yaml", Reply::status(404));
    let ask = "windlass.dev/sync-requested-at=now";
    fleet.kubectl("hub", &format!("annotate addonrepo charts {ask}"));
    eventually("the repository is stalled", || {
        of("ready") == Some(0.0) && of("synced") == Some(0.0) && of("failures") == Some(5.0)
    });
    for event in ["Normal Success charts", "Warning SourceNotFound charts"] {
        eventually(event, || has_event(fleet, event));
    }
    let addon = || metrics.value("windlass_addon_ready", &["addon=\"pages\""]);
    eventually("the Addon is not ready", || addon() == Some(0.0));
    fleet.kubectl(
        "hub",
        "delete addons.addons.windlass.dev/pages addonrepo/charts --timeout=30s",
    );
    eventually("no series tells of them", || {
        of("ready").is_none() && of("next_sync_timestamp_seconds").is_none() && addon().is_none()
    });
}

fn the_page_lists_what_is_served(metrics: &Metrics<'_>) {
    let page = std::fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let listed: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| name.starts_with("windlass_") || name.starts_with("process_"))
        .map(str::to_owned)
        .collect();
    assert_eq!(listed, *metrics.names.borrow());
}
