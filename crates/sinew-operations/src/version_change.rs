//! Changes of nodes between versions of a workflow: which outputs of an execution are still valid.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sinew_dialects::Dialect;
use sinew_plan::{NodeIndex, NodeOperation, Plan, sorted_json};

use crate::execution_start::nodes_behind;

/// Nodes of a newer version compared with an older one, by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionChange {
    /// Nodes in both versions with different definitions: work, parameters, retries, time limits or
    /// incoming edges.
    pub changed: BTreeSet<String>,
    /// Nodes only in the newer version.
    pub added: BTreeSet<String>,
    /// Nodes only in the older version.
    pub removed: BTreeSet<String>,
}

impl VersionChange {
    /// Compares two versions. A node is unchanged if its definition, and those of the nodes that it
    /// runs, are the same in both plans. Its position in the file and whether it is quiet do not
    /// count.
    pub fn between(old: &Plan, new: &Plan, dialect: Option<&dyn Dialect>) -> Self {
        let (before, after) = (definitions(old), definitions(new));
        let is_same_workflow = shared(old, dialect) == shared(new, dialect);
        let mut change = Self::default();
        for (id, definition) in &after {
            match before.get(id) {
                None => change.added.insert((*id).to_owned()),
                Some(known) if is_same_workflow && known == definition => false,
                Some(_) => change.changed.insert((*id).to_owned()),
            };
        }
        change.removed =
            before.keys().filter(|id| !after.contains_key(*id)).map(|id| (*id).to_owned()).collect();
        change
    }

    /// Returns the nodes of the newer version whose outputs an execution of the older one cannot
    /// provide: changed ones, unsuccessful ones (`unfinished`), and all their dependents.
    pub fn nodes_to_run(&self, new: &Plan, unfinished: &BTreeSet<String>) -> BTreeSet<String> {
        let begun: Vec<NodeIndex> =
            self.changed.iter().chain(&self.added).chain(unfinished).filter_map(|id| new.find(id)).collect();
        nodes_behind(new, &begun).into_iter().map(|ix| new.node(ix).id.clone()).collect()
    }
}

/// Returns the data of a plan on which each node depends.
fn shared(plan: &Plan, dialect: Option<&dyn Dialect>) -> Value {
    let settings = dialect.map_or_else(|| plan.extra.clone(), |dialect| dialect.node_settings(plan));
    json!([plan.dialect, plan.profile, settings])
}

/// Returns the definitions of all nodes as canonical JSON, by id.
fn definitions(plan: &Plan) -> BTreeMap<&str, String> {
    let mut edges: BTreeMap<NodeIndex, Vec<Value>> = BTreeMap::new();
    for edge in &plan.edges {
        // Counters and ends are positions in the plan, which shift when a node is added.
        let from = &plan.node(edge.from).id;
        edges.entry(edge.to).or_default().push(json!([
            from,
            edge.port,
            edge.handle,
            edge.label,
            edge.budget,
            edge.veto,
            edge.quorum,
            edge.attach,
            edge.extra,
        ]));
    }
    let own = |ix: NodeIndex| {
        let node = plan.node(ix);
        let mut own = serde_json::to_value(node).unwrap_or_default();
        if let Some(members) = own.as_object_mut() {
            for member in ["rank", "quiet", "op"] {
                members.shift_remove(member);
            }
        }
        json!([own, work(node.op.clone()), edges.get(&ix)])
    };
    let all = (0..plan.nodes.len() as NodeIndex).map(|ix| {
        let run = runs(plan, ix).into_iter().map(own).collect::<Vec<_>>();
        (plan.node(ix).id.as_str(), sorted_json(&json!([own(ix), run])))
    });
    all.collect()
}

/// Returns the kind of work, without the positions of the nodes that it runs.
fn work(op: NodeOperation) -> Value {
    let op = serde_json::to_value(op).unwrap_or_default();
    match op {
        Value::Object(members) => members.into_iter().next().map(|(kind, _)| json!(kind)).unwrap_or_default(),
        kind => kind,
    }
}

/// Returns the nodes that a node runs, and recursively those that they run, in order.
fn runs(plan: &Plan, ix: NodeIndex) -> Vec<NodeIndex> {
    let mut found: Vec<NodeIndex> = Vec::new();
    let mut left = vec![ix];
    while let Some(at) = left.pop() {
        let bodies = match &plan.node(at).op {
            NodeOperation::Map { body } | NodeOperation::Loop { body } => vec![*body],
            NodeOperation::Fork { bodies } => bodies.clone(),
            _ => Vec::new(),
        };
        for body in bodies {
            if !found.contains(&body) {
                found.push(body);
                left.push(body);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use sinew_dialects::{LowerOptions, by_name, no_list};
    use sinew_source::{Limits, LoadOptions, Variables, load};

    fn plan(nodes: &str, rest: &str) -> Plan {
        let text = format!("workflow: {{description: d, nodes: [{nodes}], output_mapping: {{}}{rest}}}");
        let read = |_: &std::path::Path| Err("none".to_owned());
        let options = LoadOptions {
            name: "w.yaml",
            variables: Variables::Kept,
            read: &read,
            limits: Limits::default(),
        };
        let document = load(text.as_bytes(), &options).unwrap();
        let options = LowerOptions {
            default_name: "w",
            read: &|_| Err("none".to_owned()),
            list: &no_list,
            agents: &BTreeMap::new(),
        };
        by_name("sam").unwrap().lower(document, &options).unwrap().remove(0).plan
    }

    const A: &str = "{id: a, type: agent, agent_name: A, input: {x: 1}}";
    const B: &str = "{id: b, type: agent, agent_name: B, depends_on: [a], input: {}}";
    const C: &str = "{id: c, type: agent, agent_name: C, depends_on: [b], input: {}}";
    const EACH: &str =
        "{id: m, type: map, items: [1, 2], node: body}, {id: body, type: agent, agent_name: D, input: {}}";

    #[test]
    fn nodes_that_are_defined_otherwise_are_found() {
        // Nodes and other parts of the newer version, and what is changed, added and removed by it; what depends on them.
        let old = plan(&format!("{A}, {B}, {C}, {EACH}"), "");
        let check = |nodes: &str, rest: &str, expected: [&str; 4]| {
            let new = plan(nodes, rest);
            let change = VersionChange::between(&old, &new, by_name("sam"));
            let run = change.nodes_to_run(&new, &BTreeSet::new());
            let seen = [&change.changed, &change.added, &change.removed, &run];
            let seen = seen.map(|ids| ids.iter().map(String::as_str).collect::<Vec<_>>().join(" "));
            assert_eq!(seen, expected.map(str::to_owned), "{nodes} {rest}");
        };
        check(&format!("{A}, {B}, {C}, {EACH}"), "", ["", "", "", ""]);
        // The position in the file, descriptive texts and the workflow's output change no node.
        check(&format!("{EACH}, {C}, {B}, {A}"), "", ["", "", "", ""]);
        check(
            &format!("{A}, {B}, {C}, {EACH}"),
            ", version: 7, display: {quiet: {nodes: [a]}}",
            ["", "", "", ""],
        );
        check(&format!("{A}, {}, {C}, {EACH}", B.replace("name: B", "name: Z")), "", ["b", "", "", "b c"]);
        check(
            &format!("{A}, {B}, {C}, {}", EACH.replace("name: D", "name: Z")),
            "",
            ["body m", "", "", "body m"],
        );
        let extra = "{id: x, type: agent, agent_name: X, depends_on: [a], input: {}}";
        check(&format!("{A}, {extra}, {B}, {C}, {EACH}"), "", ["", "x", "", "x"]);
        check(&format!("{A}, {B}, {EACH}"), "", ["", "", "c", ""]);
        // A node whose edges changed got other inputs.
        check(&format!("{A}, {B}, {}, {EACH}", C.replace("[b]", "[a]")), "", ["c", "", "", "c"]);
        let unfinished = BTreeSet::from(["b".to_owned()]);
        let run = VersionChange::default().nodes_to_run(&old, &unfinished);
        assert_eq!(run.into_iter().collect::<Vec<_>>(), ["b", "c"]);
    }
}
