//! The invariants of a mesh, checked at every write.
//!
//! The model sees the bus only. It folds every stored commit with the engine, apart from the owners' own state.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use sinew_engine::{ATTEMPT_TIMED_OUT, ActivationId, Fact, Machine, Time, decode_round};
use sinew_protocol::command::Command;
use sinew_protocol::journal::{Commit, Entry, EntryKind, ExecutionRecord, Positions, Verdict};
use sinew_protocol::subject::Operation;
use sinew_protocol::{ExecutionId, Subject, TaskId, Token};

use super::LEASE;
use super::bus::Bus;
use crate::call::{Call, task_id};
use crate::intake::InputStream;
use crate::journal_reader::JournalReader;
use crate::notice::ShardNotice;
use crate::program::Program;
use crate::state::ShardReport;
use crate::stored::StoredExecution;
use crate::takeover_note::{MAX_ITEM_DEATHS, WorkItem};
use crate::tests::kit::program_by_digest;

/// Counts of events that the seeds have reached, so that a simulation in which nothing happens fails.
#[derive(Clone, Debug, Default)]
pub(in crate::tests) struct Reached {
    pub(in crate::tests) counts: BTreeMap<&'static str, u64>,
}

impl Reached {
    pub(in crate::tests) fn add(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }
}

/// An execution as the journal tells it.
struct ModelExecution {
    shard: u32,
    stored: StoredExecution,
    program: Program,
    machine: Machine<()>,
    is_open: bool,
    tasks: BTreeMap<TaskId, (ActivationId, u32)>,
    deadlines: BTreeMap<(ActivationId, u32), Time>,
    replied: BTreeSet<(ActivationId, u32)>,
    completed: BTreeSet<ActivationId>,
    slept: BTreeMap<ActivationId, Time>,
    is_paused: bool,
    has_ended: bool,
}

/// The model of one seed.
#[derive(Default)]
pub(in crate::tests) struct Model {
    executions: HashMap<ExecutionId, ModelExecution>,
    verdicts: BTreeMap<(ExecutionId, Token, Token), Verdict>,
    positions: BTreeMap<u32, Positions>,
    quarantined: BTreeSet<(InputStream, u64)>,
    /// Executions that end every process that takes them up.
    pub(super) killers: BTreeSet<ExecutionId>,
    /// Deaths of processes with an item in a stored note, in a row.
    deaths: BTreeMap<(u32, WorkItem), u32>,
    /// Shards whose streams are read from the beginning at the next opening.
    reread: BTreeSet<u32>,
    pub(in crate::tests) reached: Reached,
}

impl Model {
    /// Whether an item ends the process that touches it.
    pub(super) fn kills(&self, item: &WorkItem) -> bool {
        let WorkItem::Execution(execution) = item else { return false };
        let is_held = self.executions.get(execution).is_some_and(|one| one.stored.hold.is_some());
        self.killers.contains(execution) && !is_held
    }

    /// Counts the death of a predecessor, as the note that it left tells it.
    pub(super) fn note_read(&mut self, shard: u32, note: &[u8], process: &str) {
        let note: serde_json::Value = serde_json::from_slice(note).unwrap_or_default();
        if note["process"] == process {
            return;
        }
        for item in note["in_hand"].as_array().into_iter().flatten() {
            let item: WorkItem = serde_json::from_value(item.clone()).unwrap();
            *self.deaths.entry((shard, item)).or_default() += 1;
        }
    }

    pub(super) fn reread_streams(&mut self, shards: u32) {
        self.reread.extend(0..shards);
    }

    /// Positions behind which a new owner reads: the stored ones, unless the streams were made anew.
    pub(super) fn positions_to_read(&mut self, shard: u32, stored: Positions) -> Positions {
        if self.reread.remove(&shard) {
            self.reached.add("streams read again");
            self.positions.insert(shard, Positions::default());
            return Positions::default();
        }
        stored
    }

    /// I28: a living owner's shard is not claimed.
    pub(super) fn check_claim(&mut self, bus: &Bus, shard: u32, claimer: &str, revision: u64) {
        let Some((Some(owner), current)) = bus.owners.get(&shard) else { return };
        if *current != revision || owner == claimer {
            return;
        }
        let silent = bus.heartbeats.get(owner).map_or(Time::MAX, |beat| bus.now - beat.at);
        assert!(
            silent >= LEASE.as_millis() as Time / 2,
            "I28: {claimer} claims shard {shard} of {owner}, who lives"
        );
        self.reached.add("shards stolen");
    }

    /// I6, I7: a journal says at every takeover what was committed to it.
    pub(super) fn check_replay(&mut self, shard: u32, reader: &JournalReader) {
        self.reached.add("takeovers");
        for (id, one) in self.executions.iter().filter(|(_, one)| one.shard == shard) {
            let record = reader.record(id);
            let expected = one.is_open.then(|| one.stored.record());
            assert_eq!(record, expected, "I6: the journal of shard {shard} tells {id} as it was committed");
        }
    }

    pub(super) fn purged(&mut self, bus: &Bus, shard: u32) {
        self.reached.add("purges");
        let mut reader = JournalReader::default();
        for (seq, body) in bus.journals.get(&shard).into_iter().flatten() {
            reader.read(*seq, Commit::decode(body).unwrap());
        }
        self.check_replay(shard, &reader);
    }

    pub(super) fn fenced(&mut self) {
        self.reached.add("lost races");
    }

    pub(super) fn quarantined(&mut self, place: (InputStream, u64)) {
        self.reached.add("quarantined");
        self.quarantined.insert(place);
    }

    pub(super) fn noticed(&mut self, notices: Vec<ShardNotice>) {
        for notice in notices {
            self.reached.add(match notice {
                ShardNotice::Started(_) => "starts",
                ShardNotice::StartRepeated(_) => "repeated starts",
                ShardNotice::CommandDecided { .. } => "commands",
                ShardNotice::ResultLate { .. } => "late results",
                ShardNotice::ResultForeign { .. } => "foreign results",
                ShardNotice::ResultUnusable { .. } => "unusable results",
                ShardNotice::ExecutionsLoaded(_) => "loads",
            });
        }
    }

    /// I30: reports are of facts that are stored.
    pub(super) fn reported(&mut self, reports: &[ShardReport]) {
        for report in reports {
            if let ShardReport::Event { meta, place: (round, _), .. } = report {
                let stored = self.executions.get(&meta.execution).map_or(0, |one| one.stored.rounds.count());
                assert!(*round <= stored, "I30: an event of round {round} of {stored}");
            }
        }
    }

    /// I2: a task leaves only after its dispatch was committed.
    pub(super) fn sent(&mut self, call: &Call) {
        let one = self.executions.get(&call.execution);
        let is_dispatched = one.is_some_and(|one| one.tasks.contains_key(&call.task));
        assert!(is_dispatched, "I2: task {} of {} was not dispatched", call.task, call.execution);
        self.reached.add("tasks sent");
    }

    /// I1: the archive has what the journal has.
    pub(super) fn archived(&mut self, record: &ExecutionRecord) {
        let one = &self.executions[&record.meta.execution];
        let stored = one.stored.record();
        let told = record.rounds.len();
        assert_eq!(record.rounds[..], stored.rounds[..told], "I1: the archive says what the journal says");
        self.reached.add("archived");
    }

    /// Takes a commit that was stored.
    pub(super) fn committed(&mut self, bus: &Bus, shard: u32, body: &Bytes) {
        let commit = Commit::decode(body).unwrap();
        for entry in &commit.entries {
            self.entry(bus, shard, entry);
        }
        self.check_positions(bus, shard, commit.positions);
    }

    /// I11: positions pass no input whose consequences are not in the journal.
    fn check_positions(&mut self, bus: &Bus, shard: u32, now: Positions) {
        let before = self.positions.insert(shard, now).unwrap_or_default();
        assert!(now.commands >= before.commands && now.results >= before.results, "I11: positions go back");
        let ends = (bus.commands.len() as u64, bus.results.len() as u64);
        assert!(now.commands <= ends.0 && now.results <= ends.1, "I11: positions beyond the streams");
        for seq in before.commands..now.commands {
            let message = &bus.commands[seq as usize];
            let Subject::Command { shard: of, operation, caller, id } = &message.subject else { continue };
            if *of != shard || self.quarantined.contains(&(InputStream::Commands, seq + 1)) {
                continue;
            }
            let command = Command::read(*operation, id, &message.body).unwrap();
            let execution = command.execution();
            let is_known = *operation == Operation::Start && self.executions.contains_key(execution);
            let key = (execution.clone(), caller.clone(), id.clone());
            let is_decided = is_known || self.verdicts.contains_key(&key);
            assert!(is_decided, "I11: {operation:?} of {execution} was passed and not decided");
        }
    }

    fn entry(&mut self, bus: &Bus, shard: u32, entry: &Entry) {
        let id = &entry.execution;
        if entry.kind != EntryKind::Checkpoint {
            entry.commands.iter().for_each(|verdict| self.verdict(id, verdict));
        }
        match entry.kind {
            EntryKind::Closed => {
                let one = self.executions.get_mut(id).unwrap();
                assert!(one.is_open && one.machine.state().ended, "I1: {id} is closed before its end");
                let record = bus.history.get(id).map(|body| ExecutionRecord::decode(body).unwrap());
                let archived = record.map_or(0, |record| record.rounds.len());
                let ended = one.rounds_until_end();
                assert!(archived >= ended, "I1: {id} is closed with {archived} of {ended} rounds archived");
                if let Some(parent) = &one.stored.meta.parent {
                    let subject = Subject::parse("ns", &parent.result_subject);
                    let is_answered =
                        bus.results.iter().any(|result| Some(&result.subject) == subject.as_ref());
                    assert!(is_answered, "I29: {id} is closed and its parent has no answer");
                }
                one.is_open = false;
                self.reached.add("closed");
                return;
            }
            EntryKind::Checkpoint => self.checkpoint(shard, entry),
            EntryKind::Rounds => {
                if let Some(meta) = &entry.meta {
                    assert!(!self.executions.contains_key(id), "I1: {id} begins twice");
                    let stored = StoredExecution::new(meta.clone());
                    self.executions.insert(id.clone(), ModelExecution::new(shard, stored));
                }
            }
        }
        let Some(one) = self.executions.get_mut(id).filter(|one| one.is_open) else {
            assert!(entry.rounds.is_empty(), "I1: rounds of {id}, which is not open");
            return;
        };
        assert_eq!(one.shard, shard, "I6: {id} has one shard");
        if let Some(hold) = entry.hold.as_ref().filter(|_| entry.kind == EntryKind::Rounds) {
            let item = WorkItem::Execution(id.clone());
            let deaths = self.deaths.get(&(shard, item)).copied().unwrap_or_default();
            assert!(deaths >= MAX_ITEM_DEATHS, "I22: {id} is held after {deaths} deaths");
            one.stored.hold = Some(hold.clone());
            self.reached.add("held");
        }
        if entry.kind == EntryKind::Rounds {
            one.stored.verdicts.extend(entry.commands.iter().cloned());
            for round in &entry.rounds {
                assert!(one.stored.hold.is_none(), "I22: a held execution is worked on");
                one.round(id, round, &mut self.reached);
            }
        }
    }

    /// A checkpoint repeats what is known and may add to it.
    fn checkpoint(&mut self, shard: u32, entry: &Entry) {
        let id = &entry.execution;
        self.reached.add("checkpoints");
        let meta = entry.meta.clone().unwrap();
        let one = self
            .executions
            .entry(id.clone())
            .or_insert_with(|| ModelExecution::new(shard, StoredExecution::new(meta.clone())));
        assert_eq!(*one.stored.meta, meta, "I31: an execution keeps its plan and caller");
        let known: Vec<Bytes> = one.stored.rounds.to_rounds();
        assert!(entry.rounds.starts_with(&known), "I6: a checkpoint of {id} changes the past");
        let verdicts = &one.stored.verdicts;
        // A closed execution comes back with the verdicts of its archived record.
        let is_whole = !one.is_open || entry.commands.starts_with(verdicts);
        assert!(is_whole, "I6: a checkpoint of {id} forgets verdicts");
        let accepted = entry.commands.iter().filter(|verdict| verdict.accepted);
        let keys: Vec<_> = accepted.map(|verdict| (&verdict.caller, &verdict.id)).collect();
        let different: BTreeSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len(), "I17: a command on {id} is obeyed twice");
        one.stored.verdicts.clone_from(&entry.commands);
        one.stored.hold.clone_from(&entry.hold);
        one.is_open = true;
        for round in &entry.rounds[known.len()..] {
            one.round(id, round, &mut self.reached);
        }
        for verdict in &entry.commands {
            let key = (id.clone(), verdict.caller.clone(), verdict.id.clone());
            self.verdicts.entry(key).or_insert_with(|| verdict.clone());
        }
    }

    /// I17: a command is decided once, and obeyed once.
    fn verdict(&mut self, execution: &ExecutionId, verdict: &Verdict) {
        let key = (execution.clone(), verdict.caller.clone(), verdict.id.clone());
        let is_start = verdict.op == Operation::Start;
        assert!(!(is_start && verdict.accepted), "starts are accepted by their execution");
        let before = self.verdicts.insert(key, verdict.clone());
        let is_repeated = verdict.accepted && before.is_some_and(|before| before.accepted);
        assert!(!is_repeated, "I17: command {} on {execution} is obeyed twice", verdict.id);
    }

    /// At the end: everything that was accepted has ended, and nothing is left behind.
    pub(super) fn check_end(&self, bus: &Bus) {
        for (id, one) in &self.executions {
            assert!(
                !one.is_open,
                "I1: {id} ({}) has not ended: {:?}",
                one.program.name(),
                one.machine.next_deadline()
            );
            let record = ExecutionRecord::decode(&bus.history[id]).unwrap();
            assert!(record.rounds.len() >= one.rounds_until_end(), "I1: the last end of {id} is archived");
        }
        for message in &bus.commands {
            let Subject::Command { operation: Operation::Start, caller, id, .. } = &message.subject else {
                continue;
            };
            let execution = ExecutionId::parse(id.as_str()).unwrap();
            let key = (execution.clone(), caller.clone(), id.clone());
            let is_decided = self.executions.contains_key(&execution) || self.verdicts.contains_key(&key);
            assert!(is_decided, "I1: the start of {execution} was lost");
        }
    }

    /// Executions that wait for an operator.
    pub(super) fn held(&self) -> Vec<ExecutionId> {
        let held = self.executions.iter().filter(|(_, one)| one.is_open && one.stored.hold.is_some());
        let mut held: Vec<ExecutionId> = held.map(|(id, _)| id.clone()).collect();
        held.sort();
        held
    }

    /// Whether an execution is not closed.
    pub(super) fn is_open(&self, id: &ExecutionId) -> bool {
        self.executions.get(id).is_some_and(|one| one.is_open)
    }

    /// Whether an execution waits for a person or an operator.
    pub(super) fn needs_a_person(&self, id: &ExecutionId) -> bool {
        let open = self.executions.get(id).filter(|one| one.is_open);
        open.is_some_and(|one| one.is_paused || one.machine.state().waiting().next().is_some())
    }

    /// Executions that are not closed, in words.
    pub(super) fn describe_open(&self) -> Vec<String> {
        let open = self.executions.iter().filter(|(_, one)| one.is_open);
        let describe = |(id, one): (&ExecutionId, &ModelExecution)| {
            let (name, shard, ended) = (one.program.name(), one.shard, one.has_ended);
            let waits = sinew_engine::waiting(one.machine.state());
            format!("{id} ({name}, shard {shard}, ended: {ended}, hold: {:?}): {waits:?}", one.stored.hold)
        };
        open.map(describe).collect()
    }

    /// Executions that are not closed.
    pub(super) fn open_count(&self) -> usize {
        self.executions.values().filter(|one| one.is_open).count()
    }
}

impl ModelExecution {
    fn new(shard: u32, stored: StoredExecution) -> Self {
        let program = program_by_digest(&stored.meta.plan).unwrap();
        Self {
            shard,
            machine: program.machine(),
            stored,
            program,
            is_open: true,
            tasks: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            replied: BTreeSet::new(),
            completed: BTreeSet::new(),
            slept: BTreeMap::new(),
            is_paused: false,
            has_ended: false,
        }
    }

    /// Rounds up to the newest end; later ones are late results, which the archive need not have.
    fn rounds_until_end(&self) -> usize {
        let is_end =
            |bytes: &[u8]| decode_round(bytes).unwrap().facts.iter().any(|fact| matches!(fact, Fact::Ended));
        let rounds: Vec<&[u8]> = self.stored.rounds.iter().collect();
        rounds.iter().rposition(|round| is_end(round)).map_or(0, |nth| nth + 1)
    }

    /// I7: a stored round folds; then every fact is looked at.
    fn round(&mut self, id: &ExecutionId, bytes: &[u8], reached: &mut Reached) {
        let round = decode_round(bytes).unwrap();
        self.stored.rounds.push(bytes);
        let folded = self.machine.replay_round(&round);
        assert!(folded.is_ok(), "I7: a round of {id} does not fold: {folded:?}");
        for fact in &round.facts {
            self.fact(id, round.at, fact, reached);
        }
    }

    fn fact(&mut self, id: &ExecutionId, at: Time, fact: &Fact, reached: &mut Reached) {
        let may_follow_end = matches!(fact, Fact::Late { .. } | Fact::Reopened { .. });
        assert!(!self.has_ended || may_follow_end, "I17: {fact:?} follows the end of {id}");
        match fact {
            Fact::Dispatched { act, attempt, tries, deadline, .. } => {
                assert!(!self.is_paused, "I18: {id} is paused and sends a task");
                assert!(*tries <= 3, "I21: try {tries} of {id}");
                let plan = self.program.graph.plan();
                let task = task_id(id, plan, self.machine.state(), *act, *attempt);
                self.tasks.insert(task, (*act, *attempt));
                self.deadlines.extend(deadline.map(|deadline| ((*act, *attempt), deadline)));
            }
            Fact::Replied { act, attempt, result, .. } => {
                assert!(self.replied.insert((*act, *attempt)), "I5: attempt {attempt} of {id} ends twice");
                match result {
                    Ok(reply) => self.check_reply(id, (*act, *attempt), &reply.output),
                    Err(fault) if fault.code == ATTEMPT_TIMED_OUT => {
                        let deadline = self.deadlines.get(&(*act, *attempt)).copied();
                        assert!(
                            deadline.is_none_or(|deadline| at >= deadline),
                            "I14: a timeout of {id} is early"
                        );
                        reached.add("timeouts");
                    }
                    Err(_) => reached.add("failed attempts"),
                }
            }
            Fact::Slept { act, until } => drop(self.slept.insert(*act, *until)),
            Fact::Completed { act, .. } => {
                assert!(self.completed.insert(*act), "I5: activation {act} of {id} completes twice");
                let until = self.slept.remove(act);
                assert!(until.is_none_or(|until| at >= until), "I14: {id} wakes early");
            }
            Fact::Paused { .. } => self.is_paused = true,
            Fact::Resumed => self.is_paused = false,
            Fact::Late { .. } => reached.add("late facts"),
            Fact::Ended => (self.has_ended, self.is_paused) = (true, false),
            Fact::Reopened { .. } => {
                self.has_ended = false;
                reached.add("reopened");
            }
            _ => {}
        }
    }

    /// I9, I12, I13: an attempt ends with the answer to its own task, by the agent that was asked.
    fn check_reply(&self, id: &ExecutionId, of: (ActivationId, u32), output: &serde_json::Value) {
        assert!(output["forged"].is_null(), "I13: a forged result counts for {id}");
        let Some(task) = output["task"].as_str() else { return };
        let asked = self.tasks.iter().find(|(asked, _)| asked.as_str() == task).map(|(_, of)| *of);
        assert_eq!(asked, Some(of), "I12: {id} takes the answer to another task");
    }
}
