//! `sinew execution result`: the output of an execution, or of a node.

use clap::Args;
use serde_json::Value;
use sinew_documents::words;
use sinew_engine::ActivationEnd;
use sinew_inspection::execution_status::status_of;
use sinew_operations::execution_changes::FoundExecution;
use sinew_operations::failure::{Failure, FailureKind, known};
use sinew_protocol::code;
use sinew_protocol::query::ExecutionStatus;

use super::Which;
use super::tree::no_such_node;
use crate::exit::Exit;
use crate::output::{Format, Output};
use crate::status_values::exit_of;

const RESULT_EXAMPLES: &str = "Examples:
  sinew execution result @latest
  sinew execution result @latest --node price
  sinew execution result @latest --native        # results and trace in the dialect's format
  sinew execution result @latest --raw > answer.txt";

/// Arguments of `sinew execution result`.
#[derive(Args, Debug)]
#[command(
    long_about = "Print only the output of an execution or a node to stdout.\n\n\
                  The exit code reports the status of the execution: 0 if it succeeded, 1 if it failed, 6 \
                  while it runs, 8 while it waits for a person.",
    after_help = RESULT_EXAMPLES
)]
pub(crate) struct ResultArgs {
    #[command(flatten)]
    which: Which,
    /// Print the output of this node (with its index: `enrich_3`)
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Print the dialect's own result object (status, results, trace), also of a running execution
    #[arg(long, conflicts_with = "node")]
    native: bool,
    /// Print text without quotes
    #[arg(long)]
    raw: bool,
}

/// Prints a result.
pub(super) async fn result(args: &ResultArgs, output: &Output) -> Result<Exit, Failure> {
    if args.raw && output.is_machine() {
        return Err(Failure::usage("--raw cannot be combined with this output format"));
    }
    let FoundExecution { record, .. } = args.which.open().await?;
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
            |act: &u32| sinew_execution::events::label(&ctx, *act) == *node || ctx.node_of(*act).id == *node;
        let Some(act) = acts.rev().find(named) else { return Err(no_such_node(node)) };
        let one = ctx.act(act);
        if let Some(value) = &one.output {
            print(&value.value);
        }
        return match (one.end, &one.output, &one.fault) {
            (Some(ActivationEnd::Succeeded | ActivationEnd::Skipped), ..) => Ok(Exit::Ok),
            (Some(_), _, Some(fault)) => {
                Err(Failure::new(FailureKind::Failed, known(&fault.code), fault.message.clone()))
            }
            (Some(_), ..) => Ok(Exit::Failed),
            (None, ..) => Err(none_yet(&format!("node '{node}' is still open"))),
        };
    }
    let status = status_of(ctx.state);
    let outcome = ctx.outcome().filter(|_| status.is_terminal());
    if args.native {
        print(&record.execution.native_result());
    } else if let Some(value) = outcome.and_then(|outcome| outcome.output.as_deref()) {
        print(value);
    }
    // An execution of one process has another name in commands than an execution on a mesh.
    let reference = if record.is_of_one_process() { record.reference() } else { words::shell(record.id()) };
    if let Some(fault) = outcome.and_then(|outcome| outcome.fault.as_ref()) {
        return Err(Failure::new(FailureKind::Failed, known(&fault.code), fault.message.clone())
            .hint(format!("sinew execution describe {reference}")));
    }
    match status {
        _ if args.native => Ok(exit_of(status)),
        _ if record.is_abandoned() => {
            let is_waiting = status == ExecutionStatus::Waiting;
            let kind = if is_waiting { FailureKind::Waiting } else { FailureKind::Conflict };
            let why = format!("the execution was {} when its process ended", words::status_word(status));
            let hint = format!("`sinew execution describe {reference}` shows how to run it again");
            Err(Failure { kind, ..none_yet(&why).hint(hint) })
        }
        ExecutionStatus::Waiting => Err(Failure {
            kind: FailureKind::Waiting,
            hint: Some("see `sinew approval list`".to_owned()),
            ..none_yet("the execution waits for a person")
        }),
        ExecutionStatus::Running | ExecutionStatus::Paused => {
            Err(none_yet(&format!("the execution is {}", status.as_str())))
        }
        over => Ok(exit_of(over)),
    }
}

fn none_yet(why: &str) -> Failure {
    Failure::new(
        FailureKind::Conflict,
        code::NO_RESULT_YET.as_str(),
        format!("there is no result yet: {why}"),
    )
    .hint("`sinew execution watch ID` follows it to its end")
}
