//! The other processes of an agent, and calls for the tasks that they hold.
//!
//! A task lives in the process that began it, and calls reach any process. So a call for a task that is not known here is
//! passed on to the process that holds it. Processes know each other by messages that may be lost: a process that is not known is
//! not asked. A process that is alone asks nobody.

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

/// How long the answer of another process about a task is waited for.
const QUESTION_TIMEOUT: Duration = Duration::from_millis(500);
/// Time without a word, after which a process is forgotten.
const PROCESS_LEASE: Duration = CARD_INTERVAL.saturating_mul(3);
/// Questions in a row that a process leaves without an answer before it is not asked any more.
const MAX_SILENCES: u32 = 2;
/// How long a process that may begin a task may take to begin it.
const GRANT_TIME: Duration = Duration::from_secs(10);
/// Tasks that processes may begin now.
const MAX_GRANTS: u64 = 10_000;
/// Holders of one task that are lost, one after the other, before its caller is told.
const MAX_LOST: usize = 3;
/// Time between two questions whether the process that answers a call is still there.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Need of a call, which the process that answers it has to meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallNeed {
    /// A task that is there.
    Task,
    /// A task that is there, or that the call begins.
    Beginning,
}

/// A call as another process gets it.
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
    /// Which process may begin a task of a caller, for those that ask this one.
    grants: moka::sync::Cache<(Token, TaskId), Token>,
}

/// Another process of the agent.
struct OtherProcess {
    heard_at: Instant,
    /// Questions since then that it did not answer.
    silences: u32,
}

/// Answers of other processes about a task.
enum HolderSearch {
    /// This process holds the task.
    Held(Token),
    /// The processes that answered do not hold the task.
    NotHeld(BTreeMap<Token, HolderAnswer>),
}

/// Outcome of passing a call on.
enum ForwardOutcome {
    Answered(A2aOutcome),
    /// The process went before it answered.
    Gone,
}

impl Replicas {
    /// Makes this process known to the others, and hears from them. `None` where permissions or the mesh do not allow it:
    /// then each process answers for its own tasks only.
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

    /// Asks for the other processes, and is heard by them from then on. The question comes before the subscription, so that it
    /// is answered at once if there is no other process.
    async fn join(&self) -> Result<ReplicaEndpoint, MeshError> {
        let hello = ReplicaMessage::Hello { process: self.link.process().clone() };
        if let Ok(ReplicaMessage::Here { process, others }) =
            self.link.ask(None, &hello, QUESTION_TIMEOUT).await
        {
            others.into_iter().chain([process]).for_each(|process| self.hear_of(process));
        }
        let endpoint = self.link.listen().await?;
        // Of two processes that begin at the same moment, the one whose greeting comes later reaches the other.
        self.link.tell(None, &hello).await?;
        Ok(endpoint)
    }

    /// Tells the others that this process is there, and forgets those that were not heard of for long.
    pub(crate) async fn beat(&self) {
        self.rows().retain(|_, other| other.heard_at.elapsed() < PROCESS_LEASE);
        let here = ReplicaMessage::Here { process: self.link.process().clone(), others: Vec::new() };
        self.tell(None, &here).await;
    }

    /// Tells the others that this process is gone.
    pub(crate) async fn leave(&self) {
        self.tell(None, &ReplicaMessage::Gone { process: self.link.process().clone() }).await;
    }

    /// Takes a message of another process; `holds` says whether this one holds a task of a caller.
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
            // A question about node requests is answered by whoever has them.
            ReplicaMessage::Hello { .. } | ReplicaMessage::WorksOn { .. } => {}
        }
    }

    /// Whether no other process is known.
    pub(crate) fn is_alone(&self) -> bool {
        self.rows().is_empty()
    }

    /// Has a call answered by the process that holds its task. `None` if no other one does, so that this one answers.
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

    /// Answers of the other processes to a call that each of them answers for itself; those that came in time.
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

    /// The process other than this one that holds a task or may begin it. `None` if this one may begin the task.
    ///
    /// Of two processes that get the same message at the same moment only one may begin its task. The process with the lowest
    /// token decides, and of those that it does not reach, each asks the next one.
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
            // Settled before the others are asked: they may ask meanwhile.
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

    /// The process that may begin a task: the first one that asked, unless it is gone.
    fn settle(&self, question: &TaskQuestion, gone: &[Token]) -> Token {
        let key = (question.caller.clone(), question.task.clone());
        let entry = self.grants.entry(key).and_upsert_with(|before| {
            let before = before.map(moka::Entry::into_value).filter(|process| !gone.contains(process));
            before.unwrap_or_else(|| question.process.clone())
        });
        entry.into_value()
    }

    /// Whether another process works on a task of an execution or has done it. That process answers the executor, too.
    pub(crate) async fn works_elsewhere(&self, task: &TaskId, result: &str) -> bool {
        let message = ReplicaMessage::WorksOn { task: task.clone(), result: result.to_owned() };
        matches!(self.ask_each(|_| message.clone()).await, HolderSearch::Held(_))
    }

    /// Asks all other processes for a task until one says that it holds it. The settler is asked which process may begin it.
    async fn ask_all(&self, question: &TaskQuestion, settler: Option<(&Token, &[Token])>) -> HolderSearch {
        self.ask_each(|process| match settler {
            Some((settler, gone)) if settler == process => {
                ReplicaMessage::MayBegin { question: question.clone(), gone: gone.to_vec() }
            }
            _ => ReplicaMessage::Holds(question.clone()),
        })
        .await
    }

    /// Asks each other process until one says that it holds what it is asked for.
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
                // It has died, or its connection is made anew. A question to it costs nothing until it is forgotten.
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

    /// Has a call answered by another process, as long as that is there.
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
                // Once may be a connection that is made anew.
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

    /// The other processes that a question may reach.
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

/// The error of a call that another process may have taken and did not answer.
fn unanswered(reason: &str) -> A2aError {
    let text = format!("the process that holds the task did not respond: {reason}");
    error_of(&Fault::error(code::NO_ANSWER_ON_MESH.as_str(), text))
}
