//! A chat whose agent asks a person.

use serde_json::json;

use crate::common::World;
use crate::views::Gateway;

/// A scripted model whose tool needs an approval above an amount.
const CASHIER: &str = r#"
name: Cashier
description: Pays money back.
output_schema: {type: object, properties: {text: {type: string}}, required: [text]}
run:
  model:
    use: [main]
    models:
      main:
        provider: script
        price: {input: 1, output: 1}
        answers:
          - {when: '"paid":120', answer: {text: Paid 120.}}
          - {when: back, call: {refund: {amount: 120}}}
    tools:
      - script: {name: refund, input_schema: {type: object, required: [amount], properties: {amount: {type: integer}}}, source: "def refund(args): return {'paid': args['amount']}"}
        effect: once
        approve: {when: "args['amount'] > 100", timeout: 1h}
"#;

const QUESTION: &str = "May the agent call refund?";
const CHAT: &str = "01936f2a-0000-7000-8000-000000000001";

#[test]
fn a_question_of_an_agent_appears_in_its_chat_and_everywhere_else() {
    let (world, _executor) = World::new();
    world.write("cashier.agent.yaml", CASHIER);
    let _cashier = world.serve(&["serve", "agent", "cashier.agent.yaml"]);
    world.online(&["Cashier"]);
    world.answered_for("Cashier");
    let gateway = Gateway::start(&world);
    // As the console sends a message.
    let message = gateway.begin_with(&json!({
        "agent": "Cashier",
        "input": {"text": "pay it back"},
        "session": CHAT,
        "labels": {"chat": CHAT, "kind": "chat"},
    }));
    let page = format!("/console/chat/Cashier?chat={CHAT}");
    let description = gateway.described(&world, &message, "waiting");
    assert!(description["waiting"].to_string().contains(QUESTION), "{description}");
    gateway.shows(&page, QUESTION);
    world.ok(&["approval", "approve", &message, "--comment", "as agreed"]);
    let description = gateway.described(&world, &message, "succeeded");
    assert_eq!(description["output"]["output"], json!({"text": "Paid 120."}));
    gateway.shows(&page, "Paid 120.");

    // The same question in a conversation over A2A, answered over REST.
    let task = gateway.send_message("Cashier", &json!({"text": "pay it back"}));
    let path = format!("/agents/Cashier/tasks/{task}");
    gateway.shows("/api/v1/approvals", QUESTION);
    let question = gateway.document("/api/v1/approvals")[0]["execution"].as_str().unwrap().to_owned();
    gateway.approve(&question);
    gateway.shows(&path, "Paid 120.");
    assert_eq!(gateway.document(&path)["status"]["state"], "TASK_STATE_COMPLETED");
}
