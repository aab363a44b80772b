//! An execution: its graph with how far it came, the table of its nodes, and the selected node beside them.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::execution_head::{
    ExecutionTab, commands, execution_head, execution_title, live_source, read_execution,
};
use super::node_inspector::{node_inspector, read_node};
use crate::api_client::ApiPath;
use crate::console_error::ConsoleError;
use crate::documents::{ExecutionDocument, TreeDocument};
use crate::page_frame::{ConsolePage, ConsoleSection, drawing, live_part, page_or_problem, problem_box};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, duration};
use crate::status_mark::status_mark;

/// Nodes in a page; a larger tree is reached node by node.
const MAX_ROWS: usize = 500;
/// Bytes of a drawing within a page; a larger one is a link.
const MAX_DRAWING_BYTES: usize = 160 << 10;

/// Node that the address selects.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct NodeChoice {
    pub(crate) node: Option<String>,
}

pub(crate) async fn graph(Path(id): Path<String>, request: PageRequest) -> Response {
    let page = graph_page(&id, &request).await;
    page_or_problem(&request, page)
}

async fn graph_page(id: &str, request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let NodeChoice { node } = request.query()?;
    let execution = read_execution(request, id).await?;
    // `@latest` is another execution a moment later.
    let id = execution.execution.as_str();
    let tree_path = ApiPath::of(&["executions", id, "tree"]);
    let drawing_path = ApiPath::of(&["executions", id, "drawing"]).with("bare", "true");
    let (tree, picture, selected) = futures_util::future::join3(
        request.api.get::<Vec<TreeDocument>>(&tree_path),
        request.api.get_text(&drawing_path),
        read_node(request, id, node.as_deref()),
    )
    .await;
    let body = html! {
        (execution_head(request, &execution, ExecutionTab::Graph, node.as_deref()))
        div.split.inspected[selected.is_some()] {
            div {
                (live_part("graph", &picture_part(picture, &drawing_path)))
                (live_part("nodes", &nodes_part(&execution, &tree?, node.as_deref())))
                (live_part("commands", &commands(&execution)))
            }
            (live_part("node", &html! {
                @if let Some(selected) = &selected { (node_inspector(&execution, node.as_deref(), selected)) }
            }))
        }
    };
    let title = execution_title(&execution);
    Ok(ConsolePage::new(ConsoleSection::Executions, title, body).live(live_source(&execution)))
}

fn picture_part(picture: Result<String, ConsoleError>, path: &ApiPath) -> Markup {
    match picture {
        Ok(svg) if svg.len() <= MAX_DRAWING_BYTES => drawing(svg),
        Ok(svg) => html! {
            p.notice {
                "The drawing has " (shown_text::size(svg.len() as u64)) ". "
                a href=(path.address()) { "Open it by itself" } "; the table below has all nodes."
            }
        },
        Err(error) => html! {
            (problem_box(&error))
            p.notice { "The table below has all nodes." }
        },
    }
}

fn nodes_part(execution: &ExecutionDocument, tree: &[TreeDocument], selected: Option<&str>) -> Markup {
    html! {
        section {
            h2 #nodes { "Nodes" }
            div.scroll tabindex="0" role="region" aria-labelledby="nodes" {
                table.rows {
                    thead {
                        tr {
                            th scope="col" { "Node" }
                            th scope="col" { "Status" }
                            th.number scope="col" { "Attempts" }
                            th.number scope="col" { "Time" }
                            th scope="col" { "Agent" }
                            th.wide scope="col" { "Message" }
                        }
                    }
                    tbody {
                        @for row in tree.iter().take(MAX_ROWS) { (node_row(&execution.execution, row, selected)) }
                    }
                }
            }
            @if tree.len() > MAX_ROWS {
                p.notice { (tree.len() - MAX_ROWS) " more nodes: " code { "sinew execution tree" } " lists all." }
            }
        }
    }
}

/// A node of a table. Children of maps, loops and forks are one line with counts, until the node is opened.
pub(crate) fn node_row(id: &str, row: &TreeDocument, selected: Option<&str>) -> Markup {
    let is_selected = selected == Some(row.label.as_str());
    let folded: Vec<String> = row.folded.iter().map(|(word, count)| format!("{count} {word}")).collect();
    html! {
        tr data-row aria-current=[is_selected.then_some("true")] {
            td { a href=(PageAddress::execution(id).with("node", &row.label)) data-node-link=(row.label) { (shown_text::line(&row.label, 80)) } " " span.quiet { (shown_text::line(&row.kind, 40)) } }
            td { (status_mark(&row.status)) }
            td.number {
                @if row.activations > 1 { "#" (row.activations) } @else if row.attempts > 0 { (row.attempts) } @else { "–" }
            }
            td.number { (duration(row.duration_ms)) }
            td {
                @if let Some(agent) = &row.agent { a href=(PageAddress::agent(agent)) { (shown_text::line(agent, 48)) } }
            }
            td.wide {
                (shown_text::line(row.message.as_deref().unwrap_or_default(), 240))
                @if !folded.is_empty() { " " span.quiet { (folded.join(", ")) } }
            }
        }
    }
}
