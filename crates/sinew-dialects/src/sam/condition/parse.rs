//! From tokens to an expression, in Python's precedence.

use serde_json::Value;

use super::super::path::Path;
use super::Piece;
use super::lex::{Token, syntax, tokens};

/// An expression.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    Const(Value),
    Text(Vec<Piece>),
    Var(usize),
    List(Vec<Expr>),
    Not(Box<Expr>),
    Sign(Box<Expr>, bool),
    All(Vec<Expr>),
    Any(Vec<Expr>),
    Compare(Box<Expr>, Vec<(Compare, Expr)>),
    Compute(Compute, Box<Expr>, Box<Expr>),
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
}

/// Arithmetic.
#[derive(Clone, Copy, Debug)]
pub(super) enum Compute {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
}

/// A condition as read.
pub(super) struct Parsed {
    pub(super) expr: Expr,
    pub(super) vars: Vec<Path>,
}

/// Reads a whole condition.
pub(super) fn parse(source: &str) -> Result<Parsed, String> {
    let (tokens, vars) = tokens(source)?;
    let mut parser = Parser { tokens, at: 0, depth: 0, made: 0, unknown: None };
    let expr = parser.expression()?;
    let unknown = parser.unknown.take();
    match (parser.peek(), unknown) {
        (None, None) => Ok(Parsed { expr, vars }),
        (None, Some(name)) => Err(format!("Unknown identifier: {name}")),
        (Some(token), _) => Err(unexpected(token)),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    /// Levels of nesting: reading and evaluating recurse.
    depth: usize,
    /// Operators so far: chains make deep trees without nesting.
    made: usize,
    /// The first name that means nothing; told only if nothing worse is found.
    unknown: Option<String>,
}

const DEEPEST: usize = 50;
const LARGEST: usize = 1000;

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
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
        let expr = self.nested(Self::any)?;
        match self.peek() {
            Some(Token::Name(name)) if name == "if" => Err(unsupported("IfExp")),
            Some(Token::Symbol(":=")) => Err(unsupported("NamedExpr")),
            _ => Ok(expr),
        }
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
        let first = self.sum()?;
        let mut rest = Vec::new();
        while let Some(compare) = self.compare()? {
            self.count()?;
            rest.push((compare, self.sum()?));
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
            let not = if self.name("not") { "IsNot" } else { "Is" };
            return Err(format!("Unsupported comparison operator: {not}"));
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

    fn sum(&mut self) -> Result<Expr, String> {
        let mut expr = self.product()?;
        while let Some(symbol) = self.symbol(&["+", "-"]) {
            self.count()?;
            let compute = if symbol == "+" { Compute::Add } else { Compute::Subtract };
            expr = Expr::Compute(compute, Box::new(expr), Box::new(self.product()?));
        }
        match self.symbol(&["&", "|", "^", "<<", ">>", "@"]) {
            Some(_) => Err(unsupported("BinOp")),
            None => Ok(expr),
        }
    }

    fn product(&mut self) -> Result<Expr, String> {
        let mut expr = self.sign()?;
        while let Some(symbol) = self.symbol(&["*", "/", "//", "%"]) {
            self.count()?;
            let compute = match symbol {
                "*" => Compute::Multiply,
                "/" => Compute::Divide,
                "//" => Compute::FloorDivide,
                _ => Compute::Remainder,
            };
            expr = Expr::Compute(compute, Box::new(expr), Box::new(self.sign()?));
        }
        Ok(expr)
    }

    fn sign(&mut self) -> Result<Expr, String> {
        match self.symbol(&["-", "+", "~"]) {
            Some("~") => Err("Unsupported unary operator: Invert".to_owned()),
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
        self.at += 1;
        let name = match &token {
            Token::Name(name) => Some(name.clone()),
            _ => None,
        };
        let expr = match token.clone() {
            Token::Number(number) => number.json().map(Expr::Const).map_err(|reason| syntax(&reason))?,
            Token::Var(var) => Expr::Var(var),
            Token::Text(mut pieces) => {
                // Neighbours are one string.
                while let Some(Token::Text(more)) = self.peek() {
                    pieces.extend(more.iter().cloned());
                    self.at += 1;
                }
                text(pieces)
            }
            Token::Name(name) => match name.to_lowercase().as_str() {
                "true" => Expr::Const(Value::Bool(true)),
                "false" => Expr::Const(Value::Bool(false)),
                "lambda" => return Err(unsupported("Lambda")),
                "await" => return Err(unsupported("Await")),
                "and" | "or" | "not" | "in" | "is" | "if" | "else" | "for" => {
                    return Err(syntax(&format!("'{name}' cannot stand here")));
                }
                // Null, or a name that means nothing: what follows says what it was meant to be.
                _ => Expr::Const(Value::Null),
            },
            Token::Symbol("(") => self.group()?,
            Token::Symbol("[") => Expr::List(self.list("]")?.0),
            Token::Symbol("{") => return Err(unsupported("Dict")),
            Token::Symbol(_) => return Err(unexpected(&token)),
        };
        match self.peek() {
            Some(Token::Symbol("(")) => Err(unsupported("Call")),
            Some(Token::Symbol(".")) if self.at_call() => Err(unsupported("Call")),
            Some(Token::Symbol(".")) => Err(unsupported("Attribute")),
            Some(Token::Symbol("[")) => Err(unsupported("Subscript")),
            _ => {
                self.unknown = self.unknown.take().or(name.filter(|name| !is_literal(name)));
                Ok(expr)
            }
        }
    }

    /// Whether `.name` is followed by a call.
    fn at_call(&self) -> bool {
        matches!(self.tokens.get(self.at + 2), Some(Token::Symbol("(")))
    }

    /// `(a)` is `a`; `(a,)`, `(a, b)` and `()` are lists.
    fn group(&mut self) -> Result<Expr, String> {
        let (mut items, comma) = self.list(")")?;
        match items.pop() {
            Some(only) if items.is_empty() && !comma => Ok(only),
            last => {
                items.extend(last);
                Ok(Expr::List(items))
            }
        }
    }

    /// Expressions up to the closing bracket, and whether there was a comma.
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

/// A string without templates is a constant.
fn text(pieces: Vec<Piece>) -> Expr {
    let plain: Option<String> = pieces
        .iter()
        .map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            Piece::Var(_) => None,
        })
        .collect();
    match plain {
        Some(text) => Expr::Const(Value::String(text)),
        None => Expr::Text(pieces),
    }
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
        Token::Symbol("&&") => "'&&' is not known; write 'and'".to_owned(),
        Token::Symbol("||") => "'||' is not known; write 'or'".to_owned(),
        Token::Symbol("!") => "'!' is not known; write 'not'".to_owned(),
        Token::Symbol(symbol) => format!("unexpected '{symbol}'"),
        Token::Name(name) => format!("unexpected '{name}'"),
        Token::Number(_) => "unexpected number".to_owned(),
        Token::Text(_) => "unexpected string".to_owned(),
        Token::Var(_) => "unexpected template".to_owned(),
    })
}
