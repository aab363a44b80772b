//! Values of a condition, and Python's operators on them.
//!
//! Every operation is charged before it runs, so that a condition ends within a bounded time over
//! any data. A result that exceeds the maximum integer, string or list is an error before it is
//! created.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::rc::Rc;

use num_bigint::BigInt;
use num_traits::{Signed as _, ToPrimitive as _, Zero as _};
use serde_json::{Map, Value};

use super::super::path::OUTPUT;
use super::bytes::byte_of;
use super::complex::ComplexNumber;
use super::number::{Numeric, int_bytes};
use super::parse::{Compare, Compute};
use super::translation::TranslationTable;

/// Maximum steps of one evaluation: a node, a compared element or [`BYTES_PER_STEP`] bytes of a
/// string take one step each.
const MAX_STEPS: u64 = 1_000_000;
/// Bytes of a string that are copied, searched or compared in one step.
const BYTES_PER_STEP: u64 = 32;
/// Maximum bytes of strings, integers and lists that one evaluation copies, which bounds the memory
/// of its values.
const MAX_COPIED_BYTES: usize = 16 << 20;
/// Maximum length of a string that a condition creates, in bytes.
pub(super) const MAX_TEXT_BYTES: usize = 4 << 20;
/// Maximum size of an integer that a condition creates, in bits.
pub(super) const MAX_INTEGER_BITS: u64 = 8_192;
/// Maximum length of a list that a condition creates.
const MAX_LIST_ITEMS: usize = 100_000;

/// The value of a condition, or the reason why it has none: `TypeError: …`, as in Python.
pub(super) type Evaluated<T> = Result<T, String>;

/// The remaining steps and copied bytes of an evaluation.
pub(super) struct EvaluationFuel {
    steps: u64,
    copied_bytes: usize,
}

impl EvaluationFuel {
    pub(super) fn new() -> Self {
        Self { steps: MAX_STEPS, copied_bytes: MAX_COPIED_BYTES }
    }

    /// Consumes `steps`.
    pub(super) fn pay(&mut self, steps: u64) -> Evaluated<()> {
        self.steps = self.steps.checked_sub(steps).ok_or("the condition takes too many steps")?;
        Ok(())
    }

    /// Charges for work on a string.
    pub(super) fn pay_bytes(&mut self, bytes: usize) -> Evaluated<()> {
        self.pay(1 + bytes as u64 / BYTES_PER_STEP)
    }

    /// Charges for bytes that are copied and kept.
    pub(super) fn pay_copy(&mut self, bytes: usize) -> Evaluated<()> {
        self.copied_bytes = self
            .copied_bytes
            .checked_sub(bytes)
            .ok_or_else(|| format!("MemoryError: the condition copies more than {MAX_COPIED_BYTES} bytes"))?;
        self.pay_bytes(bytes)
    }

    /// Charges for work on two numbers: integers may be long.
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
    Complex(ComplexNumber),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    /// A list literal; shared, so that repeating it costs nothing.
    List(Rc<Vec<Operand<'a>>>),
    /// A tuple, also shared.
    Tuple(Rc<Vec<Operand<'a>>>),
    /// A list in the data.
    Items(&'a [Value]),
    Dict(&'a Map<String, Value>),
    /// A table of `maketrans`: replacements by code point.
    Translation(Rc<TranslationTable>),
    /// A dict whose only member is the output of a node.
    OutputDict(&'a Value),
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
    /// Returns whether it is truthy.
    pub(super) fn truth(&self) -> bool {
        match self {
            Self::None => false,
            Self::Bool(truth) => *truth,
            Self::Int(int) => !int.is_zero(),
            Self::Float(float) => *float != 0.0,
            Self::Complex(number) => number.truth(),
            Self::Text(text) => !text.is_empty(),
            Self::Bytes(bytes) => !bytes.is_empty(),
            Self::Translation(table) => !table.is_empty(),
            Self::List(items) | Self::Tuple(items) => !items.is_empty(),
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
            Self::Complex(_) => "complex",
            Self::Text(_) => "str",
            Self::Bytes(_) => "bytes",
            Self::List(_) | Self::Items(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Dict(_) | Self::OutputDict(_) | Self::Translation(_) => "dict",
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

    /// Returns the number as a complex number; `None` if it is not a number.
    fn complex(&self) -> Option<Evaluated<ComplexNumber>> {
        match self {
            Self::Complex(number) => Some(Ok(*number)),
            other => other.numeric().map(|number| number.float().map(|real| ComplexNumber::new(real, 0.0))),
        }
    }

    /// Returns both as complex numbers, if both are numbers and one of them is complex.
    fn complex_pair(&self, right: &Self) -> Option<Evaluated<(ComplexNumber, ComplexNumber)>> {
        if !matches!((self, right), (Self::Complex(_), _) | (_, Self::Complex(_))) {
            return None;
        }
        let (left, right) = (self.complex()?, right.complex()?);
        Some(left.and_then(|left| right.map(|right| (left, right))))
    }

    pub(super) fn list(items: impl Iterator<Item = Self>) -> Self {
        Self::List(Rc::new(items.collect()))
    }

    pub(super) fn tuple(items: impl Iterator<Item = Self>) -> Self {
        Self::Tuple(Rc::new(items.collect()))
    }

    /// Returns a list or tuple with these items, of the same type as this value.
    pub(super) fn alike(&self, items: impl Iterator<Item = Self>) -> Self {
        if matches!(self, Self::Tuple(_)) { Self::tuple(items) } else { Self::list(items) }
    }

    /// Returns whether it is a list or a tuple.
    pub(super) fn is_row(&self) -> bool {
        matches!(self, Self::List(_) | Self::Tuple(_) | Self::Items(_))
    }

    /// Returns whether both are lists, or both are tuples.
    fn are_rows(&self, other: &Self) -> bool {
        let is_list = |one: &Self| matches!(one, Self::List(_) | Self::Items(_));
        let is_tuple = |one: &Self| matches!(one, Self::Tuple(_));
        (is_list(self) && is_list(other)) || (is_tuple(self) && is_tuple(other))
    }

    /// Returns the bytes that a clone allocates. Lists within a list are shared.
    fn heap_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Int(int) => int_bytes(int),
            _ => 0,
        }
    }

    pub(super) fn length(&self) -> usize {
        match self {
            Self::List(items) | Self::Tuple(items) => items.len(),
            Self::Items(items) => items.len(),
            _ => 0,
        }
    }

    pub(super) fn item(&self, at: usize) -> Option<Operand<'_>> {
        match self {
            Self::List(items) | Self::Tuple(items) => items.get(at).map(Operand::borrowed),
            Self::Items(items) => items.get(at).map(Operand::from),
            _ => None,
        }
    }

    fn borrowed(&self) -> Operand<'_> {
        match self {
            Self::Text(text) => Operand::Text(Cow::Borrowed(text)),
            Self::Bytes(bytes) => Operand::Bytes(Cow::Borrowed(bytes)),
            other => other.clone(),
        }
    }

    /// Returns the number with or without a changed sign.
    pub(super) fn signed(self, minus: bool) -> Evaluated<Self> {
        if let Self::Complex(number) = self {
            let negative = ComplexNumber::new(-number.real, -number.imaginary);
            return Ok(Self::Complex(if minus { negative } else { number }));
        }
        match (self.numeric(), minus) {
            (Some(Numeric::Int(int)), minus) => Ok(Self::Int(if minus { -int } else { int })),
            (Some(Numeric::Float(float)), minus) => Ok(Self::Float(if minus { -float } else { float })),
            (None, minus) => {
                let sign = if minus { '-' } else { '+' };
                Err(format!("TypeError: bad operand type for unary {sign}: '{}'", self.type_name()))
            }
        }
    }

    /// Returns the integer with inverted bits.
    pub(super) fn inverted(self) -> Evaluated<Self> {
        match self.numeric() {
            Some(Numeric::Int(int)) => Ok(Self::Int(-int - 1)),
            _ => Err(format!("TypeError: bad operand type for unary ~: '{}'", self.type_name())),
        }
    }

    /// Returns whether a comparison holds.
    pub(super) fn compare(&self, how: Compare, right: &Self, fuel: &mut EvaluationFuel) -> Evaluated<bool> {
        let order = |symbol: &str, fuel: &mut EvaluationFuel| self.order(right, symbol, fuel);
        Ok(match how {
            Compare::Equal => self.equals(right, fuel)?,
            Compare::NotEqual => !self.equals(right, fuel)?,
            Compare::Less => order("<", fuel)?.is_some_and(Ordering::is_lt),
            Compare::LessOrEqual => order("<=", fuel)?.is_some_and(Ordering::is_le),
            Compare::Greater => order(">", fuel)?.is_some_and(Ordering::is_gt),
            Compare::GreaterOrEqual => order(">=", fuel)?.is_some_and(Ordering::is_ge),
            Compare::In => right.contains(self, fuel)?,
            Compare::NotIn => !right.contains(self, fuel)?,
            Compare::Is => self.is_same(right, fuel)?,
            Compare::IsNot => !self.is_same(right, fuel)?,
        })
    }

    /// Returns whether two values are identical: data has no identity, so type and value decide,
    /// and lists and dicts are never identical.
    fn is_same(&self, right: &Self, fuel: &mut EvaluationFuel) -> Evaluated<bool> {
        let scalar = !matches!(
            self,
            Self::List(_)
                | Self::Tuple(_)
                | Self::Items(_)
                | Self::Dict(_)
                | Self::OutputDict(_)
                | Self::Translation(_)
        );
        Ok(scalar && self.type_name() == right.type_name() && self.equals(right, fuel)?)
    }

    fn equals(&self, right: &Self, fuel: &mut EvaluationFuel) -> Evaluated<bool> {
        fuel.pay(1)?;
        if let (Some(left), Some(right)) = (self.numeric(), right.numeric()) {
            fuel.pay_numbers(&left, &right)?;
            return Ok(left.order(&right) == Some(Ordering::Equal));
        }
        if let (Self::Complex(complex), other) | (other, Self::Complex(complex)) = (self, right) {
            return Ok(match other {
                Self::Complex(other) => complex == other,
                other => complex.imaginary == 0.0 && Self::Float(complex.real).equals(other, fuel)?,
            });
        }
        Ok(match (self, right) {
            (Self::None, Self::None) => true,
            (Self::Bytes(left), Self::Bytes(right)) => {
                fuel.pay_bytes(left.len().min(right.len()))?;
                left == right
            }
            (Self::Translation(left), Self::Translation(right)) => {
                for (code, target) in left.iter() {
                    match right.get(code) {
                        Some(other) if target.equals(other, fuel)? => {}
                        _ => return Ok(false),
                    }
                }
                left.len() == right.len()
            }
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
            _ if self.are_rows(right) => {
                self.length() == right.length() && self.first_difference(right, fuel)?.is_none()
            }
            _ => false,
        })
    }

    /// Returns the first index at which two lists differ.
    fn first_difference(&self, right: &Self, fuel: &mut EvaluationFuel) -> Evaluated<Option<usize>> {
        for at in 0..self.length().min(right.length()) {
            let (Some(left), Some(right)) = (self.item(at), right.item(at)) else { break };
            if !left.equals(&right, fuel)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Returns the order of two values; `None` if one of them is NaN.
    pub(super) fn order(
        &self,
        right: &Self,
        symbol: &str,
        fuel: &mut EvaluationFuel,
    ) -> Evaluated<Option<Ordering>> {
        fuel.pay(1)?;
        Ok(match (self, right) {
            (Self::Text(left), Self::Text(right)) => {
                fuel.pay_bytes(left.len().min(right.len()))?;
                Some(left.cmp(right))
            }
            (Self::Bytes(left), Self::Bytes(right)) => {
                fuel.pay_bytes(left.len().min(right.len()))?;
                Some(left.cmp(right))
            }
            _ if self.are_rows(right) => {
                let differs = self.first_difference(right, fuel)?;
                match differs.map(|at| (self.item(at), right.item(at))) {
                    Some((Some(left), Some(right))) => left.order(&right, symbol, fuel)?,
                    _ => Some(self.length().cmp(&right.length())),
                }
            }
            _ => {
                let (Some(left), Some(right)) = (self.numeric(), right.numeric()) else {
                    let (left, right) = (self.type_name(), right.type_name());
                    return Err(format!(
                        "TypeError: '{symbol}' not supported between instances of '{left}' and '{right}'"
                    ));
                };
                fuel.pay_numbers(&left, &right)?;
                left.order(&right)
            }
        })
    }

    fn contains(&self, part: &Self, fuel: &mut EvaluationFuel) -> Evaluated<bool> {
        fuel.pay(1)?;
        match (self, part) {
            (Self::Text(whole), Self::Text(part)) => {
                fuel.pay_bytes(whole.len() + part.len())?;
                Ok(whole.contains(&**part))
            }
            (Self::Bytes(whole), Self::Bytes(part)) => {
                fuel.pay_bytes(whole.len() + part.len())?;
                Ok(memchr::memmem::find(whole, part).is_some())
            }
            (Self::Bytes(whole), Self::Int(_) | Self::Bool(_)) => {
                fuel.pay_bytes(whole.len())?;
                Ok(whole.contains(&byte_of(part)?))
            }
            (Self::Bytes(_), part) => {
                let name = part.type_name();
                Err(format!("TypeError: a bytes-like object is required, not '{name}'"))
            }
            (Self::Translation(table), Self::Int(code)) => {
                Ok(code.to_u32().is_some_and(|code| table.contains_key(&code)))
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
            (Self::Dict(_) | Self::OutputDict(_) | Self::Translation(_), _) => Ok(false),
            (Self::List(_) | Self::Tuple(_) | Self::Items(_), _) => {
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

    /// Returns the result of an arithmetic operation.
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
        if let Some(pair) = self.complex_pair(&right) {
            let (left_number, right_number) = pair?;
            return match left_number.compute(how, right_number) {
                Some(found) => found.map(Self::Complex),
                None => Err(unsupported(how, &self, &right)),
            };
        }
        match (how, &self, &right) {
            (Compute::Add, Self::Text(left), Self::Text(right)) => {
                let bytes = left.len() + right.len();
                check_size(bytes, MAX_TEXT_BYTES, "text")?;
                fuel.pay_copy(bytes)?;
                Ok(Self::Text(Cow::Owned(format!("{left}{right}"))))
            }
            (Compute::Add, Self::Bytes(left), Self::Bytes(right)) => {
                let bytes = left.len() + right.len();
                check_size(bytes, MAX_TEXT_BYTES, "text")?;
                fuel.pay_copy(bytes)?;
                Ok(Self::Bytes(Cow::Owned([&left[..], &right[..]].concat())))
            }
            (Compute::Add, ..) if self.are_rows(&right) => {
                let count = self.length() + right.length();
                check_size(count, MAX_LIST_ITEMS, "list")?;
                fuel.pay_copy(count * size_of::<Self>())?;
                let is_tuple = matches!(self, Self::Tuple(_));
                let all = self.into_items().into_iter().chain(right.into_items());
                Ok(if is_tuple { Self::tuple(all) } else { Self::list(all) })
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
        matches!(self, Self::Text(_) | Self::Bytes(_) | Self::List(_) | Self::Tuple(_) | Self::Items(_))
    }

    fn as_count(&self) -> Option<BigInt> {
        match self.numeric()? {
            Numeric::Int(int) => Some(int),
            Numeric::Float(_) => None,
        }
    }

    fn into_items(self) -> Vec<Self> {
        match self {
            Self::List(items) | Self::Tuple(items) => Rc::unwrap_or_clone(items),
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
        if let Self::Bytes(bytes) = &self {
            let size = bytes.len().saturating_mul(count);
            check_size(size, MAX_TEXT_BYTES, "text")?;
            fuel.pay_copy(size)?;
            return Ok(Self::Bytes(Cow::Owned(bytes.repeat(count))));
        }
        check_size(self.length().saturating_mul(count), MAX_LIST_ITEMS, "list")?;
        if count == 0 || self.length() == 0 {
            return Ok(self.alike(std::iter::empty()));
        }
        let empty = self.alike(std::iter::empty());
        fuel.pay(self.length() as u64)?;
        let once = self.into_items();
        let bytes: usize = once.iter().map(|item| size_of::<Self>() + item.heap_bytes()).sum();
        fuel.pay_copy(bytes.saturating_mul(count))?;
        Ok(empty.alike((0..count).flat_map(|_| once.iter().cloned())))
    }
}

pub(super) fn check_size(size: usize, max: usize, what: &str) -> Evaluated<()> {
    if size > max {
        return Err(format!("MemoryError: the {what} is larger than {max}"));
    }
    Ok(())
}

fn unsupported(how: Compute, left: &Operand<'_>, right: &Operand<'_>) -> String {
    let (name, other) = (left.type_name(), right.type_name());
    if let (Compute::Add, Operand::Bytes(_)) = (how, left) {
        return format!("TypeError: can't concat {other} to bytes");
    }
    if let (Compute::Add, Operand::Text(_) | Operand::List(_) | Operand::Tuple(_) | Operand::Items(_)) =
        (how, left)
    {
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
