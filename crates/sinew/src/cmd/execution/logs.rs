//! `sinew execution logs`: messages of agents and scripts. The record has those of attempts that have
//! ended; `--follow` adds those of running agents as they are published.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use sinew_documents::words;
use sinew_inspection::events::is_about;
use sinew_inspection::record::Record;
use sinew_mesh::live::ProgressFeed;
use sinew_operations::execution_changes::ExecutionChanges;
use sinew_operations::execution_messages::{
    ShownMessages, TaskAgent, given_tasks, live_message, stored_messages,
};
use sinew_operations::failure::Failure;
use sinew_operations::mesh_operator::MeshOperator;
use sinew_protocol::TaskId;

use super::Which;
use crate::exit::Exit;
use crate::output::{Format, Output};

/// Wait before the record is read again for an unknown task.
const BETWEEN: Duration = Duration::from_millis(100);

const LOGS_EXAMPLES: &str = "Examples:
  sinew execution logs @latest
  sinew execution logs @latest enrich -f --timestamps
  sinew execution logs @latest --grep timeout --tail 20";

/// Arguments of `sinew execution logs`.
#[derive(Args, Debug)]
#[command(
    long_about = "Show messages of an execution's agents and scripts: progress, lines of stderr, text that \
                  scripts print, and the faults of attempts, each line with its node.\n\n\
                  On a mesh, messages are stored when their attempt ends: the newest 128 of an attempt, and \
                  1 MiB of an execution. With --follow, messages of running agents are shown as they arrive, \
                  as `[NODE#ATTEMPT@AGENT] …`, or with `\"stored\": false` in JSON Lines; delivery of these \
                  is best effort.",
    after_help = LOGS_EXAMPLES
)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    which: Which,
    /// Only lines of this node
    #[arg(value_name = "NODE")]
    node: Option<String>,
    /// Only lines that contain this text
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// Only the last N lines
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    /// Show timestamps
    #[arg(long)]
    timestamps: bool,
    /// Follow until the execution ends
    #[arg(short, long)]
    follow: bool,
}

/// Shows messages.
pub(super) async fn logs(args: &LogsArgs, output: &Output) -> Result<Exit, Failure> {
    if args.follow && matches!(output.format, Format::Json | Format::Yaml) {
        return Err(Failure::usage("--follow cannot print a single document").hint("use -o jsonl"));
    }
    let found = args.which.open().await?;
    let first = args.stored(&found.record);
    let begin = args.tail.map_or(0, |tail| first.len().saturating_sub(tail));
    if matches!(output.format, Format::Json | Format::Yaml) {
        output.value(&first[begin..].to_vec(), |_| String::new());
        return Ok(Exit::Ok);
    }
    let mut seen = ShownMessages::default();
    for said in &first {
        seen.is_new(said);
    }
    first[begin..].iter().for_each(|said| args.show(said, output));
    if !args.follow {
        return Ok(Exit::Ok);
    }
    let mut changes = ExecutionChanges::of(found).await?;
    let (remote, id) = (changes.remote().clone(), changes.record.execution.id().clone());
    let mut feed = remote.mesh().tasks().watch_progress(Some(&id), None).await?;
    let known = RefCell::new(given_tasks(&changes.record));
    let seen = RefCell::new(seen);
    let facts = async {
        let mut shown = first.len();
        loop {
            let all = args.stored(&changes.record);
            let fresh = all.iter().skip(shown).filter(|said| seen.borrow_mut().is_new(said));
            fresh.for_each(|said| args.show(said, output));
            shown = all.len();
            if !changes.next().await? {
                return Ok::<_, Failure>(());
            }
            *known.borrow_mut() = given_tasks(&changes.record);
        }
    };
    tokio::select! {
        biased;
        ended = facts => ended?,
        () = live(args, &remote, &mut feed, &known, &seen, output) => {}
    }
    // Progress from before the end has arrived already.
    while let Some(Some(progress)) = feed.next().now_or_never() {
        let known = known.borrow();
        if let Some(said) = known.get(&progress.task).and_then(|who| live_message(&progress, who))
            && seen.borrow_mut().is_new(&said)
        {
            args.show(&said, output);
        }
    }
    Ok(Exit::Ok)
}

impl LogsArgs {
    /// Returns the log lines of the facts.
    fn stored(&self, record: &Record) -> Vec<Value> {
        stored_messages(record).into_iter().filter(|said| self.takes(said)).collect()
    }

    fn takes(&self, said: &Value) -> bool {
        let word = |key: &str| said[key].as_str().unwrap_or_default();
        self.node.as_deref().is_none_or(|wanted| is_about(word("node"), wanted))
            && self.grep.as_deref().is_none_or(|wanted| word("text").contains(wanted))
    }

    fn show(&self, said: &Value, output: &Output) {
        if !self.takes(said) {
            return;
        }
        if output.format == Format::Jsonl {
            output.text(&said.to_string());
            return;
        }
        let word = |key: &str| words::plain(said[key].as_str().unwrap_or_default());
        let at = if self.timestamps { format!("{}  ", word("at")) } else { String::new() };
        let who = if said["stored"] == json!(false) {
            format!("[{}#{}@{}] ", word("node"), said["attempt"], word("agent"))
        } else {
            format!("{}  ", word("node"))
        };
        for line in word("text").lines() {
            output.line(&format!("{at}{who}{line}"));
        }
    }
}

/// Shows progress of running agents until the feed ends.
async fn live(
    args: &LogsArgs,
    remote: &MeshOperator,
    feed: &mut ProgressFeed,
    known: &RefCell<HashMap<TaskId, TaskAgent>>,
    seen: &RefCell<ShownMessages>,
    output: &Output,
) {
    while let Some(progress) = feed.next().await {
        if !known.borrow().contains_key(&progress.task) {
            // The task was dispatched just now, or it is not of this execution: any agent can publish here.
            tokio::time::sleep(BETWEEN).await;
            let Ok(record) = remote.record(&progress.execution).await else { continue };
            *known.borrow_mut() = given_tasks(&record);
        }
        if let Some(said) = known.borrow().get(&progress.task).and_then(|who| live_message(&progress, who))
            && seen.borrow_mut().is_new(&said)
        {
            args.show(&said, output);
        }
    }
    // The caller keeps reading facts.
    std::future::pending::<()>().await;
}
