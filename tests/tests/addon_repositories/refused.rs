//! What the API server refuses, and what passes it and can't work all the same.

use windlass_status::kstatus::Status;

use crate::{Bed, message, repository};

pub fn what_can_not_work_is_refused(bed: &Bed) {
    for (spec, words) in [
        ("{}", "spec.url"),
        ("{url: ''}", "spec.url"),
        ("{url: charts.example.com}", "spec.url"),
        ("{url: 'ftp://charts.example.com/'}", "spec.url"),
        ("{url: 'https://'}", "spec.url"),
        (
            "{url: 'https://ada:lovelace@charts.example.com/'}",
            "put them into the Secret that secretRef names",
        ),
        (
            "{url: 'oci://ada@registry.example.com/web'}",
            "put them into the Secret that secretRef names",
        ),
        (
            "{url: 'https://a.b', interval: 29s}",
            "interval must be a duration from 30s to 24h",
        ),
        (
            "{url: 'https://a.b', interval: 25h}",
            "interval must be a duration from 30s to 24h",
        ),
        (
            "{url: 'https://a.b', interval: often}",
            "interval must be a duration from 30s to 24h",
        ),
        (
            "{url: 'https://a.b', timeout: 11m}",
            "timeout must be a duration from 1s to 10m",
        ),
        (
            "{url: 'https://a.b', timeout: 0s}",
            "timeout must be a duration from 1s to 10m",
        ),
        ("{url: 'https://a.b', suspend: sometimes}", "suspend"),
        ("{url: 'https://a.b', charts: []}", "spec.charts"),
        ("{url: 'https://a.b', charts: [a, a]}", "duplicate entries"),
        ("{url: 'https://a.b', maxVersions: 0}", "spec.maxVersions"),
        (
            "{url: 'https://a.b', secretRef: {name: ''}}",
            "spec.secretRef.name",
        ),
        (
            "{url: 'https://a.b', password: lovelace}",
            "field not declared in schema",
        ),
    ] {
        let manifest = repository("refused", spec);
        let apply = "apply --server-side --dry-run=server -f -";
        let said = bed.fleet.try_kubectl("hub", apply, Some(&manifest));
        assert!(said.is_err(), "accepted: {spec}");
        let said = said.unwrap_err();
        assert!(said.contains(words), "{spec}: {said}");
    }
    // What no pattern finds.
    for (name, url, words) in [
        ("no-host", "https://[::1", "url is none"),
        ("no-chart", "oci://registry.example.com", "names no chart"),
        (
            "no-name",
            "oci://registry.example.com/UP/case",
            "no name in a registry",
        ),
        ("metadata", "http://169.254.169.254/latest", "link-local"),
    ] {
        bed.repository(name, &format!("{{url: '{url}'}}"));
        let conditions = "Ready=False/InvalidRepositoryURL Stalled=True/InvalidRepositoryURL";
        let object = bed.stands(name, conditions, Status::Failed);
        assert!(message(&object, "Ready").contains(words), "{object}");
        assert!(
            object["status"]["nextSyncTime"].is_null(),
            "it waits for another url"
        );
        bed.fleet
            .kubectl("hub", &format!("delete addonrepo {name} --timeout=20s"));
    }
}
