//! A language model's server of the test's own, which counts the requests that it gets.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// Longer than any request takes to arrive.
const PATIENCE: Duration = Duration::from_mins(1);

/// The server. It ends with the test's process.
pub(crate) struct ModelServer {
    pub url: String,
    script: Arc<Script>,
}

/// Answers of a server, and the requests that it received.
struct Script {
    /// Messages of the model, by the number of its earlier messages in the request; the last one
    /// repeats.
    answers: Vec<Value>,
    /// The answer that is never given when it is requested for the first time.
    lost: Option<usize>,
    bodies: Mutex<Vec<Value>>,
    arrived: Condvar,
}

impl ModelServer {
    /// Starts one that answers each request with `{"ok": true}` as the text of the model.
    pub(crate) fn start() -> Self {
        Self::with(vec![json!({ "role": "assistant", "content": "{\"ok\": true}" })], None)
    }

    /// Starts one with these messages of the model. The first request for the message with the number
    /// `lost` is not answered.
    pub(crate) fn with(answers: Vec<Value>, lost: Option<usize>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let script = Arc::new(Script { answers, lost, bodies: Mutex::default(), arrived: Condvar::new() });
        let served = Arc::clone(&script);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let script = Arc::clone(&served);
                std::thread::spawn(move || answer(stream, &script));
            }
        });
        Self { url, script }
    }

    /// Number of requests to the model so far.
    pub(crate) fn calls(&self) -> usize {
        self.requests().len()
    }

    /// Returns the requests so far.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.script.bodies.lock().unwrap().clone()
    }

    /// Waits for so many requests.
    pub(crate) fn wait_for(&self, count: usize) {
        let bodies = self.script.bodies.lock().unwrap();
        let waited = self.script.arrived.wait_timeout_while(bodies, PATIENCE, |bodies| bodies.len() < count);
        let (bodies, timed_out) = waited.unwrap();
        assert!(!timed_out.timed_out(), "the model received {} of {count} requests", bodies.len());
    }
}

/// Returns the file of an agent that asks such a server.
pub(crate) fn model_agent(name: &str, url: &str) -> String {
    format!(
        "name: {name}\ndescription: Asks a model.\noutput_schema: {{type: object}}\nrun:\n  model:\n    \
         use: [main]\n    models:\n      main: {{provider: openai, model: fake, url: '{url}', allow_private: true, \
         caps: {{stream: false}}, price: {{input: 1, output: 2}}}}\n"
    )
}

fn answer(stream: TcpStream, script: &Script) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body: Value = serde_json::from_slice(&body).ok()?;
    let messages = body["messages"].as_array()?;
    let turn = messages.iter().filter(|message| message["role"] == "assistant").count();
    let mut bodies = script.bodies.lock().unwrap();
    let is_first = !bodies.iter().any(|earlier| earlier["messages"] == body["messages"]);
    bodies.push(body);
    drop(bodies);
    script.arrived.notify_all();
    if is_first && script.lost == Some(turn) {
        // Until the agent gives up.
        return reader.read(&mut [0]).ok().map(drop);
    }
    let message = script.answers.get(turn).or(script.answers.last())?;
    let finish = if message["tool_calls"].is_array() { "tool_calls" } else { "stop" };
    let answer = json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "fake",
        "choices": [{ "index": 0, "message": message, "finish_reason": finish }],
        "usage": { "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 },
    })
    .to_string();
    let mut stream = stream;
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        answer.len()
    );
    stream.write_all((head + &answer).as_bytes()).ok()
}
