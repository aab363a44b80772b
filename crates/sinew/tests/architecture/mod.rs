//! Holds the rules of ARCHITECTURE.md: who may name whom, what pure crates never reach, how files are kept.
//!
//! Rules are data at the top; a new crate or a new arrow is a line here, and a reviewer's decision.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by panicking")]

mod documents;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

/// Our crates, each with those of ours it may name. Nothing points back.
const ARROWS: &[(&str, &[&str])] = &[
    ("sinew-codes", &[]),
    ("sinew-protocol", &["sinew-codes"]),
    ("sinew-search", &["sinew-protocol"]),
    ("sinew-source", &["sinew-codes"]),
    ("sinew-files", &["sinew-codes"]),
    ("sinew-documents", &["sinew-protocol", "sinew-source"]),
    ("sinew-telemetry", &["sinew-protocol", "sinew-source"]),
    ("sinew-script", &["sinew-codes"]),
    ("sinew-diagram", &["sinew-codes"]),
    ("sinew-plan", &["sinew-protocol"]),
    ("sinew-engine", &["sinew-protocol", "sinew-plan"]),
    ("sinew-execution", &["sinew-protocol", "sinew-plan", "sinew-engine"]),
    ("sinew-shard", &["sinew-protocol", "sinew-plan", "sinew-engine", "sinew-execution"]),
    ("sinew-dialects", &["sinew-protocol", "sinew-source", "sinew-script", "sinew-plan", "sinew-engine"]),
    ("sinew-model", &["sinew-protocol", "sinew-source"]),
    (
        "sinew-agents",
        &["sinew-protocol", "sinew-source", "sinew-files", "sinew-script", "sinew-search", "sinew-model"],
    ),
    ("sinew-mesh", &["sinew-protocol", "sinew-source", "sinew-files"]),
    ("sinew-runtime", &["sinew-protocol", "sinew-script", "sinew-engine", "sinew-execution", "sinew-shard"]),
    (
        "sinew-executor",
        &[
            "sinew-protocol",
            "sinew-source",
            "sinew-plan",
            "sinew-engine",
            "sinew-execution",
            "sinew-shard",
            "sinew-runtime",
            "sinew-mesh",
        ],
    ),
    ("sinew-agent", &["sinew-agents", "sinew-protocol", "sinew-source", "sinew-mesh"]),
    (
        "sinew-gateway",
        &[
            "sinew-agents",
            "sinew-documents",
            "sinew-protocol",
            "sinew-source",
            "sinew-plan",
            "sinew-engine",
            "sinew-execution",
            "sinew-console",
            "sinew-diagram",
            "sinew-runtime",
            "sinew-inspection",
            "sinew-executor",
            "sinew-mesh",
            "sinew-operations",
            "sinew-case-runner",
        ],
    ),
    (
        "sinew-bridge",
        &["sinew-agents", "sinew-protocol", "sinew-source", "sinew-files", "sinew-mesh", "sinew-agent"],
    ),
    ("sinew-console", &["sinew-codes", "sinew-source", "sinew-documents", "sinew-diagram"]),
    (
        "sinew-inspection",
        &[
            "sinew-documents",
            "sinew-protocol",
            "sinew-source",
            "sinew-plan",
            "sinew-engine",
            "sinew-execution",
            "sinew-dialects",
            "sinew-diagram",
            "sinew-runtime",
        ],
    ),
    (
        "sinew-operations",
        &[
            "sinew-documents",
            "sinew-protocol",
            "sinew-search",
            "sinew-source",
            "sinew-files",
            "sinew-plan",
            "sinew-engine",
            "sinew-execution",
            "sinew-dialects",
            "sinew-diagram",
            "sinew-agents",
            "sinew-runtime",
            "sinew-executor",
            "sinew-mesh",
            "sinew-agent",
            "sinew-inspection",
        ],
    ),
    (
        "sinew-case-runner",
        &[
            "sinew-documents",
            "sinew-protocol",
            "sinew-source",
            "sinew-script",
            "sinew-plan",
            "sinew-engine",
            "sinew-execution",
            "sinew-diagram",
            "sinew-model",
            "sinew-agents",
            "sinew-runtime",
            "sinew-inspection",
            "sinew-operations",
        ],
    ),
    (
        "sinew-bench",
        &[
            "sinew-protocol",
            "sinew-engine",
            "sinew-executor",
            "sinew-mesh",
            "sinew-agent",
            "sinew-model",
            "sinew-agents",
            "sinew-operations",
        ],
    ),
    (
        "sinew-chaos",
        &[
            "sinew-protocol",
            "sinew-source",
            "sinew-script",
            "sinew-engine",
            "sinew-execution",
            "sinew-dialects",
            "sinew-runtime",
            "sinew-executor",
            "sinew-mesh",
            "sinew-agent",
            "sinew-agents",
            "sinew-bridge",
            "sinew-gateway",
            "sinew-operations",
        ],
    ),
    (
        "sinew",
        &[
            "sinew-documents",
            "sinew-protocol",
            "sinew-source",
            "sinew-inspection",
            "sinew-telemetry",
            "sinew-script",
            "sinew-diagram",
            "sinew-plan",
            "sinew-engine",
            "sinew-execution",
            "sinew-dialects",
            "sinew-agents",
            "sinew-runtime",
            "sinew-executor",
            "sinew-mesh",
            "sinew-agent",
            "sinew-gateway",
            "sinew-operations",
            "sinew-case-runner",
            "sinew-bench",
            "sinew-bridge",
        ],
    ),
];

/// Crates without a runtime, a network or a clock of their own.
const PURE: &[&str] = &[
    "sinew-codes",
    "sinew-protocol",
    "sinew-search",
    "sinew-source",
    "sinew-documents",
    "sinew-script",
    "sinew-plan",
    "sinew-engine",
    "sinew-execution",
    "sinew-shard",
    "sinew-dialects",
    "sinew-diagram",
    "sinew-model",
];

/// Packages that a pure crate must not depend on, however indirectly.
const IMPURE: &[&str] = &["tokio", "mio", "async-nats", "reqwest", "hyper", "rustls"];

/// Crates that only one of ours names: replacing them is a change in one place.
const OWNERS: &[(&str, &str)] = &[
    ("monty", "sinew-script"),
    ("monty-types", "sinew-script"),
    ("dugong", "sinew-diagram"),
    ("merman", "sinew-diagram"),
    ("resvg", "sinew-diagram"),
    ("granit-parser", "sinew-source"),
    ("reqwest", "sinew-agents"),
    ("opentelemetry", "sinew-telemetry"),
    ("metrics-exporter-prometheus", "sinew-telemetry"),
    ("async-nats", "sinew-mesh"),
    ("maud", "sinew-console"),
    ("pulldown-cmark", "sinew-console"),
    ("jsonwebtoken", "sinew-gateway"),
];

/// The same for crates of which two of ours have a side each: server and client, or API and pages.
const SHARED_OWNERS: &[(&str, [&str; 2])] =
    &[("rmcp", ["sinew-gateway", "sinew-agents"]), ("axum", ["sinew-gateway", "sinew-console"])];

/// Lines past which a file has a second job hiding in it.
const LONGEST_FILE: usize = 700;

#[test]
fn arrows_between_our_crates_never_point_back() {
    let mut wrong = Vec::new();
    let arrows: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    for package in metadata().ours() {
        let name = text(package, "name");
        let Some(allowed) = arrows.get(name) else {
            wrong.push(format!("{name} has no line in ARROWS"));
            continue;
        };
        for named in named_by(package).filter(|named| named.starts_with("sinew")) {
            if !allowed.contains(&named) {
                wrong.push(format!("{name} may not name {named}"));
            }
        }
    }
    none(&wrong);
}

#[test]
fn pure_crates_reach_no_runtime_and_no_network() {
    let metadata = metadata();
    let mut wrong = Vec::new();
    for package in metadata.ours().filter(|package| PURE.contains(&text(package, "name"))) {
        let reached = metadata.closure(text(package, "id"));
        let impure = IMPURE.iter().filter(|impure| reached.contains(**impure));
        wrong.extend(impure.map(|impure| format!("{} reaches {impure}", text(package, "name"))));
    }
    none(&wrong);
}

#[test]
fn embedded_engines_are_named_by_their_owner_only() {
    let mut wrong = Vec::new();
    for package in metadata().ours() {
        for named in named_by(package) {
            let owner = OWNERS.iter().find(|(crate_name, _)| *crate_name == named);
            if let Some((_, owner)) = owner.filter(|(_, owner)| *owner != text(package, "name")) {
                wrong.push(format!("{} names {named}, which only {owner} may", text(package, "name")));
            }
            let owners = SHARED_OWNERS.iter().find(|(crate_name, _)| *crate_name == named);
            if let Some((_, owners)) = owners.filter(|(_, owners)| !owners.contains(&text(package, "name"))) {
                wrong.push(format!("{} names {named}, which only {owners:?} may", text(package, "name")));
            }
        }
    }
    none(&wrong);
}

#[test]
fn dependencies_come_from_the_registry() {
    let metadata = metadata();
    let foreign = list(&metadata.0, "packages")
        .filter(|package| {
            let source = package["source"].as_str();
            source.is_some_and(|source| source != "registry+https://github.com/rust-lang/crates.io-index")
        })
        .map(|package| format!("{} comes from {}", text(package, "name"), package["source"]))
        .collect::<Vec<_>>();
    none(&foreign);
}

#[test]
fn every_crate_says_what_it_is_and_takes_the_lints() {
    let mut wrong = Vec::new();
    for package in metadata().ours() {
        let name = text(package, "name");
        let manifest = Path::new(text(package, "manifest_path"));
        let folder = manifest.parent().unwrap();
        if folder.file_name().is_none_or(|folder| folder != name) {
            wrong.push(format!("{name} does not stand in a folder of its name"));
        }
        if package["description"].as_str().is_none_or(str::is_empty) {
            wrong.push(format!("{name} has no description"));
        }
        if !fs::read_to_string(manifest).unwrap().contains("[lints]\nworkspace = true") {
            wrong.push(format!("{name} does not take the workspace's lints"));
        }
        let roots = ["src/lib.rs", "src/main.rs"].map(|root| folder.join(root));
        for root in roots.iter().filter(|root| root.exists()) {
            if !fs::read_to_string(root).unwrap().starts_with("//! ") {
                wrong.push(format!("{} does not open with what it is for", root.display()));
            }
        }
    }
    none(&wrong);
}

#[test]
fn files_are_short() {
    let long = sources()
        .into_iter()
        .map(|path| (fs::read_to_string(&path).unwrap().lines().count(), path))
        .filter(|(lines, _)| *lines > LONGEST_FILE)
        .map(|(lines, path)| format!("{} has {lines} lines, more than {LONGEST_FILE}", path.display()))
        .collect::<Vec<_>>();
    none(&long);
}

#[test]
fn every_code_that_can_be_printed_has_a_page() {
    let mut wrong = BTreeSet::new();
    for path in sources().iter().filter(|path| !is_test(path)) {
        let product = product_code(path);
        for (at, prefix) in product.match_indices("SINEW-") {
            let digits = product.get(at + prefix.len()..at + prefix.len() + 4).unwrap_or_default();
            let code = format!("{prefix}{digits}");
            let is_code = digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_digit());
            if is_code && sinew_protocol::code::page(&code).is_none() {
                wrong.insert(format!("{code} has no page ({})", path.display()));
            }
        }
    }
    none(&Vec::from_iter(wrong));
}

#[test]
fn codes_are_named_by_constants_and_every_page_is_used() {
    let names = fs::read_to_string(root().join("crates/sinew-codes/codes/names.txt")).unwrap();
    let mut unused: BTreeMap<&str, &str> =
        names.lines().map(|line| line.split_once(' ').unwrap()).map(|(code, name)| (name, code)).collect();
    let mut inline = BTreeSet::new();
    for path in sources().iter().filter(|path| !is_test(path)) {
        let product = product_code(path);
        for (at, _) in product.match_indices("\"SINEW-") {
            let literal = product[at + 1..].split('"').next().unwrap();
            let is_code = literal.len() == "SINEW-0000".len();
            if is_code {
                inline.insert(format!("{} has \"{literal}\" instead of a constant", path.display()));
            }
        }
        for (at, module) in product.match_indices("code::") {
            let name =
                product[at + module.len()..].split(|c: char| !(c.is_alphanumeric() || c == '_')).next();
            unused.remove(name.unwrap());
        }
    }
    none(&Vec::from_iter(inline));
    none(&unused.iter().map(|(name, code)| format!("nothing uses {code} ({name})")).collect::<Vec<_>>());
}

/// An execution takes inputs in one way: `Machine`. The rules it calls are private to the engine and called there only.
#[test]
fn rules_of_the_engine_are_called_by_the_machine_only() {
    let engine = root().join("crates/sinew-engine/src");
    let mut callers = BTreeSet::new();
    for path in files(&engine, &|path| path.extension().is_some_and(|extension| extension == "rs")) {
        let source = fs::read_to_string(&path).unwrap();
        let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code.filter(|line| !line.contains("fn ")) {
            for rule in ["decide(", "react("] {
                let called = |at: usize| {
                    !line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.'))
                };
                if line.match_indices(rule).any(|(at, _)| called(at)) {
                    let file = path.strip_prefix(&engine).unwrap().display();
                    callers.insert(format!("{rule}…) in {file}"));
                }
            }
        }
    }
    assert_eq!(Vec::from_iter(callers), ["decide(…) in machine.rs", "react(…) in machine.rs"]);
}

/// Variables of the environment are named once, where they are explained.
#[test]
fn variables_of_the_environment_stand_in_one_file() {
    let mut wrong = Vec::new();
    for path in sources().iter().filter(|path| !is_test(path) && !path.ends_with("sinew-protocol/src/env.rs"))
    {
        let source = fs::read_to_string(path).unwrap();
        let product = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for prefix in ["SINEW_", "NATS_", "OTEL_"] {
            for (at, _) in product.match_indices(&format!("\"{prefix}")) {
                let name = product[at + 1..].split('"').next().unwrap();
                if name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_') {
                    wrong.push(format!("{} names {name}", path.display()));
                }
            }
        }
    }
    none(&wrong);
}

/// A path of the machine somebody worked on helps nobody else.
#[test]
fn no_file_names_a_path_of_a_machine() {
    // In pieces, so that this file does not find itself.
    let machine =
        [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"], ["shared/de", "sign"], ["shared/sp", "ec"]];
    let machine = machine.map(|parts| parts.concat());
    let mut wrong = Vec::new();
    for path in files(&root(), &|_| true) {
        let Ok(content) = fs::read_to_string(&path) else { continue };
        for (number, line) in content.lines().enumerate() {
            // The end of a longer path or address (`{folder}/jobs/`, `example.org/home/`) is not a path of a machine.
            let starts_there = |at: usize| {
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}'))
            };
            let named =
                machine.iter().find(|name| line.match_indices(name.as_str()).any(|(at, _)| starts_there(at)));
            if let Some(named) = named {
                wrong.push(format!("{}:{} names {named}", path.display(), number + 1));
            }
        }
    }
    none(&wrong);
}

/// Output of `cargo metadata`.
struct Metadata(Value);

fn metadata() -> Metadata {
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).current_dir(root()).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    // Only this platform's crates: those of others need not have been downloaded.
    let version = run("rustc", &["-vV"]);
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let args = ["metadata", "--format-version=1", "--locked", "--filter-platform", host];
    Metadata(serde_json::from_str(&run(&cargo, &args)).unwrap())
}

impl Metadata {
    /// Packages of the workspace.
    fn ours(&self) -> impl Iterator<Item = &Value> {
        list(&self.0, "packages").filter(|package| package["source"].is_null())
    }

    /// Names of all packages a package is built from, however indirectly; not those its tests or build scripts use.
    fn closure(&self, id: &str) -> BTreeSet<&str> {
        let nodes: BTreeMap<_, _> =
            list(&self.0["resolve"], "nodes").map(|node| (text(node, "id"), node)).collect();
        let names: BTreeMap<_, _> =
            list(&self.0, "packages").map(|package| (text(package, "id"), text(package, "name"))).collect();
        let mut seen = BTreeSet::new();
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            for dependency in list(nodes[id], "deps") {
                let normal = list(dependency, "dep_kinds").any(|kind| kind["kind"].is_null());
                let id = text(dependency, "pkg");
                if normal && seen.insert(id) {
                    open.push(id);
                }
            }
        }
        seen.into_iter().map(|id| names[id]).collect()
    }
}

/// Packages that a package's manifest names for its own code.
fn named_by(package: &Value) -> impl Iterator<Item = &str> {
    list(package, "dependencies")
        .filter(|dependency| dependency["kind"].is_null())
        .map(|dependency| text(dependency, "name"))
}

fn list<'a>(value: &'a Value, key: &str) -> std::slice::Iter<'a, Value> {
    value[key].as_array().unwrap_or_else(|| panic!("cargo metadata has no list '{key}'")).iter()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("cargo metadata has no text '{key}'"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Rust files of all crates.
fn sources() -> Vec<PathBuf> {
    files(&root().join("crates"), &|path| path.extension().is_some_and(|extension| extension == "rs"))
}

/// The text of a file without its unit tests and comments.
fn product_code(path: &Path) -> String {
    let source = fs::read_to_string(path).unwrap();
    let product = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs" | "benches")))
}

/// Files below a folder, in name order, without what builds and tools leave behind.
fn files(folder: &Path, wanted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut entries: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_string_lossy();
        let hidden = name.starts_with('.') && name != ".ci" && name != ".gitignore";
        if hidden || matches!(name.as_ref(), "target" | "__pycache__") {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path, wanted));
        } else if wanted(&path) {
            found.push(path);
        }
    }
    found
}

#[track_caller]
fn none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}
