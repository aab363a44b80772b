//! The claim of examples/claims, which `sam` alone describes: rules, people, a sub-workflow in another file.

use std::path::Path;

use serde_json::{Value, json};

use crate::common::{World, text};
use crate::views::Gateway;

/// Exit code of a command that waits for a person.
const WAITS: Option<i32> = Some(8);

/// Copies the files of the example.
fn copy_example(world: &World) {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/claims");
    for folder in ["", "agent-cards/"] {
        for entry in std::fs::read_dir(example.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let name = format!("{folder}{}", path.file_name().unwrap().to_str().unwrap());
                world.write(&name, &std::fs::read_to_string(&path).unwrap());
            }
        }
    }
}

/// Runs the claim in one process; returns exit code, output and messages.
fn run_here(world: &World, answer: &str) -> (Option<i32>, String, String) {
    let output = world.run(&[
        "run",
        "claims.yaml",
        "--local",
        "--trust",
        "-q",
        "-i",
        "@claim.json",
        "--answer",
        answer,
    ]);
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_claim_in_sam_alone_is_decided_by_rules_and_people() {
    let (world, _executor) = World::new();
    copy_example(&world);
    check_in_one_process(&world);

    let _agents = world.serve(&["serve", "agent", "agent-cards"]);
    let refused = world.run(&["workflow", "deploy", "claims.yaml", "--strict"]);
    assert!(text(&refused.stderr).contains("workflow 'payout' is not deployed"), "{}", text(&refused.stderr));
    world.online(&["Bank", "Letter", "FraudScore", "DocumentReader", "Accounts"]);
    world.ok(&["workflow", "deploy", "claims.yaml", "payout.yaml", "--strict"]);
    world.online(&["claims", "payout"]);
    let gateway = Gateway::start(&world);
    let claim = |amount: u32| json!({"claim": "C-7", "amount": amount, "documents": ["a.pdf", "b.heic"]});

    let paid = gateway.begin("claims", &claim(2500));
    let rejected = gateway.begin("claims", &claim(2501));
    let small = gateway.begin("claims", &claim(80));
    for (id, question) in [(&paid, "Pay 2500 for claim C-7?"), (&rejected, "Pay 2501 for claim C-7?")] {
        let description = gateway.agree(&world, "claims", id, "waiting");
        assert!(description["waiting"].to_string().contains(question), "{}", description["waiting"]);
    }
    let shown = world.json(&["approval", "show", &paid]);
    assert_eq!(shown["question"]["data"]["unread"][0]["index"], 1, "{shown}");

    // A question is answered at any entry point.
    gateway.approve(&paid);
    let body = json!({"decision": "reject", "comment": "no receipt", "data": {"seen": true}});
    let answer = gateway.post(&format!("/api/v1/executions/{rejected}/decisions"), &[], &body.to_string());
    assert!(answer.status < 300, "{} {}", answer.status, answer.body);
    let check = |id: &str, status: &str, said: &str, by_person: bool| {
        let output: Value = gateway.agree(&world, "claims", id, "succeeded")["output"].clone();
        assert_eq!((&output["status"], &output["text"]), (&json!(status), &json!(said)), "{output}");
        assert_eq!(output["decided_by"].is_string(), by_person, "{output}");
    };
    check(&paid, "paid", "paid 2500", true);
    check(&rejected, "refused", "C-7: no receipt", true);
    check(&small, "paid", "paid 80", false);
    let described = world.json(&["execution", "describe", &rejected]);
    assert!(described["decisions"].to_string().contains("no receipt"), "{}", described["decisions"]);
}

fn check_in_one_process(world: &World) {
    assert!(world.ok(&["workflow", "validate", ".", "--strict"]).is_empty());
    assert!(world.ok(&["test", "claims.test.yaml"]).contains("9 passed"));
    let (code, out, err) = run_here(world, "approve=yes");
    assert!(code == Some(0) && out.contains("paid 2500"), "{out}{err}");
    let (code, out, err) = run_here(world, "approve=no: no receipt");
    assert!(code == Some(0) && out.contains("C-7: no receipt"), "{out}{err}");
    let (code, _, err) = run_here(world, "approve=maybe");
    assert!(code == Some(2) && err.contains("neither yes nor no"), "{err}");
    let output = world.run(&["run", "claims.yaml", "--local", "--trust", "-q", "-i", "@claim.json"]);
    assert_eq!(output.status.code(), WAITS, "{}", text(&output.stderr));
    // A question of a called workflow is one of its caller, too.
    let batch = claims_caller();
    world.write("batch.yaml", &batch);
    let run = |more: &[&str]| {
        world.run(&[&["run", "batch.yaml", "--local", "--trust", "-q", "-i", "@claim.json"], more].concat())
    };
    let output = run(&[]);
    assert_eq!(output.status.code(), WAITS, "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("at 'approve': Pay 2500"), "{}", text(&output.stderr));
    let output = run(&["--answer", "approve=no: too late"]);
    assert!(text(&output.stdout).contains("C-7: too late"), "{}", text(&output.stderr));
    std::fs::remove_file(world.path().join("batch.yaml")).unwrap();
    // A misspelled workflow is found before anything runs.
    let claims = std::fs::read_to_string(world.path().join("claims.yaml")).unwrap();
    world.write("typo.yaml", &claims.replace("name: claims", "name: typo").replace(": payout", ": payuot"));
    let found = world.ends(&["workflow", "validate", "typo.yaml", "--strict"], 1);
    assert!(found.contains("'payuot'") && found.contains("did you mean 'payout'?"), "{found}");
    std::fs::remove_file(world.path().join("typo.yaml")).unwrap();
}

/// A workflow that only calls `claims`.
fn claims_caller() -> String {
    let node = json!({"id": "one", "type": "workflow", "workflow_name": "claims"});
    let mapping = json!({"text": "{{one.output.text}}"});
    json!({"name": "batch", "workflow": {"description": "B", "nodes": [node], "output_mapping": mapping}})
        .to_string()
}
