//! Sessions: earlier conversations between a caller and an agent.

use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sinew_model::SessionTurn;
use sinew_protocol::Fault;

/// The session that a conversation belongs to.
pub trait Sessions: Send + Sync {
    /// Returns at most `turns` of the last conversations, oldest first. Fails if they cannot be read.
    fn last(&self, turns: u32) -> BoxFuture<'_, Result<Vec<SessionTurn>, Fault>>;
    /// Appends a conversation that has ended. Fails if it cannot be written.
    fn append(&self, turn: SessionTurn) -> BoxFuture<'_, Result<(), Fault>>;
}

/// A session in memory, for one process.
#[derive(Debug, Default)]
pub struct MemorySession(Mutex<Vec<SessionTurn>>);

impl Sessions for MemorySession {
    fn last(&self, turns: u32) -> BoxFuture<'_, Result<Vec<SessionTurn>, Fault>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let from = all.len().saturating_sub(turns as usize);
        std::future::ready(Ok(all[from..].to_vec())).boxed()
    }

    fn append(&self, turn: SessionTurn) -> BoxFuture<'_, Result<(), Fault>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(turn);
        std::future::ready(Ok(())).boxed()
    }
}
