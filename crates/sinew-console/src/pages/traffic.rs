//! Messages of the mesh as they come, and how much lies in its streams and queues.

use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::mesh_documents::PulseDocument;
use crate::page_frame::{ConsolePage, ConsoleSection, LiveSource, live_part, page_or_problem};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line, size};

/// Filter of the address.
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
    let pulse: PulseDocument = request.api.get(&ApiPath::of(&["pulse"])).await?;
    let stream = ApiPath::of(&["traffic"])
        .with_some("workflow", choice.workflow.as_deref())
        .with_some("type", choice.kind.as_deref());
    let body = html! {
        div.head { h1 { "Traffic" } (command_line(&CommandText::new("sinew top"))) (command_line(&CommandText::new(&format!("nats sub '{}.>'", shown_text::line(&pulse.namespace, 40))))) }
        form.filter method="get" {
            label { span { "Workflow" } input type="text" name="workflow" value=[choice.workflow.as_deref()] data-filter autocomplete="off"; }
            label { span { "Type" } input type="text" name="type" value=[choice.kind.as_deref()] autocomplete="off"; }
            button type="submit" { "Filter" }
            button #pause type="button" hidden { "Pause" }
            span #rate.quiet role="status" {}
        }
        section {
            h2 #messages { "Events of executions" }
            noscript { p.notice { "Events come in with JavaScript; the page of an execution lists its own without." } }
            div.scroll.tail tabindex="0" role="region" aria-labelledby="messages" {
                table.rows {
                    thead { tr { th scope="col" { "At" } th scope="col" { "Workflow" } th scope="col" { "Execution" } th scope="col" { "Type" } th.number scope="col" { "Bytes" } th.wide scope="col" { "Body" } } }
                    tbody #traffic data-stream=(stream.address()) data-execution=(PageAddress::of(&["executions"])) {}
                }
            }
        }
        (live_part("queues", &queues(&pulse)))
    };
    Ok(ConsolePage::new(ConsoleSection::Traffic, "Traffic", body).live(LiveSource::Poll))
}

fn queues(pulse: &PulseDocument) -> Markup {
    html! {
        div.columns {
            section {
                h2 { "Streams" }
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
            section {
                h2 { "Queues of agents" }
                @if pulse.agents.is_empty() { p.empty { "No agent is online or has a queue." } } @else {
                    div.scroll tabindex="0" role="region" aria-label="Queues of agents" {
                        table.rows {
                            thead { tr { th.wide scope="col" { "Agent" } th.number scope="col" { "Queued" } th.number scope="col" { "At work" } th.number scope="col" { "Redelivered" } } }
                            tbody {
                                @for agent in &pulse.agents {
                                    tr {
                                        td.wide { a href=(PageAddress::agent(&agent.name)) { (shown_text::line(&agent.name, 80)) } @if !agent.online { " " span.quiet { "offline" } } }
                                        td.number { (agent.queued) } td.number { (agent.working) } td.number { (agent.redelivered) }
                                    }
                                }
                            }
                        }
                    }
                }
                @if pulse.quarantined > 0 { p { (pulse.quarantined) " messages were set aside: " code { "sinew quarantine list" } " tells why." } }
            }
        }
    }
}
