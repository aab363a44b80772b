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
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use sinew_mesh::async_nats::HeaderMap;
use sinew_mesh::connect::Connect;
use sinew_mesh::live::Control;
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{Mesh, Provision};
use sinew_protocol::permission::{Login, Role, Tenant, User, config};
use sinew_protocol::task::{MAX_LOG_BYTES, MAX_LOG_LINES, NodeOutput};
use sinew_protocol::{FaultKind, Token};
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
    command(script, url).spawn().unwrap()
}

/// The command of such a process.
fn command(script: &Path, url: &str) -> tokio::process::Command {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python-agent");
    let paths = std::env::join_paths([client(), example]).unwrap();
    let mut command = tokio::process::Command::new("python3");
    command
        .arg(script)
        .env("PYTHONPATH", paths)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NATS_URL", url)
        .env("SINEW_NAMESPACE", "test")
        .stdout(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Writes an agent to a folder.
fn script(folder: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("agent.py");
    std::fs::write(&path, text).unwrap();
    path
}

/// Makes the queue of an agent, as executors do.
async fn make_queue(mesh: &Mesh, agent: &str) {
    mesh.tasks().make_queue(&Token::of(agent)).await.unwrap();
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
    let script = script(&folder, SHOP);
    make_queue(&mesh, "shop").await;
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
    make_queue(&mesh, "shouter").await;
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

/// Ends its tasks in ways that agents must outlive.
const ODD: &str = r#"
import asyncio, os, sys, sinew_agent

def odd(value):
    if value == "small": return {"small": 3e-05, "zero": -0.0, "large": 1.5e300}
    if value == "wide": return 2**64
    if value == "nan": return {"ratio": float("nan")}
    if value == "bytes": return b"bytes"
    if value == "half": return "half a character: \ud800"
    if value == "too large": return "x" * (2 << 20)
    if value == "nearly too large": return "x" * ((1 << 20) - 500)
    if value == "exit": sys.exit(3)
    if value == "cancel": raise asyncio.CancelledError
    if value == "stop": raise StopIteration
    if value == "raise": raise ValueError("half a character: \ud800")
    if value == "die": os._exit(9)
    if value == "print":
        for number in range(10_000): print("line", number, "x" * 500)
    return value

sinew_agent.run("odd", odd)
"#;

#[tokio::test]
async fn odd_ends_of_tasks_are_answers_and_end_no_agent() {
    let (server, mesh) = common::mesh().await;
    make_queue(&mesh, "odd").await;
    let mut results = results(&mesh).await;
    let folder = tempfile::tempdir().unwrap();
    let mut agent = spawn(&script(&folder, ODD), &server.url());
    let not_json = "the output cannot be written as JSON: ";
    // The input; then the output, or how the message of the fault begins.
    let cases: [(&str, Result<Value, &str>); 12] = [
        ("small", Ok(json!({"small": 3e-05, "zero": -0.0, "large": 1.5e300}))),
        ("wide", Ok(json!(18_446_744_073_709_551_616.0))),
        ("print", Ok(json!("print"))),
        ("nan", Err(not_json)),
        ("bytes", Err(not_json)),
        ("half", Err(not_json)),
        ("too large", Err("the result has 2")),
        ("nearly too large", Err("the result has 1")),
        ("exit", Err("SystemExit: 3")),
        ("cancel", Err("CancelledError")),
        ("stop", Err("RuntimeError: StopIteration")),
        ("raise", Err("ValueError: half a character: ?")),
    ];
    for (n, (input, want)) in (0..).zip(cases) {
        asked(&mesh, "odd", n).send(&mesh, json!(input)).await;
        let result = results.next().await;
        match want {
            Ok(value) => {
                assert_eq!((result.output, result.fault), (NodeOutput::Value(value), None), "{input}");
            }
            Err(message) => {
                let fault = result.fault.unwrap();
                assert!(fault.message.starts_with(message), "{input}: {fault:?}");
            }
        }
        if input == "print" {
            let bytes: usize = result.logs.iter().map(|line| line.text.len()).sum();
            assert!(bytes <= MAX_LOG_BYTES && result.logs.len() <= MAX_LOG_LINES, "{bytes}");
            // Readers put a line in front where they have to shorten a log themselves.
            assert!(result.logs.iter().all(|line| !line.text.starts_with('(')));
            assert!(result.logs.last().unwrap().text.starts_with("line 9999 "));
        }
    }
    let late = asked(&mesh, "odd", 100);
    let mut extra = late.extra(Some(json!("die")));
    extra.deadline = Some(1);
    late.send_as(&mesh, &late.message(&extra, Vec::new())).await;
    let fault = results.next().await.fault.unwrap();
    assert_eq!((fault.code.as_ref(), fault.kind), ("SINEW-5104", FaultKind::Timeout));
    settled(&mesh, "odd").await;
    assert!(agent.try_wait().unwrap().is_none(), "the agent has ended");
}

/// Notes each start, then blocks its thread or its event loop.
const BLOCKED: &str = r#"
import asyncio, os, sys, time, sinew_agent

LEDGER = os.path.join(os.path.dirname(__file__), "ledger")

def note(line):
    with open(LEDGER, "a") as ledger:
        ledger.write(line + "\n")

async def block(value):
    note(str(value))
    if value == "waits":
        await asyncio.sleep(600)
    if value == "blocks":
        time.sleep(9)
    return value

sinew_agent.run("blocked", block)
"#;

#[tokio::test]
async fn a_handler_that_blocks_keeps_its_task_and_a_cancelled_one_stops() {
    let (server, mesh) = common::mesh().await;
    make_queue(&mesh, "blocked").await;
    let mut results = results(&mesh).await;
    let folder = tempfile::tempdir().unwrap();
    let script = script(&folder, BLOCKED);
    let agents = [spawn(&script, &server.url()), spawn(&script, &server.url())];
    let ledger = folder.path().join("ledger");
    let started = |lines: usize| {
        let ledger = ledger.clone();
        async move {
            while std::fs::read_to_string(&ledger).unwrap_or_default().lines().count() < lines {
                tokio::task::yield_now().await;
            }
        }
    };

    // Longer than the queue waits without a sign of life: another process would get the task.
    asked(&mesh, "blocked", 1).send(&mesh, json!("blocks")).await;
    assert_eq!(results.next().await.output, NodeOutput::Value(json!("blocks")));

    let task = asked(&mesh, "blocked", 2);
    task.send(&mesh, json!("waits")).await;
    timeout(PATIENCE, started(2)).await.unwrap();
    let cancel = Control::Cancel { execution: task.execution.clone() };
    mesh.tasks().control("blocked", &task.task, &cancel).await.unwrap();
    assert_eq!(results.next().await.fault.unwrap().kind, FaultKind::Cancelled);

    // A queue that is made anew delivers finished tasks again.
    settled(&mesh, "blocked").await;
    drop(agents);
    let stream = mesh.admin().jetstream().get_stream("test_TASKS").await.unwrap();
    stream.delete_consumer("agent-blocked").await.unwrap();
    make_queue(&mesh, "blocked").await;
    let _agent = spawn(&script, &server.url());
    settled(&mesh, "blocked").await;
    assert_eq!(std::fs::read_to_string(&ledger).unwrap(), "blocks\nwaits\n", "each task was started once");
}

#[tokio::test]
async fn tasks_that_end_their_processes_are_set_aside() {
    let (server, mesh) = common::mesh().await;
    let mut results = results(&mesh).await;
    let deadly = asked(&mesh, "odd", 1);
    deadly.send(&mesh, json!("die")).await;
    let mut queue = mesh.tasks().queue(&Token::of("odd"), 1);
    for _ in 0..sinew_mesh::task::MAX_DELIVERIES {
        queue.next().await.nak(Duration::ZERO).await.unwrap();
    }
    drop(queue);
    let folder = tempfile::tempdir().unwrap();
    let mut agent = spawn(&script(&folder, ODD), &server.url());
    let fault = results.next().await.fault.unwrap();
    assert_eq!((fault.code.as_ref(), fault.retryable), ("SINEW-5107", false));
    let nowhere = asked(&mesh, "odd", 2);
    let request = nowhere.message(&nowhere.extra(Some(json!(2))), Vec::new());
    let mut headers = HeaderMap::new();
    headers.insert("Sinew-Attempt", "1");
    nowhere.send_bytes(&mesh, headers, serde_json::to_vec(&request).unwrap()).await;
    settled(&mesh, "odd").await;
    let mut aside: Vec<String> =
        mesh.quarantine().list(10).await.unwrap().into_iter().map(|entry| entry.subject).collect();
    aside.sort();
    let mut want = [&deadly, &nowhere].map(|task| mesh.subject(&task.subject()));
    want.sort();
    assert_eq!(aside, want);
    assert!(agent.try_wait().unwrap().is_none(), "the agent has ended");
}

#[tokio::test]
async fn an_agent_waits_for_its_mesh_and_outlives_its_server() {
    let mut server = Server::start(ServerOptions::default()).await.unwrap();
    let mesh = common::connect(&server.url(), "exec").await;
    let mut announcements =
        mesh.client().subscribe(common::subject(&mesh, &common::card("odd"))).await.unwrap();
    common::sync(&mesh).await;
    let folder = tempfile::tempdir().unwrap();
    let _agent = spawn(&script(&folder, ODD), &server.url());
    // The agent announces itself before there is a mesh that could store the card.
    timeout(PATIENCE, announcements.next()).await.unwrap().unwrap();
    mesh.admin().provision(&Provision::default()).await.unwrap();
    make_queue(&mesh, "odd").await;
    let mut results = results(&mesh).await;
    asked(&mesh, "odd", 1).send(&mesh, json!("early")).await;
    assert_eq!(results.next().await.output, NodeOutput::Value(json!("early")));

    server.restart().await.unwrap();
    asked(&mesh, "odd", 2).send(&mesh, json!("again")).await;
    assert_eq!(results.next().await.output, NodeOutput::Value(json!("again")));
    let mut announcements =
        mesh.client().subscribe(common::subject(&mesh, &common::card("odd"))).await.unwrap();
    timeout(PATIENCE, announcements.next()).await.expect("the card is announced again").unwrap();
}

#[tokio::test]
async fn an_agent_needs_no_more_rights_than_its_role_has() {
    let user = |name: &str, roles: &[Role]| User {
        name: name.to_owned(),
        roles: roles.to_vec(),
        login: Login::Password(format!("password of {name}")),
        calls: Vec::new(),
    };
    let tenant = Tenant {
        account: "NORTH".to_owned(),
        namespace: "test".to_owned(),
        users: vec![
            user("shop", &[Role::Agent]),
            user("boss", &[Role::Provisioner, Role::Executor, Role::Admin]),
        ],
        guests: Vec::new(),
        max_file: None,
        max_memory: None,
    };
    let config_extra = Some(config(&[tenant], None).unwrap());
    let server = Server::start(ServerOptions { config_extra, ..ServerOptions::default() }).await.unwrap();
    let boss = Connect {
        url: Some(server.url()),
        user: Some("boss".to_owned()),
        password: Some("password of boss".to_owned()),
        namespace: Some("test".to_owned()),
        ..Connect::default()
    };
    let mesh = boss.open().await.unwrap();
    mesh.admin().provision(&Provision::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut agent = command(&script(&folder, SHOP), &server.url())
        .env("NATS_USER", "shop")
        .env("NATS_PASSWORD", "password of shop")
        .spawn()
        .unwrap();
    let mut cards = mesh.cards().follow();
    let announced = async {
        while cards.get("shop").is_none() {
            cards.changed().await;
        }
    };
    timeout(PATIENCE, announced).await.expect("the card is there");
    // Only now, as an executor does with the first task.
    make_queue(&mesh, "shop").await;
    let task = asked(&mesh, "shop", 1);
    task.send(&mesh, json!("plain")).await;
    settled(&mesh, "shop").await;
    let result = sinew_protocol::task::read_result(&task.stored(&mesh).await.unwrap()).unwrap();
    assert_eq!(result.fault, None);
    let pid = agent.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(timeout(PATIENCE, agent.wait()).await.expect("it ends").unwrap().success());
    let log = std::fs::read_to_string(server.log()).unwrap();
    let refused: Vec<&str> =
        log.lines().filter(|line| line.contains("iolation") && line.contains("user:shop")).collect();
    assert_eq!(refused, Vec::<&str>::new());
}
