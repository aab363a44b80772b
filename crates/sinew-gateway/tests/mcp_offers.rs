//! Prompts and resources of agents, and agents that ask the client of a host.

use rmcp::model::{
    ArgumentInfo, CallToolResponse, CompleteRequestParams, GetPromptRequestParams, ReadResourceRequestParams,
    Reference, ServerNotification, SubscriptionFilter,
};
use rmcp::service::ServiceError;
use serde_json::{Map, Value, json};
use sinew_agent::Agent;
use sinew_protocol::a2a::{Message, Part};
use sinew_protocol::mcp_offer::{
    ClientAbility, MCP_EXTENSION, McpOffer, OfferKind, TaskSupport, client_responses, requests_part,
};

use crate::mcp_support::{Road, TestClient, all_roads, call, newest, text};
use crate::support::{GatewayWorld, PATIENCE};

fn offer(kind: OfferKind) -> McpOffer {
    McpOffer { kind, ..McpOffer::default() }
}

fn resource(uri: &str) -> McpOffer {
    McpOffer { uri: Some(uri.to_owned()), ..offer(OfferKind::Resource) }
}

/// An agent that gives back its input as a text.
fn poem() -> Agent {
    let schema = json!({
        "type": "object",
        "properties": {"topic": {"type": "string", "enum": ["sea", "sky"]}},
        "required": ["topic"],
    });
    let agent = Agent::dynamic("poem", Some(schema), None, |input, _| async move {
        Ok(format!("A poem about the {}", input["topic"].as_str().unwrap_or_default()).into())
    });
    agent.description("Writes poems").offer(offer(OfferKind::Prompt))
}

fn note() -> Agent {
    let agent =
        Agent::dynamic("note", None, None, |input, _| async move { Ok(json!({"note": input["id"]})) });
    agent.offer(resource("notes://{id}"))
}

fn imprint() -> Agent {
    let agent = Agent::dynamic("imprint", None, None, |_, _| async { Ok(json!("Printed here")) });
    agent.offer(McpOffer { media_type: Some("text/markdown".to_owned()), ..resource("notes://imprint/all") })
}

/// An agent that asks its caller's client for a form, and says what came.
fn asker() -> Agent {
    Agent::dynamic("asker", None, None, |_, context| async move {
        let form =
            json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
        let request =
            json!({"method": "elicitation/create", "params": {"message": "Who?", "requestedSchema": form}});
        let requests = Map::from_iter([("who".to_owned(), request)]);
        let parts = vec![Part::text("Who?"), requests_part(&requests)];
        let answer = context.ask_caller(parts, vec![MCP_EXTENSION.to_owned()]).await?;
        let responses = client_responses(&answer).cloned().unwrap_or_default();
        Ok(responses["who"].clone())
    })
}

/// An agent that asks its caller in words.
fn chatty() -> Agent {
    Agent::dynamic("chatty", None, None, |_, context| async move {
        let answer = context.ask_caller(vec![Part::text("Which colour?")], Vec::new()).await?;
        Ok(answer.texts().collect::<String>().into())
    })
}

async fn world() -> GatewayWorld {
    let world = GatewayWorld::new(&[]).await;
    for agent in [poem(), note(), imprint(), asker(), chatty()] {
        world.serve(agent).await;
    }
    world
}

fn code_of(error: ServiceError) -> (i32, Value) {
    let ServiceError::McpError(error) = error else { panic!("not an error of the protocol: {error}") };
    (error.code.0, error.data.unwrap_or_default())
}

#[tokio::test]
async fn agents_are_prompts_and_resources() {
    let world = world().await;
    for (road, lifecycle) in all_roads() {
        let client = TestClient::plain().connect(&world, road, lifecycle).await;
        let tools = client.list_all_tools().await.unwrap();
        assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["asker", "chatty"], "{road:?}");
        let prompts = json!(client.list_all_prompts().await.unwrap());
        let expected = json!([{
            "name": "poem", "title": "poem", "description": "Writes poems",
            "arguments": [{"name": "topic", "required": true}],
        }]);
        assert_eq!(prompts, expected, "{road:?}");
        let arguments = Map::from_iter([("topic".to_owned(), json!("sea"))]);
        let got =
            client.get_prompt(GetPromptRequestParams::new("poem").with_arguments(arguments)).await.unwrap();
        let text = json!({"type": "text", "text": "A poem about the sea"});
        assert_eq!(json!(got.messages), json!([{"role": "user", "content": text}]), "{road:?}");
        let begun =
            CompleteRequestParams::new(Reference::for_prompt("poem"), ArgumentInfo::new("topic", "s"));
        assert_eq!(client.complete(begun).await.unwrap().completion.values, ["sea", "sky"]);
        for (name, arguments, code) in [
            ("poem", json!({"topic": "sand"}), "SINEW-5102"),
            ("poem", json!({}), "SINEW-5102"),
            ("asker", json!({}), "SINEW-9006"),
            ("../poem", json!({}), "SINEW-9006"),
        ] {
            let request =
                GetPromptRequestParams::new(name).with_arguments(arguments.as_object().cloned().unwrap());
            let refused = code_of(client.get_prompt(request).await.unwrap_err());
            assert_eq!(
                (refused.0, &refused.1["code"]),
                (-32602, &json!(code)),
                "{road:?} {name} {arguments}"
            );
        }
        let resources = client.list_all_resources().await.unwrap();
        let addresses: Vec<&str> =
            resources.iter().map(|it| &*it.uri).filter(|uri| uri.starts_with("notes:")).collect();
        assert_eq!(addresses, ["notes://imprint/all"]);
        let templates = client.list_all_resource_templates().await.unwrap();
        assert!(templates.iter().any(|template| template.uri_template == "notes://{id}"), "{templates:?}");
        for (uri, contents) in [
            ("notes://7", json!({"mimeType": "application/json", "text": "{\"note\":\"7\"}"})),
            ("notes://imprint/all", json!({"mimeType": "text/markdown", "text": "Printed here"})),
        ] {
            let read = client.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap();
            let mut expected = contents;
            expected["uri"] = uri.into();
            assert_eq!(json!(read.contents), json!([expected]), "{road:?}");
        }
        for uri in ["notes://a/b", "notes://", "other://7"] {
            let refused = client.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap_err();
            assert_eq!(code_of(refused).1["code"], "SINEW-9008", "{uri}");
        }
        client.cancel().await.unwrap();
    }
    world.end().await;
}

#[tokio::test]
async fn agents_ask_the_client_of_their_caller() {
    let world = world().await;
    for (road, lifecycle) in all_roads() {
        for (tool, form, expected) in [
            (
                "asker",
                json!({"name": "Ada"}),
                json!({"action": "accept", "content": {"name": "Ada"}}).to_string(),
            ),
            ("chatty", json!({"answer": "blue"}), "\"blue\"".to_owned()),
        ] {
            let client = TestClient::answering(form).connect(&world, road, lifecycle.clone()).await;
            let result = client.call_tool(call(tool, json!({}))).await.unwrap();
            assert_eq!((result.is_error, text(&result)), (Some(false), &*expected), "{road:?} {tool}");
            client.cancel().await.unwrap();
        }
        // A client without forms is told what is asked.
        let client = TestClient::plain().connect(&world, road, lifecycle).await;
        let result = client.call_tool(call("asker", json!({}))).await.unwrap();
        assert_eq!(result.is_error, Some(true));
        assert!(text(&result).contains("It requests from clients: elicitation/create"), "{}", text(&result));
        client.cancel().await.unwrap();
    }
    world.end().await;
}

#[tokio::test]
async fn answers_are_messages_of_a2a_too() {
    let world = world().await;
    let begin = json!({"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"data": {}}]}});
    let asked = world.rpc("/agents/chatty", "SendMessage", &begin).await["result"]["task"].take();
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
    assert_eq!(asked["status"]["message"]["parts"], json!([{"text": "Which colour?"}]));
    let answer = |id: &str, context: &Value| {
        let mut message = json!(Message::user(id, vec![Part::text("blue")]));
        message["taskId"] = asked["id"].clone();
        message["contextId"] = context.clone();
        json!({ "message": message })
    };
    let wrong = world.rpc("/agents/chatty", "SendMessage", &answer("m2", &json!("other"))).await;
    assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
    for _ in 0..2 {
        // The same answer twice is one answer.
        let told = world.rpc("/agents/chatty", "SendMessage", &answer("m3", &asked["contextId"])).await;
        let error = &told["error"]["code"];
        let task = &told["result"]["task"];
        assert!(task["status"]["state"] == "TASK_STATE_COMPLETED" || *error == -32004, "{told}");
    }
    let late = world.rpc("/agents/chatty", "SendMessage", &answer("m4", &asked["contextId"])).await;
    assert_eq!(late["error"]["code"], -32004, "{late}");
    world.end().await;
}

#[tokio::test]
async fn clients_without_an_ability_are_refused() {
    let world = GatewayWorld::new(&[]).await;
    let echo = |name: &str, offer: McpOffer| {
        Agent::dynamic(name, None, None, |input, _| async { Ok(input) }).offer(offer)
    };
    world
        .serve(echo("sampler", McpOffer { needs: vec![ClientAbility::Sampling], ..McpOffer::default() }))
        .await;
    world.serve(echo("keeper", McpOffer { tasks: TaskSupport::Required, ..McpOffer::default() })).await;
    let client = TestClient::plain().connect(&world, Road::Http, newest()).await;
    for (tool, needed) in [
        ("sampler", json!({"sampling": {}})),
        ("keeper", json!({"extensions": {"io.modelcontextprotocol/tasks": {}}})),
    ] {
        let refused = code_of(client.call_tool(call(tool, json!({}))).await.unwrap_err());
        assert_eq!(refused, (-32021, json!({"requiredCapabilities": needed})), "{tool}");
    }
    assert_eq!(world.task_count().await, 0, "nothing was stored");
    world.end().await;
}

#[tokio::test]
async fn a_request_state_of_others_is_refused() {
    let world = world().await;
    let client = TestClient::answering(json!({})).connect(&world, Road::Http, newest()).await;
    let CallToolResponse::InputRequired(asked) =
        client.call_tool_once(call("asker", json!({}))).await.unwrap()
    else {
        panic!("nothing is asked")
    };
    let state = asked.request_state.unwrap();
    for wrong in
        [format!("{state}-TAMPERED"), state.replace('~', "x"), "asker.unknown~0".to_owned(), "~".to_owned()]
    {
        let mut request = call("asker", json!({}));
        request.request_state = Some(wrong.clone());
        let refused = client.call_tool_once(request).await;
        let is_error = match &refused {
            Ok(CallToolResponse::Complete(result)) => result.is_error == Some(true),
            Ok(_) => false,
            Err(_) => true,
        };
        assert!(is_error, "{wrong}: {refused:?}");
    }
    let mut other = call("chatty", json!({}));
    other.request_state = Some(state);
    assert_eq!(code_of(client.call_tool_once(other).await.unwrap_err()).1["code"], "SINEW-9010");
    world.end().await;
}

#[tokio::test]
async fn changes_of_resources_and_lists_are_told() {
    let world = world().await;
    let client = TestClient::plain().connect(&world, Road::Http, newest()).await;
    let begin = json!({
        "message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"data": {}}], "metadata": {"skill": "chatty"}},
        "configuration": {"returnImmediately": true},
    });
    let task = world.rpc("/a2a", "SendMessage", &begin).await["result"]["task"].take();
    let uri = format!("sinew://tasks/{}", task["id"].as_str().unwrap());
    let filter =
        SubscriptionFilter::builder().prompts_list_changed().resource_subscription(uri.clone()).build();
    let mut subscription = client.listen(filter).await.unwrap();
    let answer = json!({"message": {
        "messageId": "m2", "role": "ROLE_USER", "taskId": task["id"], "parts": [{"text": "blue"}],
    }});
    let answered = async {
        // The task asks a moment after it is there.
        while world.rpc("/a2a", "SendMessage", &answer).await["error"].is_object() {}
    };
    tokio::time::timeout(PATIENCE, answered).await.unwrap();
    // Prompts of the world's own agents may be listed a moment later.
    loop {
        let next = tokio::time::timeout(PATIENCE, subscription.next()).await.unwrap().unwrap().unwrap();
        if let ServerNotification::ResourceUpdatedNotification(told) = next {
            assert_eq!(told.params.uri, uri);
            break;
        }
        assert!(matches!(next, ServerNotification::PromptListChangedNotification(_)), "{next:?}");
    }
    world
        .serve(
            Agent::dynamic("ode", None, None, |input, _| async { Ok(input) }).offer(offer(OfferKind::Prompt)),
        )
        .await;
    loop {
        let next = tokio::time::timeout(PATIENCE, subscription.next()).await.unwrap().unwrap().unwrap();
        if matches!(next, ServerNotification::PromptListChangedNotification(_)) {
            break;
        }
        assert!(matches!(next, ServerNotification::ResourceUpdatedNotification(_)), "{next:?}");
    }
    world.end().await;
}

#[test]
fn the_set_of_conformance_can_be_read() {
    let scenarios = crate::scenarios::agent_scenarios().unwrap();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance/agents");
    let files = sinew_agents::AgentSet::load_paths(&[folder]).unwrap_or_else(|found| panic!("{found:?}"));
    let names: Vec<&str> = scenarios.iter().map(|it| it.name.as_str()).chain(files.names()).collect();
    let unique: std::collections::BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(unique.len(), names.len(), "{names:?}");
    for kind in [OfferKind::Tool, OfferKind::Prompt, OfferKind::Resource] {
        let offers = scenarios.iter().map(|it| &it.offer).chain(files.iter().map(|it| it.offer()));
        assert!(offers.into_iter().any(|offer| offer.kind == kind), "{kind:?}");
    }
}
