//! The opening of a shard as the executor's shell drives it: every step writes at most once.

use std::sync::Arc;

use sinew_protocol::journal::Commit;

use super::SHARDS;
use super::hostile::{HostileMesh, Interrupt};
use super::shard_loop::ShardLoop;
use crate::journal_reader::JournalReader;
use crate::opening::ShardOpening;
use crate::outgoing::Outgoing;
use crate::state::ShardConfig;
use crate::takeover_guard::TakeoverGuard;
use crate::tests::kit::{config, program_by_digest};

/// Low compaction threshold of journals, so that they are compacted.
const COMPACTION_BYTES: usize = 1_500;
/// Low memory limit of active executions, so that they are evicted.
const MEMORY_BYTES: usize = 9_000;

/// A shard that is being opened.
pub(super) struct OpeningLoop {
    opening: ShardOpening,
    revision: u64,
    step: OpeningStep,
    /// Messages to send again.
    again: Vec<Outgoing>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OpeningStep {
    Claim,
    NoteGroup,
    FoldGroup,
    Release,
    Done,
}

/// The shard of a process with a suspect in progress: with two, a crash could not be attributed to
/// one of them.
pub(super) type SuspectPosition = Option<u32>;

/// Returns true if a shard may start work now.
pub(super) fn may_hold(place: &mut SuspectPosition, shard: u32, guard: &TakeoverGuard) -> bool {
    !guard.note().is_suspicious() || *place.get_or_insert(shard) == shard
}

/// Releases the slot.
pub(super) fn leave_place(place: &mut SuspectPosition, shard: u32) {
    place.take_if(|taken| *taken == shard);
}

impl OpeningLoop {
    /// Reads the journal of a shard and the note of its last owner.
    pub(super) fn new(mesh: &mut HostileMesh, id: &str, process: &str, shard: u32, died: bool) -> Self {
        let mut reader = JournalReader::default();
        let mut bytes = 0;
        for (seq, body) in mesh.bus.journals.get(&shard).into_iter().flatten() {
            bytes += body.len();
            reader.read(*seq, Commit::decode(body).unwrap());
        }
        mesh.invariants.replayed(shard, &reader);
        let positions = mesh.invariants.positions_to_read(shard, reader.positions());
        let (note, revision) = mesh.bus.note(shard);
        mesh.invariants.note_read(shard, &note, process);
        let guard = TakeoverGuard::new(&note, process, died);
        let config = ShardConfig {
            compaction_threshold_bytes: COMPACTION_BYTES,
            memory_limit_bytes: MEMORY_BYTES,
            ..config(id, shard, SHARDS)
        };
        let position = mesh.bus.position(shard);
        let opening = ShardOpening::new(Arc::new(config), reader, guard, positions, position, bytes);
        Self { opening, revision, step: OpeningStep::Claim, again: Vec::new() }
    }

    /// Executes one step; returns true once the shard is open.
    pub(super) fn step(
        &mut self,
        mesh: &mut HostileMesh,
        place: &mut SuspectPosition,
        shard: u32,
    ) -> Result<bool, Interrupt> {
        let opening = &mut self.opening;
        self.step = match self.step {
            OpeningStep::Claim => {
                let seq = mesh.append(shard, &opening.claim())?;
                opening.handle_claimed(seq);
                self.again = opening.rejected_children();
                match (opening.is_without_work(), opening.guard().is_stale()) {
                    (true, false) => OpeningStep::Done,
                    (true, true) => OpeningStep::Release,
                    (false, _) => OpeningStep::NoteGroup,
                }
            }
            OpeningStep::NoteGroup => match opening.next_group() {
                Some(items) if may_hold(place, shard, opening.guard()) => {
                    let body = opening.guard().hold(&items);
                    mesh.put_note(shard, body, &mut self.revision)?;
                    opening.guard().handle_stored();
                    OpeningStep::FoldGroup
                }
                Some(_) => OpeningStep::NoteGroup,
                None => OpeningStep::Release,
            },
            OpeningStep::FoldGroup => {
                mesh.touch(&opening.next_group().unwrap_or_default())?;
                for outgoing in opening.fold_group(program_by_digest) {
                    if let Outgoing::Task { call, .. } = &outgoing
                        && call.ask.target.name() == "direct"
                    {
                        opening.guard().watch(call.execution.clone());
                    }
                    self.again.push(outgoing);
                }
                opening.guard().pass();
                OpeningStep::NoteGroup
            }
            OpeningStep::Release => {
                let body = opening.guard().release();
                mesh.put_note(shard, body, &mut self.revision)?;
                opening.guard().handle_stored();
                leave_place(place, shard);
                OpeningStep::Done
            }
            OpeningStep::Done => OpeningStep::Done,
        };
        Ok(self.step == OpeningStep::Done)
    }

    /// Returns the open shard.
    pub(super) fn finish(self, mesh: &HostileMesh) -> ShardLoop {
        let (state, guard) = self.opening.finish();
        ShardLoop::new(mesh, state, guard, self.revision, self.again)
    }
}
