//! Evaluation of workflow scripts by workers of this process. The outcome is the reply to a task
//! request.

use sinew_protocol::code;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;
use sinew_engine::{TaskReply, TaskRequest};
use sinew_protocol::Fault;
use sinew_protocol::task::{LogLine, TaskLog};
use sinew_script::{CallBatch, CallOutcome, PrintedText};
use tokio::sync::oneshot;
use tracing::{debug, warn};

use crate::clock::now;

/// Maximum number of submissions of a blocking evaluation while no worker is available.
const MAX_SUBMISSIONS: usize = 10;
/// Delays before an evaluation is submitted again, doubled from the first to the second.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// Reply to an evaluation request, and the printed text of its scripts.
pub struct EvaluationReply {
    /// Reply, or the fault.
    pub result: Result<TaskReply, Fault>,
    /// Messages, oldest first, within the limits.
    pub logs: Vec<LogLine>,
}

impl EvaluationReply {
    fn new(result: Result<TaskReply, Fault>, printed: &PrintedText) -> Self {
        let mut log = TaskLog::default();
        printed.take().lines().for_each(|line| log.push(now(), line));
        Self { result, logs: log.take() }
    }
}

/// Evaluates on a worker; owners take turns. Calls without an outcome because no worker is
/// available are submitted again, until each has an outcome or the returned future is dropped.
pub async fn evaluate(owner: u64, ask: &TaskRequest) -> EvaluationReply {
    let printed = PrintedText::default();
    let submit = |outcomes| {
        let (sender, receiver) = oneshot::channel();
        batch_of(ask)?.resume(outcomes, owner, &printed, move |outcomes| drop(sender.send(outcomes)));
        Ok(receiver)
    };
    let outcomes = all_outcomes(submit).await;
    EvaluationReply::new(outcomes.and_then(|outcomes| reply_of(&outcomes)), &printed)
}

/// Submits until every call has an outcome other than a missing worker. `submit` receives the
/// previous outcomes.
async fn all_outcomes(
    mut submit: impl FnMut(Vec<CallOutcome>) -> Result<oneshot::Receiver<Vec<CallOutcome>>, Fault>,
) -> Result<Vec<CallOutcome>, Fault> {
    let mut outcomes = Vec::new();
    let mut wait = BACKOFF.0;
    loop {
        let had = outcomes.len();
        outcomes = submit(outcomes)?.await.map_err(|_| {
            Fault::error(code::NO_WORKER_FREE.as_str(), "the thread that evaluated the scripts ended")
        })?;
        let Some(missing) = outcomes.iter().position(CallOutcome::is_unavailable) else {
            return Ok(outcomes);
        };
        if let CallOutcome::Error(error) = &outcomes[missing] {
            debug!(%error, "an evaluation is submitted again");
        }
        outcomes.truncate(missing);
        wait = if missing > had { BACKOFF.0 } else { wait };
        tokio::time::sleep(wait).await;
        if wait < BACKOFF.1 && wait * 2 >= BACKOFF.1 {
            warn!("no script worker is available: too many scripts are pending, or no worker can be started");
        }
        wait = (wait * 2).min(BACKOFF.1);
    }
}

/// Returns the owner by which evaluations take turns, derived from caller and workflow.
pub fn evaluation_owner(caller: &str, workflow: &str) -> u64 {
    let mut owner = DefaultHasher::new();
    (caller, workflow).hash(&mut owner);
    owner.finish()
}

/// Evaluates on a worker and blocks until it is done. Reports a missing worker only after ten
/// submissions.
pub fn perform_evaluation(ask: &TaskRequest) -> EvaluationReply {
    let printed = PrintedText::default();
    let submit = |outcomes| {
        let (sender, receiver) = mpsc::sync_channel(1);
        batch_of(ask)?.resume(outcomes, 0, &printed, move |outcomes| drop(sender.send(outcomes)));
        receiver.recv().map_err(|_| {
            Fault::error(code::NO_WORKER_FREE.as_str(), "the thread that evaluated the scripts ended")
        })
    };
    let outcomes = repeated_outcomes(submit, std::thread::sleep);
    EvaluationReply::new(outcomes.and_then(|outcomes| reply_of(&outcomes)), &printed)
}

/// Submits until every call has an outcome other than a missing worker, or the limit is reached.
fn repeated_outcomes(
    mut submit: impl FnMut(Vec<CallOutcome>) -> Result<Vec<CallOutcome>, Fault>,
    mut pause: impl FnMut(Duration),
) -> Result<Vec<CallOutcome>, Fault> {
    let mut outcomes = submit(Vec::new())?;
    let mut wait = BACKOFF.0;
    for _ in 1..MAX_SUBMISSIONS {
        let Some(missing) = outcomes.iter().position(CallOutcome::is_unavailable) else { break };
        pause(wait);
        wait = (wait * 2).min(BACKOFF.1);
        outcomes.truncate(missing);
        outcomes = submit(outcomes)?;
    }
    Ok(outcomes)
}

fn batch_of(ask: &TaskRequest) -> Result<CallBatch, Fault> {
    CallBatch::read(&ask.input).map_err(|error| {
        Fault::error(
            code::SCRIPT_INTERPRETER_FAILED.as_str(),
            format!("the scripts to evaluate cannot be read: {error}"),
        )
        .with_retryable(false)
    })
}

/// Converts the outcomes to a reply, or to a fault if a script was not run.
fn reply_of(outcomes: &[CallOutcome]) -> Result<TaskReply, Fault> {
    for outcome in outcomes {
        if let CallOutcome::Error(error) = outcome
            && outcome.is_unavailable()
        {
            return Err(Fault::error(error.code(), error.message.clone()));
        }
    }
    let outcomes = serde_json::to_value(outcomes).unwrap_or(Value::Null);
    Ok(TaskReply::new(outcomes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(outcomes: &[Value]) -> Vec<CallOutcome> {
        CallOutcome::read_all(&Value::Array(outcomes.to_vec())).unwrap()
    }

    #[tokio::test]
    async fn lack_of_workers_is_not_an_answer_and_no_call_is_made_twice() {
        let busy = json!({"error": {
            "kind": "Unavailable", "message": "busy", "exception": null, "line": null, "column": null, "snippet": null,
        }});
        let (one, two) = (json!({"value": 1}), json!({"value": 2}));
        let mut answers = vec![
            read(&[one.clone(), two.clone()]),
            read(&[one.clone(), busy.clone()]),
            read(&[busy.clone(), busy]),
        ];
        let mut had = Vec::new();
        let outcomes = all_outcomes(|outcomes| {
            had.push(outcomes.len());
            let (sender, receiver) = oneshot::channel();
            sender.send(answers.pop().unwrap()).unwrap();
            Ok(receiver)
        });
        let outcomes = outcomes.await.unwrap();
        assert_eq!(outcomes, read(&[one, two]));
        assert_eq!(had, [0, 0, 1]);
    }

    #[test]
    fn a_thread_that_waits_submits_again_until_workers_are_free() {
        let busy = json!({"error": {
            "kind": "Unavailable", "message": "busy", "exception": null, "line": null, "column": null, "snippet": null,
        }});
        let (one, two) = (json!({"value": 1}), json!({"value": 2}));
        let mut answers = vec![read(&[one.clone(), two.clone()]), read(&[one.clone(), busy.clone()])];
        let (mut had, mut pauses) = (Vec::new(), 0);
        let submit = |outcomes: Vec<CallOutcome>| {
            had.push(outcomes.len());
            Ok(answers.pop().unwrap())
        };
        assert_eq!(repeated_outcomes(submit, |_| pauses += 1).unwrap(), read(&[one, two]));
        assert_eq!((had, pauses), (vec![0, 1], 1));
        let mut submissions = 0;
        let never = |_| {
            submissions += 1;
            Ok(read(std::slice::from_ref(&busy)))
        };
        let outcomes = repeated_outcomes(never, |_| ()).unwrap();
        assert!(outcomes[0].is_unavailable());
        assert_eq!(submissions, MAX_SUBMISSIONS);
    }

    #[test]
    fn executions_of_one_caller_and_workflow_share_a_turn() {
        assert_eq!(evaluation_owner("a", "w"), evaluation_owner("a", "w"));
        assert_ne!(evaluation_owner("a", "w"), evaluation_owner("b", "w"));
        assert_ne!(evaluation_owner("a", "bc"), evaluation_owner("ab", "c"));
    }
}
