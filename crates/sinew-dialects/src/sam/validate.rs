//! Rules of a definition beyond its shape: ids, references, branches, cycles, schemas, templates,
//! conditions.

use sinew_protocol::code;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::Value;

use sinew_source::{Diagnostic, Schema, Span, hint_for};

use super::agent_schemas::{AgentSchemas, agent_schemas, is_open, misfits};
use super::approval::near_word;
use super::condition::Condition;
use super::model::{Call, NodeDef, Work, WorkflowDefinition};
use super::path::{Path, PathRoot, parts};
use super::read::ParseFindings;
use super::shape::{GraphShape, named_in, node_of, stuck};
use super::template::{Template, paths_of, unclosed};
use crate::chain::path_text;
use crate::reach;

/// Checks a definition with a valid shape, and warns about valid but unlikely constructs.
///
/// `read` returns the schemas of agents, as `agent-input:NAME` and `agent-output:NAME`.
pub(super) fn validate(
    name: &str,
    definition: &WorkflowDefinition,
    read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    found: &mut ParseFindings,
) {
    let ids: BTreeMap<&str, usize> =
        definition.nodes.iter().enumerate().map(|(n, node)| (node.id.as_str(), n)).collect();
    let shape = GraphShape::of(definition);
    let mut branches = BTreeSet::new();
    for node in &definition.nodes {
        if let Work::Fork { branches: own, .. } = &node.work {
            branches.extend(own.iter().map(|branch| branch.id.as_str()));
        }
    }
    let agent_schemas = agent_schemas(definition, read);
    let mut check =
        DefinitionCheck { name, definition, ids, branches, shape, agent_schemas, far: Vec::new(), found };
    check.unique_ids();
    for node in &definition.nodes {
        check.references(node);
        check.branches(node);
        check.ways(node);
        check.body(node);
        check.data(node);
    }
    check.far_paths();
    check.exits();
    let known = check.found.iter().all(|item| item.code != code::UNKNOWN_NODE_REFERENCE.as_str())
        && definition.unread.is_empty();
    check.cycles();
    check.whole(known);
}

pub(super) struct DefinitionCheck<'d, 'f> {
    name: &'d str,
    pub(super) definition: &'d WorkflowDefinition,
    ids: BTreeMap<&'d str, usize>,
    /// Ids of all branches of forks.
    branches: BTreeSet<&'d str>,
    pub(super) shape: GraphShape,
    agent_schemas: BTreeMap<&'d str, AgentSchemas>,
    /// Paths whose node may run too late.
    far: Vec<FarPath<'d>>,
    pub(super) found: &'f mut ParseFindings,
}

/// A path to a node that is not a direct dependency.
struct FarPath<'d> {
    /// The node that the path belongs to.
    node: &'d NodeDef,
    /// The node that the path names.
    id: String,
    /// Description of the path's position.
    what: String,
    at: Span,
}

impl<'d> DefinitionCheck<'d, '_> {
    fn error(&mut self, code: &'static str, message: String, at: Span) {
        self.found.push(Diagnostic::error(code, message).at(at));
    }

    /// Reports a reference to a missing node.
    fn missing(&mut self, message: String, id: &str, at: Span) {
        let missing = Diagnostic::error(code::UNKNOWN_NODE_REFERENCE.as_str(), message).at(at);
        let near = hint_for(self.found.len(), id, self.ids.keys().copied());
        self.found.push(hinted(missing, near));
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.ids.contains_key(id) || self.definition.unread.iter().any(|unread| unread == id)
    }

    fn node(&self, id: &str) -> Option<&'d NodeDef> {
        self.ids.get(id).and_then(|n| self.definition.nodes.get(*n))
    }

    fn unique_ids(&mut self) {
        let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
        for node in &self.definition.nodes {
            let place = node.places.of("id");
            if let Some(first) = seen.insert(&node.id, place) {
                let twice = Diagnostic::error(
                    code::NAME_USED_TWICE.as_str(),
                    format!("duplicate node id '{}'", node.id),
                );
                self.found.push(twice.at(place).related(first, "the first one"));
            }
            if RESERVED.contains(&node.id.as_str()) {
                let reserved = format!("the id '{}' is a reserved word of templates", node.id);
                self.found.push(
                    Diagnostic::error(code::TEMPLATES_CANNOT_NAME_THIS_NODE.as_str(), reserved)
                        .at(place)
                        .hint("rename the node"),
                );
            } else if node.id.contains(['.', '{', '}']) {
                let shadowed = format!("templates cannot reference a node with the id '{}'", node.id);
                self.found.push(
                    Diagnostic::warning(code::TEMPLATES_CANNOT_NAME_THIS_NODE.as_str(), shadowed).at(place),
                );
            }
            if let Work::Fork { branches, .. } = &node.work {
                let mut of_fork: BTreeSet<&str> = BTreeSet::new();
                for branch in branches {
                    if !of_fork.insert(&branch.id) {
                        let twice = format!("duplicate branch id in fork '{}': '{}'", node.id, branch.id);
                        self.error(code::NAME_USED_TWICE.as_str(), twice, branch.places.of("id"));
                    }
                }
                let mut keys: BTreeSet<&str> = BTreeSet::new();
                for branch in branches {
                    if !keys.insert(&branch.output_key) {
                        let twice =
                            format!("duplicate output_key in fork '{}': '{}'", node.id, branch.output_key);
                        self.error(code::NAME_USED_TWICE.as_str(), twice, branch.places.of("output_key"));
                    }
                }
            }
        }
    }

    fn references(&mut self, node: &'d NodeDef) {
        for id in &node.depends_on {
            let at = node.places.of(&format!("depends_on[{id}]"));
            self.waits_for(node, id, at, format!("Node '{}' depends on non-existent node '{id}'", node.id));
        }
        if let Work::Join { wait_for, .. } = &node.work {
            if wait_for.is_empty() {
                let empty = format!("'wait_for' of join '{}' is empty", node.id);
                self.error(code::JOIN_QUORUM_WRONG.as_str(), empty, node.places.of("wait_for"));
            }
            for id in wait_for {
                let at = node.places.of(&format!("wait_for[{id}]"));
                self.waits_for(
                    node,
                    id,
                    at,
                    format!("JoinNode '{}' waits for non-existent node '{id}'", node.id),
                );
            }
        }
    }

    fn waits_for(&mut self, node: &NodeDef, id: &str, at: Span, missing: String) {
        if !self.has(id) {
            self.missing(missing, id, at);
        } else if self.shape.exits.contains(id) && self.shape.flows(&node.id) {
            let exit = format!(
                "node '{}' waits for '{id}', which is an exit handler and runs only at the end",
                node.id
            );
            self.error(code::NODE_WAITS_FOR_EXIT_HANDLER.as_str(), exit, at);
        } else if let Some(owners) = self.shape.owners.get(id)
            && !owners.contains(&node.id)
            && self.shape.flows(&node.id)
        {
            let inner =
                format!("node '{}' waits for '{id}', which runs inside '{}'", node.id, owners.join("', '"));
            let hint = format!("it waits for '{}' instead; name that node", owners.join("' and '"));
            self.found
                .push(Diagnostic::warning(code::NODE_WAITS_FOR_LOOP_BODY.as_str(), inner).at(at).hint(hint));
        }
    }

    fn branches(&mut self, node: &'d NodeDef) {
        for (key, id) in node.targets() {
            let at = node.places.of(&key);
            let Some(target) = self.node(id) else {
                if self.has(id) || near_word(&key, id).is_some() {
                    continue;
                }
                self.missing(format!("Node '{}' references non-existent {key} '{id}'", node.id), id, at);
                continue;
            };
            if !target.depends_on.contains(&node.id) {
                let message = format!(
                    "Logic Error: Node '{}' routes to '{id}' ({key}), but '{id}' does not list '{}' in its 'depends_on' field",
                    node.id, node.id
                );
                let wrong = Diagnostic::error(code::BRANCH_DOES_NOT_WAIT_FOR_PARENT.as_str(), message).at(at);
                self.found.push(
                    wrong
                        .hint(format!(
                            "add 'depends_on: [{}]' to node '{id}'; otherwise it runs immediately",
                            node.id
                        ))
                        .related(target.places.of("id"), format!("node '{id}'")),
                );
            }
            if !self.shape.flows(id) {
                let inner = format!(
                    "node '{}' routes to '{id}', which runs inside a map or loop or at the end",
                    node.id
                );
                self.error(code::NODE_CANNOT_STAND_THERE.as_str(), inner, at);
            }
        }
    }

    fn body(&mut self, node: &'d NodeDef) {
        let Some(body) = node.work.body() else {
            return;
        };
        let at = node.places.of("node");
        let kind = if matches!(node.work, Work::Map { .. }) { "MapNode" } else { "LoopNode" };
        match self.node(body).map(|body| &body.work) {
            None if self.has(body) => {}
            None => {
                self.missing(format!("{kind} '{}' references non-existent node '{body}'", node.id), body, at);
            }
            Some(work @ (Work::Switch { .. } | Work::Conditional { .. } | Work::Join { .. })) => {
                let wrong = format!("{kind} '{}' cannot run the {} node '{body}'", node.id, work.type_name());
                self.error(code::NODE_CANNOT_STAND_THERE.as_str(), wrong, at);
            }
            Some(_) if self.shape.exits.contains(body) => {
                let wrong = format!("{kind} '{}' cannot run '{body}', which is an exit handler", node.id);
                self.error(code::NODE_CANNOT_STAND_THERE.as_str(), wrong, at);
            }
            Some(_) if self.shape.circular.contains(&node.id) => {
                let wrong = format!("{kind} '{}' runs itself through '{body}', which is a cycle", node.id);
                self.error(code::DEPENDENCY_CYCLE.as_str(), wrong, at);
            }
            Some(_) => {}
        }
    }

    fn exits(&mut self) {
        for (name, id) in self.definition.on_exit.handlers() {
            let at = self.definition.places.of(&format!("on_exit.{name}"));
            if !self.has(id) {
                let short = self.definition.places.keys.contains_key("on_exit");
                let key = if short { "onExit".to_owned() } else { format!("onExit.{name}") };
                self.missing(format!("{key} references non-existent node '{id}'"), id, at);
            }
        }
    }

    fn cycles(&mut self) {
        let stuck = stuck(self.definition, &self.shape).into_iter().map(str::to_owned).collect::<Vec<_>>();
        let Some(first) = stuck.first() else {
            return;
        };
        // Walk backwards among the stuck nodes until a node repeats: that part is the cycle.
        let waiting: BTreeSet<&str> = stuck.iter().map(String::as_str).collect();
        let mut walk: Vec<String> = vec![first.clone()];
        let mut places: BTreeMap<String, usize> = BTreeMap::from([(first.clone(), 0)]);
        let cycle = loop {
            let last = walk.last().cloned().unwrap_or_default();
            let before = self
                .node(&last)
                .and_then(|node| self.shape.upstream(node).into_iter().find(|id| waiting.contains(id)))
                .unwrap_or(first)
                .to_owned();
            if let Some(at) = places.insert(before.clone(), walk.len()) {
                let mut cycle = walk.split_off(at);
                cycle.reverse();
                break cycle;
            }
            walk.push(before);
        };
        let shown = path_text(&cycle.iter().chain(cycle.first()).map(String::as_str).collect::<Vec<_>>());
        let at = self.node(&cycle[0]).map(|node| node.places.of("id")).unwrap_or_default();
        let message = format!("Workflow DAG contains cycles: {shown}");
        self.found.push(
            Diagnostic::error(code::DEPENDENCY_CYCLE.as_str(), message)
                .at(at)
                .hint("remove one of these dependencies"),
        );
        for id in &stuck {
            let at = self.node(id).map(|node| node.places.of("id")).unwrap_or_default();
            self.error(code::DEPENDENCY_CYCLE.as_str(), format!("Node '{id}' is unreachable"), at);
        }
    }

    /// Checks templates, conditions and schemas of a node.
    fn data(&mut self, node: &'d NodeDef) {
        let of = format!("node '{}'", node.id);
        if let Some(when) = &node.when {
            self.condition(when, &format!("'when' of {of}"), node, "when");
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
            Work::Conditional { condition, .. } | Work::Loop { condition, .. } => {
                self.condition(condition, &format!("'condition' of {of}"), node, "condition");
            }
            Work::Switch { cases, .. } => {
                for (n, case) in cases.iter().enumerate() {
                    let key = format!("cases[{n}].condition");
                    self.condition(&case.condition, &format!("case {n} of {of}"), node, &key);
                }
            }
            Work::Map { items, .. } => {
                self.closed(items, &format!("'items' of {of}"), node.places.of("items"));
                self.template(
                    &Template::parse(items),
                    &format!("'items' of {of}"),
                    Some(node),
                    node.places.of("items"),
                );
            }
            Work::Fork { branches, .. } => {
                for branch in branches {
                    if let Some(input) = &branch.input {
                        let what = format!("'input' of branch '{}'", branch.id);
                        self.closed(input, &what, branch.places.of("input"));
                        self.template(&Template::parse(input), &what, Some(node), branch.places.of("input"));
                    }
                }
            }
            Work::Join { .. } | Work::Approval(_) | Work::Sleep(_) => {}
        }
    }

    fn call(&mut self, node: &'d NodeDef, call: &'d Call) {
        let of = format!("node '{}'", node.id);
        match &call.input {
            Some(input) => {
                self.closed(input, &format!("'input' of {of}"), node.places.of("input"));
                self.input_fits(node, call, input);
                self.template(
                    &Template::parse(input),
                    &format!("'input' of {of}"),
                    Some(node),
                    node.places.of("input"),
                );
            }
            None if node.depends_on.len() > 1 && self.shape.flows(&node.id) => {
                let message = format!("{of} has several dependencies and no 'input', so it will fail");
                let at = node.places.of("id");
                self.found.push(
                    Diagnostic::warning(code::INPUT_AMBIGUOUS.as_str(), message)
                        .at(at)
                        .hint("add an 'input' mapping"),
                );
            }
            None => {}
        }
        if let Some(instruction) = &call.instruction {
            let parts = parts(instruction);
            let at = node.places.of("instruction");
            self.closed(&instruction.as_str().into(), &format!("'instruction' of {of}"), at);
            self.paths(paths_of(&parts), &format!("'instruction' of {of}"), Some(node), at);
        }
        for (schema, key) in [
            (&call.input_schema_override, "input_schema_override"),
            (&call.output_schema_override, "output_schema_override"),
        ] {
            self.schema(schema.as_ref(), &format!("'{key}' of {of}"), node.places.of(key));
        }
    }

    fn schema(&mut self, schema: Option<&Value>, what: &str, at: Span) {
        if let Some(Err(error)) = schema.map(Schema::compile) {
            self.error(
                code::NOT_VALID_JSON_SCHEMA.as_str(),
                format!("{what} is not a valid JSON Schema: {error}"),
                at,
            );
        }
    }

    /// Reports a template that is never closed and would be taken as text.
    pub(super) fn closed(&mut self, value: &Value, what: &str, at: Span) {
        if let Some(text) = unclosed(value) {
            let shown: String = text.chars().take(40).collect();
            let open = Diagnostic::error(
                code::TEMPLATE_NOT_CLOSED.as_str(),
                format!("{what} opens a template and does not close it: {shown}"),
            );
            self.found.push(open.at(at).hint("end it with '}}'"));
        }
    }

    fn condition(&mut self, source: &str, what: &str, node: &'d NodeDef, key: &str) {
        let at = node.places.of(key);
        self.closed(&source.into(), what, at);
        match Condition::parse(source) {
            Err(unreadable) => self.error(
                code::CONDITION_CANNOT_BE_READ.as_str(),
                format!("{what}: {}", unreadable.reason),
                at,
            ),
            Ok(condition) => self.paths(condition.paths().iter(), what, Some(node), at),
        }
    }

    pub(super) fn template(&mut self, template: &Template, what: &str, node: Option<&'d NodeDef>, at: Span) {
        if let Some(reason) = template.check() {
            self.error(code::OPERATOR_NEEDS_LIST.as_str(), format!("{what}: {reason}"), at);
        }
        let mut paths = Vec::new();
        template.paths(&mut paths);
        self.paths(paths.into_iter(), what, node, at);
    }

    /// Warns about paths without a value. They are not errors: such a path is null, and files rely
    /// on it.
    pub(super) fn paths<'p>(
        &mut self,
        paths: impl Iterator<Item = &'p Path>,
        what: &str,
        node: Option<&'d NodeDef>,
        at: Span,
    ) {
        for path in paths {
            let known = match &path.root {
                PathRoot::Input => {
                    let schema = self.definition.input_schema.as_ref();
                    schema.map(|schema| (Rc::new(schema.clone()), 0, "the input"))
                }
                PathRoot::Node(id) => {
                    self.output_schema(id).map(|schema| (schema, 1, "the output of the node"))
                }
                _ => None,
            };
            if let Some((schema, skipped, of)) = known {
                self.fits_schema(path, &schema, skipped, of, what, at);
            }
            let PathRoot::Node(id) = &path.root else {
                continue;
            };
            if self.branches.contains(id.as_str()) {
                continue;
            }
            if !self.has(id) {
                let message = format!("{what} names '{id}', which is not a node: it is always null");
                let unknown = Diagnostic::warning(code::TEMPLATE_NAMES_NO_NODE.as_str(), message).at(at);
                let names = self.ids.keys().copied().chain(["workflow"]);
                self.found.push(match hint_for(self.found.len(), id, names) {
                    Some(near) => unknown.hint(format!("did you mean '{near}'?")),
                    None => unknown.hint(
                        "paths start with a node's id, 'workflow.input', '_map_item' or '_loop_iteration'",
                    ),
                });
            } else if let Some(node) = node.filter(|node| !self.is_near(node, id)) {
                self.far.push(FarPath { node, id: id.clone(), what: what.to_owned(), at });
            }
        }
    }

    /// Returns the schema of a node's output, if the file or its agent declares it.
    fn output_schema(&self, id: &str) -> Option<Rc<Value>> {
        let work = &self.node(id)?.work;
        match (&work.call()?.output_schema_override, work) {
            (Some(own), _) => Some(Rc::new(own.clone())),
            (None, Work::Agent { agent_name, .. }) => {
                self.agent_schemas.get(agent_name.as_str())?.output.clone()
            }
            _ => None,
        }
    }

    /// Warns about input fields that the agent's schema lacks, and about missing required fields.
    fn input_fits(&mut self, node: &'d NodeDef, call: &'d Call, input: &Value) {
        let Work::Agent { agent_name, .. } = &node.work else { return };
        let of_agent = self.agent_schemas.get(agent_name.as_str()).and_then(|agent| agent.input.clone());
        let own = call.input_schema_override.as_ref().map(|own| Rc::new(own.clone()));
        let Some(schema) = own.or(of_agent) else { return };
        for (member, near) in misfits(input, &schema, self.found.len()) {
            let message = format!("'input' of node '{}' {member}", node.id);
            let wrong =
                Diagnostic::warning(code::PATH_NOT_IN_SCHEMA.as_str(), message).at(node.places.of("input"));
            self.found.push(hinted(wrong, near.as_deref()));
        }
    }

    /// Warns about a path to a property that its schema does not declare.
    fn fits_schema(&mut self, path: &Path, schema: &Value, skipped: usize, of: &str, what: &str, at: Span) {
        // Below a node, the path has `output`, which is not part of the schema.
        if skipped == 1 && path.steps.first().is_none_or(|step| step != "output") {
            return;
        }
        let mut schema = schema;
        for step in path.steps.iter().skip(skipped) {
            let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
                return;
            };
            match properties.get(step) {
                Some(inner) => schema = inner,
                None if is_open(schema) => return,
                None => {
                    let message =
                        format!("{what} names '{}', and the schema of {of} has no '{step}'", path.shown);
                    let wrong = Diagnostic::warning(code::PATH_NOT_IN_SCHEMA.as_str(), message).at(at);
                    let near = hint_for(self.found.len(), step, properties.keys().map(String::as_str));
                    self.found.push(hinted(wrong, near));
                    return;
                }
            }
        }
    }

    /// Returns whether `id` has run or was tried when `node` runs, as far as this follows without a
    /// graph walk. Exit handlers see all nodes.
    fn is_near(&self, node: &NodeDef, id: &str) -> bool {
        if self.shape.exits.contains(&node.id) || node.id == id || node.work.body() == Some(id) {
            return true;
        }
        // A body sees the nodes that its owners see, and the owners.
        let wanted = self.shape.stands_for(id);
        self.shape.owners.contains_key(&node.id)
            && self.shape.stands_for(&node.id).iter().any(|owner| wanted.contains(owner))
    }

    /// Warns about paths to nodes that do not run before the node of the path.
    fn far_paths(&mut self) {
        let far = std::mem::take(&mut self.far);
        let seen = self.run_before(&far);
        for (FarPath { node, id, what, at }, _) in far.into_iter().zip(seen).filter(|(_, seen)| !seen) {
            let message = format!("{what} names '{id}', which node '{}' does not wait for", node.id);
            let hint = format!("add '{id}' to 'depends_on' of '{}', or the value may be missing", node.id);
            self.found.push(
                Diagnostic::warning(code::TEMPLATE_NODE_MAY_NOT_BE_DONE.as_str(), message).at(at).hint(hint),
            );
        }
    }

    /// Returns for each path whether the node that it names runs before the node of the path.
    fn run_before(&self, far: &[FarPath<'d>]) -> Vec<bool> {
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        let mut upstream: Vec<Vec<usize>> = Vec::new();
        let mut place = |id, upstream: &mut Vec<Vec<usize>>| {
            *places.entry(id).or_insert_with(|| {
                upstream.push(Vec::new());
                upstream.len() - 1
            })
        };
        for node in &self.definition.nodes {
            let at = place(&node.id, &mut upstream);
            let before = self.shape.upstream(node);
            upstream[at] = before.into_iter().map(|id| place(id, &mut upstream)).collect();
        }
        // Each referenced name is a mark on the nodes that it resolves to.
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        let mut marked: Vec<(usize, usize)> = Vec::new();
        let mut questions = Vec::with_capacity(far.len());
        for FarPath { node, id, .. } in far {
            let next = names.len();
            let mark = *names.entry(id).or_insert(next);
            if mark == next {
                let stand_in = self.shape.stands_for(id);
                marked.extend(stand_in.into_iter().map(|id| (place(id, &mut upstream), mark)));
            }
            let mut starts: Vec<usize> =
                self.shape.stands_for(&node.id).into_iter().map(|id| place(id, &mut upstream)).collect();
            if let [start] = starts.as_slice() {
                questions.push((*start, mark));
            } else {
                // An additional graph node sees the nodes that all owners of the body see.
                starts = starts.into_iter().flat_map(|start| upstream[start].clone()).collect();
                upstream.push(starts);
                questions.push((upstream.len() - 1, mark));
            }
        }
        let mut marks = vec![Vec::new(); upstream.len()];
        for (node, mark) in marked {
            marks[node].push(mark);
        }
        reach::reaches(&upstream, &marks, &questions)
    }

    /// Checks the workflow's own schemas and mapping, and that its nodes run and are used.
    fn whole(&mut self, known: bool) {
        let definition = self.definition;
        self.schema(definition.input_schema.as_ref(), "'input_schema'", definition.places.of("input_schema"));
        self.schema(
            definition.output_schema.as_ref(),
            "'output_schema'",
            definition.places.of("output_schema"),
        );
        let at = definition.places.of("output_mapping");
        self.closed(&definition.output_mapping, "'output_mapping'", at);
        let mapping = Template::parse(&definition.output_mapping);
        self.template(&mapping, "'output_mapping'", None, definition.places.of("output_mapping"));
        let none_flows = definition.nodes.iter().all(|node| !self.shape.flows(&node.id));
        if none_flows && !definition.nodes.is_empty() {
            let nothing =
                "no node of the workflow can start: all are exit handlers or run inside other nodes"
                    .to_owned();
            self.error(code::NOTHING_TO_RUN.as_str(), nothing, definition.places.of("nodes"));
        }
        if known {
            self.unused(&mapping);
        }
    }

    /// Warns about nodes whose output is unused.
    fn unused(&mut self, mapping: &Template) {
        let mut used: BTreeSet<String> = self.shape.exits.clone();
        let mut paths = Vec::new();
        mapping.paths(&mut paths);
        used.extend(paths.iter().filter_map(|path| node_of(path)));
        for node in &self.definition.nodes {
            used.extend(self.shape.upstream(node).into_iter().map(str::to_owned));
            used.extend(node.targets().into_iter().map(|(_, id)| id.to_owned()));
            used.extend(named_in(node));
        }
        for node in &self.definition.nodes {
            let inner = self.shape.owners.contains_key(&node.id);
            let by_body = node.work.body().is_some_and(|body| used.contains(body));
            if !inner && !by_body && !used.contains(&node.id) {
                let message = format!("node '{}' runs, but nothing uses its output", node.id);
                self.found.push(
                    Diagnostic::warning(code::NOTHING_USES_NODE_OUTPUT.as_str(), message)
                        .at(node.places.of("id")),
                );
            }
        }
    }
}

/// Adds a similar name to the finding, if any.
fn hinted(finding: Diagnostic, near: Option<&str>) -> Diagnostic {
    match near {
        Some(near) => finding.hint(format!("did you mean '{near}'?")),
        None => finding,
    }
}

/// Names with a special meaning in templates.
const RESERVED: [&str; 5] = ["workflow", "item", "_map_item", "_map_index", "_loop_iteration"];
