//! The next step of a conversation, as a pure function of log and time.

mod answers;
mod asks;
mod calls;

pub use calls::EFFECT_HINT;

use std::borrow::Cow;

use serde_json::Value;
use sinew_protocol::{Fault, code};

use crate::output::AnswerPlan;
use crate::prompt::{Prompt, PromptMeasure};
use crate::record::{CallPosition, ConversationEnd, DiscoveredTool, StepBody};
use crate::spec::{ConversationSpec, EffectClass, ToolSpec, UnknownRule};
use crate::state::{ConversationState, Exchange};
use crate::thoughts::without_thoughts;
use crate::turn::{FinishReason, ModelTurn};

/// Maximum invalid calls of a conversation.
const MAX_INVALID_CALLS: u32 = 3;

/// Returns whether a call requires approval, from the condition of the agent file and the arguments.
/// Must return true if the condition fails.
pub type ApprovalTest<'a> = &'a dyn Fn(&str, &Value) -> bool;

/// The next step of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum NextStep {
    /// Append this record and call [`ConversationSpec::next`] again.
    Record(StepBody),
    /// Wait, append an `Ask`, call the model, and append a `Turn`, `Miss`, or for a summary `Compact`.
    AskModel(Box<ModelAsk>),
    /// Make these calls concurrently, and append a `Done` for each. A `once` call is alone, and its
    /// `Call` is appended before it is made.
    RunCalls(Vec<ToolCall>),
    /// Append a `Question` unless the log has it, wait for the decision and append it.
    AskPerson(PersonQuestion),
    /// Calls of this process are pending: fold again when their results are in the log.
    Wait,
    /// The conversation has ended.
    Finished(ConversationEnd),
}

/// A request to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAsk {
    /// Number of the turn.
    pub turn: u32,
    /// Index of the model in the spec.
    pub model: usize,
    /// The prompt.
    pub prompt: Prompt,
    /// Digest and length of the prompt.
    pub measure: PromptMeasure,
    /// Delay before the call, in milliseconds.
    pub wait_ms: u64,
    /// Summarise the turns before this one; `None` for a turn of the conversation.
    pub summary_before: Option<u32>,
}

/// A valid call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Position and key of the call.
    pub position: CallPosition,
    /// Name of the tool for the model.
    pub tool: String,
    /// Arguments, valid against the tool's parameters.
    pub arguments: Value,
    /// Effect of a repeated call.
    pub effect: EffectClass,
    /// The tool, if a search found it; `None` for a declared tool.
    pub discovered: Option<Box<DiscoveredTool>>,
}

impl ToolCall {
    /// Returns the settings of the tool; `None` for a tool that the spec does not have.
    pub fn settings<'a>(&self, spec: &'a ConversationSpec) -> Option<&'a ToolSpec> {
        match &self.discovered {
            Some(found) => spec.discover_rules.get(found.rule as usize),
            None => spec.tool(&self.tool),
        }
    }
}

/// A question to a person about a call.
#[derive(Clone, Debug, PartialEq)]
pub struct PersonQuestion {
    /// The call.
    pub call: ToolCall,
    /// Reason of the question.
    pub reason: QuestionReason,
    /// Time of the question, in milliseconds since the Unix epoch; `None` if it was not sent.
    pub asked_at: Option<u64>,
}

/// Reason of a question to a person about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionReason {
    /// The agent file requires approval.
    Rule,
    /// The call has side effects, and the conversation contains untrusted text.
    Taint,
    /// An earlier attempt of the call was interrupted and may have taken effect.
    Unknown,
    /// The call is itself a question, whose answer is the result.
    Words,
}

impl ConversationSpec {
    /// Returns the next step at this time, in milliseconds since the Unix epoch.
    pub fn next(&self, state: &ConversationState, now: u64, test: ApprovalTest<'_>) -> NextStep {
        if let Some(end) = &state.end {
            return NextStep::Finished(end.clone());
        }
        if state.begin.is_none() {
            return NextStep::Wait;
        }
        if let Some(fault) = self.spent(state, now) {
            return fail(fault);
        }
        let Some(last) = state.exchanges.last() else { return self.ask(state) };
        if last.feedback.is_some() {
            return self.ask(state);
        }
        let plan = self.model(&last.alias).map_or(AnswerPlan::Words, |model| AnswerPlan::of(self, model));
        if last.answer.finish == FinishReason::Length {
            return cut_off(state, last);
        }
        if last.answer.calls.is_empty() {
            return self.conclude(state, last, plan);
        }
        if let Some(step) = self.calls(state, last, plan, test) {
            return step;
        }
        if self.on_unknown == UnknownRule::Fail
            && let Some(tool) = last.tool_of_unknown_fate()
        {
            return fail(calls::fate_unknown(tool));
        }
        if state.totals.invalid_calls > MAX_INVALID_CALLS {
            let text = format!("the model made {} calls that are not valid", state.totals.invalid_calls);
            return fail(Fault::failure(code::MODEL_GOES_IN_CIRCLES.as_str(), text).with_retryable(false));
        }
        self.ask(state)
    }

    /// Builds the log record of an answer: removes reasoning from its text, parses calls from it, names
    /// the tools that it calls through `call_tool`, and adds the price.
    pub fn turn_record(&self, ask: &ModelAsk, mut answer: ModelTurn) -> StepBody {
        let model = &self.models[ask.model];
        if let Cow::Owned(text) = without_thoughts(&answer.text) {
            answer.text = text;
        }
        let cost = model.price.map(|price| price.of(answer.usage));
        if let Some(before) = ask.summary_before {
            return StepBody::Compact(crate::record::CompactStep {
                before,
                summary: Some(answer.text),
                moved: Vec::new(),
                usage: answer.usage,
                cost,
            });
        }
        let mut answer = crate::output::with_calls_of_text(self, model, answer);
        answer.calls = answer.calls.into_iter().map(|call| self.unwrapped(call)).collect();
        StepBody::Turn { turn: ask.turn, alias: model.alias.clone(), answer: Box::new(answer), cost }
    }

    /// Returns the remaining time budget in milliseconds, which excludes waiting for people.
    pub fn wall_left_ms(&self, state: &ConversationState, now: u64) -> u64 {
        self.budget.wall_ms.saturating_sub(worked_ms(state, now))
    }

    /// Returns the fault of an exhausted budget. Those of turns and tool calls end with a last turn.
    fn spent(&self, state: &ConversationState, now: u64) -> Option<Fault> {
        let budget = &self.budget;
        let over = |name: &str, used: String, limit: String| {
            let text = format!("the budget '{name}' of the conversation is exhausted: {used} of {limit}");
            Fault::failure(code::MODEL_BUDGET_SPENT.as_str(), text).with_retryable(false)
        };
        let (waited, wall) = (waited_ms(state, now), worked_ms(state, now));
        let (input, output) = state.spent_tokens();
        let counts =
            [("input_tokens", input, budget.input_tokens), ("output_tokens", output, budget.output_tokens)];
        if let Some((name, used, limit)) = counts.into_iter().find(|(_, used, limit)| used > limit) {
            return Some(over(name, used.to_string(), limit.to_string()));
        }
        let cost = state.spent_usd();
        if let Some(limit) = budget.cost_usd.filter(|limit| cost > *limit) {
            return Some(over("cost_usd", format!("{cost:.6}"), limit.to_string()));
        }
        let times = [("wall", wall, budget.wall_ms), ("waiting", waited, budget.waiting_ms)];
        let (name, used, limit) = times.into_iter().find(|(_, used, limit)| used > limit)?;
        Some(over(name, format!("{} s", used / 1000), format!("{} s", limit / 1000)))
    }
}

/// Returns the step that ends a conversation with this fault.
fn fail(fault: Fault) -> NextStep {
    NextStep::Record(StepBody::End(ConversationEnd::Fault(fault)))
}

/// Returns the milliseconds since the first start, without waiting for people.
fn worked_ms(state: &ConversationState, now: u64) -> u64 {
    now.saturating_sub(state.begun_at.unwrap_or(now)).saturating_sub(waited_ms(state, now))
}

/// Returns the milliseconds of waiting for people, including the open question.
fn waited_ms(state: &ConversationState, now: u64) -> u64 {
    let waiting = open_question(state).map_or(0, |at| now.saturating_sub(at));
    state.totals.waited_ms.saturating_add(waiting)
}

/// Returns the time of the question without a decision.
fn open_question(state: &ConversationState) -> Option<u64> {
    let calls = state.exchanges.last().into_iter().flat_map(|last| &last.calls);
    calls.filter(|call| call.result.is_none() && call.decision.is_none()).find_map(|call| call.asked_at)
}

/// Returns the step after a truncated answer, which is never parsed and whose calls are never made.
fn cut_off(state: &ConversationState, last: &Exchange) -> NextStep {
    let before = state.exchanges.iter().rev().nth(1).and_then(|before| before.feedback.as_ref());
    let again = before.is_some_and(|(reason, _)| *reason == crate::record::FeedbackReason::CutOff);
    if again {
        let text = "the model's answer was cut off at its limit of output tokens, twice";
        return fail(Fault::failure(code::MODEL_ANSWER_CUT_OFF.as_str(), text).with_retryable(false));
    }
    NextStep::Record(StepBody::Feedback {
        turn: last.turn,
        reason: crate::record::FeedbackReason::CutOff,
        text: "The answer was cut off at the limit of output tokens.".to_owned(),
    })
}
