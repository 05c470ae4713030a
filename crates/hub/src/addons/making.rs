//! From a chosen version to envelopes: the archive is fetched, Helm renders it twice, and the objects are packed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use dashmap::DashMap;
use kube::ResourceExt;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use windlass_addons::archive::{self, Archive};
use windlass_addons::manifests::{Content, KindScope};
use windlass_addons::pack::{Envelope, Rules, pack};
use windlass_addons::placed::{Outcome, Placed, Why};
use windlass_addons::render::{RenderError, RenderFault, RenderRequest};
use windlass_addons::{Fault, Source};
use windlass_api::addon::{Addon, AddonStatus, RenderedEnvelope};
use windlass_cluster::{ApiError, ObjectKey};
use windlass_status::digest::Digest;

use super::addon::{AddonActor, failed};
use super::choice::Chosen;
use super::source;

/// Hooks that a status lists.
const HOOKS: usize = 50;

/// Kinds that it lists.
const KINDS: usize = 20;

/// What a render has come to.
pub(super) struct Made {
    /// Digest of what it depends on.
    pub digest: Digest,
    /// Which chart it is of.
    pub chart_digest: String,
    /// Helm's version.
    pub helm: String,
    /// What is written.
    pub envelopes: Vec<Envelope>,
    /// How many objects of each kind.
    pub objects: BTreeMap<String, i32>,
    /// Hooks that are left out.
    pub skipped_hooks: Vec<String>,
    /// Kinds that nobody knew where they live.
    pub assumed: Vec<String>,
    /// The release's own Namespace, if the chart makes it.
    pub namespace: Option<Value>,
    /// A second render came to the same.
    pub is_reproducible: bool,
}

/// What is rendered of a chart with this digest.
pub(super) fn request(addon: &Addon, chart_digest: String) -> RenderRequest {
    let spec = &addon.spec;
    let told = spec.capabilities.clone().unwrap_or_default();
    RenderRequest {
        chart_digest,
        release: spec
            .release_name
            .clone()
            .unwrap_or_else(|| addon.name_any()),
        namespace: spec.namespace.clone(),
        values: spec.values.clone().unwrap_or(Value::Null),
        kubernetes_version: told.kubernetes_version,
        api_versions: told.api_versions.unwrap_or_default(),
    }
}

/// The same of what was chosen; none if only its archive tells which chart it is.
pub(super) fn input(addon: &Addon, known: &AddonStatus, chosen: &Chosen) -> Option<RenderRequest> {
    let digest = if chosen.is_kept {
        known.chart_digest.clone()
    } else {
        chosen.version.digest.clone()
    };
    Some(request(addon, digest?))
}

/// How many charts are fetched from one repository at once. Those of others don't wait for one that hangs.
const FETCHES: usize = 2;

/// See [`FETCHES`]. Clones share everything.
#[derive(Clone)]
pub(super) struct Turns {
    of: Arc<DashMap<String, Arc<Semaphore>>>,
    /// Who holds an archive, or is about to.
    all: Arc<Semaphore>,
}

/// How many archives are in memory at once, all in all.
const ARCHIVES: usize = 16;

/// How many repositories may have a semaphore here although nobody fetches from them.
const REMEMBERED: usize = 1000;

impl Default for Turns {
    fn default() -> Self {
        Self {
            of: Arc::default(),
            all: Arc::new(Semaphore::new(ARCHIVES)),
        }
    }
}

impl Turns {
    fn of(&self, repository: &str) -> Arc<Semaphore> {
        // Names of repositories that are gone.
        if self.of.len() > REMEMBERED {
            self.of.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        let turns = self.of.entry(repository.to_owned());
        Arc::clone(&turns.or_insert_with(|| Arc::new(Semaphore::new(FETCHES))))
    }
}

impl AddonActor {
    /// The archive of the version that was chosen.
    pub(super) async fn archive(
        &self,
        addon: &Addon,
        chosen: &Chosen,
    ) -> Result<Result<Held, Outcome>, ApiError> {
        let choice = &addon.spec.chart;
        let name = &choice.repository;
        let waits = |reason, message: String| Ok(Err(Outcome::Waits(Why::new(reason, message))));
        let Some(repository) = self
            .world
            .addons
            .repositories
            .get(&ObjectKey::cluster(name))
        else {
            let message =
                format!("AddonRepository {name} does not exist, and the chart is needed from it");
            return waits("RepositoryNotFound", message);
        };
        let look = source::of(&self.world.addons, &self.writer, &repository).await?;
        let source: Source = match look {
            Ok(found) => found.source,
            Err(trouble) => {
                let message = format!("AddonRepository {name}: {}", trouble.message());
                return waits("RepositoryNotReady", message);
            }
        };
        let limits = archive::Limits::default();
        let turn = self.turns.of(name);
        // In this order: who waits for a repository that hangs keeps nobody else from another one. Neither is ever
        // closed.
        let _turn = turn.acquire().await;
        let held = Arc::clone(&self.turns.all).acquire_owned().await;
        let fetched = archive::fetch(&source, &choice.name, &chosen.version, &limits).await;
        let archive = match fetched {
            Ok(archive) => archive,
            Err(failure)
                if chosen.is_republished
                    && (failure.fault() == Some(Fault::SourceNotFound)
                        || failure.is_mismatch()) =>
            {
                let message = format!(
                    "Version {} was published anew since it was rendered, and what is asked for now needs the chart \
                     that is gone. What runs stays; updatePolicy: Automatic takes the new one, and so does another \
                     spec.chart.version",
                    chosen.version.version
                );
                let why = Why::new("ChartRepublished", message);
                return Ok(Err(Outcome::Refused(why)));
            }
            Err(failure) => {
                let why = Why::new("ChartNotAvailable", failure.to_string());
                return Ok(Err(match failure.fault() {
                    Some(_) => Outcome::Refused(why),
                    None => Outcome::Failed(why, failure.retry_after()),
                }));
            }
        };
        Ok(Ok(Held {
            archive,
            _turn: held.ok(),
        }))
    }
}

/// An archive in memory, and the right to hold it there.
pub(super) struct Held {
    pub archive: Archive,
    _turn: Option<OwnedSemaphorePermit>,
}

/// Renders, twice, and packs.
pub(super) async fn make(
    actor: &AddonActor,
    addon: &Addon,
    chosen: &Chosen,
    archive: &Archive,
    helm: &str,
    digest: Digest,
) -> Result<Result<Made, Outcome>, ApiError> {
    let chart_digest = chart_digest(chosen, archive);
    let request = request(addon, chart_digest.clone());
    let (content, is_reproducible) = match twice(actor, &request, archive, helm).await? {
        Ok(found) => found,
        Err(error) => return Ok(Err(failed(&error))),
    };
    let counts = content.counts();
    let Content {
        objects,
        mut skipped_hooks,
        mut assumed,
        namespace,
    } = content;
    let rules = Rules {
        refuses: &|object| actor.filter.refuses_enveloped(object),
        is_reserved: &|namespace| actor.filter.is_reserved(namespace),
    };
    let envelopes = match pack(&addon.name_any(), objects, &rules) {
        Ok(envelopes) => envelopes,
        Err(error) => return Ok(Err(failed(&error))),
    };
    if envelopes.is_empty() {
        let message = "The chart renders nothing with these values.";
        return Ok(Err(Outcome::Refused(Why::new("NothingRendered", message))));
    }
    skipped_hooks.truncate(HOOKS);
    assumed.truncate(KINDS);
    Ok(Ok(Made {
        digest,
        chart_digest,
        helm: helm.to_owned(),
        envelopes,
        objects: counts,
        skipped_hooks,
        assumed,
        namespace,
        is_reproducible,
    }))
}

/// What a chart renders to, and whether it does so each time.
async fn twice(
    actor: &AddonActor,
    request: &RenderRequest,
    archive: &Archive,
    helm: &str,
) -> Result<Result<(Content, bool), RenderError>, ApiError> {
    let kinds = actor.discovery.preferred().await?;
    let kinds: HashMap<(String, String), KindScope> = kinds
        .into_iter()
        .map(|known| {
            let scope = if known.namespaced {
                KindScope::Namespaced
            } else {
                KindScope::Cluster
            };
            ((known.resource.group, known.resource.kind), scope)
        })
        .collect();
    let scope_of =
        |group: &str, kind: &str| kinds.get(&(group.to_owned(), kind.to_owned())).copied();
    let render = || actor.renderer.render(request, &archive.bytes, &scope_of);
    // Of the first one only the digest is kept: a render may be large.
    let (first, by) = match render().await {
        Ok(rendered) => (rendered.digest(), rendered.helm_version),
        Err(error) => return Ok(Err(error)),
    };
    Ok(render().await.and_then(|rendered| {
        // It would be filed under the digest of another Helm's.
        if by != helm || rendered.helm_version != helm {
            let what = "Helm was replaced while the chart was rendered; it is tried again";
            return Err(RenderError::new(RenderFault::HelmFailed, what));
        }
        let is_reproducible = rendered.digest() == first;
        Ok((rendered.content, is_reproducible))
    }))
}

/// What tells the chart from another one under the same name: the repository's word, or the archive itself.
fn chart_digest(chosen: &Chosen, archive: &Archive) -> String {
    chosen
        .version
        .digest
        .clone()
        .unwrap_or_else(|| archive.digest.to_string())
}

/// A placement that the hub makes has the Addon's own namespace; what a chart renders into others is for the
/// user's own placement.
pub(super) fn strays(addon: &Addon, listed: &[RenderedEnvelope]) -> Option<Placed> {
    addon.spec.placement.inline.as_ref()?;
    let own = &addon.spec.namespace;
    let others: BTreeSet<&String> = listed
        .iter()
        .filter_map(|envelope| envelope.namespace.as_ref())
        .collect();
    let others: Vec<&str> = others
        .into_iter()
        .filter(|namespace| *namespace != own)
        .map(String::as_str)
        .collect();
    (!others.is_empty()).then(|| {
        let message = format!(
            "The chart renders into other namespaces than {own}, too: {}; set its values so that it does not, or \
             name a ClusterResourcePlacement that selects them in spec.placement.ref",
            others.join(", ")
        );
        Placed::Refused(Why::new("OtherNamespaces", message))
    })
}
