//! Stored messages of one shard, sent by its loop and acknowledged to its loop.
//!
//! A record, task or commit in flight is one map entry. A message that is not acknowledged as
//! stored is read back: commits through [`Journal::settle`], everything else through the outbox,
//! under the same condition.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use sinew_execution::Call;
use sinew_mesh::history::{ClosedExecution, LARGEST_MESSAGE};
use sinew_mesh::publisher::{PublishReport, PublishTicket, StreamPublisher};
use sinew_mesh::{AppendError, Journal, MeshError, crash};
use sinew_protocol::{ExecutionId, Subject, Token};
use sinew_shard::{Outgoing, PendingCommit, ShardInput};
use tokio::time::Instant;

use super::intake::Handle;
use super::lost_results::StoredTask;
use super::outbox::Job;

/// Time without an acknowledgement after which a message is in doubt.
const ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of checks whether the connection was lost, with the messages on it.
const CONNECTION_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Publisher of one shard's stored messages.
pub(super) struct StorePublisher {
    shared: Handle,
    publisher: StreamPublisher,
    pending: HashMap<PublishTicket, Outgoing>,
    /// When messages come into doubt, in sending order.
    due: VecDeque<(Instant, PublishTicket)>,
    connections: u64,
    checked: Instant,
    /// Inputs from acknowledgements that were not taken yet.
    inputs: Vec<ShardInput>,
    /// Jobs for the outbox that were not taken yet.
    jobs: Vec<Job>,
    /// Open executions with cancelled tasks: the outbox archives their ends after the withdrawals.
    with_withdrawals: HashSet<ExecutionId>,
}

impl StorePublisher {
    /// Creates the publisher of a shard.
    pub(super) async fn open(shared: &Handle) -> Result<Self, MeshError> {
        let publisher = StreamPublisher::open(&shared.mesh).await?;
        Ok(Self {
            shared: std::sync::Arc::clone(shared),
            connections: publisher.connections(),
            publisher,
            pending: HashMap::new(),
            due: VecDeque::new(),
            checked: Instant::now(),
            inputs: Vec::new(),
            jobs: Vec::new(),
            with_withdrawals: HashSet::new(),
        })
    }

    /// Returns how often this process has connected to the broker.
    pub(super) fn connections(&self) -> u64 {
        self.publisher.connections()
    }

    /// Appends a commit after the owner's position. Other acknowledgements that arrive meanwhile
    /// are kept.
    pub(super) async fn append(
        &mut self,
        journal: &mut Journal,
        commit: PendingCommit,
    ) -> Result<u64, AppendError> {
        let ticket = self.begin_append(journal, commit).await?;
        self.finish_append(journal, ticket).await
    }

    /// Sends a commit for an append like [`StorePublisher::append`];
    /// [`StorePublisher::finish_append`] waits for the outcome.
    pub(super) async fn begin_append(
        &mut self,
        journal: &mut Journal,
        commit: PendingCommit,
    ) -> Result<Option<PublishTicket>, AppendError> {
        if journal.position() != Some(commit.after) {
            return Err(MeshError::JournalUnread { shard: journal.shard() }.into());
        }
        journal.send(&mut self.publisher, commit.body).await
    }

    /// Waits until a sent commit is stored, and returns its position. Other acknowledgements that
    /// arrive meanwhile are kept.
    pub(super) async fn finish_append(
        &mut self,
        journal: &mut Journal,
        ticket: Option<PublishTicket>,
    ) -> Result<u64, AppendError> {
        let Some(ticket) = ticket else { return journal.settle().await };
        let (until, connections) = (Instant::now() + ACKNOWLEDGEMENT_TIMEOUT, self.publisher.connections());
        while Instant::now() < until && self.publisher.connections() == connections {
            let wait = tokio::time::timeout(CONNECTION_CHECK_INTERVAL, self.publisher.next());
            let Ok(Some(report)) = wait.await else { continue };
            if report.ticket != ticket {
                self.take(report);
                continue;
            }
            let Some(seq) = report.stored else { break };
            crash::point("journal.after");
            journal.handle_stored(seq);
            return Ok(seq);
        }
        journal.settle().await
    }

    /// Sends a message. Returns it if the outbox has to send it.
    pub(super) async fn send(&mut self, outgoing: Outgoing) -> Option<Outgoing> {
        if let Outgoing::Finish { record, .. } = &outgoing
            && self.with_withdrawals.remove(&record.meta.execution)
        {
            return Some(outgoing);
        }
        let ticket = match &outgoing {
            Outgoing::Finish { record, wait_report: None, .. } if record.meta.parent.is_none() => {
                let Some(closed) = closed_execution(&outgoing) else { return Some(outgoing) };
                if record.round_bytes() > LARGEST_MESSAGE {
                    return Some(outgoing);
                }
                let body = record.encode();
                self.shared.mesh.history().send(&mut self.publisher, &closed, body).await
            }
            Outgoing::Task { call, meta, .. } => {
                let Some((headers, body)) = self.shared.queued_node_task(call, meta) else {
                    return Some(outgoing);
                };
                crash::point("task.queued");
                let agent = Token::of(call.ask.target.name());
                let subject =
                    Subject::Task { agent, execution: call.execution.clone(), task: call.task.clone() };
                self.publisher.send_once(&subject, headers, body).await
            }
            _ => None,
        };
        let Some(ticket) = ticket else { return Some(outgoing) };
        self.pending.insert(ticket, outgoing);
        self.due.push_back((Instant::now() + ACKNOWLEDGEMENT_TIMEOUT, ticket));
        None
    }

    /// Records that a task was cancelled. If it is being stored, it is withdrawn again afterwards.
    pub(super) fn cancel(&mut self, call: &Call) {
        self.with_withdrawals.insert(call.execution.clone());
        for pending in self.pending.values_mut() {
            if matches!(pending, Outgoing::Task { call: stored, .. } if stored.task == call.task) {
                *pending = Outgoing::CancelTask { call: call.clone() };
            }
        }
        // Do not query a task that was stored before.
        self.jobs.retain(|job| match job {
            Job::Send(Outgoing::Task { call: other, .. }) => other.task != call.task,
            Job::Pursue(stored) => stored.call.task != call.task,
            Job::Send(_) | Job::Settled(_) => true,
        });
    }

    /// Waits for an acknowledgement. Cancel-safe.
    pub(super) async fn heard(&mut self) {
        match self.publisher.next().await {
            Some(report) => self.take(report),
            // The connection was closed permanently; other branches end the loop.
            None => std::future::pending().await,
        }
    }

    /// Returns when something is due without an acknowledgement.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let (first, _) = self.due.front()?;
        Some((*first).min(self.checked + CONNECTION_CHECK_INTERVAL))
    }

    /// Handles acknowledgements and timeouts. Returns inputs, and jobs for the outbox: messages to
    /// store with read-back, and tasks that were stored before.
    pub(super) fn turn(&mut self) -> (Vec<ShardInput>, Vec<Job>) {
        while let Some(report) = self.publisher.try_next() {
            self.take(report);
        }
        while self.due.front().is_some_and(|(_, ticket)| !self.pending.contains_key(ticket)) {
            self.due.pop_front();
        }
        if !self.due.is_empty() {
            self.check_time();
        }
        (std::mem::take(&mut self.inputs), std::mem::take(&mut self.jobs))
    }

    /// Waits until all sent messages are acknowledged, at most `limit`; then the remaining ones are
    /// in doubt.
    pub(super) async fn settle(&mut self, limit: Duration) {
        let all = async {
            while !self.pending.is_empty() {
                self.heard().await;
            }
        };
        if tokio::time::timeout(limit, all).await.is_err() {
            self.jobs.extend(self.pending.drain().map(|(_, outgoing)| Job::Send(outgoing)));
        }
    }

    fn check_time(&mut self) {
        let now = Instant::now();
        let connections = self.publisher.connections();
        if std::mem::replace(&mut self.connections, connections) != connections {
            // Acknowledgements may have been lost with the connection.
            self.due.clear();
            self.jobs.extend(self.pending.drain().map(|(_, outgoing)| Job::Send(outgoing)));
        }
        self.checked = now;
        while let Some((_, ticket)) = self.due.pop_front_if(|(due, _)| *due <= now) {
            self.jobs.extend(self.pending.remove(&ticket).map(Job::Send));
        }
    }

    fn take(&mut self, report: PublishReport) {
        let Some(outgoing) = self.pending.remove(&report.ticket) else { return };
        if let Outgoing::CancelTask { .. } = outgoing {
            self.jobs.push(Job::Send(outgoing));
            return;
        }
        let Some(place) = report.stored else {
            self.jobs.push(match (outgoing, report.taken) {
                (Outgoing::Task { call, meta, .. }, place @ Some(_)) => {
                    Job::Pursue(StoredTask { call, meta, place })
                }
                (outgoing, _) => Job::Send(outgoing),
            });
            return;
        };
        match outgoing {
            // The queue has passed this position, so pursue the task until it has a result.
            Outgoing::Task { call, meta, .. }
                if self.shared.queues.passes_over(call.ask.target.name(), place) =>
            {
                self.jobs.push(Job::Pursue(StoredTask { call, meta, place: Some(place) }));
            }
            Outgoing::Finish { record, end_number, .. } => {
                crash::point("history.after");
                crash::point("finish.archived");
                crash::point("finish.answered");
                let execution = record.meta.execution;
                self.inputs.push(ShardInput::Archived { execution, end_number });
            }
            _ => crash::point("task.after"),
        }
    }
}

/// Returns the summary for archiving an ended execution; `None` for other messages.
pub(super) fn closed_execution(outgoing: &Outgoing) -> Option<ClosedExecution> {
    let Outgoing::Finish { record, outcome, started, ended, usage, is_dry_run, route, attributes, .. } =
        outgoing
    else {
        return None;
    };
    Some(ClosedExecution {
        execution: record.meta.execution.clone(),
        workflow: record.meta.workflow.clone(),
        status: outcome.status.as_str().to_owned(),
        started: *started,
        ended: *ended,
        caller: record.meta.caller.to_string(),
        entries: record.entry_count(),
        usage: *usage,
        fault_code: outcome.fault.as_ref().map(|fault| fault.code.to_string()),
        plan: Some(record.meta.plan.clone()),
        is_dry_run: *is_dry_run,
        route: Some(route.clone()),
        attributes: attributes.as_ref().clone(),
    })
}
