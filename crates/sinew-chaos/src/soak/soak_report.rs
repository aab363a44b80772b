//! Reports of soak runs, as text and JSON.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use comfy_table::Table;
use serde::Serialize;

use super::samples::SoakSample;
use super::soak_load::SoakLoad;
use crate::Fallible;

/// Maximum growth of a process's memory since the warm-up.
const MAX_MEMORY_GROWTH: f64 = 1.05;
/// Maximum growth of a stream and of the disk since the warm-up.
const MAX_STORE_GROWTH: f64 = 1.25;
/// Bytes below which streams may grow, because plans and cards are few and retained.
const SMALL_STREAM_BYTES: f64 = 4.0 * 1024.0 * 1024.0;
/// Maximum growth of the median duration of a journey.
const MAX_LATENCY_GROWTH: f64 = 1.5;
/// Maximum additional tasks of a process, because connections start tasks.
const MAX_TASKS_LEFT: u64 = 4;

/// A metric after the warm-up and at the end.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct MeasuredGrowth {
    first: f64,
    last: f64,
    ratio: f64,
}

impl MeasuredGrowth {
    fn new(first: f64, last: f64) -> Self {
        Self { first, last, ratio: if first > 0.0 { last / first } else { 1.0 } }
    }
}

/// The report.
#[derive(Debug, Serialize)]
pub(crate) struct SoakReport {
    kind: &'static str,
    version: &'static str,
    /// `dev` or `release`.
    profile: &'static str,
    seed: u64,
    good: bool,
    seconds: u64,
    started: u64,
    ended: u64,
    approved: u64,
    deployed: u64,
    pub(crate) agent_kills: u64,
    pub(crate) ended_by_themselves: u64,
    /// Mean resident memory, in KiB.
    memory: BTreeMap<String, MeasuredGrowth>,
    /// Mean bytes of each stream.
    streams: BTreeMap<String, MeasuredGrowth>,
    /// Mean bytes of the broker's folder.
    disk: Option<MeasuredGrowth>,
    /// Median duration of a journey, in milliseconds.
    latency: Option<MeasuredGrowth>,
    /// Tokio tasks before and after the load.
    tasks: BTreeMap<String, (u64, u64)>,
    problems: Vec<String>,
    pub(crate) samples: Vec<SoakSample>,
    #[serde(skip)]
    journeys: Vec<(Duration, Duration)>,
}

impl SoakReport {
    pub(crate) fn new(seed: u64, took: Duration, load: &SoakLoad) -> Self {
        let tally = load.tally();
        let mut report = Self {
            kind: "soak",
            version: env!("CARGO_PKG_VERSION"),
            profile: if cfg!(debug_assertions) { "dev" } else { "release" },
            seed,
            good: true,
            seconds: took.as_secs(),
            started: tally.started,
            ended: tally.ended,
            approved: tally.approved,
            deployed: tally.deployed,
            agent_kills: 0,
            ended_by_themselves: 0,
            memory: BTreeMap::new(),
            streams: BTreeMap::new(),
            disk: None,
            latency: None,
            tasks: BTreeMap::new(),
            problems: tally.wrong.iter().take(20).cloned().collect(),
            samples: Vec::new(),
            journeys: tally.journeys.clone(),
        };
        report.good = tally.wrong.is_empty();
        report
            .demand(report.started == report.ended, format!("{} of {} ended", report.ended, report.started));
        for (words, count) in [
            ("was started", report.started),
            ("was approved", report.approved),
            ("was deployed", report.deployed),
        ] {
            report.demand(count > 0, format!("nothing {words}"));
        }
        report
    }

    /// Fails the run with a problem unless the condition holds.
    pub(crate) fn demand(&mut self, holds: bool, otherwise: impl Into<String>) {
        if !holds {
            self.good = false;
            self.problems.push(otherwise.into());
        }
    }

    /// Compares the period after the warm-up with the last period, both of this length. With `limits`,
    /// excessive growth fails the run.
    pub(crate) fn compare(
        &mut self,
        samples: &[SoakSample],
        warm_up: Duration,
        part: Duration,
        limits: bool,
    ) {
        self.demand(self.agent_kills > 0, "no agent was killed");
        self.demand(self.ended_by_themselves == 0, format!("{} processes ended", self.ended_by_themselves));
        let end = samples.last().map_or(0, |sample| sample.at_seconds);
        let (from, part) = (warm_up.as_secs(), part.as_secs());
        let first: Vec<&SoakSample> =
            samples.iter().filter(|one| (from..=from + part).contains(&one.at_seconds)).collect();
        let last: Vec<&SoakSample> = samples.iter().filter(|one| one.at_seconds + part >= end).collect();
        self.demand(!first.is_empty() && !last.is_empty(), "there are no samples to compare");
        let grown = |value: &dyn Fn(&SoakSample) -> Option<f64>| {
            MeasuredGrowth::new(mean(&first, value), mean(&last, value))
        };
        let known =
            |names: &dyn Fn(&SoakSample) -> Vec<String>| last.last().map_or_else(Vec::new, |one| names(one));
        for name in known(&|one| one.memory_kib.keys().cloned().collect()) {
            let growth = grown(&|one| one.memory_kib.get(&name).map(|kib| *kib as f64));
            self.memory.insert(name, growth);
        }
        for name in known(&|one| one.streams.keys().cloned().collect()) {
            let growth = grown(&|one| one.streams.get(&name).map(|size| size.bytes as f64));
            self.streams.insert(name, growth);
        }
        self.disk = Some(grown(&|one| Some(one.disk_bytes as f64)));
        let of_journeys = |from: u64, to: u64| {
            let within = self.journeys.iter().filter(|(at, _)| (from..=to).contains(&at.as_secs()));
            median(within.map(|(_, took)| took.as_secs_f64() * 1000.0).collect())
        };
        self.latency =
            Some(MeasuredGrowth::new(of_journeys(from, from + part), of_journeys(end - part.min(end), end)));
        if limits {
            self.demand_limits();
        }
    }

    fn demand_limits(&mut self) {
        let memory = self
            .memory
            .iter()
            .map(|(name, growth)| (format!("memory of {name}"), *growth, MAX_MEMORY_GROWTH));
        let streams = self.streams.iter().filter(|(_, growth)| growth.last > SMALL_STREAM_BYTES);
        let streams = streams.map(|(name, growth)| (format!("stream {name}"), *growth, MAX_STORE_GROWTH));
        let disk = self.disk.map(|growth| ("disk".to_owned(), growth, MAX_STORE_GROWTH));
        let latency =
            self.latency.map(|growth| ("median of journeys".to_owned(), growth, MAX_LATENCY_GROWTH));
        let all: Vec<_> = memory.chain(streams).chain(disk).chain(latency).collect();
        for (name, MeasuredGrowth { first, last, ratio }, most) in all {
            self.demand(
                ratio <= most,
                format!("{name} grew from {first:.0} to {last:.0}, {ratio:.2} times (limit {most})"),
            );
        }
    }

    /// Compares live tasks before and after the load.
    pub(crate) fn compare_tasks(&mut self, idle: &SoakSample, last: &SoakSample) {
        self.demand(!idle.tasks.is_empty(), "no process has told its tasks");
        for (name, before) in &idle.tasks {
            let after = last.tasks.get(name).copied();
            self.demand(
                after.is_some_and(|after| after <= before + MAX_TASKS_LEFT),
                format!("tasks of {name}: {before} before the load, {after:?} after it"),
            );
            self.tasks.insert(name.clone(), (*before, after.unwrap_or_default()));
        }
    }

    /// Prints the report. Returns whether the run passed.
    pub(crate) fn write(&self, json: bool) -> Fallible<bool> {
        let text = if json { serde_json::to_string_pretty(self)? } else { self.table() };
        writeln!(std::io::stdout(), "{text}")?;
        Ok(self.good)
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::UTF8_BORDERS_ONLY);
        let mut row = |name: &str, value: String| {
            table.add_row([name.to_owned(), value]);
        };
        row("run", format!("{} {} ({})", self.kind, self.version, self.profile));
        row("seed", self.seed.to_string());
        row("seconds", self.seconds.to_string());
        row("executions started", self.started.to_string());
        row("  ended", self.ended.to_string());
        row("questions approved", self.approved.to_string());
        row("versions deployed", self.deployed.to_string());
        row("agents killed", self.agent_kills.to_string());
        let grown = |growth: &MeasuredGrowth, unit: f64, name: &str| {
            format!("{:.1} → {:.1} {name} ({:.2}×)", growth.first / unit, growth.last / unit, growth.ratio)
        };
        for (name, growth) in &self.memory {
            row(&format!("memory of {name}"), grown(growth, 1024.0, "MiB"));
        }
        for (name, growth) in &self.streams {
            row(&format!("stream {name}"), grown(growth, 1024.0 * 1024.0, "MiB"));
        }
        if let Some(growth) = &self.disk {
            row("disk", grown(growth, 1024.0 * 1024.0, "MiB"));
        }
        if let Some(growth) = &self.latency {
            row("median of journeys", grown(growth, 1.0, "ms"));
        }
        for (name, (before, after)) in &self.tasks {
            row(&format!("tasks of {name}"), format!("{before} → {after}"));
        }
        row("verdict", if self.good { "good" } else { "NOT good" }.to_owned());
        let mut text = table.to_string();
        for problem in &self.problems {
            text.push('\n');
            text.push_str(problem);
        }
        text
    }
}

fn mean(samples: &[&SoakSample], value: &dyn Fn(&SoakSample) -> Option<f64>) -> f64 {
    let values: Vec<f64> = samples.iter().filter_map(|one| value(one)).collect();
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
