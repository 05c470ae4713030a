//! The invariants of docs/architecture.md that a compiler doesn't check.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates that decide, and nothing else.
const PURE: [&str; 6] = [
    "windlass-api",
    "windlass-status",
    "windlass-aggregator",
    "windlass-scheduler",
    "windlass-rollout",
    "windlass-render",
];

/// What a pure crate must not reach, not even through another crate.
const IMPURE: [&str; 8] = [
    "tokio",
    "kube-client",
    "kube-runtime",
    "kube",
    "reqwest",
    "hyper",
    "chrono",
    "rand",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

#[test]
fn pure_crates_reach_no_client_runtime_or_clock() {
    for package in PURE {
        let output = Command::new(env!("CARGO"))
            .args([
                "tree",
                "--offline",
                "--edges",
                "normal",
                "--prefix",
                "none",
                "--package",
                package,
            ])
            .current_dir(root())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let tree = String::from_utf8(output.stdout).unwrap();
        let names: Vec<&str> = tree
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert!(names.contains(&package));
        for name in IMPURE {
            assert!(!names.contains(&name), "{package} depends on {name}");
        }
    }
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Only the writer sends writes, and only the clock module knows the time: nobody else names their tools.
#[test]
fn one_writer_and_one_clock() {
    let rules = [
        ("PostParams", "crates/cluster/src/writer.rs"),
        ("PatchParams", "crates/cluster/src/writer.rs"),
        ("DeleteParams", "crates/cluster/src/writer.rs"),
        ("SystemTime::now", "crates/cluster/src/clock.rs"),
        ("Instant::now", "crates/cluster/src/clock.rs"),
        ("Timestamp::now", "crates/cluster/src/clock.rs"),
        ("tokio::spawn", "crates/cluster/src/clock.rs"),
    ];
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    assert!(files.len() > 20);
    for file in files {
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        // Tests may drive an API server as a user would.
        if name.contains("/tests/") || name.ends_with("_test.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        for (word, only) in rules {
            assert!(
                name == only || !text.contains(word),
                "{name} uses {word}; only {only} may"
            );
        }
    }
}
