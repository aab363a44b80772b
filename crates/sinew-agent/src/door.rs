//! The A2A door: request and reply in JSON-RPC, one subject per operation and caller.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use sinew_mesh::async_nats::HeaderMap;
use sinew_mesh::async_nats::service::Request as Call;
use sinew_mesh::async_nats::service::endpoint::Endpoint;
use sinew_protocol::a2a::{A2A_VERSION, SendMessageRequest, Task};
use sinew_protocol::{ActivationKey, ExecutionId, Fault, Subject, TaskId, Token, header};

use crate::envelope::{self, Opened};
use crate::failure::{BUSY, STOPPING};
use crate::operations::{self, Refusal};
use crate::request;
use crate::site::Site;
use crate::table::{Begin, Entry};

/// Open tasks beyond those that are worked on.
const MOST_WAITING: usize = 1_024;
/// Calls that are answered at once.
const AT_ONCE: usize = 4_096;
/// A2A's operations about webhooks, which a bus does not have.
const PUSH: [&str; 4] = [
    "CreateTaskPushNotificationConfig",
    "GetTaskPushNotificationConfig",
    "ListTaskPushNotificationConfigs",
    "DeleteTaskPushNotificationConfig",
];

/// Answers calls until the agent drains; calls that wait for a task are answered after that too.
pub(crate) async fn serve(site: Arc<Site>, mut endpoint: Endpoint) {
    let at_once = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
    loop {
        let call = tokio::select! {
            biased;
            () = site.draining.cancelled() => break,
            call = endpoint.next() => call,
        };
        let Some(call) = call else {
            if !site.draining.is_cancelled() {
                tracing::error!("the A2A door was closed by the connection");
            }
            return;
        };
        let Ok(permit) = Arc::clone(&at_once).acquire_owned().await else { return };
        let site = Arc::clone(&site);
        let tracker = site.going_on.clone();
        tracker.spawn(async move {
            answer(&site, &call).await;
            drop(permit);
        });
    }
    if let Err(error) = endpoint.stop().await {
        tracing::debug!(%error, "the A2A door was not closed");
    }
    // What came before it was closed.
    while let Some(call) = endpoint.next().await {
        let (body, headers) = reply(None, Err(Refusal::Internal(stopping())));
        respond(&call, headers, body).await;
    }
}

async fn answer(site: &Arc<Site>, call: &Call) {
    let none = HeaderMap::new();
    let headers = call.message.headers.as_ref().unwrap_or(&none);
    let (id, said) = match open(site, call, headers) {
        Err(refused) => (refused.0, Err(refused.1)),
        Ok((opened, caller)) => {
            let Opened { id, method, params } = opened;
            (id, perform(site, &caller, &method, params, headers).await)
        }
    };
    let (body, headers) = reply(id, said);
    respond(call, headers, body).await;
}

/// What is said back: a result with the number of the last event before it, or a refusal.
type Said = Result<(Value, Option<u64>), Refusal>;

fn reply(id: Option<Value>, said: Said) -> (Bytes, HeaderMap) {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::JSON);
    headers.insert(header::A2A_VERSION, A2A_VERSION);
    let body = match said {
        Ok((result, seq)) => {
            if let Some(seq) = seq {
                headers.insert(header::A2A_SEQ, seq.to_string());
            }
            envelope::result(id, result)
        }
        Err(refusal) => envelope::refusal(id, &refusal),
    };
    (body, headers)
}

async fn respond(call: &Call, headers: HeaderMap, body: Bytes) {
    // Nobody to answer: the caller did not want one.
    if call.message.reply.is_none() {
        return;
    }
    if let Err(error) = call.respond_with_headers(Ok(body), headers).await {
        tracing::debug!(%error, "a call was not answered");
    }
}

type Refused = (Option<Value>, Refusal);

/// The call itself, if the door understands it, and who calls.
fn open(site: &Site, call: &Call, headers: &HeaderMap) -> Result<(Opened, Token), Refused> {
    let Some(Subject::Rpc { method, caller, .. }) =
        Subject::parse(site.mesh.namespace(), &call.message.subject)
    else {
        return Err((None, Refusal::NoMethod(String::new())));
    };
    let text = |name: &str| headers.get(name).map(|value| value.as_str());
    let media_type = text(header::CONTENT_TYPE).unwrap_or(header::JSON);
    let plain = media_type.split(';').next().unwrap_or_default().trim();
    if !plain.eq_ignore_ascii_case(header::JSON) && !plain.eq_ignore_ascii_case("application/a2a+json") {
        return Err((None, Refusal::ContentType(crate::failure::short(media_type, 100))));
    }
    let opened = envelope::open(&call.message.payload)?;
    // No version means 0.3, which nobody speaks here.
    let version = text(header::A2A_VERSION).unwrap_or("0.3");
    if version != A2A_VERSION {
        return Err((opened.id, Refusal::Version(crate::failure::short(version, 20))));
    }
    if Token::of(&opened.method) != method {
        return Err((opened.id, Refusal::NoRequest("the method is not that of the subject".to_owned())));
    }
    Ok((opened, caller))
}

async fn perform(
    site: &Arc<Site>,
    caller: &Token,
    method: &str,
    params: Option<Value>,
    headers: &HeaderMap,
) -> Said {
    match method {
        "SendMessage" => send(site, caller, params, headers, false).await,
        "SendStreamingMessage" => send(site, caller, params, headers, true).await,
        "GetTask" => operations::get(&site.table, caller, params).map(|(task, seq)| (json!(task), Some(seq))),
        "ListTasks" => operations::list(&site.table, caller, params).map(|page| (json!(page), None)),
        "CancelTask" => {
            let entry = operations::cancel(&site.table, caller, params)?;
            let task = ended(&entry).await?;
            Ok((json!(task), Some(entry.feed.seq())))
        }
        "SubscribeToTask" => operations::subscribe(&site.table, caller, params)
            .map(|(task, seq)| (json!({ "task": task }), Some(seq))),
        "GetAgentCard" => Ok((json!(site.agent.agent.announcement().card(site.mesh.namespace())), None)),
        "GetExtendedAgentCard" => Err(Refusal::NoExtendedCard),
        push if PUSH.contains(&push) => Err(Refusal::PushNotSupported),
        other => Err(Refusal::NoMethod(crate::failure::short(other, 64))),
    }
}

async fn send(
    site: &Arc<Site>,
    caller: &Token,
    params: Option<Value>,
    headers: &HeaderMap,
    streaming: bool,
) -> Said {
    let params: SendMessageRequest = operations::parameters(params)?;
    let message = &params.message;
    if message.parts.is_empty() || message.id.0.is_empty() {
        return Err(Refusal::Parameters("message: expected a messageId and at least one part".to_owned()));
    }
    let configuration = params.configuration.as_ref();
    if configuration.is_some_and(|wanted| wanted.task_push_notification_config.is_some()) {
        return Err(Refusal::PushNotSupported);
    }
    if let Some(task) = &message.task_id {
        let known = site.table.find(caller, &task.0).is_some();
        let short = crate::failure::short(&task.0, 64);
        return Err(match known {
            true => Refusal::Unsupported("this agent takes all it needs with the first message".to_owned()),
            false => Refusal::TaskNotFound(short),
        });
    }
    let at_once = !streaming && configuration.and_then(|wanted| wanted.return_immediately) == Some(true);
    let (asked, namespace) = (site.asked(), site.mesh.namespace());
    let ids = |extra: Option<&sinew_protocol::task::TaskExtra>| match extra {
        None => Ok(own_ids(namespace, &site.token, caller, &message.id.0)),
        Some(extra) => asked
            .result_subject(&extra.result_subject)
            .ok_or_else(|| request::unreadable("the result subject is not one of this agent")),
    };
    let mut request = request::read(asked, ids, &params, headers)
        .map_err(|fault| Refusal::Parameters(fault.to_string()))?;
    if request.about.session.is_empty() {
        // A caller that names no context gets one of its own.
        request.about.session = request.about.execution.as_str().to_owned();
    }
    let most_open = site.agent.agent.concurrency.saturating_add(MOST_WAITING);
    let entry = match site.begin(request, Some(caller.clone()), most_open) {
        Begin::New(entry) | Begin::Known(entry) => entry,
        Begin::Full => {
            let fault =
                Fault::error(BUSY, "the agent has no room for another task").with_retry_after_ms(1_000);
            return Err(Refusal::Internal(fault));
        }
    };
    if streaming || at_once {
        let seq = entry.feed.seq();
        return Ok((json!({ "task": entry.snapshot() }), Some(seq)));
    }
    let task = ended(&entry).await?;
    Ok((json!({ "task": task }), Some(entry.feed.seq())))
}

async fn ended(entry: &Entry) -> Result<Task, Refusal> {
    entry.ended().await.ok_or_else(|| Refusal::Internal(stopping()))
}

fn stopping() -> Fault {
    Fault::error(STOPPING, "the agent stops before it could answer")
}

/// The ids of a caller's own task. They follow from the message, so that a message that comes twice is one task, and so
/// that a caller knows where its progress will be heard before it asks.
pub(crate) fn own_ids(
    namespace: &str,
    agent: &Token,
    caller: &Token,
    message: &str,
) -> (ExecutionId, TaskId) {
    let execution = ExecutionId::of(namespace, caller.as_str(), message);
    let activation = ActivationKey::of::<&str>(&execution, agent.as_str(), &[], 0);
    let task = TaskId::of(&execution, &activation, 1);
    (execution, task)
}
