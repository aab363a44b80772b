//! End-to-end checks of a mesh, each with advice.

mod rights;

use std::future::Future;
use std::time::Duration;

use sinew_documents::approval::OpenApproval;
use sinew_documents::mesh::{CheckState, DoctorCheck, ExecutorStatus, MeshStatus};
use sinew_documents::words;
use sinew_executor::client::Client;
use sinew_mesh::card::Cards;
use sinew_mesh::provision::Provision;
use sinew_mesh::{Mesh, MeshError};
use sinew_protocol::permission::Role;
use sinew_runtime::local;

use crate::approval_filter::ApprovalFilter;
use crate::failure::{Failure, FailureKind, known};
use crate::mesh_operator::{MeshOperator, adapter};
use crate::mesh_status;

/// Advice about an agent for which work waits.
const MISSING_AGENT_HINT: &str =
    "start it with `sinew serve agent FILE`, or cancel the executions that wait for it";
/// Recommended maximum message size of a server: events, results and commits are kept below it.
const PAYLOAD: usize = 1024 * 1024;

/// Default age at which a pending approval is a failure.
pub const MAX_APPROVAL_AGE: Duration = Duration::from_hours(24);
/// Period for which an executor without a heartbeat is a failure. A replaced executor is remembered
/// for a day.
const MAX_EXECUTOR_SILENCE: Duration = Duration::from_hours(1);

/// Settings of an examination.
#[derive(Clone, Debug)]
pub struct DoctorOptions {
    /// Expected roles of the credentials; the closest ones if empty.
    pub roles: Vec<Role>,
    /// Whether the mesh is provisioned during the examination.
    pub fix: bool,
    /// Age at which a pending approval is a failure.
    pub max_approval_age: Duration,
}

impl Default for DoctorOptions {
    fn default() -> Self {
        Self { roles: Vec::new(), fix: false, max_approval_age: MAX_APPROVAL_AGE }
    }
}

/// Checks a mesh, in order of the checks' dependencies. A failed connection is the first finding.
pub async fn examine(mesh: Result<Mesh, Failure>, options: &DoctorOptions) -> Vec<DoctorCheck> {
    Doctor::default().examine(mesh, options).await
}

/// Performs work that is aborted when the server denies a part of it.
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
        self.checks.push(DoctorCheck {
            what: check.into(),
            state,
            message: message.into(),
            hint,
            code: None,
        });
    }

    fn failed(&mut self, check: &'static str, failure: Failure) {
        let Failure { kind, message, hint, code, .. } = failure;
        // A check that these credentials do not permit is a warning, not a failure.
        let state = if kind == FailureKind::Denied { CheckState::Warn } else { CheckState::Fail };
        self.checks.push(DoctorCheck { what: check.into(), state, message, hint, code: Some(code.into()) });
    }

    /// Performs the checks in order of their dependencies.
    async fn examine(mut self, mesh: Result<Mesh, Failure>, options: &DoctorOptions) -> Vec<DoctorCheck> {
        let mesh = match mesh {
            Ok(mesh) => mesh,
            Err(Failure { message, hint, code, .. }) => {
                self.checks.push(DoctorCheck {
                    what: "server".into(),
                    state: CheckState::Fail,
                    message,
                    hint,
                    code: Some(code.into()),
                });
                return self.checks;
            }
        };
        self.server(&mesh);
        rights::check(&mut self, &mesh, &options.roles).await;
        if options.fix
            && let Err(error) = mesh.admin().provision(&Provision::default()).await
        {
            self.failed("provision", error.into());
        }
        if !self.streams(&mesh).await {
            return self.checks;
        }
        self.problems(&mesh).await;
        let looked = permitted(&mesh, async {
            let remote = MeshOperator::new(Client::new(mesh.clone(), adapter).await?);
            let cards = remote.online().await?;
            let status = mesh_status::read_status(&remote, &cards).await?;
            Ok((cards, status, remote.approvals(&ApprovalFilter::default()).await?))
        });
        match looked.await {
            Ok((cards, status, approvals)) => {
                self.rest(&cards, &status);
                self.approvals(&approvals, local::now(), options.max_approval_age);
            }
            Err(failure) => self.failed("mesh", failure),
        }
        self.checks
    }

    fn server(&mut self, mesh: &Mesh) {
        let info = mesh.client().server_info();
        let text = format!("nats-server {} at {}:{}", info.version, info.host, info.port);
        self.say("server", CheckState::Ok, text, None);
        // A limit that is too small for any use is reported as a separate problem.
        if info.max_payload < PAYLOAD && !mesh.admin().has_small_payload() {
            let text = format!("the server accepts messages up to {} bytes", info.max_payload);
            self.say("payload", CheckState::Warn, text, Some("set max_payload to 1MB or more"));
        }
    }

    async fn streams(&mut self, mesh: &Mesh) -> bool {
        match mesh.admin().check().await {
            Ok(differences) if differences.is_empty() => {
                let text = format!("the streams of mesh {} are set up as required", mesh.namespace());
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

    /// Reports problems that comparing settings does not reveal.
    async fn problems(&mut self, mesh: &Mesh) {
        let found = mesh.admin().find_problems().await;
        if found.is_empty() {
            self.say(
                "storage",
                CheckState::Ok,
                "storage has space, and the writes of executors are stored",
                None,
            );
        }
        for problem in found {
            let state = if problem.severe { CheckState::Fail } else { CheckState::Warn };
            self.checks.push(DoctorCheck {
                what: problem.part.into(),
                state,
                message: problem.message,
                hint: Some(problem.hint.to_owned()),
                code: Some(known(problem.code).into()),
            });
        }
    }

    /// Checks the live executors, and shards without one.
    fn executors(&mut self, status: &MeshStatus) {
        let living = status.living_executors();
        match (living, status.silence()) {
            (0, None) => self.say(
                "executors",
                CheckState::Fail,
                "no executor is running, so executions do not progress",
                Some("sinew serve executor"),
            ),
            (0, Some(silence)) => self.say(
                "executors",
                CheckState::Fail,
                format!("no executor is reachable ({silence}), so executions do not progress"),
                Some(
                    "sinew serve executor; running executors miss heartbeats while the server stores nothing",
                ),
            ),
            (count, None) => self.say("executors", CheckState::Ok, words::count(count, "executor"), None),
            (count, Some(silence)) => {
                let text = format!("{}, {silence}", words::count(count, "executor"));
                let limit = MAX_EXECUTOR_SILENCE.as_millis();
                let is_new = |one: &ExecutorStatus| one.silent_ms.is_some_and(|ms| u128::from(ms) < limit);
                if status.executors.iter().any(is_new) {
                    let hint = "check its process, and restart it: sinew serve executor";
                    self.say("executors", CheckState::Fail, text, Some(hint));
                } else {
                    self.say("executors", CheckState::Ok, text, None);
                }
            }
        }
        let unowned = status.shards.saturating_sub(status.owned);
        if unowned > 0 && living > 0 {
            let text = format!("{unowned} of {} shards have no owner yet", status.shards);
            self.say(
                "shards",
                CheckState::Warn,
                text,
                Some("executors take them over within seconds; check again"),
            );
        }
    }

    /// Checks the online agents, and those for which work waits.
    fn agents(&mut self, status: &MeshStatus) {
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
            self.say("agents", CheckState::Fail, text, Some(MISSING_AGENT_HINT));
        }
        let has_queue = |name: &str| status.agents.iter().any(|agent| agent.name == name && agent.queued > 0);
        for (name, count) in status.missing_agents.iter().filter(|(name, _)| !has_queue(name)) {
            let (name, executions) = (words::one_line(name, 60), words::count(*count, "execution"));
            let verb = if *count == 1 { "waits" } else { "wait" };
            let text = format!("agent '{name}' is not online; {executions} {verb} for it");
            self.say("agents", CheckState::Fail, text, Some(MISSING_AGENT_HINT));
        }
    }

    fn rest(&mut self, cards: &Cards, status: &MeshStatus) {
        self.executors(status);
        self.agents(status);
        for refused in cards.refused() {
            let name =
                words::one_line(&refused.agent.name().unwrap_or_else(|| refused.agent.to_string()), 60);
            let text = format!("the card of '{name}' is rejected: {}", refused.reason);
            self.say("cards", CheckState::Warn, text, None);
        }
        if let Some(first) = status.set_aside.first() {
            let count = status.set_aside.len();
            let executions = words::count(count, "execution");
            let text = format!("{executions} held until an operator resumes them, including {first}");
            let hint = "sinew execution list --status waiting, then sinew execution resume ID";
            self.say("executions", CheckState::Warn, text, Some(hint));
        }
        match status.quarantined {
            0 => self.say(
                "quarantine",
                CheckState::Ok,
                "no execution is held and no message is quarantined",
                None,
            ),
            count => {
                let messages = words::count(usize::try_from(count).unwrap_or(usize::MAX), "message");
                let text = format!("{messages} quarantined");
                self.say("quarantine", CheckState::Warn, text, Some("sinew mesh quarantine list"));
            }
        }
    }
}

impl Doctor {
    /// Checks for questions that have waited for people too long.
    fn approvals(&mut self, approvals: &[OpenApproval], now: u64, max_age: Duration) {
        let age = |one: &OpenApproval| now.saturating_sub(one.wait.since.ms());
        let is_old = |one: &&OpenApproval| u128::from(age(one)) >= max_age.as_millis();
        let old = approvals.iter().filter(is_old).count();
        let Some(oldest) = approvals.iter().max_by_key(|one| age(one)).filter(|_| old > 0) else { return };
        let (count, age) = (words::count(old, "approval"), words::duration(age(oldest)));
        let limit = words::duration(u64::try_from(max_age.as_millis()).unwrap_or(u64::MAX));
        let text = format!(
            "{count} waiting for {limit} or longer; execution {} for {age}",
            words::one_line(&oldest.execution, 60)
        );
        self.say(
            "approvals",
            CheckState::Fail,
            text,
            Some("sinew approval list, then sinew approval approve ID"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use sinew_documents::execution::{ShownWait, WaitKind};

    use sinew_documents::mesh::AgentStatus;

    fn executor(silent_ms: Option<u64>) -> ExecutorStatus {
        let [id, version, place] = ["e", "1", "here"].map(str::to_owned);
        ExecutorStatus { id, version, place, shards: 2, silent_ms }
    }

    #[test]
    fn silent_executors_do_not_count_as_alive() {
        use CheckState::{Fail, Ok, Warn};
        // Time without heartbeats of each executor, served shards of four, and the findings about
        // both.
        for (silences, owned, findings) in [
            (&[][..], 0, &[("executors", Fail, "no executor is running, so executions do not progress")][..]),
            (&[None, None], 4, &[("executors", Ok, "2 executors")]),
            // An executor replaced long ago is not alarming.
            (
                &[None, Some(7_200_000)],
                4,
                &[("executors", Ok, "1 executor, 1 unreachable, last heartbeat 2h00m ago")],
            ),
            (
                &[None, Some(90_000), Some(12_000)],
                2,
                &[
                    ("executors", Fail, "1 executor, 2 unreachable, last heartbeat 12.0s ago"),
                    ("shards", Warn, "2 of 4 shards have no owner yet"),
                ],
            ),
            (
                &[Some(90_000), Some(12_000), Some(13_000)],
                0,
                &[(
                    "executors",
                    Fail,
                    "no executor is reachable (3 unreachable, last heartbeat 12.0s ago), so executions do not progress",
                )],
            ),
        ] {
            let executors = silences.iter().copied().map(executor).collect();
            let status = MeshStatus { shards: 4, owned, executors, ..MeshStatus::default() };
            let mut doctor = Doctor::default();
            doctor.executors(&status);
            let told: Vec<_> = doctor
                .checks
                .iter()
                .map(|check| (check.what.as_ref(), check.state, check.message.as_str()))
                .collect();
            assert_eq!(told, findings);
            let hint = doctor.checks[0].hint.as_deref();
            assert_eq!(hint.is_some_and(|hint| hint.contains("sinew serve executor")), told[0].1 == Fail);
        }
    }

    #[test]
    fn work_that_waits_for_an_absent_agent_is_a_failure() {
        let offline = AgentStatus { name: "Courier".to_owned(), queued: 3, ..AgentStatus::default() };
        let online = AgentStatus { name: "Pricing".to_owned(), online: true, ..AgentStatus::default() };
        let status = MeshStatus {
            executors: vec![executor(None)],
            agents: vec![offline, online],
            missing_agents: BTreeMap::from([("Courier".to_owned(), 2), ("Direct".to_owned(), 1)]),
            ..MeshStatus::default()
        };
        let mut doctor = Doctor::default();
        doctor.agents(&status);
        let told: Vec<_> = doctor.checks.iter().map(|check| (check.state, check.message.as_str())).collect();
        let expected = [
            (CheckState::Ok, "1 agent online"),
            (CheckState::Fail, "agent 'Courier' is not online; 3 tasks in its queue"),
            (CheckState::Fail, "agent 'Direct' is not online; 1 execution waits for it"),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn an_approval_that_waits_for_long_is_a_failure() {
        let approval = |execution: &str, since: u64| OpenApproval {
            wait: ShownWait {
                node: None,
                activation: None,
                what: WaitKind::Person,
                text: String::new(),
                subject: String::new(),
                is_late: false,
                since: since.into(),
                until: None,
                agent: None,
                question: None,
                asked_in: None,
            },
            execution: execution.to_owned(),
            workflow: "review".to_owned(),
            caller: "ada".to_owned(),
            path: Vec::new(),
            review: serde_json::Map::new(),
        };
        let approvals = [approval("new", 7_000_000), approval("old", 1_000), approval("older", 0)];
        let check = |max_age: Duration, expected: Option<&str>| {
            let mut doctor = Doctor::default();
            doctor.approvals(&approvals, 7_200_000, max_age);
            let told = doctor.checks.first().map(|check| (check.state, check.message.as_str()));
            assert_eq!(told, expected.map(|text| (CheckState::Fail, text)));
        };
        check(MAX_APPROVAL_AGE, None);
        let text = "2 approvals waiting for 1h00m or longer; execution older for 2h00m";
        check(Duration::from_hours(1), Some(text));
    }
}
