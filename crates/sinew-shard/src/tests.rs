//! Unit tests in short notation, a simulation of a mesh, and seeded bugs that it must detect.

mod bugs;
pub(crate) mod kit;
mod manager;
mod membership;
mod script;
mod seeds;
mod simulation;
mod state;
mod stories;
mod takeover_guard;
