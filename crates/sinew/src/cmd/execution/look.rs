//! `sinew execution describe | tree | events | result`: views of one record.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use clap::Args;
use serde_json::Value;
use sinew_engine::End;
use sinew_executor::local;
use sinew_protocol::Vocabulary;

use super::changes::Changes;
use super::{Found, Which};
use crate::exit::{Exit, Failure};
use crate::output::{Format, Output};
use crate::tree::Word;
use crate::views::describe;
use crate::views::events::{self, Line, Words};
use crate::views::tree::{self, Options};
use crate::views::{Standing, words};

/// A node is not in the execution.
pub(super) const NO_SUCH_NODE: &str = "SINEW-8025";
/// There is no output yet, or there will be none.
const NO_RESULT: &str = "SINEW-8026";

const DESCRIBE_EXAMPLES: &str = "Examples:
  sinew execution describe @latest
  sinew execution describe x7f3 -o json | jq .waiting
  sinew execution describe run.json              # from a file, without a mesh";

/// Arguments of `sinew execution describe`.
#[derive(Args, Debug)]
#[command(
    long_about = "Say how an execution stands: its input and output, what every open node waits for, since when and \
                  until when, the first failure with what led to it, commands that were given, and what to do next.",
    after_help = DESCRIBE_EXAMPLES
)]
pub(crate) struct DescribeArgs {
    #[command(flatten)]
    which: Which,
}

/// Describes an execution.
pub(super) async fn describe(args: &DescribeArgs, output: &Output) -> Result<Exit, Failure> {
    let Found { record, remote } = args.which.open().await?;
    let now = local::now();
    let mut told = describe::describe(&record, now);
    if let Some(remote) = remote {
        let agents: BTreeSet<&str> = told.waiting.iter().filter_map(|wait| wait.agent.as_deref()).collect();
        if !agents.is_empty() {
            let cards = remote.mesh().cards();
            cards.ready().await;
            let online: BTreeSet<String> =
                agents.into_iter().filter(|name| cards.get(name).is_some()).map(str::to_owned).collect();
            for wait in &mut told.waiting {
                if let Some(agent) = wait.agent.as_ref().filter(|agent| !online.contains(*agent)) {
                    let _ = write!(wait.text, "; no agent '{agent}' is online");
                }
            }
        }
    }
    output.value(&told, |told| describe::text(told, now, output.color));
    Ok(Exit::Ok)
}

const TREE_EXAMPLES: &str = "Examples:
  sinew execution tree @latest
  sinew execution tree @latest --no-fold
  sinew execution tree x7f3 --fold succeeded --node enrich
  sinew execution tree run.json -o json";

/// Levels of a tree: a plan may nest maps and loops thousands deep.
const MAX_TREE_DEPTH: usize = 100;

/// Arguments of `sinew execution tree`.
#[derive(Args, Debug)]
#[command(
    long_about = "Show an execution's nodes: how each stands, how often it was tried, how long it took, who works on \
                  it. Nodes that were not reached yet are there too. Children of maps, loops and forks are counted \
                  unless they are opened.",
    after_help = TREE_EXAMPLES
)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    folding: Folding,
}

/// How much of a tree is opened.
#[derive(Args, Clone, Debug)]
pub(super) struct Folding {
    /// Levels to open; 1 = the workflow's own nodes
    #[arg(long, value_name = "N")]
    depth: Option<usize>,
    /// Open all levels, but count children with this status. May be repeated
    #[arg(long, value_enum, value_name = "STATUS")]
    fold: Vec<Word>,
    /// Open all levels
    #[arg(long, conflicts_with_all = ["depth", "fold"])]
    no_fold: bool,
    /// Only this node (`enrich`, or `enrich_3` for one of its children) and what is below it
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

impl Folding {
    pub(super) fn options(&self) -> Options {
        let all = self.no_fold || !self.fold.is_empty() || self.node.is_some();
        let depth = self.depth.unwrap_or(if all { usize::MAX } else { 1 });
        Options { depth: depth.clamp(1, MAX_TREE_DEPTH), fold: self.fold.clone(), node: self.node.clone() }
    }
}

/// Shows the nodes of an execution.
pub(super) async fn tree(args: &TreeArgs, output: &Output) -> Result<Exit, Failure> {
    let Found { record, .. } = args.which.open().await?;
    let now = local::now();
    let options = args.folding.options();
    let Some(branches) = tree::tree(&record, now, &options) else {
        return Err(no_such_node(options.node.as_deref().unwrap_or_default()));
    };
    match output.format {
        Format::Name => branches.iter().for_each(|branch| output.line(&branch.label)),
        _ => output.value(&branches, |branches| {
            let drawn = if output.format == Format::Wide { tree::wide } else { tree::lines };
            let lines = drawn(branches, output.color, output.ascii);
            format!("{}\n{}", tree::head(&record, now), lines.join("\n"))
        }),
    }
    Ok(Exit::Ok)
}

fn no_such_node(node: &str) -> Failure {
    Failure::new(Exit::NotFound, NO_SUCH_NODE, format!("there is no node '{node}' in it"))
        .hint("`sinew execution tree ID --no-fold` shows all of them")
}

const EVENTS_EXAMPLES: &str = "Examples:
  sinew execution events @latest
  sinew execution events @latest --node enrich --type workflow_node_execution_result
  sinew execution events @latest --native        # in the words of its dialect
  sinew execution events @latest -f -o jsonl | jq .type";

/// Arguments of `sinew execution events`.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(
    long_about = "Show an execution's events, one a line: messages of the mesh protocol, or the dialect's own words. \
                  They are made from its facts, so they are the same whenever one looks.",
    after_help = EVENTS_EXAMPLES
)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    which: Which,
    /// Only about this node (with its place: `enrich_3`) or the children of it
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Only of this type. May be repeated
    #[arg(long = "type", value_name = "TYPE")]
    kinds: Vec<String>,
    /// The dialect's own events
    #[arg(long, conflicts_with_all = ["facts", "spec"])]
    native: bool,
    /// The engine's facts
    #[arg(long, conflicts_with = "spec")]
    facts: bool,
    /// The words of the published specification (`failure` for `error`, …)
    #[arg(long)]
    spec: bool,
    /// Only from this round on (`12`, or `12.3`)
    #[arg(long, value_name = "SEQ")]
    from: Option<String>,
    /// The newest first
    #[arg(long, conflicts_with = "follow")]
    reverse: bool,
    /// Go on until the execution ends
    #[arg(short, long)]
    follow: bool,
}

/// Shows events.
pub(super) async fn events(args: &EventsArgs, output: &Output) -> Result<Exit, Failure> {
    let whose = match (args.native, args.facts, args.spec) {
        (true, ..) => Words::Native,
        (_, true, _) => Words::Facts,
        (.., true) => Words::Mesh(Vocabulary::Spec),
        _ => Words::Mesh(Vocabulary::Current),
    };
    let from = args.from.as_deref().map(seq).transpose()?.unwrap_or_default();
    let takes = |line: &Line| {
        line.place() >= from
            && (args.kinds.is_empty() || args.kinds.contains(&line.kind))
            && args.node.as_deref().is_none_or(|wanted| line.is_about(wanted))
    };
    let found = args.which.open().await?;
    if !args.follow {
        let mut lines: Vec<Line> = events::lines(&found.record, whose).into_iter().filter(takes).collect();
        if args.reverse {
            lines.reverse();
        }
        match output.format {
            Format::Json | Format::Yaml => output.value(&lines, |_| String::new()),
            _ => lines.iter().for_each(|line| print(line, output)),
        }
        return Ok(Exit::Ok);
    }
    if matches!(output.format, Format::Json | Format::Yaml) {
        return Err(Failure::usage("what goes on has no end to be one document").hint("use -o jsonl"));
    }
    let mut changes = Changes::of(found).await?;
    let mut shown = 0;
    loop {
        let lines = events::lines(&changes.record, whose);
        lines.iter().skip(shown).filter(|line| takes(line)).for_each(|line| print(line, output));
        shown = lines.len();
        if !changes.next().await? {
            return Ok(Exit::Ok);
        }
    }
}

fn print(line: &Line, output: &Output) {
    match output.format {
        Format::Jsonl => output.text(&serde_json::to_string(line).unwrap_or_default()),
        Format::Name => output.line(&line.kind),
        _ => output.line(&line.show()),
    }
}

/// `12` or `12.3`.
fn seq(text: &str) -> Result<(usize, usize), Failure> {
    let (round, index) = text.split_once('.').unwrap_or((text, "0"));
    match (round.parse(), index.parse()) {
        (Ok(round), Ok(index)) => Ok((round, index)),
        _ => Err(Failure::usage(format!("--from takes a number as events show it, not '{text}'"))),
    }
}

const RESULT_EXAMPLES: &str = "Examples:
  sinew execution result @latest
  sinew execution result @latest --node price
  sinew execution result @latest --native        # results and trace as the dialect knows them
  sinew execution result @latest --raw > answer.txt";

/// Arguments of `sinew execution result`.
#[derive(Args, Debug)]
#[command(
    long_about = "Print an execution's output, or a node's, and nothing else on stdout.\n\nThe exit code says how the \
                  execution ended: 0, 1 when it failed, 6 while it goes on, 8 while it waits for a person.",
    after_help = RESULT_EXAMPLES
)]
pub(crate) struct ResultArgs {
    #[command(flatten)]
    which: Which,
    /// The output of this node (with its place: `enrich_3`)
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// The dialect's own result object (status, results, trace), also of an execution that goes on
    #[arg(long, conflicts_with = "node")]
    native: bool,
    /// A text as it is, without quotes
    #[arg(long)]
    raw: bool,
}

/// Prints a result.
pub(super) async fn result(args: &ResultArgs, output: &Output) -> Result<Exit, Failure> {
    if args.raw && output.is_machine() {
        return Err(Failure::usage("--raw prints a text as it is, which is not what -o asks for"));
    }
    let Found { record, .. } = args.which.open().await?;
    let ctx = record.execution.ctx();
    let print = |value: &Value| match (args.raw, value, output.format) {
        (true, Value::String(text), _) => output.raw(text),
        (_, value, Format::Yaml) => output.value(value, |_| String::new()),
        (_, value, Format::Jsonl) => output.text(&value.to_string()),
        (_, value, _) => output.text(&serde_json::to_string_pretty(value).unwrap_or_default()),
    };
    if let Some(node) = &args.node {
        let acts = 0..ctx.state.acts.len() as u32;
        let named =
            |act: &u32| sinew_executor::events::label(&ctx, *act) == *node || ctx.node_of(*act).id == *node;
        let Some(act) = acts.rev().find(named) else { return Err(no_such_node(node)) };
        let one = ctx.act(act);
        if let Some(value) = &one.output {
            print(&value.value);
        }
        return match (one.end, &one.output, &one.fault) {
            (Some(End::Succeeded | End::Skipped), ..) => Ok(Exit::Ok),
            (Some(_), _, Some(fault)) => {
                Err(Failure::new(Exit::Failed, crate::exit::known(&fault.code), fault.message.clone()))
            }
            (Some(_), ..) => Ok(Exit::Failed),
            (None, ..) => Err(none_yet(&format!("node '{node}' is still open"))),
        };
    }
    let standing = Standing::of(ctx.state);
    let outcome = ctx.outcome().filter(|_| standing.is_over());
    if args.native {
        print(&record.execution.native_result());
    } else if let Some(value) = outcome.and_then(|outcome| outcome.output.as_deref()) {
        print(value);
    }
    if let Some(fault) = outcome.and_then(|outcome| outcome.fault.as_ref()) {
        return Err(Failure::new(Exit::Failed, crate::exit::known(&fault.code), fault.message.clone())
            .hint(format!("sinew execution describe {}", words::shell(record.id()))));
    }
    match standing {
        _ if args.native => Ok(standing.exit()),
        Standing::Waiting => Err(Failure {
            exit: Exit::Waiting,
            hint: Some("see `sinew approval list`".to_owned()),
            ..none_yet("the execution waits for a person")
        }),
        Standing::Running | Standing::Paused => {
            Err(none_yet(&format!("the execution is {}", standing.as_str())))
        }
        over => Ok(over.exit()),
    }
}

fn none_yet(why: &str) -> Failure {
    Failure::new(Exit::Conflict, NO_RESULT, format!("there is no result yet: {why}"))
        .hint("`sinew execution watch ID` follows it to its end")
}
