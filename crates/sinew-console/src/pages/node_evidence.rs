//! Evidence in the inspector of a node: values of conditions, input and output of each attempt,
//! tokens, price and calls, and differences from an earlier attempt, another iteration or another
//! execution.

use maud::{Markup, html};
use serde_json::Value;
use sinew_documents::execution::ExecutionDescription;
use sinew_documents::node::{AttemptEvidence, NodeDescription};
use sinew_documents::words;

use super::execution::NodeChoice;
use super::execution_head::fault;
use crate::api_client::ApiPath;
use crate::command_text::CommandText;
use crate::console_error::ConsoleError;
use crate::page_frame::problem_box;
use crate::page_request::PageRequest;
use crate::shown_text::{self, clock_mark, command_line, value_block, value_line};
use crate::text_diff::text_diff;

/// Maximum listed notes and events.
const MAX_NOTES: usize = 20;

/// The node to compare with.
pub(super) struct OtherNode {
    /// Label of the other node, with its execution.
    told: String,
    node: Result<NodeDescription, ConsoleError>,
}

/// Reads the node to compare with; `None` if the address names none. If the text is the id of an
/// execution, reads the same node of that execution; otherwise reads the node with that name in
/// this one.
pub(super) async fn read_compared(
    request: &PageRequest,
    id: &str,
    name: &str,
    choice: &NodeChoice,
) -> Option<OtherNode> {
    let with = choice.with.as_deref().map(str::trim).filter(|with| !with.is_empty())?;
    let here = ApiPath::of(&["executions", id, "node"]).with("name", with);
    if let Ok(node) = request.api.get::<NodeDescription>(&here).await {
        return Some(OtherNode { told: with.to_owned(), node: Ok(node) });
    }
    let there = ApiPath::of(&["executions", with, "node"]).with("name", name);
    Some(OtherNode { told: format!("{name} of {with}"), node: request.api.get(&there).await })
}

/// Conditions with the values that they refer to, and notes of the dialect.
pub(super) fn conditions(execution: &ExecutionDescription, node: &NodeDescription) -> Markup {
    let warnings: Vec<&str> = execution
        .warnings
        .iter()
        .filter(|warning| warning.node.as_deref() == Some(&node.node))
        .map(|warning| warning.message.as_str())
        .collect();
    html! {
        @for condition in &node.evidence.conditions {
            h3 { @match condition.kind.as_str() { "when" => "Runs when", "items" => "Items", "switch" => "Switch", _ => "Condition" } }
            p {
                code { (shown_text::line(&condition.text, 600)) }
                @if let Some(holds) = condition.holds { " " b { @if holds { "true" } @else { "false" } } }
            }
            @if !condition.bound.is_empty() {
                dl.preview {
                    @for bound in &condition.bound {
                        div {
                            dt { code { (shown_text::line(&bound.name, 80)) } }
                            dd { @match &bound.value { Some(value) => code { (value_line(value)) }, None => span.quiet { "no value" } } }
                        }
                    }
                }
            }
        }
        @if !warnings.is_empty() || !node.evidence.notes.is_empty() {
            h3 { "Notes" }
            ul.log {
                @for warning in warnings.iter().take(MAX_NOTES) { li { (shown_text::line(warning, 600)) } }
                @for note in node.evidence.notes.iter().take(MAX_NOTES) { li { (note_words(note)) } }
            }
        }
    }
}

/// A note of a dialect: its kind and its value.
fn note_words(note: &Value) -> Markup {
    let entry =
        note.as_object().filter(|members| members.len() == 1).and_then(|members| members.iter().next());
    html! {
        @match entry {
            Some((kind, said)) => { b { (shown_text::line(&kind.replace('_', " "), 60)) } " " (value_line(said)) }
            None => (value_line(note)),
        }
    }
}

/// Tokens, price and tool calls.
pub(super) fn usage(node: &NodeDescription) -> Markup {
    let number = |key: &str| node.evidence.usage.get(key).and_then(Value::as_u64);
    let counts = [
        ("turns", "Turns"),
        ("tool_calls", "Tool calls"),
        ("input_tokens", "Input tokens"),
        ("cached_tokens", "Cached input tokens"),
        ("output_tokens", "Output tokens"),
    ];
    let counts: Vec<(&str, u64)> =
        counts.into_iter().filter_map(|(key, told)| Some((told, number(key)?))).collect();
    let cost = node.evidence.usage.get("cost_usd").and_then(Value::as_f64);
    let model = node.evidence.usage.get("model").and_then(Value::as_str);
    html! {
        @if !counts.is_empty() || cost.is_some() || !node.evidence.agent_events.is_empty() {
            h3 { "Model" }
            dl.facts {
                @if let Some(model) = model { div { dt { "Model" } dd { (shown_text::line(model, 60)) } } }
                @for (told, count) in &counts { div { dt { (told) } dd { (count) } } }
                @if let Some(cost) = cost { div { dt { "Price" } dd { "$" (format!("{cost:.4}")) } } }
            }
            @if !node.evidence.agent_events.is_empty() {
                details {
                    summary { (words::count(node.evidence.agent_events.len(), "event")) " of the agent" }
                    ol.log { @for event in node.evidence.agent_events.iter().take(MAX_NOTES) { li { code { (value_line(event)) } } } }
                }
            }
        }
    }
}

fn pretty(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).unwrap_or_default(),
    }
}

/// Attempts with input and result, each compared with the previous one.
pub(super) fn attempts(node: &NodeDescription, whole: &str) -> Markup {
    html! {
        @if node.evidence.attempt_list.len() > 1 {
            h3 { "Attempts" }
            ol.attempts {
                @for (place, attempt) in node.evidence.attempt_list.iter().enumerate() {
                    li {
                        details {
                            summary {
                                "Attempt " (attempt.attempt) " at " (clock_mark(attempt.at)) " "
                                @if attempt.error.is_some() { "failed" } @else if attempt.output.is_some() { "succeeded" } @else { "in progress" }
                            }
                            (attempt_part(attempt, place.checked_sub(1).and_then(|before| node.evidence.attempt_list.get(before)), whole))
                        }
                    }
                }
            }
        }
    }
}

fn attempt_part(attempt: &AttemptEvidence, before: Option<&AttemptEvidence>, whole: &str) -> Markup {
    html! {
        @match before {
            Some(before) if before.input == attempt.input => p.quiet { "Same input as the previous attempt." },
            Some(before) => { p { "Input, compared with the previous attempt:" } (text_diff(["Previous attempt", "This attempt"], &pretty(&before.input), &pretty(&attempt.input))) },
            None => (value_block(&attempt.input, whole)),
        }
        @if let Some(error) = &attempt.error { div.failure { (fault(error)) } }
        @if let Some(output) = &attempt.output { p { "Output" } (value_block(output, whole)) }
    }
}

/// The form for another iteration or execution, and the differences.
pub(super) fn comparison(
    execution: &ExecutionDescription,
    choice: &NodeChoice,
    node: &NodeDescription,
    compared: Option<&OtherNode>,
) -> Markup {
    html! {
        details open[compared.is_some()] {
            summary { "Compare with another iteration or execution" }
            form.filter method="get" action=(choice.tab.address(&execution.execution)) {
                input type="hidden" name="node" value=(choice.node.as_deref().unwrap_or_default());
                @for (name, value) in choice.fields() {
                    @if let Some(value) = value.filter(|value| !value.is_empty()) { input type="hidden" name=(name) value=(value); }
                }
                label.wide { span { "Node of this execution, or id of another execution" } input type="text" name="with" value=[choice.with.as_deref()] autocomplete="off"; }
                button type="submit" { "Compare" }
            }
            @if let Some(compared) = compared {
                @match &compared.node {
                    Err(error) => (problem_box(error)),
                    Ok(other) => {
                        (command_line(&CommandText::of_execution("sinew execution diff", &execution.execution).word(choice.with.as_deref().unwrap_or_default()).flag("--node", &node.node)))
                        h3 { "Input" }
                        (values_diff([&compared.told, &node.node], other.input.as_ref(), node.input.as_ref()))
                        h3 { "Output" }
                        (values_diff([&compared.told, &node.node], other.output.as_ref(), node.output.as_ref()))
                    }
                }
            }
        }
    }
}

fn values_diff(sides: [&str; 2], old: Option<&Value>, new: Option<&Value>) -> Markup {
    let text = |value: Option<&Value>| value.map(pretty).unwrap_or_default();
    text_diff(sides, &text(old), &text(new))
}
