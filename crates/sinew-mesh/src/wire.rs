//! Frames of the NATS protocol, checked before the client library reads them.
//!
//! nats-server passes on header blocks and subjects of any bytes. The client library closes the
//! connection at a block that violates its grammar, and panics at a carriage return inside a header
//! value. [`FrameScreen`] replaces such a frame by one that the library can read, with the same
//! subscription, reply and body, and headers that describe the defect.
//!
//! Pure: bytes in, bytes out.

use std::borrow::Cow;
use std::str;

use async_nats::header::HeaderName;
use async_nats::{HeaderMap, HeaderValue, StatusCode};
use bytes::{Bytes, BytesMut};
use data_encoding::BASE64;
use serde_json::Value;
use sinew_protocol::header::{RAW_HEADERS, UNDELIVERABLE};

/// Maximum line length of the protocol, without a body. The longest lines list a cluster's
/// addresses.
const MAX_LINE_BYTES: usize = 1 << 20;
/// Maximum headers and body of one frame; nats-server rejects settings above 64 MiB.
const MAX_FRAME_BYTES: usize = 128 << 20;
/// Bytes of a replaced header block that the quarantine keeps.
const MAX_RAW_HEADER_BYTES: usize = 4 << 10;

/// Why the client library does not read a header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderDefect {
    /// The block is not text.
    #[error("the headers are not UTF-8")]
    Encoding,
    /// The block does not begin with the version.
    #[error("the headers do not begin with NATS/1.0")]
    Version,
    /// The version line carries a status that is not a number of three digits.
    #[error("the status of the headers is not a number of three digits")]
    Status,
    /// A line has no colon.
    #[error("a header line has no colon")]
    Colon,
    /// A header's name contains a control character, white space or a character beyond ASCII.
    #[error("a header name contains a character that is not allowed")]
    Name,
    /// A header's value contains a carriage return.
    #[error("a header value contains a carriage return")]
    CarriageReturn,
}

/// The line of a header block that names the version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StatusLine {
    status: Option<StatusCode>,
}

/// Parses a header block exactly like the client library, without its panic.
fn walk_headers<'a>(
    block: &'a [u8],
    mut take: impl FnMut(&'a str, Cow<'a, str>),
) -> Result<StatusLine, HeaderDefect> {
    let text = str::from_utf8(block).map_err(|_| HeaderDefect::Encoding)?;
    let mut lines = text.lines().peekable();
    let version = lines.next().and_then(|line| line.strip_prefix("NATS/1.0"));
    let rest = version.ok_or(HeaderDefect::Version)?.trim();
    let status = rest.split_once(' ').map_or(rest, |(status, _)| status.trim());
    let status = if status.is_empty() {
        None
    } else {
        Some(status.parse::<StatusCode>().map_err(|_| HeaderDefect::Status)?)
    };
    while let Some(line) = lines.next() {
        if line.is_empty() {
            continue;
        }
        let (name, value) = line.split_once(':').ok_or(HeaderDefect::Colon)?;
        if name.contains(|letter: char| !letter.is_ascii_graphic()) {
            return Err(HeaderDefect::Name);
        }
        let mut value = Cow::Borrowed(value.trim_start());
        while let Some(folded) = lines.next_if(|line| line.starts_with(char::is_whitespace)) {
            value.to_mut().push_str(folded);
        }
        match &mut value {
            Cow::Borrowed(text) => *text = text.trim_end(),
            Cow::Owned(text) => text.truncate(text.trim_end().len()),
        }
        if value.contains('\r') {
            return Err(HeaderDefect::CarriageReturn);
        }
        take(name, value);
    }
    Ok(StatusLine { status })
}

/// Checks whether the client library can read this header block.
pub fn check_headers(block: &[u8]) -> Result<(), HeaderDefect> {
    walk_headers(block, |_, _| {}).map(drop)
}

/// Parses a header block, including `NATS/1.0`, like the client library.
pub fn parse_headers(block: &[u8]) -> Result<HeaderMap, HeaderDefect> {
    let mut headers = HeaderMap::new();
    let mut unreadable = false;
    walk_headers(block, |name, value| match (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
        (Ok(name), Ok(value)) => headers.append(name, value),
        _ => unreadable = true,
    })?;
    // The walk has checked both already.
    if unreadable { Err(HeaderDefect::Name) } else { Ok(headers) }
}

/// Returns the defect of a message that [`FrameScreen`] has replaced; `None` for any other message.
pub fn undeliverable(headers: &HeaderMap) -> Option<&str> {
    headers.get(UNDELIVERABLE).map(HeaderValue::as_str)
}

/// Bytes that violate the protocol: the connection is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A line or a message exceeds what servers send.
    #[error("a frame exceeds the maximum size of the protocol")]
    Length,
    /// A line is not one that servers send.
    #[error("a line is not one that servers send")]
    Line,
}

/// A message that was replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedFrame {
    /// The subject, with U+FFFD for what is not text.
    pub subject: String,
    /// Why the client library does not read the message.
    pub reason: String,
}

/// The server's side of one connection to the client library.
#[derive(Debug, Default)]
pub struct FrameScreen {
    /// Received bytes that are not a complete frame yet.
    pub received: BytesMut,
    /// Replaced messages that were not collected yet.
    pub replaced: Vec<ReplacedFrame>,
    /// Addresses of the server's cluster, as last announced.
    pub cluster: Vec<String>,
}

/// Frame at the beginning of the received bytes.
enum ServerFrame {
    /// The frame is incomplete.
    Partial,
    /// A frame of this size that the client library can read.
    Whole(usize),
    /// A frame of this size, and its replacement.
    Replaced(usize, Bytes, Option<ReplacedFrame>),
}

impl FrameScreen {
    /// Returns the complete frames of the received data, in order, and keeps the rest.
    pub fn screened(&mut self) -> Result<Vec<Bytes>, FrameError> {
        let (mut out, mut good) = (Vec::new(), 0);
        loop {
            match self.frame(good)? {
                ServerFrame::Partial => break,
                ServerFrame::Whole(length) => good += length,
                ServerFrame::Replaced(length, instead, replaced) => {
                    if good > 0 {
                        out.push(self.received.split_to(std::mem::take(&mut good)).freeze());
                    }
                    drop(self.received.split_to(length));
                    out.push(instead);
                    self.replaced.extend(replaced);
                }
            }
        }
        if good > 0 {
            out.push(self.received.split_to(good).freeze());
        }
        Ok(out)
    }

    fn frame(&mut self, at: usize) -> Result<ServerFrame, FrameError> {
        let rest = &self.received[at..];
        let Some(end) = line_end(rest) else {
            return if rest.len() > MAX_LINE_BYTES {
                Err(FrameError::Length)
            } else {
                Ok(ServerFrame::Partial)
            };
        };
        let (line, after) = (&rest[..end], &rest[end + 2..]);
        let (verb, arguments) = line.split_at(line.iter().position(|byte| *byte == b' ').unwrap_or(end));
        match verb {
            b"PING" | b"PONG" | b"+OK" => Ok(ServerFrame::Whole(end + 2)),
            b"-ERR" if str::from_utf8(line).is_ok() && !arguments.is_empty() => {
                Ok(ServerFrame::Whole(end + 2))
            }
            b"-ERR" => {
                let text = String::from_utf8_lossy(arguments);
                Ok(ServerFrame::Replaced(end + 2, format!("-ERR {}\r\n", text.trim_start()).into(), None))
            }
            b"INFO" => {
                let (info, cluster) = plain_info(arguments)?;
                self.cluster = cluster;
                Ok(ServerFrame::Replaced(end + 2, info, None))
            }
            b"MSG" | b"HMSG" => {
                let message = MessageLine::read(verb == b"HMSG", arguments).ok_or(FrameError::Line)?;
                if message.total > MAX_FRAME_BYTES {
                    return Err(FrameError::Length);
                }
                let Some(body) = after.get(..message.total) else { return Ok(ServerFrame::Partial) };
                match after.get(message.total..message.total + 2) {
                    None => return Ok(ServerFrame::Partial),
                    Some(b"\r\n") => {}
                    Some(_) => return Err(FrameError::Line),
                }
                let length = end + 2 + message.total + 2;
                let (headers, body) = body.split_at(message.headers.unwrap_or_default());
                Ok(match message.defect(line, headers) {
                    None => ServerFrame::Whole(length),
                    Some(reason) => {
                        let instead = message.replacement(&reason, headers, body);
                        let subject = readable(message.subject).into_owned();
                        ServerFrame::Replaced(length, instead, Some(ReplacedFrame { subject, reason }))
                    }
                })
            }
            _ => Err(FrameError::Line),
        }
    }
}

fn line_end(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + bytes[from..].iter().position(|byte| *byte == b'\r')?;
        if *bytes.get(at + 1)? == b'\n' {
            return Some(at);
        }
        from = at + 1;
    }
}

/// Returns the server's INFO without the parts that would make the client library bypass the
/// screen: TLS, which ends at the screen, and other addresses.
fn plain_info(arguments: &[u8]) -> Result<(Bytes, Vec<String>), FrameError> {
    let mut info: Value = serde_json::from_slice(arguments).map_err(|_| FrameError::Line)?;
    let fields = info.as_object_mut().ok_or(FrameError::Line)?;
    for field in ["tls_required", "tls_available", "tls_verify", "ws_connect_urls"] {
        fields.remove(field);
    }
    let cluster = fields.remove("connect_urls");
    let cluster = cluster.as_ref().and_then(Value::as_array).into_iter().flatten();
    let cluster = cluster.filter_map(Value::as_str).map(str::to_owned).collect();
    Ok((format!("INFO {info}\r\n").into(), cluster))
}

/// The arguments of `MSG` and `HMSG`. A server separates them by single spaces, and no subject contains one.
struct MessageLine<'a> {
    subject: &'a [u8],
    subscription: &'a str,
    reply: Option<&'a [u8]>,
    /// Size of the headers; `None` for `MSG`.
    headers: Option<usize>,
    /// Size of headers and body together.
    total: usize,
}

impl<'a> MessageLine<'a> {
    fn read(with_headers: bool, arguments: &'a [u8]) -> Option<Self> {
        let mut words: Vec<&[u8]> =
            arguments.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect();
        let number = |word: &[u8]| str::from_utf8(word).ok()?.parse::<usize>().ok();
        let total = number(words.pop()?)?;
        let headers = if with_headers { Some(number(words.pop()?)?) } else { None };
        let (subject, subscription, reply) = match words.as_slice() {
            [subject, subscription] => (*subject, *subscription, None),
            [subject, subscription, reply] => (*subject, *subscription, Some(*reply)),
            _ => return None,
        };
        let subscription = str::from_utf8(subscription).ok()?;
        subscription.parse::<u64>().ok()?;
        (headers.unwrap_or_default() <= total).then_some(Self {
            subject,
            subscription,
            reply,
            headers,
            total,
        })
    }

    /// Returns why the client library could not read the message, or would misread it.
    fn defect(&self, line: &[u8], headers: &[u8]) -> Option<String> {
        let Ok(line) = str::from_utf8(line) else { return Some("the subject is not UTF-8".to_owned()) };
        // The library splits a line with headers at any white space: a subject could name another
        // subscription.
        if line.contains(|letter: char| letter.is_whitespace() && letter != ' ') {
            return Some("the subject contains white space".to_owned());
        }
        self.headers?;
        check_headers(headers).err().map(|defect| defect.to_string())
    }

    fn replacement(&self, reason: &str, headers: &[u8], body: &[u8]) -> Bytes {
        let raw = BASE64.encode(&headers[..headers.len().min(MAX_RAW_HEADER_BYTES)]);
        let raw = if raw.is_empty() { raw } else { format!("{RAW_HEADERS}: {raw}\r\n") };
        let block = format!("NATS/1.0\r\n{UNDELIVERABLE}: {reason}\r\n{raw}\r\n");
        let subject = readable(self.subject);
        // A reply to an invalid subject cannot be sent.
        let reply = self.reply.and_then(|reply| match readable(reply) {
            Cow::Borrowed(reply) => Some(format!(" {reply}")),
            Cow::Owned(_) => None,
        });
        let (length, total) = (block.len(), block.len() + body.len());
        let line = format!(
            "HMSG {subject} {} {length} {total}\r\n",
            format_args!("{}{}", self.subscription, reply.unwrap_or_default())
        );
        let mut frame = BytesMut::with_capacity(line.len() + total + 2);
        for piece in [line.as_bytes(), block.as_bytes(), body, b"\r\n"] {
            frame.extend_from_slice(piece);
        }
        frame.freeze()
    }
}

/// Returns a subject as text without white space; borrowed if nothing was replaced.
fn readable(subject: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(subject);
    if text.contains(char::is_whitespace) {
        return Cow::Owned(text.replace(char::is_whitespace, "\u{fffd}"));
    }
    text
}

#[cfg(test)]
#[path = "wire/tests.rs"]
mod tests;
