//! Limit of the data that templates insert: a file may repeat a template any number of times.

use std::cell::Cell;

use serde_json::Value;

/// Maximum size of the data that the templates of one value insert, in bytes: the maximum size of a
/// value.
const MAX_FILLED_BYTES: usize = 16 << 20;

/// Templates of one value insert more than [`MAX_FILLED_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("templates fill in more than {MAX_FILLED_BYTES} bytes")]
pub(crate) struct FillError;

/// Remaining bytes that the templates of one value may insert.
#[derive(Clone, Debug)]
pub(crate) struct FillBudget(Cell<usize>);

impl Default for FillBudget {
    fn default() -> Self {
        Self(Cell::new(MAX_FILLED_BYTES))
    }
}

impl FillBudget {
    /// Charges `bytes` before they are inserted. After the first failure, all later charges also
    /// fail.
    pub(crate) fn pay(&self, bytes: usize) -> Result<(), FillError> {
        let left = self.0.get().checked_sub(bytes);
        self.0.set(left.unwrap_or_default());
        left.map(drop).ok_or(FillError)
    }
}

/// Returns the approximate size of a value as JSON, in bytes.
pub(crate) fn filled_bytes(value: &Value) -> usize {
    match value {
        Value::Array(items) => 2 + items.iter().map(|item| filled_bytes(item) + 1).sum::<usize>(),
        Value::Object(members) => {
            2 + members.iter().map(|(key, item)| key.len() + filled_bytes(item) + 4).sum::<usize>()
        }
        Value::String(text) => text.len() + 2,
        Value::Number(_) => 8,
        Value::Null | Value::Bool(_) => 4,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sinew_engine::TaskReply;

    use super::*;
    use crate::by_name;
    use crate::testing::{Bench, Stubbed, lower};

    /// Returns workflows whose templates reference one large value repeatedly.
    fn repetitions(times: usize) -> Vec<(&'static str, Value, Value)> {
        let text = json!("x".repeat(1 << 20));
        let many = |template: &str| template.repeat(times);
        let sam = |node: Value| json!({ "workflow": { "description": "d", "nodes": [node], "output_mapping": {} } });
        let whole = json!({ "list": vec!["{{workflow.input.text}}"; times] });
        let connected = |kind: &str| json!([{ "source": kind, "target": "b", "sourceHandle": "output", "targetHandle": "input" }]);
        vec![
            (
                "sam",
                sam(
                    json!({ "id": "a", "type": "agent", "agent_name": "A", "input": { "x": many("{{workflow.input.text}}") } }),
                ),
                json!({ "text": text }),
            ),
            (
                "sam",
                sam(json!({ "id": "a", "type": "agent", "agent_name": "A", "input": whole })),
                json!({ "text": text }),
            ),
            (
                "sam",
                sam(
                    json!({ "id": "a", "type": "agent", "agent_name": "A", "input": {}, "instruction": many("{{workflow.input.text}}") }),
                ),
                json!({ "text": text }),
            ),
            (
                "agentflow",
                json!({
                    "nodes": [{ "id": "s", "type": "start" }, { "id": "b", "type": "agent", "data": { "userPrompt": many("{{PREVIOUS_OUTPUT}}") } }],
                    "connections": connected("s"),
                }),
                text.clone(),
            ),
            (
                "covalt",
                json!({
                    "nodes": [{ "id": "s", "type": "chat-start" }, { "id": "b", "type": "prompt-template", "data": { "template": many("{{ input }}") } }],
                    "edges": connected("s"),
                }),
                text.clone(),
            ),
        ]
    }

    /// Returns the failure message of the workflow's node.
    fn failure(dialect: &str, workflow: &Value, input: Value) -> Option<String> {
        let dialect = by_name(dialect).unwrap();
        let lowered = lower(dialect, workflow).unwrap_or_else(|found| panic!("{found:?}"));
        let mut bench = Bench::new(lowered.plan, dialect.adapter());
        bench.start(input, &mut |_, _| Stubbed {
            after: 0,
            progress: Vec::new(),
            result: Ok(TaskReply::new(json!("answer"))),
        });
        bench.state().acts.iter().find_map(|one| one.fault.as_ref()).map(|fault| fault.message.clone())
    }

    #[test]
    fn repeated_templates_fill_in_a_limited_number_of_bytes() {
        for (dialect, workflow, input) in repetitions(20) {
            let message = failure(dialect, &workflow, input).unwrap_or_default();
            assert!(message.contains(&FillError.to_string()), "{dialect}: {message:.300}");
        }
        for (dialect, workflow, input) in repetitions(2) {
            assert_eq!(failure(dialect, &workflow, input), None, "{dialect}");
        }
    }

    #[test]
    fn a_spent_budget_stays_spent() {
        let budget = FillBudget::default();
        assert_eq!(budget.pay(MAX_FILLED_BYTES), Ok(()));
        assert_eq!(budget.pay(1), Err(FillError));
        let budget = FillBudget::default();
        assert_eq!((budget.pay(MAX_FILLED_BYTES + 1), budget.pay(1)), (Err(FillError), Err(FillError)));
    }
}
