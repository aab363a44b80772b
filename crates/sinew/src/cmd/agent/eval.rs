//! `sinew agent eval`: runs evaluation cases against an agent and its real model, several times each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use sinew_agents::{
    Agent, Call, ConversationRecording, LocalPeers, PeerAnswer, PeerCall, PeerDescription, Peers, People,
    PersonPrompt, PersonReply, Reply,
};
use sinew_case_runner::{
    EvalCase, EvalFile, EvalReport, EvalTrial, EvalVerdict, GradedTrial, PeerStub, grade_trial, is_eval_file,
    read_eval,
};
use sinew_operations::artifact_folder::KeptArtifacts;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::file_agents;
use sinew_protocol::{Fault, code};

use super::recorded_cases;
use crate::connect::block;
use crate::exit::Exit;
use crate::output::Output;

const EXAMPLES: &str = "Examples:
  sinew agent eval agent-cards/judge.eval.yaml -n 5
  sinew agent eval judge --model other              # evaluation files of the agent, with another of its models
  sinew agent eval agent-cards --pass 0.8 -o json";

/// Most trials of a case.
const MAX_REPEAT: u32 = 1_000;

/// Arguments of `sinew agent eval`.
#[derive(Args, Debug)]
#[command(
    long_about = "Run the cases of evaluation files (NAME.eval.yaml) against an agent and the model that its \
                  file names, several times each, and grade the answers: by expectations, by a Python \
                  function, or by a judge agent. This calls the model and costs money; `sinew test` does \
                  neither.",
    after_help = EXAMPLES
)]
pub(crate) struct EvalArgs {
    /// Evaluation files, folders with them, or names of agents
    #[arg(value_name = "FILE|NAME", required = true)]
    targets: Vec<String>,
    /// Agent files, or folders with them, for names [default: . and agent-cards/]
    #[arg(short, long, value_name = "PATH")]
    agents: Vec<PathBuf>,
    /// Number of trials per case, instead of `repeat` of the file
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_REPEAT)))]
    repeat: Option<u32>,
    /// Share of trials that must pass, instead of `pass` of the files (0 to 1)
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pass: Option<f64>,
    /// Model of the agent file to use first, instead of the first of `use`
    #[arg(long, value_name = "ALIAS")]
    model: Option<String>,
    /// Only cases with this text in `FILE: NAME`
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Record each trial to this folder, as a case of a test file that replays it without the model
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
}

fn parse_share(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|share| *share > 0.0 && *share <= 1.0)
        .ok_or_else(|| "a share is a number above 0 and at most 1".to_owned())
}

/// Runs the command.
pub(super) fn eval(args: &EvalArgs, output: &Output) -> Result<Exit, Failure> {
    let files = files(args)?;
    let kept = KeptArtifacts::open(PathBuf::from(".sinew/calls"))?;
    let report = block(evaluate(args, &files, &kept, output))?;
    kept.finish(&|text| output.note(&format!("warning: {text}")));
    if report.verdicts.is_empty() {
        return Err(Failure::new(
            FailureKind::NotFound,
            code::NO_TEST_CASE_FOUND.as_str(),
            "no case of the evaluation files has this text",
        ));
    }
    if output.is_machine() {
        output.value(&report.json(), |_| String::new());
    } else {
        output.text(&report.summary());
    }
    Ok(if report.is_good() { Exit::Ok } else { Exit::Failed })
}

/// Returns the selected evaluation files, in order.
fn files(args: &EvalArgs) -> Result<Vec<EvalFile>, Failure> {
    let mut files = Vec::new();
    for target in &args.targets {
        let path = Path::new(target);
        if path.is_file() {
            files.push(read_eval(path)?);
        } else if path.is_dir() {
            files.extend(files_in(path)?);
        } else {
            files.extend(files_of_agent(target, &args.agents)?);
        }
    }
    if files.is_empty() {
        let code = code::NO_TEST_CASE_FOUND.as_str();
        return Err(Failure::new(FailureKind::NotFound, code, "no evaluation file was found")
            .hint("their names end with .eval.yaml; `sinew schema agent-eval` prints their schema"));
    }
    Ok(files)
}

/// The evaluation files in a folder, by name.
fn files_in(folder: &Path) -> Result<Vec<EvalFile>, Failure> {
    let entries = std::fs::read_dir(folder).map_err(|error| Failure::unreadable(folder, &error))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| is_eval_file(path) && path.is_file());
    paths.sort();
    paths.iter().map(|path| read_eval(path)).collect()
}

/// The evaluation files of the agent of this name.
fn files_of_agent(name: &str, places: &[PathBuf]) -> Result<Vec<EvalFile>, Failure> {
    let agent = super::files::find_file(name, places)?;
    let usual = [PathBuf::from("."), PathBuf::from("agent-cards")];
    let folders: Vec<&PathBuf> =
        if places.is_empty() { usual.iter().collect() } else { places.iter().collect() };
    let mut files = Vec::new();
    for folder in folders.into_iter().filter(|folder| folder.is_dir()) {
        for file in files_in(folder)? {
            let loaded = Agent::load(&file.agent).map_err(Failure::diagnostics)?;
            if loaded.name() == agent.name() {
                files.push(file);
            }
        }
    }
    if files.is_empty() {
        let text = format!("agent '{name}' has no evaluation file next to it");
        return Err(Failure::new(FailureKind::NotFound, code::NO_TEST_CASE_FOUND.as_str(), text)
            .hint("their names end with .eval.yaml; `sinew schema agent-eval` prints their schema"));
    }
    Ok(files)
}

async fn evaluate(
    args: &EvalArgs,
    files: &[EvalFile],
    kept: &KeptArtifacts,
    output: &Output,
) -> Result<EvalReport, Failure> {
    let mut report = EvalReport::default();
    for file in files {
        let agent = Agent::load(&file.agent).map_err(Failure::diagnostics)?;
        let folder = file.agent.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let shown = file.path.display().to_string();
        let mut recorded = Vec::new();
        for case in &file.cases {
            if args.filter.as_ref().is_some_and(|part| !format!("{shown}: {}", case.name).contains(part)) {
                continue;
            }
            let graders = Graders::load(case)?;
            let mut trials = Vec::new();
            for number in 1..=args.repeat.unwrap_or(file.repeat) {
                let peers = peers(case, folder, kept)?;
                let recording = args.record.is_some().then(Arc::default);
                let trial = run_trial(&agent, case, args, peers, kept, recording.as_ref()).await;
                recorded.extend(recording.and_then(|recording| recorded_case(&recording, case, number)));
                let mut problems = grade_trial(case, &trial);
                if let Ok(value) = &trial.outcome {
                    problems.extend(graders.problems(case, &trial, value, kept).await);
                }
                trials.push(GradedTrial { trial, problems });
            }
            let pass = args.pass.unwrap_or(case.pass);
            let verdict = EvalVerdict { file: shown.clone(), name: case.name.clone(), pass, trials };
            if !output.is_machine() {
                output.styled(&verdict.text(output.ascii));
            }
            report.verdicts.push(verdict);
        }
        if let Some(folder) = &args.record {
            recorded_cases::write(folder, &agent, &recorded, output)?;
        }
    }
    Ok(report)
}

/// The peers of a case: its stubs, or the agents next to the agent file.
fn peers(case: &EvalCase, folder: &Path, kept: &KeptArtifacts) -> Result<Arc<dyn Peers>, Failure> {
    if let Some(stubs) = &case.peers {
        return Ok(Arc::new(StubbedPeers { stubs: stubs.clone(), asked: Mutex::default() }));
    }
    let around = file_agents::load(&[folder.to_owned()], Path::new("./workflow.yaml"))?;
    let people = Arc::new(DecidedPeople { allow: case.people_allow });
    Ok(Arc::new(LocalPeers::new(around, Arc::clone(&kept.artifacts)).with_people(people)))
}

/// One conversation with the real model.
async fn run_trial(
    agent: &Agent,
    case: &EvalCase,
    args: &EvalArgs,
    peers: Arc<dyn Peers>,
    kept: &KeptArtifacts,
    recording: Option<&Arc<ConversationRecording>>,
) -> EvalTrial {
    let mut call = Call::new(agent.name(), case.input.clone(), Arc::clone(&kept.artifacts));
    call.instruction.clone_from(&case.instruction);
    call.output_schema.clone_from(&case.output_schema);
    call.context.clone_from(&case.context);
    call.recording = recording.cloned();
    if let Some(alias) = &args.model {
        if !call.context.is_object() {
            call.context = json!({});
        }
        call.context["request"]["model"] = alias.clone().into();
    }
    call.peers = peers;
    call.people = Arc::new(DecidedPeople { allow: case.people_allow });
    let (began, used) = (Instant::now(), Arc::clone(&call.usage));
    let answer = agent.call(call).await;
    let elapsed = began.elapsed();
    match answer {
        Ok(Reply { output, usage, events, .. }) => {
            let calls = events.iter().filter(|event| event["type"] == "tool:call");
            let calls = calls.filter_map(|event| event["tool"].as_str().map(str::to_owned)).collect();
            EvalTrial { outcome: Ok(output), calls, usage, elapsed }
        }
        Err(fault) => {
            let usage = used.lock().unwrap_or_else(PoisonError::into_inner).clone();
            EvalTrial { outcome: Err(fault), calls: Vec::new(), usage, elapsed }
        }
    }
}

/// Returns a trial as a case that replays it; `None` if it did not end.
fn recorded_case(recording: &ConversationRecording, case: &EvalCase, number: u32) -> Option<Value> {
    let mut known = json!({ "name": format!("{} ({number})", case.name), "input": case.input });
    if let Some(instruction) = &case.instruction {
        known["instruction"] = instruction.clone().into();
    }
    if let Some(schema) = &case.output_schema {
        known["output_schema"] = schema.clone();
    }
    if case.context.is_object() {
        known["context"] = case.context.clone();
    }
    recording.take_case(known)
}

/// The function and the agent that grade the outputs of a case.
struct Graders {
    check: Option<Agent>,
    judge: Option<Agent>,
}

impl Graders {
    fn load(case: &EvalCase) -> Result<Self, Failure> {
        let check = case.check.as_ref().map(|source| {
            let file = json!({"name": "check", "run": {"script": {"source": source}}});
            Agent::from_text(Path::new("check.agent.yaml"), &file.to_string())
        });
        let judge = case.rubric.as_ref().map(|(_, path)| Agent::load(path));
        Ok(Self {
            check: check.transpose().map_err(Failure::diagnostics)?,
            judge: judge.transpose().map_err(Failure::diagnostics)?,
        })
    }

    /// Reasons against an output.
    async fn problems(
        &self,
        case: &EvalCase,
        trial: &EvalTrial,
        output: &Value,
        kept: &KeptArtifacts,
    ) -> Vec<String> {
        let ask = |agent: &Agent, input: Value| Call::new(agent.name(), input, Arc::clone(&kept.artifacts));
        let mut found = Vec::new();
        if let Some(check) = &self.check {
            let seen =
                json!({"input": case.input, "output": output, "calls": trial.calls, "turns": trial.turns()});
            match check.call(ask(check, seen)).await.map(|reply| reply.output) {
                Ok(Value::Bool(true)) => {}
                Ok(Value::String(reason)) => found.push(format!("check: {reason}")),
                Ok(other) => found.push(format!("check: it returned {other:.200} for {output:.200}")),
                Err(fault) => found.push(told("check", &fault)),
            }
        }
        if let (Some(judge), Some((rubric, _))) = (&self.judge, &case.rubric) {
            let mut call = ask(judge, json!({"rubric": rubric, "work": output}));
            if judge.is_model() && judge.output_schema().is_none() {
                call.output_schema = Some(verdict_schema());
            }
            match judge.call(call).await.map(|reply| reply.output) {
                Ok(verdict) if verdict["verdict"] == "pass" || verdict["verdict"] == "yes" => {}
                Ok(verdict) => {
                    let reason =
                        verdict["reasoning"].as_str().map_or_else(|| verdict.to_string(), str::to_owned);
                    found.push(format!("judge: {reason}"));
                }
                Err(fault) => found.push(told("judge", &fault)),
            }
        }
        found
    }
}

/// Form of the answer of a judge whose file has none.
fn verdict_schema() -> Value {
    json!({
        "type": "object",
        "required": ["verdict", "reasoning"],
        "properties": {"verdict": {"enum": ["pass", "fail", "yes", "no"]}, "reasoning": {"type": "string"}},
        "additionalProperties": false,
    })
}

fn told(grader: &str, fault: &Fault) -> String {
    format!("{grader}: {} [{}]", fault.message, fault.code)
}

/// Peers whose answers a case has.
struct StubbedPeers {
    stubs: BTreeMap<String, Vec<PeerStub>>,
    /// Calls of each peer.
    asked: Mutex<BTreeMap<String, usize>>,
}

impl Peers for StubbedPeers {
    fn list(&self) -> BoxFuture<'_, Result<Vec<PeerDescription>, Fault>> {
        let any = json!({"type": "object", "properties": {}});
        let described = self.stubs.keys().map(|name| PeerDescription {
            name: name.clone(),
            input_schema: Some(any.clone()),
            ..PeerDescription::default()
        });
        std::future::ready(Ok(described.collect())).boxed()
    }

    fn ask(&self, call: PeerCall) -> BoxFuture<'_, PeerAnswer> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let count = asked.entry(call.agent.clone()).or_default();
        let stub = self.stubs.get(&call.agent).and_then(|list| list.get(*count).or(list.last())).cloned();
        *count += 1;
        let failed = |reason: String| Fault::failure(code::NO_SUCH_AGENT.as_str(), reason);
        let answer = stub.unwrap_or_else(|| Err(format!("agent '{}' is not in the case", call.agent)));
        std::future::ready(answer.map_err(failed).into()).boxed()
    }
}

/// People who decide as a case specifies.
struct DecidedPeople {
    allow: bool,
}

impl People for DecidedPeople {
    fn ask(&self, _: PersonPrompt) -> BoxFuture<'_, Result<PersonReply, Fault>> {
        let comment = Some("decided by the case".to_owned());
        std::future::ready(Ok(PersonReply { approved: self.allow, by_person: "case".to_owned(), comment }))
            .boxed()
    }
}
