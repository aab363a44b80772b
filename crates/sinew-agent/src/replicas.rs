//! The other processes of an agent, and forwarding of calls for their tasks.
//!
//! A task is held by the process that started it, and calls reach any process. So a call for an
//! unknown task is forwarded to the process that holds it. Processes learn of each other by
//! messages that may be lost; unknown processes are not queried. A single process sends no queries.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use sinew_mesh::a2a_endpoint::{A2aAnswer, A2aCall, A2aOutcome, relayed_outcome};
use sinew_mesh::async_nats::{HeaderMap, Subject};
use sinew_mesh::replica::{HolderAnswer, ReplicaEndpoint, ReplicaLink, ReplicaMessage, TaskQuestion};
use sinew_mesh::rpc::RpcReply;
use sinew_mesh::{MeshError, is_granted};
use sinew_protocol::a2a::A2aError;
use sinew_protocol::card::CARD_INTERVAL;
use sinew_protocol::jsonrpc::error_of;
use sinew_protocol::{Fault, TaskId, Token, code};
use tokio::time::{Instant, sleep};

use crate::agent_host::AgentHost;

/// Timeout of a query to another process about a task.
const QUESTION_TIMEOUT: Duration = Duration::from_millis(500);
/// Time without messages after which a process is forgotten.
const PROCESS_LEASE: Duration = CARD_INTERVAL.saturating_mul(3);
/// Consecutive unanswered queries after which a process is no longer queried.
const MAX_SILENCES: u32 = 2;
/// Time in which a process that may start a task must start it.
const GRANT_TIME: Duration = Duration::from_secs(10);
/// Maximum number of remembered grants to start a task.
const MAX_GRANTS: u64 = 10_000;
/// Consecutive lost holders of one task before its caller gets an error.
const MAX_LOST: usize = 3;
/// Interval of checks whether the process that answers a call is still running.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Requirement of a call on the process that answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallNeed {
    /// An existing task.
    Task,
    /// A task that exists or that the call starts.
    Beginning,
}

/// A call as forwarded to another process.
pub(crate) struct PassedCall<'a> {
    caller: &'a Token,
    headers: &'a HeaderMap,
    body: Bytes,
}

impl<'a> PassedCall<'a> {
    pub(crate) fn of(call: &'a A2aCall) -> Self {
        Self { caller: &call.caller, headers: &call.headers, body: call.body() }
    }
}

/// The other processes of an agent.
pub(crate) struct Replicas {
    link: ReplicaLink,
    others: Mutex<BTreeMap<Token, OtherProcess>>,
    /// Process that may start a task of a caller, for processes that query this one.
    grants: moka::sync::Cache<(Token, TaskId), Token>,
}

/// Another process of the agent.
struct OtherProcess {
    heard_at: Instant,
    /// Consecutive queries that it did not answer.
    silences: u32,
}

/// Answers of other processes about a task.
enum HolderSearch {
    /// This process holds the task.
    Held(Token),
    /// The processes that replied do not hold the task.
    NotHeld(BTreeMap<Token, HolderAnswer>),
}

/// Outcome of forwarding a call.
enum ForwardOutcome {
    Answered(A2aOutcome),
    /// The process ended before it replied.
    Gone,
}

impl Replicas {
    /// Announces this process to the others, and subscribes to their messages. `None` if
    /// permissions or the mesh do not allow it: then each process only answers for its own tasks.
    pub(crate) async fn open(host: &AgentHost) -> Result<Option<(Arc<Self>, ReplicaEndpoint)>, MeshError> {
        let (name, services) = (&host.agent.agent.name, host.mesh.services());
        if !is_granted(services.may_link_replicas(name).await)? {
            tracing::warn!(
                agent = name,
                "each process of the agent serves only its own tasks; run `sinew mesh permissions` again to let processes \
                 find each other's tasks"
            );
            return Ok(None);
        }
        let replicas = Self {
            link: services.replica_link(name),
            others: Mutex::default(),
            grants: moka::sync::Cache::builder().max_capacity(MAX_GRANTS).time_to_live(GRANT_TIME).build(),
        };
        let endpoint = match replicas.join().await {
            Ok(endpoint) => endpoint,
            Err(error) if error.is_transient() => return Err(error),
            Err(error) => {
                tracing::warn!(agent = name, %error, "each process of the agent serves only its own tasks");
                return Ok(None);
            }
        };
        Ok(Some((Arc::new(replicas), endpoint)))
    }

    /// Queries the other processes and subscribes to their messages. The query precedes the
    /// subscription, so that it fails immediately if there is no other process.
    async fn join(&self) -> Result<ReplicaEndpoint, MeshError> {
        let hello = ReplicaMessage::Hello { process: self.link.process().clone() };
        if let Ok(ReplicaMessage::Here { process, others }) =
            self.link.ask(None, &hello, QUESTION_TIMEOUT).await
        {
            others.into_iter().chain([process]).for_each(|process| self.hear_of(process));
        }
        let endpoint = self.link.listen().await?;
        // Of two processes that start simultaneously, the one with the later greeting reaches the
        // other.
        self.link.tell(None, &hello).await?;
        Ok(endpoint)
    }

    /// Announces this process, and forgets those without recent messages.
    pub(crate) async fn beat(&self) {
        self.rows().retain(|_, other| other.heard_at.elapsed() < PROCESS_LEASE);
        let here = ReplicaMessage::Here { process: self.link.process().clone(), others: Vec::new() };
        self.tell(None, &here).await;
    }

    /// Announces the end of this process.
    pub(crate) async fn leave(&self) {
        self.tell(None, &ReplicaMessage::Gone { process: self.link.process().clone() }).await;
    }

    /// Handles a message of another process; `holds` returns whether this one holds a task of a
    /// caller.
    pub(crate) async fn take(
        &self,
        message: ReplicaMessage,
        reply: Option<Subject>,
        holds: impl Fn(&TaskQuestion) -> bool,
    ) {
        let own = self.link.process();
        match message {
            ReplicaMessage::Hello { process } if process != *own => {
                let others = self.rows().keys().filter(|other| **other != process).cloned().collect();
                self.hear_of(process.clone());
                let here = ReplicaMessage::Here { process: own.clone(), others };
                match reply {
                    Some(reply) => self.answer(reply, &here).await,
                    None => self.tell(Some(&process), &here).await,
                }
            }
            ReplicaMessage::Here { process, .. } => self.hear_of(process),
            ReplicaMessage::Gone { process } => drop(self.rows().remove(&process)),
            ReplicaMessage::Holds(question) => {
                let Some(reply) = reply else { return };
                let answer = if holds(&question) { HolderAnswer::Held } else { HolderAnswer::NotHeld };
                self.hear_of(question.process);
                self.answer(reply, &answer).await;
            }
            ReplicaMessage::MayBegin { question, gone } => {
                let Some(reply) = reply else { return };
                let answer = if holds(&question) {
                    HolderAnswer::Held
                } else {
                    HolderAnswer::Begun { by: self.settle(&question, &gone) }
                };
                self.hear_of(question.process);
                self.answer(reply, &answer).await;
            }
            // The node endpoint answers queries about node requests.
            ReplicaMessage::Hello { .. } | ReplicaMessage::WorksOn { .. } => {}
        }
    }

    /// Returns whether no other process is known.
    pub(crate) fn is_alone(&self) -> bool {
        self.rows().is_empty()
    }

    /// Forwards a call to the process that holds its task. `None` if no other one does, so that
    /// this one answers.
    pub(crate) async fn pass_on(
        &self,
        call: &PassedCall<'_>,
        task: &TaskId,
        need: CallNeed,
        timeout: Duration,
    ) -> Option<A2aOutcome> {
        let process = self.link.process().clone();
        let question = TaskQuestion { process, caller: call.caller.clone(), task: task.clone() };
        let mut gone = Vec::new();
        while gone.len() < MAX_LOST {
            let holder = match need {
                CallNeed::Task => match self.ask_all(&question, None).await {
                    HolderSearch::Held(holder) => holder,
                    HolderSearch::NotHeld(_) => return None,
                },
                CallNeed::Beginning => self.other_beginner(&question, &gone).await?,
            };
            match self.forward(&holder, &question, call, timeout).await {
                ForwardOutcome::Answered(outcome) => return Some(outcome),
                ForwardOutcome::Gone => gone.push(holder),
            }
        }
        Some(Err(unanswered("the processes of the agent stopped before they responded")))
    }

    /// Returns the replies of the other processes to a call that each answers for itself, as far as
    /// they arrive in time.
    pub(crate) async fn answers_of_all(&self, call: &PassedCall<'_>, timeout: Duration) -> Vec<A2aAnswer> {
        let others = self.asked_processes();
        let asked =
            others.iter().map(|process| async move { (process, self.send(process, call, timeout).await) });
        let mut asked: FuturesUnordered<_> = asked.collect();
        let mut answers = Vec::new();
        while let Some((process, reply)) = asked.next().await {
            let outcome = match reply {
                Ok(reply) => relayed_outcome(&reply),
                Err(error) => Err(unanswered(&error.to_string())),
            };
            match outcome {
                Ok(answer) => answers.push(answer),
                Err(error) => {
                    tracing::debug!(%process, %error, "a process does not respond to a call to all processes");
                }
            }
        }
        answers
    }

    /// Returns the other process that holds a task or may start it. `None` if this one may start
    /// the task.
    ///
    /// If two processes receive the same message simultaneously, only one may start its task. The
    /// process with the lowest token decides; if it is unreachable, the next one does.
    async fn other_beginner(&self, question: &TaskQuestion, gone: &[Token]) -> Option<Token> {
        let own = &question.process;
        let mut unheard = gone.to_vec();
        loop {
            let others = self.asked_processes();
            if others.is_empty() {
                return None;
            }
            let settler = others.iter().filter(|other| !unheard.contains(other)).chain([own]).min();
            let settler = settler.unwrap_or(own);
            // Decide before querying the others, because they may query meanwhile.
            let settled = (settler == own).then(|| self.settle(question, gone));
            let answers = match self.ask_all(question, Some((settler, gone))).await {
                HolderSearch::Held(holder) => return Some(holder),
                HolderSearch::NotHeld(answers) => answers,
            };
            let settled = settled.or_else(|| match answers.get(settler) {
                Some(HolderAnswer::Begun { by }) => Some(by.clone()),
                Some(HolderAnswer::Held | HolderAnswer::NotHeld) => Some(own.clone()),
                None => None,
            });
            match settled {
                Some(process) => return (process != *own).then_some(process),
                None => unheard.push(settler.clone()),
            }
        }
    }

    /// Returns the process that may start a task: the first one that asked, unless it is gone.
    fn settle(&self, question: &TaskQuestion, gone: &[Token]) -> Token {
        let key = (question.caller.clone(), question.task.clone());
        let entry = self.grants.entry(key).and_upsert_with(|before| {
            let before = before.map(moka::Entry::into_value).filter(|process| !gone.contains(process));
            before.unwrap_or_else(|| question.process.clone())
        });
        entry.into_value()
    }

    /// Returns whether another process runs a task of an execution or has completed it. That
    /// process also answers the executor.
    pub(crate) async fn works_elsewhere(&self, task: &TaskId, result: &str) -> bool {
        let message = ReplicaMessage::WorksOn { task: task.clone(), result: result.to_owned() };
        matches!(self.ask_each(|_| message.clone()).await, HolderSearch::Held(_))
    }

    /// Queries all other processes for a task until one holds it. The settler is asked which
    /// process may start it.
    async fn ask_all(&self, question: &TaskQuestion, settler: Option<(&Token, &[Token])>) -> HolderSearch {
        self.ask_each(|process| match settler {
            Some((settler, gone)) if settler == process => {
                ReplicaMessage::MayBegin { question: question.clone(), gone: gone.to_vec() }
            }
            _ => ReplicaMessage::Holds(question.clone()),
        })
        .await
    }

    /// Queries the other processes until one holds the task.
    async fn ask_each(&self, message_for: impl Fn(&Token) -> ReplicaMessage) -> HolderSearch {
        let (others, message_for) = (self.asked_processes(), &message_for);
        let asked = others.iter().map(|process| async move {
            let message = message_for(process);
            (process, self.link.ask::<HolderAnswer>(Some(process), &message, QUESTION_TIMEOUT).await)
        });
        let mut asked: FuturesUnordered<_> = asked.collect();
        let mut answers = BTreeMap::new();
        while let Some((process, answer)) = asked.next().await {
            match answer {
                Ok(answer) => {
                    self.hear_of(process.clone());
                    if answer == HolderAnswer::Held {
                        return HolderSearch::Held(process.clone());
                    }
                    answers.insert(process.clone(), answer);
                }
                // It has crashed, or is reconnecting. Queries to it cost nothing until it is
                // forgotten.
                Err(MeshError::NobodyAnswers { .. }) => {}
                Err(error) => {
                    tracing::debug!(%process, %error, "a process does not report which tasks it holds");
                    if let Some(other) = self.rows().get_mut(process) {
                        other.silences += 1;
                    }
                }
            }
        }
        HolderSearch::NotHeld(answers)
    }

    /// Forwards a call to another process, while that is running.
    async fn forward(
        &self,
        holder: &Token,
        question: &TaskQuestion,
        call: &PassedCall<'_>,
        timeout: Duration,
    ) -> ForwardOutcome {
        let mut reply = std::pin::pin!(self.send(holder, call, timeout));
        let (mut heard_at, mut absences) = (Instant::now(), 0);
        loop {
            let asked = tokio::select! {
                biased;
                reply = &mut reply => {
                    return match reply {
                        Ok(reply) => ForwardOutcome::Answered(relayed_outcome(&reply)),
                        Err(MeshError::NobodyAnswers { .. }) => ForwardOutcome::Gone,
                        Err(error) => ForwardOutcome::Answered(Err(unanswered(&error.to_string()))),
                    };
                }
                () = sleep(CHECK_INTERVAL) => {
                    let message = ReplicaMessage::Holds(question.clone());
                    self.link.ask::<HolderAnswer>(Some(holder), &message, QUESTION_TIMEOUT).await
                }
            };
            match asked {
                Ok(_) => (heard_at, absences) = (Instant::now(), 0),
                // A single absence may be a reconnection.
                Err(MeshError::NobodyAnswers { .. }) if absences > 0 => return ForwardOutcome::Gone,
                Err(MeshError::NobodyAnswers { .. }) => absences += 1,
                Err(_) if heard_at.elapsed() < PROCESS_LEASE => {}
                Err(error) => return ForwardOutcome::Answered(Err(unanswered(&error.to_string()))),
            }
        }
    }

    async fn send(
        &self,
        to: &Token,
        call: &PassedCall<'_>,
        timeout: Duration,
    ) -> Result<RpcReply, MeshError> {
        self.link.forward(to, call.caller, call.headers.clone(), call.body.clone(), timeout).await
    }

    fn hear_of(&self, process: Token) {
        if process != *self.link.process() {
            self.rows().insert(process, OtherProcess { heard_at: Instant::now(), silences: 0 });
        }
    }

    /// Returns the other processes that a query may reach.
    fn asked_processes(&self) -> Vec<Token> {
        let rows = self.rows();
        let asked = rows.iter().filter(|(_, other)| other.silences < MAX_SILENCES);
        asked.map(|(process, _)| process.clone()).collect()
    }

    async fn tell(&self, to: Option<&Token>, message: &ReplicaMessage) {
        if let Err(error) = self.link.tell(to, message).await {
            tracing::debug!(%error, "cannot notify the other processes of the agent");
        }
    }

    pub(crate) async fn answer(&self, reply: Subject, answer: &impl serde::Serialize) {
        if let Err(error) = self.link.answer(reply, answer).await {
            tracing::debug!(%error, "cannot reply to another process of the agent");
        }
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<Token, OtherProcess>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Error of a call that another process may have accepted and did not answer.
fn unanswered(reason: &str) -> A2aError {
    let text = format!("the process that holds the task did not respond: {reason}");
    error_of(&Fault::error(code::NO_ANSWER_ON_MESH.as_str(), text))
}
