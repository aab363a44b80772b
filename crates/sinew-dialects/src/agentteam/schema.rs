//! Contracts of nodes: declared types of inputs and outputs, checked at load and at run time.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sinew_engine::{ActivationId, AdapterContext};
use sinew_script::python_type;

use super::adapter;
use super::lower::{PlanRules, TeamNodeData};
use super::spec::NodeSpec;

/// Maximum number of violations that one activation reports.
const MAX_VIOLATIONS: usize = 16;

/// Treatment of an input or output that violates its contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SchemaChecks {
    /// The violation is reported and counted; the node continues.
    #[default]
    Warn,
    /// The node fails.
    Fail,
    /// No check.
    Off,
}

impl SchemaChecks {
    /// Reads the choice by its name in a file or plan.
    pub(super) fn of_word(word: &str) -> Option<Self> {
        match word {
            "warn" => Some(Self::Warn),
            "fail" => Some(Self::Fail),
            "off" => Some(Self::Off),
            _ => None,
        }
    }

    /// Returns the name of the choice.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::Off => "off",
        }
    }
}

/// Types that a node's spec declares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct NodeContract {
    /// Required fields of an input.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) required: Vec<String>,
    /// Types of the fields of an input.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) input: Map<String, Value>,
    /// Types of the fields of an output.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) output: Map<String, Value>,
}

impl NodeContract {
    /// Reads the contract of a spec.
    pub(super) fn of(spec: &NodeSpec) -> Self {
        let types = |members: &Map<String, Value>| -> Map<String, Value> {
            let declared = |(key, entry): (&String, &Value)| {
                let kind = entry.get("type").and_then(Value::as_str).filter(|kind| is_checked(kind))?;
                Some((key.clone(), json!(kind)))
            };
            members.iter().filter_map(declared).collect()
        };
        Self {
            required: NodeSpec::required(&spec.input_params).map(str::to_owned).collect(),
            input: types(&spec.input_params),
            output: spec.output_params.as_ref().map(types).unwrap_or_default(),
        }
    }

    /// Returns whether there is nothing to check.
    pub(super) fn is_empty(&self) -> bool {
        self.required.is_empty() && self.input.is_empty() && self.output.is_empty()
    }
}

fn is_checked(kind: &str) -> bool {
    matches!(kind, "string" | "integer" | "number" | "float" | "boolean" | "object" | "array")
}

/// Returns whether a value has a type of the specs. Null represents a missing value.
pub(super) fn is_of_type(value: &Value, kind: &str) -> bool {
    match kind {
        _ if value.is_null() => true,
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" | "float" => value.is_number(),
        "boolean" => value.is_boolean(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        _ => true,
    }
}

/// One field that violates a contract.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ContractViolation {
    /// `input` or `output`.
    side: &'static str,
    member: String,
    problem: String,
}

impl ContractViolation {
    /// Returns the violation as JSON for people and programs.
    pub(super) fn to_json(&self, node: &str) -> Value {
        json!({ "node": node, "side": self.side, "member": self.member, "problem": self.problem })
    }

    /// Returns one sentence for a fault.
    pub(super) fn message(&self) -> String {
        format!("the {} member '{}' {}", self.side, self.member, self.problem)
    }
}

fn typed(side: &'static str, types: &Map<String, Value>, value: &Value, found: &mut Vec<ContractViolation>) {
    let Some(members) = value.as_object() else { return };
    for (member, kind) in types.iter().filter_map(|(member, kind)| Some((member, kind.as_str()?))) {
        let Some(given) = members.get(member).filter(|given| !is_of_type(given, kind)) else { continue };
        let problem = format!("must be of the type {kind}, not {}", python_type(given));
        found.push(ContractViolation { side, member: member.clone(), problem });
    }
}

/// Returns the violations in the input of a node.
pub(super) fn input_violations(extra: &TeamNodeData, input: &Value) -> Vec<ContractViolation> {
    let mut found = Vec::new();
    let given = |member: &str| {
        input.get(member).is_some_and(|value| !value.is_null())
            || extra.configurations.contains_key(member)
            || extra.input_params.contains_key(member)
    };
    // A list of several inputs is not checked: the node searches it.
    if !input.is_array() {
        let missing = extra.contract.required.iter().filter(|member| !given(member));
        found.extend(missing.map(|member| ContractViolation {
            side: "input",
            member: member.clone(),
            problem: "is required but missing".to_owned(),
        }));
    }
    typed("input", &extra.contract.input, input, &mut found);
    found.truncate(MAX_VIOLATIONS);
    found
}

/// Returns the violations in the payload of a node at `result`.
pub(super) fn output_violations(extra: &TeamNodeData, payload: &Value) -> Vec<ContractViolation> {
    // An agent's answer may have any shape, so it is not checked.
    if extra.kind == "AI_AGENT" {
        return Vec::new();
    }
    let mut found = Vec::new();
    typed("output", &extra.contract.output, payload, &mut found);
    found.truncate(MAX_VIOLATIONS);
    found
}

/// Returns all violations of an activation that the recorded data shows.
pub(super) fn violations_of(ctx: &AdapterContext<'_>, act: ActivationId) -> Vec<Value> {
    let node = ctx.node_of(act);
    let Ok(extra) = adapter::extra(node) else { return Vec::new() };
    if PlanRules::of(ctx.plan()).schema_checks == SchemaChecks::Off || extra.contract.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    if adapter::works(&extra) {
        found.extend(input_violations(&extra, &adapter::input_of(ctx, act)));
    }
    if let Some(raw) = adapter::raw_reply(ctx, act) {
        let ports = adapter::ports_of(&extra.kind, raw);
        let result = ports.iter().find(|(port, _)| port == "result");
        found.extend(result.map(|(_, payload)| output_violations(&extra, payload)).unwrap_or_default());
    }
    found.iter().map(|violation| violation.to_json(&node.id)).collect()
}
