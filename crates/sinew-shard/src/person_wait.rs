//! An execution's wait for a person, as its callers see it.

use sinew_engine::{AdapterContext, OpenWait, WaitingFor, people_waits};
use sinew_protocol::journal::ExecutionMeta;
use sinew_protocol::person_wait::{MAX_PEOPLE, PersonWait, shorten_prompt};

use sinew_execution::label;

/// Returns the oldest question that an execution or one of its callees waits for, or `None` if they
/// wait for no person.
pub fn person_wait(meta: &ExecutionMeta, ctx: &AdapterContext<'_>) -> Option<PersonWait> {
    let place = (&meta.execution, meta.workflow.as_str());
    person_wait_in(place, ctx)
}

/// Like [`person_wait`], for an execution with this id and workflow.
pub fn person_wait_in(
    (execution, workflow): (&sinew_protocol::ExecutionId, &str),
    ctx: &AdapterContext<'_>,
) -> Option<PersonWait> {
    let (waits, is_busy) = people_waits(ctx.state);
    let first = waits.iter().min_by_key(|wait| wait.since)?;
    let more = waits.iter().map(questions).fold(0, u32::saturating_add).saturating_sub(1);
    match (&first.what, first.act) {
        (WaitingFor::CalleePerson { wait, .. }, _) => {
            Some(PersonWait { more, is_busy, ..PersonWait::clone(wait) })
        }
        (WaitingFor::Person(request), Some(act)) => Some(PersonWait {
            execution: Some(execution.clone()),
            workflow: workflow.to_owned(),
            node: label(ctx, act),
            activation: act,
            prompt: shorten_prompt(&request.prompt),
            allowed: request.allowed.iter().take(MAX_PEOPLE).cloned().collect(),
            since: first.since,
            due: first.until,
            more,
            is_busy,
        }),
        _ => None,
    }
}

/// Number of questions that one wait represents.
fn questions(wait: &OpenWait) -> u32 {
    match wait.what {
        WaitingFor::CalleePerson { more, .. } => more.saturating_add(1),
        _ => 1,
    }
}
