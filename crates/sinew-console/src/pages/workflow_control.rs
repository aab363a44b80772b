//! Controls of a workflow: pause, resume and rollback, each one form on its page.

use axum::Form;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::json;
use sinew_documents::workflow::{WorkflowDescription, WorkflowState};

use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{may_steer, page_or_problem, token_field};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text;

/// A control, as its form sends it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ControlForm {
    verb: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    version: String,
}

pub(crate) async fn control(
    Path(name): Path<String>,
    request: PageRequest,
    Form(form): Form<ControlForm>,
) -> Response {
    match send(&name, &request, &form).await {
        Ok(_) => Redirect::to(&PageAddress::workflow(&name).to_string()).into_response(),
        Err(error) => page_or_problem(&request, Err(error)),
    }
}

async fn send(name: &str, request: &PageRequest, form: &ControlForm) -> Result<WorkflowState, ConsoleError> {
    let body = match form.verb.as_str() {
        "pause" => json!({ "reason": form.reason.trim() }),
        "resume" => json!({}),
        "rollback" => json!({ "version": form.version }),
        _ => return Err(ConsoleError::Input("verb: expected pause, resume or rollback".to_owned())),
    };
    request.api.post(&ApiPath::of(&["workflows", name, &form.verb]), &body).await
}

fn address(name: &str) -> PageAddress {
    PageAddress::of(&["workflows", name, "control"])
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
            form.filter method="post" action=(address(name)) aria-label="Pause" {
                (token_field(request))
                @if workflow.paused.is_some() {
                    button.primary type="submit" name="verb" value="resume" data-command=(shown_text::name(&command("resume", name))) { "Resume" }
                } @else {
                    label { span { "Reason" } input type="text" name="reason" maxlength="200" autocomplete="off"; }
                    button type="submit" name="verb" value="pause" data-command=(shown_text::name(&command("pause", name))) { "Pause" }
                }
            }
        }
    }
}

/// The button that makes a version the current one.
pub(super) fn rollback_part(request: &PageRequest, name: &str, version: &str) -> Markup {
    html! {
        @if may_steer(request) {
            form method="post" action=(address(name)) {
                (token_field(request))
                input type="hidden" name="version" value=(version);
                button type="submit" name="verb" value="rollback" data-command=(shown_text::name(&command("rollback", name))) { "Roll back to this" }
            }
        }
    }
}
