//! Words that shells are offered while somebody types.
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::path::Path;
use std::process::Command;

/// Runs a command that must succeed, and gives its stdout.
fn ok(folder: &Path, args: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_sinew")).args(args).current_dir(folder).output().expect("it starts");
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Words that a shell is offered after what is typed.
fn offered(folder: &Path, typed: &[&str]) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_sinew"))
        .current_dir(folder)
        .env("COMPLETE", "zsh")
        .env("_CLAP_COMPLETE_INDEX", typed.len().to_string())
        .env("_CLAP_IFS", "\n")
        .env_remove("NATS_URL")
        .args(["--", "sinew"])
        .args(typed)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{typed:?}: {}", String::from_utf8_lossy(&output.stderr));
    // Behind a colon stands what the word is about.
    let said = String::from_utf8(output.stdout).expect("text");
    said.lines().map(|line| line.split(':').next().unwrap_or_default().to_owned()).collect()
}

/// Ids, nodes, names and codes that exist are completed, beside commands and options.
#[test]
fn shells_are_offered_what_exists() {
    let here = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| std::fs::write(here.path().join(name), text).expect("written");
    file(
        "greeting.yaml",
        "name: greeting\nworkflow:\n  description: d\n  nodes:\n    - {id: hello, type: agent, agent_name: Hi}\n  \
         output_mapping: {all: '{{hello.output}}'}\n",
    );
    file(
        "hi.agent.yaml",
        "name: Hi\ndescription: Says hi.\nrun:\n  script:\n    source: |\n      def hi(input):\n          return 1\n",
    );
    ok(here.path(), &["run", "greeting.yaml", "--local"]);
    let id = ok(here.path(), &["execution", "list", "-o", "name", "--local"]).trim().to_owned();
    assert!(offered(here.path(), &["execution", "describe", "--local", &id[..4]]).contains(&id));
    assert!(offered(here.path(), &["execution", "describe", "--local", "@"]).contains(&"@latest".to_owned()));
    assert_eq!(
        offered(here.path(), &["execution", "describe", "--local", "@latest", "--node", "h"]),
        ["hello"]
    );
    assert_eq!(offered(here.path(), &["agent", "card", "--local", "H"]), ["Hi"]);
    assert!(offered(here.path(), &["explain", "SINEW-229"]).contains(&"SINEW-2291".to_owned()));
    assert!(offered(here.path(), &["run", "gree"]).contains(&"greeting.yaml".to_owned()));
    assert!(offered(here.path(), &["workflow", "val"]).contains(&"validate".to_owned()));
}
