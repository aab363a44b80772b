//! Two executions side by side: status of their nodes, differences in values, and durations.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use sinew_documents::comparison::{
    ComparedExecution, ComparedNode, ExecutionComparison, NodeComparison, PatchKind, PatchOperation,
};
use sinew_documents::execution_list::{ExecutionPage, ExecutionRow};
use sinew_documents::words;
use sinew_documents::words::status_word;

use super::execution_head::{ExecutionTab, execution_head, execution_title, read_execution};
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{ConsolePage, ConsoleSection, page_or_problem, problem_box};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, command_line, duration, time_mark, value_line};
use crate::status_mark::status_mark;

/// Maximum suggested executions of the same workflow.
const OFFERED_ROWS: &str = "20";
/// Nodes and changes of values that are listed.
const MAX_ROWS: usize = 200;

/// The other execution, as the address names it.
#[derive(Clone, Debug, Default, Deserialize)]
struct CompareChoice {
    #[serde(default)]
    with: String,
    node: Option<String>,
}

pub(crate) async fn show(Path(id): Path<String>, request: PageRequest) -> Response {
    let page = compare_page(&id, &request).await;
    page_or_problem(&request, page)
}

async fn compare_page(id: &str, request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let choice: CompareChoice = request.query()?;
    let execution = read_execution(request, id).await?;
    let id = execution.execution.as_str();
    let others =
        ApiPath::of(&["executions"]).with("workflow", &execution.workflow).with("limit", OFFERED_ROWS);
    let succeeded = ApiPath::of(&["executions"])
        .with("workflow", &execution.workflow)
        .with("status", "succeeded")
        .with("limit", "2");
    let (others, succeeded) = futures_util::future::try_join(
        request.api.get::<ExecutionPage>(&others),
        request.api.get::<ExecutionPage>(&succeeded),
    )
    .await?;
    let is_other = |row: &&ExecutionRow| row.execution != id;
    let recent: Vec<&ExecutionRow> = others.executions.iter().filter(is_other).collect();
    let last_success = succeeded.executions.iter().find(is_other);
    let with = choice.with.trim();
    let compared = if with.is_empty() {
        None
    } else {
        let path = ApiPath::of(&["executions", id, "comparison"])
            .with("with", with)
            .with_some("node", choice.node.as_deref());
        Some(request.api.get::<ExecutionComparison>(&path).await)
    };
    let body = html! {
        (execution_head(request, &execution, ExecutionTab::Compare, None))
        form.filter method="get" aria-label="Execution to compare with" {
            label { span { "Compare with" }
                input type="text" name="with" value=(with) list="others" data-filter autocomplete="off" placeholder="id, or @latest";
                datalist #others {
                    @for other in &recent {
                        option value=(other.execution) { (status_word(other.status)) " " (other.started) }
                    }
                }
            }
            label { span { "Only node" } input type="text" name="node" value=[choice.node.as_deref()] autocomplete="off"; }
            button type="submit" { "Compare" }
            @if !with.is_empty() {
                (command_line(&CommandText::of_execution("sinew execution diff", id).word(words::short_id(with)).flag("--node", choice.node.as_deref().unwrap_or_default())))
            }
        }
        @match &compared {
            None => (offered(request, id, last_success, &recent)),
            Some(Err(error)) => (problem_box(error)),
            Some(Ok(compared)) => (comparison(compared)),
        }
    };
    Ok(ConsolePage::new(ConsoleSection::Executions, execution_title(&execution), body))
}

/// Executions of the same workflow to compare with: the last success, then the latest.
fn offered(
    request: &PageRequest,
    id: &str,
    last_success: Option<&ExecutionRow>,
    recent: &[&ExecutionRow],
) -> Markup {
    let link = |row: &ExecutionRow, title: &str| {
        let address = ExecutionTab::Compare.address(id).with("with", &row.execution);
        html! { a href=(address) { (title) } }
    };
    html! {
        @if recent.is_empty() && last_success.is_none() {
            p.empty { "The workflow has no other execution. Enter the id of any execution to compare with it." }
        }
        @if let Some(row) = last_success {
            p { (link(row, "Compare with the last success")) " " span.quiet { (shown_text::line(words::short_id(&row.execution), 40)) ", " (time_mark(row.started, request.now)) } }
        }
        @if !recent.is_empty() {
            h2 #recent { "Recent executions of this workflow" }
            div.scroll tabindex="0" role="region" aria-labelledby="recent" {
                table.rows {
                    thead { tr { th scope="col" { "Execution" } th scope="col" { "Status" } th scope="col" { "Started" } } }
                    tbody {
                        @for row in recent {
                            tr data-row {
                                td.id { (link(row, &shown_text::line(words::short_id(&row.execution), 40))) }
                                td { (status_mark(row.status)) }
                                td { (time_mark(row.started, request.now)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The two side by side.
pub(super) fn comparison(compared: &ExecutionComparison) -> Markup {
    html! {
        section {
            h2 { @if compared.same { "No differences" } @else { "Differences" } }
            div.scroll tabindex="0" role="region" aria-label="Compared executions" {
                table.rows {
                    thead { tr { th scope="col" { "Execution" } th scope="col" { "Workflow" } th scope="col" { "Status" } th.number scope="col" { "Time" } th scope="col" { "Version" } } }
                    tbody { (side_row(&compared.first)) (side_row(&compared.second)) }
                }
            }
        }
        @for (title, steps) in [("Input", &compared.input), ("Output", &compared.output)] {
            @if !steps.is_empty() { section { h2 { (title) } (patch_list(steps)) } }
        }
        section {
            h2 #compared { "Nodes" }
            div.scroll tabindex="0" role="region" aria-labelledby="compared" {
                table.rows {
                    thead {
                        tr {
                            th scope="col" { "Node" } th scope="col" { "Result" } th scope="col" { "First" } th.number scope="col" { "Time" }
                            th scope="col" { "Second" } th.number scope="col" { "Time" } th.wide scope="col" { "Differences" }
                        }
                    }
                    tbody { @for row in compared.nodes.iter().take(MAX_ROWS) { (node_row(compared, row)) } }
                }
            }
            @if compared.nodes.len() > MAX_ROWS { p.notice { (compared.nodes.len() - MAX_ROWS) " more nodes" } }
        }
    }
}

fn side_row(side: &ComparedExecution) -> Markup {
    html! {
        tr {
            td { a.id href=(PageAddress::execution(&side.execution)) { (shown_text::line(words::short_id(&side.execution), 40)) } }
            td { (shown_text::line(&side.workflow, 60)) }
            td { (status_mark(side.status)) }
            td.number { (duration(Some(side.duration_ms))) }
            td { code { (shown_text::line(words::short(&side.version), 20)) } }
        }
    }
}

fn node_row(compared: &ExecutionComparison, row: &NodeComparison) -> Markup {
    let stood = |side: &ComparedExecution, node: Option<&ComparedNode>| {
        html! {
            @match node {
                Some(node) => {
                    td { a href=(PageAddress::execution(&side.execution).with("node", &row.label)) { (status_mark(node.status)) } }
                    td.number { (duration(node.duration_ms)) }
                }
                None => { td { "–" } td.number { "–" } }
            }
        }
    };
    html! {
        tr data-row {
            td { (shown_text::line(&row.label, 80)) }
            td { @if row.same { "same" } @else { b { "different" } } }
            (stood(&compared.first, row.first.as_ref()))
            (stood(&compared.second, row.second.as_ref()))
            td.wide {
                @for fault in [&row.first, &row.second].into_iter().flatten().filter_map(|node| node.fault.as_deref()) {
                    p { (shown_text::line(fault, 300)) }
                }
                (patch_list(&row.output))
            }
        }
    }
}

/// Changes from the first value to the second, marked by word and sign as well as colour.
fn patch_list(steps: &[PatchOperation]) -> Markup {
    html! {
        @if !steps.is_empty() {
            ul.patch {
                @for step in steps.iter().take(MAX_ROWS) {
                    li class={ "is-" (sign_of(step.op).0) } {
                        span.icon aria-hidden="true" { (sign_of(step.op).1) } " "
                        (step.op.as_str()) " " code { (shown_text::line(if step.path.is_empty() { "/" } else { &step.path }, 120)) }
                        @if let Some(was) = &step.was { " " code { (value_line(was)) } }
                        @if step.was.is_some() && step.value.is_some() { " →" }
                        @if let Some(value) = &step.value { " " code { (value_line(value)) } }
                    }
                }
                @if steps.len() > MAX_ROWS { li { "and " (steps.len() - MAX_ROWS) " more" } }
            }
        }
    }
}

/// Class and sign of an operation of JSON Patch.
const fn sign_of(operation: PatchKind) -> (&'static str, &'static str) {
    match operation {
        PatchKind::Add => ("added", "+"),
        PatchKind::Remove => ("removed", "−"),
        PatchKind::Replace => ("replaced", "~"),
    }
}
