//! A mesh for tests: a server, processes of executors and agents, stubbed agents.

pub(crate) mod mesh;
pub(crate) mod process;
pub(crate) mod stub;
