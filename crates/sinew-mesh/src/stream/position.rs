//! Positions of a shard and their streams: detects whether a stream is still the one that was read.

use sinew_protocol::code;
use std::time::Duration;

use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::Info;
use sinew_protocol::journal::Positions;
use sinew_protocol::stream::bucket;
use tokio::time::sleep;

use crate::error::MeshError;
use crate::mesh::Mesh;
use crate::stream::inbox::ShardCommands;
use crate::stream::pull::{Reading, answer, milliseconds, unreachable};

/// A stream was recreated, or ends before the position of a shard.
pub const STREAM_BEHIND: &str = code::STREAM_BEHIND_SHARD.as_str();
/// Timeout of one request to the server.
const INFO_TIMEOUT: Duration = Duration::from_secs(5);
/// Checks before a stream counts as older than a position: a new leader may lag for a moment.
const LOOKS: u32 = 3;
/// Pause between two checks.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// End and creation time of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamAge {
    /// When the stream was created: milliseconds since 1970 UTC.
    pub created: u64,
    /// Sequence number of the newest message, 0 in a new stream.
    pub last_seq: u64,
}

/// Position in a stream after which a shard reads.
#[derive(Clone, Copy, Debug)]
struct StreamPosition {
    position: u64,
    /// When the message at the position was stored: milliseconds since 1970 UTC, 0 if unknown.
    stored: u64,
    /// When the stream was created, likewise.
    created: u64,
}

impl ShardCommands<'_> {
    /// Returns end and creation time of a stream of this kind; `None` if the stream does not exist.
    pub async fn stream_age(self, kind: &str) -> Result<Option<StreamAge>, MeshError> {
        let info = self.mesh.stream_info(&bucket(self.mesh.namespace(), kind)).await?;
        Ok(info.map(|info| StreamAge {
            created: milliseconds(info.created),
            last_seq: info.state.last_sequence,
        }))
    }

    /// Returns the positions after which to read, with the creation times of both streams. A stream
    /// that was recreated, or that ends before its position, is read from its first message:
    /// otherwise new messages below the position would be lost.
    pub async fn current_positions(self, shard: u32, stored: Positions) -> Result<Positions, MeshError> {
        let at = |position, stored, created| StreamPosition { position, stored, created };
        let commands = at(stored.commands, stored.commands_stored, stored.commands_created);
        let results = at(stored.results, stored.results_stored, stored.results_created);
        let (commands, results) = tokio::try_join!(
            self.position_in("COMMANDS", shard, commands),
            self.position_in("RESULTS", shard, results)
        )?;
        Ok(Positions {
            commands: commands.position,
            results: results.position,
            commands_created: commands.created,
            results_created: results.created,
            commands_stored: commands.stored,
            results_stored: results.stored,
        })
    }

    /// Returns the position after which to read in one stream.
    async fn position_in(
        self,
        kind: &'static str,
        shard: u32,
        before: StreamPosition,
    ) -> Result<StreamPosition, MeshError> {
        let StreamPosition { position, stored, created } = before;
        let mut look = 1;
        loop {
            let Some(age) = self.stream_age(kind).await? else {
                let id = bucket(self.mesh.namespace(), kind);
                return Err(MeshError::NotFound { what: "stream", id });
            };
            let anew = created != 0 && created != age.created;
            let is_behind = position > age.last_seq;
            let rewritten = !anew && !is_behind && !self.is_same(kind, position, stored).await?;
            if !anew && !is_behind && !rewritten {
                return Ok(StreamPosition { created: age.created, ..before });
            }
            if is_behind && !anew && look < LOOKS {
                look += 1;
                sleep(LOOK_INTERVAL).await;
                continue;
            }
            metrics::counter!("sinew_streams_behind_total", "stream" => kind).increment(1);
            tracing::error!(
                shard,
                stream = kind,
                position,
                last = age.last_seq,
                anew,
                rewritten,
                code = STREAM_BEHIND,
                "the stream is behind the shard's position; reading it again from its first message"
            );
            return Ok(StreamPosition { position: 0, stored: 0, created: age.created });
        }
    }

    /// Returns whether the message at a position is the one that was read.
    async fn is_same(self, kind: &str, position: u64, stored: u64) -> Result<bool, MeshError> {
        let stream = bucket(self.mesh.namespace(), kind);
        let filter = String::new();
        let reading = Reading { stream, filter, after: position, after_stored: stored, headers_only: true };
        self.mesh.still_has(&reading).await
    }
}

impl Mesh {
    /// Returns configuration and state of a stream by its name on the server; `None` if the stream
    /// does not exist.
    pub(crate) async fn stream_info(&self, stream: &str) -> Result<Option<Info>, MeshError> {
        const WHAT: &str = "read the state of a stream";
        let call = format!("$JS.API.STREAM.INFO.{stream}");
        let jetstream = self.jetstream();
        let info = answer(self, WHAT, INFO_TIMEOUT, jetstream.get_stream(stream));
        match self.permitted(&call, info).await?? {
            Ok(stream) => Ok(Some(stream.cached_info().clone())),
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(refusal) if refusal.code() == 404 => Ok(None),
                _ => Err(unreachable(WHAT, &error)),
            },
        }
    }
}
