//! Rules that the form cannot express: rules between fields, and rules of the graph.

use sinew_protocol::code;
use std::collections::{BTreeMap, BTreeSet};

use sinew_source::{Diagnostic, Node, Severity, Span, check_schema};

use crate::near_members::misspelled;

use super::model::{EvalKind, Evaluator, Workflow};
use super::path::Path;
use super::shape::{self, error};
use crate::chain::path_text;
use crate::pattern::MatchPattern;

/// Key of the execution's input in the context of nodes, so no node may have this id.
pub(super) const INPUT: &str = "input";
/// Message for the old name of `eval`.
const LEGACY: &str = "uses the legacy 'verify:' field. It was renamed to 'eval:' in @sweny-ai/core v0.2.0 with a \
    different shape (named evaluators with kind: value | function | judge). Migration guide: \
    https://spec.sweny.ai/nodes/#eval";

/// Checks the form of a file. Without findings, it can be parsed into a [`Workflow`].
pub(super) fn form(root: &Node) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (id, node) in nodes(root) {
        if let Some(member) = node.member("verify") {
            let message = format!("Node \"{id}\" {LEGACY}");
            found.push(
                Diagnostic::error(code::SWENY_WORKFLOW_WRONG_FORM.as_str(), message)
                    .at(member.key_span)
                    .sub_code("SCHEMA"),
            );
        }
    }
    if !found.is_empty() {
        return found;
    }
    shape::check(&shape::WORKFLOW, root, "", &mut found);
    for (id, node) in nodes(root) {
        let place = format!("nodes.{id}");
        tests(&format!("{place}.requires"), node.get("requires"), &mut found);
        for (n, evaluator) in node.get("eval").and_then(Node::as_array).into_iter().flatten().enumerate() {
            let place = format!("{place}.eval.{n}");
            tests(&format!("{place}.rule"), evaluator.get("rule"), &mut found);
            self::evaluator(evaluator, &place, &mut found);
        }
        if node
            .get("requires")
            .is_some_and(|requires| lacks(requires, &["output_required", "output_matches"]))
        {
            let text = "must declare output_required or output_matches";
            found.push(error(node.span, &format!("{place}.requires"), text));
        }
        if let Some(output) = node.get("output").filter(|output| output.as_object().is_some()) {
            const INVALID: &str = "is not a valid JSON Schema";
            for mut finding in check_schema(output, "it") {
                if finding.severity == Severity::Error {
                    finding.code = code::SWENY_WORKFLOW_WRONG_FORM.as_str();
                    finding.sub_code = Some("SCHEMA".to_owned());
                    let reason = finding.message.trim_start_matches(&format!("it {INVALID}: "));
                    finding.message = format!("{INVALID}: {reason}");
                }
                finding.message = format!("{place}.output: {}", finding.message);
                found.push(finding);
            }
        }
        if node.get("tools").is_some_and(|tools| lacks(tools, &["allow", "deny"])) {
            found.push(error(node.span, &format!("{place}.tools"), "must declare allow or deny"));
        }
    }
    found
}

fn nodes(root: &Node) -> impl Iterator<Item = (&str, &Node)> {
    let members = root.get("nodes").and_then(Node::as_object).unwrap_or_default();
    members.iter().map(|member| (member.key.as_str(), &member.value))
}

fn lacks(node: &Node, keys: &[&str]) -> bool {
    node.as_object().is_some() && keys.iter().all(|key| node.get(key).is_none())
}

/// Checks that each path has exactly one test, and that patterns compile.
fn tests(place: &str, rule: Option<&Node>, found: &mut Vec<Diagnostic>) {
    let checks = rule.and_then(|rule| rule.get("output_matches")).and_then(Node::as_array);
    for (n, check) in checks.into_iter().flatten().enumerate() {
        let place = format!("{place}.output_matches.{n}");
        let count = ["equals", "in", "matches"].iter().filter(|key| check.get(key).is_some()).count();
        if check.as_object().is_some() && count != 1 {
            found.push(error(check.span, &place, "exactly one of equals, in, matches must be set"));
        }
        if let Some(pattern) = check.get("matches").and_then(Node::as_str)
            && let Err(why) = MatchPattern::of(pattern)
        {
            found.push(error(check.span, &place, &format!("the pattern does not compile: {why}")));
        }
    }
}

fn evaluator(node: &Node, place: &str, found: &mut Vec<Diagnostic>) {
    let mut report = |text: &str| found.push(error(node.span, place, text));
    let has = |key: &str| node.get(key).is_some();
    let rule = |keys: &[&str]| {
        let rule = node.get("rule").and_then(Node::as_object).unwrap_or_default();
        let foreign = rule.iter().any(|member| !keys.contains(&member.key.as_str()));
        (!rule.is_empty(), foreign)
    };
    let kind = node.get("kind").and_then(Node::as_str);
    match kind {
        Some("judge") => {
            if !has("rubric") && misspelled(node, "rubric").is_none() {
                report("a judge evaluator needs a rubric");
            }
            if has("rule") {
                report("a judge evaluator has no rule");
            }
            let word = node.get("pass_when").and_then(Node::as_str);
            if word.is_some_and(|word| word.contains(char::is_whitespace)) {
                report("pass_when must be a single word");
            }
        }
        Some(kind @ ("value" | "function")) => {
            let (filled, foreign) = match kind {
                "value" => rule(&["output_required", "output_matches"]),
                _ => rule(&["any_tool_called", "all_tools_called", "no_tool_called"]),
            };
            if !filled {
                report(&format!("a {kind} evaluator needs a rule"));
            } else if foreign {
                report(&format!("the rule of a {kind} evaluator has members of another kind"));
            }
            if ["rubric", "pass_when", "model"].into_iter().any(has) {
                report(&format!("a {kind} evaluator has no rubric, pass_when or model"));
            }
        }
        _ => {}
    }
}

/// Errors of a workflow's graph.
pub(super) struct GraphFindings {
    /// True if no plan can be made; otherwise the graph is invalid but could run.
    pub(super) fatal: bool,
    pub(super) items: Vec<Diagnostic>,
}

/// Checks the graph and its contents.
pub(super) fn graph(workflow: &Workflow, root: &Node) -> GraphFindings {
    let members = root.get("nodes").and_then(Node::as_object).unwrap_or_default();
    let ids = members.iter().rev().map(|member| (member.key.as_str(), member.key_span)).collect();
    let places = IdSpans { root, ids };
    let mut check = GraphChecker { workflow, places, fatal: false, items: Vec::new() };
    check.references();
    if check.items.is_empty() {
        check.reachable();
        check.cycles();
        check.contents();
    }
    GraphFindings { fatal: check.fatal, items: check.items }
}

struct IdSpans<'a> {
    root: &'a Node,
    /// Spans of the ids of nodes.
    ids: BTreeMap<&'a str, Span>,
}

impl IdSpans<'_> {
    fn node(&self, id: &str) -> Span {
        self.ids.get(id).copied().unwrap_or_default()
    }

    fn edge(&self, n: usize) -> Span {
        self.end(n, "")
    }

    fn edge_node(&self, n: usize) -> Option<&Node> {
        self.root.get("edges")?.as_array()?.get(n)
    }

    /// Returns the span of one end of an edge, or of the whole edge if the field is missing.
    fn end(&self, n: usize, key: &str) -> Span {
        let edge = self.edge_node(n);
        edge.and_then(|edge| edge.get(key)).or(edge).map(|node| node.span).unwrap_or_default()
    }

    /// Returns the span of a path that a node requires.
    fn required_path(&self, id: &str, path: &str) -> Option<Span> {
        let requires = self.root.get("nodes")?.get(id)?.get("requires")?;
        let list = |key: &str| requires.get(key).and_then(Node::as_array).unwrap_or_default().iter();
        let matched = list("output_matches").filter_map(|check| check.get("path"));
        let found = list("output_required").chain(matched).find(|node| node.as_str() == Some(path))?;
        Some(found.span)
    }

    fn top(&self, key: &str) -> Span {
        self.root.get(key).map(|node| node.span).unwrap_or_default()
    }
}

struct GraphChecker<'a> {
    workflow: &'a Workflow,
    places: IdSpans<'a>,
    fatal: bool,
    items: Vec<Diagnostic>,
}

impl GraphChecker<'_> {
    fn report(&mut self, code: &str, span: Span, message: String) {
        self.items
            .push(Diagnostic::error(code::SWENY_GRAPH_NOT_VALID.as_str(), message).at(span).sub_code(code));
    }

    fn references(&mut self) {
        let workflow = self.workflow;
        let ids = || workflow.nodes.keys().map(String::as_str);
        let near = |finding_count: usize, id: &str| {
            let near = sinew_source::hint_for(finding_count, id, ids());
            near.map(|near| format!("did you mean '{near}'?"))
        };
        if !workflow.nodes.contains_key(&workflow.entry) {
            self.fatal = true;
            let message = format!("Entry node \"{}\" does not exist", workflow.entry);
            self.report("MISSING_ENTRY", self.places.top("entry"), message);
            self.hint(near(self.items.len(), &workflow.entry));
        }
        if workflow.nodes.contains_key(INPUT) {
            self.fatal = true;
            let message =
                format!("Node \"{INPUT}\" hides the input of the run: context has it under this key");
            self.report("RESERVED_NODE_ID", self.places.node(INPUT), message);
            self.hint(Some("rename the node".to_owned()));
        }
        let mut unconditional: BTreeMap<&str, usize> = BTreeMap::new();
        for (n, edge) in workflow.edges.iter().enumerate() {
            for (end, key, id, code) in [
                ("source", "from", &edge.from, "UNKNOWN_EDGE_SOURCE"),
                ("target", "to", &edge.to, "UNKNOWN_EDGE_TARGET"),
            ] {
                if !workflow.nodes.contains_key(id) {
                    self.fatal = true;
                    self.report(code, self.places.end(n, key), format!("Edge {end} \"{id}\" does not exist"));
                    self.hint(near(self.items.len(), id));
                }
            }
            let is_misspelled =
                self.places.edge_node(n).is_some_and(|edge| misspelled(edge, "max_iterations").is_some());
            if edge.from == edge.to && edge.max_iterations.is_none() && !is_misspelled {
                let message = format!("Edge from \"{}\" to itself (add max_iterations to allow)", edge.from);
                self.report("SELF_LOOP", self.places.edge(n), message);
            }
            let certain = edge.when.is_none() && edge.max_iterations.is_none();
            if certain && edge.from != edge.to && workflow.nodes.contains_key(&edge.to) {
                let count = unconditional.entry(&edge.from).or_default();
                *count += 1;
                if *count == 2 {
                    let message = format!(
                        "Node \"{}\" has several unconditional edges; only the first is ever taken",
                        edge.from
                    );
                    self.report("AMBIGUOUS_EDGES", self.places.edge(n), message);
                }
            }
        }
    }

    fn hint(&mut self, hint: Option<String>) {
        if let (Some(item), Some(hint)) = (self.items.last_mut(), hint) {
            item.hint = Some(hint);
        }
    }

    fn reachable(&mut self) {
        let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for edge in &self.workflow.edges {
            next.entry(&edge.from).or_default().push(&edge.to);
        }
        let mut seen = BTreeSet::from([self.workflow.entry.as_str()]);
        let mut queue = vec![self.workflow.entry.as_str()];
        while let Some(id) = queue.pop() {
            for target in next.get(id).into_iter().flatten() {
                if seen.insert(target) {
                    queue.push(target);
                }
            }
        }
        for id in self.workflow.nodes.keys().filter(|id| !seen.contains(id.as_str())) {
            let message = format!("Node \"{id}\" is not reachable from entry \"{}\"", self.workflow.entry);
            self.report("UNREACHABLE_NODE", self.places.node(id), message);
        }
    }

    /// Checks that every cycle contains a bounded edge.
    fn cycles(&mut self) {
        let mut next: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
        for (n, edge) in self.workflow.edges.iter().enumerate() {
            if edge.max_iterations.is_none() && edge.from != edge.to {
                next.entry(&edge.from).or_default().push((&edge.to, n));
            }
        }
        let mut done: BTreeSet<&str> = BTreeSet::new();
        for start in self.workflow.nodes.keys() {
            // The path from the start, with the number of visited edges of each node.
            let mut path: Vec<(&str, usize)> = vec![(start, 0)];
            let mut on_path: BTreeMap<&str, usize> = BTreeMap::from([(start.as_str(), 0)]);
            while let Some((id, looked)) = path.last_mut() {
                let edge = next.get(*id).and_then(|edges| edges.get(*looked)).copied();
                *looked += 1;
                match edge.filter(|_| !done.contains(id)) {
                    None => {
                        done.insert(id);
                        on_path.remove(*id);
                        path.pop();
                    }
                    Some((target, n)) if on_path.contains_key(target) => {
                        let from = on_path.get(target).copied().unwrap_or(0);
                        let cycle: Vec<&str> =
                            path[from..].iter().map(|(id, _)| *id).chain([target]).collect();
                        let message = format!(
                            "Cycle without max_iterations: {} (add max_iterations to one of its edges)",
                            path_text(&cycle)
                        );
                        self.report("UNBOUNDED_CYCLE", self.places.edge(n), message);
                    }
                    Some((target, _)) if done.contains(target) => {}
                    Some((target, _)) => {
                        on_path.insert(target, path.len());
                        path.push((target, 0));
                    }
                }
            }
        }
    }

    fn contents(&mut self) {
        for (id, node) in &self.workflow.nodes {
            if let Some(policy) = node.eval_policy.as_deref().filter(|policy| *policy != "all_pass") {
                self.fatal = true;
                let message =
                    format!("Node \"{id}\" uses eval_policy \"{policy}\"; only all_pass is supported");
                self.report("UNSUPPORTED_EVAL_POLICY", self.places.node(id), message);
            }
        }
        for (id, skill) in &self.workflow.skills {
            if !skill.gives() {
                self.fatal = true;
                let message = format!("Inline skill \"{id}\" must provide instruction or mcp");
                let span = self.places.root.get("skills").and_then(|skills| skills.get(id));
                self.report("INVALID_INLINE_SKILL", span.map(|node| node.span).unwrap_or_default(), message);
            }
        }
        self.warnings();
    }

    fn warnings(&mut self) {
        let judges =
            |evals: &[Evaluator]| evals.iter().filter(|eval| eval.kind == EvalKind::Judge).count() as u64;
        let calls: u64 = self.workflow.nodes.values().map(|node| judges(&node.work.eval)).sum();
        let budget = self.workflow.judge_budget.unwrap_or(50);
        let mut warn = |code: &str, span: Span, message: String, near: Option<&str>| {
            let warning = Diagnostic::warning(code::SWENY_SETTING_PROBABLY_WRONG.as_str(), message);
            let warning = warning.at(span).sub_code(code);
            self.items.push(match near {
                Some(near) => warning.hint(format!("did you mean '{near}'?")),
                None => warning,
            });
        };
        if calls > budget {
            let message = format!("{calls} judge evaluators are more than the judge_budget of {budget}");
            warn("JUDGE_BUDGET", self.places.top("judge_budget"), message, None);
        }
        for (id, node) in &self.workflow.nodes {
            let requires = node.work.requires.iter();
            let present = requires.clone().flat_map(|requires| &requires.output_required);
            let matched =
                requires.flat_map(|requires| requires.output_matches.iter().map(|check| &check.path));
            for path in present.chain(matched) {
                let known = Path::parse(path).is_some_and(|path| {
                    path.root() == INPUT || self.workflow.nodes.contains_key(path.root())
                });
                if !known {
                    let message = format!(
                        "Node \"{id}\" requires '{path}', which leads to no node and not to the input"
                    );
                    let at = self.places.required_path(id, path).unwrap_or(self.places.node(id));
                    let root = Path::parse(path).map(|path| path.root().to_owned());
                    let root = root.as_deref().unwrap_or(path);
                    let ids = self.workflow.nodes.keys().map(String::as_str).chain([INPUT]);
                    warn("UNKNOWN_PATH", at, message, sinew_source::did_you_mean(root, ids));
                }
            }
        }
    }
}
