//! A small HTTP client: one request for each connection, JSON in and text out.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// An answer.
pub(crate) struct Answer {
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    pub body: String,
}

/// Sends a request to an address like `http://127.0.0.1:8234/path`.
pub(crate) fn send(method: &str, url: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    write!(stream, "{method} /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n").unwrap();
    for (name, value) in headers {
        write!(stream, "{name}: {value}\r\n").unwrap();
    }
    write!(stream, "content-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{url}: {text}"));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap();
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { dechunked(body) } else { body.to_owned() };
    Answer { status, head: head.to_owned(), body }
}

/// Returns the body of a chunked answer.
fn dechunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or_default();
        if size == 0 || rest.len() < size {
            break;
        }
        whole += &rest[..size];
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}
