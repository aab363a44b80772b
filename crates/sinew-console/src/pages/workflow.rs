//! A workflow: its drawing, its plan, its versions and its last executions.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use sinew_inspection::words;

use super::execution_rows::{RowChoice, execution_table};
use super::source::plan;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::documents::{ExecutionListDocument, VersionDocument, WorkflowDocument};
use crate::page_frame::{ConsolePage, ConsoleSection, drawing, may_steer, page_or_problem, problem_box};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line, time_mark};

/// Executions that are shown.
const LAST_ROWS: &str = "5";
/// Versions that are listed.
const MAX_VERSIONS: usize = 50;

/// Version that the address asks for.
#[derive(Clone, Debug, Default, Deserialize)]
struct VersionChoice {
    version: Option<String>,
}

pub(crate) async fn show(Path(name): Path<String>, request: PageRequest) -> Response {
    let page = workflow_page(&name, &request).await;
    page_or_problem(&request, page)
}

async fn workflow_page(name: &str, request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let VersionChoice { version } = request.query()?;
    let path = ApiPath::of(&["workflows", name]).with_some("version", version.as_deref());
    let versions_path = ApiPath::of(&["workflows", name, "versions"]);
    let drawing_path = ApiPath::of(&["workflows", name, "drawing"]).with_some("version", version.as_deref());
    let last_path = ApiPath::of(&["executions"]).with("workflow", name).with("limit", LAST_ROWS);
    let (workflow, versions, picture, last) = futures_util::future::join4(
        request.api.get::<WorkflowDocument>(&path),
        request.api.get::<Vec<VersionDocument>>(&versions_path),
        request.api.get_text(&drawing_path),
        request.api.get::<ExecutionListDocument>(&last_path),
    )
    .await;
    let (workflow, versions, last) = (workflow?, versions?, last?);
    let body = html! {
        div.head {
            h1 { (shown_text::line(&workflow.name, 80)) }
            (command_line(&CommandText::new("sinew workflow describe").word(&workflow.name)))
            @if may_steer(request) {
                div.actions { a.button.primary data-action href=(PageAddress::of(&["workflows", name, "start"]).with_some("version", version.as_deref())) { "Start…" } a.button href=(PageAddress::of(&["workflows", name, "remove"])) { "Remove…" } }
            }
        }
        @if !workflow.description.is_empty() { p { (shown_text::line(&workflow.description, 600)) } }
        @match picture {
            Ok(svg) => (drawing(svg)),
            Err(error) => (problem_box(&error)),
        }
        section {
            h2 { "Last executions" }
            @if last.executions.is_empty() { p.empty { "It has not been started yet." } }
            @else { (execution_table(&last.executions, request.now, RowChoice::None)) }
        }
        (partners(&workflow))
        (version_table(request, name, &workflow.digest, &versions))
        (plan(&workflow, &path.address()))
    };
    Ok(ConsolePage::new(ConsoleSection::Workflows, workflow.name.clone(), body))
}

fn partners(workflow: &WorkflowDocument) -> Markup {
    html! {
        @if !workflow.agents.is_empty() || !workflow.workflows.is_empty() {
            p {
                "Asks "
                @for agent in &workflow.agents { a.label href=(PageAddress::agent(agent)) { (shown_text::line(agent, 60)) } " " }
                @for called in &workflow.workflows { a.label href=(PageAddress::workflow(called)) { "workflow " (shown_text::line(called, 60)) } " " }
            }
        }
    }
}

fn version_table(request: &PageRequest, name: &str, shown: &str, versions: &[VersionDocument]) -> Markup {
    html! {
        section {
            h2 { "Versions" }
            div.scroll tabindex="0" role="region" aria-label="Versions" {
                table.rows {
                    thead { tr { th scope="col" { "Version" } th scope="col" { "Deployed" } th.wide scope="col" { "By" } } }
                    tbody {
                        @for version in versions.iter().take(MAX_VERSIONS) {
                            tr data-row aria-current=[(version.version == shown).then_some("true")] {
                                td { a href=(PageAddress::workflow(name).with("version", &version.version)) { code { (shown_text::line(words::short(&version.version), 20)) } } }
                                td { (time_mark(&version.deployed, request.now)) }
                                td.wide { (shown_text::line(&version.by, 80)) }
                            }
                        }
                    }
                }
            }
            @if versions.len() > MAX_VERSIONS { p.notice { (versions.len() - MAX_VERSIONS) " older" } }
        }
    }
}
