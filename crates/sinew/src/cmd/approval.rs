//! `sinew approval`: what waits for a person, and the person's word to it.

use clap::{Args, Subcommand};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use sinew_protocol::ExecutionId;
use sinew_protocol::code;
use sinew_protocol::command::{ApproveCommand, Command};
use sinew_runtime::local;

use crate::connect::{Connection, block};
use crate::exit::{Exit, Failure};
use crate::input;
use crate::output::Output;
use crate::remote::Remote;
use sinew_inspection::decision;
use sinew_inspection::record::Record;
use sinew_inspection::view_context::{MeshPresence, ViewContext};
use sinew_inspection::waiting::{self, ShownWait, WaitKind};
use sinew_inspection::words;

/// Records fetched at the same time.
const AT_ONCE: usize = 16;

/// Commands for what waits for people.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalCommand {
    /// List what waits for a person
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show what a person is asked, with the data to judge
    #[command(
        after_help = "Examples:\n  sinew approval show @latest\n  sinew approval show x7f3 --node discount -o json"
    )]
    Show(OneArgs),
    /// Say yes, or give an answer
    Approve(ApproveArgs),
    /// Say no
    Reject(RejectArgs),
}

/// Arguments of `sinew approval list`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sinew approval list\n  sinew approval list -o json | jq '.[].question'")]
pub(crate) struct ListArgs {
    /// Only of this workflow
    #[arg(short, long, value_name = "NAME")]
    workflow: Option<String>,
    #[command(flatten)]
    mesh: Connection,
}

/// One question.
#[derive(Args, Debug)]
pub(crate) struct OneArgs {
    /// The execution: its id, the first characters of it, or @latest
    #[arg(value_name = "ID|@latest")]
    id: String,
    /// The node that waits, when several do
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    #[command(flatten)]
    mesh: Connection,
}

/// Arguments of `sinew approval approve`.
#[derive(Args, Debug)]
#[command(
    long_about = "Say yes to what waits for a person, or answer it with data. Who decides is recorded with the decision.",
    after_help = "Examples:\n  sinew approval approve @latest\n  sinew approval approve x7f3 --node discount --data '{\"percent\": 5}' --comment 'as agreed'"
)]
pub(crate) struct ApproveArgs {
    #[command(flatten)]
    one: OneArgs,
    /// The answer, as JSON if it reads as JSON, else as text [default: approve]
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// Comment stored with the decision
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    /// Say what would be decided, and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `sinew approval reject`.
#[derive(Args, Debug)]
#[command(
    long_about = "Say no to what waits for a person. Who decides, and why, is recorded with the decision.",
    after_help = "Examples:\n  sinew approval reject @latest --comment 'the amount is wrong'"
)]
pub(crate) struct RejectArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Reason stored with the decision
    #[arg(long, value_name = "TEXT")]
    comment: String,
    /// Say what would be decided, and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// Does what the command line says.
pub(crate) fn approval(command: ApprovalCommand, output: &Output) -> Result<Exit, Failure> {
    block(async {
        match command {
            ApprovalCommand::List(args) => list(&args, output).await,
            ApprovalCommand::Show(args) => show(&args, output).await,
            ApprovalCommand::Approve(args) => {
                let data = args.data.as_deref().map(input::json_or_text).unwrap_or_default();
                let decision =
                    DecisionWord { data, comment: args.comment, reject: false, dry_run: args.dry_run };
                decide(&args.one, decision, output).await
            }
            ApprovalCommand::Reject(args) => {
                if args.comment.trim().is_empty() {
                    return Err(Failure::usage("--comment says why, and may not be empty"));
                }
                let comment = Some(args.comment);
                let decision =
                    DecisionWord { data: Value::Null, comment, reject: true, dry_run: args.dry_run };
                decide(&args.one, decision, output).await
            }
        }
    })
}

async fn list(args: &ListArgs, output: &Output) -> Result<Exit, Failure> {
    let remote = Remote::open(&args.mesh).await?;
    let mut open = remote.client.open().await?;
    open.retain(|one| args.workflow.as_ref().is_none_or(|name| *name == one.workflow));
    let remote = &remote;
    // An execution that works somewhere else may wait for a person all the same.
    let records = futures_util::stream::iter(open)
        .map(|one| async move { remote.record(&one.execution).await })
        .buffered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    let now = local::now();
    let mut rows = Vec::new();
    for record in records {
        // One that ended while we looked waits no more.
        let Ok(record) = record else { continue };
        for wait in people(&record) {
            rows.push((record.id().to_owned(), record.plan().name.clone(), wait));
        }
    }
    rows.sort_by_key(|(_, _, wait)| wait.until.unwrap_or(u64::MAX));
    let documents: Vec<Value> = rows
        .iter()
        .map(|(id, workflow, wait)| {
            let mut row = serde_json::to_value(wait).unwrap_or_default();
            row["execution"] = json!(id);
            row["workflow"] = json!(workflow);
            row
        })
        .collect();
    output.value(&documents, |_| match rows.as_slice() {
        [] => "nothing waits for a person".to_owned(),
        rows => table(rows, now),
    });
    Ok(Exit::Ok)
}

fn table(rows: &[(String, String, ShownWait)], now: u64) -> String {
    let heads = ["EXECUTION", "WORKFLOW", "NODE", "SINCE", "DUE", "WHO", "QUESTION"];
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    for (id, workflow, wait) in rows {
        let question = wait.question.as_ref();
        let who = question.map(|question| question.allowed.join(",")).filter(|who| !who.is_empty());
        let due = wait.until.map(|until| match until.checked_sub(now) {
            Some(left) => format!("in {}", sinew_inspection::words::duration(left)),
            None => "now".to_owned(),
        });
        lines.push(vec![
            words::short_id(id).to_owned(),
            words::one_line(workflow, 30),
            wait.node.clone().unwrap_or_default(),
            words::ago(wait.since, now),
            due.unwrap_or_else(|| "-".into()),
            words::one_line(&who.unwrap_or_else(|| "anybody".into()), 30),
            words::one_line(question.map(|question| question.prompt.as_str()).unwrap_or_default(), 80),
        ]);
    }
    words::columns(&lines)
}

async fn show(args: &OneArgs, output: &Output) -> Result<Exit, Failure> {
    let (remote, id, wait) = args.find().await?;
    let record = remote.record(&id).await?;
    let mut document = serde_json::to_value(&wait).unwrap_or_default();
    document["execution"] = json!(id.as_str());
    document["workflow"] = json!(record.plan().name);
    document["input"] = record.execution.ctx().input().clone();
    document["decisions"] = json!(decision::decisions(&record));
    output.value(&document, |_| question_text(&record, &wait, local::now()));
    Ok(Exit::Ok)
}

/// The question for people: what it is about, who asks since when, and the commands that answer it.
fn question_text(record: &Record, wait: &ShownWait, now: u64) -> String {
    let question = wait.question.as_ref();
    let node = wait.node.as_deref().unwrap_or_default();
    let pretty =
        |value: &Value| sinew_source::indented(&serde_json::to_string_pretty(value).unwrap_or_default());
    let mut lines =
        vec![question.map(|question| sinew_source::indented(&question.prompt)).unwrap_or_default()];
    if let Some(question) = question.filter(|question| !question.data.is_null()) {
        lines.push(pretty(&question.data));
    }
    let mut line = |name: &str, value: String| lines.push(format!("{name:<9} {value}"));
    line("execution", record.id().to_owned());
    line("workflow", words::name(&record.plan().name));
    line("node", words::name(node));
    line("asked", words::ago(wait.since, now));
    if let Some(until) = wait.until {
        line(
            "due",
            match until.checked_sub(now) {
                Some(left) => format!("in {}", sinew_inspection::words::duration(left)),
                None => "now".to_owned(),
            },
        );
    }
    let allowed = question.map(|question| question.allowed.join(", ")).filter(|allowed| !allowed.is_empty());
    line("who", words::one_line(&allowed.unwrap_or_else(|| "anybody".to_owned()), 200));
    line("input", words::one_line(&record.execution.ctx().input().to_string(), 300));
    for decision in decision::decisions(record) {
        line("before", decision.line(now));
    }
    let (id, node) = (words::shell(record.id()), words::shell(node));
    line("yes", format!("sinew approval approve {id} --node {node}"));
    line("no", format!("sinew approval reject {id} --node {node} --comment WHY"));
    line("answer", format!("sinew approval approve {id} --node {node} --data JSON"));
    lines.join("\n")
}

/// Decision of a person.
struct DecisionWord {
    data: Value,
    comment: Option<String>,
    reject: bool,
    dry_run: bool,
}

async fn decide(args: &OneArgs, decision: DecisionWord, output: &Output) -> Result<Exit, Failure> {
    let (remote, id, wait) = args.find().await?;
    let node = wait.node.clone().unwrap_or_default();
    let verb = if decision.reject { "reject" } else { "approve" };
    let question = wait.question.as_ref().map(|question| question.prompt.as_str()).unwrap_or_default();
    if decision.dry_run {
        let document = json!({ "would": verb, "execution": id.as_str(), "node": node, "question": question });
        output.value(&document, |_| {
            format!("would {verb} '{node}' of {id}: {}", words::one_line(question, 200))
        });
        return Ok(Exit::Ok);
    }
    let verdict = remote
        .signal(Command::Approve(ApproveCommand {
            execution: id.clone(),
            node: wait.node.clone(),
            activation: wait.activation,
            data: decision.data,
            comment: decision.comment,
            reject: decision.reject,
        }))
        .await?;
    let by = sinew_inspection::record::caller(&verdict.caller);
    let word = if decision.reject { "rejected" } else { "approved" };
    let document = json!({ "execution": id.as_str(), "node": node, "status": word, "by": by });
    output.value(&document, |_| format!("{word} '{node}' of {id} as {by}"));
    Ok(Exit::Ok)
}

impl OneArgs {
    /// The one question that is meant.
    async fn find(&self) -> Result<(Remote, ExecutionId, ShownWait), Failure> {
        let remote = Remote::open(&self.mesh).await?;
        let id = remote.find(&self.id).await?;
        let record = remote.record(&id).await?;
        let all = people(&record);
        let meant = |wait: &ShownWait| {
            let node = wait.activation.map(|act| record.execution.ctx().node_of(act).id.as_str());
            self.node
                .as_deref()
                .is_none_or(|wanted| wait.node.as_deref() == Some(wanted) || node == Some(wanted))
        };
        let mut found = all.iter().filter(|wait| meant(wait));
        match (found.next(), found.next()) {
            (Some(one), None) => Ok((remote, id, one.clone())),
            (Some(_), Some(_)) => {
                let nodes: Vec<&str> = all.iter().filter_map(|wait| wait.node.as_deref()).collect();
                Err(Failure::usage(format!("several nodes wait for a person: {}", nodes.join(", ")))
                    .hint("choose one with --node"))
            }
            (None, _) => {
                let what = match &self.node {
                    Some(node) => format!("node '{node}' of execution {id} does not wait for a person"),
                    None => format!("execution {id} does not wait for a person"),
                };
                Err(Failure::new(Exit::Conflict, code::NO_PERSON_AWAITED.as_str(), what)
                    .hint("it may have been decided already: see `sinew execution describe`"))
            }
        }
    }
}

fn people(record: &Record) -> Vec<ShownWait> {
    let context = ViewContext::of(&record.execution, local::now(), &MeshPresence::default());
    let waits = waiting::waits(record, &context);
    waits.into_iter().filter(|wait| wait.what == WaitKind::Person).collect()
}
