//! `sinew approval`: pending approvals and decisions.

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sinew_documents::approval::OpenApproval;
use sinew_documents::execution::ShownWait;
use sinew_documents::words;
use sinew_inspection::decision;
use sinew_inspection::record::Record;
use sinew_operations::approvals::DecisionRequest;
use sinew_operations::failure::Failure;
use sinew_runtime::local;

use crate::connect::{Connection, block};
use crate::exit::Exit;
use crate::input;
use crate::output::Output;

/// Commands for approvals.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalCommand {
    #[command(about = "List pending approvals")]
    #[command(visible_alias = "ls")]
    List(ListArgs),
    #[command(about = "Show a pending approval with its data")]
    #[command(
        after_help = "Examples:\n  sinew approval show @latest\n  sinew approval show x7f3 --node discount -o json"
    )]
    Show(OneArgs),
    #[command(about = "Approve a request, or answer it with data")]
    Approve(ApproveArgs),
    #[command(about = "Reject a request")]
    Reject(RejectArgs),
}

/// Arguments of `sinew approval list`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  sinew approval list\n  sinew approval list -o json | jq '.[].question'")]
pub(crate) struct ListArgs {
    /// Only approvals of this workflow
    #[arg(short, long, value_name = "NAME")]
    workflow: Option<String>,
    #[command(flatten)]
    mesh: Connection,
}

/// One pending approval.
#[derive(Args, Debug)]
pub(crate) struct OneArgs {
    /// Execution: id or id prefix, or @latest
    #[arg(value_name = "ID|@latest")]
    id: String,
    /// Node that waits, if there are several
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    #[command(flatten)]
    mesh: Connection,
}

/// Arguments of `sinew approval approve`.
#[derive(Args, Debug)]
#[command(
    long_about = "Approve a pending request, or answer it with data. The decision records who made it.",
    after_help = "Examples:\n  sinew approval approve @latest\n  sinew approval approve x7f3 --node discount --data '{\"percent\": 5}' --comment 'as agreed'"
)]
pub(crate) struct ApproveArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Answer, parsed as JSON if possible, else used as text [default: approve]
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// Comment stored with the decision
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    /// Show the decision without making it
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `sinew approval reject`.
#[derive(Args, Debug)]
#[command(
    long_about = "Reject a pending request. The decision records who made it and why.",
    after_help = "Examples:\n  sinew approval reject @latest --comment 'the amount is wrong'"
)]
pub(crate) struct RejectArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Reason stored with the decision
    #[arg(long, value_name = "TEXT")]
    comment: String,
    /// Show the decision without making it
    #[arg(long)]
    dry_run: bool,
}

/// Runs the command.
pub(crate) fn approval(command: ApprovalCommand, output: &Output) -> Result<Exit, Failure> {
    block(async {
        match command {
            ApprovalCommand::List(args) => list(&args, output).await,
            ApprovalCommand::Show(args) => show(&args, output).await,
            ApprovalCommand::Approve(args) => {
                let data = args.data.as_deref().map(input::json_or_text).unwrap_or_default();
                let decision = DecisionRequest { data, comment: args.comment, ..DecisionRequest::default() };
                decide(&args.one, decision, args.dry_run, output).await
            }
            ApprovalCommand::Reject(args) => {
                let decision = DecisionRequest {
                    comment: Some(args.comment),
                    reject: true,
                    ..DecisionRequest::default()
                };
                decide(&args.one, decision, args.dry_run, output).await
            }
        }
    })
}

async fn list(args: &ListArgs, output: &Output) -> Result<Exit, Failure> {
    let remote = args.mesh.operator().await?;
    let rows = remote.approvals(args.workflow.as_deref()).await?;
    let now = local::now();
    output.value(&rows, |rows| match rows.as_slice() {
        [] => "no pending approvals".to_owned(),
        rows => table(rows, now),
    });
    Ok(Exit::Ok)
}

fn table(rows: &[OpenApproval], now: u64) -> String {
    let heads = ["EXECUTION", "WORKFLOW", "NODE", "SINCE", "DUE", "WHO", "QUESTION"];
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    for OpenApproval { wait, execution: id, workflow, path, .. } in rows {
        let path: Vec<&str> = path.iter().chain([workflow]).map(String::as_str).collect();
        let question = wait.question.as_ref();
        let who = question.map(|question| question.allowed.join(",")).filter(|who| !who.is_empty());
        let due = wait.until.map(|until| match until.ms().checked_sub(now) {
            Some(left) => format!("in {}", sinew_documents::words::duration(left)),
            None => "now".to_owned(),
        });
        lines.push(vec![
            words::short_id(id).to_owned(),
            words::one_line(&path.join(" > "), 60),
            wait.node.clone().unwrap_or_default(),
            words::ago(wait.since.ms(), now),
            due.unwrap_or_else(|| "-".into()),
            words::one_line(&who.unwrap_or_else(|| "anyone".into()), 30),
            words::one_line(question.map(|question| question.prompt.as_str()).unwrap_or_default(), 80),
        ]);
    }
    words::columns(&lines)
}

async fn show(args: &OneArgs, output: &Output) -> Result<Exit, Failure> {
    let remote = args.mesh.operator().await?;
    let id = remote.find(&args.id).await?;
    let found = remote.find_approval(&id, args.node.as_deref()).await?;
    output.value(&found.details(), |_| question_text(&found.record, &found.wait, local::now()));
    Ok(Exit::Ok)
}

/// Formats a question for people: its text and data, its node and times, and the commands that answer it.
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
    line("asked", words::ago(wait.since.ms(), now));
    if let Some(until) = wait.until {
        line(
            "due",
            match until.ms().checked_sub(now) {
                Some(left) => format!("in {}", sinew_documents::words::duration(left)),
                None => "now".to_owned(),
            },
        );
    }
    let allowed = question.map(|question| question.allowed.join(", ")).filter(|allowed| !allowed.is_empty());
    line("who", words::one_line(&allowed.unwrap_or_else(|| "anyone".to_owned()), 200));
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

async fn decide(
    args: &OneArgs,
    decision: DecisionRequest,
    dry_run: bool,
    output: &Output,
) -> Result<Exit, Failure> {
    let remote = args.mesh.operator().await?;
    let id = remote.find(&args.id).await?;
    let found = remote.find_approval(&id, args.node.as_deref()).await?;
    let node = found.wait.node.clone().unwrap_or_default();
    let verb = if decision.reject { "reject" } else { "approve" };
    let question = found.wait.question.as_ref().map(|question| question.prompt.as_str()).unwrap_or_default();
    if dry_run {
        let document = json!({ "would": verb, "execution": id.as_str(), "node": node, "question": question });
        output.value(&document, |_| {
            format!("would {verb} '{node}' of {id}: {}", words::one_line(question, 200))
        });
        return Ok(Exit::Ok);
    }
    // Data can be any answer, also a rejection.
    let is_answer = !decision.data.is_null();
    let decided = remote.decide(found.asking_node(), decision).await?;
    output.value(&decided, |decided| {
        let verb = if is_answer { "answered" } else { decided.status };
        format!("{verb} '{node}' of {id} as {}", decided.by)
    });
    Ok(Exit::Ok)
}
