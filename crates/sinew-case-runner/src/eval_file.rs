//! Evaluation files: cases that run several times each with an agent and its real model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::workflow_file;
use sinew_protocol::code;
use sinew_source::{Diagnostics, Node, Schema};

/// Suffixes of evaluation files.
const EVAL_NAMES: [&str; 3] = [".eval.yaml", ".eval.yml", ".eval.json"];

/// Returns the JSON Schema of evaluation files.
pub fn eval_schema() -> Value {
    serde_json::from_str(include_str!("eval_schema.json")).unwrap_or_default()
}

/// An evaluation file.
#[derive(Clone, Debug)]
pub struct EvalFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Path of the agent file.
    pub agent: PathBuf,
    /// Number of trials of each case.
    pub repeat: u32,
    /// The cases.
    pub cases: Vec<EvalCase>,
}

/// A case of an evaluation.
#[derive(Clone, Debug)]
pub struct EvalCase {
    /// Name of the case.
    pub name: String,
    /// Input of the agent.
    pub input: Value,
    /// Instruction of the calling node.
    pub instruction: Option<String>,
    /// JSON Schema that overrides the agent's output schema.
    pub output_schema: Option<Value>,
    /// Context of the request; null by default.
    pub context: Value,
    /// Answers of peers by name, one for each call; the last one repeats. `None` to call the agents
    /// in the folder of the agent file.
    pub peers: Option<BTreeMap<String, Vec<PeerStub>>>,
    /// Whether people approve calls.
    pub people_allow: bool,
    /// Required pass rate, above 0 and at most 1.
    pub pass: f64,
    /// Python function that checks the output.
    pub check: Option<String>,
    /// Rubric, and the file of the judging agent.
    pub rubric: Option<(String, PathBuf)>,
    /// Expected result.
    pub(crate) expect: Option<Node>,
}

/// Answer of a peer: its output, or its failure message.
pub type PeerStub = Result<Value, String>;

/// Reads an evaluation file. Its paths are relative to its folder.
///
/// # Errors
/// Fails if the file cannot be read or does not fit its schema, or if a rubric has no judge.
pub fn read_eval(path: &Path) -> Result<EvalFile, Failure> {
    let document =
        workflow_file::document(path, &workflow_file::read(path)?).map_err(Failure::diagnostics)?;
    let schema = Schema::compile(&eval_schema())
        .map_err(|error| Failure::new(FailureKind::Failed, error.code(), error.to_string()))?;
    let mut found = Diagnostics::new(document.sources.clone());
    found.extend(sinew_source::check_node(&schema, &document.root));
    if found.has_errors() {
        found.sort();
        return Err(Failure::diagnostics(found));
    }
    let root = &document.root;
    let folder = path.parent().unwrap_or(Path::new(""));
    let place = |node: &Node, key: &str| node.get(key).and_then(Node::as_str).map(|name| folder.join(name));
    let (judge, pass) = (place(root, "judge"), share(root).unwrap_or(1.0));
    let mut cases = Vec::new();
    for node in root.get("cases").and_then(Node::as_array).unwrap_or_default() {
        let mut case = read_case(node, pass);
        if let Some(rubric) = node.get("rubric").and_then(Node::as_str) {
            let Some(judge) = place(node, "judge").or_else(|| judge.clone()) else {
                let text =
                    format!("{}: case '{}' has a rubric, and there is no judge", path.display(), case.name);
                let code = code::TEST_FILE_CONTRADICTS_ITSELF.as_str();
                return Err(Failure::new(FailureKind::Failed, code, text).hint(
                    "`judge: PATH` names an agent file that answers with {verdict: pass or fail, reasoning}",
                ));
            };
            case.rubric = Some((rubric.to_owned(), judge));
        }
        cases.push(case);
    }
    let repeat = root.get("repeat").map(Node::to_json).and_then(|value| value.as_u64());
    Ok(EvalFile {
        path: path.to_owned(),
        agent: place(root, "agent").unwrap_or_default(),
        repeat: repeat.and_then(|repeat| u32::try_from(repeat).ok()).unwrap_or(1),
        cases,
    })
}

fn share(node: &Node) -> Option<f64> {
    node.get("pass").and_then(|share| share.to_json().as_f64())
}

fn read_case(node: &Node, pass: f64) -> EvalCase {
    let json = |key: &str| node.get(key).map(Node::to_json);
    let text = |key: &str| node.get(key).and_then(Node::as_str).map(str::to_owned);
    let peers = node.get("peers").and_then(Node::as_object).map(|members| {
        let stubs = members.iter().map(|member| {
            let list = member.value.as_array().unwrap_or(std::slice::from_ref(&member.value));
            (member.key.clone(), list.iter().map(peer_stub).collect())
        });
        stubs.collect()
    });
    EvalCase {
        name: text("name").unwrap_or_default(),
        input: json("input").unwrap_or_else(|| json!({})),
        instruction: text("instruction"),
        output_schema: json("output_schema"),
        context: json("context").unwrap_or_default(),
        peers,
        people_allow: text("people").as_deref() == Some("allow"),
        pass: share(node).unwrap_or(pass),
        check: text("check"),
        rubric: None,
        expect: node.get("expect").cloned(),
    }
}

fn peer_stub(node: &Node) -> PeerStub {
    match node.get("error").and_then(Node::as_str) {
        Some(reason) => Err(reason.to_owned()),
        None => Ok(node.get("output").map(Node::to_json).unwrap_or_default()),
    }
}

/// Returns whether a file has the name of an evaluation file.
pub fn is_eval_file(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    EVAL_NAMES.iter().any(|end| name.ends_with(end))
}
