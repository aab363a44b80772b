//! Answers of agents as they arrive: pieces of text on a terminal, calls of tools and other messages as lines.

use std::io::{IsTerminal as _, Write as _};

use serde_json::Value;
use sinew_documents::words;
use sinew_protocol::task::{is_message, progress_text};

use crate::output::{Format, Output, escaped};

/// Shows the progress of an agent.
pub(crate) struct AnswerStream<'a> {
    output: &'a Output,
    agent: String,
    /// Whether pieces of text are shown as they arrive.
    streams: bool,
    /// Whether lines of an answer after its first are indented.
    indents: bool,
    /// Text of the turn that is being shown.
    shown: String,
}

impl<'a> AnswerStream<'a> {
    pub(crate) fn new(agent: &str, output: &'a Output) -> Self {
        let is_terminal = std::io::stdout().is_terminal() && std::io::stderr().is_terminal();
        let streams = is_terminal && matches!(output.format, Format::Table | Format::Wide);
        Self { output, agent: words::name(agent), streams, indents: false, shown: String::new() }
    }

    /// Creates a stream for a chat, which indents answers to separate them from lines of the program.
    pub(crate) fn of_chat(agent: &str, output: &'a Output) -> Self {
        Self { indents: true, ..Self::new(agent, output) }
    }

    /// Shows one progress value of the agent.
    pub(crate) fn tell(&mut self, value: &Value) {
        match value.get("type").and_then(Value::as_str) {
            Some("text") => self.piece(value["delta"].as_str().unwrap_or_default()),
            // The next turn shows what the model makes of a result.
            _ if !is_message(value) => {}
            _ => {
                self.end_line();
                // Untrusted text never starts a line, where it could look like output of the program.
                let text = sinew_source::indented(&progress_text(value));
                self.output.note_block(&format!("{}: {text}", self.agent));
            }
        }
    }

    fn piece(&mut self, text: &str) {
        if !self.streams {
            return;
        }
        let begin = if self.shown.is_empty() { "  " } else { "" };
        self.shown.push_str(text);
        // A line of the answer is indented for the same reason.
        let text = escaped(text, false).replace('\n', "\n  ");
        let mut out = std::io::stdout().lock();
        // A closed terminal is not an error.
        let _gone = write!(out, "{begin}{text}").and_then(|()| out.flush());
    }

    fn end_line(&mut self) {
        if !std::mem::take(&mut self.shown).is_empty() {
            let _gone = writeln!(std::io::stdout().lock());
        }
    }

    /// Shows the answer, unless it was already shown in full.
    pub(crate) fn answer(&mut self, answer: &Value) {
        let text = match answer {
            Value::String(text) => text.clone(),
            Value::Object(members) if self.streams && members.len() == 1 => match members.get("text") {
                Some(Value::String(text)) => text.clone(),
                _ => pretty(answer),
            },
            other => pretty(other),
        };
        let is_shown = self.streams && self.shown.trim() == text.trim();
        self.end_line();
        if !is_shown && self.indents {
            self.output.text(&sinew_source::indented(&text));
        } else if !is_shown {
            self.output.text(&text);
        }
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
