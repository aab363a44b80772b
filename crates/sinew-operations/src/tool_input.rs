//! Converts arguments of tools to inputs of workflows.

use serde_json::{Map, Value};
use sinew_protocol::tool::{INPUT_ARTIFACT, ToolInput, WorkflowTool};
use sinew_source::Schema;

use crate::failure::{Failure, FailureKind, known};

/// Returns the workflow's input for arguments of its tool, checked against the declaration.
pub fn tool_input(tool: &WorkflowTool, arguments: &Map<String, Value>) -> Result<Value, Failure> {
    let check = |schema: &Value, instance: &Value| match Schema::compile(schema) {
        Err(error) => vec![error.to_string()],
        Ok(schema) => schema
            .errors(instance)
            .into_iter()
            .map(|one| format!("{}: {}", one.pointer, one.message))
            .collect(),
    };
    // The suffix names an artifact, but here the input is part of the command.
    match tool.prepare(arguments, 0, check) {
        Ok(ToolInput::Parameters { content, .. }) => Ok(content),
        Ok(ToolInput::Artifact(_)) => Err(Failure::usage(format!(
            "'{INPUT_ARTIFACT}' names an artifact of the caller's session, but a command line has no session"
        ))
        .hint(
            "store one with `sinew artifact put`, then use `sinew run NAME --mesh --input-artifact ADDRESS`",
        )),
        Err(fault) => {
            let lines: Vec<&str> =
                std::iter::once(&fault.message).chain(&fault.details).map(String::as_str).collect();
            Err(Failure::new(FailureKind::Usage, known(&fault.code), lines.join("\n  ")))
        }
    }
}
