//! Agents that died: they are listed as offline until they are retired, and nothing is routed to them.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sinew_documents::agent::AgentState;
use sinew_operations::agent_list::{describe_agent, list_agents, list_callable, retire_agent};
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
    // Workflows are called like agents, and are not among them.
    assert_eq!(shown, [("dead", AgentState::Offline), ("one", AgentState::Online)]);
    let callable = list_callable(mesh, &cards).await.unwrap();
    assert_eq!(callable.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["dead", "one", "single"]);
    assert_eq!(describe_agent(mesh, &cards, "dead").await.unwrap().state, AgentState::Offline);
    assert_eq!(describe_agent(mesh, &cards, "nobody").await.unwrap_err().code, "SINEW-5091");
    for (name, code) in [("one", "SINEW-5093"), ("single", "SINEW-5093"), ("nobody", "SINEW-5091")] {
        assert_eq!(retire_agent(mesh, &cards, name).await.unwrap_err().code, code, "{name}");
    }
    assert_eq!(retire_agent(mesh, &cards, "dead").await.unwrap().name, "dead");
    assert_eq!(retire_agent(mesh, &cards, "dead").await.unwrap_err().code, "SINEW-5091");
    assert_eq!(list_agents(mesh, &cards).await.unwrap().len(), 1);
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
    assert_eq!(states, [(json!("dead"), json!("offline")), (json!("one"), json!("online"))]);
    let (_, list) = answer(Method::GET, "/api/v1/agents?workflows=true").await;
    assert_eq!(json_of(&list).as_array().unwrap().len(), 3, "{list}");
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

#[tokio::test]
async fn a_drained_agent_takes_no_new_tasks() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    world.serve_echo().await;
    let post = async |path: &str, body: Value| {
        let answer = world.request(Method::POST, &format!("/api/v1{path}")).json(&body).send().await.unwrap();
        (answer.status(), answer.json::<Value>().await.unwrap())
    };
    let get = async |path: &str| {
        let answer = world.request(Method::GET, &format!("/api/v1{path}")).send().await.unwrap();
        answer.json::<Value>().await.unwrap()
    };
    let reaches = async |path: &str, pointer: &str, wanted: Value| {
        let reached = async {
            loop {
                let found = get(path).await;
                if found.pointer(pointer) == Some(&wanted) {
                    break;
                }
            }
        };
        tokio::time::timeout(PATIENCE, reached)
            .await
            .unwrap_or_else(|_| panic!("{path}: {pointer} is not {wanted}"));
    };
    let (status, drained) = post("/agents/one/drain", json!({})).await;
    assert_eq!((status, &drained["status"]), (StatusCode::OK, &json!("draining")), "{drained}");
    assert_eq!(drained["processes"].as_array().unwrap().len(), 1, "{drained}");
    let rows = get("/agents").await;
    assert_eq!((&rows[0]["state"], &rows[0]["work"]["draining"]), (&json!("draining"), &json!(1)), "{rows}");
    // Work waits in the queue, and is done once the agent takes tasks again.
    let (status, started) =
        post("/executions", json!({"workflow": "single", "input": {"value": "1"}, "id": "kept"})).await;
    assert!(status.is_success(), "{started}");
    reaches("/agents", "/0/queued", json!(1)).await;
    assert_eq!(get("/executions/kept").await["status"], "running");
    let process = drained["processes"][0].as_str().unwrap();
    let (status, resumed) = post("/agents/one/undrain", json!({"process": &process[..6]})).await;
    assert_eq!((status, &resumed["status"]), (StatusCode::OK, &json!("resumed")), "{resumed}");
    reaches("/executions/kept", "/status", json!("succeeded")).await;
    reaches("/agents", "/0/work/tasks", json!(1)).await;
    let rows = get("/agents").await;
    assert_eq!(rows[0]["state"], "online", "{rows}");
    assert!(
        rows[0]["work"]["work_ms"]["p95"].is_u64() && rows[0]["work"]["queue_ms"]["p95"].is_u64(),
        "{rows}"
    );

    let (status, refused) = post("/agents/one/drain", json!({"process": "nothing"})).await;
    assert_eq!((status, &refused["code"]), (StatusCode::NOT_FOUND, &json!("SINEW-5091")), "{refused}");
    let (status, refused) = post("/agents/single/drain", json!({})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
    world.end().await;
}
