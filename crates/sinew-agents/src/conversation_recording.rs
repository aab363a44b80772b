//! Records conversations with real models as cases that a scripted model replays.

use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value, json};
use sinew_model::{CallResult, CallStatus, ConversationEnd, ModelRefusal, ModelTurn, Prompt};

/// Requests and answers of a conversation with a model, for a case that replays it. Secrets of
/// the agent file are redacted.
#[derive(Debug, Default)]
pub struct ConversationRecording(Mutex<RecordedParts>);

#[derive(Debug, Default)]
struct RecordedParts {
    /// Start of the conversation, in milliseconds since the Unix epoch.
    begun_at: u64,
    answers: Vec<Value>,
    /// Results by tool, in the order of the calls.
    tools: Map<String, Value>,
    calls: Vec<String>,
    /// Whether people approved, in the order of the questions.
    decisions: Vec<bool>,
    end: Option<Value>,
}

impl ConversationRecording {
    pub(crate) fn begin(&self, begun_at: u64) {
        self.change(|recorded| recorded.begun_at = begun_at);
    }

    /// Adds a request to a model and its result.
    pub(crate) fn add_answer(
        &self,
        prompt: &Prompt,
        answer: Result<&ModelTurn, &ModelRefusal>,
        hide: &dyn Fn(&Value) -> Value,
    ) {
        let mut entry = match answer {
            Ok(turn) => json!({ "turn": turn }),
            Err(refusal) => json!({ "miss": refusal }),
        };
        entry["prompt"] = prompt.recorded();
        let entry = hide(&entry);
        self.change(|recorded| recorded.answers.push(entry));
    }

    /// Adds the result of a call as the model received it.
    pub(crate) fn add_result(&self, tool: &str, result: &CallResult) {
        let mut entry = match result.status {
            CallStatus::Succeeded => json!({ "output": result.content }),
            _ => {
                json!({ "error": result.content.as_str().map_or_else(|| result.content.to_string(), str::to_owned) })
            }
        };
        if let Some(artifact) = &result.artifact {
            entry["artifact"] = artifact.clone().into();
        }
        self.change(|recorded| {
            recorded.calls.push(tool.to_owned());
            if let Some(list) = recorded.tools.entry(tool).or_insert_with(|| json!([])).as_array_mut() {
                list.push(entry);
            }
        });
    }

    pub(crate) fn add_decision(&self, tool: &str, is_question: bool, approved: bool, comment: Option<&str>) {
        self.change(|recorded| {
            if !is_question {
                recorded.decisions.push(approved);
                return;
            }
            recorded.calls.push(tool.to_owned());
            let words = comment.unwrap_or_default();
            let entry = if approved { json!({ "output": words }) } else { json!({ "error": words }) };
            if let Some(list) = recorded.tools.entry(tool).or_insert_with(|| json!([])).as_array_mut() {
                list.push(entry);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut RecordedParts)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn add_end(&self, end: &ConversationEnd, hide: &dyn Fn(&Value) -> Value) {
        let end = match end {
            ConversationEnd::Output(value) => json!({ "output": hide(value) }),
            ConversationEnd::Artifact(name) => json!({ "artifact": name }),
            ConversationEnd::Fault(fault) => json!({ "error": fault.code }),
        };
        self.change(|recorded| recorded.end = Some(end));
    }

    /// Returns the recording as a case of the agent's test file that expects the recorded end.
    /// `None` if the conversation has not ended.
    ///
    /// `case` contains the other members: name, input, instruction, output schema, context.
    pub fn take_case(&self, mut case: Value) -> Option<Value> {
        let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let RecordedParts { begun_at, answers, tools, calls, decisions, end } =
            std::mem::take(&mut *recorded);
        let mut expect = end?;
        expect["calls"] = json!(calls);
        case["begun_at"] = begun_at.into();
        case["model"] = answers.into();
        if !tools.is_empty() {
            case["tools"] = tools.into();
        }
        if decisions.iter().any(|approved| *approved) {
            case["people"] = "allow".into();
        }
        case["expect"] = expect;
        Some(case)
    }
}
