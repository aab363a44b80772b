//! A mesh in one thread: several executors over a bus that delays, reorders, doubles and loses, clients, agents and
//! forgers, and processes that are killed, stopped and restarted between any two writes.
//!
//! One seed is one history. It ends with a time without faults, after which everything that was accepted must have
//! ended. A failing seed is printed; `SINEW_SEED=n cargo test -p sinew-shard` replays it.

mod bus;
mod dice;
mod model;
mod process;
mod running;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sinew_protocol::command::{
    ApproveCommand, CancelCommand, Command, PauseCommand, ResumeCommand, RetryCommand, StartCommand,
};
use sinew_protocol::subject::Operation;
use sinew_protocol::{ExecutionId, Fault, ResultKey, ResultToken, Subject, Token};

use bus::Bus;
pub(super) use dice::Dice;
use model::Model;
pub(super) use model::Reached;
use process::{Process, StepOutcome};

use crate::intake::InputStream;
use crate::tests::kit::{answer, execution, key};

/// Shards of the mesh.
const SHARDS: u32 = 2;
/// Lease of the executors.
const LEASE: Duration = Duration::from_secs(2);
/// Steps with faults.
const STORM_STEPS: u64 = 400;
/// Most steps without faults until everything has ended.
const MAX_CALM_STEPS: u64 = 12_000;
/// Workflows that clients start.
const WORKFLOWS: [&str; 8] = ["one", "line", "wide", "nap", "ask", "parent", "one", "script"];

/// One history.
struct World {
    bus: Bus,
    model: Model,
    dice: Dice,
    processes: Vec<Process>,
    /// Processes that were killed, and when they begin again.
    dead: BTreeMap<String, u64>,
    incarnations: u64,
    started: Vec<ExecutionId>,
    commands: u64,
    /// Tasks that agents have looked at: whether they answer.
    seen: BTreeMap<String, bool>,
}

/// Runs the history of a seed; returns what it has reached. Panics if an invariant is broken.
pub(super) fn run(seed: u64) -> Reached {
    let mut bus = Bus::default();
    bus.now = 1_000;
    let mut world = World {
        bus,
        model: Model::default(),
        dice: Dice::new(seed),
        processes: Vec::new(),
        dead: BTreeMap::new(),
        incarnations: 0,
        started: Vec::new(),
        commands: 0,
        seen: BTreeMap::new(),
    };
    let count = 1 + world.dice.roll(3);
    for nth in 0..count {
        world.begin(&format!("e{nth}"));
    }
    for _ in 0..STORM_STEPS {
        world.storm();
    }
    world.calm();
    world.model.check_end(&world.bus);
    world.model.reached
}

impl World {
    fn begin(&mut self, id: &str) {
        self.incarnations += 1;
        self.processes.push(Process::new(id, self.incarnations));
    }

    /// One step with faults.
    fn storm(&mut self) {
        match self.dice.roll(1_000) {
            0..700 => self.step_process(),
            700..760 => self.bus.now += self.dice.roll(300),
            760..850 => self.step_agent(),
            850..885 => self.start(),
            885..930 => self.command(),
            930..950 => self.forge(),
            950..972 => self.kill(),
            972..982 => {
                let nth = self.dice.roll(self.processes.len() as u64 + 1) as usize;
                if let Some(process) = self.processes.get_mut(nth) {
                    process.stopped_until = self.bus.now + 1_000 + self.dice.roll(4_000);
                }
            }
            982..988 => {
                let nth = self.dice.roll(self.processes.len() as u64 + 1) as usize;
                if let Some(process) = self.processes.get_mut(nth) {
                    process.leave();
                }
            }
            988..990 => {
                self.model.reread_streams(SHARDS);
                self.processes.iter_mut().for_each(Process::reopen);
            }
            990..993 => {
                if let Some(id) = self.started.last().filter(|_| self.dice.chance(50)) {
                    self.model.killers.insert(id.clone());
                }
            }
            _ => self.bus.now += self.dice.roll(3_000),
        }
    }

    /// Steps without faults, until nothing is left to do. Executions that end their owners are first set aside, then
    /// taken up by an operator.
    fn calm(&mut self) {
        self.processes.iter_mut().for_each(|process| process.stopped_until = 0);
        for step in 0..MAX_CALM_STEPS {
            match step % 4 {
                0 => self.step_agent(),
                1 if self.dice.chance(30) => self.bus.now += 100,
                _ => self.step_process(),
            }
            if step % 64 == 0 && self.calm_down(step) {
                return;
            }
        }
        let owners: Vec<_> = self.processes.iter().map(|process| process.describe(&self.bus)).collect();
        let open = self.model.describe_open();
        assert!(
            open.is_empty(),
            "I1: after {MAX_CALM_STEPS} calm steps {open:#?}, {owners:#?}, {:?}",
            self.bus.owners
        );
        panic!("I1: the inputs of a shard are not read to their end: {owners:#?}, {:?}", self.bus.owners);
    }

    /// Answers people's questions and takes up what is held; returns whether all is done.
    fn calm_down(&mut self, step: u64) -> bool {
        // Killers are found within a number of deaths; then the defect is mended.
        if step > MAX_CALM_STEPS / 2 {
            for killer in &self.model.killers {
                let is_held = self.model.held().contains(killer);
                let is_open = self.model.is_open(killer);
                assert!(is_held || !is_open, "I22: {killer} is never set aside");
            }
            self.model.killers.clear();
        }
        let is_quiet = self.is_quiet();
        if is_quiet && self.model.open_count() == 0 {
            return true;
        }
        for id in self.started.clone() {
            if self.model.killers.is_empty() && self.model.held().contains(&id) {
                self.put_command("operator", &Command::Resume(ResumeCommand { execution: id.clone() }));
            } else if self.model.needs_a_person(&id) {
                let approve = json!({ "execution": id.as_str() });
                self.put_command("ada", &Command::Approve(serde_json::from_value(approve).unwrap()));
                self.put_command("ada", &Command::Resume(ResumeCommand { execution: id.clone() }));
            }
        }
        for id in self.model.held() {
            if self.model.killers.is_empty() && !self.started.contains(&id) {
                self.put_command("operator", &Command::Resume(ResumeCommand { execution: id }));
            }
        }
        false
    }

    /// Whether every input is read, every shard has one owner, and nothing is on its way.
    fn is_quiet(&self) -> bool {
        (0..SHARDS).all(|shard| {
            let owners: Vec<&Process> = self
                .processes
                .iter()
                .filter(|process| process.open_shards().any(|open| open == shard))
                .collect();
            let [owner] = owners[..] else { return false };
            let recorded = self.bus.owners.get(&shard).and_then(|(owner, _)| owner.as_deref());
            recorded == Some(owner.id.as_str()) && owner.is_done(shard, &self.bus)
        })
    }

    fn step_process(&mut self) {
        let now = self.bus.now;
        if let Some((id, _)) = self.dead.iter().find(|(_, at)| **at <= now).map(|(id, at)| (id.clone(), *at))
        {
            self.dead.remove(&id);
            self.begin(&id);
        }
        if self.processes.is_empty() {
            self.bus.now += 100;
            return;
        }
        let nth = self.dice.roll(self.processes.len() as u64) as usize;
        if self.processes[nth].stopped_until > now {
            return;
        }
        match self.processes[nth].step(&mut self.bus, &mut self.model, &mut self.dice) {
            StepOutcome::Alive => {}
            StepOutcome::Died => {
                self.model.reached.add("killed by work");
                let process = self.processes.remove(nth);
                self.dead.insert(process.id, now + 300);
            }
            StepOutcome::Left => {
                self.model.reached.add("left");
                let process = self.processes.remove(nth);
                self.dead.insert(process.id, now + 500);
            }
        }
    }

    fn kill(&mut self) {
        if self.processes.is_empty() {
            return;
        }
        let nth = self.dice.roll(self.processes.len() as u64) as usize;
        let process = self.processes.remove(nth);
        self.model.reached.add("kills");
        self.dead.insert(process.id, self.bus.now + self.dice.roll(3_000));
    }

    fn start(&mut self) {
        let workflow = self.dice.pick(&WORKFLOWS);
        let caller = self.dice.pick(&["ada", "ada", "eve"]);
        // Some ids are taken already: by the same caller with the same or another body, or by another caller.
        let id = match self.started.last() {
            Some(known) if self.dice.chance(25) => known.clone(),
            _ => execution(&format!("x{}", self.started.len())),
        };
        let mut start = StartCommand::new(id.clone(), workflow, json!({ "n": 1 }));
        if self.dice.chance(20) {
            // A chain that only an executor may name.
            start.chain = vec!["one".to_owned(), "line".to_owned(), "nap".to_owned()];
            start.depth = 3;
        }
        self.started.push(id);
        self.put_command(caller, &Command::Start(Box::new(start)));
    }

    fn command(&mut self) {
        if self.started.is_empty() {
            return;
        }
        let nth = self.dice.roll(self.started.len() as u64) as usize;
        let execution = self.started[nth].clone();
        let reason = String::new();
        let command = match self.dice.roll(10) {
            0 => Command::Cancel(CancelCommand { execution, reason }),
            1 | 2 => Command::Pause(PauseCommand { execution, reason }),
            3 | 4 => Command::Resume(ResumeCommand { execution }),
            5..8 => {
                let approve = json!({ "execution": execution.as_str(), "data": "yes" });
                Command::Approve(serde_json::from_value::<ApproveCommand>(approve).unwrap())
            }
            _ => {
                let retry = json!({ "execution": execution.as_str() });
                Command::Retry(serde_json::from_value::<RetryCommand>(retry).unwrap())
            }
        };
        self.put_command("ada", &command);
    }

    fn put_command(&mut self, caller: &str, command: &Command) {
        self.commands += 1;
        let execution = command.execution();
        let id = match command {
            Command::Start(_) => Token::parse(execution.as_str()).unwrap(),
            _ => Token::of(&format!("c{}", self.commands)),
        };
        let operation = match command {
            Command::Start(_) => Operation::Start,
            Command::Cancel(_) => Operation::Cancel,
            Command::Pause(_) => Operation::Pause,
            Command::Resume(_) => Operation::Resume,
            Command::Approve(_) => Operation::Approve,
            Command::Retry(_) => Operation::Retry,
        };
        let shard = execution.shard(SHARDS.try_into().unwrap());
        let subject = Subject::Command { shard, operation, caller: Token::of(caller), id };
        self.bus.put_once(InputStream::Commands, subject, command.to_json().into());
    }

    /// An agent looks at a task: it answers, fails, or leaves it. Some answer once more.
    fn step_agent(&mut self) {
        if self.bus.tasks.is_empty() {
            return;
        }
        let nth = self.dice.roll(self.bus.tasks.len() as u64) as usize;
        let Some((name, message)) = self.bus.tasks.iter().nth(nth) else { return };
        let Subject::Task { agent, execution, task } = message.subject.clone() else { return };
        let name = name.clone();
        // An agent that gives up does so for good only where a timeout is set.
        let gives_up = agent == Token::of("b") && self.dice.chance(20);
        if !*self.seen.entry(name).or_insert(!gives_up) {
            return;
        }
        let result = match self.dice.roll(10) {
            0 => Err(Fault::error("crash", "the agent crashed")),
            1 => Err(Fault::error("hard", "never").with_retryable(false)),
            _ => Ok(json!({ "task": task.as_str() })),
        };
        let token = ResultToken::of(&key(), &task);
        let shard = execution.shard(SHARDS.try_into().unwrap());
        let body = answer(&task, result).into();
        let subject = Subject::Result { shard, agent, execution, task, token };
        self.bus.put_once(InputStream::Results, subject, body);
    }

    /// A result without proof, or from an agent that was not asked.
    fn forge(&mut self) {
        if self.bus.tasks.is_empty() {
            return;
        }
        let nth = self.dice.roll(self.bus.tasks.len() as u64) as usize;
        let Some(message) = self.bus.tasks.values().nth(nth) else { return };
        let Subject::Task { agent, execution, task } = message.subject.clone() else { return };
        let shard = execution.shard(SHARDS.try_into().unwrap());
        let body: Value = json!({ "forged": true, "task": task.as_str() });
        let (agent, token) = match self.dice.roll(2) {
            0 => (agent, ResultToken::of(&ResultKey::new([9; 32]), &task)),
            _ => (Token::of("mallory"), ResultToken::of(&key(), &task)),
        };
        let body = answer(&task, Ok(body)).into();
        let subject = Subject::Result { shard, agent, execution, task, token };
        self.bus.put_once(InputStream::Results, subject, body);
    }
}
