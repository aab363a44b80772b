//! Tools that a conversation finds while it runs: the record of a search adds them, and `call_tool`
//! calls them, so that the list of tools in prompts never changes.

use std::borrow::Cow;

use serde_json::Value;
use sinew_source::Schema;

use crate::spec::{CALL_TOOL_SOURCE, ConversationSpec, ToolSpec};
use crate::state::ConversationState;
use crate::turn::RequestedCall;

impl ConversationSpec {
    /// Returns the tool of a call by its name: a declared one, else a discovered one with the settings
    /// of its rule.
    pub(crate) fn callable(&self, state: &ConversationState, name: &str) -> Option<Cow<'_, ToolSpec>> {
        if let Some(tool) = self.tool(name) {
            return Some(Cow::Borrowed(tool));
        }
        let found = state.discovered(name)?;
        let rule = self.discover_rules.get(found.rule as usize)?;
        // The callee checks arguments against parameters that cannot be compiled here.
        let parameters = Schema::compile(&found.declaration.parameters).ok();
        Some(Cow::Owned(ToolSpec { declaration: found.declaration.clone(), parameters, ..rule.clone() }))
    }

    /// Replaces a call of `call_tool` by the call of the tool that it names.
    pub(crate) fn unwrapped(&self, call: RequestedCall) -> RequestedCall {
        if self.tool(&call.tool).is_none_or(|tool| tool.source != CALL_TOOL_SOURCE) {
            return call;
        }
        let Ok(Value::Object(mut members)) = serde_json::from_str(&call.arguments) else { return call };
        let Some(Value::String(tool)) = members.remove("tool") else { return call };
        let arguments = match members.remove("arguments") {
            None | Some(Value::Null) => String::new(),
            // Small models write the arguments as a text.
            Some(Value::String(text)) => text,
            Some(arguments) => arguments.to_string(),
        };
        RequestedCall { id: call.id, tool, arguments, through: Some(call.tool) }
    }
}
