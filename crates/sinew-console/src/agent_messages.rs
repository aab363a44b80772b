//! Messages of an agent about its work: texts, and tool calls, which are folded.

use maud::{Markup, html};
use serde_json::Value;
use sinew_documents::node::NodeMessage;
use sinew_documents::words;

use crate::shown_text::{self, clock_mark, size};

/// A message, read from its text.
enum AgentMessage<'t> {
    Text(&'t str),
    Tool { tool: String, what: String },
}

impl<'t> AgentMessage<'t> {
    /// Reads a message. Model agents report a tool call as `calls TOOL`, those of older versions as JSON:
    /// `{"type": "tool:result", "tool": …}`.
    fn of(text: &'t str) -> Self {
        if let Some(tool) = text.strip_prefix("calls ").filter(|tool| !tool.contains(char::is_whitespace)) {
            return Self::Tool { tool: tool.to_owned(), what: "called".to_owned() };
        }
        let event = serde_json::from_str::<Value>(text).ok();
        let tool = event.as_ref().and_then(|event| {
            let kind = event["type"].as_str()?.strip_prefix("tool:")?;
            let what = match kind {
                "call" => "called".to_owned(),
                "result" => "returned".to_owned(),
                "error" => "failed".to_owned(),
                other => other.replace('_', " "),
            };
            let bytes = event["bytes"].as_u64().map(|bytes| format!(" {}", size(bytes))).unwrap_or_default();
            Some((event["tool"].as_str()?.to_owned(), format!("{what}{bytes}")))
        });
        tool.map_or(Self::Text(text), |(tool, what)| Self::Tool { tool, what })
    }
}

/// Messages in order; consecutive messages about tools are folded.
pub(crate) fn agent_messages(logs: &[NodeMessage]) -> Markup {
    let read = logs.iter().map(|log| (log, AgentMessage::of(&log.text)));
    let read: Vec<(&NodeMessage, AgentMessage<'_>)> = read.collect();
    let runs = read.chunk_by(|(_, one), (_, next)| is_tool(one) == is_tool(next));
    html! {
        ol.log {
            @for run in runs {
                @if run.first().is_some_and(|(_, message)| is_tool(message)) {
                    li {
                        details {
                            summary { (words::count(run.len(), "message")) " about tools: " (tools_of(run)) }
                            ol.log { @for (log, message) in run { (message_row(log, message)) } }
                        }
                    }
                } @else {
                    @for (log, message) in run { (message_row(log, message)) }
                }
            }
        }
    }
}

const fn is_tool(message: &AgentMessage<'_>) -> bool {
    matches!(message, AgentMessage::Tool { .. })
}

/// Names of the tools of a run, without duplicates.
fn tools_of(run: &[(&NodeMessage, AgentMessage<'_>)]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (_, message) in run {
        if let AgentMessage::Tool { tool, .. } = message
            && !names.contains(&tool.as_str())
        {
            names.push(tool);
        }
    }
    shown_text::line(&names.join(", "), 120)
}

fn message_row(log: &NodeMessage, message: &AgentMessage<'_>) -> Markup {
    html! {
        li {
            span.quiet { (clock_mark(log.at)) @if log.attempt > 1 { " attempt " (log.attempt) } } " "
            @match message {
                AgentMessage::Text(text) => (shown_text::line(text, 600)),
                AgentMessage::Tool { tool, what } => { code { (shown_text::line(tool, 80)) } " " (shown_text::line(what, 80)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_about_tools_are_folded() {
        let log = |text: &str| NodeMessage { attempt: 1, at: 0.into(), text: text.to_owned() };
        let logs = [
            log("thinking"),
            log("calls orders"),
            log(r#"{"type":"tool:result","turn":0,"tool":"orders","bytes":45}"#),
            log("{\"type\":\"other\"}<b>"),
            log("calls it a day"),
        ];
        let html = agent_messages(&logs).into_string();
        assert!(html.contains("<summary>2 messages about tools: orders</summary>"), "{html}");
        assert!(html.contains("<code>orders</code> returned 45 B"), "{html}");
        assert!(html.contains("calls it a day"), "{html}");
        assert!(!html.contains("bytes") && !html.contains("<b>"), "{html}");
    }
}
