//! Model agents of files in one process: people on the terminal, recordings, budgets of money, files to start from.

use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::World;
use crate::transcripts::pty::Watched;

/// Asks before it pays. Each turn costs a dollar.
const CLERK: &str = r#"
name: Clerk
run:
  model:
    use: [main]
    models:
      main:
        provider: script
        price: {input: 0, output: 1000}
        answers:
          - {when: "script:pay", text: "Paid.", usage: {input: 1, output: 1000}}
          - {when: "builtin:ask_person", call: {pay: {amount: 5}}, usage: {input: 1, output: 1000}}
          - {call: {ask_person: {question: "Which account?"}}, usage: {input: 1, output: 1000}}
    tools:
      - builtin: [ask_person]
      - script: {name: pay, input_schema: {type: object}, source: "def pay(args): return 'ok'"}
        effect: once
        approve: true
"#;

const FLOW: &str = "
workflow:
  description: A clerk
  nodes:
    - {id: pay, type: agent, agent_name: Clerk, input: {text: \"pay\"}}
  output_mapping: {text: \"{{pay.output.text}}\"}
";

fn world() -> World {
    let world = World::at(String::new());
    world.write("clerk.agent.yaml", CLERK);
    world.write("flow.yaml", FLOW);
    world
}

fn words(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn agents_of_one_process_ask_on_the_terminal_or_take_answers() {
    let world = world();
    let call = ["agent", "call", "Clerk", "-m", "pay", "--local"];
    let answered = [&call[..], &["--answer", "savings", "--answer", "yes"]].concat();
    assert!(world.ok(&answered).contains("Paid."));
    // Without a person at the terminal the call is not made: the model is told so, whatever it says then.
    let tool_calls = |args: &[&str]| {
        let told: Value = serde_json::from_str(&world.ok(&[args, &["-o", "json"]].concat())).unwrap();
        told["usage"]["tool_calls"].clone()
    };
    assert_eq!((tool_calls(&answered), tool_calls(&call)), (json!(2), json!(1)));
    let run = ["run", "flow.yaml", "--answer", "pay=savings", "--answer", "pay=yes", "-q"];
    assert_eq!(serde_json::from_str::<Value>(&world.ok(&run)).unwrap(), json!({"text": "Paid."}));

    let patience = Duration::from_mins(2);
    for args in [&call[..], &["run", "flow.yaml"]] {
        let mut screen = Watched::start(world.command(args), 200, 40);
        screen.wait_for("the question", patience, |seen| seen.contains("Which account?"));
        screen.typed("savings\n");
        screen.wait_for("the approval", patience, |seen| seen.contains("allow? [y/N]"));
        screen.typed("y\n");
        let (code, seen) = screen.ended(patience);
        assert_eq!(code, Some(0), "{seen}");
        assert!(seen.contains("Paid.") && seen.contains("\"amount\": 5"), "{seen}");
    }
}

/// With `on_reject: fail` the model cannot continue after a rejection.
#[test]
fn a_rejection_fails_the_task_where_the_agent_file_says_so() {
    let world = world();
    let binding = CLERK
        .replace("builtin: [ask_person]\n", "builtin: [ask_person]\n        on_reject: fail\n")
        .replace("call: {pay: {amount: 5}}", "text: \"Paid anyway.\"");
    world.write("clerk.agent.yaml", &binding);
    let run = |answer: &str| {
        let output = world.run(&["run", "flow.yaml", "--answer", answer, "-q"]);
        let (out, err) = words(&output);
        (output.status.code(), out, err)
    };
    let (code, out, err) = run("pay=no: not this account");
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    assert!(
        err.contains("--answer rejected ask_person: not this account") && err.contains("SINEW-6303"),
        "{err}"
    );
    let (code, _, err) = run("pay=maybe");
    assert!(code == Some(1) && err.contains("nobody approved ask_person"), "{err}");
    let (code, out, err) = run("pay=yes");
    assert!(code == Some(0) && out.contains("Paid anyway."), "{out}{err}");
    world.write(
        "clerk.agent.yaml",
        &CLERK.replace("builtin: [ask_person]", "builtin: [time]\n        on_reject: fail"),
    );
    let (code, _, err) = run("pay=yes");
    assert!(code != Some(0) && err.contains("`on_reject` belongs to tools with `approve`"), "{err}");
}

#[test]
fn an_execution_ends_when_its_models_have_cost_too_much() {
    let world = world();
    let run = ["run", "flow.yaml", "--answer", "pay=savings", "--answer", "pay=yes", "-o", "json", "-q"];
    let good: Value = serde_json::from_str(&world.ok(&[&run[..], &["--cost-usd", "5"]].concat())).unwrap();
    assert_eq!(good["status"], "succeeded", "{good}");
    let spent = world.run(&[&run[..], &["--cost-usd", "0.5"]].concat());
    let (out, err) = words(&spent);
    let document: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    assert_eq!(
        (&document["error"]["code"], spent.status.code()),
        (&json!("SINEW-6011"), Some(1)),
        "{document}"
    );
    let (_, err) = words(&world.run(&["run", "flow.yaml", "--cost-usd=-1"]));
    assert!(err.contains("expected an amount of USD above 0"), "{err}");
}

#[test]
fn conversations_are_recorded_and_replayed() {
    let world = world();
    let record = [
        "agent",
        "call",
        "clerk.agent.yaml",
        "-m",
        "pay",
        "--answer",
        "savings",
        "--answer",
        "yes",
        "--record",
        "rec",
    ];
    let (out, err) = words(&world.run(&record));
    assert!(out.contains("Paid.") && err.contains("replay it with: sinew test"), "{out}{err}");
    let file = "rec/Clerk.recorded-1.test.yaml";
    assert!(world.ok(&["test", file]).contains("1 passed"));
    // The file has changed since: the case tells where.
    world.write(
        "clerk.agent.yaml",
        &CLERK.replace("    tools:\n", "    instruction: Be quick.\n    tools:\n"),
    );
    let failed = world.run(&["test", file]);
    let (out, err) = words(&failed);
    assert_eq!(failed.status.code(), Some(1), "{out}{err}");
    assert!(
        out.contains("the question differs from the recorded one") && out.contains("Be quick."),
        "{out}{err}"
    );
}

#[test]
fn new_model_agents_fit_their_purpose_and_run_without_a_key() {
    let world = World::at(String::new());
    for purpose in ["work", "route", "judge"] {
        world.ok(&["new", "agent", purpose, "--kind", "model", "--for", purpose]);
        let file = format!("agent-cards/{purpose}.agent.yaml");
        let described = world.json(&["agent", "describe", &file, "--local"]);
        assert_eq!(described["name"], purpose, "{described}");
        assert!(!world.ok(&["agent", "call", &file, "-m", "hello", "--local"]).is_empty());
    }
    let (_, err) = words(&world.run(&["new", "agent", "x", "--for", "judge"]));
    assert!(err.contains("--for applies to agents with a language model"), "{err}");
    // A doubtful file works, and its doubt is told.
    let doubtful = "name: Doubtful\nrun:\n  model:\n    use: [main]\n    models: {main: {provider: script}}\n    taint: allow\n    \
                    tools: [{peer: Inbox}, {peer: Bank, effect: once}]\n";
    world.write("doubtful.agent.yaml", doubtful);
    let (_, err) = words(&world.run(&["agent", "describe", "doubtful.agent.yaml", "--local"]));
    assert!(err.contains("SINEW-5214"), "{err}");
}
