//! Statistics of workflows: outcomes by version, and number and duration of executions by time
//! span.

use std::collections::BTreeMap;

use sinew_documents::figures::{VersionOutcomes, WorkflowFigures, WorkflowOutcomes, WorkflowSeries};
use sinew_engine::Time;
use sinew_mesh::history::ClosedExecution;
use sinew_mesh::history_index::HistoryIndex;
use sinew_protocol::query::ExecutionStatus;

use crate::failure::Failure;
use crate::mesh_activity::OpenRows;
use crate::mesh_operator::{MeshOperator, status_of_word};
use crate::traffic_figures::nearest_rank;

/// Milliseconds of a minute.
const MINUTE_MS: u64 = 60_000;
/// Number of time spans of a series.
const SPANS: u64 = 24;
/// Maximum number of workflows with a series.
const MAX_WORKFLOWS: usize = 1_000;
/// Maximum number of distinct versions; executions of others count as those of an unknown version.
const MAX_VERSIONS: usize = 1_000;
/// Maximum number of durations per span used for percentiles; further executions are only counted.
const MAX_DURATIONS: usize = 2_000;

/// Counts the outcomes of a workflow's executions by version. `history` is the part of the history
/// that the process has read.
///
/// # Errors
/// The mesh does not respond.
pub async fn count_outcomes(
    remote: &MeshOperator,
    history: &HistoryIndex,
    workflow: &str,
) -> Result<WorkflowOutcomes, Failure> {
    let mut counter = OutcomeCounter::default();
    let mut open = OpenRows::read(remote).await?;
    let mut visit = |closed: &ClosedExecution| {
        if closed.workflow == workflow && open.counts_closed(closed) {
            counter.note(closed.plan.as_deref(), status_of_word(&closed.status));
        }
    };
    let is_whole = history.visit_ended_since(remote.mesh(), None, &mut visit).await?;
    Ok(WorkflowOutcomes { versions: counter.0.into_values().collect(), is_whole })
}

#[derive(Default)]
struct OutcomeCounter(BTreeMap<Option<String>, VersionOutcomes>);

impl OutcomeCounter {
    fn note(&mut self, version: Option<&str>, status: ExecutionStatus) {
        let known = version.map(str::to_owned);
        let version = if self.0.len() < MAX_VERSIONS || self.0.contains_key(&known) { known } else { None };
        let counts = self
            .0
            .entry(version.clone())
            .or_insert_with(|| VersionOutcomes { version, ..VersionOutcomes::default() });
        match status {
            ExecutionStatus::Success => counts.succeeded += 1,
            ExecutionStatus::Failure => counts.failed += 1,
            ExecutionStatus::Cancelled => counts.cancelled += 1,
            ExecutionStatus::Running | ExecutionStatus::Waiting | ExecutionStatus::Paused => {}
        }
    }
}

/// Returns the statistics of the workflows accepted by `offered`, for the latest minutes.
///
/// # Errors
/// The mesh does not respond.
pub async fn read_workflow_figures(
    remote: &MeshOperator,
    history: &HistoryIndex,
    now: Time,
    minutes: u64,
    offered: &(dyn Fn(&str) -> bool + Sync),
) -> Result<WorkflowFigures, Failure> {
    let mut counter = SeriesCounter::new(now, minutes);
    let mut open = OpenRows::read(remote).await?;
    let from = counter.from;
    let mut visit = |closed: &ClosedExecution| {
        if offered(&closed.workflow) && open.counts_closed(closed) {
            let has_failed = status_of_word(&closed.status) == ExecutionStatus::Failure;
            counter.note(&closed.workflow, closed.started, closed.ended, has_failed);
        }
    };
    let is_whole = history.visit_ended_since(remote.mesh(), Some(from), &mut visit).await?;
    Ok(counter.finish(is_whole))
}

/// Counts ended executions by time span.
struct SeriesCounter {
    from: Time,
    span_ms: u64,
    workflows: BTreeMap<String, Vec<SpanCounter>>,
}

#[derive(Clone, Default)]
struct SpanCounter {
    ended: u64,
    failed: u64,
    durations: Vec<u64>,
}

impl SeriesCounter {
    fn new(now: Time, minutes: u64) -> Self {
        let span_ms = (minutes.max(1) * MINUTE_MS).div_ceil(SPANS);
        // Spans start at fixed times, so that an execution stays in its span across requests.
        let from = (now - now % span_ms).saturating_sub((SPANS - 1) * span_ms);
        Self { from, span_ms, workflows: BTreeMap::new() }
    }

    fn note(&mut self, workflow: &str, started: Time, ended: Time, has_failed: bool) {
        let Some(place) = ended.checked_sub(self.from).map(|since| since / self.span_ms) else { return };
        if !self.workflows.contains_key(workflow) && self.workflows.len() >= MAX_WORKFLOWS {
            return;
        }
        let spans = self
            .workflows
            .entry(workflow.to_owned())
            .or_insert_with(|| vec![SpanCounter::default(); usize::try_from(SPANS).unwrap_or_default()]);
        // Executors' clocks may be ahead: an end in the future counts in the last span.
        let last = spans.len().saturating_sub(1);
        let Some(span) = spans.get_mut(usize::try_from(place).unwrap_or(last).min(last)) else { return };
        span.ended += 1;
        span.failed += u64::from(has_failed);
        if span.durations.len() < MAX_DURATIONS {
            span.durations.push(ended.saturating_sub(started));
        }
    }

    fn finish(self, is_whole: bool) -> WorkflowFigures {
        let series = |(workflow, mut spans): (String, Vec<SpanCounter>)| {
            let mut all: Vec<u64> = spans.iter().flat_map(|span| span.durations.iter().copied()).collect();
            WorkflowSeries {
                workflow,
                ended: spans.iter().map(|span| span.ended).collect(),
                failed: spans.iter().map(|span| span.failed).collect(),
                p95_ms: spans.iter_mut().map(|span| nearest_rank(&mut span.durations, 95)).collect(),
                p95_of_all_ms: nearest_rank(&mut all, 95),
            }
        };
        let workflows = self.workflows.into_iter().map(series).collect();
        WorkflowFigures { from: self.from.into(), span_ms: self.span_ms, workflows, is_whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_counted_by_version_and_unknown_ones_apart() {
        let mut counter = OutcomeCounter::default();
        for (version, status) in [
            (Some("b"), ExecutionStatus::Success),
            (Some("b"), ExecutionStatus::Failure),
            (Some("a"), ExecutionStatus::Cancelled),
            (None, ExecutionStatus::Success),
            (Some("b"), ExecutionStatus::Success),
        ] {
            counter.note(version, status);
        }
        let told: Vec<_> = counter
            .0
            .values()
            .map(|one| (one.version.as_deref(), one.succeeded, one.failed, one.cancelled))
            .collect();
        assert_eq!(told, [(None, 1, 0, 0), (Some("a"), 0, 0, 1), (Some("b"), 2, 1, 0)]);
        for number in 0..2 * MAX_VERSIONS {
            counter.note(Some(&format!("v{number}")), ExecutionStatus::Success);
        }
        assert_eq!(counter.0.len(), MAX_VERSIONS);
        assert!(counter.0[&None].succeeded > MAX_VERSIONS as u64);
    }

    #[test]
    fn ends_are_counted_into_spans_with_their_percentile() {
        let now = 1_000 * MINUTE_MS + 7;
        let mut counter = SeriesCounter::new(now, 24);
        assert_eq!((counter.span_ms, counter.from), (MINUTE_MS, 977 * MINUTE_MS));
        for took in 1..=100 {
            counter.note("w", now - took, now, took > 90);
        }
        counter.note("w", 0, counter.from, false);
        counter.note("w", 0, counter.from - 1, false);
        counter.note("w", now, now + 90 * MINUTE_MS, false);
        let figures = counter.finish(true);
        let series = &figures.workflows[0];
        assert_eq!((series.ended.len(), series.ended[0], series.ended[1], series.ended[23]), (24, 1, 0, 101));
        assert_eq!((series.failed[23], series.p95_ms[1]), (10, None));
        assert_eq!(series.p95_ms[0], Some(977 * MINUTE_MS));
        assert_eq!(series.p95_ms[23], Some(96));
    }
}
