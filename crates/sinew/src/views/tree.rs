//! `execution tree`: every planned node from the first second, children of maps and loops folded or opened.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use sinew_engine::{ActivationId, ROOT, Time};
use sinew_executor::events;
use sinew_plan::NodeIndex;

use super::{Standing, describe, words};
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
pub(crate) fn tree(record: &Record, now: Time, options: &Options) -> Option<Vec<Branch>> {
    let grow = Grow { record, now: until(record, now), options, below: below(record) };
    match &options.node {
        None => Some(grow.roots().collect()),
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

/// An execution that has ended counts no further.
fn until(record: &Record, now: Time) -> Time {
    let state = record.execution.state();
    if state.ended { state.at } else { now.max(state.at) }
}

struct Grow<'a> {
    record: &'a Record,
    now: Time,
    options: &'a Options,
    below: BTreeMap<ActivationId, Vec<ActivationId>>,
}

impl Grow<'_> {
    fn roots(&self) -> impl Iterator<Item = Branch> + '_ {
        let plan = self.record.plan();
        (0..plan.nodes.len() as NodeIndex).filter(|ix| !plan.node(*ix).inner && !plan.node(*ix).attached).map(
            |ix| match self.record.execution.state().last(ROOT, ix) {
                Some(act) => Branch {
                    row: tree::row(&self.record.execution.ctx(), ix, self.now),
                    ..self.activation(act, 1)
                },
                None => self.planned(ix),
            },
        )
    }

    fn planned(&self, ix: NodeIndex) -> Branch {
        let row = tree::row(&self.record.execution.ctx(), ix, self.now);
        Branch { label: row.node.clone(), row, folded: BTreeMap::new(), children: Vec::new() }
    }

    fn activation(&self, act: ActivationId, level: usize) -> Branch {
        let ctx = self.record.execution.ctx();
        let mut branch = Branch {
            label: events::label(&ctx, act),
            row: tree::row_of(&ctx, act, self.now),
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
pub(crate) fn head(record: &Record, now: Time) -> String {
    let state = record.execution.state();
    let standing = Standing::of(state);
    let until = until(record, now);
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
    head
}

/// The tree as lines for people.
pub(crate) fn lines(branches: &[Branch], color: bool, ascii: bool) -> Vec<String> {
    drawn(branches, color, ascii, false)
}

/// The same with the kinds of nodes, and with messages as long as they are.
pub(crate) fn wide(branches: &[Branch], color: bool, ascii: bool) -> Vec<String> {
    drawn(branches, color, ascii, true)
}

fn drawn(branches: &[Branch], color: bool, ascii: bool, all: bool) -> Vec<String> {
    let mut rows = Vec::new();
    for branch in branches {
        flatten(branch, "", ascii, if all { usize::MAX } else { MESSAGE }, &mut rows);
    }
    let wide = |text: &str| text.chars().count();
    let name = rows.iter().map(|row| wide(&row.name)).max().unwrap_or(0).clamp(4, 60);
    let agent = rows.iter().map(|row| wide(&row.agent)).max().unwrap_or(0).clamp(5, 24);
    let widest = rows.iter().map(|row| wide(&row.kind)).max().unwrap_or(0).max(4);
    let kind = |kind: &str| if all { format!("{kind:<widest$}  ") } else { String::new() };
    let mut lines = vec![format!(
        "  {:<name$}  {}{:<9}  {:>3}  {:>8}  {:<agent$}  MESSAGE",
        "NODE",
        kind("KIND"),
        "STATUS",
        "ATT",
        "TIME",
        "AGENT"
    )];
    for row in rows {
        let Some(word) = row.word else {
            lines.push(format!("  {}", row.name));
            continue;
        };
        let (on, off) = if color { (word.color(), "\u{1b}[0m") } else { ("", "") };
        let line = format!(
            "{on}{}{off} {:<name$}  {}{on}{:<9}{off}  {:>3}  {:>8}  {:<agent$}  {}",
            word.icon(ascii),
            row.name,
            kind(&row.kind),
            word.as_str(),
            row.attempts,
            row.time,
            row.agent,
            row.message
        );
        lines.push(line.trim_end().to_owned());
    }
    lines
}

/// A line before its columns are known. Without a word it is a note.
struct Flat {
    name: String,
    kind: String,
    word: Option<NodeStatus>,
    attempts: String,
    time: String,
    agent: String,
    message: String,
}

fn flatten(branch: &Branch, indent: &str, ascii: bool, most: usize, out: &mut Vec<Flat>) {
    let row = &branch.row;
    let name = format!("{indent}{}", branch.label);
    out.push(Flat {
        name: words::name(&name),
        kind: words::one_line(&row.kind, 24),
        word: Some(row.status),
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
        out.push(Flat {
            name: format!("{inner}{dots} {}", counts.join(", ")),
            kind: String::new(),
            word: None,
            attempts: String::new(),
            time: String::new(),
            agent: String::new(),
            message: String::new(),
        });
    }
}
