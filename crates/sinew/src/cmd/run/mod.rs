//! `sinew run`: one execution, in this process or on a mesh.

mod mesh;
mod person;
mod show;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use sinew_dialects::Dialect;
use sinew_documents::trial::WouldAsk;
use sinew_documents::words;
use sinew_engine::{
    EngineInput, ExecutionMode, ExecutionOutcome, PersonAnswer, TerminalStatus, WaitingFor, execution_status,
    waiting,
};
use sinew_execution::{Execution, Program};
use sinew_inspection::describe;
use sinew_inspection::execution_status::end_word;
use sinew_inspection::node_rows;
use sinew_inspection::record::Record;
use sinew_operations::artifact_folder::KeptArtifacts;
use sinew_operations::dry_run::{output_samples, would_ask};
use sinew_operations::export_file;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::file_agents::{self, FileAgents, PeopleOfNode};
use sinew_operations::local_records;
use sinew_operations::neighbours::CalledFiles;
use sinew_operations::ready_made::add_ready_made;
use sinew_operations::workflow_file::{self, Loaded};
use sinew_plan::PlanNode;
use sinew_protocol::decision::WrittenDecision;
use sinew_protocol::query::ExecutionStatus;
use sinew_protocol::{ExecutionId, code};
use sinew_runtime::local::{self, Control, Local};
use tokio::runtime::Builder;

use self::person::{PersonPrompt, RunTerminal, SharedTerminal, written_answer};
use crate::agent_trust::{TrustArgs, called_from};
use crate::connect::new_runtime;
use crate::deadline::Deadline;
use crate::exit::Exit;
use crate::input;
use crate::output::{Format, Output};
use crate::signals::Signals;
use crate::terminal_people::{GivenAnswers, TerminalPeople, UNDECIDED};
use crate::variable_args::VariableArgs;

const EXAMPLES: &str = "Examples:
  sinew run examples/orders/orders.yaml -i @examples/orders/order.json
  sinew run flow.yaml -p name=Ada -p count=3        # input from single fields
  cat input.json | sinew run flow.yaml -i - -o json # status, output and nodes as JSON
  sinew run flow.yaml --dry-run                     # which agents would be called, with what input
  sinew run flow.yaml --native                      # results and trace in the dialect's format
  sinew run flow.yaml --until enrich --given check='{\"ok\": true}'
  sinew run flow.yaml --nats nats://localhost:4222 --watch   # on a mesh, see `sinew dev`
  sinew run orders --mesh --detach --idempotency-key A1      # a deployed workflow, by name

A file runs in this process. Its record and artifacts are stored in .sinew/executions for `sinew execution`.
With --mesh, an address or a context (also NATS_URL, NATS_CONTEXT), or next to a running `sinew dev`, it runs
on a mesh and continues without this process; --local runs it here anyway. On a mesh the command waits for the
execution to end, and exits with 8 once the execution waits only for people, unless --watch is given.";

/// Time for threads of the runtime to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Arguments of `sinew run`.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// The workflow file (`-` for stdin); on a mesh also the name of a deployed workflow, or NAME@VERSION
    #[arg(value_name = "FILE|NAME")]
    file: PathBuf,
    /// Which workflow, when the file has several
    #[arg(short, long)]
    workflow: Option<String>,
    /// The input: JSON, @FILE or - for stdin
    #[arg(short, long, value_name = "JSON|@FILE|-")]
    input: Option<String>,
    /// One field of the input; the value is parsed as JSON if possible, else text. May be repeated
    #[arg(short, long = "param", value_name = "KEY=VALUE")]
    params: Vec<String>,
    /// Agent files, or folders with them [default: next to the workflow and in agent-cards/]
    #[arg(short, long, value_name = "PATH")]
    agents: Vec<PathBuf>,
    #[command(flatten)]
    trust: TrustArgs,
    /// Use the model of this alias, and no other, in all agents whose files have it
    #[arg(long, value_name = "ALIAS")]
    model: Option<String>,
    /// Dialect of the file [default: detected from its content]
    #[arg(long)]
    dialect: Option<String>,
    /// Agent for work that the file assigns to none
    #[arg(long, value_name = "KIND=AGENT")]
    default_agent: Vec<String>,
    /// Fail the execution once its agents report a higher cost of model calls, in USD
    #[arg(long, value_name = "USD", value_parser = crate::input::price)]
    cost_usd: Option<f64>,
    /// Fetch texts that the file or the input references by URL, from public addresses only
    #[arg(long)]
    fetch: bool,
    /// Show the tree of nodes while it runs (the default on a terminal)
    #[arg(long, conflicts_with = "detach")]
    watch: bool,
    /// Start the execution and return immediately (needs a mesh)
    #[arg(long)]
    detach: bool,
    /// Wait for the execution to end without showing the tree (needs a mesh)
    #[arg(long, conflicts_with_all = ["detach", "watch"])]
    wait: bool,
    /// Time limit, counted from the start of the command (`90s`, `5m`); on a mesh the execution continues
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// Call no agents; show the calls that would be made
    #[arg(long)]
    dry_run: bool,
    /// Use this output for the node instead of running it. May be repeated
    #[arg(long, value_name = "NODE=JSON")]
    given: Vec<String>,
    /// Start at this node. May be repeated
    #[arg(long, value_name = "NODE")]
    from: Vec<String>,
    /// Stop after this node. May be repeated
    #[arg(long, value_name = "NODE")]
    until: Vec<String>,
    /// Answer in advance what this node or its agent asks a person. May be repeated
    #[arg(long, value_name = "NODE=JSON")]
    answer: Vec<String>,
    /// Print events of the mesh protocol or of the dialect
    #[arg(long, value_enum)]
    events: Option<Events>,
    /// Print the dialect's own result object instead of the output; with `-o json` as the member `native`
    #[arg(long, conflicts_with = "detach")]
    native: bool,
    /// Folder for artifacts [default: .sinew/executions/ID]
    #[arg(long, value_name = "DIR")]
    artifacts: Option<PathBuf>,
    /// Write the plan and journal to a file for offline replay
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    #[command(flatten)]
    variables: VariableArgs,
    #[command(flatten)]
    on: mesh::OnMesh,
}

/// Which events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Events {
    /// Mesh protocol messages, the same for every dialect
    Mesh,
    /// The same in the terms of the published specification (`failure` for `error`, …)
    MeshSpec,
    /// Events of the dialect
    Native,
}

/// Runs a workflow.
pub(crate) fn run(args: &RunArgs, output: &Output) -> Result<Exit, Failure> {
    if args.on.is_meant(mesh::has_local_flag(args)) {
        return mesh::run(args, output);
    }
    mesh::refuse(args)?;
    let options = workflow_file::Options {
        dialect: args.dialect.clone(),
        agents: input::pairs(&args.default_agent, "--default-agent")?.into_iter().collect(),
        fetch: args.fetch,
        variables: args.variables.rules()?,
        cost_usd: args.cost_usd,
        ..workflow_file::Options::default()
    };
    let loaded = workflow_file::workflow(&args.file, &options)?;
    let lowered = loaded.pick(args.workflow.as_deref())?;
    if lowered.warnings.has_errors() {
        return Err(Failure::diagnostics(lowered.warnings.clone()));
    }
    if !lowered.warnings.is_empty() {
        output.note_block(sinew_source::render_text(&lowered.warnings, output.color_err).trim_end());
    }
    let program = workflow_file::program(loaded.dialect, lowered)?;
    let called = CalledFiles::of(&loaded, &options)?;
    let task = Task {
        input: workflow_file::input(
            loaded.dialect,
            input::read(args.input.as_deref(), &args.params)?,
            args.fetch,
        )?,
        mode: mode(args)?,
        deadline: Deadline::from_flag(args.timeout.as_deref())?,
        answers: answers(args, &loaded, &called)?,
        id: ExecutionId::of("local", "sinew-run", &format!("{}-{}", local::now(), std::process::id())),
        program,
        called,
    };
    let runtime = new_runtime(&mut Builder::new_multi_thread())?;
    let ended = runtime.block_on(execute(args, &loaded, task, output));
    // Agent programs that still run end with the runtime; blocked threads must not delay it.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    ended
}

/// An execution to run.
struct Task {
    input: Value,
    mode: ExecutionMode,
    deadline: Deadline,
    answers: Vec<(String, Value)>,
    id: ExecutionId,
    program: Program,
    /// Files whose workflows it calls.
    called: CalledFiles,
}

fn mode(args: &RunArgs) -> Result<ExecutionMode, Failure> {
    let mut mode = ExecutionMode {
        dry_run: args.dry_run,
        from: args.from.clone(),
        until: args.until.clone(),
        ..ExecutionMode::default()
    };
    for (node, value) in input::pairs(&args.given, "--given")? {
        mode.given.insert(node, Arc::new(input::json_or_text(&value)));
    }
    Ok(mode)
}

/// Answers given in advance. Each names a node of the file, or of a file whose workflow it calls.
fn answers(args: &RunArgs, loaded: &Loaded, called: &CalledFiles) -> Result<Vec<(String, Value)>, Failure> {
    let mut all: Vec<(&dyn Dialect, &PlanNode)> = Vec::new();
    for file in called.files.iter().chain([loaded]) {
        let nodes = file.workflows.iter().flat_map(|lowered| &lowered.plan.nodes);
        all.extend(nodes.map(|node| (file.dialect, node)));
    }
    let nodes = || all.iter().map(|(_, node)| node.id.as_str());
    let decides =
        |id: &str| all.iter().any(|(dialect, node)| node.id == id && dialect.asks_for_decision(node));
    let answer = |(node, value): (String, String)| {
        if nodes().any(|id| id == node) {
            let written = input::json_or_text(&value);
            if decides(&node) && WrittenDecision::of(&written).is_none() {
                let text =
                    format!("--answer {}: {} is neither yes nor no", words::name(&node), words::name(&value));
                return Err(Failure::usage(text).hint(UNDECIDED));
            }
            return Ok((node, written));
        }
        let text = format!("--answer: the workflow has no node '{}'", words::name(&node));
        let failure = Failure::new(FailureKind::NotFound, code::NO_SUCH_NODE.as_str(), text);
        Err(match sinew_source::did_you_mean(&node, nodes()) {
            Some(near) => failure.hint(format!("did you mean '{near}'?")),
            None => failure,
        })
    };
    input::pairs(&args.answer, "--answer")?.into_iter().map(answer).collect()
}

async fn execute(args: &RunArgs, loaded: &Loaded, mut task: Task, output: &Output) -> Result<Exit, Failure> {
    let mut set = file_agents::load(&args.agents, &args.file)?;
    let untrusted = if args.dry_run {
        BTreeSet::new()
    } else {
        let named = named_texts(loaded, &task.called);
        args.trust.check(&set, &args.agents, called_from(&set, &named), output)?
    };
    add_ready_made(&mut set)?;
    if args.dry_run {
        let schemas = set.iter().map(|agent| (agent.name(), agent.output_schema()));
        task.mode.samples = output_samples(task.program.graph.plan(), schemas);
    }
    if let Some(alias) = &args.model {
        file_agents::choose_model(set.iter(), alias)?;
    }
    for file in task.called.files.iter().chain([loaded]) {
        file_agents::refuse_lacking_tools(file, &set)?;
    }
    warn_of_missing_callees(&task, loaded, &set, output);
    let folder = args.artifacts.clone();
    let kept = KeptArtifacts::open(
        folder.unwrap_or_else(|| PathBuf::from(local_records::EXECUTIONS_FOLDER).join(task.id.as_str())),
    )?;
    let library = Arc::new(task.called.library(loaded)?);
    let view = Arc::new(Mutex::new(show::View::new(output, args.watch, args.events)));
    let watcher = Arc::clone(&view);
    let answers: GivenAnswers = Arc::new(Mutex::new(task.answers));
    let room = Arc::new(RunTerminal { view: Arc::clone(&view), control: OnceLock::new() });
    let people =
        TerminalPeople::new(Arc::clone(&answers), Box::new(SharedTerminal(Arc::clone(&room))), output);
    let people_of_node: PeopleOfNode = Box::new(move |node| people.asked_by(node));
    let artifacts = Arc::clone(&kept.artifacts);
    let agents = Arc::new(FileAgents { set, untrusted, artifacts, people: Some(people_of_node) });
    let driver = Local::new(
        library,
        agents,
        Box::new(move |run, execution, facts| {
            if let Ok(mut view) = watcher.lock() {
                view.observe(run, execution, facts);
            }
        }),
    );
    let control = driver.control();
    // Agents ask only after the execution has started.
    let _first = room.control.set(control.clone());
    let repaint = tokio::spawn(show::repaint(Arc::clone(&view), control.clone()));
    let people = control.clone();
    let mut prompt = PersonPrompt::new(control.clone(), Arc::clone(&view), output);
    let idle = move |execution: &Execution, asking: &Execution| {
        answer_next(asking, &answers, &people) || prompt.ask(execution, asking)
    };
    let mut signals = Signals::listen()?;
    let running = driver.run(task.id, task.program, task.input, task.mode, idle);
    let Some((execution, stopped)) = run_until_stopped(running, task.deadline, &mut signals, &control).await
    else {
        return Ok(Exit::Interrupted);
    };
    repaint.abort();
    if let Ok(mut view) = view.lock() {
        view.finish(&execution);
    }
    // A failed export must not lose the output or the record.
    let exported = match &args.export {
        Some(file) => export_file::write(&Record::local(&execution), file),
        None => Ok(()),
    };
    if args.artifacts.is_none() && !execution.ctx().dry_run() {
        local_records::keep(&execution)
            .unwrap_or_else(|failure| output.note(&format!("warning: {}", failure.message)));
    }
    let stored = kept.finish(&|text| output.note(&format!("warning: {text}")));
    report(args, &execution, &stored, &kept.folder, output);
    exported.map(|()| exit_of(&execution, stopped))
}

/// Returns all strings of the plans of a file and of the files whose workflows it calls, which include every
/// agent that a plan names.
fn named_texts(loaded: &Loaded, called: &CalledFiles) -> BTreeSet<String> {
    fn add(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::String(text) => drop(found.insert(text.clone())),
            Value::Array(items) => items.iter().for_each(|item| add(item, found)),
            Value::Object(members) => {
                found.extend(members.keys().cloned());
                members.values().for_each(|member| add(member, found));
            }
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    for lowered in called.files.iter().chain([loaded]).flat_map(|file| &file.workflows) {
        add(&serde_json::to_value(&lowered.plan).unwrap_or_default(), &mut found);
    }
    found
}

/// Answers the next node that waits for a person from `--answer`; returns false if it has no answer for one.
/// An answer that decides nothing is dropped: the question stays open.
fn answer_next(execution: &Execution, answers: &GivenAnswers, control: &Control) -> bool {
    let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = execution.program().graph.plan();
    let next = execution.state().waiting().find_map(|act| {
        let one = execution.state().act(act);
        let id = &plan.node(one.node).id;
        let wait = one.wait.as_deref().cloned().unwrap_or_default();
        answers.iter().position(|(node, _)| node == id).map(|at| (act, wait, at))
    });
    let Some((act, wait, at)) = next else { return false };
    let (_, written) = answers.remove(at);
    let Some(answer) = written_answer(&wait, written) else { return false };
    // Each answer counts as that of another person.
    let by = match wait.approvals.len() {
        0 => "--answer".to_owned(),
        given => format!("--answer {}", given + 1),
    };
    let (control, id) = (control.clone(), execution.id().clone());
    tokio::spawn(async move {
        let answer = PersonAnswer { by: Some(by), ..answer };
        control.input_to(&id, EngineInput::Answer { act, answer }).await
    });
    true
}

/// Drives the execution to its end. The first signal or the timeout cancels it and sets the exit code; a second
/// signal returns `None` at once.
async fn run_until_stopped(
    running: impl Future<Output = Execution>,
    deadline: Deadline,
    signals: &mut Signals,
    control: &Control,
) -> Option<(Execution, Option<Exit>)> {
    // One task watches both, so the exit code does not depend on a race between two tasks.
    let mut running = Box::pin(running);
    let mut stopped = None;
    loop {
        let reason = tokio::select! {
            biased;
            execution = &mut running => return Some((execution, stopped)),
            () = signals.next() => {
                if stopped == Some(Exit::Interrupted) {
                    return None;
                }
                stopped = Some(Exit::Interrupted);
                "interrupted"
            }
            () = deadline.passed(), if stopped.is_none() => {
                stopped = Some(Exit::TimedOut);
                "--timeout ran out"
            }
        };
        let control = control.clone();
        let cancel = EngineInput::Cancel { reason: reason.into() };
        tokio::spawn(async move { control.input(cancel).await });
    }
}

fn warn_of_missing_callees(task: &Task, loaded: &Loaded, set: &sinew_agents::AgentSet, output: &Output) {
    let called = &task.called;
    if let Some((warning, hint)) = called.warning() {
        output.note(&format!("warning: {warning}"));
        output.note(&format!("hint: {hint}"));
    }
    if task.mode.dry_run {
        return;
    }
    let mut missing: Vec<&str> = called
        .files
        .iter()
        .chain([loaded])
        .flat_map(|file| &file.workflows)
        .flat_map(|lowered| file_agents::missing_agents(lowered, set))
        .map(|(name, _)| name)
        .collect();
    missing.sort_unstable();
    missing.dedup();
    if let [first, ..] = missing.as_slice() {
        output.note(&format!(
            "warning: no agent file for {}; nodes that need one will fail [SINEW-5091]",
            missing.join(", ")
        ));
        output.note(&format!("hint: {}", file_agents::advice_on_missing(first, set)));
    }
}

fn report(
    args: &RunArgs,
    execution: &Execution,
    stored: &[sinew_agents::ArtifactMeta],
    folder: &std::path::Path,
    output: &Output,
) {
    let outcome = execution.state().outcome.as_ref();
    if execution.ctx().dry_run() && !refused(execution) {
        report_asks(execution, output);
        return;
    }
    report_warnings(execution, output);
    if output.is_machine() {
        let mut document = document(execution, stored, folder);
        if args.native {
            document["native"] = execution.native_result();
        }
        // Events are one document per line, and so is the final document.
        if args.events.is_some() {
            output.text(&document.to_string());
        } else {
            output.value(&document, |_| String::new());
        }
        return;
    }
    let native = args.native.then(|| execution.native_result());
    let value = native.as_ref().or_else(|| outcome.and_then(|outcome| outcome.output.as_deref()));
    if output.format == Format::Name {
        output.line(execution.id().as_str());
    } else if let Some(value) = value {
        let text = match value {
            Value::String(text) if output.format == Format::Table => text.clone(),
            value => serde_json::to_string_pretty(value).unwrap_or_default(),
        };
        output.text(&text);
    }
    if let Some(fault) = outcome.and_then(|outcome| outcome.fault.as_ref()) {
        let word = outcome.map_or("failed", |outcome| end_word(outcome.status));
        let message = words::ending(word, &sinew_source::indented(&fault.message));
        output.error_block(&format!("{message} [{}]", words::name(&fault.code)));
        for detail in &fault.details {
            output.error_block(&format!("  {}", sinew_source::indented(detail)));
        }
        output.note(&format!("hint: sinew explain {}", fault.code));
    }
    if outcome.is_none() {
        for wait in waiting(execution.state()) {
            let (node, prompt) = match (&wait.what, wait.act) {
                (WaitingFor::Person(wait), Some(act)) => {
                    (execution.ctx().node_of(act).id.as_str(), &wait.prompt)
                }
                (WaitingFor::CalleePerson { wait, .. }, _) => (wait.node.as_str(), &wait.prompt),
                _ => continue,
            };
            let node = words::name(node);
            output.error_block(&format!(
                "waiting for a person at '{node}': {}",
                sinew_source::indented(prompt)
            ));
            output.note(&format!("hint: answer it in advance with --answer {node}=approve"));
        }
    }
    if !stored.is_empty() {
        let mut names: Vec<&str> = stored.iter().map(|meta| meta.name.as_str()).collect();
        names.dedup();
        output.note(&format!("artifacts in {}: {}", folder.join("files").display(), names.join(", ")));
    }
}

/// Reports problems that did not fail a node.
fn report_warnings(execution: &Execution, output: &Output) {
    for warning in describe::warnings(execution) {
        let node = warning.node.map(|node| format!("{}: ", words::name(&node))).unwrap_or_default();
        output.note_block(&format!("warning: {node}{}", sinew_source::indented(&warning.message)));
    }
}

/// Returns whether the input was rejected, so that nothing ran.
fn refused(execution: &Execution) -> bool {
    execution.state().start.as_ref().is_some_and(|start| start.refused.is_some())
}

/// Reports the requests of a dry run, in order.
fn report_asks(execution: &Execution, output: &Output) {
    let asks = would_ask(execution);
    output.value(&asks, |asks| {
        let line = |ask: &WouldAsk| {
            let agent = ask.agent.as_str().unwrap_or_default();
            words::name(&format!("{} calls {agent} with {}", ask.node, ask.input))
        };
        asks.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    output.note(
        "dry run: no agent was called; every result is a sample of its schema, or null, so a real run may branch differently",
    );
}

fn document(execution: &Execution, stored: &[sinew_agents::ArtifactMeta], folder: &std::path::Path) -> Value {
    let state = execution.state();
    let outcome = state.outcome.as_ref();
    let waits = state.waiting().next().is_some();
    let mut document = json!({
        "execution": execution.id().as_str(),
        "workflow": execution.program().name(),
        "status": match outcome {
            Some(ExecutionOutcome { status, .. }) => end_word(*status),
            None if waits => "waiting",
            None => "running",
        },
        "duration_ms": state.at.saturating_sub(state.started_at),
        "output": outcome.and_then(|outcome| outcome.output.clone()),
        "error": outcome.and_then(|outcome| outcome.fault.clone()),
        "nodes": node_rows::rows(execution, state.at),
    });
    if !stored.is_empty() {
        document["artifacts"] = json!(stored);
        document["artifact_folder"] = json!(folder);
    }
    document
}

/// Returns the exit code. `stopped` is the code that a signal or `--timeout` set.
fn exit_of(execution: &Execution, stopped: Option<Exit>) -> Exit {
    let state = execution.state();
    if execution.ctx().dry_run() && !refused(execution) {
        return Exit::Ok; // a real run's end depends on results that a dry run does not have
    }
    match state.outcome.as_ref().map(|outcome| outcome.status) {
        Some(TerminalStatus::Success) => Exit::Ok,
        // An execution that failed before it was cancelled has failed.
        Some(_) if state.cancelling.is_some() => stopped.unwrap_or(Exit::Failed),
        Some(TerminalStatus::Failure | TerminalStatus::Cancelled) => Exit::Failed,
        None if execution_status(state, &waiting(state)) == ExecutionStatus::Waiting => {
            stopped.unwrap_or(Exit::Waiting)
        }
        None => Exit::Interrupted,
    }
}
