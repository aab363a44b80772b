//! Rules of a definition beyond its shape: ids, references, branches, cycles, schemas, templates,
//! conditions.

use sinew_protocol::code;
use std::collections::{BTreeMap, BTreeSet};

use sinew_source::{Diagnostic, Sources, Span, hint_for};

use super::agent_schemas::{AgentSchemas, SchemaOf, agent_schemas};
use super::approval::near_word;
use super::model::{NodeDef, Work, WorkflowDefinition};
use super::read::ParseFindings;
use super::shape::{GraphShape, named_in, node_of, stuck};
use super::template::Template;
use crate::chain::path_text;
use crate::{reach, text_input};

/// Checks a definition with a valid shape, and warns about valid but unlikely constructs.
///
/// `read` returns the schemas of agents, as `agent-input:NAME` and `agent-output:NAME`.
pub(super) fn validate(
    name: &str,
    definition: &WorkflowDefinition,
    sources: &Sources,
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
    let mut check = DefinitionCheck {
        name,
        definition,
        sources,
        ids,
        branches,
        shape,
        agent_schemas,
        far: Vec::new(),
        found,
    };
    check.unique_ids();
    for node in &definition.nodes {
        check.references(node);
    }
    for node in &definition.nodes {
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

/// The checks of one definition.
pub(super) struct DefinitionCheck<'d, 'f> {
    pub(super) name: &'d str,
    pub(super) definition: &'d WorkflowDefinition,
    /// Text of the file, for the spans of tokens.
    pub(super) sources: &'d Sources,
    pub(super) ids: BTreeMap<&'d str, usize>,
    /// Ids of all branches of forks.
    pub(super) branches: BTreeSet<&'d str>,
    pub(super) shape: GraphShape,
    pub(super) agent_schemas: BTreeMap<&'d str, AgentSchemas>,
    /// Paths whose node may run too late.
    pub(super) far: Vec<FarPath<'d>>,
    pub(super) found: &'f mut ParseFindings,
}

/// A path to a node that is not a direct dependency.
pub(super) struct FarPath<'d> {
    /// The node that the path belongs to.
    pub(super) node: &'d NodeDef,
    /// The node that the path names.
    pub(super) id: String,
    /// Description of the path's position.
    pub(super) what: String,
    pub(super) at: Span,
}

impl<'d> DefinitionCheck<'d, '_> {
    pub(super) fn error(&mut self, code: &'static str, message: String, at: Span) {
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

    pub(super) fn node(&self, id: &str) -> Option<&'d NodeDef> {
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
            // An unknown name in its dependencies is reported, and may mean this node.
            if !target.depends_on.contains(&node.id) && target.depends_on.iter().all(|id| self.has(id)) {
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

    /// Reports each cycle once. The nodes behind a cycle cannot run either, for the same reason.
    fn cycles(&mut self) {
        let stuck = stuck(self.definition, &self.shape).into_iter().map(str::to_owned).collect::<Vec<_>>();
        let places: BTreeMap<&str, usize> =
            stuck.iter().enumerate().map(|(n, id)| (id.as_str(), n)).collect();
        let before: Vec<Vec<usize>> = stuck
            .iter()
            .map(|id| {
                let upstream = self.node(id).map(|node| self.shape.upstream(node)).unwrap_or_default();
                upstream.into_iter().filter_map(|id| places.get(id).copied()).collect()
            })
            .collect();
        for mut group in reach::components(&before) {
            group.sort_unstable();
            let start = group[0];
            if group.len() > 1 || before[start].contains(&start) {
                let cycle: Vec<&str> =
                    cycle_within(&group, &before).into_iter().map(|n| stuck[n].as_str()).collect();
                self.cycle(&cycle);
            }
        }
    }

    /// Reports a cycle, in the order in which its nodes would run. The last node is that before the first.
    fn cycle(&mut self, cycle: &[&str]) {
        let (Some(first), Some(last)) = (cycle.first(), cycle.last()) else { return };
        let Some(node) = self.node(first) else { return };
        // The dependency that closes the cycle.
        let waited = match &node.work {
            Work::Join { wait_for, .. } => wait_for.as_slice(),
            _ => &[],
        };
        let keys = node.depends_on.iter().map(|id| ("depends_on", id));
        let keys = keys.chain(waited.iter().map(|id| ("wait_for", id)));
        let closing = keys.into_iter().find(|(_, id)| self.shape.stands_for(id).contains(last));
        let at = closing.map_or(node.places.of("id"), |(key, id)| node.places.of(&format!("{key}[{id}]")));
        if let Some((_, body)) = closing.filter(|(_, id)| cycle.len() == 1 && id != first) {
            let message =
                format!("Workflow DAG contains cycles: '{first}' waits for '{body}', which is its own body");
            let wrong = Diagnostic::error(code::DEPENDENCY_CYCLE.as_str(), message).at(at);
            self.found.push(wrong.hint(format!("'{first}' runs '{body}' itself; remove the dependency")));
            return;
        }
        let shown = path_text(&cycle.iter().chain(cycle.first()).copied().collect::<Vec<_>>());
        let unreachable: Vec<String> =
            cycle.iter().take(MAX_NAMED).map(|id| format!("Node '{id}' is unreachable")).collect();
        let message = format!("Workflow DAG contains cycles: {shown}; {}", unreachable.join(", "));
        let wrong = Diagnostic::error(code::DEPENDENCY_CYCLE.as_str(), message).at(at);
        self.found.push(wrong.hint("remove one of these dependencies"));
    }

    /// Returns whether `id` has run or was tried when `node` runs, as far as this follows without a
    /// graph walk. Exit handlers see all nodes.
    pub(super) fn is_near(&self, node: &NodeDef, id: &str) -> bool {
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
        self.schema(&definition.places, "input_schema", "'input_schema'");
        if let Some(name) = &definition.text_input {
            let place = definition.places.of("text_input");
            self.found.extend(text_input::check(definition.input_schema.as_ref(), name, place));
        }
        self.schema(&definition.places, "output_schema", "'output_schema'");
        self.templates(&definition.places, "output_mapping", "'output_mapping'", None);
        if let (Some(mapping), Some(schema)) =
            (definition.places.value("output_mapping"), &definition.output_schema)
        {
            self.object_fits(mapping, schema, "'output_mapping'", SchemaOf::Output);
        }
        let none_flows = definition.nodes.iter().all(|node| !self.shape.flows(&node.id));
        if none_flows && !definition.nodes.is_empty() {
            let nothing =
                "no node of the workflow can start: all are exit handlers or run inside other nodes"
                    .to_owned();
            self.error(code::NOTHING_TO_RUN.as_str(), nothing, definition.places.of("nodes"));
        }
        if known {
            self.unused(&Template::parse(&definition.output_mapping));
        }
    }

    /// Warns about nodes whose output is unused, and that have no other effect: nodes that call no agent,
    /// and agents that declare their output.
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
            let declared =
                || self.output_schema(&node.id).is_some_and(|schema| schema.get("properties").is_some());
            let has_effect = !matches!(node.work, Work::Join { .. }) && !declared();
            if !inner && !by_body && !has_effect && !used.contains(&node.id) {
                let message = format!("node '{}' runs, but nothing uses its output", node.id);
                self.found.push(
                    Diagnostic::warning(code::NOTHING_USES_NODE_OUTPUT.as_str(), message)
                        .at(node.places.of("id")),
                );
            }
        }
    }
}

/// Maximum number of unreachable nodes that a message names.
const MAX_NAMED: usize = 10;

/// Returns a cycle within a group of nodes that reach each other, from its first node on, in the order
/// in which they would run. `before` contains the dependencies of each node.
fn cycle_within(group: &[usize], before: &[Vec<usize>]) -> Vec<usize> {
    let start = group[0];
    let mut came_from: BTreeMap<usize, usize> = BTreeMap::new();
    let mut open = std::collections::VecDeque::from([start]);
    while let Some(node) = open.pop_front() {
        for next in before[node].iter().copied().filter(|next| group.binary_search(next).is_ok()) {
            if next == start {
                // The dependencies from the start, reversed.
                let mut cycle = vec![node];
                let mut at = node;
                while at != start {
                    at = came_from[&at];
                    cycle.push(at);
                }
                cycle.rotate_right(1);
                return cycle;
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = came_from.entry(next) {
                entry.insert(node);
                open.push_back(next);
            }
        }
    }
    vec![start]
}

/// Adds a similar name to the finding, if any.
pub(super) fn hinted(finding: Diagnostic, near: Option<&str>) -> Diagnostic {
    match near {
        Some(near) => finding.hint(format!("did you mean '{near}'?")),
        None => finding,
    }
}

/// Names with a special meaning in templates.
const RESERVED: [&str; 4] = ["workflow", "_map_item", "_map_index", "_loop_iteration"];
