//! The log of a conversation at work: taken up behind what earlier processes wrote, and lost to the next one.

use sinew_model::{BeginStep, ConversationEnd, ConversationState, KeptArtifact, StepBody, StepRecord};
use sinew_protocol::{Fault, code};

use super::conversation::now_ms;
use super::session::EarlierTurns;
use crate::error::AgentError;
use crate::steps::{StepAppend, Steps};

/// Processes that may take a conversation up one after the other while this one begins.
const MAX_BEGIN_TRIES: u32 = 16;

/// The log of a conversation that this process holds.
pub(super) struct ConversationLog<'a> {
    steps: &'a dyn Steps,
    by: String,
    /// Records in the log.
    places: u64,
    /// The fold of the log.
    pub(super) state: ConversationState,
    /// Turns that were in the log when the work began.
    pub(super) replayed: u32,
    /// Artifacts that earlier processes stored.
    pub(super) artifacts: Vec<KeptArtifact>,
}

impl<'a> ConversationLog<'a> {
    /// Reads the log and writes a begin behind it, unless an earlier delivery of the same task reached the end.
    pub(super) async fn take_up(
        steps: &'a dyn Steps,
        begin: &BeginStep,
        earlier: &EarlierTurns<'_>,
    ) -> Result<Self, AgentError> {
        let by = writer_name();
        for _ in 0..MAX_BEGIN_TRIES {
            let records = steps.read().await?;
            let state = ConversationState::fold(&records);
            let is_over = ended_before(&state, begin);
            let is_other = |known: &BeginStep| known.request != begin.request || known.agent != begin.agent;
            let reset = !is_over
                && (state.begin.as_ref().is_some_and(is_other) || state.end.is_some() && !can_go_on(&state));
            let artifacts = if reset { Vec::new() } else { kept_artifacts(&records) };
            let (places, replayed) = (records.len() as u64, state.totals.turns);
            let mut log = Self { steps, by: by.clone(), places, state, replayed, artifacts };
            if is_over {
                return Ok(log);
            }
            // A conversation that goes on holds what it began with.
            let is_new = reset || log.state.begin.is_none();
            let session = if is_new { earlier.read().await? } else { Vec::new() };
            // A record that is not seen yet, or one of a process that begins at the same time, is read first.
            if log.write(StepBody::Begin(BeginStep { reset, session, ..begin.clone() })).await?
                == StepAppend::Stored
            {
                return Ok(log);
            }
        }
        Err(lost(steps))
    }

    /// Writes a record behind the log. Fails if another process has taken the conversation up.
    pub(super) async fn append(&mut self, body: StepBody) -> Result<(), AgentError> {
        match self.write(body).await? {
            StepAppend::Stored => Ok(()),
            StepAppend::Taken => Err(lost(self.steps)),
        }
    }

    async fn write(&mut self, body: StepBody) -> Result<StepAppend, AgentError> {
        let record = StepRecord { by: self.by.clone(), at: now_ms(), body };
        let outcome = self.steps.append(self.places, record.clone()).await?;
        if outcome == StepAppend::Stored {
            self.places += 1;
            self.state.apply(&record);
        }
        Ok(outcome)
    }
}

/// Whether an earlier delivery of the same task reached the end.
fn ended_before(state: &ConversationState, begin: &BeginStep) -> bool {
    let same = |known: &BeginStep| {
        known.task == begin.task && known.request == begin.request && !begin.task.is_empty()
    };
    state.end.is_some() && state.begin.as_ref().is_some_and(same)
}

fn can_go_on(state: &ConversationState) -> bool {
    matches!(&state.end, Some(ConversationEnd::Fault(fault)) if fault.retryable)
}

/// Artifacts of the part of a log that counts.
fn kept_artifacts(records: &[StepRecord]) -> Vec<KeptArtifact> {
    let mut kept = Vec::new();
    for record in records {
        match &record.body {
            StepBody::Begin(begin) if begin.reset => kept.clear(),
            StepBody::Artifacts { artifacts } => kept.extend(artifacts.iter().cloned()),
            _ => {}
        }
    }
    kept
}

fn lost(steps: &dyn Steps) -> AgentError {
    steps.give_way();
    let text = "another process holds this conversation now";
    Fault::error(code::CONVERSATION_TAKEN_OVER.as_str(), text).into()
}

/// A name for the writer of records that no other process has.
fn writer_name() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}
