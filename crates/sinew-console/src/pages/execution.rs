//! An execution: its graph with progress, the table of its nodes, and the inspector of the selected
//! node.

use axum::extract::Path;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use sinew_documents::node::TreeBranch;

use super::execution_head::{
    ExecutionTab, commands, execution_head, execution_title, live_source, read_execution,
};
use super::execution_nodes::nodes_part;
use super::node_inspector::{node_inspector, read_node};
use super::opened_nodes::OpenedNodes;
use crate::api_client::ApiPath;
use crate::console_error::ConsoleError;
use crate::page_frame::{
    ConsolePage, ConsoleSection, DrawingUse, drawing, large_drawing, live_part, page_or_problem, problem_box,
};
use crate::page_request::{PageAddress, PageRequest};
use crate::shown_text;

/// Maximum nodes of an inlined drawing; larger ones are painted on a canvas, part by part.
pub(crate) const MAX_DRAWN_NODES: usize = 150;
/// Maximum size of an inlined drawing; a larger one is a link.
const MAX_DRAWING_BYTES: usize = 160 << 10;

/// The view in the address: the selected node, expanded nodes, filters.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct NodeChoice {
    pub(crate) node: Option<String>,
    pub(crate) open: Option<String>,
    /// Node or execution to compare the node with.
    pub(crate) with: Option<String>,
    /// Tab next to which the node is shown.
    #[serde(skip)]
    pub(crate) tab: ExecutionTab,
    /// Range of a timeline, and whether idle time is omitted.
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    pub(crate) cut: Option<String>,
    /// Artifact that is previewed.
    pub(crate) artifact: Option<String>,
    /// Statuses of the listed nodes, separated by commas.
    pub(crate) status: Option<String>,
    /// Present if quiet nodes are listed individually.
    pub(crate) quiet: Option<String>,
}

impl NodeChoice {
    /// The page of an execution with the same nodes expanded.
    pub(crate) fn address(&self, id: &str) -> PageAddress {
        let view = self.fields().into_iter();
        view.fold(self.tab.address(id), |address, (name, value)| address.with_some(name, value))
    }

    /// Fields of the view, which forms must preserve.
    pub(crate) fn fields(&self) -> [(&'static str, Option<&str>); 7] {
        [
            ("open", self.open.as_deref()),
            ("from", self.from.as_deref()),
            ("to", self.to.as_deref()),
            ("cut", self.cut.as_deref()),
            ("artifact", self.artifact.as_deref()),
            ("status", self.status.as_deref()),
            ("quiet", self.quiet.as_deref()),
        ]
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
    // `@latest` may resolve to another execution in the next request.
    let id = execution.execution.as_str();
    let tree_path = ApiPath::of(&["executions", id, "tree"]).with_some("status", choice.status.as_deref());
    let drawing_path = ApiPath::of(&["executions", id, "drawing"])
        .with("bare", "true")
        .with_some("open", choice.open.as_deref());
    let (tree, selected) = futures_util::future::join(
        request.api.get::<Vec<TreeBranch>>(&tree_path),
        read_node(request, id, &choice),
    )
    .await;
    let tree = tree?;
    // The filter applies to the table, not to the drawing.
    let picture = match execution.nodes.total {
        nodes @ 0..=MAX_DRAWN_NODES => {
            picture_part(request.api.get_text(&drawing_path).await, &drawing_path, nodes)
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

/// Nodes that are expanded in the graph, each with a link that collapses it.
fn opened_nodes(id: &str, choice: &NodeChoice) -> Markup {
    let opened = OpenedNodes::of(choice.open.as_deref());
    html! {
        @if !opened.names().is_empty() {
            p.opened {
                "Expanded in the graph: "
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
            p.notice { "The table below lists all nodes." }
        },
    }
}
