//! Executions in virtual time: stubbed agents, no waiting, deterministic on every machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use sinew_engine::{
    EngineInput, ExecutionMode, Fact, InputRefusal, PersonAnswer, RetryRequest, TaskReply, Time,
};
use sinew_protocol::task::LogLine;
use sinew_protocol::{ExecutionId, Fault};

use crate::evaluation::perform_evaluation;
use crate::execution_tree::{ExecutionTree, Outside};
use sinew_execution::{Call, Execution, Library, Program, TaskKey};

/// Behaviour of a stubbed agent.
#[derive(Clone, Debug)]
pub enum Stubbed {
    /// It returns after `after` milliseconds, and reports progress in between.
    Answer {
        /// Delay in milliseconds.
        after: Time,
        /// Result of the task.
        result: Result<TaskReply, Fault>,
        /// Progress messages, each with its delay in milliseconds.
        progress: Vec<(Time, Value)>,
    },
    /// It never responds.
    Silent,
}

impl Stubbed {
    /// Returns a result immediately.
    pub fn now(result: Result<TaskReply, Fault>) -> Self {
        Self::Answer { after: 0, result, progress: Vec::new() }
    }
}

/// Agents of a simulation.
pub trait Stub {
    /// Called when a task is sent.
    fn call(&mut self, now: Time, call: &Call) -> Stubbed;
    /// Called when a task is cancelled.
    fn cancelled(&mut self, _now: Time, _call: &Call) {}
    /// Returns whether calls of this workflow are answered here instead of by its execution. Defaults to
    /// false.
    fn answers_workflow(&self, _name: &str) -> bool {
        false
    }
}

/// Operation of a person at a set time.
#[derive(Clone, Debug)]
pub enum Signal {
    /// Answers the person's node with this id, or the only waiting one for `None`.
    Answer(Option<String>, PersonAnswer),
    /// Cancels the execution.
    Cancel(String),
    /// Pauses it.
    Pause(String),
    /// Resumes it.
    Resume,
    /// Retries the failed activations.
    Retry(RetryRequest),
}

enum Event {
    Done(TaskKey, Result<TaskReply, Fault>),
    Progress(TaskKey, Value),
    Signal(Signal),
}

/// Simulation of one execution and its sub-workflows.
pub struct Sim<S> {
    tree: ExecutionTree,
    world: World<S>,
    /// Rejected signals, with the reasons.
    pub refused: Vec<(Signal, InputRefusal)>,
    crashes: Vec<usize>,
    depth: u32,
}

struct World<S> {
    stub: S,
    now: Time,
    seq: u64,
    queue: BTreeMap<(Time, u64), Event>,
    /// Tasks that an agent has received: a second delivery gets the stored result, so the agent is
    /// not called again.
    seen: BTreeSet<TaskKey>,
    calls: BTreeMap<TaskKey, Call>,
    facts: usize,
}

impl<S: Stub> Sim<S> {
    /// Creates a simulation with these workflows and agents. Time starts at 0.
    pub fn new(library: Arc<Library>, stub: S) -> Self {
        let world = World {
            stub,
            now: 0,
            seq: 0,
            queue: BTreeMap::new(),
            seen: BTreeSet::new(),
            calls: BTreeMap::new(),
            facts: 0,
        };
        Self { tree: ExecutionTree::new(library), world, refused: Vec::new(), crashes: Vec::new(), depth: 0 }
    }

    /// Drops all state in memory after the round with fact number `n` (counted from 1 over all
    /// executions).
    pub fn crash_after(&mut self, n: usize) {
        self.crashes.push(n);
        self.crashes.sort_unstable();
    }

    /// Sets the start depth in a chain of calls.
    pub fn depth(&mut self, depth: u32) {
        self.depth = depth;
    }

    /// Schedules an operation of a person.
    pub fn signal(&mut self, at: Time, signal: Signal) {
        self.world.push(at, Event::Signal(signal));
    }

    /// Starts the execution and runs until nothing more can happen, or virtual time reaches
    /// `until`.
    pub fn run(&mut self, program: Program, input: Value, mode: ExecutionMode, until: Time) {
        let id = ExecutionId::of("sim", "sim", program.name());
        let (now, depth) = (self.world.now, self.depth);
        self.tree.start_at_depth(now, id, program, input, mode, depth, &mut self.world);
        self.go_on(until);
    }

    /// Continues until nothing more can happen, or virtual time reaches `until`.
    pub fn go_on(&mut self, until: Time) {
        loop {
            self.crash_if_due();
            let event = self.world.queue.keys().next().map(|key| key.0);
            let timer = self.tree.next_deadline();
            let Some(next) = event.into_iter().chain(timer).min().filter(|next| *next <= until) else {
                return;
            };
            self.world.now = self.world.now.max(next);
            // Results at the time of a deadline are in time.
            if event.is_some_and(|at| at <= self.world.now) {
                if let Some(((_, _), event)) = self.world.queue.pop_first() {
                    self.happen(event);
                }
            } else {
                self.tree.tick(self.world.now, &mut self.world);
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.world.now;
        let (run, input) = match event {
            Event::Done(TaskKey { run, act, attempt }, result) => {
                (run, EngineInput::Done { act, attempt, result })
            }
            Event::Progress(TaskKey { run, act, attempt }, value) => {
                (run, EngineInput::Progress { act, attempt, value })
            }
            Event::Signal(signal) => {
                let (run, input) = match self.input_of(&signal) {
                    Ok(found) => found,
                    Err(refused) => return self.refused.push((signal, refused)),
                };
                if let Err(refused) = self.tree.input(now, run, input, &mut self.world) {
                    self.refused.push((signal, refused));
                }
                return;
            }
        };
        let _ = self.tree.input(now, run, input, &mut self.world);
    }

    /// Returns the input of a signal, and the execution that receives it: answers reach
    /// sub-workflows too.
    fn input_of(&self, signal: &Signal) -> Result<(usize, EngineInput), InputRefusal> {
        let input = match signal.clone() {
            Signal::Answer(node, answer) => {
                let is_meant = |(run, act): &(usize, u32)| {
                    let execution = &self.tree.runs()[*run].execution;
                    let asking = execution.program().graph.plan().node(execution.state().act(*act).node);
                    node.as_ref().is_none_or(|id| *id == asking.id)
                };
                let (run, act) = self.tree.asking().find(is_meant).ok_or(InputRefusal::NotWaiting(0))?;
                return Ok((run, EngineInput::Answer { act, answer }));
            }
            Signal::Cancel(reason) => EngineInput::Cancel { reason },
            Signal::Pause(reason) => EngineInput::Pause { reason },
            Signal::Resume => EngineInput::Resume,
            Signal::Retry(retry) => EngineInput::Retry { retry, reason: "test".into() },
        };
        Ok((0, input))
    }

    fn crash_if_due(&mut self) {
        while self.crashes.first().is_some_and(|n| *n <= self.world.facts) {
            self.crashes.remove(0);
            self.tree.crash(self.world.now, &mut self.world);
        }
    }

    /// Returns the requested execution.
    ///
    /// # Panics
    /// Before [`Sim::run`].
    pub fn execution(&self) -> &Execution {
        &self.tree.runs()[0].execution
    }

    /// Returns all executions, including sub-workflows.
    pub fn executions(&self) -> impl Iterator<Item = &Execution> {
        self.tree.runs().iter().map(|run| &run.execution)
    }

    /// Returns the current virtual time.
    pub fn now(&self) -> Time {
        self.world.now
    }

    /// Returns the stub, for inspection.
    pub fn stub(&self) -> &S {
        &self.world.stub
    }

    /// Returns the mutable stub.
    pub fn stub_mut(&mut self) -> &mut S {
        &mut self.world.stub
    }

    /// Returns the number of facts so far, over all executions.
    pub fn facts(&self) -> usize {
        self.world.facts
    }
}

impl<S> World<S> {
    fn push(&mut self, at: Time, event: Event) {
        self.seq += 1;
        self.queue.insert((at, self.seq), event);
    }
}

impl<S: Stub> Outside for World<S> {
    fn send(&mut self, now: Time, call: Call) {
        if !self.seen.insert(call.key) {
            return;
        }
        let key = call.key;
        if call.ask.is_evaluation() {
            // Takes no virtual time.
            let reply = perform_evaluation(&call.ask);
            for line in reply.logs {
                self.push(now, Event::Progress(key, LogLine { at: now, ..line }.to_progress()));
            }
            self.push(now, Event::Done(key, reply.result));
            return;
        }
        match self.stub.call(now, &call) {
            Stubbed::Silent => {}
            Stubbed::Answer { after, result, progress } => {
                for (after, value) in progress {
                    self.push(now.saturating_add(after), Event::Progress(key, value));
                }
                self.push(now.saturating_add(after), Event::Done(key, result));
            }
        }
        self.calls.insert(key, call);
    }

    fn cancel(&mut self, key: TaskKey) {
        if let Some(call) = self.calls.get(&key) {
            self.stub.cancelled(self.now, call);
        }
    }

    fn answers_workflow(&self, name: &str) -> bool {
        self.stub.answers_workflow(name)
    }

    fn observe(&mut self, _run: usize, _execution: &Execution, facts: &[Fact]) {
        self.facts += facts.len();
    }
}
