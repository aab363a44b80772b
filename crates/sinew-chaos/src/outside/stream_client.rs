//! A client that sends one message and follows its task to the end, with reconnects.

use std::time::Duration;

use serde_json::{Value, json};
use sinew_agents::{WebClient, WebMethod, WebRequest, WebResponse};
use tokio::time::{Instant, sleep, timeout};

/// Delay before a reconnect.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Timeout of response headers.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// Idle timeout of a stream, which has a comment every fifteen seconds.
const STREAM_SILENCE: Duration = Duration::from_secs(25);

/// The client of one stream.
pub(super) struct StreamClient {
    pub(super) web: WebClient,
    /// Address of the workflow at the gateway.
    pub(super) base: String,
    pub(super) nth: u32,
    /// Webhook for the events.
    pub(super) hook: Option<String>,
}

/// Events of a stream that its client received.
#[derive(Clone, Debug, Default)]
pub(super) struct FollowedStream {
    /// Numbers of the first and the last event.
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) events: u64,
    /// Connections with events after the first.
    pub(super) resumed: u64,
    pub(super) gaps: u64,
    pub(super) repeats: u64,
    /// Final state; empty if the task has not ended.
    pub(super) state: String,
    /// Text of the result.
    pub(super) text: String,
    /// Text of the last event, for the report.
    pub(super) words: String,
    task: Option<String>,
}

impl StreamClient {
    /// Follows until the task has ended, or until the timeout.
    pub(super) async fn follow(&self, until: Instant) -> FollowedStream {
        let mut seen = FollowedStream::default();
        while Instant::now() < until && seen.state.is_empty() {
            if let Some(response) = self.open(&seen).await {
                let before = seen.events;
                let had_some = before > 0;
                read_events(response, &mut seen).await;
                if had_some && seen.events > before {
                    seen.resumed += 1;
                }
            }
            if seen.state.is_empty() {
                sleep(RETRY_PAUSE).await;
            }
        }
        seen
    }

    /// Sends the message, or resumes after the last event.
    async fn open(&self, seen: &FollowedStream) -> Option<WebResponse> {
        let last = seen.last.to_string();
        let mut headers = vec![("a2a-version", "1.0"), ("content-type", "application/json")];
        let (address, body) = match &seen.task {
            Some(task) => {
                headers.push(("last-event-id", last.as_str()));
                (format!("{}/tasks/{task}:subscribe", self.base), json!({}))
            }
            None => (format!("{}/message:stream", self.base), self.message()),
        };
        let body = body.to_string().into_bytes();
        let request = WebRequest {
            method: WebMethod::Post,
            address: &address,
            headers: &headers,
            body,
            timeout: HEAD_TIMEOUT,
        };
        let response = self.web.open(request).await.ok()?;
        (response.status() == 200).then_some(response)
    }

    fn message(&self) -> Value {
        let parts = json!([{"data": {"text": format!("s{}", self.nth)}}]);
        let message =
            json!({"messageId": format!("stream-{}", self.nth), "role": "ROLE_USER", "parts": parts});
        match &self.hook {
            None => json!({"message": message}),
            Some(url) => {
                json!({"message": message, "configuration": {"taskPushNotificationConfig": {"url": url}}})
            }
        }
    }
}

async fn read_events(mut response: WebResponse, seen: &mut FollowedStream) {
    let mut rest = Vec::new();
    loop {
        while let Some(end) = rest.windows(2).position(|window| window == b"\n\n") {
            let block: Vec<u8> = rest.drain(..end + 2).collect();
            take_event(&String::from_utf8_lossy(&block), seen);
            if !seen.state.is_empty() {
                return;
            }
        }
        match timeout(STREAM_SILENCE, response.chunk()).await {
            Ok(Ok(Some(chunk))) => rest.extend_from_slice(&chunk),
            _ => return,
        }
    }
}

fn take_event(block: &str, seen: &mut FollowedStream) {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let (Some(number), Some(data)) = (field("id:"), field("data:")) else { return };
    let (Ok(number), Ok(event)) = (number.parse::<u64>(), serde_json::from_str::<Value>(data)) else {
        return;
    };
    if seen.task.is_none() {
        seen.task = event["task"]["id"].as_str().map(str::to_owned);
        seen.first = number;
    } else if number <= seen.last {
        seen.repeats += 1;
    } else if number != seen.last + 1 {
        seen.gaps += 1;
    }
    seen.last = number;
    seen.events += 1;
    let parts = [&event["artifactUpdate"]["artifact"], &event["task"]["artifacts"][0]];
    let texts = parts.iter().filter_map(|artifact| artifact["parts"][0]["data"]["text"].as_str());
    texts.for_each(|text| text.clone_into(&mut seen.text));
    let state = ["statusUpdate", "task"].iter().find_map(|kind| event[kind]["status"]["state"].as_str());
    if let Some(state) = state.filter(|state| !["TASK_STATE_WORKING", "TASK_STATE_SUBMITTED"].contains(state))
    {
        state.clone_into(&mut seen.state);
        seen.words = event.to_string().chars().take(4_000).collect();
    }
}
