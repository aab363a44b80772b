//! Parses server-sent events incrementally, and returns their `data`.

/// Incremental parser of events.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    /// The incomplete line.
    line: Vec<u8>,
    /// Data lines of the incomplete event.
    data: Option<String>,
    /// Whether the last byte was a carriage return, which a line feed may follow.
    after_return: bool,
    begun: bool,
}

impl EventReader {
    /// Parses the next bytes. Returns the data of completed events.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut events = Vec::new();
        for &byte in bytes {
            let ends = match byte {
                b'\n' if self.after_return => {
                    self.after_return = false;
                    continue;
                }
                b'\n' | b'\r' => true,
                _ => false,
            };
            self.after_return = byte == b'\r';
            if !ends {
                self.line.push(byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line =
                if self.begun { &line[..] } else { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line) };
            self.begun = true;
            if line.is_empty() {
                events.extend(self.data.take());
            } else if let Some(value) = line.strip_prefix(b"data") {
                self.add(value);
            }
        }
        events
    }

    fn add(&mut self, value: &[u8]) {
        let Some(value) = value.strip_prefix(b":").or_else(|| value.is_empty().then_some(value)) else {
            return;
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let text = String::from_utf8_lossy(value);
        match &mut self.data {
            None => self.data = Some(text.into_owned()),
            Some(data) => {
                data.push('\n');
                data.push_str(&text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn events_are_split() {
        for (bytes, expected) in [
            ("data: a\n\n", &["a"][..]),
            ("data:a\r\n\r\ndata: b\r\rdata: c\n\n", &["a", "b", "c"]),
            ("\u{feff}event: x\ndata: a\ndata: b\nid: 3\n\n: note\n\n", &["a\nb"]),
            ("data\n\n", &[""]),
            ("database: x\n\ndata: half", &[]),
            ("\n\n\n", &[]),
        ] {
            assert_eq!(EventReader::default().feed(bytes.as_bytes()), expected, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(text in "(data: [a-c]{0,3}|\r|\n|\r\n|x|é){0,20}", cuts in proptest::collection::vec(0_usize..80, 0..6)) {
            let bytes = text.as_bytes();
            let whole = EventReader::default().feed(bytes);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let (mut reader, mut events, mut from) = (EventReader::default(), Vec::new(), 0);
            for cut in cuts.into_iter().chain([bytes.len()]) {
                events.extend(reader.feed(&bytes[from..cut]));
                from = cut;
            }
            prop_assert_eq!(events, whole);
        }
    }
}
