//! Reads and checks what this dialect adds to the source format: approvals, sleeps, handled
//! failures.

use serde_json::Value;
use sinew_protocol::access::{check_group_name, group_of};
use sinew_protocol::code;
use sinew_source::{Diagnostic, Kind, Node, Span};

use super::approval::{Approval, near_word};
use super::duration;
use super::failure::Tolerance;
use super::lower::WORKFLOW_TIMEOUT;
use super::model::{KeySpans, NodeDef, Work};
use super::parse::{note, placed};
use super::read::{Keys, ObjectFields, ParseFindings, wrong_type};
use super::sleep::{Sleep, instant_ms};
use super::validate::DefinitionCheck;

fn wrong(message: String, at: Span) -> Diagnostic {
    Diagnostic::error(code::WRONG_VALUE_IN_WORKFLOW.as_str(), message).at(at)
}

/// Reads an approval.
pub(super) fn approval(
    fields: &mut ObjectFields<'_>,
    places: &mut KeySpans,
    found: &mut ParseFindings,
) -> Option<Approval> {
    const ON_DUE: Keys = &["on_due", "onDue"];
    let prompt = placed(fields, &["prompt"], true, places, found);
    let data = fields.get(&["data"], found);
    note(places, "data", data);
    let allowed = fields.get(&["allowed"], found);
    note(places, "allowed", allowed);
    let allowed = allowed.map(|node| people(node, &fields.key(&["allowed"]), found)).unwrap_or_default();
    let approvals = fields.whole(&["approvals"], 1, found);
    note(places, "approvals", fields.get(&["approvals"], &mut Vec::new()));
    let due = fields.duration(&["due"], found);
    note(places, "due", fields.get(&["due"], &mut Vec::new()));
    let on_due = placed(fields, ON_DUE, false, places, found);
    let on_reject = placed(fields, &["on_reject", "onReject"], false, places, found);
    let reminder = fields.duration(&["reminder"], found);
    note(places, "reminder", fields.get(&["reminder"], &mut Vec::new()));
    let seconds = |written: &Option<Value>| written.as_ref().and_then(|value| duration::seconds(value).ok());
    if let Some(before) = seconds(&reminder)
        && seconds(&due).is_none_or(|due| before <= 0.0 || before >= due)
    {
        let message = format!("{} must be shorter than 'due'", fields.key(&["reminder"]));
        let hint =
            "it is the time before the end of 'due': with 'due: 2d', 'reminder: 4h' reminds after 44 hours";
        found.push(wrong(message, places.of("reminder")).hint(hint));
    }
    if on_due.is_some() && due.is_none() {
        let message = format!("{} needs 'due'", fields.key(ON_DUE));
        found.push(wrong(message, places.of("on_due")).hint("add a time limit, such as 'due: 2h'"));
    }
    let data = data.map(Node::to_json);
    Some(Approval { prompt: prompt?, data, allowed, approvals, due, reminder, on_due, on_reject })
}

/// Reads the people of an approval: a name or a list of names, each possibly a template.
fn people(node: &Node, key: &str, found: &mut ParseFindings) -> Vec<Value> {
    let names = match &node.kind {
        Kind::Array(names) => names.as_slice(),
        _ => std::slice::from_ref(node),
    };
    if names.is_empty() {
        let message = format!("{key} names nobody, so nobody could decide");
        found.push(wrong(message, node.span).hint("name people, or remove it to let anyone decide"));
    }
    let mut read = Vec::new();
    for name in names {
        match name.as_str() {
            Some(text) if text.trim().is_empty() => {
                found.push(wrong(format!("{key} contains an empty name"), name.span));
            }
            Some(text) if group_of(text).is_some_and(|group| check_group_name(group).is_err()) => {
                let message = format!("{key} contains '{text}', which names no group");
                found.push(
                    wrong(message, name.span).hint("write 'group:NAME' with letters, digits, '_' or '-'"),
                );
            }
            Some(text) => read.push(Value::String(text.to_owned())),
            None => found.push(wrong_type(name, &format!("every entry of {key}"), "the name of a person")),
        }
    }
    read
}

/// Reads a sleep.
pub(super) fn sleep(
    fields: &mut ObjectFields<'_>,
    places: &mut KeySpans,
    found: &mut ParseFindings,
) -> Option<Sleep> {
    let written = fields.get(&["duration"], found);
    note(places, "duration", written);
    let is_template = written.and_then(Node::as_str).is_some_and(|text| text.contains("{{"));
    let duration = match written {
        Some(node) if is_template => Some(node.to_json()),
        _ => fields.duration(&["duration"], found),
    };
    let until = placed(fields, &["until"], false, places, found);
    match (written, &until) {
        (Some(_), Some(_)) => {
            let message = format!("{} has both 'duration' and 'until'", fields.what);
            found.push(wrong(message, places.of("until")).hint("keep one of them"));
        }
        (None, None) => {
            let message = format!("{} needs 'duration' or 'until'", fields.what);
            let missing = Diagnostic::error(code::REQUIRED_KEY_MISSING_IN_WORKFLOW.as_str(), message);
            found.push(missing.at(fields.span).hint("for example 'duration: 10m'"));
            return None;
        }
        (None, Some(time)) if !time.contains("{{") && instant_ms(time).is_none() => {
            let message = format!("{}: '{time}' is not a time in RFC 3339", fields.key(&["until"]));
            let unreadable = Diagnostic::error(code::DURATION_CANNOT_BE_READ.as_str(), message);
            found.push(unreadable.at(places.of("until")).hint("for example 2026-12-01T09:00:00Z"));
        }
        _ => {}
    }
    Some(Sleep { duration, until })
}

/// Reads the number of items of a map that may fail.
pub(super) fn tolerance(
    fields: &mut ObjectFields<'_>,
    places: &mut KeySpans,
    found: &mut ParseFindings,
) -> Option<Value> {
    let node = fields.get(&["tolerate"], found)?;
    note(places, "tolerate", Some(node));
    let value = node.to_json();
    if Tolerance::parse(&value).is_none() {
        let message = format!("{} must be a count or a percentage of items", fields.key(&["tolerate"]));
        found.push(wrong(message, node.span).hint("for example 3 or 5%"));
        return None;
    }
    Some(value)
}

impl<'d> DefinitionCheck<'d, '_> {
    /// Checks the ways out of a node that handles a failure or a rejection.
    pub(super) fn ways(&mut self, node: &'d NodeDef) {
        let of = format!("node '{}'", node.id);
        let at = node.places.of("on_error");
        if node.continue_on_error && node.on_error.is_some() {
            let message = format!("{of} has both 'continue_on_error' and 'on_error'");
            self.found.push(wrong(message, at).hint("keep one of them"));
        }
        if let Some(target) = &node.on_error
            && node.work.targets().iter().any(|(_, id)| id == target)
        {
            let message = format!("'on_error' of {of} names '{target}', which is also one of its branches");
            self.found.push(wrong(message, at).hint("name another node for errors"));
        }
        let is_branch = matches!(node.work, Work::Switch { .. } | Work::Conditional { .. });
        if let Some((key, id)) = node.targets().first()
            && !(self.shape.flows(&node.id) || is_branch && node.on_error.is_none())
        {
            let message =
                format!("{of} runs inside a map or loop or at the end, so it cannot lead to '{id}'");
            let cannot = Diagnostic::error(code::NODE_CANNOT_STAND_THERE.as_str(), message);
            self.found.push(cannot.at(node.places.of(key)));
        }
        match &node.work {
            Work::Approval(approval) => self.approval(node, approval),
            Work::Sleep(sleep) => self.sleep(node, sleep),
            _ => {}
        }
    }

    fn approval(&mut self, node: &'d NodeDef, approval: &'d Approval) {
        let of = format!("node '{}'", node.id);
        for key in ["prompt", "data", "allowed"] {
            self.templates(&node.places, key, &format!("'{key}' of {of}"), Some(node));
        }
        let is_static = approval
            .allowed
            .iter()
            .all(|name| name.as_str().is_some_and(|name| !name.contains("{{") && group_of(name).is_none()));
        let people: std::collections::BTreeSet<&str> =
            approval.allowed.iter().filter_map(Value::as_str).collect();
        if let Some(needed) = approval.approvals
            && is_static
            && !people.is_empty()
            && people.len() < needed as usize
        {
            let message = format!(
                "{of} needs {needed} approvals by different people, and 'allowed' names {}",
                people.len()
            );
            self.found.push(wrong(message, node.places.of("approvals")));
        }
        for (key, id) in &approval.targets() {
            if let Some(near) = near_word(key, id).filter(|_| !self.has(id)) {
                let message = format!("'{key}' of {of} is '{id}', which is neither a node nor a known word");
                let unknown = wrong(message, node.places.of(key));
                self.found.push(unknown.hint(format!("did you mean '{near}'?")));
            }
        }
    }

    /// Warns about a sleep that the time limit of the execution ends.
    fn sleep(&mut self, node: &'d NodeDef, sleep: &'d Sleep) {
        for key in ["duration", "until"] {
            self.templates(&node.places, key, &format!("'{key}' of node '{}'", node.id), Some(node));
        }
        let limit = self.definition.settings.max_workflow_execution_time_seconds;
        let limit = limit.unwrap_or(WORKFLOW_TIMEOUT);
        let seconds = sleep.duration.as_ref().and_then(|duration| duration::seconds(duration).ok());
        if seconds.is_some_and(|seconds| seconds >= limit) {
            let message =
                format!("node '{}' sleeps longer than the {limit} s of the whole execution", node.id);
            let long = Diagnostic::warning(code::SETTING_NO_EFFECT.as_str(), message);
            let hint = "raise 'max_workflow_execution_time_seconds'";
            self.found.push(long.at(node.places.of("duration")).hint(hint));
        }
    }
}
