//! When a service is told to stop: the first signal drains, the second ends the process.

use sinew_protocol::code;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit::{Exit, Failure};

/// Signals that stop a service.
#[derive(Debug)]
pub(crate) struct Stop {
    /// Fires at the first signal.
    pub(crate) token: CancellationToken,
}

impl Stop {
    /// Listens for SIGTERM and Ctrl-C.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let open = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(
                    Exit::Failed,
                    code::RUNTIME_CANNOT_START.as_str(),
                    format!("cannot listen for signals: {error}"),
                )
            })
        };
        let (mut term, mut int) = (open(SignalKind::terminate())?, open(SignalKind::interrupt())?);
        let token = CancellationToken::new();
        let fired = token.clone();
        tokio::spawn(async move {
            next(&mut term, &mut int).await;
            fired.cancel();
            next(&mut term, &mut int).await;
            std::process::exit(Exit::Interrupted as i32);
        });
        Ok(Self { token })
    }

    /// Waits for the first signal.
    pub(crate) async fn asked(&self) {
        self.token.cancelled().await;
    }
}

async fn next(term: &mut Signal, int: &mut Signal) {
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}
