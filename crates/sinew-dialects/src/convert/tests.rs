//! Conversions are run beside their sources, with the same answers of agents.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use sinew_engine::{TaskReply, TaskRequest, TerminalStatus};
use sinew_plan::Plan;

use super::to_sam;
use crate::testing::{Bench, Stubbed, lower};
use crate::{Dialect, LowerOptions, by_name, detect};

/// Random workflows of each dialect.
const SEEDS: u64 = 200;

/// Numbers that look random and are the same for the same seed (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((x ^ (x >> 31)) % sides.max(1) as u64).unwrap()
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.roll(of.len())]
    }

    fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }
}

fn dialect(name: &str) -> &'static dyn Dialect {
    by_name(name).unwrap()
}

/// The plan of a converted document.
fn converted(document: &Value) -> Plan {
    lower(dialect("sam"), document).unwrap_or_else(|found| panic!("{found}\n{document:#}")).plan
}

/// A run as agents see it: who was asked, with what input and instruction. The output, too, if it succeeded.
fn run(
    plan: Plan,
    dialect: &dyn Dialect,
    input: &Value,
    answer: &dyn Fn(&TaskRequest) -> Value,
) -> (Vec<(String, Value, String)>, Option<Value>) {
    let mut bench = Bench::new(plan, dialect.adapter());
    bench.start(input.clone(), &mut |_, ask| {
        let result = Ok(TaskReply::new(answer(ask)));
        Stubbed { after: 1, progress: Vec::new(), result }
    });
    let outcome = bench.state().outcome.as_ref().expect("it ends");
    assert_eq!(outcome.status, TerminalStatus::Success, "{outcome:?}");
    let mut asked: Vec<_> = bench
        .asked
        .iter()
        .map(|(_, ask)| {
            let name = ask.target.name().to_owned();
            (name, Value::clone(&ask.input), ask.instruction.clone().unwrap_or_default())
        })
        .collect();
    asked.sort_by_key(|one| format!("{one:?}"));
    (asked, outcome.output.as_deref().cloned())
}

/// A plan of `sam` becomes a file that lowers to the same plan, so it runs the same way.
fn comes_back(plan: &Plan) {
    let sam = dialect("sam");
    let converted_file = to_sam(plan, sam).expect("sam can be said in sam");
    assert!(converted_file.losses.is_empty());
    let again = converted(&converted_file.document);
    assert_eq!(&again, plan, "{:#}", converted_file.document);
}

fn random_sam(dice: &mut Dice) -> Value {
    let mut nodes: Vec<Value> = Vec::new();
    let mut flow: Vec<String> = Vec::new();
    let count = 2 + dice.roll(6);
    for n in 0..count {
        let mut depends_on: Vec<String> = flow.iter().filter(|_| dice.one_in(3)).cloned().collect();
        depends_on.truncate(3);
        let id = format!("n{n}");
        let agent = |id: &str, depends_on: &[String]| {
            json!({ "id": id, "type": "agent", "agent_name": format!("A{n}"), "depends_on": depends_on,
                    "input": { "n": n, "all": "{{workflow.input}}" } })
        };
        let mut node = match dice.roll(8) {
            0 => {
                let (yes, no) = (format!("{id}_yes"), format!("{id}_no"));
                nodes.push(agent(&yes, std::slice::from_ref(&id)));
                nodes.push(agent(&no, std::slice::from_ref(&id)));
                flow.extend([yes.clone(), no.clone()]);
                json!({ "type": "conditional", "condition": "{{workflow.input.x}} > 3", "true_branch": yes, "falseBranch": no })
            }
            1 => {
                let (yes, no) = (format!("{id}_a"), format!("{id}_b"));
                nodes.push(agent(&yes, std::slice::from_ref(&id)));
                nodes.push(agent(&no, std::slice::from_ref(&id)));
                flow.extend([yes.clone(), no.clone()]);
                json!({ "type": "switch", "cases": [{ "when": "{{workflow.input.x}} == 1", "then": yes }], "default": no })
            }
            2 => {
                let body = format!("{id}_each");
                nodes.push(json!({ "id": body, "type": "agent", "agent_name": "Each", "input": { "i": "{{_map_item}}" } }));
                json!({ "type": "map", "withItems": [1, 2, 3], "node": body, "concurrency_limit": 1 + dice.roll(3) })
            }
            3 => {
                let body = format!("{id}_again");
                nodes.push(json!({ "id": body, "type": "agent", "agent_name": "Again", "input": { "i": "{{_loop_iteration}}" } }));
                json!({ "type": "loop", "node": body, "condition": "{{_loop_iteration}} < 1", "delay": "1s" })
            }
            4 => json!({ "type": "fork", "fail_fast": dice.one_in(2), "branches": [
                { "id": format!("{id}_l"), "agent_name": "Left", "output_key": "l", "input": { "a": 1 } },
                { "id": format!("{id}_r"), "agent_name": "Right", "output_key": "r" }
            ] }),
            5 if !flow.is_empty() => {
                let strategy = *dice.pick(&["all", "any"]);
                json!({ "type": "join", "wait_for": flow, "strategy": strategy })
            }
            _ => {
                let mut node = agent(&id, &depends_on);
                if dice.one_in(2) {
                    node["instruction"] = json!("Do {{workflow.input.x}}.");
                }
                if dice.one_in(3) {
                    node["retryStrategy"] = json!({ "limit": 2, "retryPolicy": "Always", "backoff": { "duration": "2s", "maxDuration": "1m" } });
                }
                if dice.one_in(3) {
                    node["timeout"] = json!("5m");
                }
                if dice.one_in(4) {
                    node["when"] = json!("{{workflow.input.x}} != 2");
                }
                node
            }
        };
        node["id"] = json!(id);
        node["depends_on"] = json!(depends_on);
        flow.push(id);
        nodes.push(node);
    }
    let mapping: Map<String, Value> = flow
        .iter()
        .map(|id| (id.clone(), json!({ "coalesce": [format!("{{{{{id}.output}}}}"), "none"] })))
        .collect();
    let mut workflow = json!({ "description": "random", "nodes": nodes, "output_mapping": mapping });
    if dice.one_in(2) {
        workflow["failFast"] = json!(false);
    }
    if dice.one_in(2) {
        workflow["nodes"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "id": "last", "type": "agent", "agent_name": "Last" }));
        workflow["onExit"] = json!({ "always": "last" });
    }
    if dice.one_in(2) {
        workflow["input_schema"] = json!({ "type": "object", "properties": { "x": { "type": "integer" } } });
        workflow["skills"] = json!([{ "id": "s", "name": "S", "description": "d", "tags": ["t"] }]);
    }
    json!({ "name": "random", "default_node_timeout_seconds": 20 + dice.roll(9), "workflow": workflow })
}

#[test]
fn random_sam_workflows_come_back_and_run_the_same() {
    for seed in 0..SEEDS {
        let file = random_sam(&mut Dice(seed));
        let sam = dialect("sam");
        let plan = lower(sam, &file).unwrap_or_else(|found| panic!("seed {seed}: {found}\n{file:#}")).plan;
        comes_back(&plan);
        let answer = |ask: &TaskRequest| json!({ "by": ask.target.name(), "of": *ask.input });
        let again = converted(&to_sam(&plan, sam).unwrap().document);
        let input = json!({ "x": seed % 5 });
        assert_eq!(run(plan, sam, &input, &answer), run(again, sam, &input, &answer), "seed {seed}");
    }
}

/// A random canvas: mostly a tree, now and then with something that `sam` cannot say.
fn random_canvas(dice: &mut Dice) -> Value {
    let mut nodes = vec![
        json!({ "id": "s", "type": "start", "data": { "initialInput": *dice.pick(&["", "Hello", "ERR 5"]) } }),
    ];
    let mut connections = Vec::new();
    // Places where something may follow: node and handle.
    let mut ends: Vec<(String, String)> = vec![("s".into(), "output".into())];
    for n in 0..2 + dice.roll(6) {
        let id = format!("n{n}");
        let at = dice.roll(ends.len());
        let (from, handle) = ends[at].clone();
        let is_branch = handle != "output";
        connections
            .push(json!({ "source": from, "target": id, "sourceHandle": handle, "targetHandle": "input" }));
        if is_branch {
            ends.remove(at);
        }
        if dice.one_in(3) {
            let values = ["err", "Hello", "A1", "(", "{{PREVIOUS_OUTPUT}}"];
            let conditions: Vec<Value> = (0..=dice.roll(2))
                .map(|_| json!({ "operator": *dice.pick(&["contains", "equal"]), "value": *dice.pick(&values[..4]) }))
                .collect();
            ends.extend((0..conditions.len()).map(|n| (id.clone(), format!("condition-{n}"))));
            ends.push((id.clone(), "false".into()));
            nodes.push(json!({ "id": id, "type": "if", "data": { "conditions": conditions } }));
        } else {
            let kind = if dice.one_in(15) { "approval" } else { "agent" };
            let prompts = [
                "",
                "Do: {{PREVIOUS_OUTPUT}}!",
                "{{PREVIOUS_OUTPUT}} and {{PREVIOUS_OUTPUT}}",
                "Say {{name}} it",
                "ERR",
            ];
            nodes.push(json!({ "id": id, "type": kind, "data": {
                "agentName": format!("A{n}"), "systemPrompt": "Be kind.", "userPrompt": *dice.pick(&prompts)
            } }));
            if kind == "agent" {
                ends.push((id.clone(), "output".into()));
            }
        }
        if ends.is_empty() {
            break;
        }
    }
    if dice.one_in(4) {
        nodes.push(json!({ "id": "lost", "type": "agent", "data": { "agentName": "Lost" } }));
    }
    if dice.one_in(10) {
        connections.push(json!({ "source": "s", "target": "n0", "sourceHandle": "output" }));
    }
    json!({ "nodes": nodes, "connections": connections })
}

#[test]
fn random_canvases_ask_the_same_or_are_refused() {
    let (flow, sam) = (dialect("agentflow"), dialect("sam"));
    let mut same = 0;
    for seed in 0..SEEDS {
        let mut dice = Dice(seed);
        let file = random_canvas(&mut dice);
        let plan = lower(flow, &file).unwrap().plan;
        let Ok(made) = to_sam(&plan, flow) else { continue };
        let again = converted(&made.document);
        let words = ["error", "Fine (A1)", "it's \"so\"", "HELLO", "{{x}} \\ ü"];
        let answer = |ask: &TaskRequest| {
            let text = ask.input["text"].as_str().expect("agents are given a text");
            let word = words[(text.len() + ask.target.name().len()) % words.len()];
            if text.len().is_multiple_of(2) { json!({ "text": word }) } else { json!(word) }
        };
        for input in [json!({}), json!({ "text": "Err or not" })] {
            let (before, after) =
                (run(plan.clone(), flow, &input, &answer).0, run(again.clone(), sam, &input, &answer).0);
            assert_eq!(before, after, "seed {seed}\n{file:#}\n{:#}", made.document);
        }
        same += 1;
    }
    assert!(same > SEEDS / 4, "only {same} of {SEEDS} were converted");
}

#[test]
fn random_chains_of_instructions_ask_the_same_or_are_refused() {
    let (sweny, sam) = (dialect("sweny"), dialect("sam"));
    let mut same = 0;
    for seed in 0..SEEDS {
        let mut dice = Dice(seed);
        let count = 1 + dice.roll(5);
        let mut nodes = Map::new();
        for n in 0..count {
            let mut node = json!({ "name": format!("N{n}"), "instruction": format!("Do {n}.") });
            match dice.roll(12) {
                0 => node["fail_soft"] = json!(true),
                1 => node["instruction"] = json!("Use {{input.x}}."),
                2 => node["rules"] = json!(["Be brief."]),
                _ => {}
            }
            nodes.insert(format!("n{n}"), node);
        }
        let mut edges: Vec<Value> =
            (1..count).map(|n| json!({ "from": format!("n{}", n - 1), "to": format!("n{n}") })).collect();
        if dice.one_in(8) && count > 1 {
            edges[0]["when"] = json!("it is fine");
        }
        let file = json!({ "id": "w", "name": "W", "entry": "n0", "nodes": nodes, "edges": edges });
        let plan = lower(sweny, &file).unwrap().plan;
        let Ok(made) = to_sam(&plan, sweny) else { continue };
        let again = converted(&made.document);
        let answer =
            |ask: &TaskRequest| json!({ "told": ask.instruction.as_ref().map(String::len), "ok": true });
        let input = json!({ "x": seed });
        let (before, after) = (run(plan, sweny, &input, &answer), run(again, sam, &input, &answer));
        assert_eq!(before.0, after.0, "seed {seed}\n{:#}", made.document);
        let last = format!("n{}", count - 1);
        let (results, mapped) = (before.1.unwrap(), after.1.unwrap());
        assert_eq!(results["results"][&last]["data"], mapped[&last], "seed {seed}");
        same += 1;
    }
    assert!(same > SEEDS / 3, "only {same} of {SEEDS} were converted");
}

/// Every example converts to a file that runs the same way, or is refused with a reason.
#[test]
fn examples_come_back_or_are_refused() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let (mut came_back, mut refused) = (Vec::new(), Vec::new());
    for file in [
        "orders/orders.yaml",
        "dependency-review/review.yaml",
        "release-notes/notes.yaml",
        "doc-triage/triage.json",
        "lint-report/lint.json",
        "metrics-digest/digest.json",
    ] {
        let path = examples.join(file);
        let folder = path.parent().unwrap().to_owned();
        let read = |wanted: &Path| std::fs::read(folder.join(wanted)).map_err(|error| error.to_string());
        let load = sinew_source::LoadOptions {
            name: file,
            variables: sinew_source::Variables::Kept,
            read: &read,
            limits: sinew_source::Limits::default(),
        };
        let document = sinew_source::load(&std::fs::read(&path).unwrap(), &load).unwrap();
        let found = detect(&document).unwrap();
        let options = LowerOptions {
            default_name: "example",
            read: &|wanted| read(Path::new(wanted)),
            list: &crate::no_list,
            agents: &BTreeMap::new(),
        };
        for one in found.lower(document, &options).unwrap() {
            match to_sam(&one.plan, found) {
                Ok(_) if found.name() == "sam" => {
                    comes_back(&one.plan);
                    came_back.push(one.plan.name.clone());
                }
                Ok(made) => panic!("{file} was refused until now: run it beside {:#}", made.document),
                Err(losses) => {
                    assert!(losses.iter().any(|loss| loss.fatal && !loss.what.is_empty()), "{file}");
                    refused.push(file);
                }
            }
        }
    }
    assert!(came_back.contains(&"orders".to_owned()) && came_back.len() >= 3, "{came_back:?}");
    assert_eq!(refused.len(), 4, "{refused:?}");
}
