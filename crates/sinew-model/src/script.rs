//! A model that answers from a file, for tests, examples and machines without a key.
//!
//! ```yaml
//! - {call: {peer_Courier: {order_id: A-17}}}         # one call, or several members for several calls
//! - {answer: {text: On its way.}}                    # the output
//! - {text: "some words"}                             # plain text
//! - {raw: {choices: […]}}                            # a whole answer of a chat completion
//! - {refuse: "I will not"}                           # the model refuses
//! - {length: "cut of"}                               # the answer is truncated
//! - {error: {status: 429, retry_after: 2}}           # the provider returns an error
//! - {turn: {…}, prompt: {…}}                         # a recorded answer, and its prompt
//! - {miss: {…}, prompt: {…}}                         # a recorded refusal
//! - {when: refund, text: "some words"}               # the first answer whose `when` is in the prompt
//! ```

use serde_json::{Map, Value, json};
use sinew_source::Schema;

use crate::codec::refusal_of_status;
use crate::output::ANSWER_TOOL;
use crate::prompt::{AnswerForm, Prompt, PromptMessage};
use crate::turn::{FinishReason, ModelRefusal, ModelTurn, RefusalKind, RequestedCall, TokenUsage};

/// Answers of a scripted model, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelScript {
    answers: Vec<Value>,
}

/// An answer that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("answer {index} of the model: {problem}")]
pub struct BadModelScript {
    /// Number of the answer, from 0.
    pub index: usize,
    /// Defect of the answer.
    pub problem: String,
}

/// Keys of an answer, exactly one of which is set.
const KINDS: [&str; 10] =
    ["call", "answer", "text", "echo", "raw", "refuse", "length", "error", "turn", "miss"];
/// Additional keys.
const BESIDE: [&str; 3] = ["usage", "when", "prompt"];
/// Maximum differences between two prompts in a refusal.
const MAX_TOLD_DIFFERENCES: usize = 5;
/// Maximum characters of a difference.
const MAX_DIFFERENCE_CHARS: usize = 120;

impl ModelScript {
    /// Parses answers. Each is an object with one of the known keys, and optional additional keys.
    pub fn read(answers: &[Value]) -> Result<Self, BadModelScript> {
        for (index, answer) in answers.iter().enumerate() {
            let bad = |problem: &str| BadModelScript { index, problem: problem.to_owned() };
            let members = answer.as_object().ok_or_else(|| bad("expected an object"))?;
            let kinds: Vec<&String> = members.keys().filter(|key| !BESIDE.contains(&key.as_str())).collect();
            let [kind] = kinds[..] else {
                return Err(bad(&format!("expected exactly one of {}", KINDS.join(", "))));
            };
            let value = &members[kind];
            let fits = match kind.as_str() {
                "call" => value.as_object().is_some_and(|calls| !calls.is_empty()) || value.is_array(),
                "text" | "refuse" | "length" => value.is_string(),
                "error" => value.get("status").and_then(Value::as_u64).is_some_and(|status| status < 600),
                "answer" | "raw" | "echo" => true,
                "turn" => serde_json::from_value::<ModelTurn>(value.clone()).is_ok(),
                "miss" => serde_json::from_value::<ModelRefusal>(value.clone()).is_ok(),
                _ => return Err(bad(&format!("'{kind}' is not one of {}", KINDS.join(", ")))),
            };
            if !fits {
                return Err(bad(&format!("the value of '{kind}' is not valid")));
            }
        }
        Ok(Self { answers: answers.to_vec() })
    }

    /// Creates a script that answers each prompt with a small value of the requested form.
    pub fn echo() -> Self {
        Self { answers: vec![json!({ "echo": true })] }
    }

    /// Returns the number of answers.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Returns whether the script has no answers.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Returns the answer to a prompt, or a refusal. `asked` is the number of earlier calls of the
    /// model. The last answer repeats only if it is an `echo`.
    pub fn answer(&self, asked: usize, prompt: &Prompt) -> Result<ModelTurn, ModelRefusal> {
        let last_echo = || self.answers.last().filter(|answer| answer.get("echo").is_some());
        let Some(answer) = self.matching(asked, prompt).or_else(last_echo) else {
            let text =
                format!("the script has {} answers, and a further one was requested", self.answers.len());
            return Err(ModelRefusal::new(RefusalKind::Denied, text));
        };
        if let Some(recorded) = answer.get("prompt") {
            let found = differences(recorded, &prompt.recorded());
            if !found.is_empty() {
                let text = format!("the question differs from the recorded one:\n- {}", found.join("\n- "));
                return Err(ModelRefusal::new(RefusalKind::Denied, text));
            }
        }
        let usage = TokenUsage {
            input: answer["usage"]["input"].as_u64().unwrap_or_else(|| prompt.measure().bytes / 4),
            output: answer["usage"]["output"].as_u64().unwrap_or_else(|| answer.to_string().len() as u64 / 4),
            cached: answer["usage"]["cached"].as_u64().unwrap_or(0),
            reasoning: 0,
            estimated: false,
        };
        let mut turn = turn_of(answer, prompt)?;
        if turn.usage == TokenUsage::default() {
            turn.usage = usage;
        }
        Ok(turn)
    }

    /// Returns the answer at this position, or the first whose `when` is in system text or last message.
    fn matching(&self, asked: usize, prompt: &Prompt) -> Option<&Value> {
        if self.answers.iter().all(|answer| answer.get("when").is_none()) {
            return self.answers.get(asked);
        }
        let said = format!("{}\n{}", prompt.system.join("\n"), last_message(prompt)).to_lowercase();
        self.answers.iter().find(|answer| match answer.get("when").and_then(Value::as_str) {
            Some(words) => said.contains(&words.to_lowercase()),
            None => true,
        })
    }
}

fn turn_of(answer: &Value, prompt: &Prompt) -> Result<ModelTurn, ModelRefusal> {
    let Some((kind, value)) = answer
        .as_object()
        .and_then(|members| members.iter().find(|(key, _)| !BESIDE.contains(&key.as_str())))
    else {
        return Err(ModelRefusal::unreadable("the script's answer is empty"));
    };
    let words = |text: &str, finish| ModelTurn {
        verbatim: json!({"role": "assistant", "content": text}),
        text: text.to_owned(),
        finish,
        ..ModelTurn::default()
    };
    match (kind.as_str(), value) {
        ("text", Value::String(text)) => Ok(words(text, FinishReason::Stop)),
        ("length", Value::String(text)) => Ok(words(text, FinishReason::Length)),
        ("refuse", Value::String(text)) => Err(ModelRefusal::new(RefusalKind::Refused, text.clone())),
        ("error", error) => {
            let status =
                error["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(500);
            let wait = error["retry_after"].as_f64().filter(|wait| (0.0..1e9).contains(wait));
            #[expect(clippy::cast_sign_loss, reason = "the range is checked")]
            let wait = wait.map(|wait| (wait * 1000.0) as u64);
            Err(refusal_of_status(status, wait, error["body"].to_string().as_bytes()))
        }
        ("raw", Value::String(bytes)) => read_raw(bytes.as_bytes()),
        ("raw", document) => read_raw(document.to_string().as_bytes()),
        ("turn", turn) => serde_json::from_value(turn.clone()).map_err(ModelRefusal::unreadable),
        ("miss", refusal) => {
            Err(serde_json::from_value(refusal.clone()).unwrap_or_else(ModelRefusal::unreadable))
        }
        ("call", calls) => Ok(calling(calls)),
        ("answer", output) => Ok(answering(output, prompt)),
        ("echo", _) => Ok(answering(&echo_of(prompt), prompt)),
        _ => Err(ModelRefusal::unreadable("the script's answer is not valid")),
    }
}

/// Returns the first differences between a recorded prompt and the actual one, with their locations.
fn differences(recorded: &Value, asked: &Value) -> Vec<String> {
    let mut found = Vec::new();
    add_differences("", recorded, asked, &mut found);
    found.truncate(MAX_TOLD_DIFFERENCES);
    found
}

fn add_differences(place: &str, recorded: &Value, asked: &Value, found: &mut Vec<String>) {
    if recorded == asked || found.len() > MAX_TOLD_DIFFERENCES {
        return;
    }
    match (recorded, asked) {
        (Value::Object(one), Value::Object(other)) => {
            let more = other.keys().filter(|key| !one.contains_key(*key));
            for key in one.keys().chain(more) {
                let at = |members: &Map<String, Value>| members.get(key).cloned().unwrap_or_default();
                add_differences(&format!("{place}/{key}"), &at(one), &at(other), found);
            }
        }
        (Value::Array(one), Value::Array(other)) => {
            for index in 0..one.len().max(other.len()) {
                let at = |items: &[Value]| items.get(index).cloned().unwrap_or_default();
                add_differences(&format!("{place}/{index}"), &at(one), &at(other), found);
            }
        }
        _ => {
            let (one, other) = told_difference(recorded, asked);
            found.push(format!("{place}: recorded {one}, requested {other}"));
        }
    }
}

/// Formats two values from their first difference.
fn told_difference(one: &Value, other: &Value) -> (String, String) {
    const BEFORE: usize = 20;
    let (one, other) = (one.to_string(), other.to_string());
    let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let from = |text: &str| {
        let rest: String = text.chars().skip(same.saturating_sub(BEFORE)).collect();
        let before = if same > BEFORE { "…" } else { "" };
        format!("{before}{}", crate::text::shortened(&rest, MAX_DIFFERENCE_CHARS))
    };
    (from(&one), from(&other))
}

fn read_raw(bytes: &[u8]) -> Result<ModelTurn, ModelRefusal> {
    let mut reader = crate::codec::AnswerReader::new(crate::spec::Provider::OpenAi);
    reader.feed(bytes);
    reader.end()
}

/// Builds a turn with calls from an object of names and arguments, or a list of such objects.
fn calling(calls: &Value) -> ModelTurn {
    let lists = calls.as_array().map_or(std::slice::from_ref(calls), Vec::as_slice);
    let members = lists.iter().filter_map(Value::as_object).flatten();
    let calls: Vec<RequestedCall> = members
        .enumerate()
        .map(|(number, (tool, arguments))| RequestedCall {
            id: format!("call_{number}"),
            tool: tool.clone(),
            // A text is for arguments that are not JSON.
            arguments: arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned),
            through: None,
        })
        .collect();
    let wire = calls.iter().map(|call| {
        json!({"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}})
    });
    let verbatim = json!({"role": "assistant", "content": null, "tool_calls": wire.collect::<Vec<_>>()});
    ModelTurn { verbatim, calls, ..ModelTurn::default() }
}

/// Builds a turn with an output in the form that the prompt requests.
fn answering(output: &Value, prompt: &Prompt) -> ModelTurn {
    if prompt.tools.iter().any(|tool| tool.name == ANSWER_TOOL) {
        let arguments = wrapped(
            output,
            &prompt
                .tools
                .iter()
                .find(|tool| tool.name == ANSWER_TOOL)
                .map_or(Value::Null, |tool| tool.parameters.clone()),
        );
        return calling(&json!({ ANSWER_TOOL: arguments }));
    }
    let text = match (&prompt.form, output) {
        (AnswerForm::Schema(schema), output) if schema.get("anyOf").is_some() => {
            json!({ ANSWER_TOOL: output }).to_string()
        }
        (AnswerForm::Schema(schema), output) => wrapped(output, schema).to_string(),
        (AnswerForm::Free, Value::String(text)) => text.clone(),
        (AnswerForm::Free, Value::Object(members)) if members.len() == 1 && members.contains_key("text") => {
            members["text"].as_str().map_or_else(|| output.to_string(), str::to_owned)
        }
        (AnswerForm::Json | AnswerForm::Free, output) => output.to_string(),
    };
    ModelTurn { verbatim: json!({"role": "assistant", "content": text}), text, ..ModelTurn::default() }
}

/// Wraps the output if the requested form has the only member `value` and the output does not.
fn wrapped(output: &Value, schema: &Value) -> Value {
    let only = schema["properties"].as_object().is_some_and(|p| p.len() == 1 && p.contains_key("value"));
    let is_wrapped = output.as_object().is_some_and(|members| members.contains_key("value"));
    if only && !is_wrapped { json!({ "value": output }) } else { output.clone() }
}

/// Returns the text of the last message or its results.
fn last_message(prompt: &Prompt) -> String {
    match prompt.messages.last() {
        Some(PromptMessage::Results { results }) => {
            results.iter().map(|result| result.content.as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => last_words(prompt).to_owned(),
    }
}

fn last_words(prompt: &Prompt) -> &str {
    let words = prompt.messages.iter().rev().find_map(|message| match message {
        PromptMessage::User { text } => Some(text.as_str()),
        _ => None,
    });
    words.unwrap_or_default()
}

/// Returns a value of the requested form, with the last message in its texts.
fn echo_of(prompt: &Prompt) -> Value {
    let said = last_words(prompt);
    let tool = prompt.tools.iter().find(|tool| tool.name == ANSWER_TOOL);
    let schema = match (&prompt.form, tool) {
        (_, Some(tool)) => &tool.parameters,
        (AnswerForm::Schema(schema), None) => schema,
        _ => return json!({ "text": said }),
    };
    let value = sample(schema, schema, said, 0);
    // The reader of the answer reports constraints that the sample violates.
    match Schema::compile(schema) {
        Ok(compiled) if compiled.check(&value).is_ok() => value,
        _ => sample(schema, schema, "text", 0),
    }
}

fn sample(schema: &Value, root: &Value, said: &str, depth: u32) -> Value {
    const MAX_DEPTH: u32 = 16;
    if depth > MAX_DEPTH {
        return Value::Null;
    }
    let below = |schema: &Value| sample(schema, root, said, depth + 1);
    if let Some(target) =
        schema.get("$ref").and_then(Value::as_str).and_then(|at| root.pointer(at.strip_prefix('#')?))
    {
        return below(target);
    }
    if let Some(value) = schema.get("const").or_else(|| schema.get("default")) {
        return value.clone();
    }
    if let Some(first) = schema.get("enum").and_then(|values| values.get(0)) {
        return first.clone();
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(choice) = schema.get(key).and_then(Value::as_array).and_then(|choices| choices.last()) {
            return below(choice);
        }
    }
    let kind = schema.get("type").map(|kind| kind.get(0).unwrap_or(kind)).and_then(Value::as_str);
    let number = |key: &str| schema.get(key).and_then(Value::as_f64);
    match kind {
        Some("string") => match schema.get("maxLength").and_then(Value::as_u64) {
            Some(most) => {
                said.chars().take(usize::try_from(most).unwrap_or(usize::MAX)).collect::<String>().into()
            }
            None => said.into(),
        },
        Some("integer") => json!(number("minimum").unwrap_or(0.0).ceil() as i64),
        Some("number") => json!(number("minimum").unwrap_or(0.0)),
        Some("boolean") => true.into(),
        Some("null") => Value::Null,
        Some("array") => {
            let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0).min(16);
            let item = schema.get("items").map_or(Value::Null, below);
            (0..least).map(|_| item.clone()).collect()
        }
        _ => {
            let mut members = Map::new();
            for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                members.insert(name.clone(), below(schema));
            }
            members.into()
        }
    }
}
