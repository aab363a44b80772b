//! The invariants of a mesh, checked at every write to the bus.
//!
//! | name | invariant |
//! |---|---|
//! | I1 | every accepted start creates one execution, which ends, is archived and is then closed |
//! | I2 | no task is sent before its dispatch is in the journal |
//! | I3 | a dispatched task is sent, unless its attempt has ended |
//! | I4 | the id and the content of a task do not depend on its sender |
//! | I5 | an attempt ends once, and an activation completes once |
//! | I6 | a journal is one chain: a replay yields all commits after any compaction and purge |
//! | I7 | committed facts fold |
//! | I8 | an owner that lost an append writes nothing that does not follow from the journal |
//! | I9 | a new attempt starts after the end of the previous one |
//! | I11 | positions pass an input only with its consequences |
//! | I12 | the result of one attempt never counts for another |
//! | I13 | results without proof or from other agents never count |
//! | I14 | timers fire, and never early |
//! | I15 | facts carry the broker's time |
//! | I16 | a result that was stored before the deadline of its attempt counts, whichever owner reads it and when |
//! | I17 | only late results follow an end, and a command is decided once |
//! | I18 | a paused execution dispatches nothing |
//! | I20 | a map never has more items in progress than its limit |
//! | I21 | attempts stay within their limit, across owners |
//! | I22 | work that crashes its owners is held or quarantined after three crashes, and only then |
//! | I29 | a child answers its parent before it is closed, with its own end; callers cannot claim a chain |
//! | I30 | reports contain committed facts only |
//! | I31 | an execution keeps its plan, its caller and its id |
//! | I32 | a start of another caller with an existing id starts nothing |
//! | I33 | no agent takes a task from its queue after the execution is closed |
//! | I34 | the usage of each attempt counts once, and the archive has it |
//! | O1 | the shard of a live owner is not claimed |

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use sinew_engine::{ATTEMPT_TIMED_OUT, ActivationId, ActivationPhase, Fact, Machine, Time, decode_round};
use sinew_protocol::command::Command;
use sinew_protocol::journal::{Commit, Entry, EntryKind, ExecutionRecord, Positions, Verdict};
use sinew_protocol::subject::Operation;
use sinew_protocol::{ExecutionId, ResultToken, Subject, TaskId};

use super::bus::{Bus, MessagePosition};
use super::model::{Model, ModelAttempt, ModelExecution};
use super::{LEASE, ReachedCounts};
use crate::in_flight::ShardReport;
use crate::intake::InputStream;
use crate::journal_reader::JournalReader;
use crate::notice::ShardNotice;
use crate::outgoing::{Outgoing, child_result};
use crate::takeover_note::{MAX_ITEM_DEATHS, WorkItem};
use crate::tests::kit::key;
use sinew_execution::Call;
use sinew_execution::usage::execution_usage;

/// Maximum number of attempts in plans with retries: one and two retries.
const MAX_TRIES: u32 = 3;
/// Maximum number of the map's items in progress.
const MAP_LIMIT: usize = 2;

/// Observer of all writes.
#[derive(Default)]
pub(super) struct Invariants {
    pub(super) model: Model,
    /// The broker's time of the newest commit.
    now: Time,
    positions: BTreeMap<u32, Positions>,
    quarantined: BTreeSet<MessagePosition>,
    /// Crashes of processes with an item in a stored note.
    deaths: BTreeMap<(u32, WorkItem), u32>,
    /// Shards whose streams are read from the beginning at the next opening.
    reread: BTreeSet<u32>,
    /// Tasks that were sent at least once.
    sent: BTreeSet<TaskId>,
    /// Executions whose callers were notified of the start.
    answered: BTreeSet<ExecutionId>,
    reached: ReachedCounts,
}

impl Invariants {
    pub(super) fn reach(&mut self, what: &'static str) {
        *self.reached.entry(what).or_default() += 1;
    }

    pub(super) fn into_reached(self) -> ReachedCounts {
        self.reached
    }

    /// Counts the crash of a predecessor from the note that it left.
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

    /// Lets the next openings read both streams from the beginning.
    pub(super) fn reread_streams(&mut self, shards: u32) {
        self.reread.extend(0..shards);
    }

    /// Returns the positions after which a new owner reads.
    pub(super) fn positions_to_read(&mut self, shard: u32, stored: Positions) -> Positions {
        if self.reread.remove(&shard) {
            self.reach("streams read again");
            self.positions.insert(shard, Positions::default());
            return Positions::default();
        }
        stored
    }

    pub(super) fn claimed(&mut self, bus: &Bus, shard: u32, claimer: &str, revision: u64) {
        let Some((Some(owner), current)) = bus.owners.get(&shard) else { return };
        if *current != revision || owner == claimer {
            return;
        }
        let silent = bus.heartbeats.get(owner).map_or(Time::MAX, |heartbeat| bus.now - heartbeat.at);
        let lives = silent < LEASE.as_millis() as Time / 2;
        assert!(!lives, "O1: {claimer} claims shard {shard} of {owner}, who lives");
        self.reach("shards stolen");
    }

    pub(super) fn replayed(&mut self, shard: u32, reader: &JournalReader) {
        self.reach("replays");
        for (id, one) in self.model.executions.iter().filter(|(_, one)| one.shard == shard) {
            let expected = one.is_open.then(|| one.stored.record());
            assert_eq!(reader.record(id), expected, "I6: the journal tells {id} as it was committed");
        }
    }

    pub(super) fn purged(&mut self, bus: &Bus, shard: u32) {
        self.reach("purges");
        let mut reader = JournalReader::default();
        for (seq, body) in bus.journals.get(&shard).into_iter().flatten() {
            reader.read(*seq, Commit::decode(body).unwrap());
        }
        self.replayed(shard, &reader);
    }

    pub(super) fn quarantined(&mut self, place: MessagePosition) {
        self.reach("quarantined");
        self.quarantined.insert(place);
    }

    pub(super) fn noticed(&mut self, notices: Vec<ShardNotice>) {
        for notice in notices {
            self.reach(match notice {
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

    pub(super) fn reported(&mut self, report: &ShardReport) {
        let ShardReport::Event { meta, place: (round, _), .. } = report else { return };
        let stored = self.model.executions.get(&meta.execution).map_or(0, |one| one.stored.rounds.count());
        assert!(*round <= stored, "I30: an event of round {round} of {stored}");
        if *round == 1 && self.answered.insert(meta.execution.clone()) {
            self.reach("starts answered");
        }
    }

    pub(super) fn sent(&mut self, call: &Call) {
        let one = self.model.executions.get(&call.execution);
        let is_dispatched = one.is_some_and(|one| one.attempt_of(call.task.as_str()).is_some());
        assert!(is_dispatched, "I2: task {} of {} was not dispatched", call.task, call.execution);
        self.reach("tasks sent");
        self.sent.insert(call.task.clone());
    }

    /// Returns true if the deadline of a task has passed: agents do not start it.
    pub(super) fn is_late(&self, execution: &ExecutionId, task: &TaskId, now: Time) -> bool {
        let one = self.model.executions.get(execution);
        let attempt = one.and_then(|one| one.attempt_of(task.as_str()));
        attempt.and_then(|(_, attempt)| attempt.deadline).is_some_and(|deadline| deadline <= now)
    }

    /// Checks a message of a stored commit: a task is sent only if the journal awaits its result.
    pub(super) fn released(&self, outgoing: &Outgoing) {
        let Outgoing::Task { call, .. } = outgoing else { return };
        let one = &self.model.executions[&call.execution];
        let Some(((act, attempt), _)) = one.attempt_of(call.task.as_str()) else { return };
        let act = one.machine.state().act(act);
        let is_awaited = act.running == Some(attempt) && act.phase == ActivationPhase::Running;
        assert!(is_awaited, "I33: {} is sent although it is over", call.task);
    }

    /// Checks that an agent may take a task from its queue.
    pub(super) fn taken(&mut self, execution: &ExecutionId, task: &TaskId) {
        let is_open = self.model.executions.get(execution).is_some_and(|one| one.is_open);
        assert!(is_open, "I33: {task} is taken although {execution} is closed");
    }

    pub(super) fn archived(&mut self, record: &ExecutionRecord) {
        let one = &self.model.executions[&record.meta.execution];
        let stored = one.stored.record();
        let told = record.rounds.len();
        assert_eq!(record.rounds[..], stored.rounds[..told], "I1: the archive tells what the journal tells");
        self.reach("archived");
    }

    /// Handles a stored commit.
    pub(super) fn committed(&mut self, bus: &Bus, shard: u32, body: &Bytes) {
        self.now = bus.now;
        let commit = Commit::decode(body).unwrap();
        for entry in &commit.entries {
            self.entry(bus, shard, entry);
        }
        self.check_positions(bus, shard, commit.positions);
    }

    fn check_positions(&mut self, bus: &Bus, shard: u32, now: Positions) {
        let before = self.positions.insert(shard, now).unwrap_or_default();
        assert!(now.commands >= before.commands && now.results >= before.results, "I11: positions go back");
        let ends = (bus.commands.len() as u64, bus.results.len() as u64);
        assert!(now.commands <= ends.0 && now.results <= ends.1, "I11: positions beyond the streams");
        for seq in before.commands..now.commands {
            let message = &bus.commands[seq as usize];
            let Subject::Command { shard: of, operation, caller, id } = &message.subject else { continue };
            // A callee's report has no verdict, because it may have no effect.
            if *of != shard
                || *operation == Operation::Wait
                || self.quarantined.contains(&(InputStream::Commands, seq + 1))
            {
                continue;
            }
            let command = Command::read(*operation, id, &message.body).unwrap();
            let execution = command.execution();
            let has_begun = *operation == Operation::Start && self.model.executions.contains_key(execution);
            let key = (execution.clone(), caller.clone(), id.clone());
            let is_decided = has_begun || self.model.verdicts.contains_key(&key);
            assert!(is_decided, "I11: {operation:?} of {execution} was passed and not decided");
        }
    }

    /// Compares the usage in the archive of an execution with the stored results of agents: one
    /// turn for each. A quarantined result need not count.
    fn check_usage(&self, bus: &Bus, one: &ModelExecution) {
        let (mut fewest, mut most) = (0, 0);
        for (nth, message) in bus.results.iter().enumerate() {
            let Subject::Result { agent, execution, task, token, .. } = &message.subject else { continue };
            let asked = one.attempt_of(task.as_str()).and_then(|(_, attempt)| attempt.agent.as_ref());
            let is_proved = *execution == one.stored.meta.execution && token.proves(&key(), task);
            let body: serde_json::Value = serde_json::from_slice(&message.body).unwrap_or_default();
            if is_proved && asked == Some(agent) && !body["usage"].is_null() {
                let is_quarantined = self.quarantined.contains(&(InputStream::Results, nth as u64 + 1));
                (fewest, most) = (fewest + u64::from(!is_quarantined), most + 1);
            }
        }
        let counted = archived_turns(bus, one);
        let is_right = (fewest..=most).contains(&counted);
        assert!(is_right, "I34: {counted} turns, not {fewest} to {most}, of {}", one.describe());
    }

    fn entry(&mut self, bus: &Bus, shard: u32, entry: &Entry) {
        let id = &entry.execution;
        if entry.kind != EntryKind::Checkpoint {
            entry.commands.iter().for_each(|verdict| self.verdict(id, verdict));
        }
        match entry.kind {
            EntryKind::Closed => return self.closed(bus, id),
            EntryKind::Checkpoint => self.checkpoint(bus, shard, entry),
            EntryKind::Rounds => {
                if let Some(meta) = entry.meta.clone().filter(|_| !entry.rounds.is_empty()) {
                    assert!(!self.model.executions.contains_key(id), "I1: {id} begins twice");
                    self.model.executions.insert(id.clone(), ModelExecution::new(shard, meta));
                }
            }
        }
        if entry.kind == EntryKind::Checkpoint {
            return;
        }
        let Some(mut one) = self.model.executions.remove(id) else {
            assert!(entry.rounds.is_empty(), "I1: rounds of {id}, which has not begun");
            return;
        };
        assert!(one.is_open || entry.rounds.is_empty(), "I8: rounds of {id}, which is closed");
        assert_eq!(one.shard, shard, "I6: {id} has one shard");
        if let Some(hold) = entry.hold.clone().filter(|_| one.is_open) {
            let deaths = self.deaths.get(&(shard, WorkItem::Execution(id.clone()))).copied();
            let deaths = deaths.unwrap_or_default();
            assert!(deaths >= MAX_ITEM_DEATHS, "I22: {id} is held after {deaths} deaths");
            one.stored.hold = Some(hold);
            self.reach("held");
        }
        if one.is_open {
            one.stored.verdicts.extend(entry.commands.iter().cloned());
        }
        for round in &entry.rounds {
            assert!(one.stored.hold.is_none(), "I22: {id} is held and worked on");
            self.round(bus, &mut one, round);
        }
        self.model.executions.insert(id.clone(), one);
    }

    fn closed(&mut self, bus: &Bus, id: &ExecutionId) {
        let Some(one) = self.model.executions.get_mut(id) else { return };
        assert!(one.is_open && one.has_ended, "I1: {id} is closed before its end");
        let archived = bus.history.get(id).map_or(0, |record| record.rounds.len());
        let ended = one.rounds_until_end;
        assert!(archived >= ended, "I1: {id} is closed with {archived} of {ended} rounds archived");
        if let Some(parent) = &one.stored.meta.parent {
            let subject = Subject::parse("ns", &parent.result_subject).unwrap();
            let answer = bus.result(&subject);
            assert!(answer.is_some(), "I29: {id} is closed and its parent has no answer");
        }
        one.is_open = false;
        self.reach("closed");
    }

    /// Checks that a checkpoint repeats the known rounds; it may add new ones.
    fn checkpoint(&mut self, bus: &Bus, shard: u32, entry: &Entry) {
        let id = &entry.execution;
        self.reach("checkpoints");
        let meta = entry.meta.clone().unwrap();
        let Some(mut one) = self.model.executions.remove(id) else {
            // Started in the same commit.
            let mut one = ModelExecution::new(shard, meta);
            entry.rounds.iter().for_each(|round| self.round(bus, &mut one, round));
            return self.keep_checkpoint(one, entry);
        };
        assert_eq!(*one.stored.meta, meta, "I31: an execution keeps its plan and caller");
        let known: Vec<Bytes> = one.stored.rounds.to_rounds();
        // A closed execution is restored from its archive, which may omit what followed its end.
        let kept = if one.is_open { known.len() } else { one.rounds_until_end };
        assert!(entry.rounds.starts_with(&known[..kept]), "I6: a checkpoint of {id} changes the past");
        let forgets = one.is_open && !entry.commands.starts_with(&one.stored.verdicts);
        assert!(!forgets, "I6: a checkpoint of {id} forgets verdicts");
        if kept < known.len() && !entry.rounds.starts_with(&known) {
            one = ModelExecution::new(shard, meta);
            for round in &entry.rounds[..kept] {
                one.fold(round).unwrap().facts.iter().for_each(|fact| one.take(fact));
            }
        }
        for round in &entry.rounds[one.stored.rounds.count()..] {
            self.round(bus, &mut one, round);
        }
        self.keep_checkpoint(one, entry);
    }

    fn keep_checkpoint(&mut self, mut one: ModelExecution, entry: &Entry) {
        let id = &entry.execution;
        let accepted = entry.commands.iter().filter(|verdict| verdict.accepted);
        let keys: Vec<_> = accepted.map(|verdict| (&verdict.caller, &verdict.id)).collect();
        let different: BTreeSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len(), "I17: a command on {id} is obeyed twice");
        for verdict in &entry.commands {
            let key = (id.clone(), verdict.caller.clone(), verdict.id.clone());
            self.model.verdicts.entry(key).or_insert_with(|| verdict.clone());
        }
        one.stored.verdicts.clone_from(&entry.commands);
        one.stored.hold.clone_from(&entry.hold);
        one.is_open = true;
        self.model.executions.insert(id.clone(), one);
    }

    fn verdict(&mut self, execution: &ExecutionId, verdict: &Verdict) {
        let key = (execution.clone(), verdict.caller.clone(), verdict.id.clone());
        let is_start = verdict.op == Operation::Start;
        assert!(!(is_start && verdict.accepted), "I1: starts are accepted by their execution");
        let before = self.model.verdicts.insert(key, verdict.clone());
        let is_repeated = verdict.accepted && before.is_some_and(|before| before.accepted);
        assert!(!is_repeated, "I17: command {} on {execution} is obeyed twice", verdict.id);
    }

    fn round(&mut self, bus: &Bus, one: &mut ModelExecution, bytes: &[u8]) {
        let round = one.fold(bytes);
        let round =
            round.unwrap_or_else(|error| panic!("I7: a round of {} does not fold: {error}", one.describe()));
        assert!(round.at <= self.now, "I15: {} has a round of the future", one.describe());
        for fact in &round.facts {
            self.fact(bus, one, round.at, fact);
            one.take(fact);
        }
        assert!(one.items_in_flight() <= MAP_LIMIT, "I20: {}", one.describe());
    }

    fn fact(&mut self, bus: &Bus, one: &ModelExecution, at: Time, fact: &Fact) {
        let id = &one.stored.meta.execution;
        let may_follow_end = matches!(fact, Fact::Late { .. } | Fact::Reopened { .. });
        assert!(!one.has_ended || may_follow_end, "I17: {fact:?} follows the end of {id}");
        match fact {
            Fact::Started(start) => {
                let is_child = one.stored.meta.parent.is_some();
                assert!(is_child || start.chain.is_empty(), "I29: a caller claims the chain of {id}");
            }
            Fact::Dispatched { act, attempt, tries, .. } => {
                assert!(!one.is_paused, "I18: {id} is paused and sends a task");
                assert!(*tries <= MAX_TRIES, "I21: try {tries} of {id}");
                let before = one.attempts.range((*act, 0)..(*act, *attempt)).next_back();
                let is_next = before.is_none_or(|((_, nth), before)| nth + 1 == *attempt && before.has_reply);
                assert!(is_next, "I9: attempt {attempt} of {id} begins before the end of the last one");
            }
            Fact::Replied { act, attempt, result, .. } => {
                let attempted = one.attempts.get(&(*act, *attempt));
                let attempted = attempted.unwrap_or_else(|| panic!("I2: an answer without a task: {id}"));
                assert!(!attempted.has_reply, "I5: attempt {attempt} of {id} ends twice");
                match result {
                    Ok(reply) => check_reply(one, (*act, *attempt), &reply.output),
                    Err(fault) if fault.code == ATTEMPT_TIMED_OUT => {
                        let is_early = attempted.deadline.is_some_and(|deadline| at < deadline);
                        assert!(!is_early, "I14: an attempt of {id} times out early");
                        check_timeout(bus, one, attempted);
                        self.reach("timeouts");
                    }
                    Err(_) => self.reach("failed attempts"),
                }
                if attempted.agent.is_some() && !is_timeout(result) {
                    let is_sent = self.sent.contains(&attempted.task);
                    assert!(is_sent, "I3: {id} has the answer to a task that was never sent");
                }
            }
            Fact::Completed { act, .. } => {
                assert!(!one.completed.contains(act), "I5: activation {act} of {id} completes twice");
                let until = one.slept.get(act);
                assert!(until.is_none_or(|until| at >= *until), "I14: {id} wakes early");
            }
            Fact::Late { usage, .. } => {
                self.reach("late facts");
                if !usage.is_null() {
                    self.reach(if one.has_ended { "usage after an end" } else { "late usage" });
                }
            }
            Fact::Ended => self.reach("ended"),
            Fact::Reopened { .. } => self.reach("reopened"),
            _ => {}
        }
    }

    /// Checks the final state after all work has completed.
    pub(super) fn finished(&self, bus: &Bus) {
        for (id, one) in &self.model.executions {
            assert!(!one.is_open, "I1: {} has not ended", one.describe());
            let archived = bus.history[id].rounds.len();
            assert!(archived >= one.rounds_until_end, "I1: the last end of {id} is archived");
            check_child(bus, one);
            self.check_usage(bus, one);
        }
        for execution in &self.answered {
            assert!(
                self.model.executions.contains_key(execution),
                "I1: {execution} was answered and is gone"
            );
        }
        for message in &bus.commands {
            let Subject::Command { operation: Operation::Start, caller, id, .. } = &message.subject else {
                continue;
            };
            let execution = ExecutionId::parse(id.as_str()).unwrap();
            let key = (execution.clone(), caller.clone(), id.clone());
            let begun = self.model.executions.get(&execution);
            let is_refused = self.model.verdicts.contains_key(&key);
            assert!(begun.is_some() || is_refused, "I1: the start of {execution} was lost");
            let is_other = begun
                .is_some_and(|one| one.stored.meta.parent.is_none() && one.stored.meta.caller != *caller);
            assert!(!is_other || is_refused, "I32: {caller} starts {execution}, which is another caller's");
        }
    }
}

/// Returns the number of model turns in the archive of an execution.
fn archived_turns(bus: &Bus, one: &ModelExecution) -> u64 {
    let mut machine: Machine<()> = one.program.machine();
    for round in &bus.history[&one.stored.meta.execution].rounds {
        machine.replay_round(&decode_round(round).unwrap()).unwrap();
    }
    execution_usage(machine.state()).turns
}

/// Compares the result that a parent received with the end of the child.
fn check_child(bus: &Bus, one: &ModelExecution) {
    let Some(parent) = &one.stored.meta.parent else { return };
    let is_reopened = one.machine.state().reopened > 0;
    let Some(outcome) = one.machine.state().outcome.as_ref().filter(|_| !is_reopened) else { return };
    let subject = Subject::parse("ns", &parent.result_subject).unwrap();
    let answer = bus.result(&subject).unwrap();
    let answer: serde_json::Value = serde_json::from_slice(answer).unwrap();
    let succeeded = child_result(outcome).is_ok();
    let told = answer["status"] == "success";
    assert_eq!(told, succeeded, "I29: {} told its parent another end", one.describe());
}

/// An attempt times out only if its result was not stored before its deadline.
fn check_timeout(bus: &Bus, one: &ModelExecution, attempted: &ModelAttempt) {
    let (Some(agent), Some(deadline)) = (attempted.agent.clone(), attempted.deadline) else { return };
    let (execution, task) = (one.stored.meta.execution.clone(), attempted.task.clone());
    let (shard, token) = (one.shard, ResultToken::of(&key(), &task));
    let stored = bus.result_message(&Subject::Result { shard, agent, execution, task, token });
    let in_time = stored.is_some_and(|result| result.at < deadline);
    assert!(!in_time, "I16: {} loses a result that was stored in time", one.describe());
}

fn is_timeout<T>(result: &Result<T, sinew_protocol::Fault>) -> bool {
    matches!(result, Err(fault) if fault.code == ATTEMPT_TIMED_OUT)
}

/// An attempt ends with the result of its own task, from the called agent.
fn check_reply(one: &ModelExecution, of: (ActivationId, u32), output: &serde_json::Value) {
    let id = &one.stored.meta.execution;
    assert!(output["forged"].is_null(), "I13: a forged result counts for {id}");
    let Some(task) = output["task"].as_str() else { return };
    let asked: Option<((ActivationId, u32), &ModelAttempt)> = one.attempt_of(task);
    assert_eq!(asked.map(|(of, _)| of), Some(of), "I12: {id} takes the answer to another task");
}
