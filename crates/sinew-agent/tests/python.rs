//! The example agent in Python, with the official client and nothing of ours.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::similar_names,
    clippy::cast_possible_truncation,
    reason = "a test says what is wrong by panicking"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use sinew_protocol::task::NodeOutput;
use tokio::time::timeout;

use common::{PATIENCE, asked, results, settled};

use crate::common;

/// The version that the example names.
const CLIENT: &str = "nats-py==2.16.0";

/// A folder with the client, filled once.
fn client() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nats-py-2.16.0");
    if !folder.exists() {
        let unfinished = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let pip = Command::new("python3")
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--root-user-action=ignore",
                "--target",
            ])
            .arg(unfinished.path())
            .arg(CLIENT)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(pip.success(), "pip could not install {CLIENT}");
        // Another test process may have been faster: then theirs is as good.
        if std::fs::rename(unfinished.path(), &folder).is_ok() {
            drop(unfinished.keep());
        }
    }
    folder
}

/// A process with an agent of a mesh on this server.
fn spawn(script: &Path, url: &str) -> tokio::process::Child {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python-agent");
    let paths = std::env::join_paths([client(), example]).unwrap();
    tokio::process::Command::new("python3")
        .arg(script)
        .env("PYTHONPATH", paths)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NATS_URL", url)
        .env("SINEW_NAMESPACE", "test")
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Writes a line to a ledger for each piece of work, and dies in the middle of the second task's charge.
const SHOP: &str = r#"
import os, sinew_agent

LEDGER = os.path.join(os.path.dirname(__file__), "ledger")

def note(line):
    with open(LEDGER, "a") as ledger:
        ledger.write(line + "\n")
    return line

def crash_once(mark):
    if not os.path.exists(mark):
        open(mark, "w").close()
        os._exit(9)

def charge(value, key):
    note("charge " + key)
    if value == "during":
        crash_once(LEDGER + ".during")
    return key

def order(value, steps):
    price = steps.run("price", lambda key: note("price " + key))
    if value == "between":
        crash_once(LEDGER + ".between")
    receipt = steps.run("charge", lambda key: charge(value, key), once=True)
    return {"price": price, "receipt": receipt, "again": steps.run("price", lambda key: key)}

sinew_agent.run("shop", order)
"#;

#[tokio::test]
async fn steps_are_done_once_whoever_dies() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("shop.py");
    std::fs::write(&script, SHOP).unwrap();
    mesh.tasks().make_queue(&sinew_protocol::Token::of("shop")).await.unwrap();
    let mut said = Vec::new();
    for (n, value) in [(1, "between"), (2, "during")] {
        let task = asked(&mesh, "shop", n);
        task.send(&mesh, json!(value)).await;
        let mut first = spawn(&script, &server.url());
        assert_eq!(timeout(PATIENCE, first.wait()).await.unwrap().unwrap().code(), Some(9));
        let mut second = spawn(&script, &server.url());
        // A process that is killed between answer and acknowledgement says its answer again.
        let mut result = results.next().await;
        while result.task.as_str() != task.task.as_str() {
            result = results.next().await;
        }
        said.push((task, result));
        second.kill().await.unwrap();
    }
    let [(between, first), (during, second)] = <[_; 2]>::try_from(said).unwrap();
    let key = |task: &common::Asked, step: &str| format!("{}-{step}", task.activation);
    let want = json!({
        "price": format!("price {}", key(&between, "price-0")),
        "receipt": key(&between, "charge-0"),
        "again": key(&between, "price-1"),
    });
    assert_eq!((first.output, first.fault), (NodeOutput::Value(want), None));
    assert!(second.fault.unwrap().message.starts_with("StepUnknown: a process stopped during step 'charge'"));
    let ledger = std::fs::read_to_string(folder.path().join("ledger")).unwrap();
    let lines: Vec<String> = ledger.lines().map(str::to_owned).collect();
    let line = |task: &common::Asked, step: &str| format!("{step} {}", key(task, &format!("{step}-0")));
    let want =
        [line(&between, "price"), line(&between, "charge"), line(&during, "price"), line(&during, "charge")];
    assert_eq!(lines, want, "nothing was done twice");
}

#[tokio::test]
async fn an_agent_needs_nats_and_json_only() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python-agent");
    let text = std::fs::read_to_string(example.join("agent.py")).unwrap();
    assert!(text.lines().count() < 20, "an agent is a function and one call");
    assert!(std::fs::read_to_string(example.join("README.md")).unwrap().contains(CLIENT));

    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let mut cards = mesh.cards().follow();
    let mut agent = spawn(&example.join("agent.py"), &server.url());
    let announced = async {
        while cards.get("shouter").is_none() {
            cards.changed().await;
        }
    };
    timeout(PATIENCE, announced).await.expect("its card is there, and is believed");
    assert!(cards.refused().is_empty());
    let card = cards.get("shouter").unwrap();
    assert!(sinew_protocol::card::input_schema(&card.card).is_some());

    asked(&mesh, "shouter", 1).send(&mesh, json!({"text": "grüße"})).await;
    let result = results.next().await;
    assert_eq!((result.output, result.fault), (NodeOutput::Value(json!({"loud": "GRÜSSE!"})), None));
    mesh.artifacts().get(&result.artifacts[0]).await.expect("the bytes are those that it says");

    asked(&mesh, "shouter", 2).send(&mesh, json!({"text": 7})).await;
    let fault = results.next().await.fault.unwrap();
    assert_eq!(fault.message, "ValueError: text: expected a string");

    // Another replica has answered: that answer counts, and the task is over.
    let taken = asked(&mesh, "shouter", 3);
    mesh.tasks().put_result(&taken.result, taken.headers(), r#"{"id":"theirs"}"#.into()).await.unwrap();
    taken.send(&mesh, json!({"text": "late"})).await;
    settled(&mesh, "shouter").await;
    let stream = mesh.admin().jetstream().get_stream("test_RESULTS").await.unwrap();
    let stored = stream.direct_get_last_for_subject(taken.result.as_str()).await.unwrap();
    assert_eq!(stored.payload, r#"{"id":"theirs"}"#);

    let pid = agent.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(timeout(PATIENCE, agent.wait()).await.expect("it ends").unwrap().success());
    assert!(cards.get("shouter").is_none() || timeout(PATIENCE, cards.changed()).await.is_ok());
}
