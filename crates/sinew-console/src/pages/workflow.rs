//! A workflow: drawing, plan, versions and latest executions.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use sinew_documents::execution_list::ExecutionPage;
use sinew_documents::figures::{VersionOutcomes, WorkflowOutcomes};
use sinew_documents::words;
use sinew_documents::workflow::{VersionRow, WorkflowDescription};

use super::execution::MAX_DRAWN_NODES;
use super::execution_rows::{RowChoice, all_columns, execution_table};
use super::opened_nodes::OpenedNodes;
use super::source::{LISTED_NODES, plan};
use super::workflow_control::{pause_part, rollback_part};
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::drawing_view::{DrawingUse, drawing, large_drawing};
use crate::page_frame::{ConsolePage, ConsoleSection, may_steer, page_or_problem, problem_box};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, action_link, command_line, time_mark};
use crate::text_diff::text_diff;

/// Maximum shown warnings.
const MAX_WARNINGS: usize = 20;

/// Maximum shown executions.
const LAST_ROWS: &str = "5";
/// Maximum listed versions.
const MAX_VERSIONS: usize = 50;

/// The version and the expanded nodes in the address.
#[derive(Clone, Debug, Default, Deserialize)]
struct VersionChoice {
    version: Option<String>,
    open: Option<String>,
    /// Version to compare with.
    with: Option<String>,
}

pub(crate) async fn show(Path(name): Path<String>, request: PageRequest) -> Response {
    let page = workflow_page(&name, &request).await;
    page_or_problem(&request, page)
}

async fn workflow_page(name: &str, request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let VersionChoice { version, open, with } = request.query()?;
    let path = ApiPath::of(&["workflows", name]).with_some("version", version.as_deref());
    let described_path = path.clone().with("nodes", LISTED_NODES);
    let versions_path = ApiPath::of(&["workflows", name, "versions"]);
    let drawing_path = ApiPath::of(&["workflows", name, "drawing"])
        .with_some("version", version.as_deref())
        .with_some("open", open.as_deref());
    let last_path = ApiPath::of(&["executions"]).with("workflow", name).with("limit", LAST_ROWS);
    let outcomes_path = ApiPath::of(&["workflows", name, "outcomes"]);
    let (workflow, versions, last, outcomes) = futures_util::future::join4(
        request.api.get::<WorkflowDescription>(&described_path),
        request.api.get::<Vec<VersionRow>>(&versions_path),
        request.api.get::<ExecutionPage>(&last_path),
        request.api.get::<WorkflowOutcomes>(&outcomes_path),
    )
    .await;
    let (workflow, versions, last, outcomes) = (workflow?, versions?, last?, outcomes?);
    let source = super::source::source_part(request, name, version.as_deref()).await;
    let changes = match with.as_deref().filter(|with| !with.is_empty()) {
        Some(with) => Some(version_changes(request, name, with, &path).await),
        None => None,
    };
    let is_large = workflow.all_nodes() > MAX_DRAWN_NODES;
    let picture = if is_large { Ok(String::new()) } else { request.api.get_text(&drawing_path).await };
    let body = html! {
        div.head {
            h1 { (shown_text::line(&workflow.name, 80)) }
            (command_line(&CommandText::new("sinew workflow describe").word(&workflow.name)))
            @if may_steer(request) {
                div.actions {
                    (action_link(&PageAddress::of(&["workflows", name, "start"]).with_some("version", version.as_deref()), "Start…", &CommandText::new("sinew run --mesh").word(name)))
                    (action_link(&PageAddress::of(&["desk"]).with("workflow", name).with_some("version", version.as_deref()), "Edit…", &CommandText::new("sinew workflow deploy FILE")))
                    (action_link(&PageAddress::of(&["workflows", name, "remove"]), "Remove…", &CommandText::new("sinew workflow delete").word(name)))
                }
            }
        }
        (pause_part(request, &workflow))
        @if !workflow.description.is_empty() { p { (shown_text::line(&workflow.description, 600)) } }
        @for warning in workflow.warnings.iter().take(MAX_WARNINGS) { p.notice { (shown_text::line(warning, 200)) } }
        (partners(&workflow))
        @if is_large { (large_drawing(&drawing_path, workflow.all_nodes(), DrawingUse::Shown, None)) } @else {
            @match picture {
                Ok(svg) => (drawing(svg, DrawingUse::Shown)),
                Err(error) => (problem_box(&error)),
            }
        }
        (open_links(&workflow, version.as_deref(), open.as_deref()))
        section {
            h2 { "Latest executions" }
            @if last.executions.is_empty() { p.empty { "No executions yet." } }
            @else { (execution_table(&last.executions, request.now, RowChoice::None, &all_columns)) }
        }
        (version_table(request, &workflow, &versions, &outcomes))
        @if let Some(changes) = changes { (changes) }
        (source)
        (plan(&workflow, &path.address()))
    };
    Ok(ConsolePage::new(ConsoleSection::Workflows, workflow.name.clone(), body))
}

/// Changes from another version to the shown one: nodes, schemas, limits.
async fn version_changes(request: &PageRequest, name: &str, with: &str, shown: &ApiPath) -> Markup {
    let other = ApiPath::of(&["workflows", name]).with("version", with);
    let both = futures_util::future::try_join(
        request.api.get::<serde_json::Value>(&other),
        request.api.get::<serde_json::Value>(shown),
    );
    let text = |document: &serde_json::Value| serde_json::to_string_pretty(document).unwrap_or_default();
    html! {
        section {
            h2 { "Changes since " code { (shown_text::line(words::short(with), 20)) } }
            (command_line(&CommandText::new("sinew workflow diff").word(&format!("{name}@{}", words::short(with))).word(name)))
            @match both.await {
                Ok((old, new)) => (text_diff([words::short(with), "This version"], &text(&old), &text(&new))),
                Err(error) => (problem_box(&error)),
            }
        }
    }
}

/// Links that expand or collapse called workflows in the drawing.
fn open_links(workflow: &WorkflowDescription, version: Option<&str>, open: Option<&str>) -> Markup {
    let opened = OpenedNodes::of(open);
    let calls: Vec<&str> = workflow
        .nodes
        .iter()
        .filter(|node| node.agent.as_ref().is_some_and(|agent| workflow.workflows.contains(agent)))
        .map(|node| node.id.as_str())
        .collect();
    let address = |opened: OpenedNodes| {
        PageAddress::workflow(&workflow.name)
            .with_some("version", version)
            .with_some("open", opened.text().as_deref())
    };
    html! {
        @if !calls.is_empty() {
            p.opened {
                "Called workflows: "
                @for node in calls.iter().take(MAX_VERSIONS) {
                    @if opened.has(node) {
                        a.label aria-current="true" href=(address(opened.without(node))) { "collapse " (shown_text::line(node, 60)) }
                    } @else {
                        a.label href=(address(opened.with(node))) { "expand " (shown_text::line(node, 60)) }
                    }
                    " "
                }
            }
        }
    }
}

fn partners(workflow: &WorkflowDescription) -> Markup {
    html! {
        @if !workflow.agents.is_empty() || !workflow.workflows.is_empty() {
            p {
                "Calls "
                @for agent in &workflow.agents { a.label href=(PageAddress::agent(agent)) { (shown_text::line(agent, 60)) } " " }
                @for called in &workflow.workflows { a.label href=(PageAddress::workflow(called)) { "workflow " (shown_text::line(called, 60)) } " " }
            }
        }
    }
}

fn version_table(
    request: &PageRequest,
    workflow: &WorkflowDescription,
    versions: &[VersionRow],
    outcomes: &WorkflowOutcomes,
) -> Markup {
    let (name, shown) = (workflow.name.as_str(), workflow.digest.as_str());
    let outcomes_of =
        |version: Option<&str>| outcomes.versions.iter().find(|one| one.version.as_deref() == version);
    html! {
        section {
            h2 { "Versions" }
            div.scroll tabindex="0" role="region" aria-label="Versions" {
                table.rows {
                    thead { tr { th scope="col" { "Version" } th scope="col" { "Deployed" } th scope="col" { "By" } th.number scope="col" { "Succeeded" @if !outcomes.is_whole { " +" } } th.wide scope="col" { "Changes" } } }
                    tbody {
                        @for version in versions.iter().take(MAX_VERSIONS) {
                            tr data-row aria-current=[(version.version == shown).then_some("true")] {
                                td {
                                    a href=(PageAddress::workflow(name).with("version", &version.version)) { code { (shown_text::line(words::short(&version.version), 20)) } }
                                    @if let Some(author) = &version.author_version { " " (shown_text::line(author, 30)) }
                                    @if version.current { " " span.quiet { "current" } }
                                }
                                td { (time_mark(version.deployed, request.now)) }
                                td { (shown_text::line(&version.by, 80)) }
                                td.number { @match outcomes_of(Some(&version.version)) { Some(counts) => (success_rate(counts)), None => "–" } }
                                td.wide {
                                    @if version.version != shown {
                                        a href=(PageAddress::workflow(name).with("version", shown).with("with", &version.version)) { "Compare with shown version" }
                                    }
                                    @if !version.current { " " (rollback_part(request, name, &version.version)) }
                                }
                            }
                        }
                    }
                }
            }
            @if let Some(counts) = outcomes_of(None) { p.quiet { "Executions with unknown version: " (success_rate(counts)) } }
            @if versions.len() > MAX_VERSIONS { p.notice { (versions.len() - MAX_VERSIONS) " older" } }
        }
    }
}

/// Percentage of succeeded executions among those that succeeded or failed; cancelled ones are
/// counted separately.
fn success_rate(counts: &VersionOutcomes) -> Markup {
    let ended = counts.succeeded.saturating_add(counts.failed);
    let percent = (u128::from(counts.succeeded) * 100).checked_div(u128::from(ended));
    html! {
        @match percent {
            Some(percent) => { b { (percent) " %" } " " span.quiet { (counts.succeeded) " of " (ended) } }
            None => "–",
        }
        @if counts.cancelled > 0 { " " span.quiet { (counts.cancelled) " cancelled" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_what_succeeded_or_failed() {
        for ((succeeded, failed, cancelled), wanted) in
            [((2, 1, 0), "66 %"), ((0, 0, 3), "–"), ((1, 0, 2), "100 %"), ((u64::MAX, u64::MAX, 0), "100 %")]
        {
            let counts = VersionOutcomes { version: None, succeeded, failed, cancelled };
            let text = success_rate(&counts).into_string();
            assert!(text.contains(wanted), "{text}");
            assert_eq!(text.contains("cancelled"), cancelled > 0, "{text}");
        }
    }
}
