//! The end of a placement, for people.

use std::fmt::Write;

use windlass_api::placement::DeletePropagationPolicy;
use windlass_hub::preview::{Deleting, Outcome};

use super::text::said;
use crate::table::{cells, line, table};

/// What becomes of a placement that is being deleted.
pub fn of(deleting: &Deleting) -> String {
    let mut text = String::new();
    let strategy = match deleting.delete_strategy {
        DeletePropagationPolicy::Delete => {
            "deleteStrategy Delete: what it placed is removed; what it took over stays"
        }
        DeletePropagationPolicy::Abandon => {
            "deleteStrategy Abandon: what it placed stays where it is"
        }
    };
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "Deletion was asked for at {}. No other change of its spec counts than of deleteStrategy.\n{strategy}.",
        deleting.since.0
    );
    text.extend(deleting.condition.as_ref().map(said));
    text.push_str("\nCLUSTERS\n");
    if deleting.clusters.is_empty() {
        text.push_str("no cluster has anything of it any more\n");
    } else {
        let mut rows = vec![cells(["CLUSTER", "WHAT WAS PLACED", "WAITS FOR"])];
        for cluster in &deleting.clusters {
            let outcome = match cluster.outcome {
                Outcome::Removed => "is removed",
                Outcome::Left => "stays",
                Outcome::Nothing => "nothing",
            };
            rows.push(cells([&cluster.name, outcome, &line(&cluster.waits_for)]));
        }
        text.push_str(&table(&rows));
    }
    text.push_str("\nCHANGES\n");
    if deleting.finalizers.is_empty() {
        text.push_str("once no cluster is left, the placement is gone\n");
    } else {
        let _ = writeln!(
            text,
            "once no cluster is left, the placement stays until others take off: {}",
            deleting.finalizers.join(", ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_api::{Condition, Time};
    use windlass_hub::preview::Leaving;

    use super::*;

    fn at() -> Time {
        Time("2026-01-01T00:00:00Z".parse().unwrap())
    }

    #[test]
    fn what_goes_and_what_it_waits_for() {
        let condition: Condition = serde_json::from_value(
            json!({"type": "ClusterResourcePlacementDeleting", "status": "True",
                "reason": "WaitingForClusters", "message": "Waiting for 2\nclusters",
                "lastTransitionTime": at()}),
        )
        .unwrap();
        let leaving = |name: &str, outcome, waits_for: &str| Leaving {
            name: name.to_owned(),
            outcome,
            waits_for: waits_for.to_owned(),
        };
        let deleting = Deleting {
            since: at(),
            delete_strategy: DeletePropagationPolicy::Delete,
            condition: Some(condition),
            clusters: vec![
                leaving("east", Outcome::Removed, "removing"),
                leaving("lost", Outcome::Nothing, "not begun yet"),
                leaving(
                    "west",
                    Outcome::Left,
                    "waiting for cluster west to be reachable",
                ),
            ],
            finalizers: vec!["x/y".to_owned()],
        };
        assert_eq!(
            of(&deleting),
            "\
Deletion was asked for at 2026-01-01T00:00:00Z. No other change of its spec counts than of deleteStrategy.
deleteStrategy Delete: what it placed is removed; what it took over stays.
ClusterResourcePlacementDeleting=True (WaitingForClusters): Waiting for 2 clusters

CLUSTERS
CLUSTER   WHAT WAS PLACED   WAITS FOR
east      is removed        removing
lost      nothing           not begun yet
west      stays             waiting for cluster west to be reachable

CHANGES
once no cluster is left, the placement stays until others take off: x/y
"
        );
    }

    #[test]
    fn nothing_is_left_but_the_placement() {
        let deleting = Deleting {
            since: at(),
            delete_strategy: DeletePropagationPolicy::Abandon,
            condition: None,
            clusters: Vec::new(),
            finalizers: Vec::new(),
        };
        let text = of(&deleting);
        assert!(text.contains("\ndeleteStrategy Abandon: what it placed stays where it is.\n"));
        assert!(
            text.contains("no cluster has anything of it any more\n"),
            "{text}"
        );
        assert!(
            text.ends_with("once no cluster is left, the placement is gone\n"),
            "{text}"
        );
    }
}
