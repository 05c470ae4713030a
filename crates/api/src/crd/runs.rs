//! The kinds of staged update runs, in both scopes (API §3.12 to §3.14).

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;
use serde_json::{Value, json};

use super::finished_in;
use super::twin::Twin;
use crate::run::{ClusterApprovalRequest, ClusterStagedUpdateRun, ClusterStagedUpdateStrategy};
use crate::{SERVED_VERSIONS, SERVED_VERSIONS_OF_RUNS};

/// Their CRDs: each cluster-scoped one and, after it, its twin.
pub fn crds() -> Result<Vec<Value>, serde_json::Error> {
    let kinds: [(CustomResourceDefinition, Twin); 3] = [
        (
            ClusterStagedUpdateRun::crd(),
            Twin {
                kind: "StagedUpdateRun",
                plural: "stagedupdateruns",
                short: "sur",
                about: "StagedUpdateRun brings one version of a ResourcePlacement to its clusters, stage by stage.",
            },
        ),
        (
            ClusterStagedUpdateStrategy::crd(),
            Twin {
                kind: "StagedUpdateStrategy",
                plural: "stagedupdatestrategies",
                short: "sus",
                about: "StagedUpdateStrategy says in which stages the clusters of a ResourcePlacement are updated.",
            },
        ),
        (
            ClusterApprovalRequest::crd(),
            Twin {
                kind: "ApprovalRequest",
                plural: "approvalrequests",
                short: "areq",
                about: "ApprovalRequest asks a person whether a StagedUpdateRun may go on.",
            },
        ),
    ];
    let mut crds = Vec::new();
    for (crd, twin) in kinds {
        let mut crd = serde_json::to_value(crd)?;
        let namespaced = twin.of(crd.clone());
        // Upstream has the subresource there, and nothing in it (API §3.13).
        if crd["spec"]["names"]["kind"] == "ClusterStagedUpdateStrategy" {
            crd["spec"]["versions"][0]["subresources"] = json!({ "status": {} });
        }
        crds.push(finished_in(crd, &SERVED_VERSIONS_OF_RUNS)?);
        crds.push(finished_in(namespaced, &SERVED_VERSIONS)?);
    }
    Ok(crds)
}
