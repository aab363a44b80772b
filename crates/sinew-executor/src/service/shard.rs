//! The loop of one shard: reads inputs, decides, stores and acts. It is sequential and the only
//! writer of its journal.

use std::collections::{HashMap, VecDeque};
use std::future::ready;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use sinew_mesh::ServerClock;
use sinew_mesh::node::NodeReply;
use sinew_mesh::start::StartRequest;
use sinew_mesh::{Inbox, Journal, MeshError, ReceivedMessage, crash};
use sinew_protocol::journal::Commit;
use sinew_protocol::{ExecutionId, Subject, code};
use sinew_shard::{
    DueTask, JournalReader, MAX_CAREFUL_BATCH, Outgoing, PendingCommit, ShardInput, ShardOpening,
    ShardReport, ShardState, TakeoverGuard, WorkGroup,
};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::{JoinHandle, yield_now};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, error, warn};

use super::dispatch::send;
use super::effects::{self, FactMeter};
use super::intake::{self, BackInput, Handle, work_item};
use super::node_calls::NodeCalls;
use super::outbox::{Job, Outbox};
use super::periodic_checks::PeriodicChecks;
use super::questions::{AnswerDraft, OpenQuestion, QueryServer};
use super::shard_end::End;
use super::start_server::StartServer;
use super::store_publisher::StorePublisher;
use super::takeover_notes::{StoredNote, clear_own_note};
use super::timer_guard::{HAND_IN_MS, Outage, TimerGuard, sleep, until};
use crate::measures::execution_gauges::ExecutionGauges;
use crate::measures::queue_gauges::{REPORTING_SHARD, report_mesh_gauges};
use crate::measures::round_time::RoundTime;

/// Messages of one round.
const BATCH: usize = 512;
/// Numbers of messages that are sent in one write with the events of their commit, which wakes the server only
/// once. With more messages, the last ones would be delayed; without messages, the events are not urgent.
const FEW_MESSAGES: RangeInclusive<usize> = 1..=2;
/// Maximum number of timeouts in a turn for which the delivery of the task is looked up.
const MAX_EXPLAINED_TIMEOUTS: usize = 64;
/// Time for which closing an execution waits, to be batched with other inputs.
const LINGER: Duration = Duration::from_millis(50);
/// Time in which an owner that loses its shard tries to clear its note.
pub(super) const NOTE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for which a drain waits for messages in flight.
const GRACE: Duration = Duration::from_secs(5);
/// Time for which the effects of a group are awaited while a new owner catches up.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(250);

/// A shard and its owner's state.
pub(super) struct Shard {
    pub(super) shared: Handle,
    id: u32,
    journal: Journal,
    inbox: Inbox,
    pub(super) state: ShardState,
    outbox: Outbox,
    calls: NodeCalls,
    stores: StorePublisher,
    starts: StartServer,
    back: mpsc::UnboundedReceiver<BackInput>,
    /// Memory permits for the stored values of arrivals that are not decided yet.
    arrived: Vec<OwnedSemaphorePermit>,
    /// Messages that the last turn left because their stored values would have exceeded the memory limit.
    left: VecDeque<ReceivedMessage>,
    /// The broker's clock, so that changes of the local clock move no deadline.
    clock: ServerClock,
    timers: TimerGuard,
    guard: TakeoverGuard,
    note: StoredNote,
    /// The purge of the journal in progress.
    purge: Option<JoinHandle<Result<(), MeshError>>>,
    gauges: ExecutionGauges,
    checks: PeriodicChecks,
    _mesh_gauges: Option<[AbortOnDropHandle<()>; 2]>,
    /// Events of stored commits that were not published yet; nothing waits for them.
    reports: Vec<ShardReport>,
    /// Executions that have ended in a stored commit and were not archived yet.
    ended: Vec<Outgoing>,
}

/// Timers that a round considers.
enum DueWork {
    None,
    All,
    Of(Vec<ExecutionId>),
}

/// Returns whether the inputs only close executions.
fn are_closings(inputs: &[ShardInput]) -> bool {
    !inputs.is_empty() && inputs.iter().all(|input| matches!(input, ShardInput::Archived { .. }))
}

/// Owns a shard until `stop` or until another executor takes it over; starts after a delay. `died` means that a
/// previous loop of this process for the shard ended in a panic.
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
            // An owner that loses its shard and keeps running has not crashed.
            shard.note.leave(&mut shard.guard, NOTE_TIMEOUT).await;
            end
        }
    }
}

impl Shard {
    /// Claims the shard: reads its journal, and appends its own first message, which fences the old owner.
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
        // A recreated stream is read from its start; duplicates are recognized by their ids.
        let positions = shared.mesh.commands().current_positions(id, reader.positions()).await?;
        let (note, guard) = StoredNote::open(&shared, id, died).await?;
        let (entries, position) = (reader.entry_count(), journal.position().unwrap_or_default());
        let config = Arc::new(shared.shard_config(id));
        let mut opening = ShardOpening::new(config, reader, guard, positions, position, bytes);
        for held in opening.held() {
            let (execution, reason) = (&held.execution, &held.hold.reason);
            error!(%execution, code = code::EXECUTION_QUARANTINED.as_str(), reason, "an execution is held");
            metrics::counter!("sinew_executions_set_aside_total").increment(1);
        }
        crash::point("open.replayed");
        let mut stores = StorePublisher::open(&shared).await?;
        let sequence = stores.append(&mut journal, opening.claim()).await?;
        opening.handle_claimed(sequence);
        crash::point("open.claimed");
        let clock = shared.mesh.admin().server_clock().await?;
        let (sender, back) = mpsc::unbounded_channel();
        let calls = NodeCalls::open(&shared, sender.clone()).await?;
        let outbox = Outbox::open(Arc::clone(&shared), sender);
        let mut senders = OpeningSenders { outbox, calls, stores, note };
        senders.fold(&shared, &mut opening).await?;
        let OpeningSenders { outbox, calls, stores, note } = senders;
        let (mut state, mut guard) = opening.finish();
        state.handle_outage(clock.now(), HAND_IN_MS);
        for (stored, fault) in state.held() {
            error!(execution = %stored.meta.execution, %fault, "an execution cannot continue");
        }
        let inbox = shared.mesh.commands().inbox(id, state.positions()).await?;
        let starts = StartServer::open(&shared, id).await?;
        // An input that crashed the last owner is in the first batch after its last commit.
        guard.expect(inbox.waiting().min(2 * BATCH as u64));
        debug!(
            shard = id,
            executions = state.open_count(),
            entries,
            milliseconds = began.elapsed().as_millis() as u64,
            "shard opened"
        );
        metrics::counter!("sinew_takeovers_total").increment(1);
        let timers = TimerGuard::new(stores.connections());
        let checks = PeriodicChecks::new(&shared);
        let mesh_gauges = (id == REPORTING_SHARD).then(|| report_mesh_gauges(&shared.mesh));
        Ok(Self {
            shared,
            id,
            journal,
            inbox,
            state,
            outbox,
            calls,
            stores,
            starts,
            back,
            arrived: Vec::new(),
            left: VecDeque::new(),
            clock,
            timers,
            guard,
            note,
            purge: None,
            gauges: ExecutionGauges::new(id),
            checks,
            _mesh_gauges: mesh_gauges,
            reports: Vec::new(),
            ended: Vec::new(),
        })
    }

    async fn work(&mut self, stop: &CancellationToken) -> Result<(), End> {
        self.calls.handle_opened();
        let shared = Arc::clone(&self.shared);
        let mut queries = QueryServer::new(shared.mesh.services().serve_queries(self.id).await?);
        // Closings wait for the next commit, at most LINGER.
        let mut closing: Vec<ShardInput> = Vec::new();
        // A point in time, not a duration, so that queries and other wake-ups do not postpone it.
        let mut latest = tokio::time::Instant::now();
        loop {
            let due = self.check_timers().await;
            if self.guard.check_end(due.is_some_and(|due| due.is_zero())) {
                self.note.release(&mut self.guard).await?;
            }
            let linger = (!closing.is_empty()).then(|| latest.duration_since(tokio::time::Instant::now()));
            self.gauges.tell(&self.state);
            self.outbox.send(self.checks.poll(&self.shared, self.clock.now(), &mut self.state));
            let asks = [self.calls.next_due(), self.stores.next_due(), self.gauges.next_due()];
            let asks = asks.into_iter().flatten().chain([self.checks.next_due()]).min();
            let asks = asks.map(|at| at.saturating_duration_since(tokio::time::Instant::now()));
            // One timer for everything that depends on time.
            let wake = [due, linger, asks].into_iter().flatten().min();
            let has_rest = !(self.reports.is_empty() && self.ended.is_empty());
            let mut messages = Vec::new();
            let mut requests = Vec::new();
            let mut replied = None;
            let mut arrivals = Vec::new();
            tokio::select! {
                biased;
                () = stop.cancelled() => {
                    self.round(Vec::new(), Vec::new(), closing, DueWork::None).await?;
                    self.tell_rest().await;
                    return Ok(());
                }
                () = ready(()), if !self.left.is_empty() => messages.extend(self.left.pop_front()),
                received = self.inbox.next() => messages.push(received?),
                reply = self.calls.heard() => replied = reply,
                request = self.starts.next() => requests.push(request),
                () = self.stores.heard() => {}
                arrived = self.back.recv() => self.take_arrived(arrived, &mut arrivals),
                () = sleep(wake) => {}
                // No input has arrived, so no append is imminent.
                () = yield_now(), if has_rest => {
                    self.tell_rest().await;
                    continue;
                }
                Some(question) = queries.next() => {
                    self.answer_turn(&mut queries, Some(question));
                    continue;
                }
            }
            self.take_messages(&mut messages)?;
            self.take_requests(&mut requests);
            self.hear_calls(replied, &mut arrivals).await;
            self.hear_stores(&mut arrivals);
            while let Ok(arrived) = self.back.try_recv() {
                self.take_arrived(Some(arrived), &mut arrivals);
            }
            let is_busy =
                !messages.is_empty() || !requests.is_empty() || due.is_some_and(|due| due.is_zero());
            if !is_busy && closing.is_empty() && are_closings(&arrivals) {
                closing = arrivals;
                latest = tokio::time::Instant::now() + LINGER;
                continue;
            }
            arrivals.append(&mut closing);
            if self.guard.is_needed(arrivals.iter().filter_map(ShardInput::execution)) {
                // A start that crashes its owner is identified by its position in the stream of commands.
                for request in requests {
                    self.starts.refer(request).await;
                }
                self.careful_turn(messages, arrivals).await?;
            } else {
                let left = self.round(messages, requests, arrivals, DueWork::All).await?;
                self.leave(left);
            }
            self.arrived.clear();
            // The select above prefers work, so queries get their turn here under continuous load.
            self.answer_turn(&mut queries, None);
        }
    }

    /// Returns the time until timers may fire; zero if some are due and the inbox was read. `None` without timers.
    async fn check_timers(&mut self) -> Option<Duration> {
        let at = self.state.next_timeout()?;
        let due = until(&self.clock, at);
        if !due.is_zero() {
            return Some(due);
        }
        if self.timers.is_needed(at) {
            let asked_at = self.clock.now();
            let ends = self.inbox.ends().await;
            let outage = self.timers.handle_ends(asked_at, ends, self.stores.connections());
            if outage == Outage::Ended {
                self.state.handle_outage(self.clock.now(), HAND_IN_MS);
            }
        }
        let is_read = self.timers.ends().is_some_and(|ends| ends.are_reached(&self.state.positions()));
        Some(if is_read { Duration::ZERO } else { self.timers.wait() })
    }

    /// Returns due tasks that were not delivered to a process, each with whether its agent is online.
    async fn untaken_tasks(&mut self) -> Vec<(DueTask, bool)> {
        let due = self.timers.ends().map(|ends| self.state.due_tasks(&ends, MAX_EXPLAINED_TIMEOUTS));
        let mut untaken = Vec::new();
        for task in due.into_iter().flatten() {
            let is_untaken = self.calls.is_waiting(&task.task) || self.shared.is_queued(&task).await;
            if is_untaken {
                let is_online = self.shared.cards.get(&task.agent).is_some();
                untaken.push((task, is_online));
            }
        }
        untaken
    }

    /// Takes pending start requests, up to the limit of one turn.
    fn take_requests(&mut self, requests: &mut Vec<StartRequest>) {
        while requests.len() < self.guard.batch(BATCH)
            && let Some(request) = self.starts.try_next()
        {
            requests.push(request);
        }
    }

    /// Processes one turn in groups; a note records each group before its processing starts.
    async fn careful_turn(
        &mut self,
        messages: Vec<ReceivedMessage>,
        inputs: Vec<ShardInput>,
    ) -> Result<(), End> {
        let due = match self.timers.ends() {
            Some(ends) => self.state.due_executions(&ends, MAX_CAREFUL_BATCH),
            None => Vec::new(),
        };
        let mut left = Vec::new();
        // Groups with messages come last, and have nothing else.
        for group in self.guard.split_turn(due, inputs, messages, work_item) {
            let WorkGroup { items, due, inputs, messages } = group;
            if !left.is_empty() {
                // A position must not pass a message that was left.
                left.extend(messages);
                continue;
            }
            self.note.hold(&mut self.guard, &items).await?;
            let taken = messages.len();
            left = self.round(messages, Vec::new(), inputs, DueWork::Of(due)).await?;
            self.tell_rest().await;
            if self.guard.note().is_suspicious() {
                self.stores.settle(SETTLE_TIMEOUT).await;
                self.outbox.settle(SETTLE_TIMEOUT).await;
            }
            self.guard.took(taken - left.len());
            self.guard.pass();
        }
        self.leave(left);
        self.note.release(&mut self.guard).await
    }

    /// Keeps messages for the next turn, before those that were left earlier.
    fn leave(&mut self, messages: Vec<ReceivedMessage>) {
        messages.into_iter().rev().for_each(|message| self.left.push_front(message));
    }

    /// Runs one round: decides all inputs, stores them in one message, and performs the effects. Returns
    /// messages that have to wait for the next round.
    async fn round(
        &mut self,
        mut messages: Vec<ReceivedMessage>,
        requests: Vec<StartRequest>,
        arrived: Vec<ShardInput>,
        due: DueWork,
    ) -> Result<Vec<ReceivedMessage>, End> {
        let mut time = RoundTime::start();
        let mut starts = Vec::with_capacity(requests.len());
        for request in requests {
            match intake::read_start(&self.state, &request) {
                Some(start) => starts.push(start),
                None => self.starts.refer(request).await,
            }
        }
        let untaken = match due {
            DueWork::None => Vec::new(),
            DueWork::All | DueWork::Of(_) => self.untaken_tasks().await,
        };
        let note = self.guard.note();
        let shared = Arc::clone(&self.shared);
        let mut turn = intake::read_all(&shared, &self.state, note, &messages, starts).await;
        let left = messages.split_off(turn.read);
        let mut inputs = std::mem::take(&mut turn.inputs);
        inputs.extend(arrived);
        time.part("decoded");
        self.check_outputs(&mut inputs).await;
        time.part("checked");
        crash::point("round.understood");
        let now = self.clock.now();
        for message in &messages {
            self.state.handle_position(intake::stream_of(message), message.seq, message.time);
        }
        for input in inputs {
            self.state.handle_input(now, input, &*self.shared);
        }
        for (task, is_online) in untaken {
            self.state.handle_not_taken(now, &task, is_online);
        }
        match (due, self.timers.ends()) {
            (DueWork::None, _) | (_, None) => {}
            (DueWork::All, Some(ends)) => self.state.handle_timeout(&ends),
            (DueWork::Of(due), Some(ends)) => self.state.handle_timeout_of(&ends, &due),
        }
        time.part("decided");
        effects::tell(self.state.take_notices());
        let Some(commit) = self.state.poll_commit() else {
            self.dispatch().await;
            self.tell_rest().await;
            time.tell(self.id, messages.len(), 0);
            self.end_turn().await;
            return Ok(left);
        };
        let (entries, bytes) = (commit.entries, commit.body.len());
        time.part("encoded");
        self.store(commit).await?;
        time.part("stored");
        metrics::counter!("sinew_commits_total").increment(1);
        self.gauges.note_commit();
        metrics::histogram!("sinew_commit_entries").record(entries as f64);
        metrics::histogram!("sinew_round_seconds").record(time.elapsed().as_secs_f64());
        let sent = self.dispatch().await;
        if FEW_MESSAGES.contains(&sent) {
            self.publish_reports().await;
        }
        // Lets the connection send the messages, so that agents start working.
        yield_now().await;
        self.reports.extend(self.state.take_reports(&mut FactMeter));
        self.end_turn().await;
        time.part("acted");
        time.tell(self.id, messages.len(), bytes);
        Ok(left)
    }

    /// Evicts executions, and purges what no open execution needs. A failure is harmless: the next call
    /// retries. A purge takes tens of milliseconds, so the loop does not wait for it.
    async fn end_turn(&mut self) {
        if self.purge.as_ref().is_some_and(JoinHandle::is_finished)
            && let Some(purge) = self.purge.take()
        {
            match purge.await {
                Ok(Ok(())) => self.state.handle_purged(),
                Ok(Err(error)) => warn!(shard = self.id, %error, "cannot purge the journal"),
                Err(error) => warn!(shard = self.id, %error, "the purge of the journal ended unexpectedly"),
            }
        }
        let keep = self.state.end_turn();
        if self.purge.is_none() {
            self.purge = keep.map(|keep| tokio::spawn(self.journal.purge_below(keep)));
        }
    }

    /// Takes replies that have arrived, and repeats calls that are due.
    async fn hear_calls(&mut self, first: Option<NodeReply>, arrivals: &mut Vec<ShardInput>) {
        let mut reply = first;
        while arrivals.len() < self.guard.batch(BATCH)
            && let Some(heard) = reply.take().or_else(|| self.calls.try_next())
        {
            arrivals.extend(self.calls.take(heard));
        }
        let others = self.calls.tick().await;
        self.outbox.send(others.into_iter().map(Job::Send).collect());
    }

    /// Takes messages that were left, and those that have arrived.
    fn take_messages(&mut self, messages: &mut Vec<ReceivedMessage>) -> Result<(), MeshError> {
        while messages.len() < self.guard.batch(BATCH) {
            let received = match self.left.pop_front() {
                Some(received) => received,
                None => match self.inbox.try_next()? {
                    Some(received) => received,
                    None => break,
                },
            };
            messages.push(received);
        }
        Ok(())
    }

    /// Takes an input from outside the loop.
    fn take_arrived(&mut self, arrived: Option<BackInput>, arrivals: &mut Vec<ShardInput>) {
        let Some(BackInput { input, permit, message }) = arrived else { return };
        let Some(message) = message else {
            arrivals.push(input);
            self.arrived.extend(permit);
            return;
        };
        // An outdated result would be counted as late, although the inbox delivered it in time.
        if let Some(Subject::Result { execution, task, .. }) = &message.subject
            && self.state.awaits(execution, task)
        {
            self.left.push_back(*message);
        }
    }

    /// Takes acknowledgements that have arrived; messages in doubt go to the outbox.
    fn hear_stores(&mut self, arrivals: &mut Vec<ShardInput>) {
        let (inputs, jobs) = self.stores.turn();
        arrivals.extend(inputs);
        self.outbox.send(jobs);
    }

    /// Sends the urgent messages of a stored commit, some through the outbox. Returns their number.
    async fn dispatch(&mut self) -> usize {
        let mut rest = Vec::new();
        let mut sent = 0;
        while let Some(outgoing) = self.state.poll_outgoing() {
            effects::count(&outgoing);
            sent += 1;
            match outgoing {
                Outgoing::StartAnswer { reply, decision, .. } => {
                    self.starts.answer(reply, decision, self.clock.now()).await;
                }
                Outgoing::Finish { .. } => self.ended.push(outgoing),
                outgoing => {
                    rest.extend(send(&self.shared, &mut self.calls, &mut self.stores, outgoing).await);
                }
            }
        }
        self.outbox.send(rest);
        sent
    }

    /// Publishes the events of stored commits.
    async fn publish_reports(&mut self) {
        self.reports.extend(self.state.take_reports(&mut FactMeter));
        effects::publish(&self.shared, std::mem::take(&mut self.reports)).await;
    }

    /// Publishes the remaining messages of stored commits: events, then the records of ended executions.
    async fn tell_rest(&mut self) {
        effects::publish(&self.shared, std::mem::take(&mut self.reports)).await;
        let mut rest = Vec::new();
        for outgoing in std::mem::take(&mut self.ended) {
            rest.extend(send(&self.shared, &mut self.calls, &mut self.stores, outgoing).await);
        }
        self.outbox.send(rest);
    }

    /// Appends a commit. While the append is in flight, flushes the remaining messages of the previous commit
    /// and prepares those of this one. If the append fails, the state is invalid and dropped.
    async fn store(&mut self, commit: PendingCommit) -> Result<(), End> {
        let stored = match self.stores.begin_append(&mut self.journal, commit).await {
            Ok(ticket) => {
                // Lets the connection send the commit.
                yield_now().await;
                self.tell_rest().await;
                self.state.prepare();
                self.stores.finish_append(&mut self.journal, ticket).await
            }
            Err(error) => Err(error),
        };
        match &stored {
            Ok(sequence) => self.state.handle_stored(*sequence),
            Err(_) => self.state.handle_lost(),
        }
        stored.map(drop).map_err(End::from)
    }

    /// Answers some of the pending queries, starting with `first`.
    fn answer_turn(&mut self, queries: &mut QueryServer, first: Option<OpenQuestion>) {
        let (id, owner, position) = (self.id, &self.shared.owner, self.journal.position());
        let status = |state: &ShardState| {
            serde_json::json!({
                "shard": id,
                "owner": owner,
                "executions": state.open_count(),
                "folded": state.active_count(),
                "broken": state.held().count(),
                "journal": position,
                "positions": {
                    "commands": state.positions().commands,
                    "results": state.positions().results,
                },
            })
        };
        let mut rows = None;
        queries.turn(first, |question| {
            let draft = AnswerDraft::of(&question.asked.query, &mut self.state, &mut rows, &status);
            question.answer(draft);
        });
    }

    /// Shuts down gracefully: completes sends in progress, and closes archived executions.
    async fn drain(mut self) -> Result<(), End> {
        self.starts.close().await;
        self.stores.settle(GRACE).await;
        let mut archived = Vec::new();
        self.hear_stores(&mut archived);
        self.outbox.close(GRACE).await;
        let now = self.clock.now();
        for input in archived {
            self.state.handle_input(now, input, &*self.shared);
        }
        while let Ok(BackInput { input, .. }) = self.back.try_recv() {
            // No other input is decided anymore: the next owner queries late results again.
            if matches!(input, ShardInput::Archived { .. }) {
                self.state.handle_input(now, input, &*self.shared);
            }
        }
        if let Some(commit) = self.state.poll_commit() {
            let sequence = self.stores.append(&mut self.journal, commit).await?;
            self.state.handle_stored(sequence);
        }
        debug!(shard = self.id, "handed over the shard");
        Ok(())
    }
}

/// Senders of a shard while it is opened.
struct OpeningSenders {
    outbox: Outbox,
    calls: NodeCalls,
    stores: StorePublisher,
    note: StoredNote,
}

impl OpeningSenders {
    /// Folds open executions group by group, and repeats effects without a result.
    async fn fold(&mut self, shared: &Handle, opening: &mut ShardOpening) -> Result<(), End> {
        self.outbox.send(opening.rejected_children().into_iter().map(Job::Send).collect());
        if opening.is_without_work() {
            if opening.guard().is_stale() {
                self.note.release(opening.guard()).await?;
            }
            return Ok(());
        }
        while let Some(items) = opening.next_group() {
            self.note.hold(opening.guard(), &items).await?;
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
                        opening.guard().watch(call.execution.clone());
                    }
                    Outgoing::Evaluation { call, .. } => opening.guard().watch(call.execution.clone()),
                    _ => {}
                }
            }
            let mut rest = Vec::new();
            for outgoing in again {
                rest.extend(send(shared, &mut self.calls, &mut self.stores, outgoing).await);
            }
            self.outbox.send(rest);
            self.stores.settle(SETTLE_TIMEOUT).await;
            self.outbox.settle(SETTLE_TIMEOUT).await;
            opening.guard().pass();
        }
        self.note.release(opening.guard()).await
    }
}
