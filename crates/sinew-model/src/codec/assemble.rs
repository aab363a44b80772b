//! Assembles streamed calls, regardless of how servers use indexes and ids.

use std::collections::HashSet;

use serde_json::Value;

use crate::turn::RequestedCall;

/// Maximum calls of an answer.
const MAX_CALLS: usize = 256;

/// Partially received calls.
#[derive(Debug, Default)]
pub(super) struct CallAssembler {
    calls: Vec<CallPieces>,
}

#[derive(Debug)]
struct CallPieces {
    index: Option<u64>,
    id: String,
    tool: String,
    arguments: String,
}

impl CallAssembler {
    /// Adds a chunk. Returns the tool's name if the chunk starts a call.
    ///
    /// A chunk belongs to the call of its index. A chunk without an index, or with the index of a call
    /// and another id, starts a call if it has an id or a name, and otherwise continues the last call.
    pub(super) fn add(
        &mut self,
        index: Option<u64>,
        id: &str,
        tool: &str,
        arguments: &Value,
    ) -> Option<String> {
        let fits = |call: &CallPieces| id.is_empty() || call.id.is_empty() || call.id == id;
        let known = match index {
            Some(_) => {
                self.calls.iter().rposition(|call| call.index == index).filter(|at| fits(&self.calls[*at]))
            }
            None if tool.is_empty() && id.is_empty() => self.calls.len().checked_sub(1),
            None if tool.is_empty() => self.calls.iter().rposition(|call| call.id == id),
            None => None,
        };
        let begins = known.is_none();
        let at = match known {
            Some(at) => at,
            None if self.calls.len() >= MAX_CALLS => return None,
            None => {
                self.calls.push(CallPieces {
                    index,
                    id: String::new(),
                    tool: String::new(),
                    arguments: String::new(),
                });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[at];
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        // Some servers repeat the name in each chunk; no server splits it.
        if call.tool.is_empty() {
            tool.clone_into(&mut call.tool);
        }
        match arguments {
            Value::String(text) => call.arguments.push_str(text),
            Value::Null => {}
            // Arguments that are an object are complete.
            other => call.arguments = other.to_string(),
        }
        begins.then(|| call.tool.clone())
    }

    /// Returns the calls with unique ids.
    pub(super) fn end(self) -> Vec<RequestedCall> {
        let calls = self.calls.into_iter().map(|call| RequestedCall {
            id: call.id,
            tool: call.tool,
            arguments: call.arguments,
        });
        with_own_ids(calls.collect())
    }
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
