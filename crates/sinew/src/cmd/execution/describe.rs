//! `sinew execution describe`: the status of an execution, and the reasons.

use clap::Args;
use sinew_inspection::describe;
use sinew_inspection::node_description::{describe_node, find_activation, node_text};
use sinew_inspection::view_context::ViewContext;
use sinew_operations::failure::Failure;
use sinew_runtime::local;

use super::Which;
use super::tree::no_such_node;
use crate::exit::Exit;
use crate::output::Output;

const DESCRIBE_EXAMPLES: &str = "Examples:
  sinew execution describe @latest
  sinew execution describe @latest --node price  # its input, output and attempts
  sinew execution describe x7f3 -o json | jq .waiting
  sinew execution describe run.json              # from a file, without a mesh";

/// Arguments of `sinew execution describe`.
#[derive(Args, Debug)]
#[command(
    long_about = "Describe an execution: its input and output, what every open node waits for, since when \
                  and until when, the first failure and its causes, the commands it received, and what to do \
                  next.",
    after_help = DESCRIBE_EXAMPLES
)]
pub(crate) struct DescribeArgs {
    #[command(flatten)]
    which: Which,
    /// Describe this node (with its index: `enrich_3`): its input, output, attempts and error
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

/// Describes an execution.
pub(super) async fn describe(args: &DescribeArgs, output: &Output) -> Result<Exit, Failure> {
    let found = args.which.open().await?;
    let now = local::now();
    if let Some(node) = &args.node {
        let context = ViewContext::of(&found.record.execution, now, &found.presence().await?);
        let Some(act) = find_activation(&found.record, node) else { return Err(no_such_node(node)) };
        let told = describe_node(&found.record, act, &context);
        output.value(&told, |told| node_text(told, now));
        return Ok(Exit::Ok);
    }
    let told = describe::describe(&found.record, now, &found.presence().await?);
    output.value(&told, |told| describe::text(told, now, output.color));
    Ok(Exit::Ok)
}
