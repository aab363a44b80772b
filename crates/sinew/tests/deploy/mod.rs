//! Holds deploy/ to what can be known without deploying it: servers read their configurations, schemas accept the files,
//! commands exist, expressions name metrics there are. The Compose topology runs, as plain processes.
//!
//! A tool that is not there fails the test that needs it, unless `SINEW_TESTS_WITHOUT` names it (a list with commas):
//! what was not checked must not look as if it had been.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod alerts;
mod commands;
mod figures;
mod first_execution;
mod image;
mod manifests;
mod monitoring;
mod nats;
mod outside_alerts;
mod promql;
mod rare_alerts;
mod slow_link;
mod topology;
mod units;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// The top of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A file of deploy/.
fn deploy(path: &str) -> PathBuf {
    root().join("deploy").join(path)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files of a folder of deploy/ with this extension, in name order.
fn all(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(deploy(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    found.sort();
    assert!(!found.is_empty(), "deploy/{folder} has no .{extension}");
    found
}

/// The documents of a YAML file.
fn yaml(path: &Path) -> Vec<Value> {
    let text = read(path);
    // Every document of ours begins on a line of its own; none has such a line within.
    let documents = text.split("\n---\n").map(|document| {
        serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    });
    documents.collect()
}

/// True if a tool is there. One that is missing must have been named as such.
fn has(tool: &str, get: &str) -> bool {
    if Command::new(tool).arg("--version").output().is_ok() {
        return true;
    }
    let without = std::env::var("SINEW_TESTS_WITHOUT").unwrap_or_default();
    assert!(
        without.split(',').any(|name| name.trim() == tool),
        "{tool} is not here, so nothing was checked: {get}, or set SINEW_TESTS_WITHOUT={tool} to do without"
    );
    false
}

/// Returns the output of a program and whether it succeeded.
fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
