//! `display` of a workflow file: nodes that its author marks as plumbing. It changes the
//! presentation of a workflow, never its behaviour.

use serde_json::{Value, json};
use sinew_plan::PlanNode;
use sinew_protocol::code;
use sinew_source::{Diagnostic, Node, hint_for};

/// Field of a workflow with its display settings.
pub(crate) const DISPLAY: &str = "display";

const QUIET: &str = "quiet";
const NODES: &str = "nodes";
const KINDS: &str = "kinds";

/// Marks the nodes that `display` declares quiet, by id or by kind. Parts without an effect are
/// reported as warnings: they are no reason to reject a workflow.
pub(crate) fn mark_quiet(display: Option<&Node>, nodes: &mut [PlanNode]) -> Vec<Diagnostic> {
    let mut reader = DisplayReader { found: Vec::new() };
    let Some(display) = display.filter(|display| !display.is_null()) else { return reader.found };
    reader.check_members(display, DISPLAY, &[QUIET]);
    if let Some(quiet) = display.get(QUIET) {
        reader.check_members(quiet, "display.quiet", &[NODES, KINDS]);
        reader.mark(quiet, NODES, nodes, |node| &node.id);
        reader.mark(quiet, KINDS, nodes, |node| &node.kind);
    }
    reader.found
}

/// Returns `display` of a workflow with these nodes; `None` if none of them is quiet.
pub(crate) fn document<'n>(nodes: impl Iterator<Item = &'n PlanNode>) -> Option<Value> {
    let quiet: Vec<&str> = nodes.filter(|node| node.quiet).map(|node| node.id.as_str()).collect();
    (!quiet.is_empty()).then(|| json!({ QUIET: { NODES: quiet } }))
}

/// Returns the JSON Schema of `display`, for editors.
pub(crate) fn schema() -> Value {
    let names = |about: &str| json!({ "type": "array", "description": about, "items": { "type": "string" } });
    json!({
        "description": "How the workflow is displayed. Graphs draw quiet nodes small; lists and \
            timelines fold them.",
        "type": "object",
        "properties": { QUIET: {
            "type": "object",
            "description": "Nodes that are drawn small and folded in lists.",
            "properties": { NODES: names("Ids of quiet nodes."), KINDS: names("Types of quiet nodes.") },
            "additionalProperties": false
        } },
        "additionalProperties": false
    })
}

struct DisplayReader {
    found: Vec<Diagnostic>,
}

impl DisplayReader {
    fn warn(&mut self, at: &Node, message: String, hint: Option<String>) {
        let warning = Diagnostic::warning(code::DISPLAY_HAS_NO_EFFECT.as_str(), message).at(at.span);
        self.found.push(match hint {
            Some(hint) => warning.hint(hint),
            None => warning,
        });
    }

    fn check_members(&mut self, node: &Node, path: &str, known: &[&str]) {
        let Some(members) = node.as_object() else {
            let message =
                format!("{path} is an object with {}, not {}", known.join(" and "), node.type_name());
            return self.warn(node, message, None);
        };
        for member in members.iter().filter(|member| !known.contains(&member.key.as_str())) {
            let near = hint_for(self.found.len(), &member.key, known.iter().copied());
            let hint = near.map(|near| format!("did you mean '{near}'?"));
            self.warn(&member.value, format!("{path} has no '{}'", member.key), hint);
        }
    }

    /// Marks the nodes whose `name_of` is in a list of the file.
    fn mark(
        &mut self,
        quiet: &Node,
        list: &str,
        nodes: &mut [PlanNode],
        name_of: impl Fn(&PlanNode) -> &str,
    ) {
        let Some(names) = quiet.get(list).filter(|names| !names.is_null()) else { return };
        let Some(items) = names.as_array() else {
            let message = format!("display.quiet.{list} is a list of names, not {}", names.type_name());
            return self.warn(names, message, None);
        };
        for item in items {
            let Some(name) = item.as_str() else {
                let message = format!("display.quiet.{list} lists names, not {}", item.type_name());
                self.warn(item, message, None);
                continue;
            };
            let mut is_there = false;
            for node in nodes.iter_mut().filter(|node| name_of(node) == name) {
                (node.quiet, is_there) = (true, true);
            }
            if !is_there {
                let near = hint_for(self.found.len(), name, nodes.iter().map(&name_of));
                let hint = near.map(|near| format!("did you mean '{near}'?"));
                let what = if list == NODES { "node" } else { "kind of node" };
                self.warn(
                    item,
                    format!("{what} '{name}' does not exist, so its entry in display.quiet has no effect"),
                    hint,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::by_name;
    use crate::testing::lower;

    /// Returns a workflow of each dialect with nodes `a` and `b`, and `display` at its position in
    /// that dialect.
    fn files(display: &Value) -> Vec<(&'static str, Value)> {
        let agent = |id: &str| json!({ "id": id, "type": "agent", "agent_name": "A", "input": {} });
        let action = |id: &str| json!({ "id": id, "type": "ACTION", "subtype": "DATA_TRANSFORMATION" });
        vec![
            (
                "sam",
                json!({ "workflow": { "description": "d", "nodes": [agent("a"), agent("b")], "output_mapping": {}, "display": display } }),
            ),
            (
                "sam",
                json!({ "description": "d", "nodes": [agent("a"), agent("b")], "output_mapping": {}, "display": display }),
            ),
            (
                "sweny",
                json!({ "id": "w", "name": "w", "entry": "a", "edges": [{ "from": "a", "to": "b" }], "display": display,
                    "nodes": { "a": { "name": "a", "instruction": "x" }, "b": { "name": "b", "instruction": "x" } } }),
            ),
            (
                "agentflow",
                json!({ "display": display, "nodes": [{ "id": "a", "type": "start" }, { "id": "b", "type": "agent" }],
                    "connections": [{ "source": "a", "target": "b" }] }),
            ),
            (
                "agentteam",
                json!({ "metadata": { "name": "w", "display": display }, "nodes": [action("a"), action("b")],
                    "connections": [{ "from_node": "a", "to_node": "b" }] }),
            ),
            (
                "covalt",
                json!({ "display": display, "nodes": [{ "id": "a", "type": "chat-start" }, { "id": "b", "type": "agent" }],
                    "edges": [{ "source": "a", "target": "b", "data": { "channel": "flow" } }] }),
            ),
        ]
    }

    /// Returns the ids of the quiet nodes, and the warnings about `display`.
    fn quiet(dialect: &str, file: &Value) -> (Vec<String>, Vec<String>) {
        let lowered =
            lower(by_name(dialect).unwrap(), file).unwrap_or_else(|found| panic!("{dialect}: {found:?}"));
        let nodes = lowered.plan.nodes.iter().filter(|node| node.quiet).map(|node| node.id.clone());
        let warnings = lowered.warnings.items.iter().filter(|item| item.code == "SINEW-2128");
        (nodes.collect(), warnings.map(|item| item.message.clone()).collect())
    }

    #[test]
    fn each_dialect_has_a_place_for_quiet_nodes() {
        for (dialect, file) in files(&json!({ "quiet": { "nodes": ["b"] } })) {
            assert_eq!(quiet(dialect, &file), (vec!["b".to_owned()], vec![]), "{dialect}");
        }
        for ((dialect, loud), (_, named)) in files(&Value::Null).iter().zip(files(&json!({ "quiet": {} }))) {
            let plan = |file| lower(by_name(dialect).unwrap(), file).unwrap().plan;
            // Plans of workflows without `display` keep their digest.
            assert_eq!(sinew_plan::digest(&plan(loud)), sinew_plan::digest(&plan(&named)), "{dialect}");
            assert!(!serde_json::to_string(&plan(loud)).unwrap().contains("quiet"), "{dialect}");
            let kinds: Vec<String> = plan(loud).nodes.iter().map(|node| node.kind.clone()).collect();
            let marked = files(&json!({ "quiet": { "kinds": [kinds[1]] } }));
            let (_, file) = marked.iter().find(|(name, _)| name == dialect).unwrap();
            let same = kinds.iter().filter(|kind| **kind == kinds[1]).count();
            assert_eq!(quiet(dialect, file).0.len(), same, "{dialect}");
        }
    }

    #[test]
    fn names_that_change_nothing_are_warned_of() {
        let check = |display: Value, marked: &[&str], warnings: &[&str]| {
            for (dialect, file) in files(&display) {
                let (nodes, found) = quiet(dialect, &file);
                assert_eq!(
                    (nodes, found.as_slice()),
                    (
                        marked.iter().map(|id| (*id).to_owned()).collect(),
                        &warnings.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>()[..]
                    ),
                    "{dialect} {display}"
                );
            }
        };
        check(json!("grid"), &[], &["display is an object with quiet, not string"]);
        check(json!({ "quite": {} }), &[], &["display has no 'quite'"]);
        check(
            json!({ "quiet": ["b"] }),
            &[],
            &["display.quiet is an object with nodes and kinds, not array"],
        );
        check(
            json!({ "quiet": { "nodes": ["bb", 7, "b"], "kinds": "x" } }),
            &["b"],
            &[
                "node 'bb' does not exist, so its entry in display.quiet has no effect",
                "display.quiet.nodes lists names, not integer",
                "display.quiet.kinds is a list of names, not string",
            ],
        );
    }

    #[test]
    fn a_written_sam_file_keeps_quiet_nodes() {
        for (dialect, file) in files(&json!({ "quiet": { "nodes": ["b"] } })) {
            let dialect = by_name(dialect).unwrap();
            let plan = lower(dialect, &file).unwrap().plan;
            let Ok(converted) = crate::to_sam(&plan, dialect) else { continue };
            assert_eq!(
                quiet("sam", &converted.document).0,
                ["b"],
                "{}: {}",
                dialect.name(),
                converted.document
            );
        }
    }
}
