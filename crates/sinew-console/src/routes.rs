//! Routes of the pages.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, get, post};

use crate::assets::serve_file;
use crate::console_error::ConsoleError;
use crate::console_state::{ConsoleOptions, ConsoleState};
use crate::form_guard::guard_pages;
use crate::page_frame::error_page;
use crate::page_request::{BASE, PageRequest};
use crate::pages::{provider_visit, sign_in};
use crate::{confirmations, pages, retry_confirmation};

/// A page, or the target of a form.
struct ConsoleRoute {
    method: &'static str,
    path: &'static str,
    handler: MethodRouter<Arc<ConsoleState>>,
}

fn page<H, T>(path: &'static str, handler: H) -> ConsoleRoute
where
    H: Handler<T, Arc<ConsoleState>>,
    T: 'static,
{
    ConsoleRoute { method: "GET", path, handler: get(handler) }
}

fn form<H, T>(path: &'static str, handler: H) -> ConsoleRoute
where
    H: Handler<T, Arc<ConsoleState>>,
    T: 'static,
{
    ConsoleRoute { method: "POST", path, handler: post(handler) }
}

/// All pages and forms of a console.
fn console_routes() -> Vec<ConsoleRoute> {
    vec![
        page("/", async || Redirect::to(BASE)),
        page("/console", pages::pulse::show),
        page("/console/", async || Redirect::to(BASE)),
        page("/console/assets/{name}", serve_file),
        page("/console/executions", pages::executions::show),
        page("/console/executions/{id}", pages::execution::graph),
        page("/console/executions/{id}/timeline", pages::timeline::show),
        page("/console/executions/{id}/events", pages::events::show),
        page("/console/executions/{id}/data", pages::data::show),
        page("/console/executions/{id}/artifacts", pages::artifacts::show),
        page("/console/executions/{id}/artifact-image", pages::artifact_preview::image),
        page("/console/executions/{id}/agents", pages::execution_agents::show),
        page("/console/executions/{id}/compare", pages::compare::show),
        page("/console/executions/{id}/source", pages::source::of_execution),
        page("/console/executions/{id}/case", pages::recorded_case::show),
        page("/console/executions/{id}/cancel", confirmations::cancel),
        form("/console/executions/{id}/cancel", confirmations::do_cancel),
        page("/console/executions/{id}/pause", confirmations::pause),
        form("/console/executions/{id}/pause", confirmations::do_pause),
        page("/console/executions/{id}/resume", confirmations::resume),
        form("/console/executions/{id}/resume", confirmations::do_resume),
        page("/console/executions/{id}/retry", retry_confirmation::retry),
        form("/console/executions/{id}/retry", retry_confirmation::do_retry),
        page("/console/executions/{id}/fork", confirmations::fork),
        form("/console/executions/{id}/fork", confirmations::do_fork),
        page("/console/executions/{id}/approval", pages::approval::show),
        form("/console/executions/{id}/approval", pages::approval::decide),
        form("/console/bulk", pages::bulk::work),
        page("/console/approvals", pages::approvals::show),
        form("/console/approvals", pages::approvals::decide),
        page("/console/workflows", pages::workflows::show),
        page("/console/workflows/{name}", pages::workflow::show),
        page("/console/workflows/{name}/start", pages::start::show),
        form("/console/workflows/{name}/start", pages::start::start),
        form("/console/workflows/{name}/pause", pages::workflow_control::pause),
        form("/console/workflows/{name}/resume", pages::workflow_control::resume),
        form("/console/workflows/{name}/rollback", pages::workflow_control::roll_back),
        page("/console/workflows/{name}/remove", pages::editor::removal),
        form("/console/workflows/{name}/remove", pages::editor::remove),
        page("/console/desk", pages::editor::show),
        form("/console/desk", pages::editor::work),
        page("/console/agents", pages::agents::show),
        page("/console/agents/{name}", pages::agent::show),
        form("/console/agents/{name}/retire", pages::agent::retire),
        form("/console/agents/{name}/drain", pages::agent::drain),
        form("/console/agents/{name}/undrain", pages::agent::undrain),
        page("/console/catalogue", pages::catalogue::show),
        page("/console/catalogue/{name}", pages::catalogue::entry),
        page("/console/artifacts", pages::mesh_artifacts::show),
        page("/console/traffic", pages::traffic::show),
        page("/console/audit", pages::audit::show),
        page("/console/reports/nodes", pages::reports::nodes),
        page("/console/reports/cost", pages::reports::cost),
        page("/console/import", pages::import::show),
        form("/console/import", pages::import::open),
        page("/console/chat", pages::chat::choose),
        page("/console/chat/{name}", pages::chat::show),
        form("/console/chat/{name}", pages::chat::send),
        form("/console/chat/{name}/decision", pages::chat_turn::decide),
        page("/console/sign-in", sign_in::show),
        form("/console/sign-in", sign_in::sign_in),
        page(provider_visit::PROVIDER_VISIT, provider_visit::begin),
        page(provider_visit::PROVIDER_RETURN, provider_visit::end),
        form("/console/sign-out", sign_in::sign_out),
        page("/console/help", pages::help::show),
        page("/console/help/{code}", pages::help::code),
        page("/console/{*rest}", no_page),
        form("/console/{*rest}", no_page),
    ]
}

/// Methods and paths of all pages and forms, with parameters in braces.
pub fn described_pages() -> Vec<(&'static str, &'static str)> {
    console_routes().into_iter().map(|route| (route.method, route.path)).collect()
}

/// Returns the routes of a console: `/` and everything below `/console`.
pub fn console_router(options: ConsoleOptions) -> Router {
    let ConsoleOptions { api, mode, is_secure, sign_in } = options;
    let state = Arc::new(ConsoleState { api, mode, is_secure, sign_in });
    let router = console_routes()
        .into_iter()
        .fold(Router::new(), |router, route| router.route(route.path, route.handler));
    router.layer(from_fn_with_state(Arc::clone(&state), guard_pages)).with_state(state)
}

async fn no_page(State(state): State<Arc<ConsoleState>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let error = ConsoleError::NoPage(crate::shown_text::line(parts.uri.path(), 200));
    error_page(&PageRequest::of(&parts, &state), &error).into_response()
}
