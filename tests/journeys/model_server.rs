//! A language model's server of the test's own, which counts the requests that it gets.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

/// The server. It ends with the test's process.
pub(crate) struct ModelServer {
    pub url: String,
    calls: Arc<AtomicUsize>,
}

impl ModelServer {
    /// Starts one that answers each request with `{"ok": true}` as the text of the model.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || answer(stream, &counted));
            }
        });
        Self { url, calls }
    }

    /// Number of requests to the model so far.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
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

fn answer(stream: TcpStream, calls: &AtomicUsize) -> Option<()> {
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
    calls.fetch_add(1, Ordering::SeqCst);
    let message = json!({ "role": "assistant", "content": "{\"ok\": true}" });
    let answer = json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "fake",
        "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
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
