//! The session of a conversation: reads earlier turns and appends a new one.

use serde_json::Value;
use sinew_model::{CappedResult, ConversationEnd, ConversationState, SessionTurn, cap_result};

use super::ModelAgent;
use super::endpoint::ModelEndpoint;
use super::setup::{message_of, user_message};
use crate::call::Call;
use crate::error::AgentError;

/// Default maximum of earlier conversations in a prompt.
pub(crate) const DEFAULT_TURNS: u32 = 20;
/// Maximum bytes of the input, and of the output, of an earlier conversation.
const MAX_TURN_BYTES: usize = 16 << 10;
/// Number of last conversations to search for one that has ended.
const MAX_LOOK_BACK: u32 = 32;
/// Divisor of a model's context for the size limit of earlier conversations.
const MAX_CONTEXT_PART: u64 = 4;
/// Approximate bytes of a token.
const BYTES_PER_TOKEN: u64 = 3;

/// The earlier conversations at the start of a new one.
pub(super) struct EarlierTurns<'a> {
    pub(super) agent: &'a ModelAgent,
    pub(super) call: &'a Call,
    pub(super) models: &'a [&'a ModelEndpoint],
}

impl EarlierTurns<'_> {
    /// Reads the last conversations of the session that fit.
    pub(super) async fn read(&self) -> Result<Vec<SessionTurn>, AgentError> {
        let Some(session) = &self.call.session else { return Ok(Vec::new()) };
        let turns = self.agent.session.map_or(DEFAULT_TURNS, |rule| rule.turns);
        let mut turns = session.last(turns).await?;
        let context = self.models.iter().map(|model| model.spec.context).min().unwrap_or(0);
        let mut room = usize::try_from(context / MAX_CONTEXT_PART * BYTES_PER_TOKEN).unwrap_or(usize::MAX);
        // Newest first, so that the oldest are omitted if not all fit.
        let fitting = turns.iter().rev().take_while(|turn| {
            let size = turn.input.len() + turn.output.len();
            let fits = size <= room;
            room = room.saturating_sub(size);
            fits
        });
        let fitting = fitting.count();
        Ok(turns.split_off(turns.len() - fitting))
    }
}

/// Returns the record of a conversation for its session; `None` if it has no output.
pub(super) fn session_turn(
    state: &ConversationState,
    call: &Call,
    activation: &str,
    output: &Value,
    at: u64,
) -> Option<SessionTurn> {
    if matches!(state.end, Some(ConversationEnd::Fault(_)) | None) {
        return None;
    }
    Some(SessionTurn {
        activation: activation.to_owned(),
        at,
        input: shortened(&message_of(call)),
        output: shortened(&user_message(output)),
        tainted: state.tainted || state.session.iter().any(|turn| turn.tainted),
    })
}

/// Appends a conversation to its session, unless an earlier process did so after it stored the end.
pub(super) async fn leave_turn(call: &Call, turn: SessionTurn, was_over: bool) -> Result<(), AgentError> {
    let Some(session) = &call.session else { return Ok(()) };
    if was_over {
        let known = session.last(MAX_LOOK_BACK).await?;
        if known.iter().any(|one| one.activation == turn.activation) {
            return Ok(());
        }
    }
    Ok(session.append(turn).await?)
}

fn shortened(text: &str) -> String {
    match cap_result(&Value::String(text.to_owned()), MAX_TURN_BYTES) {
        CappedResult::Whole(_) => text.to_owned(),
        CappedResult::Cut(text) => text,
    }
}
