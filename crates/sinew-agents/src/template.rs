//! `{{input.path}}` and `${env:NAME}` inside the strings of an agent file.
//!
//! Headers of `http` and `env` of `command` also support `${NAME}` and `${NAME, default}`; `$${NAME}`
//! is the literal `${NAME}`. All other texts of an agent file are literal.
//!
//! Templates are parsed once, when the file is loaded. Values are inserted as data and never parsed.

use serde_json::Value;
use sinew_source::{VariableError, VariableReference, is_reserved_variable};

use crate::error::AgentError;

/// Looks up an environment variable.
pub type Environment = dyn Fn(&str) -> Option<String> + Send + Sync;

/// A string with placeholders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Template(Vec<TemplatePiece>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplatePiece {
    Text(String),
    /// Path from the call: starts with `input`, `instruction` or `context`.
    Value(Vec<String>),
    /// An environment variable, whose value is a secret, and its default.
    Env {
        name: String,
        default: Option<String>,
    },
}

const ROOTS: [&str; 3] = ["input", "instruction", "context"];

impl Template {
    /// Parses `text`. The error is one sentence about its defect.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Self::split(text, false)
    }

    /// As [`Template::parse`], and with the variables `${NAME}` and `${NAME, default}`.
    pub(crate) fn parse_with_variables(text: &str) -> Result<Self, String> {
        Self::split(text, true)
    }

    fn split(text: &str, variables: bool) -> Result<Self, String> {
        let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(at) = [rest.find("{{"), rest.find("${")].into_iter().flatten().min() {
            plain.push_str(&rest[..at]);
            let hole = &rest[at..];
            let (piece, length) = if hole.starts_with("{{") {
                let (word, length) = word_between(hole, "{{", "}}")?;
                (TemplatePiece::Value(path(word)?), length)
            } else if hole.starts_with("${env:") {
                let (word, length) = word_between(hole, "${env:", "}")?;
                (TemplatePiece::Env { name: variable(word)?, default: None }, length)
            } else if let Some(found) = VariableReference::parse(hole).filter(|_| variables) {
                if plain.ends_with('$') {
                    plain.pop();
                    plain.push_str(&hole[..found.length]);
                    rest = &hole[found.length..];
                    continue;
                }
                (variable_piece(found)?, found.length)
            } else {
                plain.push('$');
                rest = &hole[1..];
                continue;
            };
            if !plain.is_empty() {
                pieces.push(TemplatePiece::Text(std::mem::take(&mut plain)));
            }
            pieces.push(piece);
            rest = &hole[length..];
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            pieces.push(TemplatePiece::Text(plain));
        }
        Ok(Self(pieces))
    }

    pub(crate) fn pieces(&self) -> &[TemplatePiece] {
        &self.0
    }

    /// Returns whether the template reads the environment.
    pub(crate) fn has_env(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, TemplatePiece::Env { .. }))
    }

    /// Returns the path of a template that consists of a single `{{…}}`.
    pub(crate) fn single(&self) -> Option<&[String]> {
        match self.0.as_slice() {
            [TemplatePiece::Value(path)] => Some(path),
            _ => None,
        }
    }

    /// Renders the template: `value` formats a value of the call, `env` looks up a variable.
    pub(crate) fn fill(
        &self,
        scope: &Scope<'_>,
        mut value: impl FnMut(&Value, &mut String) -> Result<(), String>,
        mut env: impl FnMut(&str) -> Option<String>,
    ) -> Result<String, UnfilledTemplate> {
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                TemplatePiece::Text(text) => filled.push_str(text),
                TemplatePiece::Value(path) => value(scope.find(path)?, &mut filled)?,
                TemplatePiece::Env { name, default } => {
                    let value = env(name).or_else(|| default.clone());
                    filled.push_str(&value.ok_or_else(|| UnfilledTemplate::Unset(name.clone()))?);
                }
            }
        }
        Ok(filled)
    }
}

/// Reason why a template cannot be rendered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum UnfilledTemplate {
    /// A value is missing or not allowed here.
    Value(String),
    /// A variable is not set.
    Unset(String),
}

impl UnfilledTemplate {
    /// Converts to the error about the template at this location.
    pub(crate) fn at(self, place: impl Into<String>) -> AgentError {
        match self {
            Self::Value(reason) => AgentError::Template { place: place.into(), reason },
            Self::Unset(variable) => AgentError::Environment(variable),
        }
    }
}

impl From<String> for UnfilledTemplate {
    fn from(reason: String) -> Self {
        Self::Value(reason)
    }
}

/// Variable lookup for templates without variables, as checked when the file is loaded.
pub(crate) fn no_env(_: &str) -> Option<String> {
    None
}

/// Appends a scalar as plain text.
pub(crate) fn plain(value: &Value, text: &mut String) -> Result<(), String> {
    text.push_str(&scalar(value)?);
    Ok(())
}

fn path(word: &str) -> Result<Vec<String>, String> {
    let steps: Vec<String> = word.split('.').map(str::to_owned).collect();
    if !ROOTS.contains(&steps[0].as_str()) {
        return Err(format!("'{{{{{word}}}}}' must begin with input, instruction or context"));
    }
    if steps.iter().any(|step| step.is_empty() || step.contains(char::is_whitespace)) {
        return Err(format!("'{{{{{word}}}}}' is not a path like {{{{input.user.name}}}}"));
    }
    Ok(steps)
}

fn variable(word: &str) -> Result<String, String> {
    let fits = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !fits {
        return Err(format!("'${{env:{word}}}' is not the name of an environment variable"));
    }
    if is_reserved_variable(word) {
        return Err(VariableError::Reserved(word.to_owned()).to_string());
    }
    Ok(word.to_owned())
}

/// Returns the piece for `${NAME}`. A reserved variable is never read: uses its default, or fails.
fn variable_piece(found: VariableReference<'_>) -> Result<TemplatePiece, String> {
    match found.default {
        Some(default) if is_reserved_variable(found.name) => Ok(TemplatePiece::Text(default.to_owned())),
        default => {
            Ok(TemplatePiece::Env { name: variable(found.name)?, default: default.map(str::to_owned) })
        }
    }
}

/// Returns the trimmed word between two delimiters at the start of a text, and the length of all three.
fn word_between<'t>(text: &'t str, open: &str, close: &str) -> Result<(&'t str, usize), String> {
    let inner = &text[open.len()..];
    let end = inner.find(close).ok_or_else(|| format!("'{open}' without '{close}'"))?;
    Ok((inner[..end].trim(), open.len() + end + close.len()))
}

/// The values that a template can use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) input: &'a Value,
    pub(crate) instruction: Option<&'a Value>,
    pub(crate) context: &'a Value,
}

impl<'a> Scope<'a> {
    /// Returns the value at `path`, through objects by name and arrays by index.
    pub(crate) fn find(&self, path: &[String]) -> Result<&'a Value, String> {
        let missing = || format!("there is no '{}'", path.join("."));
        let root = match path.first().map(String::as_str) {
            Some("input") => self.input,
            Some("instruction") => self.instruction.ok_or_else(missing)?,
            Some("context") => self.context,
            _ => return Err(missing()),
        };
        path[1..]
            .iter()
            .try_fold(root, |value, step| match value {
                Value::Object(fields) => fields.get(step),
                Value::Array(items) => items.get(step.parse::<usize>().ok()?),
                _ => None,
            })
            .ok_or_else(missing)
    }
}

/// Formats a scalar as plain text. Fails for objects, arrays and null.
pub(crate) fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(truth) => Ok(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(format!("{} cannot be inserted into text", kind(value)))
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
        _ => "a value",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fill(text: &str) -> Result<String, String> {
        let input = json!({"a": {"b": [10, "x"]}, "t": "{{input.a}}", "n": null, "o": {}});
        let (context, instruction) = (json!({"node_id": "n1"}), json!("do"));
        let scope = Scope { input: &input, instruction: Some(&instruction), context: &context };
        let variable = |name: &str| (name != "UNSET").then(|| format!("<{name}>"));
        Template::parse(text)?.fill(&scope, plain, variable).map_err(|error| error.at("it").to_string())
    }

    #[test]
    fn fills() {
        for (text, expected) in [
            ("", Ok("")),
            ("plain } text", Ok("plain } text")),
            ("{{input.a.b.0}}", Ok("10")),
            ("x{{ input.a.b.1 }}y${env:TOKEN}z", Ok("xxy<TOKEN>z")),
            ("{{instruction}} {{context.node_id}}", Ok("do n1")),
            ("{{input.t}}", Ok("{{input.a}}")), // a value is never a template
            ("{{input.n}}", Err("it cannot be filled: null cannot be inserted into text")),
            ("{{input.o}}", Err("it cannot be filled: an object cannot be inserted into text")),
            ("{{input.missing}}", Err("it cannot be filled: there is no 'input.missing'")),
            ("{{input.a.b.2}}", Err("it cannot be filled: there is no 'input.a.b.2'")),
            ("{{input.t.x}}", Err("it cannot be filled: there is no 'input.t.x'")),
            ("${env:UNSET}", Err("environment variable 'UNSET' is not set")),
            ("{{open", Err("'{{' without '}}'")),
            ("{{other.x}}", Err("'{{other.x}}' must begin with input, instruction or context")),
            ("{{input..x}}", Err("'{{input..x}}' is not a path like {{input.user.name}}")),
            ("${env:A-B}", Err("'${env:A-B}' is not the name of an environment variable")),
            (
                "${env:NATS_CREDS}",
                Err("environment variable NATS_CREDS is reserved: files never read NATS_* and SINEW_*"),
            ),
            ("${TOKEN} $${TOKEN} ${TOKEN, x} ${VAR:-x} $", Ok("${TOKEN} $${TOKEN} ${TOKEN, x} ${VAR:-x} $")),
            ("${{input.a.b.0}}", Ok("$10")),
        ] {
            assert_eq!(fill(text), expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn variables_stand_where_they_are_allowed() {
        let scope = Scope { input: &json!({"a": "${TOKEN}"}), instruction: None, context: &Value::Null };
        let variable = |name: &str| (name != "UNSET").then(|| format!("<{name}>"));
        for (text, expected) in [
            ("${TOKEN}", Ok("<TOKEN>")),
            ("Bearer ${ TOKEN }!", Ok("Bearer <TOKEN>!")),
            ("${UNSET, eu}", Ok("eu")),
            ("${UNSET,}", Ok("")),
            ("$${TOKEN}${TOKEN}", Ok("${TOKEN}<TOKEN>")),
            ("{{input.a}}", Ok("${TOKEN}")), // a value is never a template
            ("${VAR:-x} ${a.b}", Ok("${VAR:-x} ${a.b}")),
            ("${UNSET}", Err("environment variable 'UNSET' is not set")),
            ("${SINEW_X, y}", Ok("y")),
            (
                "${SINEW_X}",
                Err("environment variable SINEW_X is reserved: files never read NATS_* and SINEW_*"),
            ),
        ] {
            let filled = Template::parse_with_variables(text).and_then(|template| {
                template.fill(&scope, plain, variable).map_err(|error| error.at("it").to_string())
            });
            assert_eq!(filled, expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }
}
