//! Samples of the sizes of processes, streams and disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::TryStreamExt as _;
use serde::Serialize;
use sinew_mesh::async_nats::jetstream::Context;
use tokio::time::sleep;

use super::soak_load::AGAIN;
use crate::Fallible;
use crate::cluster::ChaosCluster;
use crate::roles::{MeshArgs, read_task_counts};

/// Maximum attempts to query streams, so that a busy machine does not abort a long run.
const STREAM_TRIES: u32 = 10;

/// Messages and bytes of a stream.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct StreamSize {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

/// A sample.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SoakSample {
    /// Seconds since the start of the run.
    pub(crate) at_seconds: u64,
    /// Resident memory of each process, in KiB.
    pub(crate) memory_kib: BTreeMap<String, u64>,
    /// Live tokio tasks of each process that reports them.
    pub(crate) tasks: BTreeMap<String, u64>,
    pub(crate) streams: BTreeMap<String, StreamSize>,
    pub(crate) disk_bytes: u64,
}

/// Takes samples.
pub(crate) struct SoakSampler {
    context: Context,
    place: MeshArgs,
    store: PathBuf,
}

impl SoakSampler {
    pub(crate) async fn new(cluster: &ChaosCluster) -> Fallible<Self> {
        let context = cluster.place.connect("sampler").await?.admin().jetstream();
        Ok(Self { context, place: cluster.place.clone(), store: cluster.place.folder.join("nats") })
    }

    /// Samples these processes, the streams and the disk.
    pub(crate) async fn sample(&self, at: Duration, processes: &BTreeMap<&str, u32>) -> Fallible<SoakSample> {
        let counts = read_task_counts(&self.place);
        let named = |number: &dyn Fn(u32) -> Option<u64>| {
            let numbers = processes.iter().filter_map(|(name, id)| Some(((*name).to_owned(), number(*id)?)));
            numbers.collect::<BTreeMap<_, _>>()
        };
        let mut tries = 1;
        let streams: Vec<_> = loop {
            match self.context.streams().try_collect().await {
                Ok(streams) => break streams,
                Err(error) if tries == STREAM_TRIES => return Err(error.into()),
                Err(_) => tries += 1,
            }
            sleep(AGAIN).await;
        };
        let size = |state: &sinew_mesh::async_nats::jetstream::stream::State| StreamSize {
            messages: state.messages,
            bytes: state.bytes,
        };
        Ok(SoakSample {
            at_seconds: at.as_secs(),
            memory_kib: named(&resident_kib),
            tasks: named(&|id| counts.get(&id).copied()),
            streams: streams.iter().map(|info| (info.config.name.clone(), size(&info.state))).collect(),
            disk_bytes: bytes_below(&self.store),
        })
    }
}

/// Returns the resident memory of a process, in KiB.
fn resident_kib(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.split_whitespace().next()?.parse().ok()
}

/// Returns the bytes of all files below a folder; ignores files that are removed meanwhile.
fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_below(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}
