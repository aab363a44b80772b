//! The expression language: a small, pure subset of JavaScript.
//!
//! It has member access, calls of string and list methods, arrow functions, ternary, arithmetic,
//! comparison, logic, lists and objects. It has no assignment, loops, `new` or patterns. Steps,
//! depth and sizes are limited.

mod evaluate;
mod method_check;
mod methods;
mod parse;
mod token;

pub(super) use evaluate::{ScriptScope, evaluate};
pub(super) use method_check::UnknownIdentifier;
pub(super) use parse::parse;

/// Maximum length of an expression, in bytes.
const MAX_EXPRESSION_BYTES: usize = 16 << 10;
/// Maximum nesting of an expression.
const MAX_EXPRESSION_DEPTH: u32 = 48;
/// Maximum steps of one evaluation; copies of values also count.
const STEPS: u32 = 2_000_000;
/// Maximum length of a string or list that an evaluation creates.
const MAX_EXPRESSION_ITEMS: usize = 1 << 20;

/// The reason why an expression cannot be parsed or has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct ExpressionFailure(pub(super) String);

pub(super) type Result<T> = std::result::Result<T, ExpressionFailure>;

fn refuse<T>(text: impl Into<String>) -> Result<T> {
    Err(ExpressionFailure(text.into()))
}

/// One expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ScriptExpression {
    Literal(serde_json::Value),
    Name(String),
    List(Vec<ScriptExpression>),
    Object(Vec<(String, ScriptExpression)>),
    /// `a.b`, `a?.b`, `a[b]`
    Member(Box<ScriptExpression>, Box<ScriptExpression>),
    Call(Box<ScriptExpression>, Vec<ScriptExpression>),
    Unary(&'static str, Box<ScriptExpression>),
    Binary(&'static str, Box<ScriptExpression>, Box<ScriptExpression>),
    Choice(Box<ScriptExpression>, Box<ScriptExpression>, Box<ScriptExpression>),
    Arrow(Vec<String>, Box<ScriptExpression>),
}

impl ScriptExpression {
    /// Returns the names in `$('…')` that are literals.
    pub(super) fn references(&self) -> Vec<&str> {
        let mut found = Vec::new();
        self.walk(&mut |expr| {
            if let Self::Call(function, arguments) = expr
                && matches!(&**function, Self::Name(name) if name == "$")
                && let [Self::Literal(serde_json::Value::String(name))] = arguments.as_slice()
            {
                found.push(name.as_str());
            }
        });
        found
    }

    pub(super) fn walk<'e>(&'e self, visit: &mut impl FnMut(&'e Self)) {
        visit(self);
        match self {
            Self::Literal(_) | Self::Name(_) => {}
            Self::List(items) => items.iter().for_each(|item| item.walk(visit)),
            Self::Object(members) => members.iter().for_each(|(_, value)| value.walk(visit)),
            Self::Member(a, b) | Self::Binary(_, a, b) => {
                a.walk(visit);
                b.walk(visit);
            }
            Self::Call(function, arguments) => {
                function.walk(visit);
                for argument in arguments {
                    argument.walk(visit);
                }
            }
            Self::Unary(_, inner) | Self::Arrow(_, inner) => inner.walk(visit),
            Self::Choice(a, b, c) => {
                for part in [a, b, c] {
                    part.walk(visit);
                }
            }
        }
    }
}
