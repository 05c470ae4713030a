//! What is in the manifests.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use windlass_tests::root;

use super::Overlay;

/// What kustomize makes of a folder.
fn rendered(folder: &Path) -> Vec<Value> {
    let bin = std::process::Command::new(root().join("hack/fleet"))
        .arg("bin")
        .output()
        .unwrap()
        .stdout;
    let kubectl = Path::new(String::from_utf8(bin).unwrap().trim()).join("kubectl");
    let out = std::process::Command::new(kubectl)
        .arg("kustomize")
        .arg(folder)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let text = String::from_utf8(out.stdout).unwrap();
    yaml_serde::Deserializer::from_str(&text)
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

#[test]
fn no_write_right_has_a_wildcard() {
    const READS: [&str; 3] = ["get", "list", "watch"];
    let objects = rendered(&root().join("deploy"));
    let roles: Vec<&Value> = objects
        .iter()
        .filter(|object| object["kind"] == "ClusterRole" || object["kind"] == "Role")
        .collect();
    assert_eq!(
        roles.len(),
        5,
        "write, read, what agents get, the namespace's, the bypass"
    );
    for rule in roles
        .iter()
        // The networking agents' kinds are another project's: see below.
        .filter(|role| role["metadata"]["name"] != "windlass-hub-agents")
        .flat_map(|role| role["rules"].as_array().unwrap())
    {
        let list = |field: &str| -> Vec<&str> {
            rule[field]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect()
        };
        let is_read = list("verbs").iter().all(|verb| READS.contains(verb));
        let is_wild = ["apiGroups", "resources", "verbs"]
            .iter()
            .any(|field| list(field).contains(&"*"));
        assert!(is_read || !is_wild, "{rule}");
    }
    let agents = roles
        .iter()
        .find(|role| role["metadata"]["name"] == "windlass-hub-agents");
    for rule in agents.unwrap()["rules"].as_array().unwrap() {
        let groups: Vec<&str> = rule["apiGroups"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        assert!(!groups.contains(&"*"), "{rule}");
        let is_wild = ["resources", "verbs"].iter().any(|field| {
            let list = rule[field].as_array().into_iter().flatten();
            list.filter_map(Value::as_str).any(|one| one == "*")
        });
        assert!(
            !is_wild || groups == ["networking.fleet.azure.com"],
            "{rule}"
        );
        let is_core = groups.contains(&"");
        assert!(
            !is_core || rule["resources"] == serde_json::json!(["events"]),
            "{rule}"
        );
    }
}

#[test]
fn monitoring_is_an_option() {
    let kinds = |text: &str| -> Vec<String> {
        let overlay = Overlay::new("monitoring", text);
        rendered(&overlay.0)
            .iter()
            .map(|object| object["kind"].as_str().unwrap().to_owned())
            .collect()
    };
    let has = |kinds: &[String], kind: &str| kinds.iter().any(|known| known == kind);
    let plain = kinds("resources: [../../deploy]\n");
    assert!(!has(&plain, "PodMonitor") && has(&plain, "ValidatingAdmissionPolicy"));
    // Not every API server has the kind.
    assert!(!has(&plain, "MutatingAdmissionPolicy"));
    let recorded = kinds("resources: [../../deploy, ../../deploy/approvers]\n");
    assert!(has(&recorded, "MutatingAdmissionPolicy"));
    let monitored = kinds("resources: [../../deploy]\ncomponents: [../../deploy/monitoring]\n");
    assert!(has(&monitored, "PodMonitor"));
    let bare = kinds("resources: [../../crds, ../../deploy/base]\n");
    assert!(has(&bare, "Deployment") && !has(&bare, "ValidatingAdmissionPolicy"));
}
