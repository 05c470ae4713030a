//! What Helm says when it fails, and what that means.

use std::path::Path;

use super::child::Ended;
use super::error::{RenderError, RenderFault};

/// Exit code of a Go program that can't go on.
const GO_GAVE_UP: i32 = 2;
/// What Go says when it gets no more memory.
const NO_MEMORY: [&str; 4] = [
    "out of memory",
    "cannot allocate memory",
    "failed to create new OS thread",
    "errno=12",
];

/// What a run that has failed means. `dir` is not cited, `memory` is the limit in bytes.
pub(super) fn failure(ended: &Ended, dir: &Path, memory: u64) -> RenderError {
    match ended.status.code() {
        Some(GO_GAVE_UP) if NO_MEMORY.iter().any(|words| ended.stderr.contains(words)) => {
            let memory = memory / (1024 * 1024);
            RenderError::new(
                RenderFault::MemoryLimit,
                format!(
                    "rendering the chart takes more than the {memory} MiB of memory that Helm may have"
                ),
            )
        }
        Some(GO_GAVE_UP) | None => {
            let first = ended.stderr.lines().next().unwrap_or_default();
            RenderError::new(
                RenderFault::HelmFailed,
                format!("Helm broke down ({}): {first}", ended.status),
            )
        }
        Some(_) => rejected(&said(&ended.stderr, dir)),
    }
}

fn rejected(said: &str) -> RenderError {
    // Helm's words are the same in its versions 3 and 4.
    if said.contains("missing in charts/") {
        return RenderError::new(
            RenderFault::DependenciesMissing,
            format!(
                "the chart was published without charts that it depends on; run `helm dependency build` \
                 before `helm package`, and publish it anew. Helm says: {said}"
            ),
        );
    }
    RenderError::new(RenderFault::ChartRejected, format!("Helm says: {said}"))
}

/// Helm's own words, without the warnings before them (those cite values) and without our folder.
fn said(stderr: &str, dir: &Path) -> String {
    let from = stderr
        .rfind("\nError: ")
        .map(|at| at + 1)
        .or_else(|| stderr.starts_with("Error: ").then_some(0));
    let text = match from {
        Some(at) => stderr.get(at + "Error: ".len()..).unwrap_or_default(),
        None => stderr.lines().last().unwrap_or_default(),
    };
    let folder = dir.display().to_string();
    let text = text
        .replace(&format!("{folder}/"), "")
        .replace(&folder, "the chart");
    let lines = text.lines().map(str::trim);
    // That flag is not the reader's to set.
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("Use --debug flag"));
    lines.collect::<Vec<_>>().join(" ")
}
