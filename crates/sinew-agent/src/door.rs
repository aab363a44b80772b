//! The A2A door: request and reply in JSON-RPC, one subject per operation and caller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sinew_mesh::async_nats::{HeaderMap, HeaderValue};
use sinew_mesh::micro::{About, Listed};
use sinew_mesh::rpc::{RpcRequest, RpcServer};
use sinew_mesh::{MeshError, crash};
use sinew_protocol::a2a::{A2A_VERSION, A2aError, CoreMethod, ErrorCode, SendMessageRequest};
use sinew_protocol::jsonrpc::{self, Method, Refused, Request, Response, check_headers, error_of, raw};
use sinew_protocol::{Fault, Token, header};

use crate::failure::{BUSY, STOPPING};
use crate::operations;
use crate::request;
use crate::site::Site;
use crate::table::{Begin, Entry};
use crate::task_properties::own_ids;

/// Open tasks beyond those that are worked on.
pub(crate) const MOST_WAITING: usize = 1_024;
/// Calls that are answered at once.
const AT_ONCE: usize = 4_096;
/// Answer to requests for webhooks.
const NO_PUSH: &str = "there are no push notifications on a bus: watch the task's progress";

/// The door of an agent, and the service that lists it for `nats micro ls`, `info` and `stats`.
pub(crate) struct ListedDoor {
    calls: RpcServer,
    listed: Arc<Listed>,
}

/// Opens the door and lists it. The figures of the service are those of calls; its `data` has those of all tasks, also
/// from the queue.
pub(crate) async fn open(site: &Site) -> Result<ListedDoor, MeshError> {
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
    Ok(ListedDoor { calls, listed: Arc::new(listed) })
}

/// Answers calls until the agent drains; calls that wait for a task are answered after that too.
pub(crate) async fn serve(site: Arc<Site>, mut door: ListedDoor) {
    let at_once = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
    loop {
        let call = tokio::select! {
            biased;
            () = site.draining.cancelled() => break,
            call = door.calls.next() => call,
        };
        let Some(call) = call else { return };
        let Ok(permit) = Arc::clone(&at_once).acquire_owned().await else { return };
        let (site, listed) = (Arc::clone(&site), Arc::clone(&door.listed));
        let tracker = site.going_on.clone();
        tracker.spawn(async move {
            answer(&site, &listed, call).await;
            drop(permit);
        });
    }
    if let Err(error) = door.calls.stop().await {
        tracing::debug!(%error, "the A2A door was not closed");
    }
    // Calls that arrived before the subscription was closed are answered.
    while let Some(call) = door.calls.next().await {
        respond(call, Value::Null, Err(stopping())).await;
    }
}

async fn answer(site: &Arc<Site>, listed: &Listed, call: RpcRequest) {
    let began = Instant::now();
    let (id, said) = match read(&call) {
        Err(Refused { id, error }) => (id, Err(*error)),
        Ok(request) => {
            let said = perform(site, &call.caller, &request, &call.headers).await;
            (request.id, said)
        }
    };
    // The message may quote the task, and everybody may ask for the figures.
    let error = said.as_ref().err().map(|error| error.code.to_string());
    listed.answered(began.elapsed(), error.as_deref());
    respond(call, id, said).await;
}

/// Outcome of a call: a rendered result with the number of the last event before it, or an error.
type Said = Result<(Box<RawValue>, Option<u64>), A2aError>;

/// A task as the result of an operation that names what it answers with.
#[derive(Serialize)]
struct NamedTask<T> {
    task: T,
}

async fn respond(call: RpcRequest, id: Value, said: Said) {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::JSON);
    headers.insert(header::A2A_VERSION, A2A_VERSION);
    let response = match said {
        Ok((result, seq)) => {
            if let Some(seq) = seq {
                headers.insert(header::A2A_SEQ, seq.to_string());
            }
            jsonrpc::result(&id, &result)
        }
        Err(error) => Response::error(id, &error).to_bytes(),
    };
    crash::point("reply.before");
    if let Err(error) = call.respond(headers, response).await {
        tracing::debug!(%error, "a call was not answered");
    }
}

/// Reads the call itself, if the door understands it.
fn read(call: &RpcRequest) -> Result<Request, Refused> {
    let request = Request::read(&call.body)?;
    let refused = |error: A2aError| Refused { id: request.id.clone(), error: Box::new(error) };
    if let Some(defect) = &call.defect {
        return Err(refused(A2aError::new(ErrorCode::InvalidRequest, defect)));
    }
    let text = |name: &str| call.headers.get(name).map(HeaderValue::as_str);
    check_headers(text(header::A2A_VERSION), text(header::CONTENT_TYPE)).map_err(refused)?;
    // Permissions are given by subject: what the body asks for must be what the caller may ask for.
    if request.method.as_str() == call.method {
        return Ok(request);
    }
    Err(refused(A2aError::new(ErrorCode::InvalidRequest, "the method is not that of the subject")))
}

async fn perform(site: &Arc<Site>, caller: &Token, request: &Request, headers: &HeaderMap) -> Said {
    let Method::Core(method) = request.method else {
        return Ok((raw(&site.agent.agent.announcement().card(site.mesh.namespace())), None));
    };
    match method {
        CoreMethod::SendMessage => send(site, caller, request, headers, false).await,
        CoreMethod::SendStreamingMessage => send(site, caller, request, headers, true).await,
        CoreMethod::GetTask => {
            operations::get(&site.table, caller, request).map(|(task, seq)| (raw(&*task), Some(seq)))
        }
        CoreMethod::ListTasks => {
            operations::list(&site.table, caller, request).map(|page| (raw(&page), None))
        }
        CoreMethod::CancelTask => {
            let entry = operations::cancel(&site.table, caller, request)?;
            ended(&entry).await?;
            Ok((entry.json().into_owned(), Some(entry.feed.seq())))
        }
        CoreMethod::SubscribeToTask => operations::subscribe(&site.table, caller, request)
            .map(|(task, seq)| (raw(&NamedTask { task: &*task }), Some(seq))),
        CoreMethod::CreateTaskPushNotificationConfig
        | CoreMethod::GetTaskPushNotificationConfig
        | CoreMethod::ListTaskPushNotificationConfigs
        | CoreMethod::DeleteTaskPushNotificationConfig => Err(A2aError::push_not_supported(NO_PUSH)),
        CoreMethod::GetExtendedAgentCard => {
            Err(A2aError::extended_card_not_configured("this agent has one card, the same for everybody"))
        }
        other => Err(A2aError::unsupported_operation(other.wire_name())),
    }
}

async fn send(
    site: &Arc<Site>,
    caller: &Token,
    request: &Request,
    headers: &HeaderMap,
    streaming: bool,
) -> Said {
    let params: SendMessageRequest = request.params()?;
    let message = &params.message;
    if message.parts.is_empty() || message.id.0.is_empty() {
        return Err(A2aError::invalid_params("message: expected a messageId and at least one part"));
    }
    let configuration = params.configuration.as_ref();
    if configuration.is_some_and(|wanted| wanted.task_push_notification_config.is_some()) {
        return Err(A2aError::push_not_supported(NO_PUSH));
    }
    if let Some(task) = &message.task_id {
        let known = site.table.find(caller, &task.0).is_some();
        let short = crate::failure::short(&task.0, 64);
        return Err(if known {
            A2aError::unsupported_operation("this agent takes all it needs with the first message")
        } else {
            A2aError::task_not_found(short)
        });
    }
    let at_once = !streaming && configuration.and_then(|wanted| wanted.return_immediately) == Some(true);
    let (asked, namespace) = (site.asked(), site.mesh.namespace());
    let id = message.id.0.clone();
    let ids = |extra: Option<&sinew_protocol::task::TaskExtra>| match extra {
        None => Ok(own_ids(namespace, &site.token, caller, &id)),
        Some(extra) => asked
            .result_subject(&extra.result_subject)
            .ok_or_else(|| request::unreadable("the result subject is not one of this agent")),
    };
    let mut asked_for = request::read(asked, ids, params, headers).map_err(|fault| error_of(&fault))?;
    if asked_for.about.session.is_empty() {
        // A caller that names no context gets one of its own.
        asked_for.about.session = asked_for.about.execution.as_str().to_owned();
    }
    caller.as_str().clone_into(&mut asked_for.about.caller);
    let most_open = site.agent.agent.concurrency.saturating_add(MOST_WAITING);
    let entry = match site.begin(asked_for, Some(caller.clone()), most_open) {
        Begin::New(entry) | Begin::Known(entry) => entry,
        Begin::Full => {
            let fault =
                Fault::error(BUSY, "the agent has no room for another task").with_retry_after_ms(1_000);
            return Err(error_of(&fault));
        }
    };
    if streaming || at_once {
        let seq = entry.feed.seq();
        return Ok((raw(&NamedTask { task: entry.json() }), Some(seq)));
    }
    ended(&entry).await?;
    Ok((raw(&NamedTask { task: entry.json() }), Some(entry.feed.seq())))
}

async fn ended(entry: &Entry) -> Result<(), A2aError> {
    entry.ended().await.map(drop).ok_or_else(stopping)
}

fn stopping() -> A2aError {
    error_of(&Fault::error(STOPPING, "the agent stops before it could answer"))
}
