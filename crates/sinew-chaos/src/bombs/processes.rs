//! Memory and processor time of this program's descendants, from Linux.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval of samples.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Clock ticks per second of processor time: 100 on common Linux systems.
const TICKS_PER_SECOND: u64 = 100;

/// Sample of a process.
struct ProcessSample {
    parent: u32,
    /// Processor time so far.
    ticks: u64,
}

/// Samples all descendants of this process until it is dropped.
pub(crate) struct ProcessWatch {
    peaks: Arc<Mutex<BTreeMap<String, u64>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ProcessWatch {
    /// Starts sampling.
    pub(crate) fn start() -> Self {
        let (peaks, ended) = (Arc::<Mutex<BTreeMap<String, u64>>>::default(), Arc::<AtomicBool>::default());
        let thread = {
            let (peaks, ended) = (Arc::clone(&peaks), Arc::clone(&ended));
            std::thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    for (process, _) in descendants() {
                        if let Some((kind, kib)) = peak_memory(process) {
                            let mut peaks = peaks.lock().unwrap_or_else(PoisonError::into_inner);
                            let peak = peaks.entry(kind).or_default();
                            *peak = kib.max(*peak);
                        }
                    }
                    std::thread::sleep(LOOK_INTERVAL);
                }
            })
        };
        Self { peaks, ended, thread: Some(thread) }
    }

    /// Returns the peak memory of a process, in KiB, by kind of process.
    pub(crate) fn peaks(&self) -> BTreeMap<String, u64> {
        self.peaks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ProcessWatch {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the processor time of each descendant so far.
pub(crate) fn processor_times() -> BTreeMap<u32, Duration> {
    let time = |ticks: u64| Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND);
    descendants().into_iter().map(|(process, sample)| (process, time(sample.ticks))).collect()
}

fn descendants() -> BTreeMap<u32, ProcessSample> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut all: BTreeMap<u32, ProcessSample> =
        ids.filter_map(|process| Some((process, sample(process)?))).collect();
    let mut below = BTreeSet::from([std::process::id()]);
    loop {
        let known = below.len();
        below.extend(
            all.iter().filter(|(_, one)| below.contains(&one.parent)).map(|(id, _)| *id).collect::<Vec<_>>(),
        );
        if below.len() == known {
            break;
        }
    }
    all.retain(|process, _| below.contains(process) && *process != std::process::id());
    all
}

fn sample(process: u32) -> Option<ProcessSample> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses can contain anything; numbers follow the last parenthesis.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |nth: usize| fields.get(nth)?.parse::<u64>().ok();
    Some(ProcessSample { parent: u32::try_from(number(1)?).ok()?, ticks: number(11)? + number(12)? })
}

/// Returns the kind of a process and its peak memory, in KiB.
fn peak_memory(process: u32) -> Option<(String, u64)> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib = peak.split_whitespace().next()?.parse().ok()?;
    let command = fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let words: Vec<_> = command.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let program = words.first()?.rsplit('/').next().unwrap_or_default().to_owned();
    let kind = match words.get(1).map(AsRef::as_ref) {
        _ if program.starts_with("nats-server") => "broker",
        Some(role) if role.starts_with("__script-worker") => "script worker",
        Some("executor") => "executor",
        Some("targets") => "agents",
        // A process between fork and exec.
        _ => return None,
    };
    Some((kind.to_owned(), kib))
}
