//! Tasks at node endpoints, sent and received by the loop of the shard itself.
//!
//! A call is one map entry until its response arrives, without a task, channel or timer. An agent
//! that does not respond is called again under the same id, an absent one once it is online. No
//! state is stored: after a crash the next owner calls again.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sinew_mesh::card::Cards;
use sinew_mesh::node::{NodeCaller, NodeReply, NodeReplyBody};
use sinew_mesh::{HeaderMap, MeshError};
use sinew_protocol::journal::ExecutionMeta;
use sinew_protocol::task::{NodeAnswer, NodeResult, read_node_answer};
use sinew_protocol::usage::TaskUsage;
use sinew_protocol::{Fault, ResultToken, Subject, TaskId, Token};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::debug;

use super::Shared;
use super::direct::{LOOK_AGAIN, NO_ROOM, NO_TASK, REPEAT_INTERVAL, SOONEST, retry_pause};
use super::intake::{self, BackInput, Handle};
use super::outbox::{insist, report};
use sinew_execution::Call;
use sinew_shard::{AgentLine, Outgoing, PendingInput, ShardInput};

/// Interval of checks whether the connection was lost, with the requests on it.
const CONNECTION_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Wait for the usage of a cancelled call: agents give their handlers 5 s to clean up.
pub(super) const LATE_USAGE_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause before a request that the connection did not accept is sent again.
const RESEND_PAUSE: Duration = Duration::from_millis(250);

/// Calls of one shard in progress, by the token in their reply subject.
pub(super) struct NodeCalls {
    shared: Handle,
    caller: NodeCaller,
    calls: HashMap<ResultToken, NodeCall>,
    due: BTreeSet<(Instant, ResultToken)>,
    /// Cancelled calls whose agents may still report usage.
    cancelled: HashMap<ResultToken, CancelledCall>,
    /// The same tokens, oldest first, with the end of the wait.
    cancelled_until: VecDeque<(Instant, ResultToken)>,
    lines: HashMap<String, AgentLine>,
    /// Calls that have a slot and were not sent yet.
    ready: Vec<ResultToken>,
    /// Until when the connection accepts no requests.
    stalled: Option<Instant>,
    connections: u64,
    checked: Instant,
    /// Whether a called agent was offline.
    is_absent: bool,
    /// Whether the shard is being opened: its last owner may have sent the same requests.
    is_opening: bool,
    cards: Cards,
    /// Outputs that are fetched before the reply counts.
    fetches: JoinSet<()>,
    back: mpsc::UnboundedSender<BackInput>,
}

/// A call in progress.
struct NodeCall {
    call: Call,
    meta: Arc<ExecutionMeta>,
    chain: Vec<String>,
    body: Bytes,
    place: CallPhase,
    /// When it is repeated; `None` while it waits for a slot.
    due: Option<Instant>,
    /// Delay before it is repeated without a reply.
    repeat_after: Duration,
    /// How often it was repeated because the connection was lost.
    resent: u32,
    /// Whether it may have been sent before, by this owner of the shard or by the last one.
    is_repeated: bool,
}

/// A call whose reply no longer counts.
struct CancelledCall {
    task: TaskId,
    result_subject: Subject,
}

/// State of a call at the limit of its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallPhase {
    /// It waits for a slot.
    Waits,
    /// It has a slot.
    Inside,
    /// The agent refused it; it waits for a slot again once it is due.
    Pauses,
    /// The agent was offline; it keeps its slot.
    Absent,
}

impl NodeCalls {
    /// Creates the calls of a shard, and subscribes to their replies.
    pub(super) async fn open(
        shared: &Handle,
        back: mpsc::UnboundedSender<BackInput>,
    ) -> Result<Self, MeshError> {
        let caller = shared.mesh.services().node_caller().await?;
        let connections = caller.connections();
        Ok(Self {
            shared: Arc::clone(shared),
            caller,
            calls: HashMap::new(),
            due: BTreeSet::new(),
            cancelled: HashMap::new(),
            cancelled_until: VecDeque::new(),
            lines: HashMap::new(),
            ready: Vec::new(),
            stalled: None,
            connections,
            checked: Instant::now(),
            is_absent: false,
            is_opening: true,
            cards: shared.cards.clone(),
            fetches: JoinSet::new(),
            back,
        })
    }

    /// Marks the shard as open: later requests were never sent before.
    pub(super) fn handle_opened(&mut self) {
        self.is_opening = false;
    }

    /// Sends a task. Returns it if it is too large for the short form.
    pub(super) async fn send(
        &mut self,
        call: Call,
        meta: Arc<ExecutionMeta>,
        chain: Vec<String>,
    ) -> Option<Outgoing> {
        let token = ResultToken::of(&self.shared.key, &call.task);
        let Some(body) = Shared::node_request(&call, &meta, &token) else {
            return Some(Outgoing::Task { call, meta, chain });
        };
        if self.calls.contains_key(&token) {
            return None;
        }
        let (place, due, resent, repeat_after) = (CallPhase::Waits, None, 0, REPEAT_INTERVAL.0);
        let is_repeated = self.is_opening;
        let waiting = NodeCall { call, meta, chain, body, place, due, repeat_after, resent, is_repeated };
        self.calls.insert(token.clone(), waiting);
        self.enter(token);
        self.flush().await;
        None
    }

    /// Waits for a reply, or until another call may be due. Cancel-safe.
    pub(super) async fn heard(&mut self) -> Option<NodeReply> {
        if !self.is_absent {
            return match self.caller.next().await {
                Some(reply) => Some(reply),
                // The connection was closed permanently; other branches end the loop.
                None => std::future::pending().await,
            };
        }
        tokio::select! {
            biased;
            Some(reply) = self.caller.next() => return Some(reply),
            () = self.cards.changed() => {}
        }
        self.is_absent = false;
        let now = Instant::now();
        let absent = self.calls.iter().filter(|(_, call)| call.place == CallPhase::Absent);
        for token in absent.map(|(token, _)| token.clone()).collect::<Vec<_>>() {
            self.schedule(&token, now);
        }
        None
    }

    /// Returns a reply that has already arrived.
    pub(super) fn try_next(&mut self) -> Option<NodeReply> {
        self.caller.try_next()
    }

    /// Handles a reply; returns the result of the task if it contains one.
    pub(super) fn take(&mut self, reply: NodeReply) -> Option<ShardInput> {
        let NodeReply { token, said } = reply;
        let Some(known) = self.calls.get(&token) else {
            metrics::counter!("sinew_results_late_total").increment(1);
            self.keep_usage(&token, said);
            return None;
        };
        let agent = known.call.ask.target.name();
        let result = match said {
            NodeReplyBody::NobodyListens => {
                debug!(agent, "the agent is offline; its task waits");
                self.is_absent = true;
                self.postpone(&token, LOOK_AGAIN, CallPhase::Absent);
                return None;
            }
            // The reply is malformed: a repeated call would get the same one.
            NodeReplyBody::Unreadable(reason) => {
                Err(Fault::error(NO_TASK, format!("cannot read the agent's response: {reason}")))
            }
            NodeReplyBody::Answer(body) => match read_node_answer(&body, &known.call.task) {
                Ok(NodeAnswer::Ended(result)) => Ok(result),
                Ok(NodeAnswer::Refused(fault)) if fault.code == NO_ROOM => {
                    if let Some(line) = self.lines.get_mut(agent) {
                        line.refuse();
                    }
                    self.postpone(&token, SOONEST, CallPhase::Pauses);
                    return None;
                }
                // This replica shuts down; another one may accept the task under the same id.
                Ok(NodeAnswer::Refused(fault)) if fault.retryable => {
                    debug!(agent, %fault, "the agent refused the task temporarily");
                    let wait = fault.retry_after_ms.map_or(LOOK_AGAIN, Duration::from_millis);
                    self.postpone(&token, wait.clamp(SOONEST, REPEAT_INTERVAL.1), CallPhase::Inside);
                    return None;
                }
                Ok(NodeAnswer::Refused(fault)) => {
                    Err(Fault::error(NO_TASK, format!("the agent refused the task: {fault}")))
                }
                Err(bad) => Err(bad.into()),
            },
        };
        let ended = self.end(&token)?;
        self.arrival(ended.call, result)
    }

    fn arrival(&mut self, call: Call, result: Result<Box<NodeResult>, Fault>) -> Option<ShardInput> {
        let agent = Token::of(call.ask.target.name());
        let pending = match result {
            Err(fault) => {
                return Some(ShardInput::task_result(call.execution, call.task, agent, Err(fault)));
            }
            Ok(result) => PendingInput::of_result(call.execution, call.task, agent, *result),
        };
        if pending.lookup().is_none() {
            return Some(pending.finish());
        }
        let (shared, back) = (Arc::clone(&self.shared), self.back.clone());
        self.fetches.spawn(async move {
            let _ = back.send(intake::complete(&shared, pending).await);
        });
        None
    }

    /// Returns true if a task waits for a slot or for an offline agent: no process has it.
    pub(super) fn is_waiting(&self, task: &TaskId) -> bool {
        let call = self.calls.get(&ResultToken::of(&self.shared.key, task));
        call.is_some_and(|call| call.place != CallPhase::Inside)
    }

    /// Drops a cancelled task, except for the usage that its agent may still report.
    pub(super) fn cancel(&mut self, task: &TaskId) {
        let now = Instant::now();
        while self.cancelled_until.front().is_some_and(|(until, _)| *until <= now) {
            let expired = self.cancelled_until.pop_front();
            expired.and_then(|(_, token)| self.cancelled.remove(&token));
        }
        let token = ResultToken::of(&self.shared.key, task);
        // An agent that did not receive the task does not reply.
        let Some(ended) = self.end(&token).filter(|ended| ended.is_repeated) else { return };
        let agent = Token::of(ended.call.ask.target.name());
        let Some(result_subject) =
            Subject::parse(self.shared.mesh.namespace(), &self.shared.result_subject(&ended.call, &agent))
        else {
            return;
        };
        self.cancelled_until.push_back((now + LATE_USAGE_TIMEOUT, token.clone()));
        self.cancelled.insert(token, CancelledCall { task: ended.call.task, result_subject });
    }

    /// Stores the reply to a cancelled call among the results of queued tasks if it reports usage.
    fn keep_usage(&mut self, token: &ResultToken, said: NodeReplyBody) {
        let NodeReplyBody::Answer(body) = said else { return };
        let Some(CancelledCall { task, result_subject }) = self.cancelled.remove(token) else { return };
        match read_node_answer(&body, &task) {
            Ok(NodeAnswer::Ended(result)) if TaskUsage::of(&result.usage).is_some() => {
                let shared = Arc::clone(&self.shared);
                self.fetches.spawn(async move {
                    let put =
                        || shared.mesh.tasks().put_once(&result_subject, HeaderMap::new(), body.clone());
                    report(&insist(put).await);
                });
            }
            _ => {}
        }
    }

    /// Returns when something is due without a reply.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let first = self.due.first().map(|(due, _)| *due)?;
        Some(first.min(self.checked + CONNECTION_CHECK_INTERVAL))
    }

    /// Repeats calls that are due. Returns tasks of agents that no longer accept the short form.
    pub(super) async fn tick(&mut self) -> Vec<Outgoing> {
        while self.fetches.try_join_next().is_some() {}
        let now = Instant::now();
        if now.saturating_duration_since(self.checked) >= CONNECTION_CHECK_INTERVAL {
            self.checked = now;
            self.check_connection(now);
        }
        let mut others = Vec::new();
        while let Some((due, token)) = self.due.first().cloned() {
            if due > now {
                break;
            }
            self.due.pop_first();
            let Some(call) = self.calls.get_mut(&token) else { continue };
            call.due = None;
            if self.shared.took_back_node_requests(&call.call) {
                if let Some(NodeCall { call, meta, chain, .. }) = self.end(&token) {
                    others.push(Outgoing::Task { call, meta, chain });
                }
            } else if call.place == CallPhase::Pauses {
                call.place = CallPhase::Waits;
                self.enter(token);
            } else {
                self.ready.push(token);
            }
        }
        self.flush().await;
        others
    }

    /// Repeats calls after a lost connection: their replies may be lost with it.
    fn check_connection(&mut self, now: Instant) {
        let connections = self.caller.connections();
        if std::mem::replace(&mut self.connections, connections) == connections {
            return;
        }
        let inside = self.calls.iter_mut().filter(|(_, call)| call.place == CallPhase::Inside);
        let again: Vec<_> = inside
            .map(|(token, call)| {
                // If an agent's replies break the connection, call it ever less often.
                let due = now + retry_pause(call.resent);
                call.resent += 1;
                (token.clone(), due)
            })
            .collect();
        for (token, due) in again {
            self.schedule(&token, due);
        }
    }

    /// Gives a call a slot of its agent's limit, or queues it.
    fn enter(&mut self, token: ResultToken) {
        let Some(call) = self.calls.get_mut(&token) else { return };
        let line = self.lines.entry(call.call.ask.target.name().to_owned()).or_default();
        if line.enter(&token) {
            call.place = CallPhase::Inside;
            self.ready.push(token);
        }
    }

    /// Ends a call and admits the next ones.
    fn end(&mut self, token: &ResultToken) -> Option<NodeCall> {
        let ended = self.calls.remove(token)?;
        if let Some(due) = ended.due {
            self.due.remove(&(due, token.clone()));
        }
        let agent = ended.call.ask.target.name();
        if matches!(ended.place, CallPhase::Inside | CallPhase::Absent)
            && let Some(line) = self.lines.get_mut(agent)
        {
            line.end();
        }
        self.let_in(agent);
        Some(ended)
    }

    /// Gives free slots of an agent to the calls that have waited longest.
    fn let_in(&mut self, agent: &str) {
        let Some(line) = self.lines.get_mut(agent) else { return };
        while let Some(token) = line.admit_next() {
            if let Some(call) = self.calls.get_mut(&token).filter(|call| call.place == CallPhase::Waits) {
                call.place = CallPhase::Inside;
                self.ready.push(token);
            } else {
                line.leave();
            }
        }
        if line.is_idle() {
            self.lines.remove(agent);
        }
    }

    fn postpone(&mut self, token: &ResultToken, wait: Duration, place: CallPhase) {
        if let Some(call) = self.calls.get_mut(token) {
            call.place = place;
        }
        self.schedule(token, Instant::now() + wait);
    }

    fn schedule(&mut self, token: &ResultToken, due: Instant) {
        let Some(call) = self.calls.get_mut(token) else { return };
        if let Some(before) = call.due.replace(due) {
            self.due.remove(&(before, token.clone()));
        }
        self.due.insert((due, token.clone()));
    }

    /// Sends calls that have a slot. If the connection is not ready, the remaining ones are sent a
    /// moment later.
    pub(super) async fn flush(&mut self) {
        for token in std::mem::take(&mut self.ready) {
            let now = Instant::now();
            let Some(call) = self.calls.get_mut(&token) else { continue };
            if call.place == CallPhase::Absent {
                call.place = CallPhase::Inside;
            }
            let is_stalled = self.stalled.is_some_and(|until| until > now);
            let agent = call.call.ask.target.name();
            let wait = if !is_stalled
                && self.caller.send(agent, &token, call.body.clone(), call.is_repeated).await
            {
                // With an observer on all subjects, NATS does not report that there are no
                // responders: an agent without a reply and without a card is called again as soon
                // as it has a card.
                if call.is_repeated && self.cards.get(agent).is_none() {
                    call.place = CallPhase::Absent;
                    self.is_absent = true;
                }
                call.is_repeated = true;
                let wait = call.repeat_after;
                call.repeat_after = (wait * 2).min(REPEAT_INTERVAL.1);
                wait
            } else {
                self.stalled = Some(now + RESEND_PAUSE);
                RESEND_PAUSE
            };
            self.schedule(&token, now + wait);
        }
    }
}
