//! One shard: read what came in, decide, store, act. A single sequential loop, and the only writer of its journal.

use sinew_protocol::code;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sinew_engine::{EngineInput, Time};
use sinew_mesh::journal::ServerClock;
use sinew_mesh::node::NodeReply;
use sinew_mesh::{AppendError, Inbox, Journal, MeshError, ReceivedMessage, Source, crash};
use sinew_protocol::journal::{Commit, Entry, ExecutionHold};
use sinew_protocol::query::{Query, QueryError};
use sinew_protocol::{ExecutionId, Fault, TaskId, Token};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use super::book::{Book, Effect, Stage};
use super::caution::{Caution, clear_own_note};
use super::effects;
use super::intake::{self, Arrival, Done, Handle};
use super::node_calls::NodeCalls;
use super::open::{Stored, Unfit};
use super::outbox::{Job, Outbox};
use super::questions::{AnswerDraft, OpenQuestion, QuestionDesk};
use super::reader::Reader;
use super::takeover::{MAX_ITEM_DEATHS, WorkItem};

/// Messages of one round.
const BATCH: usize = 512;
/// Bytes of executions journaled again at once.
const COMPACT_BYTES: usize = 512 * 1024;
/// How long closing an execution may wait for company.
const LINGER: Duration = Duration::from_millis(50);
/// An agent gave up at the deadline it was told.
const AGENT_TOO_LATE: &str = code::AGENT_TOO_LATE.as_str();
/// How far an agent's clock may be ahead, in milliseconds.
const SKEW: Time = 2_000;
/// How long an owner that loses its shard tries to clear its note.
pub(super) const NOTE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a drain waits for what is being sent.
const GRACE: Duration = Duration::from_secs(5);
/// Messages of one turn while a new owner catches up.
const MAX_CAREFUL_BATCH: usize = 64;
/// How long the effects of a group are waited for while a new owner catches up.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(250);

/// How a shard's loop ended.
#[derive(Debug)]
pub(super) enum End {
    /// It was asked to.
    Drained,
    /// Another executor owns the shard.
    Fenced,
    /// The broker could not be used.
    Lost(MeshError),
}

impl From<MeshError> for End {
    fn from(error: MeshError) -> Self {
        Self::Lost(error)
    }
}

impl From<AppendError> for End {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Fenced { .. } => Self::Fenced,
            AppendError::Mesh(error) => Self::Lost(error),
        }
    }
}

/// A shard in the hands of its owner.
pub(super) struct Shard {
    pub(super) shared: Handle,
    id: u32,
    journal: Journal,
    inbox: Inbox,
    pub(super) book: Book,
    outbox: Outbox,
    calls: NodeCalls,
    back: mpsc::UnboundedReceiver<Arrival>,
    /// Time by the broker's clock, so that a clock that is stepped here moves no deadline.
    clock: ServerClock,
    wear: Wear,
    caution: Caution,
    /// Tasks of this round whose outputs are checked.
    pub(super) checked: HashSet<TaskId>,
}

/// The timers that a round looks at.
enum DueWork {
    None,
    All,
    Of(Vec<ExecutionId>),
}

/// How much of the journal is likely to be superfluous.
#[derive(Default)]
struct Wear {
    /// Bytes written since old messages were removed.
    bytes: usize,
    /// Sequence below which the journal is rewritten or removed; `None` while the journal is short.
    cut: Option<u64>,
}

/// Owns a shard until `stop`, or until somebody else does; begins after a while. `died` says that a loop of this process
/// for the shard ended in a panic.
pub(super) async fn run(
    shared: Handle,
    id: u32,
    after: Duration,
    died: bool,
    stop: CancellationToken,
) -> End {
    let opening = async {
        tokio::time::sleep(after).await;
        Shard::open(Arc::clone(&shared), id, died).await
    };
    let opened = tokio::select! {
        biased;
        () = stop.cancelled() => {
            let _ = tokio::time::timeout(NOTE_TIMEOUT, clear_own_note(&shared, id)).await;
            return End::Drained;
        }
        opened = opening => opened,
    };
    let mut shard = match opened {
        Ok(shard) => shard,
        Err(end) => return end,
    };
    match shard.work(&stop).await {
        Ok(()) => {
            let Err(end) = shard.drain().await else { return End::Drained };
            end
        }
        Err(end) => {
            shard.outbox.abandon();
            // An owner that loses its shard and lives is not a death.
            shard.caution.leave(NOTE_TIMEOUT).await;
            end
        }
    }
}

impl Shard {
    /// Claims the shard: reads its journal, and writes the first message of the new owner, which fences the old one.
    async fn open(shared: Handle, id: u32, died: bool) -> Result<Self, End> {
        let began = std::time::Instant::now();
        let mut journal = shared.mesh.journal(id);
        let mut reader = Reader::default();
        let mut wear = Wear::default();
        journal
            .replay(|stored| {
                wear.bytes += stored.body.len();
                let commit = Commit::decode(&stored.body).map_err(|bad| {
                    error!(shard = id, seq = stored.seq, %bad, "the journal is damaged; the shard stays closed");
                    let (what, id) = ("journal message", stored.seq.to_string());
                    End::Lost(MeshError::Damaged { what, id, reason: bad.to_string() })
                })?;
                reader.read(stored.seq, commit);
                Ok::<(), End>(())
            })
            .await?;
        // Behind the stored positions if a stream was made anew: what is read twice is known by its ids.
        let positions = shared.mesh.current_positions(id, reader.positions()).await?;
        let mut caution = Caution::open(&shared, id, died).await?;
        let entries = set_aside(&mut reader, &mut caution);
        let claim = Commit { owner: shared.owner.clone(), positions, entries };
        crash::point("open.replayed");
        journal.append(claim.encode()).await?;
        crash::point("open.claimed");
        let clock = shared.mesh.server_clock().await?;
        let entries = reader.entries;
        let (sender, back) = mpsc::unbounded_channel();
        let mut calls = NodeCalls::open(&shared, sender.clone()).await?;
        let outbox = Outbox::open(Arc::clone(&shared), sender);
        let mut book = fold(&shared, reader, &mut caution, &outbox, &mut calls).await?;
        book.positions = positions;
        for (stored, fault) in book.broken() {
            error!(execution = %stored.meta.execution, %fault, "an execution cannot go on");
        }
        let inbox = shared.mesh.inbox(id, book.positions).await?;
        // The input that ended the last owner is in the first batch behind its last commit.
        caution.expect(inbox.waiting().min(2 * BATCH as u64));
        let checked = HashSet::new();
        let shard =
            Self { shared, id, journal, inbox, book, outbox, calls, back, clock, wear, caution, checked };
        debug!(
            shard = id,
            executions = shard.book.len(),
            entries,
            milliseconds = began.elapsed().as_millis() as u64,
            "shard opened"
        );
        metrics::counter!("sinew_takeovers_total").increment(1);
        Ok(shard)
    }

    async fn work(&mut self, stop: &CancellationToken) -> Result<(), End> {
        let shared = Arc::clone(&self.shared);
        let mut desk = QuestionDesk::new(shared.mesh.serve_queries(self.id).await?);
        // Closing alone is no reason to write: it waits a moment for company.
        let mut closing: Vec<Arrival> = Vec::new();
        // A point in time, not a while: questions and other wake-ups must not put it off.
        let mut latest = tokio::time::Instant::now();
        loop {
            let due = self.book.next_due().map(|at| until(&self.clock, at));
            self.caution.check_end(due.is_some_and(|due| due.is_zero())).await?;
            let linger = (!closing.is_empty()).then(|| latest.duration_since(tokio::time::Instant::now()));
            let asks =
                self.calls.next_due().map(|at| at.saturating_duration_since(tokio::time::Instant::now()));
            // One timer for all that time brings.
            let wake = [due, linger, asks].into_iter().flatten().min();
            let mut messages = Vec::new();
            let mut replied = None;
            let mut arrivals = Vec::new();
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    self.round(&[], closing, DueWork::None).await?;
                    return Ok(());
                }
                received = self.inbox.next() => messages.push(received),
                reply = self.calls.heard() => replied = reply,
                arrived = self.back.recv() => arrivals.extend(arrived),
                () = sleep(wake) => {}
                Some(question) = desk.next() => {
                    self.answer_turn(&mut desk, Some(question));
                    continue;
                }
            }
            while messages.len() < self.caution.batch(BATCH, MAX_CAREFUL_BATCH)
                && let Some(received) = self.inbox.try_next()
            {
                messages.push(received);
            }
            self.hear_calls(replied, &mut arrivals).await;
            while let Ok(arrival) = self.back.try_recv() {
                arrivals.push(arrival);
            }
            if messages.is_empty()
                && due.is_none_or(|due| !due.is_zero())
                && !arrivals.is_empty()
                && closing.is_empty()
                && arrivals.iter().all(|arrival| matches!(arrival, Arrival::Closed { .. }))
            {
                closing = arrivals;
                latest = tokio::time::Instant::now() + LINGER;
                continue;
            }
            arrivals.append(&mut closing);
            if self.caution.is_needed(arrivals.iter().filter_map(Arrival::execution)) {
                self.careful_turn(messages, arrivals).await?;
            } else {
                self.round(&messages, arrivals, DueWork::All).await?;
            }
            // Work comes first in the choice above, so questions get their turn here while there is work without end.
            self.answer_turn(&mut desk, None);
        }
    }

    /// Does the work of one turn in groups, each of which is noted before it is touched.
    async fn careful_turn(
        &mut self,
        messages: Vec<ReceivedMessage>,
        arrivals: Vec<Arrival>,
    ) -> Result<(), End> {
        let due = self.book.due_now(self.clock.now(), MAX_CAREFUL_BATCH);
        let groups =
            self.caution.note().split(due, MAX_CAREFUL_BATCH, |one| WorkItem::Execution(one.clone()));
        for group in groups {
            let items = group.iter().cloned().map(WorkItem::Execution).collect();
            self.careful_round(items, &[], Vec::new(), DueWork::Of(group)).await?;
        }
        // Arrivals without an execution change nothing.
        let arrivals = arrivals.into_iter().filter_map(|one| Some((one.execution()?.clone(), one)));
        let arrivals = arrivals.map(|(execution, one)| (WorkItem::Execution(execution), one));
        for group in self.caution.note().split(arrivals, MAX_CAREFUL_BATCH, |(item, _)| item.clone()) {
            let (items, group) = group.into_iter().unzip();
            self.careful_round(items, &[], group, DueWork::None).await?;
        }
        for group in self.caution.note().split(messages, MAX_CAREFUL_BATCH, WorkItem::of) {
            let items = group.iter().map(WorkItem::of).collect();
            self.careful_round(items, &group, Vec::new(), DueWork::None).await?;
        }
        self.caution.release().await
    }

    async fn careful_round(
        &mut self,
        items: Vec<WorkItem>,
        messages: &[ReceivedMessage],
        arrivals: Vec<Arrival>,
        due: DueWork,
    ) -> Result<(), End> {
        self.caution.hold(&items).await?;
        self.round(messages, arrivals, due).await?;
        if self.caution.note().is_suspicious() {
            self.outbox.settle(SETTLE_TIMEOUT).await;
        }
        self.caution.took(messages.len());
        self.caution.pass();
        Ok(())
    }

    /// One round: everything that came in is decided, stored in one message, and acted upon.
    async fn round(
        &mut self,
        messages: &[ReceivedMessage],
        arrivals: Vec<Arrival>,
        due: DueWork,
    ) -> Result<(), End> {
        let began = std::time::Instant::now();
        let (shared, id, book, note) = (&self.shared, self.id, &self.book, self.caution.note());
        let understood = join_all(messages.iter().map(|message| async move {
            if note.is_condemned(&WorkItem::of(message)) {
                return intake::condemned(shared, message).await;
            }
            intake::understand(shared, id, message, book).await
        }))
        .await;
        let mut arrivals: Vec<Arrival> = understood.into_iter().chain(arrivals).collect();
        self.check_outputs(&mut arrivals).await;
        crash::point("round.understood");
        let now = self.clock.now();
        let mut stage = Stage::default();
        for message in messages {
            let position = match message.source {
                Source::Commands => &mut self.book.positions.commands,
                Source::Results => &mut self.book.positions.results,
            };
            *position = (*position).max(message.seq);
        }
        for arrival in arrivals {
            self.take(&mut stage, now, arrival);
        }
        match due {
            DueWork::None => {}
            DueWork::All => self.book.tick(&mut stage, now),
            DueWork::Of(due) => {
                for execution in &due {
                    self.book.tick_one(&mut stage, now, execution);
                }
            }
        }
        self.compact(&mut stage);
        if stage.is_empty() {
            self.book.cool();
            return Ok(());
        }
        let commit = stage.commit(&self.shared.owner, self.book.positions);
        let body = commit.encode();
        self.wear.bytes += body.len();
        let sequence = self.journal.append(body).await?;
        self.book.committed(sequence, &commit);
        metrics::counter!("sinew_commits_total").increment(1);
        metrics::histogram!("sinew_commit_entries").record(commit.entries.len() as f64);
        metrics::histogram!("sinew_round_seconds").record(began.elapsed().as_secs_f64());
        // Actions leave before events: agents and callers wait for actions.
        let (acts, shown): (Vec<_>, Vec<_>) =
            stage.effects.into_iter().partition(|effect| matches!(effect, Effect::Act { .. }));
        self.dispatch(effects::jobs(&self.shared, &self.book, now, acts)).await;
        self.outbox.send(effects::jobs(&self.shared, &self.book, now, shown));
        self.book.cool();
        self.purge().await;
        Ok(())
    }

    /// Takes the answers that have come, and asks again where it is time to.
    async fn hear_calls(&mut self, first: Option<NodeReply>, arrivals: &mut Vec<Arrival>) {
        let mut reply = first;
        while arrivals.len() < self.caution.batch(BATCH, MAX_CAREFUL_BATCH)
            && let Some(heard) = reply.take().or_else(|| self.calls.try_next())
        {
            arrivals.extend(self.calls.take(heard));
        }
        let others = self.calls.tick().await;
        self.outbox.send(others);
    }

    /// Does what a stored commit requires: tasks at node endpoints from here, the rest by the outbox.
    async fn dispatch(&mut self, jobs: Vec<Job>) {
        let rest = dispatch_calls(&self.shared, &mut self.calls, jobs).await;
        self.outbox.send(rest);
    }

    fn take(&mut self, stage: &mut Stage, now: Time, arrival: Arrival) {
        match arrival {
            Arrival::Start(begin) => self.start(stage, now, *begin),
            Arrival::Signal(signal) => self.signal(stage, now, *signal),
            Arrival::Result(done) => self.done(stage, now, *done),
            Arrival::Closed { execution, reopened } => self.book.close(stage, &execution, reopened),
            Arrival::Nothing => {}
        }
    }

    fn done(&mut self, stage: &mut Stage, now: Time, done: Done) {
        let Done { execution, task, agent, mut result } = done;
        let Some(open) = self.book.wake(&execution) else {
            metrics::counter!("sinew_results_late_total").increment(1);
            debug!(%execution, %task, "a result for an execution that is not open");
            return;
        };
        let Some((act, attempt)) = open.task(&task) else {
            metrics::counter!("sinew_results_late_total").increment(1);
            debug!(%execution, %task, "a result for a task that is over");
            return;
        };
        if let Some(ask) = open.ask(act, attempt) {
            if Token::of(ask.target.name()) != agent {
                metrics::counter!("sinew_results_foreign_total").increment(1);
                warn!(%execution, %task, %agent, "a result from an agent that was not asked");
                return;
            }
            if !self.checked.contains(&task)
                && let Ok(reply) = &result
                && let Err(fault) = self.shared.check_output(ask, &reply.output)
            {
                result = Err(fault);
            }
        }
        // Agents that are told a deadline give up at it, by a clock of their own. The deadline itself says so in words
        // that do not depend on which of the two is first.
        let gave_up = matches!(&result, Err(fault) if fault.code == AGENT_TOO_LATE);
        let until = || sinew_engine::waiting_of(open.state(), act).and_then(|waiting| waiting.until);
        if gave_up && until().is_some_and(|at| at.saturating_sub(now) < SKEW) {
            return;
        }
        if result.is_ok() && open.state().act(act).running != Some(attempt) {
            metrics::counter!("sinew_results_late_total").increment(1);
        }
        let input = EngineInput::Done { act, attempt, result };
        if let Err(Unfit::Broke(fault)) = self.book.input(stage, now, &execution, input) {
            // The same result would break it again: it ends the attempt as a failure instead.
            let input = EngineInput::Done { act, attempt, result: Err(fault) };
            if let Err(Unfit::Broke(_)) = self.book.input(stage, now, &execution, input) {
                error!(%execution, %task, "neither the result nor its failure could be taken");
            }
        }
    }

    /// Answers some of the questions that wait, beginning with `first`.
    fn answer_turn(&self, desk: &mut QuestionDesk, first: Option<OpenQuestion>) {
        let mut rows = None;
        desk.turn(first, |question| {
            let draft = match &question.asked.query {
                Query::List {} => {
                    let rows = rows.get_or_insert_with(|| Arc::new(self.book.summaries()));
                    AnswerDraft::Executions(Arc::clone(rows))
                }
                Query::Get(execution) => match self.book.shown(execution) {
                    Some(stored) => AnswerDraft::Record(Box::new(stored)),
                    None => AnswerDraft::Error(QueryError::NotFound),
                },
                Query::Verdicts(execution) => AnswerDraft::Verdicts(self.book.verdicts_of(execution)),
                Query::Status {} => AnswerDraft::Status(self.status()),
            };
            question.answer(draft);
        });
    }

    fn status(&self) -> serde_json::Value {
        serde_json::json!({
            "shard": self.id,
            "owner": self.shared.owner,
            "executions": self.book.len(),
            "folded": self.book.folded(),
            "broken": self.book.broken().count(),
            "journal": self.journal.position(),
            "positions": {
                "commands": self.book.positions.commands,
                "results": self.book.positions.results,
            },
        })
    }

    /// Journals old executions again, a few at a time, once most of the journal is likely to be superfluous.
    fn compact(&mut self, stage: &mut Stage) {
        if self.wear.cut.is_none()
            && self.wear.bytes > self.shared.worn
            && self.wear.bytes > 2 * self.book.size()
        {
            self.wear.cut = self.journal.position();
        }
        if let Some(cut) = self.wear.cut {
            self.book.compact(stage, cut, COMPACT_BYTES);
        }
    }

    /// Removes what no open execution needs. Failing to is no harm: the next time will.
    async fn purge(&mut self) {
        let Some(cut) = self.wear.cut else { return };
        let last = self.journal.position().unwrap_or(cut);
        let keep = self.book.oldest().unwrap_or(last);
        if keep < cut {
            return;
        }
        match self.journal.purge_below(keep).await {
            Ok(()) => self.wear = Wear { bytes: self.book.size(), cut: None },
            Err(error) => warn!(shard = self.id, %error, "the journal could not be purged"),
        }
    }

    /// Ends in peace: what is being sent is sent, what was archived is closed.
    async fn drain(mut self) -> Result<(), End> {
        self.outbox.close(GRACE).await;
        let mut closed = Vec::new();
        while let Ok(arrival) = self.back.try_recv() {
            closed.push(arrival);
        }
        let mut stage = Stage::default();
        for arrival in closed {
            if let Arrival::Closed { execution, reopened } = arrival {
                self.book.close(&mut stage, &execution, reopened);
            }
        }
        if !stage.is_empty() {
            let commit = stage.commit(&self.shared.owner, self.book.positions);
            self.journal.append(commit.encode()).await?;
        }
        debug!(shard = self.id, "shard handed over");
        Ok(())
    }
}

/// Takes executions that ended their owners out of the work; gives the journal's entries that say so.
fn set_aside(reader: &mut Reader, caution: &mut Caution) -> Vec<Entry> {
    let reason = format!("{MAX_ITEM_DEATHS} executors ended while they had the execution in hand");
    let mut entries = Vec::new();
    for item in caution.note().condemned().to_vec() {
        let WorkItem::Execution(execution) = &item else { continue };
        let hold =
            ExecutionHold { code: code::EXECUTION_QUARANTINED.as_str().to_owned(), reason: reason.clone() };
        if reader.set_aside(execution, hold.clone()) {
            error!(%execution, code = code::EXECUTION_QUARANTINED.as_str(), reason, "an execution is set aside");
            metrics::counter!("sinew_executions_set_aside_total").increment(1);
            entries.push(Entry { hold: Some(hold), ..Entry::rounds(execution.clone(), Vec::new()) });
            caution.settle(&item);
        }
    }
    entries
}

/// Folds what is open, group by group, and does again what has no end.
async fn fold(
    shared: &Handle,
    reader: Reader,
    caution: &mut Caution,
    outbox: &Outbox,
    calls: &mut NodeCalls,
) -> Result<Book, End> {
    let missing = |digest: &str| {
        Fault::error(super::open::UNREADABLE, format!("the plan {digest} is not in the store"))
    };
    let (mut book, stored) = reader.into_parts(shared.room);
    let (held, work): (Vec<_>, Vec<_>) = stored.into_iter().partition(|stored| stored.hold.is_some());
    for stored in held {
        let program = Err(missing(&stored.meta.plan));
        book.take(stored, program, |_| ());
    }
    if work.is_empty() {
        caution.clear_stale().await?;
        return Ok(book);
    }
    let item = |stored: &Stored| WorkItem::Execution(stored.meta.execution.clone());
    for group in caution.note().split_open(work, item) {
        caution.hold(&group.iter().map(item).collect::<Vec<_>>()).await?;
        let mut again = Vec::new();
        for stored in group {
            // If a plan cannot be loaded, its executions wait for an operator, and the shard opens all the same.
            let plan = stored.meta.plan.clone();
            let program = intake::persist(|| shared.programs.by_digest(&plan)).await;
            book.take(stored, program.map_err(|_| missing(&plan)), |open| {
                let outstanding = open.outstanding().into_iter();
                again.extend(outstanding.map(|action| effects::job(shared, open, action)));
            });
        }
        for job in &again {
            match job {
                Job::Task { call, .. } if shared.is_direct(call) => caution.watch(call.execution.clone()),
                Job::Evaluation { call, .. } => caution.watch(call.execution.clone()),
                _ => {}
            }
        }
        outbox.send(dispatch_calls(shared, calls, again).await);
        outbox.settle(SETTLE_TIMEOUT).await;
        caution.pass();
    }
    caution.release().await?;
    Ok(book)
}

/// Sends tasks to node endpoints; gives back what the outbox has to do.
async fn dispatch_calls(shared: &Handle, calls: &mut NodeCalls, jobs: Vec<Job>) -> Vec<Job> {
    let mut rest = Vec::with_capacity(jobs.len());
    for job in jobs {
        match job {
            Job::Task { call, meta, chain } if shared.is_node_request(&call) => {
                rest.extend(calls.send(call, meta, chain).await);
            }
            Job::Cancel { agent, task, execution } => {
                calls.cancel(&task);
                rest.push(Job::Cancel { agent, task, execution });
            }
            job => rest.push(job),
        }
    }
    rest
}

fn until(clock: &ServerClock, at: Time) -> Duration {
    Duration::from_millis(at.saturating_sub(clock.now()))
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
