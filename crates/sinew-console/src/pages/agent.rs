//! An agent: its card, schemas, processes and last errors.

use std::collections::BTreeMap;

use axum::Form;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};
use sinew_documents::agent::{AgentDetails, AgentKind, AgentProcess, AgentState, WorkFigures};
use sinew_documents::execution_list::ExecutionRow;
use sinew_documents::mesh::MeshStatus;
use sinew_documents::words;

use super::agents::times;
use super::node_inspector::is_nothing;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{
    AGENTS_CHANGE, ConsolePage, ConsoleSection, LiveSource, code_link, live_part, may_steer, page_or_problem,
    problem_box, token_field,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::schema_form::{schema_fields, schema_of};
use crate::shown_text::{
    self, action_link, command_line, duration, reported_time_mark, time_mark, value_block,
};

pub(crate) async fn show(Path(name): Path<String>, request: PageRequest) -> Response {
    let page = agent_page(&name, &request).await;
    page_or_problem(&request, page)
}

async fn agent_page(name: &str, request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let path = ApiPath::of(&["agents", name]).with("errors", "true");
    let pulse_path = ApiPath::of(&["pulse"]);
    let processes_path = ApiPath::of(&["agents", name, "processes"]);
    let (both, processes) = futures_util::future::join(
        futures_util::future::try_join(
            request.api.get::<AgentDetails>(&path),
            request.api.get::<MeshStatus>(&pulse_path),
        ),
        request.api.get::<Vec<AgentProcess>>(&processes_path),
    )
    .await;
    let (agent, pulse) = both?;
    let load = pulse.agents.iter().find(|one| one.name == agent.name);
    let whole = path.address();
    let body = html! {
        div.head {
            h1 { (shown_text::line(&agent.name, 80)) }
            (command_line(&CommandText::new("sinew agent describe").word(&agent.name)))
            @if agent.state == AgentState::Offline {
                @if may_steer(request) { (retire_form(request, &agent.name)) }
            } @else {
                div.actions { (action_link(&PageAddress::chat(&agent.name), "Chat", &CommandText::new("sinew chat").word(&agent.name))) }
                @if may_steer(request) && agent.kind == AgentKind::Agent { (intake_form(request, &agent.name, None, agent.state == AgentState::Draining)) }
            }
        }
        @if !agent.description.is_empty() { p { (shown_text::line(&agent.description, 1_000)) } }
        @if agent.kind == AgentKind::Workflow { p { a href=(PageAddress::workflow(&agent.name)) { "Show the workflow of this card" } } }
        (live_part("facts", &html! {
            dl.facts {
                div { dt { "State" } dd { (agent.state.as_str()) } }
                div { dt { "Kind" } dd { (agent.kind.word()) } }
                div { dt { "Version" } dd { (shown_text::line(&agent.version, 30)) } }
                div { dt { "Delivery" } dd { (shown_text::line(&agent.delivery, 30)) } }
                div { dt { "Heartbeat" } dd { (duration(Some(agent.heartbeat_age_ms))) " ago" } }
                @if let Some(load) = load {
                    div { dt { "Queued" } dd { (load.queued) } }
                    div { dt { "Running" } dd { (load.working) } }
                    div { dt { "Redelivered" } dd { (load.redelivered) } }
                }
                @if let Some(work) = &agent.work {
                    div { dt { "Work p50 / p95" } dd { (times(work.work_ms)) } }
                    div { dt { "Queue p50 / p95" } dd { (times(work.queue_ms)) } }
                    div { dt { "Errors" } dd { (work.errors) " of " (work.tasks) } }
                }
            }
        }))
        (live_part("processes", &process_table(request, &agent, &processes)))
        (live_part("errors", &last_errors(request, agent.last_errors.as_deref().unwrap_or_default())))
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
        @if may_steer(request) && agent.state != AgentState::Offline { (try_box(request, &agent)) }
        @for (title, schema) in [("Input schema", schema_of(agent.input_schema.as_ref())), ("Output schema", schema_of(agent.output_schema.as_ref()))] {
            @if !is_nothing(schema) { section { h2 { (title) } (value_block(schema, &whole)) } }
        }
    };
    Ok(ConsolePage::new(ConsoleSection::Agents, agent.name.clone(), body)
        .live(LiveSource::List(AGENTS_CHANGE)))
}

/// Retires an agent that is offline.
pub(crate) async fn retire(Path(name): Path<String>, request: PageRequest) -> Response {
    match request.api.delete::<Value>(&ApiPath::of(&["agents", &name])).await {
        Ok(_) => Redirect::to(&PageAddress::of(&["agents"]).to_string()).into_response(),
        Err(error) => page_or_problem(&request, Err(error)),
    }
}

/// Which processes a form drains, or lets take tasks again.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct IntakeForm {
    #[serde(default)]
    process: String,
}

/// Lets an agent take no new tasks.
pub(crate) async fn drain(
    Path(name): Path<String>,
    request: PageRequest,
    Form(form): Form<IntakeForm>,
) -> Response {
    change_intake(&name, &request, "drain", &form).await
}

/// Lets an agent take tasks again.
pub(crate) async fn undrain(
    Path(name): Path<String>,
    request: PageRequest,
    Form(form): Form<IntakeForm>,
) -> Response {
    change_intake(&name, &request, "undrain", &form).await
}

async fn change_intake(name: &str, request: &PageRequest, verb: &str, form: &IntakeForm) -> Response {
    let process = Some(form.process.as_str()).filter(|process| !process.is_empty());
    let body = json!({ "process": process });
    match request.api.post::<Value>(&ApiPath::of(&["agents", name, verb]), &body).await {
        Ok(_) => Redirect::to(&PageAddress::agent(name).to_string()).into_response(),
        Err(error) => page_or_problem(request, Err(error)),
    }
}

/// The button that drains all processes of an agent, or one, or lets them take tasks again.
fn intake_form(request: &PageRequest, name: &str, process: Option<&str>, is_draining: bool) -> Markup {
    let (verb, title) = if is_draining { ("undrain", "Take tasks again") } else { ("drain", "Drain") };
    let command = CommandText::new(&format!("sinew agent {verb}")).word(name);
    let command = command.flag("--process", process.unwrap_or_default());
    html! {
        form method="post" action=(PageAddress::of(&["agents", name, verb])) {
            (token_field(request))
            @if let Some(process) = process { input type="hidden" name="process" value=(process); }
            button type="submit" data-command=(shown_text::name(&command.to_string())) { (title) }
        }
    }
}

fn retire_form(request: &PageRequest, name: &str) -> Markup {
    let command = CommandText::new("sinew agent retire").word(name);
    html! {
        form.steer method="post" action=(PageAddress::of(&["agents", name, "retire"])) {
            (token_field(request))
            div.actions { button.danger type="submit" data-command=(shown_text::name(&command.to_string())) { "Retire" } }
            (command_line(&command))
        }
    }
}

/// Processes of the agent with the statistics that they report.
fn process_table(
    request: &PageRequest,
    agent: &AgentDetails,
    processes: &Result<Vec<AgentProcess>, ConsoleError>,
) -> Markup {
    let is_drained = may_steer(request) && agent.kind == AgentKind::Agent;
    let figures = |figures: &WorkFigures| {
        html! {
            td.number { (figures.count) } td.number { (figures.errors) } td.number { (format!("{:.1} ms", figures.average_ms)) }
            td { @if figures.last_error.is_empty() { "–" } @else { (code_link(&figures.last_error)) } }
        }
    };
    html! {
        section {
            div.head { h2 #processes { "Processes" } (command_line(&CommandText::new("nats micro stats"))) }
            @match processes {
                Err(error) => (problem_box(error)),
                Ok(all) if all.is_empty() => p.empty { "No process responded to " code { "$SRV.STATS" } "." },
                Ok(all) => div.scroll tabindex="0" role="region" aria-labelledby="processes" {
                    table.rows {
                        thead {
                            tr {
                                th scope="col" { "Process" } th scope="col" { "Version" } th scope="col" { "Started" } th scope="col" { "Work" }
                                th.number scope="col" { "Done" } th.number scope="col" { "Errors" } th.number scope="col" { "Mean time" } th scope="col" { "Last error" }
                                th scope="col" { "Intake" }
                            }
                        }
                        tbody {
                            @for process in all {
                                @for (of, work) in [("calls", Some(&process.calls)), ("tasks", process.tasks.as_ref())] {
                                    @if let Some(work) = work {
                                        tr {
                                            td { code { (shown_text::line(&process.id, 24)) } } td { (shown_text::line(&process.version, 20)) }
                                            td { (reported_time_mark(&process.started, request.now)) } td { (of) } (figures(work))
                                            td {
                                                @if of == "calls" {
                                                    @if process.draining { "draining, " (process.working) " running" } @else { "open" }
                                                    @if is_drained { " " (intake_form(request, &agent.name, Some(&process.id), process.draining)) }
                                                }
                                            }
                                        }
                                    }
                                }
                            }
                        }
                    }
                },
            }
        }
    }
}

/// Failures of the agent.
fn last_errors(request: &PageRequest, rows: &[ExecutionRow]) -> Markup {
    html! {
        section {
            h2 #errors { "Last errors" }
            @if rows.is_empty() { p.empty { "None among the latest failed executions." } } @else {
                div.scroll tabindex="0" role="region" aria-labelledby="errors" {
                    table.rows {
                        thead { tr { th scope="col" { "Execution" } th scope="col" { "Node" } th.wide scope="col" { "Error" } th scope="col" { "Code" } th scope="col" { "Started" } } }
                        tbody {
                            @for row in rows {
                                tr data-row {
                                    td { a.id href=(PageAddress::execution(&row.execution)) { (shown_text::line(words::short_id(&row.execution), 40)) } }
                                    @if let Some(error) = &row.fault {
                                        td { (shown_text::line(error.node.as_deref().unwrap_or("–"), 50)) }
                                        td.wide { (shown_text::line(&error.message, 300)) }
                                        td { (code_link(&error.code)) }
                                    } @else { td { "–" } td.wide { "–" } td { "–" } }
                                    td { (time_mark(row.started, request.now)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A form generated from the input schema. The call is a chat message, and the page of the chat
/// shows its result.
fn try_box(request: &PageRequest, agent: &AgentDetails) -> Markup {
    html! {
        section {
            h2 { "Try it" }
            form.steer method="post" action=(PageAddress::chat(&agent.name)) {
                (token_field(request))
                (schema_fields(schema_of(agent.input_schema.as_ref()), &BTreeMap::new()))
                div.actions { button.primary type="submit" data-command=(shown_text::name(&CommandText::new("sinew agent call").word(&agent.name).with("-i '{…}'").to_string())) { "Call" } }
                (command_line(&CommandText::new("sinew agent call").word(&agent.name).with("-i '{…}'")))
            }
        }
    }
}
