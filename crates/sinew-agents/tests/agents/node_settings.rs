//! Settings of the calling node: what a model receives of them.

use serde_json::{Value, json};

use crate::fixture::told;
use crate::model::{agent, asked, words};
use crate::server::Server;

/// The body of the request to the model for a node with this request, or the fault.
async fn body(request: &Value) -> Result<Value, String> {
    let server = Server::start(vec![words("done")]).await;
    let settings = json!({"settings": {"reasoning": "medium", "temperature": 0.7}});
    let fixture = agent(&server, &settings, &json!({"session": {}}));
    let mut call = fixture.input(json!({"data": {}, "message": "ignored"}));
    call.context = json!({"request": request});
    call.instruction = Some("Be brief.".to_owned());
    let reply = fixture.agent.call(call).await.map_err(|fault| told(&fault))?;
    assert_eq!(reply.output, json!({"text": "done"}));
    assert_eq!((&reply.usage["model"], &reply.usage["finish_reason"]), (&json!("m-2"), &json!("stop")));
    Ok(asked(&server, 0))
}

#[tokio::test]
async fn settings_of_a_node_reach_the_model() {
    for (request, effort, temperature) in [
        (json!({}), "medium", 0.7),
        (json!({"reasoningEffort": "high", "temperature": 0.2}), "high", 0.2),
        (json!({"reasoningEffort": "minimal", "temperature": "1.5"}), "minimal", 1.5),
        (json!({"reasoningEffort": "most", "temperature": 9}), "medium", 0.7),
    ] {
        let body = body(&request).await.unwrap();
        assert_eq!(body["reasoning_effort"], effort, "{request}");
        assert_eq!(body["temperature"], temperature, "{request}");
        assert_eq!(body["messages"][0]["content"], "You are x.\n\nBe brief.", "{body}");
    }
}

#[tokio::test]
async fn the_prompt_of_a_node_is_the_user_message() {
    let input = r#"{"data":{},"message":"ignored"}"#;
    for (request, message) in [
        (json!({"user_prompt": "Translate: hello"}), "Translate: hello"),
        (json!({"user_prompt": " "}), input),
        (json!({"user_prompt": {"a": 1}}), input),
        (Value::Null, input),
    ] {
        let body = body(&request).await.unwrap();
        assert_eq!(body["messages"][1], json!({"role": "user", "content": message}), "{request}");
    }
}

#[tokio::test]
async fn a_search_that_the_file_does_not_provide_is_refused() {
    let refused = body(&json!({"tools": {"web_search": true}})).await.unwrap_err();
    assert!(refused.starts_with("SINEW-5209"), "{refused}");
    assert!(refused.contains("no MCP server or tool of this name"), "{refused}");
    assert!(body(&json!({"tools": {"web_search": false}})).await.is_ok());
}
