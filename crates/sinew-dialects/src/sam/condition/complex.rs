//! Complex numbers in a condition, with the formulas of CPython.

use num_traits::ToPrimitive as _;

use super::number::float_repr;
use super::operand::Evaluated;
use super::parse::Compute;

/// A complex number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ComplexNumber {
    pub(super) real: f64,
    pub(super) imaginary: f64,
}

/// Maximum size of a base and of an exponent, as in the library.
const MAX_POWER: f64 = 4_000_000.0;
/// Maximum exponent that is computed by repeated multiplication.
const MAX_REPEATED_POWER: f64 = 100.0;

impl ComplexNumber {
    pub(super) const fn new(real: f64, imaginary: f64) -> Self {
        Self { real, imaginary }
    }

    /// Returns whether it is truthy.
    pub(super) fn truth(self) -> bool {
        self.real != 0.0 || self.imaginary != 0.0
    }

    /// Formats the number as Python's `repr()`.
    pub(super) fn shown(self) -> String {
        let part = |float: f64| {
            let text = float_repr(float);
            text.strip_suffix(".0").map(str::to_owned).unwrap_or(text)
        };
        if self.real == 0.0 && self.real.is_sign_positive() {
            return format!("{}j", part(self.imaginary));
        }
        let sign = if part(self.imaginary).starts_with('-') { "" } else { "+" };
        format!("({}{sign}{}j)", part(self.real), part(self.imaginary))
    }

    /// Returns the result of an arithmetic operation; `None` for operators that complex numbers do
    /// not support.
    pub(super) fn compute(self, how: Compute, right: Self) -> Option<Evaluated<Self>> {
        Some(match how {
            Compute::Add => Ok(Self::new(self.real + right.real, self.imaginary + right.imaginary)),
            Compute::Subtract => Ok(Self::new(self.real - right.real, self.imaginary - right.imaginary)),
            Compute::Multiply => Ok(self.times(right)),
            Compute::Divide => self.divided_by(right),
            Compute::Power => self.power(right),
            _ => return None,
        })
    }

    fn times(self, right: Self) -> Self {
        Self::new(
            self.real * right.real - self.imaginary * right.imaginary,
            self.real * right.imaginary + self.imaginary * right.real,
        )
    }

    fn divided_by(self, right: Self) -> Evaluated<Self> {
        if !right.truth() {
            return Err("ZeroDivisionError: complex division by zero".to_owned());
        }
        if right.real.abs() >= right.imaginary.abs() {
            let ratio = right.imaginary / right.real;
            let denominator = right.real + right.imaginary * ratio;
            let real = (self.real + self.imaginary * ratio) / denominator;
            return Ok(Self::new(real, (self.imaginary - self.real * ratio) / denominator));
        }
        if right.imaginary.abs() >= right.real.abs() {
            let ratio = right.real / right.imaginary;
            let denominator = right.real * ratio + right.imaginary;
            let real = (self.real * ratio + self.imaginary) / denominator;
            return Ok(Self::new(real, (self.imaginary * ratio - self.real) / denominator));
        }
        Ok(Self::new(f64::NAN, f64::NAN))
    }

    pub(super) fn power(self, exponent: Self) -> Evaluated<Self> {
        let size = |number: Self| number.real.hypot(number.imaginary);
        if size(self) > MAX_POWER || size(exponent) > MAX_POWER {
            return Err("OverflowError: the base or the exponent is too large".to_owned());
        }
        let is_whole = exponent.imaginary == 0.0 && exponent.real.fract() == 0.0;
        let found = if is_whole && exponent.real.abs() <= MAX_REPEATED_POWER {
            self.whole_power(exponent.real)?
        } else {
            self.polar_power(exponent)?
        };
        if found.real.is_finite() && found.imaginary.is_finite() {
            return Ok(found);
        }
        Err("OverflowError: complex exponentiation".to_owned())
    }

    fn whole_power(self, exponent: f64) -> Evaluated<Self> {
        let one = Self::new(1.0, 0.0);
        // At most a hundred.
        let times = exponent.abs().to_u32().unwrap_or_default();
        let (mut left, mut factor, mut found) = (times, self, one);
        while left > 0 {
            if left & 1 == 1 {
                found = found.times(factor);
            }
            left >>= 1;
            factor = factor.times(factor);
        }
        if exponent > 0.0 {
            return Ok(found);
        }
        one.divided_by(found).map_err(|_| by_zero_power())
    }

    fn polar_power(self, exponent: Self) -> Evaluated<Self> {
        if !exponent.truth() {
            return Ok(Self::new(1.0, 0.0));
        }
        if !self.truth() {
            let is_fine = exponent.imaginary == 0.0 && exponent.real >= 0.0;
            return if is_fine { Ok(Self::new(0.0, 0.0)) } else { Err(by_zero_power()) };
        }
        let size = self.real.hypot(self.imaginary);
        let angle = self.imaginary.atan2(self.real);
        let (mut length, mut phase) = (size.powf(exponent.real), angle * exponent.real);
        if exponent.imaginary != 0.0 {
            length /= (angle * exponent.imaginary).exp();
            phase += exponent.imaginary * size.ln();
        }
        Ok(Self::new(length * phase.cos(), length * phase.sin()))
    }
}

fn by_zero_power() -> String {
    "ZeroDivisionError: 0.0 to a negative or complex power".to_owned()
}
