//! Which overrides matter to a placement, an object, a cluster (API §7.7, hub §5.2).

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};
use windlass_api::overrides::{
    ClusterResourceOverrideSpec, OverrideRule, OverrideType, PlacementRef, ResourceOverrideSpec,
    ResourceScope, ResourceSelector,
};
use windlass_api::placement::ResourceSelectorTerm;
use windlass_scheduler::selector::{SelectorError, matches};
use windlass_status::digest::Digest;

use crate::error::RenderError;
use crate::object::ObjectId;
use crate::subject::Subject;
use crate::variables::substitute;
use crate::{Cluster, View};

/// A placement of either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacementKey<'a> {
    /// Namespace of a ResourcePlacement; none for a ClusterResourcePlacement.
    pub namespace: Option<&'a str>,
    /// Its name.
    pub name: &'a str,
}

/// How messages name an override: by its snapshot, which says the version, too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OverrideName {
    /// Namespace of a ResourceOverride; none for a ClusterResourceOverride. Those without go first.
    pub namespace: Option<String>,
    /// Name of the snapshot.
    pub name: String,
}

impl fmt::Display for OverrideName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "ResourceOverrideSnapshot {namespace}/{}", self.name),
            None => write!(f, "ClusterResourceOverrideSnapshot {}", self.name),
        }
    }
}

/// An override of either kind.
#[derive(Clone, Debug)]
pub struct Override<'a> {
    /// Its snapshot.
    pub name: OverrideName,
    placement: Option<&'a PlacementRef>,
    selectors: Selectors<'a>,
    rules: &'a [OverrideRule],
}

#[derive(Clone, Copy, Debug)]
enum Selectors<'a> {
    Cluster(&'a [ResourceSelectorTerm]),
    Namespace(&'a str, &'a [ResourceSelector]),
}

impl<'a> Override<'a> {
    /// A ClusterResourceOverride.
    #[must_use]
    pub fn of_cluster(snapshot: &str, spec: &'a ClusterResourceOverrideSpec) -> Self {
        Self {
            name: OverrideName {
                namespace: None,
                name: snapshot.to_owned(),
            },
            placement: spec.placement.as_ref(),
            selectors: Selectors::Cluster(&spec.cluster_resource_selectors),
            rules: &spec.policy.override_rules,
        }
    }

    /// A ResourceOverride.
    #[must_use]
    pub fn of_namespace(
        namespace: &'a str,
        snapshot: &str,
        spec: &'a ResourceOverrideSpec,
    ) -> Self {
        Self {
            name: OverrideName {
                namespace: Some(namespace.to_owned()),
                name: snapshot.to_owned(),
            },
            placement: spec.placement.as_ref(),
            selectors: Selectors::Namespace(namespace, &spec.resource_selectors),
            rules: &spec.policy.override_rules,
        }
    }

    /// Whether it is for this placement:
    ///
    /// | `spec.placement` | ClusterResourceOverride | ResourceOverride |
    /// |---|---|---|
    /// | absent | every placement | every placement |
    /// | scope Cluster | the ClusterResourcePlacement of that name | the same |
    /// | scope Namespaced | none | the ResourcePlacement of that name in its own namespace |
    #[must_use]
    pub fn is_for(&self, placement: PlacementKey<'_>) -> bool {
        match self.placement {
            None => true,
            Some(reference) => self.resolved(reference) == Some(placement),
        }
    }

    /// The placement that a reference names; none when it can name none.
    fn resolved(&self, reference: &'a PlacementRef) -> Option<PlacementKey<'a>> {
        let namespace = match (
            reference.scope.unwrap_or(ResourceScope::Cluster),
            self.selectors,
        ) {
            (ResourceScope::Cluster, _) => None,
            (ResourceScope::Namespaced, Selectors::Cluster(_)) => return None,
            (ResourceScope::Namespaced, Selectors::Namespace(namespace, _)) => Some(namespace),
        };
        Some(PlacementKey {
            namespace,
            name: &reference.name,
        })
    }

    /// What it is about: the placement that it names, if it names one, otherwise what it selects.
    #[must_use]
    pub fn subjects(&self) -> Vec<Subject<'a>> {
        if let Some(reference) = self.placement {
            let named = self.resolved(reference);
            return named.map(Subject::Placement).into_iter().collect();
        }
        let terms = match self.selectors {
            Selectors::Namespace(own, _) => return vec![Subject::Namespace(own)],
            Selectors::Cluster(terms) => terms,
        };
        let mut subjects = Vec::with_capacity(terms.len());
        for term in terms {
            let Some(name) = term.name.as_deref() else {
                continue;
            };
            subjects.push(Subject::Object {
                group: &term.group,
                version: &term.version,
                kind: &term.kind,
                name,
            });
            if is_namespace(term) {
                subjects.push(Subject::Namespace(name));
            }
        }
        subjects
    }

    /// Whether it selects this object:
    ///
    /// | selector of | selects |
    /// |---|---|
    /// | ClusterResourceOverride | the cluster-scoped object of that group, version, kind and name |
    /// | the same, a core/v1 Namespace | also everything in that namespace |
    /// | ResourceOverride | the object of that group, version, kind and name in the override's namespace |
    #[must_use]
    pub fn selects(&self, id: &ObjectId<'_>) -> bool {
        match (self.selectors, id.namespace) {
            (Selectors::Cluster(terms), None) => terms.iter().any(|term| {
                let same = (
                    term.group.as_str(),
                    term.version.as_str(),
                    term.kind.as_str(),
                ) == (id.group, id.version, id.kind);
                same && term.name.as_deref() == Some(id.name)
            }),
            (Selectors::Cluster(terms), Some(namespace)) => terms
                .iter()
                .any(|term| is_namespace(term) && term.name.as_deref() == Some(namespace)),
            (Selectors::Namespace(own, terms), namespace) => {
                namespace == Some(own)
                    && terms.iter().any(|term| {
                        (term.group.as_str(), term.version.as_str()) == (id.group, id.version)
                            && term.kind == id.kind
                            && term.name == id.name
                    })
            }
        }
    }

    /// Whether any of its rules matches the cluster. One whose selector can't be read does, so that it is
    /// told of where it may have been meant.
    #[must_use]
    pub fn matches(&self, cluster: Cluster<'_>) -> bool {
        self.rules
            .iter()
            .any(|rule| rule_matches(rule, cluster).unwrap_or(true))
    }

    /// Whether its author may do on the hub what the hub does on members.
    pub(crate) const fn is_administrators(&self) -> bool {
        matches!(self.selectors, Selectors::Cluster(_))
    }
}

fn is_namespace(term: &ResourceSelectorTerm) -> bool {
    term.group.is_empty() && term.version == "v1" && term.kind == "Namespace"
}

/// No selector: no cluster; no terms: every cluster; else any term by labels. A term without a label
/// selector selects nothing: what it asks for instead is not for overrides (API §6.4).
fn rule_matches(rule: &OverrideRule, cluster: Cluster<'_>) -> Result<bool, SelectorError> {
    let Some(selector) = &rule.cluster_selector else {
        return Ok(false);
    };
    if selector.cluster_selector_terms.is_empty() {
        return Ok(true);
    }
    let mut any = false;
    for term in &selector.cluster_selector_terms {
        if let Some(labels) = &term.label_selector {
            any |= matches(labels, cluster.labels)?;
        }
    }
    Ok(any)
}

/// An override as it is on one cluster.
pub(crate) struct Effective<'a> {
    pub source: &'a Override<'a>,
    /// The rules that match, with their positions.
    pub rules: Vec<(usize, &'a OverrideRule)>,
}

/// The overrides that do something on the cluster, in order; what can't be read is an error.
pub(crate) fn effective<'a>(view: &View<'a>, errors: &mut Vec<RenderError>) -> Vec<Effective<'a>> {
    let mut all = Vec::new();
    for source in view.overrides.iter().filter(|o| o.is_for(view.placement)) {
        let mut rules = Vec::new();
        for (position, rule) in source.rules.iter().enumerate() {
            match rule_matches(rule, view.cluster) {
                Ok(true) => rules.push((position, rule)),
                Ok(false) => {}
                Err(why) => errors.push(RenderError {
                    cluster: view.cluster.name.to_owned(),
                    object: None,
                    envelope: None,
                    by: Some(source.name.clone()),
                    rule: Some(position),
                    path: None,
                    why: format!("clusterSelector: {why}"),
                }),
            }
        }
        if !rules.is_empty() {
            all.push(Effective { source, rules });
        }
    }
    all
}

/// What the overrides do on a cluster, as variables of its digest: empty when they do nothing. Equal ones
/// render equally, whatever the snapshots are called and whatever they do elsewhere.
#[must_use]
pub fn effects(
    overrides: &[Override<'_>],
    placement: PlacementKey<'_>,
    cluster: Cluster<'_>,
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for source in overrides.iter().filter(|o| o.is_for(placement)) {
        let rules: Vec<Value> = source
            .rules
            .iter()
            .filter_map(|rule| effect(rule, cluster))
            .collect();
        if rules.is_empty() {
            continue;
        }
        let digest = Digest::of_json(&json!([selectors_as_json(source.selectors), rules]));
        all.insert(format!("override {:05}", all.len()), digest.to_string());
    }
    all
}

fn effect(rule: &OverrideRule, cluster: Cluster<'_>) -> Option<Value> {
    match rule_matches(rule, cluster) {
        Ok(true) => {}
        Ok(false) => return None,
        Err(why) => return Some(json!({ "unreadable": why.to_string() })),
    }
    if rule.override_type == Some(OverrideType::Delete) {
        return Some(json!("delete"));
    }
    let patches = rule.json_patch_overrides.as_deref().unwrap_or_default();
    let patches: Vec<Value> = patches
        .iter()
        .map(|patch| {
            let value = patch.value.as_ref().map(|value| &value.0);
            let value = value.map(|value| match substitute(value, cluster) {
                Ok(value) => json!([value]),
                Err(why) => json!({ "unreadable": why }),
            });
            json!([patch.op, patch.path, value])
        })
        .collect();
    Some(Value::Array(patches))
}

fn selectors_as_json(selectors: Selectors<'_>) -> Value {
    match selectors {
        Selectors::Cluster(terms) => json!(terms),
        Selectors::Namespace(namespace, terms) => json!([namespace, terms]),
    }
}
