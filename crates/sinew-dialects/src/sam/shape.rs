//! Relations between the nodes of a definition.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{NodeDef, Work, WorkflowDefinition};
use super::path::{Path, PathRoot, parts};
use super::template::{Template, paths_of};

/// Nodes that run inside others, and nodes that run at the end.
#[derive(Debug, Default)]
pub(super) struct GraphShape {
    /// Maps and loops, by the node that they run.
    pub(super) owners: BTreeMap<String, Vec<String>>,
    /// Exit handlers.
    pub(super) exits: BTreeSet<String>,
    /// Maps and loops that run themselves through their bodies.
    pub(super) circular: BTreeSet<String>,
    /// The last owner of each body, see [`owner_ends`].
    ends: BTreeMap<String, Option<String>>,
}

/// Returns the nodes that run themselves. Each node is visited once.
fn circular_nodes(definition: &WorkflowDefinition) -> BTreeSet<String> {
    let bodies: BTreeMap<&str, &str> =
        definition.nodes.iter().filter_map(|node| Some((node.id.as_str(), node.work.body()?))).collect();
    let mut circular = BTreeSet::new();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for start in bodies.keys().copied() {
        // Nodes from `first` on belong to this walk.
        let (first, mut walk, mut at) = (seen.len(), Vec::new(), start);
        while let Some(body) = bodies.get(at) {
            match seen.get(at) {
                Some(place) if *place >= first => {
                    circular.extend(walk.split_off(place - first).into_iter().map(str::to_owned));
                    break;
                }
                Some(_) => break,
                None => {
                    seen.insert(at, seen.len());
                    walk.push(at);
                    at = *body;
                }
            }
        }
    }
    circular
}

/// Returns for each node the first node up the chain of its owners that has no owner or several
/// (possibly the node itself), or `None` if its owners run each other in a cycle. Deeply nested
/// bodies are visited once. `only_owner` returns the owner of a node that has exactly one.
pub(super) fn owner_ends(count: usize, only_owner: impl Fn(usize) -> Option<usize>) -> Vec<Option<usize>> {
    let mut ends: Vec<Option<Option<usize>>> = vec![None; count];
    for start in 0..count {
        let (mut walk, mut at) = (Vec::new(), start);
        let end = loop {
            if let Some(known) = ends[at] {
                break known;
            }
            walk.push(at);
            let Some(owner) = only_owner(at) else { break Some(at) };
            // A walk that returns to this node is in a cycle.
            ends[at] = Some(None);
            at = owner;
        };
        for node in walk {
            ends[node] = Some(end);
        }
    }
    ends.into_iter().map(Option::flatten).collect()
}

impl GraphShape {
    pub(super) fn of(definition: &WorkflowDefinition) -> Self {
        let mut shape = Self::default();
        for node in &definition.nodes {
            if let Some(body) = node.work.body() {
                shape.owners.entry(body.to_owned()).or_default().push(node.id.clone());
            }
        }
        shape.exits.extend(definition.on_exit.handlers().map(|(_, id)| id.to_owned()));
        shape.circular = circular_nodes(definition);
        shape.ends = shape.find_ends();
        shape
    }

    fn find_ends(&self) -> BTreeMap<String, Option<String>> {
        let runs = self.owners.iter().flat_map(|(body, owners)| std::iter::once(body).chain(owners));
        let ids: Vec<&String> = runs.collect::<BTreeSet<_>>().into_iter().collect();
        let place = |id: &String| ids.binary_search(&id).unwrap_or_default();
        let ends = owner_ends(ids.len(), |at| match self.owners.get(ids[at]).map(Vec::as_slice) {
            Some([owner]) => Some(place(owner)),
            _ => None,
        });
        let named = ids.iter().zip(ends).filter(|(id, _)| self.owners.contains_key(**id));
        named.map(|(id, end)| ((*id).clone(), end.map(|end| ids[end].clone()))).collect()
    }

    /// Returns whether the node takes part in the flow.
    pub(super) fn flows(&self, id: &str) -> bool {
        !self.owners.contains_key(id) && !self.exits.contains(id)
    }

    /// Returns the nodes that must end before a node that depends on `id`: for a body, the nodes
    /// that run it.
    pub(super) fn stands_for<'a>(&'a self, id: &'a str) -> Vec<&'a str> {
        let mut seen = BTreeSet::new();
        let mut open = vec![id];
        let mut done = Vec::new();
        while let Some(id) = open.pop() {
            let id = match self.ends.get(id) {
                Some(Some(end)) => end.as_str(),
                Some(None) => continue,
                None => id,
            };
            match self.owners.get(id) {
                Some(owners) if seen.insert(id) => open.extend(owners.iter().rev().map(String::as_str)),
                Some(_) => {}
                None => done.push(id),
            }
        }
        done
    }

    /// Returns the nodes that must be resolved before `node` runs.
    pub(super) fn upstream<'a>(&'a self, node: &'a NodeDef) -> Vec<&'a str> {
        let waited = match &node.work {
            Work::Join { wait_for, .. } => wait_for.as_slice(),
            _ => &[],
        };
        node.depends_on.iter().chain(waited).flat_map(|id| self.stands_for(id)).collect()
    }
}

/// Returns the flow nodes that never run because they wait for each other.
pub(super) fn stuck<'d>(definition: &'d WorkflowDefinition, shape: &'d GraphShape) -> Vec<&'d str> {
    let flowing: Vec<&NodeDef> = definition.nodes.iter().filter(|node| shape.flows(&node.id)).collect();
    let ids: BTreeSet<&str> = flowing.iter().map(|node| node.id.as_str()).collect();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut waits: BTreeMap<&str, usize> = BTreeMap::new();
    let mut dependents: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in &flowing {
        let upstream: BTreeSet<&str> =
            shape.upstream(node).into_iter().filter(|id| ids.contains(id)).collect();
        waits.insert(&node.id, upstream.len());
        for id in upstream {
            dependents.entry(id).or_default().push(&node.id);
        }
    }
    let mut ready: Vec<&str> = waits.iter().filter(|(_, waits)| **waits == 0).map(|(id, _)| *id).collect();
    while let Some(id) = ready.pop() {
        if !done.insert(id) {
            continue;
        }
        for dependent in dependents.get(id).into_iter().flatten() {
            if let Some(waits) = waits.get_mut(dependent) {
                // A duplicate id, which is a separate error, may be counted twice.
                *waits = waits.saturating_sub(1);
                if *waits == 0 {
                    ready.push(dependent);
                }
            }
        }
    }
    flowing.iter().map(|node| node.id.as_str()).filter(|id| !done.contains(id)).collect()
}

/// Returns the node at the start of a path.
pub(super) fn node_of(path: &Path) -> Option<String> {
    match &path.root {
        PathRoot::Node(id) => Some(id.clone()),
        _ => None,
    }
}

/// Returns the nodes that a node's own templates and conditions name.
pub(super) fn named_in(node: &NodeDef) -> Vec<String> {
    let mut named = Vec::new();
    let mut add = |template: &Template| {
        let mut paths = Vec::new();
        template.paths(&mut paths);
        named.extend(paths.into_iter().filter_map(node_of));
    };
    if let Some(call) = node.work.call() {
        call.input.iter().for_each(|input| add(&Template::parse(input)));
        call.instruction.iter().for_each(|text| add(&Template::parse(&text.as_str().into())));
    }
    match &node.work {
        Work::Map { items, .. } => add(&Template::parse(items)),
        Work::Fork { branches, .. } => {
            branches
                .iter()
                .filter_map(|branch| branch.input.as_ref())
                .for_each(|input| add(&Template::parse(input)));
        }
        _ => {}
    }
    if let Work::Approval(approval) = &node.work {
        add(&Template::parse(&approval.prompt.as_str().into()));
        approval.data.iter().chain(&approval.allowed).for_each(|value| add(&Template::parse(value)));
    }
    if let Work::Sleep(sleep) = &node.work {
        sleep.duration.iter().for_each(|duration| add(&Template::parse(duration)));
        sleep.until.iter().for_each(|until| add(&Template::parse(&until.as_str().into())));
    }
    for condition in conditions(node) {
        named.extend(paths_of(&parts(condition)).filter_map(node_of));
    }
    named
}

/// Returns the conditions of a node.
fn conditions(node: &NodeDef) -> Vec<&str> {
    let mut conditions: Vec<&str> = node.when.iter().map(String::as_str).collect();
    match &node.work {
        Work::Conditional { condition, .. } | Work::Loop { condition, .. } => conditions.push(condition),
        Work::Switch { cases, .. } => conditions.extend(cases.iter().map(|case| case.condition.as_str())),
        _ => {}
    }
    conditions
}

/// Returns whether a condition of the definition reads the output of this node.
pub(super) fn conditions_read(definition: &WorkflowDefinition, id: &str) -> bool {
    let conditions = definition.nodes.iter().flat_map(conditions);
    conditions
        .flat_map(|condition| paths_of(&parts(condition)).filter_map(node_of).collect::<Vec<_>>())
        .any(|named| named == id)
}
