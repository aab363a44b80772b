//! Kept values: artifacts, cards, plans and workflows, the history, the executors' bucket and the settings in it.

pub mod artifact;
pub mod card;
pub mod fleet;
pub mod history;
pub(crate) mod layout_store;
pub(crate) mod object;
pub mod steps;
pub mod workflow;
