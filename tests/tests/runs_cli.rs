//! The page about update runs, whose commands are run as they are written: people make, start, approve, stop,
//! resume and undo runs with the binary.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use windlass_tests::pages::{commands, run};
use windlass_tests::{Fleet, eventually, root};

/// How a run is told to stand.
fn state(fleet: &Fleet, name: &str) -> String {
    told(fleet, name)["state"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn told(fleet: &Fleet, name: &str) -> serde_json::Value {
    serde_json::from_str(&run(fleet, &format!("windlass run show {name} -o json"))).unwrap()
}

/// Replicas of the app on each member, `-` where it is not.
fn replicas(fleet: &Fleet) -> String {
    let of = |member: &&str| {
        let found = fleet.get(member, "-n web deploy app", "{.spec.replicas}");
        if found.is_empty() {
            "-".to_owned()
        } else {
            found
        }
    };
    ["member-1", "member-2", "member-3"]
        .iter()
        .map(of)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Waits until a run asks for an approval.
fn asked(fleet: &Fleet, name: &str) {
    eventually(&format!("{name} asks"), || {
        fleet
            .windlass(&["run", "show", name, "--kubeconfig", hub(fleet).as_str()])
            .unwrap()
            .contains(&format!("to approve: windlass run approve {name} prod"))
    });
}

fn hub(fleet: &Fleet) -> String {
    fleet.kubeconfig("hub").display().to_string()
}

fn refused(fleet: &Fleet, args: &[&str]) -> String {
    let hub = hub(fleet);
    fleet
        .windlass(&[args, &["--kubeconfig", &hub]].concat())
        .unwrap_err()
}

#[test]
fn people_roll_out_in_stages() {
    let mut fleet = Fleet::up("runs-cli", 3);
    fleet.apply("hub", &fleet.windlass(&["crds"]).unwrap());
    fleet.start_hub();
    for member in ["member-1", "member-2", "member-3"] {
        fleet.join(member);
    }
    // The commands are run from the repository, where the kubeconfigs are not.
    let docs = fleet.kubeconfig("hub").with_file_name("docs");
    std::os::unix::fs::symlink(root().join("docs"), docs).unwrap();
    for command in commands("roll-out-in-stages.md") {
        before(&fleet, &command);
        let said = run(&fleet, &command);
        after(&fleet, &command, &said);
    }
    goes_back(&fleet);
    what_is_no_move_is_refused(&fleet);
    a_team_does_so_in_its_namespace(&fleet);
}

/// What has to be so before a command of the page.
fn before(fleet: &Fleet, command: &str) {
    match command {
        "windlass run start web-1" | "windlass run start web-2" => {
            let name = command.rsplit(' ').next().unwrap();
            eventually("it is initialized", || state(fleet, name) == "Initialized");
        }
        "windlass run approve web-1" => {
            asked(fleet, "web-1");
            assert_eq!(replicas(fleet), "3 - -");
        }
        patch if patch.contains("patch careq web-2-before-prod") => {
            asked(fleet, "web-2");
            assert_eq!(replicas(fleet), "4 3 3");
        }
        "windlass run resume web-2" => {
            eventually("it stands", || state(fleet, "web-2") == "Stopped");
            let text = run(fleet, "windlass run show web-2");
            assert!(
                text.contains("to go on: windlass run resume web-2"),
                "{text}"
            );
        }
        _ => {}
    }
}

/// What a command of the page says.
fn after(fleet: &Fleet, command: &str, said: &str) {
    let expected = match command {
        "windlass run start web-1" => "To follow it: windlass run watch web-1",
        "windlass run approve web-1" => {
            "web-1-before-prod is approved; by whom is not recorded by this API server"
        }
        "windlass run watch web-1" | "windlass run watch web-2" => "Succeeded",
        "windlass rollback web" => {
            "brings placement web from index 1 back to 0, by strategy careful"
        }
        "windlass run list web" => "web-rollback-0-",
        _ => "",
    };
    assert!(said.contains(expected), "{command}: {said}");
    match command {
        "windlass run watch web-1" => assert_eq!(replicas(fleet), "3 3 3"),
        "windlass run watch web-2" => assert_eq!(replicas(fleet), "4 4 4"),
        _ => {}
    }
}

/// The page has asked for a rollback.
fn goes_back(fleet: &Fleet) {
    let runs = run(fleet, "windlass run list web -o json");
    let runs: serde_json::Value = serde_json::from_str(&runs).unwrap();
    let newest = runs.as_array().unwrap().last().unwrap();
    let name = newest["run"].as_str().unwrap();
    assert!(name.starts_with("web-rollback-0-"), "{name}");
    let again = run(fleet, "windlass rollback web --to 0");
    assert!(
        again.contains(&format!("{name} brings index 0 back already")),
        "{again}"
    );
    asked(fleet, name);
    assert_eq!(replicas(fleet), "3 4 4");
    drop(run(fleet, &format!("windlass run approve {name} prod")));
    drop(run(
        fleet,
        &format!("windlass run watch {name} --timeout 60s"),
    ));
    assert_eq!(replicas(fleet), "3 3 3");
    let done = told(fleet, name);
    assert_eq!(
        (&done["state"], &done["doneClusters"]),
        (&"Succeeded".into(), &3.into())
    );
}

fn what_is_no_move_is_refused(fleet: &Fleet) {
    for (args, expected) in [
        (&["run", "stop", "web-1"][..], "web-1 is over: Succeeded"),
        (&["run", "resume", "web-1"], "create another run"),
        (&["run", "approve", "web-1"], "nothing to approve"),
        (
            &["run", "show", "nope"],
            "there is no ClusterStagedUpdateRun nope",
        ),
        (
            &["rollback", "web"],
            "no earlier version of placement web than index 0",
        ),
        (
            &["rollback", "web", "--to", "7"],
            "no resource snapshot of index 7; there are: 0, 1",
        ),
        (&["rollback", "web", "--to", "0"], "run index 0 already"),
        (
            &["rollback", "web", "--to", "1", "--strategy", "nope"],
            "there is no ClusterStagedUpdateStrategy nope",
        ),
        (
            &["rollback", "nope"],
            "there is no ClusterResourcePlacement nope",
        ),
    ] {
        let said = refused(fleet, args);
        assert!(said.contains(expected), "{args:?}: {said}");
    }
    let unstarted = "sed s/web-1/web-9/ docs/examples/run.yaml | kubectl apply -f -";
    drop(run(fleet, unstarted));
    let said = refused(fleet, &["run", "stop", "web-9"]);
    assert!(said.contains("has not been started"), "{said}");
}

/// What a team with rights in one namespace has there.
const TEAM: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: menu, namespace: shop, labels: {of: shop}}, data: {soup: 'VERSION'}}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ResourcePlacement
metadata: {name: menu, namespace: shop}
spec:
  resourceSelectors: [{group: '', version: v1, kind: ConfigMap, name: menu}]
  strategy: {type: External}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: StagedUpdateStrategy
metadata: {name: at-once, namespace: shop}
spec: {stages: [{name: all, labelSelector: {}, maxConcurrency: 100%}]}
---
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: StagedUpdateRun
metadata: {name: menu-VERSION, namespace: shop}
spec: {placementName: menu, stagedRolloutStrategyName: at-once, state: Run}
";

fn a_team_does_so_in_its_namespace(fleet: &Fleet) {
    let soup = || fleet.get("member-2", "-n shop configmap menu", "{.data.soup}");
    for member in ["member-1", "member-2", "member-3"] {
        drop(fleet.kubectl(member, "create namespace shop"));
    }
    for version in ["1", "2"] {
        fleet.apply("hub", &TEAM.replace("VERSION", version));
        drop(run(
            fleet,
            &format!("windlass run watch menu-{version} -n shop --timeout 60s"),
        ));
        assert_eq!(soup(), version);
    }
    let said = run(fleet, "windlass rollback menu -n shop");
    let follow = said
        .lines()
        .last()
        .unwrap()
        .trim_start_matches("To follow it: ");
    assert!(follow.ends_with(" -n shop"), "{said}");
    drop(run(fleet, &format!("{follow} --timeout 60s")));
    assert_eq!(soup(), "1");
    let all = run(fleet, "windlass run list");
    assert!(
        all.contains("\nweb-1 ") && all.contains("\nshop/menu-2 "),
        "{all}"
    );
    let own = run(fleet, "windlass run list -n shop");
    assert!(
        !own.contains("web-1") && own.contains("shop/menu-rollback-0-"),
        "{own}"
    );
}
