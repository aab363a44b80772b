//! Spans that a collector of OpenTelemetry gets of agents with a language model: `gen_ai.*` of agent, model, tool and usage,
//! and none of the words that were said.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyValue;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

use crate::common::{Role, World, text};
use crate::trace_of_processes::{collector, read_request};

const FLOW: &str = "
workflow:
  description: Answers
  nodes:
    - {id: answer, type: agent, agent_name: Clerk, instruction: canary-node, input: {text: '{{workflow.input.text}}'}}
  output_mapping: {text: '{{answer.output.text}}'}
";
const CLERK: &str = r#"
name: Clerk
description: Tells where an order is.
run:
  model:
    use: [main]
    models:
      main:
        provider: openai
        model: gpt-tested
        url: ADDRESS
        key: "${env:CLERK_KEY}"
        allow_private: true
        caps: {stream: false}
    instruction: canary-instruction
    tools:
      - script:
          name: look_up
          description: canary-description
          input_schema: {type: object, required: [order], properties: {order: {type: string}}}
          source: "lambda args: {'state': 'canary-result'}"
"#;

/// A server of the provider's interface that gives these answers in turn. Tells its address, and the heads of its requests.
async fn model_server(answers: Vec<Value>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    let (heads, left) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(answers.into_iter())));
    let seen = Arc::clone(&heads);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (seen, left) = (Arc::clone(&seen), Arc::clone(&left));
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                while let Some((head, _)) = read_request(&mut stream).await {
                    seen.lock().unwrap().push(head);
                    let answer = left.lock().unwrap().next();
                    let (status, body) = answer
                        .map_or(("500 Internal Server Error", String::new()), |body| {
                            ("200 OK", body.to_string())
                        });
                    let length = body.len();
                    let whole = format!(
                        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
                    );
                    stream.write_all(whole.as_bytes()).await.unwrap();
                }
            });
        }
    });
    (address, heads)
}

fn answer(message: &Value, finish: &str, (input, output): (u64, u64)) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-tested-2026-11-01",
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output},
    })
}

/// The attributes of a span by name, as texts.
fn attributes(span: &Span) -> BTreeMap<String, String> {
    fn worded(value: Option<AnyValue>) -> String {
        match value {
            Some(AnyValue::StringValue(text)) => text,
            Some(AnyValue::IntValue(number)) => number.to_string(),
            Some(AnyValue::ArrayValue(list)) => {
                let items: Vec<String> = list.values.into_iter().map(|item| worded(item.value)).collect();
                format!("{items:?}")
            }
            other => format!("{other:?}"),
        }
    }
    let told = span.attributes.iter().cloned();
    told.map(|one| (one.key, worded(one.value.and_then(|value| value.value)))).collect()
}

fn has(span: &Span, expected: &[(&str, &str)]) {
    let told = attributes(span);
    for (key, value) in expected {
        assert_eq!(told.get(*key).map(String::as_str), Some(*value), "{key} of {}: {told:#?}", span.name);
    }
}

#[test]
fn a_conversation_is_told_as_agent_model_tool_and_usage_without_its_words() {
    let (world, untraced) = World::new();
    untraced.stop();
    let call = json!({"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{\"order\": \"canary-order\"}"}});
    let (url, heads) = world.runtime.block_on(model_server(vec![
        answer(&json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls", (31, 7)),
        answer(&json!({"role": "assistant", "content": "canary-answer"}), "stop", (53, 11)),
    ]));
    let (address, collected) = world.runtime.block_on(collector());
    let endpoint = format!("http://{address}");
    let traced = |args: &[&str]| {
        let mut command = world.command(args);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint).env("CLERK_KEY", "canary-key");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    world.write("answer.yaml", FLOW);
    world.write("clerk.agent.yaml", &CLERK.replace("ADDRESS", &url));
    let executor = Role(traced(&["serve", "executor"]).spawn().unwrap());
    let agent = Role(traced(&["serve", "agent", "clerk.agent.yaml"]).spawn().unwrap());
    world.online(&["Clerk"]);
    let mut run = traced(&["run", "answer.yaml", "--mesh", "-p", "text=canary-input", "--wait"]);
    let ran = run.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    assert!(ran.status.success() && text(&ran.stdout).contains("canary-answer"), "{}", text(&ran.stderr));
    // Ending processes export their remaining spans.
    for role in [agent, executor] {
        role.stop();
    }
    let heads = heads.lock().unwrap().join("").to_lowercase();
    assert_eq!(heads.matches("authorization: bearer canary-key").count(), 2, "{heads}");

    let all = collected.0.lock().unwrap().1.clone();
    let of_agent: Vec<&Span> =
        all.iter().filter(|(from, _)| from == "sinew-agent").map(|(_, span)| span).collect();
    let named = |name: &str| {
        let mut found: Vec<&Span> = of_agent.iter().copied().filter(|span| span.name == name).collect();
        found.sort_by_key(|span| span.start_time_unix_nano);
        found
    };
    let (tasks, chats, tools) =
        (named("invoke_agent Clerk"), named("chat gpt-tested"), named("execute_tool look_up"));
    assert_eq!((tasks.len(), chats.len(), tools.len(), of_agent.len()), (1, 2, 1, 4), "{of_agent:#?}");
    has(tasks[0], &[("gen_ai.operation.name", "invoke_agent"), ("gen_ai.agent.name", "Clerk")]);
    for (chat, (input, output), finish) in [(chats[0], ("31", "7"), "stop"), (chats[1], ("53", "11"), "stop")]
    {
        has(
            chat,
            &[
                ("gen_ai.operation.name", "chat"),
                ("gen_ai.provider.name", "openai"),
                ("gen_ai.request.model", "gpt-tested"),
                ("gen_ai.response.model", "gpt-tested-2026-11-01"),
                ("gen_ai.usage.input_tokens", input),
                ("gen_ai.usage.output_tokens", output),
                ("gen_ai.response.finish_reasons", &format!("[{finish:?}]")),
            ],
        );
        assert_eq!(chat.kind, SpanKind::Client as i32, "a model is another service");
    }
    has(tools[0], &[("gen_ai.operation.name", "execute_tool"), ("gen_ai.tool.name", "look_up")]);
    // One conversation, below the task of the agent, in the trace of the client.
    let conversation = attributes(chats[0])["gen_ai.conversation.id"].clone();
    for span in [chats[0], chats[1], tools[0]] {
        has(span, &[("gen_ai.conversation.id", &conversation)]);
        assert_eq!(
            (&span.trace_id, &span.parent_span_id),
            (&tasks[0].trace_id, &tasks[0].span_id),
            "{}",
            span.name
        );
    }
    let client = all.iter().find(|(from, _)| from == "sinew-client").unwrap();
    assert_eq!(client.1.trace_id, tasks[0].trace_id);
    // Names, attributes, events and states of all processes: no word of people, models, tools and files, and no key.
    let leaked: Vec<&Span> =
        all.iter().map(|(_, span)| span).filter(|span| format!("{span:?}").contains("canary")).collect();
    assert!(leaked.is_empty(), "{leaked:#?}");
}
