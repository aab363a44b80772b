//! Properties of any plan under any order of inputs, including crashes.
//!
//! Each seed is one plan and one history. A failing seed is printed;
//! `SINEW_SEED=n cargo test -p sinew-engine` replays it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use serde_json::{Value, json};
use sinew_plan::JoinRule;

use super::adapter::{Scripted, fault};
use super::plan::graph;
use super::script::callee_wait;
use super::world::World;
use crate::fact::{ExecutionMode, PersonAnswer};
use crate::{
    ActivationPhase, EngineInput, Fact, IndexedPlan, InputRefusal, Machine, RetryRequest, TaskReply,
    TerminalStatus, Time, decode_round,
};

/// Pseudo-random numbers, reproducible from a seed (splitmix64).
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns a number below `sides`.
    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % sides.max(1)
    }

    /// Returns true with a probability of `percent` percent.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len() as u64) as usize]
    }
}

/// Returns the seed to replay, if one is set.
pub(super) fn chosen_seed() -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "a test may read how it is to be run")]
    std::env::var("SINEW_SEED").ok().and_then(|seed| seed.parse().ok())
}

/// Runs a property for every seed of a range, or for the one in `SINEW_SEED`, whose facts are printed.
pub(super) fn for_seeds(seeds: Range<u64>, property: impl Fn(u64)) {
    for seed in chosen_seed().map_or(seeds, |seed| seed..seed + 1) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| property(seed))) {
            eprintln!("seed {seed} failed; replay it with SINEW_SEED={seed} cargo test -p sinew-engine");
            resume_unwind(panic);
        }
    }
}

/// Returns a plan with a mix of all features.
fn any_plan(dice: &mut Dice) -> (String, Value) {
    let count = 1 + dice.roll(7);
    let name = |n: u64| format!("n{n}");
    let mut settings = json!({});
    let mut edges = Vec::new();
    for n in 0..count {
        settings[name(n)] = any_node(dice, &name(n), 0, &mut settings);
        edges.push(format!("n{n}"));
        for from in 0..n {
            if dice.chance(35) {
                let port = dice.pick(&["out", "x", "y"]);
                let mark = dice.pick(&["", "", "", "!", "?", "?", "#1"]);
                edges.push(format!("n{from}.{port}>n{n}{mark}"));
            }
        }
        if n > 0 && dice.chance(10) {
            edges.push(format!("n{n}>n{}{}", dice.roll(n), dice.pick(&["", "#2"])));
        }
    }
    for n in 0..count {
        let counting = edges.iter().filter(|edge| edge.ends_with(&format!(">n{n}?"))).count() as u64;
        let join = match dice.roll(10) {
            0..3 if counting > 0 => json!(1 + dice.roll(counting)),
            3 => json!("each"),
            4 => json!("once"),
            _ => json!("all"),
        };
        settings[name(n)]["join"] = join;
    }
    settings["@"] = json!({
        "order": dice.pick(&["fifo", "depth", "rank"]),
        "failure": dice.pick(&["stop", "drain", "isolate", "route"]),
        "pause": dice.pick(&["local", "local", "freeze"]),
        "parallel": dice.pick(&[0, 0, 0, 1, 2]),
        "limits": { "activations": 40, "fan_out": 5, "iterations": 5, "edge": 4, "wall_ms": dice.pick(&[None, None, Some(700)]) },
        "fail_result": dice.chance(5),
    });
    // One node must start, even if every node is in a cycle.
    settings["@"]["entry"] = json!(["n0"]);
    if dice.chance(30) {
        let on = ["always", "success", "failure", "cancel"];
        settings["@"]["exits"] = json!({ "x0": dice.pick(&on), "x1": dice.pick(&on) });
        for exit in ["x0", "x1"] {
            settings[exit] = any_node(dice, exit, 0, &mut settings);
        }
    }
    (edges.join(" "), settings)
}

fn any_node(dice: &mut Dice, name: &str, depth: u32, settings: &mut Value) -> Value {
    let mut node = json!({ "rank": dice.roll(3) });
    let plain = if depth < 2 { 12 } else { 9 };
    let mut bodies = |dice: &mut Dice, count: u64| -> Vec<String> {
        (0..count)
            .map(|n| {
                let body = format!("{name}b{n}");
                settings[&body] = any_node(dice, &body, depth + 1, settings);
                body
            })
            .collect()
    };
    match dice.roll(plain) {
        0..5 => {}
        5 | 6 => node["op"] = json!("pure"),
        7 => node["op"] = json!("human"),
        8 => node["op"] = json!("delay"),
        9 => {
            let body = bodies(dice, 1);
            node =
                json!({ "op": "map", "body": body[0], "items": dice.roll(4), "fail_fast": dice.chance(50) });
            if dice.chance(50) {
                node["limit"] = json!(dice.roll(3));
            }
        }
        10 => {
            let body = bodies(dice, 1);
            node = json!({ "op": "loop", "body": body[0], "times": dice.roll(4) });
        }
        _ => {
            let all = bodies(dice, 2);
            node = json!({ "op": "fork", "bodies": all, "fail_fast": dice.chance(50) });
        }
    }
    let mut set = |percent: u64, key: &str, value: Value| {
        if dice.chance(percent) {
            node[key] = value;
        }
    };
    set(20, "retry", json!({ "limit": 2, "delay_ms": 0 }));
    set(20, "retry", json!({ "limit": 1, "delay_ms": 30, "factor": 2.0, "jitter_ms": 9, "on": "error" }));
    set(15, "attempt_timeout", json!(100));
    set(8, "timeout", json!(150));
    set(20, "wait", json!(120));
    set(10, "delay", json!(20));
    set(10, "judge", json!(true));
    set(6, "then", json!("wait"));
    set(6, "then", json!("nap"));
    set(10, "then", json!("doubt"));
    set(3, "skip", json!(1));
    set(3, "fail", json!("failure"));
    set(4, "fail_with", json!("hard"));
    set(30, "ports", json!(["x"]));
    set(20, "ports", json!(["x", "y", "out"]));
    set(10, "route", json!(true));
    set(5, "tokens", json!(2));
    set(2, "bad_edges", json!(true));
    set(5, "note", json!("here"));
    set(1, "stuck", json!(true));
    node
}

/// Returns a retry of everything, of some nodes, or of only those; possibly with another input.
fn any_retry(dice: &mut Dice) -> RetryRequest {
    let named = dice.pick(&[0, 0, 1, 1, 2]);
    RetryRequest {
        nodes: (0..named).map(|_| format!("n{}", dice.roll(7))).collect(),
        only: dice.chance(50),
        input: dice.chance(30).then(|| json!([dice.roll(9)])),
    }
}

/// A world and all its inputs.
pub(super) struct History {
    pub(super) world: World,
    /// Each input, its time, and the number of rounds after it.
    inputs: Vec<(Time, EngineInput, usize)>,
}

impl History {
    pub(super) fn new(graph: IndexedPlan) -> Self {
        Self { world: World::new(graph), inputs: Vec::new() }
    }

    pub(super) fn give(&mut self, input: EngineInput) -> Result<Vec<Fact>, InputRefusal> {
        let was_paused = self.world.state().paused.is_some()
            && !matches!(input, EngineInput::Resume | EngineInput::Cancel { .. });
        let result = self.world.input(input.clone());
        self.inputs.push((self.world.now, input, self.world.journal().len()));
        if let Ok(facts) = &result {
            let began = facts.iter().any(|fact| matches!(fact, Fact::Began { .. }));
            assert!(!(was_paused && began), "a paused execution starts nothing");
        }
        result
    }

    fn any_input(&mut self, dice: &mut Dice) {
        let world = &mut self.world;
        let tasks: Vec<_> = world.tasks.iter().copied().collect();
        let persons: Vec<_> = world.state().waiting().collect();
        let act = dice.roll(world.state().acts.len() as u64 + 1) as u32;
        let some_attempt = dice.roll(4) as u32;
        let result = match dice.roll(10) {
            0 => Err(fault("failure")),
            1 => Err(fault("error")),
            2 => Err(fault(dice.pick(&["hard", "after50", "invalid"]))),
            3 => Ok(TaskReply::new(json!(false))),
            // Routers reply with names of nodes.
            4 | 5 => Ok(TaskReply::new(json!(format!("n{}", dice.roll(7))))),
            _ => Ok(TaskReply::new(json!(dice.roll(100) as f64 / 7.0))),
        };
        let _ = match dice.roll(100) {
            0..45 if !tasks.is_empty() => {
                let (act, attempt) = dice.pick(&tasks);
                self.give(EngineInput::Done { act, attempt, result })
            }
            45..60 if !persons.is_empty() => {
                let data = json!(dice.pick(&["yes", "yes", "no", "again"]));
                self.give(EngineInput::Answer {
                    act: dice.pick(&persons),
                    answer: PersonAnswer { data, ..PersonAnswer::default() },
                })
            }
            60..75 => {
                let due = world.machine.next_deadline().map_or(world.now, |(at, _)| at);
                world.now = world.now.max(due) + dice.pick(&[0, 0, 0, 1, 90]);
                self.give(EngineInput::Tick)
            }
            75..80 if !tasks.is_empty() => {
                let (act, attempt) = dice.pick(&tasks);
                let port = dice.pick(&["x", "out"]).to_owned();
                self.give(EngineInput::Yield { act, attempt, port, value: json!(attempt).into() })
            }
            80..83 => self.give(EngineInput::Done { act, attempt: some_attempt, result }),
            83 => self.give(EngineInput::Progress { act, attempt: some_attempt, value: json!("busy") }),
            84 if !tasks.is_empty() => {
                let (act, attempt) = dice.pick(&tasks);
                let (callee, number) = (dice.pick(&["x", "y"]), dice.roll(6));
                let report = format!("{callee}{number}{}", dice.pick(&["", "", "-"]));
                self.give(callee_wait(act, attempt, &report, self.world.now))
            }
            85..88 => self.give(EngineInput::Pause { reason: "me".into() }),
            88..93 => self.give(EngineInput::Resume),
            93 | 94 => self.give(EngineInput::Cancel { reason: "me".into() }),
            95 => self.give(EngineInput::Answer { act, answer: PersonAnswer::default() }),
            96 | 97 => self.give(EngineInput::Retry { retry: any_retry(dice), reason: "me".into() }),
            _ => {
                world.check_stored();
                world.crash();
                return;
            }
        };
    }

    /// Provides all expected inputs: the execution must end.
    pub(super) fn finish(&mut self) {
        for _ in 0..2_000 {
            let world = &mut self.world;
            if world.state().ended {
                return;
            }
            let input = if world.state().paused.is_some() {
                EngineInput::Resume
            } else if let Some((act, attempt)) = world.tasks.first().copied() {
                EngineInput::Done { act, attempt, result: Ok(TaskReply::new(json!(1))) }
            } else if let Some(act) = world.state().waiting().next() {
                EngineInput::Answer {
                    act,
                    answer: PersonAnswer { data: json!("yes"), ..PersonAnswer::default() },
                }
            } else {
                let (due, _) =
                    world.machine.next_deadline().expect("it has not ended, so something is waited for");
                world.now = world.now.max(due);
                EngineInput::Tick
            };
            self.give(input).expect("what is waited for is welcome");
        }
        panic!("it goes on for ever");
    }
}

pub(super) fn history(seed: u64) -> History {
    let mut dice = Dice::new(seed);
    let (edges, settings) = any_plan(&mut dice);
    let mut history = History::new(graph(&edges, settings));
    let mode = ExecutionMode { dry_run: dice.chance(3), ..ExecutionMode::default() };
    history
        .give(EngineInput::Start { input: json!([1, 2]), mode, depth: 0, chain: vec![], paused: None })
        .unwrap();
    for _ in 0..dice.roll(40) {
        history.any_input(&mut dice);
    }
    history.finish();
    // Most failures are retried once more, with a higher chance of success.
    if dice.chance(60) {
        let retry = if dice.chance(60) { RetryRequest::default() } else { any_retry(&mut dice) };
        if history.give(EngineInput::Retry { retry, reason: "me".into() }).is_ok() {
            history.finish();
        }
    }
    history
}

#[test]
fn any_history_holds_1() {
    any_history_holds(0..10_000);
}

#[test]
fn any_history_holds_2() {
    any_history_holds(10_000..20_000);
}

fn any_history_holds(seeds: Range<u64>) {
    let ends = std::cell::RefCell::new(BTreeMap::<&str, u32>::new());
    for_seeds(seeds, |seed| {
        let history = history(seed);
        history.world.check_stored();
        check_facts(&history.world);
        check_prefix(&history, &mut Dice::new(seed ^ 0xabcd));
        let status = history.world.state().outcome.as_ref().unwrap().status;
        *ends.borrow_mut().entry(status.as_str()).or_default() += 1;
    });
    let ends = ends.into_inner();
    let enough = |status: TerminalStatus| ends.get(status.as_str()).is_some_and(|count| *count > 100);
    let all = [TerminalStatus::Success, TerminalStatus::Failure, TerminalStatus::Cancelled];
    assert!(chosen_seed().is_some() || all.into_iter().all(enough), "the seeds reach all ends: {ends:?}");
}

/// Checks that a journal truncated after any round, followed by the same inputs, leads to the same
/// journal.
fn check_prefix(history: &History, dice: &mut Dice) {
    let rounds = dice.roll(history.world.journal().len() as u64 + 1) as usize;
    let kept: Vec<_> =
        history.world.journal()[..rounds].iter().map(|bytes| decode_round(bytes).unwrap()).collect();
    let graph = history.world.machine.graph().clone();
    let mut again = Machine::<Vec<Vec<u8>>>::replay(graph, &Scripted, &kept).unwrap();
    let later =
        history.inputs.iter().skip_while(|(_, _, after)| *after < rounds || (rounds > 0 && *after == rounds));
    // Inputs without facts between two rounds change nothing, so their side of the cut does not
    // matter.
    for (now, input, _) in later {
        let _ = again.handle(*now, input.clone());
    }
    assert!(
        again.journal().as_slice() == history.world.journal(),
        "the same answers give the same journal, from round {rounds} on"
    );
    assert!(again.state() == history.world.state());
}

/// Checks the facts of a whole history.
fn check_facts(world: &World) {
    let plan = world.graph().plan();
    let facts: Vec<Fact> =
        world.journal().iter().flat_map(|bytes| decode_round(bytes).unwrap().facts).collect();
    let mut made: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    let mut asked: BTreeMap<u32, u32> = BTreeMap::new();
    let mut ended = false;
    for fact in &facts {
        assert!(
            !ended || matches!(fact, Fact::Late { .. } | Fact::Reopened { .. }),
            "after the end: {fact:?}"
        );
        match fact {
            Fact::Activated(one) => {
                let made = made.entry((one.scope, one.node)).or_default();
                *made += 1;
                assert!(plan.node(one.node).join == JoinRule::Each || *made == 1, "a join fires once");
            }
            Fact::Dispatched { act, tries, ask, .. } => {
                let limit = plan.node(world.state().act(*act).node).retry.limit;
                assert!(*tries <= limit + 1, "no more attempts than allowed");
                if ask.tag == "work" {
                    let asked = asked.entry(*act).or_default();
                    *asked += 1;
                    assert!(*asked <= limit + 1, "no more attempts than allowed");
                }
            }
            Fact::Ended => ended = true,
            Fact::Reopened { .. } => {
                ended = false;
                made.clear();
            }
            _ => {}
        }
    }
    assert!(ended, "it ends");
    for one in &world.state().acts {
        assert!(one.phase == ActivationPhase::Closed && one.end.is_some(), "nothing is left open");
        for (position, child) in one.children.iter().flat_map(|own| &own.acts).enumerate() {
            let scope = world.state().scope(world.state().act(*child).scope).unwrap();
            assert_eq!(scope.index as usize, position, "children are in the order of their items");
        }
    }
}
