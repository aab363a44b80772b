//! A fake provider of a language model, and fake tools. Both record requests before they answer.

use std::sync::Arc;

use serde_json::{Value, json};
use sinew_agent::{Agent, CancellationToken, Failure};
use sinew_mesh::Mesh;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::kill_plan::{KillMoment, ProcessLife};
use super::ledger::RequestLedger;
use super::script::{ACT, LOOK, WorkId, answer, unanswered_calls};
use crate::Fallible;

/// Maximum bytes of a request.
const MAX_REQUEST_BYTES: usize = 1 << 20;

/// Answers chat completions until it is dropped.
pub(crate) async fn provide(listener: TcpListener, ledger: Arc<RequestLedger>) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    let ledger = Arc::clone(&ledger);
                    open.spawn(async move { provide_one(stream, &ledger).await });
                }
            }
            Some(_) = open.join_next() => {}
        }
    }
}

/// A raw request.
struct ProviderRequest {
    process: ProcessLife,
    body: Vec<u8>,
}

/// Reads one request; `None` if the connection closed before its end.
async fn read_request(stream: &mut TcpStream) -> Option<ProviderRequest> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
            let length: usize = value("content-length:")?.trim().parse().ok()?;
            let body = &bytes[end + 4..];
            if body.len() >= length {
                let process = ProcessLife::read(value("x-process:")?)?;
                return Some(ProviderRequest { process, body: body[..length].to_vec() });
            }
        }
        if bytes.len() > MAX_REQUEST_BYTES || stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

async fn provide_one(mut stream: TcpStream, ledger: &RequestLedger) -> Option<()> {
    let request = read_request(&mut stream).await?;
    let body: Value = serde_json::from_slice(&request.body).ok()?;
    let messages = body["messages"].as_array()?;
    let said = |role: &'static str| messages.iter().filter(move |message| message["role"] == role);
    let asked = said("user").next()?["content"].as_str()?;
    let conversation: u32 = asked.strip_prefix('c')?.parse().ok()?;
    let turn = said("assistant").count();
    let wrong = unanswered_calls(messages);
    if !wrong.is_empty() {
        ledger.state().problems.push(format!("c{conversation}: {}", wrong.join(", ")));
    }
    let thinks = ledger.note_ask(request.process, conversation, turn, &request.body);
    ledger.pass(conversation, turn, KillMoment::ModelAsked);
    sleep(thinks).await;
    let body = answer(conversation, turn).to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.ok()?;
    stream.flush().await.ok()?;
    ledger.pass(conversation, turn, KillMoment::ModelAnswered);
    Some(())
}

/// Serves both tools until `stop` is cancelled.
pub(crate) fn serve_tools(
    mesh: &Mesh,
    ledger: &Arc<RequestLedger>,
    stop: &CancellationToken,
) -> JoinSet<Fallible<()>> {
    let mut serving = JoinSet::new();
    for name in [LOOK, ACT] {
        let (mesh, stop, agent) = (mesh.clone(), stop.clone(), tool(name, Arc::clone(ledger)));
        serving.spawn(async move { Ok(agent.concurrency(64).serve(mesh, stop).await?) });
    }
    serving
}

fn tool(name: &'static str, ledger: Arc<RequestLedger>) -> Agent {
    let schema = json!({"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}});
    Agent::dynamic(name, Some(schema), None, move |input: Value, _| {
        let ledger = Arc::clone(&ledger);
        async move {
            let id = input["id"].as_str().and_then(WorkId::read);
            let id = id.ok_or_else(|| Failure::new("the id is not that of a call"))?;
            let works = ledger.note_work(name, id);
            ledger.pass(id.conversation, id.turn, KillMoment::ToolWorks);
            sleep(works).await;
            ledger.pass(id.conversation, id.turn, KillMoment::ToolAnswered);
            Ok(json!({ "id": id.text() }))
        }
    })
}
