//! Messages to facts.

use std::sync::Arc;

use serde_json::Value;
use sinew_protocol::pb::{self, journal_fact::Fact as Kind};
use sinew_protocol::{Fault, FaultKind};

use super::WireError;
use super::values::ValueReader;
use crate::ask::{RequestTarget, TaskReply, TaskRequest};
use crate::fact::{
    ActivationOutput, ChildSpec, EdgeToken, ExecutionMode, ExecutionOutcome, ExecutionStart, Fact,
    NewActivation, PersonAnswer, PersonRequest, TerminalStatus, TokenValue,
};

/// Defect of a fact, before its position is known.
pub(super) enum Bad {
    UnknownFact,
    Missing(&'static str),
    Json(serde_json::Error),
}

impl Bad {
    pub(super) fn at(self, fact: usize) -> WireError {
        match self {
            Self::UnknownFact => WireError::UnknownFact(fact),
            Self::Missing(field) => WireError::Missing { fact, field },
            Self::Json(source) => WireError::Json { fact, source },
        }
    }
}

pub(super) type Decoded<T> = Result<T, Bad>;

pub(super) fn fact(values: &mut ValueReader, fact: pb::JournalFact) -> Decoded<Fact> {
    Ok(match fact.fact.ok_or(Bad::UnknownFact)? {
        Kind::Started(message) => Fact::Started(Arc::new(started(values, message)?)),
        Kind::Opened(pb::JournalOpened { scope, parent, owner, index, item_json }) => {
            Fact::Opened { scope, parent, owner, index, item: values.read(&item_json)? }
        }
        Kind::Routed(pb::JournalRouted { act, scope, tokens: all, end }) => {
            Fact::Routed { act, scope, tokens: tokens(values, &all)?, end }
        }
        Kind::Activated(message) => Fact::Activated(made(values, message)?),
        Kind::Died(pb::JournalDied { node, scope, reason }) => Fact::Died { node, scope, reason },
        Kind::Dropped(pb::JournalDropped { edge, scope }) => Fact::Dropped { edge, scope },
        Kind::Deferred(pb::JournalDeferred { act, human }) => Fact::Deferred { act, human },
        Kind::Undeferred(pb::JournalUndeferred { act }) => Fact::Undeferred { act },
        Kind::Began(pb::JournalBegan { act }) => Fact::Began { act },
        Kind::Noted(pb::JournalNoted { act, note_json }) => Fact::Noted { act, note: json(&note_json)? },
        Kind::Dispatched(pb::JournalDispatched { act, attempt, tries, ask: asked, deadline }) => {
            let ask = Arc::new(ask(values, asked.ok_or(Bad::Missing("ask"))?)?);
            Fact::Dispatched { act, attempt, tries, ask, deadline }
        }
        Kind::Progressed(pb::JournalProgressed { act, attempt, value_json }) => {
            Fact::Progressed { act, attempt, value: json(&value_json)? }
        }
        Kind::Replied(pb::JournalReplied { act, attempt, result, retried, usage_json, worked_ms }) => {
            let result = match result.ok_or(Bad::Missing("result"))? {
                pb::journal_replied::Result::Reply(message) => Ok(Arc::new(reply(values, message)?)),
                pb::journal_replied::Result::Fault(message) => Err(fault(message)?),
            };
            Fact::Replied { act, attempt, result, retried, usage: json(&usage_json)?, worked_ms }
        }
        Kind::Late(pb::JournalLate { act, attempt, usage_json }) => {
            Fact::Late { act, attempt, usage: json(&usage_json)? }
        }
        Kind::BackedOff(pb::JournalBackedOff { act, until, ask: held }) => {
            Fact::BackedOff { act, until, ask: held.map(|held| ask(values, held)).transpose()?.map(Arc::new) }
        }
        Kind::Slept(pb::JournalSlept { act, until }) => Fact::Slept { act, until },
        Kind::Awaited(pb::JournalAwaited { act, wait: asked, deadline, stops_clocks }) => {
            let wait = Arc::new(wait(values, asked.ok_or(Bad::Missing("wait"))?)?);
            Fact::Awaited { act, wait, deadline, stops_clocks }
        }
        Kind::Reminded(pb::JournalReminded { act }) => Fact::Reminded { act },
        Kind::CalleeWaits(pb::JournalCalleeWaits { act, attempt, callee, number, wait_json }) => {
            let wait = if wait_json.is_empty() {
                None
            } else {
                Some(Arc::new(serde_json::from_slice(&wait_json).map_err(Bad::Json)?))
            };
            Fact::CalleeWaits { act, attempt, callee, number, wait }
        }
        Kind::Answered(message) => answered(message)?,
        Kind::Fanned(pb::JournalFanned { act, children, limit, fail_fast }) => {
            let children = children.into_iter().map(|made| child(values, made)).collect::<Decoded<_>>()?;
            Fact::Fanned { act, children: Arc::new(children), limit, fail_fast }
        }
        Kind::Yielded(pb::JournalYielded { act, tokens: all }) => {
            Fact::Yielded { act, tokens: tokens(values, &all)? }
        }
        Kind::Completed(pb::JournalCompleted { act, output: outputs, reused }) => {
            Fact::Completed { act, output: needed(values, outputs)?, reused }
        }
        Kind::Skipped(pb::JournalSkipped { act, reason, output: outputs }) => {
            Fact::Skipped { act, reason, output: needed(values, outputs)? }
        }
        Kind::Failed(pb::JournalFailed { act, fault: why, output: outputs }) => Fact::Failed {
            act,
            fault: fault(why.ok_or(Bad::Missing("fault"))?)?,
            output: outputs.map(|outputs| output(values, outputs)).transpose()?,
        },
        Kind::Cancelled(pb::JournalCancelled { act, reason }) => Fact::Cancelled { act, reason },
        Kind::Paused(pb::JournalPaused { reason }) => Fact::Paused { reason },
        Kind::Resumed(pb::JournalResumed {}) => Fact::Resumed,
        Kind::CancelRequested(pb::JournalCancelRequested { reason }) => Fact::CancelRequested { reason },
        Kind::Concluded(message) => Fact::Concluded { outcome: outcome(values, message)? },
        Kind::Ended(pb::JournalEnded {}) => Fact::Ended,
        Kind::Reopened(pb::JournalReopened { acts, reset, reason, input_json }) => {
            let input = input_json.map(|bytes| values.read(&bytes)).transpose()?;
            Fact::Reopened { acts, reset, reason, input }
        }
    })
}

pub(super) fn json(bytes: &[u8]) -> Decoded<Value> {
    if bytes.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(bytes).map_err(Bad::Json) }
}

fn all_json(values: &[bytes::Bytes]) -> Decoded<Vec<Value>> {
    values.iter().map(|bytes| json(bytes)).collect()
}

fn started(values: &mut ValueReader, message: pb::JournalStarted) -> Decoded<ExecutionStart> {
    let pb::JournalStarted { plan, input_json, mode, depth, chain, refused } = message;
    let pb::JournalMode { dry_run, given_json, from, until, samples_json } = mode.unwrap_or_default();
    let by_name = |values: std::collections::BTreeMap<_, _>| {
        let each = values
            .into_iter()
            .map(|(name, bytes): (String, bytes::Bytes)| Ok((name, Arc::new(json(&bytes)?))));
        each.collect::<Decoded<_>>()
    };
    let (given, samples) = (by_name(given_json)?, by_name(samples_json)?);
    Ok(ExecutionStart {
        plan,
        input: values.read(&input_json)?,
        mode: ExecutionMode { dry_run, given, from, until, samples },
        depth,
        chain,
        refused: refused.map(fault).transpose()?,
    })
}

fn made(values: &mut ValueReader, message: pb::JournalActivated) -> Decoded<NewActivation> {
    let pb::JournalActivated { act, node, scope, from, take, owner, value_json, again, position, input_json } =
        message;
    let value = value_json.map(|bytes| values.read(&bytes)).transpose()?;
    let input = input_json.map(|bytes| values.read(&bytes)).transpose()?;
    Ok(NewActivation { act, node, scope, from, take, owner, value, again, position, input })
}

fn outcome(values: &mut ValueReader, message: pb::JournalConcluded) -> Decoded<ExecutionOutcome> {
    let status = match message.status() {
        pb::JournalStatus::Success => TerminalStatus::Success,
        pb::JournalStatus::Failure => TerminalStatus::Failure,
        pb::JournalStatus::Cancelled => TerminalStatus::Cancelled,
        pb::JournalStatus::Unspecified => return Err(Bad::Missing("status")),
    };
    let pb::JournalConcluded { output_json, fault: why, cause, .. } = message;
    Ok(ExecutionOutcome {
        status,
        output: output_json.map(|bytes| values.read(&bytes)).transpose()?,
        fault: why.map(fault).transpose()?,
        cause,
    })
}

fn tokens(values: &mut ValueReader, tokens: &[pb::JournalToken]) -> Decoded<Vec<EdgeToken>> {
    tokens.iter().map(|one| token(values, one)).collect()
}

fn token(values: &mut ValueReader, message: &pb::JournalToken) -> Decoded<EdgeToken> {
    let value = match message.kind() {
        pb::JournalTokenKind::Dead => TokenValue::Dead,
        pb::JournalTokenKind::Failed => TokenValue::Failed,
        pb::JournalTokenKind::Port => TokenValue::Port,
        pb::JournalTokenKind::Given => TokenValue::Given(values.read(&message.value_json)?),
        pb::JournalTokenKind::Unspecified => return Err(Bad::Missing("token")),
    };
    Ok(EdgeToken { edge: message.edge, value, fan: message.fan })
}

fn needed(values: &mut ValueReader, message: Option<pb::JournalOutput>) -> Decoded<ActivationOutput> {
    output(values, message.ok_or(Bad::Missing("output"))?)
}

fn output(values: &mut ValueReader, message: pb::JournalOutput) -> Decoded<ActivationOutput> {
    let value = values.read(&message.value_json)?;
    let port = |pb::JournalPort { name, value_json }| Ok((name, values.read(&value_json)?));
    let ports = message.ports.into_iter().map(port).collect::<Decoded<_>>()?;
    Ok(ActivationOutput { value, ports })
}

fn child(values: &mut ValueReader, message: pb::JournalChild) -> Decoded<ChildSpec> {
    let pb::JournalChild { body, item_json, delay_ms } = message;
    Ok(ChildSpec { body, item: values.read(&item_json)?, delay_ms })
}

fn ask(values: &mut ValueReader, message: pb::JournalAsk) -> Decoded<TaskRequest> {
    let target = match message.target.ok_or(Bad::Missing("target"))? {
        pb::journal_ask::Target::Agent(name) => RequestTarget::Agent(name),
        pb::journal_ask::Target::Workflow(name) => RequestTarget::Workflow(name),
        pb::journal_ask::Target::Evaluation(_) => RequestTarget::Evaluation,
    };
    Ok(TaskRequest {
        tag: message.tag,
        target,
        input: values.read(&message.input_json)?,
        instruction: message.instruction,
        context: json(&message.context_json)?,
        input_schema: message.input_schema_json.map(|bytes| json(&bytes)).transpose()?,
        output_schema: message.output_schema_json.map(|bytes| json(&bytes)).transpose()?,
        timeout_ms: message.timeout_ms,
    })
}

fn reply(values: &mut ValueReader, message: pb::JournalReply) -> Decoded<TaskReply> {
    let pb::JournalReply { output_json, artifacts_json, events_json, usage_json } = message;
    Ok(TaskReply {
        output: values.read(&output_json)?,
        artifacts: all_json(&artifacts_json)?,
        events: all_json(&events_json)?,
        usage: json(&usage_json)?,
        worked_ms: None,
    })
}

fn wait(values: &mut ValueReader, message: pb::JournalWait) -> Decoded<PersonRequest> {
    let pb::JournalWait { prompt, data_json, allowed, timeout_ms, decision, approvals_json, remind_ms } =
        message;
    let approval = |bytes: &bytes::Bytes| serde_json::from_slice(bytes).map_err(Bad::Json);
    let approvals = approvals_json.iter().map(approval).collect::<Decoded<_>>()?;
    let data = values.read(&data_json)?;
    Ok(PersonRequest { prompt, data, allowed, timeout_ms, remind_ms, decision, approvals })
}

fn answered(message: pb::JournalAnswered) -> Decoded<Fact> {
    let pb::JournalAnswered { act, data_json, timed_out, by, comment, approved } = message;
    let answer = PersonAnswer { data: json(&data_json)?, timed_out, by, comment, approved };
    Ok(Fact::Answered { act, answer: Arc::new(answer) })
}

fn fault(message: pb::JournalFault) -> Decoded<Fault> {
    let kind = match message.kind() {
        pb::JournalFaultKind::Error => FaultKind::Error,
        pb::JournalFaultKind::Failure => FaultKind::Failure,
        pb::JournalFaultKind::Invalid => FaultKind::Invalid,
        pb::JournalFaultKind::Cancelled => FaultKind::Cancelled,
        pb::JournalFaultKind::Timeout => FaultKind::Timeout,
        pb::JournalFaultKind::Unspecified => return Err(Bad::Missing("fault kind")),
    };
    let pb::JournalFault { code, message, retryable, details, retry_after_ms, .. } = message;
    Ok(Fault { code: code.into(), message, retryable, kind, details, retry_after_ms })
}
