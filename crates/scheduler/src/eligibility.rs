//! Whether new placements may go to a cluster (API §8.1, texts of §4.4).

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::view::ClusterView;

/// How old the last heartbeat may be.
pub const HEARTBEAT_TOLERANCE: SignedDuration = SignedDuration::from_mins(5);
/// How long a cluster may have been unhealthy.
pub const UNHEALTHY_TOLERANCE: SignedDuration = SignedDuration::from_mins(5);

/// Why nothing new is placed on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ineligible {
    /// It is being deleted. The only trouble that isn't a passing one.
    Leaving,
    /// Its agent has never reported.
    AgentNotOnline,
    /// Its last heartbeat is too old, or there was none.
    NoRecentHeartbeat,
    /// Its agent does not say that it joined.
    NotJoined,
    /// Its agent does not say how it is.
    HealthNotReported,
    /// It has been unhealthy for too long.
    UnhealthyTooLong,
}

impl Ineligible {
    /// Whether the cluster may come back without anyone changing the fleet.
    #[must_use]
    pub const fn is_passing(self) -> bool {
        !matches!(self, Self::Leaving)
    }
}

impl fmt::Display for Ineligible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leaving => "cluster is leaving the fleet",
            Self::AgentNotOnline => "cluster's member agent has not come online yet",
            Self::NoRecentHeartbeat => "cluster has not sent a heartbeat within the last 5 minutes",
            Self::NotJoined => "cluster has not joined the fleet",
            Self::HealthNotReported => "cluster has not reported its health yet",
            Self::UnhealthyTooLong => "cluster has been unhealthy for more than 5 minutes",
        })
    }
}

/// Tells whether new placements may go to `cluster`, and if so, the last moment at which they may when
/// nothing more is heard of it. The order of the checks is that of the reference (hub §1.7.4).
///
/// # Errors
///
/// The first check that fails.
pub fn check(cluster: &ClusterView<'_>, now: Timestamp) -> Result<Timestamp, Ineligible> {
    let membership = &cluster.membership;
    if cluster.deleting {
        return Err(Ineligible::Leaving);
    }
    if !membership.reported {
        return Err(Ineligible::AgentNotOnline);
    }
    let Some(heartbeat) = membership.last_heartbeat else {
        return Err(Ineligible::NoRecentHeartbeat);
    };
    let heartbeat_until = after(heartbeat, HEARTBEAT_TOLERANCE);
    if now > heartbeat_until {
        return Err(Ineligible::NoRecentHeartbeat);
    }
    if !membership.joined {
        return Err(Ineligible::NotJoined);
    }
    let Some(health) = membership.health else {
        return Err(Ineligible::HealthNotReported);
    };
    if health.healthy {
        return Ok(heartbeat_until);
    }
    let unhealthy_until = after(health.since, UNHEALTHY_TOLERANCE);
    if now > unhealthy_until {
        return Err(Ineligible::UnhealthyTooLong);
    }
    Ok(heartbeat_until.min(unhealthy_until))
}

/// `time + duration`, at the end of time at the latest.
pub(crate) fn after(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}
