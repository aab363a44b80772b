//! Documents of commands and of the REST API, each as one type that is written and read.
//!
//! `sinew-inspection` and `sinew-operations` create documents, the command line and the gateway
//! serialize them, and the console reads them. Members that are omitted when empty are optional
//! when a document is read, and unknown members are ignored.
//!
//! This crate never reads a record, a clock, a file or a network.

pub mod agent;
pub mod approval;
pub mod artifact;
pub mod audit;
pub mod bulk;
pub mod catalogue;
pub mod command;
pub mod comparison;
pub mod csv;
pub mod event;
pub mod execution;
pub mod execution_filter;
pub mod execution_list;
pub mod execution_status;
pub mod export;
pub mod figures;
pub mod finding;
pub mod mesh;
pub mod model_usage;
pub mod node;
pub mod node_status;
pub mod report;
pub mod retry;
pub mod timeline;
pub mod timestamp;
pub mod trial;
pub mod words;
pub mod workflow;

mod agent_kind;
mod present;
