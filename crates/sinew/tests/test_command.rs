//! `sinew test` where transcripts do not reach: files that are written.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test says what is wrong by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/test");

fn sinew(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sinew")).args(args).current_dir(folder).output().expect("it starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it writes UTF-8")
}

/// A folder with copies of these fixtures.
fn folder(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        std::fs::copy(Path::new(FIXTURES).join(name), folder.path().join(name)).unwrap();
    }
    folder
}

/// A called workflow with a stub does not run, so that its file and the stubs of its agents are not
/// needed; an unused stub is reported.
#[test]
fn called_workflows_can_be_stubbed() {
    let here = tempfile::tempdir().unwrap();
    let file = |stub: &str| {
        format!(
            "definition:\n  workflow:\n    description: d\n    nodes:\n      \
             - {{id: pay, type: workflow, workflow_name: payout, input: {{n: 1}}}}\n    \
             output_mapping: {{paid: \"{{{{pay.output.ok}}}}\"}}\n\
             cases:\n  - name: pays\n    workflows: {{{stub}: {{output: {{ok: true}}, after: 2s}}}}\n    \
             expect: {{status: succeeded, output: {{paid: true}}, calls: {{payout: 1}}, elapsed: 2s}}\n"
        )
    };
    for (stub, code) in [("payout", 0), ("payuot", 1)] {
        std::fs::write(here.path().join("pay.test.yaml"), file(stub)).unwrap();
        let output = sinew(here.path(), &["test"]);
        assert_eq!(output.status.code(), Some(code), "{}{}", text(&output.stdout), text(&output.stderr));
    }
}

#[test]
fn an_update_replaces_what_was_wrong_and_nothing_else() {
    let here = folder(&["order.yaml", "failing.test.yaml"]);
    let path = here.path().join("failing.test.yaml");
    let before = std::fs::read_to_string(&path).unwrap();
    let output = sinew(here.path(), &["test", "--update"]);
    // Defects that no value can mend still fail.
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("+      order: [check, ship]"), "{}", text(&output.stderr));
    let after = std::fs::read_to_string(&path).unwrap();
    let wanted = Path::new(FIXTURES).join("failing.updated.yaml");
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        std::fs::write(&wanted, &after).unwrap();
    }
    assert_eq!(after, std::fs::read_to_string(wanted).unwrap());
    // Lines that are not replaced stay as they are, comments included.
    for line in ["# Every expectation here is wrong on purpose.", "check: failure # a comment that stays"] {
        assert!(before.contains(line) && after.contains(line), "{line}");
    }
    // A second update finds nothing to write.
    sinew(here.path(), &["test", "--update"]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
}

#[test]
fn a_new_case_is_written_once_and_holds_from_then_on() {
    for (name, content) in [
        (
            "new.test.yaml",
            "workflow: order.yaml\ncases:\n  - name: first # what a case is called\n    agents:\n      RiskEvaluator: {output: {level: low}}\n      Inventory: {output: {in_stock: true}}\n      Shipping: {output: {note: \"a: b ${x} 'c'\"}, after: 90s}\n\n# the end\n",
        ),
        (
            "new.test.json",
            "{\"workflow\": \"order.yaml\", \"cases\": [{\"name\": \"first\", \"agents\": {\n  \"RiskEvaluator\": {\"output\": {\"level\": \"low\"}}, \"Inventory\": {\"output\": {\"in_stock\": true}}, \"Shipping\": {\"output\": {}}\n}}]}\n",
        ),
    ] {
        let here = folder(&["order.yaml"]);
        let path: PathBuf = here.path().join(name);
        std::fs::write(&path, content).unwrap();
        assert_eq!(sinew(here.path(), &["test"]).status.code(), Some(1), "{name}: nothing is expected");
        let output = sinew(here.path(), &["test", "--update"]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}{}", text(&output.stdout), text(&output.stderr));
        let output = sinew(here.path(), &["test"]);
        let after = std::fs::read_to_string(&path).unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {}{after}", text(&output.stdout));
        assert!(after.contains("ship"), "{after}");
        if name.ends_with("json") {
            serde_json::from_str::<serde_json::Value>(&after).expect("JSON stays JSON");
        } else {
            assert!(
                after.contains("first # what a case is called") && after.ends_with("\n\n# the end\n"),
                "{after}"
            );
        }
    }
}

#[test]
fn coverage_is_drawn() {
    let here = folder(&["order.yaml", "passing.test.yaml"]);
    let args = ["test", "--coverage", "--filter", "manual review", "-O", "cover.svg"];
    let output = sinew(here.path(), &args);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("not reached: node ship"), "{}", text(&output.stdout));
    let svg = std::fs::read_to_string(here.path().join("cover.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("skipped"), "{svg}");
}

#[test]
fn a_folder_is_walked_but_not_its_hidden_parts() {
    let here = folder(&["order.yaml", "passing.test.yaml"]);
    for inner in ["deep/er", ".hidden", "target"] {
        let inner = here.path().join(inner);
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::copy(here.path().join("order.yaml"), inner.join("order.yaml")).unwrap();
        std::fs::copy(here.path().join("passing.test.yaml"), inner.join("again.test.yml")).unwrap();
    }
    let output = sinew(here.path(), &["test"]);
    assert_eq!(text(&output.stdout).lines().last(), Some("14 passed, 0 failed in 2 files"));
    assert_eq!(output.status.code(), Some(0));
}

/// Two cases of a switch with one target, and a condition.
const CLAIMS: &str = r#"name: claims
description: Routes a claim.
nodes:
  - id: route
    type: switch
    cases:
      - {when: "{{workflow.input.amount}} > 5000", then: refuse}
      - {when: "{{workflow.input.fraud}} >= 0.9", then: refuse}
    default: pay
  - {id: refuse, type: agent, agent_name: Letter, depends_on: [route], input: {}}
  - id: pay
    type: agent
    agent_name: Bank
    depends_on: [route]
    input: {}
    output_schema_override: {type: object, required: [score], properties: {score: {type: integer, minimum: 4}}}
  - {id: note, type: agent, agent_name: Letter, depends_on: [pay], when: "{{pay.output.score}} > 3", input: {}}
output_mapping: {score: "{{pay.output.score}}"}
"#;

#[test]
fn each_case_of_a_switch_and_each_outcome_is_drawn_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str| std::fs::write(folder.path().join(name), content).unwrap();
    write("claims.yaml", CLAIMS);
    let drawn = sinew(folder.path(), &["workflow", "render", "claims.yaml"]);
    let edges = text(&drawn.stdout).lines().filter(|line| line.trim_end().ends_with("--> refuse")).count();
    assert_eq!(edges, 2, "{}", text(&drawn.stdout));
    let case = |input: &str| format!("  - {{name: 'c{input}', input: {input}, agents: *agents}}\n");
    let covered = |inputs: &[&str]| {
        let agents = "agents: &agents {Letter: {output: {}}, Bank: {output: {score: 5}}}";
        let first = format!("  - {{name: first, input: {}, {agents}}}\n", inputs[0]);
        let rest: String = inputs[1..].iter().map(|input| case(input)).collect();
        write("claims.test.yaml", &format!("workflow: claims.yaml\ncases:\n{first}{rest}"));
        let output = sinew(folder.path(), &["test", "--coverage"]);
        text(&output.stdout).to_owned()
    };
    let large = "{amount: 9000, fraud: 0}";
    let one = covered(&[large]);
    assert!(one.contains("1 of 3 branches, 0 of 2 outcomes"), "{one}");
    assert!(one.contains("not reached: branch route → refuse ({{workflow.input.fraud}} >= 0.9)"), "{one}");
    let all = covered(&[large, "{amount: 1, fraud: 1}", "{amount: 1, fraud: 0}"]);
    assert!(all.contains("3 of 3 branches, 1 of 2 outcomes"), "{all}");
    assert!(all.contains("not reached: note: its 'when' does not hold"), "{all}");
    // A dry run continues with a sample of the schema: 4 is more than 3.
    let input = r#"{"amount": 1, "fraud": 0}"#;
    let dry = sinew(folder.path(), &["run", "claims.yaml", "-i", input, "--dry-run", "-o", "json"]);
    let calls: serde_json::Value = serde_json::from_slice(&dry.stdout).unwrap();
    assert_eq!((&calls[0]["node"], &calls[1]["node"]), (&"pay".into(), &"note".into()), "{calls}");
}
