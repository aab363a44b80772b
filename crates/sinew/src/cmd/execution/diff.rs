//! `sinew execution diff`.

use clap::Args;
use sinew_inspection::diff::{compare, text};
use sinew_operations::failure::{Failure, FailureKind};
use sinew_runtime::local;

use super::Which;
use super::tree::NO_SUCH_NODE;
use crate::connect::Connection;
use crate::exit::Exit;
use crate::output::Output;

const EXAMPLES: &str = "Examples:
  sinew execution diff x7f3 y81c
  sinew execution diff x7f3 @latest --node enrich
  sinew execution diff before.json @latest -o json | jq '.nodes[] | select(.same | not)'";

/// Arguments of `sinew execution diff`.
#[derive(Args, Debug)]
#[command(
    long_about = "Compare two executions: input, output, and the status, output and duration of each node. \
                  Changes of values are JSON Patch (RFC 6902) from the first to the second. Exits with 1 if \
                  the executions differ; durations are ignored.",
    after_help = EXAMPLES
)]
pub(crate) struct DiffArgs {
    /// The first execution: id or id prefix, @latest, or a file written by `export`
    #[arg(value_name = "ID|@latest|FILE")]
    first: String,
    /// The second execution
    #[arg(value_name = "ID|@latest|FILE")]
    second: String,
    /// Only this node (with its index: `enrich_3`) and its children
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    #[command(flatten)]
    mesh: Connection,
}

/// Compares two executions.
pub(super) async fn diff(args: &DiffArgs, output: &Output) -> Result<Exit, Failure> {
    let which = |id: &str| {
        let which = Which { id: id.to_owned(), mesh: args.mesh.clone() };
        // One of the two may be a file, while a mesh is given for the other.
        if which.file().is_some() { Which { mesh: Connection::default(), ..which } } else { which }
    };
    let first = which(&args.first).open().await?.record;
    let second = which(&args.second).open().await?.record;
    let told = compare(&first, &second, local::now(), args.node.as_deref()).ok_or_else(|| {
        let node = args.node.as_deref().unwrap_or_default();
        Failure::new(FailureKind::NotFound, NO_SUCH_NODE, format!("neither execution has a node '{node}'"))
    })?;
    output.value(&told, |told| text(told, output.ascii));
    Ok(if told.same { Exit::Ok } else { Exit::Failed })
}
