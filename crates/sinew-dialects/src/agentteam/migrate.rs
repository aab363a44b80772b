//! Migration from older output shapes to the standard message, in the file's own text.
//!
//! Only safe changes are made: the older names of an agent's text (`response`, `output`) become
//! `content`, and a file without other reads of older shapes gets `message_format: standard`. The
//! remaining reads are reported. All other text is unchanged, byte for byte.

use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::Value;
use sinew_source::{Document, Kind, Node, Span};

use super::convert;
use super::model::{self, TeamConnection, TeamFile, TeamNode};
use super::spec::{self, NodeSpec, SpecRegistry};

/// Older field names of an agent's text.
const OLDER: [&str; 2] = ["response", "output"];
/// Fields of a standard message.
const STANDARD: [&str; 5] = ["content", "metadata", "format_type", "source_node", "timestamp"];

/// Further fields of an agent's output.
const MOVED: [&str; 2] = ["token_usage", "function_calls"];

/// `$json.member`, `$input.result.member`, `$node["name"].result.member`.
static PATH: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(\$json|\$input\.result|\$node\[\s*["']([^"']+)["']\s*\]\.result)\.(\w+)"#).ok()
});
static TEMPLATE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(?s)\{\{.*?\}\}").ok());

/// Changes of a migration to a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Migration {
    /// The new text; the old text if nothing changes.
    pub text: String,
    /// Rewritten passages, in file order.
    pub changes: Vec<MigrationNote>,
    /// Passages that need manual changes before the file can use the standard message, in file
    /// order.
    pub rest: Vec<MigrationNote>,
    /// Whether the file now uses the standard message.
    pub standard: bool,
}

/// One finding of a migration.
#[derive(Clone, Debug, PartialEq)]
pub struct MigrationNote {
    /// Span in the old text.
    pub span: Span,
    /// One-line description.
    pub what: String,
}

/// Rewrites what is safe to rewrite. `read` returns the files that `specs` names.
pub fn migrate(document: &Document, read: &dyn Fn(&str) -> Result<Vec<u8>, String>) -> Migration {
    let root = &document.root;
    let text = document.sources.get(root.span.file).map_or("", |file| &*file.text);
    let mut ignored = Vec::new();
    let file = model::read(root, &mut ignored);
    let registry = spec::registry(root, read, &mut ignored);
    let mut work =
        MigrationEditor { text, file: &file, registry: &registry, edits: Vec::new(), rest: Vec::new() };
    for connection in &file.connections {
        work.function(connection);
        work.bare(connection);
    }
    for item in root.get("nodes").and_then(Node::as_array).unwrap_or_default() {
        let id = item.get("id").and_then(Node::as_str).unwrap_or_default();
        let node = file.nodes.iter().find(|node| node.id == id);
        if let (Some(node), Some(configurations)) = (node, item.get("configurations")) {
            work.configurations(node, "", configurations);
        }
    }
    let standard = file.standard || (work.rest.is_empty() && work.set_format(root));
    work.finish(standard)
}

/// A span of the text, its replacement, and the reason.
struct TextEdit {
    start: usize,
    end: usize,
    new: String,
    note: MigrationNote,
}

struct MigrationEditor<'a> {
    text: &'a str,
    file: &'a TeamFile,
    registry: &'a SpecRegistry,
    edits: Vec<TextEdit>,
    rest: Vec<MigrationNote>,
}

impl<'a> MigrationEditor<'a> {
    fn left(&mut self, span: Span, what: String) {
        self.rest.push(MigrationNote { span, what });
    }

    fn node(&self, id: &str) -> Option<&'a TeamNode> {
        self.file.nodes.iter().find(|node| node.id == id)
    }

    /// Returns whether the output of the node has `content`, whatever shape its agent returns.
    fn gives_content(&self, node: &TeamNode) -> bool {
        let shape = self.registry.get(&node.spec_name()).and_then(NodeSpec::shape);
        let shaped = shape.is_some_and(|shape| {
            shape.contains_key("content") && OLDER.iter().all(|name| !shape.contains_key(*name))
        });
        node.kind == "AI_AGENT" && (self.file.standard || shaped)
    }

    /// Replaces a string; only quoted strings can be replaced without affecting their context.
    fn replace(&mut self, span: Span, new: &str, what: String) {
        if self.text.get(span.start..span.end).is_some_and(|raw| raw.starts_with('"')) {
            let new = Value::from(new).to_string();
            self.edits.push(TextEdit {
                start: span.start,
                end: span.end,
                new,
                note: MigrationNote { span, what },
            });
        } else {
            self.left(span, format!("{what}; do it by hand, only quoted texts are rewritten"));
        }
    }

    /// Rewrites the function of a connection from an agent, which receives the agent's answer in
    /// its own shape.
    fn function(&mut self, connection: &TeamConnection) {
        let Some(source) = &connection.conversion else { return };
        let from_agent = self.node(&connection.from).is_some_and(|node| node.kind == "AI_AGENT");
        if let Some(name) = MOVED.iter().find(|name| source.contains(**name))
            && !from_agent
            && !self.file.standard
        {
            let what = format!(
                "the function of connection '{}' reads '{name}', which a standard message has under 'metadata'",
                connection.id
            );
            self.left(connection.conversion_span, what);
        }
        let reads_new = ["'content'", "\"content\""].iter().any(|name| source.contains(name));
        if !from_agent || connection.port != "result" || reads_new {
            return;
        }
        let Some(new) = both_names(source).filter(|new| new != source) else { return };
        let id = &connection.id;
        if convert::compile(&new).is_ok() {
            let what =
                format!("the function of connection '{id}' reads 'content' first, then the older name");
            self.replace(connection.conversion_span, &new, what);
        } else {
            let what = format!(
                "the function of connection '{id}' reads an older name in a way that cannot be rewritten"
            );
            self.left(connection.conversion_span, what);
        }
    }

    /// Checks a connection without a function: whether the next node finds its fields in a standard
    /// message.
    fn bare(&mut self, connection: &TeamConnection) {
        if self.file.standard || connection.conversion.is_some() || connection.port != "result" {
            return;
        }
        let (Some(from), Some(to)) = (self.node(&connection.from), self.node(&connection.to)) else { return };
        // A node that passes data on or reads a text finds `content` if an agent's shape also has
        // it.
        let finds = matches!(to.kind.as_str(), "FLOW" | "HUMAN_IN_THE_LOOP" | "AI_AGENT");
        if finds && self.gives_content(from) {
            return;
        }
        let what = format!(
            "connection '{}' has no conversion function: node '{}' would get a standard message of '{}' and must find \
             its fields under 'content'",
            connection.id, to.id, from.id
        );
        self.left(connection.span, what);
    }

    fn configurations(&mut self, node: &TeamNode, key: &str, value: &Node) {
        match &value.kind {
            Kind::Object(members) => {
                for member in members {
                    self.configurations(node, &member.key, &member.value);
                }
            }
            Kind::Array(items) => items.iter().for_each(|item| self.configurations(node, key, item)),
            Kind::String(text) => self.expression(node, key, text, value.span),
            _ => {}
        }
    }

    fn expression(&mut self, node: &TeamNode, key: &str, text: &str, span: Span) {
        let whole = node.kind == "FLOW" && matches!(key, "condition_expression" | "condition");
        let mut notes = Vec::new();
        let new = if whole {
            self.paths(node, text, &mut notes)
        } else {
            let Some(template) = &*TEMPLATE else { return };
            template
                .replace_all(text, |found: &Captures<'_>| self.paths(node, &found[0], &mut notes))
                .into_owned()
        };
        for what in notes {
            self.left(span, what);
        }
        if new != text {
            let what = format!("'{key}' of node '{}' reads 'content' in place of an older name", node.id);
            self.replace(span, &new, what);
        }
    }

    /// Returns the text with rewritten paths; paths that cannot be rewritten are noted.
    fn paths(&self, node: &TeamNode, text: &str, notes: &mut Vec<String>) -> String {
        let Some(path) = &*PATH else { return text.to_owned() };
        let rewrite = |found: &Captures<'_>| {
            let (base, name) = (&found[1], &found[3]);
            let sources = match found.get(2) {
                Some(other) => self
                    .file
                    .nodes
                    .iter()
                    .filter(|one| [&one.id, &one.name].contains(&&other.as_str().to_owned()))
                    .collect(),
                None => self.arriving(node),
            };
            let content = !sources.is_empty() && sources.iter().all(|from| self.gives_content(from));
            if content && OLDER.contains(&name) {
                return format!("{base}.content");
            }
            if !self.file.standard && !sources.is_empty() && !STANDARD.contains(&name) {
                notes.push(format!(
                    "node '{}' reads '{base}.{name}', which a standard message has under 'content' or 'metadata'",
                    node.id
                ));
            }
            found[0].to_owned()
        };
        path.replace_all(text, rewrite).into_owned()
    }

    /// Returns the nodes whose output this node receives unconverted.
    fn arriving(&self, node: &TeamNode) -> Vec<&'a TeamNode> {
        let here = self.file.connections.iter().filter(|one| one.to == node.id);
        let bare = here.filter(|one| one.conversion.is_none() && one.port == "result");
        bare.filter_map(|one| self.node(&one.from)).collect()
    }

    /// Writes `message_format` into the metadata; returns false if that is not possible.
    fn set_format(&mut self, root: &Node) -> bool {
        const FORMAT: &str = "\"message_format\": \"standard\"";
        let metadata = root.get("metadata");
        let (owner, member) = match metadata {
            Some(metadata) => (metadata, FORMAT.to_owned()),
            None => (root, format!("\"metadata\": {{ {FORMAT} }}")),
        };
        let other = metadata.and_then(|all| all.get("message_format"));
        let what = "metadata.message_format becomes 'standard'".to_owned();
        if let Some(other) = other {
            self.replace(other.span, "standard", what);
            return self.rest.is_empty();
        }
        let span = owner.span;
        let raw = self.text.get(span.start..span.end).unwrap_or_default();
        let (Some(inside), Some(members)) = (raw.strip_prefix('{'), owner.as_object()) else {
            self.left(span, format!("{what}; do it by hand, only JSON objects are rewritten"));
            return false;
        };
        let blank = &inside[..inside.len() - inside.trim_start().len()];
        let new = if members.is_empty() { format!(" {member} ") } else { format!("{blank}{member},") };
        let end = span.start + 1 + if members.is_empty() { blank.len() } else { 0 };
        self.edits.push(TextEdit { start: span.start + 1, end, new, note: MigrationNote { span, what } });
        true
    }

    fn finish(mut self, standard: bool) -> Migration {
        self.edits.sort_by_key(|edit| edit.start);
        self.rest.sort_by_key(|note| note.span.start);
        let mut text = String::with_capacity(self.text.len());
        let mut at = 0;
        for edit in &self.edits {
            text.push_str(&self.text[at..edit.start]);
            text.push_str(&edit.new);
            at = edit.end;
        }
        text.push_str(&self.text[at..]);
        let changes = self.edits.into_iter().map(|edit| edit.note).collect();
        Migration { text, changes, rest: self.rest, standard }
    }
}

/// Returns the function with every read of an older name preferring `content`. The older name
/// remains, because an agent may still answer with it.
fn both_names(source: &str) -> Option<String> {
    let parameter = regex::escape(convert::parameter(source)?);
    let base = format!(
        r#"(\b{parameter}(?:\[\s*['"](?:value|output)['"]\s*\]|\.get\(\s*['"](?:value|output)['"]\s*\)|\[\s*['"]data['"]\s*\]\[\s*['"]result['"]\s*\]))"#
    );
    let get = Regex::new(&format!(r#"{base}\.get\(\s*(['"])(response|output)['"]\s*\)"#)).ok()?;
    let index = Regex::new(&format!(r#"{base}\[\s*(['"])(response|output)['"]\s*\]"#)).ok()?;
    let source = get.replace_all(source, "$1.get(${2}content$2, $1.get($2$3$2))");
    let source = index.replace_all(&source, "($1[${2}content$2] if ${2}content$2 in $1 else $1[$2$3$2])");
    Some(source.into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::document;

    fn migrated(workflow: &Value) -> Migration {
        let text = serde_json::to_string_pretty(workflow).unwrap();
        let migration = migrate(&document(&text), &|_| Err("none".to_owned()));
        // The result is also a workflow, and migrating it again changes nothing.
        let again = migrate(&document(&migration.text), &|_| Err("none".to_owned()));
        assert_eq!((again.changes, again.text), (Vec::new(), migration.text.clone()));
        migration
    }

    fn workflow(function: &Value, condition: &str) -> Value {
        json!({
            "metadata": { "id": "w", "name": "w" },
            "nodes": [
                { "id": "a", "name": "writer", "type": "AI_AGENT", "subtype": "OPENAI_CHATGPT" },
                { "id": "i", "name": "check", "type": "FLOW", "subtype": "IF",
                  "configurations": { "condition_expression": condition } },
                { "id": "s", "name": "post", "type": "EXTERNAL_ACTION", "subtype": "SLACK",
                  "configurations": { "text": "said: {{ $node[\"writer\"].result.response }} ($json.response)" } },
            ],
            "connections": [
                { "id": "c1", "from_node": "a", "to_node": "i" },
                { "id": "c2", "from_node": "a", "to_node": "s", "conversion_function": function },
            ],
        })
    }

    #[test]
    fn older_names_become_content_and_the_file_standard() {
        let function = json!("lambda d: {'message': d['value'].get('response')}");
        let migration = migrated(&workflow(&function, "$json.output == 'yes'"));
        assert_eq!((migration.changes.len(), migration.rest.len(), migration.standard), (4, 0, true));
        let new: Value = serde_json::from_str(&migration.text).unwrap();
        assert_eq!(new["metadata"], json!({ "message_format": "standard", "id": "w", "name": "w" }));
        assert_eq!(new["nodes"][1]["configurations"]["condition_expression"], "$json.content == 'yes'");
        // Only templates are rewritten.
        let text = "said: {{ $node[\"writer\"].result.content }} ($json.response)";
        assert_eq!(new["nodes"][2]["configurations"]["text"], text);
        let function = "lambda d: {'message': d['value'].get('content', d['value'].get('response'))}";
        assert_eq!(new["connections"][1]["conversion_function"], function);
    }

    #[test]
    fn rewritten_functions_read_both_names() {
        let check = |function: &str| {
            let new = both_names(function).unwrap();
            assert_ne!(new, function);
            for name in ["content", "response"] {
                let mut raw = json!({});
                raw[name] = json!("hi");
                let Ok(convert::ConversionResult::Value(value)) = convert::convert(&new, &raw) else {
                    panic!("{new}")
                };
                assert_eq!(value, json!({ "m": "hi" }), "{new}");
            }
        };
        check("lambda d: {'m': d['value'].get('response')}");
        check("lambda d: {'m': d['output'][\"response\"]}");
        check("lambda d: {'m': f\"{d['value']['response']}\"}");
        check("def f(x):\n    return {'m': x['data']['result'].get('response')}\n");
        check("lambda d: {'m': d.get('value').get( 'response' )}");
    }

    #[test]
    fn what_is_not_safe_is_left_and_said() {
        let check = |workflow: &Value, changes: usize, rest: &str| {
            let migration = migrated(workflow);
            let said: Vec<&str> = migration.rest.iter().map(|note| note.what.as_str()).collect();
            assert_eq!((migration.changes.len(), migration.standard), (changes, false), "{said:?}");
            assert!(said.iter().any(|text| text.contains(rest)), "{said:?}");
        };
        let handled = json!("lambda d: {'message': d['value'].get('content')}");
        // A field that moves to `metadata`.
        check(&workflow(&handled, "$json.token_usage.total > 3"), 1, "'$json.token_usage'");
        // An action without a function on its input connection.
        check(&workflow(&Value::Null, "$json.content"), 1, "connection 'c2'");
        // Outputs of nodes other than agents move to `content`, which is passed on.
        let mut passed = workflow(&handled, "$json.content");
        passed["nodes"][0]["type"] = json!("TRIGGER");
        check(&passed, 0, "connection 'c1'");
        let mut later = workflow(&handled, "$json.content");
        later["connections"][1]["from_node"] = json!("i");
        later["connections"][1]["conversion_function"] = json!("lambda d: d['value']['data']['token_usage']");
        check(&later, 1, "'token_usage'");
        // A custom spec: `response` may be a field of its own.
        let mut own = workflow(&handled, "$json.response");
        own["specs"] = json!({ "AI_AGENT.OPENAI_CHATGPT": "*" });
        check(&own, 0, "'$json.response'");
    }
}
