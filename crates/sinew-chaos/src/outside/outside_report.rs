//! Verdict on a gateway run, only from observations of external programs.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use comfy_table::Table;
use serde::Serialize;
use sinew_protocol::code;

use super::push_receiver::PushLedger;
use super::stream_client::FollowedStream;
use crate::Fallible;

/// Maximum problems in a report.
const MAX_PROBLEMS: usize = 40;
/// Divisor for the maximum number of streams that end because tasks were delivered too often.
const GIVEN_UP_PART: usize = 10;

/// Numbers of killed processes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct KillCounts {
    pub(super) gateway: u64,
    pub(super) bridge: u64,
    pub(super) executor: u64,
    pub(super) broker: u64,
}

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct GatewayReport {
    kind: &'static str,
    seed: u64,
    good: bool,
    seconds: u64,
    kills: KillCounts,
    /// Crashes by point.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) deaths: BTreeMap<String, u64>,
    streams: usize,
    /// Streams that ended with the expected output.
    completed: usize,
    /// Streams whose execution ended because the delivery of a message is unknown.
    fate_unknown: usize,
    /// Streams whose execution ended because a task was delivered too often while its bridge crashed.
    given_up: usize,
    events: u64,
    /// Connections on which a stream was resumed.
    resumed: u64,
    gaps: u64,
    repeats: u64,
    pushed_streams: usize,
    /// Streams whose webhook received all events.
    pushed_whole: usize,
    deliveries: u64,
    deliveries_refused: u64,
    messages: usize,
    messages_sent_twice: usize,
    problems: Vec<String>,
}

impl GatewayReport {
    pub(super) fn new(kind: &'static str, seed: u64, took: Duration, kills: KillCounts) -> Self {
        Self {
            kind,
            seed,
            good: true,
            seconds: took.as_secs(),
            kills,
            deaths: BTreeMap::new(),
            streams: 0,
            completed: 0,
            fate_unknown: 0,
            given_up: 0,
            events: 0,
            resumed: 0,
            gaps: 0,
            repeats: 0,
            pushed_streams: 0,
            pushed_whole: 0,
            deliveries: 0,
            deliveries_refused: 0,
            messages: 0,
            messages_sent_twice: 0,
            problems: Vec::new(),
        }
    }

    /// Fails the run with a problem unless the condition holds.
    pub(super) fn demand(&mut self, holds: bool, otherwise: impl Into<String>) {
        if !holds {
            self.good = false;
            if self.problems.len() < MAX_PROBLEMS {
                self.problems.push(otherwise.into());
            }
        }
    }

    pub(super) fn judge_streams(&mut self, streams: &BTreeMap<u32, FollowedStream>) {
        self.streams = streams.len();
        for (nth, stream) in streams {
            self.events += stream.events;
            self.resumed += stream.resumed;
            self.gaps += stream.gaps;
            self.repeats += stream.repeats;
            let is_whole = stream.gaps == 0 && stream.repeats == 0;
            self.demand(is_whole, format!("stream {nth}: {} gaps, {} repeats", stream.gaps, stream.repeats));
            match stream.state.as_str() {
                "TASK_STATE_COMPLETED" => {
                    let is_right = stream.text == format!("s{nth}!!");
                    self.completed += usize::from(is_right);
                    self.demand(is_right, format!("stream {nth}: the output is {:?}", stream.text));
                }
                "TASK_STATE_FAILED" if stream.words.contains(code::OUTSIDE_MESSAGE_FATE_UNKNOWN.as_str()) => {
                    self.fate_unknown += 1;
                }
                "TASK_STATE_FAILED" if stream.words.contains(code::TASK_REDELIVERED_TOO_OFTEN.as_str()) => {
                    self.given_up += 1;
                }
                other => self.demand(false, format!("stream {nth}: ended as {other:?}: {}", stream.words)),
            }
        }
    }

    pub(super) fn judge_pushes(
        &mut self,
        streams: &BTreeMap<u32, FollowedStream>,
        expected: &BTreeMap<u32, u64>,
        pushed: &PushLedger,
    ) {
        (self.deliveries, self.deliveries_refused) = pushed.counts();
        self.pushed_streams = expected.len();
        for (nth, last) in expected {
            let arrived = pushed.events(*nth);
            let first = arrived.first().copied().unwrap_or(u64::MAX);
            let begins = streams.get(nth).is_some_and(|stream| first <= stream.first + 1);
            let is_whole = begins && arrived.len() as u64 == (last + 1).saturating_sub(first);
            self.pushed_whole += usize::from(is_whole);
            self.demand(is_whole, format!("webhook {nth}: events {arrived:?}, the last is {last}"));
        }
    }

    /// Checks the agent's messages. An activation that ended as unknown must have none. Each completed
    /// stream has two, and a stream with an unknown second task has one.
    pub(super) fn judge_messages(&mut self, messages: &BTreeMap<String, u32>, most_unknown: usize) {
        self.messages = messages.len();
        let twice: Vec<&String> =
            messages.iter().filter(|(_, count)| **count > 1).map(|(id, _)| id).collect();
        self.messages_sent_twice = twice.len();
        self.demand(twice.is_empty(), format!("messages that were sent twice: {twice:?}"));
        let most = 2 * (self.completed + self.given_up) + self.fate_unknown;
        let is_plausible = (2 * self.completed..=most).contains(&messages.len());
        self.demand(is_plausible, format!("{} messages for {} streams", messages.len(), self.streams));
        let enough = self.fate_unknown <= most_unknown;
        self.demand(enough, format!("the fate of {} messages is unknown", self.fate_unknown));
        let few = GIVEN_UP_PART * self.given_up <= self.streams;
        self.demand(few, format!("tasks of {} streams were delivered too often", self.given_up));
    }

    /// Prints the report. Returns whether the run passed.
    pub(super) fn write(&self, json: bool) -> Fallible<bool> {
        let text = if json { serde_json::to_string_pretty(self)? } else { self.table() };
        writeln!(std::io::stdout(), "{text}")?;
        Ok(self.good)
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::UTF8_BORDERS_ONLY);
        let mut row = |name: &str, value: &dyn ToString| {
            table.add_row([name.to_owned(), value.to_string()]);
        };
        row("run", &self.kind);
        row("seed", &self.seed);
        row("seconds", &self.seconds);
        row("gateways killed", &self.kills.gateway);
        row("bridges killed", &self.kills.bridge);
        row("executors killed", &self.kills.executor);
        row("brokers killed", &self.kills.broker);
        if !self.deaths.is_empty() {
            row("places", &self.deaths.len());
        }
        row("streams", &self.streams);
        row("  ended with the right output", &self.completed);
        row("  ended as unknown", &self.fate_unknown);
        row("  ended after too many deliveries", &self.given_up);
        row("events", &self.events);
        row("connections that went on", &self.resumed);
        row("gaps", &self.gaps);
        row("repeats", &self.repeats);
        row("streams with a webhook", &self.pushed_streams);
        row("  all events arrived", &self.pushed_whole);
        row("deliveries", &self.deliveries);
        row("deliveries refused", &self.deliveries_refused);
        row("messages to the outside agent", &self.messages);
        row("  sent twice", &self.messages_sent_twice);
        row("verdict", &if self.good { "good" } else { "NOT good" });
        let mut text = table.to_string();
        for line in &self.problems {
            text.push('\n');
            text.push_str(line);
        }
        text
    }
}
