//! Reading of objects in a file: aliases, required keys, types, and messages for errors.

use indexmap::IndexSet;
use serde_json::Value;
use sinew_protocol::code;
use sinew_source::duration::parse_duration;
use sinew_source::{Diagnostic, Kind, Member, Node, Span, did_you_mean};

use super::duration;

/// The fields of one object. Every requested key is known; [`ObjectFields::close`] reports the
/// others.
pub(super) struct ObjectFields<'n> {
    members: &'n [Member],
    /// Name of the object in messages: `agent node 'a'`.
    pub(super) what: String,
    pub(super) span: Span,
    known: Vec<&'static str>,
    /// Findings about missing keys, which [`ObjectFields::close`] reports.
    missing: Vec<(&'static str, Diagnostic)>,
}

/// Prefix of keys that other programs read: they have no effect.
const EXTENSION: &str = "x-";

/// Parser findings.
pub(super) type ParseFindings = Vec<Diagnostic>;

/// A key and its aliases; messages use the first.
pub(super) type Keys = &'static [&'static str];

impl<'n> ObjectFields<'n> {
    /// Returns the object's fields; reports an error if the node is not an object.
    pub(super) fn open(node: &'n Node, what: impl Into<String>, found: &mut ParseFindings) -> Option<Self> {
        let what = what.into();
        let Kind::Object(members) = &node.kind else {
            found.push(wrong_type(node, &what, "an object"));
            return None;
        };
        Some(Self { members, what, span: node.span, known: Vec::new(), missing: Vec::new() })
    }

    /// Returns the value under any of these keys; null counts as missing.
    pub(super) fn get(&mut self, keys: Keys, found: &mut ParseFindings) -> Option<&'n Node> {
        self.known.extend(keys);
        let mut given = self.members.iter().filter(|member| keys.contains(&member.key.as_str()));
        let first = given.next()?;
        if let Some(second) = given.next() {
            found.push(
                Diagnostic::error(
                    code::UNKNOWN_KEY_IN_WORKFLOW.as_str(),
                    format!(
                        "{} has both '{}' and '{}', which mean the same",
                        self.what, first.key, second.key
                    ),
                )
                .at(second.key_span)
                .hint("keep one of them")
                .related(first.key_span, "the other one"),
            );
        }
        (!first.value.is_null()).then_some(&first.value)
    }

    /// Returns the value under any of these keys; reports an error if it is missing.
    pub(super) fn require(&mut self, keys: Keys, found: &mut ParseFindings) -> Option<&'n Node> {
        let value = self.get(keys, found);
        if value.is_none() {
            let (name, others) = keys.split_first().map_or(("", &[][..]), |(name, others)| (*name, others));
            let also =
                if others.is_empty() { String::new() } else { format!(" (or '{}')", others.join("', '")) };
            let message = format!("{} needs '{name}'{also}", self.what);
            let missing = Diagnostic::error(code::REQUIRED_KEY_MISSING_IN_WORKFLOW.as_str(), message);
            self.missing.push((name, missing.at(self.span)));
        }
        value
    }

    /// Reports the missing keys.
    pub(super) fn report_missing(&mut self, found: &mut ParseFindings) {
        found.extend(self.missing.drain(..).map(|(_, missing)| missing));
    }

    /// Reports every key that was not requested, and the missing keys. A misspelled key is one mistake.
    pub(super) fn close(mut self, found: &mut ParseFindings) {
        let is_unknown = |key: &str| !key.starts_with(EXTENSION) && !self.known.contains(&key);
        for member in self.members.iter().filter(|member| is_unknown(&member.key)) {
            let unknown = Diagnostic::error(
                code::UNKNOWN_KEY_IN_WORKFLOW.as_str(),
                format!("{} has no key '{}'", self.what, member.key),
            )
            .at(member.key_span);
            let starts = |name: &&str| name.starts_with(&member.key) || member.key.starts_with(*name);
            let missing = || self.missing.iter().map(|(name, _)| *name);
            let near = did_you_mean(&member.key, missing()).or_else(|| missing().find(starts));
            if let Some(near) = near {
                self.missing.retain(|(name, _)| *name != near);
            }
            let near = near.or_else(|| did_you_mean(&member.key, self.known.iter().copied()));
            let hint = near.map_or_else(
                || {
                    let known: IndexSet<&str> = self.known.iter().copied().collect();
                    format!("it may have {}", known.into_iter().collect::<Vec<_>>().join(", "))
                },
                |near| format!("did you mean '{near}'?"),
            );
            found.push(unknown.hint(hint));
        }
        self.report_missing(found);
    }

    /// Returns a string.
    pub(super) fn text(&mut self, keys: Keys, found: &mut ParseFindings) -> Option<String> {
        let node = self.get(keys, found)?;
        self.as_text(keys, node, found)
    }

    /// Returns a required string.
    pub(super) fn required_text(&mut self, keys: Keys, found: &mut ParseFindings) -> Option<String> {
        let node = self.require(keys, found)?;
        self.as_text(keys, node, found)
    }

    fn as_text(&self, keys: Keys, node: &Node, found: &mut ParseFindings) -> Option<String> {
        let text = node.as_str();
        if text.is_none() {
            found.push(wrong_type(node, &self.key(keys), "text"));
        }
        text.map(str::to_owned)
    }

    /// Returns `true` or `false`.
    pub(super) fn flag(&mut self, keys: Keys, found: &mut ParseFindings) -> Option<bool> {
        let node = self.get(keys, found)?;
        let flag = node.as_bool();
        if flag.is_none() {
            found.push(wrong_type(node, &self.key(keys), "true or false"));
        }
        flag
    }

    /// Returns an integer of at least `least`.
    pub(super) fn whole(&mut self, keys: Keys, least: u32, found: &mut ParseFindings) -> Option<u32> {
        let node = self.get(keys, found)?;
        let written = whole_number(node);
        let number = written.map(|number| u32::try_from(number).ok().filter(|number| *number >= least));
        match number {
            Some(Some(number)) => return Some(number),
            Some(None) => found.push(
                Diagnostic::error(
                    code::WRONG_VALUE_IN_WORKFLOW.as_str(),
                    format!("{} should be greater than or equal to {least}", self.key(keys)),
                )
                .at(node.span),
            ),
            None => found.push(wrong_type(node, &self.key(keys), "a whole number")),
        }
        None
    }

    /// Returns a number of at least `least`.
    pub(super) fn number(&mut self, keys: Keys, least: f64, found: &mut ParseFindings) -> Option<f64> {
        let node = self.get(keys, found)?;
        let number = node.as_f64().or_else(|| node.as_str()?.trim().parse().ok());
        match number {
            Some(number) if number >= least => return Some(number),
            Some(_) => found.push(
                Diagnostic::error(
                    code::WRONG_VALUE_IN_WORKFLOW.as_str(),
                    format!("{} should be at least {least}", self.key(keys)),
                )
                .at(node.span),
            ),
            None => found.push(wrong_type(node, &self.key(keys), "a number")),
        }
        None
    }

    /// Returns a valid duration as written.
    pub(super) fn duration(&mut self, keys: Keys, found: &mut ParseFindings) -> Option<Value> {
        let node = self.get(keys, found)?;
        let value = node.to_json();
        match duration::seconds(&value) {
            Ok(_) => Some(value),
            Err(reason) => {
                found.push(
                    Diagnostic::error(
                        code::DURATION_CANNOT_BE_READ.as_str(),
                        format!("{}: {reason}", self.key(keys)),
                    )
                    .at(node.span)
                    .hint(match node.as_str().and_then(parse_duration) {
                        Some(known) => format!("write {}s", known.as_secs_f64()),
                        None => "write a number of seconds, or 30s, 5m, 1h, 2d".to_owned(),
                    }),
                );
                None
            }
        }
    }

    /// Returns any object, as JSON.
    pub(super) fn object(&mut self, keys: Keys, found: &mut ParseFindings) -> Option<Value> {
        let node = self.get(keys, found)?;
        if node.as_object().is_none() {
            found.push(wrong_type(node, &self.key(keys), "an object"));
            return None;
        }
        Some(node.to_json())
    }

    /// Returns the elements of a list.
    pub(super) fn list(&mut self, keys: Keys, found: &mut ParseFindings) -> Option<&'n [Node]> {
        let node = self.get(keys, found)?;
        self.as_list(keys, node, found)
    }

    /// Returns the elements of a required list.
    pub(super) fn required_list(&mut self, keys: Keys, found: &mut ParseFindings) -> Option<&'n [Node]> {
        let node = self.require(keys, found)?;
        self.as_list(keys, node, found)
    }

    fn as_list(&self, keys: Keys, node: &'n Node, found: &mut ParseFindings) -> Option<&'n [Node]> {
        let list = node.as_array();
        if list.is_none() {
            found.push(wrong_type(node, &self.key(keys), "a list"));
        }
        list
    }

    /// Returns the name of a key of this object in messages.
    pub(super) fn key(&self, keys: Keys) -> String {
        format!("'{}' of {}", keys.first().unwrap_or(&""), self.what)
    }
}

/// Returns a whole number, possibly written as text: the value of a variable is text.
pub(super) fn whole_number(node: &Node) -> Option<i64> {
    node.as_i64().or_else(|| node.as_str()?.trim().parse().ok())
}

pub(super) fn wrong_type(node: &Node, what: &str, expected: &str) -> Diagnostic {
    Diagnostic::error(
        code::WRONG_VALUE_IN_WORKFLOW.as_str(),
        format!("{what} must be {expected}, not {}", node.type_name()),
    )
    .at(node.span)
}
