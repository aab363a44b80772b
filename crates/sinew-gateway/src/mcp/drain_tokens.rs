//! How what is open ends when a gateway drains.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Tokens that fire while a gateway drains. Those of [`Default`] never fire.
#[derive(Clone, Debug, Default)]
pub(crate) struct DrainTokens {
    /// Fires at once, for streams that wait for news only.
    pub(super) idle: CancellationToken,
    /// Fires when calls have no more time, so that their clients still get an answer.
    pub(super) calls: CancellationToken,
}

impl DrainTokens {
    /// Tokens of a gateway whose drain takes at most `limit`, and the task that fires them.
    pub(crate) fn of(draining: &CancellationToken, limit: Duration) -> (Self, AbortOnDropHandle<()>) {
        let tokens = Self { idle: draining.clone(), calls: CancellationToken::new() };
        let Self { idle, calls } = tokens.clone();
        // A quarter of the time remains to write the answers.
        let for_calls = limit * 3 / 4;
        let timer = tokio::spawn(async move {
            idle.cancelled().await;
            tokio::time::sleep(for_calls).await;
            calls.cancel();
        });
        (tokens, AbortOnDropHandle::new(timer))
    }
}
