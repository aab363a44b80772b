//! Observed calls between agents and workflows, from the records of executions.

use std::collections::BTreeMap;

use sinew_inspection::agent_work::agent_work;
use sinew_inspection::record::Record;
use sinew_protocol::card::{AGENT_CALL_PREFIX, PERSON_QUESTION};

/// Number of calls by caller and callee.
pub type CallCounts = BTreeMap<(String, String), usize>;

/// Returns the calls of an execution: those of its workflow, or the execution itself if an agent
/// called another.
pub fn calls_of(record: &Record) -> CallCounts {
    let workflow = record.plan().name.as_str();
    if workflow == PERSON_QUESTION {
        return CallCounts::new();
    }
    if let Some(called) = workflow.strip_prefix(AGENT_CALL_PREFIX) {
        return CallCounts::from([((record.about.caller.clone(), called.to_owned()), 1)]);
    }
    let work = agent_work(record, record.at());
    work.into_iter().map(|work| ((workflow.to_owned(), work.agent), work.tasks)).collect()
}
