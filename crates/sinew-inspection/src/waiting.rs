//! Waits of an execution: reason, start and deadline for each waiting node.

use std::collections::BTreeMap;

use serde_json::Value;
use sinew_documents::execution::{PersonQuestion, ShownWait, WaitKind};
use sinew_documents::timestamp::Timestamp;
use sinew_documents::words::duration;
use sinew_engine::{Time, WaitingFor};
use sinew_execution::events;
use sinew_protocol::deployment::WORKFLOW_PAUSE_PREFIX;
use sinew_protocol::person_wait::PersonWait;

use crate::record::Record;
use crate::view_context::ViewContext;

/// The reason for an execution whose shard no executor serves.
pub const NO_EXECUTOR: &str = "an executor: none serves its shard (start one with `sinew serve executor`)";

/// Returns all waits: for an executor first, then for people, then by start.
pub fn waits(record: &Record, context: &ViewContext) -> Vec<ShownWait> {
    let (ctx, now) = (record.execution.ctx(), record.seen_until(context.now));
    if ctx.state.ended {
        return Vec::new();
    }
    let executor = context.presence.has_no_executor().then(|| ShownWait {
        node: None,
        activation: None,
        what: WaitKind::Executor,
        text: NO_EXECUTOR.to_owned(),
        subject: NO_EXECUTOR.to_owned(),
        is_late: true,
        since: ctx.state.at.into(),
        until: None,
        agent: None,
        question: None,
        asked_in: None,
    });
    let mut waits: Vec<ShownWait> = sinew_engine::waiting(ctx.state)
        .into_iter()
        // Children have their own waits.
        .filter(|waiting| !matches!(waiting.what, WaitingFor::Children { .. }))
        .map(|waiting| {
            let (mut agent, mut question, mut concern, mut asked_in) = (None, None, None, None);
            let retried = waiting.act.and_then(|act| context.retried.get(&act));
            let (what, text) = match &waiting.what {
                WaitingFor::Agent { name, tries, is_workflow, .. } => {
                    agent = Some(name.clone());
                    concern = context.presence.concern(name).filter(|_| !is_workflow);
                    let callee = if *is_workflow { "workflow" } else { "agent" };
                    let again = if *tries > 1 { format!(", attempt {tries}") } else { String::new() };
                    (WaitKind::Agent, format!("{callee} {name}{again}"))
                }
                WaitingFor::CalleePerson { name, wait, more, .. } => {
                    agent = Some(name.clone());
                    question = Some(PersonQuestion {
                        prompt: wait.prompt.clone(),
                        data: Value::Null,
                        allowed: wait.allowed.clone(),
                    });
                    asked_in = Some(PersonWait::clone(wait));
                    let others = if *more > 0 { format!(" and {more} more") } else { String::new() };
                    (WaitKind::Person, format!("{} ({}{others})", person(&wait.allowed), wait.place()))
                }
                WaitingFor::Evaluation => (WaitKind::Script, "a script".to_owned()),
                WaitingFor::Retry { tries } => {
                    let why = retried.map(|one| format!(" ({})", one.message)).unwrap_or_default();
                    (WaitKind::Retry, format!("the next attempt; {tries} failed{why}"))
                }
                WaitingFor::Sleep => (WaitKind::Timer, "a timer".to_owned()),
                WaitingFor::Person(wait) => {
                    question = Some(PersonQuestion {
                        prompt: wait.prompt.clone(),
                        data: Value::clone(&wait.data),
                        allowed: wait.allowed.clone(),
                    });
                    (WaitKind::Person, person(&wait.allowed))
                }
                WaitingFor::Children { .. } => (WaitKind::Children, "its children".to_owned()),
                WaitingFor::Turn => (WaitKind::Turn, "a free slot".to_owned()),
                WaitingFor::Resume { reason } if reason.starts_with(WORKFLOW_PAUSE_PREFIX) => {
                    (WaitKind::Resume, reason.clone())
                }
                WaitingFor::Resume { reason } => {
                    (WaitKind::Resume, format!("an operator to resume it ({reason})"))
                }
                WaitingFor::Wall => (WaitKind::End, "its time limit".to_owned()),
            };
            // A stopped execution has no wait times.
            let times =
                if record.is_abandoned() { String::new() } else { times(waiting.since, waiting.until, now) };
            ShownWait {
                node: waiting.act.map(|act| events::label(&ctx, act)),
                activation: waiting.act,
                what,
                is_late: concern.is_some(),
                subject: concern.clone().unwrap_or_else(|| text.clone()),
                text: match concern {
                    Some(concern) => format!("{text}{times}; {concern}"),
                    None => format!("{text}{times}"),
                },
                since: waiting.since.into(),
                until: waiting.until.map(Timestamp),
                agent,
                question,
                asked_in,
            }
        })
        .collect();
    waits.sort_by_key(|wait| wait.what != WaitKind::Person);
    waits.splice(0..0, executor);
    waits
}

/// Formats the time since the start of a wait, and the time to its deadline.
fn times(since: Time, until: Option<Time>, now: Time) -> String {
    let left = |until: Time| match until.checked_sub(now) {
        Some(left) => format!(", {} left", duration(left)),
        None => format!(", due {} ago", duration(now - until)),
    };
    format!(", for {}{}", duration(now.saturating_sub(since)), until.map(left).unwrap_or_default())
}

fn person(allowed: &[String]) -> String {
    if allowed.is_empty() { "a person".to_owned() } else { format!("a person ({})", allowed.join(", ")) }
}

/// Summarizes the waits in one line for lists.
pub fn summary(waits: &[ShownWait]) -> Option<String> {
    if let Some(wait) = waits.iter().find(|wait| wait.what == WaitKind::Executor) {
        return Some(wait.text.clone());
    }
    if let Some(wait) = waits.iter().find(|wait| wait.what == WaitKind::Person) {
        let prompt = wait.question.as_ref().map(|question| question.prompt.as_str()).unwrap_or_default();
        return Some(match &wait.asked_in {
            Some(asked) => format!("a person: {} ({})", asked.first_line(), asked.place()),
            None => format!("a person at {}: {prompt}", wait.node.as_deref().unwrap_or("-")),
        });
    }
    if let Some(wait) = waits.iter().find(|wait| wait.what == WaitKind::Resume) {
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
        let is_workflow = waits
            .iter()
            .filter(|wait| wait.agent.is_some())
            .all(|wait| wait.subject.starts_with("workflow "));
        let callee = if is_workflow { "workflow" } else { "agent" };
        return Some(format!("{callee} {}", agents.into_iter().map(word).collect::<Vec<_>>().join(", ")));
    }
    waits.first().map(|wait| wait.text.clone())
}
