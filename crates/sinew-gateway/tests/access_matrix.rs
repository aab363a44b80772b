//! Every route against every kind of credentials. The table is written by hand: a route without a row fails.

use std::collections::BTreeSet;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sinew_gateway::{ConsoleMode, described_routes};
use sinew_operations::gateway_keys::{NewKey, create_key};
use sinew_protocol::access::{AccessRole, KeyLimits};

use crate::api_answers::check_answer;
use crate::page_matrix::{MatrixKeys, wrong_pages};
use crate::support::{GatewayWorld, PATIENCE, SINGLE, message, now};

/// Key that a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    /// No key.
    Nothing,
    /// A key that reads.
    Operator,
    /// A key that starts and steers.
    Client,
    /// A key that deploys.
    Admin,
}

use Needs::{Admin, Client, Nothing, Operator};

/// Routes without those of endpoints.
const ROUTES: [(&str, &str, Needs); 88] = [
    ("GET", "/.well-known/agent-card.json", Nothing),
    ("GET", "/agents/{agent}/.well-known/agent-card.json", Operator),
    ("GET", "/.well-known/jwks.json", Nothing),
    ("GET", "/.well-known/oauth-protected-resource", Nothing),
    ("GET", "/.well-known/oauth-protected-resource/mcp", Nothing),
    ("POST", "/hooks/{name}", Nothing),
    ("GET", "/mcp", Operator),
    ("POST", "/mcp", Operator),
    ("DELETE", "/mcp", Operator),
    ("POST", "/a2a", Operator),
    ("POST", "/a2a/", Operator),
    ("POST", "/agents/{agent}", Operator),
    ("POST", "/agents/{agent}/", Operator),
    ("POST", "/lf.a2a.v1.A2AService/{method}", Operator),
    ("GET", "/files/{token}/{name}", Nothing),
    ("GET", "/api/v1/openapi.json", Operator),
    ("GET", "/api/v1/pulse", Operator),
    ("GET", "/api/v1/pulse/activity", Operator),
    ("GET", "/api/v1/execution-counts", Operator),
    ("GET", "/api/v1/executions", Operator),
    ("POST", "/api/v1/executions", Client),
    ("GET", "/api/v1/executions/{id}", Operator),
    ("GET", "/api/v1/executions/{id}/record", Operator),
    ("GET", "/api/v1/executions/{id}/case", Operator),
    ("GET", "/api/v1/executions/{id}/tree", Operator),
    ("GET", "/api/v1/executions/{id}/timeline", Operator),
    ("GET", "/api/v1/executions/{id}/comparison", Operator),
    ("GET", "/api/v1/executions/{id}/node", Operator),
    ("GET", "/api/v1/executions/{id}/events", Operator),
    ("GET", "/api/v1/executions/{id}/result", Operator),
    ("GET", "/api/v1/executions/{id}/drawing", Operator),
    ("GET", "/api/v1/executions/{id}/artifacts", Operator),
    ("GET", "/api/v1/executions/{id}/artifact", Operator),
    ("POST", "/api/v1/executions/{id}/cancel", Client),
    ("POST", "/api/v1/executions/{id}/pause", Client),
    ("POST", "/api/v1/executions/{id}/resume", Client),
    ("POST", "/api/v1/executions/{id}/retry", Client),
    ("POST", "/api/v1/executions/{id}/fork", Client),
    ("POST", "/api/v1/executions/bulk", Client),
    ("POST", "/api/v1/workflows/{name}/pause", Admin),
    ("POST", "/api/v1/workflows/{name}/resume", Admin),
    ("POST", "/api/v1/workflows/{name}/rollback", Admin),
    ("GET", "/api/v1/approvals", Operator),
    ("GET", "/api/v1/approval-count", Operator),
    ("GET", "/api/v1/reports/nodes", Operator),
    ("GET", "/api/v1/reports/cost", Operator),
    ("GET", "/api/v1/audit", Operator),
    ("GET", "/api/v1/executions/{id}/approval", Operator),
    ("POST", "/api/v1/executions/{id}/decisions", Client),
    ("GET", "/api/v1/workflows", Operator),
    ("GET", "/api/v1/workflows/{name}", Operator),
    ("GET", "/api/v1/workflows/{name}/versions", Operator),
    ("GET", "/api/v1/workflows/{name}/drawing", Operator),
    ("POST", "/api/v1/validations", Operator),
    ("POST", "/api/v1/workflows", Admin),
    ("DELETE", "/api/v1/workflows/{name}", Admin),
    ("GET", "/api/v1/agents", Operator),
    ("GET", "/api/v1/agents/{name}", Operator),
    ("DELETE", "/api/v1/agents/{name}", Admin),
    ("POST", "/api/v1/agents/{name}/drain", Admin),
    ("POST", "/api/v1/agents/{name}/undrain", Admin),
    ("POST", "/api/v1/conversions", Operator),
    ("GET", "/api/v1/node-types", Operator),
    ("GET", "/api/v1/map", Operator),
    ("GET", "/api/v1/artifacts", Operator),
    ("GET", "/api/v1/traffic", Operator),
    ("GET", "/api/v1/changes", Operator),
    ("POST", "/api/v1/inspections", Operator),
    ("POST", "/api/v1/comparisons", Operator),
    ("POST", "/api/v1/tests", Operator),
    ("POST", "/api/v1/dry-runs", Operator),
    ("GET", "/api/v1/workflows/{name}/source", Operator),
    ("GET", "/api/v1/executions/{id}/agents", Operator),
    ("GET", "/api/v1/executions/{id}/progress", Operator),
    ("GET", "/api/v1/executions/{id}/artifact/uses", Operator),
    ("GET", "/api/v1/agents/{name}/processes", Operator),
    ("GET", "/api/v1/traffic/figures", Operator),
    ("GET", "/api/v1/doctor", Operator),
    ("GET", "/api/v1/workflow-figures", Operator),
    ("GET", "/api/v1/workflows/{name}/outcomes", Operator),
    ("GET", "/api/v1/quarantine", Operator),
    ("GET", "/api/v1/tools", Operator),
    ("GET", "/api/v1/catalogue", Operator),
    ("GET", "/api/v1/catalogue/{name}", Operator),
    ("GET", "/.well-known/ai-catalog.json", Nothing),
    ("POST", "/ard/search", Operator),
    ("POST", "/ard/explore", Operator),
    ("GET", "/ard/agents", Operator),
];

/// Routes below each endpoint. Cancelling shares its path with reading, and asks for a client by itself.
const ENDPOINT_ROUTES: [(&str, &str, Needs); 10] = [
    ("POST", "/message:send", Client),
    ("POST", "/message:stream", Client),
    ("GET", "/tasks", Operator),
    ("GET", "/tasks/{id}", Operator),
    ("POST", "/tasks/{id}", Operator),
    ("POST", "/tasks/{taskId}/pushNotificationConfigs", Client),
    ("GET", "/tasks/{taskId}/pushNotificationConfigs", Operator),
    ("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}", Operator),
    ("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}", Client),
    ("GET", "/extendedAgentCard", Operator),
];

const ENDPOINTS: [&str; 4] = ["/a2a", "/a2a/{tenant}", "/agents/{agent}", "/agents/{agent}/{tenant}"];

fn rows() -> Vec<(&'static str, String, Needs)> {
    let below = ENDPOINTS.iter().flat_map(|base| {
        ENDPOINT_ROUTES.map(|(method, path, needs)| (method, format!("{base}{path}"), needs))
    });
    ROUTES.map(|(method, path, needs)| (method, path.to_owned(), needs)).into_iter().chain(below).collect()
}

#[test]
fn every_route_has_a_row_and_its_role() {
    let role = |needs| match needs {
        Nothing => None,
        Operator => Some(AccessRole::Operator),
        Client => Some(AccessRole::Client),
        Admin => Some(AccessRole::Admin),
    };
    let wanted: BTreeSet<_> =
        rows().into_iter().map(|(method, path, needs)| (method, path, role(needs))).collect();
    let found: BTreeSet<_> =
        described_routes().into_iter().map(|route| (route.method, route.path, route.role)).collect();
    assert_eq!(found, wanted);
    assert_eq!(found.len(), described_routes().len());
}

/// A request of a route about the workflow `single` and an execution of it.
struct Probe<'a> {
    world: &'a GatewayWorld,
    execution: &'a str,
}

impl Probe<'_> {
    async fn send(&self, method: &str, path: &str, key: Option<&str>) -> (StatusCode, String) {
        let path = path.replace("{agent}", "single").replace("{name}", "single").replace("{tenant}", "test");
        let path = path.replace("{id}", self.execution).replace("{taskId}", self.execution);
        let query = match (method, path.ends_with("/comparison")) {
            ("DELETE", _) if path.contains("workflows") => "?dry_run=true".to_owned(),
            (_, true) => format!("?with={}", self.execution),
            _ => String::new(),
        };
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.world.request(method.clone(), &format!("{path}{query}"));
        if method == Method::POST {
            request = match path.trim_end_matches('/') {
                "/mcp" => request
                    .header("Accept", "application/json, text/event-stream")
                    .header("MCP-Protocol-Version", "2026-07-28")
                    .header("Mcp-Method", "tools/list")
                    .json(&tools_list()),
                "/a2a" | "/agents/single" => request.json(&json!({
                    "jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}
                })),
                _ => request.json(&json!({})),
            };
        }
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let answer = request.timeout(PATIENCE).send().await.unwrap();
        let status = answer.status();
        let content_type = answer.headers().get("content-type").and_then(|value| value.to_str().ok());
        // A stream goes on; that it was opened, and for which path, says enough.
        if content_type.is_some_and(|it| it.starts_with("text/event-stream")) {
            return (status, path);
        }
        let media_type = content_type.unwrap_or_default().to_owned();
        let body = answer.text().await.unwrap_or_default();
        check_answer(&method, &path, status, &media_type, &body);
        (status, body)
    }
}

fn tools_list() -> Value {
    let version = "2026-07-28";
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }}})
}

const CLOSED: [StatusCode; 2] = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN];

#[tokio::test]
async fn every_route_opens_to_the_right_key_only() {
    let world = GatewayWorld::with(&[("single", SINGLE)], |options| {
        options.access.is_required = true;
        options.console = Some(ConsoleMode::Full);
    })
    .await;
    world.serve_echo_behind_keys().await;
    let key = async |role, patterns: &str, expires_at| {
        let made = world.key(|new| {
            (new.role, new.patterns, new.expires_at) = (role, vec![patterns.to_owned()], expires_at);
        });
        made.await.1
    };
    let (operator, client, admin) = (
        key(AccessRole::Operator, "*", None).await,
        key(AccessRole::Client, "*", None).await,
        key(AccessRole::Admin, "*", None).await,
    );
    let expired = key(AccessRole::Admin, "*", Some(1)).await;
    let other = world.key(|new| {
        (new.name, new.role) = ("other".to_owned(), AccessRole::Client);
        new.scope = Some(sinew_protocol::access::KeyScope::Own);
    });
    let other = other.await.1;
    let elsewhere = key(AccessRole::Admin, "nothing-*", None).await;
    let wrong =
        format!("{}{}", &admin[..admin.len() - 4], if admin.ends_with("aaaa") { "bbbb" } else { "aaaa" });
    let foreign = NewKey {
        groups: Vec::new(),
        name: "tester".to_owned(),
        role: AccessRole::Admin,
        scope: Some(sinew_protocol::access::KeyScope::All),
        patterns: vec!["*".to_owned()],
        expires_at: None,
        certificate_name: None,
        limits: KeyLimits::default(),
    };
    let foreign = create_key(&world.other_mesh("other").await, foreign, now()).await.unwrap().key.unwrap();

    let sent = world.request(Method::POST, "/agents/single/message:send").bearer_auth(&client);
    let marker = "for-its-owners";
    let sent = sent.json(&message("m", json!([{"data": {"value": marker}}]))).send().await.unwrap();
    let sent: Value = sent.json().await.unwrap();
    let execution = sent["task"]["id"].as_str().unwrap_or_else(|| panic!("{sent}")).to_owned();
    let probe = Probe { world: &world, execution: &execution };

    let mut wrong_rows = Vec::new();
    for (method, path, needs) in rows() {
        let mut expect = async |who: &str, key: Option<&str>, is_right: &dyn Fn(StatusCode, &str) -> bool| {
            let (status, body) = probe.send(method, &path, key).await;
            let leaks = [&admin, &client, &operator, &wrong].iter().any(|key| body.contains(key.as_str()));
            if !is_right(status, &body) || leaks {
                let body: String = body.chars().take(200).collect();
                wrong_rows.push(format!("{method} {path}, {who}: {status} {body}"));
            }
        };
        let is_unknown = |status, _: &str| status == StatusCode::UNAUTHORIZED;
        let is_open = |status: StatusCode, _: &str| !CLOSED.contains(&status) && !status.is_server_error();
        let is_forbidden =
            |status, body: &str| status == StatusCode::FORBIDDEN && body.contains("SINEW-9016");
        match needs {
            Nothing => expect("no key", None, &is_open).await,
            _ => expect("no key", None, &is_unknown).await,
        }
        for (who, key) in
            [("a wrong key", &wrong), ("an expired key", &expired), ("a key of another mesh", &foreign)]
        {
            expect(who, Some(key.as_str()), &is_unknown).await;
        }
        // Everything that a key for another part of the mesh may not see is absent, whatever its role.
        let is_blind = |status: StatusCode, body: &str| {
            // JSON-RPC reports an unknown name in the body.
            let is_absent = body.contains(r#"\"single\" not found"#) && !body.contains("\"result\"");
            status.is_client_error()
                || is_absent
                || (status.is_success() && !(body.contains("single") || body.contains(&execution)))
        };
        match needs {
            Nothing => expect("another scope", Some(elsewhere.as_str()), &is_open).await,
            Operator | Client | Admin => expect("another scope", Some(elsewhere.as_str()), &is_blind).await,
        }
        match needs {
            Nothing | Operator => {}
            Client => expect("a key that reads", Some(operator.as_str()), &is_forbidden).await,
            Admin => {
                expect("a key that reads", Some(operator.as_str()), &is_forbidden).await;
                expect("a key that starts", Some(client.as_str()), &is_forbidden).await;
            }
        }
        // Another caller of the same workflow is told nothing of the execution.
        let is_kept_apart = |status: StatusCode, body: &str| {
            status.is_client_error()
                || (status.is_success() && !(body.contains(marker) || body.contains(&execution)))
        };
        match needs {
            Nothing => {}
            _ => expect("another caller", Some(other.as_str()), &is_kept_apart).await,
        }
        let right = match needs {
            Nothing => None,
            Operator => Some(operator.as_str()),
            Client => Some(client.as_str()),
            Admin => Some(admin.as_str()),
        };
        expect("the right key", right, &is_open).await;
    }
    // Another tenant in the path is absent, whatever the key.
    for endpoint in ["/a2a/other", "/agents/single/other"] {
        let answer = world.request(Method::GET, &format!("{endpoint}/tasks")).bearer_auth(&admin);
        let answer = answer.send().await.unwrap();
        assert_eq!(answer.status(), 400, "{endpoint}");
        assert!(!answer.text().await.unwrap().contains(&execution), "{endpoint}");
    }
    let keys = MatrixKeys {
        operator: &operator,
        client: &client,
        admin: &admin,
        elsewhere: &elsewhere,
        unknown: [("a wrong key", &wrong), ("an expired key", &expired), ("a key of another mesh", &foreign)],
    };
    wrong_rows.extend(wrong_pages(&world, &keys, (&execution, marker)).await);
    assert!(wrong_rows.is_empty(), "{}:\n{}", wrong_rows.len(), wrong_rows.join("\n"));
    world.end().await;
}

#[tokio::test]
async fn operations_within_a_body_ask_for_their_own_role() {
    let world = GatewayWorld::with(&[("single", SINGLE)], |options| options.access.is_required = true).await;
    let (_, reader) = world.key(|new| new.role = AccessRole::Operator).await;
    let (_, other) = world.key(|new| new.patterns = vec!["nothing-*".to_owned()]).await;
    let call =
        |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let post = async |path: &str, key: &str, body: &Value| {
        let answer = world.request(Method::POST, path).bearer_auth(key).json(body).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    };
    let sent = message("m", json!([{"data": {"value": "v"}}]));
    for path in ["/a2a", "/agents/single"] {
        for (method, params) in [
            ("SendMessage", sent.clone()),
            ("SendStreamingMessage", sent.clone()),
            ("CancelTask", json!({"id": "x"})),
            ("CreateTaskPushNotificationConfig", json!({"taskId": "x", "url": "https://example.com/"})),
        ] {
            let (status, body) = post(path, &reader, &call(method, params)).await;
            assert!(status == 403 && body.contains("SINEW-9016"), "{path} {method}: {status} {body}");
        }
    }
    let (status, body) = post("/a2a/tasks/x:cancel", &reader, &json!({})).await;
    assert!(status == 403 && body.contains("SINEW-9016"), "{status} {body}");
    // A key for another part of the mesh does not start what it does not see.
    let mut named = sent.clone();
    named["metadata"] = json!({"skill": "single"});
    let (_, body) = post("/a2a", &other, &call("SendMessage", named)).await;
    assert!(body.contains("SINEW-9006"), "{body}");
    let (status, body) = post("/agents/single", &other, &call("SendMessage", sent)).await;
    assert!(status == 200 && body.contains("not found") && !body.contains("\"result\""), "{status} {body}");
    let (status, body) = post("/api/v1/executions", &other, &json!({"workflow": "single"})).await;
    assert_eq!(status, 404, "{body}");
    assert_eq!(world.executions().await, 0);
    world.end().await;
}
