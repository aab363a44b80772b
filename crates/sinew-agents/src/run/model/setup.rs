//! Builds the spec of a conversation from an agent file and a task.

use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use sinew_model::{ConversationSpec, ModelSpec, OutputSchema, OutputSpec, ToolSpec};
use sinew_source::{Schema, SchemaCache, SchemaError};

use super::builtin_tools::SkillText;
use super::endpoint::ModelEndpoint;
use super::instruction::InstructionValues;
use super::{AgentProfile, ModelAgent};
use crate::call::Call;
use crate::error::AgentError;

/// Maximum bytes of a skill that is included in the instruction.
const MAX_SHOWN_SKILL: usize = 4 << 10;

/// Reasoning efforts that nodes can request.
const EFFORTS: [&str; 4] = ["minimal", "low", "medium", "high"];

/// Temperatures that nodes can request.
const TEMPERATURES: RangeInclusive<f64> = 0.0..=2.0;

/// Compiled schemas of tools and outputs, shared by conversations.
static SCHEMAS: LazyLock<SchemaCache> = LazyLock::new(SchemaCache::default);

/// Compiles a schema, or returns it from the cache.
pub(crate) fn compiled(schema: &Value) -> Result<Schema, SchemaError> {
    SCHEMAS.get(schema).map(|schema| Schema::clone(&schema))
}

impl ModelAgent {
    /// Returns the models in order: only the chosen one, else that of the request, then those of `use`.
    pub(super) fn models(&self, request: &Value) -> Vec<&ModelEndpoint> {
        let is_chosen = |one: &&ModelEndpoint| self.chosen.get() == Some(&one.spec.alias);
        if let Some(chosen) = self.endpoints.iter().chain(&self.others).find(is_chosen) {
            return vec![chosen];
        }
        // A node names its model, or has one connected to its model socket.
        let plugged = ["/links/model/0/data/model", "/links/model/0/data/alias", "/links/model/0/label"];
        let plugged = plugged.iter().find_map(|at| request.pointer(at)?.as_str());
        let wanted = request.get("model").and_then(Value::as_str).or(plugged);
        let named = wanted.and_then(|name| self.named_model(name));
        let rest =
            self.endpoints.iter().filter(|one| named.is_none_or(|named| named.spec.alias != one.spec.alias));
        named.into_iter().chain(rest).collect()
    }

    /// Returns the model of this alias, else of this name at its provider (`gpt-5`, `openai:gpt-5`).
    fn named_model(&self, name: &str) -> Option<&ModelEndpoint> {
        let all = || self.endpoints.iter().chain(&self.others);
        let is_named = |spec: &ModelSpec| {
            let of_provider =
                name.strip_prefix(spec.provider.as_str()).and_then(|rest| rest.strip_prefix(':'));
            !spec.model.is_empty() && (spec.model == name || of_provider == Some(&spec.model))
        };
        let by_alias = all().find(|endpoint| endpoint.spec.alias == name);
        by_alias.or_else(|| all().find(|endpoint| is_named(&endpoint.spec)))
    }

    /// Returns the spec of a conversation. `begun_at` is the time of its first start.
    pub(super) fn spec(
        &self,
        profile: AgentProfile<'_>,
        call: &Call,
        models: &[&ModelEndpoint],
        tools: Arc<Vec<ToolSpec>>,
        activation: &str,
        begun_at: u64,
    ) -> Result<ConversationSpec, AgentError> {
        let purpose = schema_of_request(&call.context);
        let schema = call.output_schema.as_ref().or(profile.output_schema).or(purpose.as_ref());
        let schema = schema.map(|value| match compiled(value) {
            Ok(compiled) => Ok(OutputSchema { value: value.clone(), compiled }),
            Err(error) => Err(AgentError::Schema { which: "output", problem: error.to_string() }),
        });
        let skills = shown_skills(&self.skills);
        let values = InstructionValues {
            agent: profile.name,
            description: profile.description,
            begun_at,
            context: &call.context,
            skills: &skills,
        };
        let mut system = vec![self.instruction.fill(&values)];
        if !self.instruction.places_skills() {
            system.push(skills.clone());
        }
        system.extend(call.instruction.clone());
        let summary = self.endpoints.get(self.summary_model).map(|endpoint| &endpoint.spec.alias);
        Ok(ConversationSpec {
            activation: activation.to_owned(),
            system,
            examples: self.examples.clone(),
            history: Vec::new(),
            input: message_of(call),
            summary_model: models.iter().position(|one| Some(&one.spec.alias) == summary).unwrap_or(0),
            models: models.iter().map(|endpoint| with_settings(&endpoint.spec, &call.context)).collect(),
            fallback: self.fallback,
            tools,
            discover_rules: Arc::default(),
            output: OutputSpec {
                schema: schema.transpose()?.filter(|schema| !is_plain_text(&schema.value)),
                mode: self.mode,
                repairs: self.repairs,
            },
            budget: self.budget_for(call),
            compaction: self.compaction,
            taint: self.taint,
            tainted: false,
            on_unknown: self.on_unknown,
            cache_key: self.digest.get(..32).unwrap_or(&self.digest).to_owned(),
        })
    }

    /// Returns the budget, with fewer turns if the calling node requests it.
    fn budget_for(&self, call: &Call) -> sinew_model::BudgetSpec {
        let request = call.context.get("request").unwrap_or(&Value::Null);
        let asked = ["maxTurns", "max_turns"].iter().find_map(|key| request.get(*key)?.as_u64());
        let asked = asked.and_then(|turns| u32::try_from(turns).ok()).filter(|turns| *turns > 0);
        let mut budget = self.budget;
        budget.turns = asked.map_or(budget.turns, |turns| budget.turns.min(turns));
        budget
    }
}

/// Applies the settings that the calling node requests: its temperature, and its reasoning effort if
/// the file enables reasoning.
fn with_settings(model: &ModelSpec, context: &Value) -> ModelSpec {
    let mut model = model.clone();
    let asked = context.pointer("/request/reasoningEffort").and_then(Value::as_str);
    if let Some(effort) = asked.filter(|effort| EFFORTS.contains(effort) && model.reasoning.is_some()) {
        model.reasoning = Some(effort.to_owned());
    }
    // An expression in a workflow file can make it a text.
    let number = |value: &Value| value.as_f64().or_else(|| value.as_str()?.trim().parse().ok());
    let asked = context.pointer("/request/temperature").and_then(number);
    model.temperature = asked.filter(|one| TEMPERATURES.contains(one)).or(model.temperature);
    model
}

/// Returns the answer schema in a request: that of a node, the choice of an edge, or a verdict.
fn schema_of_request(context: &Value) -> Option<Value> {
    if let Some(schema) = context.pointer("/request/outputSchema").filter(|schema| schema.is_object()) {
        return Some(schema.clone());
    }
    let object = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    match context.get("purpose").and_then(Value::as_str)? {
        "route" => {
            let ids = context
                .pointer("/request/ids")
                .filter(|ids| ids.as_array().is_some_and(|ids| !ids.is_empty()))?;
            let properties = json!({"choice": {"enum": ids}, "reason": {"type": "string"}});
            Some(object(properties, json!(["choice", "reason"])))
        }
        "judge" => {
            let properties =
                json!({"verdict": verdict_schema(&context["request"]), "reasoning": {"type": "string"}});
            Some(object(properties, json!(["verdict", "reasoning"])))
        }
        _ => None,
    }
}

/// Returns the schema of a verdict: the passing word of the request or a failing one.
fn verdict_schema(request: &Value) -> Value {
    match request.get("passWhen").and_then(Value::as_str) {
        Some(pass) => json!({"enum": [pass, if pass.eq_ignore_ascii_case("no") { "yes" } else { "no" }]}),
        None => json!({"type": "string"}),
    }
}

/// Returns the user message of a task: the prompt that the dialect derives for the node, if it derives
/// one, else the input.
pub(super) fn message_of(call: &Call) -> String {
    let prompt = call.context.pointer("/request/user_prompt").and_then(Value::as_str);
    let prompt = prompt.filter(|text| !text.trim().is_empty());
    prompt.map_or_else(|| user_message(&call.input), str::to_owned)
}

/// Formats the input: a plain text as it is, everything else as JSON.
pub(super) fn user_message(input: &Value) -> String {
    match input {
        Value::String(text) => text.clone(),
        Value::Object(members) if members.len() == 1 => {
            members.get("text").and_then(Value::as_str).map_or_else(|| input.to_string(), str::to_owned)
        }
        other => other.to_string(),
    }
}

/// Returns whether a schema is the default output schema, exactly `{text: string}`.
fn is_plain_text(schema: &Value) -> bool {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return false };
    let plain = properties.get("text").and_then(Value::as_object).is_some_and(|text| {
        text.get("type").is_some_and(|kind| kind == "string")
            && text.keys().all(|key| matches!(key.as_str(), "type" | "description" | "title"))
    });
    properties.len() == 1 && plain && schema.get("type").is_some_and(|kind| kind == "object")
}

/// Formats skills: the text of small ones, the description of large ones.
fn shown_skills(skills: &[SkillText]) -> String {
    let shown = skills.iter().map(|skill| {
        if skill.body.len() <= MAX_SHOWN_SKILL {
            format!("# Skill {}\n{}", skill.name, skill.body.trim())
        } else {
            format!(
                "# Skill {}\n{}\nRead it with skill_read before you use it.",
                skill.name,
                skill.description.trim()
            )
        }
    });
    shown.collect::<Vec<_>>().join("\n\n")
}

/// Returns whether a skill is too large for the instruction.
pub(super) fn is_large(skill: &SkillText) -> bool {
    skill.body.len() > MAX_SHOWN_SKILL
}
