//! Counts and times of an executor for operators: what facts say of executions, gauges of executions and queues, slow rounds,
//! names as labels.

pub(crate) mod execution_facts;
pub(crate) mod execution_gauges;
pub(crate) mod label_names;
pub(crate) mod queue_gauges;
pub(crate) mod round_time;
