//! `{{input.path}}` and `${env:NAME}` inside the strings of an agent file.
//!
//! Parsed once at load; filling binds values as data, so no value is ever read as a template again.

use serde_json::Value;

use crate::error::AgentError;

/// Looks up a variable of the environment.
pub type Environment = dyn Fn(&str) -> Option<String> + Send + Sync;

/// A string with holes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    /// Steps from the call: `input`, `instruction` or `context` first.
    Value(Vec<String>),
    /// Name of an environment variable; its value is a secret.
    Env(String),
}

const ROOTS: [&str; 3] = ["input", "instruction", "context"];

impl Template {
    /// Splits `text`; an error says what is wrong with it in one sentence.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = [rest.find("{{"), rest.find("${env:")].into_iter().flatten().min() {
            if at > 0 {
                pieces.push(Piece::Text(rest[..at].to_owned()));
            }
            let (open, close) = if rest[at..].starts_with("{{") { ("{{", "}}") } else { ("${env:", "}") };
            let inner = &rest[at + open.len()..];
            let end = inner.find(close).ok_or_else(|| format!("'{open}' without '{close}'"))?;
            let word = inner[..end].trim();
            pieces.push(if open == "{{" { Piece::Value(path(word)?) } else { Piece::Env(variable(word)?) });
            rest = &inner[end + close.len()..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Self(pieces))
    }

    pub(crate) fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// Whether it reads the environment.
    pub(crate) fn has_env(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Env(_)))
    }

    /// The single `{{…}}` this template consists of, if it is just that.
    pub(crate) fn single(&self) -> Option<&[String]> {
        match self.0.as_slice() {
            [Piece::Value(path)] => Some(path),
            _ => None,
        }
    }

    /// Fills the holes: `value` writes a value of the call, `env` looks up a variable.
    pub(crate) fn fill(
        &self,
        scope: &Scope<'_>,
        mut value: impl FnMut(&Value, &mut String) -> Result<(), String>,
        mut env: impl FnMut(&str) -> Option<String>,
    ) -> Result<String, Unfilled> {
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Value(path) => value(scope.find(path)?, &mut filled)?,
                Piece::Env(name) => filled.push_str(&env(name).ok_or_else(|| Unfilled::Unset(name.clone()))?),
            }
        }
        Ok(filled)
    }
}

/// Why a template cannot be filled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unfilled {
    /// A value is missing or may not stand here.
    Value(String),
    /// A variable is not set.
    Unset(String),
}

impl Unfilled {
    /// The error about the template in this place.
    pub(crate) fn at(self, place: impl Into<String>) -> AgentError {
        match self {
            Self::Value(reason) => AgentError::Template { place: place.into(), reason },
            Self::Unset(variable) => AgentError::Environment(variable),
        }
    }
}

impl From<String> for Unfilled {
    fn from(reason: String) -> Self {
        Self::Value(reason)
    }
}

/// For places where [`Template::has_env`] was refused at load.
pub(crate) fn no_env(_: &str) -> Option<String> {
    None
}

/// Writes a scalar as it is.
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
    fits.then(|| word.to_owned())
        .ok_or_else(|| format!("'${{env:{word}}}' is not the name of an environment variable"))
}

/// The values a template may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) input: &'a Value,
    pub(crate) instruction: Option<&'a Value>,
    pub(crate) context: &'a Value,
}

impl<'a> Scope<'a> {
    /// The value at `path`; fields of objects by name, items of arrays by index.
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

/// A scalar as plain text; objects, arrays and null have none.
pub(crate) fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(truth) => Ok(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(format!("{} cannot stand in text", kind(value)))
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
            ("{{input.n}}", Err("it cannot be filled: null cannot stand in text")),
            ("{{input.o}}", Err("it cannot be filled: an object cannot stand in text")),
            ("{{input.missing}}", Err("it cannot be filled: there is no 'input.missing'")),
            ("{{input.a.b.2}}", Err("it cannot be filled: there is no 'input.a.b.2'")),
            ("{{input.t.x}}", Err("it cannot be filled: there is no 'input.t.x'")),
            ("${env:UNSET}", Err("environment variable 'UNSET' is not set")),
            ("{{open", Err("'{{' without '}}'")),
            ("{{other.x}}", Err("'{{other.x}}' must begin with input, instruction or context")),
            ("{{input..x}}", Err("'{{input..x}}' is not a path like {{input.user.name}}")),
            ("${env:A-B}", Err("'${env:A-B}' is not the name of an environment variable")),
        ] {
            assert_eq!(fill(text), expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }
}
