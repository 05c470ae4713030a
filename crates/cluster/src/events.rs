//! Kubernetes events (`events.k8s.io/v1`): news for people, which never hold up or fail what they are about.
//!
//! Whoever has news puts it into a bounded queue and goes on; one task sends it. What does not fit, is too
//! frequent, or is refused, is dropped and counted. The same news within [`SERIES`] is no new event but a
//! count in the series of the first one.

mod limits;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::core::{ApiResource, ObjectMeta};
use kube::{Resource, ResourceExt};
use prometheus::{IntCounterVec, Opts, Registry};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use self::limits::{Admission, Limits};
use crate::clock;
use crate::error::ApiError;
use crate::kind_of::KindOf;
use crate::writer::Writer;

pub use self::limits::SERIES;

/// News that may wait to be sent.
const CAPACITY: usize = 1024;
/// Limit for one request: later news wait for it.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// Longest note that the API accepts, in bytes.
const NOTE_LIMIT: usize = 1024;
/// Longest reason, action and instance that the API accepts.
const WORD_LIMIT: usize = 128;
/// What is left of an object's name in an event's, so that its suffix fits.
const NAME_LIMIT: usize = 200;
/// Namespace of events about cluster-scoped objects, as the API server demands.
const CLUSTER_SCOPED: &str = "default";

/// Whether somebody may have to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// All is well.
    Normal,
    /// Something is wrong.
    Warning,
}

impl Severity {
    /// The string in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// One piece of news.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// The object that it is about; see [`reference_to`].
    pub regarding: ObjectReference,
    /// Another object that has to do with it.
    pub related: Option<ObjectReference>,
    /// Whether somebody may have to act.
    pub severity: Severity,
    /// Why, one CamelCase word.
    pub reason: String,
    /// What was done, or failed, one CamelCase word.
    pub action: &'static str,
    /// What happened, for people.
    pub note: String,
    /// Tells news of the same reason apart that are no repetition, such as the index of a snapshot.
    pub about: String,
}

/// A reference to an object.
#[must_use]
pub fn reference_to<K: Resource<DynamicType: KindOf<K>>>(object: &K) -> ObjectReference {
    let kind = K::DynamicType::of(object);
    ObjectReference {
        api_version: Some(K::api_version(&kind).into_owned()),
        kind: Some(K::kind(&kind).into_owned()),
        name: Some(object.name_any()),
        namespace: object.namespace(),
        uid: object.uid(),
        resource_version: None,
        field_path: None,
    }
}

/// Takes news. Clones share the queue.
#[derive(Clone)]
pub struct Events {
    queue: Option<mpsc::Sender<NewEvent>>,
    counts: Arc<Counts>,
}

struct Counts {
    sent: IntCounterVec,
    dropped: IntCounterVec,
}

impl Counts {
    fn new() -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str, label: &str, values: &[&str]| {
            let counter = IntCounterVec::new(Opts::new(name, help), &[label])?;
            for value in values {
                counter.with_label_values(&[value]);
            }
            Ok::<_, prometheus::Error>(counter)
        };
        Ok(Self {
            sent: counter(
                "windlass_events_sent_total",
                "Kubernetes events sent.",
                "type",
                &["Normal", "Warning"],
            )?,
            dropped: counter(
                "windlass_events_dropped_total",
                "Kubernetes events that were not sent: the queue was full, they were too frequent, or the API server refused them.",
                "why",
                &["full", "rate", "error"],
            )?,
        })
    }
}

impl Events {
    /// Starts the sender, which appears as `controller` (a domain-prefixed word) and `instance`. It ends
    /// when the last clone is dropped, or is aborted.
    ///
    /// # Errors
    /// When metrics of the same names are registered already.
    pub fn start(
        writer: Writer,
        controller: &'static str,
        instance: &str,
        registry: &Registry,
    ) -> Result<(Self, JoinHandle<()>), prometheus::Error> {
        let counts = Arc::new(Counts::new()?);
        registry.register(Box::new(counts.sent.clone()))?;
        registry.register(Box::new(counts.dropped.clone()))?;
        let (queue, news) = mpsc::channel(CAPACITY);
        let sender = Sender {
            writer: writer.with_timeout(REQUEST_LIMIT),
            controller,
            instance: cut(instance, WORD_LIMIT).to_owned(),
            counts: Arc::clone(&counts),
            limits: Limits::default(),
        };
        let events = Self {
            queue: Some(queue),
            counts,
        };
        Ok((events, clock::spawn("events", sender.run(news))))
    }

    /// One that tells nobody, for tests and tools.
    ///
    /// # Errors
    /// Never in practice: its counters have fixed names.
    pub fn silent() -> Result<Self, prometheus::Error> {
        Ok(Self {
            queue: None,
            counts: Arc::new(Counts::new()?),
        })
    }

    /// Waits until what was passed on has been taken up, for `limit` at most: before the process ends.
    pub async fn drain(&self, limit: Duration) {
        let Some(queue) = &self.queue else { return };
        // All places are free when nothing waits. What is late is lost, as with any news.
        drop(tokio::time::timeout(limit, queue.reserve_many(CAPACITY)).await);
    }

    /// Passes news on. Never waits and never fails; news that do not fit are counted.
    pub fn send(&self, event: NewEvent) {
        let Some(queue) = &self.queue else { return };
        if queue.try_send(event).is_err() {
            self.counts.dropped.with_label_values(&["full"]).inc();
        }
    }
}

struct Sender {
    writer: Writer,
    controller: &'static str,
    instance: String,
    counts: Arc<Counts>,
    limits: Limits,
}

impl Sender {
    async fn run(mut self, mut news: mpsc::Receiver<NewEvent>) {
        while let Some(event) = news.recv().await {
            let key = limits::Key::of(&event);
            let result = match self.limits.admit(&key, clock::monotonic()) {
                Admission::First => self.first(&key, &event).await,
                Admission::Repeat { name, count } => self.repeat(&event, &name, count).await,
                Admission::Counted => continue,
                Admission::Refused => {
                    self.counts.dropped.with_label_values(&["rate"]).inc();
                    continue;
                }
            };
            match result {
                Ok(()) => self
                    .counts
                    .sent
                    .with_label_values(&[event.severity.as_str()])
                    .inc(),
                Err(error) => {
                    tracing::debug!(%error, reason = event.reason, "an event could not be sent");
                    self.limits.forget(&key);
                    self.counts.dropped.with_label_values(&["error"]).inc();
                }
            }
        }
    }

    async fn first(&mut self, key: &limits::Key, event: &NewEvent) -> Result<(), ApiError> {
        let built = build(event, self.controller, &self.instance, clock::precise_now());
        let name = built.name_any();
        self.writer.create(&built).await?;
        self.limits.sent(key, name, clock::monotonic());
        Ok(())
    }

    async fn repeat(&self, event: &NewEvent, name: &str, count: i32) -> Result<(), ApiError> {
        let series = EventSeries {
            count,
            last_observed_time: MicroTime(clock::precise_now()),
        };
        let patch = serde_json::from_value(json!([
            { "op": "add", "path": "/series", "value": series }
        ]))
        .map_err(|error| ApiError::Rejected(error.to_string()))?;
        let kind = ApiResource::erase::<Event>(&());
        self.writer
            .json_patch_dyn(&kind, Some(namespace(event)), name, &patch)
            .await?;
        Ok(())
    }
}

fn namespace(event: &NewEvent) -> &str {
    event
        .regarding
        .namespace
        .as_deref()
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or(CLUSTER_SCOPED)
}

fn build(event: &NewEvent, controller: &str, instance: &str, now: Timestamp) -> Event {
    let about = event.regarding.name.as_deref().unwrap_or("unknown");
    let prefix = cut(about, NAME_LIMIT).trim_end_matches(['-', '.']);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{prefix}.{:x}", now.as_nanosecond())),
            namespace: Some(namespace(event).to_owned()),
            ..ObjectMeta::default()
        },
        action: Some(cut(event.action, WORD_LIMIT).to_owned()),
        reason: Some(cut(&event.reason, WORD_LIMIT).to_owned()),
        note: Some(shortened(&event.note)),
        type_: Some(event.severity.as_str().to_owned()),
        regarding: Some(event.regarding.clone()),
        related: event.related.clone(),
        reporting_controller: Some(controller.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        event_time: Some(MicroTime(now)),
        ..Event::default()
    }
}

fn shortened(note: &str) -> String {
    if note.len() <= NOTE_LIMIT {
        return note.to_owned();
    }
    format!("{}…", cut(note, NOTE_LIMIT - '…'.len_utf8()))
}

fn cut(text: &str, length: usize) -> &str {
    let mut end = length.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, note: &str) -> NewEvent {
        NewEvent {
            regarding: ObjectReference {
                kind: Some("Thing".into()),
                name: Some(name.into()),
                uid: Some("u".into()),
                ..ObjectReference::default()
            },
            related: None,
            severity: Severity::Warning,
            reason: "Broken".into(),
            action: "Break",
            note: note.into(),
            about: String::new(),
        }
    }

    #[test]
    fn an_event_keeps_to_the_limits_of_the_api() {
        let now: Timestamp = "2026-01-01T00:00:00.123456Z".parse().unwrap();
        for (name, note) in [
            ("web".to_owned(), "short".to_owned()),
            ("w".repeat(253), "ü".repeat(2000)),
            (
                format!("{}.{}", "w".repeat(199), "w".repeat(20)),
                String::new(),
            ),
        ] {
            let built = build(&event(&name, &note), "windlass.dev/hub", "hub-0", now);
            let own = built.metadata.name.unwrap();
            assert!(own.len() <= 253 && !own.contains(".."), "{own}");
            let said = built.note.unwrap();
            assert!(said.len() <= NOTE_LIMIT, "{} bytes", said.len());
            assert_eq!(said == note, note.len() <= NOTE_LIMIT);
            assert_eq!(built.metadata.namespace.as_deref(), Some("default"));
            assert_eq!(built.event_time, Some(MicroTime(now)));
            assert_eq!(built.type_.as_deref(), Some("Warning"));
        }
        let mut inside = event("web", "");
        inside.regarding.namespace = Some("shop".into());
        assert_eq!(namespace(&inside), "shop");
    }

    #[tokio::test]
    async fn news_that_do_not_fit_are_counted_and_nobody_waits() {
        let (queue, _news) = mpsc::channel(1);
        let events = Events {
            queue: Some(queue),
            counts: Arc::new(Counts::new().unwrap()),
        };
        for _ in 0..3 {
            events.send(event("web", ""));
        }
        assert_eq!(events.counts.dropped.with_label_values(&["full"]).get(), 2);
    }
}
