//! Messages over the size limit on pipes. The transport would drop them without an answer, and the
//! client would wait for it; here they become a small request with the same id, which is refused.

use rmcp::model::{ErrorCode, ErrorData, ProtocolVersion};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader, DuplexStream};

/// Method of the request that replaces a message over the limit.
pub(super) const OVERSIZED: &str = "sinew/oversized";
/// Bytes between the pipe and the transport.
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum length of an id that is repeated.
const MAX_ID_BYTES: usize = 256;

/// Returns the error for a request that replaces an oversized message.
pub(super) fn oversized(params: Option<&Value>) -> ErrorData {
    let limit = params.and_then(|params| params["limit"].as_u64()).unwrap_or_default();
    ErrorData::new(ErrorCode::INVALID_REQUEST, format!("the message has more than {limit} bytes"), None)
}

/// Returns the lines of a reader, of at most `max_bytes` bytes each.
pub(super) fn limited<R>(reader: R, max_bytes: usize) -> DuplexStream
where
    R: AsyncRead + Send + Unpin + 'static,
{
    let (inside, outside) = tokio::io::duplex(BUFFER_BYTES);
    tokio::spawn(async move {
        // An error of either end closes the pipe, and with it the transport.
        let _closed = copy(BufReader::new(reader), inside, max_bytes).await;
    });
    outside
}

async fn copy<R: AsyncRead + Unpin>(
    mut reader: BufReader<R>,
    mut writer: DuplexStream,
    max_bytes: usize,
) -> std::io::Result<()> {
    let mut line = Vec::new();
    let mut oversized: Option<IdScanner> = None;
    loop {
        let available = reader.fill_buf().await?;
        if available.is_empty() {
            return writer.write_all(&line).await;
        }
        let newline = available.iter().position(|byte| *byte == b'\n');
        let taken = newline.map_or(available.len(), |at| at + 1);
        let bytes = &available[..taken];
        match &mut oversized {
            Some(scanner) => scanner.read(bytes),
            None if line.len() + taken <= max_bytes + 1 => line.extend_from_slice(bytes),
            None => {
                let mut scanner = IdScanner::default();
                scanner.read(&line);
                scanner.read(bytes);
                oversized = Some(scanner);
                line = Vec::new();
            }
        }
        reader.consume(taken);
        if newline.is_none() {
            continue;
        }
        let Some(scanner) = oversized.take() else {
            writer.write_all(&line).await?;
            line.clear();
            continue;
        };
        if let Some(id) = scanner.id() {
            let params = json!({ "limit": max_bytes, "_meta": required_meta() });
            let request = json!({"jsonrpc": "2.0", "id": id, "method": OVERSIZED, "params": params});
            writer.write_all(format!("{request}\n").as_bytes()).await?;
        } else {
            // A notification, or something that is not a message, gets no answer.
            tracing::warn!(max_bytes, "dropped a message without an id that is too large");
        }
    }
}

/// Returns the members without which MCP 2026-07-28 rejects a request; earlier versions ignore them.
fn required_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": ProtocolVersion::V_2026_07_28,
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// Finds the member `id` of an object without keeping the object.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "the state of a scanner")]
struct IdScanner {
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// Whether the next string of the object is a key.
    before_key: bool,
    key: Vec<u8>,
    value: Vec<u8>,
    is_value: bool,
    is_found: bool,
}

impl IdScanner {
    fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.read_byte(*byte);
        }
    }

    fn read_byte(&mut self, byte: u8) {
        let is_own = self.depth == 1;
        if self.in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            if is_own && self.before_key && self.in_string && self.key.len() < 8 {
                self.key.push(byte);
            }
            self.keep(byte);
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                if is_own && self.before_key {
                    self.key.clear();
                }
            }
            b'{' | b'[' => {
                self.depth += 1;
                self.before_key = self.depth == 1;
                self.is_value = false;
            }
            b'}' | b']' => {
                self.end_value(is_own);
                self.depth = self.depth.saturating_sub(1);
            }
            b',' if is_own => {
                self.end_value(true);
                self.before_key = true;
            }
            b':' if is_own && self.before_key => {
                self.before_key = false;
                self.is_value = !self.is_found && self.key == b"id";
                return;
            }
            _ => {}
        }
        self.keep(byte);
    }

    fn keep(&mut self, byte: u8) {
        if self.is_value && self.value.len() <= MAX_ID_BYTES {
            self.value.push(byte);
        }
    }

    fn end_value(&mut self, is_own: bool) {
        if is_own && self.is_value {
            (self.is_value, self.is_found) = (false, true);
        }
    }

    /// Returns the id if it is a text or a number.
    fn id(self) -> Option<Value> {
        let id: Value = serde_json::from_slice(&self.value).ok().filter(|_| self.is_found)?;
        (id.is_string() || id.is_number()).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    async fn lines_of(sent: &str, max_bytes: usize) -> Vec<String> {
        let (mut client, server) = tokio::io::duplex(7);
        let mut outside = limited(server, max_bytes);
        let sent = sent.to_owned();
        let writing = tokio::spawn(async move { client.write_all(sent.as_bytes()).await });
        let mut read = String::new();
        outside.read_to_string(&mut read).await.unwrap();
        writing.await.unwrap().unwrap();
        read.lines().map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn an_oversized_message_becomes_a_request_with_its_id() {
        let long = "x".repeat(100);
        for (message, id) in [
            (format!(r#"{{"jsonrpc":"2.0","id":2,"method":"m","params":{{"a":"{long}"}}}}"#), Some("2")),
            (
                format!(r#"{{"params":{{"id":7,"a":["{long}",{{"id":8}}]}},"x":"id","id": "a\"b" }}"#),
                Some(r#""a\"b""#),
            ),
            (format!(r#"{{"method":"note","params":{{"id":1,"a":"{long}"}}}}"#), None),
            (format!(r#"{{"id":{{"a":1}},"params":"{long}"}}"#), None),
            (format!(r#"{{"id":"{long}{long}{long}"}}"#), None),
            (long.clone(), None),
        ] {
            let lines = lines_of(&format!("{{\"id\":1}}\n{message}\n{{\"id\":3}}\n"), 64).await;
            let replaced = id.map(|id| {
                let params = json!({"limit": 64, "_meta": required_meta()});
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"sinew/oversized","params":{params}}}"#)
            });
            let expected: Vec<String> =
                [Some(r#"{"id":1}"#.to_owned()), replaced, Some(r#"{"id":3}"#.to_owned())]
                    .into_iter()
                    .flatten()
                    .collect();
            assert_eq!(lines, expected, "{message}");
        }
        let exact = "y".repeat(64);
        assert_eq!(lines_of(&format!("{exact}\n"), 64).await, [exact]);
    }
}
