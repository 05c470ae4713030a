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

/// Whether a namespaced placement may carry what grants rights: the API server of the hub checks that who
/// writes a Role or RoleBinding has those rights himself, but not for what is in an envelope or a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Privileged {
    /// Roles, RoleBindings, and patches of role references, subjects and pod security are refused.
    #[default]
    Refused,
    /// An administrator allows them.
    Allowed,
}

/// Prefix of the labels by which a namespace says how its pods are restricted.
const POD_SECURITY: &str = "pod-security.kubernetes.io/";
/// Fields that say whom a binding gives rights, and which.
const RIGHTS: [&str; 3] = ["roleRef", "subjects", "rules"];
/// Fields that the pod security standards look at, wherever they stand.
const POD_FIELDS: [&str; 6] = [
    "securityContext",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "hostUsers",
    "hostPath",
];

/// What the placement carries and must not.
pub fn check(view: &View<'_>, parts: &[Part<'_>]) -> Vec<RenderError> {
    let Scope::Namespace(own) = view.scope else {
        return Vec::new();
    };
    let refused = parts.iter().filter_map(|part| {
        let id = ObjectId::of(part.object);
        let why = outside(&id, own, view.privileged)?;
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

fn outside(id: &ObjectId<'_>, own: &str, privileged: Privileged) -> Option<String> {
    if id.namespace != Some(own) || is_cluster_scoped(id.group, id.kind) == Some(true) {
        return Some(format!(
            "a ResourcePlacement places objects of its own namespace, {own}, only"
        ));
    }
    let grants = id.group == "rbac.authorization.k8s.io";
    (grants && privileged == Privileged::Refused).then(|| {
        format!(
            "a ResourcePlacement does not place a {} unless an administrator allows it",
            id.kind
        )
    })
}

/// Holds what an override of somebody who is no administrator must leave as it is.
pub struct PatchGuard {
    before: Option<BTreeMap<String, Value>>,
}

impl PatchGuard {
    /// Looks at the object before a patch.
    pub fn before(view: &View<'_>, source: &Override<'_>, object: &Value) -> Self {
        let free = view.scope == Scope::Cluster
            || view.privileged == Privileged::Allowed
            || source.is_administrators();
        Self {
            before: (!free).then(|| privileged(object)),
        }
    }

    /// Looks at it afterwards.
    ///
    /// # Errors
    /// When something changed that must not.
    pub fn after(self, object: &Value) -> Result<(), String> {
        let Some(before) = self.before else {
            return Ok(());
        };
        let after = privileged(object);
        let keys = before.keys().chain(after.keys());
        let changed = keys.filter(|key| before.get(*key) != after.get(*key)).min();
        changed.map_or(Ok(()), |at| {
            Err(format!(
                "it changes {at}, and a ResourceOverride does not change rights or pod security in a ResourcePlacement unless an administrator allows it"
            ))
        })
    }
}

/// What grants rights or lifts restrictions in an object, by its place in it.
fn privileged(object: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for field in RIGHTS {
        // Other kinds have rules, too.
        let is_rbac = ObjectId::of(object).group == "rbac.authorization.k8s.io";
        if let Some(value) = object.get(field).filter(|_| is_rbac || field != "rules") {
            found.insert(format!("/{field}"), value.clone());
        }
    }
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object);
    for (key, value) in labels.into_iter().flatten() {
        if key.starts_with(POD_SECURITY) {
            found.insert(format!("/metadata/labels/{key}"), value.clone());
        }
    }
    pod_fields(object, "", &mut found);
    found
}

fn pod_fields(value: &Value, at: &str, found: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                let at = format!("{at}/{key}");
                if POD_FIELDS.contains(&key.as_str()) {
                    found.insert(at, field.clone());
                } else {
                    pod_fields(field, &at, found);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                pod_fields(item, &format!("{at}/{index}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
