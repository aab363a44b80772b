//! `execution replay`: folds the journal and decides again, offline, to check whether this version
//! makes the same decisions.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use sinew_documents::execution_status;
use sinew_engine::{
    ATTEMPT_TIMED_OUT, EngineInput, ExecutionState, Fact, IndexedPlan, Machine, RetryRequest, Round,
    SharedJson, TokenValue,
};

use crate::execution_status::status_of;
use crate::record::Record;
use sinew_protocol::query::ExecutionStatus;

/// Outcome of the replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplayReport {
    /// Id of the execution.
    pub execution: String,
    /// Name of the workflow.
    pub workflow: String,
    /// Rounds of the journal.
    pub rounds: usize,
    /// Facts of all rounds.
    pub facts: usize,
    /// Status.
    #[serde(serialize_with = "execution_status::serialize")]
    pub status: ExecutionStatus,
    /// Rounds that were decided again with the same facts.
    pub decided_again: usize,
    /// The first round with other facts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<RoundDifference>,
}

/// A round that this version decides differently.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoundDifference {
    /// Number of the round, from 1.
    pub round: usize,
    /// The first fact that differs, as recorded.
    pub recorded: Value,
    /// The same fact as decided now.
    pub decided: Value,
}

/// Replays a record. Without `decide`, it only folds the facts.
pub fn replay(record: &Record, decide: bool) -> ReplayReport {
    let rounds = record.execution.journal();
    let mut report = ReplayReport {
        execution: record.id().to_owned(),
        workflow: record.plan().name.clone(),
        rounds: rounds.len(),
        facts: rounds.iter().map(|round| round.facts.len()).sum(),
        status: status_of(record.execution.state()),
        decided_again: 0,
        difference: None,
    };
    if !decide {
        return report;
    }
    let mut machine = fold(record, &[]);
    for (n, round) in rounds.iter().enumerate() {
        let mut found = None;
        for (again, input) in inputs(machine.graph(), machine.state(), round).into_iter().enumerate() {
            if again > 0 {
                // Deciding the previous candidate has changed the state.
                machine = fold(record, &rounds[..n]);
            }
            let decided = machine.handle(round.at, input).unwrap_or_default();
            let difference = differs(round, decided.facts());
            let same = difference.is_none();
            if same || found.is_none() {
                found = Some(difference);
            }
            if same {
                break;
            }
        }
        match found {
            Some(None) => report.decided_again += 1,
            Some(Some((recorded, decided))) => {
                report.difference = Some(RoundDifference { round: n + 1, recorded, decided });
                return report;
            }
            None => machine = fold(record, &rounds[..=n]),
        }
    }
    report
}

fn fold(record: &Record, rounds: &[Round]) -> Machine<()> {
    let program = record.execution.program();
    let machine = Machine::recover(Arc::clone(&program.graph), program.adapter, rounds);
    machine.with_execution_id(record.execution.id().as_str())
}

/// Inputs that may have caused the facts of a round, most likely first.
fn inputs(graph: &IndexedPlan, state: &ExecutionState, round: &Round) -> Vec<EngineInput> {
    let told = round.facts.iter().find_map(|fact| input(graph, state, round, fact));
    told.into_iter().chain([EngineInput::Tick]).collect()
}

/// Returns the reason with which an execution started paused.
fn pause_at_start(round: &Round) -> Option<String> {
    match round.facts.get(1) {
        Some(Fact::Paused { reason }) => Some(reason.clone()),
        _ => None,
    }
}

fn input(graph: &IndexedPlan, state: &ExecutionState, round: &Round, fact: &Fact) -> Option<EngineInput> {
    Some(match fact {
        Fact::Started(start) => EngineInput::Start {
            input: Value::clone(&start.input),
            mode: start.mode.clone(),
            depth: start.depth,
            chain: start.chain.clone(),
            paused: pause_at_start(round),
        },
        Fact::Replied { result: Err(fault), .. } if fault.code == ATTEMPT_TIMED_OUT => return None,
        Fact::Replied { act, attempt, result: Err(fault), usage, worked_ms, .. } => EngineInput::Failed {
            act: *act,
            attempt: *attempt,
            fault: fault.clone(),
            usage: usage.clone(),
            worked_ms: *worked_ms,
        },
        Fact::Replied { act, attempt, result: Ok(reply), worked_ms, .. } => EngineInput::Done {
            act: *act,
            attempt: *attempt,
            result: Ok(sinew_engine::TaskReply { worked_ms: *worked_ms, ..reply.as_ref().clone() }),
        },
        Fact::Late { act, attempt, usage } if !usage.is_null() => {
            EngineInput::Usage { act: *act, attempt: *attempt, usage: usage.clone() }
        }
        Fact::Late { act, attempt, .. } => {
            EngineInput::Done { act: *act, attempt: *attempt, result: Ok(sinew_engine::TaskReply::default()) }
        }
        Fact::Progressed { act, attempt, value } => {
            EngineInput::Progress { act: *act, attempt: *attempt, value: value.clone() }
        }
        Fact::CalleeWaits { act, attempt, callee, number, wait } => EngineInput::CalleeWait {
            act: *act,
            attempt: *attempt,
            callee: callee.clone(),
            number: *number,
            wait: wait.clone(),
        },
        Fact::Yielded { act, tokens } => {
            let token = tokens.first()?;
            let TokenValue::Given(value) = &token.value else { return None };
            let attempt = state.acts.get(*act as usize)?.running?;
            let port = graph.plan().edge(token.edge).port.clone();
            EngineInput::Yield { act: *act, attempt, port, value: value.clone() }
        }
        Fact::Answered { act, answer } if !answer.timed_out => {
            EngineInput::Answer { act: *act, answer: answer.as_ref().clone() }
        }
        Fact::CancelRequested { reason } => EngineInput::Cancel { reason: reason.clone() },
        Fact::Paused { reason } => EngineInput::Pause { reason: reason.clone() },
        Fact::Resumed => EngineInput::Resume,
        Fact::Reopened { acts, reason, input, .. } => {
            let ids = acts.iter().filter_map(|act| state.acts.get(*act as usize));
            let nodes: Vec<String> = ids.map(|one| graph.plan().node(one.node).id.clone()).collect();
            let input = input
                .as_ref()
                .or_else(|| round.facts.iter().find_map(given))
                .map(|input| Value::clone(input));
            let retry = RetryRequest { only: !nodes.is_empty(), nodes, input };
            EngineInput::Retry { retry, reason: reason.clone() }
        }
        _ => return None,
    })
}

/// The input that an operator set for a node.
fn given(fact: &Fact) -> Option<&SharedJson> {
    let Fact::Activated(made) = fact else { return None };
    made.input.as_ref()
}

/// Returns the first facts that differ.
fn differs(round: &Round, decided: &[Fact]) -> Option<(Value, Value)> {
    let json = |fact: Option<&Fact>| serde_json::to_value(fact).unwrap_or_default();
    let length = round.facts.len().max(decided.len());
    (0..length)
        .map(|n| (round.facts.get(n), decided.get(n)))
        .find(|(recorded, decided)| recorded != decided)
        .map(|(recorded, decided)| (json(recorded), json(decided)))
}
