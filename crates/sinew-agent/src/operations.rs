//! A2A's operations on the tasks of this process, without their transport.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sinew_protocol::Token;
use sinew_protocol::a2a::{
    CancelTaskParams, ListTasksParams, Task, TaskIdParams, TaskListResponse, TaskQueryParams, TaskState,
    is_terminal, parse_timestamp,
};
use sinew_protocol::fault::Fault;

use crate::table::{Entry, Table};

/// Tasks on a page that names no size.
const PAGE: u32 = 50;
/// The most tasks on a page.
const LARGEST_PAGE: u32 = 100;

/// Why an operation is refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Refusal {
    /// The caller has no such task here.
    TaskNotFound(String),
    /// The task has ended.
    NotCancelable(String),
    /// There are no push notifications on a bus.
    PushNotSupported,
    /// The agent cannot do that.
    Unsupported(String),
    /// The body is in no media type that this door reads.
    ContentType(String),
    /// There is one card only.
    NoExtendedCard,
    /// Another version of A2A.
    Version(String),
    /// The body is no JSON.
    Unparsable(String),
    /// The body is no JSON-RPC 2.0 request.
    NoRequest(String),
    /// No operation has this name.
    NoMethod(String),
    /// The parameters cannot be read.
    Parameters(String),
    /// The agent itself has a fault.
    Internal(Fault),
}

/// The parameters of an operation.
pub(crate) fn parameters<T: DeserializeOwned>(params: Option<Value>) -> Result<T, Refusal> {
    serde_json::from_value(params.unwrap_or_else(|| json!({})))
        .map_err(|error| Refusal::Parameters(crate::failure::short(&error.to_string(), 300)))
}

pub(crate) fn get(table: &Table, caller: &Token, params: Option<Value>) -> Result<(Task, u64), Refusal> {
    let params: TaskQueryParams = parameters(params)?;
    let entry = find(table, caller, &params.id)?;
    // The number first: an event in between is then heard twice, never missed.
    let seq = entry.feed.seq();
    Ok((entry.snapshot(), seq))
}

pub(crate) fn subscribe(
    table: &Table,
    caller: &Token,
    params: Option<Value>,
) -> Result<(Task, u64), Refusal> {
    let params: TaskIdParams = parameters(params)?;
    let entry = find(table, caller, &params.id)?;
    let seq = entry.feed.seq();
    let task = entry.snapshot();
    if is_terminal(task.status.state) {
        return Err(Refusal::Unsupported("the task has ended: there is nothing to subscribe to".to_owned()));
    }
    Ok((task, seq))
}

/// Tells the task to end; whoever asked waits for that on the entry.
pub(crate) fn cancel(table: &Table, caller: &Token, params: Option<Value>) -> Result<Arc<Entry>, Refusal> {
    let params: CancelTaskParams = parameters(params)?;
    let entry = find(table, caller, &params.id)?;
    if entry.has_ended() {
        return Err(Refusal::NotCancelable(params.id));
    }
    entry.cancel.cancel();
    Ok(entry)
}

fn find(table: &Table, caller: &Token, id: &str) -> Result<Arc<Entry>, Refusal> {
    table.find(caller, id).ok_or_else(|| Refusal::TaskNotFound(crate::failure::short(id, 64)))
}

/// The caller's tasks, newest first. A page token is the timestamp and id of the last task before the page.
pub(crate) fn list(
    table: &Table,
    caller: &Token,
    params: Option<Value>,
) -> Result<TaskListResponse, Refusal> {
    let params: ListTasksParams = parameters(params)?;
    let size = params.page_size.unwrap_or(PAGE);
    if !(1..=LARGEST_PAGE).contains(&size) {
        return Err(Refusal::Parameters(format!("pageSize: expected 1 to {LARGEST_PAGE}")));
    }
    let since = params.status_timestamp_after.as_deref().map(|text| {
        parse_timestamp(text).ok_or_else(|| {
            Refusal::Parameters("statusTimestampAfter: expected a time like 2026-01-31T09:00:00Z".into())
        })
    });
    let since = since.transpose()?;
    let wanted = |task: &Task| {
        params.context_id.as_ref().is_none_or(|context| *context == task.context_id.0)
            && params.status.is_none_or(|state| state == TaskState::Unspecified || state == task.status.state)
            && since.is_none_or(|since| parse_timestamp(timestamp(task)) >= Some(since))
    };
    let mut tasks: Vec<Task> = table.of(caller).iter().map(|entry| entry.snapshot()).filter(wanted).collect();
    tasks.sort_by(|a, b| place(b).cmp(&place(a)));
    let total_size = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
    if let Some(token) = params.page_token.as_deref().filter(|token| !token.is_empty()) {
        let Some(after) = token.split_once('~') else {
            return Err(Refusal::Parameters("pageToken: not one of ours".to_owned()));
        };
        tasks.retain(|task| place(task) < after);
    }
    let more = tasks.len() > size as usize;
    tasks.truncate(size as usize);
    let last = tasks.last().filter(|_| more).map(|task| {
        let (timestamp, id) = place(task);
        format!("{timestamp}~{id}")
    });
    if params.include_artifacts != Some(true) {
        for task in &mut tasks {
            task.artifacts = None;
        }
    }
    Ok(TaskListResponse { tasks, next_page_token: last.unwrap_or_default(), page_size: size, total_size })
}

fn timestamp(task: &Task) -> &str {
    task.status.timestamp.as_deref().unwrap_or_default()
}

fn place(task: &Task) -> (&str, &str) {
    (timestamp(task), &task.id.0)
}
