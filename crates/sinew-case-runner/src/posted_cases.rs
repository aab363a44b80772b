//! Cases that a client posts together with the tested file.

use sinew_operations::failure::{Failure, FailureKind};
use sinew_protocol::code;

/// A posted workflow file or agent file, and its cases. No other file is read.
#[derive(Clone, Copy, Debug)]
pub struct PostedCases<'a> {
    /// Name of the file; cases name it by `workflow` or `agent`.
    pub file_name: &'a str,
    /// Text of the file.
    pub file: &'a str,
    /// Name of the test file in findings.
    pub name: &'a str,
    /// Text of the test file.
    pub cases: &'a str,
}

impl PostedCases<'_> {
    /// Returns the failure of cases that reference another file.
    pub(crate) fn not_sent(&self, named: &str) -> Failure {
        let text = format!("{named} is not the uploaded file: {}", self.file_name);
        Failure::new(FailureKind::NotFound, code::FILE_CANNOT_BE_READ.as_str(), text)
    }
}
