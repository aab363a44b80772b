//! Codec of Anthropic's Messages API.

use serde_json::{Map, Value, json};
use sinew_protocol::tool::ToolDeclaration;

use super::anthropic_schema;
use super::assemble::with_own_ids;
use super::lenient_json::whole_arguments;
use super::refusals::{error_of, refusal_of_error};
use super::{tokens, unfinished};
use crate::prompt::{AnswerForm, Prompt, PromptMessage};
use crate::spec::ModelSpec;
use crate::turn::{FinishReason, ModelRefusal, ModelTurn, RefusalKind, RequestedCall, TokenUsage, TurnDelta};

/// Maximum blocks of an answer.
const MAX_BLOCKS: usize = 1024;
/// Minimum reasoning budget of the API, in tokens.
const MIN_REASONING_TOKENS: u64 = 1024;

/// Encodes the body of a request, with cache breakpoints after tools, system and messages.
pub(super) fn body(prompt: &Prompt, model: &ModelSpec) -> Value {
    let cached = || json!({"type": "ephemeral"});
    let mut body = Map::new();
    body.insert("model".to_owned(), model.model.clone().into());
    body.insert("max_tokens".to_owned(), prompt.max_output.into());
    let thinking = reasoning_tokens(prompt, model);
    if !prompt.tools.is_empty() {
        let mut tools: Vec<Value> = prompt.tools.iter().map(ToolDeclaration::anthropic).collect();
        if let Some(last) = tools.last_mut() {
            last["cache_control"] = cached();
        }
        body.insert("tools".to_owned(), tools.into());
        // The API rejects forced calls with reasoning.
        let kind = if prompt.must_call && thinking.is_none() { "any" } else { "auto" };
        let mut choice = json!({ "type": kind });
        if !model.abilities.parallel {
            choice["disable_parallel_tool_use"] = true.into();
        }
        body.insert("tool_choice".to_owned(), choice);
    }
    let mut system: Vec<Value> =
        prompt.system.iter().map(|text| json!({"type": "text", "text": text})).collect();
    if let Some(last) = system.last_mut() {
        last["cache_control"] = cached();
        body.insert("system".to_owned(), system.into());
    }
    let mut messages = messages(&prompt.messages);
    let last = messages.last_mut().and_then(|last| last["content"].as_array_mut()?.last_mut());
    if let Some(last) = last.filter(|last| last["type"] == "text" || last["type"] == "tool_result") {
        last["cache_control"] = cached();
    }
    body.insert("messages".to_owned(), messages.into());
    if let AnswerForm::Schema(schema) = &prompt.form
        && let Some(schema) = anthropic_schema::enforced(schema)
    {
        body.insert("output_config".to_owned(), json!({"format": {"type": "json_schema", "schema": schema}}));
    }
    match thinking {
        Some(budget) => {
            body.insert("thinking".to_owned(), json!({"type": "enabled", "budget_tokens": budget}));
        }
        None => {
            if let Some(temperature) = model.temperature {
                body.insert("temperature".to_owned(), temperature.into());
            }
        }
    }
    if model.abilities.stream {
        body.insert("stream".to_owned(), true.into());
    }
    body.into()
}

fn reasoning_tokens(prompt: &Prompt, model: &ModelSpec) -> Option<u64> {
    let wanted = match model.reasoning.as_deref()? {
        "none" | "minimal" => return None,
        "low" => 2_048,
        "medium" => 8_192,
        "high" => 16_384,
        number => number.parse().ok()?,
    };
    Some(wanted.min(prompt.max_output.saturating_sub(1))).filter(|budget| *budget >= MIN_REASONING_TOKENS)
}

/// Encodes messages, alternating user and assistant; merges adjacent messages of one role.
fn messages(all: &[PromptMessage]) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    for message in all {
        let (role, blocks) = blocks(message);
        if blocks.is_empty() {
            continue;
        }
        match messages.last_mut().filter(|last| last["role"] == role) {
            Some(last) => {
                if let Some(content) = last["content"].as_array_mut() {
                    content.extend(blocks);
                }
            }
            None => messages.push(json!({"role": role, "content": blocks})),
        }
    }
    messages
}

fn blocks(message: &PromptMessage) -> (&'static str, Vec<Value>) {
    match message {
        PromptMessage::User { text } => ("user", text_block(text)),
        PromptMessage::Results { results } => {
            let block = |result: &crate::prompt::PromptResult| {
                let mut block =
                    json!({"type": "tool_result", "tool_use_id": result.id, "content": result.content});
                if result.failed {
                    block["is_error"] = true.into();
                }
                block
            };
            ("user", results.iter().map(block).collect())
        }
        PromptMessage::Assistant { verbatim: Value::Object(message), .. } => {
            ("assistant", message.get("content").and_then(Value::as_array).cloned().unwrap_or_default())
        }
        PromptMessage::Assistant { text, calls, .. } => {
            let mut blocks = text_block(text);
            blocks.extend(calls.iter().map(|call| {
                let input = serde_json::from_str(&call.arguments).ok().filter(Value::is_object);
                json!({"type": "tool_use", "id": call.id, "name": call.tool, "input": input.unwrap_or_else(|| json!({}))})
            }));
            ("assistant", blocks)
        }
    }
}

/// Encodes a text block; empty for blank text, which the API rejects.
fn text_block(text: &str) -> Vec<Value> {
    if text.trim().is_empty() { Vec::new() } else { vec![json!({"type": "text", "text": text})] }
}

/// Collects a streamed answer.
#[derive(Debug, Default)]
pub(super) struct MessageCollector {
    blocks: Vec<AnswerBlock>,
    stop: Option<String>,
    /// Whether the event that ends the stream was received.
    is_done: bool,
    usage: Map<String, Value>,
    model: String,
}

/// A partially received block.
#[derive(Debug)]
struct AnswerBlock {
    index: u64,
    block: Map<String, Value>,
    input: String,
}

impl MessageCollector {
    pub(super) fn take_event(
        &mut self,
        event: &Value,
        deltas: &mut Vec<TurnDelta>,
    ) -> Result<(), ModelRefusal> {
        match event.get("type").and_then(Value::as_str).unwrap_or_default() {
            "error" => return Err(refusal_of_error(event.get("error").unwrap_or(event))),
            // Proxies send errors without the type.
            "" => {
                if let Some(error) = error_of(event, "content") {
                    return Err(refusal_of_error(error));
                }
            }
            "message_stop" => self.is_done = true,
            "message_start" => {
                let message = &event["message"];
                message["model"].as_str().unwrap_or_default().clone_into(&mut self.model);
                self.usage.extend(message["usage"].as_object().cloned().unwrap_or_default());
            }
            "message_delta" => {
                let stop = event["delta"]["stop_reason"].as_str();
                if let Some(stop) = stop.filter(|stop| !stop.is_empty()) {
                    self.stop = Some(stop.to_owned());
                }
                self.usage.extend(event["usage"].as_object().cloned().unwrap_or_default());
            }
            "content_block_start" => {
                let Some(block) = event["content_block"].as_object() else { return Ok(()) };
                if self.blocks.len() >= MAX_BLOCKS {
                    return Err(ModelRefusal::unreadable("it has too many blocks"));
                }
                if block.get("type").is_some_and(|kind| kind == "tool_use") {
                    let name = block.get("name").and_then(Value::as_str).unwrap_or_default();
                    deltas.push(TurnDelta::Call(name.to_owned()));
                }
                let index = event["index"].as_u64().unwrap_or(self.blocks.len() as u64);
                self.blocks.push(AnswerBlock { index, block: block.clone(), input: String::new() });
            }
            "content_block_delta" => self.take_delta(event, deltas),
            _ => {}
        }
        Ok(())
    }

    fn take_delta(&mut self, event: &Value, deltas: &mut Vec<TurnDelta>) {
        let index = event["index"].as_u64();
        // The last block of the index: some servers reuse an index for a new block.
        let block = match index {
            Some(index) => self.blocks.iter_mut().rfind(|block| block.index == index),
            None => self.blocks.last_mut(),
        };
        let Some(block) = block else { return };
        let delta = &event["delta"];
        let text = |key: &str| delta[key].as_str().unwrap_or_default();
        let append = |block: &mut AnswerBlock, key: &str, more: &str| match block.block.get_mut(key) {
            Some(Value::String(text)) => text.push_str(more),
            _ => {
                block.block.insert(key.to_owned(), more.into());
            }
        };
        match text("type") {
            "text_delta" => {
                append(block, "text", text("text"));
                if !text("text").is_empty() {
                    deltas.push(TurnDelta::Text(text("text").to_owned()));
                }
            }
            "input_json_delta" => block.input.push_str(text("partial_json")),
            "thinking_delta" => append(block, "thinking", text("thinking")),
            "signature_delta" => append(block, "signature", text("signature")),
            "citations_delta" => match block.block.get_mut("citations") {
                Some(Value::Array(citations)) => citations.push(delta["citation"].clone()),
                _ => {
                    block.block.insert("citations".to_owned(), json!([delta["citation"]]));
                }
            },
            _ => {}
        }
    }

    pub(super) fn end(self) -> Result<ModelTurn, ModelRefusal> {
        // Some servers send no reason why the model stopped.
        let is_whole = self.is_done && !self.blocks.is_empty();
        let stop = self.stop.or_else(|| is_whole.then(|| "end_turn".to_owned())).ok_or_else(unfinished)?;
        let mut blocks = Vec::new();
        let mut written = Vec::new();
        for part in self.blocks {
            let mut block = part.block;
            let input = whole_arguments(part.input);
            // Keep an input that is not an object for the call only, because the API rejects it.
            if !input.trim().is_empty() {
                let input = serde_json::from_str(&input).ok().filter(Value::is_object);
                block.insert("input".to_owned(), input.unwrap_or_else(|| json!({})));
            }
            if block.get("type").is_some_and(|kind| kind == "tool_use") {
                written.push(input);
            }
            blocks.push(Value::Object(block));
        }
        turn(blocks, &written, &stop, usage_of(&Value::Object(self.usage)), self.model)
    }
}

/// Decodes an answer that is not streamed.
pub(super) fn read_whole(document: &Value) -> Result<ModelTurn, ModelRefusal> {
    let error = error_of(document, "content");
    if document["type"] == "error" || error.is_some() {
        return Err(refusal_of_error(error.unwrap_or(document)));
    }
    let content = document.get("content").and_then(Value::as_array);
    let content = content.ok_or_else(|| ModelRefusal::unreadable("it has no content"))?;
    let stop = document["stop_reason"].as_str().unwrap_or("end_turn");
    let model = document["model"].as_str().unwrap_or_default().to_owned();
    turn(content.iter().take(MAX_BLOCKS).cloned().collect(), &[], stop, usage_of(&document["usage"]), model)
}

/// Builds a turn from blocks. Streamed arguments in `written` override those of the block.
fn turn(
    mut blocks: Vec<Value>,
    written: &[String],
    stop: &str,
    usage: TokenUsage,
    model: String,
) -> Result<ModelTurn, ModelRefusal> {
    let finish = match stop {
        "max_tokens" => FinishReason::Length,
        "refusal" => return Err(ModelRefusal::new(RefusalKind::Refused, "the model refuses to answer")),
        "model_context_window_exceeded" => {
            let text = "the answer does not fit the model's context";
            return Err(ModelRefusal::new(RefusalKind::ContextTooLong, text));
        }
        _ => FinishReason::Stop,
    };
    // The API rejects blank texts in requests.
    blocks.retain(|block| {
        block.is_object()
            && !(block["type"] == "text" && block["text"].as_str().unwrap_or_default().trim().is_empty())
    });
    let text =
        blocks.iter().filter(|block| block["type"] == "text").filter_map(|block| block["text"].as_str());
    let text: String = text.collect();
    let uses: Vec<usize> = (0..blocks.len()).filter(|at| blocks[*at]["type"] == "tool_use").collect();
    let calls = uses.iter().enumerate().map(|(number, at)| {
        let block = &blocks[*at];
        RequestedCall {
            id: block["id"].as_str().unwrap_or_default().to_owned(),
            tool: block["name"].as_str().unwrap_or_default().to_owned(),
            arguments: match written.get(number).filter(|text| !text.trim().is_empty()) {
                Some(text) => text.clone(),
                None => block["input"].to_string(),
            },
            through: None,
        }
    });
    let calls = with_own_ids(calls.collect());
    for (at, call) in uses.iter().zip(&calls) {
        blocks[*at]["id"] = call.id.clone().into();
    }
    let verbatim = json!({"role": "assistant", "content": blocks});
    Ok(ModelTurn { verbatim, text, calls, finish, usage, model })
}

fn usage_of(usage: &Value) -> TokenUsage {
    let (read, written) =
        (tokens(&usage["cache_read_input_tokens"]), tokens(&usage["cache_creation_input_tokens"]));
    TokenUsage {
        input: tokens(&usage["input_tokens"]) + read + written,
        output: tokens(&usage["output_tokens"]),
        cached: read,
        reasoning: 0,
        estimated: false,
    }
}
