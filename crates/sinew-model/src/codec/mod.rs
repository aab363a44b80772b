//! Codecs of providers: encode prompts as requests, and decode answers to turns.
//!
//! Codecs do no I/O. Equal prompts have equal encodings. Answers are untrusted: any bytes decode to
//! a turn or a refusal.

mod anthropic;
pub(crate) mod anthropic_schema;
mod assemble;
mod error_text;
mod gemini;
mod lenient_json;
mod openai;
mod refusals;
mod server_quirks;

use serde_json::Value;
use sinew_protocol::event_stream::EventReader;

use crate::prompt::Prompt;
use crate::spec::{ModelSpec, Provider};
use crate::thoughts::ThoughtFilter;
use crate::turn::{ModelRefusal, ModelTurn, TurnDelta};

pub use refusals::refusal_of_status;
pub use server_quirks::ServerQuirks;

/// Data of the event that ends a stream of OpenAI.
const END_OF_STREAM: &[u8] = b"[DONE]";

/// Maximum bytes of an answer that is not a stream, to report them.
const MAX_STRAY_BYTES: usize = 1 << 10;

/// Maximum bytes of an answer.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// A request to a provider, without its address and key.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelRequest {
    /// Path and query, relative to the address of the provider.
    pub path: String,
    /// Headers other than the key and the content type.
    pub headers: &'static [(&'static str, &'static str)],
    /// JSON body.
    pub body: Vec<u8>,
}

/// Returns the default address of a provider.
pub const fn default_address(provider: Provider) -> &'static str {
    match provider {
        Provider::OpenAi => "https://api.openai.com/v1",
        Provider::Anthropic => "https://api.anthropic.com",
        Provider::Gemini => "https://generativelanguage.googleapis.com",
        Provider::Script => "",
    }
}

/// Returns the name of the header with the key, and the prefix of the key.
pub const fn key_header(provider: Provider) -> (&'static str, &'static str) {
    match provider {
        Provider::OpenAi | Provider::Script => ("authorization", "Bearer "),
        Provider::Anthropic => ("x-api-key", ""),
        Provider::Gemini => ("x-goog-api-key", ""),
    }
}

/// Encodes a prompt for a model, whose server has these quirks.
pub fn encode_request(prompt: &Prompt, model: &ModelSpec, quirks: &ServerQuirks) -> ModelRequest {
    let (path, headers, mut body): (String, &'static [_], Value) = match model.provider {
        Provider::OpenAi | Provider::Script => {
            ("/chat/completions".to_owned(), &[], openai::body(prompt, model))
        }
        Provider::Anthropic => (
            "/v1/messages".to_owned(),
            &[("anthropic-version", "2023-06-01")],
            anthropic::body(prompt, model),
        ),
        Provider::Gemini => (gemini::path(model), &[], gemini::body(prompt, model)),
    };
    quirks.apply(model.provider, &mut body);
    if let Some(members) = body.as_object_mut() {
        for (key, value) in &model.extra {
            merge_member(members, key, value);
        }
    }
    ModelRequest { path, headers, body: body.to_string().into_bytes() }
}

/// Sets a member. Merges objects recursively, removes the member for null, and replaces other values.
fn merge_member(members: &mut serde_json::Map<String, Value>, key: &str, value: &Value) {
    match (members.get_mut(key), value) {
        (Some(Value::Object(inner)), Value::Object(more)) => {
            for (key, value) in more {
                merge_member(inner, key, value);
            }
        }
        (_, Value::Null) => {
            members.shift_remove(key);
        }
        _ => {
            members.insert(key.to_owned(), value.clone());
        }
    }
}

/// Decodes the answer of a provider, streamed or not, as it arrives.
#[derive(Debug)]
pub struct AnswerReader {
    collector: Collector,
    events: EventReader,
    /// Bytes of an answer that is not streamed.
    whole: Option<Vec<u8>>,
    /// Start of an answer that is streamed.
    stray: Vec<u8>,
    begun: bool,
    bytes: usize,
    broken: Option<ModelRefusal>,
    thoughts: ThoughtFilter,
    /// Whether the answer has halves of characters.
    is_marked: bool,
    /// Half of a character at the end of the text so far.
    open_half: Option<char>,
}

#[derive(Debug)]
enum Collector {
    OpenAi(openai::ChatCollector),
    Anthropic(anthropic::MessageCollector),
    Gemini(gemini::ContentCollector),
}

impl AnswerReader {
    /// Creates a reader for an answer of this provider.
    pub fn new(provider: Provider) -> Self {
        let collector = match provider {
            Provider::OpenAi | Provider::Script => Collector::OpenAi(openai::ChatCollector::default()),
            Provider::Anthropic => Collector::Anthropic(anthropic::MessageCollector::default()),
            Provider::Gemini => Collector::Gemini(gemini::ContentCollector::default()),
        };
        Self {
            collector,
            events: EventReader::new(MAX_ANSWER_BYTES),
            whole: None,
            stray: Vec::new(),
            begun: false,
            bytes: 0,
            broken: None,
            thoughts: ThoughtFilter::default(),
            is_marked: false,
            open_half: None,
        }
    }

    /// Decodes the next bytes. Returns the completed parts of the answer, without reasoning.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Vec<TurnDelta> {
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > MAX_ANSWER_BYTES {
            let text = format!("it is longer than {} MiB", MAX_ANSWER_BYTES >> 20);
            self.broken.get_or_insert_with(|| ModelRefusal::unreadable(text));
        }
        if self.broken.is_some() {
            return Vec::new();
        }
        if !self.begun {
            // Ignore leading white space, even across chunks.
            bytes = bytes.trim_ascii_start();
            let Some(first) = bytes.first() else { return Vec::new() };
            self.begun = true;
            // An answer without streaming is one JSON document, and a proxy may answer with a page.
            if matches!(first, b'{' | b'[' | b'<') {
                self.whole = Some(Vec::new());
            }
        }
        if let Some(whole) = &mut self.whole {
            whole.extend_from_slice(bytes);
            return Vec::new();
        }
        let room = MAX_STRAY_BYTES.saturating_sub(self.stray.len());
        self.stray.extend_from_slice(&bytes[..room.min(bytes.len())]);
        match self.events.push(bytes) {
            Ok(events) => self.take_events(events),
            Err(error) => {
                self.broken = Some(ModelRefusal::unreadable(error.to_string()));
                Vec::new()
            }
        }
    }

    /// Ends the stream. Returns its remaining parts; a call of [`end`](Self::end) follows.
    pub fn close(&mut self) -> Vec<TurnDelta> {
        // The last event may have no empty line after it.
        let rest = self.events.push(b"\n\n").unwrap_or_default();
        let mut deltas = if self.broken.is_none() { self.take_events(rest) } else { Vec::new() };
        deltas.extend(Some(self.thoughts.end()).filter(|text| !text.is_empty()).map(TurnDelta::Text));
        deltas
    }

    fn take_events(&mut self, events: Vec<Vec<u8>>) -> Vec<TurnDelta> {
        let mut deltas = Vec::new();
        for data in events {
            let data = data.trim_ascii();
            match data {
                // Servers send events without data to keep the connection open.
                b"" => continue,
                END_OF_STREAM => {
                    if let Collector::OpenAi(collector) = &mut self.collector {
                        collector.take_end();
                    }
                    continue;
                }
                _ => {}
            }
            match lenient_json::parse(data, &mut self.is_marked) {
                Ok(event) => self.take(&event, &mut deltas),
                Err(error) => {
                    let text = format!("an event is not JSON ({error})");
                    self.broken = Some(refusals::refusal_of_text(data, &text));
                }
            }
            if self.broken.is_some() {
                break;
            }
        }
        deltas.into_iter().filter_map(|delta| self.shown(delta)).collect()
    }

    /// Returns a delta without reasoning and with whole characters; `None` if nothing remains.
    fn shown(&mut self, delta: TurnDelta) -> Option<TurnDelta> {
        let TurnDelta::Text(mut text) = delta else { return Some(delta) };
        if self.is_marked {
            text.insert_str(0, &self.open_half.take().map(String::from).unwrap_or_default());
            self.open_half = lenient_json::split_open_half(&mut text);
            text = lenient_json::joined(&text);
        }
        Some(self.thoughts.add(&text)).filter(|text| !text.is_empty()).map(TurnDelta::Text)
    }

    fn take(&mut self, event: &Value, deltas: &mut Vec<TurnDelta>) {
        let taken = match &mut self.collector {
            Collector::OpenAi(collector) => collector.take_event(event, deltas),
            Collector::Anthropic(collector) => collector.take_event(event, deltas),
            Collector::Gemini(collector) => collector.take_event(event, deltas),
        };
        if let Err(refusal) = taken {
            self.broken = Some(refusal);
        }
    }

    /// Returns whether the answer is invalid, so that the rest need not be read.
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Returns the turn after all bytes were fed.
    pub fn end(mut self) -> Result<ModelTurn, ModelRefusal> {
        self.close();
        if let Some(refusal) = self.broken {
            return Err(refusal);
        }
        let turn = if let Some(whole) = self.whole {
            let document = lenient_json::parse(&whole, &mut self.is_marked)
                .map_err(|error| refusals::refusal_of_text(&whole, &error.to_string()))?;
            match self.collector {
                Collector::OpenAi(_) => openai::read_whole(&document),
                Collector::Anthropic(_) => anthropic::read_whole(&document),
                Collector::Gemini(_) => gemini::read_whole(&document),
            }
        } else {
            let turn = match self.collector {
                Collector::OpenAi(collector) => collector.end(),
                Collector::Anthropic(collector) => collector.end(),
                Collector::Gemini(collector) => collector.end(),
            };
            // Without an answer, the text that is not a stream is the message.
            let message = || refusals::refusal_of_text(&self.stray, "it is not a stream of events");
            turn.map_err(|refusal| if is_stray(&self.stray) { message() } else { refusal })
        }?;
        Ok(if self.is_marked { with_whole_characters(turn) } else { turn })
    }
}

/// Joins the halves of characters in a turn.
fn with_whole_characters(mut turn: ModelTurn) -> ModelTurn {
    turn.verbatim = lenient_json::value_joined(turn.verbatim);
    turn.text = lenient_json::joined(&turn.text);
    for call in &mut turn.calls {
        for text in [&mut call.id, &mut call.tool, &mut call.arguments] {
            *text = lenient_json::joined(text);
        }
    }
    turn
}

/// Returns whether an answer starts with text that is not a line of a stream, such as the error of a proxy.
fn is_stray(start: &[u8]) -> bool {
    const FIELDS: [&[u8]; 6] = [b":", b"data", b"event", b"id", b"retry", b"\xef\xbb\xbf"];
    !start.is_empty() && !FIELDS.iter().any(|field| start.starts_with(field))
}

/// Returns the refusal for a stream that ended before its answer.
fn unfinished() -> ModelRefusal {
    ModelRefusal::unreadable("the stream ended before the answer did")
}

/// Reads a token count. Missing, negative and implausible ones are 0, which conversations replace
/// by an estimate.
fn tokens(value: &Value) -> u64 {
    const MAX_TOKENS: u64 = 1 << 40;
    value.as_u64().filter(|count| *count < MAX_TOKENS).unwrap_or(0)
}
