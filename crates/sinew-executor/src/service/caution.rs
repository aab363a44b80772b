//! The care with which a new owner catches up: what it has in hand is noted before it is touched.
//!
//! Costs two writes for each group of work until the messages that waited at the takeover are part of the journal, and
//! nothing after that. See [`TakeoverNote`].

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use sinew_mesh::{MeshError, crash};
use sinew_protocol::ExecutionId;
use tokio::sync::OwnedMutexGuard;
use tracing::warn;

use super::Shared;
use super::intake::Handle;
use super::shard::End;
use sinew_shard::{TakeoverNote, WorkItem};

/// Clears what this process has noted about a shard. The process stops its work there and lives, so that what it has in
/// hand ends no owner. A note of another process stays.
pub(super) async fn clear_own_note(shared: &Shared, shard: u32) -> Result<(), MeshError> {
    let fleet = shared.mesh.fleet();
    let (body, revision) = fleet.takeover_note(shard).await?;
    let mut note = TakeoverNote::decode(&body);
    if !note.is_blank() && !note.is_of_another(&shared.process) {
        note.pass();
        fleet.put_takeover_note(shard, note.encode().into(), revision).await?;
    }
    Ok(())
}

/// The note of one shard, as its owner keeps it.
pub(super) struct Caution {
    shared: Handle,
    shard: u32,
    note: TakeoverNote,
    /// Of the stored note: another owner that has written one fences this one.
    revision: u64,
    /// Whether the stored note names something that its owner no longer has in hand.
    is_stale: bool,
    /// Messages that waited at the takeover and have not been taken yet.
    waiting: u64,
    /// Whether some of the work that waited at the takeover may not be done yet.
    catches_up: bool,
    /// Executions whose directly called agents or scripts were asked again: the answer may be what ended the last owner.
    watched: HashSet<ExecutionId>,
    /// Held while a suspect is in hand. Of two shards of one process that have one in hand, neither could be told from
    /// the other.
    alone: Option<OwnedMutexGuard<()>>,
}

impl Caution {
    /// Reads what the predecessor had in hand. `died` says that a loop of this process ended in a panic; otherwise a note
    /// of this process is of a loop that lost the shard and lives.
    pub(super) async fn open(shared: &Handle, shard: u32, died: bool) -> Result<Self, End> {
        let (body, revision) = shared.mesh.fleet().takeover_note(shard).await?;
        let stored = TakeoverNote::decode(&body);
        let is_stale = !stored.is_blank();
        let ended = died || stored.is_of_another(&shared.process);
        let note = stored.succeed(&shared.process, ended);
        if note.is_suspicious() {
            warn!(shard, "the last owner ended while it caught up; its work is taken up in small groups");
        }
        let (shared, watched) = (Arc::clone(shared), HashSet::new());
        let (waiting, catches_up, alone) = (0, true, None);
        Ok(Self { shared, shard, note, revision, is_stale, waiting, catches_up, watched, alone })
    }

    pub(super) fn note(&self) -> &TakeoverNote {
        &self.note
    }

    /// Notes that these items are in hand. Nothing of them may be touched before.
    pub(super) async fn hold(&mut self, items: &[WorkItem]) -> Result<(), End> {
        if self.note.is_suspicious() && self.alone.is_none() {
            self.alone = Some(Arc::clone(&self.shared.suspect_work).lock_owned().await);
        }
        self.note.hold(if crash::is_told() { &[] } else { items });
        self.write().await
    }

    /// Lets go of what is in hand: the work on it has ended well. The stored note says so with the next write.
    pub(super) fn pass(&mut self) {
        self.note.pass();
    }

    /// Notes that nothing is in hand.
    pub(super) async fn release(&mut self) -> Result<(), End> {
        self.note.pass();
        self.write().await?;
        self.alone = None;
        Ok(())
    }

    /// Clears a note of the predecessor when there is no work to take up. Otherwise the next owner would read that an
    /// execution is condemned, which an operator may have resumed since.
    pub(super) async fn clear_stale(&mut self) -> Result<(), End> {
        if self.is_stale { self.release().await } else { Ok(()) }
    }

    /// Says that this owner lives and has nothing in hand, if the broker can be told in time.
    pub(super) async fn leave(&mut self, limit: Duration) {
        if self.is_stale {
            let _ = tokio::time::timeout(limit, self.release()).await;
        }
    }

    async fn write(&mut self) -> Result<(), End> {
        let body = self.note.encode().into();
        match self.shared.mesh.fleet().put_takeover_note(self.shard, body, self.revision).await? {
            Some(revision) => (self.revision, self.is_stale) = (revision, !self.note.is_blank()),
            None => return Err(End::Fenced),
        }
        Ok(())
    }

    /// Begins the part in which messages are taken: so many wait.
    pub(super) fn expect(&mut self, messages: u64) {
        self.waiting = messages;
    }

    /// Counts messages that have been taken.
    pub(super) fn took(&mut self, messages: usize) {
        self.waiting = self.waiting.saturating_sub(messages as u64);
    }

    /// Ends the care once no message that waited at the takeover is left and nothing is due. Executions whose answers are
    /// watched for stay suspect until the answer has been taken.
    pub(super) async fn check_end(&mut self, is_due: bool) -> Result<(), End> {
        let answered = self.watched.is_empty() && self.note.is_suspicious();
        if self.waiting == 0 && !is_due && (self.catches_up || answered) {
            self.catches_up = false;
            if self.note.forget_except(&self.watched) {
                self.release().await?;
            }
        }
        Ok(())
    }

    /// Returns how many messages one turn may take.
    pub(super) fn batch(&self, usual: usize, careful: usize) -> usize {
        if self.catches_up { careful } else { usual }
    }

    /// Watches for the first answer of an agent that is called directly.
    pub(super) fn watch(&mut self, execution: ExecutionId) {
        self.watched.insert(execution);
    }

    /// Whether what comes next has to be noted: work that waited at the takeover, or a watched execution among these.
    pub(super) fn is_needed<'a>(&mut self, executions: impl Iterator<Item = &'a ExecutionId>) -> bool {
        let answered = executions.filter(|execution| self.watched.remove(*execution)).count();
        self.catches_up || answered > 0
    }

    /// Forgets a condemned item that the journal names now.
    pub(super) fn settle(&mut self, item: &WorkItem) {
        self.note.settle(item);
    }
}
