//! Pages, one file each: what it asks of the API, and how it shows the answer.

pub(crate) mod agent;
pub(crate) mod agents;
pub(crate) mod approval;
pub(crate) mod approvals;
pub(crate) mod artifact_preview;
pub(crate) mod artifacts;
pub(crate) mod bulk;
pub(crate) mod chat;
pub(crate) mod chat_turn;
pub(crate) mod compare;
pub(crate) mod data;
pub(crate) mod desk;
pub(crate) mod desk_form;
mod desk_trials;
pub(crate) mod events;
pub(crate) mod execution;
pub(crate) mod execution_agents;
mod execution_head;
mod execution_rows;
pub(crate) mod executions;
pub(crate) mod help;
pub(crate) mod import;
pub(crate) mod mesh_artifacts;
mod node_evidence;
mod node_inspector;
mod opened_nodes;
pub(crate) mod pulse;
pub(crate) mod sign_in;
pub(crate) mod source;
pub(crate) mod start;
pub(crate) mod timeline;
pub(crate) mod traffic;
pub(crate) mod workflow;
pub(crate) mod workflows;

pub(crate) use execution_head::read_execution;
