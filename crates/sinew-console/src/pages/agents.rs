//! Agents: state, queue, work and errors of each; those that need attention come first.

use axum::response::Response;
use maud::{Markup, html};
use sinew_documents::agent::{AgentRow, AgentState, Percentiles};

use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::drawing_view::{DrawingUse, drawing, large_drawing};
use crate::page_frame::{
    AGENTS_CHANGE, ConsolePage, ConsoleSection, LiveSource, TextFilter, list_filter, live_part,
    page_or_problem, problem_box,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line, duration};

/// Maximum size of the inlined call map.
const MAX_MAP_BYTES: usize = 160 << 10;

pub(crate) async fn show(request: PageRequest) -> Response {
    let page = agents_page(&request).await;
    page_or_problem(&request, page)
}

async fn agents_page(request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let filter: TextFilter = request.query()?;
    let path = filter.on(ApiPath::of(&["agents"]));
    let map_path = ApiPath::of(&["map"]);
    let (rows, map) =
        futures_util::future::join(request.api.get::<Vec<AgentRow>>(&path), request.api.get_text(&map_path))
            .await;
    let rows = rows?;
    let body = html! {
        div.head { h1 { "Agents" } (command_line(&CommandText::new("sinew agent list"))) }
        (list_filter(&filter))
        p.quiet { "Times and errors are those that the running processes report: work and queue time of the latest 512 tasks of each, the slowest process counts. " a href=(PageAddress::of(&["reports", "nodes"])) { "Slow nodes" } " covers the history." }
        (live_part("agents", &agent_table(&rows)))
        section {
            h2 { "Calls between agents" }
            p.quiet { "Solid lines are calls of the latest executions, with their count. Thin dashed lines are declared by a workflow but were not used recently. Dotted lines are calls that no workflow declares, such as calls between agents." }
            (live_part("map", &html! {
                @match map {
                    Ok(svg) if svg.len() <= MAX_MAP_BYTES => (drawing(svg, DrawingUse::Shown)),
                    Ok(_) => (large_drawing(&map_path, rows.len(), DrawingUse::Shown, None)),
                    Err(error) => (problem_box(&error)),
                }
            }))
        }
    };
    Ok(ConsolePage::new(ConsoleSection::Agents, "Agents", body).live(LiveSource::List(AGENTS_CHANGE)))
}

fn agent_table(rows: &[AgentRow]) -> Markup {
    html! {
        @if rows.is_empty() { p.empty { "No agent is online. Start one with " code { "sinew serve agent FILE" } "." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Agents" {
                table.rows {
                    thead {
                        tr {
                            th scope="col" { "Agent" } th scope="col" { "State" } th.number scope="col" { "Replicas" }
                            th.number scope="col" { "Queued" } th.number scope="col" { "Running" }
                            th.number scope="col" { "Work p50 / p95" } th.number scope="col" { "Queue p50 / p95" }
                            th.number scope="col" { "Errors" } th.number scope="col" { "Last seen" }
                            th.wide scope="col" { "Purpose" } th scope="col" { "Version" }
                        }
                    }
                    tbody { @for row in rows { (agent_line(row)) } }
                }
            }
        }
    }
}

fn agent_line(row: &AgentRow) -> Markup {
    let work = row.work.as_ref();
    let number = |number: Option<u64>| html! { @match number { Some(number) => (number), None => "–" } };
    html! {
        tr data-row {
            td { a href=(PageAddress::agent(&row.name)) { (shown_text::line(&row.name, 80)) } }
            td { @if row.state == AgentState::Online { "online" } @else { b { (row.state.as_str()) } } }
            td.number { @match work { Some(work) => { (work.replicas) @if work.draining > 0 { " (" (work.draining) " draining)" } }, None => "–" } }
            td.number { (number(row.queued)) }
            td.number { (number(work.map(|work| work.working))) }
            td.number { (times(work.and_then(|work| work.work_ms))) }
            td.number { (times(work.and_then(|work| work.queue_ms))) }
            td.number { @match work { Some(work) => { (work.errors) " of " (work.tasks) }, None => "–" } }
            td.number { (duration(Some(row.heartbeat_age_ms))) " ago" }
            td.wide { (shown_text::line(&row.description, 200)) }
            td { (shown_text::line(&row.version, 30)) }
        }
    }
}

/// The median and the 95th percentile.
pub(super) fn times(times: Option<Percentiles>) -> Markup {
    html! {
        @match times {
            Some(times) => { (duration(Some(times.p50))) " / " (duration(Some(times.p95))) }
            None => "–",
        }
    }
}
