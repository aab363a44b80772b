//! Questions to the owner of a shard: what is open, one record, how it does.
//!
//! Nothing durable depends on an answer: where nobody owns the shard, whoever asks folds its journal itself. Answers of
//! any size come in parts.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::{HeaderMap, StatusCode, Subscriber};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sinew_protocol::{ExecutionId, Subject, header};
use tokio::time::{Instant, timeout_at};

use crate::{Mesh, MeshError};

/// How long to wait for an owner's answer, unless told otherwise.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// The largest question, in bytes.
const LARGEST_QUERY: usize = 4096;
/// Bytes of one part of an answer.
const PART: usize = 512 << 10;
/// The most parts of an answer that are gathered: 256 MiB.
const MOST_PARTS: u32 = 512;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Query {
    /// The open executions of the shard.
    List {},
    /// The record of one open execution.
    Get(ExecutionId),
    /// How the owner does.
    Status {},
}

/// One execution in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Its id.
    pub execution: ExecutionId,
    /// The workflow's name.
    pub workflow: String,
    /// `running`, `waiting`, `paused`, `success`, `failure` or `cancelled`.
    pub status: String,
    /// Who started it.
    pub caller: String,
    /// When it began, milliseconds since 1970 UTC.
    pub started: u64,
    /// When it ended, milliseconds since 1970 UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// An owner's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The open executions.
    List(Vec<Summary>),
    /// The record, protobuf `ExecutionRecord`.
    Record(Bytes),
    /// How the owner does, as it words it.
    Status(Value),
    /// The execution is not open here.
    NotFound,
}

/// The questions to one shard.
#[derive(Debug)]
pub struct Queries {
    mesh: Mesh,
    messages: Subscriber,
}

/// One question, to be answered.
#[derive(Debug)]
pub struct Asked {
    /// The question.
    pub query: Query,
    mesh: Mesh,
    reply: async_nats::Subject,
}

impl Mesh {
    /// The questions to a shard; only its owner listens.
    pub async fn serve_queries(&self, shard: u32) -> Result<Queries, MeshError> {
        let messages = self.listen(self.subject(&Subject::Query { shard })).await?;
        Ok(Queries { mesh: self.clone(), messages })
    }

    /// Asks the owner of a shard. [`MeshError::NobodyAnswers`] says that nobody owns it.
    pub async fn ask(&self, shard: u32, query: &Query) -> Result<Answer, MeshError> {
        self.ask_within(shard, query, PATIENCE).await
    }

    /// Like [`Mesh::ask`]; gives up when no part of the answer comes for `patience`.
    pub async fn ask_within(
        &self,
        shard: u32,
        query: &Query,
        patience: Duration,
    ) -> Result<Answer, MeshError> {
        let body = serde_json::to_vec(query).map_err(|error| malformed(error.to_string()))?;
        let inbox = self.client().new_inbox();
        let what = "asking the owner of a shard";
        let refused = |reason: String| MeshError::Refused { what, reason };
        let mut parts =
            self.client().subscribe(inbox.clone()).await.map_err(|error| refused(error.to_string()))?;
        let subject = self.subject(&Subject::Query { shard });
        self.client()
            .publish_with_reply(subject, inbox, body.into())
            .await
            .map_err(|error| refused(error.to_string()))?;
        let (mut bytes, mut came) = (BytesMut::new(), 0);
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
            let (part, of) = place(message.headers.as_ref())
                .ok_or_else(|| malformed("a part without a place".to_owned()))?;
            came += 1;
            // One publisher's messages keep their order, so anything else is another answer or a loss.
            if part != came {
                return Err(malformed(format!("part {part} came where part {came} was due")));
            }
            bytes.extend_from_slice(&message.payload);
            if part == of {
                return answer(query, bytes.freeze(), message.headers.as_ref());
            }
        }
    }
}

fn malformed(reason: String) -> MeshError {
    MeshError::Malformed { what: "the answer of a shard's owner", reason }
}

/// Which part of how many; one of one where nothing is said.
fn place(headers: Option<&HeaderMap>) -> Option<(u32, u32)> {
    let Some(text) = headers.and_then(|headers| headers.get(header::PART)) else { return Some((1, 1)) };
    let (part, of) = text.as_str().split_once('/')?;
    let (part, of) = (part.parse().ok()?, of.parse().ok()?);
    (1 <= part && part <= of && of <= MOST_PARTS).then_some((part, of))
}

#[derive(Deserialize)]
struct Listed {
    executions: Vec<Summary>,
}

fn answer(query: &Query, body: Bytes, headers: Option<&HeaderMap>) -> Result<Answer, MeshError> {
    let kind = headers.and_then(|headers| headers.get(header::CONTENT_TYPE));
    if kind.is_some_and(|kind| kind.as_str() == header::PROTOBUF) {
        return match query {
            Query::Get(_) => Ok(Answer::Record(body)),
            _ => Err(malformed("a record that nobody asked for".to_owned())),
        };
    }
    let value: Value = serde_json::from_slice(&body).map_err(|error| malformed(error.to_string()))?;
    match (query, value.get("error").and_then(Value::as_str)) {
        (_, Some("not_found")) => Ok(Answer::NotFound),
        (_, Some(error)) => Err(malformed(error.chars().take(200).collect())),
        (Query::List {}, None) => {
            let listed: Listed =
                serde_json::from_value(value).map_err(|error| malformed(error.to_string()))?;
            Ok(Answer::List(listed.executions))
        }
        (Query::Status {}, None) => Ok(Answer::Status(value)),
        (Query::Get(_), None) => Err(malformed("no record".to_owned())),
    }
}

impl Queries {
    /// The next question; none when the connection was closed. What cannot be read is answered with an error.
    pub async fn next(&mut self) -> Option<Asked> {
        loop {
            let message = self.messages.next().await?;
            let Some(reply) = message.reply else { continue };
            let (query, refusal) = if message.payload.len() > LARGEST_QUERY {
                (None, "the question is too long".to_owned())
            } else {
                match serde_json::from_slice(&message.payload) {
                    Ok(query) => (Some(query), String::new()),
                    Err(error) => (None, format!("the question cannot be read: {error}")),
                }
            };
            if let Some(query) = query {
                return Some(Asked { query, mesh: self.mesh.clone(), reply });
            }
            let body = json!({ "error": refusal }).to_string();
            if let Err(error) = self.mesh.client().publish(reply, body.into()).await {
                tracing::debug!(%error, "a refusal was not sent");
            }
        }
    }
}

impl Asked {
    /// Answers, in as many parts as it takes.
    pub async fn answer(self, answer: Answer) -> Result<(), MeshError> {
        let (kind, body) = match answer {
            Answer::Record(bytes) => (header::PROTOBUF, bytes),
            Answer::List(executions) => {
                (header::JSON, json!({ "executions": executions }).to_string().into())
            }
            Answer::Status(value) => (header::JSON, value.to_string().into()),
            Answer::NotFound => (header::JSON, json!({ "error": "not_found" }).to_string().into()),
        };
        let of = body.len().div_ceil(PART).max(1);
        if of > MOST_PARTS as usize {
            let (size, limit) = (body.len() as u64, u64::from(MOST_PARTS) * PART as u64);
            return Err(MeshError::TooLarge { what: "an answer", size, limit });
        }
        for part in 0..of {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind);
            headers.insert(header::PART, format!("{}/{of}", part + 1));
            let piece = body.slice(part * PART..body.len().min((part + 1) * PART));
            let sent = self.mesh.client().publish_with_headers(self.reply.clone(), headers, piece).await;
            sent.map_err(|error| MeshError::Refused {
                what: "answering a question",
                reason: error.to_string(),
            })?;
        }
        Ok(())
    }
}
