//! Alerts of gateways and bridges over pages of real processes: each fires when its cause is there, and not before.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use serde_json::json;

use super::alerts::{ScrapedExecutor, count, flow, rules, scraped_until};
use super::promql::{Sample, ScrapeWindow};
use crate::common::{POLL_INTERVAL, World};

/// Alerts whose causes are here.
pub(super) const CAUSED_OUTSIDE: [&str; 4] =
    ["SinewCallersLimited", "SinewGatewayFails", "SinewOutsideMessageUnknown", "SinewPushesRefused"];

/// Names of the alerts of these that fire.
fn fired(first: &[Sample], last: &[Sample]) -> Vec<String> {
    let window = ScrapeWindow { first: first.to_vec(), last: last.to_vec(), seconds: 60.0 };
    let here = rules().into_iter().filter(|(name, _)| CAUSED_OUTSIDE.contains(&name.as_str()));
    here.filter(|(_, expression)| !window.firing(expression).is_empty()).map(|(name, _)| name).collect()
}

/// Sends one request, and gives its status.
fn status(port: u16, method: &str, path: &str, body: &str) -> u16 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(2))).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\na2a-version: 1.0\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer.split_whitespace().nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
}

/// Sends requests for one path on one connection, without waiting for answers in between, and reads the answers.
fn send_many(port: u16, path: &str, count: usize) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(2))).unwrap();
    let request = |connection: &str| {
        format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\na2a-version: 1.0\r\nconnection: {connection}\r\n\r\n"
        )
    };
    let requests = request("keep-alive").repeat(count - 1) + &request("close");
    let mut reader = stream.try_clone().unwrap();
    let answers = std::thread::spawn(move || drop(std::io::copy(&mut reader, &mut std::io::sink())));
    stream.write_all(requests.as_bytes()).unwrap();
    answers.join().unwrap();
}

/// A server that answers each request with what `answer` makes of it; nothing closes the connection.
fn serve(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                let mut request = vec![0; 64 << 10];
                let length = stream.read(&mut request).unwrap_or_default();
                let answered = answer(&String::from_utf8_lossy(&request[..length]));
                if let Some(text) = answered {
                    let _ = stream.write_all(text.as_bytes());
                }
            });
        }
    });
    port
}

/// An outside agent that has a card, and never says what became of a message.
fn silent_agent() -> u16 {
    let own = Arc::new(AtomicU16::new(0));
    let known = Arc::clone(&own);
    let port = serve(move |request| {
        if !request.starts_with("GET") {
            return None;
        }
        let url = format!("http://127.0.0.1:{}/rpc", known.load(Ordering::Relaxed));
        let card = json!({
            "name": "silent", "description": "says nothing", "version": "1", "capabilities": {},
            "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "s", "name": "s", "description": "s", "tags": ["t"]}],
        })
        .to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
        Some(format!("{head}content-length: {}\r\n\r\n{card}", card.len()))
    });
    own.store(port, Ordering::Relaxed);
    port
}

#[test]
fn gateways_and_bridges_fire_their_alerts() {
    let (world, _executor) = World::new();
    let listens = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let port = listens.port();
    let gateway = ScrapedExecutor::start_as(world.command(&[
        "serve",
        "gateway",
        "--listen",
        &listens.to_string(),
        "--push-to-private-addresses",
        "--max-in-flight",
        "1",
        "--caller-requests-per-second",
        "100",
        "--health-port",
        "0",
    ]));
    let agent = format!("http://127.0.0.1:{}", silent_agent());
    let bridge = ScrapedExecutor::start_as(world.command(&["serve", "bridge", &agent, "--health-port", "0"]));
    world.online(&["silent"]);
    let node = |agent: &str| format!("    - {{id: a, type: agent, agent_name: {agent}, input: {{}}}}\n");
    world.write("flows/asks.yaml", &flow("asks", &node("silent")));
    world.write("flows/lonely.yaml", &flow("lonely", &node("Nobody")));
    world.ok(&["workflow", "deploy", "flows"]);
    let card = "/agents/lonely/.well-known/agent-card.json";
    while status(port, "GET", card, "") != 200 {
        std::thread::sleep(POLL_INTERVAL);
    }
    let pages = [&gateway, &bridge];
    let quiet = scraped_until(&pages, |page| count(page, "sinew_gateway_requests_total", None) > 0.0);
    assert_eq!(fired(&quiet, &quiet), Vec::<String>::new());

    world.ends(&["run", "asks", "--mesh", "--wait", "-q"], 1);
    let lost = scraped_until(&pages, |page| {
        count(page, "sinew_bridge_messages_total", Some(("outcome", "unknown"))) > 0.0
    });
    assert_eq!(fired(&quiet, &lost), ["SinewOutsideMessageUnknown"]);

    let gone =
        serve(|_| Some("HTTP/1.1 410 Gone\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_owned()));
    let message = |id: &str, configuration: serde_json::Value| {
        json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": [{"data": {}}]}, "configuration": configuration}).to_string()
    };
    let hook = json!({"returnImmediately": true, "taskPushNotificationConfig": {"url": format!("http://127.0.0.1:{gone}/")}});
    assert_eq!(status(port, "POST", "/agents/lonely/message:send", &message("m1", hook)), 200);
    let refused = scraped_until(&pages, |page| {
        count(page, "sinew_gateway_pushes_total", Some(("outcome", "refused"))) > 0.0
    });
    assert_eq!(fired(&lost, &refused), ["SinewPushesRefused"]);

    // One request that is answered late takes the only place, once it gets it.
    let body = message("m2", json!({}));
    let blocked = std::thread::spawn(move || {
        let send = || status(port, "POST", "/agents/lonely/message:send", &body);
        std::iter::repeat_with(send).find(|status| ![429, 503].contains(status)).unwrap()
    });
    while status(port, "GET", card, "") != 503 {
        std::thread::sleep(POLL_INTERVAL);
    }
    let busy = scraped_until(&pages, |page| {
        count(page, "sinew_gateway_requests_total", Some(("status", "5xx"))) > 0.0
    });
    assert!(fired(&refused, &busy).contains(&"SinewGatewayFails".to_owned()));
    let both = std::iter::repeat_with(|| world.json(&["execution", "list", "--workflow", "lonely"]))
        .find(|rows| rows.as_array().is_some_and(|rows| rows.len() == 2));
    for row in both.unwrap().as_array().unwrap() {
        world.ok(&["execution", "cancel", row["execution"].as_str().unwrap(), "--yes"]);
    }
    assert_eq!(blocked.join().unwrap(), 200);
    let limited = scraped_until(&pages, |page| {
        send_many(port, card, 500);
        count(page, "sinew_gateway_requests_total", Some(("status", "429"))) > 500.0
    });
    assert!(fired(&busy, &limited).contains(&"SinewCallersLimited".to_owned()), "{limited:#?}");
}
