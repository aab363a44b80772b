//! Recorded behaviour of the source projects, run on our engine in virtual time: with and without crashes.
//!
//! `SINEW_CASES=FOLDER` reads other files of the same formats. Prints the id of each failure and, on the last line,
//! `N passed, M failed`. Kinds that need no run are tested where their rules live; here they are counted as left out.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what is wrong by panicking"
)]

mod dialects;
mod over_mesh;
#[path = "../../../sinew-protocol/tests/sam_cases.rs"]
mod protocol;
mod rules;
mod sam;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

/// What came of a case: what is wrong with it, or why it is not ours to judge.
enum Verdict {
    Judged(Vec<String>),
    LeftOut(&'static str),
}

#[test]
fn recorded_cases() {
    let folder = std::env::var_os("SINEW_CASES").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases")),
        PathBuf::from,
    );
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    files.sort();
    let (mut passed, mut failed) = (0, 0);
    let mut left_out: BTreeMap<String, usize> = BTreeMap::new();
    for file in files {
        let content: Value = serde_json::from_slice(&std::fs::read(&file).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        for case in content["cases"].as_array().unwrap_or_else(|| panic!("{}: no cases", file.display())) {
            match judge(case) {
                Verdict::LeftOut(why) => *left_out.entry(why.to_owned()).or_default() += 1,
                Verdict::Judged(wrong) if wrong.is_empty() => passed += 1,
                Verdict::Judged(wrong) => {
                    failed += 1;
                    println!("FAILED {}", case["id"].as_str().unwrap_or("a case without an id"));
                    for line in wrong {
                        println!("  {line}");
                    }
                }
            }
        }
    }
    for (why, count) in left_out {
        println!("{count} left out: {why}");
    }
    println!("{passed} passed, {failed} failed");
    assert!(passed > 0, "no case was judged");
    assert_eq!(failed, 0);
}

/// The format of a case is told by its members: cases of SAM have a stance, the others name their dialect.
fn judge(case: &Value) -> Verdict {
    match (case.get("stance"), case["kind"].as_str()) {
        (Some(_), Some("run")) => sam::run(case),
        (Some(_), Some(kind)) if protocol::KINDS.contains(&kind) => Verdict::Judged(protocol::wrong(case)),
        (Some(_), Some(kind)) => rules::judge(kind, case),
        (Some(_), None) => Verdict::Judged(vec!["it has no kind".to_owned()]),
        (None, _) => Verdict::LeftOut("the other dialects, tested in sinew-dialects"),
    }
}
