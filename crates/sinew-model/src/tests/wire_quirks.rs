//! Quirks of servers: `tests/providers/wire-quirks.json` lists bytes of each provider and the expected
//! turn or refusal. An event that is a text is sent as it is.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::codec::AnswerReader;
use crate::{ModelRefusal, ModelTurn, Provider, TurnDelta};

#[derive(Deserialize)]
struct WireQuirk {
    name: String,
    provider: String,
    events: Vec<Value>,
    expect: ExpectedAnswer,
}

/// Expectations of an answer; only those that are present are checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedAnswer {
    text: Option<String>,
    /// Text of all deltas.
    deltas: Option<String>,
    /// Id, tool and arguments of each call.
    calls: Option<Vec<(String, String, Value)>>,
    /// Parts of the message that goes back, by JSON pointer.
    verbatim: Option<std::collections::BTreeMap<String, Value>>,
    /// Class of the refusal.
    error: Option<String>,
    /// Part of the refusal's message.
    words: Option<String>,
}

impl WireQuirk {
    fn bytes(&self) -> Vec<u8> {
        let text = |event: &Value| event.as_str().map_or_else(|| format!("data: {event}\n\n"), str::to_owned);
        self.events.iter().map(text).collect::<String>().into_bytes()
    }

    fn provider(&self) -> Provider {
        match self.provider.as_str() {
            "openai" => Provider::OpenAi,
            "anthropic" => Provider::Anthropic,
            "gemini" => Provider::Gemini,
            other => panic!("{other}"),
        }
    }
}

/// Reads an answer in pieces of this size.
fn read(provider: Provider, bytes: &[u8], size: usize) -> (Result<ModelTurn, ModelRefusal>, String) {
    let mut reader = AnswerReader::new(provider);
    let mut deltas: Vec<TurnDelta> = bytes.chunks(size).flat_map(|piece| reader.feed(piece)).collect();
    deltas.extend(reader.close());
    let texts = deltas.into_iter().filter_map(|delta| match delta {
        TurnDelta::Text(text) => Some(text),
        TurnDelta::Call(_) => None,
    });
    (reader.end(), texts.collect())
}

fn check(name: &str, expect: &ExpectedAnswer, turn: &ModelTurn, deltas: &str) {
    assert!(expect.error.is_none(), "{name}: {turn:?}");
    if let Some(text) = &expect.text {
        assert_eq!(turn.text, *text, "{name}");
    }
    if let Some(text) = &expect.deltas {
        assert_eq!(deltas, text, "{name}");
    }
    if let Some(calls) = &expect.calls {
        let seen: Vec<(String, String, Value)> = turn
            .calls
            .iter()
            .map(|call| {
                let arguments = serde_json::from_str(&call.arguments).unwrap_or_default();
                (call.id.clone(), call.tool.clone(), arguments)
            })
            .collect();
        assert_eq!(seen, *calls, "{name}");
    }
    for (pointer, value) in expect.verbatim.iter().flatten() {
        assert_eq!(turn.verbatim.pointer(pointer), Some(value), "{name}: {:#}", turn.verbatim);
    }
}

#[test]
fn answers_with_quirks_are_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/providers/wire-quirks.json");
    let quirks: Vec<WireQuirk> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for quirk in quirks {
        let (name, bytes) = (format!("{}: {}", quirk.provider, quirk.name), quirk.bytes());
        for size in [1, 7, bytes.len()] {
            match read(quirk.provider(), &bytes, size) {
                (Ok(turn), deltas) => check(&name, &quirk.expect, &turn, &deltas),
                (Err(refusal), _) => {
                    let kind = serde_json::to_value(refusal.kind).unwrap();
                    assert_eq!(kind.as_str(), quirk.expect.error.as_deref(), "{name}: {refusal}");
                    let words = quirk.expect.words.as_deref().unwrap_or_default();
                    assert!(refusal.message.contains(words), "{name}: {refusal}");
                }
            }
        }
    }
}
