//! The inspector of a node: input, output, attempts, messages, and the reason for its status.

use axum::http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;
use sinew_documents::agent::{AgentDetails, AgentState};
use sinew_documents::execution::ExecutionDescription;
use sinew_documents::node::{ExecutionId, NodeDescription, TreeBranch};
use sinew_documents::node_status::NodeStatus;
use sinew_documents::words;

use super::execution::NodeChoice;
use super::execution_head::{ExecutionTab, fault};
use super::execution_nodes::node_row;
use super::node_evidence::{OtherNode, attempts, comparison, conditions, read_compared, usage};
use super::opened_nodes::OpenedNodes;
use super::recorded_case::case_link;
use crate::agent_messages::agent_messages;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{live_part, may_steer, problem_box};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, action_link, clock_mark, command_line, duration, text_block, value_block};
use crate::status_mark::{ShownStatus, status_mark};

/// Maximum children that are shown as cells.
const MAX_CELLS: usize = 400;
/// Maximum listed children of a map, loop or fork.
const MAX_CHILDREN: usize = 50;
/// Maximum listed messages of an agent, the latest.
const MAX_LOGS: usize = 50;

/// Maximum depth of nested workflows in a node name.
const MAX_STEPS: usize = 4;

/// The selected node: its activation, if it has one, and its position in the tree.
pub(crate) struct SelectedNode {
    /// Execution of the node: that of the page, or that of a nested workflow.
    id: String,
    /// Name of the node in its execution.
    name: String,
    node: Result<NodeDescription, ConsoleError>,
    tree: Vec<TreeBranch>,
    /// Current card of the node's agent; `None` for nodes without an agent.
    card: Option<Result<AgentDetails, ConsoleError>>,
    steers: bool,
    compared: Option<OtherNode>,
}

/// Reads the selected node; `None` if none is selected.
pub(crate) async fn read_node(request: &PageRequest, id: &str, choice: &NodeChoice) -> Option<SelectedNode> {
    let mut name = choice.node.as_deref().filter(|node| !node.is_empty())?;
    let mut id = id.to_owned();
    // `billing/check` is a node of the workflow that `billing` calls.
    for _ in 0..MAX_STEPS {
        let Some((caller, within)) = name.split_once('/') else { break };
        let path = ApiPath::of(&["executions", &id, "node"]).with("name", caller);
        let Ok(NodeDescription { execution: Some(called), .. }) = request.api.get(&path).await else { break };
        (id, name) = (called.to_string(), within);
    }
    let node_path = ApiPath::of(&["executions", &id, "node"]).with("name", name);
    let tree_path = ApiPath::of(&["executions", &id, "tree"]).with("node", name).with("depth", "2");
    let (node, tree) = futures_util::future::join(
        request.api.get::<NodeDescription>(&node_path),
        request.api.get::<Vec<TreeBranch>>(&tree_path),
    )
    .await;
    let card = async {
        let agent = node.as_ref().ok()?.agent.as_deref()?;
        Some(request.api.get::<AgentDetails>(&ApiPath::of(&["agents", agent])).await)
    };
    let (card, compared) = futures_util::future::join(card, read_compared(request, &id, name, choice)).await;
    Some(SelectedNode {
        compared,
        name: name.to_owned(),
        id,
        node,
        tree: tree.unwrap_or_default(),
        card,
        steers: may_steer(request),
    })
}

/// The content of a tab, next to the inspector of the selected node.
pub(super) async fn beside_node(
    request: &PageRequest,
    execution: &ExecutionDescription,
    tab: ExecutionTab,
    content: &Markup,
) -> Result<Markup, ConsoleError> {
    let choice = NodeChoice { tab, ..request.query::<NodeChoice>()? };
    let selected = read_node(request, &execution.execution, &choice).await;
    Ok(html! {
        div.split {
            div { (content) }
            (live_part("node", &html! {
                @if let Some(selected) = &selected { (node_inspector(execution, &choice, selected)) }
            }))
        }
    })
}

/// The selected node in the address of a tab.
pub(super) fn selected_name(request: &PageRequest) -> Result<Option<String>, ConsoleError> {
    let NodeChoice { node, .. } = request.query()?;
    Ok(node.filter(|node| !node.is_empty()))
}

/// The inspector.
pub(crate) fn node_inspector(
    execution: &ExecutionDescription,
    choice: &NodeChoice,
    selected: &SelectedNode,
) -> Markup {
    let (id, name) = (selected.id.as_str(), selected.name.as_str());
    html! {
        aside.inspector aria-label="Selected node" {
            a.close href=(choice.address(&execution.execution)) aria-label="Close node" { "×" }
            @match &selected.node {
                Ok(node) => {
                    (activation(id, node, selected.card.as_ref()))
                    (conditions(execution, node))
                    (usage(node))
                    (attempts(node, &ApiPath::of(&["executions", id, "node"]).with("name", &node.node).address()))
                    (comparison(execution, choice, node, selected.compared.as_ref()))
                }
                Err(error) => (without_activation(name, &selected.tree, error)),
            }
            (node_actions(execution, choice, selected))
            (children(&execution.execution, id, choice, &selected.tree))
        }
    }
}

fn activation(id: &str, node: &NodeDescription, card: Option<&Result<AgentDetails, ConsoleError>>) -> Markup {
    let whole = ApiPath::of(&["executions", id, "node"]).with("name", &node.node).address();
    html! {
        h2 { (status_mark(node.status)) " " (shown_text::line(&node.node, 120)) }
        dl.facts {
            div { dt { "Kind" } dd { (shown_text::line(&node.kind, 60)) } }
            @if let Some(agent) = &node.agent { div { dt { "Agent" } dd { a href=(PageAddress::agent(agent)) { (shown_text::line(agent, 60)) } " " (card_mark(card)) } } }
            @if node.attempts > 0 { div { dt { "Attempts" } dd { (node.attempts) } } }
            div { dt { "Time" } dd { (duration(node.duration_ms)) } }
        }
        @if let Some(error) = &node.error { div.failure { (fault(error)) } }
        @else if let Some(message) = &node.message { p { (shown_text::line(message, 1_000)) } }
        (command_line(&CommandText::of_execution("sinew execution describe", id).flag("--node", &node.node)))
        @if let Some(instruction) = &node.instruction { h3 { "Instruction" } (text_block(instruction, &whole)) }
        @if let Some(input) = &node.input { h3 { "Input" } (value_block(input, &whole)) }
        @if let Some(output) = &node.output { h3 { "Output" } (value_block(output, &whole)) }
        @if !is_told_already(node) {
            h3 { "Failed attempts" }
            ol.chain {
                @for attempt in &node.failed_attempts {
                    li { span.quiet { "attempt " (attempt.attempt) " at " (clock_mark(attempt.at)) } " " (fault(&attempt.error)) }
                }
            }
        }
        @if !node.logs.is_empty() {
            h3 { "Agent messages" }
            @if node.logs.len() > MAX_LOGS { p.quiet { "Latest " (MAX_LOGS) " of " (node.logs.len()) ". " a href=(whole) { "Show all" } } }
            (agent_messages(&node.logs[node.logs.len().saturating_sub(MAX_LOGS)..]))
        }
    }
}

/// Version of the agent's current card, or that the agent is offline.
fn card_mark(card: Option<&Result<AgentDetails, ConsoleError>>) -> Markup {
    html! {
        @match card {
            Some(Ok(card)) if card.state == AgentState::Offline => span.quiet { "offline" },
            Some(Ok(card)) => span.quiet title="Version of the current card" { "card " (shown_text::line(&card.version, 30)) },
            Some(Err(error)) if error.status() == StatusCode::NOT_FOUND => span.quiet { "not online" },
            Some(Err(_)) | None => {}
        }
    }
}

/// Returns true if the failed attempts add nothing to the error of the node: none, or only the one
/// that failed it.
fn is_told_already(node: &NodeDescription) -> bool {
    match node.failed_attempts.as_slice() {
        [] => true,
        [only] => node.error.as_ref().is_some_and(|error| error.message == only.error.message),
        _ => false,
    }
}

/// Actions of a node, and links to more views of it.
fn node_actions(execution: &ExecutionDescription, choice: &NodeChoice, selected: &SelectedNode) -> Markup {
    html! {
        div.actions role="group" aria-label="Node actions" {
            @if let Ok(node) = &selected.node {
                @if selected.steers { (steering_links(&selected.id, node)) }
                @if execution.ended.is_some() { (case_link(&selected.id, Some(&node.node))) }
            }
            (open_links(&execution.execution, choice, selected))
        }
    }
}

fn steering_links(id: &str, node: &NodeDescription) -> Markup {
    let of = |verb: &str, field: &str| PageAddress::of(&["executions", id, verb]).with(field, &node.node);
    html! {
        @if matches!(node.status, NodeStatus::Failed | NodeStatus::Cancelled) {
            (action_link(&of("retry", "node"), "Retry this node…", &CommandText::of_execution("sinew execution retry", id).flag("--node", &node.node)))
        }
        @if node.status == NodeStatus::Succeeded {
            (action_link(&of("fork", "at"), "Fork at this node…", &CommandText::of_execution("sinew execution fork", id).flag("--at", &node.node)))
        }
    }
}

/// A node without activation: why it was skipped, or what it waits for.
fn without_activation(name: &str, tree: &[TreeBranch], error: &ConsoleError) -> Markup {
    html! {
        @match tree.first() {
            Some(TreeBranch { label, row, .. }) => {
                h2 { (status_mark(row.status)) " " (shown_text::line(label, 120)) }
                p {
                    @match (row.status, &row.message) {
                        (NodeStatus::Skipped, Some(reason)) => { "Skipped: " (shown_text::line(reason, 600)) }
                        (_, Some(message)) => (shown_text::line(message, 600)),
                        (NodeStatus::Planned, None) => "Not started: preceding nodes have not ended.",
                        _ => "Not started.",
                    }
                }
            }
            None => {
                h2 { (shown_text::line(name, 120)) }
                @match name.trim_end_matches('_') {
                    "Start" => p { "Start of the workflow." },
                    "Finish" => p { "End of the workflow." },
                    _ => (problem_box(error)),
                }
            }
        }
    }
}

/// Links that expand or collapse a node in the graph, and a link to the execution that it started.
fn open_links(page: &str, choice: &NodeChoice, selected: &SelectedNode) -> Markup {
    let called =
        selected.node.as_ref().ok().and_then(|node| node.execution.as_ref()).map(ExecutionId::as_str);
    let first = selected.tree.first();
    let has_children = first.is_some_and(|branch| !branch.children.is_empty());
    let is_workflow = called.is_some() || first.is_some_and(|branch| branch.row.kind == "workflow");
    // Children are expanded by the node of the plan, workflows by the path to their node.
    let name =
        if is_workflow { choice.node.as_deref() } else { first.map(|branch| branch.row.node.as_str()) };
    let opened = OpenedNodes::of(choice.open.as_deref());
    let link = |opened: OpenedNodes| {
        PageAddress::execution(page)
            .with_some("open", opened.text().as_deref())
            .with_some("node", choice.node.as_deref())
    };
    html! {
        @if let Some(name) = name.filter(|name| (has_children || is_workflow) && !name.contains(',')) {
            @if opened.has(name) {
                a.button data-stay href=(link(opened.without(name))) { "Collapse in graph" }
            } @else {
                a.button data-stay href=(link(opened.with(name))) { "Expand in graph" }
            }
            @if let Some(called) = called { a.button href=(PageAddress::execution(called)) { "Open execution" } }
        }
    }
}

/// A child as a coloured cell, so that hundreds fit on the screen.
fn child_cell(id: &str, branch: &TreeBranch, choice: &NodeChoice) -> Markup {
    let ShownStatus { word, icon } = branch.row.status.into();
    let title = format!("{} {word}", branch.label);
    html! {
        a class={ "cell is-" (word) } href=(choice.address_of(id, &branch.label)) data-node-link=(branch.label)
            title=(shown_text::line(&title, 120)) aria-label=(shown_text::line(&title, 120)) { (icon) }
    }
}

/// Children of a node. Children of the shown execution open in the same view.
fn children(page: &str, id: &str, shown: &NodeChoice, tree: &[TreeBranch]) -> Markup {
    let other = NodeChoice::default();
    let choice = if id == page { shown } else { &other };
    let rows: Vec<&TreeBranch> = tree.iter().flat_map(|branch| &branch.children).collect();
    let skipped: usize = shown.skip.as_deref().and_then(|skip| skip.parse().ok()).unwrap_or_default();
    let skipped = if skipped < rows.len() { skipped } else { 0 };
    let last = rows.len().min(skipped + MAX_CHILDREN);
    let page = |skip: usize| {
        shown.address(page).with_some("node", shown.node.as_deref()).with("skip", &skip.to_string())
    };
    html! {
        @if !rows.is_empty() {
            h3 { (words::count(rows.len(), "child").replace("childs", "children")) }
            @if rows.len() > 8 {
                div.cells role="group" aria-label="Children by status" {
                    @for row in rows.iter().take(MAX_CELLS) { (child_cell(id, row, choice)) }
                    @if rows.len() > MAX_CELLS { span.quiet { "and " (rows.len() - MAX_CELLS) " more" } }
                }
            }
            div.scroll tabindex="0" role="region" aria-label="Children" {
                table.rows {
                    thead { tr { th scope="col" { "Node" } th scope="col" { "Status" } th.number scope="col" { "Attempts" } th.number scope="col" { "Time" } th scope="col" { "Agent" } th.wide scope="col" { "Message" } } }
                    tbody { @for row in rows.iter().skip(skipped).take(MAX_CHILDREN) { (node_row(id, row, choice)) } }
                }
            }
            @if rows.len() > MAX_CHILDREN {
                nav.pages aria-label="Children" {
                    span.quiet { (skipped + 1) "–" (last) " of " (rows.len()) }
                    @if skipped > 0 { a data-stay href=(page(skipped.saturating_sub(MAX_CHILDREN))) { "Previous" } }
                    @if last < rows.len() { a data-stay href=(page(last)) { "Next" } }
                }
            }
        }
    }
}

/// Returns true for empty values, which pages omit.
pub(crate) fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
