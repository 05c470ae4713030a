//! A real registry with charts that real Helm has pushed.

use serde_json::Value;
use windlass_status::kstatus::Status;
use windlass_tests::charts::{Auth, Chart, Helm, Registry, Reply};
use windlass_tests::eventually;

use crate::{Bed, HEALTHY, WRONG_PASSWORD, message, secret, text_of};

/// Versions of the chart `web` that are pushed: more than a reading watches.
const VERSIONS: usize = 30;

const REFUSED: &str =
    "Ready=False/AuthenticationFailed Synced=False/SyncFailed Stalled=True/AuthenticationFailed";

/// Starts a registry and pushes to it, a few charts at once.
fn filled(helm: &Helm) -> Registry {
    let registry = Registry::start("addon-repositories", Auth::Basic, None);
    let to = &registry;
    let mut charts: Vec<Chart> = (0..VERSIONS)
        .map(|number| {
            Chart::new("web", &format!("1.{number}.0")).with("description: Serves pages.")
        })
        .collect();
    charts.push(Chart::new("web", "2.0.0+build.5").with("appVersion: '8'"));
    charts.push(Chart::new("api", "0.1.0"));
    let archives: Vec<_> = charts
        .iter()
        .map(|chart| helm.pack("pushed", chart))
        .collect();
    std::thread::scope(|scope| {
        for some in archives.chunks(archives.len().div_ceil(4)) {
            scope.spawn(move || {
                for archive in some {
                    to.push(helm, archive, "team/charts", None);
                }
            });
        }
    });
    registry
}

fn credentials(bed: &Bed, password: &str) {
    let user = Registry::USER;
    let data = format!("{{username: {user}, password: {password}}}");
    bed.fleet.apply("hub", &secret("registry", &data));
}

/// The registry is for who goes on with it.
pub fn a_registry_is_read(bed: &Bed) -> Registry {
    let registry = filled(&bed.helm);
    let url = format!("oci://{}/team/charts", registry.host());
    // Whoever has no credentials is told that they may be wanted.
    bed.repository("anonymous", &format!("{{url: '{url}/web'}}"));
    let object = bed.stands("anonymous", REFUSED, Status::Failed);
    assert!(
        message(&object, "Stalled").contains("spec.secretRef"),
        "{object}"
    );
    bed.fleet.kubectl("hub", "delete addonrepo anonymous");

    let spec = format!("{{url: '{url}', charts: [web, api], secretRef: {{name: registry}}}}");
    bed.repository("registry", &spec);
    let missing = "Ready=False/AuxiliaryResourcesFailed Reconciling=True/ProgressingWithRetry";
    let object = bed.stands("registry", missing, Status::InProgress);
    let said = message(&object, "Ready");
    assert!(
        said.contains("Secret registry is not in namespace fleet-system"),
        "{said}"
    );

    // From here on, nobody touches the repository.
    let generation = object["metadata"]["generation"].clone();
    credentials(bed, WRONG_PASSWORD);
    let object = bed.stands("registry", REFUSED, Status::Failed);
    assert!(message(&object, "Stalled").contains("401"), "{object}");
    credentials(bed, Registry::PASSWORD);
    let object = bed.stands("registry", HEALTHY, Status::Current);
    assert_eq!(object["metadata"]["generation"], generation);
    assert_eq!(object["status"]["chartCount"], 2);
    let web: Vec<String> = (0..VERSIONS)
        .rev()
        .map(|number| format!("1.{number}.0"))
        .collect();
    let offers = [
        "api: 0.1.0".to_owned(),
        format!("web: 2.0.0+build.5 {}", web.join(" ")),
    ];
    assert_eq!(bed.offers("registry"), offers);
    let spec = &bed.charts("registry")[1]["spec"];
    assert_eq!(spec["latest"], "2.0.0+build.5");
    let newest = &spec["versions"][0];
    assert_eq!(newest["appVersion"], "8");
    assert!(
        text_of(&newest["digest"]).starts_with("sha256:"),
        "{newest}"
    );
    let unread = spec["versions"].as_array().unwrap().iter();
    assert_eq!(
        unread
            .filter(|version| !version["unavailable"].is_null())
            .count(),
        0
    );

    bed.fleet
        .kubectl("hub", "delete secret registry -n fleet-system");
    eventually("it says what is missing", || {
        let object = bed.object("registry");
        message(&object, "Ready").contains("Secret registry is not in namespace")
    });
    assert_eq!(bed.offers("registry"), offers, "what was known stays");
    credentials(bed, Registry::PASSWORD);
    bed.stands("registry", HEALTHY, Status::Current);
    one_chart_that_is_not_there(bed, &url);
    what_another_place_says_is_forgotten(bed, &url);
    registry
}

fn one_chart_that_is_not_there(bed: &Bed, url: &str) {
    let spec = format!("{{url: '{url}/none', secretRef: {{name: registry}}}}");
    bed.repository("none", &spec);
    let missing = "Ready=False/SourceNotFound Synced=False/SyncFailed Stalled=True/SourceNotFound";
    let object = bed.stands("none", missing, Status::Failed);
    assert!(
        message(&object, "Ready").contains("team/charts/none"),
        "{object}"
    );
}

/// The same versions of the same chart, first in a classic repository.
fn what_another_place_says_is_forgotten(bed: &Bed, url: &str) {
    let mut index = "apiVersion: v1\nentries:\n  web:\n".to_owned();
    for number in 0..VERSIONS {
        index.push_str(&format!(
            "  - {{name: web, version: 1.{number}.0, urls: [web.tgz], digest: '{number:064}'}}\n"
        ));
    }
    bed.web.reply("/same/index.yaml", Reply::text(&index));
    let digests = || -> Vec<String> {
        let charts = bed.charts("same");
        let versions = charts
            .iter()
            .flat_map(|chart| chart["spec"]["versions"].as_array());
        let of = |version: &Value| text_of(&version["digest"]).to_owned();
        versions.flatten().map(of).collect()
    };
    bed.repository("same", &format!("{{url: '{}/same'}}", bed.web.url()));
    bed.stands("same", HEALTHY, Status::Current);
    assert_eq!(digests().len(), VERSIONS);
    let spec = format!("{{url: '{url}/web', secretRef: {{name: registry}}}}");
    bed.repository("same", &spec);
    bed.stands("same", HEALTHY, Status::Current);
    let digests = digests();
    assert_eq!(digests.len(), VERSIONS + 1);
    for digest in digests {
        assert!(digest.starts_with("sha256:"), "{digest}");
    }
}

pub fn a_registry_with_tls_is_read(bed: &Bed) {
    let tls = bed.fleet.tls();
    let registry = Registry::start("addon-repositories", Auth::Open, Some(&tls));
    let archive = bed.helm.pack("pushed", &Chart::new("web", "1.0.0"));
    registry.push(&bed.helm, &archive, "team", Some(&tls));
    let url = format!("oci://{}/team/web", registry.host());
    let spec = |more: &str| format!("{{url: '{url}', plainHTTP: false{more}}}");
    // Without the authority, with one that is none, with another one, and with the right one.
    bed.repository("distrusted", &spec(""));
    let passing = "Ready=Unknown/AwaitingInitialSync Synced=False/SyncFailed Reconciling=True/ProgressingWithRetry";
    let object = bed.stands("distrusted", passing, Status::InProgress);
    let said = message(&object, "Synced");
    assert!(
        said.contains("certificate") && said.contains("UnknownIssuer"),
        "{said}"
    );
    bed.fleet
        .apply("hub", &secret("authority", "{ca.crt: no certificate}"));
    bed.repository("trusted", &spec(", certSecretRef: {name: authority}"));
    let unusable = "Ready=False/AuxiliaryResourcesFailed Reconciling=True/ProgressingWithRetry";
    let object = bed.stands("trusted", unusable, Status::InProgress);
    assert!(message(&object, "Ready").contains("ca.crt"), "{object}");
    let authority = std::fs::read_to_string(&tls.authority).unwrap();
    let data = serde_json::json!({ "ca.crt": authority }).to_string();
    bed.fleet.apply("hub", &secret("authority", &data));
    bed.stands("trusted", HEALTHY, Status::Current);
    assert_eq!(bed.offers("trusted"), ["web: 1.0.0"]);
    bed.repository("insecure", &spec(", insecureSkipVerify: true"));
    bed.stands("insecure", HEALTHY, Status::Current);
}
