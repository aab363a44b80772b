//! Runs of Solace Agent Mesh workflows: stubs, envelopes, and what is compared. The words are those of `sam.json`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use sinew_dialects::sam::Sam;
use sinew_dialects::{Dialect, LowerOptions};
use sinew_engine::{ExecutionMode, ExecutionOutcome, Fact, TaskReply, TerminalStatus, Time};
use sinew_execution::Call;
use sinew_execution::reply::{self, Ending, WorkflowInput};
use sinew_execution::request::{self, CardSchemas, Request, Sender};
use sinew_execution::{Execution, Library, Program, events};
use sinew_protocol::a2a::{Part, Task, part_data};
use sinew_protocol::message::{MeshMessage, Outcome as Word, Vocabulary, WorkflowNodeRequestData};
use sinew_protocol::{ArtifactRef, Fault};
use sinew_runtime::sim::{Signal, Sim, Stub, Stubbed};
use sinew_source::{Document, Node, Sources};

use crate::{cases::Verdict, support::stub};

/// A day: longer than any case that ends.
const FOREVER: Time = 24 * 3_600_000;
/// Each run is repeated with a crash after each of so many facts.
const CRASHES: usize = 40;

/// Judges one run.
pub(crate) fn run(case: &Value) -> Verdict {
    let Some(wanted) = wanted(case) else {
        return Verdict::LeftOut("vintages of sam that we read and do not imitate");
    };
    let mut wrong = Vec::new();
    match load(case) {
        Err(found) => match wanted["load_error_contains"].as_str() {
            Some(part) if found.contains(part) => {}
            _ => wrong.push(format!("it does not load: {found}")),
        },
        Ok(_) if wanted.get("load_error_contains").is_some() => wrong.push("it loads".to_owned()),
        Ok(library) => {
            let seen = Seen::of(case, &library, None);
            wrong.extend(seen.compare(&wanted));
            let end = seen.end();
            for n in 1..=seen.facts.min(CRASHES) {
                let again = Seen::of(case, &library, Some(n)).end();
                if again != end {
                    wrong.push(format!("after a crash at fact {n}: {again}, without: {end}"));
                }
            }
        }
    }
    Verdict::Judged(wrong)
}

/// Returns the expectations of a case; `None` where the case has none.
pub(crate) fn wanted(case: &Value) -> Option<Map<String, Value>> {
    let mut wanted = case["expect"].as_object().unwrap().clone();
    let want = case["want"].as_object();
    match case["stance"].as_str().unwrap() {
        "keep" => {}
        // The source refuses it, ours may allow it.
        "extend" if want.is_none() => return None,
        "vintage" if want.is_none() => {
            case["vintages"].as_array().unwrap().contains(&json!("current")).then_some(())?;
        }
        _ => {
            let want = want?;
            // Another end has another output, another error, and other envelopes.
            if want.get("state").is_some_and(|state| Some(state) != wanted.get("state")) {
                wanted.retain(|key, _| !["output", "error_contains", "nacks"].contains(&key.as_str()));
            }
            // An exact expectation replaces the one of a minimum.
            if want.contains_key("finals") {
                wanted.remove("finals_at_least");
            }
            // A valid definition has no error.
            if want.contains_key("valid") {
                wanted.remove("error_contains");
            }
            wanted.extend(want.clone());
        }
    }
    Some(wanted)
}

/// The workflow of a case and those it calls.
pub(crate) fn load(case: &Value) -> Result<Arc<Library>, String> {
    let mut main = json!({ "name": "WF", "workflow": case["workflow"] });
    for (key, value) in case["config"].as_object().into_iter().flatten() {
        main[key] = value.clone();
    }
    let subs = case["subs"].as_object().into_iter().flatten();
    let subs = subs.map(|(name, workflow)| json!({ "name": name, "workflow": workflow }));
    let mut library = Library::default();
    for file in std::iter::once(main).chain(subs) {
        let document = Document { root: Node::from_json(&file), sources: Sources::default() };
        let read = |path: &str| Err(format!("{path} cannot be read here"));
        let agents = BTreeMap::new();
        let options =
            LowerOptions { default_name: "WF", read: &read, list: &sinew_dialects::no_list, agents: &agents };
        for lowered in Sam.lower(document, &options).map_err(|found| found.to_string())? {
            library.insert(Program::new(lowered.plan, Sam.adapter()).map_err(|error| error.to_string())?);
        }
    }
    Ok(Arc::new(library))
}

/// Agents of a case at work.
pub(crate) struct Agents<'c> {
    pub(crate) case: &'c Value,
    pub(crate) calls: Vec<Asked>,
    pub(crate) cancels: Vec<String>,
}

/// A call, as the agent sees it.
pub(crate) struct Asked {
    pub(crate) agent: String,
    pub(crate) request: Request,
    pub(crate) depth: u32,
    pub(crate) began: Time,
    /// `None` if it never answers.
    pub(crate) ended: Option<Time>,
}

impl Asked {
    /// The input as it reaches the agent's code: the artifact's content, nothing for agents that take one text.
    fn input(&self) -> Value {
        self.request.input.as_ref().map(|(_, content)| content.clone()).unwrap_or_default()
    }

    fn texts(&self) -> Vec<&str> {
        self.request.message.message.parts.iter().filter_map(Part::text_content).collect()
    }
}

impl Stub for Agents<'_> {
    fn call(&mut self, now: Time, call: &Call) -> Stubbed {
        let agent = call.ask.target.name().to_owned();
        let stub = &self.case["agents"][&agent];
        let earlier = self.calls.iter().filter(|call| call.agent == agent).count();
        let ghosts = self.case["unregistered"].as_array();
        let result = if ghosts.is_some_and(|ghosts| ghosts.contains(&json!(agent))) {
            let fault = Fault::error("SINEW-5091", format!("Agent '{agent}' not found in registry"));
            Some(Err(fault.with_retryable(false)))
        } else {
            let answer = stub::answer(stub, &call.ask.input, earlier);
            answer.map(|answer| answer.map(TaskReply::new).map_err(|text| Fault::failure("SINEW-5001", text)))
        };
        let after = stub::delay(stub, earlier);
        let schemas = &self.case["cards"][&agent];
        let card = CardSchemas { input: schemas.get("input_schema"), output: schemas.get("output_schema") };
        let sender = Sender {
            app: "WF".to_owned(),
            user: "u1".to_owned(),
            session: "sess1".to_owned(),
            task: "task1".to_owned(),
            vocabulary: Vocabulary::Current,
        };
        let ended = result.is_some().then_some(now + after);
        let request = request::request(call, &sender, card);
        self.calls.push(Asked { agent, request, depth: call.depth, began: now, ended });
        match result {
            Some(result) => Stubbed::Answer { after, result, progress: Vec::new() },
            None => Stubbed::Silent,
        }
    }

    fn cancelled(&mut self, _now: Time, call: &Call) {
        self.cancels.push(call.ask.target.name().to_owned());
    }
}

/// Outcome of a case's execution.
pub(crate) struct Seen<'c> {
    pub(crate) agents: Agents<'c>,
    outcome: Option<ExecutionOutcome>,
    /// The answer to whoever started it.
    task: Option<Task>,
    /// Mesh events of the outermost execution.
    events: Vec<MeshMessage>,
    finals: usize,
    pub(crate) ended_at: Option<Time>,
    facts: usize,
}

impl<'c> Seen<'c> {
    /// The case in virtual time, perhaps with a crash.
    pub(crate) fn of(case: &'c Value, library: &Arc<Library>, crash: Option<usize>) -> Self {
        let input = input(case);
        let mut sim = Sim::new(Arc::clone(library), Agents { case, calls: Vec::new(), cancels: Vec::new() });
        if let Some(n) = crash {
            sim.crash_after(n);
        }
        if let Some(at) = case["cancel_after_ms"].as_u64() {
            sim.signal(at, Signal::Cancel("the case says so".to_owned()));
        }
        sim.depth(case["props"]["callDepth"].as_u64().unwrap_or_default() as u32);
        let program = library.get("WF").unwrap().clone();
        sim.run(program, input, ExecutionMode::default(), FOREVER);
        let agents = Agents { case, calls: Vec::new(), cancels: Vec::new() };
        let agents = std::mem::replace(sim.stub_mut(), agents);
        Self { facts: sim.facts(), ..Self::folded(agents, sim.execution(), 0) }
    }

    /// Reads the outcome from the journal of an execution that began at this time, and from the reports of its agents.
    pub(crate) fn folded(agents: Agents<'c>, execution: &Execution, began: Time) -> Self {
        let mut seen = Vec::new();
        execution.replay(|ctx, fact| seen.extend(events::project(ctx, execution.id(), fact)));
        let ends: Vec<Time> = execution
            .journal()
            .iter()
            .flat_map(|round| round.facts.iter().map(|fact| (round.at, fact)))
            .filter(|(_, fact)| **fact == Fact::Ended)
            .map(|(at, _)| at - began)
            .collect();
        let outcome = execution.state().outcome.clone().filter(|_| execution.state().ended);
        let task = outcome.as_ref().map(|outcome| {
            let name = reply::result_name("WF", execution.id().as_str()).unwrap();
            reply::task(&Ending {
                workflow: "WF",
                task: "task1",
                session: "sess1",
                outcome,
                artifact: ArtifactRef { name, version: Some(0) },
                structured: reply::wants_result(&request_parts(agents.case), None),
                vocabulary: Vocabulary::Current,
            })
        });
        Self {
            agents,
            outcome,
            task,
            events: seen,
            finals: ends.len(),
            ended_at: ends.last().copied(),
            facts: 0,
        }
    }

    /// Returns the part of the outcome that a crash must not change.
    pub(crate) fn end(&self) -> Value {
        json!({
            "state": self.state(),
            "output": self.output(),
            "error": self.error(),
            "finals": self.finals,
            "elapsed_ms": self.ended_at,
            "calls": self.calls(),
            "nodes": self.nodes(),
        })
    }

    pub(crate) fn compare(&self, wanted: &Map<String, Value>) -> Vec<String> {
        let mut wrong = Vec::new();
        for (key, want) in wanted {
            let (seen, right) = self.observe(key, want);
            if !right {
                wrong.push(format!("{key}: wanted {want}, seen {seen}"));
            }
        }
        wrong
    }

    fn observe(&self, key: &str, want: &Value) -> (Value, bool) {
        let exactly = |seen: Value| (seen.clone(), same(&seen, want));
        let holds = |text: &str| (json!(text), want.as_str().is_some_and(|part| text.contains(part)));
        let each = |value: &dyn Fn(&str) -> Value| {
            exactly(want.as_object().unwrap().keys().map(|key| (key.clone(), value(key))).collect())
        };
        let of =
            |agent: &str| self.agents.calls.iter().filter(|call| call.agent == agent).collect::<Vec<_>>();
        let reply = self.task.as_ref().and_then(|task| task.status.message.as_ref());
        let reply = reply.map(|message| message.parts.as_slice()).unwrap_or_default();
        let first = self.agents.calls.first();
        match key {
            "state" => exactly(self.state().into()),
            "output" => exactly(self.output()),
            "error_contains" => holds(&self.error()),
            "nodes" => {
                let nodes = self.nodes();
                each(&|id| nodes.get(id).map_or(Value::Null, |word| (*word).into()))
            }
            "calls" => exactly(self.calls()),
            "call_counts" => each(&|agent| of(agent).len().into()),
            "calls_of" => each(&|agent| of(agent).iter().map(|call| call.input()).collect()),
            "call_props" => {
                each(&|agent| of(agent).last().map_or(Value::Null, |call| json!({ "callDepth": call.depth })))
            }
            "max_inflight" => each(&|agent| most_at_once(&of(agent)).into()),
            // A task is answered once, whatever the end, so it is acknowledged once.
            "finals" | "acks" => exactly(self.finals.into()),
            "cancels" => exactly(self.agents.cancels.clone().into()),
            "elapsed_ms" => {
                let seen = self.ended_at.map(|at| at as f64);
                let right = seen >= want[0].as_f64() && seen <= want[1].as_f64();
                (json!(seen), right)
            }
            "first_text" => exactly(first.and_then(|call| call.texts().first().copied()).into()),
            "last_text_contains" => holds(first.and_then(|call| call.texts().last().copied()).unwrap_or("")),
            "req" => {
                let request =
                    first.and_then(|call| call.request.message.message.parts.iter().find_map(part_data));
                each(&|key| request.map_or(Value::Null, |request| request[key].clone()))
            }
            "text_contains" => holds(reply.iter().find_map(Part::text_content).unwrap_or("")),
            "data_types" => {
                exactly(reply.iter().filter_map(part_data).map(|data| data["type"].clone()).collect())
            }
            "data_status" => {
                exactly(reply.iter().find_map(part_data).map_or(Value::Null, |data| data["status"].clone()))
            }
            "metadata_keys" => {
                let metadata = self.task.as_ref().and_then(|task| task.metadata.as_ref());
                exactly(
                    metadata
                        .and_then(Value::as_object)
                        .map(|keys| keys.keys().cloned().collect())
                        .unwrap_or_default(),
                )
            }
            "event_counts" => each(&|kind| {
                let is_kind = |event: &&MeshMessage| event.to_json(Vocabulary::Current)["type"] == kind;
                self.events.iter().filter(is_kind).count().into()
            }),
            "event_types" => {
                let kinds =
                    self.events.iter().map(|event| event.to_json(Vocabulary::Current)["type"].clone());
                exactly(kinds.collect())
            }
            other => (format!("nothing observes {other}").into(), false),
        }
    }

    fn state(&self) -> &'static str {
        match self.outcome.as_ref().map(|outcome| outcome.status) {
            Some(TerminalStatus::Success) => "completed",
            Some(TerminalStatus::Failure) => "failed",
            Some(TerminalStatus::Cancelled) => "canceled",
            None => "none",
        }
    }

    fn output(&self) -> Value {
        self.outcome.as_ref().and_then(|outcome| outcome.output.as_deref().cloned()).unwrap_or_default()
    }

    fn error(&self) -> String {
        let fault = self.outcome.as_ref().and_then(|outcome| outcome.fault.as_ref());
        fault.map(|fault| fault.message.clone()).unwrap_or_default()
    }

    fn calls(&self) -> Value {
        self.agents.calls.iter().map(|call| json!([call.agent, call.input()])).collect()
    }

    /// The status of each node as events tell it; `started` without a result event.
    fn nodes(&self) -> BTreeMap<&str, &'static str> {
        let mut nodes = BTreeMap::new();
        for event in &self.events {
            match event {
                MeshMessage::NodeExecutionStart(start) => nodes.insert(start.node_id.as_str(), "started"),
                MeshMessage::NodeExecutionResult(result) => {
                    let word = match result.status {
                        Word::Success => "success",
                        Word::Error => "error",
                        Word::Skipped => "skipped",
                        Word::Cancelled => "cancelled",
                    };
                    nodes.insert(result.node_id.as_str(), word)
                }
                _ => None,
            };
        }
        nodes
    }
}

/// The input of a case's workflow.
pub(crate) fn input(case: &Value) -> Value {
    match reply::input(&request_parts(case)).unwrap() {
        WorkflowInput::Value(value) => value,
        WorkflowInput::Text(text) => json!({ "text": text }),
        WorkflowInput::Artifact(uri) => panic!("no case sends an artifact: {uri}"),
    }
}

/// The request that starts the execution.
fn request_parts(case: &Value) -> Vec<Part> {
    let mut parts = Vec::new();
    if case["si"] == true {
        let request = WorkflowNodeRequestData {
            workflow_name: "caller".to_owned(),
            node_id: "n".to_owned(),
            ..WorkflowNodeRequestData::default()
        };
        parts.push(MeshMessage::from(request).to_part(Vocabulary::Current));
    }
    match case["parts"].as_array() {
        Some(given) => parts.extend(given.iter().map(|part| match part["text"].as_str() {
            Some(text) => Part::text(text),
            None => Part::data(part["data"].clone()),
        })),
        None => parts.push(Part::data(case["input"].clone())),
    }
    parts
}

/// The most calls that were open at the same time.
fn most_at_once(calls: &[&Asked]) -> usize {
    let open_at = |at: Time| {
        calls.iter().filter(|call| call.began <= at && call.ended.is_none_or(|end| at < end)).count()
    };
    calls.iter().map(|call| open_at(call.began)).max().unwrap_or_default()
}

/// Equality of JSON in which 1 and 1.0 are one number.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| same(x, y)))
        }
        _ => a == b,
    }
}
