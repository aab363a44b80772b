//! Results of calls in a conversation: truncated for the model, or moved to artifacts.

use std::borrow::Cow;

use serde_json::{Value, json};
use sinew_model::{
    CallResult, CallStatus, CappedResult, EffectClass, MovedResult, StepBody, ToolCall, UnknownRule,
    cap_result, value_without_hidden,
};

use super::builtin_tools::BuiltinTool;
use super::conversation::Conversation;
use super::figures::note_tool_call;
use super::past_events::result_event;
use super::tool_calls::ToolOutcome;
use super::tools::DEFAULT_MAX_RESULT;
use crate::error::AgentError;

/// Note to the model about a call with side effects whose answer was lost.
const MAY_HAVE_ACTED: &str = "The call may have taken effect: check before you make it again.";

impl Conversation<'_> {
    /// Logs the result of a call. Returns its events: those of nested agents, and its result or error.
    pub(super) async fn take_result(
        &mut self,
        call: &ToolCall,
        (outcome, mut events): (ToolOutcome, Vec<Value>),
    ) -> Result<Vec<Value>, AgentError> {
        let result = self.result(call, outcome);
        if result.status == CallStatus::Unknown && self.agent.on_unknown == UnknownRule::Ask {
            // The call may have taken effect: a person decides whether to repeat it.
            self.record(StepBody::Question(call.position.clone())).await?;
            return Ok(events);
        }
        let source = self.tools.spec(call).map_or("other", |tool| tool.source.as_str());
        note_tool_call(source, result.status);
        self.keep_artifacts().await?;
        let event = result_event(&call.tool, result.status, &result.content);
        let size = result.content.to_string().len();
        self.say_event(&event, json!({"turn": call.position.turn, "bytes": size}));
        events.push(event);
        if let Some(recording) = &self.place.call.recording {
            recording.add_result(&call.tool, &result);
        }
        self.record(StepBody::Done { call: call.position.clone(), result }).await?;
        Ok(events)
    }

    /// Stores results that leave the prompt as artifacts, if the model has the tool to read them.
    pub(super) async fn move_results(&mut self, before: u32) -> Result<Vec<MovedResult>, AgentError> {
        let reads = BuiltinTool::ReadArtifact.name();
        if !self.tools.specs.iter().any(|tool| tool.source == format!("builtin:{reads}")) {
            return Ok(Vec::new());
        }
        let leaving = self.log.state.results_to_move(before);
        let moved = leaving.filter_map(|(turn, index, content)| {
            let stored = self.store_result(turn, index, content)?;
            Some(MovedResult { turn, index, artifact: stored })
        });
        let moved: Vec<MovedResult> = moved.collect();
        self.keep_artifacts().await?;
        Ok(moved)
    }

    /// Stores a result as an artifact; `None` if the store has no space for it.
    fn store_result(&self, turn: u32, index: u32, value: &Value) -> Option<String> {
        let (ending, bytes) = match value.as_str() {
            Some(text) => ("txt", Cow::Borrowed(text)),
            None => ("json", Cow::Owned(value.to_string())),
        };
        let name = format!("result-{turn}-{index}.{ending}");
        let stored = self.place.call.artifacts.put(&name, bytes.as_bytes(), None);
        stored.ok().map(|reference| reference.to_string())
    }

    /// Copies new artifacts to shared storage and records them in the log.
    async fn keep_artifacts(&mut self) -> Result<(), AgentError> {
        let artifacts = self.place.call.artifacts.store().await?;
        if artifacts.is_empty() { Ok(()) } else { self.record(StepBody::Artifacts { artifacts }).await }
    }

    /// Returns a result for the model: without hidden characters and secrets, truncated to the limit.
    fn result(&self, call: &ToolCall, outcome: ToolOutcome) -> CallResult {
        let tool = self.tools.spec(call);
        let (status, value) = match outcome.result {
            Ok(value) => (CallStatus::Succeeded, value),
            Err(reason) if outcome.is_lost && call.effect == EffectClass::Once => {
                (CallStatus::Unknown, format!("{reason}. {MAY_HAVE_ACTED}").into())
            }
            Err(reason) => (CallStatus::Failed, Value::String(reason)),
        };
        let value = self.secrets.hide_in_value(&value_without_hidden(&value));
        let max = tool.map_or(DEFAULT_MAX_RESULT, |tool| tool.max_result);
        let open = tool.is_none_or(|tool| tool.open);
        let (content, artifact) = match cap_result(&value, max) {
            CappedResult::Whole(content) => (content, None),
            CappedResult::Cut(text) => {
                (text.into(), self.store_result(call.position.turn, call.position.index, &value))
            }
        };
        let nested = self.tools.nested(&call.tool).is_some();
        let ToolOutcome { usage, waited_ms, discovered, .. } = outcome;
        CallResult {
            artifact,
            open,
            usage,
            nested,
            waited_ms,
            discovered,
            ..CallResult::new(status, content)
        }
    }
}
