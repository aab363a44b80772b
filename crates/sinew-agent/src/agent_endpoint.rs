//! The tasks of an agent at its A2A endpoint: started by messages, each visible only to its caller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use sinew_mesh::MeshError;
use sinew_mesh::a2a_endpoint::{
    A2aAnswer, A2aCall, A2aEndpoint, A2aOutcome, A2aService, AnswerMoment, ForwardedCalls,
};
use sinew_mesh::async_nats::HeaderValue;
use sinew_mesh::micro::About;
use sinew_mesh::replica::{HolderAnswer, ReplicaDelivery, ReplicaEndpoint, ReplicaMessage, TaskQuestion};
use sinew_protocol::a2a::{
    A2A_VERSION, A2aError, AgentCard, CancelTaskParams, ListTasksParams, SendMessageRequest, TaskIdParams,
    TaskQueryParams, trim_history,
};
use sinew_protocol::card::CARD_INTERVAL;
use sinew_protocol::jsonrpc::{error_of, temporary_error};
use sinew_protocol::task::TaskExtra;
use sinew_protocol::{TaskId, Token, code, header};
use tokio::time::interval;

use crate::agent_host::AgentHost;
use crate::caller_question::AnswerFate;
use crate::failure::{BUSY, STOPPING, short};
use crate::node_endpoint;
use crate::operations;
use crate::replicas::{CallNeed, PassedCall, Replicas};
use crate::request;
use crate::table::{Begin, Entry};
use crate::task_properties::own_ids;

/// Timeout of a reply from another process that does not depend on a task.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout for another process to list its tasks.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after the end of a task in which the process that holds it replies.
const TASK_GRACE: Duration = Duration::from_secs(5);

/// Timeout for the reply of another process.
#[derive(Clone, Copy, Debug)]
enum AnswerWait {
    /// The reply does not wait for the task.
    AtOnce,
    /// The reply waits for the task, which ends within this time.
    TaskEnd(Duration),
}

/// The tasks of one agent, as its callers see them.
pub(crate) struct AgentTasks {
    host: Arc<AgentHost>,
    /// Processes to forward calls for unknown tasks to; `None` for forwarded calls.
    replicas: Option<Arc<Replicas>>,
}

/// Opens the endpoint and lists it for `nats micro ls`, `info` and `stats`. The statistics of the
/// service cover calls; its `data` covers all tasks, including those from the queue.
pub(crate) async fn open(
    host: &Arc<AgentHost>,
    replicas: Option<Arc<Replicas>>,
) -> Result<A2aEndpoint<AgentTasks>, MeshError> {
    let agent = &host.agent.agent;
    let metadata = BTreeMap::from([
        ("sinew_agent".to_owned(), agent.name.clone()),
        ("sinew_namespace".to_owned(), host.mesh.namespace().to_owned()),
        ("sinew_version".to_owned(), agent.version.clone()),
        ("a2a_version".to_owned(), A2A_VERSION.to_owned()),
    ]);
    let (description, version) = (agent.description.clone(), agent.version.clone());
    let figures = Arc::clone(host);
    let about = move || About {
        description: description.clone(),
        version: version.clone(),
        metadata: metadata.clone(),
        data: figures.figures(),
    };
    let calls = host.mesh.services().serve_rpc(&agent.name).await?;
    let listed = host.mesh.services().list_agent(&agent.name, about).await?;
    let _ = host.process.set(listed.id().to_owned());
    let tasks = Arc::new(AgentTasks { host: Arc::clone(host), replicas });
    // Calls that wait for a task are answered while the agent drains.
    Ok(A2aEndpoint::new(tasks, calls, Some(listed)).tracked_by(host.going_on.clone()))
}

/// Serves the other processes of the agent, until the connection is closed.
pub(crate) async fn serve_replicas(
    host: Arc<AgentHost>,
    replicas: Arc<Replicas>,
    mut endpoint: ReplicaEndpoint,
) {
    // A forwarded call is answered here, whatever happens to its task.
    let tasks = Arc::new(AgentTasks { host: Arc::clone(&host), replicas: None });
    let calls = ForwardedCalls::new(tasks, host.going_on.clone());
    let mut beat = interval(CARD_INTERVAL);
    loop {
        let delivery = tokio::select! {
            delivery = endpoint.next() => delivery,
            _ = beat.tick() => {
                replicas.beat().await;
                continue;
            }
        };
        match delivery {
            None => return,
            Some(ReplicaDelivery::Message(ReplicaMessage::WorksOn { task, result }, reply)) => {
                let is_held = node_endpoint::join(&host, &task, &result).await;
                let answer = if is_held { HolderAnswer::Held } else { HolderAnswer::NotHeld };
                if let Some(reply) = reply {
                    replicas.answer(reply, &answer).await;
                }
            }
            Some(ReplicaDelivery::Message(message, reply)) => {
                let holds =
                    |asked: &TaskQuestion| host.table.find(&asked.caller, asked.task.as_str()).is_some();
                replicas.take(message, reply, holds).await;
            }
            Some(ReplicaDelivery::Call(call)) => calls.take(call),
        }
    }
}

impl A2aService for AgentTasks {
    async fn card(&self) -> Result<AgentCard, A2aError> {
        Ok(self.host.agent.agent.announcement().card(self.host.mesh.namespace()))
    }

    async fn send_message(
        &self,
        call: &A2aCall,
        params: SendMessageRequest,
        moment: AnswerMoment,
    ) -> A2aOutcome {
        let wait = if moment == AnswerMoment::Settled { self.task_end(call) } else { AnswerWait::AtOnce };
        let elsewhere = match &params.message.task_id {
            Some(task) => self.elsewhere(call, &task.0, CallNeed::Task, wait).await,
            None => match self.own_task(call, &params) {
                Some(task) => self.elsewhere(call, &task, CallNeed::Beginning, wait).await,
                None => None,
            },
        };
        if let Some(outcome) = elsewhere {
            return outcome;
        }
        let history_length = params.configuration.as_ref().and_then(|wanted| wanted.history_length);
        let answer = |entry: &Entry| {
            if history_length.is_none() {
                A2aAnswer::of_task(&entry.json())
            } else {
                let mut task = Arc::unwrap_or_clone(entry.snapshot());
                trim_history(&mut task, history_length);
                A2aAnswer::of_task(&task)
            }
        };
        let entry = match params.message.task_id.clone() {
            Some(task) => self.answer_question(&call.caller, &task.0, params)?,
            None => Box::pin(self.begin(call, params)).await?,
        };
        if moment != AnswerMoment::Settled {
            let seq = entry.feed.seq();
            return Ok(answer(&entry).with_seq(seq));
        }
        if let Some(None) = call.wait(entry.settled()).await {
            return Err(stopping());
        }
        Ok(answer(&entry).with_seq(entry.feed.seq()))
    }

    async fn get_task(&self, call: &A2aCall, params: TaskQueryParams) -> A2aOutcome {
        if let Some(outcome) = self.elsewhere(call, &params.id, CallNeed::Task, AnswerWait::AtOnce).await {
            return outcome;
        }
        let (task, seq) = operations::get(&self.host.table, &call.caller, &params)?;
        Ok(A2aAnswer::of(&*task).with_seq(seq))
    }

    async fn list_tasks(&self, call: &A2aCall, params: ListTasksParams) -> A2aOutcome {
        let page = operations::list(&self.host.table, &call.caller, &params)?;
        let Some(replicas) = self.replicas.as_ref().filter(|replicas| !replicas.is_alone()) else {
            return Ok(A2aAnswer::of(&page));
        };
        let others = Box::pin(replicas.answers_of_all(&PassedCall::of(call), LIST_TIMEOUT)).await;
        let others = others.iter().filter_map(|answer| answer.read().ok()).collect();
        Ok(A2aAnswer::of(&operations::merge(page, others)))
    }

    async fn cancel_task(&self, call: &A2aCall, params: CancelTaskParams) -> A2aOutcome {
        let wait = self.task_end(call);
        if let Some(outcome) = self.elsewhere(call, &params.id, CallNeed::Task, wait).await {
            return outcome;
        }
        let entry = operations::cancel(&self.host.table, &call.caller, &params)?;
        if let Some(None) = call.wait(entry.ended()).await {
            return Err(stopping());
        }
        Ok(A2aAnswer::of(&entry.json()).with_seq(entry.feed.seq()))
    }

    async fn subscribe(&self, call: &A2aCall, params: TaskIdParams) -> A2aOutcome {
        if let Some(outcome) = self.elsewhere(call, &params.id, CallNeed::Task, AnswerWait::AtOnce).await {
            return outcome;
        }
        let (task, seq) = operations::subscribe(&self.host.table, &call.caller, &params)?;
        Ok(A2aAnswer::of_task(&*task).with_seq(seq))
    }

    fn late_refusal(&self) -> Option<A2aError> {
        Some(stopping())
    }
}

impl AgentTasks {
    /// Forwards a call to the process that holds its task. `None` if this process answers it.
    async fn elsewhere(
        &self,
        call: &A2aCall,
        task: &str,
        need: CallNeed,
        wait: AnswerWait,
    ) -> Option<A2aOutcome> {
        let replicas = self.replicas.as_ref().filter(|replicas| !replicas.is_alone())?;
        if self.host.table.find(&call.caller, task).is_some() {
            return None;
        }
        let task = TaskId::parse(task).ok()?;
        // Copy the body before the call waits, which drops it.
        let passed = PassedCall::of(call);
        match wait {
            AnswerWait::AtOnce => Box::pin(replicas.pass_on(&passed, &task, need, ANSWER_TIMEOUT)).await,
            AnswerWait::TaskEnd(timeout) => {
                let passing = Box::pin(replicas.pass_on(&passed, &task, need, timeout));
                call.wait(passing).await.unwrap_or_else(|| {
                    let text = "too many calls wait for tasks; use GetTask to read the task of this call";
                    Some(Err(temporary_error(code::NO_ANSWER_ON_MESH.as_str(), text)))
                })
            }
        }
    }

    /// Returns the task that a message starts and that another process may know. `None` for a
    /// message of an execution that was not sent before, and without other processes.
    fn own_task(&self, call: &A2aCall, params: &SendMessageRequest) -> Option<String> {
        self.replicas.as_ref().filter(|replicas| !replicas.is_alone())?;
        let find = |metadata: &Option<Value>| TaskExtra::find(metadata.as_ref());
        if let Some(extra) = find(&params.metadata).or_else(|| find(&params.message.metadata)) {
            call.headers.get(header::REPEATED)?;
            let (_, task) = self.host.asked().result_subject(&extra.ok()?.result_subject)?;
            return Some(task.as_str().to_owned());
        }
        let (host, message) = (&self.host, &params.message.id.0);
        let (_, task) = own_ids(host.mesh.namespace(), &host.token, &call.caller, message);
        Some(task.as_str().to_owned())
    }

    /// Returns the timeout of another process for a call that waits for its task: until the task
    /// must have ended.
    fn task_end(&self, call: &A2aCall) -> AnswerWait {
        let text = call.headers.get(header::DEADLINE).map(HeaderValue::as_str);
        let deadline = text.and_then(|ms| ms.parse().ok()).map(|ms| UNIX_EPOCH + Duration::from_millis(ms));
        let left = deadline.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
        let longest = self.host.agent.agent.timeout;
        AnswerWait::TaskEnd(left.unwrap_or(longest).min(longest).saturating_add(TASK_GRACE))
    }

    /// Passes the answer to the question of a task.
    fn answer_question(
        &self,
        caller: &Token,
        task: &str,
        params: SendMessageRequest,
    ) -> Result<Arc<Entry>, A2aError> {
        let entry = self.host.table.find(caller, task);
        let entry = entry.ok_or_else(|| A2aError::task_not_found(short(task, 64)))?;
        let context = params.message.context_id.as_ref();
        if context.is_some_and(|context| *context != entry.snapshot().context_id) {
            return Err(A2aError::invalid_params("message.contextId: the task belongs to another context"));
        }
        match entry.take_answer(params.message) {
            AnswerFate::Taken | AnswerFate::Repeated => Ok(entry),
            AnswerFate::NotAsked => Err(A2aError::unsupported_operation(
                "the task does not wait for input and accepts no more messages",
            )),
        }
    }

    async fn begin(&self, call: &A2aCall, params: SendMessageRequest) -> Result<Arc<Entry>, A2aError> {
        let (host, caller) = (&self.host, &call.caller);
        let (asked, namespace) = (host.asked(), host.mesh.namespace());
        let id = params.message.id.0.clone();
        let ids = |extra: Option<&sinew_protocol::task::TaskExtra>| match extra {
            None => Ok(own_ids(namespace, &host.token, caller, &id)),
            Some(extra) => asked
                .result_subject(&extra.result_subject)
                .ok_or_else(|| request::unreadable("the result subject does not belong to this agent")),
        };
        let mut asked_for =
            request::read(asked, ids, params, &call.headers).map_err(|fault| error_of(&fault))?;
        if asked_for.about.session.is_empty() {
            // A caller that names no context gets a new one.
            asked_for.about.execution.as_str().clone_into(&mut asked_for.about.session);
        }
        caller.as_str().clone_into(&mut asked_for.about.caller);
        if call.headers.get(header::REPEATED).is_some() {
            host.drop_passed_deadline(&mut asked_for.about).await;
        }
        match host.begin(asked_for, Some(caller.clone()), host.most_open()) {
            Begin::New(entry) | Begin::Known(entry) => Ok(entry),
            Begin::Full => Err(temporary_error(
                BUSY,
                "the agent takes no new tasks: it is draining, or at its limit of concurrent tasks",
            )),
        }
    }
}

fn stopping() -> A2aError {
    temporary_error(STOPPING, "the agent is shutting down")
}
