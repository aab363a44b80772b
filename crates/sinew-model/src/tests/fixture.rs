//! A small conversation, and stubs that count calls.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sinew_protocol::tool::ToolDeclaration;
use sinew_source::Schema;

use crate::rehearsal::{Rehearsal, RehearsalStubs, StubAnswer, rehearse};
use crate::script::ModelScript;
use crate::{
    ApprovalRule, BudgetSpec, CompactionSpec, ConversationEnd, ConversationSpec, DiscoveredTool, EffectClass,
    FallbackRule, FormBounds, ModelAbilities, ModelSpec, OutputMode, OutputSchema, OutputSpec, Provider,
    SchemaAbility, TaintRule, ToolAbility, ToolCall, ToolSpec, UnknownRule,
};

/// A model with all abilities.
pub(super) fn model(alias: &str) -> ModelSpec {
    ModelSpec {
        alias: alias.to_owned(),
        provider: Provider::OpenAi,
        model: format!("{alias}-1"),
        context: 128_000,
        max_output: 4_096,
        bounds: FormBounds::default(),
        abilities: ModelAbilities {
            tools: ToolAbility::Native,
            schema: SchemaAbility::Native,
            stream: true,
            parallel: true,
        },
        temperature: None,
        seed: None,
        reasoning: None,
        extra: Map::new(),
        price: None,
        retries: 2,
        is_original: true,
    }
}

/// A conversation with one model, the tools look (read), send (once) and ask (repeat), and text output.
pub(super) fn spec() -> ConversationSpec {
    ConversationSpec {
        activation: "activation".to_owned(),
        system: vec!["You are Clerk.".to_owned()],
        examples: Vec::new(),
        history: Vec::new(),
        input: "Where is A-17?".to_owned(),
        models: vec![model("main")],
        summary_model: 0,
        fallback: FallbackRule { unavailable: true, limited: true, filtered: false, refused: false },
        tools: std::sync::Arc::new(vec![
            tool("look", EffectClass::Read, false),
            tool("send", EffectClass::Once, false),
            tool("ask", EffectClass::Repeat, true),
        ]),
        discover_rules: std::sync::Arc::default(),
        output: OutputSpec { schema: None, mode: OutputMode::Auto, repairs: 2 },
        budget: BudgetSpec::default(),
        compaction: CompactionSpec::default(),
        taint: TaintRule::Approve,
        tainted: false,
        on_unknown: UnknownRule::Tell,
        cache_key: "digest".to_owned(),
    }
}

/// A tool with one text parameter, `id`.
pub(super) fn tool(name: &str, effect: EffectClass, open: bool) -> ToolSpec {
    let parameters = json!({
        "type": "object",
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
        "additionalProperties": false,
    });
    ToolSpec {
        parameters: Some(Schema::compile(&parameters).unwrap()),
        declaration: ToolDeclaration {
            name: name.to_owned(),
            description: format!("The tool {name}."),
            parameters,
            takes_artifact: false,
            output_schema: None,
        },
        source: format!("test:{name}"),
        effect,
        open,
        approval: ApprovalRule::Never,
        rejection_fails: false,
        limit: None,
        max_result: 16 << 10,
    }
}

/// Adds an output schema to a conversation.
pub(super) fn with_schema(mut spec: ConversationSpec, schema: &Value) -> ConversationSpec {
    spec.output.schema =
        Some(OutputSchema { value: schema.clone(), compiled: Schema::compile(schema).unwrap() });
    spec
}

pub(super) fn script(answers: &Value) -> ModelScript {
    ModelScript::read(answers.as_array().unwrap()).unwrap()
}

/// Stubs that answer by name and count calls.
#[derive(Default)]
pub(super) struct CountingStubs {
    pub(super) answers: BTreeMap<String, Value>,
    pub(super) discovered: BTreeMap<String, Vec<DiscoveredTool>>,
    pub(super) made: Vec<(String, String)>,
    pub(super) asked: usize,
    pub(super) refuses: bool,
}

impl RehearsalStubs for CountingStubs {
    fn call(&mut self, call: &ToolCall, earlier: usize) -> StubAnswer {
        self.made.push((call.tool.clone(), call.position.key.clone()));
        let answer = self.answers.get(&call.tool).cloned();
        let answer = answer.unwrap_or_else(|| json!({"tool": call.tool, "nth": earlier}));
        let result = match answer.get("fails").and_then(Value::as_str) {
            Some(reason) => Err(reason.to_owned()),
            None => Ok(answer),
        };
        let discovered = self.discovered.get(&call.tool).cloned().unwrap_or_default();
        StubAnswer { after_ms: 10, discovered, ..StubAnswer::from(result) }
    }

    fn decide(&mut self, _: &ToolCall) -> bool {
        self.asked += 1;
        !self.refuses
    }

    fn needs_approval(&self, condition: &str, arguments: &Value) -> bool {
        arguments["id"] == condition
    }
}

/// Runs a conversation from its start.
pub(super) fn play(spec: &ConversationSpec, answers: &Value) -> Rehearsal {
    rehearse(spec, &script(answers), &mut CountingStubs::default(), &[], "first")
}

/// Formats the end: the output, the artifact, or code and message of the fault.
pub(super) fn told(rehearsal: &Rehearsal) -> String {
    match rehearsal.end() {
        None => "no end".to_owned(),
        Some(ConversationEnd::Output(value)) => value.to_string(),
        Some(ConversationEnd::Artifact(name)) => format!("artifact {name}"),
        Some(ConversationEnd::Fault(fault)) => {
            let again = if fault.retryable { " (again)" } else { "" };
            format!("{} {}{again}", fault.code, fault.message)
        }
    }
}
