//! W3C trace context in message headers, and the filter for headers from external callers.
//!
//! A trace is a hint for people: it connects the work for one request, and no decision depends on
//! it.

use std::fmt;
use std::str::FromStr;

use async_nats::HeaderMap;
use data_encoding::HEXLOWER;
use sinew_protocol::header;

/// Maximum number of headers taken from a message.
const MOST_HEADERS: usize = 64;
/// Maximum length of a header value, in bytes.
const LONGEST_VALUE: usize = 4096;

/// A `traceparent`: the trace, and the span in it that sent the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace, never all zeros.
    pub trace: [u8; 16],
    /// The span, never all zeros.
    pub span: [u8; 8],
    /// Bit 0 means that the trace is recorded.
    pub flags: u8,
}

impl TraceParent {
    /// Creates a new trace.
    pub fn fresh() -> Self {
        Self { trace: nonzero(), span: nonzero(), flags: 1 }
    }

    /// Creates a new span of the same trace.
    #[must_use]
    pub fn child(self) -> Self {
        Self { span: nonzero(), ..self }
    }

    /// Returns the trace of a message; `None` if missing or malformed.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        headers.get(header::TRACE_PARENT)?.as_str().parse().ok()
    }

    /// Returns the trace of a message, or a new one.
    pub fn of_or_fresh(headers: &HeaderMap) -> Self {
        Self::of(headers).unwrap_or_else(Self::fresh)
    }

    /// Writes it into the headers of a message.
    pub fn put(self, headers: &mut HeaderMap) {
        headers.insert(header::TRACE_PARENT, self.to_string());
    }
}

/// Returns random bytes that are not all zero, which would mean a missing id.
fn nonzero<const N: usize>() -> [u8; N] {
    let mut bytes: [u8; N] = rand::random();
    bytes[0] |= u8::from(bytes.iter().all(|byte| *byte == 0));
    bytes
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (HEXLOWER.encode(&self.trace), HEXLOWER.encode(&self.span));
        write!(f, "00-{trace}-{span}-{:02x}", self.flags)
    }
}

/// A text that is not a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid traceparent: expected VERSION-TRACE-SPAN-FLAGS in lower-case hex")]
pub struct BadTraceParent;

impl FromStr for TraceParent {
    type Err = BadTraceParent;

    /// Later versions may be longer and are parsed like version 00; `ff` is invalid.
    fn from_str(text: &str) -> Result<Self, BadTraceParent> {
        let mut fields = text.splitn(5, '-');
        let version: [u8; 1] = hex(fields.next())?;
        let parent = Self {
            trace: hex(fields.next())?,
            span: hex(fields.next())?,
            flags: hex::<1>(fields.next())?[0],
        };
        let extra = fields.next().is_some();
        let none = parent.trace == [0; 16] || parent.span == [0; 8];
        if none || version == [0xff] || (extra && version == [0]) {
            return Err(BadTraceParent);
        }
        Ok(parent)
    }
}

fn hex<const N: usize>(field: Option<&str>) -> Result<[u8; N], BadTraceParent> {
    let field = field.filter(|text| text.len() == 2 * N).ok_or(BadTraceParent)?;
    let bytes = HEXLOWER.decode(field.as_bytes()).map_err(|_| BadTraceParent)?;
    bytes.try_into().map_err(|_| BadTraceParent)
}

/// Returns the headers of an external message that may be read and forwarded: no commands to the
/// server, limited in number and size.
pub fn incoming(headers: Option<&HeaderMap>) -> HeaderMap {
    let mut kept = HeaderMap::new();
    let names = headers.into_iter().flat_map(HeaderMap::iter);
    for (name, values) in names.filter(|(name, _)| header::may_pass(name.as_ref())).take(MOST_HEADERS) {
        // The last of several values counts; the mesh uses no repeated headers.
        if let Some(value) = values.last().filter(|value| value.as_str().len() <= LONGEST_VALUE) {
            kept.insert(name.clone(), value.clone());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use async_nats::HeaderValue;

    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_the_form_of_the_standard_is_a_trace() {
        let cases: [(&str, bool); 14] = [
            (GOOD, true),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", true),
            ("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-later", true),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-later", false),
            ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", false),
            ("00-00000000000000000000000000000000-00f067aa0ba902b7-01", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false),
            ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e47-00f067aa0ba902b7-01", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", false),
            ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1", false),
            ("00-ßbf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01", false),
            ("----", false),
            ("", false),
        ];
        for (text, good) in cases {
            assert_eq!(text.parse::<TraceParent>().is_ok(), good, "{text}");
        }
        assert_eq!(GOOD.parse::<TraceParent>().map(|t| t.to_string()).as_deref(), Ok(GOOD));
    }

    #[test]
    fn a_child_stays_in_its_trace() {
        let mut headers = HeaderMap::new();
        assert_eq!(TraceParent::of(&headers), None);
        let parent = TraceParent::of_or_fresh(&headers);
        parent.put(&mut headers);
        assert_eq!(TraceParent::of_or_fresh(&headers), parent);
        assert_eq!(parent.child().trace, parent.trace);
        assert_ne!(parent.child().span, parent.span);
    }

    #[test]
    fn commands_to_the_server_do_not_come_in() {
        let mut headers = HeaderMap::new();
        for name in ["Nats-Rollup", "nats-schedule", "Nats-Msg-Id", "traceparent", "X"] {
            headers.append(name, "first");
            headers.append(name, "last");
        }
        headers.insert("Long", "x".repeat(5000));
        let kept = incoming(Some(&headers));
        let mut names: Vec<&str> = kept.iter().map(|(name, _)| name.as_ref()).collect();
        names.sort_unstable();
        assert_eq!(names, ["Nats-Msg-Id", "X", "traceparent"]);
        assert_eq!(kept.get("X").map(HeaderValue::as_str), Some("last"));
        assert!(incoming(None).is_empty());
    }
}
