//! Findings about mistakes of authors, in workflow files of all dialects, test files and agent files.
//!
//! Each file in `mistakes/` has a `base` without findings and `rows`. A row replaces a text that
//! occurs once in the base, or gives a whole `text`. `«` (or the text `mark`) marks the token at which
//! the finding with the row's `code` must start; `hint` is a part of its message or hint. `findings` is the number of
//! all findings, one by default: a mistake has one cause.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sinew_agents::AgentSet;
use sinew_case_runner::{CaseOptions, run_cases};
use sinew_operations::workflow_file::Options;
use sinew_operations::workflow_search::find_workflows;
use sinew_source::{Diagnostics, Limits, load_data};

const MARK: char = '«';
/// Minimum share of mistakes that are found at the exact token, in percent.
const MIN_EXACT_PERCENT: usize = 97;

/// A finding: position, code, message with hint.
struct Found {
    place: (u64, u64),
    code: String,
    text: String,
}

/// Formats findings for people.
fn lines(found: &[Found]) -> String {
    let line = |one: &Found| format!("    {}:{} {} {}\n", one.place.0, one.place.1, one.code, one.text);
    found.iter().map(line).collect()
}

fn listed(diagnostics: &Diagnostics, found: &mut Vec<Found>) {
    found.extend(diagnostics.items.iter().map(|item| {
        let span = item.span.unwrap_or_default();
        Found {
            place: (span.line.into(), span.column.into()),
            code: item.code.to_owned(),
            text: format!("{} [{}]", item.message, item.hint.as_deref().unwrap_or_default()),
        }
    }));
}

/// Returns the findings of the command that checks files of this kind.
fn findings(path: &Path, dialect: Option<&str>) -> Vec<Found> {
    let mut found = Vec::new();
    let name = path.file_name().unwrap().to_string_lossy();
    if name.contains(".agent.") {
        match AgentSet::load_paths(&[path.to_owned()]) {
            Ok(agents) => agents.iter().for_each(|agent| listed(agent.warnings(), &mut found)),
            Err(diagnostics) => listed(&diagnostics, &mut found),
        }
    } else if name.contains(".test.") {
        let options = CaseOptions { paths: vec![path.to_owned()], ..CaseOptions::default() };
        let report = run_cases(&options, &mut |_| {}).unwrap();
        report.broken.iter().filter_map(|failure| failure.diagnostics.as_ref()).for_each(|broken| {
            listed(broken, &mut found);
        });
        for case in report.results(false).cases {
            found.extend(case.failures.into_iter().map(|failure| {
                let mut place = failure.at.rsplit(':').map(|part| part.parse().unwrap_or_default());
                let column = place.next().unwrap_or_default();
                Found {
                    place: (place.next().unwrap_or_default(), column),
                    code: "failed".to_owned(),
                    text: format!("{} [{}]", failure.expectation, failure.differences.join("; ")),
                }
            }));
        }
    } else {
        let options = Options { dialect: dialect.map(str::to_owned), ..Options::default() };
        for file in find_workflows(&[path.to_owned()], &options).unwrap() {
            listed(&file.diagnostics, &mut found);
        }
    }
    found
}

/// A file of mistakes, with a folder for its texts.
struct Catalogue {
    name: String,
    content: Value,
    folder: tempfile::TempDir,
}

impl Catalogue {
    fn read(path: &Path) -> Self {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let document = load_data(&fs::read(path).unwrap(), &name, Limits::default()).unwrap();
        let catalogue = Self { name, content: document.root.to_json(), folder: tempfile::tempdir().unwrap() };
        for (name, text) in catalogue.content["files"].as_object().into_iter().flatten() {
            let path = catalogue.folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text.as_str().unwrap()).unwrap();
        }
        catalogue
    }

    fn check(&self, file: &str, text: &str, dialect: Option<&str>) -> Vec<Found> {
        let path = self.folder.path().join(file);
        fs::write(&path, text).unwrap();
        let found = findings(&path, dialect);
        fs::remove_file(&path).unwrap();
        found
    }

    /// Returns the text of a row, with its mark.
    fn text(&self, row: &Value) -> String {
        if let Some(text) = row["text"].as_str() {
            return text.to_owned();
        }
        let base = self.content["base"].as_str().unwrap();
        let (old, new) = (row["replace"].as_str().unwrap(), row["with"].as_str().unwrap());
        assert_eq!(base.matches(old).count(), 1, "{}: {old}", self.name);
        let text = base.replace(old, new);
        match row["mark"].as_str() {
            Some(token) => text.replacen(token, &format!("{MARK}{token}"), 1),
            None => text,
        }
    }
}

/// Verdict on one row.
enum Verdict {
    Exact,
    Elsewhere(String),
    Silent(String),
}

fn judge(catalogue: &Catalogue, row: &Value) -> Verdict {
    let marked = catalogue.text(row);
    let at = marked.find(MARK).unwrap_or_else(|| panic!("no mark in {row}"));
    let before = &marked[..at];
    let line = before.matches('\n').count() as u64 + 1;
    let column = before.rsplit('\n').next().unwrap().chars().count() as u64 + 1;
    let file = row["file"].as_str().or(catalogue.content["file"].as_str()).unwrap();
    let found = catalogue.check(file, &marked.replace(MARK, ""), row["dialect"].as_str());
    let shown = format!("{}: {} at {line}:{column} of {row}\n{}", catalogue.name, row["code"], lines(&found));
    if found.is_empty() {
        return Verdict::Silent(shown);
    }
    let hint = row["hint"].as_str().unwrap();
    let is_exact =
        |one: &Found| one.place == (line, column) && row["code"] == one.code && one.text.contains(hint);
    let most = row["findings"].as_u64().unwrap_or(1) as usize;
    if found.iter().any(is_exact) && found.len() <= most { Verdict::Exact } else { Verdict::Elsewhere(shown) }
}

#[test]
fn mistakes_of_authors_are_found_at_their_token() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes");
    let only = std::env::var("MISTAKES").unwrap_or_default();
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (mut exact, mut elsewhere, mut silent) = (0, String::new(), String::new());
    let mut all = 0;
    for path in files.iter().filter(|path| path.display().to_string().contains(&only)) {
        let catalogue = Catalogue::read(path);
        let base = &catalogue.content["base"];
        let clean =
            catalogue.check(catalogue.content["file"].as_str().unwrap(), base.as_str().unwrap(), None);
        assert!(clean.is_empty(), "{}:\n{}", catalogue.name, lines(&clean));
        let rows = catalogue.content["rows"].as_array().unwrap();
        let before = exact;
        for row in rows {
            match judge(&catalogue, row) {
                Verdict::Exact => exact += 1,
                Verdict::Elsewhere(shown) => writeln!(elsewhere, "{shown}").unwrap(),
                Verdict::Silent(shown) => writeln!(silent, "{shown}").unwrap(),
            }
        }
        all += rows.len();
        println!("{}: {} of {} at the exact token", catalogue.name, exact - before, rows.len());
    }
    println!("{exact} of {all} mistakes at the exact token\n{elsewhere}");
    assert!(silent.is_empty(), "mistakes without a finding:\n{silent}");
    assert!(only.is_empty() && all >= 150 || !only.is_empty(), "only {all} mistakes");
    assert!(exact * 100 >= all * MIN_EXACT_PERCENT, "{exact} of {all} at the exact token\n{elsewhere}");
}
