//! Conversion of plans to `sam` workflows, as far as `sam` can express them.
//!
//! Each dialect translates its nodes to `sam` ([`Portability`]); this module adds the graph and
//! reports the losses. A conversion never guesses: it fails on what `sam` cannot express and lists
//! each change of meaning. Plans of `sam` are written from the document that they store.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use sinew_plan::{
    EdgeIndex, JoinRule, NodeIndex, NodeOperation, Plan, PlanEdge, RetryCondition, RetryPolicy,
};

use crate::Dialect;
use crate::display::{self, DISPLAY};

/// Form of a node in `sam`.
#[derive(Clone, Debug, PartialEq)]
pub enum Portability {
    /// Only passes on the execution's input: its successors start the workflow.
    Start,
    /// Work for an agent.
    Agent {
        /// The agent.
        agent: String,
        /// Instruction as text.
        instruction: Option<String>,
        /// Its input, with `sam` templates; `None` = the output of the previous node.
        input: Option<Value>,
    },
    /// A choice between edges.
    Choice {
        /// Conditions in order, each with the edge that it selects.
        cases: Vec<(String, EdgeIndex)>,
        /// The edge that is selected when no condition holds.
        default: Option<EdgeIndex>,
    },
    /// Joins branches and outputs the received values.
    Merge,
    /// Part of another node (a tool, a skill): converted with that node or lost.
    Attached,
    /// A `sam` node as it is (all but `id` and `depends_on`).
    Node(Map<String, Value>),
    /// Cannot be expressed; the reason completes "… cannot be converted to sam: ".
    Not(String),
}

/// A plan with an index of the edges of each node and of nodes by name.
#[derive(Debug)]
pub struct PlanGraph<'p> {
    plan: &'p Plan,
    incoming: Vec<Vec<EdgeIndex>>,
    outgoing: Vec<Vec<EdgeIndex>>,
    ids: BTreeMap<&'p str, NodeIndex>,
    labels: BTreeMap<&'p str, NodeIndex>,
    /// The dialect's data of the plan, decoded on first use.
    extra: OnceCell<Option<Box<dyn Any>>>,
}

impl<'p> PlanGraph<'p> {
    /// Indexes a plan.
    pub fn new(plan: &'p Plan) -> Self {
        let mut incoming = vec![Vec::new(); plan.nodes.len()];
        let mut outgoing = vec![Vec::new(); plan.nodes.len()];
        for (ix, edge) in plan.edges.iter().enumerate() {
            outgoing[edge.from as usize].push(ix as EdgeIndex);
            incoming[edge.to as usize].push(ix as EdgeIndex);
        }
        let (mut ids, mut labels) = (BTreeMap::new(), BTreeMap::new());
        for (ix, node) in plan.nodes.iter().enumerate() {
            ids.entry(node.id.as_str()).or_insert(ix as NodeIndex);
            if let Some(label) = &node.label {
                labels.entry(label.as_str()).or_insert(ix as NodeIndex);
            }
        }
        Self { plan, incoming, outgoing, ids, labels, extra: OnceCell::new() }
    }

    /// Returns the plan.
    pub fn plan(&self) -> &'p Plan {
        self.plan
    }

    /// Returns the dialect's data of the plan, decoded once for all nodes. `None` if it has another
    /// type.
    pub fn plan_extra<T: DeserializeOwned + 'static>(&self) -> Option<&T> {
        let read = || T::deserialize(&self.plan.extra).ok().map(|extra| Box::new(extra) as Box<dyn Any>);
        self.extra.get_or_init(read).as_ref()?.downcast_ref()
    }

    /// Returns the flow edges that reach a node, in the order of the plan.
    pub fn edges_into(&self, node: NodeIndex) -> impl Iterator<Item = (EdgeIndex, &'p PlanEdge)> + Clone {
        self.flow(&self.incoming[node as usize])
    }

    /// Returns the flow edges that leave a node, in the order of the plan.
    pub fn edges_out_of(&self, node: NodeIndex) -> impl Iterator<Item = (EdgeIndex, &'p PlanEdge)> + Clone {
        self.flow(&self.outgoing[node as usize])
    }

    /// Returns the node with this id, or else the first with this label.
    pub fn named(&self, name: &str) -> Option<NodeIndex> {
        self.ids.get(name).or_else(|| self.labels.get(name)).copied()
    }

    fn flow(&self, edges: &[EdgeIndex]) -> impl Iterator<Item = (EdgeIndex, &'p PlanEdge)> + Clone {
        let plan = self.plan;
        edges.iter().map(move |ix| (*ix, plan.edge(*ix))).filter(|(_, edge)| !edge.attach)
    }
}

/// A part of the workflow that the conversion cannot preserve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The node.
    pub node: String,
    /// One-sentence description of the lost part.
    pub what: String,
    /// True if it makes the conversion impossible.
    pub fatal: bool,
}

/// A converted workflow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Converted {
    /// The document, to be written as YAML.
    pub document: Value,
    /// Parts that the document cannot express.
    pub losses: Vec<Loss>,
}

/// Converts a plan to a `sam` workflow. Returns all losses if any of them is fatal.
pub fn to_sam(plan: &Plan, dialect: &dyn Dialect) -> Result<Converted, Vec<Loss>> {
    if let Some(document) = dialect.sam_document(plan) {
        return Ok(Converted { document, losses: Vec::new() });
    }
    let graph = PlanGraph::new(plan);
    let reached = reached(plan, &graph);
    let mut writer = Writer { plan, graph: &graph, reached, kinds: Vec::new(), losses: Vec::new() };
    for node in 0..plan.nodes.len() as NodeIndex {
        if !writer.reached[node as usize] && !plan.node(node).attached {
            writer.kinds.push(Portability::Attached);
            writer.lose(node, false, "is never reached, so it is omitted");
            continue;
        }
        let mut losses = Vec::new();
        writer.kinds.push(dialect.portable(&graph, node, &mut losses));
        for what in losses {
            writer.lose(node, false, what);
        }
    }
    writer.refuse_cycles();
    writer.refuse_merges();
    let nodes: Vec<Value> =
        (0..plan.nodes.len() as NodeIndex).filter_map(|node| writer.node(node).map(Value::Object)).collect();
    if writer.losses.iter().any(|loss| loss.fatal) {
        return Err(writer.losses);
    }
    let mut workflow = json!({
        "description": if plan.description.is_empty() { &plan.name } else { &plan.description },
        "nodes": nodes,
        "output_mapping": writer.output_mapping(),
    });
    if let Some(schema) = &plan.input_schema {
        workflow["input_schema"] = schema.clone();
    }
    if let Some(schema) = &plan.output_schema {
        workflow["output_schema"] = schema.clone();
    }
    let is_written = |ix: usize| !matches!(writer.kinds[ix], Portability::Start | Portability::Attached);
    let written = plan.nodes.iter().enumerate().filter(|(ix, _)| is_written(*ix)).map(|(_, node)| node);
    if let Some(display) = display::document(written) {
        workflow[DISPLAY] = display;
    }
    let document = json!({
        "name": plan.name,
        // The limits of the plan: a `sam` file without limits gets other defaults.
        "default_node_timeout_seconds": LONGEST_SECONDS,
        "max_workflow_execution_time_seconds":
            plan.limits.wall_ms.map_or(LONGEST_SECONDS, |ms| ms as f64 / 1000.0),
        "workflow": workflow,
    });
    Ok(Converted { document, losses: writer.losses })
}

/// Longest duration in a `sam` file, in seconds.
const LONGEST_SECONDS: f64 = 316_224_000.0;

/// Returns for each node whether an entry node leads to it.
fn reached(plan: &Plan, graph: &PlanGraph<'_>) -> Vec<bool> {
    let mut reached = vec![false; plan.nodes.len()];
    let mut open = plan.entry.clone();
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut reached[node as usize], true) {
            open.extend(graph.edges_out_of(node).map(|(_, edge)| edge.to));
            match &plan.node(node).op {
                NodeOperation::Map { body } | NodeOperation::Loop { body } => open.push(*body),
                NodeOperation::Fork { bodies } => open.extend(bodies),
                _ => {}
            }
        }
    }
    reached
}

struct Writer<'a> {
    plan: &'a Plan,
    graph: &'a PlanGraph<'a>,
    reached: Vec<bool>,
    kinds: Vec<Portability>,
    losses: Vec<Loss>,
}

impl Writer<'_> {
    fn lose(&mut self, node: NodeIndex, fatal: bool, what: impl Into<String>) {
        let node = self.plan.node(node).id.clone();
        self.losses.push(Loss { node, what: what.into(), fatal });
    }

    fn kind(&self, node: NodeIndex) -> &Portability {
        &self.kinds[node as usize]
    }

    /// Reports each node that is on a cycle, because `sam` workflows have no cycles.
    fn refuse_cycles(&mut self) {
        // Repeatedly removes nodes without a remaining edge in or out; the remaining nodes are on a
        // cycle or between two cycles.
        let nodes = 0..self.plan.nodes.len() as NodeIndex;
        let mut before: Vec<usize> = nodes.clone().map(|node| self.graph.edges_into(node).count()).collect();
        let mut after: Vec<usize> = nodes.clone().map(|node| self.graph.edges_out_of(node).count()).collect();
        let mut left = vec![true; before.len()];
        let mut open: Vec<NodeIndex> = nodes.clone().collect();
        while let Some(node) = open.pop() {
            let at = node as usize;
            if (before[at] > 0 && after[at] > 0) || !std::mem::replace(&mut left[at], false) {
                continue;
            }
            for (_, edge) in self.graph.edges_out_of(node) {
                before[edge.to as usize] -= 1;
                open.push(edge.to);
            }
            for (_, edge) in self.graph.edges_into(node) {
                after[edge.from as usize] -= 1;
                open.push(edge.from);
            }
        }
        for node in nodes.filter(|node| left[*node as usize]) {
            self.lose(node, true, "is part of a cycle, which sam does not support");
        }
    }

    /// A node of `sam` runs once. A node that runs once per arriving value is equivalent only if at
    /// most one value arrives.
    fn refuse_merges(&mut self) {
        let always = JoinRule::Resolved { quorum: None };
        for node in 0..self.plan.nodes.len() as NodeIndex {
            let edges: Vec<EdgeIndex> = self.live_edges_into(node).map(|(ix, _)| ix).collect();
            if edges.len() < 2 || self.plan.node(node).join == always {
                continue;
            }
            let choices: Vec<BTreeMap<NodeIndex, &str>> =
                edges.iter().map(|edge| self.choices_above(*edge)).collect();
            let exclusive = |a: &BTreeMap<NodeIndex, &str>, b: &BTreeMap<NodeIndex, &str>| {
                a.iter().any(|(choice, port)| b.get(choice).is_some_and(|other| other != port))
            };
            let mut pairs =
                choices.iter().enumerate().flat_map(|(n, a)| choices[n + 1..].iter().map(move |b| (a, b)));
            if !pairs.all(|(a, b)| exclusive(a, b)) {
                self.lose(node, true, "runs once per arriving value, but only once in sam");
            }
        }
    }

    /// Returns the choices on the only path to an edge, each with the port on that path.
    fn choices_above(&self, edge: EdgeIndex) -> BTreeMap<NodeIndex, &str> {
        let mut above = BTreeMap::new();
        let mut at = self.plan.edge(edge);
        // No path in an acyclic graph is longer than its node count; more steps mean a cycle.
        for _ in 0..=self.plan.nodes.len() {
            if matches!(self.kind(at.from), Portability::Choice { .. }) {
                above.insert(at.from, at.port.as_str());
            }
            let mut before = self.live_edges_into(at.from);
            match (before.next(), before.next()) {
                (Some((_, only)), None) => at = only,
                _ => break,
            }
        }
        above
    }

    /// Returns the edges into a node on which a value may arrive.
    fn live_edges_into(&self, node: NodeIndex) -> impl Iterator<Item = (EdgeIndex, &PlanEdge)> {
        self.graph.edges_into(node).filter(|(_, edge)| self.reached[edge.from as usize])
    }

    fn node(&mut self, node: NodeIndex) -> Option<Map<String, Value>> {
        let mut out = Map::new();
        out.insert("id".into(), json!(self.plan.node(node).id));
        match self.kind(node).clone() {
            Portability::Start | Portability::Attached => return None,
            Portability::Not(reason) => {
                self.lose(node, true, format!("cannot be converted to sam: {reason}"));
                return None;
            }
            Portability::Agent { agent, instruction, input } => {
                out.insert("type".into(), json!("agent"));
                out.insert("agent_name".into(), json!(agent));
                if let Some(input) = input {
                    out.insert("input".into(), input);
                }
                if let Some(instruction) = instruction {
                    out.insert("instruction".into(), json!(instruction));
                }
            }
            Portability::Choice { cases, default } => {
                out.insert("type".into(), json!("switch"));
                let mut ports: BTreeMap<&str, usize> = BTreeMap::new();
                for (_, edge) in self.graph.edges_out_of(node) {
                    *ports.entry(&edge.port).or_default() += 1;
                }
                let taken: BTreeSet<EdgeIndex> = cases.iter().map(|(_, edge)| *edge).chain(default).collect();
                // `target` reports the other edges of a selected branch.
                let taken_ports: BTreeSet<&str> =
                    taken.iter().map(|edge| self.plan.edge(*edge).port.as_str()).collect();
                let is_dead = |edge: &PlanEdge| !taken_ports.contains(edge.port.as_str());
                for (_, edge) in self.graph.edges_out_of(node).filter(|(_, edge)| is_dead(edge)) {
                    let lost = format!(
                        "its port '{}' has no connection, but sam would run the following nodes",
                        edge.port
                    );
                    self.lose(node, true, lost);
                }
                let cases: Vec<Value> = cases
                    .into_iter()
                    .map(|(when, edge)| json!({ "when": when, "then": self.target(node, edge, &ports) }))
                    .collect();
                out.insert("cases".into(), json!(cases));
                if let Some(edge) = default {
                    out.insert("default".into(), json!(self.target(node, edge, &ports)));
                }
            }
            Portability::Merge => {
                let from = self.dependencies(node);
                out.insert("type".into(), json!("join"));
                out.insert("wait_for".into(), json!(from));
            }
            Portability::Node(members) => out.extend(members),
        }
        let depends_on = self.dependencies(node);
        if !depends_on.is_empty() {
            out.insert("depends_on".into(), json!(depends_on));
        }
        let own = self.plan.node(node);
        if own.retry.limit > 0 {
            out.insert("retryStrategy".into(), retry_strategy(&own.retry));
        }
        if own.retry.jitter_ms > 0 {
            self.lose(node, false, "waits between attempts without jitter");
        }
        if own.timeout_ms.is_some() {
            self.lose(node, true, "has a time limit for all attempts, and sam has one for each attempt");
        }
        if let Some(timeout) = self.plan.node(node).attempt_timeout_ms {
            out.insert("timeout".into(), json!(seconds(timeout)));
        }
        Some(out)
    }

    /// Returns the one node that a case leads to, and reports a loss if its port leads to several,
    /// because `sam` cannot express that. `ports` counts the edges of each port of the node.
    fn target(&mut self, node: NodeIndex, edge: EdgeIndex, ports: &BTreeMap<&str, usize>) -> String {
        let port = &self.plan.edge(edge).port;
        if ports.get(port.as_str()).is_some_and(|count| *count > 1) {
            self.lose(node, true, format!("its branch '{port}' leads to several nodes, a sam case to one"));
        }
        self.plan.node(self.plan.edge(edge).to).id.clone()
    }

    /// Returns the ids of the nodes that this node depends on, without start nodes.
    fn dependencies(&self, node: NodeIndex) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let before = self.live_edges_into(node).map(|(_, edge)| edge.from);
        before
            .filter(|from| *self.kind(*from) != Portability::Start && seen.insert(*from))
            .map(|from| self.plan.node(from).id.clone())
            .collect()
    }

    /// Returns the outputs of the last nodes, by id. Only one of several branches may have run, so
    /// they use `coalesce`.
    fn output_mapping(&self) -> Value {
        let last = (0..self.plan.nodes.len() as NodeIndex).filter(|node| {
            let works = matches!(
                self.kind(*node),
                Portability::Agent { .. } | Portability::Merge | Portability::Node(_)
            );
            let is_last = self.graph.edges_out_of(*node).next().is_none();
            works && is_last && self.reached[*node as usize] && !self.plan.node(*node).inner
        });
        let mapping: Map<String, Value> = last
            .map(|node| {
                let id = &self.plan.node(node).id;
                (id.clone(), json!({ "coalesce": [format!("{{{{{id}.output}}}}")] }))
            })
            .collect();
        Value::Object(mapping)
    }
}

fn retry_strategy(retry: &RetryPolicy) -> Value {
    let policy = match retry.on {
        RetryCondition::Always => "Always",
        RetryCondition::Failure => "OnFailure",
        RetryCondition::Error => "OnError",
    };
    let mut backoff = json!({ "duration": seconds(retry.delay_ms), "factor": retry.factor });
    if let Some(most) = retry.max_delay_ms {
        backoff["maxDuration"] = json!(seconds(most));
    }
    json!({ "limit": retry.limit, "retryPolicy": policy, "backoff": backoff })
}

/// Returns whether `sam` would read a template in this string.
pub(crate) fn has_template(text: &str) -> bool {
    text.find("{{").is_some_and(|open| text[open..].contains("}}"))
}

/// Formats milliseconds as a `sam` duration.
fn seconds(ms: u64) -> String {
    let text = format!("{}.{:03}", ms / 1000, ms % 1000);
    format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
}
