//! Evaluation of expressions.

use std::cmp::Ordering;

use serde_json::{Map, Number, Value, json};

use super::{MAX_EXPRESSION_ITEMS, Result, STEPS, ScriptExpression, methods, refuse};
use crate::js;

/// Values that an expression may refer to.
pub(in super::super) trait ScriptScope {
    /// Returns the value of a name (`input`, `$trigger`, …).
    fn name(&self, name: &str) -> Option<Value>;
    /// Returns the output value of a node, by id or label.
    fn node(&self, name: &str) -> Option<Value>;
}

/// Evaluates an expression; `undefined` is null.
pub(in super::super) fn evaluate(expr: &ScriptExpression, scope: &dyn ScriptScope) -> Result<Value> {
    ScriptEvaluation { scope, locals: Vec::new(), steps: 0 }.value(expr)
}

pub(super) struct ScriptEvaluation<'s> {
    scope: &'s dyn ScriptScope,
    locals: Vec<(String, Value)>,
    steps: u32,
}

impl ScriptEvaluation<'_> {
    fn step(&mut self) -> Result<()> {
        self.steps += 1;
        if self.steps > STEPS { refuse("the expression takes too many steps") } else { Ok(()) }
    }

    pub(super) fn value(&mut self, expr: &ScriptExpression) -> Result<Value> {
        self.step()?;
        match expr {
            ScriptExpression::Literal(value) => Ok(value.clone()),
            ScriptExpression::Name(name) => self.name(name),
            ScriptExpression::List(items) => {
                items.iter().map(|item| self.value(item)).collect::<Result<_>>().map(Value::Array)
            }
            ScriptExpression::Object(members) => {
                let mut object = Map::new();
                for (key, value) in members {
                    object.insert(key.clone(), self.value(value)?);
                }
                Ok(Value::Object(object))
            }
            ScriptExpression::Member(owner, key) => {
                let owner = self.value(owner)?;
                let key = self.value(key)?;
                Ok(methods::member(&owner, &key))
            }
            ScriptExpression::Call(function, arguments) => self.call(function, arguments),
            ScriptExpression::Unary(sign, inner) => {
                let inner = self.value(inner)?;
                Ok(match *sign {
                    "!" => json!(!js::truthy(&inner)),
                    "-" => number(-to_number(&inner)),
                    "+" => number(to_number(&inner)),
                    _ => json!(match &inner {
                        Value::Null => "undefined",
                        Value::Array(_) => "object",
                        other => js::type_name(other),
                    }),
                })
            }
            ScriptExpression::Binary(sign, left, right) => self.binary(sign, left, right),
            ScriptExpression::Choice(condition, yes, no) => {
                let chosen = if js::truthy(&self.value(condition)?) { yes } else { no };
                self.value(chosen)
            }
            ScriptExpression::Arrow(..) => refuse("a function is not a value here"),
        }
    }

    fn name(&mut self, name: &str) -> Result<Value> {
        let local = self.locals.iter().rev().find(|(own, _)| own == name).map(|(_, value)| value.clone());
        let Some(value) = local.or_else(|| self.scope.name(name)) else {
            return refuse(format!("{name} is not defined"));
        };
        // Repeated copies of a large value must count.
        self.steps = self.steps.saturating_add(weight(&value));
        Ok(value)
    }

    fn binary(&mut self, sign: &str, left: &ScriptExpression, right: &ScriptExpression) -> Result<Value> {
        let a = self.value(left)?;
        match sign {
            "&&" if !js::truthy(&a) => return Ok(a),
            "||" if js::truthy(&a) => return Ok(a),
            "??" if !a.is_null() => return Ok(a),
            "&&" | "||" | "??" => return self.value(right),
            _ => {}
        }
        let b = self.value(right)?;
        let order = || compare(&a, &b);
        Ok(match sign {
            "===" => json!(js::equal(&a, &b)),
            "!==" => json!(!js::equal(&a, &b)),
            "==" => json!(loosely_equal(&a, &b)),
            "!=" => json!(!loosely_equal(&a, &b)),
            ">" => json!(order() == Some(Ordering::Greater)),
            "<" => json!(order() == Some(Ordering::Less)),
            ">=" => json!(matches!(order(), Some(Ordering::Greater | Ordering::Equal))),
            "<=" => json!(matches!(order(), Some(Ordering::Less | Ordering::Equal))),
            "+" if is_texty(&a) || is_texty(&b) => text(js::string(&a) + &js::string(&b))?,
            "+" => number(to_number(&a) + to_number(&b)),
            "-" => number(to_number(&a) - to_number(&b)),
            "*" => number(to_number(&a) * to_number(&b)),
            "/" => number(to_number(&a) / to_number(&b)),
            _ => number(to_number(&a) % to_number(&b)),
        })
    }

    fn call(&mut self, function: &ScriptExpression, arguments: &[ScriptExpression]) -> Result<Value> {
        match function {
            ScriptExpression::Name(name) if name == "$" => {
                let name = arguments.first().map(|first| self.value(first)).transpose()?.unwrap_or_default();
                let left = self.scope.node(&js::string(&name)).unwrap_or_default();
                Ok(json!({ "item": { "json": left } }))
            }
            ScriptExpression::Name(name) => {
                let arguments = self.values(arguments)?;
                methods::global("", name, &arguments)
            }
            ScriptExpression::Member(owner, name) => {
                let method = match &**name {
                    ScriptExpression::Literal(Value::String(name)) => name.as_str(),
                    _ => return refuse("only named methods can be called"),
                };
                if let ScriptExpression::Name(global) = &**owner
                    && matches!(global.as_str(), "JSON" | "Math" | "Object" | "Array" | "Number")
                {
                    let arguments = self.values(arguments)?;
                    return methods::global(global, method, &arguments);
                }
                let owner = self.value(owner)?;
                match (owner, arguments.first()) {
                    (Value::Array(items), Some(ScriptExpression::Arrow(names, body))) => {
                        let first = arguments.get(1).map(|first| self.value(first)).transpose()?;
                        methods::with_function(self, items, method, (names, body), first)
                    }
                    (owner, _) => {
                        let arguments = self.values(arguments)?;
                        methods::method(owner, method, &arguments)
                    }
                }
            }
            _ => refuse("this cannot be called"),
        }
    }

    fn values(&mut self, arguments: &[ScriptExpression]) -> Result<Vec<Value>> {
        arguments.iter().map(|argument| self.value(argument)).collect()
    }

    /// Returns the value of a function's body with these arguments.
    pub(super) fn apply(
        &mut self,
        names: &[String],
        body: &ScriptExpression,
        arguments: Vec<Value>,
    ) -> Result<Value> {
        self.step()?;
        let before = self.locals.len();
        self.locals.extend(names.iter().cloned().zip(arguments));
        let value = self.value(body);
        self.locals.truncate(before);
        value
    }
}

fn is_texty(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Array(_) | Value::Object(_))
}

/// Returns the cost of copying a value, in steps.
fn weight(value: &Value) -> u32 {
    match value {
        Value::String(text) => (text.len() / 64) as u32 + 1,
        Value::Array(items) => items.iter().map(weight).fold(1, u32::saturating_add),
        Value::Object(members) => members.values().map(weight).fold(1, u32::saturating_add),
        _ => 1,
    }
}

/// Returns a string, unless it is too long.
pub(super) fn text(text: String) -> Result<Value> {
    if text.len() > MAX_EXPRESSION_ITEMS {
        refuse("a text becomes too long")
    } else {
        Ok(Value::String(text))
    }
}

/// Converts a number to JSON: integers stay integers; NaN becomes null.
pub(super) fn number(float: f64) -> Value {
    if float.fract() == 0.0 && float.abs() < 9e15 {
        return json!(float as i64);
    }
    Number::from_f64(float).map_or(Value::Null, Value::Number)
}

pub(super) fn to_number(value: &Value) -> f64 {
    match value {
        Value::Null => 0.0,
        Value::Bool(truth) => f64::from(u8::from(*truth)),
        Value::Number(number) => number.as_f64().unwrap_or(f64::NAN),
        Value::String(text) if text.trim().is_empty() => 0.0,
        Value::String(text) => text.trim().parse().unwrap_or(f64::NAN),
        Value::Array(_) | Value::Object(_) => f64::NAN,
    }
}

fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (a, b) => to_number(a).partial_cmp(&to_number(b)),
    }
}

fn loosely_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Null, _) | (_, Value::Null) => a == b,
        (Value::Number(_) | Value::Bool(_), Value::String(_) | Value::Bool(_) | Value::Number(_))
        | (Value::String(_), Value::Number(_) | Value::Bool(_)) => {
            to_number(a).partial_cmp(&to_number(b)) == Some(Ordering::Equal)
        }
        _ => js::equal(a, b),
    }
}
