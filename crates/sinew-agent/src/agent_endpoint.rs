//! The tasks of an agent behind its A2A endpoint: begun by messages, each known to its caller only.

use std::collections::BTreeMap;
use std::sync::Arc;

use sinew_mesh::MeshError;
use sinew_mesh::a2a_endpoint::{A2aAnswer, A2aCall, A2aEndpoint, A2aOutcome, A2aService, AnswerMoment};
use sinew_mesh::micro::About;
use sinew_protocol::a2a::{
    A2A_VERSION, A2aError, AgentCard, CancelTaskParams, ListTasksParams, SendMessageRequest, TaskIdParams,
    TaskQueryParams,
};
use sinew_protocol::jsonrpc::error_of;
use sinew_protocol::{Fault, Token};

use crate::caller_question::AnswerFate;
use crate::failure::{BUSY, STOPPING, short};
use crate::operations;
use crate::request;
use crate::site::Site;
use crate::table::{Begin, Entry};
use crate::task_properties::own_ids;

/// Open tasks beyond those that are worked on.
pub(crate) const MOST_WAITING: usize = 1_024;

/// The tasks of one agent, as its callers see them.
pub(crate) struct AgentTasks {
    site: Arc<Site>,
}

/// Opens the endpoint and lists it for `nats micro ls`, `info` and `stats`. The figures of the service are those of calls;
/// its `data` has those of all tasks, also from the queue.
pub(crate) async fn open(site: &Arc<Site>) -> Result<A2aEndpoint<AgentTasks>, MeshError> {
    let agent = &site.agent.agent;
    let metadata = BTreeMap::from([
        ("sinew_agent".to_owned(), agent.name.clone()),
        ("sinew_namespace".to_owned(), site.mesh.namespace().to_owned()),
        ("sinew_version".to_owned(), agent.version.clone()),
        ("a2a_version".to_owned(), A2A_VERSION.to_owned()),
    ]);
    let (description, version) = (agent.description.clone(), agent.version.clone());
    let figures = Arc::clone(&site.agent.figures);
    let about = move || About {
        description: description.clone(),
        version: version.clone(),
        metadata: metadata.clone(),
        data: figures.to_json(),
    };
    let calls = site.mesh.services().serve_rpc(&agent.name).await?;
    let listed = site.mesh.services().list_agent(&agent.name, about).await?;
    let tasks = Arc::new(AgentTasks { site: Arc::clone(site) });
    // Calls that wait for a task are answered while the agent drains.
    Ok(A2aEndpoint::new(tasks, calls, Some(listed)).tracked_by(site.going_on.clone()))
}

impl A2aService for AgentTasks {
    async fn card(&self) -> Result<AgentCard, A2aError> {
        Ok(self.site.agent.agent.announcement().card(self.site.mesh.namespace()))
    }

    async fn send_message(
        &self,
        call: &A2aCall,
        params: SendMessageRequest,
        moment: AnswerMoment,
    ) -> A2aOutcome {
        let entry = match params.message.task_id.clone() {
            Some(task) => self.answer_question(&call.caller, &task.0, params)?,
            None => self.begin(call, params)?,
        };
        if moment != AnswerMoment::Settled {
            let seq = entry.feed.seq();
            return Ok(A2aAnswer::of_task(&entry.json()).with_seq(seq));
        }
        if let Some(None) = call.wait(entry.settled()).await {
            return Err(stopping());
        }
        Ok(A2aAnswer::of_task(&entry.json()).with_seq(entry.feed.seq()))
    }

    async fn get_task(&self, call: &A2aCall, params: TaskQueryParams) -> A2aOutcome {
        let (task, seq) = operations::get(&self.site.table, &call.caller, &params)?;
        Ok(A2aAnswer::of(&*task).with_seq(seq))
    }

    async fn list_tasks(&self, call: &A2aCall, params: ListTasksParams) -> A2aOutcome {
        operations::list(&self.site.table, &call.caller, &params).map(|page| A2aAnswer::of(&page))
    }

    async fn cancel_task(&self, call: &A2aCall, params: CancelTaskParams) -> A2aOutcome {
        let entry = operations::cancel(&self.site.table, &call.caller, &params)?;
        if let Some(None) = call.wait(entry.ended()).await {
            return Err(stopping());
        }
        Ok(A2aAnswer::of(&entry.json()).with_seq(entry.feed.seq()))
    }

    async fn subscribe(&self, call: &A2aCall, params: TaskIdParams) -> A2aOutcome {
        let (task, seq) = operations::subscribe(&self.site.table, &call.caller, &params)?;
        Ok(A2aAnswer::of_task(&*task).with_seq(seq))
    }

    fn late_refusal(&self) -> Option<A2aError> {
        Some(stopping())
    }
}

impl AgentTasks {
    /// Gives a task the answer to its question.
    fn answer_question(
        &self,
        caller: &Token,
        task: &str,
        params: SendMessageRequest,
    ) -> Result<Arc<Entry>, A2aError> {
        let entry = self.site.table.find(caller, task);
        let entry = entry.ok_or_else(|| A2aError::task_not_found(short(task, 64)))?;
        let context = params.message.context_id.as_ref();
        if context.is_some_and(|context| *context != entry.snapshot().context_id) {
            return Err(A2aError::invalid_params("message.contextId: the task belongs to another context"));
        }
        match entry.take_answer(params.message) {
            AnswerFate::Taken | AnswerFate::Repeated => Ok(entry),
            AnswerFate::NotAsked => {
                Err(A2aError::unsupported_operation("the task asks nothing: it takes no more messages"))
            }
        }
    }

    fn begin(&self, call: &A2aCall, params: SendMessageRequest) -> Result<Arc<Entry>, A2aError> {
        let (site, caller) = (&self.site, &call.caller);
        let (asked, namespace) = (site.asked(), site.mesh.namespace());
        let id = params.message.id.0.clone();
        let ids = |extra: Option<&sinew_protocol::task::TaskExtra>| match extra {
            None => Ok(own_ids(namespace, &site.token, caller, &id)),
            Some(extra) => asked
                .result_subject(&extra.result_subject)
                .ok_or_else(|| request::unreadable("the result subject is not one of this agent")),
        };
        let mut asked_for =
            request::read(asked, ids, params, &call.headers).map_err(|fault| error_of(&fault))?;
        if asked_for.about.session.is_empty() {
            // A caller that names no context gets one of its own.
            asked_for.about.execution.as_str().clone_into(&mut asked_for.about.session);
        }
        caller.as_str().clone_into(&mut asked_for.about.caller);
        let most_open = site.agent.agent.concurrency.saturating_add(MOST_WAITING);
        match site.begin(asked_for, Some(caller.clone()), most_open) {
            Begin::New(entry) | Begin::Known(entry) => Ok(entry),
            Begin::Full => {
                let fault =
                    Fault::error(BUSY, "the agent has no room for another task").with_retry_after_ms(1_000);
                Err(error_of(&fault))
            }
        }
    }
}

fn stopping() -> A2aError {
    error_of(&Fault::error(STOPPING, "the agent stops before it could answer"))
}
