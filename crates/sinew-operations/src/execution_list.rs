//! Lists of executions, running first, then newest.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use futures_util::StreamExt as _;
use sinew_documents::execution_filter::{ExecutionFilter, FilteredRow};
use sinew_documents::execution_list::{ExecutionRow, SearchExtent};
use sinew_engine::Time;
use sinew_inspection::list;
use sinew_mesh::history::HistoryFilter;
use sinew_mesh::history_index::HistoryCursor;
use sinew_runtime::local;

use crate::failure::Failure;
use crate::mesh_operator::{AT_ONCE, MeshOperator, RowDetails, complete_row};

/// Maximum number of records read to find matches.
pub const MAX_ROWS_READ: usize = 5_000;

/// Minimum number of executions that are read together to find matches.
const MIN_PART_ROWS: usize = 200;

/// Part of a list to read.
#[derive(Clone, Debug)]
pub struct ListDepth {
    /// Number of rows with details; other rows are only counted.
    pub limit: usize,
    /// Details to read for them.
    pub details: RowDetails,
    /// Only rows after this cursor.
    pub after: Option<ExecutionCursor>,
    /// Whether rows after the limit are counted.
    pub counts_rest: RestOfList,
}

/// Handling of the rows after the limit of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestOfList {
    /// Listed without details, as far as they are read.
    #[default]
    Counted,
    /// Not read, regardless of their number.
    Dropped,
}

/// Position of an execution in a list, encoded for clients: `1.1763860000000.ID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionCursor {
    is_closed: bool,
    started: Time,
    execution: String,
}

impl ExecutionCursor {
    /// Returns the cursor of a row.
    pub fn of(row: &ExecutionRow) -> Self {
        Self {
            is_closed: row.status.is_terminal(),
            started: row.started.ms(),
            execution: row.execution.clone(),
        }
    }

    /// Returns whether a row is after this cursor.
    fn is_before(&self, row: &ExecutionRow) -> bool {
        let key = (self.is_closed, std::cmp::Reverse(self.started), self.execution.as_str());
        let of_row = (row.status.is_terminal(), std::cmp::Reverse(row.started.ms()), row.execution.as_str());
        key.cmp(&of_row) == Ordering::Less
    }
}

impl fmt::Display for ExecutionCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", u8::from(self.is_closed), self.started, self.execution)
    }
}

/// The text is not a cursor of a list of executions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadCursor;

impl FromStr for ExecutionCursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let (is_closed, rest) = text.split_once('.').ok_or(BadCursor)?;
        let (started, execution) = rest.split_once('.').ok_or(BadCursor)?;
        let is_closed = match is_closed {
            "0" => false,
            "1" => true,
            _ => return Err(BadCursor),
        };
        let started = started.parse().map_err(|_| BadCursor)?;
        Ok(Self { is_closed, started, execution: execution.to_owned() })
    }
}

/// Executions that a filter matches.
#[derive(Clone, Debug, Default)]
pub struct FoundExecutions {
    /// The executions, running first, then newest.
    pub rows: Vec<ExecutionRow>,
    /// How far records were read; `None` if the filter needs none.
    pub searched: Option<SearchExtent>,
    /// Position at which a search stopped before it found enough executions.
    pub stopped_at: Option<ExecutionCursor>,
}

impl MeshOperator {
    /// Lists the executions that match a filter, in order; see [`Self::search`].
    pub async fn list(
        &self,
        wanted: &ExecutionFilter,
        depth: ListDepth,
    ) -> Result<Vec<ExecutionRow>, Failure> {
        Ok(self.search(wanted, depth).await?.rows)
    }

    /// Finds the executions that match a filter, in order. Rows after `limit` have no reasons of
    /// failures. Reads at most [`MAX_ROWS_READ`] records for rows that their headers do not decide.
    pub async fn search(
        &self,
        wanted: &ExecutionFilter,
        depth: ListDepth,
    ) -> Result<FoundExecutions, Failure> {
        if wanted.needs_records() || wanted.needs_attributes() {
            return self.search_records(wanted, depth).await;
        }
        let rows = if depth.counts_rest == RestOfList::Dropped {
            let rows = self.rows_after(wanted, depth.after.as_ref(), depth.limit).await?;
            self.with_details(rows, depth.details).await?
        } else {
            let mut rows = self.rows(&history_filter(wanted), MAX_ROWS_READ).await?;
            rows.retain(|row| takes(wanted, row) == Some(true));
            rows.retain(|row| depth.after.as_ref().is_none_or(|after| after.is_before(row)));
            list::sort(&mut rows);
            let rest = rows.split_off(rows.len().min(depth.limit));
            rows = self.with_details(rows, depth.details).await?;
            rows.extend(rest);
            rows
        };
        Ok(FoundExecutions { rows, ..FoundExecutions::default() })
    }

    /// Returns at most `limit` rows after a cursor, in order, that match or that only their records
    /// decide.
    async fn rows_after(
        &self,
        wanted: &ExecutionFilter,
        after: Option<&ExecutionCursor>,
        limit: usize,
    ) -> Result<Vec<ExecutionRow>, Failure> {
        let behind = after.filter(|after| after.is_closed);
        let behind =
            behind.map(|after| HistoryCursor { started: after.started, execution: after.execution.clone() });
        let mut rows = self.rows_behind(wanted, behind.as_ref(), limit).await?;
        rows.retain(|row| {
            takes(wanted, row) != Some(false) && after.is_none_or(|after| after.is_before(row))
        });
        list::sort(&mut rows);
        rows.truncate(limit);
        Ok(rows)
    }

    /// Reads rows in parts, and the records of those that only records decide, until enough of them
    /// match.
    async fn search_records(
        &self,
        wanted: &ExecutionFilter,
        depth: ListDepth,
    ) -> Result<FoundExecutions, Failure> {
        let limit = match depth.counts_rest {
            RestOfList::Dropped => depth.limit,
            RestOfList::Counted => usize::MAX,
        };
        let part = limit.clamp(MIN_PART_ROWS, MAX_ROWS_READ);
        let (mut found, mut after, mut extent) = (Vec::new(), depth.after, SearchExtent::default());
        loop {
            let rows = self.rows_after(wanted, after.as_ref(), part).await?;
            let is_last = rows.len() < part;
            extent.back_to = rows.last().map(|row| row.started).or(extent.back_to);
            after = rows.last().map(ExecutionCursor::of).or(after);
            extent.records += rows.iter().filter(|row| takes(wanted, row).is_none()).count() as u64;
            found.extend(self.matching(wanted, rows).await?);
            if is_last || found.len() >= limit {
                break;
            }
            if extent.records >= MAX_ROWS_READ as u64 {
                extent.stopped = true;
                break;
            }
        }
        let rest = found.split_off(found.len().min(depth.limit));
        let mut rows = self.with_details(found, depth.details).await?;
        if depth.counts_rest == RestOfList::Counted {
            rows.extend(rest);
        }
        if extent.records == 0 {
            return Ok(FoundExecutions { rows, ..FoundExecutions::default() });
        }
        let open = self.client.open().await?.len() as u64;
        extent.of = open + self.history.closed_count(self.mesh()).await?;
        let stopped_at = after.filter(|_| extent.stopped);
        Ok(FoundExecutions { rows, searched: Some(extent), stopped_at })
    }

    /// Returns the rows that match, with the attributes and errors of the records that were read.
    async fn matching(
        &self,
        wanted: &ExecutionFilter,
        rows: Vec<ExecutionRow>,
    ) -> Result<Vec<ExecutionRow>, Failure> {
        let now = local::now();
        let decided = futures_util::stream::iter(rows).map(|mut row| async move {
            if let Some(is_match) = takes(wanted, &row) {
                return Ok(is_match.then_some(row));
            }
            // An execution may be deleted between the list and its record.
            let Some(record) = self.row_record(&row).await? else { return Ok(None) };
            complete_row(&mut row, &record);
            let parts = list::filtered_record(&record, now);
            Ok(wanted.takes_record(&FilteredRow::from(&row), &parts).then_some(row))
        });
        let rows: Vec<Result<Option<ExecutionRow>, Failure>> = decided.buffered(AT_ONCE).collect().await;
        rows.into_iter().filter_map(Result::transpose).collect()
    }
}

/// Returns whether a row matches a filter; `None` if only its record decides.
fn takes(wanted: &ExecutionFilter, row: &ExecutionRow) -> Option<bool> {
    wanted.takes(&FilteredRow::from(row))
}

/// Returns the part of a filter that the history's server applies.
fn history_filter(wanted: &ExecutionFilter) -> HistoryFilter {
    let status = match wanted.status.as_slice() {
        [status] if status.is_terminal() => Some(status.as_str().to_owned()),
        _ => None,
    };
    HistoryFilter {
        workflow: wanted.workflow.first().filter(|_| wanted.workflow.len() == 1).cloned(),
        status,
        since: wanted.since,
        until: wanted.until,
        ..HistoryFilter::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_read_as_they_were_written() {
        let cursor = ExecutionCursor { is_closed: true, started: 17, execution: "a.b".to_owned() };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for bad in ["", "1", "1.x.id", "2.1.id", "1.2"] {
            assert_eq!(bad.parse::<ExecutionCursor>(), Err(BadCursor), "{bad}");
        }
    }
}
