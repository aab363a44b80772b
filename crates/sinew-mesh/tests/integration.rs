//! Tests of the mesh against a real nats-server.

mod artifact;
mod card;
mod cluster;
mod connect;
mod fleet;
mod inbox;
mod journal;
mod provision;
mod publisher;
mod quarantine;
mod query;
mod record;
mod redirected;
mod rewound;
mod rpc;
mod send;
mod server;
mod started;
mod steps;
mod store;
mod task;
