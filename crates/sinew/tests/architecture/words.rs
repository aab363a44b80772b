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

/// Words behind "is no" that do not name a kind, as in "is no longer there".
const AFTER_IS_NO: &[&str] =
    &["better", "good", "harm", "help", "later", "less", "longer", "matter", "more", "need", "reason", "use"];

#[test]
fn sentences_say_is_not_a() {
    let pages = fs::read_dir(root().join("crates/sinew-codes/codes")).unwrap();
    let pages = pages.map(|page| page.unwrap().path());
    let mut wrong = Vec::new();
    for path in sources().into_iter().chain(pages).filter(|path| !path.ends_with(file!())) {
        let content = fs::read_to_string(&path).unwrap();
        for (number, line) in content.lines().enumerate() {
            if let Some(found) = is_no(line) {
                wrong.push(format!("{}:{}: {found:?}: say \"is not a\"", path.display(), number + 1));
            }
        }
    }
    none(&wrong);
}

/// Returns the words of a line from "is no" or "are no" on, unless they are right.
fn is_no(line: &str) -> Option<&str> {
    let starts = line.match_indices("is no ").chain(line.match_indices("are no ")).map(|(start, _)| start);
    let is_wrong = |&start: &usize| {
        let before = line[..start].trim_end();
        let is_word = before.len() < start && !before.ends_with("here");
        let after = line[start..].split_ascii_whitespace().nth(2).unwrap_or_default();
        is_word && !AFTER_IS_NO.contains(&after.trim_end_matches(|c: char| !c.is_alphabetic()))
    };
    starts.filter(is_wrong).map(|start| &line[start..]).next()
}

#[test]
fn is_no_is_found_where_it_is_wrong() {
    let check = |line: &str, expected: bool| assert_eq!(is_no(line).is_some(), expected, "{line}");
    check("the text is no agent", true);
    check("they are no agents", true);
    check("there is no agent, and this is no agent", true);
    check("there is no agent", false);
    check("There are no agents", false);
    check("it is no longer there", false);
    check("Waiting is no use.", false);
    check("analysis no one reads", false);
}

/// Splits a line into `//`, `///` or `//!` and the text behind; both are empty for a line of code.
fn split_comment(line: &str) -> (&str, &str) {
    let marker = ["///", "//!", "//"].into_iter().find(|marker| line.starts_with(marker));
    marker.map_or(("", ""), |marker| (marker, line[marker.len()..].trim_start()))
}
