//! Input that tasks wait for as requests to a client, and the client's responses as answers to the
//! tasks.

use std::collections::BTreeMap;

use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, InputRequest,
    InputRequests, InputResponses, PrimitiveSchemaDefinition, StringSchema,
};
use serde_json::{Map, Value};

use super::client_abilities::{ClientAbilities, is_answer_to};
use super::question_form::{answers_of, forms_of, key_of};
use crate::operations::{AgentAnswer, AskedInput, QuestionAnswer, short};

/// Maximum number of an agent's requests that are passed on together.
const MAX_REQUESTS: usize = 32;
/// Maximum size of one request.
const MAX_REQUEST_BYTES: usize = 64 << 10;
/// Maximum length of a question.
const MAX_PROMPT: usize = 4_000;
/// Key and field of a plain-text question.
const WORDS: &str = "answer";

/// A client's responses to the questions of a task.
#[derive(Debug, PartialEq)]
pub(super) enum GivenInput {
    /// No response matches an open question.
    Nothing,
    /// The user dismissed the forms.
    Declined,
    /// Decisions for a workflow.
    Decisions(Vec<QuestionAnswer>),
    /// Answer for an agent.
    Answer(AgentAnswer),
}

/// Returns the requests to a client for a task's questions, as far as the client supports them.
pub(super) fn requests_of(agent: &str, asked: &AskedInput, abilities: ClientAbilities) -> InputRequests {
    match asked {
        AskedInput::Questions(questions) if abilities.elicits => forms_of(agent, questions),
        AskedInput::Words(words) if abilities.elicits => {
            InputRequests::from([(WORDS.to_owned(), words_form(agent, words))])
        }
        AskedInput::Nothing | AskedInput::Questions(_) | AskedInput::Words(_) => InputRequests::new(),
        AskedInput::Requests(requests) => requests
            .iter()
            .take(MAX_REQUESTS)
            .filter_map(|(key, request)| Some((key.clone(), request_of(agent, request)?)))
            .filter(|(_, request)| abilities.does(request))
            .collect(),
    }
}

/// Returns a client's responses to open questions. Other keys and unreadable responses are ignored.
pub(super) fn given_input(asked: &AskedInput, responses: &InputResponses) -> GivenInput {
    match asked {
        AskedInput::Nothing => GivenInput::Nothing,
        AskedInput::Questions(questions) => {
            let answers = answers_of(questions, responses);
            let is_meant = questions
                .iter()
                .any(|question| responses.get(&key_of(question)).is_some_and(|it| elicited(it).is_some()));
            match (answers.is_empty(), is_meant) {
                (false, _) => GivenInput::Decisions(answers),
                (true, true) => GivenInput::Declined,
                (true, false) => GivenInput::Nothing,
            }
        }
        AskedInput::Words(_) => match responses.get(WORDS).and_then(elicited) {
            None => GivenInput::Nothing,
            Some(result) => {
                let content = result.content.as_ref().filter(|_| result.action == ElicitationAction::Accept);
                match content.and_then(|content| content.get(WORDS)?.as_str()) {
                    Some(words) if !words.trim().is_empty() => {
                        GivenInput::Answer(AgentAnswer::Words(words.to_owned()))
                    }
                    _ => GivenInput::Declined,
                }
            }
        },
        AskedInput::Requests(requests) => {
            let answer = |(key, request): (&String, &Value)| {
                let answer = responses.get(key)?;
                let request = serde_json::from_value::<InputRequest>(request.clone()).ok()?;
                is_answer_to(&request, answer).then(|| (key.clone(), answer.clone()))
            };
            // A dismissed form is an answer too: the agent continues without it.
            let answers: Map<String, Value> = requests.iter().filter_map(answer).collect();
            if answers.is_empty() {
                return GivenInput::Nothing;
            }
            GivenInput::Answer(AgentAnswer::Responses(answers))
        }
    }
}

/// Parses a request of an agent. The user sees which agent asks. Returns `None` if it is not a
/// request to clients.
fn request_of(agent: &str, request: &Value) -> Option<InputRequest> {
    if request.to_string().len() > MAX_REQUEST_BYTES {
        return None;
    }
    let mut request: InputRequest = serde_json::from_value(request.clone()).ok()?;
    if let InputRequest::Elicitation(asked) = &mut request
        && let ElicitRequestParams::FormElicitationParams { message, .. } = &mut asked.params
    {
        *message = format!("{agent} asks: {}", short(message, MAX_PROMPT));
    }
    Some(request)
}

fn words_form(agent: &str, words: &str) -> InputRequest {
    let field = PrimitiveSchemaDefinition::String(StringSchema::new().title("Answer"));
    let fields = BTreeMap::from([(WORDS.to_owned(), field)]);
    InputRequest::Elicitation(ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: format!("{agent} asks: {}", short(words, MAX_PROMPT)),
        requested_schema: ElicitationSchema::new(fields).with_required(vec![WORDS.to_owned()]),
    }))
}

fn elicited(answer: &Value) -> Option<ElicitResult> {
    serde_json::from_value(answer.clone()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ALL: ClientAbilities = ClientAbilities {
        elicits: true,
        samples: true,
        lists_roots: true,
        keeps_tasks: false,
        repeats_with_answers: true,
    };

    fn asked() -> AskedInput {
        let form = json!({"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}});
        let sample = json!({"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 5});
        let address =
            json!({"mode": "url", "message": "Look", "url": "https://evil.example", "elicitationId": "1"});
        let requests = json!({
            "form": {"method": "elicitation/create", "params": form},
            "sample": {"method": "sampling/createMessage", "params": sample},
            "roots": {"method": "roots/list", "params": {}},
            "address": {"method": "elicitation/create", "params": address},
            "other": {"method": "tools/call", "params": {}},
            "text": "who?",
        });
        AskedInput::Requests(requests.as_object().cloned().unwrap_or_default())
    }

    #[test]
    fn clients_get_the_requests_that_they_can_do() {
        let check = |abilities: ClientAbilities, expected: &[&str]| {
            let requests = requests_of("helper", &asked(), abilities);
            assert_eq!(requests.keys().map(String::as_str).collect::<Vec<_>>(), expected);
        };
        check(ALL, &["form", "roots", "sample"]);
        check(ClientAbilities { elicits: false, ..ALL }, &["roots", "sample"]);
        check(ClientAbilities { samples: false, lists_roots: false, ..ALL }, &["form"]);
        let shown = serde_json::to_value(&requests_of("helper", &asked(), ALL)["form"]).unwrap();
        assert_eq!(shown["params"]["message"], "helper asks: Who?");
    }

    #[test]
    fn answers_belong_to_requests() {
        let check = |responses: Value, expected: Option<Value>| {
            let responses: InputResponses = serde_json::from_value(responses).unwrap();
            let expected = expected.map_or(GivenInput::Nothing, |answers| {
                GivenInput::Answer(AgentAnswer::Responses(answers.as_object().cloned().unwrap_or_default()))
            });
            assert_eq!(given_input(&asked(), &responses), expected);
        };
        let filled = json!({"action": "accept", "content": {"name": "Ada"}});
        check(json!({"form": filled, "more": filled}), Some(json!({"form": filled})));
        check(json!({"form": {"action": "decline"}}), Some(json!({"form": {"action": "decline"}})));
        check(json!({"wrong": filled}), None);
        check(json!({"form": 12345, "sample": filled, "roots": filled, "other": {}, "text": "a"}), None);
    }

    #[test]
    fn questions_in_words_have_a_form_with_one_field() {
        let asked = AskedInput::Words("Which one?".to_owned());
        assert_eq!(requests_of("helper", &asked, ALL).keys().collect::<Vec<_>>(), [WORDS]);
        let given =
            |response: Value| given_input(&asked, &InputResponses::from([(WORDS.to_owned(), response)]));
        let words = AgentAnswer::Words("the red one".to_owned());
        let filled = json!({"action": "accept", "content": {"answer": "the red one"}});
        assert_eq!(given(filled), GivenInput::Answer(words));
        assert_eq!(given(json!({"action": "cancel"})), GivenInput::Declined);
        assert_eq!(given(json!(5)), GivenInput::Nothing);
    }
}
