//! The one place that sends writes, to the hub and to members alike.
//!
//! A create is a POST, an update a PUT with the resourceVersion, a member's object a server-side apply;
//! nothing else is offered, so no list is ever merged by accident. Objects that we built are sent with
//! fieldValidation=Ignore, which costs the server a fifth less.
//!
//! A write whose answer got lost is settled before anybody acts on it: the object is read, and the write
//! counts as done when it shows what was sent.

use std::time::Duration;

use http::{Method, Request};
use kube::core::{ApiResource, DynamicObject};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ApiError;

/// Limit for one request that is no watch.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They go later.
    Background,
    /// They go first.
    Foreground,
    /// They stay.
    Orphan,
}

/// See the module.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    field_manager: &'static str,
}

impl Writer {
    /// A writer that appears as `field_manager`.
    #[must_use]
    pub fn new(client: Client, field_manager: &'static str) -> Self {
        Self {
            client,
            field_manager,
        }
    }

    /// The client, for reads.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Creates an object; its namespace is taken from its metadata.
    ///
    /// # Errors
    /// See [`ApiError`]; `AlreadyExists` when somebody was first.
    pub async fn create<K>(&self, object: &K) -> Result<K, ApiError>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let collection = K::url_path(&(), object.namespace().as_deref());
        let path = format!(
            "{collection}?fieldManager={}&fieldValidation=Ignore",
            self.field_manager
        );
        let body = typed(object)?;
        match self.send(Method::POST, &path, JSON, &body).await {
            Err(Outcome::Lost(message)) => {
                let live: Option<K> = self
                    .read(&format!("{collection}/{}", object.name_any()))
                    .await?;
                settle(live.filter(|live| same_metadata(live, object)), message)
            }
            other => other.map_err(Outcome::into_error),
        }
    }

    /// Replaces an object as it was read: metadata and spec.
    ///
    /// # Errors
    /// See [`ApiError`]; `Conflict` when it has changed since.
    pub async fn replace<K>(&self, object: &K) -> Result<K, ApiError>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        self.put(object, "").await
    }

    /// Replaces the status of an object as it was read.
    ///
    /// # Errors
    /// See [`ApiError`]; `Conflict` when it has changed since.
    pub async fn replace_status<K>(&self, object: &K) -> Result<K, ApiError>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        self.put(object, "/status").await
    }

    async fn put<K>(&self, object: &K, subresource: &str) -> Result<K, ApiError>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
    {
        let url = object_url(
            &K::url_path(&(), object.namespace().as_deref()),
            &object.name_any(),
        );
        let path = format!(
            "{url}{subresource}?fieldManager={}&fieldValidation=Ignore",
            self.field_manager
        );
        match self.send(Method::PUT, &path, JSON, &typed(object)?).await {
            // Either it was not written, and trying again is right, or it was, and a conflict makes the
            // caller read what it wrote.
            Err(Outcome::Lost(message)) => {
                Err(ApiError::Conflict(format!("outcome unknown: {message}")))
            }
            other => other.map_err(Outcome::into_error),
        }
    }

    /// Deletes exactly this object, not a later one of its name. Being gone already is success.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn delete<K>(&self, object: &K) -> Result<(), ApiError>
    where
        K: Resource<DynamicType = ()>,
    {
        let url = object_url(
            &K::url_path(&(), object.namespace().as_deref()),
            &object.name_any(),
        );
        self.delete_at(&url, object.uid().as_deref(), Propagation::Background)
            .await
    }

    /// Reads an object of any kind; none when it, or its kind, does not exist.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn get_dyn(
        &self,
        kind: &ApiResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<DynamicObject>, ApiError> {
        self.read(&object_url(&DynamicObject::url_path(kind, namespace), name))
            .await
    }

    /// Server-side apply: what is sent becomes ours, what we no longer send goes.
    ///
    /// # Errors
    /// See [`ApiError`]; without `force`, `Conflict` names the fields that belong to somebody else.
    pub async fn apply_dyn(
        &self,
        kind: &ApiResource,
        object: &Value,
        namespace: Option<&str>,
        name: &str,
        force: bool,
    ) -> Result<DynamicObject, ApiError> {
        let url = object_url(&DynamicObject::url_path(kind, namespace), name);
        let path = format!(
            "{url}?fieldManager={}&force={force}&fieldValidation=Ignore",
            self.field_manager
        );
        // Applying again is harmless, so a lost answer is an outage like any other.
        self.send(Method::PATCH, &path, "application/apply-patch+yaml", object)
            .await
            .map_err(Outcome::into_error)
    }

    /// Replaces an object of any kind as it was read.
    ///
    /// # Errors
    /// See [`ApiError`]; `Conflict` when it has changed since.
    pub async fn replace_dyn(
        &self,
        kind: &ApiResource,
        object: &Value,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<DynamicObject, ApiError> {
        let url = object_url(&DynamicObject::url_path(kind, namespace), name);
        let path = format!(
            "{url}?fieldManager={}&fieldValidation=Ignore",
            self.field_manager
        );
        self.send(Method::PUT, &path, JSON, object)
            .await
            .map_err(Outcome::into_error)
    }

    /// Sends a JSON patch; let its first operation test what the rest relies on.
    ///
    /// # Errors
    /// See [`ApiError`]; `Rejected` when a test fails.
    pub async fn json_patch_dyn(
        &self,
        kind: &ApiResource,
        namespace: Option<&str>,
        name: &str,
        patch: &json_patch::Patch,
    ) -> Result<DynamicObject, ApiError> {
        let url = object_url(&DynamicObject::url_path(kind, namespace), name);
        let path = format!("{url}?fieldManager={}", self.field_manager);
        let body =
            serde_json::to_value(patch).map_err(|error| ApiError::Rejected(error.to_string()))?;
        self.send(Method::PATCH, &path, "application/json-patch+json", &body)
            .await
            .map_err(Outcome::into_error)
    }

    /// Deletes an object of any kind, if it still has that UID. Being gone already is success.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn delete_dyn(
        &self,
        kind: &ApiResource,
        namespace: Option<&str>,
        name: &str,
        uid: Option<&str>,
        propagation: Propagation,
    ) -> Result<(), ApiError> {
        self.delete_at(
            &object_url(&DynamicObject::url_path(kind, namespace), name),
            uid,
            propagation,
        )
        .await
    }

    async fn delete_at(
        &self,
        url: &str,
        uid: Option<&str>,
        propagation: Propagation,
    ) -> Result<(), ApiError> {
        let policy = match propagation {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        };
        let mut body = serde_json::json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy,
        });
        if let Some(uid) = uid {
            body["preconditions"] = serde_json::json!({ "uid": uid });
        }
        match self.send::<Value>(Method::DELETE, url, JSON, &body).await {
            Ok(_) | Err(Outcome::Answered(ApiError::NotFound(_))) => Ok(()),
            Err(outcome) => Err(outcome.into_error()),
        }
    }

    async fn read<K: DeserializeOwned>(&self, url: &str) -> Result<Option<K>, ApiError> {
        let request = Request::get(url)
            .body(Vec::new())
            .map_err(|error| ApiError::Rejected(error.to_string()))?;
        match tokio::time::timeout(REQUEST_TIMEOUT, self.client.request::<K>(request)).await {
            Err(_) => Err(ApiError::transient("no answer in time")),
            Ok(Ok(object)) => Ok(Some(object)),
            Ok(Err(error)) => match ApiError::from_kube(error) {
                ApiError::NotFound(_) => Ok(None),
                other => Err(other),
            },
        }
    }

    async fn send<K: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<K, Outcome> {
        let refused = |error: String| Outcome::Answered(ApiError::Rejected(error));
        let body = serde_json::to_vec(body).map_err(|error| refused(error.to_string()))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .body(body)
            .map_err(|error| refused(error.to_string()))?;
        match tokio::time::timeout(REQUEST_TIMEOUT, self.client.request::<K>(request)).await {
            Err(_) => Err(Outcome::Lost("no answer in time".to_owned())),
            Ok(Ok(object)) => Ok(object),
            Ok(Err(kube::Error::Api(status))) => {
                Err(Outcome::Answered(ApiError::from_status(&status)))
            }
            Ok(Err(error)) => Err(Outcome::Lost(
                ApiError::from_kube(error).message().to_owned(),
            )),
        }
    }
}

const JSON: &str = "application/json";

/// How a write ended.
enum Outcome {
    /// The server answered.
    Answered(ApiError),
    /// It may or may not have been done.
    Lost(String),
}

impl Outcome {
    fn into_error(self) -> ApiError {
        match self {
            Self::Answered(error) => error,
            Self::Lost(message) => ApiError::transient(message),
        }
    }
}

fn object_url(collection: &str, name: &str) -> String {
    format!("{collection}/{name}")
}

/// The object with its type, which the API server wants and typed structs may leave out.
fn typed<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Result<Value, ApiError> {
    let mut body =
        serde_json::to_value(object).map_err(|error| ApiError::Rejected(error.to_string()))?;
    body["apiVersion"] = K::api_version(&()).into_owned().into();
    body["kind"] = K::kind(&()).into_owned().into();
    Ok(body)
}

fn settle<K>(live: Option<K>, message: String) -> Result<K, ApiError> {
    live.ok_or_else(|| ApiError::transient(message))
}

/// Whether a live object is the one that we sent: names are derived from content, so what we labelled
/// and annotated tells.
fn same_metadata<K: Resource>(live: &K, sent: &K) -> bool {
    live.meta().labels == sent.meta().labels
        && live.meta().annotations == sent.meta().annotations
        && live.meta().owner_references == sent.meta().owner_references
}
