//! The form of the author's desk.

use serde::Deserialize;

/// Name of a file that has none.
pub(super) const DEFAULT_NAME: &str = "workflow.yaml";

/// The desk, as its form sends it.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct DeskForm {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) text: String,
    /// `check`, `deploy`, `try`, `test`, or `dry`.
    #[serde(default)]
    pub(super) work: String,
    /// Connection whose conversion function is tried.
    #[serde(default)]
    pub(super) connection: String,
    /// Sample that the function gets: JSON, or a text.
    #[serde(default)]
    pub(super) sample: String,
    /// Text of a test file.
    #[serde(default)]
    pub(super) cases: String,
    /// Input of a dry run: JSON, or a text.
    #[serde(default)]
    pub(super) input: String,
}

impl DeskForm {
    pub(super) fn file_name(&self) -> &str {
        let name = self.name.trim();
        if name.is_empty() { DEFAULT_NAME } else { name }
    }

    /// The text with the line ends that it was written with: browsers send those of forms as CR LF.
    pub(super) fn file_text(&self) -> String {
        self.text.replace("\r\n", "\n")
    }

    /// Name of the test file: beside the workflow file.
    pub(super) fn cases_name(&self) -> String {
        let name = self.file_name();
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        format!("{}.test.yaml", stem.trim_end_matches(".workflow"))
    }

    pub(super) fn cases_text(&self) -> String {
        self.cases.replace("\r\n", "\n")
    }
}
