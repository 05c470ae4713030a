//! Which version runs, and what random values do.

use windlass_tests::charts::Chart;
use windlass_tests::eventually;

use crate::bed::{Bed, addon};

const CONFIG: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: small}
data:
  version: {{ .Chart.Version | quote }}
  text: {{ .Files.Get \"text\" | trim | quote }}
  value: {{ .Values.value | default \"none\" | quote }}
";

const RANDOM: &str = "
apiVersion: v1
kind: Secret
metadata: {name: random}
stringData: {key: {{ randAlphaNum 16 | quote }}, value: {{ .Values.value | default \"none\" | quote }}}
";

/// A small chart whose ConfigMap says what it is; and one with random values in it.
pub fn publish(bed: &Bed, version: &str, text: &str) {
    let chart = Chart::new("small", version);
    bed.pack(
        &chart
            .file("templates/config.yaml", CONFIG)
            .file("text", text),
    );
    let chart = Chart::new("random", version);
    bed.pack(&chart.file("templates/secret.yaml", RANDOM));
}

fn runs(bed: &Bed, namespace: &str, expected: &str) -> bool {
    let path = "{.data.version} {.data.text}";
    bed.is_everywhere(&format!("cm small -n {namespace}"), path, expected)
}

const POLICIES: [(&str, &str, &str); 3] = [
    ("manual", "^1.0.0", ""),
    ("auto", "^1.0.0", "  updatePolicy: Automatic"),
    ("pinned", "1.0.0", "  updatePolicy: Automatic"),
];

pub fn policies_decide_about_newer_versions(bed: &Bed) {
    for (name, range, more) in POLICIES {
        bed.apply(&addon(name, "small", range, more));
    }
    for (name, ..) in POLICIES {
        bed.ready(name);
        assert!(runs(bed, name, "1.0.0 one"), "{name}");
    }
    let before = bed.trace("manual");
    publish(bed, "1.1.0", "two");
    publish(bed, "2.0.0", "too far");
    bed.refresh();
    eventually("Automatic follows", || {
        bed.status("auto", "version") == "1.1.0" && runs(bed, "auto", "1.1.0 two")
    });
    eventually("Manual says so", || {
        bed.status("manual", "availableVersion") == "1.1.0"
    });
    assert_eq!(bed.status("pinned", "availableVersion"), "");
    // It is gone from the repository: what runs does not mind.
    std::fs::remove_file(bed.helm.path("charts/small-1.0.0.tgz")).unwrap();
    bed.refresh();
    let mark =
        "{.items[?(@.spec.chart==\"small\")].spec.versions[?(@.version==\"1.0.0\")].unavailable}";
    eventually("the catalogue marks it", || {
        bed.get("addoncharts", mark) == "RemovedFromRepository"
    });
    for name in ["manual", "pinned"] {
        bed.ready(name);
        assert!(runs(bed, name, "1.0.0 one"), "{name}");
    }
    assert_eq!(bed.trace("manual"), before);
    asked_for_it_is_rolled_out(bed);
}

fn asked_for_it_is_rolled_out(bed: &Bed) {
    bed.apply(&addon("manual", "small", "~1.1.0", ""));
    eventually("it is asked for", || runs(bed, "manual", "1.1.0 two"));
    bed.ready("manual");
    assert_eq!(bed.status("manual", "availableVersion"), "");
    // Published anew: another chart of that name.
    let before = bed.trace("manual");
    publish(bed, "1.1.0", "two again");
    bed.refresh();
    eventually("Automatic takes it", || {
        runs(bed, "auto", "1.1.0 two again")
    });
    eventually("Manual says so", || {
        bed.status("manual", "availableVersion") == "1.1.0"
    });
    bed.ready("manual");
    assert_eq!(bed.trace("manual"), before);
    assert!(runs(bed, "manual", "1.1.0 two"));
    // New values for a chart that is nowhere any more: what runs stays, and it says what to do.
    let values = "  values: {value: new}";
    bed.apply(&addon("manual", "small", "~1.1.0", values));
    bed.says("manual", "ChartRepublished", "updatePolicy: Automatic");
    assert!(runs(bed, "manual", "1.1.0 two"));
    let more = format!("{values}\n  updatePolicy: Automatic");
    bed.apply(&addon("manual", "small", "~1.1.0", &more));
    eventually("it is asked for", || runs(bed, "manual", "1.1.0 two again"));
    bed.ready("manual");
    for name in ["auto", "pinned", "manual"] {
        bed.fleet
            .kubectl("hub", &format!("delete addon {name} --wait=false"));
    }
}

pub fn random_values_roll_nothing_by_themselves(bed: &mut Bed) {
    bed.apply(&addon("random", "random", "1.0.0", ""));
    bed.ready("random");
    let key = |bed: &Bed| bed.everywhere("secret random -n random", "{.data.key}");
    let first = key(bed);
    assert_eq!(
        first.as_ref().map(String::len),
        Some(24),
        "the same on all members"
    );
    assert_eq!(bed.status("random", "notReproducible"), "true");
    let told = bed.condition("random", "Rendered", "message");
    assert!(told.contains("random values or dates"), "{told}");
    let trace = bed.trace("random");
    bed.refresh();
    bed.restart();
    bed.sync();
    // Nor when somebody breaks what it was kept in.
    bed.fleet
        .kubectl("hub", "delete resourceenvelope -n random --all");
    eventually("the envelope is there again", || {
        !bed.get("resourceenvelope -n random", "{.items[*].metadata.name}")
            .is_empty()
    });
    bed.ready("random");
    drop(
        bed.fleet
            .settled(|line| !line.contains("memberclusters/status")),
    );
    assert_eq!(key(bed), first);
    assert_eq!(bed.trace("random"), trace);
    bed.apply(&addon(
        "random",
        "random",
        "1.0.0",
        "  values: {value: new}",
    ));
    eventually("new values make a new one", || {
        key(bed).is_some_and(|now| Some(now) != first)
    });
    bed.ready("random");
    bed.fleet.kubectl("hub", "delete addon random --wait=false");
}
