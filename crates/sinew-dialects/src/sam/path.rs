//! What stands between `{{` and `}}`: a path to a value, and how it is looked up.
//!
//! Inputs and mappings are forgiving (a node that did not run is null, so that `coalesce` works), conditions are
//! strict (they must not be decided by a typing error); both rules are the source engine's.

use std::borrow::Cow;

use serde_json::Value;

use crate::fill::filled_bytes;

/// A parsed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) root: Root,
    /// Members (or positions in arrays) below the root.
    pub(super) steps: Vec<String>,
    /// The path as messages show it, with aliases replaced.
    pub(super) shown: String,
}

/// Where a path starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// `workflow.input`, also written `workflow.parameters`.
    Input,
    /// `workflow.status` and `workflow.error`, known to exit handlers.
    Workflow,
    /// `_map_item`, also written `item`.
    Item,
    /// `_map_index`.
    Index,
    /// `_loop_iteration`.
    Iteration,
    /// A node, by its id.
    Node(String),
}

/// How a node stands, for lookups.
pub(super) enum Standing<'a> {
    /// Not run (yet), not taken, failed, or no such node.
    Absent,
    /// Skipped by its own `when`.
    Skipped,
    /// Done, with this output.
    Done(&'a Value),
}

/// A value that a condition or a template reads.
#[derive(Clone, Debug)]
pub(super) enum PathValue<'a> {
    /// The value at the path.
    Value(Cow<'a, Value>),
    /// `{"output": …}` around the output of a node, which is borrowed: outputs may be large.
    OutputDict(&'a Value),
}

impl PathValue<'_> {
    /// Bytes of the value as JSON, about.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Value(value) => filled_bytes(value),
            Self::OutputDict(output) => filled_bytes(output) + OUTPUT.len() + 6,
        }
    }

    /// The value itself.
    pub(super) fn into_value(self) -> Value {
        match self {
            Self::Value(value) => value.into_owned(),
            Self::OutputDict(output) => serde_json::json!({ OUTPUT: output }),
        }
    }
}

/// What paths can be looked up in.
pub(super) trait World {
    /// The workflow's input; none before it is known.
    fn input(&self) -> Option<&Value>;
    /// `{"status": …, "error": …}`, once the graph is done.
    fn workflow(&self) -> Option<&Value>;
    /// What the nearest map around works on.
    fn item(&self) -> Option<&Value>;
    /// Position of that item.
    fn index(&self) -> Option<u32>;
    /// Iteration of the nearest loop around.
    fn iteration(&self) -> Option<u32>;
    /// A node's output.
    fn node(&self, id: &str) -> Standing<'_>;
    /// True if missing fields are null: in a dry run agents answer nothing.
    fn lenient(&self) -> bool {
        false
    }
}

impl Path {
    /// Reads what stands between the braces. Anything is a path; whether it leads somewhere shows later.
    pub(super) fn parse(text: &str) -> Self {
        let text = text.trim();
        let mut steps: Vec<String> = text.split('.').map(str::to_owned).collect();
        let mut shown = text.to_owned();
        let first = steps.first().map(String::as_str).unwrap_or_default();
        let (root, used) = match (first, steps.get(1).map(String::as_str)) {
            ("workflow", Some("input")) => (Root::Input, 2),
            ("workflow", Some("parameters")) => {
                shown = shown.replacen("workflow.parameters", "workflow.input", 1);
                (Root::Input, 2)
            }
            ("workflow", Some(_)) => (Root::Workflow, 1),
            ("_map_item", _) => (Root::Item, 1),
            ("item", _) => {
                shown = shown.replacen("item", "_map_item", 1);
                (Root::Item, 1)
            }
            ("_map_index", _) => (Root::Index, 1),
            ("_loop_iteration", _) => (Root::Iteration, 1),
            (id, _) => (Root::Node(id.to_owned()), 1),
        };
        steps.drain(..used);
        Self { root, steps, shown }
    }

    /// The value for an input or a mapping: null where nothing is, an error where a node that ran lacks the field.
    /// Outputs of nodes are never copied.
    pub(super) fn value<'a>(&self, world: &'a dyn World) -> Result<PathValue<'a>, String> {
        if let (Root::Node(id), []) = (&self.root, self.steps.as_slice())
            && let Standing::Done(output) = world.node(id)
        {
            return Ok(PathValue::OutputDict(output));
        }
        self.member(world).map(PathValue::Value)
    }

    fn member<'a>(&self, world: &'a dyn World) -> Result<Cow<'a, Value>, String> {
        let missing = |step: &str, place: &str| {
            format!("Output field '{step}' not found in node '{place}' for path: {}", self.shown)
        };
        let no_value = |name: &str| format!("Variable '{name}' has no value here for path: {}", self.shown);
        match &self.root {
            Root::Input => {
                let input = world.input().ok_or(NO_INPUT)?;
                Ok(walk(input, &self.steps).map_or(Cow::Owned(Value::Null), Cow::Borrowed))
            }
            Root::Workflow => match world.workflow() {
                None => Ok(Cow::Owned(Value::Null)),
                Some(value) => {
                    walk(value, &self.steps).map(Cow::Borrowed).map_err(|step| missing(step, "workflow"))
                }
            },
            Root::Item => {
                let item = world.item().ok_or_else(|| no_value("_map_item"))?;
                walk(item, &self.steps).map(Cow::Borrowed).map_err(|step| missing(step, "_map_item"))
            }
            Root::Index | Root::Iteration => {
                let (count, name) = self.counter(world);
                let count = count.ok_or_else(|| no_value(name))?;
                match self.steps.first() {
                    None => Ok(Cow::Owned(count.into())),
                    Some(step) => Err(missing(step, name)),
                }
            }
            Root::Node(id) => match world.node(id) {
                Standing::Absent | Standing::Skipped => Ok(Cow::Owned(Value::Null)),
                Standing::Done(output) => match self.steps.split_first() {
                    None => Ok(Cow::Borrowed(output)),
                    Some((step, rest)) if step == OUTPUT => match walk(output, rest) {
                        Ok(value) => Ok(Cow::Borrowed(value)),
                        Err(_) if world.lenient() => Ok(Cow::Owned(Value::Null)),
                        Err(step) => Err(missing(step, id)),
                    },
                    Some((step, _)) => Err(missing(step, id)),
                },
            },
        }
    }

    /// Returns the value for a condition, or an error where nothing is. Outputs of nodes are never copied.
    pub(super) fn strict_value<'a>(&self, world: &'a dyn World) -> Result<PathValue<'a>, String> {
        if let (Root::Node(id), []) = (&self.root, self.steps.as_slice())
            && let Standing::Done(output) = world.node(id)
        {
            return Ok(PathValue::OutputDict(output));
        }
        self.strict_member(world).map(PathValue::Value)
    }

    fn strict_member<'a>(&self, world: &'a dyn World) -> Result<Cow<'a, Value>, String> {
        let absent = |id: &str| format!("Referenced node '{id}' has not completed");
        match &self.root {
            Root::Input => self.strict_walk(world.input().ok_or(NO_INPUT)?, &self.steps),
            Root::Workflow => {
                let value = world.workflow().ok_or("Workflow status has not been initialized")?;
                self.strict_walk(value, &self.steps)
            }
            Root::Item => {
                let item = world.item().ok_or_else(|| absent("_map_item"))?;
                self.strict_walk(item, unwrapped(&self.steps))
            }
            Root::Index | Root::Iteration => {
                let (count, name) = self.counter(world);
                let count = count.ok_or_else(|| absent(name))?;
                match unwrapped(&self.steps).first() {
                    None => Ok(Cow::Owned(count.into())),
                    Some(step) => Err(self.no_field(step)),
                }
            }
            Root::Node(id) => match (world.node(id), self.steps.split_first()) {
                (Standing::Absent, _) => Err(absent(id)),
                (Standing::Skipped, _) => Ok(Cow::Owned(Value::Null)),
                (Standing::Done(output), Some((step, rest))) if step == OUTPUT => {
                    match self.strict_walk(output, rest) {
                        Err(_) if world.lenient() => Ok(Cow::Owned(Value::Null)),
                        found => found,
                    }
                }
                (Standing::Done(_), steps) => {
                    Err(self.no_field(steps.map_or(OUTPUT, |(step, _)| step.as_str())))
                }
            },
        }
    }

    /// Below null everything is null; anything else that is not there is an error.
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

    fn counter(&self, world: &dyn World) -> (Option<u32>, &'static str) {
        match self.root {
            Root::Index => (world.index(), "_map_index"),
            _ => (world.iteration(), "_loop_iteration"),
        }
    }
}

const NO_INPUT: &str = "Workflow input has not been initialized";
/// The only member of a node for paths.
pub(super) const OUTPUT: &str = "output";

/// Loop variables may be written with or without `.output` in conditions.
fn unwrapped(steps: &[String]) -> &[String] {
    match steps.split_first() {
        Some((first, rest)) if first == OUTPUT => rest,
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

/// A part of a text with templates in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Plain text.
    Text(String),
    /// `{{path}}`, with the text as it was written.
    Path(Path, String),
}

/// Splits a text at its templates. Braces that are not closed are text.
pub(super) fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find("{{") {
        let Some(close) = rest[open + 2..].find("}}").map(|close| open + 2 + close) else {
            break;
        };
        if open > 0 {
            parts.push(Part::Text(rest[..open].to_owned()));
        }
        let written = &rest[open..close + 2];
        parts.push(match rest[open + 2..close].trim() {
            "" => Part::Text(written.to_owned()),
            inner => Part::Path(Path::parse(inner), written.to_owned()),
        });
        rest = &rest[close + 2..];
    }
    if !rest.is_empty() {
        parts.push(Part::Text(rest.to_owned()));
    }
    parts
}
