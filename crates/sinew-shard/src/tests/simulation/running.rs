//! An open shard of the simulation: turns, commits, sending and direct calls.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use serde_json::{Value, json};
use sinew_engine::{TaskReply, Time};
use sinew_protocol::command::Command;
use sinew_protocol::journal::{ExecutionRecord, Positions};
use sinew_protocol::subject::Operation;
use sinew_protocol::{ExecutionId, Fault, Subject, TaskId, Token};

use super::SHARDS;
use super::bus::{Bus, BusMessage};
use super::dice::Dice;
use super::model::Model;
use super::process::may_hold;
use crate::bug::seeded_bug;
use crate::call::Call;
use crate::care::{TakeoverCare, WorkGroup};
use crate::intake::{Found, InboxMessage, InputStream, Lookup, ShardInput};
use crate::manager::LoopEnd;
use crate::outgoing::{
    Outgoing, child_cancel, child_result, child_start, is_for_workflow, rejected_child_outcome,
    result_subject,
};
use crate::state::{PendingCommit, ShardState};
use crate::takeover_note::WorkItem;
use crate::tests::kit::{FactCounter, NoSchemas, answer, key, library, program_by_digest};

/// Milliseconds after which a direct call without an answer is made again.
const REPEAT_INTERVAL: Time = 1_500;
/// Messages of one turn.
const MAX_BATCH: u64 = 6;

/// A place in one of the streams.
type MessagePlace = (InputStream, u64);

/// An open shard.
pub(super) struct RunningShard {
    pub(super) state: ShardState,
    care: TakeoverCare,
    revision: u64,
    read: Positions,
    back: VecDeque<ShardInput>,
    outbox: Vec<Sending>,
    calls: BTreeMap<TaskId, DirectCall>,
    pending: Option<PendingCommit>,
    groups: VecDeque<WorkGroup<MessagePlace>>,
    /// Whether the first of the groups was noted.
    is_noted: bool,
    /// Whether the note has to be released.
    releases: bool,
    /// Messages of the noted group whose commit is being stored.
    taken: Option<usize>,
}

/// A message on its way out.
enum Sending {
    New(Outgoing),
    /// The second part of an end: the caller's task is answered, then the shard is told.
    Answer {
        record: Box<ExecutionRecord>,
        result: Result<Value, Fault>,
        reopened: u32,
    },
}

/// A task that an agent answers directly.
struct DirectCall {
    call: Call,
    /// When it is made again.
    due: Time,
    /// When the answer arrives; `None` if it was lost.
    answer: Option<(Time, Result<Value, Fault>)>,
}

impl RunningShard {
    pub(super) fn new(
        bus: &Bus,
        state: ShardState,
        mut care: TakeoverCare,
        revision: u64,
        again: Vec<Outgoing>,
    ) -> Self {
        let read = state.positions();
        let shard = state.config().shard;
        let waiting = |stream, after: u64| {
            let messages = bus.stream(stream).iter().skip(after as usize);
            messages.filter(|message| is_of_shard(message, shard)).count() as u64
        };
        let commands = waiting(InputStream::Commands, read.commands);
        care.expect(commands + waiting(InputStream::Results, read.results));
        Self {
            state,
            care,
            revision,
            read,
            back: VecDeque::new(),
            outbox: again.into_iter().map(Sending::New).collect(),
            calls: BTreeMap::new(),
            pending: None,
            groups: VecDeque::new(),
            is_noted: false,
            releases: false,
            taken: None,
        }
    }

    /// How the shard stands, in words.
    pub(super) fn describe(&self, bus: &Bus) -> String {
        let (commands, results) = (bus.commands.len(), bus.results.len());
        let (outbox, back, groups) = (self.outbox.len(), self.back.len(), self.groups.len());
        format!(
            "read {:?} of {commands}, {results}; outbox {outbox}, back {back}, groups {groups}",
            self.read
        )
    }

    /// Whether everything is read and sent.
    pub(super) fn is_done(&self, bus: &Bus) -> bool {
        let is_read =
            self.read.commands == bus.commands.len() as u64 && self.read.results == bus.results.len() as u64;
        is_read
            && self.pending.is_none()
            && self.outbox.is_empty()
            && self.back.is_empty()
            && self.groups.is_empty()
    }

    fn shard(&self) -> u32 {
        self.state.config().shard
    }

    /// Does one thing. An error ends the loop, or the process if there is no end of the loop in it.
    pub(super) fn step(
        &mut self,
        alone: &mut Option<u32>,
        bus: &mut Bus,
        model: &mut Model,
        dice: &mut Dice,
        is_stopped: bool,
    ) -> Result<(), Option<LoopEnd>> {
        self.hear_calls(bus.now, dice);
        if let Some(pending) = self.pending.take() {
            return self.store(bus, model, &pending);
        }
        if seeded_bug!(ActsBeforeStored) {
            self.collect();
        }
        if !self.groups.is_empty() {
            return self.step_group(alone, bus, model);
        }
        if self.releases {
            self.releases = false;
            let body = self.care.release();
            self.put_note(bus, body)?;
            if *alone == Some(self.shard()) {
                *alone = None;
            }
            return Ok(());
        }
        if is_stopped {
            return self.step_drain(bus, model, dice);
        }
        if !self.outbox.is_empty() && dice.chance(50) {
            let nth = dice.roll(self.outbox.len() as u64) as usize;
            let sending = self.outbox.swap_remove(nth);
            self.send(bus, model, dice, sending);
            return Ok(());
        }
        self.begin_turn(bus, model, dice)
    }

    /// Takes what has come in, or begins to take it in groups.
    fn begin_turn(
        &mut self,
        bus: &mut Bus,
        model: &mut Model,
        dice: &mut Dice,
    ) -> Result<(), Option<LoopEnd>> {
        let is_due = self.state.next_timeout().is_some_and(|due| due <= bus.now);
        if self.care.check_end(is_due) {
            self.releases = true;
            return Ok(());
        }
        let messages = self.receive(bus, dice);
        let count = dice.roll(self.back.len() as u64 + 1) as usize;
        let inputs: Vec<ShardInput> = self.back.drain(..count).collect();
        if self.care.is_needed(inputs.iter().filter_map(ShardInput::execution)) {
            let due = self.state.due_executions(bus.now, 64);
            let item = |place: &MessagePlace| message(bus, *place).work_item();
            self.groups = self.care.split_turn(due, inputs, messages, item).into();
            self.is_noted = false;
            self.releases = !self.groups.is_empty();
            if self.groups.is_empty() {
                self.end_turn(bus, model);
            }
            return Ok(());
        }
        self.decide(bus, model, &messages, inputs, None)
    }

    fn step_group(
        &mut self,
        alone: &mut Option<u32>,
        bus: &mut Bus,
        model: &mut Model,
    ) -> Result<(), Option<LoopEnd>> {
        if !self.is_noted {
            let shard = self.shard();
            if may_hold(alone, shard, &self.care)
                && let Some(group) = self.groups.front()
            {
                let body = self.care.hold(&group.items);
                self.put_note(bus, body)?;
                self.is_noted = true;
            }
            return Ok(());
        }
        self.is_noted = false;
        let Some(group) = self.groups.pop_front() else { return Ok(()) };
        self.taken = Some(group.messages.len());
        self.decide(bus, model, &group.messages, group.inputs, Some(&group.due))
    }

    /// Decides inputs; the commit is stored by the next step.
    fn decide(
        &mut self,
        bus: &mut Bus,
        model: &mut Model,
        messages: &[MessagePlace],
        inputs: Vec<ShardInput>,
        due: Option<&[ExecutionId]>,
    ) -> Result<(), Option<LoopEnd>> {
        let mut all = Vec::new();
        for place in messages {
            let message = message(bus, *place);
            let is_condemned = self.care.note().is_condemned(&message.work_item());
            if !is_condemned && model.kills(&message.work_item()) {
                return Err(None);
            }
            let mut pending = match is_condemned {
                true => self.state.refuse_condemned(&message),
                false => self.state.decode(&message),
            };
            if pending.take_quarantine().is_some() {
                model.quarantined(*place);
            }
            while let Some(lookup) = pending.lookup() {
                pending.supply(find(bus, lookup));
            }
            all.push(pending.finish());
        }
        let items = inputs.iter().filter_map(ShardInput::execution);
        let items = items.chain(due.into_iter().flatten()).cloned().map(WorkItem::Execution);
        if items.into_iter().any(|item| model.kills(&item)) {
            return Err(None);
        }
        for (stream, seq) in messages {
            self.state.handle_position(*stream, *seq);
        }
        for input in all.into_iter().chain(inputs) {
            self.state.handle_input(bus.now, input, &NoSchemas);
        }
        match due {
            Some(due) => self.state.handle_timeout_of(bus.now, due),
            None => self.state.handle_timeout(bus.now),
        }
        model.noticed(self.state.take_notices());
        self.pending = self.state.poll_commit();
        if self.pending.is_none() {
            self.end_turn(bus, model);
        }
        Ok(())
    }

    /// Appends the commit.
    fn store(
        &mut self,
        bus: &mut Bus,
        model: &mut Model,
        pending: &PendingCommit,
    ) -> Result<(), Option<LoopEnd>> {
        let shard = self.shard();
        if let Some(seq) = bus.append(shard, pending.after, pending.body.clone()) {
            model.committed(bus, shard, &pending.body);
            self.state.handle_stored(seq);
        } else {
            model.fenced();
            self.state.handle_lost();
            if self.state.is_lost() {
                return Err(Some(LoopEnd::Fenced));
            }
        }
        self.collect();
        let reports = self.state.take_reports(&mut FactCounter::default());
        model.reported(&reports);
        self.end_turn(bus, model);
        Ok(())
    }

    fn collect(&mut self) {
        while let Some(outgoing) = self.state.poll_outgoing() {
            self.outbox.push(Sending::New(outgoing));
        }
    }

    fn end_turn(&mut self, bus: &mut Bus, model: &mut Model) {
        if let Some(taken) = self.taken.take() {
            self.care.took(taken);
            self.care.pass();
        }
        if let Some(keep) = self.state.end_turn() {
            let shard = self.shard();
            bus.purge(shard, keep);
            model.purged(bus, shard);
            self.state.handle_purged();
        }
    }

    /// Hands the shard over: what is being sent may be sent, what was archived is closed.
    fn step_drain(
        &mut self,
        bus: &mut Bus,
        model: &mut Model,
        dice: &mut Dice,
    ) -> Result<(), Option<LoopEnd>> {
        if !self.outbox.is_empty() && dice.chance(90) {
            let sending = self.outbox.remove(0);
            self.send(bus, model, dice, sending);
            return Ok(());
        }
        for input in std::mem::take(&mut self.back) {
            if matches!(input, ShardInput::Archived { .. }) {
                self.state.handle_input(bus.now, input, &NoSchemas);
            }
        }
        let Some(pending) = self.state.poll_commit() else { return Err(Some(LoopEnd::Drained)) };
        self.store(bus, model, &pending)?;
        Err(Some(LoopEnd::Drained))
    }

    fn put_note(&mut self, bus: &mut Bus, body: Bytes) -> Result<(), Option<LoopEnd>> {
        let shard = self.shard();
        self.revision = bus.put_note(shard, body, self.revision).ok_or(Some(LoopEnd::Fenced))?;
        self.care.handle_stored();
        Ok(())
    }

    /// Messages that are delivered now: each stream in its order, some of what is there.
    fn receive(&mut self, bus: &Bus, dice: &mut Dice) -> Vec<MessagePlace> {
        let shard = self.shard();
        let mut places = Vec::new();
        for stream in [InputStream::Commands, InputStream::Results] {
            let read = match stream {
                InputStream::Commands => &mut self.read.commands,
                InputStream::Results => &mut self.read.results,
            };
            for _ in 0..dice.roll(MAX_BATCH) {
                let Some(message) = bus.stream(stream).get(*read as usize) else { break };
                *read += 1;
                if is_of_shard(message, shard) {
                    places.push((stream, *read));
                }
            }
        }
        places
    }

    fn send(&mut self, bus: &mut Bus, model: &mut Model, dice: &mut Dice, sending: Sending) {
        match sending {
            Sending::New(Outgoing::Task { call, meta, chain }) => {
                model.sent(&call);
                if is_for_workflow(&call, |_| false) {
                    let subject = result_subject(
                        SHARDS.try_into().unwrap(),
                        &key(),
                        &call,
                        &Token::of(call.ask.target.name()),
                    );
                    let input = (Value::clone(&call.ask.input), None);
                    let start = child_start(&call, &meta, &chain, input, subject.name("ns"));
                    self.command(bus, &Command::Start(Box::new(start)));
                } else if call.ask.target.name() == "direct" {
                    self.calls.entry(call.task.clone()).or_insert_with(|| ask(call, bus.now, dice));
                } else {
                    let agent = Token::of(call.ask.target.name());
                    let subject =
                        Subject::Task { agent, execution: call.execution.clone(), task: call.task.clone() };
                    let body = serde_json::to_vec(&*call.ask.input).unwrap();
                    let stored = bus.tasks.entry(subject.name("ns"));
                    let stored = stored.or_insert(BusMessage { subject, body: body.clone().into() });
                    assert_eq!(stored.body, body, "I4: a task is the same whoever sends it");
                }
            }
            Sending::New(Outgoing::Evaluation { call, .. }) => {
                model.sent(&call);
                let result = Ok(TaskReply::new(json!({ "task": call.task.as_str() })));
                let agent = Token::of(call.ask.target.name());
                self.back.push_back(ShardInput::task_result(call.execution, call.task, agent, result));
            }
            Sending::New(Outgoing::CancelEvaluation { .. }) => {}
            Sending::New(Outgoing::CancelTask { call }) => {
                self.calls.remove(&call.task);
                if is_for_workflow(&call, |_| false) {
                    self.command(bus, &child_cancel(&call));
                }
            }
            Sending::New(Outgoing::Finish { record, outcome, reopened, .. }) => {
                model.archived(&record);
                bus.archive(&record);
                let result = child_result(&outcome);
                self.outbox.push(Sending::Answer { record, result, reopened });
            }
            Sending::New(Outgoing::ChildStartRejected { meta, fault }) => {
                let result = child_result(&rejected_child_outcome(fault));
                answer_parent(bus, meta.parent.as_ref(), result);
            }
            Sending::Answer { record, result, reopened } => {
                answer_parent(bus, record.meta.parent.as_ref(), result);
                let execution = record.meta.execution.clone();
                self.back.push_back(ShardInput::Archived { execution, reopened });
            }
        }
    }

    fn command(&self, bus: &mut Bus, command: &Command) {
        let execution = command.execution();
        let subject = Subject::Command {
            shard: execution.shard(SHARDS.try_into().unwrap()),
            operation: if matches!(command, Command::Start(_)) {
                Operation::Start
            } else {
                Operation::Cancel
            },
            caller: self.state.config().owner.clone(),
            id: Token::parse(execution.as_str()).unwrap(),
        };
        bus.put_once(InputStream::Commands, subject, command.to_json().into());
    }

    /// Takes answers of agents that are called directly, and calls again where none has come. Some answers come twice.
    fn hear_calls(&mut self, now: Time, dice: &mut Dice) {
        let mut heard = Vec::new();
        for (task, one) in &mut self.calls {
            match &one.answer {
                Some((at, result)) if *at <= now => heard.push((task.clone(), result.clone())),
                None if one.due <= now => *one = ask(one.call.clone(), now, dice),
                _ => {}
            }
        }
        for (task, result) in heard {
            let is_last = !dice.chance(10);
            let Some(one) = self.calls.get(&task) else { continue };
            let (execution, agent) = (one.call.execution.clone(), Token::of("direct"));
            let result = result.map(TaskReply::new);
            self.back.push_back(ShardInput::task_result(execution, task.clone(), agent, result));
            if is_last {
                self.calls.remove(&task);
            }
        }
    }
}

/// Calls an agent directly: it answers after a while, or the answer is lost.
fn ask(call: Call, now: Time, dice: &mut Dice) -> DirectCall {
    let result = if dice.chance(15) {
        Err(Fault::error("busy", "not now"))
    } else {
        Ok(json!({ "task": call.task.as_str(), "nth": dice.roll(3) }))
    };
    let answer = (!dice.chance(15)).then(|| (now + dice.roll(1_200), result));
    DirectCall { call, due: now + REPEAT_INTERVAL, answer }
}

fn answer_parent(
    bus: &mut Bus,
    parent: Option<&sinew_protocol::journal::ParentRef>,
    result: Result<Value, Fault>,
) {
    let Some(parent) = parent else { return };
    let subject = Subject::parse("ns", &parent.result_subject).unwrap();
    let result = result.map(|output| json!({ "task": parent.task.as_str(), "output": output }));
    bus.put_once(InputStream::Results, subject, answer(&parent.task, result).into());
}

fn is_of_shard(message: &BusMessage, of: u32) -> bool {
    matches!(&message.subject, Subject::Command { shard, .. } | Subject::Result { shard, .. } if *shard == of)
}

fn message(bus: &Bus, (stream, seq): MessagePlace) -> InboxMessage<'_> {
    let message = &bus.stream(stream)[seq as usize - 1];
    InboxMessage { stream, seq, subject: Some(&message.subject), body: &message.body, traceparent: None }
}

/// Looks up what a message names.
fn find(bus: &Bus, lookup: Lookup) -> Found {
    match lookup {
        Lookup::Record(execution) => Found::Record(Ok(bus
            .history
            .get(&execution)
            .map(|body| Box::new(ExecutionRecord::decode(body).unwrap())))),
        Lookup::Program { workflow, .. } => Found::Program(
            library().get(&workflow).cloned().ok_or_else(|| Fault::invalid("none", "no such workflow")),
        ),
        Lookup::Plan(digest) => {
            Found::Program(program_by_digest(&digest).ok_or_else(|| Fault::invalid("none", "no such plan")))
        }
        Lookup::Value(address) => Found::Value(Ok(json!(address))),
    }
}
