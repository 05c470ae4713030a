//! Leader election by a Lease: one process at a time may write (design §5.12).
//!
//! | module | what it is for |
//! |---|---|
//! | [`step`] | what to do next; pure |
//! | [`gate`] | what lets writes through while the lease is ours |
//! | here | reads and writes the lease as [`step`] says |
//!
//! Who has lost the lease ends its process: starting anew is the one way back that is always right.

pub mod gate;
pub mod step;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use self::gate::Gate;
use self::step::{Contender, Failed, LeaseState, Step, Timing, step};
use crate::cache::{Cache, CacheOptions, Change};
use crate::clock::{self, Instant};
use crate::error::ApiError;
use crate::writer::Writer;

/// How a contender stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// Somebody else leads, or nobody does.
    Following {
        /// Who, as far as is known.
        holder: Option<String>,
    },
    /// We lead.
    Leading {
        /// Until then at least, by the local monotonic clock; later when the lease is renewed.
        until: Instant,
    },
    /// We have led, and lead no more; why.
    Lost(String),
}

/// An election that this process takes part in. Dropping it does not end it; [`Self::release`] does.
pub struct Election {
    gate: Gate,
    leadership: watch::Receiver<Leadership>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Election {
    /// Takes part once `ready` is done. The client should be one of its own, so that a renewal never waits
    /// behind other requests.
    #[must_use]
    pub fn start(
        client: Client,
        field_manager: &'static str,
        contender: Contender,
        ready: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let gate = Gate::closed(contender.timing);
        let (publish, leadership) = watch::channel(Leadership::Following { holder: None });
        let (stop, stopped) = watch::channel(false);
        let limit = attempt_limit(&contender.timing);
        let elector = Elector {
            writer: Writer::new(client, field_manager).with_timeout(limit),
            state: LeaseState::new(contender.clone()),
            contender,
            gate: gate.clone(),
            publish,
            stopped: stopped.clone(),
            limit,
        };
        let mut before = stopped;
        let task = clock::spawn("election", async move {
            let takes_part = tokio::select! {
                () = ready => true,
                Ok(_) = before.wait_for(|stop| *stop) => false,
            };
            if takes_part {
                elector.contend().await;
            }
        });
        Self {
            gate,
            leadership,
            stop,
            task,
        }
    }

    /// The gate for this process' writes.
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// How we stand, now and whenever that changes.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Ends it, and gives the lease back when it is ours, so that another can take it at once. To be called
    /// when nothing is written any more. Tells whether that was done within `limit`; otherwise the lease
    /// runs out by itself.
    pub async fn release(self, limit: Duration) -> bool {
        self.gate.close();
        self.stop.send_replace(true);
        tokio::time::timeout(limit, self.task).await.is_ok()
    }
}

/// A name that no other process has, nor this one after a restart: the host's, and a random number.
#[must_use]
pub fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => "windlass",
        host => host,
    };
    format!("{host}_{:016x}", clock::random())
}

/// Limit for one attempt: of three, one may hang and another fail before the renew deadline.
fn attempt_limit(timing: &Timing) -> Duration {
    timing.renew_deadline() / 3
}

struct Elector {
    writer: Writer,
    state: LeaseState,
    contender: Contender,
    gate: Gate,
    publish: watch::Sender<Leadership>,
    stopped: watch::Receiver<bool>,
    limit: Duration,
}

impl Elector {
    async fn contend(mut self) {
        let news = Arc::new(Notify::new());
        let hints = self.hints(&news);
        while !*self.stopped.borrow() {
            match step(&self.state, clock::monotonic(), clock::precise_now()) {
                Step::Wait(until) => self.wait(until, &news).await,
                Step::Look => self.look().await,
                Step::Write(lease) => self.write(&lease).await,
                Step::StepDown(loss) => {
                    self.gate.close();
                    self.publish
                        .send_replace(Leadership::Lost(loss.to_string()));
                    // What is lost can't be given back.
                    hints.stop();
                    return;
                }
            }
        }
        hints.stop();
        if *self.stopped.borrow() {
            self.give_back().await;
        }
    }

    /// A watch that tells when there is reason to look before the retry period is over: so a lease that is
    /// given back is taken at once. Nothing but the time depends on it.
    fn hints(&self, news: &Arc<Notify>) -> Cache<Lease> {
        let (news, own) = (Arc::clone(news), self.contender.identity.clone());
        let options = CacheOptions {
            on_change: Arc::new(move |change: &Change<Lease>| {
                let spec = change.new.as_ref().and_then(|lease| lease.spec.as_ref());
                let holder = spec.and_then(|spec| spec.holder_identity.as_ref());
                if holder != Some(&own) {
                    news.notify_one();
                }
            }),
            ..Default::default()
        };
        let field = format!("metadata.name={}", self.contender.name);
        let api = Api::namespaced(self.writer.client().clone(), &self.contender.namespace);
        let config = watcher::Config::default().fields(&field);
        Cache::start("lease", api, config, options)
    }

    async fn wait(&mut self, until: Instant, news: &Notify) {
        let follows = self.state.leads_until().is_none();
        tokio::select! {
            () = clock::sleep_until(until) => {}
            () = news.notified(), if follows => self.state.news(),
            // An error means that the election was dropped, not ended.
            Ok(_) = self.stopped.wait_for(|stop| *stop) => {}
        }
    }

    /// Limit for an attempt that begins now. A leader's ends at its deadline, to step down then.
    fn limit(&self) -> Duration {
        match self.state.leads_until() {
            Some(until) => self
                .limit
                .min(until.saturating_duration_since(clock::monotonic())),
            None => self.limit,
        }
    }

    async fn look(&mut self) {
        let began = clock::monotonic();
        let (namespace, name) = (&self.contender.namespace, &self.contender.name);
        let answer = limited(
            self.limit(),
            self.writer.get::<Lease>(Some(namespace), name),
        )
        .await;
        match answer {
            Ok(lease) => {
                self.state.looked(lease, clock::monotonic());
                self.tell();
            }
            Err(error) => self.failed("read", &error, began),
        }
    }

    async fn write(&mut self, lease: &Lease) {
        let sent = clock::monotonic();
        match limited(self.limit(), self.send(lease)).await {
            Ok(lease) => {
                self.state.wrote(lease, sent);
                self.gate.renewed(sent);
                self.tell();
            }
            Err(error) => self.failed("written", &error, sent),
        }
    }

    async fn send(&self, lease: &Lease) -> Result<Lease, ApiError> {
        if lease.metadata.resource_version.is_some() {
            return self.writer.replace(lease).await;
        }
        match self.writer.create(lease).await {
            // What is missing is the namespace.
            Err(ApiError::NotFound(_)) => {}
            other => return other,
        }
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(self.contender.namespace.clone());
        match self.writer.create(&namespace).await {
            Ok(_) | Err(ApiError::AlreadyExists(_)) => self.writer.create(lease).await,
            Err(error) => Err(error),
        }
    }

    fn failed(&mut self, what: &str, error: &ApiError, began: Instant) {
        let failed = match error {
            ApiError::Conflict(_) | ApiError::AlreadyExists(_) | ApiError::NotFound(_) => {
                Failed::Raced
            }
            ApiError::Rejected(_) | ApiError::Unauthorized(_) | ApiError::Transient { .. } => {
                let (namespace, name) = (&self.contender.namespace, &self.contender.name);
                tracing::warn!(%error, "lease {namespace}/{name} could not be {what}; it is tried again");
                Failed::Outage
            }
        };
        self.state.failed(failed, began);
    }

    /// Publishes how we stand, when that has changed.
    fn tell(&self) {
        let now = match self.state.leads_until() {
            Some(until) => Leadership::Leading { until },
            None => Leadership::Following {
                holder: self.state.holder().map(str::to_owned),
            },
        };
        let before = self.publish.send_replace(now.clone());
        match (&before, &now) {
            (Leadership::Leading { .. }, Leadership::Leading { .. }) => {}
            (_, Leadership::Leading { .. }) => {
                tracing::info!(identity = self.contender.identity, "this process leads");
            }
            (_, Leadership::Following { holder }) if before != now => {
                tracing::info!(holder, "this process stands by");
            }
            _ => {}
        }
    }

    /// Gives the lease back. One of ours that was renewed by a write whose answer was lost shows as a
    /// conflict; then it is read once more.
    async fn give_back(&mut self) {
        for _ in 0..2 {
            let Some(lease) = self.state.released(clock::precise_now()) else {
                return;
            };
            match limited(self.limit(), self.writer.replace(&lease)).await {
                Ok(_) => {
                    tracing::info!("the lease is given back");
                    return;
                }
                Err(ApiError::Conflict(_)) => self.look().await,
                Err(error) => {
                    tracing::warn!(%error, "the lease is not given back; it runs out by itself");
                    return;
                }
            }
        }
    }
}

async fn limited<T>(
    limit: Duration,
    attempt: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    tokio::time::timeout(limit, attempt)
        .await
        .unwrap_or_else(|_| Err(ApiError::transient(format!("no answer within {limit:?}"))))
}
