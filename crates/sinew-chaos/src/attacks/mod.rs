//! Attackers of each role during a run: a client, an agent, a guest in a separate account, a thief with
//! credentials of an executor and an administrator, another tenant, and programs with gateway keys.
//!
//! The servers enforce permissions. Normal executions run meanwhile, and are checked as in `run`.

mod attack_users;
mod hostile_messages;
mod http_attacks;
mod raw_client;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use sinew_agents::{ReachableAddresses, WebClient};
use sinew_mesh::Mesh;
use sinew_mesh::artifact::ArtifactOwner;
use sinew_operations::gateway_keys::{NewKey, create_key, revoke_keys};
use sinew_protocol::a2a::PartContent;
use sinew_protocol::access::{AccessRole, KeyLimits};
use sinew_protocol::{ActivationKey, ArtifactName, ExecutionId, TaskId};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::allowance::{Allowances, now_ms};
use crate::brokers::{BrokerOptions, DiskChanges};
use crate::cluster::ChaosCluster;
use crate::fault_plan::FaultCounts;
use crate::load::Load;
use crate::outside::free_address;
use crate::report::{AttackCounts, Report};
use crate::run::{self, BrokerFaults, RunProcesses};
use crate::slot::{Role, Slot, Tally, What};
use crate::verdict::judge;
use crate::{Common, Fallible};
use attack_users::configuration;
use hostile_messages::Attacker;
use http_attacks::{HttpTally, StolenKeys, attack_gateway, is_open};
use raw_client::{PASSWORD, RawClient};

/// Delay between two rounds of an attacker, and before a reconnect.
const ROUND_PAUSE: Duration = Duration::from_secs(2);
/// Time limit for the gateway to accept a key after the last fault.
const OPEN_WITHIN: Duration = Duration::from_mins(1);

/// Arguments of `attacks`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AttackArgs {
    #[command(flatten)]
    common: Common,
    /// Duration of attacks and faults, in seconds
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Number of normal executions to start
    #[arg(long, default_value_t = 240)]
    executions: u64,
    /// Number of executors to kill with `kill -9`
    #[arg(long, default_value_t = 8)]
    executor_kills: u32,
    /// Number of agent processes to kill with `kill -9`
    #[arg(long, default_value_t = 4)]
    agent_kills: u32,
    /// Number of kills of a nats-server with `kill -9`
    #[arg(long, default_value_t = 6)]
    broker_kills: u32,
    /// Number of executors and agents to halt with SIGSTOP for longer than the lease
    #[arg(long, default_value_t = 2)]
    halts: u32,
    /// Do not require that all executions end within 30 s of the last fault; for busy machines
    #[arg(long)]
    short: bool,
}

/// Counts of an attacker's messages.
#[derive(Clone, Copy, Debug, Default)]
struct MessageTally {
    sent: u64,
    refused: u64,
    /// Calls on artifacts of other executions, and the number that the servers rejected.
    artifact_calls: u64,
    artifact_refusals: u64,
}

/// Returns a generator of unique numbers in place of ids.
fn fresh_ids() -> impl FnMut() -> String {
    let mut last = u64::from(std::process::id()) << 32;
    move || {
        last += 1;
        format!("{last:032x}")
    }
}

/// Sends rounds of messages to any server that answers, until it is stopped.
async fn attack_servers(
    attacker: Attacker,
    ports: Vec<u16>,
    shards: u32,
    seed: u64,
    stop: watch::Receiver<bool>,
) -> (Attacker, MessageTally) {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut tally, mut fresh) = (MessageTally::default(), fresh_ids());
    let ghost = ghost();
    while !*stop.borrow() {
        let port = ports[random.random_range(0..ports.len())];
        let messages = attacker.messages(random.random_range(0..shards), &ghost, &mut fresh);
        // A server that crashes during a round accepted an unknown part, which is not counted.
        if let Ok(refused) = send_round(attacker, port, &messages).await {
            tally.sent += messages.len() as u64;
            tally.refused += refused as u64;
        }
        let calls: Vec<_> = attacker.calls_on_artifacts().iter().map(|call| whole_stream(call)).collect();
        if let Ok(refused) = send_round(attacker, port, &calls).await {
            tally.artifact_calls += calls.len() as u64;
            tally.artifact_refusals += refused as u64;
        }
        sleep(ROUND_PAUSE).await;
    }
    (attacker, tally)
}

/// Returns a call that requests the first message of a stream.
fn whole_stream(call: &str) -> (Vec<u8>, &'static [u8], &'static [u8]) {
    (call.as_bytes().to_vec(), b"NATS/1.0\r\n\r\n", br#"{"seq":1}"#)
}

async fn send_round(
    attacker: Attacker,
    port: u16,
    messages: &[(Vec<u8>, &'static [u8], &'static [u8])],
) -> std::io::Result<usize> {
    let mut client = RawClient::open(port, attacker.user()).await?;
    for (subject, block, body) in messages {
        client.publish(subject, block, body).await?;
    }
    client.flush().await
}

/// Returns the execution in messages of attackers.
fn ghost() -> ExecutionId {
    ExecutionId::of("chaos", "vandal", "ghost")
}

fn worded(failure: impl std::fmt::Debug) -> String {
    format!("{failure:?}")
}

/// A gateway with authentication, a key of its owner and those of attackers.
struct GuardedGateway {
    slot: Slot,
    tally: Arc<Tally>,
    base: String,
    own_key: String,
    stolen: StolenKeys,
    web: WebClient,
}

impl GuardedGateway {
    async fn start(cluster: &ChaosCluster) -> Fallible<Self> {
        let listen = free_address()?;
        let tally = Arc::<Tally>::default();
        let what = What::Gateway { listen, is_guarded: true };
        let slot = Slot::open(Role::new(cluster.place.clone(), what), Arc::clone(&tally));
        let mesh = cluster.client.mesh();
        let now = now_ms();
        let key = async |name: &str, pattern: &str| -> Fallible<String> {
            let new = NewKey {
                groups: Vec::new(),
                name: name.to_owned(),
                role: AccessRole::Client,
                scope: Some(sinew_protocol::access::KeyScope::All),
                patterns: vec![pattern.to_owned()],
                expires_at: None,
                certificate_name: None,
                limits: KeyLimits::default(),
            };
            Ok(create_key(mesh, new, now).await.map_err(worded)?.key.ok_or("a key without a secret")?)
        };
        let own_key = key("owner", "*").await?;
        let stolen =
            StolenKeys { narrow: key("narrow", "nothing-*").await?, revoked: key("former", "*").await? };
        revoke_keys(mesh, "former", now).await.map_err(worded)?;
        let web = WebClient::new(ReachableAddresses::All)?;
        let base = format!("http://{listen}");
        let gateway = Self { slot, tally, base, own_key, stolen, web };
        gateway.wait_until_open().await?;
        Ok(gateway)
    }

    /// Waits until the gateway accepts the owner's key.
    async fn wait_until_open(&self) -> Fallible<()> {
        let open = async {
            while !is_open(&self.web, &self.base, &self.own_key).await? {
                sleep(Duration::from_millis(100)).await;
            }
            Fallible::Ok(())
        };
        timeout(OPEN_WITHIN, open).await.map_err(|_| "the gateway does not open to its owner's key")?
    }

    /// Attacks the gateway until it is stopped.
    fn attack(
        &self,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = HttpTally> + Send + 'static + use<> {
        let (web, base, stolen) = (self.web.clone(), self.base.clone(), self.stolen.clone());
        async move {
            let mut tally = HttpTally::default();
            while !*stop.borrow() {
                attack_gateway(&web, &base, &stolen, &mut tally).await;
                sleep(ROUND_PAUSE).await;
            }
            tally
        }
    }
}

/// An artifact without an execution, whose address no attacker knows.
struct KeptArtifact {
    address: String,
    bytes: Vec<u8>,
}

impl KeptArtifact {
    async fn store(mesh: &Mesh) -> Fallible<Self> {
        let execution = ExecutionId::of("chaos", "owner", "artifact");
        let activation = ActivationKey::of::<&str>(&execution, "input", &[], 0);
        let task = TaskId::of(&execution, &activation, 1);
        let place = ArtifactOwner { app: "owner", user: "", execution: &execution, task: &task };
        let (name, bytes) = (ArtifactName::parse("kept.txt")?, "kept ".repeat(100_000).into_bytes());
        let stored = mesh.artifacts().put_object(&place, name, 0, "text/plain", bytes.clone().into()).await;
        match stored.map_err(worded)?.part.content {
            PartContent::Url(address) => Ok(Self { address, bytes }),
            _ => Err("an artifact without an address".into()),
        }
    }

    async fn is_whole(&self, mesh: &Mesh) -> bool {
        mesh.artifacts().fetch(&self.address).await.is_ok_and(|bytes| bytes == self.bytes)
    }
}

impl AttackArgs {
    fn counts(&self) -> FaultCounts {
        FaultCounts {
            executor_kills: self.executor_kills,
            agent_kills: self.agent_kills,
            broker_kills: self.broker_kills,
            halts: self.halts,
            ..FaultCounts::default()
        }
    }
}

/// Runs attacks and random faults.
pub(crate) async fn attacks(args: AttackArgs) -> Fallible<bool> {
    let (common, counts) = (&args.common, args.counts());
    let seed = common.seed.unwrap_or_else(rand::random);
    let brokers = BrokerOptions { servers: common.servers, ..BrokerOptions::one(true) };
    let users = (configuration(common.executors)?, PASSWORD.to_owned());
    let cluster =
        ChaosCluster::with_users(common.folder.clone(), common.shards, brokers, Some(users)).await?;
    let ports: Vec<u16> = cluster.brokers.members().iter().map(sinew_mesh::server::Server::port).collect();
    let tallies: [Arc<Tally>; 2] = Default::default();
    let open = |roles: Vec<Role>, tally: &Arc<Tally>| -> Vec<Slot> {
        roles.into_iter().map(|role| Slot::open(role, Arc::clone(tally))).collect()
    };
    let (client, place) = (cluster.client.clone(), cluster.place.clone());
    let load = Load::new(client.clone(), seed, 10, 0, Duration::from_millis(common.work_ms));
    let (executors, agents) = (run::executors(common, &cluster, usize::MAX), run::agents(common, &cluster));
    let gateway = GuardedGateway::start(&cluster).await?;
    let artifact = KeptArtifact::store(client.mesh()).await?;
    let began = Instant::now();
    let mut processes = RunProcesses {
        executors: open(executors, &tallies[0]),
        agents: open(agents, &tallies[1]),
        cluster,
        done: BrokerFaults::default(),
        last_agent_kill: began,
    };
    let (stop, stopped) = watch::channel(false);
    let mut attackers = JoinSet::new();
    for (nth, attacker) in Attacker::ALL.into_iter().enumerate() {
        let seed = seed ^ (nth as u64 + 1);
        attackers.spawn(attack_servers(attacker, ports.clone(), common.shards, seed, stopped.clone()));
    }
    let http = tokio::spawn(gateway.attack(stopped));
    let whole = Duration::from_secs(args.seconds);
    let starting = {
        let (load, count) = (load.clone(), args.executions);
        tokio::spawn(async move { load.evenly(count, whole).await })
    };
    for (at, fault) in counts.plan(whole, run::victims(common), seed) {
        sleep_until(began + at).await;
        processes.meet(fault).await?;
    }
    sleep_until(began + whole).await;
    processes.idle().await;
    let last = Instant::now();
    starting.await??;
    stop.send_replace(true);
    let mut tally = BTreeMap::new();
    while let Some(done) = attackers.join_next().await {
        let (attacker, messages) = done?;
        tally.insert(attacker, messages);
    }
    let http = http.await?;
    let has_finished = load.all_ended(run::PATIENCE).await;
    let ended = last.elapsed();
    let allowed = Allowances { ghost: Some(ghost()), losses: None };
    let verdict = judge(&client, &place, &load.accepted(), &allowed).await?;
    let mut report = Report::new("attacks", seed, began.elapsed(), verdict);
    report.all_ended_after_ms = run::millis(ended);
    report.demand(
        has_finished,
        format!("not all had ended {} s after the last fault", run::PATIENCE.as_secs()),
    );
    report.demand(args.short || ended <= run::BAR, format!("all had ended after {} s only", ended.as_secs()));
    run::demand_faults(&mut report, counts, &tallies, &processes.done, DiskChanges::default());
    demand_attacks(&mut report, &tally, http);
    report.demand(artifact.is_whole(client.mesh()).await, "an artifact was replaced or removed");
    report.demand(report.verdict.quarantined > 0, "nothing was set aside: no attack reached a reader");
    report.demand(gateway.wait_until_open().await.is_ok(), "the gateway is closed to its owner's key");
    let strays = gateway.tally.strays.load(Ordering::Relaxed);
    report.demand(strays == 0, format!("the gateway ended {strays} times"));
    drop(gateway.slot);
    report.write(common.json)
}

/// Checks that each attacker reached the mesh, and that none exceeded its permissions.
fn demand_attacks(report: &mut Report, tally: &BTreeMap<Attacker, MessageTally>, http: HttpTally) {
    let mut counts =
        AttackCounts { requests: http.sent, unanswered: http.unanswered, ..AttackCounts::default() };
    for (attacker, MessageTally { sent, refused, artifact_calls, artifact_refusals }) in tally {
        report.demand(
            artifact_calls == artifact_refusals,
            format!(
                "{} of {artifact_calls} calls of {} on artifacts were let through",
                artifact_calls.abs_diff(*artifact_refusals),
                attacker.user()
            ),
        );
        counts.messages.insert(attacker.user(), *sent);
        counts.refused += refused;
        let wanted = if attacker.is_kept_out() { *sent } else { 0 };
        report.demand(*sent > 0, format!("{} sent nothing", attacker.user()));
        report.demand(
            *refused == wanted,
            format!("{refused} of {sent} messages of {} were refused, not {wanted}", attacker.user()),
        );
    }
    let answered = http.sent - http.unanswered;
    report.demand(answered > 0, "the gateway answered no attack");
    let failed: u64 =
        http.statuses.iter().filter(|(status, _)| **status == 500).map(|(_, count)| count).sum();
    report.demand(failed == 0, format!("{failed} requests ended in an internal error"));
    for words in http.let_in {
        report.demand(false, format!("the gateway let in {words}"));
    }
    counts.statuses = http.statuses;
    report.attacks = Some(counts);
}
