//! Deployed workflows.

use axum::response::Response;
use maud::{Markup, html};
use sinew_documents::figures::{WorkflowFigures, WorkflowSeries};
use sinew_documents::words;
use sinew_documents::workflow::DeployedRow;

use super::sparkline::sparkline;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{
    AGENTS_CHANGE, ConsolePage, ConsoleSection, LiveSource, TextFilter, list_filter, live_part, may_steer,
    page_or_problem,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, action_link, command_line, duration, time_mark};

/// Maximum shown warnings per workflow.
const MAX_WARNINGS: usize = 3;

pub(crate) async fn show(request: PageRequest) -> Response {
    let page = workflows_page(&request).await;
    page_or_problem(&request, page)
}

async fn workflows_page(request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let filter: TextFilter = request.query()?;
    let path = filter.on(ApiPath::of(&["workflows"]));
    let figures_path = ApiPath::of(&["workflow-figures"]);
    let (rows, figures) = futures_util::future::join(
        request.api.get::<Vec<DeployedRow>>(&path),
        request.api.get::<WorkflowFigures>(&figures_path),
    )
    .await;
    // Without its figures the list is still useful.
    let (rows, figures) = (rows?, figures.unwrap_or_default());
    let body = html! {
        div.head { h1 { "Workflows" } (command_line(&CommandText::new("sinew workflow list")))
            @if may_steer(request) { div.actions { (action_link(&PageAddress::of(&["desk"]), "New workflow…", &CommandText::new("sinew workflow deploy FILE"))) } } }
        (list_filter(&filter))
        (live_part("workflows", &workflow_table(request, &rows, &figures)))
    };
    Ok(ConsolePage::new(ConsoleSection::Workflows, "Workflows", body).live(LiveSource::List(AGENTS_CHANGE)))
}

fn workflow_table(request: &PageRequest, rows: &[DeployedRow], figures: &WorkflowFigures) -> Markup {
    let series_of = |name: &str| figures.workflows.iter().find(|one| one.workflow == name);
    html! {
        @if rows.is_empty() { p.empty { "No workflows are deployed. Deploy one with " code { "sinew workflow deploy FILE" } "." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Workflows" {
                table.rows {
                    thead {
                        tr {
                            th scope="col" { "Workflow" } th.wide scope="col" { "Purpose" } th scope="col" { "Dialect" }
                            th scope="col" { "Version" } th.number scope="col" { "Versions" } th scope="col" { "Deployed" } th.side scope="col" { "By" }
                            th.number scope="col" { "Ended in the last hour" @if !figures.is_whole { " +" } } th.number scope="col" { "p95" }
                            th scope="col" { "Executions" }
                        }
                    }
                    tbody {
                        @for row in rows {
                            tr data-row {
                                td { a href=(PageAddress::workflow(&row.name)) { (shown_text::line(&row.name, 80)) } }
                                td.wide { (shown_text::line(&row.description, 200)) @if let Some(paused) = &row.paused { p.notice { (shown_text::line(paused, 200)) } } @for warning in row.warnings.iter().take(MAX_WARNINGS) { p.notice { (shown_text::line(warning, 200)) } } }
                                td { (shown_text::line(&row.dialect, 30)) }
                                td { code { (shown_text::line(words::short(&row.digest), 20)) } @if let Some(author) = &row.author_version { " " (shown_text::line(author, 30)) } }
                                td.number { (row.versions) }
                                td { (time_mark(row.deployed, request.now)) }
                                td.side { (shown_text::line(&row.by, 40)) }
                                (series_cells(series_of(&row.name)))
                                td {
                                    a href=(PageAddress::of(&["executions"]).with("workflow", &row.name)) { "List" }
                                    @if may_steer(request) { " · " a href=(PageAddress::of(&["workflows", &row.name, "start"])) { "Start…" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Cells with the number of ended executions, and their durations.
fn series_cells(series: Option<&WorkflowSeries>) -> Markup {
    let Some(series) = series else {
        return html! { td.number { "–" } td.number { "–" } };
    };
    let (ended, failed): (u64, u64) = (series.ended.iter().sum(), series.failed.iter().sum());
    let counts: Vec<Option<u64>> = series.ended.iter().copied().map(Some).collect();
    let p95 = duration(series.p95_of_all_ms);
    html! {
        td.number { (ended) @if failed > 0 { " " span.quiet { "(" (failed) " failed)" } } " " (sparkline(&counts, &format!("{ended} ended in the last hour, {failed} failed"))) }
        td.number { (p95) " " (sparkline(&series.p95_ms, &format!("p95 of the last hour: {p95}"))) }
    }
}
