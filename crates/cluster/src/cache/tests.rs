use super::*;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

fn object(name: &str, uid: &str, version: u64, team: &str) -> ConfigMap {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "n", "uid": uid, "resourceVersion": version.to_string(),
                      "labels": {"team": team}, "managedFields": [{"manager": "m"}]},
    }))
    .unwrap()
}

struct Fixture {
    cache: Cache<ConfigMap>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Fixture {
    fn new() -> Self {
        let log = Arc::<Mutex<Vec<String>>>::default();
        let told = Arc::clone(&log);
        let options = CacheOptions {
            indexes: vec![Index {
                name: "team",
                values: |object: &ConfigMap| {
                    object.labels().get("team").cloned().into_iter().collect()
                },
            }],
            trim: None,
            on_change: Arc::new(move |change: &Change<ConfigMap>| {
                let word = match (&change.old, &change.new) {
                    (None, Some(_)) => "add",
                    (Some(_), Some(_)) => "change",
                    _ => "delete",
                };
                let initial = if change.initial { " initially" } else { "" };
                told.lock()
                    .unwrap()
                    .push(format!("{word} {}{initial}", change.key.name));
            }),
        };
        Self {
            cache: Cache::detached("test", options),
            log,
        }
    }

    fn told(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().unwrap())
    }

    /// A whole list, as the feed does it; `meanwhile` happens after it has begun and before it is in.
    fn list(
        &self,
        objects: Vec<ConfigMap>,
        meanwhile: impl FnOnce(&Cache<ConfigMap>),
    ) -> Vec<ObjectKey> {
        self.cache.begin_list();
        let rows = objects
            .into_iter()
            .map(|object| {
                let key = ObjectKey::of(&object);
                let known = self.cache.has(&key, &object);
                (key, (!known).then(|| Arc::new(self.cache.trimmed(object))))
            })
            .collect();
        meanwhile(&self.cache);
        self.cache.finish_list(rows)
    }

    fn names(&self) -> Vec<String> {
        self.cache
            .list()
            .iter()
            .map(|object| {
                format!(
                    "{}{}",
                    object.name_any(),
                    object.metadata.uid.clone().unwrap()
                )
            })
            .collect()
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("n", name)
}

#[test]
fn a_list_replaces_what_was_there_and_tells_only_real_changes() {
    let f = Fixture::new();
    assert!(!f.cache.is_synced());
    f.list(
        vec![object("a", "1", 1, "x"), object("b", "2", 2, "x")],
        |_| (),
    );
    assert!(f.cache.is_synced());
    assert_eq!(f.told(), ["add a initially", "add b initially"]);
    f.list(
        vec![object("a", "1", 1, "x"), object("c", "3", 5, "y")],
        |_| (),
    );
    assert_eq!(f.told(), ["add c", "delete b"]);
    assert!(
        f.cache
            .get(&key("a"))
            .unwrap()
            .metadata
            .managed_fields
            .is_none()
    );
}

#[test]
fn whoever_is_told_of_a_list_sees_all_of_it() {
    let seen = Arc::<Mutex<Vec<usize>>>::default();
    let cell = Arc::<Mutex<Option<Cache<ConfigMap>>>>::default();
    let (told, reader) = (Arc::clone(&seen), Arc::clone(&cell));
    let options = CacheOptions {
        on_change: Arc::new(move |_: &Change<ConfigMap>| {
            told.lock()
                .unwrap()
                .push(reader.lock().unwrap().as_ref().unwrap().len());
        }),
        ..CacheOptions::default()
    };
    let cache = Cache::detached("test", options);
    *cell.lock().unwrap() = Some(cache.clone());
    cache.begin_list();
    let rows = ["a", "b", "c"].map(|name| (key(name), Some(Arc::new(object(name, name, 1, "x")))));
    cache.finish_list(rows.into());
    assert_eq!(*seen.lock().unwrap(), [3, 3, 3]);
}

#[test]
fn indexes_follow_changes() {
    let f = Fixture::new();
    f.cache.watched(object("a", "1", 1, "x"));
    assert_eq!(f.cache.by_index("team", "x").len(), 1);
    f.cache.watched(object("a", "1", 2, "y"));
    assert!(f.cache.by_index("team", "x").is_empty());
    assert_eq!(f.cache.by_index("team", "y").len(), 1);
    f.cache.watched_deletion(&object("a", "1", 3, "y"));
    assert!(f.cache.by_index("team", "y").is_empty());
    assert!(f.cache.by_index("none", "y").is_empty());
}

#[test]
fn own_writes_are_seen_at_once_and_the_echo_is_no_change() {
    let f = Fixture::new();
    f.cache.observe(object("a", "1", 7, "x"));
    f.cache.watched(object("a", "1", 6, "old"));
    f.cache.watched(object("a", "1", 7, "x"));
    assert_eq!(f.told(), ["add a"]);
    assert_eq!(f.cache.by_index("team", "x").len(), 1);
}

#[test]
fn an_answer_that_comes_after_the_deletion_brings_nothing_back() {
    let f = Fixture::new();
    f.cache.watched(object("a", "1", 1, "x"));
    f.cache.watched_deletion(&object("a", "1", 5, "x"));
    f.cache.observe(object("a", "1", 4, "x"));
    assert!(f.cache.is_empty());
    f.cache.observe(object("a", "2", 9, "x"));
    assert_eq!(
        f.names(),
        ["a2"],
        "a new object of the same name is another one"
    );
    f.cache.watched_deletion(&object("a", "1", 5, "x"));
    assert_eq!(
        f.names(),
        ["a2"],
        "the old one's deletion is not the new one's"
    );
}

#[test]
fn what_left_a_selectors_view_may_return() {
    let f = Fixture::new();
    f.cache.watched(object("a", "1", 1, "x"));
    f.cache.watched_deletion(&object("a", "1", 5, "x"));
    f.cache.watched(object("a", "1", 8, "x"));
    assert_eq!(f.names(), ["a1"]);
    // Somebody took it out of view at 9, we put it back at 10: the deletion is the older news.
    f.cache.observe(object("a", "1", 10, "x"));
    f.cache.watched_deletion(&object("a", "1", 9, "x"));
    assert_eq!(f.names(), ["a1"]);
}

#[test]
fn a_last_finalizer_removed_is_the_end() {
    let f = Fixture::new();
    let mut last = object("a", "1", 2, "x");
    last.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    last.metadata.deletion_grace_period_seconds = Some(0);
    f.cache.watched(object("a", "1", 1, "x"));
    f.cache.observe(last.clone());
    assert_eq!(f.told(), ["add a", "delete a"]);
    f.cache.observe(object("a", "1", 1, "x"));
    assert!(f.cache.is_empty());

    // One more finalizer, and it is still there; one that goes gracefully is, too.
    let held = |change: fn(&mut ConfigMap)| {
        let f = Fixture::new();
        let mut held = last.clone();
        change(&mut held);
        f.cache.observe(held.clone());
        f.cache.observe_deleted(&held);
        f.cache.len()
    };
    assert_eq!(
        held(|object| object.metadata.finalizers = Some(vec!["theirs".into()])),
        1
    );
    assert_eq!(held(|_| ()), 0);
}

#[test]
fn a_deletion_of_our_own_counts_at_once_unless_the_watch_knows_better() {
    let f = Fixture::new();
    f.cache.watched(object("a", "1", 1, "x"));
    f.cache.observe_deleted(&object("a", "1", 1, "x"));
    f.cache.observe(object("a", "1", 1, "x"));
    assert_eq!(f.told(), ["add a", "delete a"]);
    f.cache.watched(object("a", "1", 2, "x"));
    assert_eq!(
        f.told(),
        ["add a"],
        "it was changed after all, so it was not deleted then"
    );
}

#[test]
fn a_list_that_began_before_our_write_does_not_undo_it() {
    let f = Fixture::new();
    f.list(vec![object("a", "1", 1, "x")], |_| ());
    let doubtful = f.list(vec![object("a", "1", 1, "x")], |cache| {
        cache.observe(object("a", "1", 8, "y"));
        cache.observe(object("b", "2", 9, "x"));
    });
    assert_eq!(f.names(), ["a1", "b2"]);
    assert_eq!(f.cache.by_index("team", "y").len(), 1);
    assert_eq!(doubtful, [key("b")]);
    assert!(
        f.cache.any_pending(&doubtful),
        "the watch has not shown it yet"
    );
    f.cache.watched(object("b", "2", 9, "x"));
    assert!(!f.cache.any_pending(&doubtful));
}

#[test]
fn a_list_that_began_after_our_write_is_the_truth() {
    let f = Fixture::new();
    f.cache.observe(object("b", "2", 9, "x"));
    assert!(f.list(vec![object("a", "1", 1, "x")], |_| ()).is_empty());
    assert_eq!(f.names(), ["a1"]);
    f.cache.observe(object("b", "2", 9, "x"));
    assert_eq!(
        f.names(),
        ["a1"],
        "an answer that is late brings nothing back"
    );
}

#[test]
fn a_list_with_something_newer_decides_about_our_write() {
    let f = Fixture::new();
    let doubtful = f.list(vec![object("a", "1", 20, "x")], |cache| {
        cache.observe(object("b", "2", 9, "x"));
    });
    assert_eq!(
        (f.names(), doubtful),
        (vec!["a1".to_owned()], vec![]),
        "it was there at 9, and is not at 20"
    );
}

#[test]
fn our_deletion_during_a_list_is_not_undone_by_it() {
    let f = Fixture::new();
    f.list(
        vec![object("a", "1", 1, "x"), object("b", "2", 2, "x")],
        |_| (),
    );
    f.list(
        vec![object("a", "1", 1, "x"), object("b", "2", 2, "x")],
        |cache| {
            cache.observe_deleted(&object("a", "1", 1, "x"));
        },
    );
    assert_eq!(f.names(), ["b2"]);
}

#[test]
fn a_server_restored_from_a_backup_is_believed() {
    let f = Fixture::new();
    f.list(
        vec![object("a", "1", 100, "x"), object("b", "2", 101, "x")],
        |_| (),
    );
    f.cache.observe(object("a", "1", 110, "y"));
    f.cache.watched_deletion(&object("b", "2", 111, "x"));
    f.told();
    f.list(
        vec![object("a", "1", 50, "x"), object("b", "2", 51, "x")],
        |_| (),
    );
    assert_eq!(f.told(), ["change a", "add b"]);
    f.cache.watched(object("a", "1", 52, "z"));
    assert_eq!(f.cache.by_index("team", "z").len(), 1);
}

#[test]
fn graves_are_bounded() {
    let f = Fixture::new();
    for n in 0..10_000 {
        f.cache
            .watched_deletion(&object("a", &n.to_string(), n + 1, "x"));
    }
    f.cache.observe(object("a", "9999", 10_000, "x"));
    assert!(f.cache.is_empty(), "the latest are remembered");
    f.cache.observe(object("a", "0", 1, "x"));
    assert_eq!(f.cache.len(), 1, "the oldest are not");
}
