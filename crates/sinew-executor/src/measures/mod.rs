//! Counts and times of an executor for operators: gauges of executions and queues, slow rounds, names as labels.

pub(crate) mod execution_gauges;
pub(crate) mod label_names;
pub(crate) mod queue_gauges;
pub(crate) mod round_time;
