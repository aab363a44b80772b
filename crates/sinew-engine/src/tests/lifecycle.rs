//! The lifecycle table: every row occurs, no other transition does, and the page shows it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::plan::graph;
use super::properties::{History, chosen_seed, history};
use super::script::parse;
use super::world::World;
use crate::lifecycle::{TRANSITIONS, Transition, page};
use crate::{ActivationPhase, ExecutionState, FactKind, apply, decode_round};

/// A change of a phase in a journal.
type Change = (Option<ActivationPhase>, FactKind, ActivationPhase);

/// Returns all phase changes in a journal. A change without a row in the table is an error.
fn changes(world: &World) -> BTreeSet<(&'static str, &'static str, &'static str)> {
    let mut state = ExecutionState::new();
    let mut found = BTreeSet::new();
    for round in world.journal().iter().map(|bytes| decode_round(bytes).unwrap()) {
        for fact in &round.facts {
            let before: Vec<_> = state.acts.iter().map(|one| one.phase).collect();
            apply(world.graph(), &mut state, round.at, fact);
            for (act, one) in state.acts.iter().enumerate() {
                let from = before.get(act).copied();
                let named = fact.activation() == Some(act as u32) || from.is_none();
                if !named {
                    assert_eq!(from, Some(one.phase), "{fact:?} changes the phase of activation {act}");
                } else if TRANSITIONS.iter().any(|row| row.fact == fact.kind()) {
                    let change = (from, fact.kind(), one.phase);
                    assert!(TRANSITIONS.iter().any(|row| is(*row, change)), "no row for {change:?}");
                    found.insert(words(change));
                } else {
                    assert_eq!(from, Some(one.phase), "{fact:?} has no row and changes a phase");
                }
            }
        }
    }
    found
}

fn is(row: Transition, change: Change) -> bool {
    (row.from, row.fact, row.to) == change
}

fn words((from, fact, to): Change) -> (&'static str, &'static str, &'static str) {
    (from.map_or("-", ActivationPhase::as_str), fact.as_str(), to.as_str())
}

/// Returns a history with these inputs after its start, completed to its end.
fn told(edges: &str, settings: Value, inputs: &[&str]) -> World {
    let mut history = History::new(graph(edges, settings));
    for input in ["start [1]"].iter().chain(inputs) {
        if let Some(at) = input.strip_prefix('@') {
            history.world.now = at.parse().unwrap();
        }
        let input = parse(&history.world, input);
        history.give(input).unwrap();
    }
    history.finish();
    history.world
}

/// Returns each decision of an adapter after a sleep and after children, at the top level and in a
/// map.
fn decisions() -> Vec<World> {
    let mut worlds = Vec::new();
    for word in ["ask", "sleep", "wait", "fan", "skip", "done", "fail"] {
        for hook in ["wake", "gather"] {
            let mut node = json!({ "op": "map", "body": "b", "items": 1 });
            node[hook] = json!([word, "done"]);
            if hook == "wake" {
                node["first"] = json!("sleep");
            }
            worlds.push(told("a", json!({ "a": node.clone() }), &[]));
            worlds.push(told("m", json!({ "m": { "op": "map", "body": "a", "items": 1 }, "a": node }), &[]));
        }
    }
    worlds
}

/// Returns histories that random inputs rarely reach.
fn corners() -> Vec<World> {
    let retry = json!({ "limit": 1, "delay_ms": 30 });
    let slow = json!({ "limit": 1, "delay_ms": 300 });
    let map = |body: Value| json!({ "m": { "op": "map", "body": "a", "items": 1 }, "a": body });
    let skip = json!({ "skip": 1 });
    let freeze = json!({
        "@": { "pause": "freeze" },
        "h": { "op": "human" },
        "m": { "op": "map", "body": "b", "items": 1, "delay": 20 },
    });
    vec![
        // An adapter that fails after a sleep or after children because of a reply that it has
        // judged.
        told("a", json!({ "a": { "shape": "sleep", "wake": "fail", "retry": retry } }), &["a=1"]),
        // A request that a pause delays: after children, and for routing.
        told(
            "m",
            json!({ "m": { "op": "map", "body": "b", "items": 1, "gather": "ask" } }),
            &["pause", "b[0]=1"],
        ),
        told("a>b", json!({ "a": { "route": true } }), &["pause", "a=1"]),
        told("a>b", json!({ "a": { "route": true } }), &["pause", "a=1", "cancel"]),
        // An activation that times out during back-off or while it waits.
        told("a", json!({ "a": { "retry": slow, "timeout": 100 } }), &["a!error"]),
        told("m", map(json!({ "retry": slow, "timeout": 100 })), &["a[0]!error"]),
        told("a", json!({ "a": { "op": "human", "timeout": 100 } }), &["@100"]),
        told("m", map(json!({ "op": "human", "timeout": 100 })), &["@100"]),
        // A question of which people are reminded.
        told("a", json!({ "a": { "op": "human", "remind": 50 } }), &["@50", "a:yes"]),
        // Skipped nodes, at the top level and in a map.
        told("a", json!({ "a": skip.clone() }), &[]),
        told("m", map(skip), &[]),
        // A child whose delay ends while the execution waits for a person.
        told("m a>h", freeze.clone(), &["a=1", "@20", "h:yes"]),
        told("m a>h", freeze, &["a=1", "@20", "cancel"]),
    ]
}

#[test]
fn every_transition_happens_and_no_other() {
    let mut seen = BTreeSet::new();
    for world in decisions().into_iter().chain(corners()) {
        seen.extend(changes(&world));
    }
    for seed in chosen_seed().map_or(0..1_500, |seed| seed..seed + 1) {
        seen.extend(changes(&history(seed).world));
    }
    let table: BTreeSet<_> = TRANSITIONS.iter().map(|row| words((row.from, row.fact, row.to))).collect();
    assert_eq!(table.len(), TRANSITIONS.len(), "a row stands in the table once");
    let missing: Vec<_> = table.difference(&seen).collect();
    assert!(chosen_seed().is_some() || missing.is_empty(), "never executed: {missing:#?}");
}

#[test]
fn the_page_shows_the_table() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/lifecycle.md");
    #[expect(clippy::disallowed_methods, reason = "a test may write the page anew")]
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(file, page()).unwrap();
    }
    assert!(
        include_str!("../../lifecycle.md") == page(),
        "UPDATE=1 cargo test -p sinew-engine writes {file}"
    );
}
