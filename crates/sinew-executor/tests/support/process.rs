//! Executors and agents as processes of their own: this test binary, started again in another role.
//!
//! A process does what its role says until its standard input ends, so none outlives the test that started it. What it
//! has to tell are lines of JSON on its standard output, which survive its death.

use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sinew_agent::{Agent, CancellationToken, Context, Delivery, Failure};
use sinew_engine::{ActivationId, Adapter, AdapterContext, NodeDecision};
use sinew_executor::service::{Service, ServiceOptions};
use sinew_mesh::Mesh;
use sinew_plan::Plan;
use sinew_protocol::Fault;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{Semaphore, mpsc, watch};

use crate::support::mesh::{PATIENCE, adapters};
use crate::support::stub;

/// Says which role a process plays.
const ROLE: &str = "SINEW_TEST_ROLE";
/// Begins the lines that are meant for the test; the test harness prints others.
const MARK: &str = "@@";

/// Part that a process plays.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Role {
    pub(crate) url: String,
    pub(crate) namespace: String,
    pub(crate) part: Part,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    Executor {
        id: String,
        lease_ms: u64,
        compaction_threshold_bytes: Option<usize>,
    },
    /// An executor whose dialect aborts on [`POISON_START`] and [`POISON_RESULT`].
    FragileExecutor {
        id: String,
        lease_ms: u64,
    },
    /// Agents by name, each with the words of a stub; `card` has its schemas.
    Agents {
        direct: bool,
        /// They are asked through A2A alone.
        a2a: bool,
        agents: Vec<(String, Value, Value)>,
        /// The case takes so many times longer.
        slower: u64,
    },
}

/// A process that was started.
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::UnboundedReceiver<Value>,
    /// Reports so far.
    pub(crate) told: Vec<Value>,
}

impl Process {
    /// Starts it and waits until it is at work.
    pub(crate) async fn start(role: &Role) -> Self {
        let test = module_path!().split_once("::").unwrap().1;
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([&format!("{test}::helper"), "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ROLE, serde_json::to_string(role).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        // Read at once: a process whose pipe is full hangs.
        let (sender, lines) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                told(&line).map(|told| sender.send(told));
            }
        });
        let mut process = Self { child, stdin, lines, told: Vec::new() };
        process.until("it is at work", |told| told.iter().any(|line| line["at_work"] == true)).await;
        process
    }

    /// Reads what it tells until this holds.
    pub(crate) async fn until(&mut self, what: &str, mut holds: impl FnMut(&[Value]) -> bool) {
        let reading = async {
            while !holds(&self.told) {
                match self.lines.recv().await {
                    Some(told) => self.told.push(told),
                    None => return false,
                }
            }
            true
        };
        match tokio::time::timeout(PATIENCE, reading).await {
            Ok(true) => {}
            Ok(false) => panic!("a process ended before {what}: {:?}", self.told),
            Err(tokio::time::error::Elapsed { .. }) => panic!("waited in vain until {what}: {:?}", self.told),
        }
    }

    /// Calls that began, oldest first.
    pub(crate) fn began(&self) -> impl Iterator<Item = &Value> {
        self.told.iter().filter_map(|line| line.get("began"))
    }

    /// Waits for so many calls.
    pub(crate) async fn asked(&mut self, calls: usize) {
        let began = |told: &[Value]| told.iter().filter(|line| line.get("began").is_some()).count();
        self.until(&format!("{calls} calls"), |told| began(told) >= calls).await;
    }

    /// Lets one call end that was told to wait.
    pub(crate) async fn release(&mut self) {
        self.stdin.as_mut().unwrap().write_all(b"go\n").await.unwrap();
    }

    /// Most memory that it has had, in MiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().unwrap().cast_signed()).unwrap()
    }

    /// Ends it as a crash would. What it had told before can still be read.
    pub(crate) async fn kill9(&mut self) {
        kill_process(self.pid(), Signal::KILL).unwrap();
        self.gone().await;
    }

    /// Halts it as a machine that hangs would.
    pub(crate) fn pause(&self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) {
        kill_process(self.pid(), Signal::CONT).unwrap();
    }

    /// Asks it to end in peace, and waits for that.
    pub(crate) async fn end(&mut self) {
        drop(self.stdin.take());
        self.gone().await;
    }

    /// Waits for its end.
    pub(crate) async fn gone(&mut self) {
        tokio::time::timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap();
        while let Some(told) = self.lines.recv().await {
            self.told.push(told);
        }
    }
}

fn told(line: &str) -> Option<Value> {
    // The harness does not end its own line before ours begins.
    serde_json::from_str(line.split_once(MARK)?.1).ok()
}

fn tell(line: &Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{line}").unwrap();
    out.flush().unwrap();
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Not a test: what the processes of other tests do.
#[tokio::test]
#[ignore = "a process of other tests"]
async fn helper() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let role: Role = serde_json::from_str(&role).unwrap();
    let released = Arc::new(Semaphore::new(0));
    let (ending, ended) = watch::channel(());
    let go = Arc::clone(&released);
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).for_each(|_| go.add_permits(1));
        drop(ending);
    });
    let end = |mut ended: watch::Receiver<()>| async move { while ended.changed().await.is_ok() {} };
    match role.part.clone() {
        Part::Executor { id, lease_ms, compaction_threshold_bytes } => {
            let mesh = connect(&role, &id).await;
            let defaults = ServiceOptions::new(adapters);
            let compaction_threshold_bytes =
                compaction_threshold_bytes.unwrap_or(defaults.compaction_threshold_bytes);
            let lease = Duration::from_millis(lease_ms);
            let service =
                Service::start(mesh, ServiceOptions { id, lease, compaction_threshold_bytes, ..defaults })
                    .await
                    .unwrap();
            tell(&json!({ "at_work": true }));
            end(ended).await;
            service.drain().await;
        }
        Part::FragileExecutor { id, lease_ms } => {
            let mesh = connect(&role, &id).await;
            let lease = Duration::from_millis(lease_ms);
            let options = ServiceOptions { id, lease, ..ServiceOptions::new(fragile) };
            let service = Service::start(mesh, options).await.unwrap();
            tell(&json!({ "at_work": true }));
            end(ended).await;
            service.drain().await;
        }
        Part::Agents { direct, a2a, agents, slower } => {
            let delivery = if direct { Delivery::Direct } else { Delivery::Queue };
            let shutdown = CancellationToken::new();
            let mut serving = tokio::task::JoinSet::new();
            let mesh = connect(&role, "agents").await;
            let cards = mesh.cards().follow();
            let names: Vec<String> = agents.iter().map(|(name, ..)| name.clone()).collect();
            for (name, words, card) in agents {
                let caller = connect(&role, &name).await;
                let schema = |key: &str| card.get(key).cloned();
                let stub = Arc::new(Stub { words, asked: AtomicUsize::new(0), slower });
                let released = Arc::clone(&released);
                let (input, output) = (schema("input_schema"), schema("output_schema"));
                let agent = Agent::dynamic(name, input, output, move |input, context| {
                    let (stub, released) = (Arc::clone(&stub), Arc::clone(&released));
                    async move { stub.work(input, context, &released).await }
                });
                let agent = agent
                    .delivery(delivery)
                    .node_requests(!a2a)
                    .concurrency(64)
                    .grace(Duration::from_millis(100));
                serving.spawn(agent.serve(caller, shutdown.clone()));
            }
            for name in names {
                cards.wait_for(&name).await;
            }
            tell(&json!({ "at_work": true }));
            end(ended).await;
            shutdown.cancel();
            while serving.join_next().await.is_some() {}
        }
    }
}

/// An input with this text ends the process that begins an execution with it.
pub(crate) const POISON_START: &str = "a start that kills";
/// An agent's answer with this text ends the process that takes it.
pub(crate) const POISON_RESULT: &str = "a result that kills";

fn fragile(name: &str) -> Option<&'static dyn Adapter> {
    (name == "sam").then_some(&FragileAdapter)
}

/// The adapter of `sam`, but for what it does with poison.
struct FragileAdapter;

impl FragileAdapter {
    fn inner() -> &'static dyn Adapter {
        adapters("sam").unwrap()
    }

    fn taste(value: &Value, poison: &str) {
        if value.to_string().contains(poison) {
            std::process::abort();
        }
    }
}

impl Adapter for FragileAdapter {
    fn name(&self) -> &'static str {
        "sam"
    }

    fn admit(&self, plan: &Plan, input: Value) -> Result<Value, Fault> {
        Self::taste(&input, POISON_START);
        Self::inner().admit(plan, input)
    }

    fn bind(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        Self::inner().bind(ctx, act)
    }

    fn shape(&self, ctx: &AdapterContext<'_>, act: ActivationId) -> NodeDecision {
        if let Some(Ok(reply)) = ctx.act(act).replies.last().map(|replied| &replied.result) {
            Self::taste(&reply.output, POISON_RESULT);
        }
        Self::inner().shape(ctx, act)
    }

    fn result(&self, ctx: &AdapterContext<'_>) -> Result<Value, Fault> {
        Self::inner().result(ctx)
    }
}

async fn connect(role: &Role, caller: &str) -> Mesh {
    crate::support::mesh::connect(&role.url, &role.namespace, caller).await
}

/// An agent that answers as the words of its stub say.
struct Stub {
    words: Value,
    asked: AtomicUsize,
    slower: u64,
}

impl Stub {
    async fn work(&self, input: Value, context: Context, released: &Semaphore) -> Result<Value, Failure> {
        let earlier = self.asked.fetch_add(1, Ordering::SeqCst);
        let call = json!({
            "agent": context.agent(),
            "execution": context.execution(),
            "task": context.task(),
            "activation": context.activation(),
            "attempt": context.attempt(),
            "node": context.node(),
            "input": input,
            "at": now(),
        });
        tell(&json!({ "began": call }));
        let words = self.words.as_object();
        let held =
            words.is_some_and(|words| words.get("hold").is_some_and(|n| n.as_u64() > Some(earlier as u64)));
        let work = async {
            if held {
                released.acquire().await.unwrap().forget();
            }
            let Some(answer) = stub::answer(&self.words, &input, earlier) else {
                return std::future::pending().await;
            };
            tokio::time::sleep(Duration::from_millis(stub::delay(&self.words, earlier) * self.slower)).await;
            answer.map_err(Failure::new)
        };
        let word =
            |word: &str| json!({ word: { "agent": context.agent(), "task": context.task(), "at": now() } });
        tokio::select! {
            biased;
            () = context.cancel().cancelled() => {
                tell(&word("cancelled"));
                Err(Failure::new("it was given up"))
            }
            done = work => {
                tell(&word("ended"));
                done
            }
        }
    }
}
