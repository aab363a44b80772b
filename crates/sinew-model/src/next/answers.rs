//! Evaluates an answer without calls: accepts the output, or returns feedback to the model.

use sinew_protocol::{Fault, code};

use super::{NextStep, fail};
use crate::output::{AnswerPlan, FinalAnswer, read_answer_call, read_text};
use crate::record::{ConversationEnd, FeedbackReason, StepBody};
use crate::spec::ConversationSpec;
use crate::state::{ConversationState, Exchange};

impl ConversationSpec {
    /// Returns the next step after an answer without calls.
    pub(super) fn conclude(&self, state: &ConversationState, last: &Exchange, plan: AnswerPlan) -> NextStep {
        let answer = read_text(self, plan, &last.answer.text);
        // If the provider supports either tools or a schema, the first answer had no schema.
        let was_free = plan == AnswerPlan::Native { beside_tools: false }
            && !self.tools.is_empty()
            && !state.exchanges.iter().any(|one| is_feedback(one, FeedbackReason::Form));
        if matches!(answer, FinalAnswer::Bad(_)) && was_free {
            return NextStep::Record(StepBody::Feedback {
                turn: last.turn,
                reason: FeedbackReason::Form,
                text: "Now give the output in the required form.".to_owned(),
            });
        }
        self.settle(state, last, answer)
    }

    /// Returns the next step after a call of the final tool.
    pub(super) fn conclude_call(
        &self,
        state: &ConversationState,
        last: &Exchange,
        arguments: &str,
    ) -> NextStep {
        self.settle(state, last, read_answer_call(self, arguments))
    }

    fn settle(&self, state: &ConversationState, last: &Exchange, answer: FinalAnswer) -> NextStep {
        let bad = match answer {
            FinalAnswer::Output(value) => {
                return NextStep::Record(StepBody::End(ConversationEnd::Output(value)));
            }
            FinalAnswer::Artifact(name) => {
                return NextStep::Record(StepBody::End(ConversationEnd::Artifact(name)));
            }
            FinalAnswer::Failed(reason) => {
                return fail(Fault::failure(code::AGENT_WORK_FAILED.as_str(), reason));
            }
            FinalAnswer::Bad(bad) => bad,
        };
        let repairs = state.exchanges.iter().filter(|one| is_feedback(one, FeedbackReason::Repair)).count();
        if repairs >= self.output.repairs as usize {
            let text = format!("the model's output does not fit its schema after {repairs} repairs");
            let fault = Fault::invalid(code::MODEL_OUTPUT_BREAKS_SCHEMA.as_str(), text).with_details(bad);
            return fail(fault.with_retryable(true));
        }
        let text = format!(
            "The output cannot be used:\n- {}\nGive the whole output again, corrected.",
            bad.join("\n- ")
        );
        NextStep::Record(StepBody::Feedback { turn: last.turn, reason: FeedbackReason::Repair, text })
    }
}

fn is_feedback(exchange: &Exchange, reason: FeedbackReason) -> bool {
    exchange.feedback.as_ref().is_some_and(|(found, _)| *found == reason)
}
