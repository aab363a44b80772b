//! The project that `sinew new agent --kind python` makes, with the commands that its README says.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::{Role, World};

/// A folder with what `requirements.txt` of a project names, filled once.
fn requirements(project: &Path) -> PathBuf {
    let file = project.join("requirements.txt");
    let wanted = std::fs::read_to_string(&file).unwrap();
    let name: String =
        wanted.trim().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if !folder.exists() {
        let unfinished = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let pip = Command::new("python3")
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--root-user-action=ignore",
            ])
            .arg("--target")
            .arg(unfinished.path())
            .arg("-r")
            .arg(&file)
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(pip.success(), "pip could not install {wanted}");
        // Another test process may have been faster: then theirs is as good.
        if std::fs::rename(unfinished.path(), &folder).is_ok() {
            drop(unfinished.keep());
        }
    }
    folder
}

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
        .env("PYTHONPATH", requirements(&project))
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
