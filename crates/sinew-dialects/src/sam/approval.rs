//! The `approval` node: a question to people whose answer decides how the workflow continues.
//!
//! The question is that of the engine, so every channel lists it and decides it. An extension of
//! the source format.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sinew_engine::{
    ActivationId, ActivationOutput, AdapterContext, NodeDecision, PersonAnswer, PersonRequest, SharedJson,
};
use sinew_protocol::decision::WrittenDecision;
use sinew_protocol::{Fault, code};

use super::duration;
use super::lower::OUT;
use super::path::{TemplateScope, TextPart};
use super::template::{Template, fill};

/// Maximum number of people of one question.
const MAX_PEOPLE: usize = 100;

/// Settings of an approval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// The question, with templates.
    pub prompt: String,
    /// Template of the data to decide on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// Names of the people who may decide, with templates; anyone if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<Value>,
    /// Number of people who must approve; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<u32>,
    /// Time limit of the decision; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Value>,
    /// Time before the end of the time limit at which people are reminded; never by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reminder: Option<Value>,
    /// What happens at the time limit: `fail` (the default), `reject`, or a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_due: Option<String>,
    /// What happens after a rejection: `fail`, `continue`, or a node. Plans always have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_reject: Option<String>,
}

/// A rejection, or the end of the time limit, fails the node.
pub(super) const FAIL: &str = "fail";
/// A rejection is an output like any other.
pub(super) const CONTINUE: &str = "continue";
/// The end of the time limit is a rejection.
pub(super) const REJECT: &str = "reject";

impl Approval {
    /// Returns the nodes to which the approval leads without approving, with the names of their
    /// keys.
    pub(super) fn targets(&self) -> Vec<(String, &str)> {
        let rejected = self.on_reject.as_deref().filter(|way| ![FAIL, CONTINUE].contains(way));
        let late = self.on_due.as_deref().filter(|way| ![FAIL, REJECT].contains(way));
        let named = |key: &str, id| (key.to_owned(), id);
        let rejected = rejected.map(|id| named("on_reject", id));
        rejected.into_iter().chain(late.map(|id| named("on_due", id))).collect()
    }

    /// Returns the label of the edge to a target; `None` for other nodes.
    pub(super) fn label(&self, target: &str) -> Option<&'static str> {
        let leads = |key: &str| self.targets().contains(&(key.to_owned(), target));
        match (leads("on_reject"), leads("on_due")) {
            (true, true) => Some("rejected or not decided in time"),
            (true, false) => Some("rejected"),
            (false, true) => Some("not decided in time"),
            (false, false) => None,
        }
    }

    fn due_ms(&self) -> Option<u64> {
        self.due.as_ref().and_then(|due| duration::milliseconds(due).ok())
    }

    /// Returns the milliseconds from the question to its reminder.
    fn remind_ms(&self) -> Option<u64> {
        let before = duration::milliseconds(self.reminder.as_ref()?).ok()?;
        self.due_ms()?.checked_sub(before)
    }
}

/// Returns the word that is similar to the value of `on_reject` or `on_due`.
pub(super) fn near_word(key: &str, way: &str) -> Option<&'static str> {
    let words = match key {
        "on_reject" => [FAIL, CONTINUE],
        "on_due" => [FAIL, REJECT],
        _ => return None,
    };
    sinew_source::did_you_mean(way, words.into_iter())
}

/// Returns the question of an approval whose prompt and data are filled from `scope`.
pub(super) fn question(
    approval: &Approval,
    prompt: Option<&[TextPart]>,
    data: Option<&Template>,
    scope: &dyn TemplateScope,
) -> Result<NodeDecision, Fault> {
    let missing = |reason: String| Fault::invalid(code::TEMPLATE_FIELD_MISSING.as_str(), reason);
    let prompt = fill(prompt.unwrap_or_default(), scope);
    let prompt = prompt.map_err(|error| missing(error.to_string()))?;
    let data = data.map(|data| data.resolve(scope)).transpose().map_err(missing)?;
    let allowed = Template::parse(&Value::Array(approval.allowed.clone()));
    let allowed = people(&allowed.resolve(scope).map_err(missing)?)?;
    Ok(NodeDecision::Wait(Box::new(PersonRequest {
        prompt: prompt + &progress(approval, &[]),
        data: SharedJson::new(data.unwrap_or_default()),
        allowed,
        timeout_ms: approval.due_ms(),
        remind_ms: approval.remind_ms(),
        decision: true,
        approvals: Vec::new(),
    })))
}

/// Returns the names in `allowed`, in which a template may be a list.
fn people(allowed: &Value) -> Result<Vec<String>, Fault> {
    let wrong = |text: String| Fault::invalid(code::TEMPLATE_FIELD_MISSING.as_str(), text);
    let mut names = Vec::new();
    for entry in allowed.as_array().into_iter().flatten() {
        let entries = entry.as_array().map_or(std::slice::from_ref(entry), Vec::as_slice);
        // Without names, anyone could decide.
        if entries.is_empty() {
            return Err(wrong("'allowed' contains an empty list".to_owned()));
        }
        for name in entries {
            match name.as_str().map(str::trim).filter(|name| !name.is_empty()) {
                Some(name) => names.push(name.to_owned()),
                None => return Err(wrong(format!("'allowed' contains {name}, which is not a name"))),
            }
        }
    }
    if names.len() > MAX_PEOPLE {
        return Err(wrong(format!("'allowed' has {} names, more than {MAX_PEOPLE}", names.len())));
    }
    Ok(names)
}

/// Returns the step after an answer, or at the end of the time limit.
pub(super) fn answered(
    approval: &Approval,
    ctx: &AdapterContext<'_>,
    act: ActivationId,
    answer: &PersonAnswer,
) -> NodeDecision {
    let question = ctx.act(act).wait.as_deref().cloned().unwrap_or_default();
    if answer.timed_out {
        return late(approval, &question);
    }
    let Some(given) = decision(answer) else {
        // The answer is neither yes nor no, so the question stays open.
        return ask_again(approval, ctx, act, question);
    };
    let mut approvals = question.approvals.clone();
    if !given.approved {
        let output = output(approval, &approvals, &given, answer.by.as_deref());
        return rejected(approval, output, || {
            let by = answer.by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
            let why = given.comment.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            Fault::failure(code::PERSON_REJECTED.as_str(), format!("rejected{by}{why}"))
        });
    }
    approvals.push(PersonAnswer {
        data: given.data.clone(),
        by: answer.by.clone(),
        comment: given.comment.clone(),
        approved: Some(true),
        timed_out: false,
    });
    if approvals.len() < approval.approvals.unwrap_or(1) as usize {
        let asked = question.prompt.strip_suffix(&progress(approval, &question.approvals));
        let prompt = asked.unwrap_or(&question.prompt).to_owned() + &progress(approval, &approvals);
        return ask_again(approval, ctx, act, PersonRequest { prompt, approvals, ..question });
    }
    let value = SharedJson::new(output(approval, &approvals, &given, answer.by.as_deref()));
    NodeDecision::Done(ActivationOutput::new(SharedJson::clone(&value)).port(OUT, value))
}

/// Returns the suffix of the question with the approvals so far; empty if one person decides.
fn progress(approval: &Approval, approvals: &[PersonAnswer]) -> String {
    let Some(needed) = approval.approvals.filter(|needed| *needed > 1) else { return String::new() };
    let people: Vec<&str> = approvals.iter().filter_map(|one| one.by.as_deref()).collect();
    let people = if people.is_empty() { String::new() } else { format!(": {}", people.join(", ")) };
    format!(" ({} of {needed} approvals{people})", approvals.len())
}

/// Reads an answer; `None` if it does not decide. Data that contradicts an explicit approval rejects.
fn decision(answer: &PersonAnswer) -> Option<WrittenDecision> {
    let written = WrittenDecision::of(&answer.data);
    let approved = match (answer.approved, &written) {
        (Some(false), _) => false,
        (Some(true), Some(written)) => written.approved,
        (Some(true), None) => true,
        (None, written) => written.as_ref()?.approved,
    };
    let (comment, data) = match written {
        Some(written) => (written.comment, written.data),
        None => (None, answer.data.clone()),
    };
    Some(WrittenDecision { approved, comment: answer.comment.clone().or(comment), data })
}

/// Asks the same question for the rest of its time.
fn ask_again(
    approval: &Approval,
    ctx: &AdapterContext<'_>,
    act: ActivationId,
    mut question: PersonRequest,
) -> NodeDecision {
    let started = ctx.act(act).began_at.unwrap_or(ctx.now);
    let passed = ctx.now.saturating_sub(started);
    question.timeout_ms = approval.due_ms().map(|due| due.saturating_sub(passed));
    // A question reminds once.
    question.remind_ms = approval.remind_ms().and_then(|at| at.checked_sub(passed)).filter(|ms| *ms > 0);
    NodeDecision::Wait(Box::new(question))
}

fn late(approval: &Approval, question: &PersonRequest) -> NodeDecision {
    let text = format!("nobody decided within {}", approval.due.as_ref().map(shown_due).unwrap_or_default());
    let given = WrittenDecision { approved: false, comment: Some(text.clone()), data: Value::Null };
    let output = output(approval, &question.approvals, &given, None);
    let fault = || Fault::timeout(code::PERSON_DID_NOT_ANSWER.as_str(), text);
    match approval.on_due.as_deref() {
        Some(REJECT) => rejected(approval, output, fault),
        None | Some(FAIL) => NodeDecision::Fail(fault().with_retryable(false)),
        Some(target) => led_to(target, output),
    }
}

/// Returns a duration as written, with the unit of a bare number.
fn shown_due(due: &Value) -> String {
    due.as_str().map_or_else(|| format!("{due} s"), str::to_owned)
}

fn rejected(approval: &Approval, output: Value, fault: impl FnOnce() -> Fault) -> NodeDecision {
    match approval.on_reject.as_deref() {
        None | Some(FAIL) => NodeDecision::Fail(fault().with_retryable(false)),
        Some(CONTINUE) => led_to(OUT, output),
        Some(target) => led_to(target, output),
    }
}

fn led_to(port: &str, output: Value) -> NodeDecision {
    let output = SharedJson::new(output);
    NodeDecision::Done(ActivationOutput::new(SharedJson::clone(&output)).port(port, output))
}

fn output(
    approval: &Approval,
    approvals: &[PersonAnswer],
    given: &WrittenDecision,
    by: Option<&str>,
) -> Value {
    let mut output = json!({
        "approved": given.approved, "by": by, "comment": given.comment, "data": given.data,
    });
    if approval.approvals.is_some_and(|needed| needed > 1) {
        let one = |one: &PersonAnswer| json!({ "by": one.by, "comment": one.comment, "data": one.data });
        output["approvals"] = approvals.iter().map(one).collect();
    }
    output
}
