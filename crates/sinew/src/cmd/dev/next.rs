//! The next command that `sinew dev` suggests: it runs a deployed workflow with an accepted input.

use serde_json::Value;
use sinew_agents::AgentSet;
use sinew_dialects::Lowered;
use sinew_documents::words;
use sinew_engine::ExecutionMode;
use sinew_operations::input_check::check_input;
use sinew_operations::sample_input::sample_of_schema;
use sinew_operations::workflow_file::{self, Loaded};
use sinew_plan::NodeOperation;

/// A command to run next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NextCommand {
    /// Run a deployed workflow.
    Run { workflow: String, input: Option<Value> },
    /// Call an agent, if no workflow is deployed.
    Call { agent: String },
    /// Create a workflow, if the mesh has neither.
    New,
}

impl NextCommand {
    /// Returns the command line; `at` names the mesh.
    pub(super) fn line(&self, at: &str) -> String {
        match self {
            Self::Run { workflow, input } => {
                let input = input.as_ref().map(|input| format!(" -i {}", words::shell(&input.to_string())));
                let input = input.unwrap_or_default();
                format!("sinew run {} {at}{input} --watch", words::shell(workflow))
            }
            Self::Call { agent } => format!("sinew agent call {} {at} -i '{{}}'", words::shell(agent)),
            Self::New => "sinew new workflow hello".to_owned(),
        }
    }
}

/// Chooses the first workflow that accepts a sample input and whose agents are served, else the first
/// that accepts one.
pub(super) fn next_command(loaded: &[Loaded], agents: &AgentSet) -> NextCommand {
    let mut choices = Vec::new();
    for file in loaded {
        for lowered in &file.workflows {
            let Ok(program) = workflow_file::program(file.dialect, lowered) else { continue };
            let made_up = lowered.plan.input_schema.as_ref().map(sample_of_schema);
            let input = made_up.filter(|input| input.as_object().is_none_or(|fields| !fields.is_empty()));
            let given = input.clone().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
            let is_taken = check_input(&program, &given, &ExecutionMode::default()).is_ok();
            choices.push((!is_taken, !is_served(lowered, loaded, agents), lowered.plan.name.clone(), input));
        }
    }
    choices.sort_by_key(|(is_refused, lacks_agents, ..)| (*is_refused, *lacks_agents));
    match choices.into_iter().next() {
        Some((is_refused, _, workflow, input)) => {
            NextCommand::Run { workflow, input: input.filter(|_| !is_refused) }
        }
        None => match agents.names().next() {
            Some(agent) => NextCommand::Call { agent: agent.to_owned() },
            None => NextCommand::New,
        },
    }
}

/// Returns whether all agents and workflows that a workflow calls are served.
fn is_served(lowered: &Lowered, loaded: &[Loaded], agents: &AgentSet) -> bool {
    let is_deployed =
        |name: &str| loaded.iter().flat_map(|file| &file.workflows).any(|one| one.plan.name == name);
    lowered.plan.nodes.iter().filter(|node| !node.attached).all(|node| {
        match (&node.op, node.agent.as_deref()) {
            (NodeOperation::Agent, Some(name)) => agents.get(name).is_some() || is_deployed(name),
            (NodeOperation::Workflow, Some(name)) => is_deployed(name),
            _ => true,
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_can_be_typed() {
        let run = NextCommand::Run { workflow: "orders".into(), input: Some(json!({"a": "b's"})) };
        assert_eq!(run.line("--mesh"), r#"sinew run orders --mesh -i '{"a":"b'\''s"}' --watch"#);
        assert_eq!(NextCommand::New.line("--mesh"), "sinew new workflow hello");
    }
}
