//! A route of the API: its address, handler, role, parameters, body and responses in one row.

use std::fmt;
use std::sync::Arc;

use axum::response::Response;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use sinew_protocol::access::AccessRole;

use super::api_call::ApiCall;
use crate::http_error::HttpProblem;

/// Media type of documents.
pub(super) const JSON: &str = "application/json";
/// Media type of drawings.
pub(super) const SVG: &str = "image/svg+xml";
/// Media type of streams.
pub(super) const EVENT_STREAM: &str = "text/event-stream";
/// Alternative formats of drawings.
pub(super) const DRAWING_FORMATS: &[&str] = &[JSON, "text/vnd.mermaid"];
/// Member of a JSON Schema with its definitions.
pub(super) const DEFINITIONS: &str = "$defs";

pub(super) type Handler =
    Arc<dyn Fn(ApiCall) -> BoxFuture<'static, Result<Response, HttpProblem>> + Send + Sync>;

/// A function that answers requests of a route.
pub(super) trait ApiHandler {
    fn boxed(self) -> Handler;
}

impl<H, F> ApiHandler for H
where
    H: Fn(ApiCall) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Response, HttpProblem>> + Send + 'static,
{
    fn boxed(self) -> Handler {
        Arc::new(move |call| FutureExt::boxed(self(call)))
    }
}

/// An operation of the API.
#[derive(Clone)]
pub(crate) struct ApiRoute {
    pub(crate) method: &'static str,
    /// Path below [`super::BASE`].
    pub(crate) path: &'static str,
    /// Name of the operation in the OpenAPI document.
    pub(crate) id: &'static str,
    /// Summary in the OpenAPI document.
    pub(crate) summary: &'static str,
    /// Lowest role that may call the operation.
    pub(crate) role: AccessRole,
    /// JSON Schema of the query, an object whose members are the parameters; `None` without a query.
    pub(crate) query: Option<Value>,
    /// The body; `None` without one.
    pub(crate) body: Option<ApiBody>,
    /// Maximum size of the body, if it may be larger than that of other requests.
    pub(crate) body_bytes: usize,
    /// Media type of the response.
    pub(crate) media_type: &'static str,
    /// JSON Schema of the response; `None` unless it is JSON.
    pub(crate) answer: Option<Value>,
    /// Media types of alternative responses, selected by a parameter or `Accept`.
    pub(crate) other_media_types: &'static [&'static str],
    handler: Handler,
}

/// Body of a request.
#[derive(Clone)]
pub(crate) enum ApiBody {
    /// JSON, with its schema, and whether a body is required although its members are optional.
    Json { schema: Value, is_required: bool },
    /// A file: YAML, or JSON, which is a subset of YAML.
    File,
}

/// Returns a route that reads.
pub(super) fn get(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    handler: impl ApiHandler,
) -> ApiRoute {
    route("GET", path, id, summary, handler.boxed())
}

/// Returns a route that changes something, or reads by a body.
pub(super) fn post(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    handler: impl ApiHandler,
) -> ApiRoute {
    route("POST", path, id, summary, handler.boxed())
}

/// Returns a route that removes something.
pub(super) fn delete(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    handler: impl ApiHandler,
) -> ApiRoute {
    route("DELETE", path, id, summary, handler.boxed())
}

/// Returns a route for operators, who may read, without parameters and with a response in JSON.
fn route(
    method: &'static str,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    handler: Handler,
) -> ApiRoute {
    ApiRoute {
        method,
        path,
        id,
        summary,
        role: AccessRole::Operator,
        query: None,
        body: None,
        body_bytes: 0,
        media_type: JSON,
        answer: None,
        other_media_types: &[],
        handler,
    }
}

impl ApiRoute {
    /// Sets the lowest role that may call the operation.
    pub(super) fn role(self, role: AccessRole) -> Self {
        Self { role, ..self }
    }

    /// Sets the parameters of the query.
    pub(super) fn query<Q: JsonSchema>(self) -> Self {
        Self { query: Some(request_schema::<Q>()), ..self }
    }

    /// Sets a JSON body. It is required if its schema has required members.
    pub(super) fn json<B: JsonSchema>(self) -> Self {
        let schema = request_schema::<B>();
        let is_required = schema.get("required").is_some();
        Self { body: Some(ApiBody::Json { schema, is_required }), ..self }
    }

    /// Sets a JSON body that is required because it needs one of several members.
    pub(super) fn required_json<B: JsonSchema>(self) -> Self {
        Self { body: Some(ApiBody::Json { schema: request_schema::<B>(), is_required: true }), ..self }
    }

    /// Sets a file as the body.
    pub(super) fn file(self) -> Self {
        Self { body: Some(ApiBody::File), ..self }
    }

    /// Allows a body of this size, even if the limit of the gateway is smaller.
    pub(super) fn body_bytes(self, body_bytes: usize) -> Self {
        Self { body_bytes, ..self }
    }

    /// Sets the type of the response's document.
    pub(super) fn returns<A: JsonSchema>(self) -> Self {
        Self { answer: Some(answer_schema::<A>()), ..self }
    }

    /// Sets a response that is not JSON.
    pub(super) fn returns_media(self, media_type: &'static str) -> Self {
        Self { media_type, ..self }
    }

    /// Adds alternative formats of the response.
    pub(super) fn or_media(self, other_media_types: &'static [&'static str]) -> Self {
        Self { other_media_types, ..self }
    }

    /// Performs the operation.
    pub(super) fn call(&self, call: ApiCall) -> BoxFuture<'static, Result<Response, HttpProblem>> {
        (self.handler)(call)
    }
}

impl fmt::Debug for ApiRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// Returns the JSON Schema of a type that a request contains.
fn request_schema<T: JsonSchema>() -> Value {
    let mut schema = schemars::schema_for!(T).to_value();
    if let Some(members) = schema.as_object_mut() {
        members.remove("$schema");
        members.remove("title");
    }
    schema
}

/// Returns the JSON Schema of a type as serialized, with its definitions.
pub(super) fn answer_schema<T: JsonSchema>() -> Value {
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.subschema_for::<T>().to_value();
    let definitions: Map<String, Value> = generator.take_definitions(true);
    if let Some(members) = schema.as_object_mut().filter(|_| !definitions.is_empty()) {
        members.insert(DEFINITIONS.to_owned(), Value::Object(definitions));
    }
    schema
}
