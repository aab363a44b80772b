//! Tests of the executor: in one process, and as a service against a real nats-server.

mod cases;
mod door;
mod faults;
mod local;
mod service;
mod support;
