//! Cost of executions on this machine, relative to the floor of messages that each engine needs.
//!
//! Place in the data flow: above executor, agents and mesh, below `sinew bench`. A bench starts its own
//! servers, executors, agents and clients as processes.
//!
//! The crate never measures a third-party mesh, and does not print its report.

mod bare_gateway;
mod bench_failure;
mod child;
mod cluster;
mod console_part;
mod conversations;
mod delta;
mod floor;
mod gateway_part;
mod http_load;
mod load;
mod measure;
mod order;
mod process;
mod report;
mod role;
mod size;

pub use measure::{BenchOptions, BenchPart, measure};
pub use report::BenchReport;
pub use role::{BenchRole, end_with_parent, play_role};
