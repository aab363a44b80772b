//! The live tree of an execution, in one process and of a mesh, and how a command ends when it is told to stop. Agents say that they have begun, and wait until the test lets them go on, through pipes of the file system.

use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::pty::Watched;
use crate::common::{World, kill};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

const QUICK: &str = "name: Quick\nrun: {script: {source: \"lambda input: {'ok': True}\"}}\n";
/// Says its process id, then waits for a word, and answers with it. When it is told to stop it leaves a file.
const GATE: &str = r#"
import json, os, signal, sys
def stop(*_):
    open("tidied", "w").close()
    sys.exit(1)
signal.signal(signal.SIGTERM, stop)
with open("begun.pipe", "w") as begun:
    begun.write(str(os.getpid()))
with open("go.pipe") as go:
    word = go.read()
if word == "fail":
    sys.exit("the gate is stuck")
print(json.dumps({"word": word}))
"#;
const GATE_AGENT: &str = "name: Gate\nrun: {command: {argv: [python3, gate.py]}}\n";
const CHAIN: &str = r#"
workflow:
  description: Waits at a gate.
  version: "1.0"
  nodes:
    - {id: first, type: agent, agent_name: Quick, input: {}}
    - {id: second, type: agent, agent_name: Gate, depends_on: [first], input: {}}
  output_mapping: {word: "{{second.output.word}}"}
"#;
const AGAIN: &str = r#"
workflow:
  description: Tries a gate again.
  version: "1.0"
  nodes:
    - {id: gate, type: agent, agent_name: Gate, input: {}, retryStrategy: {limit: 2, retryPolicy: Always, backoff: {duration: 1s}}}
  output_mapping: {word: "{{gate.output.word}}"}
"#;

/// Writes the agents into a folder, and gives their gate.
fn gate(world: &World, folder: &str) -> Gate {
    world.write(&format!("{folder}/quick.agent.yaml"), QUICK);
    world.write(&format!("{folder}/gate.agent.yaml"), GATE_AGENT);
    world.write(&format!("{folder}/gate.py"), GATE);
    let at = world.path().join(folder);
    for name in ["begun.pipe", "go.pipe"] {
        let made = Command::new("mkfifo").arg(at.join(name)).status().expect("mkfifo");
        assert!(made.success());
    }
    Gate(at)
}

/// The test's end of the pipes of the agent `Gate`.
struct Gate(PathBuf);

impl Gate {
    /// Waits until the agent has begun, and gives its process.
    fn begun(&self) -> u32 {
        let text = within(self.0.join("begun.pipe"), |path| {
            let mut text = String::new();
            OpenOptions::new().read(true).open(path).unwrap().read_to_string(&mut text).unwrap();
            text
        });
        text.parse().unwrap()
    }

    /// Lets the agent go on with this word.
    fn go(&self, word: &'static str) {
        within(self.0.join("go.pipe"), move |path| {
            OpenOptions::new().write(true).open(path).unwrap().write_all(word.as_bytes()).unwrap();
        });
    }
}

/// Does something that waits for another process, and panics if that does not come.
fn within<T: Send + 'static>(path: PathBuf, work: impl FnOnce(&Path) -> T + Send + 'static) -> T {
    let (sender, done) = mpsc::channel();
    let shown = path.display().to_string();
    std::thread::spawn(move || sender.send(work(&path)));
    done.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{shown}: the other end has not come"))
}

fn terminal(world: &World, args: &[&str], columns: u16, rows: u16) -> Watched {
    let mut command = world.command(args);
    command.env_remove("NO_COLOR").env_remove("NATS_URL").env("TERM", "xterm-256color");
    Watched::start(command, columns, rows)
}

#[test]
fn the_live_tree_shows_every_change_and_ends_whole() {
    let world = World::at("nats://127.0.0.1:1".to_owned());
    let gate = gate(&world, "agent-cards");
    world.write("chain.yaml", CHAIN);
    let mut seen = terminal(&world, &["run", "chain.yaml", "--trust"], 160, 50);
    gate.begun();
    // The last change is seen although no other change follows.
    seen.wait_for("the end of the first node", PATIENCE, |screen| {
        screen.contains("✓ first   succeeded") && screen.contains("◐ second  running")
    });
    gate.go("on");
    let (code, screen) = seen.ended(PATIENCE);
    assert_eq!(code, Some(0), "{screen}");
    for line in ["✓ first   succeeded", "✓ second  succeeded", "2/2 nodes", "\"word\": \"on\""] {
        assert!(screen.contains(line), "no {line:?} in\n{screen}");
    }
}

#[test]
fn the_time_until_the_next_attempt_runs_down() {
    let world = World::at("nats://127.0.0.1:1".to_owned());
    let gate = gate(&world, "agent-cards");
    world.write("again.yaml", &AGAIN.replace("duration: 1s", "duration: 5s"));
    let mut seen = terminal(&world, &["run", "again.yaml", "--trust"], 160, 50);
    gate.begun();
    gate.go("fail");
    let left = |screen: &str| Some(screen.rsplit_once("next in ")?.1.split(':').next()?.to_owned());
    let screen = seen.wait_for("a time", PATIENCE, |screen| left(screen).is_some());
    let first = left(&screen);
    // Less time is left although nothing happens meanwhile.
    seen.wait_for("another time", PATIENCE, |screen| left(screen).is_some_and(|now| Some(now) != first));
}

#[test]
fn small_terminals_keep_the_node_that_runs_and_the_message() {
    let world = World::at("nats://127.0.0.1:1".to_owned());
    let gate = gate(&world, "agent-cards");
    let quick = |n: usize| format!("    - {{id: quick_{n}, type: agent, agent_name: Quick, input: {{}}}}\n");
    let after: Vec<String> = (0..12).map(|n| format!("quick_{n}")).collect();
    let many: String = (0..12).map(quick).collect();
    let file = format!(
        "workflow:\n  description: Many.\n  version: \"1.0\"\n  nodes:\n{many}    - {{id: gate_at_the_end, type: agent, \
         agent_name: Gate, depends_on: [{}], input: {{}}}}\n  output_mapping: {{gate: \"{{{{gate_at_the_end.output}}}}\"}}\n",
        after.join(", ")
    );
    world.write("many.yaml", &file);
    let mut seen = terminal(&world, &["run", "many.yaml", "--trust"], 60, 6);
    gate.begun();
    // The last line of a picture comes last.
    let screen = seen.wait_for("the node that runs", PATIENCE, |screen| {
        screen.contains("◐ gate_at_the_end") && screen.contains("more")
    });
    assert!(screen.contains("many  running"), "{screen}");
    assert!(screen.lines().count() < 6, "{screen}");
    gate.go("fail");
    let (code, screen) = seen.ended(PATIENCE);
    assert_eq!(code, Some(1), "{screen}");
    // The last picture has all lines, and the message as long as it is.
    let lines = screen.lines().filter(|line| line.starts_with("✓ quick_")).count();
    assert_eq!(lines, 12, "{screen}");
    assert!(screen.contains("the gate is stuck"), "{screen}");
}

#[test]
fn a_command_that_is_stopped_says_so_and_leaves_no_program() {
    let cases = [("-INT", None, 130), ("-TERM", None, 130), ("", Some("1500ms"), 5)];
    for (signal, timeout, want) in cases {
        let world = World::at("nats://127.0.0.1:1".to_owned());
        let gate = gate(&world, "agent-cards");
        world.write("chain.yaml", CHAIN);
        let mut args = vec!["run", "chain.yaml", "-q", "--local", "--trust"];
        args.extend(timeout.iter().flat_map(|timeout| ["--timeout", timeout]));
        let child = world.command(&args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (pid, program) = (child.id(), gate.begun());
        if timeout.is_none() {
            let told = Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
            assert!(told.success());
        }
        let (sender, ended) = mpsc::channel();
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        let Ok(output) = ended.recv_timeout(PATIENCE) else {
            kill(pid);
            panic!("{signal} {timeout:?}: it has not ended");
        };
        let output = output.unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(want), "{signal} {timeout:?}: {told}");
        assert!(gate.0.join("tidied").exists(), "{signal} {timeout:?}: the program had no time to tidy up");
        assert!(
            !Path::new(&format!("/proc/{program}")).exists(),
            "{signal} {timeout:?}: the program is left"
        );
    }
}

#[test]
fn watch_shows_an_attempt_that_failed_while_the_next_one_works() {
    let (world, _executor) = World::new();
    let gate = gate(&world, "cards");
    world.write("again.yaml", AGAIN);
    let _agents = world.serve(&["serve", "agent", "cards"]);
    world.online(&["Gate"]);
    let mut command = world.command(&["run", "again.yaml", "--mesh", "--watch", "--id", "again"]);
    command.env_remove("NO_COLOR").env("TERM", "xterm-256color");
    let mut live = Watched::start(command, 160, 50);
    gate.begun();
    // Elsewhere it is told line by line.
    let mut lines = world.command(&["execution", "watch", "again"]);
    let lines = lines.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    live.wait_for("the first attempt", PATIENCE, |screen| screen.contains("◐ gate"));
    gate.go("fail");
    gate.begun();
    live.wait_for("the second attempt", PATIENCE, |screen| {
        screen.contains("attempt 2; attempt 1: ") && screen.contains("the gate is stuck")
    });
    gate.go("on");
    let (code, screen) = live.ended(PATIENCE);
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("✓ gate") && screen.contains("attempt 1: "), "{screen}");
    let lines = lines.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&lines.stderr);
    assert!(told.contains("gate: attempt 1 failed, retrying: "), "{told}");
}

#[test]
fn a_person_at_the_terminal_is_asked_and_answers() {
    let case: serde_json::Value = serde_json::from_str(super::APPROVAL).unwrap();
    for (typed, code, seen) in [("yes\n", 0, "edited"), ("\n", 8, "waiting for a person at 'ok'")] {
        let world = World::at("nats://127.0.0.1:1".to_owned());
        world.write("approve.json", &case["definition"].to_string());
        world.write("agent-cards/writer.agent.yaml", super::WRITER);
        world.write("agent-cards/editor.agent.yaml", super::EDITOR);
        let mut terminal = terminal(&world, &["run", "approve.json"], 100, 40);
        terminal.wait_for("the question", PATIENCE, |screen| screen.contains("'ok' asks: "));
        terminal.typed(typed);
        let (ended, screen) = terminal.ended(PATIENCE);
        assert_eq!(ended, Some(code), "{typed:?}: {screen}");
        assert!(screen.contains(seen), "{typed:?}: no {seen:?} in\n{screen}");
    }
}
