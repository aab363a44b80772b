//! An execution: its graph with how far it came, the table of its nodes, and the selected node beside them.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;

use super::execution_head::{
    ExecutionTab, commands, execution_head, execution_title, live_source, read_execution,
};
use super::node_inspector::{node_inspector, read_node};
use super::opened_nodes::OpenedNodes;
use crate::api_client::ApiPath;
use crate::console_error::ConsoleError;
use crate::documents::{ExecutionDocument, TreeDocument};
use crate::page_frame::{
    ConsolePage, ConsoleSection, DrawingUse, drawing, large_drawing, live_part, page_or_problem, problem_box,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text::{self, duration};
use crate::status_mark::status_mark;

/// Nodes in a page; a larger tree is reached node by node.
const MAX_ROWS: usize = 300;
/// Nodes of a drawing that the page holds; a larger one is painted part by part.
pub(crate) const MAX_DRAWN_NODES: usize = 150;
/// Bytes of a drawing within a page; a larger one is a link.
const MAX_DRAWING_BYTES: usize = 160 << 10;

/// Node that the address selects, and the nodes that are opened in the graph.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct NodeChoice {
    pub(crate) node: Option<String>,
    pub(crate) open: Option<String>,
    /// Node or execution that the node is compared with.
    pub(crate) with: Option<String>,
    /// Tab beside whose content the node is shown.
    #[serde(skip)]
    pub(crate) tab: ExecutionTab,
    /// Range of a timeline, and whether idle time is cut out of it.
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    pub(crate) cut: Option<String>,
    /// Artifact that is opened.
    pub(crate) artifact: Option<String>,
}

impl NodeChoice {
    /// The page of an execution with the same nodes opened.
    pub(crate) fn address(&self, id: &str) -> PageAddress {
        self.tab
            .address(id)
            .with_some("open", self.open.as_deref())
            .with_some("from", self.from.as_deref())
            .with_some("to", self.to.as_deref())
            .with_some("cut", self.cut.as_deref())
            .with_some("artifact", self.artifact.as_deref())
    }

    /// The page with another node selected.
    pub(crate) fn address_of(&self, id: &str, node: &str) -> PageAddress {
        self.address(id).with("node", node)
    }
}

pub(crate) async fn graph(Path(id): Path<String>, request: PageRequest) -> Response {
    let page = graph_page(&id, &request).await;
    page_or_problem(&request, page)
}

async fn graph_page(id: &str, request: &PageRequest) -> Result<ConsolePage, ConsoleError> {
    let choice: NodeChoice = request.query()?;
    let node = choice.node.as_deref();
    let execution = read_execution(request, id).await?;
    // `@latest` is another execution a moment later.
    let id = execution.execution.as_str();
    let tree_path = ApiPath::of(&["executions", id, "tree"]);
    let drawing_path = ApiPath::of(&["executions", id, "drawing"])
        .with("bare", "true")
        .with_some("open", choice.open.as_deref());
    let (tree, selected) = futures_util::future::join(
        request.api.get::<Vec<TreeDocument>>(&tree_path),
        read_node(request, id, &choice),
    )
    .await;
    let tree = tree?;
    let picture = match tree.len() {
        0..=MAX_DRAWN_NODES => {
            picture_part(request.api.get_text(&drawing_path).await, &drawing_path, tree.len())
        }
        nodes => large_drawing(&drawing_path, nodes, DrawingUse::Inspected),
    };
    let body = html! {
        (execution_head(request, &execution, ExecutionTab::Graph, node))
        div.split {
            div {
                (live_part("graph", &html! { (picture) (opened_nodes(id, &choice)) }))
                (live_part("nodes", &nodes_part(&execution, &tree, &choice)))
                (live_part("commands", &commands(&execution)))
            }
            (live_part("node", &html! {
                @if let Some(selected) = &selected { (node_inspector(&execution, &choice, selected)) }
            }))
        }
    };
    let title = execution_title(&execution);
    Ok(ConsolePage::new(ConsoleSection::Executions, title, body).live(live_source(&execution)))
}

/// Nodes that are opened in the graph, each with a link that closes it.
fn opened_nodes(id: &str, choice: &NodeChoice) -> Markup {
    let opened = OpenedNodes::of(choice.open.as_deref());
    html! {
        @if !opened.names().is_empty() {
            p.opened {
                "Opened in the graph: "
                @for name in opened.names() {
                    a.label data-stay href=(PageAddress::execution(id).with_some("open", opened.without(name).text().as_deref()).with_some("node", choice.node.as_deref())) {
                        (shown_text::line(name, 60)) " ×"
                    }
                    " "
                }
            }
        }
    }
}

fn picture_part(picture: Result<String, ConsoleError>, path: &ApiPath, nodes: usize) -> Markup {
    match picture {
        Ok(svg) if svg.len() <= MAX_DRAWING_BYTES => drawing(svg, DrawingUse::Inspected),
        Ok(_) => large_drawing(path, nodes, DrawingUse::Inspected),
        Err(error) => html! {
            (problem_box(&error))
            p.notice { "The table below has all nodes." }
        },
    }
}

fn nodes_part(execution: &ExecutionDocument, tree: &[TreeDocument], choice: &NodeChoice) -> Markup {
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
                        @for row in tree.iter().take(MAX_ROWS) { (node_row(&execution.execution, row, choice)) }
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
pub(crate) fn node_row(id: &str, row: &TreeDocument, choice: &NodeChoice) -> Markup {
    let is_selected = choice.node.as_deref() == Some(row.label.as_str());
    let folded: Vec<String> = row.folded.iter().map(|(word, count)| format!("{count} {word}")).collect();
    html! {
        tr data-row aria-current=[is_selected.then_some("true")] {
            td { a href=(choice.address_of(id, &row.label)) data-node-link=(row.label) { (shown_text::line(&row.label, 80)) } " " span.quiet { (shown_text::line(&row.kind, 40)) } }
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
