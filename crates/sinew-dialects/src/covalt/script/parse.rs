//! Tokens into an expression, by precedence.

use serde_json::Value;

use super::token::{Token, tokens};
use super::{DEEPEST, Expr, LONGEST, Result, refuse};

/// Operators by binding, loosest first.
const LEVELS: [&[&str]; 7] = [
    &["??"],
    &["||"],
    &["&&"],
    &["===", "!==", "==", "!="],
    &[">=", "<=", ">", "<"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// Reads one expression.
pub(in super::super) fn parse(text: &str) -> Result<Expr> {
    if text.len() > LONGEST {
        return refuse(format!("an expression is longer than {LONGEST} bytes"));
    }
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0, depth: 0 };
    let expr = parser.expression()?;
    parser.take(";");
    match parser.tokens.get(parser.at) {
        None => Ok(expr),
        Some(_) => refuse("something follows the expression"),
    }
}

struct Parser<'t> {
    tokens: &'t [Token],
    at: usize,
    depth: u32,
}

impl Parser<'_> {
    fn peek(&self, sign: &str) -> bool {
        matches!(self.tokens.get(self.at), Some(Token::Sign(own)) if *own == sign)
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = self.peek(sign);
        self.at += usize::from(found);
        found
    }

    fn need(&mut self, sign: &str) -> Result<()> {
        if self.take(sign) { Ok(()) } else { refuse(format!("'{sign}' is missing")) }
    }

    fn expression(&mut self) -> Result<Expr> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return refuse("the expression is nested too deeply");
        }
        let expr = match self.arrow()? {
            Some(arrow) => arrow,
            None => self.choice()?,
        };
        self.depth -= 1;
        Ok(expr)
    }

    /// `x => …` and `(x, y) => …`
    fn arrow(&mut self) -> Result<Option<Expr>> {
        let from = self.at;
        let mut names = Vec::new();
        if self.take("(") {
            while let Some(Token::Name(name)) = self.tokens.get(self.at) {
                names.push(name.clone());
                self.at += 1;
                if !self.take(",") {
                    break;
                }
            }
            if !self.take(")") {
                self.at = from;
                return Ok(None);
            }
        } else if let Some(Token::Name(name)) = self.tokens.get(self.at) {
            names.push(name.clone());
            self.at += 1;
        }
        if self.at == from || !self.take("=>") {
            self.at = from;
            return Ok(None);
        }
        Ok(Some(Expr::Arrow(names, Box::new(self.expression()?))))
    }

    fn choice(&mut self) -> Result<Expr> {
        let condition = self.binary(0)?;
        if !self.take("?") {
            return Ok(condition);
        }
        let yes = self.expression()?;
        self.need(":")?;
        let no = self.expression()?;
        Ok(Expr::Choice(Box::new(condition), Box::new(yes), Box::new(no)))
    }

    fn binary(&mut self, level: usize) -> Result<Expr> {
        let Some(signs) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        let mut chain = 0;
        while let Some(sign) = signs.iter().find(|sign| self.peek(sign)) {
            self.at += 1;
            chain += 1;
            if chain > DEEPEST * 4 {
                return refuse("the expression is too long");
            }
            let right = self.binary(level + 1)?;
            left = Expr::Binary(sign, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr> {
        for sign in ["!", "-", "+"] {
            if self.take(sign) {
                self.depth += 1;
                if self.depth > DEEPEST {
                    return refuse("the expression is nested too deeply");
                }
                let inner = self.unary()?;
                self.depth -= 1;
                return Ok(Expr::Unary(sign, Box::new(inner)));
            }
        }
        if matches!(self.tokens.get(self.at), Some(Token::Name(name)) if name == "typeof") {
            self.at += 1;
            return Ok(Expr::Unary("typeof", Box::new(self.unary()?)));
        }
        self.postfix()
    }

    fn postfix(&mut self) -> Result<Expr> {
        let mut expr = self.primary()?;
        let mut chain = 0;
        loop {
            chain += 1;
            if chain > DEEPEST * 4 {
                return refuse("the expression is too long");
            }
            if self.take("?.") || self.take(".") {
                if self.peek("[") || self.peek("(") {
                    continue;
                }
                let Some(Token::Name(name)) = self.tokens.get(self.at) else {
                    return refuse("a name is missing after '.'");
                };
                let name = Expr::Literal(Value::String(name.clone()));
                self.at += 1;
                expr = Expr::Member(Box::new(expr), Box::new(name));
            } else if self.take("[") {
                let key = self.expression()?;
                self.need("]")?;
                expr = Expr::Member(Box::new(expr), Box::new(key));
            } else if self.take("(") {
                let arguments = self.list(")")?;
                expr = Expr::Call(Box::new(expr), arguments);
            } else {
                return Ok(expr);
            }
        }
    }

    fn list(&mut self, close: &str) -> Result<Vec<Expr>> {
        let mut items = Vec::new();
        while !self.take(close) {
            items.push(self.expression()?);
            if !self.take(",") {
                self.need(close)?;
                break;
            }
        }
        Ok(items)
    }

    fn primary(&mut self) -> Result<Expr> {
        if self.take("(") {
            let inner = self.expression()?;
            self.need(")")?;
            return Ok(inner);
        }
        if self.take("[") {
            return Ok(Expr::List(self.list("]")?));
        }
        if self.take("{") {
            return self.object();
        }
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        match token {
            Some(Token::Value(value)) => Ok(Expr::Literal(value)),
            Some(Token::Name(name)) => Ok(Expr::Name(name)),
            Some(Token::Sign(sign)) => refuse(format!("unexpected '{sign}'")),
            None => refuse("the expression is not complete"),
        }
    }

    fn object(&mut self) -> Result<Expr> {
        let mut members = Vec::new();
        while !self.take("}") {
            let key = match self.tokens.get(self.at) {
                Some(Token::Name(name)) => name.clone(),
                Some(Token::Value(value)) => crate::js::string(value),
                _ => return refuse("a key is missing"),
            };
            self.at += 1;
            let value = if self.take(":") { self.expression()? } else { Expr::Name(key.clone()) };
            members.push((key, value));
            if !self.take(",") {
                self.need("}")?;
                break;
            }
        }
        Ok(Expr::Object(members))
    }
}
