//! Called agents and workflows that are missing from the mesh.

use std::collections::BTreeSet;

use sinew_documents::words;
use sinew_mesh::Mesh;
use sinew_mesh::card::Cards;
use sinew_plan::{NodeOperation, Plan, PlanNode};
use sinew_protocol::card::PERSON_QUESTION;
use sinew_protocol::code;
use sinew_source::{Diagnostic, Span};

use crate::agent_list::offline_cards;
use crate::failure::Failure;

/// An agent or a workflow that a node calls, and that is not on the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingCallee {
    /// Index of the first node that calls it.
    pub node: usize,
    /// Description of the problem, with the calling node.
    pub text: String,
    /// Advice on how to fix it.
    pub hint: String,
}

impl MissingCallee {
    /// Converts it to a finding at the node's position.
    pub(crate) fn finding(self, place: Option<Span>) -> Diagnostic {
        let finding = Diagnostic::warning(code::CALLEE_NOT_ON_MESH.as_str(), self.text).hint(self.hint);
        match place {
            Some(place) => finding.at(place),
            None => finding,
        }
    }
}

/// Finds the agents that a plan calls and that are not online, and the workflows that are not
/// deployed.
pub async fn missing_callees(mesh: &Mesh, cards: &Cards, plan: &Plan) -> Result<Vec<MissingCallee>, Failure> {
    // Starts are frequent, so the usual case must not cost a request.
    if callees(plan).all(|(_, _, name)| cards.get(name).is_some()) {
        return Ok(Vec::new());
    }
    cards.current().await?;
    let mut seen = BTreeSet::new();
    let (mut found, mut offline) = (Vec::new(), None);
    let mut known: Option<Vec<String>> = None;
    for (at, node, name) in callees(plan) {
        if !seen.insert(name) || cards.get(name).is_some() || mesh.workflows().latest(name).await?.is_some() {
            continue;
        }
        let is_workflow = node.op == NodeOperation::Workflow;
        let problem = if is_workflow {
            format!("workflow '{name}' is not deployed")
        } else {
            if offline.is_none() {
                offline = Some(offline_cards(mesh, cards).await?);
            }
            match offline.iter().flatten().find(|one| one.card.name == name) {
                Some(one) => {
                    let age = words::duration(one.age.as_millis() as u64);
                    format!("agent '{name}' is offline, last seen {age} ago")
                }
                None => format!("no agent '{name}' is online"),
            }
        };
        if known.is_none() {
            known = Some(names_on_mesh(mesh, cards).await?);
        }
        let near = known.iter().flatten().map(String::as_str).filter(|known| *known != plan.name);
        if let Some(near) = sinew_source::did_you_mean(name, near) {
            let text = format!("{problem}; node '{}' calls it", node.id);
            found.push(MissingCallee { node: at, text, hint: format!("did you mean '{near}'?") });
            continue;
        }
        let hint = match (is_workflow, plan.dialect.as_str()) {
            (true, _) => "deploy it with `sinew workflow deploy FILE`",
            (false, "sam") => "serve it with `sinew serve agent FILE`",
            // A file of these dialects need not name the agent of a node.
            (false, _) => {
                "serve it with `sinew serve agent FILE`, or select an agent with `--default-agent KIND=AGENT` for nodes whose file \
                 names none"
            }
        };
        found.push(MissingCallee {
            node: at,
            text: format!("{problem}; node '{}' calls it", node.id),
            hint: hint.to_owned(),
        });
    }
    Ok(found)
}

/// Returns the names of the agents that are online and of the deployed workflows.
async fn names_on_mesh(mesh: &Mesh, cards: &Cards) -> Result<Vec<String>, Failure> {
    let workflows = mesh.workflows().follow();
    workflows.current().await?;
    let agents = cards.list().into_iter().map(|one| one.card.name.clone());
    Ok(workflows.list().iter().map(|one| one.deployment.name.clone()).chain(agents).collect())
}

/// Returns the nodes that call an agent or a workflow: index, node and name.
fn callees(plan: &Plan) -> impl Iterator<Item = (usize, &PlanNode, &str)> {
    let calls =
        |node: &PlanNode| !node.attached && matches!(node.op, NodeOperation::Agent | NodeOperation::Workflow);
    let nodes = plan.nodes.iter().enumerate().filter(move |(_, node)| calls(node));
    // Every executor serves the question to a person.
    let named = nodes.filter_map(|(at, node)| Some((at, node, node.agent.as_deref()?)));
    named.filter(|(_, _, name)| *name != PERSON_QUESTION)
}
