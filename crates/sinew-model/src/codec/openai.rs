//! Codec of OpenAI chat completions and compatible servers.

use serde_json::{Map, Value, json};
use sinew_protocol::tool::ToolDeclaration;

use super::assemble::{CallAssembler, with_own_ids};
use super::refusals::refusal_of_error;
use super::{tokens, unfinished};
use crate::prompt::{AnswerForm, Prompt, PromptMessage};
use crate::spec::ModelSpec;
use crate::turn::{FinishReason, ModelRefusal, ModelTurn, RefusalKind, RequestedCall, TokenUsage, TurnDelta};

/// Maximum number of unknown members of a message, which are sent back unchanged.
const MAX_FOREIGN_MEMBERS: usize = 32;

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
    let limit = if model.is_original { "max_completion_tokens" } else { "max_tokens" };
    body.insert(limit.to_owned(), prompt.max_output.into());
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

fn call_value(call: &RequestedCall) -> Value {
    let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    json!({"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": arguments}})
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
    usage: TokenUsage,
    model: String,
}

impl ChatCollector {
    pub(super) fn take_event(
        &mut self,
        event: &Value,
        deltas: &mut Vec<TurnDelta>,
    ) -> Result<(), ModelRefusal> {
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            return Err(refusal_of_error(error));
        }
        if let Some(model) = event.get("model").and_then(Value::as_str).filter(|_| self.model.is_empty()) {
            model.clone_into(&mut self.model);
        }
        if let Some(usage) = event.get("usage").filter(|usage| usage.is_object()) {
            self.usage = usage_of(usage);
        }
        let Some(choice) = event.get("choices").and_then(|choices| choices.get(0)) else { return Ok(()) };
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) {
            self.finish = Some(reason.to_owned());
        }
        let Some(delta) = choice.get("delta").and_then(Value::as_object) else { return Ok(()) };
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
                        deltas.extend(self.take_call(piece).map(TurnDelta::Call));
                    }
                }
                _ => self.take_foreign(key, value),
            }
        }
        Ok(())
    }

    fn take_call(&mut self, piece: &Value) -> Option<String> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let function = piece.get("function");
        let part = |key: &str| function.and_then(|function| function.get(key));
        let arguments = part("arguments").unwrap_or(&Value::Null);
        let index = piece.get("index").and_then(Value::as_u64);
        self.calls.add(index, &text(piece.get("id")), &text(part("name")), arguments)
    }

    /// Adds an unknown member. Concatenates texts and lists; otherwise, the last value wins.
    fn take_foreign(&mut self, key: &str, value: &Value) {
        if value.is_null() || (self.foreign.len() >= MAX_FOREIGN_MEMBERS && !self.foreign.contains_key(key)) {
            return;
        }
        match (self.foreign.get_mut(key), value) {
            (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
            (Some(Value::Array(items)), Value::Array(more)) => items.extend(more.iter().cloned()),
            _ => {
                self.foreign.insert(key.to_owned(), value.clone());
            }
        }
    }

    pub(super) fn end(self) -> Result<ModelTurn, ModelRefusal> {
        let finish = finish_of(self.finish.as_deref().ok_or_else(unfinished)?)?;
        if !self.refusal.is_empty() && self.text.is_empty() {
            return Err(refused(&self.refusal));
        }
        let calls = self.calls.end();
        let mut verbatim = assistant(&self.text, &calls);
        if let Some(members) = verbatim.as_object_mut() {
            members.extend(self.foreign);
        }
        Ok(ModelTurn { verbatim, text: self.text, calls, finish, usage: self.usage, model: self.model })
    }
}

/// Decodes an answer that is not streamed.
pub(super) fn read_whole(document: &Value) -> Result<ModelTurn, ModelRefusal> {
    if let Some(error) = document.get("error").filter(|error| !error.is_null()) {
        return Err(refusal_of_error(error));
    }
    let choice = document.get("choices").and_then(|choices| choices.get(0));
    let choice = choice.ok_or_else(|| ModelRefusal::unreadable("it has no choices"))?;
    let message = choice.get("message").filter(|message| message.is_object());
    let message = message.ok_or_else(|| ModelRefusal::unreadable("it has no message"))?;
    let finish = finish_of(choice.get("finish_reason").and_then(Value::as_str).unwrap_or("stop"))?;
    let text = message.get("content").map(text_of).unwrap_or_default();
    let refusal = message.get("refusal").and_then(Value::as_str).unwrap_or_default();
    if !refusal.is_empty() && text.is_empty() {
        return Err(refused(refusal));
    }
    let pieces = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let given: Vec<RequestedCall> = pieces.map(call_of).collect();
    let calls = with_own_ids(given.clone());
    let mut verbatim = message.clone();
    if let Some(members) = verbatim.as_object_mut() {
        // Requests with these members of answers are rejected.
        for key in ["annotations", "audio", "function_call", "refusal"] {
            if members.get(key).is_some_and(|value| value.is_null() || value == &json!([])) {
                members.shift_remove(key);
            }
        }
        members.insert("role".to_owned(), "assistant".into());
        if calls != given || calls.iter().any(|call| call.arguments.trim().is_empty()) {
            members.insert("tool_calls".to_owned(), calls.iter().map(call_value).collect());
        }
    }
    let usage = document.get("usage").map(usage_of).unwrap_or_default();
    let model = document.get("model").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(ModelTurn { verbatim, text, calls, finish, usage, model })
}

fn call_of(piece: &Value) -> RequestedCall {
    let function = piece.get("function").unwrap_or(&Value::Null);
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    RequestedCall {
        id: text(piece.get("id")),
        tool: text(function.get("name")),
        arguments: match function.get("arguments") {
            Some(Value::String(arguments)) => arguments.clone(),
            None | Some(Value::Null) => String::new(),
            Some(other) => other.to_string(),
        },
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
        "length" => Ok(FinishReason::Length),
        "content_filter" => {
            Err(ModelRefusal::new(RefusalKind::Filtered, "the provider's filter stopped the answer"))
        }
        "error" => Err(ModelRefusal::unreadable("the provider stopped with an error")),
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
