//! A2A operations on the tasks of this process, and lists of those of all processes, independent of
//! the transport.

use std::sync::Arc;

use sinew_protocol::Token;
use sinew_protocol::a2a::{
    A2aError, CancelTaskParams, ListTasksParams, Task, TaskIdParams, TaskListResponse, TaskQueryParams,
    TaskState, is_terminal, parse_timestamp, trim_history,
};

use crate::failure::short;
use crate::table::{Entry, TaskTable};

/// Default page size.
const PAGE: u32 = 50;
/// Maximum page size.
const LARGEST_PAGE: u32 = 100;

pub(crate) fn get(
    table: &TaskTable,
    caller: &Token,
    params: &TaskQueryParams,
) -> Result<(Arc<Task>, u64), A2aError> {
    let entry = find(table, caller, &params.id)?;
    // Read the number first, so that an event in between is received twice rather than missed.
    let seq = entry.feed.seq();
    let mut task = entry.snapshot();
    if params.history_length.is_some() {
        trim_history(Arc::make_mut(&mut task), params.history_length);
    }
    Ok((task, seq))
}

pub(crate) fn subscribe(
    table: &TaskTable,
    caller: &Token,
    params: &TaskIdParams,
) -> Result<(Arc<Task>, u64), A2aError> {
    let entry = find(table, caller, &params.id)?;
    let seq = entry.feed.seq();
    let task = entry.snapshot();
    if is_terminal(task.status.state) {
        return Err(A2aError::unsupported_operation("the task has ended; subscribing is not possible"));
    }
    Ok((task, seq))
}

/// Cancels the task; the caller waits for its end on the entry.
pub(crate) fn cancel(
    table: &TaskTable,
    caller: &Token,
    params: &CancelTaskParams,
) -> Result<Arc<Entry>, A2aError> {
    let entry = find(table, caller, &params.id)?;
    if entry.has_ended() {
        return Err(A2aError::task_not_cancelable(short(&params.id, 64)));
    }
    entry.cancel.cancel();
    Ok(entry)
}

fn find(table: &TaskTable, caller: &Token, id: &str) -> Result<Arc<Entry>, A2aError> {
    table.find(caller, id).ok_or_else(|| A2aError::task_not_found(short(id, 64)))
}

/// Returns the caller's tasks, newest first. A page token consists of timestamp and id of the last
/// task before the page.
pub(crate) fn list(
    table: &TaskTable,
    caller: &Token,
    params: &ListTasksParams,
) -> Result<TaskListResponse, A2aError> {
    let size = params.page_size.unwrap_or(PAGE);
    if !(1..=LARGEST_PAGE).contains(&size) {
        return Err(A2aError::invalid_params(format!("pageSize: expected 1 to {LARGEST_PAGE}")));
    }
    let since = params.status_timestamp_after.as_deref().map(|text| {
        parse_timestamp(text).ok_or_else(|| {
            A2aError::invalid_params("statusTimestampAfter: expected a time like 2026-01-31T09:00:00Z")
        })
    });
    let since = since.transpose()?;
    let wanted = |task: &Task| {
        params.context_id.as_ref().is_none_or(|context| *context == task.context_id.0)
            && params.status.is_none_or(|state| state == TaskState::Unspecified || state == task.status.state)
            && since.is_none_or(|since| parse_timestamp(timestamp(task)) >= Some(since))
    };
    let seen = table.of(caller).into_iter().map(|entry| entry.snapshot()).filter(|task| wanted(task));
    let mut tasks: Vec<Task> = seen.map(Arc::unwrap_or_clone).collect();
    tasks.sort_by(|a, b| place(b).cmp(&place(a)));
    let total_size = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
    if let Some(token) = params.page_token.as_deref().filter(|token| !token.is_empty()) {
        let Some(after) = token.split_once('~') else {
            return Err(A2aError::invalid_params("pageToken: invalid token"));
        };
        tasks.retain(|task| place(task) < after);
    }
    let more = tasks.len() > size as usize;
    tasks.truncate(size as usize);
    let last = tasks.last().filter(|_| more).map(page_token);
    for task in &mut tasks {
        // Lists have a history only on request.
        trim_history(task, Some(params.history_length.unwrap_or(0)));
        if params.include_artifacts != Some(true) {
            task.artifacts = None;
        }
    }
    Ok(TaskListResponse { tasks, next_page_token: last.unwrap_or_default(), page_size: size, total_size })
}

/// Merges the pages of all processes for the same parameters; the first is this process's.
pub(crate) fn merge(mut page: TaskListResponse, others: Vec<TaskListResponse>) -> TaskListResponse {
    let mut more = !page.next_page_token.is_empty();
    for other in others {
        more |= !other.next_page_token.is_empty();
        page.total_size = page.total_size.saturating_add(other.total_size);
        page.tasks.extend(other.tasks);
    }
    page.tasks.sort_by(|a, b| place(b).cmp(&place(a)));
    more |= page.tasks.len() > page.page_size as usize;
    page.tasks.truncate(page.page_size as usize);
    let last = page.tasks.last().filter(|_| more).map(page_token);
    page.next_page_token = last.unwrap_or_default();
    page
}

fn page_token(last: &Task) -> String {
    let (timestamp, id) = place(last);
    format!("{timestamp}~{id}")
}

fn timestamp(task: &Task) -> &str {
    task.status.timestamp.as_deref().unwrap_or_default()
}

fn place(task: &Task) -> (&str, &str) {
    (timestamp(task), &task.id.0)
}
