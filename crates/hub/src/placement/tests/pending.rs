//! What moves while the present version of an override has no snapshot.

use std::slice::from_ref;
use std::sync::Arc;

use kube::ResourceExt;

use super::bindings::{Fleet, is_quiet, snapshot};
use super::overrides::{cro, named, resolved, rolling, rule, say_refused};
use crate::overrides::Version;
use crate::overrides::leave::must_wait;
use crate::overrides::pending::{Pending, Trouble};
use crate::overrides::resolve::Resolved;
use crate::render::Refusal;

/// What is decided while the present version of an override has no snapshot.
fn pending(version: Version, trouble: Trouble, named: &[Version]) -> Resolved {
    let resolved = resolved(&[], named);
    resolved.with_pending(vec![Pending { version, trouble }])
}

#[test]
fn nothing_moves_until_the_new_version_has_its_snapshot() {
    let v0 = cro("o-0", &[rule(&["a"], "1"), rule(&["c"], "1")]);
    let v1 = cro("o-1", &[rule(&["a"], "2")]);
    for trouble in [Trouble::None, Trouble::ForNow("outage".to_owned())] {
        let mut fleet = rolling();
        fleet.overrides = resolved(from_ref(&v0), &[]);
        fleet.carry_out();
        fleet.report(&["a", "b", "c"]);
        // The override changed, and so did the content.
        fleet.latest = snapshot(1);
        fleet.overrides = pending(v1.clone(), trouble.clone(), from_ref(&v0));
        // Where the new version does nothing, clusters go on, one by one; that it does nothing more there, too.
        for next in ["b", "c"] {
            let plan = fleet.carry_out();
            assert_eq!(plan.replace.len(), 1, "{next} {trouble:?}");
            assert!(plan.held.contains(&fleet.live["a"].name_any()));
            fleet.report(&[next]);
        }
        let plan = fleet.plan();
        assert!(
            is_quiet(&plan),
            "neither old override with new content nor new content without"
        );
        assert_eq!(plan.held.len(), 1);
        assert_eq!(named(&fleet), ["a: o-0", "b: ", "c: "]);
        assert_eq!(notes(&fleet).len(), 1, "{trouble:?}");
        fleet.overrides = resolved(from_ref(&v1), from_ref(&v0));
        assert_eq!(fleet.carry_out().replace.len(), 1);
        assert_eq!(fleet.shown()[0], "a Bound p-1-snapshot");
        assert_eq!(named(&fleet)[0], "a: o-1");
        assert_eq!(notes(&fleet), [""; 0]);
    }
}

fn notes(fleet: &Fleet) -> Vec<String> {
    let bindings: Vec<_> = fleet.live.values().cloned().map(Arc::new).collect();
    fleet.overrides.notes(&bindings)
}

/// Whoever may write overrides but no snapshots, or too much of them, holds up what he could change, not more.
#[test]
fn a_version_that_is_not_stored_holds_up_nothing_that_it_does_not_change() {
    let v0 = cro("o-0", &[rule(&["a", "b"], "1"), rule(&["c"], "9")]);
    let nowhere = cro("p-0", &[rule(&["x"], "1")]);
    let elsewhere = cro("o-1", &[rule(&["a", "b"], "1"), rule(&["x"], "9")]);
    for (version, trouble, after) in [
        (&nowhere, Trouble::None, ["a: o-0", "b: o-0", "c: o-0"]),
        (&nowhere, refusal(), ["a: o-0", "b: o-0", "c: o-0"]),
        // Where it does the same as before, the earlier one is as good.
        (&elsewhere, Trouble::None, ["a: o-0", "b: o-0", "c: "]),
        (&elsewhere, refusal(), ["a: o-0", "b: o-0", "c: "]),
    ] {
        let mut fleet = rolling();
        fleet.overrides = resolved(from_ref(&v0), &[]);
        fleet.carry_out();
        fleet.report(&["a", "b", "c"]);
        fleet.latest = snapshot(1);
        let current: &[Version] = match version.parent() == v0.parent() {
            true => &[],
            false => from_ref(&v0),
        };
        let waits = Pending {
            version: version.clone(),
            trouble,
        };
        fleet.overrides = resolved(current, from_ref(&v0)).with_pending(vec![waits]);
        for next in ["a", "b", "c"] {
            assert_eq!(fleet.carry_out().replace.len(), 1, "{next} {version:?}");
            fleet.report(&[next]);
        }
        assert_eq!(named(&fleet), after);
        assert_eq!(notes(&fleet), [""; 0]);
        assert!(is_quiet(&fleet.plan()));
    }
}

fn refusal() -> Trouble {
    Trouble::Refused("exceeded quota".to_owned())
}

/// What delivery makes of what the binding names, as far as overrides matter.
fn deliver(fleet: &mut Fleet, cluster: &str) -> Vec<String> {
    let versions = fleet.overrides.versions(&fleet.live[cluster].spec);
    let missing: Vec<String> = versions
        .iter()
        .filter_map(|version| version.as_ref().err().map(ToString::to_string))
        .collect();
    if missing.is_empty() {
        fleet.report(&[cluster]);
    } else {
        say_refused(fleet, cluster, &Refusal::Override(missing.join("; ")));
    }
    missing
}

/// A version that the server refuses to store is like one that can't be worked in.
#[test]
fn a_version_that_can_not_be_stored_stops_the_clusters_that_it_would_change() {
    let v0 = cro("o-0", &[rule(&["a"], "1")]);
    let v1 = cro("o-1", &[rule(&["a"], "2")]);
    let mut fleet = rolling();
    fleet.overrides = resolved(from_ref(&v0), &[]);
    fleet.carry_out();
    fleet.report(&["a", "b", "c"]);
    fleet.latest = snapshot(1);
    fleet.overrides = pending(v1.clone(), refusal(), from_ref(&v0));
    let mut said = Vec::new();
    for _ in 0..3 {
        let plan = fleet.carry_out();
        assert_eq!(plan.replace.len(), 1);
        let cluster = plan.replace[0].spec.target_cluster.clone();
        said.append(&mut deliver(&mut fleet, &cluster));
    }
    assert!(is_quiet(&fleet.plan()));
    assert_eq!(named(&fleet), ["a: o-1", "b: ", "c: "]);
    assert_eq!(said.len(), 1, "{said:?}");
    for part in ["ClusterResourceOverride o", "exceeded quota"] {
        assert!(said[0].contains(part), "{said:?}");
        assert!(notes(&fleet)[0].contains(part), "{:?}", notes(&fleet));
    }
    // After a crash nobody knows yet that it was refused: nothing moves, least of all back.
    fleet.overrides = pending(v1.clone(), Trouble::None, &[]);
    assert!(is_quiet(&fleet.plan()));
    // It is stored after all: that alone is no leave.
    fleet.overrides = resolved(from_ref(&v1), &[]);
    let would = fleet.overrides.effect(&fleet.live["a"].spec).unwrap();
    assert!(must_wait(&fleet.live["a"], would));
    assert_eq!(fleet.carry_out().replace.len(), 1);
    assert!(!must_wait(&fleet.live["a"], would));
    assert_eq!(deliver(&mut fleet, "a"), [""; 0]);
    assert!(is_quiet(&fleet.plan()));
}

/// Content that is placed for the first time, too.
#[test]
fn what_can_not_be_stored_keeps_no_other_cluster_from_its_first_content() {
    for (trouble, bound) in [(Trouble::None, 2), (refusal(), 3)] {
        let mut fleet = rolling();
        fleet.overrides = pending(cro("o-0", &[rule(&["a"], "1")]), trouble.clone(), &[]);
        fleet.carry_out();
        let shown = fleet.shown();
        let is_bound = |shown: &&String| shown.contains(" Bound ");
        assert_eq!(shown.iter().filter(is_bound).count(), bound, "{shown:?}");
        for cluster in ["b", "c"] {
            deliver(&mut fleet, cluster);
        }
        if trouble != Trouble::None {
            deliver(&mut fleet, "a");
        }
        // The next content goes on, too; the one that refused is given another chance.
        fleet.latest = snapshot(1);
        let mut moved = Vec::new();
        while let Some(next) = fleet.carry_out().replace.first() {
            moved.push(next.spec.target_cluster.clone());
            deliver(&mut fleet, &next.spec.target_cluster.clone());
        }
        for cluster in ["b", "c"] {
            assert!(moved.iter().any(|moved| moved == cluster), "{moved:?}");
        }
        assert!(moved.len() < 4, "{moved:?}");
    }
}
