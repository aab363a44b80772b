//! The log of a running conversation. A process that takes it over fences earlier ones.
//!
//! Nested conversations write to the log of their parent, each under the key of its call.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sinew_model::{ConversationEnd, ConversationState, KeptArtifact, StartStep, StepBody, StepRecord};
use sinew_protocol::{Fault, code};
use tokio::sync::Mutex;

use super::conversation::now_ms;
use super::past_events::past_events;
use super::session::EarlierTurns;
use crate::error::AgentError;
use crate::steps::{StepAppend, Steps};

/// Maximum attempts to take over a conversation while other processes take it over too.
const MAX_BEGIN_TRIES: u32 = 16;

/// How long a waiting conversation keeps its state in memory: for short waits, reading the log again
/// costs more than it saves.
const KEPT_WHILE_WAITING: Duration = Duration::from_secs(1);

/// The log that a conversation shares with those nested in it.
pub(super) struct SharedLog {
    steps: Arc<dyn Steps>,
    by: String,
    tail: Mutex<LogTail>,
}

struct LogTail {
    /// Number of records in the log.
    places: u64,
    /// Records of nested conversations that this process has not resumed, by the key of their call.
    nested: HashMap<String, Vec<StepRecord>>,
}

/// The part of a log that belongs to one conversation of this process.
pub(super) struct ConversationLog {
    shared: Arc<SharedLog>,
    /// Key of the call that started a nested conversation.
    within: Option<String>,
    /// The fold of the log; that of an empty log while the state is dropped.
    pub(super) state: ConversationState,
    is_forgotten: bool,
    /// Turns in the log when this process resumed the conversation.
    pub(super) replayed: u32,
    /// Artifacts that earlier processes stored.
    pub(super) artifacts: Vec<KeptArtifact>,
    /// Events of calls that earlier processes made.
    pub(super) past_events: Vec<Value>,
}

impl ConversationLog {
    /// Reads the log and appends a start record, unless an earlier delivery of the task has ended it.
    pub(super) async fn take_up(
        steps: Arc<dyn Steps>,
        begin: &StartStep,
        earlier: &EarlierTurns<'_>,
    ) -> Result<Self, AgentError> {
        let by = writer_name();
        // The log of a new task is empty; skip reading it. The append fails if this is wrong.
        let mut is_first = begin.attempt <= 1 && begin.delivery <= 1 && steps.is_shared();
        for _ in 0..MAX_BEGIN_TRIES {
            let records = if is_first { Vec::new() } else { steps.read().await? };
            is_first = false;
            let state = ConversationState::fold(&records);
            let Some(reset) = resets(&state, begin) else {
                return Ok(Self::at(steps, by, records, state));
            };
            // A continued conversation keeps the session of its start record.
            let is_new = reset || state.begin.is_none();
            let session = if is_new { earlier.read().await? } else { Vec::new() };
            let mut log = Self::at(Arc::clone(&steps), by.clone(), records, state);
            if reset {
                log.artifacts.clear();
                log.past_events.clear();
            }
            // If the position is taken, another process has written a record: read the log again.
            if log.write(StepBody::Begin(StartStep { reset, session, ..begin.clone() })).await?
                == StepAppend::Stored
            {
                return Ok(log);
            }
        }
        Err(taken_over(steps.as_ref()))
    }

    fn at(steps: Arc<dyn Steps>, by: String, records: Vec<StepRecord>, state: ConversationState) -> Self {
        let (places, replayed) = (records.len() as u64, state.totals.turns);
        let (artifacts, past_events) = (kept_artifacts(&records), past_events(&records, None));
        let mut nested: HashMap<String, Vec<StepRecord>> = HashMap::new();
        for record in records {
            if let Some(key) = record.within.clone() {
                nested.entry(key).or_default().push(record);
            }
        }
        let tail = Mutex::new(LogTail { places, nested });
        let shared = Arc::new(SharedLog { steps, by, tail });
        Self { shared, within: None, state, is_forgotten: false, replayed, artifacts, past_events }
    }

    /// Resumes the nested conversation of the call with this key.
    pub(super) async fn nested(
        shared: &Arc<SharedLog>,
        key: &str,
        begin: &StartStep,
    ) -> Result<Self, AgentError> {
        let records = shared.tail.lock().await.nested.remove(key).unwrap_or_default();
        let state = ConversationState::fold_within(&records, Some(key));
        let (reset, replayed) = (resets(&state, begin), state.totals.turns);
        let (shared, within) = (Arc::clone(shared), Some(key.to_owned()));
        let past_events = if reset == Some(true) { Vec::new() } else { past_events(&records, Some(key)) };
        let artifacts = Vec::new();
        let mut log = Self { shared, within, state, is_forgotten: false, replayed, artifacts, past_events };
        if let Some(reset) = reset {
            log.append(StepBody::Begin(StartStep { reset, ..begin.clone() })).await?;
        }
        Ok(log)
    }

    /// Returns the log for nested conversations.
    pub(super) fn shared(&self) -> Arc<SharedLog> {
        Arc::clone(&self.shared)
    }

    /// Appends a record. Fails if another process has taken over the conversation.
    pub(super) async fn append(&mut self, body: StepBody) -> Result<(), AgentError> {
        match self.write(body).await? {
            StepAppend::Stored => Ok(()),
            StepAppend::Taken => Err(taken_over(self.shared.steps.as_ref())),
        }
    }

    async fn write(&mut self, body: StepBody) -> Result<StepAppend, AgentError> {
        let shared = Arc::clone(&self.shared);
        let mut tail = shared.tail.lock().await;
        let record = StepRecord { by: shared.by.clone(), at: now_ms(), within: self.within.clone(), body };
        let outcome = shared.steps.append(tail.places, record.clone()).await?;
        if outcome == StepAppend::Stored {
            tail.places += 1;
            if !self.is_forgotten {
                self.state.apply(&record);
            }
        }
        Ok(outcome)
    }

    /// Awaits a future. During a long wait, drops the state until [`recall`](Self::recall) folds the
    /// log again. With a log in memory, keeps the state, because dropping it would save nothing.
    pub(super) async fn forgetting<F: Future>(&mut self, waiting: F) -> F::Output {
        let mut waiting = std::pin::pin!(waiting);
        if let Ok(output) = tokio::time::timeout(KEPT_WHILE_WAITING, &mut waiting).await {
            return output;
        }
        if self.shared.steps.is_shared() {
            self.state = ConversationState::default();
            self.is_forgotten = true;
        }
        waiting.await
    }

    /// Returns whether the state is in memory.
    pub(super) fn has_state(&self) -> bool {
        !self.is_forgotten
    }

    /// Folds the log again if the state was dropped. Fails if another process has written to the log.
    pub(super) async fn recall(&mut self) -> Result<(), AgentError> {
        if !self.is_forgotten {
            return Ok(());
        }
        let tail = self.shared.tail.lock().await;
        let records = self.shared.steps.read().await?;
        if records.len() as u64 != tail.places {
            return Err(taken_over(self.shared.steps.as_ref()));
        }
        self.state = ConversationState::fold_within(&records, self.within.as_deref());
        self.is_forgotten = false;
        Ok(())
    }
}

/// Returns whether a start record discards earlier turns; `None` if an earlier delivery of the same
/// task reached the end.
fn resets(state: &ConversationState, begin: &StartStep) -> Option<bool> {
    if ended_before(state, begin) {
        return None;
    }
    let is_other = |known: &StartStep| known.request != begin.request || known.agent != begin.agent;
    Some(state.begin.as_ref().is_some_and(is_other) || state.end.is_some() && !can_go_on(state))
}

/// Returns whether an earlier delivery of the same task reached the end.
fn ended_before(state: &ConversationState, begin: &StartStep) -> bool {
    let same = |known: &StartStep| {
        known.task == begin.task && known.request == begin.request && !begin.task.is_empty()
    };
    state.end.is_some() && state.begin.as_ref().is_some_and(same)
}

fn can_go_on(state: &ConversationState) -> bool {
    matches!(&state.end, Some(ConversationEnd::Fault(fault)) if fault.retryable)
}

/// Returns the artifacts of a log since its last reset.
fn kept_artifacts(records: &[StepRecord]) -> Vec<KeptArtifact> {
    let mut kept = Vec::new();
    for record in records {
        match &record.body {
            StepBody::Begin(begin) if begin.reset && record.within.is_none() => kept.clear(),
            StepBody::Artifacts { artifacts } => kept.extend(artifacts.iter().cloned()),
            _ => {}
        }
    }
    kept
}

fn taken_over(steps: &dyn Steps) -> AgentError {
    steps.give_way();
    let text = "another process holds this conversation now";
    Fault::error(code::CONVERSATION_TAKEN_OVER.as_str(), text).into()
}

/// Returns a unique name for the writer of records.
fn writer_name() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}
