//! Calls of recent executions, read from their records while a client displays the map.

use std::collections::VecDeque;

use futures_util::future::join_all;
use sinew_documents::execution_filter::ExecutionFilter;
use sinew_documents::execution_list::ExecutionRow;
use sinew_documents::timestamp::Timestamp;
use sinew_inspection::list;
use sinew_operations::failure::Failure;
use sinew_operations::mesh_operator::MeshOperator;
use sinew_operations::observed_calls::{CallCounts, calls_of};
use sinew_protocol::ExecutionId;
use tokio::sync::Mutex;

/// Maximum number of closed executions examined per request.
const LATEST_CLOSED: usize = 60;
/// Maximum number of open executions whose records are read per request.
const MAX_OPEN: usize = 20;
/// Maximum number of closed executions whose calls are cached.
const MAX_KEPT: usize = 500;
/// Number of records read concurrently.
const AT_ONCE: usize = 8;

/// Id and end of a closed execution; a retried execution ends again.
type ClosedKey = (String, Option<u64>);

/// Calls of closed executions, newest last.
#[derive(Debug, Default)]
pub(crate) struct CallObserver(Mutex<VecDeque<(ClosedKey, CallCounts)>>);

impl CallObserver {
    /// Returns the number of executions whose calls are known, and their calls.
    pub(crate) async fn observe(&self, operator: &MeshOperator) -> Result<(usize, CallCounts), Failure> {
        let mut rows = operator.rows_behind(&ExecutionFilter::default(), None, LATEST_CLOSED).await?;
        list::sort(&mut rows);
        let (closed, open): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.status.is_terminal());
        let mut kept = self.0.lock().await;
        let key = |row: &ExecutionRow| -> ClosedKey { (row.execution.clone(), row.ended.map(Timestamp::ms)) };
        let unknown = closed.iter().filter(|row| kept.iter().all(|(known, _)| *known != key(row)));
        let wanted: Vec<&ExecutionRow> = unknown.rev().chain(open.iter().take(MAX_OPEN)).collect();
        let mut read = Vec::with_capacity(wanted.len());
        for part in wanted.chunks(AT_ONCE) {
            read.extend(join_all(part.iter().map(|row| read_calls(operator, row))).await);
        }
        let (mut all, mut executions) = (CallCounts::new(), 0);
        for (row, calls) in wanted.into_iter().zip(read) {
            let Some(calls) = calls else { continue };
            if row.status.is_terminal() {
                kept.retain(|((execution, _), _)| *execution != row.execution);
                kept.push_back((key(row), calls));
            } else {
                executions += 1;
                add(&mut all, &calls);
            }
        }
        let surplus = kept.len().saturating_sub(MAX_KEPT);
        kept.drain(..surplus);
        for (_, calls) in &*kept {
            add(&mut all, calls);
        }
        Ok((executions + kept.len(), all))
    }
}

/// Reads the calls of an execution, or returns `None` if it was deleted after it was listed.
async fn read_calls(operator: &MeshOperator, row: &ExecutionRow) -> Option<CallCounts> {
    let id = ExecutionId::parse(&row.execution).ok()?;
    let record = operator.record(&id).await.ok()?;
    Some(calls_of(&record))
}

fn add(all: &mut CallCounts, calls: &CallCounts) {
    for (pair, count) in calls {
        *all.entry(pair.clone()).or_default() += count;
    }
}
