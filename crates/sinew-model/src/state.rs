//! The fold of a conversation's log.

use std::borrow::Cow;

use serde_json::Value;
use sinew_protocol::usage::ModelTotals;

use crate::record::{
    AskStep, CallPosition, CallResult, CallStatus, CompactStep, ConversationEnd, DiscoveredTool,
    FeedbackReason, SessionTurn, StartStep, StepBody, StepRecord,
};
use crate::thoughts::without_thoughts;
use crate::turn::{ModelRefusal, ModelTurn, RefusalKind, TokenUsage};

/// Maximum number of discovered tools; the oldest ones leave.
const MAX_DISCOVERED: usize = 64;
/// Approximate bytes of JSON per token.
const BYTES_PER_TOKEN: f64 = 3.5;

/// State of a conversation: the fold of its log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConversationState {
    /// Start of the conversation, in milliseconds since the Unix epoch; `None` for an empty log.
    pub begun_at: Option<u64>,
    /// Process that wrote the last start record.
    pub writer: String,
    /// Last start record.
    pub begin: Option<StartStep>,
    /// Number of start records.
    pub begins: u32,
    /// Number of start records at the end of the log.
    pub idle_begins: u32,
    /// Number of start records that discarded earlier turns.
    pub resets: u32,
    /// Turns since the last reset, oldest first.
    pub exchanges: Vec<Exchange>,
    /// The results of calls in turns before this one are omitted.
    pub results_before: u32,
    /// Turns before this one are replaced by their summary.
    pub summary: Option<(u32, String)>,
    /// Failed model calls since the last turn.
    pub misses: Vec<MissedAsk>,
    /// Refusals of prompts that are too long, or may be, since the last turn.
    pub overlong_asks: u32,
    /// Last model call, if its result is unknown.
    pub open_ask: Option<AskStep>,
    /// Sums over the whole log, including discarded turns.
    pub totals: ConversationTotals,
    /// Earlier conversations of the session, oldest first.
    pub session: Vec<SessionTurn>,
    /// Whether a result can contain untrusted text.
    pub tainted: bool,
    /// Tools that searches found since the last reset, oldest first, at most 64.
    pub discovered: Vec<DiscoveredTool>,
    /// Tokens per byte of the last prompt, as the provider counted; `None` before the first turn.
    pub tokens_per_byte: Option<f64>,
    /// The end, if the conversation has ended.
    pub end: Option<ConversationEnd>,
    last_ask_bytes: u64,
}

/// A failed model call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissedAsk {
    /// The model.
    pub alias: String,
    /// The reason.
    pub refusal: ModelRefusal,
}

/// A turn with the results of its calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    /// Number of the turn.
    pub turn: u32,
    /// The model that answered.
    pub alias: String,
    /// The answer.
    pub answer: ModelTurn,
    /// The calls of the answer, in the model's order.
    pub calls: Vec<CallState>,
    /// Feedback to the model about the answer.
    pub feedback: Option<(FeedbackReason, String)>,
}

impl Exchange {
    /// Returns the tool of a call that may have taken effect.
    pub(crate) fn tool_of_unknown_fate(&self) -> Option<&str> {
        let is_unknown = |call: &CallState| {
            call.result.as_ref().is_some_and(|result| result.status == CallStatus::Unknown)
        };
        let mut calls = self.answer.calls.iter().zip(&self.calls);
        calls.find(|(_, call)| is_unknown(call)).map(|(requested, _)| requested.tool.as_str())
    }
}

/// State of a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallState {
    /// Number of start records when the call was recorded as started; `None` if it was not.
    pub begun_in: Option<u32>,
    /// Time of the question to a person, in milliseconds since the Unix epoch.
    pub asked_at: Option<u64>,
    /// The person's decision.
    pub decision: Option<PersonDecision>,
    /// The result.
    pub result: Option<CallResult>,
}

/// A person's decision about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersonDecision {
    /// Whether the call is approved.
    pub approved: bool,
    /// Identity of the person; empty if unknown.
    pub by_person: String,
    /// Comment of the person.
    pub comment: Option<String>,
}

/// Sums over a conversation's whole log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConversationTotals {
    /// Tokens of all model calls.
    pub usage: TokenUsage,
    /// Price of all model calls in USD.
    pub cost_usd: f64,
    /// Turns.
    pub turns: u32,
    /// Model calls whose result a crash lost.
    pub lost_asks: u32,
    /// Failed model calls.
    pub misses: u32,
    /// Model calls that wrote summaries.
    pub summaries: u32,
    /// Tool calls that were made.
    pub tool_calls: u32,
    /// Invalid calls: unknown tool, or arguments that do not fit.
    pub invalid_calls: u32,
    /// Calls that a crash interrupted and that may have taken effect.
    pub unknown_calls: u32,
    /// Milliseconds of waiting for people.
    pub waited_ms: u64,
    /// Model calls of called agents and workflows, and of nested conversations.
    pub children: ModelTotals,
    /// The part of `children` from nested conversations, which counts against this budget.
    pub nested: ModelTotals,
}

impl ConversationState {
    /// Folds a log without its nested conversations. Ignores records that contradict earlier ones.
    pub fn fold<'a>(records: impl IntoIterator<Item = &'a StepRecord>) -> Self {
        Self::fold_within(records, None)
    }

    /// Folds one conversation of a log: the nested one of the call with this key, or that of the task.
    pub fn fold_within<'a>(records: impl IntoIterator<Item = &'a StepRecord>, within: Option<&str>) -> Self {
        let mut state = Self::default();
        for record in records.into_iter().filter(|record| record.within.as_deref() == within) {
            state.apply(record);
        }
        state
    }

    /// Adds one record.
    pub fn apply(&mut self, record: &StepRecord) {
        if self.begin.is_none() && !matches!(record.body, StepBody::Begin(_)) {
            return;
        }
        if self.end.is_some() && !matches!(record.body, StepBody::Begin(_)) {
            return;
        }
        if !matches!(record.body, StepBody::Begin(_)) {
            self.idle_begins = 0;
        }
        match &record.body {
            StepBody::Begin(begin) => self.begin(begin, record),
            StepBody::Ask(ask) => {
                self.last_ask_bytes = ask.bytes;
                self.open_ask = Some(ask.clone());
            }
            StepBody::Miss { alias, refusal, .. } => {
                self.open_ask = None;
                self.totals.misses = self.totals.misses.saturating_add(1);
                let may_be_overlong =
                    matches!(refusal.kind, RefusalKind::ContextTooLong | RefusalKind::BadRequest);
                self.overlong_asks += u32::from(may_be_overlong);
                self.misses.push(MissedAsk { alias: alias.clone(), refusal: refusal.clone() });
            }
            StepBody::Turn { turn, alias, answer, cost } => self.turn(*turn, alias, answer, *cost),
            StepBody::Question(call) => self.change(call, |call| {
                call.asked_at.get_or_insert(record.at);
            }),
            StepBody::Decision { call, approved, by_person, comment } => {
                let mut waited = 0;
                self.change(call, |call| {
                    waited = call.asked_at.map_or(0, |at| record.at.saturating_sub(at));
                    call.decision.get_or_insert(PersonDecision {
                        approved: *approved,
                        by_person: by_person.clone(),
                        comment: comment.clone(),
                    });
                });
                self.totals.waited_ms = self.totals.waited_ms.saturating_add(waited);
            }
            StepBody::Call(call) => {
                let now = self.begins;
                self.change(call, |call| {
                    // A crash may interrupt the call again; an earlier decision must not apply then.
                    *call = CallState { begun_in: Some(now), ..CallState::default() };
                });
            }
            StepBody::Done { call, result } => self.done(call, result),
            StepBody::Feedback { turn, reason, text } => {
                if let Some(last) = self.exchanges.last_mut().filter(|last| last.turn == *turn) {
                    last.feedback.get_or_insert_with(|| (*reason, text.clone()));
                }
            }
            StepBody::Artifacts { .. } => {}
            StepBody::Compact(compact) => self.compact(compact),
            StepBody::End(end) => self.end = Some(end.clone()),
        }
    }

    fn begin(&mut self, begin: &StartStep, record: &StepRecord) {
        self.begun_at.get_or_insert(record.at);
        let newer = self.begin.as_ref().is_some_and(|last| begin.attempt > last.attempt);
        if let Some(end) = &self.end {
            let over = match end {
                ConversationEnd::Fault(fault) => !fault.retryable,
                _ => true,
            };
            if over && !begin.reset {
                return;
            }
        }
        self.end = None;
        if self.begins == 0 || begin.reset {
            self.session.clone_from(&begin.session);
        }
        self.begins += 1;
        self.idle_begins += 1;
        self.totals.lost_asks += u32::from(self.open_ask.take().is_some());
        if newer || begin.reset {
            self.misses.clear();
            self.overlong_asks = 0;
        }
        if begin.reset {
            self.resets += 1;
            self.exchanges.clear();
            self.summary = None;
            self.results_before = 0;
            self.tainted = false;
            self.discovered.clear();
        }
        self.writer.clone_from(&record.by);
        self.begin = Some(begin.clone());
    }

    fn turn(&mut self, turn: u32, alias: &str, answer: &ModelTurn, cost: Option<f64>) {
        if turn != self.next_turn() {
            return;
        }
        self.spend(answer.usage, cost);
        self.totals.turns += 1;
        if self.last_ask_bytes > 0 && answer.usage.input > 0 && !answer.usage.estimated {
            self.tokens_per_byte = Some(answer.usage.input as f64 / self.last_ask_bytes as f64);
        }
        self.open_ask = None;
        self.misses.clear();
        self.overlong_asks = 0;
        let mut answer = answer.clone();
        // Logs of earlier versions contain the reasoning.
        if let Cow::Owned(text) = without_thoughts(&answer.text) {
            answer.text = text;
        }
        self.exchanges.push(Exchange {
            turn,
            alias: alias.to_owned(),
            calls: vec![CallState::default(); answer.calls.len()],
            answer,
            feedback: None,
        });
    }

    fn spend(&mut self, usage: TokenUsage, cost: Option<f64>) {
        self.totals.usage.add(usage);
        self.totals.cost_usd += cost.filter(|cost| cost.is_finite() && *cost > 0.0).unwrap_or(0.0);
    }

    fn done(&mut self, call: &CallPosition, result: &CallResult) {
        let mut added = false;
        self.change(call, |call| {
            added = true;
            call.result = Some(result.clone());
        });
        if !added {
            return;
        }
        self.totals.children.add(result.usage);
        if result.nested {
            self.totals.nested.add(result.usage);
            self.totals.waited_ms = self.totals.waited_ms.saturating_add(result.waited_ms);
        }
        self.tainted |= result.holds_words_of_others();
        self.discover(&result.discovered);
        match result.status {
            CallStatus::Succeeded | CallStatus::Failed => self.totals.tool_calls += 1,
            CallStatus::Unknown => {
                self.totals.tool_calls += 1;
                self.totals.unknown_calls += 1;
            }
            CallStatus::Invalid => self.totals.invalid_calls += 1,
            CallStatus::Refused => {}
        }
    }

    /// Adds found tools. The last declaration of a name applies.
    fn discover(&mut self, found: &[DiscoveredTool]) {
        for tool in found {
            self.discovered.retain(|known| known.declaration.name != tool.declaration.name);
            self.discovered.push(tool.clone());
        }
        let over = self.discovered.len().saturating_sub(MAX_DISCOVERED);
        self.discovered.drain(..over);
    }

    /// Returns the discovered tool that has this name for the model.
    pub(crate) fn discovered(&self, name: &str) -> Option<&DiscoveredTool> {
        self.discovered.iter().find(|tool| tool.declaration.name == name)
    }

    fn compact(&mut self, compact: &CompactStep) {
        let before = compact.before.min(self.next_turn());
        for moved in &compact.moved {
            let exchange = self.exchanges.iter_mut().find(|exchange| exchange.turn == moved.turn);
            let call = exchange.and_then(|exchange| exchange.calls.get_mut(moved.index as usize));
            if let Some(result) = call.and_then(|call| call.result.as_mut()) {
                result.artifact.get_or_insert_with(|| moved.artifact.clone());
            }
        }
        self.open_ask = None;
        self.misses.clear();
        self.results_before = self.results_before.max(before);
        if let Some(text) = &compact.summary {
            self.spend(compact.usage, compact.cost);
            self.totals.summaries += 1;
            if self.summary.as_ref().is_none_or(|(last, _)| *last < before) {
                self.summary = Some((before, text.clone()));
            }
        }
    }

    /// Changes a call without a result.
    fn change(&mut self, at: &CallPosition, change: impl FnOnce(&mut CallState)) {
        let exchange = self.exchanges.last_mut().filter(|exchange| exchange.turn == at.turn);
        let call = exchange.and_then(|exchange| exchange.calls.get_mut(at.index as usize));
        if let Some(call) = call.filter(|call| call.result.is_none()) {
            change(call);
        }
    }

    /// Returns results of turns before this one to move to artifacts: turn, index of the call, content.
    pub fn results_to_move(&self, before: u32) -> impl Iterator<Item = (u32, u32, &Value)> {
        let leaving = self.results_before..before;
        let exchanges = self.exchanges.iter().filter(move |exchange| leaving.contains(&exchange.turn));
        exchanges.flat_map(|exchange| {
            exchange.calls.iter().zip(0..).filter_map(|(call, index)| {
                let result = call.result.as_ref()?;
                let is_moved = result.may_give_way() && result.artifact.is_none();
                is_moved.then_some((exchange.turn, index, &result.content))
            })
        })
    }

    /// Returns the number of the next turn.
    pub fn next_turn(&self) -> u32 {
        self.exchanges.last().map_or(0, |last| last.turn.saturating_add(1))
    }

    /// Returns the number of model calls whose result is in the log.
    pub fn answered_asks(&self) -> u32 {
        self.totals.turns.saturating_add(self.totals.misses).saturating_add(self.totals.summaries)
    }

    /// Estimates the tokens of `bytes` of text, calibrated by the provider's last count.
    pub(crate) fn estimated_tokens(&self, bytes: u64) -> u64 {
        let per_byte = self
            .tokens_per_byte
            .filter(|ratio| (0.02..=2.0).contains(ratio))
            .unwrap_or(1.0 / BYTES_PER_TOKEN);
        let tokens = bytes as f64 * per_byte;
        // A prompt has too few bytes for the conversion to lose precision.
        #[expect(clippy::cast_sign_loss, reason = "bytes and ratio are positive")]
        let tokens = tokens as u64;
        tokens
    }

    /// Estimates the tokens of a model call for which the provider reported no valid count. Prompts and
    /// answers always have tokens.
    pub fn estimate_usage(&self, prompt_bytes: u64, answer: &mut ModelTurn) {
        let answer_bytes = if answer.verbatim.is_null() {
            let calls = answer.calls.iter().map(|call| call.tool.len() + call.arguments.len());
            answer.text.len() + calls.sum::<usize>()
        } else {
            answer.verbatim.to_string().len()
        };
        let usage = &mut answer.usage;
        let [prompt, answered] =
            [prompt_bytes, answer_bytes as u64].map(|bytes| self.estimated_tokens(bytes));
        for (tokens, estimated) in [(&mut usage.input, prompt), (&mut usage.output, answered)] {
            if *tokens == 0 {
                *tokens = estimated.max(1);
                usage.estimated = true;
            }
        }
    }

    /// Returns the tokens of prompts and of answers, including nested conversations.
    pub fn spent_tokens(&self) -> (u64, u64) {
        let ConversationTotals { usage, nested, .. } = &self.totals;
        (usage.input.saturating_add(nested.input_tokens), usage.output.saturating_add(nested.output_tokens))
    }

    /// Returns the price in USD, including nested conversations.
    pub fn spent_usd(&self) -> f64 {
        self.totals.cost_usd + self.totals.nested.cost_usd.unwrap_or(0.0)
    }

    /// Returns the number of model calls that count against the budget of turns.
    pub fn counted_asks(&self) -> u32 {
        self.totals.turns.saturating_add(self.totals.lost_asks).saturating_add(self.totals.summaries)
    }
}
