//! Executions of a mesh, identified by id, by a prefix of one, or by `@latest`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use sinew_documents::execution::caller;
use sinew_documents::execution_filter::{ExecutionFilter, FilteredRow};
use sinew_documents::execution_list::{ExecutionRow, RowFault};
use sinew_documents::timestamp::Timestamp;
use sinew_documents::words;
use sinew_engine::Time;
use sinew_execution::Program;
use sinew_executor::client::Client;
use sinew_inspection::list::{self, row_fault};
use sinew_inspection::record::Record;
use sinew_inspection::view_context::MeshPresence;
use sinew_mesh::Mesh;
use sinew_mesh::card::{AnnouncedCard, Cards};
use sinew_mesh::history::{ClosedExecution, HistoryFilter};
use sinew_mesh::history_index::{HistoryCursor, HistoryIndex};
use sinew_mesh::workflow::Workflows;
use sinew_protocol::attributes::ExecutionAttributes;
use sinew_protocol::card::{self, AGENT_CALL_PREFIX, AgentKind, PERSON_QUESTION};
use sinew_protocol::code;
use sinew_protocol::command::Command;
use sinew_protocol::journal::{ExecutionRecord, Verdict};
use sinew_protocol::query::ExecutionStatus;
use sinew_protocol::query::Summary;
use sinew_protocol::{ExecutionId, Token};

use crate::failure::{Failure, FailureKind};

/// Returns the agents of a mesh for a program that reads them once; see [`MeshOperator::online`].
pub async fn online(mesh: &Mesh) -> Result<Cards, Failure> {
    let cards = mesh.cards().follow();
    cards.current().await?;
    Ok(cards)
}

/// No execution has this id or prefix.
pub const NO_SUCH_EXECUTION: &str = code::EXECUTION_NOT_FOUND.as_str();
/// Several executions have this prefix.
pub const SEVERAL: &str = code::EXECUTION_AMBIGUOUS.as_str();
/// A command was rejected.
const REFUSED: &str = code::CLIENT_COMMAND_REFUSED.as_str();

/// Identifies the most recently started execution.
const LATEST: &str = "@latest";
/// Maximum number of executions searched for an id prefix.
const LOOKED_THROUGH: usize = 20_000;
/// Maximum number of executions searched for the latest one that no execution started.
const NEWEST: usize = 30;
/// Maximum depth of parent executions that are followed.
const MAX_CALL_DEPTH: usize = 64;
/// Time limit for the verdict on a command.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of records fetched concurrently.
pub(crate) const AT_ONCE: usize = 16;

/// Closed executions whose records are read for a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowDetails {
    /// All, because labels are requested.
    All,
    /// Unsuccessful executions, because only the reason is requested.
    Faults,
}

/// Operator's access to a mesh.
#[derive(Clone, Debug)]
pub struct MeshOperator {
    /// Client of the executions.
    pub client: Client,
    /// Closed executions that lists have read.
    pub(crate) history: Arc<HistoryIndex>,
    /// Groups to which a gateway has authenticated the caller to belong.
    pub(crate) groups: Arc<[String]>,
}

impl MeshOperator {
    /// Creates an operator that uses a client.
    pub fn new(client: Client) -> Self {
        Self { client, history: Arc::default(), groups: Arc::default() }
    }

    /// Lets the caller decide as a member of these groups. The mesh accepts it only from users that may publish as any
    /// caller, such as gateways.
    #[must_use]
    pub fn in_groups(self, groups: Arc<[String]>) -> Self {
        Self { groups, ..self }
    }

    /// Shares the history that other lists of the process have read.
    #[must_use]
    pub fn with_history(self, history: Arc<HistoryIndex>) -> Self {
        Self { history, ..self }
    }

    /// The mesh.
    pub fn mesh(&self) -> &Mesh {
        self.client.mesh()
    }

    /// Returns the deployed workflows; fails if they cannot be read.
    pub async fn workflows(&self) -> Result<Workflows, Failure> {
        let workflows = self.client.programs().workflows.clone();
        workflows.current().await?;
        Ok(workflows)
    }

    /// Returns the online agents; fails if their cards cannot be read.
    pub async fn online(&self) -> Result<Cards, Failure> {
        let cards = self.client.cards().clone();
        cards.current().await?;
        Ok(cards)
    }

    /// Returns the milliseconds since the last heartbeat of each online agent. Workflows have no
    /// heartbeats: executors serve them, and announce them infrequently.
    pub fn heartbeats(cards: &Cards) -> BTreeMap<String, u64> {
        let age = |announced: Arc<AnnouncedCard>| {
            let name = announced.card.name.clone();
            let is_workflow = card::kind(&announced.card) == AgentKind::Workflow;
            let age = if is_workflow { 0 } else { cards.age(&name)?.as_millis() as u64 };
            Some((name, age))
        };
        cards.list().into_iter().filter_map(age).collect()
    }

    /// Returns the mesh state that concerns an execution: its agents and its executor.
    pub async fn presence(&self, id: &ExecutionId) -> Result<MeshPresence, Failure> {
        let cards = self.online().await?;
        let has_owner = Some(self.client.has_owner(id).await?);
        Ok(MeshPresence { agents: Some(Self::heartbeats(&cards)), has_owner })
    }

    /// Returns the execution that a text identifies.
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
        // A start that no executor has processed has no record.
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

    /// Returns the execution that an id prefix or `@latest` identifies among the accepted rows, or
    /// `None` if there is none.
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

    /// Returns the most recently started execution, even if no executor has processed its start. An
    /// execution started by another one counts only if there is no other.
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
                // An unprocessed start. Ids of sub-workflows are derived, and so are some ids of
                // callers.
                None => !id.has_derived_form() || self.client.own_stored_start(&id).await?.is_some(),
            };
            if is_by_a_caller {
                return Ok(Some(id));
            }
        }
        let Some(newest) = rows.first() else { return Ok(None) };
        self.outermost(parse(&newest.execution)?).await.map(Some)
    }

    /// Returns the root execution, started by a caller, that led to this one; this one if the
    /// parents' records were removed.
    async fn outermost(&self, id: ExecutionId) -> Result<ExecutionId, Failure> {
        let mut outermost = id;
        for _ in 0..MAX_CALL_DEPTH {
            let Some(stored) = self.client.record(&outermost).await? else { break };
            let Some((above, _)) = stored.meta.caller_task() else { break };
            outermost = above.clone();
        }
        Ok(outermost)
    }

    /// Returns the complete record of an execution.
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

    /// Returns why an execution has no record: its start is stored but unprocessed, or it does not
    /// exist.
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

    /// Returns the open executions and up to `limit` of the latest closed ones.
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

    /// Returns the open executions, and up to `limit` closed ones after a cursor, most recently
    /// started first.
    pub async fn rows_behind(
        &self,
        wanted: &ExecutionFilter,
        behind: Option<&HistoryCursor>,
        limit: usize,
    ) -> Result<Vec<ExecutionRow>, Failure> {
        let open_rows = self.rows(&HistoryFilter::default(), 0).await?;
        // A retried execution is running, and its record is that of an earlier end.
        let going_on = open_rows.iter().filter(|row| !row.status.is_terminal());
        let going_on: HashMap<&str, Time> =
            going_on.map(|row| (row.execution.as_str(), row.started.ms())).collect();
        let wants = |closed: &ClosedExecution| {
            takes_closed(wanted, closed, status_of_word(&closed.status)) != Some(false)
                && going_on.get(closed.execution.as_str()).is_none_or(|started| *started > closed.started)
        };
        let closed = self.history.page(self.mesh(), &wants, behind, limit).await?;
        Ok(with_closed(open_rows, closed))
    }

    /// Adds the data in the records of closed executions: labels and reasons of failures.
    pub async fn with_details(
        &self,
        rows: Vec<ExecutionRow>,
        details: RowDetails,
    ) -> Result<Vec<ExecutionRow>, Failure> {
        let filled = futures_util::stream::iter(rows).map(|mut row| async move {
            let lacks_fault = row.status != ExecutionStatus::Success
                && row.fault.as_ref().is_none_or(|fault| fault.message.is_empty());
            let lacks_labels = details == RowDetails::All && row.attributes.incomplete;
            if row.status.is_terminal()
                && (lacks_fault || lacks_labels)
                && let Some(record) = self.row_record(&row).await?
            {
                complete_row(&mut row, &record);
            }
            Ok(row)
        });
        filled.buffered(AT_ONCE).collect::<Vec<Result<ExecutionRow, Failure>>>().await.into_iter().collect()
    }

    /// Returns the record of a listed execution; `None` if it was removed, or cannot be folded.
    pub(crate) async fn row_record(&self, row: &ExecutionRow) -> Result<Option<Record>, Failure> {
        let stored = if row.status.is_terminal() {
            self.closed_record(row).await?
        } else {
            self.client.record(&parse(&row.execution)?).await?
        };
        let Some(stored) = stored else { return Ok(None) };
        let folded = self.client.folded(&stored).await.ok();
        Ok(folded.and_then(|folded| Record::decode(stored, folded.program().clone()).ok()))
    }

    /// Returns the record of a closed execution from the history, unless the execution was reopened
    /// since.
    async fn closed_record(&self, row: &ExecutionRow) -> Result<Option<ExecutionRecord>, Failure> {
        let id = parse(&row.execution)?;
        if let Ok(Some((_, bytes))) = self.mesh().history().get(&id).await
            && let Ok(record) = ExecutionRecord::decode(&bytes)
        {
            return Ok(Some(record));
        }
        Ok(self.client.record(&id).await?)
    }

    /// Sends a new command and waits for its verdict; see [`MeshOperator::signal_as`].
    pub(crate) async fn signal(&self, command: Command) -> Result<Verdict, Failure> {
        self.signal_as(new_command_id(), command).await
    }

    /// Sends a command under this id and waits for its verdict, which may be a rejection.
    pub(crate) async fn verdict(&self, id: Token, command: Command) -> Result<Verdict, Failure> {
        Ok(self.client.signal(&id, command, PATIENCE).await?)
    }

    /// Sends a command under this id and waits for its verdict. A repeated id gets the same verdict.
    /// A rejected command is a failure.
    pub(crate) async fn signal_as(&self, id: Token, command: Command) -> Result<Verdict, Failure> {
        let verdict = self.verdict(id, command).await?;
        if verdict.accepted {
            return Ok(verdict);
        }
        let reason = if verdict.reason.is_empty() { "it was refused" } else { &verdict.reason };
        Err(Failure::new(FailureKind::Conflict, REFUSED, reason.to_owned()))
    }
}

/// Adds attributes and the reason of a failure from the record of an execution.
pub(crate) fn complete_row(row: &mut ExecutionRow, record: &Record) {
    row.attributes = list::attributes(record);
    if row.status != ExecutionStatus::Success {
        row.fault = row_fault(record).or(row.fault.take());
    }
}

/// Returns the id of a new command.
pub(crate) fn new_command_id() -> Token {
    Token::of(&uuid::Uuid::now_v7().simple().to_string())
}

/// Merges rows of open and closed executions. The owner may still report one that was just closed.
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

/// Returns whether a closed execution matches a filter, based on the headers of its record; `None` if
/// only the record decides.
pub(crate) fn takes_closed(
    wanted: &ExecutionFilter,
    closed: &ClosedExecution,
    status: ExecutionStatus,
) -> Option<bool> {
    wanted.takes(&FilteredRow {
        execution: closed.execution.as_str(),
        workflow: &closed.workflow,
        status,
        started: closed.started,
        caller: &closed.caller,
        plan: closed.plan.as_deref(),
        error_code: closed.fault_code.as_deref(),
        waits_for: &[],
        attributes: &closed.attributes,
    })
}

/// Returns the only execution with an id prefix, or `None` if there is none.
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

/// Returns what an open execution waits for: the operator who paused it, otherwise an agent that
/// cannot respond, with the reason.
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
        started: summary.started.into(),
        ended: summary.ended.map(Timestamp),
        stopped: None,
        dry_run: false,
        caller: caller(&summary.caller),
        waiting,
        fault: None,
        waits_for: summary.waits_for,
        attributes: ExecutionAttributes {
            // An older executor does not report attributes except labels.
            incomplete: summary.attributes.incomplete || summary.plan.is_none(),
            ..summary.attributes
        },
        plan: summary.plan,
        usage: summary.usage,
    }
}

fn closed(closed: ClosedExecution) -> ExecutionRow {
    let caller = Token::parse(&closed.caller).ok().map(|token| caller(&token));
    ExecutionRow {
        execution: closed.execution.to_string(),
        workflow: closed.workflow,
        status: status_of_word(&closed.status),
        started: closed.started.into(),
        ended: Some(closed.ended.into()),
        stopped: None,
        dry_run: closed.is_dry_run,
        caller: caller.unwrap_or(closed.caller),
        waiting: None,
        fault: closed.fault_code.map(RowFault::with_code),
        waits_for: Vec::new(),
        attributes: closed.attributes,
        plan: closed.plan,
        usage: closed.usage,
    }
}

/// Returns the status for its name on the wire; an unknown name counts as running.
pub fn status_of_word(word: &str) -> ExecutionStatus {
    ExecutionStatus::parse(word).unwrap_or(ExecutionStatus::Running)
}

/// Returns the adapter of a dialect.
pub fn adapter(dialect: &str) -> Option<&'static dyn sinew_engine::Adapter> {
    sinew_dialects::adapter(dialect)
}

/// Returns the built-in workflow with this name, which calls an agent or a person once.
pub fn built_in_workflow(name: &str) -> Option<Program> {
    let plan = match name.strip_prefix(AGENT_CALL_PREFIX) {
        Some(agent) => sinew_dialects::sam::agent_call_plan(agent)?,
        None if name == PERSON_QUESTION => sinew_dialects::person_question_plan(),
        None => return None,
    };
    let adapter = adapter(&plan.dialect)?;
    Program::new(plan, adapter).ok()
}
