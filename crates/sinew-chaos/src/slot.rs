//! A slot for a child process, which is restarted whenever it ends.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::Fallible;
use crate::memory_limit::MemoryLimit;
use crate::points::{Killing, Queue};
use crate::roles::MeshArgs;
use crate::target_group::TargetGroup;

/// Variable with replica and life of the agent's process, which it sends to the provider in requests.
pub(crate) const PROCESS_VARIABLE: &str = "CHAOS_PROCESS";

/// Delay before the restart of a process that ended unexpectedly.
const AGAIN: Duration = Duration::from_millis(300);
/// Time limit for a process to reach its crash point.
const TO_THE_POINT: Duration = Duration::from_secs(40);

/// Role of the process in a slot.
#[derive(Clone, Debug)]
pub(crate) struct Role {
    pub(crate) place: MeshArgs,
    pub(crate) what: What,
    /// A `sinew-chaos` of another version that alternates with this one.
    pub(crate) other_build: Option<OtherBuild>,
    /// Shared memory limit.
    pub(crate) memory: Option<Arc<MemoryLimit>>,
}

/// Program of another version, for executors or agents.
#[derive(Clone, Debug)]
pub(crate) struct OtherBuild {
    pub(crate) program: PathBuf,
    /// Whether the first process is of the other build; then they alternate.
    pub(crate) is_first: bool,
    /// Number of started processes of the other build.
    pub(crate) lives: Arc<AtomicU64>,
}

impl OtherBuild {
    /// Returns whether the process with this number is of the other build.
    fn has_turn(&self, life: u64) -> bool {
        life.is_multiple_of(2) == self.is_first
    }
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    Executor {
        name: String,
        lease: Duration,
        worn: usize,
        room: Option<usize>,
    },
    Agents {
        name: String,
        work: Duration,
    },
    Targets {
        group: TargetGroup,
    },
    /// The gateway, at a fixed address.
    Gateway {
        listen: std::net::SocketAddr,
        /// Whether requests require a key.
        is_guarded: bool,
    },
    /// The bridge for the agent with this card.
    Bridge {
        card: String,
    },
    /// The agent of conversations.
    Clerk {
        replica: usize,
    },
}

/// A live process.
pub(crate) struct Living {
    child: Child,
    _input: Option<ChildStdin>,
}

impl Role {
    /// Returns a role with only this build.
    pub(crate) const fn new(place: MeshArgs, what: What) -> Self {
        Self { place, what, other_build: None, memory: None }
    }

    fn name(&self) -> &str {
        match &self.what {
            What::Executor { name, .. } | What::Agents { name, .. } => name,
            What::Targets { group } => group.name(),
            What::Gateway { .. } => "gateway",
            What::Bridge { .. } => "bridge",
            What::Clerk { .. } => "clerk",
        }
    }

    /// Starts the process. `life` is the number of earlier processes in this slot.
    fn start(&self, life: u64, crash_at: Option<&Killing>) -> Fallible<Living> {
        let other_build = self.other_build.as_ref().filter(|build| build.has_turn(life));
        let mut command = match other_build {
            Some(build) => {
                build.lives.fetch_add(1, Ordering::Relaxed);
                Command::new(&build.program)
            }
            None => Command::new(std::env::current_exe()?),
        };
        match &self.what {
            What::Executor { name, lease, worn, room } => {
                // Usually the same id, which resumes its shards; else a new one, which takes them over.
                let id = if life % 4 == 3 { format!("{name}-{life}") } else { name.clone() };
                command.args(["executor", "--id", &id, "--lease-ms", &lease.as_millis().to_string()]);
                command.args(["--worn", &worn.to_string()]);
                // Older versions do not have this argument.
                if let (Some(room), None) = (room, other_build) {
                    command.args(["--room", &room.to_string()]);
                }
            }
            What::Agents { work, .. } => {
                command.args(["agents", "--work-ms", &work.as_millis().to_string()]);
            }
            What::Targets { group } => drop(command.args(["targets", "--group", group.name()])),
            What::Gateway { listen, is_guarded } => {
                command.args(["gateway-process", "--listen", &listen.to_string()]);
                command.args(is_guarded.then_some("--guarded"));
            }
            What::Bridge { card } => drop(command.args(["bridge-process", "--card", card])),
            What::Clerk { replica } => {
                command.arg("clerk").env(PROCESS_VARIABLE, format!("{replica}.{life}"));
            }
        }
        command.args(["--url", &self.place.url, "--namespace", &self.place.namespace]);
        command.arg("--folder").arg(&self.place.folder);
        if let Some(password) = &self.place.password {
            command.args(["--password", password]);
        }
        if let Some(killing) = crash_at {
            command.env(sinew_protocol::env::CRASH_AT, killing.to_string());
        }
        let log: PathBuf = self.place.folder.join(format!("{}.log", self.name()));
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        let mut child = command.spawn()?;
        if let Some((limit, process)) = self.memory.as_ref().zip(child.id()) {
            limit.admit(process)?;
        }
        // Keep stdin open: `wait` would close it, and the child ends when its stdin closes.
        let input = child.stdin.take();
        Ok(Living { child, _input: input })
    }
}

/// Fault of a process.
#[derive(Debug)]
pub(crate) enum Order {
    /// `kill -9`, and a restart after this time.
    Kill(Duration),
    /// `SIGSTOP` for this time.
    Halt(Duration),
    /// Notifies when all earlier orders are done.
    Say(oneshot::Sender<()>),
}

/// Number of faults of all slots of a kind.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) kills: AtomicU64,
    pub(crate) halts: AtomicU64,
    /// Unexpected ends.
    pub(crate) strays: AtomicU64,
}

/// A slot with its supervisor task.
#[derive(Debug)]
pub(crate) struct Slot {
    orders: mpsc::UnboundedSender<Order>,
    /// Id of the live process; 0 if there is none.
    process: Arc<AtomicU32>,
    work: tokio::task::JoinHandle<()>,
}

impl Slot {
    /// Opens a slot and starts its first process.
    pub(crate) fn open(role: Role, tally: Arc<Tally>) -> Self {
        let (orders, todo) = mpsc::unbounded_channel();
        let process = Arc::<AtomicU32>::default();
        let work = tokio::spawn(look_after(role, tally, todo, Arc::clone(&process)));
        Self { orders, process, work }
    }

    /// Returns the id of the live process.
    pub(crate) fn process_id(&self) -> Option<u32> {
        Some(self.process.load(Ordering::Relaxed)).filter(|id| *id != 0)
    }

    /// Queues an order.
    pub(crate) fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    /// Waits until all orders are done.
    pub(crate) async fn idle(&self) {
        let (say, said) = oneshot::channel();
        self.order(Order::Say(say));
        let _ = said.await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.work.abort();
    }
}

async fn look_after(
    role: Role,
    tally: Arc<Tally>,
    mut todo: mpsc::UnboundedReceiver<Order>,
    process: Arc<AtomicU32>,
) {
    let mut life = 0;
    loop {
        let Ok(Living { mut child, _input }) = role.start(life, None) else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        life += 1;
        process.store(child.id().unwrap_or_default(), Ordering::Relaxed);
        let wait = loop {
            let order = tokio::select! {
                _ = child.wait() => {
                    tally.strays.fetch_add(1, Ordering::Relaxed);
                    break AGAIN;
                }
                order = todo.recv() => order,
            };
            match order {
                None => return,
                Some(Order::Say(say)) => drop(say.send(())),
                Some(Order::Kill(down)) => {
                    if signal(&child, Signal::KILL) {
                        tally.kills.fetch_add(1, Ordering::Relaxed);
                    }
                    let _ = child.wait().await;
                    break down;
                }
                Some(Order::Halt(halt)) => {
                    if signal(&child, Signal::STOP) {
                        tally.halts.fetch_add(1, Ordering::Relaxed);
                    }
                    tokio::time::sleep(halt).await;
                    signal(&child, Signal::CONT);
                }
            }
        };
        process.store(0, Ordering::Relaxed);
        tokio::time::sleep(wait).await;
    }
}

fn signal(child: &Child, signal: Signal) -> bool {
    let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// Starts processes one after the other that crash at the points of the queue, then one that lives.
pub(crate) async fn die_by_the_list(role: Role, queue: Arc<Queue>) -> Fallible<Living> {
    let mut life = 0;
    while let Some(killing) = queue.next() {
        let Living { mut child, _input } = role.start(life, Some(&killing))?;
        life += 1;
        let began = Instant::now();
        let Ok(ended) = tokio::time::timeout(TO_THE_POINT, child.wait()).await else {
            child.kill().await?;
            queue.missed(killing);
            continue;
        };
        queue.ended(killing, died_there(ended?), began.elapsed());
    }
    role.start(life, None)
}

/// Returns whether the process crashed at its point.
fn died_there(ended: ExitStatus) -> bool {
    ended.signal() == Some(Signal::ABORT.as_raw())
}
