//! A server with the processes of a bench.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sinew_mesh::connect::Connect;
use sinew_mesh::server::{Server, ServerOptions};
use sinew_mesh::{Mesh, Provision};
use sinew_operations::deployment;
use sinew_operations::failure::{Failure, FailureKind};
use sinew_operations::workflow_file::Options;
use sinew_protocol::code;

use crate::order::{DriverOrder, MeasuredTime};
use crate::process::{BenchProcess, counter, cpu, free_port, resident};

/// Names of the agents, which the workflows reference.
pub(crate) const QUEUED: &str = "bench_queued";
pub(crate) const DIRECT: &str = "bench_direct";

/// Code of a failure to write the folder of the workflows.
const FOLDER: &str = code::BENCH_WORKFLOWS_NOT_WRITABLE.as_str();

/// Time limit for a gateway to listen, and the interval of checks.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(30);
const LISTEN_INTERVAL: Duration = Duration::from_millis(20);

/// Decisions of an execution that loads executors.
pub(crate) const DECISIONS: usize = 24;

/// Nodes of the drawn workflow.
pub(crate) const LARGE_NODES: usize = 10_000;

/// A server, executors, agents and the driver, in separate processes.
pub(crate) struct BenchCluster {
    server: Server,
    pub(crate) sync_always: bool,
    pub(crate) driver: BenchProcess,
    agent: BenchProcess,
    echo: BenchProcess,
    /// Model agents, if conversations are measured.
    talkers: Option<BenchProcess>,
    executors: Vec<BenchProcess>,
    /// Metrics port of each executor.
    ports: Vec<u16>,
    /// Threads of an executor; `None` for the number of cores.
    threads: Option<usize>,
    url: String,
}

/// CPU cost of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CpuCost {
    /// CPU microseconds of all processes, including the server.
    pub(crate) all: f64,
    pub(crate) server: f64,
    pub(crate) executor: f64,
    pub(crate) agent: f64,
    pub(crate) client: f64,
}

impl BenchCluster {
    /// Starts all processes and waits until they respond.
    pub(crate) async fn start(
        sync_always: bool,
        shards: Option<u32>,
        threads: Option<usize>,
    ) -> Result<Self, Failure> {
        let server = Server::start(ServerOptions { sync_always, ..ServerOptions::default() }).await?;
        let url = server.url();
        let mesh = connect(&url).await?;
        let shards = shards.and_then(std::num::NonZeroU32::new);
        mesh.admin().provision(&Provision { shards, ..Provision::default() }).await?;
        let folder = server.store().join("workflows");
        deployment::deploy_all(&mesh, &deployment::read_workflows(&workflows(folder)?, &Options::default())?)
            .await?;
        let log = server.store().join("bench.log");
        let mut echo = BenchProcess::start("echo", &["bench", "echo", "--nats", &url], &log)?;
        echo.read::<MeasuredTime>().await?;
        let mut agent = BenchProcess::start("agent", &["bench", "agent", "--nats", &url], &log)?;
        agent.read::<MeasuredTime>().await?;
        let mut driver = BenchProcess::start("driver", &["bench", "driver", "--nats", &url], &log)?;
        driver.read::<MeasuredTime>().await?;
        let (executors, ports) = (Vec::new(), Vec::new());
        let talkers = None;
        let mut cluster =
            Self { server, sync_always, driver, agent, echo, talkers, executors, ports, threads, url };
        cluster.executor()?;
        cluster.driver.ask::<MeasuredTime>(&DriverOrder::Owned).await?;
        Ok(cluster)
    }

    /// Returns the address of the server.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Starts the model agents.
    pub(crate) async fn talk(&mut self) -> Result<(), Failure> {
        let log = self.server.store().join("bench.log");
        let mut talkers = BenchProcess::start("talkers", &["bench", "talkers", "--nats", &self.url], &log)?;
        talkers.read::<MeasuredTime>().await?;
        self.talkers = Some(talkers);
        Ok(())
    }

    /// Returns the resident memory of the model agents' process, in MiB.
    pub(crate) fn talking_memory(&self) -> f64 {
        self.talkers.as_ref().and_then(BenchProcess::pid).map(resident).unwrap_or_default()
    }

    /// Starts another executor.
    pub(crate) fn executor(&mut self) -> Result<(), Failure> {
        let log = self.server.store().join("bench.log");
        let port = free_port()?;
        let health = port.to_string();
        let arguments = ["bench", "executor", "--nats", &self.url, "--health-port", &health];
        let executor = BenchProcess::start_with("executor", &arguments, self.threads, &log)?;
        self.executors.push(executor);
        self.ports.push(port);
        Ok(())
    }

    /// Deploys the workflow `large`.
    pub(crate) async fn deploy_large(&self) -> Result<(), Failure> {
        let folder = self.server.store().join("large");
        write_workflows(&folder, vec![("large".to_owned(), large())])?;
        let read = deployment::read_workflows(&[folder], &Options::default())?;
        deployment::deploy_all(&connect(&self.url).await?, &read).await?;
        Ok(())
    }

    /// Starts the floor of a gateway. Returns its address.
    pub(crate) async fn bare_gateway(&self) -> Result<(BenchProcess, SocketAddr), Failure> {
        let log = self.server.store().join("bench.log");
        let arguments = ["bench", "bare-gateway", "--nats", &self.url];
        let mut process = BenchProcess::start("bare gateway", &arguments, &log)?;
        let address = process.read().await?;
        Ok((process, address))
    }

    /// Starts a gateway with additional arguments. Returns its address once it listens.
    pub(crate) async fn gateway(&self, more: &[&str]) -> Result<(BenchProcess, SocketAddr), Failure> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let log = self.server.store().join("bench.log");
        let listen = address.to_string();
        let arguments = ["bench", "gateway", "--nats", &self.url, "--listen", &listen];
        let arguments: Vec<&str> = arguments.into_iter().chain(more.iter().copied()).collect();
        let process = BenchProcess::start("gateway", &arguments, &log)?;
        let listening = async {
            while !listens(address).await {
                tokio::time::sleep(LISTEN_INTERVAL).await;
            }
        };
        if tokio::time::timeout(LISTEN_TIMEOUT, listening).await.is_ok() {
            return Ok((process, address));
        }
        let reason = "the bench's process 'gateway' does not listen";
        Err(Failure::new(FailureKind::Failed, code::BENCH_PROCESS_FAILED.as_str(), reason))
    }

    /// Returns the sum of a counter over all executors.
    pub(crate) async fn counted(&self, metric: &str) -> Result<f64, Failure> {
        let mut sum = 0.0;
        for port in &self.ports {
            sum += counter(*port, metric).await?;
        }
        Ok(sum)
    }

    /// Runs a measurement, and measures the CPU cost of all processes.
    pub(crate) async fn measure(&mut self, order: &DriverOrder) -> Result<(MeasuredTime, CpuCost), Failure> {
        let before = self.cost();
        let took = self.driver.ask(order).await?;
        let after = self.cost();
        let cost = CpuCost {
            all: after.all - before.all,
            server: after.server - before.server,
            executor: after.executor - before.executor,
            agent: after.agent - before.agent,
            client: after.client - before.client,
        };
        Ok((took, cost))
    }

    fn cost(&self) -> CpuCost {
        let of = |pid: Option<u32>| pid.map(cpu).unwrap_or_default();
        let server = of(self.server.pid());
        let executor = self.executors.iter().map(|executor| of(executor.pid())).sum();
        let talkers = of(self.talkers.as_ref().and_then(BenchProcess::pid));
        let agent = of(self.agent.pid()) + of(self.echo.pid()) + talkers;
        let client = of(self.driver.pid());
        CpuCost { all: server + executor + agent + client, server, executor, agent, client }
    }

    /// Returns the total resident memory of the executors, in MiB.
    pub(crate) fn executor_memory(&self) -> f64 {
        self.executors.iter().filter_map(BenchProcess::pid).map(resident).sum()
    }

    /// Returns the resident memory of the server, in MiB.
    pub(crate) fn server_memory(&self) -> f64 {
        self.server.pid().map(resident).unwrap_or_default()
    }

    /// Returns the resident memory of the agents' process, in MiB.
    pub(crate) fn agent_memory(&self) -> f64 {
        self.agent.pid().map(resident).unwrap_or_default()
    }

    /// Kills the executors with SIGKILL.
    pub(crate) async fn kill_executors(&mut self) -> Result<(), Failure> {
        self.ports.clear();
        for executor in self.executors.drain(..) {
            executor.kill9().await?;
        }
        Ok(())
    }

    /// Stops all processes.
    pub(crate) async fn stop(mut self) -> Result<(), Failure> {
        self.kill_executors().await?;
        self.driver.kill9().await?;
        self.agent.kill9().await?;
        self.echo.kill9().await?;
        if let Some(talkers) = self.talkers {
            talkers.kill9().await?;
        }
        Ok(self.server.stop().await?)
    }
}

pub(crate) async fn connect(url: &str) -> Result<Mesh, Failure> {
    let connect = Connect { url: Some(url.to_owned()), role: "bench", ..Connect::default() };
    Ok(connect.open().await?)
}

/// Writes the workflows to a folder: a chain of three and a fan-out for each delivery, those with one
/// agent, and one with only decisions.
fn workflows(folder: PathBuf) -> Result<Vec<PathBuf>, Failure> {
    let mut files = vec![
        ("waits".to_owned(), one_agent("bench_nobody")),
        ("talk".to_owned(), one_agent("bench_talker")),
        ("asks".to_owned(), one_agent("bench_asker")),
        ("decide".to_owned(), decide()),
    ];
    for (delivery, agent) in [("queue", QUEUED), ("direct", DIRECT)] {
        files.push((format!("chain_{delivery}"), chain(agent)));
        files.push((format!("fan_{delivery}"), fan(agent)));
    }
    write_workflows(&folder, files)?;
    Ok(vec![folder])
}

fn write_workflows(folder: &Path, files: Vec<(String, String)>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(FailureKind::Failed, FOLDER, format!("cannot write {}: {error}", folder.display()))
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    for (name, text) in files {
        std::fs::write(folder.join(format!("{name}.yaml")), text).map_err(failed)?;
    }
    Ok(())
}

fn chain(agent: &str) -> String {
    format!(
        "workflow:
  description: Three agents, one after the other
  nodes:
    - {{id: first, type: agent, agent_name: {agent}, input: {{text: \"{{{{workflow.input.text}}}}\"}}}}
    - {{id: second, type: agent, agent_name: {agent}, input: {{text: \"{{{{first.output.text}}}}\"}}, depends_on: [first]}}
    - {{id: third, type: agent, agent_name: {agent}, input: {{text: \"{{{{second.output.text}}}}\"}}, depends_on: [second]}}
  output_mapping: {{text: \"{{{{third.output.text}}}}\"}}
"
    )
}

fn fan(agent: &str) -> String {
    format!(
        "workflow:
  description: The same agent for every item of a list, and a join
  nodes:
    - {{id: all, type: map, items: \"{{{{workflow.input.items}}}}\", node: each, max_items: 100000}}
    - {{id: each, type: agent, agent_name: {agent}, input: {{text: \"{{{{workflow.input.text}}}}\"}}}}
  output_mapping: {{results: \"{{{{all.output.results}}}}\"}}
"
    )
}

fn one_agent(agent: &str) -> String {
    format!(
        "workflow:
  description: One agent
  nodes:
    - {{id: only, type: agent, agent_name: {agent}, timeout: 1d, input: {{text: \"{{{{workflow.input.text}}}}\"}}}}
  output_mapping: {{text: \"{{{{only.output.text}}}}\"}}
"
    )
}

/// Returns a workflow of rows of a hundred nodes, each after the one above.
fn large() -> String {
    let node = |n: usize| {
        let before = n.checked_sub(100).map(|above| format!(", depends_on: [n{above}]")).unwrap_or_default();
        format!("    - {{id: n{n}, type: agent, agent_name: {DIRECT}, input: {{text: x}}{before}}}\n")
    };
    let nodes: String = (0..LARGE_NODES).map(node).collect();
    format!("workflow:\n  description: A large graph\n  nodes:\n{nodes}  output_mapping: {{text: done}}\n")
}

/// Returns a workflow of sequential decisions with one agent at the end, to load executors.
fn decide() -> String {
    let decision = |nth: usize| {
        let next = if nth + 1 < DECISIONS { format!("d{}", nth + 1) } else { "last".to_owned() };
        let after = nth.checked_sub(1).map(|before| format!(", depends_on: [d{before}]")).unwrap_or_default();
        format!(
            "    - {{id: d{nth}, type: conditional, true_branch: {next}, \
             condition: \"'{{{{workflow.input.text}}}}' != 'no {nth}'\"{after}}}\n"
        )
    };
    let (decisions, before): (String, _) = ((0..DECISIONS).map(decision).collect(), DECISIONS - 1);
    format!(
        "workflow:
  description: Decisions one after the other
  nodes:
{decisions}    - {{id: last, type: agent, agent_name: {DIRECT}, input: {{text: \"{{{{workflow.input.text}}}}\"}}, depends_on: [d{before}]}}
  output_mapping: {{text: \"{{{{workflow.input.text}}}}\"}}
"
    )
}

/// Returns whether a process listens at the address.
async fn listens(address: SocketAddr) -> bool {
    tokio::net::TcpStream::connect(address).await.is_ok()
}
