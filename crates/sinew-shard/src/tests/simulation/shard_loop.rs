//! The loop of an open shard: turns, commits and their consequences, one write at a time.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::json;
use sinew_engine::Time;
use sinew_protocol::journal::Positions;
use sinew_protocol::{ExecutionId, Fault, ResultToken, Subject};

use super::bus::{Bus, BusMessage, MessagePosition};
use super::hostile::{HostileMesh, Interrupt};
use super::opening::{SuspectPosition, leave_place, may_hold};
use super::outbox::{Sending, SimulatedOutbox};
use crate::intake::{Found, InputStream, Lookup, ShardInput};
use crate::manager::LoopEnd;
use crate::outgoing::Outgoing;
use crate::state::{PendingCommit, ShardState};
use crate::takeover_guard::{TakeoverGuard, WorkGroup};
use crate::takeover_note::WorkItem;
use crate::tests::kit::{FactCounter, NoSchemas, key, library, program_by_digest};
use crate::timer_check::InboxEnds;

/// Maximum number of messages per turn.
const MAX_BATCH: u64 = 6;

/// An open shard.
pub(super) struct ShardLoop {
    state: ShardState,
    guard: TakeoverGuard,
    revision: u64,
    read: Positions,
    outbox: SimulatedOutbox,
    /// The commit that is stored next.
    pending: Option<PendingCommit>,
    groups: VecDeque<WorkGroup<MessagePosition>>,
    /// Whether the first of the groups was noted.
    is_noted: bool,
    /// Whether the note has to be released.
    releases: bool,
    /// Messages of the noted group whose commit is being stored.
    taken: Option<usize>,
    is_drained: bool,
}

impl ShardLoop {
    pub(super) fn new(
        mesh: &HostileMesh,
        state: ShardState,
        mut guard: TakeoverGuard,
        revision: u64,
        again: Vec<Outgoing>,
    ) -> Self {
        let read = state.positions();
        let shard = state.config().shard;
        let waiting = |stream, after: u64| {
            let messages = mesh.bus.stream(stream).iter().skip(after as usize);
            messages.filter(|message| is_of_shard(message, shard)).count() as u64
        };
        let commands = waiting(InputStream::Commands, read.commands);
        guard.expect(commands + waiting(InputStream::Results, read.results));
        let mut outbox = SimulatedOutbox::new(state.config().owner.clone());
        for outgoing in again {
            outbox.push(Sending::New(outgoing));
        }
        Self {
            state,
            guard,
            revision,
            read,
            outbox,
            pending: None,
            groups: VecDeque::new(),
            is_noted: false,
            releases: false,
            taken: None,
            is_drained: false,
        }
    }

    /// Describes the state of the shard.
    pub(super) fn describe(&self, mesh: &HostileMesh) -> String {
        let (commands, results) = (mesh.bus.commands.len(), mesh.bus.results.len());
        let (outbox, back, groups) = (self.outbox.len(), self.outbox.back.len(), self.groups.len());
        let read = (self.read.commands, self.read.results);
        format!("read {read:?} of {commands}, {results}; outbox {outbox}, back {back}, groups {groups}")
    }

    /// Returns true if everything is read and sent.
    pub(super) fn is_idle(&self, mesh: &HostileMesh) -> bool {
        self.read.commands == mesh.bus.commands.len() as u64
            && self.read.results == mesh.bus.results.len() as u64
            && self.pending.is_none()
            && self.outbox.is_empty()
            && self.outbox.back.is_empty()
            && self.groups.is_empty()
    }

    fn shard(&self) -> u32 {
        self.state.config().shard
    }

    /// Executes one step.
    pub(super) fn step(
        &mut self,
        mesh: &mut HostileMesh,
        place: &mut SuspectPosition,
        is_stopped: bool,
    ) -> Result<(), Interrupt> {
        self.outbox.hear_calls(mesh);
        // Messages of earlier commits are sent while an append is in progress.
        if self.pending.is_some() && !self.outbox.is_empty() && mesh.dice.chance(30) {
            self.outbox.send_one(mesh);
            return Ok(());
        }
        if let Some(pending) = self.pending.take() {
            return self.store(mesh, &pending);
        }
        if self.is_drained {
            return Err(Interrupt::LoopEnds(LoopEnd::Drained));
        }
        if !self.groups.is_empty() {
            return self.step_group(mesh, place);
        }
        if self.releases {
            self.releases = false;
            let body = self.guard.release();
            self.put_note(mesh, body)?;
            leave_place(place, self.shard());
            return Ok(());
        }
        if is_stopped {
            self.step_drain(mesh);
            return Ok(());
        }
        if !self.outbox.is_empty() && mesh.dice.chance(50) {
            self.outbox.send_one(mesh);
            return Ok(());
        }
        self.begin_turn(mesh)
    }

    /// Processes pending inputs, or starts processing them in groups.
    fn begin_turn(&mut self, mesh: &mut HostileMesh) -> Result<(), Interrupt> {
        let is_due = self.state.next_timeout().is_some_and(|due| due <= mesh.bus.now);
        if self.guard.check_end(is_due) {
            self.releases = true;
            return Ok(());
        }
        let messages = self.receive(mesh);
        let count = mesh.dice.roll(self.outbox.back.len() as u64 + 1) as usize;
        let inputs: Vec<ShardInput> = self.outbox.back.drain(..count).collect();
        if self.guard.is_needed(inputs.iter().filter_map(ShardInput::execution)) {
            let due = self.state.due_executions(&self.inbox_ends(&mesh.bus), 64);
            let item = |place: &MessagePosition| mesh.bus.message(*place).work_item();
            self.groups = self.guard.split_turn(due, inputs, messages, item).into();
            self.is_noted = false;
            self.releases = !self.groups.is_empty();
            return Ok(());
        }
        self.decide(mesh, &messages, inputs, None)
    }

    fn step_group(&mut self, mesh: &mut HostileMesh, place: &mut SuspectPosition) -> Result<(), Interrupt> {
        if !self.is_noted {
            let shard = self.shard();
            if may_hold(place, shard, &self.guard)
                && let Some(group) = self.groups.front()
            {
                let body = self.guard.hold(&group.items);
                self.put_note(mesh, body)?;
                self.is_noted = true;
            }
            return Ok(());
        }
        self.is_noted = false;
        let Some(group) = self.groups.pop_front() else { return Ok(()) };
        self.taken = Some(group.messages.len());
        self.decide(mesh, &group.messages, group.inputs, Some(&group.due))
    }

    /// Decides inputs; the next step stores the commit.
    fn decide(
        &mut self,
        mesh: &mut HostileMesh,
        messages: &[MessagePosition],
        inputs: Vec<ShardInput>,
        due: Option<&[ExecutionId]>,
    ) -> Result<(), Interrupt> {
        let mut decoded = Vec::new();
        for place in messages {
            decoded.push(self.read(mesh, *place)?);
        }
        let items = inputs.iter().filter_map(ShardInput::execution);
        let items = items.chain(due.into_iter().flatten()).cloned().map(WorkItem::Execution);
        mesh.touch(&items.collect::<Vec<_>>())?;
        for (stream, seq) in messages {
            self.state.handle_position(*stream, *seq, 0);
        }
        let now: Time = mesh.bus.now;
        for input in decoded.into_iter().chain(inputs) {
            self.state.handle_input(now, input, &NoSchemas);
        }
        let ends = self.inbox_ends(&mesh.bus);
        match due {
            Some(due) => self.state.handle_timeout_of(&ends, due),
            None => self.state.handle_timeout(&ends),
        }
        mesh.invariants.noticed(self.state.take_notices());
        self.pending = self.state.poll_commit();
        self.state.prepare();
        // A message that already exists when the commit is stored is sent in this step.
        self.collect();
        if self.pending.is_none() {
            self.end_turn(mesh);
        }
        Ok(())
    }

    /// Returns the current ends of the shard's streams.
    fn inbox_ends(&self, bus: &Bus) -> InboxEnds {
        let shard = self.shard();
        let end = |stream| {
            let last = bus.stream(stream).iter().rposition(|message| is_of_shard(message, shard));
            last.map_or(0, |place| place as u64 + 1)
        };
        InboxEnds { at: bus.now, commands: end(InputStream::Commands), results: end(InputStream::Results) }
    }

    /// Converts a message to an input.
    fn read(&self, mesh: &mut HostileMesh, place: MessagePosition) -> Result<ShardInput, Interrupt> {
        let item = mesh.bus.message(place).work_item();
        if !self.state.refuses(self.guard.note(), &item) {
            mesh.touch([&item])?;
        }
        let message = mesh.bus.message(place);
        let mut pending = self.state.decode_with_care(self.guard.note(), &message);
        if pending.take_quarantine().is_some() {
            mesh.invariants.quarantined(place);
        }
        while let Some(lookup) = pending.lookup() {
            pending.supply(find(&mesh.bus, lookup));
        }
        Ok(pending.finish())
    }

    fn store(&mut self, mesh: &mut HostileMesh, pending: &PendingCommit) -> Result<(), Interrupt> {
        match mesh.append(self.shard(), pending) {
            Ok(seq) => self.state.handle_stored(seq),
            Err(end) => {
                self.state.handle_lost();
                if self.state.is_lost() {
                    return Err(end);
                }
            }
        }
        while let Some(outgoing) = self.state.poll_outgoing() {
            mesh.invariants.released(&outgoing);
            self.outbox.push(Sending::New(outgoing));
        }
        for report in self.state.take_reports(&mut FactCounter::default()) {
            self.outbox.push(Sending::Report(report));
        }
        self.end_turn(mesh);
        Ok(())
    }

    fn collect(&mut self) {
        while let Some(outgoing) = self.state.poll_outgoing() {
            self.outbox.push(Sending::New(outgoing));
        }
    }

    fn end_turn(&mut self, mesh: &mut HostileMesh) {
        if let Some(taken) = self.taken.take() {
            self.guard.took(taken);
            self.guard.pass();
        }
        if let Some(keep) = self.state.end_turn() {
            let shard = self.shard();
            mesh.bus.purge(shard, keep);
            mesh.invariants.purged(&mesh.bus, shard);
            self.state.handle_purged();
        }
    }

    /// Hands the shard over: sends some of the pending messages, and closes archived executions.
    fn step_drain(&mut self, mesh: &mut HostileMesh) {
        if !self.outbox.is_empty() && mesh.dice.chance(90) {
            return self.outbox.send_one(mesh);
        }
        let now = mesh.bus.now;
        for input in std::mem::take(&mut self.outbox.back) {
            if matches!(input, ShardInput::Archived { .. }) {
                self.state.handle_input(now, input, &NoSchemas);
            }
        }
        self.pending = self.state.poll_commit();
        self.is_drained = true;
    }

    fn put_note(&mut self, mesh: &mut HostileMesh, body: Bytes) -> Result<(), Interrupt> {
        mesh.put_note(self.shard(), body, &mut self.revision)?;
        self.guard.handle_stored();
        Ok(())
    }

    /// Returns messages to deliver now: some of each stream, in order.
    fn receive(&mut self, mesh: &mut HostileMesh) -> Vec<MessagePosition> {
        let shard = self.shard();
        let mut places = Vec::new();
        for stream in [InputStream::Commands, InputStream::Results] {
            let read = match stream {
                InputStream::Commands => &mut self.read.commands,
                InputStream::Results => &mut self.read.results,
            };
            for _ in 0..mesh.dice.roll(MAX_BATCH) {
                let Some(message) = mesh.bus.stream(stream).get(*read as usize) else { break };
                *read += 1;
                if is_of_shard(message, shard) {
                    places.push((stream, *read));
                }
            }
        }
        places
    }
}

fn is_of_shard(message: &BusMessage, of: u32) -> bool {
    matches!(&message.subject, Subject::Command { shard, .. } | Subject::Result { shard, .. } if *shard == of)
}

/// Performs a lookup of a message.
fn find(bus: &Bus, lookup: Lookup) -> Found {
    match lookup {
        Lookup::Record(execution) => Found::Record(Ok(bus.history.get(&execution).cloned().map(Box::new))),
        Lookup::Program { workflow, .. } => {
            let none = || Fault::invalid("none", "no such workflow");
            Found::Program(library().get(&workflow).cloned().ok_or_else(none))
        }
        Lookup::Plan(digest) => {
            let none = || Fault::invalid("none", "no such plan");
            Found::Program(program_by_digest(&digest).ok_or_else(none))
        }
        Lookup::Value(address) => Found::Value(Ok(json!(address))),
        Lookup::Result { execution, task, agent } => {
            let (shard, token) = (super::shard_of(&execution), ResultToken::of(&key(), &task));
            let subject = Subject::Result { shard, agent, execution, task, token };
            Found::Result(Ok(bus.result(&subject).cloned()))
        }
    }
}
