//! Protection of a takeover against work that crashes its owner: work is noted before it is
//! processed.
//!
//! The notes cost two writes for each group of work until the messages that waited at the takeover
//! are part of the journal, and nothing afterwards. See [`TakeoverNote`]. The shell stores the
//! returned notes before it continues.

use std::collections::HashSet;

use bytes::Bytes;
use sinew_protocol::ExecutionId;

use crate::intake::ShardInput;
use crate::takeover_note::{TakeoverNote, WorkItem};

/// Maximum group size while a new owner catches up.
pub const MAX_CAREFUL_BATCH: usize = 64;

/// A group of work that is processed together. `M` is the shell's type for messages.
#[derive(Debug)]
pub struct WorkGroup<M> {
    /// The work items, to be noted before they are processed.
    pub items: Vec<WorkItem>,
    /// Executions whose deadlines have passed.
    pub due: Vec<ExecutionId>,
    /// Inputs that are complete.
    pub inputs: Vec<ShardInput>,
    /// Messages that have not been decoded.
    pub messages: Vec<M>,
}

/// Protection of one owner's takeover of one shard.
#[derive(Debug)]
pub struct TakeoverGuard {
    note: TakeoverNote,
    /// Whether the stored note names work that is no longer in progress.
    is_stale: bool,
    /// Messages that were pending at the takeover and have not been processed yet.
    waiting: u64,
    /// Whether some of the work that was pending at the takeover may be incomplete.
    catches_up: bool,
    /// Executions whose direct calls or scripts were repeated: the result may have crashed the last
    /// owner.
    watched: HashSet<ExecutionId>,
}

impl TakeoverGuard {
    /// Creates the guard of a process that reads this stored note. `died` states that a loop of the
    /// same process panicked; otherwise a note of the same process is from a loop that lost the
    /// shard without a crash.
    pub fn new(stored: &[u8], process: &str, died: bool) -> Self {
        let stored = TakeoverNote::decode(stored);
        let is_stale = !stored.is_blank();
        let ended = died || stored.is_of_another(process);
        let note = stored.succeed(process, ended);
        Self { note, is_stale, waiting: 0, catches_up: true, watched: HashSet::new() }
    }

    /// Returns the note.
    pub fn note(&self) -> &TakeoverNote {
        &self.note
    }

    /// Marks items as in progress; returns the note to store before any of them is processed.
    pub fn hold(&mut self, items: &[WorkItem]) -> Bytes {
        self.note.hold(items);
        self.encode()
    }

    /// Marks the items in progress as completed. The next write of the note includes this.
    pub fn pass(&mut self) {
        self.note.pass();
    }

    /// Marks the items in progress as completed; returns the note to store.
    pub fn release(&mut self) -> Bytes {
        self.note.pass();
        self.encode()
    }

    /// Records that the last returned note was stored.
    pub fn handle_stored(&mut self) {
        self.is_stale = !self.note.is_blank();
    }

    /// Returns true if the stored note has to be cleared although no work is pending. Otherwise the
    /// next owner would consider an execution condemned that an operator may have resumed since.
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Sets the number of pending messages, before they are processed.
    pub fn expect(&mut self, messages: u64) {
        self.waiting = messages;
    }

    /// Counts processed messages.
    pub fn took(&mut self, messages: usize) {
        self.waiting = self.waiting.saturating_sub(messages as u64);
    }

    /// Ends the protection after all messages pending at the takeover were processed and no
    /// deadline has passed; returns true if the note has to be released. Watched executions remain
    /// suspects until their result was processed.
    pub fn check_end(&mut self, is_due: bool) -> bool {
        let is_answered = self.watched.is_empty() && self.note.is_suspicious();
        if self.waiting > 0 || is_due || !(self.catches_up || is_answered) {
            return false;
        }
        self.catches_up = false;
        self.note.forget_except(&self.watched)
    }

    /// Returns the maximum number of messages per turn.
    pub fn batch(&self, usual: usize) -> usize {
        if self.catches_up { MAX_CAREFUL_BATCH } else { usual }
    }

    /// Watches for the first result of a directly called agent.
    pub fn watch(&mut self, execution: ExecutionId) {
        self.watched.insert(execution);
    }

    /// Returns true if the next work has to be noted: work that was pending at the takeover, or one
    /// of these executions is watched.
    pub fn is_needed<'a>(&mut self, executions: impl Iterator<Item = &'a ExecutionId>) -> bool {
        let answered = executions.filter(|execution| self.watched.remove(*execution)).count();
        self.catches_up || answered > 0
    }

    /// Forgets a condemned item after the journal includes it.
    pub fn settle(&mut self, item: &WorkItem) {
        self.note.settle(item);
    }

    /// Splits the work of one turn into groups, each of which is noted before it is processed:
    /// deadlines first, then complete inputs, then messages in order. Inputs without an execution
    /// change nothing and are omitted.
    pub fn split_turn<M>(
        &self,
        due: Vec<ExecutionId>,
        inputs: Vec<ShardInput>,
        messages: Vec<M>,
        item_of: impl Fn(&M) -> WorkItem,
    ) -> Vec<WorkGroup<M>> {
        let mut groups = Vec::new();
        for due in self.note.split(due, MAX_CAREFUL_BATCH, |one| WorkItem::Execution(one.clone())) {
            let items = due.iter().cloned().map(WorkItem::Execution).collect();
            groups.push(WorkGroup { items, due, inputs: Vec::new(), messages: Vec::new() });
        }
        let inputs = inputs.into_iter().filter_map(|one| Some((one.execution()?.clone(), one)));
        let inputs = inputs.map(|(execution, one)| (WorkItem::Execution(execution), one));
        for group in self.note.split(inputs, MAX_CAREFUL_BATCH, |(item, _)| item.clone()) {
            let (items, inputs) = group.into_iter().unzip();
            groups.push(WorkGroup { items, due: Vec::new(), inputs, messages: Vec::new() });
        }
        for messages in self.note.split(messages, MAX_CAREFUL_BATCH, &item_of) {
            let items = messages.iter().map(&item_of).collect();
            groups.push(WorkGroup { items, due: Vec::new(), inputs: Vec::new(), messages });
        }
        groups
    }

    fn encode(&self) -> Bytes {
        self.note.encode().into()
    }
}

/// Returns the note without work in progress, for a process that stops working on a shard without a
/// crash; `None` if the stored note needs no change. A note of another process is unchanged.
pub fn own_note_cleared(stored: &[u8], process: &str) -> Option<Bytes> {
    let mut note = TakeoverNote::decode(stored);
    if note.is_blank() || note.is_of_another(process) {
        return None;
    }
    note.pass();
    Some(note.encode().into())
}
