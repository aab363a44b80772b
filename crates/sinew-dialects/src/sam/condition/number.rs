//! Integers and floats in a condition, with Python's arithmetic.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};
use num_traits::{FromPrimitive as _, Signed as _, ToPrimitive as _, Zero as _};
use serde_json::Value;
use sinew_script::python_str;

use super::complex::ComplexNumber;
use super::operand::{Evaluated, EvaluationFuel, MAX_INTEGER_BITS, Operand};
use super::parse::{Compute, Expr};

/// A number literal.
#[derive(Clone, Debug)]
pub(super) enum NumberLiteral {
    Int(BigInt),
    Float(f64),
    Imaginary(f64),
}

impl NumberLiteral {
    /// Returns the number as an expression, if it is not too large.
    pub(super) fn expr(self) -> Result<Expr, String> {
        match self {
            Self::Int(int) if int.bits() > MAX_INTEGER_BITS => Err("the number is too large".to_owned()),
            Self::Int(int) => Ok(match (int.to_i64(), int.to_u64()) {
                (Some(int), _) => Expr::Const(Value::from(int)),
                (_, Some(int)) => Expr::Const(Value::from(int)),
                _ => Expr::Int(int),
            }),
            Self::Float(float) if float.is_finite() => Ok(Expr::Const(Value::from(float))),
            Self::Float(float) => Ok(Expr::Float(float)),
            Self::Imaginary(size) => Ok(Expr::Imaginary(size)),
        }
    }
}

/// A number of any type; booleans count as 0 and 1.
#[derive(Clone)]
pub(super) enum Numeric {
    Int(BigInt),
    Float(f64),
}

impl Numeric {
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Int(int) => int_bytes(int),
            Self::Float(_) => 0,
        }
    }

    pub(super) fn float(&self) -> Evaluated<f64> {
        match self {
            Self::Int(int) => {
                let float = int.to_f64().filter(|float| float.is_finite());
                float.ok_or_else(|| "OverflowError: int too large to convert to float".to_owned())
            }
            Self::Float(float) => Ok(*float),
        }
    }

    /// Compares the exact values; `None` if one of them is NaN.
    pub(super) fn order(&self, right: &Self) -> Option<Ordering> {
        match (self, right) {
            (Self::Int(left), Self::Int(right)) => Some(left.cmp(right)),
            (Self::Int(left), Self::Float(right)) => int_and_float(left, *right),
            (Self::Float(left), Self::Int(right)) => int_and_float(right, *left).map(Ordering::reverse),
            (Self::Float(left), Self::Float(right)) => left.partial_cmp(right),
        }
    }

    pub(super) fn compute<'a>(
        &self,
        how: Compute,
        right: &Self,
        fuel: &mut EvaluationFuel,
    ) -> Evaluated<Operand<'a>> {
        match (self, right) {
            (Self::Int(left), Self::Int(right)) => {
                fuel.pay((left.bits() + right.bits()) / 64)?;
                compute_ints(how, left, right)
            }
            (left, right) => compute_floats(how, left.float()?, right.float()?),
        }
    }
}

pub(super) fn int_bytes(int: &BigInt) -> usize {
    usize::try_from(int.bits().div_ceil(8)).unwrap_or(usize::MAX)
}

/// Compares an integer and a float by their exact values.
fn int_and_float(int: &BigInt, float: f64) -> Option<Ordering> {
    if float.is_infinite() {
        return Some(if float > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    let whole = BigInt::from_f64(float.trunc())?;
    Some(int.cmp(&whole).then_with(|| 0.0.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal)))
}

fn compute_ints<'a>(how: Compute, left: &BigInt, right: &BigInt) -> Evaluated<Operand<'a>> {
    let floats = || {
        let float = |int: &BigInt| Numeric::Int(int.clone()).float();
        compute_floats(how, float(left)?, float(right)?)
    };
    if right.is_zero() && matches!(how, Compute::Divide | Compute::FloorDivide | Compute::Remainder) {
        return Err(by_zero());
    }
    // Python rounds down, Rust towards zero.
    let rounds_down = || !(left % right).is_zero() && left.is_negative() != right.is_negative();
    let int = match how {
        Compute::Add => left + right,
        Compute::Subtract => left - right,
        Compute::Multiply if left.bits() + right.bits() > MAX_INTEGER_BITS => return Err(too_large()),
        Compute::Multiply => left * right,
        Compute::Divide => return floats(),
        Compute::FloorDivide => left / right - u8::from(rounds_down()),
        Compute::Remainder if rounds_down() => left % right + right,
        Compute::Remainder => left % right,
        Compute::BitAnd => left & right,
        Compute::BitOr => left | right,
        Compute::BitXor => left ^ right,
        Compute::ShiftLeft | Compute::ShiftRight if right.is_negative() => {
            return Err("ValueError: negative shift count".to_owned());
        }
        Compute::ShiftLeft => match right.to_u64() {
            Some(count) if left.bits().saturating_add(count) <= MAX_INTEGER_BITS => left << count,
            _ if left.is_zero() => left.clone(),
            _ => return Err(too_large()),
        },
        Compute::ShiftRight => left >> right.to_u64().unwrap_or(u64::MAX).min(MAX_INTEGER_BITS),
        Compute::Power if right.sign() == Sign::Minus => return floats(),
        Compute::Power => {
            // 0, 1 and -1 remain small for any power.
            let exponent = right.to_u32().filter(|exponent| {
                left.bits() > 1 && left.bits().saturating_mul((*exponent).into()) <= MAX_INTEGER_BITS
            });
            match exponent {
                Some(exponent) => left.pow(exponent),
                None if left.bits() > 1 => return Err(too_large()),
                None if right.is_zero() => 1.into(),
                None if left.is_negative() && (right % 2_u8).is_zero() => 1.into(),
                None => left.clone(),
            }
        }
    };
    if int.bits() > MAX_INTEGER_BITS { Err(too_large()) } else { Ok(Operand::Int(int)) }
}

fn compute_floats<'a>(how: Compute, left: f64, right: f64) -> Evaluated<Operand<'a>> {
    Ok(Operand::Float(match how {
        Compute::Add => left + right,
        Compute::Subtract => left - right,
        Compute::Multiply => left * right,
        Compute::Divide | Compute::FloorDivide | Compute::Remainder if right == 0.0 => {
            return Err(by_zero());
        }
        Compute::Divide => left / right,
        Compute::FloorDivide => floor_and_rest(left, right).0,
        Compute::Remainder => floor_and_rest(left, right).1,
        Compute::Power if left == 0.0 && right < 0.0 => {
            return Err("ZeroDivisionError: zero to a negative power".to_owned());
        }
        Compute::Power if left.is_infinite() || right.is_infinite() => return Err(too_large()),
        Compute::Power if left < 0.0 && left.is_finite() && right.is_finite() && right.fract() != 0.0 => {
            // The root of a negative number is complex.
            return ComplexNumber::new(left, 0.0).power(ComplexNumber::new(right, 0.0)).map(Operand::Complex);
        }
        Compute::Power => {
            let power = left.powf(right);
            if power.is_infinite() && left.is_finite() && right.is_finite() {
                return Err(too_large());
            }
            power
        }
        // Bitwise operations on floats were rejected before.
        _ => return Err(too_large()),
    }))
}

/// Returns the quotient rounded down, and the remainder with the sign of the divisor, as in
/// CPython.
fn floor_and_rest(left: f64, right: f64) -> (f64, f64) {
    let mut rest = left % right;
    let mut quotient = (left - rest) / right;
    if rest == 0.0 {
        rest = 0.0_f64.copysign(right);
    } else if (right < 0.0) != (rest < 0.0) {
        rest += right;
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return (0.0_f64.copysign(left / right), rest);
    }
    let floor = quotient.floor();
    (if quotient - floor > 0.5 { floor + 1.0 } else { floor }, rest)
}

/// Formats a float as Python's `repr()`.
pub(super) fn float_repr(float: f64) -> String {
    match float {
        float if float.is_nan() => "nan".to_owned(),
        float if float.is_infinite() => if float > 0.0 { "inf" } else { "-inf" }.to_owned(),
        float => python_str(&Value::from(float)),
    }
}

fn by_zero() -> String {
    "ZeroDivisionError: division by zero".to_owned()
}

fn too_large() -> String {
    "OverflowError: the result is too large".to_owned()
}
