//! Model usage of an execution: turns, calls, tokens and price, as reported by its agents.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sinew_documents::words;
use sinew_engine::{ActivationId, Fact};
use sinew_protocol::usage::{ModelTotals, TaskUsage, is_cumulative};

use crate::record::Record;

/// Maximum reported decisions per node.
const MAX_DECISIONS: usize = 8;

/// Model usage of one node over all activations and attempts, as reported by its agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct ModelUsage {
    /// The node.
    pub node: String,
    /// Totals of its agent, and of the agents and workflows that it called.
    #[serde(flatten)]
    pub used: TaskUsage,
    /// Turns that were replayed from the log of an earlier process.
    pub replayed_turns: u64,
    /// Calls with unknown result because of a crash.
    pub unknown_calls: u64,
    /// Milliseconds spent waiting for people.
    pub waited_ms: u64,
    /// Decisions of people about tool calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<ToolDecision>,
}

/// Decision of a person about a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ToolDecision {
    /// Name of the tool.
    pub tool: String,
    /// Whether the call was allowed, or the question answered.
    pub approved: bool,
    /// The person; empty if nobody answered.
    pub by: String,
}

impl ToolDecision {
    fn of(event: &Value) -> Option<Self> {
        let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_decision = event.get("type").is_some_and(|kind| kind == "person");
        let approved = event.get("approved").and_then(Value::as_bool).unwrap_or(false);
        is_decision.then(|| Self { tool: text("tool"), approved, by: text("by") })
    }

    fn line(&self) -> String {
        let by = if self.by.is_empty() { "nobody" } else { &self.by };
        let word = if self.approved { "allowed" } else { "refused" };
        format!("{} {word} by {}", words::name(&self.tool), words::name(by))
    }
}

impl ModelUsage {
    fn add(&mut self, used: &TaskUsage, told: &Value) {
        self.used.add(used);
        let add = |sum: &mut u64, key: &str| {
            *sum = sum.saturating_add(told.get(key).and_then(Value::as_u64).unwrap_or(0));
        };
        add(&mut self.replayed_turns, "replayed_turns");
        add(&mut self.unknown_calls, "unknown_calls");
        add(&mut self.waited_ms, "waited_ms");
    }

    /// Formats the usage and the decisions of people.
    pub fn line(&self) -> String {
        let TaskUsage { own, children } = self.used;
        let part =
            |count: u64, what: &str| if count > 0 { format!(" ({count} {what})") } else { String::new() };
        let cached = (100 * own.cached_tokens.min(own.input_tokens)).checked_div(own.input_tokens);
        let cached =
            cached.filter(|part| *part > 0).map(|part| format!(" ({part} % cached)")).unwrap_or_default();
        let mut line = if own.is_empty() {
            "no own turns".to_owned()
        } else {
            format!(
                "{}{}, {}{}, {} in{cached}, {} out{}",
                counted(own.turns, "turn"),
                part(self.replayed_turns, "replayed"),
                counted(own.tool_calls, "call"),
                part(self.unknown_calls, "unknown"),
                short(own.input_tokens),
                short(own.output_tokens),
                price(own.cost_usd),
            )
        };
        if !children.is_empty() {
            let _ =
                write!(line, "; children: {}{}", counted(children.turns, "turn"), price(children.cost_usd));
        }
        if self.waited_ms > 0 {
            let _ = write!(line, "; waited {} for people", words::duration(self.waited_ms));
        }
        for decision in &self.decisions {
            let _ = write!(line, "; {}", decision.line());
        }
        line
    }
}

/// Formats the total model usage of an execution; `None` if it adds nothing to the lines of nodes.
pub fn total_line(models: &[ModelUsage]) -> Option<String> {
    let mut all = TaskUsage::default();
    for usage in models {
        all.add(&usage.used);
    }
    let (own, total) = (all.own, all.total());
    let is_plain = models.len() < 2 && all.children.is_empty();
    if is_plain || total.is_empty() {
        return None;
    }
    let with_children = if all.children.is_empty() {
        String::new()
    } else {
        format!("; with children {}{}", counted(total.turns, "turn"), price(total.cost_usd))
    };
    Some(format!("{}{}{with_children}", counted(own.turns, "turn"), price(own.cost_usd)))
}

/// Formats totals of model calls; empty if no model was called.
pub fn totals_words(totals: &ModelTotals) -> String {
    if totals.is_empty() {
        return String::new();
    }
    let tokens = totals.input_tokens.saturating_add(totals.output_tokens);
    format!("{}, {} tokens{}", counted(totals.turns, "turn"), short(tokens), price(totals.cost_usd))
}

/// Formats the usage in the document of a list row.
pub fn told_words(usage: &Value) -> String {
    totals_words(&ModelTotals::of(usage))
}

fn counted(count: u64, noun: &str) -> String {
    words::count(usize::try_from(count).unwrap_or(usize::MAX), noun)
}

fn price(cost: Option<f64>) -> String {
    cost.map(|cost| format!(", ${cost:.4}")).unwrap_or_default()
}

/// Formats a number of tokens: thousands with one decimal place.
fn short(tokens: u64) -> String {
    if tokens < 1_000 { tokens.to_string() } else { format!("{}.{}k", tokens / 1_000, tokens % 1_000 / 100) }
}

/// Returns the reported usage of each node by first result. Failed attempts count.
pub fn model_usage(record: &Record) -> Vec<ModelUsage> {
    let (mut found, mut places): (Vec<ModelUsage>, BTreeMap<String, usize>) = Default::default();
    let mut told: Vec<ReportedUsage> = Vec::new();
    record.execution.replay(|ctx, fact| {
        let Fact::Replied { act, result, usage, .. } = fact else { return };
        let usage = result.as_ref().map_or(usage, |reply| &reply.usage);
        if TaskUsage::of(usage).is_none() {
            return;
        }
        let node = ctx.node_of(*act).id.clone();
        let place = *places.entry(node.clone()).or_insert_with(|| {
            found.push(ModelUsage { node, ..ModelUsage::default() });
            found.len() - 1
        });
        let agent = ctx.act(*act).ask.as_ref().map(|ask| ask.target.name().to_owned()).unwrap_or_default();
        add_told(&mut told, ReportedUsage { place, act: *act, agent, usage: usage.clone() });
        let events = result.as_ref().map_or(&[][..], |reply| reply.events.as_slice());
        let decisions = events.iter().filter_map(ToolDecision::of);
        let room = MAX_DECISIONS.saturating_sub(found[place].decisions.len());
        found[place].decisions.extend(decisions.take(room));
    });
    for one in &told {
        if let Some(used) = TaskUsage::of(&one.usage) {
            found[one.place].add(&used, &one.usage);
        }
    }
    found
}

/// A reported usage.
struct ReportedUsage {
    /// Index of the node.
    place: usize,
    act: ActivationId,
    agent: String,
    usage: Value,
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

    use super::*;

    fn used(told: &[Value]) -> ModelUsage {
        let mut usage = ModelUsage::default();
        for one in told {
            usage.add(&TaskUsage::of(one).unwrap(), one);
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
            add_told(&mut told, ReportedUsage { place: 0, act, agent: agent.to_owned(), usage });
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
