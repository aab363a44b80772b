//! Engine callbacks of this dialect.

use sinew_protocol::code;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sinew_engine::{
    ATTEMPT_TIMED_OUT, ActivationId, ActivationOutput, Adapter, AdapterContext, ChildSpec, NodeDecision,
    PersonAnswer, RouteDecision, SharedJson, TaskRequest,
};
use sinew_plan::{NodeIndex, NodeOperation, Plan};
use sinew_protocol::Fault;
use sinew_script::{python_repr, python_type};
use sinew_source::violation_code;

use super::chance::ConditionPosition;
use super::execution_state::execution_state;
use super::lower::{MOST, OUT};
use super::model::{Strategy, Work};
use super::path::TemplateScope;
use super::program::{CompiledNode, CompiledPlan, Read, schema};
use super::template::fill;
use super::world::{ScopeView, name};
use super::{approval, duration, failure, sleep, violation};

/// The adapter of this dialect.
#[derive(Debug)]
pub(super) struct SamAdapter;

impl Adapter for SamAdapter {
    fn name(&self) -> &'static str {
        super::NAME
    }

    fn admit(&self, plan: &Plan, input: Value) -> Result<Value, Fault> {
        // A workflow that is started without an input has an empty object.
        let input = if input.is_null() { json!({}) } else { input };
        match &plan.input_schema {
            Some(source) => {
                checked(source, input, code::WORKFLOW_INPUT_BREAKS_SCHEMA.as_str(), "Input validation failed")
            }
            None => Ok(input),
        }
    }

    fn bind(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        CompiledPlan::of(ctx.graph).and_then(|program| StartingNode::new(ctx, &program, act).step()).into()
    }

    fn shape(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        match ctx.act(act).replies.last().map(|replied| &replied.result) {
            Some(Ok(reply)) => NodeDecision::Done(ActivationOutput::new(Arc::clone(&reply.output))),
            Some(Err(fault)) => NodeDecision::Fail(in_time(ctx, act, fault)),
            None => NodeDecision::Done(ActivationOutput::default()),
        }
    }

    fn gather(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        let failed = ctx.act(act).children.as_ref().and_then(|children| children.failed);
        let gather = |program: Arc<CompiledPlan>| {
            let work = &program.node(ctx.act(act).node).def.work;
            let is_tolerant = matches!(work, Work::Map { tolerate: Some(_), .. });
            if let (Some(child), Some(fault)) = (failed.filter(|_| !is_tolerant), ctx.child_fault(act)) {
                return Err(named(ctx, child, fault).with_retryable(false));
            }
            gathered(ctx, &program, act)
        };
        CompiledPlan::of(ctx.graph).and_then(gather).into()
    }

    fn answer(&self, ctx: &AdapterContext<'_>, act: ActivationId, answer: &PersonAnswer) -> NodeDecision {
        let program = match CompiledPlan::of(ctx.graph) {
            Ok(program) => program,
            Err(fault) => return NodeDecision::Fail(fault),
        };
        match &program.node(ctx.act(act).node).def.work {
            Work::Approval(settings) => approval::answered(settings, ctx, act, answer),
            _ => NodeDecision::Done(ActivationOutput::new(answer.data.clone())),
        }
    }

    fn wake(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        let woken = |program: Arc<CompiledPlan>| StartingNode::new(ctx, &program, act).passed_on();
        CompiledPlan::of(ctx.graph)
            .map(woken)
            .map_or_else(NodeDecision::Fail, |output| NodeDecision::Done(ActivationOutput::new(output)))
    }

    fn select(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> RouteDecision {
        match CompiledPlan::of(ctx.graph) {
            Ok(program) => failure::select(ctx, act, &program.node(ctx.act(act).node).def),
            Err(fault) => RouteDecision::Fail(fault),
        }
    }

    fn result(&self, ctx: &AdapterContext<'_>) -> Result<Value, Fault> {
        let program = CompiledPlan::of(ctx.graph)?;
        let view = ScopeView::new(ctx, &program, ctx.root());
        let output = program.output.resolve(&view).map_err(no_value)?;
        match &ctx.plan().output_schema {
            Some(source) if !ctx.dry_run() => checked(
                source,
                output,
                code::WORKFLOW_OUTPUT_BREAKS_SCHEMA.as_str(),
                "Output validation failed",
            ),
            _ => Ok(output),
        }
    }

    fn failure(&self, ctx: &AdapterContext<'_>, act: ActivationId, fault: &Fault) -> Fault {
        named(ctx, act, fault)
    }

    fn native_result(&self, ctx: &AdapterContext<'_>) -> Value {
        execution_state(ctx)
    }
}

/// Prefixes a fault with `Node 'a' failed: …`; a map, loop or fork passes on the fault of its
/// child.
fn named(ctx: &AdapterContext<'_>, act: ActivationId, fault: &Fault) -> Fault {
    if ctx.act(act).children.as_ref().is_some_and(|children| children.failed.is_some()) {
        return fault.clone();
    }
    let message = format!("Node '{}' failed: {}", name(ctx, act), in_time(ctx, act, fault).message);
    Fault { message, ..fault.clone() }
}

/// Replaces the message of an attempt timeout by that of the dialect.
fn in_time(ctx: &AdapterContext<'_>, act: ActivationId, fault: &Fault) -> Fault {
    match ctx.node_of(act).attempt_timeout_ms {
        Some(ms) if fault.code == ATTEMPT_TIMED_OUT => {
            let seconds = python_repr(&json!(ms as f64 / 1000.0));
            Fault { message: format!("Agent timed out after {seconds} seconds"), ..fault.clone() }
        }
        _ => fault.clone(),
    }
}

fn no_value(reason: String) -> Fault {
    Fault::invalid(code::TEMPLATE_FIELD_MISSING.as_str(), reason)
}

/// Returns the value if it conforms to the schema.
fn checked(source: &Value, value: Value, code: &'static str, what: &str) -> Result<Value, Fault> {
    let schema = schema(source).map_err(|error| Fault::invalid(code, format!("{what}: {error}")))?;
    let Err(violations) = schema.check(&value) else { return Ok(value) };
    let code = violation_code(&violations, code);
    let wrong = violation::masked_texts(violations);
    let first = wrong.first().map(String::as_str).unwrap_or_default();
    Err(Fault::invalid(code, format!("{what}: {first}")).with_details(&wrong))
}

/// An activation that is about to start.
struct StartingNode<'c> {
    ctx: &'c AdapterContext<'c>,
    program: &'c CompiledPlan,
    act: ActivationId,
    node: &'c CompiledNode,
    view: ScopeView<'c>,
}

impl<'c> StartingNode<'c> {
    fn new(ctx: &'c AdapterContext<'c>, program: &'c CompiledPlan, act: ActivationId) -> Self {
        let one = ctx.act(act);
        let view = ScopeView::of_activation(ctx, program, act);
        Self { ctx, program, act, node: program.node(one.node), view }
    }

    fn step(&self) -> Result<NodeDecision, Fault> {
        if let Work::Workflow { workflow_name, .. } = &self.node.def.work
            && *workflow_name == self.ctx.plan().name
        {
            let id = &self.node.def.id;
            let message = format!(
                "Direct recursion detected: workflow '{workflow_name}' cannot invoke itself via node '{id}'"
            );
            return Err(Fault::invalid(code::WORKFLOW_CALLS_ITSELF.as_str(), message));
        }
        if let Some(when) = &self.node.when
            && !self
                .holds(when, ConditionPosition::When)
                .unwrap_or_else(|reason| self.not_evaluated("when", &reason))
        {
            // With only its own port, a branching node selects none of its targets.
            let output = match self.node.def.targets().as_slice() {
                [] => ActivationOutput::default(),
                _ => ActivationOutput::default().port(OUT, Value::Null),
            };
            return Ok(NodeDecision::Skip { reason: "when_clause_false".to_owned(), output });
        }
        match &self.node.def.work {
            Work::Agent { agent_name, .. } => Ok(self.ask(TaskRequest::agent(agent_name, self.input()?))),
            Work::Workflow { workflow_name, .. } => {
                Ok(self.ask(TaskRequest::workflow(workflow_name, self.input()?)))
            }
            Work::Conditional { condition, true_branch, false_branch } => {
                let holds = self.first_condition().map_err(cannot_evaluate)?;
                let output = json!({ "condition_result": holds, "condition": condition });
                Ok(branched(output, if holds { Some(true_branch) } else { false_branch.as_ref() }))
            }
            Work::Switch { cases, default } => {
                let hit = self.node.conditions.iter().enumerate().position(|(n, read)| {
                    self.holds(read, ConditionPosition::Case(n))
                        .unwrap_or_else(|reason| self.not_evaluated(&format!("cases[{n}]"), &reason))
                });
                let branch = hit.and_then(|n| cases.get(n)).map(|case| &case.node).or(default.as_ref());
                Ok(branched(json!({ "selected_branch": branch, "selected_case_index": hit }), branch))
            }
            Work::Map { max_items, concurrency_limit, tolerate, .. } => {
                self.map(*max_items, *concurrency_limit, tolerate.is_some())
            }
            Work::Fork { fail_fast, .. } => {
                let bodies = if let NodeOperation::Fork { bodies } = &self.ctx.node_of(self.act).op {
                    bodies.as_slice()
                } else {
                    &[]
                };
                let children = bodies.iter().map(|body| child(*body, SharedJson::default(), None)).collect();
                Ok(NodeDecision::Fan { children, limit: None, fail_fast: *fail_fast })
            }
            Work::Join { wait_for, strategy, .. } => Ok(self.join(wait_for, *strategy)),
            Work::Approval(settings) => {
                let CompiledNode { instruction, data, .. } = self.node;
                approval::question(settings, instruction.as_deref(), data.as_ref(), &self.view)
            }
            Work::Sleep(settings) => sleep::start(settings, &self.view, self.ctx.now, self.passed_on()),
            Work::Loop { .. } => {
                Ok(NodeDecision::Fan { children: self.body(None), limit: None, fail_fast: true })
            }
        }
    }

    fn holds(&self, read: &Read, place: ConditionPosition) -> Result<bool, String> {
        match read {
            Ok(condition) => condition.holds(&self.view, place),
            Err(unreadable) => Err(unreadable.to_string()),
        }
    }

    fn first_condition(&self) -> Result<bool, String> {
        self.node.conditions.first().map_or(Ok(false), |read| self.holds(read, ConditionPosition::Case(0)))
    }

    /// Treats a `when` or a case that cannot be evaluated as false, and records the reason for
    /// operators.
    fn not_evaluated(&self, place: &str, reason: &str) -> bool {
        self.ctx.note(json!({ "condition_error": { "place": place, "reason": reason } }));
        false
    }

    fn ask(&self, mut ask: TaskRequest) -> NodeDecision {
        if let Some(call) = self.node.def.work.call() {
            ask.input_schema.clone_from(&call.input_schema_override);
            ask.output_schema.clone_from(&call.output_schema_override);
        }
        let instruction = self.node.instruction.as_ref().map(|parts| fill(parts, &self.view)).transpose();
        match instruction {
            Ok(instruction) => ask.instruction = instruction.filter(|text| !text.trim().is_empty()),
            Err(error) => return NodeDecision::Fail(no_value(error.to_string())),
        }
        NodeDecision::Ask(Box::new(ask))
    }

    /// Returns the mapped input, or without a mapping the input derived from the node's
    /// dependencies.
    fn input(&self) -> Result<SharedJson, Fault> {
        if let Some(mapping) = &self.node.data {
            return mapping.resolve(&self.view).map(SharedJson::from).map_err(no_value);
        }
        let whole =
            || self.ctx.state.start.as_ref().map(|start| Arc::clone(&start.input)).unwrap_or_default();
        if self.ctx.node_of(self.act).inner {
            return Ok(self.view.item().cloned().map_or_else(whole, SharedJson::from));
        }
        match self.node.def.depends_on.as_slice() {
            [] => Ok(whole()),
            [only] => {
                let branching = self.program.find(only).is_some_and(|ix| {
                    matches!(self.program.node(ix).def.work, Work::Switch { .. } | Work::Conditional { .. })
                });
                if branching { Ok(whole()) } else { Ok(self.view.output(only).cloned().unwrap_or_default()) }
            }
            several => Err(Fault::invalid(
                code::INPUT_AMBIGUOUS.as_str(),
                format!(
                    "Node '{}' has multiple dependencies {} but no explicit 'input' mapping",
                    self.node.def.id,
                    python_repr(&json!(several))
                ),
            )),
        }
    }

    /// Returns the output of a node without work: its input, or null if it has several.
    fn passed_on(&self) -> SharedJson {
        self.input().unwrap_or_default()
    }

    fn map(
        &self,
        max_items: Option<u32>,
        limit: Option<u32>,
        is_tolerant: bool,
    ) -> Result<NodeDecision, Fault> {
        let items = match &self.node.data {
            Some(template) => template.resolve(&self.view).map_err(no_value)?,
            None => Value::Null,
        };
        let items = match items {
            Value::Null => Vec::new(),
            Value::Array(items) => items,
            other => {
                let message = format!("Map target must be array, got: {}", python_type(&other));
                return Err(Fault::invalid(code::MAP_CANNOT_USE_ITS_ITEMS.as_str(), message));
            }
        };
        let most = max_items.unwrap_or(self.program.max_items);
        if items.len() > most as usize {
            let message = format!("Map '{}' exceeds max items: {} > {most}", self.node.def.id, items.len());
            return Err(Fault::invalid(code::MAP_CANNOT_USE_ITS_ITEMS.as_str(), message));
        }
        if items.is_empty() {
            let errors = is_tolerant.then(|| ("errors".to_owned(), json!([])));
            let output: Map<String, Value> =
                [("results".to_owned(), json!([]))].into_iter().chain(errors).collect();
            return Ok(NodeDecision::Done(ActivationOutput::new(Value::Object(output))));
        }
        let NodeOperation::Map { body } = self.ctx.node_of(self.act).op else {
            return Ok(NodeDecision::Done(ActivationOutput::default()));
        };
        let children = items.into_iter().map(|item| child(body, SharedJson::from(item), None)).collect();
        // Whether too many items fail is known only after the last one.
        let fail_fast = !is_tolerant && self.ctx.plan().profile.failure == sinew_plan::FailurePolicy::Stop;
        Ok(NodeDecision::Fan { children, limit, fail_fast })
    }

    fn body(&self, delay_ms: Option<u64>) -> Vec<ChildSpec> {
        match self.ctx.node_of(self.act).op {
            NodeOperation::Loop { body } => vec![child(body, SharedJson::default(), delay_ms)],
            _ => Vec::new(),
        }
    }

    /// Joins the arrived values, in the order of `wait_for`.
    fn join(&self, wait_for: &[String], strategy: Strategy) -> NodeDecision {
        let plan = self.ctx.plan();
        let arrived: Vec<NodeIndex> = self
            .ctx
            .act(self.act)
            .inputs
            .iter()
            .filter_map(|input| input.edge)
            .map(|edge| plan.edge(edge).from)
            .collect();
        let mut results = Map::new();
        for id in wait_for {
            let nodes = self.program.find(id).map(|ix| self.program.stands_for(ix)).unwrap_or_default();
            if arrived.iter().any(|ix| nodes.contains(ix)) {
                results.insert(
                    id.clone(),
                    self.view.output(id).map(|output| (**output).clone()).unwrap_or_default(),
                );
            }
        }
        let completed: Vec<&String> = results.keys().collect();
        NodeDecision::Done(ActivationOutput::new(
            json!({ "completed_nodes": completed, "results": results, "strategy": strategy.as_str() }),
        ))
    }
}

fn child(body: NodeIndex, item: SharedJson, delay_ms: Option<u64>) -> ChildSpec {
    ChildSpec { body, item, delay_ms }
}

fn cannot_evaluate(reason: String) -> Fault {
    Fault::invalid(code::CONDITION_CANNOT_BE_EVALUATED.as_str(), reason)
}

/// Returns an output that is sent to the selected branch and to dependents of the node itself.
fn branched(output: Value, branch: Option<&String>) -> NodeDecision {
    let output = SharedJson::from(output);
    let mut made = ActivationOutput::new(Arc::clone(&output)).port(OUT, Arc::clone(&output));
    if let Some(branch) = branch {
        made = made.port(branch, output);
    }
    NodeDecision::Done(made)
}

/// Returns the step after all children have succeeded.
fn gathered(
    ctx: &AdapterContext<'_>,
    program: &CompiledPlan,
    act: ActivationId,
) -> Result<NodeDecision, Fault> {
    let node = program.node(ctx.act(act).node);
    let results = || ctx.child_outputs(act).map(Arc::unwrap_or_clone);
    match &node.def.work {
        Work::Fork { branches, .. } => {
            let merged: Map<String, Value> =
                branches.iter().map(|branch| branch.output_key.clone()).zip(results()).collect();
            Ok(NodeDecision::Done(ActivationOutput::new(Value::Object(merged))))
        }
        Work::Loop { max_iterations, delay, .. } => {
            let done = ctx.act(act).children.as_ref().map_or(0, |children| children.acts.len());
            let view = ScopeView::after_iteration(ctx, program, act);
            let goes_on = match node.conditions.first() {
                Some(Ok(condition)) => {
                    condition.holds(&view, ConditionPosition::Iteration(done)).map_err(cannot_evaluate)?
                }
                Some(Err(unreadable)) => return Err(cannot_evaluate(unreadable.to_string())),
                None => false,
            };
            let reason = match (goes_on, done < max_iterations.unwrap_or(MOST) as usize) {
                (true, true) => {
                    let delay_ms = delay.as_ref().and_then(|delay| duration::milliseconds(delay).ok());
                    let children = StartingNode::new(ctx, program, act).body(delay_ms.filter(|ms| *ms > 0));
                    return Ok(NodeDecision::Fan { children, limit: None, fail_fast: true });
                }
                (true, false) => "max_iterations",
                (false, _) => "condition_false",
            };
            Ok(NodeDecision::Done(ActivationOutput::new(
                json!({ "iterations_completed": done, "stopped_reason": reason }),
            )))
        }
        work => {
            let tolerate = if let Work::Map { tolerate, .. } = work { tolerate.as_ref() } else { None };
            Ok(failure::map_results(ctx, act, tolerate.and_then(failure::Tolerance::parse)))
        }
    }
}
