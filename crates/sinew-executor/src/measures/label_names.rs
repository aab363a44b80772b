//! Names of workflows and agents as labels of metrics: the first ones that a process meets, so that no caller can make series
//! without number.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Names that a process keeps for one label.
const MAX_LABEL_NAMES: usize = 200;
/// Bytes of a name that is a label.
const MAX_LABEL_BYTES: usize = 100;
/// The label of all other names.
const OTHER_NAME: &str = "other";

/// Names of one label.
#[derive(Debug, Default)]
pub(crate) struct LabelNames(Mutex<HashSet<String>>);

/// Names of workflows.
pub(crate) static WORKFLOW_NAMES: LazyLock<LabelNames> = LazyLock::new(LabelNames::default);
/// Names of agents.
pub(crate) static AGENT_NAMES: LazyLock<LabelNames> = LazyLock::new(LabelNames::default);

impl LabelNames {
    /// Returns the name if it is one of those that are kept, and whether it was met for the first time; else `other`.
    pub(crate) fn label(&self, name: &str) -> (String, bool) {
        if name.len() > MAX_LABEL_BYTES {
            return (OTHER_NAME.to_owned(), false);
        }
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.contains(name) {
            return (name.to_owned(), false);
        }
        if names.len() >= MAX_LABEL_NAMES {
            return (OTHER_NAME.to_owned(), false);
        }
        names.insert(name.to_owned());
        (name.to_owned(), true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_number_share_a_label() {
        let names = LabelNames::default();
        assert_eq!(names.label("orders"), ("orders".to_owned(), true));
        assert_eq!(names.label("orders"), ("orders".to_owned(), false));
        assert_eq!(names.label(&"x".repeat(101)).0, OTHER_NAME);
        for n in 0..1_000 {
            names.label(&format!("w{n}"));
        }
        assert_eq!((names.label("w5").0, names.label("w999").0), ("w5".to_owned(), OTHER_NAME.to_owned()));
    }
}
