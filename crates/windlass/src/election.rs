//! Flags of the leader election, called as KubeFleet calls them. The times are shorter than there: a leader
//! that is gone is replaced in seconds (design §5.5).

use std::time::Duration;

use windlass_api::names::HUB_NAMESPACE;
use windlass_hub::Timing;

use crate::cli::{self, Failure};

#[derive(clap::Args)]
pub struct Election {
    /// Of several hubs one acts at a time, the others stand by; false for a hub that is alone for sure.
    #[arg(long, env = "WINDLASS_LEADER_ELECT", default_value = "true", action = clap::ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = cli::yes)]
    leader_elect: bool,
    /// A leader that is silent for so long is replaced: a whole number of seconds.
    #[arg(long, env = "WINDLASS_LEADER_LEASE_DURATION", default_value = "10s", value_parser = cli::seconds)]
    leader_lease_duration: Duration,
    /// A leader that could not renew its lease for so long ends itself; at most 0.9 of the lease duration.
    #[arg(long, env = "WINDLASS_LEADER_RENEW_DEADLINE", default_value = "7s", value_parser = cli::seconds)]
    leader_renew_deadline: Duration,
    /// Time between renewals, and between attempts of those who stand by.
    #[arg(long, env = "WINDLASS_LEADER_RETRY_PERIOD", default_value = "2s", value_parser = cli::seconds)]
    leader_retry_period: Duration,
    /// Namespace of the lease windlass-hub. The hub needs rights on Leases there.
    #[arg(long, env = "WINDLASS_LEADER_ELECTION_NAMESPACE", default_value = HUB_NAMESPACE)]
    leader_election_namespace: String,
}

impl Election {
    /// Where the lease is.
    pub fn namespace(&self) -> String {
        self.leader_election_namespace.clone()
    }

    /// The times, none without election. Those that don't go together are refused.
    pub fn timing(&self) -> Result<Option<Timing>, Failure> {
        if !self.leader_elect {
            return Ok(None);
        }
        let timing = Timing::new(
            self.leader_lease_duration,
            self.leader_renew_deadline,
            self.leader_retry_period,
        );
        Ok(Some(
            timing.map_err(|error| format!("leader election: {error}"))?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        election: Election,
    }

    fn timing(flags: &[&str]) -> Result<Option<Timing>, String> {
        let flags = ["windlass"].iter().chain(flags);
        let cli = Cli::try_parse_from(flags).map_err(|error| error.to_string())?;
        cli.election.timing().map_err(|error| error.to_string())
    }

    #[test]
    fn there_is_an_election_unless_it_is_turned_off() {
        let default = Ok(Some(Timing::default()));
        assert_eq!(timing(&[]), default);
        assert_eq!(timing(&["--leader-elect"]), default);
        assert_eq!(timing(&["--leader-elect=true"]), default);
        assert_eq!(timing(&["--leader-elect=false"]), Ok(None));
        let lease = timing(&["--leader-lease-duration=60s"]).unwrap().unwrap();
        assert_eq!(lease.lease(), Duration::from_secs(60));
        let refused = timing(&["--leader-lease-duration=5s"]).unwrap_err();
        assert!(refused.contains("nine tenths"), "{refused}");
    }
}
