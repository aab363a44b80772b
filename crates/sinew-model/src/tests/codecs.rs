//! Answers of providers, whole and in chunks.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::codec::AnswerReader;
use crate::{FinishReason, ModelRefusal, ModelTurn, Provider, RefusalKind, TokenUsage};

const PROVIDERS: [Provider; 3] = [Provider::OpenAi, Provider::Anthropic, Provider::Gemini];

fn stream(events: &[Value]) -> Vec<u8> {
    events.iter().flat_map(|event| format!("event: e\ndata: {event}\n\n").into_bytes()).collect()
}

fn read(provider: Provider, pieces: &[&[u8]]) -> Result<ModelTurn, ModelRefusal> {
    let mut reader = AnswerReader::new(provider);
    for piece in pieces {
        reader.feed(piece);
    }
    reader.end()
}

/// Encodes an answer with text and calls as a provider's stream.
fn streamed(provider: Provider, words: &[String], calls: &[(String, Vec<String>)]) -> Vec<u8> {
    let mut events = Vec::new();
    match provider {
        Provider::OpenAi | Provider::Script => {
            for word in words {
                events.push(json!({"choices": [{"delta": {"content": word}}]}));
            }
            // Interleave chunks of calls, as servers with parallel calls do.
            let longest = calls.iter().map(|(_, pieces)| pieces.len()).max().unwrap_or(0);
            for (index, (tool, _)) in calls.iter().enumerate() {
                let call = json!({"index": index, "id": format!("c{index}"), "function": {"name": tool, "arguments": ""}});
                events.push(json!({"choices": [{"delta": {"tool_calls": [call]}}]}));
            }
            for nth in 0..longest {
                for (index, (_, pieces)) in calls.iter().enumerate() {
                    let Some(piece) = pieces.get(nth) else { continue };
                    let call = json!({"index": index, "function": {"arguments": piece}});
                    events.push(json!({"choices": [{"delta": {"tool_calls": [call]}}]}));
                }
            }
            events.push(json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}));
            events.push(json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}));
        }
        Provider::Anthropic => {
            events.push(
                json!({"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 7}}}),
            );
            events.push(json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}));
            for word in words {
                events.push(json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}}));
            }
            for (index, (tool, pieces)) in calls.iter().enumerate() {
                let block = json!({"type": "tool_use", "id": format!("c{index}"), "name": tool, "input": {}});
                events
                    .push(json!({"type": "content_block_start", "index": index + 1, "content_block": block}));
                for piece in pieces {
                    let delta = json!({"type": "input_json_delta", "partial_json": piece});
                    events.push(json!({"type": "content_block_delta", "index": index + 1, "delta": delta}));
                }
                events.push(json!({"type": "content_block_stop", "index": index + 1}));
            }
            let delta = json!({"stop_reason": if calls.is_empty() { "end_turn" } else { "tool_use" }});
            events.push(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 3}}));
            events.push(json!({"type": "message_stop"}));
        }
        Provider::Gemini => {
            for word in words {
                events.push(json!({"candidates": [{"content": {"parts": [{"text": word}]}}]}));
            }
            for (tool, pieces) in calls {
                let args: Value = serde_json::from_str(&pieces.concat()).unwrap_or_else(|_| json!({}));
                let part = json!({"functionCall": {"name": tool, "args": args}, "thoughtSignature": "s"});
                events.push(json!({"candidates": [{"content": {"parts": [part]}}]}));
            }
            let usage = json!({"promptTokenCount": 7, "candidatesTokenCount": 3});
            events.push(json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": usage}));
        }
    }
    stream(&events)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn calls_come_out_as_they_went_in_whatever_the_pieces(
        which in 0..3_usize,
        words in proptest::collection::vec("\\PC{0,6}", 0..4),
        calls in proptest::collection::vec(("[a-z]{1,6}", "\\PC{0,12}"), 0..5),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let provider = PROVIDERS[which];
        let given: Vec<(String, Vec<String>)> = calls
            .iter()
            .map(|(tool, word)| {
                let text: Vec<char> = json!({"w": word}).to_string().chars().collect();
                (tool.clone(), text.chunks(3).map(|piece| piece.iter().collect()).collect())
            })
            .collect();
        let bytes = streamed(provider, &words, &given);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for cut in cuts.into_iter().chain([bytes.len()]) {
            pieces.push(&bytes[from..cut]);
            from = cut;
        }
        let turn = read(provider, &pieces).unwrap();
        let said = words.concat();
        prop_assert_eq!(turn.text.trim(), said.trim());
        prop_assert_eq!(turn.usage, TokenUsage { input: 7, output: 3, ..TokenUsage::default() });
        let out: Vec<(String, Value)> = turn
            .calls
            .iter()
            .map(|call| (call.tool.clone(), serde_json::from_str(&call.arguments).unwrap()))
            .collect();
        let expected: Vec<(String, Value)> =
            calls.iter().map(|(tool, word)| (tool.clone(), json!({"w": word}))).collect();
        prop_assert_eq!(out, expected);
        let ids: std::collections::HashSet<&String> = turn.calls.iter().map(|call| &call.id).collect();
        prop_assert_eq!(ids.len(), turn.calls.len());
    }

    #[test]
    fn a_stream_that_is_cut_is_never_a_turn_with_other_calls(
        which in 0..3_usize,
        at in any::<prop::sample::Index>(),
    ) {
        let provider = PROVIDERS[which];
        let calls = [("look".to_owned(), vec!["{\"id\":".to_owned(), "\"1\"}".to_owned()])];
        let bytes = streamed(provider, &["words".to_owned()], &calls);
        let whole = read(provider, &[&bytes]).unwrap();
        // A turn requires the finish reason; after it, only token counts may be missing.
        if let Ok(turn) = read(provider, &[&bytes[..at.index(bytes.len())]]) {
            prop_assert_eq!((turn.text, turn.calls), (whole.text, whole.calls));
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic(
        which in 0..3_usize,
        text in "(data: |\\{\"choices\":\\[|\\{\"delta\":|\\}|\\]|\"type\":\"content_block_start\"|\"index\":-1|,|null|\n\n|[a-z\"0-9]){0,24}",
        bytes in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let provider = PROVIDERS[which];
        let _turn_or_refusal = (read(provider, &[text.as_bytes()]), read(provider, &[&bytes]), read(provider, &[text.as_bytes(), &bytes]));
    }

    #[test]
    fn values_of_wrong_types_make_no_reader_panic(which in 0..3_usize, seed in 0..4_000_u64) {
        let provider = PROVIDERS[which];
        let calls = [("look".to_owned(), vec!["{}".to_owned()])];
        let text = String::from_utf8(streamed(provider, &["w".to_owned()], &calls)).unwrap();
        let mut random = seed;
        let broken: Vec<Value> = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
            .map(|event| replaced(&event, &mut random))
            .collect();
        let _turn_or_refusal = read(provider, &[&stream(&broken)]);
    }
}

/// Replaces about every eighth member by a value of another type.
fn replaced(value: &Value, random: &mut u64) -> Value {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    if (*random >> 33).is_multiple_of(8) {
        let others = [
            json!(null),
            json!(-1),
            json!(1e300),
            json!("x"),
            json!([]),
            json!({}),
            json!([[1]]),
            json!(true),
        ];
        return others[(*random >> 40) as usize % others.len()].clone();
    }
    match value {
        Value::Array(items) => items.iter().map(|item| replaced(item, random)).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| (key.clone(), replaced(value, random)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

#[test]
fn quirks_of_servers_are_understood() {
    let chunk = |calls: Value| json!({"choices": [{"delta": {"tool_calls": calls}}]});
    let end = json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]});
    let function = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
    for (name, events, expected) in [
        (
            "whole calls without an index",
            vec![chunk(json!([
                {"id": "a", "function": function("x", "{}")},
                {"id": "b", "function": function("y", "{}")},
            ]))],
            vec![("a", "x"), ("b", "y")],
        ),
        (
            "one index for all calls",
            vec![
                chunk(json!([{"index": 0, "id": "a", "function": function("x", "{}")}])),
                chunk(json!([{"index": 0, "id": "b", "function": function("y", "{}")}])),
            ],
            vec![("a", "x"), ("b", "y")],
        ),
        (
            "one id for all calls",
            vec![
                chunk(json!([{"index": 0, "id": "a", "function": function("x", "{}")}])),
                chunk(json!([{"index": 1, "id": "a", "function": function("x", "{}")}])),
            ],
            vec![("a", "x"), ("call_1", "x")],
        ),
        (
            "no ids, and the name in every piece",
            vec![
                chunk(json!([{"index": 0, "function": function("x", "{")}])),
                chunk(json!([{"index": 0, "function": function("x", "}")}])),
            ],
            vec![("call_0", "x")],
        ),
        (
            "arguments as an object",
            vec![chunk(json!([{"index": 0, "id": "a", "function": {"name": "x", "arguments": {}}}]))],
            vec![("a", "x")],
        ),
    ] {
        let mut events = events;
        events.push(end.clone());
        let turn = read(Provider::OpenAi, &[&stream(&events)]).unwrap();
        let calls: Vec<(&str, &str)> =
            turn.calls.iter().map(|call| (call.id.as_str(), call.tool.as_str())).collect();
        assert_eq!(calls, expected, "{name}");
        assert!(turn.calls.iter().all(|call| call.arguments == "{}"), "{name}: {:?}", turn.calls);
        let sent: Vec<&str> = turn.verbatim["tool_calls"]
            .as_array()
            .unwrap()
            .iter()
            .map(|call| call["id"].as_str().unwrap())
            .collect();
        assert_eq!(sent, expected.iter().map(|(id, _)| *id).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn reasons_and_errors_in_answers_are_sorted() {
    use RefusalKind::{ContextTooLong, Denied, Filtered, Limited, Refused, Unavailable};
    let chat =
        |finish: &str, message: Value| json!({"choices": [{"message": message, "finish_reason": finish}]});
    let message = |stop: &str| json!({"content": [{"type": "text", "text": "x"}], "stop_reason": stop});
    let content = |finish: &str| json!({"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": finish}]});
    for (provider, document, expected) in [
        (Provider::OpenAi, chat("stop", json!({"content": "x"})), Ok(FinishReason::Stop)),
        (Provider::OpenAi, chat("length", json!({"content": "x"})), Ok(FinishReason::Length)),
        (Provider::OpenAi, chat("content_filter", json!({"content": ""})), Err(Filtered)),
        (Provider::OpenAi, chat("stop", json!({"content": null, "refusal": "no"})), Err(Refused)),
        (Provider::OpenAi, json!({"choices": []}), Err(Unavailable)),
        (Provider::OpenAi, json!({"error": {"message": "rate_limit reached"}}), Err(Limited)),
        (Provider::OpenAi, json!({"error": {"message": "boom"}}), Err(Unavailable)),
        (Provider::Anthropic, message("end_turn"), Ok(FinishReason::Stop)),
        (Provider::Anthropic, message("max_tokens"), Ok(FinishReason::Length)),
        (Provider::Anthropic, message("refusal"), Err(Refused)),
        (Provider::Anthropic, message("model_context_window_exceeded"), Err(ContextTooLong)),
        (
            Provider::Anthropic,
            json!({"type": "error", "error": {"type": "authentication_error"}}),
            Err(Denied),
        ),
        (Provider::Gemini, content("STOP"), Ok(FinishReason::Stop)),
        (Provider::Gemini, content("MAX_TOKENS"), Ok(FinishReason::Length)),
        (Provider::Gemini, content("SAFETY"), Err(Filtered)),
        (Provider::Gemini, content("MALFORMED_FUNCTION_CALL"), Err(Unavailable)),
        (Provider::Gemini, json!({"promptFeedback": {"blockReason": "SAFETY"}}), Err(Filtered)),
        (
            Provider::Gemini,
            json!([{"error": {"status": "RESOURCE_EXHAUSTED", "message": "x"}}]),
            Err(Limited),
        ),
    ] {
        let read = read(provider, &[document.to_string().as_bytes()]);
        let seen = read.map(|turn| turn.finish).map_err(|refusal| refusal.kind);
        assert_eq!(seen, expected, "{provider:?} {document}");
    }
}

#[test]
fn an_endless_answer_is_given_up() {
    for provider in PROVIDERS {
        let mut reader = AnswerReader::new(provider);
        let piece = vec![b'x'; 1 << 20];
        let mut fed = 0;
        while !reader.is_broken() {
            reader.feed(&piece);
            fed += 1;
            assert!(fed <= 17, "{provider:?}");
        }
        assert_eq!(reader.end().unwrap_err().kind, RefusalKind::Unavailable);
    }
}

#[test]
fn reasoning_comes_back_as_the_provider_wrote_it() {
    let events = [
        json!({"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 5, "cache_read_input_tokens": 20}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "hi"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}),
    ];
    let turn = read(Provider::Anthropic, &[&stream(&events)]).unwrap();
    assert_eq!(
        turn.verbatim,
        json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "sig"},
            {"type": "text", "text": "hi"},
        ]})
    );
    assert_eq!(turn.usage, TokenUsage { input: 25, output: 9, cached: 20, ..TokenUsage::default() });
    let events = [
        json!({"choices": [{"delta": {"role": "assistant", "reasoning_content": "h", "content": ""}}]}),
        json!({"choices": [{"delta": {"reasoning_content": "m", "reasoning_details": [{"a": 1}]}}]}),
        json!({"choices": [{"delta": {"content": "hi", "reasoning_details": [{"b": 2}]}, "finish_reason": "stop"}]}),
    ];
    let turn = read(Provider::OpenAi, &[&stream(&events)]).unwrap();
    assert_eq!(
        turn.verbatim,
        json!({"role": "assistant", "content": "hi", "reasoning_content": "hm", "reasoning_details": [{"a": 1}, {"b": 2}]})
    );
}
