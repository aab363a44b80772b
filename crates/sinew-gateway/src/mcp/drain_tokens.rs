//! Ends open streams and calls when a gateway drains.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Tokens that are cancelled while a gateway drains. Those of [`Default`] are never cancelled.
#[derive(Clone, Debug, Default)]
pub(crate) struct DrainTokens {
    /// Cancelled when the drain starts, for streams that only wait for changes.
    pub(super) idle: CancellationToken,
    /// Cancelled when calls have no time left, so that their clients still get a response.
    pub(super) calls: CancellationToken,
}

impl DrainTokens {
    /// Creates the tokens of a gateway whose drain takes at most `limit`, and the task that cancels
    /// them.
    pub(crate) fn of(draining: &CancellationToken, limit: Duration) -> (Self, AbortOnDropHandle<()>) {
        let tokens = Self { idle: draining.clone(), calls: CancellationToken::new() };
        let Self { idle, calls } = tokens.clone();
        // A quarter of the time remains for writing responses.
        let for_calls = limit * 3 / 4;
        let timer = tokio::spawn(async move {
            idle.cancelled().await;
            tokio::time::sleep(for_calls).await;
            calls.cancel();
        });
        (tokens, AbortOnDropHandle::new(timer))
    }
}
