//! Instructions of agents: rules, background, skills, the node's instruction, and the preamble of a
//! retry.

use serde_json::{Map, Value, json};

use super::eval::EvalVerdict;
use super::model::{Hint, NodeExtra, PlanExtra, ResolvedTexts};
use super::source;

/// Separator of the parts of an instruction.
const RULE: &str = "\n\n---\n\n";
/// Default question to a model between two attempts.
const REFLECT: &str = "The attempt below did not pass its evaluation. Say in a few sentences what went wrong and what \
    the next attempt must do differently.";

/// Returns the instruction of a node.
pub(super) fn instruction(plan: &PlanExtra, node: &NodeExtra, input: &Value) -> String {
    let rules = effective(input.get("rules"), &plan.rules, node.rules.as_ref());
    let context = effective(input.get("context"), &plan.context, node.context.as_ref());
    let mut parts = Vec::new();
    if rules.is_empty() && context.is_empty() {
        // The older field for additional context of an execution.
        let more = input.get("additionalContext").and_then(Value::as_str);
        parts.extend(
            more.filter(|more| !more.is_empty()).map(|more| format!("## Background Context\n\n{more}")),
        );
    }
    if !rules.is_empty() {
        parts.push(format!("## Rules — You MUST Follow These\n\n{}", rules.join("\n\n")));
    }
    if !context.is_empty() {
        parts.push(format!("## Background Context\n\n{}", context.join("\n\n")));
    }
    for id in &node.work.skills {
        let Some(skill) = plan.skills.get(id) else { continue };
        if let Some(text) = skill.instruction.as_deref().filter(|text| !text.trim().is_empty()) {
            parts.push(format!("## Skill: {}\n\n{text}", skill.name.as_deref().unwrap_or(id)));
        }
    }
    parts.push(node.instruction.clone());
    parts.join(RULE)
}

/// Returns the sources of the input, then of the workflow, then of the node; a node may use only
/// its own.
fn effective(input: Option<&Value>, workflow: &[String], node: Option<&ResolvedTexts>) -> Vec<String> {
    let own = node.map(|node| node.texts.clone()).unwrap_or_default();
    if node.is_some_and(|node| node.only) {
        return own;
    }
    let mut all: Vec<String> =
        given(input).into_iter().filter_map(|(_, source)| source::inline(source)).collect();
    all.extend_from_slice(workflow);
    all.extend(own);
    all
}

/// Returns the sources of the input, one or a list, with their indexes.
pub(super) fn given(sources: Option<&Value>) -> Vec<(usize, &Value)> {
    match sources {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(sources)) => sources.iter().enumerate().collect(),
        Some(source) => vec![(0, source)],
    }
}

/// Returns the context of a node in addition to its instruction: tools, servers, model.
pub(super) fn surroundings(plan: &PlanExtra, id: &str, node: &NodeExtra) -> Value {
    let work = &node.work;
    let skills = || work.skills.iter().filter_map(|id| plan.skills.get(id).map(|skill| (id, skill)));
    let passes = |tool: &&Value| {
        let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
        work.tools.as_ref().is_none_or(|filter| filter.passes(name))
    };
    let mut tools: Vec<&Value> = Vec::new();
    for tool in skills().flat_map(|(_, skill)| &skill.tools).filter(passes) {
        if !tools.iter().any(|known| known.get("name") == tool.get("name")) {
            tools.push(tool);
        }
    }
    let servers: Map<String, Value> = skills()
        .filter(|(_, skill)| !skill.mcp.is_null())
        .map(|(id, skill)| (id.clone(), skill.mcp.clone()))
        .collect();
    let mut all = json!({ "node": id, "tools": tools });
    let mut add = |key: &str, value: Value| all[key] = value;
    if !work.skills.is_empty() {
        add("skills", json!(work.skills));
    }
    if !servers.is_empty() {
        add("mcp", Value::Object(servers));
    }
    if let Some(filter) = &work.tools {
        add("toolFilter", json!(filter));
    }
    if let Some(model) = &work.model {
        add("model", json!(model));
    }
    if let Some(turns) = work.max_turns {
        add("maxTurns", json!(super::lower::whole(turns)));
    }
    if !work.disallowed_tools.is_empty() {
        add("disallowedTools", json!(work.disallowed_tools));
    }
    if let Some(output) = &work.output {
        add("outputSchema", json!(output));
    }
    all
}

/// Returns the question between two attempts; `None` without a question.
pub(super) fn question(hint: Option<&Hint>) -> Option<String> {
    match hint {
        Some(Hint::Reflect { reflect }) => Some(reflect.clone()),
        Some(Hint::Auto { auto: true }) => Some(REFLECT.to_owned()),
        _ => None,
    }
}

/// Returns the text before the instruction of a retry.
pub(super) fn preamble(hint: Option<&Hint>, reflection: Option<&str>, failing: &[&EvalVerdict]) -> String {
    let lines: Vec<String> = failing.iter().map(|verdict| verdict.line()).collect();
    let failed = format!("## Previous attempt failed evaluation\n\n{}", lines.join("\n"));
    let guidance = match hint {
        Some(Hint::Text(text)) => Some(text.as_str()),
        _ => reflection.filter(|text| !text.trim().is_empty()),
    };
    match guidance {
        Some(guidance) => format!("## Retry guidance\n\n{guidance}\n\n{failed}"),
        None => format!("{failed}\n\nFix and try again."),
    }
}

/// Adds a preamble to an instruction.
pub(super) fn again(preamble: &str, instruction: &str) -> String {
    format!("{preamble}{RULE}{instruction}")
}

/// Returns the instruction of a judge.
pub(super) fn rubric(rubric: &str, pass_when: &str) -> String {
    format!(
        "Judge the result of a workflow step (its data and its tool calls) by this rubric:\n\n{rubric}\n\n\
         Answer with two lines. VERDICT: one word, {pass_when} if the result meets the rubric. REASONING: why, in one \
         or two sentences."
    )
}

/// Question for a node whose edges have conditions.
pub(super) const ROUTE: &str =
    "Based on the results so far, which of these conditions holds? Answer with the id of one choice.";
