//! A synchronous loop over the engine, for tests: stubs answer in virtual time, and a second fold
//! checks the facts.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value};
use sinew_engine::{
    Action, ActivationId, Adapter, AdapterContext, EngineInput, ExecutionMode, ExecutionState, Fact,
    IndexedPlan, InputRefusal, Machine, NativeEvent, PersonAnswer, TaskReply, TaskRequest, Time, fold,
};
use sinew_plan::Plan;
use sinew_protocol::Fault;
use sinew_source::{Diagnostic, Diagnostics, Document, Node, Sources};

use crate::{Dialect, LowerOptions, Lowered};

/// Timers beyond this delay fire only at the request of a test, in milliseconds.
const PATIENCE: Time = 10_000;

/// Reply of a stub to a request.
pub(crate) struct Stubbed {
    /// Virtual milliseconds until the answer.
    pub(crate) after: Time,
    /// Progress reported at once.
    pub(crate) progress: Vec<Value>,
    /// The answer.
    pub(crate) result: Result<TaskReply, Fault>,
}

/// A pending answer: activation, attempt, result.
type Due = (ActivationId, u32, Result<TaskReply, Fault>);

/// One execution.
pub(crate) struct Bench {
    machine: Machine<()>,
    /// The same facts folded one by one, as in projections.
    shown: ExecutionState,
    now: Time,
    seq: u64,
    due: BTreeMap<(Time, u64), Due>,
    /// The dialect's events so far.
    pub(crate) events: Vec<NativeEvent>,
    /// All requests, with the requesting node.
    pub(crate) asked: Vec<(String, Arc<TaskRequest>)>,
    /// Times at which people were reminded of a question.
    pub(crate) reminded: Vec<Time>,
}

type Stub<'s> = dyn FnMut(&str, &TaskRequest) -> Stubbed + 's;

impl Bench {
    pub(crate) fn new(plan: Plan, adapter: &'static dyn Adapter) -> Self {
        let graph = IndexedPlan::new(Arc::new(plan)).expect("the plan holds together");
        Self {
            machine: Machine::new(Arc::new(graph), adapter),
            shown: ExecutionState::new(),
            now: 0,
            seq: 0,
            due: BTreeMap::new(),
            events: Vec::new(),
            asked: Vec::new(),
            reminded: Vec::new(),
        }
    }

    pub(crate) fn graph(&self) -> &IndexedPlan {
        self.machine.graph()
    }

    pub(crate) fn state(&self) -> &ExecutionState {
        self.machine.state()
    }

    /// Starts, and continues until no events are pending.
    pub(crate) fn start(&mut self, input: Value, stub: &mut Stub<'_>) {
        let start = EngineInput::Start {
            input,
            mode: ExecutionMode::default(),
            depth: 0,
            chain: Vec::new(),
            paused: None,
        };
        self.input(start, stub).expect("a fresh execution starts");
        self.go_on(stub);
    }

    /// Answers the pending request to a person, if any.
    pub(crate) fn answer(&mut self, data: Value, stub: &mut Stub<'_>) {
        self.answer_as(PersonAnswer { data, ..PersonAnswer::default() }, stub);
    }

    /// Answers the same with all data of the answer.
    pub(crate) fn answer_as(&mut self, answer: PersonAnswer, stub: &mut Stub<'_>) {
        let Some(act) = self.state().waiting().next() else { return };
        self.input(EngineInput::Answer { act, answer }, stub).expect("it waits");
        self.go_on(stub);
    }

    /// Discards everything but the serialized state, as a restart does.
    pub(crate) fn restart(&mut self) {
        let text = serde_json::to_string(self.state()).expect("state serialises");
        let state = serde_json::from_str(&text).expect("state deserialises");
        self.machine =
            Machine::from_state(Arc::clone(self.machine.graph()), self.machine.adapter(), state, ());
        assert_eq!(*self.state(), self.shown, "state survives its own JSON");
    }

    /// Returns the dialect's result object.
    pub(crate) fn native(&self) -> Value {
        self.machine.adapter().native_result(&AdapterContext::new(self.graph(), self.state(), self.now))
    }

    /// Returns the dialect's events, as lines.
    pub(crate) fn lines(&self) -> Vec<&str> {
        self.events.iter().map(|event| event.line.as_str()).collect()
    }

    /// Continues until no events are pending; deadlines fire while agents work or back off.
    pub(crate) fn go_on(&mut self, stub: &mut Stub<'_>) {
        loop {
            let answer = self.due.keys().next().map(|key| key.0);
            let timer = self
                .machine
                .next_deadline()
                .map(|(at, _)| at)
                .filter(|at| *at <= self.now.max(answer.unwrap_or(0)) + PATIENCE);
            if let Some(at) = timer.filter(|at| answer.is_none_or(|answer| *at < answer)) {
                self.tick(at, stub);
            } else if let Some(((at, _), (act, attempt, result))) = self.due.pop_first() {
                self.now = self.now.max(at);
                self.input(EngineInput::Done { act, attempt, result }, stub)
                    .expect("replies are never refused");
            } else {
                break;
            }
        }
        assert_eq!(*self.state(), self.shown, "facts say everything");
    }

    /// Advances time to the next timer, however distant, and continues.
    pub(crate) fn next_timer(&mut self, stub: &mut Stub<'_>) {
        let (at, _) = self.machine.next_deadline().expect("something is due");
        self.tick(at, stub);
        self.go_on(stub);
    }

    fn tick(&mut self, at: Time, stub: &mut Stub<'_>) {
        self.now = self.now.max(at);
        self.input(EngineInput::Tick, stub).expect("time is never refused");
    }

    pub(crate) fn input(&mut self, input: EngineInput, stub: &mut Stub<'_>) -> Result<(), InputRefusal> {
        let decided = self.machine.handle(self.now, input)?;
        let mut said = Vec::new();
        for fact in decided.facts() {
            let graph = self.machine.graph();
            fold(graph, &mut self.shown, self.now, fact).expect("a fact of our own making");
            if matches!(fact, Fact::Reminded { .. }) {
                self.reminded.push(self.now);
            }
            let ctx = AdapterContext::new(graph, &self.shown, self.now);
            self.events.extend(self.machine.adapter().project(&ctx, fact));
        }
        for action in decided.actions {
            let Action::Send { act, attempt, ask, .. } = action else { continue };
            let node = self.machine.node_id(act).to_owned();
            if ask.is_evaluation() {
                self.seq += 1;
                self.due.insert((self.now, self.seq), (act, attempt, Ok(evaluated(&ask))));
                continue;
            }
            let stubbed = stub(&node, &ask);
            self.asked.push((node, ask));
            said.extend(stubbed.progress.into_iter().map(|value| (act, attempt, value)));
            self.seq += 1;
            self.due.insert((self.now + stubbed.after, self.seq), (act, attempt, stubbed.result));
        }
        for (act, attempt, value) in said {
            self.input(EngineInput::Progress { act, attempt, value }, stub)?;
        }
        Ok(())
    }
}

/// Returns a worker's answer to an evaluation.
#[expect(clippy::disallowed_methods, reason = "the shell of these tests")]
fn evaluated(ask: &TaskRequest) -> TaskReply {
    let outcomes = sinew_script::CallBatch::read(&ask.input).expect("a batch of calls").perform();
    TaskReply::new(serde_json::to_value(outcomes).expect("outcomes are data"))
}

/// Returns the cases of a dialect and a kind, from all files in `tests/cases` or in the folder
/// named by `SINEW_CASES`.
fn cases(dialect: &str, kind: &str) -> Vec<Value> {
    let given = std::env::var_os(sinew_protocol::env::CASES).map(PathBuf::from);
    let own = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases"));
    let mut files: Vec<PathBuf> = std::fs::read_dir(given.clone().unwrap_or_else(own))
        .expect("the folder of the cases is there")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let content: Value =
            serde_json::from_slice(&std::fs::read(&file).expect("it can be read")).expect("JSON");
        let all = content["cases"].as_array().expect("a list").iter();
        cases.extend(all.filter(|case| case["dialect"] == dialect && case["kind"] == kind).cloned());
    }
    assert!(given.is_some() || !cases.is_empty(), "no cases of {dialect} {kind}");
    cases
}

/// Runs every case of a dialect and a kind; prints the ids of failed cases, and their number.
/// Prints and counts excluded expectations.
pub(crate) fn judge(dialect: &str, kind: &str, run: impl Fn(&Value, &mut Wrong)) {
    let (mut passed, mut failed, mut left_out) = (0, 0, 0);
    for case in cases(dialect, kind) {
        let mut wrong = Wrong::default();
        if catch_unwind(AssertUnwindSafe(|| run(&case, &mut wrong))).is_err() {
            wrong.0.push("it panicked".to_owned());
        }
        let id = case["id"].as_str().unwrap_or("a case without an id");
        for what in &wrong.1 {
            left_out += 1;
            println!("LEFT OUT {id}: {what}");
        }
        if wrong.0.is_empty() {
            passed += 1;
            continue;
        }
        failed += 1;
        println!("FAILED {id}\n{}", wrong.0.join("\n"));
    }
    println!("{dialect} {kind}: {passed} passed, {failed} failed, {left_out} left out");
    assert_eq!(failed, 0);
}

/// Errors of a case, and its excluded expectations.
#[derive(Default)]
pub(crate) struct Wrong(Vec<String>, Vec<&'static str>);

impl Wrong {
    /// Records that an expectation of the case is not compared, and why.
    pub(crate) fn leave_out(&mut self, what: &'static str) {
        self.1.push(what);
    }

    /// Compares the result with the expected value, if the case has one.
    pub(crate) fn check(&mut self, what: &str, seen: &Value, want: &Value) {
        if !want.is_null() {
            self.check_null(what, seen, want);
        }
    }

    /// Compares the result with the expected value, which may be null.
    pub(crate) fn check_null(&mut self, what: &str, seen: &Value, want: &Value) {
        if seen != want {
            self.0.push(format!("  {what}\n    seen {seen}\n    want {want}"));
        }
    }
}

/// Lowers a workflow in JSON.
pub(crate) fn lower(dialect: &dyn Dialect, workflow: &Value) -> Result<Lowered, Diagnostics> {
    lower_with(dialect, workflow, &|path| Err(format!("{path} cannot be read here")))
}

/// Lowers a workflow with files.
pub(crate) fn lower_with(
    dialect: &dyn Dialect,
    workflow: &Value,
    read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
) -> Result<Lowered, Diagnostics> {
    lower_in(dialect, workflow, read, &crate::no_list)
}

/// Lowers a workflow with files and folders.
pub(crate) fn lower_in(
    dialect: &dyn Dialect,
    workflow: &Value,
    read: &dyn Fn(&str) -> Result<Vec<u8>, String>,
    list: &dyn Fn(&str) -> Result<Vec<String>, String>,
) -> Result<Lowered, Diagnostics> {
    let document = Document { root: Node::from_json(workflow), sources: Sources::default() };
    let options = LowerOptions { default_name: "test", read, list, agents: &BTreeMap::new() };
    dialect.lower(document, &options).map(|mut lowered| lowered.remove(0))
}

/// Returns sub codes of warnings, each with the name that its hint suggests.
pub(crate) fn slips<'d>(found: impl IntoIterator<Item = &'d Diagnostic>) -> Vec<String> {
    let slip = |item: &Diagnostic| {
        let hint = item.hint.as_deref().unwrap_or_default();
        let near = hint.strip_prefix("did you mean ").unwrap_or_default();
        format!("{} {near}", item.sub_code.as_deref().unwrap_or_default()).trim().to_owned()
    };
    found.into_iter().map(slip).collect()
}

/// Returns an object without these fields.
pub(crate) fn without(value: &Value, drop: impl Fn(&str) -> bool) -> Value {
    match value {
        Value::Object(members) => {
            let kept =
                members.iter().filter(|(key, _)| !drop(key)).map(|(key, value)| (key.clone(), value.clone()));
            Value::Object(kept.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

/// Parses a file's text into a document with spans.
pub(crate) fn document(text: &str) -> Document {
    let options = sinew_source::LoadOptions {
        name: "workflow.json",
        variables: sinew_source::Variables::Kept,
        read: &|_| Err("there is no other file".to_owned()),
        limits: sinew_source::Limits::default(),
    };
    sinew_source::load(text.as_bytes(), &options).expect("the text is well formed")
}
