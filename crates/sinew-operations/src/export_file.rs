//! Files with exported executions.

use std::path::Path;

use sinew_inspection::record::{Record, parse};
use sinew_protocol::code;

use crate::failure::{Failure, FailureKind};
use crate::workflow_file;

/// Maximum size of an export.
const MAX_EXPORT_BYTES: u64 = 1 << 30;

/// Reads an export.
pub fn read(path: &Path) -> Result<Record, Failure> {
    let bytes = workflow_file::read_up_to(path, MAX_EXPORT_BYTES)?;
    parse(&bytes).map_err(|why| {
        let name = if path == Path::new("-") { "<stdin>".into() } else { path.display().to_string() };
        Failure::new(
            FailureKind::Failed,
            code::NOT_EXPORT_OF_EXECUTION.as_str(),
            format!("{name} is not an exported execution: {why}"),
        )
        .hint("create an export with `sinew run FILE --export EXPORT.json` or `sinew execution export ID`")
    })
}

/// Writes a record to a file.
pub fn write(record: &Record, file: &Path) -> Result<(), Failure> {
    write_text(&record.to_json().to_string(), file)
}

/// Writes a text to a file.
pub fn write_text(text: &str, file: &Path) -> Result<(), Failure> {
    std::fs::write(file, text).map_err(|error| {
        Failure::new(
            FailureKind::Failed,
            code::FILE_CANNOT_BE_WRITTEN.as_str(),
            format!("cannot write {}: {error}", file.display()),
        )
    })
}
