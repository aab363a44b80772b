//! `sinew run` on a mesh: starts an execution, and follows it by default.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use sinew_documents::execution::WaitKind;
use sinew_documents::words;
use sinew_inspection::execution_status::{end_word, status_of};
use sinew_inspection::node_rows;
use sinew_inspection::record::Record;
use sinew_inspection::tree::TreeOptions;
use sinew_inspection::view_context::{MeshPresence, ViewContext};
use sinew_inspection::waiting;
use sinew_operations::deployment;
use sinew_operations::execution_changes::ExecutionChanges;
use sinew_operations::execution_changes::FoundExecution;
use sinew_operations::export_file;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::mesh_operator::MeshOperator;
use sinew_operations::start::{StartKey, StartRequest, StartTarget};
use sinew_operations::workflow_file::{self, Loaded};
use sinew_plan::NodeOperation;
use sinew_protocol::ExecutionId;
use sinew_protocol::code;
use sinew_protocol::query::ExecutionStatus;
use sinew_runtime::local;

use super::{RunArgs, mode, refused, report_asks};
use crate::cmd::execution::retry::wait_until_known;
use crate::cmd::execution::watch::{Follow, follow};
use crate::connect::{Connection, block_traced};
use crate::deadline::{Deadline, DeadlinePassed, ran_out};
use crate::exit::Exit;
use crate::input;
use crate::output::{Format, Output};
use crate::status_values::exit_of;

/// Flags that make `run` use a mesh.
#[derive(Args, Clone, Debug)]
pub(crate) struct OnMesh {
    /// Id of the execution, instead of a generated one
    #[arg(long, value_name = "ID", help_heading = "On a mesh")]
    id: Option<String>,
    /// Key that identifies repeated starts of one execution
    #[arg(long, value_name = "KEY", conflicts_with = "id", help_heading = "On a mesh")]
    idempotency_key: Option<String>,
    /// Label for filtering lists. May be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", help_heading = "On a mesh")]
    labels: Vec<String>,
    /// Input stored on the mesh: the address that `sinew artifact put` printed
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["input", "params"], help_heading = "On a mesh")]
    input_artifact: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

impl OnMesh {
    /// Returns whether a mesh is selected. `is_local` is true if a flag applies to this process only.
    pub(super) fn is_meant(&self, is_local: bool) -> bool {
        self.connection.is_meant(is_local)
    }
}

/// Rejects flags that need a mesh.
pub(super) fn refuse(args: &RunArgs) -> Result<(), Failure> {
    let on = &args.on;
    let given = [
        ("--detach", args.detach),
        ("--wait", args.wait),
        ("--id", on.id.is_some()),
        ("--idempotency-key", on.idempotency_key.is_some()),
        ("--label", !on.labels.is_empty()),
        ("--input-artifact", on.input_artifact.is_some()),
    ];
    match given.iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((flag, _)) => {
            Err(Failure::usage(format!("{flag} needs a mesh: an in-process execution ends with its command"))
                .hint(
                    "add --nats URL, or --mesh to use the mesh of your environment; `sinew dev` starts one",
                ))
        }
    }
}

/// Returns whether a flag was given that is not supported on a mesh.
pub(super) fn has_local_flag(args: &RunArgs) -> bool {
    refuse_local(args).is_err()
}

/// Rejects flags that are not supported on a mesh.
fn refuse_local(args: &RunArgs) -> Result<(), Failure> {
    let given = [
        ("--agents", !args.agents.is_empty(), "start agents of a mesh with `sinew serve agent FILE`"),
        (
            "--model",
            args.model.is_some(),
            "start agents of a mesh with `sinew serve agent FILE --model ALIAS`",
        ),
        ("--answer", !args.answer.is_empty(), "answer with `sinew approval approve`"),
        ("--events", args.events.is_some(), "show them with `sinew execution events -f`"),
        ("--artifacts", args.artifacts.is_some(), "fetch them with `sinew artifact get`"),
    ];
    match given.iter().find(|(_, given, _)| *given) {
        None => Ok(()),
        Some((flag, _, instead)) => {
            let text = format!("{flag} is not supported on a mesh");
            Err(Failure::new(FailureKind::Usage, code::MESH_REQUIRED.as_str(), text).hint(*instead))
        }
    }
}

/// How long a detached start waits for an executor to take it.
const TAKEN_WITHIN: Duration = Duration::from_secs(2);

/// Workflow to start.
enum WantedWorkflow {
    File(Box<Loaded>),
    Name { name: String, version: Option<String> },
}

/// Starts an execution on a mesh.
pub(super) fn run(args: &RunArgs, output: &Output) -> Result<Exit, Failure> {
    refuse_local(args)?;
    let deadline = Deadline::from_flag(args.timeout.as_deref())?;
    let wanted = wanted(args)?;
    let value = input::read(args.input.as_deref(), &args.params)?;
    let value = match &wanted {
        WantedWorkflow::File(loaded) => workflow_file::input(loaded.dialect, value, args.fetch)?,
        WantedWorkflow::Name { .. } => value,
    };
    let labels: BTreeMap<String, String> = input::pairs(&args.on.labels, "--label")?.into_iter().collect();
    let mode = mode(args)?;
    block_traced(async {
        let prepared = deadline.within("connecting and storing the workflow", async {
            let remote = args.on.connection.operator().await?;
            let target = match wanted {
                WantedWorkflow::File(loaded) => put(&remote, &loaded, args, output).await?,
                WantedWorkflow::Name { name, version } => StartTarget::Workflow { name, version },
            };
            let mut request = StartRequest::new(target, value);
            request.key = StartKey::of(args.on.id.clone(), args.on.idempotency_key.clone())?;
            request.input_artifact = args.on.input_artifact.clone();
            request.labels = labels;
            request.mode = mode;
            let start = remote.prepare_start(request).await?;
            Ok((remote, start))
        });
        let (remote, start) = prepared.await?;
        let id = start.execution().clone();
        let Ok(stored) = deadline.bound(remote.start(start)).await else {
            let failure = ran_out(&format!("storing the start of execution {id}"));
            return Err(failure.hint("it may be stored anyway; check with `sinew execution list`"));
        };
        let started = stored?;
        for warning in &started.warnings {
            output.note(&format!("warning: {warning}"));
        }
        if !started.new {
            output.note(&format!("execution {id} already exists; no new execution was started"));
        }
        let workflow = &started.workflow.clone();
        if args.detach {
            // The next command then finds the execution, and the caller learns of a refusal.
            let patience = deadline.left().map_or(TAKEN_WITHIN, |left| left.min(TAKEN_WITHIN));
            if !remote.wait_started(&id, workflow, patience).await? {
                output.note("no executor has taken the start yet; it is stored until one does");
            }
            let mut started = started;
            started.paused = remote.kept_start(&id, &started.workflow).await;
            if let Some(paused) = &started.paused {
                output.note(&format!("the execution waits: {paused}"));
            }
            output.value(&started, |started| started.execution.clone());
            return Ok(Exit::Ok);
        }
        output.note(&format!("execution {id}"));
        let how = Follow {
            options: TreeOptions::default(),
            deadline,
            people: args.watch,
            show: !args.wait && (args.watch || output.live),
        };
        ended(remote, &id, workflow, &how, args, output).await
    })
}

fn wanted(args: &RunArgs) -> Result<WantedWorkflow, Failure> {
    let text = args.file.to_string_lossy();
    if !deployment::is_workflow_name(&args.file) {
        let options = workflow_file::Options {
            dialect: args.dialect.clone(),
            agents: input::pairs(&args.default_agent, "--default-agent")?.into_iter().collect(),
            fetch: args.fetch,
            variables: args.variables.rules()?,
            cost_usd: args.cost_usd,
            ..workflow_file::Options::default()
        };
        return Ok(WantedWorkflow::File(Box::new(workflow_file::workflow(&args.file, &options)?)));
    }
    let for_files = args.workflow.is_some() || args.dialect.is_some() || !args.default_agent.is_empty();
    if for_files || args.variables.is_given() || args.cost_usd.is_some() {
        let text = "--workflow, --dialect, --default-agent, --cost-usd and --env apply to files only";
        return Err(Failure::usage(text));
    }
    let (name, version) =
        text.split_once('@').map_or((text.as_ref(), None), |(name, version)| (name, Some(version)));
    Ok(WantedWorkflow::Name { name: name.to_owned(), version: version.map(str::to_owned) })
}

/// Stores the plan of a file, and deploys the workflows of the same file that it calls.
async fn put(
    remote: &MeshOperator,
    loaded: &Loaded,
    args: &RunArgs,
    output: &Output,
) -> Result<StartTarget, Failure> {
    let lowered = loaded.pick(args.workflow.as_deref())?;
    if lowered.warnings.has_errors() {
        return Err(Failure::diagnostics(lowered.warnings.clone()));
    }
    if !lowered.warnings.is_empty() {
        output.note_block(sinew_source::render_text(&lowered.warnings, output.color_err).trim_end());
    }
    workflow_file::program(loaded.dialect, lowered)?;
    let calls = |name: &str| loaded.workflows.iter().any(|other| other.plan.name == name);
    let called = lowered.plan.nodes.iter().filter(|node| node.op == NodeOperation::Workflow);
    if called.filter_map(|node| node.agent.as_deref()).any(calls) {
        for one in deployment::deploy(remote.mesh(), loaded)
            .await?
            .iter()
            .map(|one| &one.deployed)
            .filter(|one| one.new)
        {
            output.note(&format!("deployed {}@{}", one.name, words::short(&one.version)));
        }
    }
    let source = Some(args.file.as_path()).filter(|path| *path != Path::new("-"));
    let digest =
        deployment::store(remote.mesh(), &lowered.plan, source, deployment::texts_of(lowered)).await?;
    Ok(StartTarget::Plan { name: lowered.plan.name.clone(), digest })
}

/// Follows the execution and reports how it ended.
async fn ended(
    remote: MeshOperator,
    id: &ExecutionId,
    workflow: &str,
    how: &Follow,
    args: &RunArgs,
    output: &Output,
) -> Result<Exit, Failure> {
    let begun = async {
        wait_until_known(&remote, id, workflow, output).await?;
        let record = remote.record(id).await?;
        ExecutionChanges::of(FoundExecution { record, remote: Some(remote) }).await
    };
    let changes = how.deadline.bound(begun).await.unwrap_or_else(|DeadlinePassed| {
        let failure = ran_out(&format!("waiting for an executor to start execution {id}"));
        let id = words::shell(id.as_str());
        Err(failure.hint(format!("the start is stored; follow it with: sinew execution watch {id}")))
    })?;
    // The first signal stops the watch, not the execution.
    let record = tokio::select! {
        followed = follow(changes, how, output) => followed?,
        _ = tokio::signal::ctrl_c() => {
            let id = words::shell(words::short_id(id.as_str()));
            output.note(&format!("the execution continues; follow it with: sinew execution watch {id}"));
            return Ok(Exit::Interrupted);
        }
    };
    report(args, &record, output);
    if let Some(file) = &args.export {
        export_file::write(&record, file)?;
    }
    let status = status_of(record.execution.state());
    let context = ViewContext::of(&record.execution, local::now(), &MeshPresence::default());
    let waits = waiting::waits(&record, &context);
    match status {
        ExecutionStatus::Running | ExecutionStatus::Paused => {
            let id = words::shell(words::short_id(id.as_str()));
            let why = waiting::summary(&waits).map(|why| format!(" and waits for {why}")).unwrap_or_default();
            output.note(&format!(
                "the execution is {}{why}; follow it with: sinew execution watch {id}",
                status.as_str()
            ));
        }
        ExecutionStatus::Waiting => {
            for wait in waits.iter().filter(|wait| wait.what == WaitKind::Person) {
                let node = wait.node.as_deref().unwrap_or_default();
                let prompt =
                    wait.question.as_ref().map(|question| question.prompt.as_str()).unwrap_or_default();
                output.error_line(&format!(
                    "waiting for a person at '{node}': {}",
                    words::one_line(prompt, 200)
                ));
                let id = words::shell(id.as_str());
                output.note(&format!("hint: sinew approval approve {id} --node {}", words::shell(node)));
            }
        }
        _ => {}
    }
    let state = record.execution.state();
    if state.ended && record.execution.ctx().dry_run() && !refused(&record.execution) {
        return Ok(Exit::Ok); // as in one process: a real run may end differently
    }
    Ok(exit_of(status))
}

/// Prints the output to stdout and a failure to stderr, or everything as one document.
fn report(args: &RunArgs, record: &Record, output: &Output) {
    let state = record.execution.state();
    let outcome = state.outcome.as_ref().filter(|_| state.ended);
    if state.ended && record.execution.ctx().dry_run() && !refused(&record.execution) {
        report_asks(&record.execution, output);
        return;
    }
    super::report_warnings(&record.execution, output);
    let until = if state.ended { state.at } else { state.at.max(local::now()) };
    if output.is_machine() {
        let mut document = json!({
            "execution": record.id(),
            "workflow": record.plan().name,
            "status": words::status_word(status_of(state)),
            "duration_ms": until.saturating_sub(state.started_at),
            "output": outcome.and_then(|outcome| outcome.output.clone()),
            "error": outcome.and_then(|outcome| outcome.fault.clone()),
            "nodes": node_rows::rows(&record.execution, until),
        });
        if args.native {
            document["native"] = record.execution.native_result();
        }
        output.value(&document, |_| String::new());
        return;
    }
    let native = args.native.then(|| record.execution.native_result());
    let value = native.as_ref().or_else(|| outcome.and_then(|outcome| outcome.output.as_deref()));
    if output.format == Format::Name {
        output.line(record.id());
    } else if let Some(value) = value {
        match value {
            Value::String(text) if output.format == Format::Table => output.text(text),
            value => output.text(&serde_json::to_string_pretty(value).unwrap_or_default()),
        }
    }
    if let Some((outcome, fault)) = outcome.and_then(|outcome| Some((outcome, outcome.fault.as_ref()?))) {
        let message = words::ending(end_word(outcome.status), &sinew_source::indented(&fault.message));
        output.error_line(&format!("{message} [{}]", fault.code));
        let id = words::shell(record.id());
        output.note(&format!("hint: sinew execution describe {id}"));
    }
}
