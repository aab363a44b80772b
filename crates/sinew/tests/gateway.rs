//! The gateway as a process: `sinew serve gateway`, and the one of `sinew dev`.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::Value;

use crate::common::{Role, Said, World, text};

const GREET: &str = r#"
workflow:
  description: Greets.
  nodes: [{id: a, type: agent, agent_name: greeter, input: {name: "{{workflow.input.name}}"}}]
  output_mapping: {said: "{{a.output}}"}
"#;

/// The body of an answer to `GET` at this address.
fn get(url: &str) -> Value {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).unwrap()
}

/// The address of the card that a process told of.
fn card_address(told: &str) -> String {
    let line = told.lines().find(|line| line.contains("/.well-known/agent-card.json")).unwrap();
    line.split_whitespace().last().unwrap().to_owned()
}

#[test]
fn a_gateway_serves_until_it_is_told_to_stop() {
    let (world, _executor) = World::new();
    world.write("greet.yaml", GREET);
    world.ok(&["workflow", "deploy", "greet.yaml"]);
    world.online(&["greet"]);
    let mut child = world
        .command(&["serve", "gateway", "--listen", "127.0.0.1:0", "--expose", "gre*"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let told = Said::by(child.stderr.take().unwrap()).wait_for("/.well-known/agent-card.json");
    let gateway = Role(child);
    let card = get(&card_address(&told));
    assert_eq!(card["skills"][0]["id"], "greet", "{card}");
    assert_eq!(gateway.stop(), Some(0));
    let open = world.run(&["serve", "gateway", "--listen", "0.0.0.0:0"]);
    assert_eq!(open.status.code(), Some(2));
    assert!(text(&open.stderr).contains("SINEW-9002"), "{}", text(&open.stderr));
}

#[test]
fn dev_offers_its_mesh_over_http() {
    let (world, port) = World::for_dev();
    let mut child = world
        .command(&["dev", "--port", &port, "--ephemeral", "--gateway-port", "0"])
        .env_remove("NATS_URL")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let banner = Said::by(child.stdout.take().unwrap()).wait_for("  Next ");
    let dev = Role(child);
    let card = get(&card_address(&banner));
    let skills: Vec<&str> =
        card["skills"].as_array().unwrap().iter().map(|skill| skill["id"].as_str().unwrap()).collect();
    assert!(skills.contains(&"echo"), "{skills:?}");
    assert_eq!(dev.stop(), Some(0));
}
