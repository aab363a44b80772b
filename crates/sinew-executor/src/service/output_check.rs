//! Checks of outputs against their schemas, outside the loop of the shard.

use std::sync::Arc;

use sinew_engine::{SharedJson, TaskRequest};
use sinew_protocol::Fault;
use sinew_shard::{CODE_BROKE, OutputCheck, ShardInput};
use tokio::task::spawn_blocking;

use super::Shared;
use super::shard::Shard;

impl OutputCheck for Shared {
    fn check(&self, ask: &TaskRequest, output: &SharedJson) -> Result<(), Fault> {
        self.check_output(ask, output)
    }
}

impl Shard {
    /// Checks the outputs of results before they are decided. A check may take milliseconds, so it
    /// runs on a thread for blocking work, concurrently with other shards and the other checks of
    /// the round.
    pub(super) async fn check_outputs(&mut self, inputs: &mut [ShardInput]) {
        let mut checks = Vec::new();
        for (index, input) in inputs.iter().enumerate() {
            let ShardInput::TaskResult(done) = input else { continue };
            let Ok(reply) = &done.result else { continue };
            let Some(ask) = self.state.request_of(done) else { continue };
            if !self.shared.has_output_schema(&ask) {
                continue;
            }
            let (shared, output) = (Arc::clone(&self.shared), Arc::clone(&reply.output));
            checks.push((index, spawn_blocking(move || shared.check_output(&ask, &output))));
        }
        for (index, check) in checks {
            let verdict = check.await.unwrap_or_else(|error| {
                let text = format!("checking the output against its schema failed: {error}");
                Err(Fault::error(CODE_BROKE, text).with_retryable(false))
            });
            let ShardInput::TaskResult(done) = &mut inputs[index] else { continue };
            done.is_checked = true;
            if let Err(fault) = verdict {
                done.result = Err(fault);
            }
        }
    }
}
