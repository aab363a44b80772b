//! An execution that was exported to a file: opened without a mesh, read only, and kept nowhere.

use axum::Form;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use sinew_inspection::words;

use super::execution_head::fault;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::documents::{NodeDocument, TreeDocument};
use crate::mesh_documents::InspectionDocument;
use crate::page_frame::{
    ConsolePage, ConsoleSection, DrawingUse, drawing, page_or_problem, problem_box, token_field,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, clock_mark, command_line, duration, value_block};
use crate::status_mark::status_mark;

/// Bytes of a drawing within the page.
const MAX_DRAWING_BYTES: usize = 600 << 10;
/// Rows of each table.
const MAX_ROWS: usize = 200;

/// The file, as the form sends it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ImportForm {
    #[serde(default)]
    text: String,
}

pub(crate) async fn show(request: PageRequest) -> Response {
    page_or_problem(&request, Ok(import_page(&request, None)))
}

pub(crate) async fn open(request: PageRequest, Form(form): Form<ImportForm>) -> Response {
    let path = ApiPath::of(&["inspections"]);
    let opened = request.api.post_file::<InspectionDocument>(&path, form.text).await;
    let page = import_page(&request, Some(&opened));
    let page = match &opened {
        Ok(_) => page,
        Err(error) => page.with_status(error.status()),
    };
    page_or_problem(&request, Ok(page))
}

fn import_page(
    request: &PageRequest,
    opened: Option<&Result<InspectionDocument, ConsoleError>>,
) -> ConsolePage {
    let body = html! {
        div.head { h1 { "Import" } (command_line(&CommandText::new("sinew execution describe EXPORT.json"))) }
        form.steer #import method="post" {
            (token_field(request))
            p { "An export of an execution (" code { "sinew execution export ID" } ") is shown as it was. Nothing is stored, and nothing is asked of a mesh." }
            label { span { "File" } input type="file" accept=".json" data-import; }
            label { span { "Or its text" } textarea.mono name="text" rows="3" spellcheck="false" {} }
            div.actions { button.primary type="submit" { "Open" } a.button href=(PageAddress::of(&["executions"])) { "Back" } }
        }
        @match opened {
            None => {}
            Some(Err(error)) => (problem_box(error)),
            Some(Ok(found)) => (inspection(found)),
        }
    };
    ConsolePage::new(ConsoleSection::Executions, "Import", body)
}

fn inspection(found: &InspectionDocument) -> Markup {
    let execution = &found.description;
    html! {
        section #opened {
            h2 { (status_mark(&execution.status)) " " (shown_text::line(&execution.workflow, 80)) }
            dl.facts {
                div { dt { "Execution" } dd { code { (shown_text::name(&execution.execution)) } } }
                div { dt { "Started" } dd { (shown_text::line(&execution.started, 40)) } }
                div { dt { "Time" } dd { (duration(Some(execution.duration_ms))) } }
                div { dt { "Nodes" } dd { (execution.nodes.over) "/" (execution.nodes.total) } }
                div { dt { "Version" } dd { code { (shown_text::line(words::short(&execution.version), 20)) } " " (shown_text::line(&execution.dialect, 30)) } }
            }
            @if let Some(failure) = &execution.failure {
                div.failure { h3 { "Why it did not succeed" } ol.chain { @for cause in &failure.chain { li { (fault(cause)) } } } }
            }
            @if let Some(svg) = found.drawing.as_ref().filter(|svg| svg.len() <= MAX_DRAWING_BYTES) { (drawing(svg.clone(), DrawingUse::Beside)) }
        }
        (tree_table(&found.tree))
        section {
            h2 { "Input and output" }
            h3 { "Input" } (value_block(&execution.input, "#opened"))
            @if let Some(output) = &execution.output { h3 { "Output" } (value_block(output, "#opened")) }
            @for node in found.nodes.iter().take(MAX_ROWS) { (node_details(node)) }
        }
        section {
            h2 { "Events" }
            @if found.skipped_events > 0 { p.notice { (found.skipped_events) " earlier events are not shown." } }
            div.scroll tabindex="0" role="region" aria-label="Events" {
                table.rows {
                    thead { tr { th scope="col" { "At" } th scope="col" { "Type" } th scope="col" { "Node" } th.wide scope="col" { "Event" } } }
                    tbody {
                        @for event in &found.events {
                            tr {
                                td { (clock_mark(&event.at)) }
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

fn tree_table(tree: &[TreeDocument]) -> Markup {
    html! {
        section {
            h2 { "Nodes" }
            div.scroll tabindex="0" role="region" aria-label="Nodes" {
                table.rows {
                    thead { tr { th scope="col" { "Node" } th scope="col" { "Status" } th.number scope="col" { "Attempts" } th.number scope="col" { "Time" } th scope="col" { "Agent" } th.wide scope="col" { "Message" } } }
                    tbody { @for row in tree.iter().take(MAX_ROWS) { (tree_rows(row, 0)) } }
                }
            }
        }
    }
}

fn tree_rows(row: &TreeDocument, level: usize) -> Markup {
    html! {
        tr {
            td { @for _ in 0..level { "· " } (shown_text::line(&row.label, 80)) " " span.quiet { (shown_text::line(&row.kind, 40)) } }
            td { (status_mark(&row.status)) }
            td.number { (row.attempts) }
            td.number { (duration(row.duration_ms)) }
            td { (shown_text::line(row.agent.as_deref().unwrap_or("–"), 48)) }
            td.wide { (shown_text::line(row.message.as_deref().unwrap_or_default(), 240)) }
        }
        @for child in row.children.iter().take(20) { (tree_rows(child, level + 1)) }
    }
}

fn node_details(node: &NodeDocument) -> Markup {
    html! {
        details {
            summary { (status_mark(&node.status)) " " (shown_text::line(&node.node, 100)) }
            @if let Some(error) = &node.error { div.failure { (fault(error)) } }
            @if let Some(input) = &node.input { h3 { "Input" } (value_block(input, "#opened")) }
            @if let Some(output) = &node.output { h3 { "Output" } (value_block(output, "#opened")) }
        }
    }
}
