//! Push notifications: task events, posted to webhooks that callers configured.
//!
//! A webhook is a record on the mesh, with the number of the last delivered event. One gateway at a
//! time holds the lease of a record, delivers events and advances the number. If that gateway
//! crashes, another one continues when the lease expires, so every event is delivered at least
//! once.

mod delivery;
mod dispatcher;
mod fair_share;
mod forbidden_addresses;

pub(crate) use dispatcher::PushDispatcher;
