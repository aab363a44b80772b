//! The clock of the server that timestamps the journals.

use std::time::Duration;

use async_nats::jetstream::response::Response;
use serde::Deserialize;
use sinew_protocol::stream::bucket;
use tokio::time::Instant;

use crate::admin::MeshAdmin;
use crate::error::MeshError;
use crate::stream::pull::{answer, milliseconds, unreachable};

/// Timeout of one request to the server.
const WAIT: Duration = Duration::from_secs(5);

/// The server's clock.
#[derive(Clone, Copy, Debug)]
pub struct ServerClock {
    at: u64,
    read: Instant,
}

impl ServerClock {
    /// Returns the server's current time: the reported time plus the time since. Milliseconds since
    /// 1970 UTC.
    pub fn now(&self) -> u64 {
        self.at.saturating_add(u64::try_from(self.read.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

impl MeshAdmin<'_> {
    /// Reads the clock of the server that timestamps the journals.
    pub async fn server_clock(self) -> Result<ServerClock, MeshError> {
        const WHAT: &str = "read the server's time";
        #[derive(Deserialize)]
        struct StampedRecord {
            ts: String,
        }
        let sent = Instant::now();
        let jetstream = self.mesh.jetstream();
        let asked = jetstream.request::<_, _, Response<StampedRecord>>(
            format!("STREAM.INFO.{}", bucket(self.mesh.namespace(), "JOURNAL")),
            &(),
        );
        let stamped =
            match answer(self.mesh, WHAT, WAIT, asked).await?.map_err(|error| unreachable(WHAT, &error))? {
                Response::Ok(stamped) => stamped,
                Response::Err { error } => {
                    return Err(MeshError::Refused { what: WHAT, reason: error.to_string() });
                }
            };
        let at = async_nats::datetime::parse_rfc3339(&stamped.ts)
            .map_err(|error| MeshError::Malformed { what: "the server's time", reason: error.to_string() })?;
        // The server read its clock between request and reply; the midpoint is off by at most half
        // the round trip.
        Ok(ServerClock { at: milliseconds(at), read: sent + sent.elapsed() / 2 })
    }
}
