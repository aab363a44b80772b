//! External agents of one process: each is opened and served in a separate task, so that none waits
//! for another.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sinew_agent::CancellationToken;
use sinew_mesh::Mesh;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::bridge::Bridge;
use crate::bridge_file::BridgeSettings;
use crate::error::BridgeError;

/// Delays between attempts to serve an agent: the first and the maximum, doubled in between.
const SERVE_BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Names that agents of this process use on the mesh.
#[derive(Clone, Default)]
struct ServedNames(Arc<Mutex<BTreeSet<String>>>);

/// Name of an agent, reserved until this is dropped.
struct ServedName {
    names: ServedNames,
    name: String,
}

impl ServedNames {
    /// Fails if another agent of this process has the name.
    fn take(&self, name: &str) -> Result<ServedName, BridgeError> {
        if self.lock().insert(name.to_owned()) {
            return Ok(ServedName { names: self.clone(), name: name.to_owned() });
        }
        let reason =
            format!("another agent of this process is named {name}; rename one of them in a bridge file");
        Err(BridgeError::Setting { setting: "name", reason })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ServedName {
    fn drop(&mut self) {
        self.names.lock().remove(&self.name);
    }
}

/// Serves external agents until `stop` fires. If one cannot be opened or served, the failure is
/// logged and the agent is retried, while the others continue. `admit` fails for a name that the
/// agent must not use on the mesh.
pub async fn serve_bridges<A, F>(
    settings: Vec<BridgeSettings>,
    mesh: Mesh,
    admit: A,
    stop: CancellationToken,
) -> Result<(), BridgeError>
where
    A: Fn(String) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<(), String>> + Send,
{
    let names = ServedNames::default();
    let mut serving = JoinSet::new();
    for one in settings {
        let (mesh, names, admit, stop) = (mesh.clone(), names.clone(), admit.clone(), stop.clone());
        serving.spawn(async move {
            let (address, mut wait) = (one.shown_address(), SERVE_BACKOFF.0);
            while !stop.is_cancelled() {
                let begun = Instant::now();
                if let Err(error) = serve_once(&one, &mesh, &names, &admit, &stop).await {
                    tracing::warn!(card = address, %error, code = error.code(), "the external agent is not served");
                }
                if begun.elapsed() > SERVE_BACKOFF.1 {
                    wait = SERVE_BACKOFF.0;
                }
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = sleep(wait) => {}
                }
                wait = (wait * 2).min(SERVE_BACKOFF.1);
            }
        });
    }
    let mut served = Ok(());
    while let Some(ended) = serving.join_next().await {
        if let Err(error) = ended {
            stop.cancel();
            served = Err(BridgeError::died(&error));
        }
    }
    served
}

/// Serves an agent until `stop` fires.
async fn serve_once<F>(
    settings: &BridgeSettings,
    mesh: &Mesh,
    names: &ServedNames,
    admit: &impl Fn(String) -> F,
    stop: &CancellationToken,
) -> Result<(), BridgeError>
where
    F: Future<Output = Result<(), String>>,
{
    let Some(bridge) = Bridge::open(settings.clone(), stop).await? else { return Ok(()) };
    let name = names.take(bridge.name())?;
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        admitted = admit(name.name.clone()) => admitted
            .map_err(|reason| BridgeError::Setting { setting: "name", reason })?,
    }
    tracing::info!(agent = name.name, "serving");
    bridge.serve(mesh.clone(), stop.clone()).await
}
