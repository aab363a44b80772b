//! Words of comments, as far as a program can check them. The glossary and the rules stand in ARCHITECTURE.md and
//! CONTRIBUTING.md.

use std::fs;

use super::{none, root, sources};

/// A comment starts with the thing it is about, not with a pronoun that stands for it.
const FORBIDDEN_OPENINGS: &[&str] = &[
    "What",
    "Whatever",
    "Who",
    "Whoever",
    "Whose",
    "Whom",
    "Nobody",
    "Nothing",
    "Somebody",
    "Something",
    "Someone",
    "Anybody",
    "Anyone",
    "Those",
];

#[test]
fn comments_start_with_their_subject() {
    let crates = root().join("crates");
    let mut wrong = Vec::new();
    for path in sources() {
        let within = path.strip_prefix(&crates).unwrap();
        let content = fs::read_to_string(&path).unwrap();
        let mut previous = "";
        for (number, line) in content.lines().enumerate() {
            let (marker, comment) = split_comment(line.trim_start());
            let opening = comment.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap();
            if !marker.is_empty() && marker != previous && FORBIDDEN_OPENINGS.contains(&opening) {
                wrong.push(format!("{}:{}: {comment}", within.display(), number + 1));
            }
            previous = marker;
        }
    }
    none(&wrong);
}

/// Splits a line into `//`, `///` or `//!` and the text behind; both are empty for a line of code.
fn split_comment(line: &str) -> (&str, &str) {
    let marker = ["///", "//!", "//"].into_iter().find(|marker| line.starts_with(marker));
    marker.map_or(("", ""), |marker| (marker, line[marker.len()..].trim_start()))
}
