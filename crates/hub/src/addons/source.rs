//! From a repository and its Secrets to a source that can be read.

use k8s_openapi::api::core::v1::Secret;
use serde_json::json;
use windlass_addons::evaluate::Credentials;
use windlass_addons::source::SecretData;
use windlass_addons::{Fault, Source};
use windlass_api::addon::{AddonRepository, RepositorySpec, SecretReference};
use windlass_api::names;
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
    let mut versions = Vec::new();
    for (reference, found) in references.into_iter().zip(&mut found) {
        let Some(SecretReference { name }) = reference else {
            continue;
        };
        let Some((data, version)) = secret(caches, writer, name).await? else {
            return Ok(Err(Trouble::Credentials(format!(
                "Secret {name} is not in namespace {}; create it there, or name another one",
                names::HUB_NAMESPACE
            ))));
        };
        *found = Some(data);
        versions.push(version);
    }
    let [credentials, certificates] = &found;
    Ok(
        match Source::of(spec, credentials.as_ref(), certificates.as_ref()) {
            Ok(source) => Ok(Found {
                source: Source {
                    digest: identity(spec, &source, &versions),
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

/// What decides where and as whom a repository is read. It stands in a status that many may read, so it is made
/// of the Secrets' versions: from a digest of their content a weak password could be guessed.
fn identity(spec: &RepositorySpec, source: &Source, versions: &[String]) -> Digest {
    let place = Source::of(spec, None, None).map_or(source.digest, |bare| bare.digest);
    Digest::of_json(&json!([place, versions]))
}

/// What is in a Secret, and which version of it that is.
async fn secret(
    caches: &AddonCaches,
    writer: &Writer,
    name: &str,
) -> Result<Option<(SecretData, String)>, ApiError> {
    let key = ObjectKey::namespaced(names::HUB_NAMESPACE, name);
    if caches.secrets.get(&key).is_none() {
        return Ok(None);
    }
    let read = writer
        .get::<Secret>(Some(names::HUB_NAMESPACE), name)
        .await?;
    Ok(read.map(|secret| {
        let uid = secret.metadata.uid.unwrap_or_default();
        let version = secret.metadata.resource_version.unwrap_or_default();
        let data = secret.data.unwrap_or_default();
        let data = data
            .into_iter()
            .map(|(key, value)| (key, value.0))
            .collect();
        (data, format!("{uid}/{version}"))
    }))
}
