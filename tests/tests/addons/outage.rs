//! A repository that can't be read.

use windlass_tests::charts::Reply;
use windlass_tests::eventually;

use crate::bed::{Bed, addon, of};

fn runs(bed: &Bed, value: &str) -> bool {
    bed.is_everywhere("cm small -n steady", "{.data.value}", value)
}

fn steady(value: &str) -> String {
    let values = format!("  values: {{value: {value}}}");
    addon("steady", "small", "2.0.0", &values)
}

/// The whole repository, as seen by the hub.
fn break_down(bed: &Bed) {
    bed.reply("index.yaml", Reply::status(404));
    bed.reply("small-2.0.0.tgz", Reply::status(503));
    bed.sync();
    assert_eq!(
        bed.get("addonrepository charts", &of("Stalled", "status")),
        "True"
    );
}

pub fn a_stale_catalogue_disturbs_nothing(bed: &Bed) {
    bed.apply(&steady("one"));
    bed.ready("steady");
    let trace = bed.trace("steady");
    break_down(bed);
    drop(
        bed.fleet
            .settled(|line| !line.contains("memberclusters/status")),
    );
    assert_eq!(bed.condition("steady", "Ready", "status"), "True");
    assert_eq!(bed.trace("steady"), trace);
    bed.apply(&steady("two"));
    bed.says("steady", "ChartNotAvailable", "503");
    assert!(!bed.is_stalled("steady"), "it may pass");
    assert_eq!(bed.trace("steady"), trace);
    assert!(runs(bed, "one"));
    bed.mend("small-2.0.0.tgz");
    bed.mend("index.yaml");
    bed.sync();
    bed.ready("steady");
    eventually("it goes on", || runs(bed, "two"));
    assert_eq!(
        bed.get("addonrepository charts", &of("Ready", "status")),
        "True"
    );
    assert_eq!(bed.status("steady", "consecutiveFailures"), "");
}

pub fn deletion_needs_no_repository(bed: &Bed) {
    bed.fleet
        .kubectl("hub", "delete addonrepository charts --timeout=30s");
    eventually("its charts go with it", || {
        bed.get("addoncharts", "{.items}") == "[]"
    });
    assert_eq!(bed.condition("steady", "Ready", "status"), "True");
    assert!(runs(bed, "two"));
    bed.apply(&steady("three"));
    bed.says("steady", "RepositoryNotFound", "charts");
    bed.delete("steady");
    eventually("nothing of it is left", || {
        let names = "{.items[*].metadata.name}";
        bed.get("resourceenvelope -n steady", names).is_empty()
            && bed.get("crp addon-steady", "{.metadata.name}").is_empty()
            && bed.is_everywhere("cm small -n steady", "{.metadata.name}", "")
    });
    assert_eq!(bed.get("ns steady", "{.status.phase}"), "Active");
    bed.apply(&bed.repository());
    eventually("the repository is read", || {
        bed.get("addonrepository charts", &of("Ready", "status")) == "True"
    });
}
