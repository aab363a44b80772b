//! The REST API below `/api/v1`: operations on a mesh over HTTP, with the documents of `-o json`.
//!
//! Place in the flow: each module returns its routes; a handler calls functions of
//! `sinew-operations` under the caller's own name and serializes the result. What the caller may see
//! is decided here; rules of an operation are not.

mod agents;
mod api_call;
mod approvals;
mod bulk;
mod change_stream;
mod drawings;
mod editor;
mod event_stream;
mod executions;
mod figures;
mod frame_stream;
mod inspections;
mod mesh_views;
mod openapi;
mod placed_drawing;
mod problems;
mod progress_stream;
mod reports;
mod route;
mod start_files;
mod steering;
mod workflows;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use axum::extract::Request;
use axum::response::{IntoResponse, Response};

use crate::access::CallerIdentity;
use crate::http_error::HttpProblem;
use crate::state::GatewayState;

pub(crate) use route::ApiRoute;

pub(crate) use api_call::ConsoleRequest;

use api_call::ApiCall;

/// Base path of the API.
pub(crate) const BASE: &str = "/api/v1";

/// All operations, in the order of the document.
pub(crate) static API_ROUTES: LazyLock<Vec<ApiRoute>> = LazyLock::new(|| {
    let modules = [
        openapi::routes(),
        agents::routes(),
        executions::routes(),
        progress_stream::routes(),
        drawings::routes(),
        bulk::routes(),
        steering::routes(),
        approvals::routes(),
        workflows::routes(),
        workflows::control_routes(),
        editor::routes(),
        mesh_views::routes(),
        change_stream::routes(),
        figures::routes(),
        reports::routes(),
        inspections::routes(),
    ];
    modules.into_iter().flatten().collect()
});

/// Answers one request.
pub(crate) async fn serve(
    state: Arc<GatewayState>,
    caller: CallerIdentity,
    route: &ApiRoute,
    path: BTreeMap<String, String>,
    request: Request,
) -> Response {
    // A gateway that exposes only a part of a mesh may have untrusted callers, who must not see the
    // API's data about executions. Callers whose keys have patterns see their own part.
    if !state.operations.exposes_everything() {
        let text = "a gateway that exposes only a part of the mesh (--expose) has no API";
        return HttpProblem::not_found(text).into_response();
    }
    let limit = route.body_bytes.max(state.limits.body_bytes);
    let sees_all = state.operations_of(&caller).offers_everything();
    let answer = match ApiCall::read(state, &caller, path, request, limit).await {
        Ok(call) => perform(route, call).await,
        Err(problem) => Err(problem),
    };
    answer.unwrap_or_else(|problem| {
        // A hint may name a workflow or agent that the caller may not see.
        let problem = if sees_all { problem } else { problem.with_hint(None) };
        problem.into_response()
    })
}

async fn perform(route: &ApiRoute, call: ApiCall) -> Result<Response, HttpProblem> {
    // Checks names of workflows and agents in paths, without revealing whether an invisible one
    // exists.
    if call.has_path("name") {
        call.check_offered(call.path("name"))?;
    }
    route.call(call).await
}
