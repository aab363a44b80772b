//! An in-memory bus: streams whose subjects are written once, fenced journals, the archive and the
//! fleet's bucket.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use bytes::Bytes;
use sinew_engine::Time;
use sinew_protocol::journal::ExecutionRecord;
use sinew_protocol::{ExecutionId, Subject, TaskId};

use crate::intake::{InboxMessage, InputStream};
use crate::membership::{FleetView, LastHeartbeat, ShardOwners};

/// A stored message.
#[derive(Clone, Debug)]
pub(super) struct BusMessage {
    pub(super) subject: Subject,
    pub(super) body: Bytes,
    /// When it was stored, by the broker's clock.
    pub(super) at: Time,
}

/// A position in one of the streams.
pub(super) type MessagePosition = (InputStream, u64);

/// A stored heartbeat.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredHeartbeat {
    revision: u64,
    pub(super) at: Time,
}

/// The bus. It never loses stored messages; faults occur between it and the processes.
#[derive(Default)]
pub(super) struct Bus {
    /// The broker's clock, in milliseconds.
    pub(super) now: Time,
    pub(super) commands: Vec<BusMessage>,
    pub(super) results: Vec<BusMessage>,
    /// Names of all subjects of tasks and streams, with the position of the message.
    places: HashMap<String, usize>,
    pub(super) tasks: Vec<BusMessage>,
    /// Tasks that were removed from their queues.
    pub(super) withdrawn: BTreeSet<TaskId>,
    /// Messages of each shard's journal, with their sequences.
    pub(super) journals: BTreeMap<u32, Vec<(u64, Bytes)>>,
    pub(super) history: BTreeMap<ExecutionId, ExecutionRecord>,
    pub(super) owners: ShardOwners,
    pub(super) heartbeats: BTreeMap<String, StoredHeartbeat>,
    /// Takeover notes of shards, with their revisions.
    notes: BTreeMap<u32, (Bytes, u64)>,
    sequence: u64,
    revision: u64,
}

impl Bus {
    pub(super) fn stream(&self, stream: InputStream) -> &[BusMessage] {
        match stream {
            InputStream::Commands => &self.commands,
            InputStream::Results => &self.results,
        }
    }

    /// Returns a message of a stream as an executor receives it.
    pub(super) fn message(&self, (stream, seq): MessagePosition) -> InboxMessage<'_> {
        let message = &self.stream(stream)[seq as usize - 1];
        let subject = Some(&message.subject);
        InboxMessage { stream, seq, subject, body: &message.body, traceparent: None }
    }

    /// Stores a command, a task or a result, unless its subject has a message; returns the stored
    /// body.
    pub(super) fn put_once(&mut self, subject: Subject, body: Bytes) -> &Bytes {
        let stream = match subject {
            Subject::Command { .. } => &mut self.commands,
            Subject::Task { .. } => &mut self.tasks,
            _ => &mut self.results,
        };
        let place = *self.places.entry(subject.name("ns")).or_insert(stream.len());
        if place == stream.len() {
            stream.push(BusMessage { subject, body, at: self.now });
        }
        &stream[place].body
    }

    /// Returns the body of the stored result with this subject.
    pub(super) fn result(&self, subject: &Subject) -> Option<&Bytes> {
        self.result_message(subject).map(|message| &message.body)
    }

    /// Returns the stored result with this subject.
    pub(super) fn result_message(&self, subject: &Subject) -> Option<&BusMessage> {
        let place = self.places.get(&subject.name("ns"))?;
        Some(&self.results[*place])
    }

    /// Returns the position of a journal: the sequence of its last message.
    pub(super) fn position(&self, shard: u32) -> u64 {
        self.journals.get(&shard).and_then(|journal| journal.last()).map_or(0, |(seq, _)| *seq)
    }

    /// Appends to a journal if it ends at `after`. `u64::MAX` appends unconditionally.
    pub(super) fn append(&mut self, shard: u32, after: u64, body: Bytes) -> Option<u64> {
        if after != u64::MAX && after != self.position(shard) {
            return None;
        }
        self.sequence += 1;
        self.journals.entry(shard).or_default().push((self.sequence, body));
        Some(self.sequence)
    }

    /// Removes messages below a sequence, except the last message.
    pub(super) fn purge(&mut self, shard: u32, below: u64) {
        let last = self.position(shard);
        if let Some(journal) = self.journals.get_mut(&shard) {
            journal.retain(|(seq, _)| *seq >= below.min(last));
        }
    }

    /// Archives a record, unless the archive has one with more entries.
    pub(super) fn archive(&mut self, record: ExecutionRecord) {
        let archived = self.history.get(&record.meta.execution).map(ExecutionRecord::entry_count);
        if archived.is_none_or(|archived| archived <= record.entry_count()) {
            self.history.insert(record.meta.execution.clone(), record);
        }
    }

    pub(super) fn heartbeat(&mut self, id: &str) {
        self.revision += 1;
        self.heartbeats.insert(id.to_owned(), StoredHeartbeat { revision: self.revision, at: self.now });
    }

    pub(super) fn fleet(&self) -> FleetView {
        let newest = self.heartbeats.values().map(|heartbeat| heartbeat.at).max().unwrap_or_default();
        let member = |heartbeat: &StoredHeartbeat| LastHeartbeat {
            revision: heartbeat.revision,
            silent: Duration::from_millis(newest - heartbeat.at),
        };
        let members = self.heartbeats.iter().map(|(id, beat)| (id.clone(), member(beat))).collect();
        FleetView { members, owners: self.owners.clone() }
    }

    /// Records an owner if the record has this revision.
    pub(super) fn claim(&mut self, shard: u32, id: &str, revision: u64) -> bool {
        let record = self.owners.entry(shard).or_default();
        if record.1 != revision {
            return false;
        }
        self.revision += 1;
        *record = (Some(id.to_owned()), self.revision);
        true
    }

    /// Releases a shard if this executor owns it.
    pub(super) fn release(&mut self, shard: u32, id: &str) {
        if let Some(record) = self.owners.get_mut(&shard)
            && record.0.as_deref() == Some(id)
        {
            self.revision += 1;
            *record = (None, self.revision);
        }
    }

    /// Returns the takeover note of a shard with its revision.
    pub(super) fn note(&self, shard: u32) -> (Bytes, u64) {
        self.notes.get(&shard).cloned().unwrap_or_default()
    }

    /// Stores a note if the stored one has this revision; returns the new revision.
    pub(super) fn put_note(&mut self, shard: u32, body: Bytes, revision: u64) -> Option<u64> {
        if self.note(shard).1 != revision {
            return None;
        }
        self.revision += 1;
        self.notes.insert(shard, (body, self.revision));
        Some(self.revision)
    }
}
