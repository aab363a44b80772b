//! Views of the whole mesh: its calls, the artifacts of many executions, and the events of all
//! executions as a stream.

use std::collections::BTreeSet;

use axum::response::Response;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use sinew_diagram::{Direction, Drawing, DrawnEdge, DrawnNode, EdgeKind, NodeMark, Shape, Status};
use sinew_documents::agent::{AgentKind, AgentRow};
use sinew_documents::artifact::{ArtifactUses, MeshArtifact, MeshArtifactPage};
use sinew_documents::execution_filter::ExecutionFilter;
use sinew_documents::figures::TrafficReport;
use sinew_documents::words;
use sinew_executor::client::ClientError;
use sinew_mesh::event::{Event, EventFilter, EventStart, Events};
use sinew_operations::agent_list::online_rows;
use sinew_operations::artifact_uses::{ArtifactMarks, uses_in};
use sinew_operations::deployed_workflows::partners;
use sinew_operations::execution_artifacts::{self, LeftArtifact};
use sinew_operations::execution_list::{ExecutionCursor, ListDepth, RestOfList};
use sinew_operations::failure::Failure;
use sinew_operations::mesh_operator::RowDetails;
use sinew_operations::observed_calls::CallCounts;
use sinew_protocol::header::{SEQ, TIME};

use super::api_call::{ApiCall, answer, bad_request};
use super::drawings::{DrawingQuery, respond_drawing};
use super::executions::ArtifactQuery;
use super::frame_stream::{FrameQueue, FrameSource, FrameStream};
use super::route::{ApiRoute, DRAWING_FORMATS, EVENT_STREAM, SVG, get};
use crate::http_error::HttpProblem;

/// Maximum number of workflows and agents in a map.
const MAX_MAP_NODES: usize = 400;
/// Number of executions whose artifacts are on a page.
const EXECUTIONS_OF_PAGE: usize = 40;
/// Maximum number of artifacts per page.
const MAX_ARTIFACTS: usize = 200;

/// Returns the routes of this module.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        get(
            "/executions/{id}/artifact/uses",
            "ListArtifactUses",
            "List the tasks that received an artifact, in its execution and in recent ones",
            artifact_uses,
        )
        .query::<ArtifactQuery>()
        .returns::<ArtifactUses>(),
        get("/map", "DrawMap", "Draw which workflows and agents call each other", map)
            .query::<DrawingQuery>()
            .returns_media(SVG)
            .or_media(DRAWING_FORMATS),
        get(
            "/artifacts",
            "ListMeshArtifacts",
            "List artifacts of recent executions, newest first",
            artifacts,
        )
        .query::<MeshArtifactsQuery>()
        .returns::<MeshArtifactPage>(),
        get("/traffic", "FollowTraffic", "Stream events of all executions from now on", traffic)
            .query::<TrafficQuery>()
            .returns_media(EVENT_STREAM),
        get(
            "/traffic/figures",
            "GetTrafficFigures",
            "Get messages per second by group of subjects, and node durations by agent, for the last minute",
            traffic_figures,
        )
        .returns::<TrafficReport>(),
    ]
}

/// Returns the map: workflows, the agents and workflows that they call, and whether those are
/// online. Edges include the number of calls in recent executions.
async fn map(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: DrawingQuery = call.query()?;
    let online: Vec<AgentRow> = online_rows(&call.operator.online().await?);
    let is_online = |name: &str| online.iter().any(|row| row.name == name);
    let (mut called, mut edges) = (BTreeSet::new(), Vec::new());
    let mut nodes = Vec::new();
    let deployed = call.operator.workflows().await?.list();
    let mut names = BTreeSet::new();
    for version in &deployed {
        let name = &version.deployment.name;
        if !call.operations.offers(name) || !names.insert(name.clone()) || nodes.len() >= MAX_MAP_NODES {
            continue;
        }
        let program = call.operator.client.programs().by_digest(&version.deployment.digest).await;
        let program = program.map_err(ClientError::Plan).map_err(Failure::from)?;
        nodes.push(map_node(name, Shape::Subworkflow, "Workflow", Status::Succeeded));
        let plan = program.graph.plan();
        for partner in partners(plan, true).into_iter().chain(partners(plan, false)) {
            called.insert(partner.to_owned());
            edges.push(map_edge(name, partner));
        }
    }
    let (executions, calls) = call.state.calls.observe(&call.operator).await?;
    add_calls(&mut edges, &calls, executions);
    // Agents that called others are included; calling people and programs are not.
    let agents_of = |(from, to): (String, String)| is_online(&from).then_some(from).into_iter().chain([to]);
    called.extend(calls.into_keys().flat_map(agents_of));
    let agents = online.iter().filter(|row| row.kind != AgentKind::Workflow).map(|row| row.name.clone());
    let others: BTreeSet<String> = called.into_iter().chain(agents).collect();
    for name in others.into_iter().filter(|name| !names.contains(name) && call.operations.offers(name)) {
        if nodes.len() >= MAX_MAP_NODES {
            break;
        }
        let status = if is_online(&name) { Status::Succeeded } else { Status::Failed };
        let mut node = map_node(&name, Shape::Task, "Agent", status);
        if let Some(mark) = node.status.as_mut().filter(|_| status == Status::Failed) {
            mark.note = Some("not online".to_owned());
        }
        nodes.push(node);
    }
    keep_drawn(&mut edges, &nodes);
    let drawing = Drawing { direction: Direction::LeftRight, caption: None, nodes, edges };
    let key = layout_key(&drawing);
    respond_drawing(&call, &query, drawing, key).await
}

/// Keeps the edges between drawn nodes.
fn keep_drawn(edges: &mut Vec<DrawnEdge>, nodes: &[DrawnNode]) {
    let is_drawn = |name: &str| nodes.iter().any(|node| node.id == name);
    edges.retain(|edge| is_drawn(&edge.from) && is_drawn(&edge.to));
}

/// Returns a text with everything that the layout of a map depends on.
fn layout_key(drawing: &Drawing) -> String {
    let names: Vec<&str> = drawing.nodes.iter().map(|node| node.id.as_str()).collect();
    let ends: Vec<(&str, &str)> = drawing.edges.iter().map(|edge| (&*edge.from, &*edge.to)).collect();
    format!("map {names:?} {ends:?}")
}

/// Marks the traversed edges, and adds edges for calls that no plan declares.
fn add_calls(edges: &mut Vec<DrawnEdge>, calls: &CallCounts, executions: usize) {
    let times = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    for edge in edges.iter_mut().filter(|_| executions > 0) {
        let count = calls.get(&(edge.from.clone(), edge.to.clone())).copied().unwrap_or_default();
        edge.taken = Some(times(count));
    }
    for ((from, to), count) in calls {
        if !edges.iter().any(|edge| edge.from == *from && edge.to == *to) {
            let label = Some("not declared".to_owned());
            let (from, to, taken) = (from.clone(), to.clone(), Some(times(*count)));
            edges.push(DrawnEdge { from, to, label, kind: EdgeKind::Attach, taken });
        }
    }
}

fn map_node(name: &str, shape: Shape, kind: &str, status: Status) -> DrawnNode {
    let mark = NodeMark { status, note: None };
    DrawnNode {
        id: name.to_owned(),
        shape,
        title: kind.to_owned(),
        lines: vec![name.to_owned()],
        // Most agents are online, so only the others are marked.
        status: (status != Status::Succeeded).then_some(mark),
        group: None,
        color: None,
        is_stack: false,
        is_quiet: false,
        sockets: Vec::new(),
    }
}

fn map_edge(from: &str, to: &str) -> DrawnEdge {
    DrawnEdge { from: from.to_owned(), to: to.to_owned(), label: None, kind: EdgeKind::Flow, taken: None }
}

/// Query of the artifacts of a mesh.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MeshArtifactsQuery {
    /// Only artifacts whose name contains this text.
    name: Option<String>,
    /// Only artifacts of executions of this workflow.
    workflow: Option<String>,
    /// The `next` of the previous page.
    cursor: Option<String>,
}

/// Returns artifacts that agents named, those of the latest executions first.
async fn artifacts(call: ApiCall) -> Result<Response, HttpProblem> {
    let query: MeshArtifactsQuery = call.query()?;
    let after = query.cursor.as_deref().map(str::parse::<ExecutionCursor>).transpose();
    let after = after.map_err(|_| bad_request("cursor: not the `next` of a page"))?;
    call.check_every_caller()?;
    if let Some(workflow) = &query.workflow {
        call.check_offered(workflow)?;
    } else {
        call.check_whole()?;
    }
    let filter = ExecutionFilter {
        workflow: query.workflow.clone().into_iter().collect(),
        ..ExecutionFilter::default()
    };
    let depth = ListDepth {
        limit: EXECUTIONS_OF_PAGE + 1,
        details: RowDetails::All,
        after,
        counts_rest: RestOfList::Dropped,
    };
    let rows = call.operator.list(&filter, depth).await?;
    let next = (rows.len() > EXECUTIONS_OF_PAGE)
        .then(|| ExecutionCursor::of(&rows[EXECUTIONS_OF_PAGE - 1]).to_string());
    let wanted = query.name.as_deref().unwrap_or_default().to_lowercase();
    let mut found = Vec::new();
    for row in rows.iter().take(EXECUTIONS_OF_PAGE) {
        let id = call.find(&row.execution).await?;
        // An execution may be deleted between the list and its record.
        let Ok(record) = call.operator.record(&id).await else { continue };
        let left = execution_artifacts::artifacts(&record, None);
        let named = left.iter().filter(|one| !one.is_generated).map(LeftArtifact::row);
        let named = named.filter(|row| row.meta.name.as_str().to_lowercase().contains(&wanted));
        found.extend(named.map(|artifact| MeshArtifact {
            artifact,
            execution: row.execution.clone(),
            workflow: row.workflow.clone(),
            started: record.execution.state().started_at.into(),
        }));
    }
    found.truncate(MAX_ARTIFACTS);
    answer(&MeshArtifactPage { artifacts: found, next })
}

/// Maximum number of other executions searched for uses of an artifact.
const SEARCHED_EXECUTIONS: usize = 40;

/// Returns the tasks that received an artifact.
async fn artifact_uses(call: ApiCall) -> Result<Response, HttpProblem> {
    let ArtifactQuery { name } = call.query()?;
    let found = call.found().await?;
    let left = execution_artifacts::find_artifact(&found.record, &name)?;
    let marks = ArtifactMarks::of(&left);
    let mut uses = uses_in(&found.record, &marks);
    // Other executions are searched only for callers who may see all of them.
    let mut searched = 1;
    if call.operations.offers_everything() {
        let depth = ListDepth {
            limit: SEARCHED_EXECUTIONS,
            details: RowDetails::Faults,
            after: None,
            counts_rest: RestOfList::Dropped,
        };
        for row in call.operator.list(&ExecutionFilter::default(), depth).await? {
            if row.execution == found.record.id() {
                continue;
            }
            let id = call.find(&row.execution).await?;
            // An execution may be deleted between the list and its record.
            let Ok(record) = call.operator.record(&id).await else { continue };
            uses.extend(uses_in(&record, &marks));
            searched += 1;
        }
    }
    answer(&ArtifactUses { uses, searched_executions: searched })
}

/// Returns the statistics of the last minute.
async fn traffic_figures(call: ApiCall) -> Result<Response, HttpProblem> {
    call.check_whole()?;
    answer(&call.state.traffic.report(call.operator.mesh(), &call.state.draining).await?)
}

/// Maximum number of bytes sent of an event's body; the execution shows the complete body.
const MAX_SHOWN_BYTES: usize = 2_048;

/// Query of the traffic.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrafficQuery {
    /// Only entries of this workflow.
    workflow: Option<String>,
    /// Only events of this type, such as `workflow_node_execution_start` or `command`.
    #[serde(rename = "type")]
    kind: Option<String>,
}

/// Source of the events of all executions.
struct TrafficFrames {
    events: Events,
}

/// Returns the events of all executions from now on as a stream.
async fn traffic(call: ApiCall) -> Result<Response, HttpProblem> {
    let TrafficQuery { workflow, kind } = call.query()?;
    call.check_every_caller()?;
    match &workflow {
        Some(workflow) => call.check_offered(workflow)?,
        None => call.check_whole()?,
    }
    let stream = FrameStream::open(&call.state)?;
    let filter = EventFilter { workflow, execution: None, kind };
    let events =
        call.operator.mesh().events().follow(&filter, EventStart::Now).await.map_err(Failure::from)?;
    Ok(stream.respond(TrafficFrames { events }))
}

impl FrameSource for TrafficFrames {
    async fn fill(&mut self, queue: &mut FrameQueue) {
        let event = self.events.next().await;
        queue.push(frame_of(&event));
    }
}

/// Encodes an event as a frame. Its body is untrusted text, which clients display as text.
fn frame_of(event: &Event) -> Bytes {
    let header = |name: &str| event.headers.get(name).map(|value| value.as_str().to_owned());
    let text = String::from_utf8_lossy(&event.body);
    let end = text.floor_char_boundary(MAX_SHOWN_BYTES);
    let at = header(TIME).and_then(|at| at.parse().ok()).map(words::instant);
    let shown: Value = json!({
        "workflow": event.workflow.name(),
        "execution": event.execution.as_str(),
        "type": event.kind.name(),
        "seq": header(SEQ),
        "at": at,
        "bytes": event.body.len(),
        "body": &text[..end],
    });
    // JSON output contains no line breaks, so the data is one line.
    format!("data: {shown}\n\n").into()
}
