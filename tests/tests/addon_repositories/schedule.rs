//! When a server is asked: never but on its day, whoever leads, and at the end by itself.

use std::time::Duration;

use windlass_status::kstatus::Status;
use windlass_tests::charts::Reply;
use windlass_tests::eventually;

use crate::faults::INDEX;
use crate::{Bed, HEALTHY, LOUD, conditions_of, message, text_of};

/// Repositories are read every second; what waits already waits on.
const COMPRESSED: (&str, &str) = ("WINDLASS_ADDON_INTERVAL", "1");
/// Seconds that lie at least between two attempts, after one, two … failures: less a tenth, and less the second
/// whose part is not stored.
const LEAST: [f64; 5] = [0.0, 0.8, 2.6, 6.2, 13.4];

pub fn at_rest_nothing_is_written(bed: &Bed) {
    let before = bed.fleet.settled(|_| true);
    let asked = bed.web.count();
    assert_eq!(bed.fleet.settled(|_| true), before);
    assert_eq!(bed.web.count(), asked, "and nobody is asked");
}

pub fn another_leader_asks_for_nothing(bed: &mut Bed) {
    let status = |bed: &Bed| {
        bed.fleet
            .get("hub", "addonrepositories", "{.items[*].status}")
    };
    let (before, asked) = (status(bed), bed.web.count());
    assert!(before.contains("ProgressingWithRetry") && before.contains("SourceRejectedRequest"));
    let account = bed.fleet.hub_kubeconfig();
    let other = bed.fleet.spawn_hub_with(&account, &[], &[COMPRESSED, LOUD]);
    eventually("another one stands by", || other.is_ready());
    bed.fleet.hand_over(other);
    drop(bed.fleet.settled(|_| true));
    assert_eq!(bed.web.count(), asked);
    assert_eq!(status(bed), before);
}

pub fn failures_have_their_distances_and_recover_by_themselves(bed: &mut Bed) {
    // A server that says when is asked once in an attempt. That is sooner than the schedule, which holds.
    let fails =
        |status: u16| Reply::With(status, vec![("retry-after", "0".to_owned())], Vec::new());
    bed.web.reply("/failing/index.yaml", fails(500));
    bed.repository("failing", &format!("{{url: '{}/failing'}}", bed.web.url()));
    let failures = |bed: &Bed, count: u64| {
        eventually("it fails", || {
            bed.object("failing")["status"]["consecutiveFetchFailures"] == count
        });
    };
    failures(bed, 4);
    // The next one is seconds away, and another repository is being read. A process that dies now leaves both to
    // another one.
    bed.web
        .reply("/hangs/index.yaml", Reply::Stuck(INDEX.into()));
    bed.repository("hangs", &format!("{{url: '{}/hangs'}}", bed.web.url()));
    eventually("it is being read", || bed.asked("/hangs") == 1);
    bed.fleet.kill_hub();
    assert!(bed.object("hangs")["status"]["lastSuccessfulFetchTime"].is_null());
    bed.web.reply("/hangs/index.yaml", Reply::text(INDEX));
    bed.web.reply("/failing/index.yaml", fails(502));
    let account = bed.fleet.hub_kubeconfig();
    bed.fleet.start_hub_in(&account, &[], &[COMPRESSED, LOUD]);
    bed.stands("hangs", HEALTHY, Status::Current);
    assert_eq!(bed.offers("hangs"), ["web: 1.0.0"]);
    bed.fleet.kubectl("hub", "delete addonrepo hangs");
    failures(bed, 5);
    let stalled =
        "Ready=False/RetriesExceeded Synced=False/SyncFailed Stalled=True/RetriesExceeded";
    let object = bed.stands("failing", stalled, Status::Failed);
    let said = message(&object, "Stalled");
    assert!(
        said.contains("Attempts keep failing") && said.contains("502 Bad Gateway"),
        "{said}"
    );
    bed.web.reply("/failing/index.yaml", Reply::text(INDEX));
    what_somebody_changes_is_restored(bed);
    let object = bed.stands("failing", HEALTHY, Status::Current);
    assert!(object["status"]["consecutiveFetchFailures"].is_null());
    let requests = bed.web.requests("/failing/index.yaml");
    let statuses: Vec<u16> = requests.iter().take(6).map(|asked| asked.status).collect();
    assert_eq!(statuses, [500, 500, 500, 500, 502, 200]);
    for (number, (pair, least)) in requests.windows(2).zip(LEAST).enumerate() {
        let distance = pair[1].at - pair[0].at;
        println!("distance after {} failures: {distance:?}", number + 1);
        assert!(
            distance >= Duration::from_secs_f64(least),
            "after {} failures: {distance:?}",
            number + 1
        );
    }
    bed.fleet.kubectl("hub", "delete addonrepo failing");
}

/// While a server says that nothing has changed.
fn what_somebody_changes_is_restored(bed: &Bed) {
    bed.web.reply("/often/index.yaml", Reply::text(INDEX));
    bed.repository("often", &format!("{{url: '{}/often'}}", bed.web.url()));
    let told = || {
        let requests = bed.web.requests("/often/index.yaml");
        requests.iter().filter(|asked| asked.status == 304).count()
    };
    let unchanged = || {
        let before = told();
        eventually("the server is asked for news and has none", || {
            told() > before
        });
    };
    unchanged();
    let whole = || {
        let chart = bed.charts("often").into_iter().next().unwrap_or_default();
        let metadata = &chart["metadata"];
        let (labels, owners) = (&metadata["labels"], &metadata["ownerReferences"]);
        serde_json::json!([metadata["name"], labels, owners, chart["spec"]])
    };
    let before = whole();
    let name = text_of(&before[0]);
    for change in [
        "patch {} --type merge -p {\"spec\":{\"latest\":\"9.9.9\",\"versions\":[]}}",
        "patch {} --type merge -p {\"spec\":{\"repository\":\"elsewhere\"}}",
        "patch {} --type merge -p {\"metadata\":{\"ownerReferences\":null,\"labels\":null}}",
        "delete {}",
    ] {
        let args = change.replace("{}", &format!("addonchart {name}"));
        bed.fleet.kubectl("hub", &args);
        eventually(&format!("it is restored after: {args}"), || {
            whole() == before
        });
        unchanged();
    }
    assert_eq!(conditions_of(&bed.object("often")), HEALTHY);
    bed.fleet.kubectl("hub", "delete addonrepo often");
}

/// Also what is not looked at in each reading of a registry.
pub fn what_somebody_changes_of_a_registry_is_restored(bed: &Bed) {
    let versions = || bed.charts("registry").pop().unwrap_or_default()["spec"]["versions"].clone();
    let synced = || bed.object("registry")["status"]["lastSuccessfulSyncTime"].clone();
    let (before, last) = (versions(), synced());
    bed.patch("registry", "{\"spec\":{\"timeout\":\"30s\"}}");
    eventually("it is read again", || synced() != last);
    let name = bed.charts("registry").pop().unwrap_or_default()["metadata"]["name"].clone();
    let patch = r#"[{"op":"replace","path":"/spec/versions/25/digest","value":"sha256:0"}]"#;
    let name = text_of(&name);
    bed.fleet.kubectl(
        "hub",
        &format!("patch addonchart {name} --type json -p {patch}"),
    );
    eventually("the digest is the registry's", || versions() == before);
}
