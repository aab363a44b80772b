//! One shard: read what came in, let the state decide, store, act. A single sequential loop, and the only writer of its
//! journal.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sinew_engine::Time;
use sinew_mesh::ServerClock;
use sinew_mesh::node::NodeReply;
use sinew_mesh::{AppendError, Inbox, Journal, MeshError, ReceivedMessage, crash};
use sinew_protocol::journal::Commit;
use sinew_protocol::query::{Query, QueryError};
use sinew_protocol::{ExecutionId, code};
use sinew_shard::{
    JournalReader, MAX_CAREFUL_BATCH, Outgoing, PendingCommit, ShardInput, ShardOpening, ShardState,
    TakeoverCare, WorkGroup,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use super::effects::{self, FactMeter};
use super::intake::{self, Handle, work_item};
use super::node_calls::NodeCalls;
use super::outbox::{Job, Outbox};
use super::questions::{AnswerDraft, OpenQuestion, QuestionDesk};
use super::round_time::RoundTime;
use super::takeover_notes::{StoredNote, clear_own_note};

/// Messages of one round.
const BATCH: usize = 512;
/// How long closing an execution may wait for company.
const LINGER: Duration = Duration::from_millis(50);
/// How long an owner that loses its shard tries to clear its note.
pub(super) const NOTE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a drain waits for what is being sent.
const GRACE: Duration = Duration::from_secs(5);
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
    pub(super) state: ShardState,
    outbox: Outbox,
    calls: NodeCalls,
    back: mpsc::UnboundedReceiver<ShardInput>,
    /// Time by the broker's clock, so that a clock that is stepped here moves no deadline.
    clock: ServerClock,
    care: TakeoverCare,
    note: StoredNote,
    /// The purge of the journal that is under way.
    purge: Option<JoinHandle<Result<(), MeshError>>>,
}

/// The timers that a round looks at.
enum DueWork {
    None,
    All,
    Of(Vec<ExecutionId>),
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
            shard.note.leave(&mut shard.care, NOTE_TIMEOUT).await;
            end
        }
    }
}

impl Shard {
    /// Claims the shard: reads its journal, and writes the first message of the new owner, which fences the old one.
    async fn open(shared: Handle, id: u32, died: bool) -> Result<Self, End> {
        let began = std::time::Instant::now();
        let mut journal = shared.mesh.journal(id);
        let mut reader = JournalReader::default();
        let mut bytes = 0;
        journal
            .replay(|stored| {
                bytes += stored.body.len();
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
        let positions = shared.mesh.commands().current_positions(id, reader.positions()).await?;
        let (note, care) = StoredNote::open(&shared, id, died).await?;
        let (entries, position) = (reader.entry_count(), journal.position().unwrap_or_default());
        let config = Arc::new(shared.shard_config(id));
        let mut opening = ShardOpening::new(config, reader, care, positions, position, bytes);
        for held in opening.held() {
            let (execution, reason) = (&held.execution, &held.hold.reason);
            error!(%execution, code = code::EXECUTION_QUARANTINED.as_str(), reason, "an execution is set aside");
            metrics::counter!("sinew_executions_set_aside_total").increment(1);
        }
        crash::point("open.replayed");
        let sequence = append(&mut journal, opening.claim()).await?;
        opening.handle_claimed(sequence);
        crash::point("open.claimed");
        let clock = shared.mesh.admin().server_clock().await?;
        let (sender, back) = mpsc::unbounded_channel();
        let calls = NodeCalls::open(&shared, sender.clone()).await?;
        let mut desk = OpeningDesk { outbox: Outbox::open(Arc::clone(&shared), sender), calls, note };
        desk.fold(&shared, &mut opening).await?;
        let OpeningDesk { outbox, calls, note } = desk;
        let (state, mut care) = opening.finish();
        for (stored, fault) in state.held() {
            error!(execution = %stored.meta.execution, %fault, "an execution cannot go on");
        }
        let inbox = shared.mesh.commands().inbox(id, state.positions()).await?;
        // The input that ended the last owner is in the first batch behind its last commit.
        care.expect(inbox.waiting().min(2 * BATCH as u64));
        debug!(
            shard = id,
            executions = state.open_count(),
            entries,
            milliseconds = began.elapsed().as_millis() as u64,
            "shard opened"
        );
        metrics::counter!("sinew_takeovers_total").increment(1);
        Ok(Self { shared, id, journal, inbox, state, outbox, calls, back, clock, care, note, purge: None })
    }

    async fn work(&mut self, stop: &CancellationToken) -> Result<(), End> {
        let shared = Arc::clone(&self.shared);
        let mut desk = QuestionDesk::new(shared.mesh.services().serve_queries(self.id).await?);
        // Closing alone is no reason to write: it waits a moment for company.
        let mut closing: Vec<ShardInput> = Vec::new();
        // A point in time, not a while: questions and other wake-ups must not put it off.
        let mut latest = tokio::time::Instant::now();
        loop {
            let due = self.state.next_timeout().map(|at| until(&self.clock, at));
            if self.care.check_end(due.is_some_and(|due| due.is_zero())) {
                self.note.release(&mut self.care).await?;
            }
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
            while messages.len() < self.care.batch(BATCH)
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
                && arrivals.iter().all(|arrival| matches!(arrival, ShardInput::Archived { .. }))
            {
                closing = arrivals;
                latest = tokio::time::Instant::now() + LINGER;
                continue;
            }
            arrivals.append(&mut closing);
            if self.care.is_needed(arrivals.iter().filter_map(ShardInput::execution)) {
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
        inputs: Vec<ShardInput>,
    ) -> Result<(), End> {
        let due = self.state.due_executions(self.clock.now(), MAX_CAREFUL_BATCH);
        for group in self.care.split_turn(due, inputs, messages, work_item) {
            let WorkGroup { items, due, inputs, messages } = group;
            self.note.hold(&mut self.care, &items).await?;
            self.round(&messages, inputs, DueWork::Of(due)).await?;
            if self.care.note().is_suspicious() {
                self.outbox.settle(SETTLE_TIMEOUT).await;
            }
            self.care.took(messages.len());
            self.care.pass();
        }
        self.note.release(&mut self.care).await
    }

    /// One round: everything that came in is decided, stored in one message, and acted upon.
    async fn round(
        &mut self,
        messages: &[ReceivedMessage],
        inputs: Vec<ShardInput>,
        due: DueWork,
    ) -> Result<(), End> {
        let mut time = RoundTime::start();
        let (shared, state, note) = (&self.shared, &self.state, self.care.note());
        let read = messages.iter().map(|message| intake::read(shared, state, note, message));
        let mut inputs: Vec<ShardInput> = join_all(read).await.into_iter().chain(inputs).collect();
        time.part("decoded");
        self.check_outputs(&mut inputs).await;
        time.part("checked");
        crash::point("round.understood");
        let now = self.clock.now();
        for message in messages {
            self.state.handle_position(intake::stream_of(message), message.seq);
        }
        for input in inputs {
            self.state.handle_input(now, input, &*self.shared);
        }
        match due {
            DueWork::None => {}
            DueWork::All => self.state.handle_timeout(now),
            DueWork::Of(due) => self.state.handle_timeout_of(now, &due),
        }
        time.part("decided");
        effects::tell(self.state.take_notices());
        let Some(commit) = self.state.poll_commit() else {
            time.tell(self.id, messages.len(), 0);
            self.end_turn().await;
            return Ok(());
        };
        let (entries, bytes) = (commit.entries, commit.body.len());
        time.part("encoded");
        store(&mut self.journal, &mut self.state, commit).await?;
        time.part("stored");
        metrics::counter!("sinew_commits_total").increment(1);
        metrics::histogram!("sinew_commit_entries").record(entries as f64);
        metrics::histogram!("sinew_round_seconds").record(time.elapsed().as_secs_f64());
        // Actions leave before events: agents and callers wait for actions.
        let outgoing = std::iter::from_fn(|| self.state.poll_outgoing()).collect();
        self.dispatch(outgoing).await;
        let reports = self.state.take_reports(&mut FactMeter).into_iter();
        self.outbox.send(reports.map(|report| effects::event(&self.shared, report)).collect());
        self.end_turn().await;
        time.part("acted");
        time.tell(self.id, messages.len(), bytes);
        Ok(())
    }

    /// Lets the state evict executions, and removes what no open execution needs. Failing to is no harm: the next time
    /// will. A purge takes tens of milliseconds, so the loop does not wait for it.
    async fn end_turn(&mut self) {
        if self.purge.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(purge) = self.purge.take()
        {
            match purge.await {
                Ok(Ok(())) => self.state.handle_purged(),
                Ok(Err(error)) => warn!(shard = self.id, %error, "the journal could not be purged"),
                Err(error) => warn!(shard = self.id, %error, "purging the journal broke"),
            }
        }
        let keep = self.state.end_turn();
        if self.purge.is_none() {
            self.purge = keep.map(|keep| tokio::spawn(self.journal.purge_below(keep)));
        }
    }

    /// Takes the answers that have come, and asks again where it is time to.
    async fn hear_calls(&mut self, first: Option<NodeReply>, arrivals: &mut Vec<ShardInput>) {
        let mut reply = first;
        while arrivals.len() < self.care.batch(BATCH)
            && let Some(heard) = reply.take().or_else(|| self.calls.try_next())
        {
            arrivals.extend(self.calls.take(heard));
        }
        let others = self.calls.tick().await;
        self.outbox.send(others.into_iter().map(Job::Send).collect());
    }

    /// Sends the messages of a stored commit: tasks at node endpoints from here, the rest by the outbox.
    async fn dispatch(&mut self, outgoing: Vec<Outgoing>) {
        outgoing.iter().for_each(effects::count);
        let rest = dispatch_calls(&self.shared, &mut self.calls, outgoing).await;
        self.outbox.send(rest);
    }

    /// Answers some of the questions that wait, beginning with `first`.
    fn answer_turn(&self, desk: &mut QuestionDesk, first: Option<OpenQuestion>) {
        let mut rows = None;
        desk.turn(first, |question| {
            let draft = match &question.asked.query {
                Query::List {} => {
                    let rows = rows.get_or_insert_with(|| Arc::new(self.state.summaries()));
                    AnswerDraft::Executions(Arc::clone(rows))
                }
                Query::Get(execution) => match self.state.shown(execution) {
                    Some(stored) => AnswerDraft::Record(Box::new(stored)),
                    None => AnswerDraft::Error(QueryError::NotFound),
                },
                Query::Verdicts(execution) => AnswerDraft::Verdicts(self.state.verdicts_of(execution)),
                Query::Status {} => AnswerDraft::Status(self.status()),
            };
            question.answer(draft);
        });
    }

    fn status(&self) -> serde_json::Value {
        serde_json::json!({
            "shard": self.id,
            "owner": self.shared.owner,
            "executions": self.state.open_count(),
            "folded": self.state.active_count(),
            "broken": self.state.held().count(),
            "journal": self.journal.position(),
            "positions": {
                "commands": self.state.positions().commands,
                "results": self.state.positions().results,
            },
        })
    }

    /// Ends in peace: what is being sent is sent, what was archived is closed.
    async fn drain(mut self) -> Result<(), End> {
        self.outbox.close(GRACE).await;
        let now = self.clock.now();
        while let Ok(input) = self.back.try_recv() {
            // No other input is decided any more: the next owner asks again for results that came late.
            if matches!(input, ShardInput::Archived { .. }) {
                self.state.handle_input(now, input, &*self.shared);
            }
        }
        if let Some(commit) = self.state.poll_commit() {
            store(&mut self.journal, &mut self.state, commit).await?;
        }
        debug!(shard = self.id, "shard handed over");
        Ok(())
    }
}

/// The parts of a shard that send while it is opened.
struct OpeningDesk {
    outbox: Outbox,
    calls: NodeCalls,
    note: StoredNote,
}

impl OpeningDesk {
    /// Folds what is open, group by group, and does again what has no end.
    async fn fold(&mut self, shared: &Handle, opening: &mut ShardOpening) -> Result<(), End> {
        self.outbox.send(opening.rejected_children().into_iter().map(Job::Send).collect());
        if opening.is_without_work() {
            if opening.care().is_stale() {
                self.note.release(opening.care()).await?;
            }
            return Ok(());
        }
        while let Some(items) = opening.next_group() {
            self.note.hold(opening.care(), &items).await?;
            let mut programs = HashMap::new();
            for plan in opening.group_plans() {
                if let Ok(program) = intake::retry_transient(|| shared.programs.by_digest(&plan)).await {
                    programs.insert(plan, program);
                }
            }
            let again = opening.fold_group(|plan| programs.get(plan).cloned());
            for outgoing in &again {
                effects::count(outgoing);
                match outgoing {
                    Outgoing::Task { call, .. } if shared.is_direct(call) => {
                        opening.care().watch(call.execution.clone());
                    }
                    Outgoing::Evaluation { call, .. } => opening.care().watch(call.execution.clone()),
                    _ => {}
                }
            }
            self.outbox.send(dispatch_calls(shared, &mut self.calls, again).await);
            self.outbox.settle(SETTLE_TIMEOUT).await;
            opening.care().pass();
        }
        self.note.release(opening.care()).await
    }
}

/// Appends a commit. If it is not stored, the state is not true any more and drops everything.
async fn store(journal: &mut Journal, state: &mut ShardState, commit: PendingCommit) -> Result<(), End> {
    let stored = append(journal, commit).await;
    match &stored {
        Ok(sequence) => state.handle_stored(*sequence),
        Err(_) => state.handle_lost(),
    }
    stored.map(drop)
}

/// Appends a commit behind the position that its owner knows.
async fn append(journal: &mut Journal, commit: PendingCommit) -> Result<u64, End> {
    if journal.position() != Some(commit.after) {
        return Err(End::Lost(MeshError::JournalUnread { shard: journal.shard() }));
    }
    Ok(journal.append(commit.body).await?)
}

/// Sends tasks to node endpoints; gives back what the outbox has to do.
async fn dispatch_calls(shared: &Handle, calls: &mut NodeCalls, outgoing: Vec<Outgoing>) -> Vec<Job> {
    let mut rest = Vec::with_capacity(outgoing.len());
    for one in outgoing {
        match one {
            Outgoing::Task { call, meta, chain } if shared.is_node_request(&call) => {
                rest.extend(calls.send(call, meta, chain).await.map(Job::Send));
            }
            Outgoing::CancelTask { call } => {
                calls.cancel(&call.task);
                rest.push(Job::Send(Outgoing::CancelTask { call }));
            }
            one => rest.push(Job::Send(one)),
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
