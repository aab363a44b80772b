//! An outside agent of A2A 1.0 or 0.3 that does what its messages say, and counts them.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use sinew_protocol::a2a::v0_3::old_event;
use sinew_protocol::jsonrpc::Request;
use tokio::sync::watch;

/// The JSON-RPC binding of A2A 0.3.
pub(crate) const OLD_JSON_RPC: &str = "JSONRPC of 0.3";

/// The agent, served until it is dropped.
pub(crate) struct FakeAgent {
    pub(crate) base: String,
    pub(crate) state: Arc<FakeState>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

pub(crate) struct FakeState {
    binding: &'static str,
    /// Whether it speaks A2A 0.3.
    is_old: bool,
    streams: bool,
    known: Mutex<FakeRecord>,
    /// Counts every change, for those who wait for one.
    changed: watch::Sender<u64>,
}

#[derive(Default)]
pub(crate) struct FakeRecord {
    base: String,
    tasks: BTreeMap<String, Value>,
    /// How often a message of each id came.
    pub(crate) messages: HashMap<String, u32>,
    pub(crate) headers: Vec<HeaderMap>,
    pub(crate) cancelled: Vec<String>,
    pub(crate) tokens: u32,
    pub(crate) card_requests: u32,
    /// Status of the card; 200 serves it, 0 never answers.
    pub(crate) card_status: u16,
    pub(crate) card_location: Option<String>,
    pub(crate) description: String,
    /// Value that `authorization` must have, if any.
    pub(crate) wanted: Option<String>,
    /// Answers to messages of `slow` wait for this.
    pub(crate) is_released: bool,
}

impl FakeAgent {
    pub(crate) async fn start(binding: &'static str, streams: bool) -> Self {
        let listener =
            tokio::net::TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let known = FakeRecord {
            base: base.clone(),
            card_status: 200,
            description: "does what it is told".to_owned(),
            ..FakeRecord::default()
        };
        let known = Mutex::new(known);
        let is_old = binding == OLD_JSON_RPC;
        let binding = if is_old { "JSONRPC" } else { binding };
        let state = Arc::new(FakeState { binding, is_old, streams, known, changed: watch::Sender::new(0) });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&state));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { base, state, serving }
    }

    pub(crate) fn record<T>(&self, look: impl FnOnce(&mut FakeRecord) -> T) -> T {
        self.state.record(look)
    }

    /// Waits until something is so.
    pub(crate) async fn until(&self, what: &str, is_so: impl Fn(&FakeRecord) -> bool) {
        let mut changes = self.state.changed.subscribe();
        let waiting = async {
            while !self.record(|record| is_so(record)) {
                changes.changed().await.unwrap();
            }
        };
        let waited = tokio::time::timeout(super::world::PATIENCE, waiting).await;
        assert!(waited.is_ok(), "{what}: {:?}", self.record(|record| record.messages.clone()));
    }

    /// Ends a task that is held.
    pub(crate) fn finish_all(&self) {
        let open: Vec<String> = self.record(|record| {
            let open =
                record.tasks.iter().filter(|(_, task)| task["status"]["state"] == "TASK_STATE_WORKING");
            open.map(|(id, _)| id.clone()).collect()
        });
        for id in open {
            self.state.complete(&id, "held to the end");
        }
    }

    /// The most that one message came.
    pub(crate) fn most_of_one_message(&self) -> u32 {
        self.record(|record| record.messages.values().copied().max().unwrap_or_default())
    }
}

impl FakeState {
    fn record<T>(&self, look: impl FnOnce(&mut FakeRecord) -> T) -> T {
        let looked = look(&mut self.known.lock().unwrap());
        self.changed.send_modify(|count| *count += 1);
        looked
    }

    fn task(&self, id: &str) -> Option<Value> {
        self.known.lock().unwrap().tasks.get(id).cloned()
    }

    fn complete(&self, id: &str, text: &str) {
        self.record(|record| {
            let Some(task) = record.tasks.get_mut(id) else { return };
            task["artifacts"] = json!([{"artifactId": "a", "name": "answer", "parts": [{"text": text}]}]);
            task["status"] = json!({"state": "TASK_STATE_COMPLETED"});
        });
    }

    fn card(&self) -> Value {
        let (base, description) = self.record(|record| (record.base.clone(), record.description.clone()));
        if self.is_old {
            return json!({
                "name": "Fake agent!", "description": description, "version": "1.2.3", "protocolVersion": "0.3.0",
                "url": format!("{base}/api"), "preferredTransport": "JSONRPC",
                "capabilities": {"streaming": self.streams},
                "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
                "skills": [{"id": "obey", "name": "obey", "description": "Obeys.", "tags": ["test"]}],
            });
        }
        json!({
            "name": "Fake agent!", "description": description, "version": "1.2.3",
            "supportedInterfaces": [{"url": format!("{base}/api"), "protocolBinding": self.binding, "protocolVersion": "1.0"}],
            "capabilities": {"streaming": self.streams},
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "obey", "name": "obey", "description": "Obeys.", "tags": ["test"]}],
        })
    }
}

async fn answer(
    State(state): State<Arc<FakeState>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().to_owned();
    if path == "/token" {
        let nth = state.record(|record| {
            record.tokens += 1;
            record.headers.push(headers);
            record.tokens
        });
        return json_response(
            &json!({"access_token": format!("token-{nth}"), "token_type": "Bearer", "expires_in": 600}),
        );
    }
    if path.ends_with("agent-card.json") {
        let (status, location) = state.record(|record| {
            record.card_requests += 1;
            record.headers.push(headers);
            (record.card_status, record.card_location.clone())
        });
        if status == 0 {
            return std::future::pending().await;
        }
        let status = StatusCode::from_u16(status).unwrap();
        return match location {
            Some(location) => (StatusCode::FOUND, [("location", location)]).into_response(),
            None if status != StatusCode::OK => status.into_response(),
            None => json_response(&state.card()),
        };
    }
    let wanted = state.record(|record| record.wanted.clone());
    let given = headers.get("authorization").and_then(|value| value.to_str().ok()).map(str::to_owned);
    state.record(|record| record.headers.push(headers));
    if wanted.is_some() && given != wanted {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    if state.is_old {
        return answer_old(state, &body).await;
    }
    let (id, operation, params) = request_of(&state, &method, &uri, &body);
    perform(state, id, &operation, params).await
}

/// Answers a request of A2A 0.3.
async fn answer_old(state: Arc<FakeState>, body: &[u8]) -> Response {
    let (call, old) = Request::read_versioned(body, None).unwrap();
    let old = old.unwrap();
    let response = perform(state, call.id, old.method.wire_name(), old.params.clone()).await;
    let (parts, body) = response.into_parts();
    if parts.headers["content-type"] == "application/json" {
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        let mut answer: Value = serde_json::from_slice(&body).unwrap();
        if let Some(result) = answer.get_mut("result") {
            *result = old.result(result.take()).unwrap();
        }
        return Response::from_parts(parts, Body::from(answer.to_string()));
    }
    let events = body.into_data_stream().map(|piece| {
        let lines = piece?.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
        let events = lines.iter().filter_map(|line| line.strip_prefix(b"data: "));
        let shown = events.map(|data| {
            let mut event: Value = serde_json::from_slice(data).unwrap();
            event["result"] = old_event(event["result"].take());
            format!("data: {event}\n\n")
        });
        Ok::<_, axum::Error>(shown.collect::<String>())
    });
    Response::from_parts(parts, Body::from_stream(events))
}

/// Id, operation and parameters of a request in either binding.
fn request_of(state: &FakeState, method: &Method, uri: &Uri, body: &Bytes) -> (Value, String, Value) {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    if state.binding == "JSONRPC" {
        return (body["id"].clone(), body["method"].as_str().unwrap().to_owned(), body["params"].clone());
    }
    let path = uri.path().trim_start_matches("/api");
    let task = |rest: &str| json!({"id": rest});
    let (operation, params) = match (method.as_str(), path) {
        ("POST", "/message:send") => ("SendMessage", body),
        ("POST", "/message:stream") => ("SendStreamingMessage", body),
        ("GET", "/tasks") => {
            let query = uri.query().unwrap_or_default();
            let context =
                query.split('&').find_map(|pair| pair.strip_prefix("contextId=")).unwrap_or_default();
            let context = context.replace("%2D", "-").replace("%5F", "_");
            ("ListTasks", json!({"contextId": context}))
        }
        (_, path) => {
            let rest = path.trim_start_matches("/tasks/").replace("%2D", "-");
            match rest.split_once(':') {
                Some((id, "cancel")) => ("CancelTask", task(id)),
                Some((id, "subscribe")) => ("SubscribeToTask", task(id)),
                _ => ("GetTask", task(&rest)),
            }
        }
    };
    (Value::Null, operation.to_owned(), params)
}

async fn perform(state: Arc<FakeState>, id: Value, operation: &str, params: Value) -> Response {
    match operation {
        "SendMessage" | "SendStreamingMessage" => {
            let streaming = operation == "SendStreamingMessage";
            send(state, id, &params["message"], streaming).await
        }
        "ListTasks" => {
            let context = &params["contextId"];
            let tasks: Vec<Value> = state.record(|record| {
                let tasks = record.tasks.values().filter(|task| task["contextId"] == *context);
                tasks.filter(|task| task["metadata"]["unlisted"].is_null()).cloned().collect()
            });
            let count = tasks.len();
            wrap(
                &state,
                &id,
                json!({"tasks": tasks, "nextPageToken": "", "pageSize": 100, "totalSize": count}),
            )
        }
        "CancelTask" => {
            let task = params["id"].as_str().unwrap().to_owned();
            state.record(|record| {
                record.cancelled.push(task.clone());
                record.tasks.get_mut(&task).unwrap()["status"] = json!({"state": "TASK_STATE_CANCELED"});
            });
            wrap(&state, &id, state.task(&task).unwrap())
        }
        "SubscribeToTask" => events(state, id, params["id"].as_str().unwrap()),
        _ => match state.task(params["id"].as_str().unwrap_or_default()) {
            Some(task) => wrap(&state, &id, task),
            None => not_found(&state, &id),
        },
    }
}

fn not_found(state: &FakeState, id: &Value) -> Response {
    if state.binding == "JSONRPC" {
        return json_response(
            &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32001, "message": "no such task"}}),
        );
    }
    let error = json!({"error": {"code": 404, "status": "NOT_FOUND", "message": "no such task",
        "details": [{"reason": "TASK_NOT_FOUND", "domain": "a2a-protocol.org"}]}});
    (StatusCode::NOT_FOUND, json_response(&error)).into_response()
}

/// An error that a gateway of Sinew says may pass.
fn sinew_error(state: &FakeState, id: &Value, code: &str) -> Response {
    let details = json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code.replace('-', "_"),
        "domain": "github.com/sinew-mesh/sinew",
        "metadata": {"code": code, "kind": "error", "retryable": "true"}}]);
    if state.binding == "JSONRPC" {
        let error = json!({"code": -32603, "message": "not now", "data": details});
        return json_response(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
    }
    let error =
        json!({"error": {"code": 503, "status": "UNAVAILABLE", "message": "not now", "details": details}});
    (StatusCode::SERVICE_UNAVAILABLE, json_response(&error)).into_response()
}

/// Takes a message; its first word says what happens.
async fn send(state: Arc<FakeState>, id: Value, message: &Value, streaming: bool) -> Response {
    let message_id = message["messageId"].as_str().unwrap().to_owned();
    let text = message["parts"]
        .as_array()
        .unwrap()
        .iter()
        .find_map(|part| part["text"].as_str())
        .unwrap_or_default();
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    state.record(|record| *record.messages.entry(message_id.clone()).or_default() += 1);
    if let Some(task) = message["taskId"].as_str() {
        let text = format!("answered {text}");
        state.complete(task, &text);
        return first_answer(&state, id, task, streaming);
    }
    let context = message["contextId"].as_str().map_or_else(|| "own".to_owned(), str::to_owned);
    let task = format!("task-{message_id}");
    let mut status = json!({"state": "TASK_STATE_WORKING"});
    match word {
        "ask" => {
            let question =
                json!({"messageId": "q1", "role": "ROLE_AGENT", "parts": [{"text": "which colour?"}]});
            status = json!({"state": "TASK_STATE_INPUT_REQUIRED", "message": question});
        }
        "fail" => {
            let words = json!({"messageId": "f", "role": "ROLE_AGENT", "parts": [{"text": "no\u{7} more"}]});
            status = json!({"state": "TASK_STATE_FAILED", "message": words});
        }
        "fail-with" | "ask-with" => {
            let state = if word == "ask-with" { "TASK_STATE_INPUT_REQUIRED" } else { "TASK_STATE_FAILED" };
            let words = json!({"messageId": "w", "role": "ROLE_AGENT", "parts": [{"text": rest}]});
            status = json!({"state": state, "message": words});
        }
        "mystery" => status = json!({"state": "TASK_STATE_UNSPECIFIED"}),
        _ => {}
    }
    let mut made = json!({"id": task, "contextId": context, "status": status, "history": [message]});
    if word == "vanish" || rest == "unlisted" {
        made["metadata"] = json!({"unlisted": true});
    }
    if word == "file-with" {
        made["status"] = json!({"state": "TASK_STATE_COMPLETED"});
        let raw = data_encoding::BASE64.encode(rest.as_bytes());
        made["artifacts"] = json!([{"artifactId": "f", "name": rest, "parts": [
            {"raw": raw, "filename": "notes.txt", "mediaType": "text/plain"}, {"data": {rest: [rest]}},
        ]}]);
    }
    if word == "pieces" {
        made["status"] = json!({"state": "TASK_STATE_COMPLETED"});
        let (one, other) = rest.split_at(rest.len() / 2);
        made["artifacts"] = json!([{"artifactId": "p", "parts": [{"text": one}, {"text": other}]}]);
    }
    if word == "file" {
        let base = state.record(|record| record.base.clone());
        made["status"] = json!({"state": "TASK_STATE_COMPLETED"});
        made["artifacts"] = json!([{"artifactId": "f", "name": "notes", "parts": [
            {"raw": "aGVsbG8", "filename": "../notes.txt", "mediaType": "text/plain"},
            {"data": {"n": 7}}, {"url": "https://elsewhere.example/x"}, {"url": format!("{base}/card.agent-card.json")},
        ]}]);
    }
    state.record(|record| record.tasks.insert(task.clone(), made));
    match word {
        "crowded" if state.record(|record| record.messages[&message_id]) == 1 => {
            let problem =
                json!({"status": 503, "code": "SINEW-9005", "detail": "too many requests"}).to_string();
            let headers = [("content-type", "application/problem+json")];
            return (StatusCode::SERVICE_UNAVAILABLE, headers, problem).into_response();
        }
        "echo" | "crowded" => state.complete(&task, rest),
        "direct" => {
            let message = json!({"messageId": "d", "role": "ROLE_AGENT", "parts": [{"text": rest}]});
            return if streaming {
                whole_stream(&state, &id, &[json!({"message": message})])
            } else {
                wrap(&state, &id, json!({"message": message}))
            };
        }
        "pieces" if streaming => {
            // The parts of the artifact come one by one.
            let parts = state.task(&task).unwrap()["artifacts"][0]["parts"].clone();
            let working =
                json!({"id": task, "contextId": context, "status": {"state": "TASK_STATE_WORKING"}});
            let mut told = vec![json!({"task": working})];
            told.extend(parts.as_array().unwrap().iter().enumerate().map(|(nth, part)| {
                json!({"artifactUpdate": {"taskId": task, "contextId": context, "append": nth > 0,
                    "artifact": {"artifactId": "p", "parts": [part]}}})
            }));
            let message = json!({"messageId": "p", "role": "ROLE_AGENT", "parts": [{"text": rest}]});
            told.extend([
                json!({"statusUpdate": {"taskId": task, "contextId": context,
                    "status": {"state": "TASK_STATE_WORKING", "message": message}}}),
                json!({"statusUpdate": {"taskId": task, "contextId": context,
                    "status": {"state": "TASK_STATE_COMPLETED"}}}),
            ]);
            return whole_stream(&state, &id, &told);
        }
        "drop" | "vanish" => return broken(),
        "unavailable" => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        "unanswered" => return sinew_error(&state, &id, "SINEW-7055"),
        "full" => return sinew_error(&state, &id, "SINEW-5113"),
        "refuse-with" if state.binding == "JSONRPC" => {
            let error = json!({"code": -32602, "message": rest, "data": [{"reason": rest}]});
            return json_response(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
        "refuse-with" => {
            let error = json!({"code": 400, "status": "INVALID_ARGUMENT", "message": rest});
            return (StatusCode::BAD_REQUEST, json_response(&json!({"error": error}))).into_response();
        }
        "refuse" => {
            return json_response(
                &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "not like that"}}),
            );
        }
        "slow" => {
            let mut changes = state.changed.subscribe();
            while !state.known.lock().unwrap().is_released {
                changes.changed().await.unwrap();
            }
        }
        "endless-body" => return endless("application/json", b"          "),
        "endless-line" => return endless("text/event-stream", b"data: xxxxxxxxxxxxxxxxxxxxxxxx"),
        "endless-comments" => return endless("text/event-stream", b": nothing\n\n"),
        "garbage" => return ([("content-type", "application/json")], "{\"jsonrpc\": ").into_response(),
        "foreign" => {
            let update = json!({"statusUpdate": {"taskId": "other", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}});
            return whole_stream(&state, &id, &[json!({"task": state.task(&task)}), update]);
        }
        "wrong-id" => {
            return json_response(
                &json!({"jsonrpc": "2.0", "id": "another", "result": {"task": state.task(&task)}}),
            );
        }
        "twice" => {
            return (
                [("content-type", "application/json")],
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":1,\"result\":2}}"),
            )
                .into_response();
        }
        "redirect" => {
            return (StatusCode::TEMPORARY_REDIRECT, [("location", "http://169.254.169.254/")])
                .into_response();
        }
        "wrong-type" => return wrap(&state, &id, json!([1, 2])),
        "no-id" => {
            return wrap(
                &state,
                &id,
                json!({"task": {"id": "", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}),
            );
        }
        _ => {}
    }
    first_answer(&state, id, &task, streaming)
}

fn first_answer(state: &Arc<FakeState>, id: Value, task: &str, streaming: bool) -> Response {
    if streaming {
        return events(Arc::clone(state), id, task);
    }
    wrap(state, &id, json!({"task": state.task(task)}))
}

/// A stream of a task: a snapshot at each change, until the task has ended or asks.
fn events(state: Arc<FakeState>, id: Value, task: &str) -> Response {
    let task = task.to_owned();
    let changes = state.changed.subscribe();
    let told =
        stream::unfold((state, changes, None::<Value>, false), move |(state, mut changes, last, over)| {
            let (task, id) = (task.clone(), id.clone());
            async move {
                if over {
                    return None;
                }
                loop {
                    changes.mark_unchanged();
                    let now = state.task(&task)?;
                    if last.as_ref() != Some(&now) {
                        let is_over = now["status"]["state"] != "TASK_STATE_WORKING";
                        let event = sse(&state, &id, &json!({"task": now}));
                        return Some((Ok::<_, std::io::Error>(event), (state, changes, Some(now), is_over)));
                    }
                    changes.changed().await.ok()?;
                }
            }
        });
    ([("content-type", "text/event-stream")], Body::from_stream(told)).into_response()
}

fn whole_stream(state: &FakeState, id: &Value, events: &[Value]) -> Response {
    let text: String = events.iter().map(|event| sse(state, id, event)).collect();
    ([("content-type", "text/event-stream")], text).into_response()
}

fn sse(state: &FakeState, id: &Value, event: &Value) -> String {
    let data = if state.binding == "JSONRPC" {
        json!({"jsonrpc": "2.0", "id": id, "result": event})
    } else {
        event.clone()
    };
    format!("data: {data}\n\n")
}

fn wrap(state: &FakeState, id: &Value, result: Value) -> Response {
    json_response(&if state.binding == "JSONRPC" {
        json!({"jsonrpc": "2.0", "id": id, "result": result})
    } else {
        result
    })
}

fn json_response(value: &Value) -> Response {
    ([("content-type", "application/json")], value.to_string()).into_response()
}

/// An answer that breaks off after its head.
fn broken() -> Response {
    let pieces = stream::iter([Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("gone"))]);
    ([("content-type", "application/json")], Body::from_stream(pieces)).into_response()
}

fn endless(media_type: &'static str, piece: &'static [u8]) -> Response {
    let piece = Bytes::from(piece.repeat(10_000));
    let pieces = stream::repeat(piece).map(Ok::<_, std::io::Error>);
    ([("content-type", media_type)], Body::from_stream(pieces)).into_response()
}
