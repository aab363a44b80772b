//! Agents of an execution: calls, results, durations and costs of each.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use sinew_documents::agent::{AgentRow, AgentState, AgentWork};

use super::execution_head::{
    ExecutionTab, execution_head, execution_title, fault, live_source, read_execution,
};
use super::node_inspector::{beside_node, selected_name};
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{ConsolePage, ConsoleSection, live_part, page_or_problem};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line, duration};

/// Maximum listed agents.
const MAX_ROWS: usize = 300;
/// Maximum linked nodes per agent.
const MAX_NODES: usize = 8;

pub(crate) async fn show(Path(id): Path<String>, request: PageRequest) -> Response {
    let page = agents_page(&id, &request).await;
    page_or_problem(&request, page)
}

async fn agents_page(id: &str, request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let execution = read_execution(request, id).await?;
    let id = execution.execution.as_str();
    let (work_path, online_path) =
        (ApiPath::of(&["executions", id, "agents"]), ApiPath::of(&["agents"]).with("workflows", "true"));
    let (work, online) = futures_util::future::try_join(
        request.api.get::<Vec<AgentWork>>(&work_path),
        request.api.get::<Vec<AgentRow>>(&online_path),
    )
    .await?;
    let content = html! {
        (live_part("agents", &agent_table(id, &work, &online)))
        (command_line(&CommandText::of_execution("sinew execution describe", id)))
    };
    let node = selected_name(request)?;
    let body = html! {
        (execution_head(request, &execution, ExecutionTab::Agents, node.as_deref()))
        (beside_node(request, &execution, ExecutionTab::Agents, &content).await?)
    };
    let title = execution_title(&execution);
    Ok(ConsolePage::new(ConsoleSection::Executions, title, body).live(live_source(&execution)))
}

fn agent_table(id: &str, work: &[AgentWork], listed: &[AgentRow]) -> Markup {
    html! {
        @if work.is_empty() { p.empty { "No agent calls yet." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Agents of the execution" {
                table.rows {
                    thead {
                        tr {
                            th scope="col" { "Agent" } th scope="col" { "State" } th.wide scope="col" { "Nodes" } th.number scope="col" { "Tasks" }
                            th.number scope="col" { "Open" } th.number scope="col" { "Failed" } th.number scope="col" { "Time" } th.number scope="col" { "Longest" } th.number scope="col" { "Longest in queue" }
                            th.number scope="col" { "Turns" } th.number scope="col" { "Input tokens" } th.number scope="col" { "Output tokens" } th.number scope="col" { "Price" }
                        }
                    }
                    tbody { @for one in work.iter().take(MAX_ROWS) { (agent_row(id, one, listed)) } }
                }
            }
            @if work.len() > MAX_ROWS { p.notice { (work.len() - MAX_ROWS) " more agents" } }
            @for one in work.iter().take(MAX_ROWS) {
                @if let Some(error) = &one.last_error {
                    div.failure { p { "Last error of " b { (shown_text::line(&one.agent, 60)) } } (fault(error)) }
                }
            }
        }
    }
}

fn agent_row(id: &str, work: &AgentWork, listed: &[AgentRow]) -> Markup {
    let card = listed.iter().find(|card| card.name == work.agent);
    let tokens = |count: u64| if work.used.own.turns > 0 { count.to_string() } else { "–".to_owned() };
    html! {
        tr data-row {
            td {
                @if work.is_workflow { a href=(PageAddress::workflow(&work.agent)) { (shown_text::line(&work.agent, 60)) } }
                @else { a href=(PageAddress::agent(&work.agent)) { (shown_text::line(&work.agent, 60)) } }
                @if let Some(card) = card { " " span.quiet { (shown_text::line(&card.version, 20)) } }
            }
            td { @match (work.is_workflow, card) { (true, _) => "workflow", (false, Some(card)) if card.state != AgentState::Offline => (card.state.as_str()), (false, Some(_)) => b { "offline" }, (false, None) => b { "not online" } } }
            td.wide {
                @for node in work.nodes.iter().take(MAX_NODES) { a.label href=(PageAddress::execution(id).with("node", node)) { (shown_text::line(node, 40)) } " " }
                @if work.nodes.len() > MAX_NODES { span.quiet { "and " (work.nodes.len() - MAX_NODES) " more" } }
            }
            td.number { (work.tasks) } td.number { (work.open) } td.number { (work.failed) }
            td.number { (duration(Some(work.working_ms))) } td.number { (duration(Some(work.longest_ms))) }
            td.number { (duration(Some(work.longest_queued_ms))) }
            td.number { (tokens(work.used.own.turns)) } td.number { (tokens(work.used.own.input_tokens)) } td.number { (tokens(work.used.own.output_tokens)) }
            td.number { @match work.used.own.cost_usd { Some(cost) => { "$" (format!("{cost:.4}")) }, None => "–" } }
        }
    }
}
