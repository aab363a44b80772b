//! Reports of bomb runs, as text and JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use comfy_table::Table;
use serde::Serialize;

/// Durations of normal executions, in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct LatencySummary {
    pub(crate) count: usize,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl LatencySummary {
    pub(crate) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |percent: usize| {
            let time = times.get((times.len() * percent).div_ceil(100).saturating_sub(1));
            time.map_or(0.0, |time| time.as_secs_f64() * 1000.0)
        };
        Self { count: times.len(), p50: at(50), p99: at(99), max: at(100) }
    }

    /// Returns the less disturbed of two equal measurements.
    pub(crate) fn calmer(self, other: Self) -> Self {
        if other.count > 0 && (self.count == 0 || other.p99 < self.p99) { other } else { self }
    }
}

/// Normal executions, without and with bombs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct InnocentReport {
    pub(crate) quiet: LatencySummary,
    pub(crate) bombed: LatencySummary,
}

impl InnocentReport {
    /// Returns the ratio of p99 durations with and without bombs.
    pub(crate) fn p99_ratio(&self) -> f64 {
        self.bombed.p99 / self.quiet.p99.max(1.0)
    }
}

/// The report.
#[derive(Debug, Serialize)]
pub(crate) struct BombReport {
    pub(crate) kind: &'static str,
    pub(crate) seed: u64,
    pub(crate) good: bool,
    /// `dev` or `release`.
    pub(crate) profile: &'static str,
    pub(crate) bombs: usize,
    /// Ends of bombs, by location.
    pub(crate) ends: BTreeMap<String, BTreeMap<String, usize>>,
    /// Normal executions by kind.
    pub(crate) innocents: BTreeMap<String, InnocentReport>,
    /// All normal executions.
    pub(crate) all_innocents: InnocentReport,
    /// Peak memory of a process, by kind of process.
    pub(crate) peak_memory_mib: BTreeMap<String, u64>,
    /// Time after the last bomb until no process had a busy core.
    pub(crate) quiet_after_ms: Option<u64>,
    /// Processes that ended unexpectedly.
    pub(crate) ended_by_themselves: u64,
    pub(crate) problems: Vec<String>,
}

impl BombReport {
    /// Fails the run with a problem unless the condition holds.
    pub(crate) fn demand(&mut self, holds: bool, otherwise: impl Into<String>) {
        if !holds {
            self.good = false;
            self.problems.push(otherwise.into());
        }
    }

    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::UTF8_BORDERS_ONLY);
        let mut row = |name: String, value: String| {
            table.add_row([name, value]);
        };
        row("seed".to_owned(), self.seed.to_string());
        row("profile".to_owned(), self.profile.to_owned());
        row("bombs".to_owned(), self.bombs.to_string());
        for (place, ends) in &self.ends {
            let ends: Vec<_> = ends.iter().map(|(end, count)| format!("{end} {count}")).collect();
            row(format!("  {place}"), ends.join(", "));
        }
        let by_kind = self.innocents.iter().map(|(kind, innocent)| (kind.as_str(), innocent));
        for (kind, innocent) in by_kind.chain([("executions of all kinds", &self.all_innocents)]) {
            let InnocentReport { quiet, bombed } = innocent;
            let text = format!(
                "p50 {:.1} → {:.1} ms, p99 {:.1} → {:.1} ms ({:.1}×), slowest {:.0} ms, {} executions",
                quiet.p50,
                bombed.p50,
                quiet.p99,
                bombed.p99,
                innocent.p99_ratio(),
                bombed.max,
                bombed.count
            );
            row(format!("innocent {kind}"), text);
        }
        for (kind, mib) in &self.peak_memory_mib {
            row(format!("most memory, {kind}"), format!("{mib} MiB"));
        }
        let quiet = self.quiet_after_ms.map_or("never".to_owned(), |ms| format!("{ms} ms"));
        row("no busy core after the last bomb for".to_owned(), quiet);
        row("ended by themselves".to_owned(), self.ended_by_themselves.to_string());
        row("verdict".to_owned(), if self.good { "good" } else { "NOT good" }.to_owned());
        let mut text = table.to_string();
        for problem in &self.problems {
            text.push('\n');
            text.push_str(problem);
        }
        text
    }
}
