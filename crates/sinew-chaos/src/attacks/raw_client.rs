//! A NATS client that sends arbitrary bytes, and survives crashes of servers.

use std::io::{Error, ErrorKind};

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Password of all users of such a run.
pub(super) const PASSWORD: &str = "not-a-secret-7f3a";

/// A connection without validation.
pub(super) struct RawClient(BufReader<TcpStream>);

impl RawClient {
    /// Connects to the server at this port.
    pub(super) async fn open(port: u16, user: &str) -> std::io::Result<Self> {
        let mut client = Self(BufReader::new(TcpStream::connect(("127.0.0.1", port)).await?));
        let hello =
            json!({"verbose": false, "pedantic": false, "headers": true, "user": user, "pass": PASSWORD});
        client.write(format!("CONNECT {hello}\r\n").as_bytes()).await?;
        match client.flush().await? {
            0 => Ok(client),
            _ => Err(Error::new(ErrorKind::PermissionDenied, "the server refuses the login")),
        }
    }

    /// Publishes arbitrary bytes as subject, headers and body.
    pub(super) async fn publish(&mut self, subject: &[u8], block: &[u8], body: &[u8]) -> std::io::Result<()> {
        let sizes = format!(" {} {}\r\n", block.len(), block.len() + body.len());
        self.write(&[b"HPUB ", subject, sizes.as_bytes(), block, body, b"\r\n"].concat()).await
    }

    /// Waits until the server has processed all messages. Returns how many it refused.
    pub(super) async fn flush(&mut self) -> std::io::Result<usize> {
        self.write(b"PING\r\n").await?;
        let mut refused = 0;
        loop {
            let mut line = Vec::new();
            if self.0.read_until(b'\n', &mut line).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            match line.trim_ascii_end() {
                b"PONG" => return Ok(refused),
                b"PING" => self.write(b"PONG\r\n").await?,
                line if line.starts_with(b"-ERR") => refused += 1,
                _ => {}
            }
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.get_mut().write_all(bytes).await
    }
}
