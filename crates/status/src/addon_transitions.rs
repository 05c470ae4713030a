//! What is news about an add-on repository or an Addon; see [`crate::transitions`] for what news is.
//!
//! | of | transition | severity, reason |
//! |---|---|---|
//! | both | Ready becomes True | Normal, the condition's |
//! | both | Ready becomes False, and not just because something is awaited or on its way | Warning, the condition's |
//! | repository | Synced becomes False | Warning, the condition's |
//! | repository | Synced becomes True after False | Normal, the condition's |
//! | both | Stalled appears, or has another reason | Warning, the condition's; not where Ready has said it |
//! | Addon | Rendered becomes False, or has another reason | Warning, the condition's |
//! | Addon | Rendered becomes True, or is for another version or render | Normal, the condition's |

use windlass_api::Condition;
use windlass_api::conditions::Status;

use crate::conditions::{find, status};
use crate::transitions::Transition;

/// What is new about a repository.
#[must_use]
pub fn of_repository(old: &[Condition], new: &[Condition]) -> Vec<Transition> {
    let mut news = Vec::new();
    news.extend(turned(old, new, "Ready", "Sync", false));
    let synced = turned(old, new, "Synced", "Sync", true);
    // What makes it stalled at once is told once.
    let synced = synced.filter(|synced| {
        !news
            .iter()
            .any(|told| told.note == synced.note && told.is_warning)
    });
    news.extend(synced);
    news.extend(stalled(old, new, &news, "Sync"));
    news
}

/// What is new about an Addon. `render` says which render the status is about.
#[must_use]
pub fn of_addon(
    old: (&[Condition], Option<&str>),
    new: (&[Condition], Option<&str>),
) -> Vec<Transition> {
    let mut news = Vec::new();
    let rendered = find(new.0, "Rendered");
    let before = find(old.0, "Rendered");
    if let Some(told) = rendered {
        let same =
            before.is_some_and(|was| status(was) == status(told) && was.reason == told.reason);
        let is_good = status(told) == Status::True;
        if (!same && status(told) != Status::Unknown) || (is_good && old.1 != new.1) {
            news.push(tell(told, !is_good, "Render", new.1));
        }
    }
    let ready = turned(old.0, new.0, "Ready", "Place", false);
    let said = |ready: &Transition| news.iter().any(|news| news.reason == ready.reason);
    let reconciling = find(new.0, "Reconciling");
    let on_its_way = reconciling.is_some_and(|told| told.reason != "ProgressingWithRetry");
    let ready = ready.filter(|ready| !(said(ready) || ready.is_warning && on_its_way));
    news.extend(ready);
    news.extend(stalled(old.0, new.0, &news, "Place"));
    news
}

/// A condition that became True or False. `quiet` leaves out the first True.
fn turned(
    old: &[Condition],
    new: &[Condition],
    type_: &str,
    action: &'static str,
    quiet: bool,
) -> Option<Transition> {
    let told = find(new, type_)?;
    let was = find(old, type_).map(status);
    let is = status(told);
    let news = match is {
        Status::Unknown => false,
        Status::False => was != Some(Status::False),
        Status::True if quiet => was == Some(Status::False),
        Status::True => was != Some(Status::True),
    };
    news.then(|| tell(told, is == Status::False, action, None))
}

fn stalled(
    old: &[Condition],
    new: &[Condition],
    said: &[Transition],
    action: &'static str,
) -> Option<Transition> {
    let told = find(new, "Stalled")?;
    let same = find(old, "Stalled").is_some_and(|was| was.reason == told.reason);
    let said = said.iter().any(|news| news.reason == told.reason);
    (!same && !said).then(|| tell(told, true, action, None))
}

fn tell(
    told: &Condition,
    is_warning: bool,
    action: &'static str,
    about: Option<&str>,
) -> Transition {
    Transition {
        is_warning,
        reason: told.reason.clone(),
        action,
        note: told.message.clone(),
        cluster: None,
        index: about.unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(rows: &[(&str, &str, &str)]) -> Vec<Condition> {
        rows.iter()
            .map(|(type_, status, reason)| Condition {
                type_: (*type_).to_owned(),
                status: (*status).to_owned(),
                reason: (*reason).to_owned(),
                message: String::new(),
                observed_generation: None,
                last_transition_time: crate::conditions::time(jiff::Timestamp::UNIX_EPOCH),
            })
            .collect()
    }

    fn reasons(news: &[Transition]) -> Vec<(bool, &str)> {
        news.iter()
            .map(|news| (news.is_warning, news.reason.as_str()))
            .collect()
    }

    #[test]
    fn only_transitions_of_a_repository_are_news() {
        let healthy: &[_] = &[("Ready", "True", "Success"), ("Synced", "True", "Success")];
        let stale: &[_] = &[
            ("Ready", "True", "Success"),
            ("Synced", "False", "SyncFailed"),
            ("Reconciling", "True", "ProgressingWithRetry"),
        ];
        let dead: &[_] = &[
            ("Ready", "False", "RetriesExceeded"),
            ("Synced", "False", "SyncFailed"),
            ("Stalled", "True", "RetriesExceeded"),
        ];
        let refused: &[_] = &[
            ("Ready", "False", "AuthenticationFailed"),
            ("Synced", "False", "SyncFailed"),
            ("Stalled", "True", "AuthenticationFailed"),
        ];
        let mut told = conditions(refused);
        told.iter_mut()
            .for_each(|condition| condition.message = "401".to_owned());
        assert_eq!(
            reasons(&of_repository(&conditions(healthy), &told)),
            [(true, "AuthenticationFailed")]
        );
        let rows: &[(&[_], &[_], &[_])] = &[
            (&[], healthy, &[(false, "Success")]),
            (healthy, healthy, &[]),
            (healthy, stale, &[(true, "SyncFailed")]),
            (stale, stale, &[]),
            (stale, dead, &[(true, "RetriesExceeded")]),
            (dead, refused, &[(true, "AuthenticationFailed")]),
            (dead, healthy, &[(false, "Success"), (false, "Success")]),
            (
                &[("Ready", "Unknown", "AwaitingInitialSync")],
                dead,
                &[(true, "RetriesExceeded")],
            ),
        ];
        for (old, new, expected) in rows {
            let news = of_repository(&conditions(old), &conditions(new));
            assert_eq!(reasons(&news), *expected, "{old:?} -> {new:?}");
        }
    }

    #[test]
    fn another_render_is_news_and_the_same_one_is_not() {
        let done = conditions(&[
            ("Rendered", "True", "Rendered"),
            ("Ready", "True", "Available"),
        ]);
        let bad = conditions(&[
            ("Rendered", "False", "RenderFailed"),
            ("Ready", "False", "RenderFailed"),
            ("Stalled", "True", "RenderFailed"),
        ]);
        let new = |old: (&[Condition], _), new: (&[Condition], _)| {
            let news = of_addon(old, new);
            reasons(&news)
                .iter()
                .map(|(warns, reason)| (*warns, (*reason).to_owned()))
                .collect::<Vec<_>>()
        };
        let said = |warns, reason: &str| (warns, reason.to_owned());
        assert_eq!(
            new((&[], None), (&done, Some("a"))),
            [said(false, "Rendered"), said(false, "Available")]
        );
        assert!(new((&done, Some("a")), (&done, Some("a"))).is_empty());
        assert_eq!(
            new((&done, Some("a")), (&done, Some("b"))),
            [said(false, "Rendered")]
        );
        assert_eq!(
            new((&done, Some("a")), (&bad, Some("a"))),
            [said(true, "RenderFailed")]
        );
        assert!(new((&bad, Some("a")), (&bad, Some("a"))).is_empty());
        let under_way = conditions(&[
            ("Rendered", "True", "Rendered"),
            ("Ready", "False", "PlacementProgressing"),
            ("Reconciling", "True", "PlacementProgressing"),
        ]);
        assert!(new((&done, Some("a")), (&under_way, Some("a"))).is_empty());
    }
}
