//! A mesh in one thread and in virtual time: stub agents, workflows that call each other, cancellation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use sinew_engine::{
    Action, ActivationEnd, ActivationId, AdapterContext, EngineInput, ExecutionMode, ExecutionOutcome,
    IndexedPlan, Machine, RequestTarget, TaskReply, TaskRequest, Time,
};
use sinew_protocol::Fault;

use super::super::Sam;
use super::super::world::name;
use crate::Dialect;

/// Behaviour of the agents of a case, in the notation of the cases.
pub(super) type Stubs = Value;

/// A call of an agent.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) agent: String,
    pub(super) ask: Arc<TaskRequest>,
    began: Time,
    ended: Option<Time>,
}

/// A due event.
enum Due {
    Reply { run: usize, act: ActivationId, attempt: u32, result: Result<TaskReply, Fault>, call: usize },
    Cancel,
}

struct Run {
    machine: Machine<()>,
    depth: u32,
    /// Execution that called it.
    caller: Option<(usize, ActivationId, u32)>,
}

/// Executions and their pending events.
pub(super) struct Mesh {
    plans: BTreeMap<String, Arc<sinew_plan::Plan>>,
    stubs: Stubs,
    unregistered: BTreeSet<String>,
    runs: Vec<Run>,
    due: BTreeMap<(Time, usize), Due>,
    pub(super) now: Time,
    seq: usize,
    pub(super) calls: Vec<Call>,
    pub(super) cancels: Vec<String>,
    /// Number of end reports of the outermost execution.
    pub(super) finals: usize,
    pub(super) ended_at: Option<Time>,
}

impl Mesh {
    pub(super) fn new(plans: Vec<sinew_plan::Plan>, stubs: Stubs, unregistered: &[&str]) -> Self {
        Self {
            plans: plans.into_iter().map(|plan| (plan.name.clone(), Arc::new(plan))).collect(),
            stubs,
            unregistered: unregistered.iter().map(|&name| name.to_owned()).collect(),
            runs: Vec::new(),
            due: BTreeMap::new(),
            now: 0,
            seq: 0,
            calls: Vec::new(),
            cancels: Vec::new(),
            finals: 0,
            ended_at: None,
        }
    }

    /// Runs a workflow until no events are pending.
    pub(super) fn run(&mut self, workflow: &str, input: Value, depth: u32, cancel_after: Option<Time>) {
        if let Some(at) = cancel_after {
            self.plan_for(at, Due::Cancel);
        }
        self.start(workflow, input, depth, None);
        for _ in 0..1_000_000 {
            let due = self.due.first_key_value().map(|((at, _), _)| *at);
            let deadlines = self.runs.iter().enumerate().filter(|(_, run)| !run.machine.state().ended);
            let tick = deadlines.filter_map(|(n, run)| Some((run.machine.next_deadline()?.0, n))).min();
            match (due, tick) {
                (Some(at), tick) if tick.is_none_or(|(tick, _)| at <= tick) => {
                    self.now = self.now.max(at);
                    let ((_, _), due) = self.due.pop_first().unwrap();
                    self.happen(due);
                }
                (_, Some((at, run))) => {
                    self.now = self.now.max(at);
                    self.input(run, EngineInput::Tick);
                }
                _ => return,
            }
        }
        panic!("it never ends");
    }

    fn plan_for(&mut self, at: Time, due: Due) {
        self.seq += 1;
        self.due.insert((at, self.seq), due);
    }

    fn start(
        &mut self,
        workflow: &str,
        input: Value,
        depth: u32,
        caller: Option<(usize, ActivationId, u32)>,
    ) {
        let graph = IndexedPlan::new(Arc::clone(&self.plans[workflow])).expect("the plan holds together");
        let machine = Machine::new(Arc::new(graph), Sam.adapter());
        self.runs.push(Run { machine, depth, caller });
        let start = EngineInput::Start {
            input,
            mode: ExecutionMode::default(),
            depth,
            chain: Vec::new(),
            paused: None,
        };
        self.input(self.runs.len() - 1, start);
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Reply { run, act, attempt, result, call } => {
                self.calls[call].ended.get_or_insert(self.now);
                self.input(run, EngineInput::Done { act, attempt, result });
            }
            Due::Cancel => self.input(0, EngineInput::Cancel { reason: "the case says so".to_owned() }),
        }
    }

    fn input(&mut self, run: usize, input: EngineInput) {
        let Ok(decided) = self.runs[run].machine.handle(self.now, input) else { return };
        for action in decided.actions {
            match action {
                Action::Send { act, attempt, ask, .. } => self.send(run, act, attempt, &ask),
                Action::Cancel { ask, .. } => self.cancels.push(ask.target.name().to_owned()),
                Action::Finish(outcome) => self.finish(run, outcome),
            }
        }
    }

    fn finish(&mut self, run: usize, outcome: ExecutionOutcome) {
        let Some((caller, act, attempt)) = self.runs[run].caller else {
            self.finals += 1;
            self.ended_at = Some(self.now);
            return;
        };
        let result = match outcome.fault {
            None => Ok(TaskReply::new(outcome.output.unwrap_or_default())),
            Some(fault) => Err(Fault { message: fault.message, ..Fault::failure("SINEW-6100", "") }),
        };
        self.input(caller, EngineInput::Done { act, attempt, result });
    }

    fn send(&mut self, run: usize, act: ActivationId, attempt: u32, ask: &Arc<TaskRequest>) {
        let agent = ask.target.name().to_owned();
        if matches!(ask.target, RequestTarget::Workflow(_)) && self.plans.contains_key(&agent) {
            let depth = self.runs[run].depth + 1;
            return self.start(&agent, (*ask.input).clone(), depth, Some((run, act, attempt)));
        }
        let earlier = self.calls.iter().filter(|call| call.agent == agent).count();
        let stub = &self.stubs[&agent];
        let nth = |value: &Value| match value {
            Value::Array(list) => list.get(earlier).or(list.last()).cloned().unwrap_or_default(),
            one => one.clone(),
        };
        let result = if self.unregistered.contains(&agent) {
            let message = format!("Agent '{agent}' not found in registry");
            Some(Err(Fault::error("SINEW-5001", message).with_retryable(false)))
        } else {
            answer(stub, &ask.input, earlier, nth)
        };
        let after = nth(&stub["delay_ms"]).as_u64().unwrap_or_default();
        let call = self.calls.len();
        self.calls.push(Call { agent, ask: Arc::clone(ask), began: self.now, ended: None });
        if let Some(result) = result {
            self.plan_for(self.now + after, Due::Reply { run, act, attempt, result, call });
        }
    }

    /// Returns the outcome of the outermost execution.
    pub(super) fn outcome(&self) -> Option<&ExecutionOutcome> {
        let state = self.runs[0].machine.state();
        state.outcome.as_ref().filter(|_| state.ended)
    }

    /// Returns the dialect's result object of the outermost execution.
    pub(super) fn native(&self) -> Value {
        let machine = &self.runs[0].machine;
        Sam.adapter().native_result(&AdapterContext::new(machine.graph(), machine.state(), self.now))
    }

    /// Returns the status of every activation of the outermost execution, by its name in events.
    pub(super) fn nodes(&self) -> BTreeMap<String, &'static str> {
        let machine = &self.runs[0].machine;
        let ctx = machine.context();
        (0..machine.state().acts.len() as ActivationId)
            .map(|act| {
                let status = match ctx.act(act).end {
                    Some(ActivationEnd::Succeeded) => "success",
                    Some(ActivationEnd::Failed) => "error",
                    Some(ActivationEnd::Skipped) => "skipped",
                    Some(ActivationEnd::Cancelled) => "cancelled",
                    None => "started",
                };
                (name(&ctx, act), status)
            })
            .collect()
    }

    pub(super) fn inputs_of(&self, agent: &str) -> Vec<Value> {
        self.calls.iter().filter(|call| call.agent == agent).map(|call| (*call.ask.input).clone()).collect()
    }

    /// Returns the maximum number of concurrent calls of an agent.
    pub(super) fn most_at_once(&self, agent: &str) -> usize {
        let calls: Vec<&Call> = self.calls.iter().filter(|call| call.agent == agent).collect();
        let open_at = |at: Time| {
            calls.iter().filter(|call| call.began <= at && call.ended.is_none_or(|ended| at < ended)).count()
        };
        calls.iter().map(|call| open_at(call.began)).max().unwrap_or_default()
    }
}

/// Returns a stub's answer; `None` if it does not answer.
fn answer(
    stub: &Value,
    input: &Value,
    earlier: usize,
    nth: impl Fn(&Value) -> Value,
) -> Option<Result<TaskReply, Fault>> {
    let fails = |text: &str| Some(Err(Fault::failure("SINEW-5001", text)));
    let has = |key: &str| stub.get(key).is_some_and(|value| *value != Value::Bool(false));
    if has("silent") {
        return None;
    }
    if let Some(error) = stub["error"].as_str()
        && stub["fail_times"].as_u64().is_none_or(|times| earlier < times as usize)
    {
        return fails(error);
    }
    if stub
        .get("fail_on")
        .is_some_and(|on| input == on || input.as_object().is_some_and(|i| i.values().any(|v| v == on)))
    {
        return fails("failed on purpose");
    }
    if let Some(text) = stub["plain_task_failed"].as_str() {
        return fails(text);
    }
    if has("plain_task_completed") {
        return fails("the agent answered without a structured result");
    }
    let output = if has("echo") {
        json!({ "echo": input })
    } else if let Some(key) = stub["double"].as_str() {
        json!({ "value": input[key].as_i64().unwrap() * 2 })
    } else if let Some(outputs) = stub.get("outputs") {
        nth(outputs)
    } else {
        stub.get("output").cloned().unwrap_or_else(|| json!({ "ok": true }))
    };
    Some(Ok(TaskReply::new(output)))
}
