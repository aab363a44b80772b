//! Comparisons that cannot hold, or that fail, by the types of their operands.

use serde_json::Value;
use sinew_source::did_you_mean;

use super::super::path::Path;
use super::super::value_type::ValueType;
use super::Condition;
use super::callables::ConditionFunction;
use super::parse::{Compare, Compute, Expr, FormatPart};

/// A comparison of types that do not fit.
pub(in super::super) struct TypeMisfit<'c> {
    /// A path in the comparison.
    pub(in super::super) path: &'c Path,
    pub(in super::super) problem: String,
    pub(in super::super) hint: Option<String>,
}

impl Condition {
    /// Returns the comparisons whose operands have types that do not fit. `type_of` returns the type
    /// of a path, if a schema declares it.
    pub(in super::super) fn misfits(
        &self,
        type_of: &dyn Fn(&Path) -> Option<ValueType>,
    ) -> Vec<TypeMisfit<'_>> {
        let mut check = TypeCheck { condition: self, type_of, found: Vec::new() };
        check.walk(&self.expr);
        check.found
    }
}

struct TypeCheck<'c, 't> {
    condition: &'c Condition,
    type_of: &'t dyn Fn(&Path) -> Option<ValueType>,
    found: Vec<TypeMisfit<'c>>,
}

impl<'c> TypeCheck<'c, '_> {
    fn walk(&mut self, expr: &'c Expr) {
        match expr {
            Expr::Compare(first, rest) => {
                let mut left: &'c Expr = first;
                self.walk(left);
                for (compare, right) in rest {
                    self.walk(right);
                    self.compare(left, *compare, right);
                    left = right;
                }
            }
            Expr::Not(inner) | Expr::Sign(inner, _) | Expr::Invert(inner) | Expr::Attribute(inner, _) => {
                self.walk(inner);
            }
            Expr::All(list)
            | Expr::Any(list)
            | Expr::List(list)
            | Expr::Tuple(list)
            | Expr::Call(_, list) => {
                for inner in list {
                    self.walk(inner);
                }
            }
            Expr::Compute(_, left, right) | Expr::Subscript(left, right) => {
                self.walk(left);
                self.walk(right);
            }
            Expr::IfElse(test, then, otherwise) => {
                for inner in [test, then, otherwise] {
                    self.walk(inner);
                }
            }
            Expr::Method(on, _, args) => {
                self.walk(on);
                for inner in args {
                    self.walk(inner);
                }
            }
            Expr::Slice(on, bounds) => {
                self.walk(on);
                bounds.iter().flatten().for_each(|inner| self.walk(inner));
            }
            Expr::Format(parts) => {
                for part in parts {
                    if let FormatPart::Field(inner, ..) = part {
                        self.walk(inner);
                    }
                }
            }
            Expr::Const(_)
            | Expr::Int(_)
            | Expr::Float(_)
            | Expr::Imaginary(_)
            | Expr::Bytes(_)
            | Expr::Text(_)
            | Expr::Var(_) => {}
        }
    }

    fn compare(&mut self, left: &'c Expr, compare: Compare, right: &'c Expr) {
        let path = [left, right].into_iter().find_map(|side| self.path(side));
        let (Some(path), Some(one), Some(other)) = (path, self.type_of(left), self.type_of(right)) else {
            return;
        };
        let numbers = |one: &ValueType| one.is("number") || one.is("boolean");
        let fits = match compare {
            Compare::Less | Compare::LessOrEqual | Compare::Greater | Compare::GreaterOrEqual => {
                (numbers(&one) && numbers(&other))
                    || ["string", "array"].iter().any(|name| one.is(name) && other.is(name))
            }
            Compare::In | Compare::NotIn => {
                let contains = ["array", "object"].iter().any(|name| other.is(name));
                contains || (other.is("string") && one.is("string"))
            }
            _ => {
                one.overlaps(&other)
                    || (numbers(&one) && numbers(&other))
                    || one.is("null")
                    || other.is("null")
            }
        };
        let shown = &path.shown;
        if !fits {
            let problem = format!("compares {} with {} at '{shown}'", one.shown(), other.shown());
            let hint = match (left, right) {
                (_, Expr::Const(Value::String(text))) if one.is("number") && text.parse::<f64>().is_ok() => {
                    Some(format!("write {text} without quotes"))
                }
                _ => None,
            };
            self.found.push(TypeMisfit { path, problem, hint });
        } else if matches!(compare, Compare::Equal | Compare::NotEqual)
            && let (Some(options), Expr::Const(Value::String(text))) = (&one.options, right)
            && matches!(left, Expr::Var(_))
            && !options.iter().any(|option| option == text.as_str())
        {
            let texts: Vec<&str> = options.iter().filter_map(Value::as_str).collect();
            let problem = format!("compares '{shown}' with '{text}', which the schema does not allow");
            let hint = match did_you_mean(text, texts.iter().copied()) {
                Some(near) => format!("did you mean '{near}'?"),
                None => format!("it is one of {}", texts.join(", ")),
            };
            self.found.push(TypeMisfit { path, problem, hint: Some(hint) });
        }
    }

    fn path(&self, expr: &Expr) -> Option<&'c Path> {
        if let Expr::Var(var) = expr { self.condition.vars.get(*var) } else { None }
    }

    fn type_of(&self, expr: &Expr) -> Option<ValueType> {
        Some(match expr {
            Expr::Var(_) => return (self.type_of)(self.path(expr)?),
            Expr::Const(value) => ValueType::of_value(value),
            Expr::Text(_) | Expr::Format(_) | Expr::Call(ConditionFunction::Str, _) => {
                ValueType::of("string")
            }
            Expr::Int(_) | Expr::Float(_) | Expr::Call(..) => ValueType::of("number"),
            Expr::Compute(Compute::Subtract | Compute::Divide | Compute::FloorDivide, ..) => {
                ValueType::of("number")
            }
            Expr::List(_) | Expr::Tuple(_) => ValueType::of("array"),
            Expr::Not(_) | Expr::Compare(..) => ValueType::of("boolean"),
            _ => return None,
        })
    }
}
