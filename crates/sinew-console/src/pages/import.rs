//! An exported execution, shown without a mesh. Nothing is stored.

use axum::Form;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Value, json};
use sinew_documents::comparison::ExecutionComparison;
use sinew_documents::export::ExportViews;
use sinew_documents::node::{NodeDescription, TreeBranch};
use sinew_documents::words;

use super::compare::comparison;
use super::execution_head::{failure_cause, fault};
use super::timeline::whole_timeline;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::drawing_view::{DrawingUse, drawing};
use crate::page_frame::{ConsolePage, ConsoleSection, page_or_problem, problem_box, token_field};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, MAX_SHOWN_BYTES, clock_mark, command_line, duration, value_block};
use crate::status_mark::status_mark;

/// Maximum size of an inlined drawing.
const MAX_DRAWING_BYTES: usize = 64 << 10;
/// Maximum size of a text that the page returns in its field.
const MAX_KEPT_BYTES: usize = 16 << 10;
/// Maximum shown events, the latest.
const MAX_EVENTS: usize = 80;
/// Maximum size of all shown node values.
const MAX_VALUE_BYTES: usize = 48 << 10;
/// Maximum rows per table.
const MAX_ROWS: usize = 150;

/// The file, as the form sends it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ImportForm {
    #[serde(default)]
    text: String,
    /// The export to compare with.
    #[serde(default)]
    other: String,
}

/// Views of the export, and its comparison with another.
#[derive(Default)]
struct OpenedExport {
    found: Option<Result<ExportViews, ConsoleError>>,
    compared: Option<Result<ExecutionComparison, ConsoleError>>,
}

pub(crate) async fn show(request: PageRequest) -> Response {
    page_or_problem(&request, Ok(import_page(&request, &ImportForm::default(), &OpenedExport::default())))
}

pub(crate) async fn open(request: PageRequest, Form(form): Form<ImportForm>) -> Response {
    let (path, compared_path) = (ApiPath::of(&["inspections"]), ApiPath::of(&["comparisons"]));
    let compared = async {
        if form.other.trim().is_empty() {
            return None;
        }
        let body = json!({ "first": form.text, "second": form.other });
        Some(request.api.post::<ExecutionComparison>(&compared_path, &body).await)
    };
    let (found, compared) =
        futures_util::future::join(request.api.post_file(&path, form.text.clone()), compared).await;
    let opened = OpenedExport { found: Some(found), compared };
    let page = import_page(&request, &form, &opened);
    let page = match &opened.found {
        Some(Err(error)) => page.with_status(error.status()),
        _ => page,
    };
    page_or_problem(&request, Ok(page))
}

fn import_page(request: &PageRequest, form: &ImportForm, opened: &OpenedExport) -> ConsolePage {
    // Limits the size of the page: a long text has to be loaded from its file again.
    let kept = |text: &str| if text.len() <= MAX_KEPT_BYTES { text.to_owned() } else { String::new() };
    let body = html! {
        div.head { h1 { "Import" } (command_line(&CommandText::new("sinew execution describe EXPORT.json"))) }
        form.steer #import method="post" {
            (token_field(request))
            p { "An export of an execution (" code { "sinew execution export ID" } ") is shown as it was exported. Choose the file or drop it here. Nothing is stored, and no mesh is contacted." }
            label { span { "File" } input type="file" accept=".json" data-import="text"; }
            label { span { "Or paste its text" } textarea.mono name="text" rows="3" spellcheck="false" { (kept(&form.text)) } }
            details open[!form.other.is_empty()] {
                summary { "Compare with another export" }
                label { span { "Second file" } input type="file" accept=".json" data-import="other"; }
                label { span { "Or paste its text" } textarea.mono name="other" rows="3" spellcheck="false" { (kept(&form.other)) } }
            }
            div.actions { button.primary type="submit" data-command="sinew execution describe EXPORT.json" { "Open" } a.button href=(PageAddress::of(&["executions"])) { "Back" } }
        }
        @match &opened.compared {
            None => {}
            Some(Err(error)) => (problem_box(error)),
            Some(Ok(compared)) => section #compared-exports {
                div.head { h2 { "Comparison" } (command_line(&CommandText::new("sinew execution diff FIRST.json SECOND.json"))) }
                (comparison(compared))
            },
        }
        @match &opened.found {
            None => {}
            Some(Err(error)) => (problem_box(error)),
            Some(Ok(found)) => (inspection(found)),
        }
    };
    ConsolePage::new(ConsoleSection::Executions, "Import", body)
}

fn inspection(found: &ExportViews) -> Markup {
    let execution = &found.description;
    html! {
        section #opened {
            h2 { (status_mark(execution.status)) " " (shown_text::line(&execution.workflow, 80)) }
            dl.facts {
                div { dt { "Execution" } dd { code { (shown_text::name(&execution.execution)) } } }
                div { dt { "Started" } dd { (execution.started) } }
                div { dt { "Time" } dd { (duration(Some(execution.duration_ms))) } }
                div { dt { "Nodes" } dd { (execution.nodes.over) "/" (execution.nodes.total) } }
                div { dt { "Version" } dd { code { (shown_text::line(words::short(&execution.version), 20)) } " " (shown_text::line(&execution.dialect, 30)) } }
            }
            @if let Some(failure) = &execution.failure {
                div.failure { h3 { "Cause" } ol.chain { @for cause in &failure.chain { li { (failure_cause(cause)) } } } }
            }
            @if let Some(svg) = found.drawing.as_ref().filter(|svg| svg.len() <= MAX_DRAWING_BYTES) { (drawing(svg.clone(), DrawingUse::Beside)) }
        }
        section #times { h2 { "Timeline" } (whole_timeline(&found.timeline)) }
        (tree_table(found.tree.as_deref().unwrap_or_default()))
        section {
            h2 { "Input and output" }
            h3 { "Input" } (value_block(&execution.input, "#opened"))
            @if let Some(output) = &execution.output { h3 { "Output" } (value_block(output, "#opened")) }
            @let shown = shown_nodes(&found.nodes);
            @for node in &found.nodes[..shown] { (node_details(node)) }
            @if shown < found.nodes.len() { p.notice { (found.nodes.len() - shown) " more nodes: " (command_line(&CommandText::new("sinew execution describe EXPORT.json --node NAME"))) } }
        }
        section {
            h2 { "Events" }
            @let skipped = found.events.len().saturating_sub(MAX_EVENTS);
            @if found.skipped_events + skipped > 0 { p.notice { (found.skipped_events + skipped) " earlier events are not shown." } }
            div.scroll tabindex="0" role="region" aria-label="Events" {
                table.rows {
                    thead { tr { th scope="col" { "At" } th scope="col" { "Type" } th scope="col" { "Node" } th.wide scope="col" { "Event" } } }
                    tbody {
                        @for event in &found.events[skipped..] {
                            tr {
                                td { (clock_mark(event.at)) }
                                td { code { (shown_text::line(&event.kind, 60)) } }
                                td { (shown_text::line(event.node.as_deref().unwrap_or("–"), 60)) }
                                td.wide { (shown_text::value_line(&event.event)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn tree_table(tree: &[TreeBranch]) -> Markup {
    html! {
        section {
            h2 { "Nodes" }
            div.scroll tabindex="0" role="region" aria-label="Nodes" {
                table.rows {
                    thead { tr { th scope="col" { "Node" } th scope="col" { "Status" } th.number scope="col" { "Attempts" } th.number scope="col" { "Time" } th scope="col" { "Agent" } th.wide scope="col" { "Message" } } }
                    tbody { @for row in tree.iter().take(MAX_ROWS) { (tree_rows(row, 0, tree.len())) } }
                }
            }
        }
    }
}

fn tree_rows(branch: &TreeBranch, level: usize, beside: usize) -> Markup {
    // Limits the size of the page: the wider a level, the fewer children of each node.
    let TreeBranch { label, row, children, .. } = branch;
    let most = (MAX_ROWS / beside.max(1)).clamp(1, 20);
    html! {
        tr {
            td { @for _ in 0..level { "· " } (shown_text::line(label, 80)) " " span.quiet { (shown_text::line(&row.kind, 40)) } }
            td { (status_mark(row.status)) }
            td.number { (row.attempts) }
            td.number { (duration(row.duration_ms)) }
            td { (shown_text::line(row.agent.as_deref().unwrap_or("–"), 48)) }
            td.wide { (shown_text::line(row.message.as_deref().unwrap_or_default(), 240)) }
        }
        @for child in children.iter().take(most) { (tree_rows(child, level + 1, beside * children.len().max(1))) }
    }
}

/// Number of leading nodes whose values fit into the page.
fn shown_nodes(nodes: &[NodeDescription]) -> usize {
    let bytes = |value: Option<&Value>| value.map_or(0, |value| value.to_string().len().min(MAX_SHOWN_BYTES));
    let mut left = MAX_VALUE_BYTES;
    let fits = |node: &&NodeDescription| {
        let needed = 300 + bytes(node.input.as_ref()) + bytes(node.output.as_ref());
        let fits = needed <= left;
        left = left.saturating_sub(needed);
        fits
    };
    nodes.iter().take_while(fits).count()
}

fn node_details(node: &NodeDescription) -> Markup {
    html! {
        details {
            summary { (status_mark(node.status)) " " (shown_text::line(&node.node, 100)) }
            @if let Some(error) = &node.error { div.failure { (fault(error)) } }
            @if let Some(input) = &node.input { h3 { "Input" } (value_block(input, "#opened")) }
            @if let Some(output) = &node.output { h3 { "Output" } (value_block(output, "#opened")) }
        }
    }
}
