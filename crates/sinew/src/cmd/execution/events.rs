//! `sinew execution events`: the events of an execution, one per line.

use clap::Args;
use sinew_documents::event::EventLine;
use sinew_inspection::events::{self, EventWords, RecordedEvent};
use sinew_operations::execution_events::ExecutionEvents;
use sinew_operations::failure::Failure;
use sinew_protocol::Vocabulary;

use super::Which;
use crate::exit::Exit;
use crate::output::{Format, Output};

const EVENTS_EXAMPLES: &str = "Examples:
  sinew execution events @latest
  sinew execution events @latest --node enrich --type workflow_node_execution_result
  sinew execution events @latest --native        # the events of its dialect
  sinew execution events @latest -f -o jsonl | jq .type";

/// Arguments of `sinew execution events`.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(
    long_about = "Show an execution's events, one per line: messages of the mesh protocol, or events of the \
                  dialect. Events are derived from the execution's facts, so they never change.",
    after_help = EVENTS_EXAMPLES
)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    which: Which,
    /// Only events of this node (with its index: `enrich_3`) and its children
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Only events of this type. May be repeated
    #[arg(long = "type", value_name = "TYPE")]
    kinds: Vec<String>,
    /// Show events of the dialect
    #[arg(long, conflicts_with_all = ["facts", "spec"])]
    native: bool,
    /// Show the engine's facts
    #[arg(long, conflicts_with = "spec")]
    facts: bool,
    /// Use the terms of the published specification (`failure` for `error`, …)
    #[arg(long)]
    spec: bool,
    /// Start at this round (`12`, or `12.3`)
    #[arg(long, value_name = "SEQ")]
    from: Option<String>,
    /// Show the newest first
    #[arg(long, conflicts_with = "follow")]
    reverse: bool,
    /// Follow until the execution ends
    #[arg(short, long)]
    follow: bool,
}

/// Shows events.
pub(super) async fn events(args: &EventsArgs, output: &Output) -> Result<Exit, Failure> {
    let whose = match (args.native, args.facts, args.spec) {
        (true, ..) => EventWords::Native,
        (_, true, _) => EventWords::Facts,
        (.., true) => EventWords::Mesh(Vocabulary::Spec),
        _ => EventWords::Mesh(Vocabulary::Current),
    };
    let from = args.from.as_deref().map(seq).transpose()?.unwrap_or_default();
    let takes = |event: &RecordedEvent| {
        event.place() >= from
            && (args.kinds.is_empty() || args.kinds.contains(&event.line.kind))
            && args.node.as_deref().is_none_or(|wanted| event.is_about(wanted))
    };
    let found = args.which.open().await?;
    if !args.follow {
        let mut found: Vec<RecordedEvent> =
            events::lines(&found.record, whose).into_iter().filter(takes).collect();
        if args.reverse {
            found.reverse();
        }
        match output.format {
            Format::Json | Format::Yaml => {
                let lines: Vec<EventLine> = found.into_iter().map(|event| event.line).collect();
                output.value(&lines, |_| String::new());
            }
            _ => found.iter().for_each(|event| print(event, output)),
        }
        return Ok(Exit::Ok);
    }
    if matches!(output.format, Format::Json | Format::Yaml) {
        return Err(Failure::usage("--follow cannot print a single document").hint("use -o jsonl"));
    }
    let mut events = ExecutionEvents::of(found, whose, (0, 0)).await?;
    let mut found = events.take_stored();
    loop {
        found.iter().filter(|event| takes(event)).for_each(|event| print(event, output));
        match events.next().await? {
            Some(next) => found = next,
            None => return Ok(Exit::Ok),
        }
    }
}

fn print(event: &RecordedEvent, output: &Output) {
    match output.format {
        Format::Jsonl => output.text(&serde_json::to_string(&event.line).unwrap_or_default()),
        Format::Name => output.line(&event.line.kind),
        _ => output.line(&event.show()),
    }
}

/// `12` or `12.3`.
fn seq(text: &str) -> Result<(usize, usize), Failure> {
    let (round, index) = text.split_once('.').unwrap_or((text, "0"));
    match (round.parse(), index.parse()) {
        (Ok(round), Ok(index)) => Ok((round, index)),
        _ => Err(Failure::usage(format!("--from takes an event number, such as 12 or 12.3, not '{text}'"))),
    }
}
