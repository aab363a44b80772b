//! Requests of a benchmark to its driver, and the driver's answers: lines of JSON.

use serde::{Deserialize, Serialize};

/// Executions in flight at once in J3.
pub(crate) const IN_FLIGHT: usize = 64;

/// A bare loop: the messages of an execution without anybody who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FloorKind {
    /// n: requests only, nothing durable.
    Nothing,
    /// a4: an append with its acknowledgement at the start and after each answer.
    Append,
    /// g4: the same through one writer that commits whatever has gathered.
    Group,
    /// q4: as a4, with tasks in a work queue and answers in a stream.
    Queued,
}

impl FloorKind {
    pub(crate) const ALL: [Self; 4] = [Self::Nothing, Self::Append, Self::Group, Self::Queued];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "floor n",
            Self::Append => "floor a4",
            Self::Group => "floor g4",
            Self::Queued => "floor queued",
        }
    }
}

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(crate) enum DriverOrder {
    /// Bare loops: `count` of them, `at_once` in flight; chains of three, or a fan-out as `wide` as this.
    FloorKind { kind: FloorKind, wide: usize, count: usize, at_once: usize },
    /// Executions of a workflow until they have ended; `items` is the length of the list in the input.
    Run { workflow: String, items: usize, count: usize, at_once: usize },
    /// Starts executions that stay open until there are so many, and waits until their owners have them. With each of them,
    /// `each` are open: those that it started are counted too.
    Open { workflow: String, total: usize, each: usize },
    /// Waits until all shards have an owner that answers, and says how many executions are open.
    Owned,
    /// How many executors own shards, and how evenly.
    Owners,
    /// Calls of an agent through its A2A endpoint on the mesh.
    MeshCalls { count: usize, at_once: usize },
    /// The same calls through a gateway.
    GatewayCalls { gateway: std::net::SocketAddr, count: usize, at_once: usize },
    /// Opens streams of one execution at a gateway until there are so many.
    OpenStreams { gateway: std::net::SocketAddr, total: usize },
    /// Ends that execution, and waits until all streams have heard of it.
    EndStreams,
}

/// Durations of one measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MeasuredTime {
    pub(crate) seconds: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Counted quantity, if the measurement has one.
    #[serde(default)]
    pub(crate) number: usize,
}

impl MeasuredTime {
    /// Of the durations of single operations, in microseconds.
    pub(crate) fn of(seconds: f64, mut each: Vec<f64>) -> Self {
        each.sort_by(f64::total_cmp);
        let at = |percent: usize| each.get(each.len() * percent / 100).copied().unwrap_or_default();
        Self { seconds, p50_us: at(50), p99_us: at(99), number: each.len() }
    }
}

/// Returns the middle one of the values; 0 of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
