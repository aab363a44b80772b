//! Executors of the simulation: the rules of the crate, driven as the executor's shell drives them.
//!
//! Every step writes at most once to the bus, so a process can be killed between any two writes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sinew_engine::Time;
use sinew_protocol::journal::Commit;

use super::bus::Bus;
use super::dice::Dice;
use super::model::Model;
use super::running::RunningShard;
use super::{LEASE, SHARDS};
use crate::care::TakeoverCare;
use crate::journal_reader::JournalReader;
use crate::manager::{LoopEnd, ManagerAction, ShardManager};
use crate::opening::ShardOpening;
use crate::outgoing::Outgoing;
use crate::state::ShardConfig;
use crate::tests::kit::program_by_digest;

/// Milliseconds between two heartbeats.
const HEARTBEAT_INTERVAL: Time = 400;
/// Bytes below which journals are not compacted, and bytes that active executions may take: small, so that both happen.
const SMALL_BYTES: (usize, usize) = (1_500, 9_000);

/// Effect of a step on the process itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepOutcome {
    /// It goes on.
    Alive,
    /// Something that it touched ended it.
    Died,
    /// It has left.
    Left,
}

/// One executor.
pub(super) struct Process {
    pub(super) id: String,
    /// Distinguishes it from the process that had its name before.
    incarnation: String,
    manager: ShardManager,
    loops: BTreeMap<u32, LoopStage>,
    stops: BTreeMap<u32, bool>,
    actions: VecDeque<ManagerAction>,
    next_heartbeat: Time,
    /// Until when it stands still, as after SIGSTOP.
    pub(super) stopped_until: Time,
    pub(super) is_leaving: bool,
    /// The shard that has a suspect in hand.
    alone: Option<u32>,
}

enum LoopStage {
    Waits { until: Time, died: bool },
    Opens(Box<OpeningShard>),
    Runs(Box<RunningShard>),
}

/// A shard that is being opened.
struct OpeningShard {
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
}

impl Process {
    pub(super) fn new(id: &str, incarnation: u64) -> Self {
        Self {
            id: id.to_owned(),
            incarnation: format!("{id}-{incarnation}"),
            manager: ShardManager::new(id, SHARDS.try_into().unwrap(), LEASE),
            loops: BTreeMap::new(),
            stops: BTreeMap::new(),
            actions: VecDeque::new(),
            next_heartbeat: 0,
            stopped_until: 0,
            is_leaving: false,
            alone: None,
        }
    }

    /// Shards whose loops are open.
    pub(super) fn open_shards(&self) -> impl Iterator<Item = u32> {
        let open = self.loops.iter().filter(|(_, stage)| matches!(stage, LoopStage::Runs(_)));
        open.map(|(shard, _)| *shard)
    }

    /// How the process stands, in words.
    pub(super) fn describe(&self, bus: &Bus) -> String {
        let stage = |(shard, stage): (&u32, &LoopStage)| match stage {
            LoopStage::Waits { .. } => format!("{shard} waits"),
            LoopStage::Opens(_) => format!("{shard} opens"),
            LoopStage::Runs(running) => format!("{shard} runs: {}", running.describe(bus)),
        };
        let loops: Vec<String> = self.loops.iter().map(stage).collect();
        format!(
            "{} leaving {} alone {:?}: {loops:?} {:?}",
            self.id, self.is_leaving, self.alone, self.manager
        )
    }

    /// Whether an open shard has read and sent everything.
    pub(super) fn is_done(&self, shard: u32, bus: &Bus) -> bool {
        match self.loops.get(&shard) {
            Some(LoopStage::Runs(running)) => running.is_done(bus),
            _ => false,
        }
    }

    pub(super) fn leave(&mut self) {
        self.is_leaving = true;
        self.actions.extend(self.manager.leave());
    }

    /// Opens all shards again: a stream was made anew.
    pub(super) fn reopen(&mut self) {
        if !self.is_leaving {
            self.actions.extend(self.manager.handle_new_stream());
        }
    }

    /// Does one thing.
    pub(super) fn step(&mut self, bus: &mut Bus, model: &mut Model, dice: &mut Dice) -> StepOutcome {
        if let Some(action) = self.actions.pop_front() {
            self.perform(bus, action);
            return StepOutcome::Alive;
        }
        if self.is_leaving && self.loops.is_empty() {
            bus.heartbeats.remove(&self.id);
            return StepOutcome::Left;
        }
        if bus.now >= self.next_heartbeat && !self.is_leaving {
            self.next_heartbeat = bus.now + HEARTBEAT_INTERVAL;
            bus.beat(&self.id);
            let view = bus.fleet();
            let actions = self.manager.handle_fleet(Duration::from_millis(bus.now), &view);
            for action in &actions {
                if let ManagerAction::Claim { shard, revision } = action {
                    model.check_claim(bus, *shard, &self.id, *revision);
                }
            }
            self.actions.extend(actions);
            return StepOutcome::Alive;
        }
        let shards: Vec<u32> = self.loops.keys().copied().collect();
        if shards.is_empty() {
            return StepOutcome::Alive;
        }
        let shard = dice.pick(&shards);
        let Some(stage) = self.loops.remove(&shard) else { return StepOutcome::Alive };
        let is_stopped = self.stops.get(&shard).copied().unwrap_or_default();
        match self.step_loop(bus, model, dice, shard, stage, is_stopped) {
            Ok(stage) => drop(self.loops.insert(shard, stage)),
            Err(None) => return StepOutcome::Died,
            Err(Some(end)) => {
                self.stops.remove(&shard);
                if self.alone == Some(shard) {
                    self.alone = None;
                }
                self.actions.extend(self.manager.handle_end(shard, end));
            }
        }
        StepOutcome::Alive
    }

    fn perform(&mut self, bus: &mut Bus, action: ManagerAction) {
        match action {
            ManagerAction::Open { shard, pause, died } => {
                let until = bus.now + pause.as_millis() as Time;
                self.loops.insert(shard, LoopStage::Waits { until, died });
                self.stops.insert(shard, false);
            }
            ManagerAction::Stop(shard) => drop(self.stops.insert(shard, true)),
            ManagerAction::Claim { shard, revision } => {
                let won = bus.claim(shard, &self.id, revision);
                self.actions.extend(self.manager.handle_claimed(shard, won));
            }
            ManagerAction::Release(shard) => bus.release(shard, &self.id),
            ManagerAction::ReadOwner(shard) => {
                let owner = bus.owners.get(&shard).and_then(|(owner, _)| owner.clone());
                self.actions.extend(self.manager.handle_owner(shard, owner.as_deref()));
            }
        }
    }

    fn step_loop(
        &mut self,
        bus: &mut Bus,
        model: &mut Model,
        dice: &mut Dice,
        shard: u32,
        stage: LoopStage,
        is_stopped: bool,
    ) -> Result<LoopStage, Option<LoopEnd>> {
        match stage {
            LoopStage::Waits { .. } | LoopStage::Opens(_) if is_stopped => Err(Some(LoopEnd::Drained)),
            LoopStage::Waits { until, died } if bus.now < until => Ok(LoopStage::Waits { until, died }),
            LoopStage::Waits { died, .. } => Ok(self.open(bus, model, shard, died)),
            LoopStage::Opens(opening) => self.step_opening(bus, model, shard, opening),
            LoopStage::Runs(mut running) => {
                running.step(&mut self.alone, bus, model, dice, is_stopped)?;
                Ok(LoopStage::Runs(running))
            }
        }
    }

    /// Reads the journal of a shard.
    fn open(&self, bus: &Bus, model: &mut Model, shard: u32, died: bool) -> LoopStage {
        let mut reader = JournalReader::default();
        let mut bytes = 0;
        for (seq, body) in bus.journals.get(&shard).into_iter().flatten() {
            bytes += body.len();
            reader.read(*seq, Commit::decode(body).unwrap());
        }
        model.check_replay(shard, &reader);
        let positions = model.positions_to_read(shard, reader.positions());
        let (note, revision) = bus.note(shard);
        model.note_read(shard, &note, &self.incarnation);
        let care = TakeoverCare::new(&note, &self.incarnation, died);
        let config = ShardConfig {
            compaction_threshold_bytes: SMALL_BYTES.0,
            memory_limit_bytes: SMALL_BYTES.1,
            ..crate::tests::kit::config(&self.id, shard, SHARDS)
        };
        let position = bus.position(shard);
        let opening = ShardOpening::new(Arc::new(config), reader, care, positions, position, bytes);
        let (step, again) = (OpeningStep::Claim, Vec::new());
        LoopStage::Opens(Box::new(OpeningShard { opening, revision, step, again }))
    }

    fn step_opening(
        &mut self,
        bus: &mut Bus,
        model: &mut Model,
        shard: u32,
        mut one: Box<OpeningShard>,
    ) -> Result<LoopStage, Option<LoopEnd>> {
        let OpeningShard { opening, revision, step, again } = &mut *one;
        *step = match step {
            OpeningStep::Claim => {
                let claim = opening.claim();
                let seq = bus.append(shard, claim.after, claim.body.clone()).ok_or(Some(LoopEnd::Fenced))?;
                model.committed(bus, shard, &claim.body);
                opening.handle_claimed(seq);
                match (opening.is_without_work(), opening.care().is_stale()) {
                    (true, false) => return Ok(finish(bus, *one)),
                    (true, true) => OpeningStep::Release,
                    (false, _) => OpeningStep::NoteGroup,
                }
            }
            OpeningStep::NoteGroup => match opening.next_group() {
                Some(items) if may_hold(&mut self.alone, shard, opening.care()) => {
                    let body = opening.care().hold(&items);
                    *revision = bus.put_note(shard, body, *revision).ok_or(Some(LoopEnd::Fenced))?;
                    opening.care().handle_stored();
                    OpeningStep::FoldGroup
                }
                Some(_) => OpeningStep::NoteGroup,
                None => OpeningStep::Release,
            },
            OpeningStep::FoldGroup => {
                let items = opening.next_group().unwrap_or_default();
                if items.iter().any(|item| model.kills(item)) {
                    return Err(None);
                }
                for outgoing in opening.fold_group(program_by_digest) {
                    if let Outgoing::Task { call, .. } = &outgoing
                        && call.ask.target.name() == "direct"
                    {
                        opening.care().watch(call.execution.clone());
                    }
                    again.push(outgoing);
                }
                opening.care().pass();
                OpeningStep::NoteGroup
            }
            OpeningStep::Release => {
                let body = opening.care().release();
                *revision = bus.put_note(shard, body, *revision).ok_or(Some(LoopEnd::Fenced))?;
                opening.care().handle_stored();
                if self.alone == Some(shard) {
                    self.alone = None;
                }
                return Ok(finish(bus, *one));
            }
        };
        Ok(LoopStage::Opens(one))
    }
}

fn finish(bus: &Bus, one: OpeningShard) -> LoopStage {
    let (state, care) = one.opening.finish();
    LoopStage::Runs(Box::new(RunningShard::new(bus, state, care, one.revision, one.again)))
}

/// Whether a shard may take work in hand now: of two shards of a process with a suspect, one waits.
pub(super) fn may_hold(alone: &mut Option<u32>, shard: u32, care: &TakeoverCare) -> bool {
    if !care.note().is_suspicious() {
        return true;
    }
    *alone.get_or_insert(shard) == shard
}
