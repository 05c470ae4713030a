//! Which of the hub's processes acts: by a Lease, or, without election, this one.

use std::future::Future;
use std::time::Duration;

use kube::Client;
use prometheus::{IntGauge, Registry};
use tokio::sync::watch;
use windlass_cluster::lease::step::{Contender, Timing};
use windlass_cluster::lease::{Election, Leadership, identity};
use windlass_cluster::{Gate, clock};

use crate::run::FIELD_MANAGER;

/// Name of the hub's lease.
const LEASE: &str = "windlass-hub";
/// How long writes that are under way may take once the process is to end.
const DRAIN: Duration = Duration::from_secs(1);
/// How long giving the lease back may take.
const RELEASE: Duration = Duration::from_millis(700);

/// See the module.
pub struct Lead {
    election: Option<Election>,
    leadership: watch::Receiver<Leadership>,
    /// Keeps the channel open when there is no election.
    _own: Option<watch::Sender<Leadership>>,
}

impl Lead {
    /// Takes part in the election for the lease in `namespace` once `ready` is done; without times there is
    /// none, and this process leads.
    /// Shows as the metric `windlass_leader`.
    ///
    /// # Errors
    /// When a metric of that name is registered already.
    pub fn start(
        client: Client,
        namespace: &str,
        timing: Option<Timing>,
        registry: &Registry,
        ready: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Self, prometheus::Error> {
        let gauge = IntGauge::new(
            "windlass_leader",
            "Whether this process leads: 1, or stands by: 0.",
        )?;
        registry.register(Box::new(gauge.clone()))?;
        let lead = match timing {
            Some(timing) => {
                let contender = Contender {
                    namespace: namespace.to_owned(),
                    name: LEASE.to_owned(),
                    identity: identity(),
                    timing,
                };
                let election = Election::start(client, FIELD_MANAGER, contender, ready);
                Self {
                    leadership: election.leadership(),
                    election: Some(election),
                    _own: None,
                }
            }
            None => {
                let until = clock::monotonic();
                let (own, leadership) = watch::channel(Leadership::Leading { until });
                Self {
                    election: None,
                    leadership,
                    _own: Some(own),
                }
            }
        };
        clock::spawn("leader metric", show(lead.leadership.clone(), gauge));
        Ok(lead)
    }

    /// The gate for this process' writes.
    #[must_use]
    pub fn gate(&self) -> Gate {
        self.election
            .as_ref()
            .map(Election::gate)
            .unwrap_or_default()
    }

    /// Waits until this process leads.
    pub fn leads(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut leadership = self.leadership.clone();
        async move {
            let leads = leadership.wait_for(|state| matches!(state, Leadership::Leading { .. }));
            let over = leads.await.is_err();
            if over {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until this process, having led, leads no more; tells why.
    pub fn lost(&self) -> impl Future<Output = String> + Send + use<> {
        let mut leadership = self.leadership.clone();
        async move {
            let lost = leadership.wait_for(|state| matches!(state, Leadership::Lost(_)));
            match lost.await.as_deref() {
                Ok(Leadership::Lost(why)) => why.clone(),
                _ => "the election has ended".to_owned(),
            }
        }
    }

    /// Lets no more writes begin, and those under way end.
    pub async fn drain(&self) {
        self.gate().close();
        if !self.gate().drained(DRAIN).await {
            tracing::warn!("some writes have not been answered; they are cut");
        }
    }

    /// Gives the lease back, if it is ours. When nobody writes any more.
    pub async fn release(self) {
        if let Some(election) = self.election
            && !election.release(RELEASE).await
        {
            tracing::warn!("the lease could not be given back; it runs out by itself");
        }
    }
}

async fn show(mut leadership: watch::Receiver<Leadership>, gauge: IntGauge) {
    loop {
        let leads = matches!(*leadership.borrow_and_update(), Leadership::Leading { .. });
        gauge.set(i64::from(leads));
        if leadership.changed().await.is_err() {
            gauge.set(0);
            return;
        }
    }
}
