//! Members' agents, played: one connection to the hub for all of them, answers at once.
//!
//! An agent joins when it is told to, reports on each new generation of its Works, and lets go of them when
//! it is told to leave: what a KubeFleet agent does, as far as the hub can see it. One that is given a real
//! member applies there, too ([`Agents::apply_on`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{StreamExt, pin_mut};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher::{self, watcher};
use kube::{Client, Config, ResourceExt};
use serde_json::{Value, json};
use windlass_api::labels::WORK_FINALIZER;
use windlass_api::pull::{InternalMemberCluster, MembershipState, Work};
use windlass_api::work::{AppliedWork, AppliedWorkSpec};

use crate::Fleet;

/// How an agent answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// Everything works.
    #[default]
    Good,
    /// The objects can't be applied.
    Fails,
    /// They are applied, and not available.
    NotAvailable,
    /// They are applied; their availability can't be tracked.
    Untracked,
    /// They are applied, and somebody has changed them.
    Drifts,
    /// It works, does not leave when it is told to, and puts its finalizers back.
    HoldsOn,
    /// It says nothing at all.
    Silent,
}

#[derive(Default)]
struct State {
    behaviours: BTreeMap<String, Behaviour>,
    works: BTreeMap<String, Work>,
    internals: BTreeMap<String, InternalMemberCluster>,
    /// What was answered last: a text of everything that the answer depends on.
    answered: BTreeMap<String, String>,
    members: BTreeMap<String, Client>,
    /// By how many hours a clock is wrong.
    clocks: BTreeMap<String, i64>,
    removed: BTreeSet<String>,
    writes: usize,
}

/// See the module. The agents end when it is dropped.
pub struct Agents {
    inner: Inner,
    // Held so that the tasks live.
    runtime: tokio::runtime::Runtime,
}

#[derive(Clone)]
struct Inner {
    hub: Client,
    state: Arc<Mutex<State>>,
}

impl Agents {
    /// Starts the agents of every cluster that is told to join.
    ///
    /// # Panics
    /// When the hub's API server can't be connected to.
    #[must_use]
    pub fn start(fleet: &Fleet) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be made");
        let hub = runtime.block_on(connect(&fleet.kubeconfig("hub")));
        let inner = Inner {
            hub,
            state: Arc::default(),
        };
        runtime.spawn(inner.clone().watch_internals());
        runtime.spawn(inner.clone().watch_works());
        Self { inner, runtime }
    }

    /// From now on the agent of a cluster answers like that.
    pub fn behave(&self, cluster: &str, behaviour: Behaviour) {
        let (works, internal) = {
            let mut state = self.inner.lock();
            state.behaviours.insert(cluster.to_owned(), behaviour);
            let namespace = format!("fleet-member-{cluster}");
            let works: Vec<Work> = state
                .works
                .values()
                .filter(|work| work.namespace().as_deref() == Some(namespace.as_str()))
                .cloned()
                .collect();
            (works, state.internals.get(&namespace).cloned())
        };
        for work in works {
            self.runtime.spawn(self.inner.clone().answer(work));
        }
        if let Some(internal) = internal {
            self.runtime.spawn(self.inner.clone().report(internal));
        }
    }

    /// Gives the agent of a cluster a real member to apply to.
    pub fn apply_on(&self, cluster: &str, kubeconfig: &Path) {
        let client = self.runtime.block_on(connect(kubeconfig));
        self.inner.lock().members.insert(cluster.to_owned(), client);
    }

    /// From now on the clock of a cluster's agent is wrong by so many hours.
    pub fn set_clock(&self, cluster: &str, hours: i64) {
        self.inner.lock().clocks.insert(cluster.to_owned(), hours);
    }

    /// Sends a heartbeat for a cluster.
    pub fn beat(&self, cluster: &str) {
        let namespace = format!("fleet-member-{cluster}");
        let internal = {
            let mut state = self.inner.lock();
            state.answered.remove(&namespace);
            state.internals.get(&namespace).cloned()
        };
        if let Some(internal) = internal {
            self.runtime.block_on(self.inner.clone().report(internal));
        }
    }

    /// Sends heartbeats for some clusters, for so long, and looks at them in between.
    pub fn beat_for(&self, limit: std::time::Duration, clusters: &[&str], look: impl Fn(&str)) {
        let begin = std::time::Instant::now();
        while begin.elapsed() < limit {
            for cluster in clusters {
                self.beat(cluster);
                look(cluster);
            }
            std::thread::park_timeout(std::time::Duration::from_millis(200));
        }
    }

    /// Works (`namespace/name`) whose content the agents removed, for they were deleted.
    #[must_use]
    pub fn removed(&self) -> BTreeSet<String> {
        self.inner.lock().removed.clone()
    }

    /// Writes of the agents so far.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.inner.lock().writes
    }
}

/// Whether a user may get past the guard rails in a namespace of the hub.
///
/// # Panics
/// When the hub does not tell.
#[must_use]
pub fn may_bypass(fleet: &Fleet, user: &str, namespace: &str) -> bool {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": {"verb": "bypass", "group": "windlass.dev",
                 "resource": "guardrails", "namespace": namespace}},
    });
    let ask = "create -f - -o jsonpath={.status.allowed}";
    let answer = fleet.try_kubectl("hub", ask, Some(&review.to_string()));
    answer.expect("the hub tells") == "true"
}

pub(crate) async fn connect(kubeconfig: &Path) -> Client {
    drop(rustls::crypto::ring::default_provider().install_default());
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("the kubeconfig can be read");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("it says where")).expect("a client can be made")
}

fn key<K: kube::Resource>(object: &K) -> String {
    let meta = object.meta();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", text(&meta.namespace), text(&meta.name))
}

fn cluster_of(namespace: Option<String>) -> Option<String> {
    Some(namespace?.strip_prefix("fleet-member-")?.to_owned())
}

fn condition(type_: &str, good: bool, reason: &str, generation: i64) -> Value {
    json!({"type": type_, "status": if good { "True" } else { "False" }, "reason": reason,
           "message": format!("{reason}, says the agent"), "observedGeneration": generation,
           "lastTransitionTime": jiff::Timestamp::now().round(jiff::Unit::Second).ok()})
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn watch_internals(self) {
        let api: Api<InternalMemberCluster> = Api::all(self.hub.clone());
        let events = watcher(api, watcher::Config::default());
        pin_mut!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                    let namespace = object.namespace().unwrap_or_default();
                    self.lock().internals.insert(namespace, object.clone());
                    tokio::spawn(self.clone().report(object));
                }
                Ok(watcher::Event::Delete(object)) => {
                    let namespace = object.namespace().unwrap_or_default();
                    let mut state = self.lock();
                    state.internals.remove(&namespace);
                    state.answered.remove(&namespace);
                }
                _ => {}
            }
        }
    }

    async fn watch_works(self) {
        let api: Api<Work> = Api::all(self.hub.clone());
        let events = watcher(api, watcher::Config::default());
        pin_mut!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(work) | watcher::Event::InitApply(work)) => {
                    self.lock().works.insert(key(&work), work.clone());
                    tokio::spawn(self.clone().answer(work));
                }
                Ok(watcher::Event::Delete(work)) => {
                    let mut state = self.lock();
                    state.works.remove(&key(&work));
                    state.answered.remove(&key(&work));
                }
                _ => {}
            }
        }
    }

    fn behaviour(&self, cluster: &str) -> Behaviour {
        self.lock()
            .behaviours
            .get(cluster)
            .copied()
            .unwrap_or_default()
    }

    /// Whether this is to be answered now; not twice the same.
    fn is_new(&self, key: &str, what: String) -> bool {
        let mut state = self.lock();
        if state.answered.get(key) == Some(&what) {
            return false;
        }
        state.answered.insert(key.to_owned(), what);
        true
    }

    async fn report(self, internal: InternalMemberCluster) {
        let namespace = internal.namespace().unwrap_or_default();
        let Some(cluster) = cluster_of(internal.namespace()) else {
            return;
        };
        let behaviour = self.behaviour(&cluster);
        let leaves = internal.spec.state == MembershipState::Leave;
        let what = format!(
            "{:?} {leaves} {:?}",
            internal.uid(),
            behaviour == Behaviour::Silent
        );
        let stays = leaves && behaviour == Behaviour::HoldsOn;
        if stays || behaviour == Behaviour::Silent || !self.is_new(&namespace, what) {
            return;
        }
        if leaves {
            self.release(&namespace).await;
        }
        let generation = internal.metadata.generation.unwrap_or_default();
        let reason = if leaves {
            "InternalMemberClusterLeft"
        } else {
            "InternalMemberClusterJoined"
        };
        let hours = self
            .lock()
            .clocks
            .get(&cluster)
            .copied()
            .unwrap_or_default();
        let now = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(hours);
        let now = now.round(jiff::Unit::Second).ok();
        let amounts = |cpu: &str| json!({"cpu": cpu, "memory": "8Gi"});
        let status = json!({"status": {
            "agentStatus": [{"type": "MemberAgent", "lastReceivedHeartbeat": now, "conditions": [
                condition("Joined", !leaves, reason, generation),
                condition("Healthy", true, "InternalMemberClusterHealthy", generation)]}],
            "properties": {"kubernetes-fleet.io/node-count": {"value": "3", "observationTime": now}},
            "resourceUsage": {"capacity": amounts("8"), "allocatable": amounts("7"),
                              "available": amounts("5"), "observationTime": now},
        }});
        let api: Api<InternalMemberCluster> = Api::namespaced(self.hub.clone(), &namespace);
        self.count();
        let sent = api
            .patch_status(
                &internal.name_any(),
                &PatchParams::default(),
                &Patch::Merge(status),
            )
            .await;
        drop(sent);
    }

    /// Takes the finalizers off a namespace's Works; what they placed stays.
    async fn release(&self, namespace: &str) {
        let works: Vec<Work> = {
            let state = self.lock();
            let of = |work: &&Work| work.namespace().as_deref() == Some(namespace);
            state.works.values().filter(of).cloned().collect()
        };
        for work in works {
            self.finalizer(&work, false).await;
        }
    }

    async fn finalizer(&self, work: &Work, on: bool) {
        let list = if on {
            json!([WORK_FINALIZER])
        } else {
            Value::Null
        };
        let namespace = work.namespace().unwrap_or_default();
        let api: Api<Work> = Api::namespaced(self.hub.clone(), &namespace);
        let patch = json!({"metadata": {"finalizers": list}});
        self.count();
        let sent = api
            .patch(
                &work.name_any(),
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await;
        drop(sent);
    }

    async fn answer(self, work: Work) {
        let Some(cluster) = cluster_of(work.namespace()) else {
            return;
        };
        let namespace = work.namespace().unwrap_or_default();
        let leaves = self
            .lock()
            .internals
            .get(&namespace)
            .is_none_or(|internal| internal.spec.state == MembershipState::Leave);
        let behaviour = self.behaviour(&cluster);
        let holds_on = behaviour == Behaviour::HoldsOn;
        let deleted = work.metadata.deletion_timestamp.is_some();
        let generation = work.metadata.generation.unwrap_or_default();
        let free = holds_on && work.finalizers().is_empty();
        let what = format!(
            "{:?} {generation} {deleted} {behaviour:?} {free}",
            work.uid()
        );
        if leaves && !holds_on || behaviour == Behaviour::Silent || !self.is_new(&key(&work), what)
        {
            return;
        }
        let member = self.lock().members.get(&cluster).cloned();
        if deleted {
            if let Some(member) = &member {
                let api: Api<AppliedWork> = Api::all(member.clone());
                drop(
                    api.delete(&work.name_any(), &DeleteParams::background())
                        .await,
                );
            }
            self.lock().removed.insert(key(&work));
            self.finalizer(&work, false).await;
            return;
        }
        if work
            .metadata
            .finalizers
            .as_deref()
            .unwrap_or_default()
            .is_empty()
        {
            self.finalizer(&work, true).await;
        }
        if let Some(member) = &member
            && let Err(error) = apply(member, &work).await
        {
            eprintln!("the agent of {cluster}: {error}");
            return;
        }
        let api: Api<Work> = Api::namespaced(self.hub.clone(), &namespace);
        let patch = json!({"status": status_of(&work, behaviour)});
        self.count();
        let sent = api
            .patch_status(
                &work.name_any(),
                &PatchParams::default(),
                &Patch::Merge(patch),
            )
            .await;
        if let Err(error) = sent {
            eprintln!("the agent of {cluster}: {error}");
            self.lock().answered.remove(&key(&work));
        }
    }

    fn count(&self) {
        self.lock().writes += 1;
    }
}

fn status_of(work: &Work, behaviour: Behaviour) -> Value {
    let generation = work.metadata.generation.unwrap_or_default();
    let report_diff = work.spec.apply_strategy.as_ref().is_some_and(|strategy| {
        strategy.type_ == Some(windlass_api::placement::ApplyStrategyType::ReportDiff)
    });
    let conditions = |of: i64| -> Vec<Value> {
        if report_diff {
            return vec![condition(
                "DiffReported",
                true,
                "AllManifestsDiffReported",
                of,
            )];
        }
        let applied = condition("Applied", behaviour != Behaviour::Fails, "Applied", of);
        let available = match behaviour {
            Behaviour::Fails => return vec![applied],
            Behaviour::NotAvailable => condition("Available", false, "ManifestNotAvailableYet", of),
            Behaviour::Untracked => condition("Available", true, "WorkNotTrackable", of),
            _ => condition("Available", true, "AllManifestsAvailable", of),
        };
        vec![applied, available]
    };
    let now = jiff::Timestamp::now().round(jiff::Unit::Second).ok();
    let manifests = work
        .spec
        .workload
        .iter()
        .flat_map(|w| w.manifests.iter().flatten());
    let manifests: Vec<Value> = manifests
        .enumerate()
        .map(|(ordinal, manifest)| {
            let object = &manifest.0;
            let (group, version) = match object["apiVersion"].as_str().unwrap_or_default() {
                both if both.contains('/') => both.split_once('/').unwrap_or_default(),
                version => ("", version),
            };
            let mut entry = json!({
                "identifier": {"ordinal": ordinal, "group": group, "version": version,
                    "kind": object["kind"], "name": object["metadata"]["name"],
                    "namespace": object["metadata"]["namespace"].as_str().unwrap_or_default()},
                "conditions": conditions(1)});
            let detail = json!([{"path": "/data/a", "valueInMember": "x", "valueInHub": "y"}]);
            if behaviour == Behaviour::Drifts && !report_diff {
                entry["driftDetails"] = json!({"observationTime": now, "firstDriftedObservedTime": now,
                    "observedInMemberClusterGeneration": 2, "observedDrifts": detail});
            }
            if let Some(wanted) = &work.spec.report_back_strategy
                && wanted.type_ == windlass_api::placement::ReportBackStrategyType::Mirror
            {
                entry["backReportedStatus"] = json!({"observationTime": now, "observedStatus": {
                    "apiVersion": object["apiVersion"], "kind": object["kind"], "status": {"phase": "reported"}}});
            }
            if report_diff {
                entry["diffDetails"] = json!({"observationTime": now, "firstDiffedObservedTime": now,
                    "observedInMemberClusterGeneration": 2, "observedDiffs": detail});
            }
            entry
        })
        .collect();
    json!({"conditions": conditions(generation), "manifestConditions": manifests})
}

/// Applies a Work to a real member as an agent does: owned by an AppliedWork of its name.
async fn apply(member: &Client, work: &Work) -> Result<(), kube::Error> {
    let api: Api<AppliedWork> = Api::all(member.clone());
    let name = work.name_any();
    let wanted = AppliedWork::new(
        &name,
        AppliedWorkSpec {
            work_name: name.clone(),
            work_namespace: work.namespace().unwrap_or_default(),
        },
    );
    let live = match api.get_opt(&name).await? {
        Some(live) => live,
        None => api.create(&PostParams::default(), &wanted).await?,
    };
    let before = live
        .status
        .clone()
        .and_then(|status| status.applied_resources);
    let owner = OwnerReference {
        api_version: "placement.kubernetes-fleet.io/v1beta1".to_owned(),
        kind: "AppliedWork".to_owned(),
        uid: live.uid().unwrap_or_default(),
        name: name.clone(),
        block_owner_deletion: Some(true),
        controller: None,
    };
    let mut applied = Vec::new();
    let manifests = work
        .spec
        .workload
        .iter()
        .flat_map(|w| w.manifests.iter().flatten());
    for (ordinal, manifest) in manifests.enumerate() {
        let Ok(mut object) = serde_json::from_value::<DynamicObject>(manifest.0.clone()) else {
            continue;
        };
        object.metadata.owner_references = Some(vec![owner.clone()]);
        let types = object.types.clone().unwrap_or_default();
        let Ok(kind) = GroupVersionKind::try_from(&types) else {
            continue;
        };
        let kind = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(member.clone(), &namespace, &kind),
            None => Api::all_with(member.clone(), &kind),
        };
        let how = PatchParams::apply("work-api-agent").force();
        let live = api
            .patch(&object.name_any(), &how, &Patch::Apply(&object))
            .await?;
        applied.push(
            json!({"ordinal": ordinal, "group": kind.group, "version": kind.version,
            "kind": kind.kind, "resource": kind.plural, "name": live.name_any(),
            "namespace": live.namespace().unwrap_or_default(), "uid": live.uid()}),
        );
    }
    // What it applied before and is not to any more goes, as with any agent.
    for entry in before.unwrap_or_default() {
        let of = |key: &str| -> Vec<Value> { applied.iter().map(|a| a[key].clone()).collect() };
        if entry.uid.is_none() || of("uid").contains(&json!(entry.uid)) {
            continue;
        }
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let gvk = GroupVersionKind::gvk(
            &text(&entry.group),
            &text(&entry.version),
            &text(&entry.kind),
        );
        let kind = ApiResource::from_gvk(&gvk);
        let api: Api<DynamicObject> = match entry.namespace.as_deref() {
            None | Some("") => Api::all_with(member.clone(), &kind),
            Some(namespace) => Api::namespaced_with(member.clone(), namespace, &kind),
        };
        drop(
            api.delete(&text(&entry.name), &DeleteParams::background())
                .await,
        );
    }
    let status = json!({"status": {"appliedResources": applied}});
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
        .await
        .map(drop)
}
