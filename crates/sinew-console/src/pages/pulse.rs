//! Pulse: an overview of the mesh. Each number links to its list.

use axum::response::Response;
use maud::{Markup, html};
use sinew_documents::approval::OpenApproval;
use sinew_documents::execution_list::ExecutionPage;
use sinew_documents::execution_status::ExecutionStatus;
use sinew_documents::figures::MeshActivity;
use sinew_documents::mesh::{AgentStatus, MeshStatus};
use sinew_documents::words;
use sinew_documents::words::status_word;

use super::activity::{activity_part, errors_part};
use super::execution_rows::{RowChoice, all_columns, execution_table};
use super::traffic::stream_table;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{
    ConsolePage, ConsoleSection, EXECUTIONS_CHANGE, LiveSource, live_part, page_or_problem,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line, duration};

/// Maximum shown failed executions, newest first.
const FAILED_ROWS: &str = "10";
/// Maximum shown waiting executions, longest wait first.
const MAX_WAITING: usize = 10;

pub(crate) async fn show(request: PageRequest) -> Response {
    let page = pulse_page(&request).await;
    page_or_problem(&request, page)
}

async fn pulse_page(request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let pulse_path = ApiPath::of(&["pulse"]);
    let approvals_path = ApiPath::of(&["approvals"]);
    let failed_path = ApiPath::of(&["executions"]).with("status", "failed").with("limit", FAILED_ROWS);
    let activity_path = ApiPath::of(&["pulse", "activity"]);
    let (pulse, approvals, failed, activity) = futures_util::future::try_join4(
        request.api.get::<MeshStatus>(&pulse_path),
        request.api.get::<Vec<OpenApproval>>(&approvals_path),
        request.api.get::<ExecutionPage>(&failed_path),
        request.api.get::<MeshActivity>(&activity_path),
    )
    .await?;
    let body = html! {
        div.head {
            h1 { "Pulse " span.quiet { (shown_text::line(&pulse.namespace, 60)) } }
            (command_line(&CommandText::new("sinew top")))
        }
        (live_part("figures", &figures(&pulse, approvals.len())))
        (live_part("activity", &activity_part(&activity)))
        (live_part("errors", &errors_part(&activity.errors)))
        (live_part("waiting", &waiting(&pulse)))
        (live_part("failed", &html! {
            section {
                h2 { "Recent failures" }
                @if failed.executions.is_empty() { p.empty { "No failed executions." } }
                @else { (execution_table(&failed.executions, request.now, RowChoice::None, &all_columns)) }
            }
        }))
        (live_part("fleet", &fleet(&pulse)))
    };
    Ok(ConsolePage::new(ConsoleSection::Pulse, "Pulse", body).live(LiveSource::List(EXECUTIONS_CHANGE)))
}

fn figures(pulse: &MeshStatus, approvals: usize) -> Markup {
    let online = pulse.agents.iter().filter(|agent| agent.online).count();
    let offline = pulse.agents.len() - online;
    let sum = |of: fn(&AgentStatus) -> u64| pulse.agents.iter().map(of).sum::<u64>();
    let with_status = |status: &str| PageAddress::of(&["executions"]).with("status", status);
    let unserved = pulse.shards.saturating_sub(pulse.owned);
    html! {
        ul.figures {
            @for word in [ExecutionStatus::Running, ExecutionStatus::Waiting, ExecutionStatus::Paused].map(status_word) {
                (figure(&with_status(word), pulse.executions.get(word).copied().unwrap_or(0) as u64, word, false))
            }
            (figure(&PageAddress::of(&["approvals"]), approvals as u64, "approvals", false))
            (figure(&PageAddress::of(&["agents"]), online as u64, "agents online", false))
            (figure(&PageAddress::of(&["agents"]), offline as u64, "agents offline", offline > 0))
            (figure(&PageAddress::of(&["agents"]), sum(|agent| agent.queued), "tasks queued", false))
            (figure(&PageAddress::of(&["agents"]), sum(|agent| agent.working as u64), "tasks running", false))
            (figure(&PageAddress::of(&["traffic"]).part("dead-letters"), pulse.quarantined, "quarantined", pulse.quarantined > 0))
            @if pulse.refused_cards > 0 { (figure(&PageAddress::of(&["agents"]), pulse.refused_cards as u64, "cards rejected", true)) }
            @if unserved > 0 { (figure(&PageAddress::of(&[]).part("executors"), u64::from(unserved), "shards without executor", true)) }
        }
    }
}

fn figure(address: &PageAddress, number: u64, word: &str, is_bad: bool) -> Markup {
    html! {
        li.bad[is_bad] {
            a href=(address) { b { (number) } span { (word) } @if is_bad { span.icon aria-hidden="true" { "!" } } }
        }
    }
}

fn waiting(pulse: &MeshStatus) -> Markup {
    html! {
        section {
            h2 { "Longest waits" }
            @if pulse.waiting.is_empty() { p.empty { "No open executions are waiting." } } @else {
                div.scroll tabindex="0" role="region" aria-label="Longest waits" {
                    table.rows {
                        thead { tr { th scope="col" { "Execution" } th scope="col" { "Workflow" } th.number scope="col" { "Age" } th.wide scope="col" { "Waiting for" } } }
                        tbody {
                            @for one in pulse.waiting.iter().take(MAX_WAITING) {
                                tr data-row {
                                    td { a.id href=(PageAddress::execution(&one.execution)) { (shown_text::line(words::short_id(&one.execution), 40)) } }
                                    td { (shown_text::line(&one.workflow, 60)) }
                                    td.number { (duration(Some(one.age_ms))) }
                                    td.wide { (shown_text::line(&one.waiting, 240)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn fleet(pulse: &MeshStatus) -> Markup {
    html! {
        div.columns {
            section {
                h2 #executors { "Executors " span.quiet { (pulse.owned) " of " (words::count(pulse.shards as usize, "shard")) " served" } }
                @if pulse.executors.iter().all(|one| one.silent_ms.is_some()) { p.empty { "No executor is running. Start one with " code { "sinew serve executor" } "." } }
                @if !pulse.executors.is_empty() {
                    div.scroll tabindex="0" role="region" aria-label="Executors" {
                        table.rows {
                            thead { tr { th scope="col" { "Executor" } th scope="col" { "Version" } th.wide scope="col" { "Process" } th.number scope="col" { "Shards" } } }
                            tbody {
                                @for one in &pulse.executors {
                                    tr { td { code { (shown_text::line(words::short(&one.id), 20)) } } td { (shown_text::line(&one.version, 20)) } td.wide { (shown_text::line(&one.place, 80)) @if one.silent_ms.is_some() { " (no heartbeat for " (duration(one.silent_ms)) ")" } } td.number { (one.shards) } }
                                }
                            }
                        }
                    }
                }
            }
            section {
                h2 { "Streams" }
                (stream_table(pulse))
            }
        }
    }
}
