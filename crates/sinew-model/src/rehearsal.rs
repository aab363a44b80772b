//! Runs conversations with scripted models and tools in virtual time, for tests.
//!
//! A rehearsal has its log in memory and can start from any prefix of a log, as after a crash.

use serde_json::Value;

use crate::next::{ModelAsk, NextStep, PersonQuestion, QuestionReason, ToolCall};
use crate::record::{
    AskStep, CallResult, CallStatus, ConversationEnd, DiscoveredTool, StartStep, StepBody, StepRecord,
};
use crate::script::ModelScript;
use crate::spec::{ConversationSpec, EffectClass};
use crate::state::ConversationState;
use crate::text::{CappedResult, cap_result, value_without_hidden};

/// Maximum records of a rehearsal, above all budgets. A conversation that reaches it does not end.
const MAX_RECORDS: usize = 20_000;
/// Default duration of a step, in virtual milliseconds.
const TICK_MS: u64 = 1;

/// Answer of a tool stub.
#[derive(Clone, Debug, PartialEq)]
pub struct StubAnswer {
    /// Output, or reason of the failure.
    pub result: Result<Value, String>,
    /// Delay in virtual milliseconds.
    pub after_ms: u64,
    /// Name of the artifact with the whole output, if the result is truncated.
    pub artifact: Option<String>,
    /// Tools that the call found.
    pub discovered: Vec<DiscoveredTool>,
}

impl From<Result<Value, String>> for StubAnswer {
    fn from(result: Result<Value, String>) -> Self {
        Self { result, after_ms: 0, artifact: None, discovered: Vec::new() }
    }
}

/// Stubs of tools and people.
pub trait RehearsalStubs {
    /// Answers a call. `earlier` is the number of earlier calls of the tool in the log.
    fn call(&mut self, call: &ToolCall, earlier: usize) -> StubAnswer;
    /// Returns whether the person approves a call.
    fn decide(&mut self, call: &ToolCall) -> bool;
    /// Returns whether the condition of an approval applies.
    fn needs_approval(&self, condition: &str, arguments: &Value) -> bool;
}

/// Result of a rehearsal.
#[derive(Clone, Debug, PartialEq)]
pub struct Rehearsal {
    /// The whole log.
    pub log: Vec<StepRecord>,
    /// The fold of the log.
    pub state: ConversationState,
    /// Virtual time at the end, in milliseconds since the Unix epoch.
    pub now: u64,
}

impl Rehearsal {
    /// Returns the end; `None` if the conversation does not end.
    pub fn end(&self) -> Option<&ConversationEnd> {
        self.state.end.as_ref()
    }

    /// Returns the names of the called tools, in order.
    pub fn calls(&self) -> Vec<&str> {
        let all = self.state.exchanges.iter().flat_map(|one| one.answer.calls.iter().zip(&one.calls));
        let made = all.filter(|(_, call)| {
            let status = call.result.as_ref().map(|result| result.status);
            matches!(status, Some(CallStatus::Succeeded | CallStatus::Failed | CallStatus::Unknown))
        });
        made.map(|(requested, _)| requested.tool.as_str()).collect()
    }
}

/// Runs a conversation from a prefix of its log, which may be empty, to the end, as process `by`.
pub fn rehearse(
    spec: &ConversationSpec,
    script: &ModelScript,
    stubs: &mut dyn RehearsalStubs,
    prefix: &[StepRecord],
    by: &str,
) -> Rehearsal {
    let mut shell = Shell {
        spec,
        script,
        by,
        state: ConversationState::fold(prefix),
        now: prefix.last().map_or(0, |last| last.at),
        log: prefix.to_vec(),
    };
    let begin = StartStep {
        attempt: 1,
        task: "rehearsal".to_owned(),
        request: "request".to_owned(),
        agent: "agent".to_owned(),
        reset: false,
        delivery: 0,
        session: Vec::new(),
    };
    shell.append(StepBody::Begin(begin));
    while shell.log.len() < MAX_RECORDS {
        let step =
            spec.next(&shell.state, shell.now, &|condition, args| stubs.needs_approval(condition, args));
        match step {
            NextStep::Finished(_) | NextStep::Wait => break,
            NextStep::Record(body) => shell.append(body),
            NextStep::AskModel(ask) => shell.ask(&ask),
            NextStep::RunCalls(calls) => shell.call(&calls, stubs),
            NextStep::AskPerson(question) => {
                if question.asked_at.is_none() {
                    shell.append(StepBody::Question(question.call.position.clone()));
                }
                let (approved, comment) = shell.decision(&question, stubs);
                shell.append(StepBody::Decision {
                    call: question.call.position,
                    approved,
                    by_person: "rehearsal".to_owned(),
                    comment,
                });
            }
        }
    }
    Rehearsal { log: shell.log, state: shell.state, now: shell.now }
}

struct Shell<'a> {
    spec: &'a ConversationSpec,
    script: &'a ModelScript,
    by: &'a str,
    log: Vec<StepRecord>,
    state: ConversationState,
    now: u64,
}

impl Shell<'_> {
    fn append(&mut self, body: StepBody) {
        self.now = self.now.saturating_add(TICK_MS);
        let record = StepRecord { by: self.by.to_owned(), at: self.now, within: None, body };
        self.state.apply(&record);
        self.log.push(record);
    }

    fn ask(&mut self, ask: &ModelAsk) {
        self.now = self.now.saturating_add(ask.wait_ms);
        let alias = self.spec.models[ask.model].alias.clone();
        let asked = self.state.answered_asks() as usize;
        self.append(StepBody::Ask(AskStep {
            turn: ask.turn,
            alias: alias.clone(),
            prompt: ask.measure.digest.clone(),
            bytes: ask.measure.bytes,
        }));
        match self.script.answer(asked, &ask.prompt) {
            Ok(answer) => self.append(self.spec.turn_record(ask, answer)),
            Err(refusal) => self.append(StepBody::Miss { turn: ask.turn, alias, refusal }),
        }
    }

    fn call(&mut self, calls: &[ToolCall], stubs: &mut dyn RehearsalStubs) {
        for (at, call) in calls.iter().enumerate() {
            let earlier = self.earlier(&call.tool)
                + calls[..at]
                    .iter()
                    .filter(|before| before.tool == call.tool && !self.has_result(before))
                    .count();
            if call.effect == EffectClass::Once {
                self.append(StepBody::Call(call.position.clone()));
            }
            let answer = stubs.call(call, earlier);
            self.now = self.now.saturating_add(answer.after_ms);
            let tool = call.settings(self.spec);
            let (status, content) = match answer.result {
                Ok(value) => (CallStatus::Succeeded, value_without_hidden(&value)),
                Err(reason) => (CallStatus::Failed, crate::text::without_hidden(&reason).into()),
            };
            let max = tool.map_or(usize::MAX, |tool| tool.max_result);
            let (content, artifact) = match cap_result(&content, max) {
                CappedResult::Whole(value) => (value, answer.artifact),
                CappedResult::Cut(text) => (text.into(), Some(format!("{}.json", call.position.key))),
            };
            let open = tool.is_none_or(|tool| tool.open);
            let discovered = answer.discovered;
            let result = CallResult { artifact, open, discovered, ..CallResult::new(status, content) };
            self.append(StepBody::Done { call: call.position.clone(), result });
        }
    }

    /// Returns the person's decision. The stub of the tool answers a question.
    fn decision(
        &mut self,
        question: &PersonQuestion,
        stubs: &mut dyn RehearsalStubs,
    ) -> (bool, Option<String>) {
        let call = &question.call;
        if question.reason != QuestionReason::Words {
            return (stubs.decide(call), None);
        }
        let answer = stubs.call(call, self.earlier(&call.tool));
        self.now = self.now.saturating_add(answer.after_ms);
        match answer.result {
            Ok(Value::String(words)) => (true, Some(words)),
            Ok(other) => (true, Some(other.to_string())),
            Err(reason) => (false, Some(reason)),
        }
    }

    fn has_result(&self, call: &ToolCall) -> bool {
        let exchange = self.state.exchanges.iter().find(|one| one.turn == call.position.turn);
        exchange
            .and_then(|one| one.calls.get(call.position.index as usize))
            .is_some_and(|call| call.result.is_some())
    }

    fn earlier(&self, tool: &str) -> usize {
        let all = self.state.exchanges.iter().flat_map(|one| one.answer.calls.iter().zip(&one.calls));
        let made = all.filter(|(requested, call)| {
            let status = call.result.as_ref().map(|result| result.status);
            requested.tool == tool
                && matches!(status, Some(CallStatus::Succeeded | CallStatus::Failed | CallStatus::Unknown))
        });
        made.count()
    }
}

/// Finding of [`crash_everywhere`].
#[derive(Clone, Debug, PartialEq)]
pub struct CrashFinding {
    /// Number of records before the crash.
    pub records: usize,
    /// The difference.
    pub problem: String,
}

/// Runs a conversation again from each prefix of its log, and compares end and effects. `stubs`
/// creates the stubs of a run. Returns the first difference.
pub fn crash_everywhere<S: RehearsalStubs>(
    spec: &ConversationSpec,
    script: &ModelScript,
    stubs: impl Fn() -> S,
    whole: &Rehearsal,
) -> Option<CrashFinding> {
    for records in 1..whole.log.len() {
        let again = rehearse(spec, script, &mut stubs(), &whole.log[..records], "second");
        let found = |problem: String| Some(CrashFinding { records, problem });
        if again.end() != whole.end() {
            return found(format!("the end is {:?} instead of {:?}", again.end(), whole.end()));
        }
        let begun = again.log.iter().filter_map(|record| match &record.body {
            StepBody::Call(position) => Some(&position.key),
            _ => None,
        });
        let mut keys: Vec<&String> = begun.collect();
        keys.sort();
        if let Some([twice, _]) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return found(format!("the call {twice} was started twice"));
        }
        let turns = again.log.iter().filter(|record| matches!(record.body, StepBody::Turn { .. })).count();
        if turns != whole.state.totals.turns as usize {
            return found(format!("there are {turns} turns instead of {}", whole.state.totals.turns));
        }
    }
    None
}
