//! `sinew execution watch`: a live tree on a terminal, a line per change elsewhere.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use sinew_documents::execution::{ShownWait, WaitKind};
use sinew_documents::node_status::NodeStatus;
use sinew_documents::words;
use sinew_engine::Fact;
use sinew_execution::{Execution, events};
use sinew_inspection::execution_status::status_of;
use sinew_inspection::node_rows as rows;
use sinew_inspection::node_table::PictureLine;
use sinew_inspection::record::Record;
use sinew_inspection::tree::{self, TreeOptions, TreeStyle};
use sinew_inspection::view_context::{MeshPresence, ViewContext};
use sinew_inspection::waiting;
use sinew_operations::execution_changes::ExecutionChanges;
use sinew_operations::failure::Failure;
use sinew_operations::mesh_operator::MeshOperator;
use sinew_protocol::query::ExecutionStatus;
use sinew_runtime::local;

use super::Which;
use super::tree::Folding;
use crate::deadline::Deadline;
use crate::exit::Exit;
use crate::output::Output;
use crate::paint::{Painter, terminal_width};
use crate::status_values::exit_of;

/// Time between two repaints without changes: durations keep counting.
const REPAINT_INTERVAL: Duration = Duration::from_millis(500);

const EXAMPLES: &str = "Examples:
  sinew execution watch @latest
  sinew execution watch x7f3 --no-fold --timeout 5m";

/// Arguments of `sinew execution watch`.
#[derive(Args, Debug)]
#[command(
    long_about = "Follow an execution until it ends: its tree on a terminal, a line per change \
                  elsewhere.\n\n\
                  The exit code is 0 if the execution succeeded, 1 if it failed, 5 if --timeout ran out. \
                  Ctrl-C stops only the watch, with exit code 130.",
    after_help = EXAMPLES
)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    folding: Folding,
    /// Stop watching after this time from the start of the command (`90s`, `5m`); the execution continues
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
}

/// Follows an execution.
pub(super) async fn watch(args: &WatchArgs, output: &Output) -> Result<Exit, Failure> {
    let deadline = Deadline::from_flag(args.timeout.as_deref())?;
    let found = async { ExecutionChanges::of(args.which.open().await?).await };
    let changes = deadline.within("connecting and reading the execution", found).await?;
    let how = Follow { options: args.folding.options(), deadline, people: true, show: true };
    let record = follow(changes, &how, output).await?;
    let status = status_of(record.execution.state());
    if !status.is_terminal() {
        output.note(&format!("--timeout ran out; the execution is {}", words::status_word(status)));
    }
    output.value(
        &sinew_inspection::describe::describe(&record, local::now(), &MeshPresence::default()),
        |_| words::status_word(status).to_owned(),
    );
    Ok(if status.is_terminal() { exit_of(status) } else { Exit::TimedOut })
}

/// How an execution is followed.
#[derive(Clone, Debug)]
pub(crate) struct Follow {
    /// Parts of the tree to show.
    pub(crate) options: TreeOptions,
    /// How long.
    pub(crate) deadline: Deadline,
    /// Whether to continue while the execution waits only for people.
    pub(crate) people: bool,
    /// Whether anything is shown at all.
    pub(crate) show: bool,
}

/// Follows an execution until it ends, waits only for people, or the deadline passes. Returns its
/// record at that time.
pub(crate) async fn follow(
    mut changes: ExecutionChanges,
    how: &Follow,
    output: &Output,
) -> Result<Arc<Record>, Failure> {
    let mut view =
        WatchView { how, painter: Painter::default(), told: BTreeMap::new(), rounds: 0, said: None };
    loop {
        let record = Arc::clone(&changes.record);
        let mut presence = changes.presence();
        let status = status_of(record.execution.state());
        let is_last = status.is_terminal() || (status == ExecutionStatus::Waiting && !how.people);
        view.show(&record, &presence, is_last, output);
        if is_last {
            return Ok(record);
        }
        let cards = changes.cards().clone();
        // The wait for a change continues across repaints: if each one restarted it, it might never end.
        let next = changes.next();
        tokio::pin!(next);
        loop {
            tokio::select! {
                biased;
                found = &mut next => {
                    found?;
                    break;
                }
                () = how.deadline.passed() => {
                    view.show(&record, &presence, true, output);
                    return Ok(record);
                }
                () = tokio::time::sleep(REPAINT_INTERVAL), if how.show && output.live => {
                    presence.agents = Some(MeshOperator::heartbeats(&cards));
                    view.show(&record, &presence, false, output);
                }
            }
        }
    }
}

struct WatchView<'a> {
    how: &'a Follow,
    painter: Painter,
    /// Status of each node in its last line.
    told: BTreeMap<String, NodeStatus>,
    /// Rounds whose retries were printed.
    rounds: usize,
    said: Option<String>,
}

impl WatchView<'_> {
    fn show(&mut self, record: &Record, presence: &MeshPresence, is_last: bool, output: &Output) {
        if output.quiet || !self.how.show {
            return;
        }
        let context = ViewContext::of(&record.execution, local::now(), presence);
        if output.live {
            let width = (!is_last).then(terminal_width);
            let branches = tree::tree(record, &context, &self.how.options).unwrap_or_default();
            let folds_quiet = self.how.options.folds_quiet();
            let (color, ascii) = (output.color_err, output.ascii);
            let style = TreeStyle { color, ascii, has_kinds: false, folds_quiet, width };
            let mut lines = vec![PictureLine::from(tree::head(record, &context))];
            lines.extend(tree::drawn(&branches, style));
            if is_last {
                self.painter.finish(&lines);
            } else {
                self.painter.paint(lines, output.ascii);
            }
            return;
        }
        self.tell_retries(record, output);
        let rows = rows::rows_in(&record.execution, &context);
        let changed: Vec<_> = rows
            .into_iter()
            .filter(|row| !matches!(row.status, NodeStatus::Planned | NodeStatus::Queued))
            .filter(|row| !row.may_fold() || !self.how.options.folds_quiet())
            .filter(|row| self.told.insert(row.node.clone(), row.status) != Some(row.status))
            .collect();
        for line in rows::render(&changed, rows::columns_of(record.plan()), output.color_err, output.ascii) {
            output.error_line(&line);
        }
        let waits = waiting::waits(record, &context);
        let is_told = |wait: &&ShownWait| {
            wait.what == WaitKind::Person || wait.what == WaitKind::Executor || wait.is_late
        };
        // Compare keys, not texts: the time since the last heartbeat changes in every text.
        let said = waits.iter().find(is_told).map(|wait| match wait.what {
            WaitKind::Person => {
                let text = waiting::summary(&waits).unwrap_or_default();
                (text.clone(), format!("waiting for {text}"))
            }
            WaitKind::Executor => ("executor".to_owned(), format!("waiting for {}", wait.subject)),
            _ => {
                let node = wait.node.as_deref().unwrap_or("-");
                (node.to_owned(), format!("{node}: {}", wait.subject))
            }
        });
        if said.as_ref().map(|(key, _)| key) != self.said.as_ref() {
            if let Some((_, text)) = &said {
                output.error_line(&words::one_line(text, 200));
            }
            self.said = said.map(|(key, _)| key);
        }
    }

    /// Writes a line for every attempt that failed and is retried, even if a read missed the state in between.
    fn tell_retries(&mut self, record: &Record, output: &Output) {
        let rounds = record.execution.journal();
        for line in
            rounds.iter().skip(self.rounds).flat_map(|round| retried_lines(&record.execution, &round.facts))
        {
            output.error_line(&line);
        }
        self.rounds = rounds.len();
    }
}

/// Returns a line for every attempt that failed and is retried.
pub(crate) fn retried_lines(execution: &Execution, facts: &[Fact]) -> Vec<String> {
    let ctx = execution.ctx();
    let line = |fact: &Fact| match fact {
        Fact::Replied { act, attempt, result: Err(fault), retried: true, .. } => {
            let message = words::one_line(&fault.message, 200);
            Some(format!("{}: attempt {attempt} failed, retrying: {message}", events::label(&ctx, *act)))
        }
        _ => None,
    };
    facts.iter().filter_map(line).collect()
}
