//! The notes of this process in the executors' bucket about the work in progress of its shards.
//!
//! [`TakeoverGuard`] decides the content of a note and when it is written. If another owner has
//! advanced the revision, this owner is fenced.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sinew_mesh::{MeshError, crash};
use sinew_shard::{TakeoverGuard, WorkItem, own_note_cleared};
use tokio::sync::OwnedMutexGuard;
use tracing::warn;

use super::Shared;
use super::intake::Handle;
use super::shard_end::End;

/// Clears the note of this process about a shard, because a live process that stops its work there
/// is no crashed owner. A note of another process remains.
pub(super) async fn clear_own_note(shared: &Shared, shard: u32) -> Result<(), MeshError> {
    let fleet = shared.mesh.fleet();
    let (body, revision) = fleet.takeover_note(shard).await?;
    if let Some(cleared) = own_note_cleared(&body, &shared.process) {
        fleet.put_takeover_note(shard, cleared, revision).await?;
    }
    Ok(())
}

/// The stored note of one shard.
pub(super) struct StoredNote {
    shared: Handle,
    shard: u32,
    /// Revision of the stored note: another owner that advances it fences this one.
    revision: u64,
    /// Held while a suspect is being processed. With one in progress in each of two shards of a
    /// process, the cause of a crash would be ambiguous.
    alone: Option<OwnedMutexGuard<()>>,
}

impl StoredNote {
    /// Reads the note of the previous owner. `died` means that a loop of this process ended in a
    /// panic.
    pub(super) async fn open(shared: &Handle, shard: u32, died: bool) -> Result<(Self, TakeoverGuard), End> {
        let (body, revision) = shared.mesh.fleet().takeover_note(shard).await?;
        let guard = TakeoverGuard::new(&body, &shared.process, died);
        if guard.note().is_suspicious() {
            warn!(
                shard,
                "the previous owner stopped while it caught up; processing its messages in small groups"
            );
        }
        Ok((Self { shared: Arc::clone(shared), shard, revision, alone: None }, guard))
    }

    /// Notes that these items are being processed. They must not be processed before.
    pub(super) async fn hold(&mut self, guard: &mut TakeoverGuard, items: &[WorkItem]) -> Result<(), End> {
        if guard.note().is_suspicious() && self.alone.is_none() {
            self.alone = Some(Arc::clone(&self.shared.suspect_work).lock_owned().await);
        }
        let body = guard.hold(if crash::is_told() { &[] } else { items });
        self.write(guard, body).await
    }

    /// Notes that nothing is being processed.
    pub(super) async fn release(&mut self, guard: &mut TakeoverGuard) -> Result<(), End> {
        let body = guard.release();
        self.write(guard, body).await?;
        self.alone = None;
        Ok(())
    }

    /// Notes that this owner is alive and processes nothing, if the broker is reachable in time.
    pub(super) async fn leave(&mut self, guard: &mut TakeoverGuard, limit: Duration) {
        if guard.is_stale() {
            let _ = tokio::time::timeout(limit, self.release(guard)).await;
        }
    }

    async fn write(&mut self, guard: &mut TakeoverGuard, body: Bytes) -> Result<(), End> {
        let stored = self.shared.mesh.fleet().put_takeover_note(self.shard, body, self.revision).await?;
        self.revision = stored.ok_or(End::Fenced)?;
        guard.handle_stored();
        Ok(())
    }
}
