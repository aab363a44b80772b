//! `sinew agent` on a mesh: announced cards, and calls through the A2A endpoint.

use serde_json::{Value, json};
use sinew_documents::agent::{AgentLoad, AgentRow, Percentiles};
use sinew_documents::execution_filter::ExecutionFilter;
use sinew_documents::execution_list::ExecutionRow;
use sinew_documents::words;
use sinew_operations::agent_calls::{AgentQuestion, ask_agent, fault_failure};
use sinew_operations::agent_list::{
    describe_agent, find_agent, list_agents, retire_agent, select_agents, set_intake,
};
use sinew_operations::catalogue_records::CatalogueRecords;
use sinew_operations::failure::Failure;
use sinew_operations::mesh_operator::online;
use sinew_protocol::card::{self, AgentKind};

use tokio_util::sync::CancellationToken;

use super::CallArgs;
use super::files::interrupted;
use crate::answer_stream::AnswerStream;
use crate::connect::Connection;
use crate::exit::Exit;
use crate::output::{Format, Output};

/// Lists agents.
pub(super) async fn list(args: &super::AgentSources, output: &Output) -> Result<Exit, Failure> {
    let mesh = args.on.connection.open("cli").await?;
    mesh.admin().layout().await?;
    let cards = online(&mesh).await?;
    let mut rows = list_agents(&mesh, &cards).await?;
    if args.filter.is_set() {
        let records = CatalogueRecords::open(&mesh).await.set();
        let selected = select_agents(&mesh, &cards, (&records, &args.filter.query()), |_| true).await?;
        rows.retain(|row| selected.contains(&row.name));
    }
    output.value(&rows, |rows| match output.format {
        _ if rows.is_empty() && args.filter.is_set() => "no agent passes the filters".to_owned(),
        _ if rows.is_empty() => "no agent is online".to_owned(),
        format => table(rows, format == Format::Wide),
    });
    for refused in cards.refused() {
        let agent = refused.agent.name().unwrap_or_else(|| refused.agent.to_string());
        output.note(&format!(
            "warning: the card of '{}' is refused: {}",
            words::one_line(&agent, 60),
            refused.reason
        ));
    }
    Ok(Exit::Ok)
}

fn table(rows: &[AgentRow], wide: bool) -> String {
    let mut heads =
        vec!["NAME", "STATE", "REPLICAS", "QUEUED", "WORKING", "WORK p50/p95", "QUEUE p50/p95", "ERRORS"];
    heads.push("HEARTBEAT");
    if wide {
        heads.extend(["VERSION", "SKILLS"]);
    }
    heads.push("DESCRIPTION");
    let mut lines = vec![heads.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for row in rows {
        let work = row.work.as_ref();
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let mut line = vec![
            words::one_line(&row.name, 60),
            row.state.as_str().to_owned(),
            work.map_or_else(|| "-".to_owned(), replicas),
            number(row.queued),
            number(work.map(|work| work.working)),
            times(work.and_then(|work| work.work_ms)),
            times(work.and_then(|work| work.queue_ms)),
            number(work.map(|work| work.errors)),
            format!("{} ago", words::duration(row.heartbeat_age_ms)),
        ];
        if wide {
            line.push(words::one_line(&row.version, 20));
            line.push(words::one_line(&row.skills.join(","), 60));
        }
        line.push(words::one_line(&row.description, if wide { 200 } else { 60 }));
        lines.push(line);
    }
    words::columns(&lines)
}

/// Formats the number of processes, and of those that drain.
fn replicas(work: &AgentLoad) -> String {
    match work.draining {
        0 => work.replicas.to_string(),
        draining => format!("{} ({draining} draining)", work.replicas),
    }
}

/// Formats the median and the 95th percentile.
fn times(times: Option<Percentiles>) -> String {
    times.map_or_else(
        || "-".to_owned(),
        |times| format!("{}/{}", words::duration(times.p50), words::duration(times.p95)),
    )
}

/// Stops or resumes the intake of an agent.
pub(super) async fn intake(args: &super::IntakeArgs, open: bool, output: &Output) -> Result<Exit, Failure> {
    let mesh = args.connection.open("cli").await?;
    mesh.admin().layout().await?;
    let cards = online(&mesh).await?;
    let changed = set_intake(&mesh, &cards, &args.name, args.process.as_deref(), open).await?;
    output.value(&changed, |changed| {
        let processes = words::count(changed.processes.len(), "process");
        let working = words::count(usize::try_from(changed.working).unwrap_or(usize::MAX), "task");
        let name = words::name(&changed.name);
        if open {
            format!("{name}: {processes} take tasks again")
        } else {
            format!("{name}: {processes} take no new tasks; {working} in progress")
        }
    });
    Ok(Exit::Ok)
}

/// Removes an offline agent from the lists.
pub(super) async fn retire(name: &str, connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    let mesh = connection.open("cli").await?;
    mesh.admin().layout().await?;
    let retired = retire_agent(&mesh, &online(&mesh).await?, name).await?;
    output.value(&retired, |retired| format!("retired {}", words::name(&retired.name)));
    Ok(Exit::Ok)
}

/// Describes an agent.
pub(super) async fn describe(name: &str, connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    let operator = connection.operator().await?;
    let mut details = describe_agent(operator.mesh(), &operator.online().await?, name).await?;
    details.last_errors = Some(operator.agent_errors(&details.name, ExecutionFilter::default()).await?);
    output.value(&details, |agent| {
        let schema = |schema: &Option<Value>| {
            let text = schema.as_ref().map(|schema| words::one_line(&schema.to_string(), 300));
            text.unwrap_or_else(|| "any JSON".to_owned())
        };
        let skills: Vec<&str> = agent.skills.iter().map(|skill| skill.id.as_str()).collect();
        let (name, version) = (words::one_line(&agent.name, 100), words::one_line(&agent.version, 40));
        [
            format!("{name} {version} ({})", agent.kind.word()),
            sinew_source::indented(&agent.description),
            String::new(),
            format!("  input     {}", schema(&agent.input_schema)),
            format!("  output    {}", schema(&agent.output_schema)),
            format!("  skills    {}", words::one_line(&skills.join(", "), 200)),
            format!("  delivery  {}", agent.delivery),
            format!("  state     {}", agent.state.as_str()),
            format!("  heartbeat {} ago", words::duration(agent.heartbeat_age_ms)),
            format!(
                "  queued    {}",
                agent.queued.map_or_else(|| "-".to_owned(), |queued| queued.to_string())
            ),
        ]
        .into_iter()
        .chain(agent.work.as_ref().into_iter().flat_map(work_lines))
        .chain(errors(agent.last_errors.as_deref().unwrap_or_default()))
        .collect::<Vec<_>>()
        .join("\n")
    });
    Ok(Exit::Ok)
}

/// Describes the work of an agent's processes.
fn work_lines(work: &AgentLoad) -> [String; 5] {
    [
        format!("  replicas  {}", replicas(work)),
        format!("  working   {}", work.working),
        format!("  errors    {} of {}", work.errors, work.tasks),
        format!("  work      {} (p50/p95)", times(work.work_ms)),
        format!("  queue     {} (p50/p95)", times(work.queue_ms)),
    ]
}

/// Returns the latest failures of an agent, one per line.
fn errors(rows: &[ExecutionRow]) -> Vec<String> {
    let line = |row: &ExecutionRow| {
        let fault = row.fault.as_ref();
        let text = |member: Option<&str>, limit| words::one_line(member.unwrap_or("-"), limit);
        format!(
            "  {}  {}  {} [{}]",
            words::short_id(&row.execution),
            text(fault.and_then(|fault| fault.node.as_deref()), 40),
            text(fault.map(|fault| fault.message.as_str()), 200),
            text(fault.map(|fault| fault.code.as_str()), 20)
        )
    };
    if rows.is_empty() {
        return Vec::new();
    }
    [String::new(), "Last errors:".to_owned()].into_iter().chain(rows.iter().map(line)).collect()
}

/// Prints a card as it was announced.
pub(super) async fn card(name: &str, connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    let mesh = connection.open("cli").await?;
    mesh.admin().layout().await?;
    let found = find_agent(&online(&mesh).await?, name)?;
    output.value(&found.card, |card| serde_json::to_string_pretty(card).unwrap_or_default());
    Ok(Exit::Ok)
}

/// Calls an agent.
pub(super) async fn call(args: &CallArgs, output: &Output) -> Result<Exit, Failure> {
    let (value, deadline) = (args.value()?, args.deadline()?);
    let ready = deadline.within("connecting and looking for the agent", async {
        let mesh = args.who.on.connection.open("cli").await?;
        mesh.admin().layout().await?;
        let found = find_agent(&online(&mesh).await?, &args.who.name)?;
        Ok((mesh, found))
    });
    let (mesh, found) = ready.await?;
    if card::kind(&found.card) == AgentKind::Workflow {
        output.note("this agent is a workflow; `sinew run` and `sinew tool call` show more of its execution");
    }
    let (said, mut hearing) = tokio::sync::mpsc::unbounded_channel();
    let cancel = CancellationToken::new();
    let question = AgentQuestion {
        agent: &args.who.name,
        input: value,
        instruction: args.instruction.as_deref(),
        context: None,
        timeout: deadline.left(),
        progress: Some(said),
        cancel: cancel.clone(),
    };
    let mut stream = AnswerStream::new(&args.who.name, output);
    let mut asking = std::pin::pin!(ask_agent(&mesh, question));
    let answer = loop {
        tokio::select! {
            biased;
            Some(value) = hearing.recv() => stream.tell(&value),
            answer = &mut asking => break answer?,
            _ = tokio::signal::ctrl_c(), if !cancel.is_cancelled() => cancel.cancel(),
        }
    };
    while let Ok(value) = hearing.try_recv() {
        stream.tell(&value);
    }
    match answer.output {
        Ok(value) if output.is_machine() => {
            let mut told = json!({ "output": value });
            if !answer.usage.is_null() {
                told["usage"] = answer.usage;
            }
            output.value(&told, |_| String::new());
        }
        Ok(value) => stream.answer(&value),
        Err(fault) if cancel.is_cancelled() => return Ok(interrupted(&fault, output)),
        Err(fault) => return Err(fault_failure(&fault)),
    }
    Ok(Exit::Ok)
}
