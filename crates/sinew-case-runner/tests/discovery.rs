//! Cases of model agents that search for tools.

use std::path::Path;

use sinew_case_runner::{CaseOptions, CaseReport, run_cases};

const AGENT: &str = "
name: desk
run:
  model:
    use: [main]
    models: {main: {provider: script}}
    tools: [{discover: {match: ['orders-*']}}]
";

const NEIGHBOUR: &str = "
name: orders-refund
description: Gives the customer the money back.
input_schema: {type: object, properties: {order: {type: integer}}, required: [order]}
run: {script: {source: 'lambda input: 1'}}
";

/// Runs a case of the agent, next to `orders-refund`.
fn run(folder: &Path, case: &str) -> CaseReport {
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("desk.agent.yaml", AGENT);
    write("orders-refund.agent.yaml", NEIGHBOUR);
    write("desk.test.yaml", &format!("agent: desk.agent.yaml\ncases:\n  - {case}\n"));
    let options = CaseOptions { paths: vec![folder.to_owned()], ..CaseOptions::default() };
    run_cases(&options, &mut |_| ()).unwrap()
}

#[test]
fn a_case_searches_the_agents_of_the_folder_or_has_a_stub() {
    let found = "{call: {find_tools: {query: money back}}}";
    let call = "{call: {call_tool: {tool: peer_orders-refund, arguments: {order: 1}}}}";
    let tools = "peer_orders-refund: {output: {done: true}}";
    let stub = "find_tools: {output: {tools: [{tool: peer_orders-refund, description: Refunds., parameters: {type: object}}]}}";
    let expect = "expect: {output: {text: Done.}, calls: [find_tools, peer_orders-refund], turns: 3";
    for (tools, discovered, holds) in [
        (tools.to_owned(), "[peer_orders-refund]", true),
        (format!("{tools}, {stub}"), "[peer_orders-refund]", true),
        (tools.to_owned(), "[]", false),
    ] {
        let case = format!(
            "{{name: n, input: {{text: x}}, model: [{found}, {call}, {{text: Done.}}], tools: {{{tools}}}, crash: everywhere, {expect}, discovered: {discovered}}}}}"
        );
        let folder = tempfile::tempdir().unwrap();
        let report = run(folder.path(), &case);
        assert_eq!(report.verdicts.len(), 1, "{report:?}");
        let verdict = &report.verdicts[0];
        assert_eq!(verdict.passed(), holds, "{}", verdict.text(false, false));
    }
}
