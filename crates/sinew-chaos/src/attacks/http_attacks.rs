//! Requests of attackers to a gateway: without a key, with stolen keys, with malformed bodies.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sinew_agents::{WebClient, WebMethod, WebRequest, WebResponse};

use crate::Fallible;
use crate::workflows::JOURNEY;

/// Timeout of response headers.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes of a response, above the size of all errors of the gateway.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Depth of nested JSON.
const DEPTH: usize = 100_000;

/// Responses of the gateway to attacks.
#[derive(Debug, Default)]
pub(super) struct HttpTally {
    pub(super) sent: u64,
    /// Requests without a response.
    pub(super) unanswered: u64,
    /// Responses by status.
    pub(super) statuses: BTreeMap<u16, u64>,
    /// Requests that were accepted.
    pub(super) let_in: Vec<String>,
}

/// Keys of attackers.
#[derive(Clone, Debug)]
pub(super) struct StolenKeys {
    /// Key with access to only one agent.
    pub(super) narrow: String,
    /// Revoked key.
    pub(super) revoked: String,
}

/// A request of an attacker.
struct Attack {
    words: &'static str,
    method: WebMethod,
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Attack {
    fn new(words: &'static str, method: WebMethod, path: impl Into<String>) -> Self {
        Self { words, method, path: path.into(), headers: Vec::new(), body: Vec::new() }
    }

    fn key(mut self, key: &str) -> Self {
        self.headers.push(("authorization", format!("Bearer {key}")));
        self
    }

    fn json(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.headers.push(("content-type", "application/json".to_owned()));
        self.body = body.into();
        self
    }
}

fn attacks(keys: &StolenKeys) -> Vec<Attack> {
    let start = || json!({"workflow": JOURNEY, "input": {"value": 1}}).to_string();
    let message = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message}).to_string();
    let executions = "/api/v1/executions";
    let agent = format!("/agents/{JOURNEY}");
    let (get, post) = (WebMethod::Get, WebMethod::Post);
    let forged = format!("{}x", keys.revoked);
    let deep = [vec![b'['; DEPTH], vec![b']'; DEPTH]].concat();
    let narrow = &keys.narrow;
    vec![
        Attack::new("no key", get, "/api/v1/workflows"),
        Attack::new("no key, a start", post, executions).json(start()),
        Attack::new("a key that is a word", get, "/api/v1/workflows").key("nothing"),
        Attack::new("an empty key", get, "/api/v1/workflows").key(""),
        Attack::new("a forged key", post, executions).key(&forged).json(start()),
        Attack::new("a revoked key", post, executions).key(&keys.revoked).json(start()),
        Attack::new("a key in the address", get, format!("/api/v1/workflows?key={narrow}")),
        Attack::new("a narrow key, a start", post, executions).key(narrow).json(start()),
        Attack::new("a narrow key, a call", post, &*agent).key(narrow).json(call),
        Attack::new("a narrow key, a message", post, format!("{agent}/message:send"))
            .key(narrow)
            .json(message.to_string()),
        Attack::new("an execution of others", get, format!("{executions}/0")).key(narrow),
        Attack::new("a path upwards", get, "/api/v1/%2e%2e/%2e%2e/etc/passwd").key(narrow),
        Attack::new("a path that is not text", get, "/api/v1/workflows/%ff%00").key(narrow),
        Attack::new("nested JSON", post, executions).key(narrow).json(deep),
        Attack::new("bytes", post, executions).key(narrow).json(vec![0xff, 0xfe, 0, 1]),
        Attack::new("a name twice", post, executions)
            .key(narrow)
            .json(br#"{"workflow": "leg", "workflow": "journey", "input": {}}"#.to_vec()),
        Attack::new("a large body", post, executions).key(narrow).json(vec![b' '; 40 << 20]),
        Attack::new("a tool of MCP", post, "/mcp").json(call_of_mcp()),
    ]
}

fn call_of_mcp() -> Vec<u8> {
    let params = json!({"name": JOURNEY, "arguments": {"value": 1}});
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string().into_bytes()
}

/// Sends each attack once.
pub(super) async fn attack_gateway(web: &WebClient, base: &str, keys: &StolenKeys, tally: &mut HttpTally) {
    for attack in attacks(keys) {
        let headers: Vec<(&str, &str)> =
            attack.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let address = format!("{base}{}", attack.path);
        let request = WebRequest {
            method: attack.method,
            address: &address,
            headers: &headers,
            body: attack.body,
            timeout: HEAD_TIMEOUT,
        };
        tally.sent += 1;
        match web.open(request).await {
            Ok(answer) => {
                let status = answer.status();
                *tally.statuses.entry(status).or_default() += 1;
                if status < 400 && !is_refusal(answer).await {
                    tally.let_in.push(format!("{}: {status}", attack.words));
                }
            }
            Err(_) => tally.unanswered += 1,
        }
    }
}

/// Returns whether a response with status 200 is a refusal, as errors of JSON-RPC are.
async fn is_refusal(answer: WebResponse) -> bool {
    let body = answer.body(MAX_ANSWER_BYTES).await.unwrap_or_default();
    serde_json::from_slice::<Value>(&body).is_ok_and(|body| body.get("error").is_some())
}

/// Returns whether the gateway accepts a key.
pub(super) async fn is_open(web: &WebClient, base: &str, key: &str) -> Fallible<bool> {
    let (address, proof) = (format!("{base}/api/v1/workflows"), format!("Bearer {key}"));
    let headers = [("authorization", proof.as_str())];
    let request = WebRequest {
        method: WebMethod::Get,
        address: &address,
        headers: &headers,
        body: Vec::new(),
        timeout: HEAD_TIMEOUT,
    };
    Ok(web.open(request).await.is_ok_and(|answer| answer.status() == 200))
}
