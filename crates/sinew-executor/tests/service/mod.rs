//! The executor service against a real nats-server, with agents that speak to the mesh as any agent does.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod ends;
