//! Unit tests in short hand, the simulation of a mesh, and the seeded bugs that both have to catch.

mod bugs;
pub(crate) mod kit;
mod seeds;
mod simulation;
