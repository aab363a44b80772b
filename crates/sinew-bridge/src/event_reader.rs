//! Events of a stream (SSE), parsed incrementally and within limits.

/// Maximum size of an event, in bytes.
const MAX_EVENT_BYTES: usize = 4 << 20;

/// Incremental parser of a stream.
#[derive(Debug, Default)]
pub(crate) struct EventReader {
    /// Bytes of an incomplete line.
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// Whether the last byte was a carriage return, after which a line feed belongs to the same
    /// line break.
    after_return: bool,
}

/// An event, or one of its lines, exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event has more than {MAX_EVENT_BYTES} bytes")]
pub(crate) struct EventTooLarge;

impl EventReader {
    /// Parses the next bytes and returns the data of the events that they complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, EventTooLarge> {
        let mut events = Vec::new();
        for &byte in bytes {
            let after_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => events.extend(self.end_line()),
                byte => {
                    if self.line.len() + self.data.len() >= MAX_EVENT_BYTES {
                        return Err(EventTooLarge);
                    }
                    self.line.push(byte);
                }
            }
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let has_data = std::mem::take(&mut self.has_data);
            let data = std::mem::take(&mut self.data);
            return has_data.then_some(data);
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(at) => (&line[..at], line[at + 1..].strip_prefix(b" ").unwrap_or(&line[at + 1..])),
            None => (&line[..], &[][..]),
        };
        if field == b"data" {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.has_data = true;
            self.data.extend_from_slice(value);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_they_are_cut() {
        let text = b": hello\r\nid: 1\r\ndata: {\"a\":\ndata:1}\n\nevent: x\n\rdata\n\ndata: end";
        let whole = EventReader::default().push(text).unwrap();
        assert_eq!(whole, [b"{\"a\":\n1}".to_vec(), Vec::new()]);
        for cut in 1..text.len() {
            let mut reader = EventReader::default();
            let mut events = reader.push(&text[..cut]).unwrap();
            events.extend(reader.push(&text[cut..]).unwrap());
            assert_eq!(events, whole, "cut at {cut}");
        }
    }

    #[test]
    fn endless_lines_and_events_are_refused() {
        let mut reader = EventReader::default();
        assert_eq!(reader.push(&vec![b'x'; MAX_EVENT_BYTES + 1]), Err(EventTooLarge));
        let mut reader = EventReader::default();
        let line = [b"data: ".as_slice(), &vec![b'x'; 1 << 20], b"\n"].concat();
        assert!((0..5).any(|_| reader.push(&line).is_err()));
    }
}
