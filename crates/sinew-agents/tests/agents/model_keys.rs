//! Every key of `run: model:`: it is read, and a slip of the fingers in it is refused with its place and a hint.

use std::path::Path;

use serde_json::{Value, json};
use sinew_agents::Agent;
use tempfile::TempDir;

use crate::fixture::environment;

/// A file with every key.
fn full() -> Value {
    json!({
        "name": "Clerk",
        "description": "Answers questions about orders.",
        "input_schema": {"type": "object"},
        "output_schema": {"type": "object"},
        "concurrency": 8,
        "timeout": "15m",
        "run": {"model": {
            "use": ["main", "cheap"],
            "models": {
                "main": {
                    "provider": "anthropic", "model": "claude-sonnet-5", "key": "${env:TOKEN}",
                    "price": {"input": 3, "output": 15, "cached": 0.3},
                },
                "cheap": {
                    "provider": "openai", "model": "gpt-5-mini", "url": "https://api.openai.com/v1", "key": "${env:TOKEN}",
                    "headers": {"X-Team": "${env:TOKEN}"}, "allow_private": false, "context": 128_000, "max_output": 4096,
                    "bounds": {"text": 400, "items": 10},
                    "caps": {"tools": "native", "schema": "native", "stream": true, "parallel": true},
                    "settings": {"temperature": 0, "seed": 7, "reasoning": "low", "extra": {"top_p": 1}},
                    "price": {"input": 0.25, "output": 2, "cached": 0.03},
                    "timeout": {"first": "60s", "idle": "30s", "total": "5m"},
                    "retry": {"limit": 2},
                },
            },
            "fallback_on": ["unavailable", "limited", "filtered", "refused"],
            "instruction": "You are {{agent.name}}. Today is {{now.date}}. {{workflow}} {{node}} {{skills}}",
            "skills": ["./refunds"],
            "examples": [{"input": {"text": "4+9?"}, "output": {"text": "13"}}],
            "tools": [
                {
                    "peer": "Courier", "as": "courier", "effect": "repeat", "trust": "open", "limit": 5, "timeout": "2m",
                    "max_result": "16KiB",
                    "approve": {"people": ["ops"], "timeout": "1h", "when": "args['amount'] > 100"},
                },
                {"peer": {"skill": "translate"}},
                {"workflow": "refund", "approve": true},
                {
                    "mcp": "files", "command": ["mcp-server-filesystem", "./docs"], "env": {"A": "b"}, "cwd": ".",
                    "lifetime": "task", "trust_hints": true, "allow_download": false, "sandbox": ["bwrap"],
                    "allow": [
                        "read_text_file",
                        "list_*",
                        {"name": "write_file", "effect": "once", "trust": "own", "approve": {"people": ["ops"]}, "limit": 3},
                    ],
                },
                {
                    "mcp": "tickets", "url": "https://tickets.example/mcp", "allow_private": false,
                    "headers": {"Authorization": "Bearer ${env:TOKEN}"}, "allow": ["search"],
                },
                {"script": {
                    "name": "total", "description": "Adds.", "input_schema": {"type": "object"}, "source": "def total(a): return 1",
                }},
                {"builtin": ["artifacts", "time", "ask_person"]},
                {"request": {"peers": ["Fact*"], "mcp": ["files"], "subagents": true}},
            ],
            "output": {"mode": "auto", "repairs": 2},
            "budget": {
                "turns": 20, "tool_calls": 50, "parallel": 4, "input_tokens": 500_000, "output_tokens": 50_000,
                "cost_usd": 1.0, "wall": "10m", "waiting": "24h", "repeats": 3, "last_word": true,
            },
            "session": {"keep": "30d", "turns": 20},
            "compact": {"at": 0.7, "keep_turns": 4, "model": "cheap"},
            "taint": "approve",
            "on_unknown": "tell",
            "log": {"keep": "7d"},
        }},
    })
}

/// Maps whose keys or contents are of the owner's choice.
fn is_free(key: &str) -> bool {
    ["headers", "env", "extra", "input_schema", "output_schema", "input", "output"].contains(&key)
}

/// The pointers of all keys below a value.
fn keys(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                let pointer = format!("{at}/{key}");
                // Aliases are names; `output` is a free value of an example, and a form elsewhere.
                let is_alias = at.ends_with("/models");
                if !is_alias {
                    found.push(pointer.clone());
                }
                let is_form = pointer == "/run/model/output";
                if is_form || !is_free(key) {
                    keys(value, &pointer, found);
                }
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| keys(item, &format!("{at}/{n}"), found));
        }
        _ => {}
    }
}

fn load(folder: &Path, file: &Value) -> Result<Agent, sinew_source::Diagnostics> {
    let path = folder.join("x.agent.json");
    std::fs::write(&path, serde_json::to_string_pretty(file).unwrap()).unwrap();
    Agent::load_with(&path, &environment())
}

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    std::fs::create_dir_all(folder.path().join("refunds")).unwrap();
    let skill = "---\nname: refunds\ndescription: How to pay back.\n---\nBe kind.\n";
    std::fs::write(folder.path().join("refunds/SKILL.md"), skill).unwrap();
    folder
}

#[test]
fn every_key_is_read_and_a_slip_in_it_has_a_place_and_a_hint() {
    let folder = folder();
    let file = full();
    load(folder.path(), &file).unwrap_or_else(|found| panic!("{found}"));
    let mut all = Vec::new();
    keys(&file, "", &mut all);
    assert!(all.len() > 100, "{}", all.len());
    for pointer in all {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let mut changed = file.clone();
        let members = changed.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        let value = members.remove(key).unwrap();
        let slip = format!("{key}x");
        members.insert(slip.clone(), value);
        let found = load(folder.path(), &changed).map(drop).unwrap_err();
        let text = std::fs::read_to_string(folder.path().join("x.agent.json")).unwrap();
        let line = text.lines().position(|line| line.contains(&format!("\"{slip}\""))).unwrap() + 1;
        let hinted = found.items.iter().find(|item| {
            let is_there = item.span.is_some_and(|span| span.line as usize == line);
            let hint = item.hint.as_deref().unwrap_or_default();
            is_there && (hint == format!("did you mean '{key}'?") || hint.starts_with("allowed here: "))
        });
        assert!(hinted.is_some(), "{pointer}: {found}");
    }
}
