//! Equality of starts of one execution, and the ids that a caller may use.
//!
//! Pure code. Anyone who can compute an id knows it, so the id alone does not identify the owner of
//! an execution.

use crate::bug::seeded_bug;
use sinew_protocol::code;
use sinew_protocol::command::StartCommand;
use sinew_protocol::journal::{ExecutionMeta, ParentRef};
use sinew_protocol::{Fault, Token};

/// Properties that identify a start, in addition to its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartIdentity {
    origin: StartOrigin,
    workflow: String,
    digest: String,
}

/// Origin of a start.
#[derive(Clone, Debug, PartialEq, Eq)]
enum StartOrigin {
    /// The caller in the command's subject.
    Client(Token),
    /// A caller's request to a workflow's endpoint, forwarded by an executor.
    Endpoint(Token),
    /// A task of another execution, forwarded by an executor.
    Parent(ParentRef),
}

impl StartIdentity {
    /// Returns the identity of a start. `caller` is the authenticated caller; `proved` states
    /// whether the command's parent is proved. An invalid `behalf` was already removed.
    pub fn of(command: &StartCommand, caller: &Token, proved: bool) -> Self {
        let origin = match (&command.parent, &command.behalf) {
            (Some(parent), _) if proved => StartOrigin::Parent(parent.clone()),
            (_, Some(_)) => StartOrigin::Endpoint(caller.clone()),
            _ => StartOrigin::Client(caller.clone()),
        };
        Self { origin, workflow: command.workflow.clone(), digest: command.digest() }
    }

    /// Checks that a client may use its id: chosen manually, or derived from its key.
    ///
    /// Without this check another caller could take the id that will be derived from a caller's
    /// key.
    pub fn check_id(&self, command: &StartCommand, namespace: &str) -> Result<(), Fault> {
        let StartOrigin::Client(caller) = &self.origin else { return Ok(()) };
        let own = match command.idempotency_key {
            Some(_) => command.id_follows(namespace, caller),
            None => !command.execution.has_derived_form(),
        };
        if own {
            return Ok(());
        }
        let text =
            format!("the id {} is not derived from an idempotency key of its caller", command.execution);
        Err(Fault::invalid(code::START_ID_WITHOUT_PROOF.as_str(), text))
    }

    /// Checks that the existing execution with this id was started by the same start.
    pub fn compare(&self, known: &ExecutionMeta) -> Result<(), Fault> {
        let same = match (&self.origin, &known.parent) {
            (StartOrigin::Parent(parent), Some(above)) => {
                parent.execution == above.execution && parent.task == above.task
            }
            (StartOrigin::Parent(_), None) | (_, Some(_)) => false,
            // The id of a message identifies the request: different content under the same id is a
            // repetition.
            (StartOrigin::Endpoint(caller), None) => {
                *caller == known.caller && self.workflow == known.workflow
            }
            (StartOrigin::Client(caller), None) => {
                let digest = known.start_digest.as_ref();
                (*caller == known.caller || seeded_bug!(OtherCallersStartAccepted))
                    && self.workflow == known.workflow
                    && digest.is_none_or(|digest| *digest == self.digest)
            }
        };
        if same {
            return Ok(());
        }
        let text = format!(
            "execution {} was already started by another caller or with another input or workflow",
            known.execution
        );
        Err(Fault::invalid(code::EXECUTION_ID_OF_OTHER_START.as_str(), text))
    }

    /// Returns true for a start of a client that names its caller's key.
    pub(crate) fn is_client(&self) -> bool {
        matches!(self.origin, StartOrigin::Client(_))
    }

    /// Returns the digest that the execution stores.
    pub fn into_digest(self) -> String {
        self.digest
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;
    use sinew_protocol::behalf::OnBehalf;
    use sinew_protocol::{ActivationKey, ExecutionId, ResultKey, TaskId};

    use super::*;

    fn ada() -> Token {
        Token::of("ada")
    }

    fn parent(attempt: u32) -> ParentRef {
        let execution = ExecutionId::of("ns", "ada", "above");
        let activation = ActivationKey::of::<&str>(&execution, "n", &[], 0);
        let task = TaskId::of(&execution, &activation, attempt);
        ParentRef { execution, task, result_subject: String::new(), agent: "w".to_owned() }
    }

    /// The start of the key `k` by ada.
    fn start() -> StartCommand {
        let mut command = StartCommand::new(ExecutionId::of("ns", "ada", "k"), "w", json!({ "n": 1 }));
        command.idempotency_key = Some("k".to_owned());
        command
    }

    fn called() -> StartCommand {
        let behalf = OnBehalf::of(&ResultKey::new([1; 32]), &start().execution, ada());
        StartCommand { behalf: Some(behalf), idempotency_key: None, ..start() }
    }

    fn meta(command: &StartCommand, caller: &Token, proved: bool) -> ExecutionMeta {
        ExecutionMeta {
            execution: command.execution.clone(),
            workflow: command.workflow.clone(),
            dialect: "sam".to_owned(),
            plan: String::new(),
            caller: caller.clone(),
            user: String::new(),
            user_config: serde_json::Value::Null,
            session: String::new(),
            labels: BTreeMap::new(),
            created: 1,
            parent: command.parent.clone().filter(|_| proved),
            traceparent: None,
            start_digest: Some(command.digest()),
            calling: None,
            idempotency_key: None,
            conversation: None,
        }
    }

    #[test]
    fn a_known_id_is_the_same_start_or_is_refused() {
        let (eve, exec_a, exec_b) = (Token::of("eve"), Token::of("exec-a"), Token::of("exec-b"));
        let input = |n: u32| StartCommand { input: json!({ "n": n }), ..start() };
        let other =
            |workflow: &str, start: StartCommand| StartCommand { workflow: workflow.to_owned(), ..start };
        let child = |attempt| StartCommand { parent: Some(parent(attempt)), ..start() };
        let old = ExecutionMeta { start_digest: None, ..meta(&start(), &ada(), false) };
        let cases = [
            ("the same start", start(), ada(), meta(&start(), &ada(), false), true),
            ("another caller", start(), eve.clone(), meta(&start(), &ada(), false), false),
            ("another input", input(2), ada(), meta(&start(), &ada(), false), false),
            ("another workflow", other("x", start()), ada(), meta(&start(), &ada(), false), false),
            ("a record of an older version", input(2), ada(), old.clone(), true),
            ("another caller of an older record", start(), eve, old, false),
            ("the same call", called(), ada(), meta(&called(), &ada(), false), true),
            (
                "the same call, another content",
                StartCommand { input: json!(7), ..called() },
                ada(),
                meta(&called(), &ada(), false),
                true,
            ),
            (
                "a call of another workflow",
                other("x", called()),
                ada(),
                meta(&called(), &ada(), false),
                false,
            ),
            (
                "the same task by another executor",
                child(1),
                exec_b.clone(),
                meta(&child(1), &exec_a, true),
                true,
            ),
            ("another task", child(2), exec_b.clone(), meta(&child(1), &exec_a, true), false),
            ("a task against a client's", child(1), exec_b, meta(&start(), &ada(), false), false),
            ("a client's against a task", start(), ada(), meta(&child(1), &exec_a, true), false),
        ];
        for (case, command, caller, known, same) in cases {
            let identity = StartIdentity::of(&command, &caller, command.parent.is_some());
            let compared = identity.compare(&known);
            assert_eq!(compared.is_ok(), same, "{case}");
            assert!(
                compared.err().is_none_or(|fault| fault.code == code::EXECUTION_ID_OF_OTHER_START.as_str()),
                "{case}"
            );
        }
    }

    #[test]
    fn ids_of_others_cannot_be_taken() {
        let keyless = |id: &str| StartCommand {
            execution: ExecutionId::parse(id).unwrap(),
            idempotency_key: None,
            ..start()
        };
        let derived = ExecutionId::of("ns", "ada", "k");
        let cases = [
            ("the key's own caller", start(), "ada", true),
            ("the key of another caller", start(), "eve", false),
            ("the id of a key, without the key", keyless(derived.as_str()), "eve", false),
            ("the same, even by its caller", keyless(derived.as_str()), "ada", false),
            ("an id chosen by hand", keyless("order-17"), "eve", true),
            (
                "a parent that is not proved",
                StartCommand { parent: Some(parent(1)), ..start() },
                "eve",
                false,
            ),
            ("a call that an executor passes on", called(), "eve", true),
        ];
        for (case, command, caller, own) in cases {
            let identity = StartIdentity::of(&command, &Token::of(caller), false);
            assert_eq!(identity.check_id(&command, "ns").is_ok(), own, "{case}");
        }
    }
}
