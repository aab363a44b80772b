//! Command lines that are equivalent to the actions of pages.

use std::fmt;

use sinew_documents::words;

/// A command line. Untrusted words are quoted, so that a copied command cannot contain a second
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandText(String);

impl CommandText {
    /// Creates a command of trusted words.
    pub(crate) fn new(words: &str) -> Self {
        Self(words.to_owned())
    }

    /// Creates a command on an execution, named by its short id.
    pub(crate) fn of_execution(words: &str, id: &str) -> Self {
        Self::new(words).word(words::short_id(id))
    }

    /// Appends an untrusted word.
    #[must_use]
    pub(crate) fn word(mut self, word: &str) -> Self {
        self.0.push(' ');
        self.0.push_str(&words::shell(word));
        self
    }

    /// Appends a flag with its value, if the value is not empty.
    #[must_use]
    pub(crate) fn flag(mut self, flag: &str, value: &str) -> Self {
        if value.is_empty() {
            return self;
        }
        self.0.push(' ');
        self.0.push_str(flag);
        self.word(value)
    }

    /// Appends trusted words.
    #[must_use]
    pub(crate) fn with(mut self, words: &str) -> Self {
        self.0.push(' ');
        self.0.push_str(words);
        self
    }
}

impl fmt::Display for CommandText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
