//! Decides the facts that follow from an input.
//!
//! `decide` applies each fact when it creates it, because every decision depends on those before
//! it. A shell whose append failed discards the state and folds the journal again, which is
//! necessary anyway: another owner has written to the journal.

mod flow;
mod node;
mod reopen;
mod signal;
mod size;

use sinew_protocol::code;
use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;
use sinew_plan::{ExitCondition, NodeIndex, Plan};
use sinew_protocol::Fault;

pub(crate) use reopen::plan_retry;

use crate::adapter::Adapter;
use crate::apply::apply;
use crate::ask::TaskReply;
use crate::ctx::AdapterContext;
use crate::fact::{ExecutionMode, ExecutionOutcome, ExecutionStart, Fact, NewActivation, TerminalStatus};
use crate::graph::IndexedPlan;
use crate::input::{EngineInput, InputRefusal};
use crate::state::{ActivationPhase, ExecutionState};
use crate::{ActivationId, ROOT, Time};

const ACTIVATION_TIMED_OUT: &str = code::ACTIVATION_TIMED_OUT.as_str();
const WALL_TIMED_OUT: &str = code::EXECUTION_TIMED_OUT.as_str();
const BUDGET_USED_UP: &str = code::BUDGET_USED_UP.as_str();
const COST_BUDGET_SPENT: &str = code::COST_BUDGET_SPENT.as_str();
const CANCELLED: &str = code::EXECUTION_CANCELLED.as_str();

/// Decides the effect of an input, and folds the resulting facts into `state`.
///
/// Returns the facts in order, or none if the input has no effect now. A rejected command changes
/// nothing.
pub(crate) fn decide(
    graph: &IndexedPlan,
    adapter: &dyn Adapter,
    state: &mut ExecutionState,
    (execution, now): (Option<&str>, Time),
    input: EngineInput,
) -> Result<Vec<Fact>, InputRefusal> {
    let (facts, arrivals) = (Vec::new(), VecDeque::new());
    let mut decider = Decider { graph, adapter, state, execution, now, facts, arrivals };
    decider.input(input)?;
    Ok(decider.facts)
}

/// Returns the input in the dialect's form, if it is valid and the execution may start.
fn admit(
    plan: &Plan,
    adapter: &dyn Adapter,
    mode: &ExecutionMode,
    depth: u32,
    input: Value,
) -> Result<Value, Fault> {
    let mut named = mode.from.iter().chain(&mode.until).chain(mode.given.keys());
    if let Some(id) = named.find(|id| plan.find(id).is_none()) {
        return Err(Fault::invalid(
            code::PARTIAL_RUN_NODE_UNKNOWN.as_str(),
            format!("the workflow has no node '{id}'"),
        ));
    }
    if depth > plan.limits.depth {
        let text = format!("call depth {depth} exceeds maximum allowed depth {}", plan.limits.depth);
        return Err(Fault::invalid(code::CALL_DEPTH_EXCEEDED.as_str(), text));
    }
    match size::too_large("the input", &input, plan.limits.value_bytes) {
        Some(fault) => Err(fault),
        None => adapter.admit(plan, input),
    }
}

/// Returns the entry nodes of an execution.
fn entry(plan: &Plan, mode: &ExecutionMode) -> Vec<NodeIndex> {
    if mode.from.is_empty() {
        return plan.entry.clone();
    }
    mode.from.iter().filter_map(|id| plan.find(id)).collect()
}

/// Maximum size of a stored progress value, in bytes of JSON.
const MAX_PROGRESS_VALUE_BYTES: u64 = 64 << 10;

/// The end of one attempt, reported by an agent or by the engine.
pub(crate) struct AttemptEnd {
    act: ActivationId,
    attempt: u32,
    result: Result<TaskReply, Fault>,
    /// Tokens and cost reported by a failed attempt; null if none.
    usage: Value,
    worked_ms: Option<u64>,
}

/// State of one decision.
pub(crate) struct Decider<'a> {
    graph: &'a IndexedPlan,
    adapter: &'a dyn Adapter,
    state: &'a mut ExecutionState,
    execution: Option<&'a str>,
    now: Time,
    facts: Vec<Fact>,
    /// Placed tokens that may create activations.
    arrivals: VecDeque<flow::TokenArrival>,
}

impl Decider<'_> {
    fn input(&mut self, input: EngineInput) -> Result<(), InputRefusal> {
        match input {
            EngineInput::Start { input, mode, depth, chain, paused } => {
                self.start(input, mode, (depth, chain), paused)?;
            }
            _ if self.state.start.is_none() => return Err(InputRefusal::NotStarted),
            EngineInput::Done { act, attempt, mut result } => {
                let worked_ms = result.as_mut().ok().and_then(|reply| reply.worked_ms.take());
                self.done(AttemptEnd { act, attempt, result, usage: Value::Null, worked_ms });
            }
            EngineInput::Failed { act, attempt, fault, usage, worked_ms } => {
                self.done(AttemptEnd { act, attempt, result: Err(fault), usage, worked_ms });
            }
            EngineInput::NotTaken { act, attempt, is_online } => self.not_taken(act, attempt, is_online),
            EngineInput::Progress { act, attempt, value } => {
                let fits = size::too_large("progress", &value, MAX_PROGRESS_VALUE_BYTES).is_none();
                if fits && self.is_current(act, attempt) && self.state.has_room_for_progress() {
                    self.emit(Fact::Progressed { act, attempt, value });
                }
            }
            EngineInput::Usage { act, attempt, usage } => self.late(act, attempt, usage),
            EngineInput::CalleeWait { act, attempt, callee, number, wait } => {
                if self.is_current(act, attempt) && self.state.act(act).takes_report(&callee, number) {
                    self.emit(Fact::CalleeWaits { act, attempt, callee, number, wait });
                }
            }
            EngineInput::Yield { act, attempt, port, value } => self.emit_early(act, attempt, &port, &value),
            EngineInput::Tick => self.tick(),
            EngineInput::Answer { act, answer } => self.answer(act, answer)?,
            EngineInput::Cancel { reason } => self.cancel(&reason)?,
            EngineInput::Pause { reason } => self.pause(reason)?,
            EngineInput::Resume => self.resume()?,
            EngineInput::Retry { retry, reason } => self.reopen(&retry, reason)?,
        }
        self.run();
        Ok(())
    }

    /// Applies and records a fact.
    fn emit(&mut self, fact: Fact) {
        apply(self.graph, self.state, self.now, &fact);
        self.facts.push(fact);
    }

    /// Calls the adapter; its notes become facts before the consequences of its result.
    fn consult<T>(
        &mut self,
        act: Option<ActivationId>,
        hook: impl FnOnce(&dyn Adapter, &AdapterContext<'_>) -> T,
    ) -> T {
        let ctx = AdapterContext::new(self.graph, self.state, self.now).with_id(self.execution);
        let answer = hook(self.adapter, &ctx);
        for note in ctx.into_notes() {
            self.emit(Fact::Noted { act, note });
        }
        answer
    }

    fn start(
        &mut self,
        input: Value,
        mode: ExecutionMode,
        (depth, chain): (u32, Vec<String>),
        paused: Option<String>,
    ) -> Result<(), InputRefusal> {
        if self.state.start.is_some() {
            return Err(InputRefusal::Started);
        }
        let raw = input.clone();
        let (input, refused) = match admit(self.graph.plan(), self.adapter, &mode, depth, input) {
            Ok(input) => (input, None),
            Err(fault) => (if fault.code == size::TOO_LARGE { Value::Null } else { raw }, Some(fault)),
        };
        let input = Arc::new(input);
        self.emit(Fact::Started(Arc::new(ExecutionStart {
            plan: self.graph.digest().to_owned(),
            input: Arc::clone(&input),
            mode,
            depth,
            chain,
            refused: refused.clone(),
        })));
        if let Some(fault) = refused {
            self.conclude_with(ExecutionOutcome {
                status: TerminalStatus::Failure,
                output: None,
                fault: Some(fault),
                cause: None,
            });
            return Ok(());
        }
        // Before anything is activated, so that the time limit of the execution stops, too.
        if let Some(reason) = paused {
            self.emit(Fact::Paused { reason });
        }
        self.enter();
        Ok(())
    }

    /// Activates the entry nodes.
    fn enter(&mut self) {
        let Some(start) = self.state.start.clone() else { return };
        for node in entry(self.graph.plan(), &start.mode) {
            let value = Some(Arc::clone(&start.input));
            if !self.activate(NewActivation {
                node,
                scope: ROOT,
                from: ROOT,
                take: Some(0),
                value,
                ..NewActivation::default()
            }) {
                break;
            }
        }
    }

    /// Continues until only external inputs can change the state.
    fn run(&mut self) {
        loop {
            self.settle_arrivals();
            if self.state.ended || self.state.start.is_none() {
                return;
            }
            if self.begin_next() {
                continue;
            }
            if self.state.open == 0 {
                if self.state.outcome.is_none() {
                    self.conclude();
                } else if !self.next_exit() {
                    self.emit(Fact::Ended);
                    return;
                }
            } else if !self.undefer() {
                return;
            }
        }
    }

    /// Starts the first ready activation; returns false if none may start now.
    fn begin_next(&mut self) -> bool {
        let Some(&act) = self.state.ready.front() else { return false };
        if self.state.paused.is_some() {
            return false;
        }
        if self.is_frozen() {
            // People's nodes queue only if they were ready together with the waiting one;
            // successors of running work come after it.
            let human = self.graph.plan().node(self.state.act(act).node).op
                == sinew_plan::NodeOperation::Human
                && act < self.state.frozen_at;
            self.emit(Fact::Deferred { act, human });
            return true;
        }
        let parallel = self.graph.plan().profile.parallel;
        if parallel > 0 && self.state.active >= parallel {
            return false;
        }
        self.begin(act);
        true
    }

    /// Returns whether the execution waits for a person and nothing else may start. Exit nodes are
    /// not affected.
    fn is_frozen(&self) -> bool {
        self.state.frozen.is_some() && self.state.outcome.is_none()
    }

    /// Resumes deferred activations: work one by one, each to its end, then the next person's node.
    fn undefer(&mut self) -> bool {
        let idle = self.state.frozen.is_none()
            && self.state.paused.is_none()
            && self.state.active == 0
            && self.state.ready.is_empty();
        let next = self.state.deferred.front().or_else(|| self.state.humans.front()).copied();
        match next {
            Some(act) if idle => {
                self.emit(Fact::Undeferred { act });
                true
            }
            _ => false,
        }
    }

    /// Determines the outcome after the graph is complete.
    fn conclude(&mut self) {
        let outcome = if let Some((cause, fault)) = self.state.failed.clone().or_else(|| self.left_behind()) {
            let fault = match cause {
                Some(act) => self.consult(Some(act), |adapter, ctx| adapter.failure(ctx, act, &fault)),
                None => fault,
            };
            ExecutionOutcome { status: TerminalStatus::Failure, output: None, fault: Some(fault), cause }
        } else if let Some(output) = self.partial_output() {
            ExecutionOutcome {
                status: TerminalStatus::Success,
                output: Some(output),
                fault: None,
                cause: None,
            }
        } else {
            match self.consult(None, |adapter, ctx| adapter.result(ctx)) {
                Ok(output) => ExecutionOutcome {
                    status: TerminalStatus::Success,
                    output: Some(Arc::new(output)),
                    fault: None,
                    cause: None,
                },
                Err(fault) => ExecutionOutcome {
                    status: TerminalStatus::Failure,
                    output: None,
                    fault: Some(fault),
                    cause: None,
                },
            }
        };
        self.conclude_with(outcome);
    }

    /// Returns the output of a partial execution: the outputs of the nodes after which it stopped,
    /// by id.
    fn partial_output(&self) -> Option<Arc<Value>> {
        let until = &self.state.start.as_ref()?.mode.until;
        let output = |id: &String| {
            let act = self.state.last(ROOT, self.graph.plan().find(id)?)?;
            Some(Value::clone(&self.state.act(act).output.as_ref()?.value))
        };
        let outputs: serde_json::Map<String, Value> =
            until.iter().map(|id| (id.clone(), output(id).unwrap_or_default())).collect();
        (!until.is_empty()).then(|| Arc::new(Value::Object(outputs)))
    }

    fn conclude_with(&mut self, mut outcome: ExecutionOutcome) {
        self.arrivals.clear();
        let refused = self.state.start.as_ref().is_some_and(|start| start.refused.is_some());
        if outcome.status != TerminalStatus::Success && outcome.output.is_none() && !refused {
            outcome.output = self.consult(None, |adapter, ctx| adapter.failed_output(ctx)).map(Arc::new);
        }
        self.emit(Fact::Concluded { outcome });
    }

    /// Fails the execution because a budget or its time limit is exceeded.
    fn give_up(&mut self, fault: Fault) {
        self.cancel_open(&fault.message);
        self.conclude_with(ExecutionOutcome {
            status: TerminalStatus::Failure,
            output: None,
            fault: Some(fault),
            cause: None,
        });
    }

    /// Starts the outcome's next exit node; returns false if none is left.
    fn next_exit(&mut self) -> bool {
        let refused = self.state.start.as_ref().is_some_and(|start| start.refused.is_some());
        let Some(status) = self.state.outcome.as_ref().map(|outcome| outcome.status) else { return false };
        let wanted = |on: ExitCondition| match on {
            ExitCondition::Always => true,
            ExitCondition::Success => status == TerminalStatus::Success,
            ExitCondition::Failure => status == TerminalStatus::Failure,
            ExitCondition::Cancel => status == TerminalStatus::Cancelled,
        };
        let exits = self.graph.plan().exits.iter().filter(|exit| wanted(exit.on));
        let next = exits.map(|exit| exit.node).nth(self.state.exits_started as usize);
        match next {
            Some(node) if !refused => self.activate(NewActivation {
                node,
                scope: ROOT,
                from: ROOT,
                take: Some(0),
                value: Some(Arc::new(Value::Null)),
                ..NewActivation::default()
            }),
            _ => false,
        }
    }

    /// Creates an activation; returns false and fails the execution if the budget is exceeded.
    fn activate(&mut self, made: NewActivation) -> bool {
        let budget = self.graph.plan().limits.activations as usize;
        // Exit nodes run even if the exceeded budget ended the graph; the plan limits their number.
        if self.state.acts.len() >= budget && self.state.outcome.is_none() {
            let text = format!("the execution used up its budget of {budget} activations");
            self.give_up(Fault::failure(BUDGET_USED_UP, text).with_retryable(false));
            return false;
        }
        let act = self.state.acts.len() as ActivationId;
        self.emit(Fact::Activated(NewActivation { act, ..made }));
        true
    }

    /// Fails the execution if its model calls cost more than the plan allows.
    fn check_cost(&mut self) {
        let Some(limit) = self.graph.plan().limits.cost_usd else { return };
        let spent = self.state.cost_usd();
        if spent > limit && self.state.outcome.is_none() {
            let text =
                format!("the execution's model calls cost ${spent:.4}, more than its budget of ${limit}");
            self.give_up(Fault::failure(COST_BUDGET_SPENT, text).with_retryable(false));
        }
    }

    /// Cancels every open activation.
    fn cancel_open(&mut self, reason: &str) {
        // Queued ones first and in order, because removing the front of the queue is cheap.
        while let Some(&act) = self.state.ready.front() {
            self.emit(Fact::Cancelled { act, reason: reason.to_owned() });
        }
        for act in 0..self.state.acts.len() as ActivationId {
            self.cancel_one(act, reason);
        }
    }

    fn cancel_one(&mut self, act: ActivationId, reason: &str) {
        let one = self.state.act(act);
        if one.phase == ActivationPhase::Closed {
            return;
        }
        if one.end.is_none() || one.running.is_some() {
            self.emit(Fact::Cancelled { act, reason: reason.to_owned() });
        } else {
            // It ended before its tokens were sent, and they are never sent.
            let scope = one.scope;
            self.emit(Fact::Routed {
                act: Some(act),
                scope,
                tokens: Vec::new(),
                end: Some(reason.to_owned()),
            });
        }
    }

    fn is_current(&self, act: ActivationId, attempt: u32) -> bool {
        self.state
            .acts
            .get(act as usize)
            .is_some_and(|one| one.phase == ActivationPhase::Running && one.running == Some(attempt))
    }

    fn is_dry(&self) -> bool {
        self.state.start.as_ref().is_some_and(|start| start.mode.dry_run)
    }
}
