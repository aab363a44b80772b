//! Lists of executions, running first, then newest.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use sinew_documents::execution_list::ExecutionRow;
use sinew_engine::Time;
use sinew_inspection::list::{self, RowFilter};
use sinew_mesh::history::HistoryFilter;
use sinew_mesh::history_index::HistoryCursor;

use crate::failure::Failure;
use crate::mesh_operator::{MeshOperator, RowDetails};

/// Maximum number of closed executions read to find matches.
const MAX_ROWS_READ: usize = 5_000;

/// Minimum number of executions whose records are read together to find labels.
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

impl MeshOperator {
    /// Lists the executions that match a filter, in order. Rows after `limit` have no labels and
    /// reasons.
    pub async fn list(&self, wanted: &RowFilter, depth: ListDepth) -> Result<Vec<ExecutionRow>, Failure> {
        // Labels of closed executions are only known after their records are read.
        let others = RowFilter { labels: Vec::new(), ..wanted.clone() };
        if depth.counts_rest == RestOfList::Dropped {
            return if wanted.labels.is_empty() {
                let rows = self.rows_after(&others, depth.after.as_ref(), depth.limit).await?;
                self.with_details(rows, depth.details).await
            } else {
                self.labelled(wanted, &others, depth).await
            };
        }
        let mut rows = self.rows(&history_filter(wanted), MAX_ROWS_READ).await?;
        rows.retain(|row| others.takes(row));
        rows.retain(|row| depth.after.as_ref().is_none_or(|after| after.is_before(row)));
        list::sort(&mut rows);
        if wanted.labels.is_empty() {
            let rest = rows.split_off(rows.len().min(depth.limit));
            rows = self.with_details(rows, depth.details).await?;
            rows.extend(rest);
        } else {
            rows = self.with_details(rows, RowDetails::All).await?;
            rows.retain(|row| wanted.takes(row));
        }
        Ok(rows)
    }

    /// Returns at most `limit` rows after a cursor, in order, based on the headers of records.
    async fn rows_after(
        &self,
        wanted: &RowFilter,
        after: Option<&ExecutionCursor>,
        limit: usize,
    ) -> Result<Vec<ExecutionRow>, Failure> {
        let behind = after.filter(|after| after.is_closed);
        let behind =
            behind.map(|after| HistoryCursor { started: after.started, execution: after.execution.clone() });
        let mut rows = self.rows_behind(wanted, behind.as_ref(), limit).await?;
        rows.retain(|row| wanted.takes(row) && after.is_none_or(|after| after.is_before(row)));
        list::sort(&mut rows);
        rows.truncate(limit);
        Ok(rows)
    }

    /// Returns rows with labels: records are read in parts until enough of them match.
    async fn labelled(
        &self,
        wanted: &RowFilter,
        others: &RowFilter,
        depth: ListDepth,
    ) -> Result<Vec<ExecutionRow>, Failure> {
        let (mut found, mut after, mut read) = (Vec::new(), depth.after, 0);
        let part = depth.limit.max(MIN_PART_ROWS);
        while found.len() < depth.limit && read < MAX_ROWS_READ {
            let rows = self.rows_after(others, after.as_ref(), part).await?;
            let (count, last) = (rows.len(), rows.last().map(ExecutionCursor::of));
            (read, after) = (read + count, last);
            let rows = self.with_details(rows, RowDetails::All).await?;
            found.extend(rows.into_iter().filter(|row| wanted.takes(row)));
            if count < part {
                break;
            }
        }
        found.truncate(depth.limit);
        Ok(found)
    }
}

/// Returns the part of a filter that the history's server applies.
fn history_filter(wanted: &RowFilter) -> HistoryFilter {
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
