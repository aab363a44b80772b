//! Checks of wire handles against those of the built-in node types.

use sinew_protocol::code;
use sinew_source::{Diagnostic, Span, hint_for};

use super::catalogue::{self, NodeCatalogue, NodeDefinition, NodeMode};
use super::compute;
use super::model::{CanvasEdge, CanvasGraph, CanvasNode};

/// Minimum length of a handle name that is reported as misspelled, in characters. Shorter names are
/// often an agent's own and resemble too many others.
const MIN_NAME_CHARS: usize = 5;
/// The data spine at the end of a wire.
const DATA_INPUTS: [&str; 2] = ["input", "data"];
/// The data spine at the start of a wire.
const DATA_OUTPUTS: [&str; 2] = ["output", "data"];

/// Handles of one side of a node.
struct NodeHandles<'d> {
    known: Vec<&'d str>,
    /// Whether the node may have other handles: then only names similar to a known one are
    /// reported.
    is_open: bool,
}

/// Reports wires at handles that the types of their nodes lack.
pub(super) fn check(graph: &CanvasGraph, catalogue: &NodeCatalogue, found: &mut Vec<Diagnostic>) {
    let definition = |node: &CanvasNode| catalogue::built_in_kind(catalogue, &node.kind);
    for edge in &graph.edges {
        if let Some(node) = graph.find(&edge.source)
            && let Some(definition) = definition(node)
            && let Some(handles) = output_handles(node, definition, edge)
        {
            report(node, "output", &edge.source_handle, &handles, edge.source_span, found);
        }
        if let Some(node) = graph.find(&edge.target)
            && let Some(definition) = definition(node)
            && !node.data.contains_key(&edge.target_handle)
            && let Some(handles) = input_handles(node, definition, edge)
        {
            report(node, "input", &edge.target_handle, &handles, edge.target_span, found);
        }
    }
}

/// Returns the handles at which a wire may start; `None` if they are unknown.
fn output_handles<'d>(
    node: &CanvasNode,
    definition: &'d NodeDefinition,
    edge: &CanvasEdge,
) -> Option<NodeHandles<'d>> {
    let declared = definition.outputs.keys().map(String::as_str);
    if edge.link {
        // A structural wire is built with or without a name of its start.
        let known: Vec<&str> = declared.chain(["output"]).collect();
        return (known.len() > 1).then_some(NodeHandles { known, is_open: false });
    }
    let is_computed =
        definition.agent.is_none() || compute::is_python(&node.data) || compute::is_blank(&node.data);
    let mut known: Vec<&str> = match node.kind.as_str() {
        "conditional" => vec!["true", "false"],
        "webhook-end" => vec![compute::RESPONSE],
        // The agent names the branches.
        "classifier" | "router" => return None,
        "code" if !is_computed => return None,
        _ => DATA_OUTPUTS.into_iter().chain(declared).collect(),
    };
    if node.data.get("on_error").is_some_and(|way| way == "continue") {
        known.extend(DATA_OUTPUTS);
    }
    Some(NodeHandles { known, is_open: definition.agent.is_some() && node.kind != "code" })
}

/// Returns the handles at which a wire may end; `None` if the node accepts a value at any handle.
fn input_handles<'d>(
    node: &CanvasNode,
    definition: &'d NodeDefinition,
    edge: &CanvasEdge,
) -> Option<NodeHandles<'d>> {
    let declared = definition.inputs.keys().map(String::as_str);
    if edge.link {
        return (!definition.inputs.is_empty())
            .then(|| NodeHandles { known: declared.collect(), is_open: false });
    }
    if definition.mode == NodeMode::Structural {
        return None;
    }
    let parameters: &[&str] = match node.kind.as_str() {
        "conditional" => &["field", "operator", "value", "caseSensitive"],
        "webhook-end" => &["status", "headers", "body"],
        "json-transform" => &["mapping", "template", "json", "output", "expression"],
        "model-selector" => &["model"],
        "loop" => &["items", "parallel"],
        "http-request" => &["url", "method", "query", "headers", "body"],
        // These read every handle, or have no input handles.
        "merge" | "prompt-template" | "code" | "reroute" | "chat-start" | "webhook-trigger" => return None,
        _ => &[],
    };
    // Numbered handles belong to the agent.
    if definition.agent.is_some() && edge.target_handle.ends_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let known = DATA_INPUTS.into_iter().chain(declared).chain(parameters.iter().copied()).collect();
    Some(NodeHandles { known, is_open: definition.agent.is_some() })
}

fn report(
    node: &CanvasNode,
    side: &str,
    handle: &str,
    handles: &NodeHandles<'_>,
    place: Span,
    found: &mut Vec<Diagnostic>,
) {
    if handles.known.contains(&handle) {
        return;
    }
    let near = hint_for(found.len(), handle, handles.known.iter().copied());
    // A handle that resembles `tools` at the end of a wire has no other meaning, however short.
    let is_slip = near.is_some() && (side == "input" || handle.chars().count() >= MIN_NAME_CHARS);
    if handles.is_open && !is_slip {
        return;
    }
    let message = format!("node '{}' ({}) has no {side} handle '{handle}'", node.id, node.kind);
    let hint = near.map_or_else(
        || format!("its {side} handles are '{}'", handles.known.join("', '")),
        |near| format!("did you mean '{near}'?"),
    );
    found.push(
        Diagnostic::warning(code::COVALT_WORD_UNKNOWN.as_str(), message)
            .at(place)
            .sub_code("UNKNOWN_HANDLE")
            .hint(hint),
    );
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Covalt;
    use super::super::tests::graph;
    use crate::testing::{document, lower};
    use crate::{Dialect, LowerOptions, no_list};

    fn warnings(nodes: &str, edges: &str, data: &Value) -> Vec<String> {
        told(&graph(nodes, edges, data))
    }

    fn told(file: &Value) -> Vec<String> {
        let found = lower(&Covalt, file).unwrap_or_else(|refused| panic!("{refused}")).warnings;
        let own = found.items.iter().filter(|item| item.sub_code.as_deref() == Some("UNKNOWN_HANDLE"));
        own.map(|item| {
            let near = item.hint.as_deref().and_then(|hint| hint.strip_prefix("did you mean "));
            near.unwrap_or("a handle").trim_end_matches('?').trim_matches('\'').to_owned()
        })
        .collect()
    }

    const NODES: &str = "cs:chat-start c:conditional a:agent t:toolset m:model-selector w:webhook-end x:merge \
                         r:reroute k:classifier h:http-request j:json-transform p:prompt-template l:llm-completion";

    #[test]
    fn handles_that_a_type_lacks_are_told() {
        let check =
            |edges: &str, want: &[&str]| assert_eq!(warnings(NODES, edges, &json!({})), want, "{edges}");
        for right in [
            "cs>c c.true>a c.false>w",
            "cs.data>c.data c.true>r r>w.body",
            "t.tools~a.tools t~a.tools m.model>a.model m>l.model m~a.model",
            "cs>x.input cs>x.input_2 cs>x.first",
            "cs>k k.billing>a k.date>r",
            "cs>a a>r a.mine>w a.reply>w",
            "cs>h.url h>j.mapping cs>p.name p>l.prompt l>a.extra cs>a.input_2",
        ] {
            check(right, &[]);
        }
        check("cs>c c.treu>a", &["true"]);
        check("cs>c c.output>a", &["a handle"]);
        check("cs>c c.ture>a c.flase>r", &["true", "false"]);
        check("cs.ouput>a", &["output"]);
        check("cs>c.feild", &["field"]);
        check("cs>c.in", &["a handle"]);
        check("t.tools~a.tool", &["tools"]);
        check("t.tool~a.tools", &["tools"]);
        check("t.tools~a", &["a handle"]);
        check("cs>a a.ouput>r", &["output"]);
        check("cs>a.instuctions", &["instructions"]);
        check("cs>a.tool", &["tools"]);
        check("m.modell>a.model", &["model"]);
        check("cs>w.boddy", &["body"]);
        check("cs>w w.result>r", &["a handle"]);
    }

    #[test]
    fn handles_follow_the_data_of_the_node_and_plugins() {
        let check = |kind: &str, edges: &str, data: Value, want: &[&str]| {
            let file = graph(&format!("cs:chat-start n:{kind} r:reroute"), edges, &json!({ "n": data }));
            assert_eq!(told(&file), want, "{kind} {edges} {data}");
            let mut plugged = file;
            plugged["plugins"] = json!({ kind: { "description": "a type of its own" } });
            assert_eq!(told(&plugged), [""; 0], "{kind} {edges}");
        };
        check("conditional", "cs>n n.output>r", json!({ "on_error": "continue" }), &[]);
        check("conditional", "cs>n n.output>r", json!({ "on_error": "stop" }), &["a handle"]);
        check("conditional", "cs>n.own n.true>r", json!({ "own": 1 }), &[]);
        check("agent", "cs>n.tool n>r", json!({ "tool": 1 }), &[]);
        check("agent", "cs>n.tool n>r", json!({}), &["tools"]);
        let python = json!({ "code": "def f(a):\n    return 1" });
        check("code", "cs>n n.result>r", python, &["a handle"]);
        check("code", "cs>n n.result>r", json!({ "code": "return 1", "language": "js" }), &[]);
        check("loop", "cs>n n.outputs>r", json!({ "workflow": "w" }), &["output"]);
    }

    #[test]
    fn a_graph_inside_a_loop_is_checked_and_the_place_is_that_of_the_handle() {
        let inner = r#"{"nodes": [{"id": "c", "type": "conditional"}, {"id": "r", "type": "reroute"}], "edges": [
            {"source": "c", "sourceHandle": "treu", "target": "r"}]}"#;
        let nodes = r#"{"id": "cs", "type": "chat-start"}, {"id": "l", "type": "loop""#;
        let file = format!(
            r#"{{"nodes": [{nodes}, "data": {{"graph": {inner}}}}}], "edges": [{{"source": "cs", "target": "l"}}]}}"#
        );
        let read = |_: &str| Err("no file".to_owned());
        let agents = std::collections::BTreeMap::new();
        let options = LowerOptions { default_name: "w", read: &read, list: &no_list, agents: &agents };
        let lowered = Covalt.lower(document(&file), &options).unwrap();
        let place = |item: &sinew_source::Diagnostic| {
            let place = item.span.unwrap();
            (item.code, place.line, place.column)
        };
        let seen: Vec<_> = lowered[0].warnings.items.iter().map(place).collect();
        assert_eq!(seen, [("SINEW-2407", 2, 45)]);
    }
}
