//! Server problems that a comparison of settings does not detect: full or stuck streams, a small
//! payload limit, streams that are older than recorded positions.

use sinew_protocol::code;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::Value;
use sinew_protocol::stream::{FLEET, PLANS, STREAMS, bucket};

use crate::admin::MeshAdmin;
use crate::error::MeshError;
use crate::service::query::{Answer, Query};
use crate::store::object::CHUNK;
use crate::stream::position::{STREAM_BEHIND, StreamAge};
use crate::stream::pull::{answer, milliseconds, unreachable};

/// Smallest `max_payload`: a piece of an object with its headers.
const MIN_PAYLOAD_BYTES: usize = CHUNK + 1024;
/// Percentages of a limit from which a store counts as almost full, and as full.
const FULLNESS: (u64, u64) = (80, 98);
/// Age of the newest heartbeat from which executors count as gone or the server as stuck; they send
/// one per second.
const MAX_HEARTBEAT_AGE: Duration = Duration::from_secs(10);
/// Timeout of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// Limit of concurrent queries to shards.
const CONCURRENT_QUERIES: usize = 64;

/// One problem of the server or of its streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerProblem {
    /// Part of the server, such as `disk`.
    pub part: &'static str,
    /// Whether the problem stops work, or soon will.
    pub severe: bool,
    /// Error code with a documentation page.
    pub code: &'static str,
    /// Message for people.
    pub message: String,
    /// Remedy for people.
    pub hint: &'static str,
}

impl MeshAdmin<'_> {
    /// Finds problems of the server that these credentials can detect. Requires no more rights than
    /// an operator has.
    pub async fn find_problems(self) -> Vec<ServerProblem> {
        let mut problems: Vec<_> = self.small_payload().into_iter().collect();
        problems.extend(self.older_format().await);
        let (storage, shards) = tokio::join!(self.full_storage(), self.stuck_shards());
        for found in [storage, shards] {
            match found {
                Ok(found) => problems.extend(found),
                // Missing rights are not a problem of the server.
                Err(MeshError::Forbidden { .. } | MeshError::NotProvisioned { .. }) => {}
                Err(error) => problems.push(ServerProblem {
                    part: "server",
                    severe: true,
                    code: error.code(),
                    message: error.to_string(),
                    hint: "check the server's log",
                }),
            }
        }
        problems
    }

    /// Reports a mesh whose messages cannot be erased.
    async fn older_format(self) -> Option<ServerProblem> {
        let layout = self.layout().await.ok()?;
        (!layout.has_erasable_messages).then(|| ServerProblem {
            part: "format",
            severe: false,
            code: code::STREAMS_OF_OLDER_FORMAT.as_str(),
            message: "JOURNAL and HISTORY have deny_delete, so their messages cannot be erased one by one"
                .to_owned(),
            hint: "sinew explain SINEW-7045",
        })
    }

    /// Returns whether a piece of an object exceeds the message size of this server.
    pub fn has_small_payload(self) -> bool {
        self.mesh.client().max_payload() < MIN_PAYLOAD_BYTES
    }

    fn small_payload(self) -> Option<ServerProblem> {
        let limit = self.mesh.client().max_payload();
        self.has_small_payload().then(|| ServerProblem {
            part: "payload",
            severe: true,
            code: code::NATS_PAYLOAD_TOO_SMALL.as_str(),
            message: format!(
                "the server accepts messages up to {limit} bytes; artifacts and plans need {MIN_PAYLOAD_BYTES}"
            ),
            hint: "set max_payload to 1MB or more",
        })
    }

    /// Returns the storage of the account and of streams that reject messages when they are full, for
    /// those that have a limit and that this connection may inspect.
    ///
    /// # Errors
    ///
    /// The server does not answer.
    pub async fn storage_use(self) -> Result<Vec<StorageUse>, MeshError> {
        let mut used = match self.account_use().await {
            Err(MeshError::Forbidden { .. }) => Vec::new(),
            found => found?,
        };
        let fleet = format!("KV_{}", bucket(self.mesh.namespace(), FLEET));
        let plans = format!("OBJ_{}", bucket(self.mesh.namespace(), PLANS));
        let streams = STREAMS.iter().map(|stream| stream.name(self.mesh.namespace()));
        for name in streams.chain([plans, fleet]) {
            let info = match self.mesh.stream_info(&name).await {
                Ok(Some(info)) => info,
                // A missing stream is a difference, not a problem of the server.
                Ok(None) | Err(MeshError::Forbidden { .. }) => continue,
                Err(error) => return Err(error),
            };
            let limit = u64::try_from(info.config.max_bytes).unwrap_or_default();
            if limit > 0 && info.config.discard != async_nats::jetstream::stream::DiscardPolicy::Old {
                used.push(StorageUse { store: Some(name), bytes: info.state.bytes, limit });
            }
        }
        Ok(used)
    }

    async fn account_use(self) -> Result<Vec<StorageUse>, MeshError> {
        const WHAT: &str = "query the account";
        let jetstream = self.mesh.jetstream();
        let asked = answer(self.mesh, WHAT, REQUEST_TIMEOUT, jetstream.query_account());
        let account =
            self.mesh.permitted("$JS.API.INFO", asked).await??.map_err(|error| unreachable(WHAT, &error))?;
        let limit =
            account.limits.max_storage.and_then(|limit| u64::try_from(limit).ok()).unwrap_or_default();
        let used = StorageUse { store: None, bytes: account.storage, limit };
        Ok((limit > 0).then_some(used).into_iter().collect())
    }

    /// Reports storage that is nearly full.
    async fn full_storage(self) -> Result<Vec<ServerProblem>, MeshError> {
        Ok(self.storage_use().await?.iter().filter_map(fullness).collect())
    }

    /// Queries the owner of each shard for its status, and compares positions with the streams.
    async fn stuck_shards(self) -> Result<Vec<ServerProblem>, MeshError> {
        if self.mesh.stream_info(&format!("KV_{}", bucket(self.mesh.namespace(), FLEET))).await?.is_none() {
            return Ok(Vec::new());
        }
        let seen = self.mesh.fleet().look().await?;
        let mut problems = Vec::new();
        let shards: Vec<u32> =
            seen.owners.iter().filter(|(_, (owner, _))| owner.is_some()).map(|(shard, _)| *shard).collect();
        let asked = shards.into_iter().map(|shard| async move {
            (shard, self.mesh.services().ask_shard_within(shard, &Query::Status {}, REQUEST_TIMEOUT).await)
        });
        let answers: Vec<_> = futures_util::stream::iter(asked).buffered(CONCURRENT_QUERIES).collect().await;
        let (commands, results) = tokio::try_join!(
            self.mesh.commands().stream_age("COMMANDS"),
            self.mesh.commands().stream_age("RESULTS")
        )?;
        let (mut behind, mut silent, mut alive) = (Vec::new(), Vec::new(), 0);
        for (shard, answer) in answers {
            match answer {
                Ok(Answer::Status(status)) => {
                    alive += 1;
                    let ahead = |name: &str, age: Option<StreamAge>| {
                        let position = status["positions"][name].as_u64().unwrap_or_default();
                        age.is_some_and(|age| position > age.last_seq)
                    };
                    if ahead("commands", commands) || ahead("results", results) {
                        behind.push(shard);
                    }
                }
                Err(MeshError::NoAnswer { .. }) => silent.push(shard),
                // The owner is still opening the shard.
                _ => {}
            }
        }
        if !behind.is_empty() {
            problems.push(ServerProblem {
                part: "positions",
                severe: true,
                code: STREAM_BEHIND,
                message: format!(
                    "COMMANDS or RESULTS ends before the positions of shards {}",
                    numbers(&behind)
                ),
                hint: "sinew explain SINEW-7042",
            });
        }
        if !silent.is_empty() {
            problems.push(ServerProblem {
                part: "storage",
                severe: true,
                code: code::NATS_STORES_NOTHING.as_str(),
                message: format!(
                    "the owners of shards {} do not respond: they stopped, or wait for the server",
                    numbers(&silent)
                ),
                hint: "check the server's log for write errors; free space and restart the server",
            });
        }
        if !seen.members.is_empty()
            && let Some(age) = self.heartbeat_age().await?
            && age > MAX_HEARTBEAT_AGE
        {
            let seconds = age.as_secs();
            let message = if alive > 0 {
                format!("executors respond, but the server has not stored their heartbeats for {seconds} s")
            } else {
                format!(
                    "the last heartbeat of an executor is {seconds} s old: executors stopped, or the server stores nothing"
                )
            };
            problems.push(ServerProblem {
                part: "storage",
                severe: true,
                code: code::NATS_STORES_NOTHING.as_str(),
                message,
                hint: "check for a full disk and for write errors in the server's log; free space and restart the server",
            });
        }
        Ok(problems)
    }

    /// Returns the age of the newest heartbeat in the executors' bucket, by the server's clock.
    async fn heartbeat_age(self) -> Result<Option<Duration>, MeshError> {
        let fleet = format!("KV_{}", bucket(self.mesh.namespace(), FLEET));
        let Some(info) = self.mesh.stream_info(&fleet).await? else { return Ok(None) };
        let now = self.server_clock().await?.now();
        Ok(Some(Duration::from_millis(now.saturating_sub(milliseconds(info.state.last_timestamp)))))
    }
}

/// Storage in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageUse {
    /// Name of the stream; `None` for the account.
    pub store: Option<String>,
    /// Bytes in use.
    pub bytes: u64,
    /// Limit in bytes, more than 0.
    pub limit: u64,
}

/// Returns a problem if the size is close to the limit.
fn fullness(used: &StorageUse) -> Option<ServerProblem> {
    let StorageUse { store, bytes, limit } = used;
    let percent = bytes.saturating_mul(100).checked_div(*limit)?;
    let (name, hint) = match store {
        Some(name) => (name.as_str(), "sinew mesh provision --storage-limit BYTES, or a shorter --retention"),
        None => ("the account", "free space, or raise max_file of the account"),
    };
    (percent >= FULLNESS.0).then(|| ServerProblem {
        part: "disk",
        severe: percent >= FULLNESS.1,
        code: code::NATS_SERVER_NO_ROOM.as_str(),
        message: format!("{name} uses {bytes} of {limit} bytes ({percent} %)"),
        hint,
    })
}

/// Formats numbers for people, truncating long lists.
fn numbers(numbers: &[u32]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = numbers.iter().take(SHOWN).map(ToString::to_string).collect();
    match numbers.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

impl ServerProblem {
    /// The problem as JSON, for scripts.
    pub fn to_json(&self) -> Value {
        let Self { part, severe, code, message, hint } = self;
        serde_json::json!({ "part": part, "severe": severe, "code": code, "message": message, "hint": hint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_full_before_it_overflows() {
        for (bytes, limit, expected) in [
            (100, 0, None),
            (79, 100, None),
            (80, 100, Some(false)),
            (97, 100, Some(false)),
            (98, 100, Some(true)),
            (u64::MAX, 100, Some(true)),
        ] {
            let found = fullness(&StorageUse { store: Some("S".to_owned()), bytes, limit })
                .map(|problem| problem.severe);
            assert_eq!(found, expected, "{bytes} of {limit}");
        }
        assert_eq!(numbers(&(0..10).collect::<Vec<_>>()), "0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
    }
}
