//! Facts to messages.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::Value;
use sinew_protocol::pb::{self, journal_fact::Fact as Kind};
use sinew_protocol::{Fault, FaultKind};

use super::values::ValueWriter;
use crate::SharedJson;
use crate::ask::{RequestTarget, TaskReply, TaskRequest};
use crate::fact::{
    ActivationOutput, ChildSpec, EdgeToken, ExecutionMode, ExecutionOutcome, ExecutionStart, Fact,
    NewActivation, PersonAnswer, PersonRequest, TerminalStatus, TokenValue,
};

pub(super) fn fact(values: &mut ValueWriter, fact: &Fact) -> pb::JournalFact {
    pb::JournalFact { fact: Some(kind(values, fact)) }
}

fn kind(values: &mut ValueWriter, fact: &Fact) -> Kind {
    match fact {
        Fact::Started(start) => Kind::Started(started(values, start)),
        Fact::Opened { scope, parent, owner, index, item } => Kind::Opened(pb::JournalOpened {
            scope: *scope,
            parent: *parent,
            owner: *owner,
            index: *index,
            item_json: values.write(item),
        }),
        Fact::Routed { act, scope, tokens: all, end } => Kind::Routed(pb::JournalRouted {
            act: *act,
            scope: *scope,
            tokens: tokens(values, all),
            end: end.clone(),
        }),
        Fact::Activated(made) => Kind::Activated(activated(values, made)),
        Fact::Died { node, scope, reason } => {
            Kind::Died(pb::JournalDied { node: *node, scope: *scope, reason: reason.clone() })
        }
        Fact::Dropped { edge, scope } => Kind::Dropped(pb::JournalDropped { edge: *edge, scope: *scope }),
        Fact::Deferred { act, human } => Kind::Deferred(pb::JournalDeferred { act: *act, human: *human }),
        Fact::Undeferred { act } => Kind::Undeferred(pb::JournalUndeferred { act: *act }),
        Fact::Began { act } => Kind::Began(pb::JournalBegan { act: *act }),
        Fact::Noted { act, note } => Kind::Noted(pb::JournalNoted { act: *act, note_json: json(note) }),
        Fact::Dispatched { act, attempt, tries, ask: asked, deadline } => {
            Kind::Dispatched(pb::JournalDispatched {
                act: *act,
                attempt: *attempt,
                tries: *tries,
                ask: Some(ask(values, asked)),
                deadline: *deadline,
            })
        }
        Fact::Progressed { act, attempt, value } => {
            Kind::Progressed(pb::JournalProgressed { act: *act, attempt: *attempt, value_json: json(value) })
        }
        Fact::Replied { act, attempt, result, retried, usage, worked_ms } => {
            Kind::Replied(pb::JournalReplied {
                act: *act,
                attempt: *attempt,
                result: Some(match result {
                    Ok(answer) => pb::journal_replied::Result::Reply(reply(values, answer)),
                    Err(why) => pb::journal_replied::Result::Fault(fault(why)),
                }),
                retried: *retried,
                usage_json: json(usage),
                worked_ms: *worked_ms,
            })
        }
        Fact::Late { act, attempt, usage } => {
            Kind::Late(pb::JournalLate { act: *act, attempt: *attempt, usage_json: json(usage) })
        }
        Fact::BackedOff { act, until, ask: held } => Kind::BackedOff(pb::JournalBackedOff {
            act: *act,
            until: *until,
            ask: held.as_deref().map(|held| ask(values, held)),
        }),
        Fact::Slept { act, until } => Kind::Slept(pb::JournalSlept { act: *act, until: *until }),
        Fact::Awaited { act, wait: asked, deadline, stops_clocks } => Kind::Awaited(pb::JournalAwaited {
            act: *act,
            wait: Some(wait(values, asked)),
            deadline: *deadline,
            stops_clocks: *stops_clocks,
        }),
        Fact::Reminded { act } => Kind::Reminded(pb::JournalReminded { act: *act }),
        Fact::CalleeWaits { act, attempt, callee, number, wait } => {
            Kind::CalleeWaits(pb::JournalCalleeWaits {
                act: *act,
                attempt: *attempt,
                callee: callee.clone(),
                number: *number,
                wait_json: wait.as_ref().map_or_else(Bytes::new, |wait| {
                    // Plain data with string keys always serializes.
                    serde_json::to_vec(&**wait).unwrap_or_default().into()
                }),
            })
        }
        Fact::Answered { act, answer } => Kind::Answered(pb::JournalAnswered {
            act: *act,
            data_json: json(&answer.data),
            timed_out: answer.timed_out,
            by: answer.by.clone(),
            comment: answer.comment.clone(),
            approved: answer.approved,
        }),
        Fact::Fanned { act, children, limit, fail_fast } => Kind::Fanned(pb::JournalFanned {
            act: *act,
            children: children.iter().map(|made| child(values, made)).collect(),
            limit: *limit,
            fail_fast: *fail_fast,
        }),
        Fact::Yielded { act, tokens: all } => {
            Kind::Yielded(pb::JournalYielded { act: *act, tokens: tokens(values, all) })
        }
        Fact::Completed { act, output: outputs, reused } => Kind::Completed(pb::JournalCompleted {
            act: *act,
            output: Some(output(values, outputs)),
            reused: *reused,
        }),
        Fact::Skipped { act, reason, output: outputs } => Kind::Skipped(pb::JournalSkipped {
            act: *act,
            reason: reason.clone(),
            output: Some(output(values, outputs)),
        }),
        Fact::Failed { act, fault: why, output: outputs } => Kind::Failed(pb::JournalFailed {
            act: *act,
            fault: Some(fault(why)),
            output: outputs.as_ref().map(|outputs| output(values, outputs)),
        }),
        Fact::Cancelled { act, reason } => {
            Kind::Cancelled(pb::JournalCancelled { act: *act, reason: reason.clone() })
        }
        Fact::Paused { reason } => Kind::Paused(pb::JournalPaused { reason: reason.clone() }),
        Fact::Resumed => Kind::Resumed(pb::JournalResumed {}),
        Fact::CancelRequested { reason } => {
            Kind::CancelRequested(pb::JournalCancelRequested { reason: reason.clone() })
        }
        Fact::Concluded { outcome } => Kind::Concluded(concluded(values, outcome)),
        Fact::Ended => Kind::Ended(pb::JournalEnded {}),
        Fact::Reopened { acts, reset, reason, input } => Kind::Reopened(pb::JournalReopened {
            acts: acts.clone(),
            reset: reset.clone(),
            reason: reason.clone(),
            input_json: input.as_ref().map(|input| values.write(input)),
        }),
    }
}

/// Encodes null as no bytes, because it is the most frequent value.
pub(super) fn json(value: &Value) -> Bytes {
    // A value has string keys only and is written to memory, so it always serializes.
    if value.is_null() { Bytes::new() } else { serde_json::to_vec(value).unwrap_or_default().into() }
}

fn all_json(values: &[Value]) -> Vec<Bytes> {
    values.iter().map(json).collect()
}

fn started(values: &mut ValueWriter, start: &ExecutionStart) -> pb::JournalStarted {
    let ExecutionStart { plan, input, mode, depth, chain, refused } = start;
    let ExecutionMode { dry_run, given, from, until, samples } = mode;
    let values_json = |values: &BTreeMap<String, SharedJson>| {
        values.iter().map(|(name, value)| (name.clone(), json(value))).collect()
    };
    let mode = (*mode != ExecutionMode::default()).then(|| pb::JournalMode {
        dry_run: *dry_run,
        given_json: values_json(given),
        from: from.clone(),
        until: until.clone(),
        samples_json: values_json(samples),
    });
    pb::JournalStarted {
        plan: plan.clone(),
        input_json: values.write(input),
        mode,
        depth: *depth,
        chain: chain.clone(),
        refused: refused.as_ref().map(fault),
    }
}

fn activated(values: &mut ValueWriter, made: &NewActivation) -> pb::JournalActivated {
    let NewActivation { act, node, scope, from, take, owner, value, again, position, input } = made;
    pb::JournalActivated {
        act: *act,
        node: *node,
        scope: *scope,
        from: *from,
        take: *take,
        owner: *owner,
        value_json: value.as_ref().map(|value| values.write(value)),
        again: *again,
        position: *position,
        input_json: input.as_ref().map(|input| values.write(input)),
    }
}

fn concluded(values: &mut ValueWriter, outcome: &ExecutionOutcome) -> pb::JournalConcluded {
    let ExecutionOutcome { status, output, fault: why, cause } = outcome;
    let status = match status {
        TerminalStatus::Success => pb::JournalStatus::Success,
        TerminalStatus::Failure => pb::JournalStatus::Failure,
        TerminalStatus::Cancelled => pb::JournalStatus::Cancelled,
    };
    pb::JournalConcluded {
        status: status.into(),
        output_json: output.as_ref().map(|output| values.write(output)),
        fault: why.as_ref().map(fault),
        cause: *cause,
    }
}

fn tokens(values: &mut ValueWriter, tokens: &[EdgeToken]) -> Vec<pb::JournalToken> {
    tokens.iter().map(|one| token(values, one)).collect()
}

fn token(values: &mut ValueWriter, token: &EdgeToken) -> pb::JournalToken {
    let (kind, value_json) = match &token.value {
        TokenValue::Dead => (pb::JournalTokenKind::Dead, Bytes::new()),
        TokenValue::Failed => (pb::JournalTokenKind::Failed, Bytes::new()),
        TokenValue::Port => (pb::JournalTokenKind::Port, Bytes::new()),
        TokenValue::Given(value) => (pb::JournalTokenKind::Given, values.write(value)),
    };
    pb::JournalToken { edge: token.edge, kind: kind.into(), value_json, fan: token.fan }
}

fn output(values: &mut ValueWriter, output: &ActivationOutput) -> pb::JournalOutput {
    let value_json = values.write(&output.value);
    let port = |(name, value): &(String, SharedJson)| pb::JournalPort {
        name: name.clone(),
        value_json: values.write(value),
    };
    pb::JournalOutput { value_json, ports: output.ports.iter().map(port).collect() }
}

fn child(values: &mut ValueWriter, child: &ChildSpec) -> pb::JournalChild {
    pb::JournalChild { body: child.body, item_json: values.write(&child.item), delay_ms: child.delay_ms }
}

fn ask(values: &mut ValueWriter, ask: &TaskRequest) -> pb::JournalAsk {
    let TaskRequest { tag, target, input, instruction, context, input_schema, output_schema, timeout_ms } =
        ask;
    pb::JournalAsk {
        tag: tag.clone(),
        target: Some(match target {
            RequestTarget::Agent(name) => pb::journal_ask::Target::Agent(name.clone()),
            RequestTarget::Workflow(name) => pb::journal_ask::Target::Workflow(name.clone()),
            RequestTarget::Evaluation => pb::journal_ask::Target::Evaluation(true),
        }),
        input_json: values.write(input),
        instruction: instruction.clone(),
        context_json: json(context),
        input_schema_json: input_schema.as_ref().map(json),
        output_schema_json: output_schema.as_ref().map(json),
        timeout_ms: *timeout_ms,
    }
}

fn reply(values: &mut ValueWriter, reply: &TaskReply) -> pb::JournalReply {
    // The fact contains the time of work.
    let TaskReply { output, artifacts, events, usage, worked_ms: _ } = reply;
    pb::JournalReply {
        output_json: values.write(output),
        artifacts_json: all_json(artifacts),
        events_json: all_json(events),
        usage_json: json(usage),
    }
}

fn wait(values: &mut ValueWriter, wait: &PersonRequest) -> pb::JournalWait {
    let PersonRequest { prompt, data, allowed, timeout_ms, remind_ms, decision, approvals } = wait;
    pb::JournalWait {
        prompt: prompt.clone(),
        data_json: values.write(data),
        allowed: allowed.clone(),
        timeout_ms: *timeout_ms,
        remind_ms: *remind_ms,
        decision: *decision,
        approvals_json: approvals.iter().map(approval).collect(),
    }
}

fn approval(approval: &PersonAnswer) -> Bytes {
    // As for values above: it always serializes.
    serde_json::to_vec(approval).unwrap_or_default().into()
}

fn fault(fault: &Fault) -> pb::JournalFault {
    let kind = match fault.kind {
        FaultKind::Error => pb::JournalFaultKind::Error,
        FaultKind::Failure => pb::JournalFaultKind::Failure,
        FaultKind::Invalid => pb::JournalFaultKind::Invalid,
        FaultKind::Cancelled => pb::JournalFaultKind::Cancelled,
        FaultKind::Timeout => pb::JournalFaultKind::Timeout,
    };
    pb::JournalFault {
        code: fault.code.clone().into_owned(),
        message: fault.message.clone(),
        retryable: fault.retryable,
        kind: kind.into(),
        details: fault.details.clone(),
        retry_after_ms: fault.retry_after_ms,
    }
}
