//! Elections over a server that compares and swaps; time is simulated.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that can't go on fails"
)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Reply, Seen, refusal};
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use serde_json::{Value, json};
use windlass_cluster::Writer;
use windlass_cluster::clock;
use windlass_cluster::lease::gate::NOT_LEADER;
use windlass_cluster::lease::step::{Contender, Timing};
use windlass_cluster::lease::{Election, Leadership};

/// What the server has, and how it behaves.
#[derive(Default)]
struct Server {
    namespace: bool,
    lease: Option<Value>,
    version: u64,
    writes: Vec<String>,
    silent: bool,
    /// So many answers to writes get lost.
    loses: usize,
}

type Shared = Arc<Mutex<Server>>;

impl Server {
    fn answer(&mut self, seen: &Seen) -> Reply {
        if self.silent {
            return Reply::Silence;
        }
        let live = self.lease.clone();
        let version = |object: &Option<Value>| {
            object
                .as_ref()
                .map(|object| object["metadata"]["resourceVersion"].clone())
        };
        match (&seen.method, seen.path.rsplit('/').next().unwrap()) {
            (&Method::GET, "l") => match live {
                Some(lease) => Reply::Json(200, lease),
                None => refusal(404, "NotFound", "leases \"l\" not found"),
            },
            // No right to watch: the election does without.
            (&Method::GET, _) => refusal(403, "Forbidden", "no"),
            (&Method::POST, "namespaces") => {
                self.writes.push("create namespace".into());
                self.namespace = true;
                Reply::Json(201, seen.body.clone())
            }
            (&Method::POST, "leases") if !self.namespace => {
                refusal(404, "NotFound", "namespaces \"n\" not found")
            }
            (&Method::POST, "leases") if live.is_some() => refusal(409, "AlreadyExists", "no"),
            (&Method::PUT, "l") if version(&live) != version(&Some(seen.body.clone())) => {
                refusal(409, "Conflict", "no")
            }
            (&Method::POST, "leases") | (&Method::PUT, "l") => {
                let holder = &seen.body["spec"]["holderIdentity"];
                self.writes.push(format!("lease {holder}"));
                self.version += 1;
                let mut stored = seen.body.clone();
                stored["metadata"]["resourceVersion"] = self.version.to_string().into();
                self.lease = Some(stored.clone());
                if self.loses > 0 {
                    self.loses -= 1;
                    return Reply::Break;
                }
                Reply::Json(200, stored)
            }
            // Anything else is somebody's write.
            _ => Reply::Json(200, seen.body.clone()),
        }
    }
}

fn server() -> (Client, Shared) {
    let shared = Shared::default();
    let server = Arc::clone(&shared);
    let (client, _) = common::server(move |seen| server.lock().unwrap().answer(seen));
    (client, shared)
}

fn start(client: &Client, identity: &str) -> Election {
    let contender = Contender {
        namespace: "n".into(),
        name: "l".into(),
        identity: identity.into(),
        timing: Timing::default(),
    };
    Election::start(client.clone(), "windlass", contender, async {})
}

async fn leads(election: &Election) {
    let mut leadership = election.leadership();
    leadership
        .wait_for(|state| matches!(state, Leadership::Leading { .. }))
        .await
        .unwrap();
}

async fn lost(election: &Election) -> String {
    let mut leadership = election.leadership();
    match &*leadership
        .wait_for(|state| matches!(state, Leadership::Lost(_)))
        .await
        .unwrap()
    {
        Leadership::Lost(why) => why.clone(),
        other => panic!("{other:?}"),
    }
}

fn config_map() -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": "c", "namespace": "n"}})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_first_one_leads_at_once_and_the_next_one_when_it_gives_the_lease_back() {
    let (client, server) = server();
    let began = clock::monotonic();
    let first = start(&client, "a");
    leads(&first).await;
    assert_eq!(clock::monotonic(), began);
    assert_eq!(
        server.lock().unwrap().writes,
        ["create namespace", "lease \"a\""]
    );
    let second = start(&client, "b");
    clock::sleep(Duration::from_secs(60)).await;
    assert!(matches!(
        &*second.leadership().borrow(),
        Leadership::Following { holder: Some(holder) } if holder == "a"
    ));
    let renewals = server.lock().unwrap().writes.len() - 2;
    assert!((29..=30).contains(&renewals), "{renewals} in 60 s");

    assert!(first.release(Duration::from_secs(1)).await);
    let told = clock::monotonic();
    leads(&second).await;
    let took = clock::monotonic() - told;
    assert!(took <= Duration::from_secs(2), "{took:?} without a watch");
    assert!(second.gate().is_open());
    let writes = server.lock().unwrap().writes.clone();
    assert!(
        writes.ends_with(&["lease \"\"".into(), "lease \"b\"".into()]),
        "{writes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_crash_is_noticed_when_the_lease_is_over() {
    let (client, server) = server();
    let first = start(&client, "a");
    leads(&first).await;
    let second = start(&client, "b");
    clock::sleep(Duration::from_secs(31)).await;
    server.lock().unwrap().silent = true;
    let silent = clock::monotonic();
    // It notices before anybody could take the lease.
    let why = lost(&first).await;
    assert!(clock::monotonic() - silent <= Duration::from_secs(7));
    assert!(why.contains("could not be renewed within 7 s"), "{why}");
    let writer = Writer::new(client.clone(), "windlass").with_gate(first.gate());
    let error = writer.create(&config_map()).await.unwrap_err();
    assert_eq!(error.message(), NOT_LEADER);
    server.lock().unwrap().silent = false;
    leads(&second).await;
    let took = clock::monotonic() - silent;
    assert!(
        took > Duration::from_secs(8) && took < Duration::from_secs(15),
        "{took:?}"
    );
    let writer = Writer::new(client, "windlass").with_gate(second.gate());
    assert!(writer.create(&config_map()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn lost_answers_and_a_deleted_lease_do_not_end_a_leader() {
    let (client, server) = server();
    server.lock().unwrap().loses = 1;
    let leader = start(&client, "a");
    leads(&leader).await;
    server.lock().unwrap().loses = 1;
    clock::sleep(Duration::from_secs(5)).await;
    assert!(leader.gate().is_open());
    server.lock().unwrap().lease = None;
    clock::sleep(Duration::from_secs(20)).await;
    assert!(leader.gate().is_open());
    assert!(server.lock().unwrap().lease.is_some(), "it is made anew");
    server.lock().unwrap().lease.as_mut().unwrap()["spec"]["holderIdentity"] = "z".into();
    server.lock().unwrap().lease.as_mut().unwrap()["metadata"]["resourceVersion"] = "z".into();
    let why = lost(&leader).await;
    assert!(why.contains("taken by \"z\""), "{why}");
    assert!(leader.release(Duration::from_secs(1)).await);
    let lease = server.lock().unwrap().lease.clone().unwrap();
    assert_eq!(
        lease["spec"]["holderIdentity"], "z",
        "another's is left alone"
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_ends_before_it_leads_leaves_nothing_behind() {
    let (client, server) = server();
    let contender = Contender {
        namespace: "n".into(),
        name: "l".into(),
        identity: "a".into(),
        timing: Timing::default(),
    };
    let waits = Election::start(client, "windlass", contender, std::future::pending());
    clock::sleep(Duration::from_secs(60)).await;
    assert!(waits.release(Duration::from_secs(1)).await);
    assert_eq!(server.lock().unwrap().writes, Vec::<String>::new());
}
