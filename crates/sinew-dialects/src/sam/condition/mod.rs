//! Conditions of `when`, switches, loops and conditionals.
//!
//! The language is that of the specification's evaluator, `simpleeval`: comparisons, `in`, `is`,
//! `and`/`or`/`not`, arithmetic, choices (`a if b else c`), members, subscripts, slices, methods of
//! strings, dicts, lists and numbers, `int()`, `float()`, `str()`, `rand()`, `randint()`, formatted
//! strings (`%`, `f''`), bytes and complex numbers; in addition, lists. Random numbers are derived
//! from the position of the decision, so every replica decides the same. A condition is parsed
//! once, with the rules and error messages of the dialect, and evaluated here with Python's
//! semantics. The engine evaluates conditions while it decides, so each evaluation has a limited
//! number of steps, and every operation on data is charged by its size. `{{x}}` becomes a variable
//! that is bound to data at evaluation, so no value can change the condition itself; inside quotes
//! it becomes a part of that string, formatted as Python's `str()`. Equal templates share one
//! variable, and variables borrow the data.

mod bytes;
mod callables;
mod codec;
mod complex;
mod container_methods;
mod eval;
mod field;
mod format;
mod lex;
mod methods;
mod number;
mod number_methods;
mod operand;
mod parse;
mod percent;
#[cfg(test)]
mod tests;
mod text_methods;
mod translation;
mod types;

use super::chance::ConditionPosition;
use super::path::{Path, TemplateScope, TextPart};

/// A parsed condition.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    source: String,
    expr: parse::Expr,
    vars: Vec<Path>,
}

impl Condition {
    /// Parses a condition. The error states what is not allowed and, if known, the alternative.
    pub(super) fn parse(source: &str) -> Result<Self, UnreadableCondition> {
        let parsed = parse::parse(source).map_err(|(reason, at, hint)| UnreadableCondition {
            text: source.to_owned(),
            reason,
            at,
            hint,
        })?;
        Ok(Self { source: source.to_owned(), expr: parsed.expr, vars: parsed.vars })
    }

    /// Returns whether it holds. All templates are looked up first, so that a condition with a
    /// missing reference fails regardless of evaluation order. `place` distinguishes conditions of
    /// one activation, for random numbers.
    pub(super) fn holds(&self, world: &dyn TemplateScope, place: ConditionPosition) -> Result<bool, String> {
        let values: Result<Vec<_>, String> = self.vars.iter().map(|path| path.strict_value(world)).collect();
        values
            .and_then(|values| eval::holds(&self.expr, &values, &|| world.chance_seed(place)))
            .map_err(|reason| failed(&self.source, &reason))
    }

    /// Returns every path in the condition, once each, in text order.
    pub(super) fn paths(&self) -> &[Path] {
        &self.vars
    }
}

/// The reason why a condition cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", failed(.text, .reason))]
pub(super) struct UnreadableCondition {
    text: String,
    /// Description of the error, without the condition's text.
    pub(super) reason: String,
    /// Offset of the token that cannot be read, in bytes.
    pub(super) at: usize,
    /// Advice on the error.
    pub(super) hint: Option<String>,
}

fn failed(source: &str, reason: &str) -> String {
    let shown: String = source.chars().take(SHOWN).collect();
    let dots = if shown.len() < source.len() { "…" } else { "" };
    format!("Failed to evaluate condition '{shown}{dots}': {reason}")
}

/// Maximum number of characters of a condition in messages.
const SHOWN: usize = 300;

/// Part of a string literal: literal text, or a template by its variable.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TextPiece {
    Text(String),
    Var(usize),
}

/// Maximum number of different templates in one condition.
const MAX_TEMPLATES: usize = 64;

/// Returns the variable of a template: equal paths share one.
fn variable(path: Path, vars: &mut Vec<Path>) -> Result<usize, String> {
    if let Some(known) = vars.iter().position(|var| *var == path) {
        return Ok(known);
    }
    if vars.len() == MAX_TEMPLATES {
        return Err(lex::syntax(&format!("more than {MAX_TEMPLATES} different templates")));
    }
    vars.push(path);
    Ok(vars.len() - 1)
}

/// Splits a string's content; its templates become variables.
fn pieces(
    text: &str,
    vars: &mut Vec<Path>,
    unescape: impl Fn(&str) -> String,
) -> Result<Vec<TextPiece>, String> {
    super::path::parts(text)
        .into_iter()
        .map(|part| match part {
            TextPart::Text(text) => Ok(TextPiece::Text(unescape(&text))),
            TextPart::Path(path, _) => variable(path, vars).map(TextPiece::Var),
        })
        .collect()
}
