//! The Compose file without containers: its services as plain processes, with their commands, environments, volumes and
//! order. Paths and ports are those of this machine; what only a container has (users, limits, networks) is not there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;

use super::{deploy, nats, read, root, said, yaml};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// A service that runs, and what it says.
struct Process {
    name: String,
    child: Option<Child>,
    said: mpsc::Receiver<String>,
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Process {
    fn start(name: &str, mut command: Command, log: &Path) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{name}: {error}"));
        let said = listen(child.stderr.take().unwrap(), File::create(log).unwrap());
        Self { name: name.to_owned(), child: Some(child), said }
    }

    /// Waits until it has said something with this word, and gives what follows it in the line.
    fn says(&self, word: &str) -> String {
        loop {
            let Ok(line) = self.said.recv_timeout(PATIENCE) else {
                panic!("{} has not said {word:?} within {PATIENCE:?}, or has ended", self.name);
            };
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Tells it to stop, the way Compose does, and waits until it has.
    fn stop(mut self) -> Option<i32> {
        let mut child = self.child.take().unwrap();
        let pid = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || done.send(child.wait()));
        let Ok(status) = ended.recv_timeout(PATIENCE) else {
            let _ = Command::new("kill").args(["-KILL", &pid]).status();
            panic!("{} has not stopped within {PATIENCE:?}", self.name);
        };
        status.unwrap().code()
    }
}

/// Hands on what a process says, line by line, and keeps it.
fn listen(stderr: ChildStderr, mut log: File) -> mpsc::Receiver<String> {
    let (sender, said) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let _ = writeln!(log, "{line}");
            let _ = sender.send(line);
        }
    });
    said
}

/// `${NAME:-default}` and `${NAME:?why}`, as Compose reads them.
fn filled(text: &str, variables: &BTreeMap<&str, &str>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (inside, after) = after.split_once('}').unwrap_or_else(|| panic!("unclosed: {text}"));
        let (name, default) = match (inside.split_once(":-"), inside.split_once(":?")) {
            (Some((name, default)), _) => (name, Some(default)),
            (_, Some((name, _))) => (name, None),
            _ => (inside, None),
        };
        let value = variables.get(name).copied().or(default);
        out = out + before + value.unwrap_or_else(|| panic!("{name} must be set: {text}"));
        rest = after;
    }
    out + rest
}

/// A Compose file, and what its variables are set to.
struct Compose<'a> {
    file: Value,
    variables: BTreeMap<&'a str, &'a str>,
    /// Where named volumes and logs lie.
    folder: PathBuf,
}

impl Compose<'_> {
    fn service(&self, name: &str) -> &Value {
        let service = &self.file["services"][name];
        assert!(service.is_object(), "there is no service {name}");
        service
    }

    /// Returns the services that a service must wait for.
    fn waits(&self, name: &str) -> Vec<(String, String)> {
        let on = self.service(name)["depends_on"].as_object().into_iter().flatten();
        on.map(|(other, how)| (other.clone(), how["condition"].as_str().unwrap().to_owned())).collect()
    }

    /// Where paths of its container lie here.
    fn volumes(&self, name: &str) -> Vec<(String, PathBuf)> {
        let volumes = self.service(name)["volumes"].as_array().into_iter().flatten();
        let mapped = volumes.map(|volume| {
            let volume = filled(volume.as_str().unwrap(), &self.variables);
            let mut parts = volume.split(':');
            let (here, there) = (parts.next().unwrap(), parts.next().unwrap());
            let here = if self.file["volumes"].get(here).is_some() {
                let folder = self.folder.join(here);
                fs::create_dir_all(&folder).unwrap();
                folder
            } else {
                deploy("compose").join(here).canonicalize().unwrap_or_else(|error| panic!("{here}: {error}"))
            };
            (there.to_owned(), here)
        });
        mapped.collect()
    }

    /// Its program with its environment and nothing else.
    fn command(&self, name: &str, program: &Path, more: &[(&str, &str)]) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(&self.folder);
        for (variable, value) in self.service(name)["environment"].as_object().into_iter().flatten() {
            command.env(variable, filled(value.as_str().unwrap(), &self.variables));
        }
        command.envs(more.iter().copied());
        command
    }

    /// The words of its command, with paths of this machine, and a free port for its health.
    fn words(&self, name: &str) -> Vec<String> {
        let volumes = self.volumes(name);
        let words = self.service(name)["command"].as_array().unwrap();
        let mut health = "";
        let mapped = words.iter().map(|word| {
            let word = word.as_str().unwrap();
            let after = std::mem::replace(&mut health, word);
            match (after, volumes.iter().find(|(there, _)| there == word)) {
                ("--health-port", _) => "0".to_owned(),
                ("--health-address", _) => "127.0.0.1".to_owned(),
                (_, Some((_, here))) => here.display().to_string(),
                _ => word.to_owned(),
            }
        });
        mapped.collect()
    }
}

/// Returns the answer of an address to a GET.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap_or_else(|error| panic!("{address}{path}: {error}"));
    answer
}

/// The server's configuration, for this machine: its store, and any ports that are free.
fn configured(compose: &Compose<'_>) -> PathBuf {
    let volumes = compose.volumes("nats");
    let here = |there: &str| volumes.iter().find(|(at, _)| at == there).map(|(_, here)| here).unwrap();
    let etc = compose.folder.join("etc");
    fs::create_dir_all(&etc).unwrap();
    fs::copy(here("/etc/nats/accounts.conf"), etc.join("accounts.conf")).unwrap();
    let mut text = read(here("/etc/nats/nats.conf"));
    for (there, here) in [
        ("host: \"0.0.0.0\"", "host: \"127.0.0.1\"".to_owned()),
        ("port: 4222", "port: -1".to_owned()),
        ("http: \"127.0.0.1:8222\"", "http: \"127.0.0.1:-1\"".to_owned()),
        ("\"/data\"", format!("\"{}\"", here("/data").display())),
    ] {
        assert!(text.contains(there), "nats.conf has no {there}");
        text = text.replace(there, &here);
    }
    fs::write(etc.join("nats.conf"), text).unwrap();
    etc.join("nats.conf")
}

#[test]
fn the_topology_runs_an_execution_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let password = "a-password-of-this-test-only";
    let compose = Compose {
        file: yaml(&deploy("compose/compose.yaml")).remove(0),
        variables: BTreeMap::from([("NATS_SYS_PASSWORD", password), ("NATS_SINEW_PASSWORD", password)]),
        folder: folder.path().to_owned(),
    };
    let log = |name: &str| compose.folder.join(format!("{name}.log"));
    let sinew = Path::new(env!("CARGO_BIN_EXE_sinew"));

    let mut server = compose.command("nats", &nats::server(), &[]);
    server.arg("--config").arg(configured(&compose));
    let server = Process::start("nats", server, &log("nats"));
    let listens = server.says("Listening for client connections on ");
    let url = format!("nats://{listens}");
    assert_eq!(compose.service("executor")["environment"]["NATS_URL"], "nats://nats:4222");
    let here = [("NATS_URL", url.as_str())];

    // Provisioning waits for the server by itself; all else waits until it has ended well.
    assert_eq!(compose.waits("provision"), [("nats".to_owned(), "service_started".to_owned())]);
    let provisioned =
        compose.command("provision", sinew, &here).args(compose.words("provision")).output().unwrap();
    assert!(provisioned.status.success(), "{}", said(&provisioned));

    let mut running = Vec::new();
    for name in ["executor", "agent"] {
        let after = [("provision".to_owned(), "service_completed_successfully".to_owned())];
        assert_eq!(compose.waits(name), after, "{name}");
        for replica in 0..compose.service(name)["deploy"]["replicas"].as_u64().unwrap() {
            let mut command = compose.command(name, sinew, &here);
            command.args(compose.words(name));
            let name = format!("{name}-{replica}");
            let process = Process::start(&name, command, &log(&name));
            let health = process.says("health and metrics: http://").replace("/readyz", "");
            running.push((process, health));
        }
    }
    assert_eq!(running.len(), 3, "two executors and one agent");

    let examples = root().join("examples/orders");
    let ran = compose
        .command("executor", sinew, &here)
        .args(["run", "orders", "--mesh", "--wait", "--timeout", "1m", "-o", "json", "-i"])
        .arg(format!("@{}", examples.join("order.json").display()))
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|_| panic!("{}", said(&ran)));
    assert_eq!((ran.status.code(), &told["status"]), (Some(0), &Value::from("succeeded")), "{told:#}");

    for (process, health) in &running {
        assert!(get(health, "/readyz").starts_with("HTTP/1.0 200"), "{} is not ready", process.name);
    }
    // The service that began last stops first; all of them drain.
    for (process, _) in running.into_iter().rev() {
        let name = process.name.clone();
        assert_eq!(process.stop(), Some(0), "{name}: {}", read(&log(&name)));
    }
    server.stop();
    assert!(read(&log("nats")).contains("Server Exiting"), "{}", read(&log("nats")));
}

#[test]
fn variables_are_filled_as_compose_does() {
    let variables = BTreeMap::from([("A", "1")]);
    for (text, want) in
        [("${A:?x}", "1"), ("${A:-2}:/b", "1:/b"), ("${B:-../c}:/b", "../c:/b"), ("${B:-}", ""), ("x", "x")]
    {
        assert_eq!(filled(text, &variables), want, "{text}");
    }
}
