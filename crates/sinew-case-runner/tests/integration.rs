//! Tests of this crate against files.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod discovery;
mod mistakes;
