//! Agents that died: they are listed as offline until they are retired, and nothing is routed to them.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sinew_documents::agent::AgentState;
use sinew_operations::agent_list::{describe_agent, list_agents, retire_agent};
use sinew_protocol::card::Announcement;
use sinew_protocol::{Subject, Token};

use crate::support::{GatewayWorld, PATIENCE, SINGLE};

/// Announces an agent that no process serves, and waits until it is offline for views that are made from now on.
async fn leave_dead_agent(world: &GatewayWorld) {
    let card = Announcement { name: "dead".to_owned(), ..Announcement::default() };
    world.mesh.cards().announce(&card.card("test")).await.unwrap();
    let jetstream = world.mesh.admin().jetstream();
    let subject = world.mesh.subject(&Subject::Card { agent: Token::of("dead") });
    let mirror = jetstream.get_stream("test_AGENTS").await.unwrap();
    let mirrored = async { while mirror.get_last_raw_message_by_subject(&subject).await.is_err() {} };
    tokio::time::timeout(PATIENCE, mirrored).await.unwrap();
    // As the server does once the card is too old.
    jetstream.get_stream("test_CARDS").await.unwrap().purge().filter(subject).await.unwrap();
}

#[tokio::test]
async fn a_dead_agent_is_listed_until_it_is_retired() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    leave_dead_agent(&world).await;
    let (mesh, cards) = (&world.mesh, world.mesh.cards().follow());
    cards.current().await.unwrap();
    let rows = list_agents(mesh, &cards).await.unwrap();
    let shown: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.state)).collect();
    assert_eq!(
        shown,
        [("dead", AgentState::Offline), ("one", AgentState::Online), ("single", AgentState::Online)]
    );
    assert_eq!(describe_agent(mesh, &cards, "dead").await.unwrap().state, AgentState::Offline);
    assert_eq!(describe_agent(mesh, &cards, "nobody").await.unwrap_err().code, "SINEW-5091");
    for (name, code) in [("one", "SINEW-5093"), ("single", "SINEW-5093"), ("nobody", "SINEW-5091")] {
        assert_eq!(retire_agent(mesh, &cards, name).await.unwrap_err().code, code, "{name}");
    }
    assert_eq!(retire_agent(mesh, &cards, "dead").await.unwrap().name, "dead");
    assert_eq!(retire_agent(mesh, &cards, "dead").await.unwrap_err().code, "SINEW-5091");
    assert_eq!(list_agents(mesh, &cards).await.unwrap().len(), 2);
    world.end().await;
}

#[tokio::test]
async fn gateways_list_and_retire_dead_agents() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    leave_dead_agent(&world).await;
    // A gateway that never saw the agent alive.
    let gateway = world.gateway(|options| options.console = Some(sinew_gateway::ConsoleMode::Full)).await;
    let base = format!("http://{}", gateway.address());
    let answer = async |method: Method, path: &str| {
        let answer = world.http.request(method, format!("{base}{path}")).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    let json_of = |text: &str| serde_json::from_str::<Value>(text).unwrap();

    let (status, list) = answer(Method::GET, "/api/v1/agents").await;
    let list = json_of(&list);
    let states: Vec<_> =
        list.as_array().unwrap().iter().map(|row| (row["name"].clone(), row["state"].clone())).collect();
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        states,
        [
            (json!("dead"), json!("offline")),
            (json!("one"), json!("online")),
            (json!("single"), json!("online"))
        ]
    );
    let (_, details) = answer(Method::GET, "/api/v1/agents/dead").await;
    assert_eq!(json_of(&details)["state"], "offline", "{details}");
    let (_, pulse) = answer(Method::GET, "/api/v1/pulse").await;
    let agents = json_of(&pulse)["agents"].clone();
    let dead = agents.as_array().unwrap().iter().find(|one| one["name"] == "dead").unwrap();
    assert!(dead["online"] == false && dead["heard_ms"].is_u64(), "{dead}");
    let (_, page) = answer(Method::GET, "/console/agents").await;
    assert!(page.contains("<b>offline</b>"), "{page}");
    let (_, page) = answer(Method::GET, "/console/agents/dead").await;
    assert!(page.contains("/console/agents/dead/retire"), "{page}");
    let (_, page) = answer(Method::GET, "/console/chat").await;
    assert!(page.contains(">one</a>") && !page.contains(">dead</a>"), "{page}");
    // Calls are not routed to it.
    let (status, _) = answer(Method::GET, "/agents/dead/.well-known/agent-card.json").await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    let (status, refused) = answer(Method::DELETE, "/api/v1/agents/one").await;
    assert_eq!(
        (status, &json_of(&refused)["code"]),
        (StatusCode::CONFLICT, &json!("SINEW-5093")),
        "{refused}"
    );
    let (status, retired) = answer(Method::DELETE, "/api/v1/agents/dead").await;
    assert_eq!((status, json_of(&retired)), (StatusCode::OK, json!({"name": "dead", "status": "retired"})));
    let (status, _) = answer(Method::GET, "/api/v1/agents/dead").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    gateway.drain().await;
    world.end().await;
}

/// Calls an agent that is online, one that died, one that never was, and a workflow that is not deployed.
const CALLS: &str = "
workflow:
  description: Calls names that nobody has
  nodes:
    - {id: a, type: agent, agent_name: one, input: {}}
    - {id: b, type: agent, agent_name: dead, input: {}}
    - {id: c, type: agent, agent_name: Audti, input: {}}
    - {id: d, type: workflow, workflow_name: missing, input: {}}
    - {id: e, type: workflow, workflow_name: single, input: {}}
  output_mapping: {done: 'yes'}
";

#[tokio::test]
async fn deploy_reports_what_nobody_serves() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    leave_dead_agent(&world).await;
    let deploy = world.request(Method::POST, "/api/v1/workflows?name=calls.yaml").body(CALLS);
    let answer = deploy.send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::CREATED);
    let deployed: Value = answer.json().await.unwrap();
    let warnings = deployed[0]["warnings"].as_array().unwrap();
    let missing: Vec<_> = warnings
        .iter()
        .filter(|one| one["code"] == "SINEW-2293")
        .map(|one| one["message"].as_str().unwrap())
        .collect();
    // The gateway of this world has seen the last heartbeat of `dead`.
    assert_eq!(
        missing.iter().filter(|text| !text.contains("'dead'")).copied().collect::<Vec<_>>(),
        [
            "no agent 'Audti' is online; node 'c' calls it",
            "workflow 'missing' is not deployed; node 'd' calls it"
        ],
        "{deployed}"
    );
    assert!(missing.iter().all(|text| !text.contains("'one'") && !text.contains("'single'")), "{deployed}");
    world.end().await;
}
