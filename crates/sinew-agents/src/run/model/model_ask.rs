//! Sends one request of a conversation to a model, streams its answer, and records both.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sinew_model::{
    ANSWER_TOOL, AskStep, ConversationSpec, ModelAsk, ModelRefusal, ModelSpec, ModelTurn, Provider, StepBody,
    TurnDelta,
};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{MissedTickBehavior, interval_at};
use tracing::Instrument as _;

use super::conversation::Conversation;
use super::figures::note_model_call;
use super::turn_secrets::turn_without_secrets;
use crate::clean::ResolvedSecrets;
use crate::error::AgentError;

/// Approximate bytes of a delta of an answer that is sent to observers.
const DELTA_BYTES: usize = 256;
/// Maximum delay of a delta, for slow models. The first delta of an answer is sent immediately.
const DELTA_PAUSE: Duration = Duration::from_millis(100);

/// Buffers text of an answer for observers.
struct DeltaFeed<'a> {
    progress: &'a UnboundedSender<Value>,
    turn: u32,
    secrets: &'a ResolvedSecrets,
    /// Buffered text, and the time of the last delta.
    waiting: Mutex<(String, Option<Instant>)>,
}

impl<'a> DeltaFeed<'a> {
    fn new(progress: &'a UnboundedSender<Value>, turn: u32, secrets: &'a ResolvedSecrets) -> Self {
        Self { progress, turn, secrets, waiting: Mutex::default() }
    }

    fn add(&self, piece: &str) {
        self.change(|text, sent| {
            text.push_str(piece);
            text.len() >= DELTA_BYTES || is_due(sent)
        });
    }

    /// Changes the buffer and, if `change` returns true, sends it up to a possible start of a secret.
    fn change(&self, change: impl FnOnce(&mut String, Option<Instant>) -> bool) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (text, sent) = &mut *waiting;
        if change(text, *sent) {
            let rest = text.split_off(self.secrets.open_end(text));
            self.send(&std::mem::replace(text, rest), sent);
        }
    }

    /// Sends the rest of a complete answer.
    fn end(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (text, sent) = &mut *waiting;
        self.send(&std::mem::take(text), sent);
    }

    fn send(&self, text: &str, sent: &mut Option<Instant>) {
        if !text.is_empty() {
            let delta = json!({"type": "text", "turn": self.turn, "delta": self.secrets.hide(text)});
            *sent = Some(Instant::now());
            // Fails if the caller no longer listens.
            let _unheard = self.progress.send(delta);
        }
    }

    /// Awaits the answer, and sends buffered text periodically even if the model stalls.
    async fn flushed_while<F: Future>(&self, asking: F) -> F::Output {
        let mut asking = std::pin::pin!(asking);
        let mut ticks = interval_at(tokio::time::Instant::now() + DELTA_PAUSE, DELTA_PAUSE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                answer = &mut asking => return answer,
                _ = ticks.tick() => self.change(|_, sent| is_due(sent)),
            }
        }
    }
}

/// Returns whether to send the buffer: for the first delta, and once the delay has passed.
fn is_due(sent: Option<Instant>) -> bool {
    sent.is_none_or(|sent| sent.elapsed() >= DELTA_PAUSE)
}

impl Conversation<'_> {
    pub(super) async fn ask(&mut self, spec: &ConversationSpec, ask: &ModelAsk) -> Result<(), AgentError> {
        let model = self.models[ask.model];
        if ask.wait_ms > 0 {
            let message =
                format!("model '{}' did not respond; retrying in {} ms", model.spec.alias, ask.wait_ms);
            self.say(json!({"type": "retry", "turn": ask.turn, "message": message}));
            let wait = Duration::from_millis(ask.wait_ms);
            let left = self.wall_left(spec);
            tokio::time::sleep(wait.min(left)).await;
            if wait >= left {
                // The time budget is exhausted.
                return Ok(());
            }
        }
        let (asked, alias) = (self.log.state.answered_asks() as usize, model.spec.alias.clone());
        let step = AskStep {
            turn: ask.turn,
            alias: alias.clone(),
            prompt: ask.measure.digest.clone(),
            bytes: ask.measure.bytes,
        };
        self.record(StepBody::Ask(step)).await?;
        let is_turn = ask.summary_before.is_none();
        let feed = DeltaFeed::new(&self.place.call.progress, ask.turn, self.secrets);
        let mut deltas = |delta: TurnDelta| {
            if let (TurnDelta::Text(piece), true) = (delta, is_turn) {
                feed.add(&piece);
            }
        };
        let span = chat_span(&model.spec, self.activation);
        let left = self.wall_left(spec);
        let prompt = (&ask.prompt, &spec.models[ask.model]);
        let asking = model.ask(prompt, (asked, left), &self.headers[ask.model], self.secrets, &mut deltas);
        let begun = Instant::now();
        let answer = feed.flushed_while(asking.instrument(span.clone())).await;
        // The rest of an interrupted answer may be a part of a secret.
        if answer.is_ok() {
            feed.end();
        }
        let is_tool = |name: &str| name == ANSWER_TOOL || self.tools.has(name);
        let answer = answer.map(|mut turn| {
            self.log.state.estimate_usage(ask.measure.bytes, &mut turn);
            turn_without_secrets(turn, self.secrets, &is_tool)
        });
        note_answer(&span, answer.as_ref());
        let cost = answer.as_ref().ok().and_then(|turn| Some(model.spec.price?.of(turn.usage)));
        let names = (self.place.profile.name, model.spec.model.as_str());
        note_model_call(names, model.spec.provider, begun.elapsed(), cost, answer.as_ref());
        if let Some(recording) = &self.place.call.recording {
            let hide = |value: &Value| self.secrets.hide_in_value(value);
            recording.add_answer(&ask.prompt, answer.as_ref(), &hide);
        }
        let body = match answer {
            Ok(answer) => spec.turn_record(ask, answer),
            Err(refusal) => {
                self.say(json!({"type": "reset", "turn": ask.turn, "message": refusal.message}));
                StepBody::Miss { turn: ask.turn, alias, refusal }
            }
        };
        self.record(body).await
    }
}

/// Returns the span of a model call, without prompts and answers.
fn chat_span(model: &ModelSpec, conversation: &str) -> tracing::Span {
    let provider = match model.provider {
        Provider::OpenAi => "openai",
        Provider::Anthropic => "anthropic",
        Provider::Gemini => "gcp.gemini",
        Provider::Script => "script",
    };
    tracing::info_span!(
        "chat",
        model = model.model,
        provider,
        session = conversation,
        response_model = tracing::field::Empty,
        input_tokens = tracing::field::Empty,
        output_tokens = tracing::field::Empty,
        finish = tracing::field::Empty,
        error = tracing::field::Empty,
    )
}

fn note_answer(span: &tracing::Span, answer: Result<&ModelTurn, &ModelRefusal>) {
    match answer {
        Ok(turn) => {
            span.record("response_model", turn.model.as_str());
            span.record("input_tokens", turn.usage.input);
            span.record("output_tokens", turn.usage.output);
            span.record("finish", word_of(&turn.finish));
        }
        Err(refusal) => {
            span.record("error", word_of(&refusal.kind));
        }
    }
}

/// Returns the serialised name of a kind, as in records.
pub(super) fn word_of(kind: &impl serde::Serialize) -> String {
    serde_json::to_value(kind).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_words_go_at_once_and_others_in_pieces() {
        let (progress, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let secrets = ResolvedSecrets::default();
        let feed = DeltaFeed::new(&progress, 3, &secrets);
        let mut told = || heard.try_recv().ok();
        feed.add("It");
        assert_eq!(told(), Some(json!({"type": "text", "turn": 3, "delta": "It"})));
        let rest = " is on its way";
        let pieces = DELTA_BYTES.div_ceil(rest.len());
        // The delay can elapse in between, so check only the whole text and the number of deltas.
        (0..pieces).for_each(|_| feed.add(rest));
        feed.end();
        let all: Vec<Value> = std::iter::from_fn(told).collect();
        let text: String = all.iter().filter_map(|delta| delta["delta"].as_str()).collect();
        assert_eq!(text, rest.repeat(pieces));
        assert!(all.len() < pieces, "{all:?}");
    }

    #[test]
    fn a_secret_is_cut_out_of_text_however_it_arrives() {
        let mut secrets = ResolvedSecrets::default();
        secrets.add("s3cret-key");
        let answer = "a s3cret-key, s3cret, s3cret-ke";
        for size in 1..answer.len() {
            let (progress, mut heard) = tokio::sync::mpsc::unbounded_channel();
            let feed = DeltaFeed::new(&progress, 0, &secrets);
            for piece in answer.as_bytes().chunks(size) {
                feed.add(std::str::from_utf8(piece).unwrap());
                feed.change(|_, _| true);
            }
            let told = |heard: &mut tokio::sync::mpsc::UnboundedReceiver<Value>| -> String {
                let deltas = std::iter::from_fn(|| heard.try_recv().ok());
                deltas.map(|delta| delta["delta"].as_str().unwrap_or_default().to_owned()).collect()
            };
            assert_eq!(told(&mut heard), "a ***, s3cret, ", "in pieces of {size}");
            feed.end();
            assert_eq!(told(&mut heard), "s3cret-ke", "in pieces of {size}");
        }
    }
}
