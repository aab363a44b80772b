//! Executions of a mesh, as commands name them: by id, by the first characters of one, or `@latest`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use sinew_engine::Time;
use sinew_executor::client::Client;
use sinew_inspection::list::{ExecutionRow, RowFault, RowFilter};
use sinew_inspection::record::{self, Record};
use sinew_inspection::view_context::MeshPresence;
use sinew_inspection::words;
use sinew_mesh::Mesh;
use sinew_mesh::card::{AnnouncedCard, Cards};
use sinew_mesh::history::{ClosedExecution, HistoryFilter};
use sinew_mesh::history_index::{HistoryCursor, HistoryIndex};
use sinew_mesh::workflow::Workflows;
use sinew_protocol::card::{self, AGENT_CALL_PREFIX, AgentKind, PERSON_QUESTION};
use sinew_protocol::code;
use sinew_protocol::command::Command;
use sinew_protocol::journal::{ExecutionRecord, Verdict};
use sinew_protocol::query::ExecutionStatus;
use sinew_protocol::query::Summary;
use sinew_protocol::{ExecutionId, Token};
use sinew_runtime::Program;

use crate::failure::{Failure, FailureKind};

/// Returns the agents of a mesh, for a program that looks once; see [`MeshOperator::online`].
pub async fn online(mesh: &Mesh) -> Result<Cards, Failure> {
    let cards = mesh.cards().follow();
    cards.current().await?;
    Ok(cards)
}

/// No execution has this id, or begins with it.
pub const NO_SUCH_EXECUTION: &str = code::EXECUTION_NOT_FOUND.as_str();
/// Several executions begin with this text.
pub const SEVERAL: &str = code::EXECUTION_AMBIGUOUS.as_str();
/// A command was refused.
const REFUSED: &str = code::CLIENT_COMMAND_REFUSED.as_str();

/// Text that names the execution that was started last.
const LATEST: &str = "@latest";
/// Executions that are looked through for the first characters of an id.
const LOOKED_THROUGH: usize = 20_000;
/// Executions that are looked through for the latest that nobody else started.
const NEWEST: usize = 30;
/// Executions above one another that are followed upwards.
const MAX_CALL_DEPTH: usize = 64;
/// How long a decision about a command is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Records fetched at the same time.
const AT_ONCE: usize = 16;

/// Closed executions whose records are read for a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowDetails {
    /// All: labels are wanted.
    All,
    /// Executions that did not end well: only the reason is wanted.
    Faults,
}

/// A mesh, as an operator works with it.
#[derive(Clone, Debug)]
pub struct MeshOperator {
    /// Client of the executions.
    pub client: Client,
    /// Closed executions, as far as lists have read them.
    history: Arc<HistoryIndex>,
}

impl MeshOperator {
    /// Works through a client.
    pub fn new(client: Client) -> Self {
        Self { client, history: Arc::default() }
    }

    /// The same, with what other lists of the process have read of the history.
    #[must_use]
    pub fn with_history(self, history: Arc<HistoryIndex>) -> Self {
        Self { history, ..self }
    }

    /// The mesh.
    pub fn mesh(&self) -> &Mesh {
        self.client.mesh()
    }

    /// The workflows that are deployed on it; a failure if they cannot be read now.
    pub async fn workflows(&self) -> Result<Workflows, Failure> {
        let workflows = self.client.programs().workflows.clone();
        workflows.current().await?;
        Ok(workflows)
    }

    /// The agents that are online; a failure if their cards cannot be read now.
    pub async fn online(&self) -> Result<Cards, Failure> {
        let cards = self.client.cards().clone();
        cards.current().await?;
        Ok(cards)
    }

    /// Returns the milliseconds since the last heartbeat of each agent that is online. Workflows have none: executors serve
    /// them, and announce them seldom.
    pub fn heartbeats(cards: &Cards) -> BTreeMap<String, u64> {
        let age = |announced: Arc<AnnouncedCard>| {
            let name = announced.card.name.clone();
            let is_workflow = card::kind(&announced.card) == AgentKind::Workflow;
            let age = if is_workflow { 0 } else { cards.age(&name)?.as_millis() as u64 };
            Some((name, age))
        };
        cards.list().into_iter().filter_map(age).collect()
    }

    /// Returns how the mesh stands as far as an execution is concerned: its agents and its executor.
    pub async fn presence(&self, id: &ExecutionId) -> Result<MeshPresence, Failure> {
        let cards = self.online().await?;
        let has_owner = Some(self.client.has_owner(id).await?);
        Ok(MeshPresence { agents: Some(Self::heartbeats(&cards)), has_owner })
    }

    /// The execution that a text names.
    pub async fn find(&self, text: &str) -> Result<ExecutionId, Failure> {
        let everything = |_: &ExecutionRow| true;
        if text == LATEST {
            let none = || Failure::new(FailureKind::NotFound, NO_SUCH_EXECUTION, "no execution exists yet");
            return self.latest(everything, NEWEST).await?.ok_or_else(none);
        }
        let whole = parse(text)?;
        if self.client.record(&whole).await?.is_some() {
            return Ok(whole);
        }
        let rows = self.rows(&HistoryFilter::default(), LOOKED_THROUGH).await?;
        // A start that no executor has taken has no record.
        if rows.iter().any(|row| row.execution == text)
            || self.client.own_stored_start(&whole).await?.is_some()
        {
            return Ok(whole);
        }
        match only_beginning(rows.iter(), text)? {
            Some(found) => Ok(found),
            None => Err(self.missing(&whole).await?),
        }
    }

    /// The execution that the first characters of an id or `@latest` name among the rows that are taken. `None` if none of them
    /// is meant.
    pub async fn find_among(
        &self,
        text: &str,
        takes: impl Fn(&ExecutionRow) -> bool,
    ) -> Result<Option<ExecutionId>, Failure> {
        if text == LATEST {
            return self.latest(takes, LOOKED_THROUGH).await;
        }
        let rows = self.rows(&HistoryFilter::default(), LOOKED_THROUGH).await?;
        only_beginning(rows.iter().filter(|row| takes(row)), text)
    }

    /// The execution that was started last, also when no executor has taken its start; one that another execution started does
    /// not count, if there is a choice.
    async fn latest(
        &self,
        takes: impl Fn(&ExecutionRow) -> bool,
        limit: usize,
    ) -> Result<Option<ExecutionId>, Failure> {
        let mut rows = self.rows(&HistoryFilter::default(), limit).await?;
        rows.retain(takes);
        rows.sort_by_key(|row| std::cmp::Reverse(row.started));
        for row in rows.iter().take(NEWEST) {
            let id = parse(&row.execution)?;
            let is_by_a_caller = match self.client.record(&id).await? {
                Some(stored) => stored.meta.caller_task().is_none(),
                // A start that no executor has taken. Ids of sub-workflows are derived, and so are some of callers.
                None => !id.has_derived_form() || self.client.own_stored_start(&id).await?.is_some(),
            };
            if is_by_a_caller {
                return Ok(Some(id));
            }
        }
        let Some(newest) = rows.first() else { return Ok(None) };
        self.outermost(parse(&newest.execution)?).await.map(Some)
    }

    /// The execution that a caller started and that led to this one; this one if the records above are gone.
    async fn outermost(&self, id: ExecutionId) -> Result<ExecutionId, Failure> {
        let mut outermost = id;
        for _ in 0..MAX_CALL_DEPTH {
            let Some(stored) = self.client.record(&outermost).await? else { break };
            let Some((above, _)) = stored.meta.caller_task() else { break };
            outermost = above.clone();
        }
        Ok(outermost)
    }

    /// All that is known of an execution.
    pub async fn record(&self, id: &ExecutionId) -> Result<Record, Failure> {
        let Some(stored) = self.client.record(id).await? else { return Err(self.missing(id).await?) };
        let folded = self.client.folded(&stored).await?;
        Record::decode(stored, folded.program().clone()).map_err(|why| {
            Failure::new(
                FailureKind::Failed,
                code::NOT_EXPORT_OF_EXECUTION.as_str(),
                format!("the record of {id} cannot be used: {why}"),
            )
        })
    }

    /// Returns why there is no record of an execution: its start is stored and no executor has taken it, or there is none.
    async fn missing(&self, id: &ExecutionId) -> Result<Failure, Failure> {
        let is_stored = self.client.own_stored_start(id).await?.is_some()
            || self.client.open().await?.iter().any(|summary| summary.execution == *id);
        if !is_stored {
            let shard = id.shard(self.mesh().admin().layout().await?.shards);
            let unknown = no_such(id.as_str());
            return Ok(if self.client.unlisted_shards().await?.contains(&shard) {
                unknown.hint(
                    "no executor serves its shard, and stored starts of other callers are not visible to \
                     this user",
                )
            } else {
                unknown
            });
        }
        let text = format!("execution {id} is stored, but no executor has started it");
        Ok(Failure::new(FailureKind::Conflict, code::START_NOT_TAKEN.as_str(), text).hint(
            "start an executor with `sinew serve executor` or `sinew dev`; `sinew top` lists the running ones",
        ))
    }

    /// Open executions and the latest closed ones: at most `limit` of those.
    pub async fn rows(&self, filter: &HistoryFilter, limit: usize) -> Result<Vec<ExecutionRow>, Failure> {
        let summaries = self.client.open().await?;
        let heartbeats = if summaries.iter().any(|summary| !summary.agents.is_empty()) {
            Some(Self::heartbeats(&self.online().await?))
        } else {
            None
        };
        let presence = MeshPresence { agents: heartbeats, has_owner: None };
        let rows = summaries.into_iter().map(|summary| open(summary, &presence)).collect();
        Ok(with_closed(rows, self.mesh().history().list(filter, limit).await?))
    }

    /// The open executions, and the closed ones behind a place, those started last first and at most `limit` of them.
    pub async fn rows_behind(
        &self,
        wanted: &RowFilter,
        behind: Option<&HistoryCursor>,
        limit: usize,
    ) -> Result<Vec<ExecutionRow>, Failure> {
        let open_rows = self.rows(&HistoryFilter::default(), 0).await?;
        // A retried execution goes on, and its record is that of an earlier end.
        let going_on = open_rows.iter().filter(|row| !row.status.is_terminal());
        let going_on: HashMap<&str, Time> =
            going_on.map(|row| (row.execution.as_str(), row.started)).collect();
        let wants = |closed: &ClosedExecution| {
            takes_closed(wanted, closed, status_of_word(&closed.status))
                && going_on.get(closed.execution.as_str()).is_none_or(|started| *started > closed.started)
        };
        let closed = self.history.page(self.mesh(), &wants, behind, limit).await?;
        Ok(with_closed(open_rows, closed))
    }

    /// Fills in what only the records of closed executions know: labels, and why they failed.
    pub async fn with_details(
        &self,
        rows: Vec<ExecutionRow>,
        details: RowDetails,
    ) -> Result<Vec<ExecutionRow>, Failure> {
        let filled = futures_util::stream::iter(rows).map(|mut row| async move {
            let is_wanted = row.status.is_terminal()
                && (details == RowDetails::All || !matches!(row.status, ExecutionStatus::Success));
            if is_wanted && let Some(stored) = self.closed_record(&row).await? {
                row.labels.clone_from(&stored.meta.labels);
                if row.status != ExecutionStatus::Success {
                    // A record that cannot be folded is listed all the same.
                    let folded = self.client.folded(&stored).await.ok();
                    let record =
                        folded.and_then(|folded| Record::decode(stored, folded.program().clone()).ok());
                    row.fault = record.as_ref().and_then(RowFault::of).or(row.fault);
                }
            }
            Ok(row)
        });
        filled.buffered(AT_ONCE).collect::<Vec<Result<ExecutionRow, Failure>>>().await.into_iter().collect()
    }

    /// The record of a closed execution: the one in the history, unless the execution was opened again since.
    async fn closed_record(&self, row: &ExecutionRow) -> Result<Option<ExecutionRecord>, Failure> {
        let id = parse(&row.execution)?;
        if let Ok(Some((_, bytes))) = self.mesh().history().get(&id).await
            && let Ok(record) = ExecutionRecord::decode(&bytes)
        {
            return Ok(Some(record));
        }
        Ok(self.client.record(&id).await?)
    }

    /// Gives a command and waits for what became of it.
    pub async fn signal(&self, command: Command) -> Result<Verdict, Failure> {
        let id = Token::of(&uuid::Uuid::now_v7().simple().to_string());
        let verdict = self.client.signal(&id, command, PATIENCE).await?;
        if verdict.accepted {
            return Ok(verdict);
        }
        let reason = if verdict.reason.is_empty() { "it was refused" } else { &verdict.reason };
        Err(Failure::new(FailureKind::Conflict, REFUSED, reason.to_owned()))
    }
}

/// Rows of open executions together with those of closed ones. One that was just closed may be told of by its owner still.
fn with_closed(mut rows: Vec<ExecutionRow>, found: Vec<ClosedExecution>) -> Vec<ExecutionRow> {
    let mut places: HashMap<String, usize> =
        rows.iter().enumerate().map(|(place, row)| (row.execution.clone(), place)).collect();
    for closed in found {
        let row = self::closed(closed);
        match places.get(&row.execution).map(|place| &mut rows[*place]) {
            Some(known) if !known.status.is_terminal() && known.started <= row.started => {}
            Some(known) => *known = row,
            None => {
                places.insert(row.execution.clone(), rows.len());
                rows.push(row);
            }
        }
    }
    rows
}

/// Whether a filter takes a closed execution, as far as the headers of its record tell: labels are passed over.
pub(crate) fn takes_closed(wanted: &RowFilter, closed: &ClosedExecution, status: ExecutionStatus) -> bool {
    let fault_code = closed.fault_code.as_ref();
    (wanted.status.is_empty() || wanted.status.contains(&status))
        && (wanted.workflow.is_empty() || wanted.workflow.contains(&closed.workflow))
        && wanted.caller.as_ref().is_none_or(|caller| *caller == closed.caller)
        && wanted.since.is_none_or(|since| closed.started >= since)
        && wanted.until.is_none_or(|until| closed.started < until)
        && (wanted.errors.is_empty() || fault_code.is_some_and(|code| wanted.errors.contains(code)))
}

/// The only execution of these whose id begins with a text; `None` if there is none.
fn only_beginning<'a>(
    rows: impl Iterator<Item = &'a ExecutionRow>,
    text: &str,
) -> Result<Option<ExecutionId>, Failure> {
    let mut found = rows.filter(|row| row.execution.starts_with(text));
    let Some(first) = found.next() else { return Ok(None) };
    let Some(second) = found.next() else { return parse(&first.execution).map(Some) };
    let more = found.count();
    let others = if more > 0 { format!(" and {more} more") } else { String::new() };
    let (first, second) = (&first.execution, &second.execution);
    let text = format!("'{text}' matches several executions: {first}, {second}{others}");
    Err(Failure::new(FailureKind::Usage, SEVERAL, text).hint("use a longer prefix"))
}

fn parse(text: &str) -> Result<ExecutionId, Failure> {
    ExecutionId::parse(text).map_err(|_| no_such(text))
}

fn no_such(text: &str) -> Failure {
    let shown = words::one_line(text, 80);
    Failure::new(FailureKind::NotFound, NO_SUCH_EXECUTION, format!("execution '{shown}' not found"))
        .hint("see `sinew execution list`; a prefix of an id and @latest are accepted")
}

/// Returns what an open execution waits for: who paused it, else an agent that cannot answer, with the reason.
pub fn waiting_for(summary: &Summary, presence: &MeshPresence) -> Option<String> {
    if summary.status == ExecutionStatus::Paused {
        return summary.waiting.clone();
    }
    let concern = summary
        .agents
        .iter()
        .find_map(|agent| presence.short_concern(agent).map(|concern| format!("agent {agent} ({concern})")));
    concern.or_else(|| summary.waiting.clone())
}

fn open(summary: Summary, presence: &MeshPresence) -> ExecutionRow {
    let waiting = waiting_for(&summary, presence);
    ExecutionRow {
        execution: summary.execution.to_string(),
        workflow: summary.workflow,
        status: status_of_word(summary.status.as_str()),
        started: summary.started,
        ended: summary.ended,
        stopped: None,
        dry_run: false,
        caller: record::caller(&summary.caller),
        waiting,
        fault: None,
        labels: summary.labels,
        usage: summary.usage,
    }
}

fn closed(closed: ClosedExecution) -> ExecutionRow {
    let caller = Token::parse(&closed.caller).ok().map(|token| record::caller(&token));
    ExecutionRow {
        execution: closed.execution.to_string(),
        workflow: closed.workflow,
        status: status_of_word(&closed.status),
        started: closed.started,
        ended: Some(closed.ended),
        stopped: None,
        dry_run: closed.is_dry_run,
        caller: caller.unwrap_or(closed.caller),
        waiting: None,
        fault: closed.fault_code.map(RowFault::with_code),
        labels: BTreeMap::new(),
        usage: closed.usage,
    }
}

/// Returns the status of a word of the wire; an execution with an unknown word goes on, as far as anybody can tell.
pub fn status_of_word(word: &str) -> ExecutionStatus {
    ExecutionStatus::parse(word).unwrap_or(ExecutionStatus::Running)
}

/// The adapter of a dialect.
pub fn adapter(dialect: &str) -> Option<&'static dyn sinew_engine::Adapter> {
    sinew_dialects::adapter(dialect)
}

/// Returns the workflow of this name that every mesh has: the one that asks an agent once, or a person.
pub fn built_in_workflow(name: &str) -> Option<Program> {
    let plan = match name.strip_prefix(AGENT_CALL_PREFIX) {
        Some(agent) => sinew_dialects::sam::agent_call_plan(agent)?,
        None if name == PERSON_QUESTION => sinew_dialects::person_question_plan(),
        None => return None,
    };
    let adapter = adapter(&plan.dialect)?;
    Program::new(plan, adapter).ok()
}
