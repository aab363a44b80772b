//! Rules that each record must follow after any fault.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sinew_engine::{ExecutionOutcome, Fact, Round, TerminalStatus, decode_round};
use sinew_executor::client::Client;
use sinew_protocol::ExecutionId;
use sinew_protocol::journal::ExecutionRecord;

use crate::support::mesh::PATIENCE;
use crate::support::process::Process;

/// Two agents, one after the other; the second one sees what the first one said.
pub(crate) const CHAIN: &str = r#"
workflow:
  description: Two agents, one after the other
  nodes:
    - {id: first, type: agent, agent_name: one, input: {value: "{{workflow.input.value}}"}}
    - {id: second, type: agent, agent_name: two, input: {value: "{{first.output.value}}"}, depends_on: [first]}
  output_mapping: {value: "{{second.output.value}}"}
"#;

/// One agent; `{}` stands for more of its node.
pub(crate) fn single(more: &str) -> String {
    format!(
        "workflow:\n  description: One agent\n  nodes:\n    - {{id: a, type: agent, agent_name: one, \
         input: {{value: \"{{{{workflow.input.value}}}}\"}}{more}}}\n  output_mapping: {{value: \"{{{{a.output.value}}}}\"}}\n"
    )
}

/// Waits for the end and checks the record.
pub(crate) async fn ended(client: &Client, execution: &ExecutionId) -> ExecutionOutcome {
    let outcome = client.outcome(execution, Some(PATIENCE)).await.unwrap();
    let outcome = outcome.unwrap_or_else(|| panic!("{execution} did not end"));
    audit(&client.record(execution).await.unwrap().unwrap());
    outcome
}

/// As [`ended`], and it ended well.
pub(crate) async fn succeeded(client: &Client, execution: &ExecutionId) -> Value {
    let outcome = ended(client, execution).await;
    assert_eq!(outcome.status, TerminalStatus::Success, "{outcome:?}");
    Value::clone(outcome.output.as_deref().unwrap())
}

pub(crate) fn rounds(record: &ExecutionRecord) -> Vec<Round> {
    record.rounds.iter().map(|round| decode_round(round).unwrap()).collect()
}

/// Every fact, in order.
pub(crate) fn facts(record: &ExecutionRecord) -> Vec<Fact> {
    rounds(record).into_iter().flat_map(|round| round.facts).collect()
}

/// One end per life, one outcome per attempt and activation, no task without its dispatch, time that does not go back.
pub(crate) fn audit(record: &ExecutionRecord) {
    let rounds = rounds(record);
    assert!(rounds.windows(2).all(|pair| pair[0].at <= pair[1].at), "time went back");
    let (mut open, mut starts) = (false, 0);
    let mut sent = BTreeSet::new();
    let mut replied: BTreeMap<_, u32> = BTreeMap::new();
    let mut over = BTreeSet::new();
    for fact in rounds.iter().flat_map(|round| &round.facts) {
        match fact {
            Fact::Started(_) => {
                starts += 1;
                open = true;
            }
            Fact::Reopened { .. } => open = true,
            Fact::Ended => assert!(std::mem::take(&mut open), "it ended twice"),
            Fact::Late { act, attempt, .. } => {
                assert!(sent.contains(&(*act, *attempt)), "late, but never sent");
            }
            Fact::Dispatched { act, attempt, .. } => {
                assert!(sent.insert((*act, *attempt)), "attempt {attempt} of {act} was sent twice");
            }
            Fact::Replied { act, attempt, .. } => {
                assert!(sent.contains(&(*act, *attempt)), "an answer to nothing");
                *replied.entry((*act, *attempt)).or_default() += 1;
            }
            Fact::Completed { act, .. }
            | Fact::Failed { act, .. }
            | Fact::Skipped { act, .. }
            | Fact::Cancelled { act, .. } => assert!(over.insert(*act), "activation {act} ended twice"),
            _ => {}
        }
    }
    assert_eq!(starts, 1, "it began {starts} times");
    assert!(!open, "its end is not in the record");
    assert!(replied.values().all(|times| *times == 1), "an attempt was answered twice");
}

/// Tasks that agents were given, with how often.
pub(crate) fn given(agents: &[&Process]) -> BTreeMap<String, usize> {
    let mut given = BTreeMap::new();
    for call in agents.iter().flat_map(|agent| agent.began()) {
        *given.entry(call["task"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    given
}
