//! `sinew approval`: pending approvals and decisions.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use sinew_documents::approval::OpenApproval;
use sinew_documents::execution::ShownWait;
use sinew_documents::words;
use sinew_inspection::decision;
use sinew_inspection::record::Record;
use sinew_operations::approval_filter::{ApprovalFilter, FieldCondition};
use sinew_operations::approvals::{AskingNode, DecisionRequest};
use sinew_operations::failure::Failure;
use sinew_operations::mesh_operator::MeshOperator;
use sinew_protocol::ExecutionId;
use sinew_runtime::local;

use crate::cmd::execution::command::confirm;
use crate::connect::{Connection, block};
use crate::exit::Exit;
use crate::input;
use crate::output::Output;

/// Commands for approvals.
#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalCommand {
    #[command(about = "List pending approvals, oldest first")]
    #[command(visible_alias = "ls")]
    List(ListArgs),
    #[command(about = "Show a pending approval with its data")]
    #[command(
        after_help = "Examples:\n  sinew approval show @latest\n  sinew approval show x7f3 --node discount -o json"
    )]
    Show(OneArgs),
    #[command(about = "Approve requests, or answer them with data")]
    Approve(ApproveArgs),
    #[command(about = "Reject requests")]
    Reject(RejectArgs),
}

/// Which approvals are meant.
#[derive(Args, Debug)]
struct FilterArgs {
    /// Only approvals of this workflow
    #[arg(short, long, value_name = "NAME")]
    workflow: Option<String>,
    /// Only approvals whose question, node, execution or data contains this text
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Only approvals that this person may decide
    #[arg(long, value_name = "NAME")]
    person: Option<String>,
    /// Only approvals whose data meets conditions, as 'amount<100 and customer=ann'
    #[arg(long = "where", value_name = "CONDITIONS")]
    conditions: Option<String>,
}

impl FilterArgs {
    fn is_set(&self) -> bool {
        [&self.workflow, &self.text, &self.person, &self.conditions].into_iter().any(Option::is_some)
    }

    fn filter(&self) -> Result<ApprovalFilter, Failure> {
        Ok(ApprovalFilter {
            workflow: self.workflow.clone(),
            text: self.text.clone(),
            person: self.person.clone(),
            conditions: FieldCondition::parse_all(self.conditions.as_deref().unwrap_or_default())?,
        })
    }
}

/// Arguments of `sinew approval list`.
#[derive(Args, Debug)]
#[command(
    long_about = "List pending approvals, oldest first, with the data to judge them by.",
    after_help = "Examples:\n  sinew approval list\n  sinew approval list --where 'amount>1000'\n  sinew approval list -o json | jq '.[].review'"
)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    mesh: Connection,
}

/// The approvals to decide.
#[derive(Args, Debug)]
struct TargetArgs {
    /// Executions: ids or id prefixes, or @latest
    #[arg(value_name = "ID|@latest", required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,
    /// Node that waits, if there are several
    #[arg(long, value_name = "NODE", conflicts_with = "all")]
    node: Option<String>,
    /// Decide all pending approvals that match
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: FilterArgs,
    /// Show the decision without making it
    #[arg(long)]
    dry_run: bool,
    /// Skip the confirmation for several approvals
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    mesh: Connection,
}

impl TargetArgs {
    /// Finds the questions that are meant.
    async fn find(&self, remote: &MeshOperator) -> Result<Vec<FoundQuestion>, Failure> {
        if self.all {
            let open = remote.approvals(&self.filter.filter()?).await?;
            return open.into_iter().map(FoundQuestion::of_row).collect();
        }
        if self.filter.is_set() {
            return Err(Failure::usage("--workflow, --text, --person and --where select among --all"));
        }
        let mut found = Vec::new();
        for text in &self.ids {
            let id = remote.find(text).await?;
            let approval = remote.find_approval(&id, self.node.as_deref()).await?;
            let prompt = approval.wait.question.as_ref().map(|one| one.prompt.clone()).unwrap_or_default();
            found.push(FoundQuestion { asking: approval.asking_node(), named: id.to_string(), prompt });
        }
        Ok(found)
    }
}

/// A question that a command decides.
struct FoundQuestion {
    asking: AskingNode,
    /// The execution as it was named: the question may be of one of its callees.
    named: String,
    prompt: String,
}

impl FoundQuestion {
    fn of_row(row: OpenApproval) -> Result<Self, Failure> {
        let execution = ExecutionId::parse(&row.execution)
            .map_err(|error| Failure::usage(format!("the execution of an approval: {error}")))?;
        let (prompt, allowed) =
            row.wait.question.map(|question| (question.prompt, question.allowed)).unwrap_or_default();
        let asking = AskingNode { execution, node: row.wait.node, activation: row.wait.activation, allowed };
        Ok(Self { asking, named: row.execution, prompt })
    }

    fn node(&self) -> &str {
        self.asking.node.as_deref().unwrap_or_default()
    }
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
    long_about = "Approve pending requests, or answer them with data. The decision records who made it.",
    after_help = "Examples:\n  sinew approval approve @latest\n  sinew approval approve x7f3 --node discount --data '{\"percent\": 5}' --comment 'as agreed'\n  sinew approval approve --all --where 'amount<100' --comment 'below the limit' --yes"
)]
pub(crate) struct ApproveArgs {
    #[command(flatten)]
    targets: TargetArgs,
    /// Answer, parsed as JSON if possible, else used as text [default: approve]
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// Comment stored with the decision
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

/// Arguments of `sinew approval reject`.
#[derive(Args, Debug)]
#[command(
    long_about = "Reject pending requests. The decision records who made it and why.",
    after_help = "Examples:\n  sinew approval reject @latest --comment 'the amount is wrong'\n  sinew approval reject x7f3 y81c --comment 'duplicates' --yes"
)]
pub(crate) struct RejectArgs {
    #[command(flatten)]
    targets: TargetArgs,
    /// Reason stored with the decision
    #[arg(long, value_name = "TEXT")]
    comment: String,
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
                decide(&args.targets, &decision, output).await
            }
            ApprovalCommand::Reject(args) => {
                let decision = DecisionRequest {
                    comment: Some(args.comment),
                    reject: true,
                    ..DecisionRequest::default()
                };
                decide(&args.targets, &decision, output).await
            }
        }
    })
}

async fn list(args: &ListArgs, output: &Output) -> Result<Exit, Failure> {
    let remote = args.mesh.operator().await?;
    let rows = remote.approvals(&args.filter.filter()?).await?;
    let now = local::now();
    output.value(&rows, |rows| match rows.as_slice() {
        [] => "no pending approvals".to_owned(),
        rows => table(rows, now),
    });
    Ok(Exit::Ok)
}

fn table(rows: &[OpenApproval], now: u64) -> String {
    let heads = ["EXECUTION", "WORKFLOW", "NODE", "SINCE", "DUE", "WHO", "QUESTION", "DATA"];
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    for OpenApproval { wait, execution: id, workflow, path, review, .. } in rows {
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
            review_text(review),
        ]);
    }
    words::columns(&lines)
}

/// Formats the fields to judge by, as `amount=42 customer=ann`.
fn review_text(review: &Map<String, Value>) -> String {
    let field = |(name, value): (&String, &Value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={}", words::one_line(&value, 40))
    };
    words::one_line(&review.iter().map(field).collect::<Vec<_>>().join(" "), 120)
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

async fn decide(args: &TargetArgs, decision: &DecisionRequest, output: &Output) -> Result<Exit, Failure> {
    let remote = args.mesh.operator().await?;
    let found = args.find(&remote).await?;
    let verb = if decision.reject { "reject" } else { "approve" };
    let is_alone = found.len() == 1 && !args.all;
    if args.dry_run {
        let documents: Vec<Value> = found.iter().map(|one| json!({ "would": verb, "execution": one.named, "node": one.node(), "question": one.prompt })).collect();
        let line = |one: &FoundQuestion| {
            format!("would {verb} '{}' of {}: {}", one.node(), one.named, words::one_line(&one.prompt, 200))
        };
        let text = |_: &Value| found.iter().map(line).collect::<Vec<_>>().join("\n");
        output.value(&if is_alone { json!(documents[0]) } else { json!(documents) }, text);
        return Ok(Exit::Ok);
    }
    if found.len() > 1 && !args.yes {
        confirm(&format!("{verb} {} approvals", found.len()))?;
    }
    let mut results: Vec<Value> = Vec::new();
    let mut worst = None;
    for one in found {
        let (named, node) = (one.named.clone(), one.node().to_owned());
        match remote.decide(one.asking, decision.clone()).await {
            Ok(decided) => {
                // Data can be any answer, also a rejection.
                let verb = if decision.data.is_null() { decided.status } else { "answered" };
                if is_alone || !output.is_machine() {
                    output.value(&decided, |decided| format!("{verb} '{node}' of {named} as {}", decided.by));
                }
                results.push(json!(decided));
            }
            Err(failure) => {
                results.push(json!({ "execution": named, "node": node, "error": failure.message, "code": failure.code }));
                // The last failure is printed at the end; machine-readable output has all of them.
                if !is_alone && !output.is_machine() {
                    output.note(&format!("{named}: {} [{}]", failure.message, failure.code));
                }
                worst = Some(failure);
            }
        }
    }
    if !is_alone {
        let open = "no pending approvals match";
        match results.as_slice() {
            [] if !output.is_machine() => output.note(open),
            _ if output.is_machine() => output.value(&results, |_| String::new()),
            _ => {}
        }
    }
    worst.map_or(Ok(Exit::Ok), Err)
}
