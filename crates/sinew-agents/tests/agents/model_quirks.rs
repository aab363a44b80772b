//! Model agents against servers that refuse parts of requests, or require what they sent.

use serde_json::{Value, json};

use crate::fixture::{heard, told};
use crate::model::{agent, asked, calling, stream, words};
use crate::server::{Say, Server};

fn refusing(status: &'static str, headers: &'static str, message: &str) -> Say {
    let body = json!({"error": {"message": message, "type": "invalid_request_error"}});
    Say::Reply(status, headers, body.to_string().into_bytes())
}

fn tool() -> Value {
    let parameters = json!({"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]});
    json!([{"script": {"name": "twice", "input_schema": parameters, "source": "lambda args: args['a'] * 2"}}])
}

#[tokio::test]
async fn a_refused_member_is_left_out_of_this_request_and_the_next_ones() {
    for (message, before, after) in [
        (
            "max_tokens is not taken by this model, send max_completion_tokens",
            "/max_tokens",
            "/max_completion_tokens",
        ),
        ("stream_options is not known", "/stream_options", ""),
        ("tools.0.function.strict: Extra inputs are not permitted", "/tools/0/function/strict", ""),
    ] {
        let refusal = refusing("422 Unprocessable Content", "", message);
        let server = Server::start(vec![refusal, words("one"), words("two")]).await;
        let fixture = agent(&server, &json!({}), &json!({"tools": tool()}));
        for expected in ["one", "two"] {
            let output = fixture.output(json!({"text": "hi"})).await.unwrap();
            assert_eq!(output, json!({"text": expected}), "{message}");
        }
        assert!(asked(&server, 0).pointer(before).is_some(), "{message}");
        for nth in [1, 2] {
            let body = asked(&server, nth);
            assert!(body.pointer(before).is_none() && body.pointer(after).is_some(), "{message}: {body:#}");
        }
    }
}

#[tokio::test]
async fn a_refusal_that_names_no_member_is_not_repeated() {
    let server = Server::start(vec![refusing("400 Bad Request", "", "bad tool_choice")]).await;
    let fault = agent(&server, &json!({}), &json!({})).call(json!({"text": "hi"})).await.unwrap_err();
    assert_eq!(told(&fault), "SINEW-5202 error: model 'main': the provider answered 400: bad tool_choice");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn what_the_provider_sent_goes_back_unless_the_server_refuses_it() {
    let signature = json!({"google": {"thought_signature": "SIG"}});
    let call = json!({
        "index": 0, "id": "c1", "type": "function", "extra_content": signature,
        "function": {"name": "twice", "arguments": "{\"a\": 2}"},
    });
    let answer = stream(&[
        json!({"choices": [{"delta": {"reasoning": "hm", "tool_calls": [call]}}]}),
        json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}),
    ]);
    let strict = refusing("400 Bad Request", "", "'messages.2' : property 'reasoning' is unsupported");
    for refusals in [vec![], vec![strict]] {
        let count = refusals.len();
        let script = [vec![answer.clone()], refusals, vec![words("four")]].concat();
        let server = Server::start(script).await;
        let fixture = agent(&server, &json!({}), &json!({"tools": tool()}));
        assert_eq!(fixture.output(json!({"text": "2*2?"})).await.unwrap(), json!({"text": "four"}));
        let first = asked(&server, 1)["messages"][2].clone();
        assert_eq!(
            (&first["reasoning"], &first["tool_calls"][0]["extra_content"]),
            (&json!("hm"), &signature)
        );
        let last = asked(&server, 1 + count)["messages"][2].clone();
        let is_kept = last.get("reasoning").is_some() && last.to_string().contains("SIG");
        assert_eq!(is_kept, count == 0, "{last:#}");
    }
}

#[tokio::test]
async fn a_delay_in_milliseconds_takes_precedence() {
    let headers = "retry-after-ms: 20\r\nRetry-After: 50";
    let refusal = refusing("429 Too Many Requests", headers, "slow down");
    let server = Server::start(vec![refusal, words("done")]).await;
    let fixture = agent(&server, &json!({"retry": {"limit": 1}}), &json!({}));
    let mut call = fixture.input(json!({"text": "hi"}));
    let (sender, mut progress) = tokio::sync::mpsc::unbounded_channel();
    call.progress = sender;
    assert_eq!(fixture.agent.call(call).await.unwrap().output, json!({"text": "done"}));
    let said = std::iter::from_fn(|| progress.try_recv().ok());
    let waits: Vec<Value> = said.filter(|event| event["type"] == "retry").collect();
    assert_eq!(waits[0]["message"], "model 'main' did not respond; retrying in 20 ms");
    assert!(heard(&mut progress).is_empty());
}

#[tokio::test]
async fn an_exhausted_quota_leads_to_the_next_model() {
    let first = Server::start(vec![refusing("402 Payment Required", "", "no credit")]).await;
    let second = Server::start(vec![words("hello")]).await;
    let next = json!({"provider": "openai", "model": "n", "url": second.url("/v1"), "allow_private": true});
    let main = json!({"provider": "openai", "model": "m", "url": first.url("/v1"), "allow_private": true});
    let more = json!({"use": ["main", "next"], "models": {"main": main, "next": next}});
    let fixture = agent(&first, &json!({}), &more);
    assert_eq!(fixture.output(json!({"text": "hi"})).await.unwrap(), json!({"text": "hello"}));
    assert_eq!((first.seen().len(), second.seen().len()), (1, 1));
}

#[tokio::test]
async fn an_overlong_prompt_is_compacted_whatever_the_status() {
    let body = json!({"error": {"message": "x", "code": "context_length_exceeded"}}).to_string();
    let long = Say::Reply("500 Internal Server Error", "", body.into_bytes());
    let calls = [1, 2, 3].map(|a| calling("twice", &json!({ "a": a })));
    let script = [calls.to_vec(), vec![long, words("done")]].concat();
    let server = Server::start(script).await;
    let parameters = json!({"type": "object", "properties": {}});
    let source = "lambda args: 'x' * 500";
    let tools = json!([{"script": {"name": "twice", "input_schema": parameters, "source": source}}]);
    let fixture = agent(&server, &json!({}), &json!({"tools": tools}));
    assert_eq!(fixture.output(json!({"text": "hi"})).await.unwrap(), json!({"text": "done"}));
    assert!(asked(&server, 4).to_string().len() < asked(&server, 3).to_string().len());
}

#[tokio::test]
async fn reasoning_is_neither_streamed_nor_the_output() {
    let answer = "<think>\nsecret plan\n</think>\n\nHello.";
    let server = Server::start(vec![words(answer)]).await;
    let fixture = agent(&server, &json!({}), &json!({}));
    let mut call = fixture.input(json!({"text": "hi"}));
    let (sender, mut progress) = tokio::sync::mpsc::unbounded_channel();
    call.progress = sender;
    assert_eq!(fixture.agent.call(call).await.unwrap().output, json!({"text": "Hello."}));
    let said = std::iter::from_fn(|| progress.try_recv().ok());
    let deltas: String = said.filter_map(|event| event["delta"].as_str().map(str::to_owned)).collect();
    assert_eq!(deltas, "Hello.");
}
