use proptest::prelude::*;
use serde_json::json;

use super::*;

fn manifest(name: &str, data: &str) -> Arc<Manifest> {
    Arc::new(Manifest::of_snapshot(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"},
        "data": {"a": data}})))
}

fn envelope(name: &str) -> EnvelopeIdentifier {
    EnvelopeIdentifier {
        name: name.into(),
        namespace: Some("n".into()),
        type_: Some(EnvelopeType::ResourceEnvelope),
    }
}

fn group(part: usize, envelope: Option<EnvelopeIdentifier>, data: &str) -> Group {
    Group {
        part,
        envelope,
        manifests: vec![manifest("a", data)],
    }
}

fn wish(placement: ObjectKey, groups: Vec<Group>) -> Wish {
    Wish {
        report_back: None,
        namespace: "fleet-member-east".into(),
        placement,
        binding: "b".into(),
        snapshot: "s".into(),
        index: 3,
        overrides_hash: "o".into(),
        cluster_overrides_hash: "c".into(),
        strategy: None,
        is_hashed: false,
        groups,
    }
}

/// The hub's namespace of a member, as an API server would keep it.
#[derive(Clone, Default)]
struct Server(BTreeMap<String, Arc<WorkMeta>>);

impl Server {
    fn plan(&self, wish: &Wish) -> Plan {
        let existing: Vec<_> = self
            .0
            .values()
            .filter(|work| parent_of(work) == wish.placement)
            .cloned()
            .collect();
        plan(wish, &existing, |name| self.0.get(name).cloned())
    }

    /// What was written: `create NAME`, `replace NAME`, `delete NAME`.
    fn execute(&mut self, wish: &Wish, plan: &Plan) -> Vec<String> {
        let mut log = Vec::new();
        for item in &plan.items {
            let (verb, generation) = match &item.act {
                Act::Keep | Act::Wait => continue,
                Act::Create => ("create", 1),
                Act::Replace(live) => {
                    let written = live.annotations().get(labels::WRITTEN);
                    let same = written.is_some_and(|w| w.ends_with(&item.digest.to_string()));
                    let grown = i64::from(!(same && is_untouched(live)));
                    ("replace", live.metadata.generation.unwrap() + grown)
                }
            };
            let is_new = !self.0.contains_key(&item.name);
            assert_eq!(is_new, verb == "create", "{}", item.name);
            let mut work = WorkMeta::from(build(wish, item));
            work.metadata.generation = Some(generation);
            self.0.insert(item.name.clone(), Arc::new(work));
            log.push(format!("{verb} {}", item.name));
        }
        for work in &plan.delete {
            self.0.remove(&work.name_any());
            log.push(format!("delete {}", work.name_any()));
        }
        log
    }

    fn settle(&mut self, wish: &Wish) -> Vec<String> {
        let plan = self.plan(wish);
        self.execute(wish, &plan)
    }

    fn edit(&mut self, name: &str, edit: impl FnOnce(&mut WorkMeta)) {
        let mut work = (*self.0[name]).clone();
        edit(&mut work);
        self.0.insert(name.to_owned(), Arc::new(work));
    }
}

#[test]
fn one_work_per_part_and_one_per_envelope() {
    let groups = vec![
        group(0, None, "1"),
        group(1, None, "1"),
        group(1, Some(envelope("e")), "1"),
    ];
    let mut server = Server::default();
    let wish = wish(ObjectKey::namespaced("web", "app"), groups);
    let log = server.settle(&wish);
    assert_eq!(log[..2], ["create web.app-work", "create web.app-0"]);
    let name = log[2].strip_prefix("create web.app-0-envelope-").unwrap();
    assert_eq!(name.len(), 16);
    assert_eq!(server.settle(&wish), [""; 0]);
    let labels = server.0["web.app-work"].labels();
    let expected = [
        (labels::PARENT_BINDING, "b"),
        (labels::PARENT_PLACEMENT, "app"),
        (labels::PARENT_NAMESPACE, "web"),
        (labels::PARENT_SNAPSHOT_INDEX, "3"),
    ];
    assert_eq!(labels.len(), expected.len());
    for (key, value) in expected {
        assert_eq!(labels[key], value, "{key}");
    }
    let work = &server
        .0
        .values()
        .find(|w| envelope_of(w).is_some())
        .unwrap();
    assert_eq!(envelope_of(work), Some(envelope("e")));
}

#[test]
fn only_what_has_changed_is_written() {
    let key = ObjectKey::cluster("web");
    let first = wish(key.clone(), vec![group(0, None, "1"), group(1, None, "1")]);
    let mut server = Server::default();
    server.settle(&first);
    // A new snapshot with another second part: the first Work stays as it is, index label and all.
    let mut second = wish(key.clone(), vec![group(0, None, "1"), group(1, None, "2")]);
    second.index = 4;
    assert_eq!(server.settle(&second), ["replace web-0"]);
    assert_eq!(
        server.0["web-work"].labels()[labels::PARENT_SNAPSHOT_INDEX],
        "3"
    );
    assert_eq!(
        server.0["web-0"].labels()[labels::PARENT_SNAPSHOT_INDEX],
        "4"
    );
    // The strategy is part of every Work.
    second.strategy = Some(ApplyStrategy {
        allow_co_ownership: Some(true),
        ..ApplyStrategy::default()
    });
    assert_eq!(
        server.settle(&second),
        ["replace web-work", "replace web-0"]
    );
    let mut smaller = wish(key, vec![group(0, None, "1")]);
    smaller.strategy = second.strategy;
    assert_eq!(server.settle(&smaller), ["delete web-0"]);
}

#[test]
fn what_somebody_changed_is_put_back_and_then_left_alone() {
    let wish = wish(ObjectKey::cluster("web"), vec![group(0, None, "1")]);
    let mut server = Server::default();
    server.settle(&wish);
    server.edit("web-work", |work| work.metadata.generation = Some(2));
    assert_eq!(server.settle(&wish), ["replace web-work"]);
    assert_eq!(server.settle(&wish), [""; 0]);
    server.edit("web-work", |work| {
        work.labels_mut().remove(labels::PARENT_BINDING);
    });
    assert_eq!(server.settle(&wish), ["replace web-work"]);
    assert_eq!(
        server.0["web-work"].metadata.generation,
        Some(3),
        "its spec is as it was"
    );
    assert_eq!(server.settle(&wish), [""; 0]);
}

#[test]
fn a_work_that_is_being_deleted_is_waited_for() {
    let wish = wish(ObjectKey::cluster("web"), vec![group(0, None, "1")]);
    let mut server = Server::default();
    server.settle(&wish);
    let time: windlass_api::Time = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    server.edit("web-work", |work| {
        work.metadata.deletion_timestamp = Some(time);
    });
    let plan = server.plan(&wish);
    assert!(plan.is_empty() && matches!(plan.items[0].act, Act::Wait));
}

#[test]
fn who_comes_second_takes_another_name_and_keeps_it() {
    let cluster = wish(ObjectKey::cluster("a.b"), vec![group(0, None, "1")]);
    let namespaced = wish(
        ObjectKey::namespaced("a", "b"),
        vec![group(0, None, "1"), group(0, Some(envelope("e")), "1")],
    );
    let mut server = Server::default();
    assert_eq!(server.settle(&cluster), ["create a.b-work"]);
    let log = server.settle(&namespaced);
    let other = log[0].strip_prefix("create ").unwrap().to_owned();
    assert!(other.starts_with("a.b-work-h"), "{other}");
    assert_eq!(server.settle(&namespaced), [""; 0]);
    // The first one goes: the second one's objects must not be made anew under its name.
    server.0.remove("a.b-work");
    assert_eq!(server.settle(&namespaced), [""; 0]);
    assert_eq!(server.settle(&cluster), ["create a.b-work"]);
    assert_eq!(server.settle(&namespaced), [""; 0]);
}

/// A cluster that the hub delivered to goes over to an agent: whichever of two comes first, the name stays
/// whose it is there.
#[test]
fn a_name_that_is_anothers_on_the_cluster_is_not_taken() {
    let first = wish(ObjectKey::cluster("a.b"), vec![group(0, None, "1")]);
    let mut second = wish(
        ObjectKey::namespaced("a", "b"),
        vec![group(0, None, "1"), group(0, Some(envelope("e")), "1")],
    );
    second.is_hashed = true;
    let mut server = Server::default();
    let log = server.settle(&second);
    assert!(
        log.len() == 2 && log.iter().all(|line| line.contains("-h")),
        "{log:?}"
    );
    assert_eq!(server.settle(&first), ["create a.b-work"]);
    // Later nobody asks the cluster any more.
    second.is_hashed = false;
    assert_eq!(server.settle(&second), [""; 0]);
}

/// Whoever may name placements in a namespace knows every hash, and calls one so that it would take the name
/// that another one has to fall back to.
#[test]
fn a_name_with_a_hash_is_nobodys_usual_one() {
    let (cluster, namespaced) = (ObjectKey::cluster("a.b"), ObjectKey::namespaced("a", "b"));
    for victim in [&cluster, &namespaced] {
        let hash = unique(victim);
        let groups = || {
            let of_envelope = group(0, Some(envelope("e")), "1");
            vec![group(0, None, "1"), group(1, None, "1"), of_envelope]
        };
        let mut server = Server::default();
        for name in [
            format!("b-{hash}"),
            format!("b-h{hash}"),
            format!("b-work-{hash}"),
            format!("b-work-h{hash}"),
        ] {
            server.settle(&wish(ObjectKey::namespaced("a", &name), groups()));
            server.settle(&wish(ObjectKey::cluster(format!("a.{name}")), groups()));
        }
        for key in [&cluster, &namespaced] {
            let wish = wish(key.clone(), groups());
            server.settle(&wish);
            assert!(server.plan(&wish).is_empty(), "{key}");
            let of = server.0.values().filter(|work| parent_of(work) == *key);
            assert_eq!(of.count(), 3, "{key}, against {victim}");
        }
    }
}

#[test]
fn an_envelope_keeps_its_work_wherever_it_is() {
    let key = ObjectKey::cluster("web");
    let mut server = Server::default();
    server.settle(&wish(key.clone(), vec![group(0, Some(envelope("e")), "1")]));
    let moved = wish(key, vec![group(1, Some(envelope("e")), "1")]);
    assert_eq!(server.settle(&moved), [""; 0]);
}

prop_compose! {
    fn groups()(parts in proptest::collection::vec((0..4usize, 0..3usize), 0..4)) -> Vec<Group> {
        parts.into_iter().enumerate().map(|(part, (data, envelopes))| {
            let name = format!("e{part}");
            let envelope = (envelopes > 1).then(|| envelope(&name));
            group(part, envelope, &data.to_string())
        }).collect()
    }
}

proptest! {
    /// Two placements of which the names read the same, in any order of changes: each finds what it wants,
    /// once and in nobody else's Work, and then nothing is written.
    #[test]
    fn it_settles_and_never_meets_another(steps in proptest::collection::vec((any::<bool>(), groups()), 1..8)) {
        let mut server = Server::default();
        let mut last: BTreeMap<ObjectKey, Wish> = BTreeMap::new();
        for (first, groups) in steps {
            let key = if first { ObjectKey::cluster("a.b") } else { ObjectKey::namespaced("a", "b") };
            let wish = wish(key.clone(), groups);
            server.settle(&wish);
            last.insert(key, wish);
            let mut all = 0;
            for (key, wish) in &last {
                prop_assert!(server.plan(wish).is_empty(), "{key}");
                let of = server.0.values().filter(|work| parent_of(work) == *key).count();
                prop_assert_eq!(of, wish.groups.len());
                all += of;
            }
            prop_assert_eq!(all, server.0.len());
        }
    }
}
