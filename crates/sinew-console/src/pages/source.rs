//! Plan of an execution: the version it was started with.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use sinew_documents::words;
use sinew_documents::workflow::{WorkflowDescription, WorkflowSource};

use super::execution_head::{ExecutionTab, execution_head, execution_title, read_execution};
use super::node_inspector::{beside_node, is_nothing, selected_name};
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::{ConsolePage, ConsoleSection, page_or_problem, problem_box};
use crate::page_request::{PageAddress, PageRequest};
use crate::schema_form::schema_of;
use crate::shown_text::{self, command_line, text_block, value_block};
use crate::source_text::source_files;

/// Maximum listed nodes of a plan.
pub(super) const LISTED_NODES: &str = "500";

pub(crate) async fn of_execution(Path(id): Path<String>, request: PageRequest) -> Response {
    let page = source_page(&id, &request).await;
    page_or_problem(&request, page)
}

async fn source_page(id: &str, request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let execution = read_execution(request, id).await?;
    let path = ApiPath::of(&["workflows", &execution.workflow]).with("version", &execution.version);
    let mermaid_path =
        ApiPath::of(&["executions", &execution.execution, "drawing"]).with("format", "mermaid");
    let (workflow, mermaid) = futures_util::future::join(
        request.api.get::<WorkflowDescription>(&path.clone().with("nodes", LISTED_NODES)),
        request.api.get_text(&mermaid_path),
    )
    .await;
    let content = html! {
        (source_part(request, &execution.workflow, Some(&execution.version)).await)
        @match workflow {
            Ok(workflow) => (plan(&workflow, &path.address())),
            // The workflow may have been deleted; the drawing comes from the execution itself.
            Err(error) => (problem_box(&error)),
        }
        @if let Ok(mermaid) = mermaid {
            section { h2 { "Mermaid" } (text_block(&mermaid, &mermaid_path.address())) }
        }
    };
    let node = selected_name(request)?;
    let body = html! {
        (execution_head(request, &execution, ExecutionTab::Source, node.as_deref()))
        (beside_node(request, &execution, ExecutionTab::Source, &content).await?)
    };
    Ok(ConsolePage::new(ConsoleSection::Executions, execution_title(&execution), body))
}

/// The files of a deployed workflow with their findings; nothing for workflows that were not
/// deployed.
pub(super) async fn source_part(request: &PageRequest, name: &str, version: Option<&str>) -> Markup {
    let path = ApiPath::of(&["workflows", name, "source"]).with_some("version", version);
    let Ok(source) = request.api.get::<WorkflowSource>(&path).await else { return html! {} };
    html! {
        section {
            h2 { "Source" }
            @if source.files.is_empty() {
                p.empty { "The mesh does not store the file: it was deployed by an older version, or it is too large." }
            } @else {
                p.quiet { "The deployed file, with the findings at deployment." }
                (source_files(&source, &path.address()))
            }
        }
    }
}

/// Nodes, schemas and limits of a plan.
pub(crate) fn plan(workflow: &WorkflowDescription, whole: &str) -> Markup {
    let named = format!("{}@{}", workflow.name, words::short(&workflow.digest));
    html! {
        section {
            div.head {
                h2 { "Plan " code { (shown_text::line(words::short(&workflow.digest), 20)) } " " span.quiet { (shown_text::line(&workflow.dialect, 30)) } }
                (command_line(&CommandText::new("sinew workflow describe").word(&named)))
            }
            div.scroll tabindex="0" role="region" aria-label="Nodes of the plan" {
                table.rows {
                    thead { tr { th scope="col" { "Node" } th scope="col" { "Kind" } th scope="col" { "Agent" } th.wide scope="col" { "After" } } }
                    tbody {
                        @for node in &workflow.nodes {
                            tr {
                                td { (shown_text::line(&node.id, 80)) }
                                td { (shown_text::line(&node.kind, 40)) }
                                td { @if let Some(agent) = &node.agent { a href=(PageAddress::agent(agent)) { (shown_text::line(agent, 60)) } } }
                                td.wide { (node.depends_on.iter().map(|before| shown_text::line(before, 160)).collect::<Vec<_>>().join(", ")) }
                            }
                        }
                    }
                }
            }
            @if workflow.all_nodes() > workflow.nodes.len() { p.notice { (workflow.all_nodes() - workflow.nodes.len()) " more nodes. " a href=(whole) { "Show all" } } }
        }
        @for (title, schema) in [("Input schema", schema_of(workflow.input_schema.as_ref())), ("Output schema", schema_of(workflow.output_schema.as_ref()))] {
            @if !is_nothing(schema) { section { h2 { (title) } (value_block(schema, whole)) } }
        }
        section {
            h2 { "Limits and settings" }
            dl.facts {
                @for (name, value) in workflow.limits.iter().chain(&workflow.profile) {
                    div { dt { (shown_text::line(name, 40)) } dd { (shown_text::value_line(value)) } }
                }
            }
        }
    }
}
