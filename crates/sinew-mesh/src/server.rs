//! A nats-server as a child of this process, used by `sinew dev` and by all tests of the mesh.
//!
//! It listens on the loopback interface only. Every user of this machine can connect to it unless
//! it has a password.
//!
//! The server ends with this process. It runs in its own process group, so a Ctrl-C at the terminal
//! does not reach it before its owner has drained. If the owner is killed, a small watchdog kills
//! the server: a shell that waits for the end of a pipe which only the owner holds open. If
//! watchdog and owner are killed together, the store stays locked until the server is stopped
//! manually, and a second server is refused rather than started on the same files.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use std::{env, fmt, io};

use rand::Rng as _;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use sinew_protocol::env::{NATS_INSTALL, NATS_SERVER};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::error::MeshError;
use crate::private_file::write_private_file;
use crate::version::Version;

/// Path of the program in the cache folder, where deploy/get-nats.sh installs it.
const CACHED: &str = "sinew/nats-server-2.15.1/nats-server";
/// Recovering a large store takes a while; a broken server exits immediately.
const READY_WITHIN: Duration = Duration::from_mins(1);
/// Timeout of a graceful stop, before the process is killed.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// Memory target of the server, in Go's format; `GOMEMLIMIT` in this process's environment
/// overrides it.
const MEMORY_TARGET: &str = "400MiB";
/// Growth of the server's memory in percent between two garbage collections below the target;
/// `GOGC` in this process's environment overrides it. Go's default of 100 costs a server that
/// stores small messages about a tenth of its processor time.
const GARBAGE_PERCENT: &str = "400";
/// Polling interval.
const LOOK: Duration = Duration::from_millis(2);
/// Below the ephemeral port range: otherwise a client that reconnects to a stopped server could get
/// the server's own port, and connect to itself.
pub(crate) const PORTS: std::ops::Range<u16> = 10_240..32_768;
/// Maximum number of ports to try.
const TRIES: usize = 20;
/// Maximum size of a server's greeting.
const LONGEST_GREETING: usize = 64 * 1024;
/// Folder of streams below the store.
pub(crate) const STREAMS: &str = "jetstream";
/// Number of bytes from the end of the log that an error shows.
const SHOWN_OF_LOG: u64 = 2_000;

/// Options for a server.
#[derive(Clone, Default)]
pub struct ServerOptions {
    /// Folder for its data, configuration and log; a temporary one by default.
    pub store: Option<PathBuf>,
    /// Port; a free one by default.
    pub port: Option<u16>,
    /// Maximum bytes of all streams together; limited by the disk by default.
    pub store_limit: Option<u64>,
    /// Whether every write is synced to the disk before it is acknowledged.
    pub sync_always: bool,
    /// Interval for syncing acknowledged writes; the server's default is two minutes.
    pub sync_interval: Option<Duration>,
    /// Additional configuration, in the server's syntax.
    pub config_extra: Option<String>,
    /// Program; found by [`Server::find`] by default.
    pub program: Option<PathBuf>,
    /// Cluster membership; a single server by default.
    pub member: Option<ClusterMember>,
    /// Password of [`SERVER_USER`], without quotes and backslashes; no authentication by default.
    pub password: Option<String>,
}

/// The user of a server that has a password.
pub const SERVER_USER: &str = "sinew";

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ServerOptions");
        shown.field("store", &self.store).field("port", &self.port).finish_non_exhaustive()
    }
}

/// Membership of a server in a local cluster.
#[derive(Clone, Debug)]
pub struct ClusterMember {
    /// Name of the cluster.
    pub cluster: String,
    /// Name of the server, stable across restarts: the cluster identifies its stream replicas by
    /// it.
    pub name: String,
    /// Port for cluster routes.
    pub port: u16,
    /// Route ports of all members.
    pub routes: Vec<u16>,
}

/// A running nats-server with JetStream, killed on drop.
#[derive(Debug)]
pub struct Server {
    options: ServerOptions,
    program: PathBuf,
    store: PathBuf,
    port: u16,
    /// Name of the server, which distinguishes it from another one on the same port.
    name: String,
    process: Option<ServerProcess>,
    _temporary: Option<TempDir>,
}

/// The server's process, and the watchdog that kills it after its owner has ended.
#[derive(Debug)]
struct ServerProcess {
    server: Child,
    watchdog: Option<Child>,
}

impl Server {
    /// Finds the nats-server: `SINEW_NATS_SERVER`, else the one in `PATH`, next to this program
    /// (where a wheel installs both) or in the cache folder. A version that is too old is an error
    /// only if it was named explicitly.
    pub fn find() -> Result<PathBuf, MeshError> {
        if let Some(named) = env::var_os(NATS_SERVER).filter(|named| !named.is_empty()) {
            let named = PathBuf::from(named);
            version_of(&named)?;
            return Ok(named);
        }
        let mut seen = Vec::new();
        let path = env::var_os("PATH").unwrap_or_default();
        let in_path = env::split_paths(&path).map(|folder| folder.join("nats-server"));
        let beside = env::current_exe().ok().map(|program| program.with_file_name("nats-server"));
        let in_cache = cache().map(|cache| cache.join(CACHED));
        for program in in_path.chain(beside).chain(in_cache).filter(|program| program.is_file()) {
            match version_of(&program) {
                Ok(_) => return Ok(program),
                Err(error) => seen.push(error.to_string()),
            }
        }
        Err(MeshError::NoServer { seen: seen.join("; ") })
    }

    /// Like [`Server::find`], but installs a missing server with this script, which prints its
    /// path. Runs once per process, because concurrent tests all call it.
    pub fn find_or_install(script: &Path) -> Result<PathBuf, MeshError> {
        static INSTALLED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let missing = match Server::find() {
            Err(missing @ MeshError::NoServer { .. }) => missing,
            found => return found,
        };
        let installed = INSTALLED.get_or_init(|| {
            let output = Command::new(script).stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
            let printed = String::from_utf8_lossy(&output.stdout);
            let said = String::from_utf8_lossy(&output.stderr);
            match printed.lines().last().map(PathBuf::from) {
                Some(program) if output.status.success() && program.is_file() => Ok(program),
                _ => Err(said.trim().to_owned()),
            }
        });
        installed.clone().map_err(|reason| MeshError::NoServer { seen: format!("{missing}; {reason}") })
    }

    /// Starts a server and waits until it accepts connections.
    ///
    /// If `SINEW_NATS_INSTALL` names a script, it installs a missing server: cargo sets this
    /// variable in this repository, so tests need no installation. An installed Sinew never
    /// downloads a program.
    pub async fn start(options: ServerOptions) -> Result<Self, MeshError> {
        let program = match (&options.program, env::var_os(NATS_INSTALL)) {
            (Some(program), _) => program.clone(),
            (None, Some(script)) => Self::find_or_install(Path::new(&script))?,
            (None, None) => Self::find()?,
        };
        version_of(&program)?;
        let failed = |what: &str, error: &io::Error| failed(format!("{what}: {error}"));
        let temporary = match options.store {
            Some(_) => None,
            None => Some(
                tempfile::Builder::new()
                    .prefix("sinew-nats-")
                    .tempdir()
                    .map_err(|e| failed("cannot create a temporary folder", &e))?,
            ),
        };
        let store =
            temporary.as_ref().map_or_else(|| options.store.clone().unwrap_or_default(), |t| t.path().into());
        fs::create_dir_all(&store).map_err(|e| failed(&store.display().to_string(), &e))?;
        let store = fs::canonicalize(&store).map_err(|e| failed(&store.display().to_string(), &e))?;
        let name = match &options.member {
            Some(member) => member.name.clone(),
            None => format!("sinew-{:016x}", rand::rng().random::<u64>()),
        };
        let mut server =
            Self { options, program, store, port: 0, name, process: None, _temporary: temporary };
        match server.options.port {
            Some(port) => {
                server.port = port;
                server.launch().await?;
            }
            None => server.launch_on_a_free_port().await?,
        }
        Ok(server)
    }

    /// Returns the address for clients.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns its name in the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the folder with its data, configuration and log.
    pub fn store(&self) -> &Path {
        &self.store
    }

    /// Returns the path of its log.
    pub fn log(&self) -> PathBuf {
        self.store.join("nats-server.log")
    }

    /// Returns the process id; `None` if it is not running.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.server.id())
    }

    /// Returns whether the process is running; a paused process counts.
    pub fn is_running(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| matches!(process.server.try_wait(), Ok(None)))
    }

    /// Kills the process like a crash, and waits for its end. The store remains.
    pub async fn kill9(&mut self) -> Result<(), MeshError> {
        self.end(Signal::KILL).await
    }

    /// Stops the server gracefully: it completes its writes and informs its clients. The store
    /// remains.
    pub async fn stop(&mut self) -> Result<(), MeshError> {
        self.end(Signal::TERM).await
    }

    /// Deletes all its data, like a replaced disk; kills it first if it is running.
    pub async fn empty_disk(&mut self) -> Result<(), MeshError> {
        self.kill9().await?;
        match fs::remove_dir_all(self.store.join(STREAMS)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed(format!("{}: {error}", self.store.display())))
            }
            _ => Ok(()),
        }
    }

    /// Restarts it on the same port and store; stops it first if it is running.
    pub async fn restart(&mut self) -> Result<(), MeshError> {
        self.stop().await?;
        self.launch().await
    }

    /// Pauses the process, like a machine that hangs. It replies to nothing once this returns.
    pub async fn pause(&self) -> Result<(), MeshError> {
        self.signal(Signal::STOP)?;
        // The process obeys a signal with a delay, thread by thread, and replies to requests until
        // then.
        timeout(STOP_WITHIN, async {
            while !self.is_halted()? {
                sleep(LOOK).await;
            }
            Ok(())
        })
        .await
        .unwrap_or_else(|_| Err(failed("it does not stop on SIGSTOP".to_owned())))
    }

    /// Resumes a paused process.
    pub fn resume(&self) -> Result<(), MeshError> {
        self.signal(Signal::CONT)
    }

    async fn launch_on_a_free_port(&mut self) -> Result<(), MeshError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let port = rand::rng().random_range(PORTS);
            if TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).is_err() && tries < TRIES {
                continue;
            }
            self.port = port;
            match self.launch().await {
                // Another process took the port in the meantime.
                Err(MeshError::ServerFailed { reason }) if reason.contains("in use") && tries < TRIES => {}
                done => return done,
            }
        }
    }

    /// Starts the process and waits until it accepts connections.
    async fn launch(&mut self) -> Result<(), MeshError> {
        let cannot = |path: &Path, error: &io::Error| failed(format!("{}: {error}", path.display()));
        let config = self.store.join("nats-server.conf");
        write_private_file(&config, self.config().as_bytes()).map_err(|e| cannot(&config, &e))?;
        let log = self.log();
        // The log of the previous server is kept, because it may contain the reason of its end.
        let _ = fs::rename(&log, log.with_extension("log.old"));
        let output = File::create(&log).map_err(|e| cannot(&log, &e))?;
        let errors = output.try_clone().map_err(|e| cannot(&log, &e))?;
        let server = Command::new(&self.program)
            .arg("--config")
            .arg(&config)
            .env("GOMEMLIMIT", env::var("GOMEMLIMIT").unwrap_or_else(|_| MEMORY_TARGET.to_owned()))
            .env("GOGC", env::var("GOGC").unwrap_or_else(|_| GARBAGE_PERCENT.to_owned()))
            // The process inherits the lock, so the lock lasts until the process ends.
            .stdin(self.lock().await?)
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(|e| cannot(&self.program, &e))?;
        let watchdog = watch(server.id());
        self.process = Some(ServerProcess { server, watchdog });
        let ready = self.ready().await;
        if ready.is_err() {
            self.process = None;
        }
        ready
    }

    fn config(&self) -> String {
        let sync = match (self.options.sync_always, self.options.sync_interval) {
            (true, _) => "sync_interval: always".to_owned(),
            (false, Some(interval)) => format!("sync_interval: \"{}ms\"", interval.as_millis()),
            (false, None) => String::new(),
        };
        let extra = self.options.config_extra.as_deref().unwrap_or_default();
        let limit = self.options.store_limit.map(|bytes| format!("max_file_store: {bytes},"));
        let limit = limit.unwrap_or_default();
        let store = quoted(&self.store.join(STREAMS));
        let password = self.options.password.as_deref();
        let login = password.map(authorization).unwrap_or_default();
        let cluster = self.options.member.as_ref().map(|member| member.config(password)).unwrap_or_default();
        format!(
            "# written by sinew at every start\nserver_name: {name}\nlisten: \"127.0.0.1:{port}\"\n\
             jetstream {{ store_dir: {store}, {limit} {sync} }}\n{login}\n{cluster}{extra}\n",
            name = self.name,
            port = self.port
        )
    }

    /// Locks the store, because two servers would destroy it. A process that was just killed may
    /// still hold the lock.
    async fn lock(&self) -> Result<File, MeshError> {
        let path = self.store.join("lock");
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = open.map_err(|e| failed(format!("{}: {e}", path.display())))?;
        let until = Instant::now() + STOP_WITHIN / 10;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < until => sleep(LOOK).await,
                Err(TryLockError::WouldBlock) => {
                    return Err(MeshError::StoreInUse { store: self.store.clone() });
                }
                Err(TryLockError::Error(error)) => {
                    return Err(failed(format!("{}: {error}", path.display())));
                }
            }
        }
    }

    /// Waits for the greeting, which the server sends after recovering its streams.
    async fn ready(&mut self) -> Result<(), MeshError> {
        let until = Instant::now() + READY_WITHIN;
        loop {
            if let Some(status) = self.exited() {
                return Err(failed(format!("it ended with {status}: {}", self.end_of_log())));
            }
            if timeout(Duration::from_secs(1), greeted(self.port, &self.name)).await.unwrap_or(false) {
                return Ok(());
            }
            if Instant::now() > until {
                let seconds = READY_WITHIN.as_secs();
                return Err(failed(format!("not ready after {seconds} s: {}", self.end_of_log())));
            }
            sleep(LOOK).await;
        }
    }

    fn exited(&mut self) -> Option<ExitStatus> {
        self.process.as_mut().and_then(|process| process.server.try_wait().ok().flatten())
    }

    fn end_of_log(&self) -> String {
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(self.log())?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(SHOWN_OF_LOG)))?;
            let mut bytes = Vec::new();
            file.take(SHOWN_OF_LOG).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.lines().rev().take(3).collect();
        let text = lines.into_iter().rev().collect::<Vec<_>>().join(" / ");
        text.chars().filter(|c| !c.is_control()).collect()
    }

    async fn end(&mut self, signal: Signal) -> Result<(), MeshError> {
        if self.process.is_none() {
            return Ok(());
        }
        // A paused process would never handle the signal; one that has ended cannot be signalled.
        let _ = self.signal(signal);
        let _ = self.signal(Signal::CONT);
        let until = Instant::now() + STOP_WITHIN;
        while self.exited().is_none() && Instant::now() < until {
            sleep(LOOK).await;
        }
        self.process = None;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<(), MeshError> {
        kill_process(self.process_id()?, signal).map_err(|error| failed(format!("cannot signal it: {error}")))
    }

    /// Returns whether every thread of the process is stopped.
    fn is_halted(&self) -> Result<bool, MeshError> {
        let look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let state = waitid(WaitId::Pid(self.process_id()?), look);
        Ok(state.map_err(|error| failed(format!("cannot read its state: {error}")))?.is_some())
    }

    fn process_id(&self) -> Result<Pid, MeshError> {
        let pid = self.process.as_ref().and_then(|process| Pid::from_raw(process.server.id().cast_signed()));
        pid.ok_or_else(|| failed("it is not running".to_owned()))
    }
}

impl ClusterMember {
    /// Returns its lines in the server's configuration. The other members have the same password.
    fn config(&self, password: Option<&str>) -> String {
        let login = password.map(|password| format!("{SERVER_USER}:{password}@")).unwrap_or_default();
        let routes: Vec<String> =
            self.routes.iter().map(|port| format!("\"nats://{login}127.0.0.1:{port}\"")).collect();
        format!(
            "cluster {{ name: \"{}\", listen: \"127.0.0.1:{}\", routes: [{}]\n{} }}\n",
            self.cluster,
            self.port,
            routes.join(", "),
            password.map(authorization).unwrap_or_default()
        )
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Stop the watchdog first: after the server is reaped, its process id may be reused.
        for child in self.watchdog.iter_mut().chain([&mut self.server]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Starts the watchdog, which kills the server when this process ends for any reason.
fn watch(server: u32) -> Option<Child> {
    let script = "read -r _; kill -KILL \"$1\"";
    let watchdog = Command::new("/bin/sh")
        .args(["-c", script, "sinew-watchdog", &server.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn();
    if let Err(error) = &watchdog {
        tracing::warn!(%error, "nats-server keeps running if this process is killed");
    }
    watchdog.ok()
}

/// Returns whether the server with this name sends its greeting on this port.
async fn greeted(port: u16, name: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else {
        return false;
    };
    let mut greeting = Vec::new();
    while !greeting.ends_with(b"\n") && greeting.len() < LONGEST_GREETING {
        if !matches!(stream.read_buf(&mut greeting).await, Ok(1..)) {
            return false;
        }
    }
    greeting.starts_with(b"INFO ") && String::from_utf8_lossy(&greeting).contains(name)
}

/// Returns the version of a nats-server program if it is supported.
fn version_of(program: &Path) -> Result<Version, MeshError> {
    let failed = |reason: String| MeshError::NoServer { seen: format!("{}: {reason}", program.display()) };
    let run = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let output = run.map_err(|error| failed(error.to_string()))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let version = printed.split_whitespace().find_map(Version::parse);
    let version = version.ok_or_else(|| failed("it does not report its version".to_owned()))?;
    if version.is_supported() {
        Ok(version)
    } else {
        Err(MeshError::OldServer { what: program.display().to_string(), version })
    }
}

/// Returns the user's cache folder.
fn cache() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
}

/// Configures the single user for clients, or for cluster members.
fn authorization(password: &str) -> String {
    format!("authorization {{ user: \"{SERVER_USER}\", password: \"{password}\" }}")
}

/// Quotes a path for the server's configuration language.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn failed(reason: String) -> MeshError {
    MeshError::ServerFailed { reason }
}
