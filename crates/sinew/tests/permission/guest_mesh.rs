//! The mesh from end to end with agents that are not trusted: guests work as others do.

use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use sinew_agent::{Agent, CancellationToken, Context};
use sinew_mesh::Connect;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::permission::world::{NORTH, PASSWORD, World, accounts_with, acks_in_both_shapes};

/// Both ways of delivery, inputs and outputs too large for a message, and one that never ends.
const ORDERS: &str = r#"
workflow:
  description: Prices an order, then books it.
  version: "1.0"
  input_schema: {type: object, required: [amount], properties: {amount: {type: integer}, note: {type: string}}}
  nodes:
    - {id: price, type: agent, agent_name: Pricing, input: {amount: "{{workflow.input.amount}}", note: "{{workflow.input.note}}"}}
    - {id: book, type: agent, agent_name: Booking, depends_on: [price], input: {price: "{{price.output.price}}", note: "{{price.output.note}}"}}
  output_mapping: {booked: "{{book.output.booked}}", size: "{{book.output.size}}"}
"#;
const ENDLESS: &str = r#"
workflow:
  description: Waits for somebody to cancel it.
  version: "1.0"
  nodes:
    - {id: wait, type: agent, agent_name: Sleeper, input: {}}
  output_mapping: {slept: "{{wait.output}}"}
"#;
const PRICING: &str = "name: Pricing\nrun: {script: {source: \"lambda input: {'price': input['amount'] * 2, \
                       'note': input['note'] + input['note']}\"}}\n";
const BOOKING: &str = "name: Booking\ndelivery: direct\nrun: {script: {source: \"lambda input: {'booked': 84 // \
                       input['price'], 'size': len(input['note'])}\"}}\n";
/// Larger than what travels inside a message.
const NOTE: usize = 100_000;
/// How long anything may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_mins(1);

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn guests_work_as_agents_do() {
    // Side by side, since most of it is waiting for others.
    std::thread::scope(|both| {
        for more in acks_in_both_shapes() {
            both.spawn(move || end_to_end(&more));
        }
    });
}

fn end_to_end(more: &str) {
    let guests = ["Pricing", "Booking", "Sleeper", "Asking:Pricing"];
    let world = World::with(&accounts_with(&[], &guests), more);
    let run = |role: &str, args: &[&str]| world.ok(&NORTH, role, args);
    run("provisioner", &["mesh", "provision", "--shards", "2"]);
    let _executor = world.serve(&NORTH, "executor", &["serve", "executor"]);
    let _agents = [("Pricing", PRICING), ("Booking", BOOKING)].map(|(name, file)| {
        world.write(&format!("{name}.agent.yaml"), file);
        world.serve(&NORTH, name, &["serve", "agent", &format!("{name}.agent.yaml")])
    });
    let (runtime, stop) = (Runtime::new().unwrap(), CancellationToken::new());
    let asking = Agent::dynamic("Asking", None, None, async |input, context: Context| {
        context.call("Pricing", input).await
    });
    let (says, hears) = mpsc::channel();
    let sleeper = Agent::dynamic("Sleeper", None, None, move |_, context: Context| {
        let says = says.clone();
        async move {
            says.send("at work").unwrap();
            context.cancel().cancelled().await;
            says.send("cancelled").unwrap();
            Ok(Value::Null)
        }
    });
    let served = [asking, sleeper].map(|agent| serve(&runtime, &world, agent, &stop));
    world.write("orders.yaml", ORDERS);
    world.write("endless.yaml", ENDLESS);
    run("admin", &["workflow", "deploy", "orders.yaml", "endless.yaml"]);

    // A task from a queue, one through a door; both read and write artifacts.
    world.write("big.json", &json!({"amount": 3, "note": "x".repeat(NOTE)}).to_string());
    let address = run("client", &["artifact", "put", "big.json"]);
    let args = ["run", "orders", "--mesh", "--input-artifact", &address, "--id", "one", "-q", "-o", "json"];
    let done = json(&run("client", &args));
    assert_eq!(done["output"], json!({"booked": 14, "size": 2 * NOTE}), "{done}");
    let left = json(&run("client", &["artifact", "list", "one", "-o", "json"]));
    assert!(left.as_array().is_some_and(|left| !left.is_empty()), "{left}");

    // They are listed with their cards, answer calls and pings, and call whom they may.
    for name in ["Pricing", "Booking", "Sleeper", "Asking"] {
        world.until_online(name);
        assert!(run("operator", &["agent", "list", "--mesh"]).contains(name), "{name}");
        assert!(run("operator", &["agent", "ping", name]).contains(name), "{name}");
    }
    for (agent, input, output) in [
        ("Pricing", r#"{"amount": 4, "note": "n"}"#, json!({"price": 8, "note": "nn"})),
        ("Booking", r#"{"price": 4, "note": "n"}"#, json!({"booked": 21, "size": 1})),
        ("Asking", r#"{"amount": 5, "note": "m"}"#, json!({"price": 10, "note": "mm"})),
    ] {
        let called = run("client", &["agent", "call", agent, "--mesh", "-i", input, "-o", "json"]);
        assert_eq!(json(&called)["output"], output);
    }

    // One is cancelled while it works, and hears of it.
    run("client", &["run", "endless", "--mesh", "--detach", "--id", "two"]);
    assert_eq!(hears.recv_timeout(PATIENCE), Ok("at work"));
    run("client", &["execution", "cancel", "two", "--yes"]);
    assert_eq!(hears.recv_timeout(PATIENCE), Ok("cancelled"));
    stop.cancel();
    for served in served {
        runtime.block_on(served).expect("it ends in order");
    }

    let logged = world.logged();
    let violations: Vec<&str> = logged
        .lines()
        .filter(|line| {
            line.to_lowercase().contains("violation") && !line.contains("CONSUMER.CREATE.north_TASKS.agent-")
        })
        .collect();
    assert!(violations.is_empty(), "{violations:#?}");
}

/// Serves a guest in this process.
fn serve(runtime: &Runtime, world: &World, agent: Agent, stop: &CancellationToken) -> JoinHandle<()> {
    let connect = Connect {
        url: Some(world.server.url()),
        user: Some(agent.name().to_owned()),
        password: Some(PASSWORD.to_owned()),
        namespace: Some(NORTH.namespace.to_owned()),
        role: "agent",
        ..Connect::default()
    };
    let stop = stop.clone();
    runtime.spawn(async move {
        let mesh = connect.open().await.expect("a guest may connect");
        agent.serve(mesh, stop).await.expect("a guest serves");
    })
}
