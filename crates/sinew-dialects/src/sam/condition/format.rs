//! Python format specifications (`>8.2f`) and formatted numbers.

use std::borrow::Cow;

use num_bigint::{BigInt, Sign};
use num_traits::{Signed as _, ToPrimitive as _};
use serde_json::Value;
use sinew_script::python_str;

use super::complex::ComplexNumber;
use super::number::float_repr;
use super::operand::{Evaluated, EvaluationFuel, MAX_TEXT_BYTES, Operand, check_size};

/// Maximum number of digits after the point: more than a float has.
const MAX_PRECISION_DIGITS: usize = 1_100;

/// A format specification: `[[fill]align][sign][z][#][0][width][grouping][.precision][type]`.
#[derive(Clone, Debug)]
pub(super) struct FormatSpec {
    pub(super) fill: char,
    pub(super) align: Option<char>,
    pub(super) sign: Option<char>,
    pub(super) no_negative_zero: bool,
    pub(super) alternate: bool,
    /// Whether zeros pad numbers to the width.
    pub(super) zeros: bool,
    pub(super) width: usize,
    pub(super) grouping: Option<char>,
    pub(super) precision: Option<usize>,
    pub(super) kind: Option<char>,
}

impl Default for FormatSpec {
    fn default() -> Self {
        Self {
            fill: ' ',
            align: None,
            sign: None,
            no_negative_zero: false,
            alternate: false,
            zeros: false,
            width: 0,
            grouping: None,
            precision: None,
            kind: None,
        }
    }
}

/// A number before padding: sign and prefix, and digits.
pub(super) struct NumberText {
    pub(super) prefix: String,
    pub(super) digits: String,
}

/// Formats the value by the specification, as Python's `format()`.
pub(super) fn format_value(value: &Operand<'_>, spec: &str, fuel: &mut EvaluationFuel) -> Evaluated<String> {
    if spec.is_empty() {
        return value.converted('s', fuel);
    }
    let spec = FormatSpec::parse(spec)?;
    fuel.pay_copy(spec.width + spec.precision.unwrap_or_default())?;
    match value {
        Operand::Text(text) => spec.text(text, fuel),
        Operand::Bool(truth) => spec.int(&BigInt::from(u8::from(*truth))),
        Operand::Int(int) => spec.int(int),
        Operand::Float(float) => spec.float(*float, "float"),
        Operand::Complex(number) => spec.complex(*number),
        other => {
            let name = other.type_name();
            Err(format!("TypeError: unsupported format string passed to {name}.__format__"))
        }
    }
}

impl FormatSpec {
    fn parse(text: &str) -> Evaluated<Self> {
        let is_align = |c: Option<&char>| c.filter(|c| matches!(c, '<' | '>' | '=' | '^')).copied();
        let chars: Vec<char> = text.chars().collect();
        let mut spec = Self::default();
        let mut at = 0;
        let mut filled = false;
        if let Some(align) = is_align(chars.get(1)) {
            (spec.fill, spec.align, at, filled) = (chars[0], Some(align), 2, true);
        } else if let Some(align) = is_align(chars.first()) {
            (spec.align, at) = (Some(align), 1);
        }
        let take = |wanted: &[char], at: &mut usize| {
            let found = chars.get(*at).filter(|c| wanted.contains(c)).copied();
            *at += usize::from(found.is_some());
            found
        };
        spec.sign = take(&['+', '-', ' '], &mut at);
        spec.no_negative_zero = take(&['z'], &mut at).is_some();
        spec.alternate = take(&['#'], &mut at).is_some();
        if !filled && take(&['0'], &mut at).is_some() {
            (spec.fill, spec.zeros) = ('0', true);
        }
        let number = |at: &mut usize| {
            let digits: String = chars[*at..].iter().take_while(|c| c.is_ascii_digit()).collect();
            *at += digits.len();
            let most = usize::MAX / 4;
            (!digits.is_empty()).then(|| digits.parse::<usize>().unwrap_or(most).min(most))
        };
        spec.width = number(&mut at).unwrap_or_default();
        spec.grouping = take(&[',', '_'], &mut at);
        if take(&['.'], &mut at).is_some() {
            let precision = number(&mut at);
            spec.precision = Some(precision.ok_or("ValueError: Format specifier missing precision")?);
        }
        spec.kind = chars.get(at).copied();
        if chars.len() > at + 1 {
            return Err("ValueError: Invalid format specifier".to_owned());
        }
        spec.check_sizes()?;
        Ok(spec)
    }

    pub(super) fn check_sizes(&self) -> Evaluated<()> {
        check_size(self.width, MAX_TEXT_BYTES / 4, "text")?;
        check_size(self.precision.unwrap_or_default(), MAX_TEXT_BYTES / 4, "text")
    }

    fn text(&self, text: &str, fuel: &mut EvaluationFuel) -> Evaluated<String> {
        if let Some(kind) = self.kind.filter(|kind| *kind != 's') {
            return Err(unknown_code(kind, "str"));
        }
        if self.sign.is_some() || self.no_negative_zero {
            return Err("ValueError: Sign not allowed in string format specifier".to_owned());
        }
        if self.alternate {
            return Err("ValueError: Alternate form (#) not allowed in string format specifier".to_owned());
        }
        if let Some(grouping) = self.grouping {
            return Err(format!("ValueError: Cannot specify '{grouping}' with 's'."));
        }
        if self.align == Some('=') {
            return Err("ValueError: '=' alignment not allowed in string format specifier".to_owned());
        }
        fuel.pay_copy(text.len())?;
        let cut: String = text.chars().take(self.precision.unwrap_or(usize::MAX)).collect();
        Ok(self.padded("", &cut, '<'))
    }

    fn int(&self, int: &BigInt) -> Evaluated<String> {
        let kind = self.kind.unwrap_or('d');
        if matches!(kind, 'e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%') {
            let float = int.to_f64().filter(|float| float.is_finite());
            return self.float(float.ok_or("OverflowError: int too large to convert to float")?, "int");
        }
        if self.precision.is_some() {
            return Err("ValueError: Precision not allowed in integer format specifier".to_owned());
        }
        if self.no_negative_zero {
            return Err(
                "ValueError: Negative zero coercion (z) not allowed in format specifier with integer \
                        presentation"
                    .to_owned(),
            );
        }
        if let Some(grouping) = self.grouping
            && (matches!(kind, 'n' | 'c') || (grouping == ',' && kind != 'd'))
        {
            return Err(format!("ValueError: Cannot specify '{grouping}' with '{kind}'."));
        }
        if kind == 'c' {
            if self.sign.is_some() || self.alternate {
                return Err("ValueError: Sign not allowed with integer format specifier 'c'".to_owned());
            }
            return Ok(self.padded("", &char_of(int)?.to_string(), '>'));
        }
        let number =
            int_text(int, kind, self.alternate, self.sign).ok_or_else(|| unknown_code(kind, "int"))?;
        let size = if matches!(kind, 'd' | 'n') { 3 } else { 4 };
        Ok(self.number(number, size))
    }

    fn float(&self, float: f64, type_name: &str) -> Evaluated<String> {
        let kind = self.kind.unwrap_or('r');
        if !matches!(kind, 'r' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'n' | '%') || self.kind == Some('r') {
            return Err(unknown_code(kind, type_name));
        }
        if let Some(grouping) = self.grouping.filter(|_| kind == 'n') {
            return Err(format!("ValueError: Cannot specify '{grouping}' with 'n'."));
        }
        let mut number = float_text(float, kind, self.precision, self.alternate, self.sign)?;
        if self.no_negative_zero && !number.digits.contains(|c: char| ('1'..='9').contains(&c)) {
            number.prefix = number.prefix.replace('-', "");
        }
        Ok(self.number(number, 3))
    }

    fn complex(&self, number: ComplexNumber) -> Evaluated<String> {
        let kind = self.kind.unwrap_or('r');
        if !matches!(kind, 'r' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'n') || self.kind == Some('r') {
            return Err(unknown_code(kind, "complex"));
        }
        if self.zeros {
            return Err("ValueError: Zero padding is not allowed in complex format specifier".to_owned());
        }
        if self.align == Some('=') {
            let problem = "ValueError: '=' alignment flag is not allowed in complex format specifier";
            return Err(problem.to_owned());
        }
        let part = |float: f64, sign: Option<char>| {
            let part = float_text(float, kind, self.precision, self.alternate, sign)?;
            // Without a presentation, an integer has no point.
            let digits = match part.digits.strip_suffix(".0") {
                Some(whole) if kind == 'r' && !self.alternate => whole.to_owned(),
                _ => part.digits,
            };
            let padded = Self { width: 0, align: None, ..self.clone() };
            Ok::<_, String>(padded.number(NumberText { prefix: part.prefix, digits }, 3))
        };
        let is_imaginary = kind == 'r' && number.real == 0.0 && number.real.is_sign_positive();
        let text = if is_imaginary {
            format!("{}j", part(number.imaginary, self.sign)?)
        } else {
            let both = format!("{}{}j", part(number.real, self.sign)?, part(number.imaginary, Some('+'))?);
            if kind == 'r' { format!("({both})") } else { both }
        };
        Ok(self.padded("", &text, '>'))
    }

    /// Groups the digits before the point, and pads.
    fn number(&self, mut number: NumberText, group_digits: usize) -> String {
        if let Some(separator) = self.grouping {
            let end = number
                .digits
                .find(|c: char| !c.is_ascii_hexdigit() || matches!(c, 'e' | 'E') && group_digits == 3);
            let (whole, rest) = number.digits.split_at(end.unwrap_or(number.digits.len()));
            let mut digits = whole.len();
            if self.fill == '0' && self.align.is_none_or(|align| align == '=') {
                // Padding zeros are also grouped.
                let room = self.width.saturating_sub(number.prefix.chars().count() + rest.chars().count());
                while digits + digits.saturating_sub(1) / group_digits < room {
                    digits += 1;
                }
            }
            let zeros = "0".repeat(digits - whole.len());
            let mut grouped = String::new();
            for (at, digit) in zeros.chars().chain(whole.chars()).enumerate() {
                if at > 0 && (digits - at).is_multiple_of(group_digits) {
                    grouped.push(separator);
                }
                grouped.push(digit);
            }
            number.digits = grouped + rest;
        }
        self.padded(&number.prefix, &number.digits, if self.zeros { '=' } else { '>' })
    }

    /// Pads to the width.
    pub(super) fn padded(&self, prefix: &str, body: &str, default_align: char) -> String {
        let missing = self.width.saturating_sub(prefix.chars().count() + body.chars().count());
        let fill = |count: usize| self.fill.to_string().repeat(count);
        match self.align.unwrap_or(default_align) {
            '<' => format!("{prefix}{body}{}", fill(missing)),
            '=' => format!("{prefix}{}{body}", fill(missing)),
            '^' => format!("{}{prefix}{body}{}", fill(missing / 2), fill(missing - missing / 2)),
            _ => format!("{}{prefix}{body}", fill(missing)),
        }
    }
}

fn unknown_code(kind: char, type_name: &str) -> String {
    format!("ValueError: Unknown format code '{kind}' for object of type '{type_name}'")
}

/// Returns the character with this code point.
pub(super) fn char_of(int: &BigInt) -> Evaluated<char> {
    let found = int.to_u32().and_then(char::from_u32);
    found.ok_or_else(|| "OverflowError: %c arg not in range(0x110000)".to_owned())
}

fn sign_text(negative: bool, sign: Option<char>) -> &'static str {
    match (negative, sign) {
        (true, _) => "-",
        (false, Some('+')) => "+",
        (false, Some(' ')) => " ",
        _ => "",
    }
}

/// Formats an integer in a presentation of integers; `None` if it does not exist.
pub(super) fn int_text(int: &BigInt, kind: char, alternate: bool, sign: Option<char>) -> Option<NumberText> {
    let (radix, base) = match kind {
        'd' | 'n' => (10, ""),
        'b' => (2, "0b"),
        'o' => (8, "0o"),
        'x' => (16, "0x"),
        'X' => (16, "0X"),
        _ => return None,
    };
    let mut digits = int.abs().to_str_radix(radix);
    if kind == 'X' {
        digits.make_ascii_uppercase();
    }
    let base = if alternate { base } else { "" };
    let prefix = format!("{}{base}", sign_text(int.sign() == Sign::Minus, sign));
    Some(NumberText { prefix, digits })
}

/// Formats a float in a presentation of floats; `r` is that of `str()`.
pub(super) fn float_text(
    float: f64,
    kind: char,
    precision: Option<usize>,
    alternate: bool,
    sign: Option<char>,
) -> Evaluated<NumberText> {
    check_size(precision.unwrap_or_default(), MAX_PRECISION_DIGITS, "text")?;
    let prefix = sign_text(float.is_sign_negative() && !float.is_nan(), sign).to_owned();
    let size = float.abs();
    if !size.is_finite() || (kind == '%' && !(size * 100.0).is_finite()) {
        let mut digits = float_repr(if size.is_nan() { size } else { f64::INFINITY });
        if kind.is_ascii_uppercase() {
            digits.make_ascii_uppercase();
        }
        digits.push_str(if kind == '%' { "%" } else { "" });
        return Ok(NumberText { prefix, digits });
    }
    let precision_or_six = precision.unwrap_or(6);
    let mut digits = match kind.to_ascii_lowercase() {
        'e' => with_point(&format!("{size:.precision_or_six$e}"), alternate),
        'f' => with_point(&format!("{size:.precision_or_six$}"), alternate),
        '%' => {
            let percent = size * 100.0;
            format!("{}%", with_point(&format!("{percent:.precision_or_six$}"), alternate))
        }
        'r' => match precision {
            None => python_str(&Value::from(size)),
            Some(precision) => general(size, precision.max(1), true, alternate),
        },
        _ => general(size, precision_or_six.max(1), false, alternate),
    };
    if kind.is_ascii_uppercase() {
        digits.make_ascii_uppercase();
    }
    Ok(NumberText { prefix, digits })
}

/// Adds a required missing point, and a sign and two digits of the exponent.
fn with_point(digits: &str, alternate: bool) -> String {
    let (mantissa, exponent) = match digits.split_once('e') {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()),
        None => (digits, None),
    };
    let point = if alternate && !mantissa.contains('.') { "." } else { "" };
    match exponent {
        Some(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}{point}e{sign}{:02}", exponent.abs())
        }
        None => format!("{mantissa}{point}"),
    }
}

/// Returns the shorter of both forms, with `digits` digits. `as_text` keeps a digit after the
/// point, as `str()` does.
fn general(size: f64, digits: usize, as_text: bool, alternate: bool) -> String {
    let scientific = format!("{size:.*e}", digits - 1);
    let exponent = scientific.split_once('e').and_then(|(_, exponent)| exponent.parse::<i32>().ok());
    let exponent = exponent.unwrap_or_default();
    let most = i32::try_from(digits).unwrap_or(i32::MAX) - i32::from(as_text);
    let trimmed = |text: &str| {
        if text.contains('.') && !alternate {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    if exponent < -4 || exponent >= most {
        let mantissa = scientific.split_once('e').map_or("", |(mantissa, _)| mantissa);
        return with_point(&format!("{}e{exponent}", trimmed(mantissa)), alternate);
    }
    let after_point = usize::try_from(i64::try_from(digits).unwrap_or(i64::MAX) - 1 - i64::from(exponent));
    let fixed = trimmed(&format!("{size:.*}", after_point.unwrap_or_default()));
    if as_text && !fixed.contains('.') { format!("{fixed}.0") } else { with_point(&fixed, alternate) }
}

impl Operand<'_> {
    /// Formats the value as `str()` (`s`), `repr()` (`r`) or `ascii()` (`a`).
    pub(super) fn converted(&self, conversion: char, fuel: &mut EvaluationFuel) -> Evaluated<String> {
        if conversion == 's' {
            return self.to_text(fuel);
        }
        let mut text = String::new();
        self.write_repr(&mut text, fuel)?;
        if conversion != 'a' || text.is_ascii() {
            return Ok(text);
        }
        check_size(text.len().saturating_mul(3), MAX_TEXT_BYTES, "text")?;
        fuel.pay_copy(text.len() * 3)?;
        let escaped = |c: char| -> Cow<'static, str> {
            Cow::Owned(match u32::from(c) {
                0..=0x7f => c.to_string(),
                code @ 0x80..=0xff => format!("\\x{code:02x}"),
                code @ 0x100..=0xffff => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            })
        };
        Ok(text.chars().map(escaped).collect())
    }
}
