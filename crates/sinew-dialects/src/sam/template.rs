//! Values with templates: node inputs, map items, output mappings and instructions.

use serde_json::{Map, Value};

use super::path::{Path, TemplateScope, TextPart, parts};
use crate::fill::{FillBudget, FillError};

/// A parsed value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Template {
    /// A value without templates.
    Literal(Value),
    /// A string with only one template: the value itself, with its type.
    Path(Path),
    /// A string with templates.
    Text(Vec<TextPart>),
    List(Vec<Template>),
    Object(Vec<(String, Template)>),
    /// `{coalesce: […]}`: the first value that is not null.
    Coalesce(Vec<Template>),
    /// `{concat: […]}`: joined arrays, or anything else as text, without nulls.
    Concat(Vec<Template>),
    /// An operator whose argument is not a list.
    Broken(&'static str),
}

impl Template {
    /// Parses a value. Never fails: validation or resolution reports an operator without a list.
    pub(super) fn parse(value: &Value) -> Self {
        match value {
            Value::String(text) => match parts(text).as_slice() {
                [TextPart::Path(path, _)] => Self::Path(path.clone()),
                found if found.iter().any(|part| matches!(part, TextPart::Path(..))) => {
                    Self::Text(found.to_vec())
                }
                _ => Self::Literal(value.clone()),
            },
            Value::Array(items) => {
                let items: Vec<_> = items.iter().map(Self::parse).collect();
                if items.iter().all(Self::is_literal) {
                    Self::Literal(value.clone())
                } else {
                    Self::List(items)
                }
            }
            Value::Object(members) => match operator(members) {
                Some((Operator::Coalesce, Some(list))) => {
                    Self::Coalesce(list.iter().map(Self::parse).collect())
                }
                Some((Operator::Concat, Some(list))) => Self::Concat(list.iter().map(Self::parse).collect()),
                Some((operator, None)) => Self::Broken(operator.name()),
                None => {
                    let members: Vec<_> =
                        members.iter().map(|(key, item)| (key.clone(), Self::parse(item))).collect();
                    if members.iter().all(|(_, item)| item.is_literal()) {
                        Self::Literal(value.clone())
                    } else {
                        Self::Object(members)
                    }
                }
            },
            other => Self::Literal(other.clone()),
        }
    }

    fn is_literal(&self) -> bool {
        matches!(self, Self::Literal(_))
    }

    /// Returns the value; an error if its templates insert too much data.
    pub(super) fn resolve(&self, world: &dyn TemplateScope) -> Result<Value, String> {
        self.resolve_within(world, &FillBudget::default())
    }

    fn resolve_within(&self, world: &dyn TemplateScope, budget: &FillBudget) -> Result<Value, String> {
        match self {
            Self::Literal(value) => Ok(value.clone()),
            Self::Path(path) => filled(path, world, budget),
            Self::Text(parts) => {
                let mut out = String::new();
                for part in parts {
                    match part {
                        TextPart::Text(text) => out.push_str(text),
                        TextPart::Path(path, _) => {
                            out.push_str(&as_text(&filled(path, world, budget)?));
                        }
                    }
                }
                Ok(Value::String(out))
            }
            Self::List(items) => {
                let items = items.iter().map(|item| item.resolve_within(world, budget));
                items.collect::<Result<_, _>>().map(Value::Array)
            }
            Self::Object(members) => members
                .iter()
                .map(|(key, item)| Ok((key.clone(), item.resolve_within(world, budget)?)))
                .collect::<Result<Map<_, _>, String>>()
                .map(Value::Object),
            Self::Coalesce(items) => {
                for item in items {
                    let value = item.resolve_within(world, budget)?;
                    if !value.is_null() {
                        return Ok(value);
                    }
                }
                Ok(Value::Null)
            }
            Self::Concat(items) => {
                let values = items.iter().map(|item| item.resolve_within(world, budget));
                values.collect::<Result<Vec<_>, _>>().map(concat)
            }
            Self::Broken(name) => Err(needs_list(name)),
        }
    }

    /// Collects every path in the value, in file order.
    pub(super) fn paths<'t>(&'t self, found: &mut Vec<&'t Path>) {
        match self {
            Self::Literal(_) | Self::Broken(_) => {}
            Self::Path(path) => found.push(path),
            Self::Text(parts) => found.extend(paths_of(parts)),
            Self::List(items) | Self::Coalesce(items) | Self::Concat(items) => {
                for item in items {
                    item.paths(found);
                }
            }
            Self::Object(members) => {
                for (_, item) in members {
                    item.paths(found);
                }
            }
        }
    }
}

/// Returns the paths of a string.
pub(super) fn paths_of(parts: &[TextPart]) -> impl Iterator<Item = &Path> {
    parts.iter().filter_map(|part| match part {
        TextPart::Path(path, _) => Some(path),
        TextPart::Text(_) => None,
    })
}

/// Returns the value at a path, after charging for its copy.
fn filled(path: &Path, world: &dyn TemplateScope, budget: &FillBudget) -> Result<Value, String> {
    let value = path.value(world)?;
    budget.pay(value.bytes()).map_err(|error| error.to_string())?;
    Ok(value.into_value())
}

/// Fills an instruction: templates without a value are kept as written. An error if they insert too
/// much data.
pub(super) fn fill(parts: &[TextPart], world: &dyn TemplateScope) -> Result<String, FillError> {
    let budget = FillBudget::default();
    let mut out = String::new();
    for part in parts {
        match part {
            TextPart::Text(text) => out.push_str(text),
            TextPart::Path(path, written) => match path.value(world) {
                Ok(value) => {
                    budget.pay(value.bytes())?;
                    let value = value.into_value();
                    out.push_str(if value.is_null() { written.as_str() } else { "" });
                    out.push_str(&as_text(&value));
                }
                Err(_) => out.push_str(written),
            },
        }
    }
    Ok(out)
}

enum Operator {
    Coalesce,
    Concat,
}

impl Operator {
    const fn name(&self) -> &'static str {
        match self {
            Self::Coalesce => "coalesce",
            Self::Concat => "concat",
        }
    }
}

/// An object is an operator only if the operator is its only key.
fn operator(members: &Map<String, Value>) -> Option<(Operator, Option<&Vec<Value>>)> {
    let (key, argument) = members.iter().next().filter(|_| members.len() == 1)?;
    let operator = match key.as_str() {
        "coalesce" => Operator::Coalesce,
        "concat" => Operator::Concat,
        _ => return None,
    };
    Some((operator, argument.as_array()))
}

/// Returns the names of operators.
pub(super) fn operator_names() -> impl Iterator<Item = &'static str> {
    [Operator::Coalesce, Operator::Concat].iter().map(Operator::name)
}

/// Returns whether an object with only this key is an operator.
pub(super) fn is_operator(key: &str) -> bool {
    operator_names().any(|name| name == key)
}

/// Returns the error of an operator whose argument is not a list.
pub(super) fn needs_list(name: &str) -> String {
    format!("'{name}' operator requires a list of values")
}

fn concat(values: Vec<Value>) -> Value {
    let values: Vec<Value> = values.into_iter().filter(|value| !value.is_null()).collect();
    if !values.is_empty() && values.iter().all(Value::is_array) {
        return Value::Array(
            values
                .into_iter()
                .flat_map(|value| if let Value::Array(items) = value { items } else { Vec::new() })
                .collect(),
        );
    }
    Value::String(values.iter().map(as_text).collect())
}

/// Formats a value in a string: strings unchanged, null as the empty string, others as JSON.
fn as_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
