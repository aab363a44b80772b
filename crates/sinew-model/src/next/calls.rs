//! The calls of a turn: validates, refuses, requests approval, makes them.

use std::borrow::Cow;

use serde_json::Value;
use sinew_protocol::embed::split_version;
use sinew_protocol::tool::ToolInput;
use sinew_protocol::{Fault, code};

use super::{ApprovalTest, NextStep, PersonQuestion, QuestionReason, ToolCall, fail};
use crate::output::{ANSWER_TOOL, AnswerPlan, violation_lines};
use crate::record::{CallPosition, CallResult, CallStatus, StepBody};
use crate::spec::{
    ApprovalRule, ConversationSpec, EffectClass, FIND_TOOLS, TaintRule, ToolSpec, UnknownRule,
};
use crate::state::{CallState, ConversationState, Exchange, PersonDecision};
use crate::text::{canonical, shortened, without_hidden};
use crate::turn::RequestedCall;

/// Maximum characters of an unknown tool's name in a message.
const MAX_SHOWN_NAME: usize = 64;

/// Maximum characters of a person's answer for the model.
const MAX_ANSWER: usize = 16 << 10;

/// Message to the model about a call that a crash interrupted.
const UNKNOWN: &str =
    "The process stopped during this call. It may have taken effect. Check before you call it again.";

/// What the author of an agent file can do about a tool that counts as one with side effects.
pub const EFFECT_HINT: &str =
    "for a tool that only reads, set `effect: read`, or `trust_hints: true` for its MCP server";

/// Plan for a call.
enum CallPlan {
    Make(ToolCall),
    Ask(PersonQuestion),
    Answer(CallStatus, String),
    End(Fault),
    Pending,
}

impl ConversationSpec {
    /// Returns the next step for the calls of the last turn; `None` if all have results.
    pub(super) fn calls(
        &self,
        state: &ConversationState,
        last: &Exchange,
        plan: AnswerPlan,
        test: ApprovalTest<'_>,
    ) -> Option<NextStep> {
        if let ([only], AnswerPlan::Tool) = (last.answer.calls.as_slice(), plan)
            && only.tool == ANSWER_TOOL
        {
            return Some(self.conclude_call(state, last, &only.arguments));
        }
        // Without a further turn, no model would receive the results of calls.
        if state.counted_asks() >= self.budget.turns && last.calls.iter().any(|call| call.result.is_none()) {
            return Some(self.ask(state));
        }
        let mut group = Vec::new();
        for (index, (requested, call)) in last.answer.calls.iter().zip(&last.calls).enumerate() {
            if call.result.is_some() {
                continue;
            }
            let position = self.position(state, last.turn, index as u32);
            let made = state.totals.tool_calls.saturating_add(group.len() as u32);
            match self.plan_call(state, last, (requested, call), position.clone(), made, plan, test) {
                CallPlan::Answer(status, text) => {
                    let result = CallResult::new(status, text);
                    return Some(NextStep::Record(StepBody::Done { call: position, result }));
                }
                CallPlan::End(fault) => return Some(fail(fault)),
                // `once` calls and questions wait for earlier calls, to preserve the model's order.
                CallPlan::Make(call) if call.effect == EffectClass::Once => {
                    if group.is_empty() {
                        return Some(NextStep::RunCalls(vec![call]));
                    }
                    break;
                }
                CallPlan::Ask(question) => {
                    if group.is_empty() {
                        return Some(NextStep::AskPerson(question));
                    }
                    break;
                }
                CallPlan::Pending => return Some(NextStep::Wait),
                CallPlan::Make(call) => group.push(call),
            }
            if group.len() >= self.budget.parallel.max(1) as usize {
                break;
            }
        }
        (!group.is_empty()).then_some(NextStep::RunCalls(group))
    }

    fn position(&self, state: &ConversationState, turn: u32, index: u32) -> CallPosition {
        CallPosition { turn, index, key: self.call_key(state.resets, turn, index) }
    }

    #[expect(clippy::too_many_arguments, reason = "one call and everything that stands against it")]
    fn plan_call(
        &self,
        state: &ConversationState,
        last: &Exchange,
        (requested, call): (&RequestedCall, &CallState),
        position: CallPosition,
        made: u32,
        plan: AnswerPlan,
        test: ApprovalTest<'_>,
    ) -> CallPlan {
        let (tool, arguments) = match self.checked(state, requested, plan) {
            Ok(checked) => checked,
            Err(problem) => return CallPlan::Answer(CallStatus::Invalid, problem),
        };
        let ready = ToolCall {
            position,
            tool: tool.declaration.name.clone(),
            arguments,
            effect: tool.effect,
            discovered: match &tool {
                Cow::Borrowed(_) => None,
                Cow::Owned(_) => state.discovered(&requested.tool).cloned().map(Box::new),
            },
        };
        let refuse = |text: String| CallPlan::Answer(CallStatus::Refused, text);
        if let Some(decision) = call.decision.as_ref().filter(|one| tool.rejection_fails && !one.approved) {
            return CallPlan::End(rejected(&ready.tool, decision));
        }
        if let Some(begun_in) = call.begun_in {
            // A question about a call of this process means that its answer was lost.
            if begun_in == state.begins && call.asked_at.is_none() {
                return CallPlan::Pending;
            }
            return self.plan_unknown(call, ready);
        }
        if let Some(limit) = tool.limit.filter(|limit| times_made(state, &tool) >= *limit) {
            return refuse(format!(
                "{} can be called {limit} times in a conversation, and this limit is reached",
                ready.tool
            ));
        }
        if made >= self.budget.tool_calls {
            return refuse(format!(
                "no more than {} tools may be called in a conversation",
                self.budget.tool_calls
            ));
        }
        match self.loop_guard(state, &ready) {
            LoopFinding::Free => {}
            LoopFinding::Refuse(text) => return refuse(text),
            LoopFinding::End(fault) => return CallPlan::End(fault),
        }
        if tool.asks_person() {
            return answered_in_words(call, ready, tool.rejection_fails);
        }
        let tainted = self.tainted || state.tainted || last.calls.iter().any(is_open);
        let acts_tainted = tainted && tool.effect == EffectClass::Once;
        if acts_tainted && self.taint == TaintRule::Deny {
            return refuse(format!(
                "{} has side effects, and the conversation contains untrusted text: the agent file forbids this call; \
                 {EFFECT_HINT}",
                ready.tool
            ));
        }
        let by_rule = match &tool.approval {
            ApprovalRule::Never => false,
            ApprovalRule::Always => true,
            ApprovalRule::When(condition) => test(condition, &ready.arguments),
        };
        let reason = match (by_rule, acts_tainted && self.taint == TaintRule::Approve) {
            (true, _) => QuestionReason::Rule,
            (false, true) => QuestionReason::Taint,
            (false, false) => return CallPlan::Make(ready),
        };
        ask_about(call, ready, reason)
    }

    /// Plans a call that may have taken effect: an earlier process started it, or its answer was lost.
    fn plan_unknown(&self, call: &CallState, ready: ToolCall) -> CallPlan {
        match self.on_unknown {
            UnknownRule::Tell => CallPlan::Answer(CallStatus::Unknown, UNKNOWN.to_owned()),
            UnknownRule::Fail => CallPlan::End(fate_unknown(&ready.tool)),
            UnknownRule::Ask => ask_about(call, ready, QuestionReason::Unknown),
        }
    }

    /// Validates a call. Returns its tool and arguments, or a message for the model.
    fn checked(
        &self,
        state: &ConversationState,
        requested: &RequestedCall,
        plan: AnswerPlan,
    ) -> Result<(Cow<'_, ToolSpec>, Value), String> {
        if requested.tool == ANSWER_TOOL && plan == AnswerPlan::Tool {
            return Err(format!("Call {ANSWER_TOOL} alone, after the results of all other tools are there."));
        }
        let Some(tool) = self.callable(state, &requested.tool) else {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.declaration.name.as_str()).collect();
            let shown = shortened(&requested.tool, MAX_SHOWN_NAME);
            let hint = match self.tool(FIND_TOOLS) {
                Some(_) => " Search for others with find_tools before you call them.",
                None => "",
            };
            return Err(format!("There is no tool '{shown}'. Tools: {}.{hint}", names.join(", ")));
        };
        let written = requested.arguments.trim();
        let arguments: Value = if written.is_empty() {
            Value::Object(serde_json::Map::new())
        } else {
            sinew_protocol::unique_keys::read_unique(written.as_bytes())
                .map_err(|error| format!("The arguments are not valid JSON: {error}."))?
        };
        let Value::Object(members) = &arguments else {
            return Err("The arguments must be a JSON object.".to_owned());
        };
        let content = match tool.declaration.input(members) {
            Ok(ToolInput::Parameters(content)) => Value::Object(content),
            Ok(ToolInput::Artifact(name)) => {
                // A person who approves the call, and its repetition, must mean the same content.
                let is_pinned = split_version(&name).1.is_some();
                if !is_pinned && (tool.effect == EffectClass::Once || tool.approval != ApprovalRule::Never) {
                    return Err(format!("Name the version of the artifact, such as {name}:v0."));
                }
                return Ok((tool, arguments));
            }
            Err(fault) => return Err(fault.message),
        };
        if let Some(schema) = &tool.parameters {
            let bad = violation_lines(&schema.errors(&content));
            if !bad.is_empty() {
                return Err(format!("The arguments do not fit:\n- {}", bad.join("\n- ")));
            }
        }
        Ok((tool, content))
    }

    /// Counts consecutive equal calls with equal results.
    fn loop_guard(&self, state: &ConversationState, ready: &ToolCall) -> LoopFinding {
        let wanted = canonical(&ready.arguments);
        let same = |requested: &RequestedCall| {
            requested.tool == ready.tool
                && serde_json::from_str::<Value>(&requested.arguments)
                    .is_ok_and(|given| canonical(&given) == wanted)
        };
        let mut results: Vec<String> = Vec::new();
        let mut refused = 0;
        for exchange in &state.exchanges {
            for (requested, call) in exchange.answer.calls.iter().zip(&exchange.calls) {
                let Some(result) = call.result.as_ref().filter(|_| same(requested)) else { continue };
                match result.status {
                    CallStatus::Refused => refused += 1,
                    _ => results.push(canonical(&result.content)),
                }
            }
        }
        let repeats = self.budget.repeats.max(1) as usize;
        let equal = results.iter().rev().take_while(|result| Some(*result) == results.last()).count();
        if equal < repeats {
            return LoopFinding::Free;
        }
        if refused >= repeats {
            let text =
                format!("the model called {} {} times with the same arguments", ready.tool, equal + refused);
            let fault = Fault::failure(code::MODEL_GOES_IN_CIRCLES.as_str(), text);
            return LoopFinding::End(fault.with_retryable(false));
        }
        LoopFinding::Refuse(format!(
            "You called {} with the same arguments {equal} times, and the result was the same each time. Do something else.",
            ready.tool
        ))
    }
}

/// Returns the fault that ends a conversation after an interrupted call of this tool.
pub(super) fn fate_unknown(tool: &str) -> Fault {
    let text = format!("a call of {tool} was interrupted, and may have taken effect");
    Fault::error(code::MODEL_CALL_FATE_UNKNOWN.as_str(), text).with_retryable(false)
}

/// Finding of the loop guard.
enum LoopFinding {
    Free,
    Refuse(String),
    End(Fault),
}

/// Returns the number of calls of a tool since the last reset.
fn times_made(state: &ConversationState, tool: &ToolSpec) -> u32 {
    made_calls(state).filter(|(requested, _)| requested.tool == tool.declaration.name).count() as u32
}

fn made_calls(state: &ConversationState) -> impl Iterator<Item = (&RequestedCall, &CallResult)> {
    let calls = state.exchanges.iter().flat_map(|exchange| exchange.answer.calls.iter().zip(&exchange.calls));
    calls.filter_map(|(requested, call)| Some((requested, call.result.as_ref()?))).filter(|(_, result)| {
        matches!(result.status, CallStatus::Succeeded | CallStatus::Failed | CallStatus::Unknown)
    })
}

fn is_open(call: &CallState) -> bool {
    call.result.as_ref().is_some_and(CallResult::holds_words_of_others)
}

/// Plans a question of the model to a person, or returns its answer.
fn answered_in_words(call: &CallState, ready: ToolCall, is_decision: bool) -> CallPlan {
    let Some(decision) = &call.decision else {
        return CallPlan::Ask(PersonQuestion {
            call: ready,
            reason: QuestionReason::Words,
            asked_at: call.asked_at,
        });
    };
    let words = shortened(&without_hidden(decision.comment.as_deref().unwrap_or_default()), MAX_ANSWER);
    let by = &decision.by_person;
    match (decision.approved, is_decision) {
        (true, true) => {
            let approval = serde_json::json!({ "approved": true, "by": by, "comment": words });
            CallPlan::Answer(CallStatus::Succeeded, approval.to_string())
        }
        (true, false) => CallPlan::Answer(CallStatus::Succeeded, words),
        (false, _) if by.is_empty() => {
            CallPlan::Answer(CallStatus::Failed, format!("no person answered: {words}"))
        }
        (false, _) => CallPlan::Answer(CallStatus::Failed, format!("{by} rejected: {words}")),
    }
}

/// Returns the fault that ends a conversation after a binding rejection, or without a decision.
fn rejected(tool: &str, decision: &PersonDecision) -> Fault {
    let comment = decision.comment.as_deref().filter(|comment| !comment.is_empty());
    let why = comment.map(|comment| format!(": {}", shortened(&without_hidden(comment), MAX_ANSWER)));
    let why = why.unwrap_or_default();
    let fault = match decision.by_person.as_str() {
        "" => Fault::failure(code::PERSON_DID_NOT_ANSWER.as_str(), format!("nobody approved {tool}{why}")),
        by => Fault::failure(code::PERSON_REJECTED.as_str(), format!("{by} rejected {tool}{why}")),
    };
    fault.with_retryable(false)
}

/// Plans the approval of a call, or applies the decision.
fn ask_about(call: &CallState, ready: ToolCall, reason: QuestionReason) -> CallPlan {
    match &call.decision {
        None => CallPlan::Ask(PersonQuestion { call: ready, reason, asked_at: call.asked_at }),
        Some(decision) if decision.approved => CallPlan::Make(ready),
        Some(decision) => {
            let comment = decision.comment.as_deref().map(|text| format!(": {text}")).unwrap_or_default();
            let code = code::MODEL_CALL_REFUSED_BY_PERSON;
            CallPlan::Answer(
                CallStatus::Refused,
                format!("A person did not allow this call{comment} [{code}]"),
            )
        }
    }
}
