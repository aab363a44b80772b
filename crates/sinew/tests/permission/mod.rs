//! Least privilege, proved: a real server with the configuration that `sinew mesh permissions` prints, users of every
//! role, two tenants, and what they may do there compared with what somebody wrote down by hand.
#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

mod acks;
mod artifacts;
mod doctor;
mod expected;
mod guest_mesh;
mod guests;
mod headers;
mod matrix;
mod mesh;
mod mutants;
mod names;
mod refused;
mod replies;
mod tenants;
mod wire;
mod world;
