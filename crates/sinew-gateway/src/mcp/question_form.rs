//! Questions of workflows as client forms (elicitation), and completed forms as answers.

use std::collections::BTreeMap;

use rmcp::model::{
    BooleanSchema, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema,
    InputRequest, InputRequests, InputResponses, PrimitiveSchemaDefinition, StringSchema,
};
use serde_json::Value;
use sinew_operations::approvals::DecisionRequest;

use crate::operations::{OpenQuestion, QuestionAnswer, short};

/// Fields of the form.
const APPROVED: &str = "approved";
const ANSWER: &str = "answer";
const COMMENT: &str = "comment";
/// Maximum length of a displayed question.
const MAX_PROMPT: usize = 4_000;

/// Returns the form of a question: that of its answer schema if it has one, otherwise a decision
/// with an answer and a comment.
pub(super) fn form_of(workflow: &str, question: &OpenQuestion) -> ElicitRequestParams {
    let message = format!("{workflow} asks ({}): {}", question.node, short(&question.prompt, MAX_PROMPT));
    if let Some(requested_schema) = answer_form(question) {
        return ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
    }
    let text = |title: &'static str, description: &'static str| {
        PrimitiveSchemaDefinition::String(StringSchema::new().title(title).description(description))
    };
    let approved = BooleanSchema::new().title("Approve").description("Yes approves, no rejects");
    let fields = BTreeMap::from([
        (APPROVED.to_owned(), PrimitiveSchemaDefinition::Boolean(approved)),
        (
            ANSWER.to_owned(),
            text("Answer", "Answer to a question: text or JSON; empty for a plain yes or no"),
        ),
        (COMMENT.to_owned(), text("Comment", "Comment stored with the decision; a rejection needs a reason")),
    ]);
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message,
        requested_schema: ElicitationSchema::new(fields).with_required(vec![APPROVED.to_owned()]),
    }
}

/// Returns the form again, for a rejection without a reason.
pub(super) fn form_for_reason(workflow: &str, question: &OpenQuestion) -> ElicitRequestParams {
    let mut form = form_of(workflow, question);
    if let ElicitRequestParams::FormElicitationParams { message, .. } = &mut form {
        *message = format!("A rejection needs a comment that states the reason. {message}");
    }
    form
}

/// Converts a question's answer schema to a form. Returns `None` without a schema, or for one that
/// is not a form: an object of strings, numbers, booleans and choices.
fn answer_form(question: &OpenQuestion) -> Option<ElicitationSchema> {
    serde_json::from_value(question.answer_schema.clone()?).ok()
}

/// Returns the forms of all questions, each under a key that identifies the question.
pub(super) fn forms_of(workflow: &str, questions: &[OpenQuestion]) -> InputRequests {
    let form = |question: &OpenQuestion| {
        let request = InputRequest::Elicitation(ElicitRequest::new(form_of(workflow, question)));
        (key_of(question), request)
    };
    questions.iter().map(form).collect()
}

/// Returns a client's answers to open questions. Other keys and dismissed forms are ignored.
pub(super) fn answers_of(questions: &[OpenQuestion], responses: &InputResponses) -> Vec<QuestionAnswer> {
    let answer = |question: &OpenQuestion| {
        let response = responses.get(&key_of(question))?;
        let result: ElicitResult = serde_json::from_value(response.clone()).ok()?;
        answer_of(question, &result)
    };
    questions.iter().filter_map(answer).collect()
}

/// Returns the answer of a completed form, or `None` for a form that was declined, dismissed or has
/// no decision: none of these rejects.
pub(super) fn answer_of(question: &OpenQuestion, result: &ElicitResult) -> Option<QuestionAnswer> {
    let content = result.content.as_ref().filter(|_| result.action == ElicitationAction::Accept)?;
    if answer_form(question).is_some() {
        return Some(QuestionAnswer {
            node: question.node.clone(),
            activation: question.activation,
            decision: DecisionRequest { data: content.clone(), ..DecisionRequest::default() },
        });
    }
    let approved = content.get(APPROVED)?.as_bool()?;
    let text =
        |name: &str| content.get(name).and_then(Value::as_str).map(str::trim).filter(|it| !it.is_empty());
    let data = text(ANSWER).map(|text| serde_json::from_str(text).unwrap_or_else(|_| text.into()));
    Some(QuestionAnswer {
        node: question.node.clone(),
        activation: question.activation,
        decision: DecisionRequest {
            id: None,
            data: data.unwrap_or_default(),
            comment: text(COMMENT).map(str::to_owned),
            reject: !approved,
        },
    })
}

/// Returns the key that identifies a question within its execution.
pub(super) fn key_of(question: &OpenQuestion) -> String {
    format!("{}.{}", question.node, question.activation)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn question(node: &str, activation: u32) -> OpenQuestion {
        let prompt = "Is this right?".to_owned();
        OpenQuestion { node: node.to_owned(), activation, prompt, answer_schema: None }
    }

    #[test]
    fn a_question_is_a_form() {
        let form = serde_json::to_value(form_of("review", &question("h", 3))).unwrap();
        assert_eq!(form["message"], "review asks (h): Is this right?");
        assert_eq!(form["requestedSchema"]["required"], json!(["approved"]));
        assert_eq!(form["requestedSchema"]["properties"]["approved"]["type"], "boolean");
    }

    #[test]
    fn filled_forms_are_answers() {
        let check = |response: Value, expected: Option<(bool, Value, Option<&str>)>| {
            let responses = InputResponses::from([("h.3".to_owned(), response.clone())]);
            let read = answers_of(&[question("h", 3)], &responses);
            let expected = expected.map(|(approved, data, comment)| QuestionAnswer {
                node: "h".to_owned(),
                activation: 3,
                decision: DecisionRequest {
                    id: None,
                    data,
                    comment: comment.map(str::to_owned),
                    reject: !approved,
                },
            });
            assert_eq!(read, Vec::from_iter(expected), "{response}");
        };
        let accepted = |content: Value| json!({"action": "accept", "content": content});
        check(accepted(json!({"approved": true})), Some((true, Value::Null, None)));
        check(
            accepted(json!({"approved": false, "comment": " too dear "})),
            Some((false, Value::Null, Some("too dear"))),
        );
        check(
            accepted(json!({"approved": true, "answer": "{\"limit\": 5}"})),
            Some((true, json!({"limit": 5}), None)),
        );
        check(accepted(json!({"approved": true, "answer": "five"})), Some((true, json!("five"), None)));
        for silent in [
            json!({"action": "decline"}),
            json!({"action": "cancel", "content": {"approved": true}}),
            accepted(json!({"approved": "yes"})),
            accepted(json!({})),
            json!("yes"),
            json!({"approved": true}),
        ] {
            check(silent, None);
        }
    }

    #[test]
    fn questions_with_a_schema_are_forms_of_their_own() {
        let asked = |schema: Value| OpenQuestion { answer_schema: Some(schema), ..question("h", 3) };
        let schema = json!({
            "type": "object",
            "properties": {"size": {"type": "string", "enum": ["s", "m"], "default": "m"}},
            "required": ["size"],
        });
        let form = serde_json::to_value(form_of("review", &asked(schema.clone()))).unwrap();
        assert_eq!(form["requestedSchema"], schema);
        let filled = json!({"action": "accept", "content": {"size": "s"}});
        let responses = InputResponses::from([("h.3".to_owned(), filled)]);
        let read = answers_of(&[asked(schema)], &responses);
        assert_eq!(read.first().map(|it| &it.decision.data), Some(&json!({"size": "s"})));
        // Forms cannot have object members, so such an answer is entered as JSON.
        let deep = json!({"type": "object", "properties": {"a": {"type": "object"}}});
        let form = serde_json::to_value(form_of("review", &asked(deep))).unwrap();
        assert_eq!(form["requestedSchema"]["required"], json!(["approved"]));
    }

    #[test]
    fn answers_to_other_questions_say_nothing() {
        let yes = json!({"action": "accept", "content": {"approved": true}});
        let responses = InputResponses::from([("h.2".to_owned(), yes.clone()), ("x".to_owned(), yes)]);
        assert_eq!(answers_of(&[question("h", 3)], &responses), []);
        assert_eq!(forms_of("review", &[question("h", 3), question("h", 4)]).len(), 2);
    }
}
