//! Add-on repositories on a real API server: charts packed, indexed and pushed by the real Helm, in folders
//! behind a web server that can be told to misbehave, and in a real registry.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod changes;
mod faults;
mod healthy;
mod refused;
mod registry;
mod schedule;

use std::cell::RefCell;

use serde_json::Value;
use windlass_status::kstatus;
use windlass_tests::charts::{Helm, Registry, Web};
use windlass_tests::{Fleet, eventually};

/// Of the classic repository that asks for one.
const PASSWORD: &str = "bollard-and-cleat";
/// What no registry takes.
const WRONG_PASSWORD: &str = "guessed-by-a-gull";
/// In the query of a url, and in a url that a server redirects to.
const IN_URL: &str = "token-in-a-url";

/// Read, and all written.
const HEALTHY: &str = "Ready=True/Success Synced=True/Success";

/// Everything that the hub can tell: no credential is in any of it.
const LOUD: (&str, &str) = ("WINDLASS_LOG_LEVEL", "trace");

/// What all of it runs on.
struct Bed {
    fleet: Fleet,
    helm: Helm,
    web: Web,
}

impl Bed {
    fn repository(&self, name: &str, spec: &str) {
        self.fleet.apply("hub", &repository(name, spec));
    }

    /// A merge patch without blanks.
    fn patch(&self, name: &str, patch: &str) {
        let args = format!("patch addonrepo {name} --type merge -p {patch}");
        self.fleet.kubectl("hub", &args);
    }

    /// As the API server has it.
    fn object(&self, name: &str) -> Value {
        let text = self.fleet.get("hub", &format!("addonrepo {name}"), "{}");
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Waits until a repository's conditions are these and no other ones, and until kstatus says that.
    fn stands(&self, name: &str, conditions: &str, verdict: kstatus::Status) -> Value {
        let seen = Last::default();
        eventually(&format!("{name}: {conditions}, {verdict}"), || {
            let object = self.object(name);
            let (told, says) = (conditions_of(&object), verdict_of(&object));
            let holds = told == conditions && says == verdict && is_of_now(&object);
            seen.note(format!("{told}, {says}: {}", object["status"]));
            holds
        });
        self.object(name)
    }

    /// The AddonCharts of a repository, by chart.
    fn charts(&self, repository: &str) -> Vec<Value> {
        let text = self.fleet.get("hub", "addoncharts", "{.items}");
        let all: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
        let mut ours: Vec<Value> = all
            .into_iter()
            .filter(|chart| chart["spec"]["repository"] == repository)
            .collect();
        ours.sort_by_key(|chart| chart["spec"]["chart"].to_string());
        ours
    }

    /// `CHART: VERSION VERSION` of each AddonChart, and ` (N more)` where some are left out.
    fn offers(&self, repository: &str) -> Vec<String> {
        let charts = self.charts(repository);
        charts.iter().map(|chart| offer(&chart["spec"])).collect()
    }

    /// Asks for an attempt, and waits until it was made.
    fn sync(&self, name: &str, request: &str) {
        self.ask(name, request);
        eventually("the attempt was made", || {
            self.object(name)["status"]["lastHandledSyncRequest"] == request
        });
    }

    fn ask(&self, name: &str, request: &str) {
        let args = format!(
            "annotate addonrepo {name} --overwrite windlass.dev/sync-requested-at={request}"
        );
        self.fleet.kubectl("hub", &args);
    }

    /// How often the web server was asked for an index, by path of the folder.
    fn asked(&self, folder: &str) -> usize {
        self.web.requests(&format!("{folder}/index.yaml")).len()
    }

    /// Notes of the events about a repository with this reason.
    fn events(&self, name: &str, reason: &str) -> Vec<String> {
        let text = self
            .fleet
            .get("hub", "events.events.k8s.io -n default", "{.items}");
        let all: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
        all.iter()
            .filter(|event| event["regarding"]["name"] == name && event["reason"] == reason)
            .map(|event| format!("{} {}", text_of(&event["type"]), text_of(&event["note"])))
            .collect()
    }
}

/// What was seen last; shown when the test fails.
#[derive(Default)]
struct Last(RefCell<String>);

impl Last {
    fn note(&self, seen: String) {
        *self.0.borrow_mut() = seen;
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seen last: {}", self.0.borrow());
        }
    }
}

fn repository(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: addons.windlass.dev/v1alpha1, kind: AddonRepository, metadata: {{name: {name}}}, spec: {spec}}}"
    )
}

/// A Secret in the hub's namespace.
fn secret(name: &str, data: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: fleet-system}}, stringData: {data}}}"
    )
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn offer(spec: &Value) -> String {
    let versions = spec["versions"].as_array().unwrap();
    let versions: Vec<&str> = versions
        .iter()
        .map(|version| text_of(&version["version"]))
        .collect();
    let more = spec["omittedVersions"].as_u64();
    let more = more.map_or(String::new(), |more| format!(" ({more} more)"));
    format!("{}: {}{more}", text_of(&spec["chart"]), versions.join(" "))
}

/// `TYPE=STATUS/REASON` of all conditions, in their order.
fn conditions_of(object: &Value) -> String {
    let all = object["status"]["conditions"].as_array();
    let all = all.into_iter().flatten().map(|condition| {
        let of = |field: &str| text_of(&condition[field]);
        format!("{}={}/{}", of("type"), of("status"), of("reason"))
    });
    all.collect::<Vec<_>>().join(" ")
}

fn condition<'a>(object: &'a Value, type_: &str) -> &'a Value {
    let all = object["status"]["conditions"].as_array();
    all.into_iter()
        .flatten()
        .find(|condition| condition["type"] == type_)
        .unwrap_or(&Value::Null)
}

/// A message of a condition; empty where there is none.
fn message<'a>(object: &'a Value, type_: &str) -> &'a str {
    text_of(&condition(object, type_)["message"])
}

fn verdict_of(object: &Value) -> kstatus::Status {
    kstatus::compute(object, jiff::Timestamp::UNIX_EPOCH).status
}

/// Whether status and conditions are about the present generation.
fn is_of_now(object: &Value) -> bool {
    let generation = &object["metadata"]["generation"];
    let all = object["status"]["conditions"].as_array();
    object["status"]["observedGeneration"] == *generation
        && all
            .into_iter()
            .flatten()
            .filter(|condition| condition["type"] != "Synced")
            .all(|condition| condition["observedGeneration"] == *generation)
}

fn time(value: &Value) -> jiff::Timestamp {
    text_of(value).parse().unwrap()
}

#[test]
fn repositories_on_a_real_api_server() {
    let mut fleet = Fleet::up("addon-repositories", 0);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    let account = fleet.hub_kubeconfig();
    fleet.start_hub_in(&account, &[], &[LOUD]);
    let mut bed = Bed {
        fleet,
        helm: Helm::new("addon-repositories"),
        web: Web::start(),
    };
    refused::what_can_not_work_is_refused(&bed);
    changes::a_catalogue_that_can_not_be_written_is_said_so(&bed);
    faults::every_fault_is_called_by_its_name(&bed);
    healthy::a_classic_repository_is_read(&bed);
    let registry = registry::a_registry_is_read(&bed);
    registry::a_registry_with_tls_is_read(&bed);
    changes::a_repository_is_mended(&bed);
    changes::a_request_is_one_attempt(&bed);
    changes::a_suspended_repository_is_left_alone(&bed);
    changes::a_change_of_the_spec_is_acted_on_at_once(&bed);
    changes::what_goes_upstream_goes_here_unless_it_is_used(&bed);
    changes::what_is_deleted_goes(&bed);
    changes::what_could_not_be_written_is_written(&bed);
    schedule::at_rest_nothing_is_written(&bed);
    schedule::another_leader_asks_for_nothing(&mut bed);
    schedule::failures_have_their_distances_and_recover_by_themselves(&mut bed);
    schedule::what_somebody_changes_of_a_registry_is_restored(&bed);
    drop(registry);
    no_credential_is_shown(&bed);
}

fn no_credential_is_shown(bed: &Bed) {
    let mut all = vec![
        ("the log", bed.fleet.log()),
        ("the metrics", bed.fleet.http("/metrics").unwrap()),
    ];
    for (place, what) in [
        ("events", "events.events.k8s.io -A"),
        ("repositories", "addonrepositories"),
        ("charts", "addoncharts"),
    ] {
        let mut text = bed.fleet.get("hub", what, "{.items}");
        // A url in a spec is what the user wrote.
        if what == "addonrepositories" {
            text = bed.fleet.get("hub", what, "{.items[*].status}");
        }
        assert!(!text.is_empty(), "{place}");
        all.push((place, text));
    }
    let basic = faults::basic(faults::USER, PASSWORD);
    let basic = basic.trim_start_matches("Basic ");
    for secret in [PASSWORD, WRONG_PASSWORD, IN_URL, Registry::PASSWORD, basic] {
        for (place, text) in &all {
            assert!(!text.contains(secret), "{secret} stands in {place}");
        }
    }
}
