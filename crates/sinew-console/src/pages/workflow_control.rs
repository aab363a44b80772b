//! Controls of a workflow: pause, resume and rollback, each one form on its page.

use axum::Form;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};
use sinew_documents::workflow::{WorkflowDescription, WorkflowState};

use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::page_frame::{may_steer, page_or_problem, token_field};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text;

/// The form of a pause.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct PauseForm {
    #[serde(default)]
    reason: String,
}

/// The form of a rollback.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct RollbackForm {
    version: Option<String>,
}

pub(crate) async fn pause(
    Path(name): Path<String>,
    request: PageRequest,
    Form(form): Form<PauseForm>,
) -> Response {
    control(&name, &request, "pause", &json!({ "reason": form.reason.trim() })).await
}

pub(crate) async fn resume(Path(name): Path<String>, request: PageRequest) -> Response {
    control(&name, &request, "resume", &json!({})).await
}

pub(crate) async fn roll_back(
    Path(name): Path<String>,
    request: PageRequest,
    Form(form): Form<RollbackForm>,
) -> Response {
    control(&name, &request, "rollback", &json!({ "version": form.version })).await
}

async fn control(name: &str, request: &PageRequest, verb: &str, body: &Value) -> Response {
    match request.api.post::<WorkflowState>(&ApiPath::of(&["workflows", name, verb]), body).await {
        Ok(_) => Redirect::to(&PageAddress::workflow(name).to_string()).into_response(),
        Err(error) => page_or_problem(request, Err(error)),
    }
}

fn address(name: &str, verb: &str) -> PageAddress {
    PageAddress::of(&["workflows", name, verb])
}

fn command(verb: &str, name: &str) -> String {
    CommandText::new(&format!("sinew workflow {verb}")).word(name).to_string()
}

/// The state of a workflow, with the form that pauses or resumes it.
pub(super) fn pause_part(request: &PageRequest, workflow: &WorkflowDescription) -> Markup {
    let name = workflow.name.as_str();
    html! {
        @if let Some(paused) = &workflow.paused {
            p.notice {
                (shown_text::line(paused, 300)) ". "
                a href=(PageAddress::of(&["executions"]).with("workflow", name).with("status", "paused")) { "Kept executions" }
            }
        }
        @if may_steer(request) {
            @if workflow.paused.is_some() {
                form.filter method="post" action=(address(name, "resume")) aria-label="Resume" {
                    (token_field(request))
                    button.primary type="submit" data-command=(shown_text::name(&command("resume", name))) { "Resume" }
                }
            } @else {
                form.filter method="post" action=(address(name, "pause")) aria-label="Pause" {
                    (token_field(request))
                    label { span { "Reason" } input type="text" name="reason" maxlength="200" autocomplete="off"; }
                    button type="submit" data-command=(shown_text::name(&command("pause", name))) { "Pause" }
                }
            }
        }
    }
}

/// The button that makes a version the current one.
pub(super) fn rollback_part(request: &PageRequest, name: &str, version: &str) -> Markup {
    html! {
        @if may_steer(request) {
            form method="post" action=(address(name, "rollback")) {
                (token_field(request))
                input type="hidden" name="version" value=(version);
                button type="submit" data-command=(shown_text::name(&command("rollback", name))) { "Roll back to this" }
            }
        }
    }
}
