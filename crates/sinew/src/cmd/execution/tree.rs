//! `sinew execution tree`: the nodes of an execution.

use clap::Args;
use sinew_documents::node_status::NodeStatus;
use sinew_inspection::tree::{self, TreeOptions, TreeStyle};
use sinew_inspection::view_context::ViewContext;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_protocol::code;
use sinew_runtime::local;

use super::Which;
use crate::exit::Exit;
use crate::output::{Format, Output};
use crate::status_values;

/// The execution has no node of this name.
pub(super) const NO_SUCH_NODE: &str = code::NO_SUCH_NODE.as_str();

const TREE_EXAMPLES: &str = "Examples:
  sinew execution tree @latest
  sinew execution tree @latest --no-fold
  sinew execution tree @latest --status failed --status waiting
  sinew execution tree x7f3 --fold succeeded --node enrich
  sinew execution tree run.json -o json";

/// Levels of a tree: a plan may nest maps and loops thousands deep.
const MAX_TREE_DEPTH: usize = 100;

/// Arguments of `sinew execution tree`.
#[derive(Args, Debug)]
#[command(
    long_about = "Show an execution's nodes with status, attempts, duration and agent, including nodes that \
                  were not reached yet. Children of maps, loops and forks are only counted unless they are \
                  expanded; so are nodes that the workflow marks as quiet, unless one of them failed, waits \
                  or runs.",
    after_help = TREE_EXAMPLES
)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    folding: Folding,
}

/// How much of a tree is expanded.
#[derive(Args, Clone, Debug)]
pub(super) struct Folding {
    /// Levels to expand; 1 = the workflow's own nodes
    #[arg(long, value_name = "N")]
    depth: Option<usize>,
    /// Expand all levels, but only count children with this status. May be repeated
    #[arg(long, value_parser = status_values::node_status(), value_name = "STATUS")]
    fold: Vec<NodeStatus>,
    /// Expand all levels, and list quiet nodes
    #[arg(long, conflicts_with_all = ["depth", "fold"])]
    no_fold: bool,
    /// Only nodes with this status, at all levels, below their parents. May be repeated
    #[arg(long, value_parser = status_values::node_status(), value_name = "STATUS", conflicts_with = "fold")]
    status: Vec<NodeStatus>,
    /// Only this node (`enrich`, or `enrich_3` for one of its children) and its descendants
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

impl Folding {
    pub(super) fn options(&self) -> TreeOptions {
        let all = self.no_fold || !self.fold.is_empty() || !self.status.is_empty() || self.node.is_some();
        let depth = self.depth.unwrap_or(if all { usize::MAX } else { 1 });
        TreeOptions {
            depth: depth.clamp(1, MAX_TREE_DEPTH),
            fold: self.fold.clone(),
            node: self.node.clone(),
            only: self.status.clone(),
        }
    }
}

/// Shows the nodes of an execution.
pub(super) async fn tree(args: &TreeArgs, output: &Output) -> Result<Exit, Failure> {
    let found = args.which.open().await?;
    let context = ViewContext::of(&found.record.execution, local::now(), &found.presence().await?);
    let record = found.record;
    let options = args.folding.options();
    let Some(branches) = tree::tree(&record, &context, &options) else {
        return Err(no_such_node(options.node.as_deref().unwrap_or_default()));
    };
    match output.format {
        Format::Name => branches.iter().for_each(|branch| output.line(&branch.label)),
        _ => output.value(&branches, |branches| {
            let style = TreeStyle {
                color: output.color,
                ascii: output.ascii,
                has_kinds: output.format == Format::Wide,
                folds_quiet: options.folds_quiet(),
                width: None,
            };
            let lines = tree::lines(branches, style);
            format!("{}\n{}", tree::head(&record, &context), lines.join("\n"))
        }),
    }
    Ok(Exit::Ok)
}

/// Returns the failure for a node that the execution does not have.
pub(super) fn no_such_node(node: &str) -> Failure {
    Failure::new(FailureKind::NotFound, NO_SUCH_NODE, format!("the execution has no node '{node}'"))
        .hint("`sinew execution tree ID --no-fold` shows all nodes")
}
