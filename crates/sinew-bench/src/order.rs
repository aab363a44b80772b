//! Requests of a bench to its driver, and the driver's answers, as lines of JSON.

use serde::{Deserialize, Serialize};

/// Concurrent executions in J3.
pub(crate) const IN_FLIGHT: usize = 64;

/// A bare loop: the messages of an execution, without an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FloorKind {
    /// n: only requests, nothing durable.
    Nothing,
    /// a4: an append with its acknowledgement at the start and after each answer.
    Append,
    /// g4: as a4, through one writer with group commit.
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

/// A measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(crate) enum DriverOrder {
    /// Bare loops: `count` operations, `at_once` in flight; chains of three, or a fan-out of `wide`.
    FloorKind { kind: FloorKind, wide: usize, count: usize, at_once: usize },
    /// Executions of a workflow to their end; `items` is the length of the list in the input.
    Run { workflow: String, items: usize, count: usize, at_once: usize },
    /// Starts executions that stay open up to `total`, and waits until their owners have them. Each
    /// counts as `each` open executions, including its children.
    Open { workflow: String, total: usize, each: usize },
    /// Waits until all shards have an owner that responds, and returns the number of open executions.
    Owned,
    /// Returns the number of executors with shards, and their minimum number of shards.
    Owners,
    /// Calls of an agent through its A2A endpoint on the mesh.
    MeshCalls { count: usize, at_once: usize },
    /// The same calls through a gateway.
    GatewayCalls { gateway: std::net::SocketAddr, count: usize, at_once: usize },
    /// Opens streams of one execution at a gateway, up to `total`.
    OpenStreams { gateway: std::net::SocketAddr, total: usize },
    /// Ends this execution, and waits until all streams received its end.
    EndStreams,
}

/// Durations of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MeasuredTime {
    pub(crate) seconds: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Count of the measurement, if it has one.
    #[serde(default)]
    pub(crate) number: usize,
}

impl MeasuredTime {
    /// Summarises durations of single operations, in microseconds.
    pub(crate) fn of(seconds: f64, mut each: Vec<f64>) -> Self {
        each.sort_by(f64::total_cmp);
        let at = |percent: usize| each.get(each.len() * percent / 100).copied().unwrap_or_default();
        Self { seconds, p50_us: at(50), p99_us: at(99), number: each.len() }
    }
}

/// Returns the median; 0 if there are no values.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
