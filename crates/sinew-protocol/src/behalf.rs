//! Proofs in calls: the caller on whose behalf an executor starts an execution, and the task that
//! makes a call.
//!
//! Both proofs are derived from the executors' key. Neither can be used to answer a task.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::a2a::SendMessageRequest;
use crate::artifact::sha256;
use crate::message::BadMessage;
use crate::task::METADATA;
use crate::{ActivationKey, ExecutionId, ResultKey, ResultToken, Subject, TaskId, Token};

/// Field of `metadata.sinew` that contains a [`CallingTask`].
pub const PARENT: &str = "parent";

/// Caller on whose behalf an executor starts an execution, with the proof that an executor made the
/// claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnBehalf {
    /// Caller in the subject of the call.
    pub caller: Token,
    proof: ResultToken,
}

impl OnBehalf {
    /// Creates the claim for a start of this execution on behalf of this caller.
    pub fn of(key: &ResultKey, execution: &ExecutionId, caller: Token) -> Self {
        let proof = ResultToken::of(key, &claim(execution, &caller));
        Self { caller, proof }
    }

    /// Returns whether an executor made this claim for this execution.
    pub fn holds(&self, key: &ResultKey, execution: &ExecutionId) -> bool {
        self.proof.proves(key, &claim(execution, &self.caller))
    }
}

/// Returns the task id that the proof is computed over. Attempts count from 1, so no real task has
/// this id.
fn claim(execution: &ExecutionId, caller: &Token) -> TaskId {
    TaskId::of(execution, &ActivationKey::of::<&str>(execution, caller.as_str(), &[], 0), 0)
}

/// Task that makes a call. The proof requires the result token, which only executors and the
/// recipient of the task know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallingTask {
    /// Execution of the task.
    pub execution: ExecutionId,
    /// The task.
    pub task: TaskId,
    proof: String,
}

impl CallingTask {
    /// Derives it from the subject of the task's result. Returns `None` for another subject.
    pub fn of(namespace: &str, result_subject: &str) -> Option<Self> {
        match Subject::parse(namespace, result_subject)? {
            Subject::Result { execution, task, token, .. } => {
                let proof = hidden(&task, &token);
                Some(Self { execution, task, proof })
            }
            _ => None,
        }
    }

    /// Creates it from a task and its result token.
    pub fn of_task(execution: ExecutionId, task: TaskId, token: &ResultToken) -> Self {
        let proof = hidden(&task, token);
        Self { execution, task, proof }
    }

    /// Returns whether an executor dispatched this task.
    pub fn holds(&self, key: &ResultKey) -> bool {
        hidden(&self.task, &ResultToken::of(key, &self.task)) == self.proof
    }

    /// Parses it from the metadata of a request. Returns `None` if it is absent.
    pub fn find(metadata: Option<&Value>) -> Option<Result<Self, BadMessage>> {
        let said = metadata?.get(METADATA)?.get(PARENT)?;
        Some(Self::deserialize(said).map_err(|error| BadMessage::Field {
            kind: "metadata.sinew.parent".to_owned(),
            reason: error.to_string().chars().take(300).collect(),
        }))
    }

    /// Adds it to the metadata of a request and keeps all other fields.
    pub fn put(&self, request: &mut SendMessageRequest) {
        let said = serde_json::to_value(self).unwrap_or_default();
        let mut metadata = members(request.metadata.take());
        let mut own = members(metadata.shift_remove(METADATA));
        own.insert(PARENT.to_owned(), said);
        metadata.insert(METADATA.to_owned(), own.into());
        request.metadata = Some(metadata.into());
    }
}

/// Digest of the token: the called agent can pass it on, but cannot answer the task with it.
fn hidden(task: &TaskId, token: &ResultToken) -> String {
    sha256(format!("sinew.v1 calling {task} {}", token.as_str()).as_bytes())
}

/// Returns the fields of an object, or none for any other value.
fn members(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(members)) => members,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::a2a::{Message, Part};

    fn key(byte: u8) -> ResultKey {
        ResultKey::new([byte; 32])
    }

    #[test]
    fn only_executors_speak_for_others() {
        let execution = ExecutionId::of("ns", "ada", "m1");
        let good = OnBehalf::of(&key(1), &execution, Token::of("ada"));
        let other = OnBehalf { caller: Token::of("eve"), ..good.clone() };
        let read: OnBehalf = serde_json::from_value(serde_json::to_value(&good).unwrap()).unwrap();
        let elsewhere = ExecutionId::of("ns", "ada", "m2");
        for (behalf, key, execution, want) in [
            (&read, key(1), &execution, true),
            (&good, key(2), &execution, false),
            (&good, key(1), &elsewhere, false),
            (&other, key(1), &execution, false),
        ] {
            assert_eq!(behalf.holds(&key, execution), want);
        }
    }

    #[test]
    fn a_calling_task_is_proved_and_its_token_is_not_told() {
        let execution = ExecutionId::of("ns", "ada", "m1");
        let task = TaskId::of(&execution, &ActivationKey::of::<&str>(&execution, "n", &[], 0), 1);
        let token = ResultToken::of(&key(1), &task);
        let told = token.as_str().to_owned();
        let agent = Token::of("a");
        let subject = Subject::Result { shard: 0, agent, execution, task, token }.name("ns");
        let calling = CallingTask::of("ns", &subject).unwrap();
        assert!(calling.holds(&key(1)) && !calling.holds(&key(2)));
        assert_eq!(CallingTask::of("ns", "ns.v1.card.a"), None);
        let message = Message::user("m", vec![Part::text("x")]);
        for metadata in [None, Some(json!({"a": 1})), Some(json!({"sinew": {"b": 1}})), Some(json!(7))] {
            let mut request =
                SendMessageRequest { tenant: None, message: message.clone(), configuration: None, metadata };
            assert!(CallingTask::find(request.metadata.as_ref()).is_none());
            calling.put(&mut request);
            assert_eq!(CallingTask::find(request.metadata.as_ref()), Some(Ok(calling.clone())));
            assert!(!request.metadata.unwrap().to_string().contains(&told), "nobody can answer with it");
        }
        let bad = json!({"sinew": {"parent": {"execution": "a.b"}}});
        assert!(CallingTask::find(Some(&bad)).unwrap().is_err());
    }
}
