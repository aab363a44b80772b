//! Unit tests in short hand, a simulation of a mesh, and the seeded bugs that they have to catch.

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
