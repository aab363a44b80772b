//! Calls and streams over HTTP: a client that does no more than it must, so that the gateway is measured.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use sinew_mesh::{HeaderMap, Mesh};
use sinew_protocol::ExecutionId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::child::{BenchProcessError, TEXT, broken};
use crate::cluster::DIRECT;
use crate::order::MeasuredTime;

/// Time for one call, and for one event to reach all streams.
const PATIENCE: Duration = Duration::from_mins(1);
/// Streams that are opened at once.
const OPENED_AT_ONCE: usize = 64;

/// The request of a call: the same over the mesh and over HTTP.
fn call_body(id: &str) -> Vec<u8> {
    let message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"data": {"text": TEXT}}]});
    json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}})
        .to_string()
        .into_bytes()
}

fn fresh_id() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

/// Calls of an agent through its A2A endpoint on the mesh.
pub(crate) async fn mesh_calls(
    mesh: &Mesh,
    count: usize,
    at_once: usize,
) -> Result<MeasuredTime, BenchProcessError> {
    let began = Instant::now();
    let calls = (0..count).map(|_| async {
        let mut headers = HeaderMap::new();
        headers.insert("A2A-Version", "1.0");
        headers.insert("Content-Type", "application/json");
        let body = call_body(&fresh_id());
        let asked = Instant::now();
        let reply = mesh
            .services()
            .call_rpc(DIRECT, "SendMessage", headers, body.into(), PATIENCE)
            .await
            .map_err(broken)?;
        check_answer(&reply.body)?;
        Ok::<_, BenchProcessError>(asked.elapsed().as_secs_f64() * 1e6)
    });
    let each: Vec<f64> = futures_util::stream::iter(calls).buffer_unordered(at_once).try_collect().await?;
    Ok(MeasuredTime::of(began.elapsed().as_secs_f64(), each))
}

/// The same calls through a gateway, over as many connections as there are calls at once.
pub(crate) async fn gateway_calls(
    gateway: SocketAddr,
    count: usize,
    at_once: usize,
) -> Result<MeasuredTime, BenchProcessError> {
    let began = Instant::now();
    let mut lanes = tokio::task::JoinSet::new();
    for lane in 0..at_once {
        let calls = count / at_once + usize::from(lane < count % at_once);
        lanes.spawn(async move {
            let mut connection = HttpConnection::open(gateway).await?;
            let mut each = Vec::with_capacity(calls);
            for _ in 0..calls {
                let body = call_body(&fresh_id());
                let asked = Instant::now();
                let answer = connection.post(&format!("/agents/{DIRECT}"), &body).await?;
                check_answer(&answer)?;
                each.push(asked.elapsed().as_secs_f64() * 1e6);
            }
            Ok::<_, BenchProcessError>(each)
        });
    }
    let mut all = Vec::with_capacity(count);
    while let Some(each) = lanes.join_next().await {
        all.extend(each.map_err(broken)??);
    }
    Ok(MeasuredTime::of(began.elapsed().as_secs_f64(), all))
}

/// Starts a task that waits, as a caller of the gateway: tasks of others do not exist for it. Gives its execution.
pub(crate) async fn begin_task(
    gateway: SocketAddr,
    workflow: &str,
) -> Result<ExecutionId, BenchProcessError> {
    let message = json!({"messageId": fresh_id(), "role": "ROLE_USER", "parts": [{"data": {"text": TEXT}}]});
    let params = json!({"message": message, "configuration": {"returnImmediately": true}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}).to_string();
    let mut connection = HttpConnection::open(gateway).await?;
    let began = Instant::now();
    let answer: Value = loop {
        let answer = connection.post(&format!("/agents/{workflow}"), body.as_bytes()).await?;
        let answer: Value = serde_json::from_slice(&answer).map_err(broken)?;
        // A gateway that has just begun hears of the workflows with the next announcement of their executor.
        let is_unknown = answer["code"] == sinew_protocol::code::GATEWAY_PATH_UNKNOWN.as_str();
        if !is_unknown || began.elapsed() > PATIENCE {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let id = answer.pointer("/result/task/id").and_then(Value::as_str);
    let id = id.ok_or_else(|| BenchProcessError(format!("a task was not begun: {answer}")))?;
    ExecutionId::parse(id).map_err(broken)
}

/// Where the body of the first message of HTTP begins and ends. `None` until all of it is there.
pub(crate) fn whole_message(bytes: &[u8]) -> Result<Option<(usize, usize)>, BenchProcessError> {
    let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let length: usize = length.ok_or("a message has no length")?;
    let start = head + 4;
    Ok((bytes.len() >= start + length).then_some((start, start + length)))
}

fn check_answer(body: &[u8]) -> Result<(), BenchProcessError> {
    let state = b"TASK_STATE_COMPLETED";
    if body.windows(state.len()).any(|window| window == state) {
        return Ok(());
    }
    let text: String = String::from_utf8_lossy(body).chars().take(300).collect();
    Err(BenchProcessError(format!("a call was answered with {text}")))
}

/// Streams that stay open, all of one task.
#[derive(Default)]
pub(crate) struct OpenStreams(Vec<TcpStream>);

impl OpenStreams {
    /// Opens streams of a task until there are so many; each has had its first event.
    pub(crate) async fn open(
        &mut self,
        gateway: SocketAddr,
        path: &str,
        total: usize,
    ) -> Result<MeasuredTime, BenchProcessError> {
        let began = Instant::now();
        let missing = total.saturating_sub(self.0.len());
        let opened = (0..missing).map(|_| async {
            let mut stream = TcpStream::connect(gateway).await.map_err(broken)?;
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: {gateway}\r\na2a-version: 1.0\r\ncontent-length: 0\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.map_err(broken)?;
            read_until(&mut stream, b"\ndata: ").await?;
            Ok::<_, BenchProcessError>(stream)
        });
        let opened: Vec<TcpStream> =
            futures_util::stream::iter(opened).buffer_unordered(OPENED_AT_ONCE).try_collect().await?;
        self.0.extend(opened);
        Ok(MeasuredTime {
            seconds: began.elapsed().as_secs_f64(),
            number: self.0.len(),
            ..MeasuredTime::default()
        })
    }

    /// Waits until the next event with this text has reached all streams, each from `began` on; closes them.
    pub(crate) async fn reached(
        &mut self,
        began: Instant,
        text: &'static [u8],
    ) -> Result<MeasuredTime, BenchProcessError> {
        let mut reading = tokio::task::JoinSet::new();
        for mut stream in self.0.drain(..) {
            reading.spawn(async move {
                read_until(&mut stream, text).await?;
                Ok::<_, BenchProcessError>(began.elapsed().as_secs_f64() * 1e6)
            });
        }
        let mut all = Vec::with_capacity(reading.len());
        while let Some(each) = reading.join_next().await {
            all.push(each.map_err(broken)??);
        }
        Ok(MeasuredTime::of(began.elapsed().as_secs_f64(), all))
    }
}

/// Reads until these bytes have come.
async fn read_until(stream: &mut TcpStream, text: &[u8]) -> Result<(), BenchProcessError> {
    let mut bytes = Vec::new();
    let reading = async {
        while !bytes.windows(text.len()).any(|window| window == text) {
            if stream.read_buf(&mut bytes).await.map_err(broken)? == 0 {
                let text: String = String::from_utf8_lossy(&bytes).chars().take(300).collect();
                return Err(BenchProcessError(format!("a stream ended with {text}")));
            }
        }
        Ok(())
    };
    tokio::time::timeout(PATIENCE, reading).await.map_err(broken)?
}

/// A connection that is kept.
pub(crate) struct HttpConnection {
    stream: TcpStream,
    gateway: SocketAddr,
    bytes: Vec<u8>,
}

impl HttpConnection {
    pub(crate) async fn open(gateway: SocketAddr) -> Result<Self, BenchProcessError> {
        let stream = TcpStream::connect(gateway).await.map_err(broken)?;
        stream.set_nodelay(true).map_err(broken)?;
        Ok(Self { stream, gateway, bytes: Vec::new() })
    }

    /// Sends a request and reads the whole answer, whose length its head says.
    async fn post(&mut self, path: &str, body: &[u8]) -> Result<Vec<u8>, BenchProcessError> {
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\na2a-version: 1.0\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.gateway,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.exchange(&request).await
    }

    /// Reads a page, which must be there.
    pub(crate) async fn get(&mut self, path: &str) -> Result<Vec<u8>, BenchProcessError> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.gateway);
        let answer = self.exchange(request.as_bytes()).await?;
        if self.bytes.starts_with(b"HTTP/1.1 200") {
            return Ok(answer);
        }
        let text: String = String::from_utf8_lossy(&self.bytes).chars().take(600).collect();
        Err(BenchProcessError(format!("{path} was answered with {text}")))
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<Vec<u8>, BenchProcessError> {
        self.stream.write_all(request).await.map_err(broken)?;
        self.bytes.clear();
        loop {
            if let Some((start, end)) = whole_message(&self.bytes)? {
                return Ok(self.bytes[start..end].to_vec());
            }
            if self.stream.read_buf(&mut self.bytes).await.map_err(broken)? == 0 {
                return Err("the gateway closed a connection".into());
            }
        }
    }
}
