//! How far a placement may reach. What a namespaced placement carries is written by people who have rights
//! in one namespace of the hub, and is applied with the hub's rights on members.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::RenderError;
use crate::object::{ObjectId, is_cluster_scoped};
use crate::overrides::Override;
use crate::{Part, View};

/// What a placement may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    /// Everything.
    Cluster,
    /// Objects in this namespace.
    Namespace(&'a str),
}

/// What an administrator allows namespaced placements; by default nothing. The API server of the hub checks
/// that who writes a Role or RoleBinding has those rights himself, but not for what is in an envelope or a
/// patch; and what Pods may do on their node is decided where a namespace is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Privileges {
    /// Roles and RoleBindings, and changes of who has which rights.
    pub rights: Privileged,
    /// Changes of what Pods may do on their node.
    pub pod_security: Privileged,
}

impl Privileges {
    /// Everything is allowed.
    pub const ALL: Self = Self {
        rights: Privileged::Allowed,
        pod_security: Privileged::Allowed,
    };
}

/// Whether something is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Privileged {
    /// It is not.
    #[default]
    Refused,
    /// It is.
    Allowed,
}

/// API groups whose kinds grant rights.
const RIGHTS_GROUPS: [&str; 2] = ["rbac.authorization.k8s.io", "authorization.openshift.io"];
/// Fields that say who has rights, and which.
const RIGHTS: [&str; 6] = [
    "roleRef",
    "subjects",
    "rules",
    "aggregationRule",
    "userNames",
    "groupNames",
];
/// Beginnings of labels and annotations that say how Pods are restricted.
const POD_KEYS: [&str; 3] = [
    "pod-security.kubernetes.io/",
    "container.apparmor.security.beta.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
];
/// Fields that the pod security standards look at, wherever they stand.
const POD_FIELDS: [&str; 7] = [
    "securityContext",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "hostUsers",
    "hostPort",
    "hostPath",
];
/// Fields whose keys are anybody's.
const CONTENT: [&str; 3] = ["data", "binaryData", "stringData"];

/// What the placement carries and must not.
pub fn check(view: &View<'_>, parts: &[Part<'_>]) -> Vec<RenderError> {
    let Scope::Namespace(own) = view.scope else {
        return Vec::new();
    };
    let refused = parts.iter().filter_map(|part| {
        let id = ObjectId::of(part.object);
        let why = outside(&id, own, view.privileges)?;
        Some(RenderError {
            cluster: view.cluster.name.to_owned(),
            object: Some(id.to_string()),
            envelope: part.envelope.cloned(),
            by: None,
            rule: None,
            path: None,
            why,
        })
    });
    refused.collect()
}

fn outside(id: &ObjectId<'_>, own: &str, privileges: Privileges) -> Option<String> {
    if id.namespace != Some(own) || is_cluster_scoped(id.group, id.kind) == Some(true) {
        return Some(format!(
            "a ResourcePlacement places objects of its own namespace, {own}, only"
        ));
    }
    let grants = RIGHTS_GROUPS.contains(&id.group);
    (grants && privileges.rights == Privileged::Refused).then(|| {
        format!(
            "a ResourcePlacement does not place a {} unless an administrator allows it (--allowed-in-namespaced-placements)",
            id.kind
        )
    })
}

/// Holds what an override of somebody who is no administrator must leave as it is.
pub struct PatchGuard {
    rights: Option<Settings>,
    pod_security: Option<Settings>,
}

/// Values by their place in the object. Positions in lists are left out, so that another container beside
/// one changes nothing of it; what stands in a list several times is sorted.
type Settings = BTreeMap<String, Vec<String>>;

impl PatchGuard {
    /// Looks at the object before a patch.
    pub fn before(view: &View<'_>, source: &Override<'_>, object: &Value) -> Self {
        let free = view.scope == Scope::Cluster || source.is_administrators();
        let held = |privileged, look: fn(&Value) -> Settings| {
            (!free && privileged == Privileged::Refused).then(|| look(object))
        };
        Self {
            rights: held(view.privileges.rights, rights),
            pod_security: held(view.privileges.pod_security, pod_security),
        }
    }

    /// Looks at it afterwards.
    ///
    /// # Errors
    /// When something changed that must not.
    pub fn after(self, object: &Value) -> Result<(), String> {
        let all = [
            (self.rights, rights as fn(&Value) -> Settings),
            (self.pod_security, pod_security),
        ];
        for (before, look) in all {
            let Some(before) = before else { continue };
            let after = look(object);
            let keys = before.keys().chain(after.keys());
            if let Some(at) = keys.filter(|key| before.get(*key) != after.get(*key)).min() {
                return Err(format!(
                    "it changes {at}, and a ResourceOverride does not change rights or pod security in a ResourcePlacement unless an administrator allows it (--allowed-in-namespaced-placements)"
                ));
            }
        }
        Ok(())
    }
}

fn rights(object: &Value) -> Settings {
    // Other kinds have rules and the like, too; whom a binding binds to what is looked at in any.
    let fields = if RIGHTS_GROUPS.contains(&ObjectId::of(object).group) {
        &RIGHTS[..]
    } else {
        &RIGHTS[..2]
    };
    fields
        .iter()
        .filter_map(|field| Some((format!("/{field}"), vec![object.get(field)?.to_string()])))
        .collect()
}

fn pod_security(object: &Value) -> Settings {
    let mut found = Settings::new();
    collect(object, "", &mut found);
    for values in found.values_mut() {
        values.sort();
    }
    found
}

fn collect(value: &Value, at: &str, found: &mut Settings) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                if at.is_empty() && CONTENT.contains(&key.as_str()) {
                    continue;
                }
                let at = format!("{at}/{key}");
                let counts = POD_FIELDS.contains(&key.as_str())
                    || POD_KEYS.iter().any(|start| key.starts_with(start));
                if counts {
                    found.entry(at).or_default().push(field.to_string());
                } else {
                    collect(field, &at, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, at, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
