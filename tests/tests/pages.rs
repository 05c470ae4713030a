//! Pages of docs/ whose commands are run as they are written.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use windlass_tests::pages::{commands, run};
use windlass_tests::{Fleet, eventually};

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
                fleet.get("member-3", "ns app", "{.metadata.ownerReferences[*].name}") == "app-work"
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
