//! Operations of a dialect, and the detection of a file's dialect.

use std::collections::BTreeMap;

use serde_json::Value;
use sinew_engine::Adapter;
use sinew_plan::{NodeIndex, NodeOperation, Plan, PlanNode};
use sinew_protocol::catalogue::Catalogue;
use sinew_source::{Diagnostics, Document, Node, Span};

use crate::convert::{PlanGraph, Portability};

/// A dialect: lowers files to plans.
pub trait Dialect: Sync {
    /// Returns the name, as in `--dialect`.
    fn name(&self) -> &'static str;

    /// Returns one line about the origin of its files.
    fn about(&self) -> &'static str;

    /// Returns the confidence that the document is in this dialect: 0 = none, 100 = certain.
    fn detect(&self, document: &Document) -> u8;

    /// Returns the variables that a document declares, or `None` if `${NAME}` is not a variable in
    /// its strings. By default all strings are kept as written: they may be prompts, scripts or
    /// templates of another language.
    fn declared_variables<'d>(&self, _document: &'d Document) -> Option<Vec<&'d Node>> {
        None
    }

    /// Returns the parts of a document that have no effect on its workflows: their variables may be
    /// unknown. Defaults to none.
    fn unread_parts<'d>(&self, _document: &'d Document) -> Vec<&'d Node> {
        Vec::new()
    }

    /// Lowers all workflows of the document, or returns all errors. Warnings are attached to the
    /// workflows.
    fn lower(&self, document: Document, options: &LowerOptions<'_>) -> Result<Vec<Lowered>, Diagnostics>;

    /// Returns the skills that the card of a workflow lists, each with `id`, `name`, `description` and `tags`. By default
    /// the card has one skill, which is the workflow itself.
    fn card_skills(&self, _plan: &Plan) -> Vec<Value> {
        Vec::new()
    }

    /// Returns the attributes by which people and models find the workflow. Defaults to none.
    fn card_catalogue(&self, _plan: &Plan) -> Catalogue {
        Catalogue::default()
    }

    /// Returns the JSON Schema that the card of a workflow announces for its input, so that models
    /// know what to send; `None` for any JSON. Defaults to the schema of the plan, against which
    /// executions are validated.
    fn card_input_schema(&self, plan: &Plan) -> Option<Value> {
        plan.input_schema.clone()
    }

    /// Returns the settings of the plan outside its nodes that node outputs depend on. Defaults to
    /// all data that the dialect stores in the plan.
    fn node_settings(&self, plan: &Plan) -> Value {
        plan.extra.clone()
    }

    /// Returns the part of the request to the agent of a node that its file determines, such as tools
    /// and attached nodes. Defaults to the data that the dialect stores for the node.
    fn node_request(&self, _plan: &Plan, node: &PlanNode) -> Value {
        node.extra.clone()
    }

    /// Returns whether only yes or no answers the questions of this node.
    fn asks_for_decision(&self, _node: &PlanNode) -> bool {
        false
    }

    /// Returns the adapter that the engine calls.
    fn adapter(&self) -> &'static dyn Adapter;

    /// Returns the JSON Schema of the files, for editors.
    fn schema(&self) -> Value;

    /// Returns the input with its file references resolved. Adapters read no files, so callers that
    /// start an execution from local files call this first; an unresolved reference is rejected.
    /// Returns the input unchanged by default.
    fn read_input(
        &self,
        input: Value,
        _read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    ) -> Result<Value, Diagnostics> {
        Ok(input)
    }

    /// Returns the original document of a plan whose dialect is already `sam`.
    fn sam_document(&self, _plan: &Plan) -> Option<Value> {
        None
    }

    /// Translates a node to `sam` and adds a sentence to `losses` for each part whose meaning
    /// changes. By default, translates only agents that have nothing but a name.
    fn portable(&self, graph: &PlanGraph<'_>, node: NodeIndex, _losses: &mut Vec<String>) -> Portability {
        let node = graph.plan().node(node);
        match (&node.op, &node.agent) {
            _ if node.attached => Portability::Attached,
            (NodeOperation::Source, _) => Portability::Start,
            (NodeOperation::Agent, Some(agent)) => {
                Portability::Agent { agent: agent.clone(), instruction: None, input: None }
            }
            _ => Portability::Not(format!("sam has no equivalent of '{}'", node.kind)),
        }
    }
}

/// Options of lowering.
pub struct LowerOptions<'a> {
    /// Name for a workflow whose file has none: the file's stem.
    pub default_name: &'a str,
    /// Reads a referenced file by its path in the workflow file. The error is one sentence.
    /// `env:NAME` succeeds if the variable is set, `caller:PATH` reads a file of the caller, and
    /// `agent-input:NAME` and `agent-output:NAME` return the JSON Schema of an agent declared next
    /// to the file.
    pub read: &'a dyn Fn(&str) -> Result<Vec<u8>, String>,
    /// Lists a folder next to the file; names of folders end with a slash. [`no_list`] lists
    /// nothing.
    pub list: &'a dyn Fn(&str) -> Result<Vec<String>, String>,
    /// Names of the agents for work that the dialect leaves open, by kind of work (`work`, `route`,
    /// `judge`, …).
    pub agents: &'a BTreeMap<String, String>,
}

/// Listing for callers without folders, for [`LowerOptions::list`].
pub fn no_list(folder: &str) -> Result<Vec<String>, String> {
    Err(format!("{folder} cannot be listed here"))
}

/// A lowered workflow.
#[derive(Debug)]
pub struct Lowered {
    /// The plan.
    pub plan: Plan,
    /// Span of each node in the file, by index.
    pub places: Vec<Option<Span>>,
    /// Warnings, with the sources that their spans refer to.
    pub warnings: Diagnostics,
    /// Agent definitions included in the file, unchanged, by name.
    pub agents: BTreeMap<String, Value>,
}

/// Returns the schema of the input of a workflow that takes a message and any other fields.
pub(crate) fn message_schema(description: &str) -> Value {
    serde_json::json!({
        "properties": { "text": { "type": "string", "description": description } },
        "additionalProperties": true,
    })
}
