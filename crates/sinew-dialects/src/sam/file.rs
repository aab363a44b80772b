//! Location of workflows in a file: a bare definition, one under `workflow:`, or several in an
//! application file.

use sinew_protocol::code;
use std::collections::BTreeMap;

use serde_json::Value;
use sinew_source::{Diagnostic, Document, Node};

use super::model::WorkflowDefinition;
use super::parse;
use super::read::ParseFindings;

/// Content of a file.
#[derive(Debug, Default)]
pub(super) struct FileContent {
    /// Workflows by name, in file order.
    pub(super) workflows: Vec<(String, WorkflowDefinition)>,
    /// Configurations of the agents in the file, by name.
    pub(super) agents: BTreeMap<String, Value>,
}

/// Returns the confidence that a file is in this dialect, from 0 to 100.
pub(super) fn certainty(document: &Document) -> u8 {
    let root = &document.root;
    if second_release(root).is_some() {
        return 95;
    }
    if let Some(apps) = root.get("apps").and_then(Node::as_array) {
        let config =
            |app: &Node, key: &str| app.get("app_config").is_some_and(|config| config.get(key).is_some());
        return match () {
            () if apps.iter().any(|app| config(app, "workflow")) => 100,
            () if apps.iter().any(|app| app.get("app_module").is_some()) => 60,
            () => 10,
        };
    }
    if let Some(workflow) = root.get("workflow") {
        let is_list = |key: &str| workflow.get(key).map(|value| value.as_array().is_some());
        return match (is_list("nodes"), is_list("node")) {
            (Some(true), _) => 90,
            // A misspelled or missing list is reported as such.
            (Some(false), _) | (None, Some(true)) => 70,
            (None, _) => 0,
        };
    }
    let nodes = root.get("nodes").and_then(Node::as_array).unwrap_or_default();
    let ours = nodes.iter().any(|node| OWN_KEYS.iter().any(|key| node.get(key).is_some()));
    let has_mapping = MEMBERS[1..].iter().any(|key| root.get(key).is_some());
    match (nodes.is_empty(), has_mapping) {
        (false, true) => 90,
        (false, false) if ours => 60,
        (true, true) => 40,
        _ => 0,
    }
}

/// Returns the kind of a file of Solace Agent Mesh 2; `None` for other files. Files of Argo have an
/// `apiVersion`.
fn second_release(root: &Node) -> Option<&Node> {
    let kind = root.get("kind")?;
    let is_other = ["apps", "workflow", "apiVersion"].iter().any(|key| root.get(key).is_some());
    (!is_other && matches!(kind.as_str(), Some("workflow" | "manifest"))).then_some(kind)
}

/// Returns the names under `env:` of an application file. Other files have no variables: the source
/// engine replaces `${NAME}` only in application files, before it parses them.
pub(super) fn declared_variables(document: &Document) -> Option<Vec<&Node>> {
    document.root.get("apps")?;
    Some(match document.root.get("env") {
        None => Vec::new(),
        Some(names) => match names.as_array() {
            Some(names) => names.iter().collect(),
            None => vec![names],
        },
    })
}

/// Returns the values of an application file that belong to other components: brokers, gateways,
/// models and tools of agents.
pub(super) fn unread_parts(document: &Document) -> Vec<&Node> {
    fn without<'d>(node: &'d Node, read: &[&str]) -> impl Iterator<Item = &'d Node> {
        let members = node.as_object().unwrap_or_default().iter();
        members.filter(|member| !read.contains(&member.key.as_str())).map(|member| &member.value)
    }
    let root = &document.root;
    let Some(apps) = root.get("apps").and_then(Node::as_array) else { return Vec::new() };
    let mut unread: Vec<&Node> = without(root, &["apps", "env"]).collect();
    for app in apps {
        unread.extend(without(app, &["name", "app_config"]));
        match app.get("app_config") {
            Some(config) if config.get("workflow").is_some() => {
                unread.extend(without(config, WORKFLOW_CONFIG));
            }
            Some(config) => unread.extend(without(config, &["name", "agent_name"])),
            None => {}
        }
    }
    unread
}

/// Members of a workflow's `app_config` that are read.
const WORKFLOW_CONFIG: &[&str] = &[
    "workflow",
    "name",
    "agent_name",
    "display_name",
    "default_node_timeout_seconds",
    "max_workflow_execution_time_seconds",
    "node_cancellation_timeout_seconds",
    "default_max_map_items",
];

/// Keys of nodes that exist in no other dialect.
const OWN_KEYS: [&str; 6] =
    ["agent_name", "depends_on", "workflow_name", "wait_for", "withItems", "withParam"];

/// Members by which a definition without anything around it is recognized.
const MEMBERS: [&str; 3] = ["nodes", "output_mapping", "outputMapping"];

/// Reads every workflow of a file.
pub(super) fn read(document: &Document, default_name: &str, found: &mut ParseFindings) -> FileContent {
    let root = &document.root;
    let mut content = FileContent::default();
    if let Some(kind) = second_release(root) {
        let text = format!(
            "the file is in the format of Solace Agent Mesh 2 (kind: {}), which is not supported",
            kind.as_str().unwrap_or_default()
        );
        let hint = "write a workflow of release 1: description, nodes and output_mapping under 'workflow:'; call tools \
                    through an agent";
        found.push(Diagnostic::error(code::NOTHING_TO_RUN.as_str(), text).at(kind.span).hint(hint));
        return content;
    }
    if let Some(apps) = root.get("apps") {
        for app in apps.as_array().unwrap_or_default() {
            application(app, default_name, &mut content, found);
        }
    } else if let Some(workflow) = root.get("workflow") {
        one(workflow, root, &name_of(root, default_name), false, &mut content, found);
    } else if MEMBERS.iter().any(|key| root.get(key).is_some()) {
        one(root, root, &name_of(root, default_name), true, &mut content, found);
    }
    if content.workflows.is_empty() && found.is_empty() {
        let nothing =
            Diagnostic::error(code::NOTHING_TO_RUN.as_str(), "the file has no workflow").at(root.span);
        found.push(nothing.hint("put it under 'workflow:', or under 'apps:' in an 'app_config'"));
    }
    content
}

fn application(app: &Node, default_name: &str, content: &mut FileContent, found: &mut ParseFindings) {
    let Some(config) = app.get("app_config") else {
        return;
    };
    let of_app = app.get("name").and_then(Node::as_str).unwrap_or(default_name);
    let name = name_of(config, of_app);
    match config.get("workflow") {
        Some(workflow) => one(workflow, config, &name, false, content, found),
        // Gateways and other services also have an `app_config`, but no agent name.
        None if config.get("agent_name").is_some() => {
            content.agents.insert(name, config.to_json());
        }
        None => {}
    }
}

fn name_of(config: &Node, default_name: &str) -> String {
    let text = |key: &str| config.get(key).and_then(Node::as_str).filter(|name| !name.trim().is_empty());
    text("name").or_else(|| text("agent_name")).unwrap_or(default_name).to_owned()
}

fn one(
    node: &Node,
    around: &Node,
    name: &str,
    bare: bool,
    content: &mut FileContent,
    found: &mut ParseFindings,
) {
    if content.workflows.iter().any(|(other, _)| other == name) {
        let twice = Diagnostic::error(
            code::NAME_USED_TWICE.as_str(),
            format!("duplicate workflow name '{name}' in the file"),
        );
        found.push(twice.at(node.span));
    }
    let settings = parse::settings(around, found);
    if let Some(mut definition) = parse::definition(node, name, bare, found) {
        definition.settings = settings;
        content.workflows.push((name.to_owned(), definition));
    }
}
