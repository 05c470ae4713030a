//! From a repository and its Secrets to a source that can be read.

use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use serde_json::json;
use windlass_addons::evaluate::Credentials;
use windlass_addons::source::SecretData;
use windlass_addons::{Fault, Source};
use windlass_api::addon::{AddonRepository, RepositorySpec, SecretReference};
use windlass_api::{labels, names};
use windlass_cluster::{ApiError, ObjectKey, Writer};
use windlass_status::digest::Digest;

use super::AddonCaches;

/// A source, and whether Secrets belong to it.
pub(super) struct Found {
    pub source: Source,
    pub credentials: Credentials,
}

/// Why there is none.
pub(super) enum Trouble {
    /// The spec can't work.
    Config(Fault, String),
    /// A Secret is missing, or has nothing that can be used.
    Credentials(String),
}

impl Trouble {
    /// For people.
    pub(super) fn message(&self) -> &str {
        match self {
            Self::Config(_, message) | Self::Credentials(message) => message,
        }
    }
}

/// What the spec and the Secrets come to. A Secret that can't be read for a reason that passes is an error: it
/// says nothing about the repository.
pub(super) async fn of(
    caches: &AddonCaches,
    writer: &Writer,
    repository: &AddonRepository,
) -> Result<Result<Found, Trouble>, ApiError> {
    let spec = &repository.spec;
    let references = [&spec.secret_ref, &spec.cert_secret_ref];
    let mut found = [None, None];
    let mut digests = Vec::new();
    for (reference, found) in references.into_iter().zip(&mut found) {
        let Some(SecretReference { name }) = reference else {
            continue;
        };
        match secret(caches, writer, name).await? {
            Ok(content) => {
                *found = Some(content.data);
                digests.push(content.digest);
            }
            Err(why) => return Ok(Err(Trouble::Credentials(why))),
        }
    }
    let [credentials, certificates] = &found;
    Ok(
        match Source::of(spec, credentials.as_ref(), certificates.as_ref()) {
            Ok(source) => Ok(Found {
                source: Source {
                    digest: identity(spec, &source, &digests),
                    ..source
                },
                credentials: if found.iter().any(Option::is_some) {
                    Credentials::Ready
                } else {
                    Credentials::None
                },
            }),
            Err(failure) => {
                let message = failure.to_string();
                Err(match failure.fault() {
                    Some(Fault::InvalidCredentials) | None => Trouble::Credentials(message),
                    Some(fault) => Trouble::Config(fault, message),
                })
            }
        },
    )
}

/// What decides where and as whom a repository is read. It stands in a status that many may read, so the Secrets'
/// UIDs go into it, which only who may read them knows: from a digest of their content alone a weak password
/// could be guessed.
fn identity(spec: &RepositorySpec, source: &Source, secrets: &[Digest]) -> Digest {
    let place = Source::of(spec, None, None).map_or(source.digest, |bare| bare.digest);
    Digest::of_json(&json!([place, secrets]))
}

/// What is in a Secret, and a digest of it.
struct Content {
    data: SecretData,
    digest: Digest,
}

/// Types of Secrets that hold what people gave for a server. Others belong to the cluster, and are sent nowhere.
const TYPES: [&str; 4] = [
    "Opaque",
    "kubernetes.io/basic-auth",
    "kubernetes.io/dockerconfigjson",
    "kubernetes.io/tls",
];

/// Why a Secret is none to read a repository with.
fn refusal(secret: &Secret) -> Option<String> {
    let type_ = secret.type_.as_deref().unwrap_or("Opaque");
    if secret.labels().contains_key(labels::CREDENTIALS_CLUSTER) {
        return Some("it opens a member cluster".to_owned());
    }
    (!TYPES.contains(&type_))
        .then(|| format!("it is of type {type_}; use one of {}", TYPES.join(", ")))
}

async fn secret(
    caches: &AddonCaches,
    writer: &Writer,
    name: &str,
) -> Result<Result<Content, String>, ApiError> {
    let namespace = names::HUB_NAMESPACE;
    let missing = format!(
        "Secret {name} is not in namespace {namespace}; create it there, or name another one"
    );
    let key = ObjectKey::namespaced(namespace, name);
    if caches.secrets.get(&key).is_none() {
        return Ok(Err(missing));
    }
    let Some(secret) = writer.get::<Secret>(Some(namespace), name).await? else {
        return Ok(Err(missing));
    };
    if let Some(why) = refusal(&secret) {
        return Ok(Err(format!(
            "Secret {name} in namespace {namespace} is not used for a repository: {why}"
        )));
    }
    let uid = secret.metadata.uid.unwrap_or_default();
    let data = secret.data.unwrap_or_default().into_iter();
    let data: SecretData = data.map(|(key, value)| (key, value.0)).collect();
    let digests: Vec<_> = data
        .iter()
        .map(|(key, value)| json!([uid, key, Digest::of_bytes(value)]))
        .collect();
    let digest = Digest::of_json(&json!([uid, digests]));
    Ok(Ok(Content { data, digest }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_the_cluster_is_sent_nowhere() {
        let of = |type_: &str, label: Option<&str>| {
            let mut secret = Secret {
                type_: Some(type_.to_owned()),
                ..Secret::default()
            };
            if let Some(label) = label {
                secret
                    .labels_mut()
                    .insert(label.to_owned(), "east".to_owned());
            }
            secret
        };
        for type_ in TYPES {
            assert_eq!(refusal(&of(type_, None)), None, "{type_}");
            assert_eq!(refusal(&of(type_, Some("team"))), None, "{type_}");
            assert!(
                refusal(&of(type_, Some(labels::CREDENTIALS_CLUSTER))).is_some(),
                "{type_}"
            );
        }
        for type_ in [
            "kubernetes.io/service-account-token",
            "bootstrap.kubernetes.io/token",
            "helm.sh/release.v1",
        ] {
            assert!(refusal(&of(type_, None)).is_some(), "{type_}");
        }
    }
}
