//! Model agents on a mesh that ask people, and whose processes are killed while the question is open.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{World, text};

/// Longer than any of it takes on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(4);

/// One place for one conversation: a second one gets it only while the first one is parked.
const CASHIER: &str = r#"
name: Cashier
description: Pays money back.
concurrency: 1
output_schema: {type: object, properties: {text: {type: string}}, required: [text]}
run:
  model:
    use: [main]
    models:
      main:
        provider: script
        price: {input: 1, output: 1}
        answers:
          - {when: '"paid":120', answer: {text: Paid 120.}}
          - {when: did not allow, answer: {text: Not paid.}}
          - {when: '"from":"builtin:ask_person"', answer: {text: In blue.}}
          - {when: back, call: {refund: {amount: 120}}}
          - {when: colour, call: {ask_person: {question: "Which colour?"}}}
          - {when: hello, answer: {text: Hello.}}
    tools:
      - script: {name: refund, input_schema: {type: object, required: [amount], properties: {amount: {type: integer}}}, source: "def refund(args): return {'paid': args['amount']}"}
        effect: once
        approve: {when: "args['amount'] > 100", timeout: 1h}
      - builtin: [ask_person]
"#;

const SHOP: &str = "
apps:
  - name: shop
    app_config:
      workflow:
        description: Pays back.
        version: 1.0.0
        nodes:
          - {id: pay, type: agent, agent_name: Cashier, input: {text: 'pay it back'}}
        output_mapping: {said: '{{pay.output.text}}'}
";

struct Asking(Option<Child>);

impl Asking {
    fn begin(world: &World, args: &[&str]) -> Self {
        let child = world.command(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        Self(Some(child.expect("it starts")))
    }

    fn output(mut self) -> Value {
        let child = self.0.take().expect("it runs");
        let output = child.wait_with_output().expect("it ends");
        let out = text(&output.stdout);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ended = child.kill();
        }
    }
}

/// The questions that are open, once there are so many.
fn questions(world: &World, count: usize) -> Vec<Value> {
    let begun = Instant::now();
    loop {
        let open = world.json(&["approval", "list"]).as_array().cloned().unwrap_or_default();
        if open.len() == count {
            return open;
        }
        assert!(begun.elapsed() < PATIENCE, "{open:?}");
    }
}

/// The execution as described once it has ended.
fn ended(world: &World, execution: &str) -> Value {
    let begun = Instant::now();
    loop {
        let described = world.json(&["execution", "describe", execution]);
        if !["waiting", "running"].iter().any(|status| described["status"] == *status) {
            return described;
        }
        assert!(begun.elapsed() < PATIENCE, "{described}");
    }
}

fn world_with_cashier() -> (World, crate::common::Role, crate::common::Role) {
    let (world, executor) = World::new();
    world.write("cashier.agent.yaml", CASHIER);
    let cashier = world.serve(&["serve", "agent", "cashier.agent.yaml"]);
    world.online(&["Cashier"]);
    (world, executor, cashier)
}

#[test]
fn a_question_outlives_the_agent_that_asks() {
    let (world, _executor, mut cashier) = world_with_cashier();
    let asked = Asking::begin(
        &world,
        &["agent", "call", "Cashier", "-i", r#"{"text": "pay it back"}"#, "-o", "json"],
    );
    let question = questions(&world, 1).remove(0);
    assert_eq!(question["workflow"], "ask:person");
    let shown = &question["question"];
    assert_eq!(shown["prompt"], "Cashier: May the agent call refund? The agent file asks for approval.");
    assert_eq!(
        (&shown["data"]["tool"], &shown["data"]["arguments"]),
        (&json!("refund"), &json!({"amount": 120}))
    );
    assert_eq!(shown["data"]["asked_by"]["agent"], "Cashier");
    // The only place is free: the conversation is parked.
    let hello = world.json(&["agent", "call", "Cashier", "-i", r#"{"text": "hello"}"#]);
    assert_eq!(hello["output"], json!({"text": "Hello."}));

    cashier.0.kill().expect("it runs");
    cashier.0.wait().expect("it ends");
    let _again = world.serve(&["serve", "agent", "cashier.agent.yaml"]);
    let id = question["execution"].as_str().expect("an id").to_owned();
    // The answer comes while no process of the agent may listen.
    world.ok(&["approval", "approve", &id, "--comment", "as agreed"]);
    let told = asked.output();
    assert_eq!(told["output"], json!({"text": "Paid 120."}), "{told}");
    let asked = world.json(&["execution", "list", "--workflow", "ask:person"]);
    assert_eq!(asked.as_array().map(Vec::len), Some(1), "the question was put once: {asked}");
    assert_eq!(questions(&world, 0), Vec::<Value>::new());

    let usage = &told["usage"];
    assert_eq!((&usage["turns"], &usage["replayed_turns"]), (&json!(2), &json!(1)), "{told}");
    assert!(usage["waited_ms"].as_u64().is_some_and(|waited| waited > 0), "{told}");
}

#[test]
fn a_workflow_waits_for_the_answer_to_its_agent() {
    let (world, _executor, _cashier) = world_with_cashier();
    world.write("shop.yaml", SHOP);
    world.ok(&["workflow", "deploy", "shop.yaml"]);
    let run = Asking::begin(&world, &["run", "shop", "--mesh", "--wait", "-o", "json"]);
    let question = questions(&world, 1).remove(0);
    assert_eq!(question["question"]["data"]["asked_by"]["workflow"], "shop");
    // The command ends once a person is waited for, wherever.
    let run = run.output();
    assert_eq!(run["status"], "waiting", "{run}");
    world.ok(&[
        "approval",
        "reject",
        question["execution"].as_str().expect("an id"),
        "--comment",
        "too much",
    ]);
    let id = run["execution"].as_str().expect("an id");
    let ended = ended(&world, id);
    assert_eq!(ended["output"], json!({"said": "Not paid."}), "{ended}");

    let events = world.ok(&["execution", "events", id, "-o", "jsonl"]);
    assert!(events.contains("cost_usd"), "the node's event tells what it cost: {events}");
    let shown = world.ok(&["execution", "describe", id]);
    assert!(shown.contains("2 turns") && shown.contains("refund refused by"), "{shown}");
}

#[test]
fn a_question_in_words_is_answered_in_words() {
    let (world, _executor, _cashier) = world_with_cashier();
    let asked = Asking::begin(
        &world,
        &["agent", "call", "Cashier", "-i", r#"{"text": "which colour?"}"#, "-o", "json"],
    );
    let question = questions(&world, 1).remove(0);
    assert_eq!(question["question"]["prompt"], "Cashier: Which colour?");
    world.ok(&["approval", "approve", question["execution"].as_str().expect("an id"), "--data", "blue"]);
    assert_eq!(asked.output()["output"], json!({"text": "In blue."}));
}

/// A model that calls a slow agent in two ways, or asks a person.
const LEAD: &str = r#"
name: Lead
run:
  model:
    use: [main]
    models:
      main:
        provider: script
        answers:
          - {when: no answer within, text: gave up}
          - {when: colour, call: {ask_person: {question: "Which colour?"}}}
          - {when: hold, call: {hold: {text: x}}}
          - {call: {late: {text: x}}}
    tools:
      - {peer: Slow, as: late, timeout: 1s}
      - {peer: Slow, as: hold}
      - builtin: [ask_person]
"#;

/// Statuses of the executions of a workflow, once all of them are this one.
fn all_are(world: &World, workflow: &str, status: &str, count: usize) {
    let begun = Instant::now();
    loop {
        let listed = world.json(&["execution", "list", "--workflow", workflow]);
        let rows = listed.as_array().cloned().unwrap_or_default();
        if rows.len() == count && rows.iter().all(|row| row["status"] == status) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{workflow}: {rows:?}");
    }
}

#[test]
fn a_task_that_ends_takes_back_what_it_asked_others() {
    let (world, _executor) = World::new();
    world.write("lead.agent.yaml", LEAD);
    world.write("slow.agent.yaml", "name: Slow\nrun: {command: {argv: [sleep, '600']}}\ntimeout: 15m\n");
    world.write(
        "shop.yaml",
        &SHOP.replace("Cashier", "Lead").replace("pay it back", "{{workflow.input.text}}"),
    );
    let _agents = world.serve(&["serve", "agent", "lead.agent.yaml", "slow.agent.yaml"]);
    world.online(&["Lead", "Slow"]);
    world.ok(&["workflow", "deploy", "shop.yaml"]);
    let start = |text: &str| {
        world.ok(&["run", "shop", "--mesh", "-p", &format!("text={text}"), "--id", text, "--detach"])
    };
    // A call that comes too late is over for the model, and for the agent that was called.
    let late = world.json(&["run", "shop", "--mesh", "-p", "text=late", "--wait"]);
    assert_eq!(late["output"], json!({"said": "gave up"}), "{late}");
    all_are(&world, "call:Slow", "cancelled", 1);

    start("colour");
    start("hold");
    questions(&world, 1);
    let begun = Instant::now();
    while world.json(&["execution", "list", "--workflow", "call:Slow"]).as_array().map(Vec::len) != Some(2) {
        assert!(begun.elapsed() < PATIENCE, "the agent is not called");
    }
    world.ok(&["execution", "cancel", "colour", "hold", "--yes"]);
    all_are(&world, "call:Slow", "cancelled", 2);
    all_are(&world, "ask:person", "cancelled", 1);
    assert_eq!(questions(&world, 0), Vec::<Value>::new());
}
