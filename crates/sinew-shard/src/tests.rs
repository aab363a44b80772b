//! Unit tests in short hand, and the seeded bugs that they have to catch.

mod bugs;
mod care;
pub(crate) mod kit;
mod manager;
mod membership;
mod script;
mod state;
mod stories;
