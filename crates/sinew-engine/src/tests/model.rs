//! Reference model: which nodes of an acyclic graph run, computed by recursion instead of tokens.

use std::collections::BTreeMap;

use serde_json::json;

use super::adapter::fault;
use super::plan::plan;
use super::properties::{Dice, for_seeds};
use super::world::World;
use crate::fact::ExecutionMode;
use crate::{ActivationEnd, EngineInput, IndexedPlan, ROOT, TaskReply};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Ran,
    Failed,
    /// Not taken.
    Dead,
    /// Did not run because of an earlier failure.
    Omitted,
}

struct Model {
    /// From, port, to, veto.
    edges: Vec<(usize, u64, usize, bool)>,
    /// Ports on which each node emits a value.
    ports: Vec<Vec<u64>>,
    fails: Vec<bool>,
}

impl Model {
    fn any(dice: &mut Dice) -> Self {
        let count = 2 + dice.roll(10) as usize;
        let failures = dice.chance(50);
        let mut edges = Vec::new();
        for to in 1..count {
            for from in 0..to {
                if dice.chance(30) {
                    edges.push((from, dice.roll(3), to, !failures && dice.chance(15)));
                }
            }
        }
        let ports = (0..count).map(|_| (0..3).filter(|_| dice.chance(60)).collect()).collect();
        let fails = (0..count).map(|_| failures && dice.chance(15)).collect();
        Self { edges, ports, fails }
    }

    fn fate(&self, node: usize) -> Fate {
        let incoming: Vec<_> = self.edges.iter().filter(|edge| edge.2 == node).collect();
        let fates: Vec<Fate> = incoming.iter().map(|edge| self.fate(edge.0)).collect();
        let live = |n: usize| fates[n] == Fate::Ran && self.ports[incoming[n].0].contains(&incoming[n].1);
        if fates.iter().any(|fate| matches!(fate, Fate::Failed | Fate::Omitted)) {
            return Fate::Omitted;
        }
        let vetoed = (0..incoming.len()).any(|n| incoming[n].3 && !live(n));
        if !incoming.is_empty() && (vetoed || !(0..incoming.len()).any(live)) {
            return Fate::Dead;
        }
        if self.fails[node] { Fate::Failed } else { Fate::Ran }
    }

    fn graph(&self) -> IndexedPlan {
        let mut settings = json!({ "@": { "failure": "isolate" } });
        let mut edges = Vec::new();
        for (node, ports) in self.ports.iter().enumerate() {
            edges.push(format!("n{node}"));
            // Adds an unconnected port, because without ports all edges would be live.
            let names = ports.iter().map(|port| format!("p{port}")).chain(["none".to_owned()]);
            settings[format!("n{node}")] = json!({ "ports": names.collect::<Vec<_>>() });
        }
        for (from, port, to, veto) in &self.edges {
            edges.push(format!("n{from}.p{port}>n{to}{}", if *veto { "!" } else { "" }));
        }
        IndexedPlan::new(plan(&edges.join(" "), settings).into()).unwrap()
    }
}

#[test]
fn graphs_without_cycles_run_as_a_plain_recursion_says() {
    for_seeds(0..5_000, |seed| {
        let mut dice = Dice::new(seed);
        let model = Model::any(&mut dice);
        let mut world = World::new(model.graph());
        world
            .input(EngineInput::Start {
                input: json!(0),
                mode: ExecutionMode::default(),
                depth: 0,
                chain: vec![],
                paused: None,
            })
            .unwrap();
        while !world.state().ended {
            let tasks: Vec<_> = world.tasks.iter().copied().collect();
            let (act, attempt) = dice.pick(&tasks);
            let fails = model.fails[world.state().act(act).node as usize];
            let result = if fails { Err(fault("hard")) } else { Ok(TaskReply::new(json!(act))) };
            world.input(EngineInput::Done { act, attempt, result }).unwrap();
        }
        let count = model.ports.len();
        let expected: BTreeMap<usize, Fate> = (0..count).map(|node| (node, model.fate(node))).collect();
        let actual: BTreeMap<usize, Fate> = (0..count)
            .map(|node| {
                let ran = world.state().last(ROOT, node as u32).map(|act| world.state().act(act).end);
                let fate = match ran {
                    Some(Some(ActivationEnd::Succeeded)) => Fate::Ran,
                    Some(Some(ActivationEnd::Failed)) => Fate::Failed,
                    None if world.state().slots[&(ROOT, node as u32)].failed => Fate::Omitted,
                    None => Fate::Dead,
                    other => panic!("{other:?}"),
                };
                (node, fate)
            })
            .collect();
        assert_eq!(actual, expected);
    });
}
