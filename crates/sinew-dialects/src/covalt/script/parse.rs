//! Parser of expressions, by precedence.

use serde_json::Value;

use super::token::{ScriptToken, tokens};
use super::{MAX_EXPRESSION_BYTES, MAX_EXPRESSION_DEPTH, Result, ScriptExpression, refuse};

/// Operators by precedence, lowest first.
const LEVELS: [&[&str]; 7] = [
    &["??"],
    &["||"],
    &["&&"],
    &["===", "!==", "==", "!="],
    &[">=", "<=", ">", "<"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// Parses one expression.
pub(in super::super) fn parse(text: &str) -> Result<ScriptExpression> {
    if text.len() > MAX_EXPRESSION_BYTES {
        return refuse(format!("an expression is longer than {MAX_EXPRESSION_BYTES} bytes"));
    }
    let tokens = tokens(text)?;
    let mut parser = ScriptParser { tokens: &tokens, at: 0, depth: 0 };
    let expr = parser.expression()?;
    parser.take(";");
    match parser.tokens.get(parser.at) {
        None => Ok(expr),
        Some(_) => refuse("unexpected text after the expression"),
    }
}

struct ScriptParser<'t> {
    tokens: &'t [ScriptToken],
    at: usize,
    depth: u32,
}

impl ScriptParser<'_> {
    fn peek(&self, sign: &str) -> bool {
        matches!(self.tokens.get(self.at), Some(ScriptToken::Sign(own)) if *own == sign)
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = self.peek(sign);
        self.at += usize::from(found);
        found
    }

    fn need(&mut self, sign: &str) -> Result<()> {
        if self.take(sign) { Ok(()) } else { refuse(format!("'{sign}' is missing")) }
    }

    fn expression(&mut self) -> Result<ScriptExpression> {
        self.depth += 1;
        if self.depth > MAX_EXPRESSION_DEPTH {
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
    fn arrow(&mut self) -> Result<Option<ScriptExpression>> {
        let from = self.at;
        let mut names = Vec::new();
        if self.take("(") {
            while let Some(ScriptToken::Name(name)) = self.tokens.get(self.at) {
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
        } else if let Some(ScriptToken::Name(name)) = self.tokens.get(self.at) {
            names.push(name.clone());
            self.at += 1;
        }
        if self.at == from || !self.take("=>") {
            self.at = from;
            return Ok(None);
        }
        Ok(Some(ScriptExpression::Arrow(names, Box::new(self.expression()?))))
    }

    fn choice(&mut self) -> Result<ScriptExpression> {
        let condition = self.binary(0)?;
        if !self.take("?") {
            return Ok(condition);
        }
        let yes = self.expression()?;
        self.need(":")?;
        let no = self.expression()?;
        Ok(ScriptExpression::Choice(Box::new(condition), Box::new(yes), Box::new(no)))
    }

    fn binary(&mut self, level: usize) -> Result<ScriptExpression> {
        let Some(signs) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        let mut chain = 0;
        while let Some(sign) = signs.iter().find(|sign| self.peek(sign)) {
            self.at += 1;
            chain += 1;
            if chain > MAX_EXPRESSION_DEPTH * 4 {
                return refuse("the expression is too long");
            }
            let right = self.binary(level + 1)?;
            left = ScriptExpression::Binary(sign, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<ScriptExpression> {
        for sign in ["!", "-", "+"] {
            if self.take(sign) {
                self.depth += 1;
                if self.depth > MAX_EXPRESSION_DEPTH {
                    return refuse("the expression is nested too deeply");
                }
                let inner = self.unary()?;
                self.depth -= 1;
                return Ok(ScriptExpression::Unary(sign, Box::new(inner)));
            }
        }
        if matches!(self.tokens.get(self.at), Some(ScriptToken::Name(name)) if name == "typeof") {
            self.at += 1;
            return Ok(ScriptExpression::Unary("typeof", Box::new(self.unary()?)));
        }
        self.postfix()
    }

    fn postfix(&mut self) -> Result<ScriptExpression> {
        let mut expr = self.primary()?;
        let mut chain = 0;
        loop {
            chain += 1;
            if chain > MAX_EXPRESSION_DEPTH * 4 {
                return refuse("the expression is too long");
            }
            if self.take("?.") || self.take(".") {
                if self.peek("[") || self.peek("(") {
                    continue;
                }
                let Some(ScriptToken::Name(name)) = self.tokens.get(self.at) else {
                    return refuse("a name is missing after '.'");
                };
                let name = ScriptExpression::Literal(Value::String(name.clone()));
                self.at += 1;
                expr = ScriptExpression::Member(Box::new(expr), Box::new(name));
            } else if self.take("[") {
                let key = self.expression()?;
                self.need("]")?;
                expr = ScriptExpression::Member(Box::new(expr), Box::new(key));
            } else if self.take("(") {
                let arguments = self.list(")")?;
                expr = ScriptExpression::Call(Box::new(expr), arguments);
            } else {
                return Ok(expr);
            }
        }
    }

    fn list(&mut self, close: &str) -> Result<Vec<ScriptExpression>> {
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

    fn primary(&mut self) -> Result<ScriptExpression> {
        if self.take("(") {
            let inner = self.expression()?;
            self.need(")")?;
            return Ok(inner);
        }
        if self.take("[") {
            return Ok(ScriptExpression::List(self.list("]")?));
        }
        if self.take("{") {
            return self.object();
        }
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        match token {
            Some(ScriptToken::Value(value)) => Ok(ScriptExpression::Literal(value)),
            Some(ScriptToken::Name(name)) => Ok(ScriptExpression::Name(name)),
            Some(ScriptToken::Sign(sign)) => refuse(format!("unexpected '{sign}'")),
            None => refuse("the expression is not complete"),
        }
    }

    fn object(&mut self) -> Result<ScriptExpression> {
        let mut members = Vec::new();
        while !self.take("}") {
            let key = match self.tokens.get(self.at) {
                Some(ScriptToken::Name(name)) => name.clone(),
                Some(ScriptToken::Value(value)) => crate::js::string(value),
                _ => return refuse("a key is missing"),
            };
            self.at += 1;
            let value = if self.take(":") { self.expression()? } else { ScriptExpression::Name(key.clone()) };
            members.push((key, value));
            if !self.take(",") {
                self.need("}")?;
                break;
            }
        }
        Ok(ScriptExpression::Object(members))
    }
}
