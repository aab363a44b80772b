//! Every command with texts of others: none of them steers the terminal, hides, turns around, or adds a line.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use super::common::{Role, World};
use super::{COMMAND_TIMEOUT, pty, vandal_with};

/// Texts that steer, reorder or hide. Each ends with a word that tells which it was.
const HOSTILE_TEXTS: [&str; 36] = [
    "\u{1b}[31mSGR",
    "\u{1b}[0;1;31mRESET",
    "\u{1b}[8mCONCEAL",
    "\u{1b}[2JCLEAR",
    "\u{1b}[HHOME",
    "\u{1b}[1A\u{1b}[2KLINE-UP",
    "\u{1b}[?1049hSCREEN",
    "\u{1b}]0;title\u{7}TITLE",
    "\u{1b}]8;;http://evil.example\u{1b}\\LINK",
    "\u{1b}]52;c;ZXZpbA==\u{7}CLIPBOARD",
    "\u{1b}P+q544e\u{1b}\\DCS",
    "\u{1b}[6nREPORT",
    "\u{1b}cRIS",
    "\u{9b}31mC1-CSI",
    "\u{9d}0;title\u{9c}C1-OSC",
    "\u{90}q\u{9c}C1-DCS",
    "\u{85}NEL",
    "\u{7f}\u{7f}\u{7f}DEL",
    "\u{8}\u{8}\u{8}BACKSPACE",
    "\u{7}BELL",
    "one\rRETURN",
    "one\nFORGED LINE-FEED",
    "one\r\nFORGED CR-LF",
    "\u{b}\u{c}FEED",
    "\u{e}SHIFT",
    "\u{202e}RIGHT-TO-LEFT",
    "\u{202a}\u{202d}EMBEDDING",
    "\u{2066}\u{2067}\u{2068}\u{2069}ISOLATE",
    "\u{200e}\u{200f}\u{61c}MARK",
    "\u{2028}\u{2029}SEPARATOR",
    "ad\u{200b}min\u{200d} ZERO-WIDTH",
    "\u{feff}BOM",
    "\u{e0001}\u{e0041}TAG",
    "\u{ad}\u{34f}\u{2062}INVISIBLE",
    "\u{fff9}\u{fffb}ANNOTATION",
    "a\u{fe00}\u{fe01}\u{fe02}SELECTOR",
];

/// Commands that show no text of others, each with the reason.
const WITHOUT_TEXT_OF_OTHERS: [(&str, &str); 25] = [
    ("", "help"),
    ("approval", "a group of commands"),
    ("agent", "a group of commands"),
    ("agent-retire", "the name that was typed"),
    ("artifact", "a group of commands"),
    ("execution", "a group of commands"),
    ("gateway", "a group of commands"),
    ("gateway-hook", "a group of commands"),
    ("gateway-key", "a group of commands"),
    ("mesh", "a group of commands"),
    ("model", "a group of commands"),
    ("mesh-quarantine", "a group of commands"),
    ("report", "a group of commands"),
    ("new", "a group of commands"),
    ("serve", "a group of commands"),
    ("tool", "a group of commands"),
    ("tool-pin", "the name that was typed"),
    ("tool-unpin", "the name that was typed"),
    ("tool-hide", "the name that was typed"),
    ("tool-unhide", "the name that was typed"),
    ("tool-deprecate", "the name that was typed"),
    ("tool-undeprecate", "the name that was typed"),
    ("workflow", "a group of commands"),
    ("completions", "scripts for shells"),
    ("bench", "figures of this machine"),
];

/// Commands whose views certainly show some of the texts; a view that shows none would prove nothing.
const TELLING_COMMANDS: [&str; 21] = [
    "agent-call",
    "agent-eval",
    "agent-list",
    "agent-tools",
    "approval-list",
    "approval-show",
    "chat",
    "execution-describe",
    "execution-events",
    "execution-export",
    "execution-list",
    "execution-logs",
    "execution-result",
    "execution-tree",
    "run",
    "tool-list",
    "workflow-convert",
    "workflow-describe",
    "workflow-list",
    "workflow-render",
    "workflow-validate",
];

/// A command line that shows text of others. The words up to the first that is not a command name it.
struct CommandView {
    command: &'static str,
    arguments: Vec<String>,
}

fn view(command: &'static str, arguments: &[&str]) -> CommandView {
    CommandView { command, arguments: arguments.iter().map(|word| (*word).to_owned()).collect() }
}

/// The word at the end of a text, which is visible.
fn word_of(text: &str) -> &str {
    text.rsplit(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-'))
        .next()
        .unwrap_or_default()
}

fn all_texts() -> String {
    HOSTILE_TEXTS.join(" ")
}

/// A document as the loader of files takes it: characters that may not stand in a file are escapes.
fn document(value: &Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        if c.is_ascii() && c != '\u{7f}' {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

/// Agents that say a text, fail with it, and tell it while they work.
fn agents(world: &World) {
    let tool =
        json!({ "name": "says", "description": all_texts(), "source": "def says(args):\n    return 1" });
    let model = json!({ "use": ["main"], "models": { "main": { "provider": "script" } }, "tools": [{ "script": tool }] });
    let clerk = json!({ "name": "Clerk", "description": all_texts(), "run": { "model": model } });
    world.write("cards/clerk.agent.yaml", &document(&clerk));
    let script = |name: &str, source: &str| {
        let agent =
            json!({ "name": name, "description": all_texts(), "run": { "script": { "source": source } } });
        world.write(&format!("cards/{}.agent.yaml", name.to_lowercase()), &document(&agent));
    };
    script("Says", "def main(input):\n    print(input['text'])\n    return {'text': input['text']}\n");
    let case =
        json!({ "name": all_texts(), "input": { "text": all_texts() }, "expect": { "output": all_texts() } });
    world.write("cards/says.eval.json", &document(&json!({ "agent": "says.agent.yaml", "cases": [case] })));
    script("Fails", "def main(input):\n    raise ValueError(input['text'])\n");
}

/// A workflow whose texts are hostile wherever the dialect takes any; each text goes through an agent and a fault.
fn talk() -> Value {
    let ask = |(n, text): (usize, &&str)| {
        let agent = if n % 2 == 0 { "Says" } else { "Fails" };
        json!({ "id": format!("n{n}"), "type": "agent", "agent_name": agent, "input": { "text": text },
                "instruction": text })
    };
    let mut nodes: Vec<Value> = HOSTILE_TEXTS.iter().enumerate().map(ask).collect();
    nodes.extend((0..2).map(|n| {
        json!({ "id": format!("all{n}"), "type": "agent", "agent_name": if n == 0 { "Says" } else { "Fails" },
                "input": { "text": all_texts() } })
    }));
    json!({ "workflow": {
        "description": all_texts(), "version": "1.0", "fail_fast": false, "nodes": nodes,
        "input_schema": { "type": "object", "description": all_texts() },
        "output_mapping": { "said": "{{all0.output.text}}" },
    } })
}

/// A graph whose ids, labels and questions are hostile.
fn canvas() -> Value {
    let mut nodes = vec![json!({ "id": "s", "type": "start", "data": { "initialInput": all_texts() } })];
    let mut connections = Vec::new();
    let mut before = "s".to_owned();
    for text in HOSTILE_TEXTS {
        let id = format!("id {text}");
        nodes.push(json!({ "id": id, "type": "agent", "data": { "agentName": "Says", "userPrompt": text } }));
        connections.push(
            json!({ "source": before, "target": id, "sourceHandle": "output", "targetHandle": "input" }),
        );
        before = id;
    }
    json!({ "name": format!("canvas {}", all_texts()), "nodes": nodes, "connections": connections })
}

/// A graph that asks a person at once.
fn question() -> Value {
    json!({
        "nodes": [
            { "id": "s", "type": "start", "data": { "initialInput": all_texts() } },
            { "id": "ok", "type": "approval", "data": { "prompt": all_texts() } },
        ],
        "connections": [{ "source": "s", "target": "ok", "sourceHandle": "output", "targetHandle": "input" }],
    })
}

/// Returns the defect in the output of a command.
fn complaint(written: &str) -> Option<String> {
    /// Styles of our own, and what the painter writes before it paints over lines.
    static OURS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new("\u{1b}\\[(?:0|1|2|3[1-6]|1;3[13])m|\u{1b}\\[\\d+A\r\u{1b}\\[J").expect("a rule")
    });
    for mark in ["\u{1b}[31mSGR", "\u{1b}[0;1;31mRESET"] {
        if written.contains(mark) {
            return Some(format!("a style of others: {mark:?}"));
        }
    }
    let rest = OURS.replace_all(written, "");
    // A terminal ends lines in its own way.
    let rest = rest.replace("\r\n", "\n");
    let is_hidden = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{fe01}'..='\u{fe0f}'
                | '\u{e0000}'..='\u{e0fff}')
    };
    if let Some(at) = rest.find(is_hidden) {
        let from = rest.floor_char_boundary(at.saturating_sub(80));
        let to = rest.ceil_char_boundary((at + 40).min(rest.len()));
        return Some(format!("a hidden character: {:?}", &rest[from..to]));
    }
    rest.lines().find(|line| line.starts_with("FORGED")).map(|line| format!("a line of others: {line:?}"))
}

/// The command lines. `talk`, `asks` and `asks-too` are executions; what waits for a person goes on waiting until the
/// rows that decide.
fn views() -> Vec<CommandView> {
    let all = all_texts();
    let all = all.as_str();
    vec![
        view("workflow-list", &["."]),
        view("workflow-list", &[".", "-o", "wide"]),
        view("workflow-list", &["--mesh"]),
        view("workflow-versions", &[all]),
        view("workflow-diff", &[all, all]),
        view("workflow-delete", &[all]),
        view("workflow-pause", &[all]),
        view("workflow-resume", &[all]),
        view("workflow-rollback", &[all]),
        view("tool-search", &[]),
        view("tool-search", &["a", "--explain"]),
        view("agent-drain", &[all]),
        view("agent-undrain", &[all]),
        view("audit", &[]),
        view("report-nodes", &[]),
        view("report-cost", &[]),
        view("execution-find", &["a"]),
        view("workflow-describe", &["talk.json"]),
        view("workflow-describe", &["canvas.json"]),
        view("workflow-describe", &["canvas.json", "-o", "name"]),
        view("workflow-validate", &["."]),
        view("workflow-validate", &["wrong.json"]),
        view("workflow-validate", &["wrong.json", "--format", "sarif"]),
        view("workflow-validate", &["wrong.json", "--format", "github"]),
        view("workflow-render", &["canvas.json", "--format", "terminal"]),
        view("workflow-render", &["canvas.json", "--format", "mermaid"]),
        view("workflow-render", &["canvas.json", "--format", "dot"]),
        view("workflow-render", &["canvas.json", "--format", "svg"]),
        view("workflow-render", &["talk.json", "--format", "terminal"]),
        view("workflow-convert", &["canvas.json", "--to", "sam"]),
        view("workflow-convert", &["canvas.json", "--plan"]),
        view("workflow-convert", &["question.json", "--to", "sam"]),
        view("workflow-migrate", &["team.json", "--check"]),
        view("workflow-nodes", &[all]),
        view("workflow-deploy", &["talk.json", "--dry-run"]),
        view("workflow-deploy", &["canvas.json"]),
        view("run", &["talk.json", "--agents", "cards"]),
        view("run", &["talk.json", "--agents", "cards", "--events", "native"]),
        view("run", &["talk.json", "--agents", "cards", "--events", "mesh"]),
        view("run", &["canvas.json", "--agents", "cards"]),
        view("run", &["canvas.json", "--dry-run"]),
        view("run", &["question.json"]),
        view("run", &[all]),
        view("run", &["talk.json", "--mesh", "--wait", "--label", &format!("team={all}")]),
        view("test", &["wrong.test.json"]),
        view("test", &["wrong.test.json", "--coverage"]),
        view("execution-list", &[]),
        view("execution-list", &["-o", "wide"]),
        view("execution-describe", &["talk"]),
        view("execution-describe", &["asks"]),
        view("execution-describe", &[all]),
        view("execution-timeline", &["talk"]),
        view("execution-timeline", &["talk", "--csv"]),
        view("execution-tree", &["talk"]),
        view("execution-tree", &["talk", "-o", "wide"]),
        view("execution-watch", &["talk"]),
        view("execution-logs", &["talk"]),
        view("execution-events", &["talk"]),
        view("execution-events", &["talk", "--native"]),
        view("execution-events", &["talk", "--facts"]),
        view("execution-result", &["talk"]),
        view("execution-result", &["talk", "--node", "all0"]),
        view("execution-result", &["talk", "--node", all]),
        view("execution-diff", &["talk", "asks"]),
        view("execution-export", &["talk"]),
        view("execution-export", &["talk", "--case"]),
        view("execution-export", &["talk", "-O", "talk.export.json"]),
        view("execution-import", &["talk.export.json"]),
        view("execution-replay", &["talk"]),
        view("execution-retry", &["talk", "--dry-run"]),
        view("execution-rerun", &["talk", "--dry-run"]),
        view("execution-fork", &["talk", "--at", all]),
        view("execution-pause", &["asks", "--reason", all]),
        view("execution-resume", &["asks"]),
        view("execution-cancel", &["asks-too", "--reason", all]),
        view("approval-list", &[]),
        view("approval-show", &["asks"]),
        view("approval-reject", &["asks", "--comment", all, "--dry-run"]),
        view("approval-approve", &["asks", "--comment", all]),
        view("execution-describe", &["asks-too"]),
        view("agent-list", &["cards"]),
        view("agent-list", &["--mesh", "-o", "wide"]),
        view("agent-describe", &["cards/says.agent.yaml"]),
        view("agent-describe", &["Says", "--mesh"]),
        view("agent-card", &["Says", "--mesh"]),
        view("agent-call", &["cards/says.agent.yaml", "-p", &format!("text={all}")]),
        view("agent-call", &["cards/fails.agent.yaml", "-p", &format!("text={all}")]),
        view("agent-call", &["Fails", "--mesh", "-p", &format!("text={all}")]),
        view("agent-eval", &["cards/says.eval.json"]),
        view("agent-tools", &["cards/clerk.agent.yaml"]),
        view("agent-log", &["talk"]),
        view("chat", &["cards/says.agent.yaml", all]),
        view("chat", &["Says", all, "--mesh"]),
        view("model-list", &["--agents", "cards"]),
        view("model-ping", &["--agents", "cards"]),
        view("agent-ping", &["Says"]),
        view("artifact-list", &["talk"]),
        view("artifact-get", &["talk", all]),
        view("artifact-put", &[all]),
        view("artifact-diff", &["talk", all, all]),
        view("tool-list", &[]),
        view("tool-declare", &[]),
        view("tool-call", &["talk"]),
        view("tool-call", &[all]),
        view("top", &["--once"]),
        view("doctor", &[]),
        view("mesh-provision", &["--dry-run"]),
        view("mesh-check", &[]),
        view("mesh-permissions", &["--namespace", all]),
        view(
            "gateway-hook-deploy",
            &["pushes", "--workflow", "hostile", "--scheme", "github", "--secret-env", "PATH"],
        ),
        view("gateway-hook-list", &[]),
        view("gateway-hook-remove", &["pushes"]),
        view("gateway-key-create", &["viewer"]),
        view("gateway-key-list", &[]),
        view("gateway-key-rotate", &["viewer"]),
        view("gateway-key-revoke", &["viewer", "--yes"]),
        view("mesh-quarantine-list", &[]),
        view("mesh-quarantine-show", &["COMMANDS.1"]),
        view("mesh-quarantine-replay", &["COMMANDS.1", "--dry-run"]),
        view("mesh-quarantine-remove", &["COMMANDS.1", "--dry-run"]),
        view("serve-executor", &["--nats", all]),
        view("serve-agent", &["cards", "--nats", all]),
        view("serve-gateway", &["--nats", all]),
        view("serve-bridge", &[all]),
        view("mcp", &["--nats", all]),
        view("mcp-config", &["zed", "--context", all]),
        view("dev", &["--workflows", all]),
        view("schema", &[all]),
        view("explain", &[all]),
        view("new-workflow", &[all]),
        view("new-agent", &[all]),
        view("man", &["pages-\u{202e}RIGHT-TO-LEFT"]),
    ]
}

/// Lines painted over each other, prompts, and bytes to a terminal.
const TERMINAL_VIEWS: [&str; 7] = [
    "run talk.json --agents cards",
    "run talk.json --mesh --watch",
    "execution watch talk",
    "execution describe talk",
    "execution result talk --node all0 --raw",
    "workflow render canvas.json",
    "execution cancel asks asks-too",
];

fn prepare(world: &World) {
    agents(world);
    world.write("talk.json", &document(&talk()));
    world.write("canvas.json", &document(&canvas()));
    world.write("question.json", &document(&question()));
    let fields: Vec<Value> = HOSTILE_TEXTS.iter().map(|text| json!({ "id": text, "type": text })).collect();
    let wrong = json!({ "workflow": { "description": 1, all_texts(): 2, "nodes": fields } });
    world.write("wrong.json", &document(&wrong));
    let team = json!({ "metadata": { "name": all_texts() }, "nodes": [{ "id": all_texts(), "type": "ACTION",
        "subtype": all_texts(), "configurations": { "condition_expression": all_texts() } }], "connections": [] });
    world.write("team.json", &document(&team));
    let case = json!({ "name": all_texts(), "expect": { "status": all_texts(), "output": { "said": all_texts() } } });
    world.write("wrong.test.json", &document(&json!({ "workflow": "talk.json", "cases": [case] })));
}

#[test]
fn no_view_lets_text_of_others_steer_the_terminal() {
    let (world, executor) = World::new();
    prepare(&world);
    let _roles: [Role; 2] = [executor, world.serve(&["serve", "agent", "cards"])];
    world.ok(&["workflow", "deploy", "talk.json"]);
    world.online(&["Says", "Fails", "talk"]);
    world.runtime.block_on(vandal_with(&world, all_texts().into()));
    world.ends(&["run", "talk", "--mesh", "--id", "talk", "--wait", "-q"], 1);
    for id in ["asks", "asks-too"] {
        world.ends(&["run", "question.json", "--mesh", "--id", id, "--wait", "-q"], 8);
    }

    let mut wrong = Vec::new();
    let mut texts_shown = BTreeSet::new();
    let mut commands_shown = BTreeSet::new();
    for CommandView { command, arguments } in views() {
        let mut words: Vec<String> = command.split('-').map(str::to_owned).collect();
        words.extend(arguments);
        for format in [["--color", "always"], ["-o", "json"]] {
            if format[0] == "-o" && words.iter().any(|word| word == "-o" || word == "--format") {
                continue;
            }
            let line: Vec<String> = words.iter().cloned().chain(format.map(str::to_owned)).collect();
            let output = world.run(&line);
            for stream in [&output.stdout, &output.stderr] {
                let written = String::from_utf8_lossy(stream);
                wrong.extend(
                    complaint(&written).map(|complaint| format!("{command} {format:?}: {complaint}")),
                );
                for text in HOSTILE_TEXTS.iter().filter(|text| written.contains(word_of(text))) {
                    texts_shown.insert(*text);
                    commands_shown.insert(command);
                }
            }
        }
    }
    for line in TERMINAL_VIEWS {
        let mut command = world.command(&line.split(' ').collect::<Vec<_>>());
        command.env_remove("NO_COLOR").env("TERM", "xterm");
        let (_, screen) = pty::run(command, "n\n", COMMAND_TIMEOUT);
        wrong.extend(complaint(&screen).map(|complaint| format!("{line} on a terminal: {complaint}")));
    }
    let log = std::fs::read_to_string(world.path().join("roles.log")).unwrap();
    wrong.extend(complaint(&log).map(|complaint| format!("the log of a role: {complaint}")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A text that no view shows would prove nothing.
    assert_eq!(texts_shown.len(), HOSTILE_TEXTS.len(), "shown: {texts_shown:?}");
    let telling = BTreeSet::from(TELLING_COMMANDS);
    let silent: BTreeSet<&str> = telling.difference(&commands_shown).copied().collect();
    assert!(silent.is_empty(), "these show no text: {silent:?}");
}

#[test]
fn every_command_has_a_view_or_shows_no_text_of_others() {
    let world = World::at(String::new());
    let pages = world.json(&["man", "pages"])["pages"].clone();
    let commands: BTreeSet<String> = pages
        .as_array()
        .unwrap()
        .iter()
        .map(|page| {
            let name = page.as_str().unwrap().trim_end_matches(".1").trim_start_matches("sinew");
            name.trim_start_matches('-').to_owned()
        })
        .collect();
    let mut known: BTreeSet<String> = views().iter().map(|view| view.command.to_owned()).collect();
    known.extend(WITHOUT_TEXT_OF_OTHERS.iter().map(|(command, _)| (*command).to_owned()));
    let missing: Vec<&String> = commands.difference(&known).collect();
    let gone: Vec<&String> = known.difference(&commands).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "commands without a view: {missing:?}; not commands: {gone:?}"
    );
}
