//! `execution tree`: all nodes of the plan, with collapsed or expanded children of maps and loops.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sinew_documents::node::TreeBranch;
use sinew_documents::node_status::NodeStatus;
use sinew_documents::words;
use sinew_documents::words::duration;
use sinew_engine::{ActivationId, ROOT};
use sinew_execution::events;
use sinew_plan::NodeIndex;

use crate::describe;
use crate::execution_status::status_of;
use crate::node_rows;
use crate::node_table::PictureLine;
use crate::node_table::{NodeColumns, NodeLine};
use crate::record::Record;
use crate::view_context::ViewContext;

/// Maximum listed children of a node; others are counted.
const MOST: usize = 2_000;
/// Maximum characters of a message, unless kinds are shown.
const MESSAGE: usize = 160;

/// The shown part of a tree.
#[derive(Clone, Debug)]
pub struct TreeOptions {
    /// Listed levels; 1 = the workflow's own nodes.
    pub depth: usize,
    /// Children with these statuses are counted, not listed.
    pub fold: Vec<NodeStatus>,
    /// Only this node and what is below it.
    pub node: Option<String>,
    /// Only nodes with these statuses, within their parents; all if empty.
    pub only: Vec<NodeStatus>,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self { depth: 1, fold: Vec::new(), node: None, only: Vec::new() }
    }
}

impl TreeOptions {
    /// Returns true if quiet nodes are collapsed: no node is expanded or selected.
    pub const fn folds_quiet(&self) -> bool {
        self.depth == 1 && self.node.is_none() && self.only.is_empty()
    }
}

/// Builds the tree of an execution; `None` if it does not contain the requested node.
pub fn tree(record: &Record, context: &ViewContext, options: &TreeOptions) -> Option<Vec<TreeBranch>> {
    let context = ViewContext { now: record.seen_until(context.now), ..context.clone() };
    let grow = TreeBuilder { record, context, options, below: below(record) };
    match &options.node {
        None => Some(grow.roots().filter(|branch| grow.is_wanted(branch)).collect()),
        Some(wanted) => {
            let ctx = record.execution.ctx();
            let acts = 0..ctx.state.acts.len() as ActivationId;
            // A label names one activation; an id of a node its latest, in any scope.
            let mut named =
                acts.clone().filter(|act| events::label(&ctx, *act) == *wanted).collect::<Vec<_>>();
            if named.is_empty() {
                let ix = ctx.plan().find(wanted)?;
                named = acts.filter(|act| ctx.act(*act).node == ix).collect();
                if named.is_empty() {
                    return Some(vec![grow.planned(ix)]);
                }
            }
            named.pop().map(|act| vec![grow.activation(act, 1)])
        }
    }
}

/// Activations by the activation in whose scope they are.
fn below(record: &Record) -> BTreeMap<ActivationId, Vec<ActivationId>> {
    let state = record.execution.state();
    let mut below: BTreeMap<ActivationId, Vec<ActivationId>> = BTreeMap::new();
    for (act, one) in state.acts.iter().enumerate() {
        if one.scope != ROOT
            && let Some(scope) = state.scope(one.scope)
        {
            below.entry(scope.owner).or_default().push(act as ActivationId);
        }
    }
    below
}

struct TreeBuilder<'a> {
    record: &'a Record,
    context: ViewContext,
    options: &'a TreeOptions,
    below: BTreeMap<ActivationId, Vec<ActivationId>>,
}

impl TreeBuilder<'_> {
    fn roots(&self) -> impl Iterator<Item = TreeBranch> + '_ {
        let plan = self.record.plan();
        (0..plan.nodes.len() as NodeIndex).filter(|ix| !plan.node(*ix).inner && !plan.node(*ix).attached).map(
            |ix| match self.record.execution.state().last(ROOT, ix) {
                Some(act) => TreeBranch {
                    row: node_rows::row(&self.record.execution.ctx(), ix, &self.context),
                    ..self.activation(act, 1)
                },
                None => self.planned(ix),
            },
        )
    }

    fn planned(&self, ix: NodeIndex) -> TreeBranch {
        let row = node_rows::row(&self.record.execution.ctx(), ix, &self.context);
        TreeBranch { label: row.node.clone(), row, folded: BTreeMap::new(), children: Vec::new() }
    }

    fn activation(&self, act: ActivationId, level: usize) -> TreeBranch {
        let ctx = self.record.execution.ctx();
        let mut branch = TreeBranch {
            label: events::label(&ctx, act),
            row: node_rows::row_of(&ctx, act, &self.context),
            folded: BTreeMap::new(),
            children: Vec::new(),
        };
        if level < self.options.depth {
            for child in self.below.get(&act).into_iter().flatten() {
                let word = node_rows::word(ctx.act(*child));
                let is_listed = !self.options.fold.contains(&word) && branch.children.len() < MOST;
                let child = is_listed.then(|| self.activation(*child, level + 1));
                match child.filter(|child| self.is_wanted(child)) {
                    Some(child) => branch.children.push(child),
                    None => *branch.folded.entry(word).or_default() += 1,
                }
            }
        }
        branch
    }

    /// Returns true if a node or one of its descendants has a requested status.
    fn is_wanted(&self, branch: &TreeBranch) -> bool {
        let only = &self.options.only;
        only.is_empty() || only.contains(&branch.row.status) || !branch.children.is_empty()
    }
}

/// Formats the header of the tree.
pub fn head(record: &Record, context: &ViewContext) -> String {
    let state = record.execution.state();
    let status = status_of(state);
    let until = record.seen_until(context.now);
    let counts = describe::counts(record, until);
    let mut head = format!(
        "{}  {}@{}  {} {}  {}/{}",
        words::short_id(record.id()),
        words::name(&record.plan().name),
        words::short(record.execution.program().graph.digest()),
        words::status_word(status),
        duration(until.saturating_sub(state.started_at)),
        counts.over,
        words::count(counts.total, "node")
    );
    let people = state.waiting().count();
    if people > 0 {
        let _ = write!(head, ", {people} waiting for a person");
    }
    if let Some(reason) = state.paused.as_ref().filter(|_| !state.ended) {
        let _ = write!(head, ", paused {}", words::one_line(reason, 80));
    }
    if record.is_abandoned() {
        head.push_str(", stopped");
    }
    if context.presence.has_no_executor() && !status.is_terminal() {
        head.push_str(", no executor serves its shard");
    }
    head
}

/// Returns the tree as lines for people.
pub fn lines(branches: &[TreeBranch], style: TreeStyle) -> Vec<String> {
    drawn(branches, style).into_iter().map(|line| line.text).collect()
}

/// Style of a tree.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct TreeStyle {
    /// With colour.
    pub color: bool,
    /// Use ASCII for icons and lines.
    pub ascii: bool,
    /// Show kinds of nodes, and do not truncate messages.
    pub has_kinds: bool,
    /// Collapse quiet nodes that need no attention.
    pub folds_quiet: bool,
    /// Width of the terminal; `None` for unlimited.
    pub width: Option<usize>,
}

/// Formats the tree as ranked lines, so that the least important can be omitted.
pub fn drawn(branches: &[TreeBranch], style: TreeStyle) -> Vec<PictureLine> {
    let mut rows = Vec::new();
    let is_folded = |branch: &&TreeBranch| style.folds_quiet && branch.row.may_fold();
    for branch in branches.iter().filter(|branch| !is_folded(branch)) {
        flatten(branch, "", style.ascii, if style.has_kinds { usize::MAX } else { MESSAGE }, &mut rows);
    }
    let wide = |text: &str| text.chars().count();
    let widest = |cell: fn(&NodeLine) -> &str| rows.iter().map(|row| wide(cell(row))).max().unwrap_or(0);
    let mut columns =
        NodeColumns::new(widest(|row| &row.name).clamp(4, 60), widest(|row| &row.agent).clamp(5, 24));
    if style.has_kinds {
        columns = columns.with_kind(widest(|row| &row.kind).max(4));
    }
    let columns = columns.fitted(style.width, widest(|row| &row.message));
    let mut lines: Vec<PictureLine> = vec![columns.heads().into()];
    lines.extend(rows.iter().map(|row| PictureLine {
        text: columns.line(row, style.color, style.ascii),
        rank: row.status.map_or(4, NodeStatus::rank),
    }));
    if let Some(folded) = node_rows::folded_line(branches.iter().filter(is_folded).map(|branch| &branch.row))
    {
        let dots = if style.ascii { "..." } else { "…" };
        lines.push(PictureLine { text: format!("  {dots} {folded}"), rank: 4 });
    }
    if columns.shows_attempts() && rows.iter().any(|row| row.attempts.starts_with('#')) {
        lines.push(PictureLine { text: format!("  {}", node_rows::ACTIVATION_LEGEND), rank: 4 });
    }
    lines
}

fn flatten(branch: &TreeBranch, indent: &str, ascii: bool, most: usize, out: &mut Vec<NodeLine>) {
    let row = &branch.row;
    let name = format!("{indent}{}", branch.label);
    out.push(NodeLine {
        name: words::name(&name),
        kind: words::one_line(&row.kind, 24),
        status: Some(row.status),
        attempts: row.tries(),
        time: row.duration_ms.map_or_else(|| "-".into(), duration),
        agent: words::one_line(row.agent.as_deref().unwrap_or("-"), 24),
        message: words::one_line(row.message.as_deref().unwrap_or_default(), most),
    });
    let (tee, bar) = if ascii { ("|- ", "|  ") } else { ("├ ", "│ ") };
    // Nested branches are indented under the same bar.
    let inner = format!("{}{tee}", indent.replace(tee, bar));
    for child in &branch.children {
        flatten(child, &inner, ascii, most, out);
    }
    if !branch.folded.is_empty() {
        let counts: Vec<String> =
            branch.folded.iter().map(|(status, count)| format!("{count} {}", status.as_str())).collect();
        let dots = if ascii { "..." } else { "…" };
        out.push(NodeLine { name: format!("{inner}{dots} {}", counts.join(", ")), ..NodeLine::default() });
    }
}
