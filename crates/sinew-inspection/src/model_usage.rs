//! The language models behind an execution: turns, calls, tokens and price, as its agents told them.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use sinew_engine::Fact;

use crate::record::Record;
use crate::words;

/// Work of language models for one node, over all of its activations and attempts that gave a result. The numbers are the
/// word of its agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModelUsage {
    /// The node.
    pub node: String,
    /// Answers of models.
    pub turns: u64,
    /// Answers that an earlier process had been given already.
    pub replayed_turns: u64,
    /// Calls of tools.
    pub tool_calls: u64,
    /// Tokens of the prompts, cached ones included.
    pub input_tokens: u64,
    /// Tokens of the prompts that came out of a provider's cache.
    pub cached_tokens: u64,
    /// Tokens of the answers.
    pub output_tokens: u64,
    /// Price in USD. `None` if no result tells one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl ModelUsage {
    fn add(&mut self, usage: &Value) {
        let add = |sum: &mut u64, key: &str| {
            *sum = sum.saturating_add(usage.get(key).and_then(Value::as_u64).unwrap_or(0));
        };
        add(&mut self.turns, "turns");
        add(&mut self.replayed_turns, "replayed_turns");
        add(&mut self.tool_calls, "tool_calls");
        add(&mut self.input_tokens, "input_tokens");
        add(&mut self.cached_tokens, "cached_tokens");
        add(&mut self.output_tokens, "output_tokens");
        let cost = usage.get("cost_usd").and_then(Value::as_f64).filter(|cost| *cost >= 0.0);
        if let Some(cost) = cost {
            *self.cost_usd.get_or_insert(0.0) += cost;
        }
    }

    /// The usage in one line.
    pub fn line(&self) -> String {
        let replayed = if self.replayed_turns > 0 {
            format!(" ({} replayed)", self.replayed_turns)
        } else {
            String::new()
        };
        let cached = (100 * self.cached_tokens.min(self.input_tokens)).checked_div(self.input_tokens);
        let cached =
            cached.filter(|part| *part > 0).map(|part| format!(" ({part} % cached)")).unwrap_or_default();
        let cost = self.cost_usd.map(|cost| format!(", ${cost:.4}")).unwrap_or_default();
        format!(
            "{}{replayed}, {}, {} in{cached}, {} out{cost}",
            words::count(usize::try_from(self.turns).unwrap_or(usize::MAX), "turn"),
            words::count(usize::try_from(self.tool_calls).unwrap_or(usize::MAX), "call"),
            short(self.input_tokens),
            short(self.output_tokens),
        )
    }
}

/// A number of tokens: thousands with one decimal place.
fn short(tokens: u64) -> String {
    if tokens < 1_000 { tokens.to_string() } else { format!("{}.{}k", tokens / 1_000, tokens % 1_000 / 100) }
}

/// Returns the usage of each node whose agents told one, in the order in which the first result came.
pub fn model_usage(record: &Record) -> Vec<ModelUsage> {
    let (mut found, mut places): (Vec<ModelUsage>, BTreeMap<String, usize>) = Default::default();
    record.execution.replay(|ctx, fact| {
        let Fact::Replied { act, result: Ok(reply), .. } = fact else { return };
        if reply.usage.get("turns").and_then(Value::as_u64).is_none() {
            return;
        }
        let node = ctx.node_of(*act).id.clone();
        let place = *places.entry(node.clone()).or_insert_with(|| {
            found.push(ModelUsage { node, ..ModelUsage::default() });
            found.len() - 1
        });
        found[place].add(&reply.usage);
    });
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn usage_is_summed_and_worded() {
        let mut usage = ModelUsage::default();
        usage.add(&json!({"turns": 1, "input_tokens": "many", "cost_usd": -5}));
        assert_eq!(usage.line(), "1 turn, 0 calls, 0 in, 0 out");
        usage.add(&json!({
            "turns": 5, "replayed_turns": 2, "tool_calls": 9, "input_tokens": 18_450, "cached_tokens": 13_100,
            "output_tokens": 1_100, "cost_usd": 0.0213,
        }));
        assert_eq!(usage.line(), "6 turns (2 replayed), 9 calls, 18.4k in (71 % cached), 1.1k out, $0.0213");
        usage.add(&json!({"turns": u64::MAX, "cost_usd": 0.01}));
        assert_eq!((usage.turns, usage.cost_usd), (u64::MAX, Some(0.0313)));
    }
}
