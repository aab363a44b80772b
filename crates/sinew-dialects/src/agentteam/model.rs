//! The file as nodes and connections with their spans, and errors in their shape.

use sinew_protocol::code;
use std::collections::BTreeSet;

use serde_json::{Map, Value};
use sinew_source::{Diagnostic, Member, Node, Span, did_you_mean};

use crate::near_members::missing_member;

use super::argument::ConversionArgument;
use super::schema::SchemaChecks;

/// A workflow as written in the file.
pub(super) struct TeamFile {
    pub(super) name: Option<String>,
    pub(super) description: String,
    pub(super) version: Option<String>,
    /// `metadata.message_format: standard` makes every output a [`super::StandardMessage`].
    pub(super) standard: bool,
    /// `metadata.conversion_argument`: the argument of conversion functions.
    pub(super) argument: ConversionArgument,
    /// `metadata.schema_checks`: treatment of inputs and outputs that violate the specs.
    pub(super) schema_checks: SchemaChecks,
    pub(super) nodes: Vec<TeamNode>,
    pub(super) connections: Vec<TeamConnection>,
    /// Nodes with a duplicate id: they are checked but do not run.
    pub(super) repeated: Vec<TeamNode>,
    /// Ids of nodes without a usable shape.
    pub(super) unusable: BTreeSet<String>,
    /// Ids of the nodes that start, with their spans; empty = all nodes without a predecessor.
    pub(super) triggers: Vec<(String, Span)>,
}

/// One node of the file.
pub(super) struct TeamNode {
    pub(super) id: String,
    /// Name in messages: the name, or else the id.
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) subtype: String,
    pub(super) configurations: Map<String, Value>,
    pub(super) input_params: Map<String, Value>,
    /// Tools and memories of an agent.
    pub(super) attached: Vec<(String, Span)>,
    pub(super) span: Span,
    pub(super) id_span: Span,
    pub(super) kind_span: Span,
    pub(super) subtype_span: Span,
    /// The configurations as written.
    pub(super) written: Vec<Member>,
}

impl TeamNode {
    /// Returns the span of a configuration, or else that of the node.
    pub(super) fn place(&self, key: &str) -> Span {
        self.written.iter().find(|member| member.key == key).map_or(self.span, |member| member.value.span)
    }
}

impl TeamNode {
    /// Returns `TYPE.SUBTYPE`, the name of its spec.
    pub(super) fn spec_name(&self) -> String {
        format!("{}.{}", self.kind, self.subtype)
    }
}

/// One connection of the file.
pub(super) struct TeamConnection {
    pub(super) id: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) port: String,
    pub(super) conversion: Option<String>,
    pub(super) span: Span,
    pub(super) from_span: Span,
    pub(super) to_span: Span,
    /// Span of the id, or else of the connection.
    pub(super) id_span: Span,
    /// Span of the port, or else of the connection.
    pub(super) port_span: Span,
    /// Span of the conversion function.
    pub(super) conversion_span: Span,
}

/// Returns the resemblance of a document to these workflows, 0 to 100.
pub(super) fn resemblance(root: &Node) -> u8 {
    let Some(nodes) = root.get("nodes").and_then(Node::as_array) else {
        let connections = root.get("connections").and_then(Node::as_array).unwrap_or_default();
        let ours =
            connections.iter().any(|one| one.get("from_node").is_some() && one.get("to_node").is_some());
        // Connections of this dialect without nodes: most likely a misspelled name.
        return if ours { 40 } else { 0 };
    };
    let connections = root.get("connections").and_then(Node::as_array).unwrap_or_default();
    // One end may be misspelled.
    if !connections.iter().all(|one| one.get("from_node").is_some() || one.get("to_node").is_some()) {
        return 0;
    }
    let typed = |node: &Node| node.get("type").is_some() && node.get("subtype").is_some();
    if !nodes.is_empty() && nodes.iter().all(typed) { 95 } else { 0 }
}

/// Reads a file; reports and omits entries without a usable shape.
pub(super) fn read(root: &Node, found: &mut Vec<Diagnostic>) -> TeamFile {
    let mut reader = TeamFileReader { found };
    let metadata = root.get("metadata");
    let text = |key: &str| metadata.and_then(|all| all.get(key)).and_then(Node::as_str).map(str::to_owned);
    let mut nodes: Vec<TeamNode> = Vec::new();
    let (mut ids, mut unusable) = (BTreeSet::new(), BTreeSet::new());
    let mut repeated = Vec::new();
    let items = reader.list(root, "nodes", true);
    if items.is_empty()
        && let Some(list) = root.get("nodes").filter(|list| list.as_array().is_some())
    {
        reader.report(list.span, "a workflow needs at least one node".to_owned());
    }
    for (n, item) in items.iter().enumerate() {
        let Some(node) = reader.node(n, item) else {
            unusable.extend(item.get("id").and_then(Node::as_str).map(str::to_owned));
            continue;
        };
        if ids.insert(node.id.clone()) {
            nodes.push(node);
        } else {
            reader.report(node.id_span, format!("two nodes have the id '{}'", node.id));
            repeated.push(node);
        }
    }
    let connections = reader.list(root, "connections", false).iter().enumerate();
    let connections = connections.filter_map(|(n, item)| reader.connection(n, item)).collect();
    let triggers = reader.list(root, "triggers", false).iter();
    TeamFile {
        name: text("name").or_else(|| root.get("name").and_then(Node::as_str).map(str::to_owned)),
        description: text("description").unwrap_or_default(),
        version: text("version"),
        standard: text("message_format").as_deref() == Some("standard"),
        argument: reader.word(
            metadata,
            "conversion_argument",
            ConversionArgument::of_word,
            "payload or wrapper",
        ),
        schema_checks: reader.word(metadata, "schema_checks", SchemaChecks::of_word, "warn, fail or off"),
        repeated,
        unusable,
        triggers: reader.ids(triggers.as_slice(), "triggers"),
        nodes,
        connections,
    }
}

struct TeamFileReader<'a> {
    found: &'a mut Vec<Diagnostic>,
}

impl TeamFileReader<'_> {
    fn report(&mut self, span: Span, message: String) {
        self.found.push(
            Diagnostic::error(code::AGENT_TEAM_WORKFLOW_WRONG_SHAPE.as_str(), message)
                .at(span)
                .sub_code("WorkflowValidationError"),
        );
    }

    fn list<'n>(&mut self, owner: &'n Node, key: &str, needed: bool) -> &'n [Node] {
        match owner.get(key) {
            None if needed => {
                let members = owner.as_object().unwrap_or_default();
                let near = did_you_mean(key, members.iter().map(|member| member.key.as_str()));
                let mut missing = Diagnostic::error(
                    code::AGENT_TEAM_WORKFLOW_WRONG_SHAPE.as_str(),
                    format!("a workflow needs a list of {key}"),
                )
                .at(near.and_then(|near| owner.get(near)).map_or(owner.span, |value| value.span))
                .sub_code("WorkflowValidationError");
                if let Some(near) = near {
                    missing = missing
                        .hint(format!("'{near}' is not a member of a workflow; did you mean '{key}'?"));
                }
                self.found.push(missing);
                &[]
            }
            None => &[],
            Some(value) if value.is_null() => &[],
            Some(value) => value.as_array().unwrap_or_else(|| {
                self.report(value.span, format!("{key} must be a list, not {}", value.type_name()));
                &[]
            }),
        }
    }

    /// Reads one of a few keywords; reports an unknown one.
    fn word<T: Default>(
        &mut self,
        owner: Option<&Node>,
        key: &str,
        of_word: impl Fn(&str) -> Option<T>,
        words: &str,
    ) -> T {
        let Some(value) = owner.and_then(|owner| owner.get(key)).filter(|value| !value.is_null()) else {
            return T::default();
        };
        value.as_str().and_then(of_word).unwrap_or_else(|| {
            self.report(value.span, format!("metadata.{key} must be {words}"));
            T::default()
        })
    }

    fn ids(&mut self, items: &[Node], what: &str) -> Vec<(String, Span)> {
        let mut ids = Vec::new();
        for item in items {
            match item.as_str() {
                Some(id) => ids.push((id.to_owned(), item.span)),
                None => {
                    self.report(
                        item.span,
                        format!("{what} must list ids of nodes, not {}", item.type_name()),
                    );
                }
            }
        }
        ids
    }

    fn text(&mut self, owner: &Node, what: &str, key: &str) -> Option<String> {
        let text = owner.get(key).and_then(Node::as_str).filter(|text| !text.is_empty());
        if text.is_none() {
            let missing = Diagnostic::error(
                code::AGENT_TEAM_WORKFLOW_WRONG_SHAPE.as_str(),
                format!("{what} needs a {key} that is a text"),
            );
            self.found.push(missing_member(missing.sub_code("WorkflowValidationError"), owner, key));
        }
        text.map(str::to_owned)
    }

    fn object(&mut self, owner: &Node, what: &str, key: &str) -> Map<String, Value> {
        match owner.get(key).map(|value| (value.span, value.to_json())) {
            None | Some((_, Value::Null)) => Map::new(),
            Some((_, Value::Object(members))) => members,
            Some((span, _)) => {
                self.report(span, format!("{key} of {what} must be an object"));
                Map::new()
            }
        }
    }

    fn node(&mut self, n: usize, item: &Node) -> Option<TeamNode> {
        let what = match item.get("id").and_then(Node::as_str) {
            Some(id) => format!("nodes[{n}] ('{id}')"),
            None => format!("nodes[{n}]"),
        };
        let id = self.text(item, &what, "id");
        let kind = self.text(item, &what, "type");
        let subtype = self.text(item, &what, "subtype");
        let configurations = self.object(item, &what, "configurations");
        let input_params = self.object(item, &what, "input_params");
        let attached = self.list(item, "attached_nodes", false);
        let attached = self.ids(attached, "attached_nodes");
        let (id, kind, subtype) = (id?, kind?, subtype?);
        let name = item.get("name").and_then(Node::as_str).filter(|name| !name.is_empty());
        Some(TeamNode {
            name: name.unwrap_or(&id).to_owned(),
            id,
            kind,
            subtype,
            configurations,
            input_params,
            attached,
            span: item.span,
            id_span: place_of(item, "id"),
            kind_span: place_of(item, "type"),
            subtype_span: place_of(item, "subtype"),
            written: item.get("configurations").and_then(Node::as_object).unwrap_or_default().to_vec(),
        })
    }

    fn connection(&mut self, n: usize, item: &Node) -> Option<TeamConnection> {
        let what = format!("connections[{n}]");
        let (from, to) = (self.text(item, &what, "from_node"), self.text(item, &what, "to_node"));
        let text = |key: &str| item.get(key).and_then(Node::as_str).filter(|text| !text.trim().is_empty());
        let (from, to) = (from?, to?);
        let port = text("output_key").unwrap_or("result").to_owned();
        Some(TeamConnection {
            id: text("id").map_or_else(|| format!("{from}.{port}->{to}"), str::to_owned),
            conversion: text("conversion_function").map(str::to_owned),
            conversion_span: place_of(item, "conversion_function"),
            span: item.span,
            from_span: place_of(item, "from_node"),
            to_span: place_of(item, "to_node"),
            id_span: place_of(item, "id"),
            port_span: place_of(item, "output_key"),
            from,
            to,
            port,
        })
    }
}

/// Returns the span of a member, or else of its object.
fn place_of(object: &Node, key: &str) -> Span {
    object.get(key).map_or(object.span, |value| value.span)
}
