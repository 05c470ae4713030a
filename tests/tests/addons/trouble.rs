//! Charts and values that can't be rendered, and a hub without Helm.

use windlass_tests::charts::Chart;
use windlass_tests::eventually;

use crate::bed::{Bed, addon, start_with};

const PICKY: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: picky}
data: {value: {{ required \"a value is needed\" .Values.value | quote }}}
";

/// Loops for hours without a word.
const ENDLESS: &str = "
{{- range until 100000 }}{{ range until 100000 }}{{ range until 100000 }}{{ end }}{{ end }}{{ end }}
";

pub fn publish(bed: &Bed) {
    for (name, template) in [("picky", PICKY), ("endless", ENDLESS)] {
        let chart = Chart::new(name, "1.0.0");
        bed.pack(&chart.file("templates/a.yaml", template));
    }
}

pub fn endless_begins(bed: &Bed) {
    bed.apply(&addon("endless", "endless", "1.0.0", ""));
}

pub fn endless_ends(bed: &Bed) {
    bed.says("endless", "RenderTimeLimit", "takes longer than the 3 s");
    assert!(!bed.is_stalled("endless"), "it may pass");
    assert_eq!(
        bed.condition("endless", "Reconciling", "reason"),
        "ProgressingWithRetry"
    );
    assert_ne!(bed.status("endless", "nextAttemptTime"), "");
    assert_eq!(bed.get("crp addon-endless", "{.metadata.name}"), "");
    bed.delete("endless");
}

pub fn bad_values_leave_what_runs(bed: &Bed) {
    let picky = |value: &str| {
        let values = format!("  values: {{value: {value}}}");
        addon("picky", "picky", "1.0.0", &values)
    };
    let runs = |value: &str| bed.is_everywhere("cm picky -n picky", "{.data.value}", value);
    bed.apply(&picky("one"));
    bed.ready("picky");
    assert!(runs("one"));
    let trace = bed.trace("picky");
    bed.apply(&picky("''"));
    bed.says("picky", "ChartRejected", "a value is needed");
    assert!(bed.is_stalled("picky"));
    assert!(runs("one"));
    assert_eq!(bed.trace("picky"), trace);
    bed.apply(&picky("two"));
    bed.ready("picky");
    assert!(runs("two"));
    assert!(!bed.is_stalled("picky"));
    for (what, chart, version, reason, words) in [
        (
            "no such chart",
            "nowhere",
            "1.0.0",
            "ChartNotFound",
            "kubectl get addoncharts",
        ),
        ("no such version", "picky", "^7", "VersionNotFound", "^7"),
        (
            "no range",
            "picky",
            "newest please",
            "InvalidVersion",
            "newest please",
        ),
    ] {
        bed.apply(&addon("picky", chart, version, ""));
        bed.says("picky", reason, words);
        assert!(bed.is_stalled("picky"), "{what}");
        assert!(runs("two"), "{what}");
    }
    bed.delete("picky");
    eventually("it is gone from the members", || {
        bed.is_everywhere("cm picky -n picky", "{.metadata.name}", "")
    });
    assert_eq!(
        bed.get("ns picky", "{.status.phase}"),
        "Active",
        "it stays on the hub"
    );
}

/// What runs needs no Helm either.
pub fn without_helm_it_says_so(bed: &mut Bed) {
    bed.apply(&addon("picky", "picky", "1.0.0", "  values: {value: one}"));
    bed.ready("picky");
    bed.fleet.kill_hub();
    start_with(&mut bed.fleet, "/nonexistent/helm");
    bed.apply(&addon("picky", "picky", "1.0.0", "  values: {value: two}"));
    bed.says("picky", "HelmNotFound", "--helm-binary");
    assert!(bed.is_stalled("picky"));
    assert!(bed.is_everywhere("cm picky -n picky", "{.data.value}", "one"));
    bed.restart();
    bed.ready("picky");
    assert!(bed.is_everywhere("cm picky -n picky", "{.data.value}", "two"));
    bed.delete("picky");
}
