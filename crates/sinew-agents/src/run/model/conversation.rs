//! The shell of one conversation: does what the machine says, and appends what came of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use sinew_model::{
    AskStep, BeginStep, CallResult, CallStatus, CappedResult, ConversationEnd, ConversationSpec, EffectClass,
    ModelAsk, ModelRefusal, ModelSpec, ModelTurn, NextStep, PersonQuestion, Provider, QuestionReason,
    StepBody, ToolCall, TurnDelta, cap_result, value_without_hidden,
};
use sinew_protocol::artifact::sha256;
use sinew_protocol::{Fault, FaultKind};
use tracing::Instrument as _;

use super::conversation_log::ConversationLog;
use super::endpoint::{FilledHeaders, ModelEndpoint};
use super::figures::{note_model_call, note_replayed_turns, note_tool_call};
use super::session::{EarlierTurns, leave_turn, session_turn};
use super::tools::{ToolOutcome, ToolTable};
use super::wait_clock::WaitClock;
use super::{AgentProfile, ModelAgent};
use crate::call::Call;
use crate::clean::ResolvedSecrets;
use crate::error::AgentError;
use crate::people::PersonReply;
use crate::run::{Limits, Output, RunnerSurroundings};
use crate::steps::{MemorySteps, Steps};

/// Text of an answer goes to those who watch in pieces of about so many bytes.
const DELTA_BYTES: usize = 256;
/// Or as soon as a piece arrives so long after the last one that was sent: slow models are watched word by word.
const DELTA_PAUSE: Duration = Duration::from_millis(100);
/// How much later than its limit a decision may arrive: people decide at the last moment, and the mesh takes a while.
const LATE_DECISION: Duration = Duration::from_secs(15);
/// Longest value of an event, in bytes.
const MAX_EVENT_BYTES: usize = 2 << 10;

/// Milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl ModelAgent {
    /// Holds a conversation until its end.
    pub(crate) async fn run(
        &self,
        profile: AgentProfile<'_>,
        call: &Call,
        limits: &Limits,
        around: &RunnerSurroundings,
    ) -> Result<Output, AgentError> {
        let clock = WaitClock::default();
        tokio::select! {
            biased;
            error = limits.reached() => Err(error),
            error = clock.reached(profile.timeout) => Err(error),
            result = self.converse(profile, call, around, &clock) => result,
        }
    }

    async fn converse(
        &self,
        profile: AgentProfile<'_>,
        call: &Call,
        around: &RunnerSurroundings,
        clock: &WaitClock,
    ) -> Result<Output, AgentError> {
        let request = call.context.get("request").unwrap_or(&Value::Null);
        let steps: Arc<dyn Steps> = call.steps.clone().unwrap_or_else(|| Arc::new(MemorySteps::default()));
        let mut models = self.models(request);
        let earlier = EarlierTurns { agent: self, call, models: &models };
        let log = ConversationLog::take_up(steps.as_ref(), &self.begin(call), &earlier).await?;
        let was_over = log.state.end.is_some();
        note_replayed_turns(log.replayed);
        call.artifacts.restore(&log.artifacts).await?;
        let begun_at = log.state.begun_at.unwrap_or_else(now_ms);
        let mut secrets = ResolvedSecrets::default();
        let mut headers: Vec<FilledHeaders> = models
            .iter()
            .map(|model| model.fill_headers(around.environment.as_ref(), &mut secrets))
            .collect();
        pass_over_unset(&mut models, &mut headers);
        self.read_server_secrets(around, &mut secrets);
        let tools = if was_over {
            // The conversation is over: no tool is called any more.
            ToolTable::default()
        } else {
            let servers = self.offered_servers(call, around).await?;
            ToolTable::of(&self.rules(), &call.peers.list().await, &servers, profile.name, request)?
        };
        let activation = activation_of(call);
        let mut spec = self.spec(profile, call, &models, tools.specs.clone(), &activation, begun_at)?;
        let session = &log.state.session;
        spec.history = session.iter().map(|turn| (turn.input.clone(), turn.output.clone())).collect();
        spec.tainted = session.iter().any(|turn| turn.tainted);
        let mut work = Conversation {
            agent: self,
            spec: &spec,
            call,
            models: &models,
            headers: &headers,
            secrets: &secrets,
            tools: &tools,
            log,
            clock,
            events: Vec::new(),
        };
        let end = work.hold().await?;
        let state = work.log.state.clone();
        let output = work.finish(end)?;
        if let Some(turn) = session_turn(&state, call, &activation, &output.value, now_ms()) {
            leave_turn(call, turn, was_over).await?;
        }
        Ok(output)
    }

    /// The begin of this attempt.
    fn begin(&self, call: &Call) -> BeginStep {
        let text = |key: &str| call.context.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let request = json!([call.input, call.instruction, call.output_schema, call.context.get("request")]);
        BeginStep {
            attempt: call
                .context
                .get("attempt")
                .and_then(Value::as_u64)
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(1),
            task: text("task"),
            request: sha256(request.to_string().as_bytes()),
            agent: self.digest.clone(),
            reset: false,
            delivery: call.delivery,
            session: Vec::new(),
        }
    }

    /// The tool entries of the file, and the reader of large skills where there are some.
    pub(super) fn rules(&self) -> Vec<super::tools::ToolRule> {
        let mut rules = self.tools.clone();
        if self.skills.iter().any(super::setup::is_large) {
            rules.push(super::tools::ToolRule {
                source: super::tools::ToolSource::Builtin(super::tools::BuiltinTool::ReadSkill),
                settings: super::tools::ToolSettings::default(),
            });
        }
        rules
    }
}

/// Leaves out models whose keys or headers name variables that are not set, unless no model would be left.
fn pass_over_unset(models: &mut Vec<&ModelEndpoint>, headers: &mut Vec<FilledHeaders>) {
    if !headers.iter().any(Result::is_ok) {
        return;
    }
    let mut is_set = headers.iter().map(Result::is_ok);
    models.retain(|model| {
        let is_set = is_set.next().unwrap_or(true);
        if !is_set {
            tracing::debug!(model = model.spec.alias, "a variable of the model is not set: it is not asked");
        }
        is_set
    });
    headers.retain(Result::is_ok);
}

/// Key of the conversation: the activation of the task, the key of the call that asks, or one of its own.
fn activation_of(call: &Call) -> String {
    static OWN: AtomicU64 = AtomicU64::new(0);
    let given = call.conversation.clone().or_else(|| {
        let activation = call.context.get("activation").and_then(Value::as_str)?;
        Some(activation.to_owned()).filter(|text| !text.is_empty())
    });
    given.unwrap_or_else(|| {
        format!("own-{}-{}-{}", std::process::id(), now_ms(), OWN.fetch_add(1, Ordering::Relaxed))
    })
}

/// A conversation at work.
struct Conversation<'a> {
    agent: &'a ModelAgent,
    spec: &'a ConversationSpec,
    call: &'a Call,
    models: &'a [&'a ModelEndpoint],
    headers: &'a [FilledHeaders],
    secrets: &'a ResolvedSecrets,
    tools: &'a ToolTable,
    log: ConversationLog<'a>,
    clock: &'a WaitClock,
    events: Vec<Value>,
}

impl Conversation<'_> {
    async fn hold(&mut self) -> Result<ConversationEnd, AgentError> {
        loop {
            let agent = self.agent;
            let step = self.spec.next(&self.log.state, now_ms(), &|condition, arguments| {
                agent.needs_approval(condition, arguments)
            });
            match step {
                NextStep::Finished(end) => return Ok(end),
                NextStep::Record(body) => {
                    self.tell(&body);
                    self.log.append(body).await?;
                }
                NextStep::AskModel(ask) => self.ask(&ask).await?,
                NextStep::RunCalls(calls) => self.run_calls(&calls).await?,
                NextStep::AskPerson(question) => self.ask_person(&question).await?,
                NextStep::Wait => {
                    return Err(AgentError::Host(
                        "the log of the conversation cannot be continued".to_owned(),
                    ));
                }
            }
        }
    }

    async fn ask(&mut self, ask: &ModelAsk) -> Result<(), AgentError> {
        let model = self.models[ask.model];
        if ask.wait_ms > 0 {
            let message =
                format!("model '{}' did not answer, trying again in {} ms", model.spec.alias, ask.wait_ms);
            self.say(json!({"type": "retry", "turn": ask.turn, "message": message}));
            tokio::time::sleep(Duration::from_millis(ask.wait_ms)).await;
        }
        let (asked, alias) = (self.log.state.answered_asks() as usize, model.spec.alias.clone());
        let step = AskStep {
            turn: ask.turn,
            alias: alias.clone(),
            prompt: ask.prompt.digest(),
            bytes: ask.prompt.bytes(),
        };
        self.log.append(StepBody::Ask(step)).await?;
        let is_turn = ask.summary_before.is_none();
        let mut text = String::new();
        let progress = &self.call.progress;
        let send = |text: &mut String| {
            let delta = json!({"type": "text", "turn": ask.turn, "delta": std::mem::take(text)});
            // Fails if the caller no longer listens.
            let _unheard = progress.send(delta);
        };
        let mut sent = Instant::now();
        let mut deltas = |delta: TurnDelta| {
            if let (TurnDelta::Text(piece), true) = (delta, is_turn) {
                text.push_str(&piece);
                if text.len() >= DELTA_BYTES || sent.elapsed() >= DELTA_PAUSE {
                    send(&mut text);
                    sent = Instant::now();
                }
            }
        };
        let span = chat_span(&model.spec, &self.spec.activation);
        let asking = model.ask(&ask.prompt, asked, &self.headers[ask.model], self.secrets, &mut deltas);
        let begun = Instant::now();
        let answer = asking.instrument(span.clone()).await;
        note_answer(&span, answer.as_ref());
        let cost = answer.as_ref().ok().and_then(|turn| Some(model.spec.price?.of(turn.usage)));
        note_model_call(model.spec.provider, begun.elapsed(), cost, answer.as_ref());
        if !text.is_empty() {
            send(&mut text);
        }
        let body = match answer {
            Ok(answer) => self.spec.turn_record(ask, answer),
            Err(refusal) => {
                self.say(json!({"type": "reset", "turn": ask.turn, "message": refusal.message}));
                StepBody::Miss { turn: ask.turn, alias, refusal }
            }
        };
        self.log.append(body).await
    }

    async fn run_calls(&mut self, calls: &[ToolCall]) -> Result<(), AgentError> {
        for call in calls {
            if call.effect == EffectClass::Once {
                self.log.append(StepBody::Call(call.position.clone())).await?;
            }
            let arguments = shown_value(&call.arguments);
            let message = format!("calls {}", call.tool);
            self.say(json!({"type": "tool:call", "turn": call.position.turn, "tool": call.tool, "message": message}));
            self.events.push(json!({"type": "tool:call", "tool": call.tool, "input": arguments}));
        }
        let (tools, task, skills) = (self.tools, self.call, &self.agent.skills);
        let mut running: FuturesUnordered<_> = calls
            .iter()
            .map(|call| {
                let span = tracing::info_span!("tool", tool = call.tool, session = self.spec.activation);
                async move { (call, tools.run(call, task, skills).await) }.instrument(span)
            })
            .collect();
        while let Some((call, outcome)) = running.next().await {
            let result = self.result(call, outcome);
            let source = self.spec.tool(&call.tool).map_or("other", |tool| tool.source.as_str());
            note_tool_call(source, result.status);
            self.keep_artifacts().await?;
            let size = result.content.to_string().len();
            self.say(
                json!({"type": "tool:result", "turn": call.position.turn, "tool": call.tool, "bytes": size}),
            );
            let shown = shown_value(&result.content);
            self.events.push(json!({"type": "tool:result", "tool": call.tool, "output": shown}));
            self.log.append(StepBody::Done { call: call.position.clone(), result }).await?;
        }
        Ok(())
    }

    /// Stores artifacts that tools left where another process finds them, and records where.
    async fn keep_artifacts(&mut self) -> Result<(), AgentError> {
        let artifacts = self.call.artifacts.store().await?;
        if artifacts.is_empty() { Ok(()) } else { self.log.append(StepBody::Artifacts { artifacts }).await }
    }

    /// A result as the model is told: without hidden characters and secrets, and not longer than allowed.
    fn result(&self, call: &ToolCall, outcome: ToolOutcome) -> CallResult {
        let tool = self.spec.tool(&call.tool);
        let (status, value) = match outcome.result {
            Ok(value) => (CallStatus::Succeeded, value),
            Err(reason) => (CallStatus::Failed, Value::String(reason)),
        };
        let value = without_secrets(&value_without_hidden(&value), self.secrets);
        let max = tool.map_or(super::tools::DEFAULT_MAX_RESULT, |tool| tool.max_result);
        let open = tool.is_none_or(|tool| tool.open);
        let (content, artifact) = match cap_result(&value, max) {
            CappedResult::Whole(content) => (content, None),
            CappedResult::Cut(text) => {
                let name =
                    format!("result-{}-{}.{}", call.position.turn, call.position.index, extension(&value));
                let bytes = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let stored = self.call.artifacts.put(&name, bytes.as_bytes(), None).ok();
                (text.into(), stored.map(|reference| reference.to_string()))
            }
        };
        CallResult { status, content, artifact, open, usage: outcome.usage }
    }

    async fn ask_person(&mut self, question: &PersonQuestion) -> Result<(), AgentError> {
        let position = question.call.position.clone();
        if question.asked_at.is_none() {
            self.log.append(StepBody::Question(position.clone())).await?;
        }
        let reason = match question.reason {
            QuestionReason::Rule => "The agent file asks for approval.",
            QuestionReason::Taint => "The conversation holds words of others.",
            QuestionReason::Unknown => "An earlier try was interrupted and may have taken effect.",
            QuestionReason::Words => "",
        };
        let mut prompt = self.tools.question(question, reason);
        self.say(json!({"type": "waiting", "turn": position.turn, "tool": question.call.tool, "message": prompt.text}));
        let (limit, asked_at) = (prompt.timeout, question.asked_at.unwrap_or_else(now_ms));
        // The question may have been put by an earlier process.
        let waited = Duration::from_millis(now_ms().saturating_sub(asked_at));
        prompt.timeout = limit.saturating_sub(waited).max(Duration::from_millis(1));
        let asked = tokio::time::timeout(prompt.timeout + LATE_DECISION, self.call.people.ask(prompt));
        let refusal = |comment: String| PersonReply { comment: Some(comment), ..PersonReply::default() };
        let reply = match self.clock.paused(asked).await {
            Ok(Ok(reply)) => reply,
            // The question stays open: the next process, or the next attempt, hears its answer.
            Ok(Err(fault)) if fault.retryable || fault.kind == FaultKind::Cancelled => {
                return Err(fault.into());
            }
            Ok(Err(fault)) => refusal(fault.message),
            Err(_) => refusal(format!("no decision within {} s", limit.as_secs_f64())),
        };
        let (tool, by) = (&question.call.tool, &reply.by_person);
        self.events.push(json!({"type": "person", "tool": tool, "approved": reply.approved, "by": by}));
        self.log
            .append(StepBody::Decision {
                call: position,
                approved: reply.approved,
                by_person: reply.by_person,
                comment: reply.comment,
            })
            .await
    }

    fn tell(&self, body: &StepBody) {
        if let StepBody::Feedback { turn, text, .. } = body {
            let first = text.lines().next().unwrap_or_default();
            self.say(json!({"type": "repair", "turn": turn, "message": format!("turn {turn}: {first}")}));
        }
    }

    fn say(&self, value: Value) {
        // Fails if the caller no longer listens.
        let _unheard = self.call.progress.send(value);
    }

    fn finish(self, end: ConversationEnd) -> Result<Output, AgentError> {
        let usage = self.usage();
        let value = match end {
            ConversationEnd::Output(value) => without_secrets(&value, self.secrets),
            ConversationEnd::Artifact(name) => self.artifact(&name)?,
            ConversationEnd::Fault(fault) => {
                let mut fault = Fault { message: self.secrets.hide(&fault.message), ..fault };
                fault.details.iter_mut().for_each(|line| *line = self.secrets.hide(line));
                return Err(AgentError::Conversation(Box::new(fault)));
            }
        };
        Ok(Output { value, artifacts: Vec::new(), usage, events: self.events })
    }

    /// The output that a marker names: JSON where it is JSON, else a text.
    fn artifact(&self, name: &str) -> Result<Value, AgentError> {
        let (plain, version) = sinew_protocol::embed::split_version(name);
        let bytes = self.call.artifacts.get(plain, version)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match (&self.spec.output.schema, serde_json::from_slice::<Value>(&bytes)) {
            (_, Ok(value)) => Ok(value),
            (None, Err(_)) => Ok(json!({ "text": text })),
            (Some(_), Err(_)) => Ok(Value::String(text)),
        }
    }

    fn usage(&self) -> Value {
        let totals = &self.log.state.totals;
        let mut names: Vec<&str> = Vec::new();
        for exchange in &self.log.state.exchanges {
            let name =
                if exchange.answer.model.is_empty() { &exchange.alias } else { &exchange.answer.model };
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let mut usage = json!({
            "input_tokens": totals.usage.input,
            "output_tokens": totals.usage.output,
            "cached_tokens": totals.usage.cached,
            "reasoning_tokens": totals.usage.reasoning,
            "models": names,
            "turns": totals.turns,
            "tool_calls": totals.tool_calls,
            "replayed_turns": self.log.replayed,
            "lost_asks": totals.lost_asks,
        });
        if totals.unknown_calls > 0 {
            usage["unknown_calls"] = totals.unknown_calls.into();
        }
        if totals.waited_ms > 0 {
            usage["waited_ms"] = totals.waited_ms.into();
        }
        if !totals.children.is_empty() {
            usage["children"] = json!(totals.children);
        }
        if self.spec.models.iter().all(|model| model.price.is_some()) {
            usage["cost_usd"] = totals.cost_usd.into();
        }
        usage
    }
}

/// The span of a model call. Prompts and answers never stand in it.
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

/// The word of a kind, as records have it.
fn word_of(kind: &impl serde::Serialize) -> String {
    serde_json::to_value(kind).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Without the values that the environment gave to headers and keys.
fn without_secrets(value: &Value, secrets: &ResolvedSecrets) -> Value {
    match value {
        Value::String(text) => Value::String(secrets.hide(text)),
        Value::Array(items) => items.iter().map(|item| without_secrets(item, secrets)).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(key, value)| (secrets.hide(key), without_secrets(value, secrets)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

fn shown_value(value: &Value) -> Value {
    match cap_result(value, MAX_EVENT_BYTES) {
        CappedResult::Whole(value) => value,
        CappedResult::Cut(text) => text.into(),
    }
}

fn extension(value: &Value) -> &'static str {
    if value.is_string() { "txt" } else { "json" }
}
