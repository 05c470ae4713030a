//! The cache against a server that lists, watches, expires and refuses, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{LinesSender, Reply, Seen, lines, refusal, status};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use windlass_cluster::{ApiError, Cache, CacheOptions, Change, ObjectKey, clock};

/// One kind on a server.
#[derive(Clone, Default)]
struct Kind {
    state: Arc<Mutex<State>>,
    /// Happens once, when a list is asked for.
    during_list: Arc<Mutex<Option<Happening>>>,
}

type Happening = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    version: u64,
    objects: BTreeMap<String, Value>,
    watches: Vec<LinesSender>,
    /// Refusals to come, of lists and of watches.
    refuse_lists: Vec<(u16, &'static str)>,
    refuse_watches: Vec<(u16, &'static str)>,
    lists: usize,
    watch_versions: Vec<String>,
}

impl Kind {
    fn client(&self) -> Client {
        let kind = self.clone();
        common::server(move |seen| kind.answer(seen)).0
    }

    fn answer(&self, seen: &Seen) -> Reply {
        if !seen.query.contains("watch=")
            && let Some(happening) = self.during_list.lock().unwrap().take()
        {
            happening();
        }
        let mut state = self.state.lock().unwrap();
        let parameter = |name: &str| {
            seen.query
                .split('&')
                .find_map(|pair| pair.strip_prefix(&format!("{name}=")))
                .map(str::to_owned)
        };
        if seen.query.contains("watch=") {
            state.watch_versions.extend(parameter("resourceVersion"));
            if !state.refuse_watches.is_empty() {
                let (code, reason) = state.refuse_watches.remove(0);
                return refusal(code, reason, "not now");
            }
            let (sender, receiver) = lines();
            state.watches.push(sender);
            return Reply::Stream(receiver);
        }
        state.lists += 1;
        if !state.refuse_lists.is_empty() {
            let (code, reason) = state.refuse_lists.remove(0);
            return refusal(code, reason, "not now");
        }
        let from: usize = parameter("continue").map_or(0, |token| token.parse().unwrap());
        let limit: usize = parameter("limit").map_or(usize::MAX, |limit| limit.parse().unwrap());
        let page: Vec<Value> = state
            .objects
            .values()
            .skip(from)
            .take(limit)
            .cloned()
            .collect();
        let next = from + page.len();
        let token = if next < state.objects.len() {
            next.to_string()
        } else {
            String::new()
        };
        Reply::Json(
            200,
            json!({"kind": "ConfigMapList", "apiVersion": "v1", "items": page,
                   "metadata": {"resourceVersion": state.version.to_string(), "continue": token}}),
        )
    }

    fn put(&self, name: &str, uid: &str) -> Value {
        let mut state = self.state.lock().unwrap();
        state.version += 1;
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "n", "uid": uid, "resourceVersion": state.version.to_string(),
                          "managedFields": [{"manager": "m"}]},
            "data": {"version": state.version.to_string()},
        });
        let known = state
            .objects
            .insert(name.to_owned(), object.clone())
            .is_some();
        state.send(if known { "MODIFIED" } else { "ADDED" }, &object);
        object
    }

    fn delete(&self, name: &str) {
        let mut state = self.state.lock().unwrap();
        state.version += 1;
        let mut object = state.objects.remove(name).unwrap();
        object["metadata"]["resourceVersion"] = state.version.to_string().into();
        state.send("DELETED", &object);
    }

    /// Ends every watch; what happens until the next one is missed by it.
    fn cut(&self) {
        self.state.lock().unwrap().watches.clear();
    }

    /// Tells every watch that its version is too old.
    fn expire(&self) {
        let mut state = self.state.lock().unwrap();
        state.send("ERROR", &status(410, "Expired", "too old resource version"));
        state.watches.clear();
    }

    fn lists(&self) -> usize {
        self.state.lock().unwrap().lists
    }
}

impl State {
    fn send(&mut self, type_: &str, object: &Value) {
        let line = format!("{}\n", json!({"type": type_, "object": object}));
        self.watches
            .retain(|watch| watch.unbounded_send(Ok(line.clone())).is_ok());
    }
}

struct Fixture {
    kind: Kind,
    cache: Cache<ConfigMap>,
    told: UnboundedReceiver<String>,
}

impl Fixture {
    fn start(kind: &Kind) -> Self {
        let (tell, told) = unbounded_channel();
        let options = CacheOptions {
            on_change: Arc::new(move |change: &Change<ConfigMap>| {
                let word = match (&change.old, &change.new) {
                    (None, Some(_)) => "add",
                    (Some(_), Some(_)) => "change",
                    _ => "delete",
                };
                let initial = if change.initial { " initially" } else { "" };
                drop(tell.send(format!("{word} {}{initial}", change.key)));
            }),
            ..CacheOptions::default()
        };
        let api = Api::all(kind.client());
        let cache = Cache::start(
            "test",
            api,
            watcher::Config::default().page_size(2),
            options,
        );
        Self {
            kind: kind.clone(),
            cache,
            told,
        }
    }

    async fn next(&mut self) -> String {
        self.told.recv().await.unwrap()
    }

    /// Waits until the server has a watch of ours.
    async fn watching(&self) {
        while self.kind.state.lock().unwrap().watches.is_empty() {
            clock::sleep(Duration::from_millis(10)).await;
        }
    }

    fn quiet(&mut self) -> bool {
        self.told.try_recv().is_err()
    }
}

fn decode(object: Value) -> ConfigMap {
    serde_json::from_value(object).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_first_list_comes_in_pages_and_the_watch_goes_on_from_it() {
    let kind = Kind::default();
    for name in ["a", "b", "c", "d", "e"] {
        kind.put(name, name);
    }
    let mut f = Fixture::start(&kind);
    // Many may wait at once, and each is woken.
    let waiters: Vec<_> = (0..5)
        .map(|_| {
            let cache = f.cache.clone();
            clock::spawn("test", async move { cache.wait_synced().await })
        })
        .collect();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!((f.cache.len(), f.kind.lists()), (5, 3));
    for name in ["a", "b", "c", "d", "e"] {
        assert_eq!(f.next().await, format!("add n/{name} initially"));
    }
    f.watching().await;
    kind.put("a", "a");
    assert_eq!(f.next().await, "change n/a");
    kind.put("f", "f");
    assert_eq!(f.next().await, "add n/f");
    kind.delete("b");
    assert_eq!(f.next().await, "delete n/b");
    assert_eq!(f.cache.in_namespace("n").len(), 5);
    let a = f.cache.get(&ObjectKey::namespaced("n", "a")).unwrap();
    assert!(a.metadata.managed_fields.is_none());
    assert_eq!(kind.state.lock().unwrap().watch_versions, ["5"]);
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_lists_again_and_tells_only_what_changed() {
    let kind = Kind::default();
    for name in ["a", "b", "c"] {
        kind.put(name, name);
    }
    let mut f = Fixture::start(&kind);
    f.cache.wait_synced().await;
    f.watching().await;
    while !f.quiet() {}

    kind.expire();
    kind.put("b", "b");
    kind.delete("c");
    kind.put("c", "another");
    kind.delete("a");
    let mut told = vec![f.next().await, f.next().await, f.next().await];
    told.sort();
    assert_eq!(told, ["change n/b", "change n/c", "delete n/a"]);
    assert!(f.quiet());
    assert_eq!(f.cache.last_error(), None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_goes_on_where_it_was() {
    let kind = Kind::default();
    kind.put("a", "a");
    let mut f = Fixture::start(&kind);
    f.cache.wait_synced().await;
    f.watching().await;
    f.next().await;
    kind.put("b", "b");
    assert_eq!(f.next().await, "add n/b");
    kind.cut();
    f.watching().await;
    kind.put("c", "c");
    assert_eq!(f.next().await, "add n/c");
    assert_eq!(f.kind.lists(), 1);
    assert_eq!(kind.state.lock().unwrap().watch_versions, ["1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_refused_as_expired_lists_again() {
    let kind = Kind::default();
    kind.put("a", "a");
    let mut f = Fixture::start(&kind);
    f.cache.wait_synced().await;
    f.watching().await;
    f.next().await;
    kind.state.lock().unwrap().refuse_watches = vec![(410, "Expired")];
    kind.cut();
    kind.put("b", "b");
    assert_eq!(f.next().await, "add n/b");
    assert_eq!(f.kind.lists(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_may_not_be_listed_is_tried_again_and_says_why() {
    let kind = Kind::default();
    kind.put("a", "a");
    kind.state.lock().unwrap().refuse_lists = vec![
        (404, "NotFound"),
        (403, "Forbidden"),
        (403, "Forbidden"),
        (401, "Unauthorized"),
        (500, ""),
    ];
    let mut f = Fixture::start(&kind);
    let mut failures = Vec::new();
    while !f.cache.is_synced() {
        if let Some(failure) = f.cache.failure()
            && failures.last() != Some(&failure)
        {
            failures.push(failure);
        }
        clock::sleep(Duration::from_millis(50)).await;
    }
    let now = || "not now".to_owned();
    let expected = [
        ApiError::NotFound(now()),
        ApiError::Rejected(now()),
        ApiError::Unauthorized(now()),
        ApiError::transient("not now"),
    ];
    assert_eq!(failures, expected);
    assert_eq!(f.next().await, "add n/a initially");
    assert_eq!(f.cache.last_error(), None);
}

#[tokio::test(start_paused = true)]
async fn a_failing_watch_empties_nothing_and_its_error_does_not_stay_for_ever() {
    let kind = Kind::default();
    kind.put("a", "a");
    let f = Fixture::start(&kind);
    f.cache.wait_synced().await;
    f.watching().await;
    kind.state.lock().unwrap().refuse_watches = vec![(403, "Forbidden"); 3];
    kind.cut();
    while f.cache.last_error().is_none() {
        clock::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(f.cache.last_error().unwrap(), "refused: not now");
    f.watching().await;
    assert_eq!(f.cache.len(), 1);
    // The watch works again, and nothing happens that could say so.
    clock::sleep(Duration::from_secs(121)).await;
    assert_eq!(f.cache.last_error(), None);
}

#[tokio::test(start_paused = true)]
async fn our_own_write_is_seen_at_once_and_told_once() {
    let kind = Kind::default();
    let mut f = Fixture::start(&kind);
    f.cache.wait_synced().await;
    f.watching().await;
    let answer = kind.put("a", "a");
    f.cache.observe(decode(answer));
    assert_eq!(f.cache.len(), 1);
    kind.put("b", "b");
    assert_eq!(
        (f.next().await, f.next().await),
        ("add n/a".into(), "add n/b".into())
    );
    assert!(f.quiet());
}

/// Lists again, and puts our own write in after the list has begun and before it is in.
async fn write_during_a_list(f: &mut Fixture, ours: ConfigMap) {
    f.watching().await;
    let cache = f.cache.clone();
    *f.kind.during_list.lock().unwrap() = Some(Box::new(move || cache.observe(ours)));
    f.kind.expire();
    assert_eq!(f.next().await, "add n/ours");
    f.watching().await;
}

fn ours(version: &str) -> ConfigMap {
    decode(
        json!({"metadata": {"name": "ours", "namespace": "n", "uid": "ours", "resourceVersion": version}}),
    )
}

#[tokio::test(start_paused = true)]
async fn what_a_list_leaves_in_doubt_is_asked_for_again() {
    let kind = Kind::default();
    let mut f = Fixture::start(&kind);
    f.cache.wait_synced().await;
    // Somebody deletes it before the list is made, and the watch goes on from after that.
    write_during_a_list(&mut f, ours("9")).await;
    assert_eq!((f.cache.len(), f.kind.lists()), (1, 2));
    let began = clock::monotonic();
    assert_eq!(f.next().await, "delete n/ours");
    assert_eq!(f.kind.lists(), 3);
    let took = clock::monotonic() - began;
    assert!(
        took > Duration::from_secs(9) && took < Duration::from_secs(12),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_watch_shows_after_a_list_is_in_no_doubt() {
    let kind = Kind::default();
    let mut f = Fixture::start(&kind);
    f.cache.wait_synced().await;
    write_during_a_list(&mut f, ours("1")).await;
    kind.put("ours", "ours");
    clock::sleep(Duration::from_secs(60)).await;
    assert_eq!((f.cache.len(), f.kind.lists()), (1, 2));
    assert!(f.quiet(), "the echo is no change");
}

#[tokio::test(start_paused = true)]
async fn metadata_only_and_dynamic_caches() {
    let kind = Kind::default();
    kind.put("a", "a");
    let of = kind.clone();
    let (client, log) = common::server(move |seen| of.answer(seen));
    let resource = ApiResource::erase::<ConfigMap>(&());

    let metadata = Cache::start_metadata(
        "metadata",
        &client,
        &resource,
        Some("n"),
        watcher::Config::default().labels("x=y"),
        CacheOptions::default(),
    );
    metadata.wait_synced().await;
    let seen = log.lock().unwrap()[0].clone();
    assert_eq!(seen.path, "/api/v1/namespaces/n/configmaps");
    assert!(
        seen.accept.contains("as=PartialObjectMetadataList"),
        "{}",
        seen.accept
    );
    assert!(seen.query.contains("labelSelector=x%3Dy"), "{}", seen.query);
    assert_eq!(metadata.list()[0].name_any(), "a");

    let dynamic: Cache<DynamicObject> = Cache::start(
        "dynamic",
        Api::all_with(client.clone(), &resource),
        watcher::Config::default(),
        CacheOptions::default(),
    );
    dynamic.wait_synced().await;
    assert_eq!(dynamic.list()[0].data["data"]["version"], "1");

    let typed: Cache<PartialObjectMeta<ConfigMap>> = Cache::start(
        "typed",
        Api::all(client),
        watcher::Config::default(),
        CacheOptions::default(),
    );
    typed.wait_synced().await;
    assert_eq!(typed.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_cache_asks_for_nothing_and_keeps_what_it_has() {
    let kind = Kind::default();
    kind.put("a", "a");
    let f = Fixture::start(&kind);
    f.cache.wait_synced().await;
    f.watching().await;
    f.cache.stop();
    kind.cut();
    clock::sleep(Duration::from_secs(3600)).await;
    assert_eq!((f.kind.lists(), f.cache.len()), (1, 1));
    assert_eq!(kind.state.lock().unwrap().watch_versions.len(), 1);
}
