//! Failpoints: in debug builds, the process dies, or an answer gets lost, at a chosen write.
//!
//! `WINDLASS_FAILPOINT=MODE:N` chooses the N-th write that the process sends, counted from 1 over hub and
//! members; what is written by the clock rather than by what changes (leases, and the statuses of member
//! clusters) does not count. A test that walks N from 1 upwards has died at every write there is.
//! `MODE:N/M` chooses each M-th write after it, too.
//!
//! | mode | what happens at that write |
//! |---|---|
//! | `before` | the process dies before the request is sent |
//! | `after` | the request is sent and answered, then the process dies, unless it was refused |
//! | `lost` | the request is sent and answered, and the answer is lost; the process lives on |

use std::future::Future;

use crate::exchange::Failure;

/// Sends a write, unless a failpoint has other plans for it.
#[cfg(not(debug_assertions))]
pub(crate) async fn pass<T>(
    _path: &str,
    write: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    write.await
}

#[cfg(debug_assertions)]
pub(crate) use debug::pass;

#[cfg(debug_assertions)]
mod debug {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::{Failure, Future};
    use crate::error::ApiError;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Mode {
        Before,
        After,
        Lost,
    }

    /// What the process was started with.
    static CHOSEN: LazyLock<Option<(Mode, Choice)>> =
        LazyLock::new(|| parse(&std::env::var("WINDLASS_FAILPOINT").ok()?));
    /// Writes that count, so far.
    static WRITES: AtomicU64 = AtomicU64::new(0);

    /// Which writes: the first one, and how many further on the next one is, if there is any.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Choice {
        first: u64,
        step: Option<u64>,
    }

    impl Choice {
        fn has(self, number: u64) -> bool {
            match (number.checked_sub(self.first), self.step) {
                (None, _) => false,
                (Some(after), Some(step)) => after.checked_rem(step) == Some(0),
                (Some(after), None) => after == 0,
            }
        }
    }

    fn parse(text: &str) -> Option<(Mode, Choice)> {
        let (mode, numbers) = text.split_once(':')?;
        let mode = match mode {
            "before" => Mode::Before,
            "after" => Mode::After,
            "lost" => Mode::Lost,
            _ => return None,
        };
        let choice = match numbers.split_once('/') {
            None => Choice {
                first: numbers.parse().ok()?,
                step: None,
            },
            Some((first, step)) => Choice {
                first: first.parse().ok()?,
                step: Some(step.parse().ok()?),
            },
        };
        Some((mode, choice))
    }

    fn counts(path: &str) -> bool {
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        let heartbeat = path.contains("/memberclusters/") && path.ends_with("/status");
        !heartbeat && !path.contains("/leases") && !path.contains("/events")
    }

    pub(crate) async fn pass<T>(
        path: &str,
        write: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let Some((mode, choice)) = *CHOSEN else {
            return write.await;
        };
        if !counts(path) {
            return write.await;
        }
        let number = WRITES.fetch_add(1, Ordering::SeqCst) + 1;
        if !choice.has(number) {
            return write.await;
        }
        tracing::warn!(?mode, number, path, "failpoint");
        if mode == Mode::Before {
            std::process::abort();
        }
        let answer = write.await;
        // What was refused has changed nothing: to die then is to die before the next one.
        if mode == Mode::After && answer.is_ok() {
            std::process::abort();
        }
        // Refused is refused; what was done seems not to have been answered.
        answer.and_then(|_| {
            Err(Failure::Lost(ApiError::transient(
                "failpoint: the answer is lost",
            )))
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_is_read_and_what_counts() {
            for (text, expected, chosen) in [
                ("before:1", Mode::Before, vec![1]),
                ("after:20", Mode::After, vec![20]),
                ("lost:2/8", Mode::Lost, vec![2, 10, 18]),
                ("lost:0/0", Mode::Lost, vec![]),
            ] {
                let (mode, choice) = parse(text).unwrap();
                let numbers: Vec<u64> = (1..=20).filter(|number| choice.has(*number)).collect();
                assert_eq!((mode, numbers), (expected, chosen), "{text}");
            }
            for text in ["", "before", "before:", "never:1", "after:x", "after:1/"] {
                assert_eq!(parse(text), None, "{text}");
            }
            for (path, expected) in [
                (
                    "/apis/g/v1/clusterresourcebindings/a/status?fieldManager=x",
                    true,
                ),
                ("/apis/g/v1/memberclusters/a?x", true),
                ("/apis/g/v1/memberclusters/a/status?fieldManager=x", false),
                ("/apis/coordination.k8s.io/v1/namespaces/n/leases/l", false),
                ("/apis/events.k8s.io/v1/namespaces/default/events", false),
            ] {
                assert_eq!(counts(path), expected, "{path}");
            }
        }
    }
}
