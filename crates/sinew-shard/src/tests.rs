//! Unit tests in short hand, the simulation of a mesh, and the seeded bugs that both have to catch.

mod bugs;
mod care;
pub(crate) mod kit;
mod manager;
mod membership;
mod script;
mod seeds;
mod simulation;
mod state;
mod stories;
