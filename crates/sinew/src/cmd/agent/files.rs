//! `sinew agent` without a mesh: ready-made agents from files, in this process.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::Serialize;
use serde_json::{Value, json};
use sinew_agents::{
    Agent, AgentSet, Call, CancellationToken, ConversationRecording, LocalPeers, ModelDescription,
};
use sinew_documents::words;
use sinew_operations::agent_calls::fault_failure;
use sinew_operations::artifact_folder::KeptArtifacts;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::file_agents;
use sinew_operations::ready_made::add_ready_made;
use sinew_protocol::Fault;
use sinew_protocol::code;
use tokio::runtime::Builder;

use super::{CallArgs, Named, recorded_cases};
use crate::agent_trust::TrustArgs;
use crate::answer_stream::AnswerStream;
use crate::connect::new_runtime;
use crate::exit::Exit;
use crate::output::Output;
use crate::terminal_people::{GivenAnswers, PlainTerminal, TerminalPeople};

/// A line of the list.
#[derive(Serialize)]
struct ListedAgentFile<'a> {
    name: &'a str,
    version: &'a str,
    description: &'a str,
    skills: usize,
    takes_schema: bool,
}

pub(super) fn list(paths: &[PathBuf], output: &Output) -> Result<Exit, Failure> {
    let set = load(paths)?;
    let rows: Vec<ListedAgentFile<'_>> = set
        .iter()
        .map(|agent| ListedAgentFile {
            name: agent.name(),
            version: agent.version(),
            description: agent.description(),
            skills: agent.announcement().skills.len(),
            takes_schema: agent.input_schema().is_some(),
        })
        .collect();
    if rows.is_empty() {
        return Err(Failure::new(
            FailureKind::NotFound,
            code::NO_AGENT_FILE_FOUND.as_str(),
            "no agent file was found",
        )
        .hint(
            "agent files end in .agent.yaml; name files or folders, or create one with: sinew new agent NAME",
        ));
    }
    output.value(&rows, |rows| {
        let names: Vec<String> = rows.iter().map(|row| words::name(row.name)).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let line = |(row, name): (&ListedAgentFile<'_>, &String)| {
            let (version, description) = (words::name(row.version), words::one_line(row.description, 200));
            format!("{name:<width$}  {version:<8}  {description}").trim_end().to_owned()
        };
        rows.iter().zip(&names).map(line).collect::<Vec<_>>().join("\n")
    });
    Ok(Exit::Ok)
}

pub(super) fn describe(agent: &Agent, output: &Output) -> Exit {
    note_warnings(agent, output);
    let models = agent.models();
    let mut value = json!({
        "name": agent.name(),
        "version": agent.version(),
        "description": agent.description(),
        "skills": agent.announcement().skills,
        "input_schema": agent.input_schema(),
        "output_schema": agent.output_schema(),
        "delivery": format!("{:?}", agent.delivery()).to_lowercase(),
        "concurrency": agent.concurrency(),
        "timeout_ms": agent.timeout().as_millis() as u64,
    });
    if !models.is_empty() {
        value["models"] = models.iter().map(|model| model.alias.as_str()).collect();
    }
    output.value(&value, |value| {
        let schema = |key: &str| match &value[key] {
            Value::Null => "any JSON".to_owned(),
            schema => serde_json::to_string(schema).unwrap_or_default(),
        };
        let models = models.iter().map(described_model).collect::<Vec<_>>().join(", ");
        let models = if models.is_empty() { models } else { format!("\n  models      {models}") };
        format!(
            "{} {}\n{}\n\n  input       {}\n  output      {}\n  timeout     {}\n  concurrency {}{models}",
            words::name(agent.name()),
            words::name(agent.version()),
            sinew_source::indented(agent.description()),
            schema("input_schema"),
            schema("output_schema"),
            words::duration(agent.timeout().as_millis() as u64),
            agent.concurrency(),
        )
    });
    Exit::Ok
}

/// A model of the file, and whether its key is set: `main (openai gpt-5-mini, OPENAI_API_KEY is not set)`.
fn described_model(model: &ModelDescription) -> String {
    let key = match &model.key {
        Some((name, false)) => format!(", {} is not set", words::name(name)),
        _ => String::new(),
    };
    let what = format!("{} {}", model.provider, words::name(&model.model));
    format!("{} ({}{key})", words::name(&model.alias), what.trim_end())
}

pub(super) fn call(args: &CallArgs, output: &Output) -> Result<Exit, Failure> {
    let agent = find(&args.who)?;
    note_warnings(&agent, output);
    let around = load_with_ready_made(&args.who.agents).unwrap_or_default();
    check_trust(args.trust, &agent, &around, (&args.who.name, &args.who.agents), output)?;
    if let Some(alias) = &args.model {
        file_agents::choose_model([&agent], alias)?;
        for peer in around.iter() {
            peer.choose_model(alias);
        }
    }
    let (value, deadline) = (args.value()?, args.deadline()?);
    let kept = KeptArtifacts::open(args.artifacts.clone().unwrap_or_else(|| PathBuf::from(".sinew/calls")))?;
    let mut task = Call::new(agent.name(), value, Arc::clone(&kept.artifacts));
    task.timeout = deadline.left();
    task.instruction.clone_from(&args.instruction);
    let given = args.answer.iter().map(|text| (agent.name().to_owned(), Value::String(text.clone())));
    let answers: GivenAnswers = Arc::new(Mutex::new(given.collect()));
    task.people = TerminalPeople::new(answers, Box::new(PlainTerminal), output).asked_by(agent.name());
    let recording = Arc::new(ConversationRecording::default());
    if args.record.is_some() {
        task.recording = Some(Arc::clone(&recording));
    }
    let input = task.input.clone();
    let cancel = CancellationToken::new();
    task.cancel = cancel.clone();
    let (sender, mut said) = tokio::sync::mpsc::unbounded_channel::<Value>();
    task.progress = sender;
    let peers = LocalPeers::new(around, Arc::clone(&kept.artifacts));
    task.peers = Arc::new(peers.with_people(Arc::clone(&task.people)));
    let runtime = new_runtime(&mut Builder::new_multi_thread())?;
    let stream = RefCell::new(AnswerStream::new(agent.name(), output));
    let is_interrupted = Cell::new(false);
    let reply = runtime.block_on(async {
        let watch = async {
            while let Some(value) = said.recv().await {
                stream.borrow_mut().tell(&value);
            }
            std::future::pending::<()>().await;
        };
        let interrupt = async {
            let _ = tokio::signal::ctrl_c().await;
            is_interrupted.set(true);
            cancel.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            reply = agent.call(task) => reply,
            () = watch => Err(Fault::cancelled(code::EXECUTION_CANCELLED.as_str(), "cancelled")),
            () = interrupt => Err(Fault::cancelled(code::EXECUTION_CANCELLED.as_str(), "cancelled")),
        }
    });
    kept.finish(&|text| output.note(&format!("warning: {text}")));
    if let Some(folder) = &args.record {
        let mut case = json!({ "name": "recorded", "input": input });
        if let Some(instruction) = &args.instruction {
            case["instruction"] = instruction.clone().into();
        }
        recorded_cases::write(folder, &agent, recording.take_case(case).as_slice(), output)?;
    }
    match reply {
        Ok(reply) => {
            if output.is_machine() {
                let mut told = json!({ "output": reply.output, "artifacts": reply.artifacts });
                if !reply.usage.is_null() {
                    told["usage"] = reply.usage;
                }
                output.value(&told, |_| String::new());
            } else {
                stream.borrow_mut().answer(&reply.output);
                for artifact in &reply.artifacts {
                    output.note(&format!("artifact {artifact} in {}", kept.folder.join("files").display()));
                }
            }
            Ok(Exit::Ok)
        }
        Err(fault) if is_interrupted.get() => Ok(interrupted(&fault, output)),
        Err(fault) => Err(fault_failure(&fault)),
    }
}

/// Reports a call that a signal ended.
pub(super) fn interrupted(fault: &Fault, output: &Output) -> Exit {
    output.error_line(&format!("error: {} [{}]", fault.message, words::name(&fault.code)));
    Exit::Interrupted
}

/// Prints the warnings of an agent's file.
pub(crate) fn note_warnings(agent: &Agent, output: &Output) {
    if !agent.warnings().is_empty() {
        output.note_block(sinew_source::render_text(agent.warnings(), output.color_err).trim_end());
    }
}

/// Rejects agents that were discovered and are not trusted. An agent that is named by its file is trusted;
/// only a model agent calls others.
pub(crate) fn check_trust(
    trust: TrustArgs,
    agent: &Agent,
    around: &AgentSet,
    (named, places): (&str, &[PathBuf]),
    output: &Output,
) -> Result<(), Failure> {
    let is_found = !is_file_name(named);
    let needs = |one: &Agent| agent.reach().calls_others || (is_found && one.name() == agent.name());
    trust.check(around, places, needs, output).map(drop)
}

/// Returns whether a text names an agent by its file.
pub(super) fn is_file_name(name: &str) -> bool {
    name.contains(".agent.") && Path::new(name).is_file()
}

fn load(paths: &[PathBuf]) -> Result<AgentSet, Failure> {
    file_agents::load(paths, Path::new("./workflow.yaml"))
}

/// Returns the agents of these paths; without any, those in the default folders and the ready-made ones.
fn load_with_ready_made(places: &[PathBuf]) -> Result<AgentSet, Failure> {
    let mut set = load(places)?;
    if places.is_empty() {
        add_ready_made(&mut set)?;
    }
    Ok(set)
}

/// Returns an agent by name, or by the path of its file.
pub(super) fn find(named: &Named) -> Result<Arc<Agent>, Failure> {
    find_file(&named.name, &named.agents)
}

/// Returns an agent by name in these paths, or by the path of its file.
pub(crate) fn find_file(name: &str, places: &[PathBuf]) -> Result<Arc<Agent>, Failure> {
    if is_file_name(name) {
        return Agent::load(Path::new(name)).map(Arc::new).map_err(Failure::diagnostics);
    }
    let set = load_with_ready_made(places)?;
    set.get(name).cloned().ok_or_else(|| {
        let failure = Failure::new(
            FailureKind::NotFound,
            code::NO_SUCH_AGENT.as_str(),
            format!("there is no agent '{name}'"),
        );
        match sinew_source::did_you_mean(name, set.names()) {
            Some(near) => failure.hint(format!("did you mean '{near}'?")),
            None => failure.hint("see `sinew agent list`"),
        }
    })
}
