//! Grades trials, and formats the report of an evaluation.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use sinew_documents::words;
use sinew_protocol::Fault;
use sinew_source::Node;

use crate::difference;
use crate::eval_file::EvalCase;

/// A trial of a case: the result of one conversation.
#[derive(Clone, Debug)]
pub struct EvalTrial {
    /// Output of the agent, or its fault.
    pub outcome: Result<Value, Fault>,
    /// Names of the tools that the model called, in order.
    pub calls: Vec<String>,
    /// Usage of the agent; null if it reported none.
    pub usage: Value,
    /// Time from the call to the answer.
    pub elapsed: Duration,
}

impl EvalTrial {
    /// Returns the number of turns; 0 if the agent reported none.
    pub fn turns(&self) -> u64 {
        self.usage["turns"].as_u64().unwrap_or(0)
    }

    /// Returns the price in USD; `None` if a model has no price.
    fn cost(&self) -> Option<f64> {
        self.usage["cost_usd"].as_f64()
    }
}

/// Returns the expectations that a trial does not meet, one per line.
pub fn grade_trial(case: &EvalCase, trial: &EvalTrial) -> Vec<String> {
    let Some(expect) = &case.expect else {
        // Check and judge evaluate only outputs.
        return trial.outcome.as_ref().err().map(told).into_iter().collect();
    };
    let wants_error = expect.get("error").is_some();
    let mut found: Vec<String> = match &trial.outcome {
        Err(fault) if !wants_error => vec![told(fault)],
        _ => Vec::new(),
    };
    for member in expect.as_object().unwrap_or_default() {
        let lines = unmet(&member.key, &member.value, trial);
        found.extend(lines.into_iter().map(|line| format!("{}: {line}", member.key)));
    }
    found
}

fn told(fault: &Fault) -> String {
    format!("error: {} [{}]", fault.message, fault.code)
}

fn unmet(key: &str, want: &Node, trial: &EvalTrial) -> Vec<String> {
    let output = trial.outcome.as_ref().ok();
    let differs =
        |seen: &Value, part: bool| difference::lines(&difference::differences(&want.to_json(), seen, part));
    let texts = || want.as_array().unwrap_or(std::slice::from_ref(want)).iter().filter_map(Node::as_str);
    match (key, output) {
        ("output", Some(output)) => differs(output, false),
        ("output_contains", Some(output)) => differs(output, true),
        ("text_contains", Some(output)) => {
            let said = output.to_string().to_lowercase();
            let missing = texts().filter(|text| !said.contains(&escaped(text).to_lowercase()));
            missing.map(|text| format!("'{text}' is missing in {}", difference::short(output))).collect()
        }
        ("error", None) => {
            let seen = trial.outcome.as_ref().err().map(told).unwrap_or_default();
            let holds = want.as_str().is_some_and(|part| seen.contains(part));
            if holds { Vec::new() } else { vec![seen] }
        }
        ("error", Some(output)) => vec![format!("there is an output: {}", difference::short(output))],
        ("calls", _) => differs(&json!(trial.calls), false),
        ("called", _) => texts()
            .filter(|tool| !trial.calls.iter().any(|called| called == tool))
            .map(|tool| format!("{tool} was not called; called: [{}]", trial.calls.join(", ")))
            .collect(),
        ("not_called", _) => texts()
            .filter(|tool| trial.calls.iter().any(|called| called == tool))
            .map(|tool| format!("{tool} was called"))
            .collect(),
        ("max_turns", _) => {
            let (turns, most) = (trial.turns(), want.to_json().as_u64().unwrap_or(u64::MAX));
            if turns > most { vec![format!("{turns} turns, at most {most}")] } else { Vec::new() }
        }
        ("max_cost_usd", _) => match (trial.cost(), want.to_json().as_f64()) {
            (Some(cost), Some(most)) if cost > most => vec![format!("${cost:.6}, at most ${most}")],
            (None, _) => vec!["the price is not known: the model has none in its file".to_owned()],
            _ => Vec::new(),
        },
        // The missing output is already reported.
        _ => Vec::new(),
    }
}

/// Escapes a text as in JSON.
fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.trim_matches('"').to_owned()
}

/// A trial with its problems.
#[derive(Clone, Debug)]
pub struct GradedTrial {
    /// The trial.
    pub trial: EvalTrial,
    /// Reasons why it failed; empty if it passed.
    pub problems: Vec<String>,
}

/// Trials of a case.
#[derive(Clone, Debug)]
pub struct EvalVerdict {
    /// Name of the evaluation file.
    pub file: String,
    /// Name of the case.
    pub name: String,
    /// Required pass rate.
    pub pass: f64,
    /// The trials, in order.
    pub trials: Vec<GradedTrial>,
}

impl EvalVerdict {
    /// Returns the number of passed trials.
    fn good(&self) -> usize {
        self.trials.iter().filter(|trial| trial.problems.is_empty()).count()
    }

    /// Returns whether the pass rate is reached.
    pub fn passed(&self) -> bool {
        // Tolerate rounding of decimal fractions.
        !self.trials.is_empty() && self.good() as f64 >= self.pass * self.trials.len() as f64 - 1e-9
    }

    /// Formats the verdict: one line, and one more for each problem of a trial.
    pub fn text(&self, ascii: bool) -> String {
        let (icon, word) = match (self.passed(), ascii) {
            (true, false) => ("✓", "passed"),
            (true, true) => ("+", "passed"),
            (false, false) => ("✗", "failed"),
            (false, true) => ("x", "failed"),
        };
        let totals = TrialTotals::of(&self.trials);
        let name = words::name(&format!("{}  {}", self.file, self.name));
        let (good, all) = (self.good(), self.trials.len());
        let mut text = format!("{icon} {word}  {name}  {good} of {all}  {}\n", totals.text());
        for (number, graded) in self.trials.iter().enumerate() {
            for line in graded.problems.iter().flat_map(|problem| problem.lines()) {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "    trial {}: {}", number + 1, words::name(line));
            }
        }
        text
    }

    fn json(&self) -> Value {
        let trials = self.trials.iter().map(|graded| {
            let trial = &graded.trial;
            let mut told = json!({
                "passed": graded.problems.is_empty(),
                "problems": graded.problems,
                "calls": trial.calls,
                "usage": trial.usage,
                "elapsed_ms": millis(trial.elapsed),
            });
            match &trial.outcome {
                Ok(output) => told["output"] = output.clone(),
                Err(fault) => told["error"] = json!({"code": fault.code, "message": fault.message}),
            }
            told
        });
        json!({
            "file": self.file,
            "name": self.name,
            "passed": self.passed(),
            "pass": self.pass,
            "good": self.good(),
            "trials": trials.collect::<Vec<_>>(),
        })
    }
}

/// Totals of trials.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct TrialTotals {
    trials: usize,
    turns: u64,
    input_tokens: u64,
    output_tokens: u64,
    /// `None` if the price of a trial is unknown.
    cost_usd: Option<f64>,
    median: Duration,
    longest: Duration,
}

impl TrialTotals {
    fn of<'a>(trials: impl IntoIterator<Item = &'a GradedTrial>) -> Self {
        let trials: Vec<&EvalTrial> = trials.into_iter().map(|graded| &graded.trial).collect();
        let sum = |key: &str| trials.iter().filter_map(|trial| trial.usage[key].as_u64()).sum();
        let mut times: Vec<Duration> = trials.iter().map(|trial| trial.elapsed).collect();
        times.sort_unstable();
        Self {
            trials: trials.len(),
            turns: sum("turns"),
            input_tokens: sum("input_tokens"),
            output_tokens: sum("output_tokens"),
            cost_usd: trials.iter().map(|trial| trial.cost()).sum(),
            median: times.get(times.len() / 2).copied().unwrap_or_default(),
            longest: times.last().copied().unwrap_or_default(),
        }
    }

    /// Formats turns per trial, median duration, and price if it is known.
    fn text(&self) -> String {
        let turns = self.turns as f64 / self.trials.max(1) as f64;
        let cost = self.cost_usd.map(|cost| format!("  ${cost:.6}")).unwrap_or_default();
        format!("{turns:.1} turns  {}{cost}", words::duration(millis(self.median)))
    }

    fn json(&self) -> Value {
        json!({
            "trials": self.trials,
            "turns": self.turns,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost_usd": self.cost_usd,
            "median_ms": millis(self.median),
            "longest_ms": millis(self.longest),
        })
    }
}

/// Report of an evaluation.
#[derive(Clone, Debug, Default)]
pub struct EvalReport {
    /// Verdicts of cases in run order.
    pub verdicts: Vec<EvalVerdict>,
}

impl EvalReport {
    /// Returns whether all cases, and at least one, passed.
    pub fn is_good(&self) -> bool {
        !self.verdicts.is_empty() && self.verdicts.iter().all(EvalVerdict::passed)
    }

    fn totals(&self) -> TrialTotals {
        TrialTotals::of(self.verdicts.iter().flat_map(|verdict| &verdict.trials))
    }

    /// Formats the last lines for people.
    pub fn summary(&self) -> String {
        let good = self.verdicts.iter().filter(|verdict| verdict.passed()).count();
        let (failed, totals) = (self.verdicts.len() - good, self.totals());
        let tokens = format!("{} tokens in, {} out", totals.input_tokens, totals.output_tokens);
        format!("{good} passed, {failed} failed  {} trials, {}, {tokens}", totals.trials, totals.text())
    }

    /// Returns the report as JSON.
    pub fn json(&self) -> Value {
        let good = self.verdicts.iter().filter(|verdict| verdict.passed()).count();
        json!({
            "passed": good,
            "failed": self.verdicts.len() - good,
            "totals": self.totals().json(),
            "cases": self.verdicts.iter().map(EvalVerdict::json).collect::<Vec<_>>(),
        })
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
