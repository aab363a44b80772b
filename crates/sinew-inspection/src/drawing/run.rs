//! State of an execution, counted per node and edge of its plan.

use std::collections::{BTreeMap, BTreeSet};

use sinew_diagram::{NodeMark, Status};
use sinew_documents::execution::{ShownWait, WaitKind};
use sinew_documents::node_status::NodeStatus;
use sinew_documents::words;
use sinew_engine::{Activation, ExecutionState, Fact, IndexedPlan, ROOT, Round};
use sinew_plan::{EdgeIndex, NodeIndex, NodeOperation, Plan};

use crate::node_rows;

/// Maximum characters of a note in a drawing.
const MAX_NOTE_CHARS: usize = 80;

/// Progress of an execution.
#[derive(Debug)]
pub struct DrawnProgress {
    marks: Vec<NodeMark>,
    taken: Vec<u32>,
    begun: Vec<u32>,
    ended: Vec<u32>,
    children: BTreeMap<(NodeIndex, NodeIndex), u32>,
    outcome: Option<NodeMark>,
    /// Node of each activation.
    nodes: Vec<NodeIndex>,
}

impl DrawnProgress {
    /// Folds the journal of an execution of this plan.
    pub fn of(graph: &IndexedPlan, journal: &[Round]) -> Self {
        let plan = graph.plan();
        let mut state = ExecutionState::new();
        let mut taken = vec![0; plan.edges.len()];
        for round in journal {
            for fact in &round.facts {
                sinew_engine::apply(graph, &mut state, round.at, fact);
                for edge in taken_edges(plan, &state, fact) {
                    taken[edge as usize] += 1;
                }
            }
        }
        let nodes = plan.nodes.len();
        let mut acts = vec![Vec::new(); nodes];
        let mut run = Self {
            marks: Vec::new(),
            taken,
            begun: vec![0; nodes],
            ended: vec![0; nodes],
            children: BTreeMap::new(),
            outcome: state.outcome.as_ref().map(|outcome| {
                let status = match outcome.status {
                    sinew_engine::TerminalStatus::Success => Status::Succeeded,
                    sinew_engine::TerminalStatus::Failure => Status::Failed,
                    sinew_engine::TerminalStatus::Cancelled => Status::Cancelled,
                };
                NodeMark { status, note: None }
            }),
            nodes: state.acts.iter().map(|one| one.node).collect(),
        };
        for one in &state.acts {
            let node = one.node as usize;
            acts[node].push(one);
            run.begun[node] += u32::from(one.began_at.is_some());
            run.ended[node] += u32::from(one.end == Some(sinew_engine::ActivationEnd::Succeeded));
            if let Some(owner) = one.owner {
                *run.children.entry((state.act(owner).node, one.node)).or_default() += 1;
            }
        }
        run.marks = (0..nodes as NodeIndex).map(|ix| mark(&state, plan, ix, &acts[ix as usize])).collect();
        run
    }

    /// Adds the first wait of each node.
    #[must_use]
    pub fn with_waits(mut self, waits: &[ShownWait]) -> Self {
        let mut told = BTreeSet::new();
        for wait in waits {
            let node = wait.activation.and_then(|act| self.nodes.get(act as usize)).copied();
            let Some(mark) = node.and_then(|node| self.marks.get_mut(node as usize)) else { continue };
            if node.is_some_and(|node| !told.insert(node)) {
                continue;
            }
            let text = match (wait.what, wait.is_late) {
                (WaitKind::Agent, true) => wait.subject.clone(),
                _ => format!("waits for {}", wait.subject),
            };
            let text = words::one_line(&text, MAX_NOTE_CHARS);
            mark.note = Some(match mark.note.take() {
                Some(note) => format!("{note}; {text}"),
                None => text,
            });
        }
        self
    }

    /// Returns the status of a node.
    pub(crate) fn mark(&self, node: NodeIndex) -> Option<NodeMark> {
        self.marks.get(node as usize).cloned()
    }

    /// Returns how often an edge was taken.
    pub(crate) fn taken(&self, edge: usize) -> u32 {
        self.taken.get(edge).copied().unwrap_or(0)
    }

    /// Returns how often a node started.
    pub(crate) fn begun(&self, node: NodeIndex) -> u32 {
        self.begun.get(node as usize).copied().unwrap_or(0)
    }

    /// Returns how often a node succeeded.
    pub(crate) fn ended(&self, node: NodeIndex) -> u32 {
        self.ended.get(node as usize).copied().unwrap_or(0)
    }

    /// Returns how often a map, loop or fork ran this child.
    pub(crate) fn children(&self, owner: NodeIndex, body: NodeIndex) -> u32 {
        self.children.get(&(owner, body)).copied().unwrap_or(0)
    }

    /// Returns the final status, if the execution has ended.
    pub(crate) fn outcome(&self) -> Option<NodeMark> {
        self.outcome.clone()
    }
}

/// Returns the edges that a fact takes: those with a live token. Of several branches to one target, only
/// the chosen one.
pub fn taken_edges<'a>(
    plan: &'a Plan,
    state: &'a ExecutionState,
    fact: &'a Fact,
) -> impl Iterator<Item = EdgeIndex> + 'a {
    let (act, tokens) = match fact {
        Fact::Routed { act, tokens, .. } => (*act, tokens.as_slice()),
        Fact::Yielded { act, tokens, .. } => (Some(*act), tokens.as_slice()),
        _ => (None, &[][..]),
    };
    let output = act.and_then(|act| state.act(act).output.as_ref()).map(|output| &*output.value);
    let live = tokens.iter().filter(|token| token.value.is_live()).map(|token| token.edge);
    live.filter(move |edge| plan.edge(*edge).is_branch_of(output))
}

fn mark(state: &ExecutionState, plan: &Plan, ix: NodeIndex, acts: &[&Activation]) -> NodeMark {
    let Some(last) = acts.last() else {
        // Nodes that an ended execution did not visit were skipped.
        let skipped = state.ended || state.died(ROOT, ix).is_some();
        let status = if skipped { Status::Skipped } else { Status::Planned };
        return NodeMark { status, note: None };
    };
    let words: Vec<NodeStatus> = acts.iter().map(|one| node_rows::word(one)).collect();
    let is_child = last.owner.is_some();
    let word = if is_child { worst(&words) } else { node_rows::word(last) };
    let note = match (&last.children, acts.len()) {
        (Some(children), _) if matches!(plan.node(ix).op, NodeOperation::Loop { .. }) => {
            Some(format!("iteration {}", children.acts.len()))
        }
        (Some(children), _) => {
            let started = children.acts.iter().map(|act| node_rows::word(state.act(*act)));
            tally(&started.collect::<Vec<_>>())
        }
        (None, 1) if last.tries > 1 => Some(format!("{} attempts", last.tries)),
        (None, 1) => (word == NodeStatus::Queued).then(|| "queued".to_owned()),
        (None, _) if is_child => tally(&words),
        (None, times) => Some(format!("×{times}")),
    };
    NodeMark { status: status_of(word), note }
}

/// Converts a node status to that of drawings.
pub(super) const fn status_of(word: NodeStatus) -> Status {
    match word {
        NodeStatus::Planned | NodeStatus::Queued => Status::Planned,
        NodeStatus::Running => Status::Running,
        NodeStatus::Waiting => Status::Waiting,
        NodeStatus::Succeeded => Status::Succeeded,
        NodeStatus::Failed => Status::Failed,
        NodeStatus::Skipped => Status::Skipped,
        NodeStatus::Cancelled => Status::Cancelled,
    }
}

/// Returns the most important status among children.
fn worst(words: &[NodeStatus]) -> NodeStatus {
    let order = [
        NodeStatus::Failed,
        NodeStatus::Waiting,
        NodeStatus::Running,
        NodeStatus::Cancelled,
        NodeStatus::Queued,
        NodeStatus::Succeeded,
    ];
    order.into_iter().find(|word| words.contains(word)).unwrap_or(NodeStatus::Skipped)
}

/// `387 ok, 9 running, 4 failed`.
fn tally(words: &[NodeStatus]) -> Option<String> {
    let parts: Vec<String> = [
        (NodeStatus::Succeeded, "ok"),
        (NodeStatus::Running, "running"),
        (NodeStatus::Waiting, "waiting"),
        (NodeStatus::Queued, "queued"),
        (NodeStatus::Failed, "failed"),
        (NodeStatus::Skipped, "skipped"),
        (NodeStatus::Cancelled, "cancelled"),
    ]
    .into_iter()
    .map(|(word, text)| (words.iter().filter(|other| **other == word).count(), text))
    .filter(|(count, _)| *count > 0)
    .map(|(count, text)| format!("{count} {text}"))
    .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}
