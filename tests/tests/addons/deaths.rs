//! The hub dies at each write of an upgrade that takes several envelopes.

use std::collections::BTreeSet;

use windlass_tests::charts::Helm;
use windlass_tests::deaths::{Deaths, Mortal};

use crate::bed::Bed;
use crate::bounds::large;

/// The versions that the parts of one snapshot of a placement hold.
fn mixed(bed: &Bed) -> Vec<String> {
    let all = bed.fleet.kubectl(
        "hub",
        "get crs -l kubernetes-fleet.io/parent-CRP=addon-mixed -o json",
    );
    let all: serde_json::Value = serde_json::from_str(&all).unwrap();
    let mut versions = std::collections::BTreeMap::<String, BTreeSet<String>>::new();
    for part in all["items"].as_array().unwrap() {
        let index = &part["metadata"]["labels"]["kubernetes-fleet.io/resource-index"];
        let found = versions.entry(index.to_string()).or_default();
        for object in part["spec"]["selectedResources"].as_array().unwrap() {
            let held = object["data"].as_object();
            let held = held.iter().flat_map(|data| data.values());
            found.extend(held.filter_map(|object| {
                let of = object
                    .pointer("/data/version")
                    .or_else(|| object.pointer("/metadata/labels/version"));
                of?.as_str().map(str::to_owned)
            }));
        }
    }
    let bad = versions.into_iter().filter(|(_, found)| found.len() > 1);
    bad.map(|(index, found)| format!("{index}: {found:?}"))
        .collect()
}

fn runs(bed: &Bed, value: &str) -> bool {
    let versions = "{.items[?(@.data.version)].data.version}";
    bed.is_everywhere("cm -n mixed", versions, &format!("{value} {value} {value}"))
        && bed.is_everywhere(
            "clusterrole mixed-large",
            "{.metadata.labels.version}",
            value,
        )
}

pub fn no_death_mixes_two_renders(bed: &mut Bed) {
    bed.apply(&large("mixed", "zero", None));
    bed.ready("mixed");
    bed.fleet.kill_hub();
    let bed = &*bed;
    let helm = format!("--helm-binary={}", Helm::binary().display());
    // At every write; and every third, beginning with each.
    for (value, first, next) in [
        ("one", 1, 1),
        ("two", 1, 3),
        ("three", 2, 3),
        ("four", 3, 3),
    ] {
        let deaths = Deaths {
            mode: "after",
            first,
            next,
        };
        let mut hub = Mortal::start_with(&bed.fleet, deaths, &[&helm]);
        bed.apply(&large("mixed", value, None));
        hub.survive("the render has rolled", || {
            assert_eq!(mixed(bed), Vec::<String>::new(), "{deaths:?}");
            runs(bed, value) && bed.condition("mixed", "Ready", "status") == "True"
        });
        println!("{deaths:?}: died {} times", hub.count());
        assert!(hub.count() >= 3, "{deaths:?}");
    }
}
