//! Commands of the mesh, as people and scripts meet them: real processes, a real server, exit codes, stdout, stderr.
use crate::common;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{BOOKING, BROKEN, FLOW, PRICING, Role, Said, World, text};
use serde_json::{Value, json};
use sinew_mesh::server::{Server, ServerOptions};

const SLOW: &str = r#"
workflow:
  description: Waits for an agent.
  version: "1.0"
  nodes: [{id: wait, type: agent, agent_name: Slow, input: {}}]
  output_mapping: {answer: "{{wait.output}}"}
"#;
const APPROVAL: &str = include_str!("fixtures/test/approval.test.json");
const WRITER: &str = "name: Writer\nrun: {script: {source: \"lambda input: 'a draft'\"}}\n";
const EDITOR: &str = "name: Editor\nrun: {script: {source: \"lambda input: 'edited'\"}}\n";

#[test]
fn an_incident_is_found_understood_retried_and_watched() {
    let (world, executor) = World::new();
    world.write("flows/orders.yaml", FLOW);
    world.write("good/pricing.agent.yaml", PRICING);
    world.write("bad/booking.agent.yaml", BROKEN);
    world.write("mended/booking.agent.yaml", BOOKING);
    let _good = world.serve(&["serve", "agent", "good"]);
    let bad = world.serve(&["serve", "agent", "bad"]);
    world.ok(&["workflow", "deploy", "flows"]);
    assert!(world.ok(&["workflow", "deploy", "flows"]).starts_with("unchanged  orders@"));

    // Two starts with one key begin one execution, and it fails once.
    let start = [
        "run",
        "orders",
        "--mesh",
        "-p",
        "amount=2121212121",
        "--idempotency-key",
        "A1",
        "--label",
        "team=a",
    ];
    let id = world.ok(&[&start[..], &["--detach"]].concat());
    assert_eq!(world.ok(&[&start[..], &["--detach"]].concat()), id);
    world.ends(&["execution", "watch", &id, "-q"], 1);
    world.ends(&["execution", "result", &id], 1);

    // Find it, see why.
    let failed =
        world.json(&["execution", "list", "--status", "failed", "--since", "1h", "--label", "team=a"]);
    assert_eq!(failed.as_array().unwrap().len(), 1);
    assert_eq!(failed[0]["execution"], json!(id));
    let told = world.json(&["execution", "describe", "@latest"]);
    assert_eq!(told["failure"]["node"], "book");
    assert_eq!(told["labels"]["team"], "a");
    let words = world.ok(&["execution", "describe", &id[..6]]);
    assert!(words.contains("ZeroDivisionError") && words.contains("execution retry"), "{words}");
    assert_eq!(
        world.ok(&["execution", "result", &id, "--node", "price", "-o", "jsonl"]),
        r#"{"price":4242424242}"#
    );
    assert!(world.ok(&["execution", "logs", &id]).contains("ZeroDivisionError"));

    // Mend it, try it dry, then in earnest.
    assert_eq!(bad.stop(), Some(0));
    let dry = world.json(&["execution", "retry", &id, "--from", "book", "--dry-run"]);
    assert_eq!((dry["keep"].clone(), dry["rerun"].clone()), (json!(["price"]), json!({"book": 0})));
    assert_eq!(world.ends(&["execution", "retry", &id, "--from", "price", "--dry-run"], 6), "");
    let _mended = world.serve(&["serve", "agent", "mended"]);
    // With a newer version of the workflow it goes on in a new execution, which is given what did not change.
    let retry = ["execution", "retry", &id, "--workflow-version", "latest"];
    let same = world.json(&["execution", "retry", &id, "--dry-run"]);
    assert_eq!(world.json(&[&retry[..], &["--dry-run"]].concat()), same);
    world.write("flows/orders.yaml", &format!("{FLOW}  display: {{quiet: {{nodes: [book]}}}}\n"));
    world.ok(&["workflow", "deploy", "flows"]);
    let newest = world.ok(&[&retry[..], &["--dry-run"]].concat());
    assert!(newest.contains("the newest version, in a new execution"), "{newest}");
    assert!(world.ok(&["execution", "retry", &id, "--dry-run"]).contains("use --workflow-version latest"));
    world.ends(&[&retry[..], &["--from", "book"]].concat(), 2);
    let new = world.ok(&[&retry[..], &["--watch", "-q"]].concat());
    assert_eq!(world.ok(&["execution", "result", &new, "-o", "jsonl"]), r#"{"booked":4242424242}"#);
    let tree = world.json(&["execution", "tree", &new]);
    assert_eq!(
        (&tree[0]["message"], &tree[1]["quiet"]),
        (&json!("output provided, not run"), &json!(true)),
        "{tree:#}"
    );
    let tree = world.ok(&["execution", "tree", &new]);
    assert!(tree.contains("1 quiet node: 1 succeeded") && !tree.contains("book"), "{tree}");
    assert!(world.ok(&["execution", "tree", &new, "--no-fold"]).contains("book"));
    world.ok(&["execution", "retry", &id, "--from", "book", "--reason", "mended", "--watch", "-q"]);
    assert_eq!(world.ok(&["execution", "result", &id, "-o", "jsonl"]), r#"{"booked":4242424242}"#);
    let tree = world.json(&["execution", "tree", &id]);
    assert_eq!((&tree[0]["activations"], &tree[1]["activations"]), (&json!(1), &json!(2)), "{tree:#}");
    let verdicts = world.json(&["execution", "describe", &id])["commands"].clone();
    assert_eq!((&verdicts[0]["op"], &verdicts[0]["accepted"]), (&json!("retry"), &json!(true)));
    // A success cannot be retried; the command reports it before anything is sent.
    world.ends(&["execution", "retry", &id], 6);

    // Taken along as a file, it says the same, and this version decides it the same.
    world.ok(&["execution", "export", &id, "-O", "run.json"]);
    for view in ["describe", "tree", "events", "replay", "result"] {
        let args = |of: &'static str| ["execution", view, of];
        let mesh = world.json(&["execution", view, &id]);
        assert_eq!(world.json(&args("run.json")), mesh, "{view}");
    }
    assert_eq!(world.json(&["execution", "replay", "run.json"])["difference"], Value::Null);
    world.ends(&["execution", "import", "run.json"], 6);
    world.ok(&["execution", "export", "run.json", "--redact", "-O", "redacted.json"]);
    let redacted = std::fs::read_to_string(world.path().join("redacted.json")).unwrap();
    // Long enough that no time and no digest holds it by chance.
    assert!(!redacted.contains("4242424242") && !redacted.contains("2121212121"), "{redacted}");

    // Another like it, and what it left.
    let again = world.ok(&["execution", "rerun", &id, "-p", "amount=4", "--watch", "-q"]);
    assert_ne!(again, id);
    assert_eq!(world.json(&["execution", "result", &again]), json!({"booked": 8}));
    assert_eq!(world.json(&["execution", "describe", &again])["labels"]["rerun_of"], json!(id));
    let left = world.json(&["artifact", "list", &again]);
    let name = left[0]["name"].as_str().expect("an output is an artifact");
    assert_eq!(world.ok(&["artifact", "get", &again, name]), r#"{"price":8}"#);
    world.ok(&["artifact", "diff", &again, name, name]);
    assert_eq!(executor.stop(), Some(0));
}

#[test]
fn a_person_decides_once() {
    let (world, _executor) = World::new();
    let case: Value = serde_json::from_str(APPROVAL).unwrap();
    world.write("approve.json", &case["definition"].to_string());
    world.write("cards/writer.agent.yaml", WRITER);
    world.write("cards/editor.agent.yaml", EDITOR);
    let _agents = world.serve(&["serve", "agent", "cards"]);
    // Only a person is waited for: the command says so and ends.
    let waits = world.run(&["run", "approve.json", "--mesh", "--wait", "--id", "approval-1"]);
    assert_eq!(waits.status.code(), Some(8), "{}", text(&waits.stderr));
    assert!(text(&waits.stderr).contains("sinew approval approve approval-1 --node ok"));
    assert_eq!(world.json(&["execution", "list", "--status", "waiting"])[0]["execution"], "approval-1");
    let rows = world.json(&["approval", "list"]);
    assert_eq!((&rows[0]["execution"], &rows[0]["node"]), (&json!("approval-1"), &json!("ok")));
    world.ends(&["execution", "result", "approval-1"], 8);
    world.ends(&["approval", "reject", "approval-1"], 2);
    world.ends(&["approval", "approve", "approval-1", "--node", "other"], 3);
    world.ok(&["approval", "approve", "approval-1", "--dry-run"]);
    let said = world.json(&["approval", "approve", "approval-1", "--comment", "good", "--as", "ada"]);
    assert_eq!((&said["status"], &said["by"]), (&json!("approved"), &json!("ada")));
    world.ok(&["execution", "watch", "approval-1", "-q"]);
    world.ends(&["approval", "approve", "approval-1"], 6);
    assert_eq!(world.json(&["approval", "list"]), json!([]));
    let facts =
        world.ok(&["execution", "events", "approval-1", "--facts", "--type", "answered", "-o", "jsonl"]);
    let fact: Value = serde_json::from_str(&facts).expect("one decision");
    assert_eq!(
        (&fact["event"]["answer"]["by"], &fact["event"]["answer"]["comment"]),
        (&json!("ada"), &json!("good"))
    );
    // Decisions are told with the person and the comment.
    let told = world.json(&["execution", "describe", "approval-1"])["decisions"][0].clone();
    assert_eq!(
        (&told["node"], &told["decision"], &told["by"], &told["comment"]),
        (&json!("ok"), &json!("approved"), &json!("ada"), &json!("good"))
    );
    // A tool call returns when it waits for a person, too; all that is needed to decide is shown.
    world.ok(&["workflow", "deploy", "approve.json"]);
    let called = world.run(&["tool", "call", "approve", "-p", "text=hi", "-o", "json"]);
    assert_eq!(called.status.code(), Some(8), "{}", text(&called.stderr));
    let shown = world.ok(&["approval", "show", "@latest"]);
    for wanted in ["workflow  approve", "node      ok", "sinew approval reject", "who       "] {
        assert!(shown.contains(wanted), "no {wanted:?} in\n{shown}");
    }
    world.ok(&["approval", "reject", "@latest", "--comment", "too short", "--as", "bob"]);
    let told = world.ok(&["execution", "describe", "@latest"]);
    assert!(told.contains("ok rejected by bob") && told.contains(": too short"), "{told}");
    assert!(!told.contains("decision by bob: accepted"), "{told}");
}

#[test]
fn what_goes_on_is_steered_and_what_waits_says_for_what() {
    let (world, _executor) = World::new();
    world.write("orders.yaml", FLOW);
    let start = ["run", "orders.yaml", "--mesh", "-p", "amount=1", "--timeout", "3s", "--id"];
    let late = world.run(&[&start[..], &["one"]].concat());
    let said = text(&late.stderr);
    assert_eq!(late.status.code(), Some(5), "{said}");
    assert!(said.contains("the execution is running and waits for agent Pricing"), "{said}");
    let told = world.json(&["execution", "describe", "one"]);
    assert_eq!((&told["waiting"][0]["agent"], &told["status"]), (&json!("Pricing"), &json!("running")));
    let text = told["waiting"][0]["text"].as_str().unwrap();
    assert!(text.contains("no agent 'Pricing' is online"), "{text}");
    world.ends(&["execution", "result", "one"], 6);
    world.ok(&["execution", "pause", "one", "--reason", "lunch"]);
    world.ends(&["execution", "pause", "one"], 6);
    assert_eq!(world.json(&["execution", "describe", "one"])["status"], "paused");
    // Lists say who paused it, although an agent is missing too.
    let row = &world.json(&["execution", "list"])[0];
    assert!(row["waiting"].as_str().unwrap().starts_with("resume (by "), "{row}");
    assert!(row["waiting"].as_str().unwrap().contains("lunch"), "{row}");
    world.ok(&["execution", "resume", "one"]);
    // The drawing of what goes on names what is waited for.
    let drawn = world.ok(&["workflow", "render", "--execution", "one", "--format", "mermaid"]);
    assert!(drawn.contains("running · no agent 'Pricing' is online"), "{drawn}");
    let two = world.ok(&["run", "orders.yaml", "--mesh", "-p", "amount=2", "--detach"]);
    world.ends(&["execution", "cancel", "one", &two], 2); // nobody said yes
    world.ok(&["execution", "cancel", "one", &two, "--dry-run"]);
    assert_eq!(world.json(&["execution", "list", "--count"])["count"], 2);
    world.ok(&["execution", "cancel", "one", &two, "--yes"]);
    for id in ["one", &two] {
        world.ends(&["execution", "watch", id, "-q"], 1);
        assert_eq!(world.json(&["execution", "describe", id])["status"], "cancelled");
    }
    world.ends(&["execution", "cancel", "one"], 6);
    // An input too large for a command comes from the store of artifacts.
    let big = json!({"amount": 3, "note": "x".repeat(700_000)}).to_string();
    world.write("big.json", &big);
    world.write("cards/pricing.agent.yaml", PRICING);
    world.write("cards/booking.agent.yaml", BOOKING);
    let _agents = world.serve(&["serve", "agent", "cards"]);
    let address = world.ok(&["artifact", "put", "big.json"]);
    assert_eq!(
        world.json(&["run", "orders.yaml", "--mesh", "--input-artifact", &address, "-q"])["output"],
        json!({"booked": 6})
    );
    // A workflow that cannot begin is refused at once, also without --wait.
    let (before, _) = address.split_once("key=").unwrap();
    let gone = format!("{before}key={}", "A".repeat(43));
    for how in ["--detach", "--wait"] {
        let refused = world.run(&["run", "orders.yaml", "--mesh", "--input-artifact", &gone, how]);
        let told = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(6), "{told}");
        assert!(told.contains("not found [SINEW-6042]"), "{told}");
    }
}

#[test]
fn agents_and_tools_are_found_and_called() {
    let (world, _executor) = World::new();
    world.write("orders.yaml", FLOW);
    world.write("cards/pricing.agent.yaml", PRICING);
    world.write("cards/booking.agent.yaml", BOOKING);
    let agents = world.serve(&["serve", "agent", "cards"]);
    world.ok(&["workflow", "deploy", "orders.yaml"]);
    assert_eq!(world.json(&["tool", "call", "orders", "-p", "amount=5"])["output"], json!({"booked": 10}));
    world.ends(&["tool", "call", "workflow_orders", "-p", "amount=none"], 2);
    world.ends(&["tool", "call", "ordres"], 3);
    for (api, pointer) in
        [("openai", "/0/function/name"), ("anthropic", "/0/name"), ("mcp", "/0/name"), ("spec", "/0/name")]
    {
        let declared = world.json(&["tool", "declare", "--for", api]);
        assert_eq!(declared.pointer(pointer), Some(&json!("workflow_orders")), "{api}: {declared}");
    }
    let names = world.ok(&["agent", "list", "--mesh", "-o", "name"]);
    assert!(names.contains("Pricing") && names.contains("Booking"), "{names}");
    assert_eq!(world.json(&["agent", "card", "Pricing", "--mesh"])["name"], "Pricing");
    let answer = world.json(&["agent", "call", "Pricing", "--mesh", "-i", r#"{"amount": 4}"#]);
    assert_eq!(answer["output"], json!({"price": 8}));
    world.ends(&["agent", "call", "Pricing", "--mesh", "-i", "{}"], 1);
    world.ends(&["agent", "call", "Prizing", "--mesh"], 3);
    let top = world.json(&["top", "--once"]);
    assert_eq!((&top["shards"], &top["owned"]), (&json!(4), &json!(4)));
    assert_eq!(top["executors"].as_array().map(Vec::len), Some(1));
    let checks = world.json(&["doctor"]);
    assert!(checks.as_array().unwrap().iter().all(|check| check["state"] == "ok"), "{checks:#}");
    assert_eq!(agents.stop(), Some(0));
    // A leaving agent removes its card.
    world.ends(&["agent", "describe", "Pricing", "--mesh"], 3);
}

#[test]
fn every_answer_is_data_and_every_failure_has_its_code() {
    let (world, _executor) = World::new();
    world.write("orders.yaml", FLOW);
    let id = world.ok(&["run", "orders.yaml", "--mesh", "-p", "amount=1", "--detach"]);
    world.ok(&["workflow", "deploy", "orders.yaml"]);
    let looks: &[&[&str]] = &[
        &["mesh", "check"],
        &["mesh", "provision"],
        &["mesh", "provision", "--dry-run"],
        &["mesh", "permissions"],
        &["mesh", "quarantine", "list"],
        &["execution", "list"],
        &["execution", "describe", &id],
        &["execution", "tree", &id],
        &["execution", "events", &id],
        &["execution", "events", &id, "--native"],
        &["execution", "logs", &id],
        &["execution", "replay", &id],
        &["execution", "cancel", &id, "--dry-run"],
        &["execution", "rerun", &id, "--dry-run"],
        &["approval", "list"],
        &["artifact", "list", &id],
        &["agent", "list", "--mesh"],
        &["workflow", "list", "--mesh"],
        &["tool", "list"],
        &["tool", "declare"],
        &["top", "--once"],
        &["workflow", "deploy", "orders.yaml", "--dry-run"],
    ];
    for args in looks {
        for format in ["json", "yaml", "jsonl"] {
            let out = world.ok(&[args, &["-o", format][..]].concat());
            let read = match format {
                "json" => serde_json::from_str::<Value>(&out).is_ok(),
                "yaml" => serde_saphyr::from_str::<Value>(&out).is_ok(),
                _ => out.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()),
            };
            assert!(read, "{args:?} -o {format}: {out}");
        }
        // Output that does not go to a terminal contains no escape sequences.
        assert!(!world.ok(args).contains('\u{1b}'), "{args:?}");
    }
    let fails: &[(&[&str], i32, &str)] = &[
        (&["execution", "describe", "nothing-like-it"], 3, "SINEW-8020"),
        (&["execution", "tree", &id, "--node", "nobody"], 3, "SINEW-8025"),
        (&["execution", "result", &id], 6, "SINEW-8026"),
        (&["execution", "cancel", "run.json"], 2, "SINEW-8022"),
        (&["run", "nobody", "--mesh"], 3, "SINEW-8039"),
        (&["run", "orders.yaml", "--mesh", "--agents", "x"], 2, "SINEW-8022"),
        (&["run", "orders.yaml", "--detach", "--local"], 2, "SINEW-8001"),
        (&["artifact", "get", &id, "none.txt"], 3, "SINEW-8040"),
        (&["approval", "approve", &id], 6, "SINEW-8041"),
        (&["tool", "call", "nobody"], 3, "SINEW-8042"),
        (&["mesh", "quarantine", "show", "RESULTS.7"], 3, "SINEW-7051"),
        (&["execution", "list", "--nats", "nats://127.0.0.1:1"], 4, "SINEW-7016"),
        (&["execution", "list", "--namespace", "elsewhere"], 6, "SINEW-7021"),
        (&["mesh", "provision", "--shards", "5"], 6, "SINEW-7023"),
    ];
    for (args, exit, code) in fails {
        let output = world.run(&[args, &["-o", "json"][..]].concat());
        let err = text(&output.stderr);
        assert_eq!(
            (output.status.code(), text(&output.stdout)),
            (Some(*exit), String::new()),
            "{args:?}: {err}"
        );
        let error: Value = serde_json::from_str(err.lines().last().unwrap_or_default())
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {err}"));
        assert_eq!(error["error"]["code"], *code, "{args:?}: {err}");
    }
}

/// Given outputs lead along the same paths: no node runs that did not run before, and none is left out.
#[test]
fn a_fork_goes_the_way_of_the_old_execution() {
    let (world, _executor) = World::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").canonicalize().unwrap();
    let at = |path: &str| examples.join(path).display().to_string();
    let _agents = world.serve(&["serve", "agent", &at("orders/agent-cards"), &at("lint-report/agent-cards")]);
    world.ok(&["workflow", "deploy", &at("orders"), &at("lint-report")]);
    let order = format!("@{}", at("orders/order.json"));
    world.ok(&["run", "orders", "--mesh", "-i", &order, "--id", "old", "-q", "--wait"]);
    let forks: [&[&str]; 4] = [
        &["execution", "fork", "old", "--at", "thank"],
        &["execution", "fork", "old", "--at", "ready"],
        &["execution", "rerun", "old", "--memoize"],
        &["execution", "rerun", "old", "--memoize", "--from", "check"],
    ];
    for fork in forks {
        let new = world.ok(&[fork, &["--watch", "-q"]].concat());
        let told = world.run(&["execution", "diff", "old", &new, "-o", "json"]);
        let told: Value = serde_json::from_slice(&told.stdout).expect("a document");
        assert_eq!(
            (&told["input"], &told["second"]["status"]),
            (&json!([]), &json!("succeeded")),
            "{fork:?}"
        );
        let nodes = told["nodes"].as_array().unwrap();
        // Children of what was given are not there; all that are in both ended the same way.
        let both = nodes.iter().filter(|node| !node["second"].is_null());
        let differ: Vec<&Value> =
            both.filter(|node| node["first"]["status"] != node["second"]["status"]).collect();
        assert!(differ.is_empty(), "{fork:?}: {differ:#?}");
    }
    world.ends(&["execution", "fork", "old", "--set", "accept.output={}"], 6);
    // Where outputs lie at ports, and a value alone would lead nowhere, nothing is begun.
    world.ok(&["run", "lint-report", "-p", "message=fuzz", "--mesh", "--id", "ports", "-q", "--wait"]);
    world.ends(&["execution", "fork", "ports", "--at", "write"], 6);
    world.ends(&["execution", "rerun", "ports", "--memoize"], 6);
    assert_eq!(world.ok(&["execution", "list", "--workflow", "lint-report", "--count"]), "1");
}

/// Asks again until it is so; what asks is a round trip, so nobody spins.
#[track_caller]
fn within_a_minute(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !so() {
        assert!(begun.elapsed() < Duration::from_mins(1), "not within a minute: {what}");
    }
}

/// An agent says the same until it may end, so that it does not matter when whoever listens begins to.
#[test]
fn who_follows_the_logs_hears_agents_while_they_work() {
    let (world, _executor) = World::new();
    let go = world.path().join("go");
    let script =
        format!("while [ ! -e '{}' ]; do echo 'half way' >&2; sleep 0.5; done; echo '{{}}'", go.display());
    let agent = json!({"name": "Slow", "run": {"command": {"argv": ["sh", "-c", script]}}});
    world.write("cards/slow.agent.yaml", &agent.to_string());
    world.write("slow.yaml", SLOW);
    let _agents = world.serve(&["serve", "agent", "cards"]);
    world.ok(&["run", "slow.yaml", "--mesh", "--id", "slow", "--detach", "-q"]);
    // A start is stored before an executor has taken it.
    within_a_minute("the execution has begun", || {
        world.run(&["execution", "describe", "slow"]).status.success()
    });
    let follow = |format: &str| {
        let mut command = world.command(&["execution", "logs", "slow", "--follow", "-o", format]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let said = Said::by(child.stdout.take().unwrap());
        (child, said)
    };
    let (mut people, heard) = follow("table");
    assert!(heard.wait_for("half way").lines().all(|line| line == "[wait#1@Slow] half way"));
    let (mut machine, heard) = follow("jsonl");
    let first = heard.wait_for("half way");
    let line: Value = serde_json::from_str(first.lines().last().unwrap()).expect("a document");
    let want = json!({"at": line["at"], "node": "wait", "attempt": 1, "agent": "Slow", "level": "info",
                      "text": "half way", "stored": false});
    assert_eq!(line, want);
    std::fs::write(go, "").unwrap();
    for child in [&mut people, &mut machine] {
        assert!(child.wait().unwrap().success());
    }
    // The record keeps all messages, and followers have shown each of them once: as it was said, or from the record.
    let kept = world.ok(&["execution", "logs", "slow"]);
    assert!(kept.lines().count() >= 2 && kept.lines().all(|line| line == "wait  half way"), "{kept}");
    let followed = first + &heard.rest();
    assert_eq!(followed.lines().count(), kept.lines().count(), "{followed}");
    let node = world.ok(&["execution", "describe", "slow", "--node", "wait"]);
    assert!(
        node.lines().any(|line| line.starts_with("log ") && line.ends_with("attempt 1: half way")),
        "{node}"
    );
}

/// Messages of a failed program, of a script and of an evaluation are there after the end, without artifacts.
#[test]
fn messages_of_programs_and_scripts_are_kept_on_the_mesh() {
    let (world, _executor) = World::new();
    let script = "echo 'reading' >&2; printf 'bad \\033[31mline\\033[0m\\n' >&2; exit 3";
    let fails = json!({"name": "Fails", "run": {"command": {"argv": ["sh", "-c", script]}}});
    let prints = json!({"name": "Prints", "run": {"script": {"source": "def f(d):\n    print('given', d)\n    return {}"}}});
    world.write("cards/fails.agent.yaml", &fails.to_string());
    world.write("cards/prints.agent.yaml", &prints.to_string());
    let node = |name: &str| json!({"id": name.to_lowercase(), "type": "agent", "agent_name": name, "input": {"n": 1}});
    for name in ["Fails", "Prints"] {
        let workflow = json!({"workflow": {
            "description": "d", "nodes": [node(name)], "output_mapping": {},
        }});
        world.write(&format!("{}.yaml", name.to_lowercase()), &workflow.to_string());
    }
    let _agents = world.serve(&["serve", "agent", "cards"]);
    world.ends(&["run", "fails.yaml", "--mesh", "--id", "fails", "-q", "--wait"], 1);
    world.ok(&["run", "prints.yaml", "--mesh", "--id", "prints", "-q", "--wait"]);
    let fails = world.ok(&["execution", "logs", "fails"]);
    let lines: Vec<&str> = fails.lines().collect();
    assert_eq!(lines[..2], ["fails  reading", "fails  bad line"], "{fails}");
    assert!(lines[2].starts_with("fails  attempt 1: the command ended with exit code 3"), "{fails}");
    assert_eq!(world.ok(&["execution", "logs", "prints"]), "prints  given {'n': 1}");
    let kept: Value =
        serde_json::from_str(&world.ok(&["execution", "logs", "prints", "-o", "json"])).unwrap();
    assert_eq!((&kept[0]["level"], &kept[0]["attempt"]), (&json!("info"), &json!(1)));
    let artifacts: Value =
        serde_json::from_str(&world.ok(&["artifact", "list", "fails", "-o", "json"])).unwrap();
    assert_eq!(artifacts, json!([]));
}

/// Requests of `nats micro ls`, `info` and `stats`.
#[test]
fn agents_and_workflows_are_services_that_the_nats_command_line_lists() {
    let (world, executor) = World::new();
    world.write("cards/pricing.agent.yaml", PRICING);
    world.write("cards/booking.agent.yaml", BOOKING);
    world.write("orders.yaml", FLOW);
    let agents = world.serve(&["serve", "agent", "cards"]);
    world.ok(&["workflow", "deploy", "orders.yaml"]);
    world.online(&["Pricing", "Booking", "orders"]);
    // A card may be there before the door is.
    within_a_minute("the workflow is listed", || !world.asked("$SRV.PING.orders", 1).is_empty());
    let ask = |verb: &str| {
        let mut answers = world.asked(&format!("$SRV.{verb}"), 3);
        answers.sort_by_key(|answer| answer["name"].to_string());
        answers
    };
    for (verb, kind) in [("PING", "ping"), ("INFO", "info"), ("STATS", "stats")] {
        let answers = ask(verb);
        let names: Vec<&Value> = answers.iter().map(|answer| &answer["name"]).collect();
        assert_eq!(names, ["Booking", "Pricing", "orders"], "{verb}: {answers:#?}");
        for answer in &answers {
            assert_eq!(answer["type"], format!("io.nats.micro.v1.{kind}_response"));
            if verb != "STATS" {
                assert_eq!(answer["metadata"]["sinew_namespace"], "sinew", "{answer:#}");
            }
            let version = answer["version"].as_str().unwrap();
            assert_eq!(version.split('.').count(), 3, "no semantic version: {version}");
        }
    }
    let info = &ask("INFO")[1];
    assert_eq!(info["endpoints"][0]["subject"], "sinew.v1.rpc.Pricing.*.*", "{info:#}");
    let info = &ask("INFO")[2];
    assert_eq!(info["endpoints"][0]["subject"], "sinew.v1.rpc.orders.*.*", "{info:#}");
    assert_eq!(info["metadata"]["sinew_type"], "workflow", "{info:#}");
    // A call is counted at its door.
    world.ok(&["agent", "call", "Pricing", "--mesh", "-i", r#"{"amount": 4}"#]);
    world.ok(&["agent", "call", "orders", "--mesh", "-i", r#"{"amount": 4}"#]);
    for service in [1, 2] {
        let stats = &ask("STATS")[service]["endpoints"][0];
        assert!(stats["num_requests"].as_u64() >= Some(1), "{stats:#}");
        assert!(stats["average_processing_time"].as_u64() >= Some(1), "{stats:#}");
    }
    assert_eq!(agents.stop(), Some(0));
    assert_eq!(world.asked("$SRV.PING.Pricing", 1), Vec::<Value>::new());
    assert_eq!(executor.stop(), Some(0));
    assert_eq!(world.asked("$SRV.PING.orders", 1), Vec::<Value>::new());
}

#[test]
fn every_dialect_ends_on_the_mesh_as_in_one_process() {
    let (world, _executor) = World::new();
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").canonicalize().unwrap();
    let at = |path: &str| examples.join(path).display().to_string();
    let names = ["orders", "release-notes", "doc-triage", "lint-report", "metrics-digest"];
    let cards: Vec<String> = names.iter().map(|name| at(&format!("{name}/agent-cards"))).collect();
    let mut serve = vec!["serve", "agent"];
    serve.extend(cards.iter().map(String::as_str));
    let _agents = world.serve(&serve);
    let order = format!("@{}", at("orders/order.json"));
    let defaults = ["work=NotesWriter", "route=EdgeChooser", "judge=RubricJudge"];
    let defaults: Vec<&str> = defaults.iter().flat_map(|one| ["--default-agent", one]).collect();
    let cases: [(&str, Vec<&str>); 5] = [
        ("orders/orders.yaml", vec!["-i", &order]),
        ("release-notes/notes.yaml", [&["-p", "commits=3"], defaults.as_slice()].concat()),
        ("doc-triage/triage.json", vec!["-i", "\"examples/README.md\""]),
        ("lint-report/lint.json", vec!["-p", "message=crates/sinew-mesh"]),
        ("metrics-digest/digest.json", vec![]),
    ];
    for (file, with) in cases {
        let file = at(file);
        let run = [&["run", &file, "-q"], with.as_slice()].concat();
        let here: Value = serde_json::from_str(&world.ok(&run)).expect("an output");
        let there: Value =
            serde_json::from_str(&world.ok(&[&run[..], &["--mesh"]].concat())).expect("an output");
        assert_eq!(there, here, "{file}");
        let dry = |place| world.json(&[&run[..], &["--dry-run", place]].concat());
        assert_eq!(dry("--mesh"), dry("--local"), "{file}");
    }
}

/// A team of two nodes whose connection converts with this function.
fn team(name: &str, function: &str) -> String {
    json!({
        "metadata": { "id": name, "name": name },
        "triggers": ["start"],
        "nodes": [
            { "id": "start", "name": "start", "type": "TRIGGER", "subtype": "MANUAL" },
            { "id": "merge", "name": "merge", "type": "FLOW", "subtype": "MERGE" },
        ],
        "connections": [
            { "id": "c1", "from_node": "start", "to_node": "merge", "conversion_function": function },
        ],
    })
    .to_string()
}

/// A graph of one node of code.
fn graph(name: &str, code: &str) -> String {
    let node = |id: &str, kind: &str, data: &Value| json!({ "id": id, "type": kind, "position": { "x": 0, "y": 0 }, "data": data });
    json!({
        "name": name,
        "nodes": [node("start", "chat-start", &json!({})), node("code", "code", &json!({ "code": code }))],
        "edges": [{ "id": "e1", "source": "start", "sourceHandle": "output", "target": "code", "targetHandle": "input" }],
    })
    .to_string()
}

/// Each of these ended the executor, or held up its loop for good. Now each fails alone: the same executor goes on, other
/// scripts are evaluated, and nothing is left at work.
#[test]
fn scripts_that_break_their_limits_fail_alone() {
    let (world, executor) = World::new();
    let bombs = [
        "def f(d):\n    return json.dumps([1], indent=10 ** 12)",
        "def f(d):\n    return len(json.dumps([1] * 100000, separators=('x' * 100000, ':')))",
        "def f(d):\n    a, b = [], []\n    for i in range(60): a, b = [a, a], [b, b]\n    return a == b",
        "def f(d):\n    l = []\n    while True: l.append('x' * 1000000)",
        "def f(d):\n    while True: pass",
        "def f(d):\n    return 'a' * 10 ** 12",
    ];
    let mut started = Vec::new();
    for (n, bomb) in bombs.iter().enumerate() {
        for (kind, make) in [("team", team as fn(&str, &str) -> String), ("graph", graph)] {
            let name = format!("{kind}{n}.json");
            world.write(&name, &make(&format!("{kind}{n}"), bomb));
            started.push((kind, world.ok(&["run", &name, "--mesh", "--detach"])));
        }
    }
    world.write("good.json", &team("good", "lambda d: {'twice': d['value']['n'] * 2}"));
    let output = world.json(&["run", "good.json", "--mesh", "-i", r#"{"n": 21}"#, "-q"])["output"].clone();
    assert_eq!(output["twice"], 42, "{output}");
    for (kind, id) in &started {
        let watched = world.run(&["execution", "watch", id, "-q"]);
        let told = world.json(&["execution", "describe", id]);
        let code = told["failure"]["chain"][0]["code"].as_str().unwrap_or_default();
        let has_failed = ["SINEW-3003", "SINEW-3004", "SINEW-6401"].contains(&code);
        // A conversion function that runs too long leaves the value as it is.
        let is_kept = *kind == "team" && told["warnings"].to_string().contains("passed on unconverted");
        assert!(if watched.status.success() { is_kept } else { has_failed }, "{told:#}");
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", executor.0.id())).unwrap();
    let resident = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    let kibibytes: u64 = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kibibytes < 512 * 1024, "{resident}");
    assert_eq!(executor.stop(), Some(0), "it is the executor that began, and it ends as it is told");
}

/// A workflow with a server that wants a token, and data that a loader of workflow files would act on.
const REVIEW: &str = r#"{
  "id": "review", "name": "review", "entry": "look", "edges": [],
  "nodes": {"look": {"name": "look", "instruction": "run `echo ${MCP_TOKEN}`", "skills": ["tickets"]}},
  "skills": {"tickets": {"mcp": {"type": "http", "url": "https://tickets.example",
    "headers": {"Authorization": "Bearer ${MCP_TOKEN}"}}}}
}"#;
const REVIEWER: &str = r#"
name: Reviewer
run:
  command:
    argv: [sh, -c, "if grep -q 'Bearer canary-of-the-agent'; then echo '{\"seen\": true}'; else echo '{\"seen\": false}'; fi"]
    stdin: request
    references: {MCP_TOKEN: [tickets.example]}
"#;

#[test]
fn references_are_resolved_by_the_agent_and_data_arrives_as_written() {
    let (world, executor) = World::new();
    let told = |output: &std::process::Output| text(&output.stdout) + &text(&output.stderr);
    world.write("review.json", REVIEW);
    world.write("orders.yaml", FLOW);
    world.write("cards/reviewer.agent.yaml", REVIEWER);
    world.write("input.json", r#"{"note": ["${MCP_TOKEN}", "$${MCP_TOKEN}", "${NOT_SET}"]}"#);
    let mut agent = world.command(&["serve", "agent", "cards"]);
    agent.env("MCP_TOKEN", "canary-of-the-agent").stdout(Stdio::null()).stderr(Stdio::null());
    let _agent = Role(agent.spawn().expect("it starts"));
    let run = |args: &[&str]| {
        let output = world.command(args).env("MCP_TOKEN", "canary-of-the-caller").output().expect("it runs");
        assert!(output.status.success(), "{args:?}: {}", told(&output));
        told(&output)
    };
    let flags = ["--default-agent", "work=Reviewer", "--mesh", "-i", "@input.json"];
    run(&[&["run", "review.json", "--id", "one", "--timeout", "1m"][..], &flags].concat());
    run(&["execution", "rerun", "one", "-i", "@input.json", "--watch"]);
    for id in ["one", "@latest"] {
        let export = world.json(&["execution", "export", id]).to_string();
        assert!(export.contains("Bearer ${MCP_TOKEN}") && export.contains("echo ${MCP_TOKEN}"), "{export}");
        assert!(export.contains(r#"["${MCP_TOKEN}","$${MCP_TOKEN}","${NOT_SET}"]"#), "{export}");
        assert!(export.contains(r#""seen":true"#), "the agent did not resolve the reference: {export}");
        assert!(!export.contains("canary"), "{export}");
    }
    // A start that no executor takes is stored, and the time of the command holds all the same.
    drop(executor);
    let begun = Instant::now();
    let late = world.run(&["run", "orders.yaml", "--mesh", "-p", "amount=1", "--timeout", "3s"]);
    assert_eq!(late.status.code(), Some(5), "{}", told(&late));
    assert!(told(&late).contains("execution watch"), "{}", told(&late));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn a_server_that_is_full_or_too_small_is_named() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let options =
        ServerOptions { config_extra: Some("max_payload: 65536".to_owned()), ..ServerOptions::default() };
    let server = runtime.block_on(Server::start(options)).unwrap();
    let world = World::at(server.url());
    world.ok(&["mesh", "provision", "--shards", "2", "--storage-limit", "100KB"]);
    runtime.block_on(async {
        let mesh = world.connect("filler").await;
        for nth in 0..2 {
            let subject = format!("sinew.v1.command.0.x{nth}");
            mesh.admin()
                .jetstream()
                .publish(subject, vec![b'x'; 49_000].into())
                .await
                .unwrap()
                .await
                .unwrap();
        }
    });
    let checks: Value = serde_json::from_str(&world.ends(&["doctor", "-o", "json"], 1)).unwrap();
    let state = |code: &str| checks.as_array().unwrap().iter().find(|check| check["code"] == code).cloned();
    for code in ["SINEW-7040", "SINEW-7043"] {
        let check = state(code).unwrap_or_else(|| panic!("no {code}: {checks:#}"));
        assert!(check["state"] == "fail" && check["hint"].is_string(), "{check:#}");
    }
    let words = world.ends(&["mesh", "check"], 1);
    assert!(words.contains("problem  sinew_COMMANDS uses 98") && words.contains("[SINEW-7043]"), "{words}");
}
