//! Lowers a definition to a plan.

use sinew_protocol::code;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sinew_plan::{
    ExitCondition, ExitNode, FailurePolicy, JoinRule, NodeIndex, NodeOperation, PausePolicy, Plan, PlanEdge,
    PlanLimits, PlanNode, ReadyOrder, RetryCondition, RetryPolicy, SchedulingProfile,
};
use sinew_protocol::Fault;
use sinew_script::python_str;
use sinew_source::Span;

use super::approval;
use super::duration;
use super::model::{Branch, Call, NodeDef, RetryStrategy, Strategy, Work, WorkflowDefinition};
use super::shape::{GraphShape, conditions_read};
use crate::{reach, text_input};

/// Default timeout of a node, in seconds.
pub(super) const NODE_TIMEOUT: f64 = 300.0;
/// Default timeout of an execution, in seconds.
pub(super) const WORKFLOW_TIMEOUT: f64 = 1800.0;
/// Default limit of the items of a map and the iterations of a loop.
pub(super) const MOST: u32 = 100;
/// Field of a node's `extra` with the event fields that only its kind has.
pub(super) const EVENT_FIELDS: &str = "event";
/// The port that carries a node's whole output.
pub(super) const OUT: &str = "out";

/// Lowers a valid definition. Also returns the span of every node of the plan.
pub(super) fn lower(name: &str, definition: &WorkflowDefinition) -> Result<(Plan, Vec<Option<Span>>), Fault> {
    let mut positions = BTreeMap::new();
    for (n, node) in definition.nodes.iter().enumerate() {
        positions.entry(node.id.as_str()).or_insert(n as NodeIndex);
    }
    let shape = GraphShape::of(definition);
    PlanLowering { definition, positions, shape, nodes: Vec::new(), places: Vec::new() }.plan(name)
}

struct PlanLowering<'d> {
    definition: &'d WorkflowDefinition,
    positions: BTreeMap<&'d str, NodeIndex>,
    shape: GraphShape,
    nodes: Vec<PlanNode>,
    places: Vec<Option<Span>>,
}

impl PlanLowering<'_> {
    fn plan(mut self, name: &str) -> Result<(Plan, Vec<Option<Span>>), Fault> {
        let definition = self.definition;
        // Nodes of the file come first, so their indexes are their positions; branches of forks
        // follow.
        let mut next = definition.nodes.len();
        for (n, node) in definition.nodes.iter().enumerate() {
            let op = match &node.work {
                Work::Agent { .. } => NodeOperation::Agent,
                Work::Workflow { .. } => NodeOperation::Workflow,
                Work::Conditional { .. } | Work::Switch { .. } | Work::Join { .. } => NodeOperation::Pure,
                Work::Map { node, .. } => NodeOperation::Map { body: self.position(node) },
                Work::Approval(_) => NodeOperation::Human,
                Work::Sleep(_) => NodeOperation::Delay,
                Work::Loop { node, .. } => NodeOperation::Loop { body: self.position(node) },
                Work::Fork { branches, .. } => {
                    let first = next;
                    next += branches.len();
                    NodeOperation::Fork { bodies: (first..next).map(|ix| ix as NodeIndex).collect() }
                }
            };
            self.push(node, node.id.clone(), op, n as u32, self.shape.owners.contains_key(&node.id))?;
        }
        let mut taken: BTreeSet<String> = self.nodes.iter().map(|node| node.id.clone()).collect();
        for (n, node) in definition.nodes.iter().enumerate() {
            if let Work::Fork { branches, .. } = &node.work {
                for branch in branches {
                    let new = taken.insert(branch.id.clone());
                    let id = if new { branch.id.clone() } else { format!("{}.{}", node.id, branch.id) };
                    taken.insert(id.clone());
                    self.push(&as_node(branch), id, NodeOperation::Agent, n as u32, true)?;
                }
            }
        }
        let edges = self.edges();
        let reached: BTreeSet<NodeIndex> = edges.iter().map(|edge| edge.to).collect();
        let entry = definition
            .nodes
            .iter()
            .enumerate()
            .filter(|(ix, node)| self.shape.flows(&node.id) && !reached.contains(&(*ix as NodeIndex)))
            .map(|(ix, _)| ix as NodeIndex)
            .collect();
        let exits = definition.on_exit.handlers().map(|(on, id)| ExitNode {
            node: self.position(id),
            on: match on {
                "on_success" => ExitCondition::Success,
                "on_failure" => ExitCondition::Failure,
                "on_cancel" => ExitCondition::Cancel,
                _ => ExitCondition::Always,
            },
        });
        let plan = Plan {
            format: Plan::FORMAT,
            dialect: super::NAME.to_owned(),
            name: name.to_owned(),
            description: definition.description.trim().to_owned(),
            version: Some(definition.version.clone()),
            profile: SchedulingProfile {
                order: ReadyOrder::Rank,
                parallel: 0,
                failure: if definition.fail_fast { FailurePolicy::Stop } else { FailurePolicy::Isolate },
                pause: PausePolicy::NodeLocal,
            },
            exits: exits.collect(),
            edges,
            entry,
            limits: self.limits(),
            input_schema: text_input::marked(
                definition.input_schema.clone(),
                definition.text_input.as_deref(),
            ),
            output_schema: definition.output_schema.clone(),
            extra: extra(&WorkflowDefinition { nodes: Vec::new(), ..definition.clone() })?,
            nodes: self.nodes,
        };
        Ok((plan, self.places))
    }

    fn position(&self, id: &str) -> NodeIndex {
        self.positions.get(id).copied().unwrap_or_default()
    }

    fn push(
        &mut self,
        node: &NodeDef,
        id: String,
        op: NodeOperation,
        rank: u32,
        inner: bool,
    ) -> Result<(), Fault> {
        let call = node.work.call();
        let join = match &node.work {
            Work::Join { strategy: Strategy::Any, .. } => JoinRule::Resolved { quorum: Some(1) },
            Work::Join { strategy: Strategy::NOfM, n, .. } => JoinRule::Resolved { quorum: *n },
            _ => JoinRule::Resolved { quorum: None },
        };
        let agent = match &node.work {
            Work::Agent { agent_name: name, .. } | Work::Workflow { workflow_name: name, .. } => {
                Some(name.clone())
            }
            _ => None,
        };
        self.nodes.push(PlanNode {
            label: (id != node.id).then(|| node.id.clone()),
            id,
            kind: node.work.type_name().to_owned(),
            op,
            join,
            rank,
            agent,
            retry: call.map(|call| self.retry(call)).unwrap_or_default(),
            attempt_timeout_ms: call.map(|call| self.timeout(call)),
            timeout_ms: None,
            inner,
            attached: false,
            quiet: false,
            handles_failure: node.handles_failure(),
            extra: self.node_extra(node)?,
        });
        self.places.push((node.places.whole.line > 0).then_some(node.places.whole));
        Ok(())
    }

    /// Returns the plan's data of a node: its definition, and the fields of events about its kind.
    fn node_extra(&self, node: &NodeDef) -> Result<Value, Fault> {
        let mut kept = extra(node)?;
        if let Some(fields) = event_fields(&node.work) {
            kept[EVENT_FIELDS] = fields;
        }
        if let Work::Approval(approval) = &node.work
            && approval.on_reject.is_none()
        {
            let is_read = conditions_read(self.definition, &node.id);
            kept["on_reject"] = json!(if is_read { approval::CONTINUE } else { approval::FAIL });
        }
        Ok(kept)
    }

    fn retry(&self, call: &Call) -> RetryPolicy {
        let Some(retrying) = call.retry_strategy.as_ref().or(self.definition.retry_strategy.as_ref()) else {
            return RetryPolicy::default();
        };
        let RetryStrategy { limit, retry_policy, backoff } = retrying;
        let backoff = backoff.clone().unwrap_or_default();
        let milliseconds = |value: &Value| duration::milliseconds(value).ok();
        RetryPolicy {
            limit: limit.unwrap_or(3),
            on: match retry_policy.as_deref() {
                Some("Always") => RetryCondition::Always,
                Some("OnError") => RetryCondition::Error,
                _ => RetryCondition::Failure,
            },
            delay_ms: backoff.duration.as_ref().and_then(milliseconds).unwrap_or(1000),
            factor: backoff.factor.unwrap_or(2.0),
            max_delay_ms: backoff.max_duration.as_ref().and_then(milliseconds),
            jitter_ms: 0,
        }
    }

    fn timeout(&self, call: &Call) -> u64 {
        let default = self.definition.settings.default_node_timeout_seconds.unwrap_or(NODE_TIMEOUT);
        let own = call.timeout.as_ref().and_then(|timeout| duration::milliseconds(timeout).ok());
        own.or_else(|| duration::milliseconds(&default.into()).ok()).unwrap_or_default()
    }

    fn limits(&self) -> PlanLimits {
        let wall = self.definition.settings.max_workflow_execution_time_seconds.unwrap_or(WORKFLOW_TIMEOUT);
        let mut limits = PlanLimits {
            depth: self.definition.max_call_depth,
            wall_ms: duration::milliseconds(&wall.into()).ok(),
            ..PlanLimits::default()
        };
        // A higher limit of a single node raises the limit of the plan.
        for node in &self.definition.nodes {
            match &node.work {
                Work::Map { max_items: Some(max), .. } => limits.fan_out = limits.fan_out.max(*max),
                Work::Loop { max_iterations: Some(max), .. } => {
                    limits.iterations = limits.iterations.max(*max);
                }
                _ => {}
            }
        }
        limits
    }

    fn edges(&self) -> Vec<PlanEdge> {
        let mut edges = Vec::new();
        for node in self.definition.nodes.iter().filter(|node| self.shape.flows(&node.id)) {
            let (waited, quorum) = match &node.work {
                Work::Join { wait_for, strategy, .. } => (wait_for.as_slice(), *strategy != Strategy::All),
                _ => (&[][..], false),
            };
            let also = node.depends_on.iter().filter(|id| !waited.contains(id));
            for (id, counts) in waited.iter().map(|id| (id, quorum)).chain(also.map(|id| (id, false))) {
                for id in self.shape.stands_for(id) {
                    for (n, mut edge) in self.parallel_edges(id, node).into_iter().enumerate() {
                        edge.quorum = counts && n == 0;
                        edge.counter = edges.len() as u32;
                        edges.push(edge);
                    }
                }
            }
        }
        self.require_success(&mut edges);
        edges
    }

    /// Makes nodes require the success of a node that leads elsewhere after a failure or a
    /// rejection, unless they also wait for the node to which it leads: these merge both ways.
    fn require_success(&self, edges: &mut [PlanEdge]) {
        let mut upstream = vec![Vec::new(); self.definition.nodes.len()];
        for edge in edges.iter() {
            upstream[edge.to as usize].push(edge.from as usize);
        }
        let mut marks = vec![Vec::new(); upstream.len()];
        let (mut asked, mut questions) = (Vec::new(), Vec::new());
        for (at, edge) in edges.iter().enumerate().filter(|(_, edge)| edge.port == OUT) {
            for target in elsewhere(&self.definition.nodes[edge.from as usize]) {
                let target = self.position(target) as usize;
                marks[target] = vec![target];
                asked.push(at);
                questions.push((edge.to as usize, target));
            }
        }
        let merges = reach::reaches(&upstream, &marks, &questions);
        for (at, is_merge) in asked.iter().zip(&merges) {
            edges[*at].veto |= !is_merge;
        }
        // A node that merges one of several ways merges them all.
        for (at, _) in asked.iter().zip(&merges).filter(|(_, is_merge)| **is_merge) {
            edges[*at].veto = false;
        }
    }

    /// Returns the edges from a node to one that waits for it: one for each branch that leads there. They
    /// share a port, so that all of them carry the same token; `extra` names the output of the branch.
    fn parallel_edges(&self, from: &str, to: &NodeDef) -> Vec<PlanEdge> {
        let parent = self.positions.get(from).map(|ix| &self.definition.nodes[*ix as usize]);
        let branches = parent.map(|parent| branches_to(parent, &to.id)).unwrap_or_default();
        let edge = |label: Option<String>, extra: Value| PlanEdge {
            from: self.position(from),
            port: if label.is_some() { to.id.clone() } else { OUT.to_owned() },
            to: self.position(&to.id),
            handle: "in".to_owned(),
            veto: label.is_some(),
            label: label.or_else(|| parent.filter(|parent| decides(parent)).map(|_| "approved".to_owned())),
            budget: None,
            counter: 0,
            quorum: false,
            attach: false,
            extra,
        };
        match branches.as_slice() {
            [] => vec![edge(None, Value::Null)],
            [(label, _)] => vec![edge(Some(label.clone()), Value::Null)],
            several => {
                let one = |(label, output): &(String, Value)| {
                    edge(Some(label.clone()), json!({ PlanEdge::OUTPUT_OF_BRANCH: output }))
                };
                several.iter().map(one).collect()
            }
        }
    }
}

/// Returns whether only an approval leads to the dependents that are not targets.
fn decides(node: &NodeDef) -> bool {
    matches!(&node.work, Work::Approval(approval) if !approval.targets().is_empty())
}

/// Returns the nodes to which a node leads after a failure or a rejection.
fn elsewhere(node: &NodeDef) -> impl Iterator<Item = &str> {
    let rejected = match &node.work {
        Work::Approval(approval) => approval.targets(),
        _ => Vec::new(),
    };
    rejected.into_iter().map(|(_, id)| id).chain(node.on_error.as_deref())
}

/// Returns the branches from a branching node to a target: the label of each, and the part of the node's
/// output by which it is recognized. Empty for other nodes.
fn branches_to(node: &NodeDef, target: &str) -> Vec<(String, Value)> {
    match &node.work {
        _ if node.on_error.as_deref() == Some(target) => vec![("error".to_owned(), Value::Null)],
        Work::Approval(approval) => {
            approval.label(target).map(|label| (label.to_owned(), Value::Null)).into_iter().collect()
        }
        Work::Conditional { true_branch, false_branch, .. } => {
            let branches = [("True", Some(true_branch), true), ("False", false_branch.as_ref(), false)];
            let hit = branches.into_iter().filter(|(_, branch, _)| branch.is_some_and(|id| id == target));
            hit.map(|(label, _, holds)| (label.to_owned(), json!({ "condition_result": holds }))).collect()
        }
        Work::Switch { cases, default } => {
            let hit = cases.iter().enumerate().filter(|(_, case)| case.node == target);
            let hit = hit.map(|(n, case)| (case.condition.clone(), json!({ "selected_case_index": n })));
            let default = default.iter().filter(|id| *id == target);
            let default = default.map(|_| ("default".to_owned(), json!({ "selected_case_index": null })));
            hit.chain(default).collect()
        }
        _ => Vec::new(),
    }
}

/// Converts a branch of a fork to an agent node.
fn as_node(branch: &Branch) -> NodeDef {
    NodeDef {
        id: branch.id.clone(),
        work: Work::Agent {
            agent_name: branch.agent_name.clone(),
            call: Call { input: branch.input.clone(), ..Call::default() },
        },
        depends_on: Vec::new(),
        when: None,
        continue_on_error: false,
        on_error: None,
        places: branch.places.clone(),
    }
}

/// Returns the fields of `workflow_node_execution_start` that only this kind of node has.
fn event_fields(work: &Work) -> Option<Value> {
    Some(match work {
        Work::Conditional { condition, true_branch, false_branch } => json!({
            "condition": condition, "true_branch": true_branch, "false_branch": false_branch,
        }),
        Work::Switch { cases, default } => json!({ "cases": cases, "default_branch": default }),
        Work::Join { wait_for, strategy, n } => {
            json!({ "wait_for": wait_for, "join_strategy": strategy.as_str(), "join_n": n })
        }
        Work::Loop { condition, max_iterations, delay, .. } => json!({
            "condition": condition,
            "max_iterations": max_iterations.unwrap_or(MOST),
            "loop_delay": delay.as_ref().map(python_str),
        }),
        _ => return None,
    })
}

fn extra(value: &impl serde::Serialize) -> Result<Value, Fault> {
    serde_json::to_value(value).map_err(|error| {
        Fault::invalid(code::PLAN_OF_OTHER_DIALECT.as_str(), format!("cannot be lowered: {error}"))
    })
}
