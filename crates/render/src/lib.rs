//! What one cluster gets of a snapshot. Pure.
//!
//! [`open`] takes the manifests out of the envelopes of a snapshot, once for all clusters. [`render`] works
//! the overrides in for one cluster; a manifest that no override touches is not copied. [`effects`] says in
//! few words what the overrides do on a cluster, so that two clusters, or two moments, can be compared
//! without rendering.
//!
//! ```text
//!  snapshot ──open──▶ parts ──┐
//!  override snapshots ────────┼──render──▶ per part: as it is, left out, or changed
//!  cluster: name, labels ─────┘            or why not: cluster, object, override, rule, path
//! ```

pub mod confine;
mod envelope;
mod error;
mod object;
mod overrides;
mod patch;
mod scope;
mod subject;
mod variables;

use serde_json::Value;
use windlass_api::placement::EnvelopeIdentifier;

pub use confine::Confinement;
pub use envelope::{Opened, OpenedPart, envelopes, open, placed};
pub use error::RenderError;
pub use object::{ObjectId, is_cluster_scoped};
pub use overrides::{Override, OverrideName, PlacementKey, effects};
pub use scope::{Scope, is_confined};
pub use subject::Subject;

/// The cluster that manifests are for.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    /// Its name.
    pub name: &'a str,
    /// Labels of its MemberCluster.
    pub labels: &'a std::collections::BTreeMap<String, String>,
}

/// One manifest of an opened snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The object.
    pub object: &'a Value,
    /// The envelope that it came in.
    pub envelope: Option<&'a EnvelopeIdentifier>,
    /// The hub itself made what is in that envelope, of what an administrator asked for.
    pub vouched: bool,
}

/// What becomes of a manifest on a cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Rendered {
    /// It stays as it is: the one that all clusters share.
    Same,
    /// It is not placed there.
    LeftOut,
    /// It is changed to this.
    Changed(Value),
}

/// What [`render`] needs.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The placement.
    pub placement: PlacementKey<'a>,
    /// The cluster.
    pub cluster: Cluster<'a>,
    /// The overrides, in the order in which they are applied: ClusterResourceOverrides by name, then
    /// ResourceOverrides by namespace and name (API §7.7), so that a ResourceOverride has the last word.
    pub overrides: &'a [Override<'a>],
    /// How far the placement may reach.
    pub scope: Scope<'a>,
    /// What a namespaced placement, and a ResourceEnvelope or ResourceOverride in any, may carry or change.
    pub confinement: &'a Confinement,
}

/// Works the overrides in: one entry per part, in order.
///
/// Overrides apply one after the other, of each the rules that match the cluster in order, of each rule
/// the patches in order. A Delete is the end: no later rule or override sees the object.
///
/// # Errors
/// Everything that is wrong, in order; there is at least one. Then the cluster gets nothing new.
pub fn render(view: &View<'_>, parts: &[Part<'_>]) -> Result<Vec<Rendered>, Vec<RenderError>> {
    let mut errors = scope::check(view, parts);
    let effective = overrides::effective(view, &mut errors);
    let mut rendered = Vec::with_capacity(parts.len());
    for part in parts {
        match patch::render_part(view, &effective, part) {
            Ok(result) => rendered.push(result),
            Err(error) => errors.push(*error),
        }
    }
    if errors.is_empty() {
        Ok(rendered)
    } else {
        Err(errors)
    }
}
