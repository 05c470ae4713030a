//! A hub that dies again and again, at writes that a failpoint chooses (`crates/cluster/src/failpoint.rs`).

use std::time::{Duration, Instant};

use crate::{Fleet, HubProcess, eventually, within};

/// One process is all there is, so nobody needs to wait for the lease of one that died.
pub const ALONE: [&str; 1] = ["--leader-elect=false"];
/// How long a hub that dies on the way may take for something: it is started dozens of times.
const LIMIT: Duration = Duration::from_secs(600);

/// When a hub dies.
#[derive(Clone, Copy, Debug)]
pub struct Deaths {
    /// `after`, `before`, or `lost`: see the module.
    pub mode: &'static str,
    /// The write at which the first process dies.
    pub first: usize,
    /// The write at which each later one dies. To die at first + K × next for each first from 1 to `next` is
    /// to die at every write.
    pub next: usize,
}

/// A hub that dies as it is told to, and is started again each time.
pub struct Mortal<'a> {
    fleet: &'a Fleet,
    deaths: Deaths,
    hub: HubProcess,
    before: usize,
    flags: Vec<String>,
}

/// Starts a hub that is the only one.
#[must_use]
pub fn alone(fleet: &Fleet, failpoint: Option<&str>) -> HubProcess {
    alone_with(fleet, failpoint, &[])
}

fn alone_with(fleet: &Fleet, failpoint: Option<&str>, flags: &[String]) -> HubProcess {
    let variables: Vec<_> = failpoint
        .map(|value| ("WINDLASS_FAILPOINT", value))
        .into_iter()
        .collect();
    let mut hub = {
        let all: Vec<&str> = ALONE
            .into_iter()
            .chain(flags.iter().map(String::as_str))
            .collect();
        fleet.spawn_hub_with(&fleet.hub_kubeconfig(), &all, &variables)
    };
    eventually("the hub is ready, or has died", || {
        hub.is_ready() || hub.ended().is_some()
    });
    hub
}

fn count(fleet: &Fleet) -> usize {
    fleet.log().matches("failpoint mode").count()
}

impl<'a> Mortal<'a> {
    /// Starts the first process.
    #[must_use]
    pub fn start(fleet: &'a Fleet, deaths: Deaths) -> Self {
        Self::start_with(fleet, deaths, &[])
    }

    /// As [`Self::start`], with further flags for each process.
    #[must_use]
    pub fn start_with(fleet: &'a Fleet, deaths: Deaths, flags: &[&str]) -> Self {
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let before = count(fleet);
        let failpoint = format!("{}:{}/{}", deaths.mode, deaths.first, deaths.next);
        Self {
            fleet,
            deaths,
            hub: alone_with(fleet, Some(&failpoint), &flags),
            before,
            flags,
        }
    }

    /// Waits until something holds, whatever the hub dies of on the way.
    ///
    /// # Panics
    /// When it does not come to hold.
    pub fn survive(&mut self, what: &str, mut holds: impl FnMut() -> bool) {
        let begin = Instant::now();
        within(LIMIT, &format!("{:?}: {what}", self.deaths), || {
            self.raise();
            holds()
        });
        println!("{:?}: {what}: {:?}", self.deaths, begin.elapsed());
    }

    /// Starts it again if it has died.
    pub fn raise(&mut self) {
        if self.hub.ended().is_some() {
            let Deaths { mode, next, .. } = self.deaths;
            let failpoint = format!("{mode}:{next}/{next}");
            self.hub = alone_with(self.fleet, Some(&failpoint), &self.flags);
        }
    }

    /// How often it has died so far, or lost an answer.
    #[must_use]
    pub fn count(&self) -> usize {
        count(self.fleet) - self.before
    }
}
