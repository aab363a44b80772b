//! One request of the API: its caller on the mesh, its parameters, and its body.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sinew_operations::execution_changes::FoundExecution;
use sinew_operations::mesh_operator::{MeshOperator, NO_SUCH_EXECUTION};
use sinew_protocol::ExecutionId;
use sinew_protocol::code;
use sinew_protocol::jsonrpc::fault_of;
use sinew_protocol::origin::EntryPoint;
use sinew_protocol::unique_keys::{BadJson, check_unique_keys_within};
use tokio::sync::OwnedSemaphorePermit;

use crate::access::CallerIdentity;
use crate::http_error::HttpProblem;
use crate::operations::{A2aOperations, short};
use crate::request_body::{BodyError, is_json, read_body_within};
use crate::request_permits::{RequestPermits, WeakRequestPermits};
use crate::state::GatewayState;

/// Marks requests of the console to the API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConsoleRequest;

/// Maximum number of values in a JSON body, in arrays and objects: each takes at least 72 bytes of
/// memory, however short it is.
const MAX_BODY_VALUES: usize = 1_000_000;

/// A request of the API.
pub(super) struct ApiCall {
    pub(super) state: Arc<GatewayState>,
    /// The mesh, accessed under the caller's name.
    pub(super) operator: MeshOperator,
    /// Operations on the part of the mesh that the caller may see.
    pub(super) operations: A2aOperations,
    pub(super) parts: Parts,
    path: BTreeMap<String, String>,
    /// The body, within the gateway's size limit.
    pub(super) body: Bytes,
    /// Permits of a large body, held until the request is answered and all work on the body has
    /// ended.
    body_places: Option<Arc<OwnedSemaphorePermit>>,
    places: WeakRequestPermits,
}

impl ApiCall {
    /// Reads the request, with a body of at most `body_bytes` bytes.
    pub(super) async fn read(
        state: Arc<GatewayState>,
        caller: &CallerIdentity,
        path: BTreeMap<String, String>,
        request: Request,
        body_bytes: usize,
    ) -> Result<Self, HttpProblem> {
        let (parts, body) = request.into_parts();
        let body_places = state.take_body_places(&body, body_bytes)?.map(Arc::new);
        let places = WeakRequestPermits::find(&parts.extensions);
        let body = read_body_within(&state.limits, body_bytes, body).await.map_err(|error| match error {
            BodyError::TooLarge(text) => {
                HttpProblem::new(StatusCode::PAYLOAD_TOO_LARGE, code::GATEWAY_REQUEST_WRONG, text)
            }
            BodyError::Broken => HttpProblem::new(
                StatusCode::REQUEST_TIMEOUT,
                code::GATEWAY_REQUEST_WRONG,
                "the request body is incomplete",
            ),
        })?;
        let operations = state.operations_of(caller);
        let via = if parts.extensions.get::<ConsoleRequest>().is_some() {
            EntryPoint::Console
        } else {
            EntryPoint::Rest
        };
        let client = operations.client().on_behalf_of(caller.token.clone()).with_origin(caller.origin(via));
        let operator = MeshOperator::new(client).with_history(Arc::clone(&state.history));
        let operator = operator.in_groups(Arc::clone(&caller.groups));
        Ok(Self { state, operator, operations, parts, path, body, body_places, places })
    }

    /// Returns a parameter of the path; empty if the route has none with this name.
    pub(super) fn path(&self, name: &str) -> &str {
        self.path.get(name).map_or("", String::as_str)
    }

    /// Returns whether the route has a parameter with this name.
    pub(super) fn has_path(&self, name: &str) -> bool {
        self.path.contains_key(name)
    }

    /// Rejects the name of a workflow or agent that the caller may not see, as if it did not exist.
    pub(super) fn check_offered(&self, name: &str) -> Result<(), HttpProblem> {
        if self.operations.offers(name) {
            return Ok(());
        }
        let text = format!("workflow or agent {:?} not found for this caller", short(name, 64));
        Err(HttpProblem::not_found(text))
    }

    /// Rejects operations that show the whole mesh if the caller may see only a part of it.
    pub(super) fn check_whole(&self) -> Result<(), HttpProblem> {
        if self.operations.offers_everything() {
            return Ok(());
        }
        let text = "this shows the whole mesh, but the caller's key is limited to a part of it";
        Err(HttpProblem::new(StatusCode::FORBIDDEN, code::GATEWAY_CALLER_NOT_ALLOWED, text))
    }

    /// Rejects operations that show executions of all callers if the caller may see only its own.
    pub(super) fn check_every_caller(&self) -> Result<(), HttpProblem> {
        if self.operations.owner().is_none() {
            return Ok(());
        }
        let text = "this shows executions of all callers, but the caller's key is limited to its own";
        Err(HttpProblem::new(StatusCode::FORBIDDEN, code::GATEWAY_CALLER_NOT_ALLOWED, text))
    }

    /// Parses the query. Unknown parameters are rejected, because they would be ignored silently.
    pub(super) fn query<Q: DeserializeOwned>(&self) -> Result<Q, HttpProblem> {
        match Query::<Q>::try_from_uri(&self.parts.uri) {
            Ok(Query(query)) => Ok(query),
            Err(error) => Err(bad_request(format!("query: {}", short(&error.body_text(), 300)))),
        }
    }

    /// Parses the body as JSON; an empty one is `{}`.
    pub(super) fn json<B: DeserializeOwned>(&self) -> Result<B, HttpProblem> {
        if self.body.is_empty() {
            return read_json(b"{}");
        }
        // A foreign page can make a browser post a form or text without a preflight, but no JSON.
        let named = self.parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if !is_json(named) {
            let text = "send the body as Content-Type: application/json";
            return Err(HttpProblem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                code::GATEWAY_REQUEST_WRONG,
                text,
            ));
        }
        check_unique_keys_within(&self.body, MAX_BODY_VALUES).map_err(|error| match error {
            BadJson::TooManyValues(_) => too_many_values("the body", MAX_BODY_VALUES),
            error => bad_request(format!("the body: {error}")),
        })?;
        read_json(&self.body)
    }

    /// Waits for a computation permit. The wait ends if the client disconnects.
    pub(super) async fn computation(&self) -> Result<ComputationPermit, HttpProblem> {
        let computation = Arc::clone(&self.state.computations).acquire_owned().await.map_err(|_| {
            HttpProblem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                code::GATEWAY_BUSY,
                "the gateway accepts no more computations",
            )
        })?;
        let (request, body) = (self.places.hold(), self.body_places.clone());
        Ok(ComputationPermit { _computation: computation, _request: request, _body: body })
    }

    /// Performs CPU-bound work when a permit is available.
    pub(super) async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, HttpProblem> {
        self.computation().await?.compute(work).await
    }

    /// Returns the id of the execution in the path: an id, a prefix of one, or `@latest`.
    pub(super) async fn execution(&self) -> Result<ExecutionId, HttpProblem> {
        self.find(self.path("id")).await
    }

    /// Returns the execution that a text identifies: an id, or a prefix or `@latest` among those
    /// that the caller may see.
    pub(super) async fn find(&self, text: &str) -> Result<ExecutionId, HttpProblem> {
        if self.operations.offers_everything() {
            return Ok(self.operator.find(text).await?);
        }
        let absent = || {
            let text = format!("execution {:?} not found for this caller", short(text, 64));
            HttpProblem::coded(StatusCode::NOT_FOUND, NO_SUCH_EXECUTION, text)
        };
        if let Ok(id) = ExecutionId::parse(text) {
            let opens = self.operations.opens_execution(&id).await.map_err(|error| {
                let fault = fault_of(&error);
                HttpProblem::coded(StatusCode::SERVICE_UNAVAILABLE, &fault.code, fault.message)
            })?;
            if let Some(opens) = opens {
                return Some(id).filter(|_| opens).ok_or_else(absent);
            }
        }
        let found =
            self.operator.find_among(text, |row| self.operations.opens(&row.workflow, &row.caller)).await?;
        found.ok_or_else(absent)
    }

    /// Returns the execution in the path in its current state.
    pub(super) async fn found(&self) -> Result<FoundExecution, HttpProblem> {
        let id = self.execution().await?;
        let record = self.operator.record(&id).await?;
        Ok(FoundExecution { record, remote: Some(self.operator.clone()) })
    }
}

/// A computation permit with all permits of its request: started work continues after the client
/// has disconnected, so the permits are released when it ends.
pub(super) struct ComputationPermit {
    _computation: OwnedSemaphorePermit,
    _request: Option<Arc<RequestPermits>>,
    _body: Option<Arc<OwnedSemaphorePermit>>,
}

impl ComputationPermit {
    /// Performs CPU-bound work outside the threads that answer requests.
    pub(super) async fn compute<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, HttpProblem> {
        let work = move || {
            let done = work();
            drop(self);
            done
        };
        tokio::task::spawn_blocking(work).await.map_err(|error| {
            tracing::error!(%error, "a request handler panicked");
            let text = "the request failed; see the gateway's log";
            HttpProblem::new(StatusCode::INTERNAL_SERVER_ERROR, code::GATEWAY_REQUEST_WRONG, text)
        })
    }
}

/// Returns the requested number of rows: `usual` by default, and at most `max`.
pub(super) fn row_limit(wanted: Option<usize>, usual: usize, max: usize) -> Result<usize, HttpProblem> {
    match wanted.unwrap_or(usual) {
        0 => Err(bad_request("limit: at least 1")),
        rows => Ok(rows.min(max)),
    }
}

/// Returns a document as a response.
pub(super) fn answer(document: &impl Serialize) -> Result<Response, HttpProblem> {
    answer_with(StatusCode::OK, document)
}

/// Returns a document as a response with a status.
pub(super) fn answer_with(status: StatusCode, document: &impl Serialize) -> Result<Response, HttpProblem> {
    Ok(answer_written(status, written(document)?))
}

/// Serializes a document for a response.
pub(super) fn written(document: &impl Serialize) -> Result<Vec<u8>, HttpProblem> {
    serde_json::to_vec(document).map_err(|error| {
        let text = format!("cannot encode the response: {error}");
        HttpProblem::new(StatusCode::INTERNAL_SERVER_ERROR, code::GATEWAY_REQUEST_WRONG, text)
    })
}

/// Returns a serialized document as a response.
pub(super) fn answer_written(status: StatusCode, document: Vec<u8>) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, document).into_response()
}

/// Returns the error for an invalid request that its sender can fix.
pub(super) fn bad_request(text: impl Into<String>) -> HttpProblem {
    HttpProblem::new(StatusCode::BAD_REQUEST, code::GATEWAY_REQUEST_WRONG, text)
}

/// Returns the error for a text that would take far more memory as values.
pub(super) fn too_many_values(what: &str, most: usize) -> HttpProblem {
    let text = format!("{what} contains more than {most} values, the limit of the gateway");
    HttpProblem::new(StatusCode::PAYLOAD_TOO_LARGE, code::GATEWAY_REQUEST_WRONG, text)
}

fn read_json<B: DeserializeOwned>(bytes: &[u8]) -> Result<B, HttpProblem> {
    serde_json::from_slice(bytes)
        .map_err(|error| bad_request(format!("the body: {}", short(&error.to_string(), 300))))
}
