//! A mesh for tests of commands: real processes in a folder of their own, a real server.
#![allow(dead_code, unreachable_pub, reason = "each test uses what it needs")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what is wrong by panicking"
)]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::Value;
use sinew_mesh::async_nats::StatusCode;
use sinew_mesh::connect::Connect;
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{HeaderMap, Mesh};
use sinew_operations::dev_note::RunningDev;
use tempfile::TempDir;

/// Two nodes; the second one's agent comes later, or fails.
pub const FLOW: &str = r#"
workflow:
  description: Prices an order, then books it.
  version: "1.0"
  input_schema: {type: object, required: [amount], properties: {amount: {type: integer}}}
  nodes:
    - {id: price, type: agent, agent_name: Pricing, input: {amount: "{{workflow.input.amount}}"}}
    - {id: book, type: agent, agent_name: Booking, depends_on: [price], input: {price: "{{price.output.price}}"}}
  output_mapping: {booked: "{{book.output.booked}}"}
"#;
/// Agent of the first node: twice the amount.
pub const PRICING: &str =
    "name: Pricing\nrun: {script: {source: \"lambda input: {'price': input['amount'] * 2}\"}}\n";
/// Agent of the second node that fails.
pub const BROKEN: &str =
    "name: Booking\nrun: {script: {source: \"lambda input: {'booked': input['price'] // 0}\"}}\n";
/// Agent of the second node.
pub const BOOKING: &str =
    "name: Booking\nrun: {script: {source: \"lambda input: {'booked': input['price']}\"}}\n";

/// How long any one command may take.
const PATIENCE: Duration = Duration::from_mins(2);
/// Time between two looks at what a test waits for: without a pause the looks would take the time of what is looked at.
pub const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A process that is killed when its test ends.
pub struct Role(pub Child);

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Role {
    /// Tells it to stop, and waits until it has.
    pub fn stop(mut self) -> Option<i32> {
        let pid = self.0.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status().expect("kill");
        assert!(told.success());
        self.0.wait().expect("it ends").code()
    }
}

/// A folder, a server, and what runs on it.
pub struct World {
    folder: TempDir,
    pub url: String,
    server: Option<Server>,
    pub runtime: tokio::runtime::Runtime,
}

impl World {
    /// A provisioned mesh with an executor that is on its way.
    pub fn new() -> (Self, Role) {
        Self::with_shards(4)
    }

    /// The same with so many shards.
    pub fn with_shards(shards: u32) -> (Self, Role) {
        let mut world = Self::at(String::new());
        let server = world.runtime.block_on(Server::start(ServerOptions::default())).expect("a server");
        world.url = server.url();
        world.server = Some(server);
        world.ok(&["mesh", "provision", "--shards", &shards.to_string()]);
        let executor = world.serve(&["serve", "executor"]);
        (world, executor)
    }

    /// A world for `sinew dev`, and the port of a server that has just been stopped, which is free.
    pub fn for_dev() -> (Self, String) {
        let mut world = Self::at(String::new());
        let port = world.runtime.block_on(async {
            let mut server = Server::start(ServerOptions::default()).await.expect("a server");
            server.stop().await.unwrap();
            server.port().to_string()
        });
        world.url = format!("nats://127.0.0.1:{port}");
        (world, port)
    }

    /// A folder for commands that find their server at this address.
    pub fn at(url: String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder, url, server: None, runtime: tokio::runtime::Runtime::new().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// A command that sees this world and nothing of whoever runs the test.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sinew"));
        command.args(args).current_dir(self.path()).stdin(Stdio::null());
        for variable in ["NATS_CONTEXT", "NATS_USER", "NATS_PASSWORD", "SINEW_NAMESPACE", "CLICOLOR_FORCE"] {
            command.env_remove(variable);
        }
        command.env("XDG_CONFIG_HOME", self.path().join("config")).env("USER", "ada");
        command.env("XDG_STATE_HOME", self.path().join("state"));
        command.env("NATS_URL", &self.url).env("NO_COLOR", "1");
        command
    }

    pub fn run<S: AsRef<std::ffi::OsStr> + std::fmt::Debug>(&self, args: &[S]) -> Output {
        let child = self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.expect("it starts");
        let pid = child.id();
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || done.send(child.wait_with_output()));
        let Ok(output) = ended.recv_timeout(PATIENCE) else {
            kill(pid);
            panic!("sinew {args:?} has not ended within {PATIENCE:?}");
        };
        output.expect("it ends")
    }

    /// Stops the server; what it has stored stays.
    pub fn stop_server(&mut self) {
        let server = self.server.as_mut().expect("a server of this world");
        self.runtime.block_on(server.stop()).expect("it stops");
    }

    /// Halts the server for a while, as a machine that hangs would.
    pub fn pause_server(&self, time: Duration) {
        let server = self.server.as_ref().expect("a server of this world");
        self.runtime.block_on(server.pause()).expect("it halts");
        std::thread::sleep(time);
        server.resume().expect("it goes on");
    }

    /// Starts the server again, at the same address.
    pub fn start_server_again(&mut self) {
        let server = self.server.as_mut().expect("a server of this world");
        self.runtime.block_on(server.restart()).expect("it starts");
    }

    /// Runs a command that must end well, and gives its stdout.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        self.ends(args, 0)
    }

    /// Runs a command that must end with this code, and gives its stdout.
    #[track_caller]
    pub fn ends(&self, args: &[&str], code: i32) -> String {
        let output = self.run(args);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{args:?}\nstdout: {out}\nstderr: {err}");
        out.trim_end().to_owned()
    }

    /// The same as one JSON document.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        let out = self.ok(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{args:?}: {error}: {out}"))
    }

    pub fn serve(&self, args: &[&str]) -> Role {
        // A role may run more than once: each goes on writing at the end.
        let log = std::fs::File::options().create(true).append(true).open(self.path().join("roles.log"));
        let child = self.command(args).stdout(Stdio::null()).stderr(log.expect("a log")).spawn();
        Role(child.expect("it starts"))
    }
}

impl World {
    /// Waits until the cards of these agents are on the mesh.
    pub fn online(&self, names: &[&str]) {
        self.runtime.block_on(async {
            let cards = self.connect("waiting").await.cards().follow();
            cards.ready().await;
            for name in names {
                let there = tokio::time::timeout(PATIENCE, cards.wait_for(name)).await;
                assert!(there.is_ok(), "the card of {name} has not come within {PATIENCE:?}");
            }
        });
    }

    /// Waits until an executor answers for an agent that takes its tasks from a queue.
    pub fn answered_for(&self, agent: &str) {
        let door = format!("call:{agent}");
        self.runtime.block_on(async {
            let mesh = self.connect("waiting").await;
            let ask = || mesh.services().call_rpc(&door, "GetTask", HeaderMap::new(), "{}".into(), PATIENCE);
            let answered = async {
                while ask().await.is_err() {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            };
            let answered = tokio::time::timeout(PATIENCE, answered).await;
            assert!(answered.is_ok(), "no executor answers for {agent} within {PATIENCE:?}");
        });
    }

    /// A connection of the test's own.
    pub async fn connect(&self, role: &'static str) -> Mesh {
        // The server of a `sinew dev` in this folder asks for a password.
        let dev = RunningDev::find(self.path());
        let user = dev.as_ref().map(|dev| dev.user().to_owned());
        let password = dev.map(|dev| dev.password);
        let connect = Connect { url: Some(self.url.clone()), role, user, password, ..Connect::default() };
        connect.open().await.expect("a mesh")
    }

    /// The first answers to a question on a subject; none where nobody listens.
    pub fn asked(&self, subject: &str, count: usize) -> Vec<Value> {
        self.runtime.block_on(async {
            let client = self.connect("asking").await.client().clone();
            let inbox = client.new_inbox();
            let mut answers = client.subscribe(inbox.clone()).await.unwrap();
            client.publish_with_reply(subject.to_owned(), inbox, "".into()).await.unwrap();
            let mut found = Vec::new();
            while found.len() < count {
                let answer = tokio::time::timeout(PATIENCE, answers.next()).await;
                let Ok(Some(answer)) = answer else {
                    panic!("{subject} was answered {} times of {count} within {PATIENCE:?}", found.len());
                };
                if answer.status == Some(StatusCode::NO_RESPONDERS) {
                    break;
                }
                found.push(serde_json::from_slice(&answer.payload).expect("JSON"));
            }
            found
        })
    }
}

/// Output of a process, line by line as it comes.
pub struct Said(mpsc::Receiver<String>);

impl Said {
    pub fn by(stream: impl std::io::Read + Send + 'static) -> Self {
        let (sender, said) = mpsc::channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stream).lines().map_while(Result::ok);
            lines.into_iter().for_each(|line| drop(sender.send(line)));
        });
        Self(said)
    }

    /// Waits for a line with this word, and gives what was said until then, and the line.
    #[track_caller]
    pub fn wait_for(&self, word: &str) -> String {
        let mut all = String::new();
        loop {
            let Ok(line) = self.0.recv_timeout(PATIENCE) else {
                panic!("{word:?} was not said within {PATIENCE:?}, or the process has ended; it said\n{all}");
            };
            all = all + &line + "\n";
            if line.contains(word) {
                return all;
            }
        }
    }

    /// Returns all that is said until the process ends.
    pub fn rest(&self) -> String {
        self.0.iter().map(|line| line + "\n").collect()
    }
}

/// Ends a process of ours that hangs.
pub fn kill(pid: u32) {
    let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it writes UTF-8")
}

/// Returns a folder with the packages that `requirements.txt` of a project names, filled once.
pub(crate) fn python_packages(project: &Path) -> PathBuf {
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
        // Another test process may have been faster; its folder is equal.
        if std::fs::rename(unfinished.path(), &folder).is_ok() {
            drop(unfinished.keep());
        }
    }
    folder
}
