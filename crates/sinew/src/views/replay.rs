//! `execution replay`: folds the journal and decides again, offline, to see whether this version would have decided
//! the same.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use sinew_engine::{ATTEMPT_TIMED_OUT, Fact, Graph, Input, Machine, Retry, Round, State, TokenValue, Val};
use sinew_executor::Program;

use super::Standing;
use crate::record::Record;

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Report {
    pub(crate) execution: String,
    pub(crate) workflow: String,
    pub(crate) rounds: usize,
    pub(crate) facts: usize,
    pub(crate) status: Standing,
    /// Rounds whose inputs were decided again and gave the same facts.
    pub(crate) decided_again: usize,
    /// The first that gave others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) difference: Option<Difference>,
}

/// A round that this version decides differently.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Difference {
    /// Which, counted from 1.
    pub(crate) round: usize,
    /// The first fact that is not the same, as it is in the record.
    pub(crate) recorded: Value,
    /// And as it is decided now.
    pub(crate) decided: Value,
}

/// Replays a record. Without `decide`, only the fold is done.
pub(crate) fn replay(record: &Record, decide: bool) -> Report {
    let rounds = record.execution.journal();
    let mut report = Report {
        execution: record.id().to_owned(),
        workflow: record.plan().name.clone(),
        rounds: rounds.len(),
        facts: rounds.iter().map(|round| round.facts.len()).sum(),
        status: Standing::of(record.execution.state()),
        decided_again: 0,
        difference: None,
    };
    if !decide {
        return report;
    }
    let program = record.execution.program();
    let mut machine = fold(program, &[]);
    for (n, round) in rounds.iter().enumerate() {
        let mut found = None;
        for (again, input) in inputs(machine.graph(), machine.state(), round).into_iter().enumerate() {
            if again > 0 {
                // The first guess was decided and has changed the state.
                machine = fold(program, &rounds[..n]);
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
                report.difference = Some(Difference { round: n + 1, recorded, decided });
                return report;
            }
            None => machine = fold(program, &rounds[..=n]),
        }
    }
    report
}

fn fold(program: &Program, rounds: &[Round]) -> Machine<()> {
    Machine::recover(Arc::clone(&program.graph), program.adapter, rounds)
}

/// Inputs that the facts of a round may have come of, the likeliest first.
fn inputs(graph: &Graph, state: &State, round: &Round) -> Vec<Input> {
    let told = round.facts.iter().find_map(|fact| input(graph, state, round, fact));
    told.into_iter().chain([Input::Tick]).collect()
}

fn input(graph: &Graph, state: &State, round: &Round, fact: &Fact) -> Option<Input> {
    Some(match fact {
        Fact::Started(start) => Input::Start {
            input: Value::clone(&start.input),
            mode: start.mode.clone(),
            depth: start.depth,
            chain: start.chain.clone(),
        },
        Fact::Replied { result: Err(fault), .. } if fault.code == ATTEMPT_TIMED_OUT => return None,
        Fact::Replied { act, attempt, result, .. } => Input::Done {
            act: *act,
            attempt: *attempt,
            result: result.as_ref().map(|reply| reply.as_ref().clone()).map_err(Clone::clone),
        },
        Fact::Late { act, attempt } => {
            Input::Done { act: *act, attempt: *attempt, result: Ok(sinew_engine::Reply::default()) }
        }
        Fact::Progressed { act, attempt, value } => {
            Input::Progress { act: *act, attempt: *attempt, value: value.clone() }
        }
        Fact::Yielded { act, tokens } => {
            let token = tokens.first()?;
            let TokenValue::Given(value) = &token.value else { return None };
            let attempt = state.acts.get(*act as usize)?.running?;
            let port = graph.plan().edge(token.edge).port.clone();
            Input::Yield { act: *act, attempt, port, value: value.clone() }
        }
        Fact::Answered { act, answer } if !answer.timed_out => {
            Input::Answer { act: *act, answer: answer.as_ref().clone() }
        }
        Fact::CancelRequested { reason } => Input::Cancel { reason: reason.clone() },
        Fact::Paused { reason } => Input::Pause { reason: reason.clone() },
        Fact::Resumed => Input::Resume,
        Fact::Reopened { acts, reason, input, .. } => {
            let ids = acts.iter().filter_map(|act| state.acts.get(*act as usize));
            let nodes: Vec<String> = ids.map(|one| graph.plan().node(one.node).id.clone()).collect();
            let input = input
                .as_ref()
                .or_else(|| round.facts.iter().find_map(given))
                .map(|input| Value::clone(input));
            let retry = Retry { only: !nodes.is_empty(), nodes, input };
            Input::Retry { retry, reason: reason.clone() }
        }
        _ => return None,
    })
}

/// What an operator gave a node to ask with.
fn given(fact: &Fact) -> Option<&Val> {
    let Fact::Activated(made) = fact else { return None };
    made.input.as_ref()
}

/// The first facts that are not the same.
fn differs(round: &Round, decided: &[Fact]) -> Option<(Value, Value)> {
    let json = |fact: Option<&Fact>| serde_json::to_value(fact).unwrap_or_default();
    let length = round.facts.len().max(decided.len());
    (0..length)
        .map(|n| (round.facts.get(n), decided.get(n)))
        .find(|(recorded, decided)| recorded != decided)
        .map(|(recorded, decided)| (json(recorded), json(decided)))
}
