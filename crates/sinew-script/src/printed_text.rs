//! Text that scripts print, up to a limit.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, PoisonError},
};

use monty_types::{MontyException, PrintWriterCallback};

/// Maximum size of the kept text of one evaluation, in bytes. Printing more is not an error: the
/// remainder is dropped.
const MAX_PRINTED_BYTES: usize = 16 << 10;
/// Last line of a truncated text.
const REST_DROPPED: &str = "(the remaining output is not stored)";

/// Text that evaluations print. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct PrintedText(Arc<Mutex<PrintBuffer>>);

impl PrintedText {
    pub(crate) fn append(&self, text: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).append(text);
    }

    /// Takes the text. Its last line reports a truncation.
    pub fn take(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Text that stops growing at its limit.
#[derive(Debug, Default)]
pub(crate) struct PrintBuffer {
    text: String,
    is_cut: bool,
}

impl PrintBuffer {
    fn append(&mut self, text: &str) {
        let room = MAX_PRINTED_BYTES.saturating_sub(self.text.len());
        let kept = &text[..text.floor_char_boundary(room)];
        self.text.push_str(kept);
        self.is_cut |= kept.len() < text.len();
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn take(&mut self) -> String {
        let Self { mut text, is_cut } = std::mem::take(self);
        if is_cut {
            text.push('\n');
            text.push_str(REST_DROPPED);
        }
        text
    }
}

impl PrintWriterCallback for PrintBuffer {
    fn stdout_write(&mut self, output: Cow<'_, str>) -> Result<(), MontyException> {
        self.append(&output);
        Ok(())
    }

    fn stdout_push(&mut self, end: char) -> Result<(), MontyException> {
        self.append(end.encode_utf8(&mut [0; 4]));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_text_stops_to_grow_and_says_so() {
        let printed = PrintedText::default();
        printed.append("one\n");
        printed.clone().append("two\n");
        assert_eq!(printed.take(), "one\ntwo\n");
        assert_eq!(printed.take(), "");
        for _ in 0..MAX_PRINTED_BYTES {
            printed.append("ää");
        }
        let text = printed.take();
        assert!(text.ends_with(&format!("ä\n{REST_DROPPED}")), "{}", &text[text.len() - 60..]);
        assert_eq!(text.len(), MAX_PRINTED_BYTES + 1 + REST_DROPPED.len());
    }
}
