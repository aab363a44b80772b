//! Names of workflows and agents as metric labels. Only the first names that a process encounters
//! are used, so callers cannot create an unbounded number of series.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Maximum number of names for one label.
const MAX_LABEL_NAMES: usize = 200;
/// Maximum length of a name, in bytes.
const MAX_LABEL_BYTES: usize = 100;
/// The label of all other names.
const OTHER_NAME: &str = "other";

/// Names of one label, and whether each one was counted.
#[derive(Debug, Default)]
pub struct LabelNames(Mutex<HashMap<String, bool>>);

impl LabelNames {
    /// Returns the name if it is a known label; else `other`.
    pub fn label(&self, name: &str) -> String {
        self.find(name, false).0
    }

    /// Returns the label for a counter, and true for its first use: counters of all its outcomes
    /// are initialized then.
    pub fn count(&self, name: &str) -> (String, bool) {
        self.find(name, true)
    }

    fn find(&self, name: &str, counts: bool) -> (String, bool) {
        if name.len() > MAX_LABEL_BYTES {
            return (OTHER_NAME.to_owned(), false);
        }
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(is_counted) = names.get_mut(name) {
            let is_first = counts && !*is_counted;
            *is_counted |= counts;
            return (name.to_owned(), is_first);
        }
        if names.len() >= MAX_LABEL_NAMES {
            return (OTHER_NAME.to_owned(), false);
        }
        names.insert(name.to_owned(), counts);
        (name.to_owned(), counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_number_share_a_label() {
        let names = LabelNames::default();
        assert_eq!(names.label("orders"), "orders");
        assert_eq!(names.label(&"x".repeat(101)), OTHER_NAME);
        let first_counts = ["orders", "orders", "bills", "bills"].map(|name| names.count(name).1);
        assert_eq!(first_counts, [true, false, true, false], "whatever asked for the label before");
        for n in 0..1_000 {
            names.label(&format!("w{n}"));
        }
        assert_eq!((names.label("w5").as_str(), names.label("w999").as_str()), ("w5", OTHER_NAME));
    }
}
