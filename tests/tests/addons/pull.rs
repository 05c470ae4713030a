//! A cluster whose agent fetches what it should run: an Addon reaches it as everything else does.

use serde_json::Value;
use windlass_tests::agents::{Agents, Behaviour};
use windlass_tests::eventually;

use crate::bed::Bed;

const CLUSTER: &str = "
apiVersion: cluster.kubernetes-fleet.io/v1beta1
kind: MemberCluster
metadata: {name: agent}
spec: {identity: {kind: User, name: user-agent}, heartbeatPeriodSeconds: 600}
";

fn pulled(value: &str) -> String {
    format!(
        "
apiVersion: addons.windlass.dev/v1alpha1
kind: Addon
metadata: {{name: pulled}}
spec:
  chart: {{repository: charts, name: small, version: 2.0.0}}
  namespace: pulled
  values: {{value: {value}}}
  placement: {{inline: {{policy: {{placementType: PickFixed, clusterNames: [agent]}}}}}}
"
    )
}

/// The value that the agent is told, if it is told of the ConfigMap at all.
fn told(bed: &Bed) -> Option<String> {
    let works = bed.get("works -n fleet-member-agent", "{.items}");
    let works: Vec<Value> = serde_json::from_str(&works).unwrap_or_default();
    let manifests = works.iter().filter_map(|work| {
        let manifests = work.pointer("/spec/workload/manifests")?;
        manifests.as_array()
    });
    let config = manifests.flatten().find(|object| {
        object["kind"] == "ConfigMap"
            && object["metadata"]["name"] == "small"
            && object["metadata"]["namespace"] == "pulled"
    });
    config?["data"]["value"].as_str().map(str::to_owned)
}

pub fn an_agent_gets_it_too(bed: &Bed) {
    let agents = Agents::start(&bed.fleet);
    bed.apply(CLUSTER);
    eventually("the agent has joined", || {
        let joined = crate::bed::of("Joined", "status");
        bed.get("cluster agent", &joined) == "True"
    });
    bed.apply(&pulled("one"));
    bed.ready("pulled");
    assert_eq!(told(bed).as_deref(), Some("one"));
    // What the agent says counts, and of this very render.
    agents.behave("agent", Behaviour::NotAvailable);
    bed.apply(&pulled("two"));
    eventually("the agent is told", || told(bed).as_deref() == Some("two"));
    bed.says("pulled", "PlacementProgressing", "");
    agents.behave("agent", Behaviour::Good);
    bed.ready("pulled");
    bed.delete("pulled");
    eventually("the agent has taken it away", || {
        told(bed).is_none() && bed.get("crp addon-pulled", "{.kind}").is_empty()
    });
    bed.fleet
        .kubectl("hub", "delete cluster agent --timeout=60s");
}
