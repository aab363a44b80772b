//! Judgements of a node's result: rules on its data and its tool calls, and models as judges.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use sinew_engine::RecordedReply;
use sinew_protocol::Fault;
use sinew_source::{SchemaCache, Violation};

use super::model::{EvalKind, Evaluator, OutputMatch, PlanExtra, Work};
use super::path;
use super::result::NodeResult;
use crate::pattern::MatchBudget;

/// Maximum length of stored reasoning, in characters.
const LONGEST: usize = 500;
/// Default passing verdict.
pub(super) const PASS: &str = "yes";

/// One judgement.
#[derive(Clone)]
pub(super) struct EvalVerdict {
    pub(super) name: String,
    pub(super) kind: EvalKind,
    pub(super) pass: bool,
    pub(super) reasoning: Option<String>,
}

impl EvalVerdict {
    fn new(name: &str, kind: EvalKind, pass: bool, reasoning: Option<String>) -> Self {
        let reasoning = reasoning.map(|text| text.chars().take(LONGEST).collect());
        Self { name: name.to_owned(), kind, pass, reasoning }
    }

    /// Returns the judgement as in results.
    pub(super) fn to_json(&self) -> Value {
        let mut all = Map::new();
        all.insert("name".into(), json!(self.name));
        all.insert("kind".into(), json!(self.kind.word()));
        all.insert("pass".into(), json!(self.pass));
        if let Some(reasoning) = &self.reasoning {
            all.insert("reasoning".into(), json!(reasoning));
        }
        Value::Object(all)
    }

    /// Returns the judgement as one line of an error.
    pub(super) fn line(&self) -> String {
        let why = self.reasoning.as_deref().unwrap_or("failed");
        format!("  - {} ({}): {why}", self.name, self.kind.word())
    }
}

/// Outcome of the judgements so far.
pub(super) enum JudgingOutcome {
    /// All evaluators have finished, in order.
    All(Vec<EvalVerdict>),
    /// The evaluator at this index needs a model's answer first.
    Ask(usize),
    /// A rule exceeds its evaluation budget.
    Failed(Fault),
}

/// Runs all evaluators on a result. `answers` are the answers of models so far, in request order.
pub(super) fn judge(
    plan: &PlanExtra,
    work: &Work,
    result: &NodeResult,
    answers: &[&RecordedReply],
) -> JudgingOutcome {
    let data = Value::Object(result.data.clone());
    let mut answers = answers.iter();
    let mut verdicts = Vec::with_capacity(work.eval.len());
    for (ix, evaluator) in work.eval.iter().enumerate() {
        let problems = match evaluator.kind {
            EvalKind::Value => match value_problems(evaluator, &data) {
                Ok(problems) => problems,
                Err(fault) => return JudgingOutcome::Failed(fault),
            },
            EvalKind::Function => function_problems(plan, work, evaluator, result),
            EvalKind::Judge => {
                let Some(first) = answers.next() else { return JudgingOutcome::Ask(ix) };
                let answer = match answer(first) {
                    Some(answer) => Some(answer),
                    // Retry once: models sometimes do not answer the question.
                    None => match answers.next() {
                        Some(second) => answer(second),
                        None => return JudgingOutcome::Ask(ix),
                    },
                };
                verdicts.push(model_verdict(evaluator, answer));
                continue;
            }
        };
        let reasoning = (!problems.is_empty()).then(|| problems.join("; "));
        verdicts.push(EvalVerdict::new(&evaluator.name, evaluator.kind, problems.is_empty(), reasoning));
    }
    JudgingOutcome::All(verdicts)
}

/// Returns the failed judgement of data without fields that its schema requires, if any are
/// missing.
pub(super) fn missing_output(work: &Work, result: &NodeResult) -> Option<EvalVerdict> {
    let required = work.output.as_ref()?.get("required")?.as_array()?;
    let names = required.iter().filter_map(Value::as_str);
    let missing: Vec<&str> = names.filter(|name| !result.data.contains_key(*name)).collect();
    let text = format!(
        "output schema violation: required field(s) missing from emitted data: {}",
        missing.join(", ")
    );
    (!missing.is_empty()).then(|| EvalVerdict::new("output_required", EvalKind::Value, false, Some(text)))
}

/// Cache of output schemas.
static OUTPUT_SCHEMAS: LazyLock<SchemaCache> = LazyLock::new(SchemaCache::default);

/// Returns the failed judgement of data that violates its schema in another way; `None` if it
/// conforms.
pub(super) fn broken_output(work: &Work, result: &NodeResult) -> Option<EvalVerdict> {
    let source = Value::Object(work.output.clone()?);
    let data = Value::Object(result.data.clone());
    let problems = match OUTPUT_SCHEMAS.get(&source) {
        Ok(schema) => schema.check(&data).err()?.iter().map(violation_text).collect::<Vec<_>>().join("; "),
        Err(error) => error.to_string(),
    };
    let text = format!("output schema violation: {problems}");
    Some(EvalVerdict::new("output_schema", EvalKind::Value, false, Some(text)))
}

fn violation_text(violation: &Violation) -> String {
    match violation.pointer.trim_start_matches('/') {
        "" => violation.message.clone(),
        path => format!("{}: {}", path.replace('/', "."), violation.message),
    }
}

fn value_problems(evaluator: &Evaluator, data: &Value) -> Result<Vec<String>, Fault> {
    rule_problems(&evaluator.rule.output_required, &evaluator.rule.output_matches, data)
}

/// Returns the paths without a value, and the values that do not match. Fails if the comparison
/// exceeds its budget.
pub(super) fn rule_problems(
    required: &[String],
    matches: &[OutputMatch],
    data: &Value,
) -> Result<Vec<String>, Fault> {
    let mut budget = MatchBudget::default();
    let mut problems: Vec<String> = required.iter().filter_map(|path| path::required(path, data)).collect();
    for check in matches {
        problems.extend(path::matches(check, data, &mut budget)?);
    }
    Ok(problems)
}

fn function_problems(
    plan: &PlanExtra,
    work: &Work,
    evaluator: &Evaluator,
    result: &NodeResult,
) -> Vec<String> {
    let rule = &evaluator.rule;
    let name = |call: &Value| call.get("tool").and_then(Value::as_str).unwrap_or_default().to_owned();
    let called: Vec<String> = result.tool_calls.iter().map(name).collect();
    let is_call_of = |tool: &str, call: &str| {
        let skills = work.skills.iter().filter_map(|id| plan.skills.get(id));
        let mut aliases = skills.filter_map(|skill| skill.mcp_aliases.get(tool)).flatten();
        call == tool || aliases.any(|alias| alias == call)
    };
    let succeeded = |tool: &&String| {
        result.tool_calls.iter().any(|call| is_call_of(tool, &name(call)) && !is_error(call))
    };
    let appeared = |tool: &&String| called.iter().any(|call| is_call_of(tool, call));
    let names = |tools: &[&String]| tools.iter().map(|tool| tool.as_str()).collect::<Vec<_>>().join(", ");
    let seen = format!("called: [{}]", called.join(", "));
    let mut problems = Vec::new();
    if !rule.any_tool_called.is_empty() && !rule.any_tool_called.iter().any(|tool| succeeded(&tool)) {
        let wanted: Vec<&String> = rule.any_tool_called.iter().collect();
        problems.push(format!("any_tool_called: no successful call to any of [{}], {seen}", names(&wanted)));
    }
    let missing: Vec<&String> = rule.all_tools_called.iter().filter(|tool| !succeeded(tool)).collect();
    if !missing.is_empty() {
        problems.push(format!("all_tools_called: missing successful calls to [{}], {seen}", names(&missing)));
    }
    let forbidden: Vec<&String> = rule.no_tool_called.iter().filter(appeared).collect();
    if !forbidden.is_empty() {
        problems
            .push(format!("no_tool_called: forbidden tools were invoked: [{}], {seen}", names(&forbidden)));
    }
    problems
}

fn is_error(call: &Value) -> bool {
    match call.get("status").and_then(Value::as_str) {
        Some(status) => status == "error",
        None => call.get("output").is_none_or(|output| output.get("error").is_some()),
    }
}

/// A model's verdict and reasoning.
type Answer = (String, Option<String>);

fn model_verdict(evaluator: &Evaluator, answer: Option<Answer>) -> EvalVerdict {
    let Some((word, reasoning)) = answer else {
        let text = "judge parse failure: model response did not contain a parseable VERDICT line";
        return EvalVerdict::new(&evaluator.name, EvalKind::Judge, false, Some(text.to_owned()));
    };
    let wanted = evaluator.pass_when.as_deref().unwrap_or(PASS);
    let pass = word.to_lowercase() == wanted.to_lowercase();
    let reasoning =
        reasoning.or_else(|| (!pass).then(|| format!("verdict was '{word}', expected '{wanted}'")));
    EvalVerdict::new(&evaluator.name, EvalKind::Judge, pass, reasoning)
}

/// Decodes a model's answer: lines `VERDICT: word` and `REASONING: text`, or the same as an object.
fn answer(replied: &RecordedReply) -> Option<Answer> {
    let output = &replied.result.as_ref().ok()?.output;
    if let Some(verdict) = output.get("verdict").and_then(Value::as_str) {
        let reasoning = output.get("reasoning").and_then(Value::as_str).map(str::to_owned);
        return word(verdict).map(|word| (word, reasoning));
    }
    let text = text_of(output)?;
    let after = |label: &str| {
        let lines = text.lines().map(|line| line.trim_start_matches(|c: char| !c.is_alphanumeric()));
        lines.enumerate().find_map(|(n, line)| {
            let head = line.get(..label.len())?;
            let rest = line.get(label.len()..)?.trim_start_matches(['*', '_', ' ']);
            head.eq_ignore_ascii_case(label)
                .then(|| rest.strip_prefix(':'))
                .flatten()
                .map(|rest| (n, rest.to_owned()))
        })
    };
    let (_, verdict) = after("verdict")?;
    let reasoning = after("reasoning").map(|(n, first)| {
        let rest: Vec<&str> = text.lines().skip(n + 1).collect();
        format!("{first}\n{}", rest.join("\n")).trim().to_owned()
    });
    word(&verdict).map(|word| (word, reasoning.filter(|text| !text.is_empty())))
}

fn word(text: &str) -> Option<String> {
    let word = text.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
    word.filter(|word| !word.is_empty()).map(str::to_owned).next()
}

/// Returns the text of a model's answer: bare, or the `text` of an object.
pub(super) fn text_of(output: &Value) -> Option<&str> {
    output.as_str().or_else(|| output.get("text").and_then(Value::as_str))
}
