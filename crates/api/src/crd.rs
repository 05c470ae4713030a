//! The CustomResourceDefinitions, in controller-gen's form.
//!
//! The types say what the schema is; [`normalise`] brings it into the form that Go tools generate, so that
//! the two can be compared; [`rules`] adds what only CEL can say, [`checks`] what upstream says in its
//! webhooks. Both served versions get the same schema.

mod admit;
mod checks;
mod envelope;
mod normalise;
mod rules;
mod runs;
mod status_copy;
mod twin;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::{CustomResourceExt, Resource};
use serde_json::{Value, json};

pub use self::admit::{Admitted, admit};
use self::twin::Twin;
use crate::addon::{self, Addon, AddonChart, AddonRepository};
use crate::binding::ClusterResourceBinding;
use crate::eviction::{ClusterResourcePlacementDisruptionBudget, ClusterResourcePlacementEviction};
use crate::member::MemberCluster;
use crate::overrides::{
    ClusterResourceOverride, ClusterResourceOverrideSnapshot, ResourceOverride,
    ResourceOverrideSnapshot,
};
use crate::placement::ClusterResourcePlacement;
use crate::pull::{InternalMemberCluster, Work};
use crate::snapshot::{ClusterResourceSnapshot, ClusterSchedulingPolicySnapshot};
use crate::work::AppliedWork;
use crate::{
    SERVED_VERSIONS, SERVED_VERSIONS_OF_EVICTIONS, SERVED_VERSIONS_OF_OVERRIDES, STORAGE_VERSION,
};

/// Every CRD of the API as JSON, in a fixed order.
///
/// # Errors
/// When a type has no schema that can be serialised, which a test rules out.
pub fn all_crds() -> Result<Vec<Value>, serde_json::Error> {
    let mut crds = hub_crds()?;
    crds.push(applied_work()?);
    Ok(crds)
}

/// The CRDs that a hub needs.
///
/// # Errors
/// As [`all_crds`].
pub fn hub_crds() -> Result<Vec<Value>, serde_json::Error> {
    let mut crds = [
        MemberCluster::crd(),
        ClusterResourcePlacement::crd(),
        ClusterSchedulingPolicySnapshot::crd(),
        ClusterResourceSnapshot::crd(),
        ClusterResourceBinding::crd(),
        InternalMemberCluster::crd(),
        Work::crd(),
    ]
    .into_iter()
    .map(finished)
    .collect::<Result<Vec<_>, _>>()?;
    crds.extend(namespaced()?);
    let copy = status_copy::of(serde_json::to_value(ClusterResourcePlacement::crd())?);
    crds.push(finished_in(copy, &SERVED_VERSIONS)?);
    crds.extend(overrides()?);
    crds.extend(evictions()?);
    crds.extend(envelope::crds());
    crds.extend(runs::crds()?);
    crds.extend(addons()?);
    Ok(crds)
}

/// The CRD that a member needs.
///
/// # Errors
/// As [`all_crds`].
pub fn applied_work() -> Result<Value, serde_json::Error> {
    finished(AppliedWork::crd())
}

fn overrides() -> Result<Vec<Value>, serde_json::Error> {
    [
        ClusterResourceOverride::crd(),
        ResourceOverride::crd(),
        ClusterResourceOverrideSnapshot::crd(),
        ResourceOverrideSnapshot::crd(),
    ]
    .into_iter()
    .map(|crd| finished_in(serde_json::to_value(crd)?, &SERVED_VERSIONS_OF_OVERRIDES))
    .collect()
}

fn evictions() -> Result<Vec<Value>, serde_json::Error> {
    [
        ClusterResourcePlacementEviction::crd(),
        ClusterResourcePlacementDisruptionBudget::crd(),
    ]
    .into_iter()
    .map(|crd| finished_in(serde_json::to_value(crd)?, &SERVED_VERSIONS_OF_EVICTIONS))
    .collect()
}

fn addons() -> Result<Vec<Value>, serde_json::Error> {
    let finished = |crd| {
        finished_as(
            serde_json::to_value(crd)?,
            &[addon::VERSION],
            addon::VERSION,
        )
    };
    Ok(vec![
        unobserved(finished(AddonRepository::crd())?),
        finished(AddonChart::crd())?,
        unobserved(finished(Addon::crd())?),
    ])
}

/// An object that the hub has not looked at yet is not Current to kstatus: its status is of no generation.
fn unobserved(mut crd: Value) -> Value {
    let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status";
    if let Some(status) = crd.pointer_mut(status) {
        status["default"] = json!({ "observedGeneration": -1 });
    }
    crd
}

/// The kinds that live in a namespace and have the schema of a cluster-scoped one (API §1.1).
fn namespaced() -> Result<Vec<Value>, serde_json::Error> {
    let twins = [
        (
            ClusterResourcePlacement::crd(),
            Twin {
                kind: "ResourcePlacement",
                plural: "resourceplacements",
                short: "rp",
                about: "ResourcePlacement selects resources in its own namespace on the hub and places them on \
                        member clusters.",
            },
            &SERVED_VERSIONS[..],
        ),
        (
            ClusterSchedulingPolicySnapshot::crd(),
            Twin {
                kind: "SchedulingPolicySnapshot",
                plural: "schedulingpolicysnapshots",
                short: "sps",
                about: "SchedulingPolicySnapshot is one version of a ResourcePlacement's policy, with the decisions \
                        made for it.",
            },
            &[STORAGE_VERSION][..],
        ),
        (
            ClusterResourceSnapshot::crd(),
            Twin {
                kind: "ResourceSnapshot",
                plural: "resourcesnapshots",
                short: "rs",
                about: "ResourceSnapshot is one version of a ResourcePlacement's resources, or a part of one.",
            },
            &[STORAGE_VERSION][..],
        ),
        (
            ClusterResourceBinding::crd(),
            Twin {
                kind: "ResourceBinding",
                plural: "resourcebindings",
                short: "rb",
                about: "ResourceBinding says which snapshot of a ResourcePlacement one cluster runs, and how it fares \
                        there.",
            },
            &[STORAGE_VERSION][..],
        ),
    ];
    twins
        .into_iter()
        .map(|(crd, twin, versions)| finished_in(twin.of(serde_json::to_value(crd)?), versions))
        .collect()
}

fn finished(crd: CustomResourceDefinition) -> Result<Value, serde_json::Error> {
    finished_in(serde_json::to_value(crd)?, &SERVED_VERSIONS)
}

fn finished_in(crd: Value, served: &[&str]) -> Result<Value, serde_json::Error> {
    finished_as(crd, served, STORAGE_VERSION)
}

fn finished_as(mut crd: Value, served: &[&str], stored: &str) -> Result<Value, serde_json::Error> {
    let kind = crd["spec"]["names"]["kind"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let mut version = crd["spec"]["versions"][0].take();
    let schema = &mut version["schema"]["openAPIV3Schema"];
    normalise::schema(schema);
    normalise::root(schema);
    rules::add(&kind, schema);
    checks::add(&kind, schema);
    // A Work without a spec is one of nothing (API §3.10).
    if kind == Work::kind(&())
        && let Some(root) = schema.as_object_mut()
    {
        root.remove("required");
    }
    let versions: Vec<Value> = served
        .iter()
        .map(|name| {
            let mut version = version.clone();
            version["name"] = json!(name);
            version["served"] = json!(true);
            version["storage"] = json!(*name == stored);
            version
        })
        .collect();
    crd["spec"]["versions"] = Value::Array(versions);
    crd["spec"]["names"]["listKind"] = json!(format!("{kind}List"));
    crd["spec"]["conversion"] = json!({ "strategy": "None" });
    Ok(crd)
}
