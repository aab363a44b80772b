//! Converts a closed execution to a case for `sinew test`: its input, timed answers, and end.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use sinew_documents::words;
use sinew_engine::{
    ActivationId, AdapterContext, Fact, PersonAnswer, RequestTarget, TaskReply, TaskRequest, Time,
};
use sinew_execution::events;
use sinew_inspection::execution_status::status_of;
use sinew_inspection::record::Record;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::history_import::refuse_open;
use sinew_protocol::{Fault, FaultKind, code};

use crate::observation;

/// Builds the test file of an execution: one case with the recorded answers. `workflow` is the path of
/// the workflow file. With `node`, expects the end of this node instead of that of the execution.
///
/// # Errors
/// Fails if the execution is open, if its values were removed, or if it does not have the node.
pub fn recorded_case(record: &Record, workflow: &str, node: Option<&str>) -> Result<Value, Failure> {
    refuse_open(record)?;
    if record.redacted {
        let text = "its values are redacted, but a case requires them";
        return Err(Failure::new(FailureKind::Failed, code::NOT_EXPORT_OF_EXECUTION.as_str(), text));
    }
    let ctx = record.execution.ctx();
    let mut case = Map::new();
    case.insert("name".to_owned(), json!(format!("as in {}", words::one_line(record.id(), 80))));
    case.insert("input".to_owned(), (*ctx.input()).clone());
    let mut answers = RecordedAnswers::default();
    let began = record.execution.journal().first().map_or(0, |round| round.at);
    for round in record.execution.journal() {
        for fact in &round.facts {
            answers.note(&ctx, fact, round.at, began);
        }
    }
    answers.write_to(&mut case);
    case.insert("expect".to_owned(), expectations(record, node)?);
    Ok(json!({ "workflow": workflow, "cases": [case] }))
}

/// Task of an activation: its number, send time and deadline.
struct SentTask {
    key: String,
    place: usize,
    at: Time,
    deadline: Option<Time>,
}

/// Answers in the order of their tasks.
#[derive(Default)]
struct RecordedAnswers {
    sent: BTreeMap<(ActivationId, u32), SentTask>,
    nodes: BTreeMap<String, Vec<Value>>,
    routes: BTreeMap<String, Vec<Value>>,
    signals: Vec<Value>,
}

impl RecordedAnswers {
    fn note(&mut self, ctx: &AdapterContext<'_>, fact: &Fact, at: Time, began: Time) {
        let mut signal = |mut members: Value| {
            members["at"] = json!(after(at, began));
            self.signals.push(members);
        };
        let node_of = |act: ActivationId| ctx.plan().node(ctx.act(act).node).id.clone();
        match fact {
            Fact::Dispatched { act, attempt, ask, deadline, .. } => {
                self.ask(ctx, (*act, *attempt), ask, at, *deadline);
            }
            Fact::Replied { act, attempt, result, .. } => {
                self.answer((*act, *attempt), at, result.as_ref().map(|reply| &**reply));
            }
            Fact::Answered { act, answer } if !answer.timed_out => signal(decision(&node_of(*act), answer)),
            Fact::Paused { reason } => signal(json!({ "pause": reason })),
            Fact::Resumed => signal(json!({ "resume": true })),
            Fact::CancelRequested { reason } => signal(json!({ "cancel": reason })),
            Fact::Reopened { input: Some(input), .. } => {
                signal(json!({ "retry": true, "with_input": input }));
            }
            Fact::Reopened { acts, .. } => {
                let nodes: Vec<String> = acts.iter().map(|act| node_of(*act)).collect();
                signal(json!({ "retry": nodes }));
            }
            _ => {}
        }
    }

    /// Adds a task. Scripts of the file and sub-workflows run in the case and need no answer.
    fn ask(
        &mut self,
        ctx: &AdapterContext<'_>,
        task: (ActivationId, u32),
        ask: &TaskRequest,
        at: Time,
        deadline: Option<Time>,
    ) {
        if !matches!(ask.target, RequestTarget::Agent(_)) {
            return;
        }
        let label = events::label(ctx, task.0);
        let (key, list) = match ask.tag.as_str() {
            TaskRequest::ROUTE => (label.clone(), self.routes.entry(label).or_default()),
            TaskRequest::WORK => (label.clone(), self.nodes.entry(label).or_default()),
            tag => {
                let key = format!("{label}#{tag}");
                (key.clone(), self.nodes.entry(key).or_default())
            }
        };
        // An agent without an answer hangs.
        list.push(json!({ "hang": true }));
        let place = list.len() - 1;
        self.sent.insert(task, SentTask { key, place, at, deadline });
    }

    fn answer(&mut self, task: (ActivationId, u32), at: Time, result: Result<&TaskReply, &Fault>) {
        let Some(sent) = self.sent.remove(&task) else { return };
        // The task timed out; the case must time out too.
        if result.is_err_and(|fault| fault.kind == FaultKind::Timeout)
            && sent.deadline.is_some_and(|deadline| at >= deadline)
        {
            return;
        }
        if let Some(one) = self.nodes.get_mut(&sent.key).and_then(|list| list.get_mut(sent.place)) {
            *one = stub(result);
            if at > sent.at {
                one["after"] = json!(after(at, sent.at));
            }
        } else if let Some(one) = self.routes.get_mut(&sent.key).and_then(|list| list.get_mut(sent.place)) {
            *one = result.map_or(Value::Null, |reply| (*reply.output).clone());
        }
    }

    fn write_to(self, case: &mut Map<String, Value>) {
        for (key, answers) in [("nodes", self.nodes), ("routes", self.routes)] {
            if !answers.is_empty() {
                case.insert(key.to_owned(), json!(answers));
            }
        }
        if !self.signals.is_empty() {
            case.insert("signals".to_owned(), json!(self.signals));
        }
    }
}

/// Formats a duration for test files.
fn after(at: Time, began: Time) -> String {
    format!("{}ms", at.saturating_sub(began))
}

fn stub(result: Result<&TaskReply, &Fault>) -> Value {
    let reply = match result {
        Ok(reply) => reply,
        Err(fault) => {
            return json!({ "error": {
                "message": fault.message,
                "kind": kind_word(fault.kind),
                "code": fault.code,
                "retryable": fault.retryable,
            }});
        }
    };
    let mut stub = json!({ "output": *reply.output });
    for (key, list) in [("artifacts", &reply.artifacts), ("events", &reply.events)] {
        if !list.is_empty() {
            stub[key] = json!(list);
        }
    }
    if !reply.usage.is_null() {
        stub["usage"] = reply.usage.clone();
    }
    stub
}

const fn kind_word(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Error => "error",
        FaultKind::Invalid => "invalid",
        FaultKind::Timeout => "timeout",
        FaultKind::Cancelled => "cancelled",
        FaultKind::Failure => "failure",
    }
}

fn decision(node: &str, answer: &PersonAnswer) -> Value {
    let mut signal = json!({ "answer": node, "data": answer.data });
    for (key, text) in [("by", &answer.by), ("note", &answer.comment)] {
        if let Some(text) = text {
            signal[key] = json!(text);
        }
    }
    signal
}

/// Returns the expected end of a node, or of the execution with all its nodes.
fn expectations(record: &Record, node: Option<&str>) -> Result<Value, Failure> {
    let ctx = record.execution.ctx();
    let state = record.execution.state();
    let mut nodes: BTreeMap<String, Value> = BTreeMap::new();
    for (label, seen) in observation::nodes(&ctx) {
        let is_wanted = node.map_or(seen.status != "planned", |node| node == label);
        if is_wanted {
            let output = seen.output.filter(|_| node.is_some());
            let told = output.map(|output| json!({ "status": seen.status, "output": output }));
            nodes.insert(label, told.unwrap_or_else(|| json!(seen.status)));
        }
    }
    if node.is_some() && nodes.is_empty() {
        let text = format!("there is no node {:?} in it", words::one_line(node.unwrap_or_default(), 100));
        return Err(Failure::new(FailureKind::NotFound, code::NO_SUCH_NODE.as_str(), text));
    }
    if node.is_some() {
        return Ok(json!({ "nodes": nodes }));
    }
    let mut expect = json!({ "status": words::status_word(status_of(state)), "nodes": nodes });
    let outcome = state.outcome.as_ref();
    if let Some(fault) = outcome.and_then(|outcome| outcome.fault.as_ref()) {
        expect["error"] = json!(fault.message);
    } else if let Some(output) = outcome.and_then(|outcome| outcome.output.as_ref()) {
        expect["output"] = (**output).clone();
    }
    Ok(expect)
}
