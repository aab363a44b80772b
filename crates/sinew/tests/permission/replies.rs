//! P9: a server answers to whatever subject it is asked to, also to one that the asker may not write to. What comes there
//! so changes nobody else's work.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sinew_protocol::ExecutionId;
use sinew_protocol::command::{CancelCommand, Command};

use crate::permission::wire::Wire;
use crate::permission::world::{NORTH, World, accounts, acks_in_both_shapes};

const APPROVAL: &str = include_str!("../fixtures/test/approval.test.json");
const WRITER: &str =
    "name: Writer\ndescription: True.\nrun: {script: {source: \"lambda input: 'a draft'\"}}\n";
const EDITOR: &str = "name: Editor\nrun: {script: {source: \"lambda input: 'edited'\"}}\n";

/// Has the server send a message that the agent wrote to a subject: an artifact, which it may read, as an answer.
fn forge(agent: &mut Wire, nth: usize, target: &str, headers: &[(&str, &str)], body: &str) {
    let piece = format!("north.v1.artifact.g.forged{nth}");
    agent.request_with(&piece, headers, body).expect("agents store artifacts");
    agent.publish(&format!("$JS.API.DIRECT.GET.north_ARTIFACTS.{piece}"), Some(target), &[], "");
    assert!(agent.settle().is_empty(), "{target}");
}

/// The same with all that the server says of itself and of the agent's own queue.
fn deliver(agent: &mut Wire, target: &str) {
    let next = format!("$JS.API.CONSUMER.MSG.NEXT.north_TASKS.agent-{}", NORTH.user("agent"));
    for (call, body) in [
        ("$JS.API.INFO", ""),
        ("$SYS.REQ.USER.INFO", ""),
        ("$JS.API.DIRECT.GET.north_ARTIFACTS.north.v1.artifact.*.*", ""),
        (&next, r#"{"batch":1,"no_wait":true}"#),
    ] {
        agent.publish(call, Some(target), &[], body);
    }
    assert!(agent.settle().is_empty(), "{target}");
}

/// The place of a stream's last message.
fn last(world: &World, kind: &str) -> u64 {
    world.state(&NORTH, kind)["last_seq"].as_u64().expect("a number")
}

#[test]
fn what_the_server_is_made_to_deliver_changes_no_other_execution() {
    std::thread::scope(|both| {
        for more in acks_in_both_shapes() {
            both.spawn(move || attack(&World::with(&accounts(&["Writer", "Editor"]), &more)));
        }
    });
}

fn attack(world: &World) {
    let run = |role: &str, args: &[&str]| world.ok(&NORTH, role, args);
    run("provisioner", &["mesh", "provision", "--shards", "2"]);
    let approval: Value = serde_json::from_str(APPROVAL).unwrap();
    world.write("approve.json", &approval["definition"].to_string());
    let executor = world.serve(&NORTH, "executor", &["serve", "executor"]);
    let _agents = [("Writer", WRITER), ("Editor", EDITOR)].map(|(name, file)| {
        world.write(&format!("{name}.agent.yaml"), file);
        world.serve(&NORTH, name, &["serve", "agent", &format!("{name}.agent.yaml")])
    });
    run("admin", &["workflow", "deploy", "approve.json"]);
    for id in ["victim", "second"] {
        world.ends(&NORTH, "client", &["run", "approve", "--mesh", "--wait", "--id", id], 8);
    }

    // A task of the agent's own, made as executors make them, to have it delivered elsewhere.
    let me = NORTH.user("agent");
    let mut root = world.wire(&NORTH, "root");
    let headers = [("Nats-Expected-Stream", "north_TASKS"), ("Nats-Expected-Last-Subject-Sequence", "0")];
    root.request_with(&format!("north.v1.task.{me}.e.t"), &headers, "a task").unwrap();
    let config = json!({"stream_name": "north_TASKS", "config": {"durable_name": format!("agent-{me}"),
        "ack_policy": "explicit", "ack_wait": 100_000_000, "filter_subject": format!("north.v1.task.{me}.>")}});
    let call = format!("$JS.API.CONSUMER.CREATE.north_TASKS.agent-{me}.north.v1.task.{me}.>");
    assert!(!root.request(&call, &config.to_string()).unwrap().body.contains("error"));

    let before = ["COMMANDS", "JOURNAL"].map(|kind| last(world, kind));
    let mut agent = world.wire(&NORTH, "agent");
    let cancel =
        CancelCommand { execution: ExecutionId::parse("victim").unwrap(), reason: "forged".to_owned() };
    let cancel = Command::Cancel(cancel).to_json();
    let mut card: Value =
        serde_json::from_str(&run("client", &["agent", "card", "Writer", "--mesh", "-o", "json"])).unwrap();
    card["description"] = json!("Forged.");
    let commit = [("Sinew-Commit", "forged")];
    let targets = [
        "north.v1.journal.0",
        "north.v1.journal.1",
        "north.v1.command.0.cancel.n-admin.f1",
        "north.v1.command.1.cancel.n-admin.f1",
        "north.v1.event.approve.victim.command",
        "north.v1.query.0",
        "north.v1.history.victim",
        "_INBOX_n-client.x",
    ];
    for target in targets {
        deliver(&mut agent, target);
    }
    for shard in 0..2 {
        forge(&mut agent, shard, &format!("north.v1.command.{shard}.cancel.n-admin.f2"), &[], &cancel);
        forge(&mut agent, shard + 2, &format!("north.v1.journal.{shard}"), &commit, "no commit at all");
    }
    forge(&mut agent, 4, "north.v1.card.Writer", &[], &card.to_string());
    forge(&mut agent, 5, "north.v1.workflow.approve", &[], "{}");

    // It came, so the server does this; and it did nothing.
    let came = ["COMMANDS", "JOURNAL"].map(|kind| last(world, kind));
    assert!(came[0] >= before[0] + 4 && came[1] >= before[1] + 4, "{before:?} became {came:?}");
    // The forged card has taken the place of the true one, which comes again before long; nobody believes it meanwhile.
    let shown = world
        .command(&NORTH, "client", &["agent", "card", "Writer", "--mesh", "-o", "json"])
        .output()
        .unwrap();
    assert!(!String::from_utf8_lossy(&shown.stdout).contains("Forged."), "{shown:?}");
    assert_eq!(run("client", &["workflow", "list", "--mesh", "-o", "name"]), "approve");
    let approved = run("client", &["approval", "approve", "victim", "-o", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&approved).unwrap()["by"], NORTH.user("client"));
    run("client", &["execution", "watch", "victim", "-q"]);
    // An executor that reads the journals anew finds the same.
    drop(executor);
    let _executor = world.serve(&NORTH, "executor", &["serve", "executor"]);
    run("client", &["approval", "approve", "second"]);
    run("client", &["execution", "watch", "second", "-q"]);
    for id in ["victim", "second"] {
        let told: Value =
            serde_json::from_str(&run("operator", &["execution", "describe", id, "-o", "json"])).unwrap();
        assert_eq!(told["status"], "succeeded", "{told:#}");
        let commands = told["commands"].as_array().map_or(0, Vec::len);
        assert_eq!(commands, 1, "{told:#}");
    }
    let aside = run("admin", &["mesh", "quarantine", "list", "-o", "json"]);
    let aside: Value = serde_json::from_str(&aside).unwrap();
    assert!(aside.as_array().unwrap().len() >= 4, "{aside:#}");
}

/// A user who may read or acknowledge one message can make the server obey an answer without a body, whatever the server's
/// configuration: see [`Role::opens`](sinew_protocol::permission::Role::opens). A server that refuses is right, too.
#[test]
fn an_empty_answer_is_obeyed_as_a_call() {
    let world = World::new("");
    let mut root = world.wire(&NORTH, "root");
    let info = root.request("$SYS.REQ.USER.INFO", "").unwrap().body;
    if serde_json::from_str::<Value>(&info).unwrap()["server"]["ver"] != "2.15.1" {
        eprintln!("another server: nobody has looked whether it does this");
        return;
    }
    let mut agent = world.wire(&NORTH, "agent");
    let call = "$JS.API.DIRECT.GET.north_ARTIFACTS.north.v1.artifact.g.none";
    for (reply, what) in
        [("$JS.API.STREAM.PURGE.x", "\"messages\":0"), ("$JS.API.STREAM.DELETE.x", "not found")]
    {
        root.request("$JS.API.STREAM.CREATE.x", r#"{"name":"x","subjects":["x.>"]}"#).unwrap();
        assert!(root.request("x.y", "kept").unwrap().body.contains("\"seq\""));
        assert!(!agent.may_publish(reply));
        agent.publish(call, Some(reply), &[], "");
        assert!(agent.settle().is_empty());
        let until = Instant::now() + Duration::from_secs(10);
        while !root.request("$JS.API.STREAM.INFO.x", "").unwrap().body.contains(what) {
            assert!(Instant::now() < until, "{reply} does nothing: the words about it can go");
        }
    }
}
