//! Evidence of one activation: attempts with their inputs, values of conditions, notes of the
//! dialect, and the tokens, price and calls that agents report.

use std::collections::BTreeSet;

use serde_json::Value;
use sinew_documents::node::{AttemptEvidence, BoundValue, ConditionEvidence, NodeEvidence};
use sinew_engine::{ActivationId, AdapterContext, Fact, SeenCondition};
use sinew_execution::events;

use crate::record::Record;

/// Maximum reported attempts, the latest.
const MAX_ATTEMPTS: usize = 20;
/// Maximum reported notes and events, the latest.
const MAX_NOTES: usize = 50;
/// Maximum values of a condition.
const MAX_BOUND: usize = 20;

/// Collects the evidence of an activation. The attempts include those of earlier activations that a
/// retry replaced.
pub fn evidence_of(record: &Record, wanted: ActivationId) -> NodeEvidence {
    let mut found = NodeEvidence { conditions: conditions(record, wanted), ..NodeEvidence::default() };
    let ctx = record.execution.ctx();
    let label = events::label(&ctx, wanted);
    let is_same = |act: ActivationId| act <= wanted && events::label(&ctx, act) == label;
    let places: BTreeSet<ActivationId> = (0..=wanted).filter(|act| is_same(*act)).collect();
    // Task of each attempt: attempts of one activation count from 1.
    let mut tasks: Vec<(ActivationId, u32)> = Vec::new();
    for round in record.execution.journal() {
        for fact in &round.facts {
            match fact {
                Fact::Dispatched { act, attempt, ask, .. } if places.contains(act) => {
                    tasks.push((*act, *attempt));
                    found.attempt_list.push(AttemptEvidence {
                        attempt: u32::try_from(tasks.len()).unwrap_or(u32::MAX),
                        at: round.at.into(),
                        input: Value::clone(&ask.input),
                        queued_ms: None,
                        worked_ms: None,
                        output: None,
                        error: None,
                    });
                }
                Fact::Replied { act, attempt, result, worked_ms, .. } if places.contains(act) => {
                    let place = tasks.iter().rposition(|task| *task == (*act, *attempt));
                    let mut told = place.and_then(|place| found.attempt_list.get_mut(place));
                    if let (Some(told), Some(worked)) = (&mut told, worked_ms) {
                        told.worked_ms = Some(*worked);
                        told.queued_ms = Some(round.at.saturating_sub(told.at.ms()).saturating_sub(*worked));
                    }
                    match (result, told) {
                        (Ok(reply), told) => {
                            if let Some(told) = told {
                                told.output = Some(Value::clone(&reply.output));
                            }
                            if *act == wanted {
                                found.usage = reply.usage.clone();
                                found.agent_events.clone_from(&reply.events);
                            }
                        }
                        (Err(error), Some(told)) => told.error = Some(error.clone()),
                        (Err(_), None) => {}
                    }
                }
                Fact::Noted { act: Some(act), note } if *act == wanted => found.notes.push(note.clone()),
                _ => {}
            }
        }
    }
    keep_latest(&mut found.attempt_list, MAX_ATTEMPTS);
    keep_latest(&mut found.notes, MAX_NOTES);
    keep_latest(&mut found.agent_events, MAX_NOTES);
    found
}

fn keep_latest<T>(all: &mut Vec<T>, most: usize) {
    all.drain(..all.len().saturating_sub(most));
}

/// Returns the conditions of a node: those that the dialect reports, otherwise texts of the plan with
/// the values of names in double braces.
fn conditions(record: &Record, act: ActivationId) -> Vec<ConditionEvidence> {
    let ctx = record.execution.ctx();
    let told = record.execution.program().adapter.conditions(&ctx, act);
    if !told.is_empty() {
        return told.into_iter().map(condition_evidence).collect();
    }
    let extra = &ctx.node_of(act).extra;
    let kinds = ["condition", "when", "items"].into_iter();
    let text = |kind: &str| extra.get(kind).and_then(Value::as_str).map(str::to_owned);
    kinds
        .filter_map(|kind| text(kind).map(|text| (kind, text)))
        .map(|(kind, text)| {
            let bound = names_in(&text).into_iter().take(MAX_BOUND);
            let bound = bound.map(|name| BoundValue { value: value_of(&ctx, &name), name }).collect();
            ConditionEvidence { kind: kind.to_owned(), text, bound, holds: None }
        })
        .collect()
}

fn condition_evidence(seen: SeenCondition) -> ConditionEvidence {
    let bound = seen.bound.into_iter().map(|one| BoundValue { name: one.name, value: one.value });
    let SeenCondition { kind, text, holds, .. } = seen;
    ConditionEvidence { kind: kind.to_owned(), text, bound: bound.collect(), holds }
}

/// Returns names in double braces, without duplicates.
fn names_in(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("{{") {
        let Some((name, behind)) = after.split_once("}}") else { break };
        let name = name.trim().to_owned();
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
        rest = behind;
    }
    names
}

/// Returns the value of `workflow.input.a.b` or `node.output.a.b`; `None` if it does not exist.
fn value_of(ctx: &AdapterContext<'_>, name: &str) -> Option<Value> {
    let mut path = name.split('.');
    let (head, member) = (path.next()?, path.next()?);
    let whole = match (head, member) {
        ("workflow", "input") => ctx.input().clone(),
        (node, "output") => {
            let ix = ctx.plan().find(node)?;
            let last = ctx.state.acts.iter().rfind(|one| one.node == ix && one.output.is_some())?;
            Value::clone(&last.output.as_ref()?.value)
        }
        _ => return None,
    };
    path.try_fold(whole, |value, step| match value {
        Value::Object(mut members) => members.remove(step),
        Value::Array(mut items) => {
            let at: usize = step.parse().ok()?;
            (at < items.len()).then(|| items.swap_remove(at))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_condition_are_found_once() {
        let check = |text: &str, expected: &[&str]| assert_eq!(names_in(text), expected, "{text}");
        check(
            "{{a.output.b}} > 3 and {{ workflow.input.c }} == '{{a.output.b}}'",
            &["a.output.b", "workflow.input.c"],
        );
        check("{{}} {{ }} {{open", &[]);
        check("no names", &[]);
    }
}
