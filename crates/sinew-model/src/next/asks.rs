//! The next model call: its model, its delay, with or without tools, or first a compaction.

use sinew_protocol::{Fault, code};

use super::{ModelAsk, NextStep, fail};
use crate::compose;
use crate::record::{CompactStep, StepBody};
use crate::spec::{ConversationSpec, FallbackRule, ModelSpec};
use crate::state::{ConversationState, MissedAsk};
use crate::turn::{ModelRefusal, RefusalKind, TokenUsage};

/// Maximum delay that a provider can request; for a longer one, the model is not retried.
const MAX_RETRY_AFTER_MS: u64 = 60_000;
/// Delay before the first retry of a model, doubled for each further one.
const FIRST_BACKOFF_MS: u64 = 500;

/// The model to call next.
enum ModelChoice {
    Ask { model: usize, wait_ms: u64 },
    Compact,
    Fail(Fault),
}

impl ConversationSpec {
    /// Returns the next model call or compaction.
    pub(super) fn ask(&self, state: &ConversationState) -> NextStep {
        let left = self.budget.turns.saturating_sub(state.counted_asks());
        let no_calls_left = state.totals.tool_calls >= self.budget.tool_calls && !self.tools.is_empty();
        let over = |name: &str, limit: u32| {
            let text = format!("the budget '{name}' of the conversation is exhausted: {limit} of {limit}");
            fail(Fault::failure(code::MODEL_BUDGET_SPENT.as_str(), text).with_retryable(false))
        };
        if left == 0 {
            return over("turns", self.budget.turns);
        }
        if no_calls_left && !self.budget.last_word {
            return over("tool_calls", self.budget.tool_calls);
        }
        // The first turn is never the last word, because the conversation has no results yet.
        let is_last = left == 1 && !state.exchanges.is_empty();
        let last_word = self.budget.last_word && (is_last || no_calls_left);
        let (model, wait_ms) = match self.choose(state) {
            ModelChoice::Ask { model, wait_ms } => (model, wait_ms),
            ModelChoice::Compact => return self.compact(state, true).unwrap_or_else(|| fail_refused(state)),
            ModelChoice::Fail(fault) => return fail(fault),
        };
        let prompt = compose::prompt(self, state, &self.models[model], last_word);
        let room = self.models[model].context as f64 * self.compaction.at;
        let measure = prompt.measure();
        if state.estimated_tokens(measure.bytes) as f64 > room
            && let Some(step) = self.compact(state, false)
        {
            return step;
        }
        let turn = state.next_turn();
        NextStep::AskModel(Box::new(ModelAsk { turn, model, prompt, measure, wait_ms, summary_before: None }))
    }

    /// Returns the next compaction; `None` if nothing can be compacted. `all` keeps only one turn.
    fn compact(&self, state: &ConversationState, all: bool) -> Option<NextStep> {
        let keep = if all { 1 } else { self.compaction.keep_turns.max(1) } as usize;
        let at = state.exchanges.len().checked_sub(keep)?;
        let before = state.exchanges.get(at)?.turn;
        let first = state.exchanges.first()?.turn;
        if before <= first {
            return None;
        }
        if state.results_before < before {
            return Some(NextStep::Record(StepBody::Compact(CompactStep {
                before,
                summary: None,
                moved: Vec::new(),
                usage: TokenUsage::default(),
                cost: None,
            })));
        }
        // Do not retry a failed summary before the next turn.
        if state.summary.as_ref().is_some_and(|(last, _)| *last >= before) || !state.misses.is_empty() {
            return None;
        }
        let model = self.summary_model.min(self.models.len() - 1);
        let prompt = compose::summary_prompt(self, state, &self.models[model], before);
        let turn = state.next_turn();
        Some(NextStep::AskModel(Box::new(ModelAsk {
            turn,
            model,
            measure: prompt.measure(),
            prompt,
            wait_ms: 0,
            summary_before: Some(before),
        })))
    }

    /// Chooses the model from the failed calls of this turn.
    fn choose(&self, state: &ConversationState) -> ModelChoice {
        let mut last = None;
        for (number, model) in self.models.iter().enumerate() {
            let missed: Vec<&MissedAsk> =
                state.misses.iter().filter(|miss| miss.alias == model.alias).collect();
            let Some(miss) = missed.last() else { return ModelChoice::Ask { model: number, wait_ms: 0 } };
            let refusal = &miss.refusal;
            match refusal.kind {
                RefusalKind::Denied => return ModelChoice::Fail(refusal_fault(refusal)),
                // Servers report an overlong prompt in many ways, so an unrecognised rejection of a prompt
                // that can be shortened may be one of them.
                RefusalKind::ContextTooLong | RefusalKind::BadRequest => {
                    return if state.overlong_asks > 1 {
                        ModelChoice::Fail(refusal_fault(refusal))
                    } else {
                        ModelChoice::Compact
                    };
                }
                RefusalKind::Unavailable | RefusalKind::Limited => {
                    let tries = missed.len() as u32;
                    let wait_ms = refusal.retry_after_ms.unwrap_or_else(|| self.backoff(state, model, tries));
                    if tries <= model.retries && wait_ms <= MAX_RETRY_AFTER_MS {
                        return ModelChoice::Ask { model: number, wait_ms };
                    }
                }
                RefusalKind::QuotaExceeded | RefusalKind::Filtered | RefusalKind::Refused => {}
            }
            last = Some(refusal);
            if !falls_back(self.fallback, refusal.kind) {
                break;
            }
        }
        ModelChoice::Fail(match last {
            Some(refusal) => refusal_fault(refusal),
            None => {
                Fault::error(code::MODEL_UNAVAILABLE.as_str(), "the agent has no model").with_retryable(false)
            }
        })
    }

    /// Returns 0.5 s, doubled for each retry, plus a jitter of up to a quarter per conversation.
    fn backoff(&self, state: &ConversationState, model: &ModelSpec, tries: u32) -> u64 {
        let doubled =
            FIRST_BACKOFF_MS.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(MAX_RETRY_AFTER_MS / 2);
        let key = format!("{} {} {} {tries}", self.activation, state.next_turn(), model.alias);
        let spread = sinew_protocol::artifact::sha256(key.as_bytes());
        let part = u64::from_str_radix(&spread[..4], 16).unwrap_or(0);
        doubled + doubled / 4 * part / 0xffff
    }
}

fn falls_back(rule: FallbackRule, kind: RefusalKind) -> bool {
    match kind {
        RefusalKind::Unavailable => rule.unavailable,
        RefusalKind::Limited | RefusalKind::QuotaExceeded => rule.limited,
        RefusalKind::Filtered => rule.filtered,
        RefusalKind::Refused => rule.refused,
        RefusalKind::Denied | RefusalKind::BadRequest | RefusalKind::ContextTooLong => false,
    }
}

/// Returns the step that ends a conversation whose refused prompt cannot be shortened.
fn fail_refused(state: &ConversationState) -> NextStep {
    let refusal = state.misses.last().map(|miss| miss.refusal.clone());
    let none = || {
        ModelRefusal::new(RefusalKind::ContextTooLong, "the conversation does not fit the model's context")
    };
    fail(refusal_fault(&refusal.unwrap_or_else(none)))
}

fn refusal_fault(refusal: &ModelRefusal) -> Fault {
    let message = refusal.message.clone();
    match refusal.kind {
        RefusalKind::Denied | RefusalKind::BadRequest | RefusalKind::QuotaExceeded => {
            Fault::error(code::MODEL_ACCESS_DENIED.as_str(), message).with_retryable(false)
        }
        RefusalKind::ContextTooLong => {
            Fault::failure(code::MODEL_CONTEXT_TOO_LONG.as_str(), message).with_retryable(false)
        }
        RefusalKind::Filtered | RefusalKind::Refused => {
            Fault::failure(code::MODEL_REFUSED.as_str(), message).with_retryable(false)
        }
        RefusalKind::Unavailable | RefusalKind::Limited => {
            let fault = Fault::error(code::MODEL_UNAVAILABLE.as_str(), message);
            match refusal.retry_after_ms {
                Some(wait) => fault.with_retry_after_ms(wait),
                None => fault,
            }
        }
    }
}
