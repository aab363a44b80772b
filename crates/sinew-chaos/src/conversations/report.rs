//! Reports of conversation runs, as text and JSON.

use std::collections::BTreeMap;
use std::io::Write as _;

use comfy_table::Table;
use serde::Serialize;

use super::judge::ConversationVerdict;
use super::kill_plan::KillMoment;
use crate::Fallible;

/// The report.
#[derive(Debug, Serialize)]
pub(crate) struct ConversationReport {
    pub(crate) kind: &'static str,
    pub(crate) seed: u64,
    pub(crate) good: bool,
    pub(crate) seconds: u64,
    /// Killed processes.
    pub(crate) kills: u64,
    /// Processes halted for longer than a task waits for its agent.
    pub(crate) halts: u64,
    /// Processes that ended unexpectedly.
    pub(crate) ended_by_themselves: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) moments: BTreeMap<KillMoment, u64>,
    /// Crashes by point.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) deaths: BTreeMap<String, u64>,
    pub(crate) verdict: ConversationVerdict,
    /// Reasons why the run failed, in addition to those of the verdict.
    pub(crate) problems: Vec<String>,
}

impl ConversationReport {
    /// Fails the run with a problem unless the condition holds.
    pub(crate) fn demand(&mut self, holds: bool, otherwise: impl Into<String>) {
        if !holds {
            self.good = false;
            self.problems.push(otherwise.into());
        }
    }

    /// Checks the invariants of conversations.
    pub(crate) fn demand_ends(&mut self) {
        let ConversationVerdict { conversations, ended_right, .. } = self.verdict;
        self.demand(conversations > 0, "no conversation was held");
        self.demand(ended_right == conversations, "a conversation did not end as it must");
        self.demand(self.verdict.wrong.is_empty(), "the logs are not as they must be");
        let strays = self.ended_by_themselves;
        self.demand(strays == 0, format!("{strays} processes ended by themselves"));
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
        let mut row = |name: &str, value: &dyn ToString| {
            table.add_row([name.to_owned(), value.to_string()]);
        };
        row("run", &self.kind);
        row("seed", &self.seed);
        row("seconds", &self.seconds);
        row("processes killed", &self.kills);
        row("processes halted", &self.halts);
        row("ended by themselves", &self.ended_by_themselves);
        for (moment, kills) in &self.moments {
            row(&format!("  killed at {moment:?}"), kills);
        }
        if !self.deaths.is_empty() {
            row("places", &self.deaths.len());
            row("deaths at them", &self.deaths.values().sum::<u64>());
        }
        let seen = &self.verdict;
        row("conversations", &seen.conversations);
        row("  ended with the right answer", &seen.ended_right);
        row("  taken up by another process", &seen.taken_up);
        row("turns", &seen.turns);
        row("  model calls", &seen.model_calls);
        row("  asked again, answer lost with the process", &seen.repeated_asks);
        row("  recorded turns asked again", &seen.recorded_turns_asked_again);
        row("calls of the tool that acts", &seen.acted);
        row("  whose fate is unknown", &seen.unknown_calls);
        row("  made twice", &seen.acted_twice);
        row("calls of the tool that may be repeated", &seen.look_calls);
        row("  pieces of work for them", &seen.looked);
        row("executions of calls", &seen.call_executions);
        row("wrong", &seen.wrong.len());
        row("verdict", &if self.good { "good" } else { "NOT good" });
        let mut text = table.to_string();
        for line in self.problems.iter().chain(&seen.wrong) {
            text.push('\n');
            text.push_str(line);
        }
        text
    }
}
