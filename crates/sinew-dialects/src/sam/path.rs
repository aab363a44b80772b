//! Parsing and lookup of the path between `{{` and `}}`.
//!
//! A path without a value is null (specification, section "Resolution"). One case is an error in
//! conditions: a missing field in the output of a completed node.

use std::borrow::Cow;

use serde_json::Value;

use super::chance::{ChanceSeed, ConditionPosition};
use crate::fill::filled_bytes;

/// A parsed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) root: PathRoot,
    /// Fields (or array indexes) below the root.
    pub(super) steps: Vec<String>,
    /// The path for messages, with aliases replaced.
    pub(super) shown: String,
}

/// The start of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathRoot {
    /// `workflow.input`, also written `workflow.parameters`.
    Input,
    /// `workflow.status` and `workflow.error`, available to exit handlers.
    Workflow,
    /// `_map_item`.
    Item,
    /// `item`: the item of the map, or outside of maps the node of this name.
    Alias,
    /// `_map_index`.
    Index,
    /// `_loop_iteration`.
    Iteration,
    /// A node, by its id.
    Node(String),
}

/// State of a node, for lookups.
pub(super) enum NodeLookup<'a> {
    /// Not run (yet), not selected, failed, or no such node.
    Absent,
    /// Skipped by its own `when`.
    Skipped,
    /// Completed, with this output.
    Done(&'a Value),
}

/// A value that a condition or a template reads.
#[derive(Clone, Debug)]
pub(super) enum PathValue<'a> {
    /// The value at the path.
    Value(Cow<'a, Value>),
    /// `{"output": …}` with the output of a node, which is borrowed because outputs may be large.
    OutputDict(&'a Value),
}

impl PathValue<'_> {
    /// Returns the approximate size of the value as JSON, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Value(value) => filled_bytes(value),
            Self::OutputDict(output) => filled_bytes(output) + OUTPUT.len() + 6,
        }
    }

    /// Returns a copy that borrows nothing.
    fn into_owned<'b>(self) -> PathValue<'b> {
        PathValue::Value(Cow::Owned(self.into_value()))
    }

    /// Returns the value.
    pub(super) fn into_value(self) -> Value {
        match self {
            Self::Value(value) => value.into_owned(),
            Self::OutputDict(output) => serde_json::json!({ OUTPUT: output }),
        }
    }
}

/// Values for path lookups.
pub(super) trait TemplateScope {
    /// Returns the workflow's input; `None` before it is known.
    fn input(&self) -> Option<&Value>;
    /// Returns `{"status": …, "error": …}`, once the graph is done.
    fn workflow(&self) -> Option<&Value>;
    /// Returns the item of the nearest enclosing map.
    fn item(&self) -> Option<&Value>;
    /// Returns the index of that item.
    fn index(&self) -> Option<u32>;
    /// Returns the iteration of the nearest enclosing loop.
    fn iteration(&self) -> Option<u32>;
    /// Returns a node's state and output.
    fn node(&self, id: &str) -> NodeLookup<'_>;
    /// Returns the error of a node that handles its failures, null if it did not fail; `None` for
    /// other nodes.
    fn error(&self, _id: &str) -> Option<Value> {
        None
    }
    /// Returns the digest of a decision's position, the seed of its random numbers: the same for
    /// every owner of an execution.
    fn chance_seed(&self, _place: ConditionPosition) -> ChanceSeed {
        ChanceSeed::default()
    }
    /// Returns whether missing fields are null: agents return nothing in a dry run.
    fn lenient(&self) -> bool {
        false
    }
}

impl Path {
    /// Parses the text between the braces. Any text is a path; lookups determine whether it has a
    /// value.
    pub(super) fn parse(text: &str) -> Self {
        let text = text.trim();
        let mut steps: Vec<String> = text.split('.').map(str::to_owned).collect();
        let mut shown = text.to_owned();
        let first = steps.first().map(String::as_str).unwrap_or_default();
        let (root, used) = match (first, steps.get(1).map(String::as_str)) {
            ("workflow", Some("input")) => (PathRoot::Input, 2),
            ("workflow", Some("parameters")) => {
                shown = shown.replacen("workflow.parameters", "workflow.input", 1);
                (PathRoot::Input, 2)
            }
            ("workflow", Some(_)) => (PathRoot::Workflow, 1),
            ("_map_item", _) => (PathRoot::Item, 1),
            (NODE_OR_ITEM, _) => (PathRoot::Alias, 1),
            ("_map_index", _) => (PathRoot::Index, 1),
            ("_loop_iteration", _) => (PathRoot::Iteration, 1),
            (id, _) => (PathRoot::Node(id.to_owned()), 1),
        };
        steps.drain(..used);
        Self { root, steps, shown }
    }

    /// Returns the value for an input, a mapping or an instruction: null if it is missing. Node
    /// outputs are never copied.
    pub(super) fn value<'a>(&self, world: &'a dyn TemplateScope) -> Result<PathValue<'a>, String> {
        let found = match &self.root {
            PathRoot::Input => walk(world.input().ok_or(NO_INPUT)?, &self.steps).ok().map(Cow::Borrowed),
            PathRoot::Workflow => {
                world.workflow().and_then(|value| walk(value, &self.steps).ok()).map(Cow::Borrowed)
            }
            PathRoot::Alias if world.item().is_none() => {
                let node = Self { root: PathRoot::Node(NODE_OR_ITEM.to_owned()), ..self.clone() };
                return node.value(world).map(PathValue::into_owned);
            }
            PathRoot::Item | PathRoot::Alias => {
                let item = world.item();
                item.and_then(|item| walk(item, unwrapped(item, &self.steps)).ok()).map(Cow::Borrowed)
            }
            PathRoot::Index | PathRoot::Iteration => {
                let count = self.counter(world).map(Value::from);
                count.filter(|count| unwrapped(count, &self.steps).is_empty()).map(Cow::Owned)
            }
            PathRoot::Node(id) if self.is_error(id, world) => self.error(id, world).map(Cow::Owned),
            PathRoot::Node(id) => match world.node(id) {
                NodeLookup::Absent | NodeLookup::Skipped => None,
                NodeLookup::Done(output) if self.steps.is_empty() => {
                    return Ok(PathValue::OutputDict(output));
                }
                NodeLookup::Done(output) => self.field(output).map(Cow::Borrowed),
            },
        };
        Ok(PathValue::Value(found.unwrap_or(Cow::Owned(Value::Null))))
    }

    /// Returns whether the path is below the error of a node that handles its failures.
    fn is_error(&self, id: &str, world: &dyn TemplateScope) -> bool {
        self.steps.first().is_some_and(|step| step == ERROR) && world.error(id).is_some()
    }

    /// Returns the value at a path below the error of a node; `None` if there is none.
    fn error(&self, id: &str, world: &dyn TemplateScope) -> Option<Value> {
        walk(&world.error(id)?, self.steps.get(1..)?).ok().cloned()
    }

    /// Looks up the steps in the output of a completed node.
    fn field<'a>(&self, output: &'a Value) -> Option<&'a Value> {
        match self.steps.split_first() {
            None => Some(output),
            Some((step, rest)) if step == OUTPUT => walk(output, rest).ok(),
            Some(_) => None,
        }
    }

    /// Returns the value for a condition, or an error for a missing field in a node's output. Node
    /// outputs are never copied.
    pub(super) fn strict_value<'a>(&self, world: &'a dyn TemplateScope) -> Result<PathValue<'a>, String> {
        if let (PathRoot::Node(id), []) = (&self.root, self.steps.as_slice())
            && let NodeLookup::Done(output) = world.node(id)
        {
            return Ok(PathValue::OutputDict(output));
        }
        self.strict_member(world).map(PathValue::Value)
    }

    fn strict_member<'a>(&self, world: &'a dyn TemplateScope) -> Result<Cow<'a, Value>, String> {
        match &self.root {
            PathRoot::Input if world.input().is_none() => Err(NO_INPUT.to_owned()),
            PathRoot::Node(id) if self.is_error(id, world) => {
                Ok(Cow::Owned(self.error(id, world).unwrap_or_default()))
            }
            PathRoot::Node(id) => match (world.node(id), self.steps.split_first()) {
                (NodeLookup::Absent | NodeLookup::Skipped, _) => Ok(Cow::Owned(Value::Null)),
                (NodeLookup::Done(output), Some((step, rest))) if step == OUTPUT => {
                    match self.strict_walk(output, rest) {
                        Err(_) if world.lenient() => Ok(Cow::Owned(Value::Null)),
                        found => found,
                    }
                }
                (NodeLookup::Done(_), steps) => {
                    Err(self.no_field(steps.map_or(OUTPUT, |(step, _)| step.as_str())))
                }
            },
            _ => match self.value(world)? {
                PathValue::Value(value) => Ok(value),
                PathValue::OutputDict(output) => Ok(Cow::Borrowed(output)),
            },
        }
    }

    /// Fields of null are null; any other missing field is an error.
    fn strict_walk<'a>(&self, value: &'a Value, steps: &[String]) -> Result<Cow<'a, Value>, String> {
        let mut value = value;
        for step in steps {
            if value.is_null() {
                break;
            }
            value = child(value, step).ok_or_else(|| self.no_field(step))?;
        }
        Ok(Cow::Borrowed(value))
    }

    fn no_field(&self, step: &str) -> String {
        format!("Field '{step}' not found in path: {}", self.shown)
    }

    fn counter(&self, world: &dyn TemplateScope) -> Option<u32> {
        match self.root {
            PathRoot::Index => world.index(),
            _ => world.iteration(),
        }
    }
}

/// Alias of `_map_item` in maps.
const NODE_OR_ITEM: &str = "item";
const NO_INPUT: &str = "Workflow input has not been initialized";
/// The field of a node with its output.
pub(super) const OUTPUT: &str = "output";
/// Field of a node that handles its failures.
pub(super) const ERROR: &str = "error";

/// Removes the optional `.output` of loop variables. An item with a field of this name keeps it.
fn unwrapped<'s>(variable: &Value, steps: &'s [String]) -> &'s [String] {
    match steps.split_first() {
        Some((first, rest)) if first == OUTPUT && variable.get(OUTPUT).is_none() => rest,
        _ => steps,
    }
}

fn walk<'a, 's>(value: &'a Value, steps: &'s [String]) -> Result<&'a Value, &'s str> {
    steps.iter().try_fold(value, |value, step| child(value, step).ok_or(step.as_str()))
}

fn child<'a>(value: &'a Value, step: &str) -> Option<&'a Value> {
    match value {
        Value::Object(members) => members.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        _ => None,
    }
}

/// A part of a string with templates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TextPart {
    /// Plain text.
    Text(String),
    /// A `{{path}}`, with its original text.
    Path(Path, String),
}

/// Splits a string at its templates. Unclosed braces are text.
pub(super) fn parts(text: &str) -> Vec<TextPart> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find("{{") {
        let Some(close) = rest[open + 2..].find("}}").map(|close| open + 2 + close) else {
            break;
        };
        if open > 0 {
            parts.push(TextPart::Text(rest[..open].to_owned()));
        }
        let written = &rest[open..close + 2];
        parts.push(match rest[open + 2..close].trim() {
            "" => TextPart::Text(written.to_owned()),
            inner => TextPart::Path(Path::parse(inner), written.to_owned()),
        });
        rest = &rest[close + 2..];
    }
    if !rest.is_empty() {
        parts.push(TextPart::Text(rest.to_owned()));
    }
    parts
}
