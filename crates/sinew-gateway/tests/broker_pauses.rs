//! A broker that pauses under load: no read says that something does not exist, or shows a part of
//! a list as the whole.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use reqwest::{Method, RequestBuilder, StatusCode, header};
use serde_json::{Value, json};
use sinew_gateway::ConsoleMode;
use sinew_operations::gateway_hooks::deploy_hook;
use sinew_protocol::webhook::WebhookScheme;
use tonic::Code;

use crate::bindings_support::GrpcClient;
use crate::support::{GatewayWorld, PATIENCE, SINGLE, message, review};
use crate::webhooks::{SECRET, github, trigger};

/// Pauses of the broker, milliseconds, and the time for which it answers in between.
const PAUSES: std::ops::RangeInclusive<u64> = 200..=5_000;
const BREATHS: std::ops::RangeInclusive<u64> = 5..=80;
/// Time for which the broker pauses again and again.
const STORM: Duration = Duration::from_secs(25);
/// Readers at once.
const READERS: usize = 24;
/// Reports for a broker that does not answer. All else that is not a success would be
/// final for a client.
const RETRYABLE: [StatusCode; 2] = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];
/// The same in gRPC.
const RETRYABLE_GRPC: [Code; 2] = [Code::Unavailable, Code::DeadlineExceeded];

/// A request, and texts that its answer has as long as nothing is missing in it.
struct Read {
    what: &'static str,
    request: ReadRequest,
    whole: Vec<String>,
}

enum ReadRequest {
    Http(RequestBuilder),
    /// Errors of MCP are part of a successful HTTP response.
    Mcp(RequestBuilder),
    Grpc(GrpcClient, &'static str, Value),
}

/// Every way on which a client reads, or starts something that exists.
fn reads(world: &GatewayWorld, grpc: &GrpcClient, ended: &str, open: &str) -> Vec<Read> {
    let of = |what: &'static str, request: ReadRequest, whole: &[&str]| Read {
        what,
        request,
        whole: whole.iter().map(|text| (*text).to_owned()).collect(),
    };
    let read = |what: &'static str, path: &str, whole: &[&str]| {
        of(what, ReadRequest::Http(world.request(Method::GET, path)), whole)
    };
    let post = |what: &'static str, path: &str, body: &Value, whole: &[&str]| {
        of(what, ReadRequest::Http(world.request(Method::POST, path).json(body)), whole)
    };
    let rpc = |what, method: &str, params: Value, whole: &[&str]| {
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        post(what, "/a2a", &body, whole)
    };
    let mcp = |what, method: &str, name: &str, mut params: Value, whole: &[&str]| {
        let version = "2026-07-28";
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let request = world
            .request(Method::POST, "/mcp")
            .json(&body)
            .header(header::ACCEPT, "application/json, text/event-stream")
            .header("mcp-protocol-version", version)
            .header("mcp-method", method)
            .header("mcp-name", name);
        of(what, ReadRequest::Mcp(request), whole)
    };
    let grpc = |what, method: &'static str, params: Value, whole: &[&str]| {
        of(what, ReadRequest::Grpc(grpc.clone(), method, params), whole)
    };
    let call = json!({"name": "single", "arguments": {"value": "x"}});
    let delivery = r#"{"value": "a"}"#;
    let (name, signature) = github(SECRET, delivery);
    let hook = world.request(Method::POST, "/hooks/pushes").header(name, signature).body(delivery);
    vec![
        read("workflows", "/api/v1/workflows", &["single", "review"]),
        read("workflow", "/api/v1/workflows/single", &["single"]),
        read("versions", "/api/v1/workflows/review/versions", &["review"]),
        read("agents", "/api/v1/agents", &["\"one\""]),
        read("agent", "/api/v1/agents/one", &["\"one\""]),
        read("tools", "/api/v1/tools", &["single"]),
        read("executions", "/api/v1/executions", &[open]),
        read("ended execution", &format!("/api/v1/executions/{ended}"), &[ended]),
        read("open execution", &format!("/api/v1/executions/{open}"), &[open]),
        read("record", &format!("/api/v1/executions/{ended}/record"), &[ended]),
        read("artifacts", &format!("/api/v1/executions/{ended}/artifacts"), &[]),
        read("approvals", "/api/v1/approvals", &[open]),
        read("pulse", "/api/v1/pulse", &["TASKS"]),
        read("card", "/agents/one/.well-known/agent-card.json", &["\"one\""]),
        read("page of workflows", "/console/workflows", &["single", "review"]),
        read("page of a workflow", "/console/workflows/single", &["single"]),
        read("page of executions", "/console/executions", &[open]),
        read("page of agents", "/console/agents", &["one"]),
        read("page of approvals", "/console/approvals", &["review"]),
        post("start", "/api/v1/executions", &json!({"workflow": "single", "input": {"value": "x"}}), &[]),
        of("webhook", ReadRequest::Http(hook.header(header::CONTENT_TYPE, "application/json")), &[]),
        rpc("task", "GetTask", json!({"id": ended}), &[ended]),
        rpc("tasks of a workflow", "ListTasks", json!({}), &[]),
        grpc("task over gRPC", "GetTask", json!({"id": ended}), &[ended]),
        grpc(
            "message over gRPC",
            "SendMessage",
            message("m", json!([{"data": {"value": "x"}}])),
            &["COMPLETED"],
        ),
        mcp("tools of MCP", "tools/list", "", json!({}), &["\"single\"", "\"one\""]),
        mcp(
            "call of a tool of MCP",
            "tools/call",
            "single",
            call,
            &["\"structuredContent\":{\"value\":\"x\"}"],
        ),
    ]
}

/// Checks one answer; describes it if it is neither the whole nor says that the broker does not
/// answer.
async fn wrong(read: &Read) -> Option<String> {
    let (request, is_mcp) = match &read.request {
        ReadRequest::Http(request) => (request, false),
        ReadRequest::Mcp(request) => (request, true),
        ReadRequest::Grpc(client, method, params) => {
            return match client.call("single", method, params).await {
                Ok(answer) => {
                    let answer = answer.to_string();
                    let is_whole = read.whole.iter().all(|one| answer.contains(one));
                    (!is_whole).then(|| format!("{}: {answer}", read.what))
                }
                Err(status) if RETRYABLE_GRPC.contains(&status.code()) => None,
                Err(status) => Some(format!("{}: {status}", read.what)),
            };
        }
    };
    let answer = match request.try_clone().unwrap().timeout(PATIENCE).send().await {
        Ok(answer) => answer,
        Err(error) => return Some(format!("{}: {error}", read.what)),
    };
    let (status, headers) = (answer.status(), answer.headers().clone());
    let body = answer.text().await.unwrap();
    let shown: String = body.chars().take(300).collect();
    if status == StatusCode::SERVICE_UNAVAILABLE && !headers.contains_key(header::RETRY_AFTER) {
        return Some(format!("{}: no Retry-After: {shown}", read.what));
    }
    let error = serde_json::from_str::<Value>(&body).unwrap_or_default().get("error").cloned();
    let error = error.unwrap_or_default();
    let is_refused = RETRYABLE.contains(&status)
        || error.to_string().contains("google.rpc.RetryInfo")
        || (is_mcp && body.contains("\"retryable\":true"));
    let is_whole = status.is_success() && error.is_null() && read.whole.iter().all(|one| body.contains(one));
    // Lists of tasks name the agents that they lack.
    let is_marked = headers.contains_key("sinew-unheard-agents");
    (!is_refused && !is_whole && !is_marked).then(|| format!("{}: {status} {shown}", read.what))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_pauses_makes_nothing_disappear() {
    let workflows = [("single", SINGLE), ("review", &review())];
    let world = GatewayWorld::with(&workflows, |options| options.console = Some(ConsoleMode::Full)).await;
    world.serve_echo().await;
    deploy_hook(&world.mesh, trigger("pushes", WebhookScheme::Github, &[])).await.unwrap();
    let start = async |workflow: &str, input: Value| {
        let body = json!({"workflow": workflow, "input": input});
        let answer = world.request(Method::POST, "/api/v1/executions").json(&body).send().await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        answer["execution"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let (ended, open) = (start("single", json!({"value": "x"})).await, start("review", json!({})).await);
    let reads = reads(&world, &GrpcClient::connect(&world.base).await, &ended, &open);
    // All of it is there before the first pause.
    let settled = async {
        for read in &reads {
            while let Some(found) = wrong(read).await {
                println!("{found}");
            }
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.unwrap();

    let is_over = AtomicBool::new(false);
    let storm = async {
        let mut chance = StdRng::seed_from_u64(0x51);
        let until = tokio::time::Instant::now() + STORM;
        while tokio::time::Instant::now() < until {
            world.pause_broker().await;
            tokio::time::sleep(Duration::from_millis(chance.random_range(PAUSES))).await;
            world.resume_broker();
            tokio::time::sleep(Duration::from_millis(chance.random_range(BREATHS))).await;
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let load = async {
        let until_over = futures_util::stream::iter(reads.iter().cycle())
            .take_while(|_| std::future::ready(!is_over.load(Ordering::Relaxed)));
        until_over.map(wrong).buffer_unordered(READERS).collect::<Vec<_>>().await
    };
    let (found, ()) = tokio::join!(load, storm);
    let wrong: Vec<String> = found.iter().flatten().cloned().collect();
    println!("{} answers under pauses, {} wrong", found.len(), wrong.len());
    assert!(found.len() > reads.len(), "nothing was read");
    assert!(wrong.is_empty(), "{wrong:#?}");
    world.end().await;
}

/// A key that is made during or right after an outage opens the gateway at once; while that is not known, the answer is 503.
#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_made_during_an_outage_are_known() {
    let world = GatewayWorld::with(&[("single", SINGLE)], |options| options.access.is_required = true).await;
    let mut chance = StdRng::seed_from_u64(0x52);
    for round in 0..6 {
        world.pause_broker().await;
        let making = world.make_key(|new| new.name = format!("round-{round}"));
        let pause = async {
            tokio::time::sleep(Duration::from_millis(chance.random_range(200..=2_000))).await;
            world.resume_broker();
        };
        let (made, ()) = tokio::join!(making, pause);
        let key = made.key.unwrap();
        let uses = async {
            loop {
                let request = world.http.get(format!("{}/api/v1/workflows", world.base)).bearer_auth(&key);
                let status = request.send().await.unwrap().status();
                if status == StatusCode::OK {
                    break;
                }
                assert!(RETRYABLE.contains(&status), "round {round}: {status}");
            }
        };
        tokio::time::timeout(PATIENCE, uses).await.unwrap();
    }
    world.end().await;
}
