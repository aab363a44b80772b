//! Addresses of the pages.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};

use crate::assets::serve_file;
use crate::console_error::ConsoleError;
use crate::console_state::{ConsoleOptions, ConsoleState};
use crate::form_guard::guard_pages;
use crate::page_frame::error_page;
use crate::page_request::{BASE, PageRequest};
use crate::pages::{provider_visit, sign_in};
use crate::{confirmations, pages, retry_confirmation};

/// Returns the routes of a console: `/`, and all below `/console`.
pub fn console_router(options: ConsoleOptions) -> Router {
    let ConsoleOptions { api, mode, is_secure, sign_in } = options;
    let state = Arc::new(ConsoleState { api, mode, is_secure, sign_in });
    let page = |path: &str| format!("{BASE}{path}");
    let execution = |rest: &str| format!("{BASE}/executions/{{id}}{rest}");
    Router::new()
        .route("/", get(async || Redirect::to(BASE)))
        .route(&page(""), get(pages::pulse::show))
        .route(&page("/"), get(async || Redirect::to(BASE)))
        .route(&page("/assets/{name}"), get(serve_file))
        .route(&page("/executions"), get(pages::executions::show))
        .route(&execution(""), get(pages::execution::graph))
        .route(&execution("/timeline"), get(pages::timeline::show))
        .route(&execution("/events"), get(pages::events::show))
        .route(&execution("/data"), get(pages::data::show))
        .route(&execution("/artifacts"), get(pages::artifacts::show))
        .route(&execution("/artifact-image"), get(pages::artifact_preview::image))
        .route(&execution("/agents"), get(pages::execution_agents::show))
        .route(&execution("/compare"), get(pages::compare::show))
        .route(&execution("/source"), get(pages::source::of_execution))
        .route(&execution("/case"), get(pages::recorded_case::show))
        .route(&execution("/cancel"), get(confirmations::cancel).post(confirmations::do_cancel))
        .route(&execution("/pause"), get(confirmations::pause).post(confirmations::do_pause))
        .route(&execution("/resume"), get(confirmations::resume).post(confirmations::do_resume))
        .route(&execution("/retry"), get(retry_confirmation::retry).post(retry_confirmation::do_retry))
        .route(&execution("/fork"), get(confirmations::fork).post(confirmations::do_fork))
        .route(&execution("/approval"), get(pages::approval::show).post(pages::approval::decide))
        .route(&page("/bulk"), post(pages::bulk::work))
        .route(&page("/approvals"), get(pages::approvals::show))
        .route(&page("/workflows"), get(pages::workflows::show))
        .route(&page("/workflows/{name}"), get(pages::workflow::show))
        .route(&page("/workflows/{name}/start"), get(pages::start::show).post(pages::start::start))
        .route(&page("/workflows/{name}/remove"), get(pages::desk::removal).post(pages::desk::remove))
        .route(&page("/desk"), get(pages::desk::show).post(pages::desk::work))
        .route(&page("/agents"), get(pages::agents::show))
        .route(&page("/agents/{name}"), get(pages::agent::show))
        .route(&page("/artifacts"), get(pages::mesh_artifacts::show))
        .route(&page("/traffic"), get(pages::traffic::show))
        .route(&page("/import"), get(pages::import::show).post(pages::import::open))
        .route(&page("/chat"), get(pages::chat::choose))
        .route(&page("/chat/{name}"), get(pages::chat::show).post(pages::chat::send))
        .route(&page("/chat/{name}/decision"), post(pages::chat_turn::decide))
        .route(&page("/sign-in"), get(sign_in::show).post(sign_in::sign_in))
        .route(provider_visit::PROVIDER_VISIT, get(provider_visit::begin))
        .route(provider_visit::PROVIDER_RETURN, get(provider_visit::end))
        .route(&page("/sign-out"), post(sign_in::sign_out))
        .route(&page("/help"), get(pages::help::show))
        .route(&page("/help/{code}"), get(pages::help::code))
        .route(&page("/{*rest}"), get(no_page).post(no_page))
        .layer(from_fn_with_state(Arc::clone(&state), guard_pages))
        .with_state(state)
}

async fn no_page(State(state): State<Arc<ConsoleState>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let error = ConsoleError::NoPage(crate::shown_text::line(parts.uri.path(), 200));
    error_page(&PageRequest::of(&parts, &state), &error).into_response()
}
