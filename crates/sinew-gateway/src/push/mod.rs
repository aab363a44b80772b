//! Push notifications: events of tasks, posted to webhooks that callers left.
//!
//! A webhook is a record on the mesh, with the number of the last event that was delivered. One gateway at a time holds the
//! lease of a record, delivers, and moves the number on. A gateway that dies is followed by another one when its lease is
//! over, so every event is delivered at least once.

mod delivery;
mod dispatcher;
mod fair_share;

pub(crate) use dispatcher::PushDispatcher;
