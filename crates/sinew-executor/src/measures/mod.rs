//! Metrics of an executor: execution facts, gauges of executions and queues, slow rounds, and label
//! names.

pub(crate) mod execution_facts;
pub(crate) mod execution_gauges;
pub(crate) mod queue_gauges;
pub(crate) mod round_time;

use std::sync::LazyLock;

use sinew_protocol::label_names::LabelNames;

/// Names of workflows.
pub(crate) static WORKFLOW_NAMES: LazyLock<LabelNames> = LazyLock::new(LabelNames::default);
/// Names of agents.
pub(crate) static AGENT_NAMES: LazyLock<LabelNames> = LazyLock::new(LabelNames::default);
/// Types of nodes.
pub(crate) static NODE_TYPES: LazyLock<LabelNames> = LazyLock::new(LabelNames::default);
