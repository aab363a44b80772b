//! Activity of a mesh: executions that started, ended and failed by minute, the errors of failed
//! ones, and the number of executions by status.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use sinew_documents::execution_filter::{ExecutionFilter, FilteredRow};
use sinew_documents::execution_list::ExecutionRow;
use sinew_documents::figures::{ErrorCount, ExecutionCounts, MeshActivity, MinuteActivity};
use sinew_documents::words;
use sinew_engine::Time;
use sinew_mesh::history::{ClosedExecution, HistoryFilter};
use sinew_mesh::history_index::HistoryIndex;
use sinew_protocol::query::ExecutionStatus;

use crate::failure::Failure;
use crate::mesh_operator::{MeshOperator, status_of_word, takes_closed};

/// Milliseconds of a minute.
const MINUTE_MS: u64 = 60_000;
/// Maximum number of reported errors, most frequent first.
const MAX_ERRORS: usize = 10;
/// Maximum number of counted codes, because agents may use their own.
const MAX_CODES: usize = 1_000;

/// Counts executions by minute.
struct ActivityCounter {
    first: Time,
    minutes: Vec<MinuteActivity>,
    errors: HashMap<String, (u64, Time, String)>,
}

impl ActivityCounter {
    fn new(now: Time, minutes: usize) -> Self {
        let last = now - now % MINUTE_MS;
        let first = last.saturating_sub((minutes.max(1) as u64 - 1) * MINUTE_MS);
        let at = (0..).map(|number| first + number * MINUTE_MS).take_while(|at| *at <= last);
        let minutes = at.map(|at| MinuteActivity { at: at.into(), ..MinuteActivity::default() }).collect();
        Self { first, minutes, errors: HashMap::new() }
    }

    /// Returns the minute of a time. Executors' clocks may be ahead: future times count in the last
    /// minute.
    fn minute(&mut self, at: Time) -> Option<&mut MinuteActivity> {
        let number = at.checked_sub(self.first)? / MINUTE_MS;
        let last = self.minutes.len().saturating_sub(1);
        self.minutes.get_mut(usize::try_from(number).unwrap_or(last).min(last))
    }

    fn note_start(&mut self, at: Time) {
        if let Some(minute) = self.minute(at) {
            minute.started += 1;
        }
    }

    fn note_end(&mut self, execution: &str, at: Time, status: ExecutionStatus, code: Option<&str>) {
        let Some(minute) = self.minute(at) else { return };
        minute.ended += 1;
        if status != ExecutionStatus::Failure {
            return;
        }
        minute.failed += 1;
        let Some(code) = code else { return };
        if !self.errors.contains_key(code) && self.errors.len() >= MAX_CODES {
            return;
        }
        let (count, latest, id) = self.errors.entry(code.to_owned()).or_default();
        *count += 1;
        if at >= *latest {
            (*latest, *id) = (at, execution.to_owned());
        }
    }

    fn finish(self, is_whole: bool) -> MeshActivity {
        let of = |(code, (count, _, latest))| ErrorCount { code, count, latest };
        let mut errors: Vec<ErrorCount> = self.errors.into_iter().map(of).collect();
        errors.sort_by(|a, b| (Reverse(a.count), &a.code).cmp(&(Reverse(b.count), &b.code)));
        errors.truncate(MAX_ERRORS);
        MeshActivity { minutes: self.minutes, errors, is_whole }
    }
}

/// Open executions to merge with the closed ones, so that each is counted once.
pub(crate) struct OpenRows(HashMap<String, ExecutionRow>);

impl OpenRows {
    pub(crate) async fn read(remote: &MeshOperator) -> Result<Self, Failure> {
        let rows = remote.rows(&HistoryFilter::default(), 0).await?;
        Ok(Self(rows.into_iter().map(|row| (row.execution.clone(), row)).collect()))
    }

    /// Returns whether a closed execution counts: a retried one is running, and its owner may still
    /// report one that just ended.
    pub(crate) fn counts_closed(&mut self, closed: &ClosedExecution) -> bool {
        let id = closed.execution.as_str();
        let goes_on = |row: &ExecutionRow| !row.status.is_terminal() && row.started.ms() <= closed.started;
        if self.0.get(id).is_some_and(goes_on) {
            return false;
        }
        self.0.remove(id);
        true
    }
}

/// Returns the activity of the latest minutes, including the current one. `history` is the part of
/// the history that the process has read.
///
/// # Errors
/// The mesh does not respond.
pub async fn read_activity(
    remote: &MeshOperator,
    history: &HistoryIndex,
    now: Time,
    minutes: usize,
) -> Result<MeshActivity, Failure> {
    let mut counter = ActivityCounter::new(now, minutes);
    let mut open = OpenRows::read(remote).await?;
    let first = counter.first;
    let mut visit = |closed: &ClosedExecution| {
        if open.counts_closed(closed) {
            counter.note_start(closed.started);
            let code = closed.fault_code.as_deref();
            counter.note_end(closed.execution.as_str(), closed.ended, status_of_word(&closed.status), code);
        }
    };
    let is_whole = history.visit_ended_since(remote.mesh(), Some(first), &mut visit).await?;
    for row in open.0.values() {
        counter.note_start(row.started.ms());
        if let (Some(ended), true) = (row.ended, row.status.is_terminal()) {
            counter.note_end(
                &row.execution,
                ended.ms(),
                row.status,
                row.fault.as_ref().map(|fault| &*fault.code),
            );
        }
    }
    Ok(counter.finish(is_whole))
}

/// Counts the executions that match a filter by status, as far as the headers of records
/// decide: executions of which only the record decides are not counted.
///
/// # Errors
/// The mesh does not respond.
pub async fn count_executions(
    remote: &MeshOperator,
    history: &HistoryIndex,
    filter: &ExecutionFilter,
) -> Result<ExecutionCounts, Failure> {
    let mut counts = BTreeMap::new();
    let mut open = OpenRows::read(remote).await?;
    let mut visit = |closed: &ClosedExecution| {
        let status = status_of_word(&closed.status);
        if open.counts_closed(closed) && takes_closed(filter, closed, status) == Some(true) {
            *counts.entry(words::status_word(status).to_owned()).or_default() += 1;
        }
    };
    let is_whole = history.visit_ended_since(remote.mesh(), filter.since, &mut visit).await?;
    for row in open.0.values().filter(|row| filter.takes(&FilteredRow::from(*row)) == Some(true)) {
        *counts.entry(words::status_word(row.status).to_owned()).or_default() += 1;
    }
    Ok(ExecutionCounts { counts, is_whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_and_errors_are_counted() {
        let mut counter = ActivityCounter::new(3 * MINUTE_MS + 5, 3);
        for at in [MINUTE_MS - 1, MINUTE_MS, 2 * MINUTE_MS, 99 * MINUTE_MS] {
            counter.note_start(at);
        }
        counter.note_end("a", 0, ExecutionStatus::Failure, Some("SINEW-1"));
        counter.note_end("b", MINUTE_MS, ExecutionStatus::Failure, Some("SINEW-2"));
        counter.note_end("d", 3 * MINUTE_MS, ExecutionStatus::Failure, Some("SINEW-3"));
        counter.note_end("c", 2 * MINUTE_MS, ExecutionStatus::Failure, Some("SINEW-3"));
        counter.note_end("e", 3 * MINUTE_MS, ExecutionStatus::Success, None);
        counter.note_end("f", 3 * MINUTE_MS, ExecutionStatus::Failure, None);
        let activity = counter.finish(true);
        let minutes: Vec<_> = activity
            .minutes
            .iter()
            .map(|one| (one.at.ms() / MINUTE_MS, one.started, one.ended, one.failed))
            .collect();
        assert_eq!(minutes, [(1, 1, 1, 1), (2, 1, 1, 1), (3, 1, 3, 2)]);
        let errors: Vec<_> =
            activity.errors.iter().map(|one| (one.code.as_str(), one.count, one.latest.as_str())).collect();
        assert_eq!(errors, [("SINEW-3", 2, "d"), ("SINEW-2", 1, "b")]);
    }

    #[test]
    fn codes_of_strangers_have_an_end() {
        let mut counter = ActivityCounter::new(0, 1);
        for number in 0..2 * MAX_CODES {
            counter.note_end("a", 0, ExecutionStatus::Failure, Some(&format!("odd-{number}")));
        }
        assert_eq!(counter.errors.len(), MAX_CODES);
        assert_eq!(counter.finish(false).errors.len(), MAX_ERRORS);
    }
}
