//! Tasks of one caller: of one agent, or of all exposed agents and workflows in one list.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use sinew_protocol::a2a::{
    A2aError, CoreMethod, ErrorCode, ListTasksParams, Task, TaskListResponse, format_timestamp,
    parse_timestamp, trim_history,
};

use super::target::TaskLocation;
use super::{A2aOperations, Endpoint, OperationCall};

/// Default page size.
const DEFAULT_PAGE: u32 = 50;
/// Maximum page size.
const MAX_PAGE: u32 = 100;
/// Time limit for each of several agents to list its tasks.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of agents queried concurrently.
const AT_ONCE: usize = 32;
/// Sorts after every id: ids consist of letters, digits, `-`, `_` and dots.
const AFTER_ALL_IDS: &str = "~";

/// A list of tasks, and the agents whose tasks are missing because they did not respond.
pub(super) struct TaskList {
    pub(super) page: TaskListResponse,
    pub(super) unheard: Vec<String>,
}

/// Response of one agent to a list request.
enum PageOfAgent {
    Tasks(TaskListResponse),
    /// The agent did not respond, for this reason.
    Unheard(A2aError),
}

/// Time of a task's status in milliseconds since 1970, and the task's id for the client.
type ListCursor = (u64, String);

impl A2aOperations {
    /// Returns the name at which an agent or workflow is served, and whether it starts executions.
    fn served(&self, name: &str) -> (Arc<str>, bool) {
        let name = self.served_name(name);
        let is_workflow = self.is_workflow(&name);
        (name, is_workflow)
    }

    pub(super) async fn list(
        &self,
        call: &OperationCall,
        params: ListTasksParams,
    ) -> Result<TaskList, A2aError> {
        let size = params.page_size.unwrap_or(DEFAULT_PAGE);
        if !(1..=MAX_PAGE).contains(&size) {
            return Err(A2aError::invalid_params(format!("pageSize: expected 1 to {MAX_PAGE}")));
        }
        if let Some(text) = &params.status_timestamp_after
            && parse_timestamp(text).is_none()
        {
            let text = "statusTimestampAfter: expected a time like 2026-01-31T09:00:00Z";
            return Err(A2aError::invalid_params(text));
        }
        let history = params.history_length;
        let after =
            params.page_token.as_deref().filter(|token| !token.is_empty()).map(read_token).transpose()?;
        let agents: Vec<(Arc<str>, bool)> = match &call.endpoint {
            Endpoint::Agent(name) => vec![self.served(name)],
            Endpoint::Mesh => self.offered().iter().map(|card| self.served(&card.name)).collect(),
        };
        let is_one = matches!(call.endpoint, Endpoint::Agent(_));
        let (params, after) = (&params, &after);
        let pages = stream::iter(agents)
            .map(|(agent, is_workflow)| async move {
                let place = TaskLocation::new(&call.endpoint, agent, is_workflow, String::new());
                let token = after.as_ref().map(|after| place_token(after, &place));
                let wanted = ListTasksParams {
                    tenant: None,
                    page_token: token,
                    page_size: Some(size),
                    ..params.clone()
                };
                (place.clone(), self.page_of(call, &place, &wanted, is_one).await)
            })
            .buffer_unordered(AT_ONCE)
            .collect::<Vec<_>>()
            .await;
        let mut tasks: Vec<Task> = Vec::new();
        let (mut total, mut more) = (0_u32, false);
        let (mut unheard, mut reason, mut is_heard) = (Vec::new(), None, false);
        for (place, page) in pages {
            let page = match page? {
                PageOfAgent::Tasks(page) => page,
                PageOfAgent::Unheard(error) => {
                    unheard.push(place.agent.to_string());
                    reason.get_or_insert(error);
                    continue;
                }
            };
            is_heard = true;
            total = total.saturating_add(page.total_size);
            more |= !page.next_page_token.is_empty();
            tasks.extend(page.tasks.into_iter().map(|mut task| {
                place.show(&mut task);
                task
            }));
        }
        tasks.sort_by_cached_key(|task| std::cmp::Reverse(list_place(task)));
        more |= tasks.len() > size as usize;
        tasks.truncate(size as usize);
        let last = tasks.last().filter(|_| more).map(list_place);
        for task in &mut tasks {
            trim_history(task, history);
        }
        let next_page_token = last.map(|(at, id)| format!("{at}~{id}")).unwrap_or_default();
        // An empty list would claim that there are no tasks.
        if let Some(error) = reason.filter(|_| !is_heard) {
            return Err(error);
        }
        unheard.sort();
        let page = TaskListResponse { tasks, next_page_token, page_size: size, total_size: total };
        Ok(TaskList { page, unheard })
    }

    /// Reads one agent's page. An agent that is queried alone and does not respond is an error.
    async fn page_of(
        &self,
        call: &OperationCall,
        place: &TaskLocation,
        params: &ListTasksParams,
        is_one: bool,
    ) -> Result<PageOfAgent, A2aError> {
        let asked = if is_one {
            self.ask_again(call, &place.agent, CoreMethod::ListTasks, params).await
        } else {
            self.ask_once(call, &place.agent, CoreMethod::ListTasks, params, LIST_TIMEOUT).await
        };
        match asked {
            Ok(reply) => reply.read().map(PageOfAgent::Tasks),
            Err(error) if is_one || error.code() == ErrorCode::InvalidParams => Err(error.into()),
            Err(error) => {
                let error = A2aError::from(error);
                tracing::debug!(agent = &*place.agent, %error, "cannot list the tasks of an agent");
                Ok(PageOfAgent::Unheard(error))
            }
        }
    }
}

fn read_token(token: &str) -> Result<ListCursor, A2aError> {
    let place = token.split_once('~').and_then(|(at, id)| Some((at.parse().ok()?, id.to_owned())));
    place.ok_or_else(|| A2aError::invalid_params("pageToken: invalid token"))
}

fn list_place(task: &Task) -> ListCursor {
    let at = task.status.timestamp.as_deref().and_then(parse_timestamp);
    (at.and_then(|at| u64::try_from(at).ok()).unwrap_or(0), task.id.0.clone())
}

/// Returns the page token with which an agent returns its tasks after a position in the whole list.
fn place_token((at, id): &ListCursor, place: &TaskLocation) -> String {
    let prefix = place.shown_prefix();
    let own = match id.strip_prefix(prefix) {
        Some(own) => own,
        // With equal times, all ids of this agent sort either before or after the position.
        None if prefix < id.as_str() => AFTER_ALL_IDS,
        None => "",
    };
    if place.is_workflow {
        return format!("{at}~{own}");
    }
    let at = format_timestamp(i64::try_from(*at).unwrap_or(i64::MAX));
    format!("{at}~{own}")
}
