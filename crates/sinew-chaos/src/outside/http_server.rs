//! A minimal HTTP server for external programs.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::Fallible;

/// Maximum bytes of a request.
const MAX_REQUEST_BYTES: usize = 8 << 20;

/// Stops a server on drop.
pub(super) struct ServerGuard(AbortHandle);

impl Drop for ServerGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A request.
pub(super) struct PlainRequest {
    pub(super) path: String,
    pub(super) headers: HashMap<String, String>,
    pub(super) body: Vec<u8>,
}

/// Serves on a free local port. Returns the address.
pub(super) async fn serve<F, Fut>(answer: F) -> Fallible<(String, ServerGuard)>
where
    F: Fn(PlainRequest, TcpStream) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Option<()>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    let answer = Arc::new(answer);
    let serving = tokio::spawn(async move {
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    if let Ok((mut stream, _)) = accepted {
                        let answer = Arc::clone(&answer);
                        open.spawn(async move {
                            let request = read_request(&mut stream).await?;
                            answer(request, stream).await
                        });
                    }
                }
                Some(_) = open.join_next() => {}
            }
        }
    });
    Ok((address, ServerGuard(serving.abort_handle())))
}

/// Reads one request; `None` if the connection closed before its end.
async fn read_request(stream: &mut TcpStream) -> Option<PlainRequest> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let mut lines = head.lines();
            let path = lines.next()?.split_whitespace().nth(1)?.to_owned();
            let headers: HashMap<String, String> = lines
                .filter_map(|line| line.split_once(':'))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
                .collect();
            let length: usize = headers.get("content-length").map_or(Some(0), |text| text.parse().ok())?;
            let body = &bytes[end + 4..];
            if body.len() >= length {
                return Some(PlainRequest { path, headers, body: body[..length].to_vec() });
            }
        }
        if bytes.len() > MAX_REQUEST_BYTES || stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// Sends a response with a complete body, and closes the connection.
pub(super) async fn respond(
    stream: &mut TcpStream,
    status: &str,
    media_type: &str,
    body: &str,
) -> Option<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).await.ok()?;
    stream.flush().await.ok()
}

/// Starts an event stream.
pub(super) async fn begin_events(stream: &mut TcpStream) -> Option<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.flush().await.ok()
}

/// Sends one event.
pub(super) async fn send_event(stream: &mut TcpStream, data: &str) -> Option<()> {
    stream.write_all(format!("data: {data}\n\n").as_bytes()).await.ok()?;
    stream.flush().await.ok()
}
