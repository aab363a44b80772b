//! The mesh from end to end, everybody with credentials of their own and no more: nothing that somebody needs is missing.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Instant;

use serde_json::{Value, json};

use crate::permission::world::{NORTH, World, accounts, acks_in_both_shapes};

const ORDERS: &str = r#"
workflow:
  description: Prices an order, then books it.
  version: "1.0"
  input_schema: {type: object, required: [amount], properties: {amount: {type: integer}}}
  nodes:
    - {id: price, type: agent, agent_name: Pricing, input: {amount: "{{workflow.input.amount}}"}}
    - {id: book, type: agent, agent_name: Booking, depends_on: [price], input: {price: "{{price.output.price}}"}}
  output_mapping: {booked: "{{book.output.booked}}"}
"#;
/// One agent behind a queue, one behind its door.
const PRICING: &str = "name: Pricing\n\
     input_schema: {type: object, required: [amount], properties: {amount: {type: integer}}}\n\
     run: {script: {source: \"lambda input: {'price': input['amount'] * 2}\"}}\n";
const BOOKING: &str = "name: Booking\ndelivery: direct\n\
                       run: {script: {source: \"lambda input: {'booked': 84 // input['price']}\"}}\n";
const APPROVAL: &str = include_str!("../fixtures/test/approval.test.json");
const WRITER: &str = "name: Writer\nrun: {script: {source: \"lambda input: 'a draft'\"}}\n";
const EDITOR: &str = "name: Editor\nrun: {script: {source: \"lambda input: 'edited'\"}}\n";

/// An agent with a model that calls an agent, and a workflow that waits for a person.
const ASKER: &str = r#"
name: Asker
run:
  model:
    use: [main]
    models:
      main:
        provider: script
        model: m
        answers:
          - {call: {peer_Pricing: {amount: 4}}}
          - {call: {workflow_approve: {}}}
          - {answer: {text: asked both}}
    tools: [{peer: "Pri*", trust: own}, {workflow: approve}]
"#;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn nobody_needs_more_than_the_table_gives() {
    // Side by side, since most of it is waiting for others.
    std::thread::scope(|both| {
        for more in acks_in_both_shapes() {
            both.spawn(move || end_to_end(&more));
        }
    });
}

fn end_to_end(more: &str) {
    let world = World::with(
        &accounts(&["Pricing", "Booking", "Writer", "Editor", "Asker:Pricing,approve", "Outside"]),
        more,
    );
    let run = |role: &str, args: &[&str]| world.ok(&NORTH, role, args);
    run("provisioner", &["mesh", "provision", "--shards", "2"]);
    run("provisioner", &["mesh", "provision", "--retention", "2d"]);
    assert_eq!(run("provisioner", &["mesh", "check"]).trim(), "all checks passed");
    let approval: Value = json(APPROVAL);
    world.write("orders.yaml", ORDERS);
    world.write("approve.json", &approval["definition"].to_string());
    run("admin", &["workflow", "deploy", "orders.yaml", "approve.json"]);
    without_an_executor(&world);
    let _executor = world.serve(&NORTH, "executor", &["serve", "executor"]);
    let agents = [
        ("Pricing", PRICING),
        ("Booking", BOOKING),
        ("Writer", WRITER),
        ("Editor", EDITOR),
        ("Asker", ASKER),
    ];
    let _agents: Vec<_> = agents
        .map(|(name, file)| {
            world.write(&format!("{name}.agent.yaml"), file);
            world.serve(&NORTH, name, &["serve", "agent", &format!("{name}.agent.yaml")])
        })
        .into();
    let since = Instant::now();
    while !world
        .command(&NORTH, "client", &["execution", "describe", "early"])
        .output()
        .unwrap()
        .status
        .success()
    {
        assert!(since.elapsed().as_secs() < 60, "no executor has taken the start");
    }
    run("client", &["execution", "watch", "early", "-q"]);
    assert!(run("client", &["workflow", "list", "--mesh"]).contains("orders"));

    // A client starts an execution and reads it.
    let done =
        json(&run("client", &["run", "orders", "--mesh", "-p", "amount=3", "--id", "one", "-o", "json"]));
    assert_eq!(done["output"], json!({"booked": 14}), "{done}");
    for role in ["client", "operator", "admin"] {
        for view in ["describe", "tree", "events", "logs", "result", "watch", "replay"] {
            assert!(run(role, &["execution", view, "one"]).len() > 2 || view == "logs", "{role} {view}");
        }
        assert!(run(role, &["execution", "list"]).contains("one"), "{role}");
        assert!(run(role, &["agent", "list", "--mesh"]).contains("Pricing"), "{role}");
        assert!(run(role, &["tool", "list"]).contains("orders"), "{role}");
        let left = json(&run(role, &["artifact", "list", "one", "-o", "json"]));
        let name = left[0]["name"].as_str().expect("an output is an artifact");
        assert_eq!(run(role, &["artifact", "get", "one", name]), r#"{"price":6}"#, "{role}");
    }
    let called =
        run("client", &["agent", "call", "Pricing", "--mesh", "-i", r#"{"amount": 4}"#, "-o", "json"]);
    assert_eq!(json(&called)["output"], json!({"price": 8}));
    let called = run("client", &["tool", "call", "orders", "-p", "amount=6", "-o", "json"]);
    assert_eq!(json(&called)["output"], json!({"booked": 7}));

    // One fails, is retried from the node, fails again, and another one is cancelled.
    world.ends(&NORTH, "client", &["run", "orders", "--mesh", "-p", "amount=0", "--id", "two", "-q"], 1);
    world.ends(&NORTH, "client", &["execution", "retry", "two", "--from", "book", "--watch", "-q"], 1);
    let tree = json(&run("operator", &["execution", "tree", "two", "-o", "json"]));
    assert_eq!(tree[1]["activations"], 2, "{tree}");
    let big = json!({"amount": 7, "note": "x".repeat(700_000)}).to_string();
    world.write("big.json", &big);
    let address = run("client", &["artifact", "put", "big.json"]);
    let done = run("client", &["run", "orders", "--mesh", "--input-artifact", &address, "-q", "-o", "json"]);
    assert_eq!(json(&done)["output"], json!({"booked": 6}));

    // A person is asked; a client answers as itself, and as nobody else.
    world.ends(&NORTH, "client", &["run", "approve", "--mesh", "--wait", "--id", "three"], 8);
    assert!(run("operator", &["approval", "list"]).contains("three"));
    let said = json(&run("client", &["approval", "approve", "three", "-o", "json"]));
    assert_eq!(said["by"], NORTH.user("client"));
    run("client", &["execution", "watch", "three", "-q"]);
    world.ends(&NORTH, "client", &["run", "approve", "--mesh", "--wait", "--id", "four"], 8);
    run("client", &["execution", "pause", "four"]);
    run("client", &["execution", "resume", "four"]);
    run("client", &["execution", "cancel", "four", "--yes"]);

    // An agent calls those that it may call, and waits through the question to a person.
    world.until_online("Asker");
    let asked = ["agent", "call", "Asker", "--mesh", "-i", r#"{"text": "go"}"#, "-o", "json"];
    let asking = world.command(&NORTH, "client", &asked).stdout(Stdio::piped()).spawn().unwrap();
    let waiting = loop {
        let rows = json(&run("operator", &["approval", "list", "-o", "json"]));
        if let Some(execution) = rows[0]["execution"].as_str() {
            break execution.to_owned();
        }
    };
    run("client", &["approval", "approve", &waiting]);
    let answer = asking.wait_with_output().unwrap();
    let answer = json(&String::from_utf8_lossy(&answer.stdout));
    assert_eq!(answer["output"], json!({"text": "asked both"}), "{answer}");
    let calls = json(&run("operator", &["execution", "list", "-o", "json"]));
    let calls = calls.as_array().unwrap().iter().filter(|row| row["workflow"] == "call:Pricing").count();
    assert_eq!(calls, 1, "the agent was asked by an execution");

    bridged(&world);

    // Commands of the operator.
    run("operator", &["mesh", "check"]);
    for role in ["operator", "admin"] {
        assert!(run(role, &["agent", "ping", "Pricing"]).contains("Pricing"), "{role}");
    }
    world.ends(&NORTH, "client", &["execution", "diff", "one", "two"], 1);
    let top = json(&run("operator", &["top", "--once", "-o", "json"]));
    assert_eq!((&top["owned"], &top["executors"][0]["shards"]), (&json!(2), &json!(2)), "{top}");
    run("admin", &["mesh", "quarantine", "list"]);

    let logged = world.logged();
    let violations: Vec<&str> =
        logged.lines().filter(|line| line.to_lowercase().contains("violation")).collect();
    assert!(violations.is_empty(), "{violations:#?}");
}

/// A bridge works with the rights of an agent of its name, and a gateway with its own: the bridge asks a workflow of this mesh
/// through the gateway.
fn bridged(world: &World) {
    let run = |role: &str, args: &[&str]| world.ok(&NORTH, role, args);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let _gateway =
        world.serve(&NORTH, "gateway", &["serve", "gateway", "--listen", &address, "--console=full"]);
    world.write("outside.bridge.yaml", &format!("name: Outside\ncard: http://{address}/agents/orders\n"));
    let _bridge = world.serve(&NORTH, "Outside", &["serve", "bridge", "outside.bridge.yaml"]);
    world.until_online("Outside");
    let called =
        run("client", &["agent", "call", "Outside", "--mesh", "-i", r#"{"amount": 3}"#, "-o", "json"]);
    let output = json!({"state": "completed", "data": {"booked": 14}});
    assert_eq!(json(&called)["output"], output, "{called}");
    console_reads(&address);
}

/// The console of the gateway shows every page with the rights of the gateway: figures of the mesh, too.
fn console_reads(address: &str) {
    let mut wrong = Vec::new();
    for (path, wanted) in [
        ("", "2 of 2 shards served"),
        ("/executions", ">one</a>"),
        ("/executions/two", "Nodes"),
        ("/executions/one/events", "workflow_execution_result"),
        ("/executions/one/artifacts", "Artifacts"),
        ("/approvals", "Approvals"),
        ("/workflows/orders", "data-node=\"price\""),
        ("/agents", "data-node=\"Pricing\""),
        ("/agents/Pricing", "<td>tasks</td>"),
        ("/artifacts", "Artifacts"),
        ("/traffic", "north_TASKS"),
        ("/traffic", "No quarantined messages."),
        ("/workflows", "ended in the last hour"),
        ("/chat/orders", "Chat"),
        ("/help", "the streams of mesh north are set up as required"),
    ] {
        let page = read_page(address, &format!("/console{path}"));
        assert!(page.starts_with("HTTP/1.0 200") || page.starts_with("HTTP/1.1 200"), "{path}: {page}");
        // A part that was refused would stand in the page as a problem.
        if !page.contains(wanted) || page.contains("class=\"problem\"") || page.contains("SINEW-7024") {
            wrong.push(format!("{path} without {wanted:?}, or with a problem: {page}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Requests over HTTP that need a right which the gateway's user lacks are refused, and the gateway goes on; a user with fewer
/// rights is enough for one without keys.
#[test]
fn a_gateway_outlives_refusals_of_the_mesh() {
    let world = World::new("");
    world.write("orders.yaml", ORDERS);
    world.ok(&NORTH, "admin", &["workflow", "deploy", "orders.yaml"]);
    for role in ["gateway", "client"] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let mut gateway = world.serve(&NORTH, role, &["serve", "gateway", "--listen", &address]);
        let since = Instant::now();
        while TcpStream::connect(&address).is_err() {
            assert!(since.elapsed().as_secs() < 60 && !gateway.has_ended(), "{role}: {}", world.logged());
        }
        for _ in 0..2 {
            let refused = ask(&address, "DELETE", "/api/v1/workflows/orders");
            assert!(
                refused.starts_with("HTTP/1.1 403") && refused.contains("SINEW-7024"),
                "{role}: {refused}"
            );
        }
        let card = read_page(&address, "/.well-known/agent-card.json");
        assert!(card.starts_with("HTTP/1.1 200") && !gateway.has_ended(), "{role}: {card}");
    }
}

/// Reads a page over plain HTTP.
fn read_page(address: &str, path: &str) -> String {
    ask(address, "GET", path)
}

/// Makes a request without a body over plain HTTP.
fn ask(address: &str, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// A start that no executor has taken is told of with the rights of each role, as far as the role may know of it.
fn without_an_executor(world: &World) {
    let run = |role: &str, args: &[&str]| world.ok(&NORTH, role, args);
    run("client", &["run", "orders", "--mesh", "-p", "amount=3", "--id", "early", "--detach", "-q"]);
    for role in ["operator", "admin"] {
        let rows = json(&run(role, &["execution", "list", "-o", "json"]));
        let told = (&rows[0]["execution"], &rows[0]["status"], &rows[0]["waiting"]);
        let wanted = (&json!("early"), &json!("waiting"), &json!("an executor: none has taken it"));
        assert_eq!(told, wanted, "{role}: {rows}");
        let top = json(&run(role, &["top", "--once", "-o", "json"]));
        assert_eq!(top["waiting"][0]["waiting"], json!("an executor: none has taken it"), "{role}: {top}");
    }
    let said = |role: &str, args: &[&str], code: i32| {
        let output = world.command(&NORTH, role, args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{role} {args:?}: {said}");
        said
    };
    // A client knows of its own start, and hears that there may be others.
    assert!(said("client", &["execution", "list"], 0).contains("no executor serves 2 shards"));
    for view in ["describe", "tree", "result"] {
        let told = said("client", &["execution", view, "early"], 6);
        assert!(told.contains("execution early is stored, but no executor has started it"), "{view}: {told}");
    }
    let told = said("client", &["execution", "describe", "of-another"], 3);
    assert!(told.contains("no executor serves its shard"), "{told}");
    let told = said("operator", &["execution", "describe", "of-another"], 3);
    assert!(!told.contains("no executor serves its shard"), "{told}");
}
