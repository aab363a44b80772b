//! Outgoing messages of stored commits, and calls of agents that respond directly.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use serde_json::{Value, json};
use sinew_engine::{TaskReply, Time};
use sinew_protocol::command::Command;
use sinew_protocol::journal::{ExecutionRecord, ParentRef};
use sinew_protocol::{Fault, Subject, TaskId, Token};

use super::SHARDS;
use super::hostile::{Delivery, HostileMesh};
use crate::in_flight::ShardReport;
use crate::intake::ShardInput;
use crate::outgoing::{
    Outgoing, callee_cancel, child_id, child_result, child_start, is_for_workflow, rejected_child_outcome,
    result_subject, wait_command,
};
use crate::tests::kit::{answer, key};
use sinew_execution::Call;

/// Milliseconds after which an unanswered direct call is repeated.
const REPEAT_INTERVAL: Time = 1_500;

/// An outgoing message.
#[derive(Clone)]
pub(super) enum Sending {
    New(Outgoing),
    /// The second part of an end: answers the caller's task, then notifies the shard.
    Answer {
        record: Box<ExecutionRecord>,
        result: Result<Value, Fault>,
        end_number: u32,
    },
    Report(ShardReport),
}

/// A task that an agent answers directly.
struct DirectCall {
    call: Call,
    /// When the call is repeated.
    due: Time,
    /// Pending responses with their arrival times: none, one or two.
    answers: Vec<(Time, Result<Value, Fault>)>,
}

/// The outbox of a shard's owner, dropped with its owner.
pub(super) struct SimulatedOutbox {
    owner: Token,
    sendings: Vec<Sending>,
    calls: BTreeMap<TaskId, DirectCall>,
    /// Tasks that this outbox has withdrawn.
    cancelled: BTreeSet<TaskId>,
    /// Inputs for the shard's owner from the outbox.
    pub(super) back: VecDeque<ShardInput>,
}

impl SimulatedOutbox {
    pub(super) fn new(owner: Token) -> Self {
        Self {
            owner,
            sendings: Vec::new(),
            calls: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            back: VecDeque::new(),
        }
    }

    pub(super) fn push(&mut self, sending: Sending) {
        self.sendings.push(sending);
    }

    /// Returns true if a message has to wait: the task that it cancels is being stored, or tasks of
    /// the execution whose end it archives are being withdrawn.
    fn waits(&self, sending: &Sending) -> bool {
        let others = self.sendings.iter().filter_map(|sending| match sending {
            Sending::New(outgoing) => Some(outgoing),
            Sending::Answer { .. } | Sending::Report(_) => None,
        });
        match sending {
            Sending::New(Outgoing::CancelTask { call }) => others.into_iter().any(
                |other| matches!(other, Outgoing::Task { call: stored, .. } if stored.task == call.task),
            ),
            Sending::New(Outgoing::Finish { record, .. }) => others.into_iter().any(|other| {
                let execution = &record.meta.execution;
                matches!(other, Outgoing::CancelTask { call } if call.execution == *execution)
            }),
            Sending::New(_) | Sending::Answer { .. } | Sending::Report(_) => false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sendings.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.sendings.len()
    }

    /// Sends one of the messages, in any order. A message that may be lost remains, to be sent
    /// again.
    pub(super) fn send_one(&mut self, mesh: &mut HostileMesh) {
        let nth = mesh.dice.roll(self.sendings.len() as u64) as usize;
        let sending = self.sendings.swap_remove(nth);
        if self.waits(&sending) {
            self.sendings.push(sending);
            return;
        }
        match mesh.deliver() {
            Delivery::Acknowledged => self.perform(mesh, sending),
            Delivery::AnswerLost => {
                mesh.invariants.reach("messages doubled");
                self.sendings.push(sending.clone());
                self.perform(mesh, sending);
            }
            Delivery::Lost => {
                mesh.invariants.reach("messages lost");
                self.sendings.push(sending);
            }
        }
    }

    fn perform(&mut self, mesh: &mut HostileMesh, sending: Sending) {
        match sending {
            Sending::New(outgoing) => self.perform_new(mesh, outgoing),
            Sending::Answer { record, result, end_number } => {
                answer_parent(mesh, record.meta.parent.as_ref(), result);
                let execution = record.meta.execution.clone();
                self.back.push_back(ShardInput::Archived { execution, end_number });
            }
            Sending::Report(report) => mesh.invariants.reported(&report),
        }
    }

    fn perform_new(&mut self, mesh: &mut HostileMesh, outgoing: Outgoing) {
        match outgoing {
            Outgoing::Task { call, meta, chain } => {
                mesh.invariants.sent(&call);
                let agent = Token::of(call.ask.target.name());
                if is_for_workflow(&call, |_| false) {
                    let subject = result_subject(SHARDS.try_into().unwrap(), &key(), &call, &agent);
                    let input = (Value::clone(&call.ask.input), None);
                    let start = child_start(&call, &meta, &chain, input, subject.name("ns"));
                    self.command(mesh, &Command::Start(Box::new(start)));
                } else if call.ask.target.name() == "direct" {
                    if !self.calls.contains_key(&call.task) {
                        self.calls.insert(call.task.clone(), DirectCall::ask(call, mesh));
                    }
                } else {
                    let (execution, task) = (call.execution.clone(), call.task.clone());
                    if mesh.bus.withdrawn.contains(&task) {
                        // Only an owner that lost its shard sends it now.
                        assert!(!self.cancelled.contains(&task), "I33: {task} is sent after its withdrawal");
                        return mesh.invariants.reach("tasks of former owners");
                    }
                    let body = Bytes::from(serde_json::to_vec(&*call.ask.input).unwrap());
                    let subject = Subject::Task { agent, execution, task };
                    let stored = mesh.bus.put_once(subject, body.clone());
                    assert_eq!(*stored, body, "I4: a task is the same whoever sends it");
                }
            }
            Outgoing::Evaluation { call, .. } => {
                mesh.invariants.sent(&call);
                let result = Ok(TaskReply::new(json!({ "task": call.task.as_str() })));
                let agent = Token::of(call.ask.target.name());
                self.back.push_back(ShardInput::task_result(call.execution, call.task, agent, result));
            }
            // Clients of the simulation send their starts as commands.
            Outgoing::CancelEvaluation { .. } | Outgoing::StartAnswer { .. } => {}
            Outgoing::CancelTask { call } => {
                self.calls.remove(&call.task);
                self.cancelled.insert(call.task.clone());
                mesh.bus.withdrawn.insert(call.task.clone());
                if is_for_workflow(&call, |_| false) {
                    self.command(mesh, &callee_cancel(child_id(&call)));
                }
            }
            Outgoing::WaitReport(report) => {
                mesh.invariants.reach("waits reported");
                let (id, command) = wait_command(*report, &key());
                self.command_as(mesh, &command, id);
            }
            Outgoing::Finish { record, outcome, end_number, .. } => {
                mesh.invariants.archived(&record);
                mesh.bus.archive(ExecutionRecord::clone(&record));
                let result = child_result(&outcome);
                self.sendings.push(Sending::Answer { record, result, end_number });
            }
            Outgoing::ChildStartRejected { meta, fault } => {
                mesh.invariants.reach("children rejected");
                answer_parent(mesh, meta.parent.as_ref(), child_result(&rejected_child_outcome(fault)));
                let execution = meta.execution.clone();
                self.back.push_back(ShardInput::Archived { execution, end_number: 0 });
            }
        }
    }

    fn command(&self, mesh: &mut HostileMesh, command: &Command) {
        let id = Token::parse(command.execution().as_str()).unwrap();
        self.command_as(mesh, command, id);
    }

    fn command_as(&self, mesh: &mut HostileMesh, command: &Command, id: Token) {
        let execution = command.execution();
        let subject = Subject::Command {
            shard: super::shard_of(execution),
            operation: command.operation(),
            caller: self.owner.clone(),
            id,
        };
        mesh.bus.put_once(subject, command.to_json().into());
    }

    /// Receives responses of directly called agents, and repeats unanswered calls.
    pub(super) fn hear_calls(&mut self, mesh: &mut HostileMesh) {
        let now = mesh.bus.now;
        let mut heard = Vec::new();
        for (task, one) in &mut self.calls {
            heard
                .extend(one.answers.extract_if(.., |(at, _)| *at <= now).map(|(_, one)| (task.clone(), one)));
            if one.answers.is_empty() && one.due <= now {
                *one = DirectCall::ask(one.call.clone(), mesh);
            }
        }
        for (task, result) in heard {
            let Some(one) = self.calls.get(&task) else { continue };
            let (execution, agent) = (one.call.execution.clone(), Token::of("direct"));
            // The second of two responses finds no call unless both arrive at the same time.
            if one.answers.is_empty() {
                self.calls.remove(&task);
            }
            self.back.push_back(ShardInput::task_result(execution, task, agent, result.map(TaskReply::new)));
        }
    }
}

impl DirectCall {
    /// Calls an agent. Its response is delayed, duplicated or lost.
    fn ask(call: Call, mesh: &mut HostileMesh) -> Self {
        let is_stormy = mesh.is_stormy;
        let (now, dice) = (mesh.bus.now, &mut mesh.dice);
        let count = match dice.roll(10) {
            0 if is_stormy => 0,
            1 if is_stormy => 2,
            _ => 1,
        };
        let answers = std::iter::repeat_with(|| {
            let result = if dice.chance(15) {
                Err(Fault::error("busy", "not now"))
            } else {
                Ok(json!({ "task": call.task.as_str(), "nth": dice.roll(3) }))
            };
            (now + dice.roll(1_200), result)
        });
        let answers = answers.take(count).collect();
        Self { call, due: now + REPEAT_INTERVAL, answers }
    }
}

fn answer_parent(mesh: &mut HostileMesh, parent: Option<&ParentRef>, result: Result<Value, Fault>) {
    let Some(parent) = parent else { return };
    let subject = Subject::parse("ns", &parent.result_subject).unwrap();
    let result = result.map(|output| json!({ "task": parent.task.as_str(), "output": output }));
    mesh.bus.put_once(subject, answer(&parent.task, result).into());
}
