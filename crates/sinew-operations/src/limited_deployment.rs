//! Deployments with a key for a part of a mesh: the workflows may only call what the key permits.

use std::collections::BTreeSet;

use serde_json::Value;
use sinew_documents::words;
use sinew_plan::{NodeOperation, PlanNode};
use sinew_protocol::code;

use crate::deployment::{CheckedDeployment, deploy};
use crate::failure::{Failure, FailureKind};
use crate::mesh_operator::MeshOperator;
use crate::workflow_file::Loaded;

/// Maximum number of names in an error.
const MAX_NAMED: usize = 20;
/// Maximum length of a name in an error.
const MAX_NAME: usize = 64;

/// The workflows and agents that a caller's key permits.
pub struct KeyNames<'a> {
    /// Returns whether the key permits a name.
    pub opens: &'a (dyn Fn(&str) -> bool + Sync),
    /// Patterns of the key; `None` if it permits everything that is visible to all.
    pub patterns: Option<&'a [String]>,
}

/// Deploys all workflows of a file for the owner of a key. The key's patterns become part of the
/// plans, so that they also apply to names that are only known at runtime.
///
/// # Errors
/// `SINEW-9022` if a workflow calls a workflow or an agent that the key does not permit; those of
/// [`deploy`].
pub async fn deploy_with_key(
    operator: &MeshOperator,
    mut loaded: Loaded,
    key: KeyNames<'_>,
) -> Result<Vec<CheckedDeployment>, Failure> {
    check_calls(operator, &loaded, &key).await?;
    for workflow in &mut loaded.workflows {
        workflow.plan.limits.calls = key.patterns.map(<[String]>::to_vec);
    }
    deploy(operator.mesh(), &loaded).await
}

/// Rejects workflows that would call what the key does not permit. Checks the names in nodes and
/// all texts of the plan that name an existing agent or workflow, because dialects store agents for
/// special work in their own data.
async fn check_calls(operator: &MeshOperator, loaded: &Loaded, key: &KeyNames<'_>) -> Result<(), Failure> {
    let own: BTreeSet<&str> = loaded.workflows.iter().map(|workflow| workflow.plan.name.as_str()).collect();
    let deployed = operator.workflows().await?.list();
    let mut known: BTreeSet<String> = deployed.iter().map(|one| one.deployment.name.clone()).collect();
    known.extend(operator.online().await?.list().into_iter().map(|one| one.card.name.clone()));
    let mut named = BTreeSet::new();
    for workflow in &loaded.workflows {
        let calls = |node: &&PlanNode| matches!(node.op, NodeOperation::Agent | NodeOperation::Workflow);
        named.extend(workflow.plan.nodes.iter().filter(calls).filter_map(|node| node.agent.clone()));
        let plan = serde_json::to_value(&workflow.plan).unwrap_or_default();
        visit_texts(&plan, &mut |text| {
            if known.contains(text) {
                named.insert(text.to_owned());
            }
        });
    }
    named.retain(|name| !own.contains(name.as_str()) && !(key.opens)(name));
    if named.is_empty() {
        return Ok(());
    }
    let names: Vec<String> =
        named.iter().take(MAX_NAMED).map(|name| words::one_line(name, MAX_NAME)).collect();
    let text = format!(
        "the caller's key does not permit agents or workflows that this workflow calls: {}",
        names.join(", ")
    );
    Err(Failure::new(FailureKind::Denied, code::GATEWAY_PLAN_BEYOND_KEY.as_str(), text))
}

/// Calls `visit` with every string in a value.
fn visit_texts(value: &Value, visit: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter().for_each(|item| visit_texts(item, visit)),
        Value::Object(members) => members.values().for_each(|member| visit_texts(member, visit)),
        _ => {}
    }
}
