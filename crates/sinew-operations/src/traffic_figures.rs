//! Traffic statistics of a mesh: messages per second by group of subjects, and durations of nodes.

use sinew_documents::figures::{GroupLatency, GroupRate, TrafficReport};
use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::Value;

/// Time window of rates, in milliseconds.
const WINDOW_MS: u64 = 60_000;
/// Maximum number of latest durations kept per group.
const MAX_DURATIONS: usize = 1_000;
/// Number of time spans of a series, and milliseconds per span.
const SPANS: (usize, u64) = (20, 30_000);
/// Maximum number of groups with durations.
const MAX_GROUPS: usize = 300;
/// Maximum number of running nodes tracked; if exceeded, all are dropped.
const MAX_AT_WORK: usize = 50_000;
/// Maximum number of stream samples, one per second.
const MAX_SAMPLES: usize = 64;

/// State of a stream at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSample {
    /// Name of the stream.
    pub stream: String,
    /// Sequence of its last message, which counts all messages ever stored.
    pub last_sequence: u64,
    /// Size of its messages in bytes.
    pub bytes: u64,
    /// Number of its messages.
    pub messages: u64,
}

/// Returns the nearest-rank percentile: the smallest value that `percent` percent of the values do
/// not exceed. Returns `None` without values.
pub(crate) fn nearest_rank(values: &mut [u64], percent: usize) -> Option<u64> {
    values.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100).max(1);
    values.get(rank - 1).copied()
}

/// Statistics being collected. Times are milliseconds since 1970 UTC.
#[derive(Debug, Default)]
pub struct TrafficFigures {
    since: Option<u64>,
    /// Received events: time, kind, bytes.
    heard: VecDeque<(u64, String, u64)>,
    at_work: HashMap<(String, String), (u64, String)>,
    /// Durations with their end times.
    durations: BTreeMap<String, VecDeque<(u64, u64)>>,
    samples: VecDeque<(u64, Vec<StreamSample>)>,
}

/// Group with the durations of all nodes.
const ALL: &str = "all";

impl TrafficFigures {
    /// Starts the collection.
    pub fn begin(now: u64) -> Self {
        Self { since: Some(now), ..Self::default() }
    }

    /// Records an event of an execution. `at` is the time of its decision, if included.
    pub fn note_event(&mut self, now: u64, kind: &str, execution: &str, body: &[u8], at: Option<u64>) {
        self.heard.push_back((now, kind.to_owned(), body.len() as u64));
        while self.heard.front().is_some_and(|(heard, ..)| heard + WINDOW_MS < now) {
            self.heard.pop_front();
        }
        let is_start = kind == "workflow_node_execution_start";
        if !is_start && kind != "workflow_node_execution_result" {
            return;
        }
        let Ok(body) = serde_json::from_slice::<Value>(body) else { return };
        let data = body.get("data").unwrap_or(&body);
        let Some(node) = data.get("node_id").and_then(Value::as_str) else { return };
        let (key, at) = ((execution.to_owned(), node.to_owned()), at.unwrap_or(now));
        if !is_start {
            if let Some((began, agent)) = self.at_work.remove(&key) {
                self.note_duration(now, &agent, at.saturating_sub(began));
            }
            return;
        }
        // Nodes without an agent are decided within the executor.
        let Some(agent) = data.get("agent_name").and_then(Value::as_str) else { return };
        if self.at_work.len() >= MAX_AT_WORK {
            self.at_work.clear();
        }
        self.at_work.insert(key, (at, agent.to_owned()));
    }

    fn note_duration(&mut self, now: u64, agent: &str, took: u64) {
        for group in [ALL, agent] {
            if !self.durations.contains_key(group) && self.durations.len() >= MAX_GROUPS {
                continue;
            }
            let kept = self.durations.entry(group.to_owned()).or_default();
            kept.push_back((now, took));
            if kept.len() > MAX_DURATIONS {
                kept.pop_front();
            }
        }
    }

    /// Records the current state of the streams. Samples of one second are combined.
    pub fn note_streams(&mut self, now: u64, streams: Vec<StreamSample>) {
        if self.samples.back().is_some_and(|(at, _)| now < at + 1_000) {
            return;
        }
        self.samples.push_back((now, streams));
        let is_old = |at: u64| at + WINDOW_MS < now;
        // The last old sample is the start of the window.
        while self.samples.len() > MAX_SAMPLES || self.samples.get(1).is_some_and(|(at, _)| is_old(*at)) {
            self.samples.pop_front();
        }
    }

    /// Returns the statistics of the last minute.
    pub fn report(&self, now: u64) -> TrafficReport {
        let since = self.since.unwrap_or(now).max(now.saturating_sub(WINDOW_MS));
        let seconds = (now.saturating_sub(since) as f64 / 1_000.0).max(0.001);
        let mut events: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (_, kind, bytes) in self.heard.iter().filter(|(heard, ..)| *heard >= since) {
            let sums = events.entry(kind).or_default();
            *sums = (sums.0 + 1, sums.1 + bytes);
        }
        let events = events.into_iter().map(|(kind, (messages, bytes))| GroupRate {
            group: format!("event.{kind}"),
            messages: messages as f64 / seconds,
            bytes: bytes as f64 / seconds,
        });
        TrafficReport {
            seconds,
            rates: self.stream_rates().into_iter().chain(events).collect(),
            latencies: self.latencies(now),
        }
    }

    fn stream_rates(&self) -> Vec<GroupRate> {
        let (Some((begin, first)), Some((end, last))) = (self.samples.front(), self.samples.back()) else {
            return Vec::new();
        };
        let seconds = end.saturating_sub(*begin) as f64 / 1_000.0;
        if seconds < 0.5 {
            return Vec::new();
        }
        let rate = |now: &StreamSample| {
            let before = first.iter().find(|one| one.stream == now.stream)?;
            let messages = now.last_sequence.saturating_sub(before.last_sequence) as f64 / seconds;
            let size = if now.messages > 0 { now.bytes as f64 / now.messages as f64 } else { 0.0 };
            Some(GroupRate { group: now.stream.clone(), messages, bytes: messages * size })
        };
        last.iter().filter_map(rate).collect()
    }

    fn latencies(&self, now: u64) -> Vec<GroupLatency> {
        let of = |(group, kept): (&String, &VecDeque<(u64, u64)>)| {
            let mut durations: Vec<u64> = kept.iter().map(|(_, took)| *took).collect();
            let mut rank = |percent: usize| nearest_rank(&mut durations, percent).unwrap_or_default();
            GroupLatency {
                group: group.clone(),
                count: kept.len(),
                p50_ms: rank(50),
                p95_ms: rank(95),
                p99_ms: rank(99),
                p95_by_span_ms: p95_by_span(kept, now),
            }
        };
        let mut all: Vec<GroupLatency> =
            self.durations.iter().filter(|(_, kept)| !kept.is_empty()).map(of).collect();
        all.sort_by_key(|one| one.group != ALL);
        all
    }
}

/// Returns percentiles of the latest spans. Spans start at fixed times, so that a node stays in its
/// span across requests.
fn p95_by_span(kept: &VecDeque<(u64, u64)>, now: u64) -> Vec<Option<u64>> {
    let (count, span_ms) = SPANS;
    let last = now / span_ms;
    let mut spans = vec![Vec::new(); count];
    for (at, took) in kept {
        let age = usize::try_from(last.saturating_sub(at / span_ms)).unwrap_or(count);
        if let Some(span) = count.checked_sub(age + 1).and_then(|place| spans.get_mut(place)) {
            span.push(*took);
        }
    }
    spans.iter_mut().map(|span| nearest_rank(span, 95)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(figures: &mut TrafficFigures, execution: &str, from: u64, to: u64) {
        let start = json!({"node_id": "a", "agent_name": "one"}).to_string();
        figures.note_event(from, "workflow_node_execution_start", execution, start.as_bytes(), Some(from));
        let result = json!({"data": {"node_id": "a"}}).to_string();
        figures.note_event(to, "workflow_node_execution_result", execution, result.as_bytes(), None);
    }

    #[test]
    fn percentiles_are_those_of_nearest_rank() {
        let mut figures = TrafficFigures::begin(0);
        for n in 1..=100 {
            node(&mut figures, &format!("e{n}"), 1_000, 1_000 + n);
        }
        let report = figures.report(10_000);
        let all = &report.latencies[0];
        assert_eq!(
            (all.group.as_str(), all.count, all.p50_ms, all.p95_ms, all.p99_ms),
            ("all", 100, 50, 95, 99)
        );
        assert_eq!(report.latencies[1].group, "one");
        assert_eq!((all.p95_by_span_ms.len(), all.p95_by_span_ms[19]), (20, Some(95)));
        let later = figures.report(10_000 + 45_000).latencies[0].p95_by_span_ms.clone();
        assert_eq!((later[18], later[19]), (Some(95), None));
        assert!(figures.report(3_600_000).latencies[0].p95_by_span_ms.iter().all(Option::is_none));
        let events =
            report.rates.iter().find(|one| one.group == "event.workflow_node_execution_start").unwrap();
        assert!((events.messages - 10.0).abs() < 1e-9 && events.bytes > 300.0, "{events:?}");
        assert!(figures.report(200_000).rates.is_empty(), "what is older than a minute no longer counts");
    }

    #[test]
    fn streams_count_what_they_took_even_if_it_was_handed_on() {
        let mut figures = TrafficFigures::begin(0);
        let sample = |last_sequence: u64, messages: u64| {
            vec![StreamSample { stream: "TASKS".to_owned(), last_sequence, bytes: messages * 200, messages }]
        };
        figures.note_streams(1_000, sample(10, 2));
        assert!(figures.report(1_500).rates.is_empty(), "one sample is not a rate");
        figures.note_streams(1_500, sample(99, 2));
        figures.note_streams(11_000, sample(110, 4));
        let rate = &figures.report(11_000).rates[0];
        assert_eq!((rate.group.as_str(), rate.messages, rate.bytes), ("TASKS", 10.0, 2_000.0));
    }
}
