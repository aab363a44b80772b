//! Requests and answers against the schemas of the providers' own SDKs.

use std::path::Path;

use serde_json::{Map, Value, json};
use sinew_source::Schema;

use super::fixture::{model, script, spec, with_schema};
use crate::codec::{AnswerReader, ServerQuirks, encode_request};
use crate::rehearsal::rehearse;
use crate::{ConversationState, ModelSpec, NextStep, OutputMode, Provider, SchemaAbility, StepBody};

fn schema(name: &str) -> Schema {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/providers").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap();
    Schema::compile(&serde_json::from_str(&text).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Formats the violations of a value.
fn wrong(schema: &Schema, value: &Value) -> Vec<String> {
    schema.errors(value).iter().map(|one| format!("{}: {}", one.pointer, one.message)).collect()
}

/// Returns prompts with tools, outputs in each mode, repairs, examples and summaries.
fn requests(provider: Provider, change: impl Fn(&mut ModelSpec)) -> Vec<Value> {
    let level =
        json!({"type": "object", "properties": {"level": {"enum": ["low", "high"]}}, "required": ["level"]});
    let mut all = Vec::new();
    for mode in [
        None,
        Some(OutputMode::Native),
        Some(OutputMode::Tool),
        Some(OutputMode::Text),
        Some(OutputMode::Marker),
    ] {
        let mut spec = spec();
        if let Some(mode) = mode {
            spec = with_schema(spec, &level);
            spec.output.mode = mode;
        }
        let mut first = ModelSpec { provider, ..model("main") };
        change(&mut first);
        spec.models = vec![first];
        spec.examples = vec![("4+9?".to_owned(), "13".to_owned())];
        spec.history = vec![("before".to_owned(), "after".to_owned())];
        spec.budget.turns = 6;
        let answers = json!([
            {"call": {"look": {"id": "1"}, "send": {"id": "2"}}},
            {"call": {"look": "{bad", "nope": {}}},
            {"length": "half"},
            {"text": "neither JSON nor «marker»"},
            {"text": "again not"},
            {"text": "and not"},
        ]);
        let mut stubs = super::fixture::CountingStubs::default();
        let mut played = rehearse(&spec, &script(&answers), &mut stubs, &[], "first");
        // The script has the encoding of one provider; here each provider needs its own.
        let provider_of = |body: &mut StepBody| {
            if let StepBody::Turn { answer, .. } = body
                && provider != Provider::OpenAi
            {
                answer.verbatim = Value::Null;
            }
        };
        played.log.iter_mut().for_each(|record| provider_of(&mut record.body));
        for end in 1..=played.log.len() {
            let state = ConversationState::fold(&played.log[..end]);
            if let NextStep::AskModel(ask) = spec.next(&state, state.begun_at.unwrap_or(0), &|_, _| false) {
                let request = encode_request(&ask.prompt, &spec.models[0], &ServerQuirks::default());
                assert_eq!(request, encode_request(&ask.prompt, &spec.models[0], &ServerQuirks::default()));
                all.push(serde_json::from_slice(&request.body).unwrap());
            }
        }
        let state = ConversationState::fold(&played.log[..played.log.len() - 1]);
        let summary = crate::compose::summary_prompt(&spec, &state, &spec.models[0], 2);
        all.push(
            serde_json::from_slice(&encode_request(&summary, &spec.models[0], &ServerQuirks::default()).body)
                .unwrap(),
        );
    }
    assert!(all.len() > 20, "{}", all.len());
    all
}

/// A variant of a model: streamed or not, with or without settings.
type ModelChange = fn(&mut ModelSpec);

/// Variants by name.
const VARIANTS: [(&str, ModelChange); 4] = [
    ("plain", |_| {}),
    ("not streamed", |model| model.abilities.stream = false),
    ("one call at a time, no schema", |model| {
        model.abilities.parallel = false;
        model.abilities.schema = SchemaAbility::Json;
    }),
    ("settings", |model| {
        model.temperature = Some(0.0);
        model.seed = Some(7);
        model.reasoning = Some("low".to_owned());
    }),
];

#[test]
fn requests_to_openai_fit() {
    let (streamed, whole) = (schema("openai-request-stream"), schema("openai-request"));
    for (name, change) in VARIANTS {
        for request in requests(Provider::OpenAi, change) {
            let schema = if request.get("stream").is_some() { &streamed } else { &whole };
            assert_eq!(wrong(schema, &request), Vec::<String>::new(), "{name}: {request:#}");
            for message in request["messages"].as_array().unwrap() {
                assert!(message["role"] != "tool" || message["tool_call_id"].is_string(), "{message}");
            }
        }
    }
    // The schemas detect invalid requests.
    let mut request = requests(Provider::OpenAi, |_| {}).remove(0);
    request["tool_choice"] = "any".into();
    assert!(!wrong(&streamed, &request).is_empty());
    request["tool_choice"] = "required".into();
    assert_eq!(wrong(&streamed, &request), Vec::<String>::new());
    request["messages"][0] = json!({"role": "tool", "content": "x"});
    assert!(!wrong(&streamed, &request).is_empty());
}

#[test]
fn requests_to_anthropic_fit() {
    let (streamed, whole) = (schema("anthropic-request-stream"), schema("anthropic-request"));
    for (name, change) in VARIANTS {
        for request in requests(Provider::Anthropic, change) {
            let schema = if request.get("stream").is_some() { &streamed } else { &whole };
            assert_eq!(wrong(schema, &request), Vec::<String>::new(), "{name}: {request:#}");
            let messages = request["messages"].as_array().unwrap();
            assert_eq!(messages[0]["role"], "user");
            assert!(messages.windows(2).all(|pair| pair[0]["role"] != pair[1]["role"]), "{request:#}");
            let marks = request.to_string().matches("cache_control").count();
            assert!((1..=4).contains(&marks), "the interface takes four marks: {marks}");
        }
    }
    let mut request = requests(Provider::Anthropic, |_| {}).remove(0);
    request["tool_choice"] = json!({"type": "required"});
    assert!(!wrong(&streamed, &request).is_empty());
}

#[test]
fn anthropic_gets_the_schemas_that_it_enforces_and_a_tool_for_others() {
    let level = |more: Value| {
        let mut schema =
            json!({"type": "object", "properties": {"level": {"type": "string", "minLength": 3}}});
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut spec = with_schema(spec(), &schema);
        spec.models = vec![ModelSpec { provider: Provider::Anthropic, ..model("main") }];
        let prompt = crate::compose::prompt(&spec, &ConversationState::default(), &spec.models[0], false);
        serde_json::from_slice::<Value>(
            &encode_request(&prompt, &spec.models[0], &ServerQuirks::default()).body,
        )
        .unwrap()
    };
    let has_answer = |body: &Value| {
        body["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == crate::ANSWER_TOOL)
    };
    let said = level(json!({}));
    assert_eq!(
        said["output_config"]["format"]["schema"],
        json!({"type": "object", "properties": {"level": {"type": "string"}}, "additionalProperties": false})
    );
    assert!(!has_answer(&said));
    let open = level(json!({"additionalProperties": {"type": "string"}}));
    assert_eq!((&open["output_config"], has_answer(&open)), (&Value::Null, true));
}

#[test]
fn requests_to_gemini_fit() {
    let part = |name: &str| schema(&format!("gemini-{name}"));
    let (content, config) = (part("content"), part("generation-config"));
    let (declaration, tool_config) = (part("function-declaration"), part("tool-config"));
    for (name, change) in VARIANTS {
        for request in requests(Provider::Gemini, change) {
            let contents = request["contents"].as_array().unwrap();
            for one in contents.iter().chain([&request["systemInstruction"]]) {
                assert_eq!(wrong(&content, one), Vec::<String>::new(), "{name}: {one:#}");
            }
            assert!(contents.windows(2).all(|pair| pair[0]["role"] != pair[1]["role"]), "{request:#}");
            let mut settings = request["generationConfig"].clone();
            if let Some(level) = settings["thinkingConfig"]["thinkingLevel"].as_str() {
                settings["thinkingConfig"]["thinkingLevel"] = level.to_uppercase().into();
            }
            assert_eq!(wrong(&config, &settings), Vec::<String>::new(), "{name}: {settings:#}");
            for tool in request["tools"][0]["functionDeclarations"].as_array().into_iter().flatten() {
                assert_eq!(wrong(&declaration, tool), Vec::<String>::new(), "{name}: {tool:#}");
            }
            if let Some(found) = request.get("toolConfig") {
                assert_eq!(wrong(&tool_config, found), Vec::<String>::new(), "{name}: {found:#}");
            }
        }
    }
}

/// Decodes answers that the types of the providers' SDKs describe.
#[test]
fn answers_of_the_providers_are_read() {
    let usage = json!({"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10});
    let message = json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{\"id\":\"1\"}"}},
    ]});
    let chat = json!({
        "id": "x", "object": "chat.completion", "created": 1, "model": "m-2", "usage": usage,
        "choices": [{"index": 0, "finish_reason": "tool_calls", "logprobs": null, "message": message}],
    });
    let anthropic = json!({
        "id": "x", "type": "message", "role": "assistant", "model": "m-2", "stop_reason": "tool_use", "stop_sequence": null,
        "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"id": "1"}}],
        "usage": {"input_tokens": 7, "output_tokens": 3},
    });
    let gemini = json!({
        "candidates": [{"content": {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "look", "args": {"id": "1"}}}]}, "finishReason": "STOP"}],
        "modelVersion": "m-2", "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3},
    });
    for (provider, name, answer) in [
        (Provider::OpenAi, "openai-answer", chat),
        (Provider::Anthropic, "anthropic-answer", anthropic),
        (Provider::Gemini, "gemini-answer", gemini),
    ] {
        assert_eq!(wrong(&schema(name), &answer), Vec::<String>::new(), "{name}");
        let mut reader = AnswerReader::new(provider);
        reader.feed(answer.to_string().as_bytes());
        let turn = reader.end().unwrap();
        assert_eq!((turn.model.as_str(), turn.usage.input, turn.usage.output), ("m-2", 7, 3), "{name}");
        let call = &turn.calls[0];
        let read: Value = serde_json::from_str(&call.arguments).unwrap();
        assert_eq!(
            (call.id.as_str(), call.tool.as_str(), read),
            ("c1", "look", json!({"id": "1"})),
            "{name}"
        );
    }
}

#[test]
fn extra_settings_are_merged_into_the_body() {
    let mut model = model("main");
    let extra =
        json!({"max_completion_tokens": 9, "stream_options": {"more": true}, "top_k": 3, "stream": null});
    model.extra = extra.as_object().cloned().unwrap_or_else(Map::new);
    let prompt = crate::compose::prompt(&spec(), &ConversationState::default(), &model, false);
    let body: Value =
        serde_json::from_slice(&encode_request(&prompt, &model, &ServerQuirks::default()).body).unwrap();
    assert_eq!(body["max_completion_tokens"], 9);
    assert_eq!(body["stream_options"], json!({"include_usage": true, "more": true}));
    assert_eq!(body["top_k"], 3);
    assert_eq!((body.get("max_tokens"), body.get("stream")), (None, None));
}

#[test]
fn the_limit_of_tokens_has_the_name_that_the_model_takes() {
    for (is_original, name, expected) in [
        (true, "any", "max_completion_tokens"),
        (false, "gpt-5-mini", "max_completion_tokens"),
        (false, "openai/o3", "max_completion_tokens"),
        (false, "qwen3:8b", "max_tokens"),
    ] {
        let model = ModelSpec { is_original, model: name.to_owned(), ..model("main") };
        let prompt = crate::compose::prompt(&spec(), &ConversationState::default(), &model, false);
        let body = encode_request(&prompt, &model, &ServerQuirks::default()).body;
        let body: Value = serde_json::from_slice(&body).unwrap();
        let names = ["max_tokens", "max_completion_tokens"].into_iter().filter(|it| body.get(*it).is_some());
        assert_eq!(names.collect::<Vec<_>>(), [expected], "{name}");
    }
}
