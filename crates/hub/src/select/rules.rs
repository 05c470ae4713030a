//! What is never placed: kinds (API §7.1), objects (§7.3) and namespaces (§7.2, design §5.18).

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::GroupVersionKind;
use serde_json::Value;
use windlass_api::names::is_reserved_namespace;
use windlass_api::{CLUSTER_GROUP, PLACEMENT_GROUP, labels};
use windlass_member::install::SERVICE_ACCOUNT;

use windlass_render::Confinement;

use super::renders::Renders;

/// Why the flags that name kinds can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Both lists are given.
    #[error(
        "--skipped-propagating-apis and --allowed-propagating-apis exclude each other; give one of them"
    )]
    Both,
    /// An entry has an empty part or too many parts.
    #[error("{0:?} names no API; write group, group/version, group/version/Kind,Kind or v1/Kind")]
    Malformed(String),
    /// A version stands where a group belongs. As a group's name it would never match anything.
    #[error("{0:?} is a version without a group; for kinds of the core group write {0}/Kind")]
    BareVersion(String),
}

/// One entry of a list of APIs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Api {
    Group(String),
    Version(String, String),
    Kind(GroupVersionKind),
}

impl Api {
    fn covers(&self, kind: &GroupVersionKind) -> bool {
        match self {
            Self::Group(group) => *group == kind.group,
            Self::Version(group, version) => *group == kind.group && *version == kind.version,
            // Whichever case it is written in, as KubeFleet's flags have it.
            Self::Kind(wanted) => {
                wanted.group == kind.group
                    && wanted.version == kind.version
                    && wanted.kind.eq_ignore_ascii_case(&kind.kind)
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Kinds {
    /// All but what is never placed by default, and these.
    AllBut(Vec<Api>),
    /// These, and the defaults don't count.
    Only(Vec<Api>),
}

/// Which kinds, objects and namespaces may be placed. The default has the built-in denials only.
#[derive(Clone, Debug)]
pub struct ApiFilter {
    kinds: Kinds,
    reserved: BTreeSet<String>,
    hub_runs_workloads: bool,
    confinement: Confinement,
    renders: Renders,
}

impl Default for ApiFilter {
    fn default() -> Self {
        Self {
            kinds: Kinds::AllBut(Vec::new()),
            reserved: BTreeSet::new(),
            hub_runs_workloads: false,
            confinement: Confinement::default(),
            renders: Renders::default(),
        }
    }
}

impl ApiFilter {
    /// Reads the values of `--skipped-propagating-apis` (added to the denials) and
    /// `--allowed-propagating-apis` (takes their place); empty means not given. Entries are separated by
    /// semicolons.
    ///
    /// # Errors
    /// See [`FilterError`].
    pub fn new(skipped: &str, allowed: &str) -> Result<Self, FilterError> {
        let (skipped, allowed) = (parse(skipped)?, parse(allowed)?);
        let kinds = match (skipped.is_empty(), allowed.is_empty()) {
            (false, false) => return Err(FilterError::Both),
            (true, false) => Kinds::Only(allowed),
            (_, true) => Kinds::AllBut(skipped),
        };
        Ok(Self {
            kinds,
            ..Self::default()
        })
    }

    /// Reserves more namespaces (`--skipped-propagating-namespaces`). Semicolons and commas both separate:
    /// no name can hold either.
    #[must_use]
    pub fn reserving(mut self, namespaces: &str) -> Self {
        let names = namespaces
            .split([';', ','])
            .map(str::trim)
            .filter(|name| !name.is_empty());
        self.reserved.extend(names.map(str::to_owned));
        self
    }

    /// Whether Pods run on the hub itself (`--enable-workload`): its claims are then bound to its own
    /// volumes, and stay.
    #[must_use]
    pub fn with_hub_workloads(mut self, yes: bool) -> Self {
        self.hub_runs_workloads = yes;
        self
    }

    /// What namespaced placements may carry.
    #[must_use]
    pub fn confining(mut self, confinement: Confinement) -> Self {
        self.confinement = confinement;
        self
    }

    /// See [`Self::confining`].
    #[must_use]
    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// Which envelopes Addons list.
    #[must_use]
    pub fn with_renders(mut self, renders: Renders) -> Self {
        self.renders = renders;
        self
    }

    /// See [`Self::with_renders`].
    #[must_use]
    pub fn renders(&self) -> &Renders {
        &self.renders
    }

    /// Whether objects of a kind may be placed.
    #[must_use]
    pub fn allows(&self, kind: &GroupVersionKind) -> bool {
        if is_hub_control(&kind.group, &kind.kind) {
            return false;
        }
        match &self.kinds {
            Kinds::AllBut(skipped) => {
                !is_denied(&kind.group, &kind.kind) && !skipped.iter().any(|api| api.covers(kind))
            }
            Kinds::Only(allowed) => allowed.iter().any(|api| api.covers(kind)),
        }
    }

    /// Whether the flags leave objects of a kind out. What is never placed by default because clusters make
    /// it for themselves (Pods, say) is no matter of flags: in an envelope somebody means it.
    #[must_use]
    pub fn is_left_out(&self, kind: &GroupVersionKind) -> bool {
        match &self.kinds {
            Kinds::AllBut(skipped) => skipped.iter().any(|api| api.covers(kind)),
            Kinds::Only(allowed) => !allowed.iter().any(|api| api.covers(kind)),
        }
    }

    /// Whether a namespace is reserved: it is selected in no scope.
    #[must_use]
    pub fn is_reserved(&self, namespace: &str) -> bool {
        is_reserved_namespace(namespace) || self.reserved.contains(namespace)
    }

    /// Whether an object is passed over, judged by its metadata. Endpoints that belong to a Service are
    /// not known by theirs: see [`is_endpoints`].
    #[must_use]
    pub fn passes_over(&self, kind: &GroupVersionKind, meta: &ObjectMeta) -> bool {
        if meta.deletion_timestamp.is_some() {
            return true;
        }
        let named = |name: &str| meta.name.as_deref() == Some(name);
        let owned = || {
            meta.owner_references
                .as_ref()
                .is_some_and(|owners| !owners.is_empty())
        };
        let labelled = |key: &str| {
            meta.labels
                .as_ref()
                .is_some_and(|labels| labels.contains_key(key))
        };
        match (kind.group.as_str(), kind.kind.as_str()) {
            ("apps", "ReplicaSet" | "ControllerRevision") => owned(),
            ("", "ConfigMap") => named("kube-root-ca.crt"),
            ("", "ServiceAccount") => named("default"),
            // The hub's own rights and kinds on a member: a placement can't take them away.
            ("rbac.authorization.k8s.io", "ClusterRole" | "ClusterRoleBinding") => {
                named(SERVICE_ACCOUNT)
            }
            ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                let group = |name: &str| name.split_once('.').map(|(_, group)| group.to_owned());
                meta.name
                    .as_deref()
                    .and_then(group)
                    .is_some_and(|group| [CLUSTER_GROUP, PLACEMENT_GROUP].contains(&group.as_str()))
            }
            // Credentials of member clusters (design §5.18).
            ("", "Secret") => labelled(labels::CREDENTIALS_CLUSTER),
            ("", "PersistentVolumeClaim") => self.hub_runs_workloads,
            ("", "Endpoints") => labelled("endpoints.kubernetes.io/managed-by"),
            ("discovery.k8s.io", "EndpointSlice") => {
                labelled("endpointslice.kubernetes.io/managed-by")
            }
            _ => false,
        }
    }
}

/// Whether an object is passed over for what only its content tells: a Secret that holds a token which
/// is worth something on the hub alone.
#[must_use]
pub fn holds_hub_token(kind: &GroupVersionKind, object: &Value) -> bool {
    kind.group.is_empty()
        && kind.kind == "Secret"
        && object.get("type").and_then(Value::as_str) == Some("kubernetes.io/service-account-token")
}

/// Whether a kind is core Endpoints, whose objects are passed over where a Service has the same name.
#[must_use]
pub fn is_endpoints(kind: &GroupVersionKind) -> bool {
    kind.group.is_empty() && kind.kind == "Endpoints"
}

/// What runs the hub is never placed, whatever the lists say: on a member it would mean nothing, and what
/// places itself has no end.
fn is_hub_control(group: &str, kind: &str) -> bool {
    match group {
        CLUSTER_GROUP => true,
        PLACEMENT_GROUP => !matches!(kind, "ClusterResourceEnvelope" | "ResourceEnvelope"),
        _ => false,
    }
}

/// What is not placed unless an allow list says so.
fn is_denied(group: &str, kind: &str) -> bool {
    match group {
        "events.k8s.io" | "coordination.k8s.io" | "metrics.k8s.io" => true,
        "networking.fleet.azure.com" => {
            matches!(
                kind,
                "ServiceImport" | "TrafficManagerProfile" | "TrafficManagerBackend"
            )
        }
        // Events are history, in whichever group (design §5.22).
        "" => matches!(kind, "Pod" | "Node" | "Event"),
        _ => false,
    }
}

fn parse(list: &str) -> Result<Vec<Api>, FilterError> {
    let mut apis = Vec::new();
    for entry in list
        .split(';')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
    {
        let parts: Vec<&str> = entry.split('/').map(str::trim).collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Err(FilterError::Malformed(entry.to_owned()));
        }
        match parts[..] {
            [version] if is_version(version) => {
                return Err(FilterError::BareVersion(version.to_owned()));
            }
            [group] => apis.push(Api::Group(group.to_owned())),
            ["v1", kinds] => apis.extend(parse_kinds(entry, "", "v1", kinds)?),
            [group, version] => apis.push(Api::Version(group.to_owned(), version.to_owned())),
            [group, version, kinds] => apis.extend(parse_kinds(entry, group, version, kinds)?),
            _ => return Err(FilterError::Malformed(entry.to_owned())),
        }
    }
    Ok(apis)
}

fn parse_kinds(
    entry: &str,
    group: &str,
    version: &str,
    kinds: &str,
) -> Result<Vec<Api>, FilterError> {
    kinds
        .split(',')
        .map(|kind| match kind.trim() {
            "" => Err(FilterError::Malformed(entry.to_owned())),
            kind => Ok(Api::Kind(GroupVersionKind::gvk(group, version, kind))),
        })
        .collect()
}

/// Whether a text looks like `v1` or `v2beta3`.
fn is_version(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('v') else {
        return false;
    };
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let level = rest
        .strip_prefix("alpha")
        .or_else(|| rest.strip_prefix("beta"));
    text[1..].starts_with(|c: char| c.is_ascii_digit())
        && level.unwrap_or(rest).chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn gvk(text: &str) -> GroupVersionKind {
        let parts: Vec<&str> = text.split('/').collect();
        match parts[..] {
            [version, kind] => GroupVersionKind::gvk("", version, kind),
            [group, version, kind] => GroupVersionKind::gvk(group, version, kind),
            _ => panic!("{text}"),
        }
    }

    #[test]
    fn kinds_by_default() {
        let filter = ApiFilter::default();
        for (kind, expected) in [
            ("v1/ConfigMap", true),
            ("v1/Pod", false),
            ("v1/Node", false),
            ("v1/Event", false),
            ("v1/Namespace", true),
            ("apps/v1/Deployment", true),
            ("cluster.kubernetes-fleet.io/v1/MemberCluster", false),
            ("cluster.kubernetes-fleet.io/v1beta1/Anything", false),
            (
                "placement.kubernetes-fleet.io/v1beta1/ClusterResourcePlacement",
                false,
            ),
            (
                "placement.kubernetes-fleet.io/v1beta1/ResourceEnvelope",
                true,
            ),
            (
                "placement.kubernetes-fleet.io/v1beta1/ClusterResourceEnvelope",
                true,
            ),
            ("coordination.k8s.io/v1/Lease", false),
            ("events.k8s.io/v1/Event", false),
            ("metrics.k8s.io/v1beta1/PodMetrics", false),
            ("networking.fleet.azure.com/v1/ServiceImport", false),
            ("networking.fleet.azure.com/v1/ServiceExport", true),
            // A Pod of another group is not a Pod.
            ("example.com/v1/Pod", true),
        ] {
            assert_eq!(filter.allows(&gvk(kind)), expected, "{kind}");
        }
    }

    #[test]
    fn kinds_by_flags() {
        for (skipped, allowed, kind, expected) in [
            ("apps", "", "apps/v1/Deployment", false),
            ("apps/v1", "", "apps/v1/Deployment", false),
            ("apps/v1beta1", "", "apps/v1/Deployment", true),
            (
                "apps/v1/Deployment, StatefulSet",
                "",
                "apps/v1/StatefulSet",
                false,
            ),
            ("apps/v1/Deployment", "", "apps/v1/StatefulSet", true),
            (" batch ; v1/Secret,ConfigMap;", "", "v1/ConfigMap", false),
            ("v1/Secret", "", "v1/Pod", false),
            ("", "v1/Secret", "v1/Secret", true),
            ("", "v1/Secret", "v1/ConfigMap", false),
            ("", "v1/Pod;coordination.k8s.io", "v1/Pod", true),
            // A kind is the same in whichever case it is written.
            ("v1/secret,CONFIGMAP", "", "v1/ConfigMap", false),
            ("v1/secret,CONFIGMAP", "", "v1/Secret", false),
            ("", "apps/v1/deployment", "apps/v1/Deployment", true),
            (
                "",
                "v1/Pod;coordination.k8s.io",
                "coordination.k8s.io/v1/Lease",
                true,
            ),
            ("", " ; ", "apps/v1/Deployment", true),
            // What runs the hub is never placed, whatever the lists say.
            (
                "",
                "placement.kubernetes-fleet.io",
                "placement.kubernetes-fleet.io/v1/ClusterResourcePlacement",
                false,
            ),
            (
                "",
                "cluster.kubernetes-fleet.io/v1beta1/MemberCluster",
                "cluster.kubernetes-fleet.io/v1beta1/MemberCluster",
                false,
            ),
            (
                "",
                "placement.kubernetes-fleet.io",
                "placement.kubernetes-fleet.io/v1beta1/ResourceEnvelope",
                true,
            ),
        ] {
            let filter = ApiFilter::new(skipped, allowed).unwrap();
            assert_eq!(
                filter.allows(&gvk(kind)),
                expected,
                "-{skipped} +{allowed} {kind}"
            );
        }
    }

    #[test]
    fn flags_that_are_wrong() {
        let malformed = |text: &str| FilterError::Malformed(text.to_owned());
        for (skipped, allowed, error) in [
            ("apps", "batch", FilterError::Both),
            ("a/b/C/d", "", malformed("a/b/C/d")),
            ("apps//Deployment", "", malformed("apps//Deployment")),
            ("/v1", "", malformed("/v1")),
            ("apps/v1/A,,B", "", malformed("apps/v1/A,,B")),
            ("", "v1", FilterError::BareVersion("v1".to_owned())),
            (
                "v2beta1",
                "",
                FilterError::BareVersion("v2beta1".to_owned()),
            ),
        ] {
            assert_eq!(ApiFilter::new(skipped, allowed).unwrap_err(), error);
        }
        assert!(ApiFilter::new("vertical;v1.example.com", "").is_ok());
    }

    #[test]
    fn namespaces() {
        let filter = ApiFilter::default().reserving(" infra; ops,team-x ;");
        for name in [
            "default",
            "kube-system",
            "fleet-system",
            "windlass-a",
            "infra",
            "ops",
            "team-x",
        ] {
            assert!(filter.is_reserved(name), "{name}");
        }
        assert!(!filter.is_reserved("web") && !filter.is_reserved(""));
    }

    #[test]
    fn objects() {
        let meta = |value: Value| serde_json::from_value::<ObjectMeta>(value).unwrap();
        let owners = json!([{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}]);
        for (kind, metadata, expected) in [
            ("v1/ConfigMap", json!({"name": "kube-root-ca.crt"}), true),
            ("v1/ConfigMap", json!({"name": "a"}), false),
            (
                "v1/ConfigMap",
                json!({"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}),
                true,
            ),
            (
                "v1/ConfigMap",
                json!({"name": "a", "ownerReferences": owners}),
                false,
            ),
            (
                "example.com/v1/ConfigMap",
                json!({"name": "kube-root-ca.crt"}),
                false,
            ),
            ("v1/ServiceAccount", json!({"name": "default"}), true),
            ("v1/ServiceAccount", json!({"name": "web"}), false),
            (
                "v1/Secret",
                json!({"name": "a", "labels": {"windlass.dev/cluster": "m"}}),
                true,
            ),
            ("v1/Secret", json!({"name": "a"}), false),
            (
                "apps/v1/ReplicaSet",
                json!({"name": "a", "ownerReferences": owners}),
                true,
            ),
            ("apps/v1/ReplicaSet", json!({"name": "a"}), false),
            (
                "apps/v1/ControllerRevision",
                json!({"name": "a", "ownerReferences": owners}),
                true,
            ),
            (
                "discovery.k8s.io/v1/EndpointSlice",
                json!({"name": "a", "labels": {"endpointslice.kubernetes.io/managed-by": "c"}}),
                true,
            ),
            (
                "discovery.k8s.io/v1/EndpointSlice",
                json!({"name": "a"}),
                false,
            ),
            ("v1/PersistentVolumeClaim", json!({"name": "a"}), false),
            (
                "rbac.authorization.k8s.io/v1/ClusterRole",
                json!({"name": "windlass-hub"}),
                true,
            ),
            (
                "rbac.authorization.k8s.io/v1/ClusterRoleBinding",
                json!({"name": "windlass-hub"}),
                true,
            ),
            (
                "rbac.authorization.k8s.io/v1/ClusterRole",
                json!({"name": "web"}),
                false,
            ),
            (
                "apiextensions.k8s.io/v1/CustomResourceDefinition",
                json!({"name": "appliedworks.placement.kubernetes-fleet.io"}),
                true,
            ),
            (
                "apiextensions.k8s.io/v1/CustomResourceDefinition",
                json!({"name": "things.example.com"}),
                false,
            ),
        ] {
            let actual = ApiFilter::default().passes_over(&gvk(kind), &meta(metadata.clone()));
            assert_eq!(actual, expected, "{kind} {metadata}");
        }
    }

    #[test]
    fn claims_and_tokens() {
        let claim = ObjectMeta::default();
        let filter = ApiFilter::default().with_hub_workloads(true);
        assert!(filter.passes_over(&gvk("v1/PersistentVolumeClaim"), &claim));
        let token = json!({"type": "kubernetes.io/service-account-token"});
        assert!(holds_hub_token(&gvk("v1/Secret"), &token));
        assert!(!holds_hub_token(
            &gvk("v1/Secret"),
            &json!({"type": "Opaque"})
        ));
        assert!(!holds_hub_token(&gvk("example.com/v1/Secret"), &token));
    }

    proptest! {
        /// What one list skips is exactly what the same list allows, but for the built-in denials.
        #[test]
        fn the_lists_are_opposites(
            list in "(a|b)(/v1(/(K|L)(,(K|L))?)?)?(;v1/(K|L))?",
            group in "(a|b|c)?", version in "v[12]", kind in "[KLM]",
        ) {
            let kind = GroupVersionKind::gvk(&group, &version, &kind);
            let skipping = ApiFilter::new(&list, "").unwrap();
            let allowing = ApiFilter::new("", &list).unwrap();
            prop_assert_ne!(skipping.allows(&kind), allowing.allows(&kind));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[ /;,.a-zA-Z0-9]{0,24}") {
            let _ = ApiFilter::new(&text, "");
        }
    }
}
