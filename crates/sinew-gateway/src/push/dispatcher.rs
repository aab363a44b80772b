//! Delivers push notifications: the webhooks that this gateway holds, and their events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::Rng as _;
use serde_json::{Value, json};
use sinew_agents::{AgentError, WebClient};
use sinew_mesh::record::RecordView;
use sinew_mesh::trace::TraceParent;
use sinew_mesh::{Mesh, MeshError, log_limited};
use sinew_protocol::a2a::v0_3::old_event;
use sinew_protocol::a2a::{A2aError, CoreMethod, ErrorCode};
use sinew_protocol::access::AccessRole;
use sinew_protocol::jsonrpc::raw;
use sinew_protocol::origin::EntryPoint;
use sinew_protocol::push::PushSubscription;
use sinew_protocol::{Subject, Token};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::delivery::{DeliveryOutcome, backoff, deliver, is_last};
use super::fair_share::fair_share;
use super::forbidden_addresses::ForbiddenAddresses;
use crate::access::{Authenticator, now_ms};
use crate::file_link::FileLinks;
use crate::gateway_signer::GatewaySigner;
use crate::operations::{A2aOperations, Endpoint, OperationCall, OperationReply, StreamItem};
use crate::push_address::webhook_problem;

/// Time after which another gateway takes over from one that does not renew its lease.
const LEASE: Duration = Duration::from_secs(15);
/// Interval of checks for expired leases, and of lease renewals.
const RENEWAL: Duration = Duration::from_secs(5);
/// Changes of webhooks within this time are processed together.
const GATHER: Duration = Duration::from_millis(50);
/// Delay before a broken event stream is reopened.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);
/// Time limit for releasing leases.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for opening the events of a task.
const OPENING_TIMEOUT: Duration = Duration::from_mins(1);

/// A webhook in the shared view.
struct KnownPush {
    subject: Subject,
    revision: u64,
    record: PushSubscription,
}

impl KnownPush {
    /// Returns whether a gateway may take it: events are pending, no gateway delivers them, and the
    /// next attempt is due.
    fn is_free(&self, now: u64) -> bool {
        let is_held = self.record.lease.as_ref().is_some_and(|(_, until)| *until > now);
        !self.record.ended && !is_held && self.record.not_before <= now
    }
}

/// State shared by all deliveries.
struct PushShared {
    mesh: Mesh,
    operations: A2aOperations,
    authenticator: Arc<Authenticator>,
    web: WebClient,
    signer: Arc<GatewaySigner>,
    /// Addresses of files in events.
    links: FileLinks,
    draining: CancellationToken,
}

impl PushShared {
    /// Returns the body of the notification about an event. For A2A 0.3 it is the task as it is
    /// now, which the SDK of that version (a2a-sdk 0.3.26) sends.
    async fn notification(&self, record: &PushSubscription, event: Bytes) -> Result<Bytes, A2aError> {
        if !record.is_old {
            return Ok(self.links.in_event(event));
        }
        let is_update = serde_json::from_slice::<Value>(&event)
            .is_ok_and(|event| event.get("task").is_none() && event.get("message").is_none());
        let whole = if is_update { self.task_of(record).await? } else { event };
        let shown = serde_json::from_slice(&self.links.in_event(whole));
        let shown: Value = shown.map_err(|error| A2aError::internal(error.to_string()))?;
        Ok(old_event(shown).to_string().into())
    }

    /// Returns the task of a webhook as an event.
    async fn task_of(&self, record: &PushSubscription) -> Result<Bytes, A2aError> {
        let params = raw(&json!({ "id": record.shown_task }));
        let reply = self.operations.perform(&call_of(record), CoreMethod::GetTask, &params).await?;
        match reply {
            OperationReply::Value(task) => Ok(format!("{{\"task\":{task}}}").into()),
            _ => Err(A2aError::internal("expected a task")),
        }
    }
}

/// Returns the call by which the events of a webhook's task are read.
fn call_of(record: &PushSubscription) -> OperationCall {
    let endpoint =
        if record.is_mesh_endpoint { Endpoint::Mesh } else { Endpoint::Agent(record.agent.clone()) };
    OperationCall {
        caller: record.caller.clone(),
        groups: Arc::default(),
        role: AccessRole::Operator,
        key: None,
        via: EntryPoint::A2a,
        endpoint,
        extensions: Vec::new(),
        trace: TraceParent::fresh(),
        last_event: Some(record.delivered),
        is_old: record.is_old,
    }
}

/// Delivers push notifications until it is dropped.
#[derive(Debug)]
pub(crate) struct PushDispatcher(JoinHandle<()>);

impl Drop for PushDispatcher {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl PushDispatcher {
    /// Waits until leases are released, after the gateway started to drain.
    pub(crate) async fn end(mut self) {
        if tokio::time::timeout(END_TIMEOUT, &mut self.0).await.is_err() {
            tracing::warn!("cannot release the leases of push notifications; they will expire");
        }
    }

    /// Starts deliveries. Fails without permission to read the webhooks of a mesh.
    pub(crate) async fn start(
        operations: A2aOperations,
        authenticator: Arc<Authenticator>,
        web: WebClient,
        signer: Arc<GatewaySigner>,
        base: &str,
        draining: CancellationToken,
    ) -> Result<Self, MeshError> {
        let mesh = operations.client().mesh().clone();
        // Reports the reason immediately; a view would retry forever.
        mesh.records().pushes().list(&["push"]).await?;
        let view = mesh.records().pushes().follow(&["push"], |subject, stored| {
            let record = PushSubscription::read(&stored.body).ok()?;
            Some(KnownPush { subject: subject.clone(), revision: stored.revision, record })
        });
        let links = FileLinks::new(Arc::clone(&signer), base);
        let shared = Arc::new(PushShared { mesh, operations, authenticator, web, signer, links, draining });
        Ok(Self(tokio::spawn(dispatch(shared, view))))
    }
}

/// Takes webhooks that no gateway serves.
async fn dispatch(shared: Arc<PushShared>, mut view: RecordView<KnownPush>) {
    let mut held = JoinSet::new();
    // Subjects of webhooks that this gateway holds, by the task that delivers.
    let mut working: BTreeMap<tokio::task::Id, (String, Arc<KnownPush>)> = BTreeMap::new();
    let mut forbidden = ForbiddenAddresses::default();
    loop {
        let now = now_ms();
        let taken: BTreeSet<String> = working.values().map(|(name, _)| name.clone()).collect();
        let name_of = |known: &KnownPush| known.subject.name(shared.mesh.namespace());
        let known: Vec<(String, Arc<KnownPush>)> =
            view.list().into_iter().map(|known| (name_of(&known), known)).collect();
        forbidden.retain(&known.iter().map(|(name, _)| name.clone()).collect());
        let mut free = known;
        free.retain(|(name, known)| {
            known.is_free(now) && !taken.contains(name) && forbidden.allow(name, &known.record, now)
        });
        let mut held_by: BTreeMap<Token, usize> = BTreeMap::new();
        for (_, known) in working.values() {
            *held_by.entry(known.record.caller.clone()).or_default() += 1;
        }
        let callers: Vec<&Token> = free.iter().map(|(_, known)| &known.record.caller).collect();
        for at in fair_share(&callers, &held_by) {
            let (name, known) = &free[at];
            let work = HeldPush {
                shared: Arc::clone(&shared),
                subject: known.subject.clone(),
                revision: known.revision,
                record: known.record.clone(),
                renewed: Instant::now(),
            };
            let task = held.spawn(work.run());
            working.insert(task.id(), (name.clone(), Arc::clone(known)));
        }
        tokio::select! {
            () = shared.draining.cancelled() => break,
            () = view.changed() => sleep(GATHER).await,
            () = sleep(RENEWAL) => {}
            Some(ended) = held.join_next_with_id() => {
                let (id, end) = ended.unwrap_or_else(|error| (error.id(), HeldPushEnd::Released));
                if let (Some((name, known)), HeldPushEnd::Forbidden(reason)) = (working.remove(&id), end) {
                    forbidden.add(&name, &known.record, &reason, now_ms());
                }
            }
        }
    }
    // Leases are released, so that another gateway continues immediately.
    while held.join_next().await.is_some() {}
}

/// A webhook whose lease this gateway holds.
struct HeldPush {
    shared: Arc<PushShared>,
    subject: Subject,
    revision: u64,
    record: PushSubscription,
    renewed: Instant,
}

/// Why this gateway no longer serves a webhook.
enum HeldPushEnd {
    /// The deliveries ended, or another gateway may continue.
    Released,
    /// This gateway may not reach the address, for this reason.
    Forbidden(String),
}

/// Reasons to stop a delivery.
enum LeaseEnd {
    /// Another gateway holds the lease, it was released until the next attempt, or the webhook was
    /// deleted.
    Lost,
    /// This gateway may not reach the address, for this reason.
    Forbidden(String),
}

impl HeldPush {
    /// Delivers until the task has ended, the lease is lost, the address proves to be forbidden or
    /// the gateway stops.
    async fn run(mut self) -> HeldPushEnd {
        let url = self.record.config["url"].as_str().unwrap_or_default();
        // Checked before the lease is taken, so that gateways that may deliver do not wait for it.
        if let Err(error @ AgentError::Address { .. }) = self.shared.web.check(url) {
            return HeldPushEnd::Forbidden(webhook_problem(&error));
        }
        if self.renew().await.is_err() {
            return HeldPushEnd::Released;
        }
        let draining = self.shared.draining.clone();
        let worked = tokio::select! {
            biased;
            () = draining.cancelled() => Ok(()),
            worked = self.work() => worked,
        };
        if !matches!(worked, Err(LeaseEnd::Lost)) {
            self.record.lease = None;
            let _ = self.store().await;
        }
        match worked {
            Err(LeaseEnd::Forbidden(reason)) => HeldPushEnd::Forbidden(reason),
            _ => HeldPushEnd::Released,
        }
    }

    async fn work(&mut self) -> Result<(), LeaseEnd> {
        while !self.record.ended {
            Box::pin(self.follow_once()).await?;
            if !self.record.ended {
                self.pause(REOPEN_PAUSE).await?;
            }
        }
        Ok(())
    }

    /// Opens the events after the last delivered one, and delivers them until the stream breaks.
    async fn follow_once(&mut self) -> Result<(), LeaseEnd> {
        let call = call_of(&self.record);
        let (operations, task) = (self.shared.operations.clone(), self.record.shown_task.clone());
        let opening = async move { timeout(OPENING_TIMEOUT, operations.subscribe(&call, &task)).await };
        let mut events = match Box::pin(self.holding(opening)).await? {
            Ok(Ok(events)) => events,
            // The agent publishes no events.
            Ok(Err(error)) if error.code == ErrorCode::UnsupportedOperation => {
                log_limited!(20, info, task = self.record.task, %error, "a webhook ended because its agent publishes no events");
                self.record.ended = true;
                return self.store().await;
            }
            // Another process of the agent may know the task, or the agent may restart.
            Ok(Err(error)) => return self.missed_events(&error.to_string()).await,
            Err(_) => return self.missed_events("no answer").await,
        };
        let mut has_some = false;
        loop {
            let item = tokio::select! {
                item = events.next() => item,
                () = sleep(RENEWAL) => {
                    self.record.unread = 0;
                    self.renew().await?;
                    continue;
                }
            };
            let (seq, body) = match item {
                Some(StreamItem::Event { seq, body }) => (seq, body),
                // The task ended with the last delivered event.
                None if !has_some => {
                    self.record.ended = true;
                    return self.store().await;
                }
                Some(StreamItem::Failed(error)) => return self.missed_events(&error.to_string()).await,
                // The stream broke, or ended because a webhook was too slow.
                None => return Ok(()),
            };
            (has_some, self.record.unread) = (true, 0);
            let seq = seq.unwrap_or(self.record.delivered + 1);
            self.deliver(seq, &body).await?;
            if self.record.ended {
                return Ok(());
            }
        }
    }

    /// Waits before the events are reopened, longer after each attempt. Ends after the last
    /// attempt.
    async fn missed_events(&mut self, reason: &str) -> Result<(), LeaseEnd> {
        log_limited!(
            20,
            info,
            task = self.record.task,
            reason,
            "cannot read the events of a push notification"
        );
        self.record.unread += 1;
        let Some(wait) = backoff(self.record.unread, rand::rng().random()) else {
            log_limited!(
                20,
                warn,
                task = self.record.task,
                "aborted a webhook because the events of its task cannot be read"
            );
            self.record.ended = true;
            return self.store().await;
        };
        self.wait_for_attempt(wait, true).await
    }

    /// Delivers one event, with retries.
    async fn deliver(&mut self, seq: u64, body: &Bytes) -> Result<(), LeaseEnd> {
        loop {
            if self.record.key.as_ref().is_some_and(|key| self.shared.authenticator.has_revoked(key)) {
                log_limited!(
                    20,
                    info,
                    task = self.record.task,
                    "a webhook ended because the key of its caller was revoked"
                );
                self.record.ended = true;
                return self.store().await;
            }
            let (shared, record, event) = (Arc::clone(&self.shared), self.record.clone(), body.clone());
            let attempt = async move {
                // Created for each attempt, so that file addresses are still valid hours later.
                match shared.notification(&record, event).await {
                    Ok(body) => {
                        deliver(&shared.web, &shared.signer, &record, (seq, &body), now_ms() / 1000).await
                    }
                    Err(error) => {
                        log_limited!(20, info, task = record.task, %error, "cannot read the task of a webhook");
                        DeliveryOutcome::Failed
                    }
                }
            };
            let outcome = self.holding(attempt).await?;
            let word = match &outcome {
                DeliveryOutcome::Forbidden(_) => "forbidden",
                DeliveryOutcome::Delivered => "delivered",
                DeliveryOutcome::Failed => "failed",
                DeliveryOutcome::Refused => "refused",
            };
            metrics::counter!("sinew_gateway_pushes_total", "outcome" => word).increment(1);
            match outcome {
                DeliveryOutcome::Delivered => {
                    (self.record.delivered, self.record.attempts) = (seq.max(self.record.delivered), 0);
                    self.record.ended = is_last(body);
                    return self.renew().await;
                }
                DeliveryOutcome::Refused => {
                    self.record.ended = true;
                    return self.store().await;
                }
                DeliveryOutcome::Forbidden(reason) => return Err(LeaseEnd::Forbidden(reason)),
                DeliveryOutcome::Failed => {}
            }
            self.record.attempts += 1;
            let Some(wait) = backoff(self.record.attempts, rand::rng().random()) else {
                log_limited!(20, warn, task = self.record.task, seq, "aborted a webhook");
                self.record.ended = true;
                return self.store().await;
            };
            // Only workflows can repeat an event; one of an agent is held until it is delivered.
            let may_leave = self.shared.operations.stores_events_of(&self.record.agent);
            self.wait_for_attempt(wait, may_leave).await?;
        }
    }

    /// Waits for the next attempt. A long wait releases the slot to other webhooks, so that hanging
    /// receivers and unreachable agents do not occupy this gateway.
    async fn wait_for_attempt(&mut self, wait: Duration, may_leave: bool) -> Result<(), LeaseEnd> {
        if !may_leave || wait < LEASE {
            self.renew().await?;
            return self.pause(wait).await;
        }
        self.record.lease = None;
        self.record.not_before = after(wait);
        self.store().await?;
        Err(LeaseEnd::Lost)
    }

    /// Keeps the lease during work that may outlast it.
    async fn holding<T>(&mut self, work: impl Future<Output = T>) -> Result<T, LeaseEnd> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = sleep(RENEWAL) => self.renew().await?,
            }
        }
    }

    /// Keeps the lease while waiting.
    async fn pause(&mut self, wait: Duration) -> Result<(), LeaseEnd> {
        let until = Instant::now() + wait;
        while Instant::now() < until {
            sleep(RENEWAL.min(until - Instant::now())).await;
            if self.renewed.elapsed() >= RENEWAL {
                self.renew().await?;
            }
        }
        Ok(())
    }

    /// Stores the record with a new lease.
    async fn renew(&mut self) -> Result<(), LeaseEnd> {
        self.record.lease = Some((self.shared.operations.gateway().clone(), after(LEASE)));
        self.record.not_before = 0;
        self.store().await
    }

    /// Replaces the stored record if it is unchanged.
    async fn store(&mut self) -> Result<(), LeaseEnd> {
        let body = serde_json::to_vec(&self.record).map_err(|_| LeaseEnd::Lost)?;
        let began = Instant::now();
        let stored = self
            .shared
            .mesh
            .records()
            .pushes()
            .put(&self.subject, Bytes::from(body), Some(self.revision))
            .await;
        match stored {
            Ok(Some(revision)) => {
                (self.revision, self.renewed) = (revision, began);
                Ok(())
            }
            Ok(None) => Err(LeaseEnd::Lost),
            Err(error) => {
                // Another gateway continues when it finds that the lease has expired.
                log_limited!(20, info, task = self.record.task, %error, "cannot store the state of a webhook");
                Err(LeaseEnd::Lost)
            }
        }
    }
}

/// Returns the time after this duration, in milliseconds since 1970 UTC.
fn after(span: Duration) -> u64 {
    now_ms().saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
