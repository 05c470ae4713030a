//! A hub, two members, and a repository of charts.

use std::time::{Duration, Instant};

use windlass_tests::charts::{Chart, Helm, Reply, Web};
use windlass_tests::{Fleet, eventually};

/// The members.
pub const MEMBERS: [&str; 2] = ["member-1", "member-2"];
/// A change reaches one cluster after the other.
pub const STRATEGY: &str = "{rollingUpdate: {maxUnavailable: 1, unavailablePeriodSeconds: 1}}";

pub struct Bed {
    pub fleet: Fleet,
    pub helm: Helm,
    pub web: Web,
}

impl Bed {
    pub fn up() -> Self {
        let mut fleet = Fleet::up("addons", MEMBERS.len());
        let crds = fleet.windlass(&["crds"]).unwrap();
        fleet.apply("hub", &crds);
        let (helm, web) = (Helm::new("addons"), Web::start());
        std::fs::create_dir_all(helm.path("charts")).unwrap();
        web.serve("/charts", &helm.path("charts"));
        start(&mut fleet);
        for member in MEMBERS {
            fleet.join(member);
        }
        let bed = Self { fleet, helm, web };
        super::versions::publish(&bed, "1.0.0", "one");
        super::demo::publish(&bed);
        super::trouble::publish(&bed);
        super::bounds::publish(&bed);
        bed.helm.index("charts");
        bed.fleet.apply("hub", &bed.repository());
        eventually("the repository is read", || {
            bed.get("addonrepository charts", &of("Ready", "status")) == "True"
        });
        bed
    }

    pub fn repository(&self) -> String {
        format!(
            "
apiVersion: addons.windlass.dev/v1alpha1
kind: AddonRepository
metadata: {{name: charts}}
spec: {{url: '{}/charts'}}
",
            self.web.url()
        )
    }

    /// Publishes what is packed, and has the hub read it.
    pub fn refresh(&self) {
        self.helm.index("charts");
        self.sync();
    }

    /// Has the hub read the repository now; until it has, or has failed to.
    pub fn sync(&self) {
        let at = format!("{:?}", Instant::now()).replace([' ', '{', '}', ':', ','], "");
        let annotation = format!("windlass.dev/sync-requested-at={at}");
        self.fleet.kubectl(
            "hub",
            &format!("annotate addonrepository charts {annotation} --overwrite"),
        );
        eventually("the request is handled", || {
            self.get("addonrepository charts", "{.status.lastHandledSyncRequest}") == at
        });
    }

    /// What a path of the repository answers from now on.
    pub fn reply(&self, file: &str, reply: Reply) {
        self.web.reply(&format!("/charts/{file}"), reply);
    }

    /// The file is there again.
    pub fn mend(&self, file: &str) {
        let content = std::fs::read(self.helm.path("charts").join(file)).unwrap();
        self.reply(file, Reply::Whole(200, content));
    }

    /// Packs a version of a chart.
    pub fn pack(&self, chart: &Chart) {
        self.helm.pack("charts", chart);
    }

    pub fn get(&self, what: &str, path: &str) -> String {
        self.fleet.get("hub", what, path)
    }

    pub fn apply(&self, manifest: &str) {
        self.fleet.apply("hub", manifest);
    }

    /// A field of a condition of an Addon.
    pub fn condition(&self, addon: &str, type_: &str, field: &str) -> String {
        self.get(&format!("addon {addon}"), &of(type_, field))
    }

    pub fn status(&self, addon: &str, field: &str) -> String {
        self.get(&format!("addon {addon}"), &format!("{{.status.{field}}}"))
    }

    /// Whether it is Ready as it is asked for now; how long that took.
    pub fn ready(&self, addon: &str) -> Duration {
        let begin = Instant::now();
        eventually(&format!("addon {addon} is ready"), || {
            let of_now = self.status(addon, "observedGeneration")
                == self.get(&format!("addon {addon}"), "{.metadata.generation}");
            of_now && self.condition(addon, "Ready", "status") == "True"
        });
        begin.elapsed()
    }

    /// Waits until an Addon says this, and asserts that what it says is whole: one abnormal condition at most, none
    /// when it is Ready.
    pub fn says(&self, addon: &str, reason: &str, words: &str) {
        eventually(&format!("addon {addon}: {reason}: {words}"), || {
            self.condition(addon, "Ready", "reason") == reason
                && self.condition(addon, "Ready", "message").contains(words)
        });
        let set = |type_: &str| self.condition(addon, type_, "status") == "True";
        let abnormal = [set("Reconciling"), set("Stalled")];
        let expected = if set("Ready") { 0 } else { 1 };
        let count = abnormal.iter().filter(|is| **is).count();
        assert_eq!(count, expected, "{addon}: {abnormal:?}");
    }

    pub fn is_stalled(&self, addon: &str) -> bool {
        self.condition(addon, "Stalled", "status") == "True"
    }

    /// What every member has, if it is the same.
    pub fn everywhere(&self, what: &str, path: &str) -> Option<String> {
        let all = MEMBERS.map(|member| self.fleet.get(member, what, path));
        let [first, second] = all;
        (first == second).then_some(first)
    }

    pub fn is_everywhere(&self, what: &str, path: &str, expected: &str) -> bool {
        self.everywhere(what, path).as_deref() == Some(expected)
    }

    /// What a fleet that is at rest looks like: it must be the same later if nothing has moved.
    pub fn trace(&self, addon: &str) -> String {
        let render = self.status(addon, "renderDigest");
        let placement = self.status(addon, "placement");
        let index = "{.status.observedResourceIndex}";
        let index = self.get(&format!("crp {placement}"), index);
        let snapshots = format!("crs -l kubernetes-fleet.io/parent-CRP={placement}");
        let snapshots = self.get(&snapshots, "{.items[*].metadata.name}");
        format!("{render} {index} {snapshots}")
    }

    pub fn delete(&self, addon: &str) {
        self.fleet
            .kubectl("hub", &format!("delete addon {addon} --timeout=60s"));
    }

    pub fn restart(&mut self) {
        self.fleet.kill_hub();
        start(&mut self.fleet);
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for line in [
                "get addons -o wide",
                "get crp",
                "get addonrepositories -o wide",
            ] {
                let told = self.fleet.try_kubectl("hub", line, None);
                eprintln!("{}", told.unwrap_or_else(|error| error));
            }
        }
    }
}

fn start(fleet: &mut Fleet) {
    start_with(fleet, &Helm::binary().to_string_lossy());
}

/// Starts a hub with that Helm.
pub fn start_with(fleet: &mut Fleet, helm: &str) {
    let account = fleet.hub_kubeconfig();
    let flag = format!("--helm-binary={helm}");
    fleet.start_hub_in(&account, &[&flag], &[("WINDLASS_RENDER_SECONDS", "3")]);
}

/// Path of a field of a condition.
pub fn of(type_: &str, field: &str) -> String {
    format!("{{.status.conditions[?(@.type==\"{type_}\")].{field}}}")
}

/// An Addon of a chart, inline, everywhere, into a namespace of its own name.
pub fn addon(name: &str, chart: &str, version: &str, more: &str) -> String {
    format!(
        "
apiVersion: addons.windlass.dev/v1alpha1
kind: Addon
metadata: {{name: {name}}}
spec:
  chart: {{repository: charts, name: {chart}, version: '{version}'}}
  namespace: {name}
  placement: {{inline: {{strategy: {STRATEGY}}}}}
{more}
"
    )
}
