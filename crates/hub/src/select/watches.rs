//! The watches that selection needs: one per kind, of metadata only, for as long as a placement uses it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher;
use tokio::task::JoinHandle;
use windlass_cluster::{ApiError, Cache, CacheOptions, Change, ObjectKey, clock};

use super::lock;

/// When a new watch is looked at for the first time; from then on at twice the time before.
const FIRST_LOOK: Duration = Duration::from_millis(250);
const LAST_LOOK: Duration = Duration::from_secs(30);
/// A watch that worked once and has failed at so many looks in a row is said to fail. A cache takes a
/// failure for news for two minutes, so fewer would be said of a short one, too.
const LASTING: u32 = 5;

/// What is known of objects that are only candidates.
pub(super) type Meta = PartialObjectMeta<DynamicObject>;
/// Told of every change of an object of a kind.
pub(super) type OnChange = Arc<dyn Fn(&GroupVersionKind, &Change<Meta>) + Send + Sync>;
/// Told when the first list of a kind is in, or has failed.
pub(super) type OnNews = Arc<dyn Fn(&GroupVersionKind) + Send + Sync>;

/// Whether a watch can be relied on.
pub(super) enum State {
    /// Its first list is in.
    Synced,
    /// It is not, and this is why.
    Failing(ApiError),
    /// It is under way.
    Waiting,
}

impl State {
    pub(super) fn of(cache: &Cache<Meta>) -> Self {
        // In this order: a failure of before the list does not count after it.
        let failure = cache.failure();
        match (cache.is_synced(), failure) {
            (true, _) => Self::Synced,
            (false, Some(error)) => Self::Failing(error),
            (false, None) => Self::Waiting,
        }
    }
}

pub(super) struct Watches {
    client: Client,
    on_change: OnChange,
    on_news: OnNews,
    running: Mutex<HashMap<GroupVersionKind, Watch>>,
}

struct Watch {
    resource: ApiResource,
    cache: Cache<Meta>,
    news: JoinHandle<()>,
    /// It worked once, and has failed for a while now.
    stale: Arc<AtomicBool>,
    users: BTreeSet<ObjectKey>,
}

impl Watches {
    pub(super) fn new(client: Client, on_change: OnChange, on_news: OnNews) -> Self {
        Self {
            client,
            on_change,
            on_news,
            running: Mutex::default(),
        }
    }

    /// The hub's API server.
    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// Makes a placement a user of the watch of a kind, which is started if it does not run.
    pub(super) fn join(
        &self,
        placement: &ObjectKey,
        kind: &GroupVersionKind,
        resource: &ApiResource,
    ) -> Cache<Meta> {
        let mut running = lock(&self.running);
        let mut users = BTreeSet::new();
        // A kind may come back under another plural; its old address answers no more.
        if running
            .get(kind)
            .is_some_and(|watch| watch.resource.plural != resource.plural)
            && let Some(old) = running.remove(kind)
        {
            users = old.end();
        }
        let watch = running
            .entry(kind.clone())
            .or_insert_with(|| self.start(kind, resource));
        watch.users.append(&mut users);
        watch.users.insert(placement.clone());
        watch.cache.clone()
    }

    /// The placements that use the watch of a kind.
    pub(super) fn users(&self, kind: &GroupVersionKind) -> BTreeSet<ObjectKey> {
        lock(&self.running)
            .get(kind)
            .map(|watch| watch.users.clone())
            .unwrap_or_default()
    }

    /// Why what is known of a kind is what was last known, if its watch has failed for a while.
    pub(super) fn stale(&self, kind: &GroupVersionKind) -> Option<ApiError> {
        let running = lock(&self.running);
        let watch = running
            .get(kind)
            .filter(|watch| watch.stale.load(Ordering::Relaxed))?;
        watch.cache.failure()
    }

    /// What a placement watches.
    pub(super) fn used_by(
        &self,
        placement: &ObjectKey,
    ) -> Vec<(GroupVersionKind, ApiResource, Cache<Meta>)> {
        let running = lock(&self.running);
        let used = running
            .iter()
            .filter(|(_, watch)| watch.users.contains(placement));
        used.map(|(kind, watch)| (kind.clone(), watch.resource.clone(), watch.cache.clone()))
            .collect()
    }

    /// Takes a placement off every watch but those of some kinds; those without a user end.
    pub(super) fn keep_only(&self, placement: &ObjectKey, kinds: &HashSet<GroupVersionKind>) {
        let mut running = lock(&self.running);
        for (_, watch) in running
            .iter_mut()
            .filter(|(kind, _)| !kinds.contains(*kind))
        {
            watch.users.remove(placement);
        }
        for (_, watch) in running.extract_if(|_, watch| watch.users.is_empty()) {
            watch.end();
        }
    }

    /// Ends the watch of a kind that the server does not know: it would be tried ever more rarely, and be
    /// slow to notice that the kind is back. Returns who used it; they have to look again.
    pub(super) fn end(&self, kind: &GroupVersionKind) -> BTreeSet<ObjectKey> {
        lock(&self.running)
            .remove(kind)
            .map(Watch::end)
            .unwrap_or_default()
    }

    /// How many watches run.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        lock(&self.running).len()
    }

    fn start(&self, kind: &GroupVersionKind, resource: &ApiResource) -> Watch {
        let (of, tell) = (kind.clone(), Arc::clone(&self.on_change));
        let options = CacheOptions {
            // Selection goes by names and labels; annotations can be larger than all the rest.
            trim: Some(|meta: &mut Meta| meta.metadata.annotations = None),
            on_change: Arc::new(move |change: &Change<Meta>| tell(&of, change)),
            ..CacheOptions::default()
        };
        let config = watcher::Config::default();
        let cache =
            Cache::start_metadata("selected", &self.client, resource, None, config, options);
        let (of, tell) = (kind.clone(), Arc::clone(&self.on_news));
        let stale = Arc::<AtomicBool>::default();
        let news = {
            let (cache, stale) = (cache.clone(), Arc::clone(&stale));
            clock::spawn("selected-news", async move {
                first_news(&cache, || tell(&of)).await;
                later_news(&cache, &stale, || tell(&of)).await;
            })
        };
        Watch {
            resource: resource.clone(),
            cache,
            news,
            stale,
            users: BTreeSet::new(),
        }
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for (_, watch) in lock(&self.running).drain() {
            watch.end();
        }
    }
}

impl Watch {
    /// Returns those who used it.
    fn end(self) -> BTreeSet<ObjectKey> {
        self.cache.stop();
        self.news.abort();
        self.users
    }
}

/// Tells once if the first list fails, and when it is in at last. A cache does not tell of its failures,
/// so it is looked at until one of the two is known.
async fn first_news(cache: &Cache<Meta>, tell: impl Fn()) {
    let mut pause = FIRST_LOOK;
    loop {
        tokio::select! {
            () = cache.wait_synced() => break,
            () = clock::sleep(pause) => {}
        }
        if cache.failure().is_some() && !cache.is_synced() {
            tell();
            cache.wait_synced().await;
            break;
        }
        pause = LAST_LOOK.min(pause * 2);
    }
    tell();
}

/// Tells when a watch that worked fails for a while, and when it works again.
async fn later_news(cache: &Cache<Meta>, stale: &AtomicBool, tell: impl Fn()) {
    let mut failures = 0;
    loop {
        clock::sleep(LAST_LOOK).await;
        failures = if cache.failure().is_some() {
            failures + 1
        } else {
            0
        };
        let is_stale = failures >= LASTING;
        if stale.swap(is_stale, Ordering::Relaxed) != is_stale {
            tell();
        }
    }
}
