//! Index of closed executions by start time, as far as a process has read the history.
//!
//! The history is stored in the order in which executions ended, but lists show them by start. A
//! process that serves many lists keeps the headers that it has read, so distant pages and
//! selective filters do not read a header twice. Every request first reads to the end of the
//! stream, so no previously archived execution is missing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sinew_protocol::ExecutionId;
use tokio::sync::Mutex;

use crate::store::history::{ClosedExecution, HistoryExtent, HistoryWindow, WINDOWS};
use crate::{Mesh, MeshError};

/// Maximum number of indexed executions, about a kilobyte each; older ones are read on demand.
const MAX_KEPT: usize = 131_072;
/// Maximum number of newly archived records to read incrementally; beyond it, the index is rebuilt.
const MAX_CATCH_UP: u64 = 4 * WINDOWS.1;
/// Assumed clock lead of an executor over the broker in milliseconds: margin over the observed
/// lead, and maximum.
const CLOCK_DRIFT_MS: (u64, u64) = (250, 5_000);

/// Position in a list of closed executions, sorted by start time, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryCursor {
    /// When the execution at this position started, milliseconds since 1970 UTC.
    pub started: u64,
    /// Id of the execution at this position.
    pub execution: String,
}

/// Sort key: newest start first.
type RowKey = (Reverse<u64>, ExecutionId);

/// Closed executions by start time.
#[derive(Debug, Default)]
pub struct HistoryIndex {
    known: Mutex<KnownPart>,
    is_filling: AtomicBool,
}

/// Indexed part of the history: all records from `first` to `end`.
#[derive(Debug)]
struct KnownPart {
    /// When the stream was created.
    created: i128,
    first: u64,
    end: u64,
    /// When the record at `first` was archived, or earlier.
    first_archived: u64,
    /// Maximum time in milliseconds by which an execution ended after it was archived.
    drift: u64,
    /// Rows with the sequence numbers of their records.
    rows: BTreeMap<RowKey, (u64, ClosedExecution)>,
    /// Start of each execution: a record that is archived again replaces its older one.
    starts: HashMap<ExecutionId, u64>,
    max_rows: usize,
}

impl Default for KnownPart {
    fn default() -> Self {
        Self {
            created: 0,
            first: 1,
            end: 0,
            first_archived: u64::MAX,
            drift: 0,
            rows: BTreeMap::new(),
            starts: HashMap::new(),
            max_rows: MAX_KEPT,
        }
    }
}

/// Filter for closed executions.
pub type HistoryPredicate<'a> = dyn Fn(&ClosedExecution) -> bool + Send + Sync + 'a;

impl HistoryIndex {
    /// Creates an index of about this many executions.
    pub fn keeping(max_rows: usize) -> Self {
        let known = KnownPart { max_rows, ..KnownPart::default() };
        Self { known: Mutex::new(known), is_filling: AtomicBool::new(false) }
    }

    /// Returns at most `limit` closed executions after a position that match, newest start first.
    ///
    /// # Errors
    /// Fails if the history cannot be read.
    pub async fn page(
        &self,
        mesh: &Mesh,
        wants: &HistoryPredicate<'_>,
        behind: Option<&HistoryCursor>,
        limit: usize,
    ) -> Result<Vec<ClosedExecution>, MeshError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let extent = HistoryExtent::read(mesh).await?;
        let mut window = (limit as u64).saturating_mul(2).clamp(WINDOWS.0, WINDOWS.1);
        // Locked per window, so that other calls can run in between.
        loop {
            let mut known = self.known.lock().await;
            known.catch_up(mesh, &extent).await?;
            let found = known.page(wants, behind, limit);
            if known.is_settled(&found, limit) || known.is_whole(&extent) {
                return Ok(found);
            }
            if known.is_full() {
                let (end, drift) = (known.first.saturating_sub(1), known.drift);
                drop(known);
                return OlderRecords { end, window, drift }
                    .page(mesh, &extent, wants, behind, limit, found)
                    .await;
            }
            known.read_older(mesh, &extent, window).await?;
            window = (2 * window).min(WINDOWS.1);
        }
    }

    /// Returns the approximate number of closed executions: records of executions that were archived
    /// again may count twice.
    ///
    /// # Errors
    /// Fails if the history cannot be read.
    pub async fn closed_count(&self, mesh: &Mesh) -> Result<u64, MeshError> {
        let extent = HistoryExtent::read(mesh).await?;
        Ok((extent.end + 1).saturating_sub(extent.first))
    }

    /// Visits the closed executions that ended since a time, or all of them, each once and
    /// unordered. Visits only what can be read quickly: `false` means that older records were
    /// skipped, which [`Self::fill_in_background`] reads.
    ///
    /// # Errors
    /// Fails if the history cannot be read.
    pub async fn visit_ended_since(
        &self,
        mesh: &Mesh,
        since: Option<u64>,
        visit: &mut (dyn FnMut(&ClosedExecution) + Send),
    ) -> Result<bool, MeshError> {
        let extent = HistoryExtent::read(mesh).await?;
        let mut known = self.known.lock().await;
        known.catch_up(mesh, &extent).await?;
        if known.rows.is_empty() && !known.is_whole(&extent) {
            known.read_older(mesh, &extent, WINDOWS.1).await?;
        }
        let since = since.unwrap_or_default();
        let ended_since =
            known.rows.values().map(|(_, closed)| closed).filter(|closed| closed.ended >= since);
        ended_since.for_each(visit);
        Ok(known.is_whole(&extent) || known.reaches(since))
    }

    /// Reads as much of the history as can be indexed, in a separate task, unless that is done or
    /// in progress.
    pub fn fill_in_background(self: &Arc<Self>, mesh: &Mesh) {
        if self.is_filling.swap(true, Ordering::SeqCst) {
            return;
        }
        let (index, mesh) = (Arc::clone(self), mesh.clone());
        tokio::spawn(async move {
            if let Err(error) = index.fill(&mesh).await {
                tracing::debug!(%error, "cannot read the history; retrying at the next list");
            }
            index.is_filling.store(false, Ordering::SeqCst);
        });
    }

    async fn fill(&self, mesh: &Mesh) -> Result<(), MeshError> {
        let extent = HistoryExtent::read(mesh).await?;
        loop {
            let mut known = self.known.lock().await;
            known.catch_up(mesh, &extent).await?;
            if known.is_whole(&extent) || known.is_full() {
                return Ok(());
            }
            known.read_older(mesh, &extent, WINDOWS.1).await?;
        }
    }
}

impl KnownPart {
    /// Reads newly archived records, and drops deleted ones.
    async fn catch_up(&mut self, mesh: &Mesh, extent: &HistoryExtent) -> Result<(), MeshError> {
        let is_other = self.created != extent.created || extent.end.saturating_sub(self.end) > MAX_CATCH_UP;
        if is_other {
            *self = Self {
                created: extent.created,
                first: extent.end + 1,
                end: extent.end,
                max_rows: self.max_rows,
                ..Self::default()
            };
        }
        if extent.end > self.end {
            let window = HistoryWindow::read(mesh, self.end + 1, extent.end).await?;
            self.take(window);
            self.end = extent.end;
        }
        if self.first < extent.first {
            self.forget_before(extent.first);
        }
        if self.rows.len() > self.max_rows {
            let mut places: Vec<u64> = self.rows.values().map(|(place, _)| *place).collect();
            places.sort_unstable();
            let first = places.get(places.len() - self.max_rows * 3 / 4);
            self.forget_before(first.map_or(self.end + 1, |first| *first));
        }
        Ok(())
    }

    /// Reads the records before the indexed ones.
    async fn read_older(
        &mut self,
        mesh: &Mesh,
        extent: &HistoryExtent,
        window: u64,
    ) -> Result<(), MeshError> {
        let begin = self.first.saturating_sub(window).max(extent.first);
        let found = HistoryWindow::read(mesh, begin, self.first - 1).await?;
        self.take(found);
        self.first = begin;
        Ok(())
    }

    fn take(&mut self, window: HistoryWindow) {
        self.drift = self.drift.max(window.drift);
        self.first_archived = self.first_archived.min(window.first_archived);
        for (place, closed) in window.executions {
            let (started, id) = (closed.started, closed.execution.clone());
            if let Some(before) = self.starts.get(&id).copied() {
                let key = (Reverse(before), id.clone());
                if self.rows.get(&key).is_some_and(|(known, _)| *known > place) {
                    continue;
                }
                self.rows.remove(&key);
            }
            self.starts.insert(id.clone(), started);
            self.rows.insert((Reverse(started), id), (place, closed));
        }
    }

    fn forget_before(&mut self, first: u64) {
        let starts = &mut self.starts;
        self.rows.retain(|(_, id), (place, _)| {
            let is_kept = *place >= first;
            if !is_kept {
                starts.remove(id);
            }
            is_kept
        });
        // The archiving time stays that of an older record, which is merely conservative.
        (self.first, self.end) = (first, self.end.max(first - 1));
    }

    fn page(
        &self,
        wants: &HistoryPredicate<'_>,
        behind: Option<&HistoryCursor>,
        limit: usize,
    ) -> Vec<ClosedExecution> {
        let rows = self.rows.iter().map(|((started, _), (_, closed))| (started, closed));
        let key = |place: &HistoryCursor| (Reverse(place.started), place.execution.clone());
        let begin = behind.map(key);
        let is_behind = |started: &Reverse<u64>, closed: &ClosedExecution| {
            begin.as_ref().is_none_or(|(at, id)| (*started, closed.execution.as_str()) > (*at, id.as_str()))
        };
        rows.filter(|(started, closed)| is_behind(started, closed) && wants(closed))
            .take(limit)
            .map(|(_, closed)| closed.clone())
            .collect()
    }

    /// Returns whether no unread record can belong to an execution before the last one found.
    fn is_settled(&self, found: &[ClosedExecution], limit: usize) -> bool {
        // Unread records belong to executions that ended before the first of these was archived,
        // and started before that.
        let latest = self.first_archived.saturating_add(clock_drift(self.drift));
        found.len() >= limit && found.last().is_some_and(|last| last.started > latest)
    }

    /// Returns whether no unread record can belong to an execution that ended at this time or
    /// later.
    fn reaches(&self, since: u64) -> bool {
        self.first_archived != u64::MAX && self.first_archived.saturating_add(clock_drift(self.drift)) < since
    }

    fn is_whole(&self, extent: &HistoryExtent) -> bool {
        self.first <= extent.first || extent.end < extent.first
    }

    fn is_full(&self) -> bool {
        self.rows.len() as u64 + WINDOWS.1 > self.max_rows as u64
    }
}

fn clock_drift(seen: u64) -> u64 {
    seen.saturating_add(CLOCK_DRIFT_MS.0).min(CLOCK_DRIFT_MS.1)
}

/// Records before the indexed ones.
struct OlderRecords {
    end: u64,
    window: u64,
    drift: u64,
}

impl OlderRecords {
    /// Completes a page with records that are read only for it.
    async fn page(
        mut self,
        mesh: &Mesh,
        extent: &HistoryExtent,
        wants: &HistoryPredicate<'_>,
        behind: Option<&HistoryCursor>,
        limit: usize,
        mut list: Vec<ClosedExecution>,
    ) -> Result<Vec<ClosedExecution>, MeshError> {
        let is_behind = |one: &ClosedExecution| {
            behind.is_none_or(|place| {
                (Reverse(one.started), one.execution.as_str())
                    > (Reverse(place.started), place.execution.as_str())
            })
        };
        while self.end >= extent.first {
            let begin = self.end.saturating_sub(self.window - 1).max(extent.first);
            let found = HistoryWindow::read(mesh, begin, self.end).await?;
            let rows = found.executions.into_iter().map(|(_, closed)| closed);
            list.extend(rows.filter(|closed| is_behind(closed) && wants(closed)));
            list.sort_by(|a, b| {
                (Reverse(a.started), a.execution.as_str()).cmp(&(Reverse(b.started), b.execution.as_str()))
            });
            list.dedup_by(|a, b| a.execution == b.execution);
            list.truncate(limit);
            self.drift = self.drift.max(found.drift);
            let latest = found.first_archived.saturating_add(clock_drift(self.drift));
            if list.len() >= limit && list.last().is_some_and(|last| last.started > latest) {
                break;
            }
            (self.end, self.window) = (begin.saturating_sub(1), (2 * self.window).min(WINDOWS.1));
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use sinew_protocol::attributes::ExecutionAttributes;
    use sinew_protocol::usage::ModelTotals;

    use super::*;

    fn closed(id: &str, started: u64, status: &str) -> ClosedExecution {
        ClosedExecution {
            execution: ExecutionId::parse(id).unwrap(),
            workflow: "w".to_owned(),
            status: status.to_owned(),
            started,
            ended: started + 5,
            caller: "c".to_owned(),
            entries: 1,
            usage: ModelTotals::default(),
            fault_code: None,
            plan: None,
            is_dry_run: false,
            route: None,
            attributes: ExecutionAttributes::default(),
        }
    }

    fn window(rows: &[(u64, &str, u64, &str)], first_archived: u64) -> HistoryWindow {
        let executions =
            rows.iter().map(|(place, id, started, status)| (*place, closed(id, *started, status)));
        HistoryWindow { executions: executions.collect(), first_archived, drift: 0 }
    }

    fn ids(known: &KnownPart, behind: Option<(u64, &str)>, status: Option<&str>, limit: usize) -> String {
        let behind = behind.map(|(started, id)| HistoryCursor { started, execution: id.to_owned() });
        let wants = |one: &ClosedExecution| status.is_none_or(|status| one.status == status);
        let found = known.page(&wants, behind.as_ref(), limit);
        found.iter().map(|one| one.execution.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pages_are_in_the_order_of_starts_whatever_the_order_of_ends() {
        let mut known = KnownPart { first: 1, end: 4, ..KnownPart::default() };
        known.take(window(
            &[
                (1, "b", 20, "success"),
                (2, "d", 40, "failure"),
                (3, "a", 10, "failure"),
                (4, "c", 40, "success"),
            ],
            5,
        ));
        assert_eq!(ids(&known, None, None, 9), "c d b a");
        assert_eq!(ids(&known, Some((40, "c")), None, 2), "d b");
        assert_eq!(ids(&known, Some((40, "d")), None, 2), "b a");
        assert_eq!(ids(&known, None, Some("failure"), 9), "d a");
        assert_eq!(ids(&known, Some((10, "a")), None, 9), "");
    }

    #[test]
    fn a_record_that_is_archived_again_takes_the_place_of_the_older_one() {
        let mut known = KnownPart { first: 5, end: 9, ..KnownPart::default() };
        known.take(window(&[(8, "a", 10, "success"), (9, "b", 20, "success")], 5));
        // An older part is read later and still contains the previous record.
        known.take(window(&[(3, "a", 30, "failure")], 5));
        assert_eq!(ids(&known, None, None, 9), "b a");
        assert_eq!(ids(&known, None, Some("failure"), 9), "");
        known.take(window(&[(10, "a", 40, "cancelled")], 5));
        assert_eq!(ids(&known, None, None, 9), "a b");
        assert_eq!(ids(&known, None, Some("success"), 9), "b");
    }

    #[test]
    fn what_the_stream_has_forgotten_is_forgotten() {
        let mut known = KnownPart { first: 1, end: 3, ..KnownPart::default() };
        known.take(window(&[(1, "a", 10, "success"), (2, "b", 20, "success"), (3, "c", 30, "success")], 5));
        known.forget_before(3);
        assert_eq!((ids(&known, None, None, 9).as_str(), known.first, known.starts.len()), ("c", 3, 1));
        known.forget_before(7);
        assert_eq!((ids(&known, None, None, 9).as_str(), known.first, known.end), ("", 7, 6));
    }

    #[test]
    fn a_time_is_reached_once_older_records_were_archived_before() {
        let mut known = KnownPart { first: 5, end: 4, ..KnownPart::default() };
        assert!(!known.reaches(u64::MAX), "nothing was read");
        known.take(window(&[(5, "a", 90, "success")], 1_000));
        assert!(!known.reaches(1_000));
        assert!(known.reaches(1_001 + CLOCK_DRIFT_MS.0));
    }

    #[test]
    fn a_page_is_settled_once_older_records_cannot_change_it() {
        let mut known = KnownPart { first: 5, end: 6, first_archived: 100, ..KnownPart::default() };
        known.take(window(&[(5, "a", 90, "success"), (6, "b", 500, "success")], 100));
        let found = |limit| known.page(&|_| true, None, limit);
        assert!(known.is_settled(&found(1), 1), "b began after all that was not read had been archived");
        assert!(
            !known.is_settled(&found(2), 2),
            "an older record may be of an execution that began before a"
        );
        assert!(!known.is_settled(&found(3), 3), "there are fewer rows than wanted");
    }
}
