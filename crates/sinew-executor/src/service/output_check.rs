//! Checks of outputs against their schemas, beside the loop of the shard.

use std::sync::Arc;

use sinew_engine::TaskRequest;
use sinew_protocol::{Fault, Token};
use tokio::task::spawn_blocking;

use super::intake::Arrival;
use super::open::BROKE;
use super::shard::Shard;

impl Shard {
    /// Checks the outputs of results before they are decided about. A check may take milliseconds: it runs on a thread
    /// for blocking work, so that other shards go on meanwhile, and the checks of one round run at the same time.
    pub(super) async fn check_outputs(&mut self, arrivals: &mut [Arrival]) {
        self.checked.clear();
        let mut checks = Vec::new();
        for (index, arrival) in arrivals.iter().enumerate() {
            let Arrival::Result(done) = arrival else { continue };
            let Ok(reply) = &done.result else { continue };
            let Some(open) = self.book.wake(&done.execution) else { continue };
            let asked = open.task(&done.task).and_then(|(act, attempt)| open.ask(act, attempt));
            let of_agent = |ask: &&Arc<TaskRequest>| Token::of(ask.target.name()) == done.agent;
            let asked = asked.filter(of_agent).filter(|ask| self.shared.has_output_schema(ask));
            let Some(ask) = asked else { continue };
            let (shared, ask, output) =
                (Arc::clone(&self.shared), Arc::clone(ask), Arc::clone(&reply.output));
            checks.push((index, spawn_blocking(move || shared.check_output(&ask, &output))));
        }
        for (index, check) in checks {
            let verdict = check.await.unwrap_or_else(|error| {
                let text = format!("checking the output against its schema broke: {error}");
                Err(Fault::error(BROKE, text).with_retryable(false))
            });
            let Arrival::Result(done) = &mut arrivals[index] else { continue };
            self.checked.insert(done.task.clone());
            if let Err(fault) = verdict {
                done.result = Err(fault);
            }
        }
    }
}
