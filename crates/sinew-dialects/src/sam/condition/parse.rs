//! Parser of conditions, with Python's precedence.

use num_bigint::BigInt;
use serde_json::Value;
use sinew_source::did_you_mean;

use super::super::path::Path;
use super::TextPiece;
use super::callables::{CallParameter, ConditionFunction, ConditionMethod, advice_on_function};
use super::lex::{FormatToken, Token, syntax, tokens};

/// An expression.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    Const(Value),
    /// An integer outside the range of JSON.
    Int(BigInt),
    /// A float that JSON cannot represent.
    Float(f64),
    Imaginary(f64),
    Bytes(Vec<u8>),
    Text(Vec<TextPiece>),
    /// A string with fields.
    Format(Vec<FormatPart>),
    Var(usize),
    List(Vec<Expr>),
    /// A tuple.
    Tuple(Vec<Expr>),
    Not(Box<Expr>),
    Sign(Box<Expr>, bool),
    All(Vec<Expr>),
    Any(Vec<Expr>),
    Compare(Box<Expr>, Vec<(Compare, Expr)>),
    Compute(Compute, Box<Expr>, Box<Expr>),
    Invert(Box<Expr>),
    /// Condition, value if it holds, value if it does not.
    IfElse(Box<Expr>, Box<Expr>, Box<Expr>),
    Call(ConditionFunction, Vec<Expr>),
    Method(Box<Expr>, ConditionMethod, Vec<Expr>),
    /// A member by name.
    Attribute(Box<Expr>, String),
    Subscript(Box<Expr>, Box<Expr>),
    /// Start, end, step.
    Slice(Box<Expr>, Box<[Option<Expr>; 3]>),
}

/// A part of a string with fields.
#[derive(Clone, Debug)]
pub(super) enum FormatPart {
    Text(Vec<TextPiece>),
    /// A value, an optional conversion `r`, `s` or `a`, and its specification.
    Field(Box<Expr>, Option<char>, Vec<FormatPart>),
}

/// A comparison.
#[derive(Clone, Copy, Debug)]
pub(super) enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
    Is,
    IsNot,
}

/// An arithmetic operator.
#[derive(Clone, Copy, Debug)]
pub(super) enum Compute {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
}

impl Compute {
    /// Returns whether it is bitwise, which floats do not support.
    pub(super) const fn is_bitwise(self) -> bool {
        matches!(self, Self::BitAnd | Self::BitOr | Self::BitXor | Self::ShiftLeft | Self::ShiftRight)
    }
}

/// A parsed condition.
pub(super) struct Parsed {
    pub(super) expr: Expr,
    pub(super) vars: Vec<Path>,
}

/// An error of a condition: the reason, the offset of its token, and advice.
pub(super) type ParseError = (String, usize, Option<String>);

/// Parses a whole condition.
pub(super) fn parse(source: &str) -> Result<Parsed, ParseError> {
    let mut offsets = Vec::new();
    let (tokens, vars) = tokens(source, &mut offsets)
        .map_err(|reason| (reason, offsets.last().copied().unwrap_or(0), None))?;
    let mut parser =
        ConditionParser { tokens, at: 0, depth: 0, made: 0, unknown: None, blamed: None, advice: None };
    let parsed = parser.expression().and_then(|expr| parser.finish(expr));
    let at = parser.blamed.unwrap_or(parser.at);
    let at = offsets.get(at).or(offsets.last()).copied().unwrap_or(0);
    parsed.map(|expr| Parsed { expr, vars }).map_err(|reason| (reason, at, parser.advice))
}

/// Returns advice on a name that is not defined in conditions.
fn advice_on_name(name: &str) -> String {
    match did_you_mean(name, WORDS.into_iter()) {
        Some(near) => format!("did you mean '{near}'?"),
        None => format!("put a text in quotes: '{name}'; a path in double braces"),
    }
}

/// Names and keywords of conditions.
const WORDS: [&str; 9] = ["true", "false", "null", "none", "and", "or", "not", "in", "is"];

struct ConditionParser {
    tokens: Vec<Token>,
    at: usize,
    /// Levels of nesting: parsing and evaluation recurse.
    depth: usize,
    /// Number of operators so far: chains create deep trees without nesting.
    made: usize,
    /// The first unknown name and its token; only reported if there is no other error.
    unknown: Option<(String, usize)>,
    /// The token that an error concerns, unless it is the next one.
    blamed: Option<usize>,
    /// Advice on the error.
    advice: Option<String>,
}

const DEEPEST: usize = 50;
const LARGEST: usize = 1000;

impl ConditionParser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    /// Checks that nothing follows the expression, and that it has no unknown name.
    fn finish(&mut self, expr: Expr) -> Result<Expr, String> {
        if let Some(token) = self.peek() {
            return Err(unexpected(token));
        }
        let Some((name, at)) = self.unknown.take() else { return Ok(expr) };
        self.blame(at);
        self.advice = Some(advice_on_name(&name));
        Err(format!("Unknown identifier: {name}"))
    }

    /// Sets the token of an error, unless it is known.
    fn blame(&mut self, at: usize) {
        self.blamed.get_or_insert(at);
    }

    fn symbol(&mut self, symbols: &[&'static str]) -> Option<&'static str> {
        match self.peek() {
            Some(Token::Symbol(symbol)) if symbols.contains(symbol) => {
                let symbol = *symbol;
                self.at += 1;
                Some(symbol)
            }
            _ => None,
        }
    }

    fn name(&mut self, name: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Name(found)) if found == name);
        self.at += usize::from(found);
        found
    }

    fn count(&mut self) -> Result<(), String> {
        self.made += 1;
        if self.made > LARGEST { Err(syntax("too many operators")) } else { Ok(()) }
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(syntax("nested too deeply"));
        }
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn expression(&mut self) -> Result<Expr, String> {
        let then = self.nested(Self::any)?;
        if matches!(self.peek(), Some(Token::Symbol(":="))) {
            return Err(unsupported("NamedExpr"));
        }
        if !self.name("if") {
            return Ok(then);
        }
        self.count()?;
        let test = self.nested(Self::any)?;
        // A choice between two values that does not depend on data is a mistake.
        if is_constant(&test) {
            return Err(format!("{} with a constant condition", unsupported("IfExp")));
        }
        if !self.name("else") {
            return Err(syntax("'else' is missing after 'if'"));
        }
        let otherwise = self.nested(Self::expression)?;
        Ok(Expr::IfElse(Box::new(test), Box::new(then), Box::new(otherwise)))
    }

    fn any(&mut self) -> Result<Expr, String> {
        let first = self.all()?;
        let mut list = vec![first];
        while self.name("or") {
            self.count()?;
            list.push(self.all()?);
        }
        Ok(single(list, Expr::Any))
    }

    fn all(&mut self) -> Result<Expr, String> {
        let first = self.not()?;
        let mut list = vec![first];
        while self.name("and") {
            self.count()?;
            list.push(self.not()?);
        }
        Ok(single(list, Expr::All))
    }

    fn not(&mut self) -> Result<Expr, String> {
        if self.name("not") {
            return self.nested(Self::not).map(|expr| Expr::Not(Box::new(expr)));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Expr, String> {
        let first = self.bit_or()?;
        let mut rest = Vec::new();
        while let Some(compare) = self.compare()? {
            self.count()?;
            let right = self.bit_or()?;
            let left = rest.last().map_or(&first, |(_, left)| left);
            if matches!(compare, Compare::Is | Compare::IsNot) && is_constant(left) && is_constant(&right) {
                let name = if matches!(compare, Compare::Is) { "Is" } else { "IsNot" };
                return Err(format!("Unsupported comparison operator: {name} between two constants"));
            }
            rest.push((compare, right));
        }
        Ok(if rest.is_empty() { first } else { Expr::Compare(Box::new(first), rest) })
    }

    fn compare(&mut self) -> Result<Option<Compare>, String> {
        if let Some(symbol) = self.symbol(&["==", "!=", "<", "<=", ">", ">="]) {
            return Ok(Some(match symbol {
                "==" => Compare::Equal,
                "!=" => Compare::NotEqual,
                "<" => Compare::Less,
                "<=" => Compare::LessOrEqual,
                ">" => Compare::Greater,
                _ => Compare::GreaterOrEqual,
            }));
        }
        if self.name("is") {
            return Ok(Some(if self.name("not") { Compare::IsNot } else { Compare::Is }));
        }
        if self.name("in") {
            return Ok(Some(Compare::In));
        }
        if self.name("not") {
            return if self.name("in") {
                Ok(Some(Compare::NotIn))
            } else {
                Err(syntax("'in' must follow 'not' here"))
            };
        }
        Ok(None)
    }

    fn bit_or(&mut self) -> Result<Expr, String> {
        self.chain(&[("|", Compute::BitOr)], Self::bit_xor)
    }

    fn bit_xor(&mut self) -> Result<Expr, String> {
        self.chain(&[("^", Compute::BitXor)], Self::bit_and)
    }

    fn bit_and(&mut self) -> Result<Expr, String> {
        self.chain(&[("&", Compute::BitAnd)], Self::shift)
    }

    fn shift(&mut self) -> Result<Expr, String> {
        self.chain(&[("<<", Compute::ShiftLeft), (">>", Compute::ShiftRight)], Self::sum)
    }

    fn sum(&mut self) -> Result<Expr, String> {
        let sum = self.chain(&[("+", Compute::Add), ("-", Compute::Subtract)], Self::product)?;
        match self.symbol(&["@"]) {
            Some(_) => Err(unsupported("BinOp")),
            None => Ok(sum),
        }
    }

    /// Parses operators of one precedence, from left to right.
    fn chain(
        &mut self,
        operators: &[(&'static str, Compute)],
        next: fn(&mut Self) -> Result<Expr, String>,
    ) -> Result<Expr, String> {
        let mut expr = next(self)?;
        loop {
            let found = operators.iter().find(|(symbol, _)| self.symbol(&[*symbol]).is_some());
            let Some((_, compute)) = found else { return Ok(expr) };
            self.count()?;
            expr = Expr::Compute(*compute, Box::new(expr), Box::new(next(self)?));
        }
    }

    fn product(&mut self) -> Result<Expr, String> {
        let operators = [
            ("*", Compute::Multiply),
            ("/", Compute::Divide),
            ("//", Compute::FloorDivide),
            ("%", Compute::Remainder),
        ];
        self.chain(&operators, Self::sign)
    }

    fn sign(&mut self) -> Result<Expr, String> {
        match self.symbol(&["-", "+", "~"]) {
            Some("~") => self.nested(Self::sign).map(|expr| Expr::Invert(Box::new(expr))),
            Some(symbol) => {
                let minus = symbol == "-";
                self.nested(Self::sign).map(|expr| Expr::Sign(Box::new(expr), minus))
            }
            None => self.power(),
        }
    }

    fn power(&mut self) -> Result<Expr, String> {
        let base = self.primary()?;
        if self.symbol(&["**"]).is_none() {
            return Ok(base);
        }
        self.count()?;
        let exponent = self.nested(Self::sign)?;
        Ok(Expr::Compute(Compute::Power, Box::new(base), Box::new(exponent)))
    }

    fn primary(&mut self) -> Result<Expr, String> {
        let token = self.peek().cloned().ok_or_else(|| syntax("something is missing at the end"))?;
        let start = self.at;
        self.at += 1;
        let name = match &token {
            Token::Name(name) => Some(name.clone()),
            _ => None,
        };
        let expr = match token.clone() {
            Token::Number(number) => number.expr().map_err(|reason| syntax(&reason))?,
            Token::Var(var) => Expr::Var(var),
            Token::Bytes(mut bytes) => {
                while let Some(Token::Bytes(more)) = self.peek() {
                    bytes.extend(more);
                    self.at += 1;
                }
                Expr::Bytes(bytes)
            }
            Token::Text(mut pieces) => {
                // Adjacent strings are concatenated.
                while let Some(Token::Text(more)) = self.peek() {
                    pieces.extend(more.iter().cloned());
                    self.at += 1;
                }
                match self.peek() {
                    Some(Token::Format(_)) => self.format(vec![FormatToken::Text(pieces)])?,
                    _ => text(pieces),
                }
            }
            Token::Format(parts) => self.format(parts)?,
            Token::Name(name) => match name.to_lowercase().as_str() {
                "true" => Expr::Const(Value::Bool(true)),
                "false" => Expr::Const(Value::Bool(false)),
                "lambda" | "await" => {
                    self.blame(start);
                    return Err(unsupported(if name.eq_ignore_ascii_case("lambda") {
                        "Lambda"
                    } else {
                        "Await"
                    }));
                }
                "and" | "or" | "not" | "in" | "is" | "if" | "else" | "for" => {
                    self.blame(start);
                    return Err(syntax(&format!("'{name}' is not allowed here")));
                }
                // Null, or an unknown name: the following tokens determine the error.
                _ => Expr::Const(Value::Null),
            },
            Token::Symbol("(") => self.group()?,
            Token::Symbol("[") => Expr::List(self.list("]")?.0),
            Token::Symbol(symbol) => {
                self.blame(start);
                return Err(if symbol == "{" { unsupported("Dict") } else { unexpected(&token) });
            }
        };
        if let Some(name) = name.filter(|name| !is_literal(name)) {
            if self.symbol(&["("]).is_some() {
                let function = ConditionFunction::of(&name).inspect_err(|_| {
                    self.blame(start);
                    self.advice = advice_on_function(&name).map(str::to_owned);
                })?;
                let args = self.arguments(function.parameters())?;
                return self.trail(Expr::Call(function, args));
            }
            self.unknown.get_or_insert((name, start));
        }
        self.trail(expr)
    }

    /// Parses a string with fields, and adjacent strings.
    fn format(&mut self, mut parts: Vec<FormatToken>) -> Result<Expr, String> {
        loop {
            match self.peek() {
                Some(Token::Text(pieces)) => parts.push(FormatToken::Text(pieces.clone())),
                Some(Token::Format(more)) => parts.extend(more.iter().cloned()),
                _ => return self.format_parts(parts).map(Expr::Format),
            }
            self.at += 1;
        }
    }

    fn format_parts(&mut self, parts: Vec<FormatToken>) -> Result<Vec<FormatPart>, String> {
        let mut read = Vec::with_capacity(parts.len());
        for part in parts {
            self.count()?;
            read.push(match part {
                FormatToken::Text(pieces) => FormatPart::Text(pieces),
                FormatToken::Field { tokens, conversion, spec } => {
                    // Errors in a field have the position of its string.
                    let string = self.blamed.replace(self.at.saturating_sub(1));
                    let around = (std::mem::replace(&mut self.tokens, tokens), std::mem::take(&mut self.at));
                    let value = self.nested(Self::expression)?;
                    if let Some(token) = self.peek() {
                        return Err(unexpected(token));
                    }
                    (self.tokens, self.at) = around;
                    self.blamed = string;
                    let spec = self.nested(|parser| parser.format_parts(spec))?;
                    FormatPart::Field(Box::new(value), conversion, spec)
                }
            });
        }
        Ok(read)
    }

    /// Parses members, calls and subscripts after a value.
    fn trail(&mut self, mut expr: Expr) -> Result<Expr, String> {
        loop {
            if self.symbol(&["."]).is_some() {
                self.count()?;
                let Some(Token::Name(name)) = self.peek().cloned() else {
                    return Err(self
                        .peek()
                        .map_or_else(|| syntax("a name is missing after '.'"), unexpected));
                };
                self.at += 1;
                if name.starts_with('_') {
                    self.blame(self.at - 1);
                    return Err(format!("Unsupported attribute: '{name}'"));
                }
                let start = self.at - 1;
                expr = if self.symbol(&["("]).is_some() {
                    let Some(method) = ConditionMethod::of(&name) else {
                        self.blame(start);
                        return Err(format!("Unsupported method: '{name}'"));
                    };
                    Expr::Method(Box::new(expr), method, self.arguments(method.parameters())?)
                } else {
                    Expr::Attribute(Box::new(expr), name)
                };
            } else if self.symbol(&["["]).is_some() {
                self.count()?;
                expr = self.subscript(expr)?;
            } else if matches!(self.peek(), Some(Token::Symbol("("))) {
                return Err(unsupported("Call"));
            } else {
                return Ok(expr);
            }
        }
    }

    /// Parses the arguments of a call, after its opening bracket. Named arguments are moved to the
    /// position of their parameter.
    fn arguments(&mut self, parameters: &[CallParameter]) -> Result<Vec<Expr>, String> {
        self.count()?;
        let mut args = Vec::new();
        let mut named: Vec<Option<Expr>> = parameters.iter().map(|_| None).collect();
        while self.symbol(&[")"]).is_none() {
            self.count()?;
            if self.symbol(&["*", "**"]).is_some() {
                return Err(unsupported("Starred"));
            }
            let name = match (self.peek(), self.tokens.get(self.at + 1)) {
                (Some(Token::Name(name)), Some(Token::Symbol("="))) => Some(name.clone()),
                _ => None,
            };
            if let Some(name) = name {
                self.at += 2;
                let at = parameters.iter().position(|(known, _)| *known == name);
                let at = at.filter(|at| *at >= args.len() && named[*at].is_none());
                let at = at.ok_or_else(|| syntax(&format!("unexpected keyword argument '{name}'")))?;
                named[at] = Some(self.expression()?);
            } else if named.iter().any(Option::is_some) {
                return Err(syntax("positional argument follows keyword argument"));
            } else {
                args.push(self.expression()?);
            }
            if matches!(self.peek(), Some(Token::Name(name)) if name == "for") {
                return Err(unsupported("GeneratorExp"));
            }
            if self.symbol(&[","]).is_none() {
                match self.peek() {
                    Some(Token::Symbol(")")) => {}
                    other => return Err(other.map_or_else(|| syntax("')' is missing"), unexpected)),
                }
            }
        }
        let last = named.iter().rposition(Option::is_some).map_or(0, |at| at + 1);
        for (value, (_, otherwise)) in named.into_iter().zip(parameters).take(last).skip(args.len()) {
            args.push(value.unwrap_or_else(|| Expr::Const(otherwise.value())));
        }
        Ok(args)
    }

    /// Parses the brackets after a value.
    fn subscript(&mut self, on: Expr) -> Result<Expr, String> {
        let mut bounds = [None, None, None];
        let mut at = 0;
        loop {
            if !matches!(self.peek(), Some(Token::Symbol(":" | "]"))) {
                bounds[at] = Some(self.expression()?);
            }
            match self.symbol(&[":", "]"]) {
                Some(":") if at < 2 => at += 1,
                Some("]") if at > 0 => return Ok(Expr::Slice(Box::new(on), Box::new(bounds))),
                Some("]") => {
                    let [key, ..] = bounds;
                    let key = key.ok_or_else(|| syntax("there is nothing between '[' and ']'"))?;
                    return Ok(Expr::Subscript(Box::new(on), Box::new(key)));
                }
                _ => return Err(self.peek().map_or_else(|| syntax("']' is missing"), unexpected)),
            }
        }
    }

    /// `(a)` is `a`; `(a,)`, `(a, b)` and `()` are tuples.
    fn group(&mut self) -> Result<Expr, String> {
        let (mut items, comma) = self.list(")")?;
        match items.pop() {
            Some(only) if items.is_empty() && !comma => Ok(only),
            last => {
                items.extend(last);
                Ok(Expr::Tuple(items))
            }
        }
    }

    /// Parses expressions up to the closing bracket; also returns whether there was a comma.
    fn list(&mut self, close: &'static str) -> Result<(Vec<Expr>, bool), String> {
        let (mut items, mut comma) = (Vec::new(), false);
        loop {
            if self.symbol(&[close]).is_some() {
                return Ok((items, comma));
            }
            self.count()?;
            if self.symbol(&["*"]).is_some() {
                return Err(unsupported("Starred"));
            }
            items.push(self.expression()?);
            if matches!(self.peek(), Some(Token::Name(name)) if name == "for") {
                return Err(unsupported(if close == "]" { "ListComp" } else { "GeneratorExp" }));
            }
            if self.symbol(&[","]).is_some() {
                comma = true;
            } else if self.symbol(&[close]).is_some() {
                return Ok((items, comma));
            } else {
                return Err(self.peek().map_or_else(|| syntax(&format!("'{close}' is missing")), unexpected));
            }
        }
    }
}

fn single(mut list: Vec<Expr>, many: impl FnOnce(Vec<Expr>) -> Expr) -> Expr {
    if list.len() > 1 {
        return many(list);
    }
    list.pop().unwrap_or(Expr::Const(Value::Null))
}

/// Returns a string; without templates it is a constant.
fn text(pieces: Vec<TextPiece>) -> Expr {
    let plain: Option<String> = pieces
        .iter()
        .map(|piece| match piece {
            TextPiece::Text(text) => Some(text.as_str()),
            TextPiece::Var(_) => None,
        })
        .collect();
    match plain {
        Some(text) => Expr::Const(Value::String(text)),
        None => Expr::Text(pieces),
    }
}

fn is_constant(expr: &Expr) -> bool {
    matches!(expr, Expr::Const(_) | Expr::Int(_) | Expr::Float(_) | Expr::Imaginary(_) | Expr::Bytes(_))
}

fn is_literal(name: &str) -> bool {
    ["true", "false", "null", "none"].contains(&name.to_lowercase().as_str())
}

fn unsupported(what: &str) -> String {
    format!("Unsupported expression type: {what}")
}

fn unexpected(token: &Token) -> String {
    syntax(&match token {
        Token::Symbol("=") => "'=' does not compare; write '=='".to_owned(),
        Token::Symbol("&&") => "'&&' is not an operator; write 'and'".to_owned(),
        Token::Symbol("||") => "'||' is not an operator; write 'or'".to_owned(),
        Token::Symbol("!") => "'!' is not an operator; write 'not'".to_owned(),
        Token::Symbol(symbol) => format!("unexpected '{symbol}'"),
        Token::Name(name) => format!("unexpected '{name}'"),
        Token::Number(_) => "unexpected number".to_owned(),
        Token::Text(_) | Token::Bytes(_) | Token::Format(_) => "unexpected string".to_owned(),
        Token::Var(_) => "unexpected template".to_owned(),
    })
}
