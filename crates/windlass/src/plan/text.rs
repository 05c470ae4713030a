//! The preview for people.

use std::collections::BTreeSet;
use std::fmt::Write;

use windlass_api::Condition;
use windlass_api::placement::ResourceIdentifier;
use windlass_hub::preview::{
    Blame, Change, Cluster, Decided, End, Fate, Fault, Kind, Preview, Rollout, Variant,
};

use super::ending;
use crate::table::{cells, line, table};

/// So many clusters that are not picked are shown unless all are asked for.
const UNPICKED: usize = 20;
/// So many clusters are named in one line.
const NAMED: usize = 8;

/// All of it.
pub fn of(preview: &Preview, warnings: &[String], all: bool) -> String {
    let mut text = String::new();
    let name = match &preview.namespace {
        Some(namespace) => format!("{namespace}/{}", preview.name),
        None => preview.name.clone(),
    };
    let exists = if preview.deleting.is_some() {
        "is being deleted"
    } else if preview.exists {
        "exists"
    } else {
        "would be new"
    };
    // Writing to a string does not fail.
    let _ = writeln!(text, "{} {name}: {exists}", preview.kind);
    for warning in warnings {
        let _ = writeln!(text, "warning: {}", line(warning));
    }
    text.extend(preview.scheduled.as_ref().map(said));
    if let Some(deleting) = &preview.deleting {
        text.push_str(&ending::of(deleting));
    }
    if let Some(decided) = &preview.decided {
        text.push_str(&of_decided(decided, all));
    }
    text
}

/// A condition, on a line of its own.
pub(super) fn said(condition: &Condition) -> String {
    format!(
        "{}={} ({}): {}\n",
        condition.type_,
        condition.status,
        condition.reason,
        line(&condition.message)
    )
}

fn of_decided(decided: &Decided, all: bool) -> String {
    let mut text = String::new();
    let version = &decided.snapshot;
    let state = if version.new { "new" } else { "unchanged" };
    let _ = writeln!(
        text,
        "Resources: {}, {state} (index {})",
        decided.resources.len(),
        version.index
    );
    text.push_str("\nCLUSTERS\n");
    text.push_str(&clusters(&decided.clusters, all));
    text.push_str("\nMANIFESTS\n");
    for variant in &decided.variants {
        text.push_str(&of_variant(variant, &decided.clusters));
    }
    if decided.variants.is_empty() {
        text.push_str("no cluster gets any\n");
    }
    text.push_str("\nCHANGES\n");
    for pending in &decided.pending {
        let _ = writeln!(
            text,
            "the hub has yet to take note of {pending}, which is counted with; clusters that it changes do not move before"
        );
    }
    text.push_str(&rollout(&decided.rollout));
    text
}

fn clusters(clusters: &[Cluster], all: bool) -> String {
    if clusters.is_empty() {
        return "there is no cluster\n".to_owned();
    }
    let unpicked = |cluster: &&Cluster| cluster.fate == Fate::Unpicked;
    let total = clusters.iter().filter(unpicked).count();
    let shown = if all { total } else { total.min(UNPICKED) };
    let mut rows = vec![cells(["CLUSTER", "FATE", "AFFINITY", "SPREAD", "WHY NOT"])];
    let others = clusters
        .iter()
        .filter(|cluster| cluster.fate != Fate::Unpicked);
    for cluster in others.chain(clusters.iter().filter(unpicked).take(shown)) {
        let score = |score: Option<i32>| score.map_or("-".to_owned(), |score| score.to_string());
        let (fate, why) = match cluster.fate {
            Fate::Picked => ("picked", String::new()),
            Fate::Kept => ("kept", String::new()),
            Fate::Dropped => ("dropped", line(&cluster.reason)),
            Fate::Unpicked => ("not picked", line(&cluster.reason)),
        };
        rows.push(cells([
            &cluster.name,
            fate,
            &score(cluster.affinity_score),
            &score(cluster.topology_spread_score),
            &why,
        ]));
    }
    let mut text = table(&rows);
    if total > shown {
        let _ = writeln!(
            text,
            "and {} more that are not picked; --all shows them",
            total - shown
        );
    }
    text
}

fn of_variant(variant: &Variant, clusters: &[Cluster]) -> String {
    if let Some(fault) = &variant.fault {
        return of_fault(fault, &variant.clusters, clusters);
    }
    let mut text = format!("on {}:\n", names(&variant.clusters));
    if let Some(manifests) = &variant.manifests {
        for manifest in manifests {
            let yaml = yaml_serde::to_string(manifest).unwrap_or_default();
            let _ = writeln!(text, "---\n{}", yaml.trim_end());
        }
        return text;
    }
    for resource in &variant.resources {
        let changed = if resource.changed {
            ", changed by overrides"
        } else {
            ""
        };
        let _ = writeln!(text, "  {}{changed}", of_resource(&resource.id));
    }
    if variant.resources.is_empty() {
        text.push_str("  nothing\n");
    }
    for left_out in &variant.left_out {
        let _ = writeln!(text, "  {}, left out by overrides", of_resource(left_out));
    }
    text
}

/// Nothing new comes to these clusters; what they have stays.
fn of_fault(fault: &Fault, on: &[String], clusters: &[Cluster]) -> String {
    let what = match fault.error_in {
        Blame::Overrides => "the overrides can't be worked in",
        Blame::Resources => "the resources can't be placed",
    };
    let kept: BTreeSet<&str> = clusters
        .iter()
        .filter(|cluster| cluster.fate == Fate::Kept)
        .map(|cluster| cluster.name.as_str())
        .collect();
    let (old, new): (Vec<String>, Vec<String>) = on
        .iter()
        .cloned()
        .partition(|cluster| kept.contains(cluster.as_str()));
    let mut text = String::new();
    for (clusters, outcome) in [(old, "keeps what it has"), (new, "gets nothing")] {
        if !clusters.is_empty() {
            let _ = writeln!(
                text,
                "on {}:\n  {outcome}, for {what}: {}",
                names(&clusters),
                line(&fault.error)
            );
        }
    }
    text
}

fn of_resource(id: &ResourceIdentifier) -> String {
    match &id.namespace {
        Some(namespace) => format!("{} {namespace}/{}", id.kind, id.name),
        None => format!("{} {}", id.kind, id.name),
    }
}

fn rollout(rollout: &Rollout) -> String {
    let mut text = String::new();
    for (number, step) in rollout.steps.iter().enumerate() {
        let _ = writeln!(text, "{}. {}", number + 1, of_step(step));
    }
    match &rollout.end {
        End::Complete if rollout.steps.is_empty() => text.push_str("nothing changes on any cluster\n"),
        End::Complete => text.push_str(
            "Each step takes place as the clusters of the one before become ready, which is assumed.\n",
        ),
        End::External => text.push_str(
            "nothing changes by itself: the strategy is External, so that an update run rolls out\n",
        ),
        End::Stuck {
            waiting,
            silent,
            failing,
            refusing,
        } => {
            text.push_str(if waiting.is_empty() {
                "Then it is over, but not everywhere.\n"
            } else {
                "Then it stops within the bounds of the strategy.\n"
            });
            for (what, clusters) in [
                ("waiting", waiting),
                ("not answering", silent),
                ("failing for their overrides", failing),
                ("failing for the resources", refusing),
            ] {
                if !clusters.is_empty() {
                    let _ = writeln!(text, "  {what}: {}", names(clusters));
                }
            }
        }
        End::Unknown => text.push_str("And so on: it was not followed any further.\n"),
    }
    text
}

fn of_step(step: &[Change]) -> String {
    let kinds = [
        (Kind::Add, "add"),
        (Kind::Update, "update"),
        (Kind::Remove, "remove"),
    ];
    let parts = kinds.iter().filter_map(|(kind, word)| {
        let clusters = step.iter().filter(|change| change.kind == *kind);
        let clusters: Vec<String> = clusters.map(|change| change.cluster.clone()).collect();
        (!clusters.is_empty()).then(|| format!("{word} {}", names(&clusters)))
    });
    parts.collect::<Vec<_>>().join("; ")
}

fn names(names: &[String]) -> String {
    let shown = names.get(..NAMED).unwrap_or(names).join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_hub::preview::{Resource, Version};

    use super::*;

    fn cluster(name: &str, fate: Fate, score: Option<i32>, reason: &str) -> Cluster {
        Cluster {
            name: name.to_owned(),
            fate,
            affinity_score: score,
            topology_spread_score: score.map(|_| -1),
            reason: reason.to_owned(),
        }
    }

    fn id(kind: &str, namespace: Option<&str>, name: &str) -> ResourceIdentifier {
        ResourceIdentifier {
            kind: kind.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            ..ResourceIdentifier::default()
        }
    }

    fn preview() -> Preview {
        let change = |cluster: &str, kind| Change {
            cluster: cluster.to_owned(),
            kind,
        };
        let resource = |id, changed| Resource { id, changed };
        let web = id("Namespace", None, "web");
        Preview {
            kind: "ClusterResourcePlacement".to_owned(),
            namespace: None,
            name: "web".to_owned(),
            exists: true,
            deleting: None,
            scheduled: serde_json::from_value(json!({"type": "ClusterResourcePlacementScheduled",
                "status": "True", "reason": "SchedulingPolicyFulfilled", "message": "found\n2",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}))
            .unwrap(),
            decided: Some(Decided {
                snapshot: Version {
                    name: "web-1-snapshot".to_owned(),
                    index: 1,
                    new: true,
                },
                resources: vec![web.clone(), id("ConfigMap", Some("web"), "c")],
                clusters: vec![
                    cluster("new", Fate::Picked, Some(50), "picked"),
                    cluster("old", Fate::Kept, Some(0), "picked"),
                    cluster("gone", Fate::Dropped, None, "tainted"),
                    cluster(
                        "other",
                        Fate::Unpicked,
                        Some(3),
                        "does not score high enough",
                    ),
                ],
                variants: vec![
                    Variant {
                        clusters: vec!["new".to_owned()],
                        resources: vec![resource(web.clone(), true)],
                        left_out: vec![id("ConfigMap", Some("web"), "c")],
                        manifests: None,
                        fault: None,
                    },
                    Variant {
                        clusters: vec!["old".to_owned()],
                        resources: vec![resource(web, false)],
                        left_out: Vec::new(),
                        manifests: Some(vec![json!({"kind": "Namespace"})]),
                        fault: None,
                    },
                ],
                pending: Vec::new(),
                rollout: Rollout {
                    steps: vec![
                        vec![change("new", Kind::Add), change("gone", Kind::Remove)],
                        vec![change("old", Kind::Update)],
                    ],
                    end: End::Complete,
                },
            }),
        }
    }

    #[test]
    fn for_people() {
        let expected = "\
ClusterResourcePlacement web: exists
warning: spec.x is dropped
ClusterResourcePlacementScheduled=True (SchedulingPolicyFulfilled): found 2
Resources: 2, new (index 1)

CLUSTERS
CLUSTER   FATE         AFFINITY   SPREAD   WHY NOT
new       picked       50         -1
old       kept         0          -1
gone      dropped      -          -        tainted
other     not picked   3          -1       does not score high enough

MANIFESTS
on new:
  Namespace web, changed by overrides
  ConfigMap web/c, left out by overrides
on old:
---
kind: Namespace

CHANGES
1. add new; remove gone
2. update old
Each step takes place as the clusters of the one before become ready, which is assumed.
";
        assert_eq!(
            of(&preview(), &["spec.x is dropped".to_owned()], false),
            expected
        );
    }

    #[test]
    fn long_lists_are_cut() {
        let many: Vec<Cluster> = (0..30)
            .map(|n| cluster(&format!("c{n:02}"), Fate::Unpicked, None, "no"))
            .collect();
        let text = clusters(&many, false);
        assert!(text.contains("c19") && !text.contains("c20"), "{text}");
        assert!(
            text.ends_with("and 10 more that are not picked; --all shows them\n"),
            "{text}"
        );
        assert!(clusters(&many, true).contains("c29"));
        let all: Vec<String> = many.iter().map(|cluster| cluster.name.clone()).collect();
        assert_eq!(
            names(&all),
            "c00, c01, c02, c03, c04, c05, c06, c07 and 22 more"
        );
    }

    #[test]
    fn faults() {
        let fleet = [
            cluster("a", Fate::Kept, None, ""),
            cluster("b", Fate::Picked, None, ""),
        ];
        let rows = [
            (Blame::Overrides, "the overrides can't be worked in"),
            (Blame::Resources, "the resources can't be placed"),
        ];
        for (error_in, words) in rows {
            let variant = Variant {
                clusters: vec!["a".to_owned(), "b".to_owned()],
                resources: Vec::new(),
                left_out: Vec::new(),
                manifests: None,
                fault: Some(Fault {
                    error: "bad\npath".to_owned(),
                    error_in,
                }),
            };
            let expected = format!(
                "on a:\n  keeps what it has, for {words}: bad path\non b:\n  gets nothing, for {words}: bad path\n"
            );
            assert_eq!(of_variant(&variant, &fleet), expected);
        }
    }

    #[test]
    fn ends() {
        let stuck = Rollout {
            steps: Vec::new(),
            end: End::Stuck {
                waiting: vec!["a".to_owned()],
                silent: vec!["b".to_owned()],
                failing: Vec::new(),
                refusing: Vec::new(),
            },
        };
        assert_eq!(
            rollout(&stuck),
            "Then it stops within the bounds of the strategy.\n  waiting: a\n  not answering: b\n"
        );
        assert_eq!(
            rollout(&Rollout::default()),
            "nothing changes on any cluster\n"
        );
    }
}
