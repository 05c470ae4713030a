//! Pages of docs/ whose commands are run as they are written.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::process::Command;

use windlass_tests::{Fleet, eventually, root};

/// The commands of a page, in order: the lines between fences.
fn commands(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs").join(page)).unwrap();
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
fn run(fleet: &Fleet, command: &str) -> String {
    let hub = fleet.kubeconfig("hub");
    let out = Command::new("sh")
        .args(["-c", command])
        .current_dir(hub.parent().unwrap())
        .env("PATH", fleet.path())
        .env("KUBECONFIG", &hub)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let trouble = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command}: {text}{trouble}");
    text
}

const PLACEMENT: &str = r"
{apiVersion: v1, kind: Namespace, metadata: {name: app}}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterResourcePlacement
metadata: {name: app}
spec: {resourceSelectors: [{group: '', version: v1, kind: Namespace, name: app}]}
";

#[test]
fn clusters() {
    let mut fleet = Fleet::up("pages", 3);
    fleet.apply("hub", &fleet.windlass(&["crds"]).unwrap());
    fleet.start_hub();
    let mut said = Vec::new();
    for command in commands("clusters.md") {
        if command.ends_with("--force") {
            // The page has come to the cluster that is dead.
            fleet.apply("hub", PLACEMENT);
            eventually("it has something that it can leave behind", || {
                !fleet
                    .get("member-3", "appliedwork app-work", "{.metadata.uid}")
                    .is_empty()
            });
            fleet.control("stop", "member-3");
        }
        if command.starts_with("kubectl --kubeconfig member-3.kubeconfig delete appliedworks") {
            fleet.control("start", "member-3");
        }
        let text = run(&fleet, &command);
        said.push((command, text));
    }
    let told = |part: &str, words: &str| {
        let mut lines = said.iter().filter(|(command, _)| command.contains(part));
        let found = lines.any(|(_, text)| text.contains(words));
        assert!(found, "{part}: {words}: {said:#?}");
    };
    told("get cluster", "member-3   True");
    told("leave member-2", "keeps running, unowned");
    told(
        "--force",
        "AppliedWork app-work of placement app with Namespace app",
    );
    told("get events", "MemberClusterLeftBehind");
    told("appliedworks --all", "\"app-work\" deleted");
    assert_eq!(fleet.get("member-3", "ns app", "{.status.phase}"), "Active");
}
