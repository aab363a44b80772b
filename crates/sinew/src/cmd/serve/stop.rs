//! Stop signals of a service: the first drains it, the second ends the process.

use sinew_operations::failure::Failure;
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;
use crate::signals::Signals;

/// Signals that stop a service.
#[derive(Debug)]
pub(crate) struct Stop {
    /// Fires at the first signal.
    pub(crate) token: CancellationToken,
}

impl Stop {
    /// Listens for SIGTERM and Ctrl-C.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let mut signals = Signals::listen()?;
        let token = CancellationToken::new();
        let fired = token.clone();
        tokio::spawn(async move {
            signals.next().await;
            fired.cancel();
            signals.next().await;
            std::process::exit(Exit::Interrupted as i32);
        });
        Ok(Self { token })
    }

    /// Waits for the first signal.
    pub(crate) async fn asked(&self) {
        self.token.cancelled().await;
    }
}
