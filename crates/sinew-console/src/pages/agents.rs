//! Online agents, offline agents that were not retired, and workflows, which are also agents.

use axum::response::Response;
use maud::{Markup, html};
use sinew_documents::agent::{AgentRow, AgentState};
use sinew_documents::figures::{GroupLatency, TrafficReport};

use super::sparkline::sparkline;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::drawing_view::{DrawingUse, drawing, large_drawing};
use crate::page_frame::{
    AGENTS_CHANGE, ConsolePage, ConsoleSection, LiveSource, TextFilter, live_part, page_or_problem,
    problem_box, text_filter,
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
    let TextFilter { text } = request.query()?;
    let path = ApiPath::of(&["agents"]).with_some("text", text.as_deref());
    let map_path = ApiPath::of(&["map"]);
    let figures_path = ApiPath::of(&["traffic", "figures"]);
    let (rows, map, figures) = futures_util::future::join3(
        request.api.get::<Vec<AgentRow>>(&path),
        request.api.get_text(&map_path),
        request.api.get::<TrafficReport>(&figures_path),
    )
    .await;
    let mut rows = rows?;
    // Agents that need attention come first.
    rows.sort_by_key(|row| match row.state {
        AgentState::Offline => 0,
        AgentState::Late => 1,
        AgentState::Online => 2,
    });
    // Without its figures the list is still useful.
    let latencies = figures.map(|report| report.latencies).unwrap_or_default();
    let body = html! {
        div.head { h1 { "Agents" } (command_line(&CommandText::new("sinew agent list"))) }
        (text_filter(text.as_deref()))
        p.quiet { "p95 covers nodes that ended in the last ten minutes. It is collected only while this page or Traffic is open." }
        (live_part("agents", &agent_table(&rows, &latencies)))
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

fn agent_table(rows: &[AgentRow], latencies: &[GroupLatency]) -> Markup {
    let latency_of = |name: &str| latencies.iter().find(|one| one.group == name);
    html! {
        @if rows.is_empty() { p.empty { "No agent is online. Start one with " code { "sinew serve agent FILE" } "." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Agents" {
                table.rows {
                    thead { tr { th scope="col" { "Agent" } th scope="col" { "State" } th scope="col" { "Kind" } th.wide scope="col" { "Purpose" } th scope="col" { "Skills" } th scope="col" { "Version" } th.number scope="col" { "p95" } th.number scope="col" { "Queued" } th.number scope="col" { "Heartbeat" } } }
                    tbody {
                        @for row in rows {
                            tr data-row {
                                td { a href=(PageAddress::agent(&row.name)) { (shown_text::line(&row.name, 80)) } }
                                td { @if row.state == AgentState::Online { "online" } @else { b { (row.state.as_str()) } } }
                                td { (row.kind.word()) }
                                td.wide { (shown_text::line(&row.description, 200)) }
                                td { (shown_text::line(&row.skills.join(", "), 80)) }
                                td { (shown_text::line(&row.version, 30)) }
                                td.number {
                                    @match latency_of(&row.name) {
                                        Some(latency) => {
                                            @let p95 = duration(Some(latency.p95_ms));
                                            (p95) " " (sparkline(&latency.p95_by_span_ms, &format!("p95 of {} nodes: {p95}", latency.count)))
                                        }
                                        None => "–",
                                    }
                                }
                                td.number { @match row.queued { Some(queued) => (queued), None => "–" } }
                                td.number { (duration(Some(row.heartbeat_age_ms))) " ago" }
                            }
                        }
                    }
                }
            }
        }
    }
}
