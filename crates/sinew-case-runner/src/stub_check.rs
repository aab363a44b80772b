//! Stubs that no longer match the workflow: it has no such node or agent, or their output violates the
//! schema of the agent.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sinew_agents::AgentSet;
use sinew_plan::Plan;
use sinew_protocol::code;
use sinew_source::{Diagnostic, Kind, Member, Node, Schema, check_node, did_you_mean};

use crate::case_file::Case;
use crate::expectation::{Mismatch, unknown_name};
use crate::observation::CaseObservation;

/// Members of a case with stubs, and the kind of each.
const KINDS: [(&str, &str); 4] =
    [("agents", "agent"), ("workflows", "workflow"), ("nodes", "node"), ("routes", "route")];

/// Returns the stubs of a case: kind and name, and the member.
fn stubs(case: &Case) -> impl Iterator<Item = (&'static str, &Member)> {
    KINDS.into_iter().flat_map(|(key, kind)| {
        let members = case.node.get(key).and_then(Node::as_object).unwrap_or_default();
        members.iter().map(move |member| (kind, member))
    })
}

/// Returns the stubs of nodes and agents that the workflow does not have, each with the index of the
/// first case that has it. Cases that share a stub by an alias share its place in the file, so it is
/// enough if one of them uses it.
pub(crate) fn unused(seen: &[(&Case, Option<&CaseObservation>)]) -> Vec<(usize, Mismatch)> {
    let mut used: BTreeSet<(u32, usize)> = BTreeSet::new();
    let mut first: BTreeMap<(u32, usize), (usize, &'static str, &Member)> = BTreeMap::new();
    for (n, (case, observed)) in seen.iter().enumerate() {
        for (kind, member) in stubs(case) {
            let place = (member.key_span.file, member.key_span.start);
            // Whether a case that did not run uses its stubs is unknown.
            let is_used = observed.is_none_or(|seen| seen.used.contains(&format!("{kind} {}", member.key)));
            if is_used {
                used.insert(place);
            }
            first.entry(place).or_insert((n, kind, member));
        }
    }
    let unused = first.into_iter().filter(|(place, _)| !used.contains(place));
    let mismatch = |(_, (n, kind, member)): (_, (usize, &'static str, &Member))| {
        let seen = seen.get(n)?.1?;
        // `NODE#TAG`, and the children of maps and loops (`m_0`).
        let base = member.key.split('#').next().unwrap_or_default();
        // A case may have stubs for a branch that it expects not to be taken.
        let is_known = seen.names.contains(base) || seen.nodes.contains_key(base);
        let line = (!is_known).then(|| unknown_name(base, seen))?;
        Some((n, Mismatch::new(member.key_span, format!("stub of {kind} {}", member.key), vec![line])))
    };
    unused.filter_map(mismatch).collect()
}

/// Returns whether a violation is more than an abbreviation: a stub may leave out required properties,
/// unless it has a property that the schema does not name and that resembles the missing one.
fn is_drift(output: &Node, finding: &Diagnostic, schema: &Value) -> bool {
    if finding.code != code::REQUIRED_PROPERTY_MISSING.as_str() {
        return true;
    }
    let missing = finding.message.split('\'').nth(1).unwrap_or_default();
    let object = finding.span.and_then(|span| object_at(output, span.start));
    let members = object.and_then(Node::as_object).unwrap_or_default();
    let unknown = members.iter().filter(|member| !names_property(schema, &member.key));
    unknown.into_iter().any(|member| did_you_mean(&member.key, std::iter::once(missing)).is_some())
}

/// Returns whether a schema describes or requires a property of this name, at any depth.
fn names_property(schema: &Value, name: &str) -> bool {
    match schema {
        Value::Object(members) => {
            let is_required = members.get("required").and_then(Value::as_array);
            members.get("properties").is_some_and(|properties| properties.get(name).is_some())
                || is_required.is_some_and(|names| names.iter().any(|one| one == name))
                || members.values().any(|value| names_property(value, name))
        }
        Value::Array(items) => items.iter().any(|item| names_property(item, name)),
        _ => false,
    }
}

/// Returns the object that starts at an offset of the file.
fn object_at(node: &Node, start: usize) -> Option<&Node> {
    match &node.kind {
        Kind::Object(_) if node.span.start == start => Some(node),
        Kind::Object(members) => members.iter().find_map(|member| object_at(&member.value, start)),
        Kind::Array(items) => items.iter().find_map(|item| object_at(item, start)),
        _ => None,
    }
}

/// Returns the outputs of stubs that break the output schema of their node or agent.
pub(crate) fn misfits(case: &Case, plan: &Plan, agents: &AgentSet) -> Vec<Mismatch> {
    let mut found = Vec::new();
    for (kind, member) in stubs(case) {
        let schema = match kind {
            "agent" => agents.get(&member.key).and_then(|agent| agent.output_schema()).cloned(),
            "node" => plan.find(&member.key).and_then(|ix| {
                let node = plan.node(ix);
                let own = node.extra.get("output_schema_override").filter(|own| own.is_object());
                let of_agent = || agents.get(node.agent.as_deref()?)?.output_schema();
                own.or_else(of_agent).cloned()
            }),
            _ => None,
        };
        let Some(source) = schema else { continue };
        let Ok(schema) = Schema::compile(&source) else { continue };
        let what = format!("stub of {kind} {}", member.key);
        for stub in member.value.as_array().unwrap_or(std::slice::from_ref(&member.value)) {
            // A status makes the output a part of another object.
            let Some(output) = stub.get("output").filter(|_| stub.get("status").is_none()) else { continue };
            let findings =
                check_node(&schema, output).into_iter().filter(|finding| is_drift(output, finding, &source));
            found.extend(findings.map(|finding| {
                let mut lines =
                    vec![format!("its output breaks the schema of the agent: {}", finding.message)];
                lines.extend(finding.hint);
                Mismatch::new(finding.span.unwrap_or(output.span), what.clone(), lines)
            }));
        }
    }
    found
}
