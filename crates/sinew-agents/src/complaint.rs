//! Findings about parts of an agent file.

use sinew_protocol::code;

/// A finding about the part of the file at a JSON pointer.
#[derive(Debug)]
pub(crate) struct FileComplaint {
    pub(crate) pointer: String,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// Line and column within the text at the pointer, from 1.
    pub(crate) within: Option<(u32, u32)>,
    /// Whether the agent can be used despite the finding.
    pub(crate) is_warning: bool,
}

impl FileComplaint {
    pub(crate) fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            code: code::AGENT_FILE_CANNOT_BE_USED.as_str(),
            message: message.into(),
            within: None,
            is_warning: false,
        }
    }
}

/// Escapes a key as a reference token of a JSON pointer.
pub(crate) fn escape_key(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
