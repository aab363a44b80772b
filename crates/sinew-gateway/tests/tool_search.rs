//! Search for tools: over REST, and by MCP clients of meshes with many tools.

use rmcp::model::CallToolRequestParams;
use rmcp::service::{RoleClient, RunningService};
use serde_json::{Value, json};
use sinew_agent::Agent;
use sinew_protocol::catalogue::{Catalogue, Stage};

use crate::mcp_support::{Road, TestClient, newest};
use crate::support::GatewayWorld;

/// An agent that returns its name and its input.
fn agent(name: &'static str, description: &str, catalogue: Catalogue) -> Agent {
    let schema = json!({"type": "object", "properties": {"order": {"type": "integer"}}});
    let agent = Agent::dynamic(name, Some(schema), None, move |input, _| async move {
        Ok(json!({"agent": name, "input": input}))
    });
    agent.description(description).catalogue(catalogue)
}

fn agents() -> Vec<Agent> {
    let examples = vec!["give the customer the money back".to_owned()];
    let deprecated = Catalogue {
        stage: Stage::Deprecated,
        replaced_by: Some("refund".to_owned()),
        ..Catalogue::default()
    };
    vec![
        agent("refund", "Refunds an order", Catalogue { examples, ..Catalogue::default() }),
        agent("refund-old", "Refunds an order", deprecated),
        agent(
            "payout",
            "Pays money to a bank account",
            Catalogue { side_effects: true, ..Catalogue::default() },
        ),
        agent("forecast", "Weather of the next days", Catalogue::default()),
    ]
}

async fn world_of_agents() -> GatewayWorld {
    let world = GatewayWorld::new(&[]).await;
    for agent in agents() {
        let name = agent.name().to_owned();
        world.serve(agent).await;
        world.wait_for_card(&name).await;
    }
    world
}

async fn call(
    client: &RunningService<RoleClient, TestClient>,
    name: &'static str,
    arguments: Value,
) -> (bool, Value) {
    let arguments = arguments.as_object().cloned().unwrap_or_default();
    let result = client.call_tool(CallToolRequestParams::new(name).with_arguments(arguments)).await.unwrap();
    let failed = result.is_error.unwrap_or_default();
    let text = || result.content.first().and_then(|content| Some(content.as_text()?.text.clone()));
    let value = result.structured_content.clone().or_else(|| text().map(Value::from));
    (failed, value.unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_find_tools_describe_them_and_call_them() {
    let world = world_of_agents().await;
    let transport = format!("{}/mcp?tools=find", world.base);
    for lifecycle in [newest(), rmcp::ClientLifecycleMode::Initialize] {
        let client = TestClient::plain().connect_at(&transport, lifecycle).await;
        let listed = client.list_all_tools().await.unwrap();
        let names: Vec<&str> = listed.iter().map(|tool| &*tool.name).collect();
        assert_eq!(names, ["find_tools", "describe_tool", "call_tool"]);

        let (failed, found) = call(&client, "find_tools", json!({"query": "I want my money bakc"})).await;
        assert!(!failed, "{found}");
        assert_eq!(found["tools"][0]["name"], "refund");
        assert_eq!(found["tools"][0]["inputSchema"]["properties"]["order"]["type"], "integer");
        let (_, found) = call(&client, "find_tools", json!({"query": "refund an order"})).await;
        let old = found["tools"].as_array().unwrap().last().unwrap();
        assert_eq!((&old["name"], &old["replaced_by"]), (&json!("refund-old"), &json!("refund")), "{found}");

        let (_, described) = call(&client, "describe_tool", json!({"tool": "refund"})).await;
        assert_eq!(described["description"], "Refunds an order");
        let (failed, answer) =
            call(&client, "call_tool", json!({"tool": "refund", "arguments": {"order": 17}})).await;
        assert_eq!((failed, &answer), (false, &json!({"agent": "refund", "input": {"order": 17}})));
        // The same checks as a call by name: an argument that breaks the schema is refused.
        let wrong = json!({"order": "x"});
        let through = call(&client, "call_tool", json!({"tool": "refund", "arguments": wrong})).await;
        let (failed, by_name) = call(&client, "refund", wrong).await;
        assert_eq!(through, (failed, by_name));
        assert!(failed);

        let (failed, text) = call(&client, "call_tool", json!({"tool": "payout", "arguments": {}})).await;
        assert!(failed && text.as_str().unwrap().contains("/mcp?tools=payout"), "{text}");
        let (failed, _) = call(&client, "payout", json!({})).await;
        assert!(!failed, "a call by its name is the host's decision");
        let (failed, text) = call(&client, "call_tool", json!({"tool": "refunds"})).await;
        assert!(failed && text.as_str().unwrap().contains("similar: refund"), "{text}");
        let (failed, text) = call(&client, "find_tools", json!({"words": 1})).await;
        assert!(failed && text.as_str().unwrap().contains("find_tools"), "{text}");
    }
    let client = TestClient::plain().connect_at(&format!("{}/mcp?tools=pay*", world.base), newest()).await;
    let listed = client.list_all_tools().await.unwrap();
    assert_eq!(listed.len(), 4);
    assert_eq!(listed[3].annotations.as_ref().and_then(|hints| hints.destructive_hint), Some(true));
    let client = TestClient::plain().connect(&world, Road::Pipes, newest()).await;
    assert_eq!(client.list_all_tools().await.unwrap().len(), 4, "few tools are listed");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalogue_is_searched_over_rest() {
    let world = world_of_agents().await;
    let read = async |query: &str| -> Value {
        let address = format!("{}/api/v1/catalogue{query}", world.base);
        reqwest::get(address).await.unwrap().json().await.unwrap()
    };
    let found = read("?q=refund%20an%20oder").await;
    assert_eq!(found["entries"][0]["name"], "refund");
    assert_eq!(found["corrections"]["oder"], "order");
    // Deprecated entries are last.
    let last = found["entries"].as_array().unwrap().last().unwrap();
    assert_eq!(last["replaced_by"], "refund");
    let listed = read("?limit=3").await;
    assert_eq!((listed["total"].as_u64(), listed["next"].as_str()), (Some(4), Some("refund")));
    assert_eq!(read("?stage=deprecated").await["entries"][0]["name"], "refund-old");
    assert_eq!(read("?limit=0").await["status"], 400);
}
