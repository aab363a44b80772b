//! Commit and date of a build for `--version`, where the sources are a checkout of git.

use std::process::Command;

fn main() {
    // A commit alone is no reason to build again while people work; a release names its own.
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=BUILD_COMMIT");
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release")
        && let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
    {
        println!("cargo:rerun-if-changed={log}");
    }
    let given = std::env::var("BUILD_COMMIT").ok().filter(|commit| !commit.is_empty());
    let named = given.as_deref().and_then(|commit| commit.split_whitespace().next()).map(str::to_owned);
    let revision = named.or_else(|| git(&["rev-parse", "HEAD"])).unwrap_or_default();
    println!("cargo:rustc-env=BUILD_REVISION={revision}");
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let version = match given.or_else(|| git(&["log", "-1", "--format=%h %cs"])) {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo:rustc-env=BUILD_VERSION={version}");
}

/// The answer of git; none without git or a checkout.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| output.status.success() && !text.is_empty())
}
