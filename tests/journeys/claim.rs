//! A claim: a model agent looks at it, a person approves it in a sub-workflow, an agent pays.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{Role, World};
use crate::model_server::{ModelServer, model_agent};
use crate::views::Gateway;

const CLAIM: &str = r#"
workflow:
  description: Settles a claim.
  nodes:
    - {id: assess, type: agent, agent_name: Assessor, input: {claim: "{{workflow.input.claim}}"}}
    - {id: approval, type: workflow, workflow_name: approval, depends_on: [assess], input: {claim: "{{workflow.input.claim}}"}}
    - {id: pay, type: agent, agent_name: Payer, depends_on: [approval], input: {claim: "{{workflow.input.claim}}"}}
  output_mapping: {paid: "{{pay.output.paid}}"}
"#;

const APPROVAL: &str = r#"{
  "id": "approval", "name": "approval", "triggers": ["t"],
  "nodes": [
    {"id": "t", "name": "t", "type": "TRIGGER", "subtype": "MANUAL", "configurations": {}},
    {"id": "h", "name": "h", "type": "HUMAN_IN_THE_LOOP", "subtype": "MANUAL_REVIEW",
     "configurations": {"question": "Pay this claim?"}}
  ],
  "connections": [{"id": "c", "from_node": "t", "to_node": "h", "output_key": "result"}]
}"#;

/// Its result is too large for a message: it travels as an artifact.
const PAYER: &str = "name: Payer\nrun: {script: {source: \"lambda input: {'paid': input['claim'], 'proof': 'x' * 600000}\"}}\n";

/// The processes of the journey.
struct ClaimMesh {
    world: World,
    executor: Option<Role>,
    agents: [Option<Role>; 2],
    model: ModelServer,
}

const AGENTS: [&str; 2] = ["assessor.agent.yaml", "payer.agent.yaml"];

impl ClaimMesh {
    fn open() -> Self {
        let (world, executor) = World::new();
        let model = ModelServer::start();
        world.write("claim.yaml", CLAIM);
        world.write("approval.json", APPROVAL);
        world.write(AGENTS[0], &model_agent("Assessor", &model.url));
        world.write(AGENTS[1], PAYER);
        let agents = AGENTS.map(|file| Some(world.serve(&["serve", "agent", file])));
        world.ok(&["workflow", "deploy", "approval.json", "claim.yaml"]);
        world.online(&["claim", "approval", "Assessor", "Payer"]);
        Self { world, executor: Some(executor), agents, model }
    }

    /// Waits until every surface shows that the claim itself waits for a person.
    fn until_asked(&self, gateway: &Gateway, claim: &str) {
        let description = gateway.agree(&self.world, "claim", claim, "waiting");
        let waiting = description["waiting"].to_string();
        assert!(waiting.contains("Pay this claim?"), "{waiting}");
        let listed = self.world.ok(&["execution", "list", "--status", "waiting", "-o", "json"]);
        assert!(listed.contains(claim), "{listed}");
    }

    fn check_paid(&self, gateway: &Gateway, claim: &str, amount: u32) {
        let description = gateway.agree(&self.world, "claim", claim, "succeeded");
        assert_eq!(description["output"]["paid"], json!(amount));
        let listed = self.world.json(&["artifact", "list", claim]);
        let artifacts = gateway.document(&format!("/api/v1/executions/{claim}/artifacts"));
        assert_eq!(listed, artifacts);
        let proof = artifacts.as_array().unwrap().iter().find(|one| one["node"] == "pay").unwrap();
        assert!(proof["size"].as_u64() > Some(600_000) && proof["inline"] == false, "{artifacts}");
        assert_eq!(description["models"].as_array().map(Vec::len), Some(1), "{}", description["models"]);
    }
}

/// The open questions.
fn open_questions(gateway: &Gateway) -> Vec<Value> {
    let open = gateway.document("/api/v1/approvals");
    open.as_array().unwrap_or_else(|| panic!("{open}")).clone()
}

#[test]
fn a_claim_is_approved_by_a_person_and_another_is_cancelled() {
    let mesh = ClaimMesh::open();
    let gateway = Gateway::start(&mesh.world);
    let (paid, dropped) =
        (gateway.begin("claim", &json!({ "claim": 120 })), gateway.begin("claim", &json!({ "claim": 7 })));
    mesh.until_asked(&gateway, &paid);
    mesh.until_asked(&gateway, &dropped);
    assert_eq!(open_questions(&gateway).len(), 2);

    // The question is answered where it is seen.
    mesh.world.ok(&["approval", "approve", &paid, "--comment", "as agreed"]);
    mesh.check_paid(&gateway, &paid, 120);

    mesh.world.ok(&["execution", "cancel", &dropped, "--reason", "withdrawn"]);
    gateway.agree(&mesh.world, "claim", &dropped, "cancelled");
    let until = Instant::now() + Duration::from_mins(1);
    while !open_questions(&gateway).is_empty() {
        assert!(Instant::now() < until, "the question of a cancelled claim is still open");
    }
    assert_eq!(mesh.model.calls(), 2, "one call for each claim");
}

/// Executor, agents and gateway are killed while a claim waits for a person; the broker pauses, and an observer subscribes to
/// all subjects.
#[test]
fn a_claim_survives_each_role_and_the_broker() {
    let mut mesh = ClaimMesh::open();
    let gateway = Gateway::start(&mesh.world);
    let observer = mesh.world.runtime.block_on(async {
        let client = mesh.world.connect("observer").await.client().clone();
        let seen = client.subscribe(">").await.unwrap();
        client.flush().await.unwrap();
        seen
    });
    let claim = gateway.begin("claim", &json!({ "claim": 55 }));
    mesh.until_asked(&gateway, &claim);

    mesh.executor = None;
    mesh.agents = [None, None];
    drop(gateway);
    mesh.world.pause_server(Duration::from_secs(3));
    mesh.executor = Some(mesh.world.serve(&["serve", "executor"]));
    let gateways = [Gateway::start(&mesh.world), Gateway::start(&mesh.world)];
    for gateway in &gateways {
        mesh.until_asked(gateway, &claim);
    }
    gateways[1].approve(&claim);
    // No process serves the agent that pays.
    mesh.world.pause_server(Duration::from_secs(2));
    gateways[0].agree(&mesh.world, "claim", &claim, "running");
    mesh.agents = AGENTS.map(|file| Some(mesh.world.serve(&["serve", "agent", file])));
    for gateway in &gateways {
        mesh.check_paid(gateway, &claim, 55);
    }
    assert_eq!(mesh.model.calls(), 1, "the assessment was done once");
    drop(observer);
}
