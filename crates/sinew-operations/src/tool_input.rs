//! Converts arguments of tools to starts of workflows.

use serde_json::{Map, Value};
use sinew_protocol::artifact::ArtifactUri;
use sinew_protocol::tool::{INPUT_ARTIFACT, ToolInput, WorkflowTool};
use sinew_source::violations;

use crate::failure::{Failure, FailureKind, known};
use crate::start::{StartRequest, StartTarget};

/// Returns the request that starts a workflow with the arguments of its tool, checked against the
/// declaration. Callers without a session name an artifact by its address (`artifact://…`).
pub fn start_of_call(tool: &WorkflowTool, arguments: &Map<String, Value>) -> Result<StartRequest, Failure> {
    let target = StartTarget::Workflow { name: tool.workflow.clone(), version: None };
    match tool.prepare(arguments, violations) {
        Ok(ToolInput::Parameters(content)) => Ok(StartRequest::new(target, Value::Object(content))),
        Ok(ToolInput::Artifact(address)) if address.parse::<ArtifactUri>().is_ok() => {
            Ok(StartRequest { input_artifact: Some(address), ..StartRequest::new(target, Value::Null) })
        }
        Ok(ToolInput::Artifact(name)) => Err(Failure::usage(format!(
            "'{INPUT_ARTIFACT}' requires an address (artifact://…) here, because {name:?} is a name within a session"
        ))
        .hint("`sinew artifact put` stores a file and prints its address")),
        Err(fault) => {
            let lines: Vec<&str> =
                std::iter::once(&fault.message).chain(&fault.details).map(String::as_str).collect();
            Err(Failure::new(FailureKind::Usage, known(&fault.code), lines.join("\n  ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_start_the_workflow_in_both_modes() {
        let schema = json!({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]});
        let tool = WorkflowTool::new("orders", Some(&schema));
        let start = |arguments: Value| {
            let request = start_of_call(&tool, arguments.as_object().unwrap());
            request.map(|one| (one.input, one.input_artifact)).map_err(|failure| failure.message)
        };
        assert_eq!(start(json!({"id": "A", "input_artifact": null})), Ok((json!({"id": "A"}), None)));
        let address = "artifact://a/u/s/in.json?version=0";
        assert_eq!(start(json!({"input_artifact": address})), Ok((Value::Null, Some(address.to_owned()))));
        assert!(start(json!({"input_artifact": "in.json"})).unwrap_err().contains("requires an address"));
        assert!(start(json!({"id": 7})).unwrap_err().contains("/id"));
    }
}
