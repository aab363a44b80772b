//! Formatting of strings by `%`, as in Python.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

use num_bigint::BigInt;
use num_traits::{FromPrimitive as _, ToPrimitive as _};

use super::bytes::{byte_of, bytes_repr, unveiled, veiled};
use super::format::{FormatSpec, char_of, float_text, int_text};
use super::operand::{Evaluated, EvaluationFuel, MAX_TEXT_BYTES, Operand, check_size};

/// The right operand of `text % values`.
pub(super) enum PercentValues<'a> {
    /// One value; fields may name the members of a dict.
    Single(Operand<'a>),
    Tuple(Vec<Operand<'a>>),
}

/// Formats the string with the values.
pub(super) fn format<'a>(
    template: &Operand<'a>,
    values: &PercentValues<'a>,
    fuel: &mut EvaluationFuel,
) -> Evaluated<Operand<'a>> {
    fuel.pay_copy(template.text_bytes().saturating_mul(3))?;
    let of_bytes = matches!(template, Operand::Bytes(_));
    let template = match template {
        Operand::Bytes(bytes) => Cow::Owned(veiled(bytes, false)),
        other => Cow::Borrowed(other.as_str().unwrap_or_default()),
    };
    let mut format = PercentFormat { values, next: 0, named: false, of_bytes, fuel };
    let mut out = String::new();
    let mut chars = template.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '%' {
            let text = format.field(&mut chars)?;
            check_size(out.len() + text.len(), MAX_TEXT_BYTES, "text")?;
            format.fuel.pay_copy(text.len())?;
            out.push_str(&text);
        } else {
            out.push(c);
        }
    }
    format.check_all_used()?;
    Ok(if of_bytes { Operand::Bytes(unveiled(&out).into()) } else { Operand::Text(out.into()) })
}

struct PercentFormat<'v, 'a> {
    values: &'v PercentValues<'a>,
    next: usize,
    /// Whether a field has named a member.
    named: bool,
    /// Whether the string represents bytes.
    of_bytes: bool,
    fuel: &'v mut EvaluationFuel,
}

impl<'a> PercentFormat<'_, 'a> {
    fn next_value(&mut self) -> Evaluated<Operand<'a>> {
        let found = match self.values {
            PercentValues::Single(value) if self.next == 0 => Some(value),
            PercentValues::Single(_) => None,
            PercentValues::Tuple(values) => values.get(self.next),
        };
        self.next += 1;
        found.cloned().ok_or_else(|| "TypeError: not enough arguments for format string".to_owned())
    }

    fn check_all_used(&self) -> Evaluated<()> {
        let used = match self.values {
            PercentValues::Single(value) => {
                self.next > 0
                    || self.named
                    || matches!(
                        value,
                        Operand::Dict(_) | Operand::OutputDict(_) | Operand::List(_) | Operand::Items(_)
                    )
            }
            PercentValues::Tuple(values) => self.next >= values.len(),
        };
        if used {
            return Ok(());
        }
        Err("TypeError: not all arguments converted during string formatting".to_owned())
    }

    /// Reads a field after its `%`, and returns its formatted value.
    fn field(&mut self, chars: &mut Peekable<Chars<'_>>) -> Evaluated<String> {
        let member = match chars.next_if_eq(&'(') {
            Some(_) => Some(self.member(chars)?),
            None => None,
        };
        let mut spec = FormatSpec::default();
        while let Some(flag) = chars.next_if(|c| matches!(c, '-' | '+' | ' ' | '#' | '0')) {
            match flag {
                '-' => spec.align = Some('<'),
                '+' => spec.sign = Some('+'),
                ' ' if spec.sign.is_none() => spec.sign = Some(' '),
                '#' => spec.alternate = true,
                '0' => spec.zeros = true,
                _ => {}
            }
        }
        let width = self.count(chars)?.unwrap_or_default();
        if width < 0 {
            spec.align = Some('<');
        }
        spec.width = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
        if chars.next_if_eq(&'.').is_some() {
            let precision = self.count(chars)?.unwrap_or_default();
            spec.precision = Some(usize::try_from(precision).unwrap_or_default());
        }
        while chars.next_if(|c| matches!(c, 'h' | 'l' | 'L')).is_some() {}
        let kind = chars.next().ok_or("ValueError: incomplete format")?;
        if kind == '%' {
            return Ok("%".to_owned());
        }
        spec.check_sizes()?;
        self.fuel.pay_copy(spec.width + spec.precision.unwrap_or_default())?;
        let kind = match kind {
            'b' if self.of_bytes => 's',
            'r' if self.of_bytes => 'a',
            kind => kind,
        };
        if !kind.is_ascii_alphabetic() || !"diouxXeEfFgGcrsa".contains(kind) {
            let code = u32::from(kind);
            return Err(format!("ValueError: unsupported format character '{kind}' (0x{code:x})"));
        }
        let value = match member {
            Some(value) => value,
            None => self.next_value()?,
        };
        let value = if self.of_bytes { bytes_argument(value, kind)? } else { value };
        field_text(&value, kind, spec, self.fuel)
    }

    /// Returns the member that a field names.
    fn member(&mut self, chars: &mut Peekable<Chars<'_>>) -> Evaluated<Operand<'a>> {
        let (mut name, mut open) = (String::new(), 1);
        loop {
            let c = chars.next().ok_or("ValueError: incomplete format key")?;
            open += match c {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            if open == 0 {
                break;
            }
            name.push(c);
        }
        self.named = true;
        let PercentValues::Single(dict @ (Operand::Dict(_) | Operand::OutputDict(_))) = self.values else {
            return Err("TypeError: format requires a mapping".to_owned());
        };
        if self.of_bytes {
            return Err(format!("KeyError: {}", bytes_repr(&unveiled(&name))));
        }
        super::methods::subscript(dict, &Operand::Text(name.into()), self.fuel)
    }

    /// Reads a width or a precision: digits, or `*` for the next value.
    fn count(&mut self, chars: &mut Peekable<Chars<'_>>) -> Evaluated<Option<i64>> {
        if chars.next_if_eq(&'*').is_some() {
            return match self.next_value()? {
                Operand::Int(int) => {
                    let count = int.to_i64().ok_or("OverflowError: width too big");
                    count.map(Some).map_err(str::to_owned)
                }
                Operand::Bool(truth) => Ok(Some(truth.into())),
                _ => Err("TypeError: * wants int".to_owned()),
            };
        }
        let mut count = None;
        while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
            chars.next();
            count = Some(count.unwrap_or(0_i64).saturating_mul(10).saturating_add(digit.into()));
        }
        Ok(count)
    }
}

/// Returns a value for a field of bytes: `%s` and `%c` accept bytes, but no strings.
fn bytes_argument(value: Operand<'_>, kind: char) -> Evaluated<Operand<'_>> {
    match (kind, value) {
        ('s' | 'c', Operand::Bytes(bytes)) => Ok(Operand::Text(veiled(&bytes, false).into())),
        ('s', other) => {
            let name = other.type_name();
            Err(format!("TypeError: %b requires a bytes-like object, not '{name}'"))
        }
        ('c', Operand::Text(_)) => {
            Err("TypeError: %c requires an integer in range(256) or a single byte".to_owned())
        }
        ('c', number @ (Operand::Int(_) | Operand::Bool(_))) => {
            Ok(Operand::Text(veiled(&[byte_of(&number)?], false).into()))
        }
        (_, other) => Ok(other),
    }
}

fn field_text(
    value: &Operand<'_>,
    kind: char,
    mut spec: FormatSpec,
    fuel: &mut EvaluationFuel,
) -> Evaluated<String> {
    let number = match kind {
        's' | 'r' | 'a' => {
            let text = value.converted(kind, fuel)?;
            let cut: String = text.chars().take(spec.precision.unwrap_or(usize::MAX)).collect();
            return Ok(spec.padded("", &cut, '>'));
        }
        'c' => {
            let c = match value {
                Operand::Text(text) if text.chars().count() == 1 => text.chars().next(),
                Operand::Text(_) => None,
                value => integer(value).map(|int| char_of(&int)).transpose()?,
            };
            let c = c.ok_or("TypeError: %c requires int or char")?;
            return Ok(spec.padded("", &c.to_string(), '>'));
        }
        'd' | 'i' | 'u' => {
            let int = match value {
                Operand::Float(float) => BigInt::from_f64(float.trunc()),
                value => integer(value),
            };
            let name = value.type_name();
            let int = int
                .ok_or_else(|| format!("TypeError: %{kind} format: a real number is required, not {name}"))?;
            int_text(&int, 'd', false, spec.sign)
        }
        'x' | 'X' | 'o' => {
            let name = value.type_name();
            let int = integer(value)
                .ok_or_else(|| format!("TypeError: %{kind} format: an integer is required, not {name}"))?;
            int_text(&int, kind, spec.alternate, spec.sign)
        }
        _ => {
            let float = match value {
                Operand::Float(float) => Some(*float),
                value => match integer(value).map(|int| int.to_f64().filter(|float| float.is_finite())) {
                    Some(None) => return Err("OverflowError: int too large to convert to float".to_owned()),
                    found => found.flatten(),
                },
            };
            let name = value.type_name();
            let float = float.ok_or_else(|| format!("TypeError: must be real number, not {name}"))?;
            let text = float_text(float, kind, spec.precision.take(), spec.alternate, spec.sign)?;
            Some(text)
        }
    };
    let Some(mut number) = number else { return Ok(String::new()) };
    let missing = spec.precision.unwrap_or_default().saturating_sub(number.digits.len());
    number.digits.insert_str(0, &"0".repeat(missing));
    if spec.zeros && spec.align.is_none() {
        spec.fill = '0';
        spec.align = Some('=');
    }
    Ok(spec.padded(&number.prefix, &number.digits, '>'))
}

fn integer(value: &Operand<'_>) -> Option<BigInt> {
    match value {
        Operand::Int(int) => Some(int.clone()),
        Operand::Bool(truth) => Some(u8::from(*truth).into()),
        _ => None,
    }
}
