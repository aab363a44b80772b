//! Documents that describe the layout agree with the tree.

use std::collections::BTreeSet;
use std::fs;

use super::{list, metadata, none, root, text};

#[test]
fn documents_list_every_crate() {
    let metadata = metadata();
    let members: BTreeSet<&str> = metadata.ours().map(|package| text(package, "name")).collect();
    let mut wrong = Vec::new();
    for (document, line_start, line_end) in [("ARCHITECTURE.md", "| `", "`"), ("AGENTS.md", "crates/", " ")] {
        let content = fs::read_to_string(root().join(document)).unwrap();
        let listed: BTreeSet<&str> = content
            .lines()
            .filter_map(|line| line.strip_prefix(line_start)?.split(line_end).next())
            .filter(|name| name.starts_with("sinew") && !name.contains('/'))
            .collect();
        wrong.extend(members.difference(&listed).map(|name| format!("{document} does not list {name}")));
        wrong.extend(
            listed.difference(&members).map(|name| format!("{document} lists {name}, which is not a crate")),
        );
    }
    none(&wrong);
}

/// Each path in backticks of the code map exists; `{a,b}` and `*` stand for several.
#[test]
fn the_code_map_names_files_that_exist() {
    let content = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let map = content.split("\n## Code map").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut wrong = Vec::new();
    let mut checked = 0;
    for path in
        map.split('`').skip(1).step_by(2).filter(|path| path.starts_with("sinew") && path.contains("/src"))
    {
        for path in alternatives(path) {
            let fixed = path.split('*').next().unwrap();
            let folder =
                if fixed == path { fixed } else { fixed.rsplit_once('/').map_or("", |(folder, _)| folder) };
            checked += 1;
            if !root().join("crates").join(folder).exists() {
                wrong.push(format!("ARCHITECTURE.md names crates/{path}, which does not exist"));
            }
        }
    }
    assert!(checked > 10, "the code map names {checked} paths");
    none(&wrong);
}

fn alternatives(path: &str) -> Vec<String> {
    let Some((start, (choices, end))) =
        path.split_once('{').and_then(|(start, rest)| Some((start, rest.split_once('}')?)))
    else {
        return vec![path.to_owned()];
    };
    choices.split(',').map(|choice| format!("{start}{choice}{end}")).collect()
}

/// Each finding of `docs/threats.md` names tests, and each of these is in the crate that the row names.
#[test]
fn every_finding_of_an_attack_has_tests() {
    let content = fs::read_to_string(root().join("docs/threats.md")).unwrap();
    let findings = content.split("\n## Findings of attacks").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = findings.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| finding"));
    let (mut wrong, mut count) = (Vec::new(), 0);
    for row in rows {
        count += 1;
        let tests = row.split(" | ").nth(1).unwrap_or_default();
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        let tests: Vec<&[&str]> = names.chunks_exact(2).collect();
        if tests.is_empty() {
            wrong.push(format!("docs/threats.md names no test: {row}"));
        }
        for pair in tests {
            let test = pair[1].rsplit("::").next().unwrap();
            let folder = match pair[0] {
                "journeys" => root().join("tests/journeys"),
                name => root().join("crates").join(name),
            };
            if !has_function(&folder, test) {
                wrong.push(format!("docs/threats.md names {}, which {} does not have", pair[1], pair[0]));
            }
        }
    }
    assert_eq!(count, 31, "findings of attacks");
    none(&wrong);
}

/// Whether a file below a folder has a function of this name.
fn has_function(folder: &std::path::Path, name: &str) -> bool {
    let wanted = format!("fn {name}(");
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() {
            return has_function(&path, name);
        }
        path.extension().is_some_and(|end| end == "rs")
            && fs::read_to_string(&path).unwrap().contains(&wanted)
    })
}

/// A release moves each file of `changes/unreleased` into the section of its kind.
#[test]
fn change_log_entries_name_their_kind() {
    const KINDS: [&str; 6] = ["added", "changed", "deprecated", "removed", "fixed", "security"];
    let mut wrong = Vec::new();
    for entry in fs::read_dir(root().join("changes/unreleased")).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let kind = name.split_once('-').map(|(kind, _)| kind).unwrap_or_default();
        if path.extension().is_none_or(|extension| extension != "md") || !KINDS.contains(&kind) {
            wrong.push(format!("changes/unreleased/{name} is not named KIND-SUBJECT.md"));
        }
        if fs::read_to_string(&path).unwrap().trim().is_empty() {
            wrong.push(format!("changes/unreleased/{name} is empty"));
        }
    }
    none(&wrong);
}

/// A crate with one test binary runs only the files that its `tests/integration.rs` reaches.
#[test]
fn every_file_of_tests_is_compiled() {
    let mut wrong = Vec::new();
    for package in metadata()
        .ours()
        .filter(|package| list(package, "targets").any(|target| target["name"] == "integration"))
    {
        let folder = std::path::Path::new(text(package, "manifest_path")).parent().unwrap().join("tests");
        for entry in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let is_module = entry.extension().is_some_and(|end| end == "rs") || entry.join("mod.rs").exists();
            let name = entry.file_stem().unwrap().to_string_lossy().into_owned();
            if is_module && name != "integration" && !names_module(&folder.join("integration.rs"), &name) {
                wrong.push(format!(
                    "{} is not compiled: add `mod {name};` to integration.rs",
                    entry.display()
                ));
            }
            if !entry.join("mod.rs").exists() {
                continue;
            }
            for file in fs::read_dir(&entry).unwrap().map(|file| file.unwrap().path()) {
                let name = file.file_stem().unwrap().to_string_lossy().into_owned();
                let is_module = file.extension().is_some_and(|end| end == "rs") && name != "mod";
                if is_module && !names_module(&entry.join("mod.rs"), &name) {
                    wrong.push(format!("{} is not compiled: add `mod {name};`", file.display()));
                }
            }
        }
    }
    none(&wrong);
}

fn names_module(file: &std::path::Path, module: &str) -> bool {
    let line_end = format!("mod {module};");
    fs::read_to_string(file)
        .unwrap()
        .lines()
        .any(|line| line.trim_start().trim_start_matches("pub(crate) ") == line_end)
}
