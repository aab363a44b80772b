//! Queries to the owner of a shard: open executions, one record, its status.
//!
//! No durable state depends on a reply: if a shard has no owner, the caller folds its journal
//! itself. Large replies are sent in parts.

use std::time::Duration;

use async_nats::{HeaderMap, HeaderValue, StatusCode};
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::Value;
use sinew_protocol::journal::Verdict;
use sinew_protocol::part::{Part, PartAssembler, split};
pub use sinew_protocol::query::{ExecutionStatus, Query, QueryError, Summary};
use sinew_protocol::{Subject, header, query};
use tokio::time::{Instant, timeout_at};

use crate::service::MeshServices;
use crate::stream::listen::MeshSubscription;
use crate::{Mesh, MeshError};

/// Default timeout for an owner's reply.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of one part of a reply: small enough not to delay other messages.
const PART: usize = 512 << 10;
/// Maximum size of a complete reply, in bytes.
const LARGEST_ANSWER: usize = 256 << 20;

/// An owner's reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The open executions.
    Executions(Vec<Summary>),
    /// The record of one execution, protobuf `ExecutionRecord`.
    Record(Bytes),
    /// Verdicts on commands for one execution.
    Verdicts(Vec<Verdict>),
    /// Status of the owner.
    Status(Value),
    /// Whether the activation of a task failed or was cancelled.
    HasTaskFailed(bool),
    /// The owner has no reply.
    Error(QueryError),
}

/// Queries to one shard.
#[derive(Debug)]
pub struct ShardQueries {
    mesh: Mesh,
    messages: MeshSubscription,
}

/// Query that awaits a reply.
#[derive(Debug)]
pub struct ReceivedQuery {
    /// The query.
    pub query: Query,
    mesh: Mesh,
    reply: async_nats::Subject,
}

impl MeshServices<'_> {
    /// Subscribes to the queries to a shard; only its owner does.
    pub async fn serve_queries(self, shard: u32) -> Result<ShardQueries, MeshError> {
        let messages = self.mesh.listen(self.mesh.subject(&Subject::Query { shard })).await?;
        Ok(ShardQueries { mesh: self.mesh.clone(), messages })
    }

    /// Queries the owner of a shard. [`MeshError::NobodyAnswers`] means that the shard has no
    /// owner.
    pub async fn ask_shard(self, shard: u32, query: &Query) -> Result<Answer, MeshError> {
        self.ask_shard_within(shard, query, PATIENCE).await
    }

    /// Like [`MeshServices::ask_shard`]; fails if no part of the reply arrives within `patience`.
    pub async fn ask_shard_within(
        self,
        shard: u32,
        query: &Query,
        patience: Duration,
    ) -> Result<Answer, MeshError> {
        let subject = self.mesh.subject(&Subject::Query { shard });
        self.mesh.permitted(&subject, self.gather(shard, &subject, query, patience)).await?
    }

    async fn gather(
        self,
        shard: u32,
        subject: &str,
        query: &Query,
        patience: Duration,
    ) -> Result<Answer, MeshError> {
        let (client, inbox) = (self.mesh.client(), self.mesh.reply_inbox());
        let what = "query the owner of a shard";
        let refused = |reason: String| MeshError::Refused { what, reason };
        let mut parts = client.subscribe(inbox.clone()).await.map_err(|error| refused(error.to_string()))?;
        client
            .publish_with_reply(subject.to_owned(), inbox, query.to_json().into())
            .await
            .map_err(|error| refused(error.to_string()))?;
        let (mut whole, mut size) = (PartAssembler::default(), 0);
        loop {
            let who = || format!("shard {shard}");
            let next = timeout_at(Instant::now() + patience, parts.next()).await;
            let message =
                next.map_err(|_| MeshError::NoAnswer { what: who(), within: patience })?.ok_or_else(
                    || MeshError::Unreachable { what, reason: "the connection was closed".to_owned() },
                )?;
            if message.status == Some(StatusCode::NO_RESPONDERS) {
                return Err(MeshError::NobodyAnswers { what: who() });
            }
            size += message.payload.len();
            if size > LARGEST_ANSWER {
                let (size, limit) = (size as u64, LARGEST_ANSWER as u64);
                return Err(MeshError::TooLarge { what: "an answer", size, limit });
            }
            let said = |name: &'static str| message.headers.as_ref()?.get(name).map(HeaderValue::as_str);
            let part = Part::parse(said(header::PART)).map_err(|error| malformed(error.to_string()))?;
            let record = said(header::CONTENT_TYPE) == Some(header::PROTOBUF);
            // Messages of one publisher stay in order, so anything else belongs to another reply or
            // follows a loss.
            let taken = whole.take(part, message.payload.clone());
            if let Some(body) = taken.map_err(|error| malformed(error.to_string()))? {
                return answer(query, body, record);
            }
        }
    }
}

fn malformed(reason: String) -> MeshError {
    MeshError::Malformed { what: "the response of a shard's owner", reason }
}

fn answer(query: &Query, body: Bytes, record: bool) -> Result<Answer, MeshError> {
    use query::Answer as Worded;
    if record {
        return match query {
            Query::Get(_) => Ok(Answer::Record(body)),
            _ => Err(malformed("it contains a record that was not requested".to_owned())),
        };
    }
    match (query, Worded::read(&body).map_err(|error| malformed(error.to_string()))?) {
        (_, Worded::Error(error)) => Ok(Answer::Error(error)),
        (Query::List {}, Worded::Executions(executions)) => Ok(Answer::Executions(executions)),
        (Query::Verdicts(_), Worded::Verdicts(verdicts)) => Ok(Answer::Verdicts(verdicts)),
        (Query::Status {}, Worded::Status(status)) => Ok(Answer::Status(status)),
        (Query::HasTaskFailed(_), Worded::HasTaskFailed(has_failed)) => Ok(Answer::HasTaskFailed(has_failed)),
        _ => Err(malformed("it belongs to another query".to_owned())),
    }
}

impl ShardQueries {
    /// Waits for the next query; `None` when the connection was closed. Replies to malformed
    /// queries with an error.
    pub async fn next(&mut self) -> Option<ReceivedQuery> {
        loop {
            let message = self.messages.next().await?;
            let Some(reply) = message.reply.filter(|reply| self.mesh.may_answer(reply)) else { continue };
            match Query::read(&message.payload) {
                Ok(query) => return Some(ReceivedQuery { query, mesh: self.mesh.clone(), reply }),
                Err(error) => {
                    tracing::debug!(%error, "cannot read a query");
                    let body = query::Answer::Error(QueryError::BadQuery).to_json();
                    if let Err(error) = self.mesh.client().publish(reply, body.into()).await {
                        tracing::debug!(%error, "cannot send a refusal");
                    }
                }
            }
        }
    }
}

impl ReceivedQuery {
    /// Replies, in as many parts as necessary.
    pub async fn answer(self, answer: Answer) -> Result<(), MeshError> {
        let worded = |answer: query::Answer| (header::JSON, Bytes::from(answer.to_json()));
        let (kind, body) = match answer {
            Answer::Record(bytes) => (header::PROTOBUF, bytes),
            Answer::Executions(executions) => worded(query::Answer::Executions(executions)),
            Answer::Verdicts(verdicts) => worded(query::Answer::Verdicts(verdicts)),
            Answer::Status(status) => worded(query::Answer::Status(status)),
            Answer::HasTaskFailed(has_failed) => worded(query::Answer::HasTaskFailed(has_failed)),
            Answer::Error(error) => worded(query::Answer::Error(error)),
        };
        if body.len() > LARGEST_ANSWER {
            let (size, limit) = (body.len() as u64, LARGEST_ANSWER as u64);
            return Err(MeshError::TooLarge { what: "an answer", size, limit });
        }
        for (part, piece) in split(&body, PART).map_err(|error| malformed(error.to_string()))? {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind);
            headers.insert(header::PART, part.to_string());
            let sent = self.mesh.client().publish_with_headers(self.reply.clone(), headers, piece).await;
            sent.map_err(|error| MeshError::Refused { what: "reply to a query", reason: error.to_string() })?;
        }
        Ok(())
    }
}
