//! Parsed tree: JSON values with their span in a file.

use serde_json::{Map, Number, Value};

/// Position in a file: line and column count from 1 (columns in characters), the range is in bytes.
///
/// The default span (line 0) is for values that did not come from a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    /// Index into [`Sources`](crate::Sources): with includes, one tree spans several files.
    pub file: u32,
    /// Line of the first character, from 1; 0 without a file.
    pub line: u32,
    /// Column of the first character, from 1.
    pub column: u32,
    /// First byte.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
}

/// JSON value with its position. Equality includes positions; use [`Node::to_json`] to compare
/// values.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Position of the value.
    pub span: Span,
    /// The value.
    pub kind: Kind,
}

/// The value of a [`Node`].
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Any JSON number: i64, u64 or a finite f64.
    Number(Number),
    /// String.
    String(String),
    /// Elements in file order.
    Array(Vec<Node>),
    /// Members in file order, keys unique.
    Object(Vec<Member>),
}

/// One `key: value` of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The key.
    pub key: String,
    /// Position of the key.
    pub key_span: Span,
    /// Value of the key.
    pub value: Node,
}

impl Node {
    /// Returns the plain JSON value, without positions.
    pub fn to_json(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Number(value) => Value::Number(value.clone()),
            Kind::String(value) => Value::String(value.clone()),
            Kind::Array(items) => Value::Array(items.iter().map(Node::to_json).collect()),
            Kind::Object(members) => Value::Object(
                members.iter().map(|m| (m.key.clone(), m.value.to_json())).collect::<Map<_, _>>(),
            ),
        }
    }

    /// Creates a tree without positions, for values that did not come from a file.
    pub fn from_json(value: &Value) -> Node {
        let kind = match value {
            Value::Null => Kind::Null,
            Value::Bool(value) => Kind::Bool(*value),
            Value::Number(value) => Kind::Number(value.clone()),
            Value::String(value) => Kind::String(value.clone()),
            Value::Array(items) => Kind::Array(items.iter().map(Node::from_json).collect()),
            Value::Object(members) => Kind::Object(
                members
                    .iter()
                    .map(|(key, value)| Member {
                        key: key.clone(),
                        key_span: Span::default(),
                        value: Node::from_json(value),
                    })
                    .collect(),
            ),
        };
        Node { span: Span::default(), kind }
    }

    /// Returns the value under `key`; `None` if this is not an object.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.member(key).map(|member| &member.value)
    }

    /// Returns the property named `key`, for its [`Member::key_span`].
    pub fn member(&self, key: &str) -> Option<&Member> {
        self.as_object()?.iter().find(|member| member.key == key)
    }

    /// Returns the value as a string, if it is one.
    pub fn as_str(&self) -> Option<&str> {
        if let Kind::String(value) = &self.kind { Some(value) } else { None }
    }

    /// Returns the elements, if this is an array.
    pub fn as_array(&self) -> Option<&[Node]> {
        if let Kind::Array(items) = &self.kind { Some(items) } else { None }
    }

    /// Returns the properties, if this is an object.
    pub fn as_object(&self) -> Option<&[Member]> {
        if let Kind::Object(members) = &self.kind { Some(members) } else { None }
    }

    /// Returns the value as a boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        if let Kind::Bool(value) = self.kind { Some(value) } else { None }
    }

    /// Returns the value as u64, if it is an integer in range.
    pub fn as_u64(&self) -> Option<u64> {
        if let Kind::Number(value) = &self.kind { value.as_u64() } else { None }
    }

    /// Returns the value as i64, if it is an integer in range.
    pub fn as_i64(&self) -> Option<i64> {
        if let Kind::Number(value) = &self.kind { value.as_i64() } else { None }
    }

    /// Returns the value as f64, if it is a number.
    pub fn as_f64(&self) -> Option<f64> {
        if let Kind::Number(value) = &self.kind { value.as_f64() } else { None }
    }

    /// Returns whether this is `null`.
    pub fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Null)
    }

    /// Returns the JSON Schema name of the type: `null`, `boolean`, `integer`, `number`, `string`,
    /// `array`, `object`.
    pub fn type_name(&self) -> &'static str {
        match &self.kind {
            Kind::Null => "null",
            Kind::Bool(_) => "boolean",
            Kind::Number(value) if value.is_f64() => "number",
            Kind::Number(_) => "integer",
            Kind::String(_) => "string",
            Kind::Array(_) => "array",
            Kind::Object(_) => "object",
        }
    }

    /// Returns the node at a JSON pointer (RFC 6901); `""` is this node.
    pub fn at_pointer(&self, json_pointer: &str) -> Option<&Node> {
        if json_pointer.is_empty() {
            return Some(self);
        }
        json_pointer.strip_prefix('/')?.split('/').try_fold(self, |node, token| match &node.kind {
            Kind::Array(items) => items.get(array_index(token)?),
            Kind::Object(_) => node.get(&token.replace("~1", "/").replace("~0", "~")),
            _ => None,
        })
    }
}

/// RFC 6901 section 4: digits without leading zeros.
fn array_index(token: &str) -> Option<usize> {
    let plain = token == "0" || (!token.starts_with('0') && token.bytes().all(|b| b.is_ascii_digit()));
    if plain { token.parse().ok() } else { None }
}
