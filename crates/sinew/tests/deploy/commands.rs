//! Command lines of units, containers and pods, tried on the program.

use std::process::Command;

use serde_json::Value;

use super::{all, deploy, read, said, yaml};

/// Every command line in deploy/, with where it stands.
fn lines() -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for unit in all("systemd", "service") {
        for line in
            read(&unit).lines().filter_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/sinew "))
        {
            found.push((unit.display().to_string(), line.split_whitespace().map(str::to_owned).collect()));
        }
    }
    let compose = yaml(&deploy("compose/compose.yaml")).remove(0);
    for (name, service) in compose["services"].as_object().unwrap() {
        // The image has nats-server as well.
        if service["image"].as_str().is_some_and(|image| image.starts_with("sinew"))
            && service["entrypoint"].is_null()
        {
            found.push((format!("compose: {name}"), words(&service["command"])));
        }
    }
    for file in all("kubernetes", "yaml") {
        for document in yaml(&file) {
            for container in containers(&document)
                .filter(|container| container["image"] == "sinew" && container["command"].is_null())
            {
                found.push((file.display().to_string(), words(&container["args"])));
            }
        }
    }
    found
}

fn words(list: &Value) -> Vec<String> {
    let list = list.as_array().unwrap_or_else(|| panic!("no list of words: {list}"));
    list.iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// Containers of a workload.
pub(super) fn containers(document: &Value) -> impl Iterator<Item = &Value> {
    document["spec"]["template"]["spec"]["containers"].as_array().into_iter().flatten()
}

/// Whether the program knows this command line. Asking for help comes last, so everything before it was read.
pub(super) fn known(words: &[String]) -> Result<(), String> {
    let output = Command::new(env!("CARGO_BIN_EXE_sinew")).args(words).arg("--help").output().unwrap();
    if output.status.success() { Ok(()) } else { Err(said(&output)) }
}

#[test]
fn the_program_knows_every_command_line() {
    let lines = lines();
    assert!(lines.len() >= 9, "only {} were found", lines.len());
    for (place, words) in &lines {
        assert!(matches!(words[0].as_str(), "serve" | "mesh"), "{place}: {words:?}");
        if let Err(complaint) = known(words) {
            panic!("{place}: {words:?}: {complaint}");
        }
    }
    let wrong = ["serve", "executor", "--health-prt", "8080"].map(str::to_owned);
    assert!(known(&wrong).is_err(), "a wrong flag must be noticed");
}

#[test]
fn the_workflow_that_comes_along_is_good() {
    let output = Command::new(env!("CARGO_BIN_EXE_sinew"))
        .args(["workflow", "validate", "--strict"])
        .arg(deploy("kubernetes/flows"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
}
