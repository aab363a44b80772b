//! Cost of executions on this machine, beside the floor of messages that no engine can avoid.
//!
//! Place in the flow: above executor, agents and mesh, below `sinew bench`. A bench starts its own servers, and executors,
//! agents and clients as processes of their own.
//!
//! The crate never measures a mesh of others, and does not print its report.

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
