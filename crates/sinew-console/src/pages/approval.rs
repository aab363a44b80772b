//! One question for a person: the data to judge, and the form of the decision.

use std::sync::Arc;

use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};
use sinew_documents::approval::{ApprovalDetails, OpenApproval};
use sinew_documents::words;

use super::execution::NodeChoice;
use super::execution_head::decision_row;
use super::node_inspector::is_nothing;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::console_state::ConsoleState;
use crate::page_frame::{ConsolePage, ConsoleSection, may_steer, page_or_problem, problem_box, token_field};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line, time_mark, value_block};

/// A decision, as the form sends it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct DecisionForm {
    #[serde(default)]
    node: String,
    #[serde(default)]
    decision: String,
    #[serde(default)]
    comment: String,
    /// The answer as JSON, if it is more than an approval.
    #[serde(default)]
    data: String,
}

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
    match send_decision(&id, &request, &form).await {
        Ok(()) => Redirect::to(&PageAddress::execution(&id).to_string()).into_response(),
        Err(error) => {
            let node = Some(form.node.as_str()).filter(|node| !node.is_empty());
            let page = question_page(&id, &request, node, &form, Some(&error)).await;
            // The question may no longer exist: another person decided.
            page_or_problem(&request, page.map_err(|_| error))
        }
    }
}

async fn send_decision(id: &str, request: &PageRequest, form: &DecisionForm) -> Result<(), ConsoleError> {
    let data = match form.data.trim() {
        "" => Value::Null,
        text => serde_json::from_str(text)
            .map_err(|error| ConsoleError::Input(format!("the answer is not valid JSON: {error}")))?,
    };
    let text = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let body = json!({
        "decision": form.decision,
        "node": text(&form.node),
        "comment": text(&form.comment),
        "data": data,
    });
    request.api.post::<Value>(&ApiPath::of(&["executions", id, "decisions"]), &body).await.map(drop)
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
            @if let Some(error) = error { (problem_box(error)) }
            @if let Some(asked) = asked.filter(|asked| !is_nothing(&asked.data)) { section { h2 { "Data to review" } (value_block(&asked.data, &whole)) } }
            @if may_steer(request) { (decision_form(request, question, form)) }
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

fn decision_command(question: &OpenApproval, verb: &str) -> CommandText {
    let command = CommandText::of_execution(&format!("sinew approval {verb}"), &question.execution);
    let command = command.flag("--node", question.wait.node.as_deref().unwrap_or_default());
    if verb == "reject" { command.with("--comment …") } else { command }
}

fn decision_form(request: &PageRequest, question: &OpenApproval, form: &DecisionForm) -> Markup {
    html! {
        form.steer method="post" {
            (token_field(request))
            input type="hidden" name="node" value=(question.wait.node.as_deref().unwrap_or_default());
            label { span { "Comment " span.quiet { "(required to reject)" } } textarea name="comment" rows="2" { (form.comment) } }
            details open[!form.data.is_empty()] {
                summary { "Answer with data" }
                label { span { "Data as JSON" } textarea.mono name="data" rows="4" spellcheck="false" { (form.data) } }
            }
            div.actions {
                button.primary type="submit" name="decision" value="approve" data-command=(shown_text::name(&decision_command(question, "approve").to_string())) { "Approve" }
                button.danger type="submit" name="decision" value="reject" data-command=(shown_text::name(&decision_command(question, "reject").to_string())) { "Reject" }
            }
        }
    }
}
