//! One question for a person: the data to judge, and the form of the decision.

use std::sync::Arc;

use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::html;
use sinew_documents::approval::ApprovalDetails;
use sinew_documents::words;

use super::decision_form::{DecisionForm, decision_command};
use super::execution::NodeChoice;
use super::execution_head::decision_row;
use super::node_inspector::is_nothing;
use crate::api_client::ApiPath;
use crate::console_error::ConsoleError;
use crate::console_state::ConsoleState;
use crate::page_frame::{ConsolePage, ConsoleSection, may_steer, page_or_problem, problem_box};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line, time_mark, value_block};

pub(crate) async fn show(Path(id): Path<String>, request: PageRequest) -> Response {
    let page = async {
        let NodeChoice { node, .. } = request.query()?;
        question_page(&id, &request, node.as_deref(), &DecisionForm::default(), None).await
    };
    let page = page.await;
    page_or_problem(&request, page)
}

/// Sends a decision. If it is rejected, the page shows the form again with its values.
pub(crate) async fn decide(
    State(_): State<Arc<ConsoleState>>,
    Path(id): Path<String>,
    request: PageRequest,
    Form(form): Form<DecisionForm>,
) -> Response {
    match form.send(&id, &request).await {
        Ok(()) => Redirect::to(&PageAddress::execution(&id).to_string()).into_response(),
        Err(error) => {
            let node = Some(form.node.as_str()).filter(|node| !node.is_empty());
            let page = question_page(&id, &request, node, &form, Some(&error)).await;
            // The question may no longer exist: another person decided.
            page_or_problem(&request, page.map_err(|_| error))
        }
    }
}

async fn question_page(
    id: &str,
    request: &PageRequest,
    node: Option<&str>,
    form: &DecisionForm,
    error: Option<&ConsoleError>,
) -> Result<ConsolePage, ConsoleError> {
    let path = ApiPath::of(&["executions", id, "approval"]).with_some("node", node);
    let details: ApprovalDetails = request.api.get(&path).await?;
    let (question, whole) = (&details.approval, path.address());
    let wait = &question.wait;
    let asked = wait.question.as_ref();
    let body = html! {
        div.narrow {
            p.quiet { a href=(PageAddress::of(&["approvals"])) { "Approvals" } " / " a href=(PageAddress::execution(&question.execution)) { (shown_text::line(&question.workflow, 60)) " " (shown_text::line(words::short_id(&question.execution), 40)) } }
            h1 { (shown_text::line(asked.map_or("Decision", |asked| asked.prompt.as_str()), 1_000)) }
            p.quiet {
                "Asked " (time_mark(wait.since, request.now))
                @if let Some(until) = &wait.until { ", due " (time_mark(*until, request.now)) }
                @if let Some(asked) = asked.filter(|asked| !asked.allowed.is_empty()) { ", for " (shown_text::line(&asked.allowed.join(", "), 200)) }
            }
            @if let Some(error) = error.filter(|_| !form.lacks_comment()) { (problem_box(error)) }
            @if let Some(asked) = asked.filter(|asked| !is_nothing(&asked.data)) { section { h2 { "Data to review" } (value_block(&asked.data, &whole)) } }
            @if may_steer(request) { (form.markup(request, question, None)) }
            @for verb in ["approve", "reject"] { (command_line(&decision_command(question, verb))) " " }
            @if !is_nothing(&details.input) { section { h2 { "Input of the execution" } (value_block(&details.input, &whole)) } }
            @if !details.decisions.is_empty() {
                section { h2 { "Earlier decisions" }
                    div.scroll tabindex="0" role="region" aria-label="Earlier decisions" {
                        table.rows {
                            thead { tr { th scope="col" { "Decision" } th scope="col" { "By" } th scope="col" { "Time" } th.wide scope="col" { "Comment" } } }
                            tbody { @for decision in &details.decisions { (decision_row(decision)) } }
                        }
                    }
                }
            }
        }
    };
    let status = error.map_or(StatusCode::OK, ConsoleError::status);
    Ok(ConsolePage::new(ConsoleSection::Approvals, "Decision", body).with_status(status))
}
