//! One file per command.

pub(crate) mod agent;
pub(crate) mod approval;
pub(crate) mod artifact;
pub(crate) mod audit;
pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod execution;
pub(crate) mod explain;
pub(crate) mod gateway;
pub(crate) mod mcp;
pub(crate) mod mesh;
pub(crate) mod model;
pub(crate) mod new;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod test;
pub(crate) mod tool;
pub(crate) mod top;
pub(crate) mod workflow;
