//! Values of a condition, and Python's operators on them.
//!
//! Every operation pays for its work with fuel before it does the work, so that a condition ends within a bounded time
//! over any data. A result beyond the largest integer, text or list is an error before it is made.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::rc::Rc;

use num_bigint::{BigInt, Sign};
use num_traits::{FromPrimitive as _, Signed as _, ToPrimitive as _, Zero as _};
use serde_json::{Map, Value};

use super::super::path::OUTPUT;
use super::parse::{Compare, Compute};

/// Steps of one evaluation: a node, a compared element or [`BYTES_PER_STEP`] bytes of a text each take one.
const MAX_STEPS: u64 = 1_000_000;
/// Bytes of a text that are copied, searched or compared in one step.
const BYTES_PER_STEP: u64 = 32;
/// Bytes of texts, integers and lists that one evaluation may copy in all: the most memory that the values hold.
const MAX_COPIED_BYTES: usize = 16 << 20;
/// Longest text that a condition may make.
pub(super) const MAX_TEXT_BYTES: usize = 4 << 20;
/// Largest integer that a condition may make, in bits.
const MAX_INTEGER_BITS: u64 = 8_192;
/// Longest list that a condition may make.
const MAX_LIST_ITEMS: usize = 100_000;

/// Why a condition has no value: `TypeError: …`, as Python words it.
pub(super) type Evaluated<T> = Result<T, String>;

/// The steps and the bytes of copies that an evaluation has left.
pub(super) struct EvaluationFuel {
    steps: u64,
    copied_bytes: usize,
}

impl EvaluationFuel {
    pub(super) fn new() -> Self {
        Self { steps: MAX_STEPS, copied_bytes: MAX_COPIED_BYTES }
    }

    /// Pays for so many steps.
    pub(super) fn pay(&mut self, steps: u64) -> Evaluated<()> {
        self.steps = self.steps.checked_sub(steps).ok_or("the condition takes too many steps")?;
        Ok(())
    }

    /// Pays for work on a text.
    pub(super) fn pay_bytes(&mut self, bytes: usize) -> Evaluated<()> {
        self.pay(1 + bytes as u64 / BYTES_PER_STEP)
    }

    /// Pays for bytes that are copied and kept.
    pub(super) fn pay_copy(&mut self, bytes: usize) -> Evaluated<()> {
        self.copied_bytes = self
            .copied_bytes
            .checked_sub(bytes)
            .ok_or_else(|| format!("MemoryError: the condition copies more than {MAX_COPIED_BYTES} bytes"))?;
        self.pay_bytes(bytes)
    }

    /// Pays for work on two numbers: integers may be long.
    fn pay_numbers(&mut self, left: &Numeric, right: &Numeric) -> Evaluated<()> {
        self.pay((left.heap_bytes() + right.heap_bytes()) as u64 / BYTES_PER_STEP)
    }
}

/// A value of a condition.
#[derive(Clone, Debug)]
pub(super) enum Operand<'a> {
    None,
    Bool(bool),
    Int(BigInt),
    Float(f64),
    Text(Cow<'a, str>),
    /// A list of the condition; shared, so that a repeated list costs nothing.
    List(Rc<Vec<Operand<'a>>>),
    /// A list of the data.
    Items(&'a [Value]),
    Dict(&'a Map<String, Value>),
    /// A dict whose only member is the output of a node.
    OutputDict(&'a Value),
}

/// A number, whichever type it has; truth counts as 0 and 1.
#[derive(Clone)]
enum Numeric {
    Int(BigInt),
    Float(f64),
}

impl<'a> From<&'a Value> for Operand<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::None,
            Value::Bool(truth) => Self::Bool(*truth),
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(int), _) => Self::Int(int.into()),
                (_, Some(int)) => Self::Int(int.into()),
                _ => Self::Float(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => Self::Text(Cow::Borrowed(text)),
            Value::Array(items) => Self::Items(items),
            Value::Object(members) => Self::Dict(members),
        }
    }
}

impl Operand<'_> {
    /// Whether it counts as true.
    pub(super) fn truth(&self) -> bool {
        match self {
            Self::None => false,
            Self::Bool(truth) => *truth,
            Self::Int(int) => !int.is_zero(),
            Self::Float(float) => *float != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::List(items) => !items.is_empty(),
            Self::Items(items) => !items.is_empty(),
            Self::Dict(members) => !members.is_empty(),
            Self::OutputDict(_) => true,
        }
    }

    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "str",
            Self::List(_) | Self::Items(_) => "list",
            Self::Dict(_) | Self::OutputDict(_) => "dict",
        }
    }

    fn numeric(&self) -> Option<Numeric> {
        match self {
            Self::Bool(truth) => Some(Numeric::Int(u8::from(*truth).into())),
            Self::Int(int) => Some(Numeric::Int(int.clone())),
            Self::Float(float) => Some(Numeric::Float(*float)),
            _ => None,
        }
    }

    pub(super) fn list(items: impl Iterator<Item = Self>) -> Self {
        Self::List(Rc::new(items.collect()))
    }

    /// Bytes that a clone allocates. Lists within a list are shared.
    fn heap_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Int(int) => int_bytes(int),
            _ => 0,
        }
    }

    pub(super) fn length(&self) -> usize {
        match self {
            Self::List(items) => items.len(),
            Self::Items(items) => items.len(),
            _ => 0,
        }
    }

    pub(super) fn item(&self, at: usize) -> Option<Operand<'_>> {
        match self {
            Self::List(items) => items.get(at).map(Operand::borrowed),
            Self::Items(items) => items.get(at).map(Operand::from),
            _ => None,
        }
    }

    fn borrowed(&self) -> Operand<'_> {
        match self {
            Self::Text(text) => Operand::Text(Cow::Borrowed(text)),
            other => other.clone(),
        }
    }

    /// The number with its sign changed or kept.
    pub(super) fn signed(self, minus: bool) -> Evaluated<Self> {
        match (self.numeric(), minus) {
            (Some(Numeric::Int(int)), minus) => Ok(Self::Int(if minus { -int } else { int })),
            (Some(Numeric::Float(float)), minus) => Ok(Self::Float(if minus { -float } else { float })),
            (None, minus) => {
                let sign = if minus { '-' } else { '+' };
                Err(format!("TypeError: bad operand type for unary {sign}: '{}'", self.type_name()))
            }
        }
    }

    /// The integer with its bits inverted.
    pub(super) fn inverted(self) -> Evaluated<Self> {
        match self.numeric() {
            Some(Numeric::Int(int)) => Ok(Self::Int(-int - 1)),
            _ => Err(format!("TypeError: bad operand type for unary ~: '{}'", self.type_name())),
        }
    }

    /// Whether a comparison holds.
    pub(super) fn compare(&self, how: Compare, right: &Self, fuel: &mut EvaluationFuel) -> Evaluated<bool> {
        let order = |symbol: &str, fuel: &mut EvaluationFuel| self.order(right, symbol, fuel);
        // Numbers that are not a number do not occur: JSON has none, and arithmetic that makes one is an error.
        Ok(match how {
            Compare::Equal => self.equals(right, fuel)?,
            Compare::NotEqual => !self.equals(right, fuel)?,
            Compare::Less => order("<", fuel)?.is_lt(),
            Compare::LessOrEqual => order("<=", fuel)?.is_le(),
            Compare::Greater => order(">", fuel)?.is_gt(),
            Compare::GreaterOrEqual => order(">=", fuel)?.is_ge(),
            Compare::In => right.contains(self, fuel)?,
            Compare::NotIn => !right.contains(self, fuel)?,
            Compare::Is => self.is_same(right, fuel)?,
            Compare::IsNot => !self.is_same(right, fuel)?,
        })
    }

    /// Whether two values are one: values of data have no identity, so type and value decide, and lists and dicts are
    /// never the same.
    fn is_same(&self, right: &Self, fuel: &mut EvaluationFuel) -> Evaluated<bool> {
        let scalar = !matches!(self, Self::List(_) | Self::Items(_) | Self::Dict(_) | Self::OutputDict(_));
        Ok(scalar && self.type_name() == right.type_name() && self.equals(right, fuel)?)
    }

    fn equals(&self, right: &Self, fuel: &mut EvaluationFuel) -> Evaluated<bool> {
        fuel.pay(1)?;
        if let (Some(left), Some(right)) = (self.numeric(), right.numeric()) {
            fuel.pay_numbers(&left, &right)?;
            return Ok(left.order(&right) == Some(Ordering::Equal));
        }
        Ok(match (self, right) {
            (Self::None, Self::None) => true,
            (Self::Text(left), Self::Text(right)) => {
                fuel.pay_bytes(left.len().min(right.len()))?;
                left == right
            }
            (Self::Dict(left), Self::Dict(right)) => {
                if left.len() != right.len() {
                    return Ok(false);
                }
                for (name, value) in *left {
                    fuel.pay_bytes(name.len())?;
                    match right.get(name) {
                        Some(other) if Operand::from(value).equals(&Operand::from(other), fuel)? => {}
                        _ => return Ok(false),
                    }
                }
                true
            }
            (Self::OutputDict(left), Self::OutputDict(right)) => {
                Operand::from(*left).equals(&Operand::from(*right), fuel)?
            }
            (Self::OutputDict(output), Self::Dict(members))
            | (Self::Dict(members), Self::OutputDict(output)) => match members.get(OUTPUT) {
                Some(other) if members.len() == 1 => {
                    Operand::from(*output).equals(&Operand::from(other), fuel)?
                }
                _ => false,
            },
            (Self::List(_) | Self::Items(_), Self::List(_) | Self::Items(_)) => {
                self.length() == right.length() && self.first_difference(right, fuel)?.is_none()
            }
            _ => false,
        })
    }

    /// The first position at which two lists differ.
    fn first_difference(&self, right: &Self, fuel: &mut EvaluationFuel) -> Evaluated<Option<usize>> {
        for at in 0..self.length().min(right.length()) {
            let (Some(left), Some(right)) = (self.item(at), right.item(at)) else { break };
            if !left.equals(&right, fuel)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn order(&self, right: &Self, symbol: &str, fuel: &mut EvaluationFuel) -> Evaluated<Ordering> {
        fuel.pay(1)?;
        let order = match (self, right) {
            (Self::Text(left), Self::Text(right)) => {
                fuel.pay_bytes(left.len().min(right.len()))?;
                Some(left.cmp(right))
            }
            (Self::List(_) | Self::Items(_), Self::List(_) | Self::Items(_)) => {
                let differs = self.first_difference(right, fuel)?;
                match differs.map(|at| (self.item(at), right.item(at))) {
                    Some((Some(left), Some(right))) => Some(left.order(&right, symbol, fuel)?),
                    _ => Some(self.length().cmp(&right.length())),
                }
            }
            _ => match (self.numeric(), right.numeric()) {
                (Some(left), Some(right)) => {
                    fuel.pay_numbers(&left, &right)?;
                    left.order(&right)
                }
                _ => None,
            },
        };
        order.ok_or_else(|| {
            let (left, right) = (self.type_name(), right.type_name());
            format!("TypeError: '{symbol}' not supported between instances of '{left}' and '{right}'")
        })
    }

    fn contains(&self, part: &Self, fuel: &mut EvaluationFuel) -> Evaluated<bool> {
        fuel.pay(1)?;
        match (self, part) {
            (Self::Text(whole), Self::Text(part)) => {
                fuel.pay_bytes(whole.len() + part.len())?;
                Ok(whole.contains(&**part))
            }
            (Self::Text(_), part) => {
                let name = part.type_name();
                Err(format!("TypeError: 'in <string>' requires string as left operand, not {name}"))
            }
            (Self::Dict(members), Self::Text(name)) => {
                fuel.pay_bytes(name.len())?;
                Ok(members.contains_key(&**name))
            }
            (Self::OutputDict(_), Self::Text(name)) => Ok(name == OUTPUT),
            (
                Self::Dict(_) | Self::OutputDict(_),
                Self::List(_) | Self::Items(_) | Self::Dict(_) | Self::OutputDict(_),
            ) => {
                let name = part.type_name();
                Err(format!("TypeError: cannot use '{name}' as a dict key (unhashable type: '{name}')"))
            }
            (Self::Dict(_) | Self::OutputDict(_), _) => Ok(false),
            (Self::List(_) | Self::Items(_), _) => {
                for at in 0..self.length() {
                    if self.item(at).map_or(Ok(false), |item| item.equals(part, fuel))? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            _ => {
                let name = self.type_name();
                Err(format!("TypeError: argument of type '{name}' is not a container or iterable"))
            }
        }
    }

    /// The result of arithmetic.
    pub(super) fn compute(self, how: Compute, right: Self, fuel: &mut EvaluationFuel) -> Evaluated<Self> {
        fuel.pay(1)?;
        if let (Self::Bool(left), Self::Bool(right)) = (&self, &right) {
            match how {
                Compute::BitAnd => return Ok(Self::Bool(left & right)),
                Compute::BitOr => return Ok(Self::Bool(left | right)),
                Compute::BitXor => return Ok(Self::Bool(left ^ right)),
                _ => {}
            }
        }
        if let (Some(left), Some(right)) = (self.numeric(), right.numeric()) {
            let whole = matches!((&left, &right), (Numeric::Int(_), Numeric::Int(_)));
            if whole || !how.is_bitwise() {
                return left.compute(how, &right, fuel);
            }
        }
        match (how, &self, &right) {
            (Compute::Add, Self::Text(left), Self::Text(right)) => {
                let bytes = left.len() + right.len();
                check_size(bytes, MAX_TEXT_BYTES, "text")?;
                fuel.pay_copy(bytes)?;
                Ok(Self::Text(Cow::Owned(format!("{left}{right}"))))
            }
            (Compute::Add, Self::List(_) | Self::Items(_), Self::List(_) | Self::Items(_)) => {
                let count = self.length() + right.length();
                check_size(count, MAX_LIST_ITEMS, "list")?;
                fuel.pay_copy(count * size_of::<Self>())?;
                Ok(Self::list(self.into_items().into_iter().chain(right.into_items())))
            }
            (Compute::Multiply, list, count) if list.is_sequence() && count.as_count().is_some() => {
                let count = count.as_count().unwrap_or_default();
                self.repeated(&count, fuel)
            }
            (Compute::Multiply, count, list) if list.is_sequence() && count.as_count().is_some() => {
                let count = count.as_count().unwrap_or_default();
                right.repeated(&count, fuel)
            }
            _ => Err(unsupported(how, &self, &right)),
        }
    }

    fn is_sequence(&self) -> bool {
        matches!(self, Self::Text(_) | Self::List(_) | Self::Items(_))
    }

    fn as_count(&self) -> Option<BigInt> {
        match self.numeric()? {
            Numeric::Int(int) => Some(int),
            Numeric::Float(_) => None,
        }
    }

    fn into_items(self) -> Vec<Self> {
        match self {
            Self::List(items) => Rc::unwrap_or_clone(items),
            Self::Items(items) => items.iter().map(Operand::from).collect(),
            _ => Vec::new(),
        }
    }

    fn repeated(self, count: &BigInt, fuel: &mut EvaluationFuel) -> Evaluated<Self> {
        let count = if count.is_negative() { 0 } else { count.to_usize().unwrap_or(usize::MAX) };
        if let Self::Text(text) = &self {
            let bytes = text.len().saturating_mul(count);
            check_size(bytes, MAX_TEXT_BYTES, "text")?;
            fuel.pay_copy(bytes)?;
            return Ok(Self::Text(Cow::Owned(text.repeat(count))));
        }
        check_size(self.length().saturating_mul(count), MAX_LIST_ITEMS, "list")?;
        if count == 0 || self.length() == 0 {
            return Ok(Self::list(std::iter::empty()));
        }
        fuel.pay(self.length() as u64)?;
        let once = self.into_items();
        let bytes: usize = once.iter().map(|item| size_of::<Self>() + item.heap_bytes()).sum();
        fuel.pay_copy(bytes.saturating_mul(count))?;
        Ok(Self::list((0..count).flat_map(|_| once.iter().cloned())))
    }
}

impl Numeric {
    fn heap_bytes(&self) -> usize {
        match self {
            Self::Int(int) => int_bytes(int),
            Self::Float(_) => 0,
        }
    }

    fn float(&self) -> Evaluated<f64> {
        match self {
            Self::Int(int) => {
                let float = int.to_f64().filter(|float| float.is_finite());
                float.ok_or_else(|| "OverflowError: int too large to convert to float".to_owned())
            }
            Self::Float(float) => Ok(*float),
        }
    }

    /// The order of the exact values; none beside a value that is not a number.
    fn order(&self, right: &Self) -> Option<Ordering> {
        match (self, right) {
            (Self::Int(left), Self::Int(right)) => Some(left.cmp(right)),
            (Self::Int(left), Self::Float(right)) => int_and_float(left, *right),
            (Self::Float(left), Self::Int(right)) => int_and_float(right, *left).map(Ordering::reverse),
            (Self::Float(left), Self::Float(right)) => left.partial_cmp(right),
        }
    }

    fn compute<'a>(&self, how: Compute, right: &Self, fuel: &mut EvaluationFuel) -> Evaluated<Operand<'a>> {
        match (self, right) {
            (Self::Int(left), Self::Int(right)) => {
                fuel.pay((left.bits() + right.bits()) / 64)?;
                compute_ints(how, left, right)
            }
            (left, right) => compute_floats(how, left.float()?, right.float()?).map(Operand::Float),
        }
    }
}

fn int_bytes(int: &BigInt) -> usize {
    usize::try_from(int.bits().div_ceil(8)).unwrap_or(usize::MAX)
}

/// The order of an integer and a float, by their exact values.
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
        compute_floats(how, float(left)?, float(right)?).map(Operand::Float)
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
            // 0, 1 and -1 stay small whatever the power.
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

fn compute_floats(how: Compute, left: f64, right: f64) -> Evaluated<f64> {
    let modulus = || {
        let rest = left % right;
        if rest != 0.0 && (rest < 0.0) != (right < 0.0) { rest + right } else { rest }
    };
    let float = match how {
        Compute::Add => left + right,
        Compute::Subtract => left - right,
        Compute::Multiply => left * right,
        Compute::Divide | Compute::FloorDivide | Compute::Remainder if right == 0.0 => {
            return Err(by_zero());
        }
        Compute::Divide => left / right,
        Compute::FloorDivide => ((left - modulus()) / right).round(),
        Compute::Remainder => modulus(),
        Compute::Power if left == 0.0 && right < 0.0 => {
            return Err("ZeroDivisionError: zero to a negative power".to_owned());
        }
        Compute::Power => left.powf(right),
        // Bits of floats are refused before.
        _ => return Err(too_large()),
    };
    if float.is_finite() { Ok(float) } else { Err(too_large()) }
}

fn by_zero() -> String {
    "ZeroDivisionError: division by zero".to_owned()
}

fn too_large() -> String {
    "OverflowError: the result is too large".to_owned()
}

pub(super) fn check_size(size: usize, max: usize, what: &str) -> Evaluated<()> {
    if size > max {
        return Err(format!("MemoryError: the {what} is larger than {max}"));
    }
    Ok(())
}

fn unsupported(how: Compute, left: &Operand<'_>, right: &Operand<'_>) -> String {
    let (name, other) = (left.type_name(), right.type_name());
    if let (Compute::Add, Operand::Text(_) | Operand::List(_) | Operand::Items(_)) = (how, left) {
        return format!("TypeError: can only concatenate {name} (not \"{other}\") to {name}");
    }
    let symbol = match how {
        Compute::Add => "+",
        Compute::Subtract => "-",
        Compute::Multiply => "*",
        Compute::Divide => "/",
        Compute::FloorDivide => "//",
        Compute::Remainder => "%",
        Compute::Power => "** or pow()",
        Compute::BitAnd => "&",
        Compute::BitOr => "|",
        Compute::BitXor => "^",
        Compute::ShiftLeft => "<<",
        Compute::ShiftRight => ">>",
    };
    format!("TypeError: unsupported operand type(s) for {symbol}: '{name}' and '{other}'")
}
