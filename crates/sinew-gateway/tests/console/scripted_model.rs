//! A language model that follows a script: a server of the OpenAI protocol, one answer after the other, each piece when the test
//! lets it go.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::world::ConsoleWorld;

/// Price in USD per million tokens.
const PRICE: (f64, f64) = (1_000.0, 2_000.0);

/// Servers of a scripted model end with the test.
pub(super) struct ScriptedModel {
    port: u16,
    /// Pieces that may be sent.
    pieces: Arc<Semaphore>,
}

/// One answer: pieces of a stream.
type Answer = Vec<Value>;

impl ScriptedModel {
    /// A model that gives these answers, the last one again and again.
    async fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let pieces = Arc::new(Semaphore::new(0));
        let gate = Arc::clone(&pieces);
        tokio::spawn(async move {
            let mut given = 0;
            while let Ok((stream, _)) = listener.accept().await {
                let answer = answers[given.min(answers.len() - 1)].clone();
                given += 1;
                tokio::spawn(answer_request(stream, answer, Arc::clone(&gate)));
            }
        });
        Self { port, pieces }
    }

    /// Lets so many pieces go.
    pub(super) fn let_go(&self, pieces: usize) {
        self.pieces.add_permits(pieces);
    }
}

async fn answer_request(mut stream: TcpStream, answer: Answer, gate: Arc<Semaphore>) {
    read_request(&mut stream).await;
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    if stream.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    for piece in answer {
        let Ok(permit) = gate.acquire().await else { return };
        permit.forget();
        if stream.write_all(format!("data: {piece}\n\n").as_bytes()).await.is_err() {
            return;
        }
    }
    let _ = stream.write_all(b"data: [DONE]\n\n").await;
}

/// Reads a request with its body.
async fn read_request(stream: &mut TcpStream) {
    let mut read = Vec::new();
    let mut bytes = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&read).to_ascii_lowercase();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
            let length: usize = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
            let begin = read.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            if read.len() >= begin + length {
                return;
            }
        }
        match stream.read(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(count) => read.extend_from_slice(&bytes[..count]),
        }
    }
}

fn end(reason: &str) -> Value {
    json!({"choices": [{"delta": {}, "finish_reason": reason}]})
}

fn used(input: u64, output: u64) -> Value {
    json!({"choices": [], "usage": {"prompt_tokens": input, "completion_tokens": output}})
}

fn words(text: &str) -> Value {
    json!({"model": "scripted-1", "choices": [{"delta": {"content": text}}]})
}

/// Serves `clerk`, a model agent that calls a tool and then says two pieces. Four pieces belong to the first answer.
pub(super) async fn serve_clerk(world: &ConsoleWorld, first: &str, second: &str) -> ScriptedModel {
    let call =
        json!({"index": 0, "id": "c1", "function": {"name": "total", "arguments": "{\"a\": [1, 2, 3]}"}});
    let model = ScriptedModel::start(vec![
        vec![
            json!({"model": "scripted-1", "choices": [{"delta": {"tool_calls": [call]}}]}),
            end("tool_calls"),
            used(100, 10),
        ],
        vec![words(first), words(second), end("stop"), used(50, 5)],
    ])
    .await;
    let file = json!({
        "name": "clerk",
        "description": "Adds up and tells",
        "run": { "model": {
            "use": ["main"],
            "models": { "main": {
                "provider": "openai", "model": "scripted", "url": format!("http://127.0.0.1:{}/v1", model.port),
                "allow_private": true, "price": {"input": PRICE.0, "output": PRICE.1},
            } },
            "instruction": "You are a clerk who adds up.",
            "tools": [{ "script": {
                "name": "total",
                "input_schema": {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "number"}}}, "required": ["a"]},
                "source": "def total(args):\n    return sum(args['a'])",
            } }],
        } },
    });
    let path = std::path::Path::new("clerk.agent.yaml");
    let agent = sinew_agents::Agent::from_text(path, &file.to_string())
        .unwrap_or_else(|found| panic!("{}", sinew_source::render_text(&found, false)));
    let own = world.mesh.connect("clerk").await;
    let stop = sinew_agent::CancellationToken::new();
    tokio::spawn(
        async move { sinew_operations::served_agents::serve_agent(Arc::new(agent), own, stop).await },
    );
    world.mesh.wait_for_card("clerk").await;
    model
}
