//! `execution list`: one row per execution, and the filter.

use serde_json::Value;
use sinew_documents::execution_filter::FilteredRecord;
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
use sinew_execution::route::called_names;
use sinew_execution::usage::execution_usage;
use sinew_protocol::attributes::ExecutionAttributes;

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

/// Returns the attributes of a record's execution.
pub fn attributes(record: &Record) -> ExecutionAttributes {
    let about = &record.about;
    ExecutionAttributes {
        labels: about.labels.clone(),
        idempotency_key: about.idempotency_key.clone(),
        parent: about.parent.clone(),
        session: about.session.clone(),
        user: about.user.clone(),
        called: called_names(record.execution.state()),
        incomplete: false,
    }
}

/// Returns what only the record contains of an execution that a filter compares.
pub fn filtered_record(record: &Record, now: Time) -> FilteredRecord {
    let state = record.execution.state();
    let text = |value: Option<&Value>| value.map(Value::to_string).unwrap_or_default().to_lowercase();
    let failure = describe::failure(record);
    let faults = failure.iter().flat_map(|failure| &failure.chain).map(|cause| &cause.fault);
    let errors: Vec<String> = faults.map(|fault| format!("{} {}", fault.code, fault.message)).collect();
    let waits = waiting::waits(record, &ViewContext::of(&record.execution, now, &MeshPresence::default()));
    let failed = failure.iter().flat_map(|failure| {
        failure.node.iter().chain(failure.chain.iter().filter_map(|cause| cause.node.as_ref()))
    });
    let nodes = failed.cloned().chain(waits.into_iter().filter_map(|wait| wait.node));
    FilteredRecord {
        input: text(Some(record.execution.ctx().input())),
        output: text(state.outcome.as_ref().and_then(|outcome| outcome.output.as_deref())),
        errors: errors.join("\n").to_lowercase(),
        // A child of a map has an index: `ship[2]`.
        nodes: nodes.flat_map(|node| [node.split('[').next().unwrap_or_default().to_owned(), node]).collect(),
    }
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
        attributes: attributes(record),
        plan: Some(record.execution.program().graph.digest().to_owned()),
        waits_for: Vec::new(),
        usage: execution_usage(state),
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
        heads.extend(["CALLER", "KEY", "LABELS"]);
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
                row.attributes.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let key = row.attributes.idempotency_key.as_deref().unwrap_or_default();
            line.extend([
                words::one_line(&row.caller, 30),
                words::one_line(key, 40),
                words::one_line(&labels.join(","), 60),
            ]);
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
