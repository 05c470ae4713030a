//! Random objects for `hack/kstatus-fuzz`, and the comparison of our verdicts on them with the library's.
//!
//! `objects SEED COUNT` writes COUNT objects, one a line. `compare SEED COUNT` makes the same ones again, reads
//! the oracle's verdicts on them, one a line, and prints each difference with its object; it fails if there is
//! one. Most fields are as the kind has them; some objects have a few of the wrong type, some have many.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufWriter, Write};
use std::process::ExitCode;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use windlass_status::kstatus::{Status, compute};

/// The time of our verdicts. The oracle has the real one; so an object's own times are relative (`@now-5s`), or
/// centuries away.
const NOW: i64 = 1_800_000_000;

/// Differences that are printed; the others are only counted.
const PRINTED: usize = 50;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let done = match (words.first().map(String::as_str), number(1), number(2)) {
        (Some("objects"), Some(seed), Some(count)) => objects(seed, count).map(|()| true),
        (Some("compare"), Some(seed), Some(count)) => compare(seed, count),
        _ => Err(io::Error::other(
            "usage: kstatus_fuzz objects|compare SEED COUNT",
        )),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("kstatus_fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

fn objects(seed: u64, count: u64) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for n in 0..count {
        writeln!(out, "{}", Random::new(seed, n).object())?;
    }
    out.flush()
}

/// What was seen in all comparisons.
#[derive(Default)]
struct Tally {
    equal: u64,
    panics: u64,
    different: usize,
    verdicts: BTreeMap<String, u64>,
}

fn compare(seed: u64, count: u64) -> io::Result<bool> {
    let mut lines = io::stdin().lock().lines();
    let mut tally = Tally::default();
    for n in 0..count {
        let object = Random::new(seed, n).object();
        let line = lines
            .next()
            .ok_or_else(|| io::Error::other(format!("{n} verdicts, not {count}")))??;
        let library: Value = serde_json::from_str(&line)?;
        count_one(&object, &library, &mut tally);
    }
    for (verdict, times) in &tally.verdicts {
        println!("{times:>9} {verdict}");
    }
    println!(
        "{count} objects of seed {seed}: {} equal, {} over which the library panics, {} different",
        tally.equal, tally.panics, tally.different
    );
    Ok(tally.different == 0)
}

fn count_one(object: &Value, library: &Value, tally: &mut Tally) {
    let mut timed = object.clone();
    set_times(&mut timed);
    let now = Timestamp::from_second(NOW).unwrap_or(Timestamp::UNIX_EPOCH);
    let verdict = compute(&timed, now);
    let reason = verdict.reason.map(|reason| reason.to_string());
    let ours = (verdict.status.as_str(), reason.unwrap_or_default());
    *tally
        .verdicts
        .entry(format!("{} {}", ours.0, ours.1))
        .or_default() += 1;
    let word = |key: &str| library[key].as_str().unwrap_or_default();
    let theirs = match library.get("error") {
        Some(_) => (Status::Unknown.as_str(), String::new()),
        None => (word("status"), word("reason").to_owned()),
    };
    // Only over containers of a running pod that is not ready, and those we pass over.
    let may_panic = object["kind"] == "Pod" && object["status"]["phase"] == "Running";
    if library.get("panic").is_some() && may_panic && verdict.status != Status::Unknown {
        tally.panics += 1;
    } else if ours == theirs {
        tally.equal += 1;
    } else {
        tally.different += 1;
        if tally.different <= PRINTED {
            println!(
                "{}",
                json!({"object": object, "library": library, "ours": ours})
            );
        }
    }
}

/// Puts times into an object: `@now-20s` is 20 s ago.
fn set_times(value: &mut Value) {
    match value {
        Value::String(text) => {
            let ago = text.strip_prefix("@now-").and_then(|t| t.strip_suffix('s'));
            if let Some(ago) = ago.and_then(|ago| ago.parse::<i64>().ok()) {
                let then = Timestamp::from_second(NOW.saturating_sub(ago));
                *text = then.unwrap_or(Timestamp::UNIX_EPOCH).to_string();
            }
        }
        Value::Array(list) => list.iter_mut().for_each(set_times),
        Value::Object(map) => map.values_mut().for_each(set_times),
        _ => {}
    }
}

/// A stream of numbers that depends on nothing but its seed (splitmix64), and how often a field is of the
/// wrong type or missing.
struct Random {
    state: u64,
    wrong_per_thousand: u64,
    missing_one_in: usize,
    odd_count_one_in: usize,
}

impl Random {
    fn new(seed: u64, n: u64) -> Self {
        let mut random = Self {
            state: seed.wrapping_mul(0x9e37_79b9).wrapping_add(n) ^ seed.rotate_left(32),
            wrong_per_thousand: 0,
            missing_one_in: 1,
            odd_count_one_in: 1,
        };
        random.next();
        random.wrong_per_thousand = [0, 0, 5, 30, 150][random.below(5)];
        random.missing_one_in = [8, 30, 100][random.below(3)];
        random.odd_count_one_in = [2, 6, 15][random.below(3)];
        random
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end as u64)).unwrap_or(0)
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    /// The value, or now and then one of the wrong type.
    fn keep(&mut self, value: impl Into<Value>) -> Value {
        if self.next() % 1000 < self.wrong_per_thousand {
            self.wrong()
        } else {
            value.into()
        }
    }

    fn word(&mut self, words: &[&str]) -> Value {
        let word = self.pick(words);
        self.keep(word)
    }

    /// A number of replicas: mostly such that the rules' comparisons go either way.
    fn count(&mut self) -> Value {
        let count = match self.below(20) {
            _ if !self.one_in(self.odd_count_one_in) => 1,
            0 => -1,
            1 => -2,
            2 => i64::MAX,
            3 => i64::MIN,
            4..12 => 0,
            12..16 => 2,
            _ => 3,
        };
        self.keep(count)
    }

    fn wrong(&mut self) -> Value {
        match self.below(18) {
            0..4 => Value::Null,
            4 => json!(true),
            5 => json!(""),
            6 => json!("3"),
            7 => json!("True"),
            8 => json!(3.0),
            9 => json!(1.5),
            10 => json!(1e300),
            11 => json!(u64::MAX),
            12 => json!(0),
            13 => json!([]),
            14 => json!({}),
            15 => json!([null]),
            16 => json!([{"type": "Ready", "status": "False"}]),
            _ => json!({"type": "Ready", "replicas": 1}),
        }
    }

    /// Puts a field in, most of the time.
    fn put(&mut self, map: &mut Map<String, Value>, key: &str, value: Value) {
        if !self.one_in(self.missing_one_in) {
            map.insert(key.to_owned(), value);
        }
    }

    fn object(&mut self) -> Value {
        let (version, kind) = self.kind();
        let mut object = Map::new();
        object.insert("apiVersion".to_owned(), self.keep(version));
        object.insert("kind".to_owned(), self.keep(kind));
        let metadata = self.metadata();
        let spec = self.spec(kind);
        let status = self.status(kind);
        for (key, value) in [("metadata", metadata), ("spec", spec), ("status", status)] {
            let value = self.keep(value);
            self.put(&mut object, key, value);
        }
        Value::Object(object)
    }

    fn kind(&mut self) -> (&'static str, &'static str) {
        const KINDS: [(&str, &str); 24] = [
            ("v1", "Pod"),
            ("v1", "Pod"),
            ("v1", "Pod"),
            ("apps/v1", "Deployment"),
            ("apps/v1", "Deployment"),
            ("apps/v1", "Deployment"),
            ("apps/v1", "StatefulSet"),
            ("apps/v1", "StatefulSet"),
            ("apps/v1", "DaemonSet"),
            ("apps/v1", "DaemonSet"),
            ("apps/v1", "ReplicaSet"),
            ("batch/v1", "Job"),
            ("batch/v1", "CronJob"),
            ("v1", "Service"),
            ("v1", "PersistentVolumeClaim"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            ("policy/v1", "PodDisruptionBudget"),
            ("v1", "Secret"),
            ("v1", "ConfigMap"),
            ("v1", "Namespace"),
            ("v1", "Node"),
            ("networking.k8s.io/v1", "Ingress"),
            ("x.io/v1", "Foo"),
            ("addons.windlass.dev/v1alpha1", "AddonRepository"),
        ];
        const VERSIONS: [&str; 14] = [
            "",
            "/",
            "v1",
            "/v1",
            "apps",
            "apps/",
            "apps/v1/x",
            "//",
            "apps/v1beta1",
            "extensions/v1beta1",
            "batch/v1beta1",
            "policy/v1beta1",
            "Apps/v1",
            "apiextensions.k8s.io/v1beta1",
        ];
        let (version, kind) = KINDS[self.below(KINDS.len())];
        match self.below(24) {
            0 | 1 => (self.pick_static(&VERSIONS), kind),
            2 => (
                version,
                self.pick_static(&["", "pod", "apps/Deployment", "batch/Job", "/Pod", "Pod "]),
            ),
            3 => (
                "v1",
                self.pick_static(&["apps/DaemonSet", "extensions/ReplicaSet"]),
            ),
            _ => (version, kind),
        }
    }

    fn pick_static(&mut self, words: &[&'static str]) -> &'static str {
        words[self.below(words.len())]
    }

    fn metadata(&mut self) -> Value {
        let mut map = Map::new();
        if self.one_in(25) {
            let deleted = self.word(&["2026-01-01T00:00:00Z", "", "x"]);
            map.insert("deletionTimestamp".to_owned(), deleted);
        }
        let generation = i64::from(!self.one_in(20));
        let generation = self.keep(generation);
        self.put(&mut map, "generation", generation);
        let created = self.time();
        self.put(&mut map, "creationTimestamp", created);
        Value::Object(map)
    }

    /// A time in one of the many forms that look like RFC 3339. Those of the year 2999 are young if they are
    /// read, and old if not.
    fn time(&mut self) -> Value {
        if self.one_in(2) {
            return self.word(&["@now-1s", "@now-5s", "@now-12s", "@now-18s", "@now-3600s"]);
        }
        let date = self.pick(&[
            "2999-01-31",
            "2999-01-31",
            "2999-01-31",
            "2999-02-29",
            "2996-02-29",
            "9999-12-31",
            "0000-01-01",
            "2999-1-31",
            "02999-01-31",
            "+2999-01-31",
            "2999-13-01",
            "2999-00-01",
            "2999-01-00",
            "1999-01-01",
            "20990131",
        ]);
        let mark = self.pick(&["T", "T", "T", "T", "T", "T", "t", " ", ""]);
        let clock = self.pick(&[
            "10:20:30",
            "10:20:30",
            "10:20:30",
            "10:20:30",
            "1:20:30",
            "23:59:60",
            "24:00:00",
            "23:59:59",
            "10:60:00",
            "10:20",
            "10:2:30",
            "10:20:3",
            "10",
            "-1:20:30",
            "010:20:30",
            "00:00:00",
            ":20:30",
        ]);
        let fraction = self.pick(&[
            "",
            "",
            "",
            "",
            ".5",
            ",5",
            ".",
            ",",
            ".123456789",
            ".1234567890123",
            ".5x",
        ]);
        let zone = self.pick(&[
            "Z",
            "Z",
            "Z",
            "Z",
            "z",
            "",
            "+00:00",
            "-23:59",
            "+24:00",
            "-24:60",
            "+24:61",
            "+25:00",
            "+0100",
            "+01",
            "+1:00",
            "01:00",
            "Z ",
            "ZZ",
            "+01:00:00",
            "\u{2212}01:00",
            "é",
        ]);
        self.keep(format!("{date}{mark}{clock}{fraction}{zone}"))
    }

    fn spec(&mut self, kind: &str) -> Value {
        let mut map = Map::new();
        let replicas = self.count();
        self.put(&mut map, "replicas", replicas);
        match kind {
            "Service" => {
                let balancer = self.word(&["LoadBalancer", "LoadBalancer", "ClusterIP", ""]);
                let ip = self.word(&["10.0.0.1", "None", ""]);
                self.put(&mut map, "type", balancer);
                self.put(&mut map, "clusterIP", ip);
            }
            "StatefulSet" | "DaemonSet" => {
                let mut rolling = Map::new();
                if self.one_in(2) {
                    let partition = [0, 0, 0, 1, -1, -2, i64::MAX, i64::MIN][self.below(8)];
                    let partition = self.keep(partition);
                    rolling.insert("partition".to_owned(), partition);
                }
                let mut strategy = Map::new();
                let rolling = self.keep(rolling);
                self.put(&mut strategy, "rollingUpdate", rolling);
                let way = self.word(&["RollingUpdate", "RollingUpdate", "OnDelete", "ondelete"]);
                self.put(&mut strategy, "type", way);
                let strategy = self.keep(strategy);
                self.put(&mut map, "updateStrategy", strategy);
            }
            _ => {
                let deadline = [600, 2_147_483_647, 0, -1][self.below(4)];
                let deadline = self.keep(deadline);
                self.put(&mut map, "progressDeadlineSeconds", deadline);
            }
        }
        Value::Object(map)
    }

    fn status(&mut self, kind: &str) -> Value {
        let mut map = Map::new();
        let observed = self.keep(1);
        self.put(&mut map, "observedGeneration", observed);
        let counts: &[&str] = match kind {
            "DaemonSet" | "apps/DaemonSet" => &[
                "desiredNumberScheduled",
                "currentNumberScheduled",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberReady",
            ],
            _ => &[
                "replicas",
                "readyReplicas",
                "updatedReplicas",
                "availableReplicas",
                "currentReplicas",
                "fullyLabeledReplicas",
            ],
        };
        for name in counts {
            let count = self.count();
            self.put(&mut map, name, count);
        }
        let phase = match kind {
            "Pod" if self.one_in(2) => self.word(&["Pending"]),
            "PersistentVolumeClaim" => self.word(&["Bound", "Pending", "Lost", ""]),
            _ => self.word(&[
                "Running",
                "Running",
                "Pending",
                "Succeeded",
                "Failed",
                "Unknown",
                "",
            ]),
        };
        self.put(&mut map, "phase", phase);
        let started = self.word(&["2026-01-01T00:00:00Z", ""]);
        for key in ["startTime", "currentRevision", "updateRevision"] {
            let value = if key == "startTime" {
                started.clone()
            } else {
                self.word(&["a", "a", "b"])
            };
            self.put(&mut map, key, value);
        }
        let conditions = self.conditions(kind);
        self.put(&mut map, "conditions", conditions);
        if kind == "Pod" {
            let containers = self.containers();
            self.put(&mut map, "containerStatuses", containers);
        }
        Value::Object(map)
    }

    fn conditions(&mut self, kind: &str) -> Value {
        let own: &[&str] = match kind {
            "Pod" => &["PodScheduled", "PodScheduled", "Ready"],
            "Deployment" | "apps/Deployment" => &["Progressing", "Available", "Available"],
            "ReplicaSet" | "extensions/ReplicaSet" => &["ReplicaFailure"],
            "Job" | "batch/Job" => &["Complete", "Failed", "Suspended"],
            "CustomResourceDefinition" => &["NamesAccepted", "Established", "Established"],
            _ => &["Ready", "Ready", "Available", "Degraded"],
        };
        let length = self.below(5);
        let mut list: Vec<Value> = (0..length).map(|_| self.condition(own)).collect();
        if kind == "Pod" && self.one_in(2) {
            list.push(
                json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}),
            );
        }
        self.keep(list)
    }

    fn condition(&mut self, own: &[&str]) -> Value {
        let kind = match self.below(16) {
            0 => self.word(&["Reconciling", "Stalled"]),
            1 => self.word(&["ready", "Ready ", "", "Ready"]),
            _ => self.word(own),
        };
        let status = self.word(&[
            "True", "True", "True", "False", "False", "False", "Unknown", "true", "", "Maybe",
        ]);
        let reason = self.word(&[
            "Unschedulable",
            "NewReplicaSetAvailable",
            "NewReplicaSetAvailable",
            "ProgressDeadlineExceeded",
            "Installing",
            "Other",
            "",
        ]);
        let mut map = Map::new();
        for (key, value) in [("type", kind), ("status", status), ("reason", reason)] {
            self.put(&mut map, key, value);
        }
        if self.one_in(3) {
            let message = self.keep("why");
            map.insert("message".to_owned(), message);
        }
        self.keep(map)
    }

    fn containers(&mut self) -> Value {
        let length = self.below(3);
        let list: Vec<Value> = (0..length).map(|_| self.container()).collect();
        self.keep(list)
    }

    fn container(&mut self) -> Value {
        let mut waiting = Map::new();
        let reason = self.word(&["CrashLoopBackOff", "ImagePullBackOff", ""]);
        self.put(&mut waiting, "reason", reason);
        let mut state = Map::new();
        let waiting = self.keep(waiting);
        self.put(&mut state, "waiting", waiting);
        let mut container = Map::new();
        let state = self.keep(state);
        self.put(&mut container, "state", state);
        let name = self.keep("a");
        self.put(&mut container, "name", name);
        self.keep(container)
    }
}
