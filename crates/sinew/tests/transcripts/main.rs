//! Transcripts of every command of a mesh: what is typed and what comes back, on a terminal and not, in every format.
//!
//! `SNAPSHOTS=overwrite cargo test -p sinew --test transcripts` writes them anew; read the diff.
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

#[path = "../common/mod.rs"]
mod common;
mod plain;
mod pty;
mod script;

use std::time::Duration;

use common::{Role, World};
use serde_json::Value;
use sinew_mesh::connect::Connect;
use snapbox::{Data, assert_data_eq};

/// How long cards may take to be announced.
const PATIENCE: Duration = Duration::from_mins(1);

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
/// Nobody serves its agent.
const LONELY: &str = r#"
workflow:
  description: Waits for an agent.
  version: "1.0"
  nodes: [{id: ask, type: agent, agent_name: Nobody, input: {}}]
  output_mapping: {answer: "{{ask.output}}"}
"#;
const PRICING: &str = "name: Pricing\ndescription: Knows prices.\ninput_schema: {type: object, required: [amount]}\n\
                       run: {script: {source: \"lambda input: {'price': input['amount'] * 2}\"}}\n";
const BOOKING: &str = "name: Booking\ndescription: Shares out.\n\
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
    world.runtime.block_on(online(&world.url));
    (world, vec![executor, agents])
}

/// Waits until all cards are there: those of the agents, and those of the workflows.
async fn online(url: &str) {
    let connect = Connect { url: Some(url.to_owned()), role: "test", ..Connect::default() };
    let mut cards = connect.open().await.expect("a mesh").cards();
    cards.ready().await;
    while cards.list().len() < 6 {
        let changed = tokio::time::timeout(PATIENCE, cards.changed()).await;
        assert!(changed.is_ok(), "of 6 cards only {} came within {PATIENCE:?}", cards.list().len());
    }
}

/// Plays a transcript and holds it to what stands there.
fn holds(world: &World, name: &str) {
    let path = format!("{}/tests/transcripts/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let typed = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let played = script::play(world, &typed);
    let wrong: Vec<&str> = played.lines().filter(|line| line.starts_with(script::COMPLAINT)).collect();
    if std::env::var_os("SNAPSHOTS").is_none() {
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
    }
    assert_data_eq!(Data::text(played).raw(), Data::read_from(path.as_ref(), None).raw());
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
    holds(&world, "steering");
}
