use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use serde_json::json;
use windlass_aggregator::{ExternalUnset, Scheduling};
use windlass_api::scoped::{Placement, PolicySnapshot};
use windlass_cluster::discovery::Discovery;
use windlass_cluster::events::Events;
use windlass_cluster::requests::RequestCounter;
use windlass_cluster::{ObjectKey, Writer, clock};
use windlass_scheduler::Schedule;

use crate::contents::Contents;
use crate::members::{MemberPolicy, Members};
use crate::observe::Observer;
use crate::overrides::resolve::Resolved;
use crate::placement::actor::{Actor, Decided};
use crate::placement::snapshots::{Groups, LatestSnapshot};
use crate::select::Resources;
use crate::select::rules::ApiFilter;
use crate::world::{Queues, World};

/// An actor whose API server does not answer.
fn actor(registry: &Registry) -> Actor {
    clock::install_crypto();
    let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let client = kube::Client::try_from(config).unwrap();
    let queues = Queues::default();
    let events = Events::silent().unwrap();
    let observer = Observer::new(registry, &queues, events).unwrap();
    let world = World::start(&client, queues, observer);
    let writer = Writer::new(client.clone(), "windlass");
    let policy = MemberPolicy {
        unhealthy_threshold: Duration::from_secs(60),
        force_delete_wait: Duration::from_secs(60),
        profiles: false,
    };
    let requests = RequestCounter::new(registry).unwrap();
    let filter = Arc::new(ApiFilter::default());
    let members = Members::new(world.clone(), writer.clone(), requests, policy, registry).unwrap();
    Actor::new(
        world.clone(),
        writer,
        Contents::new(world, client.clone(), Arc::clone(&filter)),
        Resources::with_filter(
            client.clone(),
            Discovery::new(client),
            ApiFilter::default(),
            Arc::new(|_| ()),
        ),
        members,
        ExternalUnset::default(),
        filter,
    )
}

fn rolled_up(registry: &Registry) -> u64 {
    let families = registry.gather();
    let name = "windlass_status_rollups_total";
    let family = families.iter().find(|family| family.name() == name);
    family.unwrap().get_metric()[0].get_counter().get_value() as u64
}

fn decided() -> Decided {
    Decided {
        schedule: Schedule {
            selected: Vec::new(),
            unselected: Vec::new(),
            fulfilled: true,
            message: "found".to_owned(),
            wake_at: None,
            trouble: Vec::new(),
        },
        notes: Vec::new(),
        policy_snapshot: Arc::new(PolicySnapshot::default()),
        groups: Groups::default(),
        latest: LatestSnapshot::default(),
        overrides: Resolved::default(),
        resources: Vec::new(),
        held: Default::default(),
        unreachable: Default::default(),
    }
}

/// Looks at a status that may not be written, as a rollout brings many, don't make it.
#[tokio::test(start_paused = true)]
async fn a_status_that_is_held_back_is_not_made() {
    let registry = Registry::new();
    let actor = actor(&registry);
    let placement: Placement = serde_json::from_value(json!({
        "metadata": {"name": "web", "generation": 1}, "spec": {"resourceSelectors": []}}))
    .unwrap();
    let key = ObjectKey::of(&placement);
    actor.hold_status(&key, 1024 * 1024);
    let before = rolled_up(&registry);
    let now = clock::now();
    for _ in 0..100 {
        let wait = actor.write_status(&placement, &decided(), now).await;
        assert!(wait.unwrap() > Some(Duration::from_secs(3)));
        let why = Scheduling::Undecided("down");
        assert!(actor.stand(&placement, why).await.unwrap().is_some());
    }
    assert_eq!(rolled_up(&registry), before);
    clock::sleep(Duration::from_secs(4)).await;
    let written = actor.write_status(&placement, &decided(), now).await;
    assert!(written.is_err(), "nobody takes it");
    assert_eq!(rolled_up(&registry), before + 1);
    actor.world.stop();
}
