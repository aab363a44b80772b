//! Checks of a mesh from end to end, each with what to do about it.

mod rights;

use std::future::Future;

use schemars::JsonSchema;
use serde::Serialize;
use sinew_executor::client::Client;
use sinew_inspection::words;
use sinew_mesh::card::Cards;
use sinew_mesh::provision::Provision;
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::permission::Role;

use crate::failure::{Failure, FailureKind, known};
use crate::mesh_operator::{MeshOperator, adapter, online};
use crate::mesh_status::{self, MeshStatus};

/// Bytes a server should take in one message: events, results and commits are cut to less.
const PAYLOAD: usize = 1024 * 1024;

/// A check of a mesh, and how it went.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DoctorCheck {
    /// Checked part of the mesh.
    #[serde(rename = "check")]
    pub what: &'static str,
    /// How the check went.
    pub state: CheckState,
    /// One sentence.
    pub message: String,
    /// Advice; `None` if there is nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Operator code, if the finding has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// As it must be.
    Ok,
    /// Worth a look; nothing is broken.
    Warn,
    /// Broken.
    Fail,
}

/// Checks a mesh, in the order in which one check rests on the other. A connection that failed is the first finding. `roles` are
/// those that the credentials are to have: none means the closest ones. `fix` provisions the mesh in between.
pub async fn examine(mesh: Result<Mesh, Failure>, roles: &[Role], fix: bool) -> Vec<DoctorCheck> {
    Doctor::default().examine(mesh, roles, fix).await
}

/// Some work, which ends when the server does not permit a part of it.
async fn permitted<T>(mesh: &Mesh, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let denied = mesh.admin().denied();
    tokio::select! { biased;
        done = work => done,
        denied = denied => Err(denied.into()),
    }
}

#[derive(Default)]
struct Doctor {
    checks: Vec<DoctorCheck>,
}

impl Doctor {
    fn say(
        &mut self,
        check: &'static str,
        state: CheckState,
        message: impl Into<String>,
        hint: Option<&str>,
    ) {
        let hint = hint.map(str::to_owned);
        self.checks.push(DoctorCheck { what: check, state, message: message.into(), hint, code: None });
    }

    fn failed(&mut self, check: &'static str, failure: Failure) {
        let Failure { kind, message, hint, code, .. } = failure;
        // A check that these credentials may not make is a warning, not a failure.
        let state = if kind == FailureKind::Denied { CheckState::Warn } else { CheckState::Fail };
        self.checks.push(DoctorCheck { what: check, state, message, hint, code: Some(code) });
    }

    /// Checks in the order in which one rests on the other.
    async fn examine(mut self, mesh: Result<Mesh, Failure>, roles: &[Role], fix: bool) -> Vec<DoctorCheck> {
        let mesh = match mesh {
            Ok(mesh) => mesh,
            Err(Failure { message, hint, code, .. }) => {
                self.checks.push(DoctorCheck {
                    what: "server",
                    state: CheckState::Fail,
                    message,
                    hint,
                    code: Some(code),
                });
                return self.checks;
            }
        };
        self.server(&mesh);
        rights::check(&mut self, &mesh, roles).await;
        if fix && let Err(error) = mesh.admin().provision(&Provision::default()).await {
            self.failed("provision", error.into());
        }
        if !self.streams(&mesh).await {
            return self.checks;
        }
        self.problems(&mesh).await;
        let looked = permitted(&mesh, async {
            let remote = MeshOperator::new(Client::new(mesh.clone(), adapter).await?);
            let cards = online(&mesh).await;
            let status = mesh_status::read_status(&remote, &cards).await?;
            Ok((cards, status))
        });
        match looked.await {
            Ok((cards, status)) => self.rest(&cards, &status),
            Err(failure) => self.failed("mesh", failure),
        }
        self.checks
    }

    fn server(&mut self, mesh: &Mesh) {
        let info = mesh.client().server_info();
        let text = format!("nats-server {} at {}:{}", info.version, info.host, info.port);
        self.say("server", CheckState::Ok, text, None);
        // A limit below every need is reported as a problem of its own.
        if info.max_payload < PAYLOAD && !mesh.admin().has_small_payload() {
            let text = format!("the server takes messages of at most {} bytes", info.max_payload);
            self.say("payload", CheckState::Warn, text, Some("set max_payload to 1MB or more"));
        }
    }

    async fn streams(&mut self, mesh: &Mesh) -> bool {
        match mesh.admin().check().await {
            Ok(differences) if differences.is_empty() => {
                let text = format!("the streams of mesh {} are as they must be", mesh.namespace());
                self.say("streams", CheckState::Ok, text, None);
                true
            }
            Ok(differences) => {
                let text = differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                self.say("streams", CheckState::Fail, text, Some("sinew mesh provision"));
                true
            }
            Err(error) => {
                let there = !matches!(error, MeshError::NotProvisioned { .. });
                self.failed("streams", error.into());
                there
            }
        }
    }

    /// Problems that comparing settings does not show.
    async fn problems(&mut self, mesh: &Mesh) {
        let found = mesh.admin().find_problems().await;
        if found.is_empty() {
            self.say("storage", CheckState::Ok, "nothing is full, and what executors write is stored", None);
        }
        for problem in found {
            let state = if problem.severe { CheckState::Fail } else { CheckState::Warn };
            self.checks.push(DoctorCheck {
                what: problem.part,
                state,
                message: problem.message,
                hint: Some(problem.hint.to_owned()),
                code: Some(known(problem.code)),
            });
        }
    }

    /// Executors that live, and shards without one.
    fn executors(&mut self, status: &MeshStatus) {
        let living = status.living_executors();
        match (living, status.silence()) {
            (0, None) => self.say(
                "executors",
                CheckState::Fail,
                "no executor is there: nothing goes on",
                Some("sinew serve executor"),
            ),
            (0, Some(silence)) => self.say(
                "executors",
                CheckState::Fail,
                format!("no executor lives ({silence}): nothing goes on"),
                Some("sinew serve executor; executors that run are silent while the server stores nothing"),
            ),
            (count, None) => self.say("executors", CheckState::Ok, words::count(count, "executor"), None),
            (count, Some(silence)) => {
                let text = format!("{}, {silence}", words::count(count, "executor"));
                self.say("executors", CheckState::Ok, text, None);
            }
        }
        let unowned = status.shards.saturating_sub(status.owned);
        if unowned > 0 && living > 0 {
            let text = format!("{unowned} of {} shards have no owner yet", status.shards);
            self.say("shards", CheckState::Warn, text, Some("they are taken within seconds; look again"));
        }
    }

    fn rest(&mut self, cards: &Cards, status: &MeshStatus) {
        self.executors(status);
        let online = status.agents.iter().filter(|agent| agent.online).count();
        match online {
            0 => self.say("agents", CheckState::Warn, "no agent is online", Some("sinew serve agent FILE")),
            count => {
                self.say("agents", CheckState::Ok, format!("{} online", words::count(count, "agent")), None);
            }
        }
        for agent in status.agents.iter().filter(|agent| !agent.online && agent.queued > 0) {
            let name = words::one_line(&agent.name, 60);
            let queued = words::count(usize::try_from(agent.queued).unwrap_or(usize::MAX), "task");
            let text = format!("agent '{name}' is not online; {queued} in its queue");
            self.say("agents", CheckState::Warn, text, None);
        }
        for refused in cards.refused() {
            let name =
                words::one_line(&refused.agent.name().unwrap_or_else(|| refused.agent.to_string()), 60);
            let text = format!("the card of '{name}' is refused: {}", refused.reason);
            self.say("cards", CheckState::Warn, text, None);
        }
        if let Some(first) = status.set_aside.first() {
            let count = status.set_aside.len();
            let executions = words::count(count, "execution");
            let text = format!("{executions} set aside until an operator resumes them, among them {first}");
            let hint = "sinew execution list --status waiting, then sinew execution resume ID";
            self.say("executions", CheckState::Warn, text, Some(hint));
        }
        match status.quarantined {
            0 => self.say("quarantine", CheckState::Ok, "nothing was set aside", None),
            count => {
                let messages = words::count(usize::try_from(count).unwrap_or(usize::MAX), "message");
                let text = format!("{messages} set aside");
                self.say("quarantine", CheckState::Warn, text, Some("sinew mesh quarantine list"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh_status::ExecutorStatus;

    fn executor(silent_ms: Option<u64>) -> ExecutorStatus {
        let [id, version, place] = ["e", "1", "here"].map(str::to_owned);
        ExecutorStatus { id, version, place, shards: 2, silent_ms }
    }

    #[test]
    fn silent_executors_do_not_count_as_alive() {
        use CheckState::{Fail, Ok, Warn};
        // Silence of each executor, shards of four that are served, and the findings about both.
        for (silences, owned, findings) in [
            (&[][..], 0, &[("executors", Fail, "no executor is there: nothing goes on")][..]),
            (&[None, None], 4, &[("executors", Ok, "2 executors")]),
            (
                &[None, Some(90_000), Some(12_000)],
                2,
                &[
                    ("executors", Ok, "1 executor, 2 silent, heard last 12.0s ago"),
                    ("shards", Warn, "2 of 4 shards have no owner yet"),
                ],
            ),
            (
                &[Some(90_000), Some(12_000), Some(13_000)],
                0,
                &[("executors", Fail, "no executor lives (3 silent, heard last 12.0s ago): nothing goes on")],
            ),
        ] {
            let executors = silences.iter().copied().map(executor).collect();
            let status = MeshStatus { shards: 4, owned, executors, ..MeshStatus::default() };
            let mut doctor = Doctor::default();
            doctor.executors(&status);
            let told: Vec<_> =
                doctor.checks.iter().map(|check| (check.what, check.state, check.message.as_str())).collect();
            assert_eq!(told, findings);
            let hint = doctor.checks[0].hint.as_deref();
            assert_eq!(hint.is_some_and(|hint| hint.starts_with("sinew serve executor")), told[0].1 == Fail);
        }
    }
}
