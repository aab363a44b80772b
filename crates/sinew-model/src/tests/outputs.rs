//! Output in each mode, and its repair.

use std::sync::Arc;

use serde_json::{Value, json};

use super::fixture::{play, spec, told, with_schema};
use crate::{
    AnswerForm, ConversationSpec, ConversationState, FormBounds, OutputMode, Provider, SchemaAbility,
    ToolAbility,
};

fn level() -> Value {
    json!({
        "type": "object",
        "properties": {"level": {"enum": ["low", "high"]}},
        "required": ["level"],
        "additionalProperties": false,
    })
}

fn first_prompt(spec: &ConversationSpec) -> crate::Prompt {
    crate::compose::prompt(spec, &ConversationState::default(), &spec.models[0], false)
}

#[test]
fn every_mode_brings_the_output_and_repairs_it() {
    use OutputMode::{Auto, Native, Text, Tool};
    for (mode, tools, schema, asked) in [
        (Auto, ToolAbility::Native, SchemaAbility::Native, "schema"),
        (Auto, ToolAbility::Native, SchemaAbility::None, "tool"),
        (Auto, ToolAbility::None, SchemaAbility::None, "words"),
        (Auto, ToolAbility::Schema, SchemaAbility::Native, "action"),
        (Native, ToolAbility::Native, SchemaAbility::Native, "schema"),
        (Native, ToolAbility::Native, SchemaAbility::None, "tool"),
        (Tool, ToolAbility::Native, SchemaAbility::Native, "tool"),
        (Text, ToolAbility::Native, SchemaAbility::Native, "words"),
    ] {
        let mut spec = with_schema(spec(), &level());
        spec.output.mode = mode;
        spec.models[0].abilities.tools = tools;
        spec.models[0].abilities.schema = schema;
        let prompt = first_prompt(&spec);
        let seen = match &prompt.form {
            AnswerForm::Schema(schema) if schema.get("anyOf").is_some() => "action",
            AnswerForm::Schema(_) => "schema",
            _ if prompt.tools.iter().any(|tool| tool.name == "answer") => "tool",
            _ => "words",
        };
        assert_eq!(seen, asked, "{mode:?} {tools:?} {schema:?}");
        let good = json!({"answer": {"level": "low"}});
        let bad = json!({"answer": {"level": "medium"}});
        let name = format!("{mode:?} {tools:?} {schema:?}");
        assert_eq!(told(&play(&spec, &json!([good]))), r#"{"level":"low"}"#, "{name}");
        assert_eq!(told(&play(&spec, &json!([bad, bad, good]))), r#"{"level":"low"}"#, "{name}");
        let end = told(&play(&spec, &json!([bad, bad, bad, good])));
        assert!(
            end.starts_with("SINEW-5206 the model's output does not fit its schema after 2 repairs"),
            "{name}: {end}"
        );
        if tools != ToolAbility::None {
            let call = match tools {
                ToolAbility::Schema => json!({"text": r#"{"tool": "look", "arguments": {"id": "1"}}"#}),
                _ => json!({"call": {"look": {"id": "1"}}}),
            };
            let played = play(&spec, &json!([call, good]));
            assert_eq!(
                (told(&played).as_str(), played.calls()),
                (r#"{"level":"low"}"#, vec!["look"]),
                "{name}"
            );
        }
        let marker = json!({"text": "«result:artifact=o.json:v0 status=success»"});
        assert_eq!(told(&play(&spec, &json!([marker]))), "artifact o.json:v0", "{name}");
    }
}

#[test]
fn forms_of_a_model_with_bounds_come_to_an_end() {
    let bounds = FormBounds { text: Some(80), items: Some(4) };
    let small = |mut spec: ConversationSpec| {
        spec.models[0].bounds = bounds;
        spec.models[0].abilities.tools = ToolAbility::Schema;
        spec
    };
    let without_tools = |mut spec: ConversationSpec| {
        spec.tools = Arc::default();
        spec
    };
    let form = |spec: &ConversationSpec| match first_prompt(spec).form {
        AnswerForm::Schema(schema) => schema,
        other => panic!("{other:?}"),
    };
    let text = json!({"type": "string", "maxLength": 80});
    // Arguments of tools and the answer.
    let spec_with_tools = small(spec());
    let schema = form(&spec_with_tools);
    let choices = schema["anyOf"].as_array().unwrap();
    assert_eq!(choices.len(), 4, "{schema}");
    assert_eq!(choices[0]["properties"]["arguments"]["properties"]["id"], text, "{schema}");
    assert_eq!(choices[3]["properties"]["answer"], text, "{schema}");
    // Without tools and schema: text in a bounded form.
    let words = small(without_tools(spec()));
    assert_eq!(form(&words)["anyOf"][0]["properties"]["answer"], text);
    assert!(
        first_prompt(&words)
            .system
            .contains(&r#"Answer with {"answer": OUTPUT} and nothing else."#.to_owned())
    );
    assert_eq!(told(&play(&words, &json!([{"text": r#"{"answer": "Hello."}"#}]))), r#"{"text":"Hello."}"#);
    // The schema of a node.
    let list =
        json!({"type": "object", "properties": {"all": {"type": "array", "items": {"type": "string"}}}});
    let listed = small(without_tools(with_schema(spec(), &list)));
    let all = json!({"type": "array", "items": {"type": "string", "maxLength": 80}, "maxItems": 4});
    assert_eq!(form(&listed)["properties"]["all"], all);
    // A model without bounds writes plain text.
    assert_eq!(first_prompt(&without_tools(spec())).form, AnswerForm::Free);
}

#[test]
fn examples_have_the_form_that_answers_have() {
    for (ability, schema, example, shown) in [
        (ToolAbility::Native, false, "On its way.", "On its way."),
        (ToolAbility::Schema, false, "On its way.", r#"{"answer":"On its way."}"#),
        (ToolAbility::Schema, true, r#"{"level": "low"}"#, r#"{"answer":{"level":"low"}}"#),
    ] {
        let mut spec = if schema { with_schema(spec(), &level()) } else { spec() };
        spec.models[0].abilities.tools = ability;
        spec.examples = vec![("Where is B-4?".to_owned(), example.to_owned())];
        let prompt = first_prompt(&spec);
        let crate::PromptMessage::Assistant { text, .. } = &prompt.messages[1] else { panic!("{prompt:?}") };
        assert_eq!(text, shown, "{ability:?}");
    }
}

#[test]
fn an_answer_beside_other_calls_waits_for_them() {
    let mut spec = with_schema(spec(), &level());
    spec.output.mode = OutputMode::Tool;
    let early = json!({"call": {"answer": {"level": "low"}, "look": {"id": "1"}}});
    let played = play(&spec, &json!([early, {"answer": {"level": "high"}}]));
    assert_eq!((told(&played).as_str(), played.calls()), (r#"{"level":"high"}"#, vec!["look"]));
}

#[test]
fn a_provider_that_takes_tools_or_a_schema_gets_the_schema_in_a_turn_of_its_own() {
    let mut spec = with_schema(spec(), &level());
    spec.models[0].provider = Provider::Gemini;
    assert_eq!(first_prompt(&spec).form, AnswerForm::Free);
    let free = json!({"text": "I think it is low."});
    let played =
        play(&spec, &json!([{"call": {"look": {"id": "1"}}}, free, {"text": "{\"level\": \"low\"}"}]));
    assert_eq!(told(&played), r#"{"level":"low"}"#);
    spec.tools = Arc::default();
    assert!(matches!(first_prompt(&spec).form, AnswerForm::Schema(_)));
}

#[test]
fn schemas_that_are_not_of_objects_are_wrapped() {
    for (schema, output) in [
        (json!({"type": "string", "enum": ["yes", "no"]}), json!("yes")),
        (
            json!({"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}}),
            json!([1, 2]),
        ),
        (json!({"anyOf": [{"type": "null"}, {"type": "number"}]}), json!(3.5)),
    ] {
        for mode in [OutputMode::Native, OutputMode::Tool, OutputMode::Text] {
            let mut spec = with_schema(spec(), &schema);
            spec.output.mode = mode;
            let played = play(&spec, &json!([{"answer": output}]));
            assert_eq!(told(&played), output.to_string(), "{schema} {mode:?}");
        }
    }
}

#[test]
fn the_last_fitting_value_without_reasoning_is_the_output() {
    let right = r#"{"level":"high"}"#;
    for (text, expected) in [
        ("<think>\nmaybe {\"level\": \"low\"}\n</think>\n\n{\"level\": \"high\"}", right),
        ("maybe {\"level\": \"low\"} ...\n</think>\n{\"level\": \"high\"}", right),
        ("I considered {\"level\": \"low\"} at first, but:\n{\"level\": \"high\"}", right),
        ("{\"level\": \"high\"}\nIt does not depend on {\"size\": 3} or [].", right),
        ("```json\n{\"level\": \"low\"}\n```\nBetter:\n```json\n{\"level\": \"high\"}\n```", right),
    ] {
        for mode in [OutputMode::Text, OutputMode::Native] {
            let mut spec = with_schema(spec(), &level());
            spec.output.mode = mode;
            assert_eq!(told(&play(&spec, &json!([{"text": text}]))), expected, "{mode:?} {text}");
        }
    }
    // Reasoning without an answer is repaired; text without a schema has no reasoning either.
    let mut spec = with_schema(spec(), &level());
    spec.output.mode = OutputMode::Text;
    let thought = json!({"text": "<think>{\"level\": \"low\"}"});
    assert_eq!(told(&play(&spec, &json!([thought, {"text": right}]))), right);
    let free = super::fixture::spec();
    let answer = json!({"text": "<think>\nsecret plan\n</think>\n\nHello."});
    let played = play(&free, &json!([answer]));
    assert_eq!(told(&played), r#"{"text":"Hello."}"#);
    assert_eq!(played.state.exchanges[0].answer.text, "Hello.");
}

#[test]
fn calls_of_a_model_without_tools_follow_its_drafts() {
    let mut spec = spec();
    spec.models[0].abilities.tools = ToolAbility::Schema;
    let call = r#"{"tool": "look", "arguments": {"id": "2"}}"#;
    let text = format!("First {{\"tool\": \"look\", \"arguments\": {{\"id\": \"1\"}}}}? No: {call}");
    let played = play(&spec, &json!([{"text": text}, {"text": "{\"answer\": \"done\"}"}]));
    assert_eq!((told(&played).as_str(), played.calls()), (r#"{"text":"done"}"#, vec!["look"]));
    assert!(played.state.exchanges[0].answer.calls[0].arguments.contains("\"2\""));
}
