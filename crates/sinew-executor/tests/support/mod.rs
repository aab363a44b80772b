//! A mesh for tests: a server, processes of executors and agents, stubbed agents.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

pub(crate) mod mesh;
pub(crate) mod process;
pub(crate) mod stub;
