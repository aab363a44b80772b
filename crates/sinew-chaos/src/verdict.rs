//! Verdict on a run, from the journal, the history, the streams, the agents' ledger and the client's
//! accepted starts, never from the memory of a process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;
use sinew_engine::{Fact, RequestTarget, TerminalStatus, decode_round};
use sinew_execution::Execution;
use sinew_executor::client::Client;
use sinew_mesh::history::HistoryFilter;
use sinew_protocol::journal::{Commit, EntryKind, ExecutionRecord};
use sinew_protocol::{ExecutionId, Subject, TaskId, code};
use tokio::time::{Instant, sleep};

use crate::Fallible;
use crate::allowance::{ActivityTimes, Allowances, PowerLosses};
use crate::load::Accepted;
use crate::roles::{AGENTS, Done, MeshArgs};
use crate::workflows;

/// Number of records to read concurrently.
const AT_ONCE: usize = 16;
/// Milliseconds after the end of an execution in which an agent may start one of its tasks: the owner
/// can crash before it removes the task from its queue, and the next owner first takes over the shard.
const WITHDRAWAL_MS: u64 = 20_000;
/// How long to retry reads of a mesh that does not answer.
const READING: Duration = Duration::from_mins(1);
/// Delay before the retry of a read.
const AGAIN: Duration = Duration::from_secs(1);
/// Maximum findings of a kind to show.
const SHOWN: usize = 20;

/// Findings about missing executions, and about records that differ from the journal.
const NO_RECORD: &str = "has no record";
const BEGUN_TWICE: &str = "was begun twice";
const DIFFERENT: &str = "journal and record differ";

/// The verdict.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Verdict {
    /// Starts that were reported as accepted to the client.
    pub(crate) accepted: usize,
    /// Accepted executions that have a record with an end.
    pub(crate) terminal: usize,
    pub(crate) success: usize,
    pub(crate) cancelled: usize,
    pub(crate) failure: usize,
    /// Executions that other executions started.
    pub(crate) children: usize,
    /// Tasks in records.
    pub(crate) tasks: usize,
    /// Lines of the ledger.
    pub(crate) handled: usize,
    /// Lines for a task that another process started before.
    pub(crate) handled_again: usize,
    /// Attempts that an agent started after the end of their execution, within the time of a takeover.
    pub(crate) started_after_end: usize,
    /// Deliveries by the agents' queues beyond the first of each task.
    pub(crate) redeliveries: u64,
    /// Results of attempts that had ended.
    pub(crate) late: u64,
    pub(crate) attempts_failed: usize,
    pub(crate) commits: usize,
    /// Claims of a shard by another or a restarted process.
    pub(crate) takeovers: u64,
    /// Writers that were fenced by another one.
    pub(crate) fenced: u64,
    pub(crate) quarantined: u64,
    /// Accepted executions lost in a power cut, if allowed.
    pub(crate) lost_in_window: usize,
    /// Number of allowed findings.
    pub(crate) allowed: usize,
    /// Accepted executions that are missing or have no end.
    pub(crate) lost: Vec<String>,
    /// Duplicate outcomes, dispatches and ends.
    pub(crate) duplicated: Vec<String>,
    /// Tasks, results and executions without a record.
    pub(crate) orphaned: Vec<String>,
    /// Unexpected outputs and ends.
    pub(crate) wrong: Vec<String>,
}

impl Verdict {
    /// Returns whether the run has no findings.
    pub(crate) fn is_good(&self) -> bool {
        self.accepted > 0
            && self.terminal + self.lost_in_window == self.accepted
            && [&self.lost, &self.duplicated, &self.orphaned, &self.wrong].iter().all(|list| list.is_empty())
    }
}

/// An execution, from its record.
struct ReportedExecution {
    record: ExecutionRecord,
    folded: Execution,
    /// Its tasks: whether an agent was called, and whether the answer was used.
    tasks: BTreeMap<TaskId, Task>,
    /// Executions that it might have started.
    children: BTreeSet<ExecutionId>,
}

#[derive(Clone, Copy, Default)]
struct Task {
    agent: bool,
    answered: bool,
}

/// Reads all sources and returns the verdict. Allowed findings are only counted. Retries while streams
/// do not answer because they have no leader.
///
/// # Errors
///
/// Returns the last error if the mesh cannot be read for a minute.
pub(crate) async fn judge(
    client: &Client,
    place: &MeshArgs,
    accepted: &[Accepted],
    allowed: &Allowances,
) -> Fallible<Verdict> {
    let until = Instant::now() + READING;
    loop {
        match judge_once(client, place, accepted, allowed).await {
            Err(_) if Instant::now() < until => sleep(AGAIN).await,
            read => return read,
        }
    }
}

async fn judge_once(
    client: &Client,
    place: &MeshArgs,
    accepted: &[Accepted],
    allowed: &Allowances,
) -> Fallible<Verdict> {
    let mut verdict = Verdict { accepted: accepted.len(), ..Verdict::default() };
    let mut ids: BTreeSet<ExecutionId> = accepted.iter().map(|one| one.execution.clone()).collect();
    let history = client.mesh().history().list(&HistoryFilter::default(), usize::MAX / 4).await?;
    ids.extend(history.into_iter().map(|closed| closed.execution));
    ids.extend(client.open().await?.into_iter().map(|open| open.execution));
    let read = |id: ExecutionId| async move {
        let told = match client.record(&id).await? {
            Some(record) => {
                let folded = client.folded(&record).await?;
                Some((record, folded))
            }
            None => None,
        };
        Fallible::Ok((id, told))
    };
    let records: Vec<_> = stream::iter(ids).map(read).buffer_unordered(AT_ONCE).try_collect().await?;
    let mut all = BTreeMap::new();
    for (id, told) in records {
        match told {
            Some((record, folded)) => {
                let told = tell(record, folded, &mut verdict);
                all.insert(id, told);
            }
            None => verdict.lost.push(format!("{id} {NO_RECORD}")),
        }
    }
    ends(&mut verdict, &all, accepted);
    parents(&mut verdict, &all, accepted);
    streams(&mut verdict, client, &all, allowed.ghost.as_ref()).await?;
    let mut times = ActivityTimes::default();
    for one in accepted {
        times.add(one.execution.as_ref(), one.at);
    }
    ledger(&mut verdict, place, &all, &mut times)?;
    journals(&mut verdict, client, &all).await?;
    counts(&mut verdict, place);
    if let Some(losses) = &allowed.losses {
        allow_losses(&mut verdict, accepted, &all, &times, losses);
    }
    for list in [&mut verdict.lost, &mut verdict.duplicated, &mut verdict.orphaned, &mut verdict.wrong] {
        if list.len() > SHOWN {
            let more = list.len() - SHOWN;
            list.truncate(SHOWN);
            list.push(format!("and {more} more"));
        }
    }
    Ok(verdict)
}

/// Checks one record: exactly one end, and one outcome for each attempt.
fn tell(record: ExecutionRecord, folded: Execution, verdict: &mut Verdict) -> ReportedExecution {
    let id = record.meta.execution.clone();
    let mut twice = |what: String| verdict.duplicated.push(format!("{id}: {what}"));
    let (mut starts, mut ends, mut at) = (0, 0, 0);
    let (mut sent, mut replied, mut over) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    let mut answered = BTreeSet::new();
    for round in folded.journal() {
        if round.at < at {
            verdict.wrong.push(format!("{id}: time went back"));
        }
        at = round.at;
        for fact in &round.facts {
            match fact {
                Fact::Started(_) => starts += 1,
                Fact::Ended => ends += 1,
                Fact::Late { .. } => verdict.late += 1,
                Fact::Dispatched { act, attempt, ask, .. }
                    if sent.insert((*act, *attempt), ask.target.clone()).is_some() =>
                {
                    twice(format!("attempt {attempt} of {act} was dispatched twice"));
                }
                Fact::Replied { act, attempt, result, .. } => {
                    if !sent.contains_key(&(*act, *attempt)) {
                        twice(format!("attempt {attempt} of {act} was answered without being dispatched"));
                    }
                    if !replied.insert((*act, *attempt)) {
                        twice(format!("attempt {attempt} of {act} was answered twice"));
                    }
                    if result.is_ok() {
                        answered.insert((*act, *attempt));
                    } else {
                        verdict.attempts_failed += 1;
                    }
                }
                Fact::Completed { act, .. }
                | Fact::Failed { act, .. }
                | Fact::Skipped { act, .. }
                | Fact::Cancelled { act, .. }
                    if !over.insert(*act) =>
                {
                    twice(format!("{act} ended twice"));
                }
                _ => {}
            }
        }
    }
    if starts != 1 || ends > 1 {
        twice(format!("it began {starts} times and ended {ends} times"));
    }
    let (mut tasks, mut children) = (BTreeMap::new(), BTreeSet::new());
    for ((act, attempt), target) in
        sent.into_iter().filter(|(_, target)| *target != RequestTarget::Evaluation)
    {
        let activation =
            sinew_execution::activation_key(&id, folded.program().graph.plan(), folded.state(), act);
        let agent =
            matches!(&target, RequestTarget::Agent(name) if AGENTS.iter().any(|(known, ..)| known == name));
        if !agent {
            children.insert(ExecutionId::child(&id, &activation, attempt));
        }
        let task = Task { agent, answered: answered.contains(&(act, attempt)) };
        tasks.insert(TaskId::of(&id, &activation, attempt), task);
    }
    verdict.tasks += tasks.len();
    ReportedExecution { record, folded, tasks, children }
}

/// Checks that all accepted executions ended as expected.
fn ends(verdict: &mut Verdict, all: &BTreeMap<ExecutionId, ReportedExecution>, accepted: &[Accepted]) {
    for one in accepted {
        let id = &one.execution;
        let Some(told) = all.get(id) else { continue };
        let state = told.folded.state();
        let Some(outcome) = state.outcome.as_ref().filter(|_| state.ended) else {
            verdict.lost.push(format!("{id} has not ended"));
            continue;
        };
        verdict.terminal += 1;
        match outcome.status {
            TerminalStatus::Success => {
                verdict.success += 1;
                let output = outcome.output.as_deref().cloned().unwrap_or_default();
                let wrong = if one.fails {
                    Some("it ended in success".to_owned())
                } else {
                    workflows::wrong(one.value, &output)
                };
                verdict.wrong.extend(wrong.map(|what| format!("{id}: {what}")));
            }
            TerminalStatus::Cancelled => {
                verdict.cancelled += 1;
                if !one.cancel {
                    verdict.wrong.push(format!("{id} was cancelled, but nobody asked for it"));
                }
            }
            TerminalStatus::Failure => {
                verdict.failure += 1;
                if one.fails {
                    continue;
                }
                let why = outcome.fault.as_ref().map(|fault| format!("{}: {}", fault.code, fault.message));
                verdict.wrong.push(format!("{id} failed: {}", why.unwrap_or_default()));
            }
        }
    }
}

/// Checks that a task of an accepted execution started each other execution, and that it ended.
fn parents(verdict: &mut Verdict, all: &BTreeMap<ExecutionId, ReportedExecution>, accepted: &[Accepted]) {
    let accepted: BTreeSet<_> = accepted.iter().map(|one| &one.execution).collect();
    for (id, told) in all.iter().filter(|(id, _)| !accepted.contains(id)) {
        verdict.children += 1;
        let parent = told.record.meta.parent.as_ref();
        let known = parent.and_then(|parent| all.get(&parent.execution));
        if !known.is_some_and(|parent| parent.children.contains(id)) {
            verdict.orphaned.push(format!("execution {id} was started by nobody who is known"));
        }
        if !told.folded.state().ended {
            verdict.lost.push(format!("child {id} has not ended"));
        }
    }
}

/// Checks that each stored task and result belongs to a dispatch in a record.
async fn streams(
    verdict: &mut Verdict,
    client: &Client,
    all: &BTreeMap<ExecutionId, ReportedExecution>,
    ghost: Option<&ExecutionId>,
) -> Fallible<()> {
    let mesh = client.mesh();
    let ghost = ghost.map(ToString::to_string);
    for kind in ["TASKS", "RESULTS"] {
        let name = sinew_protocol::stream::bucket(mesh.namespace(), kind);
        let stored = mesh.admin().jetstream().get_stream(&name).await?;
        let mut subjects = stored.info_with_subjects(">").await?;
        let mut stored_tasks = 0;
        while let Some((subject, times)) = subjects.try_next().await? {
            stored_tasks += 1;
            if ghost.as_ref().is_some_and(|ghost| subject.contains(ghost)) {
                continue;
            }
            if times > 1 {
                verdict.duplicated.push(format!("{subject} is stored {times} times"));
            }
            let Some(Subject::Task { execution, task, .. } | Subject::Result { execution, task, .. }) =
                Subject::parse(mesh.namespace(), &subject)
            else {
                verdict.orphaned.push(format!("{subject} is neither a task nor a result"));
                continue;
            };
            if !all.get(&execution).is_some_and(|told| told.tasks.contains_key(&task)) {
                verdict.orphaned.push(format!("{subject} belongs to no dispatch"));
            }
        }
        if kind == "TASKS" {
            let mut delivered = 0;
            let mut consumers = stored.consumers();
            while let Some(consumer) = consumers.try_next().await? {
                delivered += consumer.delivered.consumer_sequence;
            }
            verdict.redeliveries = delivered.saturating_sub(stored_tasks);
        }
    }
    Ok(())
}

/// Returns the end time of an execution; `None` if it is open.
fn ended_at(told: &ReportedExecution) -> Option<u64> {
    let is_end = |fact: &Fact| matches!(fact, Fact::Ended);
    let rounds = told.folded.journal().iter().rev();
    rounds.filter(|round| round.facts.iter().any(is_end)).map(|round| round.at).next()
}

/// Checks that agents processed exactly the dispatched tasks.
fn ledger(
    verdict: &mut Verdict,
    place: &MeshArgs,
    all: &BTreeMap<ExecutionId, ReportedExecution>,
    times: &mut ActivityTimes,
) -> Fallible<()> {
    let mut handled: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut activations: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    for line in fs::read_to_string(place.ledger())?.lines() {
        let done: Done = serde_json::from_str(line)?;
        verdict.handled += 1;
        let handlings = handled.entry((done.execution.clone(), done.task)).or_default();
        *handlings += 1;
        // A redelivery shows only that the task was in the queue, not the state of the execution.
        if *handlings == 1 {
            times.add(&done.execution, done.at);
        }
        let ended = ExecutionId::parse(&done.execution).ok().and_then(|id| ended_at(all.get(&id)?));
        if let Some(late) = ended.and_then(|ended| done.at.checked_sub(ended + WITHDRAWAL_MS)) {
            verdict.started_after_end += 1;
            let (agent, execution) = (&done.agent, &done.execution);
            let late = late + WITHDRAWAL_MS;
            verdict.wrong.push(format!("{agent} started a task of {execution} {late} ms after its end"));
        }
        if !activations.entry(done.activation).or_default().insert(done.attempt) {
            verdict.handled_again += 1;
        }
    }
    for (execution, task) in handled.keys() {
        let told = ExecutionId::parse(execution).ok().and_then(|id| all.get(&id));
        let task = TaskId::parse(task).ok();
        if !told.zip(task).is_some_and(|(told, task)| told.tasks.contains_key(&task)) {
            verdict
                .orphaned
                .push(format!("an agent was asked for a task of {execution} that no record names"));
        }
    }
    for (id, told) in all {
        for (task, _) in told.tasks.iter().filter(|(_, task)| task.agent && task.answered) {
            if !handled.contains_key(&(id.to_string(), task.to_string())) {
                verdict.wrong.push(format!("{id}: task {task} has an answer, but no agent was asked"));
            }
        }
    }
    Ok(())
}

/// Removes findings about writes that a broker with delayed sync may lose: records and parts of
/// journals shortly before a power cut. Keeps executions that do not end, or end wrongly or twice.
fn allow_losses(
    verdict: &mut Verdict,
    accepted: &[Accepted],
    all: &BTreeMap<ExecutionId, ReportedExecution>,
    times: &ActivityTimes,
    losses: &PowerLosses,
) {
    let gone = accepted.iter().filter(|one| !all.contains_key(&one.execution));
    let may_be_gone = |one: &&Accepted| times.may_lose_all(losses, one.execution.as_ref());
    verdict.lost_in_window = gone.filter(may_be_gone).count();
    let count = |verdict: &Verdict| {
        [&verdict.lost, &verdict.orphaned, &verdict.wrong, &verdict.duplicated]
            .map(Vec::len)
            .iter()
            .sum::<usize>()
    };
    let listed = count(verdict);
    verdict.lost.retain(|finding| {
        let id = finding.split(' ').next().unwrap_or_default();
        !(finding.ends_with(NO_RECORD) && times.may_lose_all(losses, id))
    });
    verdict.orphaned.retain(|finding| !times.may_lose_part(losses, finding));
    // Stored values can be lost like messages; their executions fail with these codes.
    let told_lost =
        [code::RESULT_LOST, code::STORED_OBJECT_MISSING].map(|code| format!(" failed: {}", code.as_str()));
    verdict.wrong.retain(|finding| {
        let is_loss = finding.ends_with(DIFFERENT) || told_lost.iter().any(|told| finding.contains(told));
        !(is_loss && times.may_lose_part(losses, finding))
    });
    // The record of a closed execution was lost, and its stored start was processed again.
    verdict
        .duplicated
        .retain(|finding| !(finding.ends_with(BEGUN_TWICE) && times.may_lose_part(losses, finding)));
    verdict.allowed = listed - count(verdict);
}

/// Checks that the journal agrees with the records.
async fn journals(
    verdict: &mut Verdict,
    client: &Client,
    all: &BTreeMap<ExecutionId, ReportedExecution>,
) -> Fallible<()> {
    let shards = client.mesh().admin().layout().await?.shards.get();
    for shard in 0..shards {
        let mut commits = Vec::new();
        let mut journal = client.mesh().journal(shard);
        journal
            .replay::<sinew_mesh::MeshError>(|stored| {
                commits.extend(Commit::decode(&stored.body).ok());
                Ok(())
            })
            .await?;
        verdict.commits += commits.len();
        let mut rounds: BTreeMap<ExecutionId, Vec<_>> = BTreeMap::new();
        for entry in commits.into_iter().flat_map(|commit| commit.entries) {
            if entry.kind == EntryKind::Checkpoint || entry.meta.is_some() {
                if entry.kind == EntryKind::Rounds && rounds.contains_key(&entry.execution) {
                    verdict.duplicated.push(format!("{} {BEGUN_TWICE}", entry.execution));
                }
                rounds.insert(entry.execution, entry.rounds);
            } else if let Some(known) = rounds.get_mut(&entry.execution) {
                known.extend(entry.rounds);
            }
        }
        for (id, rounds) in rounds {
            let Some(told) = all.get(&id) else {
                verdict.lost.push(format!("{id} is in the journal of shard {shard}, but {NO_RECORD}"));
                continue;
            };
            if rounds.iter().zip(&told.record.rounds).any(|(journal, record)| journal != record) {
                verdict.wrong.push(format!("{id}: {DIFFERENT}"));
            }
            if rounds.iter().any(|round| decode_round(round).is_err()) {
                verdict.wrong.push(format!("{id}: a round of the journal cannot be read"));
            }
        }
    }
    Ok(())
}

/// Adds the children's counts, which show effects of the run but do not affect the verdict.
fn counts(verdict: &mut Verdict, place: &MeshArgs) {
    for line in fs::read_to_string(place.counts()).unwrap_or_default().lines() {
        let Some((name, value)) = line.split_once(' ') else { continue };
        let value: u64 = value.parse().unwrap_or_default();
        match name {
            "sinew_takeovers_total" => verdict.takeovers += value,
            "sinew_fenced_total" => verdict.fenced += value,
            "sinew_results_late_total" => verdict.late += value,
            "sinew_quarantined_total" => verdict.quarantined += value,
            _ => {}
        }
    }
}
