//! Paths of objects. Names come from manifests, so they are checked and escaped: none may reach another
//! object, or add to the query.

use kube::Resource;

use crate::error::ApiError;

/// Path of the objects of a kind.
pub(super) fn collection<K: Resource>(
    kind: &K::DynamicType,
    namespace: Option<&str>,
) -> Result<String, ApiError> {
    let namespace = match namespace {
        None | Some("") => None,
        Some(namespace) => Some(segment(namespace)?),
    };
    Ok(K::url_path(kind, namespace.as_deref()))
}

/// Path of one object.
pub(super) fn object<K: Resource>(
    kind: &K::DynamicType,
    namespace: Option<&str>,
    name: &str,
) -> Result<String, ApiError> {
    in_collection(&collection::<K>(kind, namespace)?, name)
}

/// Path of one object of a collection.
pub(super) fn in_collection(collection: &str, name: &str) -> Result<String, ApiError> {
    Ok(format!("{collection}/{}", segment(name)?))
}

/// One segment of a path. Without a name a DELETE would mean the whole collection; and no object is
/// named with a slash or a percent sign, which the server decodes before it splits the path.
fn segment(name: &str) -> Result<String, ApiError> {
    if matches!(name, "" | "." | "..") || name.contains(['/', '%']) {
        return Err(ApiError::Rejected(format!(
            "{name:?} is no name of an object"
        )));
    }
    Ok(escape(name))
}

/// Escapes what may not stand in one segment of a path (RFC 3986, `pchar`).
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push('%');
            for digit in [byte >> 4, byte & 15] {
                escaped.push(char::from(b"0123456789ABCDEF"[usize::from(digit)]));
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace};

    #[test]
    fn paths() {
        let path = object::<ConfigMap>(&(), Some("web"), "a").unwrap();
        assert_eq!(path, "/api/v1/namespaces/web/configmaps/a");
        assert_eq!(
            object::<Namespace>(&(), Some(""), "web").unwrap(),
            "/api/v1/namespaces/web"
        );
    }

    #[test]
    fn no_name_reaches_another_object() {
        for name in ["", ".", "..", "a/status", "../../secrets/b", "a%2Fstatus"] {
            assert!(
                object::<ConfigMap>(&(), Some("web"), name).is_err(),
                "{name:?}"
            );
        }
        for namespace in ["..", "web/configmaps/a", "web%2Fpods"] {
            assert!(
                collection::<ConfigMap>(&(), Some(namespace)).is_err(),
                "{namespace:?}"
            );
        }
        for (name, escaped) in [
            ("a?force=true#", "a%3Fforce=true%23"),
            ("a b", "a%20b"),
            ("system:node", "system:node"),
            ("é", "%C3%A9"),
        ] {
            assert_eq!(segment(name).unwrap(), escaped);
        }
    }
}
