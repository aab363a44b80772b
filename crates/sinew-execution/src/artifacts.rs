//! Artifacts that agents made in an execution.

use std::collections::BTreeSet;

use serde_json::Value;
use sinew_engine::{ActivationId, AdapterContext, TerminalStatus};
use sinew_protocol::artifact::ArtifactUri;
use sinew_protocol::task::ResultArtifact;

use crate::events::label;
use crate::request::output_name;

/// Maximum number of artifacts of an output.
const MAX_OUTPUT_ARTIFACTS: usize = 50;

/// An artifact of an agent, and the node whose agent made it.
#[derive(Clone, Debug)]
pub struct MadeArtifact {
    /// Activation of the node.
    pub act: ActivationId,
    /// The node, with its position in maps and loops.
    pub node: String,
    /// Number of the attempt that made it, from 1.
    pub attempt: u32,
    /// The artifact.
    pub artifact: ResultArtifact,
    /// Whether the mesh generated its name.
    pub is_generated: bool,
}

/// Returns the artifacts of all successful replies, in order.
pub fn made_artifacts(ctx: &AdapterContext<'_>) -> Vec<MadeArtifact> {
    let mut made = Vec::new();
    for act in 0..ctx.state.acts.len() as ActivationId {
        let node = label(ctx, act);
        for replied in &ctx.act(act).replies {
            let Ok(reply) = &replied.result else { continue };
            let read = |artifact| ResultArtifact::from_value(artifact, &reply.output);
            for artifact in reply.artifacts.iter().filter_map(read) {
                made.push(MadeArtifact {
                    act,
                    is_generated: is_generated(artifact.meta.name.as_str(), &ctx.plan().name, &node),
                    node: node.clone(),
                    attempt: replied.attempt,
                    artifact,
                });
            }
        }
    }
    made
}

/// Returns the artifacts that belong to the output of an execution that succeeded: those that the
/// output names, and those of the last nodes. Of several with one name, only the newest.
pub fn output_artifacts(ctx: &AdapterContext<'_>) -> Vec<ResultArtifact> {
    let Some(outcome) = ctx.outcome().filter(|outcome| outcome.status == TerminalStatus::Success) else {
        return Vec::new();
    };
    let mut named = BTreeSet::new();
    if let Some(output) = &outcome.output {
        collect_names(output, &mut named);
    }
    let is_last = |act: ActivationId| {
        let node = ctx.act(act).node;
        ctx.act(act).owner.is_none() && !ctx.plan().edges.iter().any(|edge| edge.from == node)
    };
    let (mut artifacts, mut seen) = (Vec::new(), BTreeSet::new());
    for made in made_artifacts(ctx).into_iter().rev() {
        let name = made.artifact.meta.name.as_str();
        let belongs = !made.is_generated && (named.contains(name) || is_last(made.act));
        if belongs && artifacts.len() < MAX_OUTPUT_ARTIFACTS && seen.insert(name.to_owned()) {
            artifacts.push(made.artifact);
        }
    }
    artifacts.reverse();
    artifacts
}

/// Collects the texts that can name an artifact: `NAME`, `NAME:VERSION`, an address.
fn collect_names(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            if let Ok(address) = text.parse::<ArtifactUri>() {
                names.insert(address.artifact.name.to_string());
            }
            names.extend(text.rsplit_once(':').map(|(name, _)| name.to_owned()));
            names.insert(text.clone());
        }
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, names)),
        Value::Object(members) => members.values().for_each(|member| collect_names(member, names)),
        _ => {}
    }
}

/// Returns whether the mesh generated an artifact's name: `WORKFLOW_NODE_1a2b3c4d.json` or
/// `output_1a2b3c4d.json` for the output of a task, `call_….json` and `wi_….json` for the input of
/// a call.
fn is_generated(name: &str, workflow: &str, node: &str) -> bool {
    let Some(stem) = name.strip_suffix(".json") else { return false };
    let is_id =
        |id: &str, length: usize| id.len() == length && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let suggested = output_name(workflow, node, "");
    let suggested = suggested.strip_suffix(".json").and_then(|before| stem.strip_prefix(before));
    suggested.is_some_and(|id| is_id(id, 8))
        || stem.strip_prefix("output_").is_some_and(|id| is_id(id, 8))
        || stem.strip_prefix("call_").is_some_and(|id| is_id(id, 16))
        || stem.strip_prefix("wi_").and_then(|rest| rest.rsplit_once('_')).is_some_and(|(_, id)| is_id(id, 8))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_output_names_artifacts_in_three_forms() {
        let mut names = BTreeSet::new();
        let output =
            json!({"files": ["a.csv", "b.csv:2"], "at": "artifact://app/u/s/c%20d.png?version=0", "n": 1});
        collect_names(&output, &mut names);
        for name in ["a.csv", "b.csv", "c d.png"] {
            assert!(names.contains(name), "{name}: {names:?}");
        }
    }

    #[test]
    fn names_that_the_mesh_gave_are_told_from_names_of_people() {
        for (name, want) in [
            ("output_1a2b3c4d.json", true),
            ("Order_intake_price_0_1a2b3c4d.json", true),
            ("Order_intake_price_0_report.json", false),
            ("Order_intake_price_1_1a2b3c4d.json", false),
            ("call_0123456789abcdef.json", true),
            ("wi_orders_0000000f.json", true),
            ("output_report.json", false),
            ("output.json", false),
            ("report.md", false),
            ("wi_fi.json", false),
        ] {
            assert_eq!(is_generated(name, "Order intake", "price_0"), want, "{name}");
        }
    }
}
