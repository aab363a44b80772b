//! Secrets of the agent file in answers of models: cut out before an answer is recorded, told, or makes calls.

use sinew_model::{ConversationEnd, ModelTurn, StepBody};
use sinew_protocol::Fault;

use crate::clean::{ResolvedSecrets, value_with_texts};

/// Words of the wires of providers. A variable with such a value is left in the shape of a message.
const WIRE_WORDS: [&str; 24] = [
    "args",
    "arguments",
    "assistant",
    "content",
    "function",
    "functionCall",
    "function_call",
    "input",
    "message",
    "model",
    "name",
    "parts",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "role",
    "signature",
    "text",
    "thinking",
    "thoughtSignature",
    "tool_calls",
    "tool_use",
    "type",
    "user",
];

/// An answer without secrets. Names of tools that the model was offered stay as they are.
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

/// Hides secrets in the words of a record.
pub(super) fn hide_in_record(body: &mut StepBody, secrets: &ResolvedSecrets) {
    let hide = |text: &mut String| *text = secrets.hide(text);
    match body {
        // Calls that came as text were words before.
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

/// A fault without secrets.
pub(super) fn without_secrets(mut fault: Fault, secrets: &ResolvedSecrets) -> Fault {
    fault.message = secrets.hide(&fault.message);
    fault.details.iter_mut().for_each(|line| *line = secrets.hide(line));
    fault
}
