//! `sinew doctor`: one check after the other, each with what to do about it.

use clap::Args;
use serde::Serialize;
use sinew_executor::client::Client;
use sinew_mesh::provision::Provision;
use sinew_mesh::{Mesh, MeshError};

use crate::cmd::agent::online;
use crate::connect::{Connection, adapter, block};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use crate::remote::Remote;
use crate::status;
use crate::views::words;

/// Bytes a server should take in one message: events, results and commits are cut to less.
const PAYLOAD: usize = 1024 * 1024;

/// Arguments of `sinew doctor`.
#[derive(Args, Debug)]
#[command(
    long_about = "Look at a mesh from end to end: server, streams, executors, agents, what was set aside. Exits with 1 \
                  if something is wrong; warnings alone do not.",
    after_help = "Examples:\n  sinew doctor\n  sinew doctor --fix\n  sinew doctor -o json | jq '.[] | select(.state != \"ok\")'"
)]
pub(crate) struct DoctorArgs {
    /// Set right what provisioning can set right
    #[arg(long)]
    fix: bool,
    #[command(flatten)]
    mesh: Connection,
}

/// One check.
#[derive(Clone, Debug, Serialize)]
struct Check {
    #[serde(rename = "check")]
    what: &'static str,
    state: State,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    Warn,
    Fail,
}

/// Does what the command line says.
pub(crate) fn doctor(args: &DoctorArgs, output: &Output) -> Result<Exit, Failure> {
    let checks = block(async { Ok(Doctor::default().examine(args).await) })?;
    output.value(&checks, |checks| {
        let line = |check: &Check| {
            let (word, color) = match check.state {
                State::Ok => ("ok  ", "\u{1b}[32m"),
                State::Warn => ("warn", "\u{1b}[33m"),
                State::Fail => ("fail", "\u{1b}[31m"),
            };
            let (on, off) = if output.color { (color, "\u{1b}[0m") } else { ("", "") };
            let code = check.code.map(|code| format!(" [{code}]")).unwrap_or_default();
            let hint = check.hint.as_ref().map(|hint| format!("\n      hint: {hint}")).unwrap_or_default();
            format!("{on}{word}{off}  {:<12} {}{code}{hint}", check.what, words::plain(&check.message))
        };
        checks.iter().map(line).collect::<Vec<_>>().join("\n")
    });
    let failed = checks.iter().any(|check| check.state == State::Fail);
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

#[derive(Default)]
struct Doctor {
    checks: Vec<Check>,
}

impl Doctor {
    fn say(&mut self, check: &'static str, state: State, message: impl Into<String>, hint: Option<&str>) {
        let hint = hint.map(str::to_owned);
        self.checks.push(Check { what: check, state, message: message.into(), hint, code: None });
    }

    fn failed(&mut self, check: &'static str, failure: Failure) {
        let Failure { message, hint, code, .. } = failure;
        self.checks.push(Check { what: check, state: State::Fail, message, hint, code: Some(code) });
    }

    /// Checks in the order in which one rests on the other.
    async fn examine(mut self, args: &DoctorArgs) -> Vec<Check> {
        let mesh = match args.mesh.open("doctor").await {
            Ok(mesh) => mesh,
            Err(failure) => {
                self.failed("server", failure);
                return self.checks;
            }
        };
        self.server(&mesh);
        if args.fix
            && let Err(error) = mesh.provision(&Provision::default()).await
        {
            self.failed("provision", error.into());
        }
        if !self.streams(&mesh).await {
            return self.checks;
        }
        let client = match Client::new(mesh.clone(), adapter).await {
            Ok(client) => client,
            Err(error) => {
                self.failed("mesh", error.into());
                return self.checks;
            }
        };
        let remote = Remote { client };
        self.rest(&remote).await;
        self.checks
    }

    fn server(&mut self, mesh: &Mesh) {
        let info = mesh.client().server_info();
        let text = format!("nats-server {} at {}:{}", info.version, info.host, info.port);
        self.say("server", State::Ok, text, None);
        if info.max_payload < PAYLOAD {
            let text = format!("the server takes messages of at most {} bytes", info.max_payload);
            self.say("payload", State::Warn, text, Some("set max_payload to 1MB or more"));
        }
    }

    async fn streams(&mut self, mesh: &Mesh) -> bool {
        match mesh.check().await {
            Ok(differences) if differences.is_empty() => {
                let text = format!("the streams of mesh {} are as they must be", mesh.namespace());
                self.say("streams", State::Ok, text, None);
                true
            }
            Ok(differences) => {
                let text = differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                self.say("streams", State::Fail, text, Some("sinew mesh provision"));
                true
            }
            Err(error) => {
                let there = !matches!(error, MeshError::NotProvisioned { .. });
                self.failed("streams", error.into());
                there
            }
        }
    }

    async fn rest(&mut self, remote: &Remote) {
        let cards = online(remote.mesh()).await;
        let status = match status::status(remote, &cards).await {
            Ok(status) => status,
            Err(failure) => return self.failed("status", failure),
        };
        match status.executors.len() {
            0 => self.say(
                "executors",
                State::Fail,
                "no executor is there: nothing goes on",
                Some("sinew serve executor"),
            ),
            count => self.say("executors", State::Ok, format!("{count} executors"), None),
        }
        let unowned = status.shards.saturating_sub(status.owned);
        if unowned > 0 && !status.executors.is_empty() {
            let text = format!("{unowned} of {} shards have no owner yet", status.shards);
            self.say("shards", State::Warn, text, Some("they are taken within seconds; look again"));
        }
        let online = status.agents.iter().filter(|agent| agent.online).count();
        match online {
            0 => self.say("agents", State::Warn, "no agent is online", Some("sinew serve agent FILE")),
            count => self.say("agents", State::Ok, format!("{count} agents are online"), None),
        }
        for agent in status.agents.iter().filter(|agent| !agent.online && agent.queued > 0) {
            let name = words::one_line(&agent.name, 60);
            let text = format!("{} tasks wait for agent '{name}', which is not online", agent.queued);
            self.say("agents", State::Warn, text, None);
        }
        for refused in cards.refused() {
            let name =
                words::one_line(&refused.agent.name().unwrap_or_else(|| refused.agent.to_string()), 60);
            let text = format!("the card of '{name}' is refused: {}", refused.reason);
            self.say("cards", State::Warn, text, None);
        }
        match status.quarantined {
            0 => self.say("quarantine", State::Ok, "nothing was set aside", None),
            count => {
                let text = format!("{count} messages were set aside");
                self.say("quarantine", State::Warn, text, Some("sinew mesh quarantine list"));
            }
        }
    }
}
