//! `sinew chat`, `agent log` and `model`: in one process and on a mesh.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::World;
use crate::transcripts::pty::Watched;

const CLERK: &str = r#"
name: Clerk
run:
  model:
    use: [main]
    session: {keep: 1h}
    models:
      main: {provider: script, answers: [{call: {pay: {amount: 5}}}, {text: "Paid."}]}
    tools:
      - script: {name: pay, input_schema: {type: object, properties: {amount: {type: number}}}, source: "def pay(args): return 'ok'"}
        effect: once
        APPROVE
"#;

/// Output of a chat with these lines: its answers, and its other words.
fn talk(world: &World, args: &[&str], lines: &str) -> (String, String) {
    let mut command = world.command(args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let written = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(written.stdout), text(written.stderr));
    assert!(written.status.success(), "{out}{err}");
    (out, err)
}

#[test]
fn a_chat_with_a_file_asks_its_questions_here() {
    let world = World::at(String::new());
    world.write("clerk.agent.yaml", &CLERK.replace("APPROVE", "approve: {when: \"args['amount'] > 3\"}"));
    for (answer, decision) in
        [("y: as usual", "allowed by ada: as usual"), ("no", "refused by ada"), ("", "refused")]
    {
        let lines = format!("pay\n{answer}\n/cost\n/log\n/nonsense\n/exit\n");
        let (out, err) = talk(&world, &["chat", "Clerk", "--local"], &lines);
        assert_eq!(out, "Paid.\n", "{err}");
        for words in [
            "Clerk: May the agent call pay?",
            "{\"amount\":5}",
            "1 message, 2 turns",
            decision,
            "/nonsense is not a command",
        ] {
            assert!(err.contains(words), "{answer}: {words:?} is missing in {err}");
        }
        assert_eq!(err.contains("Clerk: calls pay"), answer.starts_with('y'), "{err}");
    }
    // A failure of one turn does not end the chat, and programs read one document a line.
    let (out, _) = talk(&world, &["chat", "Clerk", "--local", "-o", "jsonl"], "one\ny\ntwo\ny\n");
    let answers: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), 2, "{out}");
    assert!(answers.iter().all(|answer| answer["output"] == json!({"text": "Paid."})), "{out}");
}

/// A server that speaks as OpenAI does: it says a part of the answer, and the rest when it is told to.
fn slow_model(go_on: mpsc::Receiver<()>) -> (u16, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = BufReader::new(stream.try_clone().unwrap());
        let (mut line, mut length) = (String::new(), 0);
        while asked.read_line(&mut line).unwrap() > 2 {
            if let Some(size) = line.to_lowercase().strip_prefix("content-length:") {
                length = size.trim().parse().unwrap();
            }
            line.clear();
        }
        asked.read_exact(&mut vec![0; length]).unwrap();
        let piece = |delta: &Value, finish: Value| {
            let chunk = json!({
                "id": "1", "object": "chat.completion.chunk", "created": 1, "model": "slow",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            });
            format!("data: {chunk}\n\n")
        };
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let first = json!({"role": "assistant", "content": "The first part, "});
        write!(stream, "{head}").unwrap();
        // Longer than what is collected before a piece is shown.
        write!(stream, "{}", piece(&first, Value::Null)).unwrap();
        let more = json!({"content": "so long that it is shown. ".repeat(12)});
        write!(stream, "{}", piece(&more, Value::Null)).unwrap();
        stream.flush().unwrap();
        go_on.recv().unwrap();
        let last = json!({"content": "The last part."});
        write!(stream, "{}{}data: [DONE]\n\n", piece(&last, Value::Null), piece(&json!({}), json!("stop")))
            .unwrap();
    });
    (port, served)
}

#[test]
fn a_chat_on_a_terminal_shows_an_answer_while_it_arrives() {
    let world = World::at(String::new());
    let (tell, told) = mpsc::channel();
    let (port, served) = slow_model(told);
    let agent = format!(
        "name: Slow\nrun:\n  model:\n    use: [main]\n    models:\n      main: {{provider: openai, model: slow, url: \
         'http://127.0.0.1:{port}/v1', allow_private: true}}\n"
    );
    world.write("slow.agent.yaml", &agent);
    let mut screen = Watched::start(world.command(&["chat", "Slow", "hello", "--local", "--trust"]), 400, 50);
    let patience = Duration::from_mins(2);
    screen.wait_for("the first part", patience, |seen| seen.contains("so long that it is shown."));
    // Only now the server says the rest.
    tell.send(()).unwrap();
    screen.wait_for("the last part", patience, |seen| seen.contains("The last part."));
    screen.typed("/exit\n");
    let (code, seen) = screen.ended(patience);
    assert_eq!(code, Some(0), "{seen}");
    assert_eq!(seen.matches("The first part").count(), 1, "what was streamed is not shown again: {seen}");
    served.join().unwrap();
}

#[test]
fn models_of_agent_files_are_listed_and_asked() {
    let world = World::at(String::new());
    world.write("clerk.agent.yaml", &CLERK.replace("APPROVE", "approve: false"));
    let other = "name: Other\nrun:\n  model:\n    use: [far]\n    models:\n      far: {provider: openai, model: gpt, url: 'http://127.0.0.1:9/v1', key: '${env:NO_SUCH_KEY}', \
                 price: {input: 1, output: 2}}\n";
    world.write("other.agent.yaml", other);
    let all = world.json(&["model", "list"]);
    let row = |name: &str| all.as_array().unwrap().iter().find(|row| row["alias"] == name).unwrap().clone();
    assert_eq!((&row("main")["provider"], &row("main")["key"]), (&json!("script"), &Value::Null));
    assert_eq!(
        (&row("far")["key"], &row("far")["key_is_set"], &row("far")["price"]["output"]),
        (&json!("NO_SUCH_KEY"), &json!(false), &json!(2.0))
    );
    assert!(world.ok(&["model", "ping", "main", "--trust"]).starts_with("Clerk main responded in "));
    let refused = world.run(&["model", "ping", "far"]);
    let out = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(
        out.contains("Other far did not respond: model 'far' needs the environment variable 'NO_SUCH_KEY', which is not set"),
        "{out}"
    );
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn a_chat_with_an_agent_of_a_mesh_asks_its_questions_here() {
    let (world, _executor) = World::new();
    world.write("clerk.agent.yaml", &CLERK.replace("APPROVE", "approve: true"));
    let _agent = world.serve(&["serve", "agent", "clerk.agent.yaml"]);
    world.online(&["Clerk"]);
    let (out, err) = talk(&world, &["chat", "Clerk", "--mesh"], "pay\nyes, as agreed\n");
    assert_eq!(out, "Paid.\n", "{err}");
    let asked = world.json(&["execution", "list", "--workflow", "ask:person"]);
    assert_eq!(asked.as_array().map(Vec::len), Some(1), "{asked}");
}

#[test]
fn a_chat_with_an_agent_of_a_mesh_is_a_session() {
    let (world, _executor) = World::new();
    world.write("clerk.agent.yaml", &CLERK.replace("APPROVE", "approve: false"));
    let _agent = world.serve(&["serve", "agent", "clerk.agent.yaml"]);
    world.online(&["Clerk"]);
    let (out, err) = talk(&world, &["chat", "Clerk", "--mesh", "--session", "s"], "one\ntwo\n/log\n/cost\n");
    assert_eq!(out, "Paid.\nPaid.\n", "{err}");
    for words in
        ["Clerk: calls pay", "attempt 1, 1 earlier conversation", "2 messages, 4 turns, 2 tool calls"]
    {
        assert!(err.contains(words), "{words:?} is missing in {err}");
    }
    // Another process of the same caller goes on; another session begins afresh.
    for (session, earlier) in [("s", ", 2 earlier conversations"), ("t", "")] {
        let (_, err) = talk(&world, &["chat", "Clerk", "three", "--mesh", "--session", session], "/log\n");
        assert!(err.contains(&format!("attempt 1{earlier}\n")), "{session}: {err}");
    }
    let flow = "name: ask\nworkflow:\n  description: asks\n  version: '1'\n  nodes: [{id: answer, type: agent, agent_name: Clerk, input: {text: hi}}]\n  \
                output_mapping: {text: '{{answer.output.text}}'}\n";
    world.write("ask.yaml", flow);
    world.ok(&["run", "ask.yaml", "--mesh", "--wait", "--id", "asked"]);
    let plain = world.ok(&["agent", "log", "asked"]);
    assert!(plain.starts_with("answer  Clerk\n"), "{plain}");
    assert!(plain.contains("turn 0: main answered") && plain.ends_with("output"), "{plain}");
    assert!(!plain.contains("Paid."), "words are shown on request only: {plain}");
    let all = world.json(&["agent", "log", "asked", "answer", "--content"]);
    let kinds: Vec<&str> =
        all[0]["records"].as_array().unwrap().iter().map(|row| row["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["begin", "ask", "turn", "call", "done", "ask", "turn", "end"]);
    assert_eq!(all[0]["records"][7]["content"], json!({"text": "Paid."}));
    world.ends(&["agent", "log", "asked", "nobody"], 3);
    let described = world.ok(&["execution", "describe", "asked"]);
    assert!(described.contains("models\n  answer: 2 turns, 1 call, "), "{described}");
    let models = &world.json(&["execution", "describe", "asked"])["models"];
    assert_eq!((&models[0]["turns"], &models[0]["tool_calls"]), (&json!(2), &json!(1)), "{models}");
}
