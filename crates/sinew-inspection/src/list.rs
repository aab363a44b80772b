//! `execution list`: one row per execution, and the filter.

use sinew_documents::execution_list::{ExecutionRow, RowFault};
use sinew_documents::model_usage::totals_words;
use sinew_documents::timestamp::Timestamp;
use sinew_documents::words;
use sinew_documents::words::duration;
use sinew_engine::Time;

use crate::execution_status::status_of;
use crate::record::Record;
use crate::view_context::{MeshPresence, ViewContext};
use crate::{describe, waiting};
use sinew_execution::usage::execution_usage;
use sinew_protocol::query::ExecutionStatus;

/// Returns why an execution failed; `None` if it did not.
pub fn row_fault(record: &Record) -> Option<RowFault> {
    let failure = describe::failure(record)?;
    let cause = failure.chain.first()?;
    Some(RowFault {
        code: cause.fault.code.to_string(),
        message: cause.fault.message.clone(),
        agent: failure.chain.iter().find_map(|cause| cause.agent.clone()),
        node: failure.node,
    })
}

/// Returns the row of a record.
pub fn execution_row(record: &Record, now: Time) -> ExecutionRow {
    let state = record.execution.state();
    ExecutionRow {
        execution: record.id().to_owned(),
        workflow: record.plan().name.clone(),
        status: status_of(state),
        started: state.started_at.into(),
        ended: state.ended.then_some(state.at.into()),
        stopped: record.is_abandoned().then(|| record.at().into()),
        dry_run: record.is_dry_run(),
        caller: record.about.caller.clone(),
        waiting: waiting::summary(&waiting::waits(
            record,
            &ViewContext::of(&record.execution, now, &MeshPresence::default()),
        )),
        fault: state.ended.then(|| row_fault(record)).flatten(),
        labels: record.about.labels.clone(),
        usage: execution_usage(state),
    }
}

/// A filter of rows. Empty lists match all.
#[derive(Clone, Debug, Default)]
pub struct RowFilter {
    /// Status.
    pub status: Vec<ExecutionStatus>,
    /// Name of the workflow.
    pub workflow: Vec<String>,
    /// Labels.
    pub labels: Vec<(String, String)>,
    /// Started at or after.
    pub since: Option<Time>,
    /// Started before.
    pub until: Option<Time>,
    /// Operator codes of the faults by which executions ended.
    pub errors: Vec<String>,
    /// Caller who started it.
    pub caller: Option<String>,
}

impl RowFilter {
    /// Returns true if the row matches.
    pub fn takes(&self, row: &ExecutionRow) -> bool {
        (self.status.is_empty() || self.status.contains(&row.status))
            && (self.workflow.is_empty() || self.workflow.contains(&row.workflow))
            && self.caller.as_ref().is_none_or(|caller| *caller == row.caller)
            && self.labels.iter().all(|(key, value)| row.labels.get(key) == Some(value))
            && self.since.is_none_or(|since| row.started.ms() >= since)
            && self.until.is_none_or(|until| row.started.ms() < until)
            && (self.errors.is_empty()
                || row.fault.as_ref().is_some_and(|fault| self.errors.contains(&fault.code)))
    }
}

/// Sorts running executions first, then newest first.
pub fn sort(rows: &mut [ExecutionRow]) {
    rows.sort_by(|a, b| {
        let key = |row: &ExecutionRow| (row.status.is_terminal(), std::cmp::Reverse(row.started));
        key(a).cmp(&key(b)).then_with(|| a.execution.cmp(&b.execution))
    });
}

/// Formats the rows for people. Model usage has a column only if there is any.
pub fn text(rows: &[ExecutionRow], now: Time, wide: bool, color: bool) -> String {
    let mut heads = vec!["EXECUTION", "STATUS", "WORKFLOW", "STARTED", "TIME"];
    if wide {
        heads.extend(["CALLER", "LABELS"]);
    }
    let has_models = rows.iter().any(|row| !row.usage.is_empty());
    if has_models {
        heads.push("MODELS");
    }
    heads.push("WHY");
    let mut lines = vec![heads.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for row in rows {
        let mut line = vec![
            if wide { row.execution.clone() } else { words::short_id(&row.execution).to_owned() },
            format!("{}{}", words::status_word(row.status), if row.dry_run { " (dry run)" } else { "" }),
            words::one_line(&row.workflow, 40),
            words::ago(row.started.ms(), now),
            duration(row.ended.or(row.stopped).map_or(now, Timestamp::ms).saturating_sub(row.started.ms())),
        ];
        if wide {
            let labels: Vec<String> =
                row.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            line.extend([words::one_line(&row.caller, 30), words::one_line(&labels.join(","), 60)]);
        }
        if has_models {
            line.push(totals_words(&row.usage));
        }
        let why = match (&row.waiting, &row.fault) {
            (Some(waiting), _) => waiting.clone(),
            (None, Some(fault)) => match fault.node.as_ref().filter(|node| !fault.message.contains(*node)) {
                Some(node) => format!("{node}: {}", fault.message),
                None => fault.message.clone(),
            },
            (None, None) => String::new(),
        };
        let why = match row.stopped {
            Some(_) if why.is_empty() => "stopped".to_owned(),
            Some(_) => format!("stopped: {why}"),
            None => why,
        };
        line.push(words::one_line(&why, if wide { 200 } else { 60 }));
        lines.push(line);
    }
    let table = words::columns(&lines);
    if !color {
        return table;
    }
    // Apply colours after the alignment, because they have no width.
    let mut painted = table.lines();
    let head = painted.next().unwrap_or_default().to_owned();
    let rest = painted.zip(rows).map(|(line, row)| {
        let word = words::status_word(row.status);
        line.replacen(
            &format!("  {word}"),
            &format!("  {}{word}\u{1b}[0m", words::status_color(row.status)),
            1,
        )
    });
    std::iter::once(head).chain(rest).collect::<Vec<_>>().join("\n")
}
