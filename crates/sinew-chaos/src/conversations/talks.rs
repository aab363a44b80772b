//! Callers of the agent, through an executor.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sinew_mesh::{HeaderMap, Mesh};
use sinew_protocol::a2a::{CoreMethod, Message, Part, SendMessageRequest};
use sinew_protocol::card::agent_call;
use sinew_protocol::header;
use sinew_protocol::jsonrpc::{Method, Request, Response};
use sinew_protocol::task::{NodeOutput, read_result};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::clerk::CLERK;
use super::ledger::RequestLedger;
use super::script::question;
use crate::Fallible;

/// Delay before the retry of a call that no process accepted.
const AGAIN: Duration = Duration::from_millis(500);

/// End of a conversation for its caller: the text, or the failure.
pub(crate) type TalkEnd = Result<String, String>;

/// Open conversations.
pub(crate) struct OpenConversations {
    mesh: Mesh,
    ledger: Arc<RequestLedger>,
    places: Arc<Semaphore>,
    until: Instant,
    running: JoinSet<(u32, TalkEnd)>,
    next: u32,
}

impl OpenConversations {
    /// Creates a set of conversations that runs at most `at_once` concurrently, until `until`.
    pub(crate) fn new(mesh: Mesh, ledger: Arc<RequestLedger>, at_once: usize, until: Instant) -> Self {
        let places = Arc::new(Semaphore::new(at_once));
        Self { mesh, ledger, places, until, running: JoinSet::new(), next: 0 }
    }

    /// Starts or queues the next conversation.
    pub(crate) fn begin(&mut self) {
        let (mesh, ledger, places) = (self.mesh.clone(), Arc::clone(&self.ledger), Arc::clone(&self.places));
        let (number, until) = (self.next, self.until);
        self.next += 1;
        self.running.spawn(async move {
            let _place = places.acquire_owned().await;
            let end = converse(&mesh, number, until).await;
            ledger.state().plan.ended(number);
            (number, end)
        });
    }

    /// Returns the number of started conversations.
    pub(crate) fn begun(&self) -> u32 {
        self.next
    }

    /// Waits for the end of any conversation; `None` if all have ended.
    pub(crate) async fn next_end(&mut self) -> Fallible<Option<(u32, TalkEnd)>> {
        Ok(self.running.join_next().await.transpose()?)
    }
}

/// Calls the agent, with retries under one id, until it answers.
async fn converse(mesh: &Mesh, number: u32, until: Instant) -> TalkEnd {
    let question = question(number);
    let parts = vec![Part::data(json!({ "text": question }))];
    let message = Message::user(format!("talk-{question}"), parts);
    let request = SendMessageRequest { tenant: None, message, configuration: None, metadata: None };
    let method = Method::Core(CoreMethod::SendMessage);
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::JSON);
    headers.insert(header::A2A_VERSION, sinew_protocol::a2a::A2A_VERSION);
    let mut last_error = None;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("did not end in time: {last_error:?}"));
        }
        let body = Request::new("1", method, &request).to_bytes();
        let door = agent_call(CLERK);
        match mesh.services().call_rpc(&door, method.as_str(), headers.clone(), body, left).await {
            Ok(reply) => return read_end(&reply.body),
            Err(error) => {
                last_error = Some(error.to_string());
                sleep(AGAIN).await;
            }
        }
    }
}

fn read_end(body: &[u8]) -> TalkEnd {
    let result = Response::read(body).map_err(|error| error.to_string())?.into_result();
    let result = result.map_err(|error| format!("{error:?}"))?;
    let task = serde_json::from_value(result["task"].clone()).map_err(|error| error.to_string())?;
    let result = read_result(&task).map_err(|error| error.to_string())?;
    match (result.output, result.fault) {
        (NodeOutput::Value(value), None) => {
            let text = value.pointer("/output/text").and_then(Value::as_str);
            text.map(str::to_owned).ok_or_else(|| format!("the output is {value:.200}"))
        }
        (_, fault) => Err(format!("{fault:?}")),
    }
}
