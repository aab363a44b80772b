//! Forms that hold in every view: one word for a status, names alone with `-o name`, ASCII with `--ascii`, times with
//! milliseconds, a noun that fits its number, short ids for people.

use std::sync::LazyLock;
use std::time::Instant;

use regex::Regex;
use serde_json::{Value, json};

use super::common::{Role, World, text};
use super::{APPROVAL, BOOKING, EDITOR, LINES, LONELY, ORDERS, PATIENCE, PRICING, WRITER, vandal};

/// Never answers while the test runs.
const SLOW: &str = "name: Slow\nrun: {command: {argv: [sleep, '600'], timeout: 600s}}\n";
/// Fails each time; the next attempt is an hour off.
const BANK: &str = "name: Bank\nrun: {command: {argv: [sh, -c, 'exit 7']}}\n";

fn flow(nodes: &str) -> String {
    format!(
        "workflow:\n  description: A description that is longer than the column of any table has room for, so that it \
         is cut\n  nodes: [{nodes}]\n  output_mapping: {{}}\n"
    )
}

/// A mesh with an execution in each status: `ok`, `items`, `bad`, `again`, `asks`, `held`, `gone`, `lonely`, and one whose
/// id is made up.
fn world() -> (World, [Role; 2], String) {
    let (world, executor) = World::new();
    let approval: Value = serde_json::from_str(APPROVAL).unwrap();
    world.write("flows/orders.yaml", ORDERS);
    world.write("flows/lines.yaml", LINES);
    world.write("flows/lonely.yaml", LONELY);
    world.write("flows/approve.json", &approval["definition"].to_string());
    world.write("flows/slow.yaml", &flow("{id: work, type: agent, agent_name: Slow, timeout: 590s}"));
    let retry = "retryStrategy: {limit: 5, retryPolicy: Always, backoff: {duration: 1h}}";
    world.write("flows/pay.yaml", &flow(&format!("{{id: pay, type: agent, agent_name: Bank, {retry}}}")));
    for (name, agent) in [
        ("pricing", PRICING),
        ("booking", BOOKING),
        ("writer", WRITER),
        ("editor", EDITOR),
        ("slow", SLOW),
        ("bank", BANK),
    ] {
        world.write(&format!("cards/{name}.agent.yaml"), agent);
    }
    let agents = world.serve(&["serve", "agent", "cards"]);
    world.ok(&["workflow", "deploy", "flows"]);
    world.online(&["Pricing", "Booking", "Writer", "Editor", "Slow", "Bank"]);
    let start = |args: &[&str], code: i32| world.ends(&[&["run"], args, &["--mesh", "-q"]].concat(), code);
    start(&["orders", "-i", "{\"amount\": 5}", "--id", "ok", "--wait"], 0);
    start(&["lines", "-i", "{\"lines\": [1]}", "--id", "items", "--wait"], 0);
    start(&["orders", "-i", "{\"amount\": 0}", "--id", "bad", "--wait"], 1);
    start(&["approve", "--id", "asks", "--wait"], 8);
    let named = start(&["orders", "-i", "{\"amount\": 7}", "--wait", "-o", "name"], 0);
    for (flow, id) in [("pay", "again"), ("slow", "held"), ("slow", "gone"), ("lonely", "lonely")] {
        start(&[flow, "--id", id, "--detach"], 0);
    }
    until(&world, "again", |row| row["waiting"].as_str().is_some_and(|text| text.contains("attempt")));
    for id in ["held", "gone"] {
        until(&world, id, |row| row["status"] == "running");
    }
    world.ok(&["execution", "pause", "held", "--reason", "a look", "-q"]);
    world.ok(&["execution", "cancel", "gone", "--reason", "enough", "-q"]);
    until(&world, "held", |row| row["status"] == "paused");
    until(&world, "gone", |row| row["status"] == "cancelled");
    world.runtime.block_on(vandal(&world));
    (world, [executor, agents], named)
}

/// Waits until the row of an execution says so.
#[track_caller]
fn until(world: &World, id: &str, so: impl Fn(&Value) -> bool) {
    let since = Instant::now();
    loop {
        let rows = world.json(&["execution", "list"]);
        if rows.as_array().unwrap().iter().any(|row| row["execution"] == id && so(row)) {
            return;
        }
        assert!(since.elapsed() < PATIENCE, "{id}: {rows:#}");
    }
}

/// Command lines that change nothing. `ID` is each of the executions.
const VIEWS: [&str; 52] = [
    "agent call Pricing -p amount=1 --mesh",
    "agent card Pricing --mesh",
    "agent describe Pricing --mesh",
    "agent list",
    "agent list cards",
    "agent ping Pricing",
    "approval approve asks --dry-run",
    "approval list",
    "approval show asks",
    "artifact list ok",
    "doctor",
    "execution cancel held gone --dry-run",
    "execution describe ID",
    "execution describe again --node pay",
    "execution describe bad --node book",
    "execution describe items --node each",
    "execution diff ID bad",
    "execution events ID",
    "execution export bad -O bad.json",
    "execution fork ok --at book --dry-run",
    "execution list",
    "execution logs ID",
    "execution replay ok",
    "execution rerun ok --dry-run",
    "execution resume held --dry-run",
    "execution retry bad --dry-run",
    "execution tree ID",
    "execution watch bad",
    "execution watch ok",
    "explain SINEW-6004",
    "man pages",
    "mesh check",
    "mesh provision --dry-run",
    "mesh quarantine list",
    "run flows/orders.yaml --agents cards --local -p amount=0",
    "run flows/orders.yaml --agents cards --local -p amount=5",
    "run orders --mesh --wait -p amount=0",
    "run orders --mesh --wait -p amount=5",
    "test flows",
    "tool call orders -p amount=5",
    "tool declare",
    "tool list",
    "top --once",
    "workflow deploy flows",
    "workflow deploy flows --dry-run",
    "workflow describe flows/lines.yaml",
    "workflow describe orders",
    "workflow diff orders lines",
    "workflow list",
    "workflow render flows/lines.yaml --format terminal",
    "workflow validate flows",
    "workflow versions orders",
];

/// A text that no view may show, and why.
fn fault_of(text: &str) -> Option<String> {
    static TIME: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\d\d:\d\d:\d\d(\.\d+)?Z").unwrap());
    static ONE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?:^|[ (/])1 ([a-z]{3,}s)\b").unwrap());
    let wrong_time = TIME.find_iter(text).find(|found| found.len() != "00:00:00.000Z".len());
    if let Some(found) = wrong_time {
        return Some(format!("a time without milliseconds: {}", found.as_str()));
    }
    ONE.captures(text).map(|found| format!("a noun that does not fit: {}", &found[0]))
}

/// Returns the words of each member `status`, except those of the source's own results and events.
fn statuses(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| statuses(item, found)),
        Value::Object(members) => {
            for (key, inner) in members {
                match (key.as_str(), inner) {
                    ("native" | "event" | "output" | "journal" | "rounds", _) => {}
                    ("status", Value::String(word)) => found.push(word.clone()),
                    _ => statuses(inner, found),
                }
            }
        }
        _ => {}
    }
}

/// Words of a status, of executions and of nodes, and of what a command did.
const STATUS_WORDS: [&str; 16] = [
    "planned",
    "queued",
    "running",
    "waiting",
    "paused",
    "succeeded",
    "failed",
    "skipped",
    "cancelled",
    "approved",
    "rejected",
    "deployed",
    "deleted",
    "unchanged",
    "there",
    "ok",
];

/// Formats in which each view is looked at.
const FORMATS: [(&str, [&str; 2]); 6] = [
    ("table", ["-o", "table"]),
    ("wide", ["-o", "wide"]),
    ("json", ["-o", "json"]),
    ("yaml", ["-o", "yaml"]),
    ("name", ["-o", "name"]),
    ("ascii", ["--ascii", "-otable"]),
];

/// Returns what is wrong with the output of a view. `generated` is an id that no table may show whole.
fn faults_of_view(
    view: &str,
    format: &str,
    (code, out, err): (Option<i32>, &str, &str),
    generated: &str,
) -> Vec<String> {
    let mut wrong: Vec<String> = [out, err].into_iter().filter_map(fault_of).collect();
    if matches!(format, "table" | "wide" | "ascii") && !view.starts_with("execution events") {
        let words = out.split_whitespace().chain(err.split_whitespace());
        let old = words.filter(|word| matches!(*word, "success" | "failure"));
        wrong.extend(old.map(|word| format!("the word {word}")));
    }
    if matches!(format, "table" | "ascii") && !view.starts_with("run ") {
        let long =
            out.lines().filter(|line| !line.starts_with("execution ")).find(|line| line.contains(generated));
        wrong.extend(long.map(|line| format!("a long id: {line}")));
    }
    if format == "ascii" {
        let sign = out.chars().chain(err.chars()).find(|c| !c.is_ascii());
        wrong.extend(sign.map(|c| format!("{c:?} is not ASCII")));
    }
    if format == "json" {
        let mut found = Vec::new();
        match serde_json::from_str::<Value>(out) {
            Ok(value) => statuses(&value, &mut found),
            // A document a line.
            Err(_) => {
                for value in out.lines().filter_map(|line| serde_json::from_str(line).ok()) {
                    statuses(&value, &mut found);
                }
            }
        }
        found.retain(|word| !STATUS_WORDS.contains(&word.as_str()));
        wrong.extend(found.into_iter().map(|word| format!("the status {word}")));
    }
    if format == "name" {
        let is_refused = code == Some(2) && out.is_empty();
        let says_why = err.contains("does not support `-o name`") || err.contains("SINEW-8001");
        let other = out.lines().find(|line| line.contains(' ')).map(|line| format!("not a name: {line}"));
        wrong.extend(other);
        wrong.extend((is_refused && !says_why).then(|| format!("refused with {err}")));
    }
    wrong
}

#[test]
fn every_view_keeps_the_forms() {
    let (world, _roles, generated) = world();
    let all = ["ok", "items", "bad", "again", "asks", "held", "gone", "lonely", generated.as_str()];
    let (mut wrong, mut without_names) = (Vec::new(), 0);
    for view in VIEWS {
        let ids: &[&str] = if view.contains(" ID") { &all } else { &[""] };
        for (id, (format, flags)) in ids.iter().flat_map(|id| FORMATS.map(|format| (id, format))) {
            let line = view.replace("ID", id);
            let words: Vec<&str> = line.split(' ').chain(flags).collect();
            let output = world.run(&words);
            let (out, err) = (text(&output.stdout), text(&output.stderr));
            let found = faults_of_view(view, format, (output.status.code(), &out, &err), &generated);
            wrong.extend(found.into_iter().map(|fault| format!("{line} ({format}): {fault}")));
            without_names += usize::from(format == "name" && output.status.code() == Some(2));
        }
    }
    assert!(wrong.is_empty(), "{} faults:\n{}", wrong.len(), wrong.join("\n"));
    assert!(without_names >= 8, "{without_names}");
}

/// The rules notice what they are for.
#[test]
fn forms_that_are_not_kept_are_noticed() {
    for (text, is_kept) in [
        ("at 02:36:37.123Z", true),
        ("at 02:36:37Z", false),
        ("at 2026-11-23T02:36:37.1Z", false),
        ("1 executors", false),
        ("0/1 nodes", false),
        ("11 executors, v1 nodes", true),
        ("1 node", true),
    ] {
        assert_eq!(fault_of(text).is_none(), is_kept, "{text}");
    }
    let mut found = Vec::new();
    statuses(
        &json!([{ "status": "success", "nodes": [{ "status": "failed" }], "native": { "status": "x" } }]),
        &mut found,
    );
    assert_eq!(found, ["success", "failed"]);
}

/// Lists of statuses on the command line take the words that views show; the stored ones still work.
#[test]
fn filters_take_the_words_of_views() {
    let (world, executor) = World::new();
    for word in ["running", "waiting", "paused", "succeeded", "failed", "cancelled", "success", "failure"] {
        world.ok(&["execution", "list", "--status", word]);
    }
    drop(executor);
    let said = world.run(&["execution", "list", "--status", "done"]);
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("running, waiting, paused, succeeded, failed, cancelled"), "{said}");
}
