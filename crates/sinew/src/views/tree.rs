//! `execution tree`: every planned node from the first second, children of maps and loops folded or opened.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use sinew_engine::{ActId, ROOT, Time};
use sinew_executor::events;
use sinew_plan::NodeIx;

use super::scene::Scene;
use super::{Standing, describe, words};
use crate::node_table::{NodeColumns, NodeLine};
use crate::paint::PictureLine;
use crate::record::Record;
use crate::tree::{self, NodeStatus, Row, duration};

/// Children of one node that are listed; more are counted.
const MOST: usize = 2_000;
/// Characters of a message, unless all are wanted.
const MESSAGE: usize = 160;

/// How much of the tree is opened.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Levels that are listed; 1 = the workflow's own nodes.
    pub(crate) depth: usize,
    /// Children that stand so are counted, not listed.
    pub(crate) fold: Vec<NodeStatus>,
    /// Only this node and what is below it.
    pub(crate) node: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { depth: 1, fold: Vec::new(), node: None }
    }
}

/// A node, or one activation of it, with what is below.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Branch {
    /// The node with its place in maps and loops: `each_3`.
    pub(crate) label: String,
    #[serde(flatten)]
    pub(crate) row: Row,
    /// Children that are counted, by how they stand.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) folded: BTreeMap<&'static str, usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) children: Vec<Branch>,
}

/// The tree of an execution; none if the node that was asked for is not in it.
pub(crate) fn tree(record: &Record, scene: &Scene, options: &Options) -> Option<Vec<Branch>> {
    let scene = Scene { now: until(record, scene.now), ..scene.clone() };
    let grow = Grow { record, scene, options, below: below(record) };
    match &options.node {
        None => Some(grow.roots().collect()),
        Some(wanted) => {
            let ctx = record.execution.ctx();
            let acts = 0..ctx.state.acts.len() as ActId;
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
fn below(record: &Record) -> BTreeMap<ActId, Vec<ActId>> {
    let state = record.execution.state();
    let mut below: BTreeMap<ActId, Vec<ActId>> = BTreeMap::new();
    for (act, one) in state.acts.iter().enumerate() {
        if one.scope != ROOT
            && let Some(scope) = state.scope(one.scope)
        {
            below.entry(scope.owner).or_default().push(act as ActId);
        }
    }
    below
}

/// An execution that has ended counts no further.
fn until(record: &Record, now: Time) -> Time {
    let state = record.execution.state();
    if state.ended { state.at } else { now.max(state.at) }
}

struct Grow<'a> {
    record: &'a Record,
    scene: Scene,
    options: &'a Options,
    below: BTreeMap<ActId, Vec<ActId>>,
}

impl Grow<'_> {
    fn roots(&self) -> impl Iterator<Item = Branch> + '_ {
        let plan = self.record.plan();
        (0..plan.nodes.len() as NodeIx).filter(|ix| !plan.node(*ix).inner && !plan.node(*ix).attached).map(
            |ix| match self.record.execution.state().last(ROOT, ix) {
                Some(act) => Branch {
                    row: tree::row(&self.record.execution.ctx(), ix, &self.scene),
                    ..self.activation(act, 1)
                },
                None => self.planned(ix),
            },
        )
    }

    fn planned(&self, ix: NodeIx) -> Branch {
        let row = tree::row(&self.record.execution.ctx(), ix, &self.scene);
        Branch { label: row.node.clone(), row, folded: BTreeMap::new(), children: Vec::new() }
    }

    fn activation(&self, act: ActId, level: usize) -> Branch {
        let ctx = self.record.execution.ctx();
        let mut branch = Branch {
            label: events::label(&ctx, act),
            row: tree::row_of(&ctx, act, &self.scene),
            folded: BTreeMap::new(),
            children: Vec::new(),
        };
        if level < self.options.depth {
            for child in self.below.get(&act).into_iter().flatten() {
                let word = tree::word(ctx.act(*child));
                if self.options.fold.contains(&word) || branch.children.len() >= MOST {
                    *branch.folded.entry(word.as_str()).or_default() += 1;
                } else {
                    branch.children.push(self.activation(*child, level + 1));
                }
            }
        }
        branch
    }
}

/// The line above the tree.
pub(crate) fn head(record: &Record, scene: &Scene) -> String {
    let state = record.execution.state();
    let standing = Standing::of(state);
    let until = until(record, scene.now);
    let counts = describe::counts(record, until);
    let mut head = format!(
        "{}  {}@{}  {} {}  {}/{} nodes",
        record.id(),
        words::name(&record.plan().name),
        words::short(record.execution.program().graph.digest()),
        standing.as_str(),
        duration(until.saturating_sub(state.started_at)),
        counts.over,
        counts.total
    );
    let people = state.waiting().count();
    if people > 0 {
        let _ = write!(head, ", {people} waiting for a person");
    }
    if let Some(reason) = state.paused.as_ref().filter(|_| !state.ended) {
        let _ = write!(head, ", paused {}", words::one_line(reason, 80));
    }
    if scene.presence.has_no_executor() && !standing.is_over() {
        head.push_str(", no executor serves it");
    }
    head
}

/// Returns the tree as lines for people.
pub(crate) fn lines(branches: &[Branch], color: bool, ascii: bool) -> Vec<String> {
    drawn(branches, TreeStyle { color, ascii, has_kinds: false, width: None })
        .into_iter()
        .map(|line| line.text)
        .collect()
}

/// Returns the same with the kinds of nodes, and with messages as long as they are.
pub(crate) fn wide(branches: &[Branch], color: bool, ascii: bool) -> Vec<String> {
    drawn(branches, TreeStyle { color, ascii, has_kinds: true, width: None })
        .into_iter()
        .map(|line| line.text)
        .collect()
}

/// How a tree is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeStyle {
    pub(crate) color: bool,
    pub(crate) ascii: bool,
    /// Kinds of nodes are shown, and messages are as long as they are.
    pub(crate) has_kinds: bool,
    /// Columns of the terminal; none for as many as are needed.
    pub(crate) width: Option<usize>,
}

/// Returns the tree as lines of a picture, ranked by how much they matter.
pub(crate) fn drawn(branches: &[Branch], style: TreeStyle) -> Vec<PictureLine> {
    let mut rows = Vec::new();
    for branch in branches {
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
    lines
}

fn flatten(branch: &Branch, indent: &str, ascii: bool, most: usize, out: &mut Vec<NodeLine>) {
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
