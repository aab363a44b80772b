//! Metrics of an executor: execution facts, gauges of executions and queues, slow rounds, and label
//! names.

pub(crate) mod execution_facts;
pub(crate) mod execution_gauges;
pub(crate) mod label_names;
pub(crate) mod queue_gauges;
pub(crate) mod round_time;
