//! Stored values: artifacts, cards, plans and workflows, the history, records of gateways, and the
//! executors' bucket with the settings.

pub mod artifact;
pub mod card;
pub mod changes;
pub mod fleet;
pub mod history;
pub mod history_index;
pub(crate) mod layout_store;
pub(crate) mod object;
pub mod record;
pub(crate) mod sealed;
pub mod steps;
pub mod workflow;
