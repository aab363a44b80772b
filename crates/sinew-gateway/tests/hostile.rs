//! Requests that are wrong, forged or endless: refused with a code, and nothing is stored.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use sinew_agent::Agent;
use sinew_gateway::TransportSecurity;

use crate::support::{EventSource, GatewayWorld, PATIENCE, SINGLE, message};

#[tokio::test]
async fn hosts_and_origins_of_others_are_refused() {
    let world = GatewayWorld::with(&[("single", SINGLE)], |options| {
        options.hosts = vec!["mesh.example".to_owned()];
    })
    .await;
    let port = world.base.rsplit(':').next().unwrap().to_owned();
    let cases = [
        (format!("localhost:{port}"), None, true),
        (format!("127.0.0.1:{port}"), None, true),
        (format!("[::1]:{port}"), None, true),
        ("MESH.example".to_owned(), None, true),
        ("evil.example".to_owned(), None, false),
        ("mesh.example.evil.example".to_owned(), None, false),
        ("localhost.evil.example".to_owned(), None, false),
        (format!("localhost:{port}.evil.example"), None, false),
        ("localhost:99999".to_owned(), None, false),
        (format!("localhost:{port}"), Some(format!("http://localhost:{port}")), true),
        (format!("localhost:{port}"), Some(format!("https://localhost:{port}")), false),
        (format!("localhost:{port}"), Some(format!("moz-extension://localhost:{port}")), false),
        (format!("localhost:{port}"), Some(format!("http://127.0.0.1:{port}")), false),
        (format!("localhost:{port}"), Some("http://localhost:3000".to_owned()), false),
        (format!("localhost:{port}"), Some("https://mesh.example".to_owned()), true),
        (format!("localhost:{port}"), Some("http://mesh.example".to_owned()), false),
        (format!("localhost:{port}"), Some("https://evil.example".to_owned()), false),
        (format!("localhost:{port}"), Some("null".to_owned()), false),
    ];
    for (host, origin, allowed) in cases {
        let url = format!("{}/.well-known/agent-card.json", world.base);
        let mut request = world.http.get(url).header("host", &host);
        if let Some(origin) = &origin {
            request = request.header("origin", origin);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status() == StatusCode::OK, allowed, "{host} {origin:?}");
        assert!(!answer.headers().contains_key("access-control-allow-origin"));
        if !allowed {
            assert_eq!(answer.status(), StatusCode::FORBIDDEN);
            let problem: Value = answer.json().await.unwrap();
            assert_eq!(problem["code"], "SINEW-9004", "{problem}");
        }
    }
    world.end().await;
}

#[tokio::test]
async fn a_gateway_on_a_public_address_does_not_start() {
    let world = GatewayWorld::new(&[]).await;
    let start = async |address: &str, keys: bool, transport: TransportSecurity| {
        let address = address.parse().unwrap();
        let started = world.start_with(|options| {
            (options.listen, options.access.is_required, options.transport) = (address, keys, transport);
        });
        started.await.map(drop).map_err(|error| error.code().to_owned())
    };
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        assert_eq!(start(address, false, TransportSecurity::Plain).await, Err("SINEW-9002".to_owned()));
        assert_eq!(start(address, true, TransportSecurity::Plain).await, Err("SINEW-9002".to_owned()));
        assert_eq!(
            start(address, false, TransportSecurity::PlainBehindProxy).await,
            Err("SINEW-9002".to_owned())
        );
    }
    assert_eq!(start("0.0.0.0:0", true, TransportSecurity::PlainBehindProxy).await, Ok(()));
    let taken = world.base.trim_start_matches("http://");
    assert_eq!(start(taken, false, TransportSecurity::Plain).await, Err("SINEW-9001".to_owned()));
    world.end().await;
}

#[tokio::test]
async fn bodies_that_are_not_calls_are_refused() {
    let world =
        GatewayWorld::with(&[("single", SINGLE)], |options| options.limits.body_bytes = 100_000).await;
    let call = |method: &str, params: &Value| {
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
    };
    let good = message("m", json!([{"data": {"value": "v"}}]));
    let cases: Vec<(String, i64, StatusCode)> = vec![
        (String::new(), -32700, StatusCode::OK),
        ("{".to_owned(), -32700, StatusCode::OK),
        ("[]".to_owned(), -32600, StatusCode::OK),
        (format!("[{}]", call("SendMessage", &good)), -32600, StatusCode::OK),
        ("{\"id\": 1}".to_owned(), -32600, StatusCode::OK),
        (json!({"jsonrpc": "1.0", "id": 1, "method": "SendMessage"}).to_string(), -32600, StatusCode::OK),
        (json!({"jsonrpc": "2.0", "id": {}, "method": "SendMessage"}).to_string(), -32600, StatusCode::OK),
        (call("message/send", &good), -32601, StatusCode::OK),
        (call("GetAgentCard", &json!({})), -32601, StatusCode::OK),
        (call("SendMessage", &json!([])), -32602, StatusCode::OK),
        (call("SendMessage", &json!("x")), -32602, StatusCode::OK),
        (
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"GetTask\",\"method\":\"SendMessage\"}".to_owned(),
            -32600,
            StatusCode::OK,
        ),
        (
            call("SendMessage", &message("m", json!([{"text": "x".repeat(100_000)}]))),
            -32600,
            StatusCode::PAYLOAD_TOO_LARGE,
        ),
        (format!("{}1{}", "[".repeat(50_000), "]".repeat(49_000)), -32700, StatusCode::OK),
    ];
    for (body, code, status) in cases {
        let shown: String = body.chars().take(80).collect();
        let request =
            world.request(Method::POST, "/agents/single").header("content-type", "application/json");
        let answer = request.body(body).send().await.unwrap();
        assert_eq!(answer.status(), status, "{shown}");
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["error"]["code"], code, "{shown}: {answer}");
    }
    assert_eq!(world.executions().await, 0);
    world.end().await;
}

#[tokio::test]
async fn versions_and_media_types_are_checked() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    let good = message("m", json!([{"data": {"value": "v"}}]));
    for version in [None, Some(""), Some("0.3"), Some("2.0")] {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": good});
        let mut rpc = world.http.post(format!("{}/agents/single", world.base)).json(&call);
        let mut rest = world.http.post(format!("{}/agents/single/message:send", world.base)).json(&good);
        if let Some(version) = version {
            (rpc, rest) = (rpc.header("A2A-Version", version), rest.header("A2A-Version", version));
        }
        let answer: Value = rpc.send().await.unwrap().json().await.unwrap();
        assert_eq!(answer["error"]["code"], -32009, "{version:?} {answer}");
        assert_eq!(answer["error"]["data"][0]["reason"], "VERSION_NOT_SUPPORTED", "{answer}");
        let answer = rest.send().await.unwrap();
        assert_eq!(answer.status(), 400);
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["error"]["details"][0]["reason"], "VERSION_NOT_SUPPORTED", "{answer}");
    }
    let url = format!("{}/agents/single/tasks?A2A-Version=1.0", world.base);
    assert_eq!(world.http.get(url).send().await.unwrap().status(), 200, "the version may stand in the query");
    let text = world.request(Method::POST, "/agents/single").header("content-type", "text/plain").body("{}");
    assert_eq!(text.send().await.unwrap().status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let text =
        world.request(Method::POST, "/agents/single/message:send").header("content-type", "text/plain");
    let answer: Value = text.body(good.to_string()).send().await.unwrap().json().await.unwrap();
    assert_eq!(answer["error"]["details"][0]["reason"], "CONTENT_TYPE_NOT_SUPPORTED", "{answer}");
    let own = world.request(Method::GET, "/agents/single/tasks").header("accept", "application/a2a+json");
    assert_eq!(own.send().await.unwrap().headers()["content-type"], "application/a2a+json");
    assert_eq!(world.executions().await, 0);
    world.end().await;
}

#[tokio::test]
async fn paths_lead_nowhere_else() {
    let world = GatewayWorld::new(&[("single", SINGLE)]).await;
    let cases = [
        (Method::GET, "/", 404),
        (Method::GET, "/agents/..%2f..%2fsingle/tasks", 404),
        (Method::GET, "/agents/%3E/tasks", 404),
        (Method::GET, "/agents/single%00/tasks", 404),
        (Method::GET, "/agents/single/tasks/..%2f..%2fx", 404),
        (Method::GET, "/agents/single/tasks/%3E", 404),
        (Method::GET, "/agents/single/tasks/a.b.*", 404),
        (Method::POST, "/agents/single/tasks/x:explode", 404),
        (Method::DELETE, "/agents/single", 405),
        (Method::PUT, "/a2a", 405),
    ];
    for (method, path, status) in cases {
        let answer = world.request(method.clone(), path).send().await.unwrap();
        assert_eq!(answer.status(), status, "{method} {path}");
        let body: Value = answer.json().await.unwrap();
        assert!(body.get("code").is_some() || body.get("error").is_some(), "{path}: {body}");
    }
    world.end().await;
}

#[tokio::test]
async fn half_open_requests_are_cut() {
    let short = std::time::Duration::from_millis(300);
    let world = GatewayWorld::with(&[], |options| {
        options.limits.head_timeout = short;
        options.limits.body_timeout = short;
        options.console = Some(sinew_console::ConsoleMode::Full);
    })
    .await;
    let address = world.base.trim_start_matches("http://").to_owned();
    let body = format!(
        "POST /a2a HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\na2a-version: 1.0\r\n\
         content-length: 100\r\n\r\n{{"
    );
    let form = format!(
        "POST /console/executions/x/cancel HTTP/1.1\r\nhost: {address}\r\norigin: http://{address}\r\n\
         cookie: sinew-console=0123456789abcdef0123456789abcdef\r\ncontent-length: 100\r\n\r\na"
    );
    let nothing = String::new();
    let preface = "PRI * HTTP/2.0\r\n".to_owned();
    for head in [nothing, preface, format!("GET / HTTP/1.1\r\nhost: {address}\r\n"), body, form] {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // The gateway ends the connection; without its limits this would wait for ever.
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&answer);
        let is_refused = answer.starts_with("HTTP/1.1 408")
            || answer.contains("or incomplete")
            || answer.contains("body is incomplete");
        assert!(answer.is_empty() || is_refused, "{head:?}: {answer}");
    }
    world.end().await;
}

#[tokio::test]
async fn large_bodies_are_bounded_together() {
    let world = GatewayWorld::with(&[], |options| {
        (options.limits.body_bytes, options.limits.large_bodies) = (1 << 10, 1 << 20);
        options.console = Some(sinew_console::ConsoleMode::Full);
    })
    .await;
    let address = world.base.trim_start_matches("http://").to_owned();
    let text = "x".repeat(600 << 10);
    let body = format!("{{\"first\": \"{text}\", \"second\": \"\"}}");
    for path in ["/api/v1/comparisons", "/console/import"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\norigin: http://{address}\r\ncontent-type: application/json\r\n\
             cookie: sinew-console=0123456789abcdef0123456789abcdef\r\ncontent-length: {}\r\n\r\n{{",
            body.len()
        );
        // A body that does not arrive yet takes its place.
        let mut held = TcpStream::connect(&address).await.unwrap();
        held.write_all(head.as_bytes()).await.unwrap();
        let post = async || {
            let request = world.http.post(format!("{}{path}", world.base)).header("origin", &world.base);
            let request = request.header("content-type", "application/json").body(body.clone());
            let answer = request.send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        };
        let refused = async {
            loop {
                let (status, text) = post().await;
                if status == 503 {
                    return text;
                }
            }
        };
        let refused = tokio::time::timeout(PATIENCE, refused).await.unwrap();
        assert!(refused.contains("SINEW-9005"), "{path}: {refused}");
        drop(held);
        let taken = async { while post().await.0 == 503 {} };
        assert!(tokio::time::timeout(PATIENCE, taken).await.is_ok(), "{path}: the place is given back");
    }
    // Usual bodies need no place, and those of unknown length count as the largest.
    let small = world.http.post(format!("{}/api/v1/comparisons", world.base)).json(&json!({}));
    assert_eq!(small.send().await.unwrap().status(), 400);
    let pieces = futures_util::stream::iter([Ok::<_, std::io::Error>("{}")]);
    let endless = world.http.post(format!("{}/api/v1/comparisons", world.base));
    let endless = endless.header("content-type", "application/json").body(reqwest::Body::wrap_stream(pieces));
    assert_eq!(endless.send().await.unwrap().status(), 503);
    world.end().await;
}

/// One thread that computes beside the thread that answers pages: it does nothing until it is let go.
struct HeldComputation {
    pages: tokio::runtime::Runtime,
    begun: tokio::sync::mpsc::UnboundedReceiver<()>,
    let_go: std::sync::mpsc::Sender<()>,
}

impl HeldComputation {
    fn new() -> Self {
        let (told, begun) = tokio::sync::mpsc::unbounded_channel();
        let (let_go, is_let_go) = std::sync::mpsc::channel::<()>();
        let (started, is_let_go) = (AtomicUsize::new(0), Mutex::new(is_let_go));
        let pages = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(1)
            .enable_all()
            .on_thread_start(move || {
                // The first thread answers pages; the next one begins with the first work that is computed.
                if started.fetch_add(1, Ordering::SeqCst) > 0 {
                    told.send(()).unwrap();
                    let _ = is_let_go.lock().unwrap().recv();
                }
            })
            .build()
            .unwrap();
        Self { pages, begun, let_go }
    }
}

#[tokio::test]
async fn work_whose_client_has_gone_keeps_its_places() {
    let mut held = HeldComputation::new();
    let threads = held.pages.handle().clone();
    let world = GatewayWorld::with(&[], |options| {
        options.page_threads = Some(threads);
        options.access.limits.in_flight = Some(1);
        (options.limits.connections, options.limits.body_bytes) = (1, 1 << 10);
    })
    .await;
    // Each request has a connection of its own, and is taken once the one before is closed.
    let http = reqwest::Client::builder().pool_max_idle_per_host(0).timeout(PATIENCE).build().unwrap();
    let post = || http.post(format!("{}/api/v1/inspections", world.base)).body("x".repeat(2 << 10)).send();
    let first = tokio::spawn(post());
    tokio::time::timeout(PATIENCE, held.begun.recv()).await.unwrap().unwrap();
    first.abort();
    let status = async || http.get(format!("{}/api/v1/agents", world.base)).send().await.unwrap().status();
    assert_eq!(status().await, StatusCode::TOO_MANY_REQUESTS);
    // The thread of pages has taken note of the closed connection when it does this.
    held.pages.spawn(tokio::task::yield_now()).await.unwrap();
    assert_eq!(status().await, StatusCode::TOO_MANY_REQUESTS, "the work goes on, and counts");
    held.let_go.send(()).unwrap();
    let given_back = async { while status().await != StatusCode::OK {} };
    assert!(
        tokio::time::timeout(PATIENCE, given_back).await.is_ok(),
        "the place is given back with the work"
    );
    world.end().await;
    held.pages.shutdown_background();
}

#[tokio::test]
async fn texts_of_too_many_values_are_refused_before_they_are_read() {
    let world = GatewayWorld::new(&[]).await;
    let many = format!("{{\"format\": 1, \"rounds\": [0{}]}}", ",0".repeat(1_000_000));
    let post = async |path: &str, body: String| {
        let request = world.request(Method::POST, path).header("content-type", "application/json");
        let answer = request.body(body).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let compared = json!({"first": many, "second": "{}"}).to_string();
    for (path, body, most) in [
        ("/api/v1/inspections", many.clone(), "300000"),
        ("/api/v1/comparisons", compared, "300000"),
        ("/api/v1/executions", format!("{{\"workflow\": \"a\", \"input\": {many}}}"), "1000000"),
    ] {
        let (status, text) = post(path, body).await;
        assert_eq!(status, 413, "{path}: {text}");
        assert!(text.contains(&format!("more than {most} values")), "{path}: {text}");
    }
    let (status, text) = post("/api/v1/inspections", "{\"format\": 1, \"rounds\": [0,0]}".to_owned()).await;
    assert!(status == 422 && text.contains("plan:"), "{status} {text}");
    world.end().await;
}

#[tokio::test]
async fn clients_that_do_not_read_are_cut() {
    let world = GatewayWorld::with(&[], |options| {
        options.limits.slow_client = std::time::Duration::from_millis(500);
        options.limits.streams = 1;
    })
    .await;
    let agent = Agent::dynamic("one", None, None, |input, context| async move {
        // More than the buffers of a connection take.
        for _ in 0..400 {
            context.progress(json!("x".repeat(60_000)));
            tokio::task::yield_now().await;
        }
        context.cancel().cancelled().await;
        Ok(input)
    });
    world.serve(agent).await;
    let stream = |id: &str| {
        let params = message(id, json!([{"data": {}}]));
        world.request(Method::POST, "/agents/one/message:stream").json(&params)
    };
    let address = world.base.trim_start_matches("http://").to_owned();
    let body = message("m1", json!([{"data": {}}])).to_string();
    let head = format!(
        "POST /agents/one/message:stream HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         a2a-version: 1.0\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut deaf = TcpStream::connect(&address).await.unwrap();
    deaf.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    deaf.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    // Its place is the only one: another stream opens once the gateway has cut it.
    let opened = async {
        loop {
            let answer = stream("m2").send().await.unwrap();
            if answer.status() == StatusCode::OK {
                break answer;
            }
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
            tokio::task::yield_now().await;
        }
    };
    let answer = tokio::time::timeout(PATIENCE, opened).await.unwrap();
    assert!(EventSource::of(answer).next().await.is_some());
    drop(deaf);
    world.end().await;
}

#[tokio::test]
async fn scripts_of_named_origins_may_call_and_others_not() {
    let world = GatewayWorld::with(&[("single", SINGLE)], |options| {
        options.cors_origins = vec!["https://app.example".to_owned()];
        options.access.is_required = true;
    })
    .await;
    let url = format!("{}/a2a", world.base);
    let ask = |origin: &'static str| {
        world
            .http
            .request(reqwest::Method::OPTIONS, &url)
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .send()
    };
    let allowed = ask("https://app.example").await.unwrap();
    assert_eq!(allowed.status(), StatusCode::NO_CONTENT, "without a key: browsers ask without");
    assert_eq!(allowed.headers()["access-control-allow-origin"], "https://app.example");
    assert!(allowed.headers()["access-control-allow-headers"].to_str().unwrap().contains("a2a-version"));
    assert!(!allowed.headers().contains_key("access-control-allow-credentials"));
    for origin in ["https://evil.example", "https://app.example.evil.example", "null"] {
        let refused = ask(origin).await.unwrap();
        assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{origin}");
        assert!(!refused.headers().contains_key("access-control-allow-origin"), "{origin}");
    }
    let rebound = world
        .http
        .request(reqwest::Method::OPTIONS, &url)
        .header("host", "evil.example")
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST");
    assert_eq!(rebound.send().await.unwrap().status(), StatusCode::FORBIDDEN);
    let card = format!("{}/.well-known/agent-card.json", world.base);
    let read = world.http.get(&card).header("origin", "https://app.example").send().await.unwrap();
    assert_eq!(
        (read.status(), &read.headers()["access-control-allow-origin"]),
        (StatusCode::OK, &"https://app.example".parse().unwrap())
    );
    let varies =
        read.headers().get_all("vary").iter().any(|value| value.to_str().unwrap().contains("origin"));
    assert!(varies, "{:?}", read.headers());
    let keyless =
        world.http.post(&url).header("origin", "https://app.example").body("{}").send().await.unwrap();
    assert_eq!(keyless.status(), StatusCode::UNAUTHORIZED);
    assert!(keyless.headers().contains_key("access-control-allow-origin"), "a script may read why");
    let wrong = world.start_with(|options| options.cors_origins = vec!["*".to_owned()]).await.unwrap_err();
    assert_eq!(wrong.code(), "SINEW-9018", "{wrong}");
    world.end().await;
}

/// Types of frames of HTTP/2 (RFC 9113, section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
/// Flag of frames that end their stream, or that acknowledge.
const END: u8 = 1;
/// Flag of frames with the last of the header fields.
const END_OF_FIELDS: u8 = 4;

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Reads frames up to the acknowledgement of a ping; gives type, flags and stream of the others.
async fn frames_until_pong(wire: &mut TcpStream) -> Vec<(u8, u8, u32)> {
    let mut seen = Vec::new();
    loop {
        let mut head = [0; 9];
        wire.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        wire.read_exact(&mut payload).await.unwrap();
        if (head[3], head[4]) == (PING, END) {
            return seen;
        }
        seen.push((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]])));
    }
}

/// Some clients lose the answer of a stream that is reset behind it, which servers do where nobody read the body.
#[tokio::test]
async fn a_refused_request_of_http_2_is_read_and_not_reset() {
    let world = GatewayWorld::new(&[]).await;
    let mut wire = TcpStream::connect(world.base.trim_start_matches("http://")).await.unwrap();
    let text =
        |index: u8, text: &str| [&[index, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    // POST and http are in the static table of header fields, as are the names of path and authority.
    let fields = [&[0x83, 0x86][..], &text(0x04, "/api/v1/executions"), &text(0x01, "evil.example")].concat();
    let ping = frame(PING, 0, 0, &[0; 8]);
    let opening = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        &*frame(SETTINGS, 0, 0, &[]),
        &frame(HEADERS, END_OF_FIELDS, 1, &fields),
        &ping,
    ]
    .concat();
    let exchange = async {
        wire.write_all(&opening).await.unwrap();
        let mut seen = frames_until_pong(&mut wire).await;
        wire.write_all(&frame(DATA, END, 1, b"{}")).await.unwrap();
        while !seen.iter().any(|(kind, flags, stream)| {
            *stream == 1 && (*kind == RST_STREAM || [DATA, HEADERS].contains(kind) && flags & END == END)
        }) {
            wire.write_all(&ping).await.unwrap();
            seen.extend(frames_until_pong(&mut wire).await);
        }
        wire.write_all(&ping).await.unwrap();
        seen.extend(frames_until_pong(&mut wire).await);
        seen
    };
    let seen = tokio::time::timeout(PATIENCE, exchange).await.unwrap();
    assert!(seen.iter().any(|(kind, _, stream)| (*kind, *stream) == (HEADERS, 1)), "no answer: {seen:?}");
    assert!(seen.iter().all(|(kind, _, _)| *kind != RST_STREAM), "reset: {seen:?}");
    // A gateway waits for open connections before it ends.
    drop(wire);
    world.end().await;
}
