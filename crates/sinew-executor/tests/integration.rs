//! Tests of the executor: in one process, and as a service against a real nats-server.

mod absent_broker;
mod cases;
mod door;
mod events;
mod faults;
mod local;
mod service;
mod support;
