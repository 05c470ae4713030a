//! How runs begin, stand, and take over from each other.

use windlass_tests::{Fleet, eventually};

use super::{
    MEMBERS, approve, approve_kind, content, of_run, placement, run, set_state, settle, strategy,
    told, versions,
};

/// Each row: what is wrong, and a word of what is said.
pub fn what_can_not_begin_says_why(fleet: &Fleet) {
    fleet.apply("hub", &content("rolls", "1"));
    let rolls = placement("rolls").replace("strategy: {type: External}", "");
    fleet.apply("hub", &rolls);
    fleet.apply(
        "hub",
        &strategy(
            "twice",
            "[{name: a, labelSelector: {}}, {name: b, labelSelector: {}}]",
        ),
    );
    fleet.apply(
        "hub",
        &strategy(
            "none",
            "[{name: a, labelSelector: {matchLabels: {stage: canary}}}]",
        ),
    );
    let rows = [
        (
            "no-placement",
            run("no-placement", "nothing", "gated", ""),
            "does not exist",
        ),
        ("rolling", run("rolling", "rolls", "gated", ""), "External"),
        (
            "no-strategy",
            run("no-strategy", "web", "nothing", ""),
            "no strategy nothing",
        ),
        (
            "no-snapshot",
            run("no-snapshot", "web", "gated", "resourceSnapshotIndex: '99'"),
            "index 99",
        ),
        (
            "no-number",
            run("no-number", "web", "gated", "resourceSnapshotIndex: 'x'"),
            "no number",
        ),
        (
            "two-stages",
            run("two-stages", "web", "twice", ""),
            "in two stages",
        ),
        (
            "no-stage",
            run("no-stage", "web", "none", ""),
            "member-2, member-3",
        ),
    ];
    for (_, manifest, _) in &rows {
        fleet.apply("hub", manifest);
    }
    for (name, _, word) in &rows {
        eventually(name, || {
            let message = of_run(
                fleet,
                name,
                "{.status.conditions[?(@.type==\"Initialized\")].message}",
            );
            told(fleet, name, "Initialized") == "False/UpdateRunInitializedFailed"
                && message.contains(word)
        });
        fleet.kubectl("hub", &format!("delete csur {name}"));
    }
}

pub fn a_run_that_is_stopped_stands(fleet: &Fleet) {
    fleet.apply("hub", &content("web", "2"));
    fleet.apply("hub", &run("stops", "web", "gated", "state: Run"));
    eventually("prod waits for approval", || {
        told(fleet, "stops", "Progressing") == "False/UpdateRunWaiting"
            && fleet.get("hub", "careq stops-before-prod", "{.kind}") == "ClusterApprovalRequest"
    });
    set_state(fleet, "stops", "Stop");
    eventually("it stands", || {
        told(fleet, "stops", "Progressing") == "False/UpdateRunStopped"
    });
    let of_rollout = |line: &str| line.contains("updaterun") || line.contains("binding");
    let before = fleet.settled(of_rollout);
    approve(fleet, "stops-before-prod");
    assert_eq!(
        fleet.settled(of_rollout),
        before,
        "a run that stands writes"
    );
    assert_eq!(versions(fleet, "web"), "2 1 1");
    set_state(fleet, "stops", "Run");
    eventually("it goes on", || {
        told(fleet, "stops", "Succeeded") == "True/UpdateRunSucceeded"
    });
    assert_eq!(versions(fleet, "web"), "2 2 2");
    // Its requests go with it.
    fleet.kubectl("hub", "delete csur stops");
    eventually("the request is gone", || {
        fleet
            .get("hub", "careq stops-before-prod", "{.kind}")
            .is_empty()
    });
}

pub fn another_run_takes_over(fleet: &Fleet) {
    fleet.apply("hub", &content("web", "3"));
    fleet.apply("hub", &run("first", "web", "gated", "state: Run"));
    eventually("the first waits", || {
        told(fleet, "first", "Progressing") == "False/UpdateRunWaiting"
    });
    settle(fleet, "web", "second", "4");
    assert_eq!(told(fleet, "first", "Succeeded"), "False/UpdateRunFailed");
    assert_eq!(
        told(fleet, "first", "Superseded"),
        "True/UpdateRunSuperseded"
    );
    let message = of_run(
        fleet,
        "first",
        "{.status.conditions[?(@.type==\"Superseded\")].message}",
    );
    assert!(message.contains("second"), "{message}");
}

pub fn an_older_version_comes_back(fleet: &Fleet) {
    let older = run(
        "older",
        "web",
        "at-once",
        "state: Run, resourceSnapshotIndex: '1'",
    );
    fleet.apply("hub", &older);
    eventually("it is done", || {
        told(fleet, "older", "Succeeded") == "True/UpdateRunSucceeded"
    });
    assert_eq!(versions(fleet, "web"), "2 2 2");
    eventually("the placement tells of the older version", || {
        fleet.get("hub", "crp web", "{.status.observedResourceIndex}") == "1"
    });
}

pub fn a_namespace_has_runs_of_its_own(fleet: &Fleet) {
    fleet.apply(
        "hub",
        "{apiVersion: v1, kind: Namespace, metadata: {name: team}}",
    );
    for member in MEMBERS {
        fleet.apply(
            member,
            "{apiVersion: v1, kind: Namespace, metadata: {name: team}}",
        );
    }
    fleet.apply(
        "hub",
        "
{apiVersion: v1, kind: ConfigMap, metadata: {name: app, namespace: team}, data: {version: '1'}}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourcePlacement
metadata: {name: app, namespace: team}
spec:
  resourceSelectors: [{group: '', version: v1, kind: ConfigMap, name: app}]
  strategy: {type: External}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: StagedUpdateStrategy
metadata: {name: all, namespace: team}
spec: {stages: [{name: all, labelSelector: {}, maxConcurrency: 100%, beforeStageTasks: [{type: Approval}]}]}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: StagedUpdateRun
metadata: {name: app-1, namespace: team}
spec: {placementName: app, stagedRolloutStrategyName: all, state: Run}
",
    );
    eventually("it asks", || {
        fleet.get("hub", "areq app-1-before-all -n team", "{.kind}") == "ApprovalRequest"
    });
    approve_kind(fleet, "areq", "app-1-before-all -n team");
    eventually("it is done", || {
        let path = "{.status.conditions[?(@.type==\"Succeeded\")].status}";
        fleet.get("hub", "sur app-1 -n team", path) == "True"
    });
    assert_eq!(versions(fleet, "team"), "1 1 1");
}

pub fn a_rolling_placement_is_handed_over_as_it_is(fleet: &Fleet) {
    eventually("it has rolled", || versions(fleet, "rolls") == "1 1 1");
    let hand_over = "patch crp rolls --type merge -p {\"spec\":{\"strategy\":{\"type\":\"External\",\"rollingUpdate\":null}}}";
    fleet.kubectl("hub", hand_over);
    fleet.apply("hub", &content("rolls", "2"));
    eventually("there is a new snapshot", || {
        !fleet
            .get("hub", "clusterresourcesnapshot rolls-1-snapshot", "{.kind}")
            .is_empty()
    });
    let written = fleet.settled(|line| line.contains("binding"));
    assert!(!written.is_empty());
    assert_eq!(versions(fleet, "rolls"), "1 1 1");
    let back =
        "patch crp rolls --type merge -p {\"spec\":{\"strategy\":{\"type\":\"RollingUpdate\"}}}";
    let refused = fleet.try_kubectl("hub", back, None).unwrap_err();
    assert!(
        refused.contains("cannot change rollout strategy type"),
        "{refused}"
    );
    settle(fleet, "rolls", "rolls-1", "2");
}

/// What a run brings is fixed when it begins; a new one waits for content that can be told.
pub fn a_run_goes_on_while_selectors_are_wrong(fleet: &Fleet) {
    fleet.apply("hub", &content("web", "7"));
    fleet.apply("hub", &run("under-way", "web", "gated", "state: Run"));
    eventually("prod waits for approval", || {
        told(fleet, "under-way", "Progressing") == "False/UpdateRunWaiting"
            && !fleet
                .get("hub", "careq under-way-before-prod", "{.kind}")
                .is_empty()
    });
    let wrong = r#"[{"op":"add","path":"/spec/resourceSelectors/-","value":{"group":"no.such","version":"v1","kind":"Thing","name":"x"}}]"#;
    fleet.kubectl("hub", &format!("patch crp web --type json -p {wrong}"));
    approve(fleet, "under-way-before-prod");
    eventually("the run is done all the same", || {
        told(fleet, "under-way", "Succeeded") == "True/UpdateRunSucceeded"
    });
    assert_eq!(versions(fleet, "web"), "7 7 7");
    fleet.apply("hub", &run("waits", "web", "at-once", "state: Run"));
    eventually("a new one waits, and says for what", || {
        let path = "{.status.conditions[?(@.type==\"Initialized\")].message}";
        told(fleet, "waits", "Initialized") == "Unknown/UpdateRunInitializing"
            && of_run(fleet, "waits", path).contains("Thing")
    });
    let right = r#"[{"op":"remove","path":"/spec/resourceSelectors/1"}]"#;
    fleet.kubectl("hub", &format!("patch crp web --type json -p {right}"));
    eventually("it is done", || {
        told(fleet, "waits", "Succeeded") == "True/UpdateRunSucceeded"
    });
}
