//! Conversations with a server of each provider's wire: no provider can be asked for real without a key of somebody's.

use std::path::Path;

use serde_json::{Value, json};
use sinew_source::Schema;

use crate::fixture::Fixture;
use crate::server::{Say, Server};

/// A provider, as its own API has it.
struct Wire {
    provider: &'static str,
    /// Address of the provider's API.
    address: &'static str,
    /// Path below the address of a server, and that of requests.
    base: &'static str,
    path: &'static str,
    /// Header with the key, and its text before the key.
    key: (&'static str, &'static str),
    /// Schemas of the SDK, and the parts of a request that they describe; the whole request if the pointer is empty.
    schemas: &'static [(&'static str, &'static str)],
    /// A call of the tool `total`, and words, as streams.
    call: fn() -> Vec<Value>,
    words: fn(&str) -> Vec<Value>,
}

const WIRES: [Wire; 3] = [
    Wire {
        provider: "openai",
        address: "https://api.openai.com/v1",
        base: "/v1",
        path: "/v1/chat/completions",
        key: ("authorization", "Bearer "),
        schemas: &[("openai-request-stream", "")],
        call: || {
            let function = json!({"name": "total", "arguments": "{\"a\": [1, 2, 3]}"});
            let call = json!({"index": 0, "id": "c1", "type": "function", "function": function});
            vec![
                json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}),
                json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
                json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2}}),
            ]
        },
        words: |text| {
            vec![
                json!({"choices": [{"index": 0, "delta": {"content": text}}]}),
                json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
                json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 2}}),
            ]
        },
    },
    Wire {
        provider: "anthropic",
        address: "https://api.anthropic.com",
        base: "",
        path: "/v1/messages",
        key: ("x-api-key", ""),
        schemas: &[("anthropic-request-stream", "")],
        call: || {
            let block = json!({"type": "tool_use", "id": "c1", "name": "total", "input": {}});
            let delta = json!({"type": "input_json_delta", "partial_json": "{\"a\": [1, 2, 3]}"});
            anthropic(&block, &delta, "tool_use")
        },
        words: |text| {
            let delta = json!({"type": "text_delta", "text": text});
            anthropic(&json!({"type": "text", "text": ""}), &delta, "end_turn")
        },
    },
    Wire {
        provider: "gemini",
        address: "https://generativelanguage.googleapis.com",
        base: "",
        path: "/v1beta/models/m:streamGenerateContent?alt=sse",
        key: ("x-goog-api-key", ""),
        schemas: &[("gemini-content", "/contents/0"), ("gemini-generation-config", "/generationConfig")],
        call: || vec![gemini(&json!({"functionCall": {"name": "total", "args": {"a": [1, 2, 3]}}}))],
        words: |text| vec![gemini(&json!({ "text": text }))],
    },
];

fn anthropic(block: &Value, delta: &Value, stop: &str) -> Vec<Value> {
    vec![
        json!({"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 10, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 2}}),
        json!({"type": "message_stop"}),
    ]
}

fn gemini(part: &Value) -> Value {
    let candidate = json!({"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"});
    json!({"candidates": [candidate], "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 2}})
}

fn stream(events: &[Value]) -> Say {
    let line = |event: &Value| {
        let kind = event["type"].as_str().map(|kind| format!("event: {kind}\n")).unwrap_or_default();
        format!("{kind}data: {event}\n\n")
    };
    let body: String = events.iter().map(line).collect();
    Say::Reply("200 OK", "Content-Type: text/event-stream", body.into_bytes())
}

fn schema(name: &str) -> Schema {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/providers");
    let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
    Schema::compile(&serde_json::from_str(&text).unwrap()).unwrap()
}

/// An agent that asks a provider with a key of the environment first, and a model on this machine behind it.
fn agent(wire: &Wire, real: Option<&Server>, local: &Server, key: &str) -> Fixture {
    let mut first = json!({"provider": wire.provider, "model": "m", "key": format!("${{env:{key}}}")});
    if let Some(server) = real {
        first["url"] = server.url(wire.base).into();
        first["allow_private"] = true.into();
    }
    let second =
        json!({"provider": "openai", "model": "local", "url": local.url("/v1"), "allow_private": true});
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "number"}}}});
    let script = json!({"name": "total", "input_schema": schema, "source": "def total(args):\n    return sum(args['a'])"});
    let run = json!({
        "use": ["real", "local"], "models": {"real": first, "local": second}, "instruction": "You add.",
        "tools": [{"script": script}],
    });
    Fixture::file(&json!({"name": "x", "run": {"model": run}}))
}

#[tokio::test]
async fn with_a_key_each_provider_is_asked_in_its_own_words() {
    for wire in &WIRES {
        let real = Server::start(vec![stream(&(wire.call)()), stream(&(wire.words)("It is 6."))]).await;
        let local = Server::start(Vec::new()).await;
        let fixture = agent(wire, Some(&real), &local, "TOKEN");
        let reply = fixture.call(json!({"text": "1+2+3?"})).await.unwrap();
        assert_eq!(reply.output, json!({"text": "It is 6."}), "{}", wire.provider);
        let told =
            ["turns", "input_tokens", "output_tokens", "tool_calls"].map(|key| reply.usage[key].clone());
        assert_eq!(told, [json!(2), json!(20), json!(4), json!(1)], "{}: {}", wire.provider, reply.usage);
        assert_eq!((real.seen().len(), local.seen().len()), (2, 0), "{}", wire.provider);
        for request in real.seen() {
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(&format!("POST {} HTTP/1.1\r\n", wire.path)), "{head}");
            let (name, before) = wire.key;
            assert!(head.contains(&format!("\r\n{name}: {before}s3cret-canary")), "{head}");
            let body: Value = serde_json::from_str(body).unwrap();
            for (name, pointer) in wire.schemas {
                let found = schema(name).errors(body.pointer(pointer).unwrap());
                assert!(found.is_empty(), "{name}: {found:?}: {body:#}");
            }
            assert!(!body.to_string().contains("canary"), "{body}");
        }
        assert!(real.seen()[1].contains("script:total"), "{}: the result goes back", wire.provider);
    }
}

#[tokio::test]
async fn without_its_key_a_provider_is_passed_over_and_its_address_is_its_own() {
    for wire in &WIRES {
        let local = Server::start(vec![stream(&(WIRES[0].words)("Six."))]).await;
        let fixture = agent(wire, None, &local, "UNSET");
        assert_eq!(fixture.output(json!({"text": "1+2+3?"})).await.unwrap(), json!({"text": "Six."}));
        assert_eq!(local.seen().len(), 1, "{}", wire.provider);
        for (key, is_set) in [("UNSET", false), ("TOKEN", true)] {
            let models = agent(wire, None, &local, key).agent.models();
            let real = models.iter().find(|model| model.alias == "real").unwrap();
            assert_eq!((real.url.as_str(), &real.key), (wire.address, &Some((key.to_owned(), is_set))));
            assert_eq!(real.place, Some(0), "the real model is asked first");
        }
    }
}
