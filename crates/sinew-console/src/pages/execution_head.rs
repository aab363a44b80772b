//! The header of the pages of an execution: status, waits, failure, actions and tabs.

use maud::{Markup, html};
use serde_json::Value;
use sinew_documents::execution::{
    ExecutionDescription, FailureCause, FailureDescription, Fault, PersonDecision, WaitKind,
};
use sinew_documents::execution_status::ExecutionStatus;
use sinew_documents::timestamp::Timestamp;
use sinew_documents::words;

use super::chat::{CHAT_LABEL, KIND_LABEL};
use super::node_inspector::is_nothing;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{LiveSource, code_link, disabled_action, live_part, read_only_reason};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, action_link, command_line, duration, time_mark};
use crate::status_mark::{ShownStatus, status_mark};

/// Maximum shown waits, warnings and commands.
const MAX_SHOWN: usize = 8;

/// Tabs of an execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ExecutionTab {
    #[default]
    Graph,
    Timeline,
    Events,
    Data,
    Artifacts,
    Agents,
    Compare,
    Source,
}

impl ExecutionTab {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Graph, "Graph"),
        (Self::Timeline, "Timeline"),
        (Self::Events, "Events"),
        (Self::Data, "Data"),
        (Self::Artifacts, "Artifacts"),
        (Self::Agents, "Agents"),
        (Self::Compare, "Compare"),
        (Self::Source, "Source"),
    ];

    pub(crate) fn address(self, id: &str) -> PageAddress {
        match self {
            Self::Graph => PageAddress::execution(id),
            Self::Timeline => PageAddress::of(&["executions", id, "timeline"]),
            Self::Events => PageAddress::of(&["executions", id, "events"]),
            Self::Data => PageAddress::of(&["executions", id, "data"]),
            Self::Artifacts => PageAddress::of(&["executions", id, "artifacts"]),
            Self::Agents => PageAddress::of(&["executions", id, "agents"]),
            Self::Compare => PageAddress::of(&["executions", id, "compare"]),
            Self::Source => PageAddress::of(&["executions", id, "source"]),
        }
    }
}

/// Reads the description of an execution.
pub(crate) async fn read_execution(
    request: &PageRequest,
    id: &str,
) -> Result<ExecutionDescription, ConsoleError> {
    request.api.get(&ApiPath::of(&["executions", id])).await
}

/// The event stream of an execution. An ended execution has none until it is retried.
pub(crate) fn live_source(execution: &ExecutionDescription) -> LiveSource {
    match execution.ended {
        Some(_) => LiveSource::Still,
        None => LiveSource::Events(ApiPath::of(&["executions", &execution.execution, "events"]).address()),
    }
}

/// Title of the pages of an execution; the icon shows its status in a list of browser tabs.
pub(crate) fn execution_title(execution: &ExecutionDescription) -> String {
    let ShownStatus { icon, .. } = execution.status.into();
    format!("{icon} {} {}", execution.workflow, words::short_id(&execution.execution))
}

/// The header and the tabs. The selected node stays selected in all tabs.
pub(crate) fn execution_head(
    request: &PageRequest,
    execution: &ExecutionDescription,
    tab: ExecutionTab,
    node: Option<&str>,
) -> Markup {
    let id = &execution.execution;
    html! {
        (live_part("head", &html! {
            div.head {
                h1 {
                    (status_mark(execution.status)) " "
                    a href=(PageAddress::workflow(&execution.workflow)) { (shown_text::line(&execution.workflow, 80)) }
                }
                (actions(request, execution))
                (command_line(&CommandText::of_execution("sinew execution describe", id)))
            }
            (facts(request, execution))
            (waits(execution))
            @if let Some(failure) = &execution.failure { (failure_box(execution, failure, tab)) }
            @if tab == ExecutionTab::Graph { (values(execution)) }
            (warnings(execution))
        }))
        (live_part("tabs", &html! {
            nav.tabs aria-label="Execution views" {
                @for (one, title) in ExecutionTab::ALL {
                    a href=(one.address(id).with_some("node", node)) aria-current=[(one == tab).then_some("page")] { (title) }
                }
            }
        }))
    }
}

fn facts(request: &PageRequest, execution: &ExecutionDescription) -> Markup {
    let nodes = execution.nodes;
    let parts = [
        (nodes.running, "running"),
        (nodes.waiting, "waiting"),
        (nodes.failed, "failed"),
        (nodes.skipped, "skipped"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    html! {
        dl.facts {
            div { dt { "Execution" } dd { code { (shown_text::name(&execution.execution)) } } }
            div { dt { "Started" } dd { (time_mark(execution.started, request.now)) } }
            div { dt { "Time" } dd { (duration(Some(execution.active_ms()))) @if execution.paused_ms > 0 { " and " (duration(Some(execution.paused_ms))) " paused" } } }
            @if let Some(price) = price(execution) { div { dt { "Price" } dd { (price) } } }
            div { dt { "Nodes" } dd { (nodes.over) "/" (nodes.total) @if nodes.items > 0 { ", items " (nodes.items_over) "/" (nodes.items) } @for (count, word) in parts { ", " (count) " " (word) } } }
            div { dt { "Version" } dd { code { (shown_text::line(words::short(&execution.version), 20)) } " " (shown_text::line(&execution.dialect, 30)) } }
            @if !execution.about.caller.is_empty() { div { dt { "Caller" } dd { (shown_text::line(&execution.about.caller, 60)) } } }
            @if !execution.about.user.is_empty() { div { dt { "User" } dd { (shown_text::line(&execution.about.user, 60)) } } }
            @if execution.retries > 0 { div { dt { "Retried" } dd { (words::count(execution.retries as usize, "time")) } } }
            @if let Some(key) = &execution.about.idempotency_key {
                div { dt { "Key" } dd { (shown_text::line(key, 120)) } }
            }
            @if let Some(parent) = &execution.about.parent {
                div { dt { "Called by" } dd { a href=(PageAddress::execution(parent)) { (shown_text::line(words::short_id(parent), 60)) } } }
            }
            @if let Some(chat) = execution.about.labels.get(CHAT_LABEL) {
                @let partner = execution.workflow.strip_prefix("call:").unwrap_or(&execution.workflow);
                div { dt { "Chat" } dd { a href=(PageAddress::chat(partner).with("chat", chat)) { (shown_text::line(partner, 60)) } } }
            }
            @if shown_labels(execution).next().is_some() {
                div { dt { "Labels" } dd { @for (key, value) in shown_labels(execution) { (label(key, value)) " " } } }
            }
        }
    }
}

/// Cost of all model calls, including those of called agents and workflows.
fn price(execution: &ExecutionDescription) -> Option<String> {
    let costs = execution.models.iter().filter_map(|model| model.used.total().cost_usd);
    costs.reduce(|one, other| one + other).map(|cost| format!("${cost:.4}"))
}

/// Labels that name the execution from which this one was created.
const ORIGINS: [&str; 3] = ["fork_of", "rerun_of", "retry_of"];

/// Labels for people: without those by which chats and gateways find their executions.
fn shown_labels(execution: &ExecutionDescription) -> impl Iterator<Item = (&String, &String)> {
    let labels = &execution.about.labels;
    let is_of_chat = |key: &str| labels.contains_key(CHAT_LABEL) && [CHAT_LABEL, KIND_LABEL].contains(&key);
    labels.iter().filter(move |(key, _)| !key.starts_with("a2a.") && !is_of_chat(key))
}

fn label(key: &str, value: &str) -> Markup {
    let text = shown_text::line(&format!("{key}={value}"), 60);
    html! {
        @if ORIGINS.contains(&key) {
            a.label href=(PageAddress::execution(value)) { (text) }
        } @else {
            span.label { (text) }
        }
    }
}

fn waits(execution: &ExecutionDescription) -> Markup {
    let id = &execution.execution;
    html! {
        @if !execution.waiting.is_empty() {
            ul.waits {
                @for wait in execution.waiting.iter().take(MAX_SHOWN) {
                    li {
                        @if let Some(node) = &wait.node {
                            a href=(PageAddress::execution(id).with("node", node)) { (shown_text::line(node, 80)) }
                        } @else { "Execution" }
                        " is waiting for " (shown_text::line(&wait.text, 400))
                        @if let Some(question) = &wait.question { ": " (shown_text::line(&question.prompt, 300)) }
                        @if let Some(asking) = wait.asked_in.as_ref().and_then(|asked| asked.execution.as_ref()) {
                            " " a href=(PageAddress::execution(asking.as_str())) { "Execution with the question" }
                        }
                        @if wait.what == WaitKind::Person {
                            " " (action_link(&PageAddress::of(&["executions", id, "approval"]).with_some("node", wait.node.as_deref()), "Decide", &CommandText::of_execution("sinew approval show", id).flag("--node", wait.node.as_deref().unwrap_or_default())))
                        }
                    }
                }
                @if execution.waiting.len() > MAX_SHOWN { li { "and " (execution.waiting.len() - MAX_SHOWN) " more" } }
            }
        }
    }
}

/// The fault that caused a failure: that of the innermost node.
pub(crate) fn root_cause(chain: &[FailureCause]) -> Option<&FailureCause> {
    chain.iter().rfind(|cause| cause.attempt.is_none()).or(chain.last())
}

/// The failure: its root cause, then what else is known. Only the graph has the details.
fn failure_box(execution: &ExecutionDescription, failure: &FailureDescription, tab: ExecutionTab) -> Markup {
    let root = root_cause(&failure.chain);
    let repeats =
        |cause: &FailureCause| root.is_some_and(|root| cause.fault.message.contains(&root.fault.message));
    let (attempts, enclosing): (Vec<_>, Vec<_>) =
        failure.chain.iter().partition(|cause| cause.attempt.is_some());
    let enclosing: Vec<_> = enclosing.into_iter().filter(|cause| !repeats(cause)).collect();
    html! {
        section.failure aria-label="Failure" {
            h2 {
                "Cause"
                @if let Some(node) = &failure.node {
                    ": " a href=(PageAddress::execution(&execution.execution).with("node", node)) { (shown_text::line(node, 80)) }
                }
            }
            @if let Some(root) = root {
                p {
                    @if let Some(agent) = &root.agent { span.quiet { "agent " (shown_text::line(agent, 60)) } " · " }
                    (fault_at(&root.fault, root.at))
                }
            }
            @if tab == ExecutionTab::Graph {
                (causes("Reported by the enclosing nodes and the execution", &enclosing))
                (causes("Failed attempts", &attempts))
                @if !execution.next.is_empty() {
                    p.next { "Next: " @for command in &execution.next { (command_line(&CommandText::new(command))) " " } }
                }
            }
        }
    }
}

fn causes(title: &str, causes: &[&FailureCause]) -> Markup {
    html! {
        @if !causes.is_empty() {
            details { summary { (title) " (" (causes.len()) ")" } ol.chain { @for cause in causes { li { (failure_cause(cause)) } } } }
        }
    }
}

/// Result and input in short; the tab "Data" has all of them.
fn values(execution: &ExecutionDescription) -> Markup {
    let data = ExecutionTab::Data.address(&execution.execution);
    let shown = |title: &str, value: &Value| {
        html! {
            @if !is_nothing(value) {
                section { h2 { (title) } (shown_text::value_excerpt(value, &data)) }
            }
        }
    };
    html! {
        div.columns.values {
            @if let Some(output) = &execution.output { (shown("Result", output)) }
            (shown("Input", &execution.input))
        }
    }
}

/// A fault with its location, and whether a retry may help.
pub(crate) fn failure_cause(cause: &FailureCause) -> Markup {
    html! {
        @if let Some(node) = &cause.node { b { (shown_text::line(node, 80)) } " " }
        @if let Some(agent) = &cause.agent { span.quiet { "agent " (shown_text::line(agent, 60)) } " " }
        @if let Some(attempt) = cause.attempt { span.quiet { "attempt " (attempt) } " " }
        @if cause.node.is_some() || cause.agent.is_some() { "· " }
        (fault_at(&cause.fault, cause.at))
    }
}

/// A fault with its code, and whether a retry may help.
pub(crate) fn fault(fault: &Fault) -> Markup {
    fault_at(fault, None)
}

fn fault_at(fault: &Fault, at: Option<Timestamp>) -> Markup {
    html! {
        span.message { (shown_text::line(&fault.message, 1_000)) } " "
        (code_link(&fault.code))
        @if fault.retryable { " " span.quiet { "a retry may help" } }
        @if let Some(at) = at { " " span.quiet { (shown_text::moment_mark(at)) } }
        @if !fault.details.is_empty() {
            ul { @for detail in fault.details.iter().take(MAX_SHOWN) { li { (shown_text::line(detail, 400)) } } }
        }
    }
}

fn warnings(execution: &ExecutionDescription) -> Markup {
    html! {
        @if !execution.warnings.is_empty() {
            details.warnings {
                summary { (words::count(execution.warnings.len(), "warning")) }
                ul {
                    @for warning in execution.warnings.iter().take(MAX_SHOWN) {
                        li {
                            @if let Some(node) = &warning.node { b { (shown_text::line(node, 80)) } ": " }
                            (shown_text::line(&warning.message, 600))
                        }
                    }
                    @if execution.warnings.len() > MAX_SHOWN { li { "and " (execution.warnings.len() - MAX_SHOWN) " more" } }
                }
            }
        }
    }
}

/// Buttons for the commands that the current status permits. Each opens a page that describes the
/// effect.
fn actions(request: &PageRequest, execution: &ExecutionDescription) -> Markup {
    let id = execution.execution.as_str();
    let has_ended = execution.ended.is_some();
    let is_paused = execution.status == ExecutionStatus::Paused;
    let has_failed = matches!(execution.status, ExecutionStatus::Failure | ExecutionStatus::Cancelled);
    let offered = [
        ("retry", "Retry…", has_failed),
        ("fork", "Fork…", true),
        ("pause", "Pause…", !has_ended && !is_paused),
        ("resume", "Resume…", is_paused),
        ("cancel", "Cancel…", !has_ended),
    ];
    let again = PageAddress::of(&["workflows", &execution.workflow, "start"]).with("execution", id);
    let offered = offered.iter().filter(|(.., makes_sense)| *makes_sense);
    html! {
        div.actions role="group" aria-label="Actions" {
            @if let Some(reason) = read_only_reason(request) {
                @for (_, title, _) in offered { (disabled_action(title, reason)) }
                span.quiet { (reason) }
            } @else {
                @for (verb, title, _) in offered {
                    (action_link(&PageAddress::of(&["executions", id, verb]), title, &CommandText::of_execution(&format!("sinew execution {verb}"), id)))
                }
                // A call of an agent has no deployed workflow.
                @if has_ended && !execution.workflow.starts_with("call:") {
                    (action_link(&again, "Run again…", &CommandText::of_execution("sinew execution rerun", id).with("--latest")))
                }
            }
        }
    }
}

/// Commands and decisions with their callers.
pub(crate) fn commands(execution: &ExecutionDescription) -> Markup {
    html! {
        @if !execution.commands.is_empty() || !execution.decisions.is_empty() {
            section {
                h2 { "Commands and decisions" }
                div.scroll tabindex="0" role="region" aria-label="Commands and decisions" {
                    table.rows {
                        thead { tr { th scope="col" { "Command" } th scope="col" { "By" } th scope="col" { "Result" } th.wide scope="col" { "Reason or comment" } } }
                        tbody {
                            @for command in &execution.commands {
                                tr {
                                    td { (shown_text::line(command.op.as_str(), 40)) }
                                    td { (shown_text::line(command.caller.as_str(), 60)) }
                                    td { @if command.accepted { "accepted" } @else { "rejected" } }
                                    td.wide { (shown_text::line(&command.reason, 400)) }
                                }
                            }
                            @for decision in &execution.decisions { (decision_row(decision)) }
                        }
                    }
                }
            }
        }
    }
}

/// A decision as a row of four cells.
pub(crate) fn decision_row(decision: &PersonDecision) -> Markup {
    html! {
        tr {
            td { (decision.word.as_str()) " " (shown_text::line(&decision.node, 60)) }
            td { (shown_text::line(decision.by.as_deref().unwrap_or("–"), 60)) }
            td { (shown_text::moment_mark(decision.at)) }
            td.wide { (shown_text::line(decision.comment.as_deref().unwrap_or_default(), 400)) }
        }
    }
}
