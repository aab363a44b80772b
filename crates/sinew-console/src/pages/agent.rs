//! An agent: its card, its schemas and its work.

use std::collections::BTreeMap;

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};

use super::node_inspector::is_nothing;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::documents::AgentDocument;
use crate::mesh_documents::PulseDocument;
use crate::page_frame::{
    ConsolePage, ConsoleSection, LiveSource, live_part, may_steer, page_or_problem, token_field,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::schema_form::schema_fields;
use crate::shown_text::{self, command_line, duration, value_block};

pub(crate) async fn show(Path(name): Path<String>, request: PageRequest) -> Response {
    let page = agent_page(&name, &request).await;
    page_or_problem(&request, page)
}

async fn agent_page(name: &str, request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let path = ApiPath::of(&["agents", name]);
    let pulse_path = ApiPath::of(&["pulse"]);
    let (agent, pulse) = futures_util::future::try_join(
        request.api.get::<AgentDocument>(&path),
        request.api.get::<PulseDocument>(&pulse_path),
    )
    .await?;
    let load = pulse.agents.iter().find(|one| one.name == agent.name);
    let whole = path.address();
    let body = html! {
        div.head {
            h1 { (shown_text::line(&agent.name, 80)) }
            (command_line(&CommandText::new("sinew agent describe").word(&agent.name)))
            div.actions { a.button data-action href=(PageAddress::chat(&agent.name)) { "Chat" } }
        }
        @if !agent.description.is_empty() { p { (shown_text::line(&agent.description, 1_000)) } }
        @if agent.kind == "workflow" { p { a href=(PageAddress::workflow(&agent.name)) { "The workflow behind this card" } } }
        (live_part("facts", &html! {
            dl.facts {
                div { dt { "Kind" } dd { (shown_text::line(&agent.kind, 30)) } }
                div { dt { "Version" } dd { (shown_text::line(&agent.version, 30)) } }
                @if let Some(delivery) = &agent.delivery { div { dt { "Delivery" } dd { (shown_text::line(delivery, 30)) } } }
                div { dt { "Heartbeat" } dd { (duration(agent.heartbeat_age_ms)) " ago" } }
                @if let Some(load) = load {
                    div { dt { "Queued" } dd { (load.queued) } }
                    div { dt { "At work" } dd { (load.working) } }
                    div { dt { "Redelivered" } dd { (load.redelivered) } }
                }
            }
        }))
        section {
            h2 { "Skills" }
            div.scroll tabindex="0" role="region" aria-label="Skills" {
                table.rows {
                    thead { tr { th scope="col" { "Skill" } th.wide scope="col" { "Purpose" } th scope="col" { "Tags" } } }
                    tbody {
                        @for skill in &agent.skills {
                            tr {
                                td { (shown_text::line(&skill.name, 80)) }
                                td.wide { (shown_text::line(&skill.description, 400)) }
                                td { @for tag in &skill.tags { span.label { (shown_text::line(tag, 40)) } " " } }
                            }
                        }
                    }
                }
            }
        }
        @if may_steer(request) { (try_box(request, &agent)) }
        @for (title, schema) in [("Input schema", &agent.input_schema), ("Output schema", &agent.output_schema)] {
            @if !is_nothing(schema) { section { h2 { (title) } (value_block(schema, &whole)) } }
        }
    };
    Ok(ConsolePage::new(ConsoleSection::Agents, agent.name.clone(), body).live(LiveSource::Poll))
}

/// A form from the schema of the input. The call is a message of a chat, on whose page its result comes in.
fn try_box(request: &PageRequest, agent: &AgentDocument) -> Markup {
    html! {
        section {
            h2 { "Try it" }
            form.steer method="post" action=(PageAddress::chat(&agent.name)) {
                (token_field(request))
                (schema_fields(&agent.input_schema, &BTreeMap::new()))
                div.actions { button.primary type="submit" { "Call" } }
                (command_line(&CommandText::new("sinew agent call").word(&agent.name).with("-i '{…}'")))
            }
        }
    }
}
