//! Redacts secrets of the agent file in answers of models before they are recorded or used.

use sinew_model::{ConversationEnd, ModelTurn, StepBody};
use sinew_protocol::Fault;

use crate::clean::{ResolvedSecrets, value_with_texts};

/// Keywords of provider formats. A secret with such a value is not redacted, to keep messages valid.
const WIRE_WORDS: [&str; 27] = [
    "args",
    "arguments",
    "assistant",
    "content",
    "extra_content",
    "function",
    "functionCall",
    "function_call",
    "input",
    "message",
    "model",
    "name",
    "parts",
    "provider_specific_fields",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "role",
    "signature",
    "text",
    "thinking",
    "thoughtSignature",
    "thought_signature",
    "tool_calls",
    "tool_use",
    "type",
    "user",
];

/// Redacts secrets in an answer, except in names of offered tools.
pub(super) fn turn_without_secrets(
    turn: ModelTurn,
    secrets: &ResolvedSecrets,
    is_tool: &dyn Fn(&str) -> bool,
) -> ModelTurn {
    let hide = |text: &str| {
        if WIRE_WORDS.contains(&text) || is_tool(text) {
            text.to_owned()
        } else {
            secrets.hide_in_json_text(text)
        }
    };
    let mut turn = ModelTurn {
        verbatim: value_with_texts(&turn.verbatim, &hide),
        text: secrets.hide_in_json_text(&turn.text),
        model: secrets.hide(&turn.model),
        ..turn
    };
    for call in &mut turn.calls {
        call.id = secrets.hide(&call.id);
        call.tool = hide(&call.tool);
        call.arguments = secrets.hide_in_json_text(&call.arguments);
    }
    turn
}

/// Redacts secrets in the texts of a record.
pub(super) fn hide_in_record(body: &mut StepBody, secrets: &ResolvedSecrets) {
    let hide = |text: &mut String| *text = secrets.hide(text);
    match body {
        // Calls may have been parsed from text.
        StepBody::Turn { answer, .. } => {
            for call in &mut answer.calls {
                call.arguments = secrets.hide_in_json_text(&call.arguments);
            }
        }
        StepBody::Miss { refusal, .. } => hide(&mut refusal.message),
        StepBody::Decision { comment, .. } => comment.iter_mut().for_each(hide),
        StepBody::Done { result, .. } => result.content = secrets.hide_in_value(&result.content),
        StepBody::Feedback { text, .. } => hide(text),
        StepBody::Compact(compact) => compact.summary.iter_mut().for_each(hide),
        StepBody::End(ConversationEnd::Output(value)) => *value = secrets.hide_in_value(value),
        StepBody::End(ConversationEnd::Fault(fault)) => *fault = without_secrets(fault.clone(), secrets),
        StepBody::End(ConversationEnd::Artifact(_))
        | StepBody::Begin(_)
        | StepBody::Ask(_)
        | StepBody::Question(_)
        | StepBody::Call(_)
        | StepBody::Artifacts { .. } => {}
    }
}

/// Redacts secrets in a fault.
pub(super) fn without_secrets(mut fault: Fault, secrets: &ResolvedSecrets) -> Fault {
    fault.message = secrets.hide(&fault.message);
    fault.details.iter_mut().for_each(|line| *line = secrets.hide(line));
    fault
}
