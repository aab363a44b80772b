//! Log messages of an agent about its work, stored with the result: bounded lines of plain text
//! with a time.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cut;

/// Maximum number of stored messages of one task.
pub const MAX_LOG_LINES: usize = 128;
/// Maximum total length of one task's stored messages, in bytes.
pub const MAX_LOG_BYTES: usize = 32 * 1024;
/// Maximum length of a message, in characters; longer ones are truncated.
pub const MAX_LOG_LINE: usize = 1_000;

/// Log message of an agent about its work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Time of the message by the agent's clock; milliseconds since 1970 UTC.
    pub at: u64,
    /// Text of the message.
    pub text: String,
}

impl LogLine {
    /// Returns the message as the progress of an activation.
    pub fn to_progress(&self) -> Value {
        json!({ "message": self.text, "at": self.at })
    }
}

/// Newest messages of one task within the limits.
#[derive(Debug, Default)]
pub struct TaskLog {
    lines: VecDeque<LogLine>,
    bytes: usize,
    left_out: u64,
}

impl TaskLog {
    /// Adds a message and drops the oldest ones over the limits. Ignores an empty message.
    pub fn push(&mut self, at: u64, text: &str) {
        let text = cut(text.trim_end(), MAX_LOG_LINE);
        if text.is_empty() {
            return;
        }
        self.bytes += text.len();
        self.lines.push_back(LogLine { at, text });
        while self.lines.len() > MAX_LOG_LINES || self.bytes > MAX_LOG_BYTES {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.text.len();
            self.left_out += 1;
        }
    }

    /// Returns whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Takes the messages, oldest first. If some were dropped, the first line states how many.
    pub fn take(&mut self) -> Vec<LogLine> {
        let Self { lines, left_out, .. } = std::mem::take(self);
        let first = lines.front().filter(|_| left_out > 0).map(|oldest| LogLine {
            at: oldest.at,
            text: format!("({left_out} earlier messages of this task are not stored)"),
        });
        first.into_iter().chain(lines).collect()
    }
}

/// Limits the messages of a result, because they are untrusted.
pub(super) fn bounded_log(lines: Vec<LogLine>) -> Vec<LogLine> {
    let fits = lines.len() <= MAX_LOG_LINES + 1
        && lines.iter().map(|line| line.text.len()).sum::<usize>() <= MAX_LOG_BYTES
        && lines.iter().all(|line| line.text == cut(&line.text, MAX_LOG_LINE));
    if fits {
        return lines;
    }
    let mut log = TaskLog::default();
    for line in &lines {
        log.push(line.at, &line.text);
    }
    log.take()
}

/// Returns the text of an agent's progress: its `message`, the string itself, or its JSON.
pub fn progress_text(value: &Value) -> String {
    let text = value.get("message").and_then(Value::as_str).or_else(|| value.as_str());
    text.map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns whether progress is a message for people, which is stored with the result. Chunks of
/// streamed answers are for live observers, and the other events of calls are events of the result.
pub fn is_message(value: &Value) -> bool {
    let kind = value.get("type").and_then(Value::as_str).unwrap_or_default();
    let is_event = matches!(kind, "tool:result" | "tool:error") || kind.starts_with("subagent_call_");
    !is_event && !is_answer_piece(value)
}

/// Returns whether progress is a chunk of a streamed answer. Chunks are for live observers and are
/// not stored.
pub fn is_answer_piece(value: &Value) -> bool {
    value.get("type").is_some_and(|kind| kind == "text") && value.get("delta").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_keeps_the_newest_messages_within_its_bounds() {
        let mut log = TaskLog::default();
        assert!(log.is_empty() && log.take().is_empty());
        log.push(7, "one\u{1b}[2J\n");
        log.push(8, " \n");
        assert_eq!(log.take(), [LogLine { at: 7, text: "one[2J".to_owned() }]);
        (0..MAX_LOG_LINES as u64 + 5).for_each(|n| log.push(n, &format!("line {n}")));
        let lines = log.take();
        assert_eq!(lines.len(), MAX_LOG_LINES + 1);
        assert_eq!(lines[0].text, "(5 earlier messages of this task are not stored)");
        assert_eq!(lines[1].text, "line 5");
        (0..100).for_each(|n| log.push(n, &"x".repeat(5_000)));
        let lines = log.take();
        assert_eq!(lines.len(), 1 + MAX_LOG_BYTES / MAX_LOG_LINE);
        assert!(lines[1..].iter().all(|line| line.text.len() == MAX_LOG_LINE));
        assert!(log.is_empty());
    }

    #[test]
    fn a_log_of_others_is_brought_within_bounds_and_a_good_one_stays() {
        let line = |text: String| LogLine { at: 1, text };
        let good: Vec<LogLine> = (0..=MAX_LOG_LINES).map(|n| line(n.to_string())).collect();
        assert_eq!(bounded_log(good.clone()), good);
        let steering = bounded_log(vec![line("a\u{7}b".to_owned())]);
        assert_eq!(steering, [line("ab".to_owned())]);
        let flood = bounded_log(vec![line("x".repeat(MAX_LOG_LINE)); 1_000]);
        assert_eq!(flood.len(), 1 + MAX_LOG_BYTES / MAX_LOG_LINE);
    }

    #[test]
    fn progress_is_worded_by_its_message() {
        for (value, text) in [
            (json!("plain"), "plain"),
            (json!({"message": "said", "n": 1}), "said"),
            (json!({"n": 1}), r#"{"n":1}"#),
        ] {
            assert_eq!(progress_text(&value), text);
        }
        for (value, text) in [
            (json!({"type": "text", "delta": "ab"}), None),
            (json!({"type": "text", "message": "ab"}), Some("ab")),
            (json!({"type": "tool:call", "tool": "add", "message": "calls add"}), Some("calls add")),
            (json!({"type": "tool:result", "tool": "add", "output": 1}), None),
            (json!({"type": "tool:error", "tool": "add", "output": "no"}), None),
            (json!({"type": "subagent_call_start", "depth": 1}), None),
            (json!("half"), Some("half")),
        ] {
            assert_eq!(is_message(&value).then(|| progress_text(&value)).as_deref(), text, "{value}");
        }
    }
}
