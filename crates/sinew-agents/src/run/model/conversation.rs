//! The shell of a conversation: performs its next steps and appends their results to the log.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt as _;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use sinew_model::{
    CappedResult, ConversationEnd, ConversationSpec, EFFECT_HINT, EffectClass, Exchange, NextStep,
    PersonQuestion, QuestionReason, StartStep, StepBody, ToolCall, cap_result,
};
use sinew_protocol::artifact::sha256;
use sinew_protocol::{Fault, FaultKind};
use tracing::Instrument as _;

use super::builtin_tools::BuiltinTool;
use super::conversation_log::{ConversationLog, SharedLog};
use super::endpoint::{FilledHeaders, ModelEndpoint};
use super::figures::note_replayed_turns;
use super::model_ask::word_of;
use super::nested::{NestedScope, NestedShare};
use super::past_events::{call_event, decision_event};
use super::session::{EarlierTurns, leave_turn, session_turn};
use super::tool_calls::ToolOutcome;
use super::tools::{ToolRule, ToolSettings, ToolSource, ToolSources, ToolTable, need_peers};
use super::turn_secrets::{hide_in_record, without_secrets};
use super::{AgentProfile, ModelAgent};
use crate::call::Call;
use crate::clean::ResolvedSecrets;
use crate::error::AgentError;
use crate::people::PersonReply;
use crate::run::{Limits, Output, RunnerSurroundings};
use crate::steps::{MemorySteps, Steps};
use crate::wait_clock::WaitClock;

/// A call with its result and the events of nested agents, or the error that ends the conversation.
type MadeCall<'b> = (&'b ToolCall, Result<(ToolOutcome, Vec<Value>), AgentError>);

/// Grace period for decisions of people, which the mesh may deliver after the time limit.
const LATE_DECISION: Duration = Duration::from_secs(15);
/// Maximum bytes of a value in an event.
const MAX_EVENT_BYTES: usize = 2 << 10;

/// Returns the time in milliseconds since the Unix epoch.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl ModelAgent {
    /// Runs a conversation to its end.
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
            () = clock.reached(profile.timeout) => Err(AgentError::TimedOut(profile.timeout)),
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
        let models = self.models(request);
        let earlier = EarlierTurns { agent: self, call, models: &models };
        let log = Box::pin(ConversationLog::take_up(steps, &self.begin(call), &earlier)).await?;
        note_replayed_turns(log.replayed);
        call.artifacts.restore(&log.artifacts).await?;
        let place = ConversationScope { profile, call, around, clock, nested: None };
        Ok(self.hold_conversation(place, log).await?.result?)
    }

    /// Resumes a conversation from its log. Fails if the log is not writable or tools are unavailable.
    pub(super) async fn hold_conversation(
        &self,
        place: ConversationScope<'_>,
        mut log: ConversationLog,
    ) -> Result<HeldConversation, AgentError> {
        let call = place.call;
        let request = call.context.get("request").unwrap_or(&Value::Null);
        let was_over = log.state.end.is_some();
        let begun_at = log.state.begun_at.unwrap_or_else(now_ms);
        let mut models = self.models(request);
        let mut secrets = ResolvedSecrets::default();
        let mut headers: Vec<FilledHeaders> = models
            .iter()
            .map(|model| model.fill_headers(place.around.environment.as_ref(), &mut secrets))
            .collect();
        pass_over_unset(&mut models, &mut headers);
        self.read_server_secrets(place.around, &mut secrets);
        // A conversation that has ended calls no tools.
        let tools =
            if was_over { ToolTable::default() } else { Box::pin(self.tool_table(place, request)).await? };
        if let Some(recording) = &call.recording {
            recording.begin(begun_at);
        }
        let activation = activation_of(call);
        let mut work = Conversation {
            agent: self,
            place,
            activation: &activation,
            models: &models,
            headers: &headers,
            secrets: &secrets,
            tools: &tools,
            events: std::mem::take(&mut log.past_events),
            log,
        };
        let (end, has_schema) = loop {
            Box::pin(work.log.recall()).await?;
            let spec = work.spec(begun_at)?;
            // Release most of the conversation's memory while it waits.
            let stop = Box::pin(work.hold(&spec)).await?;
            let has_schema = spec.output.schema.is_some();
            drop(spec);
            match stop {
                HoldEnd::Over(end) => break (end, has_schema),
                HoldEnd::Calls(calls, left) => Box::pin(work.run_calls(&calls, left, None)).await?,
                HoldEnd::Person(question) => Box::pin(work.ask_person(&question)).await?,
            }
        };
        if let Some(recording) = &call.recording {
            recording.add_end(&end, &|value| secrets.hide_in_value(value));
        }
        let result = work.finish(end, has_schema)?;
        if let (Ok(output), None) = (&result, place.nested)
            && let Some(mut turn) = session_turn(&work.log.state, call, &activation, &output.value, now_ms())
        {
            turn.tainted |= work.tools.has_words_of_others;
            Box::pin(leave_turn(call, turn, was_over)).await?;
        }
        Ok(HeldConversation { result, usage: work.usage(), waited_ms: work.log.state.totals.waited_ms })
    }

    async fn tool_table(
        &self,
        place: ConversationScope<'_>,
        request: &Value,
    ) -> Result<ToolTable, AgentError> {
        let call = place.call;
        let rules = self.rules();
        let servers = self.offered_servers(call, place.around, place.nested.is_some()).await?;
        let peers = if need_peers(&rules) { call.peers.list().await? } else { Vec::new() };
        let places = ToolSources {
            rules: &rules,
            peers: &peers,
            servers: &servers,
            own: place.profile.name,
            request,
            host: call.tools.as_ref(),
            depth: place.nested.map_or(0, |nested| nested.depth),
            has_lock: self.lock.is_some(),
        };
        Ok(ToolTable::of(&places)?)
    }

    /// Returns the start record of this attempt.
    pub(super) fn begin(&self, call: &Call) -> StartStep {
        let text = |key: &str| call.context.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let request = json!([call.input, call.instruction, call.output_schema, call.context.get("request")]);
        StartStep {
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

    /// Returns the tool entries of the file, and the skill reader if the agent has large skills.
    pub(super) fn rules(&self) -> Cow<'_, [ToolRule]> {
        let mut rules = Cow::Borrowed(self.tools.as_slice());
        if self.skills.iter().any(super::setup::is_large) {
            rules.to_mut().push(ToolRule {
                source: ToolSource::Builtin(BuiltinTool::ReadSkill),
                settings: ToolSettings::default(),
            });
        }
        rules
    }
}

/// Skips models whose keys or headers reference unset variables, unless no model would remain.
fn pass_over_unset(models: &mut Vec<&ModelEndpoint>, headers: &mut Vec<FilledHeaders>) {
    if !headers.iter().any(Result::is_ok) {
        return;
    }
    let mut is_set = headers.iter().map(Result::is_ok);
    models.retain(|model| {
        let is_set = is_set.next().unwrap_or(true);
        if !is_set {
            tracing::debug!(
                model = model.spec.alias,
                "skipping a model: one of its environment variables is not set"
            );
        }
        is_set
    });
    headers.retain(Result::is_ok);
}

/// Returns the key of the conversation: that of the call, else the task's activation, else a new one.
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

/// The environment of a conversation.
#[derive(Clone, Copy)]
pub(super) struct ConversationScope<'a> {
    pub(super) profile: AgentProfile<'a>,
    pub(super) call: &'a Call,
    pub(super) around: &'a RunnerSurroundings,
    pub(super) clock: &'a WaitClock,
    /// Position within another conversation; `None` for the conversation of the task.
    pub(super) nested: Option<NestedScope<'a>>,
}

/// A conversation that has ended.
pub(super) struct HeldConversation {
    pub(super) result: Result<Output, Fault>,
    pub(super) usage: Value,
    pub(super) waited_ms: u64,
}

/// Reason why a conversation stopped or waits.
enum HoldEnd {
    /// The conversation has ended.
    Over(ConversationEnd),
    /// It waits for agents that it calls, for at most its remaining time budget.
    Calls(Vec<ToolCall>, Duration),
    /// It waits for a person.
    Person(PersonQuestion),
}

/// A running conversation.
pub(super) struct Conversation<'a> {
    pub(super) agent: &'a ModelAgent,
    pub(super) place: ConversationScope<'a>,
    pub(super) activation: &'a str,
    pub(super) models: &'a [&'a ModelEndpoint],
    pub(super) headers: &'a [FilledHeaders],
    pub(super) secrets: &'a ResolvedSecrets,
    pub(super) tools: &'a ToolTable,
    pub(super) log: ConversationLog,
    pub(super) events: Vec<Value>,
}

impl<'a> Conversation<'a> {
    /// Returns the spec of the conversation, with the turns of its session.
    fn spec(&self, begun_at: u64) -> Result<ConversationSpec, AgentError> {
        let ConversationScope { profile, call, nested, .. } = self.place;
        let tools = Arc::clone(&self.tools.specs);
        let mut spec = self.agent.spec(profile, call, self.models, tools, self.activation, begun_at)?;
        spec.discover_rules = Arc::clone(&self.tools.discover_rules);
        if let Some(nested) = nested {
            spec.system = vec![nested.agent.instruction.clone()];
            spec.examples.clear();
            spec.output.schema = None;
            spec.budget = nested.share.budget;
        }
        let session = &self.log.state.session;
        spec.history = session.iter().map(|turn| (turn.input.clone(), turn.output.clone())).collect();
        spec.tainted = self.tools.has_words_of_others
            || session.iter().any(|turn| turn.tainted)
            || nested.is_some_and(|nested| nested.share.tainted);
        Ok(spec)
    }

    /// Runs until the conversation waits for other agents or people, or ends.
    async fn hold(&mut self, spec: &ConversationSpec) -> Result<HoldEnd, AgentError> {
        loop {
            let agent = self.agent;
            let step = spec.next(&self.log.state, now_ms(), &|condition, arguments| {
                agent.needs_approval(condition, arguments)
            });
            match step {
                NextStep::Finished(end) => return Ok(HoldEnd::Over(end)),
                NextStep::Record(mut body) => {
                    hide_in_record(&mut body, self.secrets);
                    self.tell(&body);
                    if let StepBody::Compact(compact) = &mut body {
                        compact.moved = self.move_results(compact.before).await?;
                    }
                    self.record(body).await?;
                }
                NextStep::AskModel(ask) => self.ask(spec, &ask).await?,
                NextStep::RunCalls(calls) => {
                    let left = self.wall_left(spec);
                    if calls.iter().all(|call| self.tools.waits_for_others(call)) {
                        return Ok(HoldEnd::Calls(calls, left));
                    }
                    let share = NestedShare::of(spec, &self.log.state, now_ms());
                    self.run_calls(&calls, left, Some(share)).await?;
                }
                NextStep::AskPerson(question) => return Ok(HoldEnd::Person(question)),
                NextStep::Wait => {
                    return Err(AgentError::Host(
                        "the log of the conversation cannot be continued".to_owned(),
                    ));
                }
            }
        }
    }

    /// Returns the remaining time budget plus 1 ms, so that the budget is exhausted when it elapses.
    pub(super) fn wall_left(&self, spec: &ConversationSpec) -> Duration {
        Duration::from_millis(spec.wall_left_ms(&self.log.state, now_ms()).saturating_add(1))
    }

    /// Makes calls within the remaining time. Without `share`, none of them is of a nested agent.
    async fn run_calls(
        &mut self,
        calls: &[ToolCall],
        left: Duration,
        share: Option<NestedShare>,
    ) -> Result<(), AgentError> {
        for call in calls {
            if call.effect == EffectClass::Once {
                self.record(StepBody::Call(call.position.clone())).await?;
            }
            let event = call_event(&call.tool, &call.arguments);
            let message = format!("calls {}", call.tool);
            self.say_event(&event, json!({"turn": call.position.turn, "message": message}));
            self.events.push(event);
        }
        let log = self.log.shared();
        self.note_usage();
        let mut running: FuturesUnordered<_> =
            calls.iter().map(|call| self.place_call(call, left, share, &log)).collect();
        // In the order of the calls, so that each result can be assigned to its call.
        let mut events: BTreeMap<u32, Vec<Value>> = BTreeMap::new();
        loop {
            let next = running.next();
            let done = if share.is_none() { self.log.forgetting(next).await } else { next.await };
            let Some((call, outcome)) = done else { break };
            let events_of_call = self.take_result(call, outcome?).await?;
            events.insert(call.position.index, events_of_call);
        }
        drop(running);
        self.events.extend(events.into_values().flatten());
        Ok(())
    }

    /// Sends an event of the reply to observers, with further members.
    pub(super) fn say_event(&self, event: &Value, further: Value) {
        let mut said = event.clone();
        if let (Value::Object(said), Value::Object(further)) = (&mut said, further) {
            said.extend(further);
        }
        self.say(said);
    }

    /// Returns a call, started when polled, with the events of nested agents.
    fn place_call<'b>(
        &self,
        call: &'b ToolCall,
        left: Duration,
        share: Option<NestedShare>,
        log: &'b Arc<SharedLog>,
    ) -> BoxFuture<'b, MadeCall<'b>>
    where
        'a: 'b,
    {
        let (agent, place, tools) = (self.agent, self.place, self.tools);
        let span = tracing::info_span!("tool", tool = call.tool, session = self.activation);
        let nested = tools.nested(&call.tool).zip(share).map(|(nested, share)| NestedScope {
            agent: nested,
            key: &call.position.key,
            share,
            depth: place.nested.map_or(0, |above| above.depth) + 1,
            observers: place.nested.map_or(&place.call.progress, |above| above.observers),
            log,
        });
        async move {
            let outcome = match nested {
                Some(nested) => agent.run_nested(place, nested, call).await,
                None => Ok((tools.run(call, left, place, &agent.skills).await, Vec::new())),
            };
            (call, outcome)
        }
        .instrument(span)
        .boxed()
    }

    async fn ask_person(&mut self, question: &PersonQuestion) -> Result<(), AgentError> {
        let position = question.call.position.clone();
        if question.asked_at.is_none() {
            self.record(StepBody::Question(position.clone())).await?;
        }
        let reason = match question.reason {
            QuestionReason::Rule => "The agent file asks for approval.",
            QuestionReason::Taint => "The conversation contains untrusted text.",
            QuestionReason::Unknown => "An earlier attempt was interrupted and may have taken effect.",
            QuestionReason::Words => "",
        };
        let mut prompt = self.tools.question(question, reason);
        self.say(json!({"type": "waiting", "turn": position.turn, "tool": question.call.tool, "message": prompt.text}));
        let (limit, asked_at) = (prompt.timeout, question.asked_at.unwrap_or_else(now_ms));
        // An earlier process may have sent the question.
        let waited = Duration::from_millis(now_ms().saturating_sub(asked_at));
        prompt.timeout = limit.saturating_sub(waited).max(Duration::from_millis(1));
        let place = self.place;
        self.note_usage();
        let asked = tokio::time::timeout(prompt.timeout + LATE_DECISION, place.call.people.ask(prompt));
        let refusal = |comment: String| PersonReply { comment: Some(comment), ..PersonReply::default() };
        let reply = match self.log.forgetting(place.clock.paused(asked)).await {
            Ok(Ok(reply)) => reply,
            // The question stays open; the next process or attempt receives its answer.
            Ok(Err(fault)) if fault.retryable || fault.kind == FaultKind::Cancelled => {
                return Err(fault.into());
            }
            // Nobody can be asked.
            Ok(Err(fault)) if question.reason == QuestionReason::Taint => {
                refusal(format!("{}; {EFFECT_HINT}", fault.message))
            }
            Ok(Err(fault)) => refusal(fault.message),
            Err(_) => refusal(format!("no decision within {} s", limit.as_secs_f64())),
        };
        let tool = &question.call.tool;
        self.events.push(decision_event(tool, reply.approved, &reply.by_person));
        if let Some(recording) = &place.call.recording {
            let is_question = question.reason == QuestionReason::Words;
            recording.add_decision(tool, is_question, reply.approved, reply.comment.as_deref());
        }
        self.record(StepBody::Decision {
            call: position,
            approved: reply.approved,
            by_person: reply.by_person,
            comment: reply.comment,
        })
        .await
    }

    /// Appends a record to the log, without secrets.
    pub(super) async fn record(&mut self, mut body: StepBody) -> Result<(), AgentError> {
        hide_in_record(&mut body, self.secrets);
        self.log.append(body).await
    }

    fn tell(&self, body: &StepBody) {
        if let StepBody::Feedback { turn, text, .. } = body {
            let first = text.lines().next().unwrap_or_default();
            self.say(json!({"type": "repair", "turn": turn, "message": format!("turn {turn}: {first}")}));
        }
    }

    pub(super) fn say(&self, value: Value) {
        // Fails if the receiver was dropped.
        let _unheard = self.place.call.progress.send(value);
    }

    fn finish(
        &mut self,
        end: ConversationEnd,
        has_schema: bool,
    ) -> Result<Result<Output, Fault>, AgentError> {
        let value = match end {
            ConversationEnd::Output(value) => value,
            ConversationEnd::Artifact(name) => self.artifact(&name, has_schema)?,
            ConversationEnd::Fault(fault) => return Ok(Err(without_secrets(fault, self.secrets))),
        };
        let value = self.secrets.hide_in_value(&value);
        let (usage, events) = (self.usage(), std::mem::take(&mut self.events));
        Ok(Ok(Output { value, artifacts: Vec::new(), usage, events }))
    }

    /// Returns the artifact that a marker references as the output: parsed if it is JSON, else as text.
    fn artifact(&self, name: &str, has_schema: bool) -> Result<Value, AgentError> {
        let (plain, version) = sinew_protocol::embed::split_version(name);
        let bytes = self.place.call.artifacts.get(plain, version)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match serde_json::from_slice::<Value>(&bytes) {
            Ok(value) => Ok(value),
            Err(_) if has_schema => Ok(Value::String(text)),
            Err(_) => Ok(json!({ "text": text })),
        }
    }

    fn usage(&self) -> Value {
        let totals = &self.log.state.totals;
        let exchanges = &self.log.state.exchanges;
        let name = |exchange: &'_ Exchange| {
            let Exchange { alias, answer, .. } = exchange;
            if answer.model.is_empty() { alias.clone() } else { answer.model.clone() }
        };
        let mut names: Vec<String> = Vec::new();
        for name in exchanges.iter().map(name) {
            if !names.contains(&name) {
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
            // The log contains the turns of all attempts.
            "cumulative": true,
        });
        if let Some(last) = exchanges.last() {
            let called = self.models.iter().find(|model| model.spec.alias == last.alias);
            let called = called.map(|model| model.spec.model.as_str()).unwrap_or_default();
            let names = [last.answer.model.as_str(), called, last.alias.as_str()];
            usage["model"] = names.into_iter().find(|name| !name.is_empty()).into();
            usage["finish_reason"] = word_of(&last.answer.finish).into();
        }
        if totals.usage.estimated {
            usage["estimated_tokens"] = true.into();
        }
        if totals.unknown_calls > 0 {
            usage["unknown_calls"] = totals.unknown_calls.into();
        }
        if totals.waited_ms > 0 {
            usage["waited_ms"] = totals.waited_ms.into();
        }
        if !totals.children.is_empty() {
            usage["children"] = json!(totals.children);
        }
        if self.models.iter().all(|model| model.spec.price.is_some()) {
            usage["cost_usd"] = totals.cost_usd.into();
        }
        usage
    }

    /// Updates the usage for the caller, because the conversation can be dropped at any time.
    fn note_usage(&self) {
        let noted = &self.place.call.usage;
        *noted.lock().unwrap_or_else(PoisonError::into_inner) = self.usage();
    }
}

impl Drop for Conversation<'_> {
    fn drop(&mut self) {
        // While the state is dropped, the usage from before the wait is current.
        if self.log.has_state() {
            self.note_usage();
        }
    }
}

/// Truncates a value for an event.
pub(super) fn shown_value(value: &Value) -> Value {
    match cap_result(value, MAX_EVENT_BYTES) {
        CappedResult::Whole(value) => value,
        CappedResult::Cut(text) => text.into(),
    }
}
