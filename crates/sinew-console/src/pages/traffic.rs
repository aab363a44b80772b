//! Live messages of the mesh, and the contents of its streams and queues.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use sinew_documents::figures::TrafficReport;
use sinew_documents::mesh::{AgentStatus, MeshStatus, QuarantinePage};
use sinew_documents::words;

use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{
    AGENTS_CHANGE, ConsolePage, ConsoleSection, LiveSource, live_part, page_or_problem, problem_box,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line, duration, size, time_mark};

/// Maximum listed groups.
const MAX_GROUPS: usize = 60;

/// The filter in the address.
#[derive(Clone, Debug, Default, Deserialize)]
struct TrafficChoice {
    workflow: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
}

pub(crate) async fn show(request: PageRequest) -> Response {
    let page = traffic_page(&request).await;
    page_or_problem(&request, page)
}

async fn traffic_page(request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let choice: TrafficChoice = request.query()?;
    let (pulse_path, figures_path) = (ApiPath::of(&["pulse"]), ApiPath::of(&["traffic", "figures"]));
    let quarantine_path = ApiPath::of(&["quarantine"]);
    let (pulse, report, quarantine) = futures_util::future::join3(
        request.api.get::<MeshStatus>(&pulse_path),
        request.api.get::<TrafficReport>(&figures_path),
        request.api.get::<QuarantinePage>(&quarantine_path),
    )
    .await;
    let pulse = pulse?;
    let stream = ApiPath::of(&["traffic"])
        .with_some("workflow", choice.workflow.as_deref())
        .with_some("type", choice.kind.as_deref());
    let body = html! {
        div.head { h1 { "Traffic" } (command_line(&CommandText::new("sinew top"))) (command_line(&CommandText::new(&format!("nats sub '{}.>'", shown_text::line(&pulse.namespace, 40))))) }
        p { a href=(PageAddress::of(&["reports", "nodes"])) { "Slow nodes" } " · " a href=(PageAddress::of(&["reports", "cost"])) { "Cost of models" } " · " a href=(PageAddress::of(&["audit"])) { "Audit" } }
        form.filter method="get" {
            label { span { "Workflow" } input type="text" name="workflow" value=[choice.workflow.as_deref()] data-filter autocomplete="off"; }
            label { span { "Type" } input type="text" name="type" value=[choice.kind.as_deref()] autocomplete="off"; }
            button type="submit" { "Filter" }
            button #pause type="button" hidden { "Pause" }
            span #rate.quiet role="status" {}
        }
        section {
            h2 #messages { "Execution events" }
            noscript { p.notice { "Live events require JavaScript. Without it, see the events of each execution." } }
            div.scroll.tail tabindex="0" role="region" aria-labelledby="messages" {
                table.rows {
                    thead { tr { th scope="col" { "Time" } th scope="col" { "Workflow" } th scope="col" { "Execution" } th scope="col" { "Type" } th.number scope="col" { "Bytes" } th.wide scope="col" { "Body" } } }
                    tbody #traffic data-stream=(stream.address()) data-execution=(PageAddress::of(&["executions"])) {}
                }
            }
            p.empty #no-traffic hidden { "No events received since the page was opened. Running executions publish events." }
        }
        (live_part("figures", &figures(&report)))
        (live_part("queues", &queues(&pulse)))
        (live_part("dead-letters", &dead_letters(request, &quarantine, pulse.quarantined)))
    };
    Ok(ConsolePage::new(ConsoleSection::Traffic, "Traffic", body).live(LiveSource::List(AGENTS_CHANGE)))
}

/// A number of bytes without its fraction; 0 for negative numbers and NaN.
fn whole(bytes: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to what fits")]
    let whole = bytes.clamp(0.0, 1e18) as u64;
    whole
}

/// Message rates by group of subjects, and durations of nodes.
fn figures(report: &Result<TrafficReport, ConsoleError>) -> Markup {
    let report = match report {
        Ok(report) => report,
        Err(error) => return problem_box(error),
    };
    html! {
        div.columns {
            section {
                h2 #rates { "Messages per second" }
                p.quiet { "Over the last " (format!("{:.0}", report.seconds.max(1.0))) " s, collected only while this page is open." }
                @if report.rates.is_empty() { p.empty { "No data yet." } } @else {
                    div.scroll tabindex="0" role="region" aria-labelledby="rates" {
                        table.rows {
                            thead { tr { th.wide scope="col" { "Subject group" } th.number scope="col" { "Messages/s" } th.number scope="col" { "Bytes/s" } } }
                            tbody {
                                @for rate in report.rates.iter().take(MAX_GROUPS) {
                                    tr { td.wide { (shown_text::line(&rate.group, 80)) } td.number { (format!("{:.1}", rate.messages)) } td.number { (size(whole(rate.bytes))) } }
                                }
                            }
                        }
                    }
                }
            }
            section {
                h2 #latencies { "Node duration" }
                @if report.latencies.is_empty() { p.empty { "No nodes have ended since data collection started." } } @else {
                    div.scroll tabindex="0" role="region" aria-labelledby="latencies" {
                        table.rows {
                            thead { tr { th.wide scope="col" { "Agent" } th.number scope="col" { "Nodes" } th.number scope="col" { "p50" } th.number scope="col" { "p95" } th.number scope="col" { "p99" } } }
                            tbody {
                                @for one in report.latencies.iter().take(MAX_GROUPS) {
                                    tr {
                                        td.wide { (shown_text::line(&one.group, 80)) } td.number { (one.count) }
                                        @for ms in [one.p50_ms, one.p95_ms, one.p99_ms] { td.number { (duration(Some(ms))) } }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn queues(pulse: &MeshStatus) -> Markup {
    let (busy, idle): (Vec<&AgentStatus>, Vec<&AgentStatus>) =
        pulse.agents.iter().partition(|agent| agent.queued > 0 || agent.working > 0 || agent.redelivered > 0);
    html! {
        div.columns {
            section {
                h2 { "Streams" }
                (stream_table(pulse))
            }
            section {
                h2 { "Agent queues" }
                @if pulse.agents.is_empty() { p.empty { "No agents are online or have a queue." } }
                @if !busy.is_empty() { (queue_table("Non-empty queues", &busy)) }
                @if !idle.is_empty() {
                    details { summary { (words::count(idle.len(), "agent")) " with an empty queue" } (queue_table("Empty queues", &idle)) }
                }
            }
        }
    }
}

/// Streams of the mesh with their message counts and sizes.
pub(super) fn stream_table(pulse: &MeshStatus) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Streams" {
            table.rows {
                thead { tr { th.wide scope="col" { "Stream" } th.number scope="col" { "Messages" } th.number scope="col" { "Size" } } }
                tbody {
                    @for stream in &pulse.streams {
                        tr { td.wide { (shown_text::line(&stream.name, 80)) } td.number { (stream.messages) } td.number { (size(stream.bytes)) } }
                    }
                }
            }
        }
    }
}

fn queue_table(label: &str, agents: &[&AgentStatus]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) {
            table.rows {
                thead { tr { th.wide scope="col" { "Agent" } th.number scope="col" { "Queued" } th.number scope="col" { "Running" } th.number scope="col" { "Redelivered" } } }
                tbody {
                    @for agent in agents {
                        tr {
                            td.wide { a href=(PageAddress::agent(&agent.name)) { (shown_text::line(&agent.name, 80)) } @if !agent.online { " " span.quiet { "offline" } } }
                            td.number { (agent.queued) } td.number { (agent.working) } td.number { (agent.redelivered) }
                        }
                    }
                }
            }
        }
    }
}

/// Quarantined messages, newest first. A gateway has no permission to replay them, so each row
/// shows the commands.
fn dead_letters(
    request: &PageRequest,
    quarantine: &Result<QuarantinePage, ConsoleError>,
    count: u64,
) -> Markup {
    html! {
        section {
            div.head { h2 #dead-letters { "Quarantined messages" } (command_line(&CommandText::new("sinew mesh quarantine list"))) }
            @match quarantine {
                Err(error) => (problem_box(error)),
                Ok(found) if found.messages.is_empty() => p.empty { "No quarantined messages." },
                Ok(found) => {
                    div.scroll tabindex="0" role="region" aria-labelledby="dead-letters" {
                        table.rows {
                            thead { tr { th scope="col" { "Message" } th scope="col" { "Quarantined" } th.wide scope="col" { "Reason" } th.wide scope="col" { "Subject" } th scope="col" { "Show and replay" } } }
                            tbody {
                                @for one in found.messages.iter().rev() {
                                    tr data-row {
                                        td { code { (shown_text::line(&one.message, 60)) } }
                                        td { (time_mark(one.set_aside, request.now)) }
                                        td.wide { (shown_text::line(&one.reason, 300)) }
                                        td.wide { (shown_text::line(&one.subject, 200)) }
                                        td {
                                            (command_line(&CommandText::new("sinew mesh quarantine show").word(&one.message)))
                                            (command_line(&CommandText::new("sinew mesh quarantine replay").word(&one.message).with("--dry-run")))
                                        }
                                    }
                                }
                            }
                        }
                    }
                    @if count > found.messages.len() as u64 { p.notice { "Newest " (found.messages.len()) " of " (count) "." } }
                }
            }
        }
    }
}
