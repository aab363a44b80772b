//! Cases of model agents: test files with `agent:` instead of a workflow.
//!
//! The conversation runs in virtual time, with the model answers of the case and with tool stubs.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use sinew_agents::{Agent, AgentCase, AgentSet, CaseOutcome, PeerDescription, StubAnswer, ToolStubs};
use sinew_model::script::ModelScript;
use sinew_model::{ConversationEnd, ConversationTotals};
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::workflow_file;
use sinew_protocol::code;
use sinew_source::{Diagnostic, Diagnostics, Document, Node, Schema, Span};

use crate::expectation::Mismatch;
use crate::posted_cases::PostedCases;
use crate::report::CaseVerdict;
use crate::{difference, stub};

/// Returns the JSON Schema of test files of agents.
pub fn schema() -> Value {
    serde_json::from_str(include_str!("agent_schema.json")).unwrap_or_default()
}

/// Runs the cases of a test file whose names contain `filter`. `None` if the file has no `agent`.
pub(crate) fn judge(path: &Path, filter: Option<&str>) -> Option<Result<Vec<CaseVerdict>, Failure>> {
    let document =
        workflow_file::read(path).ok().and_then(|bytes| workflow_file::document(path, &bytes).ok())?;
    document.root.get("agent")?;
    Some(verdicts(path, &document, filter, AgentOrigin::Disk))
}

/// Runs all cases of a posted test file. `None` if the file has no `agent`.
pub(crate) fn judge_posted(
    document: &Document,
    posted: PostedCases<'_>,
) -> Option<Result<Vec<CaseVerdict>, Failure>> {
    document.root.get("agent")?;
    Some(verdicts(Path::new(posted.name), document, None, AgentOrigin::Posted(posted)))
}

/// Origin of the agent file of cases.
#[derive(Clone, Copy)]
enum AgentOrigin<'a> {
    /// The disk, by the path in the test file.
    Disk,
    /// A file that a client sent.
    Posted(PostedCases<'a>),
}

impl AgentOrigin<'_> {
    /// Loads the agent of a test file, and the other agents of its folder.
    fn load(self, path: &Path, root: &Node) -> Result<(Agent, Vec<PeerDescription>), Failure> {
        let Self::Posted(posted) = self else { return agent(path, root) };
        let named = root.get("agent").and_then(Node::as_str).unwrap_or_default();
        if named != posted.file_name {
            return Err(posted.not_sent(named));
        }
        let agent = Agent::from_posted_text(posted.file_name, posted.file).map_err(Failure::diagnostics)?;
        Ok((agent, Vec::new()))
    }
}

fn verdicts(
    path: &Path,
    document: &Document,
    filter: Option<&str>,
    origin: AgentOrigin<'_>,
) -> Result<Vec<CaseVerdict>, Failure> {
    let schema = Schema::compile(&schema())
        .map_err(|error| Failure::new(FailureKind::Failed, error.code(), error.to_string()))?;
    let mut found = Diagnostics::new(document.sources.clone());
    found.extend(sinew_source::check_node(&schema, &document.root));
    if found.has_errors() {
        found.sort();
        return Err(Failure::diagnostics(found));
    }
    let (agent, peers) = origin.load(path, &document.root)?;
    if !agent.is_model() {
        let text = format!(
            "agent '{}' calls no language model: cases with `agent` are for model agents",
            agent.name()
        );
        return Err(Failure::new(FailureKind::Failed, code::TEST_FILE_CONTRADICTS_ITSELF.as_str(), text));
    }
    let mut all = Vec::new();
    for node in document.root.get("cases").and_then(Node::as_array).unwrap_or_default() {
        let name = node.get("name").and_then(Node::as_str).unwrap_or_default().to_owned();
        if filter.is_some_and(|part| !format!("{}: {name}", path.display()).contains(part)) {
            continue;
        }
        let span = node.get("name").map_or(node.span, |name| name.span);
        let (found, elapsed) = match read_case(node, &peers) {
            Ok(case) => judge_case(&agent, &case, node, span),
            Err((span, problem)) => {
                let mut diagnostics = Diagnostics::new(document.sources.clone());
                let code = code::TEST_FILE_CONTRADICTS_ITSELF.as_str();
                diagnostics.push(Diagnostic::error(code, problem).at(span));
                return Err(Failure::diagnostics(diagnostics));
            }
        };
        all.push(CaseVerdict {
            file: path.display().to_string(),
            sources: document.sources.clone(),
            span,
            name,
            found,
            elapsed,
            updated: false,
        });
    }
    Ok(all)
}

/// Loads the agent of a test file, and the other agents of its folder.
fn agent(path: &Path, root: &Node) -> Result<(Agent, Vec<PeerDescription>), Failure> {
    let named = root.get("agent").and_then(Node::as_str).unwrap_or_default();
    let file = path.parent().unwrap_or(Path::new("")).join(named);
    let agent = Agent::load(&file).map_err(Failure::diagnostics)?;
    let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    // An invalid file of another agent does not affect this agent.
    let neighbours = AgentSet::load_paths(&[folder.to_owned()]).unwrap_or_default();
    let peers =
        neighbours.iter().map(|other| other.as_peer()).filter(|peer| peer.name != agent.name()).collect();
    Ok((agent, peers))
}

fn read_case(node: &Node, peers: &[PeerDescription]) -> Result<AgentCase, (Span, String)> {
    let json = |key: &str| node.get(key).map(Node::to_json);
    let answers: Vec<Value> =
        node.get("model").and_then(Node::as_array).unwrap_or_default().iter().map(Node::to_json).collect();
    let script = ModelScript::read(&answers).map_err(|bad| {
        let answers = node.get("model").and_then(Node::as_array).unwrap_or_default();
        (answers.get(bad.index).map_or(node.span, |answer| answer.span), bad.problem)
    })?;
    let mut tools: ToolStubs = BTreeMap::new();
    for member in node.get("tools").and_then(Node::as_object).unwrap_or_default() {
        let list = member.value.as_array().unwrap_or(std::slice::from_ref(&member.value));
        let answers = list.iter().map(|one| stub_answer(one).map_err(|problem| (one.span, problem)));
        tools.insert(member.key.clone(), answers.collect::<Result<_, _>>()?);
    }
    Ok(AgentCase {
        input: json("input").unwrap_or_else(|| json!({})),
        instruction: node.get("instruction").and_then(Node::as_str).map(str::to_owned),
        output_schema: json("output_schema"),
        context: json("context").unwrap_or_default(),
        begun_at: json("begun_at").and_then(|time| time.as_u64()),
        script,
        tools,
        peers: peers.to_vec(),
        people_allow: node.get("people").and_then(Node::as_str) == Some("allow"),
        crash_everywhere: node.get("crash").and_then(Node::as_str) == Some("everywhere"),
    })
}

fn stub_answer(node: &Node) -> Result<StubAnswer, String> {
    let after_ms = node.get("after").map(stub::duration).transpose()?.unwrap_or(0);
    let result = match (node.get("output"), node.get("error").and_then(Node::as_str)) {
        (Some(_), Some(_)) => return Err("a tool answers with `output` or with `error`".to_owned()),
        (_, Some(error)) => Err(error.to_owned()),
        (output, None) => Ok(output.map(Node::to_json).unwrap_or_default()),
    };
    let artifact = node.get("artifact").and_then(Node::as_str).map(str::to_owned);
    Ok(StubAnswer { after_ms, artifact, ..result.into() })
}

fn judge_case(agent: &Agent, case: &AgentCase, node: &Node, span: Span) -> (Vec<Mismatch>, u64) {
    let outcome = match agent.rehearse(case) {
        Some(Ok(outcome)) => outcome,
        Some(Err(fault)) => {
            return (vec![Mismatch::new(span, "the conversation cannot start", vec![fault.to_string()])], 0);
        }
        None => return (Vec::new(), 0),
    };
    let mut found = Vec::new();
    for tool in &outcome.unlisted {
        let line = format!("the model called '{tool}', which the case does not list in `tools`");
        found.push(Mismatch::new(span, "a tool has no stub", vec![line]));
    }
    match node.get("expect") {
        Some(expect) => found.extend(expectations(expect, &outcome)),
        None => found.push(Mismatch::new(
            span,
            crate::expectation::NOTHING_EXPECTED,
            vec!["add `expect` to the case".to_owned()],
        )),
    }
    if let Some(crash) = &outcome.crash {
        let place = node.get("crash").map_or(span, |crash| crash.span);
        let line = format!("after {} records: {}", crash.records, crash.problem);
        found.push(Mismatch::new(place, "the conversation differs after a crash", vec![line]));
    }
    let rehearsal = &outcome.rehearsal;
    (found, rehearsal.now.saturating_sub(rehearsal.state.begun_at.unwrap_or(rehearsal.now)))
}

fn expectations(expect: &Node, outcome: &CaseOutcome) -> Vec<Mismatch> {
    let end = outcome.rehearsal.end();
    let totals: &ConversationTotals = &outcome.rehearsal.state.totals;
    let mut found = Vec::new();
    for member in expect.as_object().unwrap_or_default() {
        let (key, want) = (member.key.as_str(), &member.value);
        let lines = match (key, end) {
            ("output", Some(ConversationEnd::Output(value))) => differs(&want.to_json(), value, false),
            ("output_contains", Some(ConversationEnd::Output(value))) => {
                differs(&want.to_json(), value, true)
            }
            ("artifact", Some(ConversationEnd::Artifact(name))) => {
                differs(&want.to_json(), &json!(name), false)
            }
            ("error", Some(ConversationEnd::Fault(fault))) => {
                let told = format!("{} [{}]", fault.message, fault.code);
                let holds = want.as_str().is_some_and(|text| told.contains(text));
                if holds { Vec::new() } else { vec![format!("the error is: {told}")] }
            }
            ("calls", _) => differs(&want.to_json(), &json!(outcome.rehearsal.calls()), false),
            ("discovered", _) => differs(&want.to_json(), &json!(discovered(outcome)), false),
            ("turns", _) => differs(&want.to_json(), &json!(totals.turns), false),
            ("refused", _) => differs(&want.to_json(), &json!(refused(outcome)), false),
            ("said", _) => not_said(want, outcome),
            (_, end) => vec![format!("the conversation ended otherwise: {}", told(end))],
        };
        if !lines.is_empty() {
            found.push(Mismatch::new(want.span, key, lines));
        }
    }
    found
}

/// Returns the names of the tools that searches found.
fn discovered(outcome: &CaseOutcome) -> Vec<&str> {
    outcome.rehearsal.state.discovered.iter().map(|tool| tool.declaration.name.as_str()).collect()
}

/// Returns the names of tools whose calls were not made.
fn refused(outcome: &CaseOutcome) -> Vec<&str> {
    use sinew_model::CallStatus::{Invalid, Refused};
    let exchanges = &outcome.rehearsal.state.exchanges;
    let all = exchanges.iter().flat_map(|one| one.answer.calls.iter().zip(&one.calls));
    let not_made = all.filter(|(_, call)| {
        call.result.as_ref().is_some_and(|result| matches!(result.status, Invalid | Refused))
    });
    not_made.map(|(requested, _)| requested.tool.as_str()).collect()
}

/// Returns expected texts that no result contains.
fn not_said(want: &Node, outcome: &CaseOutcome) -> Vec<String> {
    let exchanges = &outcome.rehearsal.state.exchanges;
    let results = exchanges.iter().flat_map(|one| &one.calls).filter_map(|call| call.result.as_ref());
    let mut told: Vec<String> = results.map(|result| result.content.to_string()).collect();
    told.extend(exchanges.iter().filter_map(|one| one.feedback.as_ref()).map(|(_, text)| text.clone()));
    let wanted = want.as_array().unwrap_or(std::slice::from_ref(want)).iter().filter_map(Node::as_str);
    wanted
        .filter(|text| !told.iter().any(|told| told.contains(text)))
        .map(|text| format!("the model never received '{text}'"))
        .collect()
}

fn differs(want: &Value, seen: &Value, part: bool) -> Vec<String> {
    difference::lines(&difference::differences(want, seen, part))
}

fn told(end: Option<&ConversationEnd>) -> String {
    match end {
        None => "it did not end".to_owned(),
        Some(ConversationEnd::Output(value)) => format!("output {}", difference::short(value)),
        Some(ConversationEnd::Artifact(name)) => format!("artifact {name}"),
        Some(ConversationEnd::Fault(fault)) => format!("error {} [{}]", fault.message, fault.code),
    }
}
