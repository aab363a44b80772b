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

/// Most items of one group while a new owner catches up.
pub const MAX_CAREFUL_BATCH: usize = 64;

/// A group of work that is in hand together. `M` is a message as the shell holds it.
#[derive(Debug)]
pub struct WorkGroup<M> {
    /// The pieces of work, to be noted before they are touched.
    pub items: Vec<WorkItem>,
    /// Executions whose deadlines have passed.
    pub due: Vec<ExecutionId>,
    /// Inputs that are complete.
    pub inputs: Vec<ShardInput>,
    /// Messages that have not been decoded.
    pub messages: Vec<M>,
}

/// The care of one owner for one shard.
#[derive(Debug)]
pub struct TakeoverGuard {
    note: TakeoverNote,
    /// Whether the stored note names something that its owner no longer has in hand.
    is_stale: bool,
    /// Messages that waited at the takeover and have not been taken yet.
    waiting: u64,
    /// Whether some of the work that waited at the takeover may not be done yet.
    catches_up: bool,
    /// Executions whose directly called agents or scripts were asked again: the answer may be what ended the last owner.
    watched: HashSet<ExecutionId>,
}

impl TakeoverGuard {
    /// Returns the care of a process that finds this stored note. `died` says that a loop of the same process ended in a
    /// panic; otherwise a note of the same process is of a loop that lost the shard and lives.
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

    /// Takes items in hand; returns the note to store before any of them is touched.
    pub fn hold(&mut self, items: &[WorkItem]) -> Bytes {
        self.note.hold(items);
        self.encode()
    }

    /// Lets go of what is in hand: the work on it has ended well. The stored note says so with the next write.
    pub fn pass(&mut self) {
        self.note.pass();
    }

    /// Lets go of what is in hand; returns the note to store.
    pub fn release(&mut self) -> Bytes {
        self.note.pass();
        self.encode()
    }

    /// Notes that the last returned note was stored.
    pub fn handle_stored(&mut self) {
        self.is_stale = !self.note.is_blank();
    }

    /// Returns true if the stored note has to be cleared although there is no work to take up. Otherwise the next owner
    /// would read that an execution is condemned, which an operator may have resumed since.
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Begins the part in which messages are taken: so many wait.
    pub fn expect(&mut self, messages: u64) {
        self.waiting = messages;
    }

    /// Counts messages that have been taken.
    pub fn took(&mut self, messages: usize) {
        self.waiting = self.waiting.saturating_sub(messages as u64);
    }

    /// Ends the care once no message that waited at the takeover is left and nothing is due; returns true if the note has
    /// to be released. Executions whose answers are watched for stay suspect until the answer has been taken.
    pub fn check_end(&mut self, is_due: bool) -> bool {
        let is_answered = self.watched.is_empty() && self.note.is_suspicious();
        if self.waiting > 0 || is_due || !(self.catches_up || is_answered) {
            return false;
        }
        self.catches_up = false;
        self.note.forget_except(&self.watched)
    }

    /// Returns how many messages one turn may take.
    pub fn batch(&self, usual: usize) -> usize {
        if self.catches_up { MAX_CAREFUL_BATCH } else { usual }
    }

    /// Watches for the first answer of an agent that is called directly.
    pub fn watch(&mut self, execution: ExecutionId) {
        self.watched.insert(execution);
    }

    /// Returns true if the next work has to be noted: work that waited at the takeover, or a watched execution among
    /// these.
    pub fn is_needed<'a>(&mut self, executions: impl Iterator<Item = &'a ExecutionId>) -> bool {
        let answered = executions.filter(|execution| self.watched.remove(*execution)).count();
        self.catches_up || answered > 0
    }

    /// Forgets a condemned item that the journal names now.
    pub fn settle(&mut self, item: &WorkItem) {
        self.note.settle(item);
    }

    /// Splits the work of one turn into groups, each of which is noted before it is touched: deadlines first, then inputs
    /// that are complete, then messages in their order. Inputs without an execution change nothing and are left out.
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

/// Returns the note without work in hand, for a process that stops its work on a shard and lives; `None` if the stored
/// note needs no change. A note of another process stays.
pub fn own_note_cleared(stored: &[u8], process: &str) -> Option<Bytes> {
    let mut note = TakeoverNote::decode(stored);
    if note.is_blank() || note.is_of_another(process) {
        return None;
    }
    note.pass();
    Some(note.encode().into())
}
