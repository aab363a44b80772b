//! Methods of numbers in a condition.

use num_bigint::BigInt;
use num_traits::{FromPrimitive as _, ToPrimitive as _, Zero as _};

use super::bytes::{int_from_bytes, int_to_bytes};
use super::callables::ConditionMethod;
use super::complex::ComplexNumber;
use super::methods::text;
use super::number::float_repr;
use super::operand::{Evaluated, EvaluationFuel, Operand};

/// Calls a number method; `None` for any other method or arguments.
pub(super) fn number_method<'a>(
    on: &Operand<'a>,
    method: ConditionMethod,
    args: &[Operand<'a>],
    fuel: &mut EvaluationFuel,
) -> Evaluated<Option<Operand<'a>>> {
    Ok(match (on, method, args) {
        (Operand::Bool(_), ConditionMethod::FromBytes, args) => {
            Some(Operand::Bool(int_from_bytes(args, fuel)?.truth()))
        }
        (Operand::Bool(truth), method, args) => {
            return number_method(&Operand::Int(u8::from(*truth).into()), method, args, fuel);
        }
        (Operand::Complex(number), ConditionMethod::Conjugate, []) => {
            Some(Operand::Complex(ComplexNumber::new(number.real, -number.imaginary)))
        }
        (Operand::Complex(_), ..) => None,
        (number, ConditionMethod::Conjugate, []) => Some(number.clone()),
        (Operand::Int(int), ConditionMethod::ToBytes, args) => Some(int_to_bytes(int, args, fuel)?),
        (Operand::Int(_), ConditionMethod::FromBytes, args) => Some(int_from_bytes(args, fuel)?),
        (Operand::Int(int), method, []) => whole_number_method(int, method),
        (Operand::Float(_), ConditionMethod::FromHex, [Operand::Text(digits)]) => {
            fuel.pay_bytes(digits.len())?;
            Some(Operand::Float(float_of_hex(digits)?))
        }
        (Operand::Float(float), method, []) => float_method(*float, method)?,
        _ => None,
    })
}

fn ratio<'a>(numerator: BigInt, denominator: BigInt) -> Operand<'a> {
    Operand::tuple([Operand::Int(numerator), Operand::Int(denominator)].into_iter())
}

fn whole_number_method<'a>(int: &BigInt, method: ConditionMethod) -> Option<Operand<'a>> {
    Some(match method {
        ConditionMethod::IsInteger => Operand::Bool(true),
        ConditionMethod::IntegerRatio => ratio(int.clone(), 1.into()),
        ConditionMethod::BitLength => Operand::Int(int.bits().into()),
        ConditionMethod::BitCount => Operand::Int(int.magnitude().count_ones().into()),
        _ => return None,
    })
}

fn float_method<'a>(float: f64, method: ConditionMethod) -> Evaluated<Option<Operand<'a>>> {
    Ok(Some(match method {
        ConditionMethod::IsInteger => Operand::Bool(float.fract() == 0.0),
        ConditionMethod::IntegerRatio if !float.is_finite() => {
            return Err("OverflowError: cannot convert this float to an integer ratio".to_owned());
        }
        ConditionMethod::IntegerRatio => {
            let (mut float, mut denominator) = (float, BigInt::from(1));
            while float.fract() != 0.0 {
                float *= 2.0;
                denominator *= 2;
            }
            match BigInt::from_f64(float) {
                Some(numerator) => ratio(numerator, denominator),
                None => return Ok(None),
            }
        }
        ConditionMethod::Hex => text(hex_of_float(float)),
        _ => return Ok(None),
    }))
}

/// Number of fraction bits of a float.
const FRACTION_BITS: u64 = 52;

/// Implements `float.hex()`: `0x1.8000000000000p+1`.
fn hex_of_float(float: f64) -> String {
    if !float.is_finite() {
        return float_repr(float);
    }
    let sign = if float.is_sign_negative() { "-" } else { "" };
    let bits = float.to_bits();
    let (fraction, exponent) = (bits & ((1 << FRACTION_BITS) - 1), (bits >> FRACTION_BITS) & 0x7ff);
    if float == 0.0 {
        return format!("{sign}0x0.0p+0");
    }
    let (whole, power) = if exponent == 0 { (0, -1022) } else { (1, exponent.cast_signed() - 1023) };
    format!("{sign}0x{whole}.{fraction:013x}p{power:+}")
}

/// Implements `float.fromhex()`: hexadecimal digits with a point, and a power of two.
fn float_of_hex(written: &str) -> Evaluated<f64> {
    let invalid = || "ValueError: invalid hexadecimal floating-point string".to_owned();
    let plain = written.trim().to_ascii_lowercase();
    let (sign, plain) = match plain.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    match plain {
        "inf" | "infinity" => return Ok(sign * f64::INFINITY),
        "nan" => return Ok(f64::NAN),
        _ => {}
    }
    let plain = plain.strip_prefix("0x").unwrap_or(plain);
    let (digits, power) = plain.split_once('p').unwrap_or((plain, "0"));
    let power: i32 = power.parse().map_err(|_| invalid())?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    // Further digits only affect the rounding of a float.
    if all.is_empty() || all.len() > 64 {
        return Err(invalid());
    }
    let size = BigInt::parse_bytes(all.as_bytes(), 16).filter(|_| !all.starts_with(['+', '-']));
    let size = size.ok_or_else(invalid)?;
    if size.is_zero() {
        return Ok(sign * 0.0);
    }
    let shift = i64::from(power) - 4 * (fraction.len() as u64).cast_signed();
    let top = size.bits().cast_signed() + shift;
    if top > 1024 {
        return Err("OverflowError: hexadecimal value too large to represent as a float".to_owned());
    }
    if top < -1100 {
        return Ok(sign * 0.0);
    }
    // Both factors are exact, so the product is rounded once.
    let half = shift / 2;
    let factor = |power: i64| 2.0_f64.powi(power as i32);
    let size = size.to_f64().unwrap_or(f64::INFINITY);
    Ok(sign * size * factor(half) * factor(shift - half))
}
