//! Operations of a dialect, and the detection of a file's dialect.

use std::collections::BTreeMap;

use serde_json::Value;
use sinew_engine::Adapter;
use sinew_plan::{NodeIndex, NodeOperation, Plan};
use sinew_source::{Diagnostics, Document, Node, Span};

use crate::convert::{PlanGraph, Portability};

/// A dialect: from a file to plans.
pub trait Dialect: Sync {
    /// Its name, as in `--dialect`.
    fn name(&self) -> &'static str;

    /// One line on where its files come from.
    fn about(&self) -> &'static str;

    /// How sure it is that the document is one of its own: 0 = not at all, 100 = certainly.
    fn detect(&self, document: &Document) -> u8;

    /// The variables that a document declares for itself, if `${NAME}` in its texts means a variable at all. By default
    /// every text arrives as written: it may be a prompt, a script or a template of another language.
    fn declared_variables<'d>(&self, _document: &'d Document) -> Option<Vec<&'d Node>> {
        None
    }

    /// All workflows of the document, or all that is wrong with it. Warnings travel with the workflows.
    fn lower(&self, document: Document, options: &LowerOptions<'_>) -> Result<Vec<Lowered>, Diagnostics>;

    /// Returns the skills that the card of a workflow lists, each with `id`, `name`, `description` and `tags`. By default
    /// the card has one skill, which is the workflow itself.
    fn card_skills(&self, _plan: &Plan) -> Vec<Value> {
        Vec::new()
    }

    /// JSON Schema that the card of a workflow announces for its input, so that models know what to send; `None` for any
    /// JSON. By default that of the plan, which executions are held to.
    fn card_input_schema(&self, plan: &Plan) -> Option<Value> {
        plan.input_schema.clone()
    }

    /// Returns what the plan says beside its nodes that outputs of nodes depend on. By default all that the dialect keeps at the
    /// plan.
    fn node_settings(&self, plan: &Plan) -> Value {
        plan.extra.clone()
    }

    /// The adapter that the engine asks.
    fn adapter(&self) -> &'static dyn Adapter;

    /// JSON Schema of its files, for editors.
    fn schema(&self) -> Value;

    /// The input of an execution with what it refers to read. Adapters read nothing, so whoever starts an execution from
    /// files of its own asks this first; without it, an input that refers to files is refused. By default: as it is.
    fn read_input(
        &self,
        input: Value,
        _read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    ) -> Result<Value, Diagnostics> {
        Ok(input)
    }

    /// Returns the document of a plan whose dialect is `sam` already.
    fn sam_document(&self, _plan: &Plan) -> Option<Value> {
        None
    }

    /// Translates a node to `sam`; `losses` takes sentences on parts that would have another meaning there.
    /// By default only agents that have nothing but their name are translated.
    fn portable(&self, graph: &PlanGraph<'_>, node: NodeIndex, _losses: &mut Vec<String>) -> Portability {
        let node = graph.plan().node(node);
        match (&node.op, &node.agent) {
            _ if node.attached => Portability::Attached,
            (NodeOperation::Source, _) => Portability::Start,
            (NodeOperation::Agent, Some(agent)) => {
                Portability::Agent { agent: agent.clone(), instruction: None, input: None }
            }
            _ => Portability::Not(format!("there is no word for '{}'", node.kind)),
        }
    }
}

/// Inputs of lowering beside the file.
pub struct LowerOptions<'a> {
    /// Name for a workflow whose file has none: the file's stem.
    pub default_name: &'a str,
    /// Reads a file the workflow refers to, by the path written there. The error is one sentence. `env:NAME` is answered
    /// if the variable is set, `caller:PATH` by a file of the caller, `agent-input:NAME` and `agent-output:NAME` by the
    /// JSON Schema of an agent that is declared beside the file.
    pub read: &'a dyn Fn(&str) -> Result<Vec<u8>, String>,
    /// Lists a folder beside the file: names, those of folders with a slash at their end. [`no_list`] has none.
    pub list: &'a dyn Fn(&str) -> Result<Vec<String>, String>,
    /// Names of agents for work that the dialect leaves open, by kind of work (`work`, `route`, `judge`, …).
    pub agents: &'a BTreeMap<String, String>,
}

/// The listing of those who have no folders, for [`LowerOptions::list`].
pub fn no_list(folder: &str) -> Result<Vec<String>, String> {
    Err(format!("{folder} cannot be listed here"))
}

/// A workflow that was lowered.
#[derive(Debug)]
pub struct Lowered {
    /// The plan.
    pub plan: Plan,
    /// Where each node stands in the file, by index.
    pub places: Vec<Option<Span>>,
    /// Warnings, with the sources their places refer to.
    pub warnings: Diagnostics,
    /// Agent definitions that came with the file, by name, as the file has them.
    pub agents: BTreeMap<String, Value>,
}

/// Schema of the input of a workflow that takes a message, and other members at will.
pub(crate) fn message_schema(description: &str) -> Value {
    serde_json::json!({
        "properties": { "text": { "type": "string", "description": description } },
        "additionalProperties": true,
    })
}
