//! The engine is pure: nothing it depends on does I/O for it. `clippy.toml` beside this crate bans the same of `std`.

use std::collections::{BTreeMap, BTreeSet};

/// Packages that the engine must not depend on, by any path.
const BANNED: [&str; 8] = ["tokio", "async-nats", "reqwest", "hyper", "mio", "rustls", "rand", "getrandom"];
/// For tests, benchmarks and build scripts of this crate and of those below it; nothing that ships reaches them.
const NOT_SHIPPED: [&str; 6] = ["divan", "jsonschema", "proptest", "prost-build", "protox", "regex"];

#[test]
fn nothing_that_does_io_is_reached() {
    let graph = dependencies(include_str!("../../../Cargo.lock"));
    let mut path: BTreeMap<&str, &str> = BTreeMap::from([("sinew-engine", "")]);
    let mut queue = vec!["sinew-engine"];
    while let Some(name) = queue.pop() {
        for next in graph[name].iter().filter(|next| !NOT_SHIPPED.contains(next)) {
            if !path.contains_key(next) {
                path.insert(next, name);
                queue.push(next);
            }
        }
    }
    assert!(path.contains_key("sinew-plan") && path.contains_key("serde_json"), "the lock file was read");
    for banned in BANNED {
        let way: Vec<&str> = std::iter::successors(Some(banned), |name| path.get(name).copied()).collect();
        assert!(!path.contains_key(banned), "sinew-engine reaches {banned}: {}", way.join(" <- "));
    }
}

/// Packages of a lock file and what each depends on, versions left out.
fn dependencies(lock: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut graph: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut name = "";
    for line in lock.lines() {
        if let Some(rest) = line.strip_prefix("name = ") {
            name = rest.trim_matches('"');
            graph.entry(name).or_default();
        } else if let Some(rest) = line.strip_prefix(" \"") {
            let dependency = rest.split(['"', ' ']).next().unwrap_or_default();
            graph.entry(name).or_default().insert(dependency);
        }
    }
    graph
}
