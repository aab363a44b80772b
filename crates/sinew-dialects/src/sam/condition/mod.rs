//! Conditions of `when`, switches, loops and conditionals.
//!
//! The language is that of the specification's evaluator, `simpleeval`: comparisons, `in`, `is`, `and`/`or`/`not`,
//! arithmetic, choices (`a if b else c`), members, subscripts, slices, methods of texts, dicts, lists and numbers, `int()`,
//! `float()`, `str()`, `rand()`, `randint()`, formatted texts (`%`, `f''`), bytes and complex numbers; beyond it, lists.
//! Chance is derived from the place of the decision, so every replica decides the same. A condition is read once, for the
//! rules and error texts of the dialect, and evaluated here with Python's meaning of its operators. The engine evaluates
//! conditions while it decides, so each evaluation has a limited number of steps, and no step depends on the size of
//! the data without paying for it. `{{x}}` becomes a variable that is bound to data when it is evaluated, so no value
//! can ever change what is asked; inside quotes it becomes a part of that string, as Python's `str()` shows it. Equal
//! templates are one variable, and variables borrow the data.

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

use super::chance::ConditionPosition;
use super::path::{Path, TemplateScope, TextPart};

/// A condition, read.
#[derive(Clone, Debug)]
pub(super) struct Condition {
    source: String,
    expr: parse::Expr,
    vars: Vec<Path>,
}

impl Condition {
    /// Reads a condition. The error says what is not allowed and, where it is known, what to write instead.
    pub(super) fn parse(source: &str) -> Result<Self, UnreadableCondition> {
        let parsed =
            parse::parse(source).map_err(|reason| UnreadableCondition { text: source.to_owned(), reason })?;
        Ok(Self { source: source.to_owned(), expr: parsed.expr, vars: parsed.vars })
    }

    /// Whether it holds. All templates are looked up first: a condition that names something missing never holds
    /// by luck of the order.
    /// `place` tells conditions of one activation apart, for chance.
    pub(super) fn holds(&self, world: &dyn TemplateScope, place: ConditionPosition) -> Result<bool, String> {
        let values: Result<Vec<_>, String> = self.vars.iter().map(|path| path.strict_value(world)).collect();
        values
            .and_then(|values| eval::holds(&self.expr, &values, &|| world.chance_seed(place)))
            .map_err(|reason| failed(&self.source, &reason))
    }

    /// Every path the condition names, once each, in the order of the text.
    pub(super) fn paths(&self) -> &[Path] {
        &self.vars
    }
}

/// Why a condition cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", failed(.text, .reason))]
pub(super) struct UnreadableCondition {
    text: String,
    /// Description of the defect, without the condition's text.
    pub(super) reason: String,
}

fn failed(source: &str, reason: &str) -> String {
    let shown: String = source.chars().take(SHOWN).collect();
    let dots = if shown.len() < source.len() { "…" } else { "" };
    format!("Failed to evaluate condition '{shown}{dots}': {reason}")
}

/// Characters of a condition that messages repeat.
const SHOWN: usize = 300;

/// Parts of a string literal: its own text, and templates by their variable.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TextPiece {
    Text(String),
    Var(usize),
}

/// Different templates that one condition may name.
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
