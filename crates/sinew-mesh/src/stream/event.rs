//! Events: published by executions in progress, and on meshes that keep events, also the previous
//! ones.
//!
//! An event is a projection of facts and may be lost. A follower reads the record first, and again
//! whenever it receives an event or has received none for a while.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use futures_util::FutureExt as _;
use sinew_protocol::subject::below;
use sinew_protocol::{ExecutionId, Subject, Token, header};
use tokio::time::timeout;

use crate::crash;
use crate::error::MeshError;
use crate::mesh::{Line, Mesh};
use crate::stream::listen::MeshSubscription;
use crate::stream::pull::{Reader, Reading, redirected};

/// Time for queuing an event on a connection that is busy or lost.
const SEND_TIMEOUT: Duration = Duration::from_millis(250);

/// Filter for events.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Name of the workflow.
    pub workflow: Option<String>,
    /// Id of the execution.
    pub execution: Option<ExecutionId>,
    /// Kind: `workflow_node_execution_start`, `command`, …
    pub kind: Option<String>,
}

/// Start position of a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventStart {
    /// All stored events; on a mesh that stores no events, the same as `Now`.
    Beginning,
    /// Events from now on.
    Now,
}

/// One event.
#[derive(Clone, Debug)]
pub struct Event {
    /// The workflow.
    pub workflow: Token,
    /// The execution.
    pub execution: ExecutionId,
    /// Its kind.
    pub kind: Token,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, JSON.
    pub body: Bytes,
}

/// Events in order, each once.
pub struct Events {
    namespace: String,
    source: EventSource,
}

/// Publishes events of executions without waiting for subscribers or storage.
pub struct EventWriter {
    line: Arc<Line>,
    /// Subject tokens before the workflow.
    prefix: String,
    /// The execution of the last event, with the subject tokens before the kind.
    last: Option<(ExecutionId, String)>,
}

/// An event to publish.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingEvent<'a> {
    /// Name of the workflow.
    pub workflow: &'a str,
    /// The execution.
    pub execution: &'a ExecutionId,
    /// Its kind, a token.
    pub kind: &'a str,
    /// Position of the event in its execution: round and index; `None` for verdicts.
    pub place: Option<(usize, usize)>,
    /// When it was decided, in milliseconds since 1970 UTC; `None` for verdicts.
    pub at: Option<u64>,
    /// W3C trace context of the execution.
    pub traceparent: Option<&'a str>,
}

impl EventWriter {
    /// Publishes an event. Drops it if the connection is not ready: readers of the record still see
    /// the facts.
    pub async fn write(&mut self, event: OutgoingEvent<'_>, body: Bytes) {
        if self.last.as_ref().is_none_or(|(execution, _)| execution != event.execution) {
            let (workflow, execution) = (Token::of(event.workflow), event.execution);
            let prefix = format!("{}{workflow}.{execution}.", self.prefix);
            self.last = Some((execution.clone(), prefix));
        }
        let Some((_, prefix)) = &self.last else { return };
        let subject = [prefix.as_str(), event.kind].concat();
        let mut headers = HeaderMap::new();
        if let Some(parent) = event.traceparent {
            headers.insert(TRACE_PARENT, parent);
        }
        if let Some((round, index)) = event.place {
            headers.insert(SEQ, format!("{round}.{index}"));
        }
        if let Some(at) = event.at {
            headers.insert(TIME, HeaderValue::from(at));
        }
        crash::before(&subject);
        let mut sending = std::pin::pin!(self.line.client.publish_with_headers(subject, headers, body));
        // Only a connection that is not immediately ready needs a timer.
        let sent = match sending.as_mut().now_or_never() {
            Some(sent) => sent.err().map(|error| error.to_string()),
            None => match timeout(SEND_TIMEOUT, sending).await {
                Ok(sent) => sent.err().map(|error| error.to_string()),
                Err(_) => Some("the send buffer of the connection is full".to_owned()),
            },
        };
        if let Some(error) = sent {
            tracing::debug!(error, "cannot publish an event");
        }
    }
}

const TRACE_PARENT: HeaderName = HeaderName::from_static(header::TRACE_PARENT);
const SEQ: HeaderName = HeaderName::from_static(header::SEQ);
const TIME: HeaderName = HeaderName::from_static(header::TIME);

/// Source of events.
enum EventSource {
    /// The stream of a mesh that keeps events.
    Stored(Reader),
    /// The connection.
    Live(MeshSubscription),
}

/// Events of a mesh.
#[derive(Clone, Copy, Debug)]
pub struct EventLog<'a> {
    pub(super) mesh: &'a Mesh,
}

impl Mesh {
    /// Returns the events of this mesh.
    pub fn events(&self) -> EventLog<'_> {
        EventLog { mesh: self }
    }
}

impl EventLog<'_> {
    /// Returns a writer of events over the current connection.
    pub fn writer(self) -> EventWriter {
        let prefix = below(self.mesh.namespace(), &["event"]);
        EventWriter { line: self.mesh.line(), prefix: prefix.trim_end_matches('>').to_owned(), last: None }
    }

    /// Follows events. Includes all events that are published after this returns.
    pub async fn follow(self, filter: &EventFilter, from: EventStart) -> Result<Events, MeshError> {
        let token = |name: &Option<String>| {
            name.as_deref().map_or_else(|| "*".to_owned(), |name| Token::of(name).to_string())
        };
        let execution = filter.execution.as_ref().map_or("*", ExecutionId::as_str).to_owned();
        let tokens = [token(&filter.workflow), execution, token(&filter.kind)];
        let prefix = below(self.mesh.namespace(), &["event"]);
        let filter = format!("{}.{}", prefix.trim_end_matches(".>"), tokens.join("."));
        let namespace = self.mesh.namespace().to_owned();
        if !self.mesh.layout().await?.keeps_events {
            return Ok(Events { namespace, source: EventSource::Live(self.mesh.listen(filter).await?) });
        }
        let stream = sinew_protocol::stream::bucket(self.mesh.namespace(), "EVENTS");
        let after = match from {
            EventStart::Beginning => 0,
            EventStart::Now => self.last_sequence(&stream).await?,
        };
        let reader =
            Reader::open(self.mesh, Reading { stream, filter, after, after_stored: 0, headers_only: false })
                .await?;
        Ok(Events { namespace, source: EventSource::Stored(reader) })
    }

    /// Returns the sequence number of a stream's last message.
    async fn last_sequence(self, stream: &str) -> Result<u64, MeshError> {
        const WHAT: &str = "read the state of a stream";
        let call = format!("$JS.API.STREAM.INFO.{stream}");
        let found = self.mesh.permitted(&call, self.mesh.jetstream().get_stream(stream)).await?;
        let found =
            found.map_err(|error| MeshError::Unreachable { what: WHAT, reason: error.to_string() })?;
        Ok(found.cached_info().state.last_sequence)
    }
}

impl Events {
    /// Waits for the next event. Cancel-safe.
    pub async fn next(&mut self) -> Event {
        loop {
            let message = match &mut self.source {
                EventSource::Stored(reader) => match reader.next().await {
                    Ok(item) => item.message,
                    Err(error) => {
                        tracing::warn!(%error, code = error.code(), "events were lost");
                        reader.go_on_by_time();
                        continue;
                    }
                },
                EventSource::Live(messages) => match messages.next().await {
                    Some(message) if message.headers.as_ref().is_some_and(redirected) => continue,
                    Some(message) => message,
                    // The connection was closed permanently; no event follows.
                    None => std::future::pending().await,
                },
            };
            let subject = Subject::parse(&self.namespace, &message.subject);
            let Some(Subject::Event { workflow, execution, kind }) = subject else { continue };
            let headers = message.headers.unwrap_or_default();
            return Event { workflow, execution, kind, headers, body: message.payload };
        }
    }

    /// Returns the next event if it has already arrived.
    pub fn try_next(&mut self) -> Option<Event> {
        self.next().now_or_never()
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}
