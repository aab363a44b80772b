//! One message of a chat with its steps, questions, answer and files.

use axum::Form;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};
use sinew_documents::artifact::ArtifactRow;
use sinew_documents::event::{EventLine, EventPage};
use sinew_documents::execution::{ExecutionDescription, WaitKind};
use sinew_documents::node::NodeDescription;
use sinew_documents::words;

use super::execution_head::{ExecutionTab, failure_cause, read_execution, root_cause};
use super::node_inspector::is_nothing;
use crate::agent_messages::agent_messages;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::markdown::markdown;
use crate::page_frame::{live_part, may_steer, page_or_problem, token_field};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, clock_mark, duration, size, text_block, value_block, value_excerpt};
use crate::status_mark::status_mark;

/// Steps of a message that are shown, the latest.
const MAX_STEPS: &str = "30";
/// Messages of an agent that are shown, the latest.
const MAX_MESSAGES: usize = 40;
/// The node of an execution that calls a single agent.
const CALL_NODE: &str = "call";

/// A message and its results.
pub(super) struct ChatExchange {
    pub(super) execution: ExecutionDescription,
    steps: Vec<EventLine>,
    /// Node of the agent with its messages; `None` for workflows.
    node: Option<NodeDescription>,
    files: Vec<ArtifactRow>,
}

/// Reads a message.
pub(super) async fn read_turn(request: &PageRequest, id: &str) -> Result<ChatExchange, ConsoleError> {
    let execution = read_execution(request, id).await?;
    let steps_path =
        ApiPath::of(&["executions", id, "events"]).with("order", "newest").with("limit", MAX_STEPS);
    let files_path = ApiPath::of(&["executions", id, "artifacts"]);
    let node_path = ApiPath::of(&["executions", id, "node"]).with("name", CALL_NODE);
    let is_call = execution.workflow.starts_with("call:");
    let (steps, files, node) = futures_util::future::join3(
        request.api.get::<EventPage>(&steps_path),
        request.api.get::<Vec<ArtifactRow>>(&files_path),
        async { if is_call { request.api.get::<NodeDescription>(&node_path).await.ok() } else { None } },
    )
    .await;
    let mut steps = steps?.events;
    steps.reverse();
    Ok(ChatExchange { execution, steps, node, files: files.unwrap_or_default() })
}

/// The message and its answer.
pub(super) fn turn_part(request: &PageRequest, back: &PageAddress, turn: &ChatExchange) -> Markup {
    let execution = &turn.execution;
    let id = execution.execution.as_str();
    let whole = ApiPath::of(&["executions", id]).address();
    html! {
        div.turn {
            div.bubble.mine { (plain_value(&execution.input, &whole, plain_text)) }
            (live_part(&format!("turn-{id}"), &html! {
                div.bubble.theirs {
                    p.quiet {
                        (status_mark(execution.status)) " "
                        a href=(PageAddress::execution(id)) { "Execution" } " "
                        (duration(Some(execution.duration_ms)))
                    }
                    (told(turn))
                    @if let Some(output) = &execution.output { (plain_value(answer_of(execution, output), &whole, markdown)) }
                    @if let Some(cause) = execution.failure.as_ref().and_then(|failure| root_cause(&failure.chain)) {
                        div.failure { (failure_cause(cause)) }
                    }
                    (questions(request, back, execution))
                    (files(id, &turn.files))
                }
            }))
            @if execution.ended.is_none() {
                div.theirs-now aria-live="polite" data-progress=(ApiPath::of(&["executions", id, "progress"]).address()) {}
            }
            (live_part(&format!("steps-{id}"), &steps(turn)))
        }
    }
}

/// The answer: the output of the call node for agents, the output of the execution for workflows.
fn answer_of<'t>(execution: &ExecutionDescription, output: &'t Value) -> &'t Value {
    match output {
        Value::Object(members) if execution.workflow.starts_with("call:") && members.len() == 1 => {
            members.get("output").unwrap_or(output)
        }
        other => other,
    }
}

/// A text as it is; a longer one is a block.
fn plain_text(text: &str, whole: &str) -> Markup {
    if text.len() < 4_000 {
        html! { p.text { (shown_text::paragraph(text)) } }
    } else {
        text_block(text, whole)
    }
}

/// A value as text: an object with a single text member is shown as that text.
fn plain_value(value: &Value, whole: &str, shown: fn(&str, &str) -> Markup) -> Markup {
    let only = match value {
        Value::Object(members) if members.len() == 1 => members.values().next().filter(|one| one.is_string()),
        _ => None,
    };
    match only.unwrap_or(value) {
        Value::Null => html! {},
        Value::String(text) => shown(text, whole),
        other => value_block(other, whole),
    }
}

/// Text, tool calls and other messages of an agent, in order.
fn told(turn: &ChatExchange) -> Markup {
    let Some(node) = &turn.node else { return html! {} };
    let skipped = node.logs.len().saturating_sub(MAX_MESSAGES);
    html! {
        @if !node.logs.is_empty() {
            (agent_messages(&node.logs[skipped..]))
        }
    }
}

/// Node events, collapsed: the summary shows the latest.
fn steps(turn: &ChatExchange) -> Markup {
    html! {
        @if !turn.steps.is_empty() {
            details.steps {
                summary { (words::count(turn.steps.len(), "step")) @if let Some(last) = turn.steps.last() { ", latest: " (shown_text::line(&last.kind.replace('_', " "), 60)) } }
                ol.log {
                    @for step in &turn.steps {
                        li {
                            span.quiet { (clock_mark(step.at)) } " " code { (shown_text::line(&step.kind, 60)) } " "
                            @if let Some(node) = &step.node { a href=(PageAddress::execution(&turn.execution.execution).with("node", node)) { (shown_text::line(node, 60)) } }
                        }
                    }
                }
            }
        }
    }
}

/// Questions for people, with forms to answer them.
fn questions(request: &PageRequest, back: &PageAddress, execution: &ExecutionDescription) -> Markup {
    let asked = execution.waiting.iter().filter(|wait| wait.what == WaitKind::Person);
    html! {
        @for wait in asked {
            div.waits {
                @if let Some(question) = &wait.question {
                    p.text { (shown_text::paragraph(&question.prompt)) }
                    @if !is_nothing(&question.data) { (value_excerpt(&question.data, &ExecutionTab::Data.address(&execution.execution))) }
                }
                p.quiet { "Waiting for " (shown_text::line(&wait.text, 600)) }
                @if may_steer(request) {
                    form.steer method="post" action=(PageAddress::of(&["chat", &execution.execution, "decision"])) {
                        (token_field(request))
                        input type="hidden" name="back" value=(back.to_string());
                        input type="hidden" name="node" value=(wait.node.as_deref().unwrap_or_default());
                        label { span { "Answer or comment " span.quiet { "(required to reject)" } } textarea name="comment" rows="1" {} }
                        div.actions {
                            button.primary type="submit" name="decision" value="approve" data-command=(approval_command("approve", execution, wait.node.as_deref())) { "Approve" }
                            button.danger type="submit" name="decision" value="reject" data-command=(approval_command("reject", execution, wait.node.as_deref())) { "Reject" }
                            a.button href=(PageAddress::of(&["executions", &execution.execution, "approval"]).with_some("node", wait.node.as_deref())) { "Data…" }
                        }
                    }
                }
            }
        }
    }
}

/// The equivalent command.
fn approval_command(verb: &str, execution: &ExecutionDescription, node: Option<&str>) -> String {
    let command = CommandText::of_execution(&format!("sinew approval {verb}"), &execution.execution);
    shown_text::name(&command.flag("--node", node.unwrap_or_default()).to_string())
}

/// Returns true for generated file names: task inputs and outputs, which the page already shows.
fn is_generated(name: &str) -> bool {
    name.strip_suffix(".json")
        .is_some_and(|stem| ["call_", "output_", "wi_"].iter().any(|begin| stem.starts_with(begin)))
}

fn files(id: &str, all: &[ArtifactRow]) -> Markup {
    let files: Vec<&ArtifactRow> = all.iter().filter(|file| !is_generated(file.meta.name.as_str())).collect();
    html! {
        @if !files.is_empty() {
            p.files {
                @for file in files.iter().take(20) {
                    @let name = file.reference();
                    a.label href=(ApiPath::of(&["executions", id, "artifact"]).with("name", &name).address()) download {
                        (shown_text::line(file.meta.name.as_str(), 80)) " " (size(file.meta.size))
                    }
                    " "
                    a.label href=(PageAddress::of(&["executions", id, "artifacts"]).with("artifact", &name)) { "Preview" }
                    " "
                    @if file.meta.media_type.starts_with("image/") {
                        img.preview-image src=(PageAddress::of(&["executions", id, "artifact-image"]).with("artifact", &name)) alt={ "Image " (shown_text::line(file.meta.name.as_str(), 80)) } loading="lazy";
                    }
                }
            }
        }
    }
}

/// A decision within a chat.
#[derive(Debug, Deserialize)]
pub(crate) struct ChatDecision {
    decision: String,
    #[serde(default)]
    node: String,
    #[serde(default)]
    comment: String,
    #[serde(default)]
    back: String,
}

/// Sends a decision and returns to the chat.
pub(crate) async fn decide(
    Path(id): Path<String>,
    request: PageRequest,
    Form(form): Form<ChatDecision>,
) -> Response {
    let text = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let body = json!({ "decision": form.decision, "node": text(&form.node), "comment": text(&form.comment) });
    let path = ApiPath::of(&["executions", &id, "decisions"]);
    match request.api.post::<Value>(&path, &body).await {
        // Only redirect to chat pages, because the form field is untrusted.
        Ok(_) => match form.back.strip_prefix(&format!("{}/", PageAddress::of(&["chat"]))) {
            Some(rest) if !rest.contains("//") => {
                Redirect::to(&format!("{}/{rest}", PageAddress::of(&["chat"]))).into_response()
            }
            _ => Redirect::to(&PageAddress::execution(&id).to_string()).into_response(),
        },
        Err(error) => page_or_problem(&request, Err(error)),
    }
}
