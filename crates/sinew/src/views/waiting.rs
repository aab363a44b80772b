//! Reasons of waiting: for each node at rest the reason, the start and the deadline.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use sinew_engine::{Time, WaitingFor};
use sinew_executor::events;

use super::words;
use crate::record::Record;
use crate::tree::duration;

/// One thing that is waited for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Wait {
    /// The node, with its place in maps and loops; none for the whole execution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    /// The activation: what an answer names when a node waits several times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) activation: Option<u32>,
    /// For what, as a word.
    #[serde(rename = "for")]
    pub(crate) what: &'static str,
    /// The same as a sentence.
    pub(crate) text: String,
    /// Since when.
    #[serde(serialize_with = "words::serialize")]
    pub(crate) since: Time,
    /// Until when, if there is an end to it.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "words::maybe")]
    pub(crate) until: Option<Time>,
    /// The agent that is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    /// Question for the person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) question: Option<Question>,
}

/// Question for a person.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Question {
    /// Text that the person reads.
    pub(crate) prompt: String,
    /// The data to judge.
    pub(crate) data: Value,
    /// Persons who may decide; anyone when empty.
    pub(crate) allowed: Vec<String>,
}

/// Everything that is waited for, persons first, then in the order in which it began.
pub(crate) fn waits(record: &Record, now: Time) -> Vec<Wait> {
    let ctx = record.execution.ctx();
    if ctx.state.ended {
        return Vec::new();
    }
    let mut waits: Vec<Wait> = sinew_engine::waiting(ctx.state)
        .into_iter()
        // Children wait for themselves.
        .filter(|waiting| !matches!(waiting.what, WaitingFor::Children { .. }))
        .map(|waiting| {
            let mut agent = None;
            let mut question = None;
            let (what, text) = match &waiting.what {
                WaitingFor::Agent { name, tries, .. } => {
                    agent = Some(name.clone());
                    let again = if *tries > 1 { format!(", attempt {tries}") } else { String::new() };
                    ("agent", format!("agent {name}{again}"))
                }
                WaitingFor::Evaluation => ("script", "a script that is evaluated".to_owned()),
                WaitingFor::Retry { tries } => ("retry", format!("the next attempt; {tries} failed")),
                WaitingFor::Sleep => ("timer", "time to pass".to_owned()),
                WaitingFor::Person(wait) => {
                    question = Some(Question {
                        prompt: wait.prompt.clone(),
                        data: Value::clone(&wait.data),
                        allowed: wait.allowed.clone(),
                    });
                    ("person", person(&wait.allowed))
                }
                WaitingFor::Children { .. } => ("children", "its children".to_owned()),
                WaitingFor::Turn => ("turn", "its turn".to_owned()),
                WaitingFor::Resume { reason } => ("resume", format!("somebody to resume it ({reason})")),
                WaitingFor::Wall => ("end", "the end of its time".to_owned()),
            };
            let left = |until: Time| match until.checked_sub(now) {
                Some(left) => format!(", {} left", duration(left)),
                None => format!(", due {} ago", duration(now - until)),
            };
            let until = waiting.until.map(left).unwrap_or_default();
            let since = duration(now.saturating_sub(waiting.since));
            Wait {
                node: waiting.act.map(|act| events::label(&ctx, act)),
                activation: waiting.act,
                what,
                text: format!("{text}, for {since}{until}"),
                since: waiting.since,
                until: waiting.until,
                agent,
                question,
            }
        })
        .collect();
    waits.sort_by_key(|wait| wait.what != "person");
    waits
}

fn person(allowed: &[String]) -> String {
    if allowed.is_empty() { "a person".to_owned() } else { format!("a person ({})", allowed.join(", ")) }
}

/// All of it in one line: what a list shows.
pub(crate) fn summary(waits: &[Wait]) -> Option<String> {
    if let Some(wait) = waits.iter().find(|wait| wait.what == "person") {
        let prompt = wait.question.as_ref().map(|question| question.prompt.as_str()).unwrap_or_default();
        return Some(format!("a person at {}: {prompt}", wait.node.as_deref().unwrap_or("-")));
    }
    if let Some(wait) = waits.iter().find(|wait| wait.what == "resume") {
        return Some(wait.text.clone());
    }
    let mut agents: BTreeMap<&str, usize> = BTreeMap::new();
    for name in waits.iter().filter_map(|wait| wait.agent.as_deref()) {
        *agents.entry(name).or_default() += 1;
    }
    if !agents.is_empty() {
        let word = |(name, count): (&str, usize)| {
            if count > 1 { format!("{name} ×{count}") } else { name.to_owned() }
        };
        return Some(format!("agent {}", agents.into_iter().map(word).collect::<Vec<_>>().join(", ")));
    }
    waits.first().map(|wait| wait.text.clone())
}
