//! The project that `sinew new agent --kind python` makes, with the commands that its README says.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::{Role, World, python_packages};

/// The agent reads nothing but its queue, so an execution asks it.
#[test]
fn the_agent_of_a_python_project_is_called() {
    let (world, _executor) = World::new();
    world.ok(&["new", "agent", "billing", "--kind", "python"]);
    let project = world.path().join("billing");
    let readme = std::fs::read_to_string(project.join("README.md")).unwrap();
    let call = "sinew agent call billing --mesh -p name=Ada";
    assert!(readme.contains(&format!("$ {call}")) && readme.contains("venv/bin/python agent.py"), "{readme}");
    let agent = Command::new("python3")
        .arg("agent.py")
        .current_dir(&project)
        .env("PYTHONPATH", python_packages(&project))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NATS_URL", &world.url)
        .stdout(Stdio::null())
        .spawn()
        .map(Role)
        .unwrap();
    world.online(&["billing"]);
    world.answered_for("billing");
    let words: Vec<&str> = call.split(' ').skip(1).collect();
    let answer: Value = serde_json::from_str(&world.ok(&words)).unwrap();
    assert_eq!(answer, json!({ "text": "Hello, Ada!" }));
    drop(agent);
}
