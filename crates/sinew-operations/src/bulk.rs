//! One command for every execution that matches a filter.
//!
//! [`MeshOperator::plan_bulk`] freezes the list of executions before the first command is sent. The
//! id of each command follows from the id of the bulk operation, so a repeated bulk operation sends
//! no command twice. A command is accepted or rejected; whether an accepted retry succeeds is known
//! when the execution ends.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;
use sinew_documents::bulk::{BulkGroup, BulkOutcome, BulkPreview, BulkVerb};
use sinew_documents::execution_filter::ExecutionFilter;
use sinew_documents::execution_list::ExecutionRow;
use sinew_protocol::artifact::sha256;
use sinew_protocol::command::{CancelCommand, Command, PauseCommand, ResumeCommand, RetryCommand};
use sinew_protocol::query::ExecutionStatus;
use sinew_protocol::{ExecutionId, Token, code};

use crate::execution_list::{ListDepth, MAX_ROWS_READ, RestOfList};
use crate::failure::{Failure, FailureKind};
use crate::mesh_operator::{AT_ONCE, MeshOperator, RowDetails, new_command_id};

/// Maximum number of executions of one bulk operation.
pub const MAX_BULK: usize = 10_000;
/// Number of sample executions per group of a preview.
const SAMPLES: usize = 3;
/// Maximum number of groups of a preview; the rest is one group.
const MAX_GROUPS: usize = 50;

/// A bulk operation: one command with one id.
#[derive(Clone, Debug)]
pub struct BulkOrder {
    /// Id of the bulk operation, from which the ids of commands follow.
    pub id: String,
    /// The command.
    pub verb: BulkVerb,
    /// Reason, recorded with each execution; empty for none.
    pub reason: String,
}

impl BulkOrder {
    /// Creates an order with a new id.
    pub fn new(verb: BulkVerb, reason: String) -> Self {
        Self { id: new_command_id().to_string(), verb, reason }
    }

    fn command(&self, execution: ExecutionId) -> (Token, Command) {
        let id = Token::of(&sha256(format!("{} {execution}", self.id).as_bytes())[..32]);
        let reason = self.reason.clone();
        let command = match self.verb {
            BulkVerb::Retry => Command::Retry(RetryCommand {
                execution,
                nodes: Vec::new(),
                only: false,
                input: None,
                reason,
            }),
            BulkVerb::Cancel => Command::Cancel(CancelCommand { execution, reason }),
            BulkVerb::Pause => Command::Pause(PauseCommand { execution, reason }),
            BulkVerb::Resume => Command::Resume(ResumeCommand { execution }),
        };
        (id, command)
    }
}

impl MeshOperator {
    /// Lists the executions that match a filter and accept the command as far as their status tells,
    /// at most [`MAX_BULK`], in groups of workflow and error.
    ///
    /// # Errors
    /// More executions match, or not all executions could be searched.
    pub async fn plan_bulk(
        &self,
        wanted: &ExecutionFilter,
        order: &BulkOrder,
    ) -> Result<BulkPreview, Failure> {
        let depth = ListDepth {
            limit: MAX_BULK + 1,
            details: RowDetails::Faults,
            after: None,
            counts_rest: RestOfList::Dropped,
        };
        let status = match wanted.status.as_slice() {
            [] => ExecutionStatus::ALL.to_vec(),
            status => status.to_vec(),
        };
        let status: Vec<_> = status.into_iter().filter(|status| order.verb.applies_to(*status)).collect();
        if status.is_empty() {
            let text = format!("no status of the filter accepts {}", order.verb.as_str());
            return Err(Failure::usage(text));
        }
        let found = self.search(&ExecutionFilter { status, ..wanted.clone() }, depth).await?;
        let too_many = |text: String| {
            Err(Failure::new(FailureKind::Conflict, code::BULK_TOO_LARGE.as_str(), text)
                .hint("narrow the filter, for example by workflow: and since:"))
        };
        if found.rows.len() > MAX_BULK {
            return too_many(format!("more than {MAX_BULK} executions match"));
        }
        if found.stopped_at.is_some() {
            return too_many(format!("the filter needs the records of more than {MAX_ROWS_READ} executions"));
        }
        Ok(BulkPreview {
            id: order.id.clone(),
            command: order.verb,
            count: found.rows.len(),
            groups: groups(&found.rows),
            executions: found.rows.into_iter().map(|row| row.execution).collect(),
            searched: found.searched,
        })
    }

    /// Sends the command to these executions, some at a time, and reports each outcome. Dropping the
    /// future stops the bulk operation: commands that were not sent are not sent.
    pub async fn send_bulk(
        &self,
        order: &BulkOrder,
        executions: Vec<ExecutionId>,
        mut report: impl FnMut(&BulkOutcome),
    ) -> Vec<BulkOutcome> {
        let sent = futures_util::stream::iter(executions).map(|execution| async move {
            let (name, (id, command)) = (execution.to_string(), order.command(execution));
            match self.signal_as(id, command).await {
                Ok(_) => BulkOutcome { execution: name, accepted: true, code: None, error: None },
                Err(failure) => BulkOutcome {
                    execution: name,
                    accepted: false,
                    code: Some(failure.code.to_owned()),
                    error: Some(failure.message),
                },
            }
        });
        let mut sent = sent.buffer_unordered(AT_ONCE);
        let mut outcomes = Vec::new();
        while let Some(outcome) = sent.next().await {
            report(&outcome);
            outcomes.push(outcome);
        }
        outcomes
    }
}

/// Groups executions by workflow and error, largest group first.
fn groups(rows: &[ExecutionRow]) -> Vec<BulkGroup> {
    let mut by_key: BTreeMap<(&str, &str), BulkGroup> = BTreeMap::new();
    for row in rows {
        let error = row.fault.as_ref();
        let code = error.map_or("", |error| error.code.as_str());
        let group = by_key.entry((&row.workflow, code)).or_insert_with(|| BulkGroup {
            workflow: row.workflow.clone(),
            error: error.map(|error| error.code.clone()),
            message: error.map(|error| error.message.clone()),
            count: 0,
            samples: Vec::new(),
        });
        group.count += 1;
        if group.samples.len() < SAMPLES {
            group.samples.push(row.execution.clone());
        }
    }
    let mut groups: Vec<BulkGroup> = by_key.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    if groups.len() > MAX_GROUPS {
        let rest = groups.split_off(MAX_GROUPS - 1);
        groups.push(BulkGroup {
            workflow: format!("{} more groups", rest.len()),
            error: None,
            message: None,
            count: rest.iter().map(|group| group.count).sum(),
            samples: Vec::new(),
        });
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_commands_follow_from_the_operation() {
        let order = |id: &str| BulkOrder { id: id.to_owned(), verb: BulkVerb::Retry, reason: String::new() };
        let id = |bulk: &str, execution: &str| order(bulk).command(ExecutionId::parse(execution).unwrap()).0;
        assert_eq!(id("b1", "e1"), id("b1", "e1"));
        let others = [id("b1", "e1"), id("b1", "e2"), id("b2", "e1")];
        assert!(others[0] != others[1] && others[0] != others[2] && others[1] != others[2]);
    }

    #[test]
    fn groups_count_executions_by_workflow_and_error() {
        let row = |id: &str, workflow: &str, code: &str| -> ExecutionRow {
            serde_json::from_value(serde_json::json!({
                "execution": id, "workflow": workflow, "status": "failed", "caller": "c",
                "started": "2026-11-23T10:00:00Z", "error": {"code": code, "message": "m"},
            }))
            .unwrap()
        };
        let rows = [
            row("a", "orders", "X"),
            row("b", "orders", "Y"),
            row("c", "orders", "Y"),
            row("d", "bills", "X"),
        ];
        let found: Vec<_> = groups(&rows)
            .into_iter()
            .map(|group| (group.workflow, group.error.unwrap(), group.count, group.samples.join(" ")))
            .collect();
        let group = |workflow: &str, code: &str, count, samples: &str| {
            (workflow.to_owned(), code.to_owned(), count, samples.to_owned())
        };
        let want =
            [group("orders", "Y", 2, "b c"), group("bills", "X", 1, "d"), group("orders", "X", 1, "a")];
        assert_eq!(found, want);
    }
}
