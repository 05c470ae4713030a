//! What users do: mend, ask, suspend, change, delete.

use serde_json::{Value, json};
use windlass_status::kstatus::Status;
use windlass_tests::charts::{Auth, Chart, Registry, Reply};
use windlass_tests::eventually;

use crate::faults::INDEX;
use crate::{Bed, HEALTHY, conditions_of, text_of};

/// An index with these charts, each in one version.
fn index(charts: &[&str]) -> Reply {
    let mut text = "apiVersion: v1\nentries:\n".to_owned();
    for chart in charts {
        text.push_str(&format!(
            "  {chart}:\n  - {{apiVersion: v2, name: {chart}, version: 1.0.0, urls: [{chart}.tgz]}}\n"
        ));
    }
    Reply::text(&text)
}

/// A repository that was never read and one that was, both stalled: conditions go from the real object.
pub fn a_repository_is_mended(bed: &Bed) {
    for name in ["fresh-404", "latched-401"] {
        let before = conditions_of(&bed.object(name));
        assert!(before.contains("Stalled=True"), "{before}");
        let folder = name.replace('-', "/");
        bed.web
            .reply(&format!("/{folder}/index.yaml"), Reply::text(INDEX));
        bed.sync(name, "mended");
        let object = bed.stands(name, HEALTHY, Status::Current);
        assert!(object["status"]["consecutiveFetchFailures"].is_null());
        assert_eq!(bed.offers(name), ["web: 1.0.0"]);
        bed.fleet.kubectl(
            "hub",
            &format!("wait addonrepo/{name} --for=condition=Ready --timeout=5s"),
        );
    }
}

pub fn a_request_is_one_attempt(bed: &Bed) {
    let asked = bed.asked("/charts");
    bed.sync("classic", "monday");
    let object = bed.stands("classic", HEALTHY, Status::Current);
    assert_eq!(bed.asked("/charts"), asked + 1);
    // The same request again, and a change of something else, are no new one.
    bed.ask("classic", "monday");
    bed.fleet.kubectl("hub", "label addonrepo classic team=web");
    bed.sync("some", "monday");
    let now = bed.object("classic");
    assert_eq!(now["status"], object["status"]);
    assert_eq!(bed.asked("/charts"), asked + 2, "one of each repository");
    bed.sync("classic", "tuesday");
    assert_eq!(bed.asked("/charts"), asked + 3);
}

pub fn a_suspended_repository_is_left_alone(bed: &Bed) {
    let asked = bed.asked("/charts");
    bed.patch("some", "{\"spec\":{\"suspend\":true}}");
    let suspended = "Ready=True/Suspended Synced=True/Success";
    bed.stands("some", suspended, Status::Current);
    bed.ask("some", "in-vain");
    // Something else that is done in the meantime shows that the queue has come by.
    bed.sync("classic", "wednesday");
    let object = bed.stands("some", suspended, Status::Current);
    assert_ne!(object["status"]["lastHandledSyncRequest"], "in-vain");
    assert_eq!(bed.asked("/charts"), asked + 1);
    assert_eq!(bed.offers("some"), ["web: 2.0.0-rc.1 1.10.0 (3 more)"]);
    // Never read, and not to be read.
    let url = format!("{}/charts", bed.web.url());
    bed.repository("asleep", &format!("{{url: '{url}', suspend: true}}"));
    let unread = "Ready=Unknown/AwaitingInitialSync Reconciling=True/Suspended";
    let object = bed.stands("asleep", unread, Status::InProgress);
    assert!(crate::message(&object, "Ready").contains("spec.suspend is true"));
    assert_eq!(bed.asked("/charts"), asked + 1);
    bed.patch("some", "{\"spec\":{\"suspend\":false}}");
    let object = bed.stands("some", HEALTHY, Status::Current);
    assert_eq!(
        object["status"]["lastHandledSyncRequest"], "in-vain",
        "it is answered now"
    );
    assert_eq!(bed.asked("/charts"), asked + 2, "at once, and once");
    bed.fleet.kubectl("hub", "delete addonrepo asleep");
}

pub fn a_change_of_the_spec_is_acted_on_at_once(bed: &Bed) {
    bed.web.reply("/one/index.yaml", index(&["a", "b"]));
    bed.web.reply("/two/index.yaml", index(&["b", "c"]));
    let spec = |path: &str| format!("{{url: '{}{path}'}}", bed.web.url());
    // From what is not there to what is: nothing of the stall stays.
    bed.repository("moves", &spec("/nowhere"));
    let missing = "Ready=False/SourceNotFound Synced=False/SyncFailed Stalled=True/SourceNotFound";
    bed.stands("moves", missing, Status::Failed);
    bed.repository("moves", &spec("/one"));
    bed.stands("moves", HEALTHY, Status::Current);
    assert_eq!(bed.offers("moves"), ["a: 1.0.0", "b: 1.0.0"]);
    let of_b = |bed: &Bed| {
        let all = bed.charts("moves");
        let of = all
            .iter()
            .find(|chart| chart["spec"]["chart"] == "b")
            .unwrap();
        text_of(&of["metadata"]["uid"]).to_owned()
    };
    let before = of_b(bed);
    bed.repository("moves", &spec("/two"));
    eventually("it offers what the other one does", || {
        bed.offers("moves") == ["b: 1.0.0", "c: 1.0.0"]
    });
    assert_eq!(of_b(bed), before, "what both offer is not made anew");
    // What was read elsewhere is no evidence that this can be.
    bed.web.reply("/three/index.yaml", Reply::status(503));
    bed.repository("moves", &spec("/three"));
    let unread = "Ready=Unknown/AwaitingInitialSync Synced=False/SyncFailed Reconciling=True/ProgressingWithRetry";
    bed.stands("moves", unread, Status::InProgress);
    assert_eq!(
        bed.offers("moves"),
        ["b: 1.0.0", "c: 1.0.0"],
        "nothing is pruned"
    );
    // From one kind to the other.
    let registry = Registry::start("addon-repositories", Auth::Open, None);
    let archive = bed.helm.pack("pushed", &Chart::new("d", "0.1.0"));
    registry.push(&bed.helm, &archive, "team", None);
    bed.repository(
        "moves",
        &format!("{{url: 'oci://{}/team/d'}}", registry.host()),
    );
    bed.stands("moves", HEALTHY, Status::Current);
    assert_eq!(bed.offers("moves"), ["d: 0.1.0"]);
    bed.repository("moves", &spec("/one"));
    bed.stands("moves", HEALTHY, Status::Current);
    assert_eq!(bed.offers("moves"), ["a: 1.0.0", "b: 1.0.0"]);
}

/// An Addon of a version of a chart.
fn addon(name: &str, chart: &str) -> String {
    format!(
        "{{apiVersion: addons.windlass.dev/v1alpha1, kind: Addon, metadata: {{name: {name}}}, \
         spec: {{chart: {{repository: upstream, name: {chart}, version: 1.0.0}}, values: {{}}, namespace: {name}, \
         placement: {{inline: {{}}}}}}}}"
    )
}

pub fn what_goes_upstream_goes_here_unless_it_is_used(bed: &Bed) {
    bed.web
        .reply("/upstream/index.yaml", index(&["kept", "stays", "unused"]));
    bed.repository(
        "upstream",
        &format!("{{url: '{}/upstream'}}", bed.web.url()),
    );
    bed.stands("upstream", HEALTHY, Status::Current);
    bed.fleet.apply("hub", &addon("uses", "kept"));
    eventually("the hub has seen the Addon", || {
        let what = "addons.addons.windlass.dev uses";
        !bed.fleet
            .get("hub", what, "{.status.conditions}")
            .is_empty()
    });
    bed.web.reply("/upstream/index.yaml", index(&["stays"]));
    bed.sync("upstream", "gone");
    assert_eq!(bed.offers("upstream"), ["kept: 1.0.0", "stays: 1.0.0"]);
    let kept = &bed.charts("upstream")[0]["spec"];
    assert_eq!(kept["versions"][0]["unavailable"], "RemovedFromRepository");
    let object = bed.stands("upstream", HEALTHY, Status::Current);
    assert_eq!(object["status"]["chartCount"], 1, "what it offers itself");
    // It is back; and one that really offers nothing any more is believed.
    bed.web.reply("/upstream/index.yaml", index(&["kept"]));
    bed.sync("upstream", "back");
    assert_eq!(bed.offers("upstream"), ["kept: 1.0.0"]);
    assert!(bed.charts("upstream")[0]["spec"]["versions"][0]["unavailable"].is_null());
    bed.fleet.kubectl(
        "hub",
        "delete addons.addons.windlass.dev uses --timeout=30s",
    );
    bed.web.reply(
        "/upstream/index.yaml",
        Reply::text("apiVersion: v1\nentries: {}\n"),
    );
    bed.sync("upstream", "empty");
    let object = bed.stands("upstream", HEALTHY, Status::Current);
    assert_eq!(object["status"]["chartCount"], 0);
    eventually("nothing is left", || bed.charts("upstream").is_empty());
}

/// A catalogue that can't be written is no fault of the repository, and never looks well.
pub fn a_catalogue_that_can_not_be_written_is_said_so(bed: &Bed) {
    let role = |bed: &Bed, may: bool| {
        let text = bed.fleet.get("hub", "clusterrole windlass-hub-write", "{}");
        let mut role: Value = serde_json::from_str(&text).unwrap();
        for rule in role["rules"].as_array_mut().unwrap() {
            if rule["resources"] == json!(["addoncharts"]) {
                let verbs = ["get", "list", "watch", "create", "update", "delete"];
                rule["verbs"] = json!(&verbs[..if may { verbs.len() } else { 3 }]);
            }
        }
        let done = bed
            .fleet
            .try_kubectl("hub", "replace -f -", Some(&role.to_string()));
        done.unwrap();
    };
    role(bed, false);
    // The API server takes note of it by and by.
    eventually("the hub may make no AddonCharts", || {
        let can = "auth can-i create addoncharts --as=system:serviceaccount:fleet-system:windlass";
        bed.fleet.try_kubectl("hub", can, None).is_err()
    });
    bed.web.reply("/unwritten/index.yaml", index(&["a", "b"]));
    bed.repository(
        "unwritten",
        &format!("{{url: '{}/unwritten'}}", bed.web.url()),
    );
    let conditions =
        "Ready=True/Success Synced=False/CatalogUpdateFailed Reconciling=True/ProgressingWithRetry";
    let object = bed.stands("unwritten", conditions, Status::InProgress);
    let said = crate::message(&object, "Synced");
    assert!(
        said.contains("addoncharts") && said.contains("forbidden"),
        "{said}"
    );
    assert!(
        object["status"]["consecutiveFetchFailures"].is_null(),
        "it was read"
    );
    assert!(object["status"]["lastSuccessfulSyncTime"].is_null());
    role(bed, true);
}

/// Half a minute later, by itself.
pub fn what_could_not_be_written_is_written(bed: &Bed) {
    bed.stands("unwritten", HEALTHY, Status::Current);
    assert_eq!(bed.offers("unwritten"), ["a: 1.0.0", "b: 1.0.0"]);
}

/// A healthy one, a stalled one and one that retries.
pub fn what_is_deleted_goes(bed: &Bed) {
    assert!(!bed.charts("latched-500").is_empty() && !bed.charts("classic").is_empty());
    for name in ["classic", "latched-500", "fresh-403"] {
        bed.fleet
            .kubectl("hub", &format!("delete addonrepo {name} --timeout=20s"));
    }
    eventually("their AddonCharts are collected", || {
        bed.charts("latched-500").is_empty() && bed.charts("classic").is_empty()
    });
    assert!(!bed.charts("some").is_empty());
}
