//! Agent files that a command finds by itself: nothing of them runs before somebody trusts them.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A workflow whose agent leaves a mark when it runs.
const FLOW: &str = "
workflow:
  description: Looks harmless.
  nodes:
    - {id: a, type: agent, agent_name: Mark, input: {text: hello}}
  output_mapping: {text: \"{{a.output}}\"}
";
const MARK: &str = "
name: Mark
run: {command: {argv: [sh, mark.sh], env: {KEY: '${env:SECRET_KEY}'}, stdin: input}}
";
const CHATS: &str = "
name: Chats
run: {model: {use: [m], models: {m: {provider: script}}, tools: [{peer: Mark}]}}
";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(folder.path().join("agent-cards")).unwrap();
        folder.write("w.yaml", FLOW);
        folder.write("agent-cards/mark.agent.yaml", MARK);
        folder.write("agent-cards/mark.sh", "touch ../ran; echo '\"done\"'\n");
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
        command
            .args(args)
            .current_dir(self.path())
            .stdin(Stdio::null())
            .env("NO_COLOR", "1")
            .env("SECRET_KEY", "s");
        command.env("XDG_STATE_HOME", self.path().join("state")).output().unwrap()
    }

    /// Runs a command, and tells whether the program ran.
    #[track_caller]
    fn check(&self, args: &[&str], code: i32, runs: bool) -> String {
        let output = self.run(args);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {told}");
        assert_eq!(std::fs::remove_file(self.path().join("ran")).is_ok(), runs, "{args:?}: {told}");
        told
    }
}

#[test]
fn agents_that_were_found_run_once_they_are_trusted() {
    let folder = Folder::new();
    let run = ["run", "w.yaml", "-q"];
    let told = folder.check(&run, 7, false);
    for words in ["SINEW-8054", "mark.agent.yaml", "sh mark.sh", "SECRET_KEY", "--trust", "--agents"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    for args in [
        &["run", "w.yaml", "-q", "--dry-run"][..],
        &["workflow", "validate", "w.yaml"],
        &["workflow", "describe", "w.yaml"],
        &["workflow", "render", "w.yaml"],
        &["workflow", "convert", "w.yaml", "--plan"],
        &["agent", "list"],
        &["agent", "describe", "Mark"],
    ] {
        folder.check(args, 0, false);
    }
    folder.write("agent-cards/chats.agent.yaml", CHATS);
    for args in [
        &["agent", "call", "Mark", "-i", "1"][..],
        &["agent", "call", "Chats", "-m", "hi"],
        &["agent", "call", "agent-cards/chats.agent.yaml", "-m", "hi"],
        &["chat", "Chats", "hi"],
        &["dev", "--ephemeral", "--port", "0"],
    ] {
        let told = folder.check(args, 7, false);
        assert!(told.contains("SINEW-8054"), "{args:?}: {told}");
    }
    // Naming is trusting, and is not remembered.
    folder.check(&["run", "w.yaml", "-q", "--agents", "agent-cards"], 0, true);
    folder.check(&["agent", "call", "agent-cards/mark.agent.yaml", "-i", "1"], 0, true);
    folder.check(&run, 7, false);
    folder.check(&["run", "w.yaml", "-q", "--trust"], 0, true);
    folder.check(&run, 0, true);
    folder.check(&["agent", "call", "Mark", "-i", "1"], 0, true);
    for (name, text) in [
        ("agent-cards/mark.sh", "touch ../ran; echo '\"changed\"'\n".to_owned()),
        ("agent-cards/mark.agent.yaml", MARK.replace("sh,", "sh, -e,")),
    ] {
        folder.write(name, &text);
        folder.check(&run, 7, false);
        folder.check(&["run", "w.yaml", "-q", "--trust"], 0, true);
    }
    // Another folder with the same files is another matter.
    let other = Folder::new();
    std::fs::create_dir_all(other.path().join("state/sinew")).unwrap();
    let store = "state/sinew/trusted-agents.json";
    std::fs::copy(folder.path().join(store), other.path().join(store)).unwrap();
    other.check(&run, 7, false);
}

#[test]
fn agents_that_only_compute_need_no_trust() {
    let folder = Folder::new();
    folder.write("agent-cards/mark.agent.yaml", "name: Mark\nrun: {script: {source: 'lambda input: 1'}}\n");
    folder.write("agent-cards/other.agent.yaml", &MARK.replace("Mark", "Other"));
    // Another agent of the folder is not called, so nobody is asked about it.
    folder.check(&["run", "w.yaml", "-q"], 0, false);
    folder.check(&["agent", "call", "Other", "-i", "1"], 7, false);
}

/// Other users of the machine read neither inputs nor outputs of local executions.
#[cfg(unix)]
#[test]
fn local_records_are_for_the_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    folder.write("agent-cards/mark.agent.yaml", "name: Mark\nrun: {script: {source: 'lambda input: 1'}}\n");
    let state = folder.path().join(".sinew");
    // As an older version made it.
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o755)).unwrap();
    for args in [&["run", "w.yaml", "-q"][..], &["agent", "call", "Mark", "-i", "1"]] {
        folder.check(args, 0, false);
        assert_eq!(std::fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700, "{args:?}");
    }
}
