//! Sums over nodes and pods, in thousandths of a unit.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Node, NodeStatus, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use windlass_scheduler::quantity;

/// Resources that are summed.
const TRACKED: [&str; 2] = ["cpu", "memory"];
/// Largest change of what is available that is not worth a write, in percent.
const NOISE: i128 = 5;

/// What a cluster has, and what its pods asked for; amounts in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of nodes.
    pub nodes: usize,
    /// Total of all nodes.
    pub capacity: BTreeMap<String, i128>,
    /// What pods may use.
    pub allocatable: BTreeMap<String, i128>,
    /// What pods asked for.
    pub requested: BTreeMap<String, i128>,
}

impl Usage {
    /// Adds everything up.
    pub fn of<'a>(
        nodes: impl Iterator<Item = &'a Node>,
        pods: impl Iterator<Item = &'a Pod>,
    ) -> Self {
        let mut usage = Self::default();
        for node in nodes {
            usage.nodes += 1;
            let Some(status) = &node.status else { continue };
            add(&mut usage.capacity, status.capacity.as_ref());
            add(&mut usage.allocatable, status.allocatable.as_ref());
        }
        for pod in pods {
            let Some(spec) = &pod.spec else { continue };
            for container in &spec.containers {
                add(
                    &mut usage.requested,
                    container
                        .resources
                        .as_ref()
                        .and_then(|r| r.requests.as_ref()),
                );
            }
        }
        usage
    }

    /// What pods have not asked for.
    #[must_use]
    pub fn available(&self) -> BTreeMap<String, i128> {
        let free = |(name, amount): (&String, &i128)| {
            (
                name.clone(),
                (amount - self.requested.get(name).copied().unwrap_or(0)).max(0),
            )
        };
        self.allocatable.iter().map(free).collect()
    }
}

fn add(total: &mut BTreeMap<String, i128>, amounts: Option<&BTreeMap<String, Quantity>>) {
    for name in TRACKED {
        if let Some(amount) = amounts
            .and_then(|amounts| amounts.get(name))
            .and_then(thousandths)
        {
            *total.entry(name.to_owned()).or_insert(0) += amount;
        }
    }
}

/// Whether what is available differs from what was last written by more than noise.
#[must_use]
pub fn moved(written: Option<&BTreeMap<String, Quantity>>, now: &BTreeMap<String, i128>) -> bool {
    now.iter().any(|(name, amount)| {
        let old = written
            .and_then(|written| written.get(name))
            .and_then(thousandths);
        old.is_none_or(|old| (amount - old).abs() * 100 > old.abs() * NOISE)
    })
}

/// Reads a quantity, rounded up to thousandths; none when it is not one.
#[must_use]
pub fn thousandths(quantity: &Quantity) -> Option<i128> {
    const NANOS: i128 = 1_000_000;
    let nanos = quantity::Quantity::parse(&quantity.0).ok()?.nanos();
    Some(nanos.div_euclid(NANOS) + i128::from(nanos.rem_euclid(NANOS) != 0))
}

/// Writes an amount the way people read it: cores for cpu, Ki for memory.
#[must_use]
pub fn written(name: &str, thousandths: i128) -> Quantity {
    if name == "memory" && thousandths % (1000 << 10) == 0 {
        return Quantity(format!("{}Ki", thousandths / (1000 << 10)));
    }
    if thousandths % 1000 == 0 {
        return Quantity((thousandths / 1000).to_string());
    }
    Quantity(format!("{thousandths}m"))
}

/// Sums need no more of a node than what it has.
pub(super) fn trim_node(node: &mut Node) {
    node.spec = None;
    node.metadata.annotations = None;
    if let Some(status) = &mut node.status {
        let (capacity, allocatable) = (status.capacity.take(), status.allocatable.take());
        *status = NodeStatus {
            capacity,
            allocatable,
            ..Default::default()
        };
    }
}

/// Sums need no more of a pod than what it asks for.
pub(super) fn trim_pod(pod: &mut Pod) {
    pod.status = None;
    pod.metadata.annotations = None;
    pod.metadata.labels = None;
    pod.metadata.owner_references = None;
    let Some(spec) = &mut pod.spec else { return };
    let containers = std::mem::take(&mut spec.containers);
    *spec = PodSpec::default();
    spec.containers = containers
        .into_iter()
        .map(|container| Container {
            name: container.name,
            resources: container.resources,
            ..Default::default()
        })
        .collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        for (text, expected) in [
            ("8", Some(8000)),
            ("250m", Some(250)),
            ("0.5", Some(500)),
            ("1Ki", Some(1_024_000)),
            ("1.5Gi", Some(1_610_612_736_000)),
            ("100n", Some(1)),
            ("x", None),
        ] {
            assert_eq!(thousandths(&Quantity(text.into())), expected, "{text}");
        }
        assert_eq!(written("cpu", 7750).0, "7750m");
        assert_eq!(written("memory", 1000 << 30).0, "1048576Ki");
    }

    #[test]
    fn small_moves_are_noise() {
        let written = BTreeMap::from([("cpu".to_owned(), Quantity("10".into()))]);
        let now = |amount: i128| BTreeMap::from([("cpu".to_owned(), amount)]);
        assert!(!moved(Some(&written), &now(9500)));
        assert!(moved(Some(&written), &now(9499)));
        assert!(moved(None, &now(1)));
    }
}
