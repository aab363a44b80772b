//! Assembles streamed calls, regardless of how servers use indexes and ids.

use std::collections::HashSet;

use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::lenient_json::whole_arguments;
use crate::turn::RequestedCall;

/// Maximum calls of an answer.
const MAX_CALLS: usize = 256;
/// Maximum number of unknown members of a call or its function, which are sent back unchanged.
const MAX_FOREIGN_MEMBERS: usize = 16;

/// Partially received calls.
#[derive(Debug, Default)]
pub(super) struct CallAssembler {
    calls: Vec<CallPieces>,
}

#[derive(Debug, Default)]
struct CallPieces {
    index: Option<u64>,
    id: String,
    tool: String,
    arguments: String,
    /// Unknown members of the call and of its function, such as the thought signature of Gemini.
    foreign: Map<String, Value>,
    function: Map<String, Value>,
}

impl CallPieces {
    /// Returns whether a chunk with this id can be a part of this call.
    fn fits(&self, id: &str) -> bool {
        id.is_empty() || self.id.is_empty() || self.id == id
    }

    /// Returns whether a chunk with this name but without an index and a known id continues this call:
    /// the name arrives late, or it is repeated before the arguments are complete.
    fn awaits(&self, tool: &str) -> bool {
        self.tool.is_empty() || tool.is_empty() || (self.tool == tool && !self.is_complete())
    }

    /// Returns whether the arguments are a JSON object.
    fn is_complete(&self) -> bool {
        self.arguments.trim_end().ends_with('}')
            && serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
    }

    fn take_arguments(&mut self, arguments: &Value) {
        match arguments {
            // Some servers repeat the whole arguments at the end.
            Value::String(text) if !text.is_empty() && *text == self.arguments && self.is_complete() => {}
            Value::String(text) => self.arguments.push_str(text),
            Value::Null => {}
            // Arguments that are an object are complete.
            other => self.arguments = other.to_string(),
        }
    }
}

impl CallAssembler {
    /// Adds a chunk of a call. Returns the tool's name if the chunk starts a call.
    ///
    /// A chunk belongs to the call of its index or, without an index, of its id. A chunk with the index
    /// of a call and another id starts a call. A chunk without both starts a call if its name cannot
    /// belong to the last one.
    pub(super) fn add(&mut self, piece: &Value) -> Option<String> {
        let function = piece.get("function");
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let (id, tool) = (text(piece.get("id")), text(function.and_then(|it| it.get("name"))));
        let index = piece.get("index").and_then(Value::as_u64);
        let last = self.calls.len().checked_sub(1);
        let known =
            match index {
                Some(_) => {
                    let at = self.calls.iter().rposition(|call| call.index == index);
                    at.filter(|at| self.calls[*at].fits(&id) && self.is_same_tool(*at, &id, &tool))
                }
                None if id.is_empty() => last.filter(|at| self.calls[*at].awaits(&tool)),
                None => self.calls.iter().rposition(|call| call.id == id).or_else(|| {
                    last.filter(|at| self.calls[*at].id.is_empty() && self.calls[*at].awaits(&tool))
                }),
            };
        let at = match known {
            Some(at) => at,
            None if self.calls.len() >= MAX_CALLS => return None,
            None => {
                self.calls.push(CallPieces { index, ..CallPieces::default() });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            call.id = id;
        }
        // Some servers repeat the name in each chunk; no server splits it.
        if call.tool.is_empty() {
            call.tool = tool;
        }
        call.take_arguments(function.and_then(|it| it.get("arguments")).unwrap_or(&Value::Null));
        add_foreign(piece, &["index", "id", "type", "function"], &mut call.foreign);
        add_foreign(function.unwrap_or(&Value::Null), &["name", "arguments"], &mut call.function);
        known.is_none().then(|| call.tool.clone())
    }

    /// Returns whether a chunk without an id can belong to the call of its index. Some servers have one
    /// index for all calls.
    fn is_same_tool(&self, at: usize, id: &str, tool: &str) -> bool {
        let call = &self.calls[at];
        !id.is_empty() || tool.is_empty() || call.tool.is_empty() || call.tool == tool
    }

    /// Returns whether no call was received.
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Returns the calls with unique ids, and their encoding for the next request.
    pub(super) fn end(self) -> (Vec<RequestedCall>, Vec<Value>) {
        let mut foreign = Vec::new();
        let calls = self.calls.into_iter().map(|call| {
            foreign.push((call.foreign, call.function));
            let arguments = whole_arguments(call.arguments);
            RequestedCall { id: call.id, tool: call.tool, arguments, through: None }
        });
        let calls = with_own_ids(calls.collect());
        let encoded = calls.iter().zip(foreign).map(|(call, (members, function))| {
            let mut encoded = call_value(call);
            if let Some(inner) = encoded["function"].as_object_mut() {
                inner.extend(function);
            }
            if let Some(all) = encoded.as_object_mut() {
                all.extend(members);
            }
            encoded
        });
        let encoded = encoded.collect();
        (calls, encoded)
    }
}

/// Adds the members of a chunk that are not `known`.
fn add_foreign(piece: &Value, known: &[&str], foreign: &mut Map<String, Value>) {
    for (key, value) in piece.as_object().into_iter().flatten() {
        if !known.contains(&key.as_str()) {
            merge_foreign(foreign, key, value, MAX_FOREIGN_MEMBERS);
        }
    }
}

/// Adds an unknown member of a streamed object. Concatenates texts and lists, and merges objects;
/// otherwise, the last value wins. Ignores null and empty lists, which some servers reject in requests.
pub(super) fn merge_foreign(members: &mut Map<String, Value>, key: &str, value: &Value, max: usize) {
    let is_empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    if is_empty || (members.len() >= max && !members.contains_key(key)) {
        return;
    }
    match (members.get_mut(key), value) {
        (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
        (Some(Value::Array(items)), Value::Array(more)) => items.extend(more.iter().cloned()),
        (Some(Value::Object(inner)), Value::Object(more)) => {
            inner.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
        _ => {
            members.insert(key.to_owned(), value.clone());
        }
    }
}

/// Encodes a call.
pub(super) fn call_value(call: &RequestedCall) -> Value {
    let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    json!({"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": arguments}})
}

/// Assigns unique ids to calls without an id, or with that of an earlier call.
pub(super) fn with_own_ids(mut calls: Vec<RequestedCall>) -> Vec<RequestedCall> {
    calls.truncate(MAX_CALLS);
    let mut seen: HashSet<String> = HashSet::new();
    for (number, call) in calls.iter_mut().enumerate() {
        if call.id.is_empty() || seen.contains(&call.id) {
            let mut id = format!("call_{number}");
            while seen.contains(&id) {
                id.push('_');
            }
            call.id = id;
        }
        seen.insert(call.id.clone());
    }
    calls
}
