//! The broker pauses repeatedly: commands, executors, agents and bridges never take its silence for an answer.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::common::{World, text};
use crate::views::Gateway;

const SINGLE: &str = r#"
workflow:
  description: Doubles a number.
  input_schema: {type: object, properties: {n: {type: integer}}}
  nodes:
    - {id: a, type: agent, agent_name: Doubler, input: {n: "{{workflow.input.n}}"}}
  output_mapping: {n: "{{a.output.n}}"}
"#;

/// Agents that call another agent, a workflow, and an agent of another mesh.
const NESTED: &str = r#"
workflow:
  description: Calls agents that call others.
  nodes:
    - {id: lead, type: agent, agent_name: Lead, input: {text: go}}
    - {id: inner, type: workflow, workflow_name: single, input: {n: 4}}
    - {id: outside, type: agent, agent_name: Outside, input: {n: 8}}
  output_mapping: {lead: "{{lead.output.text}}", inner: "{{inner.output.n}}", outside: "{{outside.output.n}}"}
"#;

const DOUBLER: &str = "name: Doubler\ninput_schema: &schema {type: object, properties: {n: {type: integer}}}\noutput_schema: *schema\nrun: {script: {source: \"lambda input: {'n': input['n'] * 2}\"}}\n";

/// A scripted model that calls an agent and a workflow as tools.
const LEAD: &str = r#"
name: Lead
output_schema: {type: object, properties: {text: {type: string}}, required: [text]}
run:
  model:
    use: [main]
    models:
      main:
        provider: script
        answers:
          - {when: '"n":42', answer: {text: done}}
          - {when: '"n":2', call: {flow: {n: 21}}}
          - {call: {double: {n: 1}}}
    tools:
      - {peer: Doubler, as: double}
      - {workflow: single, as: flow}
"#;

/// Time for which the broker pauses again and again.
const STORM: Duration = Duration::from_secs(20);
/// Lengths of the pauses, one after the other.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(300),
    Duration::from_millis(2_500),
    Duration::from_millis(900),
    Duration::from_secs(4),
];
/// Time between two pauses.
const BREATH: Duration = Duration::from_millis(150);
/// Exit codes of a command that got no answer from the broker, or not in time.
const NO_ANSWER: [i32; 2] = [4, 5];

#[test]
fn a_pause_of_the_broker_loses_nothing_and_hides_nothing() {
    let (outside, _outside_executor) = World::new();
    outside.write("doubler.agent.yaml", DOUBLER);
    let _outside_agent = outside.serve(&["serve", "agent", "doubler.agent.yaml"]);
    outside.online(&["Doubler"]);
    let outside_gateway = Gateway::start(&outside);

    let (world, _executor) = World::new();
    world.write("single.yaml", SINGLE);
    world.write("nested.yaml", NESTED);
    world.write("doubler.agent.yaml", DOUBLER);
    world.write("lead.agent.yaml", LEAD);
    world.write(
        "outside.bridge.yaml",
        &format!("name: Outside\ncard: {}/agents/Doubler\n", outside_gateway.base),
    );
    let _agents = world.serve(&["serve", "agent", "doubler.agent.yaml", "lead.agent.yaml"]);
    let _bridge = world.serve(&["serve", "bridge", "outside.bridge.yaml"]);
    world.online(&["Doubler", "Lead", "Outside"]);
    world.ok(&["workflow", "deploy", "single.yaml", "nested.yaml"]);
    world.online(&["single", "nested"]);
    let gateway = Gateway::start(&world);
    let ended = gateway.begin("single", &json!({ "n": 3 }));
    gateway.described(&world, &ended, "succeeded");
    let commands = commands(&ended);
    for (args, whole) in &commands {
        let found = world.ok(args);
        assert!(found.contains(whole), "{args:?} does not show {whole:?}: {found}");
    }

    let (is_over, next, answered) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let wrong = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut wrong = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        let (args, whole) = &commands[next.fetch_add(1, Ordering::Relaxed) % commands.len()];
                        let output = world.run(args);
                        let (code, out) = (output.status.code(), text(&output.stdout));
                        if code == Some(0) && out.contains(whole) {
                            answered.fetch_add(1, Ordering::Relaxed);
                        } else if !code.is_some_and(|code| NO_ANSWER.contains(&code)) {
                            wrong.push(format!("{args:?}: {code:?} {out} {}", text(&output.stderr)));
                        }
                    }
                    wrong
                })
            })
            .collect();
        let until = Instant::now() + STORM;
        for pause in PAUSES.iter().cycle().take_while(|_| Instant::now() < until) {
            world.pause_server(*pause);
            std::thread::sleep(BREATH);
        }
        is_over.store(true, Ordering::Relaxed);
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
    let (answered, all) = (answered.into_inner(), next.into_inner());
    println!("{answered} of {all} commands were answered during the pauses");
    assert!(answered > commands.len(), "too few commands were answered");

    // Whatever was started during the pauses ends well.
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        let listed = world.json(&["execution", "list", "--limit", "1000"]);
        let rows = listed.as_array().unwrap();
        let failed: Vec<_> = rows.iter().filter(|row| row["status"] == "failed").collect();
        assert!(failed.is_empty(), "{failed:#?}");
        if rows.iter().all(|row| row["status"] == "succeeded") {
            assert!(rows.iter().any(|row| row["workflow"] == "nested"), "no nested workflow was started");
            return;
        }
        assert!(Instant::now() < until, "{listed}");
    }
}

/// Commands that read or start something that exists, each with a text of its whole answer.
fn commands(ended: &str) -> Vec<(Vec<&str>, &str)> {
    vec![
        (vec!["execution", "describe", ended], "succeeded"),
        (vec!["execution", "list", "-o", "json"], ended),
        (vec!["execution", "events", ended, "-o", "jsonl"], "workflow_execution_result"),
        (vec!["execution", "result", ended], "6"),
        (vec!["workflow", "list", "--mesh"], "nested"),
        (vec!["workflow", "versions", "single"], "single"),
        (vec!["agent", "list", "--mesh"], "Outside"),
        (vec!["agent", "describe", "Doubler", "--mesh"], "Doubler"),
        (vec!["artifact", "list", ended, "--all"], "single_a_"),
        (vec!["tool", "list"], "nested"),
        (vec!["run", "nested", "--mesh", "--wait", "-o", "json"], "\"lead\": \"done\""),
        (vec!["agent", "call", "Doubler", "-i", "{\"n\": 5}", "-o", "json"], "10"),
        (vec!["run", "single", "--mesh", "-p", "n=1", "--wait", "-o", "json"], "\"n\": 2"),
    ]
}
