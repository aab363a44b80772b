//! Codec of Gemini's `generateContent`.

use serde_json::{Map, Value, json};

use super::assemble::with_own_ids;
use super::refusals::{error_of, refusal_of_error};
use super::{tokens, unfinished};
use crate::prompt::{AnswerForm, Prompt, PromptMessage, PromptResult};
use crate::spec::ModelSpec;
use crate::turn::{FinishReason, ModelRefusal, ModelTurn, RefusalKind, RequestedCall, TokenUsage, TurnDelta};

/// Maximum parts of an answer.
const MAX_PARTS: usize = 65_536;

/// Returns the path of a request, which contains the model's name.
pub(super) fn path(model: &ModelSpec) -> String {
    // Drop characters of the name that could change the path.
    let name: String =
        model.model.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')).collect();
    if model.abilities.stream {
        format!("/v1beta/models/{name}:streamGenerateContent?alt=sse")
    } else {
        format!("/v1beta/models/{name}:generateContent")
    }
}

/// Encodes the body of a request.
pub(super) fn body(prompt: &Prompt, model: &ModelSpec) -> Value {
    let mut body = Map::new();
    if !prompt.system.is_empty() {
        let parts: Vec<Value> = prompt.system.iter().map(|text| json!({ "text": text })).collect();
        body.insert("systemInstruction".to_owned(), json!({ "parts": parts }));
    }
    body.insert("contents".to_owned(), contents(&prompt.messages).into());
    if !prompt.tools.is_empty() {
        let declarations: Vec<Value> = prompt
            .tools
            .iter()
            .map(|tool| {
                let tool = tool.anthropic();
                json!({
                    "name": tool["name"],
                    "description": tool["description"],
                    "parametersJsonSchema": tool["input_schema"],
                })
            })
            .collect();
        body.insert("tools".to_owned(), json!([{ "functionDeclarations": declarations }]));
        let mode = if prompt.must_call { "ANY" } else { "AUTO" };
        body.insert("toolConfig".to_owned(), json!({"functionCallingConfig": { "mode": mode }}));
    }
    let mut config = Map::new();
    config.insert("maxOutputTokens".to_owned(), prompt.max_output.into());
    if let Some(temperature) = model.temperature {
        config.insert("temperature".to_owned(), temperature.into());
    }
    if let Some(seed) = model.seed {
        config.insert("seed".to_owned(), seed.into());
    }
    if let Some(effort) = &model.reasoning {
        config.insert("thinkingConfig".to_owned(), json!({ "thinkingLevel": effort }));
    }
    match &prompt.form {
        AnswerForm::Free => {}
        AnswerForm::Json => {
            config.insert("responseMimeType".to_owned(), "application/json".into());
        }
        AnswerForm::Schema(schema) => {
            config.insert("responseMimeType".to_owned(), "application/json".into());
            config.insert("responseJsonSchema".to_owned(), schema.clone());
        }
    }
    body.insert("generationConfig".to_owned(), config.into());
    body.into()
}

/// Encodes contents, alternating user and model; merges adjacent ones of one role.
fn contents(messages: &[PromptMessage]) -> Vec<Value> {
    let mut contents: Vec<Value> = Vec::new();
    for message in messages {
        let (role, mut parts) = parts(message);
        if matches!(message, PromptMessage::Results { .. }) {
            remove_own_ids(contents.last(), &mut parts);
        }
        if parts.is_empty() {
            continue;
        }
        match contents.last_mut().filter(|last| last["role"] == role) {
            Some(last) => {
                if let Some(all) = last["parts"].as_array_mut() {
                    all.extend(parts);
                }
            }
            None => contents.push(json!({"role": role, "parts": parts})),
        }
    }
    contents
}

/// Removes ids of results that the provider did not assign: servers without ids reject them.
fn remove_own_ids(calls: Option<&Value>, results: &mut [Value]) {
    let parts = calls.and_then(|calls| calls["parts"].as_array()).into_iter().flatten();
    let ids: Vec<&Value> = parts.filter_map(|part| part.get("functionCall")?.get("id")).collect();
    for result in results.iter_mut().filter_map(|result| result["functionResponse"].as_object_mut()) {
        if !result.get("id").is_some_and(|id| ids.contains(&id)) {
            result.shift_remove("id");
        }
    }
}

fn parts(message: &PromptMessage) -> (&'static str, Vec<Value>) {
    match message {
        PromptMessage::User { text } => ("user", vec![json!({ "text": text })]),
        PromptMessage::Results { results } => ("user", results.iter().map(response_part).collect()),
        PromptMessage::Assistant { verbatim: Value::Object(content), .. } => {
            ("model", content.get("parts").and_then(Value::as_array).cloned().unwrap_or_default())
        }
        PromptMessage::Assistant { text, calls, .. } => {
            let mut parts = Vec::new();
            if !text.is_empty() {
                parts.push(json!({ "text": text }));
            }
            parts.extend(calls.iter().map(|call| {
                let args = serde_json::from_str(&call.arguments).ok().filter(Value::is_object);
                json!({"functionCall": {"id": call.id, "name": call.tool, "args": args.unwrap_or_else(|| json!({}))}})
            }));
            ("model", parts)
        }
    }
}

fn response_part(result: &PromptResult) -> Value {
    let response = serde_json::from_str(&result.content).ok().filter(Value::is_object);
    let response = response.unwrap_or_else(|| json!({ "content": result.content }));
    json!({"functionResponse": {"id": result.id, "name": result.tool, "response": response}})
}

/// Collects a streamed answer.
#[derive(Debug, Default)]
pub(super) struct ContentCollector {
    parts: Vec<Value>,
    finish: Option<String>,
    usage: TokenUsage,
    model: String,
}

impl ContentCollector {
    pub(super) fn take_event(
        &mut self,
        event: &Value,
        deltas: &mut Vec<TurnDelta>,
    ) -> Result<(), ModelRefusal> {
        if let Some(error) = error_of(event, "candidates") {
            return Err(refusal_of_error(error));
        }
        let blocked = event["promptFeedback"]["blockReason"].as_str();
        if let Some(reason) = blocked.filter(|reason| *reason != "BLOCK_REASON_UNSPECIFIED") {
            let text =
                format!("the provider's filter stopped the prompt ({})", crate::text::shortened(reason, 60));
            return Err(ModelRefusal::new(RefusalKind::Filtered, text));
        }
        if let Some(model) = event["modelVersion"].as_str() {
            model.clone_into(&mut self.model);
        }
        if event["usageMetadata"].is_object() {
            self.usage = usage_of(&event["usageMetadata"]);
        }
        let candidate = &event["candidates"][0];
        let reason = candidate["finishReason"].as_str();
        if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
            self.finish = Some(reason.to_owned());
        }
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            if self.parts.len() >= MAX_PARTS {
                return Err(ModelRefusal::unreadable("it has too many parts"));
            }
            if let Some(name) = part["functionCall"]["name"].as_str() {
                deltas.push(TurnDelta::Call(name.to_owned()));
            } else if let Some(text) = spoken(part).filter(|text| !text.is_empty()) {
                deltas.push(TurnDelta::Text(text.to_owned()));
            }
            self.add(part);
        }
        Ok(())
    }

    /// Adds a part. Merges consecutive texts, but keeps parts with a signature unchanged.
    fn add(&mut self, part: &Value) {
        let plain = |part: &Value| {
            part.as_object().is_some_and(|members| members.len() == 1 && members.contains_key("text"))
        };
        if plain(part)
            && let Some(last) = self.parts.last_mut().filter(|last| plain(last))
            && let (Some(before), Some(more)) = (last["text"].as_str(), part["text"].as_str())
        {
            last["text"] = format!("{before}{more}").into();
            return;
        }
        if part.is_object() {
            self.parts.push(part.clone());
        }
    }

    pub(super) fn end(self) -> Result<ModelTurn, ModelRefusal> {
        let finish = finish_of(self.finish.as_deref().ok_or_else(unfinished)?)?;
        let text: String = self.parts.iter().filter_map(spoken).collect();
        let asked =
            self.parts.iter().filter_map(|part| part.get("functionCall")).filter(|call| call.is_object());
        let calls = asked.map(|call| RequestedCall {
            id: call["id"].as_str().unwrap_or_default().to_owned(),
            tool: call["name"].as_str().unwrap_or_default().to_owned(),
            arguments: match &call["args"] {
                Value::Null => String::new(),
                args => args.to_string(),
            },
            through: None,
        });
        let calls = with_own_ids(calls.collect());
        let verbatim = json!({"role": "model", "parts": self.parts});
        Ok(ModelTurn { verbatim, text, calls, finish, usage: self.usage, model: self.model })
    }
}

/// Returns the text of a part that is not a thought.
fn spoken(part: &Value) -> Option<&str> {
    part["text"].as_str().filter(|_| part["thought"] != true)
}

/// Decodes an answer that is one document, or a list of stream chunks.
pub(super) fn read_whole(document: &Value) -> Result<ModelTurn, ModelRefusal> {
    let mut collector = ContentCollector::default();
    let pieces = document.as_array().map_or(std::slice::from_ref(document), Vec::as_slice);
    for piece in pieces {
        collector.take_event(piece, &mut Vec::new())?;
    }
    // A whole document is complete, also without the reason why the model stopped.
    if !collector.parts.is_empty() {
        collector.finish.get_or_insert_with(|| "STOP".to_owned());
    }
    collector.end()
}

fn finish_of(reason: &str) -> Result<FinishReason, ModelRefusal> {
    match reason {
        "STOP" => Ok(FinishReason::Stop),
        "MAX_TOKENS" => Ok(FinishReason::Length),
        "MALFORMED_FUNCTION_CALL"
        | "MALFORMED_RESPONSE"
        | "MISSING_THOUGHT_SIGNATURE"
        | "OTHER"
        | "FINISH_REASON_UNSPECIFIED"
        | "TOO_MANY_TOOL_CALLS"
        | "UNEXPECTED_TOOL_CALL" => Err(ModelRefusal::unreadable(format!("the model stopped with {reason}"))),
        reason => {
            let reason = crate::text::shortened(reason, 60);
            Err(ModelRefusal::new(
                RefusalKind::Filtered,
                format!("the provider's filter stopped the answer ({reason})"),
            ))
        }
    }
}

fn usage_of(usage: &Value) -> TokenUsage {
    let thoughts = tokens(&usage["thoughtsTokenCount"]);
    TokenUsage {
        input: tokens(&usage["promptTokenCount"]),
        output: tokens(&usage["candidatesTokenCount"]) + thoughts,
        cached: tokens(&usage["cachedContentTokenCount"]),
        reasoning: thoughts,
        estimated: false,
    }
}
