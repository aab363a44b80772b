//! Settings of a console, and the state that its pages share.

use crate::api_client::ApiPort;

/// Whether a console changes a mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConsoleMode {
    /// People start, steer and decide.
    #[default]
    Full,
    /// People look; every form is refused.
    ReadOnly,
}

/// Settings of a console.
#[derive(Clone, Debug)]
pub struct ConsoleOptions {
    /// The API that its pages ask.
    pub api: ApiPort,
    /// Whether it changes the mesh.
    pub mode: ConsoleMode,
    /// Whether browsers reach it by HTTPS only: cookies are then sent by HTTPS only.
    pub is_secure: bool,
}

/// State that all pages share.
pub(crate) struct ConsoleState {
    pub(crate) api: ApiPort,
    pub(crate) mode: ConsoleMode,
    pub(crate) is_secure: bool,
}
