//! Which run a placement follows: two at once would undo each other's work.

use windlass_api::conditions::RunCondition;
use windlass_api::run::RunState;
use windlass_api::scoped::UpdateRun;

use super::{is_initialized, is_over, stamp};

/// The runs of one placement that another one has taken over from: (name, name of that other one).
///
/// A run that was begun is followed until it is over, or until another one is told to run: that one takes
/// over, and the first is over. Of several that are told to run at the same time it is the one created last.
/// A run that was never told to run is left alone.
///
/// Whoever writes has to write that the first is over before the other one begins: of two that have begun it
/// can't be told which came first.
#[must_use]
pub fn superseded<'a>(runs: &[&'a UpdateRun]) -> Vec<(&'a str, &'a str)> {
    let mut open = contenders(runs);
    let Some(holder) = open.pop() else {
        return Vec::new();
    };
    let name = |run: &'a UpdateRun| run.metadata.name.as_deref().unwrap_or_default();
    open.into_iter()
        .map(|run| (name(run), name(holder)))
        .collect()
}

/// The run that the placement follows, if it follows one.
#[must_use]
pub fn holder<'a>(runs: &[&'a UpdateRun]) -> Option<&'a UpdateRun> {
    contenders(runs).pop()
}

/// The runs that move their placement, or would; the last of them does.
fn contenders<'a>(runs: &[&'a UpdateRun]) -> Vec<&'a UpdateRun> {
    let is_told = |run: &UpdateRun| run.spec.state == Some(RunState::Run);
    let mut open: Vec<&UpdateRun> = runs
        .iter()
        .copied()
        .filter(|run| run.metadata.deletion_timestamp.is_none())
        .filter(|run| is_initialized(run) && !is_over(run))
        .filter(|run| is_begun(run) || is_told(run))
        .collect();
    // One that was begun and stands yields to nobody but one that is told to run.
    open.sort_by_cached_key(|run| {
        let created = run.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let name = run.metadata.name.clone();
        (is_told(run), !is_begun(run), created, name)
    });
    open
}

/// Whether a run has moved anything, or waited to.
fn is_begun(run: &UpdateRun) -> bool {
    let status = run.status.as_ref();
    status
        .is_some_and(|status| stamp::find(&status.conditions, RunCondition::Progressing).is_some())
}
