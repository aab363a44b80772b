//! Effects of a stored commit, as jobs for the outbox.

use std::sync::Arc;

use bytes::Bytes;
use sinew_engine::{Action, Fact, Time};
use sinew_mesh::HeaderMap;
use sinew_protocol::message::MeshMessage;
use sinew_protocol::{ExecutionId, Subject, Token, header};

use super::Shared;
use super::book::{Book, Effect};
use super::observe;
use super::open::Open;
use super::outbox::Job;

/// More than the headers of an event take, in bytes.
const HEADERS: usize = 4 * 1024;

/// Returns the jobs of a stored commit.
pub(super) fn jobs(shared: &Shared, book: &Book, now: Time, effects: Vec<Effect>) -> Vec<Job> {
    let mut jobs = Vec::with_capacity(effects.len());
    for effect in effects {
        match effect {
            Effect::Facts { execution, round, facts } => {
                let Some(open) = book.get(&execution) else { continue };
                events(shared, &mut jobs, open, now, round, &facts);
            }
            Effect::Act { execution, action } => {
                let Some(open) = book.get(&execution) else { continue };
                jobs.push(job(shared, open, action));
            }
            Effect::Verdict { execution, workflow, verdict } => {
                let workflow = if workflow.is_empty() { "-".to_owned() } else { workflow };
                let kind = Token::of("command");
                let subject = Subject::Event { workflow: Token::of(&workflow), execution, kind };
                let body = serde_json::to_vec(&verdict).unwrap_or_default().into();
                jobs.push(Job::Event { subject, headers: HeaderMap::new(), body });
            }
            Effect::Stillborn { meta, fault } => jobs.push(Job::Stillborn { meta: *meta, fault }),
        }
    }
    jobs
}

/// One thing that an execution wants done outside.
pub(super) fn job(shared: &Shared, open: &Open, action: Action) -> Job {
    let state = open.state();
    match action {
        Action::Send { act, attempt, ask, deadline } => {
            let chain = state.start.as_ref().map(|start| start.chain.clone()).unwrap_or_default();
            let call = open.call(act, attempt, ask, deadline);
            if call.ask.is_evaluation() {
                return Job::Evaluation { call, caller: open.stored.meta.caller.clone() };
            }
            metrics::counter!("sinew_tasks_total").increment(1);
            Job::Task { call, meta: Arc::clone(&open.stored.meta), chain }
        }
        Action::Cancel { act, attempt, ask } => {
            let call = open.call(act, attempt, ask, None);
            if call.ask.is_evaluation() {
                return Job::CancelEvaluation { task: call.task };
            }
            if shared.is_workflow(&call) {
                let child = ExecutionId::child(&call.execution, &call.activation, attempt);
                Job::CancelChild { child }
            } else {
                let agent = call.ask.target.name().to_owned();
                Job::Cancel { agent, task: call.task, execution: call.execution }
            }
        }
        Action::Finish(outcome) => {
            metrics::counter!("sinew_executions_ended_total", "status" => outcome.status.as_str())
                .increment(1);
            Job::Finish {
                record: open.stored.record(),
                outcome,
                started: state.started_at,
                ended: state.at,
                reopened: state.reopened,
            }
        }
    }
}

fn events(shared: &Shared, jobs: &mut Vec<Job>, open: &Open, now: Time, round: usize, facts: &[Fact]) {
    let meta = &open.stored.meta;
    let workflow = Token::of(&meta.workflow);
    let ctx = open.ctx();
    for (index, fact) in facts.iter().enumerate() {
        observe::fact(&ctx, meta, now, fact);
        for message in sinew_shard::events::project(&ctx, &meta.execution, fact) {
            let kind = Token::of(message.kind(shared.vocabulary));
            let subject =
                Subject::Event { workflow: workflow.clone(), execution: meta.execution.clone(), kind };
            let mut headers = Shared::headers(meta);
            headers.insert(header::SEQ, format!("{round}.{index}").as_str());
            headers.insert(header::TIME, now.to_string().as_str());
            let body = body(shared, message);
            jobs.push(Job::Event { subject, headers, body });
        }
    }
}

/// An event as it is sent. One that its values make too large tells what happened without them: the record has them.
fn body(shared: &Shared, mut message: MeshMessage) -> Bytes {
    let body = message.to_bytes(shared.vocabulary);
    if body.len() + HEADERS <= shared.mesh.client().max_payload() {
        return body.into();
    }
    match &mut message {
        MeshMessage::ExecutionStart(start) => start.workflow_input = None,
        MeshMessage::ExecutionResult(result) => result.workflow_output = None,
        _ => {}
    }
    message.to_bytes(shared.vocabulary).into()
}
