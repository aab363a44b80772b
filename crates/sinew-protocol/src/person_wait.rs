//! Person waits in callees: reports of an execution to the task that it works for.
//!
//! Deadlines of callers are suspended while a callee waits for a person, so a report carries a
//! proof that only executors can create.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artifact::sha256;
use crate::{ActivationKey, ExecutionId, ResultKey, ResultToken, TaskId};

/// Maximum length of a prompt in a report, in bytes; people read the rest in the question itself.
pub const MAX_PROMPT_BYTES: usize = 2_000;
/// Maximum number of people in a report.
pub const MAX_PEOPLE: usize = 64;

/// Question of a called execution or agent that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PersonWait {
    /// Id of the execution that asks. Absent if an agent asks in its own environment, for example
    /// at a terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub execution: Option<ExecutionId>,
    /// Name of the workflow, or of the agent that asks.
    pub workflow: String,
    /// Node that asks, with its index in maps and loops.
    pub node: String,
    /// Activation of the node.
    #[serde(default)]
    pub activation: u32,
    /// Text of the question, truncated to 2,000 bytes.
    pub prompt: String,
    /// People who may answer. Empty if anyone may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<String>,
    /// When the question was asked, in milliseconds since 1970 UTC.
    pub since: u64,
    /// When the question times out, in milliseconds since 1970 UTC. Absent if it does not time out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<u64>,
    /// Number of further open questions of the callee.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: u32,
    /// Whether other work of the callee is in progress.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_busy: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl PersonWait {
    /// Returns the location of the question: `in ask:person gq4…`, or `at Clerk` for an agent that
    /// asks where it runs.
    pub fn place(&self) -> String {
        match &self.execution {
            Some(execution) => format!("in {} {}", self.workflow, execution.short()),
            None => format!("at {}", self.workflow),
        }
    }

    /// Returns the first line of the prompt.
    pub fn first_line(&self) -> &str {
        self.prompt.lines().next().unwrap_or_default()
    }
}

/// Shortens the prompt of a question for a report.
pub fn shorten_prompt(prompt: &str) -> String {
    let mut end = prompt.len().min(MAX_PROMPT_BYTES);
    while !prompt.is_char_boundary(end) {
        end -= 1;
    }
    prompt[..end].to_owned()
}

/// Task of another execution that requested an execution. It does not receive the result; the
/// caller queries it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallingRef {
    /// Execution of the task.
    pub execution: ExecutionId,
    /// Id of the task.
    pub task: TaskId,
}

/// Report that an execution waits for a person, or no longer does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitReport {
    /// Execution that receives the report: that of the task.
    pub execution: ExecutionId,
    /// Task that the callee works for.
    pub task: TaskId,
    /// Execution that waits.
    pub callee: ExecutionId,
    /// Number of the report. Reports with a lower number than an accepted one are obsolete.
    pub number: u64,
    /// Question; absent when the callee waits for no person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<PersonWait>,
    /// Proof that an executor made the report; empty before [`WaitReport::prove`].
    #[serde(default)]
    pub proof: String,
}

impl WaitReport {
    /// Adds the proof.
    #[must_use]
    pub fn prove(mut self, key: &ResultKey) -> Self {
        ResultToken::of(key, &self.claim()).as_str().clone_into(&mut self.proof);
        self
    }

    /// Returns whether an executor made the report and it is unchanged.
    pub fn holds(&self, key: &ResultKey) -> bool {
        ResultToken::parse(&self.proof).is_ok_and(|proof| proof.proves(key, &self.claim()))
    }

    /// Returns the task id that the proof is computed over. Attempts count from 1, so no real task
    /// has this id.
    fn claim(&self) -> TaskId {
        let content = serde_json::json!([self.task, self.callee, self.number, self.wait]);
        let digest = sha256(content.to_string().as_bytes());
        let activation = ActivationKey::of::<&str>(&self.execution, &format!("wait {digest}"), &[], 0);
        TaskId::of(&self.execution, &activation, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> WaitReport {
        let execution = ExecutionId::of("ns", "ada", "above");
        let task = TaskId::of(&execution, &ActivationKey::of::<&str>(&execution, "n", &[], 0), 1);
        let callee = ExecutionId::of("ns", "ada", "below");
        let wait = PersonWait {
            execution: Some(callee.clone()),
            workflow: "ask:person".to_owned(),
            node: "person".to_owned(),
            activation: 0,
            prompt: "May we pay?".to_owned(),
            allowed: vec!["ada".to_owned()],
            since: 5,
            due: Some(9),
            more: 0,
            is_busy: false,
        };
        WaitReport { execution, task, callee, number: 3, wait: Some(wait), proof: String::new() }
    }

    #[test]
    fn only_executors_report_and_no_part_of_a_report_can_be_changed() {
        let key = ResultKey::new([1; 32]);
        let good = report().prove(&key);
        let read: WaitReport = serde_json::from_value(serde_json::to_value(&good).unwrap()).unwrap();
        assert!(read.holds(&key) && !read.holds(&ResultKey::new([2; 32])) && !report().holds(&key));
        let other = ExecutionId::of("ns", "eve", "other");
        let task = TaskId::of(&other, &ActivationKey::of::<&str>(&other, "n", &[], 0), 1);
        for changed in [
            WaitReport { number: 4, ..good.clone() },
            WaitReport { wait: None, ..good.clone() },
            WaitReport { execution: other.clone(), ..good.clone() },
            WaitReport { callee: other, ..good.clone() },
            WaitReport { task, ..good.clone() },
        ] {
            assert!(!changed.holds(&key), "{changed:?}");
        }
    }

    #[test]
    fn prompts_are_cut_between_characters() {
        assert_eq!(shorten_prompt("ä"), "ä");
        let cut = shorten_prompt(&"ä".repeat(MAX_PROMPT_BYTES));
        assert_eq!(cut.len(), MAX_PROMPT_BYTES);
        assert!(shorten_prompt(&format!("x{}", "ä".repeat(MAX_PROMPT_BYTES))).len() < MAX_PROMPT_BYTES);
    }
}
