//! An execution: its graph with progress, the table of its nodes, and the inspector of the selected
//! node.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use sinew_documents::execution::ExecutionDescription;
use sinew_documents::node::TreeBranch;

use super::execution_head::{
    ExecutionTab, commands, execution_head, execution_title, live_source, read_execution,
};
use super::execution_nodes::nodes_part;
use super::node_inspector::{node_inspector, read_node};
use super::opened_nodes::OpenedNodes;
use crate::api_client::ApiPath;
use crate::console_error::ConsoleError;
use crate::drawing_view::{DrawingUse, drawing, large_drawing};
use crate::page_frame::{ConsolePage, ConsoleSection, live_part, page_or_problem, problem_box};
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
    /// Number of children that are skipped in the list of the selected node.
    pub(crate) skip: Option<String>,
    /// Node to which the graph shows the paths only.
    pub(crate) path: Option<String>,
}

impl NodeChoice {
    /// The page of an execution with the same nodes expanded.
    pub(crate) fn address(&self, id: &str) -> PageAddress {
        let view = self.fields().into_iter();
        view.fold(self.tab.address(id), |address, (name, value)| address.with_some(name, value))
    }

    /// Fields of the view, which forms must preserve.
    pub(crate) fn fields(&self) -> [(&'static str, Option<&str>); 8] {
        [
            ("open", self.open.as_deref()),
            ("from", self.from.as_deref()),
            ("to", self.to.as_deref()),
            ("cut", self.cut.as_deref()),
            ("artifact", self.artifact.as_deref()),
            ("status", self.status.as_deref()),
            ("quiet", self.quiet.as_deref()),
            ("path", self.path.as_deref()),
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
        .with_some("open", choice.open.as_deref())
        .with_some("to", choice.path.as_deref());
    let (tree, selected) = futures_util::future::join(
        request.api.get::<Vec<TreeBranch>>(&tree_path),
        read_node(request, id, &choice),
    )
    .await;
    let tree = tree?;
    // The filter applies to the table, not to the drawing.
    let focus = execution.failure.as_ref().and_then(|failure| failure.node.as_deref());
    let nodes = execution.nodes.total;
    let picture = if nodes <= MAX_DRAWN_NODES || choice.path.is_some() {
        picture_part(request.api.get_text(&drawing_path).await, &drawing_path, nodes, focus)
    } else {
        large_drawing(&drawing_path, nodes, DrawingUse::Inspected, focus)
    };
    let body = html! {
        (execution_head(request, &execution, ExecutionTab::Graph, node))
        div.split {
            div {
                (live_part("graph", &html! { (picture) (shown_parts(&execution, &choice)) }))
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

/// The parts of the graph that are shown: the paths to a node only, and expanded nodes, each with a
/// link that undoes it.
fn shown_parts(execution: &ExecutionDescription, choice: &NodeChoice) -> Markup {
    let id = execution.execution.as_str();
    let opened = OpenedNodes::of(choice.open.as_deref());
    let with = |open: Option<String>, path: Option<&str>| {
        let choice = NodeChoice { open, path: path.map(str::to_owned), ..choice.clone() };
        choice.address(id).with_some("node", choice.node.as_deref())
    };
    let failed = execution.failure.as_ref().and_then(|failure| failure.node.as_deref());
    let path = choice.path.as_deref().filter(|path| !path.is_empty());
    html! {
        p.opened {
            @if let Some(path) = path {
                a.label data-stay href=(with(opened.text(), None)) { "Only the path to " (shown_text::line(path, 60)) " ×" }
            } @else if let Some(failed) = failed {
                a.label data-stay href=(with(opened.text(), Some(failed))) { "Show only the path to the failure" }
            }
            @if !opened.names().is_empty() {
                span { "Expanded in the graph:" }
                @for name in opened.names() {
                    a.label data-stay href=(with(opened.without(name).text(), path)) { (shown_text::line(name, 60)) " ×" }
                }
                @if opened.names().len() > 1 { a.label data-stay href=(with(None, path)) { "Collapse all" } }
            }
        }
    }
}

fn picture_part(
    picture: Result<String, ConsoleError>,
    path: &ApiPath,
    nodes: usize,
    focus: Option<&str>,
) -> Markup {
    match picture {
        Ok(svg) if svg.len() <= MAX_DRAWING_BYTES => drawing(svg, DrawingUse::Inspected),
        Ok(_) => large_drawing(path, nodes, DrawingUse::Inspected, focus),
        // A drawing with more nodes than an SVG may have.
        Err(error) if error.status() != StatusCode::NOT_FOUND && nodes > MAX_DRAWN_NODES => {
            large_drawing(path, nodes, DrawingUse::Inspected, focus)
        }
        Err(error) => html! {
            (problem_box(&error))
            p.notice { "The table below lists all nodes." }
        },
    }
}
