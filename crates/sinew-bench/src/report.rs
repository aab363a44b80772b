//! Reports measurements as a table and as data: medians, ratios to the floor, and goals.

use std::fmt::Write as _;

use serde::Serialize;

use crate::cluster::{CpuCost, DECISIONS};
use crate::console_part::ConsoleFigures;
use crate::conversations::ConversationFigures;
use crate::gateway_part::GatewayFigures;
use crate::order::{FloorKind, MeasuredTime, median};
use crate::size::{ExecutorComparison, GrowthFigures};

/// A job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum BenchJob {
    J1,
    J2,
    J3,
}

/// A measurement of a system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobSample {
    pub(crate) system: &'static str,
    pub(crate) sync: bool,
    pub(crate) job: BenchJob,
    pub(crate) count: usize,
    pub(crate) took: MeasuredTime,
    pub(crate) cost: CpuCost,
}

/// Medians of the samples of a system.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct SystemFigure {
    /// `queue` and `direct` are executions by delivery; the others are bare loops.
    pub(crate) system: &'static str,
    /// Whether each write was synced to disk.
    pub(crate) sync: bool,
    pub(crate) job: BenchJob,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) per_second: f64,
    /// CPU microseconds of all processes per operation.
    pub(crate) cpu_us: f64,
    pub(crate) cpu_server_us: f64,
    pub(crate) cpu_executor_us: f64,
    pub(crate) cpu_agent_us: f64,
    pub(crate) cpu_client_us: f64,
}

/// A goal: number, name, system, floor, whether synced, job, metric, limit, whether it is a minimum.
type GoalRatio = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    bool,
    BenchJob,
    fn(&SystemFigure) -> f64,
    f64,
    bool,
);

/// A goal, and the measured value.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReachedGoal {
    #[serde(rename = "goal")]
    pub(crate) number: &'static str,
    pub(crate) measure: String,
    pub(crate) reached: f64,
    pub(crate) wanted: String,
    pub(crate) met: bool,
}

/// Measurements and goals of a bench.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    pub(crate) rounds: u32,
    pub(crate) cores: usize,
    #[serde(skip)]
    pub(crate) samples: Vec<JobSample>,
    pub(crate) figures: Vec<SystemFigure>,
    pub(crate) goals: Vec<ReachedGoal>,
    /// Resident memory of an idle executor, in MiB.
    pub(crate) idle_mib: f64,
    /// Resident memory of the executor after the jobs, in MiB.
    pub(crate) executor_mib: f64,
    pub(crate) agent_mib: f64,
    pub(crate) server_mib: f64,
    pub(crate) executors: Option<ExecutorComparison>,
    pub(crate) size: Option<GrowthFigures>,
    pub(crate) conversations: Option<ConversationFigures>,
    pub(crate) gateway: Option<GatewayFigures>,
    pub(crate) console: Option<ConsoleFigures>,
}

impl BenchReport {
    pub(crate) fn new(rounds: u32) -> Self {
        Self {
            rounds,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            samples: Vec::new(),
            figures: Vec::new(),
            goals: Vec::new(),
            idle_mib: 0.0,
            executor_mib: 0.0,
            agent_mib: 0.0,
            server_mib: 0.0,
            executors: None,
            size: None,
            conversations: None,
            gateway: None,
            console: None,
        }
    }

    /// Computes medians of the samples, and compares them with the goals.
    pub(crate) fn judge(&mut self) {
        let systems = FloorKind::ALL.map(FloorKind::name).into_iter().chain(["queue", "direct"]);
        for (sync, job, system) in [false, true].into_iter().flat_map(|sync| {
            let jobs = [BenchJob::J1, BenchJob::J2, BenchJob::J3];
            let systems = systems.clone();
            jobs.into_iter().flat_map(move |job| systems.clone().map(move |system| (sync, job, system)))
        }) {
            let of: Vec<&JobSample> = self
                .samples
                .iter()
                .filter(|sample| (sample.sync, sample.job, sample.system) == (sync, job, system))
                .collect();
            if of.is_empty() {
                continue;
            }
            let mid = |value: &dyn Fn(&JobSample) -> f64| median(of.iter().map(|one| value(one)).collect());
            self.figures.push(SystemFigure {
                system,
                sync,
                job,
                p50_us: mid(&|one| one.took.p50_us),
                p99_us: mid(&|one| one.took.p99_us),
                per_second: mid(&|one| one.count as f64 / one.took.seconds),
                cpu_us: mid(&|one| one.cost.all / one.count as f64),
                cpu_server_us: mid(&|one| one.cost.server / one.count as f64),
                cpu_executor_us: mid(&|one| one.cost.executor / one.count as f64),
                cpu_agent_us: mid(&|one| one.cost.agent / one.count as f64),
                cpu_client_us: mid(&|one| one.cost.client / one.count as f64),
            });
        }
        self.hold();
    }

    fn of(&self, system: &str, sync: bool, job: BenchJob) -> Option<&SystemFigure> {
        self.figures.iter().find(|figure| (figure.system, figure.sync, figure.job) == (system, sync, job))
    }

    /// Compares measurements with the goals.
    fn hold(&mut self) {
        let mut goals = self.ratios_reached();
        let mut most = |number, measure: String, reached: f64, wanted: f64| {
            let met = reached <= wanted;
            goals.push(ReachedGoal { number, measure, reached, wanted: format!("≤ {wanted}"), met });
        };
        if self.idle_mib > 0.0 {
            most("9", "memory of an idle executor, MiB".to_owned(), self.idle_mib, 30.0);
        }
        if let Some(size) = &self.size {
            if let [first, .., last] = size.width.as_slice() {
                let of = format!("CPU per item, fan-out of {} to {}", first.items, last.items);
                most("8", of, last.cpu_us_per_item / first.cpu_us_per_item, 1.3);
            }
            if let [first, .., last] = size.open.as_slice() {
                let of = format!("CPU of J3 with {} open to {}", first.open, last.open);
                most("8", of, last.j3_cpu_us / first.j3_cpu_us, 1.3);
                if last.open >= 50_000 {
                    let of = format!("memory with {} open, MiB", last.open);
                    most("9", of, last.executor_mib, 400.0);
                }
            }
            let of = format!("seconds from kill -9 to working, {} open", size.recovered);
            most("11", of, size.working_seconds, 5.0);
        }
        if let Some(talks) = &self.conversations {
            most("12", "CPU of all processes for a node of two turns, ms".to_owned(), talks.all_cpu_ms, 3.0);
            most("12", "replay of a conversation of 50 turns, ms".to_owned(), talks.replay_ms, 50.0);
            most("12", "text of a model to a client, median ms".to_owned(), talks.delta_ms.0, 5.0);
            let of = format!("memory of {} conversations that wait, MiB", talks.parked);
            most("12", of, talks.parked_mib, 64.0);
        }
        if let Some(executors) = &self.executors {
            most("11", "compare-and-set losses of two, %".to_owned(), executors.lost_percent, 5.0);
            goals.push(ReachedGoal {
                number: "11",
                measure: "two executors where they are the limit, times one".to_owned(),
                reached: executors.ratio,
                wanted: "> 1".to_owned(),
                met: executors.ratio > 1.0,
            });
        }
        self.goals = goals;
        self.hold_gateway();
        self.hold_console();
    }

    /// Compares list pages with their goal.
    fn hold_console(&mut self) {
        let Some(console) = &self.console else { return };
        for page in console.pages.iter().filter(|page| page.page.contains("list")) {
            self.goals.push(ReachedGoal {
                number: "P",
                measure: format!("{}, {} executions, median ms", page.page, console.executions),
                reached: page.median_ms,
                wanted: "≤ 100".to_owned(),
                met: page.median_ms <= 100.0,
            });
        }
    }

    /// Compares measurements of the gateway with their goals.
    fn hold_gateway(&mut self) {
        let Some(gateway) = self.gateway else { return };
        let mut most = |measure: String, reached: f64, wanted: f64| {
            let met = reached <= wanted;
            self.goals.push(ReachedGoal {
                number: "G",
                measure,
                reached,
                wanted: format!("≤ {wanted}"),
                met,
            });
        };
        most("gateway: added to the median of a call, µs".to_owned(), gateway.added_us(), 150.0);
        most(format!("gateway: memory with {} streams, MiB", gateway.streams), gateway.streams_mib, 300.0);
        most(
            format!("gateway: seconds until an event reached {} streams", gateway.streams),
            gateway.event_seconds,
            1.0,
        );
        most("gateway: memory when idle, MiB".to_owned(), gateway.idle_mib, 40.0);
        self.goals.push(ReachedGoal {
            number: "G",
            measure: "gateway: calls a second, 64 at once, times the mesh".to_owned(),
            reached: gateway.rate_ratio,
            wanted: "≥ 0.6".to_owned(),
            met: gateway.rate_ratio >= 0.6,
        });
    }

    /// Compares measurements with the floor of the same round.
    fn ratios_reached(&self) -> Vec<ReachedGoal> {
        let mut goals = Vec::new();
        for (number, measure, ours, floor, sync, job, take, wanted, least) in goal_ratios() {
            let (Some(ours), Some(bare)) = (self.of(ours, sync, job), self.of(floor, sync, job)) else {
                continue;
            };
            let reached = take(ours) / take(bare);
            let sign = if least { "≥" } else { "≤" };
            goals.push(ReachedGoal {
                number,
                measure: format!("{measure}, times {}", plain_name(floor)),
                reached,
                wanted: format!("{sign} {wanted}"),
                met: if least { reached >= wanted } else { reached <= wanted },
            });
        }
        goals
    }

    /// Formats the report for people.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{}, {} cores, medians of {} rounds. CPU is microseconds of all processes for one execution.\n",
            if cfg!(debug_assertions) { "Build that is not optimised" } else { "Release build" },
            self.cores,
            self.rounds
        );
        let mut section = None;
        for figure in &self.figures {
            if section.replace((figure.sync, figure.job)) != Some((figure.sync, figure.job)) {
                let synced = if figure.sync { "every write synced" } else { "no sync" };
                let _ = writeln!(text, "\n{}, {synced}", figure.job.words());
                let _ = writeln!(
                    text,
                    "  {:<46}{:>9}{:>10}{:>10}{:>7}   {:>6} {:>8} {:>5} {:>6}",
                    "", "MEDIAN", "1 IN 100", "A SECOND", "CPU", "server", "executor", "agent", "client"
                );
            }
            let _ = writeln!(
                text,
                "  {:<46}{:>9}{:>10}{:>10.0}{:>7.0}   {:>6.0} {:>8.0} {:>5.0} {:>6.0}",
                plain_name(figure.system),
                duration(figure.p50_us),
                duration(figure.p99_us),
                figure.per_second,
                figure.cpu_us,
                figure.cpu_server_us,
                figure.cpu_executor_us,
                figure.cpu_agent_us,
                figure.cpu_client_us,
            );
        }
        self.memory_and_owners(&mut text);
        self.sizes(&mut text);
        self.talks(&mut text);
        if let Some(gateway) = &self.gateway {
            let _ = writeln!(
                text,
                "\ngateway: a call {} (mesh {}, bare gateway {}), {:.0}/s at 64 in flight (mesh {:.0}/s, bare gateway {:.0}/s); {:.0} MiB idle, {:.0} with {} streams, \
                 an event reaches them in {:.2} s",
                duration(gateway.gateway_p50_us),
                duration(gateway.mesh_p50_us),
                duration(gateway.bare_p50_us),
                gateway.gateway_per_second,
                gateway.mesh_per_second,
                gateway.bare_per_second,
                gateway.idle_mib,
                gateway.streams_mib,
                gateway.streams,
                gateway.event_seconds
            );
        }
        self.pages(&mut text);
        self.goals_reached(&mut text);
        text
    }

    /// Adds memory, and measurements of two executors that share the shards.
    fn memory_and_owners(&self, text: &mut String) {
        if !self.figures.is_empty() {
            let _ = writeln!(
                text,
                "\nmemory: executor {:.0} MiB idle, {:.0} after the jobs; agents {:.0}, server {:.0}",
                self.idle_mib, self.executor_mib, self.agent_mib, self.server_mib
            );
        }
        if let Some(both) = &self.executors {
            let _ = writeln!(
                text,
                "\n{DECISIONS} decisions: one executor of one thread {:.0}/s ({:.2} cores), two {:.0}/s ({:.2} cores; the smaller \
                 has {} shards), {:.2} % of {:.0} commits lost",
                both.one_per_second,
                both.one_cores,
                both.two_per_second,
                both.two_cores,
                both.fewest_shards,
                both.lost_percent,
                both.commits
            );
        }
    }

    /// Adds measurements of many open executions and wide maps.
    fn sizes(&self, text: &mut String) {
        if let Some(size) = &self.size {
            for at in &size.open {
                let _ = writeln!(
                    text,
                    "{:>7} open: executor {:>4.0} MiB, J3 {:>6.0}/s, {:>4.0} µs CPU each",
                    at.open, at.executor_mib, at.j3_per_second, at.j3_cpu_us
                );
            }
            for at in &size.width {
                let _ = writeln!(
                    text,
                    "{:>7} wide: {:>9.1} ms, {:>5.0} µs and {:>5.0} µs CPU an item",
                    at.items, at.milliseconds, at.us_per_item, at.cpu_us_per_item
                );
            }
            let _ = writeln!(
                text,
                "{:.1} KiB for each open execution; {} open again {:.1} s after kill -9, work goes on after {:.1} s",
                size.kib_per_open, size.recovered, size.recovery_seconds, size.working_seconds
            );
        }
    }

    /// Adds measurements of conversations.
    fn talks(&self, text: &mut String) {
        let Some(talks) = &self.conversations else { return };
        let _ = writeln!(
            text,
            "\nconversations of two turns: {:.2} ms CPU each ({:.2} of the agent), {:.1} ms one at a time; {} records of 50 \
             turns replayed in {:.1} ms; text of a model takes {:.1} ms to a client, {:.1} at most for 99 of 100 pieces; {} \
             waiting conversations take {:.1} MiB",
            talks.all_cpu_ms,
            talks.agent_cpu_ms,
            talks.p50_ms,
            talks.replayed_records,
            talks.replay_ms,
            talks.delta_ms.0,
            talks.delta_ms.1,
            talks.parked,
            talks.parked_mib
        );
    }

    /// Adds durations of pages.
    fn pages(&self, text: &mut String) {
        let Some(console) = &self.console else { return };
        let _ = writeln!(
            text,
            "\nconsole: {} executions, a graph of {} nodes; gateway {:.0} MiB idle, {:.0} after all pages",
            console.executions, console.nodes, console.idle_mib, console.used_mib
        );
        let _ = writeln!(text, "  {:<50}{:>10}{:>10}{:>10}{:>8}", "", "FIRST", "MEDIAN", "MOST", "KIB");
        for page in &console.pages {
            let _ = writeln!(
                text,
                "  {:<50}{:>7.1} ms{:>7.1} ms{:>7.1} ms{:>8.0}",
                page.page, page.first_ms, page.median_ms, page.most_ms, page.kib
            );
        }
    }

    /// Adds a table of goals.
    fn goals_reached(&self, text: &mut String) {
        if !self.goals.is_empty() {
            let _ = writeln!(text, "\n{:<5}{:<88}{:>10}  {:<8}", "GOAL", "MEASURE", "REACHED", "WANTED");
        }
        for goal in &self.goals {
            let _ = writeln!(
                text,
                "{:<5}{:<88}{:>10.2}  {:<8}{}",
                goal.number,
                goal.measure,
                goal.reached,
                goal.wanted,
                if goal.met { "" } else { "missed" }
            );
        }
    }
}

/// Returns the goals for ratios to the floor.
fn goal_ratios() -> [GoalRatio; 8] {
    let rate = |figure: &SystemFigure| figure.per_second;
    let (p50, p99) = (|figure: &SystemFigure| figure.p50_us, |figure: &SystemFigure| figure.p99_us);
    let cpu = |figure: &SystemFigure| figure.cpu_us;
    [
        ("1", "J3 direct, executions per second", "direct", "floor a4", false, BenchJob::J3, rate, 0.4, true),
        (
            "2",
            "J3 queue, executions per second",
            "queue",
            "floor queued",
            false,
            BenchJob::J3,
            rate,
            0.4,
            true,
        ),
        ("3", "J3 direct, synced, per second", "direct", "floor g4", true, BenchJob::J3, rate, 0.35, true),
        ("3", "J3 queue, synced, per second", "queue", "floor queued", true, BenchJob::J3, rate, 0.6, true),
        ("4", "J1 direct, median time", "direct", "floor a4", false, BenchJob::J1, p50, 1.75, false),
        ("4", "J1 direct, slowest of a hundred", "direct", "floor a4", false, BenchJob::J1, p99, 3.0, false),
        ("5", "J2 direct, median time", "direct", "floor a4", false, BenchJob::J2, p50, 2.5, false),
        ("6", "J3 direct, CPU time", "direct", "floor a4", false, BenchJob::J3, cpu, 2.5, false),
    ]
}

/// Returns the display name of a measured system.
fn plain_name(system: &str) -> &'static str {
    match system {
        "floor n" => "floor: requests alone (n)",
        "floor a4" => "floor: appends around requests (a4)",
        "floor g4" => "floor: the same appends in groups (g4)",
        "floor queued" => "floor: a4 with queue and results (queued)",
        "queue" => "Sinew, agents called through their queue",
        "direct" => "Sinew, agents called directly",
        _ => "something else",
    }
}

impl BenchJob {
    /// Describes one execution of the job.
    const fn words(self) -> &'static str {
        match self {
            Self::J1 => "J1: three agents in a row, one execution at a time",
            Self::J2 => "J2: a hundred agents at once and their join, one execution at a time",
            Self::J3 => "J3: three agents in a row, 64 executions at a time",
        }
    }
}

fn duration(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.0} µs"),
        us if us < 1_000_000.0 => format!("{:.2} ms", us / 1_000.0),
        us => format!("{:.2} s", us / 1_000_000.0),
    }
}
