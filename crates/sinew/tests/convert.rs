//! `sinew workflow convert --to sam`, as a user runs it: converted workflows give the same outputs as their sources.

use std::process::Command;

use serde_json::{Map, Value, json};

use crate::common::World;

/// Random workflows.
const WORKFLOWS: u64 = 200;
/// Names of the agents of random workflows.
const AGENTS: [&str; 4] = ["Ada", "Bob", "Cyd", "Dan"];

/// Numbers that look random and are the same for the same seed (splitmix64).
struct SeededDice(u64);

impl SeededDice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((x ^ (x >> 31)) % sides as u64).unwrap()
    }

    fn agent(&mut self) -> &'static str {
        AGENTS[self.roll(AGENTS.len())]
    }
}

/// A workflow whose output tells which agents were asked with what.
fn random_workflow(seed: u64) -> Value {
    let mut dice = SeededDice(seed);
    let (mut nodes, mut ended): (Vec<Value>, Vec<String>) = (Vec::new(), Vec::new());
    for n in 0..2 + dice.roll(5) {
        let id = format!("n{n}");
        let depends_on: Vec<String> = ended.iter().filter(|_| dice.roll(3) == 0).take(3).cloned().collect();
        let input = match depends_on.first() {
            Some(first) => json!({ "from": { "coalesce": [format!("{{{{{first}.output}}}}"), "nothing"] } }),
            None => json!({ "x": "{{workflow.input.x}}" }),
        };
        let agent = |id: &str, name: &str, input: &Value, depends_on: Value| json!({ "id": id, "type": "agent", "agent_name": name, "input": input, "depends_on": depends_on });
        let node = match dice.roll(6) {
            0 => {
                let (yes, no) = (format!("{id}_yes"), format!("{id}_no"));
                for branch in [&yes, &no] {
                    nodes.push(agent(branch, dice.agent(), &input, json!([id])));
                    ended.push(branch.clone());
                }
                json!({ "type": "conditional", "condition": "{{workflow.input.x}} > 2", "true_branch": yes,
                        "false_branch": no })
            }
            1 => {
                let body = format!("{id}_each");
                nodes.push(agent(&body, dice.agent(), &json!({ "i": "{{_map_item}}" }), json!([])));
                json!({ "type": "map", "items": "{{workflow.input.l}}", "node": body,
                        "concurrency_limit": 1 + dice.roll(3) })
            }
            2 => json!({ "type": "fork", "branches": [
                { "id": format!("{id}_l"), "agent_name": dice.agent(), "output_key": "l", "input": input },
                { "id": format!("{id}_r"), "agent_name": dice.agent(), "output_key": "r", "input": { "a": 1 } },
            ] }),
            3 => {
                let body = format!("{id}_again");
                nodes.push(agent(&body, dice.agent(), &json!({ "n": "{{_loop_iteration}}" }), json!([])));
                json!({ "type": "loop", "node": body, "condition": "{{_loop_iteration}} < 2", "delay": "1s" })
            }
            _ => {
                let mut node = agent(&id, dice.agent(), &input, json!([]));
                if dice.roll(3) == 0 {
                    node["when"] = json!("{{workflow.input.x}} != 1");
                }
                if dice.roll(3) == 0 {
                    node["instruction"] = json!("Work on {{workflow.input.x}}.");
                }
                node
            }
        };
        let mut node = node;
        (node["id"], node["depends_on"]) = (json!(id), json!(depends_on));
        nodes.push(node);
        ended.push(id);
    }
    let mapping: Map<String, Value> = ended
        .iter()
        .map(|id| (id.clone(), json!({ "coalesce": [format!("{{{{{id}.output}}}}"), "none"] })))
        .collect();
    json!({ "name": format!("w{seed}"),
            "workflow": { "description": "random", "nodes": nodes, "output_mapping": mapping } })
}

/// A case for each workflow; `--update` fills in what comes out.
fn cases() -> Value {
    let answer =
        |name: &&str| ((*name).to_owned(), json!({ "script": format!("lambda r: {{'{name}': r}}") }));
    let case = |seed: u64| {
        let text = random_workflow(seed).to_string();
        let named = AGENTS.iter().filter(|name| text.contains(&format!("\"{name}\"")));
        let agents: Map<String, Value> = named.map(answer).collect();
        json!({ "name": format!("w{seed}"), "workflow": format!("w{seed}.yaml"),
                "input": { "x": seed % 5, "l": (0..seed % 4).collect::<Vec<_>>() }, "agents": agents,
                "expect": { "status": "success", "output": Value::Null } })
    };
    json!({ "cases": (0..WORKFLOWS).map(case).collect::<Vec<_>>() })
}

#[test]
fn converted_workflows_give_the_same_outputs() {
    let world = World::at(String::new());
    for seed in 0..WORKFLOWS {
        world.write(&format!("before/w{seed}.yaml"), &random_workflow(seed).to_string());
    }
    let file = world.write("before/all.test.json", &cases().to_string());
    world.ok(&["test", "before", "--update", "-q"]);
    let recorded: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let outputs: Vec<&Value> =
        recorded["cases"].as_array().unwrap().iter().map(|case| &case["expect"]["output"]).collect();
    assert!(outputs.iter().all(|output| output.is_object()), "an output was not recorded");
    let told = outputs.iter().filter(|output| output.to_string().contains("Ada")).count();
    assert!(told > 20 && told < outputs.len(), "the outputs tell nothing: {told}");
    world.write("after/all.test.json", &recorded.to_string());
    for seed in 0..WORKFLOWS {
        let source = format!("before/w{seed}.yaml");
        let converted = world.ok(&["workflow", "convert", &source, "--to", "sam"]);
        world.write(&format!("after/w{seed}.yaml"), &converted);
    }
    let said = world.ok(&["test", "after"]);
    assert!(said.contains("200 passed, 0 failed"), "{said}");
    // An output that differs is noticed.
    let asks_ada = outputs.iter().position(|output| output.to_string().contains("Ada")).expect("one");
    let other = world.path().join(format!("after/w{asks_ada}.yaml"));
    let text = std::fs::read_to_string(&other).unwrap();
    std::fs::write(&other, text.replace("Ada", "Bob")).unwrap();
    world.ends(&["test", "after", "-q"], 1);
}

#[test]
fn examples_convert_to_the_same_plan_or_say_why_not() {
    let world = World::at(String::new());
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let copied = Command::new("cp").arg("-r").arg(examples).arg(world.path()).status().unwrap();
    assert!(copied.success());
    let files = [
        ("orders/orders.yaml", "orders", true),
        ("orders/orders.yaml", "shipping", true),
        ("dependency-review/review.yaml", "", true),
        ("release-notes/notes.yaml", "", false),
        ("doc-triage/triage.json", "", false),
        ("lint-report/lint.json", "", false),
        ("metrics-digest/digest.json", "", false),
        ("support-desk/desk.yaml", "", false),
    ];
    for (file, name, converts) in files {
        let path = format!("examples/{file}");
        let mut args = vec!["workflow", "convert", path.as_str()];
        if !name.is_empty() {
            args.extend(["-w", name]);
        }
        let output = world.run(&[args.as_slice(), &["--to", "sam"]].concat());
        let (said, why) = (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        if !converts {
            assert_eq!(output.status.code(), Some(1), "{file}: {said}{why}");
            assert!(why.contains("impossible: node"), "{file}: {why}");
            continue;
        }
        assert!(output.status.success(), "{file}: {why}");
        world.write("examples/again.yaml", &said);
        let plan = world.json(&[args.as_slice(), &["--plan"]].concat());
        let again = world.json(&["workflow", "convert", "examples/again.yaml", "--plan"]);
        assert_eq!(again, plan, "{file} {name}");
    }
}
