//! Events of a stream (server-sent events, HTML standard section 9.2), parsed incrementally and
//! within a limit.
//!
//! Libraries for this format (sse-stream, eventsource-stream) buffer an event without a limit, and
//! the streams come from untrusted servers.

/// Byte order mark that a stream may start with.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Incremental parser of a stream.
#[derive(Debug)]
pub struct EventReader {
    /// Maximum size of an event, in bytes.
    max_bytes: usize,
    /// Bytes of an incomplete line.
    line: Vec<u8>,
    /// Data of an incomplete event.
    data: Option<Vec<u8>>,
    /// Whether the last byte was a carriage return, after which a line feed belongs to the same
    /// line break.
    after_return: bool,
    /// Whether a line has ended.
    is_started: bool,
}

/// An event, or one of its lines, exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event has more than {0} bytes")]
pub struct EventTooLarge(
    /// The limit.
    pub usize,
);

impl EventReader {
    /// Returns a parser for events of at most `max_bytes` bytes.
    pub fn new(max_bytes: usize) -> Self {
        Self { max_bytes, line: Vec::new(), data: None, after_return: false, is_started: false }
    }

    /// Parses the next bytes and returns the data of the events that they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, EventTooLarge> {
        let mut events = Vec::new();
        for &byte in bytes {
            let after_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => events.extend(self.end_line()),
                byte => {
                    if self.line.len() + self.data.as_ref().map_or(0, Vec::len) >= self.max_bytes {
                        return Err(EventTooLarge(self.max_bytes));
                    }
                    self.line.push(byte);
                }
            }
        }
        Ok(events)
    }

    /// Takes a complete line. Returns the data of the event that an empty line ends.
    fn end_line(&mut self) -> Option<Vec<u8>> {
        let is_first = !std::mem::replace(&mut self.is_started, true);
        let line = std::mem::take(&mut self.line);
        let line = if is_first { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&line) } else { &line };
        if line.is_empty() {
            return self.data.take();
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(at) => (&line[..at], line[at + 1..].strip_prefix(b" ").unwrap_or(&line[at + 1..])),
            None => (line, &[][..]),
        };
        if field == b"data" {
            match &mut self.data {
                None => self.data = Some(value.to_vec()),
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 1 << 10;

    #[test]
    fn events_are_split() {
        for (bytes, expected) in [
            ("data: a\n\n", &["a"][..]),
            ("data:a\r\n\r\ndata: b\r\rdata: c\n\n", &["a", "b", "c"]),
            ("\u{feff}event: x\ndata: a\ndata: b\nid: 3\n\n: note\n\n", &["a\nb"]),
            (
                ": hello\r\nid: 1\r\ndata: {\"a\":\ndata:1}\n\nevent: x\n\rdata\n\ndata: end",
                &["{\"a\":\n1}", ""],
            ),
            ("data\n\n", &[""]),
            ("database: x\n\ndata: half", &[]),
            ("\n\n\n", &[]),
        ] {
            let events = EventReader::new(LIMIT).push(bytes.as_bytes()).unwrap();
            let events: Vec<&str> = events.iter().map(|event| std::str::from_utf8(event).unwrap()).collect();
            assert_eq!(events, expected, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(text in "(data: [a-c]{0,3}|\r|\n|\r\n|x|é){0,20}", cuts in proptest::collection::vec(0_usize..80, 0..6)) {
            let bytes = text.as_bytes();
            let whole = EventReader::new(LIMIT).push(bytes).unwrap();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let (mut reader, mut events, mut from) = (EventReader::new(LIMIT), Vec::new(), 0);
            for cut in cuts.into_iter().chain([bytes.len()]) {
                events.extend(reader.push(&bytes[from..cut]).unwrap());
                from = cut;
            }
            prop_assert_eq!(events, whole);
        }
    }

    #[test]
    fn endless_lines_and_events_are_rejected() {
        assert_eq!(EventReader::new(LIMIT).push(&vec![b'x'; LIMIT + 1]), Err(EventTooLarge(LIMIT)));
        let mut reader = EventReader::new(LIMIT);
        let line = [b"data: ".as_slice(), &vec![b'x'; LIMIT / 4], b"\n"].concat();
        assert!((0..5).any(|_| reader.push(&line).is_err()));
    }
}
