//! Starts, stops and repeats executions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sinew_engine::{ExecutionMode, RetryRequest};
use sinew_executor::client::ClientError;
use sinew_operations::agent_list::find_agent;
use sinew_operations::deployment::find_deployed;
use sinew_operations::execution_retry::{RetryVersion, plan_retry};
use sinew_operations::execution_start::fork as fork_of;
use sinew_operations::failure::Failure;
use sinew_operations::input_check::check_input;
use sinew_operations::mesh_operator::built_in_workflow;
use sinew_protocol::ExecutionId;
use sinew_protocol::command::{CancelCommand, Command, PauseCommand, ResumeCommand, StartCommand};

use super::api_call::{ApiCall, answer, answer_with, bad_request};
use super::start_files::{StartFile, input_with, read_files};
use crate::http_error::HttpProblem;

/// How long a start waits for an executor to process it.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(2);

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

pub(super) async fn start(call: ApiCall) -> Result<Response, HttpProblem> {
    let body: StartBody = call.json()?;
    let client = &call.operator.client;
    let (workflow, digest, program) = match (&body.workflow, &body.agent) {
        (Some(workflow), None) => {
            call.check_offered(workflow)?;
            let (workflow, digest) = find_deployed(&call.operator, workflow, body.version.as_deref()).await?;
            let program = client.programs().by_digest(&digest).await;
            (workflow, digest, program.map_err(ClientError::Plan).map_err(Failure::from)?)
        }
        (None, Some(agent)) if body.version.is_none() => {
            call.check_offered(agent)?;
            // The error for an agent that is not online lists similar names.
            find_agent(&call.operator.online().await?, agent)?;
            let program = built_in_workflow(&sinew_protocol::card::agent_call(agent))
                .ok_or_else(|| bad_request("agent: not a valid agent name"))?;
            (program.name().to_owned(), program.graph.digest().to_string(), program)
        }
        _ => return Err(bad_request("specify either a workflow, optionally with a version, or an agent")),
    };
    let files = read_files(body.files)?;
    let mut command = match (&body.id, &body.idempotency_key) {
        (Some(_), Some(_)) => return Err(bad_request("specify either id or idempotency_key, not both")),
        (Some(id), None) => {
            let id = ExecutionId::parse(id).map_err(|error| bad_request(format!("id: {error}")))?;
            StartCommand::new(id, workflow.clone(), body.input)
        }
        // Clients with an empty key would share one execution per caller.
        (None, Some(key)) if key.is_empty() => return Err(bad_request("idempotency_key: must not be empty")),
        (None, Some(key)) => client.start_command(key.as_str(), workflow.clone(), body.input),
        (None, None) => client.start_command(uuid::Uuid::now_v7().to_string(), workflow.clone(), body.input),
    };
    command.version = Some(digest).filter(|_| body.version.is_some());
    command.labels = body.labels;
    command.session = body.session;
    if body.dry_run {
        command.mode = json!({ "dry_run": true });
    }
    let execution = command.execution.clone();
    // Everything is checked before the first file is stored.
    let (mut prepared, mut entries) = (Vec::new(), Vec::new());
    for file in files {
        let (artifact, entry) = file.prepare(&call, &workflow, &execution).await?;
        prepared.push(artifact);
        entries.push(entry);
    }
    command.input = input_with(command.input, entries)?;
    check_input(&program, &command.input, &ExecutionMode::default())?;
    let checked = client.check_start(&command);
    checked.map_err(Failure::from)?;
    for artifact in prepared {
        call.operator.mesh().artifacts().store(artifact).await.map_err(Failure::from)?;
    }
    let is_new = client.start(command).await.map_err(Failure::from)?;
    let status = match client.begun(&execution, &workflow, BEGIN_TIMEOUT).await {
        Err(refused @ (ClientError::Refused(_) | ClientError::OtherStart(_))) => {
            return Err(Failure::from(refused).into());
        }
        Ok(true) if is_new => StatusCode::CREATED,
        Ok(true) => StatusCode::OK,
        // It is stored, and an executor will accept or reject it later.
        Ok(false) | Err(_) => StatusCode::ACCEPTED,
    };
    let warnings = call.operator.start_warnings(program.graph.plan()).await;
    answer_with(status, &StartedExecution { execution: execution.as_str(), workflow, new: is_new, warnings })
}

/// An execution that was started.
#[derive(Serialize, JsonSchema)]
pub(super) struct StartedExecution<'a> {
    /// Id of the execution.
    execution: &'a str,
    /// Name of the workflow.
    workflow: String,
    /// Whether this request started it, and no earlier one of the same id or key.
    new: bool,
    /// Agents and workflows that it calls and that are not on the mesh, each in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// An execution that got a command.
#[derive(Serialize, JsonSchema)]
pub(super) struct SteeredExecution<'a> {
    /// Id of the execution.
    execution: &'a str,
    /// Status that the command leads to.
    status: &'a str,
}

/// An execution that left the way of another one.
#[derive(Serialize, JsonSchema)]
pub(super) struct ForkedExecution<'a> {
    /// Id of the new execution.
    execution: &'a str,
    /// Name of the workflow.
    workflow: &'a str,
    /// Id of the old execution.
    fork_of: &'a str,
}

/// A command that may say why.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandBody {
    /// Why; recorded with the execution.
    #[serde(default)]
    reason: String,
}

pub(super) async fn cancel(call: ApiCall) -> Result<Response, HttpProblem> {
    let CommandBody { reason } = call.json()?;
    let execution = call.execution().await?;
    send_command(&call, Command::Cancel(CancelCommand { execution, reason }), "cancelled").await
}

pub(super) async fn pause(call: ApiCall) -> Result<Response, HttpProblem> {
    let CommandBody { reason } = call.json()?;
    let execution = call.execution().await?;
    send_command(&call, Command::Pause(PauseCommand { execution, reason }), "paused").await
}

/// A command without parameters.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResumeBody {}

pub(super) async fn resume(call: ApiCall) -> Result<Response, HttpProblem> {
    let ResumeBody {} = call.json()?;
    let execution = call.execution().await?;
    send_command(&call, Command::Resume(ResumeCommand { execution }), "resumed").await
}

async fn send_command(call: &ApiCall, command: Command, status: &str) -> Result<Response, HttpProblem> {
    let execution = command.execution().to_string();
    call.operator.signal(command).await?;
    answer(&SteeredExecution { execution: &execution, status })
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

pub(super) async fn retry(call: ApiCall) -> Result<Response, HttpProblem> {
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

pub(super) async fn fork(call: ApiCall) -> Result<Response, HttpProblem> {
    let body: ForkBody = call.json()?;
    if body.at.is_empty() && body.outputs.is_empty() {
        return Err(bad_request("specify nodes in `at` or outputs in `outputs`"));
    }
    let record = call.found().await?.record;
    let outputs = body.outputs.into_iter().map(|(node, output)| (node, Arc::new(output)));
    let new = fork_of(&record, &body.at, outputs.collect())?;
    if body.dry_run {
        return answer(&new.preview(&record));
    }
    let launched = call.operator.launch(&record, new).await?;
    let (execution, workflow) = (launched.execution.as_str(), launched.workflow.as_str());
    answer_with(StatusCode::CREATED, &ForkedExecution { execution, workflow, fork_of: &launched.of })
}
