//! The tasks of one caller: open executions from the shards' owners, ended ones from the history.

use futures_util::future::join_all;
use sinew_mesh::history::HistoryFilter;
use sinew_protocol::a2a::{A2aError, ListTasksParams, Task, TaskListResponse, TaskState, parse_timestamp};
use sinew_protocol::query::{AN_OPERATOR, Summary};
use sinew_protocol::{ExecutionId, Token};

use super::{WorkflowEndpoints, broker, failed};

/// Default page size.
const PAGE: u32 = 50;
/// Maximum page size.
const LARGEST_PAGE: u32 = 100;
/// Maximum number of ended executions to examine.
const MOST: usize = 1_000;
/// Records that are read concurrently.
const AT_ONCE: usize = 16;

impl WorkflowEndpoints {
    /// Returns a page of the caller's tasks, newest status first. A page token consists of time and
    /// id of the last task before the page.
    pub(super) async fn list(
        &self,
        workflow: &str,
        caller: &Token,
        params: ListTasksParams,
    ) -> Result<TaskListResponse, A2aError> {
        let bad = |text: String| A2aError::invalid_params(text);
        let size = params.page_size.unwrap_or(PAGE);
        if !(1..=LARGEST_PAGE).contains(&size) {
            return Err(bad(format!("pageSize: expected 1 to {LARGEST_PAGE}")));
        }
        let since = params.status_timestamp_after.as_deref().map(|text| {
            let at = parse_timestamp(text).and_then(|at| u64::try_from(at).ok());
            at.ok_or_else(
                || bad("statusTimestampAfter: expected a time like 2026-01-31T09:00:00Z".to_owned()),
            )
        });
        let since = since.transpose()?;
        let after = params.page_token.as_deref().filter(|token| !token.is_empty()).map(|token| {
            let place =
                token.split_once('~').and_then(|(at, id)| Some((at.parse::<u64>().ok()?, id.to_owned())));
            place.ok_or_else(|| bad("pageToken: invalid token".to_owned()))
        });
        let after = after.transpose()?;
        // Lists have a history only on request.
        let history_length = Some(params.history_length.unwrap_or(0));
        let state = params.status.filter(|state| *state != TaskState::Unspecified);
        // Only records contain the context, so filtering by context reads all of them.
        let mut places = self.open_ones(workflow, caller).await?;
        places.extend(self.ended_ones(workflow, caller, since).await?);
        places.sort_unstable_by(|a, b| b.cmp(a));
        places.dedup_by(|a, b| a.1 == b.1);
        places.retain(|place| since.is_none_or(|since| place.0 >= since));
        places.retain(|place| state.is_none_or(|state| place.2 == state));
        let mut tasks = Vec::new();
        let total;
        if let Some(context) = &params.context_id {
            let mut kept = Vec::new();
            for some in places.chunks(AT_ONCE) {
                let read = self.tasks(some, history_length).await?;
                kept.extend(read.into_iter().filter(|(_, task)| task.context_id.0 == *context));
            }
            total = kept.len();
            kept.retain(|(place, _)| after.as_ref().is_none_or(|after| before(place, after)));
            tasks = kept;
        } else {
            total = places.len();
            places.retain(|place| after.as_ref().is_none_or(|after| before(place, after)));
            for some in places.chunks(AT_ONCE) {
                if tasks.len() > size as usize {
                    break;
                }
                tasks.extend(self.tasks(some, history_length).await?);
            }
        }
        let more = tasks.len() > size as usize;
        tasks.truncate(size as usize);
        let last = tasks.last().filter(|_| more).map(|(place, _)| format!("{}~{}", place.0, place.1));
        let mut tasks: Vec<Task> = tasks.into_iter().map(|(_, task)| task).collect();
        if params.include_artifacts != Some(true) {
            for task in &mut tasks {
                task.artifacts = None;
            }
        }
        let total_size = u32::try_from(total).unwrap_or(u32::MAX);
        Ok(TaskListResponse { tasks, next_page_token: last.unwrap_or_default(), page_size: size, total_size })
    }

    async fn open_ones(&self, workflow: &str, caller: &Token) -> Result<Vec<ListPosition>, A2aError> {
        let open = self.client.open().await.map_err(|error| failed(&error))?;
        // A held execution cannot be folded here, and must not prevent listing the others.
        let is_held =
            |open: &Summary| open.waiting.as_ref().is_some_and(|waiting| waiting.starts_with(AN_OPERATOR));
        let theirs: Vec<ExecutionId> = open
            .into_iter()
            .filter(|open| open.workflow == workflow && open.caller == *caller && open.ended.is_none())
            .filter(|open| !is_held(open))
            .map(|open| open.execution)
            .collect();
        let mut places = Vec::new();
        for some in theirs.chunks(AT_ONCE) {
            for found in join_all(some.iter().map(|execution| self.find(execution))).await {
                let Some(known) = found? else { continue };
                let state = super::task::open_state(&known.folded);
                if !known.folded.state().ended {
                    places.push(ListPosition(
                        known.folded.state().at,
                        known.record.meta.execution.to_string(),
                        state,
                    ));
                }
            }
        }
        Ok(places)
    }

    async fn ended_ones(
        &self,
        workflow: &str,
        caller: &Token,
        since: Option<u64>,
    ) -> Result<Vec<ListPosition>, A2aError> {
        let filter = HistoryFilter {
            workflow: Some(workflow.to_owned()),
            caller: Some(caller.to_string()),
            since,
            ..HistoryFilter::default()
        };
        let closed = self.shared.mesh.history().list(&filter, MOST).await.map_err(|error| broker(&error))?;
        let state = |status: &str| match status {
            "success" => TaskState::Completed,
            "cancelled" => TaskState::Canceled,
            _ => TaskState::Failed,
        };
        Ok(closed
            .into_iter()
            .map(|it| ListPosition(it.ended, it.execution.to_string(), state(&it.status)))
            .collect())
    }

    async fn tasks(
        &self,
        places: &[ListPosition],
        history_length: Option<u32>,
    ) -> Result<Vec<(ListPosition, Task)>, A2aError> {
        let read = places.iter().map(|place| async move {
            let Ok(execution) = ExecutionId::parse(&place.1) else { return Ok(None) };
            let Some(known) = self.find(&execution).await? else { return Ok(None) };
            Ok(Some((place.clone(), self.task(&known, history_length).await?)))
        });
        let read: Result<Vec<_>, A2aError> = join_all(read).await.into_iter().collect();
        Ok(read?.into_iter().flatten().collect())
    }
}

/// Time of a task's last status, its id, and that status.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ListPosition(u64, String, TaskState);

impl Ord for ListPosition {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, &self.1).cmp(&(other.0, &other.1))
    }
}

impl PartialOrd for ListPosition {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

fn before(place: &ListPosition, after: &(u64, String)) -> bool {
    (place.0, &place.1) < (after.0, &after.1)
}
