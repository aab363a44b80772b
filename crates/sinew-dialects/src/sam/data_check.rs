//! Checks of the data of a definition: templates, conditions and schemas, at their tokens.

use std::ops::Range;
use std::rc::Rc;

use serde_json::Value;
use sinew_protocol::code;
use sinew_source::{
    Diagnostic, Kind, MAX_HINTED_FINDINGS, Node, Span, check_schema, did_you_mean, hint_for, token_span,
};

use super::agent_schemas::is_open;
use super::condition::Condition;
use super::model::{Call, KeySpans, NodeDef, Work};
use super::path::{ERROR, OUTPUT, Path, PathRoot, TextPart, parts};
use super::template::{is_operator, needs_list, operator_names};
use super::template_check;
use super::validate::{DefinitionCheck, FarPath, hinted};
use super::value_type::member;

impl<'d> DefinitionCheck<'d, '_> {
    /// Checks templates, conditions and schemas of a node.
    pub(super) fn data(&mut self, node: &'d NodeDef) {
        let of = format!("node '{}'", node.id);
        if node.when.is_some() {
            self.condition(&format!("'when' of {of}"), node, "when");
        }
        match &node.work {
            Work::Agent { call, .. } => self.call(node, call),
            Work::Workflow { call, workflow_name } => {
                if workflow_name == self.name {
                    let itself = format!(
                        "Direct recursion: {of} calls its own workflow '{workflow_name}' and will fail"
                    );
                    let at = node.places.of("workflow_name");
                    self.found.push(Diagnostic::warning(code::WORKFLOW_CALLS_ITSELF.as_str(), itself).at(at));
                }
                self.call(node, call);
            }
            Work::Conditional { .. } | Work::Loop { .. } => {
                self.condition(&format!("'condition' of {of}"), node, "condition");
            }
            Work::Switch { cases, .. } => {
                for n in 0..cases.len() {
                    self.condition(&format!("case {n} of {of}"), node, &format!("cases[{n}].condition"));
                }
            }
            Work::Map { .. } => {
                self.templates(&node.places, "items", &format!("'items' of {of}"), Some(node));
                self.items_are_array(node);
            }
            Work::Fork { branches, .. } => {
                for branch in branches {
                    let what = format!("'input' of branch '{}'", branch.id);
                    self.templates(&branch.places, "input", &what, Some(node));
                    self.input_fits(&branch.agent_name, None, &branch.places, &what);
                }
            }
            Work::Join { .. } | Work::Approval(_) | Work::Sleep(_) => {}
        }
    }

    fn call(&mut self, node: &'d NodeDef, call: &'d Call) {
        let of = format!("node '{}'", node.id);
        if call.input.is_none() && node.depends_on.len() > 1 && self.shape.flows(&node.id) {
            let message = format!("{of} has several dependencies and no 'input', so it will fail");
            let ambiguous = Diagnostic::warning(code::INPUT_AMBIGUOUS.as_str(), message);
            self.found.push(ambiguous.at(node.places.of("id")).hint("add an 'input' mapping"));
        }
        let what = format!("'input' of {of}");
        self.templates(&node.places, "input", &what, Some(node));
        if let Work::Agent { agent_name, .. } = &node.work {
            self.input_fits(agent_name, call.input_schema_override.as_ref(), &node.places, &what);
        }
        self.templates(&node.places, "instruction", &format!("'instruction' of {of}"), Some(node));
        for key in ["input_schema_override", "output_schema_override"] {
            self.schema(&node.places, key, &format!("'{key}' of {of}"));
        }
    }

    pub(super) fn schema(&mut self, places: &KeySpans, key: &str, what: &str) {
        if let Some(schema) = places.value(key).filter(|schema| schema.as_object().is_some()) {
            self.found.extend(check_schema(schema, what));
        }
    }

    /// Returns the span of a part of a text in the file.
    pub(super) fn token(&self, value: &Node, range: Range<usize>) -> Span {
        match value.as_str() {
            // Each search reads the text, and a file may have thousands of findings.
            Some(text) if self.found.len() < MAX_HINTED_FINDINGS => {
                token_span(self.sources, value.span, text, range)
            }
            _ => value.span,
        }
    }

    /// Reports the first malformed template of a text. Returns whether there is one.
    fn has_defect(&mut self, value: &Node, text: &str, what: &str) -> bool {
        let Some(defect) = template_check::defect(text, &|id| self.has(id)) else { return false };
        let at = self.token(value, defect.range);
        let message = format!("{what} {}", defect.problem);
        self.found.push(Diagnostic::error(defect.code.as_str(), message).at(at).hint(defect.hint));
        true
    }

    fn condition(&mut self, what: &str, node: &'d NodeDef, key: &str) {
        let Some(value) = node.places.value(key) else { return };
        let Some(text) = value.as_str() else { return };
        if self.has_defect(value, text, what) {
            return;
        }
        let condition = match Condition::parse(text) {
            Ok(condition) => condition,
            Err(unreadable) => {
                let at = self.token(value, word_at(text, unreadable.at));
                let message = format!("{what}: {}", unreadable.reason);
                let error = Diagnostic::error(code::CONDITION_CANNOT_BE_READ.as_str(), message).at(at);
                self.found.push(match unreadable.hint {
                    Some(hint) => error.hint(hint),
                    None => error,
                });
                return;
            }
        };
        for path in condition.paths() {
            self.path(path, what, Some(node), self.token(value, template_range(text, path)));
        }
        let misfits = condition.misfits(&|path| self.type_of(path));
        for misfit in misfits {
            let at = self.token(value, template_range(text, misfit.path));
            let message = format!("{what} {}", misfit.problem);
            let wrong = Diagnostic::warning(code::TYPE_DOES_NOT_FIT.as_str(), message).at(at);
            self.found.push(match misfit.hint {
                Some(hint) => wrong.hint(hint),
                None => wrong,
            });
        }
    }

    /// Checks all templates of the value of a key.
    pub(super) fn templates(
        &mut self,
        places: &'d KeySpans,
        key: &str,
        what: &str,
        node: Option<&'d NodeDef>,
    ) {
        if let Some(value) = places.value(key) {
            self.template(value, what, node);
        }
    }

    fn template(&mut self, value: &Node, what: &str, node: Option<&'d NodeDef>) {
        match &value.kind {
            Kind::String(text) => {
                if self.has_defect(value, text, what) {
                    return;
                }
                let mut at = 0;
                for part in parts(text) {
                    let length = match &part {
                        TextPart::Text(text) => text.len(),
                        TextPart::Path(_, written) => written.len(),
                    };
                    if let TextPart::Path(path, _) = &part {
                        self.path(path, what, node, self.token(value, at..at + length));
                    }
                    at += length;
                }
            }
            Kind::Array(items) => items.iter().for_each(|item| self.template(item, what, node)),
            Kind::Object(members) => {
                if let [only] = members.as_slice() {
                    let is_list = only.value.as_array().is_some();
                    if is_operator(&only.key) && !is_list {
                        let message = format!("{what}: {}", needs_list(&only.key));
                        self.error(code::OPERATOR_NEEDS_LIST.as_str(), message, only.value.span);
                        return;
                    }
                    let near = did_you_mean(&only.key, operator_names());
                    if let Some(near) = near.filter(|_| is_list && !is_operator(&only.key)) {
                        let message = format!("{what} has the key '{}', which is not an operator", only.key);
                        let typo = Diagnostic::warning(code::OPERATOR_PROBABLY_MISTYPED.as_str(), message);
                        self.found.push(typo.at(only.key_span).hint(format!("did you mean '{near}'?")));
                    }
                }
                for member in members {
                    self.template(&member.value, what, node);
                }
            }
            _ => {}
        }
    }

    /// Warns about a path without a value. It is not an error: such a path is null, and files rely
    /// on it.
    fn path(&mut self, path: &Path, what: &str, node: Option<&'d NodeDef>, at: Span) {
        match &path.root {
            PathRoot::Input => {
                if let Some(schema) = self.definition.input_schema.as_ref() {
                    self.fits_schema(path, schema, 0, "the input", what, at);
                }
            }
            PathRoot::Workflow => {
                let field = path.steps.first().map_or("", String::as_str);
                if !WORKFLOW_FIELDS.contains(&field) {
                    let message =
                        format!("{what} names '{}', which does not exist: it is always null", path.shown);
                    let unknown = Diagnostic::warning(code::TEMPLATE_NAMES_NO_NODE.as_str(), message).at(at);
                    let near =
                        hint_for(self.found.len(), field, WORKFLOW_FIELDS.into_iter()).unwrap_or("input");
                    self.found.push(unknown.hint(format!("did you mean 'workflow.{near}'?")));
                }
            }
            PathRoot::Node(id) => self.node_path(path, id, what, node, at),
            PathRoot::Item | PathRoot::Alias | PathRoot::Index | PathRoot::Iteration => {}
        }
    }

    fn node_path(&mut self, path: &Path, id: &str, what: &str, node: Option<&'d NodeDef>, at: Span) {
        if self.branches.contains(id) {
            return;
        }
        if !self.has(id) {
            let message = format!("{what} names '{id}', which is not a node: it is always null");
            let unknown = Diagnostic::warning(code::TEMPLATE_NAMES_NO_NODE.as_str(), message).at(at);
            let names = self.ids.keys().copied().chain(["workflow"]);
            self.found.push(match hint_for(self.found.len(), id, names) {
                Some(near) => unknown.hint(format!("did you mean '{near}'?")),
                None => unknown
                    .hint("paths start with a node's id, 'workflow.input', '_map_item' or '_loop_iteration'"),
            });
            return;
        }
        let is_error = |step: &String| step == ERROR && self.node(id).is_some_and(NodeDef::handles_failure);
        if let Some(first) = path.steps.first().filter(|step| *step != OUTPUT && !is_error(step)) {
            let message = format!("{what} names '{}', but a node has only '{OUTPUT}'", path.shown);
            let wrong = Diagnostic::warning(code::PATH_NOT_IN_SCHEMA.as_str(), message).at(at);
            let rest = if did_you_mean(first, [OUTPUT].into_iter()).is_some() {
                &path.steps[1..]
            } else {
                &path.steps
            };
            let steps: Vec<&str> = [id, OUTPUT].into_iter().chain(rest.iter().map(String::as_str)).collect();
            self.found.push(wrong.hint(format!("write {{{{{}}}}}", steps.join("."))));
            return;
        }
        let is_output = path.steps.first().is_some_and(|step| step == OUTPUT);
        if let Some(schema) = self.output_schema(id).filter(|_| is_output) {
            self.fits_schema(path, &schema, 1, "the output of the node", what, at);
        }
        if let Some(node) = node.filter(|node| !self.is_near(node, id)) {
            self.far.push(FarPath { node, id: id.to_owned(), what: what.to_owned(), at });
        }
    }

    /// Returns the schema of a node's output, if the file or its agent declares it.
    pub(super) fn output_schema(&self, id: &str) -> Option<Rc<Value>> {
        let work = &self.node(id)?.work;
        match (&work.call()?.output_schema_override, work) {
            (Some(own), _) => Some(Rc::new(own.clone())),
            (None, Work::Agent { agent_name, .. }) => {
                self.agent_schemas.get(agent_name.as_str())?.output.clone()
            }
            _ => None,
        }
    }

    /// Warns about a path to a property that its schema does not declare.
    fn fits_schema(&mut self, path: &Path, schema: &Value, skipped: usize, of: &str, what: &str, at: Span) {
        let mut schema = schema;
        for step in path.steps.iter().skip(skipped) {
            if let Some(inner) = member(schema, step) {
                schema = inner;
                continue;
            }
            let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
                return;
            };
            if is_open(schema) {
                return;
            }
            let message = format!("{what} names '{}', and the schema of {of} has no '{step}'", path.shown);
            let wrong = Diagnostic::warning(code::PATH_NOT_IN_SCHEMA.as_str(), message).at(at);
            let near = hint_for(self.found.len(), step, properties.keys().map(String::as_str));
            self.found.push(hinted(wrong, near));
            return;
        }
    }
}

/// Fields of `workflow` in templates.
const WORKFLOW_FIELDS: [&str; 4] = ["input", "parameters", "status", "error"];

/// Returns the range of the word or sign at an offset of a condition.
fn word_at(text: &str, at: usize) -> Range<usize> {
    let rest = text.get(at..).unwrap_or_default();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let length = match rest.chars().next() {
        Some(c) if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
        Some(c) => c.len_utf8(),
        None => 0,
    };
    at..at + length
}

/// Returns the range of the first template of a text that has this path.
fn template_range(text: &str, path: &Path) -> Range<usize> {
    let mut at = 0;
    while let Some(open) = text[at..].find("{{").map(|open| at + open) {
        let Some(end) = text[open..].find("}}").map(|close| open + close + 2) else { break };
        if Path::parse(&text[open + 2..end - 2]) == *path {
            return open..end;
        }
        at = end;
    }
    0..text.len()
}
