//! Every message on the wire, written down: a change of one byte shows here, and what older versions wrote stays
//! readable. `UPDATE=1 cargo test -p sinew-protocol --test integration golden` writes the files anew.
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

pub(crate) mod sample;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sinew_protocol::a2a::{SendMessageRequest, Task};
use sinew_protocol::command::Command;
use sinew_protocol::deployment::Deployment;
use sinew_protocol::journal::{Commit, ExecutionRecord};
use sinew_protocol::jsonrpc::{Request, Response};
use sinew_protocol::message::Vocabulary;
use sinew_protocol::permission::Role;
use sinew_protocol::query::{Answer, Query};
use sinew_protocol::subject::Operation;
use sinew_protocol::task::{
    NodeAnswer, TaskExtra, WorkflowNodeRequest, is_node_message, read_node_answer, read_result,
};
use sinew_protocol::{MeshMessage, Token};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// All golden files: path below the folder, and content.
fn all() -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for (name, message) in mesh_messages() {
        let golden = json!({
            "current": message.to_json(Vocabulary::Current),
            "spec": message.to_json(Vocabulary::Spec),
            "protobuf": HEXLOWER.encode(&message.to_protobuf()),
        });
        all.insert(format!("mesh/{name}"), golden);
    }
    for (name, commit) in sample::commits() {
        all.insert(format!("commit/{name}"), json!({"protobuf": HEXLOWER.encode(&commit.encode())}));
    }
    for (name, record) in sample::records() {
        let golden = json!({"meta": record.meta, "protobuf": HEXLOWER.encode(&record.encode())});
        all.insert(format!("record/{name}"), golden);
    }
    for (name, command) in sample::commands() {
        let name = format!("command/{}_{name}", command.operation().as_str());
        all.insert(name, parsed(&command.to_json()));
    }
    for (name, query) in sample::queries() {
        all.insert(format!("query/{name}"), parsed(&query.to_json()));
    }
    for (name, answer) in sample::answers() {
        all.insert(format!("answer/{name}"), parsed(&answer.to_json()));
    }
    all.insert("deployment/full".to_owned(), parsed(&sample::deployment().to_json()));
    all.insert("event/command".to_owned(), serde_json::to_value(sample::verdict()).unwrap());
    for vocabulary in [Vocabulary::Current, Vocabulary::Spec] {
        let words = if vocabulary == Vocabulary::Spec { "spec" } else { "current" };
        all.insert(format!("task/{words}"), serde_json::to_value(sample::request(vocabulary)).unwrap());
        for (name, task) in sample::results(vocabulary) {
            all.insert(format!("result/{name}_{words}"), serde_json::to_value(task).unwrap());
        }
    }
    for (name, body) in sample::node_requests().into_iter().chain(sample::node_results()) {
        all.insert(format!("node/{name}"), serde_json::from_slice(&body).unwrap());
    }
    for (name, call) in sample::calls() {
        all.insert(format!("rpc/call_{name}"), serde_json::from_slice(&call.to_bytes()).unwrap());
    }
    for (name, answer) in sample::rpc_answers() {
        all.insert(format!("rpc/answer_{name}"), serde_json::from_slice(&answer.to_bytes()).unwrap());
    }
    for (name, card) in sample::cards() {
        all.insert(format!("card/{name}"), serde_json::to_value(card).unwrap());
    }
    all.insert("names".to_owned(), sample::names());
    for role in Role::ALL {
        let rights = role.permissions("prod", &Token::of("NAME"));
        let golden = json!({
            "publish": rights.publish,
            "subscribe": rights.subscribe,
            "responses": rights.responses,
            "opens": role.opens(),
        });
        all.insert(format!("permission/{}", role.as_str()), golden);
    }
    all
}

/// The messages of the workflow protocol stand in the fixtures of their vocabularies.
fn mesh_messages() -> Vec<(String, MeshMessage)> {
    let entries = std::fs::read_dir(folder().join("messages")).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| {
            let fixture: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, MeshMessage::from_json(&fixture["current"]).unwrap())
        })
        .collect()
}

fn parsed(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

fn files(below: &Path, found: &mut BTreeSet<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(below) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.insert(path);
        }
    }
}

#[test]
fn messages_are_the_bytes_that_were_written_down() {
    let root = folder().join("golden");
    let update = std::env::var_os("UPDATE").is_some();
    let mut there = BTreeSet::new();
    files(&root, &mut there);
    let mut drift = Vec::new();
    for (name, golden) in all() {
        let path = root.join(format!("{name}.json"));
        let text = format!("{}\n", serde_json::to_string_pretty(&golden).unwrap());
        if update {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        } else if std::fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            drift.push(format!("{name}: is now {text}"));
        }
        there.remove(&path);
    }
    for path in there {
        if update {
            std::fs::remove_file(path).unwrap();
        } else {
            drift.push(format!("{}: nothing writes it", path.display()));
        }
    }
    assert!(drift.is_empty(), "UPDATE=1 writes what changed:\n{}", drift.join("\n"));
}

/// Reads what is on disk, not what is written now: old bytes must stay readable, and mean what they meant.
#[test]
fn what_was_written_down_is_read() {
    let root = folder().join("golden");
    let mut paths = BTreeSet::new();
    files(&root, &mut paths);
    assert!(paths.len() > 60, "golden files are missing: {}", paths.len());
    let mut seen = BTreeSet::new();
    for path in &paths {
        let name = path.strip_prefix(&root).unwrap().with_extension("").to_string_lossy().replace('\\', "/");
        let golden: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let kind = name.split('/').next().unwrap().to_owned();
        let bytes = || HEXLOWER.decode(golden["protobuf"].as_str().unwrap().as_bytes()).unwrap();
        let text = golden.to_string();
        match kind.as_str() {
            "mesh" => {
                let message = MeshMessage::from_json(&golden["current"]).unwrap();
                assert_eq!(MeshMessage::from_protobuf(bytes().into()).unwrap(), message, "{name}");
                let spec = MeshMessage::from_json(&golden["spec"]).unwrap();
                assert_eq!(spec.to_json(Vocabulary::Spec), golden["spec"], "{name}");
            }
            "commit" => assert_eq!(Commit::decode(&bytes()).unwrap().encode(), bytes(), "{name}"),
            "record" => {
                let record = ExecutionRecord::decode(&bytes()).unwrap();
                assert_eq!(serde_json::to_value(&record.meta).unwrap(), golden["meta"], "{name}");
                assert_eq!(record.encode(), bytes(), "{name}");
            }
            "command" => {
                let word = name.strip_prefix("command/").unwrap().split('_').next().unwrap();
                let id = sample::execution().as_str().parse().unwrap();
                let command = Command::read(Operation::parse(word).unwrap(), &id, text.as_bytes()).unwrap();
                assert_eq!(parsed(&command.to_json()), golden, "{name}");
            }
            "query" => assert_eq!(parsed(&Query::read(text.as_bytes()).unwrap().to_json()), golden, "{name}"),
            "answer" => {
                assert_eq!(parsed(&Answer::read(text.as_bytes()).unwrap().to_json()), golden, "{name}");
            }
            "deployment" => {
                assert_eq!(parsed(&Deployment::read(text.as_bytes()).unwrap().to_json()), golden, "{name}");
            }
            "task" => {
                let request: SendMessageRequest = serde_json::from_value(golden.clone()).unwrap();
                assert!(TaskExtra::find(request.metadata.as_ref()).unwrap().is_ok(), "{name}");
                assert!(MeshMessage::find(&request.message.parts).unwrap().is_ok(), "{name}");
            }
            "result" => {
                let task: Task = serde_json::from_value(golden.clone()).unwrap();
                let result = read_result(&task).unwrap();
                assert_eq!(result.fault.is_none(), name.contains("success"), "{name}");
            }
            "rpc" if name.contains("/call_") => {
                let call = Request::read(text.as_bytes()).unwrap();
                assert_eq!(serde_json::from_slice::<Value>(&call.to_bytes()).unwrap(), golden, "{name}");
            }
            "rpc" => {
                let answer = Response::read(text.as_bytes()).unwrap();
                assert_eq!(serde_json::from_slice::<Value>(&answer.to_bytes()).unwrap(), golden, "{name}");
            }
            "card" => {
                let card: sinew_protocol::a2a::AgentCard = serde_json::from_value(golden.clone()).unwrap();
                assert_eq!(serde_json::to_value(card).unwrap(), golden, "{name}");
            }
            "node" if name.contains("/request") => {
                let request = WorkflowNodeRequest::read(text.as_bytes()).unwrap();
                assert_eq!(serde_json::from_slice::<Value>(&request.to_bytes()).unwrap(), golden, "{name}");
            }
            "node" => assert!(read_node_answer(text.as_bytes(), &sample::node_task()).is_ok(), "{name}"),
            "event" | "names" | "permission" => {}
            other => panic!("nothing reads {other}"),
        }
        seen.insert(kind);
    }
    assert_eq!(seen.len(), 15, "{seen:?}");
}

#[test]
fn node_messages_read_back() {
    for (name, body) in sample::node_requests() {
        assert!(is_node_message(&body), "{name}");
        assert_eq!(WorkflowNodeRequest::read(&body).unwrap().to_bytes(), body, "{name}");
    }
    for (name, body) in sample::node_results() {
        assert!(is_node_message(&body), "{name}");
        match (name, read_node_answer(&body, &sample::node_task()).unwrap()) {
            ("result_output", NodeAnswer::Ended(result)) => {
                let artifact = &result.artifacts[0];
                assert_eq!((artifact.meta.name.as_str(), artifact.meta.size), ("out.json", 11));
                assert_eq!(
                    (result.retries, result.events.len(), result.usage["input_tokens"].as_u64()),
                    (1, 1, Some(12))
                );
            }
            ("result_artifacts", NodeAnswer::Ended(result)) => assert_eq!(result.artifacts.len(), 2),
            ("result_failure", NodeAnswer::Ended(result)) => {
                assert_eq!(result.fault.unwrap().code, "SINEW-5104");
            }
            ("result_refused", NodeAnswer::Refused(fault)) => assert_eq!(fault.retry_after_ms, Some(1_000)),
            (name, answer) => panic!("{name}: {answer:?}"),
        }
    }
    let other = sinew_protocol::TaskId::parse("another-task").unwrap();
    assert!(sample::node_results().iter().all(|(_, body)| read_node_answer(body, &other).is_err()));
}
