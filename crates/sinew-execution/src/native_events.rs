//! Events of a dialect, each reported once.
//!
//! An agent reports its tool calls while it works, and again with its reply, which stores them. In one
//! process its progress becomes facts; on a mesh only observers of the agent receive it.

use std::collections::HashMap;

use serde_json::Value;
use sinew_engine::{ActivationId, Adapter, AdapterContext, Fact, NativeEvent, TaskReply};
use sinew_protocol::task::{is_answer_piece, is_message, progress_text};

/// Projection of facts and progress to events of the dialect, in their order.
#[derive(Clone, Debug, Default)]
pub struct NativeEvents {
    reported: HashMap<ActivationId, ReportedProgress>,
}

/// Progress of an activation that has been projected. A conversation can continue in a further
/// attempt, whose reply then contains the events of earlier ones.
#[derive(Clone, Debug, Default)]
struct ReportedProgress {
    /// The progress. The reply can contain it as events.
    values: Vec<Value>,
    /// Its texts. The result can contain them as messages.
    texts: Vec<String>,
}

impl NativeEvents {
    /// Returns the events of a fact, without those that were already reported.
    pub fn of_fact(
        &mut self,
        adapter: &dyn Adapter,
        ctx: &AdapterContext<'_>,
        fact: &Fact,
    ) -> Vec<NativeEvent> {
        match fact {
            Fact::Progressed { act, value, .. } => {
                let reported = self.reported.entry(*act).or_default();
                if is_stored_message(value) {
                    let is_known = take(&mut reported.texts, |text| value["message"] == **text);
                    return if is_known { Vec::new() } else { adapter.project(ctx, fact) };
                }
                if is_message(value) {
                    reported.texts.push(progress_text(value));
                }
                if !is_answer_piece(value) {
                    reported.values.push(value.clone());
                }
                adapter.project(ctx, fact)
            }
            Fact::Replied { act, attempt, result: Ok(reply), retried, usage, worked_ms } => {
                let (act, attempt) = (*act, *attempt);
                let Some(mut reported) = self.reported.remove(&act) else {
                    return adapter.project(ctx, fact);
                };
                let mut reply = TaskReply::clone(reply);
                reply.events.retain(|event| !take(&mut reported.values, |value| contains(value, event)));
                let (result, retried) = (Ok(reply.into()), *retried);
                let (usage, worked_ms) = (usage.clone(), *worked_ms);
                adapter.project(ctx, &Fact::Replied { act, attempt, result, retried, usage, worked_ms })
            }
            _ => adapter.project(ctx, fact),
        }
    }

    /// Returns the events of progress that is not a fact; none if the attempt is not running.
    pub fn of_progress(
        &mut self,
        adapter: &dyn Adapter,
        ctx: &AdapterContext<'_>,
        (act, attempt): (ActivationId, u32),
        value: Value,
    ) -> Vec<NativeEvent> {
        if ctx.act(act).running != Some(attempt) {
            return Vec::new();
        }
        self.of_fact(adapter, ctx, &Fact::Progressed { act, attempt, value })
    }
}

/// Returns whether progress is a message that its agent stored with the result.
fn is_stored_message(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|line| line.len() == 2 && line.contains_key("at") && line.contains_key("message"))
}

/// Returns whether progress reports an event of the reply; it can have further members.
fn contains(value: &Value, event: &Value) -> bool {
    match (value.as_object(), event.as_object()) {
        (Some(value), Some(event)) => event.iter().all(|(key, member)| value.get(key) == Some(member)),
        _ => value == event,
    }
}

/// Removes the first item that is meant. Returns whether there was one.
fn take<T>(items: &mut Vec<T>, is_meant: impl Fn(&T) -> bool) -> bool {
    let found = items.iter().position(is_meant);
    found.map(|at| items.remove(at)).is_some()
}
