//! `execution tree`: every planned node from the first second, children of maps and loops folded or opened.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use sinew_engine::{ActivationId, ROOT};
use sinew_plan::NodeIndex;
use sinew_runtime::events;

use crate::node_rows::{self, NodeRow};
use crate::node_status::NodeStatus;
use crate::node_table::PictureLine;
use crate::node_table::{NodeColumns, NodeLine};
use crate::record::Record;
use crate::view_context::ViewContext;
use crate::words::duration;
use crate::{describe, words};

/// Children of one node that are listed; more are counted.
const MOST: usize = 2_000;
/// Characters of a message, unless all are wanted.
const MESSAGE: usize = 160;

/// How much of the tree is opened.
#[derive(Clone, Debug)]
pub struct TreeOptions {
    /// Levels that are listed; 1 = the workflow's own nodes.
    pub depth: usize,
    /// Children that stand so are counted, not listed.
    pub fold: Vec<NodeStatus>,
    /// Only this node and what is below it.
    pub node: Option<String>,
    /// Only nodes that stand so, below the nodes around them; all if empty.
    pub only: Vec<NodeStatus>,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self { depth: 1, fold: Vec::new(), node: None, only: Vec::new() }
    }
}

impl TreeOptions {
    /// Returns true if people see quiet nodes as one line: as long as nothing of the tree was opened or chosen.
    pub const fn folds_quiet(&self) -> bool {
        self.depth == 1 && self.node.is_none() && self.only.is_empty()
    }
}

/// A node, or one activation of it, with what is below.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TreeBranch {
    /// The node with its place in maps and loops: `each_3`.
    pub label: String,
    /// The node, or the activation.
    #[serde(flatten)]
    pub row: NodeRow,
    /// Children that are counted, by how they stand.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub folded: BTreeMap<&'static str, usize>,
    /// Children that are listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<TreeBranch>,
}

/// The tree of an execution; none if the node that was asked for is not in it.
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
                    None => *branch.folded.entry(word.as_str()).or_default() += 1,
                }
            }
        }
        branch
    }

    /// Whether a node, or one below it, stands as wanted.
    fn is_wanted(&self, branch: &TreeBranch) -> bool {
        let only = &self.options.only;
        only.is_empty() || only.contains(&branch.row.status) || !branch.children.is_empty()
    }
}

/// The line above the tree.
pub fn head(record: &Record, context: &ViewContext) -> String {
    let state = record.execution.state();
    let status = words::status_of(state);
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
        head.push_str(", does not go on");
    }
    if context.presence.has_no_executor() && !status.is_terminal() {
        head.push_str(", no executor serves it");
    }
    head
}

/// Returns the tree as lines for people.
pub fn lines(branches: &[TreeBranch], style: TreeStyle) -> Vec<String> {
    drawn(branches, style).into_iter().map(|line| line.text).collect()
}

/// How a tree is drawn.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct TreeStyle {
    /// With colour.
    pub color: bool,
    /// With icons and lines in ASCII only.
    pub ascii: bool,
    /// Kinds of nodes are shown, and messages are as long as they are.
    pub has_kinds: bool,
    /// Quiet nodes that nobody has to look at are one line.
    pub folds_quiet: bool,
    /// Columns of the terminal; none for as many as are needed.
    pub width: Option<usize>,
}

/// Returns the tree as lines of a picture, ranked by how much they matter.
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
    // Branches of branches stand further right, under the same bar.
    let inner = format!("{}{tee}", indent.replace(tee, bar));
    for child in &branch.children {
        flatten(child, &inner, ascii, most, out);
    }
    if !branch.folded.is_empty() {
        let counts: Vec<String> =
            branch.folded.iter().map(|(word, count)| format!("{count} {word}")).collect();
        let dots = if ascii { "..." } else { "…" };
        out.push(NodeLine { name: format!("{inner}{dots} {}", counts.join(", ")), ..NodeLine::default() });
    }
}
