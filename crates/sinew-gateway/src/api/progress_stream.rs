//! Words of the agents of one execution as they come: progress that is kept, and pieces of answers that are not.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde_json::json;
use sinew_inspection::record::Record;
use sinew_mesh::live::{Progress, ProgressFeed};
use sinew_operations::agent_calls::told_values;
use sinew_operations::execution_changes::ExecutionChanges;
use sinew_operations::failure::Failure;
use sinew_protocol::{TaskId, code};
use sinew_runtime::{activation_key, events};

use super::api_call::ApiCall;
use crate::http_error::HttpProblem;
use crate::state::GatewayState;

/// Time without words after which a comment shows that the stream is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Attempts of an activation among which a task is looked for.
const MAX_ATTEMPTS: u32 = 100;
/// Tasks whose nodes are remembered; beyond them, words have no node.
const MAX_TASKS: usize = 10_000;

/// State of one stream.
struct ProgressStream {
    state: Arc<GatewayState>,
    changes: ExecutionChanges,
    feed: ProgressFeed,
    /// Nodes by task, as far as they were heard of.
    nodes: BTreeMap<TaskId, Option<String>>,
    ready: VecDeque<Bytes>,
    is_over: bool,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

/// Answers with words from now on, until the execution has ended.
pub(super) async fn follow(call: ApiCall) -> Result<Response, HttpProblem> {
    let found = call.found().await?;
    let Ok(permit) = Arc::clone(&call.state.streams).try_acquire_owned() else {
        let text = "as many streams are open at this gateway as may be; try again in a moment";
        return Err(HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, code::GATEWAY_BUSY, text));
    };
    let id = found.record.execution.id().clone();
    let feed = call.operator.mesh().tasks().watch_progress(Some(&id), None).await.map_err(Failure::from)?;
    let open = ProgressStream {
        state: Arc::clone(&call.state),
        changes: ExecutionChanges::of(found).await?,
        feed,
        nodes: BTreeMap::new(),
        ready: VecDeque::from([Bytes::from_static(b"retry: 1000\n\n")]),
        is_over: false,
        _permit: permit,
    };
    let body = Body::from_stream(stream::unfold(open, |mut open| async move {
        let frame = open.next().await?;
        Some((Ok::<_, Infallible>(frame), open))
    }));
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies must not gather events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

impl ProgressStream {
    /// The next frame; `None` behind the last.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            if self.is_over {
                return None;
            }
            let draining = self.state.draining.clone();
            tokio::select! {
                biased;
                () = draining.cancelled() => self.end(b": this gateway stops\n\n"),
                said = self.feed.next() => match said {
                    Some(said) => self.take(&said),
                    None => self.end(b": the connection was closed\n\n"),
                },
                changed = self.changes.next() => match changed {
                    Ok(true) => {}
                    Ok(false) => self.end(b"event: end\ndata: {}\n\n"),
                    Err(_) => self.end(b": the execution cannot be read\n\n"),
                },
                () = tokio::time::sleep(KEEP_ALIVE) => return Some(Bytes::from_static(b": alive\n\n")),
            }
        }
    }

    fn end(&mut self, frame: &'static [u8]) {
        self.ready.push_back(Bytes::from_static(frame));
        self.is_over = true;
    }

    /// Makes a frame of words. They are text of agents: readers show them as text.
    fn take(&mut self, said: &Progress) {
        let values = told_values(said);
        if values.is_empty() {
            return;
        }
        let known = self.nodes.get(&said.task).cloned();
        let node = known.unwrap_or_else(|| {
            let node = node_of(&self.changes.record, &said.task);
            if node.is_some() && self.nodes.len() < MAX_TASKS {
                self.nodes.insert(said.task.clone(), node.clone());
            }
            node
        });
        let frame = json!({ "task": said.task.as_str(), "node": node, "values": values });
        // JSON has no line ends of its own, so the data is one line.
        self.ready.push_back(format!("data: {frame}\n\n").into());
    }
}

/// The node that a task is of, with its place in maps and loops; `None` if the execution has not told of the task yet.
fn node_of(record: &Record, task: &TaskId) -> Option<String> {
    let (ctx, id) = (record.execution.ctx(), record.execution.id());
    let acts = 0..ctx.state.acts.len() as u32;
    let act = acts.rev().find(|act| {
        let key = activation_key(id, record.execution.program(), ctx.state, *act);
        let attempts = ctx.act(*act).attempt.min(MAX_ATTEMPTS);
        (1..=attempts).any(|attempt| TaskId::of(id, &key, attempt) == *task)
    });
    act.map(|act| events::label(&ctx, act))
}
