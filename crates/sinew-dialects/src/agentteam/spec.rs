//! Node specs: inputs and outputs of a node type, and the shaping of outputs by them.
//!
//! The built-in registry is `specs.json`. A workflow extends it under `specs`: an object of
//! `TYPE.SUBTYPE` to a spec, or paths of files with such objects.

use sinew_protocol::code;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sinew_source::{Diagnostic, Node};

/// Specs by `TYPE.SUBTYPE`.
pub(super) type SpecRegistry = BTreeMap<String, NodeSpec>;

/// Inputs, outputs and settings of a node type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct NodeSpec {
    /// One line for people.
    #[serde(default)]
    pub(super) description: String,
    /// Settings: schema-like objects by name; `required: true` marks required ones.
    #[serde(default)]
    pub(super) configurations: Map<String, Value>,
    /// Fields of an input, in the same form.
    #[serde(default)]
    pub(super) input_params: Map<String, Value>,
    /// Fields of an output with their defaults; `None` = outputs are passed on unchanged.
    #[serde(default)]
    pub(super) output_params: Option<Map<String, Value>>,
    /// Ports of an output.
    #[serde(default = "result_only")]
    pub(super) ports: Vec<String>,
}

fn result_only() -> Vec<String> {
    vec!["result".to_owned()]
}

/// Shape of a node's outputs in the plan: defaults by field, `None` = passed on unchanged.
pub(super) type OutputShape = Option<Map<String, Value>>;

static BUILT_IN: LazyLock<SpecRegistry> =
    LazyLock::new(|| serde_json::from_str(include_str!("specs.json")).unwrap_or_default());

/// Returns the built-in specs.
pub(super) fn built_in() -> &'static SpecRegistry {
    &BUILT_IN
}

impl NodeSpec {
    /// Returns the shape of its outputs, with values in place of the registry's schema objects.
    pub(super) fn shape(&self) -> OutputShape {
        let members = self.output_params.as_ref()?;
        Some(members.iter().map(|(key, value)| (key.clone(), default_of(value))).collect())
    }

    /// Returns the required settings.
    pub(super) fn required(members: &Map<String, Value>) -> impl Iterator<Item = &str> {
        let required = |value: &Value| value.get("required").and_then(Value::as_bool).unwrap_or(false);
        members.iter().filter(move |(_, value)| required(value)).map(|(key, _)| key.as_str())
    }

    /// Reads a spec in the form of a file: `"*"`, `{output_params: …}` or just the defaults.
    fn of(value: &Value) -> Result<Self, String> {
        const MEMBERS: [&str; 5] =
            ["output_params", "configurations", "input_params", "ports", "description"];
        match value {
            Value::String(all) if all == "*" => Ok(Self { ports: Vec::new(), ..Self::default() }),
            Value::Object(members) if MEMBERS.iter().any(|key| members.contains_key(*key)) => {
                Self::deserialize(value).map_err(|error| error.to_string())
            }
            Value::Object(defaults) => {
                Ok(Self { output_params: Some(defaults.clone()), ports: Vec::new(), ..Self::default() })
            }
            _ => Err("a spec is \"*\" or an object".to_owned()),
        }
    }
}

/// Returns the value of an entry of a spec: its default, or else the empty value of its type.
pub(super) fn default_of(entry: &Value) -> Value {
    let Some(members) = entry.as_object() else { return entry.clone() };
    let kind = members.get("type").and_then(Value::as_str).unwrap_or_default();
    let empty = match kind {
        "string" => Value::from(""),
        "integer" | "number" | "float" => Value::from(0),
        "boolean" => Value::from(false),
        "object" => Value::Object(Map::new()),
        "array" => Value::Array(Vec::new()),
        "any" | "null" => Value::Null,
        _ => return entry.clone(),
    };
    members.get("default").cloned().unwrap_or(empty)
}

/// Shapes the payload of one port by the spec.
pub(super) fn shape(shape: &OutputShape, payload: &Value) -> Value {
    let Some(members) = shape else { return payload.clone() };
    let shaped = members.iter().map(|(key, default)| {
        let value = match payload {
            Value::Object(given) => given.get(key),
            other => (key == "data").then_some(other),
        };
        (key.clone(), value.unwrap_or(default).clone())
    });
    Value::Object(shaped.collect())
}

/// Fields of a trigger's output that contain the person's message.
const SAID_MEMBERS: [&str; 2] = ["message", "trigger_message"];

/// Returns the data that started a workflow, completed with the defaults of the trigger's spec.
///
/// No data is removed, because the first node reads it. If the spec has a message field and the
/// data does not, the message is extracted from the data.
pub(super) fn shape_trigger(shape: &OutputShape, data: &Value) -> Value {
    let mut members = shape.clone().unwrap_or_default();
    let said = super::message::trigger_message(data);
    for key in SAID_MEMBERS {
        if let Some(own) = members.get_mut(key).filter(|_| !said.is_empty()) {
            *own = Value::from(said.as_str());
        }
    }
    match data {
        Value::Object(given) => members.extend(given.clone()),
        Value::Null => {}
        other => drop(members.insert("data".to_owned(), other.clone())),
    }
    Value::Object(members)
}

/// Returns the built-in specs extended by those of the file.
pub(super) fn registry(
    root: &Node,
    read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    found: &mut Vec<Diagnostic>,
) -> SpecRegistry {
    let mut all = built_in().clone();
    let Some(own) = root.get("specs").filter(|own| !own.is_null()) else { return all };
    let mut report = |at: &Node, message: String| {
        found.push(
            Diagnostic::error(code::NODE_TYPE_WITHOUT_SPEC.as_str(), message)
                .at(at.span)
                .sub_code("NodeSpecError"),
        );
    };
    if let Some(paths) = own.as_array() {
        for path in paths {
            let Some(text) = path.as_str() else {
                report(path, format!("specs lists paths of files, not {}", path.type_name()));
                continue;
            };
            let parsed = read(text).and_then(|bytes| {
                serde_json::from_slice::<Map<String, Value>>(&bytes).map_err(|error| error.to_string())
            });
            match parsed {
                Err(error) => report(path, format!("spec file '{text}' cannot be read: {error}")),
                Ok(entries) => {
                    for (name, entry) in &entries {
                        match NodeSpec::of(entry) {
                            Ok(spec) => drop(all.insert(name.clone(), spec)),
                            Err(error) => report(path, format!("spec '{name}' of '{text}': {error}")),
                        }
                    }
                }
            }
        }
    } else if let Some(members) = own.as_object() {
        for member in members {
            match NodeSpec::of(&member.value.to_json()) {
                Ok(spec) => drop(all.insert(member.key.clone(), spec)),
                Err(error) => report(&member.value, format!("spec '{}': {error}", member.key)),
            }
        }
    } else {
        report(own, format!("specs must be an object or a list of paths, not {}", own.type_name()));
    }
    all
}
