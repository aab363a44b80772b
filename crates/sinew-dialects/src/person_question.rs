//! The workflow that asks a person on behalf of an agent: for questions that must survive the
//! asking process.
//!
//! It is not a dialect of files. Its only plan is created here, and its adapter supports only that
//! plan.

use serde_json::{Value, json};
use sinew_engine::{
    ActivationId, ActivationOutput, Adapter, AdapterContext, NodeDecision, PersonAnswer, PersonRequest,
    SharedJson,
};
use sinew_plan::{
    FailurePolicy, JoinRule, NodeOperation, PausePolicy, Plan, PlanLimits, PlanNode, ReadyOrder, RetryPolicy,
    SchedulingProfile,
};
use sinew_protocol::card::PERSON_QUESTION;
use sinew_protocol::decision::WrittenDecision;
use sinew_protocol::{Fault, code};

/// Name of the adapter in plans.
pub(crate) const NAME: &str = "person_question";

/// Maximum length of a question, in bytes; the rest is cut off.
const MAX_PROMPT_BYTES: usize = 16 << 10;
/// Maximum number of people of one question.
const MAX_PEOPLE: usize = 100;
/// Default and maximum timeout of the answer, in milliseconds.
const ANSWER_TIMEOUT_MS: (u64, u64) = (3_600_000, 7 * 24 * 3_600_000);

/// Returns the plan of the workflow that asks a person, which is the same in every process.
pub fn person_question_plan() -> Plan {
    Plan {
        format: Plan::FORMAT,
        dialect: NAME.to_owned(),
        name: PERSON_QUESTION.to_owned(),
        description: "Asks a person on behalf of an agent.".to_owned(),
        version: Some("1".to_owned()),
        profile: SchedulingProfile {
            order: ReadyOrder::Fifo,
            parallel: 0,
            failure: FailurePolicy::Stop,
            pause: PausePolicy::NodeLocal,
        },
        nodes: vec![PlanNode {
            id: "question".to_owned(),
            kind: "human".to_owned(),
            label: None,
            op: NodeOperation::Human,
            join: JoinRule::Each,
            rank: 0,
            agent: None,
            retry: RetryPolicy::default(),
            attempt_timeout_ms: None,
            timeout_ms: None,
            inner: false,
            attached: false,
            quiet: false,
            handles_failure: false,
            extra: Value::Null,
        }],
        edges: Vec::new(),
        entry: vec![0],
        exits: Vec::new(),
        limits: PlanLimits::default(),
        input_schema: None,
        output_schema: None,
        extra: Value::Null,
    }
}

/// The adapter of that plan.
pub(crate) struct PersonQuestionAdapter;

impl Adapter for PersonQuestionAdapter {
    fn name(&self) -> &'static str {
        NAME
    }

    fn admit(&self, _: &Plan, input: Value) -> Result<Value, Fault> {
        let has_prompt =
            input.get("prompt").and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty());
        if has_prompt {
            return Ok(input);
        }
        let text = "a question to a person requires a text in 'prompt'";
        Err(Fault::invalid(code::WORKFLOW_INPUT_BREAKS_SCHEMA.as_str(), text))
    }

    fn bind(&self, ctx: &AdapterContext<'_>, _: ActivationId) -> NodeDecision {
        let input = ctx.input();
        let people = input.get("people").and_then(Value::as_array).into_iter().flatten();
        let (usual, most) = ANSWER_TIMEOUT_MS;
        let timeout = input.get("timeout_ms").and_then(Value::as_u64).unwrap_or(usual);
        let agent = input.pointer("/asked_by/agent").and_then(Value::as_str);
        let asker = agent.map(|agent| format!("{agent}: ")).unwrap_or_default();
        let prompt = input["prompt"].as_str().unwrap_or_default();
        NodeDecision::Wait(Box::new(PersonRequest {
            prompt: shown_prompt(&format!("{asker}{prompt}")),
            data: SharedJson::new(shown_data(input)),
            allowed: people.filter_map(Value::as_str).take(MAX_PEOPLE).map(str::to_owned).collect(),
            timeout_ms: Some(timeout.clamp(1, most)),
            remind_ms: None,
            decision: is_decision(input),
            approvals: Vec::new(),
        }))
    }

    fn answer(&self, ctx: &AdapterContext<'_>, _: ActivationId, answer: &PersonAnswer) -> NodeDecision {
        // Any other answer to a yes-or-no question is not consent.
        let consents = || WrittenDecision::of(&answer.data).is_some_and(|decision| decision.approved);
        let rejected = answer.timed_out
            || answer.approved == Some(false)
            || answer.data == "reject"
            || is_decision(ctx.input()) && !consents();
        // A plain approval has no text.
        let words = if answer.data == "approve" { &Value::Null } else { &answer.data };
        NodeDecision::Done(ActivationOutput::new(json!({
            "approved": !rejected,
            "by": answer.by,
            "comment": answer.comment,
            "answer": if rejected { &Value::Null } else { words },
            "timed_out": answer.timed_out,
        })))
    }

    fn result(&self, ctx: &AdapterContext<'_>) -> Result<Value, Fault> {
        let output = ctx.state.acts.iter().find_map(|one| one.output.as_ref());
        Ok(output.map(|output| Value::clone(&output.value)).unwrap_or_default())
    }
}

/// Returns whether only yes or no answers the question: it is about data, such as a call.
fn is_decision(input: &Value) -> bool {
    input.get("data").is_some_and(|data| !data.is_null())
}

/// Returns the data of the question, and its origin.
fn shown_data(input: &Value) -> Value {
    let mut shown = match input.get("data") {
        Some(Value::Object(members)) => members.clone(),
        None | Some(Value::Null) => serde_json::Map::new(),
        Some(other) => [("data".to_owned(), other.clone())].into_iter().collect(),
    };
    if let Some(asked_by) = input.get("asked_by").filter(|asked_by| asked_by.is_object()) {
        shown.insert("asked_by".to_owned(), asked_by.clone());
    }
    shown.into()
}

/// Returns the question without characters that hide or reorder its text, limited to the maximum
/// length.
fn shown_prompt(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control() && c != '\n'
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let shown: String = text.chars().filter(|c| !is_hidden(*c)).collect();
    shown[..shown.floor_char_boundary(MAX_PROMPT_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use sinew_protocol::FaultKind;

    use super::*;
    use crate::testing::Bench;

    fn output(input: Value, answer: PersonAnswer) -> Value {
        let mut bench = Bench::new(person_question_plan(), &PersonQuestionAdapter);
        let mut stub = |_: &str, _: &_| unreachable!("no agent is asked");
        bench.start(input, &mut stub);
        bench.answer_as(answer, &mut stub);
        Value::clone(bench.state().outcome.as_ref().and_then(|end| end.output.as_ref()).expect("it ended"))
    }

    fn said(data: Value) -> PersonAnswer {
        PersonAnswer { data, by: Some("ada".to_owned()), ..PersonAnswer::default() }
    }

    #[test]
    fn decisions_are_yes_only_if_they_say_so() {
        let question = || json!({"prompt": "May it?", "data": {"tool": "pay", "arguments": {"amount": 3}}});
        for (data, approved) in [
            (json!("approve"), true),
            (json!(true), true),
            (json!({"approved": true}), true),
            (json!("reject"), false),
            (json!(false), false),
            (json!({"approved": false}), false),
            (json!({"amount": 5}), false),
            (json!("only half of it"), false),
        ] {
            let output = output(question(), said(data.clone()));
            assert_eq!((&output["approved"], &output["by"]), (&json!(approved), &json!("ada")), "{data}");
        }
    }

    #[test]
    fn questions_in_words_are_answered_in_words() {
        let answer = |data: Value| output(json!({"prompt": "Which colour?"}), said(data));
        assert_eq!(answer(json!("no"))["answer"], "no");
        assert_eq!(answer(json!("no"))["approved"], true);
        assert_eq!(answer(json!("approve"))["answer"], Value::Null);
        assert_eq!(answer(json!("reject"))["approved"], false);
    }

    #[test]
    fn the_question_shows_all_of_its_words_and_nothing_else() {
        assert_eq!(shown_prompt("Pay\u{202e} 3\u{200b}\u{7}?\nNow?"), "Pay 3?\nNow?");
        assert_eq!(shown_prompt(&"ä".repeat(20_000)).len(), MAX_PROMPT_BYTES);
        let refused = PersonQuestionAdapter.admit(&person_question_plan(), json!({"prompt": " "}));
        assert_eq!(refused.unwrap_err().kind, FaultKind::Invalid);
    }
}
