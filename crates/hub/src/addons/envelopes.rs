//! The envelopes of an Addon on the hub: whether they hold what they should, and writing them. They are
//! watched as metadata; what is in one is read once per version of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use windlass_addons::pack::{Envelope, Mark};
use windlass_addons::placed::{Outcome, Why};
use windlass_api::addon::{Addon, RenderedEnvelope};
use windlass_api::labels;
use windlass_cluster::{ApiError, ObjectKey, Propagation};
use windlass_status::digest::Digest;

use super::Meta;
use super::addon::{AddonActor, owner_of};
use crate::select::renders::{content, kind_of};

/// Envelopes written at once.
const AT_ONCE: usize = 4;

/// Digests of what is in envelopes, by Addon, kind and name, and the version that they are of.
#[derive(Clone, Default)]
pub(super) struct Seen(Arc<Mutex<HashMap<String, Versions>>>);

type Versions = HashMap<(Option<String>, String), (String, Digest)>;

impl Seen {
    /// Forgets an Addon that is gone.
    pub(super) fn forget(&self, addon: &str) {
        self.lock().remove(addon);
    }

    fn get(&self, addon: &str, listed: &RenderedEnvelope, version: &str) -> Option<Digest> {
        let all = self.lock();
        let key = (listed.namespace.clone(), listed.name.clone());
        let (of, digest) = all.get(addon)?.get(&key)?;
        (of == version).then_some(*digest)
    }

    fn put(&self, addon: &str, listed: &RenderedEnvelope, version: &str, digest: Digest) {
        let key = (listed.namespace.clone(), listed.name.clone());
        let mut all = self.lock();
        let versions = all.entry(addon.to_owned()).or_default();
        versions.insert(key, (version.to_owned(), digest));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Versions>> {
        // No code that can panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a status says of envelopes.
pub(super) fn list(envelopes: &[Envelope]) -> Vec<RenderedEnvelope> {
    let listed = envelopes.iter().map(|envelope| RenderedEnvelope {
        namespace: envelope.namespace.clone(),
        name: envelope.name.clone(),
        digest: content(&json!({"data": envelope.data})).to_string(),
    });
    listed.collect()
}

fn resource(listed: &RenderedEnvelope) -> ApiResource {
    let kind: GroupVersionKind = kind_of(listed);
    ApiResource::from_gvk(&kind)
}

fn key_of(listed: &RenderedEnvelope) -> ObjectKey {
    ObjectKey::namespaced(
        listed.namespace.as_deref().unwrap_or_default(),
        &listed.name,
    )
}

/// Whether all envelopes are there, and hold what they should.
pub(super) async fn hold(
    actor: &AddonActor,
    addon: &Addon,
    listed: &[RenderedEnvelope],
) -> Result<bool, ApiError> {
    for envelope in listed {
        if !holds(actor, addon, envelope).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn holds(
    actor: &AddonActor,
    addon: &Addon,
    envelope: &RenderedEnvelope,
) -> Result<bool, ApiError> {
    let name = addon.name_any();
    let meta = actor
        .world
        .addons
        .envelope(envelope.namespace.is_some(), &key_of(envelope));
    let Some(version) = meta
        .filter(|meta| is_ours(meta, addon))
        .and_then(|meta| meta.resource_version())
    else {
        return Ok(false);
    };
    if let Some(digest) = actor.seen.get(&name, envelope, &version) {
        return Ok(digest.is(&envelope.digest));
    }
    let (kind, namespace) = (resource(envelope), envelope.namespace.as_deref());
    let read = actor.writer.get_dyn(&kind, namespace, &envelope.name);
    let Some(live) = read.await? else {
        return Ok(false);
    };
    let digest = content(&live.data);
    if let Some(version) = live.resource_version() {
        actor.seen.put(&name, envelope, &version, digest);
    }
    Ok(digest.is(&envelope.digest))
}

/// With both: by its label it is selected, by its owner it goes.
fn is_ours(meta: &Meta, addon: &Addon) -> bool {
    let uid = addon.uid();
    let owners = meta.metadata.owner_references.iter().flatten();
    let label = meta.labels().get(labels::ADDON);
    label == Some(&addon.name_any())
        && owners
            .into_iter()
            .any(|owner| Some(&owner.uid) == uid.as_ref())
}

/// What of somebody else's has the name of an envelope that is to be written.
pub(super) async fn conflict(
    actor: &AddonActor,
    addon: &Addon,
    envelopes: &[Envelope],
) -> Result<Option<Outcome>, ApiError> {
    for listed in list(envelopes) {
        let namespaced = listed.namespace.is_some();
        let known = actor.world.addons.envelope(namespaced, &key_of(&listed));
        if known.is_some_and(|meta| belongs(&*meta, addon)) {
            continue;
        }
        let (kind, namespace) = (resource(&listed), listed.namespace.as_deref());
        let live = actor.writer.get_dyn(&kind, namespace, &listed.name).await?;
        if live.is_some_and(|live| !belongs(&live, addon)) {
            let message = format!(
                "{} {} is there already and is not this Addon's; remove it, or name the Addon otherwise",
                kind.kind,
                key_of(&listed)
            );
            return Ok(Some(Outcome::Refused(Why::new(
                "EnvelopeConflict",
                message,
            ))));
        }
    }
    Ok(None)
}

/// Whether an object was made for this Addon, or for one before it of that name; also one that was orphaned.
fn belongs<K: ResourceExt>(object: &K, addon: &Addon) -> bool {
    let ours = owner_of(addon);
    let owners = object.owner_references();
    let is_same = |owner: &OwnerReference| {
        owner.uid == ours.uid
            || (owner.kind == ours.kind
                && owner.api_version == ours.api_version
                && owner.name == ours.name)
    };
    let is_marked = object.labels().get(labels::ADDON) == Some(&ours.name)
        && object.annotations().contains_key(labels::ADDON_RENDER);
    owners.iter().any(is_same) || (owners.is_empty() && is_marked)
}

/// The envelope that is listed, if it is among these objects as it should be.
pub(super) fn found(objects: &[Value], listed: &RenderedEnvelope) -> Option<Envelope> {
    let text = |object: &Value, pointer: &str| {
        let text = object.pointer(pointer).and_then(Value::as_str);
        text.map(str::to_owned)
    };
    let object = objects.iter().find(|object| {
        text(object, "/kind") == Some(kind_of(listed).kind)
            && text(object, "/metadata/name").as_deref() == Some(&*listed.name)
            && text(object, "/metadata/namespace") == listed.namespace
            && content(object).is(&listed.digest)
    })?;
    let data = object.get("data")?.as_object()?;
    Some(Envelope {
        namespace: listed.namespace.clone(),
        name: listed.name.clone(),
        data: data
            .iter()
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect(),
    })
}

/// Makes the namespaces that envelopes need. They are not removed with the Addon, as Helm does not: other things
/// may have come to live in them. `own` is the Addon's namespace as the chart makes it: its labels and
/// annotations (pod security, say) count only when it is made here, for an existing one is somebody's already.
async fn namespaces(
    actor: &AddonActor,
    addon: &Addon,
    envelopes: &[Envelope],
    own: Option<&Value>,
) -> Result<(), ApiError> {
    let mut names: BTreeSet<&str> = envelopes
        .iter()
        .filter_map(|envelope| envelope.namespace.as_deref())
        .collect();
    names.insert(&addon.spec.namespace);
    for name in names {
        if actor.writer.get::<Namespace>(None, name).await?.is_some() {
            continue;
        }
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        if let Some(own) = own.filter(|_| name == addon.spec.namespace) {
            namespace.metadata.labels = texts(own, "labels");
            namespace.metadata.annotations = texts(own, "annotations");
        }
        match actor.writer.create(&namespace).await {
            Ok(_) | Err(ApiError::AlreadyExists(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Labels or annotations of what a chart renders, but for those that say something to the hub or to Helm.
fn texts(object: &Value, field: &str) -> Option<BTreeMap<String, String>> {
    let all = object.get("metadata")?.get(field)?.as_object()?;
    let counts = |key: &str| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let is_of = |whose: &&str| domain == *whose || domain.ends_with(&format!(".{whose}"));
        !["kubernetes-fleet.io", "windlass.dev", "helm.sh"]
            .iter()
            .any(is_of)
    };
    let texts = all.iter().filter(|(key, _)| counts(key));
    let texts = texts.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    Some(texts.collect())
}

/// Writes the envelopes, and the namespaces that they need; see [`namespaces`] for `own`.
///
/// # Errors
/// What the API server does not take, as an outcome; or that it can't be asked.
pub(super) async fn write(
    actor: &AddonActor,
    addon: &Addon,
    envelopes: &[Envelope],
    render: Digest,
    own: Option<&Value>,
) -> Result<Result<(), Outcome>, ApiError> {
    let refused = |result: Result<(), ApiError>| match result {
        Err(ApiError::Rejected(message)) => {
            let why = Why::new("EnvelopeNotWritten", message);
            Ok(Err(Outcome::Failed(why, None)))
        }
        other => other.map(Ok),
    };
    let made = refused(namespaces(actor, addon, envelopes, own).await)?;
    if made.is_err() {
        return Ok(made);
    }
    let mark = Mark {
        addon: addon.name_any(),
        render,
        owner: owner_of(addon),
    };
    let writes: Vec<_> = envelopes
        .iter()
        .zip(list(envelopes))
        .map(|(envelope, listed)| {
            let object = envelope.object(&mark, envelopes.len());
            async move { write_one(actor, addon, object, &listed).await }
        })
        .collect();
    let results: Vec<_> = stream::iter(writes)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    refused(results.into_iter().collect())
}

async fn write_one(
    actor: &AddonActor,
    addon: &Addon,
    object: serde_json::Value,
    listed: &RenderedEnvelope,
) -> Result<(), ApiError> {
    let mut object: DynamicObject = serde_json::from_value(object).map_err(|error| {
        ApiError::Rejected(format!("envelope {} can't be made: {error}", listed.name))
    })?;
    let namespaced = listed.namespace.is_some();
    let known = actor.world.addons.envelope(namespaced, &key_of(listed));
    // Written before the hub died, or before another one of them could not be.
    let is_marked = |meta: &Arc<Meta>| {
        let marks = [labels::ADDON_RENDER, labels::ADDON_PARTS];
        marks
            .iter()
            .all(|mark| meta.annotations().get(*mark) == object.annotations().get(*mark))
    };
    if known.as_ref().is_some_and(is_marked) && holds(actor, addon, listed).await? {
        return Ok(());
    }
    object.metadata.resource_version = known.and_then(|known| known.resource_version());
    let live = store(actor, addon, object, listed).await?;
    let digest = content(&live.data);
    if let Some(version) = live.resource_version() {
        actor.seen.put(&addon.name_any(), listed, &version, digest);
    }
    actor.world.addons.envelope_written(namespaced, &live);
    if digest.is(&listed.digest) {
        return Ok(());
    }
    // It would be written again and again.
    Err(ApiError::Rejected(format!(
        "{} {} is not stored as it was sent: something on the hub changes it, such as an admission policy",
        kind_of(listed).kind,
        key_of(listed)
    )))
}

/// Replaces the version that the envelope names, or creates it.
async fn store(
    actor: &AddonActor,
    addon: &Addon,
    mut object: DynamicObject,
    listed: &RenderedEnvelope,
) -> Result<DynamicObject, ApiError> {
    let (kind, namespace) = (resource(listed), listed.namespace.as_deref());
    if object.metadata.resource_version.is_some() {
        return actor.writer.replace_dyn(&kind, &object).await;
    }
    match actor.writer.create_dyn(&kind, &object).await {
        // Ours without its label, or made a moment ago; somebody else's is left alone.
        Err(ApiError::AlreadyExists(message)) => {
            let live = actor.writer.get_dyn(&kind, namespace, &listed.name).await?;
            let live = live.filter(|live| belongs(live, addon));
            let Some(live) = live else {
                return Err(ApiError::Conflict(message));
            };
            object.metadata.resource_version = live.resource_version();
            actor.writer.replace_dyn(&kind, &object).await
        }
        other => other,
    }
}

/// Removes the Addon's envelopes that are not listed: what is left over of renders before.
pub(super) async fn prune(
    actor: &AddonActor,
    addon: &Addon,
    listed: &[RenderedEnvelope],
) -> Result<(), ApiError> {
    for (namespaced, meta) in actor.world.addons.envelopes_of(&addon.name_any()) {
        let namespace = meta.namespace();
        let name = meta.name_any();
        let is_listed = listed
            .iter()
            .any(|envelope| envelope.name == name && envelope.namespace == namespace);
        if is_listed || !is_ours(&meta, addon) || meta.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let probe = RenderedEnvelope {
            namespace: namespace.clone().filter(|_| namespaced),
            name: name.clone(),
            digest: String::new(),
        };
        actor
            .writer
            .delete_dyn(
                &resource(&probe),
                namespace.as_deref(),
                &name,
                meta.uid().as_deref(),
                Propagation::Background,
            )
            .await?;
        tracing::info!(
            name,
            label = labels::ADDON,
            "an envelope of an earlier render is removed"
        );
    }
    Ok(())
}
