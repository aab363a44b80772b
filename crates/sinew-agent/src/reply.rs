//! Converts the end of a task to the published A2A task.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use sinew_mesh::artifact::{ArtifactOwner, ArtifactStore};
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::Fault;
use sinew_protocol::a2a::{Task, TaskState, TaskStatus};
use sinew_protocol::task::{Content, Draft, ResultArtifact, WorkflowNodeResult, result_task};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::artifacts::KeptVersion;
use crate::context::Context;
use crate::failure::ARTIFACTS;
use crate::task_properties::TaskProperties;
use crate::work::EndedTask;

/// Maximum bytes of artifacts inside one result, as JSON; the others are in the object store.
const MOST_INLINE: usize = 512 * 1024;
/// Upper bound for the JSON of an artifact besides its content, in bytes.
const ABOUT_AN_ARTIFACT: usize = 4 * 1024;
/// Maximum bytes of JSON per byte of content: a control character, `\u001f`.
const LONGEST_ESCAPE: usize = 6;
/// Maximum size of the usage report, as JSON.
const LARGEST_USAGE: usize = 16 * 1024;
/// Attempts to store one artifact.
const TRIES: u32 = 8;

/// Returns the end of a task, with its artifacts stored for other processes.
pub(crate) async fn task(
    mesh: &Mesh,
    agent: &Agent,
    context: &Context,
    ended: &EndedTask,
    halt: &CancellationToken,
) -> Task {
    let usage = usage(context, agent);
    match store(mesh, context, halt).await {
        Ok(artifacts) => build(context, ended, &artifacts, usage),
        Err(error) => {
            let fault =
                Fault::error(ARTIFACTS, format!("the artifacts of the task cannot be stored: {error}"));
            build(context, &EndedTask { result: Err(fault), ..*ended }, &[], usage)
        }
    }
}

/// Takes the usage report, if it is small enough, and adds which version of the agent answered:
/// `agent: {version}`, with `build` if the agent has one.
pub(crate) fn usage(context: &Context, agent: &Agent) -> Value {
    let usage = context.take_usage().filter(|usage| usage.to_string().len() <= LARGEST_USAGE);
    let mut usage = usage.unwrap_or_else(|| json!({}));
    if let Some(members) = usage.as_object_mut() {
        let mut version = json!({ "version": agent.version });
        if let Some(build) = &agent.build {
            version["build"] = build.as_str().into();
        }
        members.insert("agent".to_owned(), version);
    }
    usage
}

/// Returns the end of a task of a node request, with its artifacts stored for other processes.
pub(crate) async fn node_result(
    mesh: &Mesh,
    agent: &Agent,
    context: &Context,
    ended: &EndedTask,
    halt: &CancellationToken,
) -> Bytes {
    let task = context.task();
    match store(mesh, context, halt).await {
        Ok(artifacts) => {
            let mut result = WorkflowNodeResult::of_end(task, &ended.result, &artifacts);
            (result.usage, result.retry_count) = (usage(context, agent), ended.retries);
            result.worked_ms = Some(worked_ms(ended));
            (result.events, result.logs) = (context.take_events(), context.take_log());
            result.to_bytes().into()
        }
        Err(error) => {
            let text = format!("the artifacts of the task cannot be stored: {error}");
            failed_node(task, &Fault::error(ARTIFACTS, text))
        }
    }
}

/// Returns the end of a task that was never started.
pub(crate) fn refused(about: &TaskProperties, fault: &Fault) -> Task {
    result_task(draft(about, &EndedTask::refused(fault.clone())))
}

fn build(context: &Context, ended: &EndedTask, artifacts: &[ResultArtifact], usage: Value) -> Task {
    let (events, logs) = (context.take_events(), context.take_log());
    result_task(Draft { artifacts, usage, events, logs, ..draft(context.about(), ended) })
}

fn worked_ms(ended: &EndedTask) -> u64 {
    u64::try_from(ended.worked.as_millis()).unwrap_or(u64::MAX)
}

fn draft<'a>(about: &'a TaskProperties, ended: &EndedTask) -> Draft<'a> {
    Draft {
        session: about.context_id(),
        retries: ended.retries,
        worked_ms: Some(worked_ms(ended)),
        vocabulary: about.vocabulary,
        timestamp: TaskStatus::with_timestamp(TaskState::Completed).timestamp,
        ..Draft::new(&about.task, ended.result.clone())
    }
}

async fn store(
    mesh: &Mesh,
    context: &Context,
    halt: &CancellationToken,
) -> Result<Vec<ResultArtifact>, MeshError> {
    let about = context.about();
    // Agents do not know the user, for whom the executor acts; addresses grant no rights.
    let place = ArtifactOwner { app: &about.agent, user: "", execution: &about.execution, task: &about.task };
    let artifacts = mesh.artifacts();
    let mut inline = 0;
    let mut stored = Vec::new();
    let all = context.artifacts().all();
    // If the upper bound fits, the artifacts need not be encoded to measure them.
    let most: usize = all.iter().map(|kept| ABOUT_AN_ARTIFACT + LONGEST_ESCAPE * kept.bytes.len()).sum();
    for kept in all {
        let KeptVersion { meta, bytes } = &kept;
        let content = Content::inline(&meta.media_type, bytes);
        let small = content.map(|content| ResultArtifact { meta: meta.clone(), content });
        // Measured as encoded, because escapes can multiply the size of a text.
        let size = match &small {
            Some(artifact) if most > MOST_INLINE => {
                serde_json::to_vec(&artifact.to_a2a()).map_or(MOST_INLINE, |json| json.len())
            }
            _ => 0,
        };
        stored.push(match small.filter(|_| inline + size <= MOST_INLINE) {
            Some(artifact) => {
                inline += size;
                artifact
            }
            None => put(&artifacts, &place, &kept, halt).await?,
        });
    }
    Ok(stored)
}

/// Stores one artifact with retries: completed work must not be lost because of a short outage of
/// the broker.
async fn put(
    store: &ArtifactStore,
    place: &ArtifactOwner<'_>,
    kept: &KeptVersion,
    halt: &CancellationToken,
) -> Result<ResultArtifact, MeshError> {
    let KeptVersion { meta, bytes } = kept;
    let mut tries = 0;
    loop {
        tries += 1;
        let put = store.put_object(place, meta.name.clone(), meta.version, &meta.media_type, bytes.clone());
        match put.await {
            Err(MeshError::Unreachable { .. }) if tries < TRIES && !halt.is_cancelled() => {
                sleep(Duration::from_millis(100) * tries * tries).await;
            }
            Err(error) => return Err(error),
            Ok(stored) => {
                let content = Content::of(&stored.part).map_err(|error| MeshError::Malformed {
                    what: "an artifact",
                    reason: error.to_string(),
                })?;
                return Ok(ResultArtifact { meta: stored.meta, content });
            }
        }
    }
}

/// Returns the answer of a failed task.
pub(crate) fn failed_node(id: &sinew_protocol::TaskId, fault: &Fault) -> Bytes {
    WorkflowNodeResult::of_end(id, &Err(fault.clone()), &[]).to_bytes().into()
}
