//! Executions that a key opens within a workflow, and what a workflow may call that a limited key deploys.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sinew_protocol::access::{AccessRole, KeyScope};

use crate::support::{GatewayWorld, PATIENCE, SINGLE, review};

struct Caller<'w> {
    world: &'w GatewayWorld,
    key: String,
}

impl Caller<'_> {
    async fn send(&self, method: Method, path: &str, body: &Value) -> (StatusCode, String) {
        let request = self.world.request(method.clone(), path).bearer_auth(&self.key);
        let request = if method == Method::GET { request } else { request.json(body) };
        let answer = request.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        self.send(Method::GET, path, &Value::Null).await
    }
}

async fn caller<'w>(world: &'w GatewayWorld, name: &str, scope: Option<KeyScope>) -> Caller<'w> {
    let made = world.key(|new| {
        (new.name, new.role, new.scope) = (name.to_owned(), AccessRole::Client, scope);
    });
    Caller { world, key: made.await.1 }
}

#[tokio::test]
async fn callers_of_one_workflow_do_not_see_each_other() {
    let world = GatewayWorld::with(&[("review", &review().replace("\"gateway\"", "\"bob\""))], |options| {
        options.access.is_required = true;
    })
    .await;
    // Without a word about it, a key of a client opens its own executions.
    let alice = caller(&world, "alice", None).await;
    let bob = caller(&world, "bob", Some(KeyScope::Own)).await;
    let lead = caller(&world, "lead", Some(KeyScope::All)).await;
    let secret = "secret of bob";
    let start = json!({"workflow": "review", "id": "of-bob", "input": {"text": secret}});
    let (status, started) = bob.send(Method::POST, "/api/v1/executions", &start).await;
    assert_eq!(status, 201, "{started}");
    let asks = async { while !lead.get("/api/v1/approvals").await.1.contains("of-bob") {} };
    tokio::time::timeout(PATIENCE, asks).await.unwrap();

    let execution = "/api/v1/executions/of-bob";
    let reads = ["", "/record", "/tree", "/timeline", "/node?name=h", "/events", "/drawing", "/artifacts"]
        .into_iter()
        .chain(["/approval", "/agents", "/comparison?with=of-bob"])
        .map(|rest| format!("{execution}{rest}"))
        .chain(["/a2a/tasks/of-bob", "/agents/review/tasks/of-bob"].map(str::to_owned));
    for path in reads {
        let (status, body) = alice.get(&path).await;
        assert!(status == 404 && !body.contains(secret), "{path}: {status} {body}");
        for one in [&lead, &bob] {
            let (status, body) = one.get(&path).await;
            // A2A shows tasks to their callers only, whatever the key.
            let is_hidden = path.contains("/tasks/") && one.key == lead.key;
            assert_eq!(status == 404, is_hidden, "{path}: {status} {body}");
        }
    }
    for path in ["/api/v1/executions", "/api/v1/approvals", "/api/v1/execution-counts", "/a2a/tasks"] {
        let (status, body) = alice.get(path).await;
        assert!(status == 200 && !body.contains("of-bob") && !body.contains("waiting"), "{path}: {body}");
    }
    for path in ["/api/v1/executions", "/api/v1/approvals"] {
        assert!(bob.get(path).await.1.contains("of-bob"), "{path}");
    }
    for path in ["/api/v1/traffic?workflow=review", "/api/v1/artifacts?workflow=review", "/api/v1/pulse"] {
        let (status, body) = alice.get(path).await;
        assert!(status == 403 && body.contains("SINEW-9016"), "{path}: {status} {body}");
    }
    let decision = json!({"decision": "approve"});
    let message = json!({"message": {"messageId": "m", "role": "ROLE_USER", "taskId": "of-bob",
        "parts": [{"data": {"decision": "approve"}}]}});
    for (path, body) in [
        (format!("{execution}/cancel"), &json!({"reason": "mine"})),
        (format!("{execution}/pause"), &json!({"reason": "mine"})),
        (format!("{execution}/resume"), &json!({})),
        (format!("{execution}/retry"), &json!({})),
        (format!("{execution}/fork"), &json!({"outputs": {"h": 1}})),
        (format!("{execution}/decisions"), &decision),
        ("/a2a/tasks/of-bob:cancel".to_owned(), &json!({})),
        ("/agents/review/tasks/of-bob:cancel".to_owned(), &json!({})),
        ("/a2a/message:send".to_owned(), &message),
        ("/agents/review/message:send".to_owned(), &message),
    ] {
        let (status, body) = alice.send(Method::POST, &path, body).await;
        assert_eq!(status, 404, "{path}: {body}");
    }
    assert!(alice.get("/api/v1/executions/@latest").await.1.contains("SINEW-8020"));
    let (status, decided) = bob.send(Method::POST, &format!("{execution}/decisions"), &decision).await;
    assert_eq!(status, 200, "{decided}");
    world.end().await;
}

#[tokio::test]
async fn plans_call_what_the_key_of_their_deployer_opens() {
    let world = GatewayWorld::with(&[("beta-flow", SINGLE)], |options| {
        options.access.is_required = true;
    })
    .await;
    let key = world.key(|new| new.patterns = vec!["flow-*".to_owned(), "alpha".to_owned()]).await.1;
    let deploy = async |body: &str| {
        let request = world.request(Method::POST, "/api/v1/workflows?name=flow-a.yaml").bearer_auth(&key);
        let answer = request.body(body.to_owned()).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    let agent = |name: &str| SINGLE.replace("agent_name: one", &format!("agent_name: {name}"));
    let workflow = |name: &str| {
        SINGLE.replace("type: agent, agent_name: one", &format!("type: workflow, workflow_name: {name}"))
    };
    for (file, names) in [(agent("beta"), "beta"), (workflow("beta-flow"), "beta-flow")] {
        let (status, body) = deploy(&file).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
        assert!(body.contains("SINEW-9022") && body.contains(names), "{body}");
    }
    for file in [agent("alpha"), workflow("flow-b")] {
        let (status, body) = deploy(&file).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
    }
    // The version keeps the patterns: names that its executions compute are checked as well.
    let request = world.request(Method::GET, "/api/v1/workflows/flow-a").bearer_auth(&key);
    let described: Value = request.send().await.unwrap().json().await.unwrap();
    assert_eq!(described["limits"]["calls"], json!(["flow-*", "alpha"]), "{described}");
    world.end().await;
}
