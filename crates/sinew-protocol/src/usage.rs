//! Usage of language models that agents report with a result: turns, calls, tokens and price.
//!
//! An agent reports its own usage, and in `children` the sum over the agents and workflows that it
//! called. An execution that answers a task reports all usage of its nodes as `children`, because
//! it calls no model itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Totals of model calls, as reported by the agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelTotals {
    /// Number of turns: model calls with an answer.
    #[serde(default)]
    pub turns: u64,
    /// Number of tool calls.
    #[serde(default)]
    pub tool_calls: u64,
    /// Number of input tokens, including cached tokens.
    #[serde(default)]
    pub input_tokens: u64,
    /// Number of input tokens that were read from the provider's cache.
    #[serde(default)]
    pub cached_tokens: u64,
    /// Number of output tokens.
    #[serde(default)]
    pub output_tokens: u64,
    /// Cost in USD. Absent if no result reports a cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl ModelTotals {
    /// Parses the sums in a usage that an agent reported. Fields that are not numbers count as
    /// zero.
    pub fn of(usage: &Value) -> Self {
        let count = |key: &str| usage.get(key).and_then(Value::as_u64).unwrap_or(0);
        let cost = usage.get("cost_usd").and_then(Value::as_f64);
        Self {
            turns: count("turns"),
            tool_calls: count("tool_calls"),
            input_tokens: count("input_tokens"),
            cached_tokens: count("cached_tokens"),
            output_tokens: count("output_tokens"),
            cost_usd: cost.filter(|cost| cost.is_finite() && *cost >= 0.0),
        }
    }

    /// Parses the JSON of [`ModelTotals::to_json`]. Any other string has no sums.
    pub fn from_json(text: &str) -> Self {
        serde_json::from_str(text).map(|usage: Value| Self::of(&usage)).unwrap_or_default()
    }

    /// Returns the sums as one line of JSON; `None` if no model was called.
    pub fn to_json(&self) -> Option<String> {
        if self.is_empty() { None } else { serde_json::to_string(self).ok() }
    }

    /// Adds other sums.
    pub fn add(&mut self, other: Self) {
        let sum = |one: &mut u64, more: u64| *one = one.saturating_add(more);
        sum(&mut self.turns, other.turns);
        sum(&mut self.tool_calls, other.tool_calls);
        sum(&mut self.input_tokens, other.input_tokens);
        sum(&mut self.cached_tokens, other.cached_tokens);
        sum(&mut self.output_tokens, other.output_tokens);
        if let Some(cost) = other.cost_usd {
            *self.cost_usd.get_or_insert(0.0) += cost;
        }
    }

    /// Returns whether no model was called.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Usage of one task: its agent's own, and that of the agents and workflows which it called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskUsage {
    /// Own sums.
    #[serde(flatten)]
    pub own: ModelTotals,
    /// Totals of called agents and workflows, including those that they called. Absent if there are
    /// none.
    #[serde(default, skip_serializing_if = "ModelTotals::is_empty")]
    pub children: ModelTotals,
}

impl TaskUsage {
    /// Parses the usage that an agent reported; `None` if it contains no model calls.
    pub fn of(usage: &Value) -> Option<Self> {
        let children = usage.get("children").map(ModelTotals::of).unwrap_or_default();
        let is_own = usage.get("turns").and_then(Value::as_u64).is_some();
        let own = if is_own { ModelTotals::of(usage) } else { ModelTotals::default() };
        (is_own || !children.is_empty()).then_some(Self { own, children })
    }

    /// Returns the sum of own usage and children.
    pub fn total(&self) -> ModelTotals {
        let mut total = self.own;
        total.add(self.children);
        total
    }

    /// Adds the usage of another part of the same work.
    pub fn add(&mut self, other: &Self) {
        self.own.add(other.own);
        self.children.add(other.children);
    }

    /// Encodes these sums as the usage of an execution, which called no model itself. Returns null
    /// if there are none.
    pub fn of_execution(totals: ModelTotals) -> Value {
        if totals.is_empty() { Value::Null } else { json!({ "children": totals }) }
    }
}

/// Usage of all attempts of one activation, from the replies.
///
/// Most agents report the usage of one attempt. Agents that log the activation report, with
/// `"cumulative": true`, the usage of all attempts so far, which replaces their previous report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ActivationUsage {
    /// Sums of single attempts.
    #[serde(default)]
    attempts: TaskUsage,
    /// Latest cumulative usage of each agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    logs: Vec<(String, TaskUsage)>,
    /// Attempts whose usage is counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    counted: Vec<u32>,
}

impl ActivationUsage {
    /// Returns whether the usage of an attempt is counted.
    pub fn has(&self, attempt: u32) -> bool {
        self.counted.contains(&attempt)
    }

    /// Adds the usage that an agent reports with the result or failure of an attempt. Ignores usage
    /// without model calls.
    pub fn add(&mut self, agent: &str, attempt: u32, usage: &Value) {
        let Some(used) = TaskUsage::of(usage) else { return };
        if !self.has(attempt) {
            self.counted.push(attempt);
        }
        if !is_cumulative(usage) {
            self.attempts.add(&used);
            return;
        }
        match self.logs.iter_mut().find(|(known, _)| known == agent) {
            // The result of an earlier attempt may be received late.
            Some((_, latest)) if latest.total().turns > used.total().turns => {}
            Some((_, latest)) => *latest = used,
            None => self.logs.push((agent.to_owned(), used)),
        }
    }

    /// Returns the sum over all attempts.
    pub fn sum(&self) -> TaskUsage {
        let mut sum = self.attempts;
        self.logs.iter().for_each(|(_, latest)| sum.add(latest));
        sum
    }
}

/// Returns whether a usage covers all attempts of the activation so far.
pub fn is_cumulative(usage: &Value) -> bool {
    usage.get("cumulative").is_some_and(|flag| flag == true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_tells_own_sums_and_those_of_children_apart() {
        for (told, own, children) in [
            (json!({"turns": 2, "cost_usd": 0.5, "children": {"turns": 3, "cost_usd": 0.25}}), 2, 3),
            (json!({"turns": 2, "children": 7}), 2, 0),
            (json!({"children": {"turns": 3}}), 0, 3),
            (json!({"turns": 0}), 0, 0),
        ] {
            let used = TaskUsage::of(&told).unwrap();
            assert_eq!((used.own.turns, used.children.turns), (own, children), "{told}");
            assert_eq!(used.total().turns, own + children);
        }
        for foreign in [json!(null), json!({"tokens": 3}), json!({"turns": "2"}), json!({"children": {}})] {
            assert_eq!(TaskUsage::of(&foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_cumulative_usage_replaces_what_the_agent_told_before() {
        let told = |turns: u64, cumulative: bool| json!({"turns": turns, "cumulative": cumulative});
        let mut used = ActivationUsage::default();
        for (attempt, (agent, usage, sum)) in [
            ("a", told(2, true), 2),
            ("a", told(5, true), 5),
            ("a", told(4, true), 5),
            ("b", told(1, true), 6),
            ("c", told(3, false), 9),
            ("c", told(3, false), 12),
            ("a", json!(null), 12),
        ]
        .into_iter()
        .enumerate()
        {
            used.add(agent, attempt as u32, &usage);
            assert_eq!(used.sum().own.turns, sum, "{agent} {usage}");
            assert_eq!(used.has(attempt as u32), !usage.is_null());
        }
    }

    #[test]
    fn sums_neither_overflow_nor_invent_a_price() {
        let mut sum = ModelTotals::of(&json!({"turns": u64::MAX, "cost_usd": -5, "input_tokens": "many"}));
        sum.add(ModelTotals::of(&json!({"turns": 1})));
        assert_eq!((sum.turns, sum.cost_usd, sum.input_tokens), (u64::MAX, None, 0));
        sum.add(ModelTotals::of(&json!({"cost_usd": 0.25})));
        assert_eq!(sum.cost_usd, Some(0.25));
        assert_eq!(TaskUsage::of_execution(ModelTotals::default()), Value::Null);
        assert_eq!(ModelTotals::default().to_json(), None);
        assert_eq!(ModelTotals::from_json(&sum.to_json().unwrap()), sum);
        for foreign in ["", "7", "[]", "{\"turns\":", r#"{"turns": -1, "cost_usd": "1e999"}"#] {
            assert_eq!(ModelTotals::from_json(foreign), ModelTotals::default(), "{foreign}");
        }
        assert_eq!(TaskUsage::of(&TaskUsage::of_execution(sum)).unwrap().children, sum);
    }
}
