//! Waiting for something to hold, by looking again and again.

use std::cell::RefCell;
use std::time::{Duration, Instant};

thread_local! {
    /// What went wrong in the look that this thread is at; none while it waits for nothing.
    static LOOK: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Waits until something holds, for a minute at most.
///
/// # Panics
/// When it does not come to hold.
pub fn eventually(what: &str, holds: impl FnMut() -> bool) {
    within(Duration::from_secs(60), what, holds);
}

/// Waits until something holds. A look in which a question could not be answered does not count.
///
/// # Panics
/// When it does not come to hold in time; then it says what went wrong in the last look.
pub fn within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    loop {
        // A wait may be part of a look of another one.
        let outer = LOOK.replace(Some(Vec::new()));
        let held = holds();
        let wrong = LOOK.replace(outer).unwrap_or_default();
        if held && wrong.is_empty() {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "not within {} s: {what}\n{}",
            limit.as_secs(),
            wrong.join("\n")
        );
        std::thread::park_timeout(Duration::from_millis(100));
    }
}

/// A question can't be answered. Who waits asks again; who does not has nothing to go on with.
pub(crate) fn unanswered(why: &str) {
    let waits = LOOK.with_borrow_mut(|look| {
        if let Some(wrong) = look {
            wrong.push(why.to_owned());
        }
        look.is_some()
    });
    assert!(waits || std::thread::panicking(), "{why}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_without_an_answer_does_not_count() {
        let mut looks = 0;
        eventually("all is answered", || {
            looks += 1;
            // A wait within the look keeps its troubles to itself.
            eventually("something else", || true);
            if looks < 3 {
                unanswered("no answer");
            }
            true
        });
        assert_eq!(looks, 3);
    }

    #[test]
    #[should_panic(expected = "not within 0 s: it\nno answer")]
    fn the_deadline_says_what_went_wrong() {
        within(Duration::ZERO, "it", || {
            unanswered("no answer");
            true
        });
    }

    #[test]
    #[should_panic(expected = "no answer")]
    fn who_does_not_wait_is_stopped() {
        unanswered("no answer");
    }
}
