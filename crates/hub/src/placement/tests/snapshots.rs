//! What is written when a selection changes, and that a crash between any two writes does no harm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use kube::ResourceExt;
use proptest::prelude::*;
use serde_json::json;
use windlass_api::labels;
use windlass_cluster::ObjectKey;
use windlass_member::manifest::Manifest;
use windlass_status::digest::Digest;

use crate::placement::packing::{PART_LIMIT, Places};
use crate::placement::snapshots::{
    Groups, SnapshotInputs, SnapshotMeta, SnapshotPlan, meta_of, plan,
};

/// The snapshot objects that exist, by name.
type Store = BTreeMap<String, Arc<SnapshotMeta>>;

fn manifest(name: &str, bytes: usize) -> Arc<Manifest> {
    Arc::new(Manifest::of_snapshot(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "n" },
        "data": { "a": "x".repeat(bytes) },
    })))
}

fn plan_of(
    store: &Store,
    manifests: &[Arc<Manifest>],
    limit: usize,
    in_use: &[&str],
) -> SnapshotPlan {
    let known: Vec<_> = store.values().cloned().collect();
    let text: String = manifests
        .iter()
        .map(|manifest| manifest.digest.to_string())
        .collect();
    plan(&SnapshotInputs {
        placement: &ObjectKey::cluster("p"),
        placement_uid: "u",
        groups: &Groups::of(&known),
        manifests,
        hash: Digest::of_bytes(text.as_bytes()),
        places: &Places::new(),
        history_limit: limit,
        in_use: &in_use
            .iter()
            .map(|name| (*name).to_owned())
            .collect::<BTreeSet<_>>(),
    })
}

/// Carries out the first `steps` writes of a plan, in the order in which the actor sends them.
fn carry_out(store: &mut Store, plan: &SnapshotPlan, steps: usize) -> usize {
    let mut left = steps;
    let mut step = |write: &mut dyn FnMut()| {
        if left > 0 {
            left -= 1;
            write();
        }
    };
    for gone in &plan.unfinished {
        step(&mut || drop(store.remove(&gone.name_any())));
    }
    for new in &plan.create {
        step(&mut || {
            let meta = Arc::new(meta_of(new.metadata.clone()));
            assert!(
                store.insert(meta.name_any(), meta).is_none(),
                "{:?} was there",
                new.metadata.name
            );
        });
    }
    for (master, latest) in &plan.relabel {
        step(&mut || {
            let mut changed = (**master).clone();
            changed
                .labels_mut()
                .insert(labels::IS_LATEST_SNAPSHOT.to_owned(), latest.to_string());
            store.insert(changed.name_any(), Arc::new(changed));
        });
    }
    for gone in &plan.expired {
        step(&mut || drop(store.remove(&gone.name_any())));
    }
    steps - left
}

fn settle(store: &mut Store, manifests: &[Arc<Manifest>], limit: usize, in_use: &[&str]) {
    let plan = plan_of(store, manifests, limit, in_use);
    carry_out(store, &plan, usize::MAX);
}

fn is_quiet(plan: &SnapshotPlan) -> bool {
    plan.unfinished.is_empty()
        && plan.create.is_empty()
        && plan.relabel.is_empty()
        && plan.expired.is_empty()
}

fn labelled_latest(store: &Store) -> Vec<&str> {
    store
        .iter()
        .filter(|(_, meta)| {
            meta.labels()
                .get(labels::IS_LATEST_SNAPSHOT)
                .is_some_and(|value| value == "true")
        })
        .map(|(name, _)| name.as_str())
        .collect()
}

#[test]
fn the_first_snapshot_has_index_0_and_nothing_is_written_twice() {
    let mut store = Store::new();
    let content = [manifest("a", 1)];
    let first = plan_of(&store, &content, 10, &[]);
    assert_eq!(first.latest.name, "p-0-snapshot");
    let object = &first.create[0];
    assert_eq!(object.labels()[labels::PARENT_PLACEMENT], "p");
    assert_eq!(object.labels()[labels::RESOURCE_INDEX], "0");
    assert_eq!(object.labels()[labels::IS_LATEST_SNAPSHOT], "true");
    assert_eq!(
        object.annotations()[labels::NUMBER_OF_RESOURCE_SNAPSHOTS],
        "1"
    );
    assert_eq!(
        object.annotations()[labels::RESOURCE_HASH],
        first.latest.hash
    );
    settle(&mut store, &content, 10, &[]);
    assert!(is_quiet(&plan_of(&store, &content, 10, &[])));
}

#[test]
fn an_empty_selection_is_a_version_too() {
    let mut store = Store::new();
    settle(&mut store, &[], 10, &[]);
    assert_eq!(labelled_latest(&store), ["p-0-snapshot"]);
}

#[test]
fn going_back_to_earlier_content_is_a_new_version() {
    let mut store = Store::new();
    for content in [1, 2, 1] {
        settle(&mut store, &[manifest("a", content)], 10, &[]);
    }
    assert_eq!(labelled_latest(&store), ["p-2-snapshot"]);
}

#[test]
fn large_content_is_cut_in_order_with_the_master_written_last() {
    let content: Vec<_> = (0..5)
        .map(|n| manifest(&format!("m{n}"), PART_LIMIT / 2 - 1000))
        .collect();
    let plan = plan_of(&Store::new(), &content, 10, &[]);
    let names: Vec<_> = plan.create.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["p-0-0", "p-0-1", "p-0-snapshot"]);
    let master = plan.create.last().unwrap();
    assert_eq!(
        master.annotations()[labels::NUMBER_OF_RESOURCE_SNAPSHOTS],
        "3"
    );
    for (part, object) in plan.create[..2].iter().enumerate() {
        assert_eq!(object.annotations()[labels::SUBINDEX], part.to_string());
        assert!(!object.labels().contains_key(labels::IS_LATEST_SNAPSHOT));
    }
    let read_back: Vec<_> = [2, 0, 1]
        .iter()
        .flat_map(|position| &plan.create[*position].spec.selected_resources)
        .map(|raw| raw.0["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(read_back, ["m0", "m1", "m2", "m3", "m4"]);
    for object in &plan.create {
        let size = serde_json::to_vec(&object.spec).unwrap().len();
        assert!(size <= PART_LIMIT + 1000, "{size}");
    }
}

/// Whoever reads a group back gets its parts by their position, however they come in (trap T6).
#[test]
fn parts_are_read_in_their_order() {
    let content: Vec<_> = (0..13)
        .map(|n| manifest(&format!("m{n:02}"), PART_LIMIT - 1000))
        .collect();
    let plan = plan_of(&Store::new(), &content, 10, &[]);
    let mut known: Vec<Arc<SnapshotMeta>> = plan
        .create
        .iter()
        .map(|object| Arc::new(meta_of(object.metadata.clone())))
        .collect();
    // By name, as a list gives them: p-0-10 comes before p-0-2.
    known.sort_by_key(|meta| meta.name_any());
    let groups = Groups::of(&known);
    let (_, group) = groups.latest().unwrap();
    let positions: Vec<u64> = group.parts.keys().copied().collect();
    assert_eq!(positions, (0..12).collect::<Vec<u64>>());
}

#[test]
fn an_object_above_the_limit_gets_a_part_of_its_own() {
    let content = [
        manifest("a", 10),
        manifest("b", PART_LIMIT + 10),
        manifest("c", 10),
    ];
    let plan = plan_of(&Store::new(), &content, 10, &[]);
    let counts: Vec<_> = plan
        .create
        .iter()
        .map(|object| object.spec.selected_resources.len())
        .collect();
    assert_eq!(counts, [1, 1, 1]);
}

#[test]
fn history_keeps_what_is_in_use() {
    let rows: [(usize, &[&str], &[&str]); 4] = [
        (
            10,
            &[],
            &[
                "p-0-snapshot",
                "p-1-snapshot",
                "p-2-snapshot",
                "p-3-snapshot",
            ],
        ),
        (2, &[], &["p-2-snapshot", "p-3-snapshot"]),
        (1, &["p-0-snapshot"], &["p-0-snapshot", "p-3-snapshot"]),
        (0, &[], &["p-3-snapshot"]),
    ];
    for (limit, in_use, kept) in rows {
        let mut store = Store::new();
        for content in 0..4 {
            settle(&mut store, &[manifest("a", content)], limit, in_use);
        }
        assert_eq!(
            store.keys().collect::<Vec<_>>(),
            kept,
            "limit {limit}, in use {in_use:?}"
        );
    }
}

#[test]
fn a_part_that_was_taken_away_makes_the_version_before_it_count() {
    let mut store = Store::new();
    settle(&mut store, &[manifest("a", 1)], 10, &[]);
    let large: Vec<_> = (0..3)
        .map(|n| manifest(&format!("m{n}"), PART_LIMIT / 2))
        .collect();
    settle(&mut store, &large, 10, &[]);
    assert!(store.remove("p-1-0").is_some());
    let groups = Groups::of(&store.values().cloned().collect::<Vec<_>>());
    assert_eq!(
        groups.latest().unwrap().0,
        0,
        "an incomplete group is not read"
    );
    settle(&mut store, &large, 10, &[]);
    assert_eq!(
        labelled_latest(&store),
        ["p-2-snapshot"],
        "and its index is not used again"
    );
}

/// Contents that differ, of up to four parts each; made once, for they are large.
static CONTENTS: LazyLock<Vec<Vec<Arc<Manifest>>>> = LazyLock::new(|| {
    let content = |kind: usize| {
        (0..4)
            .map(|part| manifest(&format!("m{kind}-{part}"), PART_LIMIT * 2 / 3))
            .collect()
    };
    (0..4).map(content).collect()
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Design §2: any prefix of the writes is a valid state. Contents follow one another, each pass dies
    /// after some writes, and a last one lives.
    #[test]
    fn dying_between_any_two_writes_leaves_a_latest_and_the_next_pass_finishes(
        passes in prop::collection::vec((0usize..3, 1usize..5, 0usize..8), 1..6),
        limit in 1usize..4,
    ) {
        let mut store = Store::new();
        let content = |kind: usize, parts: usize| &CONTENTS[kind][..parts];
        let mut reached = false;
        let mut highest = 0;
        for (kind, parts, steps) in &passes {
            let plan = plan_of(&store, content(*kind, *parts), limit, &[]);
            carry_out(&mut store, &plan, *steps);
            let groups = Groups::of(&store.values().cloned().collect::<Vec<_>>());
            let latest = groups.latest().map(|(index, _)| index);
            prop_assert!(!reached || latest.is_some(), "there is always a latest once there was one");
            prop_assert!(latest.unwrap_or(0) >= highest, "and it never goes back");
            reached |= latest.is_some();
            highest = latest.unwrap_or(0);
        }
        let last = content(3, 2);
        let plan = plan_of(&store, last, limit, &[]);
        carry_out(&mut store, &plan, usize::MAX);
        prop_assert_eq!(labelled_latest(&store), vec![plan.latest.name.as_str()]);
        prop_assert!(is_quiet(&plan_of(&store, last, limit, &[])), "a second pass writes nothing");
        let groups = Groups::of(&store.values().cloned().collect::<Vec<_>>());
        prop_assert_eq!(groups.objects().count(), store.len());
        prop_assert_eq!(groups.latest().unwrap().1.hash(), Some(plan.latest.hash.as_str()));
    }
}
