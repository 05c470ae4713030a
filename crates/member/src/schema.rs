//! What the schema of the built-in kinds says about lists and maps, as far as comparing and merging need
//! it: how items of a list are told apart, which values are replaced whole, which are quantities.

use serde_json::Value;

use crate::manifest::ManifestId;

/// A kind as this module sees it.
#[derive(Clone, Copy, Debug)]
pub struct Schema<'a> {
    builtin: bool,
    kind: &'a str,
}

/// Fields whose lists merge by one key wherever they occur in built-in kinds.
const LISTS: [(&str, &[&str]); 12] = [
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("env", &["name"]),
    ("volumes", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("resourceClaims", &["name"]),
    ("webhooks", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("volumeDevices", &["devicePath"]),
    ("hostAliases", &["ip"]),
    (
        "topologySpreadConstraints",
        &["topologyKey", "whenUnsatisfiable"],
    ),
];

/// Maps that belong to one writer as a whole.
const ATOMIC: [&str; 6] = [
    "selector",
    "podSelector",
    "namespaceSelector",
    "labelSelector",
    "nodeSelector",
    "roleRef",
];

/// Maps of quantities, and single ones.
const QUANTITIES: [&str; 13] = [
    "limits",
    "requests",
    "hard",
    "capacity",
    "overhead",
    "default",
    "defaultRequest",
    "max",
    "min",
    "maxLimitRequestRatio",
    "sizeLimit",
    "divisor",
    "averageValue",
];

/// Fields of which the server does not store the zero value.
const ZERO_DROPPED: [&str; 14] = [
    "apiGroup",
    "clusterIP",
    "externalName",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "loadBalancerIP",
    "paused",
    "publishNotReadyAddresses",
    "readOnly",
    "stdin",
    "stdinOnce",
    "subPath",
    "tty",
];

impl<'a> Schema<'a> {
    /// The schema of a kind. Kinds of other groups are taken for custom resources, of which nothing is
    /// known.
    #[must_use]
    pub fn of(id: &'a ManifestId) -> Self {
        let builtin = !id.group.contains('.') || id.group.ends_with(".k8s.io");
        Self {
            builtin,
            kind: &id.kind,
        }
    }

    /// The fields that tell the items of a list apart; none when the list is one value.
    #[must_use]
    pub fn keys(self, field: &str, items: &[Value]) -> Option<&'static [&'static str]> {
        if !self.builtin {
            return None;
        }
        match field {
            "ports" if self.kind == "Service" => Some(&["port", "protocol"]),
            "ports" if items.iter().any(|item| item.get("containerPort").is_some()) => {
                Some(&["containerPort", "protocol"])
            }
            "secrets" if self.kind == "ServiceAccount" => Some(&["name"]),
            _ => LISTS
                .iter()
                .find(|(name, _)| *name == field)
                .map(|(_, keys)| *keys),
        }
    }

    /// Whether a map belongs to one writer as a whole, so that what others add to it is a difference.
    #[must_use]
    pub fn is_atomic(self, field: &str) -> bool {
        self.builtin && ATOMIC.contains(&field)
    }

    /// Whether what stands under a field is compared by amount.
    #[must_use]
    pub fn is_quantity(self, field: &str) -> bool {
        let plain = matches!(
            self.kind,
            "ConfigMap" | "Secret" | "CustomResourceDefinition"
        );
        self.builtin && !plain && QUANTITIES.contains(&field)
    }

    /// Whether a value may be absent on the server although it was sent.
    #[must_use]
    pub fn may_be_absent(self, field: &str, value: &Value) -> bool {
        let zero = match value {
            Value::Bool(value) => !value,
            Value::String(text) => text.is_empty(),
            _ => return is_empty(value),
        };
        zero && self.builtin && ZERO_DROPPED.contains(&field)
    }

    /// Whether the server fills a value in.
    #[must_use]
    pub fn is_assigned(self, field: &str, value: &Value) -> bool {
        self.builtin && self.kind == "Service" && field == "clusterIP" && value == ""
    }
}

/// Null, an empty list, or a map of nothing but such: all of them mean absent.
#[must_use]
pub fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// What tells an item apart from its siblings; none when it lacks one of the keys.
#[must_use]
pub fn identity(item: &Value, keys: &[&str]) -> Option<Vec<Value>> {
    keys.iter()
        .map(|key| match item.get(key) {
            None if *key == "protocol" => Some("TCP".into()),
            found => found.cloned(),
        })
        .collect()
}

/// The identities of all items; none when one lacks a key or two are the same.
#[must_use]
pub fn identities(items: &[Value], keys: &[&str]) -> Option<Vec<Vec<Value>>> {
    let all: Vec<_> = items
        .iter()
        .map(|item| identity(item, keys))
        .collect::<Option<_>>()?;
    let mut seen = std::collections::HashSet::with_capacity(all.len());
    all.iter()
        .all(|identity| seen.insert(format!("{identity:?}")))
        .then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn id(group: &str, kind: &str) -> ManifestId {
        ManifestId {
            group: group.into(),
            version: "v1".into(),
            kind: kind.into(),
            ..Default::default()
        }
    }

    #[test]
    fn keys_are_known_for_builtin_kinds_only() {
        let (service, deployment, custom) = (
            id("", "Service"),
            id("apps", "Deployment"),
            id("example.com", "Thing"),
        );
        let ports = [json!({"containerPort": 80})];
        assert_eq!(
            Schema::of(&service).keys("ports", &[]),
            Some(&["port", "protocol"][..])
        );
        assert_eq!(
            Schema::of(&deployment).keys("ports", &ports),
            Some(&["containerPort", "protocol"][..])
        );
        assert_eq!(Schema::of(&deployment).keys("args", &[]), None);
        assert_eq!(Schema::of(&custom).keys("containers", &[]), None);
        assert_eq!(
            Schema::of(&id("networking.k8s.io", "NetworkPolicy"))
                .keys("ports", &[json!({"port": 1})]),
            None
        );
    }

    #[test]
    fn identities_are_unique_or_none() {
        let keys = ["port", "protocol"];
        let items = |list: Value| list.as_array().cloned().unwrap();
        let udp = json!([{"port": 1}, {"port": 1, "protocol": "UDP"}]);
        assert!(identities(&items(udp), &keys).is_some());
        let same = json!([{"port": 1}, {"port": 1, "protocol": "TCP"}]);
        assert!(identities(&items(same), &keys).is_none());
        assert!(identities(&items(json!([{}])), &keys).is_none());
    }
}
