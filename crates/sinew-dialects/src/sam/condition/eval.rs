//! A condition as Python over variables: templates, constants and texts are all bound as data.

use serde_json::Value;
use sinew_script::{Expression, ScriptError, python_str};

use super::Piece;
use super::parse::{Compare, Compute, Expr};

/// A condition that Python evaluates.
#[derive(Clone, Debug)]
pub(super) struct Compiled {
    expression: Expression,
    bound: Vec<Bound>,
}

/// What a Python variable is bound to.
#[derive(Clone, Debug)]
enum Bound {
    /// A literal of the condition.
    Const(Value),
    /// The value of a template.
    Value(usize),
    /// The value of a template as Python's `str()` shows it, for templates inside quotes.
    Text(usize),
}

impl Compiled {
    pub(super) fn new(expr: &Expr) -> Result<Self, ScriptError> {
        let mut writer = Writer { source: String::new(), bound: Vec::new() };
        writer.write(expr);
        let names: Vec<String> = (0..writer.bound.len()).map(name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Ok(Self { expression: Expression::compile(&writer.source, &names)?, bound: writer.bound })
    }

    /// Whether it holds for these values of its templates.
    pub(super) fn holds(&self, templates: &[impl AsRef<Value>]) -> Result<bool, String> {
        let values: Vec<Value> = self
            .bound
            .iter()
            .map(|bound| match bound {
                Bound::Const(value) => value.clone(),
                Bound::Value(at) => templates[*at].as_ref().clone(),
                Bound::Text(at) => Value::String(python_str(templates[*at].as_ref())),
            })
            .collect();
        self.expression.test(&values).map_err(|error| error.message)
    }
}

fn name(at: usize) -> String {
    format!("v{at}")
}

struct Writer {
    source: String,
    bound: Vec<Bound>,
}

impl Writer {
    fn bind(&mut self, bound: Bound) {
        let name = name(self.bound.len());
        self.source.push_str(&name);
        self.bound.push(bound);
    }

    fn joined(&mut self, list: &[Expr], between: &str) {
        for (n, item) in list.iter().enumerate() {
            if n > 0 {
                self.source.push_str(between);
            }
            self.write(item);
        }
    }

    /// Writes an expression in brackets of its own, so that no precedence has to be thought of again.
    fn write(&mut self, expr: &Expr) {
        self.source.push('(');
        match expr {
            Expr::Const(value) => self.bind(Bound::Const(value.clone())),
            Expr::Var(at) => self.bind(Bound::Value(*at)),
            Expr::Text(pieces) => {
                for (n, piece) in pieces.iter().enumerate() {
                    if n > 0 {
                        self.source.push_str(" + ");
                    }
                    self.bind(match piece {
                        Piece::Text(text) => Bound::Const(Value::String(text.clone())),
                        Piece::Var(at) => Bound::Text(*at),
                    });
                }
                if pieces.is_empty() {
                    self.bind(Bound::Const(Value::String(String::new())));
                }
            }
            Expr::List(items) => {
                self.source.push('[');
                self.joined(items, ", ");
                self.source.push(']');
            }
            Expr::Not(inner) => {
                self.source.push_str("not ");
                self.write(inner);
            }
            Expr::Sign(inner, minus) => {
                self.source.push(if *minus { '-' } else { '+' });
                self.write(inner);
            }
            Expr::All(list) => self.joined(list, " and "),
            Expr::Any(list) => self.joined(list, " or "),
            Expr::Compare(first, rest) => {
                self.write(first);
                for (how, right) in rest {
                    self.source.push_str(match how {
                        Compare::Equal => " == ",
                        Compare::NotEqual => " != ",
                        Compare::Less => " < ",
                        Compare::LessOrEqual => " <= ",
                        Compare::Greater => " > ",
                        Compare::GreaterOrEqual => " >= ",
                        Compare::In => " in ",
                        Compare::NotIn => " not in ",
                    });
                    self.write(right);
                }
            }
            Expr::Compute(how, left, right) => {
                self.write(left);
                self.source.push_str(match how {
                    Compute::Add => " + ",
                    Compute::Subtract => " - ",
                    Compute::Multiply => " * ",
                    Compute::Divide => " / ",
                    Compute::FloorDivide => " // ",
                    Compute::Remainder => " % ",
                    Compute::Power => " ** ",
                });
                self.write(right);
            }
        }
        self.source.push(')');
    }
}
