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

/// A start.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartBody {
    /// Name of the workflow, unless an agent is asked.
    workflow: Option<String>,
    /// Name of an agent that is asked instead: the execution has one node, and its output is `{output}`.
    agent: Option<String>,
    /// Session that the execution belongs to: agents that remember earlier executions of it go on with them.
    #[serde(default)]
    session: String,
    /// The first characters of a version's digest; the newest version unless given.
    version: Option<String>,
    /// Input of the execution.
    #[serde(default)]
    input: Value,
    /// Id of the execution; a new one unless given.
    #[schemars(length(min = 1))]
    id: Option<String>,
    /// Key of this start: repeated starts of a caller under one key are one execution.
    #[schemars(length(min = 1))]
    idempotency_key: Option<String>,
    /// Call no agent: every output is null, so branches may differ from those of a real run.
    #[serde(default)]
    dry_run: bool,
    /// Labels that lists can be filtered by.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// Files, which are stored on the mesh: the member `files` of the input lists each with name, media type, size, digest and
    /// address. An input that is a text becomes the member `text`.
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
    let started = call.operator.start(prepared).await?;
    let is_taken = call.operator.wait_started(&execution, &started.workflow, BEGIN_TIMEOUT).await?;
    let status = match is_taken {
        true if started.new => StatusCode::CREATED,
        true => StatusCode::OK,
        false => StatusCode::ACCEPTED,
    };
    answer_with(status, &started)
}

/// A command that may say why.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandBody {
    /// Why; recorded with the execution.
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

/// A command without parameters.
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

/// A retry.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryBody {
    /// Nodes that run again; all that failed or were cancelled unless given.
    #[serde(default)]
    nodes: Vec<String>,
    /// Whether nothing but these nodes, and what depends on them, runs again.
    #[serde(default)]
    only: bool,
    /// Input for the one node, or for the whole execution without a node.
    input: Option<Value>,
    /// Why; recorded with the execution.
    #[serde(default)]
    reason: String,
    /// Version of the workflow: `same` (unless given), the one that the execution was started with, or `latest`, the newest. If that
    /// is another, the retry is a new execution, which takes over the outputs of nodes that the newest version leaves as they were.
    #[serde(default)]
    workflow_version: RetryVersionWord,
    /// Say what would be kept, run again and reset, and do nothing.
    #[serde(default)]
    dry_run: bool,
}

/// Version of the workflow that a retry runs with.
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

/// Answer of an operation that can preview its effects.
#[derive(JsonSchema)]
#[schemars(inline, untagged)]
#[expect(dead_code, reason = "stands for the types in the schema alone")]
enum PreviewOr<P, D> {
    Preview(P),
    Done(D),
}

/// A fork.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForkBody {
    /// Nodes at which the new execution leaves the way of the old one; behind the nodes of `outputs` unless given.
    #[serde(default)]
    at: Vec<String>,
    /// Outputs that replace those of the old execution, by node.
    #[serde(default)]
    outputs: BTreeMap<String, Value>,
    /// Say what would be started, and do nothing.
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
