//! Transcripts of every command of a mesh: what is typed and what comes back, on a terminal and not, in every format.
//!
//! `SNAPSHOTS=overwrite cargo test -p sinew --test integration transcripts` writes them anew; read the diff.
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

mod forms;
mod incidents;
mod live;
mod plain;
pub(crate) mod pty;
mod readme;
mod script;
mod views;

use std::time::Duration;

use crate::common::{self, Role, World};
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::Value;
use snapbox::{Data, assert_data_eq};

/// How long a message without meaning may take to be set aside.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long a command on a terminal may take.
const COMMAND_TIMEOUT: Duration = Duration::from_mins(2);

/// Prices an order, then shares the price out; an order of nothing fails.
const ORDERS: &str = r#"
workflow:
  description: Prices an order, then shares the price out.
  version: "1.0"
  input_schema: {type: object, required: [amount], properties: {amount: {type: integer, description: How much}}}
  output_schema: {type: object, properties: {booked: {type: integer}}}
  nodes:
    - {id: price, type: agent, agent_name: Pricing, input: {amount: "{{workflow.input.amount}}"}}
    - {id: book, type: agent, agent_name: Booking, depends_on: [price], input: {price: "{{price.output.price}}"}}
  output_mapping: {booked: "{{book.output.booked}}"}
"#;
/// One task for every line, one after the other.
const LINES: &str = r#"
workflow:
  description: Prices every line.
  version: "1.0"
  input_schema: {type: object, required: [lines], properties: {lines: {type: array, items: {type: integer}}}}
  nodes:
    - {id: each, type: map, node: one, items: "{{workflow.input.lines}}", concurrency_limit: 1}
    - {id: one, type: agent, agent_name: Pricing, input: {amount: "{{_map_item}}"}}
  output_mapping: {prices: "{{each.output.results}}"}
"#;
/// Workflow of an agent that is not served.
const LONELY: &str = r#"
workflow:
  description: Waits for an agent.
  version: "1.0"
  nodes: [{id: ask, type: agent, agent_name: Nobody, input: {}}]
  output_mapping: {answer: "{{ask.output}}"}
"#;
const PRICING: &str = "name: Pricing\ndescription: Knows prices.\ninput_schema: {type: object, required: [amount]}\n\
                       run: {script: {source: \"lambda input: {'price': input['amount'] * 2}\"}}\n";
const BOOKING: &str = "name: Booking\ndescription: Shares out.\ninput_schema: {type: object, required: [price]}\n\
                       run: {script: {source: \"lambda input: {'booked': 100 // input['price']}\"}}\n";
const APPROVAL: &str = include_str!("../fixtures/test/approval.test.json");
const WRITER: &str = "name: Writer\nrun: {script: {source: \"lambda input: 'a draft'\"}}\n";
const EDITOR: &str = "name: Editor\nrun: {script: {source: \"lambda input: 'edited'\"}}\n";

/// A mesh with agents, deployed workflows, and files of more.
fn world() -> (World, Vec<Role>) {
    let (world, executor) = World::new();
    let approval: Value = serde_json::from_str(APPROVAL).unwrap();
    world.write("flows/orders.yaml", ORDERS);
    world.write("flows/lines.yaml", LINES);
    world.write("lonely.yaml", LONELY);
    world.write("approve.json", &approval["definition"].to_string());
    for (name, agent) in [("pricing", PRICING), ("booking", BOOKING), ("writer", WRITER), ("editor", EDITOR)]
    {
        world.write(&format!("cards/{name}.agent.yaml"), agent);
    }
    let agents = world.serve(&["serve", "agent", "cards"]);
    world.ok(&["workflow", "deploy", "flows"]);
    world.online(&["Pricing", "Booking", "Writer", "Editor", "orders", "lines"]);
    (world, vec![executor, agents])
}

/// Plays a transcript and holds it to what stands there.
fn holds(world: &World, name: &str) {
    let path = format!("{}/tests/transcripts/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let typed = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let played = script::play(world, &typed);
    let wrong: Vec<&str> = played.lines().filter(|line| line.starts_with(script::COMPLAINT)).collect();
    assert_data_eq!(Data::text(&played).raw(), Data::read_from(path.as_ref(), None).raw());
    // Recorded or not.
    assert!(wrong.is_empty(), "{name}: {wrong:#?}");
}

#[test]
fn what_looks_is_the_same_in_every_format() {
    let (world, _roles) = world();
    for name in ["began", "executions", "people", "things", "mesh", "terminal"] {
        holds(&world, name);
    }
}

#[test]
fn what_steers_says_what_it_did() {
    let (world, _roles) = world();
    world.runtime.block_on(vandal(&world));
    holds(&world, "steering");
}

#[test]
fn what_is_deployed_is_seen_compared_and_removed() {
    let (world, _roles) = world();
    world.write("clash/Pricing.yaml", ORDERS);
    world.write("newer.yaml", &ORDERS.replace("then shares the price out", "then books it"));
    // The other way round, an agent cannot take the name of a workflow.
    world.write("taken.agent.yaml", &PRICING.replace("Pricing", "orders"));
    let output = world.run(&["serve", "agent", "taken.agent.yaml"]);
    let said = common::text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(
        said.contains("'orders' is the name of a deployed workflow") && said.contains("SINEW-8053"),
        "{said}"
    );
    holds(&world, "deployed");
}

/// Sends a command that means nothing, and waits until it was set aside.
async fn vandal(world: &World) {
    vandal_with(world, "{".into()).await;
}

/// Sends a command with this body, and waits until it was set aside.
async fn vandal_with(world: &World, body: Bytes) {
    let mesh = world.connect("vandal").await;
    let mut aside = mesh.client().subscribe("sinew.v1.quarantine.>").await.unwrap();
    let subject = format!("sinew.v1.command.0.cancel.vandal.{:032x}", 7);
    mesh.admin().jetstream().publish(subject, body).await.unwrap().await.expect("it is stored");
    let seen = tokio::time::timeout(PATIENCE, aside.next()).await;
    assert!(seen.is_ok(), "a command without meaning was not set aside within {PATIENCE:?}");
}

/// A repainted view ends with a whole line, and with a visible cursor.
#[test]
fn ctrl_c_leaves_what_is_painted_and_the_terminal_as_it_was() {
    let (world, _roles) = world();
    world.ok(&["run", "lonely.yaml", "--mesh", "--id", "lonely", "--detach"]);
    // A start is stored before an executor has taken it.
    let begun = std::time::Instant::now();
    while !world.run(&["execution", "describe", "lonely"]).status.success() {
        assert!(begun.elapsed() < PATIENCE, "the execution has not begun within {PATIENCE:?}");
    }
    for (command, word, code) in
        [(&["top", "--interval", "100ms"][..], "STREAM", 0), (&["execution", "watch", "lonely"], "ask", 130)]
    {
        let mut command_line = world.command(command);
        command_line.env("TERM", "xterm-256color");
        let (ended, screen) = pty::interrupted(command_line, word, PATIENCE);
        assert_eq!(ended, Some(code), "{command:?}: {screen}");
        assert!(screen.ends_with('\n') && !screen.contains("\u{1b}[?"), "{command:?}: {screen:?}");
    }
}

/// On a terminal the same is said, but for colour.
#[test]
fn colour_is_all_that_a_terminal_adds() {
    let (world, _roles) = world();
    for command in [
        &["doctor"][..],
        &["mesh", "permissions"],
        &["mesh", "check"],
        &["workflow", "describe", "flows/orders.yaml"],
        &["workflow", "list", "--mesh", "-o", "name"],
        &["tool", "declare", "--for", "mcp"],
        &["agent", "card", "Pricing", "--mesh"],
        &["execution", "list", "-o", "json"],
        &["completions", "zsh"],
        &["explain", "--list"],
        &["explain", "8024"],
        &["execution", "--help"],
    ] {
        let plain = world.run(command);
        assert_eq!(plain.status.code(), Some(0), "{command:?}: {}", common::text(&plain.stderr));
        let plain = common::text(&plain.stdout);
        let (code, seen) = script::on_terminal(&world, command);
        let folder = world.path().display().to_string();
        let words = |text: &str| plain::text(text, &folder, false).replace('\n', " ");
        assert!(!plain.contains('\u{1b}'), "{command:?}: colour where nobody looks");
        assert_eq!(code, Some(0), "{command:?}: {seen}");
        assert_eq!(words(&pty::uncoloured(&seen)).trim(), words(&plain).trim(), "{command:?}");
    }
}
