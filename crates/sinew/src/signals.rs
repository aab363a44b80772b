//! Signals that ask a command to stop: SIGTERM and Ctrl-C.

use sinew_operations::failure::{Failure, FailureKind};
use sinew_protocol::code;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for SIGTERM and Ctrl-C.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Starts to listen.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let open = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(
                    FailureKind::Failed,
                    code::RUNTIME_CANNOT_START.as_str(),
                    format!("cannot listen for signals: {error}"),
                )
            })
        };
        Ok(Self { terminate: open(SignalKind::terminate())?, interrupt: open(SignalKind::interrupt())? })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
