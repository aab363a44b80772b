//! A bus in memory: streams whose subjects are written once, journals with a fence, and the executors' bucket.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use sinew_engine::Time;
use sinew_protocol::journal::ExecutionRecord;
use sinew_protocol::{ExecutionId, Subject};

use crate::intake::InputStream;
use crate::membership::{FleetView, LastHeartbeat, ShardOwners};

/// A stored message.
#[derive(Clone, Debug)]
pub(super) struct BusMessage {
    pub(super) subject: Subject,
    pub(super) body: Bytes,
}

/// A stored heartbeat.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredHeartbeat {
    revision: u64,
    pub(super) at: Time,
}

/// The bus.
#[derive(Default)]
pub(super) struct Bus {
    /// The broker's clock, in milliseconds.
    pub(super) now: Time,
    pub(super) commands: Vec<BusMessage>,
    pub(super) results: Vec<BusMessage>,
    pub(super) tasks: BTreeMap<String, BusMessage>,
    /// Messages of each shard's journal, with their sequences.
    pub(super) journals: BTreeMap<u32, Vec<(u64, Bytes)>>,
    pub(super) history: BTreeMap<ExecutionId, Bytes>,
    pub(super) owners: ShardOwners,
    pub(super) heartbeats: BTreeMap<String, StoredHeartbeat>,
    /// Takeover notes of shards, with their revisions.
    pub(super) notes: BTreeMap<u32, (Bytes, u64)>,
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

    /// Stores a message unless its subject has one; returns whether it did.
    pub(super) fn put_once(&mut self, stream: InputStream, subject: Subject, body: Bytes) -> bool {
        let stored = match stream {
            InputStream::Commands => &mut self.commands,
            InputStream::Results => &mut self.results,
        };
        let is_new = stored.iter().all(|message| message.subject != subject);
        if is_new {
            stored.push(BusMessage { subject, body });
        }
        is_new
    }

    /// Position of a journal: the sequence of its last message.
    pub(super) fn position(&self, shard: u32) -> u64 {
        self.journals.get(&shard).and_then(|journal| journal.last()).map_or(0, |(seq, _)| *seq)
    }

    /// Appends to a journal, if it ends at `after`. `u64::MAX` stands for an append without a condition.
    pub(super) fn append(&mut self, shard: u32, after: u64, body: Bytes) -> Option<u64> {
        if after != u64::MAX && after != self.position(shard) {
            return None;
        }
        self.sequence += 1;
        self.journals.entry(shard).or_default().push((self.sequence, body));
        Some(self.sequence)
    }

    /// Removes messages below a sequence; the last one stays.
    pub(super) fn purge(&mut self, shard: u32, below: u64) {
        let last = self.position(shard);
        if let Some(journal) = self.journals.get_mut(&shard) {
            journal.retain(|(seq, _)| *seq >= below.min(last));
        }
    }

    pub(super) fn beat(&mut self, id: &str) {
        self.revision += 1;
        self.heartbeats.insert(id.to_owned(), StoredHeartbeat { revision: self.revision, at: self.now });
    }

    pub(super) fn fleet(&self) -> FleetView {
        let newest = self.heartbeats.values().map(|beat| beat.at).max().unwrap_or_default();
        let member = |beat: &StoredHeartbeat| LastHeartbeat {
            revision: beat.revision,
            silent: Duration::from_millis(newest - beat.at),
        };
        let members = self.heartbeats.iter().map(|(id, beat)| (id.clone(), member(beat))).collect();
        FleetView { members, owners: self.owners.clone() }
    }

    /// Records an owner, if the record has this revision.
    pub(super) fn claim(&mut self, shard: u32, id: &str, revision: u64) -> bool {
        let record = self.owners.entry(shard).or_default();
        if record.1 != revision {
            return false;
        }
        self.revision += 1;
        *record = (Some(id.to_owned()), self.revision);
        true
    }

    /// Gives a shard back, if it is this executor's.
    pub(super) fn release(&mut self, shard: u32, id: &str) {
        if let Some(record) = self.owners.get_mut(&shard)
            && record.0.as_deref() == Some(id)
        {
            self.revision += 1;
            *record = (None, self.revision);
        }
    }

    /// Archives a record. A record with fewer rounds than the archived one is of an earlier end, and comes too late.
    pub(super) fn archive(&mut self, record: &ExecutionRecord) {
        let archived = self.history.get(&record.meta.execution);
        let archived = archived.map(|body| ExecutionRecord::decode(body).unwrap());
        if archived.is_none_or(|archived| archived.rounds.len() <= record.rounds.len()) {
            self.history.insert(record.meta.execution.clone(), record.encode());
        }
    }

    pub(super) fn note(&self, shard: u32) -> (Bytes, u64) {
        self.notes.get(&shard).cloned().unwrap_or_default()
    }

    /// Stores a note, if the stored one has this revision; returns the new revision.
    pub(super) fn put_note(&mut self, shard: u32, body: Bytes, revision: u64) -> Option<u64> {
        if self.note(shard).1 != revision {
            return None;
        }
        self.revision += 1;
        self.notes.insert(shard, (body, self.revision));
        Some(self.revision)
    }
}
