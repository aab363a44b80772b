//! Reading events: what executions tell, from the stream that keeps them, live and from the past alike.

use async_nats::HeaderMap;
use bytes::Bytes;
use sinew_protocol::subject::below;
use sinew_protocol::{ExecutionId, Subject, Token};

use crate::error::MeshError;
use crate::mesh::Mesh;
use crate::pull::{Reader, Reading};

/// Which events.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    /// Of this workflow.
    pub workflow: Option<String>,
    /// Of this execution.
    pub execution: Option<ExecutionId>,
    /// Of this kind: `workflow_node_execution_start`, `command`, …
    pub kind: Option<String>,
}

/// From where on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// All that the stream still keeps.
    Beginning,
    /// Behind this place.
    After(u64),
    /// Events from now on.
    Now,
}

/// One event.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its place in the stream.
    pub seq: u64,
    /// When it was stored: milliseconds since 1970 UTC, by the server's clock.
    pub time: u64,
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

/// Events in order, each once, until it is dropped.
pub struct Events {
    namespace: String,
    reader: Reader,
}

impl Mesh {
    /// Reads events.
    pub async fn events(&self, filter: &EventFilter, from: From) -> Result<Events, MeshError> {
        let stream = sinew_protocol::stream::bucket(self.namespace(), "EVENTS");
        let after = match from {
            From::Beginning => 0,
            From::After(seq) => seq,
            From::Now => self.last_sequence(&stream).await?,
        };
        let token = |name: &Option<String>| {
            name.as_deref().map_or_else(|| "*".to_owned(), |name| Token::of(name).to_string())
        };
        let execution = filter.execution.as_ref().map_or("*", ExecutionId::as_str).to_owned();
        let tokens = [token(&filter.workflow), execution, token(&filter.kind)];
        let prefix = below(self.namespace(), &["event"]);
        let filter = format!("{}.{}", prefix.trim_end_matches(".>"), tokens.join("."));
        let reader = Reader::open(self, Reading { stream, filter, after, headers_only: false }).await?;
        Ok(Events { namespace: self.namespace().to_owned(), reader })
    }

    /// The place of a stream's last message.
    async fn last_sequence(&self, stream: &str) -> Result<u64, MeshError> {
        const WHAT: &str = "look at a stream";
        let call = format!("$JS.API.STREAM.INFO.{stream}");
        let found = self.permitted(&call, self.jetstream().get_stream(stream)).await?;
        let found =
            found.map_err(|error| MeshError::Unreachable { what: WHAT, reason: error.to_string() })?;
        Ok(found.cached_info().state.last_sequence)
    }
}

impl Events {
    /// The next event. May be given up and called again; nothing is lost by it.
    pub async fn next(&mut self) -> Event {
        loop {
            let item = self.reader.next().await;
            let subject = Subject::parse(&self.namespace, &item.message.subject);
            let Some(Subject::Event { workflow, execution, kind }) = subject else { continue };
            return Event {
                seq: item.seq,
                time: item.time,
                workflow,
                execution,
                kind,
                headers: item.message.headers.unwrap_or_default(),
                body: item.message.payload,
            };
        }
    }

    /// The next event if it has come already.
    pub fn try_next(&mut self) -> Option<Event> {
        use futures_util::FutureExt as _;
        self.next().now_or_never()
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}
