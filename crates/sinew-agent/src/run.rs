//! An agent as a process: connects as configured in the environment, and handles signals.

use sinew_mesh::connect::Connect;
use tokio_util::sync::CancellationToken;

use crate::agent::Agent;
use crate::error::AgentError;

impl Agent {
    /// Connects as configured in the environment, and serves until the process is signalled
    /// (SIGTERM, Ctrl-C).
    pub async fn run(self) -> Result<(), AgentError> {
        let connect = Connect { role: "agent", caller: Some(self.name.clone()), ..Connect::default() };
        let mesh = connect.open().await?;
        let shutdown = CancellationToken::new();
        let asked = asked_to_end()?;
        let serving = self.serve(mesh, shutdown.clone());
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            served = &mut serving => return served,
            () = asked => shutdown.cancel(),
        }
        serving.await
    }
}

#[cfg(unix)]
fn asked_to_end() -> Result<impl Future<Output = ()>, std::io::Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn asked_to_end() -> Result<impl Future<Output = ()>, std::io::Error> {
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}
