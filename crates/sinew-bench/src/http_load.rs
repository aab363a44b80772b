//! A minimal HTTP client for calls and streams, so that its own cost does not affect measurements.

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

/// Timeout of a call, and of an event to all streams.
const PATIENCE: Duration = Duration::from_mins(1);
/// Number of streams to open concurrently.
const OPENED_AT_ONCE: usize = 64;

/// Returns the request of a call, identical over the mesh and HTTP.
fn call_body(id: &str) -> Vec<u8> {
    let message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"data": {"text": TEXT}}]});
    json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}})
        .to_string()
        .into_bytes()
}

fn fresh_id() -> String {
    uuid::Uuid::now_v7().simple().to_string()
}

/// Calls an agent through its A2A endpoint on the mesh.
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

/// Makes the same calls through a gateway, over one connection per concurrent call.
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

/// Starts a waiting task as a caller of the gateway, which hides others' tasks. Returns its execution.
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
        // A new gateway discovers workflows at the next announcement of their executor.
        let is_unknown = answer["code"] == sinew_protocol::code::GATEWAY_PATH_UNKNOWN.as_str();
        if !is_unknown || began.elapsed() > PATIENCE {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let id = answer.pointer("/result/task/id").and_then(Value::as_str);
    let id = id.ok_or_else(|| BenchProcessError(format!("a task was not started: {answer}")))?;
    ExecutionId::parse(id).map_err(broken)
}

/// Returns start and end of the body of the first HTTP message; `None` until it is complete.
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

/// Open streams of one task.
#[derive(Default)]
pub(crate) struct OpenStreams(Vec<TcpStream>);

impl OpenStreams {
    /// Opens streams of a task up to `total`, and waits for the first event of each.
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

    /// Waits until all streams received the next event with this text, and closes them. Measures
    /// durations since `began`.
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

/// Reads up to these bytes.
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

/// A persistent connection.
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

    /// Sends a request and reads the whole response, which must have a content length.
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

    /// Fetches a page. Fails unless the status is 200.
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
