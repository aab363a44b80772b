//! Conversions run alongside their sources, with the same answers of agents.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};
use sinew_engine::{TaskReply, TaskRequest, TerminalStatus};
use sinew_plan::Plan;

use super::to_sam;
use crate::testing::{Bench, Stubbed, lower};
use crate::{Dialect, LowerOptions, by_name, detect};

/// Number of random workflows of each dialect.
const SEEDS: u64 = 200;

/// Pseudorandom numbers, the same for the same seed (splitmix64).
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

/// Returns the plan of a converted document.
fn converted(document: &Value) -> Plan {
    lower(dialect("sam"), document).unwrap_or_else(|found| panic!("{found}\n{document:#}")).plan
}

/// The called agents, each with its input and instruction, and the output of the execution.
type AgentView = (Vec<(String, Value, String)>, Option<Value>);

/// Runs a workflow and returns its calls with their inputs and instructions, and its output if it
/// succeeded.
fn run(
    plan: Plan,
    dialect: &dyn Dialect,
    input: &Value,
    answer: &dyn Fn(&TaskRequest) -> Value,
) -> AgentView {
    run_to_end(plan, dialect, input, answer).expect("it succeeds")
}

/// Runs a workflow in the same way; `None` if the execution fails.
fn run_to_end(
    plan: Plan,
    dialect: &dyn Dialect,
    input: &Value,
    answer: &dyn Fn(&TaskRequest) -> Value,
) -> Option<AgentView> {
    let mut bench = Bench::new(plan, dialect.adapter());
    bench.start(input.clone(), &mut |_, ask| {
        let result = Ok(TaskReply::new(answer(ask)));
        Stubbed { after: 1, progress: Vec::new(), result }
    });
    let outcome = bench.state().outcome.as_ref().expect("it ends");
    if outcome.status != TerminalStatus::Success {
        return None;
    }
    let mut asked: Vec<_> = bench
        .asked
        .iter()
        .map(|(_, ask)| {
            let name = ask.target.name().to_owned();
            (name, Value::clone(&ask.input), ask.instruction.clone().unwrap_or_default())
        })
        .collect();
    asked.sort_by_key(|one| format!("{} {} {:?}", one.0, one.2, one.1));
    Some((asked, outcome.output.as_deref().cloned()))
}

/// Checks that a plan of `sam` becomes a file that lowers to the same plan, so that it runs in the
/// same way.
fn comes_back(plan: &Plan) {
    let sam = dialect("sam");
    let converted_file = to_sam(plan, sam).expect("sam can be converted to sam");
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

/// Returns a random canvas: mostly a tree, sometimes with a construct that `sam` cannot express.
fn random_canvas(dice: &mut Dice) -> Value {
    let mut nodes = vec![
        json!({ "id": "s", "type": "start", "data": { "initialInput": *dice.pick(&["", "Hello", "ERR 5"]) } }),
    ];
    let mut connections = Vec::new();
    // Positions of possible successors: node and handle.
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

/// Returns a random graph of agents and conditionals, sometimes with a construct that `sam` cannot
/// express.
fn random_graph(dice: &mut Dice) -> Value {
    let mut nodes = vec![json!({ "id": "cs", "type": "chat-start", "data": { "_label": "Start" } })];
    let mut edges = Vec::new();
    let mut ends: Vec<(String, &str)> = vec![("cs".into(), "output")];
    let mut agents: Vec<String> = Vec::new();
    for n in 0..2 + dice.roll(6) {
        let id = format!("n{n}");
        let at = dice.roll(ends.len());
        let (from, handle) = ends[at].clone();
        if handle != "output" {
            ends.remove(at);
        }
        let edge = |from: &str, handle: &str| {
            json!({ "id": format!("{from}-{handle}-{id}"), "source": from, "sourceHandle": handle, "target": id,
                    "targetHandle": "input", "data": { "channel": "flow" } })
        };
        edges.push(edge(&from, handle));
        if dice.one_in(3) {
            let fields: &[&str] = match agents.contains(&from) {
                true => &["response", "response", "nested.flag", "absent"],
                false if dice.one_in(10) => &["count"],
                false => &["message"],
            };
            nodes.push(json!({ "id": id, "type": "conditional", "data": {
                "field": *dice.pick(fields),
                "operator": if dice.one_in(12) { "contains" } else { *dice.pick(&["equals", "notEquals", "greaterThan", "lessOrEqual", ""]) },
                "value": dice.pick(&[json!("yes"), json!("Yes \"it's\" ü"), json!(1), json!(true), json!(2.5)]).clone(),
                "caseSensitive": !dice.one_in(6)
            } }));
            ends.extend([(id.clone(), "true"), (id, "false")]);
            continue;
        }
        let mut instructions =
            vec!["Be kind.".to_owned(), "Say {{ $('Start').item.json.message }}.".to_owned()];
        instructions
            .extend(agents.iter().map(|other| format!("As {{{{ $('{other}').item.json.response }}}}.")));
        instructions.push("Run {{ input.message.length }}".to_owned());
        let mut data = json!({ "model": "m", "instructions": dice.pick(&instructions).clone() });
        if dice.one_in(12) {
            data["on_error"] = json!("continue");
        }
        if dice.one_in(15) {
            data["prompt"] = json!("{{ input.message }}");
        }
        nodes.push(json!({ "id": id, "type": if dice.one_in(15) { "llm-completion" } else { "agent" }, "data": data }));
        if dice.one_in(15) {
            edges.push(edge("cs", "output"));
        }
        ends.push((id.clone(), "output"));
        agents.push(id);
    }
    // A condition without a target is rejected, so most of them lead to an agent.
    for (n, (from, _)) in ends.iter().filter(|(_, handle)| *handle == "true").enumerate() {
        let id = format!("t{n}");
        edges.push(
            json!({ "id": format!("{from}-{id}"), "source": from, "sourceHandle": "true", "target": id,
            "targetHandle": "input", "data": { "channel": "flow" } }),
        );
        nodes.push(
            json!({ "id": id, "type": "agent", "data": { "model": "m", "instructions": "Be brief." } }),
        );
    }
    json!({ "nodes": nodes, "edges": edges })
}

#[test]
fn random_graphs_ask_the_same_or_are_refused() {
    let (covalt, sam) = (dialect("covalt"), dialect("sam"));
    let mut same = 0;
    for seed in 0..SEEDS {
        let file = random_graph(&mut Dice(seed));
        let Ok(lowered) = lower(covalt, &file) else { continue };
        let plan = lowered.plan;
        let Ok(made) = to_sam(&plan, covalt) else { continue };
        let again = converted(&made.document);
        let words = ["yes", "YES", "no", "Yes \"it's\" ü"];
        for (message, count) in [("yes", json!(1)), ("Yes \"it's\" ü", json!(true)), ("go", json!(2.5))] {
            let answer = |ask: &TaskRequest| {
                let word = words[ask.instruction.as_deref().unwrap_or_default().len() % words.len()];
                json!({ "response": word })
            };
            let input = json!({ "message": message, "count": count, "nested": { "flag": true } });
            // Comparing values without an order fails the node there.
            let Some(before) = run_to_end(plan.clone(), covalt, &input, &answer) else { continue };
            let after = run(again.clone(), sam, &input, &answer);
            let asked = |all: &[(String, Value, String)]| -> Vec<(String, String)> {
                all.iter().map(|(agent, _, instruction)| (agent.clone(), instruction.clone())).collect()
            };
            assert_eq!(asked(&before.0), asked(&after.0), "seed {seed}\n{file:#}\n{:#}", made.document);
            for ((_, given, _), (_, got, _)) in before.0.iter().zip(&after.0) {
                let (given, got) = (&given["inputs"]["input"], &got["input"]);
                for field in ["message", "response"] {
                    if let Some(text) = got.get(field) {
                        assert_eq!(given.get(field), Some(text), "seed {seed}\n{file:#}");
                    }
                }
            }
            same += 1;
        }
    }
    assert!(same > 30, "only {same} runs were compared");
}

/// Returns a random team: a tree of agents under a trigger, sometimes with a construct that `sam`
/// cannot express.
fn random_team(dice: &mut Dice) -> Value {
    let mut nodes = vec![json!({ "id": "t", "name": "start", "type": "TRIGGER", "subtype": "MANUAL" })];
    let mut connections = Vec::new();
    for n in 0..=dice.roll(6) {
        let id = format!("n{n}");
        let before = match dice.roll(n + 1) {
            0 => "t".to_owned(),
            at => format!("n{}", at - 1),
        };
        let mut connection = json!({ "id": format!("c{n}"), "from_node": before, "to_node": id });
        let mut node = json!({ "id": id, "name": format!("node_{n}"), "type": "AI_AGENT",
            "subtype": *dice.pick(&["OPENAI_CHATGPT", "ANTHROPIC_CLAUDE"]),
            "configurations": { "model": "m", "system_prompt": format!("Do {n}.") } });
        match dice.roll(16) {
            0 => node["configurations"]["user_prompt"] = json!("Answer me."),
            1 => node["configurations"]["system_prompt"] = json!("Use {{ $json.x }}."),
            2 => connection["conversion_function"] = json!("lambda d: {'content': 'x'}"),
            3 => node["configurations"]["retry_attempts"] = json!(2),
            4 => {
                node["type"] = json!("FLOW");
                node["subtype"] = json!("IF");
                node["configurations"] = json!({ "condition_expression": "$json.n > 3" });
            }
            _ => {}
        }
        nodes.push(node);
        connections.push(connection);
        if dice.one_in(12) && n > 0 {
            connections.push(json!({ "id": format!("d{n}"), "from_node": "t", "to_node": id }));
        }
    }
    json!({ "metadata": { "id": "w", "name": "team", "created_time": 1, "created_by": "me" },
            "nodes": nodes, "connections": connections, "triggers": ["t"] })
}

#[test]
fn random_teams_ask_the_same_or_are_refused() {
    let (team, sam) = (dialect("agentteam"), dialect("sam"));
    let mut same = 0;
    for seed in 0..SEEDS {
        let file = random_team(&mut Dice(seed));
        let plan = lower(team, &file).unwrap_or_else(|found| panic!("seed {seed}: {found}\n{file:#}")).plan;
        let Ok(made) = to_sam(&plan, team) else { continue };
        let again = converted(&made.document);
        let answer = |ask: &TaskRequest| {
            let told = ask.instruction.as_deref().unwrap_or_default();
            json!({ "content": format!("{} did {told}", ask.target.name()) })
        };
        let input = json!({ "content": "go", "n": seed % 7 });
        let (before, after) = (run(plan, team, &input, &answer), run(again, sam, &input, &answer));
        let said = |all: &[(String, Value, String)]| -> Vec<(String, Value, String)> {
            let content = |value: &Value| value["result"]["content"].clone();
            let one = |(agent, input, told): &(String, Value, String)| {
                (agent.clone(), content(input), told.clone())
            };
            let mut all: Vec<_> = all.iter().map(one).collect();
            all.sort_by_key(|one| format!("{one:?}"));
            all
        };
        assert_eq!(said(&before.0), said(&after.0), "seed {seed}\n{file:#}\n{:#}", made.document);
        let mapped = after.1.unwrap();
        let outputs = mapped.as_object().unwrap();
        let result = before.1.unwrap();
        for (id, output) in outputs {
            let there = if outputs.len() == 1 { &result } else { &result[id] };
            assert_eq!(there["content"], output["content"], "seed {seed}: {result:#}");
        }
        same += 1;
    }
    assert!(same > SEEDS / 4, "only {same} of {SEEDS} were converted");
}

/// Edges that leave a choice, and the reason why its conversion is rejected.
#[test]
fn branches_that_lead_to_several_nodes_are_not_called_dead() {
    let several = |port: &str| format!("its branch '{port}' leads to several nodes, a sam case to one");
    let dead =
        |port: &str| format!("its port '{port}' has no connection, but sam would run the following nodes");
    let check = |edges: &[(&str, &str)], want: &[String]| {
        let edge = |(port, to): &(&str, &str)| json!({ "source": "i", "sourceHandle": port, "target": to });
        let mut connections = vec![json!({ "source": "s", "target": "i" })];
        connections.extend(edges.iter().map(edge));
        let file = json!({
            "nodes": [
                { "id": "s", "type": "start" },
                { "id": "i", "type": "if", "data": { "conditions": [{ "operator": "equal", "value": "yes" }] } },
                { "id": "a", "type": "agent", "data": { "agentName": "A" } },
                { "id": "b", "type": "agent", "data": { "agentName": "B" } },
                { "id": "c", "type": "agent", "data": { "agentName": "C" } },
            ],
            "connections": connections,
        });
        let flow = dialect("agentflow");
        let plan = lower(flow, &file).unwrap().plan;
        let seen: Vec<String> = match to_sam(&plan, flow) {
            Ok(_) => Vec::new(),
            Err(losses) => losses
                .into_iter()
                .filter(|loss| loss.fatal && loss.node == "i")
                .map(|loss| loss.what)
                .collect(),
        };
        assert_eq!(seen, want, "{edges:?}");
    };
    check(&[("true", "a"), ("false", "b")], &[]);
    check(&[("true", "a"), ("true", "b"), ("false", "c")], &[several("condition-0")]);
    check(&[("true", "a"), ("false", "b"), ("false", "c")], &[several("false")]);
    check(&[("true", "a"), ("condition-7", "b")], &[dead("condition-7")]);
}

/// An approval of a canvas becomes an approval of `sam`, with the same calls after either decision.
#[test]
fn approvals_of_a_canvas_lead_to_the_same_calls() {
    let flow = dialect("agentflow");
    let canvas = |reject: &[&str]| {
        let edge = |port: &str, to: &str| json!({ "source": "ok", "sourceHandle": port, "target": to });
        let mut connections =
            vec![json!({ "source": "s", "target": "draft" }), json!({ "source": "draft", "target": "ok" })];
        connections.push(edge("approve", "pay"));
        connections.extend(reject.iter().map(|to| edge("reject", to)));
        let agent = |id: &str| json!({ "id": id, "type": "agent", "data": { "agentName": id } });
        json!({
            "nodes": [
                { "id": "s", "type": "start", "data": { "initialInput": "hello" } },
                agent("draft"), agent("pay"), agent("refuse"), agent("other"),
                { "id": "ok", "type": "approval", "data": { "prompt": "Pay?" } },
            ],
            "connections": connections,
        })
    };
    let plan = lower(flow, &canvas(&["refuse"])).unwrap().plan;
    let made = to_sam(&plan, flow).unwrap();
    let again = converted(&made.document);
    for (approved, called) in [(true, "pay"), (false, "refuse")] {
        let asked = [(plan.clone(), flow), (again.clone(), dialect("sam"))].map(|(plan, dialect)| {
            let mut bench = Bench::new(plan, dialect.adapter());
            let mut stub = |_: &str, _: &TaskRequest| {
                let result = Ok(TaskReply::new(json!({ "text": "Drafted." })));
                Stubbed { after: 1, progress: Vec::new(), result }
            };
            bench.start(json!({ "text": "hi" }), &mut stub);
            let data = if dialect.name() == "sam" {
                json!({ "approved": approved, "comment": "no" })
            } else {
                json!({ "decision": if approved { "approve" } else { "reject" } })
            };
            bench.answer(data, &mut stub);
            assert_eq!(bench.state().outcome.as_ref().expect("it ends").status, TerminalStatus::Success);
            let asked = bench.asked.iter().map(|(_, ask)| (ask.target.name().to_owned(), ask.input.clone()));
            asked.collect::<Vec<_>>()
        });
        assert_eq!(asked[0], asked[1], "{approved}");
        assert_eq!(asked[0][1].0, called);
    }
    for reject in [&[][..], &["pay"], &["refuse", "other"]] {
        let plan = lower(flow, &canvas(reject)).unwrap().plan;
        assert!(to_sam(&plan, flow).is_err(), "{reject:?}");
    }
}

/// Every example converts to a file that runs in the same way, or is rejected with a reason.
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
