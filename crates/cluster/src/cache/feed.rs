//! Feeds a cache from its watch, for as long as it lives.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::store::Listed;
use super::{Cache, ObjectKey};
use crate::clock::{self, Instant};
use crate::error::ApiError;

/// Pause before a watch is begun anew.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the watch may take to show an object that a list does not have, and that we wrote meanwhile.
const DOUBT: Duration = Duration::from_secs(10);

/// Objects that a list left in doubt, and until when the watch may show them.
struct Doubt {
    keys: Vec<ObjectKey>,
    until: Instant,
}

/// Watches for ever.
pub(super) async fn run<K>(cache: Cache<K>, api: Api<K>, config: watcher::Config)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    // Both others may answer from a cache of the server's that is behind, and then a list would undo
    // what we have seen.
    let config = watcher::Config {
        list_semantic: watcher::ListSemantic::MostRecent,
        initial_list_strategy: watcher::InitialListStrategy::ListWatch,
        ..config
    };
    loop {
        follow(&cache, &api, &config).await;
        clock::sleep(clock::jitter(PAUSE, 0.5)).await;
    }
}

/// Lists, then watches; returns when only another list can help.
async fn follow<K>(cache: &Cache<K>, api: &Api<K>, config: &watcher::Config)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let events = watcher(api.clone(), config.clone()).default_backoff();
    pin_mut!(events);
    let mut listed: Vec<Listed<K>> = Vec::new();
    let mut doubt: Option<Doubt> = None;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = expired(doubt.as_ref()) => {
                if doubt.take().is_some_and(|doubt| cache.any_pending(&doubt.keys)) {
                    return;
                }
                continue;
            }
        };
        match event {
            None => return,
            Some(Ok(watcher::Event::Init)) => {
                listed.clear();
                cache.begin_list();
            }
            Some(Ok(watcher::Event::InitApply(object))) => listed.push(row(cache, object)),
            Some(Ok(watcher::Event::InitDone)) => {
                let keys = cache.finish_list(std::mem::take(&mut listed));
                doubt = (!keys.is_empty()).then(|| Doubt {
                    keys,
                    until: clock::monotonic() + DOUBT,
                });
            }
            Some(Ok(watcher::Event::Apply(object))) => cache.watched(object),
            Some(Ok(watcher::Event::Delete(object))) => cache.watched_deletion(&object),
            Some(Err(error)) => {
                let anew = is_expired(&error);
                cache.failed(classify(error));
                if anew {
                    return;
                }
            }
        }
    }
}

/// A row of a list. One that is in the cache already is let go at once, so that listing a large kind
/// again does not hold it twice.
fn row<K>(cache: &Cache<K>, object: K) -> Listed<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let key = ObjectKey::of(&object);
    if cache.has(&key, &object) {
        return (key, None);
    }
    (key, Some(Arc::new(cache.trimmed(object))))
}

async fn expired(doubt: Option<&Doubt>) {
    match doubt {
        Some(doubt) => clock::sleep_until(doubt.until).await,
        None => std::future::pending().await,
    }
}

/// Whether the version to watch from is refused as too old. Said within a watch, kube's watcher lists
/// again by itself; said instead of one, it asks for that version for ever.
fn is_expired(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
}

fn classify(error: watcher::Error) -> ApiError {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => ApiError::from_kube(error),
        watcher::Error::WatchError(status) => ApiError::from_status(&status),
        watcher::Error::NoResourceVersion => {
            ApiError::Rejected("the kind can't be watched".to_owned())
        }
    }
}
