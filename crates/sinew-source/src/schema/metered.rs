//! JSON values for the validator that charge each access to the budget of the check.

use std::borrow::Cow;
use std::collections::HashSet;

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, cmp};
use serde_json::{Map, Number, Value};

use super::budget::{pay_error, pay_name, pay_number, pay_read, pay_step, pay_text, pay_visit};
use super::cache::value_digest;

/// Maximum length of a string in an error.
const MAX_TEXT_IN_ERROR: usize = 256;

/// JSON representation whose nodes charge each access.
pub(super) struct MeteredJson;

/// Value that charges each access.
#[derive(Clone, Copy)]
pub(super) struct MeteredNode<'a>(pub(super) &'a Value);

/// Properties of a [`MeteredNode`].
#[derive(Clone, Copy)]
pub(super) struct MeteredObject<'a>(&'a Map<String, Value>);

/// Items of a [`MeteredNode`].
#[derive(Clone, Copy)]
pub(super) struct MeteredArray<'a>(&'a [Value]);

impl Json for MeteredJson {
    type Node<'a> = MeteredNode<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Value, string: &str, f: impl FnOnce(MeteredNode<'_>) -> T) -> T {
        *buffer = Value::String(string.to_owned());
        f(MeteredNode(buffer))
    }
}

impl<'a> Node<'a, MeteredJson> for MeteredNode<'a> {
    type Object = MeteredObject<'a>;
    type Array = MeteredArray<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<MeteredObject<'a>> {
        let members = self.0.as_object();
        // Keywords that track properties allocate memory for all of them.
        pay_read(members.map_or(0, Map::len) / 8);
        members.map(MeteredObject)
    }

    fn as_array(&self) -> Option<MeteredArray<'a>> {
        let items = self.0.as_array();
        pay_read(items.map_or(0, Vec::len) / 8);
        items.map(|items| MeteredArray(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.0.as_str();
        pay_text(text.map_or(0, str::len));
        text.map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<&'a Number> {
        let number = self.0.as_number();
        pay_number(number.is_some_and(is_large));
        number
    }

    fn is_number(&self) -> bool {
        pay_step();
        self.0.is_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        pay_step();
        self.0.as_bool()
    }

    fn is_null(&self) -> bool {
        pay_step();
        self.0.is_null()
    }

    fn json_type(&self) -> JsonType {
        pay_step();
        JsonType::from(self.0)
    }

    fn string_length(&self) -> Option<u64> {
        let text = self.0.as_str();
        pay_read(text.map_or(0, str::len));
        text.map(|text| text.chars().count() as u64)
    }

    fn equals_value(&self, expected: &Value) -> bool {
        equal(self.0, expected)
    }

    /// Returns a placeholder of the same type: errors are shown without values, and each branch of
    /// `anyOf` would copy them.
    fn to_value(&self) -> Cow<'a, Value> {
        static EMPTY_ARRAY: Value = Value::Array(Vec::new());
        pay_error();
        match self.0 {
            Value::Array(_) => Cow::Borrowed(&EMPTY_ARRAY),
            Value::Object(_) => Cow::Owned(Value::Object(Map::new())),
            Value::String(text) if text.len() > MAX_TEXT_IN_ERROR => {
                let cut = text.floor_char_boundary(MAX_TEXT_IN_ERROR);
                Cow::Owned(Value::String(text[..cut].to_owned()))
            }
            small => Cow::Borrowed(small),
        }
    }

    fn identity(&self) -> Option<NodeIdentity> {
        pay_visit();
        Some(NodeIdentity::new(std::ptr::from_ref(self.0).addr()))
    }
}

impl<'a> Object<'a, MeteredJson> for MeteredObject<'a> {
    type Node = MeteredNode<'a>;
    type MemberName = &'a str;
    type MembersIter = MeteredMembers<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<MeteredNode<'a>> {
        pay_read(key.len());
        self.0.get(key).map(MeteredNode)
    }

    fn members(&self) -> MeteredMembers<'a> {
        MeteredMembers(self.0.iter())
    }
}

/// Iterator that charges each property.
pub(super) struct MeteredMembers<'a>(serde_json::map::Iter<'a>);

impl<'a> Iterator for MeteredMembers<'a> {
    type Item = (&'a str, MeteredNode<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.0.next()?;
        pay_name(name.len());
        Some((name, MeteredNode(value)))
    }
}

impl<'a> Array<'a, MeteredJson> for MeteredArray<'a> {
    type Node = MeteredNode<'a>;
    type ElementsIter = MeteredItems<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> MeteredItems<'a> {
        MeteredItems(self.0.iter())
    }

    /// The validator's own set compares many unequal lists with each other, because its hash
    /// ignores the end of a list.
    fn is_unique(&self) -> bool {
        let mut seen = HashSet::new();
        self.0.iter().all(|item| {
            pay_tree(item);
            seen.insert(value_digest(item))
        })
    }
}

/// Iterator that charges each item.
pub(super) struct MeteredItems<'a>(std::slice::Iter<'a, Value>);

impl<'a> Iterator for MeteredItems<'a> {
    type Item = MeteredNode<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.0.next()?;
        pay_step();
        Some(MeteredNode(item))
    }
}

/// Returns whether two values are equal in JSON Schema: `1` and `1.0` are.
fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Array(left), Value::Array(right)) => {
            pay_step();
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            pay_step();
            left.len() == right.len()
                && left.iter().all(|(key, value)| {
                    pay_read(key.len());
                    right.get(key).is_some_and(|other| equal(value, other))
                })
        }
        (Value::String(left), Value::String(right)) => {
            pay_read(if left.len() == right.len() { left.len() } else { 0 });
            left == right
        }
        _ => {
            pay_step();
            cmp::equal(left, right)
        }
    }
}

/// Returns whether a number has digits beyond a 64-bit integer.
fn is_large(number: &Number) -> bool {
    /// Floats from here on are integers of more than 53 bits.
    const MAX_EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;
    number.is_f64() && number.as_f64().is_none_or(|float| float.abs() >= MAX_EXACT_FLOAT)
}

/// Charges a digest of the value.
fn pay_tree(value: &Value) {
    // A digest of a few bytes takes as long as reading this many.
    pay_read(256);
    match value {
        Value::String(text) => pay_read(text.len().saturating_mul(4)),
        Value::Array(items) => items.iter().for_each(pay_tree),
        Value::Object(members) => {
            for (name, value) in members {
                pay_read(name.len().saturating_mul(4));
                pay_tree(value);
            }
        }
        _ => {}
    }
}
