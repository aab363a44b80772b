//! Starts that are stored and that no owner has processed, as rows of lists.

use sinew_mesh::inbox::StoredStart;
use sinew_protocol::attributes::ExecutionAttributes;
use sinew_protocol::command::Command;
use sinew_protocol::query::{AN_EXECUTOR, ExecutionStatus, Summary};
use sinew_protocol::start::new_key_time;
use sinew_protocol::subject::Operation;
use sinew_protocol::usage::ModelTotals;

/// Returns a start that no owner has accepted as an open execution; `None` if its body cannot be read.
pub(crate) fn stored_summary(stored: StoredStart) -> Option<Summary> {
    let Ok(Command::Start(start)) = Command::read(Operation::Start, &stored.id, &stored.body) else {
        return None;
    };
    Some(Summary {
        execution: start.execution,
        workflow: start.workflow,
        status: ExecutionStatus::Waiting,
        caller: stored.caller,
        started: stored.stored_at,
        ended: None,
        waiting: Some(AN_EXECUTOR.to_owned()),
        agents: Vec::new(),
        questions: Some(0),
        waits_for: vec!["executor".to_owned()],
        attributes: ExecutionAttributes {
            labels: start.labels,
            idempotency_key: start.idempotency_key.filter(|key| new_key_time(key).is_none()),
            session: start.session,
            user: start.user,
            ..ExecutionAttributes::default()
        },
        plan: start.version,
        usage: ModelTotals::default(),
    })
}
