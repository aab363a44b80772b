//! Tasks from the agent's durable queue: each gets one answer, stored before the task is
//! acknowledged.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use sinew_mesh::async_nats::HeaderMap;
use sinew_mesh::quarantine::SuspectMessage;
use sinew_mesh::send::PutOutcome;
use sinew_mesh::task::{Answers, Delivery, MAX_DELIVERIES, PROGRESS_EVERY};
use sinew_mesh::{MeshError, crash, log_limited};
use sinew_protocol::a2a::SendMessageRequest;
use sinew_protocol::jsonrpc::raw;
use sinew_protocol::task::is_node_message;
use sinew_protocol::{Fault, header};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::agent_host::AgentHost;
use crate::failure::POISON;
use crate::node_endpoint::{self, NodeWork};
use crate::node_tasks::AnswerListener;
use crate::reply;
use crate::request::{Request, read, unreadable};
use crate::step_log::StepProgress;
use crate::table::Begin;
use crate::task_properties::TaskProperties;

/// Time for storing a result, during which the task is kept.
const STORING: Duration = Duration::from_mins(2);
/// Pause before a result that the broker did not store is sent again.
const AGAIN: Duration = Duration::from_secs(1);

/// Processes tasks until the agent drains.
pub(crate) async fn serve(host: Arc<AgentHost>) {
    let mut queue = host.mesh.tasks().queue(&host.token, host.agent.agent.concurrency);
    let _ = host.places.queue.set(queue.places());
    loop {
        let delivery = tokio::select! {
            biased;
            () = host.draining.cancelled() => break,
            () = host.intake_is(false) => {
                while let Some(delivery) = queue.try_next() {
                    give_back(&delivery).await;
                }
                queue.pause();
                tokio::select! {
                    () = host.draining.cancelled() => return,
                    () = host.intake_is(true) => continue,
                }
            }
            delivery = queue.next() => delivery,
        };
        crash::point("work.taken");
        let deliver = deliver(Arc::clone(&host), delivery);
        host.going_on.spawn(deliver);
    }
    // Return tasks that were not started, so that other replicas get them at once.
    while let Some(delivery) = queue.try_next() {
        give_back(&delivery).await;
    }
}

/// Processes one task. Everything but the wait for its end is boxed: a task may wait for long.
async fn deliver(host: Arc<AgentHost>, delivery: Delivery) {
    let subject = delivery.headers.get(header::RESULT_SUBJECT).map(|value| value.as_str().to_owned());
    let own = (delivery.execution.clone(), delivery.task.clone());
    let subject = subject.filter(|subject| host.asked().result_subject(subject).as_ref() == Some(&own));
    let about =
        TaskProperties::new(&host.agent.agent.name, delivery.execution.clone(), delivery.task.clone());
    if delivery.exhausted() && !Box::pin(makes_progress(&host, &delivery)).await {
        let what = format!("the task was delivered {MAX_DELIVERIES} times without a result");
        let fault = Fault::error(POISON, what).with_retryable(false);
        return Box::pin(refuse(&host, &delivery, subject.as_deref(), &about, &fault)).await;
    }
    if is_node_message(&delivery.body) {
        return Box::pin(deliver_node(host, delivery, subject, about)).await;
    }
    let mut request = match parse(&host, &delivery) {
        Ok(request) => request,
        Err(fault) => return Box::pin(refuse(&host, &delivery, subject.as_deref(), &about, &fault)).await,
    };
    let Some(subject) = request.result_subject.clone() else {
        let fault = unreadable("the task has no result subject");
        return Box::pin(refuse(&host, &delivery, None, &about, &fault)).await;
    };
    request.about.delivery = delivery.delivered();
    request.about.queued = queue_time(&delivery);
    if delivery.delivered() > 1 {
        Box::pin(host.drop_passed_deadline(&mut request.about)).await;
    }
    let keep = KeepAlive::start(delivery.answers(), &host, &request.about);
    let trace_parent = request.about.trace_parent.clone();
    if delivery.may_be_done() && Box::pin(is_answered(&host, &delivery, &subject)).await {
        // Another process stored the result, but ended before it acknowledged the task, or the
        // queue was recreated.
        tracing::debug!(task = %delivery.task, "the task already has a result");
        return Box::pin(settle(&delivery)).await;
    }
    let entry = match host.begin(request, None, usize::MAX) {
        Begin::New(entry) | Begin::Known(entry) => entry,
        Begin::Full => return Box::pin(give_back(&delivery)).await,
    };
    if entry.ended().await.is_some() {
        crash::point("work.done");
        let task = delivery.task.as_str();
        let body = Bytes::copy_from_slice(entry.json().get().as_bytes());
        if Box::pin(answer(&host, &subject, trace_parent.as_deref(), task, body)).await {
            Box::pin(settle(&delivery)).await;
        }
    } else if !entry.is_taken_over() {
        // Returning a task that another process works on would end that process's delivery.
        Box::pin(give_back(&delivery)).await;
    }
    drop(keep);
}

/// Processes a task in the format of a node request; its result has the same format.
async fn deliver_node(
    host: Arc<AgentHost>,
    delivery: Delivery,
    subject: Option<String>,
    about: TaskProperties,
) {
    let own = (&delivery.execution, &delivery.task);
    let work = NodeWork::read(&host.agent.agent.name, &delivery.body).and_then(|work| {
        let is_own = (&work.about.execution, &work.about.task) == own;
        if is_own { Ok(work) } else { Err(unreadable("the task does not match its subject")) }
    });
    let mut work = match work {
        Ok(work) => work,
        Err(fault) => return Box::pin(refuse(&host, &delivery, subject.as_deref(), &about, &fault)).await,
    };
    let Some(subject) = subject else {
        let fault = unreadable("the task has no result subject");
        return Box::pin(refuse(&host, &delivery, None, &about, &fault)).await;
    };
    work.about.delivery = delivery.delivered();
    work.about.queued = queue_time(&delivery);
    if delivery.delivered() > 1 {
        Box::pin(host.drop_passed_deadline(&mut work.about)).await;
    }
    let keep = KeepAlive::start(delivery.answers(), &host, &work.about);
    let trace_parent = work.about.trace_parent.clone();
    if delivery.may_be_done() && Box::pin(is_answered(&host, &delivery, &subject)).await {
        tracing::debug!(task = %delivery.task, "the task already has a result");
        return Box::pin(settle(&delivery)).await;
    }
    let (sender, ended) = oneshot::channel();
    Box::pin(node_endpoint::begin(&host, work, AnswerListener::Delivery(sender), usize::MAX)).await;
    match ended.await {
        Ok(Some(body)) => {
            crash::point("work.done");
            if Box::pin(answer(&host, &subject, trace_parent.as_deref(), delivery.task.as_str(), body)).await
            {
                Box::pin(settle(&delivery)).await;
            }
        }
        Ok(None) => {}
        Err(_) => Box::pin(give_back(&delivery)).await,
    }
    drop(keep);
}

/// Returns how long a task was in the queue before its first delivery, by the clocks of the server and
/// this process; zero for a later delivery.
fn queue_time(delivery: &Delivery) -> Duration {
    let stored = UNIX_EPOCH + Duration::from_millis(delivery.time());
    let waited = SystemTime::now().duration_since(stored).unwrap_or_default();
    if delivery.delivered() > 1 { Duration::ZERO } else { waited }
}

fn parse(host: &AgentHost, delivery: &Delivery) -> Result<Request, Fault> {
    let request: SendMessageRequest = serde_json::from_slice(&delivery.body)
        .map_err(|error| unreadable(format!("the task is not an A2A message: {error}")))?;
    let ids = (delivery.execution.clone(), delivery.task.clone());
    read(host.asked(), |_| Ok(ids), request, &delivery.headers)
}

/// Returns whether the step log of a task shows that it is delivered so often because its work is
/// long, not because it crashes its processes.
async fn makes_progress(host: &AgentHost, delivery: &Delivery) -> bool {
    let about = if is_node_message(&delivery.body) {
        NodeWork::read(&host.agent.agent.name, &delivery.body).map(|work| work.about)
    } else {
        parse(host, delivery).map(|request| request.about)
    };
    let Some(log) = about.ok().as_ref().and_then(TaskProperties::step_log) else { return false };
    let Some(steps) = host.peers.steps() else { return false };
    match steps.read(&log, 0).await {
        Ok(records) => StepProgress::of(&records).is_going_on(delivery.delivered()),
        Err(error) => {
            tracing::warn!(task = %delivery.task, %error, "cannot read the steps of a task");
            // Continue: the handler encounters the same error, and reports it.
            true
        }
    }
}

/// Answers an unprocessed task with a fault. Without a result subject, quarantines it.
async fn refuse(
    host: &AgentHost,
    delivery: &Delivery,
    subject: Option<&str>,
    about: &TaskProperties,
    fault: &Fault,
) {
    // Without the fault's message, which may quote the task.
    let agent = &about.agent;
    let Delivery { execution, task, .. } = delivery;
    log_limited!(20, warn, %agent, %execution, %task, code = %fault.code, "rejected a task");
    let poison = fault.code == POISON;
    if (subject.is_none() || poison)
        && let Err(error) =
            host.mesh.quarantine().put_or_drop(SuspectMessage::from(delivery), &fault.message).await
    {
        // It remains in the queue and is redelivered.
        log_limited!(warn, %error, "cannot quarantine a task");
        return;
    }
    if let Some(subject) = subject {
        let refused = if is_node_message(&delivery.body) {
            reply::failed_node(&about.task, fault)
        } else {
            Bytes::copy_from_slice(raw(&reply::refused(about, fault)).get().as_bytes())
        };
        if !answer(host, subject, None, about.task.as_str(), refused).await {
            return;
        }
    }
    if let Err(error) = delivery.term(&fault.message).await {
        tracing::debug!(%error, "cannot terminate the task; it may be redelivered");
    }
}

/// Stores a result, retrying until it succeeds. Returns false if the process ends before.
async fn answer(
    host: &AgentHost,
    subject: &str,
    trace_parent: Option<&str>,
    task: &str,
    mut body: Bytes,
) -> bool {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::JSON);
    headers.insert(header::MESSAGE_ID, task);
    if let Some(trace_parent) = trace_parent.and_then(|text| text.parse().ok()) {
        headers.insert::<_, sinew_mesh::async_nats::HeaderValue>(header::TRACE_PARENT, trace_parent);
    }
    loop {
        match host.mesh.tasks().put_result(subject, headers.clone(), body.clone()).await {
            Ok(PutOutcome::New | PutOutcome::Same) => return true,
            Ok(PutOutcome::Taken) => {
                tracing::info!(task, "the task already has another result; dropped this one");
                return true;
            }
            Err(MeshError::TooLarge { size, limit, .. }) => {
                let fault = Fault::failure(
                    crate::failure::ARTIFACTS,
                    format!("the result has {size} bytes; the limit of the mesh is {limit}"),
                );
                let small = if is_node_message(&body) {
                    host.asked().result_subject(subject).map(|(_, task)| reply::failed_node(&task, &fault))
                } else {
                    shrunk(host, subject, &fault)
                };
                let Some(small) = small else { return true };
                if small.len() >= body.len() {
                    return true;
                }
                body = small;
            }
            Err(error) => {
                if host.mesh.connection_problem().is_none() {
                    log_limited!(warn, task, %error, "cannot store the result; retrying");
                }
                tokio::select! {
                    () = host.halt.cancelled() => return false,
                    () = sleep(AGAIN) => {}
                }
            }
        }
    }
}

/// Returns a fault that replaces a result that is too large.
fn shrunk(host: &AgentHost, subject: &str, fault: &Fault) -> Option<Bytes> {
    let (execution, task) = host.asked().result_subject(subject)?;
    let task = reply::refused(&TaskProperties::new(&host.agent.agent.name, execution, task), fault);
    serde_json::to_vec(&task).ok().map(Bytes::from)
}

/// Acknowledges a task whose result is stored.
async fn settle(delivery: &Delivery) {
    if let Err(error) = delivery.ack().await {
        tracing::debug!(task = %delivery.task, %error, "cannot acknowledge the task; it may be redelivered, and its result is stored");
    }
}

/// Returns the task to the queue for another replica.
async fn give_back(delivery: &Delivery) {
    if let Err(error) = delivery.nak(Duration::ZERO).await {
        tracing::debug!(task = %delivery.task, %error, "cannot return the task; it is redelivered after its acknowledgement deadline");
    }
}

/// Returns whether a task has a result. Retries until the server replies: a task that may be done
/// must not be started.
async fn is_answered(host: &AgentHost, delivery: &Delivery, subject: &str) -> bool {
    loop {
        match host.mesh.tasks().has_result(subject).await {
            Ok(is_answered) => return is_answered,
            Err(error) if error.is_transient() => {
                tracing::debug!(task = %delivery.task, %error, "cannot determine whether the task has a result; retrying");
            }
            // Without the right to read results, the first of two results counts.
            Err(error) => {
                tracing::debug!(task = %delivery.task, %error, "cannot read the result of a task");
                return false;
            }
        }
        tokio::select! {
            () = host.halt.cancelled() => return false,
            () = sleep(AGAIN) => {}
        }
    }
}

/// Reports progress of a task from a separate task, until it is dropped or the time is over: a
/// handler that hangs must not keep its task forever.
struct KeepAlive(tokio::task::JoinHandle<()>);

impl KeepAlive {
    fn start(answers: Answers, host: &AgentHost, about: &TaskProperties) -> Self {
        let (until, clock) = (Instant::now() + host.patience(about) + STORING, Arc::clone(&about.clock));
        Self(tokio::spawn(async move {
            while clock.left(until) != Some(Duration::ZERO) {
                sleep(PROGRESS_EVERY).await;
                if let Err(error) = answers.progress().await {
                    tracing::debug!(%error, "cannot extend the acknowledgement deadline of a task");
                }
            }
        }))
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.0.abort();
    }
}
