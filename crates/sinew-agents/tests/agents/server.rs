//! A tiny HTTP server that follows a script, one connection per line of it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Answer of the server to one connection.
#[derive(Debug, Clone)]
pub(crate) enum Say {
    /// Status line rest, header lines, body; the length is added.
    Reply(&'static str, &'static str, Vec<u8>),
    /// These bytes as they are.
    Raw(&'static [u8]),
    /// Stays silent until the client closes the connection.
    Hang,
    /// A body without end.
    Endless,
}

pub(crate) fn json(body: &str) -> Say {
    Say::Reply("200 OK", "Content-Type: application/json; charset=utf-8", body.as_bytes().to_vec())
}

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    pub(crate) asked: Arc<Notify>,
}

impl Server {
    pub(crate) async fn start(script: Vec<Say>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Self { address, seen: Arc::default(), asked: Arc::default() };
        let serving = server.clone();
        tokio::spawn(async move {
            for say in script {
                let (stream, _) = listener.accept().await.unwrap();
                serving.serve(stream, say).await;
            }
        });
        server
    }

    pub(crate) fn url(&self, rest: &str) -> String {
        format!("http://{}{rest}", self.address)
    }

    /// The requests so far, whole.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }

    async fn serve(&self, mut stream: TcpStream, say: Say) {
        let request = read_request(&mut stream).await;
        self.seen.lock().unwrap().push(request);
        self.asked.notify_one();
        match say {
            Say::Reply(status, headers, body) => {
                let break_ = if headers.is_empty() { "" } else { "\r\n" };
                let head = format!(
                    "HTTP/1.1 {status}\r\n{headers}{break_}Content-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                stream.write_all(head.as_bytes()).await.unwrap();
                // The client may have seen enough already.
                let _gone = stream.write_all(&body).await;
            }
            Say::Raw(bytes) => {
                stream.write_all(bytes).await.unwrap();
            }
            Say::Hang => {
                let _gone = stream.read_to_end(&mut Vec::new()).await;
            }
            Say::Endless => {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")
                    .await
                    .unwrap();
                while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
            }
        }
    }
}

pub(crate) async fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        if stream.read_buf(&mut bytes).await.unwrap() == 0 {
            return text;
        }
    }
}
