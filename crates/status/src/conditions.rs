//! Arithmetic on condition lists. One rule above all: a transition time moves only with its status (I11).

use jiff::Timestamp;
use windlass_api::conditions::Status;
use windlass_api::{Condition, Time};

/// Longest message that the API accepts.
const MESSAGE_LIMIT: usize = 32_768;

/// A condition as a decision states it: everything but the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCondition<'a> {
    /// Type.
    pub type_: &'a str,
    /// Status.
    pub status: Status,
    /// Reason, one CamelCase word.
    pub reason: &'a str,
    /// Message for people.
    pub message: String,
    /// Generation that was acted on; none where the object has none.
    pub observed_generation: Option<i64>,
}

impl NewCondition<'_> {
    /// Completes the condition. The transition time is that of the condition of the same type in
    /// `previous` if the status is the same, and `now` if not.
    #[must_use]
    pub fn build(self, previous: &[Condition], now: Timestamp) -> Condition {
        self.build_since(previous, now, now)
    }

    /// Like [`Self::build`], but a type that `previous` does not have at all has stood since `since`:
    /// for a condition that is copied from an object which knows its own history.
    #[must_use]
    pub fn build_since(
        self,
        previous: &[Condition],
        since: Timestamp,
        now: Timestamp,
    ) -> Condition {
        let last_transition_time = match find(previous, self.type_) {
            Some(old) if status(old) == self.status => time(old.last_transition_time.0),
            Some(_) => time(now),
            // Another host's clock may run ahead of ours.
            None => time(since.min(now)),
        };
        Condition {
            type_: self.type_.to_owned(),
            status: self.status.as_str().to_owned(),
            reason: self.reason.to_owned(),
            message: cut(self.message),
            observed_generation: self.observed_generation,
            last_transition_time,
        }
    }
}

/// Puts a condition into a list, in place of one of the same type or at the end. Returns whether the
/// list changed.
pub fn set(list: &mut Vec<Condition>, new: NewCondition<'_>, now: Timestamp) -> bool {
    let built = new.build(list, now);
    match list.iter_mut().find(|old| old.type_ == built.type_) {
        Some(old) if *old == built => false,
        Some(old) => {
            *old = built;
            true
        }
        None => {
            list.push(built);
            true
        }
    }
}

/// The condition of a type.
#[must_use]
pub fn find<'a>(list: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    list.iter().find(|condition| condition.type_ == type_)
}

/// Whether the condition of a type is there and True.
#[must_use]
pub fn is_true(list: &[Condition], type_: &str) -> bool {
    find(list, type_).is_some_and(|condition| status(condition) == Status::True)
}

/// Takes the condition of a type out. Returns whether there was one.
pub fn remove(list: &mut Vec<Condition>, type_: &str) -> bool {
    let before = list.len();
    list.retain(|condition| condition.type_ != type_);
    list.len() < before
}

/// Status of a condition; a word that the API does not know is Unknown.
#[must_use]
pub fn status(condition: &Condition) -> Status {
    Status::parse(&condition.status)
}

/// A time as the API stores it: whole seconds, so that what is written equals what is read back.
#[must_use]
pub fn time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

fn cut(mut message: String) -> String {
    if message.len() > MESSAGE_LIMIT {
        let mut end = MESSAGE_LIMIT;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
    }
    message
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ready(status: Status, message: &str) -> NewCondition<'static> {
        NewCondition {
            type_: "Ready",
            status,
            reason: "Because",
            message: message.to_owned(),
            observed_generation: Some(1),
        }
    }

    #[test]
    fn the_time_moves_only_with_the_status() {
        let mut list = Vec::new();
        let rows = [
            (Status::True, "a", 10, true, 10),
            (Status::True, "a", 20, false, 10),
            (Status::True, "b", 30, true, 10),
            (Status::False, "b", 40, true, 40),
            (Status::Unknown, "b", 50, true, 50),
            (Status::Unknown, "b", 60, false, 50),
        ];
        for (status, message, now, changed, since) in rows {
            assert_eq!(
                set(&mut list, ready(status, message), at(now)),
                changed,
                "at {now}"
            );
            assert_eq!(list.len(), 1);
            assert_eq!(list[0].last_transition_time.0, at(since), "at {now}");
        }
        assert!(!is_true(&list, "Ready"));
        assert!(find(&list, "Other").is_none());
        assert!(remove(&mut list, "Ready"));
        assert!(!remove(&mut list, "Ready"));
    }

    #[test]
    fn times_are_whole_seconds_and_never_ahead() {
        let now = Timestamp::new(10, 999_999_999).unwrap();
        let built = ready(Status::True, "").build(&[], now);
        assert_eq!(built.last_transition_time.0, at(10));
        let copied = ready(Status::True, "").build_since(&[], at(5), now);
        assert_eq!(copied.last_transition_time.0, at(5));
        let ahead = ready(Status::True, "").build_since(&[], at(99), now);
        assert_eq!(ahead.last_transition_time.0, at(10));
    }

    #[test]
    fn a_message_is_cut_at_what_the_api_accepts() {
        let built = ready(Status::True, &format!("x{}", "é".repeat(20_000))).build(&[], at(1));
        assert_eq!(built.message.len(), MESSAGE_LIMIT - 1);
    }

    proptest! {
        #[test]
        fn setting_twice_changes_nothing_more(statuses in proptest::collection::vec(0..3_u8, 1..9)) {
            let mut list = Vec::new();
            for (at_, word) in statuses.iter().enumerate() {
                let status = [Status::True, Status::False, Status::Unknown][usize::from(*word)];
                let before = list.clone();
                set(&mut list, ready(status, "m"), at(i64::try_from(at_).unwrap()));
                prop_assert!(!set(&mut list, ready(status, "m"), at(1_000)));
                let moved = before.first().map(|c: &Condition| c.last_transition_time.clone())
                    != list.first().map(|c| c.last_transition_time.clone());
                let changed = before.first().map(|c: &Condition| c.status.clone())
                    != list.first().map(|c| c.status.clone());
                prop_assert_eq!(moved, changed);
            }
        }
    }
}
