//! Formats the records of a conversation with a model for people and programs.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sinew_agents::{CallStatus, ConversationEnd, StepBody, StepRecord};
use sinew_documents::words;

/// Maximum length of a text in a line.
const MAX_TEXT: usize = 200;

/// Returns the records as rows of `n`, `at`, `kind` and `text`; those of nested agents have
/// `within`, the key of their call. With `content`, rows also contain the complete texts as
/// `content`.
pub fn conversation_rows(records: &[StepRecord], content: bool) -> Vec<Value> {
    let row = |(n, record): (usize, &StepRecord)| {
        let at = i64::try_from(record.at).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
        let mut row = json!({
            "n": n,
            "at": at.map(|at| at.to_string()),
            "by": record.by,
            "kind": kind(&record.body),
            "text": text(&record.body),
        });
        if let Some(key) = &record.within {
            row["within"] = key.clone().into();
        }
        if content {
            row["content"] = said(&record.body);
        }
        row
    };
    records.iter().enumerate().map(row).collect()
}

/// Formats the rows for people, each with the time since the first record.
pub fn conversation_lines(records: &[StepRecord], content: bool) -> String {
    let first = records.first().map_or(0, |record| record.at);
    let rows = conversation_rows(records, content);
    let lines = records.iter().zip(&rows).map(|(record, row)| {
        let since = words::duration(record.at.saturating_sub(first));
        let text = words::one_line(row["text"].as_str().unwrap_or_default(), MAX_TEXT);
        // Conversations of nested agents are interleaved with the records of their caller.
        let mark = if record.within.is_some() { "· " } else { "" };
        let mut line = format!("  +{since:<8} {:<9} {mark}{text}", row["kind"].as_str().unwrap_or_default());
        if let Some(said) = row.get("content").filter(|said| !said.is_null()) {
            let said = said.as_str().map_or_else(|| said.to_string(), str::to_owned);
            // Writing to a String cannot fail.
            let _ = write!(line, "\n{:21} {}", "", sinew_source::indented(&said));
        }
        line
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn kind(body: &StepBody) -> &'static str {
    match body {
        StepBody::Begin(_) => "begin",
        StepBody::Ask(_) => "ask",
        StepBody::Miss { .. } => "miss",
        StepBody::Turn { .. } => "turn",
        StepBody::Question(_) => "question",
        StepBody::Decision { .. } => "decision",
        StepBody::Call(_) => "call",
        StepBody::Done { .. } => "done",
        StepBody::Feedback { .. } => "feedback",
        StepBody::Artifacts { .. } => "artifacts",
        StepBody::Compact(_) => "compact",
        StepBody::End(_) => "end",
    }
}

fn text(body: &StepBody) -> String {
    match body {
        StepBody::Begin(begin) => {
            let mut text = format!("attempt {}", begin.attempt);
            if begin.delivery > 1 {
                let _ = write!(text, ", delivery {}", begin.delivery);
            }
            if begin.reset {
                text.push_str(", restarted because the request or the agent file changed");
            }
            if !begin.session.is_empty() {
                let _ = write!(text, ", {}", words::count(begin.session.len(), "earlier conversation"));
            }
            text
        }
        StepBody::Ask(ask) => format!("turn {}: asks {} ({} bytes)", ask.turn, ask.alias, ask.bytes),
        StepBody::Miss { turn, refusal, .. } => format!("turn {turn}: {}", refusal.message),
        StepBody::Turn { turn, alias, answer, cost } => {
            let usage = answer.usage;
            let mut text = format!("turn {turn}: {alias} answered, {} in, {} out", usage.input, usage.output);
            if let Some(cost) = cost {
                let _ = write!(text, ", ${cost:.4}");
            }
            let tools: Vec<&str> = answer.calls.iter().map(|call| call.tool.as_str()).collect();
            if !tools.is_empty() {
                let _ = write!(text, "; calls {}", tools.join(", "));
            }
            text
        }
        StepBody::Question(call) => format!("turn {} call {}: asked a person", call.turn, call.index),
        StepBody::Decision { call, approved, by_person, comment } => {
            let decision = if *approved { "allowed" } else { "refused" };
            let by = if by_person.is_empty() { String::new() } else { format!(" by {by_person}") };
            let comment = comment.as_ref().map(|comment| format!(": {comment}")).unwrap_or_default();
            format!("turn {} call {}: {decision}{by}{comment}", call.turn, call.index)
        }
        StepBody::Call(call) => format!("turn {} call {}: started", call.turn, call.index),
        StepBody::Done { call, result } => {
            let status = match result.status {
                CallStatus::Succeeded => "succeeded",
                CallStatus::Failed => "failed",
                CallStatus::Invalid => "was invalid",
                CallStatus::Refused => "was refused",
                CallStatus::Unknown => "was interrupted; its outcome is unknown",
            };
            let bytes = result.content.to_string().len();
            format!("turn {} call {}: {status} ({bytes} bytes)", call.turn, call.index)
        }
        StepBody::Feedback { turn, text, .. } => {
            format!("turn {turn}: {}", text.lines().next().unwrap_or_default())
        }
        StepBody::Artifacts { artifacts } => artifacts
            .iter()
            .map(|one| format!("{}:v{}", one.name, one.version))
            .collect::<Vec<_>>()
            .join(", "),
        StepBody::Compact(compact) => match &compact.summary {
            Some(_) => format!("turns before {} were summarized", compact.before),
            None => format!("results before turn {} were omitted", compact.before),
        },
        StepBody::End(ConversationEnd::Output(_)) => "output".to_owned(),
        StepBody::End(ConversationEnd::Artifact(name)) => format!("output is artifact {name}"),
        StepBody::End(ConversationEnd::Fault(fault)) => format!("{} {}", fault.code, fault.message),
    }
}

/// Returns the texts of a record: from models, tools and people.
fn said(body: &StepBody) -> Value {
    match body {
        StepBody::Begin(begin) if !begin.session.is_empty() => json!(begin.session),
        StepBody::Turn { answer, .. } if answer.calls.is_empty() => answer.text.clone().into(),
        StepBody::Turn { answer, .. } => json!({"text": answer.text, "calls": answer.calls}),
        StepBody::Done { result, .. } => result.content.clone(),
        StepBody::Feedback { text, .. } => text.clone().into(),
        StepBody::Compact(compact) => compact.summary.clone().into(),
        StepBody::End(ConversationEnd::Output(value)) => value.clone(),
        _ => Value::Null,
    }
}
