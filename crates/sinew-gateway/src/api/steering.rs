//! Starts, stops and repeats executions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sinew_documents::command::{ForkedExecution, RetriedExecution, StartedExecution, SteeredExecution};
use sinew_documents::retry::{RetryPreview, StartPreview};
use sinew_engine::RetryRequest;
use sinew_operations::execution_retry::{RetryVersion, plan_retry};
use sinew_operations::execution_start::fork as fork_of;
use sinew_operations::start::{StartKey, StartRequest, StartTarget};
use sinew_operations::steering::Steering;

use super::api_call::{ApiCall, answer, answer_with, bad_request};
use super::route::{ApiRoute, post};
use super::start_files::{StartFile, read_files};
use crate::http_error::HttpProblem;
use sinew_protocol::access::AccessRole;

/// How long a start waits for an executor to process it.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum size of a start, which may contain files.
const MAX_START_BYTES: usize = 12 << 20;

/// Returns the routes of this module.
pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        post("/executions", "StartExecution", "Start a workflow, or call an agent", start)
            .role(AccessRole::Client)
            .required_json::<StartBody>()
            .body_bytes(MAX_START_BYTES)
            .returns::<StartedExecution>(),
        post("/executions/{id}/cancel", "CancelExecution", "Cancel an execution", cancel)
            .role(AccessRole::Client)
            .json::<CommandBody>()
            .returns::<SteeredExecution>(),
        post("/executions/{id}/pause", "PauseExecution", "Pause an execution", pause)
            .role(AccessRole::Client)
            .json::<CommandBody>()
            .returns::<SteeredExecution>(),
        post("/executions/{id}/resume", "ResumeExecution", "Resume an execution", resume)
            .role(AccessRole::Client)
            .json::<ResumeBody>()
            .returns::<SteeredExecution>(),
        post(
            "/executions/{id}/retry",
            "RetryExecution",
            "Retry the failed nodes in the same execution",
            retry,
        )
        .role(AccessRole::Client)
        .json::<RetryBody>()
        .returns::<PreviewOr<RetryPreview, PreviewOr<SteeredExecution, RetriedExecution>>>(),
        post(
            "/executions/{id}/fork",
            "ForkExecution",
            "Start a new execution that branches off this one at a node",
            fork,
        )
        .role(AccessRole::Client)
        .required_json::<ForkBody>()
        .returns::<PreviewOr<StartPreview, ForkedExecution>>(),
    ]
}

/// Workflow or agent to start.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartBody {
    /// Name of the workflow to start. Either this or `agent` is required.
    workflow: Option<String>,
    /// Name of an agent to call instead of a workflow. The execution has one node, and its output
    /// is `{output}`.
    agent: Option<String>,
    /// Session of the execution. Agents with session memory continue from earlier executions of the
    /// session.
    #[serde(default)]
    session: String,
    /// Prefix of a version's digest. Default: the newest version.
    version: Option<String>,
    /// Input of the execution.
    #[serde(default)]
    input: Value,
    /// Id of the execution. Default: a generated id.
    #[schemars(length(min = 1))]
    id: Option<String>,
    /// Idempotency key. Repeated starts of a caller with the same key start one execution.
    #[schemars(length(min = 1))]
    idempotency_key: Option<String>,
    /// Call no agents. All outputs are null, so branches may differ from those of a real execution.
    #[serde(default)]
    dry_run: bool,
    /// Labels for filtering lists.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// Files to store on the mesh. The member `files` of the input lists each with name, media
    /// type, size, digest and address. An input that is a string becomes the member `text`.
    #[serde(default)]
    files: Vec<StartFile>,
}

async fn start(call: ApiCall) -> Result<Response, HttpProblem> {
    let body: StartBody = call.json()?;
    let target = match (body.workflow, body.agent) {
        (Some(name), None) => StartTarget::Workflow { name, version: body.version },
        (None, Some(agent)) if body.version.is_none() => StartTarget::Agent(agent),
        _ => return Err(bad_request("specify either a workflow, optionally with a version, or an agent")),
    };
    if let StartTarget::Workflow { name, .. } | StartTarget::Agent(name) = &target {
        call.check_offered(name)?;
    }
    let mut request = StartRequest::new(target, body.input);
    request.key = StartKey::of(body.id, body.idempotency_key)?;
    request.files = read_files(body.files)?;
    request.mode.dry_run = body.dry_run;
    request.labels = body.labels;
    request.session = body.session;
    let prepared = call.operator.prepare_start(request).await?;
    let execution = prepared.execution().clone();
    let mut started = call.operator.start(prepared).await?;
    let is_taken = call.operator.wait_started(&execution, &started.workflow, BEGIN_TIMEOUT).await?;
    started.paused = call.operator.kept_start(&execution, &started.workflow).await;
    let status = match is_taken && started.paused.is_none() {
        true if started.new => StatusCode::CREATED,
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    answer_with(status, &started)
}

/// Command with an optional reason.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandBody {
    /// Reason, recorded with the execution.
    #[serde(default)]
    reason: String,
}

async fn cancel(call: ApiCall) -> Result<Response, HttpProblem> {
    let CommandBody { reason } = call.json()?;
    steer(&call, &Steering::Cancel(reason)).await
}

async fn pause(call: ApiCall) -> Result<Response, HttpProblem> {
    let CommandBody { reason } = call.json()?;
    steer(&call, &Steering::Pause(reason)).await
}

/// Command without parameters.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResumeBody {}

async fn resume(call: ApiCall) -> Result<Response, HttpProblem> {
    let ResumeBody {} = call.json()?;
    steer(&call, &Steering::Resume).await
}

async fn steer(call: &ApiCall, steering: &Steering) -> Result<Response, HttpProblem> {
    let execution = call.execution().await?;
    answer(&call.operator.steer(execution, steering).await?)
}

/// Retry of an execution.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryBody {
    /// Nodes to rerun. Default: all failed and cancelled nodes.
    #[serde(default)]
    nodes: Vec<String>,
    /// Rerun only these nodes and the nodes that depend on them.
    #[serde(default)]
    only: bool,
    /// New input of the node, or of the execution if no node is specified.
    input: Option<Value>,
    /// Reason, recorded with the execution.
    #[serde(default)]
    reason: String,
    /// Version of the workflow: `same` (default), the one that the execution was started with, or
    /// `latest`. If the latest version differs, the retry is a new execution, which reuses the
    /// outputs of nodes that this version does not change.
    #[serde(default)]
    workflow_version: RetryVersionWord,
    /// Preview which nodes would be kept, rerun and reset, without changing them.
    #[serde(default)]
    dry_run: bool,
}

/// Version of the workflow that a retry runs.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum RetryVersionWord {
    #[default]
    Same,
    Latest,
}

async fn retry(call: ApiCall) -> Result<Response, HttpProblem> {
    let body: RetryBody = call.json()?;
    let found = call.found().await?;
    let wanted = RetryRequest { nodes: body.nodes, only: body.only, input: body.input };
    let version = match body.workflow_version {
        RetryVersionWord::Same => RetryVersion::Same,
        RetryVersionWord::Latest => RetryVersion::Latest,
    };
    let planned = plan_retry(&found, wanted, version, body.reason).await?;
    if body.dry_run {
        return answer(&planned.preview);
    }
    let status = if planned.preview.new_execution.is_some() { StatusCode::CREATED } else { StatusCode::OK };
    answer_with(status, &call.operator.retry(&found.record, planned).await?)
}

/// Result of the operation, or its preview for a dry run.
#[derive(JsonSchema)]
#[schemars(inline, untagged)]
#[expect(dead_code, reason = "stands for the types in the schema alone")]
pub(super) enum PreviewOr<P, D> {
    Preview(P),
    Done(D),
}

/// Fork of an execution.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForkBody {
    /// Nodes at which the new execution starts. Default: the successors of the nodes in `outputs`.
    #[serde(default)]
    at: Vec<String>,
    /// Outputs that replace those of the original execution, by node.
    #[serde(default)]
    outputs: BTreeMap<String, Value>,
    /// Preview the new execution without starting it.
    #[serde(default)]
    dry_run: bool,
}

async fn fork(call: ApiCall) -> Result<Response, HttpProblem> {
    let body: ForkBody = call.json()?;
    let record = call.found().await?.record;
    let outputs = body.outputs.into_iter().map(|(node, output)| (node, Arc::new(output)));
    let new = fork_of(&record, &body.at, outputs.collect())?;
    if body.dry_run {
        return answer(&new.preview(&record));
    }
    let launched = call.operator.launch(&record, new).await?;
    let execution = launched.execution.to_string();
    let forked = ForkedExecution { execution, workflow: launched.workflow, fork_of: launched.of };
    answer_with(StatusCode::CREATED, &forked)
}
