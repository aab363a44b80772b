//! An execution and the sub-workflows that it starts, which run together.

use sinew_protocol::code;
use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;
use sinew_engine::{
    Action, ActivationId, EngineInput, ExecutionMode, ExecutionOutcome, Fact, InputRefusal, RequestTarget,
    TaskReply, TaskRequest, Time,
};
use sinew_protocol::person_wait::PersonWait;
use sinew_protocol::{ExecutionId, Fault};

use sinew_execution::Execution;
use sinew_execution::usage::usage_of_child;
use sinew_execution::{Call, TaskKey};
use sinew_execution::{Library, Program};
use sinew_execution::{activation_key, call_cycle};
use sinew_shard::outgoing::child_result;
use sinew_shard::person_wait::person_wait_in;

/// No workflow with this name exists.
const NO_SUCH_WORKFLOW: &str = code::NO_SUCH_WORKFLOW.as_str();

/// Interface to the world outside the engine, implemented by a driver.
pub trait Outside {
    /// Sends a task to an agent.
    fn send(&mut self, now: Time, call: Call);
    /// Notifies an agent that a task is cancelled.
    fn cancel(&mut self, key: TaskKey);
    /// Returns whether calls of this workflow are sent like those of agents, so that none of its
    /// executions starts. Defaults to false.
    fn answers_workflow(&self, _name: &str) -> bool {
        false
    }
    /// Observes appended facts, which `execution` has folded.
    fn observe(&mut self, run: usize, execution: &Execution, facts: &[Fact]);
}

/// Execution of the tree.
#[derive(Debug)]
pub struct Run {
    /// The execution.
    pub execution: Execution,
    /// Task of another execution that this one answers.
    pub parent: Option<TaskKey>,
    /// Person wait that was reported to the parent.
    reported: Option<PersonWait>,
}

/// Executions that run together.
#[derive(Debug)]
pub struct ExecutionTree {
    library: Arc<Library>,
    runs: Vec<Run>,
    pending: VecDeque<(usize, Action)>,
}

impl ExecutionTree {
    /// Creates a tree without executions.
    pub fn new(library: Arc<Library>) -> Self {
        Self { library, runs: Vec::new(), pending: VecDeque::new() }
    }

    /// Returns the executions, the requested one first.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Starts the requested execution.
    pub fn start(
        &mut self,
        now: Time,
        id: ExecutionId,
        program: Program,
        input: Value,
        mode: ExecutionMode,
        out: &mut dyn Outside,
    ) {
        self.start_at_depth(now, id, program, input, mode, 0, out);
    }

    /// Starts an execution that another mesh member requested at this depth of a chain of calls.
    #[expect(
        clippy::too_many_arguments,
        reason = "one place that starts an execution, with all there is to say"
    )]
    pub fn start_at_depth(
        &mut self,
        now: Time,
        id: ExecutionId,
        program: Program,
        input: Value,
        mode: ExecutionMode,
        depth: u32,
        out: &mut dyn Outside,
    ) {
        self.runs.push(Run { execution: Execution::new(id, program), parent: None, reported: None });
        let input = EngineInput::Start { input, mode, depth, chain: Vec::new(), paused: None };
        // A first start is never rejected.
        let _ = self.input(now, self.runs.len() - 1, input, out);
    }

    /// Passes an input to one execution and performs all resulting actions.
    pub fn input(
        &mut self,
        now: Time,
        run: usize,
        input: EngineInput,
        out: &mut dyn Outside,
    ) -> Result<(), InputRefusal> {
        self.feed(now, run, input, out)?;
        self.perform(now, out);
        Ok(())
    }

    /// Wakes every execution that is due.
    pub fn tick(&mut self, now: Time, out: &mut dyn Outside) {
        for run in 0..self.runs.len() {
            if self.runs[run].execution.next_deadline().is_some_and(|(at, _)| at <= now) {
                let _ = self.input(now, run, EngineInput::Tick, out);
            }
        }
    }

    /// Returns the time at which the next execution must be woken.
    pub fn next_deadline(&self) -> Option<Time> {
        self.runs.iter().filter_map(|run| run.execution.next_deadline()).map(|(at, _)| at).min()
    }

    /// Drops all state in memory, folds the journals and repeats the actions without a known
    /// result.
    pub fn crash(&mut self, now: Time, out: &mut dyn Outside) {
        self.pending.clear();
        for run in 0..self.runs.len() {
            let old = &self.runs[run].execution;
            let (id, program, journal) = (old.id().clone(), old.program().clone(), old.journal().to_vec());
            self.runs[run].execution = Execution::recover(id, program, &journal);
            let again = self.runs[run].execution.outstanding();
            self.pending.extend(again.into_iter().map(|action| (run, action)));
            self.runs[run].reported = None;
        }
        for run in 0..self.runs.len() {
            self.report_wait(now, run, out);
        }
        self.perform(now, out);
    }

    fn feed(
        &mut self,
        now: Time,
        run: usize,
        input: EngineInput,
        out: &mut dyn Outside,
    ) -> Result<(), InputRefusal> {
        let step = self.runs[run].execution.input(now, input)?;
        out.observe(run, &self.runs[run].execution, step.facts());
        self.pending.extend(step.actions.into_iter().map(|action| (run, action)));
        self.report_wait(now, run, out);
        Ok(())
    }

    /// Reports to the parent that a sub-workflow waits for a person, or no longer does.
    fn report_wait(&mut self, now: Time, run: usize, out: &mut dyn Outside) {
        let Some(TaskKey { run: parent, act, attempt }) = self.runs[run].parent else { return };
        let execution = &self.runs[run].execution;
        let place = (execution.id(), execution.program().name());
        let wait = person_wait_in(place, &execution.ctx());
        if execution.state().ended || wait == self.runs[run].reported {
            return;
        }
        let (callee, number) = (execution.id().to_string(), execution.journal().len() as u64);
        self.runs[run].reported.clone_from(&wait);
        let wait = wait.map(Arc::new);
        let input = EngineInput::CalleeWait { act, attempt, callee, number, wait };
        let _ = self.feed(now, parent, input, out);
    }

    /// Returns the activations of all executions that wait for a person, those of the requested one
    /// first.
    pub fn asking(&self) -> impl Iterator<Item = (usize, ActivationId)> + '_ {
        let runs = self.runs.iter().enumerate();
        runs.flat_map(|(run, one)| one.execution.state().waiting().map(move |act| (run, act)))
    }

    /// A queue, not recursion: a sub-workflow may end immediately, and its parent start the next.
    fn perform(&mut self, now: Time, out: &mut dyn Outside) {
        while let Some((run, action)) = self.pending.pop_front() {
            match action {
                Action::Send { act, attempt, ask, deadline } => {
                    let key = TaskKey { run, act, attempt };
                    match &ask.target {
                        RequestTarget::Workflow(name) if out.answers_workflow(name) => {
                            out.send(now, self.call(key, ask, deadline));
                        }
                        RequestTarget::Workflow(name) if self.child_of(key).is_none() => {
                            let name = name.clone();
                            self.start_child(now, key, &name, &ask, out);
                        }
                        RequestTarget::Workflow(_) => {} // it runs already: sent again after a crash
                        RequestTarget::Agent(_) | RequestTarget::Evaluation => {
                            out.send(now, self.call(key, ask, deadline));
                        }
                    }
                }
                Action::Cancel { act, attempt, ask } => {
                    let key = TaskKey { run, act, attempt };
                    match (&ask.target, self.child_of(key)) {
                        (RequestTarget::Workflow(_), Some(child)) => {
                            let reason = "its caller gave it up".to_owned();
                            let _ = self.feed(now, child, EngineInput::Cancel { reason }, out);
                        }
                        (RequestTarget::Workflow(name), None) if !out.answers_workflow(name) => {}
                        _ => out.cancel(key),
                    }
                }
                Action::Finish(outcome) => self.finish(now, run, &outcome, out),
            }
        }
    }

    fn child_of(&self, key: TaskKey) -> Option<usize> {
        self.runs.iter().position(|run| run.parent == Some(key))
    }

    fn start_child(&mut self, now: Time, key: TaskKey, name: &str, ask: &TaskRequest, out: &mut dyn Outside) {
        let Some(program) = self.library.get(name).cloned() else {
            let text = format!("Workflow '{name}' not found");
            let fault = Fault::error(NO_SUCH_WORKFLOW, text).with_retryable(false);
            let done = EngineInput::Done { act: key.act, attempt: key.attempt, result: Err(fault) };
            let _ = self.feed(now, key.run, done, out);
            return;
        };
        let parent = &self.runs[key.run].execution;
        let id = ExecutionId::child(
            parent.id(),
            &activation_key(parent.id(), parent.program().graph.plan(), parent.state(), key.act),
            key.attempt,
        );
        let start = parent.state().start.as_deref();
        let mut chain = start.map(|start| start.chain.clone()).unwrap_or_default();
        chain.push(parent.program().name().to_owned());
        let depth = start.map_or(0, |start| start.depth) + 1;
        if let Some(fault) = call_cycle(&program, &chain) {
            // Like any failure of a sub-workflow.
            let result = Err(Fault { retryable: true, ..fault });
            let _ = self.feed(
                now,
                key.run,
                EngineInput::Done { act: key.act, attempt: key.attempt, result },
                out,
            );
            return;
        }
        self.runs.push(Run { execution: Execution::new(id, program), parent: Some(key), reported: None });
        let input = EngineInput::Start {
            input: Value::clone(&ask.input),
            mode: ExecutionMode::default(),
            depth,
            chain,
            paused: None,
        };
        let _ = self.feed(now, self.runs.len() - 1, input, out);
    }

    fn finish(&mut self, now: Time, run: usize, outcome: &ExecutionOutcome, out: &mut dyn Outside) {
        let Some(key) = self.runs[run].parent else { return };
        let usage = usage_of_child(self.runs[run].execution.state());
        let (act, attempt) = (key.act, key.attempt);
        let input = match child_result(outcome) {
            Ok(output) => {
                let reply = TaskReply { usage, ..TaskReply::new(output) };
                EngineInput::Done { act, attempt, result: Ok(reply) }
            }
            Err(fault) => EngineInput::Failed { act, attempt, fault, usage, worked_ms: None },
        };
        let _ = self.feed(now, key.run, input, out);
    }

    fn call(&self, key: TaskKey, ask: Arc<TaskRequest>, deadline: Option<Time>) -> Call {
        let execution = &self.runs[key.run].execution;
        sinew_execution::call_of(execution.id(), execution.program(), execution.state(), key, ask, deadline)
    }
}
