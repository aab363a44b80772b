//! Latency of a model's text from the provider to an observing client, through agent and mesh.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sinew_agents::Agent;
use sinew_mesh::Mesh;
use sinew_operations::agent_calls::{AgentQuestion, ask_agent};
use sinew_operations::failure::Failure;
use sinew_operations::served_agents::serve_agent;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::bench_failure::cannot_go_on;

/// Number of deltas of the answer, each sent after the previous one was received.
const PIECES: usize = 200;
/// Number of deltas in a smoke test.
const SMOKE_PIECES: usize = 4;
/// Bytes of a delta, which an agent forwards immediately.
const PIECE_BYTES: usize = 300;
/// Timeout of the whole answer.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);

/// Returns the milliseconds from the provider's write to the observing client, one per delta.
pub(crate) async fn delta_times(mesh: &Mesh, smoke: bool) -> Result<Vec<f64>, Failure> {
    let pieces = if smoke { SMOKE_PIECES } else { PIECES };
    let failed = |error: std::io::Error| cannot_go_on(&error.to_string());
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let (arrived, arrivals) = mpsc::unbounded_channel();
    let written = Arc::new(Mutex::new(Instant::now()));
    let provider = tokio::spawn(provide(listener, pieces, Arc::clone(&written), arrivals));
    let file = format!(
        "name: bench_speaker\ndescription: Speaks.\nrun: {{model: {{use: [main], models: {{main: {{provider: openai, model: m, \
         url: 'http://{address}/v1', allow_private: true}}}}}}}}\n"
    );
    let agent =
        Agent::from_text(std::path::Path::new("bench.agent.yaml"), &file).map_err(Failure::diagnostics)?;
    let stop = CancellationToken::new();
    let serving = tokio::spawn(serve_agent(Arc::new(agent), mesh.clone(), stop.clone()));
    let cards = mesh.cards().follow();
    cards.wait_for("bench_speaker").await;
    let (progress, mut heard) = mpsc::unbounded_channel();
    let question = AgentQuestion {
        agent: "bench_speaker",
        input: serde_json::json!({"text": "Speak."}),
        instruction: None,
        context: None,
        timeout: Some(ANSWER_TIMEOUT),
        progress: Some(progress),
        cancel: CancellationToken::new(),
    };
    let mut asked = std::pin::pin!(ask_agent(mesh, question));
    let mut times = Vec::new();
    let answer = loop {
        tokio::select! {
            biased;
            Some(value) = heard.recv() => {
                if value["type"] == "text" && times.len() < pieces {
                    let written = *written.lock().unwrap_or_else(PoisonError::into_inner);
                    times.push(written.elapsed().as_secs_f64() * 1e3);
                    // Fails if the provider ended; the answer has the reason.
                    let _gone = arrived.send(());
                }
            }
            answer = &mut asked => break answer?,
        }
    };
    answer.output.map_err(|fault| cannot_go_on(&fault.message))?;
    stop.cancel();
    provider.abort();
    // Ends when the token is cancelled.
    let _ended = serving.await;
    if times.len() < pieces {
        return Err(cannot_go_on("not every piece of the answer arrived by itself"));
    }
    Ok(times)
}

/// Sends one answer, each delta after the previous one was received.
async fn provide(
    listener: TcpListener,
    pieces: usize,
    written: Arc<Mutex<Instant>>,
    mut arrivals: mpsc::UnboundedReceiver<()>,
) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    read_request(&mut stream).await?;
    stream
        .write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        )
        .await?;
    for _ in 0..pieces {
        *written.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let text = "x".repeat(PIECE_BYTES);
        send(&mut stream, &serde_json::json!({"choices": [{"delta": {"content": text}}]}).to_string())
            .await?;
        if arrivals.recv().await.is_none() {
            return Ok(());
        }
    }
    send(&mut stream, r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#).await?;
    send(&mut stream, "[DONE]").await?;
    stream.write_all(b"0\r\n\r\n").await
}

/// Sends an event as one chunk.
async fn send(stream: &mut TcpStream, data: &str) -> std::io::Result<()> {
    let event = format!("data: {data}\n\n");
    stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await
}

/// Reads a request with its body.
async fn read_request(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).await?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        let Some(head) = text.find("\r\n\r\n") else { continue };
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
        if bytes.len() >= head + 4 + length.unwrap_or(0_usize) {
            return Ok(());
        }
    }
}
