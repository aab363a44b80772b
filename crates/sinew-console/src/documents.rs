//! API documents; only the members that pages show. Other members are ignored.

use serde::Deserialize;

/// An execution that was started.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct StartedDocument {
    pub(crate) execution: String,
}
