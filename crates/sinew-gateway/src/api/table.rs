//! Every operation of the API in one table: its route, parameters, body and response.

use serde_json::Value;
use sinew_protocol::access::AccessRole;

use super::drawings::DrawingQuery;
use super::executions::{
    ArtifactQuery, ComparisonQuery, CountQuery, EventsQuery, ListQuery, NodeQuery, RecordQuery,
    TimelineQuery, TreeQuery,
};
use super::steering::{CommandBody, ForkBody, ResumeBody, RetryBody, StartBody};
use super::{agents, approvals, editor, figures, inspections, mesh_views, workflows};

/// An operation of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiOperation {
    Document,
    Pulse,
    GetActivity,
    ListExecutions,
    CountExecutions,
    StartExecution,
    DescribeExecution,
    GetRecord,
    GetRecordedCase,
    GetTree,
    GetTimeline,
    CompareExecutions,
    DescribeNode,
    GetEvents,
    GetResult,
    DrawExecution,
    ListArtifacts,
    GetArtifact,
    CancelExecution,
    PauseExecution,
    ResumeExecution,
    RetryExecution,
    ForkExecution,
    ListApprovals,
    GetApproval,
    Decide,
    ListWorkflows,
    DescribeWorkflow,
    ListVersions,
    DrawWorkflow,
    ValidateWorkflow,
    DeployWorkflow,
    DeleteWorkflow,
    ListAgents,
    DescribeAgent,
    RetireAgent,
    ListTools,
    TryConversion,
    DrawMap,
    ListMeshArtifacts,
    FollowTraffic,
    FollowChanges,
    InspectExport,
    CompareExports,
    RunCases,
    DryRunFile,
    GetSource,
    ListExecutionAgents,
    ListAgentProcesses,
    ListArtifactUses,
    FollowProgress,
    GetTrafficFigures,
    ExamineMesh,
    ListWorkflowFigures,
    CountOutcomes,
    ListQuarantine,
}

impl ApiOperation {
    /// Returns the lowest role that may call the operation.
    pub(crate) const fn role(self) -> AccessRole {
        match self {
            Self::Document
            | Self::Pulse
            | Self::GetActivity
            | Self::ListExecutions
            | Self::CountExecutions
            | Self::DescribeExecution
            | Self::GetRecord
            | Self::GetRecordedCase
            | Self::GetTree
            | Self::GetTimeline
            | Self::CompareExecutions
            | Self::DescribeNode
            | Self::GetEvents
            | Self::GetResult
            | Self::DrawExecution
            | Self::ListArtifacts
            | Self::GetArtifact
            | Self::ListApprovals
            | Self::GetApproval
            | Self::ListWorkflows
            | Self::DescribeWorkflow
            | Self::ListVersions
            | Self::DrawWorkflow
            | Self::ValidateWorkflow
            | Self::ListAgents
            | Self::DescribeAgent
            | Self::ListTools
            | Self::TryConversion
            | Self::DrawMap
            | Self::ListMeshArtifacts
            | Self::FollowTraffic
            | Self::FollowChanges
            | Self::InspectExport
            | Self::CompareExports
            | Self::RunCases
            | Self::DryRunFile
            | Self::GetSource
            | Self::ListExecutionAgents
            | Self::ListAgentProcesses
            | Self::ListArtifactUses
            | Self::FollowProgress
            | Self::GetTrafficFigures
            | Self::ListWorkflowFigures
            | Self::CountOutcomes
            | Self::ListQuarantine
            | Self::ExamineMesh => AccessRole::Operator,
            Self::StartExecution
            | Self::CancelExecution
            | Self::PauseExecution
            | Self::ResumeExecution
            | Self::RetryExecution
            | Self::ForkExecution
            | Self::Decide => AccessRole::Client,
            Self::DeployWorkflow | Self::DeleteWorkflow | Self::RetireAgent => AccessRole::Admin,
        }
    }
}

/// Maximum size of an inspected export.
const MAX_EXPORT_BYTES: usize = 16 << 20;

/// Maximum size of a start, which may contain files.
const MAX_START_BYTES: usize = 12 << 20;

impl ApiOperation {
    /// Returns whether a body is required although its members are optional: it needs one of
    /// several.
    pub(crate) const fn needs_one_member(self) -> bool {
        matches!(self, Self::StartExecution | Self::ForkExecution)
    }

    /// Returns the maximum body size: `limit`, except for files that may be larger.
    pub(crate) fn body_bytes(self, limit: usize) -> usize {
        match self {
            Self::InspectExport => limit.max(MAX_EXPORT_BYTES),
            Self::StartExecution => limit.max(MAX_START_BYTES),
            Self::CompareExports => limit.max(2 * MAX_EXPORT_BYTES),
            _ => limit,
        }
    }
}

/// A row of the table.
pub(crate) struct ApiRoute {
    pub(crate) method: &'static str,
    /// Path below [`super::BASE`].
    pub(crate) path: &'static str,
    pub(crate) operation: ApiOperation,
    /// Summary in the OpenAPI document.
    pub(crate) summary: &'static str,
    /// JSON Schema of the query, an object whose members are the parameters; `None` without a query.
    pub(crate) query: Option<fn() -> Value>,
    /// The body; `None` without one.
    pub(crate) body: Option<ApiBody>,
    /// Media type of the response.
    pub(crate) answer: &'static str,
    /// Media types of alternative responses, selected by a parameter or `Accept`.
    pub(crate) other_answers: &'static [&'static str],
}

/// Body of a request.
pub(crate) enum ApiBody {
    /// JSON, with its schema.
    Json(fn() -> Value),
    /// A file: YAML, or JSON, which is a subset of YAML.
    Text,
}

const JSON: &str = "application/json";
const SVG: &str = "image/svg+xml";
const EVENT_STREAM: &str = "text/event-stream";
/// Alternative formats of drawings.
const DRAWN: [&str; 2] = [JSON, "text/vnd.mermaid"];

const fn get(path: &'static str, operation: ApiOperation, summary: &'static str) -> ApiRoute {
    ApiRoute {
        method: "GET",
        path,
        operation,
        summary,
        query: None,
        body: None,
        answer: JSON,
        other_answers: &[],
    }
}

const fn post(path: &'static str, operation: ApiOperation, summary: &'static str, body: ApiBody) -> ApiRoute {
    ApiRoute {
        method: "POST",
        path,
        operation,
        summary,
        query: None,
        body: Some(body),
        answer: JSON,
        other_answers: &[],
    }
}

impl ApiRoute {
    const fn with_query(self, query: fn() -> Value) -> Self {
        Self { query: Some(query), ..self }
    }

    const fn answers(self, answer: &'static str) -> Self {
        Self { answer, ..self }
    }

    const fn or_answers(self, other_answers: &'static [&'static str]) -> Self {
        Self { other_answers, ..self }
    }
}

/// Returns the JSON Schema of a type, without its `$schema`.
fn schema<T: schemars::JsonSchema>() -> Value {
    let mut schema = schemars::schema_for!(T).to_value();
    if let Some(members) = schema.as_object_mut() {
        members.remove("$schema");
        members.remove("title");
    }
    schema
}

use ApiBody::{Json, Text};

/// All operations, in the order of the document.
pub(crate) const API_ROUTES: [ApiRoute; 56] = [
    get("/openapi.json", ApiOperation::Document, "This document"),
    get("/pulse", ApiOperation::Pulse, "Executors, shards, streams, agents, open executions"),
    get(
        "/pulse/activity",
        ApiOperation::GetActivity,
        "Executions that started, ended and failed by minute, and the errors they failed by",
    )
    .with_query(schema::<agents::ActivityQuery>),
    get(
        "/executions",
        ApiOperation::ListExecutions,
        "List executions: those that go on first, then the newest",
    )
    .with_query(schema::<ListQuery>),
    get("/execution-counts", ApiOperation::CountExecutions, "Number of executions of each status")
        .with_query(schema::<CountQuery>),
    post("/executions", ApiOperation::StartExecution, "Start a workflow", Json(schema::<StartBody>)),
    get(
        "/executions/{id}",
        ApiOperation::DescribeExecution,
        "Status of an execution, with causes and next steps",
    ),
    get("/executions/{id}/record", ApiOperation::GetRecord, "Everything that is known of an execution")
        .with_query(schema::<RecordQuery>),
    get(
        "/executions/{id}/case",
        ApiOperation::GetRecordedCase,
        "Test file with a case in which agents answer as they did in an execution that has ended",
    )
    .with_query(schema::<editor::RecordedCaseQuery>),
    get("/executions/{id}/tree", ApiOperation::GetTree, "Nodes of an execution")
        .with_query(schema::<TreeQuery>),
    get("/executions/{id}/timeline", ApiOperation::GetTimeline, "Times of the activations by kind of time")
        .with_query(schema::<TimelineQuery>)
        .or_answers(&["text/csv"]),
    get(
        "/executions/{id}/comparison",
        ApiOperation::CompareExecutions,
        "Two executions side by side: nodes, and changes of values as JSON Patch",
    )
    .with_query(schema::<ComparisonQuery>),
    get("/executions/{id}/node", ApiOperation::DescribeNode, "Input, output and attempts of a node")
        .with_query(schema::<NodeQuery>),
    get(
        "/executions/{id}/events",
        ApiOperation::GetEvents,
        "Events, as a page or as a stream (text/event-stream)",
    )
    .with_query(schema::<EventsQuery>)
    .or_answers(&[EVENT_STREAM]),
    get(
        "/executions/{id}/progress",
        ApiOperation::FollowProgress,
        "Words of agents at work from now on, as a stream: pieces of answers too, which are not kept",
    )
    .answers(EVENT_STREAM),
    get(
        "/executions/{id}/agents",
        ApiOperation::ListExecutionAgents,
        "Agents that an execution asked: tasks, failures, times, tokens and price",
    ),
    get("/executions/{id}/result", ApiOperation::GetResult, "Output or error of an execution"),
    get(
        "/executions/{id}/drawing",
        ApiOperation::DrawExecution,
        "Drawing of the workflow with the execution in it",
    )
    .with_query(schema::<DrawingQuery>)
    .answers(SVG)
    .or_answers(&DRAWN),
    get("/executions/{id}/artifacts", ApiOperation::ListArtifacts, "Artifacts that agents left"),
    get("/executions/{id}/artifact", ApiOperation::GetArtifact, "Bytes of an artifact")
        .with_query(schema::<ArtifactQuery>)
        .answers("application/octet-stream"),
    get(
        "/executions/{id}/artifact/uses",
        ApiOperation::ListArtifactUses,
        "Tasks that were given an artifact, in its execution and in the latest ones",
    )
    .with_query(schema::<ArtifactQuery>),
    post(
        "/executions/{id}/cancel",
        ApiOperation::CancelExecution,
        "Cancel an execution",
        Json(schema::<CommandBody>),
    ),
    post(
        "/executions/{id}/pause",
        ApiOperation::PauseExecution,
        "Pause an execution",
        Json(schema::<CommandBody>),
    ),
    post(
        "/executions/{id}/resume",
        ApiOperation::ResumeExecution,
        "Resume an execution",
        Json(schema::<ResumeBody>),
    ),
    post(
        "/executions/{id}/retry",
        ApiOperation::RetryExecution,
        "Run again what failed, in the same execution",
        Json(schema::<RetryBody>),
    ),
    post(
        "/executions/{id}/fork",
        ApiOperation::ForkExecution,
        "Start an execution that leaves the way of this one at a node",
        Json(schema::<ForkBody>),
    ),
    get("/approvals", ApiOperation::ListApprovals, "Questions that wait for people")
        .with_query(schema::<approvals::ApprovalsQuery>),
    get("/executions/{id}/approval", ApiOperation::GetApproval, "A question with the data to judge")
        .with_query(schema::<approvals::ApprovalQuery>),
    post(
        "/executions/{id}/decisions",
        ApiOperation::Decide,
        "Approve, reject or answer a question",
        Json(schema::<approvals::DecisionBody>),
    ),
    get("/workflows", ApiOperation::ListWorkflows, "Workflows that are deployed")
        .with_query(schema::<workflows::NamedQuery>),
    get("/workflows/{name}", ApiOperation::DescribeWorkflow, "Nodes, schemas and partners of a workflow")
        .with_query(schema::<workflows::DescribeQuery>),
    get("/workflows/{name}/versions", ApiOperation::ListVersions, "Versions of a workflow, newest first"),
    get(
        "/workflows/{name}/source",
        ApiOperation::GetSource,
        "Files of a workflow, with what was found in them",
    )
    .with_query(schema::<workflows::VersionQuery>),
    get("/workflows/{name}/drawing", ApiOperation::DrawWorkflow, "Drawing of a workflow")
        .with_query(schema::<DrawingQuery>)
        .answers(SVG)
        .or_answers(&DRAWN),
    post("/validations", ApiOperation::ValidateWorkflow, "Check a workflow file, or an agent file", Text)
        .with_query(schema::<workflows::ValidateQuery>),
    post(
        "/tests",
        ApiOperation::RunCases,
        "Run the cases of a test file on a workflow file or a model agent, in virtual time",
        Json(schema::<editor::CasesBody>),
    ),
    post(
        "/dry-runs",
        ApiOperation::DryRunFile,
        "Say which agents a workflow file would ask, with what",
        Json(schema::<editor::DryRunBody>),
    ),
    post("/workflows", ApiOperation::DeployWorkflow, "Deploy the workflows of a file", Text)
        .with_query(schema::<workflows::FileQuery>),
    ApiRoute {
        method: "DELETE",
        path: "/workflows/{name}",
        operation: ApiOperation::DeleteWorkflow,
        summary: "Remove a workflow: nothing new is started of it",
        query: Some(schema::<workflows::DeleteQuery>),
        body: None,
        answer: JSON,
        other_answers: &[],
    },
    get(
        "/agents",
        ApiOperation::ListAgents,
        "Agents that are online, and those that died and were not retired",
    )
    .with_query(schema::<workflows::NamedQuery>),
    get("/agents/{name}", ApiOperation::DescribeAgent, "State, skills and schemas of an agent")
        .with_query(schema::<agents::AgentQuery>),
    ApiRoute {
        method: "DELETE",
        path: "/agents/{name}",
        operation: ApiOperation::RetireAgent,
        summary: "Retire an agent that is offline: it is no longer listed",
        query: None,
        body: None,
        answer: JSON,
        other_answers: &[],
    },
    get(
        "/agents/{name}/processes",
        ApiOperation::ListAgentProcesses,
        "Processes of an agent with their figures and last errors, as they tell them",
    ),
    post(
        "/conversions",
        ApiOperation::TryConversion,
        "Try the conversion function of a connection with a sample",
        Json(schema::<workflows::ConversionBody>),
    ),
    get("/map", ApiOperation::DrawMap, "Drawing of who calls whom: workflows and agents")
        .with_query(schema::<DrawingQuery>)
        .answers(SVG)
        .or_answers(&DRAWN),
    get(
        "/artifacts",
        ApiOperation::ListMeshArtifacts,
        "Artifacts that agents named, of the latest executions first",
    )
    .with_query(schema::<mesh_views::MeshArtifactsQuery>),
    get("/traffic", ApiOperation::FollowTraffic, "Events of all executions from now on, as a stream")
        .with_query(schema::<mesh_views::TrafficQuery>)
        .answers(EVENT_STREAM),
    get(
        "/changes",
        ApiOperation::FollowChanges,
        "Kinds of things that changed (`executions`, `agents`), at most once a second, as a stream",
    )
    .answers(EVENT_STREAM),
    get(
        "/traffic/figures",
        ApiOperation::GetTrafficFigures,
        "Messages a second by group of subjects, and times of nodes by agent, of the last minute",
    ),
    get(
        "/workflow-figures",
        ApiOperation::ListWorkflowFigures,
        "Executions of each workflow that ended and failed, and how long they took, by span of time",
    )
    .with_query(schema::<figures::FiguresQuery>),
    get(
        "/workflows/{name}/outcomes",
        ApiOperation::CountOutcomes,
        "How the executions of a workflow ended, by version",
    ),
    get("/quarantine", ApiOperation::ListQuarantine, "Messages that were set aside, with the reasons")
        .with_query(schema::<figures::QuarantineQuery>),
    get("/doctor", ApiOperation::ExamineMesh, "Checks of the mesh, each with what to do about it"),
    post(
        "/inspections",
        ApiOperation::InspectExport,
        "Views of an execution that was exported to a file; nothing is kept",
        Text,
    ),
    post(
        "/comparisons",
        ApiOperation::CompareExports,
        "Two exported executions side by side; nothing is kept",
        Json(schema::<inspections::ComparedExports>),
    ),
    get("/tools", ApiOperation::ListTools, "Workflows as tools, with the schemas of their arguments"),
];
