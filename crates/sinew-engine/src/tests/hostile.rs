//! Journals from a store that lost, duplicated, reordered or changed facts: rejected with a reason,
//! without a panic.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::adapter::Scripted;
use super::plan::graph;
use super::properties::{Dice, for_seeds, history};
use super::wire::any_fact;
use crate::{ExecutionState, Fact, FactError, IndexedPlan, Machine, Round, decode_round, fold, waiting};

/// Collects all numbers in a fact.
fn numbers<'a>(value: &'a mut Value, found: &mut Vec<&'a mut Value>) {
    match value {
        Value::Number(_) => found.push(value),
        Value::Array(items) => items.iter_mut().for_each(|item| numbers(item, found)),
        Value::Object(members) => members.values_mut().for_each(|member| numbers(member, found)),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Returns the fact with another number in one position, if it is still a fact.
fn changed(fact: &Fact, dice: &mut Dice) -> Fact {
    let mut json = serde_json::to_value(fact).unwrap();
    let mut found = Vec::new();
    numbers(&mut json, &mut found);
    if found.is_empty() {
        return fact.clone();
    }
    let at = dice.roll(found.len() as u64) as usize;
    *found[at] = dice.pick(&[0, 1, 2, 3, 5, 8, u64::from(u32::MAX), u64::MAX]).into();
    serde_json::from_value(json).unwrap_or_else(|_| fact.clone())
}

/// Folds the accepted facts and checks the result.
fn fold_all(graph: &IndexedPlan, rounds: &[Round]) -> (ExecutionState, Vec<FactError>) {
    let (mut state, mut bad) = (ExecutionState::new(), Vec::new());
    for round in rounds {
        for fact in &round.facts {
            let before = bad.len().is_multiple_of(16).then(|| state.clone());
            match fold(graph, &mut state, round.at, fact) {
                Ok(()) => {}
                Err(error) => {
                    assert!(before.is_none_or(|before| before == state), "a refused fact changes nothing");
                    bad.push(error);
                }
            }
        }
    }
    let machine = Machine::from_state(graph.clone().into(), &Scripted, state, ());
    let _ = (machine.outstanding(), waiting(machine.state()), machine.next_deadline());
    (machine.state().clone(), bad)
}

#[test]
fn damaged_journals_are_refused_and_never_panic() {
    let codes = RefCell::new(BTreeMap::<&str, u32>::new());
    for_seeds(0..4_000, |seed| {
        let world = history(seed).world;
        let mut rounds: Vec<Round> =
            world.journal().iter().map(|bytes| decode_round(bytes).unwrap()).collect();
        let mut dice = Dice::new(seed ^ 0xfeed);
        for _ in 0..=dice.roll(6) {
            let at = dice.roll(rounds.len() as u64) as usize;
            let other = dice.roll(rounds.len() as u64) as usize;
            match dice.roll(8) {
                0 => rounds.swap(at, other),
                1 => drop(rounds.remove(at)),
                2 => rounds.insert(at, rounds[other].clone()),
                3 => rounds[at].at = dice.pick(&[0, u64::MAX]),
                n => {
                    let facts = &mut rounds[at].facts;
                    let at = dice.roll(facts.len() as u64) as usize;
                    match n {
                        4 => facts.insert(at, any_fact(&mut dice)),
                        _ if facts.is_empty() => {}
                        5 => drop(facts.remove(at)),
                        _ => facts[at] = changed(&facts[at], &mut dice),
                    }
                }
            }
            if rounds.is_empty() {
                return;
            }
        }
        for error in fold_all(world.graph(), &rounds).1 {
            *codes.borrow_mut().entry(error.code()).or_default() += 1;
        }
    });
    let codes = codes.into_inner();
    let enough = ["SINEW-6023", "SINEW-6024"].iter().all(|code| codes.get(code).is_some_and(|n| *n > 500));
    assert!(super::properties::chosen_seed().is_some() || enough, "the seeds reach all reasons: {codes:?}");
}

#[test]
fn any_facts_on_any_state_never_panic() {
    let accepted = RefCell::new(0);
    for_seeds(0..4_000, |seed| {
        let world = history(seed).world;
        let start = decode_round(&world.journal()[0]).unwrap();
        let mut dice = Dice::new(seed ^ 0xbeef);
        let mut rounds = vec![start];
        for _ in 0..40 {
            let mut fact = any_fact(&mut dice);
            for _ in 0..4 {
                fact = changed(&fact, &mut dice);
            }
            rounds.push(Round { at: dice.roll(1_000), facts: vec![fact] });
        }
        let (_, bad) = fold_all(world.graph(), &rounds);
        *accepted.borrow_mut() += 40usize.saturating_sub(bad.len());
    });
    assert!(super::properties::chosen_seed().is_some() || accepted.into_inner() > 4_000, "some facts get by");
}

#[test]
fn what_is_refused_says_why() {
    let two = graph("a>b", json!({}));
    let other = graph("a>c", json!({}));
    let start = |graph: &IndexedPlan| {
        let mut machine = Machine::<()>::new(graph.clone().into(), &Scripted);
        let (input, mode) = (Value::Null, crate::ExecutionMode::default());
        let decided = machine
            .handle(0, crate::EngineInput::Start { input, mode, depth: 0, chain: vec![], paused: None });
        (machine.state().clone(), decided.unwrap().round.facts)
    };
    let (state, facts) = start(&two);
    let reply = || Ok(std::sync::Arc::new(crate::TaskReply::new(Value::Null)));
    let cases = [
        (facts[0].clone(), "the fact 'started' cannot follow: the execution has started already"),
        (Fact::Ended, "the fact 'ended' cannot follow: the execution has no outcome"),
        (Fact::Resumed, "the fact 'resumed' cannot follow: the execution is not paused"),
        (Fact::Began { act: 7 }, "the fact 'began' names activation 7, which does not exist"),
        (Fact::Began { act: 0 }, "the fact 'began' does not apply to activation 0, which is running"),
        (
            Fact::Replied {
                act: 0,
                attempt: 2,
                result: reply(),
                retried: false,
                usage: Value::Null,
                worked_ms: None,
            },
            "the fact 'replied' names attempt 2, which does not exist",
        ),
        (
            Fact::Activated(crate::NewActivation { act: 4, ..crate::NewActivation::default() }),
            "the fact 'activated' creates activation 4, but 1 is the next number",
        ),
        (
            Fact::Activated(crate::NewActivation { act: 1, node: 2, ..crate::NewActivation::default() }),
            "the fact 'activated' names node 2, which does not exist",
        ),
        (Fact::Dropped { edge: 0, scope: 1 }, "the fact 'dropped' names scope 1, which does not exist"),
        (Fact::Dropped { edge: 1, scope: 0 }, "the fact 'dropped' names edge 1, which does not exist"),
    ];
    for (fact, expected) in cases {
        let mut copy = state.clone();
        let error = fold(&two, &mut copy, 1, &fact).unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert!(copy == state, "{expected}");
    }
    let (_, foreign) = start(&other);
    let error = fold(&two, &mut ExecutionState::new(), 0, &foreign[0]).unwrap_err();
    assert_eq!(error.code(), "SINEW-6022");
    assert_eq!(
        error.to_string(),
        format!("the journal is of plan {}, not of {}", other.digest(), two.digest())
    );
    let error = fold(&two, &mut ExecutionState::new(), 0, &Fact::Resumed).unwrap_err();
    assert_eq!(error.to_string(), "the fact 'resumed' cannot follow: the execution has not started");
}
