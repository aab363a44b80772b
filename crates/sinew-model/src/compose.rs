//! Builds the prompt of the next turn from the state of a conversation.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sinew_protocol::tool::ToolDeclaration;

use crate::output::AnswerPlan;
use crate::prompt::{AnswerForm, Prompt, PromptMessage, PromptResult};
use crate::record::{CallResult, CallStatus, FeedbackReason};
use crate::spec::{ConversationSpec, FIND_TOOLS, ModelSpec};
use crate::state::{ConversationState, Exchange};
use crate::turn::RequestedCall;

/// Maximum tokens of a summary.
const MAX_SUMMARY_TOKENS: u64 = 2_000;

/// System text of the last turn that the budget allows.
const LAST_WORD: &str =
    "This is your last turn: no tool can be called any more. Answer now with what you have.";
/// User text that requests a summary.
const SUMMARISE: &str = "Summarise the conversation above for yourself: the task, the facts found, the results of tools \
                         that matter, the decisions, and the work that is left. Write only the summary.";

/// Returns the prompt of the next turn for this model; without tools if `last_word` is set.
pub(crate) fn prompt(
    spec: &ConversationSpec,
    state: &ConversationState,
    model: &ModelSpec,
    last_word: bool,
) -> Prompt {
    let plan = AnswerPlan::of(spec, model);
    let asked_for_form = state.exchanges.last().and_then(|last| last.feedback.as_ref());
    let form_turn = asked_for_form.is_some_and(|(reason, _)| *reason == FeedbackReason::Form);
    let offer = !last_word && !form_turn;
    let native = model.abilities.tools == crate::spec::ToolAbility::Native;
    let mut tools: Vec<ToolDeclaration> = Vec::new();
    if native && offer {
        tools.extend(spec.tools.iter().map(|tool| tool.declaration.clone()));
    }
    tools.extend(plan.tool(spec));
    let offers_any = if native { !tools.is_empty() } else { offer };
    let mut system: Vec<String> = spec.system.iter().filter(|text| !text.is_empty()).cloned().collect();
    system.extend(plan.instruction(spec));
    let mut messages = opening(spec, state, plan);
    for exchange in visible(state) {
        add_exchange(spec, state, model, exchange, &mut messages);
    }
    if last_word && !spec.tools.is_empty() {
        messages.push(PromptMessage::User { text: LAST_WORD.to_owned() });
    }
    let cut_off = asked_for_form.is_some_and(|(reason, _)| *reason == FeedbackReason::CutOff);
    Prompt {
        system,
        must_call: plan == AnswerPlan::Tool && (last_word || form_turn || spec.tools.is_empty()),
        form: plan.form(spec, model, offers_any),
        tools,
        messages,
        max_output: if cut_off { model.max_output.saturating_mul(2) } else { model.max_output },
        cache_key: spec.cache_key.clone(),
    }
}

/// Returns the prompt for a summary of the turns before this one.
pub(crate) fn summary_prompt(
    spec: &ConversationSpec,
    state: &ConversationState,
    model: &ModelSpec,
    before: u32,
) -> Prompt {
    let mut messages = opening(spec, state, AnswerPlan::Words);
    for exchange in visible(state).filter(|exchange| exchange.turn < before) {
        add_exchange(spec, state, model, exchange, &mut messages);
    }
    // Without tools, calls and results are sent as text.
    let mut messages: Vec<PromptMessage> = messages.into_iter().map(as_words).collect();
    messages.push(PromptMessage::User { text: SUMMARISE.to_owned() });
    Prompt {
        system: spec.system.iter().filter(|text| !text.is_empty()).cloned().collect(),
        tools: Vec::new(),
        must_call: false,
        messages,
        form: AnswerForm::Free,
        max_output: model.max_output.min(MAX_SUMMARY_TOKENS),
        cache_key: String::new(),
    }
}

fn as_words(message: PromptMessage) -> PromptMessage {
    match message {
        PromptMessage::Assistant { text, calls, .. } => {
            let mut words = text;
            for call in &calls {
                let _ = write!(words, "\n[called {} with {}]", call.tool, call.arguments);
            }
            PromptMessage::Assistant {
                verbatim: Value::Null,
                text: words.trim().to_owned(),
                calls: Vec::new(),
            }
        }
        PromptMessage::Results { results } => {
            let line = |result: &PromptResult| format!("[result of {}] {}", result.tool, result.content);
            PromptMessage::User { text: results.iter().map(line).collect::<Vec<_>>().join("\n") }
        }
        user @ PromptMessage::User { .. } => user,
    }
}

/// Returns examples, session, input and the summary of omitted turns.
fn opening(spec: &ConversationSpec, state: &ConversationState, plan: AnswerPlan) -> Vec<PromptMessage> {
    let mut messages = Vec::new();
    for (user, assistant) in spec.examples.iter().chain(&spec.history) {
        messages.push(PromptMessage::User { text: user.clone() });
        messages.push(PromptMessage::Assistant {
            verbatim: Value::Null,
            text: plan.example(spec, assistant),
            calls: Vec::new(),
        });
    }
    messages.push(PromptMessage::User { text: spec.input.clone() });
    if let Some((_, text)) = &state.summary {
        let mut text = format!("Summary of your work so far:\n{text}");
        if !state.discovered.is_empty() {
            let names: Vec<&str> =
                state.discovered.iter().map(|tool| tool.declaration.name.as_str()).collect();
            let _ = write!(text, "\nTools that you found with {FIND_TOOLS}: {}.", names.join(", "));
        }
        messages.push(PromptMessage::User { text });
    }
    messages
}

fn visible(state: &ConversationState) -> impl Iterator<Item = &Exchange> {
    let from = state.summary.as_ref().map_or(0, |(before, _)| *before);
    state.exchanges.iter().filter(move |exchange| exchange.turn >= from)
}

fn add_exchange(
    spec: &ConversationSpec,
    state: &ConversationState,
    model: &ModelSpec,
    exchange: &Exchange,
    messages: &mut Vec<PromptMessage>,
) {
    let feedback = exchange.feedback.as_ref();
    if feedback.is_some_and(|(reason, _)| *reason == FeedbackReason::CutOff) {
        return; // Omit a truncated answer; the turn is requested again.
    }
    let same = spec
        .model(&exchange.alias)
        .is_some_and(|other| other.provider == model.provider && other.model == model.model);
    let plan = spec.model(&exchange.alias).map(|other| AnswerPlan::of(spec, other));
    // Calls that were parsed from text are sent back as text.
    let by_text = plan == Some(AnswerPlan::Action) || AnswerPlan::of(spec, model) == AnswerPlan::Action;
    let message = PromptMessage::Assistant {
        verbatim: if same { exchange.answer.verbatim.clone() } else { Value::Null },
        text: exchange.answer.text.clone(),
        calls: if plan == Some(AnswerPlan::Action) {
            Vec::new()
        } else {
            exchange.answer.calls.iter().map(as_requested).collect()
        },
    };
    messages.push(if by_text && plan != Some(AnswerPlan::Action) { as_words(message) } else { message });
    let results: Vec<PromptResult> = exchange
        .answer
        .calls
        .iter()
        .zip(&exchange.calls)
        .map(|(requested, call)| {
            let tool = spec.callable(state, &requested.tool);
            let source = tool.as_ref().map_or(requested.tool.as_str(), |tool| &tool.source);
            let left_out = exchange.turn < state.results_before;
            let (content, failed) = match (&call.result, feedback) {
                (Some(result), _) => {
                    (framed(source, result, left_out), result.status != CallStatus::Succeeded)
                }
                (None, Some((_, text))) => (json!({"error": text}).to_string(), true),
                (None, None) => (json!({"error": "the call was not made"}).to_string(), true),
            };
            let tool = requested.through.as_ref().unwrap_or(&requested.tool).clone();
            PromptResult { id: requested.id.clone(), tool, content, failed }
        })
        .collect();
    if !results.is_empty() {
        let results = PromptMessage::Results { results };
        messages.push(if by_text { as_words(results) } else { results });
    } else if let Some((_, text)) = feedback {
        messages.push(PromptMessage::User { text: text.clone() });
    }
}

/// Returns a call as the model wrote it: through `call_tool`, if it called a discovered tool so.
fn as_requested(call: &RequestedCall) -> RequestedCall {
    let Some(through) = &call.through else { return call.clone() };
    let arguments = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!(call.arguments));
    RequestedCall {
        id: call.id.clone(),
        tool: through.clone(),
        arguments: json!({"tool": call.tool, "arguments": arguments}).to_string(),
        through: None,
    }
}

/// Formats a result as JSON with its source.
fn framed(source: &str, result: &CallResult, left_out: bool) -> String {
    let mut frame = serde_json::Map::new();
    frame.insert("from".to_owned(), source.into());
    let word = if result.status == CallStatus::Succeeded { "content" } else { "error" };
    if left_out && result.may_give_way() {
        frame.insert("left_out".to_owned(), "this result was left out to save space".into());
    } else {
        frame.insert(word.to_owned(), result.content.clone());
    }
    if let Some(artifact) = &result.artifact {
        frame.insert("whole_result_in_artifact".to_owned(), artifact.clone().into());
    }
    Value::Object(frame).to_string()
}
