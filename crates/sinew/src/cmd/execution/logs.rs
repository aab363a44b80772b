//! `sinew execution logs`: messages of agents and scripts. The record has those of attempts that have ended; `--follow` adds
//! those of agents at work, as they are said.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use clap::Args;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use sinew_mesh::live::{Progress, ProgressFeed};
use sinew_protocol::TaskId;
use sinew_protocol::a2a::{PartContent, StreamResponse};
use sinew_protocol::task::progress_text;
use sinew_runtime::{activation_key, local};

use super::Which;
use super::changes::Changes;
use crate::exit::{Exit, Failure};
use crate::output::{Format, Output};
use crate::remote::Remote;
use sinew_inspection::events::{self, EventLine, EventWords, is_about};
use sinew_inspection::record::Record;
use sinew_inspection::words;

/// Between two looks for a task that somebody told of and nobody knows.
const BETWEEN: Duration = Duration::from_millis(100);

const LOGS_EXAMPLES: &str = "Examples:
  sinew execution logs @latest
  sinew execution logs @latest enrich -f --timestamps
  sinew execution logs @latest --grep timeout --tail 20";

/// Arguments of `sinew execution logs`.
#[derive(Args, Debug)]
#[command(
    long_about = "Show messages of an execution's agents and scripts: progress, lines of stderr, text that scripts print, and \
                  the faults of attempts, each line with its node.\n\nOn a mesh, messages are stored when their attempt ends: \
                  the newest 128 of an attempt, and 1 MiB of an execution. With --follow, messages of agents at work are \
                  shown as they are said, as `[NODE#ATTEMPT@AGENT] …`, or with `\"stored\": false` in JSON Lines; some of \
                  these may be lost on the way.",
    after_help = LOGS_EXAMPLES
)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    which: Which,
    /// Only of this node
    #[arg(value_name = "NODE")]
    node: Option<String>,
    /// Only lines with this text
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// Only the last lines
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    /// When each was said
    #[arg(long)]
    timestamps: bool,
    /// Go on until the execution ends
    #[arg(short, long)]
    follow: bool,
}

/// Shows what agents say.
pub(super) async fn logs(args: &LogsArgs, output: &Output) -> Result<Exit, Failure> {
    if args.follow && matches!(output.format, Format::Json | Format::Yaml) {
        return Err(Failure::usage("what goes on has no end to be one document").hint("use -o jsonl"));
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
    let mut changes = Changes::of(found).await?;
    let (remote, id) = (changes.remote().clone(), changes.record.execution.id().clone());
    let mut feed = remote.mesh().tasks().watch_progress(Some(&id), None).await?;
    let known = RefCell::new(tasks(&changes.record));
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
            *known.borrow_mut() = tasks(&changes.record);
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
        if let Some(said) = known.get(&progress.task).and_then(|who| heard(&progress, who))
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
        let lines = events::lines(record, EventWords::Facts);
        let last = (!record.execution.state().has_room_for_progress()).then(|| {
            json!({
                "at": words::instant(record.at()),
                "level": "warn",
                "text": "(later messages of this execution are not kept: those above have 1 MiB)",
            })
        });
        lines.iter().filter_map(spoken).chain(last).filter(|said| self.takes(said)).collect()
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

/// Agent and node of a task.
struct TaskAgent {
    node: String,
    attempt: u32,
    agent: String,
}

/// The tasks that an execution has given to agents.
fn tasks(record: &Record) -> HashMap<TaskId, TaskAgent> {
    let (id, program, ctx) = (record.execution.id(), record.execution.program(), record.execution.ctx());
    let mut known = HashMap::new();
    for act in 0..ctx.state.acts.len() as u32 {
        let one = ctx.act(act);
        let Some(asked) = sinew_inspection::node_rows::asked_agent(one) else { continue };
        let key = activation_key(id, program, ctx.state, act);
        for attempt in 1..=one.attempt {
            let (node, agent) = (sinew_runtime::events::label(&ctx, act), asked.clone());
            known.insert(TaskId::of(id, &key, attempt), TaskAgent { node, attempt, agent });
        }
    }
    known
}

/// Shows what is said while agents work, as long as anybody can be heard.
async fn live(
    args: &LogsArgs,
    remote: &Remote,
    feed: &mut ProgressFeed,
    known: &RefCell<HashMap<TaskId, TaskAgent>>,
    seen: &RefCell<ShownMessages>,
    output: &Output,
) {
    while let Some(progress) = feed.next().await {
        if !known.borrow().contains_key(&progress.task) {
            // It was given away just now, or it is none of this execution's: anybody may say anything here.
            tokio::time::sleep(BETWEEN).await;
            let Ok(record) = remote.record(&progress.execution).await else { continue };
            *known.borrow_mut() = tasks(&record);
        }
        if let Some(said) = known.borrow().get(&progress.task).and_then(|who| heard(&progress, who))
            && seen.borrow_mut().is_new(&said)
        {
            args.show(&said, output);
        }
    }
    // The facts go on being read as long as they can be.
    std::future::pending::<()>().await;
}

/// Returns the progress message of an agent; `None` if the update holds none.
fn heard(progress: &Progress, who: &TaskAgent) -> Option<Value> {
    let StreamResponse::StatusUpdate(update) = serde_json::from_slice(&progress.body).ok()? else {
        return None;
    };
    let message = update.status.message?;
    let texts: Vec<String> = message
        .parts
        .iter()
        .filter_map(|part| match &part.content {
            PartContent::Text(text) => Some(text.clone()),
            PartContent::Data(value) => Some(progress_text(value)),
            _ => None,
        })
        .collect();
    Some(json!({
        "at": words::instant(local::now()),
        "node": who.node,
        "attempt": who.attempt,
        "agent": who.agent,
        "level": "info",
        "text": texts.join("\n"),
        "stored": false,
    }))
}

/// Counts of the messages that were heard from agents and that were read from the record, so that each is shown once.
#[derive(Default)]
struct ShownMessages(HashMap<(String, u64, String), [u32; 2]>);

impl ShownMessages {
    /// Counts a message. Returns whether it has not been shown: the other source has not brought it as often as this one.
    fn is_new(&mut self, said: &Value) -> bool {
        let word = |key: &str| said[key].as_str().unwrap_or_default();
        let key =
            (word("node").to_owned(), said["attempt"].as_u64().unwrap_or_default(), word("text").to_owned());
        let counts = self.0.entry(key).or_default();
        let heard = usize::from(said["stored"] == json!(false));
        counts[heard] += 1;
        counts[heard] > counts[1 - heard]
    }
}

/// A fact that says something to people who look for what went on.
fn spoken(line: &EventLine) -> Option<Value> {
    let fact = &line.event;
    let (level, text) = match line.kind.as_str() {
        "progressed" => ("info", progress_text(&fact["value"])),
        "replied" => {
            let fault = fact["result"].get("fault")?;
            let again = if fact["retried"] == json!(true) { "; it is tried again" } else { "" };
            (
                "error",
                format!(
                    "attempt {}: {}{again}",
                    fact["attempt"],
                    fault["message"].as_str().unwrap_or_default()
                ),
            )
        }
        "late" => ("warn", format!("attempt {} was answered too late", fact["attempt"])),
        _ => return None,
    };
    // An agent says when it said something; its clock cannot be ahead of the record.
    let said_at = fact["value"]["at"].as_u64().map_or(line.at, |at| at.min(line.at));
    Some(json!({
        "at": words::instant(said_at),
        "node": line.node,
        "attempt": fact["attempt"],
        "level": level,
        "text": text,
    }))
}
