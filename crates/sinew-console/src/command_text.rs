//! Command lines that pages show: what the command line does is what the page does.

use std::fmt;

use sinew_inspection::words;

/// A command as people type it. Words of others are quoted, so that a copied command is one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandText(String);

impl CommandText {
    /// A command of our own words.
    pub(crate) fn new(words: &str) -> Self {
        Self(words.to_owned())
    }

    /// A command about an execution, by its short id.
    pub(crate) fn of_execution(words: &str, id: &str) -> Self {
        Self::new(words).word(words::short_id(id))
    }

    /// The same with a word of others.
    #[must_use]
    pub(crate) fn word(mut self, word: &str) -> Self {
        self.0.push(' ');
        self.0.push_str(&words::shell(word));
        self
    }

    /// The same with a flag and its value, if there is one.
    #[must_use]
    pub(crate) fn flag(mut self, flag: &str, value: &str) -> Self {
        if value.is_empty() {
            return self;
        }
        self.0.push(' ');
        self.0.push_str(flag);
        self.word(value)
    }

    /// The same with words of our own at its end.
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
