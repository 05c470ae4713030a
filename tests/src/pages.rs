//! Pages of docs/, whose commands suites run as they are written.

use std::process::Command;

use crate::{Fleet, root};

/// The commands of a page, in order: the lines between fences.
///
/// # Panics
/// When there is no such page.
#[must_use]
pub fn commands(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs").join(page)).expect("the page exists");
    let mut inside = false;
    let mut commands = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if inside {
            commands.push(line.trim().to_owned());
        }
    }
    commands
}

/// Runs a command in the folder of the kubeconfigs, as somebody who sits at the hub.
///
/// # Panics
/// When it fails.
#[must_use]
pub fn run(fleet: &Fleet, command: &str) -> String {
    let hub = fleet.kubeconfig("hub");
    let out = Command::new("sh")
        .args(["-c", command])
        .current_dir(hub.parent().expect("it is in a folder"))
        .env("PATH", fleet.path())
        .env("KUBECONFIG", &hub)
        .output()
        .expect("there is a shell");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let trouble = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command}: {text}{trouble}");
    text
}
