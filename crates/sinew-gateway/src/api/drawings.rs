//! Drawings of workflows and executions, with expanded parts.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use sinew_diagram::{Direction, Drawing, DrawingTheme};
use sinew_inspection::drawing::{self, DrawnProgress, open_children, open_workflow};
use sinew_inspection::node_description::{child_execution, find_activation};
use sinew_inspection::record::Record;
use sinew_inspection::view_context::{MeshPresence, ViewContext};
use sinew_inspection::waiting::waits;
use sinew_operations::deployment::load_deployed;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_plan::{NodeOperation, Plan};
use sinew_protocol::code;
use sinew_runtime::local;

use super::api_call::{ApiCall, answer};
use super::placed_drawing::{self, PlacedPart, WantedPart};
use super::route::{ApiRoute, DRAWING_FORMATS, SVG, get};
use crate::http_error::HttpProblem;

/// Maximum number of expanded parts.
const MAX_OPENED: usize = 24;
/// Maximum nesting depth of expanded workflows.
const MAX_OPEN_DEPTH: usize = 4;

/// Returns the routes of this module.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        get(
            "/executions/{id}/drawing",
            "DrawExecution",
            "Draw the workflow with the state of an execution",
            draw_execution,
        )
        .query::<DrawingQuery>()
        .returns_media(SVG)
        .or_media(DRAWING_FORMATS),
    ]
}

/// Query of a drawing.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DrawingQuery {
    /// Prefix of a version's digest, for the drawing of a workflow. Default: the newest version.
    version: Option<String>,
    /// `svg` (default), `mermaid`, `json`, or `placed`: a part of a large drawing, with positions
    /// in px.
    format: Option<DrawingForm>,
    /// `light` (default) or `dark`.
    theme: Option<DrawingGround>,
    /// `td` (top down, default) or `lr` (left to right).
    direction: Option<DrawingDirection>,
    /// Omit the title above the drawing and the legend below it.
    #[serde(default)]
    bare: bool,
    /// Nodes to expand, separated by commas: maps, loops and forks show their children, and nodes
    /// that call a workflow show the workflow. `billing/check` is the node `check` of the workflow
    /// that `billing` calls.
    open: Option<String>,
    /// Draw only this node and what leads to it: its predecessors and theirs. For a child of a map, loop
    /// or fork that is not drawn: its node.
    to: Option<String>,
    /// Part of a placed drawing: `nodes` (default), `edges`, `states`, `window` (nodes and edges
    /// between `left`, `top`, `right` and `bottom`, with their texts), `place` (position of `node`)
    /// or `find` (nodes whose id or text contains `text`).
    part: Option<PlacedPart>,
    /// Index of the first node or edge to return, starting at 0.
    from: Option<usize>,
    /// Left edge of the window, in px.
    left: Option<f64>,
    /// Top edge of the window, in px.
    top: Option<f64>,
    /// Right edge of the window, in px.
    right: Option<f64>,
    /// Bottom edge of the window, in px.
    bottom: Option<f64>,
    /// Node whose position is requested.
    node: Option<String>,
    /// Text of the nodes to find.
    text: Option<String>,
}

/// Format of a drawing.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum DrawingForm {
    Svg,
    Mermaid,
    Json,
    Placed,
}

/// Color theme of a drawing.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum DrawingGround {
    Light,
    Dark,
}

/// Direction of a drawing.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum DrawingDirection {
    Td,
    Lr,
}

impl DrawingQuery {
    /// Returns the version that the drawing of a workflow shows.
    pub(super) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Returns the requested part of a placed drawing.
    fn wanted_part(&self) -> WantedPart<'_> {
        let side = |side: Option<f64>, other: f64| side.filter(|side| side.is_finite()).unwrap_or(other);
        WantedPart {
            part: self.part.unwrap_or_default(),
            from: self.from.unwrap_or_default(),
            window: [
                side(self.left, 0.0),
                side(self.top, 0.0),
                side(self.right, 1_000.0),
                side(self.bottom, 1_000.0),
            ],
            node: self.node.as_deref(),
            text: self.text.as_deref().unwrap_or_default(),
        }
    }

    fn direction(&self) -> Direction {
        match self.direction {
            Some(DrawingDirection::Lr) => Direction::LeftRight,
            _ => Direction::TopDown,
        }
    }

    fn opened(&self) -> Vec<String> {
        let names = self.open.as_deref().unwrap_or_default().split(',').filter(|name| !name.is_empty());
        names.take(MAX_OPENED).map(str::to_owned).collect()
    }

    /// Returns a text with everything that the layout of a plan depends on. It includes the number
    /// of nodes, because expanded children grow while an execution is running, and expanded
    /// workflows may be deployed again.
    fn layout_key(&self, digest: &str, nodes: usize) -> String {
        match self.open.as_deref().filter(|open| !open.is_empty()) {
            Some(open) => format!("{digest} {:?} {open} {nodes}", self.direction()),
            None => format!("{digest} {:?}", self.direction()),
        }
    }

    /// Replaces children that are not drawn, such as those of a collapsed map, by their nodes.
    fn with_drawn_nodes(mut self, drawing: &Drawing, record: &Record) -> Self {
        for name in [&mut self.to, &mut self.node].into_iter().flatten() {
            let is_drawn = drawing.nodes.iter().any(|node| node.id == *name);
            if let Some(act) = find_activation(record, name).filter(|_| !is_drawn) {
                name.clone_from(&record.execution.ctx().node_of(act).id);
            }
        }
        self
    }

    fn has_caption(&self) -> bool {
        !self.bare
    }
}

async fn draw_execution(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: DrawingQuery = call.query()?;
    let found = call.found().await?;
    let presence = found.presence().await?;
    let opener = DrawingOpener { call: &call, direction: query.direction() };
    let mut drawing = opener.execution(&found.record, &presence, query.opened(), 0).await;
    let query = query.with_drawn_nodes(&drawing, &found.record);
    drawing.caption = query.has_caption().then(|| drawing::caption(&found.record));
    let digest = found.record.execution.program().graph.digest().to_string();
    let key = query.layout_key(&digest, drawing.nodes.len());
    respond_drawing(&call, &query, drawing, key).await
}

/// Returns a part of the drawing of a plan with this digest if its layout is cached, as for most
/// parts of a large graph.
pub(super) async fn respond_kept(
    call: &ApiCall,
    query: &DrawingQuery,
    digest: &str,
) -> Option<Result<Response, HttpProblem>> {
    let is_plain =
        query.opened().is_empty() && query.to.is_none() && matches!(query.format, Some(DrawingForm::Placed));
    let key = is_plain.then(|| query.layout_key(digest, 0))?;
    placed_drawing::respond_kept(&call.state.layouts, query.wanted_part(), &key).await
}

/// Returns the drawing of a plan with this digest.
pub(super) async fn respond_plan(
    call: &ApiCall,
    query: &DrawingQuery,
    plan: &Plan,
    digest: &str,
) -> Result<Response, HttpProblem> {
    let opener = DrawingOpener { call, direction: query.direction() };
    let drawing = opener.plan(plan, query.opened(), 0).await;
    let key = query.layout_key(digest, drawing.nodes.len());
    respond_drawing(call, query, drawing, key).await
}

/// Returns a drawing in the requested format. `key` identifies what its layout depends on.
pub(super) async fn respond_drawing(
    call: &ApiCall,
    query: &DrawingQuery,
    drawing: Drawing,
    key: String,
) -> Result<Response, HttpProblem> {
    let (drawing, key) = match query.to.as_deref().filter(|to| !to.is_empty()) {
        Some(to) => (drawing.paths_to(to).ok_or_else(|| not_drawn(to))?, format!("{key} to {to}")),
        None => (drawing, key),
    };
    let theme = match query.theme {
        Some(DrawingGround::Dark) => DrawingTheme::Dark,
        _ => DrawingTheme::Light,
    };
    let text = |media_type: &'static str, text: String| {
        ([(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, "no-store")], text).into_response()
    };
    match query.format.unwrap_or(DrawingForm::Svg) {
        DrawingForm::Json => answer(&drawing),
        DrawingForm::Placed => placed_drawing::respond(call, query.wanted_part(), drawing, key).await,
        DrawingForm::Mermaid => Ok(text("text/vnd.mermaid; charset=utf-8", sinew_diagram::mermaid(&drawing))),
        DrawingForm::Svg => {
            let painted = call.compute(move || sinew_diagram::svg_in(&drawing, theme)).await?;
            let svg = painted.map_err(|error| {
                Failure::new(FailureKind::Failed, error.code(), error.to_string())
                    .hint("format=mermaid has no node limit")
            })?;
            // A drawing opened as a separate page must not load or run anything.
            let policy = "default-src 'none'; style-src 'unsafe-inline'; sandbox";
            let headers =
                [(header::CONTENT_SECURITY_POLICY, policy), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
            Ok((headers, text("image/svg+xml", svg)).into_response())
        }
    }
}

fn not_drawn(node: &str) -> Failure {
    let text = format!("the drawing has no node {:?}", crate::operations::short(node, 100));
    Failure::new(FailureKind::NotFound, code::NO_SUCH_NODE.as_str(), text)
}

/// Draws plans and executions with their expanded parts. Unreadable parts remain collapsed.
struct DrawingOpener<'a> {
    call: &'a ApiCall,
    direction: Direction,
}

/// Groups expanded names by node.
fn by_head(opened: Vec<String>) -> Vec<(String, Vec<String>)> {
    let mut heads: Vec<(String, Vec<String>)> = Vec::new();
    for name in opened {
        let (head, rest) = match name.split_once('/') {
            Some((head, rest)) => (head.to_owned(), Some(rest.to_owned())),
            None => (name, None),
        };
        let at = heads.iter().position(|(known, _)| *known == head).unwrap_or_else(|| {
            heads.push((head, Vec::new()));
            heads.len() - 1
        });
        heads[at].1.extend(rest);
    }
    heads
}

/// Returns the name of the workflow that a node calls, or `None` for other nodes.
fn called_workflow<'p>(plan: &'p Plan, node: &str) -> Option<&'p str> {
    let node = plan.node(plan.find(node)?);
    node.agent.as_deref().filter(|_| node.op == NodeOperation::Workflow)
}

impl DrawingOpener<'_> {
    fn execution<'s>(
        &'s self,
        record: &'s Record,
        presence: &'s MeshPresence,
        opened: Vec<String>,
        depth: usize,
    ) -> BoxFuture<'s, Drawing> {
        Box::pin(async move {
            let graph = &record.execution.program().graph;
            let context = ViewContext::of(&record.execution, local::now(), presence);
            let progress =
                DrawnProgress::of(graph, record.execution.journal()).with_waits(&waits(record, &context));
            let mut drawing = drawing::draw(graph.plan(), self.direction, Some(&progress));
            for (node, within) in by_head(opened) {
                let Some(workflow) = called_workflow(graph.plan(), &node) else {
                    open_children(&mut drawing, record, &node);
                    continue;
                };
                if depth < MAX_OPEN_DEPTH
                    && let Some(inside) = self.called(record, presence, &node, workflow, within, depth).await
                {
                    open_workflow(&mut drawing, &node, workflow, inside);
                }
            }
            drawing
        })
    }

    /// Returns the execution that a node called or, before the node has started, the deployed
    /// workflow.
    async fn called(
        &self,
        record: &Record,
        presence: &MeshPresence,
        node: &str,
        workflow: &str,
        within: Vec<String>,
        depth: usize,
    ) -> Option<Drawing> {
        if !self.call.operations.offers(workflow) {
            return None;
        }
        let child = find_activation(record, node).and_then(|act| child_execution(record, act));
        if let Some(child) = child
            && let Ok(record) = self.call.operator.record(&child).await
        {
            return Some(self.execution(&record, presence, within, depth + 1).await);
        }
        self.deployed(workflow, within, depth).await
    }

    async fn deployed(&self, workflow: &str, within: Vec<String>, depth: usize) -> Option<Drawing> {
        let loaded = load_deployed(&self.call.operator, std::path::Path::new(workflow)).await.ok()?;
        Some(self.plan(&loaded.pick(None).ok()?.plan, within, depth + 1).await)
    }

    fn plan<'s>(&'s self, plan: &'s Plan, opened: Vec<String>, depth: usize) -> BoxFuture<'s, Drawing> {
        Box::pin(async move {
            let mut drawing = drawing::draw(plan, self.direction, None);
            for (node, within) in by_head(opened) {
                let Some(workflow) = called_workflow(plan, &node) else { continue };
                if depth < MAX_OPEN_DEPTH
                    && self.call.operations.offers(workflow)
                    && let Some(inside) = self.deployed(workflow, within, depth).await
                {
                    open_workflow(&mut drawing, &node, workflow, inside);
                }
            }
            drawing
        })
    }
}

#[cfg(test)]
mod tests {
    use super::by_head;

    #[test]
    fn names_are_gathered_by_the_node_before_the_slash() {
        let names = ["a", "b/c", "b/c/d", "a/e", "f"].map(str::to_owned).to_vec();
        let gathered: Vec<(String, String)> =
            by_head(names).into_iter().map(|(head, within)| (head, within.join(" "))).collect();
        let wanted = [("a", "e"), ("b", "c c/d"), ("f", "")];
        assert_eq!(gathered, wanted.map(|(head, within)| (head.to_owned(), within.to_owned())));
    }
}
