//! Codec of OpenAI chat completions and compatible servers.

use serde_json::{Map, Value, json};
use sinew_protocol::tool::ToolDeclaration;

use super::assemble::{CallAssembler, call_value, merge_foreign, with_own_ids};
use super::lenient_json::whole_arguments;
use super::refusals::{error_of, refusal_of_error};
use super::{tokens, unfinished};
use crate::prompt::{AnswerForm, Prompt, PromptMessage};
use crate::spec::ModelSpec;
use crate::turn::{FinishReason, ModelRefusal, ModelTurn, RefusalKind, RequestedCall, TokenUsage, TurnDelta};

/// Maximum number of unknown members of a message, which are sent back unchanged.
const MAX_FOREIGN_MEMBERS: usize = 32;

/// Names of the limit of output tokens: the first one, and that of reasoning models of OpenAI. A server
/// that rejects the first guess gets the other one.
const LIMIT_NAMES: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// Returns whether a name is that of a reasoning model of OpenAI, which also other hosts serve.
fn is_reasoning_model(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name);
    ["gpt-5", "o1", "o3", "o4"].iter().any(|prefix| name.starts_with(prefix))
}

/// Encodes the body of a request.
pub(super) fn body(prompt: &Prompt, model: &ModelSpec) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), model.model.clone().into());
    let mut messages = Vec::new();
    if !prompt.system.is_empty() {
        messages.push(json!({"role": "system", "content": prompt.system.join("\n\n")}));
    }
    for message in &prompt.messages {
        add_message(message, &mut messages);
    }
    body.insert("messages".to_owned(), messages.into());
    if !prompt.tools.is_empty() {
        body.insert("tools".to_owned(), prompt.tools.iter().map(ToolDeclaration::openai).collect());
        if prompt.must_call {
            body.insert("tool_choice".to_owned(), "required".into());
        }
        if !model.abilities.parallel {
            body.insert("parallel_tool_calls".to_owned(), false.into());
        }
    }
    match &prompt.form {
        AnswerForm::Free => {}
        AnswerForm::Json => {
            body.insert("response_format".to_owned(), json!({"type": "json_object"}));
        }
        AnswerForm::Schema(schema) => {
            body.insert("response_format".to_owned(), response_format(schema));
        }
    }
    if !LIMIT_NAMES.iter().any(|name| model.extra.contains_key(*name)) {
        let name = LIMIT_NAMES[usize::from(model.is_original || is_reasoning_model(&model.model))];
        body.insert(name.to_owned(), prompt.max_output.into());
    }
    if let Some(temperature) = model.temperature {
        body.insert("temperature".to_owned(), temperature.into());
    }
    if let Some(seed) = model.seed {
        body.insert("seed".to_owned(), seed.into());
    }
    if let Some(effort) = &model.reasoning {
        body.insert("reasoning_effort".to_owned(), effort.clone().into());
    }
    if model.is_original && !prompt.cache_key.is_empty() {
        body.insert("prompt_cache_key".to_owned(), prompt.cache_key.clone().into());
    }
    if model.abilities.stream {
        body.insert("stream".to_owned(), true.into());
        body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    body.into()
}

/// Encodes the schema, in the strict subset if possible.
fn response_format(schema: &Value) -> Value {
    let declaration = ToolDeclaration {
        name: "output".to_owned(),
        description: String::new(),
        parameters: schema.clone(),
        takes_artifact: false,
        output_schema: None,
    };
    let function = declaration.openai()["function"].take();
    let strict = function.get("strict").is_some_and(|strict| strict == true);
    let schema = if strict { function["parameters"].clone() } else { schema.clone() };
    json!({"type": "json_schema", "json_schema": {"name": "output", "schema": schema, "strict": strict}})
}

fn add_message(message: &PromptMessage, messages: &mut Vec<Value>) {
    match message {
        PromptMessage::User { text } => messages.push(json!({"role": "user", "content": text})),
        PromptMessage::Assistant { verbatim, .. } if verbatim.is_object() => messages.push(verbatim.clone()),
        PromptMessage::Assistant { text, calls, .. } => messages.push(assistant(text, calls)),
        PromptMessage::Results { results } => messages.extend(
            results
                .iter()
                .map(|result| json!({"role": "tool", "tool_call_id": result.id, "content": result.content})),
        ),
    }
}

fn assistant(text: &str, calls: &[RequestedCall]) -> Value {
    let mut message = json!({"role": "assistant", "content": text});
    if !calls.is_empty() {
        if text.is_empty() {
            message["content"] = Value::Null;
        }
        message["tool_calls"] = calls.iter().map(call_value).collect();
    }
    message
}

/// Collects a streamed answer.
#[derive(Debug, Default)]
pub(super) struct ChatCollector {
    text: String,
    refusal: String,
    calls: CallAssembler,
    /// Unknown members of the message, such as reasoning.
    foreign: Map<String, Value>,
    finish: Option<String>,
    /// Whether the event that ends the stream was received.
    is_done: bool,
    usage: TokenUsage,
    model: String,
}

impl ChatCollector {
    /// Ends the answer. Some servers send no reason why the model stopped.
    pub(super) fn take_end(&mut self) {
        self.is_done = true;
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.refusal.is_empty() && self.calls.is_empty() && self.foreign.is_empty()
    }

    pub(super) fn take_event(
        &mut self,
        event: &Value,
        deltas: &mut Vec<TurnDelta>,
    ) -> Result<(), ModelRefusal> {
        if let Some(error) = error_of(event, "choices") {
            return Err(refusal_of_error(error));
        }
        if let Some(model) = event.get("model").and_then(Value::as_str).filter(|_| self.model.is_empty()) {
            model.clone_into(&mut self.model);
        }
        if let Some(usage) = event.get("usage").filter(|usage| usage.is_object()) {
            self.usage = usage_of(usage);
        }
        let Some(choice) = event.get("choices").and_then(|choices| choices.get(0)) else { return Ok(()) };
        if let Some(error) = choice.get("error").filter(|error| error.is_object()) {
            return Err(refusal_of_error(error));
        }
        let reason = choice.get("finish_reason").and_then(Value::as_str);
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            self.finish = Some(reason.to_owned());
        }
        // A server that only imitates a stream sends the whole message.
        let whole = choice.get("message").filter(|_| self.is_empty());
        let delta = choice.get("delta").filter(|delta| !delta.is_null()).or(whole);
        let Some(delta) = delta.and_then(Value::as_object) else { return Ok(()) };
        for (key, value) in delta {
            match key.as_str() {
                "role" | "function_call" => {}
                "content" => {
                    let text = text_of(value);
                    if !text.is_empty() {
                        self.text.push_str(&text);
                        deltas.push(TurnDelta::Text(text));
                    }
                }
                "refusal" => self.refusal.push_str(value.as_str().unwrap_or_default()),
                "tool_calls" => {
                    for piece in value.as_array().into_iter().flatten() {
                        deltas.extend(self.calls.add(piece).map(TurnDelta::Call));
                    }
                }
                _ => merge_foreign(&mut self.foreign, key, value, MAX_FOREIGN_MEMBERS),
            }
        }
        Ok(())
    }

    pub(super) fn end(self) -> Result<ModelTurn, ModelRefusal> {
        let is_whole = self.is_done && !self.is_empty();
        let finish = self.finish.as_deref().or_else(|| is_whole.then_some("stop"));
        let finish = finish_of(finish.ok_or_else(unfinished)?)?;
        if !self.refusal.is_empty() && self.text.is_empty() {
            return Err(refused(&self.refusal));
        }
        let (calls, encoded) = self.calls.end();
        let mut verbatim = assistant(&self.text, &calls);
        if let Some(members) = verbatim.as_object_mut() {
            if !encoded.is_empty() {
                members.insert("tool_calls".to_owned(), encoded.into());
            }
            members.extend(self.foreign);
        }
        Ok(ModelTurn { verbatim, text: self.text, calls, finish, usage: self.usage, model: self.model })
    }
}

/// Decodes an answer that is not streamed.
pub(super) fn read_whole(document: &Value) -> Result<ModelTurn, ModelRefusal> {
    if let Some(error) = error_of(document, "choices") {
        return Err(refusal_of_error(error));
    }
    let choice = document.get("choices").and_then(|choices| choices.get(0));
    let choice = choice.ok_or_else(|| ModelRefusal::unreadable("it has no choices"))?;
    let message = choice.get("message").filter(|message| message.is_object());
    let message = message.ok_or_else(|| ModelRefusal::unreadable("it has no message"))?;
    let finish = finish_of(choice.get("finish_reason").and_then(Value::as_str).unwrap_or_default())?;
    let text = message.get("content").map(text_of).unwrap_or_default();
    let refusal = message.get("refusal").and_then(Value::as_str).unwrap_or_default();
    if !refusal.is_empty() && text.is_empty() {
        return Err(refused(refusal));
    }
    let pieces = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let calls = with_own_ids(pieces.map(call_of).collect());
    let mut verbatim = message.clone();
    if let Some(members) = verbatim.as_object_mut() {
        // Requests with these members of answers are rejected.
        for key in ["annotations", "audio", "function_call", "refusal"] {
            if members.get(key).is_some_and(|value| value.is_null() || value == &json!([])) {
                members.shift_remove(key);
            }
        }
        members.insert("role".to_owned(), "assistant".into());
        let pieces = members.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (piece, call) in pieces.into_iter().flatten().zip(&calls).filter(|(piece, _)| piece.is_object()) {
            repair_call(piece, call);
        }
    }
    let usage = document.get("usage").map(usage_of).unwrap_or_default();
    let model = document.get("model").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(ModelTurn { verbatim, text, calls, finish, usage, model })
}

/// Sets the members of a call that servers require in requests. Keeps its unknown members.
fn repair_call(piece: &mut Value, call: &RequestedCall) {
    let Value::Object(encoded) = call_value(call) else { return };
    for (key, value) in encoded {
        match (piece.get_mut(&key), value) {
            (Some(Value::Object(function)), Value::Object(inner)) => function.extend(inner),
            (_, value) => piece[key.as_str()] = value,
        }
    }
}

fn call_of(piece: &Value) -> RequestedCall {
    let function = piece.get("function").unwrap_or(&Value::Null);
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    RequestedCall {
        id: text(piece.get("id")),
        tool: text(function.get("name")),
        arguments: match function.get("arguments") {
            Some(Value::String(arguments)) => whole_arguments(arguments.clone()),
            None | Some(Value::Null) => String::new(),
            Some(other) => other.to_string(),
        },
        through: None,
    }
}

/// Returns a text, or the concatenated texts of a list of parts.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect()
        }
        _ => String::new(),
    }
}

fn finish_of(reason: &str) -> Result<FinishReason, ModelRefusal> {
    match reason {
        "length" | "max_tokens" | "MAX_TOKENS" | "model_length" => Ok(FinishReason::Length),
        "content_filter" | "content_filtered" | "sensitive" | "SAFETY" => {
            Err(ModelRefusal::new(RefusalKind::Filtered, "the provider's filter stopped the answer"))
        }
        "error" | "abort" | "cancelled" | "network_error" | "insufficient_system_resource" => {
            Err(ModelRefusal::unreadable(format!("the provider stopped with {reason}")))
        }
        _ => Ok(FinishReason::Stop),
    }
}

fn refused(words: &str) -> ModelRefusal {
    let words = crate::text::shortened(&crate::text::without_hidden(words), 400);
    ModelRefusal::new(RefusalKind::Refused, format!("the model refuses: {words}"))
}

fn usage_of(usage: &Value) -> TokenUsage {
    TokenUsage {
        input: tokens(&usage["prompt_tokens"]),
        output: tokens(&usage["completion_tokens"]),
        cached: tokens(&usage["prompt_tokens_details"]["cached_tokens"]),
        reasoning: tokens(&usage["completion_tokens_details"]["reasoning_tokens"]),
        estimated: false,
    }
}
