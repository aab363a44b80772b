//! Model usage of an execution: turns, calls, tokens and price, as reported by its agents.

use std::collections::BTreeMap;

use serde_json::Value;
use sinew_documents::model_usage::{ModelUsage, ToolDecision};
use sinew_engine::{ActivationId, Fact};
use sinew_protocol::usage::{TaskUsage, is_cumulative};

use crate::record::Record;

/// Maximum reported decisions per node.
const MAX_DECISIONS: usize = 8;

/// Usage that an agent reported for an activation.
#[derive(Clone, Debug)]
pub struct ReportedUsage {
    /// Id of the node.
    pub node: String,
    /// Name of the agent, or of the workflow.
    pub agent: String,
    /// Models, tokens and price as reported.
    pub usage: Value,
    act: ActivationId,
}

/// Returns the reported usage of each node by first result. Failed attempts and late replies count.
pub fn model_usage(record: &Record) -> Vec<ModelUsage> {
    let (mut found, mut places): (Vec<ModelUsage>, BTreeMap<String, usize>) = Default::default();
    for one in reported_usage(record) {
        let place = *places.entry(one.node.clone()).or_insert_with(|| {
            found.push(ModelUsage { node: one.node.clone(), ..ModelUsage::default() });
            found.len() - 1
        });
        if let Some(used) = TaskUsage::of(&one.usage) {
            add_usage(&mut found[place], &used, &one.usage);
        }
    }
    let ctx = record.execution.ctx();
    for fact in record.execution.journal().iter().flat_map(|round| &round.facts) {
        let Fact::Replied { act, result: Ok(reply), .. } = fact else { continue };
        let Some(place) = places.get(&ctx.node_of(*act).id) else { continue };
        let decisions = reply.events.iter().filter_map(tool_decision);
        let room = MAX_DECISIONS.saturating_sub(found[*place].decisions.len());
        found[*place].decisions.extend(decisions.take(room));
    }
    found
}

/// Returns the usage that agents reported with results, failures and late replies, in order. A
/// cumulative usage replaces earlier reports of its activation.
pub fn reported_usage(record: &Record) -> Vec<ReportedUsage> {
    let mut told: Vec<ReportedUsage> = Vec::new();
    record.execution.replay(|ctx, fact| {
        let (act, usage) = match fact {
            Fact::Replied { act, result: Ok(reply), .. } => (act, &reply.usage),
            Fact::Replied { act, result: Err(_), usage, .. } | Fact::Late { act, usage, .. } => (act, usage),
            _ => return,
        };
        if TaskUsage::of(usage).is_none() {
            return;
        }
        let node = ctx.node_of(*act).id.clone();
        let agent = ctx.act(*act).ask.as_ref().map(|ask| ask.target.name().to_owned()).unwrap_or_default();
        add_told(&mut told, ReportedUsage { node, act: *act, agent, usage: usage.clone() });
    });
    told
}

/// Returns the decision about a tool call of an event, if it is one.
fn tool_decision(event: &Value) -> Option<ToolDecision> {
    let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_decision = event.get("type").is_some_and(|kind| kind == "person");
    let approved = event.get("approved").and_then(Value::as_bool).unwrap_or(false);
    is_decision.then(|| ToolDecision { tool: text("tool"), approved, by: text("by") })
}

/// Adds a usage that an agent reported.
fn add_usage(usage: &mut ModelUsage, used: &TaskUsage, reported: &Value) {
    usage.used.add(used);
    let add = |sum: &mut u64, key: &str| {
        *sum = sum.saturating_add(reported.get(key).and_then(Value::as_u64).unwrap_or(0));
    };
    add(&mut usage.replayed_turns, "replayed_turns");
    add(&mut usage.unknown_calls, "unknown_calls");
    add(&mut usage.waited_ms, "waited_ms");
}

/// Adds a usage. A cumulative usage replaces earlier reports of the activation.
fn add_told(told: &mut Vec<ReportedUsage>, new: ReportedUsage) {
    let is_before = |one: &ReportedUsage| {
        (one.act, &one.agent) == (new.act, &new.agent)
            && is_cumulative(&one.usage)
            && is_cumulative(&new.usage)
    };
    match told.iter().position(is_before) {
        Some(at) => told[at] = new,
        None => told.push(new),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sinew_documents::model_usage::total_line;

    use super::*;

    fn used(told: &[Value]) -> ModelUsage {
        let mut usage = ModelUsage::default();
        for one in told {
            add_usage(&mut usage, &TaskUsage::of(one).unwrap(), one);
        }
        usage
    }

    #[test]
    fn usage_is_summed_and_worded() {
        let first = json!({"turns": 1, "input_tokens": "many", "cost_usd": -5});
        assert_eq!(used(std::slice::from_ref(&first)).line(), "1 turn, 0 calls, 0 in, 0 out");
        let second = json!({
            "turns": 5, "replayed_turns": 2, "tool_calls": 9, "unknown_calls": 1, "input_tokens": 18_450,
            "cached_tokens": 13_100, "output_tokens": 1_100, "cost_usd": 0.0213,
        });
        assert_eq!(
            used(&[first, second.clone()]).line(),
            "6 turns (2 replayed), 9 calls (1 unknown), 18.4k in (71 % cached), 1.1k out, $0.0213"
        );
        let huge = used(&[second, json!({"turns": u64::MAX, "cost_usd": 0.01})]);
        assert_eq!((huge.used.own.turns, huge.used.own.cost_usd), (u64::MAX, Some(0.0313)));
    }

    #[test]
    fn a_cumulative_usage_takes_the_place_of_the_one_before() {
        let usage = |turns: u64, cumulative: bool| json!({"turns": turns, "cumulative": cumulative});
        let mut told = Vec::new();
        for (act, agent, usage) in [
            (0, "a", usage(1, true)),
            (0, "a", usage(4, true)),
            (0, "b", usage(8, true)),
            (1, "a", usage(16, true)),
            (0, "a", usage(32, false)),
        ] {
            let node = String::new();
            add_told(&mut told, ReportedUsage { node, act, agent: agent.to_owned(), usage });
        }
        let turns: Vec<u64> = told.iter().filter_map(|one| one.usage["turns"].as_u64()).collect();
        assert_eq!(turns, [4, 8, 16, 32]);
    }

    #[test]
    fn own_sums_and_those_of_children_are_told_apart() {
        let lead = json!({"turns": 2, "cost_usd": 0.01, "waited_ms": 190_000, "children": {"turns": 3, "cost_usd": 0.02}});
        let mut lead = used(&[lead]);
        lead.decisions.push(ToolDecision { tool: "refund".to_owned(), approved: true, by: "ada".to_owned() });
        assert_eq!(
            lead.line(),
            "2 turns, 0 calls, 0 in, 0 out, $0.0100; children: 3 turns, $0.0200; waited 3m10s for people; refund \
             allowed by ada"
        );
        let below = used(&[json!({"children": {"turns": 4}})]);
        assert_eq!(below.line(), "no own turns; children: 4 turns");
        assert_eq!(total_line(&[lead, below]).unwrap(), "2 turns, $0.0100; with children 9 turns, $0.0300");
        assert_eq!(total_line(&[used(&[json!({"turns": 2})])]), None, "the line of the node says it all");
    }
}
