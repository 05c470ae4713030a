//! Writes Works and reads them back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use kube::ResourceExt;
use windlass_api::pull::Work;
use windlass_cluster::clock::{self, Instant};
use windlass_cluster::{ApiError, ObjectKey, Writer};

use super::PullCaches;
use super::abandon::abandon;
use super::plan::{Act, Item, Plan, Wish, build, plan};
use super::read::{Reading, Seen, read};
use super::work::{WorkMeta, is_current};

/// How long an agent may take, at least, until its binding says that it is being waited for. One that is
/// quicker than that saves a write.
const ANSWER: Duration = Duration::from_secs(5);
/// And at most: while answers take long because the API server is busy, more writes would not help it.
const LATE_ANSWER: Duration = Duration::from_secs(20);
/// Answers slower than the last ones by this factor are waited for.
const SLOWER: u32 = 3;

/// See the module. Clones share everything.
#[derive(Clone)]
pub struct Pull {
    caches: PullCaches,
    writer: Writer,
    /// When the Works of a binding were last written, until they are reported on.
    written: Arc<DashMap<ObjectKey, Instant>>,
    /// How long answers take at present, in milliseconds.
    usual: Arc<AtomicU64>,
}

/// What goes with a placement's Works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removing {
    /// What the agent made of them.
    Content,
    /// Nothing.
    WorkOnly,
}

/// How a delivery stands.
#[derive(Debug)]
pub enum Delivered {
    /// The binding can say this.
    Told(Reading),
    /// The agent is given a moment more.
    Waits(Duration),
    /// The cluster's namespace is not there yet; one is woken when it is.
    NotPrepared,
}

impl Pull {
    /// Nothing is written yet.
    #[must_use]
    pub fn new(caches: PullCaches, writer: Writer) -> Self {
        Self {
            caches,
            writer,
            written: Arc::default(),
            usual: Arc::default(),
        }
    }

    /// Does what is missing, and tells how that stands. `key`: of the binding.
    ///
    /// # Errors
    /// Of the hub's API server.
    pub async fn deliver(
        &self,
        key: &ObjectKey,
        cluster: &str,
        wish: &Wish,
        report_diff: bool,
    ) -> Result<Delivered, ApiError> {
        if self.caches.agent(cluster).is_none() {
            return Ok(Delivered::NotPrepared);
        }
        let plan = self.plan(cluster, wish);
        if !plan.is_empty() {
            self.execute(wish, &plan).await?;
            self.written.insert(key.clone(), clock::monotonic());
        }
        // As the cache has it now: an agent may have been quicker than the answers to our writes.
        let reading = self.read(wish, &plan, report_diff);
        let waited = self
            .written
            .get(key)
            .map(|since| clock::monotonic().saturating_duration_since(*since));
        if reading.is_complete {
            if let Some(waited) = waited {
                self.note(waited);
            }
            self.written.remove(key);
            return Ok(Delivered::Told(reading));
        }
        let patience = self.patience();
        match waited.filter(|waited| *waited < patience) {
            Some(waited) if reading.failed.is_empty() => {
                Ok(Delivered::Waits(patience.saturating_sub(waited)))
            }
            _ => {
                self.written.remove(key);
                Ok(Delivered::Told(reading))
            }
        }
    }

    /// Takes note of how long an answer took.
    fn note(&self, answer: Duration) {
        let old = self.usual.load(Ordering::Relaxed);
        let new = u64::try_from(answer.as_millis()).unwrap_or(u64::MAX / 8);
        // Two that meet here lose one of many.
        self.usual.store((old * 3 + new) / 4, Ordering::Relaxed);
    }

    /// How long an answer is waited for.
    fn patience(&self) -> Duration {
        let usual = Duration::from_millis(self.usual.load(Ordering::Relaxed));
        (usual * SLOWER).clamp(ANSWER, LATE_ANSWER)
    }

    /// What would be written.
    #[must_use]
    pub fn plan(&self, cluster: &str, wish: &Wish) -> Plan {
        let existing = self.caches.works_of(cluster, &wish.placement);
        plan(wish, &existing, |name| self.find(&wish.namespace, name))
    }

    fn find(&self, namespace: &str, name: &str) -> Option<Arc<WorkMeta>> {
        self.caches
            .works
            .get(&ObjectKey::namespaced(namespace, name))
    }

    /// What is wanted is there before what is not goes.
    async fn execute(&self, wish: &Wish, plan: &Plan) -> Result<(), ApiError> {
        for item in &plan.items {
            match item.act {
                Act::Keep | Act::Wait => {}
                Act::Create => {
                    let live = self.writer.create(&build(wish, item)).await?;
                    self.caches.works.observe(live.into());
                }
                Act::Replace(_) => self.replace(wish, item).await?,
            }
        }
        for work in &plan.delete {
            self.delete(work).await?;
        }
        Ok(())
    }

    async fn replace(&self, wish: &Wish, item: &Item) -> Result<(), ApiError> {
        let sent = build(wish, item);
        let mut live = self.writer.replace(&sent).await?;
        if !is_current(&meta_of(&live), item.digest) {
            // Somebody had changed it to what it is to be: the generation has not grown.
            let generation = live.metadata.generation.unwrap_or_default();
            let note = super::work::written(generation, item.digest);
            live.annotations_mut()
                .insert(windlass_api::labels::WRITTEN.to_owned(), note);
            live = self.writer.replace(&live).await?;
        }
        self.caches.works.observe(live.into());
        Ok(())
    }

    async fn delete(&self, work: &WorkMeta) -> Result<(), ApiError> {
        self.writer.delete(work).await?;
        self.caches.works.observe_deleted(work);
        Ok(())
    }

    /// The Works that hold what is wanted, as the hub left them, and are not being deleted.
    #[must_use]
    pub fn current(&self, cluster: &str, wish: &Wish) -> Vec<Arc<WorkMeta>> {
        let plan = self.plan(cluster, wish);
        let kept = plan
            .items
            .iter()
            .filter(|item| matches!(item.act, Act::Keep));
        kept.filter_map(|item| self.find(&wish.namespace, &item.name))
            .collect()
    }

    fn read(&self, wish: &Wish, plan: &Plan, report_diff: bool) -> Reading {
        let mut live: Vec<(&Item, Option<Arc<WorkMeta>>)> = plan
            .items
            .iter()
            .map(|item| (item, self.find(&wish.namespace, &item.name)))
            .collect();
        live.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        let seen: Vec<Seen<'_>> = live
            .iter()
            .map(|(item, live)| Seen {
                name: &item.name,
                live: live.as_deref(),
                is_current: live.as_deref().is_some_and(|live| {
                    is_current(live, item.digest) && live.metadata.deletion_timestamp.is_none()
                }),
            })
            .collect();
        read(&seen, report_diff)
    }

    /// Deletes the Works of a placement for a cluster. Names of those that the agent has not let go yet.
    ///
    /// # Errors
    /// Of the hub's API server.
    pub async fn remove(
        &self,
        key: &ObjectKey,
        cluster: &str,
        placement: &ObjectKey,
        what: Removing,
    ) -> Result<BTreeSet<String>, ApiError> {
        self.written.remove(key);
        for work in self.caches.works_of(cluster, placement) {
            match what {
                Removing::Content if work.metadata.deletion_timestamp.is_none() => {
                    self.delete(&work).await?;
                }
                Removing::Content => {}
                Removing::WorkOnly => abandon(&self.writer, &self.caches, &work).await?,
            }
        }
        let left = self.caches.works_of(cluster, placement);
        Ok(left.iter().map(|work| work.name_any()).collect())
    }

    /// What is in the members' namespaces.
    #[must_use]
    pub fn caches(&self) -> &PullCaches {
        &self.caches
    }
}

fn meta_of(work: &Work) -> WorkMeta {
    let mut meta = WorkMeta::default();
    meta.metadata = work.metadata.clone();
    meta
}
