//! A classic repository as real Helm makes it.

use std::io::Write;
use std::process::{Command, Stdio};

use windlass_status::kstatus::Status;
use windlass_tests::charts::{Chart, Reply};
use windlass_tests::eventually;

use crate::{Bed, HEALTHY, text_of};

/// What is no version, and no chart's name, among what Helm has written.
const BAD_ENTRIES: &str = "entries:
  ../escape:
  - {apiVersion: v2, name: ../escape, version: 1.0.0, urls: [x.tgz]}
";
const BAD_VERSION: &str = "
  web:
  - {apiVersion: v2, name: web, version: not-a-version, urls: [x.tgz]}
";

fn gzip(text: &str) -> Vec<u8> {
    let mut child = Command::new("gzip")
        .arg("-c")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap().stdout
}

pub fn a_classic_repository_is_read(bed: &Bed) {
    for version in ["0.9.0", "1.0.0", "1.10.0", "1.9.0", "2.0.0-rc.1"] {
        let chart = Chart::new("web", version)
            .with("description: Serves pages.")
            .with("appVersion: '7.1'");
        bed.helm.pack("charts", &chart);
    }
    let old = Chart::new("old", "1.0.0").with("deprecated: true");
    bed.helm.pack("charts", &old);
    bed.helm
        .pack("charts", &Chart::new("base", "0.1.0").with("type: library"));
    let index = bed.helm.index("charts");
    let index = index
        .replace("entries:\n", BAD_ENTRIES)
        .replace("\n  web:\n", BAD_VERSION);
    bed.web.serve("/charts", &bed.helm.path("charts"));
    let headers = vec![("content-encoding", "gzip".to_owned())];
    bed.web.reply(
        "/charts/index.yaml",
        Reply::With(200, headers, gzip(&index)),
    );
    let url = format!("{}/charts/", bed.web.url());
    bed.repository("classic", &format!("{{url: '{url}'}}"));
    bed.fleet.kubectl(
        "hub",
        "wait addonrepo/classic --for=condition=Ready --timeout=60s",
    );
    let object = bed.stands("classic", HEALTHY, Status::Current);
    let status = &object["status"];
    assert_eq!(
        (&status["chartCount"], &status["skippedEntries"]),
        (&3.into(), &2.into())
    );
    assert_eq!(
        status["lastSuccessfulSyncTime"],
        status["lastSuccessfulFetchTime"]
    );
    assert!(status["consecutiveFetchFailures"].is_null());
    assert_eq!(
        bed.offers("classic"),
        [
            "base: 0.1.0",
            "old: 1.0.0",
            "web: 2.0.0-rc.1 1.10.0 1.9.0 1.0.0 0.9.0"
        ]
    );
    let charts = bed.charts("classic");
    let web = &charts[2];
    assert_eq!(web["spec"]["latest"], "1.10.0", "no prerelease");
    assert_eq!(web["spec"]["description"], "Serves pages.");
    let newest = &web["spec"]["versions"][1];
    assert_eq!(newest["appVersion"], "7.1");
    assert_eq!(newest["urls"][0], "web-1.10.0.tgz");
    assert_eq!(text_of(&newest["digest"]).len(), 64, "{newest}");
    assert!(newest["created"].is_string());
    assert_eq!(charts[1]["spec"]["versions"][0]["deprecated"], true);
    assert_eq!(charts[0]["spec"]["versions"][0]["library"], true);
    assert_eq!(
        web["metadata"]["ownerReferences"][0]["uid"],
        object["metadata"]["uid"]
    );
    what_kubectl_shows(bed);
    eventually("an event tells of it", || {
        bed.events("classic", "Success") == ["Normal The repository can be read."]
    });
    only_what_is_asked_for_is_kept(bed);
}

fn what_kubectl_shows(bed: &Bed) {
    let table = |args: &str| -> Vec<Vec<String>> {
        let text = bed.fleet.kubectl("hub", args);
        // Columns are at least three blanks apart.
        let cells = |line: &str| -> Vec<String> {
            let cells = line.split("   ").map(str::trim);
            cells
                .filter(|cell| !cell.is_empty())
                .map(str::to_owned)
                .collect()
        };
        text.lines().map(cells).collect()
    };
    let columns = ["NAME", "READY", "SYNCED", "CHARTS", "LAST SYNC", "AGE"];
    let short = table("get addonrepo classic");
    assert_eq!(short[0], columns);
    assert_eq!(short[1][..4], ["classic", "True", "True", "3"]);
    assert_eq!(short[1].len(), columns.len());
    let wide = table("get addonrepo classic -o wide");
    assert_eq!(wide[0][6..], ["NEXT SYNC", "MESSAGE"]);
    let next = &bed.object("classic")["status"]["nextSyncTime"];
    assert_eq!(wide[1][6..], [text_of(next), "The repository can be read."]);
    let charts = bed.fleet.kubectl("hub", "get addoncharts");
    let row = charts.lines().find(|line| line.contains("web")).unwrap();
    let row: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(row[1..4], ["classic", "web", "1.10.0"]);
}

fn only_what_is_asked_for_is_kept(bed: &Bed) {
    let url = format!("{}/charts", bed.web.url());
    bed.repository(
        "some",
        &format!("{{url: '{url}', charts: [web], maxVersions: 2}}"),
    );
    bed.stands("some", HEALTHY, Status::Current);
    assert_eq!(bed.offers("some"), ["web: 2.0.0-rc.1 1.10.0 (3 more)"]);
    // Nothing of the other one is touched.
    assert_eq!(bed.offers("classic").len(), 3);
}
