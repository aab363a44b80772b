//! The A2A door: request and reply in JSON-RPC, one subject per operation and caller.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sinew_mesh::async_nats::service::Request as Call;
use sinew_mesh::async_nats::{HeaderMap, HeaderValue};
use sinew_mesh::crash;
use sinew_mesh::wire::undeliverable;
use sinew_protocol::a2a::{A2A_VERSION, A2aError, CoreMethod, ErrorCode, SendMessageRequest};
use sinew_protocol::jsonrpc::{self, Method, Refused, Request, Response, check_headers, error_of, raw};
use sinew_protocol::{Fault, Subject, Token, header};

use crate::failure::{BUSY, STOPPING};
use crate::micro::ListedDoor;
use crate::operations;
use crate::request;
use crate::site::Site;
use crate::table::{Begin, Entry};
use crate::task_properties::own_ids;

/// Open tasks beyond those that are worked on.
pub(crate) const MOST_WAITING: usize = 1_024;
/// Calls that are answered at once.
const AT_ONCE: usize = 4_096;
/// Time until a door that could not be opened again is tried once more.
const REOPEN_PAUSE: Duration = Duration::from_millis(250);
/// Answer to requests for webhooks.
const NO_PUSH: &str = "there are no push notifications on a bus: watch the task's progress";

/// Answers calls until the agent drains; calls that wait for a task are answered after that too.
pub(crate) async fn serve(site: Arc<Site>, mut door: ListedDoor, mut renewed: BoxFuture<'static, ()>) {
    let at_once = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
    loop {
        let call = tokio::select! {
            biased;
            () = site.draining.cancelled() => break,
            call = door.endpoint.next() => call,
            // A door that was opened on an older connection hears nothing any more.
            () = &mut renewed => None,
        };
        let Some(call) = call else {
            renewed = Box::pin(site.mesh.services().renewed());
            if let Err(error) = door.reopen(&site.mesh, &site.agent).await {
                tracing::debug!(%error, "the A2A door is not open again yet");
                tokio::time::sleep(REOPEN_PAUSE).await;
            }
            continue;
        };
        let Ok(permit) = Arc::clone(&at_once).acquire_owned().await else { return };
        let site = Arc::clone(&site);
        let tracker = site.going_on.clone();
        tracker.spawn(async move {
            answer(&site, &call).await;
            drop(permit);
        });
    }
    if let Err(error) = door.endpoint.stop().await {
        tracing::debug!(%error, "the A2A door was not closed");
    }
    // Calls that arrived before the subscription was closed are answered.
    while let Some(call) = door.endpoint.next().await {
        respond(&site, &call, Value::Null, Err(stopping())).await;
    }
}

async fn answer(site: &Arc<Site>, call: &Call) {
    let none = HeaderMap::new();
    let headers = call.message.headers.as_ref().unwrap_or(&none);
    let (id, said) = match open(site, call, headers) {
        Err(Refused { id, error }) => (id, Err(*error)),
        Ok((request, caller)) => {
            let said = perform(site, &caller, &request, headers).await;
            (request.id, said)
        }
    };
    respond(site, call, id, said).await;
}

/// Outcome of a call: a rendered result with the number of the last event before it, or an error.
type Said = Result<(Box<RawValue>, Option<u64>), A2aError>;

/// A task as the result of an operation that names what it answers with.
#[derive(Serialize)]
struct NamedTask<T> {
    task: T,
}

async fn respond(site: &Site, call: &Call, id: Value, said: Said) {
    // A call without a reply subject, or with one that the caller may not publish to, is not answered.
    let Some(reply) = &call.message.reply else { return };
    if !site.mesh.services().may_answer(reply) {
        tracing::warn!(%reply, "a call wants its answer on a subject of the mesh; it gets none");
        return;
    }
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
    if let Err(error) = call.respond_with_headers(Ok(response), headers).await {
        tracing::debug!(%error, "a call was not answered");
    }
}

/// The call itself, if the door understands it, and who calls.
fn open(site: &Site, call: &Call, headers: &HeaderMap) -> Result<(Request, Token), Refused> {
    let request = Request::read(&call.message.payload)?;
    let refused = |error: A2aError| Refused { id: request.id.clone(), error: Box::new(error) };
    if let Some(reason) = undeliverable(headers) {
        return Err(refused(A2aError::new(ErrorCode::InvalidRequest, reason)));
    }
    let text = |name: &str| headers.get(name).map(HeaderValue::as_str);
    check_headers(text(header::A2A_VERSION), text(header::CONTENT_TYPE)).map_err(refused)?;
    match Subject::parse(site.mesh.namespace(), &call.message.subject) {
        // Permissions are given by subject: what the body asks for must be what the caller may ask for.
        Some(Subject::Rpc { method, caller, .. }) if Token::of(request.method.as_str()) == method => {
            Ok((request, caller))
        }
        _ => Err(refused(A2aError::new(ErrorCode::InvalidRequest, "the method is not that of the subject"))),
    }
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
