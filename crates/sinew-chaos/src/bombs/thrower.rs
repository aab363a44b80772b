//! The sender of bombs, in a separate process, as an attacker is.
//!
//! Its work is not that of the mesh, so it runs at the lowest priority, and not on the first core.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;
use sinew_executor::client::Client;
use sinew_mesh::{HeaderMap, Mesh};
use sinew_protocol::card::{AgentKind, Announcement};
use sinew_protocol::code;
use sinew_protocol::{ExecutionId, Subject, Token};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{Instant, sleep_until};

use super::catalogue::{self, Bomb};
use super::{END_TIMEOUT, default_agents};
use crate::roles::{MeshArgs, prepare};
use crate::{Fallible, workflows};

/// Bytes of an error code: a prefix and four digits.
const CODE_BYTES: usize = 10;
/// Nice value of the sender.
const NICENESS: i32 = 19;

/// Ends of bombs, by location.
pub(super) type BombEnds = BTreeMap<String, BTreeMap<String, usize>>;

/// Arguments of the sender.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ThrowArgs {
    /// Number of bombs, evenly over the duration
    #[arg(long, default_value_t = 330)]
    pub(super) bombs: usize,
    /// Duration of the bombs, in seconds
    #[arg(long, default_value_t = 90)]
    seconds: u64,
}

/// Handle of the sender.
pub(super) struct BomberProcess {
    _child: Child,
    _input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl BomberProcess {
    pub(super) fn start(place: &MeshArgs, seed: u64, args: &ThrowArgs) -> Fallible<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bomber", "--url", &place.url, "--namespace", &place.namespace]);
        command.arg("--folder").arg(&place.folder).args(["--seed", &seed.to_string()]);
        command.args(["--bombs", &args.bombs.to_string(), "--seconds", &args.seconds.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let output = child.stdout.take().ok_or("the thrower has no output")?;
        let input = child.stdin.take();
        Ok(Self { _child: child, _input: input, lines: BufReader::new(output).lines() })
    }

    /// Waits until the last bomb is sent.
    pub(super) async fn thrown(&mut self) -> Fallible<()> {
        self.lines.next_line().await?.map(drop).ok_or_else(|| "the thrower ended".into())
    }

    /// Waits for the ends of all bombs.
    pub(super) async fn ends(&mut self) -> Fallible<BombEnds> {
        let line = self.lines.next_line().await?.ok_or("the thrower ended before its bombs")?;
        Ok(serde_json::from_str(&line)?)
    }
}

/// Sends all bombs. Writes a line after the last one, and a line with the ends of all.
pub(crate) async fn throw_bombs(place: &MeshArgs, seed: u64, args: &ThrowArgs) -> Fallible<()> {
    let _ = rustix::process::nice(NICENESS);
    leave_first_core();
    prepare(place)?;
    let client = Client::new(place.connect("bomber").await?, workflows::adapters).await?;
    let notes = File::create(place.folder.join("bombs.tsv"))?;
    let throwing = BombThrow { client, ends: BombEnds::new(), thrown: Vec::new(), notes };
    let mut thrown = throwing.throw(args, seed).await?;
    writeln!(std::io::stdout(), "thrown")?;
    thrown.collect().await;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&thrown.ends)?)?;
    Ok(())
}

/// Keeps this process off the first core, if there are others: attackers have their own machines.
fn leave_first_core() {
    let Ok(mut cores) = sched_getaffinity(None) else { return };
    if cores.count() > 1 {
        if let Some(first) = (0..CpuSet::MAX_CPU).find(|core| cores.is_set(*core)) {
            cores.unset(first);
        }
        let _ = sched_setaffinity(None, &cores);
    }
}

/// The sent bombs.
struct BombThrow {
    client: Client,
    ends: BombEnds,
    thrown: Vec<(&'static str, ExecutionId)>,
    /// Time (Unix milliseconds) and location of each bomb, with the clock of `innocents.tsv`.
    notes: File,
}

impl BombThrow {
    /// Sends all bombs, evenly over the duration.
    async fn throw(mut self, args: &ThrowArgs, seed: u64) -> Fallible<Self> {
        let mut random = StdRng::seed_from_u64(seed);
        let began = Instant::now();
        let step = Duration::from_secs(args.seconds) / u32::try_from(args.bombs.max(1))?;
        for nth in 0..args.bombs {
            let bomb = catalogue::bomb(nth, &mut random);
            sleep_until(began + step * u32::try_from(nth)?).await;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
            writeln!(self.notes, "{now}\t{}\t{}", bomb.place, bomb.agent)?;
            self.throw_one(nth, bomb).await?;
        }
        Ok(self)
    }

    async fn throw_one(&mut self, nth: usize, bomb: Bomb) -> Fallible<()> {
        let mesh = self.client.mesh().clone();
        if let Some(schema) = bomb.card_schema {
            announce(&mesh, nth, schema).await?;
        }
        let name = catalogue::bomb_name(nth);
        let text = bomb.workflow.to_string();
        let agents = default_agents(bomb.agent);
        // Off the runtime, because compiling a script waits for a worker.
        let (own, adapted) = (name.clone(), agents);
        let lowered =
            tokio::task::spawn_blocking(move || workflows::lower_text(&own, &text, &adapted)).await?;
        let programs = match lowered {
            Ok(programs) => programs,
            Err(found) => {
                self.count(bomb.place, &format!("refused as a file {}", first_code(&found.to_string())));
                return Ok(());
            }
        };
        workflows::deploy_programs(&mesh, &name, programs).await?;
        let command = self.client.start_command(name.clone(), name, bomb.input);
        let execution = command.execution.clone();
        match self.client.start(command).await {
            Ok(_) => self.thrown.push((bomb.place, execution)),
            Err(error) => self.count(bomb.place, &format!("refused {}", error.code())),
        }
        Ok(())
    }

    fn count(&mut self, place: &str, end: &str) {
        *self.ends.entry(place.to_owned()).or_default().entry(end.to_owned()).or_default() += 1;
    }

    /// Waits for the ends of all sent bombs.
    async fn collect(&mut self) {
        for (place, execution) in std::mem::take(&mut self.thrown) {
            let end = match self.client.outcome(&execution, Some(END_TIMEOUT)).await {
                Ok(Some(outcome)) => match outcome.fault {
                    Some(fault) => format!("failed {}", fault.code),
                    None => outcome.status.as_str().to_owned(),
                },
                Ok(None) => continue,
                Err(error) => format!("refused {}", error.code()),
            };
            self.count(place, &end);
        }
    }
}

/// Returns the first error code in a text.
fn first_code(text: &str) -> &str {
    let at = text.find(code::PREFIX).unwrap_or(text.len());
    text.get(at..at + CODE_BYTES).unwrap_or_default()
}

/// Publishes a card without the agent's checks.
async fn announce(mesh: &Mesh, nth: usize, schema: Value) -> Fallible<()> {
    let name = format!("card-{nth}");
    let announcement = Announcement {
        name: name.clone(),
        description: "bomb".to_owned(),
        version: "1".to_owned(),
        kind: AgentKind::Agent,
        input_schema: Some(schema.clone()),
        output_schema: Some(schema),
        ..Announcement::default()
    };
    let body = serde_json::to_vec(&announcement.card(mesh.namespace()))?;
    let subject = Subject::Card { agent: Token::of(&name) };
    mesh.tasks().put_once(&subject, HeaderMap::new(), body.into()).await?;
    Ok(())
}
