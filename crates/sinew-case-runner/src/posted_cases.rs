//! Cases that a client sends, with the file that they are for.

use sinew_operations::failure::{Failure, FailureKind};
use sinew_protocol::code;

/// A workflow file or an agent file, and its cases, as a client sent them: no other file is read.
#[derive(Clone, Copy, Debug)]
pub struct PostedCases<'a> {
    /// Name of the file; cases name it by `workflow` or `agent`.
    pub file_name: &'a str,
    /// Text of the file.
    pub file: &'a str,
    /// Name of the test file in places.
    pub name: &'a str,
    /// Text of the test file.
    pub cases: &'a str,
}

impl PostedCases<'_> {
    /// The failure of cases that name another file.
    pub(crate) fn not_sent(&self, named: &str) -> Failure {
        let text = format!("{named} is not the file that was sent: {}", self.file_name);
        Failure::new(FailureKind::NotFound, code::FILE_CANNOT_BE_READ.as_str(), text)
    }
}
