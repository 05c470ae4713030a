//! The lists of objects in a binding's status are small enough to be stored: what agents and API servers say
//! of an object may be as long as they like, and etcd refuses what is over 1.5 MiB.

use std::future::Future;

use serde::Serialize;
use windlass_api::binding::BindingStatus;
use windlass_api::conditions::STATUS_REPORTED_BACK;
use windlass_api::placement::{
    DiffedResourcePlacement, DriftedResourcePlacement, FailedResourcePlacement, PatchDetail,
};
use windlass_cluster::ApiError;

/// Bytes of JSON of the three lists of a binding together.
pub const BUDGET: usize = 256 * 1024;
/// Bytes of a message that are kept where the lists are too large.
const MESSAGE: usize = 1024;
/// Bytes of a value, or of the path to it, that are kept where that does not do.
const VALUE: usize = 256;
/// Differences of one object that are kept.
const DIFFERENCES: usize = 16;
/// Bytes of a condition's message that are kept where something has to be added.
const SAID: usize = 8 * 1024;

/// The lists of a binding.
pub struct Lists<'a> {
    /// Objects that failed.
    pub failed: &'a mut Vec<FailedResourcePlacement>,
    /// Objects that drifted.
    pub drifted: &'a mut Vec<DriftedResourcePlacement>,
    /// Objects that differ.
    pub diffed: &'a mut Vec<DiffedResourcePlacement>,
}

impl Lists<'_> {
    /// Cuts messages, then values, then leaves out differences and objects, only as far as [`BUDGET`] asks for
    /// it. In words, what was left out, if anything was. The times in the lists have no part in it.
    pub fn fit(self) -> Option<String> {
        let size =
            |lists: &Lists<'_>| size(&*lists.failed) + size(&*lists.drifted) + size(&*lists.diffed);
        if size(&self) <= BUDGET {
            return None;
        }
        for failure in &mut *self.failed {
            cut(&mut failure.condition.message, MESSAGE);
        }
        if size(&self) <= BUDGET {
            return None;
        }
        let drifts = self.drifted.iter_mut().map(|of| &mut of.observed_drifts);
        let diffs = self.diffed.iter_mut().map(|of| &mut of.observed_diffs);
        for difference in drifts.chain(diffs).flatten().flatten() {
            cut_difference(difference);
        }
        if size(&self) <= BUDGET {
            return None;
        }
        let mut differences = 0;
        let drifts = self.drifted.iter_mut().map(|of| &mut of.observed_drifts);
        let diffs = self.diffed.iter_mut().map(|of| &mut of.observed_diffs);
        for list in drifts.chain(diffs).flatten() {
            differences += list.len().saturating_sub(DIFFERENCES);
            list.truncate(DIFFERENCES);
        }
        let objects = self.leave_out();
        let words: Vec<String> = [(objects, "object(s)"), (differences, "difference(s)")]
            .into_iter()
            .filter(|(number, _)| *number > 0)
            .map(|(number, what)| format!("{number} {what}"))
            .collect();
        Some(format!(
            "{} left out of the lists, which would be too large",
            words.join(" and ")
        ))
    }

    /// Leaves out the last of whichever list is largest, until all are small enough. How many that were.
    fn leave_out(self) -> usize {
        let sizes = |list: Vec<usize>| (list.iter().sum::<usize>(), list);
        let mut lists = [
            sizes(self.failed.iter().map(size).collect()),
            sizes(self.drifted.iter().map(size).collect()),
            sizes(self.diffed.iter().map(size).collect()),
        ];
        let before = lists.iter().map(|(_, list)| list.len()).sum::<usize>();
        while lists.iter().map(|(sum, _)| sum).sum::<usize>() > BUDGET {
            let Some((sum, list)) = lists.iter_mut().max_by_key(|(sum, _)| *sum) else {
                break;
            };
            *sum -= list.pop().unwrap_or(*sum);
        }
        let [(_, failed), (_, drifted), (_, diffed)] = &lists;
        self.failed.truncate(failed.len());
        self.drifted.truncate(drifted.len());
        self.diffed.truncate(diffed.len());
        before - failed.len() - drifted.len() - diffed.len()
    }
}

/// A condition's message with something added.
#[must_use]
pub fn and(message: &str, more: &str) -> String {
    let mut message = message.to_owned();
    cut(&mut message, SAID);
    format!("{message}; {more}")
}

/// Sends a status; if it is refused, once more without the lists, unless that is what is there already. What
/// came of it, if anything was written.
///
/// # Errors
///
/// When that fails.
pub async fn send<T, F: Future<Output = Result<T, ApiError>>>(
    status: BindingStatus,
    previous: &BindingStatus,
    write: impl Fn(BindingStatus) -> F,
) -> Result<Option<T>, ApiError> {
    match write(status.clone()).await {
        Ok(live) => Ok(Some(live)),
        Err(error @ ApiError::Rejected(_)) => {
            let Some(bare) = bare(status, error.message()) else {
                return Err(error);
            };
            if bare == *previous {
                return Ok(None);
            }
            write(bare).await.map(Some)
        }
        Err(error) => Err(error),
    }
}

/// The status without its lists, if it has any.
fn bare(mut status: BindingStatus, why: &str) -> Option<BindingStatus> {
    let lists = [
        status.failed_placements.take().is_some(),
        status.drifted_placements.take().is_some(),
        status.diffed_placements.take().is_some(),
    ];
    if !lists.contains(&true) {
        return None;
    }
    let mut list = status.conditions.iter_mut().flatten().rev();
    let last = list.find(|condition| condition.type_ != STATUS_REPORTED_BACK);
    if let Some(last) = last {
        let mut why = why.to_owned();
        cut(&mut why, MESSAGE);
        let more = format!("the lists of objects are left out, with them it is refused: {why}");
        last.message = and(&last.message, &more);
    }
    Some(status)
}

fn size<T: Serialize>(what: &T) -> usize {
    // A comma goes with it.
    serde_json::to_vec(what).map_or(0, |text| text.len() + 1)
}

fn cut_difference(difference: &mut PatchDetail) {
    cut(&mut difference.path, VALUE);
    let values = [
        &mut difference.value_in_hub,
        &mut difference.value_in_member,
    ];
    for value in values.into_iter().flatten() {
        cut(value, VALUE);
    }
}

/// Keeps that many bytes of a text, and shows that there were more.
fn cut(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes));
        text.push('…');
    }
}

#[cfg(test)]
#[path = "lists_test.rs"]
mod tests;
