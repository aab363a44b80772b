//! Stubs: answers of agents in a case.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use sinew_engine::{RequestTarget, TaskReply, TaskRequest, Time};
use sinew_execution::Call;
use sinew_operations::quantity::parse_duration;
use sinew_protocol::code;
use sinew_protocol::{Fault, FaultKind};
use sinew_runtime::sim::{Stub, Stubbed};
use sinew_script::Function;
use sinew_source::{Node, Span};

/// All stubs of a case.
#[derive(Clone, Default)]
pub(crate) struct Stubs {
    agents: BTreeMap<String, Vec<TimedAnswer>>,
    workflows: BTreeMap<String, Vec<TimedAnswer>>,
    nodes: BTreeMap<String, Vec<TimedAnswer>>,
    routes: BTreeMap<String, Vec<TimedAnswer>>,
}

impl std::fmt::Debug for Stubs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stubs").field("agents", &self.agents.keys()).finish_non_exhaustive()
    }
}

/// An answer of a stub.
#[derive(Clone)]
struct TimedAnswer {
    after: Time,
    progress: Vec<Value>,
    answer: StubReply,
}

#[derive(Clone)]
enum StubReply {
    Reply(TaskReply),
    Script(Function),
    Error(Fault),
    Hang,
}

impl Stubs {
    /// Parses the stubs of a case. Returns their defects.
    pub(crate) fn read(&mut self, case: &Node) -> Vec<(Span, String)> {
        let mut wrong = Vec::new();
        let lists =
            [("agents", &mut self.agents), ("workflows", &mut self.workflows), ("nodes", &mut self.nodes)];
        for (key, into) in lists {
            for member in case.get(key).and_then(Node::as_object).unwrap_or_default() {
                let list = member.value.as_array().unwrap_or(std::slice::from_ref(&member.value));
                let mut answers = Vec::new();
                for node in list {
                    match one(node) {
                        Ok(answer) => answers.push(answer),
                        Err(why) => {
                            // A stub with one wrong value is wrong there.
                            let after = node.get("after").filter(|after| duration(after).is_err());
                            wrong.push((after.unwrap_or(node).span, why));
                        }
                    }
                }
                into.insert(member.key.clone(), answers);
            }
        }
        for member in case.get("routes").and_then(Node::as_object).unwrap_or_default() {
            let answers = member.value.as_array().unwrap_or_default().iter();
            let answers = answers.map(|node| TimedAnswer {
                after: 0,
                progress: Vec::new(),
                answer: StubReply::Reply(TaskReply::new(node.to_json())),
            });
            self.routes.insert(member.key.clone(), answers.collect());
        }
        wrong
    }

    /// Returns the answers to a call from the most specific stub, and the stub's name.
    fn find(&self, label: &str, call: &Call) -> Option<(String, &[TimedAnswer])> {
        let (node, tag) = (call.node.as_str(), call.ask.tag.as_str());
        let (route, work) = (tag == TaskRequest::ROUTE, tag == TaskRequest::WORK);
        let is_workflow = matches!(call.ask.target, RequestTarget::Workflow(_));
        let places = [
            (route, "route", &self.routes, label.to_owned()),
            (route, "route", &self.routes, node.to_owned()),
            (true, "node", &self.nodes, format!("{label}#{tag}")),
            (true, "node", &self.nodes, format!("{node}#{tag}")),
            (work, "node", &self.nodes, label.to_owned()),
            (work, "node", &self.nodes, node.to_owned()),
            (is_workflow, "workflow", &self.workflows, call.ask.target.name().to_owned()),
            (!is_workflow, "agent", &self.agents, call.ask.target.name().to_owned()),
        ];
        places
            .into_iter()
            .filter(|(fits, ..)| *fits)
            .find_map(|(_, kind, map, name)| Some((format!("{kind} {name}"), map.get(&name)?.as_slice())))
    }
}

fn one(node: &Node) -> Result<TimedAnswer, String> {
    let list = |key: &str| node.get(key).and_then(Node::as_array).unwrap_or_default();
    let json = |nodes: &[Node]| nodes.iter().map(Node::to_json).collect::<Vec<Value>>();
    let after = node.get("after").map(duration).transpose()?.unwrap_or(0);
    let mut progress = json(list("progress"));
    let hangs = node.get("hang").and_then(Node::as_bool) == Some(true);
    let given = [
        ("error", node.get("error").is_some()),
        ("script", node.get("script").is_some()),
        ("hang", hangs),
        ("output", node.get("output").is_some() || node.get("ports").is_some()),
    ];
    let given: Vec<&str> = given.into_iter().filter(|(_, given)| *given).map(|(key, _)| key).collect();
    if let [first, second, ..] = given[..] {
        return Err(format!("a stub cannot have both `{first}` and `{second}`"));
    }
    let answer = if hangs {
        StubReply::Hang
    } else if let Some(error) = node.get("error") {
        // The reply of a failed attempt cannot contain events.
        progress.extend(json(list("events")));
        StubReply::Error(fault(error))
    } else if let Some(script) = node.get("script").and_then(Node::as_str) {
        StubReply::Script(
            Function::compile(script).map_err(|error| format!("the script is not valid: {error}"))?,
        )
    } else {
        StubReply::Reply(reply(node))
    };
    Ok(TimedAnswer { after, progress, answer })
}

fn reply(node: &Node) -> TaskReply {
    let value = |key: &str| node.get(key).map(Node::to_json);
    let list = |key: &str| node.get(key).and_then(Node::as_array).unwrap_or_default().iter();
    let output = match (value("ports"), value("status")) {
        (Some(ports), _) => json!({ "outputs": ports }),
        (None, Some(status)) => {
            json!({ "status": status, "data": value("output").unwrap_or_else(|| json!({})) })
        }
        (None, None) => value("output").unwrap_or_default(),
    };
    let mut events: Vec<Value> = Vec::new();
    for call in list("tool_calls").map(Node::to_json) {
        let part = |key: &str| call.get(key).cloned().unwrap_or_default();
        events.push(json!({ "type": "tool:call", "tool": part("tool"), "input": part("input") }));
        if call.get("output").is_some() {
            events.push(json!({ "type": "tool:result", "tool": part("tool"), "output": part("output") }));
        }
    }
    events.extend(list("events").map(Node::to_json));
    TaskReply {
        output: Arc::new(output),
        artifacts: list("artifacts").map(Node::to_json).collect(),
        events,
        usage: value("usage").unwrap_or_default(),
        worked_ms: None,
    }
}

fn fault(node: &Node) -> Fault {
    let text = |key: &str| node.get(key).and_then(Node::as_str);
    let kind = match text("kind") {
        Some("error") => FaultKind::Error,
        Some("invalid") => FaultKind::Invalid,
        Some("timeout") => FaultKind::Timeout,
        Some("cancelled") => FaultKind::Cancelled,
        _ => FaultKind::Failure,
    };
    let message = node.as_str().or_else(|| text("message")).unwrap_or_default();
    let code = text("code").unwrap_or(code::STUB_FAILED_AS_TEST_SAYS.as_str()).to_owned();
    let fault = Fault::new(kind, code, message);
    match node.get("retryable").and_then(Node::as_bool) {
        Some(retryable) => fault.with_retryable(retryable),
        None => fault,
    }
}

/// A request to an agent.
#[derive(Clone, Debug)]
pub(crate) struct AskedAgent {
    /// Id of the node.
    pub(crate) node: String,
    /// Id of the node, or its position under the map or loop of which it is a child.
    pub(crate) label: String,
    /// Name of the called agent.
    pub(crate) agent: String,
    /// Whether the call is the node's work.
    pub(crate) work: bool,
    /// Input of the call.
    pub(crate) input: Arc<Value>,
}

/// Answers calls from the stubs of a case.
pub(crate) struct StubPlayer {
    stubs: Stubs,
    counts: BTreeMap<String, usize>,
    /// All calls, in order.
    pub(crate) asked: Vec<AskedAgent>,
    /// Agent and node of calls without a stub.
    pub(crate) unlisted: Vec<(String, String)>,
}

impl StubPlayer {
    /// Returns the used stubs: kind and name.
    pub(crate) fn used(&self) -> impl Iterator<Item = &String> {
        self.counts.keys()
    }

    pub(crate) fn new(stubs: Stubs) -> Self {
        Self { stubs, counts: BTreeMap::new(), asked: Vec::new(), unlisted: Vec::new() }
    }
}

impl Stub for StubPlayer {
    fn answers_workflow(&self, name: &str) -> bool {
        self.stubs.workflows.contains_key(name)
    }

    fn call(&mut self, _now: Time, call: &Call) -> Stubbed {
        let label = call.label.clone();
        let agent = call.ask.target.name().to_owned();
        self.asked.push(AskedAgent {
            node: call.node.clone(),
            label: label.clone(),
            agent: agent.clone(),
            work: call.ask.tag == TaskRequest::WORK,
            input: Arc::clone(&call.ask.input),
        });
        let Some((key, answers)) = self.stubs.find(&label, call) else {
            let fault =
                Fault::error(code::TEST_AGENT_NOT_LISTED.as_str(), format!("no stub for agent '{agent}'"));
            self.unlisted.push((agent, label));
            return Stubbed::now(Err(fault.with_retryable(false)));
        };
        let count = self.counts.entry(key).or_default();
        let Some(one) = answers.get(*count).or(answers.last()) else { return Stubbed::Silent };
        *count += 1;
        let result = match &one.answer {
            StubReply::Hang => return Stubbed::Silent,
            StubReply::Reply(reply) => Ok(reply.clone()),
            StubReply::Error(fault) => Err(fault.clone()),
            StubReply::Script(function) => match function.call(&call.ask.input) {
                Ok(output) => Ok(TaskReply::new(output)),
                Err(error) => Err(Fault::failure(error.code(), error.to_string())),
            },
        };
        let progress = one.progress.iter().map(|value| (one.after, value.clone())).collect();
        Stubbed::Answer { after: one.after, result, progress }
    }
}

/// Parses a duration to milliseconds.
pub(crate) fn duration(node: &Node) -> Result<Time, String> {
    match node.as_str() {
        Some(text) => parse_duration(text).map_err(|failure| failure.message),
        None => node
            .as_f64()
            .map(|seconds| (seconds * 1000.0).round())
            .filter(|ms| (0.0..1e15).contains(ms))
            .map(as_millis)
            .ok_or_else(|| "this is not a duration".to_owned()),
    }
}

#[expect(clippy::cast_sign_loss, reason = "the caller has looked at the range")]
fn as_millis(ms: f64) -> Time {
    ms as Time
}
