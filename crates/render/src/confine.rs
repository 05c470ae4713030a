//! What a namespaced placement or a ResourceEnvelope may carry, and what a ResourceOverride may change
//! (design §6, I10).
//!
//! Who may write in one namespace of the hub has passed the hub's checks for what he wrote there; the hub
//! then applies it with rights of its own, on clusters where he may have none. So nothing outside of the
//! namespace goes along; and what gives rights (Role, RoleBinding), or changes what Pods may do after it was
//! checked, goes along only when an administrator says so, by `--allowed-in-namespaced-placements`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::object::{ObjectId, is_cluster_scoped};

/// What an administrator may allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Privilege {
    /// Roles and RoleBindings, and changes of who has which rights.
    Rbac,
    /// Changes of what Pods may do on their node.
    PodSecurity,
    /// Changes of how much a namespace may use.
    Quota,
}

impl Privilege {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Rbac, Self::PodSecurity, Self::Quota];

    /// The word in the flag.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rbac => "rbac",
            Self::PodSecurity => "pod-security",
            Self::Quota => "quota",
        }
    }
}

/// Why something is refused; the text says what a person can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not of this namespace.
    #[error("a ResourcePlacement places objects of its own namespace, {namespace}, only")]
    Outside {
        /// The placement's namespace.
        namespace: String,
    },
    /// It gives rights.
    #[error(
        "a ResourcePlacement or ResourceEnvelope does not place a {kind} unless an administrator allows it \
         (--allowed-in-namespaced-placements={})", Privilege::Rbac.as_str()
    )]
    Rights {
        /// Its kind.
        kind: String,
    },
    /// A change of something that only an administrator may allow to change.
    #[error(
        "it changes {field}, and a ResourceOverride does not change rights, pod security or quotas unless an \
         administrator allows it (--allowed-in-namespaced-placements={})",
        .needs.as_str()
    )]
    Change {
        /// Where it stands.
        field: String,
        /// What would allow it.
        needs: Privilege,
    },
    /// What only an administrator may allow to be left out.
    #[error(
        "it leaves a {kind} out, and a ResourceOverride does not change rights, pod security or quotas unless \
         an administrator allows it (--allowed-in-namespaced-placements={})",
        .needs.as_str()
    )]
    LeaveOut {
        /// Its kind.
        kind: String,
        /// What would allow it.
        needs: Privilege,
    },
    /// Another object came out.
    #[error("a patch may not change which object it is about")]
    Identity,
}

/// The flag can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--allowed-in-namespaced-placements: {0:?} is none of rbac, pod-security and quota")]
pub struct PrivilegeError(String);

/// See the module. The default allows nothing that has to be allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    allowed: BTreeSet<Privilege>,
}

/// API groups whose namespaced kinds give rights.
const RIGHTS: [&str; 2] = ["rbac.authorization.k8s.io", "authorization.openshift.io"];
/// Fields of those kinds that say who has which rights.
const RIGHTS_FIELDS: [&str; 6] = [
    "roleRef",
    "subjects",
    "rules",
    "aggregationRule",
    "userNames",
    "groupNames",
];
/// Core kinds that limit a namespace. The usual roles of a namespace's people do not write them.
const LIMITS: [&str; 2] = ["ResourceQuota", "LimitRange"];
/// Fields that say what a Pod may do on its node (the Pod Security Standards), wherever a template has them.
const POD_SECURITY: [&str; 7] = [
    "securityContext",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "hostUsers",
    "hostPort",
    "hostPath",
];
/// Kinds of volumes, in a list `volumes`, that the restricted standard has not.
const VOLUMES: [&str; 21] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];
/// Probes and handlers whose `host` is anybody's.
const HANDLERS: [&str; 2] = ["httpGet", "tcpSocket"];
/// Fields of core ConfigMaps and Secrets, whose keys are anybody's.
const CONTENT: [&str; 3] = ["data", "binaryData", "stringData"];
/// Beginnings of labels and annotations that say so.
const POD_SECURITY_KEYS: [&str; 3] = [
    "pod-security.kubernetes.io/",
    "container.apparmor.security.beta.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
];

impl Confinement {
    /// Reads the value of `--allowed-in-namespaced-placements`: words separated by commas or semicolons.
    ///
    /// # Errors
    /// For a word that means nothing.
    pub fn new(list: &str) -> Result<Self, PrivilegeError> {
        let words = list.split([',', ';']).map(str::trim);
        let allowed = words
            .filter(|word| !word.is_empty())
            .map(|word| {
                let known = Privilege::ALL.into_iter().find(|p| p.as_str() == word);
                known.ok_or_else(|| PrivilegeError(word.to_owned()))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { allowed })
    }

    /// Whether a namespaced placement may carry objects of a kind. Whether the kind lives in namespaces at
    /// all, is asked elsewhere.
    ///
    /// # Errors
    /// Why not.
    pub fn kind(&self, group: &str, kind: &str) -> Result<(), Refusal> {
        if RIGHTS.contains(&group) && !self.allows(Privilege::Rbac) {
            return Err(Refusal::Rights {
                kind: kind.to_owned(),
            });
        }
        Ok(())
    }

    /// Whether a placement of that namespace may carry an object, selected, in an envelope, or as it comes
    /// out of overrides. Which custom kinds are cluster-scoped is known on the cluster: there an object of
    /// such a kind that names a namespace is refused.
    ///
    /// # Errors
    /// Why not.
    pub fn object(&self, namespace: &str, object: &Value) -> Result<(), Refusal> {
        let id = ObjectId::of(object);
        let is_inside = id.namespace == Some(namespace)
            && !namespace.is_empty()
            && is_cluster_scoped(id.group, id.kind) != Some(true);
        if !is_inside {
            return Err(Refusal::Outside {
                namespace: namespace.to_owned(),
            });
        }
        self.kind(id.group, id.kind)
    }

    /// Whether a namespaced override may make `after` of `before`, whatever paths it took.
    ///
    /// # Errors
    /// Why not.
    pub fn change(&self, before: &Value, after: &Value) -> Result<(), Refusal> {
        let (was, is) = (ObjectId::of(before), ObjectId::of(after));
        let identity = |id: &ObjectId<'_>| {
            let text = |part: &str| part.to_owned();
            (
                text(id.group),
                text(id.kind),
                id.namespace.map(text),
                text(id.name),
            )
        };
        if identity(&was) != identity(&is) {
            return Err(Refusal::Identity);
        }
        for (at, field) in RIGHTS_FIELDS.into_iter().enumerate() {
            // Other kinds have rules and users, too.
            let counts = at < 2 || RIGHTS.contains(&was.group);
            if counts && before.get(field) != after.get(field) {
                self.require(Privilege::Rbac, &format!("/{field}"))?;
            }
        }
        if was.group.is_empty()
            && LIMITS.contains(&was.kind)
            && before.get("spec") != after.get("spec")
        {
            self.require(Privilege::Quota, "/spec")?;
        }
        let (was, is) = (settings(before), settings(after));
        let changed = was.keys().chain(is.keys());
        match changed
            .filter(|field| was.get(*field) != is.get(*field))
            .min()
        {
            Some(field) => self.require(Privilege::PodSecurity, field),
            None => Ok(()),
        }
    }

    /// Whether a namespaced override may leave an object out: not, where it may not change what is in it.
    ///
    /// # Errors
    /// Why not.
    pub fn leave_out(&self, object: &Value) -> Result<(), Refusal> {
        let id = ObjectId::of(object);
        let needs = if RIGHTS.contains(&id.group) {
            Privilege::Rbac
        } else if id.group.is_empty() && LIMITS.contains(&id.kind) {
            Privilege::Quota
        } else {
            return Ok(());
        };
        if self.allows(needs) {
            return Ok(());
        }
        Err(Refusal::LeaveOut {
            kind: id.kind.to_owned(),
            needs,
        })
    }

    /// Whether an administrator has allowed that.
    #[must_use]
    pub fn allows(&self, what: Privilege) -> bool {
        self.allowed.contains(&what)
    }

    fn require(&self, needs: Privilege, field: &str) -> Result<(), Refusal> {
        if self.allows(needs) {
            return Ok(());
        }
        Err(Refusal::Change {
            field: field.to_owned(),
            needs,
        })
    }
}

fn is_pod_security(parent: &str, field: &str) -> bool {
    match parent {
        "volumes" if VOLUMES.contains(&field) => true,
        parent if HANDLERS.contains(&parent) && field == "host" => true,
        _ => {
            POD_SECURITY.contains(&field)
                || POD_SECURITY_KEYS.iter().any(|key| field.starts_with(key))
        }
    }
}

/// The pod security settings of an object, by path. What stands in a list goes by its name (a container's,
/// a volume's), not by its place, so that another container beside one changes nothing of it, and two can't
/// change places. What has no name is told apart by what it is.
fn settings(object: &Value) -> BTreeMap<String, Vec<String>> {
    let id = ObjectId::of(object);
    let free = match (id.group, id.kind) {
        ("", "ConfigMap" | "Secret") => CONTENT.as_slice(),
        _ => &[],
    };
    let mut found = BTreeMap::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        if !free.contains(&name.as_str()) {
            collect_field("", name, value, "", &mut found);
        }
    }
    for values in found.values_mut() {
        values.sort();
    }
    found
}

fn collect_field(
    parent: &str,
    name: &str,
    value: &Value,
    path: &str,
    found: &mut BTreeMap<String, Vec<String>>,
) {
    let path = format!("{path}/{name}");
    if is_pod_security(parent, name) {
        found.entry(path).or_default().push(value.to_string());
    } else {
        collect(name, value, &path, found);
    }
}

fn collect(parent: &str, node: &Value, path: &str, found: &mut BTreeMap<String, Vec<String>>) {
    match node {
        Value::Object(fields) => {
            for (name, value) in fields {
                collect_field(parent, name, value, path, found);
            }
        }
        Value::Array(items) => {
            for item in items {
                match item.get("name").and_then(Value::as_str) {
                    Some(name) => collect(parent, item, &format!("{path}/{name}"), found),
                    None => collect(parent, item, path, found),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
