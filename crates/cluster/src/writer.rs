//! The one place that sends writes, to the hub and to members alike.
//!
//! A create is a POST, an update a PUT with the resourceVersion, a member's object a server-side apply;
//! nothing else is offered but a JSON patch, so no list is ever merged by accident. Objects that we built
//! are sent with fieldValidation=Ignore, which costs the server a fifth less.
//!
//! A write whose answer got lost is settled before anybody acts on it, by a live read:
//!
//! | write | what is read | outcome |
//! |---|---|---|
//! | create | an object that shows what was sent | done |
//! | create | none, or another one | transient |
//! | replace | the resourceVersion that was sent | transient: it was not done |
//! | replace | another resourceVersion | conflict: the caller reads what is there |
//! | delete | none, another one of that name, or it is going away | done |
//! | delete | the object as it was | transient |
//!
//! Applies and JSON patches do no harm when they are sent again, so for them silence is an outage like
//! any other. Should the read fail too, the outcome is transient.

mod settle;
mod url;

use std::time::Duration;

use http::{Method, Request};
use kube::core::{ApiResource, DynamicObject, Status};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ApiError;
use crate::exchange::{Failure, exchange};
use crate::failpoint;
use crate::kind_of::KindOf;
use crate::lease::gate::Gate;

/// Limit for one request and its whole answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

const JSON: &str = "application/json";
const APPLY: &str = "application/apply-patch+yaml";
const JSON_PATCH: &str = "application/json-patch+json";

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

impl Propagation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// See the module.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    field_manager: &'static str,
    timeout: Duration,
    gate: Gate,
}

impl Writer {
    /// A writer that appears as `field_manager`.
    #[must_use]
    pub fn new(client: Client, field_manager: &'static str) -> Self {
        Self {
            client,
            field_manager,
            timeout: REQUEST_TIMEOUT,
            gate: Gate::default(),
        }
    }

    /// The writer with a gate that its writes go through. One that is refused there fails as in an
    /// outage, with [`crate::lease::gate::NOT_LEADER`].
    #[must_use]
    pub fn with_gate(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }

    /// The gate that writes go through.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The writer with another limit for one request.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
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
        K: Resource<DynamicType: KindOf<K>> + Serialize + DeserializeOwned,
    {
        let kind = K::DynamicType::of(object);
        let collection = url::collection::<K>(&kind, object.namespace().as_deref())?;
        self.post(&collection, &typed_as(object, &kind)?).await
    }

    /// Replaces an object as it was read: metadata and spec.
    ///
    /// # Errors
    /// See [`ApiError`]; `Conflict` when it has changed since.
    pub async fn replace<K>(&self, object: &K) -> Result<K, ApiError>
    where
        K: Resource<DynamicType: KindOf<K>> + Serialize + DeserializeOwned,
    {
        let kind = K::DynamicType::of(object);
        self.put(&url_of(object)?, "", &typed_as(object, &kind)?)
            .await
    }

    /// Replaces the status of an object as it was read.
    ///
    /// # Errors
    /// See [`ApiError`]; `Conflict` when it has changed since.
    pub async fn replace_status<K>(&self, object: &K) -> Result<K, ApiError>
    where
        K: Resource<DynamicType: KindOf<K>> + Serialize + DeserializeOwned,
    {
        let kind = K::DynamicType::of(object);
        self.put(&url_of(object)?, "/status", &typed_as(object, &kind)?)
            .await
    }

    /// Deletes exactly this object, not a later one of its name. Being gone already is success.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn delete<K>(&self, object: &K) -> Result<(), ApiError>
    where
        K: Resource<DynamicType: KindOf<K>>,
    {
        self.delete_at(
            &url_of(object)?,
            object.uid().as_deref(),
            Propagation::Background,
        )
        .await
    }

    /// Deletes an object only if it is still as it was read. Being gone already is success.
    ///
    /// # Errors
    /// See [`ApiError`]; `Conflict` when it has changed since.
    pub async fn delete_unchanged<K>(&self, object: &K) -> Result<(), ApiError>
    where
        K: Resource<DynamicType: KindOf<K>>,
    {
        let preconditions = serde_json::json!({
            "uid": object.uid(), "resourceVersion": object.resource_version(),
        });
        self.delete_if(
            &url_of(object)?,
            &preconditions,
            object.uid().as_deref(),
            Propagation::Background,
        )
        .await
    }

    /// Reads an object as it is on the server, past every cache; none when it does not exist.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn get<K>(&self, namespace: Option<&str>, name: &str) -> Result<Option<K>, ApiError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        self.read(&url::object::<K>(&(), namespace, name)?).await
    }

    /// Creates an object of any kind; its namespace is taken from its metadata.
    ///
    /// # Errors
    /// See [`ApiError`]; `AlreadyExists` when somebody was first.
    pub async fn create_dyn(
        &self,
        kind: &ApiResource,
        object: &DynamicObject,
    ) -> Result<DynamicObject, ApiError> {
        let collection = url::collection::<DynamicObject>(kind, object.namespace().as_deref())?;
        self.post(&collection, &typed(object, &kind.api_version, &kind.kind)?)
            .await
    }

    /// Replaces an object of any kind as it was read.
    ///
    /// # Errors
    /// See [`ApiError`]; `Conflict` when it has changed since.
    pub async fn replace_dyn(
        &self,
        kind: &ApiResource,
        object: &DynamicObject,
    ) -> Result<DynamicObject, ApiError> {
        let url =
            url::object::<DynamicObject>(kind, object.namespace().as_deref(), &object.name_any())?;
        self.put(&url, "", &typed(object, &kind.api_version, &kind.kind)?)
            .await
    }

    /// Replaces the status of an object as it was read.
    ///
    /// # Errors
    /// See [`ApiError`]; `Conflict` when it has changed since, `NotFound` also when the kind has no status
    /// that is written by itself.
    pub async fn replace_status_dyn(
        &self,
        kind: &ApiResource,
        object: &DynamicObject,
    ) -> Result<DynamicObject, ApiError> {
        let url =
            url::object::<DynamicObject>(kind, object.namespace().as_deref(), &object.name_any())?;
        let body = typed(object, &kind.api_version, &kind.kind)?;
        self.put(&url, "/status", &body).await
    }

    /// Server-side apply: what is sent becomes ours, what we no longer send goes.
    ///
    /// # Errors
    /// See [`ApiError`]; without `force`, `Conflict` names the fields that belong to somebody else.
    pub async fn apply_dyn(
        &self,
        kind: &ApiResource,
        object: &DynamicObject,
        force: bool,
    ) -> Result<DynamicObject, ApiError> {
        let url =
            url::object::<DynamicObject>(kind, object.namespace().as_deref(), &object.name_any())?;
        let mut body = typed(object, &kind.api_version, &kind.kind)?;
        // The server refuses an apply that says who manages what.
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let query = format!(
            "fieldManager={}&force={force}&fieldValidation=Ignore",
            self.field_manager
        );
        self.send(Method::PATCH, &format!("{url}?{query}"), APPLY, &body)
            .await
            .map_err(Failure::into_error)
    }

    /// Sends a JSON patch; let its first operation test what the rest relies on.
    ///
    /// # Errors
    /// See [`ApiError`]; `Conflict` when the patch does not fit the object as it is now: a test fails, or
    /// a path is not there.
    pub async fn json_patch_dyn(
        &self,
        kind: &ApiResource,
        namespace: Option<&str>,
        name: &str,
        patch: &json_patch::Patch,
    ) -> Result<DynamicObject, ApiError> {
        let url = url::object::<DynamicObject>(kind, namespace, name)?;
        self.patch(&url, patch).await
    }

    /// As [`Self::json_patch_dyn`], of the status.
    ///
    /// # Errors
    /// As there.
    pub async fn json_patch_status_dyn(
        &self,
        kind: &ApiResource,
        namespace: Option<&str>,
        name: &str,
        patch: &json_patch::Patch,
    ) -> Result<DynamicObject, ApiError> {
        let url = url::object::<DynamicObject>(kind, namespace, name)?;
        self.patch(&format!("{url}/status"), patch).await
    }

    async fn patch(&self, url: &str, patch: &json_patch::Patch) -> Result<DynamicObject, ApiError> {
        let path = format!(
            "{url}?fieldManager={}&fieldValidation=Ignore",
            self.field_manager
        );
        let body =
            serde_json::to_value(patch).map_err(|error| ApiError::Rejected(error.to_string()))?;
        self.send(Method::PATCH, &path, JSON_PATCH, &body)
            .await
            .map_err(|failure| match failure {
                Failure::Refused(status, _) if does_not_fit(&status) => {
                    ApiError::Conflict("the patch does not fit the object as it is now".to_owned())
                }
                other => other.into_error(),
            })
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
            &url::object::<DynamicObject>(kind, namespace, name)?,
            uid,
            propagation,
        )
        .await
    }

    /// Reads an object of any kind as it is on the server; none when it, or its kind, does not exist.
    ///
    /// # Errors
    /// See [`ApiError`].
    pub async fn get_dyn(
        &self,
        kind: &ApiResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<DynamicObject>, ApiError> {
        self.read(&url::object::<DynamicObject>(kind, namespace, name)?)
            .await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        collection: &str,
        body: &Value,
    ) -> Result<T, ApiError> {
        let path = format!(
            "{collection}?fieldManager={}&fieldValidation=Ignore",
            self.field_manager
        );
        let lost = match self.send(Method::POST, &path, JSON, body).await {
            Err(Failure::Lost(error)) => error,
            other => return other.map_err(Failure::into_error),
        };
        // A name that the server was to make up can't be asked for.
        let Some(name) = body.pointer("/metadata/name").and_then(Value::as_str) else {
            return Err(lost);
        };
        match self
            .read::<Value>(&url::in_collection(collection, name)?)
            .await
        {
            Ok(Some(live)) if settle::shows(&live, body) => {
                serde_json::from_value(live).map_err(|_| lost)
            }
            _ => Err(lost),
        }
    }

    async fn put<T: DeserializeOwned>(
        &self,
        url: &str,
        subresource: &str,
        body: &Value,
    ) -> Result<T, ApiError> {
        // Without it the server would overwrite whatever is there.
        let Some(version) = body
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str)
        else {
            return Err(ApiError::Rejected(
                "an object is replaced as it was read, with its resourceVersion".to_owned(),
            ));
        };
        let path = format!(
            "{url}{subresource}?fieldManager={}&fieldValidation=Ignore",
            self.field_manager
        );
        let lost = match self.send(Method::PUT, &path, JSON, body).await {
            Err(Failure::Lost(error)) => error,
            other => return other.map_err(Failure::into_error),
        };
        match self.read::<Value>(url).await {
            Ok(None) => Err(ApiError::NotFound(format!(
                "it is gone, after: {}",
                lost.message()
            ))),
            Ok(Some(live)) if settle::version(&live) != Some(version) => Err(ApiError::Conflict(
                format!("it has changed, perhaps by this write: {}", lost.message()),
            )),
            _ => Err(lost),
        }
    }

    async fn delete_at(
        &self,
        url: &str,
        uid: Option<&str>,
        propagation: Propagation,
    ) -> Result<(), ApiError> {
        let preconditions = uid.map_or(Value::Null, |uid| serde_json::json!({ "uid": uid }));
        self.delete_if(url, &preconditions, uid, propagation).await
    }

    async fn delete_if(
        &self,
        url: &str,
        preconditions: &Value,
        uid: Option<&str>,
        propagation: Propagation,
    ) -> Result<(), ApiError> {
        let mut body = serde_json::json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation.as_str(),
        });
        if !preconditions.is_null() {
            body["preconditions"] = preconditions.clone();
        }
        let error = match self.send::<Value>(Method::DELETE, url, JSON, &body).await {
            Ok(_) => return Ok(()),
            Err(Failure::Lost(error)) => error,
            Err(failure) => match failure.into_error() {
                ApiError::NotFound(_) => return Ok(()),
                // Most likely another object has taken the name: then ours is gone.
                conflict @ ApiError::Conflict(_) => conflict,
                other => return Err(other),
            },
        };
        match self.read::<Value>(url).await {
            Ok(None) => Ok(()),
            Ok(Some(live)) if settle::is_another(&live, uid) => Ok(()),
            Ok(Some(live)) if error.is_outage() && settle::is_going(&live) => Ok(()),
            _ => Err(error),
        }
    }

    async fn read<T: DeserializeOwned>(&self, url: &str) -> Result<Option<T>, ApiError> {
        let request = Request::get(url)
            .body(Vec::new())
            .map_err(|error| ApiError::Rejected(error.to_string()))?;
        match exchange(&self.client, request, self.timeout)
            .await
            .map_err(Failure::into_error)
        {
            Ok(object) => Ok(Some(object)),
            Err(ApiError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<T, Failure> {
        let unsent = |error: String| Failure::Unsent(ApiError::Rejected(error));
        let body = serde_json::to_vec(body).map_err(|error| unsent(error.to_string()))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, content_type)
            .body(body)
            .map_err(|error| unsent(error.to_string()))?;
        let exchange = exchange(&self.client, request, self.timeout);
        self.gate.pass(failpoint::pass(path, exchange)).await
    }
}

fn url_of<K: Resource<DynamicType: KindOf<K>>>(object: &K) -> Result<String, ApiError> {
    let kind = K::DynamicType::of(object);
    url::object::<K>(&kind, object.namespace().as_deref(), &object.name_any())
}

fn typed_as<K: Resource + Serialize>(object: &K, kind: &K::DynamicType) -> Result<Value, ApiError> {
    typed(object, &K::api_version(kind), &K::kind(kind))
}

/// The object with its type, which the API server wants and typed structs may leave out.
fn typed<K: Serialize>(object: &K, api_version: &str, kind: &str) -> Result<Value, ApiError> {
    let mut body =
        serde_json::to_value(object).map_err(|error| ApiError::Rejected(error.to_string()))?;
    let Some(fields) = body.as_object_mut() else {
        return Err(ApiError::Rejected("it is no object".to_owned()));
    };
    fields.insert("apiVersion".to_owned(), api_version.into());
    fields.insert("kind".to_owned(), kind.into());
    Ok(body)
}

/// Whether the server says that a JSON patch can't be carried out. It says so by a 422 without naming
/// an object or a field; what validation refuses names both, and what a webhook refuses has no details.
fn does_not_fit(status: &Status) -> bool {
    status.code == 422
        && status
            .details
            .as_ref()
            .is_some_and(|details| details.kind.is_empty() && details.causes.is_empty())
}
