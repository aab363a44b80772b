//! `execution list`: one row per execution, and the filter.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use sinew_documents::words;
use sinew_documents::words::duration;
use sinew_engine::Time;

use crate::execution_status::status_of;
use crate::model_usage::totals_words;
use crate::record::Record;
use crate::view_context::{MeshPresence, ViewContext};
use crate::{describe, waiting};
use sinew_execution::usage::execution_usage;
use sinew_protocol::query::ExecutionStatus;
use sinew_protocol::usage::ModelTotals;

/// A row of the list.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ExecutionRow {
    /// Id of the execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Status.
    #[serde(serialize_with = "words::serialize_status")]
    #[schemars(with = "String")]
    pub status: ExecutionStatus,
    /// Start time.
    #[serde(serialize_with = "words::serialize")]
    #[schemars(with = "String")]
    pub started: Time,
    /// End time; `None` while it is open.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "words::maybe")]
    #[schemars(with = "Option<String>")]
    pub ended: Option<Time>,
    /// When its process ended before the execution did; `None` if it still runs or has ended.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "words::maybe")]
    #[schemars(with = "Option<String>")]
    pub stopped: Option<Time>,
    /// True if no agent was called and every output was null.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Caller who started it.
    pub caller: String,
    /// Current wait, in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Why it failed or was cancelled.
    #[serde(rename = "error", skip_serializing_if = "Option::is_none")]
    pub fault: Option<RowFault>,
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Model usage that its agents reported with results.
    #[serde(skip_serializing_if = "ModelTotals::is_empty")]
    pub usage: ModelTotals,
}

/// Summary of a failure.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RowFault {
    /// Operator code.
    pub code: String,
    /// Message for people.
    pub message: String,
    /// The node that failed first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The agent whose task failed first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

impl RowFault {
    /// Creates a fault of which only the code is known.
    pub fn with_code(code: String) -> Self {
        Self { code, message: String::new(), node: None, agent: None }
    }

    /// Returns why an execution failed; `None` if it did not.
    pub fn of(record: &Record) -> Option<Self> {
        let failure = describe::failure(record)?;
        let cause = failure.chain.first()?;
        Some(Self {
            code: cause.fault.code.to_string(),
            message: cause.fault.message.clone(),
            agent: failure.chain.iter().find_map(|cause| cause.agent.clone()),
            node: failure.node,
        })
    }
}

impl ExecutionRow {
    /// Creates the row of a record.
    pub fn of(record: &Record, now: Time) -> Self {
        let state = record.execution.state();
        Self {
            execution: record.id().to_owned(),
            workflow: record.plan().name.clone(),
            status: status_of(state),
            started: state.started_at,
            ended: state.ended.then_some(state.at),
            stopped: record.is_abandoned().then(|| record.at()),
            dry_run: record.is_dry_run(),
            caller: record.about.caller.clone(),
            waiting: waiting::summary(&waiting::waits(
                record,
                &ViewContext::of(&record.execution, now, &MeshPresence::default()),
            )),
            fault: state.ended.then(|| RowFault::of(record)).flatten(),
            labels: record.about.labels.clone(),
            usage: execution_usage(state),
        }
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
            && self.since.is_none_or(|since| row.started >= since)
            && self.until.is_none_or(|until| row.started < until)
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
            words::ago(row.started, now),
            duration(row.ended.or(row.stopped).unwrap_or(now).saturating_sub(row.started)),
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
