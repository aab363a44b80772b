//! Numbers of literals, before they are JSON.

use serde_json::{Number, Value};

/// A number of a literal.
#[derive(Clone, Copy, Debug)]
pub(super) enum NumberLiteral {
    Int(i128),
    Float(f64),
}

impl NumberLiteral {
    /// As JSON, where it fits.
    pub(super) fn json(self) -> Result<Value, String> {
        let number = match self {
            Self::Int(int) => match (i64::try_from(int), u64::try_from(int)) {
                (Ok(int), _) => Some(Number::from(int)),
                (_, Ok(int)) => Some(Number::from(int)),
                _ => None,
            },
            Self::Float(float) => Number::from_f64(float),
        };
        number.map(Value::Number).ok_or_else(|| "the result is too large".to_owned())
    }
}
