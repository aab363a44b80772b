//! The form of the workflow editor.

use serde::Deserialize;

use crate::command_text::CommandText;

/// Name of an unnamed file.
pub(super) const DEFAULT_NAME: &str = "workflow.yaml";

/// The editor's fields, as its form sends them.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct EditorForm {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) text: String,
    /// `check`, `deploy`, `try`, `test`, or `dry`.
    #[serde(default)]
    pub(super) work: String,
    /// Connection whose conversion function is tested.
    #[serde(default)]
    pub(super) connection: String,
    /// Sample input of the function: JSON or text.
    #[serde(default)]
    pub(super) sample: String,
    /// Text of a test file.
    #[serde(default)]
    pub(super) cases: String,
    /// Input of a dry run: JSON or text.
    #[serde(default)]
    pub(super) input: String,
}

impl EditorForm {
    pub(super) fn file_name(&self) -> &str {
        let name = self.name.trim();
        if name.is_empty() { DEFAULT_NAME } else { name }
    }

    /// The text with LF line endings; browsers submit CR LF.
    pub(super) fn file_text(&self) -> String {
        self.text.replace("\r\n", "\n")
    }

    /// Name of the test file, next to the workflow file.
    pub(super) fn cases_name(&self) -> String {
        let name = self.file_name();
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        format!("{}.test.yaml", stem.trim_end_matches(".workflow").trim_end_matches(".agent"))
    }

    /// Returns true if the file has the name of an agent file.
    pub(super) fn is_agent(&self) -> bool {
        self.file_name().contains(".agent.")
    }

    /// The command that checks the file.
    pub(super) fn check_command(&self) -> CommandText {
        let verb = if self.is_agent() { "sinew agent describe" } else { "sinew workflow validate" };
        CommandText::new(verb).word(self.file_name())
    }

    pub(super) fn cases_text(&self) -> String {
        self.cases.replace("\r\n", "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_their_tests_lie_side_by_side() {
        for (name, cases, command) in [
            ("order.workflow.yaml", "order.test.yaml", "sinew workflow validate order.workflow.yaml"),
            ("sorter.agent.yaml", "sorter.test.yaml", "sinew agent describe sorter.agent.yaml"),
            ("plain", "plain.test.yaml", "sinew workflow validate plain"),
            ("", "workflow.test.yaml", "sinew workflow validate workflow.yaml"),
        ] {
            let form = EditorForm { name: name.to_owned(), ..EditorForm::default() };
            assert_eq!(
                (form.cases_name().as_str(), form.check_command().to_string().as_str()),
                (cases, command)
            );
        }
    }
}
