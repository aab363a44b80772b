//! Evaluation of a condition with the values of its templates.

use std::borrow::Cow;
use std::rc::Rc;

use serde_json::Value;
use sinew_script::{python_repr, python_str};

use super::super::chance::{ChanceDraws, ChanceSeed};
use super::super::path::{OUTPUT, PathValue};
use super::TextPiece;
use super::callables::ConditionFunction;
use super::complex::ComplexNumber;
use super::operand::{Evaluated, EvaluationFuel, MAX_TEXT_BYTES, Operand, check_size};
use super::parse::{Compute, Expr, FormatPart};
use super::percent::{self, PercentValues};
use super::{format, methods};

/// Cost of a random number in steps: two digests.
const STEPS_OF_DRAW: u64 = 50;

/// Returns whether the condition holds for these values of its templates. `seed` is the digest of
/// the decision's position, for random numbers.
pub(super) fn holds(
    expr: &Expr,
    templates: &[PathValue<'_>],
    seed: &dyn Fn() -> ChanceSeed,
) -> Evaluated<bool> {
    let mut evaluation =
        ConditionEvaluation { templates, fuel: EvaluationFuel::new(), draws: ChanceDraws::new(seed) };
    evaluation.value(expr).map(|value| value.truth())
}

/// Formats the value of an expression as Python's `str()`.
#[cfg(test)]
pub(super) fn shown(expr: &Expr, templates: &[PathValue<'_>]) -> Evaluated<String> {
    let seed = || ChanceSeed::default();
    let mut evaluation =
        ConditionEvaluation { templates, fuel: EvaluationFuel::new(), draws: ChanceDraws::new(&seed) };
    let value = evaluation.value(expr)?;
    value.converted('s', &mut EvaluationFuel::new())
}

struct ConditionEvaluation<'a> {
    templates: &'a [PathValue<'a>],
    fuel: EvaluationFuel,
    draws: ChanceDraws<'a>,
}

impl<'a> ConditionEvaluation<'a> {
    fn template(&self, at: usize) -> Operand<'a> {
        match self.templates.get(at) {
            Some(PathValue::Value(value)) => value.as_ref().into(),
            Some(PathValue::OutputDict(output)) => Operand::OutputDict(output),
            None => Operand::None,
        }
    }

    /// Formats a template as Python's `str()`.
    fn template_str(&self, at: usize) -> String {
        match self.templates.get(at) {
            Some(PathValue::Value(value)) => python_str(value),
            Some(PathValue::OutputDict(output)) => format!("{{'{OUTPUT}': {}}}", python_repr(output)),
            None => "None".to_owned(),
        }
    }

    fn value(&mut self, expr: &'a Expr) -> Evaluated<Operand<'a>> {
        self.fuel.pay(1)?;
        match expr {
            Expr::Const(value) => Ok(value.into()),
            Expr::Int(int) => Ok(Operand::Int(int.clone())),
            Expr::Float(float) => Ok(Operand::Float(*float)),
            Expr::Imaginary(size) => Ok(Operand::Complex(ComplexNumber::new(0.0, *size))),
            Expr::Bytes(bytes) => Ok(Operand::Bytes(Cow::Borrowed(bytes))),
            Expr::Var(at) => Ok(self.template(*at)),
            Expr::Text(pieces) => self.text(pieces).map(|text| Operand::Text(Cow::Owned(text))),
            Expr::Format(parts) => self.format(parts).map(|text| Operand::Text(Cow::Owned(text))),
            Expr::List(items) => self.values(items).map(|items| Operand::list(items.into_iter())),
            Expr::Tuple(items) => self.values(items).map(|items| Operand::tuple(items.into_iter())),
            Expr::Not(inner) => Ok(Operand::Bool(!self.value(inner)?.truth())),
            Expr::Sign(inner, minus) => self.value(inner)?.signed(*minus),
            Expr::All(list) => self.first_with(list, false),
            Expr::Any(list) => self.first_with(list, true),
            Expr::Compare(first, rest) => {
                let mut left = self.value(first)?;
                for (how, right) in rest {
                    let right = self.value(right)?;
                    if !left.compare(*how, &right, &mut self.fuel)? {
                        return Ok(Operand::Bool(false));
                    }
                    left = right;
                }
                Ok(Operand::Bool(true))
            }
            Expr::Invert(inner) => self.value(inner)?.inverted(),
            Expr::IfElse(test, then, otherwise) => {
                let branch = if self.value(test)?.truth() { then } else { otherwise };
                self.value(branch)
            }
            Expr::Call(function, args) => {
                let args = self.values(args)?;
                match (function, args.as_slice()) {
                    (ConditionFunction::Rand, []) => self.drawn(),
                    (ConditionFunction::RandInt, [top]) => {
                        let product =
                            self.drawn()?.compute(Compute::Multiply, top.clone(), &mut self.fuel)?;
                        methods::call(ConditionFunction::Int, &[product], &mut self.fuel)
                    }
                    _ => methods::call(*function, &args, &mut self.fuel),
                }
            }
            Expr::Method(on, method, args) => {
                let on = self.value(on)?;
                let args = self.values(args)?;
                methods::call_method(&on, *method, &args, &mut self.fuel)
            }
            Expr::Attribute(on, name) => {
                let on = self.value(on)?;
                methods::attribute(&on, name, &mut self.fuel)
            }
            Expr::Subscript(on, key) => {
                let (on, key) = (self.value(on)?, self.value(key)?);
                methods::subscript(&on, &key, &mut self.fuel)
            }
            Expr::Slice(on, bounds) => {
                let on = self.value(on)?;
                let mut bound = |at: usize| bounds[at].as_ref().map(|bound| self.value(bound)).transpose();
                let bounds = [bound(0)?, bound(1)?, bound(2)?];
                methods::slice(&on, &bounds, &mut self.fuel)
            }
            Expr::Compute(Compute::Remainder, left, right) => {
                let left = self.value(left)?;
                match (&left, &**right) {
                    (Operand::Text(_) | Operand::Bytes(_), Expr::Tuple(values)) => {
                        let values = PercentValues::Tuple(self.values(values)?);
                        percent::format(&left, &values, &mut self.fuel)
                    }
                    (Operand::Text(_) | Operand::Bytes(_), right) => {
                        let values = match self.value(right)? {
                            Operand::Tuple(values) => {
                                let bytes =
                                    values.iter().map(|one| size_of_val(one) + one.text_bytes()).sum();
                                self.fuel.pay_copy(bytes)?;
                                PercentValues::Tuple(Rc::unwrap_or_clone(values))
                            }
                            value => PercentValues::Single(value),
                        };
                        percent::format(&left, &values, &mut self.fuel)
                    }
                    (_, right) => {
                        let right = self.value(right)?;
                        left.compute(Compute::Remainder, right, &mut self.fuel)
                    }
                }
            }
            Expr::Compute(how, left, right) => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                left.compute(*how, right, &mut self.fuel)
            }
        }
    }

    fn drawn(&mut self) -> Evaluated<Operand<'a>> {
        self.fuel.pay(STEPS_OF_DRAW)?;
        Ok(Operand::Float(self.draws.next_float()))
    }

    fn values(&mut self, list: &'a [Expr]) -> Evaluated<Vec<Operand<'a>>> {
        list.iter().map(|expr| self.value(expr)).collect()
    }

    /// Returns the first value with the wanted truth value, else the last; later expressions are
    /// not evaluated.
    fn first_with(&mut self, list: &'a [Expr], wanted: bool) -> Evaluated<Operand<'a>> {
        let mut last = Operand::None;
        for expr in list {
            last = self.value(expr)?;
            if last.truth() == wanted {
                break;
            }
        }
        Ok(last)
    }

    /// Returns the minimum length of a formatted template in bytes, without formatting it.
    fn least_bytes(&self, at: usize) -> Evaluated<usize> {
        let mut bytes = 0;
        match self.templates.get(at) {
            Some(PathValue::Value(value)) => add_least_bytes(value, &mut bytes)?,
            Some(PathValue::OutputDict(output)) => add_least_bytes(output, &mut bytes)?,
            None => {}
        }
        Ok(bytes)
    }

    /// Charges for more bytes at the end of a string.
    fn pay_text(&mut self, text: &str, more: usize) -> Evaluated<()> {
        check_size(text.len() + more, MAX_TEXT_BYTES, "text")?;
        self.fuel.pay_copy(more)
    }

    /// Evaluates a string literal with its templates as Python's `str()` formats them.
    fn text(&mut self, pieces: &'a [TextPiece]) -> Evaluated<String> {
        let mut text = String::new();
        for piece in pieces {
            let least = match piece {
                TextPiece::Text(text) => text.len(),
                TextPiece::Var(at) => self.least_bytes(*at)?,
            };
            self.pay_text(&text, least)?;
            let piece = match piece {
                TextPiece::Text(text) => Cow::Borrowed(text.as_str()),
                TextPiece::Var(at) => Cow::Owned(self.template_str(*at)),
            };
            // Escapes lengthen a string.
            if piece.len() > least {
                self.pay_text(&text, piece.len() - least)?;
            }
            check_size(text.len() + piece.len(), MAX_TEXT_BYTES, "text")?;
            text.push_str(&piece);
        }
        Ok(text)
    }

    /// Evaluates a string with fields.
    fn format(&mut self, parts: &'a [FormatPart]) -> Evaluated<String> {
        let mut text = String::new();
        for part in parts {
            let more = match part {
                FormatPart::Text(pieces) => self.text(pieces)?,
                FormatPart::Field(value, conversion, spec) => {
                    let value = self.value(value)?;
                    let spec = self.format(spec)?;
                    match conversion {
                        Some(conversion) => {
                            let text = value.converted(*conversion, &mut self.fuel)?;
                            let text = Operand::Text(Cow::Owned(text));
                            format::format_value(&text, &spec, &mut self.fuel)?
                        }
                        None => format::format_value(&value, &spec, &mut self.fuel)?,
                    }
                }
            };
            self.pay_text(&text, more.len())?;
            text.push_str(&more);
        }
        Ok(text)
    }
}

/// Adds the minimum length of a formatted value in bytes. A value longer than the maximum string is
/// not read to its end.
pub(super) fn add_least_bytes(value: &Value, bytes: &mut usize) -> Evaluated<()> {
    *bytes += match value {
        Value::Null | Value::Bool(_) => "None".len(),
        Value::Number(_) => 1,
        Value::String(text) => text.len(),
        Value::Array(items) => "[]".len() + items.len(),
        Value::Object(members) => "{}".len() + members.len(),
    };
    check_size(*bytes, MAX_TEXT_BYTES, "text")?;
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| add_least_bytes(item, bytes)),
        Value::Object(members) => members.iter().try_for_each(|(name, member)| {
            *bytes += name.len();
            add_least_bytes(member, bytes)
        }),
        _ => Ok(()),
    }
}
