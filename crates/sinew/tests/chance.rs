//! Conditions that draw by chance: every owner and every replay of an execution draws the same numbers, others draw others.

use serde_json::{Value, json};

use crate::common::World;

const ECHO: &str = "name: Echo\nrun: {script: {source: \"lambda input: input\"}}\n";
/// A coin for each of 24 items, a die, and a loop that ends by chance.
const FLOW: &str = r#"
name: chance
workflow:
  description: Decides by chance
  nodes:
    - {id: coins, type: map, items: "{{workflow.input.items}}", node: coin}
    - {id: coin, type: agent, agent_name: Echo, when: "rand() < 0.5", input: {heads: true}}
    - id: die
      type: switch
      cases:
        - {when: "randint(6) == 0", then: lucky}
        - {when: "randint(6) < 3", then: lucky}
      default: other
    - {id: lucky, type: agent, agent_name: Echo, depends_on: [die], input: {}}
    - {id: other, type: agent, agent_name: Echo, depends_on: [die], input: {}}
    - {id: again, type: loop, node: turn, condition: "rand() < 0.7", max_iterations: 9}
    - {id: turn, type: agent, agent_name: Echo, input: {}}
  output_mapping: {coins: "{{coins.output.results}}", turns: "{{again.output}}"}
"#;

#[test]
fn conditions_that_draw_decide_the_same_again() {
    let (world, _executor) = World::new();
    world.write("flow/chance.yaml", FLOW);
    world.write("flow/agent-cards/echo.agent.yaml", ECHO);
    let _agents = world.serve(&["serve", "agent", "flow/agent-cards"]);
    world.ok(&["workflow", "deploy", "flow"]);
    world.online(&["Echo", "chance"]);
    let input = json!({ "items": (0..24).collect::<Vec<u32>>() }).to_string();
    let mut outputs: Vec<Value> = Vec::new();
    for id in ["chance-1", "chance-2"] {
        world.ok(&["run", "chance", "--mesh", "--wait", "-q", "--id", id, "-i", &input]);
        outputs.push(world.json(&["execution", "result", id]));
        let replay = world.json(&["execution", "replay", id]);
        assert_eq!(
            (&replay["difference"], &replay["decided_again"]),
            (&Value::Null, &replay["rounds"]),
            "{replay}"
        );
    }
    let heads =
        |output: &Value| output["coins"].as_array().unwrap().iter().filter(|coin| !coin.is_null()).count();
    assert_ne!(outputs[0]["coins"], outputs[1]["coins"], "two executions drew the same 24 coins");
    for output in &outputs {
        // Fewer than one of 16 million executions has all coins on one side.
        assert!((1..24).contains(&heads(output)), "{output}");
    }
    // In one process, with the same rules.
    world.ok(&["run", "flow/chance.yaml", "--local", "-q", "-i", &input, "--export", "run.json"]);
    let replay = world.json(&["execution", "replay", "run.json"]);
    assert_eq!(
        (&replay["difference"], &replay["decided_again"]),
        (&Value::Null, &replay["rounds"]),
        "{replay}"
    );
}
