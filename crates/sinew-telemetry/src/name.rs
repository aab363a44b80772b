//! Names of spans and attributes, in one place. Those of `gen_ai.*` are still in development: a new
//! version of the conventions changes only this file.
//!
//! Libraries use Sinew's own span names; this module converts them to the conventions of tracing
//! tools. Only the fields of [`ATTRIBUTES`] are exported: no prompt, input, output or free-text
//! reason.

use opentelemetry::trace::SpanKind;
use opentelemetry::{Array, Key, KeyValue, Value};

const OPERATION: &str = "gen_ai.operation.name";
const WORKFLOW: &str = "gen_ai.workflow.name";
const AGENT: &str = "gen_ai.agent.name";
const TOOL: &str = "gen_ai.tool.name";
const CONVERSATION: &str = "gen_ai.conversation.id";
const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
const REQUEST_MODEL: &str = "gen_ai.request.model";
const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
const ERROR: &str = "error.type";

/// Fields of Sinew's spans, and their attributes.
const ATTRIBUTES: [(&str, &str); 18] = [
    ("workflow", WORKFLOW),
    ("agent", AGENT),
    ("tool", TOOL),
    ("session", CONVERSATION),
    ("input_tokens", INPUT_TOKENS),
    ("output_tokens", OUTPUT_TOKENS),
    ("model", REQUEST_MODEL),
    ("response_model", "gen_ai.response.model"),
    ("provider", "gen_ai.provider.name"),
    ("finish", FINISH_REASONS),
    ("error", ERROR),
    ("execution", "sinew.execution.id"),
    ("node", "sinew.node"),
    ("activation", "sinew.activation"),
    ("task", "sinew.task.id"),
    ("attempt", "sinew.attempt"),
    ("shard", "sinew.shard"),
    ("status", "sinew.status"),
];

/// Sinew's spans: name in the code, operation, field that completes the name, kind.
const SPANS: [(&str, &str, &str, SpanKind); 6] = [
    // A client starts an execution and may wait for its end.
    ("start", "invoke_workflow", "workflow", SpanKind::Client),
    // The executor's view of an execution, from its start to its end.
    ("execution", "invoke_workflow", "workflow", SpanKind::Internal),
    // The executor's view of a node that calls an agent, from its start to its end.
    ("activation", "invoke_agent", "agent", SpanKind::Client),
    // The agent's own view of the call.
    ("task", "invoke_agent", "agent", SpanKind::Internal),
    ("tool", "execute_tool", "tool", SpanKind::Internal),
    // A turn of a conversation.
    ("chat", "chat", "model", SpanKind::Client),
];

/// Span with names of the conventions.
#[derive(Debug)]
pub(super) struct SpanName {
    pub(super) name: String,
    pub(super) kind: SpanKind,
    pub(super) attributes: Vec<KeyValue>,
}

/// Converts the span that the code calls `name`.
pub(super) fn named(name: &str, kind: SpanKind, fields: Vec<KeyValue>) -> SpanName {
    let mut attributes: Vec<KeyValue> = fields
        .into_iter()
        .filter_map(|KeyValue { key, value, .. }| {
            let (_, attribute) = ATTRIBUTES.iter().find(|(field, _)| *field == key.as_str())?;
            Some(KeyValue::new(*attribute, as_conventional(attribute, value)))
        })
        .collect();
    let Some((_, operation, field, kind)) = SPANS.iter().find(|(of, ..)| *of == name).cloned() else {
        return SpanName { name: format!("sinew {name}"), kind, attributes };
    };
    let subject = ATTRIBUTES.iter().find(|(of, _)| *of == field).map_or(field, |(_, attribute)| *attribute);
    let subject = attributes.iter().find(|attribute| attribute.key == Key::new(subject));
    let name = match subject.map(|attribute| &attribute.value) {
        Some(Value::String(subject)) => format!("{operation} {}", subject.as_str()),
        _ => operation.to_owned(),
    };
    attributes.push(KeyValue::new(OPERATION, operation));
    SpanName { name, kind, attributes }
}

/// Converts a value to the type in the conventions: a model may end several answers at once, so the
/// reasons are a list.
fn as_conventional(attribute: &str, value: Value) -> Value {
    match value {
        Value::String(reason) if attribute == FINISH_REASONS => Value::Array(Array::String(vec![reason])),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_worded_and_nothing_else_leaves() {
        let fields = vec![
            KeyValue::new("agent", "pricing"),
            KeyValue::new("execution", "x1"),
            KeyValue::new("trace_parent", "00-…"),
            KeyValue::new("input", "a prompt"),
        ];
        let span = named("task", SpanKind::Server, fields);
        assert_eq!((span.name.as_str(), span.kind), ("invoke_agent pricing", SpanKind::Internal));
        let keys: Vec<&str> = span.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
        assert_eq!(keys, [AGENT, "sinew.execution.id", OPERATION]);
        assert_eq!(named("activation", SpanKind::Server, Vec::new()).name, "invoke_agent");
        assert_eq!(named("append", SpanKind::Producer, Vec::new()).name, "sinew append");
    }
}
