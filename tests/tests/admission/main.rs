//! What the API server takes and refuses by schema and CEL, in both served versions (API §2.12, §6.3, §6.4).
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod runs;
mod tables;

use windlass_tests::{Fleet, eventually};

use self::tables::{CHANGES, CHOICES, CLUSTERS, FIELDS, OK, SELECTORS, TERMS};

/// Requests that are sent together, and what is expected of each.
#[derive(Default)]
struct Batch {
    manifests: Vec<String>,
    rows: Vec<(String, String, &'static str)>,
}

impl Batch {
    /// A manifest of the object `row-N`, or of that name; what it is about, and what a refusal says.
    fn add(&mut self, manifest: &str, what: &str, expected: &'static str) {
        let name = format!("row-{}", self.rows.len());
        self.named(&name, &manifest.replace("NAME", &name), what, expected);
    }

    fn named(&mut self, name: &str, manifest: &str, what: &str, expected: &'static str) {
        self.manifests.push(manifest.replace("NAME", name));
        self.rows.push((name.to_owned(), what.to_owned(), expected));
    }

    /// Which rows the API server does not treat as expected.
    fn faults(&self, fleet: &Fleet, verb: &str) -> Vec<String> {
        let input = self.manifests.join("\n---\n");
        let args = format!("{verb} --dry-run=server -f -");
        let answer = fleet.try_kubectl("hub", &args, Some(&input));
        let text = answer.unwrap_or_else(|error| error);
        let faults = self.rows.iter().filter_map(|(name, what, expected)| {
            let accepted = text.contains(&format!("/{name} {verb}d"));
            let refusal = refusal(&text, name);
            let fault = match (accepted, *expected) {
                (true, OK) => return None,
                (true, _) => format!("accepted, though {expected:?}"),
                (false, OK) => format!("refused: {refusal}"),
                (false, _) if refusal.contains(expected) => return None,
                (false, _) => format!("refused, but without {expected:?}: {refusal}"),
            };
            Some(format!("{what}: {fault}"))
        });
        faults.collect()
    }
}

/// The lines of an answer that are about an object.
fn refusal(text: &str, name: &str) -> String {
    let mut about = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.starts_with("The ") || line.starts_with("Error from server") {
            about = line.contains(&format!("{name}\""));
        }
        if about {
            lines.push(line);
        }
    }
    lines.join("\n")
}

fn placement(kind: &str, version: &str, spec: &str) -> String {
    format!(
        "apiVersion: placement.kubernetes-fleet.io/{version}\nkind: {kind}\nmetadata: {{name: NAME}}\nspec:\n  {}\n",
        spec.trim_end()
    )
}

fn creates(kind: &str, version: &str) -> Batch {
    let mut batch = Batch::default();
    let mut add = |spec: &str, expected| batch.add(&placement(kind, version, spec), spec, expected);
    for (fields, expected) in FIELDS {
        add(&format!("{SELECTORS}\n  {fields}"), expected);
    }
    for (of, term, expected) in TERMS {
        let terms = match of {
            'R' => format!(
                "requiredDuringSchedulingIgnoredDuringExecution: {{clusterSelectorTerms: [{term}]}}"
            ),
            _ => format!(
                "preferredDuringSchedulingIgnoredDuringExecution: [{{weight: 1, preference: {term}}}]"
            ),
        };
        let policy = format!(
            "policy: {{placementType: PickN, numberOfClusters: 1, affinity: {{clusterAffinity: {{{terms}}}}}}}"
        );
        add(&format!("{SELECTORS}\n  {policy}"), expected);
    }
    for (selectors, expected) in CHOICES {
        add(&format!("resourceSelectors: {selectors}"), expected);
    }
    let accessible = "statusReportingScope: NamespaceAccessible\n  resourceSelectors: \
         [{group: '', version: v1, kind: ConfigMap}]";
    let refusal = match kind {
        "ClusterResourcePlacement" => "must have exactly one Namespace selector",
        // P2: on a ResourcePlacement the field has no effect.
        _ => OK,
    };
    add(accessible, refusal);
    let manifest = placement(kind, version, SELECTORS);
    let (long, longest) = ("x".repeat(64), "x".repeat(63));
    let refusal = "metadata.name must be shorter than 64";
    batch.named(&long, &manifest, "64 characters", refusal);
    batch.named(&longest, &manifest, "63 characters", OK);
    batch
}

/// What the changes begin with, and they themselves.
fn changes(kind: &str, version: &str) -> (Batch, Batch) {
    let (mut before, mut after) = (Batch::default(), Batch::default());
    // P3: on a ResourcePlacement the field has no effect.
    let counts = |fields: &str| {
        kind == "ClusterResourcePlacement" || !fields.contains("statusReportingScope")
    };
    for (old, new, expected) in CHANGES.iter().filter(|(old, ..)| counts(old)) {
        let manifest = |fields| placement(kind, version, &format!("{SELECTORS}\n  {fields}"));
        before.add(&manifest(old), old, OK);
        after.add(&manifest(new), &format!("{old} -> {new}"), expected);
    }
    (before, after)
}

fn clusters(version: &str) -> Batch {
    let mut batch = Batch::default();
    let manifest = |spec: &str| {
        format!(
            "{{apiVersion: cluster.kubernetes-fleet.io/{version}, kind: MemberCluster, metadata: {{name: NAME}}, spec: {{{spec}}}}}"
        )
    };
    for (spec, expected) in CLUSTERS {
        batch.add(&manifest(spec), spec, expected);
    }
    let refusal = "metadata.name must be shorter than 64";
    let anyone = manifest("identity: {kind: User, name: a}");
    batch.named(&"x".repeat(64), &anyone, "64 characters", refusal);
    batch
}

#[test]
fn what_the_api_server_takes_and_refuses() {
    let fleet = Fleet::up("admission", 0);
    let crds = fleet.windlass(&["crds"]).unwrap();
    fleet.apply("hub", &crds);
    eventually("the kinds are served", || {
        [
            "crp", "rp", "cluster", "csur", "sur", "csus", "sus", "careq", "areq",
        ]
        .iter()
        .all(|kind| {
            fleet
                .try_kubectl("hub", &format!("get {kind}"), None)
                .is_ok()
        })
    });
    let mut faults = Vec::new();
    for kind in ["ClusterResourcePlacement", "ResourcePlacement"] {
        for version in ["v1", "v1beta1"] {
            let mut found = creates(kind, version).faults(&fleet, "create");
            let (before, after) = changes(kind, version);
            let stored = before.manifests.join("\n---\n");
            let kubectl = |args: &str| fleet.try_kubectl("hub", args, Some(&stored));
            kubectl("create -f -").unwrap();
            found.extend(after.faults(&fleet, "replace"));
            kubectl("delete -f -").unwrap();
            faults.extend(
                found
                    .iter()
                    .map(|fault| format!("{kind} {version} {fault}")),
            );
        }
    }
    for version in ["v1", "v1beta1"] {
        let found = clusters(version).faults(&fleet, "create");
        faults.extend(
            found
                .iter()
                .map(|fault| format!("MemberCluster {version} {fault}")),
        );
    }
    faults.extend(runs::faults(&fleet));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    runs::who_approved(&fleet);
}
