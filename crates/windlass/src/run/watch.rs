//! `windlass run watch`: follows a run until it has ended.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Api;
use kube::runtime::watcher;
use tokio::sync::watch;
use windlass_api::scoped::UpdateRun;
use windlass_cluster::{Cache, CacheOptions, Change, ObjectKey, clock};

use super::view::{self, Phase, View};
use super::{text, text_of};
use crate::cli::{Failure, words};
use crate::screen::{Output, Reader, Screen, Shown};
use crate::table::line;

/// How often ages are drawn anew on a terminal.
const REDRAW: Duration = Duration::from_secs(1);
/// How long the first answer may take.
const FIRST: Duration = Duration::from_secs(30);
/// How often one looks for it.
const LOOK: Duration = Duration::from_millis(50);
/// Clusters in the table on a terminal.
const ROWS: usize = 20;

/// Follows a run. Fails unless it succeeds.
pub async fn follow(
    api: Api<UpdateRun>,
    key: &ObjectKey,
    flags: &str,
    output: Output,
    limit: Option<Duration>,
) -> Result<(), Failure> {
    let (tell, news) = watch::channel(());
    let options = CacheOptions {
        on_change: Arc::new(move |_: &Change<UpdateRun>| {
            tell.send_replace(());
        }),
        ..CacheOptions::default()
    };
    let only = watcher::Config::default().fields(&format!("metadata.name={}", key.name));
    let cache = Cache::start("run", api, only, options);
    let followed = until_ended(&cache, key, flags, news, Screen::here(output));
    let result = match limit {
        None => followed.await,
        Some(limit) => tokio::time::timeout(limit, followed)
            .await
            .unwrap_or_else(|_| {
                let last = cache.get(key).map(|run| text::progress(&view::of(&run)));
                let last = last.unwrap_or_else(|| "it is not known".to_owned());
                Err(format!("not ended within {} s: {last}", limit.as_secs()).into())
            }),
    };
    cache.stop();
    result
}

async fn until_ended(
    cache: &Cache<UpdateRun>,
    key: &ObjectKey,
    flags: &str,
    mut news: watch::Receiver<()>,
    mut screen: Screen,
) -> Result<(), Failure> {
    synced(cache).await?;
    loop {
        news.mark_unchanged();
        let run = cache
            .get(key)
            .ok_or_else(|| format!("{} has been deleted", text_of(key)))?;
        let view = view::of(&run);
        let shown = Followed { view: &view, flags };
        if screen.show(&shown, clock::now())? == Reader::Gone {
            return Ok(());
        }
        if view.ended {
            return verdict(&view);
        }
        let pause = if screen.is_terminal {
            REDRAW
        } else {
            Duration::MAX
        };
        // Either there is news, or it is time to draw again.
        drop(tokio::time::timeout(pause, news.changed()).await);
    }
}

/// Waits for the first answer; a refusal is one.
async fn synced(cache: &Cache<UpdateRun>) -> Result<(), Failure> {
    let until = clock::monotonic() + FIRST;
    while !cache.is_synced() {
        match cache.failure() {
            Some(error) if !error.is_outage() => return Err(words("watching the run", &error)),
            _ if clock::monotonic() < until => clock::sleep(LOOK).await,
            Some(error) => return Err(words("watching the run", &error)),
            None => return Err("watching the run failed: no answer".into()),
        }
    }
    Ok(())
}

/// What a run that has ended means for whoever waited for it.
fn verdict(view: &View) -> Result<(), Failure> {
    if view.state == Phase::Succeeded {
        return Ok(());
    }
    let message = line(&view.message);
    Err(format!("{} {}: {message}", view.run, view.state.text()).into())
}

/// A run that is followed.
struct Followed<'a> {
    view: &'a View,
    flags: &'a str,
}

impl Shown for Followed<'_> {
    fn whole(&self, now: Timestamp) -> String {
        text::show(self.view, self.flags, now, Some(ROWS))
    }

    fn line(&self) -> String {
        text::progress(self.view)
    }

    fn json(&self) -> Result<String, Failure> {
        Ok(serde_json::to_string(self.view)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{asks, run};
    use super::*;

    #[test]
    fn only_success_is_success() {
        for (condition, expected) in [
            (("Succeeded", "True", "UpdateRunSucceeded"), None),
            (
                ("Succeeded", "False", "UpdateRunFailed"),
                Some("web-3 Failed: so it is"),
            ),
            (
                ("Initialized", "False", "UpdateRunInitializedFailed"),
                Some("web-3 Initialization failed: so it is"),
            ),
        ] {
            let (type_, status, reason) = condition;
            let run = run(
                "Run",
                &serde_json::json!({ "conditions": [{ "type": type_, "status": status, "reason": reason,
                    "message": "so it\nis", "lastTransitionTime": "2026-01-01T00:00:00Z" }] }),
            );
            let view = view::of(&run);
            assert!(view.ended);
            let error = verdict(&view).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), expected);
        }
    }

    #[test]
    fn a_change_is_a_line() {
        let view = view::of(&run("Run", &asks()));
        let now = "2026-01-01T12:00:05Z".parse().unwrap();
        let shown = Followed {
            view: &view,
            flags: "",
        };
        let mut lines = Screen::new(Output::Table, false);
        assert_eq!(
            lines.next(&shown, now).unwrap().unwrap(),
            "12:00:05 web-3 Waiting: Stage canary waits; 1 of 4 clusters done, 1 failed\n"
        );
        assert_eq!(lines.next(&shown, now).unwrap(), None);
        let mut terminal = Screen::new(Output::Table, true);
        let first = terminal.next(&shown, now).unwrap().unwrap();
        assert!(
            first.contains("to approve: windlass run approve web-3 canary"),
            "{first}"
        );
    }
}
