//! Reports of runs, as text and JSON.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use comfy_table::Table;
use serde::Serialize;

use crate::Fallible;
use crate::verdict::Verdict;

/// Attacks of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct AttackCounts {
    /// Messages that the servers accepted or refused, by attacker.
    pub(crate) messages: BTreeMap<&'static str, u64>,
    /// Messages that the servers refused.
    pub(crate) refused: u64,
    /// Requests to the gateway.
    pub(crate) requests: u64,
    /// Requests without an answer.
    pub(crate) unanswered: u64,
    /// Answers of the gateway by status.
    pub(crate) statuses: BTreeMap<u16, u64>,
}

/// Injected faults.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Faults {
    pub(crate) executor_kills: u64,
    pub(crate) agent_kills: u64,
    pub(crate) broker_kills: u64,
    pub(crate) halts: u64,
    pub(crate) leader_halts: u64,
    pub(crate) quorum_losses: u64,
    pub(crate) emptied_disks: u64,
    pub(crate) rolling_restarts: u64,
    pub(crate) power_cuts: u64,
    /// Changes of the disk that power cuts lost, in whole or in part.
    pub(crate) forgotten_changes: u64,
    pub(crate) full_disks: u64,
    pub(crate) read_only_disks: u64,
    /// Changes that the disk refused while it was full or read-only.
    pub(crate) refused_changes: u64,
    /// Processes that the kernel killed at the memory limit.
    pub(crate) memory_kills: u64,
    /// Processes that ended unexpectedly, because they could not reach the broker at their start.
    pub(crate) ended_by_themselves: u64,
}

/// The report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    kind: &'static str,
    seed: u64,
    good: bool,
    seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) faults: Option<Faults>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) deaths: BTreeMap<String, u64>,
    pub(crate) all_ended_after_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) all_ended_after_last_agent_kill_ms: Option<u64>,
    /// Processes of the other build, in a run with two builds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) other_build_lives: Option<u64>,
    /// Starts that the other client made, and outputs that it read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) other_client: Option<(u64, u64)>,
    /// Attacks during the faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attacks: Option<AttackCounts>,
    pub(crate) verdict: Verdict,
    /// Reasons why the run failed, in addition to those of the verdict.
    problems: Vec<String>,
}

impl Report {
    pub(crate) fn new(kind: &'static str, seed: u64, took: Duration, verdict: Verdict) -> Self {
        Self {
            kind,
            seed,
            good: verdict.is_good(),
            seconds: took.as_secs(),
            faults: None,
            deaths: BTreeMap::new(),
            all_ended_after_ms: 0,
            all_ended_after_last_agent_kill_ms: None,
            other_build_lives: None,
            other_client: None,
            attacks: None,
            verdict,
            problems: Vec::new(),
        }
    }

    /// Fails the run with a problem unless the condition holds.
    pub(crate) fn demand(&mut self, holds: bool, otherwise: impl Into<String>) {
        if !holds {
            self.good = false;
            self.problems.push(otherwise.into());
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
        let mut row = |name: &str, value: &dyn ToString| {
            table.add_row([name.to_owned(), value.to_string()]);
        };
        row("run", &self.kind);
        row("seed", &self.seed);
        row("seconds", &self.seconds);
        if let Some(faults) = &self.faults {
            row("executors killed", &faults.executor_kills);
            row("agents killed", &faults.agent_kills);
            row("brokers killed", &faults.broker_kills);
            row("processes halted", &faults.halts);
            row("leading brokers halted", &faults.leader_halts);
            row("quorums lost", &faults.quorum_losses);
            row("disks emptied", &faults.emptied_disks);
            row("rolling restarts", &faults.rolling_restarts);
            row("power cuts", &faults.power_cuts);
            row("changes of the disk forgotten", &faults.forgotten_changes);
            row("disks full", &faults.full_disks);
            row("disks that could only be read", &faults.read_only_disks);
            row("changes of the disk refused", &faults.refused_changes);
            row("killed for want of memory", &faults.memory_kills);
            row("ended by themselves", &faults.ended_by_themselves);
        }
        if !self.deaths.is_empty() {
            row("places", &self.deaths.len());
            row("deaths", &self.deaths.values().sum::<u64>());
        }
        let seen = &self.verdict;
        row("starts accepted", &seen.accepted);
        row("ended", &seen.terminal);
        row("  in success", &seen.success);
        row("  cancelled", &seen.cancelled);
        row("  in failure", &seen.failure);
        row("sub-workflows", &seen.children);
        row("tasks", &seen.tasks);
        row("  handled by agents", &seen.handled);
        row("  handled again", &seen.handled_again);
        row("  started after the end", &seen.started_after_end);
        row("  delivered again", &seen.redeliveries);
        row("attempts that failed", &seen.attempts_failed);
        row("late results", &seen.late);
        row("commits", &seen.commits);
        row("takeovers", &seen.takeovers);
        row("fenced", &seen.fenced);
        row("quarantined", &seen.quarantined);
        row("all ended after the last fault, ms", &self.all_ended_after_ms);
        if let Some(after) = self.all_ended_after_last_agent_kill_ms {
            row("all ended after the last agent's death, ms", &after);
        }
        if let Some(lives) = self.other_build_lives {
            row("processes of the other build", &lives);
        }
        if let Some((starts, reads)) = self.other_client {
            row("starts by the other client", &starts);
            row("outputs read by the other client", &reads);
        }
        if seen.allowed + seen.lost_in_window > 0 {
            row("lost in the window of a late sync", &seen.lost_in_window);
            row("other findings that it allows", &seen.allowed);
        }
        if let Some(attacks) = &self.attacks {
            for (attacker, sent) in &attacks.messages {
                row(&format!("messages of {attacker}"), sent);
            }
            row("messages that the servers refused", &attacks.refused);
            row("requests to the gateway", &attacks.requests);
        }
        row("lost", &seen.lost.len());
        row("duplicated", &seen.duplicated.len());
        row("orphaned", &seen.orphaned.len());
        row("wrong", &seen.wrong.len());
        row("verdict", &if self.good { "good" } else { "NOT good" });
        let mut text = table.to_string();
        let lists = [&self.problems, &seen.lost, &seen.duplicated, &seen.orphaned, &seen.wrong];
        for line in lists.into_iter().flatten() {
            text.push('\n');
            text.push_str(line);
        }
        text
    }
}
