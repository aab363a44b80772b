//! Pending tasks in the queues of agents, and storage in use: reported by the owner of the first shard,
//! because an agent without running processes cannot report its queue.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sinew_mesh::Mesh;
use sinew_mesh::problem::StorageUse;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, warn};

use super::AGENT_NAMES;

/// Shard whose owner reports the lengths, so that only one executor of a mesh does.
pub(crate) const REPORTING_SHARD: u32 = 0;
/// Time between two queries to the server.
const QUEUE_INTERVAL: Duration = Duration::from_secs(5);
/// Time between two queries of the storage in use.
const STORAGE_INTERVAL: Duration = Duration::from_mins(1);
/// Maximum number of queues: four pages of a reply.
const MAX_QUEUES: usize = 1_024;

/// Reports the lengths of all queues and the storage in use until the handles are dropped.
pub(crate) fn report_mesh_gauges(mesh: &Mesh) -> [AbortOnDropHandle<()>; 2] {
    [report_queue_lengths(mesh.clone()), report_storage_use(mesh.clone())]
}

/// Reports the lengths of all queues until the handle is dropped.
fn report_queue_lengths(mesh: Mesh) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut reported = ReportedQueues::default();
        let mut is_refused = false;
        let mut turns = interval(QUEUE_INTERVAL);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            match mesh.tasks().queue_lengths(MAX_QUEUES).await {
                Ok(lengths) => {
                    is_refused = false;
                    reported.update(lengths.into_iter().map(|one| {
                        let name = one.agent.name().unwrap_or_else(|| one.agent.to_string());
                        (name, one.queued)
                    }));
                }
                Err(error) if is_refused => debug!(%error, "cannot read queue lengths"),
                Err(error) => {
                    is_refused = true;
                    warn!(%error, "cannot read queue lengths; sinew_agent_queued is not updated");
                }
            }
        }
    }))
}

/// Reports the storage in use until the handle is dropped.
fn report_storage_use(mesh: Mesh) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut reported = ReportedStores::default();
        let mut turns = interval(STORAGE_INTERVAL);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            match mesh.admin().storage_use().await {
                Ok(used) => reported.update(&used),
                Err(error) => debug!(%error, "cannot read the storage in use"),
            }
        }
    }))
}

/// Stores that have a value; reset to zero when another executor reports them.
#[derive(Debug, Default)]
struct ReportedStores(BTreeSet<String>);

impl ReportedStores {
    fn update(&mut self, used: &[StorageUse]) {
        for store in used {
            let name = store.store.as_deref().unwrap_or("account");
            set_use(name, store.bytes as f64 / store.limit as f64);
            self.0.insert(name.to_owned());
        }
    }
}

impl Drop for ReportedStores {
    fn drop(&mut self) {
        for name in &self.0 {
            set_use(name, 0.0);
        }
    }
}

fn set_use(store: &str, ratio: f64) {
    metrics::gauge!("sinew_storage_used_ratio", "store" => store.to_owned()).set(ratio);
}

/// Labels that have a value; reset to zero when another executor reports them.
#[derive(Debug, Default)]
struct ReportedQueues(BTreeSet<String>);

impl ReportedQueues {
    fn update(&mut self, lengths: impl Iterator<Item = (String, u64)>) {
        let mut by_label: BTreeMap<String, u64> = BTreeMap::new();
        for (agent, queued) in lengths {
            *by_label.entry(AGENT_NAMES.label(&agent)).or_default() += queued;
        }
        // A deleted queue has no tasks.
        for gone in self.0.iter().filter(|label| !by_label.contains_key(*label)) {
            set_gauge(gone, 0);
        }
        for (label, queued) in &by_label {
            set_gauge(label, *queued);
        }
        self.0 = by_label.into_keys().collect();
    }
}

impl Drop for ReportedQueues {
    fn drop(&mut self) {
        for label in &self.0 {
            set_gauge(label, 0);
        }
    }
}

fn set_gauge(label: &str, queued: u64) {
    metrics::gauge!("sinew_agent_queued", "agent" => label.to_owned()).set(queued as f64);
}
